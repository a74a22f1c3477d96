"""The primal: W_e = Psi^T H_r, W_r = Phi^T H_e without K; the objective J and its gradient."""
import autograd.numpy as anp
import numpy as np
import pytest
from autograd import grad
from conftest import assert_gradient, with_spectrum

from ksvd_ref import primal, triangles

RNG = np.random.default_rng(17)


def features(N, M, p, sigma=None):
    """Phi (N, p) and Psi (M, p); with `sigma` K has exactly these singular values."""
    if sigma is None:
        return RNG.standard_normal((N, p)), RNG.standard_normal((M, p))
    return with_spectrum(RNG, N, p, sigma), np.linalg.qr(RNG.standard_normal((M, p)))[0]


SKEW = RNG.standard_normal((5, 5))
CASES = {                                       # N, M and p in every order
    "p<N<M": features(5, 8, 3),
    "p<M<N": features(8, 5, 3),
    "N<p<M": features(3, 8, 5),
    "M<p<N": features(8, 3, 5),
    "N<M<p": features(3, 5, 8),
    "M<N<p": features(5, 3, 8),
    "N=M=p": features(4, 4, 4),
    "1x1": (np.array([[-2.0]]), np.array([[3.0]])),
    "one-row": features(1, 6, 4),
    "one-column": features(6, 1, 4),
    "one-feature": features(6, 5, 1),
    "rank-2": features(7, 6, 4, [3.0, 1.0]),
    "repeated": features(7, 6, 4, [2.0, 2.0, 1.0, 1.0]),
    "orthonormal": features(6, 5, 3, [1.0, 1.0, 1.0]),
    "zero": (np.zeros((3, 2)), np.ones((4, 2))),
    "symmetric": (SKEW, SKEW),
    "antisymmetric": (SKEW - SKEW.T, np.eye(5)),
    "low-Phi": (np.outer([1.0, 2.0, 3.0], [1.0, 0.0, 2.0]), RNG.standard_normal((4, 3))),
}


def sizes(case):
    Phi, Psi = CASES[case]
    return Phi.shape[0], Psi.shape[0], Phi.shape[1], min(*Phi.shape, Psi.shape[0])


# --- the solution

@pytest.mark.parametrize("case", CASES)
def test_coupled_covariances(lib, case):
    """K.17, V14. Times Sigma, and W_e^T W_r = Sigma; every component, also of sigma = 0.

    Tolerance: the Gram matrix may lose a factor of kappa^2 <= 1e4 (float32: 100), here it is < 1e3
    in all that is compared, hence a hundred of the thousand roundings of lib.tol.
    """
    Phi, Psi = CASES[case]
    N, M, p, k = sizes(case)
    W_e, sigma, W_r = map(lib.host, primal.solve(lib.array(Phi), lib.array(Psi), rank=k))
    assert (W_e.shape, sigma.shape, W_r.shape) == ((p, k), (k,), (p, k))
    scale = np.linalg.norm(Phi, 2) * np.linalg.norm(Psi, 2) or 1.0
    a, b = np.linalg.norm(Phi, 2) or 1.0, np.linalg.norm(Psi, 2) or 1.0
    close = {"rtol": 0, "atol": 1e2 * lib.tol}
    np.testing.assert_allclose(sigma / scale, np.linalg.svd(Phi @ Psi.T)[1][:k] / scale, **close)
    np.testing.assert_allclose(Phi.T @ (Phi @ W_e) / a / scale, W_r * sigma / a / scale, **close)
    np.testing.assert_allclose(Psi.T @ (Psi @ W_r) / b / scale, W_e * sigma / b / scale, **close)
    np.testing.assert_allclose(W_e.T @ W_r / scale, np.diag(sigma) / scale, **close)
    np.testing.assert_allclose((Phi @ W_e).T @ (Phi @ W_e) / scale ** 2,
                               np.diag(sigma ** 2) / scale ** 2, **close)


@pytest.mark.parametrize("case", CASES)
def test_rebuilds_the_kernel_matrix(lib, case):
    """V15. K = E Lambda R^T over the numerical rank, which is that of K."""
    Phi, Psi = CASES[case]
    K = Phi @ Psi.T
    solution = primal.solve(lib.array(Phi), lib.array(Psi))
    W_e, sigma, W_r = map(lib.host, solution)
    assert sigma.shape == (np.linalg.matrix_rank(K),)
    got = (Phi @ W_e) @ np.diag(1.0 / sigma) @ (Psi @ W_r).T
    scale = np.linalg.norm(Phi, 2) * np.linalg.norm(Psi, 2) or 1.0
    kappa = scale / min(sigma, default=1.0)
    np.testing.assert_allclose(got, K, rtol=0, atol=10 * kappa * lib.tol * scale)


@pytest.mark.parametrize("case", ["p<N<M", "N<p<M", "M<N<p", "1x1", "rank-2", "antisymmetric"])
def test_one_joint_sign(lib, case):
    """The entry of largest magnitude of each column of E = Phi W_e is positive."""
    Phi, Psi = CASES[case]
    E = Phi @ lib.host(primal.solve(lib.array(Phi), lib.array(Psi)).W_e)
    assert np.all(E[np.argmax(np.abs(E), axis=0), np.arange(E.shape[1])] > 0.0)


@pytest.mark.parametrize("s", [1, 2, 3])
def test_leading_components(lib, s):
    """Asking for fewer gives the first of those."""
    Phi, Psi = map(lib.array, CASES["p<N<M"])
    for some, all_of_them in zip(primal.solve(Phi, Psi, rank=s), primal.solve(Phi, Psi)):
        want = lib.host(all_of_them)[..., :s]
        np.testing.assert_allclose(lib.host(some), want, rtol=0, atol=1e2 * lib.tol)


def test_zero_features_have_no_components(lib):
    W_e, sigma, W_r = primal.solve(*map(lib.array, CASES["zero"]))
    assert (W_e.shape, sigma.shape, W_r.shape) == ((2, 0), (0,), (2, 0))
    lib.keeps(sigma)


@pytest.mark.parametrize("a, b", [(2.0 ** -500, 1.0), (2.0 ** 500, 1.0), (1.0, 2.0 ** -500),
                                  (2.0 ** 500, 2.0 ** -500), (2.0 ** 500, 2.0 ** 500),
                                  (2.0 ** -500, 2.0 ** -500), (2.0 ** -900, 2.0 ** 900)])
@pytest.mark.parametrize("case", ["p<N<M", "N<M<p", "rank-2"])
def test_scales(case, a, b):
    """W_e scales with Psi, W_r with Phi, sigma with both; 2^500 = 3e150, 2^900 has no square."""
    Phi, Psi = CASES[case]
    one, other = primal.solve(Phi, Psi), primal.solve(a * Phi, b * Psi)
    np.testing.assert_allclose(other.sigma / a / b, one.sigma, rtol=1e-10)
    np.testing.assert_allclose(other.W_e / b, one.W_e, rtol=0, atol=1e-10)
    np.testing.assert_allclose(other.W_r / a, one.W_r, rtol=0, atol=1e-10)


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
def test_a_product_that_overflows_is_refused():
    with pytest.raises(ValueError, match=r"Phi Psi\^T overflows"):
        primal.solve(1e200 * np.eye(2), 1e200 * np.eye(2))


# --- two routes to R, and the gate between them

SIGMA = np.array([3.0, 2.5, 2.0, 1.5, 1.0])


def opposed(seed, condition, mixed=True):
    """Features whose large directions meet the small ones of the other side; K is harmless.

    |Phi| |Psi| / sigma_s is about `condition`, the singular values of K are SIGMA.
    """
    rng, D = np.random.default_rng(seed), np.geomspace(1.0, 1.0 / condition, 5)
    P, Q = (np.linalg.qr(rng.standard_normal((n, 5)))[0] for n in (30, 20))
    T = np.linalg.qr(rng.standard_normal((5, 5)))[0] if mixed else np.eye(5)
    return P * D @ T, Q * (SIGMA / D) @ T


def gram_alone(Phi, Psi):
    return triangles.core(*(triangles.gram_root(A, "A") for A in (Phi, Psi)), 5)[1]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("condition", [1e0, 1e1, 1e2, 1e3, 1e4, 1e6, 1e8, 3e9])
def test_opposed_features(seed, condition):
    """K.39. Gram: error kappa^2 eps up to kappa = 100; QR above: kappa eps. Ten of each are
    allowed.

    kappa eps cannot be beaten: rounding the entries of Phi and Psi once moves sigma by as much.
    """
    Phi, Psi = opposed(seed, condition)
    sigma = primal.solve(Phi, Psi, rank=5).sigma
    loss = condition ** 2 if condition <= 100 else condition
    np.testing.assert_allclose(sigma, SIGMA, rtol=10 * loss * np.finfo(float).eps + 1e-14)


def test_more_features_than_points(rng):
    """R = A serves: nothing p x p is decomposed, which would take minutes here."""
    Phi, Psi = rng.standard_normal((9, 3000)), rng.standard_normal((7, 3000))
    K = Phi @ Psi.T
    W_e, sigma, W_r = primal.solve(Phi, Psi)
    np.testing.assert_allclose(sigma, np.linalg.svd(K, compute_uv=False), rtol=1e-12)
    # E Lambda R^T = K: of the size of sigma_1 and known to a few of its roundings
    np.testing.assert_allclose(Phi @ W_e / sigma @ (Psi @ W_r).T, K, rtol=0, atol=1e-12 * sigma[0])


def test_stationarity_is_the_largest_over_columns(lib, rng):
    """K.17. A wrong column beside a right one a thousand times as long: 0.001 as one norm."""
    Phi, Psi = features(6, 5, 3)
    W_e, sigma, W_r = primal.solve(Phi, Psi)
    wrong = W_e * [1.0, 1.0, -1.0], W_r, 1.0 / sigma, Phi, Psi
    long = wrong[0] * [1e3, 1.0, 1.0], W_r * [1e3, 1.0, 1.0], 1.0 / sigma, Phi, Psi
    for point in (wrong, long):
        np.testing.assert_allclose(lib.host(primal.stationarity(*map(lib.array, point))), 1.0,
                                   rtol=1e3 * lib.tol)
    right = W_e, W_r, 1.0 / sigma, Phi, Psi
    assert lib.host(primal.stationarity(*map(lib.array, right))) < 1e2 * lib.tol


@pytest.mark.parametrize("dtype, scale", [("float64", 1e-200), ("float64", 1e155),
                                          ("float32", 1e-23), ("float32", 1e18)])
def test_stationarity_has_no_scale(rng, dtype, scale):
    """Squares of 1e-200 are 0: without a scale a point that is none would pass for a solution."""
    Phi, Psi = features(6, 5, 3)
    W = rng.standard_normal((2, 3, 2))
    want = primal.stationarity(*W, [1.0, 2.0], Phi, Psi)
    got = primal.stationarity(*(W * scale).astype(dtype), np.array([1.0, 2.0], dtype),
                              Phi.astype(dtype), Psi.astype(dtype))
    np.testing.assert_allclose(got, want, rtol=1e4 * np.finfo(dtype).eps)


@pytest.mark.parametrize("scale", [1e-300, 1e-170, 1e-160, 1e150, 1e300])
def test_a_solution_of_any_size_is_one(rng, scale):
    """E Λ is of the size of H; E² and ΦᵀE, which vanish or overflow, are not formed."""
    Phi, Psi = features(6, 5, 3)
    Phi = scale * Phi
    W_e, sigma, W_r = primal.solve(Phi, Psi)
    assert primal.stationarity(W_e, W_r, 1 / sigma, Phi, Psi) < 1e-13
    assert abs(primal.objective(W_e, W_r, 1 / sigma, Phi, Psi)) < 1e-13 * sigma.sum()
    assert primal.stationarity(W_e, W_r, 2 / sigma, Phi, Psi) > 0.1


@pytest.mark.parametrize("scale", [1e-150, 1e-90, 1e80])
def test_missed_share_has_no_scale(rng, scale):
    Phi, Psi = features(6, 5, 3)
    A, B = rng.standard_normal((2, 3, 2))
    np.testing.assert_allclose(primal.missed_share(A, B, scale * Phi, scale * Psi),
                               primal.missed_share(A, B, Phi, Psi), rtol=1e-12)
    with pytest.raises(ValueError, match="K = Phi Psi.T is zero, or the factors are too large"):
        primal.missed_share(A, B, 0.0 * Phi, Psi)


def test_from_factors_under_autograd_says_what_to_do():
    with pytest.raises(TypeError, match="from_factors cannot be differentiated: primal.solve can"):
        grad(lambda A: primal.from_factors(A, [[1.0]], [[2.0]], [[1.0]]).sigma[0])(np.ones((1, 1)))


def test_to_dual_has_the_rank_rule_of_solve():
    """sigma = 1e-17 |Phi| |Psi| both times: rank 0 by the features, though sigma_2 = sigma_1."""
    Phi, Psi = np.diag([1.0, 1e-17]), np.diag([1e-17, 1.0])
    with pytest.raises(ValueError, match="numerical rank 0 expected at most, got 2 components"):
        primal.to_dual(primal.solve(Phi, Psi, rank=2), Phi, Psi)


def test_stationarity_takes_lists():
    assert primal.stationarity([[1.0]], [[2.0]], [0.5], [[2.0]], [[1.0]]) == 0.0   # K = 2


@pytest.mark.parametrize("condition", [1e4, 1e6, 1e8, 3e9])
def test_opposed_columns(condition):
    """Large and small columns, not mixed: QR works column by column and keeps every digit."""
    Phi, Psi = opposed(0, condition, mixed=False)
    np.testing.assert_allclose(primal.solve(Phi, Psi, rank=5).sigma, SIGMA, rtol=1e-13)


@pytest.mark.parametrize("condition, at_least", [(1e6, 1e-7), (1e8, 1e-4), (3e9, 1e-1)])
def test_the_gram_matrix_alone_is_wrong_there(condition, at_least):
    """What the gate is for: without it these sigma would be off by more than `at_least`."""
    Phi, Psi = opposed(0, condition)
    assert np.max(np.abs(gram_alone(Phi, Psi) / SIGMA - 1.0)) > at_least
    np.testing.assert_allclose(primal.solve(Phi, Psi, rank=5).sigma, SIGMA, rtol=1e-6)


@pytest.mark.parametrize("condition, dtype, route", [
    (1.0, "float64", "gram"), (99.0, "float64", "gram"), (101.0, "float64", "qr"),
    (1e12, "float64", "qr"), (9.0, "float32", "gram"), (11.0, "float32", "qr")])
def test_the_gate(monkeypatch, condition, dtype, route):
    """QR is called above |Phi| |Psi| / sigma_s = 100 and not below: it costs 3 to 12 times."""
    calls, qr = [], np.linalg.qr
    monkeypatch.setattr(np.linalg, "qr", lambda A, **how: calls.append(A.shape) or qr(A, **how))
    Phi, Psi = np.diag([1.0, 1.0 / condition]).astype(dtype), np.eye(2, dtype=dtype)
    primal.solve(Phi, Psi)                      # |Phi| = |Psi| = 1
    assert bool(calls) == (route == "qr")


def test_the_gate_looks_at_the_components_asked_for(monkeypatch):
    """sigma_1 alone is safe through the Gram matrix though sigma_4 is not."""
    Phi, Psi = np.diag([1.0, 1e-1, 2e-2, 1e-9]), np.eye(4)
    calls, qr = [], np.linalg.qr
    monkeypatch.setattr(np.linalg, "qr", lambda A, **how: calls.append(A.shape) or qr(A, **how))
    primal.solve(Phi, Psi, rank=3)
    assert not calls
    primal.solve(Phi, Psi, rank=4)
    assert calls


@pytest.mark.parametrize("condition", [10.0, 300.0, 1e5])
def test_opposed_features_in_float32(condition):
    """The limit is 10: kappa^2 eps = 1e-5. Above it QR, kappa eps."""
    Phi, Psi = (A.astype("float32") for A in opposed(0, condition))
    sigma = primal.solve(Phi, Psi, rank=5).sigma
    assert sigma.dtype == np.float32
    loss = condition ** 2 if condition <= 10.0 else condition
    np.testing.assert_allclose(sigma, SIGMA, rtol=10 * loss * 1.2e-7)


def test_rank_is_relative_to_the_features():
    """sigma = 1e-17 = |Phi| |Psi| 1e-17: below what one rounding of Phi or Psi would add to K."""
    Phi, Psi = np.diag([1.0, 1e-17]), np.diag([1e-17, 1.0])
    assert primal.solve(Phi, Psi).sigma.shape == (0,)
    np.testing.assert_allclose(primal.solve(Phi, Psi, rank=2).sigma, [1e-17, 1e-17], rtol=1e-14)


# --- objective and gradient

def random_point(rng, p=3, s=2, N=5, M=4):
    return tuple(rng.standard_normal(shape) for shape in ((p, s), (p, s), (s,), (N, p), (M, p)))


def test_objective(lib, rng):
    """K.8. The primal problem: J as sums over rows and columns, subject to e_i = W_eᵀφ(x_i), r_j =
    W_rᵀψ(z_j). Source: Chen et al. 2023.

    K.10. The sums, one point and one component at a time.
    """
    W_e, W_r, Lambda, Phi, Psi = point = random_point(rng)
    want = 0.0
    for l in range(2):
        want += 0.5 * Lambda[l] * sum((phi @ W_e[:, l]) ** 2 for phi in Phi)
        want += 0.5 * Lambda[l] * sum((psi @ W_r[:, l]) ** 2 for psi in Psi)
        want -= sum(W_e[i, l] * W_r[i, l] for i in range(3))
    got = primal.objective(*map(lib.array, point))
    np.testing.assert_allclose(lib.host(got), want, rtol=0, atol=1e2 * lib.tol)


def test_gradient(lib, rng):
    """K.18. Against autograd's derivative of the objective."""
    W_e, W_r, Lambda, Phi, Psi = point = random_point(rng)
    dW_e, dW_r = map(lib.host, primal.gradient(*map(lib.array, point)))
    want_e = grad(primal.objective, 0)(*point)
    want_r = grad(primal.objective, 1)(*point)
    assert dW_e.shape == W_e.shape and dW_r.shape == W_r.shape
    np.testing.assert_allclose(dW_e, want_e, rtol=0, atol=1e2 * lib.tol)
    np.testing.assert_allclose(dW_r, want_r, rtol=0, atol=1e2 * lib.tol)


@pytest.mark.parametrize("n", range(5))
def test_objective_by_central_differences(rng, n):
    """V1. In every argument."""
    point = random_point(rng)
    assert_gradient(lambda x: primal.objective(*point[:n], x, *point[n+1:]), point[n])


def test_gradient_can_be_differentiated(rng):
    """K.18. Its derivative is the Hessian of J, which is symmetric: half of it is K.18 once more.
    """
    point, C = random_point(rng), rng.standard_normal((2, 3, 2))
    for n in range(5):
        assert_gradient(lambda x: sum(anp.sum(c * g) for c, g in zip(
            C, primal.gradient(*point[:n], x, *point[n+1:]))), point[n])


def test_objective_by_hand():
    """V5. J = 0 is necessary, not sufficient: W_e = W_r = (1, 1), λ = 4/7 on Φ = diag(2, 1), Ψ = I.
    """
    one, Phi, Psi = np.ones((2, 1)), np.diag([2.0, 1.0]), np.eye(2)
    assert abs(primal.objective(one, one, [4 / 7], Phi, Psi)) < 1e-15
    dW_e, dW_r = primal.gradient(one, one, [4 / 7], Phi, Psi)
    np.testing.assert_allclose(dW_e, [[9 / 7], [-3 / 7]], rtol=1e-14)
    np.testing.assert_allclose(dW_r, [[-3 / 7], [-3 / 7]], rtol=1e-14)


@pytest.mark.parametrize("chosen", [[0], [3], [1, 2], [0, 3], [2, 0, 1], [0, 1, 2, 3], [1, 1]])
def test_every_set_of_components_is_stationary(rng, chosen):
    """V3. J = 0 and no gradient, in any order and with any scale per component."""
    Phi, Psi = rng.standard_normal((9, 4)), rng.standard_normal((7, 4))
    W_e, sigma, W_r = primal.solve(Phi, Psi)
    scale = rng.uniform(0.5, 2.0, len(chosen))
    point = (W_e[:, chosen] * scale, W_r[:, chosen] * scale, 1.0 / sigma[chosen], Phi, Psi)
    assert abs(primal.objective(*point)) < 1e-11            # sums of about 1e2, kappa^2 = 1e2
    for part in primal.gradient(*point):
        np.testing.assert_allclose(part, 0.0, atol=1e-11)
    wrong = primal.gradient(*point[:2], sigma[chosen], Phi, Psi)    # Lambda = Sigma: not stationary
    assert np.max(np.abs(wrong)) > 0.1


# --- between the sides

def test_the_sides_cross(lib, rng):
    """K.12. W_e = Psi^T H_r and W_r = Phi^T H_e, summed point by point."""
    Phi, Psi, H_e, H_r = (rng.standard_normal(shape) for shape in ((5, 3), (4, 3), (5, 2), (4, 2)))
    sigma = np.array([2.0, 1.0])
    W_e, kept, W_r = map(lib.host, primal.from_dual(
        tuple(map(lib.array, (H_e, sigma, H_r))), lib.array(Phi), lib.array(Psi)))
    np.testing.assert_allclose(W_e, sum(np.outer(Psi[j], H_r[j]) for j in range(4)),
                               rtol=0, atol=10 * lib.tol)
    np.testing.assert_allclose(W_r, sum(np.outer(Phi[i], H_e[i]) for i in range(5)),
                               rtol=0, atol=10 * lib.tol)
    np.testing.assert_array_equal(kept, sigma)


@pytest.mark.parametrize("case", ["p<N<M", "N<M<p", "1x1", "repeated", "rank-2"])
def test_to_dual(lib, case):
    """K.13. H_e = E Lambda, H_r = R Lambda: orthonormal, and there and back is the identity."""
    Phi, Psi = map(lib.array, CASES[case])
    solution = primal.solve(Phi, Psi)
    variables = primal.to_dual(solution, Phi, Psi)
    H_e, sigma, H_r = map(lib.host, variables)
    K, close = CASES[case][0] @ CASES[case][1].T, {"rtol": 0, "atol": 1e3 * lib.tol}
    np.testing.assert_allclose(H_e.T @ H_e, np.eye(len(sigma)), **close)
    np.testing.assert_allclose(H_r.T @ H_r, np.eye(len(sigma)), **close)
    np.testing.assert_allclose(K @ H_r, H_e * sigma, **close)
    for one, two in zip(primal.from_dual(variables, Phi, Psi), solution):
        np.testing.assert_allclose(lib.host(one), lib.host(two), **close)


@pytest.mark.parametrize("case, rank", [("rank-2", 2), ("zero", 0), ("antisymmetric", 4)])
def test_to_dual_needs_sigma_above_zero(case, rank):
    """V16. Lambda = 1 / sigma exists only there; the error names the numerical rank."""
    Phi, Psi = CASES[case]
    solution = primal.solve(Phi, Psi, rank=sizes(case)[3])
    with pytest.raises(ValueError, match=f"sigma > 0: numerical rank {rank} expected"):
        primal.to_dual(solution, Phi, Psi)


# --- the loss whose minimum is the KSVD

def leading_factors(W_e, sigma, W_r, T):
    """A and B of the components given, mixed by T."""
    return W_e / sigma ** 0.5 @ T, W_r / sigma ** 0.5 @ np.linalg.inv(T).T


@pytest.mark.parametrize("case", ["p<N<M", "N<p<M", "M<N<p", "one-row", "rank-2", "repeated"])
def test_approximation_loss(lib, rng, case):
    """K.41. Against ½ ‖K − ΦA(ΨB)ᵀ‖² − ½ ‖K‖² with K in hand; the share is that over ½ ‖K‖²."""
    Phi, Psi = CASES[case]
    A, B = rng.standard_normal((2, Phi.shape[1], 2))
    K = Phi @ Psi.T
    want = (np.sum((K - Phi @ A @ (Psi @ B).T) ** 2) - np.sum(K ** 2)) / 2
    four = tuple(map(lib.array, (A, B, Phi, Psi)))
    atol = 10 * lib.tol * np.sum((Phi @ A) ** 2) * np.sum((Psi @ B) ** 2)
    got, share = (float(lib.host(f(*four))) for f in (primal.approximation_loss,
                                                      primal.missed_share))
    np.testing.assert_allclose(got, want, rtol=0, atol=atol)
    np.testing.assert_allclose(share, 1 + 2 * want / np.sum(K ** 2), rtol=0,
                               atol=2 * atol / np.sum(K ** 2))


@pytest.mark.parametrize("side", [0, 1])
def test_approximation_gradient(lib, rng, side):
    """K.41. Against central differences of the loss, and autograd's."""
    Phi, Psi = CASES["p<N<M"]
    A, B = rng.standard_normal((2, 3, 2))
    f = (lambda A: primal.approximation_loss(A, B, Phi, Psi)) if side == 0 else \
        (lambda B: primal.approximation_loss(A, B, Phi, Psi))
    assert_gradient(f, (A, B)[side])
    got = primal.approximation_gradient(*map(lib.array, (A, B, Phi, Psi)))[side]
    want = grad(f)((A, B)[side])
    np.testing.assert_allclose(lib.host(got), want, rtol=0, atol=lib.tol * np.abs(want).max())


@pytest.mark.parametrize("s", [1, 2, 3])
def test_the_minimum_is_the_leading_components(rng, s):
    """K.42. The minimum of L is −½ Σ_{l≤s} σ_l², at the s leading components in any mixture T.

    Source: derived; Baldi and Hornik 1989.
    """
    Phi, Psi = features(9, 7, 5, [5.0, 4.0, 3.0, 2.0, 1.0])
    solution = primal.solve(Phi, Psi, s)
    least = -np.sum(solution.sigma ** 2) / 2
    for _ in range(5):
        A, B = leading_factors(*solution, rng.standard_normal((s, s)))
        np.testing.assert_allclose(primal.approximation_loss(A, B, Phi, Psi), least, rtol=1e-9)
        for slope in primal.approximation_gradient(A, B, Phi, Psi):
            np.testing.assert_allclose(slope, 0.0, atol=1e-8 * np.abs(A).max() ** 3)
        others = rng.standard_normal((2, 5, s)) * rng.uniform(0.1, 2.0)
        assert primal.approximation_loss(*others, Phi, Psi) > least + 1e-9


def test_other_components_are_strict_saddles():
    """K.42. Stationary at sigma_2 and sigma_3 too, and a way down leads to sigma_1 from there."""
    Phi, Psi = features(9, 7, 5, [5.0, 4.0, 3.0, 2.0, 1.0])
    W_e, sigma, W_r = primal.solve(Phi, Psi)
    A, B = (W[:, 1:3] / sigma[1:3] ** 0.5 for W in (W_e, W_r))
    for slope in primal.approximation_gradient(A, B, Phi, Psi):
        np.testing.assert_allclose(slope, 0.0, atol=1e-11)
    A, B = (X + 1e-3 * W[:, :1] for X, W in ((A, W_e), (B, W_r)))          # mix sigma_1 in
    for _ in range(4000):
        slopes = primal.approximation_gradient(A, B, Phi, Psi)
        A, B = A - 1e-2 * slopes[0], B - 1e-2 * slopes[1]
    np.testing.assert_allclose(primal.approximation_loss(A, B, Phi, Psi), -(25 + 16) / 2,
                               rtol=1e-6)


def test_from_factors(lib, rng):
    """K.43. From spans to vectors: those of primal.solve at any minimiser."""
    Phi, Psi = features(9, 7, 5, [5.0, 4.0, 3.0, 2.0, 1.0])
    want = primal.solve(Phi, Psi, 3)
    factors = leading_factors(*want, np.eye(3) + 0.3 * rng.standard_normal((3, 3)))
    for got, one in zip(primal.from_factors(*map(lib.array, (*factors, Phi, Psi))), want):
        np.testing.assert_allclose(lib.host(got), one, rtol=0, atol=1e2 * lib.tol)


def test_alternating_polar_factors_raise_the_trace(rng):
    """K.44. A ← polar(KB), B ← polar(KᵀA) raises tr(AᵀKB) at every step, to the s largest σ.

    Source: derived.
    """
    K = with_spectrum(rng, 9, 7, [5.0, 4.0, 3.0, 2.0, 1.0])
    polar = lambda S: (lambda U, _, Vt: U @ Vt)(*np.linalg.svd(S, full_matrices=False))
    for _ in range(5):
        B, trace = polar(rng.standard_normal((7, 3))), [-np.inf]
        for _ in range(300):
            A = polar(K @ B)
            B = polar(K.T @ A)
            trace.append(np.sum(A * (K @ B)))
        assert np.all(np.diff(trace) > -1e-12)
        np.testing.assert_allclose(trace[-1], 12.0, rtol=1e-9)


def test_one_weight_for_several_sequences(rng):
    """K.48. The mean of J over n sequences is stationary at the KSVD of all stacked, Λ = nΣ⁻¹.

    Source: derived.
    """
    pairs = [features(6, 5, 3) for _ in range(4)]
    W_e, sigma, W_r = primal.solve(*map(np.concatenate, zip(*pairs)))
    slopes = [primal.gradient(W_e, W_r, 4 / sigma, *pair) for pair in pairs]
    np.testing.assert_allclose(np.mean(slopes, axis=0), 0.0, atol=1e-12 * np.abs(W_e).max())
    assert np.abs(slopes[0]).max() > 0.1


def test_scores(lib, rng):
    """K.14, K.20. e(x) = W_e^T phi(x), r(z) = W_r^T psi(z): each side with its own weights."""
    W_e, W_r, new = (rng.standard_normal(shape) for shape in ((3, 2), (3, 2), (4, 3)))
    solution = tuple(map(lib.array, (W_e, [2.0, 1.0], W_r)))
    for score, W in ((primal.e_scores, W_e), (primal.r_scores, W_r)):
        want = [[sum(point[i] * w[i] for i in range(3)) for w in W.T] for point in new]
        np.testing.assert_allclose(lib.host(score(lib.array(new), solution)), want,
                                   rtol=0, atol=lib.tol)


# --- derivatives of the solution

C = np.random.default_rng(7).standard_normal((20, 20))      # fixed weights of the losses
LOSSES = {      # a block of equal sigma enters as a whole: rotated on both sides together
    "nuclear-norm": lambda Phi, Psi, W_e, sigma, W_r: anp.sum(sigma),
    "log-det": lambda Phi, Psi, W_e, sigma, W_r: anp.sum(anp.log(sigma)),
    "W_e-W_eT": lambda Phi, Psi, W_e, sigma, W_r: weigh(W_e @ W_e.T),
    "W_r-W_rT": lambda Phi, Psi, W_e, sigma, W_r: weigh(W_r @ W_r.T),
    "W_e-W_rT": lambda Phi, Psi, W_e, sigma, W_r: weigh(W_e @ W_r.T),
    "polar": lambda Phi, Psi, W_e, sigma, W_r: weigh(Psi @ W_r @ W_e.T @ Phi.T),
}


def weigh(A):
    return anp.sum(C[:A.shape[0], :A.shape[1]] * A)


def leading(loss, s):
    return lambda Phi, Psi: LOSSES[loss](Phi, Psi, *primal.solve(Phi, Psi, rank=s))


def assert_both_gradients(f, Phi, Psi):
    assert_gradient(lambda Phi: f(Phi, Psi), Phi)
    assert_gradient(lambda Psi: f(Phi, Psi), Psi)


SMOOTH = {"p<N<M": 3, "N<p<M": 3, "M<N<p": 2, "N=M=p": 4, "1x1": 1, "one-row": 1,
          "one-column": 1, "one-feature": 1, "rank-2": 2, "low-Phi": 1}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("case", SMOOTH)
def test_derivative(case, loss):
    assert_both_gradients(leading(loss, SMOOTH[case]), *CASES[case])


@pytest.mark.parametrize("case", ["p<N<M", "N<p<M", "M<N<p"])
@pytest.mark.parametrize("side", [0, 1, 2])
def test_derivative_of_every_entry(case, side):
    """Where all sigma differ any loss may be asked for, also one of single entries."""
    def f(Phi, Psi):
        part = primal.solve(Phi, Psi)[side]
        return anp.sum(C.ravel()[:part.size].reshape(part.shape) * part)
    assert_both_gradients(f, *CASES[case])


@pytest.mark.parametrize("case", ["p<N<M", "N<M<p"])
def test_derivative_of_scores_and_both_sides_at_once(case):
    Phi, Psi = CASES[case]

    def f(t):
        A, B = t * Phi, Psi + t * anp.ones(Psi.shape)
        solution = primal.solve(A, B)
        H_e, _, H_r = primal.to_dual(solution, A, B)
        return (anp.sum(primal.e_scores(A, solution) ** 4)
                + anp.sum(primal.r_scores(B, solution) ** 4) + weigh(H_e @ H_r.T))
    assert_gradient(f, np.array(0.7))


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("case, s", [("repeated", 4), ("repeated", 2), ("orthonormal", 3)])
def test_derivative_at_ties(case, s, loss):
    assert_both_gradients(leading(loss, s), *CASES[case])


@pytest.mark.parametrize("loss", ["nuclear-norm", "W_e-W_eT", "W_r-W_rT", "W_e-W_rT"])
@pytest.mark.parametrize("a, b", [(2.0 ** -500, 1.0), (1.0, 2.0 ** 500), (2.0 ** 500, 2.0 ** -500)])
def test_derivative_scales(loss, a, b):
    """Losses without a scale of their own: the derivative by Phi goes as 1 / a, by Psi as 1 / b."""
    def f(Phi, Psi):
        W_e, sigma, W_r = primal.solve(Phi, Psi, rank=2)
        e, r = anp.sum(W_e[:, 0] ** 2) ** 0.5, anp.sum(W_r[:, 0] ** 2) ** 0.5
        return LOSSES[loss](Phi, Psi, W_e / e, sigma / sigma[0], W_r / r)
    Phi, Psi = CASES["p<N<M"]
    for n, scale in ((0, a), (1, b)):
        want, got = grad(f, n)(Phi, Psi), grad(f, n)(a * Phi, b * Psi) * scale
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-9 * np.max(np.abs(want)))


# --- input

Phi, Psi = RNG.standard_normal((5, 3)), RNG.standard_normal((4, 3))
SOLUTION = primal.solve(Phi, Psi)
VARIABLES = primal.to_dual(SOLUTION, Phi, Psi)
W = RNG.standard_normal((3, 2))


@pytest.mark.parametrize("Lambda, error, words", [
    ([1.0, np.nan], ValueError, "Lambda must be finite"),
    ([[1.0, 2.0]], ValueError, "Lambda must have 1 axes, (s), got shape (1, 2)"),
    (1.0, ValueError, "Lambda must have 1 axes, (s), got shape ()"),
    ([1.0], ValueError,
     "Lambda must have shape (s) with s = 2, as W_e of shape (3, 2), got (1,)"),
    ([1j, 2.0], TypeError, "Lambda must hold real numbers"),
    (np.ma.masked_array([1.0, 2.0]), TypeError, "Lambda is a masked array")])
@pytest.mark.parametrize("function", [primal.objective, primal.gradient])
def test_bad_Lambda_is_refused(function, Lambda, error, words):
    with pytest.raises(error) as caught:
        function(W, W, Lambda, Phi, Psi)
    assert words in str(caught.value)


@pytest.mark.parametrize("rank", [0, 4, -1, 1.5, True, "2"])
def test_bad_rank_is_refused(rank):
    with pytest.raises(ValueError, match=r"from 1 to 3 for K of shape \(5, 4\) from 3 feat"):
        primal.solve(Phi, Psi, rank=rank)


@pytest.mark.parametrize("call, what, came", [
    (lambda: primal.solve(Phi, Phi.T), "Psi must have", "as Phi of shape (5, 3), got (3, 5)"),
    (lambda: primal.objective(W, W.T, [1, 2], Phi, Psi), "W_r must have",
     "as W_e of shape (3, 2), got (2, 3)"),
    (lambda: primal.objective(W[:2], W, [1, 2], Phi, Psi), "W_r must have",
     "as W_e of shape (2, 2), got (3, 2)"),
    (lambda: primal.gradient(W, W, [1, 2], Phi.T, Psi), "Phi must have",
     "as W_e of shape (3, 2), got (3, 5)"),
    (lambda: primal.from_dual((Phi, [1, 2, 3], Phi), Phi, Psi), "Psi must have",
     "as dual.H_r of shape (5, 3), got (4, 3)"),
    (lambda: primal.from_dual((Psi, [1, 2, 3], Psi), Phi, Psi), "Phi must have",
     "as dual.H_e of shape (4, 3), got (5, 3)"),
    (lambda: primal.to_dual(SOLUTION, Phi[:, :2], Psi[:, :2]), "Phi must have",
     "as primal.W_e of shape (3, 3), got (5, 2)"),
    (lambda: primal.e_scores(Phi.T, SOLUTION), "Phi_new must have",
     "as primal.W_e of shape (3, 3), got (3, 5)"),
    (lambda: primal.r_scores(Psi.T, SOLUTION), "Psi_new must have",
     "as primal.W_e of shape (3, 3), got (3, 4)"),
])
def test_mismatched_shapes(call, what, came):
    with pytest.raises(ValueError) as caught:
        call()
    assert what in str(caught.value) and came in str(caught.value), str(caught.value)


@pytest.mark.parametrize("make", [np.asarray, np.ndarray.tolist])
def test_integers_do_not_overflow(make):
    data = np.array([[200, 100], [250, 255]], dtype="uint8")
    want = np.linalg.svd(data.astype(float) @ data.T.astype(float))[1]
    np.testing.assert_allclose(primal.solve(make(data), make(data)).sigma, want, rtol=1e-12)
