r"""Primal-Attention: the scores e and r of the KSVD as an attention layer, and its two losses.

Q, K       (..., H, N, d)       queries and keys of H heads; here K is not a kernel
Phi, Psi   (..., H, N, p)       their features; p = d for the cosine map
F          (..., H, n, p)       data-dependent transform f(X): the kernel is Phi F^T F Psi^T
W_e, W_r   (H, D, s)            primal weights, shared by all sequences; D = n with F, else D = p
E, R       (..., H, N, s)       scores: E = Phi F^T W_e, R = Psi F^T W_r
Lambda     (H, s)               weights of the loss: 1 / sigma in K.28, its root in K.31

Time O(N p s) per head, and no N x N array. No softmax, no values, no centring: the output is a
linear map of [E, R]. That J = 0 does not make W_e and W_r solutions of the KSVD is lesson 05.
"""
import math
import warnings
from typing import Any, NamedTuple

import numpy as np
from autograd.extend import defvjp, defvjp_argnums, primitive

from ..backend import as_array, as_matrix, check_finite, check_integer, like, namespace, silent


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


def primal_attention(Q, K, weights, *, F=None, features="cosine", mask=None, causal=False):
    r"""Primal-Attention of several heads and sequences, oᵢ = [eᵢ; rᵢ] Wₒ + bₒ (Eq. K.24).

    .. math:: o_i = W_o^\top [e_i; r_i] + b_o, \qquad
              e_i = W_{e|X}^\top \varphi(q_i), \quad r_i = W_{r|X}^\top \varphi(k_i), \qquad
              W_{e|X} = F^\top W_e, \quad W_{r|X} = F^\top W_r

    The layer of Chen et al., NeurIPS 2023; the bias is that of their code. Without F the weights
    are data-independent, W_{e|X} = W_e.

    Source: Chen et al. 2023; code of Chen et al. 2023.

    Parameters
    ----------
    Q : (..., H, N, d) array
        Queries; before H the axes of the batch, or none.
    K : (..., H, N, d) array
        Keys, one for each query: o_i needs both scores of token i.
    weights : PrimalWeights
        W_e, W_r (H, D, s), Lambda (H, s), W_o (2s, d_v), b_o (d_v,).
    F : (..., H, n, p) array, optional
        f(X), n = D: with `even_rows` some rows of the layer's input, split into heads.
    features : {"cosine", "identity"} or (d, p) array
        cosine: each vector divided by its length (K.25), the map of the paper's experiments. An
        array holds directions w_1 to w_p, drawn from N(0, I): positive random features, whose
        kernel estimates exp(<q, k>).
    mask : (N,) or (..., N) boolean array, optional
        True = a step of the sequence, False = padding, which may hold anything, NaN included.
    causal : bool
        Token i sees the tokens up to i (K.30): `running_mean` of queries and keys comes first.

    Returns
    -------
    output : (..., H, N, d_v) array
        Zero at padded steps.
    Scores
        E and R (..., H, N, s), zero at padded steps.

    Raises
    ------
    TypeError
        If an argument is no array of real numbers, the mask is not boolean, or the arrays belong to
        different libraries.
    ValueError
        If shapes do not fit, something visible is NaN or infinite, the output or a random feature
        overflows, or `causal` meets `F`.

    Warns
    -----
    UserWarning
        If s > min(n, p, N), the largest possible rank of the kernel matrix (V16).

    Notes
    -----
    Chen et al. discuss dividing both scores by the root of the row sums of an estimated kernel.
    That is left out: it does not give softmax but another kernel (V19).

    autograd uses the derivative of `primal_attention_vjp`: first derivatives only. A query or key
    of zeros has no direction; there the derivative is that of the identity map.

    Examples
    --------
    >>> import numpy as np
    >>> one = np.ones((1, 2, 1))
    >>> weights = PrimalWeights(one, 2 * one, [[1.0]], [[1.0], [10.0]], [0.0])
    >>> output, (E, R) = primal_attention([[[3.0, 4.0]]], [[[0.0, 5.0]]], weights)
    >>> E, R, output                                # .6 + .8, 2 (0 + 1), 1.4 + 10 * 2
    (array([[[1.4]]]), array([[[2.]]]), array([[[21.4]]]))
    """
    Q, K, weights, F, features, mask = _checked(Q, K, weights, F, features, mask, causal)
    W_e, W_r, _, W_o, b_o = weights
    with silent():                                  # what overflows is in the output, and refused
        E, R = (_scores(X, W if F is None else _T(F) @ W, features, mask, bool(causal))
                for X, W in ((Q, W_e), (K, W_r)))               # (..., H, N, s)
        return _project(E, R, W_o, b_o, mask), Scores(E, R)


def primal_attention_vjp(g_output, g_scores, scores, Q, K, weights, *, F=None, features="cosine",
                         mask=None, causal=False):
    r"""Gradient through `primal_attention`, written out for libraries that do not trace.

    .. math:: \bar S = \bar O W_o^\top + [\bar E, \bar R], \qquad
              \bar W_{e|X} = \Phi^\top \bar E, \qquad
              \bar q = \tfrac{1}{\|q\|} \bigl(W_{e|X} \bar e - \tfrac{q}{\|q\|} \langle e, \bar e
              \rangle \bigr)

    and the same for the keys; the bar of a letter is the derivative of the loss by it. The last
    equation is that of the cosine map, whose rows are never formed: each product of the forward
    pass has two here, and the rest is of the size of the scores. A derivative too large for the
    precision comes out infinite, with NumPy's warning.

    No equation: the derivative of K.24.

    Parameters
    ----------
    g_output : (..., H, N, d_v) array
        Derivative of the loss by the output.
    g_scores : Scores
        Derivative of the loss by E and R as such, beside what comes through the output.
    scores : Scores
        What `primal_attention` returned.
    Q, K, weights, F, features, mask, causal
        As they were given to `primal_attention`.

    Returns
    -------
    g_Q, g_K : (..., H, N, d) array
    g_weights : PrimalWeights
        Zero for Lambda. Summed over the batch.
    g_F : (..., H, n, p) array or None

    Raises
    ------
    TypeError, ValueError
        As `primal_attention`, but for NaN and infinity, which it has refused already, and if the
        derivatives have not the shapes of the output and the scores.

    Examples
    --------
    >>> import numpy as np
    >>> q, one, zero = np.array([[[3.0, 4.0]]]), np.ones((1, 2, 1)), np.zeros((1, 1, 1))
    >>> weights = PrimalWeights(one, one, [[1.0]], [[1.0], [0.0]], [0.0])
    >>> output, scores = primal_attention(q, q, weights)        # output = (q_1 + q_2) / |q|
    >>> primal_attention_vjp(zero + 1, Scores(zero, zero), scores, q, q, weights)[0]
    array([[[ 0.032, -0.024]]])
    """
    Q, K, weights, F, features, mask = _checked(Q, K, weights, F, features, mask, causal,
                                                finite=False)   # the layer has seen them
    W_e, W_r, Lambda, W_o, b_o = weights
    g_output = as_array(g_output, "g_output", finite=False)
    _fits(g_output, "g_output", (*Q.shape[:-1], W_o.shape[1]), "(..., H, N, d_v)")
    g_scores, scores = (_pair(S, name, (*Q.shape[:-1], W_e.shape[2])) for S, name in
                        ((g_scores, "g_scores"), (scores, "scores")))
    xp = namespace(g_output, *g_scores, *scores, Q, K, *weights, F)
    *through, g_o, g_b = _project_vjp(g_output, *scores, W_o, b_o, mask)
    sides = []
    for X, W, S, here, more in zip((Q, K), (W_e, W_r), scores, g_scores, through):
        W_X = W if F is None else _T(F) @ W
        g_X, g_W = _scores_vjp(here + more, S, X, W_X, features, mask, bool(causal))
        g_F = None if F is None else W @ _T(g_W)                # W_X = F^T W
        sides.append((g_X, g_W if F is None else _over_batch(F @ g_W, 3), g_F))
    (g_Q, g_e, F_e), (g_K, g_r, F_r) = sides
    g_weights = PrimalWeights(g_e, g_r, xp.zeros_like(Lambda), g_o, g_b)
    return g_Q, g_K, g_weights, None if F is None else F_e + F_r


def _checked(Q, K, weights, F, features, mask, causal, finite=True):
    """Arguments of the layer, finite and of fitting shapes, with zeros at padded steps."""
    named = isinstance(features, str)
    if named and features not in ("cosine", "identity"):
        raise ValueError("features must be 'cosine', 'identity' or a (d, p) array of directions, "
                         f"got {features!r}")
    if causal and F is not None:
        raise ValueError("causal=True needs data-independent weights, F=None: F holds rows of the "
                         "whole sequence, so every score would see the future through it")
    weights = PrimalWeights(*(as_array(A, name, ndim) for A, name, ndim in
                              zip(_parts(weights, "weights", PrimalWeights),
                                  PrimalWeights._fields, (3, 3, 2, 2, 1))))
    Q, K = as_array(Q, "Q", finite=False), as_array(K, "K", finite=False)
    if Q.ndim < 3 or Q.shape != K.shape:
        raise ValueError("Q and K must have one shape (..., H, N, d), "
                         f"got {tuple(Q.shape)} and {tuple(K.shape)}")
    features = features if named else as_matrix(features, "features")
    namespace(Q, K, *weights, F, None if named else features, mask)
    mask = _as_mask(mask, Q, 3)
    if mask is not None:
        mask = mask[..., None, :, None]                         # (..., 1, N, 1)
    Q, K = (as_array(_visible(X, mask), name, finite=finite) for X, name in ((Q, "Q"), (K, "K")))
    (H, N, d), (_, D, s) = Q.shape[-3:], weights.W_e.shape
    if not named and features.shape[0] != d:
        raise ValueError(f"features must have {d} rows, one for each column of Q, "
                         f"got shape {tuple(features.shape)}")
    p = d if named else features.shape[1]
    if F is None:
        _fits(weights.W_e, "W_e", (H, p, s), "(H, p, s): F is None")
    else:
        F = as_array(F, "F", finite=finite)
        _fits(F, "F", (*Q.shape[:-2], D, p), "(..., H, n, p) with n = W_e.shape[1]")
    _fits(weights.W_e, "W_e", (H, D, s), "(H, D, s)")
    _fits(weights.W_r, "W_r", (H, D, s), "(H, D, s), that of W_e")
    _fits(weights.Lambda, "Lambda", (H, s), "(H, s)")
    _fits(weights.W_o, "W_o", (2 * s, weights.W_o.shape[1]), "(2s, d_v)")
    _fits(weights.b_o, "b_o", (weights.W_o.shape[1],), "(d_v,)")
    bound = min(D, p, N)
    if s > bound:
        warnings.warn(f"s = {s} directions, but the kernel matrix has rank min(n, p, N) = {bound} "
                      f"at most (V16): {s - bound} of them cannot be singular vectors of a "
                      "sigma > 0", stacklevel=3)
    return Q, K, weights, F, features, mask


def _parts(x, name, kind):
    """The entries of x, one for each field of the named tuple `kind`; a dict has only names."""
    if isinstance(x, dict) or not hasattr(x, "__len__") or len(x) != len(kind._fields):
        what = type(x).__name__ + (f" of {len(x)}" if hasattr(x, "__len__") else "")
        raise ValueError(f"{name} must be {kind.__name__}({', '.join(kind._fields)}), got {what}")
    return x


def _fits(A, name, shape, meaning):
    if tuple(A.shape) != shape:
        raise ValueError(f"{name} must have shape {shape}, {meaning}, got {tuple(A.shape)}")


def _pair(scores, name, shape):
    pair = [as_array(A, f"{name}.{side}", finite=False)
            for A, side in zip(_parts(scores, name, Scores), "ER")]
    for A, side in zip(pair, "ER"):
        _fits(A, f"{name}.{side}", shape, "(..., H, N, s)")
    return pair


def _as_mask(mask, X, inner):
    """Boolean array (N,) or (..., N), where X has `inner` axes after the batch."""
    if mask is None:
        return None
    xp = namespace(mask)
    mask = xp.asarray(mask)
    if not xp.isdtype(mask.dtype, "bool"):
        raise TypeError(f"mask must be boolean, True where a step is no padding, got {mask.dtype}")
    N, batch = X.shape[-2], tuple(X.shape[:X.ndim - inner])
    if tuple(mask.shape) not in ((N,), (*batch, N)):
        shapes = f"{(N,)} or {(*batch, N)}" if batch else f"{(N,)}"
        raise ValueError(f"mask must have shape {shapes}, one entry for each step, "
                         f"got {tuple(mask.shape)}")
    return mask


@primitive
def _scores(X, W, features, mask, causal):
    """E = Phi W, one side of the layer."""
    Phi, length, _ = _map(_running_mean(X, mask) if causal else X, features)
    E = Phi @ W
    if length is not None:
        E /= length                                 # the scores are fewer than the features
    return _visible(E, mask)


def _scores_vjp(g, E, X, W, features, mask, causal):
    """Derivatives by X and by W (of its shape, so summed over the batch if that has none)."""
    xp = namespace(X)
    X = _running_mean(X, mask) if causal else X
    g, g_X, g_W = _visible(g, mask), _room(X), xp.zeros_like(W)
    for i in _blocks(X):
        Phi, length, scale = _map(X[..., i, :], features)
        g_E = g[..., i, :] if length is None else g[..., i, :] / length
        g_Phi, part = g_E @ _T(W), _T(Phi) @ g_E
        g_W += part if W.ndim == X.ndim else _over_batch(part, 3)
        if not isinstance(features, str):           # d Phi_l = Phi_l (w_l - x)^T dx
            g_Phi *= Phi
            g_Phi = g_Phi @ features.T - X[..., i, :] * xp.sum(g_Phi, axis=-1, keepdims=True)
        elif features == "cosine":
            g_Phi -= Phi * (_row_dots(E[..., i, :], g_E) / length)
        g_X[..., i, :] = g_Phi if scale is None else g_Phi / scale
    return (_running_mean_vjp(g_X, mask) if causal else g_X), g_W


@primitive
def _project(E, R, W_o, b_o, mask):
    """[E, R] W_o + b_o."""
    output = _side_by_side(E, R) @ W_o
    output += b_o
    return check_finite(_visible(output, mask), "the output")


def _project_vjp(g, E, R, W_o, b_o, mask):
    xp, s = namespace(g, E), E.shape[-1]
    g, g_E, g_R, g_o = _visible(g, mask), _room(E), _room(R), xp.zeros_like(W_o)
    for i in _blocks(g):
        g_S = g[..., i, :] @ W_o.T                              # (..., H, i, 2s)
        g_E[..., i, :], g_R[..., i, :] = g_S[..., :s], g_S[..., s:]
        S = _side_by_side(E[..., i, :], R[..., i, :])
        g_o += _over_batch(_T(S) @ g[..., i, :], 2)
    return g_E, g_R, g_o, _over_batch(g, 1)


defvjp_argnums(_scores, lambda argnums, E, args, kwargs: lambda g: _pick(
    argnums, _scores_vjp(g, E, *args)))
defvjp_argnums(_project, lambda argnums, output, args, kwargs: lambda g: _pick(
    argnums, _project_vjp(g, *args)))


def _pick(argnums, gradients):
    return tuple(gradients[n] for n in argnums)


def _room(A):
    """Zeros in the place of A, to be filled. NumPy's zeros_like would write all of them first."""
    return namespace(A).zeros(A.shape, **like(A))


def _blocks(X, size=2 ** 17):
    """Slices of the rows of X, so short that what is made of them stays in the cache."""
    rows = max(128, size * X.shape[-2] // math.prod(X.shape))
    return _slices(X.shape[-2], rows)


def _slices(N, length):
    return [slice(start, min(start + length, N)) for start in range(0, N, length)]


def _visible(A, mask):
    return A if mask is None else _zero_padding(A, mask)


@primitive                                          # autograd's own makes float64 of float32
def _zero_padding(A, mask):
    return namespace(A).where(mask, A, 0.0)


defvjp(_zero_padding, lambda answer, A, mask: lambda g: _zero_padding(g, mask))


def _map(X, features):
    """Phi, length, scale: the features are Phi / length, and Phi = X / scale for cosine."""
    xp = namespace(X)
    if not isinstance(features, str):
        with silent():                              # -inf is right: the feature is 0
            logs = X @ features - 0.5 * _row_dots(X, X)
        if not float(xp.max(logs)) < 0.99 * math.log(float(xp.finfo(X.dtype).max)):     # or NaN
            raise ValueError("a random feature overflows: scale Q and K down")
        return xp.exp(logs) / features.shape[1] ** 0.5, None, None
    if features == "identity":
        return X, None, None
    info = xp.finfo(X.dtype)
    if max(float(xp.max(X)), -float(xp.min(X))) < 1e-3 * float(info.max) ** 0.5:
        square = _row_dots(X, X)
        if float(xp.min(square)) > float(info.smallest_normal) / float(info.eps):
            return X, xp.sqrt(square), None
    # The squares of 1e-200 and 1e200 would be lost. A row of zeros comes here too, and stays zero.
    top = xp.max(xp.abs(X), axis=-1, keepdims=True)
    top = xp.where(top > 0.0, top, 1.0)
    square = _row_dots(X / top, X / top)
    return X / top, xp.sqrt(xp.where(square > 0.0, square, 1.0)), top


def _T(A):
    return namespace(A).moveaxis(A, -1, -2)


def _row_dots(A, B):
    """(..., N, 1): a product of rows and columns makes no array of the size of A."""
    return (A[..., None, :] @ B[..., :, None])[..., 0]


def _side_by_side(E, R):
    """[E, R], (..., N, 2s)."""
    xp = namespace(E, R)
    return xp.reshape(xp.stack([E, R], axis=-2), (*E.shape[:-1], 2 * E.shape[-1]))


def _over_batch(A, axes):
    """Sum over all but the last axes."""
    xp = namespace(A)
    return xp.sum(xp.reshape(A, (-1, *A.shape[A.ndim - axes:])), axis=0)


def running_mean(X, *, mask=None):
    r"""Means of the steps up to each one, (x₁ + … + xᵢ)/i, in O(N) (Eq. K.30).

    .. math:: \bar x_i = \frac1i \sum_{j \le i} x_j

    The causal form of Primal-Attention replaces queries and keys by it. For the cosine map the sum
    would do (V40).

    Source: code of Chen et al. 2023.

    Parameters
    ----------
    X : (..., N, d) array
    mask : (N,) or (..., N) boolean array, optional
        False = padding, which does not count: 0 before the first True.

    Returns
    -------
    (..., N, d) array

    Raises
    ------
    TypeError, ValueError
        If X is not a real array of 2 axes or more, finite where the mask is True, or a sum
        overflows.

    Examples
    --------
    >>> running_mean([[2.0], [4.0], [9.0]], mask=[True, True, False])
    array([[2.],
           [3.],
           [3.]])
    """
    X = _as_rows_of(X, "X", mask)
    namespace(X, mask)
    mask = _as_mask(mask, X, 2)
    mask = None if mask is None else mask[..., None]
    with silent():
        return _running_mean(as_array(_visible(X, mask), "X"), mask)


def _as_rows_of(X, name, mask):
    X = as_array(X, name, finite=mask is None)
    if X.ndim < 2:
        raise ValueError(f"{name} must have 2 axes or more, got shape {tuple(X.shape)}")
    return X


@primitive
def _running_mean(X, mask):
    return check_finite(_running_sum(X), "a running sum") / _count(X, mask)


def _running_mean_vjp(g, mask):
    return _visible(_running_sum(g / _count(g, mask), backwards=True), mask)


defvjp(_running_mean, lambda answer, X, mask: lambda g: _running_mean_vjp(g, mask))


def _count(X, mask):
    """Steps that count so far, at least 1."""
    xp = namespace(X)
    ones = xp.ones_like(X[..., :1])
    return xp.maximum(_running_sum(_visible(ones, mask)), 1.0)


def _running_sum(X, backwards=False, block=64):
    # A triangle of ones of all N rows would be an N x N array. A small one serves every block.
    xp = namespace(X)
    total, carry, parts = xp.zeros_like(X), 0.0, _slices(X.shape[-2], block)
    ones = xp.tril(xp.ones((block, block), **like(X)))
    ones = ones.T if backwards else ones
    for i in parts[::-1] if backwards else parts:
        n = i.stop - i.start
        rows = ones[:n, :n] @ X[..., i, :] + carry              # (..., n, d)
        total[..., i, :] = rows
        carry = rows[..., :1, :] if backwards else rows[..., n - 1:, :]
    return total


def even_rows(X, n, *, mask=None):
    r"""f(X): n evenly spaced rows of the sequence, the first and the last among them (Eq. K.29).

    .. math:: F_k = x_{\lfloor k (N - 1) / (n - 1) \rfloor}, \qquad k = 0, \dots, n - 1

    Choose n = min(N, s * rank_multi), 10 or 5 times s in the released scripts; for n > N rows
    repeat. The grid is that of the published code (Chen et al., NeurIPS 2023, from truncated
    floating-point steps there): a fixed one, to which the random-projection argument for sampled
    rows does not apply. That code takes padded steps too.

    Source: code of Chen et al. 2023.

    Parameters
    ----------
    X : (..., N, d) array
        Input of the layer; a head takes its slice of the columns.
    n : int
        ≥ 1.
    mask : (N,) or (..., N) boolean array, optional
        False = padding: each sequence has its own grid over its steps.

    Returns
    -------
    (..., n, d) array

    Raises
    ------
    TypeError, ValueError
        If X is not a real array of 2 axes or more, finite where the mask is True, or `n` is no
        integer ≥ 1.

    Examples
    --------
    >>> even_rows([[0.0], [1.0], [2.0], [3.0]], 3)
    array([[0.],
           [1.],
           [3.]])
    >>> even_rows([[0.0], [1.0], [2.0], [3.0]], 2, mask=[True, True, True, False])
    array([[0.],
           [2.]])
    """
    n = check_integer(n, "n", 1)
    X = _as_rows_of(X, "X", mask)
    xp = namespace(X, mask)
    mask, (N, d) = _as_mask(mask, X, 2), X.shape[-2:]
    X = as_array(X if mask is None else _visible(X, mask[..., None]), "X")
    F = _take_rows(xp.reshape(X, (-1, N, d)), _even_grid(X, n, mask))
    return xp.reshape(F, (*X.shape[:-2], n, d))


def _even_grid(X, n, mask):
    """Places of the n rows, ascending, (1 or batch, n)."""
    xp, N = namespace(X), X.shape[-2]
    step, k = xp.arange(N, **_device(X)), xp.arange(n, **_device(X))
    if mask is None:
        return (k * (N - 1) // max(n - 1, 1))[None, :]
    mask = xp.reshape(mask, (-1, N))
    length = xp.maximum(xp.sum(xp.astype(mask, step.dtype), axis=-1, keepdims=True), 1)
    real = xp.sort(xp.where(mask, step, step + N), axis=-1) % N         # real steps come first
    place = k * (length - 1) // max(n - 1, 1)
    return xp.take_along_axis(real, place, axis=-1)


@primitive
def _take_rows(X, grid):
    xp = namespace(X)
    B, N, d = X.shape
    grid = grid + N * xp.arange(B, **_device(grid))[:, None]             # (B, n)
    rows = xp.take(xp.reshape(X, (B * N, d)), xp.reshape(grid, (-1,)), axis=0)
    return xp.reshape(rows, (B, grid.shape[1], d))


@primitive
def _put_rows(g, grid, N):
    """Transpose of `_take_rows`: rows of g, added up where `grid`, ascending, repeats."""
    xp, n = namespace(g), g.shape[1]
    step = xp.arange(N, **_device(grid))[:, None]
    first = xp.count_nonzero(grid[:, None, :] < step, axis=-1)             # (B or 1, N)
    after = xp.count_nonzero(grid[:, None, :] <= step, axis=-1)
    total = 0.0
    for t in range(int(xp.max(after - first))):
        rows = _take_rows(g, xp.minimum(first + t, n - 1))
        total = total + xp.where((first + t < after)[..., None], rows, 0.0)
    return total


def _device(x):
    return {key: value for key, value in like(x).items() if key == "device"}


defvjp(_take_rows, lambda answer, X, grid: lambda g: _put_rows(g, grid, X.shape[1]))
defvjp(_put_rows, lambda answer, g, grid, N: lambda h: _take_rows(h, grid))


def even_rows_vjp(g, N, *, mask=None):
    """Gradient through `even_rows`: each row of g goes back to its place among N.

    No equation: the derivative of K.29.

    Parameters
    ----------
    g : (..., n, d) array
        Derivative of the loss by F.
    N : int
        Number of steps that X had.
    mask : (N,) or (..., N) boolean array, optional
        As it was given to `even_rows`.

    Returns
    -------
    (..., N, d) array

    Raises
    ------
    TypeError, ValueError
        If g is not a real, finite array of 2 axes or more, N no integer ≥ 1, or the mask does not
        fit.

    Examples
    --------
    >>> even_rows_vjp([[1.0], [2.0]], 3)
    array([[1.],
           [0.],
           [2.]])
    """
    g, N = _as_rows_of(g, "g", None), check_integer(N, "N", 1)
    xp = namespace(g, mask)
    n, d = g.shape[-2:]
    shape = (*g.shape[:-2], N, d)
    X = xp.zeros(shape, **like(g))
    grid = _even_grid(X, n, _as_mask(mask, X, 2))
    return xp.reshape(_put_rows(xp.reshape(g, (-1, n, d)), grid, N), shape)


def paper_loss(scores, weights, *, mask=None):
    r"""Objective J of each sequence and head, ½ Σ eᵀΛe + ½ Σ rᵀΛr − tr WₑᵀWᵣ (Eq. K.28).

    .. math:: J = \tfrac12 \sum_i e_i^\top \Lambda e_i + \tfrac12 \sum_j r_j^\top \Lambda r_j
              - \operatorname{tr}(W_e^\top W_r)

    J of primal.objective, at the features Phi F^T. The trace is that of the stored weights, not of
    F^T W_e, or F would drop out of the stationary kernel (V29). The penalty of the paper is the
    square of the mean over the heads, ``mean_of_squares(mean(J, axis=-1))`` (K.27).

    Source: Chen et al. 2023.

    Parameters
    ----------
    scores : Scores
        E and R (..., H, N, s).
    weights : PrimalWeights
        Lambda (H, s) is 1 / sigma at a solution.
    mask : (N,) or (..., N) boolean array, optional
        False = padding, left out of the sums.

    Returns
    -------
    (..., H) array
        Of any sign.

    Raises
    ------
    TypeError, ValueError
        If the scores are not real and finite where the mask is True, shapes do not fit, or J
        overflows.

    Examples
    --------
    >>> import numpy as np
    >>> one = np.ones((1, 2, 1))                    # lesson 05: K = diag(2, 1), J = 5/2 + 2/2 - 2
    >>> weights = PrimalWeights(one, one, [[1.0]], np.ones((2, 1)), [0.0])
    >>> paper_loss(Scores([[[2.0], [1.0]]], [[[1.0], [1.0]]]), weights)
    array([1.5])
    """
    return _paper(*_checked_scores(scores, weights, mask))


def published_loss(scores, weights, *, mask=None):
    r"""Objective of the published code, ½ mean ‖Λe‖² + ½ mean ‖Λr‖² − tr WₑᵀWᵣ (Eq. K.31).

    .. math:: J_b = \tfrac12 \operatorname*{mean}_{h, i} \|\Lambda_h e_{hi}\|^2
              + \tfrac12 \operatorname*{mean}_{h, i} \|\Lambda_h r_{hi}\|^2
              - \operatorname*{mean}_h \operatorname{tr}(W_{e,h}^\top W_{r,h})

    Differs from the paper (K.28) in three things: the scores are weighted by the square of Lambda
    (V39), they are averaged over the steps while the trace is not divided by N (V35), and the
    heads are averaged here already, as K.27 does later: their signs may cancel (V7). With
    ``paper_lambda`` it is an average of J: published_loss with Lambda = mean over the heads of
    paper_loss with Lambda^2 / N.

    Source: code of Chen et al. 2023.

    Parameters
    ----------
    scores : Scores
        E and R (..., H, N, s).
    weights : PrimalWeights
        Lambda (H, s) is the root of N / sigma at a solution; its sign does not matter.
    mask : (N,) or (..., N) boolean array, optional
        False = padding, left out of the means: N is the number of True. The published code counts
        padded steps.

    Returns
    -------
    (...) array
        One number for each sequence, for `mean_of_squares` or `square_of_mean`.

    Raises
    ------
    TypeError, ValueError
        As `paper_loss`.

    Examples
    --------
    >>> import numpy as np
    >>> one = np.ones((1, 2, 1))                    # 5/2 / 2 + 2/2 / 2 - 2
    >>> weights = PrimalWeights(one, one, [[1.0]], np.ones((2, 1)), [0.0])
    >>> float(published_loss(Scores([[[2.0], [1.0]]], [[[1.0], [1.0]]]), weights))
    -0.25
    """
    return _published(*_checked_scores(scores, weights, mask))


def paper_loss_vjp(g, scores, weights, *, mask=None):
    r"""Gradient through `paper_loss` (Eq. K.18, before the scores are eliminated).

    .. math:: \bar E = E \Lambda, \quad \bar R = R \Lambda, \qquad
              \bar W_e = -W_r, \quad \bar W_r = -W_e, \qquad
              \bar\lambda_l = \tfrac12 (\|e_l\|^2 + \|r_l\|^2)

    times g. Through the layer, E = Phi W_e turns the first into Phi^T Phi W_e Lambda.

    Parameters
    ----------
    g : (..., H) array
        Derivative of the loss by J.
    scores, weights, mask
        As they were given to `paper_loss`.

    Returns
    -------
    g_scores : Scores
    g_weights : PrimalWeights
        Zero for W_o and b_o. Summed over the batch.

    Raises
    ------
    TypeError, ValueError
        As `paper_loss`.

    Examples
    --------
    >>> import numpy as np
    >>> one = np.ones((1, 2, 1))
    >>> weights = PrimalWeights(one, one, [[3.0]], np.ones((2, 1)), [0.0])
    >>> scores = Scores([[[2.0], [1.0]]], [[[1.0], [1.0]]])
    >>> paper_loss_vjp(np.ones(1), scores, weights)[1].Lambda   # (5 + 2) / 2
    array([[3.5]])
    """
    return _loss_vjp(_paper_vjp, g, scores, weights, mask)


def published_loss_vjp(g, scores, weights, *, mask=None):
    r"""Gradient through `published_loss`.

    .. math:: \bar e_{hi} = \tfrac{1}{HN} \Lambda_h^2 e_{hi}, \qquad
              \bar W_{e,h} = -\tfrac1H W_{r,h}, \qquad
              \bar\lambda_{hl} = \tfrac{\lambda_{hl}}{HN} (\|e_{hl}\|^2 + \|r_{hl}\|^2)

    times g, and the same with e and r exchanged.

    No equation: the derivative of K.31.

    Parameters
    ----------
    g : (...) array
        Derivative of the loss by J_b.
    scores, weights, mask
        As they were given to `published_loss`.

    Returns
    -------
    g_scores : Scores
    g_weights : PrimalWeights
        Zero for W_o and b_o. Summed over the batch.

    Raises
    ------
    TypeError, ValueError
        As `paper_loss`.

    Examples
    --------
    >>> import numpy as np
    >>> one = np.ones((1, 2, 1))
    >>> weights = PrimalWeights(one, one, [[3.0]], np.ones((2, 1)), [0.0])
    >>> scores = Scores([[[2.0], [1.0]]], [[[1.0], [1.0]]])
    >>> published_loss_vjp(np.ones(()), scores, weights)[1].Lambda      # 3 (5 + 2) / 2
    array([[10.5]])
    """
    return _loss_vjp(_published_vjp, g, scores, weights, mask)


def _checked_scores(scores, weights, mask):
    """E, R, W_e, W_r, Lambda, and 1 / N of each sequence (..., 1, 1); zeros at padded steps."""
    E, R = (as_array(A, name, finite=mask is None) for A, name in
            zip(_parts(scores, "scores", Scores), "ER"))
    W_e, W_r, Lambda = (as_array(A, name, ndim) for A, name, ndim in
                        zip(_parts(weights, "weights", PrimalWeights), PrimalWeights._fields,
                            (3, 3, 2)))
    H, s = Lambda.shape
    if E.ndim < 3 or E.shape != R.shape or (E.shape[-3], E.shape[-1]) != (H, s):
        raise ValueError(f"E and R must have shape (..., {H}, N, {s}), those of Lambda, "
                         f"got {tuple(E.shape)} and {tuple(R.shape)}")
    _fits(W_e, "W_e", (H, W_e.shape[1], s), "(H, D, s)")
    _fits(W_r, "W_r", tuple(W_e.shape), "(H, D, s), that of W_e")
    xp = namespace(E, R, W_e, W_r, Lambda, mask)
    mask = _as_mask(mask, E, 3)
    if mask is None:
        return E, R, W_e, W_r, Lambda, 1.0 / E.shape[-2]
    steps = xp.sum(xp.astype(mask, E.dtype), axis=-1)[..., None, None]  # (..., 1, 1)
    mask = mask[..., None, :, None]
    E, R = as_array(_visible(E, mask), "E"), as_array(_visible(R, mask), "R")
    return E, R, W_e, W_r, Lambda, 1.0 / xp.maximum(steps, 1.0)


def _loss_vjp(vjp, g, scores, weights, mask):
    E, R, W_e, W_r, Lambda, per_step = _checked_scores(scores, weights, mask)
    g, axes = as_array(g, "g"), 2 if vjp is _paper_vjp else 3
    _fits(g, "g", tuple(E.shape[:-axes]), "that of the loss")
    xp = namespace(g, E, R, W_e, W_r, Lambda)
    g_E, g_R, g_e, g_r, g_L = vjp(g, E, R, W_e, W_r, Lambda, per_step)
    W_o, b_o = (as_array(A, name) for A, name in ((weights[3], "W_o"), (weights[4], "b_o")))
    return Scores(g_E, g_R), PrimalWeights(g_e, g_r, g_L, xp.zeros_like(W_o), xp.zeros_like(b_o))


def _squares(E, R):
    """|e_l|^2 + |r_l|^2 over the steps, (..., H, s)."""
    xp = namespace(E, R)
    return xp.sum(E * E, axis=-2) + xp.sum(R * R, axis=-2)


@primitive
def _paper(E, R, W_e, W_r, Lambda, per_step):
    xp = namespace(E)
    with silent():
        J = 0.5 * xp.sum(_squares(E, R) * Lambda, axis=-1) - xp.sum(W_e * W_r, axis=(1, 2))
    return check_finite(J, "J")


def _paper_vjp(g, E, R, W_e, W_r, Lambda, per_step):
    xp = namespace(E)
    H, s = Lambda.shape
    g_L = 0.5 * xp.sum(xp.reshape(g[..., None] * _squares(E, R), (-1, H, s)), axis=0)
    weight = g[..., None, None] * Lambda[:, None, :]                    # (..., H, 1, s)
    g_trace = -xp.sum(xp.reshape(g, (-1, H)), axis=0)[:, None, None]
    return weight * E, weight * R, g_trace * W_r, g_trace * W_e, g_L


# Differs from the paper (K.28): squared Lambda, a mean over the steps in the first two terms only,
# a mean over the heads. Lesson 09 shows the effects.
@primitive
def _published(E, R, W_e, W_r, Lambda, per_step):
    xp, H = namespace(E), Lambda.shape[0]
    with silent():
        score_terms = 0.5 * xp.sum(_squares(E, R) * Lambda ** 2 * per_step, axis=(-2, -1))
        J = (score_terms - xp.sum(W_e * W_r)) / H
    return check_finite(J, "J")


def _published_vjp(g, E, R, W_e, W_r, Lambda, per_step):
    xp, (H, s) = namespace(E), Lambda.shape
    g_h = g[..., None, None] * per_step / H                             # (..., 1, 1)
    g_L = Lambda * xp.sum(xp.reshape(g_h * _squares(E, R), (-1, H, s)), axis=0)
    weight = g_h[..., None] * (Lambda ** 2)[:, None, :]                 # (..., H, 1, s)
    g_trace = -xp.sum(g) / H
    return weight * E, weight * R, g_trace * W_r, g_trace * W_e, g_L


for _traced, _vjp in ((_paper, _paper_vjp), (_published, _published_vjp)):
    defvjp_argnums(_traced, lambda argnums, J, args, kwargs, vjp=_vjp: lambda g: _pick(
        argnums, vjp(g, *args)))


def paper_lambda(Lambda, N):
    r"""Λ of the paper that the published code's stands for, Λ²/N (claim V39).

    With it both losses agree (see `published_loss`), so sigma = 1 / Lambda of K.28 is read off as
    N / Lambda^2, not as 1 / Lambda (V35, V39).

    Source: derived.

    Parameters
    ----------
    Lambda : (H, s) array
    N : int
        Steps of the sequence.

    Returns
    -------
    (H, s) array

    Raises
    ------
    TypeError, ValueError
        If Lambda is not real and finite, its square overflows, or N is no integer ≥ 1.

    Examples
    --------
    >>> paper_lambda([[4.0]], 8)                    # sigma = 1/2
    array([[2.]])
    """
    Lambda, N = as_array(Lambda, "Lambda"), check_integer(N, "N", 1)
    with silent():
        return check_finite(Lambda ** 2 / float(N), "the square of Lambda")


def mean_of_squares(J):
    r"""L + η Σₗ Jₗ², the loss of the task and of the layers (Eq. K.27): one layer's part, mean(J²).

    .. math:: \operatorname{mean}_b J_b^2

    Each sequence for itself, as in the paper. Times eta, and added up over the layers, it is what
    the loss L of the task is increased by. The published code does this for time series,
    reinforcement learning and text.

    Source: Chen et al. 2023.

    Parameters
    ----------
    J : array
        One number for each sequence.

    Returns
    -------
    number

    Raises
    ------
    TypeError, ValueError
        If J is not real and finite, or the penalty overflows.

    Examples
    --------
    >>> float(mean_of_squares([3.0, -3.0]))
    9.0
    """
    J = as_array(J, "J")
    xp = namespace(J)
    with silent():
        return check_finite(xp.mean(J * J), "the penalty")


def square_of_mean(J):
    r"""Penalty of the batch as a whole, in which parts cancel: mean(J)² ≤ mean(J²) (claim V7).

    .. math:: (\operatorname{mean}_b J_b)^2 \le \operatorname{mean}_b J_b^2

    Differs from the paper (K.27): what the published code does for the Long-Range Arena and for
    images.

    Source: derived; code of Chen et al. 2023.

    Parameters
    ----------
    J : array
        One number for each sequence.

    Returns
    -------
    number

    Raises
    ------
    TypeError, ValueError
        If J is not real and finite, or the penalty overflows.

    Examples
    --------
    >>> float(square_of_mean([3.0, -3.0]))
    0.0
    """
    J = as_array(J, "J")
    xp = namespace(J)
    with silent():
        return check_finite(xp.mean(J) ** 2, "the penalty")


def published_init(rng, heads, D, s, d_v, *, dtype="float64"):
    r"""Weights as the published code draws them.

    W_e and W_r, flattened to (H, D s), have orthonormal rows: each head has Frobenius norm 1 and is
    orthogonal to the other heads. Differs from what "orthogonal" suggests: the columns *within* a
    head are not orthonormal, W_h^T W_h is only near I / s. Lambda is uniform in (0, 1), with no
    constraint to stay positive. W_o and b_o are uniform within 1 / sqrt(2s).

    No equation: where training starts is no part of the derivation.

    Parameters
    ----------
    rng : numpy.random.Generator
    heads, D, s, d_v : int
        H, rows of the weights (n with F, else p), directions, width of the output.
    dtype : {"float64", "float32"}

    Returns
    -------
    PrimalWeights
        NumPy arrays.

    Raises
    ------
    ValueError
        If a size is no integer ≥ 1, heads > D s (so many rows cannot be orthonormal), or the dtype
        is another.

    Examples
    --------
    >>> import numpy as np
    >>> weights = published_init(np.random.default_rng(0), 4, 10, 3, 8)
    >>> weights.W_e.shape, np.sum(weights.W_e ** 2, axis=(1, 2))
    ((4, 10, 3), array([1., 1., 1., 1.]))
    """
    heads, D, s, d_v = (check_integer(n, name, 1) for n, name in
                        zip((heads, D, s, d_v), ("heads", "D", "s", "d_v")))
    if dtype not in ("float64", "float32"):         # integers would all be 0
        raise ValueError(f"dtype must be 'float64' or 'float32', got {dtype!r}")
    if heads > D * s:
        raise ValueError(f"heads must be D s = {D * s} at most, for orthonormal rows, got {heads}")

    def orthogonal():
        W, R = np.linalg.qr(rng.standard_normal((D * s, heads)))
        W = W * np.where(np.diag(R) < 0.0, -1.0, 1.0)   # or the distribution is not uniform
        return np.reshape(W.T, (heads, D, s)).astype(dtype)

    W_e, W_r, limit = orthogonal(), orthogonal(), (2 * s) ** -0.5
    return PrimalWeights(W_e, W_r, rng.uniform(0.0, 1.0, (heads, s)).astype(dtype),
                         rng.uniform(-limit, limit, (2 * s, d_v)).astype(dtype),
                         rng.uniform(-limit, limit, d_v).astype(dtype))
