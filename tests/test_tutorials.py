"""Every lesson and every solution runs, from another folder, with warnings as errors."""
import ast
import re
import runpy
from pathlib import Path

import pytest
from conftest import runs

from ksvd_ref.course import exercises, index

TUTORIALS = Path(__file__).parents[1] / "tutorials"
LESSONS = sorted(TUTORIALS.glob("[0-9]*.py"))
SOLUTIONS = sorted((TUTORIALS / "solutions").glob("[0-9]*.py"))
name = lambda path: path.relative_to(TUTORIALS).as_posix()


@runs(*(("-W", "error", str(path)) for path in LESSONS), ids=map(name, LESSONS))
def test_a_lesson_runs(ran):
    """As a script, from another folder, in which it leaves nothing."""
    folder, status, out, err = ran
    assert status == 0, err
    assert out.count("\n") >= 2 and not err and not list(folder.iterdir())


@pytest.mark.parametrize("path", SOLUTIONS, ids=name)
def test_solutions_run(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out.count("\n") >= 2 and not list(tmp_path.iterdir())


def test_every_lesson_has_its_solutions():
    assert LESSONS and [path.name for path in LESSONS] == [path.name for path in SOLUTIONS]


@pytest.mark.parametrize("path", LESSONS, ids=name)
def test_exercises(path):
    """Two to four, in order; the stub has the name of the solution and raises what to write."""
    solutions = (TUTORIALS / "solutions" / path.name).read_text()
    stubs = [node for node in ast.parse(path.read_text()).body
             if isinstance(node, ast.FunctionDef) and "NotImplementedError" in ast.unparse(node)]
    number, expected = int(path.name[:2]), exercises.names(solutions)
    assert 2 <= len(stubs) <= 4
    assert expected == {f"{number}.{n}": stub.name for n, stub in enumerate(stubs, 1)}
    for exercise, stub in zip(expected, stubs):
        assert f"**E{exercise}**" in path.read_text() and f"**E{exercise}**" in solutions
        with pytest.raises(NotImplementedError, match=f"^Exercise {re.escape(exercise)}: ."):
            scope = {}                              # it raises, it never returns a wrong answer
            exec(compile(ast.Module([stub], []), path.name, "exec"), scope)
            scope[stub.name](*[None] * (len(stub.args.args) - len(stub.args.defaults)))


@pytest.mark.parametrize("path", LESSONS, ids=name)
def test_frame(path):
    text = path.read_text()
    assert text.startswith("# %% [markdown]\n# # ")
    for heading in ("**You will do.**", "**You will learn.**", "**You need.**", "minutes",
                    "## Exercises", "Where this is used", "Further reading"):
        assert heading in text, heading
    space = r"\s(?:# )?"
    assert re.search("minutes, and \\d+ more for the exercises".replace(" ", space), text)
    assert "# Fill in the functions; each check says what is wrong. `ksvd-ref check FILE`" in text
    assert "\n# Three questions without code.\n#\n# 1. " in text
    for formula in re.findall(r"\$\$.*?\$\$", text, re.S):     # a list to Markdown, not a minus
        assert not re.search(r"\n# {1,3}[-+*] ", formula)
    assert text.count("plt.show()") <= 4 and "assert " in text and "if False" not in text


# The pace: what a reader meets on the page, in numbers.

LETTERS = {                     # of the notation table, and how prose writes them
    "Phi": r"\\Phi", "Psi": r"\\Psi", "H_e": "[hH]_e", "H_r": "[hH]_r", "W_e": "[wW]_e",
    "W_r": "[wW]_r",
    "sigma": r"\\[sS]igma", "Lambda": r"\\[lL]ambda", "E": r"\bE\b", "R": r"\bR\b"}
CELLS = index.cells()


def cells(path):
    """(is it code, its lines without the first) of each cell of a lesson."""
    for cell in CELLS[path.name[:2]]:
        first, *lines = cell.rstrip().split("\n")
        yield "[markdown]" not in first, lines


@pytest.mark.parametrize("path", LESSONS, ids=name)
def test_a_page_is_short(path):
    """120 to 240 lines; cells of 12 lines beside imports, 18 with a figure; no named lambda."""
    text = path.read_text("utf-8")
    assert 120 <= text.count("\n") <= 240
    assert not re.search(r"^\w[\w, ]* = lambda", text, re.M)
    for code, lines in cells(path):
        if code:
            count = sum(bool(line.strip()) and not line.startswith(("import ", "from "))
                        for line in lines)
            assert count <= (18 if "plt.show()" in lines else 12), "\n".join(lines)
            assert not [line for line in lines if line.startswith("#")], "teach in the prose"


@pytest.mark.parametrize("path", LESSONS, ids=name)
def test_a_cell_asserts_or_shows(path):
    """Or it defines what the next ones use: imports, data, functions; the exercises are stubs."""
    prose, definitions = 0, (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)
    for code, lines in cells(path):
        if not code:
            prose += max(len(lines) - 1, 0)
            continue
        rest = [ast.unparse(node) for node in ast.parse("\n".join(lines)).body
                if not isinstance(node, definitions)]
        says = re.compile(r"\bassert\b|print\(|\.show\(|assert_|check\(").search
        assert not rest or any(map(says, rest)) or prose < 40, lines       # at first, data


@pytest.mark.parametrize("path", LESSONS, ids=name)
def test_at_most_two_tags_a_sentence(path):
    """A table has as many as it has rows."""
    for code, lines in cells(path):
        text = " ".join(line[2:] for line in lines if line[:3] != "# |") if not code else ""
        text = re.sub(r"([KS])\.(?=\d)", r"\1·", text)             # K.12 ends no sentence
        for sentence in re.split(r"(?<=[.:;?])(?:\$\$)?\s", text):
            assert len(re.findall(r"\b(?:[KS]·|[VD])\d+\b", sentence)) <= 2, sentence


@pytest.mark.parametrize("path", LESSONS, ids=name)
def test_a_letter_is_named_before_it_is_used(path):
    prose = ""
    for code, lines in cells(path):
        if not code:
            prose += "\n".join(lines)
            continue
        used = {node.id for node in ast.walk(ast.parse("\n".join(lines)))
                if isinstance(node, ast.Name)}
        for letter in used & set(LETTERS):
            assert re.search(LETTERS[letter], prose), f"{letter}: {lines[0]}"


@pytest.mark.parametrize("path", LESSONS, ids=name)
def test_in_short(path):
    """A summary with its equations, before the exercises."""
    text = path.read_text("utf-8")
    short = text.partition("\n# ## In short\n")[2].partition("\n# ## ")[0]
    assert short and short.count("$") >= 4 and "## Exercises" in text.partition("In short")[2]


@pytest.mark.parametrize("path", LESSONS, ids=name)
def test_an_exercise_has_its_cell_and_its_check(path):
    found = list(cells(path))
    for (_, said), (_, stub), (_, check) in zip(found, found[1:], found[2:]):
        exercise = re.match(r"# \*\*E(\d+\.\d+)\*\*", said[0] if said else "")
        if exercise:
            function = re.search(r"^def (\w+)\(", "\n".join(stub), re.M)[1]
            assert f"Exercise {exercise[1]}:" in "\n".join(stub)
            assert check[0] == f'exercises.check("{exercise[1]}", {function})', check


SIGN = f"""if True:
    import ksvd_ref.dual as d, runpy
    solve = d.solve
    d.solve = lambda *a, **k: (lambda x: x._replace(H_e=-x.H_e))(solve(*a, **k))
    runpy.run_path({str(LESSONS[0])!r}, run_name='__main__')"""


@runs(("-c", SIGN))
def test_a_lesson_that_is_wrong_fails(ran):
    """The lessons check the package: a one-sided sign flip in dual.solve stops the first one."""
    _, status, _, err = ran
    assert status == 1 and "AssertionError" in err
