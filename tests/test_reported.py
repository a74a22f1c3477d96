"""Problems that users of neighbouring tools reported, each with its whole kind.

Every test names the public thread; the inputs are ours. Reports about attention (masks, padding,
large scores in a smoother) are in test_smoother.py.
"""
import time
import warnings

import autograd.numpy as anp
import numpy as np
import pytest
from autograd import grad
from conftest import central, with_spectrum

from ksvd_ref import dual, features, kernels, primal

SOLVERS = {"svd": dual.solve, "shifted": dual.solve_shifted}


def both(test):
    return pytest.mark.parametrize("solve", SOLVERS.values(), ids=SOLVERS)(test)


def assert_solution(K, solution, sigma=None, atol=1e-12, unit=1e-12):
    H_e, s, H_r = solution
    np.testing.assert_allclose(K @ H_r, H_e * s, rtol=0, atol=atol)
    np.testing.assert_allclose(K.T @ H_e, H_r * s, rtol=0, atol=atol)
    np.testing.assert_allclose(H_e.T @ H_e, np.eye(len(s)), rtol=0, atol=unit)
    np.testing.assert_allclose(H_r.T @ H_r, np.eye(len(s)), rtol=0, atol=unit)
    if sigma is not None:
        np.testing.assert_allclose(s, sigma, rtol=1e-9, atol=1e-14)


# --- a NaN gives "SVD did not converge", NaN factors or a hang (dask#6822, numpy#5588)

@both
def test_nan_kernel(solve):
    with pytest.raises(ValueError, match="K must be finite, got NaN or infinity") as caught:
        solve(np.array([[2.0, 1.0], [np.nan, 3.0], [4.0, 0.0]]), rank=1)
    assert caught.type is ValueError                # not numpy.linalg.LinAlgError


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (3, 3), (30, 20), (20, 30)])
def test_not_finite_anywhere_and_in_no_time(shape, value):
    """One infinity makes a LAPACK SVD of 3 x 3 and more run for ever: refused before it starts."""
    start = time.process_time()
    for entry in ((0, 0), (-1, -1), (0, -1)):
        K = np.ones(shape)
        K[entry] = value
        X = np.ones((4, shape[1]))
        for call in (lambda: dual.solve(K), lambda: dual.solve_shifted(K),
                     lambda: primal.solve(K, X), lambda: primal.solve(X, K),
                     lambda: features.compatible(K), lambda: kernels.softmax(X, K),
                     lambda: kernels.center(K)):
            with pytest.raises(ValueError, match="must be finite"):
                call()
    assert time.process_time() - start < 5.0


# --- singular values below sqrt(eps) sigma_1 come back as 0 (scikit-learn#29534)

HADAMARD = 0.5 * np.array([[1.0, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]])
TURN = np.array([[1.0, 2, 2], [2, 1, -2], [2, -2, 1]]) / 3.0


@both
def test_small_sigma_kept(solve):
    want = np.array([1.0, 1e-5, 1e-9])
    K = HADAMARD[:, :3] * want @ TURN.T
    H_e, sigma, H_r = solution = solve(K)
    np.testing.assert_allclose(sigma, want, rtol=1e-5)
    # +sigma and -sigma of the block matrix lie 2e-9 apart: their vectors mix by eps / 2e-9 = 1e-7
    assert_solution(K, solution, unit=1e-12 if solve is dual.solve else 1e-6)


@pytest.mark.parametrize("smallest", [1e-3, 1e-5, 1e-7, 1e-9])
def test_small_sigma_on_every_route(smallest):
    """1e-5 relative, in the primal too, whichever side carries the small direction."""
    want = np.array([1.0, smallest ** 0.5, smallest])
    for Phi, Psi in ((HADAMARD[:, :3] * want, TURN), (HADAMARD[:, :3], TURN * want),
                     (HADAMARD[:, :3] * want ** 0.5, TURN * want ** 0.5),
                     (HADAMARD[:, :3] * want @ TURN, TURN @ TURN)):
        K = Phi @ Psi.T
        for sigma in (dual.solve(K).sigma, dual.solve_shifted(K).sigma,
                      primal.solve(Phi, Psi).sigma, primal.solve(*features.compatible(K)).sigma):
            np.testing.assert_allclose(sigma, want, rtol=1e-5)


# --- zero sigma kept at fit: scores of new points are inf or NaN (scikit-learn#12141)

@both
def test_rank_one_transform(solve):
    K = np.outer([2.0, 1.0, 2.0], [1.0, 2.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        H_e, sigma, H_r = solution = solve(K, rank=2)
        assert_solution(K, solution, [3 * 5 ** 0.5, 0.0])
        np.testing.assert_allclose(dual.e_scores(K, solution), H_e * sigma, atol=1e-14)
        np.testing.assert_allclose(dual.r_scores(K, solution), H_r * sigma, atol=1e-14)
        new = dual.e_scores([[1.0, 2.0]], solution)
        np.testing.assert_allclose(np.abs(new), [[5 ** 0.5, 0.0]], atol=1e-14)


@pytest.mark.parametrize("N, M, r", [(5, 4, 2), (4, 6, 1), (4, 4, 3), (3, 3, 0)])
def test_low_rank_scores_on_every_route(rng, N, M, r):
    """All components asked for, the zero ones too: nothing divides by sigma."""
    K = with_spectrum(rng, N, M, np.arange(r, 0.0, -1.0)) if r else np.zeros((N, M))
    Phi, Psi = features.compatible(K)
    k, row = min(N, M), rng.standard_normal((1, M))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for solution in (dual.solve(K, rank=k), dual.solve_shifted(K, rank=k)):
            assert_solution(K, solution)
            np.testing.assert_allclose(dual.e_scores(row, solution), row @ solution.H_r)
        P = primal.solve(Phi, Psi, rank=k)
        E, R = primal.e_scores(Phi, P), primal.r_scores(Psi, P)
        np.testing.assert_allclose(E.T @ E, np.diag(P.sigma ** 2), rtol=0, atol=1e-12)
        np.testing.assert_allclose(R.T @ R, np.diag(P.sigma ** 2), rtol=0, atol=1e-12)
        assert np.isfinite(primal.e_scores(rng.standard_normal((1, k)), P)).all()


# --- left and right factors from two eigendecompositions (math.stackexchange 2392416)

@both
def test_coupled_signs(solve):
    K = np.array([[1.0, 2, 0], [0, 3, 1], [2, 0, 4]])
    H_e, sigma, H_r = solution = solve(K)
    assert_solution(K, solution, [4.729456181677, 3.413183527396, 0.991172252391])
    np.testing.assert_allclose(H_e * sigma @ H_r.T, K, rtol=0, atol=1e-14)
    np.testing.assert_allclose(np.prod(sigma), 16.0, rtol=1e-14)    # |det K|


@pytest.mark.parametrize("seed", range(20))
def test_coupled_signs_of_many(seed):
    """Twenty sign patterns, on both sides of the derivation."""
    rng = np.random.default_rng(seed)
    Phi, Psi = rng.standard_normal((6, 4)), rng.standard_normal((5, 4))
    K = Phi @ Psi.T
    for solution in (dual.solve(K), dual.solve_shifted(K),
                     primal.to_dual(primal.solve(Phi, Psi), Phi, Psi)):
        assert_solution(K, solution, atol=1e-10)


# --- the one-line RBF gives distance 0 in single precision (annoy#314, scikit-learn#9354)

def test_rbf_float32_offset():
    X = np.array([[1000.0, 0.0]], dtype="float32")
    Z = np.array([[1000.25, 0.0], [1000.0, 0.5], [1000.0, 0.0]], dtype="float32")
    K = kernels.rbf(X, Z)
    assert K.dtype == np.float32 and K[0, 2] == 1.0
    np.testing.assert_allclose(K, np.exp([[-1 / 16, -1 / 4, 0.0]]), rtol=1e-6)
    expanded = np.sum(X * X, axis=1)[:, None] + np.sum(Z * Z, axis=1) - 2 * X @ Z.T
    assert np.max(np.abs(np.exp(-expanded) - K)) > 1e-2             # the one-liner, for comparison


@pytest.mark.parametrize("offset", [0.0, 10.0, 1e3, 1e5])
@pytest.mark.parametrize("kernel", [kernels.rbf, kernels.sne])
def test_distances_do_not_depend_on_the_origin(kernel, offset):
    """Points on a grid of 1/64: exact in float32 up to 1e5."""
    rng = np.random.default_rng(0)
    X, Z = (rng.integers(-64, 64, (n, 3)) / 64.0 for n in (5, 4))
    got = kernel((X + offset).astype("float32"), (Z + offset).astype("float32"))
    np.testing.assert_array_equal(got, kernel(X.astype("float32"), Z.astype("float32")))
    np.testing.assert_allclose(got, kernel(X, Z), rtol=1e-6)


# --- equal singular values: every entry of the gradient is NaN (jax#8732)

@both
def test_gradient_at_repeated_sigma(solve):
    def norm(A):
        H_e, sigma, H_r = solve(A)
        return anp.sqrt(anp.sum((H_e * sigma @ H_r.T) ** 2))
    A = np.diag([2.0, 2.0, 1.0])
    np.testing.assert_allclose(grad(norm)(A), A / 3.0, rtol=0, atol=1e-14)


@both
@pytest.mark.parametrize("A", [
    np.eye(3), -np.eye(3), HADAMARD, TURN, np.eye(4)[[1, 2, 3, 0]], np.diag([2.0, 2.0, 1.0, 1.0]),
    np.eye(5)[:, :3], np.array([[0.0, 2.0], [-2.0, 0.0]])])
def test_gradients_of_norms_of_symmetric_designs(A, solve):
    """Frobenius norm: A / |A|; nuclear norm: the polar factor; log |det A|: A^-T."""
    U, s, Vt = np.linalg.svd(A, full_matrices=False)
    for loss, want in (
            (lambda H_e, s, H_r: anp.sqrt(anp.sum((H_e * s @ H_r.T) ** 2)),
             A / np.sqrt(np.sum(s * s))),
            (lambda H_e, s, H_r: anp.sum(s), U @ Vt),
            (lambda H_e, s, H_r: anp.sum(anp.log(s)), U / s @ Vt)):
        got = grad(lambda A: loss(*solve(A)))(A)
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-13)


# --- traced values in a preallocated array (autograd#58)

def test_trace_through_the_gram_matrix():
    X, Z = np.array([[1.0, 0.0]]), np.array([[2.0, 1.0]])
    got = grad(lambda X: anp.sum(kernels.polynomial(X, Z)))(X)
    np.testing.assert_allclose(got, [[12.0, 6.0]], rtol=1e-14)      # 2 (1 + <x, z>) z
    got = grad(lambda X: anp.sum(kernels.gram(lambda x, z: anp.tanh(x @ z), X, Z)))(X)
    np.testing.assert_allclose(got, (1.0 - np.tanh(2.0) ** 2) * Z, rtol=1e-14)


@pytest.mark.parametrize("kernel", [
    kernels.linear, kernels.polynomial, kernels.rbf, kernels.exponential, kernels.cosine,
    kernels.softmax, kernels.sne,
    lambda X, Z: kernels.gram(lambda x, z: anp.exp(x[0] * z[1]), X, Z),
    lambda X, Z: features.polynomial(X, Z)[0] @ features.polynomial(X, Z)[1].T,
    lambda X, Z: kernels.center(kernels.rbf(X, Z))])
def test_trace_from_the_data_to_the_scores(rng, kernel):
    """Data, kernel, dual, scores: one derivative through all of it, on both sides at once."""
    X, Z = rng.standard_normal((3, 2)), rng.standard_normal((4, 2))

    def f(X):
        K = kernel(X, Z + X[:1, :])
        return anp.sum(dual.e_scores(K, dual.solve(K, rank=1)) ** 2)     # sigma_1^2
    got = grad(f)(X)
    assert got.shape == X.shape
    np.testing.assert_allclose(got, central(f, X), rtol=0, atol=1e-7 * max(1.0, f(X)))


# --- centring of a rectangular matrix (scikit-learn#14240)

def test_center_rectangular():
    x, z = np.array([1.0, 3.0]), np.array([0.0, 2.0, 7.0])
    got = kernels.center(np.outer(x, z))                            # (x - 2) (z - 3)
    np.testing.assert_allclose(got, [[3.0, 1.0, -4.0], [-3.0, -1.0, 4.0]], rtol=0, atol=1e-14)


@pytest.mark.parametrize("N, M", [(2, 3), (3, 2), (4, 4), (1, 4), (4, 1)])
def test_centred_data_and_new_points(rng, N, M):
    """Outer products of numbers: centring the matrix is centring the numbers, on each side."""
    x, z, new = rng.standard_normal(N), rng.standard_normal(M), rng.standard_normal(3)
    K, close = np.outer(x, z), {"rtol": 0, "atol": 1e-14}
    u, v = x - np.mean(x), z - np.mean(z)
    np.testing.assert_allclose(kernels.center(K), np.outer(u, v), **close)
    np.testing.assert_allclose(kernels.center_rows(np.outer(new, z), K),
                               np.outer(new - np.mean(x), v), **close)
    np.testing.assert_allclose(kernels.center_columns(np.outer(x, new), K),
                               np.outer(u, new - np.mean(z)), **close)


# --- exp of a large score overflows (tt-metal#12661): the kernel matrix itself

def test_softmax_of_large_scores():
    K = kernels.softmax([[90.0]], [[10.0], [10.02]])                # scores 900 and 901.8
    np.testing.assert_allclose(K, [[1 / (1 + np.exp(1.8)), 1 / (1 + np.exp(-1.8))]], rtol=1e-9)
    with pytest.raises(ValueError, match="exponential overflows.*use kernels.softmax"):
        kernels.exponential([[90.0]], [[10.0], [10.02]])
