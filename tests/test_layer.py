"""Primal-Attention against loops over its definition, the KSVD it stands for, and its claims."""
import tracemalloc
import warnings

import autograd.numpy as anp
import numpy as np
import pytest
from autograd import grad
from conftest import (assert_gradient, assert_not_mixed, assert_pure, assert_refused, mixtures,
                      refusals)

from ksvd_ref import dual, features, kernels, primal
from ksvd_ref.attention import (PrimalWeights, Scores, even_rows, even_rows_vjp, mean_of_squares,
                                paper_lambda, paper_loss, paper_loss_vjp, primal_attention,
                                primal_attention_vjp, published_init, published_loss,
                                published_loss_vjp, running_mean, square_of_mean)

RNG = np.random.default_rng(23)
B, H, N, D_IN, S, D_OUT = 2, 3, 5, 4, 2, 3
PADDED = np.array([[True] * 5, [False, True, True, True, False]])
DIRECTIONS = RNG.standard_normal((D_IN, 6))


def queries_and_keys(N=N, d=D_IN, rng=RNG):
    return rng.standard_normal((B, H, N, d)), rng.standard_normal((B, H, N, d))


def some_weights(D=D_IN, H=H, s=S, rng=RNG):
    return PrimalWeights(rng.standard_normal((H, D, s)), rng.standard_normal((H, D, s)),
                         rng.uniform(0.5, 2.0, (H, s)), rng.standard_normal((2 * s, D_OUT)),
                         rng.standard_normal(D_OUT))


# name -> keywords of primal_attention and rows D of the weights
SETTINGS = {
    "cosine": ({}, D_IN),
    "identity": ({"features": "identity"}, D_IN),
    "random": ({"features": DIRECTIONS}, 6),
    "F": ({"F": RNG.standard_normal((B, H, 5, D_IN))}, 5),
    "F-identity": ({"F": RNG.standard_normal((B, H, 3, D_IN)), "features": "identity"}, 3),
    "F-random": ({"F": RNG.standard_normal((B, H, 2, 6)), "features": DIRECTIONS}, 2),
    "mask": ({"mask": PADDED}, D_IN),
    "mask-random": ({"mask": PADDED, "features": DIRECTIONS}, 6),
    "mask-F": ({"mask": PADDED, "F": RNG.standard_normal((B, H, 5, D_IN))}, 5),
    "one-mask": ({"mask": PADDED[1]}, D_IN),
    "causal": ({"causal": True}, D_IN),
    "causal-identity": ({"causal": True, "features": "identity"}, D_IN),
    "causal-mask": ({"causal": True, "mask": PADDED}, D_IN),
    "causal-mask-random": ({"causal": True, "mask": PADDED, "features": DIRECTIONS}, 6),
}
SETTING = pytest.mark.parametrize("setting", SETTINGS)


def feature(z, kind):
    """One vector's features, written out."""
    if isinstance(kind, str):
        return z / np.sqrt(sum(z * z)) if kind == "cosine" else z
    return np.array([np.exp(w @ z - z @ z / 2) for w in kind.T]) / np.sqrt(kind.shape[1])


def by_definition(Q, K, weights, F=None, features="cosine", mask=None, causal=False):
    """K.24, K.25 and K.30, one sequence, head and token at a time."""
    mask = np.ones((B, N), bool) if mask is None else np.broadcast_to(mask, (B, N))
    E, R = np.zeros((B, H, N, S)), np.zeros((B, H, N, S))
    output = np.zeros((B, H, N, D_OUT))
    for b, h, i in np.ndindex(B, H, N):
        if not mask[b, i]:
            continue
        for X, W, out in ((Q, weights.W_e, E), (K, weights.W_r, R)):
            z = X[b, h, i]
            if causal:
                z = sum(X[b, h, j] for j in range(i + 1) if mask[b, j]) / sum(mask[b, :i + 1])
            phi = feature(z, features)
            phi = phi if F is None else np.array([row @ phi for row in F[b, h]])
            out[b, h, i] = [W[h, :, l] @ phi for l in range(S)]
        both = np.concatenate([E[b, h, i], R[b, h, i]])
        output[b, h, i] = [both @ weights.W_o[:, c] + weights.b_o[c] for c in range(D_OUT)]
    return output, E, R


def moved(lib, options):
    """Keywords whose arrays belong to the library."""
    kept = {}
    for name, value in options.items():
        is_bool = isinstance(value, np.ndarray) and value.dtype == bool
        if is_bool:
            value = lib.xp.asarray(value, **lib.place)
        elif isinstance(value, np.ndarray):
            value = lib.array(value)
        kept[name] = value
    return kept


# --- the layer

@SETTING
def test_layer(lib, setting):
    """K.24, K.25. Against loops; sums of at most 6 products of order 1, exponentials up to e^4."""
    options, D = SETTINGS[setting]
    (Q, K), weights = queries_and_keys(), some_weights(D)
    output, (E, R) = primal_attention(lib.array(Q), lib.array(K),
                                      PrimalWeights(*map(lib.array, weights)),
                                      **moved(lib, options))
    for got, want in zip((output, E, R), by_definition(Q, K, weights, **options)):
        got = lib.host(got)
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=lib.tol, atol=lib.tol)


def test_any_number_of_batch_axes():
    (Q, K), weights = queries_and_keys(), some_weights()
    whole, scores = primal_attention(Q, K, weights)
    one, (E, _) = primal_attention(Q[1], K[1], weights)
    np.testing.assert_allclose(one, whole[1], rtol=1e-13, atol=1e-13)     # a few roundings
    np.testing.assert_allclose(E, scores.E[1], rtol=1e-13, atol=1e-13)
    more, _ = primal_attention(Q[None], K[None], weights)
    np.testing.assert_allclose(more[0], whole, rtol=1e-13, atol=1e-13)
    J = published_loss(scores, weights)
    np.testing.assert_allclose(published_loss(Scores(*(A[0] for A in scores)), weights), J[0])


@pytest.mark.parametrize("name", ["linear", "cosine", "F"])
def test_canonical_attention_with_dual_values(name):
    """V27. If Ψ has full column rank, any W_e has dual values (Ψ⁺)ᵀW_e, trained or not; attention
    with values H_r gives H_eΣ.

    K.21, V28. With the KSVD solution as weights, e_i = sum_j K_ij h_rj = (H_e Sigma)_i.
    """
    rng = np.random.default_rng(4)
    Q, K = rng.standard_normal((12, 4)), rng.standard_normal((12, 4))
    options = {"features": "cosine" if name == "cosine" else "identity"}
    Phi, Psi = features.cosine(Q, K) if name == "cosine" else (Q, K)
    kernel = {"linear": kernels.linear(Q, K), "cosine": kernels.cosine(Q, K)}.get(name)
    if name == "F":
        options["F"] = even_rows(rng.standard_normal((12, 4)), 6)[None]
        Phi, Psi = features.data_dependent(Q, K, options["F"][0])
        kernel = Phi @ Psi.T
    H_e, sigma, H_r = dual.solve(kernel, 3)
    W_e, W_r = Psi.T @ H_r, Phi.T @ H_e
    W_o = np.concatenate([np.eye(3), np.zeros((3, 3))])
    weights = PrimalWeights(W_e[None], W_r[None], 1 / sigma[None], W_o, np.zeros(3))
    output, (E, R) = primal_attention(Q[None], K[None], weights, **options)
    close = {"rtol": 1e-11, "atol": 1e-11 * sigma[0]}       # two routes to one product
    np.testing.assert_allclose(output[0], kernel @ H_r, **close)
    np.testing.assert_allclose(E[0], H_e * sigma, **close)
    np.testing.assert_allclose(R[0], kernel.T @ H_e, **close)
    # any W_e has values H with E = K H, trained or not: they are no singular vectors
    W_any = rng.standard_normal(W_e.shape)
    values = np.linalg.pinv(Psi).T @ W_any
    any_E = primal_attention(Q[None], K[None], weights._replace(W_e=W_any[None]), **options)[1].E
    np.testing.assert_allclose(any_E[0], kernel @ values, rtol=1e-8, atol=1e-8)     # a pinv
    assert np.abs(values.T @ values - np.diag(np.diag(values.T @ values))).max() > 1e-3


def test_dual_values_need_columns_that_are_independent():
    """V27. Psi lacks a column that Phi has: the score is 1, and K times the dual value is 0."""
    Phi, Psi, W_e = np.array([[1.0, 1.0]]), np.array([[1.0, 0.0]]), np.array([[0.0], [1.0]])
    weights = PrimalWeights(W_e[None], W_e[None], np.ones((1, 1)), np.ones((2, 1)), np.zeros(1))
    E = primal_attention(Phi[None], Psi[None], weights, features="identity")[1].E
    np.testing.assert_array_equal(E, [[[1.0]]])
    np.testing.assert_allclose(Phi @ Psi.T @ np.linalg.pinv(Psi).T @ W_e, [[0.0]], atol=1e-15)


@pytest.mark.parametrize("scale", [1e-200, 1e-100, 1e100, 1e200])
def test_cosine_has_no_scale(scale):
    (Q, K), weights = queries_and_keys(), some_weights()
    want, _ = primal_attention(Q, K, weights)
    got, _ = primal_attention(scale * Q, K, weights)
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)
    f = lambda X: anp.sum(primal_attention(X * scale, K, weights)[0] ** 2)
    want = grad(lambda X: anp.sum(primal_attention(X, K, weights)[0] ** 2))(Q)
    np.testing.assert_allclose(grad(f)(Q), want, rtol=1e-11, atol=1e-11)


def test_query_of_zeros():
    """As linalg.unit_rows: scores of zero, and the derivative of the identity map."""
    (Q, K), weights = queries_and_keys(), some_weights()
    Q[0, 1, 2] = 0.0
    E = primal_attention(Q, K, weights)[1].E
    assert np.all(E[0, 1, 2] == 0.0) and np.all(np.isfinite(E))
    slope = grad(lambda X: anp.sum(primal_attention(X, K, weights)[1].E))(Q)
    np.testing.assert_allclose(slope[0, 1, 2], np.sum(weights.W_e[1], axis=1), rtol=1e-13)


def test_random_features_are_those_of_features():
    (Q, K), weights = queries_and_keys(), some_weights(D=50)
    draw = np.random.default_rng(5).standard_normal((D_IN, 50))
    E, R = primal_attention(Q, K, weights, features=draw)[1]
    Phi, Psi = features.positive_random(Q[1, 2], K[1, 2], m=50, seed=5)
    np.testing.assert_allclose(E[1, 2], Phi @ weights.W_e[2], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(R[1, 2], Psi @ weights.W_r[2], rtol=1e-12, atol=1e-12)


# --- padding and causality

@pytest.mark.parametrize("content", [0.0, 3.0, 1e30, np.nan, np.inf])
@pytest.mark.parametrize("kind", ["cosine", "identity", "random"])
@pytest.mark.parametrize("form", ["data-dependent", "data-independent", "causal"])
def test_padding_changes_nothing(content, kind, form):
    """Whatever padded steps hold: output, scores, both losses and gradients of the cut sequence."""
    rng = np.random.default_rng(6)
    real = np.array([0, 2, 3, 4, 6, 7])                     # steps in the middle may be missing too
    mask = np.isin(np.arange(9), real)
    X, Q, K = rng.standard_normal((9, 4)), *rng.standard_normal((2, 1, 9, 4))
    kind = rng.standard_normal((4, 4)) if kind == "random" else kind
    weights = some_weights(D=4, H=1, rng=rng)

    def run(X, Q, K, mask, weights):
        F = even_rows(X, 4, mask=mask)[None] if form == "data-dependent" else None
        output, scores = primal_attention(Q, K, weights, F=F, features=kind, mask=mask,
                                          causal=form == "causal")
        return (output, *scores, paper_loss(scores, weights, mask=mask),
                published_loss(scores, weights, mask=mask))

    total = lambda *args: sum(anp.sum(part ** 2) for part in run(*args))
    cut = X[real], Q[:, real], K[:, real], None, weights
    padded = [np.array(A) for A in (X, Q, K)]
    padded[0][~mask], padded[1][:, ~mask], padded[2][:, ~mask] = content, content, -content
    padded = (*padded, mask, weights)
    for got, want in zip(run(*padded)[:3], run(*cut)[:3]):
        np.testing.assert_allclose(got[:, mask], want, rtol=1e-12, atol=1e-12)
        assert np.all(got[:, ~mask] == 0.0)
    for got, want in zip(run(*padded)[3:], run(*cut)[3:]):
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)
    for n in range(0 if form == "data-dependent" else 1, 3):
        got, want = grad(total, n)(*padded), grad(total, n)(*cut)
        axis = 1 if n else 0
        np.testing.assert_allclose(np.compress(mask, got, axis), want, rtol=1e-10, atol=1e-10)
        assert np.all(np.compress(~mask, got, axis) == 0.0)


def test_loss_hides_padded_scores_too():
    (Q, K), weights = queries_and_keys(), some_weights()
    scores = primal_attention(Q, K, weights, mask=PADDED)[1]
    dirty = Scores(*(np.where(PADDED[:, None, :, None], A, np.nan) for A in scores))
    for loss in (paper_loss, published_loss):
        want = loss(scores, weights, mask=PADDED)
        np.testing.assert_array_equal(loss(dirty, weights, mask=PADDED), want)
        with pytest.raises(ValueError, match="E must be finite"):
            loss(dirty, weights)


def test_sequence_of_padding_alone():
    (Q, K), weights = queries_and_keys(), some_weights()
    mask = np.array([[True] * N, [False] * N])
    output, scores = primal_attention(Q, K, weights, mask=mask, causal=True)
    assert np.all(output[1] == 0.0) and np.all(even_rows(Q[:, 0], 3, mask=mask)[1] == 0.0)
    np.testing.assert_allclose(published_loss(scores, weights, mask=mask)[1],
                               -np.sum(weights.W_e * weights.W_r) / H, rtol=1e-13)


@pytest.mark.parametrize("kind", ["cosine", "identity", "random"])
@pytest.mark.parametrize("now", [1, 63, 64, 100, 149])
def test_future_changes_nothing(kind, now):
    """K.30, V40. Bit for bit, over the blocks of 64 steps of the running sum."""
    rng = np.random.default_rng(7)
    Q, K = rng.standard_normal((2, 2, 3, 150, 4))
    weights = some_weights(D=6 if kind == "random" else 4)
    kind = DIRECTIONS if kind == "random" else kind
    before = primal_attention(Q, K, weights, features=kind, causal=True)
    for A in (Q, K):
        A[..., now:, :] += rng.standard_normal(A[..., now:, :].shape)
    after = primal_attention(Q, K, weights, features=kind, causal=True)
    for one, two in zip((before[0], *before[1]), (after[0], *after[1])):
        np.testing.assert_array_equal(one[..., :now, :], two[..., :now, :])
        assert np.all(np.any(one[..., now, :] != two[..., now, :], axis=-1))


def test_causal_needs_data_independent_weights():
    (Q, K), weights = queries_and_keys(), some_weights(D=5)
    with pytest.raises(ValueError, match="data-independent weights, F=None.*future"):
        primal_attention(Q, K, weights, F=np.ones((B, H, 5, D_IN)), causal=True)


@pytest.mark.parametrize("N", [1, 2, 63, 64, 65, 128, 150])
def test_running_mean(lib, N):
    """K.30. Against the mean of each beginning; a thousand roundings."""
    X = np.random.default_rng(N).standard_normal((2, N, 3))
    want = np.array([[np.mean(x[:i + 1], axis=0) for i in range(N)] for x in X])
    np.testing.assert_allclose(lib.host(running_mean(lib.array(X))), want, atol=lib.tol)


@pytest.mark.parametrize("N", [5, 64, 65, 150])
@pytest.mark.parametrize("padded", [False, True])
def test_running_mean_vjp(N, padded):
    """The transpose of the N x N matrix that the running mean stands for, also over its blocks."""
    rng = np.random.default_rng(N)
    mask = rng.random(N) < 0.7 if padded else np.ones(N, bool)
    average = np.tril(np.ones((N, N))) * mask
    average /= np.maximum(average.sum(axis=1, keepdims=True), 1.0)
    X, g = rng.standard_normal((2, 2, N, 3))
    got = grad(lambda X: anp.sum(g * running_mean(X, mask=np.array([mask] * 2))))(X)
    np.testing.assert_allclose(got, average.T @ g, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(running_mean(X, mask=mask if padded else None), average @ X,
                               rtol=1e-12, atol=1e-13)


def test_running_mean_or_sum():
    """V40. With the cosine map, dividing a running sum before normalising has no effect; the past
    does not see the future.

    The cosine map does not see the difference, the identity does.
    """
    (Q, K), weights = queries_and_keys(), some_weights()
    sums = np.cumsum(Q, axis=-2), np.cumsum(K, axis=-2)
    for kind, same in (("cosine", True), ("identity", False)):
        causal, _ = primal_attention(Q, K, weights, features=kind, causal=True)
        summed, _ = primal_attention(*sums, weights, features=kind)
        assert (np.abs(causal - summed).max() < 1e-12) == same


# --- f(X)

@pytest.mark.parametrize("N", [1, 2, 7, 26, 64, 197, 300])
def test_grid_of_even_rows(N):
    """K.29. The published grid: truncated steps of equal length, computed exactly here."""
    X = np.arange(float(N))[:, None]
    for n in (1, 2, 3, 5, 26, 100, 197, 300):
        want = np.floor(np.linspace(0, N - 1, n) + 1e-9)
        np.testing.assert_array_equal(even_rows(X, n)[:, 0], want)


def test_even_rows(lib):
    """K.29. Each padded sequence has the grid of its own steps; rows repeat where there are too
    few.
    """
    rng = np.random.default_rng(8)
    X = rng.standard_normal((6, 11, 2))
    mask = rng.random((6, 11)) < [[0.9], [0.7], [0.5], [0.3], [1.0], [0.1]]
    mask[5] = np.arange(11) == 4
    for n in (1, 2, 4, 9, 20):
        grid = lambda length: np.floor(np.linspace(0, length - 1, n) + 1e-9).astype(int)
        got = lib.host(even_rows(lib.array(X), n, **moved(lib, {"mask": mask})))
        want = np.array([x[m][grid(m.sum())] for x, m in zip(X, mask)])
        np.testing.assert_array_equal(got, want.astype(lib.name))
        np.testing.assert_array_equal(lib.host(even_rows(lib.array(X), n)),
                                      X[:, grid(11)].astype(lib.name))


@pytest.mark.parametrize("n", [1, 3, 7, 20])
@pytest.mark.parametrize("padded", [False, True])
def test_even_rows_vjp(lib, n, padded):
    """The transpose: <g, F(X)> = <F^T(g), X> for every X, so on a basis."""
    mask = PADDED if padded else None
    g = np.random.default_rng(9).standard_normal((B, n, 2))
    basis = np.eye(B * N * 2).reshape(-1, B, N, 2)
    want = np.array([np.sum(g * even_rows(x, n, mask=mask)) for x in basis]).reshape(B, N, 2)
    options = moved(lib, {"mask": mask} if padded else {})
    got = lib.host(even_rows_vjp(lib.array(g), N, **options))
    np.testing.assert_allclose(got, want, rtol=lib.tol, atol=lib.tol)
    X = np.random.default_rng(10).standard_normal((B, N, 2))
    assert_gradient(lambda X: anp.sum(g * even_rows(X, n, mask=mask) ** 2), X)


# --- the losses

def one_head(rng, N=10, d=3, n=None, s=3):
    """Q, K, F and the KSVD solution of one sequence as weights of the layer."""
    Q, K, X = rng.standard_normal((3, N, d))
    F = None if n is None else even_rows(X, n)
    Phi, Psi = features.cosine(Q, K)
    Phi, Psi = (Phi, Psi) if n is None else features.data_dependent(Phi, Psi, F)
    H_e, sigma, H_r = dual.solve(Phi @ Psi.T, s)
    weights = PrimalWeights((Psi.T @ H_r)[None], (Phi.T @ H_e)[None], 1 / sigma[None],
                            np.ones((2 * s, 2)), np.zeros(2))
    return Q[None], K[None], None if n is None else F[None], weights, sigma, Phi, Psi


def J_of(loss, Q, K, F=None):
    """The loss as a function of W_e, W_r and Lambda, through the layer."""
    def J(W_e, W_r, Lambda, weights):
        weights = weights._replace(W_e=W_e, W_r=W_r, Lambda=Lambda)
        return anp.sum(loss(primal_attention(Q, K, weights, F=F)[1], weights))
    return J


def slopes(J, weights):
    return [grad(J, n)(*weights[:3], weights) for n in range(3)]


@pytest.mark.parametrize("n", [None, 2, 6, 10])
def test_paper_loss(n):
    """K.28. It is primal.objective at Phi F^T, and its gradient through the layer primal.gradient.
    """
    rng = np.random.default_rng(11)
    Q, K, F, weights, _, Phi, Psi = one_head(rng, n=n, s=2)
    D = Phi.shape[1]
    W_e, W_r, Lambda = *rng.standard_normal((2, 1, D, 2)), rng.uniform(0.5, 2.0, (1, 2))
    J = J_of(paper_loss, Q, K, F)
    arguments = W_e[0], W_r[0], Lambda[0], Phi, Psi
    np.testing.assert_allclose(J(W_e, W_r, Lambda, weights), primal.objective(*arguments),
                               rtol=1e-12)
    got = slopes(J, weights._replace(W_e=W_e, W_r=W_r, Lambda=Lambda))
    for one, two in zip(got, primal.gradient(*arguments)):
        np.testing.assert_allclose(one[0], two, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("n", [None, 6, 10])
def test_zero_at_the_solution_of_one_sequence(n):
    """V28. With F the kernel is Φ FᵀF Ψᵀ, its rank at most p, and J = 0 at its solution.

    V31. One W, Λ is in general not stationary for several sequences; it is for those whose features
    are orthogonal mixtures of each other's rows.
    """
    rng = np.random.default_rng(12)
    Q, K, F, weights, sigma, *_ = one_head(rng, n=n)
    J = J_of(paper_loss, Q, K, F)
    scale = np.sum(sigma)                                   # tr(W_e^T W_r), what J cancels
    assert abs(J(*weights[:3], weights)) < 1e-12 * scale
    for slope, W in zip(slopes(J, weights)[:2], weights):
        assert np.abs(slope).max() < 1e-11 * np.abs(W).max()
    other = one_head(rng, n=n)[:3]
    both = [None if A is None else np.stack([A, B]) for A, B in zip((Q, K, F), other)]
    J_2 = J_of(paper_loss, *both)
    assert max(np.abs(slope).max() for slope in slopes(J_2, weights)[:2]) > 0.1 * scale / N
    mixed = Q[..., ::-1, :], np.roll(K, 3, axis=-2), F          # the tokens in another order
    both = [None if A is None else np.stack([A, B]) for A, B in zip((Q, K, F), mixed)]
    for slope, W in zip(slopes(J_of(paper_loss, *both), weights)[:2], weights):
        assert np.abs(slope).max() < 1e-11 * np.abs(W).max()


def test_published_loss_is_stationary_elsewhere():
    """V35. The published loss is stationary at Λ = √(N/σ), not at 1/σ.

    V39. Its weights enter squared: their sign is not seen.
    """
    Q, K, F, weights, sigma, *_ = one_head(np.random.default_rng(13), n=6)
    J = J_of(published_loss, Q, K, F)
    right = weights._replace(Lambda=(10 / sigma[None]) ** 0.5)
    scale = np.sum(sigma)
    assert abs(J(*right[:3], right)) < 1e-12 * scale
    assert max(np.abs(slope).max() for slope in slopes(J, right)[:2]) < 1e-11 * scale
    assert abs(J(*weights[:3], weights)) > 0.1 * scale
    np.testing.assert_allclose(1 / paper_lambda(right.Lambda, 10)[0], sigma, rtol=1e-13)
    flipped = right._replace(Lambda=-right.Lambda)          # the sign is not seen
    assert J(*flipped[:3], flipped) == J(*right[:3], right)


@pytest.mark.parametrize("mask", [None, PADDED])
def test_identity_of_the_two_losses(mask):
    """K.31, V39. It is the mean over the heads of paper_loss with Lambda^2 / N; N counts real
    steps.
    """
    (Q, K), weights = queries_and_keys(), some_weights()
    scores = primal_attention(Q, K, weights, mask=mask)[1]
    got = published_loss(scores, weights, mask=mask)
    lengths = [N, N] if mask is None else PADDED.sum(axis=1)
    for b, length in enumerate(lengths):
        paper = weights._replace(Lambda=paper_lambda(weights.Lambda, length))
        one = Scores(*(A[b] for A in scores))
        np.testing.assert_allclose(np.mean(paper_loss(one, paper)), got[b], rtol=1e-12)


@pytest.mark.parametrize("mask", [None, PADDED])
def test_losses(lib, mask):
    """K.28, K.31. Term by term."""
    (Q, K), weights = queries_and_keys(), some_weights()
    (E, R), (W_e, W_r, L, _, _) = primal_attention(Q, K, weights, mask=mask)[1], weights
    real = np.ones((B, N), bool) if mask is None else mask
    paper, published = np.zeros((B, H)), np.zeros(B)
    for b in range(B):
        steps = np.flatnonzero(real[b])
        for h in range(H):
            trace = sum(W_e[h, :, l] @ W_r[h, :, l] for l in range(S))
            paper[b, h] = 0.5 * sum(A[b, h, i] @ np.diag(L[h]) @ A[b, h, i]
                                    for A in (E, R) for i in steps) - trace
            published[b] += (0.5 * sum(np.sum((np.diag(L[h]) @ A[b, h, i]) ** 2)
                                       for A in (E, R) for i in steps) / len(steps) - trace) / H
    on_lib = Scores(lib.array(E), lib.array(R)), PrimalWeights(*map(lib.array, weights))
    options = moved(lib, {} if mask is None else {"mask": mask})
    for loss, want in ((paper_loss, paper), (published_loss, published)):
        got = lib.host(loss(*on_lib, **options))
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=lib.tol, atol=lib.tol)


def test_null_space_of_F():
    """V30. Weights in the null space of Fᵀ change J and not the scores: J = 0 without touching a
    score.
    """
    rng = np.random.default_rng(14)
    Q, K, F, weights, *_ = one_head(rng, n=6)
    weights = weights._replace(W_e=2.0 * weights.W_e)
    null = np.linalg.svd(F[0].T)[2][3:]                     # 3 = n - p directions
    assert null.shape[0] == 3
    output, scores = primal_attention(Q, K, weights, F=F)
    J = float(paper_loss(scores, weights)[0])
    assert J > 0.1
    shift = null[0][:, None] * np.full((1, 3), (J / 3) ** 0.5)
    found = []
    for sign in (1.0, -1.0):                                # tr(W_e^T W_r) grows by J, or shrinks
        new = weights._replace(W_e=weights.W_e + shift, W_r=weights.W_r + sign * shift)
        inner = np.sum(shift * (weights.W_r[0] + sign * weights.W_e[0]))
        same, new_scores = primal_attention(Q, K, new, F=F)
        np.testing.assert_allclose(same, output, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(paper_loss(new_scores, new)[0], J - sign * J - inner,
                                   rtol=1e-10, atol=1e-10)
        found.append(abs(inner))
    assert max(found) < 1e-10                               # solutions lie in the range of F


def test_trace_of_the_effective_weights_drops_F():
    """V29. tr(W_eᵀW_r) and the trace of FᵀW_e, FᵀW_r are different penalties; with the second F
    drops out if its rank is p.
    """
    rng = np.random.default_rng(15)
    Q, K, F, weights, sigma, *_ = one_head(rng, n=6)
    Phi, Psi = features.cosine(Q[0], K[0])
    plain = primal.solve(Phi, Psi, 3)
    lift = np.linalg.pinv(F[0].T)                           # F^T lift = I: rank 3 = p
    W_e, W_r = (lift @ W for W in (plain.W_e, plain.W_r))
    E, R = primal_attention(Q, K, weights._replace(W_e=W_e[None], W_r=W_r[None]), F=F)[1]
    L = 1 / plain.sigma
    J = 0.5 * np.sum(E ** 2 * L) + 0.5 * np.sum(R ** 2 * L)
    assert abs(J - np.sum((F[0].T @ W_e) * (F[0].T @ W_r))) < 1e-11 * plain.sigma[0]
    assert abs(J - np.sum(W_e * W_r)) > 0.1 * plain.sigma[0]
    assert np.abs(plain.sigma - sigma).max() > 0.1 * sigma[0]
    low = F[0, :, :1] @ F[0, :1]                            # of rank 1 < p: F^T W is one line, and
    near = low.T @ np.linalg.pinv(low.T) @ plain.W_e        # the weights without F are not on it
    assert np.abs(near - plain.W_e).max() > 0.1 * np.abs(plain.W_e).max()


def test_no_common_solution():
    """V37. At Λ = 1/σ of one sequence only W = 0 is stationary for another that has no such σ.

    Hand: Lambda = 1/2 fits Phi = diag(2, 1); diag(3, 1) has no solution there but W = 0. With
    Lambda = 1 both have one, for sigma = 1 is in both spectra.

    The Hessian of J splits into blocks [[lambda phi^2, -1], [-1, lambda psi^2]].
    """
    def determinants(Phi, Lambda=0.5):
        W = np.zeros((1, 2, 1))
        weights = PrimalWeights(W, W, np.array([[Lambda]]), np.ones((2, 1)), np.zeros(1))
        J = lambda W_e, W_r: anp.sum(paper_loss(
            primal_attention(Phi[None], np.eye(2)[None], weights._replace(W_e=W_e, W_r=W_r),
                             features="identity")[1], weights._replace(W_e=W_e, W_r=W_r)))
        e = np.eye(2).reshape(2, 1, 2, 1)                   # the gradient is linear in W
        rows = [(grad(J, 0)(e[k], W)[0, k, 0], grad(J, 0)(W, e[k])[0, k, 0],
                 grad(J, 1)(e[k], W)[0, k, 0], grad(J, 1)(W, e[k])[0, k, 0]) for k in (0, 1)]
        return [a * d - b * c for a, b, c, d in rows]
    np.testing.assert_allclose(determinants(np.diag([2.0, 1.0])), [0.0, -0.75], atol=1e-15)
    np.testing.assert_allclose(determinants(np.diag([3.0, 1.0])), [1.25, -0.75], atol=1e-15)
    np.testing.assert_allclose(determinants(np.diag([2.0, 1.0]), 1.0), [3.0, 0.0], atol=1e-15)
    np.testing.assert_allclose(determinants(np.diag([3.0, 1.0]), 1.0), [8.0, 0.0], atol=1e-15)


def test_heads_and_sequences_cancel():
    """K.27, V7. The mean of squares sees what the square of the mean does not."""
    J = np.array([9.809, -9.809])
    np.testing.assert_allclose([mean_of_squares(J), square_of_mean(J)], [9.809 ** 2, 0.0])
    J = np.random.default_rng(16).standard_normal(50)
    np.testing.assert_allclose(mean_of_squares(J) - square_of_mean(J), np.var(J), rtol=1e-12)
    assert_gradient(mean_of_squares, J)
    assert_gradient(square_of_mean, J)


# --- gradients

NAMES = ("Q", "K", "W_e", "W_r", "Lambda", "W_o", "b_o", "F")


def task(setting):
    """A smooth function of all arguments: squares of the output and of both losses, weighted."""
    options, D = SETTINGS[setting]
    options = dict(options)
    F = options.pop("F", None)
    rng = np.random.default_rng(18)
    (Q, K), weights = queries_and_keys(rng=rng), some_weights(D, rng=rng)
    C = rng.standard_normal((B, H, N, D_OUT)), rng.standard_normal((B, H)), rng.standard_normal(B)

    def f(Q, K, W_e, W_r, Lambda, W_o, b_o, F):
        weights, mask = PrimalWeights(W_e, W_r, Lambda, W_o, b_o), options.get("mask")
        output, scores = primal_attention(Q, K, weights, F=F, **options)
        parts = output, paper_loss(scores, weights, mask=mask), published_loss(scores, weights,
                                                                               mask=mask)
        return sum(anp.sum(c * part ** 2) for c, part in zip(C, parts))
    return f, [Q, K, *weights, F], C, options


@SETTING
def test_autograd(setting):
    """autograd against central differences, in every argument."""
    f, arguments, _, _ = task(setting)
    for n, X in enumerate(arguments):
        if X is not None:
            assert_gradient(lambda A: f(*arguments[:n], A, *arguments[n + 1:]), X)


@SETTING
def test_vjps_by_hand(lib, setting):
    """The chain rule by hand, on every library, against autograd in float64."""
    f, arguments, C, options = task(setting)
    want = [None if X is None else grad(f, n)(*arguments) for n, X in enumerate(arguments)]
    Q, K, *weights, F = (None if X is None else lib.array(X) for X in arguments)
    options, weights = moved(lib, options), PrimalWeights(*weights)
    padding = {"mask": options["mask"]} if "mask" in options else {}
    output, scores = primal_attention(Q, K, weights, F=F, **options)
    paper, more = paper_loss_vjp(2.0 * lib.array(C[1]) * paper_loss(scores, weights, **padding),
                                 scores, weights, **padding)
    published, most = published_loss_vjp(
        2.0 * lib.array(C[2]) * published_loss(scores, weights, **padding), scores, weights,
        **padding)
    g_scores = Scores(*(a + b for a, b in zip(paper, published)))
    g_Q, g_K, g_weights, g_F = primal_attention_vjp(
        2.0 * lib.array(C[0]) * output, g_scores, scores, Q, K, weights, F=F, **options)
    got = [g_Q, g_K, *(a + b + c for a, b, c in zip(g_weights, more, most)), g_F]
    for name, a, b in zip(NAMES, got, want):
        assert (a is None) == (b is None), name
        if a is not None:
            a = lib.host(a)
            assert a.shape == b.shape, name
            atol = 10 * lib.tol * np.abs(b).max()           # J^2 multiplies what was rounded
            np.testing.assert_allclose(a, b, rtol=10 * lib.tol, atol=atol, err_msg=name)


def test_float32_gradients_stay_float32():
    f, arguments, _, _ = task("mask-F")
    arguments = [X.astype("float32") for X in arguments]
    small = SETTINGS["mask-F"][0]["mask"]
    for n in range(8):
        def g(X):
            Q, K, *weights, F = *arguments[:n], X, *arguments[n + 1:]
            weights = PrimalWeights(*weights)
            output, scores = primal_attention(Q, K, weights, F=F, mask=small)
            return anp.sum(output) + anp.sum(published_loss(scores, weights, mask=small))
        assert grad(g)(arguments[n]).dtype == np.float32, NAMES[n]


def test_long_sequences_go_block_by_block():
    """The derivative in blocks of 256 and of 170 rows is that of the whole."""
    rng = np.random.default_rng(19)
    Q, K = rng.standard_normal((2, 1, 8, 300, 64))
    weights = published_init(rng, 8, 64, 5, 96)
    C = rng.standard_normal((1, 8, 300, 96))

    def by_matmul(Q, K, W_e, W_o, b_o):
        Phi, Psi = (X / anp.sqrt(anp.sum(X * X, axis=-1, keepdims=True)) for X in (Q, K))
        S = anp.concatenate([Phi @ W_e, Psi @ weights.W_r], axis=-1)
        return anp.sum(C * (S @ W_o + b_o) ** 2)

    def ours(Q, K, W_e, W_o, b_o):
        changed = weights._replace(W_e=W_e, W_o=W_o, b_o=b_o)
        return anp.sum(C * primal_attention(Q, K, changed)[0] ** 2)

    arguments = Q, K, weights.W_e, weights.W_o, weights.b_o
    for n in range(5):
        got, want = (grad(f, n)(*arguments) for f in (ours, by_matmul))
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-11 * np.abs(want).max())


@pytest.mark.parametrize("causal", [False, True])
def test_memory_is_linear(causal):
    """Forward and backward below 12 times the queries; one N x N array would be 256 times."""
    rng = np.random.default_rng(20)
    Q, K = rng.standard_normal((2, 1, 1, 4096, 16))
    weights = published_init(rng, 1, 16, 8, 16)

    def f(Q, K):
        output, scores = primal_attention(Q, K, weights, causal=causal)
        return anp.sum(output) + anp.sum(published_loss(scores, weights) ** 2)

    tracemalloc.start()
    grad(f)(Q, K)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 12 * Q.nbytes, peak / Q.nbytes


# --- the weights, and what is refused

@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_published_init(dtype):
    """Heads orthonormal as vectors; columns within a head are not, their squares add up to 1."""
    weights = published_init(np.random.default_rng(21), 8, 64, 30, 64, dtype=dtype)
    assert all(A.dtype == dtype for A in weights)
    for W in weights[:2]:
        flat = W.reshape(8, -1).astype(float)
        np.testing.assert_allclose(flat @ flat.T, np.eye(8), atol=1e-13 if dtype == "float64"
                                   else 1e-6)
        gram = np.moveaxis(W, -1, -2) @ W
        assert np.abs(gram - np.eye(30) / 30).max() > 1e-3
        assert np.abs(gram - np.eye(30)).max() > 0.9
    assert np.all((0 <= weights.Lambda) & (weights.Lambda <= 1))
    assert np.abs(weights.W_o).max() <= 60 ** -0.5 and weights.b_o.shape == (64,)
    with pytest.raises(ValueError, match="heads must be D s = 2 at most"):
        published_init(np.random.default_rng(0), 3, 2, 1, 4)


def test_published_init_is_uniform():
    """No entry prefers a sign: without the signs of R the first row would."""
    rng = np.random.default_rng(22)
    draws = np.array([published_init(rng, 2, 3, 1, 1).W_e for _ in range(400)])
    assert np.abs(draws.mean(axis=0)).max() < 4 * (1 / 3) ** 0.5 / 400 ** 0.5       # 4 sigma


@pytest.mark.parametrize("options, D, s, bound", [
    ({}, 4, 5, 4), ({"F": np.ones((1, 1, 2, 4))}, 2, 3, 2), ({"features": np.ones((4, 9))}, 9, 6, 5)
])
def test_more_directions_than_rank(options, D, s, bound):
    """V16. Allowed, for the published settings have it, and said."""
    Q, K = RNG.standard_normal((2, 1, 1, 5, 4))
    weights = some_weights(D, H=1, s=s)
    with pytest.warns(UserWarning, match=rf"s = {s} .*min\(n, p, N\) = {bound} .*V16"):
        primal_attention(Q, K, weights, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        primal_attention(Q, K, some_weights(D, H=1, s=bound), **options)


GOOD = some_weights(D=5)
LAYER = (lambda Q, K, W_e, W_r, Lambda, W_o, b_o, F: primal_attention(
    Q, K, PrimalWeights(W_e, W_r, Lambda, W_o, b_o), F=F),
    dict(zip(NAMES, (*queries_and_keys(), *GOOD, RNG.standard_normal((B, H, 5, D_IN))))))
LOSS = [(lambda E, R, W_e, W_r, Lambda, loss=loss: loss(
    Scores(E, R), PrimalWeights(W_e, W_r, Lambda, GOOD.W_o, GOOD.b_o)),
    dict(zip(("E", "R", "W_e", "W_r", "Lambda"),
             (*RNG.standard_normal((2, B, H, N, S)), *GOOD[:3]))))
        for loss in (paper_loss, published_loss)]
TABLE = {"layer": LAYER, "paper": LOSS[0], "published": LOSS[1]}
# Batch axes may be added or left out of a layer and its scores: the shapes are refused below.
REFUSED = [case for case in refusals(TABLE) if case.values[3] not in ("fewer-axes", "more-axes")]


@pytest.mark.parametrize("call, good, name, kind", REFUSED)
def test_refuses(call, good, name, kind):
    assert_refused(call, good, name, kind)


@pytest.mark.parametrize("call, good, name", mixtures(TABLE))
def test_libraries_do_not_mix(call, good, name):
    assert_not_mixed(call, good, name)


@pytest.mark.parametrize("name", TABLE)
def test_pure(name):
    assert_pure(lambda **good: np.concatenate([np.ravel(A) for A in _flat(TABLE[name][0](**good))]),
                TABLE[name][1])


def _flat(x):
    return [A for part in x for A in _flat(part)] if isinstance(x, tuple) else [x]


@pytest.mark.parametrize("change, error, match", [
    ({"Q": np.ones((N, 4))}, ValueError, "one shape"),
    ({"K": np.ones((B, H, 6, 4))}, ValueError, "one shape"),
    ({"W_e": np.ones((H, 4, S))}, ValueError, r"F must have shape \(2, 3, 4, 4\)"),
    ({"W_e": np.ones((2, 5, S))}, ValueError, r"W_e must have shape \(3, 5, 2\)"),
    ({"W_e": np.ones((5, S))}, ValueError, "W_e must have 3 axes"),
    ({"W_r": np.ones((H, 6, S))}, ValueError, r"W_r must have shape \(3, 5, 2\)"),
    ({"Lambda": np.ones((H, 3))}, ValueError, r"Lambda must have shape \(3, 2\)"),
    ({"W_o": np.ones((3, D_OUT))}, ValueError, r"W_o must have shape \(4, 3\)"),
    ({"b_o": np.ones(4)}, ValueError, r"b_o must have shape \(3,\)"),
    ({"F": np.ones((H, 5, 4))}, ValueError, r"F must have shape \(2, 3, 5, 4\)"),
    ({"F": None}, ValueError, r"W_e must have shape \(3, 4, 2\), .*F is None"),
    ({"features": "softmax"}, ValueError, "'cosine', 'identity' or a"),
    ({"features": np.ones((3, 4))}, ValueError, "features must have 4 rows"),
    ({"features": 1e4 * np.ones((4, 4))}, ValueError, "overflows"),
    ({"mask": np.ones((B, N))}, TypeError, "mask must be boolean"),
    ({"mask": np.ones((B, 6), bool)}, ValueError, r"mask must have shape \(5,\) or \(2, 5\)"),
    ({"mask": np.ones((H, N), bool)}, ValueError, r"mask must have shape \(5,\) or \(2, 5\)"),
])
def test_shapes(change, error, match):
    arguments = {**LAYER[1], "features": "cosine", "mask": None, **change}
    Q, K, F, kind, mask = (arguments.pop(name) for name in ("Q", "K", "F", "features", "mask"))
    with pytest.raises(error, match=match):
        primal_attention(Q, K, PrimalWeights(**arguments), F=F, features=kind, mask=mask)


@pytest.mark.parametrize("E, R, Lambda, match", [
    ((B, H, N, 3), (B, H, N, 3), (H, S), "those of Lambda"),
    ((B, H, N, S), (B, H, 6, S), (H, S), "those of Lambda"),
    ((N, S), (N, S), (1, S), "those of Lambda"),
])
def test_shapes_of_scores(E, R, Lambda, match):
    weights = GOOD._replace(Lambda=np.ones(Lambda))
    for loss in (paper_loss, published_loss):
        with pytest.raises(ValueError, match=match):
            loss(Scores(np.ones(E), np.ones(R)), weights)


@pytest.mark.parametrize("n", [0, -1, 2.0, 2.5, True, None, "3", np.array([3]), np.nan])
@pytest.mark.parametrize("name, call", [
    ("n", lambda n: even_rows(np.ones((4, 2)), n)),
    ("N", lambda n: even_rows_vjp(np.ones((4, 2)), n)),
    ("N", lambda n: paper_lambda([[1.0]], n)),
    ("heads", lambda n: published_init(np.random.default_rng(0), n, 4, 4, 4)),
    ("D", lambda n: published_init(np.random.default_rng(0), 1, n, 4, 4)),
    ("s", lambda n: published_init(np.random.default_rng(0), 1, 4, n, 4)),
    ("d_v", lambda n: published_init(np.random.default_rng(0), 1, 4, 4, n))])
def test_numbers(n, name, call):
    """A truncated 2.5 would put rows at wrong places, zero heads would be an empty layer."""
    with pytest.raises(ValueError, match=f"^{name} must be an integer, 1 or more, got "):
        call(n)


@pytest.mark.parametrize("dtype", ["int32", "float16", "complex128"])
def test_published_init_of_another_dtype(dtype):
    with pytest.raises(ValueError, match=f"dtype must be 'float64' or 'float32', got '{dtype}'"):
        published_init(np.random.default_rng(0), 1, 4, 2, 3, dtype=dtype)


@pytest.mark.parametrize("weights", [
    GOOD[:4], (*GOOD, 0.0), GOOD._asdict(), None])
def test_weights_are_five(weights):
    """A sixth part would be dropped in silence, a dict gives its names."""
    (Q, K), F = queries_and_keys(), np.ones((B, H, 5, D_IN))
    scores = Scores(*np.ones((2, B, H, N, S)))
    for call in (lambda: primal_attention(Q, K, weights, F=F),
                 lambda: paper_loss(scores, weights), lambda: published_loss(scores, weights)):
        with pytest.raises(ValueError, match=r"weights must be PrimalWeights\(W_e, .*b_o\), got "):
            call()


def test_scores_are_two():
    (Q, K), weights, g = queries_and_keys(), some_weights(), np.ones((B, H, N, D_OUT))
    E, R = S_ = primal_attention(Q, K, weights)[1]
    for bad in ((E,), (E, R, R), None, S_._asdict()):
        for call in (lambda: paper_loss(bad, weights), lambda: published_loss(bad, weights),
                     lambda: primal_attention_vjp(g, bad, S_, Q, K, weights),
                     lambda: primal_attention_vjp(g, S_, bad, Q, K, weights)):
            with pytest.raises(ValueError, match=r"scores must be Scores\(E, R\), got "):
                call()


def test_shapes_of_derivatives():
    """One for each number of the loss: a bare 1 would be broadcast, and its sum is not B."""
    (Q, K), weights = queries_and_keys(), some_weights()
    output, S_ = primal_attention(Q, K, weights)
    for vjp, bad in ((paper_loss_vjp, (B,)), (paper_loss_vjp, ()), (paper_loss_vjp, (7, B, H)),
                     (published_loss_vjp, (B, H)), (published_loss_vjp, ())):
        with pytest.raises(ValueError, match="g must have shape .*that of the loss"):
            vjp(np.ones(bad), S_, weights)
    for bad in ((), (D_OUT,), (N, D_OUT)):
        with pytest.raises(ValueError, match=r"g_output must have shape \(2, 3, 5, 3\)"):
            primal_attention_vjp(np.ones(bad), S_, S_, Q, K, weights)
    short = Scores(S_.E[:1], S_.R[:1])
    with pytest.raises(ValueError, match=r"g_scores.E must have shape \(2, 3, 5, 2\)"):
        primal_attention_vjp(output, short, S_, Q, K, weights)
    with pytest.raises(ValueError, match=r"scores.E must have shape \(2, 3, 5, 2\)"):
        primal_attention_vjp(output, S_, short, Q, K, weights)


def test_derivatives_as_lists():
    (Q, K), weights = queries_and_keys(), some_weights()
    output, S_ = primal_attention(Q, K, weights)
    lists = [A.tolist() for A in S_]
    want = primal_attention_vjp(output, S_, S_, Q, K, weights)
    got = primal_attention_vjp(output.tolist(), lists, lists, Q.tolist(), K.tolist(),
                               [A.tolist() for A in weights])
    for a, b in zip(_flat(got[:3]), _flat(want[:3])):
        np.testing.assert_array_equal(a, b)


def test_mask_without_batch():
    with pytest.raises(ValueError, match=r"mask must have shape \(3,\), one entry for each step"):
        even_rows(np.ones((3, 2)), 2, mask=[True] * 4)


# --- what overflows

def test_too_large_for_the_precision():
    """Refused without a warning: neither infinity nor NaN comes out."""
    (Q, K), weights = queries_and_keys(), some_weights()
    S_, huge = primal_attention(Q, K, weights)[1], 1e200
    big = weights._replace(W_e=huge * weights.W_e, W_r=huge * weights.W_r)
    top = np.full((B, H, N, D_IN), 1e308)
    for what, call in (
            ("output", lambda: primal_attention(Q, K, big._replace(W_o=huge * weights.W_o))),
            ("output", lambda: primal_attention(top, K, weights, features="identity")),
            ("running sum", lambda: primal_attention(top, K, weights, causal=True)),
            ("running sum", lambda: running_mean(top)),
            ("random feature", lambda: primal_attention(top, K, weights,
                                                        features=DIRECTIONS[:, :4])),
            *(("J", lambda loss=loss, S=S, w=w: loss(S, w)) for loss in (paper_loss, published_loss)
              for S, w in ((S_, big), (Scores(huge * S_.E, huge * S_.R), weights))),
            ("square of Lambda", lambda: paper_lambda([[huge]], 2)),
            ("penalty", lambda: mean_of_squares([huge])),
            ("penalty", lambda: square_of_mean([huge]))):
        with pytest.raises(ValueError, match=f"{what} overflows"):
            call()


def test_random_features_of_long_vectors():
    """exp(-|x|^2 / 2) of a long vector is 0, however large the square: no warning, no slope."""
    (Q, K), weights = queries_and_keys(), some_weights(D=6)
    f = lambda X: anp.sum(primal_attention(X, K, weights, features=DIRECTIONS)[1].E)
    assert f(1e160 * Q) == 0.0 and np.all(grad(f)(1e160 * Q) == 0.0)


@pytest.mark.parametrize("call", [lambda X: even_rows(X, 2), running_mean,
                                  lambda X: even_rows_vjp(X, 4)])
def test_rows_of_what(call):
    for X, error, match in ((np.ones(4), ValueError, "2 axes or more"),
                            (np.full((4, 2), np.nan), ValueError, "finite"),
                            (np.ones((4, 2), complex), TypeError, "complex128")):
        with pytest.raises(error, match=match):
            call(X)
