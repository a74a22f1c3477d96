"""Positions as kernels: each scheme against loops, against its published form, and as a product."""
import math

import numpy as np
import pytest

from ksvd_ref.attention.positions import (absolute, alibi, bucketed, offset_table, rel_shift,
                                          relative, rotary, sinusoids, turned)
from ksvd_ref.attention.filters import causal, memory, window
from ksvd_ref.attention.smoother import attention, weights

from test_smoother import check_gradient, close

SIZES = [(5, 5), (3, 8), (7, 2), (1, 4), (4, 1), (1, 1)]


def draw(seed, *shapes):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape) for shape in shapes]


def offsets(N, M):
    """i - j with both ends aligned, (N, M)."""
    return np.arange(N)[:, None] + (M - N) - np.arange(M)[None, :]


def sinusoid(position, d):
    return np.array([f(10000 ** (-2 * p / d) * position)
                     for p in range(d // 2) for f in (math.sin, math.cos)])


# --- tables of positions -----------------------

def test_sinusoids(lib):
    """S.12. One sine and cosine at a time; the Gram matrix depends on i - j alone."""
    for N, d, first in [(1, 2, 0), (7, 6, 0), (9, 4, -4), (3, 8, 100)]:
        t = sinusoids(N, d, first=first, beside=lib.array([0.0]))
        close(t, [sinusoid(first + i, d) for i in range(N)], lib)
        assert t.shape == (N, d)
    t = sinusoids(30, 16)
    G = t @ t.T                 # D17: Toeplitz with diagonal d / 2
    np.testing.assert_allclose(np.diag(G), 8.0, rtol=1e-14)
    np.testing.assert_allclose(G[1:, 1:], G[:-1, :-1], atol=1e-13)         # sums of 16 products
    for wrong in [(0, 2), (3, 3), (3, 0), (2.0, 2), (True, 2)]:
        with pytest.raises(ValueError, match="must be an (even )?integer"):
            sinusoids(*wrong)
    for wrong in ("a", None, math.nan):
        with pytest.raises(ValueError, match="first must be a finite number"):
            sinusoids(2, 2, first=wrong)
    close(sinusoids(3, 2, first=0.1), [sinusoid(0.1 + i, 2) for i in range(3)])    # 0.1 .. 3.1
    t = sinusoids(3, 2, beside=np.array([4, 7]))        # beside tokens: not rounded to 0 and 1
    np.testing.assert_array_equal(t, sinusoids(3, 2))


def test_offset_table(lib):
    """S.17. Row by row, clipped at both ends."""
    for N, M in SIZES:
        for L in (0, 1, 3, 9):
            table, = draw(0, (2 * L + 1, 3))
            R = offset_table(lib.array(table), N, M)
            want = [table[L + min(max(r, -L), L)] for r in range(M - 1, -N, -1)]
            np.testing.assert_array_equal(lib.host(R), lib.host(lib.array(want)))
    for wrong in (np.ones((4, 2)), np.ones(3)):
        with pytest.raises(ValueError, match="table must have"):
            offset_table(wrong, N, M)
    for wrong in ((0, M), (N, -1), (2.5, M), (N, None), (True, M)):
        with pytest.raises(ValueError, match="must be an integer"):
            offset_table(table, *wrong)


# --- the shift -----------------------

def test_rel_shift(lib):
    for N, M in SIZES:
        raw, = draw(1, (2, 3, N, N + M - 1))
        got, raw = (lib.host(X) for X in (rel_shift(lib.array(raw)), lib.array(raw)))
        for i, j in np.ndindex(N, M):
            column = M - 1 - offsets(N, M)[i, j]
            np.testing.assert_array_equal(got[..., i, j], raw[..., i, column])
    for wrong in (np.ones((3, 2)), np.ones(3), 1.0):
        with pytest.raises(ValueError, match="raw must have one column for each"):
            rel_shift(wrong)


def published_rel_shift(raw):
    """Dai et al.: a zero column on the left, the same numbers in rows of another length."""
    N, M = raw.shape
    return np.concatenate([np.zeros((N, 1)), raw], axis=1).reshape(M + 1, N)[1:].reshape(N, M)


@pytest.mark.parametrize("N, L", [(2, 0), (6, 0), (6, 3), (1, 4)])
def test_published_shift_is_right_behind_its_mask_only(N, L):
    """D23. The published relative shift is right for visible keys and arbitrary beyond."""
    np.testing.assert_array_equal(published_rel_shift(np.array([[1, 2], [3, 4]])), [[2, 0], [3, 4]])
    M = N + L
    raw, = draw(2, (N, N + M - 1))
    gap = abs(published_rel_shift(raw[:, :M]) - rel_shift(raw))
    assert gap[memory(N, L)].max() == 0.0
    assert N == 1 or gap[~memory(N, L)].min() > 0.0


# --- Transformer-XL -----------------------

def test_product_kernel_of_transformer_xl(lib):
    """S.14, S.15. Against loops over queries and keys.

    D20. S.14 keeps two of the four terms of S.16 and is one exponential kernel on a concatenation.
    """
    for N, M in SIZES:
        d, d_t = 4, 6
        q, k, W_R = draw(3, (2, N, d), (M, d), (d_t, d))
        R = sinusoids(N + M - 1, d_t, first=1 - N)[::-1] @ W_R
        want = np.zeros((2, N, M))
        for i in range(N):
            for j in range(M):
                want[:, i, j] = q[:, i] @ (sinusoid(offsets(N, M)[i, j], d_t) @ W_R) / math.sqrt(d)
        b = relative(lib.array(q), lib.array(R))
        close(b, want, lib, factor=300)     # sinusoids of up to 8 radians, sums of 24 terms
        # D20: one exponential kernel on [q, psi] and [k, t], at the scale of one half
        c = q @ W_R.T
        psi = lib.host(turned(lib.array(c), first=M - N))
        t = sinusoids(M, d_t)
        one = weights(np.concatenate([q, psi], axis=2), np.concatenate([k, t], axis=1),
                      scale=d ** 0.5)
        A = weights(lib.array(q), lib.array(k), log_factor=b)
        close(A, one, lib, factor=300)


def test_relative_kernel_is_not_symmetric():
    """D21. The position factor of S.14 need not be symmetric: it is if all queries have the same
    coefficients, of cosines alone.
    """
    t = np.array([[math.sin(a), math.cos(a)] for a in (math.pi / 2, 0, -math.pi / 2)])
    log_kappa = relative(np.array([[1.0, 0.0], [1.0, 0.0]]), t, scale=1.0)
    np.testing.assert_allclose(log_kappa, [[0, -1], [1, 0]], atol=1e-15)
    log_kappa = relative(np.array([[0.0, 1.0], [0.0, 1.0]]), t, scale=1.0)
    np.testing.assert_allclose(log_kappa, log_kappa.T, atol=1e-15)


def test_four_terms_of_transformer_xl():
    """S.16. The logit of Transformer-XL, (q + u)·k + (q + v)·R_{i−j}W_R. Source: code of Dai et al.
    2019.

    D20. Its exponential has four factors, and S.14 the first two.
    D22. The term u·k does not cancel.
    """
    N = 6
    q, k, R, u, v = draw(4, (N, 4), (N, 4), (2 * N - 1, 4), (4,), (4,))
    full = weights(q + u, k, log_factor=relative(q + v, R))
    a, c = q @ k.T / 2, np.tile(u @ k.T / 2, (N, 1))
    b, d = relative(q, R), relative(np.tile(v, (N, 1)), R)
    G = np.exp(a) * np.exp(b) * np.exp(c) * np.exp(d)
    np.testing.assert_allclose(full, G / G.sum(axis=1, keepdims=True), rtol=1e-13)
    # u makes a factor of the key and v one of the offset: neither cancels
    assert abs(weights(q, k, log_factor=relative(q + v, R)) - full).max() > 0.05
    assert abs(weights(q + u, k, log_factor=relative(q, R)) - full).max() > 0.05
    # q, k, u, v, R W_R = 1, 2, 3, 4, 5 on paper: 4 * 2 + 5 * 5
    assert float((1 + 3) * 2 + relative([[1.0 + 4.0]], [[5.0]])[0, 0]) == 2 + 5 + 6 + 20


def test_shifts_are_equivariant_with_offsets_and_a_window():
    """D30. A table of offsets with a window is equivariant to shifts, away from the start."""
    x, table, t = draw(5, (12, 4), (7, 4), (12, 4))

    def layer(x, t=0.0):
        R = offset_table(table, 12, 12)
        return attention(x + t, x, x, log_factor=relative(x, R), mask=window(12, 3))

    moved = np.roll(x, 2, axis=0)
    np.testing.assert_allclose(layer(moved)[5:], np.roll(layer(x), 2, axis=0)[5:], atol=1e-14)
    assert abs(layer(moved, t)[5:] - np.roll(layer(x, t), 2, axis=0)[5:]).max() > 0.1
    assert abs(layer(moved)[2:4] - np.roll(layer(x), 2, axis=0)[2:4]).max() > 0.1   # the start


# --- look-up tables -----------------------

def test_look_up_table(lib):
    """S.17. Against loops over queries and keys.

    D24. The key side of Shaw's table is a factor of the kernel.
    """
    for N, M in SIZES:
        L = 2
        q, k, table = draw(6, (2, N, 4), (2, M, 4), (2 * L + 1, 4))
        logits = np.zeros((2, N, M))
        for i in range(N):
            for j in range(M):
                a = table[L + min(max(offsets(N, M)[i, j], -L), L)]
                logits[:, i, j] = (np.sum(q[:, i] * k[:, j], axis=1) + q[:, i] @ a) / 2.0
        G = np.exp(logits)
        b = relative(lib.array(q), offset_table(lib.array(table), N, M))
        A = weights(lib.array(q), lib.array(k), log_factor=b)
        close(A, G / G.sum(axis=-1, keepdims=True), lib)


# --- absolute positions -----------------------

@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("N, d", [(3, 2), (9, 4), (20, 8)])
def test_product_of_symmetric_kernels(N, d, seed):
    """S.18. Two kernels multiplied, then normalised.

    D15. S.18 is one exponential kernel on the concatenation [fW_F, tW_T].
    D11. Products of positive semi-definite kernels are positive semi-definite.
    """
    f, W_F, W_T = draw(seed, (N, 5), (5, d), (6, d))
    F, T = f @ W_F, sinusoids(N, 6) @ W_T
    A = weights(F, F, log_factor=absolute(T, T))
    P = np.concatenate([F, T], axis=1)
    np.testing.assert_allclose(weights(P, P, scale=d ** 0.5), A, rtol=1e-12)
    G = np.exp((F @ F.T + T @ T.T) / d ** 0.5)
    np.testing.assert_allclose(G / G.sum(axis=1, keepdims=True), A, rtol=1e-12)
    assert abs(weights(P, P) - A).max() > 1e-3      # sqrt(2d), the default of [F, T], is another
    unit = G / np.sqrt(np.outer(np.diag(G), np.diag(G)))
    assert np.linalg.eigvalsh(unit).min() > -1e-13                         # valid: PSD


def test_concatenation_by_hand():
    # f = 1, t = 2: e^1 e^4 = e^5, against f = t = 0: e^0
    got = weights([[1.0]], [[1.0], [0.0]], log_factor=absolute([[2.0]], [[2.0], [0.0]], scale=1.0))
    np.testing.assert_allclose(got[0, 0] / got[0, 1], math.exp(5), rtol=1e-14)


def test_symmetric_product_is_absolute():
    """D17. S.18 is absolute, not relative, unless W_T W_Tᵀ is block-diagonal, a multiple of I for
    each frequency.
    """
    t = sinusoids(3, 2)
    kept = t[:, :1]             # W_T keeps sin i alone
    log_kappa = absolute(kept, kept)
    np.testing.assert_allclose([log_kappa[0, 1], log_kappa[1, 2]], [0.0, 0.765], atol=5e-4)
    t, far = sinusoids(9, 4), lambda T: np.abs(np.diff(np.diag(absolute(T, T), 1))).max()
    assert far(t * [2.0, 2.0, 3.0, 3.0]) < 1e-14    # a multiple for each frequency
    assert far(t * [2.0, 1.0, 3.0, 3.0]) > 0.1      # one frequency with two
    assert far(t @ np.kron([[1.0, 0.0], [0.6, 0.8]], np.eye(2))) > 0.1     # blocks I, not diagonal


def test_symmetric_kernel_has_no_previous_token_head():
    """D18. A positive semi-definite kernel that prefers the previous position by a margin m in
    every row needs κ(0, 0) ≥ e^{2mn} κ(n, n): none of offsets alone does, while the diagonal is
    visible. It binds the whole kernel, not a symmetric factor beside an asymmetric one.
    """
    rng = np.random.default_rng(7)
    t = sinusoids(24, 16)
    for _ in range(200):
        T = t @ rng.standard_normal((16, 4))
        S = absolute(T, T)
        margin = np.diag(S, -1) - np.diag(S)[1:]    # log kappa(i, i-1) - log kappa(i, i)
        assert margin.min() < 0.0                   # some row prefers itself
        bound = S[0, 0] - S[23, 23] - 2 * 23 * margin.min()
        assert bound >= -1e-10
    # two maps can: turn each frequency pair of the query back by one position
    S = absolute(turned(np.tile([0.0, 1.0], (24, 8)), first=-1), t)        # cos w_p (i - 1 - j)
    inner = S[1:, :]
    assert (inner.argmax(axis=1) == np.arange(23)).all()
    beside = 50.0 * S + absolute(T, T)              # a symmetric factor beside one of two maps
    assert (np.diag(beside, -1) > np.diag(beside)[1:]).all()


def test_additive_positions_are_a_product_of_four():
    """S.13. Additive position, κ(f + t, f′ + t′). Source: Tsai et al. 2019; Vaswani et al. 2017.

    D16. Additive position is a product of four exponential kernels.
    """
    f, t, g, s, W_q, W_k = draw(8, (5, 4), (5, 4), (6, 4), (6, 4), (4, 3), (4, 3))
    A = weights((f + t) @ W_q, (g + s) @ W_k)
    terms = [absolute(a @ W_q, b @ W_k) for a in (f, t) for b in (g, s)]
    np.testing.assert_allclose(weights(f @ W_q, g @ W_k, log_factor=sum(terms[1:])), A, rtol=1e-12)
    # the untied product (S.19) is the same without the two cross terms
    assert abs(weights(f @ W_q, g @ W_k, log_factor=terms[3]) - A).max() > 0.05
    assert 3 * 7 == 3 + 4 + 6 + 8                   # f, t, f', t' = 1, 2, 3, 4


def test_absolute(lib):
    """S.18. One pair of positions at a time."""
    for N, M in SIZES:
        t_q, t_k = draw(9, (2, N, 3), (M, 3))
        for scale in (None, 0.5):
            want = np.array([[[a @ b for b in t_k] for a in batch] for batch in t_q])
            got = absolute(lib.array(t_q), lib.array(t_k), scale=scale)
            close(got, want / (scale or 3 ** 0.5), lib)
    with pytest.raises(ValueError, match="t_q and t_k need the same number of columns"):
        absolute(np.ones((2, 3)), np.ones((2, 2)))
    with pytest.raises(ValueError, match="scale must be"):
        absolute(np.ones((2, 3)), np.ones((2, 3)), scale=0.0)
    with pytest.raises(ValueError, match="t_q and t_k need .* leading axes"):
        absolute(np.ones((2, 1, 3)), np.ones((3, 1, 3)))


def test_relative_and_turned_refuse():
    with pytest.raises(ValueError, match=r"R must have N \+ M - 1 rows, .* N = 3 or more, got 2"):
        relative(np.ones((3, 4)), np.ones((2, 4)))
    for R in (np.ones((5, 3)), np.ones(4)):
        with pytest.raises(ValueError, match=r"Q and R need the same number of columns.* \(3, 4\)"):
            relative(np.ones((3, 4)), R)
    with pytest.raises(ValueError, match="Q and R need .* leading axes"):
        relative(np.ones((2, 3, 4)), np.ones((3, 5, 4)))
    with pytest.raises(ValueError, match="C must have 2 axes"):
        turned(np.ones(4))
    with pytest.raises(ValueError, match="even integer"):
        turned(np.ones((2, 3)))


def test_padded_queries_may_hold_anything():
    q, R, k = draw(10, (3, 2), (5, 2), (3, 2))
    mask = np.array([[True] * 3, [False] * 3, [True] * 3])
    want = weights(q, k, log_factor=relative(q, R), mask=mask)
    for filler in (np.inf, 1e308, np.nan):              # inf - inf: no warning either
        q[1] = filler
        np.testing.assert_array_equal(weights(q, k, log_factor=relative(q, R), mask=mask), want)
    with pytest.raises(ValueError, match="must be finite"):
        weights(k, k, log_factor=relative(q, R))


# --- positions of today -----------------------

def test_rotary(lib):
    """S.42. A pair of columns as a complex number, one query and one key at a time.

    The product depends on i − j alone, and the turned keys weigh what the keys weigh.
    """
    for N, M in SIZES:
        q, k = draw(13, (2, N, 6), (2, M, 6))
        z_q, z_k = (X[..., 0::2] + 1j * X[..., 1::2] for X in (q, k))
        w, want = 10000.0 ** (-np.arange(3) / 3), np.zeros((2, N, M))
        for i, j in np.ndindex(N, M):
            turn = np.exp(1j * w * offsets(N, M)[i, j])
            want[:, i, j] = np.sum(z_q[:, i] * np.conj(z_k[:, j]) * turn, axis=-1).real
        Q, K = rotary(lib.array(q), first=M - N), rotary(lib.array(k))
        assert Q.shape == q.shape
        close(Q @ lib.xp.moveaxis(K, -1, -2), want, lib, factor=300)   # sums of 6 terms up to 4
        close(weights(Q, K), weights(q, k, log_factor=(want - q @ np.moveaxis(k, 1, 2)) / 6 ** 0.5),
              lib, factor=300)
        close(lib.xp.sum(K * K, axis=-1), np.sum(k ** 2, axis=-1), lib, factor=300)
    # <R_i q, R_j k> = <q, R_{j-i} k>
    q, k = draw(14, (1, 4), (1, 4))
    left = rotary(q, first=7) @ rotary(k, first=5).T
    np.testing.assert_allclose(left, q @ rotary(k, first=-2).T, rtol=1e-13)
    with pytest.raises(ValueError, match="even integer"):
        rotary(np.ones((2, 3)))


def test_alibi(lib):
    """S.43. One head, one query and one key at a time; 8 heads have the slopes 1/2, ..., 1/256."""
    for N, M in SIZES:
        for heads in (1, 8):
            want = [[[-2.0 ** (-8 * h / heads) * abs(r) for r in row] for row in offsets(N, M)]
                    for h in range(1, heads + 1)]
            close(alibi(heads, N, M, beside=lib.array([0.0])), want, lib)
    np.testing.assert_array_equal(-alibi(8, 2)[:, 1, 0], 0.5 ** np.arange(1, 9))
    # one-sided under the causal filter: as published, - m (i - j)
    Q, K = draw(15, (8, 5, 2), (8, 5, 2))
    published = 0.5 ** np.arange(1, 9)[:, None, None] * -offsets(5, 5)
    got, want = (weights(Q, K, log_factor=B, mask=causal(5)) for B in (alibi(8, 5), published))
    np.testing.assert_allclose(got, want, rtol=1e-13)
    with pytest.raises(ValueError, match="heads must be an integer, 1 or more"):
        alibi(0, 3)


def test_buckets(lib):
    """S.44. One offset at a time, in whole numbers: buckets of T5, exact and then logarithmic."""
    def bucket(r, n, far, one_sided):
        if not one_sided:
            return n // 2 * (r < 0) + bucket(abs(r), n // 2, far, True)
        r, exact = max(r, 0), n // 2
        if r < exact:
            return r
        grown = 0               # the largest k with (far / exact)^k <= (r / exact)^(n - exact)
        while (grown + 1 + exact < n and far ** (grown + 1) * exact ** (n - exact)
               <= r ** (n - exact) * exact ** (grown + 1)):
            grown += 1
        return exact + grown
    for n, far, one_sided in ((32, 128, False), (32, 128, True), (4, 2, False), (7, 20, True)):
        for N, M in (*SIZES, (2, 300)):
            table, = draw(16, (3, n))
            got = lib.host(bucketed(lib.array(table), N, M, far=far, causal=one_sided))
            index = [[bucket(int(r), n, far, one_sided) for r in row] for row in offsets(N, M)]
            assert got.shape == (3, N, M)
            np.testing.assert_allclose(got, table[:, index], rtol=1e-6 if "32" in lib.name else 0)
    assert bucket(128, 32, 128, True) == bucket(10 ** 6, 32, 128, True) == 31
    # a function of i - j and of nothing else
    q, k, table = draw(17, (5, 4), (5, 4), (32,))
    b, G = bucketed(table, 5, 5), np.exp(q @ k.T)
    np.testing.assert_array_equal(b[1:, 1:], b[:-1, :-1])
    np.testing.assert_allclose(weights(q, k, scale=1.0, log_factor=b),
                               G * np.exp(b) / np.sum(G * np.exp(b), axis=1, keepdims=True),
                               rtol=1e-13)
    for bad, options in ((3, {}), (2, {}), (5, {}), (1, {"causal": True}), (32, {"far": 8})):
        with pytest.raises(ValueError, match=f"table must have .* far .* got {bad} and"):
            bucketed(np.ones(bad), 2, 2, **options)


# --- derivatives -----------------------

@pytest.mark.parametrize("N, M", [(4, 4), (2, 5), (1, 3)])
def test_gradients_of_positions(N, M):
    f, g, W_q, W_k, W_R, table, W_T = draw(
        11, (2, N, 5), (2, M, 5), (5, 4), (5, 4), (6, 4), (5, 4), (6, 4))
    sines, t_q, t_k = (sinusoids(N + M - 1, 6, first=1 - N)[::-1],
                       sinusoids(N, 6, first=M - N), sinusoids(M, 6))
    smooth = lambda q, k, b: attention(q, k, g, log_factor=b, mask=causal(N, M))
    check_gradient(lambda W_q, W_k, W_R: smooth(
        f @ W_q, g @ W_k, relative(f @ W_q, sines @ W_R)), W_q, W_k, W_R)
    check_gradient(lambda W_q, W_k, table: smooth(
        f @ W_q, g @ W_k, relative(f @ W_q, offset_table(table, N, M))), W_q, W_k, table)
    check_gradient(lambda W_q, W_T: smooth(
        f @ W_q, g @ W_q, absolute(t_q @ W_T, t_k @ W_T)), W_q, W_T)
    check_gradient(lambda C: turned(C), f[..., :4])
    check_gradient(lambda Q: rotary(Q, first=2), f[..., :4])
    check_gradient(lambda b: bucketed(b, N, M, far=4, causal=True), table.T)
    learned, = draw(12, (N, 5))
    check_gradient(lambda t: smooth((f + t) @ W_q, g @ W_k, None), learned)
