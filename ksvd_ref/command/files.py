"""The reader's own numbers: arrays from .npy, .npz, .csv, .tsv and .txt files, for the command.

No equation: it reads files.
"""
import csv
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np


class File(NamedTuple):
    """Arrays of a file by name ("A" if the file has no names), and labels if it has them."""

    arrays: Any       # {name: array}
    rows: Any         # list of str, or None
    columns: Any      # list of str, or None


def read(path):
    r"""Arrays of a .npy, .npz, .csv, .tsv or .txt file, with the labels that it holds.

    A text table may have a header row and a label column. In an .npz, text arrays named rows,
    columns, names (of both) or labels (of both) are labels. Refused, with what was found and what
    is wanted: no numbers, pickled objects, rows of different length, text inside the table.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "points.csv")
    ...     _ = path.write_text("player,win,draw\nAnn,2,1\nBob,0,1\n")
    ...     read(path)
    File(arrays={'A': array([[2., 1.], [0., 1.]])}, rows=['Ann', 'Bob'], columns=['win', 'draw'])
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix in (".npy", ".npz"):
        return _read_numpy(path)
    if suffix in (".csv", ".tsv", ".txt"):
        return _read_text(path, suffix)
    raise ValueError("a .npy, .npz, .csv, .tsv or .txt file expected, "
                     f"found {'the ending ' + suffix if suffix else 'a name without an ending'}")


def _read_numpy(path):
    with path.open("rb") as stream:
        try:
            found = np.load(stream, allow_pickle=False)
            if isinstance(found, np.ndarray):
                found = {"A": found}
            arrays = {name: found[name] for name in found}
        except Exception as error:      # ValueError, EOFError, BadZipFile, SyntaxError, ...
            reason = (str(error).splitlines() or ["damaged"])[0]
            raise ValueError("numbers written by numpy.save or numpy.savez expected, "
                             f"found something else ({reason})") from error
    text = {name: [str(x) for x in array] for name, array in arrays.items()
            if array.dtype.kind == "U" and array.ndim == 1}
    both = text.get("names", text.get("labels"))
    return File({name: _real(array) for name, array in arrays.items() if name not in text},
                text.get("rows", both), text.get("columns", both))


def _real(array):
    """float16, longdouble and big-endian as float64; as_array refuses what is no number."""
    plain = array.dtype.kind != "f" or array.dtype in (np.float32, np.float64)
    return array if plain else array.astype(np.float64)


def _read_text(path, suffix):
    table = _cells(path, suffix)
    first = table[0][1]
    corner = first[0] == "" and len(first) > 1          # as pandas writes an index
    header = corner or all(_number(cell) is None for cell in first[1:] or first)
    body = table[header:]
    if not body:
        raise ValueError("a table of numbers expected, found only a header")
    # A label column: no first cell is a number, or the header has an empty corner above it.
    labelled = corner or all(_number(row[0]) is None for _, row in body)
    if len(body[0][1]) == labelled:
        raise ValueError("a table of numbers expected, found only labels"
                         + " (cells of a .tsv are separated by tabs)" * (suffix == ".tsv"))
    for n, row in body if labelled and not corner else ():
        if set(row[0]) <= set("0123456789.,_+-−%$€ "):
            raise ValueError(f"a name, or a number with a decimal point and nothing else expected, "
                             f"found {row[0]!r} in line {n}, column 1")
    A = _numbers(body, labelled)
    width, columns = A.shape[1], first if header else None
    if header and len(columns) not in (width, width + labelled):
        raise ValueError(f"a header of {width} names expected, found {len(columns)} in line "
                         f"{table[0][0]}")
    columns = columns and columns[-width:]              # the cell above the labels may be missing
    return File({"A": A}, [row[0] for _, row in body] if labelled else None, columns)


def _cells(path, suffix):
    """The rows of a text table, each with the number of its line."""
    try:
        lines = list(enumerate(path.read_text(encoding="utf-8-sig").splitlines(), 1))
    except UnicodeDecodeError as error:
        raise ValueError("text in UTF-8 expected, found other bytes") from error
    lines = [(n, line) for n, line in lines if line.strip()]
    while lines and (lines[0][1] + " ").startswith("# "):  # savetxt writes these
        del lines[0]
    if not lines:
        raise ValueError("a table of numbers expected, found an empty file")
    mark = "\t" if suffix == ".tsv" else max(",;\t", key=lines[0][1].count)
    try:
        return [(n, line.split() if mark not in line else
                 [cell.strip() for cell in next(csv.reader([line], delimiter=mark))])
                for n, line in lines]
    except csv.Error as error:
        raise ValueError(f"a table of numbers expected, found something else ({error})") from error


def _numbers(body, labelled):
    """The matrix of a table, whose first column may hold labels."""
    width = len(body[0][1])
    A = np.empty((len(body), width - labelled))
    for i, (n, row) in enumerate(body):
        if len(row) != width:
            raise ValueError(f"rows of one length expected, found {len(row)} cells in line {n} "
                             f"after {width} in line {body[0][0]}")
        for j, cell in enumerate(row[labelled:]):
            value = _number(cell)
            if value is None:
                raise ValueError(f"a number expected, found {cell!r} in line {n}, "
                                 f"column {j + labelled + 1}")
            A[i, j] = value
    return A


def _number(cell):
    try:
        return None if "_" in cell else float(cell)     # Python reads 1_000, no other program does
    except ValueError:
        return None
