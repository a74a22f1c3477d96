"""Training in small: minibatches, one loop around autograd's optimisers, schedules, processes.

params     dict, list or array, nested       what is learned
batch      anything                          what one step looks at
loss       function (params, batch) -> number

Nothing here knows the models, and nothing is resumed: a run is short, and its seed repeats it.

No equation: the loop that trains, and its baseline.
"""
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from math import cos, pi
from typing import Any, NamedTuple

import numpy as np
from autograd import value_and_grad
from autograd.extend import defvjp, primitive
from autograd.misc.optimizers import adam
from tqdm import tqdm


class Trained(NamedTuple):
    """What `train` returns."""

    params: Any       # as they went in, same dtype
    losses: Any       # (steps,)   loss of each batch before its step
    scores: Any       # list of (step, what evaluate returned)


def train(loss, params, batches, *, steps, rate=1e-3, clip=1.0, optimizer=adam, evaluate=None,
          every=None, **options):
    r"""Follow the clipped gradient of the loss for a number of steps.

    .. math:: g \leftarrow g \, \min(1, \mathrm{clip} / \|g\|)

    Parameters
    ----------
    loss : function (params, batch) -> number
        Differentiable by autograd.
    params : dict, list or array, nested
        Of one dtype; not written into.
    batches : iterable
        At least `steps` long, as `minibatches` (endless) is.
    steps : int
        0 returns the parameters as they came.
    rate : float or function of the step, from 0
        See `cosine` and `trapezoid`.
    clip : float
        Largest norm of the gradient of all parameters together; infinity for any.
    optimizer : function
        From autograd.misc.optimizers: adam, rmsprop, sgd.
    evaluate : function of params, optional
        Called after every `every` steps and at the end.
    every : int, optional
        Only at the end unless told.
    **options
        For the optimiser: b1, b2, mass, ...

    Returns
    -------
    Trained

    Raises
    ------
    TypeError
        If the parameters are no arrays of one dtype, float32 or float64.
    ValueError
        If the batches end early, or `steps`, `every` or `clip` makes no sense.
    FloatingPointError
        If the loss, its gradient or a parameter is NaN or infinite, with the step.

    Notes
    -----
    The progress bar is silent when the error output is not a terminal.

    Examples
    --------
    >>> import numpy as np
    >>> distance = lambda params, batch: (params["x"][0] - batch) ** 2
    >>> done = train(distance, {"x": np.array([0.0])}, [3.0] * 200, steps=200, rate=0.1)
    >>> bool(abs(done.params["x"][0] - 3.0) < 0.01)
    True
    """
    _check_size(steps, "steps", 0)
    if every is not None:
        _check_size(every, "every")
    if not isinstance(clip, (int, float)) or not clip > 0.0:
        raise ValueError(f"clip must be a number above 0, or infinity, got {clip!r}")
    start, unpack = pack(params)
    if start.dtype not in (np.float32, np.float64):
        raise TypeError(f"params must be float32 or float64, got {start.dtype}")
    batches, losses, scores = iter(batches), [], []
    value_and_gradient = value_and_grad(lambda vector, batch: loss(unpack(vector), batch))
    every = every or steps

    # autograd's adam keeps float64 whatever it is given: a master copy. The model sees its own
    # dtype, which at float32 is twice as fast.
    restore = lambda x: unpack(x.astype(start.dtype))

    def gradient(x, step):
        if step and step % every == 0 and evaluate:
            scores.append((step, evaluate(restore(x))))
        try:
            batch = next(batches)
        except StopIteration:
            raise ValueError(f"batches must last for {steps} steps, got {step}") from None
        value, g = value_and_gradient(x.astype(start.dtype), batch)
        with np.errstate(over="ignore"):            # said below, with the step
            norm = float(np.sqrt(g @ g))
        if not np.isfinite(norm) or not np.isfinite(value):
            raise FloatingPointError(f"loss {value} with a gradient of norm {norm} at step {step}: "
                                     "a smaller rate or a longer warm-up may help")
        losses.append(float(value))
        bar.update()
        bar.set_postfix(loss=f"{losses[-1]:.3f}", refresh=False)
        return g * min(1.0, clip / (norm + 1e-12))

    with tqdm(total=steps, disable=None, leave=False) as bar:
        step_size = _Rate(rate if callable(rate) else lambda step: rate)
        x = optimizer(gradient, start, num_iters=steps, step_size=step_size, **options)
    if not np.isfinite(x).all():                    # the last step: no gradient comes after it
        raise FloatingPointError(f"NaN or infinite parameters after {steps} steps: is the rate "
                                 "finite?")
    if evaluate:
        scores.append((steps, evaluate(restore(x))))
    return Trained(restore(x), np.array(losses), scores)


def pack(params):
    """Nested parameters as one vector, and the way back, which autograd passes in one step.

    autograd.misc.flatten does the same with a step for each dict, list and array: with the 68 of
    a translator that bookkeeping was a fifth and more of the time.

    Parameters
    ----------
    params : dict, list or array, nested

    Returns
    -------
    vector : (n,) array
        Dicts in the order of their sorted names.
    unpack : function of a vector

    Raises
    ------
    TypeError
        If there is anything but dicts, lists and arrays of one dtype, or no array at all.

    Examples
    --------
    >>> import numpy as np
    >>> vector, unpack = pack({"b": np.zeros(1), "a": [np.ones((1, 2))]})
    >>> vector, unpack(2 * vector)["a"]
    (array([1., 1., 0.]), [array([[2., 2.]])])
    """
    leaves = []

    def number(p):                                  # the same nest, places instead of arrays
        if isinstance(p, dict):
            return {name: number(p[name]) for name in sorted(p)}
        if isinstance(p, list):
            return [number(q) for q in p]
        if not isinstance(p, np.ndarray):
            raise TypeError(f"params must be dicts, lists and arrays, got {type(p).__name__}")
        leaves.append(p)
        return len(leaves) - 1

    def fill(place, parts):
        if isinstance(place, dict):
            return {name: fill(q, parts) for name, q in place.items()}
        return [fill(q, parts) for q in place] if isinstance(place, list) else parts[place]

    places = number(params)
    if len({leaf.dtype for leaf in leaves}) != 1:
        raise TypeError("params must be arrays of one dtype, got "
                        f"{sorted({str(leaf.dtype) for leaf in leaves}) or 'none'}")
    ends = np.cumsum([leaf.size for leaf in leaves])[:-1]
    split = primitive(lambda vector: tuple(
        np.reshape(part, leaf.shape) for part, leaf in zip(np.split(vector, ends), leaves)))
    defvjp(split, lambda parts, vector: lambda g: np.concatenate([np.ravel(part) for part in g]))
    return (np.concatenate([np.ravel(leaf) for leaf in leaves]),
            lambda vector: fill(places, split(vector)))


def _check_size(value, name, least=1):
    if isinstance(value, bool) or not hasattr(value, "__index__") or value < least:
        raise ValueError(f"{name} must be an integer, {least} or more, got {value!r}")


class _Rate:
    """A step size that changes: autograd's optimisers say step_size * direction once a step."""

    def __init__(self, rate):
        self.rate, self.step = rate, -1

    def __mul__(self, direction):
        self.step += 1
        return self.rate(self.step) * direction


def cosine(peak, steps, warmup):
    """Rate that rises for `warmup` steps and falls to 0 along a cosine.

    Parameters
    ----------
    peak : float
    steps, warmup : int

    Returns
    -------
    function of the step

    Examples
    --------
    >>> rate = cosine(1.0, 12, warmup=4)
    >>> [rate(step) for step in (0, 3, 4, 8)]
    [0.25, 1.0, 1.0, 0.5]
    """
    return lambda step: peak * ((step + 1) / warmup if step < warmup else
                                0.5 + 0.5 * cos(pi * (step - warmup) / max(1, steps - warmup)))


def trapezoid(peak, steps, warmup, hold=0.6, floor=0.05):
    """Rate that rises for `warmup` steps, stays to `hold` of all steps, falls to `floor` of itself.

    Parameters
    ----------
    peak : float
    steps, warmup : int
    hold, floor : float
        Shares, of the steps and of the peak.

    Returns
    -------
    function of the step

    Examples
    --------
    >>> rate = trapezoid(1.0, 10, warmup=2, floor=0.0)
    >>> [rate(step) for step in (0, 5, 6, 8)]
    [0.5, 1.0, 1.0, 0.5]
    """
    fall = lambda step: 0.0 if step <= hold * steps else (step / steps - hold) / (1.0 - hold)
    rise = lambda step: (step + 1) / warmup if step < warmup else 1.0
    return lambda step: peak * rise(step) * (1.0 - (1.0 - floor) * fall(step))


def minibatches(N, size, seed):
    """Indices 0 to N - 1 in random order, `size` at a time, in a new order each time round.

    Endless. Every index comes once in a round, so the last batch of a round may be smaller.

    Parameters
    ----------
    N, size : int
    seed : int

    Returns
    -------
    iterator of (size,) array of int

    Raises
    ------
    ValueError
        If `N` or `size` is no integer ≥ 1.

    Examples
    --------
    >>> batches = minibatches(5, 2, seed=0)
    >>> [len(next(batches)) for _ in range(4)]
    [2, 2, 1, 2]
    """
    _check_size(N, "N")
    _check_size(size, "size")
    return _rounds(N, size, np.random.default_rng(seed))


def _rounds(N, size, rng):
    while True:
        order = rng.permutation(N)
        for start in range(0, N, size):
            yield order[start:start + size]


def run_apart(commands, processes=2):
    """Run Python once for each command, some at a time, and return what each printed.

    Every process has one BLAS thread: two threads on a pair of busy cores can make a training step
    several times slower, and the variable must be set before NumPy loads.

    Parameters
    ----------
    commands : list of list of str
        Arguments of Python: a script and its options.
    processes : int
        At a time.

    Returns
    -------
    list of str
        In the order of the commands.

    Raises
    ------
    RuntimeError
        If a command fails, with the end of what it reported.

    Examples
    --------
    >>> run_apart([["-c", "print(1)"], ["-c", "print(2)"]])
    ['1\\n', '2\\n']
    """
    threads = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    environment = os.environ | dict.fromkeys(threads, "1")

    def run(command):
        done = subprocess.run([sys.executable, *map(str, command)], env=environment, text=True,
                              capture_output=True)
        if done.returncode:
            raise RuntimeError(f"{' '.join(map(str, command))} failed:\n{done.stderr[-2000:]}")
        return done.stdout
    with ThreadPoolExecutor(processes) as pool:
        return list(tqdm(pool.map(run, commands), total=len(commands), disable=None, leave=False))


def witten_bell(text, n):
    r"""Witten-Bell n-gram model, the baseline of a character model.

    .. math:: p(c \mid h) = \frac{\#(h c) + t(h)\, p(c \mid h')}{\#(h) + t(h)}

    h are the last n - 1 characters, h' is h without the first, t(h) counts the different
    characters seen after h, and below the unigrams all characters are equally likely.

    Parameters
    ----------
    text : str
        What is counted; its characters are the alphabet.
    n : int
        1 or more.

    Returns
    -------
    function (character, history) -> probability

    Raises
    ------
    ValueError
        If the text is empty, or `n` is no integer ≥ 1.

    Examples
    --------
    >>> probability = witten_bell("aab", 1)
    >>> probability("a", "")                                    # (2 + 2 / 2) / (3 + 2)
    0.6
    """
    _check_size(n, "n")
    if not text:
        raise ValueError("text must not be empty: its characters are the alphabet")
    counts = [{} for _ in range(n)]
    for end in range(len(text)):
        for order in range(min(n, end + 1)):
            after = counts[order].setdefault(text[end - order:end], {})
            after[text[end]] = after.get(text[end], 0) + 1
    alphabet = len(set(text))

    def probability(character, history):
        p = 1.0 / alphabet
        for order in range(min(n, len(history) + 1)):
            after = counts[order].get(history[len(history) - order:], {})
            if after:
                p = (after.get(character, 0) + len(after) * p) / (sum(after.values()) + len(after))
        return p
    return probability
