"""The checks tell right from wrong, and a student's file can do no harm."""
import ast
import csv
import functools
import json
import os
import runpy
import subprocess
import sys
import time
import types
from pathlib import Path

import numpy as np
import pytest

from ksvd_ref.command import main
from ksvd_ref.course import exercises, marking

LESSONS = sorted(exercises.TUTORIALS.glob("[0-9]*.py"))
EXERCISES = exercises.wanted()
load = functools.cache(runpy.run_path)


# The solutions: each check accepts its solution and refuses everything else with a message.

def answers(exercise):
    scope = load(str(EXERCISES[exercise][0]))
    return scope[exercises.checker(exercise)], *scope["ANSWERS"][exercise]


def test_every_lesson_has_answers():
    lessons = {int(exercise.split(".")[0]) for exercise in EXERCISES}
    assert lessons == {int(path.name[:2]) for path in LESSONS} == set(range(1, 16))
    readme = (exercises.TUTORIALS.parent / "README.md").read_text("utf-8")
    assert f"by all {len(EXERCISES)} exercises" in " ".join(readme.split())


def test_every_exercise_has_a_name_of_its_own():
    """Else a whole lesson, handed in, would seem to attempt an exercise of another lesson."""
    names = [name for _, name in EXERCISES.values()]
    assert len(names) == len(set(names)), sorted(names)
    for path in LESSONS:
        others = {name for solutions, name in EXERCISES.values() if solutions.name != path.name}
        bound = {getattr(node, "name", None) or getattr(node, "id", None)
                 for node in ast.walk(ast.parse(path.read_bytes()))
                 if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.alias))
                 or isinstance(getattr(node, "ctx", None), ast.Store)}
        assert not bound & others, path.name


@pytest.mark.parametrize("exercise", EXERCISES)
def test_the_check_accepts_the_solution_and_refuses_the_wrong_answers(exercise):
    check, solution, *wrong = answers(exercise)
    assert solution.__name__ == EXERCISES[exercise][1]
    check(solution)
    messages = [exercises.refusal(check, function) for function in wrong]
    assert len(messages) >= 2 and all(messages)


class Unprintable:
    def __repr__(self):
        raise KeyError


@pytest.mark.parametrize("got, shape, came", [
    (None, (2,), "None"), ("4", (), "'4'"), (1j, (), "1j"), (Unprintable(), (), "a Unprintable"),
    ([[1.0], [1.0, 2.0]], (2,), "[[1.0], [1.0, 2.0]]"), ([None, 1.0], (2,), "[None, 1.0]"),
    ([1, 2], (), "shape (2,)"), ([1, 2], (2, 1), "shape (2,)"), (1, (2,), "one number"),
    ([1.0, np.inf], (2,), "NaN or infinity"), ([1.0, np.nan], None, "NaN or infinity"),
    (["x" * 99], (1,), "['" + 58 * "x" + " ...")])
def test_what_is_no_array_of_numbers_is_told(got, shape, came):
    wanted = {None: "finite real numbers", (): "one finite real number"}.get(
        shape, f"finite real numbers of shape {shape}")
    with pytest.raises(ValueError) as told:
        exercises.numbers(got, shape, "E")
    assert str(told.value) == f"E: {wanted} expected, got {came}"


def test_numbers_keep_their_kind():
    for got in (True, 3, [1, 2], np.float32(0.5), np.ones((2, 0, 3), "int8")):
        array = exercises.numbers(got, np.shape(got), "E")
        assert array.dtype == np.asarray(got).dtype and array.tolist() == np.asarray(got).tolist()
        np.testing.assert_array_equal(exercises.numbers(got, None, "E"), array)


@pytest.mark.parametrize("got, came", [
    (None, "None"), (3.0, "3.0"), ("ab", "'ab'"), ({1: 2, 3: 4}, "{1: 2, 3: 4}"),
    ([], "a list of 0"), ((1, 2, 3), "a tuple of 3"), (np.ones((3, 2)), "an array of shape (3, 2)"),
    (np.ones(()), "an array of shape ()")])
def test_what_has_other_parts_is_told(got, came):
    with pytest.raises(ValueError) as told:
        exercises.parts(got, ["E", "R"])
    assert str(told.value) == f"2 parts expected (E, R), got {came}"


def test_parts_of_a_list_and_of_an_array():
    assert exercises.parts([None, "x"], "ER") == (None, "x")
    assert [row.tolist() for row in exercises.parts(np.eye(2), "ER")] == [[1, 0], [0, 1]]


def test_compare_knows_a_mistake_by_its_values_and_shape():
    want, wrong = np.array([1.0, 2.0]), [(5.0, "one"), ([5.0, 5.0], "fives"), ([5.0, 5.0], "last")]
    exercises.compare([1, 2 + 1e-12], want, "E", wrong)
    for got, message in (([5, 5], "E: fives"), ([1, 2.5], "E: off by 0.5"), (5.0, "E: finite real "
                         "numbers of shape (2,) expected, got one number")):
        with pytest.raises((AssertionError, ValueError)) as told:
            exercises.compare(got, want, "E", wrong)
        assert str(told.value) == message


@pytest.mark.parametrize("look, message", [
    (lambda x: exercises.numbers(x, (), "x"), "x: one finite real number expected, got '4'"),
    (lambda x: exercises.parts(x, ["x"]), "1 parts expected (x), got '4'"),
    (lambda x: exercises.compare(x, 4, "x"), "x: one finite real number expected, got '4'"),
    (lambda x: exercises.compare(4, 2, "x", [(4, "a square")]), "x: a square")])
def test_in_a_callback_too_the_message_is_that_of_the_check(look, message):
    assert exercises.mark(lambda function: function(look), lambda callback: callback("4")) == (
        0, message)


def test_an_error_of_a_function_in_c_is_not_that_of_the_check():
    assert exercises.mark(lambda function: function("x"), float) == (
        0, "your function raised ValueError: could not convert string to float: 'x'")


def hollow(value):
    """The same container, with NaN for every number."""
    if isinstance(value, (tuple, list)):
        parts = [hollow(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if isinstance(value, dict):
        return {key: hollow(part) for key, part in value.items()}
    return np.full(np.shape(value), np.nan)[()]


@pytest.mark.parametrize("exercise", EXERCISES)
def test_the_check_has_a_message_for_nothing_and_for_nan(exercise):
    check, solution, *_ = answers(exercise)
    for function in (lambda *args, **options: None, lambda *args, **options: np.nan,
                     lambda *args, **options: hollow(solution(*args, **options))):
        assert exercises.refusal(check, function)


# A student's file: small lessons of our own, each exercise another misbehaviour.

SOLUTIONS = """
import time
from ksvd_ref.course.exercises import numbers
def check(function):
    got = function(2)
    assert not got < 4, f"twice 2 is 4, got {got}"
    assert not got > 4
def check_callback(function):
    def only_integers(x):
        if isinstance(x, str):
            numbers(x, (), "x")
        if x != int(x):
            raise ValueError(f"an integer expected, got {x}")
        return x
    assert function(only_integers) == 4
"""
NUMPY = """
import numpy as np
def check(function):
    assert np.allclose(function(np.ones(2)), 2), "not twice as much"
"""
STUDENT = '''
"""My answers."""
from __future__ import annotations
import colorsys, ctypes, json, os, subprocess, sys, threading, time
import beside                                   # a module in the same folder
assert "this line fails" == "and defines nothing"
print(json.dumps([[1, "right"], None]), flush=True)
1 / 0
sys.exit()
def right(x: Undefined): return 2 * x
def also_right(x): return beside.two * x
def wrong(x): return x
def wrong_without_words(x): return 5 * x
def nothing(x): 2 * x
def text(x): return "4"
def raises(x):
    return right(x) / 0                         # line 17
def value_error(x): raise ValueError("in the student's own code")
def own_class(x):
    class Mine(Exception):
        def __str__(self): 1 / 0
    raise Mine
def long_lines(x): raise KeyError("\\x1b[31m\\ud800\\n" * 1000)
def signature(): return 4
def exits(x): sys.exit(0)
def os_exits(x): os._exit(0)
def recursion(x): return recursion(x)
def crash(x): return ctypes.string_at(0)
def loop(x):
    while True: pass
def memory(x): return bytes(8 << 30)
def printing(x):
    for _ in range(100_000): print('[[1, "right"], null]')
    return x
def closed(x):
    os.closerange(0, 100)
    sys.stdout.close()
    return x
def asks(x): return float(input("x"))
def background(x):
    subprocess.Popen([sys.executable, "-c", """if True:
        import time
        for n in range(600):
            open("alive", "a").write(".")
            time.sleep(0.05)"""])
    threading.Thread(target=time.sleep, args=(600,)).start()
    while not os.path.exists("alive"): time.sleep(0.01)
    return 2 * x
def patched(x):
    time.sleep = None
    os.path.join = None
    json.dumps = None
    return 2 * x
def forged(x):
    import builtins, pathlib
    forgery = '[[1, "right"], null]'
    json.dumps = lambda *args: forgery
    write = pathlib.Path.write_text
    pathlib.Path.write_text = lambda path, text: write(path, forgery)
    os.replace = os.write = lambda *args: None
    return 3
def stub(x): raise NotImplementedError("Exercise 1.1: write it")
a_number = 4.0
def callback(f): return f(4) + 0 * f(0.5)
def bad_callback(f): return f(None)
def text_callback(f): return f("4")
'''
EXPECTED = {
    "right": (1, "right"), "also_right": (1, "right"), "wrong": (0, "twice 2 is 4, got 2"),
    "wrong_without_words": (0, "wrong"),
    "nothing": (0, "what it returned cannot be used: TypeError: '<' not supported between instances"
                " of 'NoneType' and 'int'; it returned None: is there a return statement?"),
    "text": (0, "what it returned cannot be used: TypeError: '<' not supported between instances of"
             " 'str' and 'int'; it returned '4'"),
    "raises": (0, "your function raised ZeroDivisionError: division by zero (my work.py, line 17)"),
    "value_error": (0, "your function raised ValueError: in the student's own code (my work.py, "
                    "line 18)"),
    "own_class": (0, "your function raised Mine: a Mine (my work.py, line 22)"),
    "long_lines": (0, "your function raised KeyError: '\\x1b[31m\\ud800"),
    "signature": (0, "your function raised TypeError: signature() takes 0 positional arguments but "
                  "1 was given"),
    "exits": (0, "your function raised SystemExit: 0 (my work.py, line 25)"),
    "os_exits": (0, "ended its process with exit status 0"),
    "recursion": (0, "your function raised RecursionError: maximum recursion depth exceeded"),
    "crash": (0, "ended its process with "), "loop": (0, "took longer than 2 s"),
    "memory": (0, "your function raised MemoryError (my work.py, line 31)"
               if sys.platform == "linux" else ""),
    "printing": (0, "twice 2 is 4, got 2"), "closed": (0, "twice 2 is 4, got 2"),
    "asks": (0, "your function raised EOFError: EOF when reading a line (my work.py, line 39)"),
    "background": (1, "right"), "patched": (1, "right"), "forged": (0, "twice 2 is 4, got 3"),
    "stub": (None, "not attempted"),
    "a_number": (0, "a function expected, found 4.0"), "absent": (None, "not attempted"),
    "callback": (0, "an integer expected, got 0.5"),
    "bad_callback": (0, "your function raised TypeError: int() argument must be"),
    "text_callback": (0, "x: one finite real number expected, got '4'"),
}


@pytest.fixture(scope="module")
def lesson(tmp_path_factory):
    """A folder of lessons, tutorials/, and one of a student's work, work/."""
    root = tmp_path_factory.mktemp("course")
    (root / "tutorials/solutions").mkdir(parents=True)
    (root / "work").mkdir()
    tasks = {f"1.{n}": name for n, name in enumerate(EXPECTED, 1)}
    for number, checks, names in ((1, SOLUTIONS, EXPECTED), (2, NUMPY, ("doubled", "patching"))):
        tasks = {f"{number}.{n}": name for n, name in enumerate(names, 1)}
        (root / f"tutorials/solutions/0{number}_small.py").write_text(
            checks
            + "".join(f"{exercises.checker(exercise)} = check{'_callback' * ('callback' in name)}\n"
                      f"def {name}(x): return 2 * x\n" for exercise, name in tasks.items())
            + "ANSWERS = {%s}" % ", ".join(f"{exercise!r}: ({name}, len, max)"
                                           for exercise, name in tasks.items()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exercises, "TUTORIALS", root / "tutorials")
        yield root


@pytest.fixture(scope="module")
def marked(lesson):
    work = lesson / "work"
    (work / "my work.py").write_text(STUDENT)
    (work / "beside.py").write_text("two = 2")
    (work / "colorsys.py").write_text("1 / 0")              # hides no module of Python
    start = time.monotonic()
    marks, problem = marking.marks(work / "my work.py", lesson=1, seconds=2.0)
    assert problem == "" and time.monotonic() - start < 60
    return {name: marks[f"1.{n}"] for n, name in enumerate(EXPECTED, 1)}


@pytest.mark.parametrize("name", EXPECTED)
def test_misbehaviour_fails_its_exercise_and_nothing_else(marked, name):
    points, message = EXPECTED[name]
    assert marked[name].points == points and marked[name].message.startswith(message), marked[name]
    assert len(marked[name].message) < 400 and marked[name].message.isprintable()


def test_what_a_function_has_started_ends_with_it(marked, lesson):
    alive = (lesson / "work/alive").stat().st_size
    time.sleep(0.3)
    assert (lesson / "work/alive").stat().st_size == alive > 0


NOTEBOOK = [
    ("markdown", "# A whole lesson"),
    ("code", "%matplotlib inline\n!pip install ksvd_ref\nnp.ones?\nfrom pathlib import Path\n"
             "import matplotlib.pyplot as plt\nimport numpy as np"),
    ("code", 'HERE = Path(__file__).parent if "__file__" in globals() else Path.cwd()\n'
             'beside = (HERE / "vowels.py").read_text()'),
    ("code", "remainder = (7\n  % 4)\nplt.plot([remainder])\nplt.show()"),
    ("code", "patching(np.ones(2))\nassert False, 'a cell that fails'"),
    ("code", ["def doubled(x):\n", "    return 2 * x + remainder - 3"]),
    ("code", "def patching(x):\n    np.allclose = lambda *args: True"),
]


@pytest.mark.parametrize("text", [
    "", "{}", '{"cells": null}', '{"cells": [null]}', '{"cells": [{"cell_type": "code"}]}',
    '{"cells": [{"cell_type": "code", "source": null}]}'])
def test_what_is_no_notebook(text):
    with pytest.raises(ValueError, match="a notebook of format 4 expected"):
        marking.cells("a.ipynb", text.encode())


NOT_PYTHON = ["%%bash\nls | head", "\n%%latex\n$x$", "%%time\nrunning = 1", "files = !ls",
              "names, = %who_ls", "value = (7\n  % 4)", "def f(:",
              "x = await f()", "ip = get_ipython()", "unit = 1 / 0", "return", "!ls \0"]


def test_a_cell_that_fails_is_passed_over(lesson):
    """As Jupyter does, and the failure is told where something is missing."""
    file = lesson / "work/cells.IPYNB"
    sources = [*NOT_PYTHON, "def doubled(x): return 2 * x + running - value + 2"]
    file.write_text(json.dumps({"cells": [{"cell_type": "code", "source": source}
                                          for source in sources]}))
    assert marking.marks(file, lesson=2) == ({
        "2.1": (1, "right"), "2.2": (None, "not attempted; in your file: SyntaxError: invalid "
                                     "syntax (cells.IPYNB, code cell 7, line 1)")}, "")


def test_a_statement_that_fails_is_passed_over():
    module = types.ModuleType("handed_in")
    text = "from __future__ import annotations\n1 / 0\nunit = 1 / 0\nimport nowhere\n" \
        "def double(x: Undefined): return 2 * x"
    missing = marking.run([("my.py", text)], module)
    assert [(name, type(error)) for name, error in missing.items()] == [
        ("unit", ZeroDivisionError), ("nowhere", ModuleNotFoundError)]
    assert module.double(2) == 4 and not hasattr(module, "unit")
    assert marking.run([("my.py", "1 / 0\nassert False\nexit()")], module) == {}
    pieces = [("my.py", "x +"), ("b.py", "a = (b := 1 / 0)\nif 1 / 0: pass\nc[0] = 1")]
    missing = marking.run(pieces, module)
    assert set(missing) == {"", "a", "b"} and isinstance(missing[""], SyntaxError)


@pytest.mark.parametrize("name, cells, points, message", [
    ("a.py", ["def Doubled(x): return 2 * x"], None, "not attempted; Doubled looks like doubled"),
    ("a.py", ["import math as mat\ndef doubeld(x): return 2 * x\ndef double_it(x): return x"],
     None, "not attempted; doubeld looks like doubled"),
    ("a.py", ["if __name__ == '__main__':\n    def doubled(x): return 2 * x\n    input()"], 1,
     "right"),
    ("a.ipynb", ["if '__main__' == __name__:\n    two = 2\n    1 / 0\n"
                 "    def doubled(x): return two * x"], 1, "right"),
    ("a.ipynb", ["%%memit -r 3\nimport numpy as np",
                 "%%my_magic\ndef doubled(x): return 2 * np.abs(x)"], 1, "right"),
    ("a.ipynb", ["def doubled(x):\n    %time y = 2 * x\n    %timeit -n 1 z = x\n    return y"], 1,
     "right"),
    ("a.ipynb", ["%time two = 2", "%prun a, b = 1, 1", "def doubled(x): return two * a * b * x"], 1,
     "right"),
    ("a.ipynb", ["%matplotlib inline\n%env X=1\ndef doubled(x): return 2 * x"], 1, "right"),
    ("a.py", ["import nmupy as np\ndef doubled(x): return 2 * np.abs(x)"], 0,
     "your function raised NameError: name 'np' is not defined (a.py, line 2); in your file: "
     "ModuleNotFoundError: No module named 'nmupy' (a.py, line 1)"),
    ("a.ipynb", ["unit = 1 / 0", "two = [1][2]", "def doubled(x, two=two): return two * x"], 0,
     "the file does not run: NameError: name 'two' is not defined (a.ipynb, code cell 3, line 1); "
     "in your file: IndexError: list index out of range (a.ipynb, code cell 2, line 1)"),
    ("a.ipynb", ["unit = 1 / 0", "def patching(x): return x", "def doubled(x, t=unit): return x"],
     None, "not attempted; in your file: NameError: name 'unit' is not defined (a.ipynb, code "
     "cell 3, line 1); in your file: ZeroDivisionError: division by zero (a.ipynb, code cell 1, "
     "line 1)"),
    ("a.ipynb", ["%%writefile helper.py\ntwo = 2", "import helper",
                 "def doubled(x): return helper.two * x"], 0,
     "your function raised NameError: name 'helper' is not defined (a.ipynb, code cell 3, line 1);"
     " in your file: ModuleNotFoundError: No module named 'helper' (a.ipynb, code cell 2, line 1): "
     "put the cell of %%writefile into helper.py beside the notebook")])
def test_what_is_almost_right_is_found_or_told(lesson, name, cells, points, message):
    file = lesson / "work" / name
    file.write_text(cells[0] if name == "a.py" else json.dumps(
        {"cells": [{"cell_type": "code", "source": source} for source in cells]}))
    marks, problem = marking.marks(file, lesson=2)
    assert marks["2.1"] == (points, message) and problem in ("", message)


@pytest.mark.parametrize("wrapped", [
    lambda A: A, lambda A: (1, A), lambda A: [[{"W": A[0]}, 3.0]]])
def test_a_function_that_writes_into_its_argument_is_told_so(wrapped):
    A = np.array([[np.nan, 1.0]])
    argument = wrapped(A)

    def writes(value, *, more=None):
        A[0, 1] += 1
        return 1.0

    for check in (lambda function: function(argument),
                  lambda function: function(None, more=argument),
                  lambda function: exercises.compare(function(argument), 2.0, "x")):
        assert exercises.mark(check, writes) == (0, exercises.WRITTEN)
        assert exercises.mark(check, lambda value, more=None: 2.0) == (1, "right")


def test_a_whole_lesson_as_a_notebook_by_itself(lesson):
    file = lesson / "work/Übung.ipynb"
    file.write_text(json.dumps({"cells": [{"cell_type": kind, "source": source}
                                          for kind, source in NOTEBOOK]}))
    marks, problem = marking.marks(file, lesson=2)
    assert problem == "" and marks == {
        "2.1": (1, "right"),
        "2.2": (0, "your file changes numpy.allclose: leave other modules as they are")}


@pytest.mark.parametrize("name, text, message", [
    ("a.py", "x = 1\ndef right(x) return x", "SyntaxError: expected ':' (a.py, line 2)"),
    ("a.py", "\ndef rihgt(x):\n    return 1\nunit = 1 / 0\nunit = 2 / 0\nx = unit",
     "ZeroDivisionError: division by zero (a.py, line 4)"),
    ("a.py", "import nowhere", "ModuleNotFoundError: No module named 'nowhere' (a.py, line 1)"),
    ("a.py", "if True:\n    raise SystemExit(3)", "SystemExit: 3 (a.py, line 2)"),
    ("a.py", "import os\nos._exit(0)", "ended its process with exit status 0"),
    ("a.py", "while True:\n    print('x')", "took longer than 1.5 s"),
    ("a.py", "\ud8ff", "SyntaxError: "),
    ("a.ipynb", '{"cells": [{"cell_type": "code", "source": "x = 1"},'
     ' {"cell_type": "code", "source": "\\nx = 1 / 0"}]}',
     "ZeroDivisionError: division by zero (a.ipynb, code cell 2, line 2)"),
    ("a.ipynb", '{"cells": [{"cell_type": "code", "source": "x ="}]}',
     "SyntaxError: invalid syntax (a.ipynb, code cell 1, line 1)"),
    ("a.py", "x = 1\0", "ValueError: a text in UTF-8 expected, found null bytes: is it saved"),
    ("a.ipynb", "not JSON", "ValueError: a notebook of format 4 expected")])
def test_a_file_that_defines_nothing(lesson, name, text, message):
    file = lesson / "work" / name
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    marks, problem = marking.marks(file, seconds=0.5)
    assert problem.startswith(f"the file does not run: {message}")
    assert len(marks) == len(EXPECTED) + 2 and set(marks.values()) == {(0, problem)}


def test_a_check_that_cannot_run_says_so(lesson, monkeypatch, tmp_path):
    (tmp_path / "solutions").mkdir()
    (tmp_path / "solutions/01_small.py").write_text(
        "import nowhere\nANSWERS = {'1.1': (right, wrong, nothing)}")
    monkeypatch.setattr(exercises, "TUTORIALS", tmp_path)
    (tmp_path / "a.py").write_text("def right(x): return 2 * x")
    marks, problem = marking.marks(tmp_path / "a.py")
    assert problem == "" and marks == {
        "1.1": (0, "the check cannot run: ModuleNotFoundError: No module named 'nowhere'")}


@pytest.mark.parametrize("path", [path for path in LESSONS if "HERE" in path.read_text()])
def test_a_lesson_by_itself_is_known_as_one(path):
    assert "HERE = Path(__file__)" in path.read_text()


def test_an_interruption_leaves_no_process(lesson, monkeypatch):
    (lesson / "work/a.py").write_text("while True: pass")
    started, Popen = [], subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda *args, **options:
                        started.append(Popen(*args, **options)) or started[-1])

    def interrupt(seconds):
        raise KeyboardInterrupt
    monkeypatch.setattr(time, "sleep", interrupt)
    with pytest.raises(KeyboardInterrupt):
        marking.marks(lesson / "work/a.py")
    assert len(started) == 1 and started[0].returncode is not None


# The command, on lesson 03.

HALF = """
def score_new_row(phi_new, H_r, Psi):
    return H_r.T @ (Psi @ phi_new)
def turned_weights(W_e, W_r, T):
    return T @ W_e, T.T @ W_r
def generalised_inverse(A, Z):
    raise NotImplementedError("Exercise 4.3: the pseudo-inverse and something that A C A ignores")
"""
TABLE = """half.py

E3.1   score_new_row        1  right
E3.2   turned_weights       0  %s
E3.3   generalised_inverse  -  not attempted

1 of 3 points

"""


@pytest.fixture
def command(capsys, tmp_path, monkeypatch):
    """Runs the command in a folder with three files; gives status, output and errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(exercises, "TUTORIALS", marking.ROOT / "tutorials")
    Path("half.py").write_text(HALF)
    Path("full.py").write_text("from runpy import run_path\nglobals().update(run_path(%r))"
                               % str(EXERCISES["3.1"][0]))
    Path("bad.py").write_text("x =")
    Path("empty").mkdir()

    def run(*argv):
        status = main.main(["check", *argv])
        return (status, *capsys.readouterr())
    return run


def test_a_table_for_a_student(command, monkeypatch):
    check = answers("3.2")[0]
    message = exercises.refusal(check, lambda W_e, W_r, T: (T @ W_e, T.T @ W_r))
    status, out, err = command("half.py", "--lesson", "3")
    assert (status, err) == (1, "") and max(map(len, out.splitlines())) <= 100
    assert out.replace("\n" + " " * 31, " ") == TABLE % message        # a long one goes on below
    status, out, err = command("bad.py", "--lesson", "3")
    assert (status, err) == (1, "") and out == (
        "bad.py\n\nthe file does not run: SyntaxError: invalid syntax (bad.py, line 1)\n\n"
        "0 of 3 points\n\n")


def test_other_lessons_take_one_line(command):
    status, out, err = command("half.py")
    others = ", ".join(str(int(path.name[:2])) for path in LESSONS if path.name[:2] != "03")
    assert (status, err) == (1, "") and out.startswith("half.py\n\nE3.1 ")
    assert out.endswith("-  not attempted\n"
                        f"Nothing attempted in lessons {others}.\n\n"
                        f"1 of {len(EXERCISES)} points\n\n")


def test_full_points_give_status_0(command):
    status, out, err = command("full.py", "--lesson", "3")
    assert (status, err) == (0, "") and out.count("1  right") == 3 and "3 of 3 points" in out


def test_rows_for_a_class(command):
    reason = exercises.refusal(answers("3.2")[0], lambda W_e, W_r, T: (T @ W_e, T.T @ W_r))
    status, out, err = command("half.py", "bad.py", "full.py", "--csv", "--lesson", "3")
    assert status == 1 and list(csv.reader(out.splitlines())) == [
        ["file", "E3.1", "E3.2", "E3.3", "points", "of", "reasons"],
        ["half.py", "1", "0", "", "1", "3", f"E3.2: {reason}"],
        ["bad.py", "0", "0", "0", "0", "3",
         "the file does not run: SyntaxError: invalid syntax (bad.py, line 1)"],
        ["full.py", "1", "1", "1", "3", "3", ""]]
    assert err == ("ksvd-ref: bad.py: the file does not run: SyntaxError: invalid syntax "
                   "(bad.py, line 1)\n")


def test_one_unreadable_file_is_one_row(command):
    Path("b.docx").write_text("my answers")
    status, out, err = command("half.py", "b.docx", "no.py", "empty", "full.py", "--csv",
                               "--lesson", "3")
    rows = list(csv.reader(out.splitlines()))[1:]
    assert status == 2 and [(row[0], row[4]) for row in rows] == [
        ("half.py", "1"), ("b.docx", "0"), ("no.py", "0"), ("empty", "0"), ("full.py", "3")]
    expected = "a file .py or .ipynb expected, found "
    assert [row[6] for row in rows[1:4]] == [
        expected + what for what in ("another kind", "none of this name", "a folder without one")]
    assert err.count("\n") == 3
    status, out, err = command("b.docx", "full.py", "--lesson", "3")
    assert (status, err) == (2, "") and expected in out and "3 of 3 points" in out


def test_a_folder_and_a_text_for_each_student(command, monkeypatch):
    monkeypatch.setattr(marking, "marks", lambda file, **options: (
        {"3.1": exercises.Mark(int("ann" in str(file)), "a reason")}, ""))
    for name in ("class/ann/work.py", "class/bob/work.ipynb", "class/bob/notes.txt",
                 "class/bob/.ipynb_checkpoints/work.ipynb", "class/__pycache__/x.py"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).touch()
    status, out, err = command("class", "--csv", "--feedback", "texts/new")
    assert status == 1 and [row[0] for row in csv.reader(out.splitlines())] == [
        "file", "class/ann/work.py", "class/bob/work.ipynb"]
    assert err == "ksvd-ref: neither .py nor .ipynb, not marked: class/bob/notes.txt\n"
    assert sorted(path.name for path in Path("texts/new").iterdir()) == [
        "class_ann_work.py.txt", "class_bob_work.ipynb.txt"]
    text = Path("texts/new/class_bob_work.ipynb.txt").read_text()
    assert "E3.1   score_new_row" in text and "0  a reason" in text and "0 of 1 points" in text


def test_an_almost_right_name_is_shown(command):
    Path("half.py").write_text("def Score_New_Row(phi_new, H_r, Psi): pass")
    _, out, _ = command("half.py")
    assert "score_new_row        -  not attempted; Score_New_Row looks like score_new_row\n" in out
    _, out, _ = command("half.py", "--csv", "--lesson", "3")
    assert out.endswith(",,,,0,3,E3.1: not attempted; Score_New_Row looks like score_new_row\n")


def test_odd_names_of_files(command, monkeypatch):
    """A formula to a spreadsheet, what steers a terminal, bytes that are no UTF-8."""
    monkeypatch.setattr(marking, "marks", lambda *_, **options: (
        {"3.1": exercises.Mark(1, "right")}, ""))
    names = ["=cmd.py", "\x1b[31m.py", "upper.PY", "\udcff.py"]
    for name in names:
        Path(name).touch()
    status, out, err = command("--lesson", "3", *names)
    assert (status, err) == (0, "") and out.count("E3.1") == 4 and "\x1b" not in out
    status, out, err = command("--csv", "--lesson", "3", *names)
    assert (status, err) == (0, "") and [row[0] for row in csv.reader(out.splitlines())] == [
        "file", "./=cmd.py", "\x1b[31m.py", "upper.PY", "\\udcff.py"]


@pytest.mark.parametrize("argv, message", [
    ("missing.py", "missing.py: a file .py or .ipynb expected, found none of this name"),
    ("empty", "empty: a file .py or .ipynb expected, found a folder without one"),
    ("half.txt", "half.txt: a file .py or .ipynb expected"),
    ("half.py --lesson 16", "the number of a lesson from 1 to 15 expected, got 16"),
    ("half.py --lesson x", "--lesson: invalid int"),
    *(("half.py --seconds " + number,
       f"--seconds: a number above 0 and below 1e5 expected, got {number}")
      for number in ("0", "nan", "1e+09")),
    ("\x1b.txt", "?.txt: a file .py or .ipynb expected"),
    ("", "the following arguments are required: FILE")])
def test_bad_input_gets_one_line(command, argv, message):
    status, out, err = command(*argv.split())
    assert (status, out) == (2, "") and message in err and err.count("\n") == 1


def test_without_a_clone(command, monkeypatch, tmp_path):
    monkeypatch.setattr(exercises, "TUTORIALS", tmp_path / "tutorials")
    status, out, err = command("half.py")
    assert (status, out) == (2, "") and err.count("\n") == 1
    assert "a clone of the repository or a folder of its notebooks expected, no solutions" in err


def test_one_answer_from_a_lesson(capsys, monkeypatch, tmp_path):
    """`exercises.check`, in a clone and in a folder of notebooks of an installed package."""
    right, stub = lambda phi_new, H_r, Psi: H_r.T @ (Psi @ phi_new), lambda phi_new, H_r, Psi: None
    monkeypatch.setattr(exercises, "TUTORIALS", marking.ROOT / "tutorials")
    for _ in range(2):
        exercises.check("3.1", right)
        exercises.check("3.1", stub)
        out = capsys.readouterr().out.splitlines()
        assert out == ["E3.1  right", "E3.1  the score: finite real numbers expected; it "
                       "returned None: is there a return statement?"]
        for number, near in (("3.9", "3.1, 3.2, 3.3"), ("99", "1.1, .*")):
            with pytest.raises(ValueError, match=f"the exercises {near} expected, got {number}"):
                exercises.check(number, right)
        monkeypatch.chdir(marking.ROOT / "tutorials")
        monkeypatch.setattr(exercises, "TUTORIALS", tmp_path / "none")


@pytest.mark.skipif(os.name != "posix", reason="asks for the parent as POSIX does")
def test_a_process_ends_with_its_parent(lesson):
    """Killed hard, `check` cannot end the endless loops it has started: they end by themselves."""
    file = lesson / "work/orphan.py"
    file.write_text("import os\nopen('pid.new', 'w').write(str(os.getpid()))\n"
                    "os.replace('pid.new', 'orphan')\nwhile True: pass")
    parent = subprocess.Popen([sys.executable, "-m", "ksvd_ref", "check", str(file)])
    pid = file.with_name("orphan")
    while not pid.exists() and parent.poll() is None:
        time.sleep(0.05)
    parent.kill()
    parent.wait()
    for _ in range(100):
        try:
            os.kill(int(pid.read_text()), 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    raise AssertionError("the student's process is still there")


def test_a_process_that_nobody_ends_ends(tmp_path):
    (tmp_path / "loop.py").write_text("while True: pass")
    start = time.monotonic()
    done = subprocess.run([sys.executable, "-m", "ksvd_ref.course.marking",
                           str(os.getpid()), str(tmp_path / "out"), "0.3",
                           str(tmp_path / "loop.py")], stderr=subprocess.DEVNULL, timeout=60)
    assert done.returncode == 1 and time.monotonic() - start >= 0.3
    assert not (tmp_path / "out").exists()
