# %% [markdown]
# # Which kernel, which position: the ablations on a laptop
# **You will do.** Train small Transformers that differ in one component of the smoother, and
# compare them over three seeds with each other, with n-grams and with the paper.
#
# **You will learn.** What four kernels are worth; where a position is needed and where the mask is
# enough; which of two symmetries costs something; how to tell a finding from a seed.
#
# **You need.** Lessons 07 and 08: kernel, position, value, filter; sinusoids, offsets, absolute
# positions. Two CPU cores. 50 minutes, and 20 more for the exercises.
#
# Tables of three seeds are in `tables/`; `--seeds 3 --full` makes them anew. This lesson trains the
# main models of numbers and characters with one seed, 50 seconds; one with `KSVD_REF_QUICK=1`.
# %%
import runpy
from functools import partial
from math import factorial, log2, prod
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from ksvd_ref.course import exercises, training, transformer

HERE = Path(__file__).parent if "__file__" in globals() else Path.cwd()
plt.style.use("ksvd_ref.data.ksvd")
runs = runpy.run_path(str(HERE / "ablations.py"))   # tasks, models, and how one run is made
# %% [markdown]
# ## 1. The models
# Three tasks. **Numbers** from English to German, *vier und neunzig* for *ninety four*: 600 pairs
# to learn from, 500 to test, exact match. **Reversal** of strings of 4 to 8 letters, exact match.
# **Characters**: the next one of the Gospel of Mark, in bits. The first two tasks have attention at
# three sites: A inside the encoder, B from the decoder to the encoder, C inside the decoder, behind
# a causal mask. The third has C alone. A position enters in each layer and never the values (S.22),
# in one of five ways:
#
# | name | how |
# |---|---|
# | additive | the sinusoids $t$ of the position are added to the content $x$ (S.13) |
# | Transformer-XL | a kernel of the offset, times the query (S.14) |
# | look-up | the same with a learned row for each offset (S.17) |
# | product, symmetric | a kernel of two positions; one map each for content and position (S.18) |
# | product, untied | the same with two maps each (S.19) |
#
# For numbers it is added to the words of both sides, unless a name says *decoder without*, *encoder
# without* or *product*. *XL* is Transformer-XL, *symmetric* one map for queries and keys, *start x
# 2* matrices twice as large at first, *wide* a wider feed-forward part. The rbf has
# $\gamma = 1/(2\sqrt{d_k})$ for numbers, else twice this.
#
# ## 2. The runs
# %%
live = runs["train_now"]()                          # two processes, one BLAS thread each
tables = {part: {arm: np.array(score) for arm, score in runs["read_table"](part).items()}
          for part in runs["ARMS"]}
numbers, reversal, bits = tables.values()
for (part, arm), found in live.items():             # a rerun elsewhere differs a little
    slack, known = 0.1 if part == "characters" else 8, tables[part][arm]
    assert known.min() - slack < min(found) and max(found) < known.max() + slack, arm


# %%
def dots(part, label, names, height):
    figure, ax = plt.subplots(figsize=(7, height))
    for row, arm in enumerate(names):
        kept, now = tables[part][arm], live.get((part, arm), [])
        ax.plot(kept, [row] * len(kept), "oC0", markersize=5)
        ax.plot(now, [row] * len(now), "oC1", markersize=10, fillstyle="none")
    ax.set_yticks(range(len(names)), list(names))
    ax.set(xlabel=label, ylim=(len(names) - 0.5, -0.5))
    ax.grid(axis="y", color="0.92")
    return ax


# %% [markdown]
# ## 3. Numbers: which kernel
# %% Dots for five kernels: exponential, symmetric and rbf near 98 %, polynomial 87, linear 0
names = ["exponential", "exponential, symmetric", "rbf", "polynomial", "linear"]
dots("numbers", "numbers right, % of 500", names, 2.4)
plt.show()
assert all(97 <= score < 99 for name in names[:3] for score in numbers[name])
assert numbers["exponential"].mean() - numbers["rbf"].mean() < 0.5
twice = [name + ", start x 2" for name in ("exponential", "polynomial")]
assert [round(numbers[name].mean()) for name in (*names[3:], *twice)] == [87, 0, 93, 75]
# %% [markdown]
# *See:* dots are the table, rings this run. Exponential and rbf are half a point apart, polynomial
# is 11 behind, linear is at 0: a normaliser that may be zero makes no mean (lesson 07). One map for
# both sides loses nothing. (With *start x 2* 93 and 75: the order stays.)
#
# ## 4. Numbers: which position
# %% Dots for five position schemes: all near 98 % but no position in the encoder, or none at B
names = ["exponential", "decoder without", "encoder without", "product at A, B", "product at A, C"]
dots("numbers", "numbers right, % of 500", names, 2.4)
plt.show()
assert numbers["decoder without"].min() >= 97 and numbers["encoder without"].max() <= 25
assert numbers["product at A, B"].min() >= 96 and numbers["product at A, C"].max() <= 75
# %% [markdown]
# *See:* the decoder does without positions: its causal mask tells the order, from the second layer
# on (D28). The encoder sees a bag of words and fails. The product is level with added positions at
# A and B, far behind without B. **Compare position schemes at the same sites.**
#
# ## 5. Reversal: where a position is needed
# An encoder without positions moves its outputs with the letters (lesson 07), and the decoder takes
# means over them, the same for every order. Of its own past two layers behind a mask see the order.
# Both show before any training:
# %%
weights = transformer.init_translator(np.random.default_rng(0), 15, 15, d=48, hidden=96, layers=2)
plain, told = (partial(transformer.attend, heads=4, scores=runs[name])
               for name in ("content", "additive"))
back, past = np.array([[3, 4, 5, 2], [5, 4, 3, 2]]), np.array([[1, 7, 8, 9], [1, 8, 7, 9]])
cases = (back, past[[0, 0]], plain), (back, past[[0, 0]], told), (back[[0, 0]], past, plain)
logits = [transformer.translator(source, target, weights, (site, plain, plain))[:, -1]
          for source, target, site in cases]
moved = [np.abs(one - other).max() for one, other in logits]
print("source reversed: {:.0e}, with positions at A {:.0e}; past swapped {:.0e}".format(*moved))
assert moved[0] < 1e-5 < 1e-3 < min(moved[1:])      # float32
# %% [markdown]
# So without positions at A one can but guess the order. **By chance** $n$ letters, equal ones in
# groups of $c$, come out right with probability $\prod c!/n!$.
# %%
strings = runs["strings"](np.random.default_rng(1000), 400)[0]      # those of the test
bags = [np.bincount(row[row > 2]).tolist() for row in strings]
chance = np.array([prod(map(factorial, bag)) / factorial(sum(bag)) for bag in bags])
error = np.sqrt(np.sum(chance * (1 - chance))) / 400
print(f"chance: {chance.mean():.1%} of 400 strings, standard error {error:.1%}")
for arm, score in reversal.items():
    print(f"{arm:16}", score, "%")
lost = np.r_[reversal["product at C"], reversal["nowhere"]] / 100
assert np.abs(lost - chance.mean()).max() < 2 * error and reversal["product at A, B"].min() > 90
# %% [markdown]
# Told only at C, or nowhere, the models do as chance does, 1 to 3 %. Told at A and B they reverse
# 92 to 98 %, with none at C: inside the decoder the mask is enough.
#
# ## 6. Characters: which position
# The yardstick are n-grams, which predict a character from the $n - 1$ before it (Witten, Bell).
# %% Dots for thirteen models against three n-grams: the best come near the trigram, at 2.6 bits
train, test = runs["gospel"]()
ngram = {}
for n in (2, 3, 4):
    model = training.witten_bell(train, n)
    ngram[n] = -np.mean([log2(model(c, test[max(0, i - n + 1):i])) for i, c in enumerate(test)])
names = sorted(bits, key=lambda arm: bits[arm].mean())
ax = dots("characters", "bits per character of the test text", names, 4.4)
for n, value in ngram.items():
    ax.axvline(value, color="black", linewidth=0.8, linestyle=":")
    ax.annotate(f"{n}-gram", (value, len(names) - 1), fontsize=9)
plt.show()
mean = {arm: score.mean() for arm, score in bits.items()}
np.testing.assert_allclose([ngram[3], mean["Transformer-XL"], mean["look-up"],
                            mean["product, symmetric"], mean["additive"], mean["none"]],
                           [2.588, 2.61, 2.73, 2.75, 2.82, 3.06], atol=0.006)
assert ngram[3] < min(mean.values()) < ngram[3] + 0.02
# %% [markdown]
# *See:* Transformer-XL and the products with two content maps lead, at 2.60 to 2.61 bits; then
# look-up 2.73, the symmetric product 2.75, additive 2.82, none 3.06. None beats the trigram.
#
# ## 7. The price of symmetry
# The two products differ in *two* ties, and in 4096 weights. The control ties one at a time.
#
# | product | content maps | position maps | bits |
# |---|---|---|---|
# | untied | two | two | 2.609 |
# | position tied | two | one | 2.598 |
# | content tied | one | two | 2.791 |
# | symmetric | one | one | 2.755 |
# | symmetric, wide | one | one | 2.778 |
#
# **Tying the content map costs 0.16 or 0.18 bits, tying the position map nothing measurable**.
# Weights do not explain it: *wide* has those of *untied*, and is not better. Nor does the bound for
# positive semi-definite kernels (D18; question 3 of lesson 07), of which the *whole* kernel must be
# one: *content tied* is behind, and not even symmetric.
#
# Three differences have one sign by chance with probability 1/4: too weak a test. One counts here
# if its paired t, the mean $\bar g$ of the differences over the seeds by its standard error
# $s_g/\sqrt 3$, is above 9.92 (2 degrees of freedom, 5 % over these five tests).
# %%
four = [mean["product, " + name] for name in (
    "untied", "position tied", "content tied", "symmetric", "symmetric, wide")]
np.testing.assert_allclose(four, [2.609, 2.598, 2.791, 2.755, 2.778], atol=0.0006)  # S.19
for one, two, known in (
        ("symmetric", "position tied", 32), ("untied", "position tied", 1.1),
        ("content tied", "untied", 20), ("content tied", "symmetric", 5.5),
        ("symmetric, wide", "symmetric", 20)):
    gap = bits["product, " + one] - bits["product, " + two]         # seed by seed
    paired = len(gap) ** 0.5 * np.mean(gap) / np.std(gap, ddof=1)
    print(f"{one:15} - {two:13} t {paired:5.1f}", "" if abs(paired) > 9.92 else "  may be chance")
    assert abs(paired / known - 1) < 0.06           # of a t of two digits


# %% [markdown]
# ## 8. Beside the paper
# Tsai et al. compared the same at full size; four of their figures we know at second hand. Here
# too: exponential and rbf ahead of polynomial, linear failing, symmetric as good in translation.
# Not here: the product ahead of added positions, or level with XL on language.
#
# ## In short
# Exponential and rbf are almost level, polynomial is behind, linear fails. An encoder needs
# positions, a causal decoder has its mask. On characters a shared content map costs.
#
# $$\kappa(x_i, x_j)\,\kappa_T(t_i, t_j), \qquad \frac{|\bar g|}{s_g/\sqrt 3} > 9.92.$$
#
# The picture to remember: rows of three dots, and how far apart chance would put them.
#
# ## Exercises
# Fill in the functions; each check says what is wrong. `ksvd-ref check FILE` marks a whole file.
# %% [markdown]
# **E9.1** (about 4 lines) Translate without a teacher: append the best next token, `length` times.
# `logits(target)` is (batch, n, v) for a target (batch, n). Why is the exact match the same?
# %%
def greedy(logits, start, length):
    raise NotImplementedError("Exercise 9.1: start (batch, 1) grows to (batch, 1 + length)")


# %%
exercises.check("9.1", greedy)


# %% [markdown]
# **E9.2** (about 4 lines) A position without parameters, ALiBi (Press et al., 2022): in head
# $h = 1, \dots, H$ the logarithm of the second kernel is $-2^{-8h/H}(i-j)$. Write the scores; $x$
# stands at the end of $z$. Then predict, and run: `runs["CHARACTERS"]["ALiBi"] =
# runs["Arm"](runs["W"], alibi)` and `runs["row"]("characters", "ALiBi", 0)`.
# %%
def alibi(x, z, params, heads):
    raise NotImplementedError("Exercise 9.2: Q, K and a log factor (heads, N, M)")


# %%
exercises.check("9.2", alibi)
# %% [markdown]
# Three questions without code.
#
# 1. Why may words come without position in the decoder and not in the encoder?
# 2. Two models differ by 0.03 bits on seed 0. What do you run before you write that one is better?
# 3. The polynomial kernel gives $q$ and $-q$ the same weights. What can such a head not ask?
#
# *Where this is used.* Lesson 12 puts Primal-Attention into the same blocks.
#
# *Further reading.* Tsai et al., Transformer Dissection, EMNLP 2019 (arXiv 1908.11775). Haviv et
# al., 2022, on language models without positions. Witten, Bell, IEEE Trans. Information Theory
# 37(4), 1991.
