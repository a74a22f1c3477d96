"""The derivatives by hand, on every library, against autograd."""
import autograd.numpy as anp
import numpy as np
import pytest
from autograd import grad

from conftest import assert_gradient

from ksvd_ref.attention import (PrimalWeights, Scores, approximation_loss, approximation_loss_vjp,
                                even_rows, even_rows_vjp, paper_loss, paper_loss_vjp,
                                primal_attention, primal_attention_vjp, published_init,
                                published_loss, published_loss_vjp)

from test_layer import (B, D_OUT, H, N, NAMES, PADDED, S, SETTING, moved, queries_and_keys,
                        some_weights, task)
from test_losses import KERNELS


@SETTING
def test_vjps_by_hand(lib, setting):
    """The chain rule by hand, on every library, against autograd in float64."""
    f, arguments, C, options = task(setting)
    want = [None if X is None else grad(f, n)(*arguments) for n, X in enumerate(arguments)]
    Q, K, *weights, F = (None if X is None else lib.array(X) for X in arguments)
    options, weights = moved(lib, options), PrimalWeights(*weights)
    padding = {"mask": options["mask"]} if "mask" in options else {}
    output, scores = primal_attention(Q, K, weights, F=F, **options)
    paper, more = paper_loss_vjp(2.0 * lib.array(C[1]) * paper_loss(scores, weights, **padding),
                                 scores, weights, **padding)
    published, most = published_loss_vjp(
        2.0 * lib.array(C[2]) * published_loss(scores, weights, **padding), scores, weights,
        **padding)
    g_scores = Scores(*(a + b for a, b in zip(paper, published)))
    g_Q, g_K, g_weights, g_F = primal_attention_vjp(
        2.0 * lib.array(C[0]) * output, g_scores, scores, Q, K, weights, F=F, **options)
    got = [g_Q, g_K, *(a + b + c for a, b, c in zip(g_weights, more, most)), g_F]
    for name, a, b in zip(NAMES, got, want):
        assert (a is None) == (b is None), name
        if a is not None:
            a = lib.host(a)
            assert a.shape == b.shape, name
            atol = 10 * lib.tol * np.abs(b).max()           # J^2 multiplies what was rounded
            np.testing.assert_allclose(a, b, rtol=10 * lib.tol, atol=atol, err_msg=name)


@pytest.mark.parametrize("setting", KERNELS)
def test_approximation_loss_vjp(lib, setting):
    """K.41. By hand, on every library, against autograd, and that against central differences."""
    options, rng = dict(KERNELS[setting][0]), np.random.default_rng(25)
    F, C = options.pop("F", None), rng.standard_normal((B, H))
    arguments = [*rng.standard_normal((2, B, H, N, S)), *queries_and_keys(rng=rng), F]

    def f(E, R, Q, K, F):
        return anp.sum(C * approximation_loss((E, R), Q, K, F=F, **options))
    E, R, Q, K, F = (None if X is None else lib.array(X) for X in arguments)
    scores, g_Q, g_K, g_F = approximation_loss_vjp(lib.array(C), (E, R), Q, K, F=F,
                                                   **moved(lib, options))
    for n, (got, X) in enumerate(zip((*scores, g_Q, g_K, g_F), arguments)):
        assert (got is None) == (X is None)
        if X is not None:
            want = grad(f, n)(*arguments)
            if (lib.xp, lib.name) == (np, "float64"):       # the referee's referee, once
                assert_gradient(lambda A: f(*arguments[:n], A, *arguments[n + 1:]), X,
                                directions=4)
            np.testing.assert_allclose(lib.host(got), want, rtol=0,
                                       atol=10 * lib.tol * np.abs(want).max())


@pytest.mark.parametrize("mask", [None, PADDED, PADDED & (np.arange(B) > 0)[:, None]],
                         ids=["whole", "padded", "padding alone"])
def test_even_rows_vjp(lib, mask):
    """The transpose: <g, F(X)> = <F^T(g), X> for every X, so on a basis."""
    options = moved(lib, {} if mask is None else {"mask": mask})
    basis = np.eye(B * N * 2).reshape(-1, B, N, 2)
    for n in (1, 3, 7, 20):
        g = np.random.default_rng(9).standard_normal((B, n, 2))
        want = np.array([np.sum(g * even_rows(x, n, mask=mask)) for x in basis]).reshape(B, N, 2)
        got = lib.host(even_rows_vjp(lib.array(g), N, **options))
        np.testing.assert_allclose(got, want, rtol=lib.tol, atol=lib.tol)


def test_long_sequences_go_block_by_block():
    """The derivative in blocks of 512 and of 88 rows is that of the whole, and autograd's too."""
    rng = np.random.default_rng(19)
    Q, K = rng.standard_normal((2, 1, 8, 600, 64))
    weights = published_init(rng, 8, 64, 5, 96)
    C = rng.standard_normal((1, 8, 600, 96))

    def by_matmul(Q, K, W_e, W_o, b_o):
        Phi, Psi = (X / anp.sqrt(anp.sum(X * X, axis=-1, keepdims=True)) for X in (Q, K))
        S = anp.concatenate([Phi @ W_e, Psi @ weights.W_r], axis=-1)
        return anp.sum(C * (S @ W_o + b_o) ** 2)

    def ours(Q, K, W_e, W_o, b_o):
        changed = weights._replace(W_e=W_e, W_o=W_o, b_o=b_o)
        return anp.sum(C * primal_attention(Q, K, changed)[0] ** 2)

    output, scores = primal_attention(Q, K, weights)
    zero = Scores(*map(np.zeros_like, scores))
    g_Q, g_K, g, _ = primal_attention_vjp(2.0 * C * output, zero, scores, Q, K, weights)
    arguments = Q, K, weights.W_e, weights.W_o, weights.b_o
    for n, by_hand in enumerate((g_Q, g_K, g.W_e, g.W_o, g.b_o)):
        want = grad(by_matmul, n)(*arguments)
        for got in (by_hand, grad(ours, n)(*arguments)):
            np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-11 * np.abs(want).max())


def test_shapes_of_derivatives():
    """One for each number of the loss: a bare 1 would be broadcast, and its sum is not B."""
    (Q, K), weights = queries_and_keys(), some_weights()
    output, scores = primal_attention(Q, K, weights)
    for vjp, bad in ((paper_loss_vjp, (B,)), (paper_loss_vjp, ()), (paper_loss_vjp, (7, B, H)),
                     (published_loss_vjp, (B, H)), (published_loss_vjp, ())):
        with pytest.raises(ValueError, match="g must have "):
            vjp(np.ones(bad), scores, weights)
    for bad in ((), (D_OUT,), (N, D_OUT), (1, *output.shape[1:])):
        with pytest.raises(ValueError, match="g_output must have "):
            primal_attention_vjp(np.ones(bad), scores, scores, Q, K, weights)
    short = Scores(scores.E[:1], scores.R[:1])
    with pytest.raises(ValueError, match="g_scores.E must have shape"):
        primal_attention_vjp(output, short, scores, Q, K, weights)
    with pytest.raises(ValueError, match="scores.E must have shape"):
        primal_attention_vjp(output, scores, short, Q, K, weights)


def test_derivatives_as_lists():
    (Q, K), weights = queries_and_keys(), some_weights()
    output, scores = primal_attention(Q, K, weights)
    lists = [A.tolist() for A in scores]
    want = primal_attention_vjp(output, scores, scores, Q, K, weights)
    got = primal_attention_vjp(output.tolist(), lists, lists, Q.tolist(), K.tolist(),
                               [A.tolist() for A in weights])
    for a, b in zip((*got[:2], *got[2]), (*want[:2], *want[2])):
        np.testing.assert_array_equal(a, b)


def test_derivative_too_large_for_the_precision():
    (Q, K), weights = queries_and_keys(), some_weights()
    output, scores = primal_attention(Q, K, weights)
    big = weights._replace(W_e=1e200 * weights.W_e)
    with pytest.raises(ValueError, match="primal_attention_vjp overflows"):
        primal_attention_vjp(1e200 * output, scores, scores, Q, K, big)


@pytest.mark.parametrize("scale", [1e-200, 1e-100, 1e100, 1e200])
def test_cosine_has_no_scale(scale):
    """A derivative by scale * Q is that by Q, divided by the scale."""
    (Q, K), weights = queries_and_keys(), some_weights()
    output, scores = primal_attention(Q, K, weights)
    want = primal_attention_vjp(output, scores, scores, Q, K, weights)
    got = primal_attention_vjp(output, scores, scores, scale * Q, K, weights)
    np.testing.assert_allclose(scale * got[0], want[0], rtol=1e-12, atol=1e-12)
    for a, b in zip(got[2], want[2]):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
    g = np.ones((B, H))
    (E, R), g_Q, _, _ = approximation_loss_vjp(g, scores, Q, K)
    got = approximation_loss_vjp(g, scores, scale * Q, K)
    for a, b in zip((*got[0], scale * got[1]), (E, R, g_Q)):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-11)
    np.testing.assert_allclose(approximation_loss(scores, scale * Q, K),
                               approximation_loss(scores, Q, K), rtol=1e-12)
