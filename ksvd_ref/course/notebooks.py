"""The lessons as notebooks: read and written by jupytext, executed by nbclient. From a clone.

No equation: the course is about the other modules.
"""
import asyncio
import importlib
import os
import re
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path

from . import exercises, formulas, index

PACKAGE = Path(__file__).resolve().parents[1]
TUTORIALS = PACKAGE.parent / "tutorials"
START = "START.md"             # the first page
BESIDE = "vowels.py", "ablations.py", "solutions", "tables"    # what lessons read
KERNEL = (                      # figures as SVG, in the size that the lesson gave them, undated
    "--log-level=40", "--InlineBackend.figure_formats={'svg'}",
    "--InlineBackend.print_figure_kwargs={'bbox_inches': None, 'metadata': {'Date': None}}")


class LessonError(RuntimeError):
    """A cell of a lesson failed."""


def need(*names):
    """The modules of these names, or an error that names the extra `book`.

    >>> need("no_such_library")
    Traceback (most recent call last):
    ImportError: no_such_library expected, not found: pip install -e '.[book]'
    """
    try:
        return [importlib.import_module(name) for name in names]
    except ImportError as error:
        raise ImportError(f"{error.name} expected, not found: pip install -e '.[book]'") from error


def lessons(number=None):
    """Paths of the lessons in order, the derivation and the findings last; or of one.

    >>> [path.name for path in lessons(3)]
    ['03_from_dual_to_primal.py']
    """
    found = sorted(TUTORIALS.glob("[0-9]*.py"))
    if not found:
        raise ValueError("a clone of the repository expected, found no tutorials/ beside the "
                         "package: the lessons are not part of an installed copy; in a clone, "
                         "pip install -e '.[book]'")
    if number is None:
        return [*found, *(path for name in ("derivation", "findings")
                          for path in TUTORIALS.glob(f"{name}.py"))]
    chosen = [path for path in found if int(path.name[:2]) == number]
    if not chosen:
        raise ValueError(f"a lesson from {int(found[0].name[:2])} to {int(found[-1].name[:2])} "
                         f"expected, got {number}")
    return chosen


def read(path):
    """A lesson as a notebook; its cells are numbered from 1, `cell-1` and so on.

    >>> read(lessons(3)[0]).cells[0].source.splitlines()[0]
    '# From dual to primal: weights in place of kernel evaluations'
    """
    jupytext, = need("jupytext")
    notebook = jupytext.read(path, fmt="py:percent")
    notebook.metadata = {"kernelspec": {"name": "python3", "language": "python",
                                        "display_name": "Python 3"},
                         "language_info": {"name": "python"}}
    if not notebook.cells:
        raise LessonError(f"{path.name}: cells that begin with # %% expected, found none")
    for n, cell in enumerate(notebook.cells, 1):
        cell.id = f"cell-{n}"
        cell.metadata = {key: cell.metadata[key] for key in ("title",) if key in cell.metadata}
    notebook.nbformat_minor = max(notebook.nbformat_minor, 5)       # the first that has cell ids
    return notebook


def solutions(stem):
    """{exercise: the cells of its solution} of a lesson, the answers to the questions last."""
    path, found, last = TUTORIALS / "solutions" / f"{stem}.py", {}, None
    for cell in read(path).cells if path.exists() else ():
        if cell.cell_type == "markdown":
            match = re.match(r"\*\*E(\d+\.\d+)\b", cell.source)
            last = match[1] if match else "answers" if "questions" in cell.source[:40] else None
        if last and not (last == "answers" and cell.cell_type == "code"):
            found.setdefault(last, []).append(cell)
    return found


def checked(cell):
    """The exercise whose check a cell calls, or None.

    >>> checked(read(lessons(3)[0]).cells[-2])
    '3.3'
    """
    found = re.match(r'exercises\.check\("(\d+\.\d+)"', cell.source)
    return found[1] if found and cell.cell_type == "code" else None


def _answered(notebook, stem):
    """Put each solution, folded, at the head of the cell after its check; no cell is added."""
    found = solutions(stem)
    for before, cell in zip(notebook.cells, notebook.cells[1:]):
        exercise = checked(before)
        if exercise in found:
            cell.source = _fold(f"Solution of E{exercise}", found[exercise]) + cell.source
        if "answers" in found and "without code." in cell.source:
            asked, used, rest = cell.source.partition("*Where this is used")
            cell.source = asked + _fold("Answers to the questions", found["answers"]) + used + rest


def _tagged(notebook, entries):
    """Tags in prose lead to what they say, which stands at the end: a notebook may be alone."""
    found = {}

    def link(tag):
        if tag[0] not in entries:
            return tag[0]
        said = formulas.markdown(entries[tag[0]].statement)
        found[tag[0]] = f"### {tag[0]}\n\n{said}. *{entries[tag[0]].source}*"
        return f"[{tag[0]}](#{tag[0]})"

    prose = [cell for cell in notebook.cells if cell.cell_type == "markdown"]
    for cell in prose:                              # headings, formulas and code stay
        parts = re.split(r"((?m:^#[^\n]*)|```.*?```|\$\$.*?\$\$|\$.*?\$|`.*?`)", cell.source,
                         flags=re.S)
        parts[::2] = [re.sub(index.TAG, link, part) for part in parts[::2]]
        for number in re.findall(r"\\tag\{.*?\}", cell.source):      # a link cannot stand in these
            re.sub(index.TAG, link, number)
        cell.source = "".join(parts)
    if found:
        prose[-1].source += "\n\n## What the tags say\n\n" + "\n\n".join(found.values())


def _fold(title, cells):
    inside = "\n\n".join(
        cell.source if cell.cell_type == "markdown" else
        f"```python\n{cell.source.partition('def check_')[0].strip()}\n```" for cell in cells)
    return f"<details><summary>{title}</summary>\n\n{inside}\n\n</details>\n\n"


def notebooks(out, paths=None, answers=True):
    """Write lessons as notebooks into a folder, with the files that they read; their paths.

    Nothing is overwritten: a file of the same name may hold somebody's work. All lessons, or
    `paths`. Without `answers` the folder of solutions has the checks alone.
    """
    nbformat, = need("nbformat")
    out, paths = Path(out), paths or lessons()
    if os.path.lexists(out) and not out.is_dir():
        raise ValueError(f"--out: a folder expected, {out} is a "
                         + ("file" if out.exists() else "link to nothing"))
    targets = {out / path.with_suffix(".ipynb").name: path for path in paths}
    beside = START, *BESIDE
    for target in (*targets, *(out / name for name in beside)):
        if os.path.lexists(target):                 # a link to nothing would be written through
            raise ValueError(f"an empty folder expected, {target} is already there and may hold "
                             "somebody's work: choose another folder")
    made = {target: read(path) for target, path in targets.items()}     # before anything is written
    entries = {entry.tag: entry for entry in index.entries()}
    for target, notebook in made.items():
        if answers:
            _answered(notebook, target.stem)
        _tagged(notebook, entries)
    out.mkdir(parents=True, exist_ok=True)
    for name in beside:
        if (TUTORIALS / name).is_dir():
            shutil.copytree(TUTORIALS / name, out / name,
                            ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(TUTORIALS / name, out / name)
    for path in () if answers else (out / "solutions").glob("*.py"):
        path.write_text(exercises.without_answers(path.read_text("utf-8")), encoding="utf-8")
    for target, notebook in made.items():
        nbformat.write(notebook, target)
    return list(targets)


def execute(path, progress=None):
    """Run a notebook from top to bottom in a kernel of its own, in its folder; it with outputs.

    progress: called with the number of each cell, from 1, and how many there are. A LessonError
    names the lesson, the cell, its first line and the error.
    """
    nbclient, nbformat, _ = need("nbclient", "nbformat", "ipykernel")
    notebook = nbformat.read(path, as_version=4)
    step = (lambda cell, cell_index: progress(cell_index + 1, len(notebook.cells))) \
        if progress else None
    client = nbclient.NotebookClient(
        notebook, timeout=None, kernel_name="python3", extra_arguments=list(KERNEL),
        resources={"metadata": {"path": str(path.parent)}}, on_cell_start=step)
    try:
        _apart(client, str(path.parent))
    except nbclient.exceptions.CellExecutionError as error:
        n, cell = next((n, cell) for n, cell in enumerate(notebook.cells, 1) if any(
            output.output_type == "error" for output in cell.get("outputs", ())))
        raise LessonError(f"{path.stem}, cell {n} ({cell.source.splitlines()[0]!r}): "
                          f"{error.ename}: {error.evalue}") from error
    except nbclient.exceptions.DeadKernelError as error:
        raise LessonError(f"{path.stem}: its kernel died") from error
    for cell in notebook.cells:
        cell.outputs = _joined(cell.get("outputs", ()))
    return notebook


def _apart(client, folder):
    """Execute in a thread, so that Ctrl-C reaches us, and take the kernel along with it."""
    with tempfile.TemporaryDirectory() as empty, ThreadPoolExecutor(1) as pool:
        # This Python's kernel, and no start-up files of the reader's IPython. A thread on each core
        # makes BLAS slower at these sizes, and ten times slower where the cores are busy.
        env = {"OPENBLAS_NUM_THREADS": "1", **os.environ, "IPYTHONDIR": empty,
               "JUPYTER_PREFER_ENV_PATH": "1"}
        env.pop("MPLBACKEND", None)                                 # the kernel's inline backend
        done = pool.submit(asyncio.run, client.async_execute(env=env, cwd=folder))
        try:
            done.result()
        except KeyboardInterrupt:
            while not done.done():                  # it may have no kernel yet
                with suppress(AttributeError):
                    client.km.provisioner.process.kill()
                wait([done], timeout=0.1)
            raise


def _joined(outputs):
    """Outputs in which what was printed in pieces is one."""
    found = []
    for output in outputs:
        if found and output.output_type == found[-1].output_type == "stream" \
                and output.name == found[-1].name:
            found[-1].text += output.text
        else:
            found.append(output)
    return found
