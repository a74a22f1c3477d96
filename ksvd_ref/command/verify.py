"""Every equation on a pretrained attention head, or on the reader's own matrix, as a report.

No equation: it prints what equations.py finds.
"""
import json
import os
import sys

import numpy as np

from .. import course, equations, features, kernels
from ..backend import silent
from ..solution import has_low_rank, solution
from .frame import SEPARATORS
from .matrix import problem

PLOTS = ".png", ".pdf", ".svg"
SMALL = 6                   # rows and columns of a matrix whose vectors are printed


def demo():
    """Scores and attention matrix of one pretrained head."""
    heads = course.datasets.minilm_heads()
    Q, K = heads.Q[-1, 0, :, :], heads.K[-1, 0, :, :]
    N, d = Q.shape
    print("Head 0 of the last layer of the language model all-MiniLM-L6-v2, reading the\n"
          f"Gettysburg Address: {N} tokens, each with a query and a key of {d} numbers.\n\n"
          "1. The scores of queries Q against keys, K = QKᵀ/√d = Φ Ψᵀ: the features of the rows\n"
          "   are Φ = Q/d^¼, those of the columns Ψ = K/d^¼\n")
    good = report(solution(Q / d ** 0.25, K / d ** 0.25))
    print("\n2. The attention matrix, K = softmax(QKᵀ/√d): it has no finite features, so its own\n"
          "   rows and columns serve, as for any matrix: Φ = K K⁺, Ψ = Kᵀ\n")
    A = kernels.softmax(Q, K)
    good &= report(solution(*features.compatible(A), given=A))
    print("\nThe same for your own matrix:  ksvd-ref verify FILE")
    return 0 if good else 1


def verify_files(options):
    """The reader's matrix."""
    read = [file.resolve() for file in (options.file, options.file2) if file]
    for option, out, endings in (("plot", options.plot, PLOTS), ("save", options.save, (".npz",))):
        if out and (out.suffix.lower() not in endings or out.is_dir() or out.resolve() in read
                    or not os.access(out.parent, os.W_OK)):
            raise ValueError(f"--{option}: a file {', '.join(endings)}, not one that is read, in a "
                             f"folder that can be written to expected, got {out}")
    if options.plot:
        course.plots.need()                         # missed before the work, not after it
    name = _name(options, str)
    try:
        with silent():                              # an overflow is refused, once is enough
            of = problem(options)
            s = solution(of.Phi, of.Psi, rank=options.rank, given=of.given)
    except (OSError, TypeError, ValueError) as error:
        unread = isinstance(error, OSError)
        raise ValueError(f"{error.filename or name}: a readable file expected, found: "
                         f"{error.strerror}" if unread else f"{name}: {error}") from error
    good = (_json if options.json else _text)(name, of, s)
    if options.save:
        names = {side: x for side, x in (("rows", of.rows), ("columns", of.columns)) if x}
        with options.save.open("wb") as file:       # of a name NumPy writes x.NPZ as x.NPZ.npz
            np.savez(file, **halves(of, s), **names)
        print(f"saved: {_shown(options.save)}", file=sys.stderr)
    if options.plot:
        _draw(options, of, s)
        print(f"figure written: {_shown(options.plot)}", file=sys.stderr)
    return 0 if good else 1


def halves(of, s):
    """Sigma and both halves in the units of the reader's K: E = K H_r, W_e = Psi^T H_r as they are.

    The dual vectors are those in the basis of the primal, which a repeated sigma leaves free.
    """
    H_e, H_r = s.aligned
    norms = [abs(A).max() / abs(unit).max() for A, unit in ((of.Phi, s.Phi), (of.Psi, s.Psi))]
    return {"sigma": s.sigma * s.scale, "H_e": H_e, "H_r": H_r, "W_e": s.W_e * norms[1],
            "W_r": s.W_r * norms[0], "E": s.K @ H_r * s.scale, "R": s.K.T @ H_e * s.scale}


def _json(name, of, s):
    residuals = equations.residuals(s)
    print(json.dumps({"shape": list(s.K.shape), "rank": s.rank, "components": len(s.sigma),
                      "sigma": [float(x) for x in s.sigma * s.scale],
                      "rows": of.rows, "columns": of.columns,
                      "separator": of.taken[0].get("separator"),
                      "decimal": of.taken[0].get("decimal"),
                      "remarks": [*of.remarks, *s.remarks],
                      "residuals": [residual._asdict() for residual in residuals]}, indent=1))
    return all(residual.ok for residual in residuals)


def _text(name, of, s):
    print(f"{name}: {of.what}")
    print(f"   rows {_few(of.rows)}, columns {_few(of.columns)}")
    for taken in filter(None, of.taken):
        mark, decimal, *has = taken.values()
        cells = f"with {SEPARATORS.get(mark, mark)} between cells" if mark else "of one column"
        print(f"   read as a table {cells}, decimal {'comma' if decimal == ',' else 'point'}, "
              "{} header, {} column of labels".format(*("a" if x else "no" for x in has)))
    for remark in of.remarks:
        print(f"   remark: {_shown(remark, 200)}")
    print()
    good = report(s)
    if max(s.K.shape) <= SMALL:
        _vectors(halves(of, s))
    return good


def _vectors(parts):
    """The two halves, for who checks by hand."""
    print("\n   the vectors, to check by hand (E = K Hᵣ = Hₑ Σ, R = Kᵀ Hₑ = Hᵣ Σ):\n")
    for name in ("sigma", "H_e", "H_r", "W_e", "W_r"):
        A = np.atleast_2d(parts[name])
        A = np.where(abs(A) < 1e-15 * abs(A).max(), 0.0, A)
        if len(A) > SMALL:
            print(f"   {name:6}{A.shape[0]} x {A.shape[1]}: --save writes it")
            continue
        for n, row in enumerate(A):
            print(f"   {name * (n == 0):6}" + "".join(f" {x:12.6g}" for x in row))


def _draw(options, of, s):
    """The figure; what it names and what it leaves out stand above it."""
    kept, rest = len(s.sigma), len(s.spectrum) - s.rank
    title = (f"{_name(options, lambda file: file.name)}: {of.what.partition(';')[0]}\n"
             f"{s.K.shape[0]} x {s.K.shape[1]}, numerical rank {s.rank}: {kept} kept"
             + f", {s.rank - kept} left out" * (kept < s.rank)
             + f", {rest} more rounding" * (rest > 0))
    course.plots.save(options.plot, *(A * s.scale for A in (s.K, s.spectrum, s.E, s.R)),
                      rows=of.rows, columns=of.columns, title=title)


def _name(options, of):
    return " and ".join("standard input" if str(file) == "-" else _shown(of(file))
                        for file in (options.file, options.file2) if file)


def _shown(text, most=60):
    """Text from outside, in one line that any terminal can show."""
    return course.exercises.one_line(text, most=most)


def _few(labels):
    shown = ", ".join(_shown(label, 24) for label in (labels or ())[:3])
    return f"labelled {shown}{', ...' * (len(labels) > 3)}" if labels else "without labels"


def report(s):
    """Print shape, rank, spectrum and one line per equation; True if all equations hold."""
    N, M = s.K.shape
    found = equations.residuals(s)
    print(f"   tolerance  {found[0].tolerance:.1e} of σ₁: a difference up to here is rounding "
          f"({equations.ROUNDINGS:g} √max(N, M, p) ε ‖Φ‖₂‖Ψ‖₂/σ₁)")
    route = "block Golub–Kahan" if has_low_rank(N, M, s.Phi.shape[1]) else "the SVD"
    print(f"   shape      {N} x {M}, numerical rank {s.rank}, {len(s.sigma)} components; dual by "
          f"{route}, primal from {s.Phi.shape[1]} features")
    if N == M:
        minus, plus = np.linalg.norm(s.K - s.K.T), np.linalg.norm(s.K + s.K.T)
        print(f"   asymmetry  ‖K − Kᵀ‖/‖K + Kᵀ‖ = {minus / plus if plus else float('inf'):.3g}")
    share = 100 * np.cumsum(s.spectrum ** 2) / np.sum(s.spectrum ** 2)
    shown, more = min(8, len(s.spectrum)), " ..." * (len(s.spectrum) > 8)
    print("   σ         " + "".join(f" {x:9.3g}" for x in s.spectrum[:shown] * s.scale) + more)
    print("   share σ²  " + "".join(f" {x:8.2f}%" for x in share[:shown]) + more + "  cumulative\n")
    for remark in s.remarks:
        print(f"   Remark: {remark}.\n")
    counted, others = ([residual for residual in found if bool(residual.follows_from) == follows]
                       for follows in (False, True))
    _lines(counted)
    print("\n   What follows from those in brackets, and is not counted:")
    _lines(others)
    print(f"\n   {sum(residual.ok for residual in counted)} of {len(counted)} equations hold. "
          "The number is how far both\n   sides of one differ, relative to σ₁.")
    return all(residual.ok for residual in found)


def _lines(residuals):
    width = max(len(residual.statement) for residual in residuals)
    for tag, statement, _, value, _, ok, source in residuals:
        print(f"   {tag:5s} {statement:{width}s} {value:7.1e}  {'ok' if ok else 'DOES NOT HOLD'}"
              f"{f'  ({source})' if source else ''}")
