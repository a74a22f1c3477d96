"""The site, read as HTML. It is built once, by the command, of lessons run in a clean folder."""
import re
import shutil
from html.parser import HTMLParser

import nbformat
import pytest

from ksvd_ref.command.main import main
from ksvd_ref.course import book, index, notebooks, typeset

LESSONS = [path.stem for path in notebooks.lessons()]


class Reader(HTMLParser):
    """What a test asks of a page: names, links, pictures, headings, formulas, text."""

    def __init__(self, text):
        super().__init__()
        self.names, self.links, self.loads, self.pictures, self.heads = [], [], [], [], []
        self.formulas, self.folded, self.text, self.tags = [], 0, "", set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.tags.add(tag)
        self.names += [found["id"]] if "id" in found else []
        self.links += [found["href"]] if tag == "a" else []
        if tag in ("img", "link", "script"):
            self.loads.append(found.get("src") or found["href"])
        self.pictures += [found["alt"]] if tag == "img" else []
        self.heads += [int(tag[1])] if re.fullmatch("h[1-6]", tag) else []
        self.formulas += [found["alttext"]] if tag == "math" else []
        self.folded += tag == "details"

    def handle_data(self, data):
        self.text += data


@pytest.fixture(scope="module")
def pages(site):
    """{name: Reader} of every page of the site that the command wrote."""
    found = {path.relative_to(site).as_posix(): Reader(path.read_text(encoding="utf-8"))
             for path in site.rglob("*.html")}
    assert len(found) > 40
    return found


def flat(text):
    return " ".join(text.split())


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
                assert re.sub(r"\\\\(?=\S)", r"\\\\ ", flat(one or other)) in page.formulas
    assert len(page.pictures) == shown and 'class="output"' in (site / f"{stem}.html").read_text()
    assert "Warning" not in page.text and "Traceback" not in page.text


@pytest.mark.parametrize("stem", [stem for stem in LESSONS if stem != "findings"])
def test_solutions_are_folded(pages, stem):
    exercises = set(re.findall(r"Exercise (\d+\.\d+)", pages[f"{stem}.html"].text))
    assert 2 <= len(exercises) <= 4
    for exercise in exercises:
        assert f"Solution of E{exercise}" in pages[f"{stem}.html"].text
    assert "Answers to the questions" in pages[f"{stem}.html"].text
    assert pages[f"{stem}.html"].folded == 2 * len(exercises) + 1       # with its check in it


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


def test_the_start_page_has_a_picture_and_a_sentence_for_each_lesson(pages):
    page = pages["index.html"]
    assert len(page.pictures) == len(page.heads) - 1 == 12
    for load in page.loads:
        assert load.startswith(("data:", "book.css", "figures/"))


def test_equations_lead_to_source_lesson_and_test(pages, site):
    page = (site / "equations.html").read_text(encoding="utf-8")
    for entry in index.entries():
        row = page.partition(f'<li id="{entry.tag}">')[2].partition("</li>")[0]
        assert len(re.findall('href="source/', row)) == len(entry.functions) + len(entry.tests)
        assert len(re.findall('href="[^"]+#cell-', row)) == len(entry.lessons)
    lines = (site / "source" / "primal.py.html").read_text(encoding="utf-8").split("\n")
    link = re.search(r'href="source/primal.py.html#(L-\d+)">primal.solve<', page)
    assert any(f'id="{link[1]}"' in line and "solve" in line for line in lines)


@pytest.mark.parametrize("text, made", [
    ("W_eᵀφ(x_i)", "W<sub>e</sub>ᵀφ(x<sub>i</sub>)"), ("K_rows", "K<sub>rows</sub>"),
    ("E = KH_r", "E = KH<sub>r</sub>"), ("H_eΣ", "H<sub>e</sub>Σ"),
    ("λ′_l σ_l²", "λ′<sub>l</sub> σ<sub>l</sub>²"),
    ("D̂^{-1/2}", "D̂<sup>-1/2</sup>"), ("(x)^degree", "(x)<sup>degree</sup>"),
    ("log_factor, `H_e`", "log_factor, <code>H_e</code>"), ("R_{i−j}", "R<sub>i−j</sub>")])
def test_subscripts(text, made):
    assert typeset.subscripts(text) == made


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


@pytest.mark.parametrize("cell, message", [
    (f"# %%\n{PLOT}", "cell 2: .* one figure and a title behind the # %%, .* expected, got .*svg"),
    (f"# %% Two\n{PLOT}\n{PLOT}", "cell 2: .* one figure and a title"),
    ("# %% [markdown]\n# $\\foo$", "01_small, cell 2: a formula that latex2mathml knows expected"),
    ("# %% [markdown]\n# $x_$", "01_small, cell 2: a formula expected, got x_"),
    ("# %% [markdown]\n# $\\frac{1$", "01_small, cell 2: a formula"),
    ("# %%\nfrom IPython.display import HTML\nHTML('<b>x</b>')", "got text/plain, text/html"),
    ("# %%\nprint('x' * 10_000_000)",
     "up to 100000 characters of text, .*expected, got text/plain"),
    ("# %%\ndef f(x):\n    raise NotImplementedError(\"Exercise 1.1: x\")",
     "cell 2: a solution of E1.1 expected"),
])
def test_a_page_that_would_be_poor_is_refused(tmp_path, small, monkeypatch, cell, message):
    if "[markdown]" in cell or "Exercise" in cell:          # nothing to run
        monkeypatch.setattr(notebooks, "execute", lambda path, progress: nbformat.read(path, 4))
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


def test_text_is_escaped_and_formulas_are_mathml(setter):
    """A tag leads to the index, a name to its source, < and & are no markup."""
    made = setter.prose("a < b & c, (K.12), K.12.3, `primal.solve(Phi, Psi)`, $K^\\top < 1$")
    assert "a &lt; b &amp; c" in made and made.count('href="equations.html#K.12"') == 1
    link = r'<code><a href="source/primal.py.html#L-\d+">primal.solve\(Phi, Psi\)</a>'
    assert re.search(link, made)
    assert "<msup><mi>K</mi><mo>&#x022A4;</mo></msup>" in made
    assert setter.output("<b>") == '<pre class="output" tabindex="0">&lt;b&gt;</pre>'


@pytest.mark.parametrize("formula, made", [
    ("a) - b", "</mo><mo>&#x02212;"), ("(-a)", '</mo><mo form="prefix">&#x02212;'),
    ("a = -b", '<mo form="prefix">&#x02212;'), ("a^2 - b", "</msup><mo>&#x02212;"),
    (r"\operatorname{tr}(A)", "<mi>tr</mi><mo"), (r"\max_i a_i", "<mo>max</mo>"),
    (r"\|x\|", '<mo stretchy="false" lspace="0" rspace="0">&#x02016;</mo><mi>x'),
    (r"\Phi", '<mi mathvariant="normal">&#x003A6;'), (r"\varphi", "<mi>&#x003C6;"),
    (r"a/b", '<mo lspace="0" rspace="0">&#x0002F;'),
    (r"\log p", '<mi>log</mi><mspace width="0.167em"/><mi>p'), (r"\exp(x)", "<mi>exp</mi><mo"),
    (r"a = +b", '<mo form="prefix">&#x0002B;'), (r"\mathcal L", "<mi>ℒ</mi>"),
    (r"\mathbf 1", "<mn>𝟏"),
    (r"\mathbb R^M", "<mi>ℝ</mi>"), (r"\mathcal N", "<mi>𝒩</mi>"), (r"\mathbf x", "<mi>𝐱</mi>"),
    (r"\begin{aligned}a:& b\end{aligned}", '<mtd columnalign="right"><mi>a</mi><mi>:</mi></mtd>'),
    (r"\begin{matrix}a\\b\end{matrix}", "<mtr><mtd><mi>a</mi></mtd></mtr><mtr><mtd><mi>b"),
])
def test_typography(setter, formula, made):
    """A minus after a bracket is a sign, after one that closes a difference; and so on."""
    assert made in setter.prose(f"${formula}$")
