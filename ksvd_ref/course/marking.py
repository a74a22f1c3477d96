"""A student's file, a script or a notebook, marked by the checks of the exercises.

A student's code may do anything: each function runs in a process of its own, `_child`, which leaves
what it found in a file of its own, for what the process prints is the student's. Marks are for
honest files: the code runs in one process with its check, so whoever means to forge a mark can.

No equation: it marks.
"""
import ast
import codeop
import faulthandler
import json
import os
import re
import runpy
import signal
import subprocess
import sys
import tempfile
import time
import types
from contextlib import suppress
from pathlib import Path

from .exercises import TUTORIALS, Mark, checker, mark, told, wanted

ROOT = Path(__file__).parents[2]
MEMORY = 4 << 30            # bytes that one process may fill, where the system has such a limit
IPYTHON = re.compile(r"^([ \t]*)(?:(?:[\w, ]+=[ \t]*)?[%!?].*|[\w.]+\?+[ \t]*)$", re.M)
FOREIGN = re.compile(r"\s*%%(?!(?:time|timeit|capture|prun)\b)")  # a cell that is not Python's


def marks(path, *, lesson=None, seconds=20.0):
    """{exercise: Mark} of a student's file, and why it does not run, "" if it does.

    A file runs if it defines the function of an exercise, or if nothing in it fails.
    seconds: the limit of each exercise; the file itself has three times as many.
    """
    tasks, file = wanted(lesson), str(path.absolute())
    [(defined, message, took)] = _processes([[file]], 3 * seconds)
    tried = [exercise for exercise, (_, name) in tasks.items() if name in (defined or ())]
    if message and not tried:
        problem = f"the file does not run: {message}"
        return dict.fromkeys(tasks, Mark(0, problem)), problem
    found = _processes([[file, exercise, *map(str, tasks[exercise])] for exercise in tried],
                       seconds, 2 * took)
    done = {exercise: Mark(*(answer or (0, message)))
            for exercise, (answer, message, _) in zip(tried, found)}
    absent = Mark(None, "not attempted" + f"; in your file: {message}" * bool(message))
    return {exercise: done.get(exercise, absent) for exercise in tasks}, ""


def cells(name, content):
    """The code of a file in pieces, [(name in messages, text)]; `name` says which kind it is.

    Lines for IPython (%, ! and ?) become `pass`, and so does a cell in another language (%%bash).

    >>> cells("my.py", b"x = 1")
    [('my.py', b'x = 1')]
    >>> cells("my.ipynb", b'{"cells": [{"cell_type": "code", "source": ["%time\\\\n", "x = 1"]}]}')
    [('my.ipynb, code cell 1', 'pass\\nx = 1')]
    """
    if not name.lower().endswith(".ipynb"):
        if b"\0" in content:
            raise ValueError("a text in UTF-8 expected, found null bytes: is it saved as UTF-16?")
        return [(name, content)]
    try:
        sources = ["".join(cell["source"]) for cell in json.loads(content)["cells"]
                   if cell["cell_type"] == "code"]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError("a notebook of format 4 expected") from error
    found = []
    for n, source in enumerate(sources, 1):
        try:
            ast.parse(source)                       # a line may begin with % in a longer formula
        except (SyntaxError, ValueError):
            source = "pass" if FOREIGN.match(source) else IPYTHON.sub(r"\1pass", source)
        found.append((f"{name}, code cell {n}", source))
    return found


def run(pieces, module):
    """Run the pieces of a student's file in a module; the first failure, or None.

    What counts is what they define: a piece that is no Python and a statement that fails are passed
    over. An assertion or a call by itself, such as the check of another exercise, defines nothing.

    >>> module = types.ModuleType("handed_in")
    >>> run([("my.py", "assert False\\nx = 1 / 0\\ndef double(x): return 2 * x")], module)
    ZeroDivisionError('division by zero')
    >>> module.double(2)
    4
    """
    failed, compiled = None, codeop.Compile()       # which remembers `from __future__ import`
    for name, source in pieces:
        try:
            statements = ast.parse(source, name).body
        except BaseException as error:
            failed, statements = failed or error, []
        for node in statements:
            try:
                exec(compiled(ast.Module([node], []), name, "exec"), vars(module))
            except BaseException as error:          # SystemExit too
                if not isinstance(node, (ast.Assert, ast.Expr)):
                    failed = failed or error
    return failed


def _processes(tasks, seconds, more=0.0):
    """Run tasks of `_child`, a few at once: for each what it left, why nothing else, seconds."""
    waiting, running, found = list(enumerate(tasks)), {}, [None] * len(tasks)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        try:
            while waiting or running:
                while waiting and len(running) < (os.cpu_count() or 1):
                    n, task = waiting.pop(0)
                    process = _started(f"{folder}/{n}", str(seconds + more + 10.0), *task)
                    running[process] = n, time.monotonic()
                time.sleep(0.01)
                for process, (n, start) in list(running.items()):
                    took, status = time.monotonic() - start, process.poll()
                    if status is not None or took > seconds + more:
                        _end(process)
                        del running[process]
                        left = Path(folder, str(n))
                        answer, message = json.loads(left.read_bytes()) if left.exists() else (
                            None, f"took longer than {seconds:g} s" if status is None else
                            f"ended its process with {_status(status)}")
                        found[n] = answer, message, took
        finally:
            for process in running:
                _end(process)
    return found


def _started(*words):
    """A process of `_child`, in a group of its own, that hears and says nothing."""
    environment = {**os.environ, "MPLBACKEND": "Agg", "KSVD_REF_QUICK": "1",
                   "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "ksvd_ref.course.marking", *words], cwd=ROOT, env=environment,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True)


def _end(process):
    """Kill a process and all that it has started."""
    if os.name == "posix":
        with suppress(OSError):                     # none is left
            os.killpg(process.pid, signal.SIGKILL)
    else:
        subprocess.run(["taskkill", "/F", "/T", "/PID", str(process.pid)], capture_output=True)
    process.wait()


def _status(status):
    if -status in set(signal.Signals):
        return f"the signal {signal.Signals(-status).name}"
    return f"exit status {status}"


def _child(out, limit, file, exercise=None, solutions=None, name=None):
    """Run a student's file, then the check of one exercise if told; leave JSON in `out`.

    That is [what was found, what failed]. Found are all names, or the mark; None if it came to
    nothing.
    """
    dumps, start, write, replace, end = json.dumps, os.open, os.write, os.replace, os._exit
    flags = os.O_WRONLY | os.O_CREAT                # ours, whatever a student's file changes
    faulthandler.dump_traceback_later(float(limit), exit=True)      # should the parent be gone
    with suppress(ImportError, ValueError, OSError):
        from resource import RLIMIT_DATA, getrlimit, setrlimit
        setrlimit(RLIMIT_DATA, (MEMORY, getrlimit(RLIMIT_DATA)[1]))
    found, message, what, pieces = None, None, "the check cannot run: ", []
    try:
        scope = runpy.run_path(solutions) if exercise else {}
        before = _others()
        what, content = "", Path(file).read_bytes()
        pieces += cells(Path(file).name, content)
        module = _handed_in(Path(file), content)
        failed = run(pieces, module)
        message = failed and told(failed, dict(pieces))
        found = list(vars(module))
    except BaseException as error:
        message = what + told(error, dict(pieces))
    if found and exercise:
        found = mark(scope[checker(exercise)], vars(module).get(name), dict(pieces))
        changed = [f"{other.__name__}.{key}" for other, were in before for key in were
                   if key[0] != "_" and vars(other).get(key) is not were[key]]
        if changed:
            found = Mark(0, f"your file changes {changed[0]}: leave other modules as they are")
    draft = start(out + ".draft", flags)
    write(draft, dumps([found, message]).encode())
    replace(out + ".draft", out)
    end(0)                                          # whatever still runs


def _others():
    """The modules that a student's file may use, each with what it holds now."""
    return [(other, dict(vars(other))) for key, other in list(sys.modules.items())
            if key in ("numpy", "numpy.linalg") or key.startswith("ksvd_ref.")]


def _handed_in(path, content):
    """An empty module for a student's file, and the surroundings that the file expects."""
    module = sys.modules["handed_in"] = types.ModuleType("handed_in")
    # A lesson looks for its style, tables and checks: they need not be handed in with it.
    home = TUTORIALS if b"HERE = Path(__file__)" in content else path.parent
    module.__file__ = str(home / path.name)
    os.chdir(path.parent)
    sys.path.append(str(path.parent))               # at the end: a random.py there hides nothing
    sys.argv[:], sys.dont_write_bytecode = [str(path)], True
    return module


if __name__ == "__main__":
    _child(*sys.argv[1:])
