# %% [markdown]
# # Solutions to lesson 07, with the checks
# Each check compares your function with a slower truth on several inputs and says what is wrong.
# %%
import itertools

import numpy as np

from ksvd_ref.course import exercises
from ksvd_ref.course.exercises import compare, numbers, parts
from ksvd_ref.attention.filters import causal
from ksvd_ref.attention.smoother import attention, weights


# %% [markdown]
# **E7.1** $-\gamma\|q - k\|^2 = 2\gamma\langle q, k\rangle - \gamma\|k\|^2 - \gamma\|q\|^2$. The
# last is a factor of the query and cancels; the first is the exponential kernel with scale
# $1/(2\gamma)$.
# %%
def rbf_as_exponential(K, gamma):
    return 1 / (2 * gamma), -gamma * np.sum(K ** 2, axis=1)[None, :]


def check_7_1(function):
    for seed, (N, M, d, gamma) in enumerate([(4, 6, 3, 0.5), (2, 5, 1, 2.0), (7, 3, 4, 0.1)]):
        rng = np.random.default_rng(seed)
        Q, K = rng.standard_normal((N, d)), rng.standard_normal((M, d))
        scale, log_factor = parts(function(K.copy(), gamma), ("scale", "log_factor"))
        scale = float(numbers(scale, (), "scale"))
        if scale <= 0:
            raise AssertionError(f"scale divides the scores and must be positive, got {scale}")
        log_factor = numbers(log_factor, None, "log_factor")
        if log_factor.shape == (M,):
            log_factor = log_factor[None, :]
        log_factor = numbers(log_factor, (1, M), "log_factor, one number for each key")
        keys = np.sum(K ** 2, axis=1)[None, :]
        run = lambda scale, factor: weights(Q, K, scale=scale, log_factor=factor)
        want = weights(Q, K, kernel="rbf", gamma=gamma)
        compare(run(scale, log_factor), want, f"gamma = {gamma}, the attention", (
            (run(1 / (2 * gamma), 0 * keys), "the key's factor exp(-gamma |k|^2) does not cancel "
             "and is missing in log_factor"),
            (run(1 / (2 * gamma), gamma * keys), "log_factor has the wrong sign: long keys count "
             "less with rbf, not more"),
            (run(2 * gamma, -gamma * keys), "scale is upside down: the scores are divided by it"),
            (run(1 / gamma, -gamma * keys), "the 2 of 2 gamma <q, k> is missing in scale"),
            (run(1 / (2 * gamma), -gamma * keys ** 0.5), "|k| in place of |k|^2 in log_factor"),
            (weights(Q, K, kernel="rbf", gamma=2 * gamma), "this is rbf with 2 gamma")))


# %% [markdown]
# **E7.2** Equivariance for all inputs means that the filter commutes with every permutation: all
# diagonal entries are equal, and all others. Two free bits make four filters, for every $n \ge 2$:
# all, only itself, all but itself, none. Hiding something is not enough to see order.
# %%
def equivariant_filters(n):
    X = np.random.default_rng(0).standard_normal((n, 2))
    kept = []
    for bits in itertools.product([False, True], repeat=n * n):
        B = np.reshape(bits, (n, n))
        if all(np.abs(attention(X[p], X[p], X[p], mask=B) - attention(X, X, X, mask=B)[p]).max()
               < 1e-9 for p in map(list, itertools.permutations(range(n)))):
            kept.append(B)
    return kept


def check_7_2(function):
    for n, count in ((2, 4), (3, 4), (1, 2)):
        got = function(n)
        if not isinstance(got, (list, tuple)) and not getattr(got, "ndim", 0):
            raise ValueError(f"n = {n}: a list of masks expected, got {got!r:.60}")
        eye = np.eye(n, dtype=bool)
        found = []
        for B in got:
            B = np.asarray(B)
            if B.shape != (n, n) or B.dtype != bool:
                raise ValueError(f"n = {n}: a mask must be a boolean array of shape ({n}, {n}), "
                                 f"got {B.dtype} of shape {B.shape}")
            for i, j in itertools.permutations(range(n), 2):    # swap i and j
                p = list(range(n))
                p[i], p[j] = j, i
                if np.any(B[p][:, p] != B):
                    raise AssertionError(f"n = {n}: the filter {B.astype(int).tolist()} is not "
                                         f"equivariant: swap tokens {i} and {j}")
            found.append(B.tobytes())
        if len(found) != len(set(found)):
            raise AssertionError(f"n = {n}: a filter occurs twice")
        for B, name in ((eye | ~eye, "all keys"), (eye & ~eye, "no key, for which the output is 0"),
                        (eye, "only the token itself"), (~eye, "all but the token itself")):
            if B.tobytes() not in found:
                raise AssertionError(f"n = {n}: {count} filters expected, got {len(found)}; the "
                                     f"one that shows {name} is missing")


# %% [markdown]
# The questions. (1) Logits times 0 are 0, not minus infinity: the hidden key keeps the kernel value
# $e^0 = 1$. (2) In a row that sees nothing all logits are $-10^9$, and softmax gives the hidden
# keys equal weights in place of none. (3) $G_{i,i-1} > G_{ii}$ and the inequality give
# $G_{i-1,i-1} > G_{ii}$: it falls from row to row, so $G$ is no function of $i - j$ alone (D18).
# %%
ANSWERS = {                 # the solution, then wrong answers that the check must refuse
    "7.1": (rbf_as_exponential,
            lambda K, gamma: (0.5 / gamma, np.zeros((1, len(K)))),
            lambda K, gamma: (0.5 / gamma, gamma * np.sum(K ** 2, axis=1)[None, :]),
            lambda K, gamma: (2 * gamma, -gamma * np.sum(K ** 2, axis=1)[None, :]),
            lambda K, gamma: rbf_as_exponential(K, 2 * gamma),
            lambda K, gamma: (0.5 / gamma, -gamma * np.sum(K ** 2, axis=1)[:, None])),
    "7.2": (equivariant_filters,
            lambda n: [causal(n), causal(n) | True],
            lambda n: [np.ones((n, n), dtype=bool), np.zeros((n, n), dtype=bool)],
            lambda n: [~B for B in equivariant_filters(n)[:-1]],
            lambda n: 2 * equivariant_filters(n)),
}
if __name__ == "__main__":
    exercises.demonstrate(globals())
