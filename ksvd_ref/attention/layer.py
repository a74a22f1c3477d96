"""Primal-Attention: the scores e and r of the KSVD as an attention layer.

Q, K       (..., H, N, d)       queries and keys of H heads; here K is not a kernel
Φ, Ψ       (..., H, N, p)       their features, φ(q) and ψ(k); p = d for the cosine map
F          (..., H, n, p)       data-dependent transform f(X): the kernel is Φ FᵀF Ψᵀ
W_e, W_r   (H, D, s)            primal weights, shared by all sequences; D = n with F, else D = p
E, R       (..., H, N, s)       scores: E = Φ Fᵀ W_e, R = Ψ Fᵀ W_r
mask       (N,) or (..., N)     True is a step, False padding, which may hold anything

Time O(N p s) per head, and no N x N array. No softmax, no values, no centring: the output is a
linear map of [E, R]. That J = 0 does not make W_e and W_r solutions of the KSVD is lesson 04.
autograd differentiates it as often as asked; a row of zeros counts as under the identity map.

No equation: where training starts is no part of the derivation. What is refused: inputs.py.
"""
import warnings
from typing import Any, NamedTuple

import numpy as np
from autograd.extend import defvjp, primitive
from autograd.tracer import getval

from ..backend import like, namespace, on_gpu
from ..inputs import TOO_LARGE, arrays, as_array, integer
from .filters import shown, steps, visible


class PrimalWeights(NamedTuple):
    """Parameters of one layer."""

    W_e: Any          # (H, D, s)
    W_r: Any          # (H, D, s)
    Lambda: Any       # (H, s)     of the loss; the layer does not use it
    W_o: Any          # (2s, d_v)  shared by the heads
    b_o: Any          # (d_v,)


class Scores(NamedTuple):
    """Projections of the queries and of the keys."""

    E: Any            # (..., H, N, s)
    R: Any            # (..., H, N, s)


def _features(value, name):
    """Kind of an argument: the name of a map, or directions (d, p)."""
    if isinstance(value, str) and value not in ("cosine", "identity"):
        raise ValueError(f"{name} must be 'cosine', 'identity' or directions (d, p), got {value!r}")
    return value if isinstance(value, str) else as_array(value, name, 2)


WEIGHTS = {"W_e": "H D s", "W_r": "H D s", "Lambda": "H s", "W_o": "2s d_v", "b_o": "d_v"}
LAYER = {"Q": "~... H N d", "K": "~... H N d", "weights": WEIGHTS, "F": "... H D p",
         "features": _features}


@arrays(**LAYER, cure=TOO_LARGE + ": scale Q and K down if features are random")
def primal_attention(Q, K, weights, *, F=None, features="cosine", mask=None, causal=False):
    """Primal-Attention of several heads and sequences, oᵢ = [eᵢ, rᵢ] Wₒ + bₒ (Eq. K.24).

    eᵢ = Wₑᵀ F φ(qᵢ), rᵢ = Wᵣᵀ F φ(kᵢ): the layer of Chen et al., NeurIPS 2023; the bias is that of
    their code. Returns the output (..., H, N, d_v) and Scores(E, R), zero at padded steps. Dividing
    both scores by the root of the row sums of an estimated kernel, which Chen et al. discuss, does
    not give softmax but another kernel (V19).

    F: f(X), as by `even_rows`; without it the weights are data-independent. features: "cosine",
    q/‖q‖ (K.25), 0 for 0; "identity"; or directions (d, p) from N(0, I), positive random features,
    whose kernel estimates exp(⟨q, k⟩). causal: token i sees the tokens up to i, by running means
    (K.30). Warns if s > min(n, p, N), the largest rank that the kernel can have (V16).
    Source: Chen et al. 2023; code of Chen et al. 2023.

    >>> one = np.ones((1, 2, 1))
    >>> weights = PrimalWeights(one, 2 * one, [[1.0]], [[1.0], [10.0]], [0.0])
    >>> primal_attention([[[3.0, 4.0]]], [[[0.0, 5.0]]], weights)[0]      # .6 + .8 + 10 * 2 (0 + 1)
    array([[[21.4]]])
    """
    Q, K, mask = _fitting(Q, K, weights, F, features, mask, causal)
    (W_e, W_r, _, W_o, b_o), s = weights, weights[0].shape[-1]
    if causal:
        Q, K = _running_sum(Q) / _count(Q, mask), _running_sum(K) / _count(K, mask)
    if F is not None:
        F = namespace(F).moveaxis(F, -1, -2)
        W_e, W_r = F @ W_e, F @ W_r                             # Fᵀ W_e    (..., H, p, s)
    E = visible(mask, _scores(Q, W_e, features))                # Φ Fᵀ W_e
    R = visible(mask, _scores(K, W_r, features))
    output = E @ W_o[:s, :] + R @ W_o[s:, :] + b_o              # [E, R] W_o + b_o
    return visible(mask, output), Scores(E, R)


def _fitting(Q, K, weights, F, features, mask, causal):
    """Q and K with zeros at padded steps, and their mask; refuses what the axes do not say."""
    (_, D, s), N, p = weights[0].shape, Q.shape[-2], _width(Q, F, features)
    if causal and F is not None:
        raise ValueError("causal=True needs data-independent weights, F=None: F holds rows of the "
                         "whole sequence, so every score would see the future through it")
    if F is None and D != p:
        raise ValueError(f"W_e without F must have rows for the {p} features, got {D}")
    bound = min(D, p, N)
    if s > bound:
        warnings.warn(f"s = {s} directions, but the kernel matrix has rank min(n, p, N) = {bound} "
                      f"at most (V16): {s - bound} of them cannot be singular vectors of a "
                      "sigma > 0", stacklevel=4)
    mask = steps(mask, Q, 3)
    if mask is None and isinstance(features, str):  # NaN shows; a random feature hides it
        return Q, K, None
    return shown(mask, Q, "Q"), shown(mask, K, "K"), mask


def _width(Q, F, features):
    """p, how many features there are; refuses directions and an F that do not fit."""
    d, named = Q.shape[-1], isinstance(features, str)
    if not named and features.shape[0] != d:
        raise ValueError(f"features must have {d} rows, one for each column of Q, "
                         f"got shape {tuple(features.shape)}")
    p = d if named else features.shape[1]
    if F is not None and F.shape[-1] != p:
        raise ValueError(f"F must have columns for the {p} features, got {F.shape[-1]}")
    return p


def _scores(X, W, features):
    """Φ W. The cosine map divides last: there are fewer scores than features."""
    if isinstance(features, str) and features == "cosine":
        X, length, _ = _in_range(X)
        return X @ W / length
    return _feature_map(X, features) @ W


def _feature_map(X, features):
    """Φ, which the cosine layer never forms and its kernel needs."""
    if not isinstance(features, str):
        return _random_features(X, features)
    if features == "identity":
        return X
    X, length, _ = _in_range(X)
    return X / length


def _random_features(X, W):
    """φ(x) = e^{−‖x‖²/2} (e^{w₁ᵀx}, …, e^{w_pᵀx})/√p for directions W (d, p) (S.32)."""
    return namespace(X, W).exp(X @ W - 0.5 * _squares(X)) / W.shape[1] ** 0.5


def _in_range(X):
    """X, the lengths of its rows, 1 for zeros, and what each row had to be divided by, or None."""
    xp, raw = namespace(X), getval(X)               # φ has no scale: what divides X is a constant
    square, top, limits = _squares(X), None, xp.finfo(raw.dtype)
    low, high = float(limits.smallest_normal) / float(limits.eps), 1e-6 * float(limits.max)
    if not low < float(xp.min(getval(square))) <= float(xp.max(getval(square))) < high:
        top = xp.max(xp.abs(raw), axis=-1, keepdims=True)       # the squares of 1e200 are lost
        top = xp.where(top > 0.0, top, 1.0)
        X = X / top
        square = _squares(X)
    return X, xp.sqrt(visible(square > 0.0, square, 1.0)), top


@primitive
def _squares(X):            # a product of rows and columns makes no array of the size of X
    if on_gpu(namespace(X)):                        # that would be one launch for each row
        return namespace(X).sum(X * X, axis=-1, keepdims=True)
    return (X[..., None, :] @ X[..., :, None])[..., 0]


defvjp(_squares, lambda ans, X: lambda g: 2.0 * g * X)


@arrays(X="~... N d")
def running_mean(X, *, mask=None):
    """Means of the steps up to each one, (x₁ + … + xᵢ)/i, in O(N) (Eq. K.30).

    The causal form of Primal-Attention replaces queries and keys by it; for the cosine map the sum
    would do (V40). Padded steps do not count: 0 before the first True of the mask.
    Source: code of Chen et al. 2023.

    >>> running_mean([[2.0], [4.0], [9.0]], mask=[True, True, False])[:, 0]
    array([2., 3., 3.])
    """
    mask = steps(mask, X, 2)
    return _running_sum(shown(mask, X, "X")) / _count(X, mask)


def _count(X, mask):
    """Steps that count so far, at least 1: (..., N, 1)."""
    xp = namespace(X)
    return xp.maximum(_running_sum(visible(mask, xp.ones_like(X[..., :1]))), 1.0)


@primitive
def _running_sum(X):
    """Sums of the steps up to each one, in blocks: one triangle of ones would be N x N."""
    xp, (*batch, N, d), block = namespace(X), X.shape, 64
    ones = xp.tril(xp.ones((min(N, block), min(N, block)), **like(X)))
    if N <= block:
        return ones @ X
    m, total = N // block, xp.zeros_like(X)
    rows = ones @ xp.reshape(X[..., :m * block, :], (*batch, m, block, d))
    rows[..., 1:, :, :] += _running_sum(rows[..., :-1, -1, :])[..., None, :]    # the blocks before
    total[..., :m * block, :] = xp.reshape(rows, (*batch, m * block, d))
    if m * block < N:
        n = N - m * block
        total[..., -n:, :] = ones[:n, :n] @ X[..., -n:, :] + rows[..., -1, -1:, :]
    return total


defvjp(_running_sum, lambda ans, X: lambda g: _running_sum(g[..., ::-1, :])[..., ::-1, :])


@arrays(X="~... N d", n=integer(1))
def even_rows(X, n, *, mask=None):
    """f(X): n ≥ 2 evenly spaced rows of the sequence, the first and the last among them (Eq. K.29).

    Row k is x_⌊k (N−1)/(n−1)⌋, k = 0, …, n − 1: (..., n, d); a head takes its slice of the columns.
    Choose n = min(N, s * rank_multi), 10 or 5 times s in the released scripts; for n > N rows
    repeat. The grid is that of the published code (from truncated floating-point steps there), a
    fixed one: the random-projection argument for sampled rows does not apply. With a mask each
    sequence has its own grid over its steps; that code takes padded steps too.
    Source: code of Chen et al. 2023.

    >>> even_rows([[0.0], [1.0], [2.0], [3.0]], 3)[:, 0]
    array([0., 1., 3.])
    """
    mask = steps(mask, X, 2)
    X = shown(mask, X, "X")
    return _take_rows(X, _even_grid(X, n, mask))


def _even_grid(X, n, mask):
    """Places of the n rows among the steps, ascending, (..., n)."""
    xp, N = namespace(X), X.shape[-2]
    every = X[..., 0] == X[..., 0]
    mask = every if mask is None else every & mask[..., 0]                  # (..., N)
    length = xp.count_nonzero(mask, axis=-1)[..., None]
    step, k = xp.arange(N, **like(length)), xp.arange(n, **like(length))
    real = xp.sort(xp.where(mask, step, step + N), axis=-1) % N             # real steps come first
    return xp.take_along_axis(real, k * xp.maximum(length - 1, 0) // max(n - 1, 1), axis=-1)


def _take_rows(X, grid):
    """The rows of X (..., N, d) that a grid (..., n) names, (..., n, d)."""
    xp, (*batch, N, d), n = namespace(X), X.shape, grid.shape[-1]
    X, grid = xp.reshape(X, (-1, N, d)), xp.reshape(grid, (-1, n))
    b, f = (xp.arange(length, **like(grid)) for length in (X.shape[0], d))
    return xp.reshape(X[b[:, None, None], grid[:, :, None], f[None, None, :]], (*batch, n, d))


@arrays(heads=integer(1), D=integer(1), s=integer(1), d_v=integer(1))
def published_init(rng, heads, D, s, d_v, *, dtype="float64"):
    """Weights as the published code draws them, PrimalWeights of NumPy arrays.

    W_e and W_r, flattened to (H, D s), have orthonormal rows: each head has Frobenius norm 1 and is
    orthogonal to the others. Differs from what "orthogonal" suggests: the columns *within* a head
    are not orthonormal, W_hᵀW_h is only near I/s. Lambda is uniform in (0, 1), with no constraint
    to stay positive. W_o and b_o are uniform within 1/√(2s).

    >>> np.sum(published_init(np.random.default_rng(0), 4, 10, 3, 8).W_e ** 2, axis=(1, 2))
    array([1., 1., 1., 1.])
    """
    if not isinstance(rng, np.random.Generator):
        raise TypeError(f"rng must be a numpy.random.Generator, got {type(rng).__name__}")
    if dtype not in ("float64", "float32"):         # integers would all be 0
        raise ValueError(f"dtype must be 'float64' or 'float32', got {dtype!r}")
    if heads > D * s:
        raise ValueError(f"heads must be D s = {D * s} at most, for orthonormal rows, got {heads}")

    def orthogonal():
        W, T = np.linalg.qr(rng.standard_normal((D * s, heads)))
        W = W * np.where(np.diag(T) < 0.0, -1.0, 1.0)   # or the distribution is not uniform
        return np.reshape(W.T, (heads, D, s)).astype(dtype)

    W_e, W_r, limit = orthogonal(), orthogonal(), (2 * s) ** -0.5
    return PrimalWeights(W_e, W_r, rng.uniform(0.0, 1.0, (heads, s)).astype(dtype),
                         rng.uniform(-limit, limit, (2 * s, d_v)).astype(dtype),
                         rng.uniform(-limit, limit, d_v).astype(dtype))
