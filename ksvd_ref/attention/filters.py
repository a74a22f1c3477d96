"""Filters: which keys a query may see, which steps are padding, and how to keep the others out.

mask    (..., N, M)    True where query i may attend to key j; (M,) is a padding of keys
        (..., N)       for the layer: True where step i is no padding
age     (N, M)         i + M − N − j: both ends aligned, so the last query sees every key

A filter multiplies the kernel. What it hides may hold anything and gets no gradient: 0 · NaN is
NaN, so it is replaced. A NumPy mask, a pattern made on the host, is moved to where the data are.

No equation: beside the filters it applies and checks masks. What is refused: inputs.py.
"""
from itertools import zip_longest

import numpy as np
from autograd.extend import defvjp, primitive
from autograd.numpy.numpy_vjps import unbroadcast_f

from ..backend import like, namespace
from ..inputs import arrays, as_array, integer


@arrays(N=integer(1), M=integer(1))
def causal(N, M=None):
    """Causal filter, aligned at the end (Eq. S.24).

    j ≤ i + M − N, (N, M). For N > M the first N − M queries see nothing. Source: Tsai et al. 2019.

    >>> causal(2, 3)
    array([[ True,  True, False],
           [ True,  True,  True]])
    """
    return _age(N, M) >= 0


@arrays(N=integer(1), length=integer(0))
def memory(N, length):
    """Causal filter over `length` remembered keys and N present ones (Eq. S.25).

    j ≤ i + length, the remembered keys first, as in Transformer-XL: (N, N + length).
    Source: Tsai et al. 2019; Dai et al. 2019.

    >>> memory(2, 1)[0, :]
    array([ True,  True, False])
    """
    return causal(N, N + length)


@arrays(N=integer(1), width=integer(1), M=integer(1))
def window(N, width, *, M=None):
    """Causal filter of the last `width` keys (Eq. S.26).

    0 ≤ age < width, (N, M); a width of 1 sees only itself. Source: derived.

    >>> window(3, 2)[2, :]
    array([False,  True,  True])
    """
    age = _age(N, M)
    return (age >= 0) & (age < width)


@arrays(N=integer(1), stride=integer(1), M=integer(1))
def strided(N, stride, *, M=None):
    """Both parts of the strided Sparse Transformer, united (Eq. S.27).

    0 ≤ age < l, or age ≥ 0 and age mod l = 0, for a stride of l: (N, M). The other reading has two
    heads, ``window(N, l)`` and ``strided(N, l) & ~window(N, l) | window(N, 1)``.
    Source: Child et al. 2019, by name.

    >>> strided(5, 2)[4, :]                             # itself, one back, then every second
    array([ True, False,  True,  True,  True])
    """
    age = _age(N, M)
    return (age >= 0) & ((age < stride) | (age % stride == 0))


def _age(N, M):
    M = N if M is None else M
    return np.arange(M - N, M)[:, None] - np.arange(M)[None, :]


def _boolean(mask, X):
    """The mask in the library and on the device of `X`."""
    if isinstance(mask, (str, dict)) or callable(mask) or hasattr(mask, "mask"):
        raise TypeError(f"mask must be a boolean array, got {type(mask).__name__}")
    home = namespace(mask)
    if isinstance(mask, (bool, list, tuple)):
        mask = np.asarray(mask)
    if not home.isdtype(mask.dtype, "bool"):        # 0 and -inf to be added are not meant here
        raise TypeError(f"mask must be boolean, True for what is visible, got {mask.dtype}")
    device = {key: value for key, value in like(X).items() if key == "device"}
    return namespace(X).asarray(mask, **device) if home is np else mask


def pairs(mask, Q, K, V=None, log_factor=None):
    """The mask of these queries and keys, (..., N, M) with 1 for what broadcasts, or None.

    >>> pairs([True, False, True], np.ones((2, 1)), np.ones((3, 1)))
    array([[ True, False,  True]])
    """
    mask = None if mask is None else _boolean(mask, Q)
    mask = mask[None, :] if mask is not None and mask.ndim == 1 else mask
    N, M = Q.shape[-2], K.shape[-2]
    for B, name in ((log_factor, "log_factor"), (mask, "mask")):
        if B is not None and (B.ndim < 2 or B.shape[-2] not in (1, N) or B.shape[-1] not in (1, M)):
            raise ValueError(f"{name} must have shape (..., {N}, {M}), or 1 in place of a length, "
                             f"got {tuple(B.shape)}")
    lead = [tuple(X.shape[:-2]) for X in (mask, Q, K, V, log_factor) if X is not None]
    if any(len(set(axis) - {1}) > 1
           for axis in zip_longest(*(axes[::-1] for axes in lead), fillvalue=1)):
        raise ValueError("leading axes of mask must be 1 or those of the arrays, got "
                         f"{lead[0]} beside {', '.join(map(str, lead[1:]))}")
    return mask


def taking_part(mask):
    """Queries that see a key, (..., N, 1), and keys that a query sees, (..., M, 1).

    >>> taking_part(np.array([[False, True]]))[1]
    array([[False],
           [ True]])
    """
    if mask is None:
        return None, None
    xp = namespace(mask)
    return xp.any(mask, axis=-1, keepdims=True), xp.any(mask, axis=-2)[..., None]


def steps(mask, X, axes):
    """The mask of the N steps of X as it meets X, whose last `axes` are no batch, or None.

    >>> steps([True, False], np.ones((5, 3, 2, 4)), 3).shape        # 5 sequences, 3 heads
    (1, 2, 1)
    """
    if mask is None:
        return None
    mask, N, batch = _boolean(mask, X), X.shape[-2], tuple(X.shape[:X.ndim - axes])
    if tuple(mask.shape) not in ((N,), (*batch, N)):
        raise ValueError(f"mask must have shape {(N,)}{f' or {(*batch, N)}' * bool(batch)}, one "
                         f"entry for each step, got {tuple(mask.shape)}")
    return namespace(mask).reshape(mask, (*mask.shape[:-1], *(1,) * (axes - 2), N, 1))


def shown(mask, X, name):
    """`X`, refused where it is visible and not finite, with zeros where it is hidden.

    >>> shown(np.array([[True], [False]]), np.array([[2.0], [np.nan]]), "K")
    array([[2.],
           [0.]])
    """
    hides = mask is not None and not namespace(mask).all(mask)
    return as_array(visible(mask, X) if hides else X, name)


def visible(mask, X, hidden=0.0):
    """`X` where the mask is True, the number `hidden` elsewhere: nothing hidden comes through.

    >>> visible(np.array([True, False]), np.array([1.0, np.nan]))
    array([1., 0.])
    """
    return X if mask is None else _where(mask, X, hidden)


@primitive
def _where(mask, X, hidden):
    return namespace(mask, X).where(mask, X, hidden)


# autograd's own makes float64 of float32, and does not add up the gradients of copies.
defvjp(_where, lambda ans, mask, X, hidden: unbroadcast_f(X, lambda g: visible(mask, g)),
       argnums=(1,))
