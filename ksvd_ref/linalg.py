"""Decompositions, rank and sign: what dual and primal share, since neither imports the other.

A library's own ``svd`` and ``eigh`` do the work. Added here are derivatives that stay right where
values repeat (autograd divides by their difference), the rank rule, and the sign convention.

No equation: below K.6 it holds what floating point needs, ties, rank and sign.
"""
import autograd.numpy as anp
import numpy as np
from autograd.extend import defvjp, primitive

from .backend import check_integer, like, namespace

TIE = 10.0      # values equal on paper come out up to a few roundings apart, not one


def svd(K):
    r"""Thin singular value decomposition, K = U Σ Vᵀ (Eq. K.6), differentiable at repeated σ.

    .. math:: K = U \Sigma V^\top

    Source: textbook.

    Parameters
    ----------
    K : (N, M) array

    Returns
    -------
    U : (N, k) array
        k = min(N, M).
    sigma : (k,) array
        Descending, ≥ 0.
    V : (M, k) array
        Columns, not rows: ``K = U * sigma @ V.T``.

    Notes
    -----
    No derivative rule for (U, sigma, V) can serve every loss where a sigma repeats: at K = I and
    with C = [[0, 1], [1, 0]], the losses <C, U diag(sigma) V^T> and <C, U V^T> hand the rule the
    same (C, 0, C), yet their gradients are C and 0. This rule is right for every loss in which the
    tied columns enter as a whole, through U U^T, V V^T, U V^T and symmetric functions of their
    sigma. Write losses weighted by sigma with K instead: K V = U Sigma and K V V^T are right at
    ties too.

    Examples
    --------
    >>> import numpy as np
    >>> svd(np.diag([2.0, 1.0]))[1]
    array([2., 1.])
    """
    xp = namespace(K)
    if xp is anp:
        return _svd(K)
    U, sigma, Vt = xp.linalg.svd(K, full_matrices=False)
    return U, sigma, Vt.T


@primitive
def _svd(K):
    U, sigma, Vt = np.linalg.svd(K, full_matrices=False)
    return U, sigma, Vt.T


def _svd_vjp(answer, K):
    U, sigma, V = answer
    noise = sigma[0] * max(K.shape) * np.finfo(sigma.dtype).eps
    inverse = reciprocal(sigma, noise)

    def vjp(g):
        gU, g_sigma, gV = g
        P, Q = U.T @ gU, V.T @ gV
        inner = svd_core(sigma, P - P.T, Q - Q.T, g_sigma, TIE * noise)
        left = (gU - U @ P) * inverse @ V.T         # what lies outside the span of U, of V
        right = U * inverse @ (gV - V @ Q).T
        return U @ inner @ V.T + left + right
    return vjp


defvjp(_svd, _svd_vjp)


def svd_core(sigma, P, Q, g_sigma, noise):
    """Middle factor of the derivative of an SVD, U (...) V^T, from the rotations P and Q.

    Parameters
    ----------
    sigma : (k,) array
    P, Q : (k, k) array
        U^T gU - gU^T U and V^T gV - gV^T V: how the loss turns the left and the right vectors.
    g_sigma : (k,) array
        Derivative of the loss by sigma.
    noise : number
        Sigma that are closer than this count as equal.

    Returns
    -------
    (k, k) array

    Examples
    --------
    >>> import numpy as np
    >>> svd_core(np.array([2.0, 1.0]), np.zeros((2, 2)), np.zeros((2, 2)), np.ones(2), 1e-15)
    array([[1., 0.],
           [0., 1.]])
    """
    gap, total = sigma[None, :] - sigma[:, None], sigma[None, :] + sigma[:, None]
    # P + Q turns both sides together, P - Q one against the other. Where sigma_i = sigma_j only the
    # first is undetermined: setting 1 / (sigma_j^2 - sigma_i^2) to 0 loses the second too, and with
    # it the derivative of U V^T.
    return (0.5 * reciprocal(gap, noise) * (P + Q) + 0.5 * reciprocal(total, noise) * (P - Q)
            + anp.diag(g_sigma))


def reciprocal(x, noise):
    """1 / x where abs(x) > noise, else 0.

    Parameters
    ----------
    x : array
    noise : number
        ≥ 0; what lies below it is rounding error.

    Returns
    -------
    array

    Examples
    --------
    >>> import numpy as np
    >>> reciprocal(np.array([2.0, 1e-17]), 1e-16)
    array([0.5, 0. ])
    """
    xp = namespace(x)
    kept = xp.abs(x) > noise
    return xp.where(kept, 1.0 / xp.where(kept, x, 1.0), 0.0)


def eigh(S):
    """Eigenvalues, ascending, and eigenvectors of a symmetric matrix, tie-safe as `svd` is.

    Parameters
    ----------
    S : (N, N) array
        Symmetric.

    Returns
    -------
    (N,) array, (N, N) array

    Examples
    --------
    >>> import numpy as np
    >>> eigh(np.array([[0.0, 2.0], [2.0, 0.0]]))[0]
    array([-2.,  2.])
    """
    xp = namespace(S)
    return _eigh(S) if xp is anp else tuple(xp.linalg.eigh(S))


@primitive
def _eigh(S):
    return tuple(np.linalg.eigh(S))


def _eigh_vjp(answer, S):
    w, V = answer
    noise = max(abs(w)) * S.shape[0] * np.finfo(w.dtype).eps
    split = reciprocal(w[None, :] - w[:, None], TIE * noise)

    def vjp(g):
        inner = split * (V.T @ g[1]) + anp.diag(g[0])
        return V @ (0.5 * (inner + inner.T)) @ V.T  # S and S^T are the same variable
    return vjp


defvjp(_eigh, _eigh_vjp)


def spectral_norm(A):
    """Largest singular value, |A|, from the Gram matrix of the shorter side.

    Parameters
    ----------
    A : (N, M) array

    Returns
    -------
    float

    Examples
    --------
    >>> import numpy as np
    >>> spectral_norm(np.array([[3e200, 4e200]]))
    5e+200
    """
    xp = namespace(A)
    top = float(xp.max(xp.abs(A)))
    if top == 0.0:
        return 0.0
    A = A / top                                     # or the squares of 1e200 and 1e-200 are lost
    gram = A.T @ A if A.shape[0] > A.shape[1] else A @ A.T
    return top * float(xp.linalg.eigh(gram)[0][-1]) ** 0.5


def numerical_rank(sigma, N, M, norm=None):
    """Number of singular values above rounding error, sigma > norm * max(N, M) * eps.

    Parameters
    ----------
    sigma : (k,) array
        Descending.
    N, M : int
        Shape of the matrix.
    norm : number, optional
        Size of what was rounded; sigma_1 unless told.

    Returns
    -------
    int
        0 for the zero matrix.

    Examples
    --------
    >>> import numpy as np
    >>> numerical_rank(np.array([2.0, 1.0, 1e-16]), 3, 3)
    2
    """
    xp = namespace(sigma)
    norm = sigma[0] if norm is None else norm
    return int(xp.count_nonzero(sigma > norm * (max(N, M) * float(xp.finfo(sigma.dtype).eps))))


def check_rank(rank, limit, shape, optional=True):
    """The rank asked for, None or an integer from 1 to `limit`, or an error.

    Parameters
    ----------
    rank : int or None
    limit : int
    shape : str
        What sets the limit, for the error.
    optional : bool
        False refuses None too.

    Returns
    -------
    int or None

    Raises
    ------
    ValueError

    Examples
    --------
    >>> check_rank(3, 2, "K of shape (2, 5)")
    Traceback (most recent call last):
    ValueError: rank must be None or an integer from 1 to 2 for K of shape (2, 5), got 3
    """
    if optional and rank is None:
        return None
    try:
        return check_integer(rank, "rank", 1, limit)
    except ValueError:
        raise ValueError(f"rank must be {'None or ' * optional}an integer from 1 to {limit} for "
                         f"{shape}, got {rank!r}") from None


def signs(H):
    """Sign of the largest entry of each column, the first of equals: one flip for a *pair*.

    Parameters
    ----------
    H : (N, s) array

    Returns
    -------
    (1, s) array
        1 or -1; 1 for a column of zeros.

    Notes
    -----
    Multiply the left and the right vectors by the same signs. Each by its own largest entry would
    break K h_r = sigma h_e: on a random 30 x 20 matrix about half of the 20 pairs come out opposed.

    Examples
    --------
    >>> import numpy as np
    >>> signs(np.array([[1.0, 3.0], [-2.0, 3.0]]))
    array([[-1.,  1.]])
    """
    xp = namespace(H)
    peak = peaks(H)
    return xp.where(peak < 0.0, -xp.ones_like(peak), xp.ones_like(peak))


def peaks(H):
    """Entry of largest magnitude of each column, with its sign; the first of equals.

    Parameters
    ----------
    H : (N, s) array

    Returns
    -------
    (1, s) array

    Examples
    --------
    >>> import numpy as np
    >>> peaks(np.array([[1.0, 3.0], [-2.0, -3.0]]))
    array([[-2.,  3.]])
    """
    xp = namespace(H)
    # Entries that are equal on paper differ by rounding: without the margin a Hadamard matrix would
    # get one sign from the dual and the other from the primal.
    margin = 1.0 - float(xp.finfo(H.dtype).eps) ** 0.5
    top, bottom = (f(H, axis=0, keepdims=True) for f in (xp.max, xp.min))
    if not xp.any(xp.minimum(top, -bottom) >= margin * xp.maximum(top, -bottom)):
        return xp.where(top > -bottom, top, bottom)         # no tie: two looks at H are enough
    size = xp.abs(H)
    largest = xp.astype(size >= margin * xp.max(size, axis=0, keepdims=True), H.dtype)
    first = xp.argmax(largest, axis=0)
    row = xp.arange(H.shape[0], **like(first))
    return xp.sum(xp.where(row[:, None] == first[None, :], H, 0.0), axis=0, keepdims=True)
