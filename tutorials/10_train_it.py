# %% [markdown]
# # Train it: three models on one benchmark of the paper, and what the KSVD loss does
# **You will do.** Train PrimalFormer, Primal.+Trans. and a Transformer to tell nine speakers apart,
# follow the KSVD loss, switch it off, turn it up, leave out the r-scores, and look into the trained
# kernel.
#
# **You will learn.** That all three small models come within three test series of the paper; that
# the choice of the epoch is worth about as much as the choice of the model; and two things that one
# would expect of the KSVD loss and that do not come out here.
#
# **You need.** Lesson 09, 45 minutes, two CPU cores.
#
# As a script this lesson trains three models with one seed and sets them beside `tables/`, where
# three seeds are kept: under 90 seconds on two idle cores.
# `python tutorials/10_train_it.py --seeds 3 --epochs 40 --full` makes the table anew. With the
# environment variable `KSVD_REF_QUICK=1`, as in the test suite, it trains one model for 3 epochs.
# %%
import argparse
import inspect
import os
import runpy
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from ksvd_ref import training

HERE = Path(__file__).parent if "__file__" in globals() else Path.cwd()
plt.style.use(HERE / "ksvd.mplstyle")
runs = runpy.run_path(str(HERE / "vowels.py"))      # data, model, loss, and how one run is made
parser = argparse.ArgumentParser()
parser.add_argument("--seeds", type=int, default=1, help="0 to SEEDS - 1")
parser.add_argument("--epochs", type=int, default=40)
parser.add_argument("--full", action="store_true", help="all arms, and rewrite the table")
parser.add_argument("--processes", type=int, default=2, help="at a time, one BLAS thread each")
asked = sys.argv[1:] if Path(sys.argv[0]).name.startswith("10_train") else []
options = parser.parse_args(asked)                  # in a notebook: the defaults
quick = bool(os.environ.get("KSVD_REF_QUICK"))
# %% [markdown]
# ## 1. The task
# Nine men say two Japanese vowels; 12 numbers (cepstrum coefficients) for each of 7 to 29 steps;
# 270 series to learn from, 370 to test. Who speaks? One test series is 0.27 points.
# %%
(X, mask, y), test = runs["series"]()
print("train", X.shape, "test", test[0].shape, "steps", mask.sum(axis=1).min(), "to",
      mask.sum(axis=1).max())
majority = 100 * np.bincount(test[2]).max() / len(test[2])
print(f"the largest class is {majority:.1f} % of the test set; one series {100 / len(y):.2f} % of "
      f"the training set, {100 / len(test[2]):.2f} % of the test set")
assert (len(y), len(test[2])) == (270, 370) and mask.sum(axis=1).max() == 26
# %% [markdown]
# ## 2. The seam
# A block of the encoder asks for a function `attend(x, z, params, mask)` and does not look inside.
# Here is Primal-Attention in that form; F is made of rows of the block's input, and what the loss
# needs goes to a list.
# %%
print(inspect.getsource(runs["attend_primal"]))
print(inspect.getsource(runs["loss_of"]))
# %% [markdown]
# **Primal** has it in both blocks, **Primal.+Trans.** in the last, the **Transformer** nowhere.
# $d = 64$, 4 heads ($p = 16$), $s = 20$ as in the small settings of the paper: more directions than
# the rank $\min(n, p, N) \le 16$ allows (V16). $\eta$ is 0.5 and 0.2. What differs from the
# published code on purpose, besides the size (512 there) and the 40 epochs (100 there): padding
# takes no part, the blocks are normalised in front (so the first $J^2$ is near 1/9 a layer, lesson
# 09, not $10^4$), $J^2$ is added up over the layers (averaged there), and there is no dropout.
#
# ## 3. The runs
# %%
arms = list(runs["ARMS"]) if options.full else runs["MAIN"][:1 if quick else 3]
epochs = 3 if quick else options.epochs
jobs = [[HERE / "vowels.py", arm, seed, epochs] for seed in range(options.seeds) for arm in arms]
lines = training.run_apart(jobs, options.processes)
if options.full:
    runs["write_table"](lines, f"python tutorials/10_train_it.py --seeds {options.seeds} "
                        f"--epochs {options.epochs} --full")
live, table = runs["rows_of"](lines), runs["read_table"]()
column = lambda arm, name: np.array([row[name] for row in table[arm]])
print("arm              final epoch, seeds 0, 1, 2    best epoch           mean of the final")
for arm in table:
    print(f"{arm:16}", "  ".join(f"{x:6.2f}" for x in column(arm, "final")), "   ",
          "  ".join(f"{x:6.2f}" for x in column(arm, "best")),
          f"  {column(arm, 'final').mean():8.2f}")
for arm, rows in live.items():
    for row in rows:
        print(f"now: {arm}, seed {row['seed']:.0f}, {row['epochs']:.0f} epochs: final "
              f"{row['final']:.2f}, best {row['best']:.2f}, {row['cpu_seconds']:.0f} CPU seconds")
        assert row["final"] > (90 if quick else 97)
for arm in runs["MAIN"]:
    assert column(arm, "final").min() >= 97
assert column("primal", "final").mean() >= 97.8
# %% [markdown]
# The paper (Table 1) has 98.4 for Primal., 98.9 for Primal.+Trans. and 98.7 for the Transformer.
# **It reports the best test accuracy over the epochs**, as its code says. Both columns are above:
# choosing the epoch on the test set is worth about as much as the difference between the models,
# which is one series. The best epochs come within three series of the paper.
# %%
gain = np.mean([column(arm, "best") - column(arm, "final") for arm in runs["MAIN"]])
means = [column(arm, "final").mean() for arm in runs["MAIN"]]
print(f"best minus final: {gain:.2f} points; largest difference of two models: {np.ptp(means):.2f}")
assert 0.5 * np.ptp(means) < gain < 2 * np.ptp(means) and np.ptp(means) < 1.5 * 100 / 370
paper = (98.4, 98.9, 98.7)
assert all(abs(column(arm, "best").mean() - x) < 3 * 100 / 370
           for arm, x in zip(runs["MAIN"], paper))
figure, ax = plt.subplots(figsize=(6.4, 3.4))
for n, arm in enumerate(table):
    ax.plot(column(arm, "final"), [n] * 3, "o", color="#0072B2", label="" if n else "final epoch")
    ax.plot(column(arm, "best"), [n - 0.2] * 3, "^", color="#D55E00", label="" if n else "best")
ax.set_yticks(range(len(table)), list(table))
ax.set(xlabel="test accuracy, %", ylim=(len(table) - 0.5, -0.6), title="Three seeds each")
ax.legend(loc="upper left")
plt.show()
# %% [markdown]
# ## 4. What the loss does to J
# The loss is the cross-entropy plus $\eta$ times the mean of $J^2$ (K.27). Below, $J^2$ on the test
# set, both layers together, after each epoch. Nothing but $\eta$ differs.
# %%
figure, ax = plt.subplots(figsize=(5.8, 3.4))
curves = {}
for arm, label in (("primal, eta 0", r"$\eta = 0$"), ("primal", r"$\eta = 0.5$"),
                   ("primal, eta 10", r"$\eta = 10$")):
    curves[arm] = np.array([row["J2"] for row in table[arm]])           # (seeds, epochs)
    ax.semilogy(np.arange(1, curves[arm].shape[1] + 1), curves[arm].mean(axis=0), label=label)
    print(f"{arm:15}", *(f"{curves[arm].mean(axis=0)[e - 1]:.2g}" for e in (1, 2, 5, 10, 20, 40)))
ax.set(xlabel="epoch", ylabel=r"mean of $J^2$, test set", title="The KSVD loss while training")
ax.legend()
plt.show()
J2 = {arm: curve.mean(axis=0) for arm, curve in curves.items()}
assert J2["primal, eta 0"][-1] > 10 * J2["primal, eta 0"][0]
final = {arm: column(arm, "final").mean() for arm in J2}
assert abs(final["primal, eta 0"] - final["primal"]) < 0.3
assert 0 < final["primal"] - final["primal, eta 10"] < 1
assert J2["primal"].max() < 0.01 and J2["primal, eta 10"][-1] < J2["primal"][-1] / 5
# %% [markdown]
# Left alone, $J^2$ grows more than tenfold; with $\eta = 0.5$ it is small after one epoch and stays
# small. The accuracy is the same for both, and less than a point lower for $\eta = 10$.
# %% [markdown]
# ## 5. Two things that do not come out
# **The spectrum does not sharpen.** If the loss made the kernel closer to rank $s$, its leading
# singular value would gain. The share of $\sigma_1^2$ of the second layer's kernel
# $\Phi F^\top F\Psi^\top$, over series and heads:
# %%
for arm in ("primal, eta 0", "primal", "primal, eta 10"):
    print(f"{arm:15} share of sigma_1^2", *(f"{x:.3f}" for x in column(arm, "share")),
          "  overlap", *(f"{x:.3f}" for x in column(arm, "overlap")),
          "  at the start", *(f"{x:.3f}" for x in column(arm, "overlap_start")))
share, overlap = ({arm: column(arm, name).mean() for arm in J2} for name in ("share", "overlap"))
assert share["primal, eta 10"] < share["primal, eta 0"] + 0.01          # no gain with eta
assert np.ptp(list(overlap.values())) < 0.06
assert abs(overlap["primal"] - column("primal", "overlap_start").mean()) < 0.05
start = [runs["implied"](runs["init"](runs["ARMS"]["primal"], seed), test,
                         runs["ARMS"]["primal"])[0] for seed in range(3)]
print("share of sigma_1^2 before any training", *(f"{x:.3f}" for x in start))
assert min(start) > 0.8 and max(overlap.values()) < 0.96
# %% [markdown]
# A cosine kernel of a short vowel is close to rank one before any training.
#
# **$J^2$ near zero is not the KSVD solved.** If it were, the leading directions of $E$ would be the
# leading left singular vectors of the kernel ($E = H_e\Sigma$). The overlap of their spans of
# dimension 3 is what the right columns show: it hardly depends on $\eta$, while $J^2$ does by
# orders of magnitude. $J = 0$ is one equation for all weights (V5), and one set of weights serves
# 370 different kernels (V31).
#
# ## 6. Without the r-scores
# The paper has an ablation of the r-scores, on longer sequences. Here:
# %%
for arm in ("primal", "primal, e only"):
    print(f"{arm:15} final", *(f"{x:.2f}" for x in column(arm, "final")), "  mean",
          f"{column(arm, 'final').mean():.2f}")
gap = column("primal", "final").mean() - column("primal, e only", "final").mean()
print(f"the r-scores are worth {gap:.2f} points here")
assert 0 < gap < 2 * 100 / 370
# %% [markdown]
# Less than two series on average, in favour of both scores: too little to decide it.
# %% [markdown]
# ## 7. A new series, in four lines
# %%
history, done = runs["run"]("primal", 0, 2)         # two epochs; keep done.params
new = test[0][:1], test[1][:1]                      # one series (1, 26, 12) and its mask (1, 26)
scores = runs["logits"](done.params, *new, runs["ARMS"]["primal"])
print(f"speaker {np.argmax(scores)}, in truth {test[2][0]}; after 2 epochs {history[-1][1]:.1f} %")
assert history[-1][1] > majority + 50
# %% [markdown]
# ## Exercises
# After `import runpy`, load the checks with
# `check = runpy.run_path(str(HERE / "solutions" / "10_train_it.py"))`
# and call, for example, `check["check_10_1"](standardise)`.
#
# **E10.1** (about 3 lines) Scale padded series by the mean and the deviation of the real steps, and
# leave zeros at the padded ones.


# %%
def standardise(X, mask):
    raise NotImplementedError("Exercise 10.1: from (n, N, c) and (n, N) to (n, N, c)")


# check["check_10_1"](standardise)
# %% [markdown]
# **E10.2** (about 4 lines) The KSVD loss of several layers, as the paper adds it: from a list of
# (scores, weights, mask) of one layer each. Use `attention.published_loss`.
# %%
def penalty(layers, eta):
    raise NotImplementedError("Exercise 10.2: eta times a sum over the layers")


# check["check_10_2"](penalty)
# %% [markdown]
# Three questions without code.
# 1. Choose between two models by their best test epoch: which of them is favoured, the steadier or
# the noisier one?
# 2. With $\eta = 10$ the accuracy falls by less than a point. What can the network change to make
# $J$ small and keep its logits?
# 3. Why does the loss of a batch not determine the loss of each series (V7)?
#
# *Where this is used.* `attend_primal` fits any block of `encoder.py`; lesson 11 fills the same
# seam with other kernels.
#
# *Further reading.* Chen, Tao, Tonin, Suykens, Primal-Attention, NeurIPS 2023 (arXiv 2305.19798).
# Kudo, Toyama, Shimbo, Multidimensional curve classification using passing-through regions, Pattern
# Recognition Letters 20, 1999, 1103-1111.
