"""Every lesson and every solution runs, from another folder, with warnings as errors."""
import ast
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from ksvd_ref.course import exercises

TUTORIALS = Path(__file__).parents[1] / "tutorials"
LESSONS = sorted(TUTORIALS.glob("[0-9]*.py"))
SOLUTIONS = sorted((TUTORIALS / "solutions").glob("[0-9]*.py"))
name = lambda path: path.relative_to(TUTORIALS).as_posix()


@pytest.mark.parametrize("path", LESSONS, ids=name)
def test_a_lesson_runs(path, script):
    """As a script, from another folder, in which it leaves nothing."""
    folder, status, out, err = script
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
    assert 'With `from ksvd_ref.course import exercises`, `exercises.check("' in text
    assert "\n# Three questions without code.\n#\n# 1. " in text
    for formula in re.findall(r"\$\$.*?\$\$", text, re.S):     # a list to Markdown, not a minus
        assert not re.search(r"\n# {1,3}[-+*] ", formula)
    assert text.count("plt.show()") <= 4 and "assert " in text and "if False" not in text


def test_a_lesson_that_is_wrong_fails(tmp_path):
    """The lessons check the package: a one-sided sign flip in dual.solve stops the first one."""
    code = "import ksvd_ref.dual as d, runpy; solve = d.solve\n" \
        "d.solve = lambda *a, **k: (lambda x: x._replace(H_e=-x.H_e))(solve(*a, **k))\n" \
        f"runpy.run_path({str(LESSONS[0])!r}, run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                          cwd=tmp_path, env={**os.environ, "MPLBACKEND": "Agg"})
    assert done.returncode == 1 and "AssertionError" in done.stderr
