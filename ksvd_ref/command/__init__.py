"""The command line, ksvd-ref, and the reader's own files.

    main        every equation on the reader's own matrix, and the course from a shell
    files       the reader's own arrays
"""
import importlib

MODULES = ["files"]
__all__ = MODULES


def __getattr__(name):      # files loads when it is named: --help needs no NumPy
    if name in MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
