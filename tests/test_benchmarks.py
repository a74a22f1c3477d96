"""The benchmarks judge what they measure; the times themselves are judged by no test."""
import json
from pathlib import Path

import benchmarks
import pytest
from conftest import runs


@pytest.mark.parametrize("measured, target, verdict", [
    (1.2, "<= 1.2", "reached"), (1.5, "<= 1.2", "missed by 25 %"), (24.8, ">= 20", "reached"),
    (15.0, ">= 20", "missed by 25 %"), (2.2, "~ 2", "reached"), (2.5, "~ 2", "missed by 25 %"),
    (0.8, "~ 1", "missed by 20 %"), (7.0, "", "")])
def test_verdict(measured, target, verdict):
    assert benchmarks.Row("job", measured, "unit", target, "").verdict == verdict


def test_committed_table():
    """Every line of benchmarks.md with a target says that it was reached, or by how much missed."""
    text = Path(benchmarks.__file__).with_suffix(".md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()
            if line.startswith("| ")][1:]
    assert len(rows) > 40 and all(len(row) == 6 for row in rows)
    for job, measured, unit, target, verdict, _ in rows:
        again = benchmarks.Row(job, float(measured), unit, target, "").verdict
        assert verdict.split(" by ")[0] == again.split(" by ")[0], job


@runs((benchmarks.__file__, *"--quick --only opposed --json rows.json".split()))
def test_one_job(ran):
    """One job from the command line: table, date, machine, and the same as JSON."""
    folder, status, out, err = ran
    assert status == 0, err
    found = json.loads((folder / "rows.json").read_text())
    assert len(found["rows"]) == 8 and {"date", "numpy", "cores"} <= set(found["about"])
    assert out.count("\n| opposed features") == 8 and "one BLAS thread" in out
