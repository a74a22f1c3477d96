# %% [markdown]
# # Real attention is asymmetric and low-rank, and how much of that is not about content
# **You will do.** Take the 72 attention heads of a pretrained model apart: how asymmetric they are,
# how fast their singular values fall, what is left when you take away what is not about the text.
#
# **You will learn.** That both facts hold; that the sharpest part of the spectrum is a sink and a
# normalisation; why a side that asks and a side that is asked are needed.
#
# **You need.** Lesson 01: two vectors per component, $h_e$ and $h_r$. Lesson 06: softmax divides
# rows, centring takes means away. 40 minutes, and 20 more for the exercises.
# %%
import matplotlib.pyplot as plt
import numpy as np

from ksvd_ref import dual, kernels
from ksvd_ref.course import datasets, exercises, plots

plt.style.use("ksvd_ref.data.ksvd")
rng = np.random.default_rng(8)
# %% [markdown]
# ## 1. Who asks and who is asked
# In a Transformer each token $i$ has a query $q_i$ and a key $k_i$ per head. The attention of the
# head is the row-normalised exponential kernel, with $d = 32$ here:
#
# $$A_{ij} = \frac{\exp(\langle q_i, k_j\rangle/\sqrt d)}{\sum_l \exp(\langle q_i, k_l
#   \rangle/\sqrt d)}. \tag{K.2, K.3}$$
#
# The model is a MiniLM with 6 layers of 12 heads. The text is the opening of the Gettysburg
# Address, 62 words and marks between the tokens [CLS] and [SEP] that the model adds. First one
# head, without those two and centred: at the largest $\sigma$, $h_e$ says which tokens *ask* alike,
# $h_r$ which *are asked*. The head was **chosen among 72** because its two sides are easy to read.
# %%
heads = datasets.minilm_heads()
A = np.array([[kernels.softmax(Q, K) for Q, K in zip(*layer)]
              for layer in zip(heads.Q, heads.K)])                      # (6, 12, 64, 64)
words = A[..., 1:-1, 1:-1]                                              # [CLS], [SEP] left out
words = words / words.sum(axis=-1, keepdims=True)                       # normalised again
centred = np.array([[kernels.center(head) for head in layer] for layer in words])
names, (H_e, sigma, H_r) = heads.tokens[1:-1], dual.solve(centred[4, 4])
asks, asked = (np.isin(names, names[np.argsort(-H[:, 0], kind="stable")[:n]])
               for H, n in ((H_e, 7), (H_r, 4)))
assert set(names[asks]) == {"our", "the", "and", ",", "this"}
assert set(names[asked]) == {"continent", "liberty", "civil", "war"}
# %% Two bar charts: words of grammar lead the vector that asks, words of content the one asked
figure, axes = plt.subplots(1, 2, figsize=(7, 3))
for ax, H, colour, title in ((axes[0], H_e, plots.ROWS, r"asks: $h_e$"),
                             (axes[1], H_r, plots.COLUMNS, r"is asked: $h_r$")):
    best = np.argsort(-H[:, 0], kind="stable")[8::-1]
    ax.barh(range(9), H[best, 0], color=colour)
    ax.set_yticks(range(9), [f"{names[i]}  ({i + 1})" for i in best], fontsize=9)
    ax.set(title=title, xlabel="entry of component 1")
plt.show()
# %% [markdown]
# *See:* words of grammar ask, words of content are asked. The numbers in brackets are places in the
# text. Do the first look at the second, and not the second at the first?
# %%
there = words[4, 4][asks][:, asked].sum(axis=1).mean()
back = words[4, 4][asked][:, asks].sum(axis=1).mean()
print(f"attention there {there:.2f}, with equal parts {asked.mean():.2f}")
print(f"attention back  {back:.2f}, with equal parts {asks.mean():.2f}")
assert there > 4 * asked.mean() and back < asks.mean() and abs(H_e[:, 0] @ H_r[:, 0]) < 0.2


# %% [markdown]
# The two vectors are nearly orthogonal: no single one could be both.
#
# ## 2. All heads
# **Asymmetry** is $\|A - A^\top\|/\|A + A^\top\|$, 0 for a symmetric matrix. **Low rank** shows in
# two numbers: the share of the first components in $\sum_l\sigma_l^2$, which is then high, and how
# many of them make 99 %, then few.
# %%
def shares(A):
    squares = np.linalg.svd(A, compute_uv=False) ** 2
    return np.cumsum(squares, axis=-1) / np.sum(squares, axis=-1, keepdims=True)


def rank_99(share):
    return np.argmax(share >= 0.99, axis=-1) + 1


turned, plain = np.moveaxis(A, -1, -2), shares(A)                       # plain (6, 12, 64)
skew = np.linalg.norm(A - turned, axis=(2, 3)) / np.linalg.norm(A + turned, axis=(2, 3))
# %%
first, ten, rank = plain[..., 0].mean(1), plain[..., 9].mean(1), rank_99(plain).mean(1)
print("layer, share of 1 and of 10 components, rank for 99 %, asymmetry")
for l in range(6):
    print(f"  {l} {first[l]:.3f} {ten[l]:.3f} {rank[l]:5.1f} {skew.mean(1)[l]:.2f}")
np.testing.assert_allclose(first, [.491, .666, .734, .872, .875, .815], atol=0.005)
np.testing.assert_allclose(ten, [.854, .861, .925, .985, .977, .997], atol=0.005)
np.testing.assert_allclose(rank, [25.0, 26.0, 21.1, 9.4, 9.8, 5.8], atol=0.1)
assert skew.min() > 0.25 and np.all(ten[3:] > 0.97) and np.argmin(rank) == 5
# %% [markdown]
# No head of the 72 is nearly symmetric. From layer 3 on ten components of 64 hold more than 97 % on
# average, and the deepest layer has the lowest rank.
#
# ## 3. How much of it is not about content
# Three controls, before this is called a property of language.
#
# - **Rows that sum to one.** $A\mathbf 1 = \mathbf 1$, so $\sigma_1\ge1$ whatever the text (V20).
#   Shuffle each row: the same sums, no relation of token and place.
# - **The sink.** In layers 1 to 4 more than a third of all attention goes to [CLS]. A column of
#   equal entries is a matrix of rank one. Leave [CLS] and [SEP] out.
# - **The mean.** Centring takes away what all rows have in common.
# %%
shuffled, no_sink, no_mean = shares(rng.permuted(A, axis=-1)), shares(words), shares(centred)
sink, ones = A[..., 0].mean(axis=(1, 2)), [x[..., 0].mean(1) for x in (shuffled, no_sink, no_mean)]
print("layer, attention to [CLS], first share as it is, shuffled, without sink, and centred")
for l in range(6):
    print(f"  {l} {sink[l]:.2f}  {first[l]:.2f}  " + "  ".join(f"{x[l]:.2f}" for x in ones))
assert np.all(sink[1:5] > 0.35)
assert ones[0][0] > 0.7 * first[0] and np.all(ones[0][1:] < 0.2)
assert np.all((first - ones[1])[1:5] > 0.3) and np.all(abs(first - ones[1])[[0, 5]] < 0.05)
assert np.all(ones[2][1:5] < first[1:5] / 2)
# %% [markdown]
# The row sums explain most of the first share in layer 0 and little elsewhere. Layers 0 and 5
# hardly change when the special tokens go, the others do.
# %% Share of the first components by layer: without sink and mean the steep start goes
left = rank_99(no_mean).mean(axis=1)
assert 11 < left[5] < 13 and np.all(left[:5] >= 25)
figure, axes = plt.subplots(1, 2, sharey=True, figsize=(7, 3))
colours = plt.cm.cividis(np.linspace(0, 0.95, 6))
for ax, share, title in zip(axes, (plain, no_mean), ("as the model computes it",
                                                     "without the sink and the mean")):
    for l in range(6):
        ax.plot(np.arange(1, 33), share[l].mean(axis=0)[:32], color=colours[l], label=f"layer {l}")
    ax.set(title=title, xlabel="components s", ylim=(0, 1.03))
axes[0].set_ylabel(r"share of $\Sigma\,\sigma^2$")
axes[1].legend(fontsize=9)
plt.show()
# %% [markdown]
# *See:* the steep start of layers 1 to 4 on the left is gone on the right. Layer 5 is still ahead:
# it needs 12 components for 99 %, the others 25 and more. One passage, one model: a measurement,
# not a law.
#
# ## 4. What an approximation costs
# Before the exponential the logits have rank $d = 32$ at most, for any text. The exponential gives
# this head full rank, so how fast $\sigma$ falls is not settled by $d$. Leave [CLS] and [SEP] out
# again, and keep the $s$ largest components: by Eckart and Young the squared error is
# $\sum_{l>s}\sigma_l^2$, and no matrix of rank $s$ is closer (EY). A rival is the best *symmetric*
# matrix.
# %% Error against rank: the best falls, the symmetric one stays above a floor
logits = heads.Q[4, 4] @ heads.K[4, 4].T / 32 ** 0.5
assert np.linalg.matrix_rank(logits) == 32 and len(dual.solve(A[4, 4]).sigma) == 64
M, ranks = words[4, 4], np.arange(1, 31)
size = np.linalg.norm(M)
sigma, kept = dual.solve(M).sigma, dual.solve((M + M.T) / 2).sigma      # |eigenvalues|
best = np.array([np.sum(sigma[s:] ** 2) for s in ranks]) ** 0.5 / size
floor = np.linalg.norm(M - M.T) / 2 / size                              # of every symmetric matrix
symmetric = (np.array([np.sum(kept[s:] ** 2) for s in ranks]) / size ** 2 + floor ** 2) ** 0.5
assert np.all(best < symmetric) and floor > best[1]
figure, ax = plt.subplots(figsize=(7, 3))
ax.plot(ranks, np.c_[symmetric, best], "o-", markersize=3, label=["symmetric", "best"])
ax.axhline(floor, color="0.4", lw=1, ls="--", label="floor of symmetric")
ax.set(xlabel="rank s", ylabel="relative error", ylim=(0, 1.05))
ax.legend()
plt.show()


# %% [markdown]
# *See:* two components already beat every symmetric matrix of any rank. The dashed line is the
# antisymmetric part, which no symmetric matrix can hold.
#
# ## In short
# Attention of a trained model is far from symmetric and of low rank. Much of the low rank is a sink
# and a common mean; what is left is less sharp. One side asks and the other is asked, and the KSVD
# has a vector for each.
#
# $$A h_r = \sigma h_e, \qquad \|A - H_e\Sigma H_r^\top\|^2 = \sum_{l>s}\sigma_l^2.$$
#
# The picture to remember: words that ask, words that are asked.
#
# ## Exercises
# Fill in the functions; each check says what is wrong. `ksvd-ref check FILE` marks a whole file.
# %% [markdown]
# **E10.1** (about 2 lines) The smallest number of components that hold a given share of
# $\sum\sigma^2$.
# %%
def components_for(A, share):
    raise NotImplementedError("Exercise 10.1: an integer, 1 or more")


# %%
exercises.check("10.1", components_for)


# %% [markdown]
# **E10.2** (about 2 lines, a proof by numbers) The symmetric matrix closest to $A$ in the Frobenius
# norm, and its distance.
# %%
def nearest_symmetric(A):
    raise NotImplementedError("Exercise 10.2: the matrix and the distance")


# %%
exercises.check("10.2", nearest_symmetric)


# %% [markdown]
# **E10.3** (about 4 lines) Component $l$ of $A$, from 0: the $n$ rows that ask most and the $n$
# columns that are asked most, strongest first. Fix the sign, then predict what goes wrong if each
# side gets its own.
# %%
def ask_and_asked(A, l, n):
    raise NotImplementedError("Exercise 10.3: two integer arrays (n,), the largest |h_e| positive")


# %%
exercises.check("10.3", ask_and_asked)
# %% [markdown]
# Three questions without code.
#
# 1. A head in which every token attends to [CLS] only: its rank, its $\sigma_1$, its asymmetry?
# 2. Shuffling the rows of $A$ as whole rows, all in the same new order: what happens to its
#    singular values, and what to its asymmetry?
# 3. Why is a rank of 64 of the softmax no contradiction to scores of rank 32?
#
# *Where this is used.* Lesson 11 builds a layer on the two sets of vectors.
#
# *Further reading.* Chen, Tao, Tonin, Suykens, Primal-Attention, NeurIPS 2023 (arXiv 2305.19798),
# for spectra by layer in an image model. Eckart and Young, The approximation of one matrix by
# another of lower rank, Psychometrika 1, 1936, 211–218. Golub and Van Loan, *Matrix Computations*.
