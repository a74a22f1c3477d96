"""The index of the equations: what a tag says, whence it is, and the code, lesson and test of it.

Nothing is written down here. Everything is read from where it lives, so it is true or missing:

functions    the tag is in the summary of their docstring, `(Eq. K.12)` or `(claim V23)`
tests        a line of their docstring begins with the tag, `K.12, K.13. The sides cross.`
lessons      the first cell that names the tag, counted from 1 as Jupyter and jupytext count
statement    of the residual in equations.py; else the summary of the first function up to the tag;
             else, where the code of a statement is its test, the test's line, `V5. J = 0 is ...`
source       `Source: ...` in the same place, at the end of a paragraph; a test's line without one
             is derived here. "derived; X" is derived here from an idea of X, "code of X" is read in
             published code, "by name": X has the name, the formula is ours. A number of the paper
             is cited only where it was seen there; all other numbers are this project's

No equation: it lists them.
"""
import ast
import importlib
import inspect
import re
import textwrap
from pathlib import Path
from typing import NamedTuple

import ksvd_ref

ROOT = Path(__file__).parents[2]
MODULES = (*ksvd_ref.MODULES, *(f"{wing}.{name}" for wing in ksvd_ref.WINGS
                                for name in getattr(ksvd_ref, wing).MODULES))
TAG = r"(?<![\w.])(?:[KS]\.[1-9]\d*|[VD][1-9]\d*|EY)(?!\w|\.\d)"
EVERY = "test_equations.py::test_every_equation_holds"      # one test for all residuals
BEGIN = "<!-- The equation index: python -m ksvd_ref equations --into README.md -->"
END = "<!-- The end of the equation index. -->"


class Entry(NamedTuple):
    """All that is known of one tag."""

    tag: str
    statement: str
    source: str
    functions: tuple      # of "primal.from_dual"
    lessons: tuple        # of ("04", 3): number and cell
    tests: tuple          # of "test_primal.py::test_the_sides_cross", that of all residuals last


def entries():
    """The index, a list in the order of the derivation; without a clone neither lessons nor tests.

    >>> one = next(entry for entry in entries() if entry.tag == "K.12")
    >>> one.statement, one.functions[0]
    ('Wₑ = Ψᵀ Hᵣ,  Wᵣ = Φᵀ Hₑ', 'primal.from_dual')
    """
    of_tag = {}
    for name, function, _ in _functions():
        for tag in _tags(function):
            of_tag.setdefault(tag, []).append((name, function))
    lines = [(test, *claim) for test, doc in docstrings().items() for claim in claims(doc)]
    shown = {number: [named(cell) for cell in texts] for number, texts in cells().items()}
    tags = set(of_tag).union(*(tags for _, tags, *_ in lines))
    return [_entry(tag, of_tag.get(tag, []), lines, shown) for tag in sorted(tags, key=_place)]


def untagged():
    """{name: why it has no tag}: `No equation:` in its docstring, or in that of its module, or "".

    >>> untagged()["course.index.entries"]
    'it lists them'
    """
    return {name: _reason(function) or _reason(module)
            for name, function, module in _functions() if not _tags(function)}


def cells():
    """{"04": the texts of its cells} for each lesson; empty without a clone."""
    return {number: re.split(r"^(?=# %%)", path.read_text("utf-8"), flags=re.M)[1:]
            for number, path in _lessons().items()}


def docstrings():
    """{"test_primal.py::test_the_sides_cross": its docstring or ""}; empty without a clone."""
    paths = sorted(ROOT.glob("tests/test_*.py")) if _lessons() else []
    return {f"{path.name}::{node.name}": ast.get_docstring(node) or ""
            for path in paths for node in ast.parse(path.read_text("utf-8")).body
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def named(text):
    """The set of tags in a text.

    >>> sorted(named("K.T @ H_e is in K.15 and V12, not in V0 or K.1.5"))
    ['K.15', 'V12']
    """
    return set(re.findall(TAG, text))


def claims(doc):
    """[(tags, statement, source)] of the lines of a test's docstring that begin with tags.

    >>> claims("V7. Heads cancel.\\n\\nS.34, D36. Mean shift climbs. Source: textbook.")
    [(['V7'], 'Heads cancel', 'derived'), (['S.34', 'D36'], 'Mean shift climbs', 'textbook')]
    """
    found = []
    for line in re.split(rf"^(?={TAG}(?:, {TAG})*\. )|\n\s*\n", doc, flags=re.M):
        match = re.match(rf"({TAG}(?:, {TAG})*)\. (.*)", line, re.S)
        if match:
            statement, _, source = " ".join(match[2].split()).partition(" Source: ")
            found.append((re.findall(TAG, match[1]), statement.removesuffix("."),
                          source.removesuffix(".") or "derived"))
    return found


def text(entry):
    """An entry as the command prints it, in at most 100 columns.

    >>> print(text(Entry("V7", "Heads cancel", "derived", (), (("04", 13),), ("test_a.py::test",))))
    V7    Heads cancel
          derived · lesson 04 cell 13 · test_a.py::test
    """
    where = [f"{'lesson ' * (n == 0)}{number} cell {cell}"
             for n, (number, cell) in enumerate(entry.lessons)]
    parts = [entry.source, *(", ".join(x) for x in (entry.functions, where, entry.tests) if x)]
    wrapped = (textwrap.wrap(line, 100, initial_indent=first, subsequent_indent=" " * 6,
                             break_long_words=False, break_on_hyphens=False)
               for first, line in ((f"{entry.tag:6}", entry.statement),
                                   (" " * 6, " · ".join(parts))))
    return "\n".join(line for lines in wrapped for line in lines)


def table(entries):
    """The index as a Markdown table with links, for README.md; without cells, which move often.

    >>> print(table([Entry("V7", "|J| falls", "derived", (), (), ("test_a.py::test_b",))]))
    | tag | statement | source | function | lesson | test |
    |---|---|---|---|---|---|
    | V7 | \\|J\\| falls | derived | — | — | [test_b](tests/test_a.py) |
    """
    files = {number: path.name for number, path in _lessons().items()}
    lines = ["| tag | statement | source | function | lesson | test |", "|" + "---|" * 6]
    for entry in entries:
        row = (entry.tag, entry.statement.replace("|", r"\|"), entry.source,
               ", ".join(f"`{name}`" for name in entry.functions),
               ", ".join(f"[{number}](tutorials/{files[number]})" for number, _ in entry.lessons),
               ", ".join("[{1}](tests/{0})".format(*test.split("::")) for test in entry.tests))
        lines.append("| " + " | ".join(cell or "—" for cell in row) + " |")
    return "\n".join(lines)


def renewed(page):
    """A page with the table of now between its two markers, BEGIN and END.

    >>> renewed("# A page")                                     # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: two lines expected between which the table goes, <!-- The equation index: ...
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"two lines expected between which the table goes, {BEGIN} and {END}")
    return f"{before}{begin}\n\n{table(entries())}\n\n{end}{after}"


def _lessons():
    """Number, such as "04", to the path of the lesson; empty without a clone."""
    return {path.name[:2]: path for path in sorted(ROOT.glob("tutorials/[0-9][0-9]_*.py"))}


def _functions():
    """(name, function, module) of every public function, in the order of the package."""
    for name in MODULES:
        module = importlib.import_module(f"ksvd_ref.{name}")
        for key, value in vars(module).items():
            own = getattr(value, "fun", value)      # of an autograd primitive, what it wraps
            if inspect.isfunction(own) and own.__module__ == module.__name__ and key[0] != "_":
                yield f"{name}.{key}", value, module


def _entry(tag, functions, lines, shown):
    """The Entry of a tag, from its functions, all lines of tests and the tags of each cell."""
    known = ksvd_ref.equations.EQUATIONS
    residual = next((function for _, function in functions if function in known), None)
    if residual:
        said = ksvd_ref.equations.describe(residual)[1:]
    elif functions:
        said = _said(functions[0][1])
    else:
        said = next((said for _, tags, *said in lines if tags == [tag]), ("", ""))
    lessons = ((number, [tag in tags for tags in of_cell]) for number, of_cell in shown.items())
    tests = [test for test, tags, *_ in lines if tag in tags] + [EVERY] * bool(residual and lines)
    return Entry(tag, *said, tuple(name for name, _ in functions),
                 tuple((number, 1 + has.index(True)) for number, has in lessons if True in has),
                 tuple(dict.fromkeys(tests)))


def _summary(function):
    return " ".join((inspect.getdoc(function) or "").split("\n\n")[0].split())


def _tags(function):
    match = re.search(r"\((?:Eq\.|claim) [^)]*", _summary(function))
    return re.findall(TAG, match[0]) if match else []


def _said(function):
    """Statement and source in a docstring; "" for a source that it does not name."""
    source = re.search(r"\bSource: (.+?)\.\s*(?:\n\s*\n|\Z)", inspect.getdoc(function), re.S)
    return (re.split(r"[ ,]*\((?:Eq\.|claim) ", _summary(function))[0],
            " ".join(source[1].split()) if source else "")


def _reason(of):
    match = re.search(r"\bNo equation: (.+?)\.(?:\s|\Z)", inspect.getdoc(of) or "", re.S)
    return " ".join(match[1].split()) if match else ""


def _place(tag):
    """Where a tag stands in the derivation: K, EY, V, S, D, each by number."""
    kind, number = re.fullmatch(r"([A-Z]+)\.?(\d*)", tag).groups()
    return ("K", "EY", "V", "S", "D").index(kind), int(number or 0)
