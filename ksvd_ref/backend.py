"""Arrays of NumPy, autograd and CuPy in one source.

A public function begins with ``xp = namespace(<every array argument>)`` and then writes ``xp.exp``,
``xp.linalg.svd``, ... in the subset that all three libraries (and the array API standard) share.
This module decides which library that is, and refuses bad input.

No equation: it says where arrays live and what is refused.
"""
import sys

import autograd.numpy as anp
import numpy as np
from autograd.extend import Box


def namespace(*arrays):
    """Library that owns the arrays: numpy, autograd.numpy, cupy or another of the standard.

    Pass *every* array argument: under autograd some are traced and some are constants.

    Parameters
    ----------
    *arrays : array, list, number or None
        Numbers and None fit any library; lists and tuples are NumPy data.

    Returns
    -------
    module
        ``autograd.numpy`` as soon as one argument is being differentiated; ``numpy`` if none is an
        array.

    Raises
    ------
    TypeError
        If two libraries meet, or an argument is not an array of a known one.

    Examples
    --------
    >>> namespace([[1.0, 2.0]], 3.0, None).__name__
    'numpy'
    """
    found = {_library(x) for x in arrays} - {None}
    if anp in found:
        found.discard(np)       # beside a traced array, NumPy data are constants
    if len(found) > 1:
        names = " and ".join(sorted(xp.__name__ for xp in found))
        raise TypeError(f"arrays of one library expected, got {names}: "
                        "move one side with backend.to_device")
    return found.pop() if found else np


def _library(x):
    if type(x) is np.ndarray:
        return np
    if x is None or isinstance(x, (bool, int, float, np.generic)):
        return None
    if isinstance(x, Box):      # its own __array_namespace__() has NumPy's linalg, untraced
        return anp
    if isinstance(x, (list, tuple)):
        return anp if any(isinstance(entry, Box) or isinstance(entry, (list, tuple))
                          and _library(entry) is anp for entry in x) else np
    cupy = sys.modules.get("cupy")                  # whoever holds a CuPy array has imported CuPy
    if cupy is not None and isinstance(x, cupy.ndarray):
        return cupy                                 # CuPy 14 has no __array_namespace__
    if hasattr(x, "__array_namespace__"):
        return x.__array_namespace__()
    raise TypeError("an array of NumPy, autograd, CuPy or another array-API library expected, "
                    f"got {type(x).__module__}.{type(x).__qualname__}"
                    + ": pass its .to_numpy()" * hasattr(x, "to_numpy"))


def like(x):
    """Keywords that put a new array beside `x`: its dtype and, where there is one, its device.

    Parameters
    ----------
    x : array

    Returns
    -------
    dict
        Use as ``xp.eye(n, **like(x))``.

    Examples
    --------
    >>> import numpy as np
    >>> np.zeros(2, **like(np.ones(3, dtype="float32"))).dtype
    dtype('float32')
    """
    if hasattr(x, "__array_namespace__") and hasattr(x, "device"):
        return {"dtype": x.dtype, "device": x.device}
    return {"dtype": x.dtype}                       # CuPy and traced arrays take no device keyword


def as_array(x, name="x", ndim=None, finite=True):
    """Real, finite, floating array, or an error that names what is wrong.

    float32 and float64 stay what they are; integers and booleans become float64.

    Parameters
    ----------
    x : array or nested list
    name : str
        What the error calls it.
    ndim : int, optional
        Number of axes to insist on.
    finite : bool
        False lets NaN and infinity pass: the caller checks once a mask has hidden what may hold
        anything, or after a first product that shows them, since to look at every entry takes as
        long as that product.

    Returns
    -------
    array
        Of the library that `x` belongs to.

    Raises
    ------
    TypeError
        If `x` is masked, complex, object, text or of another precision.
    ValueError
        If it has another number of axes, is empty, or holds NaN or infinity. One infinity is
        enough to make a LAPACK SVD run for ever, so nothing may be decomposed before this check.

    Examples
    --------
    >>> as_array([[1, 2]], "K").dtype
    dtype('float64')
    """
    xp = namespace(x)
    if hasattr(x, "mask"):
        raise TypeError(f"{name} is a masked array: fill or drop the masked entries first")
    if isinstance(x, (list, tuple)):
        x = xp.array(x)                             # xp is autograd's if an entry is traced
    elif xp is np:
        x = np.asarray(x)                           # numpy.matrix, numpy.memmap, a bare number
    if ndim is not None and x.ndim != ndim:
        raise ValueError(f"{name} must have {ndim} axes, got shape {tuple(x.shape)}")
    if 0 in x.shape:
        raise ValueError(f"{name} must not be empty, got shape {tuple(x.shape)}")
    if xp.isdtype(x.dtype, ("bool", "integral")):
        x = xp.astype(x, xp.float64)
    if x.dtype not in (xp.float32, xp.float64):
        raise TypeError(f"{name} must hold real numbers (float32, float64, integers or booleans), "
                        f"got {x.dtype}")
    if finite and not xp.all(xp.isfinite(x)):
        raise ValueError(f"{name} must be finite, got NaN or infinity in {_where(x, xp)}")
    return x


def _where(x, xp):
    bad = xp.astype(~xp.isfinite(x), xp.float32)
    place, index = int(xp.argmax(xp.reshape(bad, (-1,)))), []
    for length in reversed(x.shape):
        place, last = divmod(place, length)
        index.insert(0, last)
    return f"entry {tuple(index)} of shape {tuple(x.shape)}"


def as_matrix(x, name="x"):
    """Real, finite matrix with rows and columns, or an error that names what is wrong.

    Parameters
    ----------
    x : (N, M) array or nested list
    name : str
        What the error calls it.

    Returns
    -------
    (N, M) array
        float32 or float64, N ≥ 1, M ≥ 1.

    Raises
    ------
    TypeError, ValueError
        As `as_array`.

    Examples
    --------
    >>> as_matrix([1.0, 2.0], "K")
    Traceback (most recent call last):
    ValueError: K must have 2 axes, got shape (2,)
    """
    return as_array(x, name, ndim=2)


def as_pair(X, Z, names=("X", "Z"), finite=True):
    """Two matrices with the same number of columns, or an error that names both shapes.

    Parameters
    ----------
    X, Z : (N, d) and (M, d) array
    names : pair of str
        What the errors call them.
    finite : bool
        As in `as_array`.

    Returns
    -------
    (N, d) array, (M, d) array

    Raises
    ------
    TypeError, ValueError
        As `as_matrix`, and if the numbers of columns differ.

    Examples
    --------
    >>> as_pair([[1, 2]], [[3]])
    Traceback (most recent call last):
    ValueError: X and Z need the same number of columns, got shapes (1, 2) and (1, 1)
    """
    namespace(X, Z)
    X, Z = (as_array(A, name, 2, finite) for A, name in zip((X, Z), names))
    if X.shape[1] != Z.shape[1]:
        raise ValueError(f"{names[0]} and {names[1]} need the same number of columns, "
                         f"got shapes {tuple(X.shape)} and {tuple(Z.shape)}")
    return X, Z


def silent():
    """Context without NumPy's warnings of overflow, for a caller who looks at the result.

    Returns
    -------
    context manager

    Examples
    --------
    >>> import numpy as np
    >>> with silent():
    ...     np.square(np.array([1e200]))
    array([inf])
    """
    return np.errstate(all="ignore")


def check_number(value, name, above=None):
    """A kernel's parameter as a Python float, or an error that says what was expected.

    Parameters
    ----------
    value : number
    name : str
    above : number, optional
        The value must be larger.

    Returns
    -------
    float

    Raises
    ------
    ValueError

    Examples
    --------
    >>> check_number(-1, "gamma", above=0.0)
    Traceback (most recent call last):
    ValueError: gamma must be a finite number above 0.0, got -1
    """
    try:
        number = float(value)       # a NumPy float64 would turn float32 data into float64
    except (TypeError, ValueError, OverflowError):
        number = float("nan")
    low = float("-inf") if above is None else above
    if isinstance(value, str) or not low < number < float("inf"):
        limit = "" if above is None else f" above {above}"
        raise ValueError(f"{name} must be a finite number{limit}, got {value!r}")
    return number


def check_integer(value, name, least, most=None):
    """A count or an index as a Python int, or an error that says what was expected.

    Parameters
    ----------
    value : int
    name : str
    least : int
    most : int, optional

    Returns
    -------
    int

    Raises
    ------
    ValueError

    Examples
    --------
    >>> check_integer(4, "n", 1, 3)
    Traceback (most recent call last):
    ValueError: n must be an integer from 1 to 3, got 4
    """
    whole = hasattr(value, "__index__") and not isinstance(value, (bool, np.bool_)) \
        and getattr(value, "shape", ()) == ()
    if not whole or value < least or most is not None and value > most:
        limit = f", {least} or more" if most is None else f" from {least} to {most}"
        raise ValueError(f"{name} must be an integer{limit}, got {value!r}")
    return int(value)       # a NumPy int64 would turn float32 data into float64


def check_finite(x, what="the kernel matrix"):
    """The array `x`, or an error where it came out infinite or undefined.

    Parameters
    ----------
    x : array
        A result of finite numbers.
    what : str

    Returns
    -------
    array

    Raises
    ------
    ValueError

    Examples
    --------
    >>> import numpy as np
    >>> check_finite(np.array([np.inf]))                            # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: the kernel matrix overflows or is undefined: the data, or the parameters, are ...
    """
    xp = namespace(x)
    if not xp.all(xp.isfinite(x)):
        raise ValueError(f"{what} overflows or is undefined: the data, or the parameters, are too "
                         "large for this precision")
    return x


def as_solution(solution, names):
    """The parts of a Dual or a Primal: two matrices with one column for each singular value.

    Parameters
    ----------
    solution : (left, sigma, right)
    names : three str
        What the errors call them.

    Returns
    -------
    array, array, array
        (N, s), (s,), (M, s); s = 0 is allowed.

    Raises
    ------
    TypeError, ValueError
        As `as_array`, and if the numbers of columns differ.

    Examples
    --------
    >>> as_solution(([[1.0]], [2.0, 1.0], [[1.0]]), ("H_e", "sigma", "H_r"))
    Traceback (most recent call last):
    ValueError: H_e, sigma, H_r need one column for each sigma, got shapes (1, 1), (2,), (1, 1)
    """
    namespace(*solution)
    left, sigma, right = (x if 0 in getattr(x, "shape", ()) else as_array(x, name, ndim)
                          for x, name, ndim in zip(solution, names, (2, 1, 2)))
    if not left.shape[-1] == sigma.shape[0] == right.shape[-1]:
        raise ValueError(f"{', '.join(names)} need one column for each sigma, got shapes "
                         f"{tuple(left.shape)}, {tuple(sigma.shape)}, {tuple(right.shape)}")
    return left, sigma, right


def unit_rows(X):
    """Rows scaled to length 1; a row of zeros stays zero.

    Parameters
    ----------
    X : (..., N, d) array

    Returns
    -------
    (..., N, d) array

    Examples
    --------
    >>> import numpy as np
    >>> unit_rows(np.array([[3.0, 4.0], [0.0, 0.0]]))
    array([[0.6, 0.8],
           [0. , 0. ]])
    """
    xp = namespace(X)
    top = xp.max(xp.abs(X), axis=-1, keepdims=True)
    X = X / xp.where(top > 0.0, top, 1.0)           # first, or squares of 1e-200 and 1e200 are lost
    square = xp.sum(X * X, axis=-1, keepdims=True)
    return X / xp.sqrt(xp.where(square > 0.0, square, 1.0))


def to_device(x, where):
    """Array `x` on the CPU (NumPy) or on the GPU (CuPy): how a reader's numbers move.

    Parameters
    ----------
    x : array
    where : {"cpu", "gpu"}

    Returns
    -------
    array

    Raises
    ------
    ValueError
        If `where` is neither.
    TypeError
        If `x` is being differentiated: autograd works on the CPU only.
    ImportError
        If CuPy is not installed, or finds no CUDA libraries.
    RuntimeError
        If CuPy finds no GPU.

    Examples
    --------
    >>> to_device([1.0, 2.0], "cpu")
    array([1., 2.])
    """
    xp = namespace(x)
    if where not in ("cpu", "gpu"):
        raise ValueError(f"where must be 'cpu' or 'gpu', got {where!r}")
    if xp is anp:
        raise TypeError("autograd differentiates on the CPU: move arrays before or after it")
    if where == "cpu":
        return x.get() if xp.__name__ == "cupy" else np.asarray(x)
    try:
        import cupy
    except ImportError as error:
        raise ImportError("a GPU needs CuPy: pip install 'ksvd_ref[cuda13]' (or cuda12)") from error
    if not cupy.is_available():
        raise RuntimeError("CuPy is installed but finds no CUDA GPU: see nvidia-smi")
    try:
        cupy.cuda.cusolver                          # loaded when named: here, not at the first svd
    except ImportError as error:
        raise ImportError("CuPy finds a GPU but no CUDA libraries: pip install 'cupy-cuda13x[ctk]' "
                          "(or cupy-cuda12x), or install a CUDA toolkit") from error
    return cupy.asarray(x)
