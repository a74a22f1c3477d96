"""A text table as people have it: which separator, header, labels and decimal mark it has.

What is guessed is told: `taken` says what the table was taken for, `remarks` what may be meant
otherwise, and each guess can be overruled. A wrong guess would vanish without a word, since any
matrix has a KSVD.

No equation: it reads text.
"""
import csv
import io
import re
from collections import Counter
from typing import Any, NamedTuple

import numpy as np

from .frame import COMMA, MISSING, NUMBER, SEPARATORS, WORDS, frame, kind, number

QUOTED = re.compile(r'\s*"[^"]*"\s*')


class Table(NamedTuple):
    """A matrix with its labels, and what the text was taken for."""

    A: Any            # (N, M)
    rows: Any         # list of str, or None
    columns: Any      # list of str, or None
    taken: dict       # "separator" (None: one column), "decimal", "header", "labels"
    remarks: list     # of str


class Row(NamedTuple):
    """One record of the text."""

    line: int         # its first line, counted from 1
    cells: list       # of str
    quoted: bool      # all cells stand in quotes


def table(content, *, suffix=".csv", header=None, labels=None, delimiter=None, decimal=None):
    r"""The Table in the bytes of a text file.

    header, labels: whether there is a first row, a first column of names; None judges. A named or
    empty corner above a column of names makes the first row a header, whatever it holds. What looks
    like a number in some dress (10%, 1,234, NA) is never a name: it is refused.

    >>> found = table(b"country,1990,1995\nFR,1,2\nDE,3,5\n")
    >>> found.A.tolist(), found.rows, found.columns
    ([[1.0, 2.0], [3.0, 5.0]], ['FR', 'DE'], ['1990', '1995'])
    >>> table(b"1,NA\n3,4\n")                                           # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: a number expected, found 'NA' in line 1, column 2: fill what is missing, or ...
    """
    text, mark = _text(content)
    mark = _mark(delimiter) or mark
    mark, rows = (mark, _rows(text, mark)) if mark else _separated(text, suffix, decimal)
    rows, left_out = _without_last(rows)
    decimal, thousands = (decimal, []) if decimal else _decimal(rows, mark)
    header, labels, remarks = frame(rows, decimal, header, labels)
    remarks += left_out + thousands + [f"no {SEPARATORS.get(mark, mark)} in it: --delimiter"] * (
        bool(delimiter) and max(len(row.cells) for row in rows) == 1)
    body = _body(rows, header, labels, decimal, mark)
    A = _numbers(body, labels, header, decimal, mark)
    return Table(A, [row.cells[0] for row in body] if labels else None,
                 rows[0].cells[-A.shape[1]:] if header else None,   # no cell above the labels
                 {"separator": mark if len(rows[-1].cells) > 1 else None, "decimal": decimal,
                  "header": header, "labels": labels}, remarks)


def _text(content):
    """Bytes as text, and the separator that a first line such as `sep=;` names, or None."""
    coding = next((name for marks, name in (
        ((b"\xff\xfe\0\0", b"\0\0\xfe\xff"), "utf-32"), ((b"\xff\xfe", b"\xfe\xff"), "utf-16"))
        if content.startswith(marks)), "utf-8-sig")
    try:
        text = content.decode(coding)
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise ValueError("text in UTF-8 expected, found " + (
            "a spreadsheet or an archive: export it as CSV" if content.startswith(b"PK") else
            "other bytes: save it as UTF-8"))
    said = re.match(r'"?sep=(.)"?[ \t]*(?:\r\n?|\n|$)', text, re.I)
    return ("\n" + text[said.end():], said[1]) if said else (text, None)


def _mark(delimiter):
    """The separator that an option names: a character, or a word such as tab."""
    names = {name: mark for mark, name in SEPARATORS.items()} | {"\\t": "\t"}
    mark = names.get(delimiter, delimiter)
    if mark and (len(mark) > 1 or mark.isalnum() or mark in '"\r\n'):
        raise ValueError(f"--delimiter: one character or {', '.join(SEPARATORS.values())} "
                         f"expected, got {delimiter}")
    return mark


def _rows(text, mark):
    """Every Row; blank lines, comments and the empty rows of a spreadsheet's end are left out."""
    fed, found, problem = [], [], ""                # fed: the lines of the record at hand

    def lines():
        for n, line in enumerate(io.StringIO(text, newline=None), 1):
            if mark == " ":
                line = line.replace("\t", " ").strip(" \n") + "\n"
            if fed or line.strip() and not _comment(line, mark):    # in quotes nothing is a comment
                fed.append((n, line))
                yield line

    try:
        for cells in csv.reader(lines(), delimiter=mark, skipinitialspace=True, strict=True):
            found.append(Row(fed[0][0], [cell.strip() for cell in cells],
                             all(map(QUOTED.fullmatch, fed[0][1].split(mark)))))
            fed.clear()
    except csv.Error as error:
        problem = (f"something else{f' in line {fed[0][0]}' if fed else ''} ({error}): a quote is "
                   "doubled inside quotes, and closed")
    while found and not any(found[-1].cells):
        del found[-1]
    if problem or not found:
        raise ValueError(f"a table of numbers expected, found {problem or 'an empty file'}")
    return found


def _comment(line, mark):
    """Whether a line begins with # or % and its other cells are not all numbers, plain or dressed.

    A team #1 beside 1,5 and NA is a row, which would be lost; a rule of dashes is a comment.
    """
    others = [cell.strip(' "\n') for cell in line.split(None if mark == " " else mark)[1:]]
    return line.lstrip()[0] in "#%" and not (
        any(any(map(str.isalnum, cell)) for cell in others)
        and all(kind(cell, ".") in ("number", "dressed") for cell in others))


def _separated(text, suffix, decimal=None):
    """The separator that makes a table of most lines and numbers of most cells, and its rows.

    Judged as by CleverCSV (van den Burg et al. 2019), by pattern and type, but inside the first row
    and column only numbers count. Equal ones: the first of SEPARATORS.
    """
    best, found, unread = 0.0, None, None
    for mark in SEPARATORS:
        if mark in text or mark == " " and "\t" in text:
            try:
                rows = _rows(text, mark)
            except ValueError:
                unread = unread or mark
                continue
            score = _score(rows, mark, decimal)
            if score > best:
                best, found = score, (mark, rows)
    if found and suffix == ".tsv" and found[0] != "\t":
        raise ValueError("cells of a .tsv are separated by tabs, found another mark: --delimiter "
                         f"{SEPARATORS[found[0]]} reads it")
    return found or ("\t", _rows(text, unread or "\x1f"))           # which says why it is unread


def _width(rows):
    """How many cells most rows have, and how many rows that is."""
    return max(Counter(len(row.cells) for row in rows).items(), key=lambda item: item[::-1])


def _score(rows, mark, decimal):
    """How well a separator fits, from 0 to 1.01."""
    width, fits = _width(rows)
    if width == 1 or mark == decimal and not any(mark in x for row in rows for x in row.cells):
        return 0.0                                  # beside commas a decimal comma stands in quotes
    inside = [cell for row in rows[1:] or rows for cell in row.cells[1:]]
    commas = ".," if mark in ";\t" else "."
    good = sum(1.0 if any(number(cell, decimal) is not None for decimal in commas) else
               0.5 * (kind(cell, ".") == "dressed") for cell in inside) / max(1, len(inside))
    fits += len(rows[0].cells) == width - 1         # R writes no corner
    return fits / len(rows) * (0.01 + good)


def _without_last(rows):
    """The rows without the empty last cell of each, where each line ends with a separator.

    And a remark where the first line has none: the last column may be one without numbers.
    """
    short, width = len(rows[0].cells) < len(rows[-1].cells), len(rows[-1].cells)
    while len(rows[-1].cells) > 1 and all(row.cells[-1] == "" for row in rows[1:] or rows) and (
            rows[0].cells[-1] == "" or len(rows[0].cells) < len(rows[-1].cells)):
        rows = [row._replace(cells=row.cells[:-1] if row.cells[-1] == "" else row.cells)
                for row in rows]
    lost = short and len(rows[-1].cells) < width
    return rows, ["the empty end of each line is left out: fill it if it is a column"] * lost


def _decimal(rows, mark):
    """The decimal mark: a comma only in files of semicolons or tabs, where nothing denies it.

    And a remark where semicolons stand between points that may mark thousands.
    """
    cells = [cell for row in rows for cell in row.cells]
    commas = [cell for cell in cells if COMMA.fullmatch(cell)]
    if not commas or mark not in ";\t" or any(
            "." in cell and NUMBER.fullmatch(cell) for cell in cells):
        points = [cell for cell in cells if "." in cell and NUMBER.fullmatch(cell)]
        thousands = mark == ";" and points and all(
            re.fullmatch(r"[+-]?[1-9][0-9]{0,2}\.[0-9]{3}", cell) for cell in points)
        return ".", [f"the point of {points[0]} is taken for a decimal one: leave the points out "
                     "if they mark thousands"] if thousands else []
    if all(re.fullmatch(r"[+-]?[0-9]{1,3},[0-9]{3}", cell) for cell in commas):
        line, n = next((row.line, row.cells.index(commas[0]) + 1) for row in rows
                       if commas[0] in row.cells)
        raise ValueError(f"found {commas[0]!r} in line {line}, column {n}: thousands or a decimal "
                         "comma? --decimal , reads it as a decimal; else leave the commas out")
    return ",", []


def _body(rows, header, labels, decimal, mark):
    """The rows below the header; refused where they hold no numbers, or differ in length."""
    first, body = rows[0], rows[header:]
    width = _width(body or rows)[0]
    if not body or width == labels or {
            kind(cell, decimal) for row in body for cell in row.cells} == {"name"}:
        raise ValueError("a table of numbers expected, found only " + (
            "labels" if body else
            f"a header (--no-header if line {first.line} holds numbers)"))
    odd = [first] if header and len(first.cells) not in (width - labels, width) else [
        row for row in body if len(row.cells) != width]
    if odd:
        line = next(row.line for row in body if len(row.cells) == width)
        title = (f": if line {odd[0].line} is a title, begin it with #" * (len(odd[0].cells) == 1)
                 + "; if column 1 holds names, --labels" * (odd == [first] and width == 2)
                 + "; if the commas are decimal, --decimal ," * (width == 2 and mark == ","))
        raise ValueError(f"rows of one length expected, found {len(odd[0].cells)} cells in line "
                         f"{odd[0].line} and {width} in line {line}{title}")
    return body


def _numbers(body, labelled, headed, decimal, mark):
    """The matrix of a table, whose first column may hold labels."""
    A = np.empty((len(body), len(body[0].cells) - labelled))
    for i, row in enumerate(body):
        for j, cell in enumerate(row.cells[labelled:], labelled):
            value = number(cell, decimal)
            if value is None:
                dressed = [row for row in body if kind(row.cells[0], decimal) == "dressed"]
                if j == 0 and dressed and kind(cell, decimal) == "name":    # a column of names, but
                    row = dressed[0]
                raise ValueError(_complaint(row, j, labelled, not (i or headed), decimal, mark))
            A[i, j - labelled] = value
    return A


def _complaint(row, j, labelled, first, decimal, mark):
    """What to do about a cell that is no number; one in dress is told before a name."""
    kinds = [kind(cell, decimal) for cell in row.cells]
    j = next((n for n in range(labelled, len(kinds)) if kinds[n] == "dressed"), j)
    cell, what = row.cells[j], kinds[j]
    if COMMA.fullmatch(cell) and decimal != ",":
        cure = "--decimal , if this is a decimal comma, else leave the comma out"
    elif cell.lower() in MISSING | WORDS or not any(map(str.isalnum, cell)):
        cure = "fill what is missing, or leave its row or column out"
    elif what == "dressed":
        cure = f"write plain numbers, such as 1234{decimal}5"
    else:
        cure = "leave out what holds no numbers"
    cure += f", or --header if line {row.line} holds names" * first
    cure += ", or --labels if column 1 holds names" * (j == 0)
    return (f"a number expected, found {cell[:40]!r} in line {row.line}, column {j + 1}: {cure}"
            + f" (the separator is taken to be {SEPARATORS.get(mark, mark)})" * (mark in cell))
