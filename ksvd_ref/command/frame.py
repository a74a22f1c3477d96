"""The frame of a text table: whether its first row and its first column are names.

A cell is a number, a number in some dress (1,234 or 10% or NA or nothing), a name, or a word that
Python would read as a number (nan, inf). One in dress is never a name: its row would vanish.

No equation: it judges text.
"""
import re

# in the order of preference where two fit alike
SEPARATORS = {"\t": "tab", ";": "semicolon", "|": "bar", ",": "comma", " ": "space"}
NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
COMMA = re.compile(r"[+-]?[0-9]*,[0-9]+(?:[eE][+-]?[0-9]+)?")
INTEGER = re.compile("[+-]?[0-9]{1,15}")
GROUPS = re.compile(r"[+-]?[0-9]{1,3}(?:\.[0-9]{3})+|[0-9]+/[0-9]+|0x[0-9a-fA-F]+")
DRESS = re.compile(r"[\s%‰$£€¥₹¢'’`_,()<>≤≥~≈±*†‡=]|^[+−–-]+|-$")      # what a number may wear
MISSING = {"na", "n/a", "n.a.", "n.a", "n.d.", "#n/a", "<na>", "null", "nil", "none", "missing",
           "#div/0!", "#value!", "#ref!", "#num!"}
WORDS = {"nan", "inf", "infinity", "+inf", "-inf", "+nan", "-nan", "-infinity", "+infinity"}


def kind(cell, decimal):
    """What a cell looks like: a "number", one "dressed" otherwise, a "name", or NaN, a "word".

    >>> [kind(cell, ".") for cell in ("1.5e3", "10%", "NA", "-", "5-9", "2020-01-01", "Nan")]
    ['number', 'dressed', 'dressed', 'dressed', 'name', 'name', 'word']
    """
    if number(cell, decimal) is not None:
        return "number"
    if cell.lower() in WORDS:
        return "word"
    bare = re.sub("(?<=[0-9.])[dD](?=[0-9+-])", "e", DRESS.sub("", cell))
    if cell.lower() in MISSING or not any(map(str.isalnum, cell)) or bare.isnumeric():
        return "dressed"
    return "dressed" if NUMBER.fullmatch(bare) or GROUPS.fullmatch(bare) else "name"


def number(cell, decimal):
    if decimal == ",":
        cell = "x" if "." in cell else cell.replace(",", ".")
    value = float(cell) if NUMBER.fullmatch(cell) else None
    return None if value in (float("inf"), -float("inf")) else value       # 1e400


def frame(rows, decimal, header, labels):
    """Whether there is a header, a column of labels, and remarks: what may be meant otherwise."""
    first, width, remarks = rows[0].cells, len(rows[-1].cells), []
    column, line = [row.cells[0] for row in rows[1:]], rows[0].line
    ids = _ids_above(first, column, width, decimal)
    if header is None:
        header, guessed = _header(rows, width, ids, decimal)
        if guessed or not header and width > 1 and _counts(first):
            remarks.append(f"line {line} ({_few(first)}) is taken for " + (
                "a header: --no-header if it holds numbers" if header else
                "numbers: --header if it holds names"))
    if labels is None:
        body = column if header else [first[0], *column]
        numbers = all(kind(cell, decimal) == "number" for cell in body)
        # One cell above two columns, and numbers that do not count: a title, or decimal commas.
        short = len(first) == width - 1 and (width > 2 or not numbers or _counts(body))
        empty = header and (short or first[0] == "")
        labels = width > 1 and bool(empty or header and ids or _names(body, decimal))
        if width > 1 and (labels and (ids or short and numbers) or not labels and _counts(body)):
            remarks.append(f"column 1 ({_few(body)}) is taken for " + (
                "labels: --no-labels if it holds numbers" if labels else
                "numbers: --labels if it holds names"))
    return bool(header), bool(labels), remarks


def _header(rows, width, ids, decimal):
    """Whether the first row is a header, and whether that is a guess."""
    first, rest, column = rows[0].cells, rows[0].cells[1:], [row.cells[0] for row in rows[1:]]
    if _names(first if width == 1 or len(first) < width else rest, decimal):
        return True, kind(first[0], decimal) == "number"        # 1,n.m. may be a row
    # Numbers in quotes above numbers without are names.
    quoted = rows[0].quoted and not any(row.quoted for row in rows[1:]) and all(
        kind(cell, decimal) == "number" for cell in first)
    corner = first[0] == "" or _names(first[:1], decimal)
    above = width > 1 and corner and _names(column, decimal) and not _alike(first[0], column)
    return (True, True) if len(rows) > 1 and (quoted or ids or above) else (False, False)


def _ids_above(first, column, width, decimal):
    """Whether a named or empty corner stands beside ids and above ids, as 0, 1, 2 or node numbers.

    An empty cell above any integers may also be a missing number.
    """
    corner, rest = first[0] == "" or _names(first[:1], decimal), first[1:]
    return width > 1 and corner and _integers(column) and _integers(rest) and (
        set(rest) == set(column) or _counts(rest) or _counts(column))


def _names(cells, decimal):
    """Whether cells are names: a word that Python reads as NaN is one only beside others."""
    kinds = {kind(cell, decimal) for cell in cells}
    return "name" in kinds and kinds <= {"name", "word"}


def _integers(cells):
    return bool(cells) and len(set(cells)) == len(cells) and all(map(INTEGER.fullmatch, cells))


def _counts(cells):
    """Whether cells count, as 0, 1, 2 do, or the years 1990, 1995, 2000."""
    if not _integers(cells) or len(cells) < 2:
        return False
    numbers = [int(cell) for cell in cells]
    steps, years = {b - a for a, b in zip(numbers, numbers[1:])}, 1500 <= min(numbers) < 2200
    return len(steps) == 1 and (years or steps == {1} and (len(cells) > 2 or numbers[0] in (0, 1)))


def _alike(corner, column):
    """Whether a corner is one more of the names below it: a date above dates, r1 above r2."""
    shape = lambda name: re.sub(r"[^\W\d_]+", "a", re.sub(r"[0-9]+", "0", name))
    return all(shape(name) == shape(corner) for name in column) and (
        not re.fullmatch(r"[a ]+", shape(corner)) or all(len(x) == 1 for x in [corner, *column]))


def _few(cells):
    return ", ".join(cells[:3]) + ", ..." * (len(cells) > 3)
