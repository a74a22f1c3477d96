"""NumPy inside, CuPy's refusals outside: runs the code paths of a GPU where there is none.

Only as true as its author: what it refuses was read in CuPy 14.2, what it computes is NumPy's.
Refused are NumPy arrays beside its own, implicit conversion to NumPy, `device=`, and the names that
CuPy lacks; decompositions return plain tuples, reductions 0-d arrays, and a decomposition that
fails returns garbage unless told to raise. `install()` puts it where `import cupy` finds it, and
COUNTS what costs time on a GPU whatever its size: arrays that are made, and waits for a number.
"""
import sys
import time
import types
from contextlib import contextmanager

import numpy as np

MISSING = {"vecdot", "unstack", "block", "errstate", "array_api"}
MISSING_LINALG = {"svdvals", "vector_norm", "matrix_norm", "vecdot", "diagonal", "trace", "outer",
                  "tensordot", "multi_dot"}
HOST = {"finfo", "iinfo", "isdtype", "result_type", "float32", "float64", "int32", "int64", "bool_",
        "inf", "nan", "pi", "newaxis"}


class ndarray:
    """An array that lives elsewhere."""

    __array_ufunc__ = None          # NumPy's operators answer NotImplemented, then Python raises

    def __init__(self, host):
        self._host = np.asarray(host)
        LIVE.append(self._host.nbytes)
        COUNTS["arrays"] += 1

    def __del__(self):
        LIVE.append(-self._host.nbytes)

    def __array__(self, *args, **kwargs):
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()` "
                        "to construct a NumPy array explicitly.")

    shape = property(lambda self: self._host.shape)
    ndim = property(lambda self: self._host.ndim)
    dtype = property(lambda self: self._host.dtype)
    size = property(lambda self: self._host.size)
    nbytes = property(lambda self: self._host.nbytes)
    T = property(lambda self: ndarray(self._host.T))

    def get(self):
        COUNTS["waits"] += 1
        return self._host.copy()

    def __getitem__(self, index):
        return ndarray(self._host[_host(index)])

    def __setitem__(self, index, value):
        self._host[_host(index)] = _host(value)

    def __len__(self):
        return len(self._host)

    def __bool__(self):
        return bool(self.get())

    def __float__(self):
        return float(self.get())

    def __int__(self):
        return int(self.get())

    def __index__(self):
        return self.get().__index__()


def _operator(name):
    def operator(self, *others):
        try:
            return ndarray(getattr(self._host, name)(*map(_host, others)))
        except _Foreign:
            return NotImplemented
    return operator


for _name in ("add sub mul truediv floordiv mod pow matmul and or xor lt le gt ge eq ne neg pos "
              "abs invert radd rsub rmul rtruediv rpow rmatmul").split():
    setattr(ndarray, f"__{_name}__", _operator(f"__{_name}__"))


class _Foreign(TypeError):
    pass


def _host(x):
    if isinstance(x, ndarray):
        return x._host
    if isinstance(x, (tuple, list)):
        return type(x)(map(_host, x))
    if isinstance(x, np.ndarray) and x.ndim:
        raise _Foreign(f"Unsupported type {type(x)}")
    return x


def _device(x):
    if isinstance(x, (np.ndarray, np.generic)):
        return ndarray(x)
    return tuple(map(_device, x)) if isinstance(x, tuple) else x


def _function(function):
    def call(*args, **keywords):
        if "device" in keywords:
            raise TypeError(f"{function.__name__}() got an unexpected keyword argument 'device'")
        keywords = {name: _host(value) for name, value in keywords.items()}
        with np.errstate(all="ignore"):
            return _device(function(*map(_host, args), **keywords))
    return call


def _silently(function):
    def call(*args, **options):
        try:
            return function(*args, **options)
        except np.linalg.LinAlgError:
            if RAISES[-1] == "raise":
                raise
            return np.full_like(args[-1], np.nan)
    call.__name__ = function.__name__
    return call


class _Module(types.ModuleType):
    def __init__(self, name, source, missing):
        super().__init__(name)
        self._source, self._missing = source, missing

    def __getattr__(self, name):
        if name.startswith("__") or name in self._missing:
            raise AttributeError(f"module '{self.__name__}' has no attribute '{name}'")
        thing = getattr(self._source, name)
        return thing if name in HOST or not callable(thing) else _function(thing)


class _Event:
    def record(self):
        self.at = time.perf_counter()

    def synchronize(self):
        pass


class _Pool:
    def used_bytes(self):
        total = sum(LIVE)
        LIVE[:] = [total]
        return total

    total_bytes = used_bytes

    def free_all_blocks(self):
        pass


LIVE = [0]
COUNTS = {"arrays": 0, "waits": 0}
RAISES = ["ignore"]             # the innermost errstate(linalg=...) is last


def install():
    """Make `import cupy` and `import cupyx` find the stand-in.

    Returns
    -------
    module
    """
    cupy, cupyx = _Module("cupy", np, MISSING), types.ModuleType("cupyx")
    cupy.linalg = _Module("cupy.linalg", np.linalg, MISSING_LINALG)
    for name in ("cholesky", "solve", "eigh", "svd", "qr"):
        setattr(cupy.linalg, name, _function(_silently(getattr(np.linalg, name))))
    cupy.ndarray, cupy.__version__ = ndarray, "stand-in"
    cupy.asarray = cupy.array = lambda x, dtype=None: ndarray(
        np.asarray(x._host if isinstance(x, ndarray) else x, dtype=dtype))
    cupy.is_available, cupy.show_config = lambda: True, lambda: print("a stand-in for CuPy")
    cupy.get_default_memory_pool = lambda pool=_Pool(): pool
    cupy.cuda = types.SimpleNamespace(
        Event=_Event, cusolver=None, get_elapsed_time=lambda a, b: 1e3 * (b.at - a.at),
        runtime=types.SimpleNamespace(getDeviceProperties=lambda n: {"name": b"no GPU"}),
        Device=lambda: types.SimpleNamespace(synchronize=lambda: None, compute_capability="0"))

    @contextmanager
    def errstate(linalg):
        RAISES.append(linalg)
        yield
        RAISES.pop()
    cupyx.errstate = errstate
    sys.modules.update({"cupy": cupy, "cupy.linalg": cupy.linalg, "cupyx": cupyx})
    return cupy
