r"""Attention as a kernel smoother: sum_j kappa(q, k_j) v_j / sum_j kappa(q, k_j) over visible keys.

Four things to choose, four arguments: the kernel on the content (`kernel`), the kernel on the
positions that multiplies it (`log_factor`, see positions.py), the values (`V`), and the set filter
(`mask`). What W_q, W_k and W_v do to the content is done before: symmetric is the same array twice.

Q, K, V   (..., N, d), (..., M, d), (..., M, d_v)   queries, keys, values; here K is not a kernel
G         (..., N, M)    kernel matrix, G_ij = kappa(q_i, k_j), with the position factor
mask      (..., N, M)    the filter B of filters.py: True where query i may attend to key j
Z         (..., N, 1)    normaliser, Z_i = sum_j B_ij G_ij
A         (..., N, M)    attention matrix, A_ij = B_ij G_ij / Z_i
"""
import warnings

from autograd.tracer import getval

from ..backend import as_array, check_finite, check_integer, check_number, namespace, silent
from .filters import memory, strided, window  # noqa: F401  (causal too: smoother.causal, ...)
from .filters import as_mask, causal, check_leading, check_pairs, taking_part, visible
from ..linalg import softmax, squared_distances


def attention(Q, K, V, *, kernel="exponential", log_factor=None, mask=None, guard=0.0,
              **parameters):
    r"""Kernel smoother of the values, Σⱼ κ(q, kⱼ) vⱼ / Σⱼ κ(q, kⱼ) (Eq. S.2); softmax is one case.

    .. math:: o_i = \sum_{j \in M(i)} \frac{\kappa(q_i, k_j)}
                    {\sum_{l \in M(i)} \kappa(q_i, k_l)} \, v_j, \qquad O = A V

    Nadaraya-Watson regression with responses v_j.

    Source: Tsai et al. 2019, Definition 1.

    Parameters
    ----------
    Q : (..., N, d) array
        Queries. Leading axes (batch, head) broadcast against those of `K` and `V`.
    K : (..., M, d) array
        Keys; M may differ from N.
    V : (..., M, d_v) array
        Values.
    kernel, log_factor, mask, guard, **parameters
        As in `weights`.

    Returns
    -------
    (..., N, d_v) array
        A row that sees nothing is a row of zeros.

    Raises
    ------
    TypeError, ValueError
        As `weights`, and if `V` has not one finite row per key.

    Examples
    --------
    >>> import math
    >>> attention([[1.0]], [[math.log(2)], [0.0]], [[3.0], [0.0]])         # weights 2/3 and 1/3
    array([[2.]])
    >>> attention([[1.0]], [[math.log(2)], [0.0]], [[3.0], [0.0]], mask=[[False, True]])
    array([[0.]])
    """
    A = weights(Q, K, kernel=kernel, log_factor=log_factor, mask=mask, guard=guard, **parameters)
    return A @ _values(V, as_mask(mask, A), A.shape[-1], weights=A)


def weights(Q, K, *, kernel="exponential", log_factor=None, mask=None, guard=0.0, **parameters):
    r"""Attention matrix A = D̂⁻¹(B∘G), the normalised and filtered kernel (Eq. S.3).

    .. math:: A = \hat D^{-1} (B \circ G), \qquad \hat D = \mathrm{diag}(Z), \quad
              Z_i = \textstyle\sum_j B_{ij} G_{ij}

    Source: derived.

    Parameters
    ----------
    Q : (..., N, d) array
    K : (..., M, d) array
    kernel : {"exponential", "rbf", "linear", "polynomial"} or callable
        The names are those of `kernels`, with the same parameters and defaults. exponential and rbf
        are computed as logarithms with the largest visible one taken out (S.4). A callable takes
        the arrays, ``kernel(Q, K, **parameters)``, and returns the kernel matrix (..., N, M): so
        leading axes and derivatives cost nothing, every function of `kernels` can be passed, and
        a function of two points goes in as ``lambda Q, K: kernels.gram(kappa, Q, K)``.
    log_factor : (..., N, M) array, optional
        Logarithm of a second kernel that multiplies the first, as `positions` makes them.
    mask : (..., N, M) boolean array, optional
        True = may attend. Multiplies the kernel. Missing axes, or axes of length 1, broadcast:
        (M,) or (B, 1, 1, M) is a padding of keys. A key that no query sees may hold anything, NaN
        included; so may a query that sees no key.
    guard : float
        For linear and polynomial: moves each normaliser away from zero by so much, and keeps
        silent about its sign. 0 unless told: a guard hides that a signed kernel is no smoother.
    **parameters
        scale (exponential, sqrt(d) unless told); gamma (rbf, 1); degree, gamma, coef0 (polynomial,
        2, 1, 1). rbf without 1/2 (S.9) is gamma = 1 / sqrt(d), without + 1 (S.8) is coef0 = 0.

    Returns
    -------
    (..., N, M) array
        Rows sum to 1, rows that see nothing to 0. Never negative if the kernel is not.

    Raises
    ------
    TypeError
        If an argument is no array of real numbers, the mask is not boolean, the arrays belong to
        different libraries, or the kernel has no such parameter.
    ValueError
        If shapes do not fit, something visible is NaN or infinite, or the normaliser of a row that
        sees a key vanishes.

    Warns
    -----
    UserWarning
        If a weight is negative: then the output is no average of the values.

    Examples
    --------
    >>> weights([[1.0]], [[1.0], [-1.0]], kernel="polynomial", coef0=0.0)  # 1 and 1: sign-blind
    array([[0.5, 0.5]])
    >>> weights([[1.0]], [[1.0], [-1.0]], kernel="linear")                 # 1 - 1 = 0
    Traceback (most recent call last):
    ValueError: the normaliser of the linear kernel vanishes in 1 of 1 rows, where its values
    cancel or are all zero: there is no weighted mean. Instead use kernel="exponential",
    linear_attention, whose features are positive, or guard=1e-3
    """
    Q, K, mask = _queries_and_keys(Q, K, mask)
    N, M = Q.shape[-2], K.shape[-2]
    if log_factor is not None:
        log_factor = as_array(log_factor, "log_factor", finite=False)
        check_pairs(log_factor, "log_factor", N, M)
        _check_leading(Q=Q, K=K, mask=mask, log_factor=log_factor)
        log_factor = as_array(visible(mask, log_factor, 0.0), "log_factor")
    if not callable(kernel):
        if not isinstance(kernel, str) or kernel not in _KERNELS:
            raise ValueError("kernel must be a function or one of "
                             f"{', '.join(map(repr, _KERNELS))}, got {kernel!r}")
        if not set(parameters) <= _PARAMETERS[kernel]:
            raise TypeError(f"parameters of the {kernel} kernel are "
                            f"{sorted(_PARAMETERS[kernel]) or 'none'}, got {sorted(parameters)}")
        _check_columns(Q, K)
    with silent():                                  # an overflow is refused below, or is hidden
        G = (kernel if callable(kernel) else _KERNELS[kernel])(Q, K, **parameters)
    G = as_array(G, "kernel(Q, K)", finite=False)
    if tuple(G.shape[-2:]) != (N, M):
        raise ValueError(f"kernel(Q, K) must be an array of shape (..., {N}, {M}), "
                         f"got {tuple(G.shape)}")
    xp = namespace(Q, K, G, log_factor)
    finite = xp.isfinite(G)
    if not xp.all(finite if mask is None else finite | ~mask):
        raise ValueError(f"kernel {kernel!r} is NaN or infinite at a visible key: the data, or its "
                         "parameters, are too large for this precision")
    guard = check_number(guard, "guard")
    logarithmic = not callable(kernel) and kernel in _LOGARITHMIC
    if guard < 0.0 or guard and logarithmic:
        raise ValueError("guard must be 0, or positive for a kernel that can vanish, "
                         f"got {guard} for kernel {kernel!r}")
    if logarithmic:
        return _softmax(G if log_factor is None else G + log_factor, mask)
    G = visible(mask, G, 0.0)
    if log_factor is not None:
        G = G * _softmax(log_factor, mask)          # the sum it is divided by cancels (claim D7)
    return _ratio(G, mask, guard, "this kernel" if callable(kernel) else f"the {kernel} kernel")


def _inner(Q, K):
    xp = namespace(Q, K)
    return Q @ xp.moveaxis(K, -1, -2)               # S_ij = sum_f Q_if K_jf    (..., N, M)


def _log_exponential(Q, K, scale=None):
    scale = Q.shape[-1] ** 0.5 if scale is None else check_number(scale, "scale", above=0.0)
    return _inner(Q, K) / scale


def _log_rbf(Q, K, gamma=1.0):
    return -check_number(gamma, "gamma", above=0.0) * squared_distances(Q, K)


def _polynomial(Q, K, degree=2, gamma=1.0, coef0=1.0):
    degree = check_integer(degree, "degree", 1)
    gamma, coef0 = check_number(gamma, "gamma"), check_number(coef0, "coef0")
    return (gamma * _inner(Q, K) + coef0) ** degree


_KERNELS = {"exponential": _log_exponential, "rbf": _log_rbf, "linear": _inner,
            "polynomial": _polynomial}
_PARAMETERS = {"exponential": {"scale"}, "rbf": {"gamma"}, "linear": set(),
               "polynomial": {"degree", "gamma", "coef0"}}
_LOGARITHMIC = ("exponential", "rbf")               # these return log G (S.4)


def _softmax(logits, mask):
    """S.4: logits of minus infinity where hidden, zeros in a row that sees nothing."""
    if mask is None:
        return softmax(logits)
    xp = namespace(mask)
    sees = xp.any(mask, axis=-1, keepdims=True)
    logits = visible(mask, logits, -float("inf"))
    if xp.all(sees):
        return softmax(logits)
    # A whole row of minus infinity would be NaN, one of -1e9 an average of hidden keys.
    return visible(sees, softmax(visible(sees, logits, 0.0)), 0.0)


def _ratio(G, mask, guard, name):
    xp = namespace(G)
    with silent():
        Z = xp.sum(G, axis=-1, keepdims=True)       # (..., N, 1)
        size = xp.sum(xp.abs(G), axis=-1, keepdims=True)
    check_finite(size, f"a sum over {name}")        # 3e38 + 3e38 in float32
    if guard:
        return G / xp.where(Z < 0.0, Z - guard, Z + guard)
    noise = G.shape[-1] * float(xp.finfo(G.dtype).eps) * size
    A = G / _normaliser(Z, noise, mask, name, 'use kernel="exponential", linear_attention, whose '
                        "features are positive, or guard=1e-3")
    negative = int(xp.count_nonzero(A < 0.0))
    if negative:
        # q = 1 and keys 1, -0.999: the weights are 1000 and -999.
        least = float(getval(xp.min(A)))            # a warning cannot print autograd's box
        warnings.warn(f"{name} gave {negative} negative weights of {A.size}, the least "
                      f"{least:.3g}: it has both signs, so this is no average of the "
                      "values, and a normaliser near zero makes it as large as it likes",
                      stacklevel=3)
    return A


def _normaliser(Z, noise, mask, name, cure):
    """Z, with 1 in a row that sees nothing; an error where a row that sees a key has none."""
    xp = namespace(Z)
    zero = xp.abs(Z) <= noise
    wrong = zero if mask is None else zero & xp.any(mask, axis=-1, keepdims=True)
    if xp.any(wrong):
        raise ValueError(f"the normaliser of {name} vanishes in {int(xp.count_nonzero(wrong))} of "
                         f"{Z.size} rows, where its values cancel or are all zero: there is no "
                         f"weighted mean. Instead {cure}")
    return xp.where(zero, 1.0, Z)


def linear_attention(Q, K, V, *, mask=None):
    r"""Smoother with finite positive features, κ(q, k) = φ(q)φ(k)ᵀ, in O(N) (Eq. S.31).

    .. math:: o_i = \frac{\phi(q_i) S_i}{\phi(q_i) z_i}, \qquad
              S_i = S_{i-1} + \phi(k_i)^\top v_i, \quad z_i = z_{i-1} + \phi(k_i)^\top, \qquad
              \phi = \mathrm{elu} + 1

    Equal to ``attention(phi(Q), phi(K), V, kernel="linear")``. The linear kernel of positive
    features is a smoother (Katharopoulos et al., ICML 2020), that of signed ones is not.

    Source: derived; Katharopoulos et al. 2020.

    Parameters
    ----------
    Q : (..., N, d) array
    K : (..., M, d) array
    V : (..., M, d_v) array
    mask : (..., N, M) boolean array, optional
        As in `weights`. None, or one row for all queries (a padding of keys), takes two sums;
        `causal`, with or without a padding of keys, runs as a running state. Any other mask leaves
        no state to carry over: it costs the quadratic form.

    Returns
    -------
    (..., N, d_v) array
        A row that sees nothing is a row of zeros.

    Raises
    ------
    TypeError, ValueError
        As `attention`.

    Examples
    --------
    >>> linear_attention([[0.0]], [[0.0], [0.0], [5.0]], [[2.0], [4.0], [100.0]],
    ...                  mask=[True, True, False])
    array([[3.]])
    """
    Q, K, mask = _queries_and_keys(Q, K, mask)
    _check_columns(Q, K)
    N, M = Q.shape[-2], K.shape[-2]
    V = _values(V, mask, M, Q=Q, K=K)
    xp = namespace(Q, K, V)
    if mask is not None:                            # elu + 1 of minus infinity is 0
        seen = xp.any(mask, axis=-2, keepdims=True)
        K = visible(xp.moveaxis(seen, -1, -2), K, -float("inf"))
    # Factors of one query, and one factor for all keys, cancel (claim D7). With them taken out
    # features of -104, whose exponential is 0 in float32, do no harm.
    phi_Q, phi_K = _elu_plus_one(Q, (-1,)), _elu_plus_one(K, (-2, -1))
    with silent():                                  # an overflow is refused below
        O, Z = _sums(phi_Q, phi_K, V, mask, N, M)
    check_finite(Z, "the normaliser of elu + 1")
    check_finite(O, "a sum of values, weighted with elu + 1,")
    return O / _normaliser(Z, 0.0, mask, "elu + 1", "scale Q and K down, features underflow")


def _sums(phi_Q, phi_K, V, mask, N, M):
    """Numerator and normaliser of each query, (..., N, d_v) and (..., N, 1)."""
    xp = namespace(phi_Q, phi_K, V)
    ones = xp.ones_like(V[..., :1])
    running = mask is not None and mask.shape[-2] > 1
    # The last query of a causal filter sees every key but padding.
    if running and not xp.all(mask == mask[..., -1:, :] & as_mask(causal(N, M), phi_Q)):
        G = visible(mask, _inner(phi_Q, phi_K), 0.0)
        return G @ V, G @ ones
    phi_K = xp.moveaxis(phi_K, -1, -2)                                     # (..., p, M)
    if not running:
        return phi_Q @ (phi_K @ V), phi_Q @ (phi_K @ ones)
    steps = [max(0, i + 1 + M - N) for i in range(N)]                      # keys that query i sees
    S, z = (0.0 * (phi_K[..., :1] @ X[..., :1, :]) for X in (V, ones))
    rows = []
    for i, (start, stop) in enumerate(zip([0] + steps, steps)):
        if stop > start:
            S = S + phi_K[..., start:stop] @ V[..., start:stop, :]         # (..., p, d_v)
            z = z + phi_K[..., start:stop] @ ones[..., start:stop, :]      # (..., p, 1)
        rows.append((phi_Q[..., i:i+1, :] @ S, phi_Q[..., i:i+1, :] @ z))
    return tuple(xp.stack([row[..., 0, :] for row in part], axis=-2) for part in zip(*rows))


def _elu_plus_one(X, axes):
    """1 + x or exp(x), divided by one factor along `axes` if all of them are small."""
    xp = namespace(X)
    top = xp.max(X, axis=axes, keepdims=True)
    shift = xp.where((top < 0.0) & (top > -float("inf")), top, 0.0)        # all hidden: no factor
    return xp.where(X > 0.0, X + 1.0, xp.exp(xp.where(X > 0.0, 0.0, X) - shift))


def multi_head(Q, K, V, *, heads, smoother=attention, **parameters):
    """The smoother in `heads` blocks of columns side by side (Vaswani et al., 2017).

    No equation: S.2 once for each head.

    Parameters
    ----------
    Q, K : (..., N, heads d) and (..., M, heads d) array
        Projected already, Q = X W_q.
    V : (..., M, heads d_v) array
    heads : int
    smoother : callable
        `attention`, `linear_attention`, or any function ``smoother(Q, K, V, **parameters)`` of
        arrays (..., heads, N, d).
    **parameters
        For the smoother. A mask or a log_factor meets an axis of heads before its last two: (N, M)
        serves all, (heads, N, M) gives each head its own, a padding of keys is (B, 1, 1, M).

    Returns
    -------
    (..., N, heads d_v) array

    Raises
    ------
    TypeError, ValueError
        As the smoother, and if a number of columns is not divisible by `heads`, or a mask or
        log_factor has another number of heads.

    Examples
    --------
    >>> multi_head([[99, 0]], [[1, 5], [0, 5]], [[3, 1], [4, 2]], heads=2)  # head 2: equal weights
    array([[3. , 1.5]])
    """
    split = (split_heads(X, heads, name) for X, name in ((Q, "Q"), (K, "K"), (V, "V")))
    return merge_heads(smoother(*split, **parameters), heads)


def split_heads(X, heads, name="X"):
    """(..., N, heads d) to (..., heads, N, d).

    No equation: a change of shape.

    Parameters
    ----------
    X : (..., N, heads d) array
    heads : int
    name : str
        What the error calls it.

    Returns
    -------
    (..., heads, N, d) array

    Raises
    ------
    ValueError
        If the number of columns is not divisible by `heads`.

    Examples
    --------
    >>> split_heads([[1, 2, 3, 4]], 2)
    array([[[1., 2.]],
    <BLANKLINE>
           [[3., 4.]]])
    """
    X = as_array(X, name, finite=False)
    if not hasattr(heads, "__index__") or heads < 1 or X.ndim < 2 or X.shape[-1] % heads:
        raise ValueError(f"{name} needs 2 axes or more and columns in {heads!r} equal blocks, "
                         f"got shape {tuple(X.shape)}")
    xp = namespace(X)
    X = xp.reshape(X, (*X.shape[:-1], int(heads), X.shape[-1] // int(heads)))
    return xp.moveaxis(X, -2, -3)                   # (..., N, h, d) -> (..., h, N, d)


def merge_heads(X, heads=None):
    """(..., heads, N, d) to (..., N, heads d), the inverse of `split_heads`.

    No equation: a change of shape.

    Parameters
    ----------
    X : (..., heads, N, d) array
    heads : int, optional
        Number of heads to insist on: broadcasting makes five heads of one that meets five masks.

    Returns
    -------
    (..., N, heads d) array

    Raises
    ------
    ValueError
        If `X` has no axis of heads, or one of another length.

    Examples
    --------
    >>> import numpy as np
    >>> merge_heads(np.array([[[1.0, 2.0]], [[3.0, 4.0]]]))
    array([[1., 2., 3., 4.]])
    """
    X = as_array(X, "X", finite=False)
    if X.ndim < 3 or heads is not None and X.shape[-3] != heads:
        raise ValueError(f"X must have shape (..., {heads or 'heads'}, N, d), got "
                         f"{tuple(X.shape)}: if a mask or log_factor made the heads more, give it "
                         "an axis of length 1 for them, (B, 1, N, M)")
    xp = namespace(X)
    X = xp.moveaxis(X, -3, -2)                      # (..., N, h, d)
    return xp.reshape(X, (*X.shape[:-2], X.shape[-2] * X.shape[-1]))


def _queries_and_keys(Q, K, mask):
    """Finite Q and K with zeros where nothing is seen, and the mask beside them."""
    Q, K = as_array(Q, "Q", finite=False), as_array(K, "K", finite=False)
    namespace(Q, K)
    mask = as_mask(mask, Q)
    for X, name in ((Q, "Q"), (K, "K")):
        if X.ndim < 2:
            raise ValueError(f"{name} must have 2 axes or more, got shape {tuple(X.shape)}")
    if mask is not None:
        check_pairs(mask, "mask", Q.shape[-2], K.shape[-2])
    _check_leading(Q=Q, K=K, mask=mask)
    return taking_part(Q, "Q", mask, -1), taking_part(K, "K", mask, -2), mask


def _check_leading(**arrays):
    check_leading(**{name: X for name, X in arrays.items() if X is not None})


def _check_columns(Q, K):
    if Q.shape[-1] != K.shape[-1]:
        raise ValueError("Q and K need the same number of columns, got shapes "
                         f"{tuple(Q.shape)} and {tuple(K.shape)}")


def _values(V, mask, M, **others):
    """Finite V of M rows, with zeros where no query looks."""
    V = as_array(V, "V", finite=False)
    namespace(V, *others.values())
    if V.ndim < 2 or V.shape[-2] != M:
        raise ValueError(f"V must have shape (..., {M}, d_v), one row for each key, "
                         f"got {tuple(V.shape)}")
    _check_leading(V=V, mask=mask, **others)
    return taking_part(V, "V", mask, -2)
