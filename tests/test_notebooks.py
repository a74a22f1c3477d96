"""The lessons as notebooks. That each of them runs from a clean folder is what test_book sees."""
import json
import os
import re
import runpy
import signal
import subprocess
import sys
import time

import nbformat
import pytest

from ksvd_ref.command.main import main
from ksvd_ref.course import exercises, notebooks


@pytest.fixture
def lesson(tmp_path, monkeypatch):
    """A small course of one lesson, made of the given cells; returns its path."""
    def make(*cells):
        folder = tmp_path / "tutorials"
        folder.mkdir()
        for name in (*notebooks.BESIDE, notebooks.START):
            (folder / name).write_text("# beside")
        path = folder / "01_small.py"
        path.write_text("# %% [markdown]\n# # Small\n" + "".join(f"# %%\n{c}\n" for c in cells))
        monkeypatch.setattr(notebooks, "TUTORIALS", folder)
        return path
    return make


def test_notebooks_are_the_lessons(tmp_path, capsys):
    assert main(["notebooks", "--out", str(tmp_path / "new")]) == 0
    assert "17 notebooks written" in capsys.readouterr().out
    for path in notebooks.lessons():
        target = tmp_path / "new" / f"{path.stem}.ipynb"
        notebook = nbformat.read(target, as_version=4)
        nbformat.validate(notebook)
        lines = path.read_text(encoding="utf-8").split("\n")
        assert len(notebook.cells) == sum(line.startswith("# %%") for line in lines)
        code = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
        want = [line for line in lines if line and not line.startswith("#")]
        assert [x for x in code.split("\n") if x and not x.startswith("#")] == want
        assert not any(cell.get("outputs") for cell in notebook.cells)
        assert json.loads(target.read_text("utf-8"))["metadata"]["kernelspec"]["name"] == "python3"
    for name in (*notebooks.BESIDE, notebooks.START):
        assert (tmp_path / "new" / name).exists()


def test_solutions_are_folded_behind_their_checks(tmp_path):
    path, = notebooks.notebooks(tmp_path / "with", notebooks.lessons(3))
    cells = nbformat.read(path, as_version=4).cells
    for before, cell in zip(cells, cells[1:]):
        exercise = notebooks.checked(before)
        if exercise:
            assert cell.source.startswith(
                f"<details><summary>Solution of E{exercise}</summary>\n\n**E{exercise}**")
            assert "def " in cell.source and "def check_" not in cell.source
    text = cells[-1].source
    assert text.index("1. ") < text.index("Answers to") < text.index("*Where this is used")


def test_tags_lead_to_what_they_say(tmp_path):
    """At the end of the same notebook, for it may be alone; those beside a formula are no links."""
    path, = notebooks.notebooks(tmp_path / "new", notebooks.lessons(3))
    text = "\n".join(cell.source for cell in nbformat.read(path, as_version=4).cells
                     if cell.cell_type == "markdown")
    links = set(re.findall(r"\[(.*?)\]\(#\1\)", text))
    beside = set(", ".join(re.findall(r"\\tag{(.*?)}", text)).split(", "))
    assert {"K.12", "K.17", "V26"} < beside and links
    assert links | beside == set(re.findall("^### (.*)$", text, re.M))
    assert "### K.12\n\n$W_{e} = \\Psi^{\\top} H_{r}$,  $W_{r} = \\Phi^{\\top} H_{e}$. *der" in text


def test_students_get_no_answers_and_their_checks_work(tmp_path, monkeypatch, capsys):
    """Beside an installed package: there the checks are those of the folder."""
    out, all_answers = tmp_path / "handout", {}
    assert main(["notebooks", "--no-solutions", "--out", str(out)]) == 0
    for path in out.glob("*.ipynb"):
        assert "<details>" not in path.read_text(encoding="utf-8")
    for path in sorted(notebooks.TUTORIALS.glob("solutions/*.py")):
        scope, text = runpy.run_path(str(path)), (out / "solutions" / path.name).read_text("utf-8")
        assert "**E" not in text and "questions" not in text
        for answer, *_ in scope["ANSWERS"].values():
            assert f"def {answer.__name__}(" not in text
        all_answers |= scope["ANSWERS"]
    monkeypatch.setattr(exercises, "TUTORIALS", tmp_path / "none")
    monkeypatch.chdir(out)
    assert exercises.wanted().keys() == all_answers.keys()
    capsys.readouterr()
    for exercise, (answer, wrong, *_) in all_answers.items():
        exercises.check(exercise, answer)
        exercises.check(exercise, wrong)
    said = capsys.readouterr().out.splitlines()
    assert said[::2] == [f"E{exercise}  right" for exercise in all_answers]
    assert not any(line.endswith("  right") for line in said[1::2])


def test_nothing_is_overwritten(tmp_path, lesson, capsys):
    lesson("x = 1")
    out = tmp_path / "new"
    assert main(["notebooks", "--out", str(out)]) == 0
    mine = out / "01_small.ipynb"
    mine.write_text("my answers")
    assert main(["notebooks", "--out", str(out)]) == 2
    assert "01_small.ipynb is already there" in capsys.readouterr().err
    assert mine.read_text() == "my answers"


def test_nothing_is_written_through_a_link_to_nothing(tmp_path, lesson, capsys):
    lesson("x = 1")
    (tmp_path / "out").symlink_to(tmp_path / "nowhere")
    assert main(["notebooks", "--out", str(tmp_path / "out")]) == 2
    assert "is a link to nothing" in capsys.readouterr().err
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "01_small.ipynb").symlink_to(tmp_path / "nowhere")
    assert main(["notebooks", "--out", str(tmp_path / "new")]) == 2
    assert "01_small.ipynb is already there" in capsys.readouterr().err
    assert not (tmp_path / "nowhere").exists() and not (tmp_path / "new" / "vowels.py").exists()


@pytest.mark.parametrize("page", [
    "<p>made by the ksvd_ref book, I think</p>", "<meta name=generator content=x> ksvd_ref book"])
def test_a_page_that_mentions_the_program_is_no_earlier_book(tmp_path, capsys, page):
    (tmp_path / "index.html").write_text(page)
    assert main(["book", "--out", str(tmp_path)]) == 2
    assert "holds something else" in capsys.readouterr().err
    assert (tmp_path / "index.html").read_text() == page
    (tmp_path / "index.html").write_bytes(b"\xff\xfe")
    assert main(["book", "--out", str(tmp_path)]) == 2


@pytest.mark.parametrize("number, message", [(0, "from 1 to 15"), (16, "from 1 to 15")])
def test_no_such_lesson(number, message):
    with pytest.raises(ValueError, match=message):
        notebooks.lessons(number)


def test_only_from_a_clone(tmp_path, monkeypatch):
    monkeypatch.setattr(notebooks, "TUTORIALS", tmp_path)
    with pytest.raises(ValueError, match="a clone of the repository expected"):
        notebooks.lessons()


def test_outputs_and_progress(tmp_path, lesson):
    """A kernel of its own in the folder of the notebook, where its files are; SVG figures."""
    lesson("print(open('vowels.py').read())",
           "from matplotlib.pyplot import figure, show\nfigure(figsize=(7, 2)).gca()\nshow()")
    path, = notebooks.notebooks(tmp_path / "new")
    seen = []
    notebook = notebooks.execute(path, lambda n, of: seen.append((n, of)))
    assert seen == [(1, 3), (2, 3), (3, 3)]
    assert notebook.cells[1].outputs[0].text == "# beside\n"
    svg = notebook.cells[2].outputs[-1].data["image/svg+xml"]
    assert 'width="504pt" height="144pt"' in svg and "<dc:date>" not in svg     # 7 in are 504 pt


def test_a_failing_cell_is_named(tmp_path, lesson):
    lesson("x = 1", "assert x == 2, 'x is one'")
    path, = notebooks.notebooks(tmp_path / "new")
    with pytest.raises(notebooks.LessonError, match=r"01_small, cell 3 .*AssertionError: x is one"):
        notebooks.execute(path)


@pytest.mark.skipif(os.name != "posix", reason="signals to one process are of POSIX")
def test_ctrl_c(tmp_path):
    """While a lesson runs: one line, status 130, and no kernel is left."""
    path = tmp_path / "slow.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(
        "import os, time\nwith open('pid.new', 'w') as file:\n    file.write(str(os.getpid()))\n"
        "os.replace('pid.new', 'pid')\n"
        "while True:\n    time.sleep(1)")]), path)
    code = "import pathlib, signal, sys\n" \
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n" \
        "from ksvd_ref.command import main as m\nfrom ksvd_ref.course import book, notebooks\n" \
        f"book.build = lambda *a: notebooks.execute(pathlib.Path({str(path)!r}))\n" \
        "sys.exit(m.main(['book']))"
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True,
                               cwd=tmp_path)
    while not (tmp_path / "pid").exists() and process.poll() is None:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    err = process.communicate(timeout=30)[1]
    assert process.returncode == 130 and err.endswith("ksvd-ref: interrupted\n")
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_a_kernel_that_dies_is_named(tmp_path, lesson):
    lesson("import os; os._exit(1)")
    path, = notebooks.notebooks(tmp_path / "new")
    with pytest.raises(notebooks.LessonError, match="01_small"):
        notebooks.execute(path)


@pytest.mark.parametrize("ran, missing", [
    (("-c", f"import sys, ksvd_ref.command.main as m; sys.modules[{name!r}] = None\n"
            "sys.exit(m.main(['book', '--out', 'out']))"), name)
    for name in ("jupytext", "nbclient", "ipykernel", "latex2mathml")], indirect=["ran"])
def test_a_missing_library_is_named(ran, missing):
    _, status, _, err = ran
    assert status == 2
    assert missing in err and "pip install -e '.[book]'" in err and err.count("\n") == 1
