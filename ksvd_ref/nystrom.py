"""Asymmetric Nystroem: singular vectors of a large K from a few of its rows and columns.

K             (N, M)              kernel matrix, never formed
K_rows        (N, m)              all rows against the m column landmarks
K_landmarks   (n, m)              the n row landmarks against the m column landmarks
K_cols        (n, M)              the n row landmarks against all columns

Row and column landmarks are chosen apart: for a symmetric K with the same landmarks on both sides
it is the method of Williams and Seeger (NIPS 2000).
"""
import numpy as np

from .backend import as_matrix, as_pair, check_finite, check_integer, namespace, silent
from .dual import Dual
from .linalg import check_rank, numerical_rank, signs, svd


def solve(K_rows, K_landmarks, K_cols, rank=None, *, N, M):
    r"""Approximate singular vectors of K from landmarks, √(n/N) K_rows Ṽ Σ̃⁻¹ for H_e (Eq. K.37).

    .. math:: K_{nm} = \tilde U \tilde\Sigma \tilde V^\top, \qquad
              \sigma = \tilde\sigma \sqrt{\tfrac{NM}{nm}}, \qquad
              H_e = \sqrt{\tfrac nN}\, K_{N,m} \tilde V \tilde\Sigma^{-1}, \qquad
              H_r = \sqrt{\tfrac mM}\, K_{n,M}^\top \tilde U \tilde\Sigma^{-1}

    A singular vector of the n x m corner is continued to all rows as K h_r = sigma h_e continues
    it. The scale takes the landmarks for a fair sample: mean squares over them and over all rows
    agree.

    Source: derived.

    Parameters
    ----------
    K_rows : (N, m) array
        κ of the rows against the column landmarks: all N of them, or those that are wanted.
    K_landmarks : (n, m) array
    K_cols : (n, M) array
        κ of the row landmarks against the columns, all M or those that are wanted.
    rank : int, optional
        Number of components, at most the numerical rank of `K_landmarks`, and that unless told.
    N, M : int
        Shape of K, for the scale: at least n and m.

    Returns
    -------
    Dual
        H_e (N, s) and H_r (M, s), not orthonormal; sigma (s,) descending, an estimate. Their
        product is exact where that of `approximate` is, whatever the scale. The largest entry of
        each column of H_e is positive.

    Raises
    ------
    TypeError
        If an argument is not an array of real numbers, or the arrays belong to different libraries.
    ValueError
        If an argument is not a real, finite matrix, the shapes do not fit, N or M is smaller than
        the number of landmarks, `rank` exceeds the numerical rank (it divides by sigma), or a
        result overflows.

    Notes
    -----
    Duplicated or dependent landmarks are harmless: directions with sigma ≤ sigma_1 max(n, m) eps in
    `K_landmarks` are left out, which makes it the pseudo-inverse with that cut-off.

    Examples
    --------
    >>> import numpy as np
    >>> K = np.outer([1.0, 2.0], [1.0, 3.0])                    # landmarks: row 0 and column 0
    >>> H_e, sigma, H_r = solve(K[:, :1], K[:1, :1], K[:1, :], N=2, M=2)
    >>> sigma                                                   # 1 sqrt(4 / 1); the true one: 7.07
    array([2.])
    >>> H_e * sigma @ H_r.T
    array([[1., 3.],
           [2., 6.]])
    """
    K_rows, K_landmarks, K_cols = _checked(K_rows, K_landmarks, K_cols)
    n, m = K_landmarks.shape
    N, M = check_integer(N, "N", n), check_integer(M, "M", m)
    return _scaled(*_continued(K_rows, K_landmarks, K_cols, rank), n / N, m / M)


def solve_features(Phi, Psi, rows, columns, rank=None):
    r"""The same from features and the indices of the landmarks; K is never formed (Eq. K.37).

    .. math:: K_{N,m} \tilde V = \Phi\, (\Psi_m^\top \tilde V), \qquad
              K_{n,M}^\top \tilde U = \Psi\, (\Phi_n^\top \tilde U)

    Multiplied in this order the largest new matrices are the (N, s) and (M, s) results and the
    n x m corner.

    Parameters
    ----------
    Phi : (N, p) array
    Psi : (M, p) array
    rows : sequence of int
        Indices of the row landmarks, from 0 to N - 1; they may repeat. See `landmarks`.
    columns : sequence of int
        Those of the column landmarks.
    rank : int, optional
        As in `solve`.

    Returns
    -------
    Dual
        As from `solve`.

    Raises
    ------
    TypeError, ValueError
        If an argument is not a real, finite matrix, the numbers of columns differ, an index is out
        of range, `rank` exceeds the numerical rank, or a product overflows.

    Examples
    --------
    >>> Phi, Psi = [[1.0], [2.0]], [[1.0], [3.0]]
    >>> H_e, sigma, H_r = solve_features(Phi, Psi, [0], [0])
    >>> H_e * sigma @ H_r.T
    array([[1., 3.],
           [2., 6.]])
    """
    Phi, Psi = as_pair(Phi, Psi, ("Phi", "Psi"))
    namespace(Phi, Psi)
    Phi_n, Psi_m = _chosen(Phi, rows, "rows"), _chosen(Psi, columns, "columns")
    with silent():
        U, sigma, V = _corner(check_finite(Phi_n @ Psi_m.T), rank)
        H_e, H_r = Phi @ (Psi_m.T @ V) / sigma, Psi @ (Phi_n.T @ U) / sigma
    return _scaled(H_e, sigma, H_r, Phi_n.shape[0] / Phi.shape[0], Psi_m.shape[0] / Psi.shape[0])


def approximate(K_rows, K_landmarks, K_cols):
    r"""The approximation K_rows K_landmarks⁺ K_cols, exact at the rank of K (Eq. K.37, claim V33).

    .. math:: \hat K = K_{N,m}\, K_{nm}^+\, K_{n,M}

    Source: derived.

    Parameters
    ----------
    K_rows : (N, m) array
    K_landmarks : (n, m) array
    K_cols : (n, M) array

    Returns
    -------
    (N, M) array
        K wherever rank(K_landmarks) = rank(K). The pseudo-inverse leaves out sigma ≤ sigma_1
        max(n, m) eps.

    Raises
    ------
    TypeError, ValueError
        If an argument is not a real, finite matrix, the shapes do not fit, or a result overflows.

    Examples
    --------
    >>> approximate([[1.0, 1.0], [2.0, 2.0]], [[1.0, 1.0]], [[1.0, 3.0]])  # column 0 drawn twice
    array([[1., 3.],
           [2., 6.]])
    """
    H_e, sigma, H_r = _continued(*_checked(K_rows, K_landmarks, K_cols), None)
    with silent():
        return check_finite(H_e * sigma @ H_r.T)


def landmarks(N, n, *, seed):
    """Indices of n landmarks out of N, drawn without repetition, ascending.

    No equation: a draw of indices.

    Parameters
    ----------
    N, n : int
        1 ≤ n ≤ N.
    seed : int
        ≥ 0, of numpy.random.default_rng.

    Returns
    -------
    list of int

    Raises
    ------
    ValueError

    Examples
    --------
    >>> landmarks(3, 3, seed=0)
    [0, 1, 2]
    """
    N = check_integer(N, "N", 1)
    n = check_integer(n, "n", 1, N)
    rng = np.random.default_rng(check_integer(seed, "seed", 0))
    return sorted(rng.choice(N, size=n, replace=False).tolist())


def _checked(K_rows, K_landmarks, K_cols):
    namespace(K_rows, K_landmarks, K_cols)
    K_rows, K_landmarks = as_pair(K_rows, K_landmarks, ("K_rows", "K_landmarks"))
    K_cols = as_matrix(K_cols, "K_cols")
    if K_cols.shape[0] != K_landmarks.shape[0]:
        raise ValueError("K_cols and K_landmarks need the same number of rows, got shapes "
                         f"{tuple(K_cols.shape)} and {tuple(K_landmarks.shape)}")
    return K_rows, K_landmarks, K_cols


def _continued(K_rows, K_landmarks, K_cols, rank):
    U, sigma, V = _corner(K_landmarks, rank)
    with silent():
        return K_rows @ V / sigma, sigma, K_cols.T @ U / sigma      # 1 / sigma might overflow alone


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
    return U[:, :s], sigma[:s], V[:, :s]


def _scaled(H_e, sigma, H_r, e, r):
    H_e, H_r = (check_finite(H, "the continuation") for H in (e ** 0.5 * H_e, r ** 0.5 * H_r))
    sigma = sigma / (e * r) ** 0.5
    if sigma.shape[0] == 0:
        return Dual(H_e, sigma, H_r)
    flip = signs(H_e)
    return Dual(H_e * flip, sigma, H_r * flip)                  # both, or their product changes


def _chosen(A, indices, name):
    if not getattr(indices, "shape", (1,)) or not hasattr(indices, "__iter__"):
        raise TypeError(f"{name} must be a sequence of integers, got {indices!r}")
    chosen = [A[check_integer(i, f"each of {name}", 0, A.shape[0] - 1), :] for i in indices]
    if not chosen:
        raise ValueError(f"{name} must not be empty: one landmark or more")
    return namespace(A).stack(chosen)
