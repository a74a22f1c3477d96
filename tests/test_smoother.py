"""The smoother against loops over its definition, SciPy, and filters made by leaving keys out."""
import functools
import itertools
import math
import tracemalloc
import warnings

import array_api_strict as strict
import autograd.numpy as anp
import numpy as np
import pytest
from autograd import grad
from conftest import assert_gradient
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax

from ksvd_ref import kernels
from ksvd_ref.attention.filters import causal, memory, window
from ksvd_ref.attention.smoother import (attention, linear_attention, merge_heads, multi_head,
                                         split_heads, weights)
from ksvd_ref.linalg import unit_rows


def close(got, want, lib=None, factor=100):
    """Sums of at most 300 terms of order 1: 100 eps. The library and the dtype have not changed."""
    eps = factor * float(np.finfo(lib.name if lib else np.float64).eps)
    np.testing.assert_allclose(lib.host(got) if lib else got, want, rtol=eps, atol=eps)


KAPPA = {       # the definitions, of two points
    "exponential": lambda q, k, scale=None: math.exp(q @ k / (scale or math.sqrt(len(q)))),
    "rbf": lambda q, k, gamma=1.0: math.exp(-gamma * sum((q - k) ** 2)),
    "linear": lambda q, k: q @ k,
    "polynomial": lambda q, k, degree=2, gamma=1.0, coef0=1.0: (gamma * (q @ k) + coef0) ** degree,
}
CASES = [("exponential", {}), ("exponential", {"scale": 0.7}), ("rbf", {}), ("rbf", {"gamma": 0.3}),
         ("linear", {}), ("polynomial", {}), ("polynomial", {"coef0": 0.0}),
         ("polynomial", {"degree": 3, "gamma": 0.5, "coef0": 2.0})]
NAMED = pytest.mark.parametrize("kernel", ["exponential", "rbf", "linear", "polynomial"])


def by_definition(kappa, Q, K, V, mask=None, log_factor=None):
    """Sums of Python floats over the visible keys; zeros without any."""
    lead = np.broadcast_shapes(Q.shape[:-2], K.shape[:-2], V.shape[:-2],
                               *(B.shape[:-2] for B in (mask, log_factor) if B is not None))
    N, M = Q.shape[-2], K.shape[-2]
    full = lambda X: np.broadcast_to(X, (*lead, *X.shape[-2:]))
    pair = lambda X, one: np.broadcast_to(one if X is None else X, (*lead, N, M))
    mask = mask[None, :] if mask is not None and mask.ndim == 1 else mask
    Q, K, V, mask, log_factor = full(Q), full(K), full(V), pair(mask, True), pair(log_factor, 0.0)
    O = np.zeros((*lead, N, V.shape[-1]))
    for at in np.ndindex(*lead, N):
        *batch, i = at
        g = [kappa(Q[at], K[(*batch, j)]) * math.exp(log_factor[(*at, j)])
             for j in range(M) if mask[(*at, j)]]
        v = [V[(*batch, j)] for j in range(M) if mask[(*at, j)]]
        if g:
            O[at] = [math.fsum(w * x[c] for w, x in zip(g, v)) / math.fsum(g)
                     for c in range(V.shape[-1])]
    return O


def positive(rng, *shape):
    """In (0.2, 1.2): no kernel is negative, no weight is large, float32 loses nothing."""
    return 0.2 + rng.random(shape)


def some_masks(N, M):
    rng = np.random.default_rng(N + 10 * M)
    return {"none": None, "causal": causal(N, M), "padding": rng.random((2, 1, 1, M)) < 0.6,
            "last key": np.arange(M) == M - 1, "window": window(N, 2, M=M),
            "any": rng.random((2, 3, N, M)) < 0.5}


# --- the definition -----------------------

@functools.cache        # the loops run once, not once for each library
def smoothed_by_definition(case, N, M):
    rng = np.random.default_rng(N + 7 * M)
    Q, K = positive(rng, 2, 3, N, 4), positive(rng, 2, 3, M, 4)
    V, log_factor = rng.standard_normal((2, 3, M, 2)), rng.standard_normal((3, N, M))
    kappa = lambda q, k: KAPPA[CASES[case][0]](q, k, **CASES[case][1])
    want = [(mask, extra, by_definition(kappa, Q, K, V, mask, extra))
            for mask in some_masks(N, M).values() for extra in (None, log_factor)]
    return (Q, K, V), want


@pytest.mark.parametrize("case", range(len(CASES)), ids=map(str, CASES))
def test_attention(lib, case):
    """S.2. Against the definition, one query at a time, for every kernel, factor and filter.

    Every shape in float64; what float32 changes does not depend on the shape.
    """
    kernel, parameters = CASES[case]
    shapes = ((3, 6), (1, 1), (5, 5), (6, 3), (1, 4), (4, 1))
    for N, M in shapes[:6 if lib.name == "float64" else 2]:
        arrays, table = smoothed_by_definition(case, N, M)
        for mask, extra, want in table:
            got = attention(*map(lib.array, arrays), kernel=kernel, mask=mask,
                            log_factor=None if extra is None else lib.array(extra), **parameters)
            close(got, want, lib)


@pytest.mark.parametrize("leads", [((), (), ()), ((2,), (), ()), ((), (2,), ()), ((), (), (2,)),
                                   ((2, 1), (3,), (1, 1)), ((2, 3), (1, 3), (3,))])
@NAMED
def test_leading_axes_broadcast(kernel, leads):
    rng = np.random.default_rng(0)
    Q, K, V = (positive(rng, *lead, n, 3) for lead, n in zip(leads, (4, 5, 5)))
    for mask in (None, causal(4, 5), rng.random((3, 4, 5)) < 0.6, rng.random((2, 1, 1, 5)) < 0.6):
        try:
            want = by_definition(KAPPA[kernel], Q, K, V, mask)
        except ValueError:          # (2,) against the (3,) of a mask: no broadcast
            with pytest.raises(ValueError, match="broadcast|leading"):
                attention(Q, K, V, kernel=kernel, mask=mask)
            continue
        close(attention(Q, K, V, kernel=kernel, mask=mask), want)


def test_weights_are_a_stochastic_matrix():
    """S.3. By hand, and as a matrix that averages.

    D2. Weights ≥ 0 that sum to 1: outputs lie between the smallest and the largest visible value.
    """
    rng = np.random.default_rng(1)
    Q, K, V = rng.standard_normal((20, 4)), rng.standard_normal((20, 4)), rng.standard_normal(20)
    for kernel in ("exponential", "rbf", "polynomial"):
        A = weights(Q, K, kernel=kernel, mask=causal(20))
        assert A.min() >= 0.0 and A[np.triu_indices(20, 1)].max() == 0.0
        np.testing.assert_allclose(A.sum(axis=1), 1.0, rtol=1e-14)         # 20 roundings
        O = attention(Q, K, V[:, None], kernel=kernel, mask=causal(20))[:, 0]
        for i in range(20):
            assert V[:i+1].min() - 1e-14 <= O[i] <= V[:i+1].max() + 1e-14
    A = weights([[1.0], [0.0]], [[math.log(2)], [0.0]])                    # G = [[2, 1], [1, 1]]
    np.testing.assert_allclose(np.sort(np.linalg.eigvals(A)), [1 / 6, 1], rtol=1e-14)


@pytest.mark.parametrize("size", [1e-2, 1.0, 1e2, 1e4])
def test_softmax_attention_is_the_exponential_smoother(size):
    """D1. Softmax attention is the smoother S.2 with the kernel S.6; the mask multiplies the
    kernel, not the logits.
    """
    rng = np.random.default_rng(2)
    Q, K = size * rng.standard_normal((9, 5)), rng.standard_normal((7, 5))
    want = softmax(Q @ K.T / math.sqrt(5), axis=1)
    # a score of 1e4 carries a rounding of 1e-12, and so do the logarithms of the weights
    np.testing.assert_allclose(weights(Q, K), want, rtol=1e-14 * max(size, 1) * 30, atol=1e-300)
    np.testing.assert_allclose(weights(Q, K), kernels.softmax(Q, K), rtol=1e-15 * max(size, 1) * 30,
                               atol=1e-300)


@NAMED
def test_a_function_as_kernel(kernel):
    rng = np.random.default_rng(3)
    Q, K, V = positive(rng, 4, 3), positive(rng, 5, 3), rng.standard_normal((5, 2))
    for mask in (None, causal(4, 5)):
        want = attention(Q, K, V, kernel=kernel, mask=mask)
        for function in (getattr(kernels, kernel), lambda Q, K: kernels.gram(KAPPA[kernel], Q, K)):
            close(attention(Q, K, V, kernel=function, mask=mask), want)
    want = attention(Q, K, V, kernel="rbf", gamma=0.3)
    close(attention(Q, K, V, kernel=kernels.rbf, gamma=0.3), want)


def test_kernel_reaches_past_the_names():
    """D29. A causal filter alone can tell the absolute position.

    D28, D29. By hand, with equal weights.
    """
    uniform = lambda Q, K: np.ones((Q.shape[-2], K.shape[-2]))
    # D29: the causal filter alone gives absolute position
    flag = np.eye(4)[:, :1]
    np.testing.assert_allclose(attention(flag, flag, flag, kernel=uniform, mask=causal(4))[:, 0],
                               [1, 1 / 2, 1 / 3, 1 / 4], rtol=1e-15)
    # D28: (a + b + c) / 3 after one layer, (11 a + 5 b + 2 c) / 18 after two
    A = weights(flag, flag, kernel=uniform, mask=causal(4))[:3, :3]
    np.testing.assert_allclose((A @ A)[2, :], [11 / 18, 5 / 18, 2 / 18], rtol=1e-15)


# --- filters -----------------------

@pytest.mark.parametrize("kernel", ["exponential", "rbf", "polynomial", "features"])
def test_every_filter_is_leaving_keys_out(kernel):
    """All 512 masks of three queries and three keys, in one call, against fewer keys."""
    rng = np.random.default_rng(4)
    Q, K, V = rng.standard_normal((3, 2)), rng.standard_normal((3, 2)), rng.standard_normal((3, 2))
    smooth = (linear_attention if kernel == "features"
              else lambda *arrays, **mask: attention(*arrays, kernel=kernel, **mask))
    masks = np.array(list(itertools.product([False, True], repeat=9))).reshape(512, 3, 3)
    want = np.zeros((512, 3, 2))
    for n, i in itertools.product(range(512), range(3)):
        if masks[n, i].any():
            want[n, i] = smooth(Q[i:i+1], K[masks[n, i]], V[masks[n, i]])[0]
    close(smooth(Q, K, V, mask=masks), want)


def test_mask_multiplies_the_kernel_not_the_logits():
    """D1. By hand: a hidden third key, and what a logit of 0 would give it."""
    Q, K = [[1.0]], [[1.0], [2.0], [3.0]]
    A = weights(Q, K, mask=[True, True, False])[0]
    np.testing.assert_allclose(A, [0.269, 0.731, 0.0], atol=5e-4)          # three digits on paper
    assert A[2] == 0.0
    np.testing.assert_allclose(softmax([1.0, 2.0, 0.0]), [0.245, 0.665, 0.090], atol=5e-4)


# --- attentions of today: each is one line -----------------------

def test_grouped_heads(lib):
    """S.45. Groups of heads share keys and values, and one head for all does: broadcasting.

    Source: Shazeer 2019; Ainslie et al. 2023.
    """
    rng = np.random.default_rng(22)
    for groups in (1, 2, 6):
        Q, K, V = (rng.standard_normal(shape) for shape in ((2, 6, 3, 4), (2, groups, 5, 4),
                                                            (2, groups, 5, 2)))
        want = np.stack([[attention(Q[b, h], K[b, h * groups // 6], V[b, h * groups // 6])
                          for h in range(6)] for b in range(2)])
        grouped = lib.xp.reshape(lib.array(Q), (2, groups, -1, 3, 4))
        K, V = (lib.array(X)[:, :, None, :, :] for X in (K, V))
        close(lib.xp.reshape(attention(grouped, K, V), want.shape), want, lib)


@pytest.mark.parametrize("mask", [None, [True] * 399 + [False]])
def test_grouped_heads_share_without_a_copy(mask):
    """32 heads of one query each: keys and values are larger than all else, and are not copied."""
    rng = np.random.default_rng(23)
    Q, K, V = (rng.standard_normal(shape) for shape in ((32, 1, 64), (400, 64), (400, 64)))
    tracemalloc.start()
    attention(Q, K, V, mask=mask)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5 * K.nbytes, peak / K.nbytes     # a copy for each head: 32 times


def test_a_sink_is_one_more_key():
    """S.46. Softmax plus one, e^{l_i}/(1 + Σ_j e^{l_j}): a key 0, of kernel value 1, value 0.

    Its weights sum to less than 1: the missing part is that of the sink. As a key of the past it
    passes a causal filter. Source: Miller 2023.
    """
    rng = np.random.default_rng(24)
    Q, K, V = (rng.standard_normal((5, 3)) for _ in range(3))
    sunk = lambda X: np.concatenate([np.zeros((1, 3)), X])
    for mask, B in ((None, np.ones((5, 5))), (memory(5, 1), causal(5))):
        A, O = np.zeros((5, 5)), np.zeros((5, 3))
        for i in range(5):
            g = [B[i, j] * math.exp(Q[i] @ K[j] / math.sqrt(3)) for j in range(5)]
            A[i] = np.array(g) / (1.0 + math.fsum(g))
            O[i] = sum(a * v for a, v in zip(A[i], V))
        close(weights(Q, sunk(K), mask=mask)[:, 1:], A)
        close(attention(Q, sunk(K), sunk(V), mask=mask), O)
        assert np.all(A.sum(axis=1) < 1.0)


def test_unit_queries_and_keys():
    """S.47. QK-norm: with rows of length 1 and a scale, the exponential kernel and rbf agree.

    Source: Henry et al. 2020.
    """
    rng = np.random.default_rng(25)
    Q, K = rng.standard_normal((5, 3)), rng.standard_normal((7, 3))
    G = np.array([[math.exp(9.0 * (q @ k) / math.sqrt((q @ q) * (k @ k))) for k in K] for q in Q])
    unit = unit_rows(Q), unit_rows(K)
    A = weights(*unit, scale=1 / 9)
    close(A, G / G.sum(axis=1, keepdims=True), factor=1000)     # of logits up to 9
    close(weights(*unit, kernel="rbf", gamma=9 / 2), A, factor=1000)
    assert abs(weights(Q, K, kernel="rbf", gamma=9 / 2) - weights(Q, K, scale=1 / 9)).max() > 0.1


def test_differential_attention_is_no_smoother():
    """S.48. A₁ − cA₂, a difference of two smoothers: its rows sum to 1 − c, and it has negative
    weights, so it leaves the range of the values. Source: Ye et al. 2024.
    """
    rng = np.random.default_rng(26)
    q_1, k_1, q_2, k_2 = 2.0 * rng.standard_normal((4, 6, 3))
    V, lam = rng.standard_normal((6, 2)), 0.8
    A = np.zeros((6, 6))
    for q, k, sign in ((q_1, k_1, 1.0), (q_2, k_2, -lam)):
        for i in range(6):
            g = [math.exp(q[i] @ k[j] / math.sqrt(3)) for j in range(6)]
            A[i] += sign * np.array(g) / math.fsum(g)
    close(attention(q_1, k_1, V) - lam * attention(q_2, k_2, V), A @ V)
    np.testing.assert_allclose(A.sum(axis=1), 1.0 - lam, rtol=1e-13)
    assert A.min() < -0.1
    A = A / (1.0 - lam)                             # nor does dividing make an average of it
    assert np.any((A @ V < V.min(axis=0)) | (A @ V > V.max(axis=0)))


# --- three problems that users of other libraries reported, each with its kind ---

SMOOTHERS = {kernel: functools.partial(attention, kernel=kernel)
             for kernel in ("exponential", "rbf", "linear", "polynomial")}
SMOOTHERS["function"] = functools.partial(
    attention, kernel=lambda Q, K: 1.0 + (Q @ anp.moveaxis(K, -1, -2)) ** 2)
SMOOTHERS["features"] = linear_attention
EACH = pytest.mark.parametrize("smooth", SMOOTHERS.values(), ids=SMOOTHERS)


def test_fully_masked_row_as_reported(lib):
    """tracel-ai/burn#4694, pytorch/pytorch#103963: minus infinity minus minus infinity."""
    Q, K, V = ([[1, 0], [0, 1], [1, 1]], [[1, 0], [0, 1]], [[1, 2], [3, 4]])
    mask = np.array([[True, True], [False, False], [True, False]])
    arrays = [lib.array(X) for X in (Q, K, V)]
    want = [[1.6604769014, 2.6604769014], [0, 0], [1, 2]]
    np.testing.assert_allclose(lib.host(attention(*arrays, mask=mask)), want, rtol=1e-6)
    O = lib.host(linear_attention(*arrays, mask=mask))
    np.testing.assert_allclose(O[2], [1, 2], rtol=1e-6)
    assert (O[1] == 0.0).all() and np.isfinite(O).all()


@EACH
def test_a_row_that_sees_nothing_is_zero(smooth):
    rng = np.random.default_rng(5)
    Q, K = positive(rng, 2, 3, 4, 3), positive(rng, 2, 3, 5, 3)
    V = rng.standard_normal((2, 3, 5, 2))
    O = smooth(Q, K, V)
    for blind in itertools.product([False, True], repeat=4):               # every set of rows
        blind = np.array(blind)
        mask = np.broadcast_to(~blind[:, None], (4, 5))
        got = smooth(Q, K, V, mask=mask)
        assert (got[:, :, blind] == 0.0).all()
        close(got[:, :, ~blind], O[:, :, ~blind])
    assert (smooth(Q, K, V, mask=np.zeros((4, 5), bool)) == 0.0).all()
    assert (smooth(Q, K, V, mask=np.zeros(5, bool)) == 0.0).all()          # all keys are padding
    Q[:, :, 1, :] = np.nan                                                 # a padded query
    mask = np.ones((4, 5), bool)
    mask[1] = False
    close(smooth(Q, K, V, mask=mask)[:, :, [0, 2, 3]], O[:, :, [0, 2, 3]])


@EACH
@pytest.mark.parametrize("filler", [0.0, 7.0, -1e4, 1e30, np.inf, -np.inf, np.nan])
def test_hidden_keys_count_nowhere(smooth, filler):
    """Values, weights and derivatives are those without the keys, whatever padding holds."""
    rng = np.random.default_rng(6)
    Q, K = positive(rng, 2, 2, 4, 3), positive(rng, 2, 2, 6, 3)
    V = rng.standard_normal((2, 2, 6, 2))
    K[..., 4:, :], V[..., 4:, :] = filler, filler
    padding = np.arange(6) < 4
    for mask in (padding, np.broadcast_to(padding, (2, 1, 1, 6)), padding & causal(4, 6)):
        short = mask[:, :4] if mask.ndim == 2 else None
        close(smooth(Q, K, V, mask=mask), smooth(Q, K[..., :4, :], V[..., :4, :], mask=short))
        loss = lambda Q, K, V: anp.sum(anp.sin(smooth(Q, K, V, mask=mask)))
        less = lambda Q, K, V: anp.sum(anp.sin(smooth(Q, K, V, mask=short)))
        for n in range(3):
            g = grad(loss, n)(Q, K, V)
            g_less = grad(less, n)(Q, K[..., :4, :], V[..., :4, :])
            if n == 0:
                close(g, g_less)
            else:
                close(g[..., :4, :], g_less)
                assert (g[..., 4:, :] == 0.0).all()


def test_linear_padding_in_denominator_as_reported(lib):
    """fla-org/flash-linear-attention#1263: elu(0) + 1 is 1, so zeroed keys still count."""
    Q, K, V = [[0.0]], [[0.0], [0.0], [5.0]], [[2.0], [4.0], [100.0]]
    O = linear_attention(*map(lib.array, (Q, K, V)), mask=[True, True, False])
    assert float(O[0, 0]) == 3.0


@EACH
def test_garbage_above_the_diagonal(smooth):
    """Each query of a causal smoother equals the last query of a shorter sequence; the keys after
    it may hold what they like as long as no earlier query is asked about them."""
    rng = np.random.default_rng(7)
    Q, K, V = positive(rng, 5, 3), positive(rng, 5, 3), rng.standard_normal((5, 2))
    O = smooth(Q, K, V, mask=causal(5))
    for i in range(5):
        close(O[i:i+1], smooth(Q[i:i+1], K[:i+1], V[:i+1]))
    K[3:], V[3:] = np.nan, np.nan
    close(smooth(Q[:3], K, V, mask=causal(5)[:3]), O[:3])


def test_softmax_large_scores_as_reported(lib):
    """tenstorrent/tt-metal#12661, NVIDIA/FasterTransformer#43: exp(900) overflows."""
    O = attention(lib.array([[90.0]]), lib.array([[10.0], [10.02]]), lib.array([[0.0], [1.0]]))
    # the two scores, about 900, are rounded by the input and the product
    rtol = 1e-9 if lib.name == "float64" else 2e-4
    np.testing.assert_allclose(float(O[0, 0]), 1 / (1 + math.exp(-1.8)), rtol=rtol)


@pytest.mark.parametrize("score", [1e3, 1e4, -1e3, -1e4])
def test_large_scores(lib, score):
    """Scores of 1e4 that differ by 1 and 2, exact in float32: of content, position, distance."""
    want = np.array([[0.0, 1.0, 2.0]])
    want = np.exp(want) / np.exp(want).sum()
    shift = np.array([[score], [score + 1], [score + 2]])
    got = weights(lib.array([[1.0]]), lib.array(shift))
    close(got, want, lib)
    zero = lib.array(np.zeros((3, 1)))
    close(weights(zero[:1, :], zero, log_factor=lib.array(shift.T)), want, lib)
    for kernel in ("linear", "polynomial"):
        got = weights(zero[:1, :] + 1.0, zero + 1.0, kernel=kernel, log_factor=lib.array(shift.T))
        close(got, want, lib)
    # rbf: squared distances of s^2 + (0, 1, 2), with the common part on its own axis
    keys = np.array([[abs(score) ** 0.5 // 1, 2.0 ** 0.5], [abs(score) ** 0.5 // 1, 1.0],
                     [abs(score) ** 0.5 // 1, 0.0]])
    got = weights(lib.array([[0.0, 0.0]]), lib.array(keys), kernel="rbf")
    # sqrt(2)^2 = 2 only to rounding, beside a square of up to 1e4
    close(got, want, lib, factor=3e4)


def test_maximum_is_over_visible_keys_only():
    A = weights([[1.0]], [[0.0], [0.0], [800.0]], mask=[True, True, False])
    np.testing.assert_array_equal(A, [[0.5, 0.5, 0.0]])
    for kernel in ("linear", "polynomial"):
        A = weights([[1.0]], [[1.0], [1.0], [1.0]], kernel=kernel, mask=[True, True, False],
                    log_factor=[[0.0, 0.0, 800.0]])
        np.testing.assert_array_equal(A, [[0.5, 0.5, 0.0]])
        A = weights([[1.0]], [[1.0], [1.0], [1.0]], kernel=kernel, mask=[True, True, False],
                    log_factor=[[-800.0, -800.0, 0.0]])
        np.testing.assert_array_equal(A, [[0.5, 0.5, 0.0]])


def test_minus_1e9_is_not_minus_infinity():
    A = weights([[1.0]], [[-1e12], [-1e12], [0.0]], mask=[True, True, False])
    np.testing.assert_array_equal(A, [[0.5, 0.5, 0.0]])
    A = weights([[0.0]], [[1e6], [1e6], [0.0]], kernel="rbf", mask=[True, True, False])
    np.testing.assert_array_equal(A, [[0.5, 0.5, 0.0]])


@pytest.mark.parametrize("shift", [-1e4, -104.0, 0.0, 1e4])
def test_features_that_are_tiny_or_large(lib, shift):
    """phi(x + c) = e^c phi(x) for negative x: one factor for a query or for all keys cancels."""
    rng = np.random.default_rng(8)
    q, K, V = -rng.random((2, 3)), -rng.random((5, 3)), rng.standard_normal((5, 2))
    if shift <= 0:
        want = linear_attention(q, K, V)
        got = linear_attention(*map(lib.array, (q + shift, K + shift, V)))
        # x + shift keeps an absolute rounding of eps |shift| in float32 and float64 alike
        close(got, want, lib, factor=20 + 4 * abs(shift))
    else:
        phi = lambda x: 1.0 + x + shift
        G = phi(q) @ phi(K).T
        close(linear_attention(*map(lib.array, (q + shift, K + shift, V))),
              G @ V / G.sum(axis=1, keepdims=True), lib)


def test_rbf_far_from_the_origin(lib):
    """Clusters 1000 from 0: |q|^2 + |k|^2 - 2<q, k> gives 0 for all distances in float32."""
    Q, K = [[1000.0, 0.0]], [[1000.25, 0.0], [1000.0, 0.5], [1000.0, 0.0]]
    want = np.exp([[-1 / 16, -1 / 4, 0.0]])
    close(weights(lib.array(Q), lib.array(K), kernel="rbf"), want / want.sum(), lib)


# --- linear and polynomial: what is no smoother -----------------------

def test_linear_kernel_is_not_a_smoother():
    """D8. The linear kernel is no smoother: its normaliser can vanish or be negative."""
    with pytest.raises(ValueError, match="linear kernel vanishes in 1 of 1 rows"):
        attention([[1.0]], [[1.0], [-1.0]], [[1.0], [2.0]], kernel="linear")
    with pytest.warns(UserWarning, match="1 negative weights of 2, the least -999"):
        A = weights([[1.0]], [[1.0], [-0.999]], kernel="linear")
    np.testing.assert_allclose(A, [[1000, -999]], rtol=1e-12)              # 1 - 0.999: 1e-16 / 1e-3
    with pytest.warns(UserWarning, match="no average"):                    # Z < 0, A > 0 and < 0
        weights([[1.0]], [[1.0], [-3.0]], kernel="linear")
    with pytest.warns(UserWarning, match="this kernel gave 2 negative"):
        weights([[1.0]], [[1.0], [2.0], [-1.0], [-1.0]], kernel=lambda Q, K: Q @ K.T)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # all kernel values negative: the weights are positive again
        np.testing.assert_allclose(weights([[-1.0]], [[1.0], [3.0]], kernel="linear"),
                                   [[0.25, 0.75]], rtol=1e-15)
        # a hidden key cannot offend
        weights([[1.0]], [[1.0], [-1.0]], kernel="linear", mask=[True, False])


def test_normaliser_vanishes_up_to_rounding():
    # 0.1 + 0.2 - 0.3 is 5.6e-17, not 0: weights of 1e15 would pass for numbers
    with pytest.raises(ValueError, match="vanishes in 1 of 2 rows"):
        weights([[1.0], [0.0 + 1.0]], [[0.1], [0.2], [-0.3]], kernel="linear",
                mask=[[True, True, True], [True, False, False]])


def test_linear_kernel_by_chance():
    """D8. Ten Gaussian keys in four dimensions: half of the normalisers are negative."""
    rng = np.random.default_rng(9)
    Q, K = rng.standard_normal((2000, 1, 4)), rng.standard_normal((2000, 10, 4))
    with pytest.warns(UserWarning, match="negative"):
        A = weights(Q, K, kernel="linear")
    G = Q @ np.moveaxis(K, 1, 2)
    assert 0.45 < (G.sum(axis=2) < 0).mean() < 0.55                        # 0.5 +- 4.5 s.d.
    assert (A.min(axis=2) < 0).mean() > 0.99
    assert 0.03 < (abs(A).max(axis=2) > 10).mean() < 0.06                  # 0.044 +- 3 s.d.


def test_polynomial_kernel_is_blind_to_signs():
    """D9. The homogeneous polynomial kernel of degree 2 is blind to the sign."""
    np.testing.assert_array_equal(
        weights([[1.0]], [[1.0], [-1.0]], kernel="polynomial", coef0=0.0), [[0.5, 0.5]])
    with pytest.raises(ValueError, match="polynomial kernel vanishes"):
        weights([[1.0, 0.0]], [[0.0, 1.0], [0.0, -1.0]], kernel="polynomial", coef0=0.0)
    np.testing.assert_array_equal(
        weights([[1.0]], [[1.0], [-1.0]], kernel="polynomial"), [[1.0, 0.0]])       # 4 and 0
    with pytest.warns(UserWarning, match="polynomial"):
        weights([[1.0]], [[3.0], [-1.0]], kernel="polynomial", degree=3, coef0=0.0)


def test_guard():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        A = weights([[1.0]], [[1.0], [-1.0]], kernel="linear", guard=1e-3)          # +- 1 / 0.001
        np.testing.assert_allclose(A, [[1e3, -1e3]], rtol=1e-12)
        A = weights([[1.0]], [[1.0], [-3.0]], kernel="linear", guard=0.5)           # Z = -2 - 0.5
        np.testing.assert_allclose(A, [[-0.4, 1.2]], rtol=1e-15)
        A = weights([[1.0, 0.0]], [[0.0, 1.0]], kernel="polynomial", coef0=0.0, guard=1e-6)
        np.testing.assert_array_equal(A, [[0.0]])
        A = weights([[1.0]], [[1.0], [2.0]], kernel="linear", guard=1.0, mask=[False, False])
        np.testing.assert_array_equal(A, [[0.0, 0.0]])
    # a constant in the denominator is not scale-free: 1/3, 1/3 instead of halves
    np.testing.assert_allclose(weights([[1e-3]], [[1.0], [1.0]], kernel="polynomial", coef0=0.0,
                                       guard=1e-6), [[1 / 3, 1 / 3]], rtol=1e-14)


# --- identities of the exponential and the Gaussian kernel -----------------------

@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("d", [1, 4, 17])
def test_exponential_is_rbf_with_key_weights(d, seed):
    """D4. Exponential attention is rbf attention with key weights e^{‖k‖²/2}.

    D5. Exponential and rbf attention agree for all queries if and only if all keys have one norm.
    D6. rbf without ½ doubles the logits and adds a bias of the key.
    """
    rng = np.random.default_rng(seed)
    Q, K = rng.standard_normal((6, d)), rng.standard_normal((5, d))
    key = lambda factor: factor * (K ** 2).sum(axis=1)[None, :]
    exponential = weights(Q, K, scale=1.0)
    close(weights(Q, K, kernel="rbf", gamma=0.5, log_factor=key(0.5)), exponential)
    assert abs(weights(Q, K, kernel="rbf", gamma=0.5) - exponential).max() > 1e-2
    # one norm for all keys: then they agree, for queries of any norm
    K = K / np.sqrt((K ** 2).sum(axis=1, keepdims=True))
    close(weights(Q, K, kernel="rbf", gamma=0.5), weights(Q, K, scale=1.0))
    # without the 1/2 the scores are doubled
    gamma = d ** -0.5
    close(weights(Q, K, kernel="rbf", gamma=gamma), weights(2 * Q, K))


def test_exponential_and_rbf_by_hand():
    """D4, D5, D6. By hand."""
    K = [[0.0], [math.sqrt(2 * math.log(2))]]
    np.testing.assert_allclose(weights([[0.0]], K), [[1 / 2, 1 / 2]], rtol=1e-15)
    np.testing.assert_allclose(weights([[0.0]], K, kernel="rbf", gamma=0.5), [[2 / 3, 1 / 3]],
                               rtol=1e-14)
    q, K = [[0.5 * math.log(2)]], [[1.0], [-1.0]]
    np.testing.assert_allclose(weights(q, K), [[2 / 3, 1 / 3]], rtol=1e-14)
    np.testing.assert_allclose(weights(q, K, kernel="rbf", gamma=0.5), [[2 / 3, 1 / 3]], rtol=1e-14)
    np.testing.assert_allclose(weights(q, K, kernel="rbf"), [[4 / 5, 1 / 5]], rtol=1e-14)


@NAMED
def test_query_factors_cancel_key_factors_do_not(kernel):
    """D7. A factor of the query cancels, a factor of the key stays."""
    rng = np.random.default_rng(10)
    Q, K = positive(rng, 6, 3), positive(rng, 5, 3)
    A = weights(Q, K, kernel=kernel)
    query, key = rng.standard_normal((6, 1)), rng.standard_normal((1, 5))
    close(weights(Q, K, kernel=kernel, log_factor=query), A)
    assert abs(weights(Q, K, kernel=kernel, log_factor=key) - A).max() > 0.05


# --- order -----------------------

@settings(max_examples=40, deadline=None)
@given(st.permutations(range(6)), st.integers(0, 2 ** 36 - 1),
       st.sampled_from(["exponential", "rbf", "polynomial", "features"]))
def test_permutations(order, bits, kernel):
    """S.29. Joint equivariance: permuting input and filter permutes the output.

    D26. Attention without position and filter is equivariant to order, at any depth.
    """
    rng = np.random.default_rng(11)
    X = rng.standard_normal((6, 3))
    W = rng.standard_normal((3, 3, 3))

    def layer(X, mask=None):
        arrays = X @ W[0], X @ W[1], X @ W[2]
        if kernel == "features":
            return linear_attention(*arrays, mask=mask)
        return attention(*arrays, kernel=kernel, mask=mask)

    order = list(order)
    mask = np.array([bits >> n & 1 for n in range(36)], bool).reshape(6, 6)
    close(layer(layer(X[order])), layer(layer(X))[order], factor=1e4)   # one feeds the other
    close(layer(X[order], mask[np.ix_(order, order)]), layer(X, mask)[order], factor=1e4)


def test_causal_filter_is_not_equivariant():
    """D28. One causal layer without position does not see the order of what came before.

    D27, D28. Two layers do, and one is not equivariant.
    """
    rng = np.random.default_rng(12)
    X, order = rng.standard_normal((7, 4)), [3, 1, 4, 0, 5, 2, 6]          # the last one stays
    layer = lambda X: attention(X, X, X, mask=causal(7))
    assert abs(layer(X[order]) - layer(X)[order]).max() > 0.1
    # one layer is blind to the order of the prefix, two are not
    close(layer(X[order])[-1], layer(X)[-1])
    assert abs(layer(layer(X[order]))[-1] - layer(layer(X))[-1]).max() > 0.01


def test_four_masks_are_equivariant():
    """D27. Causal attention is not equivariant to order; only four fixed filters are."""
    X = np.random.default_rng(13).standard_normal((3, 2))
    masks = np.array(list(itertools.product([False, True], repeat=9))).reshape(512, 3, 3)
    O = attention(X, X, X, mask=masks)
    fair = np.ones(512, bool)
    for order in itertools.permutations(range(3)):
        order = list(order)
        gap = abs(attention(X[order], X[order], X[order], mask=masks) - O[:, order])
        fair &= gap.max(axis=(1, 2)) < 1e-12
    eye = np.eye(3, dtype=bool)
    want = {m.tobytes() for m in (eye, ~eye, eye | ~eye, eye & ~eye)}
    assert {m.tobytes() for m in masks[fair]} == want


# --- linear attention -----------------------

def phi(X):
    return np.where(X > 0, X + 1, np.exp(np.minimum(X, 0)))


@pytest.mark.parametrize("N, M", [(6, 6), (3, 8), (8, 3), (1, 5), (5, 1)])
def test_linear_attention(lib, N, M):
    """S.31. Against the definition with its features, for every filter.

    D32. The running state equals the quadratic form.
    """
    rng = np.random.default_rng(N + M)
    Q, K, V = (rng.standard_normal((2, 3, n, 4)) for n in (N, M, M))
    masks = some_masks(N, M)
    masks["causal and padding"] = masks["causal"] & masks["padding"]
    for mask in masks.values():
        want = by_definition(lambda q, k: q @ k, phi(Q), phi(K), V, mask)
        close(linear_attention(*map(lib.array, (Q, K, V)), mask=mask), want, lib)
        quadratic = attention(phi(Q), phi(K), V, kernel="linear", mask=mask)
        np.testing.assert_allclose(quadratic, want, rtol=1e-12, atol=1e-13)


def test_causal_runs_as_a_state(monkeypatch):
    """With padded keys too: the quadratic form is for other masks only."""
    def refuse(*arguments):
        raise AssertionError("the quadratic form")

    monkeypatch.setattr("ksvd_ref.attention.smoother._inner", refuse)
    X = np.random.default_rng(14).standard_normal((5, 2))
    padding = np.array([True, False, True, True, False])
    for mask in (None, padding, causal(5), causal(5) & padding):
        linear_attention(X, X, X, mask=mask)
    with pytest.raises(AssertionError, match="quadratic"):
        linear_attention(X, X, X, mask=window(5, 2))


def test_linear_attention_is_linear():
    """A matrix of 200000 x 200000 weights would need 320 GB."""
    X = np.random.default_rng(14).standard_normal((200_000, 2))
    O = linear_attention(X, X, X)
    S, z = phi(X).T @ X, phi(X).sum(axis=0)
    np.testing.assert_allclose(O[:5], phi(X[:5]) @ S / (phi(X[:5]) @ z)[:, None], rtol=1e-10)


def test_constant_features_are_a_running_mean():
    V = np.arange(1.0, 7.0)[:, None]
    O = linear_attention(np.zeros((6, 1)), np.zeros((6, 1)), V, mask=causal(6))
    np.testing.assert_allclose(O[:, 0], [1, 1.5, 2, 2.5, 3, 3.5], rtol=1e-15)


@pytest.mark.parametrize("leads", [((), (), (3,)), ((2, 1), (1,), (1, 3)), ((), (3,), ())])
def test_linear_attention_broadcasts(leads):
    """The running state too, also when it begins with queries that see nothing (N > M)."""
    rng = np.random.default_rng(22)
    for N, M in ((4, 2), (2, 4), (3, 3)):
        Q, K, V = (rng.standard_normal((*lead, n, 2)) for lead, n in zip(leads, (N, M, M)))
        for mask in (None, causal(N, M), causal(N, M)[None], np.ones((2, 1, 1, M), bool)):
            want = by_definition(lambda q, k: q @ k, phi(Q), phi(K), V, mask)
            got = linear_attention(Q, K, V, mask=mask)
            assert got.shape == want.shape
            close(got, want)


def test_hidden_keys_do_not_set_the_scale_of_features(lib):
    """Features of -110 vanish in float32; a hidden key of any size must not keep them so."""
    Q, V = lib.array([[0.0]] * 2), lib.array([[1.0], [3.0], [7.0]])
    for hidden in (0.0, 5.0, 1e30):
        K = lib.array([[-110.0], [-110.0], [hidden]])
        for mask, want in (([True, True, False], [[2], [2]]),
                           ([[True, True, False], [True, True, False]], [[2], [2]]),
                           ([[False, True, False], [True, True, False]], [[3], [2]])):
            close(linear_attention(Q, K, V, mask=np.array(mask)), want, lib)


@pytest.mark.parametrize("dtype, low", [("float32", -104.0), ("float64", -800.0)])
def test_linear_attention_of_keys_that_underflow_beside_another(dtype, low):
    """Query 0 sees the key `low` alone, whose exponential is 0: its value, as without the other."""
    Q, K = np.zeros((2, 1), dtype), np.array([[low], [0.0]], dtype)
    V = np.array([[3.0], [5.0]], dtype)
    got = linear_attention(Q, K, V, mask=causal(2))
    np.testing.assert_array_equal(got, V, strict=True)
    slope = grad(lambda V: linear_attention(Q, K, V, mask=causal(2))[0, 0])(V)
    np.testing.assert_array_equal(slope, np.array([[1.0], [0.0]], dtype), strict=True)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("spread", [1, 60, 90, 104, 400, 740, 900])
def test_linear_attention_of_one_negative_feature_is_softmax(dtype, spread):
    """elu + 1 is then the exponential: values and gradients at any distance of the keys."""
    rng = np.random.default_rng(spread)
    K, V = rng.uniform(-3, 0, (5, 1)), rng.standard_normal((5, 2))
    K[:4] -= spread
    Q, K, V = (X.astype(dtype) for X in (np.zeros((5, 1)), K, V))
    tolerance = 20 * np.finfo(dtype).eps * spread ** 0.5       # an exponent of 900 has 1e-13
    linear = lambda K, V: linear_attention(Q, K, V, mask=causal(5))
    softmax = lambda K, V: attention(1 + Q, K, V, scale=1.0, mask=causal(5))
    np.testing.assert_allclose(linear(K, V), softmax(K, V), atol=tolerance)
    for n in (0, 1):
        slope, known = (grad(lambda *x: anp.sum(anp.sin(of(*x))), n)(K, V)
                        for of in (linear, softmax))
        assert slope.dtype == dtype
        np.testing.assert_allclose(slope, known, atol=4 * tolerance)


@pytest.mark.parametrize("low", [-1.0, -700.0, -740.0, -1000.0])
def test_linear_attention_where_large_features_meet_vanishing_ones(low):
    """Kernel values e^low and their like, of which nothing or few digits are left, have a ratio."""
    Q, K, V = [[0.0, low]], [[low, 0.0], [low - 1, 0.0]], [[0.0], [1.0]]
    share = (1 + np.exp(-1.0)) / (2 + 1 + np.exp(-1.0))         # (e^-1 + 1)/(1 + 1 + e^-1 + 1)
    np.testing.assert_allclose(linear_attention(Q, K, V), [[share]], rtol=1e-12)


def test_homogeneous_polynomial_has_finite_features():
    """D33. The homogeneous polynomial of degree 2 is linear attention with the features vec(x xᵀ).
    """
    rng = np.random.default_rng(15)
    Q, K, V = (rng.standard_normal((6, 3)) for _ in range(3))
    vec = lambda X: (X[:, :, None] * X[:, None, :]).reshape(6, 9)
    got = attention(vec(Q), vec(K), V, kernel="linear")
    close(got, attention(Q, K, V, kernel="polynomial", coef0=0.0))


# --- heads -----------------------

@pytest.mark.parametrize("smoother, parameters", [
    (attention, {}), (attention, {"kernel": "rbf", "gamma": 0.2}), (linear_attention, {}),
    (lambda Q, K, V, mask=None: V[..., :4, :] + Q, {})])
def test_multi_head(lib, smoother, parameters):
    rng = np.random.default_rng(16)
    Q, K, V = (rng.standard_normal((2, n, 6)) for n in (4, 5, 5))
    for mask in (None, causal(4, 5), rng.random((2, 1, 1, 5)) < 0.7):
        got = multi_head(*map(lib.array, (Q, K, V)), heads=3, smoother=smoother, mask=mask,
                         **parameters)
        for b, h in itertools.product(range(2), range(3)):
            cut = slice(2 * h, 2 * h + 2)
            one = mask if mask is None or mask.ndim == 2 else mask[b, 0]
            want = smoother(Q[b, :, cut], K[b, :, cut], V[b, :, cut], mask=one, **parameters)
            close(got[b, :, cut], want, lib)
    heads = rng.random((3, 4, 5)) < 0.7                                    # a filter for each head
    got = multi_head(Q, K, V, heads=3, mask=heads)
    for h in range(3):
        cut = slice(2 * h, 2 * h + 2)
        close(got[..., cut], attention(Q[..., cut], K[..., cut], V[..., cut], mask=heads[h]))


def test_heads_split_and_merge():
    X = np.arange(48.0).reshape(2, 4, 6)
    assert split_heads(X, 3).shape == (2, 3, 4, 2)
    np.testing.assert_array_equal(split_heads(X, 3)[1, 2], X[1, :, 4:])
    np.testing.assert_array_equal(merge_heads(split_heads(X, 3)), X)
    for heads, match in ((4, "Q needs .* columns in 4"), (0, "heads must be an integer, 1 or"),
                         (1.5, "heads must be an integer"), (None, "heads must be an integer")):
        for call in (lambda: multi_head(X, X, X, heads=heads), lambda: split_heads(X, heads, "Q")):
            with pytest.raises(ValueError, match=match):
                call()
    # five masks must not make five heads of one
    for heads, mask in ((1, np.ones((5, 4, 4), bool)), (3, np.ones((2, 4, 4), bool))):
        with pytest.raises(ValueError, match=r"\(\.\.\., 1, N, d\)|leading axes"):
            multi_head(X, X, X, heads=heads, mask=mask)
    for wrong in (np.ones(3), np.ones((3, 2))):
        with pytest.raises(ValueError, match=r"\(\.\.\., heads, N, d\)"):
            merge_heads(wrong)


# --- derivatives -----------------------

def check_gradient(function, *arrays):
    """Each argument's gradient, and its shape, against central differences."""
    for n in range(len(arrays)):
        assert_gradient(lambda X: anp.sum(anp.sin(function(*arrays[:n], X, *arrays[n+1:]))),
                        arrays[n])


BLIND = np.array([[1, 1, 0, 1], [0, 0, 0, 0], [0, 1, 1, 0]], bool)     # a query of nothing


@pytest.mark.parametrize("kernel, parameters", CASES)
def test_gradients(rng, kernel, parameters):
    for leads, masks in [(((), (), (), ()), (None, causal(3, 4), BLIND)),
                         (((2,), (), (3, 1), (2,)), (BLIND,)),
                         (((), (2,), (), ()), (None,))]:
        Q, K, V, log_factor = (positive(rng, *lead, *shape) for lead, shape in
                               zip(leads, ((3, 2), (4, 2), (4, 2), (3, 4))))
        for mask in masks:
            check_gradient(lambda Q, K, V, L: attention(
                Q, K, V, kernel=kernel, mask=mask, log_factor=L, **parameters), Q, K, V, log_factor)


@pytest.mark.parametrize("kernel, parameters", CASES)
def test_no_gradient_flows_into_what_is_hidden(rng, kernel, parameters):
    mask = BLIND & [True, True, True, False]
    for lead in ((), (2, 3)):
        arrays = [positive(rng, *lead, *shape) for shape in ((3, 2), (4, 2), (4, 2), (3, 4))]
        loss = lambda Q, K, V, L: anp.sum(attention(Q, K, V, kernel=kernel, mask=mask, log_factor=L,
                                                    **parameters) ** 2)
        gQ, gK, gV, gL = (grad(loss, n)(*arrays) for n in range(4))
        assert (gQ[..., 1, :] == 0).all() and (gK[..., 3, :] == 0).all()
        assert (gV[..., 3, :] == 0).all() and (gL[..., ~mask] == 0).all()
        assert all(abs(g).max() > 0 for g in (gQ, gK, gV, gL))


@pytest.mark.parametrize("mask", some_masks(4, 5).values(), ids=some_masks(4, 5))
def test_gradients_of_linear_attention(mask):
    rng = np.random.default_rng(19)
    for lead in ((2, 3), ()):
        Q, K, V = (rng.standard_normal((*shape, 2)) for shape in ((*lead, 4), (5,), (2, 3, 5)))
        check_gradient(lambda *arrays: linear_attention(*arrays, mask=mask), Q, K, V)
    # elu + 1 has slope 1 on both sides of 0, where minimum(x, 0) would report 1/2
    g = grad(lambda Q: linear_attention(Q, np.eye(2), np.eye(2))[0, 0])(np.zeros((1, 2)))
    step = np.array([[1e-6, 0.0]])
    f = lambda Q: linear_attention(Q, np.eye(2), np.eye(2))[0, 0]
    np.testing.assert_allclose(g[0, 0], (f(step) - f(-step)) / 2e-6, rtol=1e-6)


def test_gradients_of_heads_functions_and_seconds():
    rng = np.random.default_rng(20)
    Q, K, V = (rng.standard_normal((2, n, 4)) for n in (3, 5, 5))
    check_gradient(lambda *arrays: multi_head(*arrays, heads=2, mask=causal(3, 5)), Q, K, V)
    kernel = lambda Q, K: anp.exp(-anp.abs(Q @ anp.moveaxis(K, -1, -2)))
    check_gradient(lambda *arrays: attention(*arrays, kernel=kernel), Q, K, V)
    smoothers = [functools.partial(attention, kernel=kernel) for kernel in ("exponential", "rbf")]
    for smooth in (*smoothers, linear_attention):   # derivatives of derivatives
        for mask in (None, causal(3, 5)):
            first = lambda Q: grad(lambda K: anp.sum(smooth(Q, K, V, mask=mask) ** 2))(K)
            check_gradient(first, Q)


@pytest.mark.parametrize("kernel, parameters", [
    ("linear", {}), ("polynomial", {"degree": 3, "coef0": 0.0}),
    (lambda Q, K: anp.tanh(Q @ anp.moveaxis(K, -1, -2)), {})])
def test_gradients_of_signed_kernels(kernel, parameters):
    """The warning looks at numbers, not at autograd's boxes."""
    Q, K, V = np.array([[1.0], [2.0]]), np.array([[1.0], [-0.5], [0.7]]), np.eye(3)
    with pytest.warns(UserWarning, match="negative weights of 6"):
        check_gradient(lambda *arrays: attention(*arrays, kernel=kernel, **parameters), Q, K, V)
    vanishing = lambda K: anp.sum(attention(Q, K, V[:2, :], kernel="linear"))
    with pytest.raises(ValueError, match="vanishes in 2 of 2 rows"):
        grad(vanishing)(np.array([[1.0], [-1.0]]))


def test_float32_gradients_stay_float32():
    rng = np.random.default_rng(21)
    Q, K, V = (positive(rng, 3, 2).astype(np.float32) for _ in range(3))
    for kernel, mask in itertools.product((*KAPPA, "features"), (None, causal(3), [True] * 3)):
        if kernel == "features":
            loss = lambda *arrays: anp.sum(linear_attention(*arrays, mask=mask) ** 2)
        else:
            loss = lambda *arrays: anp.sum(attention(*arrays, kernel=kernel, mask=mask) ** 2)
        for n in range(3):
            assert grad(loss, n)(Q, K, V).dtype == np.float32, (kernel, n)


# --- what is refused -----------------------

Q0, K0, V0 = np.ones((2, 3)), np.ones((4, 3)), np.ones((4, 1))


@pytest.mark.parametrize("change, error, message", [
    ({"Q": Q0 * np.nan}, ValueError, "Q must be finite"),
    ({"K": K0 * np.inf}, ValueError, "K must be finite"),
    ({"K": K0 * -np.inf}, ValueError, "K must be finite"),       # its weight would be 0
    ({"V": V0 * np.nan}, ValueError, "V must be finite"),
    ({"V": V0 * np.nan, "mask": causal(2, 4)}, ValueError, "V must be finite"),
    ({"mask": np.ones((2, 4))}, TypeError, "mask must be boolean"),
    ({"mask": [1, 1, 0, 1]}, TypeError, "mask must be boolean"),
    ({"mask": np.ones((4, 2), bool)}, ValueError, r"mask must have shape \(..., 2, 4\)"),
    ({"mask": np.ones(3, bool)}, ValueError, "mask must have shape"),
    ({"mask": True}, ValueError, "mask must have shape"),
    ({"Q": np.ones((2, 2, 3)), "mask": np.ones((3, 2, 4), bool)}, ValueError,
     r"leading axes of mask must be .*, got \(3,\) beside \(2,\), \(\), \(\)"),
    ({"V": np.ones((2, 4, 1)), "mask": np.ones((3, 2, 4), bool)}, ValueError,
     "leading axes of mask"),
    ({"log_factor": np.ones((2, 3))}, ValueError, "log_factor must have shape"),
    ({"log_factor": np.full((2, 4), -np.inf)}, ValueError, "log_factor must be finite"),
    ({"kernel": "gauss"}, ValueError, "polynomial, got 'gauss'"),
    ({"kernel": None}, ValueError, "got None"),
    ({"kernel": ["rbf"]}, ValueError, "must be a function or one of"),
    ({"kernel": lambda Q, K: Q @ K.T * 1j}, TypeError, "must hold real numbers"),
    ({"kernel": lambda Q, K: strict.ones((2, 4))}, TypeError, "one library expected"),
    ({"kernel": lambda Q, K: 1.0}, ValueError, "must be an array of shape"),
    ({"kernel": lambda Q, K: K @ Q.T}, ValueError, "must be an array of shape"),
    ({"kernel": lambda Q, K: Q @ K.T * np.nan}, ValueError, "NaN or infinite at a visible key"),
    ({"kernel": lambda Q, K: kernels.rbf(Q, K[:, :2])}, ValueError, "Z must have shape"),
    ({"kernel": "rbf", "gamma": 0.0}, ValueError, "gamma must be a finite number above"),
    ({"scale": -1.0}, ValueError, "scale must be a finite number above"),
    ({"kernel": "polynomial", "degree": 0}, ValueError, "degree must be an integer"),
    ({"gamma": 1.0}, TypeError, "exponential kernel are .'scale'., got .'gamma'."),
    ({"kernel": "linear", "scale": 1.0}, TypeError, "linear kernel are none"),
    ({"guard": 1e-3}, ValueError, "guard"),
    ({"guard": "1"}, ValueError, "guard must be a finite number"),
    ({"kernel": "linear", "guard": -1.0}, ValueError, "guard"),
])
def test_refused(change, error, message):
    with pytest.raises(error, match=message):
        attention(**{"Q": Q0, "K": K0, "V": V0, **change})


def test_linear_attention_refuses():
    for change in ({"Q": np.ones((2, 2, 3)), "mask": np.ones((3, 2, 4), bool)},
                   {"V": np.ones((2, 4, 1)), "mask": np.ones((3, 2, 4), bool)}):
        with pytest.raises(ValueError, match="leading axes of mask"):
            linear_attention(**{"Q": Q0, "K": K0, "V": V0, **change})
    for name, good in (("Q", Q0), ("K", K0), ("V", V0)):
        with pytest.raises(ValueError, match=f"{name} must be finite"):
            linear_attention(**{"Q": Q0, "K": K0, "V": V0, name: good * np.inf})


def test_warnings_point_at_the_caller():
    """Whoever asks for a linear kernel sees the own line, from both doors."""
    for call in (lambda: weights([[1.0]], [[1.0], [-0.9]], kernel="linear"),
                 lambda: attention([[1.0]], [[1.0], [-0.9]], [[1.0], [1.0]], kernel="linear")):
        with pytest.warns(UserWarning, match="negative weights") as caught:
            call()
        assert caught[0].filename == __file__


def test_kernel_values_may_be_integers():
    same = lambda Q, K: Q[:, None, 0] == K[None, :, 0]                     # lumps equal points
    for kernel in (same, lambda Q, K: same(Q, K).astype(int), lambda Q, K: same(Q, K).tolist()):
        np.testing.assert_array_equal(weights([[1], [2]], [[1], [2], [1]], kernel=kernel),
                                      [[0.5, 0, 0.5], [0, 1, 0]])


def test_overflow_is_an_error_where_it_is_visible():
    Q, K = np.full((2, 1), 1e200), np.array([[1e200], [1e-200]])
    with pytest.raises(ValueError, match="NaN or infinite"):
        weights(Q, K)
    # each key is seen, but not by the query whose score overflows
    for kernel in ("exponential", "linear", "polynomial"):
        A = weights([[1e200], [1e-200]], K, kernel=kernel, mask=[[False, True], [True, True]])
        np.testing.assert_array_equal(A[0], [0.0, 1.0])
        np.testing.assert_array_equal(A[1:], weights([[1e-200]], K, kernel=kernel))


def test_overflow_of_a_sum_is_an_error(lib):
    """Each term is finite, their sum is not: zeros or NaN would come out."""
    big = lib.array([[0.9 * float(np.finfo(lib.name).max)]] * 3)
    one, small = lib.array([[1.0]]), lib.array([[0.0]] * 3)
    for kernel, guard in (("linear", 0.0), ("linear", 1.0), ("polynomial", 0.0)):
        with pytest.raises(ValueError, match=f"a sum over the {kernel} kernel must be finite"):
            weights(one, big if kernel == "linear" else lib.xp.sqrt(big), kernel=kernel,
                    guard=guard)
    for mask in (None, causal(1, 3), causal(3), window(3, 2)):
        Q = one if mask is None or len(mask) == 1 else small + 1.0
        with pytest.raises(ValueError, match="normaliser of elu . 1 must be finite"):
            linear_attention(Q, big, small, mask=mask)
        with pytest.raises(ValueError, match="linear_attention overflows"):
            linear_attention(Q, small, big, mask=mask)
    close(attention(one, small, lib.xp.ones_like(small)), [[1.0]], lib)
    close(attention(one, small, 0.3 * big) / big[:1, :], [[0.3]], lib)
    with pytest.raises(ValueError, match="attention overflows"):            # of 3 values
        attention(one, small, big)


def test_logits_that_overflow_downwards_are_an_error(lib):
    """Minus infinity would be a weight of 0 in silence; a hidden one is."""
    far = float(np.finfo(lib.name).max) ** 0.6
    Q, K, V = lib.array([[far]]), lib.array([[-far], [0.0]]), lib.array([[1.0], [2.0]])
    with pytest.raises(ValueError, match="NaN or infinite at a visible key"):
        attention(Q, K, V)
    close(attention(Q, K, V, mask=[False, True]), [[2.0]], lib)
    half = float(np.finfo(lib.name).max) * 0.75     # three of them overflow a sum, not a weight
    close(attention(lib.array([[half]]), lib.array([[1.0], [1.0], [1.0]]),
                    lib.array([[1.0], [2.0], [3.0]])), [[2.0]], lib)
