# %% [markdown]
# # Solutions to lesson 09, with the checks
# Each check takes your function, tries it on several cases and says what is wrong.
# %%
from functools import partial

import numpy as np

from ksvd_ref.attention import filters
from ksvd_ref.course import exercises, transformer
from ksvd_ref.course.exercises import numbers, parts


# %% [markdown]
# **E9.1** If every token is right with the right ones before it, then greedy never has anything
# else before it; if greedy is wrong, its first wrong token is wrong with the teacher too. That
# needs a causal decoder: the tokens after must not matter.
# %%
def greedy(logits, start, length):
    target = start
    for _ in range(length):
        best = np.argmax(logits(target)[:, -1], axis=-1)
        target = np.concatenate([target, best[:, None]], axis=1)
    return target


def check_9_1(function):
    rng = np.random.default_rng(1)
    for length in (1, 4, 6):
        params = transformer.init_translator(rng, 7, 8, d=8, hidden=8, layers=1)
        source, start = rng.integers(7, size=(5, 3)), np.ones((5, 1), int)
        sites = [partial(transformer.attend, heads=2)] * 3
        logits = lambda target: transformer.translator(source, target, params, sites)
        got = numbers(function(logits, start, length), (5, 1 + length), "the targets")
        if not np.array_equal(got[:, :1], start):
            raise AssertionError("the target must begin with the start token, it begins with "
                                 f"{got[:, 0]}")
        if got.dtype.kind == "f" and np.all(got == np.floor(got)):
            raise AssertionError(f"tokens are integers, as in `start`: these are {got.dtype}")
        if got.dtype.kind not in "iu" or got.min() < 0 or got.max() > 7:
            raise AssertionError("tokens are integers from 0 to 7: the place of the largest logit, "
                                 "not the logit")
        scores = logits(got[:, :-1])
        right = np.argmax(scores, axis=-1) == got[:, 1:]
        if np.array_equal(got[:, 1:], np.argmin(scores, axis=-1)):
            raise AssertionError("each token is the one with the smallest logit")
        if not right.all():
            n = int(np.argmin(right.all(axis=0)))
            after = "the start token" if n == 0 else f"the {n + 1} tokens before it"
            raise AssertionError(f"token {n + 1} is not the best one after {after}: is it the last "
                                 "row of the logits of all tokens so far?")


# %% [markdown]
# **E9.2** The slopes belong to the heads, so the factor has an axis of heads; what lies above the
# diagonal is masked. Queries stand at the end of the keys, as the causal mask has it.
# %%
def alibi(x, z, params, heads):
    Q, K, _ = transformer.content(x, z, params, heads)
    N, M = x.shape[-2], z.shape[-2]
    offset = np.arange(M - N, M)[:, None] - np.arange(M)               # i - j
    slope = 2.0 ** (-8.0 * np.arange(1, heads + 1) / heads)
    return Q, K, (-slope[:, None, None] * offset).astype("float32")


def check_9_2(function):
    rng = np.random.default_rng(2)
    for N, M, heads in ((4, 4, 2), (3, 5, 4), (5, 5, 1)):
        x, z = rng.standard_normal((N, 8)), rng.standard_normal((M, 8))
        params = transformer.init_attention(rng, 8)
        got = parts(function(x, z, params, heads), ("Q", "K", "log factor"))
        for A, want, name in zip(got, transformer.content(x, z, params, heads), "QK"):
            if not np.allclose(numbers(A, want.shape, name), want, rtol=1e-5, atol=1e-6):
                raise AssertionError(f"{name} is not that of the content: the position enters by "
                                     "the log factor alone")
        factor = numbers(got[2], (heads, N, M), "the log factor")
        i, j, seen = np.arange(M - N, M)[:, None], np.arange(M), filters.causal(N, M)
        want = np.array([(j - i) / 2 ** (8 * (h + 1) / heads) for h in range(heads)])

        def counts(A):                              # a constant for a query cancels, so does the
            own = A[:, np.arange(N), np.arange(M - N, M)]       # future, which is masked
            return np.where(seen, A - own[:, :, None], 0.0)
        if np.allclose(counts(factor), counts(want), rtol=1e-5, atol=1e-6):
            continue
        for other, what in (
                (-want, "the sign is flipped: the nearest key must weigh most, not least"),
                (want[::-1], "the slopes stand in the wrong order: head 1 has the steepest"),
                (want * 2.0 ** (8 / heads), "the heads are counted from 0: h is 1 to H"),
                (np.exp(want), "this is the factor itself, its logarithm is asked for"),
                (want[:1] + 0 * want, "all heads have the slope of the first")):
            if np.allclose(counts(factor), counts(other), rtol=1e-5, atol=1e-6):
                raise AssertionError(what)
        h = int(np.argmax(np.abs(counts(factor) - counts(want)).max(axis=(1, 2))))
        raise AssertionError(f"head {h + 1} of {heads}, N = {N}, M = {M}: the last query has "
                             f"{np.round(factor[h, -1], 3)}, expected {np.round(want[h, -1], 3)}")


# %% [markdown]
# The questions.
#
# 1. The causal mask tells the decoder how many words it has written, at once (D29), and their order
#    from its second block on (D28); the encoder sees a bag of words and cannot tell *two thousand
#    nine hundred* from *nine thousand two hundred*.
# 2. The same two models with more seeds, paired seed by seed.
# 3. For one end of a direction: it is sign-blind, what it seeks along $q$ it also finds along $-q$
#    (D9).
# %%
ANSWERS = {                 # the solution, then wrong answers that the check must refuse
    "9.1": (greedy,
            lambda logits, start, n: greedy(logits, start, n)[:, 1:],
            lambda logits, start, n: greedy(logits, start, n).astype(float),
            lambda logits, start, n: greedy(logits, 0 * start, n),
            lambda logits, start, n: greedy(lambda target: -logits(target), start, n),
            lambda logits, start, n: greedy(lambda target: logits(target[:, -1:]), start, n)),
    "9.2": (alibi,
            transformer.content,
            lambda *a: (*alibi(*a)[:2], -alibi(*a)[2]),
            lambda *a: (*alibi(*a)[:2], alibi(*a)[2][::-1]),
            lambda *a: (*alibi(*a)[:2], alibi(*a)[2] * 2.0 ** (8 / a[3])),
            lambda *a: (*alibi(*a)[:2], alibi(*a)[2][0])),
}
if __name__ == "__main__":
    exercises.demonstrate(globals())
