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
from math import cos, inf, pi, prod
from typing import Any, NamedTuple

import numpy as np
from autograd import value_and_grad
from autograd.extend import defvjp, primitive
from autograd.misc.optimizers import adam

from ..inputs import integer, number


class Trained(NamedTuple):
    """What `train` returns."""

    params: Any       # as they went in, same dtype
    losses: Any       # (steps,)   loss of each batch before its step
    scores: Any       # list of (step, what evaluate returned)


def train(loss, params, batches, *, steps, rate=1e-3, clip=1.0, optimizer=adam, evaluate=None,
          every=None, **options):
    """Follow the clipped gradient of the loss, g min(1, clip/‖g‖), for a number of steps.

    params: arrays of one dtype, float32 or float64, not written into. batches: as long as `steps`
    at least, as `minibatches` (endless) is. rate: a number, or a function of the step, from 0. clip
    is the largest norm of the gradient of all parameters together; infinity for any. evaluate
    (params) is called after every `every` steps and at the end. options: of the optimiser (adam,
    rmsprop or sgd of autograd.misc.optimizers), b1, b2, mass. Returns Trained.

    A loss, gradient or parameter that is NaN or infinite is a FloatingPointError with its step. The
    progress bar is silent when the error output is no terminal.

    >>> distance = lambda params, batch: (params["x"][0] - batch) ** 2
    >>> done = train(distance, {"x": np.array([0.0])}, [3.0] * 200, steps=200, rate=0.1)
    >>> bool(abs(done.params["x"][0] - 3.0) < 0.01)
    True
    """
    steps = integer(0)(steps, "steps")
    every = steps if every is None else integer(1)(every, "every")
    clip = clip if clip == inf else number(above=0)(clip, "clip")
    start, unpack = pack(params)
    batches, losses, scores = iter(batches), [], []
    value_and_gradient = value_and_grad(lambda vector, batch: loss(unpack(vector), batch))
    # autograd's adam keeps float64 whatever it is given: a master copy. The model sees its own
    # dtype, which at float32 is twice as fast.
    own = lambda x: x.astype(start.dtype)

    def gradient(x, step):
        if evaluate and step and step % every == 0:
            scores.append((step, evaluate(unpack(own(x)))))
        batch = next(batches, batches)
        if batch is batches:                        # the end: `batches` is none of its own entries
            raise ValueError(f"batches must last for {steps} steps, got {step}")
        value, g = value_and_gradient(own(x), batch)
        losses.append(float(value))
        bar.update()
        bar.set_postfix(loss=f"{losses[-1]:.3f}", refresh=False)
        return _clipped(g, clip, losses[-1], step)

    with _bar(total=steps, disable=None, leave=False) as bar:
        x = optimizer(gradient, start, num_iters=steps, step_size=_Rate(rate), **options)
    if not np.isfinite(x).all():                    # the last step: no gradient comes after it
        raise FloatingPointError(f"NaN or infinite parameters after {steps} steps: is the rate "
                                 "finite?")
    if evaluate:
        scores.append((steps, evaluate(unpack(own(x)))))
    return Trained(unpack(own(x)), np.array(losses), scores)


def _clipped(g, clip, loss, step):
    with np.errstate(over="ignore"):                # said below, with the step
        norm = float(np.sqrt(g @ g))
    if not np.isfinite(norm) or not np.isfinite(loss):
        raise FloatingPointError(f"loss {loss} with a gradient of norm {norm} at step {step}: "
                                 "a smaller rate or a longer warm-up may help")
    return g * min(1.0, clip / (norm + 1e-12))


class _Rate:
    """A step size that changes: autograd's optimisers say step_size * direction once a step."""

    def __init__(self, rate):
        fixed = None if callable(rate) else number(above=0)(rate, "rate")
        self.rate, self.step = rate if callable(rate) else (lambda step: fixed), -1

    def __mul__(self, direction):
        self.step += 1
        return self.rate(self.step) * direction


def pack(params):
    """Nested parameters as one vector (n,), and the way back, which autograd passes in one step.

    Dicts go in the order of their sorted names. autograd.misc.flatten does the same with a step for
    each dict, list and array: with the 68 of a translator that was a fifth and more of the time.

    >>> vector, unpack = pack({"b": np.zeros(1), "a": [np.ones((1, 2))]})
    >>> vector, unpack(2 * vector)["a"]
    (array([1., 1., 0.]), [array([[2., 2.]])])
    """
    leaves = []

    def numbered(nest):                             # the same nest, places instead of arrays
        if isinstance(nest, dict):
            return {name: numbered(nest[name]) for name in sorted(nest)}
        if isinstance(nest, list):
            return [numbered(part) for part in nest]
        leaves.append(nest)
        return len(leaves) - 1

    def filled(nest, parts):
        if isinstance(nest, dict):
            return {name: filled(place, parts) for name, place in nest.items()}
        return [filled(p, parts) for p in nest] if isinstance(nest, list) else parts[nest]

    places = numbered(params)
    kinds = {str(leaf.dtype) if isinstance(leaf, np.ndarray) else type(leaf).__name__
             for leaf in leaves}
    if kinds not in ({"float32"}, {"float64"}):
        raise TypeError("params must be dicts and lists of arrays of one dtype, float32 or "
                        f"float64, got {', '.join(sorted(kinds)) or 'none'}")
    shapes = [leaf.shape for leaf in leaves]
    return (np.concatenate([np.ravel(leaf) for leaf in leaves]),
            lambda vector: filled(places, _split(vector, shapes)))


@primitive                  # once for all: autograd never forgets a primitive and what it holds
def _split(vector, shapes):
    ends = np.cumsum([prod(shape) for shape in shapes])[:-1]
    return tuple(map(np.reshape, np.split(vector, ends), shapes))


defvjp(_split, lambda parts, vector, shapes: lambda g: np.concatenate(list(map(np.ravel, g))))


def cosine_rate(peak, steps, warmup):
    """Rate, a function of the step, that rises for `warmup` steps and falls to 0 along a cosine.

    >>> rate = cosine_rate(1.0, 12, warmup=4)
    >>> [rate(step) for step in (0, 3, 4, 8)]
    [0.25, 1.0, 1.0, 0.5]
    """
    peak = number(above=0)(peak, "peak")
    part = lambda step: min(1.0, (step - warmup) / max(1, steps - warmup))     # 0 past the end
    return lambda step: peak * ((step + 1) / warmup if step < warmup else
                                0.5 + 0.5 * cos(pi * part(step)))


def trapezoid_rate(peak, steps, warmup, hold=0.6, floor=0.05):
    """Rate that rises for `warmup` steps, stays to `hold` of all steps, falls to `floor` of itself.

    >>> rate = trapezoid_rate(1.0, 10, warmup=2, floor=0.0)
    >>> [rate(step) for step in (0, 5, 6, 8)]
    [0.5, 1.0, 1.0, 0.5]
    """
    peak = number(above=0)(peak, "peak")
    fall = lambda step: 0.0 if step <= hold * steps else \
        (min(1.0, step / steps) - hold) / (1.0 - hold)          # the floor past the end
    rise = lambda step: (step + 1) / warmup if step < warmup else 1.0
    return lambda step: peak * rise(step) * (1.0 - (1.0 - floor) * fall(step))


def minibatches(N, size, seed):
    """Indices 0 to N − 1 in random order, `size` at a time, in a new order each time round.

    Endless. Every index comes once in a round, so the last batch of a round may be smaller.

    >>> batches = minibatches(5, 2, seed=0)
    >>> [len(next(batches)) for _ in range(4)]
    [2, 2, 1, 2]
    """
    # Two functions: one that yields would refuse at the first batch and not at the call.
    return _rounds(integer(1)(N, "N"), integer(1)(size, "size"), np.random.default_rng(seed))


def _rounds(N, size, rng):
    while True:
        order = rng.permutation(N)
        for start in range(0, N, size):
            yield order[start:start + size]


def run_apart(commands, processes=2):
    """What Python prints for each command (a script and its options), some run at a time.

    Every process has one BLAS thread: two threads on a pair of busy cores can make a training step
    several times slower, and the variable must be set before NumPy loads. Returns a list of str in
    the order of the commands; one that fails is a RuntimeError with the end of what it reported.

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
        return list(_bar(pool.map(run, commands), total=len(commands), disable=None, leave=False))


def witten_bell(text, n):
    """Witten-Bell n-gram model, p(c|h) = (#(hc) + t(h) p(c|h′)) / (#(h) + t(h)), a baseline.

    h are the last n - 1 characters, h′ is h without the first, t(h) counts the different
    characters seen after h. Below the unigrams all characters of the text are equally likely.
    Returns a function (character, history) -> probability.

    >>> probability = witten_bell("aab", 1)
    >>> probability("a", "")                                    # (2 + 2 / 2) / (3 + 2)
    0.6
    """
    counts = [{} for _ in range(integer(1)(n, "n"))]
    if not text:
        raise ValueError("text must not be empty: its characters are the alphabet")
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


def _bar(*args, **options):
    """A progress bar. tqdm is an extra, so the module loads without it."""
    try:
        from tqdm import tqdm
    except ImportError as error:
        raise ImportError("a progress bar needs tqdm: pip install 'ksvd_ref[lessons]'") from error
    return tqdm(*args, **options)
