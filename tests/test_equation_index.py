"""The index cannot lie: no tag without code, test and lesson; no function without tag or reason."""
import ast
import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest
from autograd.extend import primitive

from ksvd_ref import equations, linalg
from ksvd_ref.command import main
from ksvd_ref.course import index
from ksvd_ref.inputs import arrays

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
ENTRIES = {entry.tag: entry for entry in index.entries()}
LESSONS = index.cells()
TREES = {path.name: ast.parse(path.read_text("utf-8")) for path in (ROOT / "tests").glob("*.py")}
WORKS = ("derived", "textbook", "Ainslie et al. 2023", "Baldi and Hornik 1989",
         "Chen et al. 2023", "Cheng 1995", "Child et al. 2019",
         "Choromanski et al. 2021", "Dai et al. 2019", "Eckart and Young 1936", "Fan 1992",
         "Fukunaga and Hostetler 1975", "Henry et al. 2020", "Huang et al. 2018",
         "Katharopoulos et al. 2020", "Lanczos 1958", "Miller 2023", "Press et al. 2022",
         "Raffel et al. 2020", "Ramsauer et al. 2021", "Shaw et al. 2018", "Shazeer 2019",
         "Su et al. 2021", "Suykens 2016", "Tao et al. 2023", "Tao et al. 2024", "Tsai et al. 2019",
         "Ueda and Nakano 1996", "Vaswani et al. 2017", "Ye et al. 2024")
SEEN = {"Chen et al. 2023, Remark 3.3", "Chen et al. 2023, abstract",       # in the papers
        "Tsai et al. 2019, Definition 1", "Tsai et al. 2019, equation (9)"}
each = pytest.mark.parametrize("tag", ENTRIES)


def asserts(tree, helpers=()):
    """Whether code asserts: itself, by numpy.testing, by pytest.raises, by one of the helpers."""
    called = {getattr(node.func, "attr", getattr(node.func, "id", ""))
              for node in ast.walk(tree) if isinstance(node, ast.Call)}
    return (any(isinstance(node, ast.Assert) for node in ast.walk(tree))
            or any(name.startswith("assert_") or name in ("raises", "warns") for name in called)
            or bool(called & set(helpers)))


HELPERS = {node.name for tree in TREES.values() for node in tree.body
           if isinstance(node, ast.FunctionDef) and asserts(node)}


# Tags that carry no story: their test and the index have them, no page does.
SMALL_PRINT = set("""
    K.8 K.9 K.13 K.19 K.23 K.34 K.40 V4 V6 V18 V24 V28 V29 V32 V36 V38 V41 V42 V43 S.4 S.10 S.25
    S.26 S.29 S.34 S.35 S.38 D6 D10 D11 D13 D19 D21 D23 D29 D30 D33 D34 D36 D37 D38 D39
    """.split())


def is_code(cell):
    return "[markdown]" not in cell.partition("\n")[0]


@each
def test_a_tag_has_statement_source_and_test_and_a_lesson_that_asserts_it(tag):
    its_statement_and_its_source(tag)
    its_tests(tag)
    its_lessons(tag)


def its_statement_and_its_source(tag):
    entry = ENTRIES[tag]
    where = f"the docstring of {entry.functions[0]}" if entry.functions else f"its line `{tag}. `"
    assert entry.statement, f"{tag}: begin a line of a test's docstring with `{tag}. ` and the " \
        "statement, and no other tag"
    assert entry.source, f"{tag}: write `Source: ...` into {where}, at the end of a paragraph"
    for part in entry.source.split("; "):
        work = part.removeprefix("code of ").removesuffix(", by name")
        assert work in WORKS or part in SEEN, f"{tag}: {part}: a work of the list in this test, " \
            "with a place in it only where that was seen"


def its_tests(tag):
    entry = ENTRIES[tag]
    assert entry.tests, f"{tag}: begin the docstring of the test that shows it with `{tag}. `"
    for test in entry.tests:
        name, function = test.split("::")
        node, = (node for node in TREES[name].body if getattr(node, "name", "") == function)
        assert asserts(node, HELPERS), f"{tag}: {test} asserts nothing"


def its_lessons(tag):
    entry, shown = ENTRIES[tag], []
    assert bool(entry.lessons) == (tag not in SMALL_PRINT), f"{tag}: name it in the lesson that " \
        "shows it, at the assertion, or among those that carry no story"
    if tag in SMALL_PRINT:
        return
    for number, _ in entry.lessons:
        cells = LESSONS[number]
        for n, cell in enumerate(cells):
            if tag in index.named(cell):
                here = [cell] * is_code(cell) + [c for c in cells[n + 1:] if is_code(c)][:1]
                shown += [code for code in here if asserts(ast.parse(code))]
    assert shown, f"{index.text(entry)}\nno lesson asserts in a cell that names {tag}, or in the " \
        "next code cell: name it there"


def test_no_tag_without_an_entry():
    for path in [ROOT / "README.md", *ROOT.glob("ksvd_ref/**/*.py"),
                 *ROOT.glob("tutorials/**/*.py"), *ROOT.glob("tests/*.py")]:
        if path.name != Path(__file__).name:
            unknown = index.named(path.read_text("utf-8")) - set(ENTRIES)
            assert not unknown, f"{path.name} names {unknown}: no function's summary has this " \
                "tag, and no test's docstring begins a line with it"


def test_no_public_function_without_a_tag_or_a_reason():
    missing = [name for name, reason in index.untagged().items() if not reason]
    assert not missing, f"{missing}: write a tag into the summary, `(Eq. K.12)`, or a line " \
        "`No equation: why.` into the docstring of the function or of its module"
    tagged = {name for entry in ENTRIES.values() for name in entry.functions}
    modules = {".".join(path.relative_to(ROOT / "ksvd_ref").with_suffix("").parts): path
               for path in (ROOT / "ksvd_ref").rglob("*.py") if path.name[0] != "_"}
    assert set(modules) - {"command.main"} == set(index.MODULES)
    public = {f"{module}.{node.name}" for module in index.MODULES
              for node in ast.parse(modules[module].read_text("utf-8")).body
              if isinstance(node, ast.FunctionDef) and node.name[0] != "_"}
    assert tagged | set(index.untagged()) == public and not tagged & set(index.untagged())


def test_a_source_is_said_once_or_the_same_everywhere():
    for entry in ENTRIES.values():
        for name in entry.functions:
            module, function = name.rsplit(".", 1)
            doc = getattr(import_module(f"ksvd_ref.{module}"), function).__doc__
            said = re.findall(r"Source: (.+?)\.\s*(?:\n\s*\n|\Z)", doc, re.S)
            assert said in ([], [entry.source]), f"{entry.tag}: {name} has another source"


@pytest.mark.parametrize("wrap", [lambda function: function, primitive, arrays(K="N M")],
                         ids=["plain", "primitive", "arrays"])
def test_a_function_is_found_through_what_wraps_it(monkeypatch, wrap):
    def planted(K):
        """Any matrix, K = K (Eq. K.999), itself. Source: textbook."""

    def bare(K):
        """No equation: it is in K.12, as it was."""

    for function in (planted, bare):
        function.__module__ = "ksvd_ref.linalg"
        monkeypatch.setattr(linalg, function.__name__, wrap(function), raising=False)
    entry, = (entry for entry in index.entries() if entry.tag == "K.999")
    assert entry == ("K.999", "Any matrix, K = K", "textbook", ("linalg.planted",), (), ())
    assert index.untagged()["linalg.bare"] == "it is in K.12, as it was"


def test_what_a_decorator_writes_is_no_part_of_statement_and_source():
    """`@arrays` puts a paragraph behind the summary."""
    decorated = [function for _, function, _ in index._functions() if hasattr(function, "axes")]
    assert len(decorated) > 30
    for function in decorated:
        plain = inspect.unwrap(function)
        said = "What is refused: ksvd_ref.inputs"
        assert said in function.__doc__ and said not in plain.__doc__
        for read in (index._tags, index._said, index._reason):
            assert read(function) == read(plain)


def test_statements_are_those_of_the_command(capsys):
    assert main.main(["equations"]) == 0
    out = capsys.readouterr().out
    assert re.findall(r"^(\w\S*)", out, re.M) == list(ENTRIES)
    assert max(map(len, out.splitlines())) <= 100
    for function in equations.EQUATIONS:
        tag, statement, source = equations.describe(function)
        assert f"{tag:6}{statement}\n      {source} · " in out
        assert ENTRIES[tag].tests[-1] == index.EVERY and len(ENTRIES[tag].functions) > 0


def test_the_order_is_that_of_the_derivation():
    kinds = [re.match("[A-Z]+", tag)[0] for tag in ENTRIES]
    assert list(dict.fromkeys(kinds)) == ["K", "EY", "V", "S", "D"] and len(ENTRIES) > 130
    for kind in "KVSD":
        numbers = [int(tag.lstrip("KVSD.")) for tag, k in zip(ENTRIES, kinds) if k == kind]
        assert numbers == sorted(set(numbers))


def test_readme_is_up_to_date(tmp_path):
    assert index.renewed(README) == README, "README.md's index is of another time, renew it: " \
        "python -m ksvd_ref equations --into README.md"
    page = tmp_path / "page.md"
    page.write_text(f"# Before\n{index.BEGIN}\nold\n{index.END}\nafter\n", "utf-8")
    assert main.main(["equations", "--into", str(page)]) == 0
    text = page.read_text("utf-8")
    assert text.startswith("# Before\n") and text.endswith("\nafter\n")
    assert "\nold\n" not in text and index.table(ENTRIES.values()) in text
    assert index.renewed(text) == text


def test_some_entries_and_unknown_ones(capsys, tmp_path):
    assert main.main(["equations", "V5", "K.12"]) == 0
    assert capsys.readouterr().out == "".join(f"{index.text(ENTRIES[tag])}\n"
                                              for tag in ("V5", "K.12"))
    assert "| — |" in index.table([ENTRIES["V5"]]).splitlines()[2]  # no function: its test is code
    page = tmp_path / "page.md"
    page.write_text("# No place")
    for argv, message in ((["K.99", "V5"], "K.99: no such tag"),
                          (["--into", str(page)], "two lines expected"),
                          (["--into", str(tmp_path / "none.md")], "No such file")):
        assert main.main(["equations", *argv]) == 2
        out, err = capsys.readouterr()
        assert not out and message in err and err.count("\n") == 1


def test_without_a_clone(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(index, "ROOT", tmp_path)                    # as pip leaves it
    found = {entry.tag: entry for entry in index.entries()}
    assert found == {tag: entry._replace(lessons=(), tests=()) for tag, entry in ENTRIES.items()
                     if entry.functions}
    assert main.main(["equations"]) == 0
    assert capsys.readouterr().out.endswith("are beside the package in a clone.\n")


@pytest.mark.parametrize("number", LESSONS)
def test_cells_are_those_of_jupytext(number):
    jupytext = pytest.importorskip("jupytext", reason="the extra `book` counts the cells anew")
    path, = ROOT.glob(f"tutorials/{number}_*.py")
    cells = jupytext.reads(path.read_text("utf-8"), fmt="py:percent").cells
    assert len(cells) == len(LESSONS[number])
    for entry in ENTRIES.values():
        first = [n for n, cell in enumerate(cells, 1) if entry.tag in index.named(cell.source)][:1]
        assert [cell for lesson, cell in entry.lessons if lesson == number] == first


def test_every_lesson_is_in_the_reading_order():
    lessons = {path.name for path in (ROOT / "tutorials").glob("[0-9]*.py")}
    rows = re.findall(r"^\| \[.*?\]\(tutorials/(.*?)\) \| (\d+) \|", README, re.M)
    assert {name for name, _ in rows} == lessons
    for name, minutes in rows:
        assert f"{minutes} minutes" in (ROOT / "tutorials" / name).read_text()


def test_links_lead_somewhere():
    for target in re.findall(r"\]\((?!https?:)(.*?)\)", README):
        path, _, heading = target.partition("#")
        assert (ROOT / path).exists(), target
        assert not heading or f"## {heading.replace('-', ' ')}\n" in README.lower(), target
