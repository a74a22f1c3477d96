"""Every name and keyword that the package takes from `xp`, looked up in each of the libraries.

No GPU is needed: CuPy imports without one, and a name that it lacks is found here, not by the first
user who has one. What a name computes there is what tests/gpu_check.py is for.
"""
import ast
import functools
import inspect
import json
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import autograd.numpy as anp
import pytest
from autograd.core import primitive_vjps
from conftest import runs

import ksvd_ref

FOLDER = Path(ksvd_ref.__file__).parent
LIBRARIES = ["numpy", "autograd.numpy", "array_api_strict", "cupy"]

# Not differentiated by autograd, and why that is right.
UNTRACED = {
    **dict.fromkeys(["float32", "float64", "finfo", "isdtype", "__name__"], "types, not values"),
    **dict.fromkeys(["arange", "zeros", "ones", "eye", "zeros_like", "ones_like"], "constants"),
    **dict.fromkeys(["all", "any", "isfinite", "argmax", "count_nonzero"], "steps have no slope"),
    **dict.fromkeys(["asarray", "array"], "at the boundary, or of random numbers"),
    "linalg.qr": "inside primal._traced, whose derivative is written out",
    "linalg.eigh": "linalg._eigh has a derivative that is right at ties",
    "linalg.svd": "linalg._svd has a derivative that is right at ties",
    "take": "inside functions whose derivative is written out",
    "take_along_axis": "inside functions whose derivative is written out",
}
# Names that a library may lack, because another never gets there.
ELSEWHERE = {("array_api_strict", "array"): "backend.as_array: lists are NumPy's or autograd's"}


@functools.cache
def uses(source):
    """{(name, keyword names)} of all that is taken from xp or from namespace(...)."""
    found, called = set(), {}
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called[id(node.func)] = tuple(sorted(k.arg for k in node.keywords if k.arg))
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and id(node) not in inner:
            names, root = [], node
            while isinstance(root, ast.Attribute):
                names.insert(0, root.attr)
                root = root.value
            if isinstance(root, ast.Call):
                root = root.func
                root = root if getattr(root, "id", "") == "namespace" else None
            if getattr(root, "id", "") in ("xp", "namespace"):
                while names[0] != "linalg" and len(names) > 1:      # xp.finfo(...).eps ends there
                    names.pop()
                found.add((".".join(names), called.get(id(node), ())))
    return found


def problems(source, library):
    """What a library lacks of `source`, in words."""
    xp, found = import_module(library), []
    for name, keywords in sorted(uses(source)):
        if (library, name) in ELSEWHERE:
            continue
        thing = xp
        for part in name.split("."):
            thing = getattr(thing, part, None)
        if thing is None:
            found.append(f"{library} has no {name}")
            continue
        try:
            parameters = inspect.signature(thing).parameters
        except (TypeError, ValueError):                     # a ufunc or a type takes what it takes
            parameters = {}
        if parameters and not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
            found += [f"{library}.{name} takes no {k}=" for k in keywords if k not in parameters]
        if library == "autograd.numpy" and name not in UNTRACED and callable(thing):
            composed = getattr(thing, "__module__", "").startswith("autograd.numpy")
            if thing not in primitive_vjps and not composed:
                found.append(f"autograd has no derivative of {name}")
    return found


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("module", sorted(".".join(path.relative_to(FOLDER).with_suffix("").parts)
                                          for path in FOLDER.rglob("*.py")))
def test_every_name_exists(module, library):
    if not find_spec(library):
        pytest.skip(f"{library} is not installed: pip install -e '.[cuda13]' needs no GPU")
    source = (FOLDER / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8")
    assert problems(source, library) == []


PLANTED = """
def f(x, y):
    xp = namespace(x, y)
    A = xp.einsum("ij->ji", x)
    B = xp.linalg.vector_norm(x)
    C = xp.argsort(x, descending=True)
    D = xp.eye(3, device=x.device)
    E = namespace(x).clip(x, min=0.0)
    F = xp.flip(x)
    G = xp.linalg.eigh(x, UPLO="U")
    return xp.sum(x, axis=0, keepdims=True) + float(xp.finfo(x.dtype).eps)
"""


@pytest.mark.parametrize("library, want", [
    ("numpy", set()),
    ("array_api_strict", {"array_api_strict has no einsum",
                          "array_api_strict.linalg.eigh takes no UPLO="}),
    ("autograd.numpy", {"autograd has no derivative of argsort",
                        "autograd has no derivative of flip",
                        "autograd has no derivative of linalg.vector_norm"}),
    ("cupy", {"cupy has no linalg.vector_norm", "cupy.argsort takes no descending=",
              "cupy.clip takes no min=", "cupy.eye takes no device="})])
def test_the_audit_can_fail(library, want):
    """On a file with these mistakes it finds them, and leaves what is right alone."""
    if not find_spec(library):
        pytest.skip(f"{library} is not installed: pip install -e '.[cuda13]' needs no GPU")
    found = problems(PLANTED, library)
    assert want <= set(found)
    assert not any(problem.endswith((" sum", "finfo")) for problem in found)


def test_uses():
    """Chains, keywords, calls of namespace: and nothing that is not the library's."""
    assert uses(PLANTED) == {
        ("einsum", ()), ("linalg.vector_norm", ()), ("argsort", ("descending",)),
        ("eye", ("device",)), ("clip", ("min",)), ("flip", ()), ("linalg.eigh", ("UPLO",)),
        ("sum", ("axis", "keepdims")), ("finfo", ())}
    assert uses("np.exp(x); self.xp; x.xp.y") == set()
    total = set().union(*(uses(path.read_text(encoding="utf-8")) for path in FOLDER.rglob("*.py")))
    assert len(total) > 30 and ("linalg.svd", ("full_matrices",)) in total


def test_exceptions_are_needed():
    """What autograd can differentiate after all leaves the list, but for derivatives of our own."""
    for name in set(UNTRACED) - {"__name__", "linalg.svd", "linalg.eigh", "ones_like",
                                 "zeros_like"}:
        thing = anp
        for part in name.split("."):
            thing = getattr(thing, part)
        assert thing not in primitive_vjps, name


def with_stand_in(code):
    """The command that runs `code` with tests/ at hand."""
    here = Path(__file__).parent
    return "-c", ("import os, sys; os.environ['OPENBLAS_NUM_THREADS'] = '1'\n"
                  f"sys.path[:0] = [{str(here)!r}, {str(here.parent)!r}]\n{code}")


def gpu_check(code=""):
    """tests/gpu_check.py in a dry run."""
    return with_stand_in(f"sys.argv[1:] = ['--dry-run']; import gpu_check\n{code}\n"
                         "sys.exit(gpu_check.main())")


@runs(gpu_check())
def test_gpu_check_in_a_dry_run(ran):
    """Its logic, on a stand-in for CuPy that refuses what CuPy refuses: every line passes."""
    _, status, out, err = ran
    assert status == 0, out + err
    for line in ("public functions, float64", "refused: NumPy beside CuPy", "factors of ten bits",
                 "bytes left by 20 calls", "directional derivative", "0 failed"):
        assert line in out


SHORT = "gpu_check.memory = gpu_check.launches = gpu_check.times = lambda *_: None\n"


@pytest.mark.parametrize("ran, line", [(gpu_check(SHORT + code), line) for code, line in [
    ("from ksvd_ref import kernels as k; f = k.rbf\n"          # wrong, but only on the GPU
     "k.rbf = lambda X, Z: f(X, Z) * (1.0 + 1e-6 * (type(X).__module__ == 'cupy_stand_in'))",
     "FAIL  kernels.rbf float64: off by"),
    ("from ksvd_ref import kernels as k; f = k.rbf\n"          # float64 where float32 was given
     "k.rbf = lambda X, Z: f(X * __import__('numpy').float64(1.0), Z)",
     "FAIL  kernels.rbf float32: came back as"),
    ("from ksvd_ref import primal as p; f = p.gradient\n"      # the CPU asked behind our back
     "p.gradient = lambda *a: tuple(map(__import__('numpy').asarray, f(*a)))",
     "Implicit conversion"),
    ("from ksvd_ref import dual as d\nd.extra = lambda x: x; d.extra.__module__ = d.__name__",
     "FAIL  public functions without a check: dual.extra"),
    ("gpu_check.product_error = None", "FAIL  tf32: TypeError"),
    ("from ksvd_ref.attention import smoother as s; f = s.weights\n"
     "s.weights = lambda Q, K, **kernel: f(Q, K, **kernel) + 1e-6 * ("
     "type(Q).__module__ == 'cupy_stand_in')", "FAIL  attention.smoother.weights float64: off by"),
    ("gpu_check.TF32_LIMIT = 1e-3", "FAIL  the detector sees factors of ten bits")]],
    indirect=["ran"],
    ids=["wrong value", "float64 from float32", "a trip to the host", "a function without a check",
         "a check that breaks", "wrong value in attention", "a detector that cannot detect"])
def test_gpu_check_can_fail(ran, line):
    _, status, out, err = ran
    assert status == 1 and line in out, out + err


# What grows with the size, and why; all other public functions wait and ask for arrays as often at
# any size: on a GPU each costs some ten microseconds.
GROW = {"kernels.gram": "calls the reader's function once for each entry",
        "large.golub_kahan": "builds blocks until the residual is small",
        "attention.layer.running_mean": "sums of sums of 64 rows: a level for each power of 64"}


@runs(with_stand_in(
    "import json, gpu_check; print(json.dumps([gpu_check.counts(n) for n in (64, 512)]))"))
def test_waits_and_arrays_on_a_gpu(ran):
    """Finiteness is looked at once for all arguments and once for the result; no loop is over rows.

    Most waits at n = 64 that are not such a look: ranks, gates, signs, padding, ranges of squares.
    """
    _, status, out, err = ran
    assert status == 0, out + err
    small, large = json.loads(out)
    assert {name for name in small if small[name] != large[name]} == set(GROW) - {"kernels.gram"}
    waits, arrays = ({name: found[i] for name, found in large.items() if name not in GROW}
                     for i in (0, 1))
    assert max(arrays.values()) <= 130, max(arrays.items(), key=lambda x: x[1])
    assert {name: n for name, n in waits.items() if n > 9} == {
        "attention.gradients.approximation_loss_vjp": 16}
    assert large["attention.layer.running_mean"][0] == small["attention.layer.running_mean"][0] == 2
    assert large["large.golub_kahan"][0] <= 6 * 10              # 10 blocks, 4 looks each and a few


LESSON = FOLDER.parent / "tutorials" / "15_the_same_code_on_a_gpu.py"


@pytest.mark.skipif(not LESSON.exists(), reason="the tutorials are in a clone, not in the package")
@runs(with_stand_in(f"import cupy_stand_in, runpy; cupy_stand_in.install()\n"
                    f"runpy.run_path({str(LESSON)!r}, run_name='__main__')"))
def test_lesson_15_where_there_is_a_gpu(ran):
    """Its GPU cells, which are skipped elsewhere, on the stand-in."""
    _, status, out, err = ran
    assert status == 0 and "sigma on GPU and CPU" in out and "skipped" not in out, out + err


@runs(with_stand_in(
    "import cupy_stand_in, numpy as np; cupy = cupy_stand_in.install()\n"
    "def failed(*args, **options): raise np.linalg.LinAlgError('no convergence')\n"
    "failed.__name__ = 'svd'\n"
    "cupy.linalg.svd = cupy_stand_in._function(cupy_stand_in._silently(failed))\n"
    "from ksvd_ref import dual\ndual.solve(cupy.asarray(np.eye(3)))"))
def test_a_decomposition_that_fails_on_a_gpu_raises(ran):
    """CuPy answers a failure of cuSOLVER with garbage unless it is told to raise."""
    _, status, _, err = ran
    assert status == 1 and "LinAlgError: no convergence" in err, err


@runs(*(with_stand_in(
    "import cupy_stand_in; cupy = cupy_stand_in.install()\n"
    "from ksvd_ref import linalg\n"
    "class A(cupy.ndarray):\n    def __init__(self): pass\n"
    f"    __del__, shape = lambda self: None, {shape}\n"
    "linalg.svd(A())") for shape in [(50_000, 10), (10, 46_341), (17_000, 17_000)]))
def test_an_svd_that_is_too_large_for_cupy_is_refused(ran):
    """Before it starts, with the way to take."""
    _, status, _, err = ran
    assert status == 1 and "counts in 32 bits" in err and "large.golub_kahan" in err, err
