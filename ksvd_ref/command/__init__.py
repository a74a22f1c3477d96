"""The command line, ksvd-ref, and the reader's own files.

    main        the parser, errors, and the course from a shell
    verify      every equation on the reader's own matrix
    matrix      which matrix: arrays of his files, a kernel, what it will cost
    files       the reader's own arrays
    tables      frame       a table of text; which of it are names
    lessons     the course from a shell
"""
import importlib

MODULES = ["verify", "matrix", "files", "tables", "frame", "lessons"]
__all__ = MODULES
KERNELS = {"linear": (), "polynomial": ("degree", "gamma", "coef0"), "rbf": ("gamma",),
           "exponential": ("scale",), "cosine": (), "softmax": ("scale",), "sne": ("gamma",)}


def __getattr__(name):      # each loads when it is named: --help needs no NumPy
    if name in MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
