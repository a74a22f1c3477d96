"""Every equation holds on every kind of matrix, and notices when an ingredient is wrong."""
import numpy as np
import pytest

from ksvd_ref import dual, equations, features, kernels, primal
from ksvd_ref.course import datasets

TAGS = [equations.describe(function)[0] for function in equations.EQUATIONS]


def orthonormal(rng, n, k):
    return np.linalg.qr(rng.standard_normal((n, k)))[0]


def matrices():
    rng = np.random.default_rng(0)
    A = rng.standard_normal((8, 8))
    return {
        "wide": rng.standard_normal((4, 9)), "tall": rng.standard_normal((9, 4)), "square": A,
        "1 x 1": np.array([[-3.0]]), "row": rng.standard_normal((1, 6)),
        "column": rng.standard_normal((6, 1)), "symmetric": A + A.T, "antisymmetric": A - A.T,
        "rank 2": rng.standard_normal((7, 2)) @ rng.standard_normal((2, 5)),
        "identity": np.eye(5), "permutation": np.eye(6)[[2, 0, 1, 5, 4, 3]],
        "repeated": orthonormal(rng, 7, 5) * [3.0, 3, 3, 1, 1] @ orthonormal(rng, 6, 5).T,
        "nearly repeated": orthonormal(rng, 7, 4) * [1 + 1e-9, 1, 1 - 1e-7, 0.5]
        @ orthonormal(rng, 6, 4).T,
        "spread 1e-9": orthonormal(rng, 7, 4) * [1, 1e-3, 1e-6, 1e-9] @ orthonormal(rng, 6, 4).T,
        "Hadamard": np.kron([[1, 1], [1, -1]], [[1, 1], [1, -1]]),
        "small": 1e-150 * A, "large": 1e150 * A, "counts": rng.integers(0, 3, (10, 6)),
        "softmax": kernels.softmax(A[:6, :], A), "migration": datasets.canada_migration().A,
    }


@pytest.mark.parametrize("rank", [None, 1, 2])
@pytest.mark.parametrize("name", matrices())
def test_every_equation_holds(name, rank):
    A = matrices()[name]
    if rank and rank > np.linalg.matrix_rank(A):
        with pytest.raises(ValueError, match="numerical rank 1 "):
            equations.verify_matrix(A, rank=rank)
        return
    assert [residual for residual in equations.verify_matrix(A, rank=rank) if not residual.ok] == []


@pytest.mark.parametrize("shapes", [(9, 7, 4), (4, 7, 9), (5, 5, 5), (1, 3, 2), (3, 1, 6)])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_every_equation_holds_for_features(shapes, dtype):
    rng = np.random.default_rng(1)
    N, M, p = shapes
    Phi = rng.standard_normal((N, p)).astype(dtype)
    Psi = rng.standard_normal((M, p)).astype(dtype)
    assert [residual for residual in equations.verify(Phi, Psi) if not residual.ok] == []


def test_opposed_features():
    # |Phi| |Psi| / sigma_1 = 1e3: what Psi makes large Phi makes small, and the tolerance says so
    rng = np.random.default_rng(2)
    U, V, d = orthonormal(rng, 20, 4), orthonormal(rng, 15, 4), np.array([1.0, 1e-1, 1e-2, 1e-3])
    found = equations.verify(U * d, V / d * [4, 3, 2, 1])
    assert [residual for residual in found if not residual.ok] == []
    assert 100 < found[0].tolerance / equations.verify(U, V * [4, 3, 2, 1])[0].tolerance < 1000


def test_on_the_library(lib):
    rng = np.random.default_rng(3)
    Phi, Psi = lib.array(rng.standard_normal((6, 4))), lib.array(rng.standard_normal((5, 4)))
    found = equations.verify(Phi, Psi)
    assert [residual for residual in found if not residual.ok] == []
    assert all(isinstance(residual.value, float) for residual in found)


@pytest.fixture(scope="module")
def s():
    rng = np.random.default_rng(4)
    Phi, Psi = rng.standard_normal((9, 4)), rng.standard_normal((7, 4))
    return equations.solution(Phi - Phi.mean(axis=0), Psi - Psi.mean(axis=0))


def dual_half(s, left, right):
    """The dual vectors, as they are and as they meet the primal ones, times a factor each."""
    return {"H_e": s.H_e * left, "H_r": s.H_r * right,
            "aligned": (s.aligned[0] * left, s.aligned[1] * right)}


MEAN = np.array([[0.1, -0.2, 0.3, 0.1]])
ONE_SIDE = ("K.7 K.11 K.12 K.13 K.14 K.15 K.16 K.19 K.20 K.21 K.23 K.35 EY "
            "V10 V11 V12 V13 V15")
PERTURBED = {
    "H_e flipped, H_r not": (lambda s: dual_half(s, -1, 1), ONE_SIDE),
    "one column of H_r flipped": (lambda s: dual_half(s, 1, [-1, 1, 1, 1]), ONE_SIDE),
    "W_e flipped, W_r not": (lambda s: {"W_e": -s.W_e},
                             "K.12 K.14 K.17 K.18 K.20 K.22 K.23 V3 V4 V14"),
    "Lambda = Sigma": (lambda s: {"Lambda": s.sigma}, "K.11 K.13 K.17 K.18 K.22 V3 V8 V15 V17"),
    "W_e and W_r exchanged": (lambda s: {"W_e": s.W_r, "W_r": s.W_e},
                              "K.10 K.11 K.12 K.14 K.17 K.18 K.20 K.22 V3 V4 V6 V8"),
    # both equations of K.15 hold as before, and both halves are orthonormal: but Sigma > 0 does not
    "a negative sigma": (lambda s: {"sigma": s.sigma * [1, 1, 1, -1], "H_e": s.H_e * [1, 1, 1, -1]},
                         "K.7 K.21 K.23 K.39 V4 V8 V10 V14 V17"),
    "H without norm 1": (lambda s: dual_half(s, 2, 2),
                         "K.7 K.11 K.12 K.13 K.14 K.20 K.21 K.23 EY V10 V12 V15"),
    "a rank too small": (lambda s: {"rank": s.rank - 1}, "V11 V16"),
    # the mean of phi (of psi) was not taken off a new point; a constant alone would not show, since
    # centred singular vectors are orthogonal to it
    "a rank too large": (lambda s: {"rank": s.rank + 1,
                                    "primal_spectrum": np.append(s.primal_spectrum, 0.0)}, "V16"),
    "not the matrix that was given": (lambda s: {"given": s.K * (1 + 1e-6)}, "K.33"),
    "a new row not centred": (lambda s: {"K_rows": s.K_rows + MEAN @ s.Psi.T}, "K.20"),
    "a new column not centred": (lambda s: {"K_columns": s.K_columns + s.Phi @ MEAN.T}, "K.20"),
    "another entry of K": (lambda s: {"K": s.K + 1e-6 * np.eye(9, 7)},
                           "K.7 K.11 K.14 K.15 K.16 K.19 K.23 EY V10 V11 V12 V13 V15"),
    "sigma off by 1e-6": (lambda s: {"sigma": s.sigma * (1 + 1e-6)},
                          "K.7 K.15 K.16 K.19 K.21 K.35 K.39 EY V4 V8 V11 V12 V13 V14 V15 V17"),
    "another C than the inverse": (
        lambda s: {"compatible": features.compatible(s.K, s.K.T)}, "K.33"),
    "w of kernel PCA": (lambda s: {"pca": s.pca._replace(W_e=1.1 * s.pca.W_e)}, "V18"),
    "sigma of kernel PCA": (lambda s: {"pca": s.pca._replace(sigma=1.1 * s.pca.sigma)}, "K.34"),
    "sides not exchanged": (lambda s: {"transposed": primal.solve(s.Phi, s.Psi)}, "V17"),
}


@pytest.mark.parametrize("name", PERTURBED)
def test_a_wrong_ingredient_is_reported_by_exactly_these(s, name):
    change, tags = PERTURBED[name]
    found = [r.tag for r in equations.residuals(s._replace(**change(s))) if not r.ok]
    assert found == tags.split()


def test_a_wrong_gradient_is_reported(s, monkeypatch):
    right = primal.gradient
    monkeypatch.setattr(primal, "gradient", lambda *args: tuple(-g for g in right(*args)))
    assert [r.tag for r in equations.residuals(s) if not r.ok] == ["V1", "V2"]
    monkeypatch.setattr(primal, "gradient", lambda *args: right(*args)[::-1])
    assert {"V1", "V2"} <= {r.tag for r in equations.residuals(s) if not r.ok}


def test_no_equation_is_beyond_doubt():
    reported = {tag for _, tags in PERTURBED.values() for tag in tags.split()} | {"V1", "V2"}
    assert reported == set(TAGS)


def test_tags_are_those_of_the_derivation():
    K = [7, *range(10, 24), 33, 34, 35, 39]
    V = [1, 2, 3, 4, 6, 8, *range(10, 19)]          # V5, V7 are counter-examples, V9 is a count
    assert TAGS == [f"K.{n}" for n in K] + ["EY"] + [f"V{n}" for n in V]


def test_every_residual_says_what_and_whence(s):
    for residual in equations.residuals(s):
        assert residual.statement and residual.source and len(residual.statement) < 80
        assert residual.ok == (residual.value <= residual.tolerance)
    for function in equations.EQUATIONS:
        assert len(function.__doc__.splitlines()) <= 8      # the source included


def test_a_tie_is_aligned_even_where_the_rank_cuts_through_it():
    rng = np.random.default_rng(5)
    A = orthonormal(rng, 8, 4) * [2.0, 1, 1, 1] @ orthonormal(rng, 7, 4).T
    Phi, Psi = features.compatible(A)
    raw = dual.solve(Phi @ Psi.T, 3), primal.solve(Phi, Psi, 3)
    s = equations.solution(Phi, Psi, rank=3)
    # without alignment the two bases of the block differ (by about 1), with it they agree
    assert abs(Phi @ raw[1].W_e - raw[0].H_e * raw[0].sigma).max() > 1e-3
    assert s.size(equations.constraints(s)) < 1e-13         # rounding of an 8 x 7 problem


def test_a_sign_that_differs_is_not_aligned_away(s):
    again = equations.solution(s.Phi, s.Psi)
    flipped = again._replace(W_e=-again.W_e, W_r=-again.W_r)        # stationary, another pair
    assert [r.tag for r in equations.residuals(flipped) if not r.ok] == \
        ["K.11", "K.12", "K.14", "K.20"]


@pytest.mark.parametrize("bad, message", [
    (np.zeros((3, 3)), r"K = Phi Psi\^T must not be zero"),
    (np.array([[1.0, np.nan]]), "must be finite, got NaN or infinity in entry"),
    (np.ones(3), "must have 2 axes"), (np.ones((0, 3)), "must not be empty")])
def test_bad_matrices_are_refused(bad, message):
    with pytest.raises(ValueError, match=message):
        equations.verify_matrix(bad)


def test_a_wrong_primal_in_a_near_tie_is_not_blamed_on_the_dual():
    rng = np.random.default_rng(8)
    A = orthonormal(rng, 9, 4) * [2.0, 1 + 1e-6, 1, 0.5] @ orthonormal(rng, 8, 4).T
    s = equations.solution(*features.compatible(A), given=A)
    c, d = np.cos(0.3), np.sin(0.3)                 # turns the weights of sigma_2 and sigma_3
    T = np.array([[1, 0, 0, 0], [0, c, d, 0], [0, -d, c, 0], [0, 0, 0, 1]])
    found = [r.tag for r in equations.residuals(s._replace(W_e=s.W_e @ T, W_r=s.W_r @ T))
             if not r.ok]
    assert {"K.17", "K.18", "V14"} <= set(found) and not {"K.7", "K.15", "K.16", "EY"} & set(found)


def test_crowded_spectra_hold():
    # the Gram route of the primal turns a cluster by kappa eps; the dual must not inherit that
    rng = np.random.default_rng(9)
    sigma = np.r_[1.0, 1e-2 * (1 + 1e-10 * rng.random(39))]
    A = orthonormal(rng, 40, 40) * np.sort(sigma)[::-1] @ orthonormal(rng, 40, 40).T
    found = equations.verify_matrix(A)
    assert max(residual.value / residual.tolerance for residual in found) < 0.5


def test_a_compatible_map_that_loses_something_is_noticed(monkeypatch):
    A = np.diag([1.0, 0.5, 1e-4, 1e-5])
    monkeypatch.setattr(features, "compatible",
                        lambda A, C=None: (np.diag([1.0, 1, 0, 0]), np.asarray(A).T))
    assert [r.tag for r in equations.verify_matrix(A) if not r.ok] == ["K.33"]


def test_offset_data_with_a_sign_that_rounding_decides():
    # both entries of the second left vector have one size on paper, and sigma_2 is 1e-9 sigma_1:
    # dual and primal may choose opposite signs, and either is a solution
    X = np.array([[1000000002.0, 1000000000], [1000000000, 1000000001]])
    Z = np.array([[1.0, 0], [0, 1], [1, 1]])
    assert [residual for residual in equations.verify(X, Z) if not residual.ok] == []


def test_the_coarser_of_two_precisions_counts():
    rng = np.random.default_rng(6)
    Phi, Psi = rng.standard_normal((6, 3)), rng.standard_normal((5, 3))
    mixed = equations.verify(Phi.astype("float32"), Psi)
    assert [residual for residual in mixed if not residual.ok] == []
    single = equations.verify(Phi.astype("float32"), Psi.astype("float32"))
    np.testing.assert_allclose(mixed[0].tolerance, single[0].tolerance, rtol=1e-5)


def test_what_rounding_has_swallowed_is_not_verified():
    # K = Phi Psi^T is of the size of the rounding of Phi and Psi: any residual would pass
    noise = 1e-15 * np.random.default_rng(7).standard_normal((4, 4))
    Phi, Psi = np.hstack([np.eye(4), 0 * noise]), np.hstack([noise, np.eye(4)])
    with pytest.raises(ValueError, match="is lost in rounding: float64 cannot verify"):
        equations.verify(Phi, Psi)
    with pytest.raises(ValueError, match="must not be zero, nor overflow or underflow"):
        equations.verify(1e-200 * Phi, 1e-200 * Phi)
    with pytest.raises(ValueError, match="must not be zero, nor overflow or underflow"):
        equations.verify(1e200 * Phi, 1e200 * Phi)


@pytest.mark.parametrize("rank", [0, -1, 3, 1.5, True, "2"])
def test_bad_ranks_are_refused(rank):
    with pytest.raises(ValueError, match=r"from 1 to 2 for K of numerical rank 2 .* got"):
        equations.verify_matrix(np.outer([1.0, 2, 3], [1, 1, 0]) + np.eye(3)[:1].T, rank=rank)
