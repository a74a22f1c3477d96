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


class Data(NamedTuple):
    """Two arrays, not loaded yet, or one of them twice and no names; labels of K."""

    X: Any
    Z: Any
    names: Any              # ("Q", "K"), or None for one matrix
    rows: Any
    columns: Any
    taken: list
    remarks: list


def problem(options):
    """The Problem of the command's options. Shapes are judged before anything is loaded."""
    kernel, parameters = options.kernel or "linear", _parameters(options)
    data = _data(options)
    one, other = data.names or ("K", "K")
    (X_shape, X_index), (Z_shape, Z_index) = (
        _cut(array.shape, name, options.index) for array, name in ((data.X, one), (data.Z, other)))
    if X_shape[1] != Z_shape[1]:
        raise ValueError(f"{one} and {other} need the same number of columns, got shapes {X_shape} "
                         f"and {Z_shape}")
    N, M = (X_shape[0], Z_shape[0]) if data.names else X_shape
    linear = data.names and kernel == "linear"
    announce(N, M, X_shape[1] if linear else None)
    X = _loaded(data.X, X_shape, X_index, one, data.remarks)
    Z = X if data.Z is data.X else _loaded(data.Z, Z_shape, Z_index, other, data.remarks)
    rows, columns = (labels if labels and len(labels) == n else None
                     for labels, n in ((data.rows, N), (data.columns, M)))
    rest = rows, columns, _said(data.names, kernel, options.center), data.taken, data.remarks
    if linear:
        if data.names == ("Q", "K"):
            X, Z = X / X.shape[1] ** 0.25, Z / Z.shape[1] ** 0.25
        if options.center:
            X, Z = X - X.mean(axis=0), Z - Z.mean(axis=0)
        return Problem(X, Z, None, *rest)
    K = getattr(kernels, kernel)(X, Z, **parameters) if data.names else X
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


def _parameters(options):
    """The parameters of the kernel, {name: number}."""
    kernel = options.kernel or "linear"
    given = {name: getattr(options, name) for name in ("gamma", "degree", "coef0", "scale")
             if getattr(options, name) is not None}
    for name in given:
        if name not in KERNELS[kernel]:
            raise ValueError(f"--{name}: no such parameter, the {kernel} kernel takes "
                             f"{' and '.join(KERNELS[kernel]) or 'none'}")
    return given


def _data(options):
    """The Data of the files that the options name."""
    said = {name: getattr(options, name) for name in ("header", "labels", "delimiter", "decimal")}
    first = read(options.file, **said)
    found = _chosen(first.arrays, options.array, () if options.file2 else PAIRS)
    one, other = (*found.values(), *found.values())[:2]
    if options.file2:
        second = read(options.file2, **said)
        [other] = _chosen(second.arrays, options.array).values()
        return Data(one, other, ("X", "Z"), first.rows, second.rows, [first.taken, second.taken],
                    [*first.remarks, *second.remarks])
    names = tuple(found) if len(found) == 2 else ("X", "X") if options.kernel else None
    return Data(one, other, names, first.rows, first.rows if names == ("X", "X") else first.columns,
                [first.taken], first.remarks)


def _chosen(arrays, chosen, pairs=()):
    """One array of a file, or a pair: those that --array or their names, in any case, choose."""
    if not chosen:
        known = {name.lower(): name for name in ("Phi", "Psi", "Q", "K", "X", "Z", "A")}
        meant = lambda name: known.get(name.lower(), name)
        arrays = {name if meant(name) in arrays else meant(name): x for name, x in arrays.items()}
    pair = next((names for names in pairs if not chosen and set(names) <= set(arrays)), ())
    one = [name for name in ((chosen,) if chosen else ("K", "A"))
           if name in arrays and name not in pair]
    if len(arrays) == 1 and not chosen:
        one = list(arrays)
    if bool(pair) == bool(one):
        raise ValueError(f"{f'--array {chosen}: ' * bool(chosen)}one matrix, K or A, or one pair, "
                         f"Phi, Psi or Q, K or X, Z, expected, found {', '.join(arrays) or 'none'}"
                         + ": --array NAME chooses" * bool(arrays))
    return {name: arrays[name] for name in pair or one[:1]}


def _cut(shape, name, index):
    """The shape of a matrix inside one with more axes, and the index of its first axes."""
    lead, given = shape[:-2], index or ()
    axes = [n for n, length in enumerate(lead) if length != 1 or len(given) == len(lead)]
    if len(shape) < 2 or len(given) != len(axes) or not all(
            -lead[n] <= i < lead[n] for n, i in zip(axes, given)):
        first, last = (",".join(str(i) for i in ends)
                       for ends in ([0] * len(axes), [lead[n] - 1 for n in axes]))
        raise ValueError(f"{name} must have 2 axes, got shape {shape}" + (
            f": --index from {first} to {last} chooses along the first {len(axes)}" if axes else
            ": --index has nothing to choose" * bool(given)))
    chosen = [0] * len(lead)
    for n, i in zip(axes, given):
        chosen[n] = i % lead[n]
    if 0 in shape:
        as_array(np.ones(shape), name)
    return tuple(shape[len(lead):]), tuple(chosen)


def _loaded(array, shape, index, name, remarks):
    """The matrix; what looks like masked scores is told, since their KSVD is that of the mask."""
    X = array.load(index) if index else array.load()
    hint = ""
    if X.dtype.kind == "f" and np.sum(X == X.min()) > 1 and X.min() < -1e3:
        rest = np.abs(X[X > X.min()]).max(initial=0.0)
        if X.min() < -1e3 * rest:
            hint = (f"{name} looks like masked scores (its least entry is {X.min():.3g}, of all "
                    f"others the largest is {rest:.3g}): take the softmax first")
    try:
        X = as_array(X, name, 2)
    except ValueError as error:
        raise ValueError(f"{error}{'; ' * bool(hint)}{hint}") from error
    remarks += [hint] * bool(hint)
    return X


def _said(names, kernel, center):
    centred = ", centred" * bool(center)
    if not names:
        return f"the matrix K{centred}; its own rows and columns are the features"
    if kernel == "linear":
        return PAIRS.get(names, "K = X Xᵀ") + centred
    return (f"K = the {kernel} kernel of {names[0]} and {names[1]}{centred}; its own rows and "
            "columns are the features")
