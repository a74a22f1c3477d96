"""The Transformer against loops over its definition, its primitives against differences."""
from functools import partial

import autograd
import numpy as np
import pytest
from conftest import assert_gradient
from scipy.special import erf, log_softmax
from scipy.special import softmax as scipy_softmax

from ksvd_ref import linalg
from ksvd_ref.attention import filters, positions, smoother
from ksvd_ref.course import transformer


def params64(params):
    """Float64, and every vector and matrix random: zeros and ones would hide a wrong use."""
    rng = np.random.default_rng(7)

    def fill(p):
        if isinstance(p, (dict, list)):
            items = p.items() if isinstance(p, dict) else enumerate(p)
            out = {k: fill(q) for k, q in items}
            return out if isinstance(p, dict) else list(out.values())
        return p + 0.3 * rng.standard_normal(p.shape)
    return fill(params)


def block64(d=6, hidden=5, **how):
    return params64(transformer.init_block(np.random.default_rng(0), d, hidden, **how))


# primitives

@pytest.mark.parametrize("shape", [(4,), (3, 5), (2, 3, 4), (1, 1)])
@pytest.mark.parametrize("f", [linalg.softmax, transformer.gelu, transformer.relu],
                         ids=lambda f: f.__name__)
def test_gradient_of_one_argument(rng, f, shape):
    C = rng.standard_normal(shape)
    assert_gradient(lambda x: (C * f(x)).sum(), rng.standard_normal(shape))


@pytest.mark.parametrize("shape", [(4,), (3, 5), (2, 3, 4)])
def test_gradient_of_layer_norm(rng, shape):
    C, x = rng.standard_normal(shape), rng.standard_normal(shape)
    scale, shift = rng.standard_normal((2, shape[-1]))
    for f, at in ((lambda x: transformer.layer_norm(x, scale, shift), x),
                  (lambda scale: transformer.layer_norm(x, scale, shift), scale),
                  (lambda shift: transformer.layer_norm(x, scale, shift), shift)):
        assert_gradient(lambda a: (C * f(a)).sum(), at)


@pytest.mark.parametrize("shape", [(4,), (3, 4), (2, 3, 4)])
def test_gradient_of_embedding_adds_up_repeated_tokens(rng, shape):
    tokens, C = rng.integers(3, size=shape), rng.standard_normal((*shape, 2))   # 3 tokens: repeats
    assert_gradient(lambda table: (C * transformer.embedding(table, tokens) ** 2).sum(),
                    rng.standard_normal((5, 2)))


@pytest.mark.parametrize("shape", [(4,), (2, 3)])
def test_gradient_of_cross_entropy(rng, shape):
    targets, weights = rng.integers(5, size=shape), rng.uniform(size=shape)
    assert_gradient(lambda x: 3.0 * transformer.cross_entropy(x, targets, weights),
                    rng.standard_normal((*shape, 5)))


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_softmax_and_cross_entropy_are_scipys(rng, scale):
    x, targets = scale * rng.standard_normal((4, 3, 6)), rng.integers(6, size=(4, 3))
    weights = rng.integers(2, size=(4, 3)).astype(float)
    np.testing.assert_allclose(linalg.softmax(x), scipy_softmax(x, axis=-1), atol=1e-15)
    picked = np.take_along_axis(log_softmax(x, axis=-1), targets[..., None], -1)[..., 0]
    np.testing.assert_allclose(transformer.cross_entropy(x, targets, weights),
                               -np.sum(picked * weights) / np.sum(weights), rtol=1e-13)
    x = x.astype("float32")
    assert np.isfinite(transformer.cross_entropy(x, targets, weights.astype("float32")))


@pytest.mark.parametrize("scale, shift", [(1.0, 0.0), (1e-2, 5.0), (1e4, 0.0)])
def test_layer_norm_row_by_row(rng, scale, shift):
    x, (a, b) = scale * rng.standard_normal((3, 4, 6)) + shift, rng.standard_normal((2, 6))
    want = np.empty_like(x)
    for index in np.ndindex(3, 4):
        row = x[index]
        want[index] = a * (row - np.mean(row)) / np.sqrt(np.var(row) + 1e-5) + b
    np.testing.assert_allclose(transformer.layer_norm(x, a, b), want, rtol=1e-9, atol=1e-9)


def test_tokens_outside_the_table_are_refused(lib):
    table = lib.array(np.ones((5, 2)))
    for tokens, found in (([0, -1], "-1 to 0"), ([0, 5], "0 to 5")):
        with pytest.raises(ValueError, match=f"tokens must be from 0 to 4, got {found}"):
            transformer.embedding(table, lib.xp.asarray(tokens, **lib.place))
    with pytest.raises(TypeError, match="tokens must be an array of integers, got .*float"):
        transformer.embedding(table, lib.array([0.0, 1.0]))
    for tokens, found in ((np.array([True]), "bool"), ([0, 1], "list")):
        with pytest.raises(TypeError, match=f"array of integers, got {found}"):
            transformer.embedding(np.ones((5, 2)), tokens)


@pytest.mark.parametrize("targets, weights, error, message", [
    ([0, 3], [1, 1], ValueError, "targets must be from 0 to 2, got 0 to 3"),
    ([0, -1], [1, 0], ValueError, "targets must be from 0 to 2"),
    ([0.0, 1.0], [1, 1], TypeError, "targets must be an array of integers"),
    ([0], [1, 1], ValueError, r"got \(2, 3\), \(1,\), \(2,\)"),
    ([0, 1], [1], ValueError, r"got \(2, 3\), \(2,\), \(1,\)"),
    ([0, 1], [0, 0], ValueError, "no weight is above zero")])
def test_cross_entropy_refuses(targets, weights, error, message):
    with pytest.raises(error, match=message):
        transformer.cross_entropy(np.zeros((2, 3)), np.array(targets), np.array(weights, float))


def test_boolean_weights_keep_float32(rng):
    x, targets = rng.standard_normal((2, 3)).astype("float32"), np.array([2, 0])
    f = lambda x, weights: transformer.cross_entropy(x, targets, weights)
    some = np.array([True, False])
    assert f(x, some).dtype == autograd.grad(f)(x, some).dtype == "float32"
    np.testing.assert_allclose(f(x, some), f(x, some.astype("float32")), rtol=1e-7)


def test_gelu_far_from_zero():
    for dtype, far in (("float32", 1e20), ("float64", 1e200)):
        x = np.array([-far, -12.0, -10.0, 10.0, 12.0, far], dtype)
        np.testing.assert_array_equal(transformer.gelu(x), np.maximum(x, 0.0))
        np.testing.assert_array_equal(autograd.elementwise_grad(transformer.gelu)(x), x > 0.0)


def test_gelu_is_close_to_the_exact_one():
    x = np.linspace(-6, 6, 2001)
    gap = np.abs(transformer.gelu(x) - 0.5 * x * (1 + erf(x / np.sqrt(2)))).max()
    assert 1e-4 < gap < 5e-4                            # its docstring says so; it is not exact
    np.testing.assert_array_equal(transformer.relu(np.array([-2.0, 0.0, 3.0])), [0, 0, 3])
    assert autograd.grad(lambda x: transformer.relu(x)[0])(np.array([0.0])) == 0.0


def test_primitives_on_every_library(lib):
    rng = np.random.default_rng(0)
    x, scale, table = (rng.standard_normal(shape) for shape in ((2, 3, 4), (4,), (5, 4)))
    tokens, weights = rng.integers(4, size=(2, 3)), np.array([[1.0, 1, 0], [1, 0, 0]])
    ints = lib.xp.asarray(tokens, **lib.place)
    for f, args in ((linalg.softmax, (x,)), (transformer.gelu, (x,)),
                    (transformer.relu, (x,)), (transformer.layer_norm, (x, scale, scale))):
        np.testing.assert_allclose(lib.host(f(*map(lib.array, args))), f(*args),
                                   rtol=lib.tol, atol=lib.tol)
    np.testing.assert_allclose(lib.host(transformer.embedding(lib.array(table), ints)),
                               table[tokens], rtol=lib.tol)
    got = transformer.cross_entropy(lib.array(x), ints, lib.array(weights))
    np.testing.assert_allclose(lib.host(got), transformer.cross_entropy(x, tokens, weights),
                               rtol=lib.tol)


def test_language_model_on_every_library(lib):
    params = transformer.init_language_model(np.random.default_rng(0), 5, d=4, hidden=6, layers=2)

    def move(p):
        if isinstance(p, dict):
            return {k: move(q) for k, q in p.items()}
        return [move(q) for q in p] if isinstance(p, list) else lib.array(p)
    tokens = np.array([[0, 3, 1], [2, 2, 4]])
    attend = partial(transformer.attend, heads=2)
    got = transformer.language_model(lib.xp.asarray(tokens, **lib.place), move(params), attend)
    np.testing.assert_allclose(lib.host(got), transformer.language_model(tokens, params, attend),
                               rtol=1e-4, atol=1e-4)    # float32 parameters on both sides


# blocks

def attention_by_loops(x, z, p, visible, heads):
    N, d = x.shape
    out, width = np.zeros((N, d)), d // heads
    for h in range(heads):
        part = slice(h * width, (h + 1) * width)
        for i in range(N):
            q = x[i] @ p["W_q"][:, part]
            kappa = [visible[i, j] * np.exp(q @ (z[j] @ p["W_k"][:, part]) / np.sqrt(width))
                     for j in range(len(z))]
            for j in range(len(z)):
                out[i, part] += kappa[j] / sum(kappa) * (z[j] @ p["W_v"][:, part])
    return out @ p["W_o"]


def norm_by_loops(x, p):
    return np.stack([(row - row.mean()) / np.sqrt(row.var() + 1e-5) * p["scale"] + p["shift"]
                     for row in x])


def feed_by_loops(x, p):
    return np.stack([np.maximum(row @ p["W_1"] + p["b_1"], 0.0) @ p["W_2"] + p["b_2"] for row in x])


def residual_by_loops(x, norm, f, style):
    if style is transformer.pre_norm:
        return x + f(norm_by_loops(x, norm))
    return norm_by_loops(x + f(x), norm)


STYLES = pytest.mark.parametrize("style", [transformer.pre_norm, transformer.post_norm],
                                 ids=lambda f: f.__name__)


@STYLES
@pytest.mark.parametrize("heads", [1, 2, 3])
@pytest.mark.parametrize("causal", [False, True])
def test_encoder_block_by_loops(rng, style, heads, causal):
    p, x = block64(), rng.standard_normal((2, 5, 6))
    visible = np.tril(np.ones((5, 5), bool)) if causal else np.ones((5, 5), bool)
    got = transformer.encoder_block(x, p, partial(transformer.attend, heads=heads),
                                    visible if causal else None, residual=style)
    for one, want in zip(x, got):
        one = residual_by_loops(one, p["norm_attend"], lambda y: attention_by_loops(
            y, y, p["attend"], visible, heads), style)
        one = residual_by_loops(one, p["norm_feed"], lambda y: feed_by_loops(y, p["feed"]), style)
        np.testing.assert_allclose(want, one, rtol=1e-11, atol=1e-11)


@STYLES
def test_decoder_block_by_loops(rng, style):
    p, heads = block64(cross=True), 2
    y, x = rng.standard_normal((4, 6)), rng.standard_normal((7, 6))
    past, padding = np.tril(np.ones((4, 4), bool)), np.arange(7) < 5
    attend = partial(transformer.attend, heads=heads)
    got = transformer.decoder_block(y, x, p, attend, attend, past, padding[None, :], residual=style)
    everywhere = np.broadcast_to(padding, (4, 7))
    y = residual_by_loops(y, p["norm_attend"], lambda y: attention_by_loops(
        y, y, p["attend"], past, heads), style)
    y = residual_by_loops(y, p["norm_cross"], lambda y: attention_by_loops(
        y, x, p["cross"], everywhere, heads), style)
    y = residual_by_loops(y, p["norm_feed"], lambda y: feed_by_loops(y, p["feed"]), style)
    np.testing.assert_allclose(got, y, rtol=1e-11, atol=1e-11)


def test_activation_is_the_readers(rng):
    x, p = rng.standard_normal((2, 6)), block64()["feed"]
    want = transformer.gelu(x @ p["W_1"] + p["b_1"]) @ p["W_2"] + p["b_2"]
    np.testing.assert_allclose(transformer.feed_forward(x, p, transformer.gelu), want, rtol=1e-13)


def test_tied_weights_make_a_symmetric_kernel(rng):
    """S.10. Symmetric: the same map for queries and keys. Source: textbook."""
    x, W = rng.standard_normal((5, 6)), rng.standard_normal((6, 6))
    Q, K, log_factor = transformer.content(x, x, {"W_q": W}, 2)
    assert log_factor is None and Q.shape == (2, 5, 3)
    np.testing.assert_array_equal(Q, K)
    assert not np.allclose(transformer.content(x, x, {"W_q": W, "W_k": 2 * W}, 2)[1], Q)


def test_scores_may_bring_a_second_kernel(rng):
    x, p = rng.standard_normal((5, 6)), params64(transformer.init_attention(rng, 6))

    def scores(x, z, p, heads):
        t = positions.sinusoids(5, 6)
        return *transformer.content(x, z, p, heads)[:2], positions.absolute(t, t)
    got = transformer.attend(x, x, p, heads=2, scores=scores)
    Q, K = (smoother.split_heads(x @ p[name], 2) for name in ("W_q", "W_k"))
    t = positions.sinusoids(5, 6)
    A = scipy_softmax(Q @ np.swapaxes(K, -1, -2) / 3 ** 0.5 + t @ t.T / 6 ** 0.5, axis=-1)
    V = smoother.split_heads(x @ p["W_v"], 2)
    np.testing.assert_allclose(got, smoother.merge_heads(A @ V) @ p["W_o"], rtol=1e-12, atol=1e-12)


# the seam

def test_a_block_asks_its_attention_and_nothing_else(rng):
    calls = []

    def attend(x, z, params, mask):
        calls.append((x, z, params, mask))
        return np.zeros_like(x)
    p, x, y = block64(cross=True), rng.standard_normal((3, 6)), rng.standard_normal((2, 6))
    transformer.encoder_block(x, p, attend, "mask")
    transformer.decoder_block(y, x, p, attend, attend, "past", "padding")
    assert [call[3] for call in calls] == ["mask", "past", "padding"]
    assert calls[0][0] is calls[0][1] and calls[0][2] is p["attend"]
    assert calls[2][1] is x and calls[2][2] is p["cross"]
    np.testing.assert_allclose(calls[0][0], norm_by_loops(x, p["norm_attend"]), atol=1e-12)


def test_one_attention_for_each_block(rng):
    blocks, x = [block64(), block64()], rng.standard_normal((4, 6))
    soft, flat = partial(transformer.attend, heads=2), lambda x, z, params, mask: 0.0 * x
    got = transformer.encoder(x, blocks, [soft, flat])
    want = transformer.encoder_block(transformer.encoder_block(x, blocks[0], soft), blocks[1], flat)
    np.testing.assert_array_equal(got, want)
    with pytest.raises(ValueError, match="each of the 2 blocks, got 1"):
        transformer.encoder(x, blocks, [soft])
    with pytest.raises(ValueError, match="each of the 2 blocks, got None"):
        transformer.encoder(x, blocks, None)


def test_a_mask_for_each_sequence_has_an_axis_of_heads(rng):
    x, p = rng.standard_normal((5, 3, 6)), block64()["attend"]
    masks = rng.random((5, 3, 3)) < 0.6
    got = transformer.attend(x, x, p, masks[:, None], heads=2)
    for one, mask, want in zip(x, masks, got):
        np.testing.assert_allclose(transformer.attend(one, one, p, mask, heads=2), want, rtol=1e-12,
                                   atol=1e-12)
    for heads, message in ((1, "B, 1, N, M"), (2, "leading axes"), (4, r"\(5, 3, 6\)")):
        with pytest.raises(ValueError, match=message):
            transformer.attend(x, x, p, masks, heads=heads)


# models

def model(**how):
    return params64(transformer.init_language_model(np.random.default_rng(1), 7, d=6, hidden=5,
                                                    layers=2, **how))


def translation(**how):
    return params64(transformer.init_translator(np.random.default_rng(2), 7, 8, d=6, hidden=5,
                                                layers=2, **how))


ATTEND = partial(transformer.attend, heads=2)


@pytest.mark.parametrize("closing", [True, False])
def test_models_are_their_blocks_in_a_row(rng, closing):
    p, source, target = translation(closing=closing), [3, 0, 6], [1, 5, 5, 2]
    x, y, past = p["embed"][source], p["embed_target"][target], np.tril(np.ones((4, 4), bool))
    A, B, C = (partial(transformer.attend, heads=heads) for heads in (1, 2, 3))    # not to be mixed
    for block in p["blocks"]:
        x = transformer.encoder_block(x, block, A)
    x = norm_by_loops(x, p["norm_source"]) if closing else x
    for block in p["decoder_blocks"]:
        y = transformer.decoder_block(y, x, block, C, B, past)
    y = norm_by_loops(y, p["norm"]) if closing else y
    got = transformer.translator(np.array(source), np.array(target), p, (A, B, C))
    np.testing.assert_allclose(got, y @ p["W_out"] + p["b_out"], rtol=1e-11, atol=1e-11)
    p, y = model(), model()["embed"][target]
    for block in p["blocks"]:
        y = transformer.encoder_block(y, block, ATTEND, past)
    y = norm_by_loops(y, p["norm"])
    np.testing.assert_allclose(transformer.language_model(np.array(target), p, ATTEND),
                               y @ p["W_out"] + p["b_out"], rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("n", [1, 3, 5])
def test_the_future_changes_nothing(rng, n):
    tokens = rng.integers(7, size=(3, 6))
    other = np.where(np.arange(6) < n, tokens, (tokens + 1) % 7)
    one, two = (transformer.language_model(t, model(), ATTEND) for t in (tokens, other))
    np.testing.assert_array_equal(one[:, :n], two[:, :n])               # bit for bit
    assert np.abs(one[:, n:] - two[:, n:]).min(axis=-1).max() > 1e-3
    source = rng.integers(7, size=(3, 4))
    one, two = (transformer.translator(source, t, translation(), [ATTEND] * 3)
                for t in (tokens, other))
    np.testing.assert_array_equal(one[:, :n], two[:, :n])


@pytest.mark.parametrize("how", [{}, {"closing": False}])
@pytest.mark.parametrize("style", [transformer.pre_norm, transformer.post_norm],
                         ids=lambda f: f.__name__)
def test_padding_changes_nothing(rng, how, style):
    p, target = translation(**how), rng.integers(8, size=(2, 5))
    source = rng.integers(1, 7, size=(2, 6))
    real = np.arange(6) < np.array([[4], [6]])
    t = positions.sinusoids(6, 6)

    def logits(source, target, real, t):
        return transformer.translator(source, target, p, [ATTEND] * 3, residual=style,
                                      source_mask=real[:, None, None, :], positions=(t, None))
    got = logits(source, target, real, t)
    np.testing.assert_array_equal(got, logits(np.where(real, source, 0), target, real, t))
    alone = logits(source[:1, :4], target[:1], real[:1, :4], t[:4])     # not padded at all
    np.testing.assert_allclose(got[:1], alone, rtol=1e-11, atol=1e-11)
    assert np.abs(got - logits(source, target, real | True, t))[0].max() > 1e-3


def test_order_needs_a_position_in_the_encoder_and_none_in_the_decoder(rng):
    """D26, D27, S.29. P f(X) = f(P X) without a mask, not behind a causal one."""
    x, order = rng.standard_normal((6, 6)), np.array([3, 1, 5, 0, 4, 2])
    blocks = model()["blocks"]
    f = lambda x, mask=None: transformer.encoder(x, blocks, ATTEND, mask)
    np.testing.assert_allclose(f(x[order]), f(x)[order], rtol=1e-11, atol=1e-11)
    past = filters.causal(6)
    assert np.abs(f(x[order], past) - f(x, past)[order]).max() > 1e-2
    np.testing.assert_allclose(f(x[order], past[np.ix_(order, order)]), f(x, past)[order],
                               rtol=1e-11, atol=1e-11)  # S.29: permute the mask too


def test_positions_enter_where_they_are_given(rng):
    p, target = translation(), rng.integers(8, size=(1, 5))
    source, t = rng.integers(7, size=(1, 5)), positions.sinusoids(5, 6)
    back = np.arange(5)[::-1]
    f = lambda source, words: transformer.translator(source, target, p, [ATTEND] * 3,
                                                     positions=words)
    for words in ((None, None), (None, t)):             # the encoder does not see the order
        np.testing.assert_allclose(f(source[:, back], words), f(source, words), atol=1e-11)
    assert np.abs(f(source[:, back], (t, None)) - f(source, (t, None))).max() > 1e-2


def test_greedy_is_right_if_and_only_if_the_teacher_is(rng):
    """So exact match may be counted in one pass: compared for targets good, near and bad."""
    p, source = translation(), rng.integers(7, size=(6, 4))
    f = lambda target: transformer.translator(source, target, p, [ATTEND] * 3)
    path = np.ones((6, 1), int)
    for _ in range(5):
        path = np.hstack([path, np.argmax(f(path)[:, -1:], axis=-1)])
    for change in range(-1, 5):
        target = path.copy()
        if change >= 0:
            target[::2, 1 + change] = (target[::2, 1 + change] + 1) % 8
        taught = np.all(np.argmax(f(target[:, :-1]), axis=-1) == target[:, 1:], axis=1)
        np.testing.assert_array_equal(taught, np.all(target == path, axis=1))


def test_gradient_of_a_whole_model(rng):
    tokens = rng.integers(7, size=(2, 4))

    def loss(embed, block):
        p = {**model(), "embed": embed}
        p["blocks"] = [p["blocks"][0], {**p["blocks"][1], "attend": {
            **p["blocks"][1]["attend"], "W_q": block}}]
        return transformer.cross_entropy(transformer.language_model(tokens, p, ATTEND), tokens,
                                         np.ones((2, 4)))
    embed, block = model()["embed"], model()["blocks"][1]["attend"]["W_q"]
    assert_gradient(lambda e: loss(e, block), embed, tol=1e-6)
    assert_gradient(lambda b: loss(embed, b), block, tol=1e-6)


def test_float32_stays_float32(rng):
    params = transformer.init_language_model(rng, 5, d=4, hidden=6, layers=1)
    tokens = rng.integers(5, size=(2, 3))

    def loss(params):
        logits = transformer.language_model(tokens, params, ATTEND)
        return transformer.cross_entropy(logits, tokens, np.ones((2, 3), "float32"))
    assert loss(params).dtype == "float32"

    def check(g, p):
        if isinstance(p, (dict, list)):
            for key in (p if isinstance(p, dict) else range(len(p))):
                check(g[key], p[key])
        else:
            assert g.shape == p.shape and g.dtype == "float32"
    check(autograd.grad(loss)(params), params)


def test_initialisers(rng):
    make = lambda seed: transformer.init_translator(np.random.default_rng(seed), 9, 8, d=40,
                                                    hidden=80, layers=2,
                                                    names=("W_q", "W_v", "W_o"))
    one, two, three = make(0), make(0), make(1)
    np.testing.assert_array_equal(one["W_out"], two["W_out"])
    assert np.abs(one["W_out"] - three["W_out"]).max() > 0.1
    assert set(one["blocks"][1]["attend"]) == {"W_q", "W_v", "W_o"}
    assert set(one["decoder_blocks"][0]["cross"]) == {"W_q", "W_v", "W_o"}
    W = one["blocks"][0]["feed"]["W_1"]
    assert W.dtype == "float32" and abs(W.std() * 2 * 40 ** 0.5 - 1) < 0.05      # 3200 entries
    assert one["embed"].shape == (9, 40) and abs(one["embed"].std() - 1) < 0.15  # 360 entries
    assert transformer.size(one) == 9 * 40 + 8 * 40 + 2 * (3 * 1600 + 6400 + 120 + 160) \
        + 2 * (6 * 1600 + 6400 + 120 + 240) + 2 * 80 + 328
