"""The index of the README is complete and true: a row per tag; code, test, lesson per row."""
import importlib
import inspect
import re
from pathlib import Path

import pytest

from ksvd_ref import equations

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
ROWS = re.findall(r"^\| ([KSV]?\.?\w+) \| (.*?) \| (`.*?`) \| `(\w+)` \| (.*?) \|$",
                  README.partition("## Equation index")[2], re.M)
TESTS = "".join(path.read_text() for path in (ROOT / "tests").glob("test_*.py"))
MODULES = ("linalg kernels dual features primal nystrom equations filters positions smoother "
           "attention encoder").split()


def tags_of(function):
    """Tags in the summary of a docstring: `(Eq. K.15)`, `(claim V23)`."""
    summary = " ".join((function.__doc__ or "").split("\n\n")[0].split())
    return re.findall(r"\((?:Eq\.|claim) ([KSV]?\.?\w+)", summary)


def tagged():
    """{tag: functions} of the whole package."""
    found = {}
    for name in MODULES:
        module = importlib.import_module(f"ksvd_ref.{name}")
        for function_name, function in inspect.getmembers(module, inspect.isfunction):
            if function.__module__ == module.__name__ and not function_name.startswith("_"):
                for tag in tags_of(function):
                    found.setdefault(tag, set()).add(f"{name}.{function_name}")
    return found


def test_the_rows_are_the_tags_of_the_package():
    assert {tag: set(re.findall(r"`([\w.]+)`", names)) for tag, _, names, _, _ in ROWS} == tagged()
    assert len(ROWS) == len({tag for tag, *_ in ROWS}) > 40


def test_statements_are_those_of_the_command():
    statements = {tag: statement for tag, statement, *_ in ROWS}
    for function in equations.EQUATIONS:
        tag, statement, _ = equations.describe(function)
        assert statements[tag] == statement.replace("|", "¦")


@pytest.mark.parametrize("tag, statement, names, test, lessons", ROWS, ids=[row[0] for row in ROWS])
def test_row(tag, statement, names, test, lessons):
    assert f"def {test}(" in TESTS
    numbers = lessons.split(", ")
    for number in numbers:                              # the lesson says the tag where it shows it
        text = next((ROOT / "tutorials").glob(f"{number}_*.py")).read_text()
        assert re.search(rf"(?<![\w.]){re.escape(tag)}(?!\w|\.\d)", text)


def test_every_tag_that_is_used_is_explained():
    known = set(re.findall(r"^\| ([KSVD]\.?\d+|EY) \|", README, re.M))
    for path in [*ROOT.glob("ksvd_ref/*.py"), *ROOT.glob("tutorials/**/*.py")]:
        used = set(re.findall(r"(?<![\w.\[\"'])([KS]\.\d+|[VD]\d+)(?!\w)", path.read_text()))
        assert used <= known, (path.name, used - known)


def test_every_lesson_is_in_the_reading_order():
    lessons = {path.name for path in (ROOT / "tutorials").glob("[0-9]*.py")}
    rows = re.findall(r"^\| \[.*?\]\(tutorials/(.*?)\) \| (\d+) \|", README, re.M)
    assert {name for name, _ in rows} == lessons
    for name, minutes in rows:
        assert f"{minutes} minutes" in (ROOT / "tutorials" / name).read_text()


def test_links_lead_somewhere():
    for target in re.findall(r"\]\((?!https?:)(.*?)\)", README):
        assert (ROOT / target).exists(), target
