# %% [markdown]
# # Solutions to lesson 12, with the checks
# Each check takes your function, tries it on several inputs and says what is wrong.
# %%
import numpy as np

from ksvd_ref import attention
from ksvd_ref.course import exercises
from ksvd_ref.course.exercises import numbers, parts


# %% [markdown]
# **E12.1** `X[mask]` is the list of the real steps, one row each: the mean over its rows is a mean
# for each coefficient.
# %%
def standardise(X, mask):
    steps = X[mask]                                 # (steps, c)
    return np.where(mask[:, :, None], (X - steps.mean(axis=0)) / steps.std(axis=0), 0.0)


def check_12_1(function):
    rng = np.random.default_rng(101)
    for n, N, c in ((4, 6, 2), (3, 9, 1), (10, 5, 4)):
        mask = np.arange(N) < rng.integers(2, N + 1, size=(n, 1))
        real = mask[:, :, None]
        X = np.where(real, 3.0 + np.arange(1, c + 1) * rng.standard_normal((n, N, c)), 0.0)
        mine, flat, steps = X.copy(), X.reshape(-1, c), X[mask]
        got = numbers(function(mine, mask), X.shape, "the scaled series")
        if not np.array_equal(mine, X):
            raise AssertionError("the series that were handed in are written over")
        mean, deviation = (np.array([f([X[i, k, l] for i in range(n) for k in range(N)
                                        if mask[i, k]]) for l in range(c)])
                           for f in (np.mean, np.std))
        want = np.where(real, (X - mean) / deviation, 0.0)
        if np.allclose(got, want, atol=1e-9):
            continue
        if np.allclose(got[mask], want[mask], atol=1e-9):
            raise AssertionError("the real steps are right, but padded steps are no longer zero")
        alone = [(x[m] - x[m].mean(axis=0)) / x[m].std(axis=0) for x, m in zip(X, mask)]
        for other, what in (
                ((X - flat.mean(axis=0)) / flat.std(axis=0),
                 "the padded zeros are counted in the mean and the deviation"),
                ((X - steps.mean()) / steps.std(),
                 "all coefficients share one mean and one deviation: each has its own"),
                (-want, "the sign is flipped: the mean is subtracted from the series"),
                (X - mean, "the mean is taken off, but nothing is divided by the deviation"),
                ((X - mean) / deviation ** 2, "divided by the variance, not by the deviation"),
                ((X - mean) / steps.std(axis=0, ddof=1),
                 "the deviation divides by the number of steps less one: take their number")):
            if np.allclose(got[mask], other[mask], atol=1e-9):
                raise AssertionError(what)
        if np.allclose(got[mask], np.concatenate(alone), atol=1e-9):
            raise AssertionError("each series is scaled by itself: how loud it is gets lost")
        raise AssertionError(f"the real steps have the means {got[mask].mean(axis=0).round(3)} and "
                             f"the deviations {got[mask].std(axis=0).round(3)}, expected 0 and 1")


# %% [markdown]
# **E12.2** $E = \Phi W_e$ and $R = \Psi W_r$ are multiplied by $c$, their squares and the trace of
# $W_e^\top W_r$ by $c^2$, so $J_b$ is too: it is homogeneous of degree 2 (V2). $W_o / c$ undoes it
# in the output. So $J^2$ falls to any value by rescaling, and the network computes what it did.
# %%
def shrink(weights, c):
    return weights._replace(W_e=c * weights.W_e, W_r=c * weights.W_r, W_o=weights.W_o / c)


def check_12_2(function):
    rng = np.random.default_rng(103)
    for heads, N, n, p, s, c in ((2, 7, 5, 4, 3, 0.5), (1, 4, 4, 3, 2, 0.1), (3, 6, 5, 4, 2, 3.0)):
        old = attention.published_init(rng, heads, n, s, p)
        Q, K = rng.standard_normal((2, 3, heads, N, p))
        F = rng.standard_normal((3, heads, n, p))
        new = attention.PrimalWeights(*(numbers(A, B.shape, name) for A, B, name in zip(
            parts(function(old, c), old._fields), old, old._fields)))
        (before, J), (after, J_new) = (
            (output, attention.published_loss(scores, weights)) for weights in (old, new)
            for output, scores in [attention.primal_attention(Q, K, weights, F=F)])
        if np.allclose(J_new, J, rtol=1e-9):
            raise AssertionError("J_b is what it was")
        ratio = J_new / J
        if np.ptp(ratio) > 1e-9 * np.abs(ratio).max():
            raise AssertionError(f"J_b is multiplied by {ratio.round(4)}, another factor for each "
                                 "series: its three terms must change alike")
        if not np.allclose(ratio, c ** 2, rtol=1e-9):
            raise AssertionError(f"for c = {c} J_b is multiplied by {ratio[0]:.4g}, expected "
                                 f"c^2 = {c ** 2:.4g}")
        gap = np.abs(after - before).max()
        factor = np.sum((after - old.b_o) * (before - old.b_o)) / np.sum((before - old.b_o) ** 2)
        if gap > 1e-9 and np.allclose(after - old.b_o, factor * (before - old.b_o), atol=1e-9):
            raise AssertionError(f"J_b is right, but for c = {c} the output without b_o is "
                                 f"multiplied by {factor:.4g}: W_o has to undo it")
        if gap > 1e-9:
            raise AssertionError(f"J_b is right, but the output changes by {gap:.1e}: is b_o "
                                 "what it was?")


# %% [markdown]
# The questions.
#
# 1. The noisier: the maximum of more scattered numbers is larger.
# 2. The residual of the equations themselves, of K.15 with $H = E\Lambda$, $R\Lambda$, or of K.18.
#    A rescaling makes $J$ small and leaves the relative residual, and the cosines of section 5. The
#    overlap with the leading singular vectors is neither necessary (V3) nor sufficient.
# 3. Heads whose $J$ is far from zero, with both signs: their mean is zero (V7).
# %%
ANSWERS = {                 # the solution, then wrong answers that the check must refuse
    "12.1": (standardise,
             lambda X, mask: np.where(mask[:, :, None], (X - X.mean(axis=(0, 1)))
                                      / X.std(axis=(0, 1)), 0.0),
             lambda X, mask: (X - X[mask].mean(axis=0)) / X[mask].std(axis=0),
             lambda X, mask: np.where(mask[:, :, None], (X - X[mask].mean()) / X[mask].std(), 0.0),
             lambda X, mask: np.where(mask[:, :, None], X - X[mask].mean(axis=0), 0.0)),
    "12.2": (shrink,
             lambda weights, c: weights._replace(W_e=c * weights.W_e, W_r=c * weights.W_r),
             lambda weights, c: weights._replace(W_e=c * weights.W_e, W_o=weights.W_o / c),
             lambda weights, c: weights._replace(W_o=weights.W_o / c),
             lambda weights, c: shrink(weights, c ** 2)),
}
if __name__ == "__main__":
    exercises.demonstrate(globals())
