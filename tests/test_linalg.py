"""SVD and eigh with derivatives at ties, the rank rule, one sign for a pair."""
import autograd.numpy as anp
import numpy as np
import pytest
from autograd import grad
from conftest import assert_gradient, central, with_spectrum

from ksvd_ref import dual, linalg, primal

SHAPES = [(4, 6), (5, 5), (6, 4), (1, 1), (1, 5), (5, 1)]
C = np.random.default_rng(7).standard_normal((12, 12))      # fixed weights of the losses


def spectrum(*sigma):
    """Square diagonal matrix times a fixed rotation on each side: ties up to rounding."""
    return with_spectrum(np.random.default_rng(3), len(sigma), len(sigma), sigma)


# --- values

@pytest.mark.parametrize("shape", SHAPES)
def test_svd(lib, rng, shape):
    """K.6. Orthonormal columns whose product is K: that is an SVD; NumPy's sigma as a peer."""
    K = rng.standard_normal(shape)
    U, sigma, V = map(lib.host, linalg.svd(lib.array(K)))
    k = min(shape)
    assert (U.shape, sigma.shape, V.shape) == ((shape[0], k), (k,), (shape[1], k))
    np.testing.assert_allclose(U * sigma @ V.T, K, rtol=0, atol=lib.tol)
    np.testing.assert_allclose(U.T @ U, np.eye(k), rtol=0, atol=lib.tol)
    np.testing.assert_allclose(V.T @ V, np.eye(k), rtol=0, atol=lib.tol)
    np.testing.assert_allclose(sigma, np.linalg.svd(K)[1], rtol=0, atol=lib.tol)


@pytest.mark.parametrize("N", [1, 2, 6])
def test_eigh(lib, rng, N):
    S = rng.standard_normal((N, N))
    S = S + S.T
    w, V = map(lib.host, linalg.eigh(lib.array(S)))
    np.testing.assert_allclose(S @ V, V * w, rtol=0, atol=lib.tol)
    np.testing.assert_allclose(V.T @ V, np.eye(N), rtol=0, atol=lib.tol)
    assert np.all(np.diff(w) >= 0.0)


# --- derivatives of the SVD

LOSSES = {      # in which the columns of a tied block enter as a whole
    "nuclear-norm": lambda K, U, sigma, V: anp.sum(sigma),
    "frobenius": lambda K, U, sigma, V: anp.sqrt(anp.sum((U * sigma @ V.T) ** 2)),
    "log-det": lambda K, U, sigma, V: anp.sum(anp.log(sigma)),
    "polar": lambda K, U, sigma, V: anp.sum(C[:K.shape[0], :K.shape[1]] * (U @ V.T)),
    "left-projector": lambda K, U, sigma, V: anp.sum(C[:K.shape[0], :K.shape[0]] * (U @ U.T)),
    "right-projector": lambda K, U, sigma, V: anp.sum(C[:K.shape[1], :K.shape[1]] * (V @ V.T)),
    "K-V-Vt": lambda K, U, sigma, V: anp.sum(C[:K.shape[0], :K.shape[1]] * (K @ V @ V.T)),
    "Ut-K-Ut": lambda K, U, sigma, V: anp.sum(C[:K.shape[0], :K.shape[1]] * (U @ U.T @ K)),
}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("shape", SHAPES)
def test_svd_derivative(rng, shape, loss):
    f = LOSSES[loss]
    assert_gradient(lambda K: f(K, *linalg.svd(K)), rng.standard_normal(shape))


@pytest.mark.parametrize("shape", [(4, 6), (5, 5), (6, 4)])
@pytest.mark.parametrize("side", [0, 1, 2])
def test_svd_derivative_of_every_entry(rng, shape, side):
    """Where all sigma differ any loss may be asked for, also one of single entries of U or V."""
    def f(K):
        part = linalg.svd(K)[side]
        return anp.sum(C.ravel()[:part.size].reshape(part.shape) * part)
    assert_gradient(f, rng.standard_normal(shape))


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("K, s", [(np.diag([2.0, 2.0, 1.0]), 2), (np.diag([2.0, 1.0, 1.0]), 3),
                                  (np.eye(3), 3), (spectrum(3, 2, 2, 2, 1), 4),
                                  (spectrum(3, 3, 1, 1), 2), (np.eye(3)[:, ::-1] * 2, 3),
                                  (np.eye(5)[:3, :], 3), (np.eye(5)[:, :3], 3)])
def test_svd_derivative_at_ties(K, s, loss):
    """The first s components; s never cuts a tied block in two."""
    f = LOSSES[loss]

    def of_leading(K):
        U, sigma, V = linalg.svd(K)
        return f(K, U[:, :s], sigma[:s], V[:, :s])
    assert_gradient(of_leading, K)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("shape", [(4, 6), (5, 5), (6, 4)])
def test_svd_derivative_at_low_rank(rng, shape, loss):
    """sigma = (3, 1, 0, 0, ...): the zeros are a tie, and no column of the loss."""
    f, K = LOSSES[loss], with_spectrum(rng, *shape, [3.0, 1.0])

    def of_leading(K):
        U, sigma, V = linalg.svd(K)
        return f(K, U[:, :2], sigma[:2], V[:, :2])
    assert_gradient(of_leading, K)


@pytest.mark.parametrize("scale", [1e-150, 1e150])
@pytest.mark.parametrize("loss", sorted(set(LOSSES) - {"log-det"}))
def test_svd_derivative_scales(rng, scale, loss):
    """sigma scales with K, the projectors do not: the derivative follows exactly (powers of 2)."""
    f, K = LOSSES[loss], rng.standard_normal((5, 4))
    scale = 2.0 ** np.round(np.log2(scale))
    slope = grad(lambda K: f(K, *linalg.svd(K)))
    order = 0 if loss in ("nuclear-norm", "frobenius", "K-V-Vt", "Ut-K-Ut") else 1
    want = slope(K)
    # the loss of a projector onto everything does not change at all: rounding, on the scale of C
    np.testing.assert_allclose(slope(scale * K) * scale ** order, want, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("K, loss, want", [
    (np.diag([2.0, 2.0, 1.0]), "frobenius", np.diag([2.0, 2.0, 1.0]) / 3.0),
    (np.eye(3), "nuclear-norm", np.eye(3)),
    (np.eye(3), "polar", 0.5 * (C[:3, :3] - C[:3, :3].T))])      # of K (K^T K)^(-1/2)
def test_known_derivatives_at_ties(K, loss, want):
    f = LOSSES[loss]
    np.testing.assert_allclose(grad(lambda K: f(K, *linalg.svd(K)))(K), want, atol=1e-14)


def test_losses_that_no_rule_can_serve():
    """Two losses hand any rule the same numbers at K = I, and their gradients differ.

    <C, U diag(sigma) V^T> is <C, K>, with gradient C. <C, U V^T> is constant along symmetric
    changes of K at K = I, with gradient 0 for a symmetric C. At U = V = sigma = I both have
    gU = C, g_sigma = diag(C) = 0 and gV = C.
    """
    swap = np.array([[0.0, 1.0], [1.0, 0.0]])

    def weighted(U, sigma, V):
        return anp.sum(swap * (U * sigma @ V.T))

    def polar(U, sigma, V):
        return anp.sum(swap * (U @ V.T)) + 0.0 * anp.sum(sigma)

    eye, ones = np.eye(2), np.ones(2)
    for n in range(3):                              # what reaches the rule: no difference
        np.testing.assert_array_equal(grad(weighted, n)(eye, ones, eye),
                                      grad(polar, n)(eye, ones, eye))
    for loss, want in ((weighted, swap), (polar, 0.0 * swap)):      # the truth: a difference
        np.testing.assert_allclose(central(lambda K: loss(*linalg.svd(K)), np.eye(2)), want,
                                   atol=1e-9)
    # Ours is the rule of U V^T. What weights by sigma is written with K, and is right.
    np.testing.assert_array_equal(grad(lambda K: polar(*linalg.svd(K)))(eye), 0.0 * swap)
    np.testing.assert_array_equal(grad(lambda K: weighted(*linalg.svd(K)))(eye), 0.0 * swap)
    np.testing.assert_allclose(
        grad(lambda K: anp.sum(swap * (K @ linalg.svd(K)[2] @ linalg.svd(K)[2].T)))(eye), swap,
        atol=1e-14)


@pytest.mark.parametrize("gap", [1e-1, 1e-4, 1e-8, 1e-11])
def test_close_is_not_equal(gap):
    """diag(1, 1 - gap): u_1 turns towards u_2 by (dK_21 sigma_1 + dK_12 sigma_2) / (s_1^2 - s_2^2).

    Only the roundings below 1e-14 count as a tie; eps / gap of the digits is all that is lost.
    """
    a, b = 1.0, 1.0 - gap
    K, rtol = np.diag([a, b]), 1e-13 + 4e-16 / gap

    def turn(K):
        return linalg.svd(K)[0][0, 0] * linalg.svd(K)[0][1, 0]
    np.testing.assert_allclose(grad(turn)(K), np.array([[0.0, b], [a, 0.0]]) / (a + b) / (a - b),
                               rtol=rtol)

    def turn_of_eigenvector(S):
        return linalg.eigh(S)[1][0, 1] * linalg.eigh(S)[1][1, 1]
    np.testing.assert_allclose(grad(turn_of_eigenvector)(K), 0.5 * np.fliplr(np.eye(2)) / (a - b),
                               rtol=rtol)


SECOND = {      # losses of K in which a tied block enters as a whole
    "svd": lambda K: anp.sum(linalg.svd(K)[1] ** 2),
    "dual.solve": lambda K: anp.sum(dual.solve(K).sigma ** 3),
    "dual.solve_shifted": lambda K: anp.sum(dual.solve_shifted(K).H_e[:, 0] ** 4),
    "primal.solve": lambda K: anp.sum(primal.solve(K, np.eye(K.shape[1])).sigma ** 2),
    "eigh": lambda K: anp.sum(linalg.eigh(K + K.T)[0] ** 4),
    "left": lambda K: anp.sum(C[:3, :3] * (dual.solve(K).H_e @ dual.solve(K).H_e.T) ** 2),
}


@pytest.mark.parametrize("loss", SECOND)
def test_second_derivatives_away_from_ties(rng, loss):
    """The derivative of the derivative against differences of it, along three directions."""
    K, slope = rng.standard_normal((3, 3)), grad(SECOND[loss])
    for D in rng.standard_normal((3, 3, 3)):
        got = grad(lambda K: anp.sum(slope(K) * D))(K)
        want = (slope(K + 1e-5 * D) - slope(K - 1e-5 * D)) / 2e-5
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-6 * max(1.0, np.abs(want).max()))


@pytest.mark.parametrize("loss", sorted(set(SECOND) - {"left"}))
@pytest.mark.parametrize("K", [np.eye(3), np.diag([2.0, 2.0, 1.0]), np.diag([1.0, 1 + 1e-15, 3])],
                         ids=["identity", "a tie", "a tie up to rounding"])
def test_second_derivatives_at_ties_are_refused(K, loss):
    """At I the rules would give the Hessian of sum sigma^2 a block 1, -1 in place of 2 I."""
    slope = grad(SECOND[loss])
    assert np.all(np.isfinite(slope(K)))                    # once is right
    with pytest.raises(ValueError, match="a second derivative .* repeat or vanish"):
        grad(lambda K: anp.sum(slope(K)[0, 0]))(K)


def test_second_derivatives_where_a_sigma_vanishes_are_refused():
    K = np.outer([1.0, 2.0, 2.0], [3.0, 4.0])
    for loss in ("svd", "primal.solve"):
        with pytest.raises(ValueError, match="repeat or vanish"):
            grad(lambda K: anp.sum(grad(SECOND[loss])(K)))(K)


def test_zero_matrix_has_no_derivative_but_a_finite_one():
    got = grad(lambda K: anp.sum(linalg.svd(K)[0] @ linalg.svd(K)[2].T))(np.zeros((3, 2)))
    np.testing.assert_array_equal(got, np.zeros((3, 2)))


# --- derivatives of eigh

@pytest.mark.parametrize("w", [(3, 2, 1), (2, 2, 1), (1, 1, 1), (2, 2, -1, -1), (0, 0, 1)])
@pytest.mark.parametrize("loss", ["values", "square", "projector", "S-V-Vt"])
def test_eigh_derivative(w, loss):
    Q = np.linalg.qr(C[:len(w), :len(w)])[0]
    S, s = Q * np.array(w, dtype=float) @ Q.T, w.count(max(w))      # the top block, whole

    def f(A):
        A = 0.5 * (A + A.T)
        values, V = linalg.eigh(A)
        V, weight = V[:, -s:], C[:len(w), :len(w)]
        return {"values": anp.sum(values ** 3), "square": anp.sum(values[-s:] ** 2),
                "projector": anp.sum(weight * (V @ V.T)),
                "S-V-Vt": anp.sum(weight * (A @ V @ V.T))}[loss]
    assert_gradient(f, S)


def test_eigh_derivative_is_symmetric(rng):
    """S and S^T are the same variable."""
    S = rng.standard_normal((4, 4))
    got = grad(lambda S: anp.sum(C[:4, :4] * linalg.eigh(S)[1]))(S + S.T)
    np.testing.assert_allclose(got, got.T, rtol=0, atol=1e-14)


# --- reciprocal and rank

def test_reciprocal(lib):
    got = lib.host(linalg.reciprocal(lib.array([4.0, -0.5, 0.25, -0.25, 0.0]), 0.25))
    np.testing.assert_array_equal(got, [0.25, -2.0, 0.0, 0.0, 0.0])     # what is at noise is noise


@pytest.mark.parametrize("N, M", [(4, 4), (4, 1000), (1000, 4)])
def test_numerical_rank(lib, N, M):
    """sigma > sigma_1 max(N, M) eps, one rounding above and below the limit."""
    limit = 2.0 * 1000.0 ** (max(N, M) == 1000) * (4.0 if N == M else 1.0)
    noise = limit * float(lib.xp.finfo(lib.dtype).eps)
    for third, want in ((1.001 * noise, 3), (0.999 * noise, 2), (noise, 2), (0.0, 2)):
        assert linalg.numerical_rank(lib.array([2.0, 1.0, third, 0.0]), N, M) == want


def test_numerical_rank_relative_to_something_larger(lib):
    eps = float(lib.xp.finfo(lib.dtype).eps)
    sigma = lib.array([2.0, 100.0 * eps])
    assert linalg.numerical_rank(sigma, 3, 3) == 2
    assert linalg.numerical_rank(sigma, 3, 3, norm=100.0) == 1


def test_numerical_rank_of_zero(lib):
    assert linalg.numerical_rank(lib.array([0.0, 0.0]), 3, 2) == 0


@pytest.mark.parametrize("rank", [1, 3, np.int64(2), None])
def test_check_rank(rank):
    got = linalg.check_rank(rank, 3, "K")
    assert got == rank and type(got) in (int, type(None))


@pytest.mark.parametrize("rank", [0, -1, 4, 1.5, 2.0, True, np.True_, "2", [2]],
                         ids=repr)
def test_check_rank_refuses(rank):
    with pytest.raises(ValueError, match="rank must be None or an integer from 1 to 3 for K, got"):
        linalg.check_rank(rank, 3, "K")


# --- sign

def test_signs_of_the_largest_entry(lib, rng):
    H = rng.standard_normal((7, 5))
    want = [[np.sign(column[np.argmax(np.abs(column))]) for column in H.T]]
    np.testing.assert_array_equal(lib.host(linalg.signs(lib.array(H))), want)


@pytest.mark.parametrize("column, want", [
    ([-1, 1, 1], -1), ([1, -1, -1], 1),             # equal: the first counts
    ([0, -2, 1], -1), ([0, 0, 0], 1), ([-1e-30, 0, 0], -1)])
def test_signs_of_special_columns(lib, column, want):
    got = linalg.signs(lib.array(np.array(column, dtype=float)[:, None]))
    np.testing.assert_array_equal(lib.host(got), [[want]])


def test_entries_equal_up_to_rounding_count_as_equal(lib):
    """The last entry is the largest by a few roundings: still the first decides."""
    eps = float(lib.xp.finfo(lib.dtype).eps)
    column = np.array([[-1.0], [1.0 + 8 * eps]])
    np.testing.assert_array_equal(lib.host(linalg.signs(lib.array(column))), [[-1.0]])


# --- rows of length 1

@pytest.mark.parametrize("scale", [1.0, 1e-18, 1e18])       # squares leave the range of float32
def test_unit_rows(lib, rng, scale):
    X = rng.standard_normal((3, 4, 5))
    X[1, 2, :] = 0.0
    want = [[row / (np.linalg.norm(row) or 1.0) for row in block] for block in X]
    got = lib.host(linalg.unit_rows(lib.array(scale * X)))
    np.testing.assert_allclose(got, want, rtol=0, atol=lib.tol)


@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_unit_rows_where_squares_leave_float64(scale):
    got = linalg.unit_rows(scale * np.array([[3.0, 4.0]]))
    np.testing.assert_allclose(got, [[0.6, 0.8]], rtol=1e-15)
