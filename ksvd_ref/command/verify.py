"""Every equation on a pretrained attention head, or on the reader's own matrix, as a report.

No equation: it prints what equations.py finds.
"""
import json
import os
import sys

import numpy as np

from . import KERNELS
from .. import course, equations, features, kernels
from ..backend import silent
from ..inputs import as_array
from ..solution import has_low_rank, solution
from .files import read

LARGEST = 4000              # short side of the largest matrix: less than half an hour
PAIRS = {("Phi", "Psi"): "K = Φ Ψᵀ", ("Q", "K"): "K = QKᵀ/√d", ("X", "Z"): "K = X Zᵀ"}
PLOTS = (".png", ".pdf", ".svg")


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
    out = options.plot
    if out and (out.suffix.lower() not in PLOTS or out.is_dir()
                or not os.access(out.parent, os.W_OK)):
        raise ValueError("--plot: a file .png, .pdf or .svg in a folder that can be written to "
                         f"expected, got {out}")
    name = " and ".join(str(file) for file in (options.file, options.file2) if file)
    try:
        s, rows, columns, what = _solved(options)
    except OSError as error:
        raise ValueError(f"{error.filename or name}: a readable file expected, found: "
                         f"{error.strerror}") from error
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name}: {error}") from error
    if options.json:
        residuals = equations.residuals(s)
        print(json.dumps({"shape": list(s.K.shape), "rank": s.rank, "components": len(s.sigma),
                          "sigma": [float(x) for x in s.sigma * s.scale],
                          "residuals": [residual._asdict() for residual in residuals],
                          "remarks": s.remarks}, indent=1))
        good = all(residual.ok for residual in residuals)
    else:
        print(f"{name}: {what}")
        print(f"   rows {_few(rows)}, columns {_few(columns)}\n")
        good = report(s)
    if out:
        course.plots.overview(s.K * s.scale, s.spectrum * s.scale, s.E * s.scale, s.R * s.scale,
                              rows=rows, columns=columns,
                              title=options.file.name).savefig(out, dpi=150)
        print(f"figure written: {out}", file=sys.stderr)
    return 0 if good else 1


def report(s):
    """Print shape, rank, spectrum and one line per equation; True if all equations hold."""
    N, M = s.K.shape
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
    found = equations.residuals(s)
    counted, others = ([residual for residual in found if bool(residual.follows_from) == follows]
                       for follows in (False, True))
    _lines(counted)
    print("\n   What follows from those in brackets, and is not counted:")
    _lines(others)
    print(f"\n   {sum(residual.ok for residual in counted)} of {len(counted)} equations hold. The "
          "number is how far both sides of one differ, relative to σ₁;\n"
          f"   up to {found[0].tolerance:.1e} is rounding "
          f"({equations.ROUNDINGS:g} √max(N, M, p) ε ‖Φ‖‖Ψ‖/σ₁).")
    return all(residual.ok for residual in found)


def _lines(residuals):
    width = max(len(residual.statement) for residual in residuals)
    for tag, statement, _, value, _, ok, source in residuals:
        print(f"   {tag:5s} {statement:{width}s} {value:7.1e}  {'ok' if ok else 'DOES NOT HOLD'}"
              f"{f'  ({source})' if source else ''}")


def _solved(options):
    """The solution of the reader's matrix, labels, and a sentence that says what it is."""
    with silent():                                  # an overflow is refused, once is enough
        Phi, Psi, given, rows, columns, what = _features(options)
        N, M = len(Phi), len(Psi)
        if min(N, M) > 700 and not has_low_rank(N, M, Phi.shape[1]):
            minutes = 0.4 * (min(N, M) / 1000) ** 3                        # measured on one core
            print(f"{N} x {M}: this will take about {max(1, round(minutes))} min", file=sys.stderr)
        return solution(Phi, Psi, rank=options.rank, given=given), rows, columns, what


def _features(options):
    """Phi, Psi, K if they are its compatible maps, labels, and a sentence that says what K is."""
    kernel, parameters = _kernel(options)
    X, Z, pair, rows, columns = _data(options)
    centred = ", centred" if options.center else ""
    if pair and kernel == "linear":
        if pair == ("Q", "K"):
            X, Z = X / X.shape[1] ** 0.25, Z / Z.shape[1] ** 0.25
        if options.center:
            X, Z = X - X.mean(axis=0), Z - Z.mean(axis=0)
        return X, Z, None, rows, columns, PAIRS.get(pair, "K = X Xᵀ") + centred
    K = getattr(kernels, kernel)(X, Z, **parameters) if pair else X
    if options.center:
        raw, K = K, kernels.center(K)
        if not abs(K).max() > 1e3 * np.finfo(K.dtype).eps * abs(raw).max():
            raise ValueError("a matrix that differs from its means expected, found nothing but "
                             "rounding left after --center")
    what = f"K = the {kernel} kernel of {pair[0]} and {pair[1]}" if pair else "the matrix K"
    return *features.compatible(K), K, rows, columns, \
        f"{what}{centred}; its own rows and columns are the features"


def _kernel(options):
    """Name of the kernel, and its parameters."""
    parameters = {name: getattr(options, name) for name in ("gamma", "degree", "coef0", "scale")
                  if getattr(options, name) is not None}
    kernel = options.kernel or "linear"
    if kernel not in KERNELS:
        raise ValueError(f"--kernel: one of {', '.join(KERNELS)} expected, got {kernel}")
    for name in parameters:
        if name not in KERNELS[kernel]:
            raise ValueError(f"--{name}: no such parameter, the {kernel} kernel takes "
                             f"{' and '.join(KERNELS[kernel]) or 'none'}")
    return kernel, parameters


def _data(options):
    """Two arrays and what they are called, or one of them twice and None; labels of K."""
    arrays, rows, columns = read(options.file)
    pair = next((names for names in PAIRS if set(names) <= set(arrays)), None)
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
    one, other = pair or ("K", "K")
    X, Z = as_array(X, one, 2), as_array(Z, other, 2)
    if X.shape[1] != Z.shape[1]:
        raise ValueError(f"{one} and {other} need the same number of columns, got shapes {X.shape} "
                         f"and {Z.shape}")
    N, M = (len(X), len(Z)) if pair else X.shape
    if min(N, M) > LARGEST:
        raise ValueError(f"at most {LARGEST} on the short side expected for the dual, got "
                         f"{(N, M)}: primal.solve(Phi, Psi) takes features with any number of rows")
    return X, Z, pair, *(labels if labels and len(labels) == n else None
                         for labels, n in ((rows, N), (columns, M)))


def _one(arrays):
    for name in ("K", "A"):
        if name in arrays:
            return arrays[name]
    if len(arrays) == 1:
        return next(iter(arrays.values()))
    raise ValueError("an array named K or A, or a pair Phi, Psi or Q, K or X, Z expected, "
                     f"found {', '.join(arrays) or 'none'}")


def _few(labels):
    if not labels:
        return "without labels"
    return "labelled " + ", ".join(labels[:3]) + ", ..." * (len(labels) > 3)
