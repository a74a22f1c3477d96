"""No rounding at all: the bodies of the residuals on fractions, where zero is zero.

I − 2vvᵀ/vᵀv with integer v is orthogonal and has rational entries, so K = H_e Σ H_rᵀ with rational
Σ has a KSVD that is known exactly, and with Φ = H_e Σ T, Ψ = H_r T⁻ᵀ so have the weights:
W_e = T⁻¹, W_r = TᵀΣ. T = D O with a diagonal D and an orthogonal O, so that ΦΦᵀ = H_e Σ²D² H_eᵀ
is known too (kernel PCA). No norm is taken: every difference is == 0, a proof on an instance.
"""
from fractions import Fraction
from numbers import Rational

import numpy as np
import pytest

from ksvd_ref import dual, equations, primal
from ksvd_ref.solution import Lengths, Solution, Weighted

# An SVD of triangles (K.39) and a norm of K (V41) need roots, and V16 is about counting σ above
# rounding.
IRRATIONAL = {"K.39", "V16", "V41"}
RATIONAL = {equations.describe(function)[0]: function for function in equations.EQUATIONS
            if equations.describe(function)[0] not in IRRATIONAL}


def exact(A):
    """Integers as an array of fractions."""
    return np.vectorize(Fraction, otypes=[object])(np.asarray(A))


def householder(rng, n, columns):
    v = exact(rng.integers(1, 5, (n, 1)) * rng.choice([-1, 1], (n, 1)))
    return (exact(np.eye(n, dtype=int)) - 2 * v @ v.T / (v.T @ v))[:, :columns]


def instance(N, M, r, s, sigma, extra=0, seed=0):
    """The Solution of a K with s of r components; `extra` features of the columns meet zeros."""
    rng = np.random.default_rng(seed)
    sigma, zeros = exact(sigma), exact(np.zeros(min(N, M) - r, dtype=int))
    H_e, H_r = householder(rng, N, r), householder(rng, M, r)
    d, O = exact(range(r + 1, 1, -1)) / 2, householder(rng, r, r)
    none, wide = exact(np.zeros((N, extra), dtype=int)), exact(rng.integers(-3, 4, (M, extra)))
    Phi, Psi = np.hstack([H_e * sigma * d @ O, none]), np.hstack([H_r / d @ O, wide])
    p, drawn = r + extra, lambda *shape: exact(rng.integers(-5, 6, shape)) / 7
    W_e, W_r = Psi.T @ H_r[:, :s], Phi.T @ H_e[:, :s]
    Phi_new, Psi_new, few = drawn(3, p), drawn(3, p), sigma[:s]
    w_pca, K = Phi.T @ H_e, Phi @ Psi.T
    return Solution(
        Phi=Phi, Psi=Psi, K=K, scale=1, sigma_1=sigma[0], rounding=0, rank=r,
        H_e=H_e[:, :s], sigma=few, H_r=H_r[:, :s], E=K @ H_r[:, :s], R=K.T @ H_e[:, :s],
        Lambda=1 / few, spectrum=np.hstack([sigma, zeros]), W_e=W_e, W_r=W_r,
        primal_spectrum=np.hstack([sigma, zeros])[:min(N, M, p)], delta=few / sigma[0],
        aligned=(H_e[:, :s], H_r[:, :s]), pca=primal.Primal(w_pca, sigma ** 2 * d ** 2, w_pca),
        transposed=primal.Primal(W_r, few, W_e), given=K,
        compatible=(H_e @ H_e.T, K.T), trial=(householder(rng, N, s), householder(rng, M, s)),
        Phi_new=Phi_new, Psi_new=Psi_new, K_rows=Phi_new @ Psi.T, K_columns=Phi @ Psi_new.T,
        probe=(drawn(p, 3), drawn(p, 3), exact([1, 2, 3]) / 5),
        directions=[(drawn(p, 3), drawn(p, 3)) for _ in range(3)])


INSTANCES = {
    "square, all components": instance(4, 4, 4, 4, [4, 3, 2, 1]),
    "N > M, s < r < p": instance(6, 5, 3, 2, [5, 3, 2], extra=2, seed=1),
    "N < M, a tie": instance(5, 7, 4, 4, [3, 3, 2, 1], seed=2),
    "a tie that the rank cuts": instance(6, 4, 3, 2, [5, 2, 2], seed=3),
}


@pytest.fixture
def unchecked(monkeypatch):
    """The functions that residuals call without what `@arrays` puts around them."""
    for module in (dual, primal):
        for name, function in vars(module).items():
            if hasattr(function, "axes"):
                monkeypatch.setattr(module, name, function.__wrapped__)


def zero(terms):
    """Whether each difference is zero, entry by entry; of two lengths, that of their squares."""
    differences = []
    for term in terms:
        if isinstance(term, Lengths):
            term = np.sum(term.one * term.one) - np.sum(term.other * term.other)
        differences += term.differences if isinstance(term, Weighted) else [term]
    entries = [x for A in differences for x in np.ravel(A)]
    assert all(isinstance(x, Rational) for x in entries)                # no float slipped in
    return all(x == 0 for x in entries)


@pytest.mark.parametrize("name", INSTANCES)
@pytest.mark.parametrize("tag", RATIONAL)
def test_every_rational_identity_holds_without_rounding(tag, name, unchecked):
    assert zero(RATIONAL[tag](INSTANCES[name]))


@pytest.mark.parametrize("tag", RATIONAL)
def test_every_rational_identity_is_noticed_to_be_wrong(tag, unchecked, monkeypatch):
    """By a 1e-30th, which no float could see: of one ingredient, or in J or its gradient."""
    s, tiny = INSTANCES["N > M, s < r < p"], 1 + Fraction(1, 10 ** 30)
    wrong = [s._replace(**{name: getattr(s, name) * tiny}) for name in (
        "H_e", "sigma", "E", "Lambda", "W_e", "K", "K_rows", "given", "spectrum")]
    wrong += [s._replace(pca=s.pca._replace(sigma=s.pca.sigma * tiny)),
              s._replace(aligned=(s.aligned[0] * tiny, s.aligned[1]))]
    noticed = [not zero(RATIONAL[tag](one)) for one in wrong]
    for name in ("objective", "gradient"):
        right = getattr(primal, name)
        monkeypatch.setattr(primal, name, lambda *at, right=right: np.multiply(right(*at), tiny))
        noticed.append(not zero(RATIONAL[tag](s)))
        monkeypatch.setattr(primal, name, right)
    assert any(noticed)
