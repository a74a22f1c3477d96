"""The asymmetric kernel SVD, derived in code: from the dual eigenproblem to the primal.

    backend, linalg     arrays of NumPy, autograd and CuPy in one source; SVD, eigh, rank, sign
    kernels   dual      K from X and Z;            K H_r = H_e Sigma,  K^T H_e = H_r Sigma
    features  primal    Phi, Psi, K = Phi Psi^T;   W_e, W_r without K, the objective J
    nystrom             both for a large K, from a few of its rows and columns
    equations           every equation of the derivation as a residual on your own matrix
    filters   positions who may see whom; a second kernel, of two positions
    smoother            attention = kernel x position x value x filter
    attention           Primal-Attention: scores e and r without an N x N matrix, the KSVD loss
    encoder   training  the small Transformer of the lessons, and the loop that trains it
    datasets  files     the bundled data; the reader's own
    plots               the figures; Matplotlib is loaded only when one is drawn
    index               the equations: what each says, whence, its code, lesson and test
    exercises           the checks of the lessons, run on solutions and on a student's file
    course    book      the lessons as notebooks, and as pages

kernels and dual never see Phi and Psi, primal never sees K: that both agree is the subject.
"""
import importlib

__version__ = "0.1.0"
__all__ = ["backend", "linalg", "kernels", "dual", "features", "primal", "nystrom", "equations",
           "filters", "positions", "smoother", "attention", "encoder", "training", "datasets",
           "files", "plots", "index", "exercises", "course", "book"]


def __getattr__(name):      # modules load when they are first named: --help needs no NumPy
    if name in __all__:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
