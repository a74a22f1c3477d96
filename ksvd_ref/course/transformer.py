"""The small Transformer of the lessons: functions of arrays and a nested dict of parameters.

x, z     (..., N, d), (..., M, d)    streams: queries come from x, keys and values from z
y        (..., N, d)                 stream of the decoder
mask     (..., N, M)                 True = may attend; broadcasts against (batch, head, N, M)
params   dict                        arrays by name, dicts by part, blocks as a list

**The seam.** A block never looks into its attention. It calls a function

    attend(x, z, params, mask) -> (..., N, d)

and whatever has this form fits, in all blocks or in one: here `attend`, the kernel smoother in
several heads; Primal-Attention is another.

Most of autograd's time at this size is bookkeeping, some 20 microseconds an operation. So what is
made of many small operations (softmax, layer norm, GELU, look-up, loss) is one primitive with its
own derivative, and nothing here looks for NaN: `training.train` does, and names the step.

No equation: the standard Transformer around the smoother, not part of the derivation.
"""
from math import pi, sqrt

import numpy as np
from autograd.extend import defvjp, primitive

from ..attention import smoother
from ..attention.filters import causal
from ..backend import namespace
from ..linalg import softmax

EPSILON = 1e-5      # of layer_norm, as in the published models
WEIGHTS = ("W_q", "W_k", "W_v", "W_o")


@primitive
def layer_norm(x, scale, shift):
    """Each row moved to mean 0 and stretched to variance 1, then scaled and shifted: (..., d).

    >>> layer_norm(np.array([1.0, 3.0]), np.ones(2), np.array([0.0, 5.0]))
    array([-1.,  6.])
    """
    return _standardise(x)[0] * scale + shift


def _standardise(x):
    xp = namespace(x)
    x = x - xp.mean(x, axis=-1, keepdims=True)
    inverse = 1.0 / xp.sqrt(xp.mean(x * x, axis=-1, keepdims=True) + EPSILON)
    return x * inverse, inverse


def _layer_norm_vjp(answer, x, scale, shift):
    def vjp(g):
        (x_hat, inverse), g = _standardise(x), g * scale
        g = g - np.mean(g, axis=-1, keepdims=True)      # moving or stretching x changes nothing:
        return inverse * (g - x_hat * np.mean(g * x_hat, axis=-1, keepdims=True))
    return vjp


def _rows(x):
    return np.reshape(x, (-1, x.shape[-1]))


defvjp(layer_norm, _layer_norm_vjp,
       lambda answer, x, scale, shift: lambda g: np.sum(_rows(g * _standardise(x)[0]), axis=0),
       lambda answer, x, scale, shift: lambda g: np.sum(_rows(g), axis=0))


@primitive
def gelu(x):
    """Gaussian error linear unit in its tanh form, x/2 (1 + tanh(√(2/π) (x + 0.044715 x³))).

    Less than 5e-4 from x times the normal distribution function, which needs erf: NumPy has none.

    >>> gelu(np.array([-10.0, 0.0, 10.0])) + 0.0
    array([ 0.,  0., 10.])
    """
    xp = namespace(x)
    near = xp.clip(x, -10.0, 10.0)                  # beyond it the tanh is -1 or 1, the cube large
    return 0.5 * x * (1.0 + xp.tanh(sqrt(2.0 / pi) * (near + 0.044715 * near * near * near)))


def _gelu_vjp(answer, x):
    x = np.clip(x, -10.0, 10.0)
    t = np.tanh(sqrt(2.0 / pi) * (x + 0.044715 * x * x * x))
    slope = sqrt(2.0 / pi) * (1.0 + 0.134145 * x * x) * (1.0 - t * t)
    return lambda g: g * (0.5 * (1.0 + t) + 0.5 * x * slope)


defvjp(gelu, _gelu_vjp)


def relu(x):
    """Positive part of x; the derivative at 0 is 0."""
    return x * namespace(x).astype(x > 0.0, x.dtype)


@primitive
def embedding(table, tokens):
    """Row of the table (v, d) for each token (..., N): integers from 0 to v - 1.

    >>> embedding(np.array([[1.0], [7.0]]), np.array([1, 1, 0]))[:, 0]
    array([7., 7., 1.])
    """
    xp = namespace(table, tokens)
    _check_tokens(tokens, "tokens", table.shape[0], xp)
    rows = xp.take(table, xp.reshape(tokens, (-1,)), axis=0)
    return xp.reshape(rows, (*tokens.shape, table.shape[1]))


def _check_tokens(tokens, name, v, xp):
    # Without this -1 would be the last row, and have no gradient.
    if not hasattr(tokens, "dtype") or not xp.isdtype(tokens.dtype, "integral"):
        raise TypeError(f"{name} must be an array of integers, "
                        f"got {getattr(tokens, 'dtype', type(tokens).__name__)}")
    if xp.any((tokens < 0) | (tokens >= v)):
        raise ValueError(f"{name} must be from 0 to {v - 1}, got {int(xp.min(tokens))} to "
                         f"{int(xp.max(tokens))}")


# Tokens repeat, so the gradient adds up: a one-hot product, some five times faster than add.at.
defvjp(embedding, lambda answer, table, tokens: lambda g: (
    np.reshape(tokens, (-1, 1)) == np.arange(table.shape[0])).astype(g.dtype).T @ _rows(g))


@primitive
def cross_entropy(logits, targets, weights):
    """Weighted mean of −log softmax(logits)[target], in nats, a number.

    logits (..., v), targets (...) integers from 0 to v - 1, weights (...): 0 where a target is
    padding (it is a token too, any), else 1.

    >>> cross_entropy(np.zeros((2, 4)), np.array([3, 0]), np.array([1.0, 0.0])) - np.log(4.0)
    np.float64(0.0)
    """
    xp = namespace(logits, targets, weights)
    _check_tokens(targets, "targets", logits.shape[-1], xp)
    if not tuple(logits.shape[:-1]) == tuple(targets.shape) == tuple(weights.shape):
        raise ValueError("logits, targets and weights must have shapes (..., v), (...), (...), got "
                         f"{tuple(logits.shape)}, {tuple(targets.shape)}, {tuple(weights.shape)}")
    weights = xp.astype(weights, logits.dtype)      # booleans would make float64 of float32
    if not xp.sum(weights) > 0.0:
        raise ValueError("no weight is above zero: there is no mean of no targets")
    x = logits - xp.max(logits, axis=-1, keepdims=True)
    picked = xp.take_along_axis(x, targets[..., None], axis=-1)[..., 0]
    surprise = xp.log(xp.sum(xp.exp(x), axis=-1)) - picked
    return xp.sum(weights * surprise) / xp.sum(weights)


def _cross_entropy_vjp(answer, logits, targets, weights):
    hot = targets[..., None] == np.arange(logits.shape[-1])
    weights = weights.astype(logits.dtype)
    share = (weights / np.sum(weights))[..., None]
    return lambda g: g * share * (softmax(logits) - hot)


defvjp(cross_entropy, _cross_entropy_vjp, argnums=(0,))


def project(x, W):
    """Last axis of x (..., m) times W (m, n), as one matrix product over all axes before it.

    >>> project(np.ones((2, 1, 3)), np.ones((3, 1)))[:, 0, 0]
    array([3., 3.])
    """
    return namespace(x, W).tensordot(x, W, axes=1)


def feed_forward(x, params, activation=relu):
    """Two layers applied to each position alone: W_1 (d, m), b_1 (m,), W_2 (m, d), b_2 (d,).

    >>> one = np.ones((1, 1))                       # 2 + 1, and 1 more
    >>> feed_forward(2 * one, {"W_1": one, "b_1": one[0], "W_2": one, "b_2": one[0]})
    array([[4.]])
    """
    hidden = activation(project(x, params["W_1"]) + params["b_1"])
    return project(hidden, params["W_2"]) + params["b_2"]


def content(x, z, params, heads):
    """Queries (..., heads, N, d/heads) and keys from the content alone: the scores of `attend`.

    Without W_k the kernel is symmetric, W_k = W_q (Eq. S.10). A scheme with a second kernel returns
    its logarithm (..., heads, N, M) in place of None.
    """
    Q, K = project(x, params["W_q"]), project(z, params.get("W_k", params["W_q"]))
    return smoother.split_heads(Q, heads), smoother.split_heads(K, heads), None


def attend(x, z, params, mask=None, *, heads, scores=content, **kernel):
    """The kernel smoother in several heads: what fills the seam of a block in these lessons.

    `functools.partial(attend, heads=4, kernel="rbf")` has the form that a block calls. A mask meets
    an axis of heads before its last two: one for each sequence is (B, 1, N, M), a padding of keys
    (B, 1, 1, M). scores: where the position enters, see `content`; kernel: of `smoother.attention`.

    >>> params = {"W_q": np.zeros((1, 1)), "W_v": np.eye(1), "W_o": np.eye(1)}
    >>> x = np.array([[1.0], [2.0]])                # equal weights: the mean
    >>> attend(x, x, params, heads=1)
    array([[1.5],
           [1.5]])
    """
    Q, K, log_factor = scores(x, z, params, heads)
    V = smoother.split_heads(project(z, params["W_v"]), heads)
    output = smoother.attention(Q, K, V, log_factor=log_factor, mask=mask, **kernel)
    return project(smoother.merge_heads(output, heads), params["W_o"])


def pre_norm(x, norm, sublayer):
    """x + sublayer(layer_norm(x)): trains without warm-up; the last output needs a closing norm.

    >>> pre_norm(np.array([[1.0, 3.0]]), {"scale": 1.0, "shift": 0.0}, lambda x: 2 * x)    # -1, 1
    array([[-1.,  5.]])
    """
    return x + sublayer(layer_norm(x, norm["scale"], norm["shift"]))


def post_norm(x, norm, sublayer):
    """layer_norm(x + sublayer(x)): the original Transformer (Vaswani et al., 2017)."""
    return layer_norm(x + sublayer(x), norm["scale"], norm["shift"])


def encoder_block(x, params, attend, mask=None, *, residual=pre_norm, activation=relu):
    """Self-attention (site A, or C under a causal mask), then the feed-forward layer."""
    x = residual(x, params["norm_attend"], lambda x: attend(x, x, params["attend"], mask))
    return residual(x, params["norm_feed"], lambda x: feed_forward(x, params["feed"], activation))


def decoder_block(y, x, params, attend, cross, mask=None, x_mask=None, *, residual=pre_norm,
                  activation=relu):
    """Self-attention of y (site C), attention from y to x (site B), the feed-forward layer.

    x (..., M, d) is what the encoder returned; x_mask (..., N, M) says which of its rows count.
    """
    y = residual(y, params["norm_attend"], lambda y: attend(y, y, params["attend"], mask))
    y = residual(y, params["norm_cross"], lambda y: cross(y, x, params["cross"], x_mask))
    return residual(y, params["norm_feed"], lambda y: feed_forward(y, params["feed"], activation))


def encoder(x, blocks, attend, mask=None, **style):
    """Encoder blocks one after the other; attend: one for all, or a list of one for each.

    style: residual and activation of `encoder_block`, here and below.
    """
    attends = attend if isinstance(attend, (list, tuple)) else [attend] * len(blocks)
    if len(attends) != len(blocks) or not all(map(callable, attends)):
        raise ValueError(f"attend must be one function or one for each of the {len(blocks)} "
                         f"blocks, got {len(attends) if attends is attend else repr(attend)}")
    for params, layer in zip(blocks, attends):
        x = encoder_block(x, params, layer, mask, **style)
    return x


def readout(x, params):
    """Logits: closing norm, if `params` has one, and output weights W_out (d, v), b_out (v,).

    >>> readout(np.ones((1, 2)), {"W_out": np.ones((2, 1)), "b_out": np.array([0.5])})
    array([[2.5]])
    """
    if "norm" in params:
        x = layer_norm(x, params["norm"]["scale"], params["norm"]["shift"])
    return project(x, params["W_out"]) + params["b_out"]


def language_model(tokens, params, attend, **style):
    """Causal language model: logits (..., N, v) of the token after each position.

    >>> params = init_language_model(np.random.default_rng(0), 5, d=4, hidden=8, layers=1)
    >>> language_model(np.array([0, 3, 1]), params, lambda x, z, params, mask: 0.0 * x).shape
    (3, 5)
    """
    x = embedding(params["embed"], tokens)
    return readout(encoder(x, params["blocks"], attend, causal(x.shape[-2]), **style), params)


def translator(source, target, params, sites, *, source_mask=None, positions=(None, None),
               **style):
    """Encoder and decoder: logits (..., N, v) of the target's next token after each position.

    source (..., M), target (..., N) integers, which begins with a start token. sites: `attend` at A
    (encoder), B (from decoder to encoder), C (decoder). source_mask (..., 1, 1, M) is False where
    the source is padding. positions (M, d), (N, d): added to the embeddings once, as in the
    original Transformer.
    """
    own_x, cross, own_y = sites
    x, y = embedding(params["embed"], source), embedding(params["embed_target"], target)
    x, y = (stream if t is None else stream + t for stream, t in zip((x, y), positions))
    x = encoder(x, params["blocks"], own_x, source_mask, **style)
    if "norm_source" in params:
        x = layer_norm(x, params["norm_source"]["scale"], params["norm_source"]["shift"])
    for block in params["decoder_blocks"]:
        y = decoder_block(y, x, block, own_y, cross, causal(y.shape[-2]), source_mask, **style)
    return readout(y, params)


def init_attention(rng, d, names=WEIGHTS):
    """Square weights (d, d), one for each name; all parameters are float32."""
    return {name: _normal(rng, d, d) for name in names}


def init_block(rng, d, hidden, names=WEIGHTS, *, cross=False):
    """Parameters of an encoder block, or with `cross` of a decoder block."""
    params = {"attend": init_attention(rng, d, names), "norm_attend": _norm(d),
              "feed": {"W_1": _normal(rng, d, hidden), "b_1": np.zeros(hidden, "float32"),
                       "W_2": _normal(rng, hidden, d), "b_2": np.zeros(d, "float32")},
              "norm_feed": _norm(d)}
    if cross:
        params |= {"cross": init_attention(rng, d, names), "norm_cross": _norm(d)}
    return params


def init_language_model(rng, vocabulary, *, d, hidden, layers, names=WEIGHTS):
    """Parameters of `language_model`; input and output weights are not tied.

    >>> size(init_language_model(np.random.default_rng(0), 5, d=4, hidden=8, layers=1))
    209
    """
    return {"embed": rng.standard_normal((vocabulary, d)).astype("float32"),
            "blocks": [init_block(rng, d, hidden, names) for _ in range(layers)],
            "norm": _norm(d), **_out(rng, d, vocabulary)}


def init_translator(rng, source, target, *, d, hidden, layers, names=WEIGHTS, closing=True):
    """Parameters of `translator`, `layers` blocks on each side; source and target count tokens.

    closing: a norm after the last block of each side, which a pre-norm stream needs.
    """
    params = {"embed": rng.standard_normal((source, d)).astype("float32"),
              "embed_target": rng.standard_normal((target, d)).astype("float32"),
              "blocks": [init_block(rng, d, hidden, names) for _ in range(layers)],
              "decoder_blocks": [init_block(rng, d, hidden, names, cross=True)
                                 for _ in range(layers)], **_out(rng, d, target)}
    return params | {"norm": _norm(d), "norm_source": _norm(d)} if closing else params


def _normal(rng, *shape):
    # Half of the usual 1 / sqrt(fan in), which suits the post-norm blocks of lesson 09: from the
    # whole, exponential attention ends at 93 instead of 98 %, polynomial at 75 instead of 87 %.
    return (0.5 * rng.standard_normal(shape) / sqrt(shape[0])).astype("float32")


def _norm(d):
    return {"scale": np.ones(d, "float32"), "shift": np.zeros(d, "float32")}


def _out(rng, d, v):
    return {"W_out": _normal(rng, d, v), "b_out": np.zeros(v, "float32")}


def size(params):
    """Number of parameters in a nest of dicts, lists and arrays.

    >>> size({"a": [np.ones((2, 3))], "b": np.ones(2)})
    8
    """
    if isinstance(params, (dict, list)):
        return sum(map(size, params.values() if isinstance(params, dict) else params))
    return params.size


__test__ = {f.__name__: f.__doc__       # doctest does not find the examples of a primitive itself
            for f in (layer_norm, gelu, embedding, cross_entropy)}
