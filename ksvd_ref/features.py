"""Primal side: pairs of feature matrices Phi and Psi with K = Phi Psi^T.

Phi, Psi   (N, p), (M, p)    features of the rows and of the columns, phi(x_i)^T and psi(z_j)^T
A, C       (N, M), (M, N)    any real matrix, and Suykens' compatibility matrix

The maps of one kernel are not unique: (Phi T, Psi T^-T) has the same K for every regular T (V24).
"""
from itertools import combinations_with_replacement
from math import factorial, prod

import numpy as np

from .backend import (as_matrix, as_pair, check_finite, check_integer, check_number, like,
                      namespace, silent, unit_rows)
from .linalg import numerical_rank, svd


def compatible(A, C=None):
    r"""Feature maps of any real matrix: its own rows and columns, made compatible (Eq. K.33).

    .. math:: \varphi(x) = C^\top x, \quad \psi(z) = z, \qquad \Phi = A C, \quad \Psi = A^\top,
              \qquad \Phi \Psi^\top = A C A

    Rows live in R^M and columns in R^N, so one side must be carried over. If M < N the mirror
    image is used, Phi = A, Psi = (C A)^T, which keeps p = min(N, M). The kernel is A itself if and
    only if A C A = A (V25); any other C gives the SVD of A C A (Suykens, ACHA 40, 2016).

    Parameters
    ----------
    A : (N, M) array
    C : (M, N) array, optional
        The pseudo-inverse of A unless told: then Phi Psi^T = A.

    Returns
    -------
    Phi : (N, p) array
        p = min(N, M).
    Psi : (M, p) array

    Raises
    ------
    TypeError, ValueError
        If an argument is not a real, finite matrix, or `C` has not the shape of A^T.

    Examples
    --------
    >>> Phi, Psi = compatible([[2.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    >>> Phi @ Psi.T
    array([[2., 0., 0.],
           [0., 1., 0.]])
    >>> Phi, Psi = compatible([[2.0]], C=[[1.0]])               # not an inverse: A C A = 4
    >>> Phi @ Psi.T
    array([[4.]])
    """
    A = as_matrix(A, "A")
    N, M = A.shape
    if C is None:
        # A pinv(A) is the projector U U^T on the columns of A. Multiplied out it would lose as many
        # digits as sigma_1 / sigma_r has.
        U, sigma, V = svd(A)
        r = numerical_rank(sigma, N, M)
        if N <= M:
            return U[:, :r] @ U[:, :r].T, A.T
        return A, V[:, :r] @ V[:, :r].T
    C = as_matrix(C, "C")
    namespace(A, C)
    if tuple(C.shape) != (M, N):
        raise ValueError(f"C must have shape {(M, N)}, that of A^T, got {tuple(C.shape)}")
    A_C = check_finite(A @ C if N <= M else C @ A, "the product of A and C")
    return (A_C, A.T) if N <= M else (A, A_C.T)


def cosine(Q, K):
    r"""Feature maps of the cosine kernel (Eq. K.25), g(z) = z / |z|.

    .. math:: \Phi = [q_i^\top / \|q_i\|], \qquad \Psi = [k_j^\top / \|k_j\|]

    Parameters
    ----------
    Q : (N, d) array
        Queries.
    K : (M, d) array
        Keys.

    Returns
    -------
    Phi : (N, d) array
        Rows of length 1; a row of zeros stays zero.
    Psi : (M, d) array

    Raises
    ------
    TypeError, ValueError
        If an argument is not a real, finite matrix, or their numbers of columns differ.

    Examples
    --------
    >>> cosine([[3.0, 4.0]], [[0.0, 2.0]])
    (array([[0.6, 0.8]]), array([[0., 1.]]))
    """
    Q, K = as_pair(Q, K, ("Q", "K"))
    return unit_rows(Q), unit_rows(K)


def polynomial(X, Z, *, degree=2, gamma=1.0, coef0=1.0):
    r"""Feature maps of the polynomial kernel (Eq. S.8): all monomials of one degree in (x, 1).

    .. math:: (\gamma \langle x, z \rangle + c_0)^n = \sum_{|a| = n} \binom{n}{a}\,
              (\gamma x, c_0)^a\, (z, 1)^a

    The multinomial theorem. Both sides get the root of the weight; a negative sign goes to Psi.

    Parameters
    ----------
    X : (N, d) array
    Z : (M, d) array
    degree : int
        n ≥ 1.
    gamma, coef0 : float

    Returns
    -------
    Phi : (N, p) array
        p = (d + n)! / (d! n!), or (d + n - 1)! / ((d - 1)! n!) if coef0 = 0.
    Psi : (M, p) array

    Raises
    ------
    TypeError, ValueError
        As `cosine`, and if `degree` is no integer ≥ 1.

    Examples
    --------
    >>> Phi, Psi = polynomial([[1, 2]], [[3, 4]])               # (11 + 1)^2
    >>> Phi.shape, Phi @ Psi.T
    ((1, 6), array([[144.]]))
    """
    X, Z = as_pair(X, Z)
    degree = check_integer(degree, "degree", 1)
    xp = namespace(X, Z)
    weights = [check_number(gamma, "gamma")] * X.shape[1] + [check_number(coef0, "coef0")]
    used = range(X.shape[1] + (coef0 != 0))
    X, Z = ([*(A[:, f] for f in range(A.shape[1])), xp.ones_like(A[:, 0])] for A in (X, Z))
    Phi, Psi = [], []
    for a in combinations_with_replacement(used, degree):  # a = (0, 0, 2): x_0^2 x_2
        ways = factorial(degree) // prod(factorial(a.count(f)) for f in set(a))
        weight = ways * prod(weights[f] for f in a)
        root = abs(weight) ** 0.5
        Phi.append(root * prod(X[f] for f in a))
        Psi.append((root if weight > 0 else -root) * prod(Z[f] for f in a))
    return as_matrix(xp.stack(Phi, axis=1), "Phi"), as_matrix(xp.stack(Psi, axis=1), "Psi")


def positive_random(Q, K, *, m, seed):
    r"""Positive random features of the exponential kernel (Eq. S.32).

    .. math:: \phi(x) = \tfrac{1}{\sqrt m}\, e^{-\|x\|^2 / 2}
              (e^{w_1^\top x}, \dots, e^{w_m^\top x}), \qquad w_i \sim N(0, I)

    Their product estimates exp(<q, k>), without bias; the factor 1/sqrt(m) is needed for that
    (V21) and is missing where only a row-normalised kernel is wanted. For scores divided by
    sqrt(d), pass Q / d^(1/4) and K / d^(1/4). The estimator of Performer.

    Source: derived; Choromanski et al. 2021.

    Parameters
    ----------
    Q : (N, d) array
    K : (M, d) array
    m : int
        Number of features, ≥ 1.
    seed : int
        Drawn on the host with numpy.random.default_rng, so that every library sees the same
        numbers.

    Returns
    -------
    Phi : (N, m) array
        > 0.
    Psi : (M, m) array

    Raises
    ------
    TypeError, ValueError
        As `cosine`, if `m` is no integer ≥ 1, and if a feature overflows.

    Examples
    --------
    >>> Phi, Psi = positive_random([[0.0, 0.0]], [[0.0, 0.0]], m=3, seed=0)
    >>> Phi @ Psi.T                                             # exp(0), exactly
    array([[1.]])
    """
    Q, K = as_pair(Q, K, ("Q", "K"))
    xp = namespace(Q, K)
    m = check_integer(m, "m", 1)
    draw = np.random.default_rng(seed).standard_normal((Q.shape[1], m))
    W = xp.asarray(draw, **like(Q))

    def phi(X):
        with silent():
            logs = X @ W - 0.5 * xp.sum(X * X, axis=1, keepdims=True)      # (N, m)
        if not xp.max(logs) < 0.99 * float(np.log(float(xp.finfo(X.dtype).max))):      # NaN too
            raise ValueError("a random feature overflows: scale Q and K down")
        return xp.exp(logs) / float(m) ** 0.5
    return phi(Q), phi(K)


def data_dependent(Phi, Psi, F):
    r"""Feature maps under the data-dependent transform F = f(X), K = Φ FᵀF Ψᵀ (Eq. K.9).

    .. math:: \Phi F^\top, \; \Psi F^\top, \qquad K = \Phi (F^\top F) \Psi^\top

    A change of metric: the kernel of Primal-Attention with data-dependent weights (Chen et al.,
    NeurIPS 2023). Its rank is at most the number of columns of Phi, however many rows
    F has (V28).

    Source: derived.

    Parameters
    ----------
    Phi : (N, p) array
    Psi : (M, p) array
    F : (n, p) array

    Returns
    -------
    (N, n) array, (M, n) array

    Raises
    ------
    TypeError, ValueError
        If an argument is not a real, finite matrix, or their numbers of columns differ.

    Examples
    --------
    >>> data_dependent([[3.0]], [[1.0]], [[2.0], [0.0]])
    (array([[6., 0.]]), array([[2., 0.]]))
    """
    Phi, Psi = as_pair(Phi, Psi, ("Phi", "Psi"))
    Phi, F = as_pair(Phi, F, ("Phi", "F"))
    namespace(Phi, Psi, F)
    return check_finite(Phi @ F.T, "Phi F^T"), check_finite(Psi @ F.T, "Psi F^T")
