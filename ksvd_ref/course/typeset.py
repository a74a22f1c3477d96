"""Type for the pages of the book: prose, formulas and code as HTML, with links.

markdown-it sets the prose, latex2mathml the formulas, Pygments the code. Tags lead to the index of
equations, names of functions to their source, numbers of lessons to their pages.

No equation: it shows those of the other modules.
"""
import ast
import contextlib
import functools
import html
import re
import unicodedata

from . import formulas, index, notebooks

ROOT = notebooks.TUTORIALS.parent
FINDING = re.compile(r"\b[Ff]indings? F\d+(?:(?:,| and| or| to) F\d+)*")
PAPER = re.compile(r"\b(?:arXiv )?(\d{4}\.\d{5})\b|\b(10\.\d{4,9}/[^\s,;()]*[^\s,;().])")
UNIT = re.compile(r"(?<=\d) (?=(?:%|minutes?|seconds?|hours?|lines?|GB|MB|s|ms|rad)(?!\w))")
BOX = re.compile(r"<p>(?=<strong>(By hand|Counter-example)\.</strong>|<em>(See):</em>)")
LESSON = re.compile(r"\b[Ll]essons? \d\d\b(?:(?:,| and| to) \d\d\b)*")
TYPOGRAPHY = (          # what TeX does and latex2mathml leaves to the browser
    # infinity, top, perpendicular and dots are no operators, similar is; phi has one shape
    ("<mo>(&#x0(?:221E|22A4|22A5|2026|22EF);)</mo>", r'<mi mathvariant="normal">\1</mi>'),
    ("&#x003D5;", "&#x003C6;"), ("<mi>&#x0007E;</mi>", "<mo>&#x0223C;</mo>"),
    ("<mi>&#x027C2;</mi>", "<mo>&#x022A5;</mo>"), ("<mi>;</mi>", "<mo>;</mo>"),
    ("<mo>(?=&#x0002E;)", '<mo lspace="0" rspace="0">'),
    # capitals are upright
    ("<mi>(&#x003(?:9[1-9A-F]|A[0-9]);)", r'<mi mathvariant="normal">\1'),
    # no space at a partial derivative, nabla, slash, bar, double bar, nor between tr and (
    ("<mo>(&#x0220[27];)</mo>", r'<mi mathvariant="normal">\1</mi>'),
    ("<mo>(?=&#x0002F;)", '<mo lspace="0" rspace="0">'),
    ("<mo[^>]*>(?=&#x(?:0007C|02016);)", '<mo stretchy="false" lspace="0" rspace="0">'),
    ("<mo>([a-z]+)</mo>(?=<mo[^>]*>(?:&#x00028;|\\())", r"<mi>\1</mi>"),
    ("<mo>(?=[a-z]+</mo>)", '<mo lspace="0.167em" rspace="0.167em">'),
    # a space between log and its argument
    ("<mi>(log|sin|cos|exp|max|min)</mi>(?=<m[^o])", r'<mi>\1</mi><mspace width="0.167em"/>'),
    # and before it; a root that the font has in one size is as high as that sign
    ("(</m(?!o)\\w+>)(?=<mi>(?:log|exp|max|min|tr)</mi>)", r'\1<mspace width="0.167em"/>'),
    ("<msqrt>", '<msqrt><mspace height="0.87em"/>'),
    # plus and minus are signs after an opening bracket, a comma, a relation
    ("(<mo[^>]*>(?:&#x000(?:28|2C|3C|3D|3E|5B);|&#x0226[45];|\\()</mo>)<mo>(?=&#x0(?:2212|002B);)",
     r'\1<mo form="prefix">'))


class Setter:
    """Sets prose, formulas and code in HTML, with links to equations, sources and lessons.

    pages: those that there will be; a lesson that is not among them is named without a link.

    >>> "<msub><mi>W</mi><mi>e</mi></msub>" in Setter().prose("The weights $W_e$.")
    True
    """

    def __init__(self, pages=()):
        self.pages = pages
        converter, markdown_it, anchors, dollarmath, pygments, lexers, formatters = notebooks.need(
            "latex2mathml.converter", "markdown_it", "mdit_py_plugins.anchors",
            "mdit_py_plugins.dollarmath", "pygments", "pygments.lexers", "pygments.formatters")
        self._convert, self._highlight = converter.convert, pygments.highlight
        self._python, self._formatter = lexers.PythonLexer(), formatters.HtmlFormatter
        self._markdown = markdown_it.MarkdownIt(
            "commonmark", {"html": False, "typographer": True}).enable(
            ["table", "smartquotes"]).use(
            dollarmath.dollarmath_plugin, double_inline=True, renderer=self.formula).use(
            anchors.anchors_plugin, min_level=2, max_level=3, permalink=True, permalinkSymbol="#",
            slug_func=_slug)
        self._markdown.renderer.rules.update(text=self._text, code_inline=self._code_inline)

    @functools.cached_property
    def entries(self):
        """Tag -> Entry; read when the first is asked for, as the pages of sources never do."""
        return {entry.tag: entry for entry in index.entries()}

    def prose(self, text):
        """Markdown as HTML."""
        text = re.sub(r"^\|.*", lambda row: re.sub(        # a bar of a formula ends no cell
            r"\$[^$]+\$", lambda found: re.sub(r"(?<!\\)\|", r"\\|", found[0]), row[0]), text,
            flags=re.M)
        made = self._markdown.render(text)
        made = re.sub(r'(\(?)<span class="math inline">(.*?)</span>([).,;:]*)',     # one word
                      r'<span class="math inline">\1\2\3</span>', made)
        # axe takes a table's head that is only a formula for an empty one
        made = re.sub(r'(<th[^>]*><span class="math inline"><math) alttext="(.*?)"',
                      r'\1 role="math" aria-label="\2" alttext="\2"', made)
        made = BOX.sub(lambda found: f'<p class="box {(found[1] or found[2]).lower()}">', made)
        return made.replace("<table>", '<div class="wide" tabindex="0"><table>').replace(
            "</table>", "</table></div>")

    def formula(self, text, options):
        """LaTeX as MathML, its \\tag beside it; a ValueError for a command that is not known."""
        block = options["display_mode"]
        tag = re.search(r"\\tag\{(.*?)\}", text)
        text = text.replace(tag[0], "") if tag else text
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
        if not block:
            return made
        number = f'<span class="tag">{self.tags(tag[1])}</span>' if tag else ""
        return f'<span class="formula" tabindex="0">{made}</span>{number}'

    def code(self, text, name=None):
        """Python as HTML: names of functions lead to their source, or each line is name-1, ..."""
        made = self._highlight(text, self._python, self._formatter(linespans=name or ""))
        if not name:
            made = re.sub(r'<span class="n">(\w+)</span><span class="o">\.</span>'
                          r'<span class="n">(\w+)</span>',
                          lambda found: source_link(f"{found[1]}.{found[2]}", found[0]), made)
        return made.replace("<pre>", '<pre tabindex="0">', 1)

    def output(self, text):
        """What a cell printed."""
        return f'<pre class="output" tabindex="0">{html.escape(text.rstrip())}</pre>'

    def tags(self, text):
        """Escaped text in which tags lead to the index of equations, numbers to their lessons."""
        text = LESSON.sub(lambda found: re.sub(
            r"\d\d", lambda n: self.lesson(n[0], n[0]), found[0]),
            UNIT.sub("\N{NO-BREAK SPACE}", html.escape(text)))
        if "findings.html" in self.pages:
            text = FINDING.sub(lambda found: re.sub(
                r"F\d+", r'<a href="findings.html#\g<0>">\g<0></a>', found[0]), text)
        text = PAPER.sub(_paper, text)
        text = re.sub(index.TAG, lambda found: found[0] if found[0] not in self.entries else
                      f'<button type="button" popovertarget="at-{found[0]}">{found[0]}</button>',
                      text)
        return re.sub(r"\(?<button [^<]*</button>[).,;:]+|\(<button [^<]*</button>",     # one word
                      r'<span class="word">\g<0></span>', text)

    def previews(self, body):
        """What the tags of a page say: shown where one is pressed, without a script."""
        tags = dict.fromkeys(re.findall('<button [^>]*="at-([^"<]+)"', body))
        return "".join(
            f'<div popover class="preview" id="at-{tag}">{self.statement(tag)}<p class="small">'
            f'<a href="equations.html#{tag}">Source, function, lesson, test of {tag}</a></p></div>'
            for tag in tags)

    def statement(self, tag):
        """What a tag says; the tags in it are text."""
        said = self.prose(f"**{tag}** {formulas.markdown(self.entries[tag].statement)}")
        return re.sub("</?button.*?>", "", said)

    def lesson(self, number, text, anchor=""):
        """The text, as a link to the lesson of this number if it has a page."""
        page = next((name for name in self.pages if name.startswith(f"{number}_")), "")
        return f'<a href="{page}{anchor}">{text}</a>' if page else text

    def _text(self, tokens, at, options, env):
        inside = sum(t.nesting for t in tokens[:at] if t.type.startswith("link_"))
        return html.escape(tokens[at].content) if inside else self.tags(tokens[at].content)

    def _code_inline(self, tokens, at, options, env):
        text = tokens[at].content
        return f"<code>{source_link(text.partition('(')[0], html.escape(text))}</code>"


def _slug(title):
    """The anchor of a section: its words, or the number of a finding."""
    finding = re.match(r"F\d+(?=\.)", title)
    return finding[0] if finding else re.sub(r"[^\w-]+", "-", title.lower()).strip("-")


def _paper(found):
    """A number of arXiv, or a DOI, as a link."""
    to = f"arxiv.org/abs/{found[1]}" if found[1] else f"doi.org/{found[2]}"
    return f'<a href="https://{to}">{found[0]}</a>'


def _letter(found):
    """A letter of another alphabet: browsers know it by its code point only."""
    element, alphabet, letter = found.groups()
    kind = "DIGIT" if letter.isdigit() else "CAPITAL" if letter.isupper() else "SMALL"
    name = f"{alphabet} {kind} {unicodedata.name(letter).split()[-1]}".upper()
    for prefix in ("MATHEMATICAL ", ""):                # some are older than the others
        with contextlib.suppress(KeyError):
            return f"<{element}>{unicodedata.lookup(prefix + name)}"
    return found[0]


def figure(name, text, svg=""):
    """A figure of this file name, with the text of those who cannot see it; in its SVG's size."""
    size = re.search(r'width="([\d.]+)pt" height="([\d.]+)pt"', svg)
    size = size and ' width="{:.0f}" height="{:.0f}"'.format(*(
        float(x) * 96 / 72 for x in size.groups()))
    return (f'<figure><div class="figure wide" tabindex="0"><img src="figures/{name}" '
            f'alt="{html.escape(text)}"{size or ""}></div>'
            f"<figcaption>{html.escape(text)}.</figcaption></figure>")


def folded(title, body):
    """What a reader opens by its title; nothing where there is nothing."""
    return f"<details><summary>{title}</summary>{body}</details>" if body else ""


def contents(body):
    """The sections of a page as a list of links."""
    items = "".join(
        f'<li><a href="#{name}">{re.sub("<a class=.header.*?</a>|</?(?:a|button).*?>", "", text)}'
        "</a></li>" for name, text in re.findall(r'<h2 id="(.*?)">(.*?)</h2>', body))
    return f'<ul class="sections">{items}</ul>' if items else ""


def sources():
    """{"attention.layer": its path, "test_primal": its path}: what has a page of its own.

    >>> sources()["attention.layer"].parts[-3:]
    ('ksvd_ref', 'attention', 'layer.py')
    """
    return {".".join(path.relative_to(top).with_suffix("").parts): path
            for top, pattern in ((notebooks.PACKAGE, "**/*.py"), (ROOT / "tests", "test_*.py"))
            for path in sorted(top.glob(pattern))}


def source_link(name, text):
    """The text, as a link to where the function of this name is defined if there is one."""
    place = _definitions().get(name)
    return f'<a href="{place}">{text}</a>' if place else text


@functools.cache
def _definitions():
    """{"primal.solve": its page and line}; tests as "test_primal.py::test_solve"."""
    found = {}
    for module, path in sources().items():
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                name = f"{path.name}::{node.name}" if path.stem.startswith("test_") \
                    else f"{module}.{node.name}"
                place = found[name] = f"source/{module}.py.html#L-{node.lineno}"
                wing, _, rest = name.partition(".")
                if wing == "attention":             # in prose: smoother.weights, or on the face
                    found[rest] = found[f"{wing}.{node.name}"] = place
                elif wing in ("course", "command"):
                    found[rest] = place
    return found
