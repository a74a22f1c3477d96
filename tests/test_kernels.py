"""Kernel matrices against double loops and scikit-learn; centring with two means."""
import math

import autograd.numpy as anp
import numpy as np
import pytest
import sklearn.metrics.pairwise as pairwise
from conftest import assert_gradient
from scipy.spatial.distance import cdist
from scipy.special import softmax

from ksvd_ref import kernels, linalg

RNG = np.random.default_rng(11)
SHAPES = [(4, 6, 3), (5, 5, 2), (6, 4, 3), (1, 1, 1), (1, 5, 2), (5, 1, 4)]


def dot(x, z):
    return sum(a * b for a, b in zip(x, z))


def square(x, z):
    return sum((a - b) ** 2 for a, b in zip(x, z))


def row_normalised(kernel):
    return lambda x, z, Z: kernel(x, z) / sum(kernel(x, other) for other in Z)


# name -> kernel, parameters, the number kappa(x, z) as the formula says it
KERNELS = {
    "linear": (kernels.linear, {}, lambda x, z, Z: dot(x, z)),
    "polynomial": (kernels.polynomial, {}, lambda x, z, Z: (dot(x, z) + 1.0) ** 2),
    "polynomial-3": (kernels.polynomial, {"degree": 3, "gamma": -0.5, "coef0": 0.25},
                     lambda x, z, Z: (-0.5 * dot(x, z) + 0.25) ** 3),
    "rbf": (kernels.rbf, {}, lambda x, z, Z: math.exp(-square(x, z))),
    "rbf-gamma": (kernels.rbf, {"gamma": 0.3}, lambda x, z, Z: math.exp(-0.3 * square(x, z))),
    "exponential": (kernels.exponential, {},
                    lambda x, z, Z: math.exp(dot(x, z) / math.sqrt(len(x)))),
    "exponential-scale": (kernels.exponential, {"scale": 3},
                          lambda x, z, Z: math.exp(dot(x, z) / 3.0)),
    "cosine": (kernels.cosine, {},
               lambda x, z, Z: dot(x, z) / math.sqrt(dot(x, x) * dot(z, z))),
    "softmax": (kernels.softmax, {},
                row_normalised(lambda x, z: math.exp(dot(x, z) / math.sqrt(len(x))))),
    "softmax-scale": (kernels.softmax, {"scale": 0.5},
                      row_normalised(lambda x, z: math.exp(2.0 * dot(x, z)))),
    "sne": (kernels.sne, {}, row_normalised(lambda x, z: math.exp(-square(x, z)))),
    "sne-gamma": (kernels.sne, {"gamma": 0.3},
                  row_normalised(lambda x, z: math.exp(-0.3 * square(x, z)))),
}


def both_data(N, M, d):
    return RNG.standard_normal((N, d)), RNG.standard_normal((M, d))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", KERNELS)
def test_double_loop(lib, name, shape):
    """K.3, K.25, S.6, S.7, S.8, S.9. Each kernel against one pair of points at a time."""
    kernel, parameters, number = KERNELS[name]
    X, Z = both_data(*shape)
    want = [[number(x, z, Z) for z in Z] for x in X]
    got = lib.host(kernel(lib.array(X), lib.array(Z), **parameters))
    # exp of a score s turns its rounding eps |s| into a relative one: hence relative as well
    np.testing.assert_allclose(got, want, rtol=lib.tol, atol=lib.tol)


@pytest.mark.parametrize("kernel, peer", [
    (kernels.linear, pairwise.linear_kernel),
    (kernels.cosine, pairwise.cosine_similarity),
    (lambda X, Z: kernels.rbf(X, Z, gamma=0.7),
     lambda X, Z: pairwise.rbf_kernel(X, Z, gamma=0.7)),
    (lambda X, Z: kernels.polynomial(X, Z, degree=3, gamma=0.7, coef0=2),
     lambda X, Z: pairwise.polynomial_kernel(X, Z, degree=3, gamma=0.7, coef0=2)),
    (kernels.softmax, lambda X, Z: softmax(X @ Z.T / X.shape[1] ** 0.5, axis=1)),
    (linalg.squared_distances, lambda X, Z: cdist(X, Z, "sqeuclidean"))])
def test_peers(kernel, peer):
    X, Z = both_data(30, 20, 5)
    np.testing.assert_allclose(kernel(X, Z), peer(X, Z), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", ["softmax", "sne"])
def test_rows_sum_to_one_and_columns_do_not(lib, name):
    X, Z = both_data(5, 7, 3)
    K = lib.host(getattr(kernels, name)(lib.array(X), lib.array(Z)))
    np.testing.assert_allclose(np.sum(K, axis=1), 1.0, rtol=lib.tol)
    assert np.ptp(np.sum(K, axis=0)) > 0.1


# --- where the obvious formula fails

@pytest.mark.parametrize("offset", [0.0, 1e3, -1e4])
def test_rbf_under_a_common_offset(lib, offset):
    """S.9. |x|^2 + |z|^2 - 2<x, z> cancels in float32. The differences here are exact in binary."""
    X, Z = np.array([[0.0, 1.0]]), np.array([[0.25, 1.0], [0.0, 1.5], [0.0, 1.0]])
    K = lib.host(kernels.rbf(lib.array(X + offset), lib.array(Z + offset)))
    np.testing.assert_allclose(K, np.exp([[-0.0625, -0.25, 0.0]]), rtol=lib.tol)
    assert K[0, 2] == 1.0                           # k(x, x) exactly


@pytest.mark.parametrize("top", [1e3, 1e6])
def test_softmax_of_large_scores(lib, top):
    """exp(1000) overflows; each row takes out its own maximum. 1 / (1 + e^-2) and the rest.

    The scores top and top + 2 are exact in float32. The second row has 0 and 0: next to the first
    one's maximum both would vanish.
    """
    got = lib.host(kernels.softmax(lib.array([[1.0, top], [0.0, 0.0]]),
                                   lib.array([[0.0, 1.0], [2.0, 1.0]]), scale=1.0))
    want = [[1 / (1 + math.exp(2)), 1 / (1 + math.exp(-2))], [0.5, 0.5]]
    np.testing.assert_allclose(got, want, rtol=lib.tol)


def test_sne_far_from_every_point(lib):
    """Every exp(-d^2) underflows to 0, their ratios are e^-1 : 1."""
    got = lib.host(kernels.sne(lib.array([[0.0]]), lib.array([[32.0], [33.0]]), gamma=1 / 65))
    np.testing.assert_allclose(got, [[1 / (1 + math.exp(-1)), 1 / (1 + math.exp(1))]],
                               rtol=100 * lib.tol)  # the exponents -15.75 and -16.75 are rounded
    got = lib.host(kernels.sne(lib.array([[0.0]]), lib.array([[1e3], [1e3]])))
    np.testing.assert_array_equal(got, [[0.5, 0.5]])


def test_cosine_of_zero_rows(lib):
    got = lib.host(kernels.cosine(lib.array([[0.0, 0.0], [3.0, 4.0]]), lib.array([[0.0, 2.0]])))
    np.testing.assert_allclose(got, [[0.0], [0.8]], rtol=lib.tol)


@pytest.mark.parametrize("scale", [1e-150, 1e150])
def test_scales(scale):
    X, Z = both_data(4, 3, 2)
    np.testing.assert_allclose(kernels.cosine(scale * X, scale * Z), kernels.cosine(X, Z),
                               rtol=1e-13)
    np.testing.assert_allclose(kernels.linear(scale * X, Z / scale), X @ Z.T, rtol=1e-13)
    np.testing.assert_allclose(kernels.rbf(scale * X, scale * Z, gamma=1 / scale / scale),
                               kernels.rbf(X, Z), rtol=1e-13)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16"])
@pytest.mark.parametrize("name", ["linear", "polynomial", "rbf", "cosine"])
def test_integers_do_not_overflow(name, dtype):
    top = np.iinfo(dtype).max
    X = np.array([[top, 0], [top, top]], dtype=dtype)
    Z = np.array([[0, top], [top, top]], dtype=dtype)
    kernel, parameters, number = KERNELS[name]
    want = [[number(x, z, Z.tolist()) for z in Z.tolist()] for x in X.tolist()]
    np.testing.assert_allclose(kernel(X, Z, **parameters), want, rtol=1e-14)


def test_rbf_of_points_too_far_apart_is_zero():
    np.testing.assert_array_equal(kernels.rbf([[1e200], [0.0]], [[0.0]]), [[0.0], [1.0]])


@pytest.mark.parametrize("call", [
    lambda: kernels.linear([[1e200]], [[1e200]]),
    lambda: kernels.polynomial([[1e100]], [[1e100]]),
    lambda: kernels.sne([[1e200]], [[0.0]]),
    lambda: kernels.sne([[0.0]], [[2.0], [3.0]], gamma=1e308),
    lambda: kernels.softmax([[1e200]], [[1e200]]),
    lambda: kernels.softmax([[2.0]], [[2.0]], scale=1e-308),
    lambda: kernels.exponential([[1e200]], [[1e200]]),
    lambda: kernels.gram(lambda x, z: x[0] * z[0], [[1e200]], [[1e200]])])
def test_overflow_is_refused(call):
    with pytest.raises(ValueError, match="overflow|infinity"):
        call()


def test_exponential_says_what_to_use_instead(lib):
    limit = math.log(float(np.finfo(lib.name).max))         # 709.8, in float32 88.7
    below = kernels.exponential(lib.array([[0.999 * limit]]), lib.array([[1.0]]))
    assert np.isfinite(lib.host(below)).all()
    with pytest.raises(ValueError, match="use kernels.softmax"):
        kernels.exponential(lib.array([[1.001 * limit]]), lib.array([[1.0]]))


# --- any function of two points

def test_gram_evaluates_both_triangles(lib):
    X, Z = both_data(4, 3, 2)
    got = lib.host(kernels.gram(lambda x, z: x[0] - 2.0 * z[1], lib.array(X), lib.array(Z)))
    np.testing.assert_allclose(got, X[:, :1] - 2.0 * Z[:, 1:].T, rtol=0, atol=lib.tol)


@pytest.mark.parametrize("number", [2, 2.0, True, np.float64(2.0), np.array(2.0)])
def test_gram_takes_any_number(number):
    np.testing.assert_array_equal(kernels.gram(lambda x, z: number, np.eye(2), np.ones((1, 2))),
                                  [[float(number)], [float(number)]])


@pytest.mark.parametrize("value, came", [
    (None, "NoneType"), ("1", "str"), ([1.0], "list"), (np.ones(1), "ndarray"), (1j, "complex"),
    (np.complex64(1j), "complex"), (np.array(1j), "complex128"), (np.nan, "NaN"), (np.inf, "NaN"),
    (10 ** 400, "NaN")])
def test_gram_refuses_what_is_no_number(value, came):
    with pytest.raises((TypeError, ValueError), match=rf"kernel\(x, z\) must .*{came}"):
        kernels.gram(lambda x, z: value, np.eye(2), np.eye(2))


# --- centring

def projector(n):
    return np.eye(n) - np.ones((n, n)) / n


@pytest.mark.parametrize("shape", [(4, 6), (5, 5), (6, 4), (1, 1), (1, 5), (5, 1)])
def test_center(lib, rng, shape):
    """V23. P_N K P_M, and every row and column has mean 0."""
    K = rng.standard_normal(shape) + 3.0
    got = lib.host(kernels.center(lib.array(K)))
    want = projector(shape[0]) @ K @ projector(shape[1])
    np.testing.assert_allclose(got, want, rtol=0, atol=10 * lib.tol)
    np.testing.assert_allclose(np.mean(got, axis=0), 0.0, atol=10 * lib.tol)
    np.testing.assert_allclose(np.mean(got, axis=1), 0.0, atol=10 * lib.tol)


def test_new_points_lose_the_training_means(lib, rng):
    """V23. Features minus the mean feature of the training points: the slower truth."""
    Phi, Psi, rows, columns = (rng.standard_normal((n, 3)) + 1.0 for n in (5, 4, 3, 2))
    phi, psi = np.mean(Phi, axis=0), np.mean(Psi, axis=0)
    K = lib.array(Phi @ Psi.T)
    for center, K_new, want in (
            (kernels.center_rows, rows @ Psi.T, (rows - phi) @ (Psi - psi).T),
            (kernels.center_columns, Phi @ columns.T, (Phi - phi) @ (columns - psi).T),
            (kernels.center_rows, Phi @ Psi.T, (Phi - phi) @ (Psi - psi).T),
            (kernels.center_columns, Phi @ Psi.T, (Phi - phi) @ (Psi - psi).T)):
        got = lib.host(center(lib.array(K_new), K))
        np.testing.assert_allclose(got, want, rtol=0, atol=1e2 * lib.tol)


def test_center_rows_of_one_row_uses_no_mean_of_its_own(rng):
    """One new row alone or among others: the same. Its column means would make it 0."""
    K, K_new = rng.standard_normal((5, 4)), rng.standard_normal((3, 4))
    alone = [kernels.center_rows(K_new[i:i+1, :], K)[0] for i in range(3)]
    np.testing.assert_allclose(kernels.center_rows(K_new, K), alone, rtol=0, atol=1e-15)


# --- derivatives

@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("name", KERNELS)
def test_derivative(name, side):
    kernel, parameters, _ = KERNELS[name]
    X, Z = both_data(3, 4, 2)
    C = RNG.standard_normal((3, 4))
    if side == 0:
        assert_gradient(lambda X: anp.sum(C * kernel(X, Z, **parameters)), X)
    else:
        assert_gradient(lambda Z: anp.sum(C * kernel(X, Z, **parameters)), Z)


@pytest.mark.parametrize("name", sorted(set(KERNELS) - {"cosine"}))
def test_derivative_at_equal_points(name):
    """X = Z, traced on both sides at once, and a point at the origin."""
    kernel, parameters, _ = KERNELS[name]
    C, X = RNG.standard_normal((3, 3)), RNG.standard_normal((3, 2))
    X[0, :] = 0.0
    assert_gradient(lambda X: anp.sum(C * kernel(X, X, **parameters)), X)


def test_derivative_of_gram_and_centring():
    X, Z = both_data(3, 4, 2)
    C, D, K = (RNG.standard_normal(shape) for shape in ((3, 4), (2, 4), (3, 4)))
    assert_gradient(lambda X: anp.sum(C * kernels.gram(lambda x, z: anp.tanh(x @ z), X, Z)), X)
    assert_gradient(lambda K: anp.sum(C * kernels.center(K) ** 2), K)
    assert_gradient(lambda K: anp.sum(D * kernels.center_rows(D, K) ** 2), K)
    assert_gradient(lambda K: anp.sum(C[:, :2] * kernels.center_columns(C[:, 2:], K) ** 2), K)


# --- input

X, Z = both_data(4, 5, 3)
PAIRS = {name: (getattr(kernels, name), {"X": X, "Z": Z}) for name in
         ("linear", "polynomial", "rbf", "exponential", "cosine", "softmax", "sne")}


@pytest.mark.parametrize("call, names", [(kernels.center_columns, ("K_new", "K"))]
                         + [(call, ("X", "Z")) for call, _ in PAIRS.values()])
def test_mismatched_shapes(call, names):
    with pytest.raises(ValueError) as caught:
        call(np.ones((4, 3)), np.ones((5, 2)))
    assert all(word in str(caught.value) for word in (*names, "(4, 3)", "(5, 2)"))


@pytest.mark.parametrize("call, words", [
    (lambda: kernels.rbf(X, Z, gamma=0.0), "gamma must be a finite number above 0, got 0.0"),
    (lambda: kernels.rbf(X, Z, gamma=np.nan), "gamma must be a finite number above 0, got nan"),
    (lambda: kernels.sne(X, Z, gamma=-1), "gamma must be a finite number above 0, got -1"),
    (lambda: kernels.softmax(X, Z, scale=0), "scale must be a finite number above 0, got 0"),
    (lambda: kernels.exponential(X, Z, scale="2"), "scale must be a finite number above 0"),
    (lambda: kernels.polynomial(X, Z, degree=1.5), "degree must be an integer, 1 or more, got 1.5"),
    (lambda: kernels.polynomial(X, Z, degree=0), "degree must be an integer, 1 or more, got 0"),
    (lambda: kernels.polynomial(X, Z, gamma=np.inf), "gamma must be a finite number, got inf"),
    (lambda: kernels.polynomial(X, Z, coef0=None), "coef0 must be a finite number, got None")])
def test_bad_parameters_are_refused(call, words):
    with pytest.raises(ValueError) as caught:
        call()
    assert words in str(caught.value)


@pytest.mark.parametrize("kernel", [kernels.polynomial, kernels.rbf, kernels.exponential,
                                    kernels.softmax, kernels.sne])
def test_parameters_are_keywords(kernel):
    with pytest.raises(TypeError, match="positional"):
        kernel(X, Z, 1.0)
