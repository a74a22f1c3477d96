"""Which library owns an array, what is refused at the door, and what the package never loads."""
import ast
import inspect
import subprocess
import sys
import types
from pathlib import Path

import array_api_strict as strict
import autograd.numpy as anp
import numpy as np
import pytest
from autograd import grad
from conftest import BAD, assert_refused, refusals

import ksvd_ref
from ksvd_ref import backend

ONE = np.array([[1.0, 2.0], [3.0, 4.0]])


def traced(test):
    """Run test(box) while `box` is being differentiated."""
    def f(x):
        test(x)
        return anp.sum(x)
    return grad(f)(ONE)


# --- which library

@pytest.mark.parametrize("arrays, want", [
    ((ONE,), np), ((ONE, None, 2, 2.0, True), np), (([[1.0]], ONE), np), ((), np),
    ((np.float32(1.0), None), np), ((strict.asarray(ONE), 3.0), strict)])
def test_namespace(arrays, want):
    assert backend.namespace(*arrays) is want


def test_namespace_of_traced_arrays_and_constants():
    found = []
    traced(lambda x: found.extend(map(backend.namespace, (x, ONE, x, [x[0, 0], 1.0], x),
                                      (ONE, x, None, 2.0, [1.0]))))
    assert found == 5 * [anp]


def test_namespace_refuses_mixtures():
    with pytest.raises(TypeError, match="got array_api_strict and numpy.*to_device"):
        backend.namespace(ONE, strict.asarray(ONE))
    with pytest.raises(TypeError, match="got array_api_strict and numpy"):
        backend.namespace(strict.asarray(ONE), [[1.0]])     # a list is NumPy data
    with pytest.raises(TypeError, match="got array_api_strict and autograd.numpy"):
        traced(lambda x: backend.namespace(x, strict.asarray(ONE)))


@pytest.mark.parametrize("thing", ["text", {1.0}, {"a": 1}, 1j, object, range(3)])
def test_namespace_refuses_what_is_no_array(thing):
    with pytest.raises(TypeError, match=type(thing).__name__):
        backend.namespace(thing)


def test_namespace_knows_cupy_by_type(monkeypatch):
    """CuPy 14 has no __array_namespace__; the library is found among those already imported."""
    cupy = types.ModuleType("cupy")
    cupy.ndarray = type("ndarray", (), {"dtype": np.dtype("float32")})
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    gpu = cupy.ndarray()
    assert backend.namespace(gpu, 2.0) is cupy
    assert backend.like(gpu) == {"dtype": np.dtype("float32")}      # no device keyword there
    with pytest.raises(TypeError, match="got cupy and numpy"):
        backend.namespace(gpu, ONE)


def test_like_puts_a_new_array_beside(lib):
    x = lib.array(ONE)
    lib.keeps(lib.xp.zeros((2, 3), **backend.like(x)))


def test_like_of_a_traced_array():
    traced(lambda x: np.testing.assert_equal(backend.like(x), {"dtype": np.dtype("float64")}))


# --- what is let in

def test_as_matrix_keeps_library_dtype_and_device(lib):
    np.testing.assert_array_equal(lib.host(backend.as_matrix(lib.array(ONE), "K")), ONE)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8", "int32", "uint64"])
@pytest.mark.parametrize("xp", [np, strict])
def test_integers_and_booleans_become_float64(xp, dtype):
    got = backend.as_matrix(xp.asarray([[0, 1]], dtype=getattr(xp, dtype)))
    assert got.dtype == xp.float64
    np.testing.assert_array_equal(np.asarray(got), [[0.0, 1.0]])


@pytest.mark.filterwarnings("ignore:the matrix subclass")
@pytest.mark.parametrize("make", [np.asmatrix, np.ndarray.tolist, list, tuple])
def test_as_matrix_of_lists_and_np_matrix(make):
    got = backend.as_matrix(make(ONE))
    assert type(got) is np.ndarray          # a np.matrix would make * a matrix product
    np.testing.assert_array_equal(got, ONE)


def test_as_array_of_traced_entries_is_differentiable():
    x = np.array([3.0, 4.0])
    got = grad(lambda x: anp.sum(backend.as_matrix([[x[0], 2.0], [x[1], x[0]]]) ** 2))(x)
    np.testing.assert_array_equal(got, [12.0, 8.0])         # 2 * 2 * 3, 2 * 4


GOOD = {"as_array": (lambda K: backend.as_array(K, "K", ndim=2), {"K": ONE}),
        "as_matrix": (lambda K: backend.as_matrix(K, "K"), {"K": ONE}),
        "as_pair": (backend.as_pair, {"X": ONE, "Z": ONE})}


@pytest.mark.parametrize("call, good, name, kind", refusals(GOOD))
def test_bad_input_is_refused(call, good, name, kind):
    assert_refused(call, good, name, kind)


@pytest.mark.parametrize("kind", ["nan", "inf", "more-axes", "no-rows", "complex"])
def test_bad_input_of_another_library_is_refused(kind):
    spoil, error, word = BAD[kind]
    with pytest.raises(error, match="K"):
        backend.as_matrix(strict.asarray(spoil(ONE)), "K")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("entry", [(0, 0), (1, 0), (2, 4)])
def test_the_first_bad_entry_is_named(lib, value, entry):
    K = np.ones((3, 5))
    K[entry] = K[2, 4] = value
    with pytest.raises(ValueError, match=rf"entry \({entry[0]}, {entry[1]}\) of shape \(3, 5\)"):
        backend.as_matrix(lib.array(K), "K")


@pytest.mark.parametrize("data", [None, 3.0, [], [[]], np.zeros((3, 0)), [[1.0], [2.0, 3.0]]])
def test_no_matrix_at_all(data):
    with pytest.raises(ValueError):
        backend.as_matrix(data)


@pytest.mark.parametrize("dtype", ["longdouble", ">f8", "datetime64[s]", [("a", "f8")]])
def test_unusual_dtypes_are_refused(dtype):
    with pytest.raises(TypeError, match="must hold real numbers"):
        backend.as_matrix(np.zeros((2, 2), dtype=dtype))


def test_as_pair_names_both_shapes():
    with pytest.raises(ValueError, match=r"Phi and Psi .* got shapes \(2, 2\) and \(3, 1\)"):
        backend.as_pair(ONE, np.ones((3, 1)), ("Phi", "Psi"))


# --- parameters

@pytest.mark.parametrize("value", [2, 2.0, np.float64(2.0), np.float32(2.0), np.int64(2)])
def test_check_number_gives_a_python_float(value):
    got = backend.check_number(value, "gamma", above=0.0)
    assert type(got) is float and got == 2.0        # np.float64 would widen float32 data


@pytest.mark.parametrize("value", [0.0, -1, np.nan, np.inf, -np.inf, "2", None, 1j, [1.0, 2.0],
                                   10 ** 400], ids=str)
def test_check_number_refuses(value):
    with pytest.raises(ValueError, match=r"gamma must be a finite number above 0\.0, got"):
        backend.check_number(value, "gamma", above=0.0)


def test_check_number_without_a_limit():
    assert backend.check_number(-3, "coef0") == -3.0
    with pytest.raises(ValueError, match="coef0 must be a finite number, got inf"):
        backend.check_number(np.inf, "coef0")


@pytest.mark.parametrize("degree", [0, -1, 1.0, 1.5, "2", None, True])
def test_check_integer_refuses(degree):
    with pytest.raises(ValueError, match="degree must be an integer, 1 or more, got"):
        backend.check_integer(degree, "degree", 1)


# --- rows of length 1

@pytest.mark.parametrize("scale", [1.0, 1e-18, 1e18])       # squares leave the range of float32
def test_unit_rows(lib, rng, scale):
    X = rng.standard_normal((3, 4, 5))
    X[1, 2, :] = 0.0
    want = [[row / (np.linalg.norm(row) or 1.0) for row in block] for block in X]
    got = lib.host(backend.unit_rows(lib.array(scale * X)))
    np.testing.assert_allclose(got, want, rtol=0, atol=lib.tol)


@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_unit_rows_where_squares_leave_float64(scale):
    got = backend.unit_rows(scale * np.array([[3.0, 4.0]]))
    np.testing.assert_allclose(got, [[0.6, 0.8]], rtol=1e-15)


# --- moving data

def test_to_the_cpu():
    assert type(backend.to_device([[1.0]], "cpu")) is np.ndarray
    np.testing.assert_array_equal(backend.to_device(strict.asarray(ONE), "cpu"), ONE)


def test_to_nowhere():
    with pytest.raises(ValueError, match="where must be 'cpu' or 'gpu', got 'tpu'"):
        backend.to_device(ONE, "tpu")


def test_traced_arrays_stay():
    for where in ("cpu", "gpu"):
        with pytest.raises(TypeError, match="autograd differentiates on the CPU"):
            traced(lambda x: backend.to_device(x, where))


def test_no_cupy(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)          # import cupy raises ImportError
    with pytest.raises(ImportError, match=r"pip install 'ksvd_ref\[cuda13\]'"):
        backend.to_device(ONE, "gpu")


def test_cupy_without_a_gpu(monkeypatch):
    cupy = types.ModuleType("cupy")
    cupy.ndarray, cupy.is_available = type("ndarray", (), {}), lambda: False
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    with pytest.raises(RuntimeError, match="CuPy is installed but finds no CUDA GPU"):
        backend.to_device(ONE, "gpu")


def test_a_gpu_without_the_cuda_libraries(monkeypatch):
    """CuPy imports without them; what needs them is loaded, or fails, when it is named."""
    class Cuda:
        @property
        def cusolver(self):
            raise ImportError('Failure finding "libnvJitLink.so.13 or libnvJitLink.so.12"')
    cupy = types.ModuleType("cupy")
    cupy.ndarray, cupy.is_available, cupy.cuda = type("ndarray", (), {}), lambda: True, Cuda()
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    with pytest.raises(ImportError, match=r"no CUDA libraries: pip install 'cupy-cuda13x\[ctk\]'"):
        backend.to_device(ONE, "gpu")


def test_there_and_back(monkeypatch):
    cupy = types.ModuleType("cupy")
    cupy.ndarray = type("ndarray", (), {"__init__": lambda self, x: setattr(self, "x", x),
                                        "get": lambda self: self.x})
    cupy.is_available, cupy.asarray = lambda: True, cupy.ndarray
    cupy.cuda = types.SimpleNamespace(cusolver=None)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    gpu = backend.to_device(ONE, "gpu")
    assert type(gpu) is cupy.ndarray and backend.to_device(gpu, "cpu") is ONE


# --- the package as a whole

@pytest.mark.parametrize("imported, absent", [
    ("ksvd_ref", ("numpy", "autograd", "cupy", "matplotlib")),
    ("ksvd_ref.dual, ksvd_ref.kernels, ksvd_ref.primal", ("cupy", "matplotlib")),
    ("ksvd_ref.dual, ksvd_ref.kernels", ("ksvd_ref.primal", "ksvd_ref.features")),
    ("ksvd_ref.primal, ksvd_ref.features", ("ksvd_ref.dual", "ksvd_ref.kernels"))])
def test_importing_does_not_load(imported, absent):
    code = f"import sys, {imported}; print(*[m for m in {absent} if m in sys.modules])"
    run = subprocess.run([sys.executable, "-W", "error", "-c", code],
                         capture_output=True, text=True)
    assert (run.stdout.strip(), run.stderr, run.returncode) == ("", "", 0)


def test_modules_load_when_they_are_named():
    assert ksvd_ref.dual.solve(ONE).sigma.shape == (2,)
    with pytest.raises(AttributeError, match="has no attribute 'golub'"):
        ksvd_ref.golub


FOLDER = Path(inspect.getfile(ksvd_ref)).parent
WINGS = ["backend", "linalg", "kernels", "features", "dual", "primal", "nystrom"]

# Where a module may say np: everything else must come from namespace(...).
HOST = {
    "backend": "decides which library it is",
    "linalg._svd": "autograd runs primitives and their derivatives on NumPy values",
    "linalg._svd_vjp": "the same",
    "linalg._eigh": "the same",
    "linalg._eigh_vjp": "the same",
    "linalg.svd_core": "called by the derivatives only",
    "primal._traced_vjp": "derivative on NumPy values",
    "dual._golub_kahan": "random numbers are drawn on the host",
    "nystrom.landmarks": "the same",
    "features.positive_random": "random numbers are drawn on the host",
}
# Not shared by NumPy, CuPy, autograd and the standard, or with a wrong derivative.
BANNED = {"mT", "einsum", "concat", "concatenate", "norm", "svdvals", "vector_norm", "matrix_norm",
          "dot", "outer", "diagonal", "trace", "copy", "take", "flip", "lstsq", "pinv"}


@pytest.mark.parametrize("module", WINGS)
def test_portable_subset(module):
    """No name that one of the libraries lacks; np. only where the table above says why."""
    tree = ast.parse((FOLDER / f"{module}.py").read_text(encoding="utf-8"))
    attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    assert not {a.attr for a in attributes} & BANNED
    for definition in tree.body:
        name = f"{module}.{getattr(definition, 'name', '')}"
        np_names = {f"np.{a.attr}" for a in ast.walk(definition) if isinstance(a, ast.Attribute)
                    and isinstance(a.value, ast.Name) and a.value.id == "np"}
        if module not in HOST and name not in HOST:
            assert not np_names, f"{name} uses {np_names}"


def test_the_audit_sees():
    """The names that the audit looks for are found where they are known to be."""
    tree = ast.parse((FOLDER / "features.py").read_text(encoding="utf-8"))
    found = {a.attr for a in ast.walk(tree) if isinstance(a, ast.Attribute)}
    assert {"random", "log", "stack", "T"} <= found
