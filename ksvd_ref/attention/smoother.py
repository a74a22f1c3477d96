"""Attention as a kernel smoother: Σⱼ κ(q, kⱼ) vⱼ / Σⱼ κ(q, kⱼ) over the visible keys.

Q, K, V   (..., N, d), (..., M, d), (..., M, d_v)   queries, keys, values; here K is not a kernel
G         (..., N, M)    kernel matrix, G_ij = κ(q_i, k_j), with the position factor
mask      (..., N, M)    the filter B of filters.py: True where query i may attend to key j
A         (..., N, M)    attention matrix, A_ij = B_ij G_ij / Z_i, Z_i = Σⱼ B_ij G_ij (..., N, 1)

Four things to choose, four arguments: the kernel on the content (`kernel`), that on the positions,
which multiplies it (`log_factor`, see positions.py), the values (`V`), the set filter (`mask`). W_q
and W_k come before: symmetric is the same array twice. Leading axes (batch, head) broadcast. What
no visible pair needs may hold anything, NaN included; a query that sees nothing gives zeros.

No equation: heads are blocks of columns. What is refused: inputs.py.
"""
import warnings
from functools import reduce

import autograd.numpy as anp
import numpy as np
from autograd.extend import defvjp, primitive
from autograd.tracer import getval

from ..backend import namespace
from ..inputs import TOO_LARGE, arrays, as_array, call_back, integer, number
from ..linalg import squared_distances
from .filters import causal, pairs, shown, taking_part, visible


@arrays(Q="~* N d", K="~* M d", V="~* M d_v", log_factor="~* n m", guard=number())
def attention(Q, K, V, *, kernel="exponential", log_factor=None, mask=None, guard=0.0,
              **parameters):
    """Kernel smoother of the values, Σⱼ κ(q, kⱼ) vⱼ / Σⱼ κ(q, kⱼ) (Eq. S.2); softmax is one case.

    O = A V, (..., N, d_v), with the A of `weights` and all its arguments: Nadaraya-Watson
    regression with responses v_j. Divided by the sum at the end, so values must be M times smaller
    than the largest number. Source: Tsai et al. 2019, Definition 1.

    >>> from math import log
    >>> attention([[1.0]], [[log(2)], [0.0]], [[3.0], [0.0]])              # weights 2/3 and 1/3
    array([[2.]])
    """
    mask = pairs(mask, Q, K, V, log_factor)
    A, Z = _weights(Q, K, kernel, log_factor, mask, guard, parameters)
    return A @ shown(taking_part(mask)[1], V, "V") / Z          # fewer outputs than weights


@arrays(Q="~* N d", K="~* M d", log_factor="~* n m", guard=number())
def weights(Q, K, *, kernel="exponential", log_factor=None, mask=None, guard=0.0, **parameters):
    """Attention matrix A = D̂⁻¹(B∘G), the normalised and filtered kernel (Eq. S.3).

    kernel: a name of KERNELS, with the parameters of ksvd_ref.kernels (rbf without 1/2 (S.9) is
    gamma = 1/√d, polynomial without + 1 (S.8) coef0 = 0), or a function ``kernel(Q, K,
    **parameters)`` that returns G; one of two points goes in as ``lambda Q, K: gram(kappa, Q, K)``.
    log_factor: logarithm of a second kernel that multiplies the first. mask: missing axes and axes
    of 1 broadcast, (M,) or (B, 1, 1, M) is a padding of keys. guard: moves each Z so far from 0 and
    hides that a signed kernel is no smoother; without it a weight < 0 warns, since then the output
    is no average. Source: derived.

    >>> weights([[1.0]], [[1.0], [-1.0]], kernel="polynomial", coef0=0.0)  # 1 and 1: sign-blind
    array([[0.5, 0.5]])
    """
    A, Z = _weights(Q, K, kernel, log_factor, pairs(mask, Q, K, log_factor=log_factor), guard,
                    parameters)
    return A / Z


def _weights(Q, K, kernel, log_factor, mask, guard, parameters):
    """The attention matrix as A and what its rows are still to be divided by."""
    sees, seen = taking_part(mask)
    G = _kernel_matrix(kernel, shown(sees, Q, "Q"), shown(seen, K, "K"), mask, parameters)
    if log_factor is not None:
        log_factor = shown(mask, log_factor, "log_factor")
    logarithmic = kernel in ("exponential", "rbf")              # G is log G then (S.4)
    if guard < 0.0 or guard and logarithmic:
        raise ValueError("guard must be 0, or positive for a kernel that can vanish, "
                         f"got {guard} for kernel {kernel!r}")
    if logarithmic:
        return _exponentials(G if log_factor is None else G + log_factor, mask, sees)
    G = visible(mask, G)
    if log_factor is not None:
        A, Z = _exponentials(log_factor + 0.0, mask, sees)
        G = G * (A / Z)                             # the sum it is divided by cancels (claim D7)
    name = "this kernel" if callable(kernel) else f"the {kernel} kernel"
    return _ratio(G, sees, guard, name), 1.0


def _inner(Q, K):
    return Q @ namespace(Q, K).moveaxis(K, -1, -2)


KERNELS = {                 # name -> G, or its logarithm (S.4), and what its parameters must be
    "exponential": (lambda Q, K, scale=None: _inner(Q / (scale or Q.shape[-1] ** 0.5), K),
                    {"scale": number(above=0)}),
    "rbf": (lambda Q, K, gamma=1.0: -gamma * squared_distances(Q, K), {"gamma": number(above=0)}),
    "linear": (_inner, {}),
    "polynomial": (lambda Q, K, degree=2, gamma=1.0, coef0=1.0:
                   (gamma * _inner(Q, K) + coef0) ** degree,
                   {"degree": integer(1), "gamma": number(), "coef0": number()})}


def _kernel_matrix(kernel, Q, K, mask, parameters):
    """G, or log G, finite where it is visible."""
    if callable(kernel):
        G = as_array(call_back(kernel, Q, K, **parameters), "kernel(Q, K)", finite=False)
    elif isinstance(kernel, str) and kernel in KERNELS:
        function, kinds = KERNELS[kernel]
        if not set(parameters) <= set(kinds):
            raise TypeError(f"parameters of the {kernel} kernel are {sorted(kinds) or 'none'}, got "
                            f"{sorted(parameters)}")
        parameters = {name: kinds[name](x, name) for name, x in parameters.items()
                      if x is not None or name != "scale"}
        G = function(Q, K, **parameters)
    else:
        raise ValueError(f"kernel must be a function or one of {', '.join(KERNELS)}, "
                         f"got {kernel!r}")
    xp, N, M = namespace(Q, K, G), Q.shape[-2], K.shape[-2]
    if tuple(G.shape[-2:]) != (N, M):
        raise ValueError(f"kernel(Q, K) must be an array of shape (..., {N}, {M}), "
                         f"got {tuple(G.shape)}")
    looks_bad = not xp.isfinite(xp.sum(getval(G)))              # one pass, and seldom a second
    if looks_bad and not xp.all(xp.isfinite(G) if mask is None else xp.isfinite(G) | ~mask):
        raise ValueError(f"kernel {kernel!r} is NaN or infinite at a visible key: {TOO_LARGE}")
    return G


def _exponentials(logits, mask, sees):
    """Numerator and normaliser of the softmax of visible logits (S.4), which are overwritten.

    0 and 1 in a row that sees nothing: minus infinity less itself would be NaN, and -1e9 in the
    place of minus infinity an average of hidden keys.
    """
    xp, logits = namespace(logits), visible(mask, logits, -float("inf"))
    if xp is anp:
        return _softmax(logits, sees), 1.0
    logits -= visible(sees, xp.max(logits, axis=-1, keepdims=True))
    A = np.exp(logits, out=logits) if xp is np else xp.exp(logits)         # new room costs as much
    return A, visible(sees, xp.sum(A, axis=-1, keepdims=True), 1.0)


@primitive                  # one step for autograd
def _softmax(logits, sees):
    A, Z = _exponentials(logits, None, sees)
    return A / Z


defvjp(_softmax, lambda A, logits, sees: lambda g: A * (g - anp.sum(A * g, axis=-1, keepdims=True)))


def _ratio(G, sees, guard, name):
    """G / Z, and what a signed kernel makes of it."""
    xp = namespace(G)
    Z = xp.sum(G, axis=-1, keepdims=True)
    size = as_array(xp.sum(xp.abs(G), axis=-1, keepdims=True), f"a sum over {name}")
    if guard:
        return G / (Z + guard * (1.0 - 2.0 * xp.astype(Z < 0.0, Z.dtype)))      # away from 0
    noise = G.shape[-1] * float(xp.finfo(G.dtype).eps) * size
    A = G / _normaliser(Z, noise, sees, name)
    least = float(getval(xp.min(A)))
    if least < 0.0:                                 # linear, q = 1, keys 1, -0.999: 1000 and -999
        warnings.warn(f"{name} gave {int(xp.count_nonzero(A < 0.0))} negative weights of {A.size}, "
                      f"the least {least:.3g}: it has both signs, so this is no average of the "
                      "values, and a normaliser near zero makes it as large as it likes",
                      stacklevel=5)
    return A


def _normaliser(Z, noise, sees, name):
    """Z, with 1 in a row that sees nothing; an error where a row that sees a key has none."""
    xp = namespace(Z)
    zero = xp.abs(Z) <= noise                       # linear, q = 1, keys 1, -1: 0
    wrong = zero if sees is None else zero & sees
    if xp.any(wrong):
        raise ValueError(f"the normaliser of {name} vanishes in {int(xp.count_nonzero(wrong))} of "
                         f"{Z.size} rows, where its values cancel or are all zero: there is no "
                         'weighted mean. Instead use kernel="exponential", linear_attention, whose '
                         "features are positive, or guard=1e-3")
    return visible(~zero, Z, 1.0)


@arrays(Q="~* N d", K="~* M d", V="~* M d_v", cure=TOO_LARGE + ": scale Q and K down")
def linear_attention(Q, K, V, *, mask=None):
    """Smoother with finite positive features, κ(q, k) = φ(q)φ(k)ᵀ, in O(N) (Eq. S.31).

    oᵢ = φ(qᵢ) Sᵢ / φ(qᵢ) zᵢ with φ = elu + 1 and the running sums S = Σⱼ φ(kⱼ)ᵀ vⱼ, z = Σⱼ φ(kⱼ)ᵀ.
    The linear kernel of positive features is a smoother (Katharopoulos et al., ICML 2020), that of
    signed ones is not. mask: without one, or with one row for all queries, two sums are enough;
    `causal`, with or without a padding of keys, runs as a state; any other leaves no state to carry
    over, and costs the quadratic form. Source: derived; Katharopoulos et al. 2020.

    >>> linear_attention([[0.0]], [[0.0], [0.0]], [[2.0], [4.0]])          # phi(0) = 1
    array([[3.]])
    """
    mask = pairs(mask, Q, K, V)
    sees, seen = taking_part(mask)
    Q, K, V = shown(sees, Q, "Q"), shown(seen, K, "K"), shown(seen, V, "V")
    # Factors of one query, and one of all keys, cancel (claim D7): exp(-104) is 0 in float32.
    phi_Q, hidden = _elu_plus_one(Q, (-1,)), visible(seen, K, -float("inf"))       # elu + 1 is 0
    O, Z = _sums(phi_Q, _elu_plus_one(hidden, (-2, -1)), V, mask)
    Z = as_array(Z, "the normaliser of elu + 1")
    limits = namespace(Z).finfo(Z.dtype)
    lost = Z < float(limits.smallest_normal) / float(limits.eps)           # with digits, or wholly
    if namespace(Z).any(lost if sees is None else lost & sees):
        return _by_logarithms(Q, K, V, mask, sees)
    return _over(O, visible(Z > 0.0, Z, 1.0))


@primitive                  # autograd's own derivative divides by Z², which underflows before Z
def _over(O, Z):
    return O / Z


defvjp(_over, lambda A, O, Z: lambda g: _over(g, Z),
       lambda A, O, Z: lambda g: -_over(anp.sum(g * A, axis=-1, keepdims=True), Z))


def _by_logarithms(Q, K, V, mask, sees):
    """In O(N²), where all keys that a query sees underflow beside another: keys −104, then 0."""
    xp = namespace(Q, K, V)
    q, k = (visible(X <= 0.0, X) + xp.log(visible(X > 0.0, X) + 1.0) for X in (Q, K))
    terms = (q[..., :, None, j] + k[..., None, :, j] for j in range(q.shape[-1]))
    A, Z = _exponentials(reduce(xp.logaddexp, terms), mask, sees)
    return A @ V / Z


def _sums(phi_Q, phi_K, V, mask):
    """Numerator and normaliser of each query, (..., N, d_v) and (..., N, 1)."""
    xp, N, M = namespace(phi_Q, phi_K, V), phi_Q.shape[-2], phi_K.shape[-2]
    ones = xp.ones_like(V[..., :1])
    running = mask is not None and mask.shape[-2] > 1
    # The last query of a causal filter sees every key but padding.
    if running and not xp.all(mask == mask[..., -1:, :] & pairs(causal(N, M), phi_Q, phi_K)):
        G = visible(mask, _inner(phi_Q, phi_K))
        return G @ V, G @ ones
    phi_K = xp.moveaxis(phi_K, -1, -2)                                     # (..., p, M)
    if not running:
        return phi_Q @ (phi_K @ V), phi_Q @ (phi_K @ ones)
    S, z = (0.0 * (phi_K[..., :1] @ X[..., :1, :]) for X in (V, ones))
    rows, seen = [], [0, *(max(0, i + 1 + M - N) for i in range(N))]       # keys that i sees
    for i in range(N):
        new = slice(seen[i], seen[i + 1])
        S = S + phi_K[..., new] @ V[..., new, :]                           # (..., p, d_v)
        z = z + phi_K[..., new] @ ones[..., new, :]                        # (..., p, 1)
        rows.append((phi_Q[..., i:i+1, :] @ S, phi_Q[..., i:i+1, :] @ z))
    return (xp.stack([row[..., 0, :] for row in part], axis=-2) for part in zip(*rows))


@primitive          # autograd's own derivative of where makes float64 of float32
def _elu_plus_one(X, axes):
    """1 + x or exp(x), divided by one factor along `axes` if all of them are small."""
    xp = namespace(X)
    top = xp.max(X, axis=axes, keepdims=True)
    shift = xp.where((top < 0.0) & (top > -float("inf")), top, 0.0)        # all hidden: no factor
    return xp.where(X > 0.0, X + 1.0, xp.exp(xp.where(X > 0.0, 0.0, X) - shift))


defvjp(_elu_plus_one, lambda ans, X, axes: lambda g: g * visible(X <= 0.0, ans, 1.0))


@arrays(Q="~* N D", K="~* M D", V="~* M D_v", heads=integer(1))
def multi_head(Q, K, V, *, heads, smoother=attention, **parameters):
    """The smoother in `heads` blocks of columns side by side (Vaswani et al., 2017).

    Q = X W_q and so on are projected already; returns (..., N, heads d_v). smoother: any function
    ``smoother(Q, K, V, **parameters)`` of arrays (..., heads, N, d). A mask or log_factor among the
    parameters meets an axis of heads before its last two: (N, M) serves all, (heads, N, M) gives
    each head its own, a padding of keys is (B, 1, 1, M).

    >>> multi_head([[99, 0]], [[1, 5], [0, 5]], [[3, 1], [4, 2]], heads=2)  # head 2: equal weights
    array([[3. , 1.5]])
    """
    Q, K, V = (split_heads(X, heads, name) for X, name in ((Q, "Q"), (K, "K"), (V, "V")))
    return merge_heads(call_back(smoother, Q, K, V, **parameters), heads)


def split_heads(X, heads, name="X"):
    """(..., N, heads d) to (..., heads, N, d).

    >>> split_heads([[1, 2, 3, 4]], 2).shape
    (2, 1, 2)
    """
    X, heads = as_array(X, name, finite=False), integer(1)(heads, "heads")
    if X.ndim < 2 or X.shape[-1] % heads:
        raise ValueError(f"{name} needs 2 axes or more and columns in {heads} equal blocks, "
                         f"got shape {tuple(X.shape)}")
    xp = namespace(X)
    return xp.moveaxis(xp.reshape(X, (*X.shape[:-1], heads, -1)), -2, -3)


def merge_heads(X, heads=None):
    """(..., heads, N, d) to (..., N, heads d); heads: the number of them to insist on.

    >>> merge_heads([[[1.0, 2.0]], [[3.0, 4.0]]])
    array([[1., 2., 3., 4.]])
    """
    X = as_array(X, "X", finite=False)
    if X.ndim < 3 or heads is not None and X.shape[-3] != heads:    # five masks make five heads
        raise ValueError(f"X must have shape (..., {heads or 'heads'}, N, d), got {tuple(X.shape)}:"
                         " a mask for all heads needs an axis of length 1 for them, (B, 1, N, M)")
    xp = namespace(X)
    return xp.reshape(xp.moveaxis(X, -3, -2), (*X.shape[:-3], X.shape[-2], -1))
