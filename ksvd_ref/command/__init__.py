"""The command line, ksvd-ref, and the reader's own files.

    main        the parser, errors, and the course from a shell
    verify      every equation on the reader's own matrix
    files       the reader's own arrays
"""
import importlib

MODULES = ["verify", "files"]
__all__ = MODULES
KERNELS = {"linear": (), "polynomial": ("degree", "gamma", "coef0"), "rbf": ("gamma",),
           "exponential": ("scale",), "cosine": (), "softmax": ("scale",), "sne": ("gamma",)}


def __getattr__(name):      # each loads when it is named: --help needs no NumPy
    if name in MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
