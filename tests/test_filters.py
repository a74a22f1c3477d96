"""Filters one query and one key at a time, and what keeps the hidden out."""
import autograd.numpy as anp
import numpy as np
import pytest
from autograd import grad
from conftest import assert_gradient

from ksvd_ref.attention.filters import (causal, memory, pairs, shown, steps, strided, taking_part,
                                        visible, window)


@pytest.mark.parametrize("N, M", [(1, 1), (4, 4), (3, 7), (7, 3), (1, 5)])
def test_filters(N, M):
    """S.24, S.25, S.26, S.27. One query and one key at a time."""
    o = M - N
    grid = lambda visible: np.array([[visible(i, j) for j in range(M)] for i in range(N)])
    np.testing.assert_array_equal(causal(N, M), grid(lambda i, j: j <= i + o))
    for width in (1, 2, 9):
        np.testing.assert_array_equal(window(N, width, M=M),
                                      grid(lambda i, j: 0 <= i + o - j < width))
        local = grid(lambda i, j: 0 <= i + o - j < width)
        column = grid(lambda i, j: j <= i + o and (i + o - j) % width == 0)
        np.testing.assert_array_equal(strided(N, width, M=M), local | column)
        np.testing.assert_array_equal(              # the docstring's formula for one head
            strided(N, width, M=M) & ~window(N, width, M=M) | window(N, 1, M=M), column)
    if o >= 0:
        np.testing.assert_array_equal(memory(N, o), causal(N, M))


def test_filters_default_to_square():
    for mask in (causal(5), window(5, 2), strided(5, 2), memory(5, 0)):
        assert mask.shape == (5, 5) and mask.dtype == bool and not mask[0, 1:].any()
    assert strided(12, 4).sum() == 54 and causal(12).sum() == 78


@pytest.mark.parametrize("N, l", [(12, 4), (30, 5), (17, 3)])
def test_two_strided_layers_reach_everything(N, l):
    local = window(N, l)
    column = strided(N, l) & ~local | window(N, 1)
    reached = column.astype(int) @ local.astype(int) > 0
    np.testing.assert_array_equal(reached, causal(N))


def test_filters_refuse():
    for call in (lambda: causal(0), lambda: causal(3, 0), lambda: window(3, 0),
                 lambda: strided(3, -1), lambda: memory(3, -1), lambda: memory(3, 0.5)):
        with pytest.raises(ValueError, match="must be an integer"):
            call()


# --- masks -----------------------

def test_a_mask_of_the_host_goes_where_the_data_are(lib):
    """Of NumPy or of lists: it is a pattern. A mask of another library is a mistake."""
    Q, K, X = (lib.array(np.ones(shape)) for shape in ((2, 1), (3, 1), (4, 5, 3, 1)))
    for mask in ([True, False, True], np.array([True, False, True])):
        B = pairs(mask, Q, K)
        assert B.shape == (1, 3) and B.dtype == lib.xp.bool
        at = steps(mask, X, 3)
        assert at.shape == (1, 3, 1) and at.dtype == lib.xp.bool
        np.testing.assert_array_equal(lib.host(visible(at, X))[0, 0, :, 0], [1, 0, 1])
    assert steps(np.ones((4, 3), bool), X, 3).shape == (4, 1, 3, 1)
    assert steps(np.ones((4, 5, 3), bool), X, 2).shape == (4, 5, 3, 1)
    assert pairs(None, Q, K) is None and steps(None, Q, 2) is None
    assert taking_part(None) == (None, None)


@pytest.mark.parametrize("mask, error, match", [
    ([1, 0, 1], TypeError, "mask must be boolean, True for what is visible, got int64"),
    (np.zeros(3), TypeError, "mask must be boolean"),
    ([True] * 4, ValueError, "mask must have shape"),
    (True, ValueError, "mask must have shape"),
    (np.ones((7, 3), bool), ValueError, "mask must have shape")])
def test_masks_that_fit_nothing(mask, error, match):
    for call in (lambda: pairs(mask, np.ones((2, 1)), np.ones((3, 1))),
                 lambda: steps(mask, np.ones((4, 5, 3, 1)), 3)):
        with pytest.raises(error, match=match):
            call()


def test_who_takes_part():
    B = np.array([[False, True, False], [False, False, False]])
    queries, keys = taking_part(B)
    np.testing.assert_array_equal(queries, [[True], [False]])
    np.testing.assert_array_equal(keys, [[False], [True], [False]])


@pytest.mark.parametrize("garbage", [np.nan, np.inf, -np.inf, 1e30])
def test_nothing_hidden_comes_through(lib, garbage):
    """Neither a value nor a derivative; what is visible must be finite."""
    mask = np.array([[True], [False], [True]])
    X = np.array([[1.0], [garbage], [3.0]])
    on_lib = lib.xp.asarray(mask, **lib.place)
    np.testing.assert_array_equal(lib.host(shown(on_lib, lib.array(X), "X")), [[1], [0], [3]])
    slope = grad(lambda X: anp.sum(visible(mask, X) ** 2))(X)
    np.testing.assert_array_equal(slope, [[2], [0], [6]])
    if not np.isfinite(garbage):
        with pytest.raises(ValueError, match=r"X must be finite, .* \(1, 0\)"):
            shown(None, lib.array(X), "X")


def test_derivative_of_what_is_visible():
    """Where autograd's own is wrong: copies made by a mask add up, and float32 stays float32."""
    rng = np.random.default_rng(0)
    X, mask, C = rng.standard_normal((3, 1)), rng.random((2, 3, 4)) < 0.5, rng.random((2, 3, 4))
    f = lambda X: anp.sum(C * visible(mask, X, 0.3) ** 2)
    assert_gradient(f, X)
    assert_gradient(lambda X: anp.sum(grad(f)(X) ** 2), X)
    assert grad(f)(X.astype("float32")).dtype == np.float64     # C is
    assert grad(lambda X: anp.sum(visible(mask, X)))(X.astype("float32")).dtype == np.float32
