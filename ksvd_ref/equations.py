"""Every numbered equation of the derivation, as a residual on the matrix in your hand.

One function per equation. It takes a `Solution`, in which the dual half (H_e, sigma, H_r, E, R)
was computed from K alone and the primal half (W_e, W_r) from Phi and Psi alone. It returns a list
of differences, each zero on paper; `Solution.size` takes their norms.

A - B                      has the unit of K: its norm counts relative to sigma_1
Weighted(w, A - B, ...)    column l counts w_l times: sigma_l / sigma_1 where Lambda occurs, and
                           delta_l where vectors of both halves meet, since rounding turns a
                           singular vector by about eps / delta_l
Weighted(1, A - B, ...)    has no unit: W and H have norm 1 or less as they are
Lengths(A, B)              two arrays of one norm, in the unit of K

A residual is a test of its own: for any two of them the tests have a mutant of a solver that one
notices and the other does not. What cannot be parted is printed as a consequence and not counted,
`follows="K.15"`; it fails only where one of the equations that it follows from fails too.

The joint sign of a pair and the basis of a repeated sigma are free (V12, V13). Equations in which
both halves meet take the dual vectors turned within that freedom, and no further (`s.aligned`).

K.n are the tags of the equations, Vn those of the claims that are identities, EY is Eckart-Young.
V5 and V7 are counter-examples and V9 is a count: lesson 04 has them.

No equation: beside the residuals it lists and judges.
"""
import inspect
import re
from typing import NamedTuple

from . import dual, features, primal
from .backend import namespace
from .inputs import arrays
from .linalg import numerical_rank
from .solution import ROUNDINGS, Lengths, Solution, Weighted, solution

EQUATIONS = []          # in the order of the derivation, filled by @equation


def equation(source, follows=None):
    """Decorator: the function is a residual of the list; the source ends its help.

    follows: the tags of which it is a consequence, "K.14, K.15".
    """
    def entered(function):
        function.__doc__ = f"{inspect.getdoc(function)}\n\nSource: {source}."
        function.follows = follows
        EQUATIONS.append(function)
        return function
    return entered


def _tr(A, B):
    """tr AᵀB, the sum of all products of entries."""
    return namespace(A, B).sum(A * B)


@equation("Lanczos 1958")
def singular_value_decomposition(s):
    """K V = U Σ,  Kᵀ U = V Σ,  UᵀU = VᵀV = I,  Σ > 0 (Eq. K.7).

    Both halves orthonormal: a normalisation that we add, not a consequence of stationarity.
    """
    positive = namespace(s.sigma).min(s.sigma) > 0
    return [*coupled_eigenproblems(s), Weighted(
        1, s.H_e.T @ s.H_e - s.eye, s.H_r.T @ s.H_r - s.eye, 0 if positive else 1)]


@equation("derived; Chen et al. 2023", follows="K.14, V42")
def objective_in_matrix_form(s):
    """J = ½ Σᵢ eᵢᵀΛeᵢ + ½ Σⱼ rⱼᵀΛrⱼ − tr WₑᵀWᵣ, with E = ΦWₑ, R = ΨWᵣ (Eq. K.10)."""
    scores = _tr(s.E, s.E * s.Lambda) + _tr(s.R, s.R * s.Lambda)
    return [scores / 2 - _tr(s.W_e, s.W_r) - s.J(s.W_e, s.W_r, s.Lambda)]


@equation("derived; Chen et al. 2023", follows="K.14, K.17")
def lagrangian(s):
    """J − Σᵢ hₑᵢᵀ(eᵢ − Wₑᵀφ(xᵢ)) − Σⱼ hᵣⱼᵀ(rⱼ − Wᵣᵀψ(zⱼ)) = 0 at the solution (Eq. K.11)."""
    H_e, H_r = s.aligned
    J = (_tr(s.E, s.E * s.Lambda) + _tr(s.R, s.R * s.Lambda)) / 2 - _tr(s.W_e, s.W_r)
    return [J - _tr(H_e, s.K @ H_r - s.Phi @ s.W_e) - _tr(H_r, s.K.T @ H_e - s.Psi @ s.W_r)]


@equation("derived; Chen et al. 2023")
def weights_cross(s):
    """Wₑ = Ψᵀ Hᵣ,  Wᵣ = Φᵀ Hₑ (Eq. K.12).

    The sides cross: differentiating the Lagrangian in W_e fixes W_r.
    """
    H_e, H_r = s.aligned
    return [Weighted(s.delta, s.W_e - s.Psi.T @ H_r, s.W_r - s.Phi.T @ H_e)]


@equation("derived; Chen et al. 2023", follows="K.15, K.17")
def dual_variables_are_weighted_scores(s):
    """Λ eᵢ = hₑᵢ,  Λ rⱼ = hᵣⱼ (Eq. K.13)."""
    return [Weighted(s.sigma / s.sigma_1, s.E * s.Lambda - s.H_e, s.R * s.Lambda - s.H_r)]


@equation("derived; Chen et al. 2023")
def constraints(s):
    """E = Φ Wₑ,  R = Ψ Wᵣ (Eq. K.14).

    Primal = dual: the left sides come from K alone, the right sides never saw it.
    """
    H_e, H_r = s.aligned
    return [Weighted(s.delta / s.sigma, s.K @ H_r - s.Phi @ s.W_e, s.K.T @ H_e - s.Psi @ s.W_r)]


@equation("Chen et al. 2023; Lanczos 1958")
def coupled_eigenproblems(s):
    """K Hᵣ = Hₑ Σ,  Kᵀ Hₑ = Hᵣ Σ (Eq. K.15).

    What is left when the weights are eliminated, with Σ = Λ⁻¹.
    """
    return [s.K @ s.H_r - s.H_e * s.sigma, s.K.T @ s.H_e - s.H_r * s.sigma]


@equation("derived; Lanczos 1958", follows="K.15, V11")
def shifted_eigenproblem(s):
    """[0 K; Kᵀ 0] [hₑ; hᵣ] = σ [hₑ; hᵣ] (Eq. K.16)."""
    upper, lower = s.shifted(s.H_e, s.H_r)
    return [upper - s.H_e * s.sigma, lower - s.H_r * s.sigma]


@equation("derived")
def coupled_covariances(s):
    """ΦᵀΦ Wₑ Λ = Wᵣ,  ΨᵀΨ Wᵣ Λ = Wₑ (Eq. K.17).

    H eliminated instead of W: p-dimensional, K never occurs.
    """
    return [Weighted(s.sigma / s.sigma_1, s.Phi.T @ (s.Phi @ s.W_e) * s.Lambda - s.W_r,
                     s.Psi.T @ (s.Psi @ s.W_r) * s.Lambda - s.W_e)]


@equation("derived", follows="K.17, V43")
def stationary(s):
    """∂J/∂Wₑ = ∂J/∂Wᵣ = 0 at the solution (Eq. K.18).

    primal.gradient vanishes: the test that J = 0 is not.
    """
    return [Weighted(s.sigma / s.sigma_1, *s.dJ(s.W_e, s.W_r, s.Lambda))]


@equation("derived", follows="K.15")
def dual_objective(s):
    """tr HₑᵀKHᵣ − ½ tr HₑᵀHₑΣ − ½ tr HᵣᵀHᵣΣ = 0 at the solution (Eq. K.19)."""
    return [_tr(s.H_e, s.K @ s.H_r) - _tr(s.H_e, s.H_e * s.sigma) / 2
            - _tr(s.H_r, s.H_r * s.sigma) / 2]


@equation("Chen et al. 2023, Remark 3.3")
def scores_of_new_points(s):
    """e(x) = Wₑᵀφ(x) = Σⱼ hᵣⱼ κ(x, zⱼ),  r(z) = Wᵣᵀψ(z) = Σᵢ hₑᵢ κ(xᵢ, z) (Eq. K.20).

    At three new rows and columns, drawn in all p dimensions of the features.
    """
    weights, vectors = (s.W_e, s.sigma, s.W_r), (s.aligned[0], s.sigma, s.aligned[1])
    return [Weighted(s.delta,
                     primal.e_scores(s.Phi_new, weights) - dual.e_scores(s.K_rows, vectors),
                     primal.r_scores(s.Psi_new, weights) - dual.r_scores(s.K_columns, vectors))]


@equation("derived", follows="K.15")
def scores_of_training_points(s):
    """E = Hₑ Σ,  R = Hᵣ Σ (Eq. K.21)."""
    return [s.E - s.H_e * s.sigma, s.R - s.H_r * s.sigma]


@equation("Chen et al. 2023, abstract", follows="K.17, V42")
def zero_objective(s):
    """J(Wₑ, Wᵣ, Λ) = 0 at the solution (Eq. K.22)."""
    return [s.J(s.W_e, s.W_r, s.Lambda)]


@equation("derived")
def trace_of_the_weights(s):
    """tr WₑᵀWᵣ = tr HₑᵀKHᵣ (Eq. K.23).

    With no further Σ.
    """
    return [_tr(s.W_e, s.W_r) - _tr(s.H_e, s.K @ s.H_r)]


@equation("derived; Suykens 2016")
def compatible_maps(s):
    """Φ Ψᵀ = K C K = K for the compatible maps of K, C = K⁺ (Eq. K.33).

    Rows and columns of the bare matrix are feature vectors already. C is that of Suykens.
    """
    Phi, Psi = s.compatible
    return [Phi @ Psi.T - s.given]


@equation("derived")
def kernel_pca(s):
    """ΦΦᵀα = α/γ,  α = γ Φ w,  γ = 1/σ, when Ψ = Φ (Eq. K.34).

    Kernel PCA as a least-squares support vector machine.
    """
    w, sigma, _ = s.pca
    alpha = s.Phi @ w / sigma
    return [Weighted(sigma, s.Phi @ (s.Phi.T @ alpha) - alpha * sigma)]      # |Phi| = 1


@equation("derived; Tao et al. 2024", follows="K.14, K.15")
def coupled_covariance_eigenproblem(s):
    """ΦᵀΦ/N w_ψ = μ w_φ,  ΨᵀΨ/M w_φ = μ w_ψ,  μ = σ/√(NM) (Eq. K.35).

    w_φ = Φᵀ Hₑ/√N and w_ψ = Ψᵀ Hᵣ/√M; N and M have been multiplied out.
    """
    w_phi, w_psi = s.Phi.T @ s.H_e, s.Psi.T @ s.H_r
    return [s.Phi.T @ (s.Phi @ w_psi) - w_phi * s.sigma,
            s.Psi.T @ (s.Psi @ w_phi) - w_psi * s.sigma]


@equation("derived")
def primal_singular_values(s):
    """σ(T_φ T_ψᵀ) = σ(K) with Φ = Q_φ T_φ, Ψ = Q_ψ T_ψ, for the nonzero σ (Eq. K.39)."""
    return [s.primal_spectrum[:s.rank] - s.spectrum[:s.rank]]


@equation("Eckart and Young 1936")
def eckart_young(s):
    """‖K − Hₑ Σ Hᵣᵀ‖ = √(Σ_{l>s} σ_l²) (Eq. EY)."""
    return [Lengths(s.K - s.H_e * s.sigma @ s.H_r.T, s.spectrum[s.sigma.shape[0]:])]


@equation("derived")
def gradient_by_differences(s):
    """⟨∇J, D⟩ = ½ (J(W + D) − J(W − D)) for any W and D (claim V1).

    Exact, since J is quadratic. W is the probe, D three drawn directions.
    """
    (W_e, W_r, Lambda), (dW_e, dW_r) = s.probe, s.dJ(*s.probe)
    return [_tr(dW_e, D_e) + _tr(dW_r, D_r) - (
        s.J(W_e + D_e, W_r + D_r, Lambda) - s.J(W_e - D_e, W_r - D_r, Lambda)) / 2
        for D_e, D_r in s.directions]


@equation("derived")
def euler(s):
    """J = ½ ⟨W, ∇J⟩ for any W and Λ (claim V2).

    So J = 0 wherever ∇J vanishes. At the probe and three other W. Euler on a quadratic form.
    """
    points = [s.probe, *((*D, s.probe[2]) for D in s.directions)]
    return [s.J(*W) - sum(map(_tr, W, s.dJ(*W))) / 2 for W in points]


@equation("derived", follows="K.17, V42, V43")
def every_subset_is_stationary(s):
    """J = 0, ∇J = 0 at any choice of components, in any order and scale (claim V3).

    Here every second one, from the last, all halved: J cannot tell them from the leading ones.
    """
    some = s.W_e[:, ::-2] / 2, s.W_r[:, ::-2] / 2, s.Lambda[::-2]
    return [s.J(*some), Weighted(s.sigma[::-2] / s.sigma_1, *s.dJ(*some))]


@equation("derived")
def objective_at_another_weight(s):
    """J(Wₑ, Wᵣ, Λ′) = Σ_l (λ′_l σ_l² − σ_l) at the solution, for any Λ′ (claim V4).

    So it vanishes for Λ′ = Λ, and hardly for another. Here λ′ = 1/σ₁ for all components.
    """
    xp = namespace(s.sigma)
    other = xp.ones_like(s.sigma) / s.sigma_1
    return [s.J(s.W_e, s.W_r, other) - xp.sum(other * s.sigma ** 2 - s.sigma)]


@equation("derived", follows="K.14, V42")
def objective_grows_with_the_weight(s):
    """J(2Λ) − J(Λ) = Σ_l λ_l ½ (‖e_l‖² + ‖r_l‖²) for any W (claim V6).

    ∂J/∂λ_l = ½ (‖e_l‖² + ‖r_l‖²) is zero only where both scores vanish, and at the solution, as
    here, they do not: stationarity cannot fix Λ.
    """
    growth = s.J(s.W_e, s.W_r, 2 * s.Lambda) - s.J(s.W_e, s.W_r, s.Lambda)
    return [growth - _tr(s.E, s.E * s.Lambda) / 2 - _tr(s.R, s.R * s.Lambda) / 2]


@equation("derived")
def objective_is_unbounded(s):
    """J(2 Wₑ, 0) = 2 tr Σ, four times J(Wₑ, 0), at the solution (claim V8).

    J grows with the square of W: there is no maximum.
    """
    far = s.J(2 * s.W_e, 0 * s.W_r, s.Lambda)
    return [far / 4 - namespace(s.sigma).sum(s.sigma) / 2]


@equation("derived", follows="K.7, V41")
def bounded_variational_form(s):
    """tr HₑᵀKHᵣ = Σ_l σ_l, the maximum of tr AᵀKB over orthonormal A, B (claim V10).

    A variational form that is bounded (von Neumann), against the A, B of subspace iteration.
    """
    (A, B), xp = s.trial, namespace(s.sigma)
    top, other = xp.sum(s.sigma), _tr(A, s.K @ B)
    return [_tr(s.H_e, s.K @ s.H_r) - top, xp.maximum(other - top, 0 * top)]


@equation("derived; Suykens 2016")
def eigenvalues_in_pairs(s):
    """[0 K; Kᵀ 0] [hₑ; −hᵣ] = −σ [hₑ; −hᵣ], and ‖K‖² = Σ_l σ_l² (claim V11).

    So the eigenvalues are ±σ, and N + M − 2r zeros: nothing is left for others.
    """
    upper, lower = s.shifted(s.H_e, -s.H_r)
    return [upper + s.H_e * s.sigma, lower - s.H_r * s.sigma,
            Lengths(s.K, s.spectrum[:s.rank])]


@equation("derived", follows="K.7")
def one_sided_flip_is_wrong_by_2_sigma(s):
    """‖K Hᵣ − (−Hₑ) Σ‖ = 2 ‖Σ‖: only the joint flip is free (claim V12)."""
    return [Lengths(s.K @ s.H_r + s.H_e * s.sigma, 2 * s.sigma)]


@equation("derived", follows="K.15")
def rotation_is_the_same_on_both_sides(s):
    """K (HᵣQ) = (HₑQ) (QᵀΣQ), QᵀQ = I; QᵀΣQ = Σ for signs and ties only (claim V13).

    K.15 in another basis, and K.15 itself only if Q keeps Σ: beside signs, a rotation within a
    repeated σ. Here Q is a reflection.
    """
    v = (s.sigma + s.sigma_1)[:, None]
    Q = s.eye - 2 * v @ v.T / (v.T @ v)
    H_e, H_r, Sigma = s.H_e @ Q, s.H_r @ Q, (Q.T * s.sigma) @ Q
    return [s.K @ H_r - H_e @ Sigma, s.K.T @ H_e - H_r @ Sigma]


@equation("derived")
def normalisation_of_the_weights(s):
    """WₑᵀWᵣ = Σ, from the choice HₑᵀHₑ = HᵣᵀHᵣ = I (claim V14).

    H Δ with any positive diagonal Δ is stationary too, and has Δ Σ Δ here.
    """
    return [s.W_e.T @ s.W_r - s.eye * s.sigma]


@equation("derived; Chen et al. 2023")
def reconstruction_from_scores(s):
    """E Λ Rᵀ = Hₑ Σ Hᵣᵀ, which is K if s = r (claim V15)."""
    rebuilt = s.E * s.Lambda @ s.R.T
    whole = [rebuilt - s.K] if s.sigma.shape[0] == s.rank else []
    return [rebuilt - s.H_e * s.sigma @ s.H_r.T, *whole]


@equation("derived")
def rank_bounds_the_components(s):
    """σ_l = 0 for l > r, where r ≤ min(N, M, p) (claim V16).

    So there is no Λ = 1/σ beyond r, which was counted on K. K alone does not know p.
    """
    found = numerical_rank(2.0 * s.primal_spectrum, *s.K.shape, 1.0)       # with room for rounding
    return [s.primal_spectrum[s.rank:], s.spectrum[s.Phi.shape[1]:],
            Weighted(1, 0 if found >= s.rank else 1)]


@equation("derived")
def transposed_matrix(s):
    """Kᵀ = ΨΦᵀ has the same σ, and the sides change places (claim V17)."""
    W_r, sigma, W_e = s.transposed
    return [sigma - s.sigma, Weighted(
        s.sigma / s.sigma_1, s.Psi.T @ (s.Psi @ W_r) * s.Lambda - W_e,
        s.Phi.T @ (s.Phi @ W_e) * s.Lambda - W_r)]


@equation("derived")
def symmetric_case(s):
    """Φ = Ψ: Wₑ = Wᵣ = w and J(w, w) = 2 (½ γ Σᵢ(wᵀφ(xᵢ))² − ½ wᵀw) (claim V18).

    Kernel PCA: left and right vectors are the same eigenvectors.
    """
    w_e, sigma, w_r = s.pca
    w, _, gamma = s.probe
    kpca = _tr(s.Phi @ w, s.Phi @ w * gamma) / 2 - _tr(w, w) / 2
    return [primal.objective(w, w, gamma, s.Phi, s.Phi) - 2 * kpca,
            Weighted(sigma, w_e - w_r)]                                    # |Phi| = 1


@equation("textbook")
def components_are_the_largest(s):
    """σ₁ = ‖K‖₂ ≥ σ₂ ≥ …, and σ_l(K) ≥ σ_l(AᵀKB) for all orthonormal A, B (claim V41).

    What neither J nor K.15 can tell (V3): these components are the s largest. ‖K‖₂ is from the Gram
    matrix; A, B from subspace iteration, which makes AᵀKB diagonal. Cauchy's interlacing.
    """
    (A, B), xp = s.trial, namespace(s.K)
    above = s.spectrum[1:] - s.spectrum[:-1], xp.sum(A * (s.K @ B), axis=0) - s.sigma
    return [s.spectrum[:1] - s.sigma_1, *(xp.maximum(x, 0 * x) for x in above)]


@equation("derived")
def objective_is_a_sum_over_components(s):
    """J = Σ_l (½ λ_l Σᵢ e_il² + ½ λ_l Σⱼ r_jl² − ⟨w_el, w_rl⟩) for any W and Λ (claim V42).

    Components do not mix. At the probe, where J is not 0.
    """
    (W_e, W_r, Lambda), total = s.probe, 0
    for l in range(Lambda.shape[0]):
        for A, w in ((s.Phi, W_e[:, l]), (s.Psi, W_r[:, l])):
            total = total + Lambda[l] * _tr(A @ w, A @ w) / 2
        total = total - _tr(W_e[:, l], W_r[:, l])
    return [total - s.J(*s.probe)]


@equation("derived")
def gradient_column_by_column(s):
    """∂J/∂w_el = λ_l Σᵢ e_il φ(xᵢ) − w_rl,  ∂J/∂w_rl = λ_l Σⱼ r_jl ψ(zⱼ) − w_el (claim V43).

    For any W and Λ; here at each column of the probe.
    """
    (W_e, W_r, Lambda), (dW_e, dW_r) = s.probe, s.dJ(*s.probe)
    return [Lambda[l] * (A.T @ (A @ w[:, l])) - other[:, l] - dw[:, l]
            for A, w, other, dw in ((s.Phi, W_e, W_r, dW_e), (s.Psi, W_r, W_e, dW_r))
            for l in range(Lambda.shape[0])]


@arrays(Phi="N p", Psi="M p")
def verify(Phi, Psi, *, rank=None):
    """Every equation of the derivation, evaluated on K = Phi Psi^T: a list of Residual.

    rank: number of components, from 1 to the numerical rank of K, which is the default.

    >>> all(residual.ok for residual in verify([[2.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]]))
    True
    """
    return residuals(solution(Phi, Psi, rank=rank))


@arrays(A="N M")
def verify_matrix(A, *, rank=None):
    """Every equation of the derivation, evaluated on any real matrix through its compatible maps.

    >>> all(residual.ok for residual in verify_matrix([[0.0, 2.0, 1.0], [-1.0, 0.0, 3.0]]))
    True
    """
    return residuals(solution(*features.compatible(A), rank=rank, given=A))


class Residual(NamedTuple):
    """What one equation says of a matrix."""

    tag: str
    statement: str
    source: str
    value: float          # 0 on paper
    tolerance: float
    ok: bool              # value <= tolerance
    follows_from: str | None = None     # tags; a consequence is no test of its own


def residuals(s):
    """All residuals of one solution; replace a field of it to see which equations notice.

    >>> s = solution([[2.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]])
    >>> flipped = s._replace(H_e=-s.H_e)                                   # one side only
    >>> [residual.ok for residual in residuals(flipped) if residual.tag == "K.15"]
    [False]
    """
    if not isinstance(s, Solution):
        raise TypeError(f"s must be a Solution, as solution() returns, got {type(s).__name__}")
    tolerance, values = ROUNDINGS * s.rounding, [s.size(function(s)) for function in EQUATIONS]
    return [Residual(*describe(function), value, tolerance, value <= tolerance, function.follows)
            for function, value in zip(EQUATIONS, values)]


def describe(function):
    """Tag, statement and source of an equation, read from its docstring.

    >>> describe(coupled_eigenproblems)
    ('K.15', 'K Hᵣ = Hₑ Σ,  Kᵀ Hₑ = Hᵣ Σ', 'Chen et al. 2023; Lanczos 1958')
    """
    head, _, rest = function.__doc__.partition("\n")
    statement, tag = re.fullmatch(r"(.*) \((?:Eq\.|claim) ([\w.]+)\)\.", head).groups()
    return tag, statement, re.search(r"Source: (.*)\.$", rest)[1]
