"""The exercises of the lessons: their checks, on solutions, wrong answers and a function of yours.

A file in `tutorials/solutions` defines `check_3_1(function)`, which raises an AssertionError or a
ValueError that says what is wrong, and `ANSWERS`: exercise -> the solution, then wrong answers.
The name of the solution is the one that a student's function must have. What a function returned is
looked at by `numbers`, `parts` and `compare`. Whole files are marked by marking.py.

No equation: the answers are the lessons'.
"""
import ast
import functools
import runpy
import traceback
from pathlib import Path
from typing import NamedTuple

TUTORIALS = Path(__file__).parents[2] / "tutorials"
WRITTEN = "your function writes into its argument: make a new array, or work on a copy"


class Mark(NamedTuple):
    """The outcome of one exercise."""

    points: int | None      # 1, 0, or None where nothing was attempted
    message: str


def numbers(got, shape, name):
    """What a function returned, as an array of finite real numbers; `shape` None is any.

    >>> numbers([1, 2], (2,), "sigma")
    array([1, 2])
    >>> numbers([1, 2], (), "sigma_1")
    Traceback (most recent call last):
    ValueError: sigma_1: one finite real number expected, got shape (2,)
    """
    import numpy as np
    try:
        array = np.asarray(got)
    except (TypeError, ValueError, RuntimeError):   # a ragged list, or an array of another device
        array = np.asarray(None)
    if array.dtype.kind not in "biuf":
        came = one_line(got, repr, 60)
    elif shape not in (None, array.shape):
        came = f"shape {array.shape}" if array.shape else "one number"
    elif not np.isfinite(array).all():
        came = "NaN or infinity"
    else:
        return array
    wanted = "one finite real number" if shape == () else "finite real numbers"
    wanted += f" of shape {shape}" if shape else ""
    raise ValueError(f"{name}: {wanted} expected, got {came}")


def parts(got, names):
    """What a function returned, as a tuple with one thing for each name; an array has its rows.

    >>> parts(1.0, ("W_e", "W_r"))
    Traceback (most recent call last):
    ValueError: 2 parts expected (W_e, W_r), got 1.0
    """
    many = isinstance(got, (tuple, list)) or getattr(got, "ndim", 0)
    if not many or len(got) != len(names):
        raise ValueError(f"{len(names)} parts expected ({', '.join(names)}), got {described(got)}")
    return tuple(got)


def compare(got, want, name, wrong=()):
    """What a function returned is what is wanted, up to rounding; or which mistake is it?

    wrong: what the mistakes return and what to say of them, [(array, text), ...].

    >>> compare(9.0, 3.0, "kappa", [(9.0, "this is its square")])
    Traceback (most recent call last):
    AssertionError: kappa: this is its square
    >>> compare(4.0, 3.0, "kappa", [(9.0, "this is its square")])
    Traceback (most recent call last):
    AssertionError: kappa: 3 expected, got 4
    """
    import numpy as np
    got = numbers(got, np.shape(want), name)
    same = lambda other: (np.shape(other) == got.shape
                          and np.allclose(got, other, rtol=1e-9, atol=1e-10))
    if same(want):
        return
    far = (f"off by {np.abs(got - want).max():.2g}" if got.shape else
           f"{want:.6g} expected, got {got:.6g}")
    raise AssertionError(f"{name}: {next((text for other, text in wrong if same(other)), far)}")


def refusal(check, function):
    """What a check says of a wrong answer; a ValueError if it accepts it."""
    try:
        check(function)
    except (AssertionError, ValueError) as error:
        return str(error)
    raise ValueError(f"{check.__name__} accepts a wrong answer, {function}")


def demonstrate(scope):
    """Run every check of a file of solutions: the solution passes, the wrong answers are told.

    scope: the names of the file, `globals()` at its end.

    >>> def check_1_1(double):
    ...     assert double(2) == 4, f"twice 2 is 4, got {double(2)}"
    >>> def twice(x): return 2 * x
    >>> demonstrate({"check_1_1": check_1_1, "ANSWERS": {"1.1": (twice, lambda x: x)}})
    E1.1  twice is right
          refused: twice 2 is 4, got 2
    """
    for exercise, (solution, *wrong) in scope["ANSWERS"].items():
        check = scope[checker(exercise)]
        check(solution)
        print(f"E{exercise}  {solution.__name__} is right")
        for function in wrong:
            print(f"      refused: {refusal(check, function)}")


def check(exercise, function):
    """Print what the check of one exercise says of a function of yours.

    >>> check("3.1", lambda phi_new, H_r, Psi: H_r.T @ (Psi @ phi_new))
    E3.1  right
    """
    tasks, exercise = wanted(), str(exercise).removeprefix("E")
    if exercise not in tasks:
        lesson = exercise.split(".")[0]
        near = [task for task in tasks if task.split(".")[0] == lesson] or tasks
        raise ValueError(f"one of the exercises {', '.join(near)} expected, got {exercise}")
    scope = runpy.run_path(str(tasks[exercise][0]))
    print(f"E{exercise}  {mark(scope[checker(exercise)], function).message}")


def checker(exercise):
    """The name of the check of an exercise, "check_3_1" of "3.1"."""
    return "check_" + exercise.replace(".", "_")


def names(source):
    """{exercise: the name of its function} of a file of solutions, which is not run.

    >>> names("ANSWERS = {'3.1': (score_new_row, wrong, worse)}")
    {'3.1': 'score_new_row'}
    """
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "ANSWERS":
            return {key.value: ast.unparse(functions.elts[0]).strip("'")
                    for key, functions in zip(node.value.keys, node.value.values)}
    return {}


def without_answers(source):
    """A file of solutions for students: its checks and their helpers, and of ANSWERS the names.

    >>> print(without_answers('''
    ... def twice(x): return 2 * x
    ... def check_1_1(double): assert double(2) == 4
    ... ANSWERS = {'1.1': (twice, lambda x: x)}'''))
    def check_1_1(double):
        assert double(2) == 4
    ANSWERS = {'1.1': ('twice',)}
    <BLANKLINE>
    """
    answers = names(source)
    kept = [node for node in ast.parse(source).body
            if getattr(node, "name", None) not in answers.values()
            and not isinstance(node, ast.If) and not ast.unparse(node).startswith("ANSWERS = ")]
    return ast.unparse(ast.Module(kept, [])) + "\nANSWERS = " + repr(
        {exercise: (name,) for exercise, name in answers.items()}) + "\n"


def wanted(lesson=None):
    """{exercise: (path of its solutions, name of the function)}, of all lessons or of one."""
    folder = TUTORIALS if TUTORIALS.is_dir() else Path.cwd()        # in a folder of notebooks
    found = {exercise: (path, name) for path in sorted(folder.glob("solutions/[0-9]*.py"))
             for exercise, name in names(path.read_bytes()).items()}
    some = {exercise: task for exercise, task in found.items()
            if lesson in (None, int(exercise.split(".")[0]))}
    if not some:
        raise ValueError(
            f"the number of a lesson from 1 to {[*found][-1].split('.')[0]} expected, got {lesson}"
            if found else "a clone of the repository or a folder of its notebooks expected, no "
            f"solutions found in {folder}: work in the folder that ksvd-ref notebooks --out wrote, "
            "or install with pip install -e . in a clone")
    return some


def mark(check, function, files=()):
    """The Mark that a check gives to a student's function, whatever that does.

    files: the names of the pieces of the student's file.

    >>> def check(double):
    ...     assert abs(double(2) - 4) < 1e-9, f"twice 2 is 4, got {double(2)}"
    >>> mark(check, lambda x: 2 * x)
    Mark(points=1, message='right')
    >>> mark(check, lambda x: 1 / 0).message
    'your function raised ZeroDivisionError: division by zero'
    >>> print(mark(check, lambda x: "4").message)                   # doctest: +ELLIPSIS
    what it returned cannot be used: TypeError: unsupported operand ...; it returned '4'
    """
    if not callable(function):
        return Mark(0, f"a function expected, found {described(function)}")
    returned, written = [], []

    def watched(*args, **options):
        before = _contents([args, options])
        returned[:] = [function(*args, **options)]
        if _contents([args, options]) != before:
            written.append(function)
        return returned[0]

    try:
        check(functools.wraps(function)(watched))
    except BaseException as error:                  # SystemExit too
        codes = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
        inside = watched.__code__ in codes or any(code.co_filename in files for code in codes)
        by_check = not inside or codes[-1] is not watched.__code__ and (
            codes[-1].co_filename in (check.__code__.co_filename, numbers.__code__.co_filename))
        if isinstance(error, NotImplementedError) and inside:
            return Mark(None, "not attempted")
        if not written:                             # else the check may have gone astray
            return Mark(0, _complaint(error, inside, by_check, returned, files))
    return Mark(0, WRITTEN) if written else Mark(1, "right")


def _complaint(error, inside, by_check, returned, files):
    """What to say of an error: the words of the check, or where the student's function failed."""
    if isinstance(error, (AssertionError, ValueError)) and by_check:
        message = one_line(error) or "wrong"
    elif inside:
        return f"your function raised {told(error, files)}"
    else:
        message = f"what it returned cannot be used: {told(error, files)}"
        if returned and returned[0] is not None:
            message += f"; it returned {described(returned[0])}"
    if returned and returned[0] is None:
        message = message.removesuffix(", got None")
        message += "; it returned None: is there a return statement?"
    return message


def _contents(value):
    """The numbers of all NumPy arrays among arguments."""
    import numpy as np
    if isinstance(value, np.ndarray):
        return [value.tobytes()]
    inner = value.values() if isinstance(value, dict) else value
    return [content for part in inner for content in _contents(part)] if isinstance(
        value, (dict, list, tuple)) else []


def one_line(value, to=str, most=300):
    """Text in one line that any terminal can show, of at most so many letters and " ..."."""
    try:
        text = " ".join(to(value).split())
    except Exception:                               # the student's own __str__ or __repr__
        text = f"a {type(value).__name__}"
    text = text if len(text) <= most else text[:most] + " ..."
    return "".join(c if c.isprintable() else "?" for c in text)


def described(value):
    """What came, in a few words, such as "a list of 2"."""
    if hasattr(value, "shape"):
        return f"an array of shape {one_line(value.shape)}"
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of {len(value)}"
    return one_line(value, repr)


def told(error, files):
    """An error in one line, with its last line in the student's file."""
    places = [f" ({frame.f_code.co_filename}, line {line})"
              for frame, line in traceback.walk_tb(error.__traceback__)
              if frame.f_code.co_filename in files]
    what = f"{type(error).__name__}: {one_line(error)}".removesuffix(": ")
    return one_line(what + "".join(places[-1:]), most=500)
