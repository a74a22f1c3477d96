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

from .backend import as_array, as_matrix, as_pair, namespace
from .linalg import TIE, check_rank, numerical_rank, reciprocal, signs, svd, svd_core


class Primal(NamedTuple):
    """Weights of both sides, as columns, and the singular values."""

    W_e: Any          # (p, s)
    sigma: Any        # (s,)   descending, >= 0
    W_r: Any          # (p, s)


def solve(Phi, Psi, rank=None):
    r"""Primal solution in O((N + M) p^2), exactly and without K (Eq. K.39).

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
    from QR, for three to ten times the cost.

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
    Phi, Psi = as_pair(Phi, Psi, ("Phi", "Psi"))
    xp = namespace(Phi, Psi)
    (N, p), M = Phi.shape, Psi.shape[0]
    limit = min(N, M, p)
    rank = check_rank(rank, limit, f"Phi of shape {(N, p)} and Psi of shape {(M, p)}")
    W_e, sigma, W_r, norm = (_traced if xp is anp else _factor)(Phi, Psi, rank or limit)
    if not norm < float("inf"):
        raise ValueError("Phi Psi^T overflows: scale Phi or Psi down")
    s = numerical_rank(sigma, N, M, norm) if rank is None else rank
    W_e, sigma, W_r = W_e[:, :s], sigma[:s], W_r[:, :s]
    if s == 0:
        return Primal(W_e, sigma, W_r)
    flip = signs(Phi @ W_e)
    return Primal(W_e * flip, sigma, W_r * flip)


def _factor(Phi, Psi, s):
    """All min(N, M, p) components, s of them trusted, and |Phi| |Psi|."""
    xp = namespace(Phi, Psi)
    a, b = (float(xp.max(xp.abs(A))) or 1.0 for A in (Phi, Psi))
    Phi, Psi = Phi / a, Psi / b                     # or the Gram matrix of 1e-200 would be 0
    U, sigma, V, R_phi, R_psi, norm = _core(_gram_root(Phi), _gram_root(Psi))
    if not norm <= _gram_limit(Phi) * float(sigma[s - 1]):
        U, sigma, V, R_phi, R_psi, norm = _core(xp.linalg.qr(Phi)[1], xp.linalg.qr(Psi)[1])
    k = min(Phi.shape[0], Psi.shape[0], Phi.shape[1])
    return b * (R_psi.T @ V[:, :k]), a * (b * sigma[:k]), a * (R_phi.T @ U[:, :k]), a * (b * norm)


def _gram_limit(A):
    """The largest |Phi| |Psi| / sigma_s at which the Gram matrix is safe."""
    return 100.0 if A.dtype == namespace(A).float64 else 10.0


def _gram_root(A):
    """R with R^T R = A^T A."""
    xp = namespace(A)
    w, V = xp.linalg.eigh(A.T @ A)
    return xp.sqrt(xp.maximum(w, 0.0))[:, None] * V.T


def _core(R_phi, R_psi):
    U, sigma, V = svd(R_phi @ R_psi.T)
    norm = float(svd(R_phi)[1][0]) * float(svd(R_psi)[1][0])               # = |Phi| |Psi|
    return U, sigma, V, R_phi, R_psi, norm


@primitive
def _traced(Phi, Psi, s):
    return _factor(Phi, Psi, s)


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
        Of any sign: J is unbounded on both sides (V8).

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
    return 0.5 * xp.sum(E * E * Lambda) + 0.5 * xp.sum(R * R * Lambda) - xp.sum(W_e * W_r)


def gradient(W_e, W_r, Lambda, Phi, Psi):
    r"""Gradient of the primal objective (Eq. K.18).

    .. math:: \partial J / \partial W_e = \Phi^\top \Phi W_e \Lambda - W_r, \qquad
              \partial J / \partial W_r = \Psi^\top \Psi W_r \Lambda - W_e

    Both vanish exactly at the solutions (K.17). In matrix form here; the conditions are those of
    Chen et al., NeurIPS 2023.

    Parameters
    ----------
    W_e, W_r : (p, s) array
    Lambda : (s,) array
    Phi : (N, p) array
    Psi : (M, p) array

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
    return Phi.T @ (Phi @ W_e) * Lambda - W_r, Psi.T @ (Psi @ W_r) * Lambda - W_e


def stationarity(W_e, W_r, Lambda, Phi, Psi):
    r"""How far a point is from solving the problem: the relative residual of K.17 (Eq. K.17).

    .. math:: \Phi^\top \Phi W_e \Lambda = W_r, \qquad \Psi^\top \Psi W_r \Lambda = W_e

    The coupled covariances: H eliminated instead of W. For each equation the size of the difference
    over the sizes of its two sides; the larger of both. Costs O((N + M) p s), and K never occurs.

    Parameters
    ----------
    W_e, W_r : (p, s) array
    Lambda : (s,) array
    Phi : (N, p) array
    Psi : (M, p) array

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
    H_e, sigma, H_r = dual
    namespace(Phi, Psi, H_e, H_r)
    _fits("H_e", H_e, "Phi", Phi, 0)
    _fits("H_r", H_r, "Psi", Psi, 0)
    return Primal(Psi.T @ H_r, sigma, Phi.T @ H_e)


def to_dual(primal, Phi, Psi):
    r"""Dual variables of a primal solution, H_e = E Lambda and H_r = R Lambda (Eq. K.13).

    .. math:: H_e = \Phi W_e \Sigma^{-1}, \qquad H_r = \Psi W_r \Sigma^{-1}

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
    W_e, sigma, W_r = primal
    namespace(Phi, Psi, W_e, W_r)
    E, R = e_scores(Phi, primal), r_scores(Psi, primal)
    r = numerical_rank(sigma, Phi.shape[0], Psi.shape[0])
    if r < sigma.shape[0]:
        raise ValueError(f"Lambda = 1 / sigma needs sigma > 0: numerical rank {r} expected at "
                         f"most, got {sigma.shape[0]} components: solve with rank={r} or less")
    return E / sigma, sigma, R / sigma


def e_scores(Phi_new, primal):
    r"""Left scores of rows from the primal side (Eq. K.20).

    .. math:: e(x) = W_e^\top \varphi(x), \qquad E = \Phi W_e

    Source: Chen et al., NeurIPS 2023, Remark 3.3.

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
    W_e, _, _ = primal
    Phi_new = as_matrix(Phi_new, "Phi_new")
    namespace(Phi_new, W_e)
    _fits("W_e", W_e, "Phi_new", Phi_new, 1)
    return Phi_new @ W_e


def r_scores(Psi_new, primal):
    r"""Right scores of columns from the primal side (Eq. K.20).

    .. math:: r(z) = W_r^\top \psi(z), \qquad R = \Psi W_r

    Source: Chen et al., NeurIPS 2023, Remark 3.3.

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
    _, _, W_r = primal
    Psi_new = as_matrix(Psi_new, "Psi_new")
    namespace(Psi_new, W_r)
    _fits("W_r", W_r, "Psi_new", Psi_new, 1)
    return Psi_new @ W_r


def _fits(name, rows, other, A, axis):
    if rows.shape[0] != A.shape[axis]:
        raise ValueError(f"{name} must have one row for each {('row', 'column')[axis]} of {other}, "
                         f"got shapes {tuple(rows.shape)} and {tuple(A.shape)}")
