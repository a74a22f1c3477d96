"""What is refused, proven once for the decorator, and for the kinds of numbers."""
import array_api_strict as strict
import autograd.numpy as anp
import numpy as np
import pytest
from autograd import grad
from conftest import BAD

from ksvd_ref import dual, kernels, primal
from ksvd_ref.inputs import arrays, as_array, call_back, integer, number

ONE = np.array([[1.0, 2.0], [3.0, 4.0]])
PAIR = {"left": "N s", "sigma": "s"}


@arrays(K="N M", pair=PAIR, B="... N M", T="2N M", V="* M d", W="* M d", L="~N M", n=integer(1),
        C="N M")
def everything(K=None, pair=None, B=None, T=None, V=None, W=None, L=None, n=1, C=None):
    """All kinds of axes."""
    return K, pair, B, T, V, W, L, n, C


def refused(error, words, **arguments):
    with pytest.raises(error) as caught:
        everything(**arguments)
    assert words in str(caught.value), str(caught.value)


# --- kinds of bad arrays

@pytest.mark.parametrize("kind", BAD)
def test_bad_arrays_are_refused_by_name(kind):
    """As an argument of its own and as the part of a tuple."""
    spoil, error, word = BAD[kind]
    for name, arguments in (("K", {"K": spoil(ONE)}), ("pair.left", {"pair": (spoil(ONE), [1, 1])}),
                            ("C", {"K": ONE, "C": spoil(ONE)})):
        with pytest.raises(error) as caught:
            everything(**arguments)
        assert name in str(caught.value) and word in str(caught.value), str(caught.value)


@pytest.mark.parametrize("kind", ["nan", "inf", "more-axes", "no-rows", "complex"])
def test_bad_arrays_of_another_library_are_refused(kind):
    spoil, error, word = BAD[kind]
    with pytest.raises(error, match="K"):
        everything(strict.asarray(spoil(ONE)))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("entry", [(0, 0), (1, 0), (2, 4)])
def test_the_first_bad_entry_is_named(lib, value, entry):
    K = np.ones((3, 5))
    K[entry] = K[2, 4] = value
    for name in "KL":                               # L is looked at once the result shows it
        with pytest.raises(ValueError, match=rf"{name} must be finite, .*entry \({entry[0]}, "
                           rf"{entry[1]}\) of shape \(3, 5\)"):
            everything(**{name: lib.array(K)})


def test_masked_arrays_in_a_list_are_refused():
    """np.array would drop the mask without a word."""
    row = np.ma.masked_array([1.0, 2.0], mask=[False, True])
    refused(TypeError, "K is a masked array", K=[row, row])


@pytest.mark.parametrize("data", [3.0, [], [[]], np.zeros((3, 0)), [[1.0], [2.0, 3.0]]])
def test_no_matrix_at_all(data):
    with pytest.raises(ValueError):
        everything(data)


@pytest.mark.parametrize("dtype", ["longdouble", "datetime64[s]", [("a", "f8")]])
def test_unusual_dtypes_are_refused(dtype):
    refused(TypeError, "must hold real numbers", K=np.zeros((2, 2), dtype=dtype))


# --- what is let in, and as what

def test_library_dtype_and_device_are_kept(lib):
    np.testing.assert_array_equal(lib.host(everything(lib.array(ONE))[0]), ONE)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8", "int32", "uint64"])
@pytest.mark.parametrize("xp", [np, strict])
def test_integers_and_booleans_become_float64(xp, dtype):
    got = everything(xp.asarray([[0, 1]], dtype=getattr(xp, dtype)))[0]
    assert got.dtype == xp.float64
    np.testing.assert_array_equal(np.asarray(got), [[0.0, 1.0]])


@pytest.mark.parametrize("dtype", [">f8", "<f8", ">f4", ">i4"])
def test_the_other_byte_order_is_taken(dtype):
    got = everything(ONE.astype(dtype))[0]
    assert got.dtype.isnative and got.dtype == ("float32" if dtype == ">f4" else "float64")
    np.testing.assert_array_equal(got, ONE)


def test_what_is_no_array_is_told_how():
    class Frame:
        def to_numpy(self):
            return ONE
    f = arrays(K="N M")(lambda K: K)
    with pytest.raises(TypeError, match="K must be an array, got None"):
        f(None)
    with pytest.raises(TypeError, match=r"got test_inputs.*Frame: pass its .to_numpy\(\)"):
        f(Frame())


@pytest.mark.parametrize("thing, error, words", [
    ("abc", TypeError, "K: an array of NumPy, .* expected, got builtins.str"),
    ({"a": 1}, TypeError, "K: .* got builtins.dict"), (range(3), TypeError, "K: .* got built"),
    ([[1, 2], [3]], ValueError, "K must have rows of one length: ")])
def test_whatever_it_is_the_argument_is_named(thing, error, words):
    with pytest.raises(error, match=words):
        everything(thing)


def test_a_number_that_is_learned_is_told_how():
    for value in (np.ones(2), np.ones((1, 1))):
        with pytest.raises(TypeError, match="scale must be one plain number: .*multiply the data"):
            kernels.softmax(ONE, ONE, scale=value)
    with pytest.raises(TypeError, match="gamma must be one plain number: to learn"):
        grad(lambda gamma: kernels.rbf(ONE, ONE, gamma=gamma)[0, 1])(1.0)


def test_float16_becomes_float32():
    got = everything(ONE.astype("float16"))[0]
    np.testing.assert_array_equal(got, ONE.astype("float32"), strict=True)


@pytest.mark.filterwarnings("ignore:the matrix subclass")
@pytest.mark.parametrize("make", [np.asmatrix, np.ndarray.tolist, list, tuple])
def test_lists_and_np_matrix(make):
    got = everything(make(ONE))[0]
    assert type(got) is np.ndarray          # a np.matrix would make * a matrix product
    np.testing.assert_array_equal(got, ONE)


def test_traced_entries_of_a_list_are_differentiable():
    x = np.array([3.0, 4.0])
    got = grad(lambda x: anp.sum(everything([[x[0], 2.0], [x[1], x[0]]])[0] ** 2))(x)
    np.testing.assert_array_equal(got, [12.0, 8.0])         # 2 * 2 * 3, 2 * 4


# --- axes

def test_a_letter_is_one_length():
    refused(ValueError, "C must have shape (N, M) with M = 2, as K of shape (2, 2), got (2, 1)",
            K=ONE, C=ONE[:, :1])
    refused(ValueError, "pair.left must have shape (N, s) with N = 2, as K of shape (2, 2), "
            "got (3, 1)", K=ONE, pair=(np.ones((3, 1)), [1.0]))
    refused(ValueError, "pair.sigma must have shape (s) with s = 1, as pair.left of shape (2, 1), "
            "got (2,)", pair=(np.ones((2, 1)), [1.0, 2.0]))


def test_axes_before():
    """Dots are the same axes in all; a star broadcasts; 2N is twice N."""
    everything(B=np.ones((3, 4, 2, 2)), V=np.ones((5, 1, 2, 1)), W=np.ones((3, 2, 1)))
    refused(ValueError, "B must have 2 axes or more, (..., N, M), got shape (2,)", B=[1.0, 2.0])
    refused(ValueError, "V must have shape (*, M, d) with M = 2, as K of shape (2, 2), "
            "got (5, 3, 1)", K=ONE, V=np.ones((5, 3, 1)))
    refused(ValueError, "leading axes of V and W must be equal or 1, got (2, 1, 1) and (3, 1, 1)",
            V=np.ones((2, 1, 1)), W=np.ones((3, 1, 1)))
    everything(K=ONE, T=np.ones((4, 2)))
    refused(ValueError, "T must have shape (2N, M) with N = 2, as K of shape (2, 2), got (5, 2)",
            K=ONE, T=np.ones((5, 2)))
    refused(ValueError, "T must have shape (2N, M) with N = 2", T=np.ones((5, 2)))


def test_dots_are_the_same_axes_in_all():
    f = arrays(A="... N", B="... M")(lambda A, B: A)
    f(np.ones((3, 2)), np.ones((3, 5)))
    with pytest.raises(ValueError, match=r"B must have shape \(..., M\) with ... = \(3,\), as A"):
        f(np.ones((3, 2)), np.ones((1, 5)))


def test_parts_may_have_no_columns():
    left, sigma = everything(pair=(np.ones((3, 0)), np.ones(0)))[1]
    assert (left.shape, sigma.shape) == ((3, 0), (0,))
    refused(ValueError, "got (2,)", pair=(np.ones((3, 0)), np.ones(2)))


@pytest.mark.parametrize("pair, error, came", [
    (None, ValueError, "NoneType"), (3.0, ValueError, "float"), ((ONE,), ValueError, "tuple of 1"),
    ({"left": ONE, "sigma": [1.0, 1.0]}, ValueError, "dict of 2"),
    (dual.solve(ONE), TypeError, "a Dual (H_e, sigma, H_r)")])
def test_a_tuple_is_no_other_one(pair, error, came):
    f = arrays(pair=PAIR)(lambda pair: pair)
    with pytest.raises(error) as caught:
        f(pair)
    assert f"pair must be (left, sigma), got {came}" in str(caught.value)


def test_a_solution_of_the_other_wing_is_refused():
    one, two = dual.solve(ONE), primal.solve(ONE, ONE)
    for call in (lambda: dual.e_scores(ONE, two), lambda: primal.from_dual(two, ONE, ONE),
                 lambda: primal.to_dual(one, ONE, ONE), lambda: primal.r_scores(ONE, one)):
        with pytest.raises(TypeError, match=r"must be \([HW]_e, sigma, [HW]_r\), got a Dual|Pr"):
            call()


def test_two_libraries_are_refused_whoever_comes_first():
    for K, C in ((ONE, strict.asarray(ONE)), (strict.asarray(ONE), ONE.tolist())):
        refused(TypeError, "one library expected, got array_api_strict and numpy", K=K, C=C)
    refused(TypeError, "got array_api_strict and numpy", pair=(ONE, strict.asarray([1.0, 1.0])))


# --- the call

def test_wrong_calls_are_python_s_own_errors():
    for call in (lambda: kernels.rbf(ONE), lambda: kernels.rbf(ONE, ONE, 1.0),
                 lambda: kernels.rbf(ONE, ONE, gama=1.0), lambda: kernels.rbf(ONE, X=ONE)):
        with pytest.raises(TypeError, match=r"rbf\(\) (missing|takes|got)"):
            call()


def test_what_is_called_inside_is_not_checked_again():
    inner, seen = arrays(K="N M")(lambda K: seen.append(K)), []
    outer = arrays(K="N M")(lambda K, f: f(K))
    outer(ONE, lambda K: inner("no array"))
    assert seen == ["no array"]
    with pytest.raises(TypeError):
        inner("no array")                           # outside again, also after an error
    with pytest.raises(ZeroDivisionError):
        outer(ONE, lambda K: 1 / 0)
    with pytest.raises(TypeError):
        inner("no array")


def test_what_the_reader_passes_is_checked():
    """A kernel is called from inside; what it calls is refused as from outside."""
    with pytest.raises(ValueError, match="X must have 2 axes"):
        kernels.gram(lambda x, z: kernels.rbf(x, z)[0, 0], ONE, ONE)
    assert call_back(kernels.linear, [[1.0]], [[2.0]]) == 2.0


def test_a_result_that_overflows_is_refused():
    f = arrays(K="N M", cure="scale K down")(lambda K: (1.0, (K, K * K)))
    with np.errstate(all="raise"):                  # the reader's setting stays out of it
        with pytest.raises(ValueError, match="<lambda> overflows or is undefined: scale K down"):
            f([[1e200]])
        assert f([[1e-200]])[1][1] == 0.0


def test_axes_can_be_read():
    assert dual.solve.axes == {"K": "N M"}
    assert "K_new (n, M)" in dual.e_scores.__doc__ and "H_e (N, s)" in dual.e_scores.__doc__


# --- numbers

@pytest.mark.parametrize("value", [2, 2.0, np.float64(2.0), np.float32(2.0), np.int64(2)])
def test_number_gives_a_python_float(value):
    got = number(above=0)(value, "gamma")
    assert type(got) is float and got == 2.0        # np.float64 would widen float32 data


@pytest.mark.parametrize("value", [0.0, -1, np.nan, np.inf, -np.inf, "2", None, 1j, [1.0, 2.0],
                                   10 ** 400], ids=str)
def test_number_refuses(value):
    with pytest.raises(ValueError, match="gamma must be a finite number above 0, got"):
        number(above=0)(value, "gamma")


def test_number_without_a_limit():
    assert number()(-3, "coef0") == -3.0
    with pytest.raises(ValueError, match="coef0 must be a finite number, got inf"):
        number()(np.inf, "coef0")


@pytest.mark.parametrize("degree", [0, -1, 1.0, 1.5, "2", None, True])
def test_integer_refuses(degree):
    with pytest.raises(ValueError, match="degree must be an integer, 1 or more, got"):
        integer(1)(degree, "degree")


def test_integers_in_a_range():
    assert [integer(0, 2)(n, "n") for n in (0, np.int64(2))] == [0, 2]
    with pytest.raises(ValueError, match="n must be an integer from 0 to 2, got 3"):
        integer(0, 2)(3, "n")
    refused(ValueError, "n must be an integer, 1 or more, got 0", n=0)
    assert type(as_array(3)) is np.ndarray
