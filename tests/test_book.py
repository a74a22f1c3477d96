"""The site, read as HTML. It is built once, by the command, of lessons run in a clean folder."""
import re
import shutil
from html.parser import HTMLParser

import nbformat
import pytest

from ksvd_ref.command.main import main
from ksvd_ref.course import book, index, notebooks, typeset

LESSONS = [path.stem for path in notebooks.lessons()]


BLOCKS = "div", "p", "ul", "ol", "table", "pre", "figure", "details", "h2", "h3"
CURLY = str.maketrans({"\N{RIGHT SINGLE QUOTATION MARK}": "'", "\N{NO-BREAK SPACE}": " "})


class Reader(HTMLParser):
    """What a test asks of a page: names, links, pictures, headings, formulas, text."""

    def __init__(self, text):
        super().__init__()
        self.names, self.links, self.loads, self.pictures, self.heads = [], [], [], [], []
        self.formulas, self.folded, self.text, self.tags = [], [], "", set()
        self.open, self.blocks = [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.tags.add(tag)
        self.blocks += [tag] if "p" in self.open and tag in BLOCKS else []
        self.open += [tag] if tag in ("p", "summary") else []
        self.folded += [""] if tag == "summary" else []
        self.names += [found["id"]] if "id" in found else []
        self.links += [found["href"]] if tag == "a" else []
        if tag in ("img", "link", "script"):
            self.loads.append(found.get("src") or found["href"])
        self.pictures += [found["alt"]] if tag == "img" else []
        self.heads += [int(tag[1])] if re.fullmatch("h[1-6]", tag) else []
        self.formulas += [found["alttext"]] if tag == "math" else []

    def handle_endtag(self, tag):
        if self.open[-1:] == [tag]:
            self.open.pop()

    def handle_data(self, data):
        self.text += data
        if self.open[-1:] == ["summary"]:
            self.folded[-1] += data


@pytest.fixture(scope="module")
def pages(site):
    """{name: Reader} of every page of the site that the command wrote."""
    found = {path.relative_to(site).as_posix(): Reader(path.read_text(encoding="utf-8"))
             for path in site.rglob("*.html")}
    assert len(found) > 40
    return found


def flat(text):
    return " ".join(text.translate(CURLY).split())


@pytest.mark.parametrize("stem", LESSONS)
def test_a_page_holds_its_lesson(pages, site, stem):
    """Every line of code, every formula, heading and figure, an output, nothing on stderr."""
    page, notebook = pages[f"{stem}.html"], notebooks.read(notebooks.TUTORIALS / f"{stem}.py")
    text, shown = flat(page.text), 0
    for n, cell in enumerate(notebook.cells, 1):
        assert f"cell-{n}" in page.names
        if cell.cell_type == "code":
            assert flat(cell.source) in text
            shown += cell.source.count("plt.show()")
        else:
            for line in re.findall(r"^#+ (.*)$", cell.source, re.M):
                assert flat(line.partition("$")[0]) in text
            for one, other in re.findall(r"\$\$(.+?)\$\$|\$(.+?)\$", cell.source, re.S):
                formula, _, tag = flat(one or other).partition("\\tag{")
                assert re.sub(r"\\\\(?=\S)", r"\\\\ ", formula.rstrip()) in page.formulas
                assert tag.strip(" }") in page.text
    assert len(page.pictures) == shown and 'class="output"' in (site / f"{stem}.html").read_text()
    assert "Warning" not in page.text and "Traceback" not in page.text


@pytest.mark.parametrize("stem", [stem for stem in LESSONS if stem[0].isdigit()])
def test_solutions_are_folded(pages, stem):
    """Each behind the cell that calls its check, with the check in it; the answers at the end."""
    page = pages[f"{stem}.html"]
    cells = notebooks.read(notebooks.TUTORIALS / f"{stem}.py").cells
    exercises = [*filter(None, map(notebooks.checked, cells))]
    assert 2 <= len(exercises) <= 4 and all(f"E{exercise}" in page.names for exercise in exercises)
    assert page.folded == ["Contents", *(title for exercise in exercises for title in (
        f"Solution of E{exercise}", "The check")), "Answers to the questions"]
    for exercise in exercises:
        assert re.search(rf'exercises.check\("{exercise}", \w+\)\s+E{exercise}  not attempted\s*'
                         f"Solution of E{exercise}", page.text)


def test_no_block_in_a_paragraph(pages):
    """A browser would end the paragraph there, and leave an empty one behind."""
    assert {name: page.blocks for name, page in pages.items() if page.blocks} == {}


def test_every_picture_says_what_it_shows(pages):
    for name, page in pages.items():
        if name != "index.html":                    # there the title beside it says it
            assert all(25 < len(text) <= 95 for text in page.pictures), (name, page.pictures)
            assert len(set(page.pictures)) == len(page.pictures)


def test_headings_are_in_order(pages):
    for name, page in pages.items():
        assert page.heads[0] == 1 and page.heads.count(1) == 1, name
        assert all(b - a <= 1 for a, b in zip(page.heads, page.heads[1:])), name


def test_every_link_answers(pages, site):
    for name, page in pages.items():
        assert len(set(page.names)) == len(page.names), name
        for link in page.links:
            if not link.startswith(("http://", "https://")):
                target, _, anchor = link.partition("#")
                where = ((site / name).parent / target).resolve() if target else site / name
                if where.parent.name == "files":
                    assert where.is_file() and where.suffix in (".py", ".ipynb")
                    continue
                other = pages[where.relative_to(site.resolve()).as_posix()]
                assert not anchor or anchor in other.names, (name, link)
    for name in ("index.html", *(f"{stem}.html" for stem in LESSONS)):
        assert name in pages["equations.html"].links + pages["notation.html"].links + \
            pages["findings.html"].links + pages["index.html"].links


def test_nothing_comes_from_elsewhere_and_nothing_runs(pages, site):
    for name, page in pages.items():
        assert "script" not in page.tags
        for load in page.loads:
            assert load.startswith("data:") or (site / name).parent.joinpath(load).is_file(), load
    assert not re.search("https?:|@import", (site / "book.css").read_text(encoding="utf-8"))


def test_previous_and_next(site):
    """Turning pages from the first lesson reaches every page of the order once."""
    name, seen = f"{LESSONS[0]}.html", []
    while name:
        seen.append(name)
        found = re.search(r'rel="next" href="(.*?)"', (site / name).read_text(encoding="utf-8"))
        name = found and found[1]
    assert seen == [*(f"{stem}.html" for stem in LESSONS), "equations.html", "notation.html"]


def test_the_start_page_has_a_picture_and_a_sentence_for_each_lesson(pages, site):
    page = pages["index.html"]
    assert page.heads.count(3) == 15 and len(page.pictures) == 15 and page.heads.count(2) == 6
    for load in page.loads:
        assert load.startswith(("data:", "book.css", "figures/"))
    rows = re.findall(r"<td>((?:<a href=\"(\d\d)_\w+.html\">\2</a>(?:, )?)+)</td>",
                      (site / "index.html").read_text("utf-8"))
    assert len(rows) == 15 + 14 + 9                 # each lesson, what 14 need, who needs 9 of them


def test_the_first_page_says_what_the_readme_says():
    """Hours of each part, and what needs what."""
    text = (notebooks.TUTORIALS / notebooks.START).read_text(encoding="utf-8")
    rows = {stem[:2]: (int(minutes), needs) for _, stem, minutes, needs, _ in book._lessons()}
    for first, title in book.PARTS.items():
        whole, quarters = re.search(rf"## {title}\n\n(\d) (?:(\d/\d) )?hours\.", text).groups()
        said = 60 * (int(whole) + {"1/4": 0.25, "1/2": 0.5, "3/4": 0.75}[quarters])
        minutes = sum(m for number, (m, _) in rows.items() if book._part(f"{number}_x") == title)
        assert abs(said - minutes) <= 10, (title, minutes)
        assert f"| *{title}* | {minutes} | | |\n" in book._readme()
    for number, (_, needs) in rows.items():
        after = ", ".join(n for n, (_, other) in rows.items() if number in other)
        assert f"| {number} | {needs} | {after}".rstrip() in text


def test_every_page_shows_where_it_is(pages, site):
    """The sidebar names every page, in four parts, and the sections of this one."""
    for name in pages:
        text = (site / name).read_text(encoding="utf-8")
        side = text.partition('<div class="side">')[2].partition("</div>")[0]
        assert all(f"{stem}.html" in side for stem in LESSONS) and side.count('class="part"') == 5
        assert side.count("aria-current") == ("/" not in name)
        for anchor in re.findall('<h2 id="(.*?)"', text):
            assert f'<a href="#{anchor}">' in side, name


def test_equations_lead_to_source_lesson_and_test(pages, site):
    page = (site / "equations.html").read_text(encoding="utf-8")
    for entry in index.entries():
        row = page.partition(f'<li id="{entry.tag}">')[2].partition("</li>")[0]
        assert len(re.findall('href="source/', row)) == len(entry.functions) + len(entry.tests)
        assert len(re.findall('href="[^"]+#cell-', row)) == len(entry.lessons)
    lines = (site / "source" / "primal.py.html").read_text(encoding="utf-8").split("\n")
    link = re.search(r'href="source/primal.py.html#(L-\d+)">primal.solve<', page)
    assert any(f'id="{link[1]}"' in line and "solve" in line for line in lines)


def luminance(colour):
    """Relative luminance of #rrggbb (WCAG 2)."""
    channels = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
    return sum(weight * (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4)
               for weight, c in zip((0.2126, 0.7152, 0.0722), channels))


def test_contrast(site):
    """Every colour of text on both grounds, light and dark: 4.5 : 1 (WCAG 2, level AA)."""
    css = (site / "book.css").read_text(encoding="utf-8")
    schemes = [dict(re.findall(r"--(\w+): (#\w{6})", block))
               for block in re.findall(r":root \{(.*?)\}", css, re.S)]
    assert len(schemes) == 2
    for scheme in schemes:
        for ground in ("paper", "soft"):
            for ink in ("ink", "quiet", "link", "word", "text", "number"):
                one, other = sorted(luminance(scheme[name]) for name in (ground, ink))
                assert (other + 0.05) / (one + 0.05) >= 4.5, (ground, ink)


# The rest is tried on a course of one small lesson, so that it costs seconds.

@pytest.fixture
def small(tmp_path, monkeypatch):
    """Writes 01_small.py of the given cells beside the files that lessons read."""
    def make(*cells):
        folder = tmp_path / "tutorials"
        if not folder.exists():
            folder.mkdir()
            for name in notebooks.BESIDE:
                (folder / name).write_text("")
            (folder / notebooks.START).write_text("# Start\n\nHere.\n\n## I. The kernel SVD\n")
            shutil.copytree(notebooks.TUTORIALS / "site", folder / "site")
            monkeypatch.setattr(notebooks, "TUTORIALS", folder)
        (folder / "01_small.py").write_text(
            "# %% [markdown]\n# # Small\n" + "".join(f"{cell}\n" for cell in cells))
    return make


PLOT = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()"


def test_a_lesson_that_fails_stops_the_build_and_loses_nothing(tmp_path, small, capsys):
    out = tmp_path / "out"
    small("# %%\nprint('first')")
    assert main(["book", "--out", str(out)]) == 0
    captured = capsys.readouterr()
    assert str(out / "index.html") in captured.out and "01_small: 2 cells" in captured.err
    before = {path: path.read_bytes() for path in out.rglob("*.*")}
    small("# %%\nprint('second')", "# %%\n1 / 0")
    assert main(["book", "--out", str(out)]) == 1
    captured = capsys.readouterr()
    assert "ksvd-ref: 01_small, cell 3 ('1 / 0'): ZeroDivisionError: division by zero" in \
        captured.err
    assert {path: path.read_bytes() for path in out.rglob("*.*")} == before


POOR = [
    (f"# %%\n{PLOT}", "cell 2: .* one figure and a title behind the # %%, .* expected, got .*svg"),
    (f"# %% Two\n{PLOT}\n{PLOT}", "cell 2: .* one figure and a title"),
    ("# %% [markdown]\n# $\\foo$", "01_small, cell 2: a formula that latex2mathml knows expected"),
    ("# %% [markdown]\n# $x_$", "01_small, cell 2: a formula expected, got x_"),
    ("# %% [markdown]\n# $\\frac{1$", "01_small, cell 2: a formula"),
    ("# %%\nfrom IPython.display import HTML\nHTML('<b>x</b>')", "got text/plain, text/html"),
    ("# %%\nprint('x' * 10_000_000)",
     "up to 100000 characters of text, .*expected, got text/plain"),
    ("# %%\nexercises.check(\"1.1\", f)", "cell 2: a solution of E1.1 expected"),
]


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """{source: what it left} of the cells of POOR that are to run, by one kernel."""
    cells = [nbformat.v4.new_code_cell(cell.partition("\n")[2]) for cell, _ in POOR
             if "[markdown]" not in cell and "exercises" not in cell]
    path = tmp_path_factory.mktemp("kernel") / "cells.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    return {cell.source: cell.outputs for cell in notebooks.execute(path).cells}


@pytest.mark.parametrize("cell, message", POOR)
def test_a_page_that_would_be_poor_is_refused(tmp_path, small, monkeypatch, outputs, cell, message):
    def execute(path, progress):
        notebook = nbformat.read(path, 4)
        notebook.cells[-1].update(outputs=outputs.get(notebook.cells[-1].source, []))
        return notebook
    monkeypatch.setattr(notebooks, "execute", execute)
    small(cell)
    with pytest.raises((ValueError, notebooks.LessonError), match=message):
        book.build(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_another_folder_is_left_alone(tmp_path, small, capsys):
    small("# %%\nprint(1)")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "index.html").write_text("my page")
    assert main(["book", "--out", str(tmp_path / "mine")]) == 2
    assert "holds something else" in capsys.readouterr().err
    assert (tmp_path / "mine" / "index.html").read_text() == "my page"


def test_a_folder_that_cannot_be_is_refused_before_the_lessons_run(tmp_path, small, capsys):
    small("# %%\nimport time; time.sleep(1000)")
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for out in ("file/book", "link", "file"):
        assert main(["book", "--out", str(tmp_path / out)]) == 2
        err = capsys.readouterr().err
        assert err.startswith("ksvd-ref: --out: ") and err.count("\n") == 1
    (notebooks.TUTORIALS / "01_small.py").write_text("")
    assert main(["book", "--out", str(tmp_path / "new")]) == 1
    assert "01_small.py: cells that begin with # %% expected" in capsys.readouterr().err


def test_html_in_prose_is_text(setter):
    assert "&lt;script&gt;" in setter.prose("<script>alert(1)</script>")


def test_one_lesson(tmp_path, small, monkeypatch):
    """One lesson of an earlier book is renewed, the others stay and keep their links."""
    monkeypatch.setattr(notebooks, "execute", lambda path, progress: nbformat.read(path, 4))
    small("# %%\nprint('first')")
    other = notebooks.TUTORIALS / "02_other.py"
    other.write_text("# %% [markdown]\n# # Other\n# %%\nprint('kept')")
    book.build(tmp_path / "out")
    small("# %%\nprint('second')")
    other.write_text("# %% [markdown]\n# # Other\n# %%\nprint('new')")
    book.build(tmp_path / "out", 1)
    pages = [(tmp_path / "out" / name).read_text() for name in ("01_small.html", "02_other.html")]
    assert "second" in pages[0] and 'href="02_other.html"' in pages[0] and "kept" in pages[1]
    book.build(tmp_path / "alone", 1)                       # where the other was never made
    for path in (tmp_path / "alone").glob("*.html"):        # source/ shows this line too
        assert 'href="02_other.html' not in path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def setter():
    return typeset.Setter()


def test_an_entry_without_a_lesson_names_none(setter):
    entry = next(iter(setter.entries.values()))
    assert "lesson" in book._entry(setter, entry)
    alone = book._entry(setter, entry._replace(lessons=()))
    assert "lesson" not in alone and alone.count(" · <code>") >= 1


def test_text_is_escaped_and_formulas_are_mathml(setter):
    """A tag leads to the index, a name to its source, < and & are no markup."""
    made = setter.prose("a < b & c, (K.12), K.12.3, `primal.solve(Phi, Psi)`, $K^\\top < 1$")
    assert "a &lt; b &amp; c" in made and made.count('popovertarget="at-K.12"') == 1
    shown = setter.previews(made)
    assert shown.count(" popover ") == 1 and 'href="equations.html#K.12"' in shown
    link = r'<code><a href="source/primal.py.html#L-\d+">primal.solve\(Phi, Psi\)</a>'
    assert re.search(link, made)
    assert '<msup><mi>K</mi><mi mathvariant="normal">&#x022A4;</mi></msup>' in made
    assert setter.output("<b>") == '<pre class="output" tabindex="0">&lt;b&gt;</pre>'


def test_the_tag_of_a_formula_stands_beside_it(setter):
    """A button of its own behind the formula, which does not say it; the index sets no buttons."""
    made = setter.prose("$$ a = b. \\tag{K.7, K.15} $$")
    formula, _, tag = made.partition('</span><span class="tag">')
    assert 'alttext="a = b."' in formula and "K." not in formula
    assert re.findall(r'popovertarget="at-(.*?)">\1<', tag) == ["K.7", "K.15"]
    assert "<button" not in setter.statement("D1") and "S.2 with" in setter.statement("D1")


def test_what_belongs_to_a_tag_is_not_torn_off(setter):
    made = re.findall('<span class="word">(.*?)</span>', setter.prose("By K.7 and V1, or (K.8)."))
    assert [re.sub("<.*?>", "", word) for word in made] == ["V1,", "(K.8)."]


@pytest.mark.parametrize("formula, made", [
    ("a) - b", "</mo><mo>&#x02212;"), ("(-a)", '</mo><mo form="prefix">&#x02212;'),
    ("a = -b", '<mo form="prefix">&#x02212;'), ("a^2 - b", "</msup><mo>&#x02212;"),
    (r"\operatorname{tr}(A)", "<mi>tr</mi><mo"), (r"\max_i a_i", 'rspace="0.167em">max</mo>'),
    (r"\|x\|", '<mo stretchy="false" lspace="0" rspace="0">&#x02016;</mo><mi>x'),
    (r"\Phi", '<mi mathvariant="normal">&#x003A6;'), (r"\varphi", "<mi>&#x003C6;"),
    (r"a/b", '<mo lspace="0" rspace="0">&#x0002F;'),
    (r"\log p", '<mi>log</mi><mspace width="0.167em"/><mi>p'), (r"\exp(x)", "<mi>exp</mi><mo"),
    (r"-\infty", '<mi mathvariant="normal">&#x0221E;</mi>'), (r"\phi", "<mi>&#x003C6;</mi>"),
    (r"x^\bot", '<mi mathvariant="normal">&#x022A5;</mi>'), (r"a \sim b", "<mo>&#x0223C;</mo>"),
    (r"a, \dots, b", '<mi mathvariant="normal">&#x02026;</mi>'), (r"a \perp b", "<mo>&#x022A5;<"),
    (r"M\min(a)", '<mi>M</mi><mspace width="0.167em"/><mi>min</mi>'),
    (r"\sqrt{2}", '<msqrt><mspace height="0.87em"/>'),
    (r"\tfrac12\operatorname{tr}A", '<mo lspace="0.167em" rspace="0.167em">tr</mo>'),
    (r"a;\ b", "<mo>;</mo>"), (r"a.", '<mo lspace="0" rspace="0">&#x0002E;'),
    (r"a = +b", '<mo form="prefix">&#x0002B;'), (r"\mathcal L", "<mi>ℒ</mi>"),
    (r"\mathbf 1", "<mn>𝟏"),
    (r"\mathbb R^M", "<mi>ℝ</mi>"), (r"\mathcal N", "<mi>𝒩</mi>"), (r"\mathbf x", "<mi>𝐱</mi>"),
    (r"\begin{aligned}a:& b\end{aligned}", '<mtd columnalign="right"><mi>a</mi><mi>:</mi></mtd>'),
    (r"\begin{matrix}a\\b\end{matrix}", "<mtr><mtd><mi>a</mi></mtd></mtr><mtr><mtd><mi>b"),
])
def test_typography(setter, formula, made):
    """A minus after a bracket is a sign, after one that closes a difference; and so on."""
    assert made in setter.prose(f"${formula}$")


@pytest.mark.parametrize("text, made", [
    ("**By hand.** Two.", '<p class="box by hand"><strong>By hand.</strong> Two.</p>'),
    ("**Counter-example.** No.", '<p class="box counter-example"><strong>'),
    ("*See:* a line.", '<p class="box see"><em>See:</em>'),
    ("arXiv 2305.19798", '<a href="https://arxiv.org/abs/2305.19798">arXiv 2305.19798</a>'),
    ("DOI 10.1016/j.acha.2015.08.001.", 'href="https://doi.org/10.1016/j.acha.2015.08.001">'),
    ("50 minutes, 99 %", "50\N{NO-BREAK SPACE}minutes, 99\N{NO-BREAK SPACE}%"),
    ('a "word"', "a \N{LEFT DOUBLE QUOTATION MARK}word\N{RIGHT DOUBLE QUOTATION MARK}"),
    ("| $x$ |\n|---|\n| 1 |", '<math role="math" aria-label="x" alttext="x"'),
    ("| a |\n|---|\n| $|x|$, $y$ |", 'alttext="|x|"'), ("## 1. Why $x$ and K.12", '<h2 id="1-why-'),
    ("So (K.12).", '<span class="word">(<button type="button" popovertarget="at-K.12">K.12</button>'
     ").</span>"),
    ("Findings F1 and F3.", 'Findings <a href="findings.html#F1">F1</a> and <a href="findings.ht'),
])
def test_prose(text, made):
    assert made in typeset.Setter(["findings.html"]).prose(text)


def test_a_quick_book_runs_nothing_and_says_so(tmp_path, small, capsys):
    small("# %%\n1 / 0")
    assert main(["book", "--quick", "--out", str(tmp_path / "out")]) == 0
    page = (tmp_path / "out" / "01_small.html").read_text(encoding="utf-8")
    assert book.QUICK in page and "<img" not in page and 'href="files/01_small.ipynb"' in page
    assert book.QUICK in (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert capsys.readouterr().err == ""


def test_a_book_without_solutions(tmp_path, capsys):
    """Neither solution nor answer, in a page or a download, or in one that an earlier book left."""
    for words in ([], ["--no-solutions"]):
        out = tmp_path / f"out{len(words)}"
        assert main(["book", "--quick", "--lesson", "3", "--out", str(out), *words]) == 0
        page = (out / "03_from_dual_to_primal.html").read_text(encoding="utf-8")
        for text in ("Solution of E3.2", "The check", "Answers to the questions"):
            assert (text in page) == (not words)
        assert 'id="E3.2"' in page
    options = "book", "--quick", "--no-solutions", "--lesson", "4", "--out"
    capsys.readouterr()
    assert main([*options, str(tmp_path / "out0")]) == 2
    assert "out0 has some in 03_from_dual_to_primal.html: make" in capsys.readouterr().err
    assert not (tmp_path / "out0" / "04_the_objective_is_a_saddle.html").exists()
    assert main([*options, str(tmp_path / "out1")]) == 0
