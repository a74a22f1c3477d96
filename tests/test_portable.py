"""Every name and keyword that the package takes from `xp`, looked up in each of the libraries.

No GPU is needed: CuPy imports without one, and a name that it lacks is found here, not by the first
user who has one. What a name computes there is what tests/gpu_check.py is for.
"""
import ast
import inspect
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import autograd.numpy as anp
import pytest
from autograd.core import primitive_vjps

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
@pytest.mark.parametrize("module", sorted(path.stem for path in FOLDER.glob("*.py")))
def test_every_name_exists(module, library):
    if not find_spec(library):
        pytest.skip(f"{library} is not installed: pip install -e '.[cuda13]' needs no GPU")
    source = (FOLDER / f"{module}.py").read_text(encoding="utf-8")
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
    total = set().union(*(uses(path.read_text(encoding="utf-8")) for path in FOLDER.glob("*.py")))
    assert len(total) > 30 and ("linalg.svd", ("full_matrices",)) in total


def test_exceptions_are_needed():
    """What autograd can differentiate after all leaves the list, but for derivatives of our own."""
    for name in set(UNTRACED) - {"__name__", "linalg.svd", "linalg.eigh", "ones_like",
                                 "zeros_like"}:
        thing = anp
        for part in name.split("."):
            thing = getattr(thing, part)
        assert thing not in primitive_vjps, name
