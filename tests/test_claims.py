"""Claims about attention as a smoother that no other test holds, over sizes and seeds (D.n)."""
import autograd
import autograd.numpy as anp
import numpy as np
import pytest

from ksvd_ref import dual, features, kernels, smoother

SEEDS = pytest.mark.parametrize("seed", range(3))
SIZES = pytest.mark.parametrize("N, d", [(6, 2), (15, 4)])
KERNELS = {"linear": kernels.linear, "polynomial": lambda X, Z: kernels.polynomial(X, Z, coef0=0.0),
           "exponential": kernels.exponential, "rbf": kernels.rbf}


def least(G):
    """Least eigenvalue of the symmetric part, relative to the largest entry."""
    return np.linalg.eigvalsh(0.5 * (G + G.T))[0] / np.abs(G).max()


@SEEDS
@SIZES
@pytest.mark.parametrize("name", KERNELS)
def test_one_map_makes_the_kernel_positive_and_two_do_not(name, N, d, seed):
    """D10: W_q = W_k gives symmetric PSD matrices; of two maps even the symmetric part is not."""
    rng = np.random.default_rng(seed)
    X, W_q, W_k = (rng.standard_normal(shape) for shape in ((N, d), (d, d), (d, d)))
    tied, untied = KERNELS[name](X @ W_q, X @ W_q), KERNELS[name](X @ W_q, X @ W_k)
    np.testing.assert_allclose(tied, tied.T, rtol=1e-13)
    assert least(tied) > -1e-13 * N                     # rounding of an N x N eigenproblem
    assert np.abs(untied - untied.T).max() > 1e-3 * np.abs(untied).max() and least(untied) < -1e-3


def test_symmetric_is_not_positive():
    """D12, by hand: eigenvalues -1 and 3."""
    np.testing.assert_allclose(np.linalg.eigvalsh([[1.0, 2], [2, 1]]), [-1, 3], rtol=1e-14)


@SEEDS
@SIZES
def test_filters_and_positivity(N, d, seed):
    """D13: a causal filter keeps the symmetric part PSD, a two-sided window can destroy it."""
    X = np.random.default_rng(seed).standard_normal((N, d))
    G = kernels.exponential(X, X)
    causal = np.where(smoother.causal(N), G, 0.0)
    np.testing.assert_allclose(causal + causal.T, G + np.diag(np.diag(G)), rtol=1e-14)
    assert least(causal) > 0.0
    near = np.abs(np.subtract.outer(np.arange(3), np.arange(3))) <= 1
    np.testing.assert_allclose(np.linalg.eigvalsh(near.astype(float)),
                               [1 - 2 ** 0.5, 1, 1 + 2 ** 0.5], rtol=1e-13)


@SEEDS
@SIZES
def test_normalised_symmetric_kernel_is_a_reversible_chain(N, d, seed):
    """D14: real spectrum in [0, 1] for a PSD kernel, stationary law proportional to Z."""
    X = np.random.default_rng(seed).standard_normal((N, d))
    G, A = kernels.exponential(X, X), kernels.softmax(X, X)
    spectrum = np.linalg.eigvals(A)
    assert np.abs(np.imag(spectrum)).max() < 1e-6       # defective only to the root of rounding
    assert -1e-6 < np.real(spectrum).min() and np.real(spectrum).max() < 1 + 1e-12
    law = G.sum(axis=1) / G.sum()
    np.testing.assert_allclose(law @ A, law, rtol=1e-12)
    np.testing.assert_allclose(law[:, None] * A, (law[:, None] * A).T, rtol=1e-12)


@SEEDS
@SIZES
def test_where_rows_have_their_maximum(N, d, seed):
    """D19: rbf with one map on the diagonal; the symmetric exponential kernel need not."""
    X = np.random.default_rng(seed).standard_normal((N, d))
    assert (kernels.rbf(X, X).argmax(axis=1) == np.arange(N)).all()
    G = np.exp(np.outer([1.0, 2], [1.0, 2]))            # by hand: the row of 1 is (e, e^2)
    assert G.argmax(axis=1).tolist() == [1, 1]


@SEEDS
@pytest.mark.parametrize("d", [1, 2, 3])
def test_rank_of_the_gram_matrix(d, seed):
    """D31: the number of features, where it is finite."""
    X = np.random.default_rng(seed).uniform(-1, 1, (14, d))
    rank = lambda K: np.linalg.matrix_rank(K, tol=1e-9 * np.abs(K).max())
    assert rank(kernels.linear(X, X)) == d
    assert rank(kernels.polynomial(X, X, coef0=0.0)) == d * (d + 1) // 2
    assert rank(kernels.polynomial(X, X)) == (d + 1) * (d + 2) // 2
    far = 3.0 * X[:4, :]                                # few points apart: full rank in float64 too
    assert rank(kernels.rbf(far, far)) == rank(kernels.exponential(far, far)) == 4


@pytest.mark.parametrize("angle", [0.0, 0.25, 0.5])
def test_variance_of_positive_random_features(angle):
    """D34: e^{|x+y|^2} SM^2 (1 - e^{-|x+y|^2}) for one sample, SM = e^{<x, y>}; exact at y = -x."""
    x = np.array([[0.6, 0.0]])
    y = -0.6 * np.array([[np.cos(np.pi * angle), np.sin(np.pi * angle)]])
    draws = [(Phi @ Psi.T)[0, 0] for Phi, Psi in
             (features.positive_random(x, y, m=1, seed=seed) for seed in range(20_000))]
    SM, size = np.exp((x @ y.T)[0, 0]), np.sum((x + y) ** 2)
    want = np.exp(size) * SM ** 2 * (1 - np.exp(-size))
    # the sample variance of 20000 draws of this heavy-tailed law is known to about a tenth
    np.testing.assert_allclose(np.var(draws), want, rtol=0.15, atol=1e-25)
    error = (want / 20_000) ** 0.5                      # of the mean; five of them are allowed
    np.testing.assert_allclose(np.mean(draws), SM, rtol=0, atol=5 * error + 1e-12)


@SEEDS
def test_mean_shift_is_a_gradient_step_and_never_descends(seed):
    """D36: rbf attention to the data minus the point is h^2 grad log p; p does not fall."""
    rng, h = np.random.default_rng(seed), 0.7
    Z, x = rng.standard_normal((30, 2)), rng.standard_normal((1, 2))
    log_p = lambda x: anp.log(anp.sum(kernels.rbf(x, Z, gamma=0.5 / h ** 2)))
    trace = [log_p(x)]
    for _ in range(30):
        new = smoother.attention(x, Z, Z, kernel="rbf", gamma=0.5 / h ** 2)
        np.testing.assert_allclose(new - x, h ** 2 * autograd.grad(log_p)(x), rtol=1e-9, atol=1e-13)
        x = new
        trace.append(log_p(x))
    assert np.diff(trace).min() > -1e-13


@SEEDS
def test_hopfield_energy_never_rises(seed):
    """D37: softmax attention to the patterns; with patterns of one length it is mean shift."""
    rng, beta = np.random.default_rng(seed), 2.0
    X, state = rng.standard_normal((8, 3)), rng.standard_normal((1, 3))
    energy = lambda s: -np.log(np.sum(np.exp(beta * s @ X.T))) / beta + 0.5 * np.sum(s ** 2)
    trace, x = [energy(state)], state
    for _ in range(20):
        x = smoother.attention(x, X, X, scale=1 / beta)
        trace.append(energy(x))
    assert np.diff(trace).max() < 1e-13
    even = X / np.linalg.norm(X, axis=1, keepdims=True)
    np.testing.assert_allclose(smoother.attention(state, even, even, scale=1 / beta),
                               smoother.attention(state, even, even, kernel="rbf", gamma=beta / 2),
                               rtol=1e-12)


def test_local_constant_is_biased_at_a_boundary_and_local_linear_is_not():
    """D38, by hand: y = 2 x + 1 at 0 from the points 0 and 1 with weights 1 and 1/2."""
    gamma = np.log(2.0)
    x, y = np.array([[0.0], [1.0]]), np.array([[1.0], [3.0]])
    constant = smoother.attention([[0.0]], x, y, kernel="rbf", gamma=gamma)
    np.testing.assert_allclose(constant, [[5 / 3]])
    W = np.diag(kernels.rbf([[0.0]], x, gamma=gamma)[0])
    design = np.hstack([np.ones((2, 1)), x])
    np.testing.assert_allclose(np.linalg.solve(design.T @ W @ design, design.T @ W @ y)[0], [1.0])


def test_locally_linear_weights_are_no_smoother():
    """D39, by hand: 0 from 1 and 2 needs the weights 2 and -1; a smoother stays between 1 and 2."""
    w = np.linalg.solve([[1.0, 2.0], [1.0, 1.0]], [0.0, 1.0])
    np.testing.assert_allclose(w, [2.0, -1.0])
    assert 1.0 < smoother.attention([[0.0]], [[1.0], [2.0]], [[1.0], [2.0]])[0, 0] < 2.0


@SEEDS
def test_one_map_makes_ksvd_kernel_pca(seed):
    """D35: left = right singular vectors if W_q = W_k, and not otherwise."""
    rng = np.random.default_rng(seed)
    X, W_q, W_k = (rng.standard_normal(shape) for shape in ((9, 3), (3, 3), (3, 3)))
    tied = dual.solve(kernels.exponential(X @ W_q, X @ W_q), 3)
    untied = dual.solve(kernels.exponential(X @ W_q, X @ W_k), 3)
    np.testing.assert_allclose(tied.H_e, tied.H_r, atol=1e-9)
    assert np.abs(np.abs(untied.H_e) - np.abs(untied.H_r)).max() > 1e-2
