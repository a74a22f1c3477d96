"""Primal = dual: two computations that share nothing but K = Phi Psi^T, on random matrices.

The dual sees K and never the features, the primal sees the features and never K. hypothesis chooses
the shapes, the ranks, the scales and the seeds; the entries are normal.
"""
import autograd.numpy as anp
import numpy as np
import pytest
from autograd import grad
from conftest import with_spectrum
from hypothesis import assume, given
from hypothesis import strategies as st

from ksvd_ref import dual, features, kernels, primal

SIZE = st.integers(1, 8)
SEED = st.integers(0, 2 ** 20)


@st.composite
def problems(draw):
    """Phi (N, p), Psi (M, p) of any shape, some with dependent columns."""
    N, M, p, r = draw(SIZE), draw(SIZE), draw(SIZE), draw(SIZE)
    rng = np.random.default_rng(draw(SEED))
    Phi, Psi = rng.standard_normal((N, p)), rng.standard_normal((M, p))
    if r < p and draw(st.booleans()):
        Phi = rng.standard_normal((N, r)) @ rng.standard_normal((r, p))
    return Phi, Psi


@st.composite
def matrices(draw):
    N, M = draw(SIZE), draw(SIZE)
    return np.random.default_rng(draw(SEED)).standard_normal((N, M))


def kept(Phi, Psi):
    """Components to compare: those above 1e-6 of |Phi| |Psi|, where both sides keep nine digits."""
    sigma = np.linalg.svd(Phi @ Psi.T)[1][:Phi.shape[1]]
    return int(np.sum(sigma > 1e-6 * np.linalg.norm(Phi, 2) * np.linalg.norm(Psi, 2))), sigma


def close(one, two, scale=1.0, tol=1e-8):
    np.testing.assert_allclose(one, two, rtol=0, atol=tol * scale)


# --- primal = dual

@given(problems())
def test_same_sigma_and_rank(problem):
    Phi, Psi = problem
    s, sigma = kept(Phi, Psi)
    K = Phi @ Psi.T
    for solution in (dual.solve(K), dual.solve_shifted(K), primal.solve(Phi, Psi)):
        close(solution.sigma[:s], sigma[:s], sigma[0])
    assert primal.solve(Phi, Psi).sigma.shape == dual.solve(K).sigma.shape


@given(problems(), SEED)
def test_same_scores_on_training_and_new_points(problem, seed):
    """K.14, K.20. E = Phi W_e = K H_r, R = Psi W_r = K^T H_e, as products that no rotation changes.

    V26. Scores at new points agree by both routes.
    """
    Phi, Psi = problem
    K, (s, sigma) = Phi @ Psi.T, kept(*problem)
    assume(s > 0 and np.all(sigma[s:] < 1e-9 * sigma[0]))           # no cut through a crowd
    P, D = primal.solve(Phi, Psi, rank=s), dual.solve(K, rank=s)
    rng = np.random.default_rng(seed)
    rows, columns = rng.standard_normal((3, Phi.shape[1])), rng.standard_normal((2, Phi.shape[1]))
    for x, y in ((Phi, Phi), (rows, Phi), (rows, rows)):
        e, f = primal.e_scores(x, P), primal.e_scores(y, P)
        g, h = dual.e_scores(x @ Psi.T, D), dual.e_scores(y @ Psi.T, D)
        close(e @ f.T, g @ h.T, np.max(np.abs(g)) * np.max(np.abs(h)) + sigma[0] ** 2)
    for z, y in ((Psi, Psi), (columns, Psi), (columns, columns)):
        e, f = primal.r_scores(z, P), primal.r_scores(y, P)
        g, h = dual.r_scores(Phi @ z.T, D), dual.r_scores(Phi @ y.T, D)
        close(e @ f.T, g @ h.T, np.max(np.abs(g)) * np.max(np.abs(h)) + sigma[0] ** 2)


@pytest.mark.parametrize("N, M, p", [(4, 6, 3), (5, 5, 5), (6, 4, 7), (1, 1, 1), (1, 5, 2),
                                     (5, 1, 3)])
def test_same_vectors_and_signs(lib, rng, N, M, p):
    """Simple sigma: the same numbers, column by column, without any matching of signs."""
    Phi, Psi = lib.array(rng.standard_normal((N, p))), lib.array(rng.standard_normal((M, p)))
    P, D = primal.solve(Phi, Psi), dual.solve(Phi @ Psi.T)
    tolerance = {"rtol": 0, "atol": 1e3 * lib.tol}
    for one, two in zip(primal.to_dual(P, Phi, Psi), D):
        np.testing.assert_allclose(lib.host(one), lib.host(two), **tolerance)
    for one, two in zip(primal.from_dual(D, Phi, Psi), P):
        np.testing.assert_allclose(lib.host(one), lib.host(two), **tolerance)
    rows, columns = lib.array(rng.standard_normal((3, p))), lib.array(rng.standard_normal((2, p)))
    for one, two in ((primal.e_scores(rows, P), dual.e_scores(rows @ Psi.T, D)),
                     (primal.r_scores(columns, P), dual.r_scores(Phi @ columns.T, D))):
        np.testing.assert_allclose(lib.host(one), lib.host(two), **tolerance)


@pytest.mark.parametrize("kernel, maps, parameters", [
    (kernels.linear, lambda X, Z: (X, Z), {}),
    (kernels.cosine, features.cosine, {}),
    (kernels.polynomial, features.polynomial, {"degree": 2, "gamma": 0.5, "coef0": -1.0}),
    (kernels.polynomial, features.polynomial, {"degree": 3, "coef0": 0.0})])
def test_a_kernel_and_its_maps(rng, kernel, maps, parameters):
    """K.5. A kernel of two arguments, κ(x, z) = ⟨φ(x), ψ(z)⟩: two maps, two spaces. Source: Chen et
    al. 2023.

    Everything from the kernel function on one side, from its feature maps on the other.
    """
    X, Z = rng.standard_normal((30, 3)), rng.standard_normal((20, 3))
    D = dual.solve(kernel(X, Z, **parameters))
    P = primal.solve(*maps(X, Z, **parameters))
    close(P.sigma, D.sigma, D.sigma[0], 1e-12)
    x, z = rng.standard_normal((4, 3)), rng.standard_normal((5, 3))
    one = primal.e_scores(maps(x, Z, **parameters)[0], P)
    two = dual.e_scores(kernel(x, Z, **parameters), D)
    close(one, two, np.max(np.abs(two)), 1e-9)
    one = primal.r_scores(maps(X, z, **parameters)[1], P)
    two = dual.r_scores(kernel(X, z, **parameters), D)
    close(one, two, np.max(np.abs(two)), 1e-9)


@given(matrices())
def test_any_matrix_has_a_primal(A):
    """K.33. Through the compatible maps: the same sigma, and E, R of the matrix itself."""
    D, P = dual.solve(A), primal.solve(*features.compatible(A))
    close(P.sigma, D.sigma, D.sigma[0], 1e-10)
    Phi, Psi = features.compatible(A)
    E, R = primal.e_scores(Phi, P), primal.r_scores(Psi, P)
    close(E / D.sigma @ R.T, A, D.sigma[0])


@given(problems(), SEED)
def test_maps_are_not_unique(problem, seed):
    """V24. Feature maps are not unique: (ΦT, ΨT⁻ᵀ) gives the same K, H, E, R and other W."""
    Phi, Psi = problem
    s, sigma = kept(Phi, Psi)
    p = Phi.shape[1]
    T = with_spectrum(np.random.default_rng(seed), p, p, np.linspace(2.0, 1.0, p))
    one, two = primal.solve(Phi, Psi), primal.solve(Phi @ T, Psi @ np.linalg.inv(T).T)
    close(one.sigma[:s], two.sigma[:s], max(sigma[0], 1e-300))
    if s == one.sigma.size == two.sigma.size:
        E, F = Phi @ one.W_e, Phi @ T @ two.W_e
        close(E @ E.T, F @ F.T, max(sigma[0], 1e-300) ** 2)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("condition", [1.0, 9e2, 1e6])
@pytest.mark.parametrize("sigma", [(3.0, 2.0, 1.0), (2.0, 2.0, 1.0), (1.0, 1.0, 1.0), (2.0, 1.0)])
def test_same_derivatives(sigma, condition, seed):
    """Of a loss of E R^T and of sigma: the dual's, pulled through K = Phi Psi^T by the chain rule.

    kappa is `condition` up to 3: the Gram matrix may lose kappa^2 eps, QR kappa eps. Where sigma
    are equal on paper they differ by as much: still a tie, or 1 / gap explodes. E R^T holds the
    tied columns as a whole; to_dual would weight each by a sigma of its own.
    """
    rng = np.random.default_rng(seed)
    C = rng.standard_normal((5, 4))
    T = (np.linalg.qr(rng.standard_normal((3, 3)))[0] * np.geomspace(1.0, 1.0 / condition, 3)
         @ np.linalg.qr(rng.standard_normal((3, 3)))[0])
    K = with_spectrum(rng, 5, 4, sigma)
    U, values, Vt = np.linalg.svd(K)
    Phi, Psi = U[:, :3] * values[:3] @ T, Vt[:3].T @ np.linalg.inv(T).T
    s = len(sigma)

    def of_dual(K):
        D = dual.solve(K, rank=s)
        return (anp.sum(C * (dual.e_scores(K, D) @ dual.r_scores(K, D).T)) + anp.sum(D.sigma ** 3))

    def of_primal(Phi, Psi):
        P = primal.solve(Phi, Psi, rank=s)
        E, R = primal.e_scores(Phi, P), primal.r_scores(Psi, P)
        return anp.sum(C * (E @ R.T)) + anp.sum(P.sigma ** 3)
    G = grad(of_dual)(K)
    for n, want in ((0, G @ Psi), (1, G.T @ Phi)):
        got = grad(of_primal, n)(Phi, Psi)
        lost = condition ** 2 if condition <= 1e3 else condition
        close(got, want, np.max(np.abs(want)), 1e2 * lost * np.finfo(float).eps + 1e-13)


# --- what must not matter, or must in a known way

def solve_all(K):
    """Every solver on K: the two duals, and the primal through the compatible maps."""
    Phi, Psi = features.compatible(K)
    return [dual.solve(K), dual.solve_shifted(K),
            primal.to_dual(primal.solve(Phi, Psi), Phi, Psi)]


def assert_same(one, two, K):
    """sigma, and the products H_e H_r^T and H_e Sigma H_r^T that no sign and no rotation changes.

    H_e H_r^T needs the smallest sigma apart from 0: its error is eps kappa, in the primal kappa^2.
    """
    sigma = np.linalg.svd(K)[1]
    kappa = sigma[0] / sigma[-1]
    for (H_e, s, H_r), (G_e, t, G_r) in zip(one, two):
        close(s, t, sigma[0], 1e-10)
        close(H_e * s @ H_r.T, G_e * t @ G_r.T, sigma[0], 1e-10)
        close(H_e @ H_r.T, G_e @ G_r.T, 1.0, 1e-12 * kappa ** 2)


@given(matrices(), SEED)
def test_permuting_rows_and_columns(K, seed):
    rng = np.random.default_rng(seed)
    rows, columns = rng.permutation(K.shape[0]), rng.permutation(K.shape[1])
    permuted = solve_all(K[rows, :][:, columns])
    assert_same([(H_e[rows, :], s, H_r[columns, :]) for H_e, s, H_r in solve_all(K)], permuted, K)


@given(matrices())
def test_transposing_exchanges_the_sides(K):
    """V17. Every route gives (H_r, sigma, H_e) for K^T."""
    assert_same([(H_r, s, H_e) for H_e, s, H_r in solve_all(K)], solve_all(K.T), K)


@given(matrices(), st.integers(-400, 400), st.sampled_from([1.0, -1.0]))
def test_scaling_the_matrix(K, power, sign):
    """K -> cK: sigma -> |c| sigma; a negative c turns one side against the other."""
    scaled = [(H_e, s / 2.0 ** power, sign * H_r)
              for H_e, s, H_r in solve_all(sign * 2.0 ** power * K)]
    assert_same(scaled, solve_all(K), K)


@given(matrices())
def test_orthogonal_changes_of_one_side(K):
    """Q K has the same sigma and H_r, and Q H_e on the left."""
    Q = np.linalg.qr(np.random.default_rng(0).standard_normal((K.shape[0],) * 2))[0]
    assert_same([(Q @ H_e, s, H_r) for H_e, s, H_r in solve_all(K)], solve_all(Q @ K), K)


@given(matrices())
def test_zero_rows_and_columns_add_nothing(K):
    N, M = K.shape
    padded = [(H_e[:N], s, H_r[:M]) for H_e, s, H_r in solve_all(np.pad(K, ((0, 2), (0, 1))))]
    assert_same(padded, solve_all(K), K)


@given(matrices())
def test_the_sign_is_joint_and_the_same_everywhere(K):
    """V12. Columns, not products: one sign rule for three algorithms."""
    sigma = np.linalg.svd(K)[1]
    gap = np.min(-np.diff(sigma, append=0.0)) / sigma[0]
    assume(gap > 1e-3)                              # well apart: the columns are determined
    first, *others = solve_all(K)
    for solution in others:
        for one, two in zip(first, solution):
            close(one, two, np.max(np.abs(one)), 1e-6)


@given(matrices())
def test_calling_twice_gives_the_same(K):
    for one, two in zip(solve_all(K), solve_all(K)):
        for a, b in zip(one, two):
            np.testing.assert_array_equal(a, b, strict=True)


@given(matrices())
def test_centring_twice_is_centring_once(K):
    """P_N and P_M are projectors; a constant on every row or every column is gone."""
    once = kernels.center(K)
    close(kernels.center(once), once, 1.0, 1e-14)
    moved = K + np.arange(float(K.shape[0]))[:, None] - 3.0 * np.arange(float(K.shape[1]))
    close(kernels.center(moved), once, 1.0, 1e-13)
