"""The house: imports run one way, dual and primal never meet, nothing heavy loads by itself."""
import ast
from pathlib import Path

import pytest

import ksvd_ref

PACKAGE = Path(ksvd_ref.__file__).parent
ALLOWED = {             # module -> what it may import of ours
    "backend": set(), "linalg": {"backend"}, "datasets": set(), "files": set(), "plots": set(),
    "kernels": {"backend", "linalg"}, "dual": {"backend", "linalg"},
    "features": {"backend", "linalg"}, "primal": {"backend", "linalg"},
    "equations": {"backend", "linalg", "kernels", "dual", "features", "primal"},
    "nystrom": {"backend", "linalg", "kernels", "dual", "features", "primal"},
    "filters": {"backend"}, "positions": {"backend"},
    "smoother": {"backend", "filters", "kernels"},
    "attention": {"backend"}, "encoder": {"backend", "smoother", "attention"}, "training": set(),
    "exercises": set(), "course": set(), "book": {"course", "index"},
    "index": {"__all__"},               # and by it every module, whose docstrings it reads
    "__main__": {"backend", "kernels", "features", "equations", "datasets", "files", "index",
                 "plots", "exercises", "course", "book"},
    "__init__": set(),
}


def imports(name):
    """(ours, others) that a module imports, inside functions too."""
    ours, others = set(), set()
    for node in ast.walk(ast.parse((PACKAGE / f"{name}.py").read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            ours |= {node.module} if node.module else {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            others.add(node.module.split(".")[0])
        elif isinstance(node, ast.Import):
            others |= {alias.name.split(".")[0] for alias in node.names}
    return ours, others


def test_every_module_has_its_place():
    assert {path.stem for path in PACKAGE.glob("*.py")} == set(ALLOWED)


@pytest.mark.parametrize("name", ALLOWED)
def test_imports_run_one_way(name):
    ours, others = imports(name)
    assert ours <= ALLOWED[name]
    assert "cupy" not in others or name == "backend"
    assert "matplotlib" not in others or name == "plots"
    assert not others & {"scipy", "sklearn", "torch"}


def test_dual_and_primal_exchange_arrays_and_nothing_else():
    for wing, other in ((("dual", "kernels"), {"primal", "features"}),
                        (("primal", "features"), {"dual", "kernels"})):
        assert not set().union(*(imports(name)[0] for name in wing)) & other


def test_the_map_names_every_module():
    for name in set(ALLOWED) - {"__init__", "__main__"}:
        assert name in ksvd_ref.__doc__ and name in ksvd_ref.__all__
        assert getattr(ksvd_ref, name).__name__ == f"ksvd_ref.{name}"
    with pytest.raises(AttributeError, match="no attribute 'magic'"):
        ksvd_ref.magic
