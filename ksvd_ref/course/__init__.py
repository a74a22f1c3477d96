"""The course: data, figures, the Transformer, the index, exercises, notebooks and pages.

    transformer  training   the small Transformer of the lessons, and the loop that trains it
    datasets     plots      the bundled data; the figures
    index                   the equations: what each says, whence, its code, lesson and test
    exercises    marking    the checks of the lessons, run on solutions; on a student's file
    notebooks               the lessons as notebooks
    book         typeset    the lessons as pages; how prose, formulas and code are set
    formulas                the formulas of plain text, as LaTeX
"""
import importlib

MODULES = ["transformer", "training", "datasets", "plots", "index", "exercises", "marking",
           "notebooks", "book", "typeset", "formulas"]
__all__ = MODULES


def __getattr__(name):      # each loads when it is named: Matplotlib and tqdm may be missing
    if name in MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
