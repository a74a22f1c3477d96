"""The reader's own files: arrays of .npy and .npz, tables of .csv, .tsv and .txt, for the command.

The header of a NumPy file is read first, so that a shape can be judged before anything is unpacked;
what is pickled is never opened. Text: tables.py.

No equation: it reads files.
"""
import contextlib
import io
import math
import sys
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .tables import table

LABELS = "rows", "columns", "names", "labels"       # the last two: of both
SPARSE = {"csr": ("indices", "indptr"), "csc": ("indices", "indptr"), "coo": ("row", "col")}
TEXT = 1 << 30                                      # bytes of the largest text


class Array(NamedTuple):
    """An array that is not loaded yet."""

    shape: tuple
    dtype: Any
    load: Any           # load(index=()) is the array, or its part at an index of the first axes


class File(NamedTuple):
    """Arrays of a file by name ("A" if the file has no names), and labels if it has them."""

    arrays: dict        # {name: Array}
    rows: Any           # list of str, or None
    columns: Any        # list of str, or None
    taken: dict         # of a text: its "separator" and "decimal" mark
    remarks: list       # what was left out, and what may be meant otherwise


def read(path, **said):
    r"""The File at a path, or on standard input where that is "-".

    In an .npz, text named rows, columns, names (of both) or labels (of both) are labels. said:
    what the reader says of a text, see `tables.table`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "points.csv")
    ...     _ = path.write_text("player,win,draw\nAnn,2,1\nBob,0,1\n")
    ...     found = read(path)
    >>> found.arrays["A"].load(), found.rows, found.columns
    (array([[2., 1.],
           [0., 1.]]), ['Ann', 'Bob'], ['win', 'draw'])
    """
    path = Path(path)
    suffix, opened = path.suffix.lower(), path.open
    if str(path) == "-" and not sys.stdin:
        raise ValueError("an open standard input expected, found it closed")
    if str(path) == "-":
        content = sys.stdin.buffer.read()
        suffix = next((end for start, end in ((b"\x93NUMPY", ".npy"), (b"PK\3\4", ".npz"))
                       if content.startswith(start)), ".txt")
        opened = lambda mode: io.BytesIO(content)
    if suffix in (".npy", ".npz") and all(x is None for x in said.values()):
        return _sorted(_numpy(opened, suffix))
    if suffix not in (".csv", ".tsv", ".txt"):
        raise ValueError("a .npy, .npz, .csv, .tsv or .txt file expected, one of the last three "
                         "for --header, --labels, --delimiter and --decimal, found "
                         + ("a folder" if path.is_dir() else f"the ending {suffix}" if suffix else
                            "a name without an ending"))
    if opened == path.open and path.stat().st_size > TEXT:
        raise ValueError("a text of at most 1 GB expected: save the numbers by numpy.save")
    with opened("rb") as stream:
        A, *found = table(stream.read(), suffix=suffix, **said)
    return File({"A": Array(A.shape, A.dtype, lambda index=(): A[index])}, *found)


@contextlib.contextmanager
def _sound():
    """Whatever is wrong with what a NumPy file holds is one refusal."""
    try:
        yield
    except (OSError, MemoryError):
        raise
    except Exception as error:          # ValueError, EOFError, BadZipFile, SyntaxError, ...
        raise ValueError("numbers written by numpy.save or numpy.savez expected, found something "
                         f"else ({(str(error).splitlines() or ['damaged'])[0]})") from error


@_sound()
def _numpy(opened, suffix):
    """The arrays of a NumPy file, {name: Array}."""
    members = {"A": None}
    if suffix == ".npz":
        with opened("rb") as file:
            members = {name.removesuffix(".npy"): name for name in zipfile.ZipFile(file).namelist()
                       if name.endswith(".npy")}
    return {name: _stored(opened, member) for name, member in members.items()}


@contextlib.contextmanager
def _stream(opened, member):
    """The bytes of one stored array: a whole file, or a member of an archive."""
    with opened("rb") as file:
        if member is None:
            yield file
        else:
            with zipfile.ZipFile(file).open(member) as stream:
                yield stream


def _stored(opened, member):
    """An Array of which the header alone is read."""
    with _stream(opened, member) as stream:
        shape, _, dtype = _header(stream)

    @_sound()
    def load(index=()):
        with _stream(opened, member) as stream:
            return _part(stream, index)
    return Array(shape, dtype, load)


def _sorted(arrays):
    """The File of stored arrays: what is sparse, a structure, a label, pickled."""
    pickled = [name for name, array in arrays.items() if array.dtype.hasobject]
    remarks = [f"{name}: pickled, left out" for name in pickled]
    arrays = {name: array for name, array in arrays.items() if name not in pickled}
    if {"format", "shape", "data"} <= set(arrays):
        return File({"A": _dense(arrays)}, None, None, {}, remarks)
    labels = {name: _labels(arrays.pop(name)) for name in LABELS if name in arrays
              and arrays[name].dtype.kind in "USiuM" and len(arrays[name].shape) == 1}
    if pickled and not arrays:
        raise ValueError("numbers written by numpy.save or numpy.savez expected, found pickled "
                         "objects, which are not opened: save numpy.asarray(..., float)")
    text = {name for name, array in arrays.items()
            if array.dtype.kind in "US" and len(array.shape) == 1 and len(arrays) > 1}
    arrays = {name: array for name, array in arrays.items() if name not in text}
    both = labels.get("names", labels.get("labels"))
    rows, columns = labels.get("rows", both), labels.get("columns", both)
    for name, array in arrays.items():
        if array.dtype.names and len(arrays) == 1:
            arrays[name], rows, columns = _structure(array, rows)
    return File(arrays, rows, columns, {}, remarks)


def _header(stream):
    """Shape, order and dtype of the array that begins here, which stays where it is."""
    version = np.lib.format.read_magic(stream)
    return (np.lib.format.read_array_header_1_0 if version == (1, 0) else
            np.lib.format.read_array_header_2_0)(stream)    # 3.0 differs in the letters of names


def _part(stream, index):
    shape, fortran, dtype = _header(stream)
    if not fortran:                                 # the part lies in one piece
        first = 0
        for n, length in zip(index, shape):
            first = first * length + n
        shape = shape[len(index):]
        stream.seek(first * math.prod(shape) * dtype.itemsize, 1)
    content = stream.read(math.prod(shape) * dtype.itemsize)
    A = np.frombuffer(content, dtype, math.prod(shape)).reshape(shape, order="FC"[not fortran])
    A = A[index] if fortran and index else A
    # longdouble, float16 and big-endian as float64; as_array refuses what is no number
    plain = dtype.kind != "f" or dtype in (np.float32, np.float64)
    return A.copy() if plain else A.astype(np.float64)


def _labels(array):
    return [x.decode(errors="replace") if isinstance(x, bytes) else str(x) for x in array.load()]


def _structure(array, rows):
    """A structured array: its fields of numbers are columns, one of text names the rows."""
    fields = {name: array.dtype[name] for name in array.dtype.names}
    text = [name for name, dtype in fields.items() if dtype.kind in "USM"]
    numbers = [name for name, dtype in fields.items() if dtype.kind in "fiub" and not dtype.shape]
    if len(array.shape) != 1 or len(text) > 1 or len(text) + len(numbers) < len(fields):
        raise ValueError("a structured array of one axis with fields of numbers, and at most one "
                         f"of text, expected, found {array.dtype} of shape {array.shape}")

    def load(index=()):
        whole = array.load()
        return np.stack([whole[name].astype(float) for name in numbers], axis=1)
    if text:
        rows = _labels(Array(array.shape, fields[text[0]], lambda: array.load()[text[0]]))
    return Array((*array.shape, len(numbers)), np.dtype(float), load), rows, numbers


def _dense(arrays):
    """The matrix that scipy.sparse.save_npz wrote."""
    kind = arrays["format"].load().astype(str).item()
    shape = tuple(map(int, arrays["shape"].load()))
    parts = SPARSE.get(kind, ())
    if len(shape) != 2 or not parts or not set(parts) <= set(arrays):
        raise ValueError(f"a sparse matrix in csr, csc or coo expected, found {kind[:20]} of shape "
                         f"{shape}: numpy.save('dense.npy', scipy.sparse.load_npz(FILE).toarray())")

    @_sound()
    def load(index=()):
        data, one, two = (arrays[name].load() for name in ("data", *parts))
        if kind != "coo":
            one, two = np.repeat(np.arange(len(two) - 1), np.diff(two)), one
        if kind == "csc":
            one, two = two, one
        A = np.zeros(shape, np.result_type(data.dtype, np.float32))
        np.add.at(A.reshape(-1), np.ravel_multi_index((one, two), shape), data)
        return A
    return Array(shape, arrays["data"].dtype, load)
