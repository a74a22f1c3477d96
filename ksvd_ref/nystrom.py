"""Asymmetric Nystroem: singular vectors of a large K from a few of its rows and columns.

K             (N, M)              kernel matrix, never formed
K_rows        (N, m)              all rows against the m column landmarks
K_landmarks   (n, m)              the n row landmarks against the m column landmarks
K_cols        (n, M)              the n row landmarks against all columns

Row and column landmarks are chosen apart: for a symmetric K with the same landmarks on both sides
it is the method of Williams and Seeger (NIPS 2000); asymmetric by Tao et al. (2023, 2024). A square
corner of landmarks drawn at random is nearly singular, and dividing by its small sigma can ruin
all: give a rank, or choose. Draw m columns, take twice as many rows at the `pivots` of these, then
m columns at the pivots of those rows: on ordinary kernels ten times the best error of rank m, or
less. What is refused: inputs.py.
"""
import warnings

import numpy as np

from .backend import like, namespace
from .dual import Dual
from .inputs import arrays, check_finite, integer
from .linalg import check_rank, numerical_rank, one_sign, svd

CORNER = {"K_rows": "N m", "K_landmarks": "n m", "K_cols": "n M"}


@arrays(**CORNER)
def solve(K_rows, K_landmarks, K_cols, rank=None, *, N, M):
    """Approximate singular vectors of K from landmarks, √(n/N) K_rows Ṽ Σ̃⁻¹ for H_e (Eq. K.37).

    With K_landmarks = Ũ Σ̃ Ṽᵀ also H_r = √(m/M) K_colsᵀ Ũ Σ̃⁻¹ and σ = σ̃ √(NM/(nm)): a singular
    vector of the corner is continued to all rows as K h_r = σ h_e continues it. The scale takes the
    landmarks for a fair sample; N and M are the shape of K, of which fewer rows and columns may be
    given. H_e and H_r are not orthonormal, sigma is an estimate, their product is that of
    `approximate`. rank: at most the numerical rank of K_landmarks, and that unless told, which
    leaves out dependent landmarks. Warns where no rank is given and small sigma are divided by.

    Source: derived; Tao et al. 2023; Tao et al. 2024.

    >>> K = np.outer([1.0, 2.0], [1.0, 3.0])                    # landmarks: row 0 and column 0
    >>> solve(K[:, :1], K[:1, :1], K[:1, :], N=2, M=2).sigma    # 1 sqrt(4 / 1); the true one: 7.07
    array([2.])
    """
    n, m = K_landmarks.shape
    N = integer(max(n, K_rows.shape[0]))(N, "N")
    M = integer(max(m, K_cols.shape[1]))(M, "M")
    U, sigma, V = _corner(K_landmarks, rank)
    return _scaled(K_rows @ V / sigma, sigma, K_cols.T @ U / sigma, n / N, m / M)


@arrays(Phi="N p", Psi="M p")
def solve_features(Phi, Psi, rows, columns, rank=None):
    """The same from features and indices of landmarks, K_rows Ṽ = Φ (Ψₘᵀ Ṽ) (Eq. K.37).

    Multiplied in this order K is never formed: the largest new matrices are the (N, s) and (M, s)
    results and the corner. rows and columns are integers that may repeat; see `landmarks`.

    >>> H_e, sigma, H_r = solve_features([[1.0], [2.0]], [[1.0], [3.0]], [0], [0])
    >>> H_e * sigma @ H_r.T
    array([[1., 3.],
           [2., 6.]])
    """
    Phi_n, Psi_m = _chosen(Phi, rows, "rows"), _chosen(Psi, columns, "columns")
    U, sigma, V = _corner(check_finite(Phi_n @ Psi_m.T, "the corner"), rank)
    return _scaled(Phi @ (Psi_m.T @ V) / sigma, sigma, Psi @ (Phi_n.T @ U) / sigma,
                   Phi_n.shape[0] / Phi.shape[0], Psi_m.shape[0] / Psi.shape[0])


@arrays(**CORNER)
def approximate(K_rows, K_landmarks, K_cols, rank=None):
    """K_rows K_landmarks⁺ K_cols, which is K if rank(K_landmarks) = rank(K) (Eq. K.37, claim V33).

    And only then. The pseudo-inverse leaves out σ ≤ σ₁ max(n, m) eps, or
    all but the `rank` largest; warns as `solve`.

    Source: derived; Tao et al. 2023; Tao et al. 2024.

    >>> approximate([[1.0, 1.0], [2.0, 2.0]], [[1.0, 1.0]], [[1.0, 3.0]])  # column 0 drawn twice
    array([[1., 3.],
           [2., 6.]])
    """
    U, sigma, V = _corner(K_landmarks, rank)
    return (K_rows @ V / sigma) * sigma @ (K_cols.T @ U / sigma).T         # 1 / sigma may overflow


def landmarks(N, n, *, seed):
    """Indices of n landmarks out of N, drawn without repetition, ascending.

    No equation: a draw of indices.

    >>> landmarks(3, 3, seed=0)
    [0, 1, 2]
    """
    N = integer(1)(N, "N")
    n, rng = integer(1, N)(n, "n"), np.random.default_rng(integer(0)(seed, "seed"))
    return sorted(rng.choice(N, size=n, replace=False).tolist())


@arrays(K_rows="N m", n=integer(1))
def pivots(K_rows, n):
    """Indices of n of the N rows, the pivots of an elimination of the m columns at hand.

    Each is the row in which the next column is largest once the rows before are taken out of it, so
    that the corner is far from singular; beyond m it starts anew with the rows that are left. No
    further entry of K is needed. Columns: pivots(K_cols.T, m).

    No equation: a choice of indices.

    >>> pivots([[1.0, 0.0], [2.0, 2.0], [0.0, 1.0]], 2)         # 2 in column 0, then 1 beside -1
    [1, 0]
    """
    xp, (N, m) = namespace(K_rows), K_rows.shape
    left, free, chosen = K_rows, xp.ones((N,), **like(K_rows)), []
    for c in range(integer(1, N)(n, "n")):
        left = K_rows * free[:, None] if c % m == 0 else left
        column = left[:, c % m]
        i = int(xp.argmax(xp.where(free > 0.0, xp.abs(column), -1.0)))
        if column[i] != 0.0:
            left = left - column[:, None] * (left[i, :] / column[i])[None, :]
        free[i], chosen = 0.0, [*chosen, i]
    return chosen


def _corner(K_landmarks, rank):
    """Singular vectors of the corner that may be divided by their sigma."""
    n, m = K_landmarks.shape
    rank = check_rank(rank, min(n, m), f"landmarks of shape {(n, m)}")
    U, sigma, V = svd(K_landmarks)
    r = numerical_rank(sigma, n, m)
    if rank is not None and rank > r:
        raise ValueError(f"the landmarks have numerical rank {r}, rank {rank} was asked, and sigma "
                         "is divided by: leave rank to None, or choose other landmarks")
    s = r if rank is None else rank
    if rank is None and s and sigma[s - 1] < 1e-3 * sigma[0]:
        warnings.warn(f"the result may be far off: it divides by sigma of the landmarks down to "
                      f"{float(sigma[s - 1] / sigma[0]):.0e} sigma_1. Take twice as many rows as "
                      "columns, both at nystrom.pivots, or a rank", stacklevel=4)
    return U[:, :s], sigma[:s], V[:, :s]


def _scaled(H_e, sigma, H_r, e, r):
    found = Dual(e ** 0.5 * H_e, sigma / (e * r) ** 0.5, r ** 0.5 * H_r)
    return one_sign(found, by=found.H_e)


def _chosen(A, indices, name):
    if not getattr(indices, "shape", (1,)) or not hasattr(indices, "__iter__"):
        raise TypeError(f"{name} must be a sequence of integers, got {indices!r}")
    chosen = [A[integer(0, A.shape[0] - 1)(i, f"each of {name}"), :] for i in indices]
    if not chosen:
        raise ValueError(f"{name} must not be empty: one landmark or more")
    return namespace(A).stack(chosen)
