r"""Set filters: which keys a query may see, and how to keep the others out.

mask      (..., N, M)    True where query i may attend to key j
age       (N, M)         i + M - N - j: both ends aligned, so the last query sees every key

A filter multiplies the kernel. What it hides may hold anything, NaN included, and gets no gradient:
0 * NaN is NaN, so hidden entries are replaced, not multiplied.

No equation: beside S.24 to S.27 it applies and checks masks.
"""
from itertools import zip_longest

from ..backend import as_array, check_integer, like, namespace


def causal(N, M=None):
    r"""Causal filter, aligned at the end (Eq. S.24).

    .. math:: j \le i + M - N

    The last query sees every key. For N > M the first N - M queries see nothing.

    Source: Tsai et al. 2019.

    Parameters
    ----------
    N, M : int
        Queries and keys; M = N unless told.

    Returns
    -------
    (N, M) boolean array
        Of NumPy. A smoother moves it to where its queries are.

    Raises
    ------
    ValueError
        If a size is no integer ≥ 1.

    Examples
    --------
    >>> causal(2, 3)
    array([[ True,  True, False],
           [ True,  True,  True]])
    """
    return _age(N, M) >= 0


def memory(N, length):
    r"""Causal filter over `length` remembered keys and N present ones (Eq. S.25).

    .. math:: j \le i + L, \qquad M = N + L

    Transformer-XL (Dai et al., ACL 2019). The same as ``causal(N, N + length)``.

    Source: Tsai et al. 2019; Dai et al. 2019.

    Parameters
    ----------
    N : int
    length : int
        L ≥ 0; the remembered keys come first.

    Returns
    -------
    (N, N + length) boolean array

    Raises
    ------
    ValueError
        As `causal`, and if `length` is negative.

    Examples
    --------
    >>> memory(2, 1)
    array([[ True,  True, False],
           [ True,  True,  True]])
    """
    return causal(N, N + check_integer(length, "length", 0))


def window(N, width, *, M=None):
    r"""Causal filter of the last `width` keys (Eq. S.26).

    .. math:: 0 \le i + M - N - j < \mathrm{width}

    Source: derived.

    Parameters
    ----------
    N : int
    width : int
        ≥ 1; 1 sees only itself.
    M : int, optional
        Keys; N unless told.

    Returns
    -------
    (N, M) boolean array

    Raises
    ------
    ValueError
        If a size is no integer ≥ 1.

    Examples
    --------
    >>> window(3, 2)
    array([[ True, False, False],
           [ True,  True, False],
           [False,  True,  True]])
    """
    age = _age(N, M)
    return (age >= 0) & (age < check_integer(width, "width", 1))


def strided(N, stride, *, M=None):
    r"""Both parts of the strided Sparse Transformer, united (Eq. S.27).

    .. math:: 0 \le i - j < l \quad \text{or} \quad j \le i, \; (i - j) \bmod l = 0

    One head for each part is the other reading: ``window(N, l)`` is the local part, and the column
    part is ``strided(N, l) & ~window(N, l) | window(N, 1)``.

    Source: Child et al. 2019, by name.

    Parameters
    ----------
    N : int
    stride : int
        l ≥ 1.
    M : int, optional
        Keys; N unless told. Then i + M - N stands for i.

    Returns
    -------
    (N, M) boolean array

    Raises
    ------
    ValueError
        If a size is no integer ≥ 1.

    Examples
    --------
    >>> strided(5, 2)[4, :]                             # itself, one back, then every second
    array([ True, False,  True,  True,  True])
    """
    age, stride = _age(N, M), check_integer(stride, "stride", 1)
    return (age >= 0) & ((age < stride) | (age % stride == 0))


def _age(N, M):
    """How far key j lies behind query i, i + M - N - j."""
    N = check_integer(N, "N", 1)
    M = N if M is None else check_integer(M, "M", 1)
    xp = namespace()                                # no array is given: NumPy
    return xp.arange(M - N, M)[:, None] - xp.arange(M)[None, :]


def as_mask(mask, X):
    """Boolean mask with two axes or more, in the library and on the device of `X`.

    Parameters
    ----------
    mask : (..., N, M) or (M,) boolean array, list or None
        A NumPy array is a pattern made on the host and is moved; nothing else is.
    X : array

    Returns
    -------
    (..., N, M) array or None

    Raises
    ------
    TypeError
        If the mask is not boolean: 0 and -inf to be added to scores are not meant here.

    Examples
    --------
    >>> import numpy as np
    >>> as_mask([True, False], np.zeros((3, 2)))
    array([[ True, False]])
    """
    if mask is None:
        return None
    home, xp = namespace(mask), namespace(X)
    if isinstance(mask, (bool, list, tuple)):
        mask = home.asarray(mask)
    if not home.isdtype(mask.dtype, "bool"):
        raise TypeError("mask must be boolean, True where a query may attend to a key, "
                        f"got {mask.dtype}")
    if home is namespace():
        device = {key: value for key, value in like(X).items() if key == "device"}
        mask = xp.asarray(mask, **device)
    return mask[None, :] if mask.ndim == 1 else mask


def visible(mask, X, hidden):
    """`X` where the mask is True, `hidden` elsewhere; of what is hidden nothing comes through.

    Parameters
    ----------
    mask : boolean array or None
        Broadcasts against `X`.
    X : array
    hidden : float

    Returns
    -------
    array

    Examples
    --------
    >>> import numpy as np
    >>> visible(np.array([True, False]), np.array([1.0, np.nan]), 0.0)
    array([1., 0.])
    """
    if mask is None:
        return X
    xp = namespace(mask, X)
    if mask.ndim > X.ndim or any(n not in (1, m) for n, m in zip(mask.shape[::-1], X.shape[::-1])):
        # The full shape, by a sum: autograd's where does not add up the gradients of copies.
        X = X + xp.zeros(mask.shape, **like(X))
    return xp.where(mask, X, hidden)


def taking_part(X, name, mask, axis):
    """Finite `X`, with zeros in queries that see no key, or keys that no query sees.

    Parameters
    ----------
    X : (..., N, d) or (..., M, d) array
    name : str
        What the error calls it.
    mask : (..., N, M) boolean array or None
    axis : int
        -1 if the rows of `X` are queries, -2 if they are keys.

    Returns
    -------
    array

    Raises
    ------
    ValueError
        If a row that takes part is not finite.

    Examples
    --------
    >>> import numpy as np
    >>> taking_part(np.array([[np.nan], [2.0]]), "K", np.array([[False, True]]), -2)
    array([[0.],
           [2.]])
    """
    if mask is not None:
        xp = namespace(mask)
        rows = xp.any(mask, axis=axis, keepdims=True)          # (..., N, 1) or (..., 1, M)
        if not xp.all(rows):
            X = visible(rows if axis == -1 else xp.moveaxis(rows, -1, -2), X, 0.0)
    return as_array(X, name)


def check_pairs(B, name, N, M):
    """Refuse a mask or log factor that does not belong to N queries and M keys.

    Parameters
    ----------
    B : (..., N, M) array
        1 may stand for either length.
    name : str
    N, M : int

    Raises
    ------
    ValueError

    Examples
    --------
    >>> import numpy as np
    >>> check_pairs(np.zeros((3, 2)), "mask", 2, 3)
    Traceback (most recent call last):
    ValueError: mask must have shape (..., 2, 3) or 1 in place of a length, got (3, 2)
    """
    if B.ndim < 2 or B.shape[-2] not in (1, N) or B.shape[-1] not in (1, M):
        raise ValueError(f"{name} must have shape (..., {N}, {M}) or 1 in place of a length, "
                         f"got {tuple(B.shape)}")


def check_leading(**arrays):
    """Refuse arrays whose axes before the last two do not broadcast.

    Parameters
    ----------
    **arrays : array
        By the names that the error gives them.

    Raises
    ------
    ValueError

    Examples
    --------
    >>> import numpy as np
    >>> check_leading(Q=np.zeros((2, 1, 1)), K=np.zeros((3, 1, 1)))
    Traceback (most recent call last):
    ValueError: leading axes of Q and K must be equal or 1, got (2, 1, 1) and (3, 1, 1)
    """
    lengths = zip_longest(*(tuple(X.shape[:-2])[::-1] for X in arrays.values()), fillvalue=1)
    if any(len(set(axis) - {1}) > 1 for axis in lengths):
        shapes = " and ".join(str(tuple(X.shape)) for X in arrays.values())
        raise ValueError(f"leading axes of {' and '.join(arrays)} must be equal or 1, got {shapes}")
