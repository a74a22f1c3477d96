"""Primal side: the weights W_e, W_r from the features Phi and Psi. K is never formed.

Phi, Psi   (N, p), (M, p)    features of the rows and of the columns, K = Phi Psi^T
W_e, W_r   (p, s)            primal weights: W_e = Psi^T H_r, W_r = Phi^T H_e (the sides cross)
sigma      (s,)              singular values of K, descending
Lambda     (s,)              weights of the objective, 1 / sigma at a solution
E, R       (N, s), (M, s)    scores: E = Phi W_e, R = Psi W_r

The objective J is a saddle (lesson 05): it is solved here by linear algebra, not by ascent.
"""
from typing import Any, NamedTuple

import autograd.numpy as anp
import numpy as np
from autograd.extend import defvjp_argnums, primitive

from .backend import (as_array, as_matrix, as_pair, as_solution, check_finite, like, namespace,
                      silent)
from .linalg import (TIE, check_rank, numerical_rank, peaks, reciprocal, signs, spectral_norm, svd,
                     svd_core)


class Primal(NamedTuple):
    """Weights of both sides, as columns, and the singular values."""

    W_e: Any          # (p, s)
    sigma: Any        # (s,)   descending, >= 0
    W_r: Any          # (p, s)


def solve(Phi, Psi, rank=None):
    r"""Primal solution in O((N + M) p min(N, M, p)), exactly and without K (Eq. K.39).

    .. math:: \Phi = Q_\varphi R_\varphi, \quad \Psi = Q_\psi R_\psi, \quad
              R_\varphi R_\psi^\top = U \Sigma V^\top, \qquad
              W_e = R_\psi^\top V, \quad W_r = R_\varphi^\top U

    Q_phi U and Q_psi V are the singular vectors of K = Phi Psi^T, so this is W_e = Psi^T H_r and
    W_r = Phi^T H_e (K.12). Nothing is divided by sigma, and Q is never needed.

    Parameters
    ----------
    Phi : (N, p) array
        Features of the rows.
    Psi : (M, p) array
        Features of the columns.
    rank : int, optional
        Number of components, from 1 to min(N, M, p), zero singular values included. None keeps the
        numerical rank, sigma > |Phi| |Psi| max(N, M) eps: K = Phi Psi^T is not known better than
        that.

    Returns
    -------
    Primal
        W_e (p, s), sigma (s,) descending, W_r (p, s). The largest entry of each column of E = Phi
        W_e is positive, which is the sign convention of dual.solve.

    Raises
    ------
    TypeError
        If an argument is not an array of real numbers, or the arrays belong to different libraries.
    ValueError
        If an argument is not a matrix, is empty or is not finite, the numbers of columns differ,
        their product overflows, or `rank` is out of range.

    Notes
    -----
    R comes from the Gram matrix, R^T R = Phi^T Phi, where that is safe: with kappa = |Phi| |Psi| /
    sigma_s it loses kappa^2 of the precision, a QR decomposition only kappa. The limit is kappa =
    100 in float64 and 10 in float32, relative errors of about 1e-12 and 1e-5; above it R comes
    from QR, for three to twelve times the cost and twice the memory of the larger side.

    autograd differentiates it, with the limits of dual.solve at repeated singular values.

    Examples
    --------
    >>> import numpy as np
    >>> W_e, sigma, W_r = solve(np.diag([2.0, 1.0]), np.eye(2))            # K = diag(2, 1)
    >>> sigma
    array([2., 1.])
    >>> W_r + 0.0                                                          # no -0.
    array([[2., 0.],
           [0., 1.]])
    """
    Phi, Psi = as_pair(Phi, Psi, ("Phi", "Psi"), finite=False)      # _gram_root sees NaN, infinity
    xp = namespace(Phi, Psi)
    (N, p), M = Phi.shape, Psi.shape[0]
    limit = min(N, M, p)
    rank = check_rank(rank, limit, f"Phi of shape {(N, p)} and Psi of shape {(M, p)}")
    found = _cut((_traced if xp is anp else _solve)(Phi, Psi, rank or limit), N, M, rank)
    return _flipped(found, (found.W_e.T @ Phi.T).T)     # E = Phi W_e, with contiguous columns


def _cut(solution, N, M, rank):
    W_e, sigma, W_r, norm = solution
    s = numerical_rank(sigma, N, M, norm) if rank is None else rank
    return Primal(W_e[:, :s], sigma[:s], W_r[:, :s])


def _flipped(found, H):
    if found.sigma.shape[0] == 0:
        return found
    flip = signs(H)
    return Primal(found.W_e * flip, found.sigma, found.W_r * flip)         # both, or W_e^T W_r < 0


class Factor(NamedTuple):
    """All that the primal needs of N rows and M columns: their triangles."""

    R_phi: Any        # (p, p)   Phi^T Phi = R_phi^T R_phi
    R_psi: Any        # (p, p)   Psi^T Psi = R_psi^T R_psi
    N: int
    M: int


def solve_chunks(chunks, rank=None):
    r"""Primal solution of features that do not fit in memory, block by block (Eq. K.39).

    .. math:: \begin{bmatrix} \Phi_1 \\ \Phi_2 \end{bmatrix}
              = \begin{bmatrix} Q_1 & \\ & Q_2 \end{bmatrix}
                \begin{bmatrix} R_1 \\ R_2 \end{bmatrix}, \qquad
              \begin{bmatrix} R_1 \\ R_2 \end{bmatrix} = Q R_\varphi

    The R of two blocks below each other is the R of their two R: every block shrinks to a p x p
    triangle before the next is read, `factor`, and two triangles become one, `merge`.

    Parameters
    ----------
    chunks : iterable of pairs (Phi, Psi)
        Blocks of rows, (n, p) and (m, p). The two sides are independent: n and m may differ, and
        either block may be None. A block is free again once the next is asked for.
    rank : int, optional
        As in `solve`.

    Returns
    -------
    Primal
        That of `solve` on all rows. The sign needs the largest entry of each column of E = Phi W_e,
        and so a second look at the rows: a list, or any object that can be iterated again, gets it.
        A generator is spent by then: its signs make the largest entry of each column of W_e
        positive instead.

    Raises
    ------
    TypeError, ValueError
        As `solve`, for each block; if a chunk is no pair, holds two None, or has another number of
        columns than those before; if no chunk has rows, or none has columns; under autograd.

    Notes
    -----
    One route for all, QR: its error grows with kappa = |Phi| |Psi| / sigma_s and not with kappa^2,
    which a sum of Gram matrices could find out only when the rows are gone.

    Examples
    --------
    >>> import numpy as np
    >>> solve_chunks([([[2, 0]], np.eye(2)), ([[0, 1]], None)]).sigma      # Phi = diag(2, 1)
    array([2., 1.])
    """
    total = None
    for chunk in chunks:
        if not isinstance(chunk, (tuple, list)) or len(chunk) != 2:
            what = f"{len(chunk)} of them" if isinstance(chunk, (tuple, list)) else type(chunk)
            raise TypeError(f"each chunk must be a pair (Phi, Psi) of matrices, got {what}")
        block = factor(*chunk)
        total = block if total is None else merge(total, block)
    if total is None:
        raise ValueError("chunks must yield at least one pair (Phi, Psi), got none")
    found = solve_factor(total, rank)
    again = () if found.sigma.shape[0] == 0 or iter(chunks) is chunks else chunks
    tops = [peaks(as_matrix(Phi, "Phi") @ found.W_e)[0, :] for Phi, _ in again if Phi is not None]
    return _flipped(found, namespace(*tops).stack(tops)) if tops else found


def factor(Phi, Psi):
    r"""Triangles of one block of rows and columns, for `merge` (Eq. K.39).

    .. math:: \Phi = Q_\varphi R_\varphi, \qquad \Psi = Q_\psi R_\psi

    Parameters
    ----------
    Phi : (N, p) array or None
    Psi : (M, p) array or None

    Returns
    -------
    Factor
        R_phi (p, p), R_psi (p, p), N, M; a triangle of zeros for None. Upper triangular, diagonal
        ≥ 0, which makes it unique where the block has rank p.

    Raises
    ------
    TypeError, ValueError
        If both are None, an argument is not a real, finite matrix or is being differentiated, the
        numbers of columns differ, or a norm overflows.

    Examples
    --------
    >>> factor([[3.0], [4.0]], None)
    Factor(R_phi=array([[5.]]), R_psi=array([[0.]]), N=2, M=0)
    """
    xp = namespace(Phi, Psi)
    if Phi is None and Psi is None:
        raise ValueError("a block of rows Phi or of columns Psi expected, got None for both")
    Phi, Psi = (A if A is None else as_matrix(A, name) for A, name in ((Phi, "Phi"), (Psi, "Psi")))
    if Phi is not None and Psi is not None:
        as_pair(Phi, Psi, ("Phi", "Psi"), finite=False)
    R = [A if A is None else _qr_root(A, name) for A, name in ((Phi, "Phi"), (Psi, "Psi"))]
    zero = [xp.zeros_like(A) for A in R if A is not None][0]
    return Factor(*(zero if A is None else A for A in R),
                  *(0 if A is None else A.shape[0] for A in (Phi, Psi)))


def merge(one, other):
    r"""Triangles of two blocks together: the R of both below each other (Eq. K.39).

    .. math:: R^\top R = R_1^\top R_1 + R_2^\top R_2

    Associative and commutative, so blocks may be merged in any order, in pairs, or on several
    machines: map `factor`, reduce `merge`, then `solve_factor`.

    Parameters
    ----------
    one, other : Factor

    Returns
    -------
    Factor

    Raises
    ------
    TypeError, ValueError
        If an argument is no Factor of real, finite triangles, the arrays belong to different
        libraries, the numbers of features differ, or a norm overflows.

    Examples
    --------
    >>> merge(factor([[3.0]], None), factor([[4.0]], [[1.0]]))
    Factor(R_phi=array([[5.]]), R_psi=array([[1.]]), N=2, M=1)
    """
    one, other = _read(one), _read(other)
    as_pair(one.R_phi, other.R_phi, ("one block", "the other"), finite=False)
    R = [_qr_root(_below(A, B), name) for A, B, name in zip(one, other, ("Phi", "Psi"))]
    return Factor(*R, one.N + other.N, one.M + other.M)


def _read(block):
    if not isinstance(block, Factor):
        raise TypeError(f"a Factor, from primal.factor, expected, got {type(block).__name__}")
    return Factor(*as_pair(block.R_phi, block.R_psi, Factor._fields[:2]), block.N, block.M)


def solve_factor(factor, rank=None):
    r"""Primal solution from the triangles of all rows and all columns (Eq. K.39).

    .. math:: R_\varphi R_\psi^\top = U \Sigma V^\top, \qquad
              W_e = R_\psi^\top V, \quad W_r = R_\varphi^\top U

    Parameters
    ----------
    factor : Factor
    rank : int, optional
        As in `solve`.

    Returns
    -------
    Primal
        The largest entry of each column of W_e is positive: E = Phi W_e is not at hand.

    Raises
    ------
    TypeError, ValueError
        If `factor` is no Factor of real, finite triangles, there are no rows or no columns, or
        `rank` is out of range.

    Examples
    --------
    >>> solve_factor(factor([[3.0], [4.0]], [[2.0]]))                      # K = (6, 8)^T
    Primal(W_e=array([[2.]]), sigma=array([10.]), W_r=array([[5.]]))
    """
    R_phi, R_psi, N, M = _read(factor)
    if 0 in (N, M):
        raise ValueError(f"rows of both Phi and Psi expected, got {N} of Phi and {M} of Psi")
    limit = min(N, M, R_phi.shape[1])
    rank = check_rank(rank, limit, f"{N} rows, {M} columns and {R_phi.shape[1]} features")
    found = _cut(_core(R_phi, R_psi, limit), N, M, rank)
    return _flipped(found, found.W_e)


def _solve(Phi, Psi, s):
    """All min(N, M, p) components, s of them trusted, and |Phi| |Psi|."""
    k = min(Phi.shape[0], Psi.shape[0], Phi.shape[1])
    for root in (_gram_root, _qr_root):             # R = A serves where A has fewer rows than p
        R_phi, R_psi = (as_matrix(A, name) if A.shape[0] < A.shape[1] else root(A, name)
                        for A, name in ((Phi, "Phi"), (Psi, "Psi")))
        solution = _core(R_phi, R_psi, k)
        if solution[3] <= _gram_limit(Phi) * float(solution[1][s - 1]):
            break
    return solution


def _core(R_phi, R_psi, k):
    """The k leading components from both triangles, and |Phi| |Psi|."""
    xp = namespace(R_phi, R_psi)
    a, b = spectral_norm(R_phi), spectral_norm(R_psi)                      # = |Phi|, |Psi|
    if not a * b <= float(xp.finfo(R_phi.dtype).max):
        raise ValueError("Phi Psi^T overflows: scale Phi or Psi down")
    R_phi, R_psi = R_phi / (a or 1.0), R_psi / (b or 1.0)                  # 1e-200 squared is 0
    U, sigma, V = svd(R_phi @ R_psi.T)
    return b * (R_psi.T @ V[:, :k]), a * (b * sigma[:k]), a * (R_phi.T @ U[:, :k]), a * b


def _gram_limit(A):
    """The largest |Phi| |Psi| / sigma_s at which the Gram matrix is safe."""
    return 100.0 if A.dtype == namespace(A).float64 else 10.0


def _gram_root(A, name):
    """R with R^T R = A^T A, (p, p), by the Gram matrix: one product."""
    xp = namespace(A)
    with silent():
        G = A.T @ A
    # The largest entry is a squared length. NaN and infinity in A show in it, and so does whatever
    # over- or underflows when it is squared; as_array would look at all of A for the first alone.
    limits = xp.finfo(A.dtype)
    low, high = float(limits.smallest_normal) / float(limits.eps) ** 2, float(limits.max)
    if not low < float(xp.max(G)) < float(limits.eps) * high:
        return _qr_root(as_matrix(A, name), name)
    w, V = xp.linalg.eigh(G)
    return xp.sqrt(xp.maximum(w, 0.0))[:, None] * V.T


def _qr_root(A, name):
    """R of A = Q R, (p, p), with the signs of its rows such that the diagonal is ≥ 0."""
    xp = namespace(A)
    if xp is anp:
        raise TypeError("features in blocks cannot be differentiated: primal.solve can")
    with silent():
        R = check_finite(_triangle(A), f"the norm of {name}")              # or svd(R) never returns
    diagonal = xp.sum(R * xp.eye(R.shape[0], **like(R)), axis=1, keepdims=True)
    return xp.where(diagonal < 0.0, -R, R)


def _triangle(A):
    """R of A = Q R by a tree of small QR decompositions: up to four times as fast as by one."""
    xp = namespace(A)
    (N, p), rows = A.shape, 8 * A.shape[1]
    if N < 2 * rows:
        R = xp.zeros((p, p), **like(A))
        R[:min(N, p), :] = xp.linalg.qr(A)[1]
        return R
    m = N // rows
    R = xp.linalg.qr(xp.reshape(A[:m * rows, :], (m, rows, p)))[1]         # m triangles
    R = _triangle(xp.reshape(R, (m * p, p)))
    return R if N == m * rows else _triangle(_below(R, _triangle(A[m * rows:, :])))


def _below(R, S):
    xp = namespace(R, S)
    return xp.reshape(xp.stack([R, S]), (-1, R.shape[1]))


@primitive
def _traced(Phi, Psi, s):
    return _solve(Phi, Psi, s)


def _traced_vjp(argnums, answer, args, kwargs):
    # The derivative of linalg.svd at K = Phi Psi^T, pulled back through W_e = Psi^T V and
    # W_r = Phi^T U. K does not occur: U = Phi W_e / sigma leaves Phi times a p x p matrix.
    (W_e, sigma, W_r, norm), (Phi, Psi, _) = answer, args
    size = max(Phi.shape[0], Psi.shape[0])
    eps = np.finfo(sigma.dtype).eps
    inverse = reciprocal(sigma, norm * size * eps)
    tie = TIE * norm * max(size, _gram_limit(sigma)) * eps    # the Gram matrix costs more

    def side(A, B, W_a, W_b, g_a, g_b, turn):
        outside = (g_a.T @ B.T) @ B - (g_a.T @ W_a) @ W_a.T                # (s, p)
        middle = turn @ W_a.T + g_b.T + inverse[:, None] * outside
        middle = W_a * inverse @ (middle - W_b.T @ g_b * inverse @ W_a.T)  # (p, p)
        return A @ (middle + g_b * inverse @ W_a.T)

    def vjp(g):
        g_e, g_sigma, g_r, _ = g
        P, Q = W_r.T @ g_r, W_e.T @ g_e
        turn = svd_core(sigma, P - P.T, Q - Q.T, g_sigma, tie)
        both = (side(Phi, Psi, W_e, W_r, g_e, g_r, turn),
                side(Psi, Phi, W_r, W_e, g_r, g_e, turn.T))
        return tuple(both[n] for n in argnums)
    return vjp


defvjp_argnums(_traced, _traced_vjp)


def objective(W_e, W_r, Lambda, Phi, Psi):
    r"""Objective J of the primal problem (Eq. K.10).

    .. math:: J = \tfrac12 \operatorname{tr}(E \Lambda E^\top)
              + \tfrac12 \operatorname{tr}(R \Lambda R^\top) - \operatorname{tr}(W_e^\top W_r),
              \qquad E = \Phi W_e, \quad R = \Psi W_r

    The sums of Chen et al., NeurIPS 2023, as matrices. J is 0 at every solution (K.22),
    and at many points that are none (V5): the test for a solution is `stationarity`.

    Parameters
    ----------
    W_e, W_r : (p, s) array
    Lambda : (s,) array
    Phi : (N, p) array
    Psi : (M, p) array

    Returns
    -------
    number
        Of any sign: J is unbounded above, and below too unless both Phi and Psi have rank p and
        every lambda is at least 1 / sigma_p (V8).

    Raises
    ------
    TypeError, ValueError
        If an argument is not a real, finite array, or the shapes do not fit.

    Examples
    --------
    >>> import numpy as np
    >>> one = np.ones((2, 1))
    >>> objective(one, one, [1.0], np.diag([2.0, 1.0]), np.eye(2))         # 5/2 + 2/2 - 2
    np.float64(1.5)
    """
    W_e, W_r, Lambda, Phi, Psi = _weights(W_e, W_r, Lambda, Phi, Psi)
    xp = namespace(W_e, W_r, Lambda, Phi, Psi)
    E, R = Phi @ W_e, Psi @ W_r
    J = 0.5 * xp.sum(E * E * Lambda) + 0.5 * xp.sum(R * R * Lambda) - xp.sum(W_e * W_r)
    return check_finite(J, "J")


def gradient(W_e, W_r, Lambda, Phi, Psi):
    r"""Gradient of the primal objective (Eq. K.18).

    .. math:: \partial J / \partial W_e = \Phi^\top \Phi W_e \Lambda - W_r, \qquad
              \partial J / \partial W_r = \Psi^\top \Psi W_r \Lambda - W_e

    Both vanish exactly at the solutions (K.17). In matrix form here; the conditions are those of
    Chen et al., NeurIPS 2023.

    Parameters
    ----------
    W_e, W_r, Lambda, Phi, Psi : array
        As in `objective`.

    Returns
    -------
    (p, s) array, (p, s) array

    Raises
    ------
    TypeError, ValueError
        As `objective`.

    Examples
    --------
    >>> import numpy as np
    >>> one = np.ones((2, 1))
    >>> gradient(one, one, [0.5], np.diag([2.0, 1.0]), np.eye(2))[0]       # 4/2 - 1, 1/2 - 1
    array([[ 1. ],
           [-0.5]])
    """
    W_e, W_r, Lambda, Phi, Psi = _weights(W_e, W_r, Lambda, Phi, Psi)
    namespace(W_e, W_r, Lambda, Phi, Psi)
    return (check_finite(Phi.T @ (Phi @ W_e) * Lambda - W_r, "the gradient"),
            check_finite(Psi.T @ (Psi @ W_r) * Lambda - W_e, "the gradient"))


def stationarity(W_e, W_r, Lambda, Phi, Psi):
    r"""How far a point is from solving the problem: the relative residual of K.17 (Eq. K.17).

    .. math:: \Phi^\top \Phi W_e \Lambda = W_r, \qquad \Psi^\top \Psi W_r \Lambda = W_e

    The coupled covariances: H eliminated instead of W. For each equation the size of the difference
    over the sizes of its two sides; the larger of both. Costs O((N + M) p s), and K never occurs.

    Parameters
    ----------
    W_e, W_r, Lambda, Phi, Psi : array
        As in `objective`.

    Returns
    -------
    number
        Between 0, at a solution, and 1. Unlike J it is not zero elsewhere, W = 0 excepted.

    Raises
    ------
    TypeError, ValueError
        As `objective`.

    Examples
    --------
    >>> import numpy as np
    >>> one, Phi, Psi = np.ones((2, 1)), np.diag([2.0, 1.0]), np.eye(2)
    >>> abs(objective(one, one, [4 / 7], Phi, Psi)) < 1e-15                # J = 0, and yet (V5):
    np.True_
    >>> stationarity(one, one, [4 / 7], Phi, Psi)                         # 1.355 / (2.356 + 1.414)
    np.float64(0.359)
    """
    W_e, W_r, Lambda, Phi, Psi = _weights(W_e, W_r, Lambda, Phi, Psi)
    dW_e, dW_r = gradient(W_e, W_r, Lambda, Phi, Psi)
    xp = namespace(dW_e, dW_r)

    def size(A):
        square = xp.sum(A * A)
        return xp.where(square > 0.0, xp.sqrt(xp.where(square > 0.0, square, 1.0)), 0.0)

    def ratio(difference, side):
        whole = size(difference + side) + size(side)
        return size(difference) / xp.where(whole > 0.0, whole, 1.0)
    return xp.maximum(ratio(dW_e, W_r), ratio(dW_r, W_e))


def _weights(W_e, W_r, Lambda, Phi, Psi):
    Phi, Psi = as_pair(Phi, Psi, ("Phi", "Psi"))
    W_e, W_r = as_matrix(W_e, "W_e"), as_matrix(W_r, "W_r")
    Lambda = as_array(Lambda, "Lambda", ndim=1)
    want = (Phi.shape[1], Lambda.shape[0])
    if tuple(W_e.shape) != want or tuple(W_r.shape) != want:
        raise ValueError(f"W_e and W_r must have shape {want} (columns of Phi, length of Lambda), "
                         f"got {tuple(W_e.shape)} and {tuple(W_r.shape)}")
    return W_e, W_r, Lambda, Phi, Psi


def from_dual(dual, Phi, Psi):
    r"""Primal weights of a dual solution (Eq. K.12).

    .. math:: W_e = \Psi^\top H_r, \qquad W_r = \Phi^\top H_e

    The sides cross: the columns make the weights that score rows (Chen et al.,
    NeurIPS 2023).

    Parameters
    ----------
    dual : Dual
        H_e (N, s), sigma (s,), H_r (M, s), from `dual.solve`.
    Phi : (N, p) array
    Psi : (M, p) array

    Returns
    -------
    Primal
        W_e (p, s), sigma (s,), W_r (p, s).

    Raises
    ------
    TypeError, ValueError
        If an argument is not a real, finite matrix, or the shapes do not fit.

    Examples
    --------
    >>> import numpy as np
    >>> dual = (np.eye(2), np.array([2.0, 1.0]), np.eye(2))                # K = diag(2, 1)
    >>> from_dual(dual, np.diag([2.0, 1.0]), np.eye(2)).W_r
    array([[2., 0.],
           [0., 1.]])
    """
    Phi, Psi = as_pair(Phi, Psi, ("Phi", "Psi"))
    H_e, sigma, H_r = as_solution(dual, ("H_e", "sigma", "H_r"))
    namespace(Phi, Psi, H_e, H_r)
    _fits("H_e", H_e, "Phi", Phi, 0)
    _fits("H_r", H_r, "Psi", Psi, 0)
    return Primal(Psi.T @ H_r, sigma, Phi.T @ H_e)


def to_dual(primal, Phi, Psi):
    r"""Dual variables of a primal solution, H_e = E Lambda and H_r = R Lambda (Eq. K.13).

    .. math:: H_e = \Phi W_e \Sigma^{-1}, \qquad H_r = \Psi W_r \Sigma^{-1}

    The one place where the primal divides by sigma; differentiate E and R instead where it repeats.

    Parameters
    ----------
    primal : Primal
        W_e (p, s), sigma (s,), W_r (p, s).
    Phi : (N, p) array
    Psi : (M, p) array

    Returns
    -------
    H_e : (N, s) array
    sigma : (s,) array
    H_r : (M, s) array

    Raises
    ------
    TypeError, ValueError
        If an argument is not a real, finite matrix, the shapes do not fit, or a sigma is zero to
        rounding: Lambda = 1 / sigma exists only above that (V16). The error names the numerical
        rank.

    Examples
    --------
    >>> import numpy as np
    >>> Phi, Psi = np.diag([2.0, 1.0]), np.eye(2)
    >>> to_dual(solve(Phi, Psi), Phi, Psi)[0]
    array([[1., 0.],
           [0., 1.]])
    """
    Phi, Psi = as_pair(Phi, Psi, ("Phi", "Psi"))
    sigma = as_solution(primal, Primal._fields)[1]
    E, R = e_scores(Phi, primal), r_scores(Psi, primal)
    s = sigma.shape[0]
    r = numerical_rank(sigma, Phi.shape[0], Psi.shape[0]) if s else 0
    if r < s:
        raise ValueError(f"Lambda = 1 / sigma needs sigma > 0: numerical rank {r} expected at "
                         f"most, got {s} components: solve without a rank")
    return E / sigma, sigma, R / sigma


def e_scores(Phi_new, primal):
    r"""Left scores of rows from the primal side (Eq. K.20).

    .. math:: e(x) = W_e^\top \varphi(x), \qquad E = \Phi W_e

    Source: Chen et al. 2023, Remark 3.3.

    Parameters
    ----------
    Phi_new : (n, p) array
        Features of the rows.
    primal : Primal
        W_e (p, s), sigma (s,), W_r (p, s).

    Returns
    -------
    (n, s) array

    Raises
    ------
    TypeError, ValueError
        If `Phi_new` is not a real, finite matrix with p columns.

    Examples
    --------
    >>> import numpy as np
    >>> weights = Primal(np.eye(2), np.array([2.0, 1.0]), np.diag([2.0, 1.0]))
    >>> e_scores([[1.0, 3.0]], weights)
    array([[1., 3.]])
    """
    return _scores(Phi_new, "Phi_new", as_solution(primal, Primal._fields)[0], "W_e")


def r_scores(Psi_new, primal):
    r"""Right scores of columns from the primal side (Eq. K.20).

    .. math:: r(z) = W_r^\top \psi(z), \qquad R = \Psi W_r

    Source: Chen et al. 2023, Remark 3.3.

    Parameters
    ----------
    Psi_new : (n, p) array
        Features of the columns.
    primal : Primal
        W_e (p, s), sigma (s,), W_r (p, s).

    Returns
    -------
    (n, s) array

    Raises
    ------
    TypeError, ValueError
        If `Psi_new` is not a real, finite matrix with p columns.

    Examples
    --------
    >>> import numpy as np
    >>> weights = Primal(np.eye(2), np.array([2.0, 1.0]), np.diag([2.0, 1.0]))
    >>> r_scores([[1.0, 3.0]], weights)
    array([[2., 3.]])
    """
    return _scores(Psi_new, "Psi_new", as_solution(primal, Primal._fields)[2], "W_r")


def _scores(A, name, W, weights):
    A = as_matrix(A, name)
    namespace(A, W)
    _fits(weights, W, name, A, 1)
    return check_finite(A @ W, "the score matrix")


def _fits(name, rows, other, A, axis):
    if rows.shape[0] != A.shape[axis]:
        raise ValueError(f"{name} must have one row for each {('row', 'column')[axis]} of {other}, "
                         f"got shapes {tuple(rows.shape)} and {tuple(A.shape)}")
