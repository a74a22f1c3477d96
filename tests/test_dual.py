"""K H_r = H_e Sigma and K^T H_e = H_r Sigma: by the SVD and by the shifted eigenproblem."""
import autograd.numpy as anp
import numpy as np
import pytest
import scipy.linalg
from autograd import grad
from conftest import assert_gradient, with_spectrum

from ksvd_ref import dual

RNG = np.random.default_rng(5)
SKEW = RNG.standard_normal((5, 5))
CASES = {
    "N<M": RNG.standard_normal((4, 7)),
    "N=M": RNG.standard_normal((6, 6)),
    "N>M": RNG.standard_normal((7, 4)),
    "1x1": np.array([[-3.0]]),
    "one-row": RNG.standard_normal((1, 5)),
    "one-column": RNG.standard_normal((5, 1)),
    "rank-2": with_spectrum(RNG, 7, 5, [3.0, 1.0]),
    "rank-1": np.outer([2.0, 1.0, 2.0], [1.0, 2.0]),
    "repeated": with_spectrum(RNG, 5, 6, [2.0, 2.0, 2.0, 1.0, 1.0]),
    "identity": np.eye(4),
    "symmetric": SKEW + SKEW.T,
    "antisymmetric": SKEW - SKEW.T,                         # sigma come in pairs, one is 0
    "zero": np.zeros((3, 2)),
    "large": 1e6 * RNG.standard_normal((5, 3)),
}
SOLVERS = {"svd": dual.solve, "shifted": dual.solve_shifted}


def both(test):
    return pytest.mark.parametrize("solve", SOLVERS.values(), ids=SOLVERS)(test)


# --- the two equations

@both
@pytest.mark.parametrize("case", CASES)
def test_shifted_equations(lib, case, solve):
    """K.7, K.15. Both equations, and sigma of NumPy's SVD; every component, also those of sigma =
    0.

    Tolerance: both algorithms are backward stable, so a few roundings of the largest sigma.
    """
    K = CASES[case]
    N, M = K.shape
    k, atol = min(N, M), lib.tol * max(np.max(np.abs(K)), 1.0)
    H_e, sigma, H_r = map(lib.host, solve(lib.array(K), rank=k))
    assert (H_e.shape, sigma.shape, H_r.shape) == ((N, k), (k,), (M, k))
    np.testing.assert_allclose(K @ H_r, H_e * sigma, rtol=0, atol=atol)
    np.testing.assert_allclose(K.T @ H_e, H_r * sigma, rtol=0, atol=atol)
    np.testing.assert_allclose(H_e.T @ H_e, np.eye(k), rtol=0, atol=lib.tol)
    np.testing.assert_allclose(H_r.T @ H_r, np.eye(k), rtol=0, atol=lib.tol)
    np.testing.assert_allclose(sigma, np.linalg.svd(K)[1], rtol=0, atol=atol)
    assert np.all(np.diff(sigma) <= 0.0) and np.all(sigma >= 0.0)


@both
@pytest.mark.parametrize("case", sorted(set(CASES) - {"zero"}))
def test_numerical_rank_is_kept(lib, case, solve):
    K = CASES[case]
    want = np.linalg.matrix_rank(K)
    H_e, sigma, H_r = map(lib.host, solve(lib.array(K)))
    assert (H_e.shape, H_r.shape) == ((K.shape[0], want), (K.shape[1], want))
    np.testing.assert_allclose(H_e * sigma @ H_r.T, K, rtol=0, atol=lib.tol * np.max(np.abs(K)))


@both
def test_zero_matrix_has_no_components(lib, solve):
    H_e, sigma, H_r = solve(lib.array(np.zeros((3, 2))))
    assert (H_e.shape, sigma.shape, H_r.shape) == ((3, 0), (0,), (2, 0))
    lib.keeps(sigma)


@both
def test_leading_components(lib, rng, solve):
    """EY. rank = s keeps the s largest: the best approximation of that rank."""
    K = with_spectrum(rng, 8, 6, [5.0, 4.0, 3.0, 2.0, 1.0])
    for s in range(1, 6):
        H_e, sigma, H_r = map(lib.host, solve(lib.array(K), rank=s))
        error = np.sum((K - H_e * sigma @ H_r.T) ** 2)
        np.testing.assert_allclose(error, np.sum(np.arange(1.0, 6 - s) ** 2), atol=1e2 * lib.tol)


@both
@pytest.mark.parametrize("case", ["N<M", "N=M", "N>M", "1x1", "one-row", "rank-2", "antisymmetric"])
def test_one_joint_sign(lib, case, solve):
    """V12. The entry of largest magnitude of each column of H_e is positive."""
    H_e = lib.host(solve(lib.array(CASES[case])).H_e)
    assert np.all(H_e[np.argmax(np.abs(H_e), axis=0), np.arange(H_e.shape[1])] > 0.0)


@both
@pytest.mark.parametrize("H", [scipy.linalg.hadamard(4), scipy.linalg.hadamard(8)])
def test_sign_of_equal_entries(lib, H, solve):
    """All entries of a singular vector are equal in size: the first one is positive."""
    K = H * np.arange(len(H), 0.0, -1.0)        # sigma = sqrt(n) (n, ..., 1), H_e = H / sqrt(n)
    H_e = lib.host(solve(lib.array(K)).H_e)
    np.testing.assert_allclose(H_e, H / len(H) ** 0.5, rtol=0, atol=lib.tol)


@pytest.mark.parametrize("case", ["N<M", "N=M", "N>M", "one-row", "rank-2", "rank-1"])
def test_both_solvers_give_the_same_vectors(case):
    """Simple sigma: the sign rule leaves nothing open."""
    for one, two in zip(dual.solve(CASES[case]), dual.solve_shifted(CASES[case])):
        np.testing.assert_allclose(one, two, rtol=0, atol=1e-12)


@both
def test_small_sigma_survive(solve):
    """V36. Eigenvalues of KᵀK lose σ below √ε σ₁.

    Sigma spread over nine orders, each to the rounding of sigma_1.
    """
    K = with_spectrum(np.random.default_rng(0), 6, 5, [1.0, 1e-3, 1e-6, 1e-9])
    sigma = solve(K, rank=4).sigma
    np.testing.assert_allclose(sigma, [1.0, 1e-3, 1e-6, 1e-9], rtol=0, atol=1e-14)
    squared = np.sqrt(np.abs(np.linalg.eigvalsh(K.T @ K)[::-1]))
    assert abs(squared[3] - 1e-9) > 1e-12           # the shortcut: at least a hundred times worse


@both
@pytest.mark.parametrize("scale", [2.0 ** -500, 2.0 ** 500])        # 3e-151 and 3e150
@pytest.mark.parametrize("case", ["N<M", "N>M", "rank-2", "antisymmetric"])
def test_scales(case, scale, solve):
    K = CASES[case]
    one, other = solve(K), solve(scale * K)
    np.testing.assert_allclose(other.sigma / scale, one.sigma, rtol=1e-13)
    np.testing.assert_allclose(other.H_e @ other.H_r.T, one.H_e @ one.H_r.T, atol=1e-13)


def test_symmetric_and_antisymmetric():
    """Symmetric: sigma = |w|, h_e = +-h_r. Antisymmetric: pairs of equal sigma, h_e _|_ h_r."""
    H_e, sigma, H_r = dual.solve(np.diag([2.0, -1.0]))
    np.testing.assert_array_equal(np.sum(H_e * H_r, axis=0), [1.0, -1.0])
    H_e, sigma, H_r = dual.solve(CASES["antisymmetric"], rank=5)
    np.testing.assert_allclose(sigma[[0, 2]], sigma[[1, 3]], rtol=1e-13)
    np.testing.assert_allclose(np.sum(H_e * H_r, axis=0)[:4], 0.0, atol=1e-13)


@both
@pytest.mark.parametrize("K", [np.full((3, 3), 1.5e308), np.array([[1.7e308] * 2, [1.0, 2.0]])])
def test_sigma_that_overflows_is_refused(K, solve):
    """Each entry is finite, sigma_1 = 4.5e308 is not."""
    for rank in (None, 2):
        with pytest.raises(ValueError, match="overflows"):
            solve(K, rank)


# --- the block matrix

def test_shifted_matrix(lib, rng):
    """K.16. The matrix itself, block by block."""
    K = rng.standard_normal((3, 2))
    want = np.block([[np.zeros((3, 3)), K], [K.T, np.zeros((2, 2))]])
    got = lib.host(dual.shifted_matrix(lib.array(K)))
    np.testing.assert_allclose(got, want, rtol=0, atol=lib.tol)


@pytest.mark.parametrize("case", ["N<M", "N>M", "rank-2", "repeated", "zero"])
def test_shifted_spectrum(case):
    """V11. +-sigma and N + M - 2 min(N, M) zeros more."""
    K = CASES[case]
    sigma = np.linalg.svd(K)[1]
    want = np.sort(np.concatenate([sigma, -sigma, np.zeros(abs(K.shape[0] - K.shape[1]))]))
    np.testing.assert_allclose(np.linalg.eigvalsh(dual.shifted_matrix(K)), want, atol=1e-14)


# --- scores

def test_scores(lib, rng):
    """K.20, K.21. Against the sum over training points, and on the training points."""
    K, rows, columns = (rng.standard_normal(shape) for shape in ((5, 4), (3, 4), (5, 2)))
    solution = dual.solve(lib.array(K))
    H_e, sigma, H_r = map(lib.host, solution)
    want_e = [[sum(h[j] * row[j] for j in range(4)) for h in H_r.T] for row in rows]
    want_r = [[sum(h[i] * column[i] for i in range(5)) for h in H_e.T] for column in columns.T]
    for score, K_new, want in ((dual.e_scores, rows, want_e), (dual.r_scores, columns, want_r),
                               (dual.e_scores, K, H_e * sigma), (dual.r_scores, K, H_r * sigma)):
        got = lib.host(score(lib.array(K_new), solution))
        np.testing.assert_allclose(got, want, rtol=0, atol=10 * lib.tol)


# --- derivatives

C = np.random.default_rng(7).standard_normal((12, 12))      # fixed weights of the losses
LOSSES = {
    "frobenius": lambda K, H_e, sigma, H_r: anp.sqrt(anp.sum((H_e * sigma @ H_r.T) ** 2)),
    "nuclear-norm": lambda K, H_e, sigma, H_r: anp.sum(sigma),
    "polar": lambda K, H_e, sigma, H_r: anp.sum(C[:K.shape[0], :K.shape[1]] * (H_e @ H_r.T)),
    "left": lambda K, H_e, sigma, H_r: anp.sum(C[:K.shape[0], :K.shape[0]] * (H_e @ H_e.T)),
    "right": lambda K, H_e, sigma, H_r: anp.sum(C[:K.shape[1], :K.shape[1]] * (H_r @ H_r.T)),
    "K-H_r-H_rT": lambda K, H_e, sigma, H_r:
        anp.sum(C[:K.shape[0], :K.shape[1]] * (K @ H_r @ H_r.T)),
    "scores": lambda K, *solution: anp.sum(dual.e_scores(K, solution) ** 4),
}
TIES_ARE_WHOLE = sorted(set(LOSSES) - {"scores"})
SMOOTH = {"N<M": 4, "N=M": 6, "N>M": 4, "1x1": 1, "one-row": 1, "rank-2": 2, "rank-1": 1}
TIED = {"repeated": 3, "identity": 4, "antisymmetric": 4}


def leading(solve, loss, s):
    return lambda K: LOSSES[loss](K, *solve(K, rank=s))


@both
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("case", SMOOTH)
def test_derivative(case, loss, solve):
    assert_gradient(leading(solve, loss, SMOOTH[case]), CASES[case])


@both
@pytest.mark.parametrize("loss", TIES_ARE_WHOLE)
@pytest.mark.parametrize("case", TIED)
def test_derivative_at_ties(case, loss, solve):
    """The tied columns enter as a whole: no rank here cuts a block of equal sigma in two."""
    assert_gradient(leading(solve, loss, TIED[case]), CASES[case])


@both
@pytest.mark.parametrize("loss", TIES_ARE_WHOLE)
@pytest.mark.parametrize("scale", [2.0 ** -500, 2.0 ** 500])
def test_derivative_scales(scale, loss, solve):
    K, order = CASES["N>M"], loss in ("polar", "left", "right")
    slope = grad(leading(solve, loss, 3))
    np.testing.assert_allclose(slope(scale * K) * scale ** order, slope(K), rtol=1e-10, atol=1e-12)


@both
@pytest.mark.parametrize("K, loss, want", [
    (np.diag([2.0, 2.0, 1.0]), "frobenius", np.diag([2.0, 2.0, 1.0]) / 3.0),
    (np.eye(3), "nuclear-norm", np.eye(3)),
    (np.eye(3), "polar", 0.5 * (C[:3, :3] - C[:3, :3].T)),
    (np.eye(3), "K-H_r-H_rT", C[:3, :3])])
def test_known_derivatives_at_ties(K, loss, want, solve):
    np.testing.assert_allclose(grad(leading(solve, loss, 3))(K), want, rtol=0, atol=1e-14)


@both
def test_derivative_of_the_numerical_rank(solve):
    """rank=None cuts the zeros off; what is left is smooth along matrices of the same rank."""
    K = CASES["rank-2"]
    got = grad(lambda K: anp.sum(solve(K).sigma))(K)
    H_e, _, H_r = dual.solve(K)
    np.testing.assert_allclose(got, H_e @ H_r.T, rtol=0, atol=1e-13)


# --- input

K = RNG.standard_normal((4, 3))
SOLUTION = dual.solve(K)


@both
@pytest.mark.parametrize("rank", [0, 4, -1, 1.5, True, "2"])
def test_bad_rank_is_refused(rank, solve):
    with pytest.raises(ValueError, match=r"from 1 to 3 for K of shape \(4, 3\), got"):
        solve(K, rank=rank)


@both
@pytest.mark.filterwarnings("ignore:the matrix subclass")
@pytest.mark.parametrize("make", [np.asarray, np.asmatrix, np.ndarray.tolist])
def test_integers_lists_and_np_matrix(make, solve):
    """200 * 250 does not fit 8 bits: a product of the integers would be another matrix."""
    K = np.array([[200, 100], [250, 255]], dtype="uint8")
    want = np.linalg.svd(K.astype(float))[1]
    np.testing.assert_allclose(solve(make(K)).sigma, want, rtol=1e-13)


@pytest.mark.parametrize("score, shape, words", [
    (dual.e_scores, (4, 4), "(n, M) with M = 3, as dual.H_r of shape (3, 3), got (4, 4)"),
    (dual.r_scores, (3, 3), "(N, n) with N = 4, as dual.H_e of shape (4, 3), got (3, 3)")])
def test_new_points_must_fit(score, shape, words):
    with pytest.raises(ValueError) as caught:
        score(np.ones(shape), SOLUTION)
    assert f"K_new must have shape {words}" in str(caught.value)


# --- how sure is it

def sine(A, B):
    """Of the largest angle between the spans of orthonormal columns."""
    return np.linalg.norm(A - B @ (B.T @ A), 2)


@pytest.mark.parametrize("size", [1e-6, 1e-3, 1e-1])
def test_singular_values_move_no_further_than_the_change(rng, size):
    """K.45. |σ_l(K + D) − σ_l(K)| ≤ ‖D‖₂, to first order hₑᵀ D hᵣ. Source: textbook."""
    K = with_spectrum(rng, 8, 6, [5.0, 4.0, 3.0, 2.0, 1.0])
    H_e, sigma, H_r = dual.solve(K, rank=5)
    for D in size * rng.standard_normal((5, 8, 6)):
        moved = dual.solve(K + D, rank=5).sigma - sigma
        assert np.all(np.abs(moved) <= np.linalg.norm(D, 2) * (1 + 1e-9))
        first = np.sum(H_e * (D @ H_r), axis=0)
        np.testing.assert_allclose(moved, first, rtol=0, atol=10 * np.linalg.norm(D) ** 2)
    worst = size * np.outer(H_e[:, 1], H_r[:, 1])               # the bound is reached
    np.testing.assert_allclose(dual.solve(K + worst).sigma[1] - sigma[1], size, rtol=1e-6)


@pytest.mark.parametrize("size", [1e-6, 1e-3, 1e-1])
def test_a_span_is_as_sure_as_its_gap(rng, size):
    """K.46. The s leading spans of K and K + D: sine at most ‖D‖₂/(σ_s(K) − σ_{s+1}(K + D)).

    The better of the bounds of Wedin, for both sides; a change across the gap comes within a tenth.

    Source: textbook.
    """
    K = with_spectrum(rng, 8, 6, [5.0, 4.0, 3.0, 2.0, 1.0])
    for s in (1, 2, 3):
        one = dual.solve(K, rank=s)
        across = size * np.outer(dual.solve(K, rank=5).H_e[:, s - 1],
                                 dual.solve(K, rank=5).H_r[:, s])
        for D in (*size * rng.standard_normal((5, 8, 6)), across):
            other = dual.solve(K + D, rank=s + 1)
            bound = np.linalg.norm(D, 2) / (one.sigma[-1] - other.sigma[-1])
            for A, B in ((one.H_e, other.H_e), (one.H_r, other.H_r)):
                assert sine(A, B[:, :s]) <= bound * (1 + 1e-9)
    K = np.diag([1.0, 0.0])
    D = size * np.array([[0.0, 1.0], [1.0, 0.0]])
    other = dual.solve(K + D, rank=2)
    bound = size / (1.0 - other.sigma[1])
    assert 0.9 * bound <= sine(np.eye(2)[:, :1], other.H_e[:, :1]) <= bound


def test_the_causal_filter_is_all_asymmetry():
    """K.47. κ(x, z) = 1 for z ≤ x: eigenvalues 1/N, all of them, and σ_l = 2/((2l − 1)π).

    Source: textbook.
    """
    N = 1000
    K = np.tril(np.ones((N, N))) / N
    np.testing.assert_allclose(np.diagonal(K), 1.0 / N)         # a triangle's eigenvalues
    H_e, sigma, H_r = dual.solve(K)
    l, x = np.arange(1, 6), (np.arange(N) + 0.5) / N
    np.testing.assert_allclose(sigma[:5], 2.0 / ((2 * l - 1) * np.pi), rtol=1e-3 * 5)
    u = np.sin((l - 0.5) * np.pi * x[:, None]) * (2.0 / N) ** 0.5
    v = np.cos((l - 0.5) * np.pi * x[:, None]) * (2.0 / N) ** 0.5
    np.testing.assert_allclose(np.abs(np.sum(u * H_e[:, :5], axis=0)), 1.0, rtol=1e-4)
    np.testing.assert_allclose(np.abs(np.sum(v * H_r[:, :5], axis=0)), 1.0, rtol=1e-4)
