"""The house: imports run one way, dual and primal never meet, nothing heavy loads by itself."""
import ast
from pathlib import Path

import pytest

import ksvd_ref

PACKAGE = Path(ksvd_ref.__file__).parent
FLOOR = {"backend", "inputs", "linalg"}
DERIVATION = FLOOR | {"kernels", "features", "dual", "triangles", "primal"}
ALLOWED = {             # module -> what it may import of ours
    "backend": set(), "inputs": {"backend"}, "linalg": {"backend", "inputs"},
    **dict.fromkeys(("kernels", "features", "dual", "triangles"), FLOOR),
    "primal": FLOOR | {"triangles"},
    **dict.fromkeys(("large", "nystrom"), DERIVATION),
    "solution": DERIVATION - {"kernels", "triangles"} | {"large"},
    "equations": DERIVATION - {"kernels", "triangles"} | {"solution"},
    "attention.filters": {"backend", "inputs"}, "attention.positions": {"backend", "inputs"},
    **dict.fromkeys(("attention.smoother", "attention.layer"),
                    FLOOR | {"attention.filters", "attention.positions"}),
    "attention.losses": FLOOR | {"attention.filters", "attention.layer"},
    "attention.gradients": FLOOR | {"attention.filters", "attention.layer", "attention.losses"},
    "attention.__init__": {"attention.filters", "attention.positions", "attention.smoother",
                           "attention.layer", "attention.losses", "attention.gradients"},
    "course.transformer": {"backend", "linalg", "attention.smoother", "attention.filters"},
    "course.training": {"inputs"},
    "course.datasets": set(), "course.plots": set(), "course.exercises": set(),
    "course.marking": {"course.exercises"},
    "course.formulas": {"course.index"},
    "course.typeset": {"course.formulas", "course.index", "course.notebooks"},
    "course.notebooks": {"course.exercises", "course.formulas", "course.index"},
    "course.book": {"course.formulas", "course.notebooks", "course.typeset"},
    "course.index": {"__init__"},       # and by it every module, whose docstrings it reads
    "course.__init__": set(),
    "command.__init__": set(), "command.frame": set(), "command.tables": {"command.frame"},
    "command.files": {"command.tables"},
    "command.matrix": {"command.__init__", "command.files", "inputs", "features", "kernels",
                       "solution"},
    "command.verify": {"command.frame", "command.matrix", "course.__init__", "backend", "features",
                       "kernels", "solution", "equations"},
    "command.lessons": {"course.__init__"},
    "command.main": {"__init__", "command.__init__", "course.__init__"},
    "__main__": {"command.main"}, "__init__": set(),
}


def path_of(name):
    return PACKAGE.joinpath(*name.split(".")).with_suffix(".py")


def imports(name):
    """(ours, others) that a module imports, inside functions too; ours as the table names them."""
    ours, others = set(), set()
    for node in ast.walk(ast.parse(path_of(name).read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            home = name.split(".")[:-node.level] + [node.module] * bool(node.module)
            for alias in node.names:        # of a module, a module, a wing, or the face of a wing
                ours.add(next(one for one in map(".".join, (
                    home, [*home, alias.name], [*home, alias.name, "__init__"],
                    [*home, "__init__"])) if one in ALLOWED))
        elif isinstance(node, ast.ImportFrom):
            others.add(node.module.split(".")[0])
        elif isinstance(node, ast.Import):
            others |= {alias.name.split(".")[0] for alias in node.names}
    return (ours | {"__init__"} if "ksvd_ref" in others else ours), others


def test_every_module_has_its_place():
    assert {".".join(path.relative_to(PACKAGE).with_suffix("").parts)
            for path in PACKAGE.rglob("*.py")} == set(ALLOWED)


@pytest.mark.parametrize("name", ALLOWED)
def test_imports_run_one_way(name):
    ours, others = imports(name)
    assert ours <= ALLOWED[name]
    assert "cupy" not in others or name == "backend"
    assert "matplotlib" not in others or name == "course.plots"
    assert not others & {"scipy", "sklearn", "torch"}


def test_dual_and_primal_exchange_arrays_and_nothing_else():
    for wing, other in ((("dual", "kernels"), {"primal", "features", "triangles"}),
                        (("primal", "features", "triangles"), {"dual", "kernels"})):
        assert not set().union(*(imports(name)[0] for name in wing)) & other


def test_the_map_names_every_module():
    for name in set(ALLOWED) - {"__main__", "command.main"}:
        wing, _, module = name.rpartition(".")
        above = getattr(ksvd_ref, wing) if wing else ksvd_ref
        if module == "__init__":
            assert not wing or wing in ksvd_ref.__doc__ and wing in ksvd_ref.__all__
        else:
            assert module in above.__doc__ and module in above.__all__
            assert getattr(above, module).__name__ == f"ksvd_ref.{name}"
    for above in (ksvd_ref, ksvd_ref.attention, ksvd_ref.course, ksvd_ref.command):
        with pytest.raises(AttributeError, match="no attribute 'magic'"):
            above.magic
