"""What every public function asks of its arguments, said once, above the function that asks.

    @arrays(X="N d", Z="M d", gamma=number(above=0))
    def rbf(X, Z, *, gamma=1.0): ...

A letter is the length of an axis, the same in all arguments, and "2s" is twice s. Before the first
letter "..." are any axes, the same in all arguments, and "*" any axes that broadcast (batch, head).
"~" looks for NaN and infinity only where the result shows them. A named tuple is a dict of its
parts, which may have no columns. Refused by name, before anything is computed, since one infinity
makes a LAPACK SVD run for ever:

TypeError    masked, complex, object or text arrays; arrays of two libraries; a Primal for a Dual
ValueError   other axes or lengths, nothing in it, NaN, infinity; a number out of its range; and
             afterwards a result that overflows

float32 and float64 stay what they are, float16
becomes float32; lists, integers and booleans become float64. What a public function calls inside is
not checked again. In a debugger, `skip=["ksvd_ref.inputs"]` steps past all this.

No equation: it says what is refused.
"""
import functools
import inspect
import operator
from contextvars import ContextVar
from itertools import zip_longest

import numpy as np
from autograd.extend import defvjp, primitive
from autograd.tracer import isbox

from .backend import namespace, silent

_INSIDE = ContextVar("a public function is at work", default=False)
TOO_LARGE = "the data, or the parameters, are too large for this precision"


def arrays(*, cure=TOO_LARGE, **spec):
    """Decorator: these arguments are arrays with these axes, or numbers in these ranges.

    `cure` is what to do, or what is wrong, where the result overflows. The spec stays readable as
    `function.axes`.

    >>> @arrays(K="N M")
    ... def trace(K):
    ...     return K[0, 0]
    >>> trace([1.0, 2.0])
    Traceback (most recent call last):
    ValueError: K must have 2 axes, (N, M), got shape (2,)
    """
    def decorate(function):
        parameters = inspect.signature(function).parameters
        names = [n for n, p in parameters.items() if p.kind is p.POSITIONAL_OR_KEYWORD]
        spare = {n for n, p in parameters.items() if p.default is None}

        @functools.wraps(function)
        def checked(*args, **options):
            if _INSIDE.get():
                return function(*args, **options)
            given = dict(zip(names, args)) | options
            good = _admitted({name: axes for name, axes in spec.items() if name in given
                              and not (name in spare and given[name] is None)}, given)
            token = _INSIDE.set(True)
            try:
                with silent():                      # an overflow is refused below
                    result = function(*(good.get(*pair) for pair in zip(names, args)),
                                      *args[len(names):],
                                      **{name: good.get(name, x) for name, x in options.items()})
            finally:
                _INSIDE.reset(token)
            _look_at(result, function.__name__, good, spec, cure)
            return result
        checked.axes, checked.__doc__ = spec, _with_shapes(function.__doc__, spec)
        return checked
    return decorate


def call_back(function, *args, **options):
    """A function of the reader's, called from inside: what it calls is checked as outside."""
    token = _INSIDE.set(False)
    try:
        return function(*args, **options)
    finally:
        _INSIDE.reset(token)


def number(above=None):
    """Kind of an argument: a finite number, larger than `above`; the function gets a Python float.

    >>> number(above=0)(-1, "gamma")
    Traceback (most recent call last):
    ValueError: gamma must be a finite number above 0, got -1
    """
    def check(value, name):
        if isbox(value) or getattr(value, "shape", ()) != ():
            raise TypeError(f"{name} must be one plain number: to learn it, multiply the data")
        try:
            x = float(value)        # a NumPy float64 would turn float32 data into float64
        except (TypeError, ValueError, OverflowError):
            x = float("nan")
        low = float("-inf") if above is None else above
        if isinstance(value, str) or not low < x < float("inf"):
            limit = "" if above is None else f" above {above}"
            raise ValueError(f"{name} must be a finite number{limit}, got {value!r}")
        return x
    return check


def integer(least, most=None):
    """Kind of an argument: an integer in a range; the function gets a Python int.

    >>> integer(1, 3)(4, "n")
    Traceback (most recent call last):
    ValueError: n must be an integer from 1 to 3, got 4
    """
    def check(value, name):
        whole = hasattr(value, "__index__") and not isinstance(value, (bool, np.bool_)) \
            and getattr(value, "shape", ()) == ()
        if not whole or value < least or most is not None and value > most:
            limit = f", {least} or more" if most is None else f" from {least} to {most}"
            raise ValueError(f"{name} must be an integer{limit}, got {value!r}")
        return int(value)           # a NumPy int64 would turn float32 data into float64
    return check


def as_array(x, name="x", ndim=None, finite=True):
    """Real, finite, floating array, or an error that names what is wrong.

    >>> as_array([[1, 2]], "K").dtype
    dtype('float64')
    """
    xp = namespace(x)
    if x is None:
        raise TypeError(f"{name} must be an array, got None")
    if hasattr(x, "mask") or isinstance(x, (list, tuple)) and any(hasattr(y, "mask") for y in x):
        raise TypeError(f"{name} is a masked array: fill or drop the masked entries first")
    if isinstance(x, (list, tuple)):
        try:
            x = xp.array(x)                         # xp is autograd's if an entry is traced
        except ValueError as error:
            raise ValueError(f"{name} must have rows of one length: {error}") from None
    elif xp is np:
        x = np.asarray(x)                           # numpy.matrix, numpy.memmap, a bare number
        x = x if x.dtype.isnative else x.astype(x.dtype.newbyteorder("="))
    if ndim is not None and x.ndim != ndim:
        raise ValueError(f"{name} must have {ndim} axes, got shape {tuple(x.shape)}")
    if 0 in x.shape:
        raise ValueError(f"{name} must not be empty, got shape {tuple(x.shape)}")
    if x.dtype not in (xp.float32, xp.float64):
        whole = xp.isdtype(x.dtype, ("bool", "integral"))
        if not whole and str(x.dtype) != "float16":     # of which the standard does not know
            raise TypeError(f"{name} must hold real numbers (float64 or smaller, integers, "
                            f"booleans), got {x.dtype}")
        x = xp.astype(x, xp.float64 if whole else xp.float32)
    if finite and not _finite(x):
        raise ValueError(f"{name} must be finite, got NaN or infinity in {_where(x, xp)}")
    return _float32(x) if isbox(x) and x.dtype == xp.float32 else x


# autograd's own rules of where, mean and max hand float64 back to float32.
_float32 = primitive(lambda x: x)
defvjp(_float32, lambda answer, x: lambda g: g.astype(x.dtype))


def check_finite(x, what):
    """A matrix on its way to a decomposition, which would never return from an infinite one."""
    if not _finite(x):
        raise ValueError(f"{what} overflows or is undefined: {TOO_LARGE}")
    return x


def _finite(*arrays):               # one answer for all of them: on a GPU one wait
    xp = namespace(*arrays)
    found = [xp.all(xp.isfinite(x)) for x in arrays]
    return not found or bool(functools.reduce(operator.and_, found))


def _where(x, xp):
    bad = ~xp.isfinite(xp.reshape(x, (-1,)))
    place, index = int(xp.argmax(xp.astype(bad, xp.float32))), []
    for length in reversed(x.shape):
        place, last = divmod(place, length)
        index.insert(0, last)
    return f"entry {tuple(index)} of shape {tuple(x.shape)}"


def _admitted(spec, given):
    """What `spec` asks for: numbers, arrays of one library and its axes, named tuples of them."""
    parts = {name: _parts(given[name], name, axes) if isinstance(axes, dict) else [given[name]]
             for name, axes in spec.items() if not callable(axes)}
    for name, found in parts.items():
        _known(found, name)
    namespace(*(x for found in parts.values() for x in found))             # one library
    lengths, good = {}, {}                          # letter -> its length, and who set it
    for name, axes in spec.items():
        if isinstance(axes, dict):                  # stays the named tuple that it was
            good[name] = getattr(given[name], "_make", tuple)([
                _fitting(x, f"{name}.{part}", axes[part], lengths, spare=True)
                for part, x in zip(axes, parts[name])])
        else:
            good[name] = _fitting(given[name], name, axes, lengths)
    _broadcast(good, spec)
    looked = [(name, x) for name, axes, x in _leaves(good, spec)
              if not callable(axes) and _read(axes)[0]]
    if not _finite(*(x for _, x in looked)):
        for name, x in looked:                      # the first of them is named
            as_array(x, name)
    return good


def _known(arrays, name):
    try:
        return namespace(*arrays)
    except TypeError as error:
        raise TypeError(f"{name}: {error}") from None


def _parts(x, name, axes):
    """The parts of a named tuple, of a tuple that stands for one; not of another one."""
    fields = getattr(x, "_fields", None)
    if fields not in (None, tuple(axes)):
        raise TypeError(f"{name} must be ({', '.join(axes)}), got a {type(x).__name__} "
                        f"({', '.join(fields)})")
    if isinstance(x, dict) or not hasattr(x, "__len__") or len(x) != len(axes):
        came = type(x).__name__ + (f" of {len(x)}" if hasattr(x, "__len__") else "")
        raise ValueError(f"{name} must be ({', '.join(axes)}), got {came}")
    return x


def _fitting(x, name, axes, lengths, spare=False):
    """`x` as an array of these axes; `lengths` knows each letter and learns."""
    if callable(axes):
        return axes(x, name)
    _, lead, letters = _read(axes)
    if not (spare and getattr(x, "shape", (1,))[-1:] == (0,)):
        x = as_array(x, name, finite=False)
    shape = tuple(x.shape)
    before = len(shape) - len(letters)
    if before < 0 or before and not lead:
        raise ValueError(f"{name} must have {len(letters)} axes{' or more' * len(lead)}, "
                         f"({', '.join([*lead, *letters])}), got shape {shape}")
    ends = [] if lead == ["*"] else [("...", shape[:before])] * len(lead)
    for letter, length in [*ends, *zip(letters, shape[before:])]:
        times, letter = (int(letter[0]), letter[1:]) if letter[0].isdigit() else (1, letter)
        known, first, its = lengths.setdefault(letter, (length if times == 1 else length // times,
                                                        name, shape))
        if length != (known if times == 1 else times * known):
            raise ValueError(f"{name} must have shape ({', '.join([*lead, *letters])}) with "
                             f"{letter} = {known}, as {first} of shape {its}, got {shape}")
    return x


@functools.cache
def _read(axes):
    """Whether to look for NaN, what leads ([], ["..."] or ["*"]), the letters."""
    letters = axes.lstrip("~").split()
    lead = letters[:1] if letters[0] in ("...", "*") else []
    return axes[0] != "~", lead, letters[len(lead):]


def _broadcast(good, spec):
    """Refuse arrays whose axes before the letters, "*", do not broadcast."""
    free = {name: tuple(x.shape) for name, axes, x in _leaves(good, spec) if "*" in str(axes)}
    lead = [free[name][:-len(_read(spec[name])[2])][::-1] for name in free]
    if any(len(set(n) - {1}) > 1 for n in zip_longest(*lead, fillvalue=1)):
        raise ValueError(f"leading axes of {' and '.join(free)} must be equal or 1, got "
                         f"{' and '.join(map(str, free.values()))}")


def _leaves(good, spec):
    """Name, axes and value of every argument, part by part where it is a tuple."""
    for name, value in good.items():
        if isinstance(spec[name], dict):
            yield from ((f"{name}.{part}", axes, x) for (part, axes), x in zip(
                spec[name].items(), value))
        else:
            yield name, spec[name], value


def _look_at(result, name, good, spec, cure):
    """Refuse a result that is not finite, by the argument that was not, if one was not."""
    found = list(_flat(result))
    fine = _finite(*found)
    if not fine or any(0 in x.shape for x in found):
        for label, axes, A in _leaves(good, spec):
            if str(axes)[0] == "~":
                as_array(A, label)
    if not fine:
        raise ValueError(f"{name} overflows or is undefined: {cure}")


def _flat(result):
    """The arrays in a result."""
    if isinstance(result, tuple):
        for part in result:
            yield from _flat(part)
    elif hasattr(result, "shape"):
        yield result


def _with_shapes(doc, spec):
    """A docstring with the shapes behind its first paragraph."""
    def shape(axes):
        _, lead, letters = _read(axes)
        return f"({', '.join(['...'] * len(lead) + letters)}{',' * (len(lead + letters) == 1)})"
    said = []
    for name, axes in spec.items():
        parts = axes.items() if isinstance(axes, dict) else [(name, axes)]
        inside = ", ".join(f"{part} {shape(of)}" for part, of in parts if not callable(of))
        said += [f"{name} = ({inside})" if isinstance(axes, dict) else inside] * bool(inside)
    head, blank, rest = (doc or "").partition("\n\n")
    said = f"Arrays: {', '.join(said)}.\n    " * bool(said)
    return f"{head}\n\n    {said}What is refused: ksvd_ref.inputs.{blank}{rest}"
