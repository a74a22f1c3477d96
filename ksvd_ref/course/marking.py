"""A student's file, a script or a notebook, marked by the checks of the exercises.

A student's code may do anything: each function runs in a process of its own, `_child`, which leaves
what it found in a file of its own, for what the process prints is the student's. Marks are for
honest files: the code runs in one process with its check, so whoever means to forge a mark can.

No equation: it marks.
"""
import ast
import codeop
import difflib
import faulthandler
import json
import os
import re
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import time
import types
from contextlib import suppress
from pathlib import Path

from .exercises import TUTORIALS, Mark, checker, mark, told, wanted

ROOT = Path(__file__).parents[2]
MEMORY = 4 << 30            # bytes that one process may fill, where the system has such a limit
IPYTHON = re.compile(r"^([ \t]*)(?:(?:[\w, ]+=[ \t]*)?[%!?].*|[\w.]+\?+[ \t]*)$", re.M)
TIMED = re.compile(r"^([ \t]*)%(?:time|timeit|prun|memit)[ \t]+(?=[\w., ]+=[^=])", re.M)
FOREIGN = re.compile(r"\s*%%!|\s*%%(?:bash|sh|script|cmd|powershell|html|javascript|js|latex|"
                     r"markdown|perl|ruby|svg|cython|R|sql|python\d?|pypy|writefile|file)\b", re.I)
MAIN = "__name__ == '__main__'", "'__main__' == __name__"


def marks(path, *, lesson=None, seconds=20.0):
    """{exercise: Mark} of a student's file, and why it does not run, "" if it does.

    A file runs if it defines the function of an exercise, or if nothing in it fails. A name that
    is almost one of an exercise is told. seconds: the limit of each exercise; the file itself has
    three times as many.
    """
    tasks, file = wanted(lesson), str(path.absolute())
    [(answer, message, took)] = _processes([[file]], 3 * seconds)
    defined, missing = answer or ((), {})
    tried = [exercise for exercise, (_, name) in tasks.items() if name in defined]
    near = _almost({name for _, name in tasks.values()}, defined)
    if message and not tried:
        why = next((missing[name] for _, name in tasks.values() if name in missing), message)
        problem = f"the file does not run: {why}" + "".join(
            f"; {one} looks like {name}" for name, one in near.items())
        return dict.fromkeys(tasks, Mark(0, problem)), problem
    found = _processes([[file, exercise, *map(str, tasks[exercise])] for exercise in tried],
                       seconds, 2 * took)
    done = {exercise: Mark(*(answer or (0, message)))
            for exercise, (answer, message, _) in zip(tried, found)}
    for exercise, (_, name) in tasks.items():
        if exercise not in done:
            why, one = missing.get(name, message), near.get(name)
            done[exercise] = Mark(None, "not attempted" + f"; {one} looks like {name}" * bool(one)
                                  + f"; in your file: {why}" * bool(why))
    return {exercise: done[exercise] for exercise in tasks}, ""


def _almost(wanted, defined):
    """{name of an exercise: the name in the file that is almost that one}.

    >>> _almost({"left_partners", "rank"}, ["np", "Left_Partners", "tank"])
    {'left_partners': 'Left_Partners'}
    """
    plain = lambda name: name.replace("_", "").lower()
    others = {plain(name): name for name in defined if name not in wanted and name[0] != "_"}
    return {name: others[near] for name in sorted(wanted - set(defined))
            for near in difflib.get_close_matches(plain(name), others, 1, 0.85)}


def cells(name, content):
    """The code of a file in pieces, [(name in messages, text)]; `name` says which kind it is.

    Lines for IPython (%, ! and ?) become `pass`, and so does a cell in another language (%%bash);
    `%time x = 1` stays `x = 1`.

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
            source = "pass" if FOREIGN.match(source) else IPYTHON.sub(
                r"\1pass", TIMED.sub(r"\1", source))
        found.append((f"{name}, code cell {n}", source))
    return found


def run(pieces, module):
    """Run the pieces of a student's file in a module; {name that is missing: its error}.

    What counts is what they define: a piece that is no Python and a statement that fails are passed
    over. An assertion or a call by itself, such as the check of another exercise, defines nothing.
    An error that leaves no name missing has the name "". The first comes first.

    >>> module = types.ModuleType("handed_in")
    >>> run([("my.py", "assert False\\nx = 1 / 0\\ndef double(x): return 2 * x")], module)
    {'x': ZeroDivisionError('division by zero')}
    >>> module.double(2)
    4
    """
    failed, compiled = {}, codeop.Compile()         # which remembers `from __future__ import`
    for name, source in pieces:
        try:
            statements = ast.parse(source, name).body
        except BaseException as error:
            failed.setdefault("", error)
            continue
        for node in _flat(statements, module.__name__):
            try:
                exec(compiled(ast.Module([node], []), name, "exec"), vars(module))
            except BaseException as error:          # SystemExit too
                if not isinstance(node, (ast.Assert, ast.Expr)):
                    for key in _bound(node) or {""}:
                        failed.setdefault(key, error)
    return failed


def _flat(statements, name):
    """Statements, with those under `if __name__ == "__main__"`; of a script what they define."""
    for node in statements:
        if isinstance(node, ast.If) and ast.unparse(node.test) in MAIN:
            yield from (inner for inner in node.body if name == "__main__" or isinstance(
                inner, (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)))
        else:
            yield node


def _bound(node):
    """The names that a statement was to define."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return {node.name}
    inside = list(ast.walk(node))
    return {x.id for x in inside if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)} | {
        getattr(x, "asname", None) or x.name.partition(".")[0] for x in inside
        if isinstance(x, (ast.alias, ast.FunctionDef, ast.ClassDef))}


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
        [sys.executable, "-m", "ksvd_ref.course.marking", str(os.getpid()), *words], cwd=ROOT,
        env=environment, start_new_session=True, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _end(process):
    """Kill a process and all that it has started."""
    if os.name == "posix":
        with suppress(OSError):                     # none is left
            os.killpg(process.pid, signal.SIGKILL)
    else:
        subprocess.run(["taskkill", "/F", "/T", "/PID", str(process.pid)], capture_output=True)
    process.wait()


def _status(status):
    return (f"the signal {signal.Signals(-status).name}" if -status in set(signal.Signals) else
            f"exit status {status}")


def _child(parent, out, limit, file, exercise=None, solutions=None, name=None):
    """Run a student's file, then the check of one exercise if told; leave JSON in `out`.

    That is [what was found, what failed]. Found are [all names, {missing name: why}], or the mark;
    None if it came to nothing.
    """
    dumps, start, write, replace, end = json.dumps, os.open, os.write, os.replace, os._exit
    flags = os.O_WRONLY | os.O_CREAT                # ours, whatever a student's file changes
    faulthandler.dump_traceback_later(float(limit), exit=True)      # should nobody end us
    threading.Thread(target=_watch, args=(int(parent), time.sleep), daemon=True).start()
    with suppress(ImportError, ValueError, OSError):
        from resource import RLIMIT_DATA, getrlimit, setrlimit
        setrlimit(RLIMIT_DATA, (MEMORY, getrlimit(RLIMIT_DATA)[1]))
    found, message, what, pieces = None, None, "the check cannot run: ", []
    try:
        scope = runpy.run_path(solutions) if exercise else {}
        before = [(other, dict(vars(other))) for key, other in list(sys.modules.items())
                  if key in ("numpy", "numpy.linalg") or key.startswith("ksvd_ref.")]
        what, content = "", Path(file).read_bytes()
        pieces += cells(Path(file).name, content)
        module = _handed_in(Path(file), content)
        failed = _reasons(run(pieces, module), pieces, content)
        message = next(iter(failed.values()), None)
        found = [list(vars(module)), failed]
    except BaseException as error:
        message = what + told(error, dict(pieces))
    if found and exercise:
        found = mark(scope[checker(exercise)], vars(module).get(name), dict(pieces))
        found = found._replace(message=_why(found.message, failed))
        changed = [f"{other.__name__}.{key}" for other, were in before for key in were
                   if key[0] != "_" and vars(other).get(key) is not were[key]]
        if changed:
            found = Mark(0, f"your file changes {changed[0]}: leave other modules as they are")
    write(start(out + ".draft", flags), dumps([found, message]).encode())
    replace(out + ".draft", out)
    end(0)                                          # whatever still runs


def _watch(parent, sleep):
    """End this process and what it has started once its parent is gone, however that ended."""
    if os.name == "posix":
        while os.getppid() == parent:
            sleep(0.2)
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)
        os._exit(1)


def _reasons(errors, pieces, content):
    """{name that is missing: its error, and what that came from}."""
    told_of = {key: told(error, dict(pieces)) + _written(error, content)
               for key, error in errors.items()}
    return {key: _why(text, told_of) for key, text in told_of.items()}


def _why(message, failed):
    """A message that a name is not defined, and why it is not."""
    absent = re.search(r"NameError: name '(\w+)' is not defined", message)
    why = absent and failed.get(absent[1])
    return f"{message}; in your file: {why}" if why and why not in message else message


def _written(error, content):
    """What to do about a module that a notebook has written for itself."""
    name = getattr(error, "name", None) if isinstance(error, ModuleNotFoundError) else None
    mine = name and re.search(rf"%%(?:write)?file\s+{re.escape(name)}\.py", content.decode(
        errors="replace"))
    return f": put the cell of %%writefile into {name}.py beside the notebook" if mine else ""


def _handed_in(path, content):
    """An empty module for a student's file, and the surroundings that the file expects."""
    notebook = path.suffix.lower() == ".ipynb"      # whose own name is that in Jupyter
    module = sys.modules["handed_in"] = types.ModuleType("__main__" if notebook else "handed_in")
    # A lesson looks for its style, tables and checks: they need not be handed in with it.
    home = TUTORIALS if b"HERE = Path(__file__)" in content else path.parent
    module.__file__ = str(home / path.name)
    os.chdir(path.parent)
    sys.path.append(str(path.parent))               # at the end: a random.py there hides nothing
    sys.argv[:], sys.dont_write_bytecode = [str(path)], True
    return module


if __name__ == "__main__":
    _child(*sys.argv[1:])
