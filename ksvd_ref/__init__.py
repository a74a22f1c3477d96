"""The asymmetric kernel SVD, derived in code: from the dual eigenproblem to the primal.

    backend   inputs    arrays of NumPy, autograd and CuPy in one source; what is refused
    linalg              SVD, eigh, softmax, distances with derivatives; rank, sign
    kernels   dual      K from X and Z;            K H_r = H_e Sigma,  K^T H_e = H_r Sigma
    features  primal    Phi, Psi, K = Phi Psi^T;   W_e, W_r without K, the objective J
    triangles           R with R^T R = Phi^T Phi, behind primal
    large     nystrom   both for large K and many rows: blocks, or a few rows and columns
    solution            one matrix, solved by both routes
    equations           every equation of the derivation as a residual on your own matrix
    attention           attention as a kernel smoother, and Primal-Attention
    course              the data, figures, exercises, notebooks and pages of the lessons
    command             the command line: every equation on the reader's own matrix

kernels and dual never see Phi and Psi, primal never sees K: that both agree is the subject.
"""
import importlib

__version__ = "0.1.0"
MODULES = ["backend", "inputs", "linalg", "kernels", "features", "dual", "triangles", "primal",
           "large", "nystrom", "solution", "equations"]
WINGS = ["attention", "course", "command"]
__all__ = MODULES + WINGS


def __getattr__(name):      # modules load when they are first named: --help needs no NumPy
    if name in __all__:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return sorted({*globals(), *__all__})
