# %% [markdown]
# # Solutions to lesson 13, with the checks
# Each check takes your function, tries it on several inputs and says what is wrong.
# %%
import numpy as np

from ksvd_ref.course import exercises
from ksvd_ref.course.exercises import compare, parts


# %% [markdown]
# **E13.1** $\Lambda^2/N$ is the paper's $\Lambda$, and $\Sigma = \Lambda^{-1}$ there.
# %%
def sigma_of_published(Lambda, N):
    return N / Lambda ** 2


def check_13_1(function):
    rng = np.random.default_rng(92)
    for N in (10, 1, 333):
        for Lambda in (rng.uniform(0.1, 3.0, 4), -rng.uniform(0.1, 3.0, (2, 3))):
            compare(function(Lambda.copy(), N), N / Lambda ** 2, f"N = {N}, sigma", (
                (1 / Lambda, "1 / Lambda is the paper's: the code squares Lambda"),
                (1 / Lambda ** 2, "the mean over the N tokens is missing"),
                (N / Lambda, "the code weights by Lambda squared"),
                (Lambda ** 2 / N, "this is the paper's Lambda: sigma is one over it"),
                (Lambda ** 2, "this is Lambda squared: sigma falls when Lambda grows"),
                (1 / (N * Lambda ** 2), "N is on the wrong side: the mean over tokens makes the "
                 "scores' terms smaller, so sigma is larger"),
                (np.sqrt(N / np.abs(Lambda)), "this is Lambda from sigma")))


# %% [markdown]
# **E13.2** The order of mean and square decides what can cancel: heads in both, sequences in one.
# %%
def two_penalties(J):
    of_sequences = np.mean(J, axis=1)
    return np.mean(of_sequences ** 2), np.mean(of_sequences) ** 2


def check_13_2(function):
    for seed, shape in enumerate([(3, 2), (5, 4), (1, 3)]):
        J = 5 * np.random.default_rng(seed).standard_normal(shape)
        paper, code = parts(function(J.copy()), ("the paper's", "the code's"))
        mean = J.mean(axis=1)
        compare(paper, np.mean(mean ** 2), f"{shape}: the paper's penalty", [
            (np.mean(J ** 2), "each head is squared for itself: take the mean over heads first"),
            (np.mean(mean) ** 2, "sequences are averaged before the square: that is the code's"),
            (np.mean(J.mean(axis=0) ** 2), "the axes are exchanged: heads are the second")])
        compare(code, np.mean(mean) ** 2, f"{shape}: the code's penalty", [
            (np.mean(mean ** 2), "each sequence is squared for itself: that is the paper's")])


# %% [markdown]
# The questions. 1. The square of $\Lambda$ in place of $\Lambda$; means over the steps in place of
# sums, while the trace is not divided; the mean over the heads, trace and all. Together, the code's
# $\Lambda$ stands for the paper's $\Lambda^2/N$. 2. The code squares it, so its sign does not
# count; in the paper $\Lambda$ is positive, and a negative entry would turn a reward into a charge.
# 3. Rows 1 to 6 change the loss alone, and an output only through training. Rows 7 to 15, the scale
# of the input and padding are about the layer and its weights: they change outputs, and with them
# the loss. Row 14 does so if features are centred in the layer.
# %%
ANSWERS = {                 # the solution, then wrong answers that the check must refuse
    "13.1": (sigma_of_published,
             lambda Lambda, N: 1 / Lambda,
             lambda Lambda, N: 1 / Lambda ** 2,
             lambda Lambda, N: Lambda ** 2 / N),
    "13.2": (two_penalties,
             lambda J: (np.mean(J ** 2), np.mean(J) ** 2),
             lambda J: two_penalties(J)[::-1],
             lambda J: two_penalties(J.T)),
}
if __name__ == "__main__":
    exercises.demonstrate(globals())
