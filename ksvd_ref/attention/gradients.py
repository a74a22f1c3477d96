"""Derivatives of Primal-Attention and its losses by hand, for libraries that do not trace.

g_A    the shape of A    derivative of a loss by A, for each array A of the layer

autograd cannot trace CuPy arrays, so a GPU needs these; on the CPU autograd referees them, and
differentiates the layer itself. Blocks of rows keep what is made on the way in the cache.

No equation: they are derivatives of what has one. What is refused: inputs.py.
"""
import math

from ..backend import like, namespace, on_gpu
from ..inputs import arrays, integer
from .filters import shown, steps, visible
from .layer import (LAYER, WEIGHTS, PrimalWeights, Scores, _count, _even_grid, _fitting, _in_range,
                    _random_features, _running_sum, _take_rows)
from .losses import KERNEL, SCORES, _counted, _factors, _inner, _squares, _T


@arrays(**LAYER, scores=SCORES, g_scores=SCORES, g_output="~... H N d_v")
def primal_attention_vjp(g_output, g_scores, scores, Q, K, weights, *, F=None, features="cosine",
                         mask=None, causal=False):
    """Gradient through `primal_attention`: (g_Q, g_K, PrimalWeights, g_F or None).

    [g_E, g_R] + g_output Wₒᵀ is the derivative by the scores; then g_W = Φᵀ g_E, and for the cosine
    map g_q = (W g_e − q/‖q‖ ⟨e, g_e⟩)/‖q‖, with W = Fᵀ Wₑ, and the same for the keys. The rows
    q/‖q‖ are never formed: each product of the layer has two here, and the rest is of the size of
    the scores. g_output, g_scores: derivatives by the output, and by E and R as such. scores: what
    the layer returned. Weights are summed over the batch, 0 for Lambda.

    >>> import numpy as np
    >>> q, one, zero = np.array([[[3.0, 4.0]]]), np.ones((1, 2, 1)), np.zeros((1, 1, 1))
    >>> weights = PrimalWeights(one, one, [[1.0]], [[1.0], [0.0]], [0.0])
    >>> scores = [[[1.4]]], [[[1.4]]]                           # output = e = (q_1 + q_2) / |q|
    >>> primal_attention_vjp(zero + 1, (zero, zero), scores, q, q, weights)[0]
    array([[[ 0.032, -0.024]]])
    """
    Q, K, mask = _fitting(Q, K, weights, F, features, mask, causal)
    (W_e, W_r, Lambda, W_o, _), s = weights, weights[0].shape[-1]
    g_output, *g_scores = (visible(mask, A) for A in (g_output, *g_scores))
    if causal:
        Q, K = _running_sum(Q) / _count(Q, mask), _running_sum(K) / _count(K, mask)
    W = [A if F is None else _T(F) @ A for A in (W_e, W_r)]
    g_X, g_W, g_o = [_room(Q), _room(K)], [_room(W[0]), _room(W[1])], _room(W_o)
    for i in _blocks(Q):
        g = g_output[..., i, :]
        g_S = g @ W_o.T                                                    # (..., H, i, 2s)
        for a, (X, S) in enumerate(zip((Q, K), scores)):
            half, S = slice(a * s, a * s + s), S[..., i, :]
            g_o[half, :] += _summed(_T(S) @ g, 2)
            g_X[a][..., i, :], part = _scores_vjp(
                g_S[..., half] + g_scores[a][..., i, :], S, X[..., i, :], W[a], features)
            g_W[a] += _summed(part, W[a].ndim)
    if causal:
        later = (_running_sum((g / _count(g, mask))[..., ::-1, :])[..., ::-1, :] for g in g_X)
        g_X = [visible(mask, g) for g in later]
    g_F = None if F is None else W_e @ _T(g_W[0]) + W_r @ _T(g_W[1])
    g_W = g_W if F is None else [_summed(F @ g, 3) for g in g_W]
    return *g_X, PrimalWeights(*g_W, _room(Lambda), g_o, _summed(g_output, 1)), g_F


def _scores_vjp(g, S, X, W, features):
    """Derivatives by X and by W, for each sequence, of the scores S = Φ W."""
    if not isinstance(features, str):
        Phi = _random_features(X, features)
        return _random_vjp(g @ _T(W) * Phi, X, features), _T(Phi) @ g
    if features == "identity":
        return g @ _T(W), _T(X) @ g
    X, length, top = _in_range(X)
    g = g / length
    g_X = g @ _T(W)
    g_X -= X * ((S[..., None, :] @ g[..., :, None])[..., 0] / length)
    return g_X if top is None else g_X / top, _T(X) @ g


def _random_vjp(g, X, features):
    """Derivative by X, where g is that by Φ, times Φ: d Φ_l = Φ_l (w_l − x)ᵀ dx."""
    return g @ features.T - X * namespace(g).sum(g, axis=-1, keepdims=True)


def _room(A):
    """Zeros in the place of A, to be filled. NumPy's zeros_like would write all of them first."""
    return namespace(A).zeros(A.shape, **like(A))


def _blocks(X, size=2 ** 18):
    """Slices of the rows of X, so short that what is made of them stays in the cache of a CPU."""
    N = X.shape[-2]
    rows = N if on_gpu(namespace(X)) else max(128, size * N // math.prod(X.shape))
    return [slice(i, min(i + rows, N)) for i in range(0, N, rows)]


def _summed(A, axes):
    """Sum over all but the last axes."""
    xp = namespace(A)
    return xp.sum(xp.reshape(A, (-1, *A.shape[A.ndim - axes:])), axis=0)


@arrays(g="... n d", N=integer(1))
def even_rows_vjp(g, N, *, mask=None):
    """Gradient through `even_rows`: each row of g goes back to its place among N, (..., N, d).

    >>> even_rows_vjp([[1.0], [2.0]], 3)[:, 0]
    array([1., 0., 2.])
    """
    xp, (*batch, n, d), total = namespace(g), g.shape, 0.0
    X = xp.zeros((*batch, N, d), **like(g))
    mask = steps(mask, X, 2)
    grid = _even_grid(X, n, mask)[..., None, :]
    step = xp.arange(N, **like(grid))[:, None]
    first = xp.count_nonzero(grid < step, axis=-1)                         # (..., N)
    after = xp.count_nonzero(grid <= step, axis=-1)
    for t in range(int(xp.max(after - first))):                 # rows of g that share a place
        rows = _take_rows(g, xp.minimum(first + t, n - 1))
        total = total + xp.where((first + t < after)[..., None], rows, 0.0)
    return visible(mask, total)                     # of padding alone, row 0 is taken: it is hidden


@arrays(scores=SCORES, weights=WEIGHTS, g="... H")
def paper_loss_vjp(g, scores, weights, *, mask=None):
    """Gradient through `paper_loss` (Eq. K.18, before the scores are eliminated).

    g_E = E Λ, g_R = R Λ, g_We = −W_r, g_Wr = −W_e, g_λ = ½ (‖e‖² + ‖r‖²), each times g: through the
    layer E = Φ W_e turns the first into ΦᵀΦ W_e Λ. Scores and PrimalWeights, summed over the batch.

    >>> one, scores = [[[1.0], [1.0]]], ([[[2.0], [1.0]]], [[[1.0], [1.0]]])
    >>> paper_loss_vjp([1.0], scores, (one, one, [[3.0]], one[0], [0.0]))[1].Lambda    # (5 + 2) / 2
    array([[3.5]])
    """
    (E, R, _), (W_e, W_r, Lambda, W_o, b_o) = _counted(scores, mask), weights
    g_L = 0.5 * _summed(g[..., None] * (_squares(E) + _squares(R)), 2)
    weight, g_trace = g[..., None, None] * Lambda[:, None, :], -_summed(g, 1)[:, None, None]
    return Scores(weight * E, weight * R), PrimalWeights(
        g_trace * W_r, g_trace * W_e, g_L, _room(W_o), _room(b_o))


@arrays(scores=SCORES, weights=WEIGHTS, g="...")
def published_loss_vjp(g, scores, weights, *, mask=None):
    """Gradient through `published_loss`, (Scores, PrimalWeights), summed over the batch.

    g_E = E Λ²/(HN), g_R = R Λ²/(HN), g_We = −W_r/H, g_Wr = −W_e/H, g_λ = λ (‖e‖² + ‖r‖²)/(HN), each
    times g.

    >>> one, scores = [[[1.0], [1.0]]], ([[[2.0], [1.0]]], [[[1.0], [1.0]]])
    >>> published_loss_vjp(1.0, scores, (one, one, [[3.0]], one[0], [0.0]))[1].Lambda  # 3 (5 + 2)/2
    array([[10.5]])
    """
    (E, R, N), (W_e, W_r, Lambda, W_o, b_o) = _counted(scores, mask), weights
    H, g_trace = Lambda.shape[0], -namespace(g).sum(g) / Lambda.shape[0]
    g = g[..., None, None] / (H * N)                            # (..., 1, 1)
    g_L = Lambda * _summed(g * (_squares(E) + _squares(R)), 2)
    weight = g[..., None] * (Lambda * Lambda)[:, None, :]       # (..., H, 1, s)
    return Scores(weight * E, weight * R), PrimalWeights(
        g_trace * W_r, g_trace * W_e, g_L, _room(W_o), _room(b_o))


@arrays(scores=SCORES, **KERNEL, g="... H")
def approximation_loss_vjp(g, scores, Q, K, *, F=None, features="cosine", mask=None):
    """Gradient through `approximation_loss`: (Scores, g_Q, g_K, g_F or None).

    With C_e = ΦᵀE, C_r = ΨᵀR, G_e = ΦᵀΦ, G_r = ΨᵀΨ, M = FᵀF, and m of the share 1 + m/‖K‖², twice
    this, times g/‖K‖²: g_E = E RᵀR − Φ M C_r, g_Φ = −E (M C_r)ᵀ − m/‖K‖² Φ M G_r M, the same with
    sides changed, and g_F = −F (C_e C_rᵀ + C_r C_eᵀ + m/‖K‖² (G_e M G_r + G_r M G_e)).

    >>> scores, Q, K = ([[[2.0]]], [[[1.0]]]), [[[5.0]]], [[[3.0]]]        # (1 - e r)² at 2, 1
    >>> approximation_loss_vjp([1.0], scores, Q, K)[0]
    Scores(E=array([[[2.]]]), R=array([[[4.]]]))
    """
    E, R, Phi, Psi, M, some = _factors(scores, Q, K, F, features, mask)
    G_e, G_r, C_e, C_r = _T(Phi) @ Phi, _T(Psi) @ Psi, _T(Phi) @ E, _T(Psi) @ R
    norm_2 = visible(some, _inner(M @ G_e @ M, G_r), 1.0)
    m = _inner(_T(E) @ E, _T(R) @ R) - 2.0 * _inner(M @ C_e, C_r)
    weight, share = (2.0 * g / norm_2)[..., None, None], (m / norm_2)[..., None, None]
    found, mask = [], steps(mask, Q, 3)
    for S, other, X, Phi_, C, G, name in ((E, R, Q, Phi, C_r, G_r, "Q"),
                                          (R, E, K, Psi, C_e, G_e, "K")):
        MC = M @ C
        g_S = weight * (S @ (_T(other) @ other) - Phi_ @ MC)
        g_Phi = -weight * (S @ _T(MC) + share * (Phi_ @ (M @ G @ M)))
        found.append((g_S, visible(mask, _map_vjp(g_Phi, Phi_, shown(mask, X, name), features))))
    (g_E, g_Q), (g_R, g_K) = found
    if F is not None:
        half = C_e @ _T(C_r) + share * (G_e @ M @ G_r)
        F = -weight * (F @ (half + _T(half)))
    return Scores(g_E, g_R), g_Q, g_K, F


def _map_vjp(g, Phi, X, features):
    """Derivative by X, where g is that by Φ."""
    if not isinstance(features, str):
        return _random_vjp(g * Phi, X, features)
    if features == "identity":
        return g
    _, length, top = _in_range(X)
    g = (g - Phi * namespace(g).sum(g * Phi, axis=-1, keepdims=True)) / length
    return g if top is None else g / top
