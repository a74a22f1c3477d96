"""Which library owns an array, what is refused at the door, and what the package never loads."""
import ast
import inspect
import sys
import types
from pathlib import Path

import array_api_strict as strict
import autograd.numpy as anp
import numpy as np
import pytest
from autograd import grad
from conftest import runs

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

@runs(*(("-W", "error", "-c",
         f"import sys, {imported}; print(*[m for m in {absent} if m in sys.modules])")
        for imported, absent in (
            ("ksvd_ref", ("numpy", "autograd", "cupy", "matplotlib")),
            ("ksvd_ref.dual, ksvd_ref.kernels, ksvd_ref.primal", ("cupy", "matplotlib")),
            ("ksvd_ref.dual, ksvd_ref.kernels", ("ksvd_ref.primal", "ksvd_ref.features")),
            ("ksvd_ref.primal, ksvd_ref.features", ("ksvd_ref.dual", "ksvd_ref.kernels")))))
def test_importing_does_not_load(ran):
    _, status, out, err = ran
    assert (out.strip(), err, status) == ("", "", 0)


def test_modules_load_when_they_are_named():
    assert ksvd_ref.dual.solve(ONE).sigma.shape == (2,)
    with pytest.raises(AttributeError, match="has no attribute 'golub'"):
        ksvd_ref.golub


FOLDER = Path(inspect.getfile(ksvd_ref)).parent
WINGS = ["backend", "inputs", "linalg", "kernels", "features", "dual", "triangles", "primal",
         "large", "nystrom", "attention.filters", "attention.positions", "attention.smoother",
         "attention.layer", "attention.losses", "attention.gradients"]

# Where a module may say np: everything else must come from namespace(...).
HOST = {
    "backend": "decides which library it is",
    "linalg._svd_vjp": "autograd runs derivatives on NumPy values",
    "linalg._eigh_vjp": "the same",
    "linalg.refuse_twice": "the same",
    "linalg.svd_core": "called by the derivatives only",
    "inputs": "makes arrays of lists and numbers",
    "triangles._traced_vjp": "derivative on NumPy values",
    "large._steps": "random numbers are drawn on the host",
    "nystrom.landmarks": "the same",
    "features.positive_random": "random numbers are drawn on the host",
    **dict.fromkeys(("attention.filters._age", "attention.positions.sinusoids",
                     "attention.positions.offset_table"), "made on the host, then moved"),
    **dict.fromkeys(("attention.positions.alibi", "attention.positions.bucketed",
                     "attention.positions.rotary"), "made on the host, then moved"),
    "attention.smoother._exponentials": "NumPy can overwrite, the standard cannot",
    "attention.filters._boolean": "a mask may be a list",
    "attention.layer.published_init": "random numbers are drawn on the host",
}
# Not shared by NumPy, CuPy, autograd and the standard, or with a wrong derivative.
BANNED = {"mT", "einsum", "concat", "concatenate", "norm", "svdvals", "vector_norm", "matrix_norm",
          "dot", "outer", "diagonal", "trace", "copy", "take", "flip", "lstsq", "pinv"}


@pytest.mark.parametrize("module", WINGS)
def test_portable_subset(module):
    """No name that one of the libraries lacks; np. only where the table above says why."""
    tree = ast.parse(FOLDER.joinpath(*module.split(".")).with_suffix(".py").read_text("utf-8"))
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
    assert {"random", "exp", "stack", "T"} <= found
