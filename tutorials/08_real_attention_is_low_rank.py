# %% [markdown]
# # Real attention is asymmetric and low-rank, and how much of that is not about content
# **You will do.** Take the 72 attention heads of a pretrained model apart: measure how asymmetric
# they are and how fast their singular values fall, take away what has nothing to do with the text,
# and read one head by its two sets of singular vectors.
#
# **You will learn.** That both facts hold; that the sharpest part of the spectrum is a sink and a
# normalisation; why a query side and a key side are needed; what the best rank-$s$ approximation
# costs.
#
# **You need.** Lessons 01 to 04 and 07, 40 minutes.
# %%
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from ksvd_ref import datasets, dual, kernels, plots

HERE = Path(__file__).parent if "__file__" in globals() else Path.cwd()
plt.style.use(HERE / "ksvd.mplstyle")
rng = np.random.default_rng(8)
# %% [markdown]
# ## 1. Six layers of twelve heads
# A head has queries $q_i$ and keys $k_j$, and its attention is the row-normalised exponential
# kernel (K.2, K.3)
# $$A_{ij} = \frac{\exp(\langle q_i, k_j\rangle/\sqrt d)}{\sum_l \exp(\langle q_i, k_l
#   \rangle/\sqrt d)}, \qquad d = 32.$$
# The text is the opening of the Gettysburg Address, 62 words and marks between the two special
# tokens that this model adds, [CLS] in front and [SEP] at the end.
# %%
heads = datasets.minilm_heads()
tokens = heads.tokens
A = np.array([[kernels.softmax(Q, K) for Q, K in zip(*layer)]
              for layer in zip(heads.Q, heads.K)])                      # (6, 12, 64, 64)
assert A.shape == (6, 12, 64, 64) and np.abs(A.sum(axis=-1) - 1).max() < 1e-12  # rounding


# %% [markdown]
# Two measures. **Asymmetry**: every square matrix is a symmetric part $(A + A^\top)/2$ and an
# antisymmetric part $(A - A^\top)/2$, orthogonal to each other; we take the ratio of their
# Frobenius norms, 0 for a symmetric matrix. **Low rank**: the share of the first $s$ components in
# $\sum_l\sigma_l^2 = \|A\|_F^2$, and the number of components that it takes to reach 99 %.
# %%
def asymmetry(A):
    turned = np.moveaxis(A, -1, -2)
    return (np.linalg.norm(A - turned, axis=(-2, -1))
            / np.linalg.norm(A + turned, axis=(-2, -1)))


def shares(A):
    """Cumulative share of sigma^2, (..., min(N, M)); the mean over the heads comes later."""
    flat = A.reshape(-1, *A.shape[-2:])
    squares = np.array([dual.solve(one, min(one.shape)).sigma ** 2 for one in flat])
    return (np.cumsum(squares, axis=1)
            / np.sum(squares, axis=1, keepdims=True)).reshape(*A.shape[:-2], -1)


def rank_99(share):
    return np.argmax(share >= 0.99, axis=-1) + 1


plain = shares(A)
at = np.array([1, 2, 3, 5, 10, 20])
print("layer  cumulative share of sigma^2 at 1, 2, 3, 5, 10, 20   rank for 99 %  asymmetry")
for l in range(6):
    print(f"  {l}   ", "  ".join(f"{x:.3f}" for x in plain[l].mean(axis=0)[at - 1]),
          f"      {rank_99(plain[l]).mean():8.1f}  {asymmetry(A[l]).mean():11.2f}")
# %% [markdown]
# Every layer is far from symmetric, and from layer 3 on ten components of 64 hold more than 97 %.
# The deepest layer has the lowest rank.
# %%
first, ten = plain.mean(axis=1)[:, 0], plain.mean(axis=1)[:, 9]
rank, skew = rank_99(plain).mean(axis=1), asymmetry(A).mean(axis=1)
# Two digits; the data are stored in float16, so the third would hang on the model's rounding.
np.testing.assert_allclose(first, [.491, .666, .734, .872, .875, .815], atol=0.005)
np.testing.assert_allclose(ten, [.854, .861, .925, .985, .977, .997], atol=0.005)
np.testing.assert_allclose(rank, [25.0, 26.0, 21.1, 9.4, 9.8, 5.8], atol=0.1)
np.testing.assert_allclose(skew, [.57, .885, .89, .91, .91, .85], atol=0.006)
assert np.all(skew > 0.5) and np.all(ten[3:] > 0.97) and np.argmin(rank) == 5
assert asymmetry(A).min() > 0.25            # and no single head of the 72 is nearly symmetric
# %% [markdown]
# ## 2. How much of it is not about content
# Before this is called a property of language, three things that are not about the text.
#
# **The rows add up to one.** $A\mathbf 1 = \mathbf 1$, hence $\sigma_1 \ge 1$, whatever the text
# (V20). Control: shuffle each row. Same numbers, same row sums, no relation of token and place.
#
# **The sink.** In layers 1 to 4 more than a third of all attention goes to [CLS]. A column that
# every row looks at is a matrix of rank one.
#
# **The mean.** Centring (lesson 02) takes away what all rows have in common.
# %%
assert all(dual.solve(one, 1).sigma[0] >= 1 for one in A.reshape(-1, 64, 64))
sink = A[..., 0].mean(axis=(1, 2))
shuffled = shares(rng.permuted(A, axis=-1))
words = A[..., 1:-1, 1:-1]                                              # [CLS], [SEP] left out
words = words / words.sum(axis=-1, keepdims=True)                       # normalised again
centred = np.array([[kernels.center(head) for head in layer] for layer in words])
no_sink, no_mean = shares(words), shares(centred)
print("layer  attention to [CLS]   share of sigma_1^2: as is, shuffled, no sink, and centred"
      "   rank for 99 %")
for l in range(6):
    print(f"  {l} {sink[l]:16.2f}" + " " * 20 + "  ".join(
        f"{x[l].mean(axis=0)[0]:.2f}" for x in (plain, shuffled, no_sink, no_mean)),
        " " * 10, "  ".join(f"{rank_99(x[l]).mean():4.1f}" for x in (plain, no_sink, no_mean)))
assert np.all(sink[1:5] > 0.35) and sink[0] < 0.1
assert np.all(shuffled[1:5].mean(axis=1)[:, 0] < 0.12)  # row sums alone do not make it low-rank
drop = first - no_sink.mean(axis=1)[:, 0]
assert np.all(drop[1:5] > 0.3) and np.all(abs(drop[[0, 5]]) < 0.05)
left = rank_99(no_mean).mean(axis=1)
assert 11 < left[5] < 13 and np.all(left[:5] >= 25)
assert np.all(no_mean.mean(axis=1)[1:5, 0] < first[1:5] / 2)
# %%
figure, axes = plt.subplots(1, 2, sharey=True, figsize=(8, 3.4))
colours = plt.cm.cividis(np.linspace(0, 0.95, 6))
for ax, share, title in zip(axes, (plain, no_mean), ("As the model computes it",
                                                     "Without the sink and the mean")):
    for l in range(6):
        ax.plot(np.arange(1, 33), share[l].mean(axis=0)[:32], color=colours[l], label=f"layer {l}")
    ax.set(title=title, xlabel="components s", ylim=(0, 1.03))
axes[0].set_ylabel(r"share of $\Sigma\,\sigma^2$")
axes[1].legend(fontsize=8)
plt.show()
# %% [markdown]
# More than half of the steep start of layers 1 to 4 on the left is the sink and the mean. What is
# left on the right is less sharp, and layer 5 is still ahead: it needs 12 components for 99 %, the
# others 25 and more. Layers 0 and 5 hardly change when the special tokens go. One passage, one
# model: a measurement, not a law.
# %% [markdown]
# ## 3. The scores have low rank by construction
# Before the exponential, $S = QK^\top/\sqrt d$ has rank $d = 32$ at most, half of $N = 64$, for any
# text and any weights. The exponential and the normalisation give full rank back: how fast the
# spectrum of $A$ falls is not settled by $d$.
# %%
S = heads.Q @ np.moveaxis(heads.K, -1, -2) / 32 ** 0.5
ranks_S = [len(dual.solve(one).sigma) for one in S.reshape(-1, 64, 64)]
ranks_A = [len(dual.solve(one).sigma) for one in A.reshape(-1, 64, 64)]
print(f"rank of the scores {min(ranks_S)} to {max(ranks_S)}, of the attention {min(ranks_A)} to "
      f"{max(ranks_A)}")
assert max(ranks_S) == 32 and max(ranks_A) == 64
print("asymmetry of the scores by layer:", np.round(asymmetry(S).mean(axis=1), 2))
assert asymmetry(S).mean(axis=1).min() > 0.2
# %% [markdown]
# A kernel with features of length $p$ cannot have a rank above $p$: the cosine kernel of
# Primal-Attention (lesson 09) inherits the bound of $S$. When its spectrum is compared with that of
# a softmax, a part of the difference is this bound.
#
# ## 4. One head, two sets of vectors
# Head 4 of layer 4, without sink and mean. $K h_r = \sigma h_e$ and $K^\top h_e = \sigma h_r$:
# $h_e$ says which tokens *ask* alike, $h_r$ which tokens *are asked* by them.
# %%
names = tokens[1:-1]
H_e, sigma, H_r = dual.solve(centred[4, 4])
lead = lambda h, n: np.argsort(-h, kind="stable")[:n]
for side, H in (("query side", H_e), ("key side", H_r)):
    print(f"{side:10}", "  ".join(f"{names[i]} {H[i, 0]:.2f}" for i in lead(H[:, 0], 7)))
asking, asked = set(names[lead(H_e[:, 0], 7)]), set(names[lead(H_r[:, 0], 4)])
assert asking == {"our", "the", "and", ",", "this"}
assert asked == {"continent", "liberty", "civil", "war"}
print(f"cosine of the two vectors: {H_e[:, 0] @ H_r[:, 0]:.2f}")
assert abs(H_e[:, 0] @ H_r[:, 0]) < 0.2
there = words[4, 4][np.isin(names, list(asking))][:, np.isin(names, list(asked))]
back = words[4, 4][np.isin(names, list(asked))][:, np.isin(names, list(asking))]
for way, part in (("there", there), ("back", back)):
    print(f"attention {way}: {part.sum(axis=1).mean():.2f}, equal parts would be "
          f"{part.shape[1] / 62:.2f}")
assert there.sum(axis=1).mean() > 4 * 4 / 62 and back.sum(axis=1).mean() < back.shape[1] / 62
# %%
figure, axes = plt.subplots(1, 2, figsize=(7.6, 3.2))
for ax, H, colour, title in ((axes[0], H_e, plots.ROWS, r"asks: $h_e$"),
                             (axes[1], H_r, plots.COLUMNS, r"is asked: $h_r$")):
    best = lead(H[:, 0], 9)[::-1]
    ax.barh(range(9), H[best, 0], color=colour)
    ax.set_yticks(range(9), [f"{names[i]}  ({i + 1})" for i in best], fontsize=8)
    ax.set(title=title, xlabel="entry of component 1")
plt.show()
# %% [markdown]
# Words of grammar and commas look at words of content, and these look back no more than at any
# others: this is what asymmetry is about. (The numbers in brackets are places in the text.) A
# symmetric method has one vector per component and must mix the two groups.
#
# ## 5. What the best approximation costs
# Keep the $s$ largest components. Eckart and Young: no matrix of rank $s$ is closer in the
# Frobenius norm, and the squared error is what was left out (V15),
# $$\|A - H_e\Sigma H_r^\top\|_F^2 = \sum_{l > s}\sigma_l^2 .$$
# Two rivals of the same rank: the next $s$ components in place of the first, for which the
# objective of lesson 05 vanishes just as well (V3); and the best symmetric matrix.
# %%
M = words[4, 4]
H_e, sigma, H_r = dual.solve(M)
w, V = np.linalg.eigh((M + M.T) / 2)
w, V = w[np.argsort(-abs(w))], V[:, np.argsort(-abs(w))]
ranks = np.arange(1, 31)
error = {"best": [], "next s": [], "symmetric": []}
for s in ranks:
    for name, guess in (("best", H_e[:, :s] * sigma[:s] @ H_r[:, :s].T),
                        ("next s", H_e[:, s:2*s] * sigma[s:2*s] @ H_r[:, s:2*s].T),
                        ("symmetric", V[:, :s] * w[:s] @ V[:, :s].T)):
        error[name].append(np.linalg.norm(M - guess) / np.linalg.norm(M))
tail = np.array([np.sum(sigma[s:] ** 2) for s in ranks]) ** 0.5 / np.linalg.norm(M)
np.testing.assert_allclose(error["best"], tail, rtol=1e-10)             # Eckart and Young
assert np.all(np.array(error["best"]) < error["next s"])
assert np.all(np.array(error["best"]) < error["symmetric"])
floor = np.linalg.norm(M - M.T) / 2 / np.linalg.norm(M)                 # of every symmetric matrix
print(f"relative error at s = 10: {error['best'][9]:.2f}, symmetric {error['symmetric'][9]:.2f}, "
      f"and never below {floor:.2f}")
assert min(error["symmetric"]) >= floor > error["best"][1]
figure, ax = plt.subplots(figsize=(5.6, 3.4))
for name, mark in (("best", "o-"), ("next s", "s-"), ("symmetric", "^-")):
    ax.plot(ranks, error[name], mark, markersize=3, label=name)
ax.axhline(floor, color="0.6", lw=1)
ax.set(xlabel="rank s", ylabel="relative error", ylim=(0, 1.05),
       title="Layer 4, head 4: three approximations of rank s")
ax.legend(loc="center right", bbox_to_anchor=(1, 0.8))
plt.show()
# %% [markdown]
# Two components already beat every symmetric matrix of any rank: the grey line is the
# antisymmetric part, which no symmetric matrix can hold.


# %% [markdown]
# ## Exercises
# After `import runpy`, load the checks with
# `check = runpy.run_path(str(HERE / "solutions" / "08_real_attention_is_low_rank.py"))`
# and call, for example, `check["check_8_1"](components_for)`.
#
# **E8.1** (about 2 lines) The smallest number of components that hold a given share of
# $\sum\sigma^2$.
# %%
def components_for(A, share):
    raise NotImplementedError("Exercise 8.1: an integer, 1 or more")


# check["check_8_1"](components_for)
# %% [markdown]
# **E8.2** (about 2 lines, a proof by numbers) The symmetric matrix closest to $A$ in the Frobenius
# norm, and its distance.
# %%
def nearest_symmetric(A):
    raise NotImplementedError("Exercise 8.2: the matrix and the distance")


# check["check_8_2"](nearest_symmetric)
# %% [markdown]
# Three questions without code.
# 1. A head in which every token attends to [CLS] only: its rank, its $\sigma_1$, its asymmetry?
# 2. Shuffling the rows of $A$ as whole rows, all in the same new order: what happens to its
# singular values, and what to its asymmetry?
# 3. Why is a rank of 64 of the softmax no contradiction to scores of rank 32?
#
# *Where this is used.* Lesson 09 builds a layer on the two sets of vectors.
#
# *Further reading.* Chen, Tao, Tonin, Suykens, Primal-Attention, NeurIPS 2023 (arXiv 2305.19798),
# for spectra by layer in an image model. Eckart and Young, The approximation of one matrix by
# another of lower rank, Psychometrika 1, 1936, 211-218. Golub and Van Loan, *Matrix Computations*.
