"""Primal side: pairs of feature matrices Phi and Psi with K = Phi Psi^T.

Phi, Psi   (N, p), (M, p)    features of the rows and of the columns, phi(x_i)^T and psi(z_j)^T
A, C       (N, M), (M, N)    any real matrix, and Suykens' compatibility matrix

The maps of one kernel are not unique: (Phi T, Psi T^-T) has the same K for every regular T (V24).
What is refused: inputs.py.
"""
from itertools import combinations_with_replacement
from math import factorial, prod

import numpy as np

from .backend import like, namespace
from .inputs import TOO_LARGE, arrays, integer, number
from .linalg import numerical_rank, svd, unit_rows


@arrays(A="N M", C="M N")
def compatible(A, C=None):
    """Feature maps of any real matrix, Φ = A C, Ψ = Aᵀ: its own rows and columns (Eq. K.33).

    Rows live in R^M and columns in R^N, so one side must be carried over, φ(x) = Cᵀx, ψ(z) = z. If
    M < N the mirror image is used, Φ = A, Ψ = (C A)ᵀ, which keeps p = min(N, M). The kernel is A
    itself if and only if A C A = A (V25), as for C = pinv(A), the default; any other C gives the
    SVD of A C A (Suykens, ACHA 40, 2016). One of both is a view of A.

    >>> Phi, Psi = compatible([[2.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    >>> Phi @ Psi.T
    array([[2., 0., 0.],
           [0., 1., 0.]])
    """
    N, M = A.shape
    if C is not None:
        return (A @ C, A.T) if N <= M else (A, (C @ A).T)
    # A pinv(A) is the projector U U^T on the columns of A. Multiplied out it would lose as many
    # digits as sigma_1 / sigma_r has.
    U, sigma, V = svd(A)
    r = numerical_rank(sigma, N, M)
    return (U[:, :r] @ U[:, :r].T, A.T) if N <= M else (A, V[:, :r] @ V[:, :r].T)


@arrays(Q="N d", K="M d")
def cosine(Q, K):
    """Feature maps of the cosine kernel, φ(q) = q/‖q‖ (Eq. K.25); a row of zeros stays zero.

    >>> cosine([[3.0, 4.0]], [[0.0, 2.0]])
    (array([[0.6, 0.8]]), array([[0., 1.]]))
    """
    return unit_rows(Q), unit_rows(K)


@arrays(X="N d", Z="M d", degree=integer(1), gamma=number(), coef0=number())
def polynomial(X, Z, *, degree=2, gamma=1.0, coef0=1.0):
    """Feature maps of the polynomial kernel (Eq. S.8): all monomials of one degree n in (x, 1).

    (γ⟨x, z⟩ + c)ⁿ = Σ_|a|=n (n over a) (γx, c)^a (z, 1)^a, the multinomial theorem. Both sides get
    the root of the weight; a negative sign goes to Psi. p = (d + n)! / (d! n!), or that of d - 1 if
    coef0 = 0.

    >>> Phi, Psi = polynomial([[1, 2]], [[3, 4]])               # (11 + 1)^2
    >>> Phi.shape, Phi @ Psi.T
    ((1, 6), array([[144.]]))
    """
    xp = namespace(X, Z)
    weights, used = [gamma] * X.shape[1] + [coef0], range(X.shape[1] + (coef0 != 0))
    X, Z = ([*(A[:, f] for f in range(A.shape[1])), xp.ones_like(A[:, 0])] for A in (X, Z))
    Phi, Psi = [], []
    for a in combinations_with_replacement(used, degree):       # a = (0, 0, 2): x_0^2 x_2
        ways = factorial(degree) // prod(factorial(a.count(f)) for f in set(a))
        weight = ways * prod(weights[f] for f in a)
        root = abs(weight) ** 0.5
        Phi.append(root * prod(X[f] for f in a))
        Psi.append((root if weight > 0 else -root) * prod(Z[f] for f in a))
    return xp.stack(Phi, axis=1), xp.stack(Psi, axis=1)


@arrays(Q="N d", K="M d", m=integer(1), seed=integer(0), cure=TOO_LARGE + ": scale Q and K down")
def positive_random(Q, K, *, m, seed):
    """Positive random features, φ(x) = e^{−‖x‖²/2} (e^{w₁ᵀx}, …, e^{w_mᵀx})/√m (Eq. S.32).

    With w_i from N(0, I) their product estimates exp(⟨q, k⟩) without bias; 1/√m is needed for that
    (V21). For scores divided by √d, pass Q / d^(1/4) and K / d^(1/4). The estimator of Performer.
    The draw is made on the host, so that every library sees the same numbers.

    Source: derived; Choromanski et al. 2021.

    >>> Phi, Psi = positive_random([[0.0, 0.0]], [[0.0, 0.0]], m=3, seed=0)
    >>> Phi @ Psi.T                                             # exp(0), exactly
    array([[1.]])
    """
    xp = namespace(Q, K)
    W = xp.asarray(np.random.default_rng(seed).standard_normal((Q.shape[1], m)), **like(Q))

    def phi(X):
        return xp.exp(X @ W - 0.5 * xp.sum(X * X, axis=1, keepdims=True)) / float(m) ** 0.5
    return phi(Q), phi(K)


@arrays(Phi="N p", Psi="M p", F="n p")
def data_dependent(Phi, Psi, F):
    """Feature maps under the data-dependent transform F = f(X), K = Φ FᵀF Ψᵀ (Eq. K.9).

    A change of metric: the kernel of Primal-Attention with data-dependent weights. Its rank is at
    most the number of columns of Phi, however many rows F has (V28). Returns (N, n), (M, n).

    Source: derived.

    >>> data_dependent([[3.0]], [[1.0]], [[2.0], [0.0]])
    (array([[6., 0.]]), array([[2., 0.]]))
    """
    return Phi @ F.T, Psi @ F.T
