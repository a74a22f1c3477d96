"""The course from a shell: its pages, its notebooks, and the marks of a student or a class.

No equation: it runs the course.
"""
import csv
import os
import sys
import textwrap

from .. import course

KINDS = ".py", ".ipynb"


def book(options):
    """The lessons as a static site."""
    try:
        start = course.book.build(options.out, options.lesson, options.solutions, options.quick)
        print(f"start page: {start}")
    except course.notebooks.LessonError as error:
        print(f"ksvd-ref: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    return 0


def notebooks(options):
    """The lessons as notebooks."""
    written = course.notebooks.notebooks(options.out, answers=options.solutions)
    print(f"{len(written)} notebooks written to {options.out}, with the files that they read; "
          f"begin with {course.notebooks.START}, then {written[0].name}")
    return 0


def check(options):
    """The reader's answers to the exercises: a table for each file, or one row.

    Status 0: all points; 1: not all; 2: a file cannot be read, whatever the others have.
    """
    wanted = course.exercises.wanted(options.lesson)
    if not 0 < options.seconds < 1e5:
        raise ValueError("--seconds: a number above 0 and below 1e5 expected, got "
                         f"{options.seconds:g}")
    if options.feedback and options.feedback.exists() and not options.feedback.is_dir():
        raise ValueError(f"--feedback: a folder expected, {options.feedback} is none")
    files = [file for path in options.files for file in _inside(path)]
    if len(files) == 1 and _unfit(files[0]):
        raise ValueError(f"{_line(files[0])}: {_unfit(files[0])}")
    if options.feedback:
        options.feedback.mkdir(parents=True, exist_ok=True)
    if options.csv:
        _row("file", *(f"E{exercise}" for exercise in wanted), "points", "of", "reasons")
    return max([_marked(file, wanted, options) for file in files])


def _marked(file, wanted, options):
    """Mark one file and say so; the exit status that it asks for."""
    problem, status = _unfit(file), 2
    marks = dict.fromkeys(wanted, course.exercises.Mark(None, problem))
    if not problem:
        marks, problem = course.marking.marks(file, lesson=options.lesson, seconds=options.seconds)
        status = int(any(mark.points != 1 for mark in marks.values()))
    points = sum(mark.points or 0 for mark in marks.values())
    text = "\n".join((_line(file), "", *([problem] if problem else _table(marks, wanted)), "",
                      f"{points} of {len(marks)} points", ""))
    if options.csv:
        reasons = problem or "; ".join(f"E{exercise}: {mark.message}" for exercise, mark
                                       in marks.items() if mark.points != 1 and _told(mark))
        formula = str(file)[0] in "=+-@\t\r"        # to a spreadsheet
        _row(f"./{file}" if formula else file, *(mark.points for mark in marks.values()), points,
             len(marks), reasons)
        if problem:
            print(f"ksvd-ref: {_line(file)}: {problem}", file=sys.stderr)
    else:
        print(text)
    if options.feedback:
        parts = [part for part in file.parts if part not in (file.anchor, ".", "..")]
        (options.feedback / f"{'_'.join(parts)}.txt").write_text(text, "utf-8", "backslashreplace")
    sys.stdout.flush()
    return status


def _inside(path):
    """A file itself; of a folder all files that can be marked, deep inside too."""
    if not path.is_dir():
        return [path]
    found = sorted(file for file in path.rglob("*") if file.is_file() and not any(
        part[0] in "._" for part in file.relative_to(path).parts))
    fit = [file for file in found if file.suffix.lower() in KINDS]
    if len(fit) < len(found):
        names = ", ".join(_line(file) for file in found if file not in fit)
        print(f"ksvd-ref: neither .py nor .ipynb, not marked: {names[:300]}", file=sys.stderr)
    return fit or [path]


def _unfit(file):
    """Why a file cannot be marked, or ""."""
    if file.is_file() and file.suffix.lower() in KINDS:
        return "" if os.access(file, os.R_OK) else "a file that may be read expected"
    return "a file .py or .ipynb expected, found " + (
        "a folder without one" if file.is_dir() else "another kind" if file.exists() else
        "none of this name")


def _line(file):
    return course.exercises.one_line(file)          # a name may hold what steers a terminal


def _row(*cells):
    csv.writer(sys.stdout, lineterminator="\n").writerow(cells)


def _told(mark):
    """Whether there is more to say of an exercise than that it was not attempted."""
    return mark.points is not None or "looks like" in mark.message


def _table(marks, wanted):
    """A line for each exercise of the lessons attempted, one for all others."""
    lesson = lambda exercise: int(exercise.split(".")[0])
    tried = {lesson(exercise) for exercise, mark in marks.items() if _told(mark)}
    idle = sorted({lesson(exercise) for exercise in marks} - tried)
    width = max(len(wanted[exercise][1]) for exercise in marks)
    for exercise, (points, message) in marks.items():
        if lesson(exercise) in tried:
            start = f"E{exercise:6}{wanted[exercise][1]:{width}}  {points} ".replace("None", "-")
            yield textwrap.fill(message, 100, initial_indent=start + " ",
                                subsequent_indent=" " * len(start + " "))
    if idle:
        yield f"Nothing attempted in lesson{'s' * (len(idle) > 1)} {', '.join(map(str, idle))}."
