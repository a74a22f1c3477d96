"""The page of findings runs, each finding shows what it says, and it fails if that is not so."""
import ast
import re
import runpy
from pathlib import Path

import pytest

from ksvd_ref import attention, primal

PAGE = Path(__file__).parents[1] / "tutorials" / "findings.py"
TEXT = PAGE.read_text()
FINDINGS = re.split(r"^# ## (?=F\d+\. )", TEXT.split("# ## Rows of the ledger")[0], flags=re.M)[1:]


def run():
    return runpy.run_path(str(PAGE), run_name="__main__")


def test_it_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)                     # from anywhere, with warnings as errors
    run()
    assert capsys.readouterr().out.count("\n") >= len(FINDINGS) and not list(tmp_path.iterdir())


def test_the_frame():
    assert TEXT.startswith("# %% [markdown]\n# # Findings: ") and len(FINDINGS) == 15
    assert [int(part[1:].split(".")[0]) for part in FINDINGS] == list(range(1, 16))
    titles = "".join(part.splitlines()[0] for part in FINDINGS)
    assert {"V5", "V6", "V8", "V15", "V19", "V23", "V28", "V30"} <= set(
        re.findall(r"\bV\d+\b", titles))
    assert TEXT.count("plt.show()") <= 3


@pytest.mark.parametrize("part", FINDINGS, ids=lambda part: part.split(".")[0])
def test_three_parts(part):
    """What was stated, one cell of code that asserts and prints, what remains true and where."""
    stated, code, remains = re.split(r"^# %%.*\n", part, flags=re.M)
    assert "# **Stated.** " in stated and "**What remains true.** " in remains
    assert re.search(r"Lessons?\s+(# )?\d\d", remains) or "lesson 02" in remains
    nodes = list(ast.walk(ast.parse(code)))
    assert any(isinstance(node, ast.Assert) for node in nodes)
    assert any(isinstance(node, ast.Name) and node.id == "print" for node in nodes)


def charged_the_other_way(W_e, W_r, *rest, objective=primal.objective):
    return objective(W_e, -W_r, *rest)


def summed_as_in_the_paper(scores, weights, *, mask=None):
    return attention.paper_loss(scores, weights, mask=mask).mean(axis=-1)


@pytest.mark.parametrize("module, name, wrong", [
    (primal, "objective", charged_the_other_way),
    (attention, "published_loss", summed_as_in_the_paper),
], ids=["sign-of-the-trace", "paper-for-code"])
def test_it_fails_when_what_it_shows_is_not_so(monkeypatch, module, name, wrong):
    monkeypatch.setattr(module, name, wrong)
    with pytest.raises(AssertionError):
        run()
