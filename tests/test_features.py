"""Feature pairs: Phi Psi^T is the kernel matrix they promise."""
import math

import autograd.numpy as anp
import numpy as np
import pytest
from conftest import assert_gradient, with_spectrum

from ksvd_ref import features, kernels

RNG = np.random.default_rng(13)
MATRICES = {
    "N<M": RNG.standard_normal((4, 7)),
    "N=M": RNG.standard_normal((5, 5)),
    "N>M": RNG.standard_normal((7, 4)),
    "1x1": np.array([[-2.0]]),
    "one-row": RNG.standard_normal((1, 5)),
    "one-column": RNG.standard_normal((5, 1)),
    "rank-2-wide": with_spectrum(RNG, 4, 6, [3.0, 1.0]),
    "rank-2-tall": with_spectrum(RNG, 6, 4, [3.0, 1.0]),
    "antisymmetric": np.array([[0.0, 2.0], [-2.0, 0.0]]),
    "zero": np.zeros((2, 3)),
}


# --- any real matrix (K.33)

@pytest.mark.parametrize("name", MATRICES)
def test_compatible_gives_the_matrix_itself(lib, name):
    """K.33. Square or not, of full rank or not, zero too."""
    A = MATRICES[name]
    Phi, Psi = map(lib.host, features.compatible(lib.array(A)))
    p = min(A.shape)
    assert (Phi.shape, Psi.shape) == ((A.shape[0], p), (A.shape[1], p))
    np.testing.assert_allclose(Phi @ Psi.T, A, rtol=0, atol=lib.tol * max(np.max(np.abs(A)), 1.0))


@pytest.mark.parametrize("name", sorted(set(MATRICES) - {"zero"}))
def test_compatible_is_the_pseudo_inverse(name):
    """The maps themselves: Phi = A C, Psi = A^T for N <= M, else Phi = A, Psi = (C A)^T."""
    A = MATRICES[name]
    C = np.linalg.pinv(A)
    got = features.compatible(A)
    want = (A @ C, A.T) if A.shape[0] <= A.shape[1] else (A, (C @ A).T)
    for one, two in zip(got, want):
        np.testing.assert_allclose(one, two, rtol=0, atol=1e-13)


@pytest.mark.parametrize("shape", [(4, 6), (5, 5), (6, 4), (1, 3), (3, 1)])
def test_compatible_with_another_C(lib, rng, shape):
    """V25. K = A C A is A itself if and only if C is a {1}-inverse of A, A C A = A."""
    A, C = rng.standard_normal(shape), rng.standard_normal(shape[::-1])
    Phi, Psi = map(lib.host, features.compatible(lib.array(A), lib.array(C)))
    assert Phi.shape[1] == Psi.shape[1] == min(shape)
    np.testing.assert_allclose(Phi @ Psi.T, A @ C @ A, rtol=0, atol=1e2 * lib.tol)
    assert np.max(np.abs(Phi @ Psi.T - A)) > 0.1


@pytest.mark.parametrize("condition", [1e4, 1e8, 1e12])
@pytest.mark.parametrize("shape", [(6, 5), (5, 6)])
def test_compatible_of_an_ill_conditioned_matrix(rng, shape, condition):
    """A pinv(A) is made as a projector. Multiplied out it is off by condition * eps."""
    A = with_spectrum(rng, *shape, np.geomspace(1.0, 1.0 / condition, 5))
    Phi, Psi = features.compatible(A)
    P = Phi if shape[0] <= shape[1] else Psi
    np.testing.assert_allclose(Phi @ Psi.T, A, rtol=0, atol=1e-14)
    np.testing.assert_allclose(P @ P, P, rtol=0, atol=1e-14)


@pytest.mark.parametrize("scale", [1e-150, 1e150])
def test_compatible_scales(scale):
    A = MATRICES["N<M"]
    Phi, Psi = features.compatible(scale * A)
    np.testing.assert_allclose(Phi @ Psi.T / scale, A, rtol=0, atol=1e-13)


# --- the maps of named kernels

SHAPES = [(4, 6, 3), (5, 5, 2), (6, 4, 3), (1, 1, 1), (1, 5, 2)]


@pytest.mark.parametrize("shape", SHAPES)
def test_cosine(lib, rng, shape):
    """K.25. The product of the features is the kernel; each has length 1."""
    N, M, d = shape
    X, Z = lib.array(rng.standard_normal((N, d))), lib.array(rng.standard_normal((M, d)))
    Phi, Psi = map(lib.host, features.cosine(X, Z))
    np.testing.assert_allclose(Phi @ Psi.T, lib.host(kernels.cosine(X, Z)), rtol=0, atol=lib.tol)
    np.testing.assert_allclose(np.sum(Phi ** 2, axis=1), 1.0, rtol=lib.tol)
    np.testing.assert_allclose(np.sum(Psi ** 2, axis=1), 1.0, rtol=lib.tol)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("degree, gamma, coef0", [
    (1, 1.0, 1.0), (2, 1.0, 1.0), (3, 0.5, 2.0), (2, 1.0, 0.0), (4, 1.0, 0.0), (3, -1.0, 0.5),
    (2, -0.7, -0.3), (3, 1.0, -1.0), (2, 0.0, 2.0)])
def test_polynomial(lib, rng, shape, degree, gamma, coef0):
    """S.8. The product of the features is the kernel; their number is that of the monomials."""
    N, M, d = shape
    X, Z = lib.array(rng.standard_normal((N, d))), lib.array(rng.standard_normal((M, d)))
    parameters = {"degree": degree, "gamma": gamma, "coef0": coef0}
    Phi, Psi = map(lib.host, features.polynomial(X, Z, **parameters))
    want = lib.host(kernels.polynomial(X, Z, **parameters))
    used = d + (coef0 != 0.0)
    assert Phi.shape == (N, math.comb(used + degree - 1, degree)) and Psi.shape[1] == Phi.shape[1]
    np.testing.assert_allclose(Phi @ Psi.T, want, rtol=1e2 * lib.tol, atol=1e2 * lib.tol)


def test_polynomial_monomials():
    """(x + 1)^2 = x^2 + 2 x + 1: the features are x^2, sqrt(2) x, 1 on both sides."""
    Phi, Psi = features.polynomial([[3.0]], [[5.0]])
    np.testing.assert_allclose(Phi, [[9.0, 3.0 * 2 ** 0.5, 1.0]], rtol=1e-15)
    np.testing.assert_allclose(Psi, [[25.0, 5.0 * 2 ** 0.5, 1.0]], rtol=1e-15)


def test_positive_random_draws_the_same_everywhere(lib, rng):
    """S.32. The formula of one feature at a time, with w drawn on the host in float64."""
    X, Z = rng.standard_normal((3, 4)), rng.standard_normal((2, 4))
    W = np.random.default_rng(5).standard_normal((4, 6))
    got = features.positive_random(lib.array(X), lib.array(Z), m=6, seed=5)
    for A, one in zip((X, Z), got):
        want = [[math.exp(w @ a - a @ a / 2.0) / math.sqrt(6.0) for w in W.T] for a in A]
        np.testing.assert_allclose(lib.host(one), want, rtol=10 * lib.tol)


def test_positive_random_is_unbiased(rng):
    """V21. Positive random features estimate exp⟨q, k⟩ without bias with 1/√m on each side.

    The mean of 100,000 lies within five standard errors.
    """
    q, k = 0.5 * rng.standard_normal((1, 3)), 0.5 * rng.standard_normal((1, 3))
    m = 100_000
    Phi, Psi = features.positive_random(q, k, m=m, seed=1)
    draws = m * Phi * Psi                           # each an estimate of its own
    want = math.exp(float(q[0] @ k[0]))
    assert abs(np.sum(Phi * Psi) - want) < 5.0 * np.std(draws) / math.sqrt(m)
    assert np.all(Phi > 0.0) and np.all(Psi > 0.0)


@pytest.mark.parametrize("m", [0, -1, 1.5, True, "2", None])
def test_positive_random_needs_a_number_of_features(m):
    with pytest.raises(ValueError, match="m must be an integer, 1 or more, got"):
        features.positive_random(np.eye(2), np.eye(2), m=m, seed=0)


def test_positive_random_overflow_is_refused(lib):
    """w x - x^2 / 2 is at most w^2 / 2: only a far-off draw can overflow, found by brute force."""
    W = np.random.default_rng(0).standard_normal((3000, 1))
    x = 0.1 * W.T if lib.name == "float32" else 0.7 * W.T       # w x - x^2 / 2 = 285, 1365
    with pytest.raises(ValueError, match="positive_random overflows.*scale Q and K down"):
        features.positive_random(lib.array(x), lib.array(x), m=1, seed=0)


def test_positive_random_refuses_what_is_undefined():
    with pytest.raises(ValueError, match="positive_random overflows.*scale Q and K down"):
        features.positive_random([[1.7e308, 1.7e308]], [[0.0, 0.0]], m=8, seed=0)


def test_data_dependent(lib, rng):
    """K.9, V28. Phi (F^T F) Psi^T, for fewer and for more rows of F than features."""
    Phi, Psi = rng.standard_normal((5, 3)), rng.standard_normal((4, 3))
    for n in (1, 2, 3, 7):
        F = rng.standard_normal((n, 3))
        one, two = map(lib.host, features.data_dependent(*map(lib.array, (Phi, Psi, F))))
        assert (one.shape, two.shape) == ((5, n), (4, n))
        np.testing.assert_allclose(one @ two.T, Phi @ F.T @ F @ Psi.T, rtol=0, atol=1e2 * lib.tol)


# --- derivatives

def weighted(pair):
    """A number in which every entry of both sides counts with its own weight."""
    weights = np.random.default_rng(3).standard_normal(4096)
    return sum(anp.sum(weights[:A.size].reshape(A.shape) * A) for A in pair)


MAPS = {
    "cosine": features.cosine,
    "polynomial": features.polynomial,
    "polynomial-3": lambda X, Z: features.polynomial(X, Z, degree=3, gamma=-0.5, coef0=0.0),
    "positive_random": lambda X, Z: features.positive_random(X, Z, m=5, seed=0),
    "data_dependent": lambda X, Z: features.data_dependent(X, Z, X ** 2),
}


@pytest.mark.parametrize("name", MAPS)
def test_derivative(rng, name):
    X, Z = rng.standard_normal((3, 2)), rng.standard_normal((4, 2))
    assert_gradient(lambda X: weighted(MAPS[name](X, Z)), X)
    assert_gradient(lambda Z: weighted(MAPS[name](X, Z)), Z)
    assert_gradient(lambda X: weighted(MAPS[name](X, X)), X)


@pytest.mark.parametrize("name", ["N<M", "N=M", "N>M", "one-row"])
def test_derivative_of_compatible(name):
    assert_gradient(lambda A: weighted(features.compatible(A)), MATRICES[name])
    C = RNG.standard_normal(MATRICES[name].shape[::-1])
    assert_gradient(lambda A: weighted(features.compatible(A, C)), MATRICES[name])
    assert_gradient(lambda C: weighted(features.compatible(MATRICES[name], C)), C)


# --- input

X, Z = RNG.standard_normal((4, 3)), RNG.standard_normal((5, 3))


@pytest.mark.parametrize("call, words", [
    (lambda: features.compatible(X, X), ("C must", "with M = 3, as A of shape (4, 3), got (4, 3)")),
    (lambda: features.cosine(X, X.T), ("K must", "as Q", "(4, 3)", "(3, 4)")),
    (lambda: features.polynomial(X, X.T), ("Z must", "as X", "(4, 3)", "(3, 4)")),
    (lambda: features.positive_random(X, X.T, m=1, seed=0), ("K must", "as Q", "(4, 3)", "(3, 4)")),
    (lambda: features.data_dependent(X, X.T, X), ("Psi must", "as Phi", "(4, 3)", "(3, 4)")),
    (lambda: features.data_dependent(X, Z, X.T), ("F must", "as Phi", "(4, 3)", "(3, 4)")),
    (lambda: features.polynomial(X, Z, degree=0), ("degree", "got 0")),
    (lambda: features.polynomial(X, Z, gamma=np.nan), ("gamma", "got nan")),
    (lambda: features.polynomial(X, Z, coef0="1"), ("coef0", "got '1'"))])
def test_bad_shapes_and_parameters_are_refused(call, words):
    with pytest.raises(ValueError) as caught:
        call()
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_integers_do_not_overflow():
    data = np.array([[200, 250]], dtype="uint8")
    for Phi, Psi in (features.polynomial(data, data, coef0=0), features.compatible(data)):
        assert Phi.dtype == Psi.dtype == np.float64
    Phi, Psi = features.polynomial(data, data)
    np.testing.assert_allclose(Phi @ Psi.T, [[(200.0 ** 2 + 250.0 ** 2 + 1.0) ** 2]], rtol=1e-14)
