"""Arrays of NumPy, autograd and CuPy in one source: which library owns them, and where they live.

A body begins with xp = namespace(<every array>) and then writes xp.exp, xp.linalg.svd, ... in the
subset that all three libraries (and the array API standard) share.

No equation: it says where arrays live.
"""
import sys
from contextlib import contextmanager, nullcontext

import autograd.numpy as anp
import numpy as np
from autograd.extend import Box


def namespace(*arrays):
    """Library that owns the arrays: numpy, autograd.numpy, cupy or another of the standard.

    Pass *every* array: under autograd some are traced and some are constants, and one traced array
    is enough for autograd.numpy. Numbers and None fit any library, lists and tuples are NumPy data;
    without any array it is numpy. Arrays of two libraries are a TypeError.

    >>> namespace([[1.0, 2.0]], 3.0, None).__name__
    'numpy'
    """
    found = {_library(x) for x in arrays}
    found.discard(None)
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

    >>> import numpy as np
    >>> np.zeros(2, **like(np.ones(3, dtype="float32"))).dtype
    dtype('float32')
    """
    if hasattr(x, "__array_namespace__") and hasattr(x, "device"):
        return {"dtype": x.dtype, "device": x.device}
    return {"dtype": x.dtype}                       # CuPy and traced arrays take no device keyword


def on_gpu(xp):
    """Whether a library computes on a GPU, where many small products cost more than a large one.

    >>> on_gpu(np)
    False
    """
    return xp.__name__ == "cupy"


@contextmanager
def silent():
    """Context without NumPy's warnings and errors of arithmetic: who uses it looks at the result.

    A decomposition that fails raises: NumPy's always do, CuPy's when told.

    >>> import numpy as np
    >>> with silent():
    ...     np.square(np.array([1e200]))
    array([inf])
    """
    with np.errstate(all="ignore"), _loud():
        yield


def _loud():
    if "cupy" not in sys.modules:
        return nullcontext()
    import cupyx
    return cupyx.errstate(linalg="raise")


def to_device(x, where):
    """Array `x` on the "cpu" (NumPy) or on the "gpu" (CuPy): how a reader's numbers move.

    Masks of NumPy, and the tables that functions make on the host, are brought to the data.
    Refused: a traced array, since autograd works on the CPU only; the GPU where CuPy, its CUDA
    libraries (ImportError) or a GPU (RuntimeError) are missing.

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
