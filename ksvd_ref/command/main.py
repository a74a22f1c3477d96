"""The command line: every equation on a real attention head, or on the reader's own matrix.

And the course from a shell: lessons.py. Modules load when they are named,
NumPy only when there is something to compute, so that --help answers at once.
"""
import argparse
import contextlib
import errno
import os
import re
import sys
import traceback
from pathlib import Path

from .. import __version__, command, course

THREADS = "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"
EXAMPLES = """examples:
  ksvd-ref                                          every equation on an attention head
  ksvd-ref verify points.csv --plot points.png      the same for a matrix of yours, and a figure
  ksvd-ref verify X.csv Z.csv --kernel rbf --gamma 0.5
  ksvd-ref verify dump.npz --array attn --index 0,3
  ksvd-ref verify - --json < points.csv             from standard input, for a program
  ksvd-ref equations K.12                           what one equation says, and where it is
"""


class Parser(argparse.ArgumentParser):
    """An error is one line, without the usage before it."""

    def error(self, message):
        raise ValueError(f"{message} (see {self.prog} --help)")


class Stream:
    """An output whose reader may go (ksvd-ref | head): what nobody reads is dropped."""

    def __init__(self, stream):
        self.stream, self.read = stream, True

    def __getattr__(self, name):
        return getattr(self.stream, name)

    def _try(self, what, *args):
        try:
            return what(*args) if self.read else None
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.EINVAL):
                raise
            self.read = False
            with contextlib.suppress(OSError, ValueError):      # Python flushes it again at the end
                os.dup2(os.open(os.devnull, os.O_WRONLY), self.stream.fileno())

    def write(self, text):
        self._try(self.stream.write, text)
        return len(text)

    def flush(self):
        self._try(self.stream.flush)


def main(argv=None):
    """Run the command; the exit status is 0 if all equations hold, 1 if not, 2 for all else.

    >>> main(["equations", "K.12"])                             # doctest: +ELLIPSIS
    K.12  Wₑ = Ψᵀ Hᵣ,  Wᵣ = Φᵀ Hₑ
          derived; Chen et al. 2023 · primal.from_dual, equations.weights_cross ...
    0
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # Formulas are Unicode in any locale, and names of files are any bytes.
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    if "numpy" not in sys.modules and not set(THREADS) & set(os.environ):
        os.environ.update(dict.fromkeys(THREADS, "1"))  # a second BLAS thread is slower here
    with contextlib.redirect_stdout(Stream(sys.stdout)) if sys.stdout else contextlib.nullcontext():
        try:
            options = _parser().parse_args(_joined(sys.argv[1:] if argv is None else argv))
            return options.run(options)
        except KeyboardInterrupt:
            return _failed("interrupted", 130)
        except OSError as error:
            return _failed(f"{error.filename}: {error.strerror}" if error.filename else error)
        except (TypeError, ValueError, ImportError) as error:
            return _failed(error)
        except MemoryError as error:
            return _failed(f"out of memory: {error}".removesuffix(": "))
        except Exception as error:                  # status 1 is kept for what does not hold
            frame = traceback.extract_tb(error.__traceback__)[-1]
            return _failed(f"unforeseen {type(error).__name__}: {error} "
                           f"({Path(frame.filename).name}, line {frame.lineno}): please report it")
        finally:
            if sys.stdout:
                sys.stdout.flush()


def _failed(what, status=2):
    line = " ".join(str(what).split())
    line = "".join(c if c.isprintable() else "?" for c in line)
    print("ksvd-ref: " + (line if len(line) < 1000 else line[:1000] + " ..."), file=sys.stderr)
    return status


def _joined(argv):
    """Words in which a negative number is the value of the option before it, as in --coef0 -1e-3.

    >>> _joined(["verify", "X.npy", "--coef0", "-1e-3", "--index", "-1,2"])
    ['verify', 'X.npy', '--coef0=-1e-3', '--index=-1,2']
    """
    words = []
    for word in argv:
        if words and re.fullmatch("--[a-z0-9]+", words[-1]) and re.fullmatch(
                r"-[0-9.][0-9.,eE+-]*", word):
            words[-1] += f"={word}"
        else:
            words.append(word)
    return words


def _parser():
    top = Parser(prog="ksvd-ref", description="Every equation of the kernel SVD, checked on a "
                 "matrix. Without a command: on an attention head of a pretrained language model.",
                 epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter)
    top.set_defaults(run=lambda options: command.verify.demo())
    top.add_argument("--version", action="version", version=f"ksvd-ref {__version__}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND")

    def add(name, run, text):
        one = commands.add_parser(name, description=text, help=text[0].lower()
                                  + text[1:].partition(".")[0])
        one.set_defaults(run=run)
        return one

    _verify_options(add("verify", lambda options: command.verify.verify_files(options),
                        "Check every equation on your own matrix. Status 0: all hold; 1: one does "
                        "not; 2: anything else.").add_argument)
    option = add("equations", list_equations, "List the equations: tag, statement, source, "
                 "functions, lessons, tests.").add_mutually_exclusive_group().add_argument
    option("tags", metavar="TAG", nargs="*", default=[], help="only these, such as K.12 V5")
    option("--into", metavar="FILE", type=Path,
           help="write the table between its two markers in FILE, a README.md")
    _course_commands(add)
    return top


def _verify_options(option):
    option("file", metavar="FILE", type=Path, help=".npy, .npz (an array K or A, or a pair Phi, "
           "Psi or Q, K or X, Z), .csv, .tsv or .txt; - reads standard input")
    option("file2", metavar="FILE2", type=Path, nargs="?",
           help="FILE and FILE2 are then the data X and Z of the kernel")
    option("--rank", type=int, metavar="S",
           help="number of components (default: the numerical rank)")
    option("--center", action="store_true", help="centre both feature maps first")
    option("--kernel", metavar="NAME", choices=tuple(command.KERNELS),
           help=f"kernel of the data: {', '.join(command.KERNELS)} (default for a pair: linear; "
           "without it one FILE is the matrix itself)")
    for name, kind in (("gamma", float), ("degree", int), ("coef0", float), ("scale", float)):
        option(f"--{name}", type=kind, metavar=name[0].upper(), help="parameter of " + ", ".join(
            kernel for kernel, has in command.KERNELS.items() if name in has))
    option("--plot", metavar="OUT", type=Path,
           help="draw the matrix, its spectrum and both embeddings (.png, .pdf, .svg)")
    option("--save", metavar="OUT", type=Path,
           help="write sigma, H_e, H_r, W_e, W_r, E, R and the labels (.npz)")
    option("--json", action="store_true", help="print the result as JSON")
    option("--array", metavar="NAME", help="the array of an .npz that is the matrix")
    option("--index", metavar="I,J", type=integers,
           help="one matrix of an array with more axes, such as 0,3 of (layers, heads, N, N)")
    for name, what in (("header", "the first row of a table holds names"),
                       ("labels", "the first column of a table holds names")):
        option(f"--{name}", action=argparse.BooleanOptionalAction, help=f"{what}, or not")
    option("--delimiter", metavar="D", help="between the cells of a table: a character, or tab")
    option("--decimal", choices=(".", ","), help="the decimal mark of a table")


def integers(text):
    """Of `--index 0,3`; argparse names the function where it fails.

    >>> integers("0,3")
    (0, 3)
    """
    return tuple(map(int, text.split(",")))


def folder(text):
    """Of `--out`: an empty word, as of a variable that is not set, would mean this folder.

    >>> folder("book").name
    'book'
    """
    if not text:
        raise ValueError
    return Path(text)


def _course_commands(add):
    option = add("book", lambda options: command.lessons.book(options),
                 "Run the lessons and write them as a static site.").add_argument
    option("--out", metavar="DIR", type=folder, default=Path("book"),
           help="a new folder, or an earlier book (default: book)")
    option("--lesson", metavar="N", type=int, help="only this lesson")
    option("--quick", action="store_true", help="a look in a minute: no cell is run, so neither "
           "outputs nor figures")
    option("--no-solutions", dest="solutions", action="store_false", help="for students: "
           "neither solutions nor answers")
    option = add("notebooks", lambda options: command.lessons.notebooks(options),
                 "Write the lessons as Jupyter notebooks.").add_argument
    option("--out", metavar="DIR", type=folder, required=True,
           help="a folder without earlier notebooks")
    option("--no-solutions", dest="solutions", action="store_false", help="for students: checks, "
           "but neither solutions nor answers")
    option = add("check", lambda options: command.lessons.check(options),
                 "Run the checks of the exercises on your own file. It may be a whole lesson or "
                 "your functions alone.").add_argument
    option("files", metavar="FILE", type=Path, nargs="+",
           help="a .py or .ipynb file, or a folder of them")
    option("--lesson", type=int, metavar="N", help="the exercises of this lesson only")
    option("--csv", action="store_true", help="one row for each file, for a class; an empty cell "
           "is an exercise not attempted, the last column says why points are missing")
    option("--feedback", metavar="DIR", type=folder, help="write a text for each file into DIR")
    option("--seconds", type=float, metavar="T", default=20.0,
           help="time limit of one exercise (default: 20)")


def list_equations(options):
    """The index of the equations, or some entries of it."""
    index, tags = course.index, [tag.upper() for tag in options.tags]
    if options.into:
        _renew(options.into.resolve(), index)
        return 0
    found = {entry.tag: entry for entry in index.entries()}
    unknown = [tag for tag in tags if tag not in found]
    if unknown:
        raise ValueError(f"{', '.join(unknown)}: no such tag, ksvd-ref equations lists all" + (
            "" if index.cells() else " that need no clone: what only tests say is beside them"))
    print("\n".join(index.text(found[tag]) for tag in tags or found))
    if not index.cells():
        print("\nLessons, tests, and what only they say, are beside the package in a clone.")
    return 0


def _renew(path, index):
    """Put the table into a page, in the line ends that the page has: wholly or not at all."""
    page = path.read_bytes().decode("utf-8")
    new = re.sub("\r?\n", "\r\n" if "\r\n" in page else "\n", index.renewed(page))
    draft = path.with_name(f".{path.name}.draft")
    try:
        draft.write_bytes(new.encode("utf-8"))
        draft.chmod(path.stat().st_mode & 0o777)
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)
