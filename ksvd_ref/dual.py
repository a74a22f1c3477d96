"""Dual side: K H_r = H_e Sigma and K^T H_e = H_r Sigma (K.15), from the kernel matrix alone.

K          (N, M)            kernel matrix, K_ij = phi(x_i)^T psi(z_j); any real matrix
H_e, H_r   (N, s), (M, s)    dual variables: left and right singular vectors, as columns
sigma      (s,)              singular values, descending, >= 0
E, R       (N, s), (M, s)    scores: E = K H_r = H_e Sigma, R = K^T H_e = H_r Sigma

Phi and Psi do not occur here (see primal.py), and nothing is centred (see kernels.center).
H_e^T H_e = I = H_r^T H_r is a normalisation that we add: stationarity leaves the scale free.
The largest entry of each column of H_e is positive (linalg.one_sign). What is refused: inputs.py.
"""
from typing import Any, NamedTuple

from .backend import like, namespace
from .inputs import arrays
from .linalg import eigh, one_sign, rank_rule, svd


class Dual(NamedTuple):
    """Left and right singular vectors, and the singular values."""

    H_e: Any          # (N, s)
    sigma: Any        # (s,)
    H_r: Any          # (M, s)


DUAL = {"H_e": "N s", "sigma": "s", "H_r": "M s"}


@arrays(K="N M")
def solve(K, rank=None):
    """Dual solution by the SVD, K Hᵣ = Hₑ Σ,  Kᵀ Hₑ = Hᵣ Σ,  Σ = Λ⁻¹ (Eq. K.15).

    What the stationarity conditions of the primal problem leave once W_e and W_r are eliminated.
    Returns Dual(H_e (N, s), sigma (s,), H_r (M, s)). rank: `linalg.rank_rule`. Differentiable;
    where sigma repeats once, and for K H_r and K H_r H_rᵀ but not H_e Σ H_rᵀ (`linalg.svd` says
    why). Components at rounding level get no derivative.

    Source: Chen et al. 2023; Lanczos 1958.

    >>> solve([[0.0, 2.0], [-1.0, 0.0]])[1:]         # the second pair: K (-1, 0) = 1 (0, 1)
    (array([2., 1.]), array([[ 0., -1.],
           [ 1.,  0.]]))
    """
    kept = rank_rule(rank, *K.shape)                 # a bad rank is refused before the work
    H_e, sigma, H_r = svd(K)
    s = kept(sigma)
    return one_sign(Dual(H_e[:, :s], sigma[:s], H_r[:, :s]), by=H_e[:, :s])


@arrays(K="N M")
def solve_shifted(K, rank=None):
    """Dual solution by one eigenproblem, [0 K; Kᵀ 0] [hₑ; hᵣ] = σ [hₑ; hᵣ] (Eq. K.16).

    The literal transcription of the theory, to check `solve` with: three times as slow, 20 times
    the memory of K. The eigenvalues are +sigma, -sigma and N + M - 2 rank(K) zeros. Vectors lose
    orthogonality as eps sigma_1 / sigma_l, since +sigma_l and -sigma_l are neighbours; the values
    keep their accuracy.

    >>> solve_shifted([[0.0, 2.0], [-1.0, 0.0]]).sigma
    array([2., 1.])
    """
    xp, (N, M) = namespace(K), K.shape
    kept = rank_rule(rank, N, M)
    sigma, H = eigh(shifted_matrix(K))
    sigma, H = sigma[::-1][:min(N, M)], H[:, ::-1]              # descending: +sigma, 0, -sigma
    s, r = kept(sigma, N + M), rank_rule(None, N, M)(sigma, N + M)
    # A unit eigenvector of sigma > 0 has two halves of squared norm 1/2, hence the root of 2. Those
    # of 0 split in any way, 0.989 : 0.011 for one, so a basis of each complement replaces them.
    H_e, H_r = (_complete(2.0 ** 0.5 * half[:, :min(r, s)], s) for half in (H[:N, :], H[N:, :]))
    return one_sign(Dual(H_e, xp.maximum(sigma[:s], 0.0), H_r), by=H_e)


def _complete(H, s):
    """Columns of H and an orthonormal basis of their complement, s in all."""
    xp, missing = namespace(H), s - H.shape[1]
    if missing == 0:
        return H
    outside = xp.eye(H.shape[0], **like(H)) - H @ H.T           # projector: eigenvalues 0 and 1
    extra = eigh(outside)[1][:, -missing:]
    return xp.stack([A[:, l] for A in (H, extra) for l in range(A.shape[1])], axis=1)


@arrays(K="N M")
def shifted_matrix(K):
    """Symmetric block matrix of the shifted eigenproblem (Eq. K.16), (N + M, N + M).

    >>> shifted_matrix([[2.0, 3.0]])
    array([[0., 2., 3.],
           [2., 0., 0.],
           [3., 0., 0.]])
    """
    N, M = K.shape
    eye = namespace(K).eye(N + M, **like(K))
    corner = eye[:, :N] @ K @ eye[N:, :]                        # K at the upper right
    return corner + corner.T


@arrays(dual=DUAL, K_new="n M")
def e_scores(K_new, dual):
    """Left scores of rows x from the dual side, e(x) = Σⱼ h_rj κ(x, zⱼ), E = K H_r (Eq. K.20).

    K_new holds κ(x, z_j) against the training columns. The training rows have E = H_e Sigma (K.21).

    Source: Chen et al. 2023, Remark 3.3.

    >>> e_scores([[2.0, 0.0]], ([[1, 0], [0, 1]], [2, 1], [[1, 0], [0, 1]]))
    array([[2., 0.]])
    """
    H_e, sigma, H_r = dual
    return K_new @ H_r


@arrays(dual=DUAL, K_new="N n")
def r_scores(K_new, dual):
    """Right scores of columns z from the dual side, r(z) = Σᵢ h_ei κ(xᵢ, z), R = KᵀH_e (Eq. K.20).

    Source: Chen et al. 2023, Remark 3.3.

    >>> r_scores([[2.0], [0.0]], ([[1, 0], [0, 1]], [2, 1], [[1, 0], [0, 1]]))
    array([[2., 0.]])
    """
    H_e, sigma, H_r = dual
    return K_new.T @ H_e
