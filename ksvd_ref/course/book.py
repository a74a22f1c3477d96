"""The lessons as a static site: prose, formulas, code, outputs and figures, without a script.

markdown-it sets the prose, latex2mathml the formulas, Pygments the code; notebooks runs it.
No page asks the network for anything. No equation: the book shows those of the other modules.
"""
import ast
import contextlib
import functools
import html
import os
import re
import shutil
import sys
import tempfile
import time
import unicodedata
from pathlib import Path
from typing import Any, NamedTuple

from . import index, notebooks

ROOT = notebooks.TUTORIALS.parent
SITE = "ksvd_ref: kernel SVD from the dual to the primal"
LONGEST = 100_000           # characters that a cell may print
LESSON = re.compile(r"\b[Ll]essons? \d\d\b(?:(?:,| and| to) \d\d\b)*")
SOLUTION = re.compile(r"\*\*E(\d+\.\d+)\b")
TYPOGRAPHY = (          # what TeX does and latex2mathml leaves to the browser
    # capitals are upright
    ("<mi>(&#x003(?:9[1-9A-F]|A[0-9]);)", r'<mi mathvariant="normal">\1'),
    # no space at a partial derivative, nabla, slash, bar, double bar, nor between tr and (
    ("<mo>(&#x0220[27];)</mo>", r'<mi mathvariant="normal">\1</mi>'),
    ("<mo>(?=&#x0002F;)", '<mo lspace="0" rspace="0">'),
    ("<mo[^>]*>(?=&#x(?:0007C|02016);)", '<mo stretchy="false" lspace="0" rspace="0">'),
    ("<mo>([a-z]+)</mo>(?=<mo[^>]*>(?:&#x00028;|\\())", r"<mi>\1</mi>"),
    # a space between log and its argument
    ("<mi>(log|sin|cos|exp|max|min)</mi>(?=<m[^o])", r'<mi>\1</mi><mspace width="0.167em"/>'),
    # plus and minus are signs after an opening bracket, a comma, a relation
    ("(<mo[^>]*>(?:&#x000(?:28|2C|3C|3D|3E|5B);|&#x0226[45];|\\()</mo>)<mo>(?=&#x0(?:2212|002B);)",
     r'\1<mo form="prefix">'))
ICON = ("data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E"
        "%3Ctext x='2' y='14' font-size='16' fill='%230072B2'%3E%CE%A3%3C/text%3E%3C/svg%3E")


class Page(NamedTuple):
    """A page of the site."""

    name: str             # file name in the site
    title: str            # of the browser's tab
    body: str             # HTML between header and footer
    figures: Any = ()     # (file name, SVG) of each


def build(out, number=None):
    """Run the lessons and write the site.

    The pages are made before anything is written: a lesson that fails leaves `out` as it was.

    Parameters
    ----------
    out : path
        Folder: a new or empty one, or an earlier book, whose pages are replaced.
    number : int, optional
        Only this lesson, and the pages of reference.

    Returns
    -------
    Path
        The start page.

    Raises
    ------
    ValueError
        If `out` holds something else, or there is no such lesson.
    notebooks.LessonError
        If a cell fails.
    ImportError
        Without the libraries of the extra `book`.
    """
    out, paths = Path(out), notebooks.lessons(number)
    mark, above = out / "index.html", next(x for x in out.absolute().parents if x.exists())
    if not (above.is_dir() and os.access(above, os.W_OK)) or out.is_symlink() and not out.exists():
        raise ValueError(f"--out: a folder that can be made and written to expected, got {out}")
    if out.exists() and (not out.is_dir() or any(out.iterdir()) and not (
            mark.exists() and "ksvd_ref book" in mark.read_text(encoding="utf-8")[:2000])):
        raise ValueError(f"--out: a new folder, an empty one or an earlier book expected, {out} "
                         "holds something else")
    names = lambda paths: [*(f"{path.stem}.html" for path in paths),
                           "equations.html", "notation.html"]
    built = names(paths)
    order = [name for name in names(notebooks.lessons()) if name in built or (out / name).exists()]
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
    return mark


class Setter:
    """Sets prose, formulas and code in HTML, with links to equations, sources and lessons.

    Parameters
    ----------
    pages : list of str
        Pages that there will be, in order: a lesson that is not among them is named without a link.

    Examples
    --------
    >>> "<msub><mi>W</mi><mi>e</mi></msub>" in Setter().prose("The weights $W_e$.")
    True
    """

    def __init__(self, pages=()):
        self.pages = pages
        (converter, markdown_it, anchors, dollarmath, pygments, lexers, formatters,
         *_) = notebooks.need(
            "latex2mathml.converter", "markdown_it", "mdit_py_plugins.anchors",
            "mdit_py_plugins.dollarmath", "pygments", "pygments.lexers", "pygments.formatters",
            "nbclient", "ipykernel")                # what runs the lessons: missed before it starts
        self._convert, self._highlight = converter.convert, pygments.highlight
        self._python, self._formatter = lexers.PythonLexer(), formatters.HtmlFormatter
        self._markdown = markdown_it.MarkdownIt("commonmark", {"html": False}).enable("table").use(
            dollarmath.dollarmath_plugin, double_inline=True, renderer=self.formula).use(
            anchors.anchors_plugin, min_level=2, max_level=3)
        self._markdown.renderer.rules.update(text=self._text, code_inline=self._code_inline)

    @functools.cached_property
    def entries(self):
        """Tag -> Entry; read when the first is asked for, as the pages of sources never do."""
        return {entry.tag: entry for entry in index.entries()}

    def prose(self, text):
        """Markdown as HTML."""
        made = self._markdown.render(text)
        made = re.sub(r'(\(?)<span class="math inline">(.*?)</span>([).,;:]*)',     # one word
                      r'<span class="math inline">\1\2\3</span>', made)
        return made.replace("<table>", '<div class="wide" tabindex="0"><table>').replace(
            "</table>", "</table></div>")

    def formula(self, text, options):
        """LaTeX as MathML; raises ValueError for a command that the converter does not know."""
        block = options["display_mode"]
        # latex2mathml reads the end of a row and K, \\K, as \K
        text = " ".join(re.sub(r"\\\\(?=\S)", r"\\\\ ", text).split())
        try:
            made = self._convert(text.replace("{aligned}", "{align*}"),
                                 display="block" if block else "inline")
        except Exception as error:                                      # it has many kinds
            raise ValueError(f"a formula expected, got {text}: {error!r}") from error
        if any(left in made for left in ("\\", ">&<", "linebreak")) or \
                text.count("{") != text.count("}"):
            raise ValueError(f"a formula that latex2mathml knows expected, got {text}")
        made = re.sub(r'<(m[in]) mathvariant="(bold|script|double-struck)">(\w)', _letter, made)
        for pattern, set_as in TYPOGRAPHY:
            made = re.sub(pattern, set_as, made)
        made = made.replace("<math ", f'<math alttext="{html.escape(text)}" ', 1)
        return f'<span class="formula" tabindex="0">{made}</span>' if block else made

    def code(self, text, name=None):
        """Python as HTML; names of functions of the package lead to their source.

        With a name every line has an anchor, name-1 and so on.
        """
        made = self._highlight(text, self._python, self._formatter(linespans=name or ""))
        if not name:
            made = re.sub(r'<span class="n">(\w+)</span><span class="o">\.</span>'
                          r'<span class="n">(\w+)</span>', self._code_link, made)
        return made.replace("<pre>", '<pre tabindex="0">', 1)

    def output(self, text):
        return f'<pre class="output" tabindex="0">{html.escape(text.rstrip())}</pre>'

    def tags(self, text):
        """Escaped text in which tags lead to the index of equations, numbers to their lessons."""
        text = LESSON.sub(lambda found: re.sub(
            r"\d\d", lambda n: self.lesson(n[0], n[0]), found[0]), html.escape(text))
        return re.sub(index.TAG, lambda found: found[0] if found[0] not in self.entries else
                      f'<a href="equations.html#{found[0]}">{found[0]}</a>', text)

    def lesson(self, number, text, anchor=""):
        """The text, as a link to the lesson of this number if it has a page."""
        page = next((name for name in self.pages if name.startswith(f"{number}_")), "")
        return f'<a href="{page}{anchor}">{text}</a>' if page else text

    def _text(self, tokens, at, options, env):
        inside = sum(t.nesting for t in tokens[:at] if t.type.startswith("link_"))
        return html.escape(tokens[at].content) if inside else self.tags(tokens[at].content)

    def _code_inline(self, tokens, at, options, env):
        text = tokens[at].content
        return f"<code>{_source_link(text.partition('(')[0], html.escape(text))}</code>"

    def _code_link(self, found):
        return _source_link(f"{found[1]}.{found[2]}", found[0])


def _letter(found):
    """A letter of another alphabet: browsers know it by its code point only."""
    element, alphabet, letter = found.groups()
    kind = "DIGIT" if letter.isdigit() else "CAPITAL" if letter.isupper() else "SMALL"
    name = f"{alphabet} {kind} {unicodedata.name(letter).split()[-1]}".upper()
    for prefix in ("MATHEMATICAL ", ""):                # some are older than the others
        with contextlib.suppress(KeyError):
            return f"<{element}>{unicodedata.lookup(prefix + name)}"
    return found[0]


def _executed(path):
    """A notebook with its outputs; says on stderr what it is doing."""
    start, live = time.perf_counter(), sys.stderr.isatty()

    def say(text, end=""):
        print(f"{chr(13) * live}{text}", end=end, file=sys.stderr, flush=True)

    say(f"{path.stem}: ")
    try:
        notebook = notebooks.execute(
            path, lambda n, of: live and say(f"{path.stem}: cell {n} of {of}"))
    except BaseException:
        say("", "\n")
        raise
    say(f"{path.stem}: " * live + f"{len(notebook.cells)} cells, "
        f"{time.perf_counter() - start:.1f} s", "\n")
    return notebook


def _lesson(setter, stem, notebook):
    """Prose, code, outputs and figures of one lesson, with its solutions folded."""
    body, figures, solutions = [], [], _solutions(setter, stem)
    for n, cell in enumerate(notebook.cells, 1):
        where = f"{stem}, cell {n}"
        if cell.cell_type == "markdown":
            with _named(where):
                body.append(f'<div id="cell-{n}">{_text(setter, cell.source, solutions)}</div>')
            continue
        body.append(f'<div id="cell-{n}" class="cell">{setter.code(cell.source)}')
        title = cell.metadata.get("title", "")
        for output in cell.outputs:
            data = output.get("data", {"text/plain": output.get("text")})
            if not set(data) <= {"text/plain", "image/svg+xml"} or \
                    len(data["text/plain"]) > LONGEST:
                raise notebooks.LessonError(f"{where}: figures and up to {LONGEST} characters of "
                                            f"text expected, got {', '.join(data)}")
            if "image/svg+xml" not in data:
                body.append(setter.output(data["text/plain"]))
                continue
            if not title:
                raise notebooks.LessonError(f"{where} draws a figure: one, and a title behind the "
                                            "# %% expected, the text of those who cannot see it")
            svg = data["image/svg+xml"]
            figures.append((f"{stem.partition('_')[0]}-{len(figures) + 1}.svg",
                            svg[svg.index("<svg"):]))
            body.append(_figure(*figures[-1], title))
            title = ""                                                  # one picture, one text
        body.append("</div>")
        for exercise in re.findall(r"NotImplementedError\(\"Exercise (\d+\.\d+)", cell.source):
            if exercise not in solutions:
                raise notebooks.LessonError(f"{where}: a solution of E{exercise} expected, found "
                                            "none")
            body.append(_folded(f"Solution of E{exercise}", solutions[exercise]))
    title = notebook.cells[0].source.partition("\n")[0].lstrip("# ")
    number = stem[:2] if stem[:2].isdigit() else ""
    above = f'<p class="number">Lesson {number}</p>' if number else ""
    text = "".join(body)
    return Page(f"{stem}.html", f"{number} {title}".strip(), above + _contents(text), figures)


@contextlib.contextmanager
def _named(where):
    """Say where a text cannot be set."""
    try:
        yield
    except ValueError as error:
        raise notebooks.LessonError(f"{where}: {error}") from error


def _text(setter, text, solutions):
    """Prose; the answers to the questions are folded behind them."""
    if "without code" not in text or "answers" not in solutions:
        return setter.prose(text)
    questions, where, rest = text.partition("\n*Where this is used")
    return (setter.prose(questions) + _folded("Answers to the questions", solutions["answers"])
            + setter.prose(where + rest))


def _contents(body):
    """The same with the list of its sections after the first cell, the frame."""
    heads = re.findall(r'<h2 id="(.*?)">(.*?)</h2>', body)
    items = "".join(f'<li><a href="#{name}">{re.sub("</?a.*?>", "", text)}</a></li>'
                    for name, text in heads)
    nav = f'<nav class="contents" aria-label="Sections"><ul>{items}</ul></nav>'
    return body.replace('<div id="cell-2"', f'{nav}<div id="cell-2"', 1)


def _figure(name, svg, text):
    width, height = (float(x) * 96 / 72 for x in re.search(
        r'width="([\d.]+)pt" height="([\d.]+)pt"', svg).groups())
    return (f'<p class="figure wide" tabindex="0"><img src="figures/{name}" '
            f'alt="{html.escape(text)}" width="{width:.0f}" height="{height:.0f}"></p>')


def _folded(title, body):
    return f"<details><summary>{title}</summary>{body}</details>"


def _solutions(setter, stem):
    """{exercise: HTML}, and the answers to the questions."""
    path, found, last = notebooks.TUTORIALS / "solutions" / f"{stem}.py", {}, None
    for n, cell in enumerate(notebooks.read(path).cells if path.exists() else (), 1):
        if cell.cell_type == "markdown":
            match = SOLUTION.match(cell.source)
            last = match[1] if match else "answers" if "questions" in cell.source[:40] else None
            with _named(f"solutions/{stem}, cell {n}"):
                text = setter.prose(cell.source)
        else:
            if last in (None, "answers"):
                continue
            solution, start, check = cell.source.partition("def check_")
            text = setter.code(solution)
            if start:
                text += _folded("The check", setter.code(start + check))
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
    for kinds, title in (("K", "The derivation"), ("EV", "Claims about the derivation"),
                         ("S", "Attention as a kernel smoother"), ("D", "Claims about smoothers")):
        items = "".join(_entry(setter, entry) for entry in setter.entries.values()
                        if entry.tag[0] in kinds)
        body += f'<h2 id="{kinds}">{title}</h2><ul class="index">{items}</ul>'
    return Page("equations.html", "Equations", body)


def _entry(setter, entry):
    code = "".join(f" · <code>{_source_link(name, name)}</code>" for name in entry.functions)
    shown = ", ".join(setter.lesson(number, f"{number} cell {cell}", f"#cell-{cell}")
                      for number, cell in entry.lessons)
    tests = ", ".join(f"<code>{_source_link(name, name.partition('::')[2])}</code>"
                      for name in entry.tests)
    return (f'<li id="{entry.tag}"><p><strong>{entry.tag}</strong> '
            f'{_subscripts(html.escape(entry.statement))}</p><p class="small">'
            f"{html.escape(entry.source)}{code} · lesson {shown} · {tests}</p></li>")


def _subscripts(text):
    """HTML in which W_e, x^{-1} and `code` stand as in print."""
    parts = re.split("(<code>.*?</code>)", re.sub("`(.*?)`", r"<code>\1</code>", text))
    for pattern, made in ((r"_\{(.*?)\}", r"<sub>\1</sub>"), (r"\^\{(.*?)\}", r"<sup>\1</sup>"),
                          (r"(?<![a-z_])([A-Za-zΑ-ω]′?)_([A-Za-z0-9]+|[Α-ω])", r"\1<sub>\2</sub>"),
                          (r"\^(\w+)", r"<sup>\1</sup>")):
        parts[::2] = [re.sub(pattern, made, part) for part in parts[::2]]
    return "".join(parts)


@functools.cache
def _readme():
    return (ROOT / "README.md").read_text(encoding="utf-8")


def _notation(setter):
    """The section of the README."""
    text = _readme().partition("\n## Notation\n")[2].partition("\n## ")[0]
    return Page("notation.html", "Notation", "<h1>Notation</h1>" + _subscripts(setter.prose(text)))


@functools.cache
def _sources():
    """The modules and the tests, each line with an anchor."""
    setter, pages = Setter(), []
    for path in _files():
        where = path.relative_to(ROOT).as_posix()
        pages.append(Page(f"source/{_dotted(path)}.py.html", where, f"<h1><code>{where}</code></h1>"
                          + setter.code(path.read_text(encoding="utf-8"), "L")))
    return pages


def _files():
    """The modules of the package and the tests."""
    return *sorted(notebooks.PACKAGE.rglob("*.py")), *sorted((ROOT / "tests").glob("test_*.py"))


def _dotted(path):
    """attention.layer for ksvd_ref/attention/layer.py, test_primal for tests/test_primal.py."""
    inside = path.relative_to(notebooks.PACKAGE if notebooks.PACKAGE in path.parents
                              else ROOT / "tests")
    return ".".join(inside.with_suffix("").parts)


@functools.cache
def _definitions():
    """{"primal.solve": its page and line}; tests as "test_primal.py::test_solve"."""
    found = {}
    for path in _files():
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                name = f"{path.name}::{node.name}" if path.stem.startswith("test_") \
                    else f"{_dotted(path)}.{node.name}"
                place = f"source/{_dotted(path)}.py.html#L-{node.lineno}"
                found[name] = place
                wing, _, rest = name.partition(".")
                if wing == "attention":             # in prose: smoother.weights, or on the face
                    found[rest] = found[f"{wing}.{node.name}"] = place
                elif wing in ("course", "command"):
                    found[rest] = place
    return found


def _source_link(name, text):
    """The text, as a link to where the function is defined if there is one."""
    place = _definitions().get(name)
    return f'<a href="{place}">{text}</a>' if place else text


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
    links = {"index.html": "Lessons", "findings.html": "Findings", "equations.html": "Equations",
             "notation.html": "Notation"}
    top = "".join(f'<li><a href="{up}{name}"{" aria-current=page" * (name == page.name)}>{text}</a>'
                  for name, text in links.items() if name == "index.html" or name in order)
    turn = ""
    if page.name in order:
        around, at = ["index.html", *order, None], 1 + order.index(page.name)
        titles = links | {f"{stem}.html": f"{stem[:2]} {title}" for title, stem, *_ in _lessons()}
        for rel, name, text in (("prev", around[at - 1], "← {}"), ("next", around[at + 1], "{} →")):
            if name:
                turn += f'<a rel="{rel}" href="{name}">{text.format(titles.get(name, name))}</a>'
        turn = f'<nav class="turn" aria-label="Previous and next page">{turn}</nav>'
    title = page.title if page.title == SITE else f"{page.title} · ksvd_ref"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="ksvd_ref book">
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
<footer>{turn}</footer>
</body>
</html>
"""
