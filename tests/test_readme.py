"""Every block of the README runs: Python as a doctest, each line of the shell here or in CI."""
import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from conftest import runs

from ksvd_ref.command import main

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.M | re.S)
LINES = [line.partition("#")[0].strip() for kind, text in BLOCKS if kind == "sh"
         for line in text.splitlines()]
COMMANDS = [line.removeprefix(".venv/bin/ksvd-ref ") for line in LINES
            if line.startswith(".venv/bin/ksvd-ref ")]


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """An empty folder with a reader's files under the names of the README."""
    rng = np.random.default_rng(0)
    for name, shape in (("FILE", (6, 9)), ("X.csv", (6, 3)), ("Z.csv", (8, 3))):
        np.savetxt(tmp_path / f"{name.partition('.')[0]}.csv", rng.standard_normal(shape),
                   delimiter=",")
    half = "def score_new_row(phi_new, H_r, Psi):\n    return H_r.T @ (Psi @ phi_new)\n"
    np.savez(tmp_path / "DUMP.npz", attn=rng.standard_normal((2, 4, 5, 5)), other=np.eye(2))
    (tmp_path / "class").mkdir()
    for name in ("mywork.py", "work_1.py", "class/a.py"):
        (tmp_path / name).write_text(half)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_there_is_no_other_block():
    assert {kind for kind, _ in BLOCKS} == {"sh", "python", "bibtex"}
    assert all(">>> " in text for kind, text in BLOCKS if kind == "python")     # a doctest
    assert len(COMMANDS) > 8


@pytest.mark.parametrize("words", [x for x in COMMANDS if x.split()[0] == "verify"])
def test_verify(words, desk, capsys):
    """Also the command below the picture, which draws it."""
    assert main.main(shlex.split(words.replace("FILE", "FILE.csv").replace("OUT", "out"))) == 0
    assert "--plot" not in words or (desk / "out.png").stat().st_size > 10_000


WORDS = shlex.split(re.search(r"as `ksvd-ref (verify [^`]*)`", README)[1])


@runs(("-c", f"""if True:
    import os, sys, ksvd_ref.command.main as m
    out = os.path.abspath({WORDS[-1]!r})
    os.chdir({str(ROOT)!r})
    sys.exit(m.main([*{WORDS[:-1]}, out]))"""))
def test_the_picture_is_what_the_command_draws(ran):
    folder, status, _, err = ran
    assert status == 0, err
    import matplotlib.image
    drawn, shown = (matplotlib.image.imread(path) for path in (
        folder / "migration.png", ROOT / "tutorials" / "migration.png"))
    assert drawn.shape == shown.shape                       # letters may move by a pixel between
    assert np.mean(np.abs(drawn - shown)) < 0.01            # versions of Matplotlib


@pytest.mark.parametrize("words", [x for x in COMMANDS if x.split()[0] in ("equations", "check")])
def test_index_and_check(words, desk, capsys):
    cell = {"cell_type": "code", "source": (desk / "mywork.py").read_text().splitlines(True)}
    (desk / "work_2.ipynb").write_text(json.dumps({"cells": [cell]}))
    status, out = main.main(shlex.split(words)), capsys.readouterr().out
    if words.startswith("equations"):
        assert status == 0 and "K.12  " in out and ("K.15  " in out) == (words == "equations")
    else:
        assert status == 1 and ("work_2.ipynb,1,,,1,3" in out if "--csv" in words
                                else "score_new_row        1  right" in out)


@pytest.mark.parametrize("words", [x for x in COMMANDS if x.split()[0] == "notebooks"])
def test_notebooks(words, desk):
    assert main.main(shlex.split(words)) == 0 and list(desk.glob("handout/01_*.ipynb"))


def test_book(site):
    """This takes a minute: done once, for all tests that ask for it."""
    assert "book" in COMMANDS and (site / "index.html").exists()


def test_the_rest_is_what_ci_runs():
    """The two commands are taken from the README by .ci/run; an extra that is named exists."""
    run = (ROOT / ".ci" / "run").read_text()
    setup = (ROOT / "setup.cfg").read_text()
    for line in LINES:
        if line and not line.startswith(".venv/bin/ksvd-ref "):
            install = re.fullmatch(r"(python3 -m venv .venv && )?\.venv/bin/pip install -e "
                                   r'"\.\[(\w+)\]"( && \.venv/bin/(.*))?', line)
            assert install and f"\n{install[2]} =" in setup
            assert not install[4] or f"&& .venv/bin/{install[4].split()[0]}" in run


def test_the_hours_are_those_of_the_table():
    minutes = [int(x) for x in re.findall(r"^\| \[\d\d .*?\) \| (\d+) \|", README, re.M)]
    said = "(\\d+) more for the exercises".replace(" ", r"\s(?:# )?")
    more = [int(re.search(said, path.read_text("utf-8"))[1])
            for path in sorted((ROOT / "tutorials").glob("[0-9]*.py"))]
    words = "zero one two three four five six seven eight nine ten eleven twelve thirteen".split()
    hours = [words[round(sum(x) / 60)] for x in (minutes, more)]
    assert "about {} hours, the exercises about {} more".format(*hours) in " ".join(README.split())


@pytest.mark.parametrize("ran, script", [
    ((str(ROOT / script), "--help"), script)
    for script in ("tests/benchmarks.py", "tests/gpu_check.py")], indirect=["ran"])
def test_other_scripts_named_here_answer(ran, script):
    _, status, out, _ = ran
    assert f"`python {script}" in README and status == 0 and out
