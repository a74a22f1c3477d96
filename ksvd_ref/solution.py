"""One matrix K = Phi Psi^T, solved by both routes: all that the equations speak of.

Phi, Psi          (N, p), (M, p)    features of the rows and of the columns, each of norm 1
H_e, sigma, H_r                     the dual half: from K alone (dual.py)
W_e, W_r          (p, s)            the primal half: from Phi and Psi alone (primal.py)
delta             (s,)              how well a component is determined: min(sigma_l, distance of
                                    sigma_l from the other sigma) / sigma_1, ties excepted
sigma_1                             |K|, by another way than the two solvers
cond                                |Phi| |Psi| / sigma_1: what forming Phi Psi^T itself may lose

Every equation is homogeneous in Phi and in Psi. Dividing them by their norms loses nothing, and
data of any size (1e-150, 1e150) can then be squared.

No equation: it solves, and equations.py says what must hold.
"""
from typing import Any, NamedTuple

import numpy as np

from . import dual, features, large, primal
from .backend import like, namespace
from .inputs import arrays
from .linalg import check_rank, numerical_rank, spectral_norm, svd

ROUNDINGS = 128.0       # how many an equation may be off; see Solution.rounding
STEPS = 4               # of subspace iteration


class Solution(NamedTuple):
    """Both halves of one matrix, and what they are compared with."""

    Phi: Any                # (N, p)
    Psi: Any                # (M, p)
    K: Any                  # (N, M)
    scale: float            # |Phi| |Psi| as they came: sigma * scale are the values of their K
    sigma_1: float          # |K|, from a Gram matrix
    rounding: float         # one rounding of this K, sqrt(max(N, M, p)) eps cond
    rank: int               # numerical rank of K

    H_e: Any                # (N, s)   from K alone
    sigma: Any              # (s,)
    H_r: Any                # (M, s)
    E: Any                  # (N, s)   K H_r
    R: Any                  # (M, s)   K^T H_e
    Lambda: Any             # (s,)     1 / sigma
    spectrum: Any           # (min(N, M),) or (p,)   all that can be nonzero

    W_e: Any                # (p, s)   from Phi and Psi alone
    W_r: Any                # (p, s)
    primal_spectrum: Any    # (min(N, M, p),)   all singular values

    delta: Any              # (s,)     how well each component is determined, at most 1
    aligned: Any            # H_e, H_r in the basis and with the signs of the primal
    pca: Any                # Primal of Psi = Phi
    transposed: Any         # Primal of K^T
    given: Any              # (N, M)   the bare matrix, as the reader gave it
    compatible: Any         # its feature maps
    trial: Any              # A (N, s), B (M, s): orthonormal, A^T K B diagonal, by iteration
    Phi_new: Any            # (3, p)   features of new rows x, no mixtures of the old ones
    Psi_new: Any            # (3, p)   features of new columns z
    K_rows: Any             # (3, M)   kappa(x, z_j)
    K_columns: Any          # (N, 3)   kappa(x_i, z)
    probe: Any              # W_e, W_r (p, 3), Lambda (3,) that are no solution
    directions: Any         # three pairs like W_e, W_r of the probe

    @property
    def eye(self):
        """The identity of as many rows as there are components."""
        return namespace(self.K).eye(self.sigma.shape[0], **like(self.K))

    @property
    def remarks(self):
        """What a reader should know who compares vectors: a list of sentences, mostly empty."""
        s, tolerance = self.sigma.shape[0], ROUNDINGS * self.rounding
        if s == self.rank or self.spectrum[s - 1] - self.spectrum[s] > tolerance * self.sigma_1:
            return []
        return [f"σ_{s} and σ_{s + 1} agree to rounding, and {s} components cut between them: the "
                "vectors kept of this σ are not unique"]

    def J(self, W_e, W_r, Lambda):
        """`primal.objective` at these weights."""
        return primal.objective(W_e, W_r, Lambda, self.Phi, self.Psi)

    def dJ(self, W_e, W_r, Lambda):
        """`primal.gradient` at these weights."""
        return primal.gradient(W_e, W_r, Lambda, self.Phi, self.Psi)

    def shifted(self, H_e, H_r):
        """[0 K; Kᵀ 0] [Hₑ; Hᵣ] as two blocks; the matrix is formed only while it is small."""
        N, M = self.K.shape
        if N + M > 1000:
            return self.K @ H_r, self.K.T @ H_e
        S = dual.shifted_matrix(self.K)
        product = S[:, :N] @ H_e + S[:, N:] @ H_r
        return product[:N, :], product[N:, :]

    def size(self, terms):
        """How far off an equation is: the largest of its terms, a number that is 0 on paper."""
        sizes, sigma_1 = [], self.sigma_1
        for term in terms:
            if isinstance(term, Weighted):
                sizes += [_norm(A, term.weight) for A in term.differences]
            elif isinstance(term, Lengths):
                sizes.append(abs(_norm(term.one) - _norm(term.other)) / sigma_1)
            else:
                sizes.append(_norm(term) / sigma_1)
        return float(np.max(sizes))                 # NaN if one is


class Weighted:
    """Differences that do not have the unit of K: a weight for all of them, or for each column."""

    def __init__(self, weight, *differences):
        self.weight, self.differences = weight, differences


class Lengths(NamedTuple):
    """Two arrays, in the unit of K, of one norm."""

    one: Any
    other: Any


def _norm(A, weight=1):
    """Frobenius norm, times a number; or the largest norm of a column, each with its weight."""
    xp = namespace(A)
    axis = 0 if getattr(weight, "shape", ()) else None
    return float(xp.max(xp.sqrt(xp.sum(A * A, axis=axis)) * abs(weight)))


@arrays(Phi="N p", Psi="M p", given="N M")
def solution(Phi, Psi, *, rank=None, given=None):
    """Dual and primal solution of K = Phi Psi^T, each by its own route.

    rank: number of components, from 1 to the numerical rank of K, since Lambda = 1 / sigma, and
    that unless told. given: the matrix whose compatible maps Phi and Psi are, if they are.

    >>> solution([[2, 0], [0, 1]], [[1, 0], [0, 1]]).Lambda                # K / 2 = diag(1, 1/2)
    array([1., 2.])
    """
    Phi, Psi, K, norms = _of_norm_1(Phi, Psi)
    (N, p), M = Phi.shape, Psi.shape[0]
    low = has_low_rank(N, M, p)                     # p components are all that there are
    sigma_1 = spectral_norm(Phi @ namespace(Psi).linalg.qr(Psi)[1].T if low else K)     # |K|
    H_e, spectrum, H_r = large.golub_kahan(K, p) if low else dual.solve(K, min(N, M))
    W_e, primal_spectrum, W_r = primal.solve(Phi, Psi, min(N, M, p))
    r, rounding = _rank(Phi, Psi, spectrum[:primal_spectrum.shape[0]], sigma_1)
    s = check_rank(rank, r, f"K of numerical rank {r} (Lambda = 1 / sigma needs sigma > 0)") or r
    # Ties are aligned before the cut: a rank that cuts through one leaves the kept vectors open.
    H_e, H_r, W_e, W_r = (A[:, :r] for A in (H_e, H_r, W_e, W_r))
    T, delta = _alignment(H_e, spectrum[:r], H_r, Phi @ W_e, Psi @ W_r, sigma_1)
    if given is None:                               # from the few components, if they are few
        given, compatible = K, (_compatible(K, H_e, spectrum[:r], H_r) if low
                                else features.compatible(K))
    else:
        given, compatible = given / norms[0] / norms[1], (Phi, Psi)
    found = dual.Dual(H_e[:, :s], spectrum[:s], H_r[:, :s])
    return Solution(
        Phi=Phi, Psi=Psi, K=K, scale=norms[0] * norms[1], sigma_1=sigma_1, rounding=rounding,
        rank=r, **found._asdict(), E=K @ found.H_r, R=K.T @ found.H_e,
        Lambda=1.0 / found.sigma, spectrum=spectrum,
        W_e=W_e[:, :s], W_r=W_r[:, :s], primal_spectrum=primal_spectrum, delta=delta[:s],
        aligned=((H_e @ T)[:, :s], (H_r @ T)[:, :s]), pca=primal.solve(Phi, Phi),
        transposed=primal.solve(Psi, Phi, s), given=given, compatible=compatible,
        **_drawn(Phi, Psi, K, s))


def has_low_rank(N, M, p):
    """Whether K has so few features that block Golub-Kahan finds its spectrum before the SVD does.

    >>> has_low_rank(1000, 2000, 64), has_low_rank(64, 64, 32)
    (True, False)
    """
    return min(N, M) > 500 and 10 * p <= min(N, M)


def _of_norm_1(Phi, Psi):
    """Both features divided by their norms, their K, and the norms."""
    norms = spectral_norm(Phi), spectral_norm(Psi)
    if not 0.0 < norms[0] * norms[1] < float(namespace(Phi).finfo(Phi.dtype).max):
        raise ValueError("K = Phi Psi^T must not be zero, nor overflow or underflow: got features "
                         f"of norms {norms[0]:.3g} and {norms[1]:.3g}")
    Phi, Psi = Phi / norms[0], Psi / norms[1]
    return Phi, Psi, Phi @ Psi.T, norms


def _compatible(K, H_e, sigma, H_r):
    """Compatible maps with K⁺ = Hᵣ Σ⁻¹ Hₑᵀ, as `features.compatible` without its SVD of K."""
    # K⁺ as a matrix would lose as many digits as sigma_1 / sigma_r has; K H_r, of size sigma, none.
    if K.shape[0] <= K.shape[1]:
        return K @ H_r / sigma @ H_e.T, K.T
    return K, K.T @ H_e / sigma @ H_r.T


def _rank(Phi, Psi, spectrum, sigma_1):
    """Numerical rank of K, and the size of one rounding, relative to sigma_1."""
    (N, p), M = Phi.shape, Psi.shape[0]
    r = numerical_rank(spectrum, N, M, 1.0)
    if r == 0:
        raise ValueError("K = Phi Psi^T must not be zero, got numerical rank 0: nothing to verify")
    # Rounding in an SVD or a QR adds up like a random walk. The coarser of two precisions counts.
    eps = max(float(namespace(A).finfo(A.dtype).eps) for A in (Phi, Psi))
    rounding = max(N, M, p) ** 0.5 * eps / sigma_1
    if ROUNDINGS * rounding > 0.01:
        raise ValueError(f"sigma_1 = {sigma_1:.1e} |Phi| |Psi| is lost in rounding: "
                         f"{spectrum.dtype} cannot verify anything here")
    return r, rounding


def _alignment(H_e, sigma, H_r, E, R, top):
    """T that turns the dual vectors to the primal ones, within what V12, V13 leave free; delta."""
    xp = namespace(H_e, H_r)
    gap = xp.abs(sigma[:, None] - sigma[None, :])
    tied = gap <= top * float(xp.finfo(sigma.dtype).eps) ** (1 / 3)
    # H_e^T E = T Sigma on paper, so T is its polar factor: 1 or -1 for a single sigma.
    U, _, V = svd(xp.where(tied, H_e.T @ E + H_r.T @ R, 0.0))
    return U @ V.T, xp.minimum(sigma, xp.min(xp.where(tied, top, gap), axis=1)) / top


def _drawn(Phi, Psi, K, s):
    """What is drawn: new rows and columns, weights that are no solution, a subspace to start."""
    xp, rng = namespace(Phi, Psi), np.random.default_rng(0)
    M, p = Psi.shape

    def draw(*shape):
        return xp.asarray(rng.standard_normal(shape) / max(shape) ** 0.5, **like(Phi))
    Phi_new, Psi_new = draw(3, p), draw(3, p)       # in all p dimensions
    return {"Phi_new": Phi_new, "Psi_new": Psi_new,
            "K_rows": Phi_new @ Psi.T, "K_columns": Phi @ Psi_new.T,
            "probe": (draw(p, 3), draw(p, 3), 0.1 + xp.abs(draw(3))),
            "directions": [(draw(p, 3), draw(p, 3)) for _ in range(3)],
            "trial": _iterated(K, draw(M, s))}


def _iterated(K, B):
    """Orthonormal A, B with a diagonal AᵀKB after a few steps of subspace iteration."""
    qr = namespace(K, B).linalg.qr
    for _ in range(STEPS if B.shape[1] < min(K.shape) else 1):      # all there is needs no search
        A = qr(K @ B)[0]
        B = qr(K.T @ A)[0]
    X, _, Y = svd(A.T @ (K @ B))
    return A @ X, B @ Y
