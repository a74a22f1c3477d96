"""The loop against a loop by hand, its errors, its seeds, and a small model that learns."""
from functools import partial

import numpy as np
import pytest
from autograd.misc.flatten import flatten
from autograd.misc.optimizers import rmsprop, sgd
from conftest import assert_gradient

from ksvd_ref.course import datasets, training, transformer


def quadratic(params, batch):
    A, b = batch
    return ((A @ params["x"] - b) ** 2).sum() + (params["deep"][0] ** 2).sum()


def problem(rng, steps, dtype="float64"):
    params = {"x": rng.standard_normal(4).astype(dtype),
              "deep": [rng.standard_normal((2, 3)).astype(dtype)]}
    batches = [(rng.standard_normal((3, 4)).astype(dtype), rng.standard_normal(3).astype(dtype))
               for _ in range(steps)]
    return params, batches


def gradient_by_hand(x, deep, A, b, clip):
    g = np.concatenate([2 * deep.ravel(), 2 * A.T @ (A @ x - b)])
    return g * min(1.0, clip / np.sqrt(np.sum(g * g)))


def test_pack_is_autograds_flatten(rng):
    params = {"b": [rng.standard_normal((2, 1)), {"z": rng.standard_normal(3)}],
              "a": rng.standard_normal((2, 2, 2))}
    (vector, unpack), (want, unflatten) = training.pack(params), flatten(params)
    np.testing.assert_array_equal(vector, want)
    for f in (unpack, unflatten):
        again = f(2.0 * vector)
        np.testing.assert_array_equal(again["b"][1]["z"], 2.0 * params["b"][1]["z"])
        np.testing.assert_array_equal(again["a"], 2.0 * params["a"])
    loss = lambda p: (p["a"] ** 3).sum() * p["b"][1]["z"][0] + p["a"][0, 0, 0] ** 2
    assert_gradient(lambda v: loss(unpack(v)), vector)  # b[0] is not used: its gradient is 0
    unpack, template = training.pack(rng.standard_normal(3))[1], np.arange(3.0)
    np.testing.assert_array_equal(unpack(template), template)


@pytest.mark.parametrize("clip", [0.5, 1e9])
@pytest.mark.parametrize("rate", [0.03, training.cosine_rate(0.1, 12, warmup=3)])
def test_adam_by_hand(rng, clip, rate):
    params, batches = problem(rng, 12)
    done = training.train(quadratic, params, batches, steps=12, rate=rate, clip=clip, b1=0.8,
                          b2=0.95)
    v = np.concatenate([params["deep"][0].ravel(), params["x"]])        # sorted by name
    m, s = np.zeros(10), np.zeros(10)
    for n, (A, b) in enumerate(batches):
        g = gradient_by_hand(v[6:], v[:6], A, b, clip)
        m, s = 0.8 * m + 0.2 * g, 0.95 * s + 0.05 * g * g
        step = (m / (1 - 0.8 ** (n + 1))) / (np.sqrt(s / (1 - 0.95 ** (n + 1))) + 1e-8)
        v = v - (rate(n) if callable(rate) else rate) * step
    np.testing.assert_allclose(done.params["x"], v[6:], rtol=1e-9)
    np.testing.assert_allclose(done.params["deep"][0], v[:6].reshape(2, 3), rtol=1e-9)
    assert done.losses.shape == (12,)
    np.testing.assert_allclose(done.losses[0], quadratic(params, batches[0]), rtol=1e-13)


def test_every_optimiser_of_autograd_follows_the_rate(rng):
    """A rate that is 0 but for one step moves by one step only, whichever the optimiser."""
    params, batches = problem(rng, 5)
    for optimizer in (training.adam, rmsprop, sgd):
        run = lambda rate: training.train(quadratic, params, batches, steps=5, rate=rate,
                                          optimizer=optimizer).params["x"]
        np.testing.assert_array_equal(run(lambda step: 0.0), params["x"])
        moved = run(lambda step: 0.1 * (step == 0))
        assert np.abs(moved - params["x"]).max() > 1e-3
        np.testing.assert_array_equal(
            moved, training.train(quadratic, params, batches, steps=1, rate=0.1,
                                  optimizer=optimizer).params["x"])


def test_a_clipped_gradient_has_the_norm_asked_for(rng):
    params, batches = problem(rng, 1)
    for clip in (1e-2, 1.0, 1e9):
        run = training.train(quadratic, params, batches, steps=1, rate=1.0, clip=clip,
                             optimizer=sgd, mass=0.0)
        move = np.concatenate([run.params["x"] - params["x"],
                               (run.params["deep"][0] - params["deep"][0]).ravel()])
        g = gradient_by_hand(params["x"], params["deep"][0].ravel(), *batches[0], 1e9)
        np.testing.assert_allclose(np.linalg.norm(move), min(clip, np.linalg.norm(g)), rtol=1e-9)


def test_dtype_and_arguments_are_kept(rng):
    params, batches = problem(rng, 4, "float32")
    params["x"].flags.writeable = False
    seen = []

    def loss(params, batch):
        seen.append(params["x"].dtype)
        return quadratic(params, batch)
    before = params["deep"][0].copy()
    done = training.train(loss, params, batches, steps=4)
    assert set(seen) == {np.dtype("float32")}           # the optimiser itself works in float64
    assert done.params["x"].dtype == done.params["deep"][0].dtype == "float32"
    np.testing.assert_array_equal(params["deep"][0], before)


def test_evaluation_hook(rng):
    params, batches = problem(rng, 7)
    seen = []
    watch = lambda params: seen.append(params["x"].copy()) or len(seen)
    run = partial(training.train, quadratic, params, batches, rate=0.1, evaluate=watch)
    assert run(steps=7, every=3).scores == [(3, 1), (6, 2), (7, 3)]
    three = training.train(quadratic, params, batches, steps=3, rate=0.1).params["x"]
    np.testing.assert_array_equal(seen[0], three)       # after three steps, not before
    assert run(steps=6, every=3).scores == [(3, 4), (6, 5)]
    assert run(steps=2).scores == [(2, 6)]


def test_bad_runs_say_what_happened(rng):
    params, batches = problem(rng, 3)
    with pytest.raises(ValueError, match="last for 4 steps, got 3"):
        training.train(quadratic, params, batches, steps=4)
    for bad in (np.nan, np.inf):
        batches[1] = (bad * batches[1][0], batches[1][1])
        with pytest.raises(FloatingPointError, match="at step 1: a smaller rate"):
            training.train(quadratic, params, batches, steps=3)


@pytest.mark.parametrize("change, message", [
    ({"steps": -1}, "steps must be an integer, 0 or more, got -1"),
    ({"steps": 1.5}, "steps must be an integer"), ({"every": 0}, "every must be an integer, 1"),
    ({"every": -2}, "every must be"), ({"clip": 0}, "clip must be a finite number above 0"),
    ({"clip": -1.0}, "clip must be"), ({"clip": None}, "clip must be"),
    ({"clip": np.nan}, "clip must be")])
def test_options_that_make_no_sense(rng, change, message):
    params, batches = problem(rng, 3)
    with pytest.raises(ValueError, match=message):
        training.train(quadratic, params, batches, **{"steps": 3, **change})


@pytest.mark.parametrize("params, message", [
    ({}, "dtype, .* got none"), ({"x": 1.0}, "arrays of one dtype, .* got float"),
    (None, "got NoneType"),
    ({"x": np.ones(2), "deep": [np.ones(2, "float32")]}, "got float32, float64"),
    ({"x": (np.ones(2),)}, "got tuple"), ({"x": np.ones(2, int)}, "float64, got int64")])
def test_parameters_are_arrays_of_one_dtype(params, message):
    with pytest.raises(TypeError, match=message):
        training.train(lambda params, batch: 0.0, params, [0], steps=1)


def test_no_step_and_one_example(rng):
    params, batches = problem(rng, 1)
    none = training.train(quadratic, params, [], steps=0, evaluate=lambda params: params["x"][0])
    np.testing.assert_array_equal(none.params["x"], params["x"])
    assert none.losses.shape == (0,) and none.scores == [(0, params["x"][0])]
    one = training.train(quadratic, params, batches, steps=1, rate=0.1, clip=np.inf)
    assert one.losses.shape == (1,) and np.abs(one.params["x"] - params["x"]).max() > 0.05


def test_the_last_step_is_looked_at_too(rng):
    params, batches = problem(rng, 2)
    with pytest.raises(FloatingPointError, match="after 2 steps"):
        training.train(quadratic, params, batches, steps=2,
                       rate=lambda step: np.nan if step else 0.1)
    params, _ = problem(rng, 0, "float32")              # its square is too much for float32
    steep = lambda params, batch: 1e30 * (params["x"].sum() + params["deep"][0].sum())
    with pytest.raises(FloatingPointError, match="norm inf at step 0"):
        training.train(steep, params, [0], steps=1)
    high = lambda params, batch: params["x"].sum() + np.inf                # with a finite gradient
    with pytest.raises(FloatingPointError, match="loss inf with a gradient of norm 2"):
        training.train(high, params, [0], steps=1)


def test_progress_is_silent_without_a_terminal(rng, capsys):
    params, batches = problem(rng, 3)
    training.train(quadratic, params, batches, steps=3)
    training.run_apart([["-c", "pass"]])
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("steps, warmup", [(10, 1), (400, 100), (7, 5)])
def test_schedules(steps, warmup):
    n = np.arange(steps)
    for schedule in (training.cosine_rate, training.trapezoid_rate):
        rate = schedule(0.3, steps, warmup)
        got = np.array([rate(step) for step in n])
        rise = np.diff(got[:warmup])
        np.testing.assert_allclose(rise, 0.3 / warmup, rtol=1e-9)       # a straight line up
        np.testing.assert_allclose(got.max(), 0.3, rtol=1e-12)
        assert np.all(np.diff(got[warmup:]) <= 1e-15) and got.min() > 0
    cosine = training.cosine_rate(2.0, steps, warmup)
    np.testing.assert_allclose(cosine(steps), 0.0, atol=1e-15)
    np.testing.assert_allclose(cosine((steps + warmup) / 2), 1.0)
    for rate in (training.cosine_rate(2.0, steps, 0), training.trapezoid_rate(2.0, steps, 0),
                 training.trapezoid_rate(2.0, steps, 0, hold=1.0)):
        assert rate(0) == 2.0 and np.isfinite([rate(step) for step in range(steps + 1)]).all()
    assert training.cosine_rate(2.0, steps, steps)(steps) == 2.0     # all of it is warm-up
    assert training.trapezoid_rate(2.0, steps, 0, hold=1.0)(steps) == 2.0
    hold = training.trapezoid_rate(2.0, 100, 10, hold=0.6, floor=0.05)
    np.testing.assert_allclose([hold(10), hold(60), hold(80), hold(100)], [2, 2, 1.05, 0.1])


@pytest.mark.parametrize("N, size", [(10, 3), (6, 2), (5, 8), (1, 1)])
def test_minibatches(N, size):
    rounds, batches = -(-N // size), training.minibatches(N, size, seed=3)
    orders = []
    for _ in range(3):
        batch = [next(batches) for _ in range(rounds)]
        assert max(map(len, batch)) <= size
        orders.append(np.concatenate(batch))
        np.testing.assert_array_equal(np.sort(orders[-1]), np.arange(N))  # each once in a round
    again, other = (training.minibatches(N, size, seed) for seed in (3, 4))
    np.testing.assert_array_equal(next(again), orders[0][:size])
    if N == 10:
        assert not np.array_equal(orders[0], orders[1])
        assert not np.array_equal(np.concatenate([next(other) for _ in range(rounds)]), orders[0])


@pytest.mark.parametrize("N, size", [(0, 2), (-1, 2), (3, 0), (3, -1), (3.0, 2), (3, 1.5)])
def test_minibatches_refuse(N, size):
    """At once, not at the first batch: without one the round would never end."""
    with pytest.raises(ValueError, match="(N|size) must be an integer, 1 or more"):
        training.minibatches(N, size, seed=0)


def test_processes_have_one_thread_each_and_keep_their_order(monkeypatch):
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "7")
    code = "import os, time; time.sleep({}); print({}, os.environ['OPENBLAS_NUM_THREADS'])"
    commands = [["-c", code.format(0.3 * (n == 0), n)] for n in range(3)]
    assert training.run_apart(commands, processes=3) == ["0 1\n", "1 1\n", "2 1\n"]
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        training.run_apart([["-c", "1 / 0"]])


def test_witten_bell_is_a_distribution_and_its_formula():
    text = "abracadabra abrakadabra"
    alphabet = sorted(set(text))

    def by_formula(character, history):                 # counted afresh for each call
        if history is None:
            return 1 / len(alphabet)
        places = [i for i in range(len(text)) if text[max(0, i - len(history)):i] == history
                  and i >= len(history)]
        shorter = by_formula(character, history[1:] if history else None)
        after = [text[i] for i in places]
        if not after:
            return shorter
        return (after.count(character) + len(set(after)) * shorter) / (len(after) + len(set(after)))
    for n in (1, 2, 3, 5):
        p = training.witten_bell(text, n)
        for history in ("", "a", "abra", "zz", "xabr"):
            got = [p(c, history) for c in alphabet]
            np.testing.assert_allclose(sum(got), 1.0, rtol=1e-12)
            used = history[len(history) - min(n - 1, len(history)):]
            np.testing.assert_allclose(got, [by_formula(c, used) for c in alphabet], rtol=1e-12)


def test_witten_bell_refuses():
    for n in (0, 1.5):
        with pytest.raises(ValueError, match="n must be an integer, 1 or more"):
            training.witten_bell("ab", n)
    with pytest.raises(ValueError, match="text must not be empty"):
        training.witten_bell("", 2)


def test_witten_bell_on_the_gospel():
    """Known in advance: 3.213 and 2.588 bits for two and three characters."""
    text = datasets.kjv_mark()
    for n, want in ((2, 3.213), (3, 2.588)):
        p = training.witten_bell(text[:-16000], n)
        test = text[-8000:]
        bits = -np.mean([np.log2(p(test[i], test[max(0, i - n + 1):i])) for i in range(8000)])
        np.testing.assert_allclose(bits, want, atol=5e-4)


def learn(seed, steps=90, T=16):
    """Reading the gospel: the loss of each step, and accuracy on text never seen."""
    text = datasets.kjv_mark()
    alphabet = sorted(set(text))
    codes = np.searchsorted(alphabet, list(text))
    rng = np.random.default_rng(seed)
    params = transformer.init_language_model(rng, len(alphabet), d=16, hidden=32, layers=1)
    attend = partial(transformer.attend, heads=2)
    logits = lambda params, rows: transformer.language_model(rows[:, :-1], params, attend)
    loss = lambda params, rows: transformer.cross_entropy(logits(params, rows), rows[:, 1:],
                                                          np.ones((len(rows), T), "float32"))
    batches = (codes[rng.integers(70000, size=(32, 1)) + np.arange(T + 1)] for _ in range(steps))
    done = training.train(loss, params, batches, steps=steps,
                          rate=training.cosine_rate(1e-2, steps, warmup=10))
    test = codes[np.arange(71000, 79000, T)[:, None] + np.arange(T + 1)]
    right = np.argmax(logits(done.params, test), axis=-1) == test[:, 1:]
    return done.losses, np.mean(right), np.mean(test[:, 1:] == alphabet.index(" "))


def test_a_small_model_learns():
    losses, accuracy, majority = learn(0)
    assert losses[0] > 3.4                              # log 38 = 3.64: it starts from nothing
    assert np.mean(losses[-20:]) < np.mean(losses[:20]) - 0.5
    assert accuracy > majority + 0.08 and majority > 0.15


def test_a_seed_repeats_a_run():
    one, two, other = (learn(seed, steps=5)[0] for seed in (0, 0, 1))
    np.testing.assert_array_equal(one, two)
    assert np.abs(one - other).max() > 1e-3


def test_many_trainings_keep_nothing():
    """autograd never forgets a primitive: one for each call would hold its model for ever."""
    import autograd
    from autograd.core import primitive_vjps
    model = {"W": np.zeros((40, 50)), "b": [np.zeros(3)]}
    training.pack(model)
    before = len(primitive_vjps)
    for _ in range(5):
        vector, unpack = training.pack(model)
        autograd.grad(lambda v: unpack(v)["W"][0, 0])(vector)
    assert len(primitive_vjps) == before


def test_schedules_stay_at_their_end():
    """Past the last step: 0 and the floor, not up again and not below."""
    cosine, trapezoid = training.cosine_rate(1.0, 12, 4), training.trapezoid_rate(1.0, 10, 2)
    assert [cosine(step) for step in (12, 13, 20)] == [0.0, 0.0, 0.0]
    np.testing.assert_allclose([trapezoid(step) for step in (10, 12, 30)], 0.05, rtol=1e-13)


@pytest.mark.parametrize("rate", [-0.1, 0.0, np.nan, np.inf, "1"])
def test_a_rate_is_above_zero(rate):
    for schedule in (training.cosine_rate, training.trapezoid_rate):
        with pytest.raises(ValueError, match="peak must be a finite number above 0, got"):
            schedule(rate, 5, 1)
    with pytest.raises(ValueError, match="rate must be a finite number above 0, got"):
        training.train(lambda p, b: p["x"][0], {"x": np.zeros(1)}, [0], steps=1, rate=rate)
