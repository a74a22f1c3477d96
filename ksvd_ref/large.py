"""Kernels and features too large for one decomposition: block Golub-Kahan, and blocks of rows.

K          (N, M)            kernel matrix, only multiplied
U, V, B                      orthonormal bases and the small matrix between them, K V = U B
T_phi, T_psi   (p, p)        triangles of all features seen so far (R of a QR decomposition)

golub_kahan is dual.solve for a few components of a large K; factor, merge and solve_factor are
primal.solve for features that do not fit in memory. What is refused: inputs.py.
"""
import warnings
from math import log10
from typing import Any, NamedTuple

import autograd.numpy as anp
import numpy as np

from .backend import like, namespace
from .dual import Dual
from .inputs import arrays, as_array, check_finite, integer, number
from .linalg import check_rank, one_sign, peaks, rank_rule, svd
from .primal import Primal
from .triangles import below, core, qr_root

BLOCKS = 100        # most blocks that golub_kahan builds before it gives up


@arrays(K="N M", tol=number(above=0), seed=integer(0))
def golub_kahan(K, rank, *, tol=1e-10, seed=0):
    """The leading components of a large K, by K V = U B,  Kᵀ U = V Bᵀ + a block (Eq. K.15).

    Each step multiplies a block by K and by K^T and adds what is new to the orthonormal bases U and
    V; from B = X Σ Yᵀ come H_e = U X and H_r = V Y (Golub, Luk and Overton 1981). About 7 steps
    where sigma falls fast, 30 to 40 on random numbers, each of 4 N M max(rank + 2, 8) operations,
    in place of the N M min(N, M) of `dual.solve`, which is faster below N = 300 for 5 components,
    below 600 for 20, and for more than a tenth of all.

    tol: |K^T h_e - sigma h_r| ≤ tol sigma_1 for each component (never below 10 eps); K h_r =
    sigma h_e holds to rounding. The error of a subspace is about that residual over the gap to the
    next sigma. Warns if BLOCKS blocks do not reach it. seed: of the first block.

    >>> import numpy as np
    >>> golub_kahan(np.diag([3.0, 2.0, 1.0]), 2).sigma
    array([3., 2.])
    """
    xp, (N, M) = namespace(K), K.shape
    if xp is anp:
        raise TypeError("golub_kahan cannot be differentiated: dual.solve can")
    s = check_rank(rank, min(N, M), f"K of shape {(N, M)}", optional=False)
    limits, top = xp.finfo(K.dtype), float(xp.max(xp.abs(K))) or 1.0
    eps = float(limits.eps)
    if not float(limits.smallest_normal) / eps < top < float(limits.max) * eps:
        return _scaled(K, top, s, tol, seed)            # products would over- or underflow
    tol = max(tol, 10.0 * eps)
    # One vector at a time finds a repeated sigma once and says it has converged: of six equal
    # diagonal blocks it returns sigma_7 as sigma_2 (tol = 1e-6), until rounding lets the copies in.
    # A block of s finds all s at once; two more make it faster, and 8 columns cost less than 7.
    b = min(max(s + 2, 8), N, M)
    H_e, sigma, H_r, residual = _steps(K if N >= M else K.T, s, b, tol, seed)
    if residual > tol:
        warnings.warn(f"golub_kahan stopped after {BLOCKS} blocks with a residual of "
                      f"{residual:.1e} sigma_1, {tol:.1e} was asked: ask for more components, a "
                      "larger tol, or use dual.solve", RuntimeWarning, stacklevel=3)
    H_e, H_r = (H_e, H_r) if N >= M else (H_r, H_e)
    return one_sign(Dual(H_e, sigma, H_r), by=H_e)


def _scaled(K, top, s, tol, seed):
    H_e, sigma, H_r = golub_kahan(K / top, s, tol=tol, seed=seed)
    return Dual(H_e, sigma * top, H_r)


def _steps(K, s, b, tol, seed):
    """U X, Sigma, V Y and the largest residual relative to sigma_1, for N >= M."""
    xp, rng = namespace(K), np.random.default_rng(seed)
    N, M = K.shape
    most = min(M, BLOCKS * b)
    # The vectors lie in rows, so that the first k of them are one piece of memory.
    Ut, Vt, B = (xp.zeros(shape, **like(K)) for shape in ((most, N), (most, M), (most, most)))
    new, k, check = xp.zeros((M, b), **like(K)), 0, 0
    while True:
        last, old, k = max(k - b, 0), k, min(k + b, most)
        Vt[old:k, :] = _beyond(Vt[:old, :], new[:, :k - old], rng).T
        KV = K @ Vt[old:k, :].T
        Ut[old:k, :] = _beyond(Ut[:old, :], KV, rng).T
        B[last:k, old:k] = Ut[last:k, :] @ KV               # upper bidiagonal, in blocks
        new = (Ut[old:k, :] @ K).T                          # K^T U
        if k < check and k < most:
            continue
        X, sigma, Y = svd(check_finite(B[:k, :k], "the largest singular value"))
        new = new - Vt[:k, :].T @ (Vt[:k, :] @ new)         # K^T U - V B^T, zero but in this block
        rest = new @ X[old:, :s] / (float(sigma[0]) or 1.0)                # K^T H_e - H_r Sigma
        residual = float(xp.max(xp.sqrt(xp.sum(rest * rest, axis=0)))) if k < M else 0.0
        if residual <= tol or k == most:
            return Ut[:k, :].T @ X[:, :s], sigma[:s], Vt[:k, :].T @ Y[:, :s], residual
        check = k + 0.5 * b * log10(residual / tol)         # a block gains two digits at most


def _beyond(Qt, A, rng):
    """Orthonormal columns that span A beyond the orthonormal rows of Qt."""
    xp = namespace(Qt, A)
    eye, limits = xp.eye(A.shape[1], **like(A)), xp.finfo(A.dtype)
    smallest = lambda T: float(xp.min(xp.sum(xp.abs(T) * eye, axis=1)))    # of the diagonal
    near = Qt[max(Qt.shape[0] - 2 * A.shape[1], 0):, :]     # on paper A meets these alone, ...
    A = A - near.T @ (near @ A)
    top = float(xp.max(xp.abs(A)))
    Q, T = xp.linalg.qr(A)
    # Where A has fewer directions than columns, QR would answer with columns that lie in Q: for
    # A = 0 with those of the identity. Random numbers at the level of rounding lead out of Q.
    if not smallest(T) > 100.0 * float(limits.eps) * top:
        noise = float(limits.eps) * max(top or 1.0, float(limits.smallest_normal))
        Q = xp.linalg.qr(A + noise * xp.asarray(rng.standard_normal(A.shape), **like(A)))[0]
    kept = 0.0
    while kept < 0.5:                                       # ... but what rounding adds grows
        Q, T = xp.linalg.qr(Q - Qt.T @ (Qt @ Q))
        kept = smallest(T)
    return Q


class Factor(NamedTuple):
    """All that the primal needs of N rows and M columns: their triangles."""

    T_phi: Any        # (p, p)   Phi^T Phi = T_phi^T T_phi
    T_psi: Any        # (p, p)   Psi^T Psi = T_psi^T T_psi
    N: int
    M: int


FACTOR = {"T_phi": "p p", "T_psi": "p p", "N": integer(0), "M": integer(0)}


def solve_chunks(chunks, rank=None):
    """Primal solution of features that do not fit in memory, block by block (Eq. K.39).

    chunks yields pairs (Phi, Psi) of blocks of rows, (n, p) and (m, p); the sides are independent,
    and either may be None. Each block shrinks to a triangle before the next is read, `factor`, and
    two triangles become one, `merge`. One route for all, QR: its error grows with cond = |Phi|
    |Psi| / sigma_s and not with cond^2, which a sum of Gram matrices could find out only when the
    rows are gone.

    The sign needs the largest entry of each column of E = Phi W_e, so a second look at the rows: a
    list, or what can be iterated again, gets it. A generator is spent by then, and the largest
    entry of each column of W_e is positive instead.

    >>> solve_chunks([([[2, 0]], [[1, 0], [0, 1]]), ([[0, 1]], None)]).sigma   # Phi = diag(2, 1)
    array([2., 1.])
    """
    total = None
    if not hasattr(chunks, "__iter__"):
        raise TypeError(f"chunks must yield pairs (Phi, Psi), got {type(chunks).__name__}")
    for n, chunk in enumerate(chunks):
        if not isinstance(chunk, (tuple, list)) or len(chunk) != 2:
            what = f"{len(chunk)} of them" if isinstance(chunk, (tuple, list)) else type(chunk)
            raise TypeError(f"each chunk must be a pair (Phi, Psi) of matrices, got {what}")
        block = factor(*chunk)
        if total is not None and block.T_phi.shape != total.T_phi.shape:
            raise ValueError(f"chunk {n} must have p = {total.T_phi.shape[0]} columns, as those "
                             f"before it, got {block.T_phi.shape[0]}")
        total = block if total is None else merge(total, block)
    if total is None:
        raise ValueError("chunks must yield at least one pair (Phi, Psi), got none")
    found = solve_factor(total, rank)
    again = () if found.sigma.shape[0] == 0 or iter(chunks) is chunks else chunks
    tops = [peaks(as_array(Phi, "Phi", 2) @ found.W_e)[0, :] for Phi, _ in again if Phi is not None]
    return one_sign(found, by=namespace(*tops).stack(tops)) if tops else found


@arrays(Phi="N p", Psi="M p")
def factor(Phi=None, Psi=None):
    """Triangles of one block of rows and columns, Φ = Q_φ T_φ, Ψ = Q_ψ T_ψ (Eq. K.39).

    Upper triangular with a diagonal ≥ 0, which makes them unique where the block has rank p. The
    triangle of a side that is None is zero.

    >>> factor([[3.0], [4.0]], None)
    Factor(T_phi=array([[5.]]), T_psi=array([[0.]]), N=2, M=0)
    """
    if Phi is None and Psi is None:
        raise ValueError("a block of rows Phi or of columns Psi expected, got None for both")
    T = [A if A is None else qr_root(A, name) for A, name in ((Phi, "Phi"), (Psi, "Psi"))]
    zero = [namespace(A).zeros_like(A) for A in T if A is not None][0]
    return Factor(*(zero if A is None else A for A in T),
                  *(0 if A is None else A.shape[0] for A in (Phi, Psi)))


@arrays(one=FACTOR, other=FACTOR)
def merge(one, other):
    """Triangles of two blocks, TᵀT = T₁ᵀT₁ + T₂ᵀT₂: that of one below the other (Eq. K.39).

    Associative and commutative, so blocks may be merged in any order, in pairs, or on several
    machines: map `factor`, reduce `merge`, then `solve_factor`.

    >>> merge(factor([[3.0]], None), factor([[4.0]], [[1.0]]))
    Factor(T_phi=array([[5.]]), T_psi=array([[1.]]), N=2, M=1)
    """
    T = [qr_root(below(A, B), name) for A, B, name in zip(one, other, ("Phi", "Psi"))]
    return Factor(*T, one[2] + other[2], one[3] + other[3])


@arrays(factor=FACTOR)
def solve_factor(factor, rank=None):
    """Primal solution from the triangles of all rows and columns, T_φ T_ψᵀ = U Σ Vᵀ (Eq. K.39).

    The largest entry of each column of W_e is positive: E = Phi W_e is not at hand.

    >>> solve_factor(factor([[3.0], [4.0]], [[2.0]]))                      # K = (6, 8)^T
    Primal(W_e=array([[2.]]), sigma=array([10.]), W_r=array([[5.]]))
    """
    T_phi, T_psi, N, M = factor
    if 0 in (N, M):
        raise ValueError(f"rows of both Phi and Psi expected, got {N} of Phi and {M} of Psi")
    kept = rank_rule(rank, N, M, T_phi.shape[1])
    W_e, sigma, W_r, norm = core(T_phi, T_psi, min(N, M, T_phi.shape[1]))
    s = kept(sigma, norm=norm)
    return one_sign(Primal(W_e[:, :s], sigma[:s], W_r[:, :s]), by=W_e[:, :s])
