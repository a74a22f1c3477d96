"""Asymmetric Nystroem: continued from landmarks, exact at their rank, harmless if they repeat."""
import tracemalloc
import warnings

import autograd.numpy as anp
import numpy as np
import pytest
import scipy.linalg
from autograd import grad
from conftest import assert_gradient, with_spectrum

from ksvd_ref import dual, kernels, nystrom

RNG = np.random.default_rng(37)


def parts(K, rows, columns):
    return K[:, columns], K[np.ix_(rows, columns)], K[rows, :]


LOW = RNG.standard_normal((9, 3)) @ RNG.standard_normal((3, 11))            # rank 3
RANK_2 = np.outer([1.0, 2, 3], [2.0, 1, 1, 4]) + np.outer([0.0, 1, 1], [1.0, 0, 2, 1])
EXACT = {                                       # K, rows, columns: the corner has the rank of K
    "as many as the rank": (LOW, [0, 4, 8], [1, 5, 9]),
    "more rows": (LOW, [0, 2, 4, 6, 8], [1, 5, 9]),
    "more columns": (LOW, [0, 4, 8], [1, 3, 5, 7, 9]),
    "more of both": (LOW, range(7), range(8)),
    "all": (LOW, range(9), range(11)),
    "not in order": (LOW, [8, 0, 4], [9, 1, 5]),
    "reported: both repeat": (RANK_2, [0, 1, 1], [0, 2, 2]),
    "a row repeats": (LOW, [0, 4, 8, 4, 4], [1, 5, 9]),
    "a column repeats": (LOW, [0, 4, 8], [1, 5, 5, 9, 1]),
    "one repeats many times": (LOW, [0, 4, 8] + 20 * [0], [1, 5, 9] + 30 * [9]),
    "rank 1": (np.outer([1.0, 2.0], [1.0, 3.0]), [0], [0]),
    "rank 1, only copies": (np.outer([1.0, 2.0], [1.0, 3.0]), [1, 1, 1], [0, 0]),
    "rank 1, multiples": (np.outer([1.0, 2.0, -4.0], [1.0, 3.0, 0.5]), [0, 1, 2], [0, 1, 2]),
    "a landmark of zeros": (np.diag([1.0, 0.0]) @ RNG.standard_normal((2, 5)), [0, 1], [0, 1, 2]),
    "zero": (np.zeros((4, 5)), [0, 1], [2, 3, 3]),
    "1x1": (np.array([[-3.0]]), [0], [0]),
}


# --- the approximation

@pytest.mark.parametrize("case", EXACT)
def test_exact_at_the_rank(lib, case):
    """V33. K itself, also where the corner is singular: no NaN, no warning, no large entries.

    Tolerance: the corner's sigma_1 / sigma_r is below 100 in all cases.
    """
    K, rows, columns = EXACT[case]
    got = lib.host(nystrom.approximate(*map(lib.array, parts(K, list(rows), list(columns)))))
    np.testing.assert_allclose(got, K, rtol=0, atol=10 * lib.tol * max(np.abs(K).max(), 1.0))


@pytest.mark.parametrize("case", EXACT)
def test_factors_multiply_to_the_approximation(lib, case):
    """The scales cancel in H_e Sigma H_r^T, whatever N and M are said to be."""
    K, rows, columns = EXACT[case]
    three = [lib.array(A) for A in parts(K, list(rows), list(columns))]
    for factor in (1, 7):
        N, M = (factor * max(k, n) for k, n in zip(K.shape, (len(rows), len(columns))))
        H_e, sigma, H_r = map(lib.host, nystrom.solve(*three, N=N, M=M))
        assert sigma.shape == (np.linalg.matrix_rank(K),) and np.all(np.diff(sigma) <= 0.0)
        assert (H_e.shape[0], H_r.shape[0]) == K.shape
        np.testing.assert_allclose(H_e * sigma @ H_r.T, K, rtol=0,
                                   atol=10 * lib.tol * max(np.abs(K).max(), 1.0))


def test_pseudo_inverse(rng):
    """V33. Landmarks below the rank: K_rows pinv(K_landmarks) K_cols, and no longer K."""
    K = rng.standard_normal((12, 10))
    K_rows, K_landmarks, K_cols = parts(K, [0, 3, 5, 7], [1, 2, 8])
    got = nystrom.approximate(K_rows, K_landmarks, K_cols)
    np.testing.assert_allclose(got, K_rows @ np.linalg.pinv(K_landmarks) @ K_cols, atol=1e-12)
    np.testing.assert_allclose(got[:, [1, 2, 8]], K_rows, atol=1e-12)   # more rows than columns
    assert np.abs(got - K).max() > 0.1


def test_cut_off():
    """sigma <= sigma_1 max(n, m) eps is left out, the next one above is kept."""
    eps = np.finfo(float).eps
    for small, kept in ((3.9 * eps, 1), (4.1 * eps, 2)):
        corner = np.zeros((4, 3))
        corner[0, 0], corner[1, 1] = 1.0, small
        with warnings.catch_warnings():
            warnings.simplefilter("ignore" if kept == 2 else "error")       # 1e-15 is divided by
            sigma = nystrom.solve(np.ones((5, 3)), corner, np.ones((4, 6)), N=5, M=6).sigma
        assert sigma.shape == (kept,)


# --- what is far off, and what helps

DATA = np.random.default_rng(1).standard_normal((2, 400, 3))
ORDINARY = {"rbf": kernels.rbf(*DATA, gamma=0.5), "exponential": kernels.exponential(*DATA),
            "softmax": kernels.softmax(*DATA)}


def error(K, rows, columns, rank=None):
    """Relative error of the approximation, and whether it warned."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = nystrom.approximate(*parts(K, rows, columns), rank)
    return (np.linalg.norm(K - found) / np.linalg.norm(K),
            any("may be far off" in str(w.message) for w in caught))


@pytest.mark.parametrize("name", ORDINARY)
def test_square_corners_can_be_far_off_and_say_so(name):
    """As many rows as columns, drawn apart: errors above 1, and never without a warning.

    A rank is an answer: it divides by no small sigma, and nothing is said.
    """
    K, worst = ORDINARY[name], 0.0
    for n in (20, 60):
        for seed in range(9):
            draws = np.random.default_rng(seed)
            rows, columns = (draws.choice(400, n, replace=False) for _ in range(2))
            off, warned = error(K, rows, columns)
            assert warned or off <= 1.0
            worst = max(worst, off)
            assert not error(K, rows, columns, rank=5)[1]
    assert worst > 1.0


@pytest.mark.parametrize("name", ORDINARY)
def test_landmarks_at_pivots(name):
    """The recommendation, in each of nine draws: ten times the best error of that rank at most."""
    K = ORDINARY[name]
    sigma = np.linalg.svd(K, compute_uv=False)
    for m, limit in ((20, 1.0), (60, 0.1), (150, 0.01)):
        best = np.linalg.norm(sigma[m:]) / np.linalg.norm(sigma)
        for seed in range(9):
            columns = np.random.default_rng(seed).choice(400, m, replace=False)
            rows = nystrom.pivots(K[:, columns], 2 * m)
            columns = nystrom.pivots(K[rows, :].T, m)
            assert error(K, rows, columns)[0] <= min(limit, 10.0 * best)


def test_pivots_are_those_of_an_elimination(lib, rng):
    """Against the rows that SciPy's LU brings to the top; then it starts with what is left."""
    A = rng.standard_normal((9, 4))
    P = scipy.linalg.lu(A)[0]
    first = [int(i) for i in np.argmax(P, axis=0)[:4]]
    found = nystrom.pivots(lib.array(A), 7)
    assert found[:4] == first and len(set(found)) == 7
    left = A.copy()
    left[first] = 0.0
    assert found[4] == np.argmax(np.abs(left[:, 0]))
    assert nystrom.pivots(lib.array(np.zeros((3, 2))), 3) == [0, 1, 2]     # nothing to choose by
    with pytest.raises(ValueError, match="n must be an integer from 1 to 9, got 10"):
        nystrom.pivots(lib.array(A), 10)


def test_symmetric_case_is_williams_and_seeger(rng):
    """Same landmarks on both sides of a PSD kernel: C W^-1 C^T, H_e = H_r."""
    X = rng.standard_normal((30, 2))
    K, chosen = kernels.rbf(X, X), [0, 7, 9, 20, 28]
    three = parts(K, chosen, chosen)
    C, W = three[0], three[1]
    np.testing.assert_allclose(nystrom.approximate(*three), C @ np.linalg.inv(W) @ C.T, atol=1e-9)
    H_e, sigma, H_r = nystrom.solve(*three, N=30, M=30)
    w, V = np.linalg.eigh(W)
    np.testing.assert_allclose(sigma, 6.0 * w[::-1], atol=1e-12)
    np.testing.assert_allclose(H_e, H_r, atol=1e-10)


# --- singular values and vectors

def test_scales_by_hand():
    """K = (1, 2)^T (1, 3), landmark (0, 0): sigma = 2, |h_e| = 1.58, |h_r| = 2.24; true 7.07, 1, 1.
    """
    H_e, sigma, H_r = nystrom.solve(*parts(np.outer([1.0, 2], [1.0, 3]), [0], [0]), N=2, M=2)
    np.testing.assert_allclose(sigma, [2.0])
    np.testing.assert_allclose(H_e, [[0.5 ** 0.5], [2.0 ** 0.5]])
    np.testing.assert_allclose(H_r, [[0.5 ** 0.5], [4.5 ** 0.5]])


@pytest.mark.parametrize("rank", [None, 1, 3])
def test_formula(lib, rng, rank):
    """K.37. Entry by entry, for n, m, N and M all different; one joint sign."""
    K = rng.standard_normal((8, 3)) @ rng.standard_normal((3, 7))
    N, M, rows, columns = 80, 70, [1, 2, 4, 6], [0, 3, 5, 6, 2]
    three = parts(K, rows, columns)
    H_e, sigma, H_r = map(lib.host, nystrom.solve(*map(lib.array, three), rank, N=N, M=M))
    U, s, Vt = np.linalg.svd(three[1])
    assert len(sigma) == (rank or 3)
    for l in range(len(sigma)):
        e = [sum(row * Vt[l]) / s[l] * (4 / N) ** 0.5 for row in three[0]]
        r = [sum(column * U[:, l]) / s[l] * (5 / M) ** 0.5 for column in three[2].T]
        sign = np.sign(e[np.argmax(np.abs(e))])
        np.testing.assert_allclose(H_e[:, l], sign * np.array(e), rtol=0, atol=10 * lib.tol)
        np.testing.assert_allclose(H_r[:, l], sign * np.array(r), rtol=0, atol=10 * lib.tol)
        np.testing.assert_allclose(sigma[l], s[l] * (N * M / 20) ** 0.5, rtol=10 * lib.tol)


def test_all_rows_and_columns_give_the_dual(lib):
    K = with_spectrum(RNG, 7, 6, [4.0, 3.0, 2.0, 1.0])
    A = lib.array(K)
    for got, want in zip(nystrom.solve(A, A, A, N=7, M=6), dual.solve(A)):
        np.testing.assert_allclose(lib.host(got), lib.host(want), rtol=0, atol=10 * lib.tol)


def test_scale_estimates_the_spectrum():
    """A smooth kernel of 300 x 240 points, 60 x 50 landmarks: the largest sigma to 15 %, and
    columns of about unit length. Ten draws."""
    X, Z = RNG.standard_normal((300, 3)), RNG.standard_normal((240, 3)) + 0.3
    K = kernels.rbf(X, Z, gamma=0.1)
    want = dual.solve(K, 3).sigma
    for seed in range(10):
        rows, columns = (nystrom.landmarks(N, n, seed=seed) for N, n in ((300, 60), (240, 50)))
        H_e, sigma, H_r = nystrom.solve(*parts(K, rows, columns), 3, N=300, M=240)
        np.testing.assert_allclose(sigma[0], want[0], rtol=0.15)
        np.testing.assert_allclose(np.linalg.norm(H_e[:, 0]), 1.0, rtol=0.15)
        np.testing.assert_allclose(np.linalg.norm(H_r[:, 0]), 1.0, rtol=0.15)


def test_rows_may_be_few():
    """Only the rows that are wanted: the same numbers as those rows of all."""
    K_rows, K_landmarks, K_cols = parts(LOW, [0, 4, 8], [1, 5, 9])
    whole = nystrom.solve(K_rows, K_landmarks, K_cols, N=9, M=11)
    some = nystrom.solve(K_rows[:4, :], K_landmarks, K_cols[:, 2:5], N=9, M=11)
    flip = np.sign(np.sum(some.H_e * whole.H_e[:4, :], axis=0))
    np.testing.assert_allclose(some.H_e * flip, whole.H_e[:4, :], atol=1e-13)
    np.testing.assert_allclose(some.H_r * flip, whole.H_r[2:5, :], atol=1e-13)


# --- from features

@pytest.mark.parametrize("rows, columns", [([0, 4, 8], [1, 5, 9]), ([8, 8, 0, 4], [9, 1, 1, 5]),
                                           (range(9), range(11)), ([2], [3])])
def test_features_give_the_same(lib, rows, columns):
    rng = np.random.default_rng(0)
    Phi, Psi = rng.standard_normal((9, 3)), rng.standard_normal((11, 3))
    got = nystrom.solve_features(lib.array(Phi), lib.array(Psi), rows, columns)
    three = parts(Phi @ Psi.T, list(rows), list(columns))
    want = nystrom.solve(*map(lib.array, three), got.sigma.shape[0], N=max(9, len(rows)), M=11)
    for A, B in zip(got, want):
        np.testing.assert_allclose(lib.host(A), lib.host(B), rtol=0, atol=30 * lib.tol)


def test_kernel_matrix_is_never_formed():
    """N = M = 20000: K has 3.2 GB, and 20000 x 30 numbers against landmarks 4.8 MB."""
    Phi, Psi = RNG.standard_normal((2, 20_000, 4))
    rows, columns = (nystrom.landmarks(20_000, 30, seed=seed) for seed in (0, 1))
    tracemalloc.start()
    H_e, sigma, H_r = nystrom.solve_features(Phi, Psi, rows, columns)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_allclose(H_e[:9] * sigma @ H_r[:9].T, Phi[:9] @ Psi[:9].T, atol=1e-11)
    assert len(sigma) == 4 and peak < 8 * H_e.nbytes        # 5 MB: two results twice


# --- landmarks

@pytest.mark.parametrize("N, n", [(1, 1), (10, 10), (1000, 7)])
def test_landmarks(N, n):
    chosen = nystrom.landmarks(N, n, seed=3)
    assert len(set(chosen)) == n and chosen == sorted(chosen) and 0 <= chosen[0] and chosen[-1] < N
    assert all(type(i) is int for i in chosen)
    assert chosen == nystrom.landmarks(N, n, seed=3)
    assert n == N or chosen != nystrom.landmarks(N, n, seed=4)


def test_landmarks_are_drawn_evenly():
    """2 of 5, 4000 seeds: each index 1600 times, standard deviation 31."""
    counts = np.bincount([i for seed in range(4000) for i in nystrom.landmarks(5, 2, seed=seed)])
    assert counts.sum() == 8000 and np.all(np.abs(counts - 1600) < 150)


@pytest.mark.parametrize("N, n, words", [
    (3, 4, "n must be an integer from 1 to 3, got 4"), (3, 0, "from 1 to 3, got 0"),
    (3, -1, "got -1"), (3, 1.5, "got 1.5"), (3, True, "got True"), (3, np.array([2]), "got array"),
    ("3", 1, "N must be an integer, 1 or more, got '3'"), (0, 0, "N must be .* got 0")])
def test_landmarks_refuse(N, n, words):
    with pytest.raises(ValueError, match=words):
        nystrom.landmarks(N, n, seed=0)


@pytest.mark.parametrize("seed", [None, -1, 1.5, "0"])
def test_landmarks_refuse_a_seed(seed):
    with pytest.raises(ValueError, match="seed must be an integer, 0 or more, got"):
        nystrom.landmarks(5, 2, seed=seed)


# --- derivatives

def test_derivative(rng):
    """Of every argument, at full rank; the losses see the components as a whole."""
    three, C = parts(LOW, [0, 4, 8], [1, 5, 9]), rng.standard_normal((9, 11))
    for n in range(3):
        def approximation(A):
            return anp.sum(C * nystrom.approximate(*three[:n], A, *three[n + 1:]))

        def side(A):
            H_e, sigma, H_r = nystrom.solve(*three[:n], A, *three[n + 1:], N=9, M=11)
            H = H_r[:9, :] if n == 2 else H_e
            return anp.sum(C[:, :9] * (H @ H.T)) + anp.sum(sigma ** 2)
        assert_gradient(approximation, three[n])
        assert_gradient(side, three[n])


def test_derivative_where_landmarks_repeat():
    """The corner is singular: the rows that repeat share the slope, and nothing is NaN."""
    K_rows, K_landmarks, K_cols = parts(RANK_2, [0, 1, 1], [0, 2, 2])
    slope = grad(lambda A: anp.sum(nystrom.approximate(A, K_landmarks, K_cols)))(K_rows)
    assert np.all(np.isfinite(slope))
    np.testing.assert_allclose(slope[:, 1], slope[:, 2], atol=1e-13)


def test_features_derivative():
    Phi, Psi = RNG.standard_normal((6, 3)), RNG.standard_normal((5, 3))
    for n, A in enumerate((Phi, Psi)):
        assert_gradient(lambda A: anp.sum(nystrom.solve_features(
            *((A, Psi) if n == 0 else (Phi, A)), [0, 2, 4], [1, 3, 4], 2).sigma), A)


# --- input

GOOD = dict(zip(("K_rows", "K_landmarks", "K_cols"), parts(LOW, [0, 4, 8], [1, 5])))
FEATURES = {"Phi": RNG.standard_normal((6, 3)), "Psi": RNG.standard_normal((5, 3))}


@pytest.mark.parametrize("change, words", [
    ({"K_rows": np.ones((9, 3))},
     r"K_landmarks must have shape .n, m. with m = 3, as K_rows of shape"),
    ({"K_cols": np.ones((2, 11))},
     r"K_cols must have shape .n, M. with n = 3, as K_landmarks .*2, 11")])
def test_shapes_must_fit(change, words):
    for call in (nystrom.approximate, lambda **three: nystrom.solve(**three, N=9, M=11)):
        with pytest.raises(ValueError, match=words):
            call(**{**GOOD, **change})


@pytest.mark.parametrize("N, M, words", [
    (2, 11, "N must be an integer, 9 .*got 2"), (9, 1, "M must be an integer, 11 .*got 1"),
    (8, 11, "N must be an integer, 9 or more, got 8"), (9, 10, "M must be .* 11 or more, got 10"),
    (9.0, 11, "N must be"), (9, True, "M must be"), (np.array([9]), 11, "N must be")])
def test_totals_must_hold_the_landmarks(N, M, words):
    with pytest.raises(ValueError, match=words):
        nystrom.solve(**GOOD, N=N, M=M)


@pytest.mark.parametrize("rank", [0, 4, 1.5, True, -1])
def test_rank_is_refused(rank):
    three = parts(LOW, [0, 4, 8], [1, 5, 9])
    with pytest.raises(ValueError, match="from 1 to 3 for landmarks of shape"):
        nystrom.solve(*three, rank, N=9, M=11)


def test_rank_above_the_numerical_rank_is_refused():
    """sigma = 0 would be divided by; the error names the numerical rank."""
    with pytest.raises(ValueError, match="numerical rank 2, rank 3 was asked"):
        nystrom.solve(*parts(RANK_2, [0, 1, 1], [0, 2, 2]), 3, N=3, M=4)


@pytest.mark.parametrize("rows, columns, error, words", [
    ([6], [0], ValueError, "each of rows must be an integer from 0 to 5, got 6"),
    ([-1], [0], ValueError, "rows .* got -1"), ([0.5], [0], ValueError, "rows .* got 0.5"),
    ([True], [0], ValueError, "rows .* got True"), (np.eye(2), [0], ValueError, "rows .* got arr"),
    (np.eye(2, dtype=int), [0], ValueError, "each of rows .* got array"),
    ([0], [5], ValueError, "columns .* from 0 to 4, got 5"), ([0], ["1"], ValueError, "columns"),
    ([], [0], ValueError, "rows must not be empty"),
    (3, [0], TypeError, "rows must be a sequence of integers, got 3"),
    ([0], None, TypeError, "columns must be a sequence of integers, got None"),
    ([0], np.array(1), TypeError, "columns must be a sequence of integers, got array")])
def test_indices_are_refused(rows, columns, error, words):
    """Out of range would wrap around on a GPU."""
    with pytest.raises(error, match=words):
        nystrom.solve_features(**FEATURES, rows=rows, columns=columns)


def test_indices_of_numpy():
    one, two = (nystrom.solve_features(**FEATURES, rows=rows, columns=np.array([1, 2]))
                for rows in (np.array([0, 1], dtype="int32"), [0, 1]))
    np.testing.assert_array_equal(one.H_e, two.H_e)


# --- scales

@pytest.mark.parametrize("dtype, scale, tol", [
    ("float64", 1e-310, 1e-11), ("float64", 1e300, 1e-12), ("float32", 1e-39, 1e-3),
    ("float32", 1e37, 1e-4)])
def test_scales(dtype, scale, tol):
    """1 / sigma alone would overflow at 1e-310; no warning, no NaN."""
    three = [(A * scale).astype(dtype) for A in parts(LOW, [0, 4, 8], [1, 5, 9])]
    np.testing.assert_allclose(nystrom.approximate(*three) / scale, LOW, rtol=0,
                               atol=tol * np.abs(LOW).max())
    one = nystrom.solve(*parts(LOW, [0, 4, 8], [1, 5, 9]), N=9, M=11)
    other = nystrom.solve(*three, N=9, M=11)
    np.testing.assert_allclose(other.sigma / scale, one.sigma, rtol=tol)
    np.testing.assert_allclose(other.H_e, one.H_e, rtol=0, atol=10 * tol)


@pytest.mark.parametrize("call", [
    lambda A, B, C: nystrom.solve(1e200 * A, 1e-200 * B, C, N=9, M=11),
    lambda A, B, C: nystrom.approximate(1e200 * A, 1e-200 * B, C),
    lambda A, B, C: nystrom.approximate(1e150 * A, B, 1e170 * C),
    lambda A, B, C: nystrom.solve_features(1e200 * A, 1e200 * A, [0, 1], [2, 3])])
def test_what_overflows_is_refused(call):
    """And does not come back as NaN; the SVD of an infinite corner would never return."""
    with pytest.raises(ValueError, match="overflows or is undefined"):
        call(*parts(LOW, [0, 4, 8], [1, 5]))


def test_float32_stays_whatever_kind_of_integer_N_is():
    three = [A.astype("float32") for A in parts(LOW, [0, 4, 8], [1, 5, 9])]
    found = nystrom.solve(*three, N=np.int64(9), M=np.int64(11))
    assert {A.dtype.name for A in found} == {"float32"}
