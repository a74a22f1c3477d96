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
# **You need.** Lessons 01 and 06, and 02 and 04 for one remark each; 40 minutes, and 20 more
# for the exercises.
# %%

import matplotlib.pyplot as plt
import numpy as np

from ksvd_ref import dual, kernels, primal
from ksvd_ref.course import datasets, exercises, plots

plt.style.use("ksvd_ref.data.ksvd")
rng = np.random.default_rng(8)
# %% [markdown]
# ## 1. Six layers of twelve heads
# In a Transformer each token $i$ has a query $q_i$ and a key $k_i$ per head. The attention of the
# head is the row-normalised exponential kernel (K.2, K.3)
# $$A_{ij} = \frac{\exp(\langle q_i, k_j\rangle/\sqrt d)}{\sum_l \exp(\langle q_i, k_l
#   \rangle/\sqrt d)}, \qquad d = 32.$$
# The model is a MiniLM. The text is the opening of the Gettysburg Address, 62 words and marks
# between the two special tokens that the model adds, [CLS] in front and [SEP] at the end.
# %%
heads = datasets.minilm_heads()
tokens = heads.tokens
A = np.array([[kernels.softmax(Q, K) for Q, K in zip(*layer)]
              for layer in zip(heads.Q, heads.K)])                      # (6, 12, 64, 64)
assert np.abs(A.sum(axis=-1) - 1).max() < 1e-12 and tokens[0] == "[CLS]"        # rounding


# %% [markdown]
# Two measures. **Asymmetry**: every square matrix is a symmetric part $(A + A^\top)/2$ plus an
# antisymmetric part $(A - A^\top)/2$, orthogonal to each other; we take the ratio of their
# Frobenius norms, 0 for a symmetric matrix. **Low rank**: the share of the first $s$ components in
# $\sum_l\sigma_l^2 = \|A\|_F^2$, and the number of components that it takes to reach 99 %.
# %%
def asymmetry(A):
    turned = np.moveaxis(A, -1, -2)
    return (np.linalg.norm(A - turned, axis=(-2, -1))
            / np.linalg.norm(A + turned, axis=(-2, -1)))


def shares(A):
    """Cumulative share of sigma^2, (..., N)."""
    squares = np.linalg.svd(A, compute_uv=False) ** 2
    return np.cumsum(squares, axis=-1) / np.sum(squares, axis=-1, keepdims=True)


def rank_99(share):
    return np.argmax(share >= 0.99, axis=-1) + 1


plain = shares(A)                                                       # (6, 12, 64)
first, ten = plain.mean(axis=1)[:, 0], plain.mean(axis=1)[:, 9]
rank, skew = rank_99(plain).mean(axis=1), asymmetry(A).mean(axis=1)
print("layer  share of 1 and of 10 components   rank for 99 %   asymmetry")
for l in range(6):
    print(f"  {l} {first[l]:14.3f} {ten[l]:14.3f} {rank[l]:16.1f} {skew[l]:11.2f}")
# Two digits; the data are stored in float16, so the third would hang on the model's rounding.
np.testing.assert_allclose(first, [.491, .666, .734, .872, .875, .815], atol=0.005)
np.testing.assert_allclose(ten, [.854, .861, .925, .985, .977, .997], atol=0.005)
np.testing.assert_allclose(rank, [25.0, 26.0, 21.1, 9.4, 9.8, 5.8], atol=0.1)
np.testing.assert_allclose(skew, [.57, .885, .89, .91, .91, .85], atol=0.006)
assert asymmetry(A).min() > 0.25 and np.all(ten[3:] > 0.97) and np.argmin(rank) == 5
# %% [markdown]
# Every layer is far from symmetric, no single head of the 72 is nearly so, and from layer 3 on ten
# components of 64 hold more than 97 %, on average over the heads. The deepest layer has the lowest
# rank, on average too.
#
# ## 2. How much of it is not about content
# Before this is called a property of language, three things that are not about the text.
#
# **The rows add up to one.** $A\mathbf 1 = \mathbf 1$, hence $\sigma_1 \ge 1$, whatever the text
# (V20). Control: shuffle each row. Same numbers, same row sums, no relation of token and place.
#
# **The sink.** In layers 1 to 4 more than a third of all attention goes to [CLS]. A column of equal
# entries that every row looks at is a matrix of rank one.
#
# **The mean.** Centring (lesson 06) takes away what all rows have in common.
# %%
assert np.linalg.norm(A, 2, axis=(-2, -1)).min() >= 1
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
control, drop = shuffled.mean(axis=1)[:, 0], first - no_sink.mean(axis=1)[:, 0]
assert np.all(sink[1:5] > 0.35) and control[0] > 0.7 * first[0] and np.all(control[1:] < 0.2)
assert np.all(drop[1:5] > 0.3) and np.all(abs(drop[[0, 5]]) < 0.05)
left = rank_99(no_mean).mean(axis=1)
assert 11 < left[5] < 13 and np.all(left[:5] >= 25)
assert np.all(no_mean.mean(axis=1)[1:5, 0] < first[1:5] / 2)
# %% [markdown]
# The row sums explain most of the first share in layer 0 and little of it elsewhere. Layers 0 and 5
# hardly change when the special tokens go, the others do.
# %% Share of the first components by layer: without sink and mean the steep start goes
figure, axes = plt.subplots(1, 2, sharey=True, figsize=(7, 3.2))
colours = plt.cm.cividis(np.linspace(0, 0.95, 6))
for ax, share, title in zip(axes, (plain, no_mean), ("As the model computes it",
                                                     "Without the sink and the mean")):
    for l in range(6):
        ax.plot(np.arange(1, 33), share[l].mean(axis=0)[:32], color=colours[l], label=f"layer {l}")
    ax.set(title=title, xlabel="components s", ylim=(0, 1.03))
axes[0].set_ylabel(r"share of $\Sigma\,\sigma^2$")
axes[1].legend(fontsize=9)
plt.show()
# %% [markdown]
# More than half of the steep start of layers 1 to 4 on the left is the sink and the mean. What is
# left on the right is less sharp, and layer 5 is still ahead: it needs 12 components for 99 %, the
# others 25 and more. One passage, one model: a measurement, not a law.
#
# ## 3. The scores have low rank by construction
# Before the exponential, $S = QK^\top/\sqrt d$ has rank $d = 32$ at most, half of $N = 64$, for any
# text and any weights; it is asymmetric already. The exponential and the normalisation give full
# rank back: how fast the spectrum of $A$ falls is not settled by $d$.
# %%
S = heads.Q @ np.moveaxis(heads.K, -1, -2) / 32 ** 0.5
found = [{len(dual.solve(one).sigma) for one in X.reshape(-1, 64, 64)} for X in (S, A)]
print("ranks of the scores", found[0], "and of the attention", found[1])
print("asymmetry of the scores by layer:", np.round(asymmetry(S).mean(axis=1), 2))
assert found == [{32}, {64}] and asymmetry(S).mean(axis=1).min() > 0.5
# %% [markdown]
# A kernel with features of length $p$ cannot have a rank above $p$: the cosine kernel of
# Primal-Attention (lesson 11) inherits the bound of $S$. When its spectrum is compared with that of
# a softmax, a part of the difference is this bound.
#
# ## 4. One head, two sets of vectors
# One head of the 72, *chosen* because its two sides are easy to read: head 4 of
# layer 4. Without sink and mean it is the matrix $K$ with $K h_r = \sigma h_e$ and $K^\top h_e =
# \sigma h_r$: $h_e$ says which tokens *ask* alike, $h_r$ which tokens *are asked*.
# %%
names = tokens[1:-1]
H_e, sigma, H_r = dual.solve(centred[4, 4])
lead = lambda h, n: np.argsort(-h, kind="stable")[:n]
asking, asked = set(names[lead(H_e[:, 0], 7)]), set(names[lead(H_r[:, 0], 4)])
assert asking == {"our", "the", "and", ",", "this"}
assert asked == {"continent", "liberty", "civil", "war"}
print(f"cosine of the two vectors: {H_e[:, 0] @ H_r[:, 0]:.2f}")
assert abs(H_e[:, 0] @ H_r[:, 0]) < 0.2
a, b = np.isin(names, list(asking)), np.isin(names, list(asked))
there, back = words[4, 4][a][:, b].sum(axis=1).mean(), words[4, 4][b][:, a].sum(axis=1).mean()
print(f"attention there {there:.2f}, equal parts would be {b.mean():.2f}; "
      f"back {back:.2f}, equal parts would be {a.mean():.2f}")
assert there > 4 * b.mean() and back < a.mean()
# %% Two bar charts: words of grammar lead the vector that asks, words of content the one asked
figure, axes = plt.subplots(1, 2, figsize=(7, 3))
for ax, H, colour, title in ((axes[0], H_e, plots.ROWS, r"asks: $h_e$"),
                             (axes[1], H_r, plots.COLUMNS, r"is asked: $h_r$")):
    best = lead(H[:, 0], 9)[::-1]
    ax.barh(range(9), H[best, 0], color=colour)
    ax.set_yticks(range(9), [f"{names[i]}  ({i + 1})" for i in best], fontsize=9)
    ax.set(title=title, xlabel="entry of component 1")
plt.show()
# %% [markdown]
# Words of grammar and commas look at words of content, and these look back no more than at any
# others: this is what asymmetry is about, in this head. (The numbers in brackets are places in the
# text.) A symmetric method has one vector per component and must mix the two groups.
#
# ## 5. What the best approximation costs
# Keep the $s$ largest components of $A$. Eckart and Young: no matrix of rank $s$ is closer in the
# Frobenius norm, and the squared error is what was left out (V15),
# $$\|A - H_e\Sigma H_r^\top\|_F^2 = \sum_{l > s}\sigma_l^2 .$$
# Two rivals of the same rank: the *next* $s$ components, for which the objective $J$ of lesson 04
# vanishes just as well (V3); and the best symmetric matrix.
# %% Error against rank: the best falls, the symmetric one stays high, the next s fail
M = words[4, 4]
H_e, sigma, H_r = dual.solve(M)
w, V = np.linalg.eigh((M + M.T) / 2)
w, V = w[np.argsort(-abs(w))], V[:, np.argsort(-abs(w))]
ranks, error = np.arange(1, 31), {"next s": [], "symmetric": [], "best": []}
for s in ranks:
    for name, guess in (("best", H_e[:, :s] * sigma[:s] @ H_r[:, :s].T),
                        ("next s", H_e[:, s:2*s] * sigma[s:2*s] @ H_r[:, s:2*s].T),
                        ("symmetric", V[:, :s] * w[:s] @ V[:, :s].T)):
        error[name].append(np.linalg.norm(M - guess) / np.linalg.norm(M))
tail = np.array([np.sum(sigma[s:] ** 2) for s in ranks]) ** 0.5 / np.linalg.norm(M)
np.testing.assert_allclose(error["best"], tail, rtol=1e-10)             # Eckart and Young
assert np.all(np.array(error["best"]) < np.minimum(error["next s"], error["symmetric"]))
W_e, W_r = H_r[:, 5:10], H_r[:, 5:10] * sigma[5:10]                     # for Phi = M, Psi = I
assert abs(primal.objective(W_e, W_r, 1 / sigma[5:10], M, np.eye(62))) < 1e-12
floor = np.linalg.norm(M - M.T) / 2 / np.linalg.norm(M)                 # of every symmetric matrix
print(f"relative error at s = 10: {error['best'][9]:.2f}, symmetric {error['symmetric'][9]:.2f}, "
      f"and never below {floor:.2f}")
assert min(error["symmetric"]) >= floor > error["best"][1]
figure, ax = plt.subplots(figsize=(7, 3.2))
for name, mark in (("next s", "s-"), ("symmetric", "^-"), ("best", "o-")):
    ax.plot(ranks, error[name], mark, markersize=3, label=name)
ax.axhline(floor, color="0.4", lw=1, ls="--", label="floor of symmetric", zorder=0)
ax.set(xlabel="rank s", ylabel="relative error", ylim=(0, 1.05),
       title="Layer 4, head 4: three approximations of rank s")
ax.legend(loc="center left", bbox_to_anchor=(1, 0.5))
plt.show()
# %% [markdown]
# Two components already beat every symmetric matrix of any rank: the dashed line is the
# antisymmetric part, which no symmetric matrix can hold.


# %% [markdown]
# ## Exercises
# Each check says what is wrong. `ksvd-ref check FILE` marks a whole file.
# %% [markdown]
# **E10.1** (about 2 lines) The smallest number of components that hold a given share of
# $\sum\sigma^2$.
# %%
def components_for(A, share):
    raise NotImplementedError("Exercise 10.1: an integer, 1 or more")


# %%
exercises.check("10.1", components_for)


# %% [markdown]
# **E10.2** (about 2 lines, a proof by numbers) The symmetric matrix closest to $A$ in the
# Frobenius norm, and its distance.
# %%
def nearest_symmetric(A):
    raise NotImplementedError("Exercise 10.2: the matrix and the distance")


# %%
exercises.check("10.2", nearest_symmetric)


# %% [markdown]
# **E10.3** (about 4 lines) Component $l$ of $A$, from 0: the $n$ rows that ask most and the $n$
# columns that are asked most, strongest first. Fix the sign, then predict what goes wrong if
# each side gets its own.
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
# another of lower rank, Psychometrika 1, 1936, 211-218. Golub and Van Loan, *Matrix Computations*.
