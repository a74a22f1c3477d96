"""The command line: every equation on a real attention head, or on the reader's own matrix.

And every check of the exercises on the reader's own answers.

NumPy is imported only when there is something to compute, so that --help answers at once.
"""
import argparse
import csv
import json
import os
import sys
import textwrap
from pathlib import Path

KERNELS = {"linear": (), "polynomial": ("degree", "gamma", "coef0"), "rbf": ("gamma",),
           "exponential": ("scale",), "cosine": (), "softmax": ("scale",), "sne": ("gamma",)}
LARGEST = 4000              # short side of the largest matrix: less than half an hour
PAIRS = ("Phi", "Psi"), ("Q", "K"), ("X", "Z")
PLOTS = (".png", ".pdf", ".svg")


class Parser(argparse.ArgumentParser):
    """An error is one line, without the usage before it."""

    def error(self, message):
        raise ValueError(f"{message} (see ksvd-ref --help)")


def main(argv=None):
    """Run the command.

    Parameters
    ----------
    argv : list of str, optional
        Arguments; those of the process unless told.

    Returns
    -------
    int
        Exit status: 0 if all equations hold, 1 if one does not, 2 for bad input.

    Examples
    --------
    >>> main(["equations", "K.12"])                             # doctest: +ELLIPSIS
    K.12  Wₑ = Ψᵀ Hᵣ,  Wᵣ = Φᵀ Hₑ
          derived; Chen et al. 2023 · primal.from_dual, equations.weights_cross ...
    0
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # Formulas are Unicode in any locale, and names of files are any bytes.
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    try:
        options = _parser().parse_args(argv)
        status = options.run(options)
        if sys.stdout:
            sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        print("ksvd-ref: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:                         # ksvd-ref | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (OSError, TypeError, ValueError, ImportError) as error:
        print(f"ksvd-ref: {' '.join(str(error).split())}", file=sys.stderr)
        return 2


def _parser():
    top = Parser(prog="ksvd-ref", description="Every equation of the kernel SVD, checked on a "
                 "matrix. Without a command: on an attention head of a pretrained language model.")
    top.set_defaults(run=demo)
    commands = top.add_subparsers(title="commands", metavar="COMMAND")
    verify = commands.add_parser("verify", help="the same for your own matrix or data",
                                 description="Check every equation on your own matrix.")
    verify.set_defaults(run=verify_files)
    verify.add_argument("file", metavar="FILE", type=Path, help=".npy, .npz (an array K or A, or a "
                        "pair Phi, Psi or Q, K or X, Z), .csv, .tsv or .txt")
    verify.add_argument("file2", metavar="FILE2", type=Path, nargs="?",
                        help="FILE and FILE2 are then the data X and Z of the kernel")
    verify.add_argument("--rank", type=int, metavar="S",
                        help="number of components (default: the numerical rank)")
    verify.add_argument("--center", action="store_true", help="centre both feature maps first")
    verify.add_argument("--kernel", metavar="NAME",
                        help=f"kernel of the data: {', '.join(KERNELS)} (default for a pair: "
                        "linear; without it one FILE is the matrix itself)")
    for name, kind in (("gamma", float), ("degree", int), ("coef0", float), ("scale", float)):
        verify.add_argument(f"--{name}", type=kind, metavar=name[0].upper(), help="parameter of "
                            + ", ".join(kernel for kernel, has in KERNELS.items() if name in has))
    verify.add_argument("--plot", metavar="OUT", type=Path,
                        help="draw the matrix, its spectrum and both embeddings (.png, .pdf, .svg)")
    verify.add_argument("--json", action="store_true", help="print the result as JSON")
    listing = commands.add_parser(
        "equations", help="list the equations: statement, source, function, lesson, test",
        description="List the equations: tag, statement, source, functions, lessons, tests.")
    listing.set_defaults(run=list_equations)
    listing.add_argument("tags", metavar="TAG", nargs="*", help="only these, such as K.12 V5")
    listing.add_argument("--into", metavar="FILE", type=Path,
                         help="write the table between its two markers in FILE, a README.md")
    book = commands.add_parser("book", help="run the lessons and write them as a static site",
                               description="Run the lessons and write them as a static site.")
    book.add_argument("--out", metavar="DIR", type=Path, default=Path("book"),
                      help="a new folder, or an earlier book (default: book)")
    book.add_argument("--lesson", metavar="N", type=int, help="only this lesson")
    book.set_defaults(run=write_book)
    notebooks = commands.add_parser("notebooks", help="write the lessons as Jupyter notebooks",
                                    description="Write the lessons as Jupyter notebooks.")
    notebooks.add_argument("--out", metavar="DIR", type=Path, required=True,
                           help="a folder without earlier notebooks")
    notebooks.set_defaults(run=write_notebooks)
    check = commands.add_parser("check", help="your answers to the exercises of the lessons",
                                description="Run the checks of the exercises on your own file. "
                                "It may be a whole lesson or your functions alone.")
    check.set_defaults(run=check_files)
    check.add_argument("files", metavar="FILE", type=Path, nargs="+", help="a .py or .ipynb file")
    check.add_argument("--lesson", type=int, metavar="N", help="the exercises of this lesson only")
    check.add_argument("--csv", action="store_true", help="one row for each file, for a "
                       "class; an empty cell is an exercise not attempted")
    check.add_argument("--seconds", type=float, metavar="T", default=20.0,
                       help="time limit of one exercise (default: 20)")
    return top


def write_book(options):
    """The lessons as a static site."""
    from ..course import book, notebooks
    try:
        print(f"start page: {book.build(options.out, options.lesson)}")
    except notebooks.LessonError as error:
        print(f"ksvd-ref: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    return 0


def write_notebooks(options):
    """The lessons as notebooks."""
    from ..course import notebooks
    written = notebooks.notebooks(options.out)
    print(f"{len(written)} notebooks written to {options.out}, with the files that they read; "
          f"the first is {written[0].name}")
    return 0


def demo(options):
    """Scores and attention matrix of one pretrained head."""
    from .. import equations, features, kernels
    from ..course import datasets
    heads = datasets.minilm_heads()
    Q, K = heads.Q[-1, 0, :, :], heads.K[-1, 0, :, :]
    N, d = Q.shape
    print("Head 0 of the last layer of the language model all-MiniLM-L6-v2, reading the\n"
          f"Gettysburg Address: {N} tokens, each with a query and a key of {d} numbers.\n\n"
          "1. The scores of queries Q against keys, K = QKᵀ/√d = Φ Ψᵀ: the features of the rows\n"
          "   are Φ = Q/d^¼, those of the columns Ψ = K/d^¼\n")
    good = report(equations.solution(Q / d ** 0.25, K / d ** 0.25))
    print("\n2. The attention matrix, K = softmax(QKᵀ/√d): it has no finite features, so its own\n"
          "   rows and columns serve, as for any matrix: Φ = K K⁺, Ψ = Kᵀ\n")
    A = kernels.softmax(Q, K)
    good &= report(equations.solution(*features.compatible(A), given=A))
    print("\nThe same for your own matrix:  ksvd-ref verify FILE")
    return 0 if good else 1


def verify_files(options):
    """The reader's matrix."""
    out = options.plot
    if out and (out.suffix.lower() not in PLOTS or out.is_dir()
                or not os.access(out.parent, os.W_OK)):
        raise ValueError("--plot: a file .png, .pdf or .svg in a folder that can be written to "
                         f"expected, got {out}")
    name = " and ".join(str(file) for file in (options.file, options.file2) if file)
    from .. import equations
    from ..backend import silent
    try:
        with silent():                              # an overflow is refused, once is enough
            Phi, Psi, given, rows, columns, what = _features(options)
            if min(len(Phi), len(Psi)) > 700 and not equations.has_low_rank(
                    len(Phi), len(Psi), Phi.shape[1]):
                minutes = 0.4 * (min(len(Phi), len(Psi)) / 1000) ** 3     # measured on one core
                print(f"{len(Phi)} x {len(Psi)}: this will take about {max(1, round(minutes))} min",
                      file=sys.stderr)
            s = equations.solution(Phi, Psi, rank=options.rank, given=given)
    except OSError as error:
        raise ValueError(f"{error.filename or name}: a readable file expected, found: "
                         f"{error.strerror}") from error
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name}: {error}") from error
    if options.json:
        residuals = equations.residuals(s)
        print(json.dumps({"shape": list(s.K.shape), "rank": s.rank, "components": len(s.sigma),
                          "sigma": [float(x) for x in s.sigma * s.scale],
                          "residuals": [residual._asdict() for residual in residuals]}, indent=1))
        good = all(residual.ok for residual in residuals)
    else:
        print(f"{name}: {what}")
        print(f"   rows {_few(rows)}, columns {_few(columns)}\n")
        good = report(s)
    if out:
        from ..course import plots
        plots.overview(s.K * s.scale, s.spectrum * s.scale, s.E * s.scale, s.R * s.scale, rows=rows,
                       columns=columns, title=options.file.name).savefig(out, dpi=150)
        print(f"figure written: {out}", file=sys.stderr)
    return 0 if good else 1


def _features(options):
    """Phi, Psi, K if they are its compatible maps, labels, and a sentence that says what K is."""
    import numpy as np

    from .. import features, kernels
    from ..backend import as_pair
    from .files import read
    given = {name: getattr(options, name) for name in ("gamma", "degree", "coef0", "scale")
             if getattr(options, name) is not None}
    kernel = options.kernel or "linear"
    if kernel not in KERNELS:
        raise ValueError(f"--kernel: one of {', '.join(KERNELS)} expected, got {kernel}")
    for parameter in given:
        if parameter not in KERNELS[kernel]:
            raise ValueError(f"--{parameter}: no such parameter, the {kernel} kernel takes "
                             f"{' and '.join(KERNELS[kernel]) or 'none'}")
    arrays, rows, columns = read(options.file)
    pair = next((p for p in PAIRS if set(p) <= set(arrays)), None)
    if pair and not options.file2 and {"K", "A"} & set(arrays) - set(pair):
        raise ValueError(f"one matrix or one pair expected, found {', '.join(arrays)}")
    if options.file2:
        second = read(options.file2)
        X, Z, columns, pair = _one(arrays), _one(second.arrays), second.rows, ("X", "Z")
    elif pair:
        X, Z = arrays[pair[0]], arrays[pair[1]]
    else:
        X = Z = _one(arrays)
        columns, pair = (rows, ("X", "X")) if options.kernel else (columns, None)
    X, Z = as_pair(X, Z, pair or ("K", "K"))
    shape = (len(X), len(Z)) if pair else X.shape
    if min(shape) > LARGEST:
        raise ValueError(f"at most {LARGEST} on the short side expected for the dual, got {shape}: "
                         "primal.solve(Phi, Psi) takes features with any number of rows")
    rows, columns = (labels if labels and len(labels) == n else None
                     for labels, n in zip((rows, columns), shape))
    centred = ", centred" if options.center else ""
    if pair and kernel == "linear":
        if pair == ("Q", "K"):
            X, Z = X / X.shape[1] ** 0.25, Z / Z.shape[1] ** 0.25
        if options.center:
            X, Z = X - X.mean(axis=0), Z - Z.mean(axis=0)
        return X, Z, None, rows, columns, {
            ("Phi", "Psi"): "K = Φ Ψᵀ", ("Q", "K"): "K = QKᵀ/√d", ("X", "Z"): "K = X Zᵀ",
            ("X", "X"): "K = X Xᵀ"}[pair] + centred
    K = getattr(kernels, kernel)(X, Z, **given) if pair else X
    if options.center:
        raw, K = K, kernels.center(K)
        if not abs(K).max() > 1e3 * np.finfo(K.dtype).eps * abs(raw).max():
            raise ValueError("a matrix that differs from its means expected, found nothing but "
                             "rounding left after --center")
    what = f"K = the {kernel} kernel of {pair[0]} and {pair[1]}" if pair else "the matrix K"
    return *features.compatible(K), K, rows, columns, \
        f"{what}{centred}; its own rows and columns are the features"


def _few(labels):
    if not labels:
        return "without labels"
    return "labelled " + ", ".join(labels[:3]) + ", ..." * (len(labels) > 3)


def _one(arrays):
    for name in ("K", "A"):
        if name in arrays:
            return arrays[name]
    if len(arrays) == 1:
        return next(iter(arrays.values()))
    raise ValueError("an array named K or A, or a pair Phi, Psi or Q, K or X, Z expected, "
                     f"found {', '.join(arrays) or 'none'}")


def report(s):
    """Print shape, rank, spectrum and one line per equation.

    Parameters
    ----------
    s : equations.Solution

    Returns
    -------
    bool
        All equations hold.
    """
    import numpy as np

    from .. import equations
    N, M = s.K.shape
    route = "block Golub–Kahan" if equations.has_low_rank(N, M, s.Phi.shape[1]) else "the SVD"
    print(f"   shape      {N} x {M}, numerical rank {s.rank}, {len(s.sigma)} components; dual by "
          f"{route}, primal from {s.Phi.shape[1]} features")
    if N == M:
        minus, plus = np.linalg.norm(s.K - s.K.T), np.linalg.norm(s.K + s.K.T)
        print(f"   asymmetry  ‖K − Kᵀ‖/‖K + Kᵀ‖ = {minus / plus if plus else float('inf'):.3g}")
    share = 100 * np.cumsum(s.spectrum ** 2) / np.sum(s.spectrum ** 2)
    shown, more = min(8, len(s.spectrum)), " ..." * (len(s.spectrum) > 8)
    print("   σ         " + "".join(f" {x:9.3g}" for x in s.spectrum[:shown] * s.scale) + more)
    print("   share σ²  " + "".join(f" {x:8.2f}%" for x in share[:shown]) + more + "  cumulative\n")
    found = equations.residuals(s)
    width = max(len(residual.statement) for residual in found)
    for tag, statement, _, value, _, ok in found:
        print(f"   {tag:5s} {statement:{width}s} {value:8.1e}  {'ok' if ok else 'DOES NOT HOLD'}")
    good = sum(residual.ok for residual in found)
    print(f"\n   {good} of {len(found)} equations hold. The number is how far both sides of one "
          f"differ, relative to σ₁;\n   up to {found[0].tolerance:.1e} is rounding "
          f"({equations.C:g} √max(N, M, p) ε ‖Φ‖‖Ψ‖/σ₁).")
    return good == len(found)


def list_equations(options):
    """The index of the equations, or some entries of it."""
    from ..course import index
    found = {entry.tag: entry for entry in index.entries()}
    options.tags = [tag.upper() for tag in options.tags]
    unknown = [tag for tag in options.tags if tag not in found]
    if unknown:
        raise ValueError(f"{', '.join(unknown)}: no such tag, ksvd-ref equations lists all" + (
            "" if index.cells() else " that need no clone: what only tests say is beside them"))
    if options.into and options.tags:
        raise ValueError(f"--into writes the whole table, got the tags {', '.join(options.tags)}")
    if options.into:
        options.into.write_text(index.renewed(options.into.read_text("utf-8")), "utf-8")
        return 0
    chosen = [found[tag] for tag in options.tags or found]
    print("\n".join(map(index.text, chosen)))
    if not index.cells():
        print("\nLessons, tests, and what only they say, are beside the package in a clone.")
    return 0


def check_files(options):
    """The reader's answers to the exercises: a table for each file, or one row."""
    from ..course import exercises, marking
    line = exercises.one_line                       # a name may hold what steers a terminal
    wanted = exercises.wanted(options.lesson)
    for file in options.files:
        if not file.is_file() or file.suffix.lower() not in (".py", ".ipynb"):
            raise ValueError(f"{line(file)}: a file .py or .ipynb expected, found "
                             + ("another kind" if file.exists() else "none of this name"))
    if not 0 < options.seconds < 1e5:
        raise ValueError("--seconds: a number above 0 and below 1e5 expected, got "
                         f"{options.seconds:g}")
    row = csv.writer(sys.stdout, lineterminator="\n").writerow
    if options.csv:
        row(["file", *(f"E{exercise}" for exercise in wanted), "points", "of"])
    good = True
    for file in options.files:
        marks, problem = marking.marks(file, lesson=options.lesson, seconds=options.seconds)
        points = sum(mark.points or 0 for mark in marks.values())
        good &= points == len(marks)
        if options.csv:
            formula = str(file)[0] in "=+-@\t\r"    # to a spreadsheet
            row([f"./{file}" if formula else file,
                 *(mark.points for mark in marks.values()), points, len(marks)])
            if problem:
                print(f"ksvd-ref: {line(file)}: {problem}", file=sys.stderr)
        else:
            print(line(file), "", *([problem] if problem else _rows(marks, wanted)), "",
                  f"{points} of {len(marks)} points", "", sep="\n")
        sys.stdout.flush()
    return 0 if good else 1


def _rows(marks, wanted):
    """A line for each exercise of the lessons attempted, one for all others."""
    lesson = lambda exercise: int(exercise.split(".")[0])
    tried = {lesson(exercise) for exercise, mark in marks.items() if mark.points is not None}
    idle = sorted({lesson(exercise) for exercise in marks} - tried)
    width = max(len(wanted[exercise][1]) for exercise in marks)
    for exercise, (points, message) in marks.items():
        if lesson(exercise) in tried:
            start = f"E{exercise:6}{wanted[exercise][1]:{width}}  {points} ".replace("None", "-")
            yield textwrap.fill(message, 100, initial_indent=start + " ",
                                subsequent_indent=" " * len(start + " "))
    if idle:
        yield f"Nothing attempted in lesson{'s' * (len(idle) > 1)} {', '.join(map(str, idle))}."
