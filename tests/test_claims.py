"""Claims that no other test holds, over sizes and seeds: of the primal (V) and of attention (D)."""
import autograd
import autograd.numpy as anp
import numpy as np
import pytest

from scipy.special import softmax

from ksvd_ref import dual, features, kernels, primal
from ksvd_ref.attention import filters, positions, smoother

SEEDS = pytest.mark.parametrize("seed", range(3))
SIZES = pytest.mark.parametrize("N, d", [(6, 2), (15, 4)])
KERNELS = {"linear": kernels.linear, "polynomial": lambda X, Z: kernels.polynomial(X, Z, coef0=0.0),
           "exponential": kernels.exponential, "rbf": kernels.rbf}


def least(G):
    """Least eigenvalue of the symmetric part, relative to the largest entry."""
    return np.linalg.eigvalsh(0.5 * (G + G.T))[0] / np.abs(G).max()


# --- the primal -----------------------

@SEEDS
def test_subspace_iteration_finds_the_leading_components(seed):
    """K.40. Subspace iteration, W_e ← orth(ΨᵀΨ ΦᵀΦ W_e).

    V32. Subspace iteration converges to the span of the leading s components if σ_s > σ_{s+1} and
    no direction of the start is orthogonal to it.
    """
    rng = np.random.default_rng(seed)
    U, V = (np.linalg.qr(rng.standard_normal((n, 4)))[0] for n in (9, 7))
    for sigma, converges in (([4.0, 3.0, 1.0, 0.5], True), ([4.0, 2.0, 2.0, 0.5], False)):
        Phi, Psi = U * sigma, V
        want = np.linalg.qr(Psi.T @ V[:, :2])[0]            # the span of Psi^T H_r, by the SVD
        W_e = np.linalg.qr(rng.standard_normal((4, 2)))[0]
        for _ in range(60):                                 # (1 / 3)^120 of the rest is left
            W_e = np.linalg.qr(Psi.T @ (Psi @ (Phi.T @ (Phi @ W_e))))[0]
        gap = np.abs(W_e @ W_e.T - want @ want.T).max()
        assert (gap < 1e-12) == converges and (gap > 1e-3) == (not converges)
    Psi = rng.standard_normal((4, 4))
    Phi = np.diag([4.0, 3, 1, 0.5]) @ Psi
    W, W_e = np.linalg.qr(rng.standard_normal((4, 2)))[0], primal.solve(Phi, Psi, 2).W_e
    for _ in range(200):
        W = np.linalg.qr(Psi.T @ (Psi @ (Phi.T @ (Phi @ W))))[0]
    away = lambda A, B: np.linalg.norm(A - B @ (B.T @ A)) / np.linalg.norm(A)
    assert away(W_e, W) < 1e-9 and away(W_e[:, 1:], W[:, 1:]) > 1e-3    # the span, not each column
    start = np.eye(4)[:, 2:]                                # orthogonal to the leading two of
    stays = np.linalg.qr(np.diag([16.0, 9, 1, 0.25]) @ start)[0]        # diag(4, 3, 1, 1/2)
    assert np.all(np.abs(stays) == start)


@SEEDS
@pytest.mark.parametrize("k", range(4))
def test_inertia_of_the_hessian(k, seed):
    """V9. Full column rank, distinct σ: the Hessian of one component at λ = 1/σ_k has p + k − 1
    positive, 1 zero, p − k negative directions.
    """
    rng = np.random.default_rng(seed)
    Phi, Psi = rng.standard_normal((9, 4)), rng.standard_normal((7, 4))
    Lambda = 1.0 / np.linalg.svd(Phi @ Psi.T)[1][k:k + 1]
    zero = np.zeros((4, 1))                                 # the gradient is linear in W
    columns = [np.vstack(primal.gradient(*pair, Lambda, Phi, Psi))[:, 0] for e in np.eye(4)
               for pair in ((e[:, None], zero), (zero, e[:, None]))]
    order = [0, 2, 4, 6, 1, 3, 5, 7]                        # those of W_e first
    w = np.linalg.eigvalsh(np.array(columns)[order])
    small = 1e-12 * np.abs(w).max()
    counted = [np.sum(w > small), np.sum(np.abs(w) <= small), np.sum(w < -small)]
    assert counted == [4 + k, 1, 3 - k]                     # k counts from 1 in the claim


@SEEDS
def test_trace_of_the_weights(seed):
    """V38. tr(W_eᵀW_r) = Σ_l σ_l for unit-norm H, with no further Σ."""
    rng = np.random.default_rng(seed)
    Phi, Psi = rng.standard_normal((9, 4)), rng.standard_normal((7, 4))
    U, sigma, Vt = np.linalg.svd(Phi @ Psi.T, full_matrices=False)
    W_e, _, W_r = primal.from_dual((U, sigma, Vt.T), Phi, Psi)
    np.testing.assert_allclose(np.trace(W_e.T @ W_r), np.sum(sigma), rtol=1e-12)
    assert np.sum(sigma ** 2) > 2.0 * np.sum(sigma)


# --- the kernel and its normaliser -----------------------

@SEEDS
@SIZES
def test_logits_of_a_layer(N, d, seed):
    """K.2. Attention logits of one layer, a(x_i, x_j) = ⟨W_q x_i, W_k x_j⟩/√d. Source: textbook.

    S.4. In logarithms: softmax over the visible keys, −∞ where hidden.
    """
    rng = np.random.default_rng(seed)
    X, W_q, W_k = (rng.standard_normal(shape) for shape in ((N, 3), (d, 3), (d, 3)))
    a = np.array([[(W_q @ x) @ (W_k @ z) / d ** 0.5 for z in X] for x in X])
    Q, K, mask = X @ W_q.T, X @ W_k.T, np.tri(N, dtype=bool)
    np.testing.assert_allclose(np.log(kernels.exponential(Q, K)), a, rtol=0, atol=1e-12)
    np.testing.assert_allclose(kernels.softmax(Q, K), softmax(a, axis=1), rtol=1e-12)
    hidden = softmax(np.where(mask, a, -np.inf), axis=1)
    np.testing.assert_allclose(smoother.weights(Q, K, mask=mask), hidden, rtol=1e-12)
    assert np.abs(a - a.T).max() > 0.1


@SEEDS
def test_normalising_the_rows_changes_the_kernel(seed):
    """V19. Row normalisation multiplies φ(x) by 1/Z(x): in general it changes σ and vectors (equal
    Z leave the vectors), and the split D̂^{-1/2}GD̂^{-1/2} is another kernel.
    """
    rng = np.random.default_rng(seed)
    X, Y = rng.standard_normal((6, 2)), rng.standard_normal((5, 2))
    Phi, Psi = features.positive_random(X, Y, m=4, seed=seed)
    G = Phi @ Psi.T
    Z = G.sum(axis=1, keepdims=True)
    A, D = (Phi / Z) @ Psi.T, primal.solve(Phi / Z, Psi)
    np.testing.assert_allclose(A, G / Z, rtol=1e-12)
    np.testing.assert_allclose(D.sigma, np.linalg.svd(G / Z)[1][:len(D.sigma)], atol=1e-12)
    for one, two in list(zip(np.linalg.svd(G), np.linalg.svd(A)))[:2]:      # U, sigma
        assert np.abs(np.abs(one) - np.abs(two)).max() > 1e-2
    G = np.array([[3.0, 1.0], [1.0, 1.0]])                  # by hand: Z = 4, 2
    split = G / np.sqrt(np.outer(G.sum(axis=1), G.sum(axis=1)))
    np.testing.assert_allclose(split, [[0.75, 8 ** -0.5], [8 ** -0.5, 0.5]], rtol=1e-15)
    assert abs(np.linalg.svd(split)[1] - np.linalg.svd(G / [[4.0], [2.0]])[1]).max() > 1e-2
    G = np.array([[2.0, 1.0, 0.0], [0.0, 2.0, 1.0], [1.0, 0.0, 2.0]]) + rng.random()    # equal sums
    one, two = dual.solve(G), dual.solve(G / G.sum(axis=1, keepdims=True))
    np.testing.assert_allclose(one.H_e @ one.H_r.T, two.H_e @ two.H_r.T, atol=1e-13)
    np.testing.assert_allclose(one.sigma / G[0].sum(), two.sigma, rtol=1e-13)


@SEEDS
@SIZES
def test_row_stochastic_matrices(N, d, seed):
    """V20. A row-stochastic square K ≥ 0 has σ₁ ≥ 1, and 1 only if its columns sum to 1 too."""
    X, Y = np.random.default_rng(seed).standard_normal((2, N, d))
    K = kernels.softmax(X, Y)
    assert np.abs(K.sum(axis=0) - 1).max() > 0.1 and dual.solve(K, 1).sigma[0] > 1.0 + 1e-3
    for _ in range(300):                                    # Sinkhorn: rows last
        K = K / K.sum(axis=0)
        K = K / K.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(dual.solve(K, 1).sigma, 1.0, rtol=1e-8)
    np.testing.assert_allclose(dual.solve([[1.0, 0], [1, 0]], 1).sigma, 2 ** 0.5)      # by hand


@SEEDS
@SIZES
def test_exponential_kernel_is_a_gaussian_with_two_factors(N, d, seed):
    """D3. e^{⟨q,k⟩} = e^{‖q‖²/2} e^{−‖q−k‖²/2} e^{‖k‖²/2}."""
    Q, K = np.random.default_rng(seed).standard_normal((2, N, d))
    of_q, of_k = (np.exp((X ** 2).sum(axis=1) / 2) for X in (Q, K))
    np.testing.assert_allclose(of_q[:, None] * kernels.rbf(Q, K, gamma=0.5) * of_k,
                               kernels.exponential(Q, K, scale=1.0), rtol=1e-12)


@SEEDS
@SIZES
@pytest.mark.parametrize("name", KERNELS)
def test_one_map_makes_the_kernel_positive_and_two_need_not(name, N, d, seed):
    """D10. One map on both sides makes the kernels S.6 to S.9 positive semi-definite, S.8 if its γ
    and c are not negative; two need not.
    """
    rng = np.random.default_rng(seed)
    X, W_q, W_k = (rng.standard_normal(shape) for shape in ((N, d), (d, d), (d, d)))
    tied, untied = KERNELS[name](X @ W_q, X @ W_q), KERNELS[name](X @ W_q, X @ W_k)
    np.testing.assert_allclose(tied, tied.T, rtol=1e-13)
    assert least(tied) > -1e-13 * N                     # rounding of an N x N eigenproblem
    assert np.abs(untied - untied.T).max() > 1e-3 * np.abs(untied).max() and least(untied) < -1e-3
    assert least(kernels.polynomial(np.eye(2), np.eye(2), degree=1, coef0=-1.0)) == -1.0    # c < 0


def test_symmetric_is_not_positive():
    """D12. Symmetric is not positive semi-definite: [[1, 2], [2, 1]] has the eigenvalue −1."""
    np.testing.assert_allclose(np.linalg.eigvalsh([[1.0, 2], [2, 1]]), [-1, 3], rtol=1e-14)


@SEEDS
@SIZES
def test_filters_and_positivity(N, d, seed):
    """D13. A causal filter keeps the symmetric part positive semi-definite, and so does a causal
    window of width 2; a two-sided window need not, nor a causal one of width 3.
    """
    X = np.random.default_rng(seed).standard_normal((N, d))
    G = kernels.exponential(X, X)
    causal = np.where(filters.causal(N), G, 0.0)
    np.testing.assert_allclose(causal + causal.T, G + np.diag(np.diag(G)), rtol=1e-14)
    assert least(causal) > 0.0
    near = np.abs(np.subtract.outer(np.arange(3), np.arange(3))) <= 1
    np.testing.assert_allclose(np.linalg.eigvalsh(near.astype(float)),
                               [1 - 2 ** 0.5, 1, 1 + 2 ** 0.5], rtol=1e-13)
    assert least(np.where(filters.window(N, 2), G, 0.0)) > 0.0
    ones = [least(filters.window(12, width).astype(float)) for width in (2, 3)]
    assert ones[0] > 0.02 and ones[1] < -0.03


@SEEDS
@SIZES
def test_normalised_symmetric_kernel_is_a_reversible_chain(N, d, seed):
    """D14. A normalised symmetric positive kernel has a real spectrum and a stationary law ∝ Z."""
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
    """D19. rbf with one map has its row maxima on the diagonal, the exponential kernel need not."""
    X = np.random.default_rng(seed).standard_normal((N, d))
    assert (kernels.rbf(X, X).argmax(axis=1) == np.arange(N)).all()
    G = np.exp(np.outer([1.0, 2], [1.0, 2]))            # by hand: the row of 1 is (e, e^2)
    assert G.argmax(axis=1).tolist() == [1, 1]


@SEEDS
@pytest.mark.parametrize("d", [1, 2, 3])
def test_rank_of_the_gram_matrix(d, seed):
    """D31. Rank of a Gram matrix: at most d, d(d+1)/2, (d+1)(d+2)/2 for linear, homogeneous, full
    quadratic kernels, attained by enough points in general position.
    """
    X = np.random.default_rng(seed).uniform(-1, 1, (14, d))
    rank = lambda K: np.linalg.matrix_rank(K, tol=1e-9 * np.abs(K).max())
    assert rank(kernels.linear(X, X)) == d
    assert rank(kernels.polynomial(X, X, coef0=0.0)) == d * (d + 1) // 2
    assert rank(kernels.polynomial(X, X)) == (d + 1) * (d + 2) // 2
    line = X[:, :1] @ np.ones((1, d))                   # all points on one line: less
    assert [rank(K) for K in (kernels.linear(line, line), kernels.polynomial(line, line, coef0=0.0),
                              kernels.polynomial(line, line))] == [1, 1, 3]
    far = 3.0 * X[:4, :]                                # few points apart: full rank in float64 too
    assert rank(kernels.rbf(far, far)) == rank(kernels.exponential(far, far)) == 4


@pytest.mark.parametrize("angle", [0.0, 0.25, 0.5])
def test_variance_of_positive_random_features(angle):
    """D34. Variance of positive random features: e^{‖x+y‖²} SM² (1 − e^{−‖x+y‖²}) for one sample,
    SM = e^{⟨x, y⟩}.

    S.32, D34. Exact at y = -x.
    """
    x = np.array([[0.6, 0.0]])
    y = -0.6 * np.array([[np.cos(np.pi * angle), np.sin(np.pi * angle)]])
    Phi, Psi = features.positive_random(x, y, m=20_000, seed=0)
    draws = 20_000 * (Phi * Psi)[0]                     # its terms: what m = 1 would draw each time
    SM, size = np.exp((x @ y.T)[0, 0]), np.sum((x + y) ** 2)
    want = np.exp(size) * SM ** 2 * (1 - np.exp(-size))
    # the sample variance of 20000 draws of this heavy-tailed law is known to about a tenth
    np.testing.assert_allclose(np.var(draws), want, rtol=0.15, atol=1e-25)
    error = (want / 20_000) ** 0.5                      # of the mean; five of them are allowed
    np.testing.assert_allclose(np.mean(draws), SM, rtol=0, atol=5 * error + 1e-12)


@SEEDS
def test_mean_shift_is_a_gradient_step_and_never_descends(seed):
    """S.34. Mean shift: rbf attention whose keys and values are the data. Source: Fukunaga and
    Hostetler 1975; Cheng 1995.

    D36. A mean-shift step is h² ∇ log p and never lowers p. Source: derived; Fukunaga and Hostetler
    1975; Cheng 1995.
    """
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
    """S.35. Modern Hopfield update: attention whose keys and values are the patterns. Source:
    derived; Ramsauer et al. 2021.

    D37. The Hopfield energy never rises; with patterns of one length the update is mean shift
    at h² = 1/β.
    """
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
    """D38. Local constant regression of a straight line is biased at a boundary, local linear is
    not; of a parabola both are. Source: derived; Fan 1992.

    By hand: y = 2 x + 1 at 0 from the points 0 and 1 with weights 1 and 1/2.
    """
    gamma = np.log(2.0)
    x, y = np.array([[0.0], [1.0]]), np.array([[1.0], [3.0]])
    constant = smoother.attention([[0.0]], x, y, kernel="rbf", gamma=gamma)
    np.testing.assert_allclose(constant, [[5 / 3]])
    W = np.diag(kernels.rbf([[0.0]], x, gamma=gamma)[0])
    design = np.hstack([np.ones((2, 1)), x])
    np.testing.assert_allclose(np.linalg.solve(design.T @ W @ design, design.T @ W @ y)[0], [1.0])
    x = np.linspace(0.0, 1.0, 41)[:, None]                  # y = x^2 at 0, from the right, h = 0.1
    constant = smoother.attention([[0.0]], x, x ** 2, kernel="rbf", gamma=50.0)[0, 0]
    linear = np.polyfit(x[:, 0], x[:, 0] ** 2, 1, w=np.exp(-25.0 * x[:, 0] ** 2))[1]
    np.testing.assert_allclose([constant, linear], [0.00909, -0.00568], atol=1e-5)


def test_locally_linear_weights_are_no_smoother():
    """D39. Weights that sum to 1 and give straight lines exactly, as those of locally linear
    embedding in the affine hull of the neighbours, may be negative: no smoother.

    By hand: 0 from 1 and 2 needs the weights 2 and -1; a smoother stays between 1 and 2.
    """
    w = np.linalg.solve([[1.0, 2.0], [1.0, 1.0]], [0.0, 1.0])
    np.testing.assert_allclose(w, [2.0, -1.0])
    assert 1.0 < smoother.attention([[0.0]], [[1.0], [2.0]], [[1.0], [2.0]])[0, 0] < 2.0
    Z, x = np.array([[0.0, 0.0], [1.0, 0.0]]), np.array([0.3, 1.0])     # off the line through Z:
    w = np.array([0.7, 0.3])                                # the nearest mixture, and yet
    assert np.all((w @ Z - x) @ (Z[1] - Z[0]) == 0.0) and np.linalg.norm(w @ Z - x) == 1.0


@SEEDS
@SIZES
def test_untied_product_of_two_kernels(N, d, seed):
    """S.19. S.18 with maps of its own for queries and keys."""
    rng = np.random.default_rng(seed)
    f, t = rng.standard_normal((N, 5)), positions.sinusoids(N, 6)
    W = [rng.standard_normal((n, d)) for n in (5, 5, 6, 6)]
    Q, K, T_q, T_k = f @ W[0], f @ W[1], t @ W[2], t @ W[3]
    G = np.array([[np.exp(q @ k / d ** 0.5) * np.exp(a @ b / d ** 0.5) for k, b in zip(K, T_k)]
                  for q, a in zip(Q, T_q)])
    A = smoother.weights(Q, K, log_factor=positions.absolute(T_q, T_k))
    np.testing.assert_allclose(A, G / G.sum(axis=1, keepdims=True), rtol=1e-11)
    assert np.abs(G - G.T).max() > 1e-3 * np.abs(G).max()           # S.18 would be symmetric


@SEEDS
def test_values_without_position(seed):
    """S.22. Values without position, v = f W_v: it weighs and is not averaged. Source: Tsai et al.
    2019.

    The same positions for all leave every output as it was; as part of the values they add t W_v.
    """
    f, t, W = np.random.default_rng(seed).standard_normal((3, 4, 4))
    same = np.tile(t[:1], (4, 1))
    attend = lambda t, V: smoother.attention(f, f, V, log_factor=positions.absolute(t, t))
    np.testing.assert_allclose(attend(same, f @ W), attend(0 * t, f @ W), rtol=0, atol=1e-12)
    np.testing.assert_allclose(attend(same, (f + same) @ W), attend(0 * t, f @ W) + same @ W,
                               rtol=0, atol=1e-12)
    assert np.abs(attend(t, f @ W) - attend(0 * t, f @ W)).max() > 1e-2


@SEEDS
@pytest.mark.parametrize("H", [1, 2, 5])
def test_error_of_an_average_of_heads(H, seed):
    """S.38. Error of an average of H heads: bias² + variance/H + (1 − 1/H) covariance. Source:
    derived; Ueda and Nakano 1996.

    Means over the heads and over the pairs of heads; expectations are means over the draws.
    """
    rng = np.random.default_rng(seed)
    x, truth = np.linspace(-1, 1, 30)[:, None], 0.7         # all heads share a part of the noise
    y = x + truth + rng.standard_normal((40, 1, 30, 1)) + rng.standard_normal((40, H, 30, 1))
    f = smoother.attention([[0.3]], x, y, kernel="rbf")[:, :, 0, 0]         # (draws, heads)
    C = np.atleast_2d(np.cov(f.T, bias=True))
    pairs = [C[g, h] for g in range(H) for h in range(H) if g != h] or [0.0]
    want = (f.mean() - truth) ** 2 + np.trace(C) / H / H + (1 - 1 / H) * np.mean(pairs)
    np.testing.assert_allclose(np.mean((f.mean(axis=1) - truth) ** 2), want, rtol=1e-12)


@SEEDS
def test_one_map_makes_ksvd_kernel_pca(seed):
    """D35. One map makes the KSVD of the kernel matrix kernel PCA: both sides have the same
    vectors.
    """
    rng = np.random.default_rng(seed)
    X, W_q, W_k = (rng.standard_normal(shape) for shape in ((9, 3), (3, 3), (3, 3)))
    tied = dual.solve(kernels.exponential(X @ W_q, X @ W_q), 3)
    untied = dual.solve(kernels.exponential(X @ W_q, X @ W_k), 3)
    np.testing.assert_allclose(tied.H_e, tied.H_r, atol=1e-9)
    assert np.abs(np.abs(untied.H_e) - np.abs(untied.H_r)).max() > 1e-2
