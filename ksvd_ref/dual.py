"""Dual side: K H_r = H_e Sigma and K^T H_e = H_r Sigma (K.15), from the kernel matrix alone.

K          (N, M)            kernel matrix, K_ij = phi(x_i)^T psi(z_j); any real matrix
H_e, H_r   (N, s), (M, s)    dual variables: left and right singular vectors
sigma      (s,)              singular values, descending
E, R       (N, s), (M, s)    scores: E = K H_r = H_e Sigma, R = K^T H_e = H_r Sigma

Phi and Psi do not occur here (see primal.py), and nothing is centred (see kernels.center).
H_e^T H_e = I = H_r^T H_r is a normalisation that we add: stationarity leaves the scale free.
"""
import warnings
from typing import Any, NamedTuple

import autograd.numpy as anp
import numpy as np

from .backend import (as_matrix, as_solution, check_finite, check_integer, check_number, like,
                      namespace, silent)
from .linalg import check_rank, eigh, numerical_rank, signs, svd

BLOCKS = 100        # most blocks that solve_golub_kahan builds before it gives up


class Dual(NamedTuple):
    """Left and right singular vectors, as columns, and the singular values."""

    H_e: Any          # (N, s)
    sigma: Any        # (s,)   descending, >= 0
    H_r: Any          # (M, s)


def solve(K, rank=None):
    r"""Dual solution by the singular value decomposition (Eq. K.15).

    .. math:: K H_r = H_e \Sigma, \qquad K^\top H_e = H_r \Sigma, \qquad \Sigma = \Lambda^{-1}

    What the stationarity conditions of the primal problem leave once W_e and W_r are eliminated
    (Chen et al., NeurIPS 2023; Lanczos, 1958).

    Parameters
    ----------
    K : (N, M) array
        Kernel matrix: any real matrix.
    rank : int, optional
        Number of components, from 1 to min(N, M), zero singular values included. None keeps the
        numerical rank, sigma > sigma_1 max(N, M) eps; for the zero matrix that is 0.

    Returns
    -------
    Dual
        H_e (N, s), sigma (s,) descending, H_r (M, s). The largest entry of each column of H_e is
        positive, the first of those equal to sqrt(eps).

    Raises
    ------
    TypeError
        If `K` is not an array of real numbers.
    ValueError
        If `K` is not a matrix, is empty or is not finite, or `rank` is out of range.

    Notes
    -----
    autograd differentiates it. Where singular values repeat, the derivative is right for every
    loss in which the tied columns enter as a whole, through H_e H_e^T, H_r H_r^T, H_e H_r^T and
    symmetric functions of their sigma. No rule can serve the others: `linalg.svd` has the two-line
    example. Components at rounding level get no derivative.

    Examples
    --------
    >>> import numpy as np
    >>> H_e, sigma, H_r = solve(np.array([[0.0, 2.0], [-1.0, 0.0]]))
    >>> sigma
    array([2., 1.])
    >>> H_r                                          # the second pair: K (-1, 0) = 1 (0, 1)
    array([[ 0., -1.],
           [ 1.,  0.]])
    """
    K = as_matrix(K, "K")
    N, M = K.shape
    rank = check_rank(rank, min(N, M), f"K of shape {(N, M)}")
    H_e, sigma, H_r = svd(K)
    if not namespace(sigma).isfinite(sigma[0]):
        raise ValueError("the singular values of K overflow: scale K down")
    s = numerical_rank(sigma, N, M) if rank is None else rank
    return _signed(H_e[:, :s], sigma[:s], H_r[:, :s])


def solve_shifted(K, rank=None):
    r"""Dual solution by the eigenproblem of the shifted block matrix (Eq. K.16).

    .. math:: \begin{bmatrix} 0 & K \\ K^\top & 0 \end{bmatrix}
              \begin{bmatrix} h_e \\ h_r \end{bmatrix}
              = \sigma \begin{bmatrix} h_e \\ h_r \end{bmatrix}

    The two coupled equations as one symmetric eigenproblem (Lanczos, 1958; Suykens, 2016). Its
    eigenvalues are +sigma, -sigma and N + M - 2 rank(K) zeros. Kept as the literal transcription
    of the theory, to check `solve` with: it takes about three times as long and 20 times the
    memory of K, and its vectors lose orthogonality as eps sigma_1 / sigma_l, since +sigma_l and
    -sigma_l are neighbours. The values keep their accuracy.

    Parameters
    ----------
    K : (N, M) array
    rank : int, optional
        As in `solve`.

    Returns
    -------
    Dual
        As from `solve`.

    Raises
    ------
    TypeError, ValueError
        As `solve`.

    Examples
    --------
    >>> solve_shifted([[0.0, 2.0], [-1.0, 0.0]]).sigma
    array([2., 1.])
    """
    K = as_matrix(K, "K")
    xp = namespace(K)
    N, M = K.shape
    rank = check_rank(rank, min(N, M), f"K of shape {(N, M)}")
    sigma, H = eigh(shifted_matrix(K))
    sigma, H = sigma[::-1][:min(N, M)], H[:, ::-1]              # descending: +sigma, 0, -sigma
    r = numerical_rank(sigma, N + M, N + M)
    s = r if rank is None else rank
    # A unit eigenvector of sigma > 0 has two halves of squared norm 1/2, hence the root of 2. Those
    # of 0 split in any way, 0.989 : 0.011 for one, so a basis of each complement replaces them.
    H_e = _complete(2.0 ** 0.5 * H[:N, :min(r, s)], s)
    H_r = _complete(2.0 ** 0.5 * H[N:, :min(r, s)], s)
    return _signed(H_e, xp.maximum(sigma[:s], 0.0), H_r)


def solve_golub_kahan(K, rank, *, tol=1e-10, seed=0):
    r"""The leading components of a large K, by block Golub-Kahan bidiagonalisation (Eq. K.15).

    .. math:: K V = U B, \qquad K^\top U = V B^\top + \text{one more block}, \qquad
              B = X \Sigma Y^\top, \qquad H_e = U X, \quad H_r = V Y

    Each step multiplies a block by K and by K^T and adds what is new in the products to the
    orthonormal bases U and V (Golub and Kahan, 1965). The leading singular values of the small B
    become those of K. K is only multiplied: 5 to 20 steps of 4 N M (rank + 2) operations, in place
    of the N M min(N, M) of `solve`.

    Parameters
    ----------
    K : (N, M) array
    rank : int
        Number of components, from 1 to min(N, M), zero singular values included.
    tol : float
        > 0. Each component must satisfy |K^T h_e - sigma h_r| ≤ tol sigma_1 (never below rounding,
        10 eps); K h_r = sigma h_e holds to rounding anyway.
    seed : int
        ≥ 0, of the first block, drawn on the host with numpy.random.default_rng.

    Returns
    -------
    Dual
        As from `solve`.

    Warns
    -----
    RuntimeWarning
        If 100 blocks do not reach `tol`: the message says what was reached. When the bases fill the
        whole space, min(N, M) columns, the answer is exact.

    Raises
    ------
    TypeError
        If `K` is not an array of real numbers, or is being differentiated: `solve` can be.
    ValueError
        If `K` is not a real, finite matrix, its singular values overflow, or `rank`, `tol` or
        `seed` is out of range.

    Notes
    -----
    The error of a subspace is about the residual divided by the gap between its sigma and the next,
    that of a sigma much smaller. `solve` is faster below N = 300 for 5 components, for 20 below 500
    to 600, and wherever more than a tenth of all are wanted.

    Examples
    --------
    >>> import numpy as np
    >>> solve_golub_kahan(np.diag([3.0, 2.0, 1.0]), 2).sigma
    array([3., 2.])
    """
    K = as_matrix(K, "K")
    N, M = K.shape
    if namespace(K) is anp:
        raise TypeError("solve_golub_kahan cannot be differentiated: dual.solve can")
    s = check_rank(rank, min(N, M), f"K of shape {(N, M)}", optional=False)
    tol = max(check_number(tol, "tol", above=0.0), 10.0 * float(namespace(K).finfo(K.dtype).eps))
    # One vector at a time finds a repeated sigma once and says it has converged: of six equal
    # diagonal blocks it returns sigma_7 as sigma_2 (tol = 1e-6), until rounding lets the copies in.
    # A block of s finds all s at once; two more make it faster.
    b = min(s + 2, N, M)
    with silent():
        H_e, sigma, H_r, residual = _golub_kahan(K if N >= M else K.T, s, b, tol, seed)
    check_finite(sigma, "the largest singular value")
    if residual > tol:
        warnings.warn(f"solve_golub_kahan stopped after {BLOCKS} blocks with a residual of "
                      f"{residual:.1e} sigma_1, {tol:.1e} was asked: ask for more components, a "
                      "larger tol, or use dual.solve", RuntimeWarning, stacklevel=2)
    return _signed(H_e, sigma, H_r) if N >= M else _signed(H_r, sigma, H_e)


def _golub_kahan(K, s, b, tol, seed):
    """U X, Sigma, V Y and the largest residual relative to sigma_1, for N >= M."""
    xp, rng = namespace(K), np.random.default_rng(check_integer(seed, "seed", 0))
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
        R = new @ X[old:, :s] / (float(sigma[0]) or 1.0)    # K^T H_e - H_r Sigma
        residual = float(xp.max(xp.sqrt(xp.sum(R * R, axis=0)))) if k < M else 0.0
        if residual <= tol or k == most:
            return Ut[:k, :].T @ X[:, :s], sigma[:s], Vt[:k, :].T @ Y[:, :s], residual
        check = 1.2 * k                                     # the SVD of B is not free


def _beyond(Qt, A, rng):
    """Orthonormal columns that span A beyond the orthonormal rows of Qt."""
    xp = namespace(Qt, A)
    # Where A has fewer directions than columns, QR would answer with columns that lie in Q: for
    # A = 0 with those of the identity. Random numbers at the level of rounding lead out of Q.
    limits = xp.finfo(A.dtype)                              # noise of 0 would be the same again
    noise = float(limits.eps) * max(float(xp.max(xp.abs(A))) or 1.0, float(limits.smallest_normal))
    A = A + noise * xp.asarray(rng.standard_normal(A.shape), **like(A))
    near = Qt[max(Qt.shape[0] - 2 * A.shape[1], 0):, :]     # on paper A meets these alone, ...
    A, kept = xp.linalg.qr(A - near.T @ (near @ A))[0], 0.0
    eye = xp.eye(A.shape[1], **like(A))
    while kept < 0.5:                                       # ... but what rounding adds grows
        A, R = xp.linalg.qr(A - Qt.T @ (Qt @ A))
        kept = float(xp.min(xp.sum(xp.abs(R) * eye, axis=1)))
    return A


def _complete(H, s):
    xp = namespace(H)
    missing = s - H.shape[1]
    if missing == 0:
        return H
    outside = xp.eye(H.shape[0], **like(H)) - H @ H.T           # projector: eigenvalues 0 and 1
    extra = eigh(outside)[1][:, -missing:]
    return xp.stack([A[:, l] for A in (H, extra) for l in range(A.shape[1])], axis=1)


def _signed(H_e, sigma, H_r):
    if H_e.shape[1] == 0:
        return Dual(H_e, sigma, H_r)
    flip = signs(H_e)
    return Dual(H_e * flip, sigma, H_r * flip)                  # both, or K H_r = H_e Sigma breaks


def shifted_matrix(K):
    r"""Symmetric block matrix of the shifted eigenproblem (Eq. K.16).

    .. math:: S = \begin{bmatrix} 0 & K \\ K^\top & 0 \end{bmatrix}

    Parameters
    ----------
    K : (N, M) array

    Returns
    -------
    (N + M, N + M) array

    Raises
    ------
    TypeError, ValueError
        As `solve`.

    Examples
    --------
    >>> shifted_matrix([[2.0, 3.0]])
    array([[0., 2., 3.],
           [2., 0., 0.],
           [3., 0., 0.]])
    """
    K = as_matrix(K, "K")
    xp = namespace(K)
    N, M = K.shape
    eye = xp.eye(N + M, **like(K))
    corner = eye[:, :N] @ K @ eye[N:, :]            # K at the upper right, (N + M, N + M)
    return corner + corner.T


def e_scores(K_new, dual):
    r"""Left scores of rows from the dual side (Eq. K.20).

    .. math:: e(x) = \sum_j h_{r,j}\, \kappa(x, z_j), \qquad E = K H_r

    The training rows themselves have E = H_e Sigma (K.21).

    Source: Chen et al. 2023, Remark 3.3.

    Parameters
    ----------
    K_new : (n, M) array
        κ(x, z_j) of the new rows x against the training columns.
    dual : Dual
        H_e (N, s), sigma (s,), H_r (M, s).

    Returns
    -------
    (n, s) array

    Raises
    ------
    TypeError, ValueError
        If `K_new` is not a real, finite matrix with M columns.

    Examples
    --------
    >>> import numpy as np
    >>> e_scores([[2.0, 0.0]], Dual(np.eye(2), np.array([2.0, 1.0]), np.eye(2)))
    array([[2., 0.]])
    """
    _, _, H_r = as_solution(dual, Dual._fields)
    K_new = as_matrix(K_new, "K_new")
    namespace(K_new, H_r)
    if K_new.shape[1] != H_r.shape[0]:
        raise ValueError(f"K_new must have the {H_r.shape[0]} columns of the training matrix, "
                         f"got shape {tuple(K_new.shape)}")
    return check_finite(K_new @ H_r, "the score matrix")


def r_scores(K_new, dual):
    r"""Right scores of columns from the dual side (Eq. K.20).

    .. math:: r(z) = \sum_i h_{e,i}\, \kappa(x_i, z), \qquad R = K^\top H_e

    The training columns themselves have R = H_r Sigma (K.21).

    Source: Chen et al. 2023, Remark 3.3.

    Parameters
    ----------
    K_new : (N, n) array
        κ(x_i, z) of the training rows against the new columns z.
    dual : Dual
        H_e (N, s), sigma (s,), H_r (M, s).

    Returns
    -------
    (n, s) array

    Raises
    ------
    TypeError, ValueError
        If `K_new` is not a real, finite matrix with N rows.

    Examples
    --------
    >>> import numpy as np
    >>> r_scores([[2.0], [0.0]], Dual(np.eye(2), np.array([2.0, 1.0]), np.eye(2)))
    array([[2., 0.]])
    """
    H_e, _, _ = as_solution(dual, Dual._fields)
    K_new = as_matrix(K_new, "K_new")
    namespace(K_new, H_e)
    if K_new.shape[0] != H_e.shape[0]:
        raise ValueError(f"K_new must have the {H_e.shape[0]} rows of the training matrix, "
                         f"got shape {tuple(K_new.shape)}")
    return check_finite(K_new.T @ H_e, "the score matrix")
