"""The reader's matrix: which arrays of his files, which kernel of them, and what it will cost.

Phi, Psi    (N, p), (M, p)    its features; a bare matrix has its own rows and columns (K.33)

No equation: it chooses.
"""
import sys
from typing import Any, NamedTuple

import numpy as np

from . import KERNELS
from .. import features, kernels
from ..inputs import as_array
from ..solution import has_low_rank
from .files import read

PAIRS = {("Phi", "Psi"): "K = Φ Ψᵀ", ("Q", "K"): "K = QKᵀ/√d", ("X", "Z"): "K = X Zᵀ"}
BARE = ("K",)                           # the name of one matrix
BYTES, SECONDS = 8 << 30, 1800          # what a computation may need; the README states both
ROUTE = ("primal.solve(Phi, Psi) takes features of any number of rows and no K, large.golub_kahan "
         "finds a few components, nystrom takes a few rows and columns")


class Problem(NamedTuple):
    """What solution() needs, and what the report says of it."""

    Phi: Any
    Psi: Any
    given: Any              # the bare matrix whose compatible maps these are, or None
    rows: Any               # labels, or None
    columns: Any
    what: str               # a sentence that says what K is
    taken: list             # what each text was taken for, see tables.py
    remarks: list


def problem(options):
    """The Problem of the command's options. Shapes are judged before anything is loaded."""
    kernel = options.kernel or "linear"
    parameters = _parameters(options, kernel)
    names, arrays, labels, taken, remarks = _data(options)
    cuts = [_cut(array.shape, name, options.index) for name, array in zip(names, arrays)]
    (N, d), (M, p) = cuts[0][0], cuts[-1][0]
    if d != p:
        raise ValueError(f"{' and '.join(names)} need the same number of columns, got shapes "
                         f"{cuts[0][0]} and {cuts[-1][0]}")
    M, linear = (d, False) if names == BARE else (M, kernel == "linear")
    announce(N, M, d if linear else None)
    loaded = [_loaded(array.load(at), name, remarks)
              for name, array, (_, at) in zip(names, arrays, cuts)]
    X, Z = loaded[0], loaded[-1]
    rows, columns = (of if of and len(of) == n else None for of, n in zip(labels, (N, M)))
    rest = rows, columns, _said(names, kernel, options.center), taken, remarks
    if linear:
        if names == ("Q", "K"):
            X, Z = X / X.shape[1] ** 0.25, Z / Z.shape[1] ** 0.25
        if options.center:
            X, Z = X - X.mean(axis=0), Z - Z.mean(axis=0)
        return Problem(X, Z, None, *rest)
    K = X if names == BARE else getattr(kernels, kernel)(X, Z, **parameters)
    if options.center:
        raw, K = K, kernels.center(K)
        if not abs(K).max() > 1e3 * np.finfo(K.dtype).eps * abs(raw).max():
            raise ValueError("a matrix that differs from its means expected, found nothing but "
                             "rounding left after --center")
    return Problem(*features.compatible(K), K, *rest)


def cost(N, M, p=None):
    """Bytes and seconds of all equations of K (N, M), of p features or its own rows and columns.

    Fitted to one core and one BLAS thread; the short side alone decides nothing.

    >>> size, seconds = cost(60000, 3999, 2)
    >>> size / 1e9, seconds
    (9.6, 110.)
    """
    short, p = min(N, M), p or 0                    # K^+ and its projector instead of features
    k = p if p and has_low_rank(N, M, p) else short
    return (8 * (5 * N * M + (N + M) * (12 * k + 4 * p)),
            4.5e-7 * N * M + 5e-9 * N * M * k + 1e-8 * k ** 3
            + 1e-8 * (N + M) * p * min(short, p))


def announce(N, M, p=None):
    """Say what a long computation will need; refuse one above the limits, with the way to take."""
    size, seconds = cost(N, M, p)
    needs = f"{N} x {M} needs about {size / 2 ** 30:.2g} GB and {_time(seconds)}"
    if size > BYTES or seconds > SECONDS:
        raise ValueError(f"at most {BYTES >> 30} GB and {_time(SECONDS)} expected, {needs}: "
                         f"{ROUTE}")
    if seconds > 10:
        print(f"ksvd-ref: {needs}", file=sys.stderr, flush=True)


def _time(seconds):
    unit, name = next((x for x in ((86400, "days"), (3600, "h"), (60, "min"))
                       if seconds >= 2 * x[0]), (1, "s"))
    return f"{max(1, round(seconds / unit))} {name}"


def _parameters(options, kernel):
    """The parameters of the kernel, {name: number}."""
    given = {name: getattr(options, name) for name in ("gamma", "degree", "coef0", "scale")
             if getattr(options, name) is not None}
    for name in given:
        if name not in KERNELS[kernel]:
            raise ValueError(f"--{name}: no such parameter, the {kernel} kernel takes "
                             f"{' and '.join(KERNELS[kernel]) or 'none'}")
    return given


def _data(options):
    """Names, one array or two, labels of both sides, what was taken, remarks; nothing is loaded."""
    said = {name: getattr(options, name) for name in ("header", "labels", "delimiter", "decimal")}
    found, rows, columns, taken, remarks = read(options.file, **said)
    arrays = _chosen(found, options.array, () if options.file2 else PAIRS)
    if len(arrays) < len(found) and not options.array:
        names = [name for name, x in found.items() if any(x is one for one in arrays.values())]
        remarks = [*remarks, f"took {', '.join(names)} of the arrays {', '.join(found)}: "
                   "--array NAME chooses another"]
    if options.file2:
        found, columns, _, more, others = read(options.file2, **said)
        [X], [Z] = arrays.values(), _chosen(found, options.array).values()
        return ("X", "Z"), [X, Z], (rows, columns), [taken, more], [*remarks, *others]
    names = tuple(arrays) if len(arrays) == 2 else ("X", "X") if options.kernel else BARE
    labels = rows, rows if names == ("X", "X") else columns
    return names, [*arrays.values()], labels, [taken], remarks


def _chosen(arrays, chosen, pairs=()):
    """One array of a file, or a pair: those that --array or their names, in any case, choose."""
    if not chosen:
        known = {name.lower(): name for name in ("Phi", "Psi", "Q", "K", "X", "Z", "A")}
        meant = lambda name: known.get(name.lower(), name)
        arrays = {name if meant(name) in arrays else meant(name): x for name, x in arrays.items()}
    pair = next((names for names in pairs if not chosen and set(names) <= set(arrays)), ())
    wanted = [chosen] if chosen else arrays if len(arrays) == 1 else ["K", "A"]
    one = [name for name in wanted if name in arrays and name not in pair]
    if bool(pair) == bool(one):
        found = ", ".join(arrays) or "none"
        raise ValueError(f"--array: one of {found} expected, got {chosen}" if chosen else
                         "one matrix, K or A, or one pair, Phi, Psi or Q, K or X, Z, expected, "
                         f"found {found}" + ": --array NAME chooses" * bool(arrays))
    return {name: arrays[name] for name in pair or one[:1]}


def _cut(shape, name, index):
    """The shape of a matrix inside one with more axes, and the index of its first axes."""
    lead, given = shape[:-2], index or ()
    axes = [n for n, length in enumerate(lead) if length != 1 or len(given) == len(lead)]
    if len(shape) < 2 or len(given) != len(axes) or not all(
            -lead[n] <= i < lead[n] for n, i in zip(axes, given)):
        first, last, got = (",".join(map(str, numbers)) for numbers in (
            [0] * len(axes), [lead[n] - 1 for n in axes], given))
        raise ValueError(f"{name} must have 2 axes, got shape {shape}" + (
            f": --index from {first} to {last} chooses along the first {len(axes)}" if axes else
            ": --index has nothing to choose" * bool(given)) + f", got {got}" * bool(given))
    chosen = [0] * len(lead)
    for n, i in zip(axes, given):
        chosen[n] = i % lead[n]
    if 0 in shape:
        as_array(np.ones(shape), name)
    return tuple(shape[len(lead):]), tuple(chosen)


def _loaded(X, name, remarks):
    """The matrix; what looks like masked scores is told, since their KSVD is that of the mask."""
    hint = []
    if X.dtype.kind == "f" and X.min() < -1e3:
        low, rest = X.min(), np.abs(X[X > X.min()]).max(initial=0.0)
        if low < -1e3 * rest and np.sum(X == low) > 1:
            hint = [f"{name} looks like masked scores (its least entry is {low:.3g}, of all others "
                    f"the largest is {rest:.3g}): take the softmax first"]
    remarks += hint
    try:
        return as_array(X, name, 2)
    except ValueError as error:
        raise ValueError("; ".join([str(error), *hint])) from error


def _said(names, kernel, center):
    centred = ", centred" * center
    if names == BARE:
        return f"the matrix K{centred}; its own rows and columns are the features"
    if kernel == "linear":
        return PAIRS.get(names, "K = X Xᵀ") + centred
    return (f"K = the {kernel} kernel of {names[0]} and {names[1]}{centred}; its own rows and "
            "columns are the features")
