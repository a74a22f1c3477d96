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

from . import formulas, notebooks
from .typeset import ROOT, Setter, contents, figure, folded, source_link, sources

SITE = "ksvd_ref: kernel SVD from the dual to the primal"
PARTS = {1: "I. The kernel SVD", 6: "II. Attention as a smoother", 10: "III. Primal-Attention",
         14: "IV. Numbers"}                         # by the first lesson of each
QUICK = "This page was made with --quick: no cell was run, so outputs and figures are missing."
LONGEST = 100_000           # characters that a cell may print
LINKS = {"index.html": "Start", "derivation.html": "The derivation", "findings.html": "Findings",
         "equations.html": "Equations", "notation.html": "Notation"}              # beside each page
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


def build(out, number=None, answers=True, quick=False):
    """Run the lessons, or that of this number only, and write the site; its start page.

    `out` is a new folder, an empty one, or an earlier book, whose pages are replaced. The pages are
    made before anything is written: a lesson that fails leaves `out` as it was. Without `answers`
    no solution is shown; `quick` runs nothing.
    """
    out, paths = Path(out), notebooks.lessons(number)
    built = _names(paths)
    _check_folder(out, () if answers else built)
    if not quick:
        notebooks.need("nbclient", "ipykernel")     # missed before a lesson starts
    order = [name for name in _names(notebooks.lessons()) if name in built or (out / name).exists()]
    setter = Setter(order)
    with tempfile.TemporaryDirectory() as folder:
        written = notebooks.notebooks(Path(folder) / "book", paths, answers=False)
        files = {path.name: path.read_bytes() for path in (*paths, *written)}
        pages = [_lesson(setter, lesson.stem, _read(lesson, None if quick else _executed(path)),
                         answers, quick) for lesson, path in zip(paths, written)]
    # the start page first: it is what a later build knows an earlier one by
    pages = [_start(setter, quick), *pages, _equations(setter), _notation(setter), *_sources()]
    for folder in ("figures", "files", "source"):
        (out / folder).mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (out / "files" / name).write_bytes(content)
    for page in pages:
        (out / page.name).write_text(_document(page, order, setter), encoding="utf-8")
        for name, svg in page.figures:
            (out / "figures" / name).write_text(svg, encoding="utf-8")
    for path in (notebooks.TUTORIALS / "site").iterdir():           # style, font and its licence
        shutil.copy(path, out / path.name)
    return out / "index.html"


def _check_folder(out, unanswered=()):
    """Refuse what cannot be written to or holds something else: answers beside pages without."""
    mark, above = out / "index.html", next(x for x in out.absolute().parents if x.exists())
    if out.exists():
        fit = out.is_dir() and (not any(out.iterdir()) or mark.is_file() and (
            GENERATOR in mark.read_text("utf-8", "replace")[:2000]))
    else:
        fit = above.is_dir() and not out.is_symlink()
    if not (fit and os.access(above, os.W_OK)):
        raise ValueError("--out: a new folder, an empty one or an earlier book, that can be written"
                         f" to, expected, {out} is or holds something else")
    kept = sorted(path.name for path in out.glob("[0-9]*.html") if path.name not in unanswered
                  and unanswered and "<summary>Solution of" in path.read_text("utf-8"))
    if kept:
        raise ValueError(f"--no-solutions: a folder without solutions expected, {out} has some in "
                         f"{', '.join(kept)}: make all pages anew, or take another folder")


def _names(paths):
    return [*(f"{path.stem}.html" for path in paths), "equations.html", "notation.html"]


def _read(path, executed=None):
    """A lesson as a notebook, with the outputs of an executed one."""
    notebook = notebooks.read(path)
    for cell, done in zip(notebook.cells, executed.cells if executed else ()):
        cell |= {"outputs": done.outputs} if cell.cell_type == "code" else {}
    return notebook


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


def _lesson(setter, stem, notebook, answered=True, quick=False):
    """Prose, code, outputs and figures of one lesson, with its solutions folded."""
    body, figures, solutions = [], [], _solutions(setter, stem) if answered else {}
    answers = folded("Answers to the questions", solutions.get("answers"))
    for n, cell in enumerate(notebook.cells, 1):
        where, start = f"{stem}, cell {n}", f'<div id="cell-{n}"'
        if cell.cell_type == "markdown":
            asked = answers if "without code" in cell.source else ""
            text = re.sub(r"<p><strong>(E\d+\.\d+)</strong>", r'<p id="\1"><a href="#\1"><strong>'
                          r"\1</strong></a>", _text(setter, where, cell.source, asked))
            body.append(f"{start}>{text}</div>")
            continue
        body += [f'{start} class="cell">{setter.code(cell.source)}',
                 *_outputs(setter, stem, where, cell, figures), "</div>"]
        exercise = notebooks.checked(cell)
        if exercise and answered:
            if exercise not in solutions:
                raise notebooks.LessonError(f"{where}: a solution of E{exercise} expected, found "
                                            "none")
            body.append(folded(f"Solution of E{exercise}", solutions[exercise]))
    title = notebook.cells[0].source.partition("\n")[0].lstrip("# ")
    number = stem[:2] if stem[:2].isdigit() else ""
    return Page(f"{stem}.html", f"{number} {title}".strip(),
                f"<p>{QUICK}</p>" * quick + _offered(stem, number, "".join(body)), figures)


def _offered(stem, number, body):
    """The body with the lesson's number above its title, and its two files below it."""
    above = f'<p class="number">Lesson {number}</p>' if number else ""
    files = " · ".join(f'<a href="files/{stem}{kind}" download>{stem}{kind}</a>'
                       for kind in (".py", ".ipynb"))
    return above + body.replace("</h1>", f'</h1><p class="small">To download: {files}</p>', 1)


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
        yield figure(name, title, figures[-1][1])
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
    found = {}
    for exercise, cells in notebooks.solutions(stem).items():
        for cell in cells:
            if cell.cell_type == "markdown":
                text = _text(setter, f"solutions/{stem}, {cell.id}", cell.source)
            else:
                solution, start, check = cell.source.partition("def check_")
                text = setter.code(solution)
                if start:
                    text += folded("The check", setter.code(start + check))
            found[exercise] = found.get(exercise, "") + text
    return found


def _equations(setter):
    """The index of equations, each with its source, function, lesson and test."""
    body = "<h1>Equations</h1>" + setter.prose(
        "The numbers are ours; a number of a paper is named only where it was read there. Behind "
        "each statement stand its source, the functions that are it, the lessons that show it and "
        "the tests that hold it. A statement without a function is shown by its lesson and test. "
        "A number that is missing is not used.")
    for kinds, title in KINDS.items():
        some = [entry for entry in setter.entries.values() if entry.tag[0] in kinds]
        jump = " ".join(f'<a href="#{entry.tag}">{entry.tag}</a>' for entry in some)
        items = "".join(_entry(setter, entry) for entry in some)
        body += f'<h2 id="{kinds}">{title}</h2><p>{jump}</p><ul class="index">{items}</ul>'
    return Page("equations.html", "Equations", body)


def _entry(setter, entry):
    code = "".join(f" · <code>{source_link(name, name)}</code>" for name in entry.functions)
    shown = ", ".join(setter.lesson(number, f"{number} cell {cell}", f"#cell-{cell}")
                      for number, cell in entry.lessons)
    tests = ", ".join(f"<code>{source_link(name, name.partition('::')[2])}</code>"
                      for name in entry.tests)
    return (f'<li id="{entry.tag}">{setter.statement(entry.tag)}<p class="small">'
            f"{html.escape(entry.source)}{code}" + f" · lesson {shown}" * bool(shown)
            + f" · {tests}</p></li>")


@functools.cache
def _readme():
    return (ROOT / "README.md").read_text(encoding="utf-8")


def _notation(setter):
    """The section of the README."""
    text = _readme().partition("\n## Notation\n")[2].partition("\n## ")[0]
    return Page("notation.html", "Notation", "<h1>Notation</h1>"
                + setter.prose(formulas.markdown(text)))


@functools.cache
def _sources():
    """The modules and the tests, each line with an anchor."""
    setter, pages = Setter(), []
    for name, path in sources().items():
        where, text = path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
        pages.append(Page(f"source/{name}.py.html", where,
                          f"<h1><code>{where}</code></h1>{setter.code(text, 'L')}"))
    return pages


def _start(setter, quick=False):
    """START.md, with one picture, and with a picture and a sentence for each lesson."""
    head, *sections = re.split(r"\n(?=## )", (notebooks.TUTORIALS / notebooks.START).read_text(
        encoding="utf-8"))
    asked = next((name[:-5] for name in setter.pages if name.startswith("10_")), "")
    picture = figure("10-1.svg", _pictured(asked)) if asked and not quick else ""
    body = setter.prose(head).replace("</p>", f"</p>{picture}", 1)
    for section in sections:
        part = section.partition("\n")[0].removeprefix("## ")
        cards = "".join(_card(setter, quick, *row) for row in _lessons()
                        if _part(row[1]) == part and f"{row[1]}.html" in setter.pages)
        made = setter.prose(re.sub(r"^\|.*", lambda row: formulas.markdown(row[0]), section,
                                   flags=re.M))
        body += made if part != "What needs what" else re.sub(
            r"\b\d\d\b", lambda number: setter.lesson(number[0], number[0]), made)
        body += f'<ol class="cards">{cards}</ol>' if cards else ""
    return Page("index.html", SITE, f"<p>{QUICK}</p>" * quick + body)


def _pictured(stem):
    """What the first figure of a lesson shows, or "" where there is none."""
    text = (notebooks.TUTORIALS / f"{stem}.py").read_text(encoding="utf-8")
    found = re.search(r"^# %% (\w.*)", text, re.M)
    return found[1] if found else ""


def _part(stem):
    """The title of the part that a lesson is of."""
    first = max((n for n in PARTS if n <= int(stem[:2])), default=1)
    return PARTS[first]


def _card(setter, quick, title, stem, minutes, needs, sentence):
    """What the start page shows of a lesson."""
    title, sentence = (x[0].upper() + x[1:] for x in (title, sentence))
    shown = f'<img src="figures/{stem[:2]}-1.svg" alt="" loading="lazy">'
    picture = shown if _pictured(stem) and not quick else ""
    return (f'<li>{picture}<h3><a href="{stem}.html">{stem[:2]} {html.escape(title)}</a></h3>'
            f"<p>{setter.tags(sentence)}</p>"
            f'<p class="small">{minutes} minutes; needs {setter.tags(needs)}</p></li>')


def _lessons():
    """(title, name, minutes, what it needs, what it shows) of each lesson, from the README."""
    return re.findall(r"^\| \[\d\d (.*?)\]\(tutorials/(\w+)\.py\) \| (\d+) \| (.*?) \| (.*?) \|$",
                      _readme(), re.M)


def _titles():
    return LINKS | {f"{stem}.html": f"{stem[:2]} {title}" for title, stem, *_ in _lessons()}


def _sidebar(page, order):
    """All pages, the lessons by parts, and the sections of this one below it."""
    up, titles, made, last = "../" if "/" in page.name else "", _titles(), "", ""
    for name in ["index.html", *order]:
        part = _part(name) if name[:2].isdigit() else ""
        made += f'<li class="part">{part}</li>' * bool(part != last and part)
        made += '<li class="part">To look up</li>' * bool(last and not part)
        here, last = name == page.name, part
        made += (f'<li><a href="{up}{name}"{" aria-current=page" * here}>'
                 f"{html.escape(titles.get(name, name))}</a>{contents(page.body) * here}</li>")
    return f'<nav aria-label="Book"><ul>{made}</ul></nav>'


def _document(page, order, setter):
    """A whole HTML page; its sidebar is folded at the top of a phone."""
    up, side = "../" if "/" in page.name else "", _sidebar(page, order)
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
<header><details><summary>Contents</summary>{side}</details></header>
<div class="side">{side}</div>
<main id="main">
{page.body}
{setter.previews(page.body)}
</main>
<footer>{_turn(page.name, order)}</footer>
</body>
</html>
"""


def _turn(name, order):
    """Links to the pages before and after."""
    if name not in order:
        return ""
    titles = _titles()
    around, at = ["index.html", *order, None], 1 + order.index(name)
    links = "".join(f'<a rel="{rel}" href="{to}">{arrow.format(titles.get(to, to))}</a>'
                    for rel, to, arrow in (("prev", around[at - 1], "← {}"),
                                           ("next", around[at + 1], "{} →")) if to)
    return f'<nav class="turn" aria-label="Previous and next page">{links}</nav>'
