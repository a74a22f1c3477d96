"""The lessons as a static site: prose, formulas, code, outputs and figures, without a script.

notebooks.py runs the lessons, typeset.py sets the type. No page asks the network for anything.

No equation: the book shows those of the other modules.
"""
import functools
import html
import os
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from . import notebooks
from .typeset import ROOT, Setter, contents, figure, folded, source_link, sources, subscripts

SITE = "ksvd_ref: kernel SVD from the dual to the primal"
LONGEST = 100_000           # characters that a cell may print
LINKS = {"index.html": "Lessons", "findings.html": "Findings", "equations.html": "Equations",
         "notation.html": "Notation"}               # at the top of each page
SOLUTION = re.compile(r"\*\*E(\d+\.\d+)\b")
KINDS = {"K": "The derivation", "EV": "Claims about the derivation",        # letters of tags
         "S": "Attention as a kernel smoother", "D": "Claims about smoothers"}
GENERATOR = '<meta name="generator" content="ksvd_ref book">'     # an earlier book has it
ICON = ("data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E"
        "%3Ctext x='2' y='14' font-size='16' fill='%230072B2'%3E%CE%A3%3C/text%3E%3C/svg%3E")


class Page(NamedTuple):
    """A page of the site."""

    name: str             # file name in the site
    title: str            # of the browser's tab
    body: str             # HTML between header and footer
    figures: Any = ()     # (file name, SVG) of each


def build(out, number=None):
    """Run the lessons, or that of this number only, and write the site; its start page.

    `out` is a new folder, an empty one, or an earlier book, whose pages are replaced. The pages are
    made before anything is written: a lesson that fails leaves `out` as it was.
    """
    out, paths = Path(out), notebooks.lessons(number)
    _check_folder(out)
    notebooks.need("nbclient", "ipykernel")         # missed before a lesson starts
    built = _names(paths)
    order = [name for name in _names(notebooks.lessons()) if name in built or (out / name).exists()]
    setter = Setter(order)
    with tempfile.TemporaryDirectory() as folder:
        pages = [_lesson(setter, path.stem, _executed(path))
                 for path in notebooks.notebooks(Path(folder) / "book", paths)]
    # the start page first: it is what a later build knows an earlier one by
    pages = [_start(setter), *pages, _equations(setter), _notation(setter), *_sources()]
    for folder in ("figures", "source"):
        (out / folder).mkdir(parents=True, exist_ok=True)
    for page in pages:
        (out / page.name).write_text(_document(page, order), encoding="utf-8")
        for name, svg in page.figures:
            (out / "figures" / name).write_text(svg, encoding="utf-8")
    for path in (notebooks.TUTORIALS / "site").iterdir():           # style, font and its licence
        shutil.copy(path, out / path.name)
    return out / "index.html"


def _check_folder(out):
    """Refuse what cannot be written to, and what holds something else."""
    mark, above = out / "index.html", next(x for x in out.absolute().parents if x.exists())
    if out.exists():
        fit = out.is_dir() and (not any(out.iterdir()) or mark.is_file() and (
            GENERATOR in mark.read_text("utf-8", "replace")[:2000]))
    else:
        fit = above.is_dir() and not out.is_symlink()
    if not (fit and os.access(above, os.W_OK)):
        raise ValueError("--out: a new folder, an empty one or an earlier book, that can be written"
                         f" to, expected, {out} is or holds something else")


def _names(paths):
    return [*(f"{path.stem}.html" for path in paths), "equations.html", "notation.html"]


def _executed(path):
    """A notebook with its outputs; says on stderr what it is doing."""
    start, live, done = time.perf_counter(), sys.stderr.isatty(), ""
    say = functools.partial(print, file=sys.stderr, flush=True)
    say(f"{path.stem}: ", end="")
    try:
        notebook = notebooks.execute(path, lambda n, of: live and say(
            f"\r{path.stem}: cell {n} of {of}", end=""))
        done = (f"\r{path.stem}: " * live + f"{len(notebook.cells)} cells, "
                f"{time.perf_counter() - start:.1f} s")
        return notebook
    finally:
        say(done)


def _lesson(setter, stem, notebook):
    """Prose, code, outputs and figures of one lesson, with its solutions folded."""
    body, figures, solutions = [], [], _solutions(setter, stem)
    answers = folded("Answers to the questions", solutions.get("answers"))
    for n, cell in enumerate(notebook.cells, 1):
        where, start = f"{stem}, cell {n}", f'<div id="cell-{n}"'
        if cell.cell_type == "markdown":
            asked = answers if "without code" in cell.source else ""
            body.append(f"{start}>{_text(setter, where, cell.source, asked)}</div>")
            continue
        body += [f'{start} class="cell">{setter.code(cell.source)}',
                 *_outputs(setter, stem, where, cell, figures), "</div>"]
        for exercise in re.findall(r"NotImplementedError\(\"Exercise (\d+\.\d+)", cell.source):
            if exercise not in solutions:
                raise notebooks.LessonError(f"{where}: a solution of E{exercise} expected, found "
                                            "none")
            body.append(folded(f"Solution of E{exercise}", solutions[exercise]))
    title = notebook.cells[0].source.partition("\n")[0].lstrip("# ")
    number = stem[:2] if stem[:2].isdigit() else ""
    above = f'<p class="number">Lesson {number}</p>' if number else ""
    return Page(f"{stem}.html", f"{number} {title}".strip(), above + contents("".join(body)),
                figures)


def _outputs(setter, stem, where, cell, figures):
    """What a cell printed and drew, as HTML; its figures are added to those of the lesson."""
    title = cell.metadata.get("title", "")
    for output in cell.outputs:
        data = output.get("data", {"text/plain": output.get("text")})
        if not set(data) <= {"text/plain", "image/svg+xml"} or len(data["text/plain"]) > LONGEST \
                or "image/svg+xml" in data and not title:
            raise notebooks.LessonError(
                f"{where}: up to {LONGEST} characters of text, or one figure and a title behind "
                f"the # %%, the text of those who cannot see it, expected, got {', '.join(data)}")
        if "image/svg+xml" not in data:
            yield setter.output(data["text/plain"])
            continue
        name, svg = f"{stem.partition('_')[0]}-{len(figures) + 1}.svg", data["image/svg+xml"]
        figures.append((name, svg[svg.index("<svg"):]))
        yield figure(*figures[-1], title)
        title = ""                                                      # one picture, one text


def _text(setter, where, text, answers=""):
    """Prose; the answers to its questions stand behind them. An error says where it is."""
    questions, *rest = re.split(r"\n(?=\*Where this is used)", text, maxsplit=1)
    try:
        return setter.prose(questions) + answers + "".join(map(setter.prose, rest))
    except ValueError as error:
        raise notebooks.LessonError(f"{where}: {error}") from error


def _solutions(setter, stem):
    """{exercise: HTML}, and the answers to the questions."""
    path, found, last = notebooks.TUTORIALS / "solutions" / f"{stem}.py", {}, None
    for n, cell in enumerate(notebooks.read(path).cells if path.exists() else (), 1):
        if cell.cell_type == "markdown":
            match = SOLUTION.match(cell.source)
            last = match[1] if match else "answers" if "questions" in cell.source[:40] else None
            text = _text(setter, f"solutions/{stem}, cell {n}", cell.source)
        else:
            if last in (None, "answers"):
                continue
            solution, start, check = cell.source.partition("def check_")
            text = setter.code(solution)
            if start:
                text += folded("The check", setter.code(start + check))
        if last:
            found[last] = found.get(last, "") + text
    return found


def _equations(setter):
    """The index of equations, each with its source, function, lesson and test."""
    body = "<h1>Equations</h1>" + setter.prose(
        "The numbers are ours; a number of a paper is named only where it was read there. Behind "
        "each statement stand its source, the functions that are it, the lessons that show it and "
        "the tests that hold it. A statement without a function is shown by its lesson and test. "
        "A number that is missing is not used.")
    for kinds, title in KINDS.items():
        items = "".join(_entry(setter, entry) for entry in setter.entries.values()
                        if entry.tag[0] in kinds)
        body += f'<h2 id="{kinds}">{title}</h2><ul class="index">{items}</ul>'
    return Page("equations.html", "Equations", body)


def _entry(setter, entry):
    code = "".join(f" · <code>{source_link(name, name)}</code>" for name in entry.functions)
    shown = ", ".join(setter.lesson(number, f"{number} cell {cell}", f"#cell-{cell}")
                      for number, cell in entry.lessons)
    tests = ", ".join(f"<code>{source_link(name, name.partition('::')[2])}</code>"
                      for name in entry.tests)
    return (f'<li id="{entry.tag}"><p><strong>{entry.tag}</strong> '
            f'{subscripts(html.escape(entry.statement))}</p><p class="small">'
            f"{html.escape(entry.source)}{code} · lesson {shown} · {tests}</p></li>")


@functools.cache
def _readme():
    return (ROOT / "README.md").read_text(encoding="utf-8")


def _notation(setter):
    """The section of the README."""
    text = _readme().partition("\n## Notation\n")[2].partition("\n## ")[0]
    return Page("notation.html", "Notation", "<h1>Notation</h1>" + subscripts(setter.prose(text)))


@functools.cache
def _sources():
    """The modules and the tests, each line with an anchor."""
    setter, pages = Setter(), []
    for name, path in sources().items():
        where, text = path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
        pages.append(Page(f"source/{name}.py.html", where,
                          f"<h1><code>{where}</code></h1>{setter.code(text, 'L')}"))
    return pages


def _start(setter):
    """One picture and one sentence for each lesson."""
    cards = []
    for title, stem, minutes, needs, sentence in _lessons():
        if f"{stem}.html" in setter.pages:
            title, sentence = (x[0].upper() + x[1:] for x in (title, sentence))
            cards.append(
                f'<li><img src="figures/{stem[:2]}-1.svg" alt="" loading="lazy">'
                f'<h2><a href="{stem}.html">{stem[:2]} {html.escape(title)}</a></h2>'
                f"<p>{setter.tags(sentence)}</p>"
                f'<p class="small">{minutes} minutes; needs {setter.tags(needs)}</p></li>')
    lead = setter.prose(_readme().partition("\n![")[0].partition("\n")[2])
    return Page("index.html", SITE,
                f'<h1>{SITE}</h1>{lead}<ol class="cards">{"".join(cards)}</ol>')


def _lessons():
    """(title, name, minutes, what it needs, what it shows) of each lesson, from the README."""
    return re.findall(r"^\| \[\d\d (.*?)\]\(tutorials/(\w+)\.py\) \| (\d+) \| (.*?) \| (.*?) \|$",
                      _readme(), re.M)


def _document(page, order):
    """A whole HTML page."""
    up = "../" if "/" in page.name else ""
    top = "".join(f'<li><a href="{up}{name}"{" aria-current=page" * (name == page.name)}>{text}</a>'
                  for name, text in LINKS.items() if name == "index.html" or name in order)
    title = page.title if page.title == SITE else f"{page.title} · ksvd_ref"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
{GENERATOR}
<title>{html.escape(title)}</title>
<link rel="stylesheet" href="{up}book.css">
<link rel="icon" href="{ICON}">
</head>
<body>
<a class="skip" href="#main">Skip to the text</a>
<header><nav aria-label="Book"><ul>{top}</ul></nav></header>
<main id="main">
{page.body}
</main>
<footer>{_turn(page.name, order)}</footer>
</body>
</html>
"""


def _turn(name, order):
    """Links to the pages before and after."""
    if name not in order:
        return ""
    titles = LINKS | {f"{stem}.html": f"{stem[:2]} {title}" for title, stem, *_ in _lessons()}
    around, at = ["index.html", *order, None], 1 + order.index(name)
    links = "".join(f'<a rel="{rel}" href="{to}">{arrow.format(titles.get(to, to))}</a>'
                    for rel, to, arrow in (("prev", around[at - 1], "← {}"),
                                           ("next", around[at + 1], "{} →")) if to)
    return f'<nav class="turn" aria-label="Previous and next page">{links}</nav>'
