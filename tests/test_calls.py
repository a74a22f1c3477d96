"""What holds for every public function: it names its arrays, refuses, keeps dtype and device, and
writes into nothing. The calls are those of calls.py."""
import inspect

import array_api_strict as strict
import autograd.numpy as anp
import numpy as np
import pytest
from autograd import grad
from calls import BARE, OPEN, OTHERS, flat, public, table
from conftest import LIBRARIES

CALLS = table()
ROUGH = {*(name for name in CALLS if "gradients" in name), "large.golub_kahan", "large.factor",
         "large.merge", "large.solve_factor", "nystrom.pivots", "primal.from_factors"}
each = pytest.mark.parametrize("name", [name for name in CALLS if name not in OPEN
                                        and name.split(".")[0] not in BARE])


def test_every_public_function_is_called():
    called = {name.split(" ")[0] for name in CALLS} | set(OTHERS)
    assert set(public()) <= called and all(OTHERS.values())


def leaves(call):
    """(argument, place in a tuple or None, letters of its axes) of every array of a call."""
    for key, A in call.arrays.items():
        axes = call.function.axes[key]
        for place, one in enumerate(axes.values()) if isinstance(axes, dict) else [(None, axes)]:
            if isinstance(one, str):
                letters = [letter.lstrip("23456789") for letter in one.lstrip("~").split()]
                yield key, place, [letter for letter in letters if letter not in ("...", "*")]


def changed(call, key, place, change):
    """Run a call with one array changed."""
    A = call.arrays[key]
    if place is None:
        A = change(np.asarray(A))
    else:
        parts = [change(np.asarray(B)) if n == place else B for n, B in enumerate(A)]
        A = type(A)(*parts) if hasattr(A, "_fields") else tuple(parts)
    return call.function(**{**call.arrays, key: A}, **call.others)


def with_nan(A):
    A = np.array(A, dtype=float)
    A[(0,) * A.ndim] = np.nan
    return A


@each
def test_every_array_is_declared_and_shown(name):
    """No public function forgot an argument, and help says its shape."""
    call = CALLS[name]
    declared = {key for key, axes in call.function.axes.items() if not callable(axes)}
    assert set(call.arrays) <= declared
    undeclared = set(inspect.signature(call.function).parameters) - set(call.function.axes) \
        - set(call.others)
    for key in undeclared:
        parameter = inspect.signature(call.function).parameters[key]
        assert parameter.kind is parameter.VAR_KEYWORD or parameter.default is None or callable(
            parameter.default) or isinstance(parameter.default, (str, bool)), key
    for key in declared:
        assert f"{key} (" in call.function.__doc__ or f"{key} = (" in call.function.__doc__


@each
def test_refusals_name_the_argument(name):
    """NaN, other axes and lengths, two libraries; the kinds of bad arrays are in test_inputs."""
    nan_is_refused(name)
    other_axes_and_lengths_are_refused(name)
    two_libraries_are_refused(name)


def nan_is_refused(name):
    call = CALLS[name]
    for key, place, _ in leaves(call):
        part = key if place is None else list(call.function.axes[key])[place]
        with pytest.raises(ValueError, match=rf"\b{part} must be finite, .* in entry \("):
            changed(call, key, place, with_nan)


def other_axes_and_lengths_are_refused(name):
    """An axis less; nothing in it; an axis shorter than another that has the same letter."""
    call, seen = CALLS[name], set()
    for key, place, letters in leaves(call):
        words = rf"{key}[\w.]* must "
        if letters:
            with pytest.raises(ValueError, match=words + r"have .*got shape \("):
                changed(call, key, place, lambda A: A.ravel()[0])
        if place is None and np.ndim(call.arrays[key]):
            with pytest.raises(ValueError, match=words + "not be empty"):
                changed(call, key, place, lambda A: A[:0])
        for axis, letter in enumerate(reversed(letters), 1):
            if letter in seen:
                with pytest.raises(ValueError, match=r"must have shape .*, got \("):
                    changed(call, key, place, lambda A: np.delete(A, 0, axis=-axis))
            seen.add(letter)


def two_libraries_are_refused(name):
    """One array of another library, where there are two or more."""
    found = list(leaves(CALLS[name]))
    for key, place, _ in found if len(found) > 1 else ():
        with pytest.raises(TypeError, match="one library expected, got array_api_strict and numpy"):
            changed(CALLS[name], key, place, strict.asarray)


@pytest.mark.parametrize("name", CALLS)
def test_pure(name):
    """Writes into no argument, and gives the same when called again."""
    def frozen(A):
        A = np.array(A)
        A.flags.writeable = False
        return A
    one, two = CALLS[name].run(frozen), CALLS[name].run(frozen)
    assert one
    for A, B in zip(one, two, strict=True):
        np.testing.assert_array_equal(A, B, strict=True)


@pytest.mark.parametrize("name", CALLS)
def test_library_dtype_and_device_are_kept(name):
    """On every library and device the numbers of NumPy's float64.

    Tolerance: a few roundings of a decomposition whose sigma differ by 0.3 or more.
    """
    want = CALLS[name].run()
    for one in LIBRARIES:
        lib = one.values[0]()
        got = CALLS[name].run(lambda A: lib.array(A) if hasattr(A, "shape") else A)
        for A, B in zip(got, want, strict=True):
            np.testing.assert_allclose(lib.host(A), B, rtol=0, err_msg=one.id,
                                       atol=lib.tol * max(1.0, np.abs(B).max()))


@each
def test_lists_are_taken(name):
    """Nested lists in place of arrays give the same."""
    call = CALLS[name]
    lists = {key: tuple(getattr(B, "tolist", lambda: B)() for B in A) if isinstance(A, tuple)
             else A.tolist() for key, A in call.arrays.items()}
    for A, B in zip(flat(call.function(**lists, **call.others)),
                    flat(call.function(**call.arrays, **call.others)), strict=True):
        np.testing.assert_array_equal(A, B)


@each
def test_float32_gets_a_float32_gradient(name):
    """Of every array argument that can be differentiated."""
    call = CALLS[name]
    single = lambda A: A.astype("float32") if hasattr(A, "astype") else A
    arrays = {key: type(A)(*map(single, A)) if isinstance(A, tuple) else single(A)
              for key, A in call.arrays.items()}
    for key in arrays if name not in ROUGH else ():
        if not isinstance(arrays[key], tuple):
            loss = lambda A: sum(anp.sum(B * B) for B in flat(call.function(
                **{**arrays, key: A}, **call.others)))
            assert grad(loss)(arrays[key]).dtype == np.float32, key


@each
def test_the_reader_s_numpy_settings_stay_out_of_it(name):
    """Under np.seterr(all="raise"): the same results, and gradients where there are some."""
    call, want = CALLS[name], CALLS[name].run()
    with np.errstate(all="raise"):
        for A, B in zip(call.run(), want, strict=True):
            np.testing.assert_array_equal(A, B)
        for key, A in call.arrays.items() if name not in ROUGH else ():
            if not isinstance(A, tuple):
                grad(lambda A: sum(anp.sum(B * B) for B in flat(call.function(
                    **{**call.arrays, key: A}, **call.others))))(A)
