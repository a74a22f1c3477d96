"""One matrix by both routes: each half is that of its module, and a size is the norm it says."""
import numpy as np
import pytest

from ksvd_ref import dual, equations, features, large, primal
from ksvd_ref.solution import Lengths, Weighted, has_low_rank, solution


@pytest.fixture
def pair(rng):
    return rng.standard_normal((9, 4)), rng.standard_normal((7, 4))


def test_each_half_is_that_of_its_module(pair):
    Phi, Psi = (A / np.linalg.norm(A, 2) for A in pair)
    s = solution(*pair)
    H_e, sigma, H_r = dual.solve(Phi @ Psi.T)
    W_e, _, W_r = primal.solve(Phi, Psi)
    assert s.rank == 4 and s.scale == pytest.approx(np.prod([np.linalg.norm(A, 2) for A in pair]))
    for name, expected in (("H_e", H_e), ("sigma", sigma), ("H_r", H_r), ("W_e", W_e),
                           ("W_r", W_r), ("E", H_e * sigma), ("Lambda", 1 / sigma)):
        # sigma_1 / sigma_4 is about 5: a hundred roundings
        np.testing.assert_allclose(getattr(s, name), expected, rtol=0, atol=2e-14 / sigma[-1])
    np.testing.assert_allclose(s.sigma * s.scale, np.linalg.svd(pair[0] @ pair[1].T)[1][:4],
                               rtol=1e-13)
    assert s.eye.shape == (4, 4) and s.spectrum.shape == (7,) and s.primal_spectrum.shape == (4,)


def test_fewer_components_are_the_leading_ones(pair):
    whole, some = solution(*pair), solution(*pair, rank=2)
    for name in ("H_e", "H_r", "E", "R", "W_e", "W_r"):
        np.testing.assert_allclose(getattr(some, name), getattr(whole, name)[:, :2], atol=1e-14)
    np.testing.assert_array_equal(some.spectrum, whole.spectrum)
    assert some.rank == whole.rank == 4 and some.rounding == whole.rounding


def test_the_library_and_the_precision_stay(lib, pair):
    s = solution(*map(lib.array, pair))
    for x in s:
        for part in x if isinstance(x, tuple) else (x,):
            if hasattr(part, "shape"):
                lib.keeps(part)
    assert np.isfinite(s.size([s.K, Weighted(s.delta, s.W_e), Lengths(s.K, s.sigma)]))


def test_the_matrix_that_was_given_has_the_scale_of_K(rng):
    A = 1e150 * rng.standard_normal((5, 6))
    s = solution(*features.compatible(A), given=A)
    np.testing.assert_allclose(s.given, s.K, atol=1e-15)


def test_few_features_of_many_points_go_by_golub_kahan(rng, monkeypatch):
    Phi, Psi = rng.standard_normal((520, 3)), rng.standard_normal((510, 3))
    assert has_low_rank(520, 510, 3) and not has_low_rank(520, 510, 60)
    called = []
    right = large.golub_kahan
    monkeypatch.setattr(large, "golub_kahan", lambda *a: called.append(1) or right(*a))
    monkeypatch.setattr(dual, "solve", None)
    assert all(residual.ok for residual in equations.verify(Phi, Psi)) and called


def test_shifted_gives_the_same_without_the_matrix(rng):
    s = solution(rng.standard_normal((560, 2)), rng.standard_normal((460, 2)))     # 1020 rows
    small = s._replace(K=s.K[:500, :400])
    for one in (s, small):
        N, M = one.K.shape
        H_e, H_r = rng.standard_normal((N, 2)), rng.standard_normal((M, 2))
        upper, lower = one.shifted(H_e, H_r)
        whole = dual.shifted_matrix(one.K) @ np.vstack([H_e, H_r])
        np.testing.assert_allclose(np.vstack([upper, lower]), whole, atol=1e-13)


def test_size(pair):
    """By hand, with columns of norms 5 and 13: the largest term counts, and NaN is not hidden."""
    s = solution(*pair)
    s = s._replace(sigma_1=0.5)
    A = np.array([[3.0, 5.0], [4.0, 12.0]])
    norm = 194 ** 0.5
    for terms, size in (
            ([A], 2 * norm), ([A / 2, A], 2 * norm), ([A[0, 0]], 6.0), ([A[:0, :]], 0.0),
            ([Weighted(1, A)], norm), ([Weighted(1, A, 2 * A, 0)], 2 * norm),
            ([Weighted(np.array([1.0, 0.5]), A)], 6.5), ([Weighted(np.array([2.0, 0.5]), A)], 10.0),
            ([Lengths(A, np.array([10.0]))], 2 * (norm - 10)), ([Lengths(0 * A, A)], 2 * norm),
            ([Weighted(1, 0 * A), A], 2 * norm),
            ([Weighted(np.array([0.0, -1.0]), A)], 13.0)):          # a negative sigma hides nothing
        assert s.size(terms) == pytest.approx(size, rel=1e-14)
    for term in (np.nan * A, Weighted(1, np.nan * A), Weighted(np.ones(2), np.nan * A),
                 Lengths(A, np.nan * A)):
        assert np.isnan(s.size([A, term])) and np.isnan(s.size([term, A]))


def test_features_of_any_size_are_one_problem(pair):
    s = solution(*pair)
    for scale in (2.0 ** 500, 2.0 ** -500):
        other = solution(scale * pair[0], pair[1])
        np.testing.assert_array_equal(other.K, s.K)             # powers of two round nothing
        np.testing.assert_array_equal(other.sigma, s.sigma)
        assert other.scale == scale * s.scale


def test_another_matrix_than_that_of_the_features_is_refused(pair):
    message = r"given must have shape \(N, M\) with M = 7, as Psi of shape"
    with pytest.raises(ValueError, match=message):
        solution(*pair, given=np.ones((9, 6)))
