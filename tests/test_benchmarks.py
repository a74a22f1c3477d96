"""The benchmarks judge what they measure; the times themselves are judged by no test."""
import json
import os
import subprocess
import sys
from pathlib import Path

import benchmarks
import pytest


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


def test_one_job(tmp_path):
    """One job from the command line: table, date, machine, and the same as JSON."""
    done = subprocess.run(
        [sys.executable, benchmarks.__file__, "--quick", "--only", "opposed", "--json",
         str(tmp_path / "rows.json")], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": str(Path(benchmarks.__file__).parents[1])})
    found = json.loads((tmp_path / "rows.json").read_text())
    assert len(found["rows"]) == 8 and {"date", "numpy", "cores"} <= set(found["about"])
    assert done.stdout.count("\n| opposed features") == 8 and "one BLAS thread" in done.stdout
