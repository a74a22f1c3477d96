"""Every numbered equation of the derivation, as a residual on the matrix in your hand.

One function per equation. It takes a `Solution`, in which the dual half (H_e, sigma, H_r, E, R)
was computed from K alone and the primal half (W_e, W_r) from Phi and Psi alone, and returns one
number that is zero on paper: relative to sigma_1, and with component l weighted by sigma_l where
Lambda occurs and by delta_l where vectors of both halves meet, since rounding turns a singular
vector by about eps / delta_l.

delta_l    min(sigma_l, distance of sigma_l from the other sigma) / sigma_1, ties excepted
C          the tolerance is C sqrt(max(N, M, p)) eps kappa: rounding in an SVD or a QR adds up like
           a random walk; kappa = |Phi| |Psi| / sigma_1 is what forming Phi Psi^T itself may lose.

The joint sign of a pair and the basis of a repeated sigma are free (V12, V13). Equations in which
both halves meet take the dual vectors turned within that freedom, and no further (`turned`).

K.n are the tags of the equations, Vn those of the claims that are identities, EY is Eckart-Young.
V5 and V7 are counter-examples and V9 is a count: lesson 05 has them.

No equation: beside the residuals it solves, lists and judges.
"""
import re
from typing import Any, NamedTuple

import numpy as np

from . import dual, features, large, primal
from .backend import as_matrix, as_pair, like, namespace
from .linalg import check_rank, numerical_rank, spectral_norm, svd

C = 128.0
EQUATIONS = []          # in the order of the derivation, filled by @equation


class Residual(NamedTuple):
    """What one equation says of a matrix."""

    tag: str
    statement: str
    source: str
    value: float          # 0 on paper
    tolerance: float
    ok: bool              # value <= tolerance


class Solution(NamedTuple):
    """Everything the equations speak of, for one matrix K = Phi Psi^T with |Phi| = |Psi| = 1."""

    Phi: Any                # (N, p)
    Psi: Any                # (M, p)
    K: Any                  # (N, M)
    H_e: Any                # (N, s)   from K alone
    sigma: Any              # (s,)     from K alone
    H_r: Any                # (M, s)   from K alone
    E: Any                  # (N, s)   K H_r
    R: Any                  # (M, s)   K^T H_e
    Lambda: Any             # (s,)     1 / sigma
    W_e: Any                # (p, s)   from Phi and Psi alone
    W_r: Any                # (p, s)   from Phi and Psi alone
    spectrum: Any           # (min(N, M),) or (p,)   all that can be nonzero, by the dual
    primal_spectrum: Any    # (min(N, M, p),)    all singular values, by the primal
    rank: int               # numerical rank of K
    delta: Any              # (s,)     how well each component is determined, at most 1
    Phi_new: Any            # (n, p)   features of new rows x
    Psi_new: Any            # (n, p)   features of new columns z
    K_rows: Any             # (n, M)   kappa(x, z_j)
    K_columns: Any          # (N, n)   kappa(x_i, z)
    pca: Any                # Primal of Psi = Phi
    transposed: Any         # Primal of K^T
    turned: Any             # H_e, H_r in the basis and with the signs of the primal
    compatible: Any         # feature maps of the bare matrix
    given: Any              # (N, M)   the bare matrix, as the reader gave it
    probe: Any              # W_e, W_r, Lambda that are no solution
    scale: float            # |Phi| |Psi| as they came: sigma * scale are the values of their K

    @property
    def sigma_1(self):
        return float(self.spectrum[0])


def solution(Phi, Psi, *, rank=None, given=None):
    """Dual and primal solution of one matrix K = Phi Psi^T, each by its own route.

    Phi and Psi are divided by their norms first. Every equation is homogeneous in both, so nothing
    is lost, and data of any size (1e-150, 1e150) can be squared.

    Parameters
    ----------
    Phi : (N, p) array
    Psi : (M, p) array
    rank : int, optional
        Number of components; the numerical rank unless told.
    given : (N, M) array, optional
        The matrix whose compatible maps Phi and Psi are, if they are.

    Returns
    -------
    Solution

    Raises
    ------
    TypeError, ValueError
        As `verify`.

    Examples
    --------
    >>> import numpy as np
    >>> solution(np.diag([2.0, 1.0]), np.eye(2)).Lambda         # K / 2 = diag(1, 1/2)
    array([1., 2.])
    """
    Phi, Psi = as_pair(Phi, Psi, ("Phi", "Psi"))
    xp = namespace(Phi, Psi)
    (N, p), M = Phi.shape, Psi.shape[0]
    norms = spectral_norm(Phi), spectral_norm(Psi)
    if not 0.0 < norms[0] * norms[1] < float(xp.finfo(Phi.dtype).max):
        raise ValueError("K = Phi Psi^T must not be zero, nor overflow or underflow: got features "
                         f"of norms {norms[0]:.3g} and {norms[1]:.3g}")
    Phi, Psi = Phi / norms[0], Psi / norms[1]
    K = Phi @ Psi.T
    low = has_low_rank(N, M, p)                     # p components are all that there are
    H_e, spectrum, H_r = large.golub_kahan(K, p) if low else dual.solve(K, min(N, M))
    r = min(p, numerical_rank(spectrum, N, M, 1.0))
    if r == 0:
        raise ValueError("K = Phi Psi^T must not be zero, got numerical rank 0: nothing to verify")
    if _tolerance(Phi, Psi, float(spectrum[0])) > 0.01:
        raise ValueError(f"sigma_1 = {float(spectrum[0]):.1e} |Phi| |Psi| is lost in rounding: "
                         f"{K.dtype} cannot verify anything here")
    s = check_rank(rank, r, f"K of numerical rank {r} (Lambda = 1 / sigma needs sigma > 0)") or r
    W_e, primal_spectrum, W_r = primal.solve(Phi, Psi, min(N, M, p))
    # Ties are aligned before the cut: a rank that cuts through one leaves the kept vectors open.
    T_e, T_r, delta = _turned(H_e[:, :r], spectrum[:r], H_r[:, :r], Phi @ W_e[:, :r],
                              Psi @ W_r[:, :r])
    if given is not None:
        compatible, given = (Phi, Psi), given / norms[0] / norms[1]
    else:                                           # K^+ from the few components, if they are few
        inverse = (H_r[:, :r] / spectrum[:r]) @ H_e[:, :r].T if low else None
        compatible, given = features.compatible(K, inverse), K
    H_e, sigma, H_r = H_e[:, :s], spectrum[:s], H_r[:, :s]

    rng = np.random.default_rng(0)

    def draw(*shape):
        return xp.asarray(rng.standard_normal(shape), **like(Phi))
    rows, columns = draw(3, N) / N ** 0.5, draw(3, M) / M ** 0.5        # new points mix old ones
    return Solution(
        Phi, Psi, K, H_e, sigma, H_r, dual.e_scores(K, (H_e, sigma, H_r)),
        dual.r_scores(K, (H_e, sigma, H_r)), 1.0 / sigma, W_e[:, :s], W_r[:, :s], spectrum,
        primal_spectrum, r, delta[:s], rows @ Phi, columns @ Psi, rows @ K, K @ columns.T,
        primal.solve(Phi, Phi), primal.solve(Psi, Phi, s), (T_e[:, :s], T_r[:, :s]),
        compatible, given, (draw(p, s) / p ** 0.5, draw(p, s) / p ** 0.5, 0.1 + xp.abs(draw(s))),
        norms[0] * norms[1])


def has_low_rank(N, M, p):
    """Whether K has so few features that block Golub-Kahan finds its spectrum faster than the SVD.

    Parameters
    ----------
    N, M, p : int

    Returns
    -------
    bool

    Examples
    --------
    >>> has_low_rank(1000, 2000, 64), has_low_rank(64, 64, 32)
    (True, False)
    """
    return min(N, M) > 500 and 10 * p <= min(N, M)


def _turned(H_e, sigma, H_r, E, R):
    """The dual vectors in the basis and with the signs of the primal ones (V12, V13), and delta."""
    xp = namespace(H_e, H_r)
    gap, top = xp.abs(sigma[:, None] - sigma[None, :]), float(sigma[0])
    tied = gap <= top * float(xp.finfo(sigma.dtype).eps) ** (1 / 3)
    # H_e^T E = T Sigma on paper, so T is its polar factor: 1 or -1 for a single sigma.
    U, _, V = svd(xp.where(tied, H_e.T @ E + H_r.T @ R, 0.0))
    delta = xp.minimum(sigma, xp.min(xp.where(tied, top, gap), axis=1)) / top
    return H_e @ (U @ V.T), H_r @ (U @ V.T), delta


def verify(Phi, Psi, *, rank=None):
    """Every equation of the derivation, evaluated on K = Phi Psi^T.

    Parameters
    ----------
    Phi : (N, p) array
        Features of the rows.
    Psi : (M, p) array
        Features of the columns.
    rank : int, optional
        Number of components to verify, from 1 to the numerical rank of K, which is the default.

    Returns
    -------
    list of Residual

    Raises
    ------
    TypeError
        If an argument is not an array of real numbers.
    ValueError
        If an argument is not a finite matrix, the numbers of columns differ, K is zero to rounding,
        or `rank` is above its numerical rank: Lambda = 1 / sigma exists only for sigma > 0.

    Examples
    --------
    >>> import numpy as np
    >>> all(residual.ok for residual in verify(np.diag([2.0, 1.0]), np.eye(2)))
    True
    """
    return residuals(solution(Phi, Psi, rank=rank))


def verify_matrix(A, *, rank=None):
    """Every equation of the derivation, evaluated on any real matrix through its compatible maps.

    Parameters
    ----------
    A : (N, M) array
    rank : int, optional
        As in `verify`.

    Returns
    -------
    list of Residual

    Raises
    ------
    TypeError, ValueError
        As `verify`.

    Examples
    --------
    >>> all(residual.ok for residual in verify_matrix([[0.0, 2.0, 1.0], [-1.0, 0.0, 3.0]]))
    True
    """
    A = as_matrix(A, "A")
    return residuals(solution(*features.compatible(A), rank=rank, given=A))


def residuals(s):
    """All residuals of one solution.

    Parameters
    ----------
    s : Solution
        From `solution`; replace a field to see which equations notice.

    Returns
    -------
    list of Residual

    Examples
    --------
    >>> import numpy as np
    >>> s = solution(np.diag([2.0, 1.0]), np.eye(2))
    >>> flipped = s._replace(H_e=-s.H_e)                        # one side only
    >>> [residual.ok for residual in residuals(flipped) if residual.tag == "K.15"]
    [False]
    """
    found, tolerance = [], _tolerance(s.Phi, s.Psi, s.sigma_1)
    for function in EQUATIONS:
        value = float(function(s))
        found.append(Residual(*describe(function), value, tolerance, value <= tolerance))
    return found


def _tolerance(Phi, Psi, sigma_1):
    xp = namespace(Phi, Psi)
    eps = max(float(xp.finfo(A.dtype).eps) for A in (Phi, Psi))         # the coarser of two
    return C * max(*Phi.shape, *Psi.shape) ** 0.5 * eps / sigma_1       # |Phi| = |Psi| = 1


def describe(function):
    """Tag, statement and source of an equation, read from its docstring.

    Parameters
    ----------
    function : callable

    Returns
    -------
    tag, statement, source : str

    Examples
    --------
    >>> describe(coupled_eigenproblems)[:2]
    ('K.15', 'K Hᵣ = Hₑ Σ,  Kᵀ Hₑ = Hᵣ Σ')
    """
    head, _, rest = function.__doc__.partition("\n")
    statement, tag = re.fullmatch(r"(.*) \((?:Eq\.|claim) ([\w.]+)\)\.", head.strip()).groups()
    source = re.search(r"Source: (.*)\.\s*$", rest, re.S).group(1)
    return tag, statement, " ".join(source.split())


def equation(function):
    """Decorator: the function is a residual of the list."""
    EQUATIONS.append(function)
    return function


def _size(*quantities):
    """Largest Frobenius norm of matrices or numbers."""
    xp = namespace(*quantities)
    return max(float(xp.sqrt(xp.sum(A * A))) for A in quantities)


def _relative(s, *quantities):
    """Largest size of what has the unit of K, relative to sigma_1."""
    return _size(*quantities) / s.sigma_1


def _weighted(s, weight, *matrices):
    """Largest norm of a column, each with its weight."""
    xp = namespace(s.K)
    return max(float(xp.max(xp.sqrt(xp.sum(A * A, axis=0)) * weight)) for A in matrices)


def _shifted(K, H_e, H_r):
    """[0 K; K^T 0] [H_e; H_r] as two blocks; the matrix itself is formed only while it is small."""
    N, M = K.shape
    if N + M > 1000:
        return K @ H_r, K.T @ H_e
    S = dual.shifted_matrix(K)
    product = S[:, :N] @ H_e + S[:, N:] @ H_r
    return product[:N, :], product[N:, :]


# One function per equation, in the order of the derivation. What has the unit of K is divided by
# sigma_1; W and H have norm 1 or less as they are.


@equation
def singular_value_decomposition(s):
    """K V = U Σ,  Kᵀ U = V Σ,  UᵀU = VᵀV = I,  Σ > 0 (Eq. K.7).

    Both halves orthonormal: a normalisation that we add, not a consequence of stationarity.
    Lanczos has it as the shifted eigenvalue problem.
    Source: Lanczos 1958.
    """
    xp = namespace(s.K)
    eye = xp.eye(s.sigma.shape[0], **like(s.K))
    orthonormal = _size(s.H_e.T @ s.H_e - eye, s.H_r.T @ s.H_r - eye)
    return max(coupled_eigenproblems(s), orthonormal, 0.0 if float(xp.min(s.sigma)) > 0.0 else 1.0)


@equation
def objective_in_matrix_form(s):
    """J = ½ Σᵢ eᵢᵀΛeᵢ + ½ Σⱼ rⱼᵀΛrⱼ − tr WₑᵀWᵣ, with E = ΦWₑ, R = ΨWᵣ (Eq. K.10).

    The sums of the paper over the dual scores against primal.objective.
    Source: derived; Chen et al. 2023.
    """
    xp = namespace(s.E, s.R)
    e_i, r_j = (xp.sum(scores * s.Lambda * scores, axis=1) for scores in (s.E, s.R))
    sums = 0.5 * xp.sum(e_i) + 0.5 * xp.sum(r_j) - xp.sum(s.W_e * s.W_r)
    return _relative(s, sums - primal.objective(s.W_e, s.W_r, s.Lambda, s.Phi, s.Psi))


@equation
def lagrangian(s):
    """J − Σᵢ hₑᵢᵀ(eᵢ − Wₑᵀφ(xᵢ)) − Σⱼ hᵣⱼᵀ(rⱼ − Wᵣᵀψ(zⱼ)) = 0 at the solution (Eq. K.11).

    The constraints vanish there, and J with them.
    Source: derived; Chen et al. 2023.
    """
    xp = namespace(s.E, s.R)
    J = 0.5 * xp.sum(s.E ** 2 * s.Lambda) + 0.5 * xp.sum(s.R ** 2 * s.Lambda) \
        - xp.sum(s.W_e * s.W_r)
    H_e, H_r = s.turned
    return _relative(s, J - xp.sum(H_e * (s.K @ H_r - s.Phi @ s.W_e))
                     - xp.sum(H_r * (s.K.T @ H_e - s.Psi @ s.W_r)))


@equation
def weights_cross(s):
    """Wₑ = Ψᵀ Hᵣ,  Wᵣ = Φᵀ Hₑ (Eq. K.12).

    The sides cross: differentiating the Lagrangian in W_e fixes W_r.
    Source: derived; Chen et al. 2023.
    """
    H_e, H_r = s.turned
    return _weighted(s, s.delta, s.W_e - s.Psi.T @ H_r, s.W_r - s.Phi.T @ H_e)


@equation
def dual_variables_are_weighted_scores(s):
    """Λ eᵢ = hₑᵢ,  Λ rⱼ = hᵣⱼ (Eq. K.13).

    Source: derived; Chen et al. 2023.
    """
    return _weighted(s, s.sigma / s.sigma_1, s.E * s.Lambda - s.H_e, s.R * s.Lambda - s.H_r)


@equation
def constraints(s):
    """E = Φ Wₑ,  R = Ψ Wᵣ (Eq. K.14).

    Primal = dual: the left sides come from K alone, the right sides never saw it.
    Source: derived; Chen et al. 2023.
    """
    H_e, H_r = s.turned
    return _weighted(s, s.delta / s.sigma, s.K @ H_r - s.Phi @ s.W_e, s.K.T @ H_e - s.Psi @ s.W_r)


@equation
def coupled_eigenproblems(s):
    """K Hᵣ = Hₑ Σ,  Kᵀ Hₑ = Hᵣ Σ (Eq. K.15).

    What is left when the weights are eliminated, with Σ = Λ⁻¹.
    Source: Chen et al. 2023; Lanczos 1958.
    """
    return _relative(s, s.K @ s.H_r - s.H_e * s.sigma, s.K.T @ s.H_e - s.H_r * s.sigma)


@equation
def shifted_eigenproblem(s):
    """[0 K; Kᵀ 0] [hₑ; hᵣ] = σ [hₑ; hᵣ] (Eq. K.16).

    Source: derived; Lanczos 1958.
    """
    upper, lower = _shifted(s.K, s.H_e, s.H_r)
    return _relative(s, upper - s.H_e * s.sigma, lower - s.H_r * s.sigma)


@equation
def coupled_covariances(s):
    """ΦᵀΦ Wₑ Λ = Wᵣ,  ΨᵀΨ Wᵣ Λ = Wₑ (Eq. K.17).

    H eliminated instead of W: p-dimensional, K never occurs.
    Source: derived.
    """
    return _weighted(s, s.sigma / s.sigma_1, s.Phi.T @ (s.Phi @ s.W_e) * s.Lambda - s.W_r,
                     s.Psi.T @ (s.Psi @ s.W_r) * s.Lambda - s.W_e)


@equation
def stationary(s):
    """∂J/∂Wₑ = ∂J/∂Wᵣ = 0 at the solution (Eq. K.18).

    primal.gradient vanishes: the test that J = 0 is not.
    Source: derived.
    """
    return _weighted(s, s.sigma / s.sigma_1,
                     *primal.gradient(s.W_e, s.W_r, s.Lambda, s.Phi, s.Psi))


@equation
def dual_objective(s):
    """tr HₑᵀKHᵣ − ½ tr HₑᵀHₑΣ − ½ tr HᵣᵀHᵣΣ = 0 at the solution (Eq. K.19).

    Source: derived.
    """
    xp = namespace(s.K)
    return _relative(s, xp.sum(s.H_e * (s.K @ s.H_r)) - 0.5 * xp.sum(s.H_e ** 2 * s.sigma)
                     - 0.5 * xp.sum(s.H_r ** 2 * s.sigma))


@equation
def scores_of_new_points(s):
    """e(x) = Wₑᵀφ(x) = Σⱼ hᵣⱼ κ(x, zⱼ),  r(z) = Wᵣᵀψ(z) = Σᵢ hₑᵢ κ(xᵢ, z) (Eq. K.20).

    At three new rows and three new columns.
    Source: Chen et al. 2023, Remark 3.3.
    """
    weights, vectors = (s.W_e, s.sigma, s.W_r), (s.turned[0], s.sigma, s.turned[1])
    return _weighted(
        s, s.delta / s.sigma,
        primal.e_scores(s.Phi_new, weights) - dual.e_scores(s.K_rows, vectors),
        primal.r_scores(s.Psi_new, weights) - dual.r_scores(s.K_columns, vectors))


@equation
def scores_of_training_points(s):
    """E = Hₑ Σ,  R = Hᵣ Σ (Eq. K.21).

    Source: derived.
    """
    return _relative(s, s.E - s.H_e * s.sigma, s.R - s.H_r * s.sigma)


@equation
def zero_objective(s):
    """J(Wₑ, Wᵣ, Λ) = 0 at the solution (Eq. K.22).

    Source: Chen et al. 2023, abstract.
    """
    return _relative(s, primal.objective(s.W_e, s.W_r, s.Lambda, s.Phi, s.Psi))


@equation
def trace_of_the_weights(s):
    """tr WₑᵀWᵣ = tr HₑᵀKHᵣ (Eq. K.23).

    With no further Σ.
    Source: derived.
    """
    xp = namespace(s.K)
    return _relative(s, xp.sum(s.W_e * s.W_r) - xp.sum(s.H_e * (s.K @ s.H_r)))


@equation
def compatible_maps(s):
    """Φ Ψᵀ = K C K = K for the compatible maps of K, C = K⁺ (Eq. K.33).

    Rows and columns of the bare matrix, as it was given, are feature vectors already.
    C is the compatibility matrix of Suykens.
    Source: derived; Suykens 2016.
    """
    Phi, Psi = s.compatible
    return _relative(s, Phi @ Psi.T - s.given)


@equation
def kernel_pca(s):
    """ΦΦᵀα = α/γ,  α = γ Φ w,  γ = 1/σ, when Ψ = Φ (Eq. K.34).

    Kernel PCA as a least-squares support vector machine.
    Source: derived.
    """
    xp = namespace(s.Phi)
    w, sigma, _ = s.pca
    alpha = s.Phi @ w / sigma
    gap = (s.Phi @ (s.Phi.T @ alpha) - alpha * sigma) * sigma       # weighted by sigma_l, |Phi| = 1
    return float(xp.max(xp.sqrt(xp.sum(gap * gap, axis=0))))


@equation
def coupled_covariance_eigenproblem(s):
    """ΦᵀΦ/N w_ψ = λ w_φ,  ΨᵀΨ/M w_φ = λ w_ψ,  λ = σ/√(NM) (Eq. K.35).

    w_φ = Φᵀ Hₑ/√N and w_ψ = Ψᵀ Hᵣ/√M.
    Source: derived; Tao et al. 2024.
    """
    N, M = s.K.shape
    w_phi, w_psi = s.Phi.T @ s.H_e / N ** 0.5, s.Psi.T @ s.H_r / M ** 0.5
    lam = s.sigma / (N * M) ** 0.5
    return _relative(s, (s.Phi.T @ (s.Phi @ w_psi) / N - w_phi * lam) * N * M ** 0.5,
                     (s.Psi.T @ (s.Psi @ w_phi) / M - w_psi * lam) * M * N ** 0.5)


@equation
def primal_singular_values(s):
    """σ(R_φ R_ψᵀ) = σ(K) with Φ = Q_φ R_φ, Ψ = Q_ψ R_ψ (Eq. K.39).

    Source: derived.
    """
    return _relative(s, s.primal_spectrum[:s.sigma.shape[0]] - s.sigma)


@equation
def eckart_young(s):
    """‖K − Hₑ Σ Hᵣᵀ‖ = √(sum of the discarded σ²) (Eq. EY).

    Source: Eckart and Young 1936.
    """
    xp = namespace(s.K)
    rest, discarded = s.K - s.H_e * s.sigma @ s.H_r.T, s.spectrum[s.sigma.shape[0]:]
    return _relative(s, xp.sqrt(xp.sum(rest * rest)) - xp.sqrt(xp.sum(discarded * discarded)))


@equation
def gradient_by_differences(s):
    """⟨∇J, D⟩ = ½ (J(W + D) − J(W − D)) for any W and D (claim V1).

    Exact, since J is quadratic. W is the probe, D the solution.
    Source: derived.
    """
    xp = namespace(s.W_e, s.W_r)
    W_e, W_r, Lambda = s.probe
    dW_e, dW_r = primal.gradient(W_e, W_r, Lambda, s.Phi, s.Psi)
    ahead = primal.objective(W_e + s.W_e, W_r + s.W_r, Lambda, s.Phi, s.Psi)
    behind = primal.objective(W_e - s.W_e, W_r - s.W_r, Lambda, s.Phi, s.Psi)
    return _relative(s, xp.sum(dW_e * s.W_e) + xp.sum(dW_r * s.W_r) - 0.5 * (ahead - behind))


@equation
def euler(s):
    """J = ½ ⟨W, ∇J⟩ for any W and Λ (claim V2).

    So J = 0 wherever the gradient vanishes.
    Euler's identity for a quadratic form.
    Source: derived.
    """
    xp = namespace(s.W_e, s.W_r)
    W_e, W_r, Lambda = s.probe
    dW_e, dW_r = primal.gradient(W_e, W_r, Lambda, s.Phi, s.Psi)
    return _relative(s, primal.objective(W_e, W_r, Lambda, s.Phi, s.Psi)
                     - 0.5 * xp.sum(W_e * dW_e) - 0.5 * xp.sum(W_r * dW_r))


@equation
def every_subset_is_stationary(s):
    """J = 0, ∇J = 0 at any choice of components, in any order and scale (claim V3).

    Here every second one, from the last, all halved: J cannot tell them from the leading ones.
    Source: derived.
    """
    W_e, W_r, Lambda = 0.5 * s.W_e[:, ::-2], 0.5 * s.W_r[:, ::-2], s.Lambda[::-2]
    return max(_relative(s, primal.objective(W_e, W_r, Lambda, s.Phi, s.Psi)),
               _weighted(s, s.sigma[::-2] / s.sigma_1,
                         *primal.gradient(W_e, W_r, Lambda, s.Phi, s.Psi)))


@equation
def objective_at_another_weight(s):
    """J(Wₑ, Wᵣ, Λ′) = Σ_l (λ′_l σ_l² − σ_l) at the solution, for any Λ′ (claim V4).

    So it vanishes for Λ′ = Λ, and hardly for another. Here λ′ = 1/σ₁ for all components.
    Source: derived.
    """
    xp = namespace(s.sigma)
    other = xp.ones_like(s.sigma) / s.sigma_1
    return _relative(s, primal.objective(s.W_e, s.W_r, other, s.Phi, s.Psi)
                     - xp.sum(other * s.sigma ** 2 - s.sigma))


@equation
def objective_grows_with_the_weight(s):
    """J(2Λ) − J(Λ) = Σ_l λ_l ½ (‖e_l‖² + ‖r_l‖²) at the solution (claim V6).

    As at any W. ∂J/∂λ_l = ½ (‖e_l‖² + ‖r_l‖²) is zero only where both scores vanish, and at the
    solution they do not: stationarity cannot fix Λ.
    Source: derived.
    """
    xp = namespace(s.E, s.R)
    growth = primal.objective(s.W_e, s.W_r, 2.0 * s.Lambda, s.Phi, s.Psi) \
        - primal.objective(s.W_e, s.W_r, s.Lambda, s.Phi, s.Psi)
    return _relative(s, growth - 0.5 * xp.sum((s.E ** 2) * s.Lambda)
                     - 0.5 * xp.sum((s.R ** 2) * s.Lambda))


@equation
def objective_is_unbounded(s):
    """J(2 Wₑ, 0) = 2 tr Σ, four times J(Wₑ, 0), at the solution (claim V8).

    J grows with the square of W: there is no maximum.
    Source: derived.
    """
    xp = namespace(s.sigma)
    far = primal.objective(2.0 * s.W_e, 0.0 * s.W_r, s.Lambda, s.Phi, s.Psi)
    return _relative(s, far / 4.0 - 0.5 * xp.sum(s.sigma))


@equation
def bounded_variational_form(s):
    """tr HₑᵀKHᵣ = Σ_l σ_l, the maximum of tr AᵀKB over orthonormal A, B (claim V10).

    A variational form that is bounded. The s leading components, against one other A and B.
    By von Neumann's trace inequality.
    Source: derived.
    """
    xp = namespace(s.K)
    top, n = xp.sum(s.spectrum[:s.sigma.shape[0]]), s.sigma.shape[0]
    other = xp.sum(s.K[:n, :n] * xp.eye(n, **like(s.K)))                   # A, B: unit vectors
    return _relative(s, xp.sum(s.H_e * (s.K @ s.H_r)) - top, xp.maximum(other - top, 0.0 * top))


@equation
def eigenvalues_in_pairs(s):
    """[0 K; Kᵀ 0] [hₑ; −hᵣ] = −σ [hₑ; −hᵣ], and ‖K‖² = Σ σ² (claim V11).

    So the eigenvalues are ±σ, and N + M − 2r zeros: nothing is left for others.
    Source: derived; Suykens 2016.
    """
    xp = namespace(s.K)
    upper, lower = _shifted(s.K, s.H_e, -s.H_r)
    total = xp.sqrt(xp.sum(s.K * s.K)) - xp.sqrt(xp.sum(s.spectrum[:s.rank] ** 2))
    return _relative(s, upper + s.H_e * s.sigma, lower - s.H_r * s.sigma, total)


@equation
def one_sided_flip_is_wrong_by_2_sigma(s):
    """‖K Hᵣ − (−Hₑ) Σ‖ = 2 ‖Σ‖: only the joint flip is free (claim V12).

    Source: derived.
    """
    xp = namespace(s.K)
    flipped = s.K @ s.H_r + s.H_e * s.sigma
    return _relative(s, xp.sqrt(xp.sum(flipped * flipped)) - 2.0 * xp.sqrt(xp.sum(s.sigma ** 2)))


@equation
def rotation_is_the_same_on_both_sides(s):
    """K (HᵣQ) = (HₑQ) (QᵀΣQ), QᵀQ = I; QᵀΣQ = Σ only within a repeated σ (claim V13).

    K.15 in another basis, and K.15 itself only if Q keeps Σ. Here Q is a reflection.
    Source: derived.
    """
    xp = namespace(s.K)
    ones = xp.ones_like(s.sigma)[:, None] / s.sigma.shape[0] ** 0.5
    Q = xp.eye(s.sigma.shape[0], **like(s.K)) - 2.0 * ones @ ones.T
    turned = (Q.T * s.sigma) @ Q
    return _relative(s, s.K @ (s.H_r @ Q) - s.H_e @ Q @ turned,
                     s.K.T @ (s.H_e @ Q) - s.H_r @ Q @ turned)


@equation
def normalisation_of_the_weights(s):
    """WₑᵀWᵣ = Σ, from the choice HₑᵀHₑ = HᵣᵀHᵣ = I (claim V14).

    H Δ with any positive diagonal Δ is stationary too, and has Δ Σ Δ here.
    Source: derived.
    """
    xp = namespace(s.K)
    return _relative(s, s.W_e.T @ s.W_r - xp.eye(s.sigma.shape[0], **like(s.K)) * s.sigma)


@equation
def reconstruction_from_scores(s):
    """E Λ Rᵀ = Hₑ Σ Hᵣᵀ, which is K if s = r (claim V15).

    Source: derived; Chen et al. 2023.
    """
    rebuilt = s.E * s.Lambda @ s.R.T
    full = [rebuilt - s.K] if s.sigma.shape[0] == s.rank else []
    return _relative(s, rebuilt - s.H_e * s.sigma @ s.H_r.T, *full)


@equation
def rank_bounds_the_components(s):
    """σ_l = 0 for l > r, where r ≤ min(N, M, p) (claim V16).

    So there is no Λ = 1/σ beyond r, which was counted on K. The σ_l are those of the primal.
    Source: derived.
    """
    N, M = s.K.shape
    found = numerical_rank(2.0 * s.primal_spectrum, N, M, 1.0)             # with room for rounding
    return _relative(s, s.primal_spectrum[s.rank:]) if found >= s.rank else 1.0


@equation
def transposed_matrix(s):
    """Kᵀ = ΨΦᵀ has the same σ, and the sides change places (claim V17).

    Source: derived.
    """
    W_r, sigma, W_e = s.transposed
    return max(_relative(s, sigma - s.sigma),
               _weighted(s, s.sigma / s.sigma_1, s.Psi.T @ (s.Psi @ W_r) * s.Lambda - W_e,
                         s.Phi.T @ (s.Phi @ W_e) * s.Lambda - W_r))


@equation
def symmetric_case(s):
    """Φ = Ψ: Wₑ = Wᵣ = w and J(w, w) = 2 (½ γ Σᵢ(wᵀφ(xᵢ))² − ½ wᵀw) (claim V18).

    Kernel PCA: left and right vectors are the same eigenvectors.
    Source: derived.
    """
    xp = namespace(s.Phi)
    w, sigma, w_r = s.pca
    gap = (w - w_r) * sigma                                         # weighted by sigma_l, |Phi| = 1
    probe, _, gamma = s.probe
    kpca = 0.5 * xp.sum((s.Phi @ probe) ** 2 * gamma) - 0.5 * xp.sum(probe * probe)
    return max(float(xp.max(xp.sqrt(xp.sum(gap * gap, axis=0)))),
               _relative(s, primal.objective(probe, probe, gamma, s.Phi, s.Phi) - 2.0 * kpca))
