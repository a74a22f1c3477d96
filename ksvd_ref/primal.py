"""Primal side: the weights W_e, W_r from the features Phi and Psi. K is never formed.

Phi, Psi   (N, p), (M, p)    features of the rows and of the columns, K = Phi Psi^T
W_e, W_r   (p, s)            primal weights: W_e = Psi^T H_r, W_r = Phi^T H_e (the sides cross)
sigma      (s,)              singular values of K, descending, >= 0
Lambda     (s,)              weights of the objective, 1 / sigma at a solution
E, R       (N, s), (M, s)    scores: E = Phi W_e, R = Psi W_r

The objective J is a saddle (lesson 04): it is solved here by linear algebra, not by ascent.
The largest entry of each column of E is positive (linalg.one_sign). What is refused: inputs.py.
"""
from typing import Any, NamedTuple

import autograd.numpy as anp
from autograd.tracer import getval

from .backend import namespace
from .inputs import arrays
from .linalg import in_range, numerical_rank, one_sign, rank_rule, spectral_norm, svd
from .triangles import exact, traced


class Primal(NamedTuple):
    """Weights of both sides, as columns, and the singular values."""

    W_e: Any          # (p, s)
    sigma: Any        # (s,)
    W_r: Any          # (p, s)


PRIMAL = {"W_e": "p s", "sigma": "s", "W_r": "p s"}
DUAL = {"H_e": "N s", "sigma": "s", "H_r": "M s"}
FACTORS = {"A": "p s", "B": "p s", "Phi": "N p", "Psi": "M p"}
POINT = {"W_e": "p s", "W_r": "p s", "Lambda": "s", "Phi": "N p", "Psi": "M p"}


@arrays(Phi="~N p", Psi="~M p")                     # the Gram matrix shows NaN and infinity
def solve(Phi, Psi, rank=None):
    """Primal solution without K, T_φ T_ψᵀ = U Σ Vᵀ,  Wₑ = T_ψᵀ V,  Wᵣ = T_φᵀ U (Eq. K.39).

    With Φ = Q_φ T_φ, Ψ = Q_ψ T_ψ the singular vectors of K = Φ Ψᵀ are Q_φ U and Q_ψ V, so these are
    Wₑ = Ψᵀ Hᵣ and Wᵣ = Φᵀ Hₑ (K.12). Exact, O((N + M) p² + p³) where a side has p rows or more.
    Nothing is divided by sigma, and Q is never needed: `triangles` makes the T.
    rank: `linalg.rank_rule`, cut at ‖Φ‖₂‖Ψ‖₂ max(N, M) eps, since K is not known better than that.
    Differentiable; where sigma repeats once, and for E and W_e W_rᵀ but not E Σ⁻¹ (`linalg.svd`).

    >>> solve([[2.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]]).sigma    # K = diag(2, 1)
    array([2., 1.])
    """
    (N, p), M = Phi.shape, Psi.shape[0]
    kept = rank_rule(rank, N, M, p)
    route = traced if namespace(Phi, Psi) is anp else exact
    W_e, sigma, W_r, norm = route(Phi, Psi, rank or min(N, M, p))
    s = kept(sigma, norm=norm)
    return one_sign(Primal(W_e[:, :s], sigma[:s], W_r[:, :s]), by=(W_e[:, :s].T @ Phi.T).T)


@arrays(**POINT)
def objective(W_e, W_r, Lambda, Phi, Psi):
    """Objective, J = ½ tr EΛEᵀ + ½ tr RΛRᵀ − tr WₑᵀWᵣ, with E = ΦWₑ, R = ΨWᵣ (Eq. K.10).

    Unbounded above, and below too unless Phi and Psi have rank p and every lambda is at least
    1 / sigma_p (V8). It is 0 at every solution (K.22) and at many points that are none (V5): the
    test for a solution is `stationarity`.

    >>> import numpy as np
    >>> one = np.ones((2, 1))
    >>> objective(one, one, [1.0], np.diag([2.0, 1.0]), np.eye(2))         # 5/2 + 2/2 - 2
    np.float64(1.5)
    """
    xp = namespace(W_e, W_r, Lambda, Phi, Psi)
    E, R = Phi @ W_e, Psi @ W_r
    return (xp.sum(Lambda * E * E) + xp.sum(Lambda * R * R)) / 2 - xp.sum(W_e * W_r)


@arrays(**POINT)
def gradient(W_e, W_r, Lambda, Phi, Psi):
    """Gradient, ∂J/∂Wₑ = ΦᵀΦ Wₑ Λ − Wᵣ,  ∂J/∂Wᵣ = ΨᵀΨ Wᵣ Λ − Wₑ (Eq. K.18).

    It vanishes exactly at the solutions (K.17).

    >>> import numpy as np
    >>> one = np.ones((2, 1))
    >>> gradient(one, one, [0.5], np.diag([2.0, 1.0]), np.eye(2))[0]       # 4/2 - 1, 1/2 - 1
    array([[ 1. ],
           [-0.5]])
    """
    return Phi.T @ (Phi @ W_e * Lambda) - W_r, Psi.T @ (Psi @ W_r * Lambda) - W_e


@arrays(**POINT)
def stationarity(W_e, W_r, Lambda, Phi, Psi):
    """Residual of ΦᵀΦ Wₑ Λ = Wᵣ,  ΨᵀΨ Wᵣ Λ = Wₑ: how far a point is from a solution (Eq. K.17).

    For each column of each equation the size of the difference over the sizes of its two sides; the
    largest of all, so that a wrong column beside a right one a thousand times as long is seen.
    Between 0, at a solution, and 1. Unlike J it is not zero elsewhere, columns of 0 excepted.
    Costs O((N + M) p s), and K never occurs.

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
        square = xp.sum(A * A, axis=0)
        return xp.where(square > 0.0, xp.sqrt(xp.where(square > 0.0, square, 1.0)), 0.0)

    def ratio(difference, side):                     # it has no scale, and squares of 1e-200 are 0
        top = xp.max(xp.maximum(xp.abs(difference), xp.abs(side)), axis=0)
        top = getval(xp.where(top > 0.0, top, 1.0))
        difference, side = difference / top, side / top
        whole = size(difference + side) + size(side)
        return size(difference) / xp.where(whole > 0.0, whole, 1.0)
    return xp.max(xp.maximum(ratio(dW_e, W_r), ratio(dW_r, W_e)))


@arrays(**FACTORS)
def approximation_loss(A, B, Phi, Psi):
    """A loss whose minimum is the KSVD, L = ½ ‖K − ΦA(ΨB)ᵀ‖² − ½ ‖K‖² (Eq. K.41).

    As ½ ⟨EᵀE, RᵀR⟩ − ⟨ΦᵀE, ΨᵀR⟩ with E = ΦA, R = ΨB: O((N + M) p s), without K. J is zero at any
    components, and elsewhere; the minima here are the s leading ones alone, −½ Σ_{l≤s} σ_l², at
    A = W_eΣ^(−½)T, B = W_rΣ^(−½)T^(−T) for any regular T (K.42): a pair of spans, of which
    `from_factors` has the vectors.

    Source: derived; Baldi and Hornik 1989.

    >>> approximation_loss([[1.0]], [[1.0]], [[2.0]], [[3.0]])  # K = 6, found: -36 / 2
    np.float64(-18.0)
    """
    xp = namespace(A, B, Phi, Psi)
    E, R = Phi @ A, Psi @ B
    return xp.sum((E.T @ E) * (R.T @ R)) / 2 - xp.sum((Phi.T @ E) * (Psi.T @ R))


@arrays(**FACTORS)
def approximation_gradient(A, B, Phi, Psi):
    """Its gradient, ∂L/∂A = GA(BᵀHB) − GHB,  ∂L/∂B = HB(AᵀGA) − HGA, G = ΦᵀΦ, H = ΨᵀΨ (Eq. K.41).

    >>> approximation_gradient([[1.0]], [[2.0]], [[1.0]], [[1.0]])         # E Rᵀ = 2, K = 1
    (array([[2.]]), array([[1.]]))
    """
    E, R = Phi @ A, Psi @ B
    return (Phi.T @ (E @ (R.T @ R) - Phi @ (Psi.T @ R)),
            Psi.T @ (R @ (E.T @ E) - Psi @ (Phi.T @ E)))


@arrays(**FACTORS, cure="K = Phi Psi^T is zero, or the factors are too large")
def missed_share(A, B, Phi, Psi):
    """The share of K that two factors miss, ‖K − ΦA(ΨB)ᵀ‖²/‖K‖² = 1 + 2L/‖K‖² (Eq. K.41).

    From 0 up; above 1 it is worse than nothing. ‖K‖² = ⟨ΦᵀΦ, ΨᵀΨ⟩.

    >>> missed_share([[1], [0]], [[1], [0]], [[2, 0], [0, 1]], [[1, 0], [0, 1]])   # 1 of 4 + 1
    np.float64(0.2)
    """
    Phi, Psi = in_range(Phi), in_range(Psi)          # the share has no scale
    norm_2 = namespace(Phi, Psi).sum((Phi.T @ Phi) * (Psi.T @ Psi))
    return 1.0 + 2.0 * approximation_loss(A, B, Phi, Psi) / norm_2


@arrays(**FACTORS)
def from_factors(A, B, Phi, Psi):
    """The KSVD in the spans of two factors, ΦA = Q_a T_a, ΨB = Q_b T_b, T_a T_bᵀ = uΣvᵀ (Eq. K.43).

    H_e = Q_a u, H_r = Q_b v, and W_e, W_r as from any dual variables (K.12): min(s, N, M)
    components, those of sigma = 0 too. At a minimiser of `approximation_loss` that is the KSVD of K
    without K.

    Source: derived.

    >>> from_factors([[1], [0]], [[1], [0]], [[2, 0], [0, 1]], [[1, 0], [0, 1]]).sigma
    array([2.])
    """
    xp = namespace(A, B, Phi, Psi)
    if xp is anp:
        raise TypeError("from_factors cannot be differentiated: primal.solve can")
    (Q_a, T_a), (Q_b, T_b) = (tuple(xp.linalg.qr(S)) for S in (Phi @ A, Psi @ B))
    u, sigma, v = svd(T_a @ T_b.T)
    H_e, H_r = Q_a @ u, Q_b @ v
    return one_sign(Primal(Psi.T @ H_r, sigma, Phi.T @ H_e), by=H_e)


@arrays(dual=DUAL, Phi="N p", Psi="M p")
def from_dual(dual, Phi, Psi):
    """Primal weights of a dual solution, Wₑ = Ψᵀ Hᵣ and Wᵣ = Φᵀ Hₑ (Eq. K.12).

    The sides cross: the columns make the weights that score rows.

    >>> import numpy as np
    >>> dual = (np.eye(2), np.array([2.0, 1.0]), np.eye(2))                # K = diag(2, 1)
    >>> from_dual(dual, np.diag([2.0, 1.0]), np.eye(2)).W_r
    array([[2., 0.],
           [0., 1.]])
    """
    H_e, sigma, H_r = dual
    return Primal(Psi.T @ H_r, sigma, Phi.T @ H_e)


@arrays(primal=PRIMAL, Phi="N p", Psi="M p")
def to_dual(primal, Phi, Psi):
    """Dual variables of a primal solution, Hₑ = Φ Wₑ Σ⁻¹ and Hᵣ = Ψ Wᵣ Σ⁻¹ (Eq. K.13).

    Returns H_e (N, s), sigma (s,), H_r (M, s). The one place where the primal divides by sigma: one
    that is zero by the rank rule of `solve` is refused. Differentiate E and R where sigma repeats.

    >>> import numpy as np
    >>> Phi, Psi = np.diag([2.0, 1.0]), np.eye(2)
    >>> to_dual(solve(Phi, Psi), Phi, Psi)[0]
    array([[1., 0.],
           [0., 1.]])
    """
    W_e, sigma, W_r = primal
    norm = spectral_norm(getval(Phi)) * spectral_norm(getval(Psi))
    s, r = sigma.shape[0], numerical_rank(sigma, Phi.shape[0], Psi.shape[0], norm)
    if r < s:
        raise ValueError(f"Lambda = 1 / sigma needs sigma > 0: numerical rank {r} expected at "
                         f"most, got {s} components: solve without a rank")
    return Phi @ W_e / sigma, sigma, Psi @ W_r / sigma


@arrays(primal=PRIMAL, Phi_new="~n p")              # the product shows NaN, in a third of the time
def e_scores(Phi_new, primal):
    """Left scores of rows from the primal side, e(x) = Wₑᵀ φ(x), E = Φ Wₑ (Eq. K.20).

    Source: Chen et al. 2023, Remark 3.3.

    >>> e_scores([[1.0, 3.0]], ([[1, 0], [0, 1]], [2, 1], [[2, 0], [0, 1]]))
    array([[1., 3.]])
    """
    W_e, sigma, W_r = primal
    return Phi_new @ W_e


@arrays(primal=PRIMAL, Psi_new="~n p")
def r_scores(Psi_new, primal):
    """Right scores of columns from the primal side, r(z) = Wᵣᵀ ψ(z), R = Ψ Wᵣ (Eq. K.20).

    Source: Chen et al. 2023, Remark 3.3.

    >>> r_scores([[1.0, 3.0]], ([[1, 0], [0, 1]], [2, 1], [[2, 0], [0, 1]]))
    array([[2., 3.]])
    """
    W_e, sigma, W_r = primal
    return Psi_new @ W_r
