"""Kernels too large for an SVD or for memory: block Golub-Kahan, and the primal in chunks."""
import tracemalloc
from functools import reduce
from itertools import permutations

import autograd
import autograd.numpy as anp
import hypothesis.strategies as st
import numpy as np
import pytest
from conftest import with_spectrum
from hypothesis import given

from ksvd_ref import dual, kernels, large, linalg, primal

RNG = np.random.default_rng(23)


def batch(copies, n):
    """Softmax attention of equal, independent sequences: every sigma is repeated `copies` times."""
    X, Z = np.random.default_rng(1).standard_normal((2, n, 8))
    return np.kron(np.eye(copies), kernels.softmax(X, Z))


# --- block Golub-Kahan

CASES = {                                                   # K, number of components
    "6-fold, 6 wanted": (batch(6, 20), 6),
    "6-fold, 3 wanted": (batch(6, 20), 3),
    "6-fold, 8 wanted": (batch(6, 20), 8),
    "identity": (np.eye(60), 5),
    "Hadamard": (np.kron(np.ones((8, 8)), np.eye(10)), 12),
    "rank 3 of 5": (with_spectrum(RNG, 60, 50, [3.0, 2.0, 1.0]), 5),
    "rank 1 of 20": (with_spectrum(RNG, 90, 80, [2.0]), 20),
    "zero": (np.zeros((40, 30)), 4),
    "one entry": (np.eye(30)[:, :1] @ np.eye(40)[:1, :], 3),
    "300x40": (RNG.standard_normal((300, 40)), 5),
    "40x200": (RNG.standard_normal((40, 200)), 5),
    "40x200, all": (RNG.standard_normal((40, 200)), 40),
    "3x200": (RNG.standard_normal((3, 200)), 3),
    "3x200, one": (RNG.standard_normal((3, 200)), 1),
    "1x1": (np.array([[-3.0]]), 1),
    "slow decay": (with_spectrum(RNG, 200, 180, np.arange(1.0, 181.0) ** -0.5), 10),
    "fast decay": (with_spectrum(RNG, 100, 90, 2.0 ** -np.arange(40.0)), 15),
    "no decay": (RNG.standard_normal((150, 150)), 4),
    "near ties": (with_spectrum(RNG, 80, 80, 1.0 + 1e-9 * np.arange(80.0)[::-1]), 6),
}


@pytest.mark.parametrize("case", CASES)
def test_golub_kahan(lib, case):
    """K.15. Orthonormal columns, the sigma of NumPy's SVD with their multiplicity, the sign rule.

    Tolerance: tol = 1e-10 for K^T H_e = H_r Sigma, or ten roundings in float32; the rest is as
    exact as an SVD.
    """
    K, s = CASES[case]
    H_e, sigma, H_r = map(lib.host, large.golub_kahan(lib.array(K), s))
    assert (H_e.shape, sigma.shape, H_r.shape) == ((len(K), s), (s,), (K.shape[1], s))
    want = np.linalg.svd(K)[1][:s]
    scale = want[0] or 1.0
    np.testing.assert_allclose(sigma, want, rtol=0, atol=lib.tol * scale)
    np.testing.assert_allclose(H_e.T @ H_e, np.eye(s), rtol=0, atol=lib.tol)
    np.testing.assert_allclose(H_r.T @ H_r, np.eye(s), rtol=0, atol=lib.tol)
    np.testing.assert_allclose(K @ H_r, H_e * sigma, rtol=0, atol=lib.tol * scale)
    np.testing.assert_allclose(K.T @ H_e, H_r * sigma, rtol=0, atol=max(1e-10, lib.tol) * scale)
    assert np.all(np.diff(sigma) <= 0.0) and np.all(sigma >= 0.0)
    if lib.name == "float64":
        first = np.argmax(np.abs(H_e) >= (1.0 - 1e-8) * np.max(np.abs(H_e), axis=0), axis=0)
        assert np.all(H_e[first, np.arange(s)] > 0.0)


def test_one_vector_at_a_time_is_silently_wrong():
    """What the block is for: sigma_2 = sigma_1 here, and a single vector cannot see it."""
    K = batch(6, 20)
    want = np.linalg.svd(K)[1]
    assert want[5] > want[0] * (1.0 - 1e-12) and want[6] < 0.9 * want[0]
    for seed in range(3):
        _, sigma, _, residual = large._steps(K, 2, 1, 1e-6, seed)
        assert residual <= 1e-6                             # it says that it has converged
        np.testing.assert_allclose(sigma, want[[0, 6]], rtol=1e-10)
        sigma = large.golub_kahan(K, 2, tol=1e-6, seed=seed).sigma
        np.testing.assert_allclose(sigma, want[:2], rtol=1e-10)


@given(N=st.integers(1, 12), M=st.integers(1, 12), data=st.data())
def test_golub_kahan_equals_the_svd(N, M, data):
    """Any small spectrum, with zeros and repetitions: the same sigma, and the same vectors where
    sigma stands alone."""
    k = min(N, M)
    sigma = sorted(data.draw(st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0]), min_size=k,
                                      max_size=k)), reverse=True)
    s, seed = data.draw(st.integers(1, k)), data.draw(st.integers(0, 99))
    K = with_spectrum(np.random.default_rng(seed), N, M, sigma)
    H_e, got, H_r = large.golub_kahan(K, s, seed=seed)
    np.testing.assert_allclose(got, sigma[:s], rtol=0, atol=1e-13)
    np.testing.assert_allclose(K @ H_r, H_e * got, rtol=0, atol=1e-13)
    np.testing.assert_allclose(K.T @ H_e, H_r * got, rtol=0, atol=2e-10)
    np.testing.assert_allclose(H_e.T @ H_e, np.eye(s), rtol=0, atol=1e-13)
    np.testing.assert_allclose(H_r.T @ H_r, np.eye(s), rtol=0, atol=1e-13)


@pytest.mark.parametrize("make, low, high", [
    (lambda rng: rng.standard_normal((400, 4)) @ rng.standard_normal((4, 400)), 1, 12),
    (lambda rng: kernels.softmax(*(rng.standard_normal((2, 400, 32)) * [[[2]], [[1]]])), 5, 20),
    (lambda rng: rng.standard_normal((800, 600)), 25, 60),
], ids=["low-rank", "softmax", "random-numbers"])
def test_steps(monkeypatch, make, low, high):
    """How often K is multiplied hangs on how fast sigma falls: no one number fits all matrices."""
    calls, beyond = [], large._beyond               # twice a step
    monkeypatch.setattr(large, "_beyond", lambda *a: (calls.append(1), beyond(*a))[1])
    large.golub_kahan(make(np.random.default_rng(0)), 4)
    assert 2 * low <= len(calls) <= 2 * high


def test_golub_kahan_and_the_svd_have_the_same_vectors():
    K = with_spectrum(RNG, 120, 100, 0.8 ** np.arange(100.0))
    for one, two in zip(large.golub_kahan(K, 5, tol=1e-13), dual.solve(K, 5)):
        np.testing.assert_allclose(one, two, rtol=0, atol=1e-11)       # tol / the gap, 0.08


@pytest.mark.parametrize("scale", [2.0 ** -500, 2.0 ** 500])
def test_golub_kahan_scales(scale):
    K = RNG.standard_normal((60, 50))
    one, other = large.golub_kahan(K, 4), large.golub_kahan(scale * K, 4)
    np.testing.assert_allclose(other.sigma / scale, one.sigma, rtol=1e-13)
    np.testing.assert_allclose(other.H_e, one.H_e, rtol=0, atol=1e-12)


def test_tolerance_is_the_residual():
    """A looser tol stops earlier, and its residual is what was asked for."""
    K = with_spectrum(RNG, 200, 200, np.arange(1.0, 201.0) ** -0.5)
    found = []
    for tol in (1e-2, 1e-5, 1e-12):
        H_e, sigma, H_r = large.golub_kahan(K, 3, tol=tol)
        found.append(np.max(np.linalg.norm(K.T @ H_e - H_r * sigma, axis=0)))
        assert found[-1] <= tol * 1.01
    assert found[0] > 1e-5 and found[1] > 1e-12             # not simply the SVD each time


def test_stopping_without_converging_is_said(monkeypatch):
    K = with_spectrum(RNG, 200, 200, np.linspace(1.0, 0.9, 200))
    monkeypatch.setattr(large, "BLOCKS", 3)
    with pytest.warns(RuntimeWarning, match="stopped after 3 blocks with a residual of [0-9.]+e-0"):
        H_e, sigma, H_r = large.golub_kahan(K, 2)
    np.testing.assert_allclose(K @ H_r, H_e * sigma, rtol=0, atol=1e-13)
    np.testing.assert_allclose(H_r.T @ H_r, np.eye(2), rtol=0, atol=1e-13)


def test_seed_decides_the_start_and_not_the_answer():
    K = with_spectrum(RNG, 80, 70, 0.7 ** np.arange(70.0))
    one, same, other = (large.golub_kahan(K, 3, seed=seed) for seed in (0, 0, 1))
    for A, B, C in zip(one, same, other):
        np.testing.assert_array_equal(A, B)
        np.testing.assert_allclose(A, C, rtol=0, atol=1e-9)


GOOD = {"K": RNG.standard_normal((6, 5))}


@pytest.mark.parametrize("rank", [None, 0, 6, -1, 1.5, True, "2"])
def test_golub_kahan_refuses_rank(rank):
    with pytest.raises(ValueError, match="rank must be an integer from 1 to 5 for K of.*got"):
        large.golub_kahan(GOOD["K"], rank)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("s", [4, 20])
def test_golub_kahan_ends_below_the_smallest_normal_number(dtype, s):
    """One entry so small that its roundings are 0: the noise that completes the bases is not."""
    K = np.zeros((60, 50), dtype=dtype)
    K[0, 0] = np.finfo(dtype).smallest_normal / 100
    H_e, sigma, H_r = large.golub_kahan(K, s)
    np.testing.assert_allclose(sigma / K[0, 0], np.eye(s)[0], rtol=0, atol=1e-4)
    for H in (H_e, H_r):
        np.testing.assert_allclose(H.T @ H, np.eye(s), rtol=0, atol=1e3 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("share", [1.0, 0.2, 0.04])
def test_golub_kahan_refuses_what_overflows(dtype, share):
    """Entries near the largest number: in a product, in B, or in sigma alone; never a hang."""
    K = np.full((40, 30), share * np.finfo(dtype).max, dtype=dtype)       # sigma = 35 entries
    K[::2, ::3] *= -1.0
    with pytest.raises(ValueError, match="overflows or is undefined"):
        large.golub_kahan(K, 3)


@pytest.mark.parametrize("dtype, tiny", [("float64", 5e-324), ("float32", 1.4e-45)])
def test_golub_kahan_of_the_smallest_numbers(dtype, tiny):
    """Integers times the smallest number there is: sigma of the integers, to their rounding."""
    whole = np.random.default_rng(0).integers(-2 ** 20, 2 ** 20, (40, 30))
    K = (whole * np.float64(tiny)).astype(dtype)
    want = np.linalg.svd(whole.astype(float), compute_uv=False)[:3]
    assert np.all(np.abs(large.golub_kahan(K, 3).sigma.astype(float) / tiny - want) <= 40.0)


@pytest.mark.parametrize("tol", [0.0, -1.0, np.nan, np.inf, "1"])
def test_golub_kahan_refuses_tol(tol):
    with pytest.raises(ValueError, match="tol must be a finite number above 0"):
        large.golub_kahan(GOOD["K"], 2, tol=tol)


@pytest.mark.parametrize("seed", [None, -1, 1.5, "0"])
def test_golub_kahan_refuses_seed(seed):
    with pytest.raises(ValueError, match="seed must be an integer, 0 or more, got"):
        large.golub_kahan(GOOD["K"], 2, seed=seed)


def test_golub_kahan_under_autograd_says_what_to_do():
    with pytest.raises(TypeError, match="cannot be differentiated: dual.solve can"):
        autograd.grad(lambda K: anp.sum(large.golub_kahan(K, 2).sigma))(GOOD["K"])


# --- the primal in chunks

def features(N, M, p, seed=0):
    rng = np.random.default_rng(seed)
    T = rng.standard_normal((p, p))
    return rng.standard_normal((N, p)) @ T, rng.standard_normal((M, p)) @ T + 0.1


def cut(A, *at):
    return np.split(A, at)


SPLITS = {                                  # cuts of 23 rows and of 19 columns, p = 5
    "one block": ((), ()),
    "two": ((10,), (9,)),
    "sides cut elsewhere": ((3, 20), (1, 2)),
    "shorter than p": ((2, 4, 7, 8, 12, 14, 18, 21, 22), (3, 6, 9, 12, 15, 18, 17, 18, 18.5)),
    "single rows": (range(1, 23), range(1, 19)),
    "sides of different number": ((5, 10, 15), ()),
}


def blocks(Phi, Psi, rows, columns):
    left = cut(Phi, *rows)
    right = cut(Psi, *sorted({int(at) for at in columns}))
    short = max(len(left), len(right))
    return [*zip(left + [None] * (short - len(left)), right + [None] * (short - len(right)))]


@pytest.mark.parametrize("split", SPLITS)
def test_chunks_equal_the_whole(lib, split):
    """K.39. Solved block by block or at once: the same numbers and signs."""
    Phi, Psi = features(23, 19, 5)
    pairs = [tuple(None if A is None else lib.array(A) for A in pair)
             for pair in blocks(Phi, Psi, *SPLITS[split])]
    want = primal.solve(lib.array(Phi), lib.array(Psi))
    got = large.solve_chunks(pairs)
    scale = np.linalg.norm(Phi, 2) * np.linalg.norm(Psi, 2)
    for A, B in zip(got, want):
        np.testing.assert_allclose(lib.host(A), lib.host(B), rtol=0, atol=10 * lib.tol * scale)
    for A, B in zip(large.solve_chunks(pairs, 2), want):
        np.testing.assert_allclose(lib.host(A), lib.host(B)[..., :2], rtol=0,
                                   atol=10 * lib.tol * scale)


@pytest.mark.parametrize("N, M, p", [(3, 8, 5), (8, 3, 5), (4, 4, 9), (1, 1, 1), (1, 30, 2),
                                     (400, 7, 3)])
def test_chunks_of_every_shape(N, M, p):
    Phi, Psi = features(N, M, p)
    want = primal.solve(Phi, Psi, min(N, M, p))
    got = large.solve_chunks(blocks(Phi, Psi, (1,) if N > 1 else (), ()), min(N, M, p))
    for A, B in zip(got, want):
        np.testing.assert_allclose(A, B, rtol=0, atol=1e-10 * np.max(np.abs(B)))


def test_a_generator_gets_signs_from_the_weights():
    """It is spent after one look: W_e decides, jointly for both sides; only the sign differs."""
    Phi, Psi = features(23, 19, 5)
    pairs = blocks(Phi, Psi, (7, 15), (4, 9))
    W_e, sigma, W_r = large.solve_chunks(pair for pair in pairs)
    want = primal.solve(Phi, Psi)
    flip = np.sign(np.sum(W_e * want.W_e, axis=0))
    assert np.any(flip < 0.0)                               # else this test says nothing
    np.testing.assert_allclose(W_e * flip, want.W_e, rtol=0, atol=1e-11)
    np.testing.assert_allclose(W_r * flip, want.W_r, rtol=0, atol=1e-11)
    np.testing.assert_allclose(sigma, want.sigma, rtol=1e-12)
    assert np.all(W_e[np.argmax(np.abs(W_e), axis=0), np.arange(5)] > 0.0)


@pytest.mark.parametrize("H", [np.kron([[1.0, 1.0], [1.0, -1.0]], [[1.0, 1.0], [1.0, -1.0]]),
                               np.array([[0.0, -2.0], [-1.0, 2.0], [1.0, 0.0]])])
def test_signs_of_equal_entries_across_blocks(H):
    """Entries of one size: the first decides, also if it is in another block than the last."""
    W = np.arange(H.shape[1], 0.0, -1.0)
    want = primal.solve(H * W, np.eye(H.shape[1]))
    got = large.solve_chunks([(row[None, :] * W, None) for row in H] + [(None, np.eye(len(W)))])
    np.testing.assert_allclose(got.W_e, want.W_e, rtol=0, atol=1e-14)


def test_order_of_the_blocks_does_not_matter():
    Phi, Psi = features(23, 19, 5)
    pairs = blocks(Phi, Psi, (7, 15), (4, 9))
    want = large.solve_factor(large.factor(Phi, Psi))
    for order in permutations(pairs):
        for A, B in zip(large.solve_chunks(iter(order)), want):
            np.testing.assert_allclose(A, B, rtol=0, atol=1e-11)


@pytest.mark.parametrize("rank", [1, 3, 5])
def test_merge_is_associative_and_commutative(lib, rank):
    """R^T R adds up, and at full rank R itself is the same. Deficient blocks included."""
    rng = np.random.default_rng(3)
    A, B, C = (rng.standard_normal((n, rank)) @ rng.standard_normal((rank, 5)) for n in (9, 4, 30))
    f = [large.factor(lib.array(X), lib.array(2.0 * X)) for X in (A, B, C)]
    m = large.merge
    trees = [m(m(f[0], f[1]), f[2]), m(f[0], m(f[1], f[2])), m(m(f[2], f[0]), f[1])]
    whole = np.concatenate([A, B, C])
    for tree in trees:
        assert (tree.N, tree.M) == (43, 43)
        for R, scale in ((lib.host(tree.T_phi), 1.0), (lib.host(tree.T_psi), 4.0)):
            np.testing.assert_allclose(R.T @ R, scale * whole.T @ whole, rtol=0,
                                       atol=1e3 * lib.tol)
            np.testing.assert_array_equal(R, np.triu(R))
            assert np.all(np.diag(R) >= 0.0)
        if np.linalg.matrix_rank(whole) == 5:
            np.testing.assert_allclose(lib.host(tree.T_phi), lib.host(trees[0].T_phi), rtol=0,
                                       atol=1e2 * lib.tol)


@pytest.mark.parametrize("N", [1, 4, 5, 39, 40, 80, 81, 639, 641, 5000])
def test_triangle(lib, N):
    """The tree of small decompositions has the R of the large one, at every cut of the tree."""
    A = np.random.default_rng(N).standard_normal((N, 5))
    R = lib.host(large.factor(lib.array(A), None).T_phi)
    want = np.linalg.qr(A)[1]
    want = want * np.where(np.diagonal(want) < 0.0, -1.0, 1.0)[:, None]
    np.testing.assert_allclose(R[:len(want), :], want, rtol=0, atol=lib.tol * N ** 0.5)
    assert not np.any(R[len(want):, :])


@pytest.mark.parametrize("condition", [1e4, 1e6, 1e8, 3e9])
def test_chunks_of_opposed_features(condition):
    """sigma to kappa eps, which no sum of Gram matrices has."""
    rng, D = np.random.default_rng(0), np.geomspace(1.0, 1.0 / condition, 5)
    T = np.linalg.qr(rng.standard_normal((5, 5)))[0]
    sigma = np.array([3.0, 2.5, 2.0, 1.5, 1.0])
    U, V = (np.linalg.qr(rng.standard_normal((n, 5)))[0] for n in (300, 200))
    Phi, Psi = U * sigma * D @ T, V * (1.0 / D / condition) @ T
    found = large.solve_chunks(zip(cut(Phi, 100, 200), cut(Psi, 50, 60)), 5)
    loss = 10.0 * condition * np.finfo(float).eps
    np.testing.assert_allclose(found.sigma * condition, sigma, rtol=max(loss, 1e-14))
    H_e = Phi @ found.W_e / found.sigma                     # must lie in the span of U
    gap = np.linalg.norm(H_e - U @ (U.T @ H_e), 2)
    assert gap < 10.0 * loss + 1e-13


def test_memmap(tmp_path):
    """Features on disk, read block by block: memory is a few blocks, however many there are."""
    p, rows = 8, 5_000
    rng, peaks = np.random.default_rng(0), []
    for n in (4, 16):
        for name in ("Phi", "Psi"):
            file = np.memmap(tmp_path / name, mode="w+", shape=(n * rows, p))
            file[:] = rng.integers(0, 9, size=file.shape)

        def read():
            for i in range(n):
                yield tuple(np.memmap(tmp_path / name, mode="r", shape=(rows, p),
                                      offset=i * rows * p).astype(float) for name in ("Phi", "Psi"))
        tracemalloc.start()
        sigma = large.solve_chunks(read()).sigma
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        whole = [np.array(np.memmap(tmp_path / name, mode="r", shape=(n * rows, p)), dtype=float)
                 for name in ("Phi", "Psi")]
        np.testing.assert_allclose(sigma, primal.solve(*whole).sigma, rtol=1e-11)
    assert peaks[1] < 1.1 * peaks[0] < 8 * 8 * rows * p     # 8 blocks of 5000 x 8 numbers


def test_map_and_reduce():
    """The triangles add up in any tree, as an engine for map and reduce would."""
    Phi, Psi = features(60, 50, 4)
    triangles = [large.factor(*pair) for pair in zip(cut(Phi, 20, 40), cut(Psi, 10, 40))]
    got = large.solve_factor(reduce(large.merge, triangles))
    np.testing.assert_allclose(got.sigma, primal.solve(Phi, Psi).sigma, rtol=1e-12)
    np.testing.assert_allclose(got.W_e.T @ got.W_r, np.diag(got.sigma), rtol=0, atol=1e-10)


TWO = {"Phi": RNG.standard_normal((6, 3)), "Psi": RNG.standard_normal((5, 3))}


@pytest.mark.parametrize("chunks, error, words", [
    ([], ValueError, "at least one pair"),
    ([(None, None)], ValueError, "got None for both"),
    ([(TWO["Phi"], None)], ValueError, "6 of Phi and 0 of Psi"),
    ([(None, TWO["Psi"])], ValueError, "0 of Phi and 5 of Psi"),
    ([TWO["Phi"]], TypeError, "a pair"),
    ([(TWO["Phi"],)], TypeError, "a pair"),
    ([(TWO["Phi"], TWO["Psi"][:, :2])], ValueError,
     "Psi must have shape .M, p. with p = 3, as Phi"),
    ([(TWO["Phi"], None), (None, TWO["Psi"][:, :2])], ValueError,
     "chunk 1 must have p = 3 columns, as those before it, got 2"),
    (None, TypeError, "chunks must yield pairs .* got NoneType"),
    ([(TWO["Phi"], TWO["Psi"], None)], TypeError, "a pair .* got 3 of them"),
    ([None], TypeError, "a pair .*NoneType")])
def test_bad_chunks_are_refused(chunks, error, words):
    with pytest.raises(error, match=words):
        large.solve_chunks(chunks)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_blocks_whose_norm_overflows_together_are_refused(dtype):
    """Each block fits; their sum does not, and an SVD of infinity would never return."""
    top = np.finfo(dtype).max / 2
    block = np.full((1, 3), top, dtype=dtype), np.eye(3, dtype=dtype)
    assert np.all(np.isfinite(large.factor(*block).T_phi))
    with pytest.raises(ValueError, match="the norm of Phi overflows"):
        large.solve_chunks([block] * 8)


TRIANGLES = large.factor(**TWO)


@pytest.mark.parametrize("change, error, words", [
    (lambda f: None, ValueError, r"must be \(T_phi, T_psi, N, M\), got NoneType"),
    (lambda f: dual.solve(np.eye(2)), TypeError, r"must be \(T_phi, .*, got a Dual \(H_e"),
    (lambda f: f._replace(N=-1), ValueError, "N must be an integer, 0 or more, got -1"),
    (lambda f: f._replace(T_phi=np.nan * f.T_phi), ValueError, "T_phi must be finite.*NaN"),
    (lambda f: f._replace(T_psi=np.full((3, 3), np.inf)), ValueError, "T_psi must be finite"),
    (lambda f: f._replace(T_psi=np.eye(2)), ValueError, "T_psi must have shape .p, p. with p = 3"),
    (lambda f: f._replace(T_phi=f.T_phi[0]), ValueError, "T_phi must have 2 axes")])
def test_bad_factors_are_refused(change, error, words):
    """They may come from another machine: nothing wrong reaches a decomposition."""
    for call in (large.solve_factor, lambda f: large.merge(f, TRIANGLES),
                 lambda f: large.merge(TRIANGLES, f)):
        with pytest.raises(error, match=words):
            call(change(TRIANGLES))


def test_chunks_under_autograd_say_what_to_do():
    for call in (lambda Phi: large.solve_chunks([(Phi, TWO["Psi"])]).sigma,
                 lambda Phi: large.factor(Phi, None).T_phi):
        with pytest.raises(TypeError, match="cannot be differentiated: primal.solve can"):
            autograd.grad(lambda Phi: anp.sum(call(Phi)))(TWO["Phi"])


def test_an_iterable_that_is_spent_gets_signs_from_the_weights():
    """It is no iterator, and yet a second look finds nothing."""
    class Loader:
        def __init__(self):
            self.left = iter([(TWO["Phi"], TWO["Psi"])])

        def __iter__(self):
            return self.left

    for got, want in zip(large.solve_chunks(Loader()), large.solve_chunks(Loader().left)):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("rank", [0, 4, 1.5, True])
def test_chunks_refuse_rank(rank):
    with pytest.raises(ValueError, match=r"from 1 to 3 for K of shape \(6, 5\) from 3 features"):
        large.solve_chunks([(TWO["Phi"], TWO["Psi"])], rank)


# --- what primal.solve reads off the Gram matrix instead of every entry

@pytest.mark.parametrize("kind", ["nan", "inf"])
@pytest.mark.parametrize("place", [(0, 0), (99, 2), (50, 1)])
@pytest.mark.parametrize("other", [1.0, 0.0, 1e200, 1e-200])
def test_one_bad_entry_is_found(kind, place, other):
    """Wherever it is and whatever stands beside it; the message says where, without a warning."""
    A = np.full((100, 3), other)
    A[place] = float(kind)
    for pair, name in (((A, np.eye(3)), "Phi"), ((np.eye(3), A), "Psi")):
        with pytest.raises(ValueError, match=rf"{name} must be finite.*entry \({place[0]}, "):
            primal.solve(*pair)


@pytest.mark.parametrize("dtype, a", [
    ("float64", 1e-300), ("float64", 1e-170), ("float64", 1e-140), ("float64", 1e140),
    ("float64", 1e170), ("float64", 1e300), ("float32", 1e-30), ("float32", 1e-11),
    ("float32", 1e17), ("float32", 1e30)])
def test_squares_out_of_range(dtype, a):
    """The Gram matrix over- or underflows, or nearly; W_e scales with Psi, W_r with Phi."""
    Phi, Psi = (np.asarray(A, dtype=dtype) for A in features(40, 30, 3))
    tol = 1e3 * np.finfo(dtype).eps
    one = primal.solve(Phi, Psi)
    for f, pair in ((lambda W: W.W_r, (Phi * Phi.dtype.type(a), Psi)),
                    (lambda W: W.W_e, (Phi, Psi * Psi.dtype.type(a)))):
        got = primal.solve(*pair)
        assert got.sigma.dtype == dtype
        np.testing.assert_allclose(got.sigma / Phi.dtype.type(a), one.sigma, rtol=tol)
        np.testing.assert_allclose(f(got) / Phi.dtype.type(a), f(one), rtol=0,
                                   atol=tol * np.max(np.abs(f(one))))


@pytest.mark.parametrize("dtype, top", [("float64", 1e308), ("float32", 1e38)])
def test_features_whose_norm_overflows_are_refused(dtype, top):
    A = np.full((40, 3), top, dtype=dtype) * np.sign(RNG.standard_normal((40, 3))).astype(dtype)
    with pytest.raises(ValueError, match="overflows"):
        primal.solve(A, np.eye(3, dtype=dtype))
    with pytest.raises(ValueError, match="Phi Psi.T overflows"):
        primal.solve(np.eye(2, dtype=dtype) * top, np.eye(2, dtype=dtype) * 1e3)


def test_peaks_and_signs(lib):
    """The entry of largest magnitude, the first of those that are equal to rounding."""
    e = 3 * float(np.finfo(lib.name).eps)
    H = np.array([[1.0, -2.0, 3.0, -1.0 + e, 0.0], [-2.0, 1.0, -3.0, 1.0, 0.0],
                  [1.0, 1.0, 1.0, -1.0, 0.0]])
    np.testing.assert_allclose(lib.host(linalg.peaks(lib.array(H))), [[-2, -2, 3, -1, 0]],
                               rtol=0, atol=10 * e)
    np.testing.assert_array_equal(lib.host(linalg.signs(lib.array(H))), [[-1, -1, 1, -1, 1]])
    one = H[:, :2]                                          # no tie: the short way
    np.testing.assert_array_equal(lib.host(linalg.signs(lib.array(one))), [[-1, -1]])
