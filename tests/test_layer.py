"""Primal-Attention against loops over its definition, the KSVD it stands for, and its claims."""
import tracemalloc
import warnings

import autograd.numpy as anp
import numpy as np
import pytest
from autograd import grad
from conftest import assert_gradient

from ksvd_ref import dual, features, kernels
from ksvd_ref.attention import (PrimalWeights, even_rows, mean_of_squares, paper_loss,
                                primal_attention, primal_attention_vjp, published_init,
                                published_loss, running_mean)

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


def test_running_mean(lib):
    """K.30. Against the mean of each beginning; a thousand roundings."""
    for N in (1, 2, 63, 64, 65, 128, 150):
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


def test_even_rows_of_another_mask():
    with pytest.raises(ValueError, match=r"mask must have shape \(3,\), one entry for each step"):
        even_rows(np.ones((3, 2)), 2, mask=[True] * 4)
    for mask in (np.ones((B, 6), bool), np.ones((H, N), bool)):
        with pytest.raises(ValueError, match=r"mask must have shape \(5,\) or \(2, 5\)"):
            primal_attention(*queries_and_keys(), some_weights(), mask=mask)


@pytest.mark.parametrize("n", [1, 3, 7, 20])
@pytest.mark.parametrize("padded", [False, True])
def test_derivative_of_even_rows(n, padded):
    mask, rng = PADDED if padded else None, np.random.default_rng(10)
    g, X = rng.standard_normal((B, n, 2)), rng.standard_normal((B, N, 2))
    assert_gradient(lambda X: anp.sum(g * even_rows(X, n, mask=mask) ** 2), X)


# --- derivatives by autograd: those by hand are in test_gradients.py

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
            assert_gradient(lambda A: f(*arguments[:n], A, *arguments[n + 1:]), X, directions=4)


@SETTING
def test_second_derivatives(setting):
    """Those by differences of the first, along one direction of each argument."""
    f, arguments, _, _ = task(setting)
    rng = np.random.default_rng(24)
    for n, X in enumerate(arguments):
        if X is not None:
            D, C = rng.standard_normal((2, *X.shape))
            slope = lambda t: anp.sum(C * grad(f, n)(*arguments[:n], X + t * D, *arguments[n + 1:]))
            assert_gradient(slope, [0.1])


def test_float32_gradients_stay_float32():
    for setting in SETTINGS:
        f, arguments, _, options = task(setting)
        arguments = [None if X is None else X.astype("float32") for X in arguments]
        options = {name: X.astype("float32") if name == "features" and len(X) == D_IN else X
                   for name, X in options.items()}
        for n in range(8):
            def g(X):
                Q, K, *weights, F = *arguments[:n], X, *arguments[n + 1:]
                weights, mask = PrimalWeights(*weights), options.get("mask")
                output, scores = primal_attention(Q, K, weights, F=F, **options)
                return anp.sum(output) + sum(
                    mean_of_squares(loss(scores, weights, mask=mask))
                    for loss in (paper_loss, published_loss))
            if arguments[n] is not None:
                assert grad(g)(arguments[n]).dtype == np.float32, (setting, NAMES[n])


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
    with pytest.raises(TypeError, match="rng must be a numpy.random.Generator, got int"):
        published_init(0, 2, 2, 3, 4)


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


@pytest.mark.parametrize("dtype", ["int32", "float16", "complex128"])
def test_published_init_of_another_dtype(dtype):
    with pytest.raises(ValueError, match=f"dtype must be 'float64' or 'float32', got '{dtype}'"):
        published_init(np.random.default_rng(0), 1, 4, 2, 3, dtype=dtype)


@pytest.mark.parametrize("options, D, match", [
    ({}, 5, "W_e without F must have rows for the 4 features, got 5"),
    ({"F": np.ones((B, H, 4, 3))}, 4, "F must have columns for the 4 features, got 3"),
    ({"F": np.ones((B, H, 4, 4)), "features": DIRECTIONS}, 4, "for the 6 features, got 4"),
    ({"features": DIRECTIONS}, 4, "W_e without F must have rows for the 6 features, got 4"),
    ({"features": np.ones((3, 4))}, 4, "features must have 4 rows"),
    ({"features": "softmax"}, 4, "features must be 'cosine', 'identity' or directions"),
    ({"causal": True, "F": np.ones((B, H, 4, 4))}, 4, "data-independent weights, F=None.*future")])
def test_what_must_fit(options, D, match):
    """What the axes alone do not say, refused in the layer and in its derivative."""
    (Q, K), weights = queries_and_keys(), some_weights(D=D)
    with pytest.raises(ValueError, match=match):
        primal_attention(Q, K, weights, **options)
    zero = np.zeros((B, H, N, S))
    with pytest.raises(ValueError, match=match):
        primal_attention_vjp(np.zeros((B, H, N, D_OUT)), (zero, zero), (zero, zero), Q, K, weights,
                             **options)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("setting", ["cosine", "identity", "random", "mask", "causal", "F"])
def test_what_is_no_number_is_named(setting, value):
    """Where no mask hides it. A random feature of exp(-inf) would be 0: nothing would show."""
    options, D = SETTINGS[setting]
    if setting == "random":
        options = {"features": abs(DIRECTIONS) * (1.0 if value < 0.0 else -1.0)}
    for name in ("Q", "K"):
        (Q, K), weights = queries_and_keys(), some_weights(D)
        (Q if name == "Q" else K)[1, 2, 3, 0] = value
        with pytest.raises(ValueError, match=f"{name} must be finite, got NaN or infinity in entry "
                                             r"\(1, 2, 3, 0\)"):
            primal_attention(Q, K, weights, **options)


# --- what overflows

def test_too_large_for_the_precision():
    """Refused without a warning: neither infinity nor NaN comes out."""
    (Q, K), weights = queries_and_keys(), some_weights()
    huge, top = 1e200, np.full((B, H, N, D_IN), 1e308)
    big = weights._replace(W_e=huge * weights.W_e, W_o=huge * weights.W_o)
    for call in (lambda: primal_attention(Q, K, big),
                 lambda: primal_attention(top, K, weights, features="identity"),
                 lambda: primal_attention(top, K, weights, causal=True),
                 lambda: primal_attention(top, K, weights, features="identity", causal=True),
                 lambda: primal_attention(top, K, weights, features=DIRECTIONS[:, :4]),
                 lambda: primal_attention(1e4 * Q, K, weights, features=1e4 * DIRECTIONS[:, :4]),
                 lambda: running_mean(top)):
        with pytest.raises(ValueError, match="(primal_attention|running_mean) overflows"):
            call()


def test_random_features_of_long_vectors():
    """exp(-|x|^2 / 2) of a long vector is 0, however large the square: no warning, no slope."""
    (Q, K), weights = queries_and_keys(), some_weights(D=6)
    f = lambda X: anp.sum(primal_attention(X, K, weights, features=DIRECTIONS)[1].E)
    assert f(1e160 * Q) == 0.0 and np.all(grad(f)(1e160 * Q) == 0.0)
