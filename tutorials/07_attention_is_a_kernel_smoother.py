# %% [markdown]
# # Attention is a kernel smoother with four things to choose
# **You will do.** Write each published attention as one line that differs from its neighbour in
# one component, and check on small matrices what each component can and cannot do.
#
# **You will learn.** What softmax has to do with Nadaraya and Watson, which kernel is no smoother,
# why symmetric is not positive semi-definite, and where the order of words comes from.
#
# **You need.** Lesson 02 and a Transformer seen once; 45 minutes, 25 more for the exercises.
# %%
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from ksvd_ref import datasets, features
from ksvd_ref.positions import absolute, offset_table, relative, sinusoids, turned
from ksvd_ref.smoother import (attention, causal, linear_attention, memory, strided, weights,
                               window)

HERE = Path(__file__).parent if "__file__" in globals() else Path.cwd()
plt.style.use(HERE / "ksvd.mplstyle")
rng = np.random.default_rng(0)
# Short sums of numbers of order 1: rounding is about 1e-15.
close = lambda a, b, tolerance=1e-12: np.abs(np.subtract(a, b)).max() < tolerance
normalised = lambda G: G / G.sum(axis=-1, keepdims=True)
# %% [markdown]
# ## 1. The definition
# A query $q_i$ takes a weighted mean of the values $v_j$ that belong to the keys $k_j$. The kernel
# $\kappa$ says how much a key counts, the filter $B$ whether the query may see it, 1 or 0 (S.2):
# $$o_i = \sum_j \frac{B_{ij}\,\kappa(q_i, k_j)}{\sum_l B_{il}\,\kappa(q_i, k_l)}\, v_j.$$
# With $G_{ij} = \kappa(q_i, k_j)$ it is $O = AV$, where $A_{ij} = B_{ij}G_{ij}$ divided by the sum
# of its row (S.3). On paper: kernel values $(2, 1)$ and values $(3, 0)$ give $\frac23 \cdot 3 = 2$;
# hide the first key, and the mean is 0. With a Gaussian kernel of width $h$ (S.9) this is the
# regression of Nadaraya and Watson (1964).
# %% Regression curves of three widths: narrow copies the points, wide flattens to their mean
K, V = [[np.log(2)], [0.0]], [[3.0], [0.0]]
assert close(attention([[1.0]], K, V), 2) and close(attention([[1.0]], K, V, mask=[False, True]), 0)
x, grid = np.sort(rng.random(60))[:, None], np.linspace(0, 1, 201)[:, None]
y = np.sin(6 * x) + 0.3 * rng.standard_normal(x.shape)
fig, ax = plt.subplots(figsize=(7, 3))
ax.plot(x, y, ".", color="0.6", label="keys, values")
for h, style in ((0.01, ":"), (0.05, "-"), (0.3, "--")):
    fit = attention(grid, x, y, kernel="rbf", gamma=1 / (2 * h ** 2))
    assert close(fit, normalised(np.exp(-(grid - x.T) ** 2 / (2 * h ** 2))) @ y)
    assert y.min() <= fit.min() and fit.max() <= y.max()
    ax.plot(grid, fit, style, label=f"h = {h}")
ax.set(title="Nadaraya-Watson regression is rbf attention", xlabel="query, key", ylabel="value")
ax.legend(loc="upper right")
plt.show()
# %% [markdown]
# From copying (dotted) towards the global mean (dashed); no output leaves the range of the values.
#
# ## 2. The kernel on the content
# Softmax attention has the exponential kernel $e^{\beta\langle q, k\rangle}$, $\beta = 1/\sqrt d$,
# for keys of $d$ numbers (S.6). Is it the Gaussian one? Nearly:
# $$e^{\beta\langle q, k\rangle} = e^{\beta\|q\|^2/2}\, e^{-\beta\|q-k\|^2/2}\, e^{\beta\|k\|^2/2}$$
# The factor of the query cancels. That of the key stays: exponential attention is rbf attention
# **whose keys have weights**. The two agree for all queries if and only if all visible keys have
# one length; $q = 0$ shows the "only if". The heads of a small model, MiniLM, that reads Lincoln:
# %% Two maps of one head: without key weights, most attention falls on the first token
Q, K, tokens = datasets.minilm_heads()                          # (6 layers, 12 heads, 64, 32)
beta, rbf = 32 ** -0.5, {"kernel": "rbf", "gamma": 32 ** -0.5 / 2}
A, R = weights(Q, K), weights(Q, K, **rbf)
assert close(A, normalised(np.exp(beta * Q @ np.moveaxis(K, -1, -2))))     # softmax
of_keys = beta / 2 * (K ** 2).sum(axis=-1)[..., None, :]        # logarithm of the key weight
assert close(weights(Q, K, **rbf, log_factor=of_keys), A)
assert close(weights(Q, K, log_factor=rng.standard_normal((64, 1))), A)    # one of queries cancels
unit = K / np.sqrt((K ** 2).sum(axis=-1, keepdims=True))
assert close(weights(Q, unit), weights(Q, unit, **rbf))
assert close(weights(0 * Q, K), 1 / 64) and not close(weights(0 * Q, K, **rbf), 1 / 64, 0.01)
moved = np.abs(A - R).sum(axis=-1).mean(axis=-1) / 2            # (6, 12)
print(f"the key weights move {moved.min():.0%} to {moved.max():.0%} of a head's attention")
assert moved.min() > 0.02 and moved.argmax() == 12 + 8 and of_keys[1, 8].argmin() == 0
assert A[1, 8, :, 0].mean() < 0.25 and R[1, 8, :, 0].mean() > 0.8          # tokens[0] is [CLS]
fig, axes = plt.subplots(1, 2, figsize=(7, 3.6), sharey=True)
for ax, image, title in zip(axes, (A, R), ("exponential", "rbf: keys without weights")):
    drawn = ax.imshow(np.sqrt(image[1, 8, :18, :18]), vmin=0, vmax=1)
    ax.set(title=title, xlabel="key")
    ax.set_xticks(range(18), tokens[:18], rotation=90, fontsize=8)
    ax.set_yticks(range(18), tokens[:18], fontsize=8)
axes[0].set_ylabel("query")
fig.colorbar(drawn, ax=axes, shrink=0.8, label="root of the weight")
plt.show()
# %% [markdown]
# Layer 1, head 8 (from 0), where the weights matter most: the key of [CLS] is the shortest, and
# without key weights it draws most of the attention.
#
# **The linear kernel $\langle q, k \rangle$ (S.7) is no smoother.** For $q = 1$ and keys $1, -1$
# the normaliser is 0; for keys $1, -0.999$ the weights are 1000 and −999. Its square, the
# polynomial kernel (S.8), is never negative, but blind: $q$ and $-q$ are the same to it.
# %%
np.testing.assert_raises_regex(ValueError, "no weighted mean", weights, [[1.0]], [[1.0], [-1.0]],
                               kernel="linear")
assert close(normalised(np.array([1, -0.999])), [1000, -999], 1e-9)        # a warning in weights
assert close(*(weights(sign * Q, K, kernel="polynomial", coef0=0.0) for sign in (1, -1)))
# %% [markdown]
# **Symmetric is not positive semi-definite** (PSD: symmetric, no negative eigenvalue). One map for
# queries and keys, $W_q = W_k$, makes $G$ both, for all four kernels. But for data $\pm 1$ with
# $W_q = 1$, $W_k = -1$ the exponential $G$ is symmetric and has the eigenvalue $1/e - e = -2.35$.
# And once its rows are normalised, $A$ is not even symmetric.
# %%
X = rng.standard_normal((7, 4))
for G in (X @ X.T, (X @ X.T) ** 2, np.exp(-((X[:, None] - X) ** 2).sum(axis=-1)), np.exp(X @ X.T)):
    assert np.linalg.eigvalsh(G)[0] > -1e-12 * G.max()
assert close(np.linalg.eigvalsh(np.exp(np.outer([1, -1], [-1, 1])))[0], 1 / np.e - np.e)
assert not close(weights(X, X), weights(X, X).T, 0.1)
# %% [markdown]
# ## 3. The position
# A position is a second kernel that multiplies the first; `log_factor` is its logarithm. Let token
# $i$ have content $f_i$, position $t_i$ and query $q_i = f_iW_q$. A kernel of **offsets** takes its
# coefficients from the query, $\exp(\langle q_i, R_{i-j}\rangle/\sqrt d)$ (S.15). Transformer-XL
# has $R_r = t_rW_R$ with sinusoids $t$ (S.12, S.14), Shaw et al. and Huang et al. a learned table
# (S.17). An **absolute** one is $\exp(\langle t_iW_T, t_jW_T\rangle/\sqrt d)$ (S.18: Tsai et al.).
# %% Maps of two position kernels: stripes for offsets, no stripes for absolute positions
N, d = 12, 4
f, t, u, v = rng.standard_normal((N, 8)), sinusoids(N, 8), *rng.standard_normal((2, d))
W_q, W_k, W_v, W_F, W_T, W_R = 0.5 * rng.standard_normal((6, 8, d))
q, k = f @ W_q, f @ W_k
R = sinusoids(2 * N - 1, 8, first=1 - N)[::-1] @ W_R            # offsets i - j from N - 1 down
offset, pair = relative(q, R), absolute(t @ W_T, t @ W_T)
assert close(offset[5, 2], q[5] @ (sinusoids(1, 8, first=3)[0] @ W_R) / d ** 0.5)
one_query = relative(np.tile(q[0], (N, 1)), R)                  # the same query at every place
assert close(one_query[1:, 1:], one_query[:-1, :-1])            # a function of i - j
assert close(pair, pair.T) and not close(pair[1:, 1:], pair[:-1, :-1], 0.1)
fig, axes = plt.subplots(1, 2, figsize=(7, 3.2))
ticks = {"xticks": (0, 5, 10), "yticks": (0, 5, 10)}
for ax, image, title in zip(axes, (one_query, pair), ("offsets (XL)", "absolute (Tsai)")):
    fig.colorbar(ax.imshow(image), ax=ax, shrink=0.8, label="log of the kernel")
    ax.set(title=title, xlabel="position j of the key", ylabel="position i of the query", **ticks)
plt.show()
# %% [markdown]
# Left, one query at all places: only $i - j$ counts. Right, no stripes, in spite of the sinusoids.
#
# ## 4. Each published attention is one line
# Vaswani et al. *add* the position, $f + t$ in place of $f$. The values have it too, or not, which
# Tsai et al. recommend. Transformer-XL in full has two learned biases, $u$ and $v$. The filter is
# full unless `mask` says otherwise.
# %%
a, table = f + t, rng.standard_normal((5, d))
looked_up = relative(q, offset_table(table, N, N))
published = {
    "Set Transformer": attention(q, k, f @ W_v),
    "Vaswani": attention(a @ W_q, a @ W_k, a @ W_v),            # in a decoder, mask=causal(N)
    "Shaw, Huang": attention(q, k, f @ W_v, log_factor=looked_up),
    "XL, product": attention(q, k, f @ W_v, log_factor=offset, mask=causal(N)),
    "XL, full": attention(q + u, k, f @ W_v, log_factor=relative(q + v, R), mask=causal(N)),
    "Tsai": attention(f @ W_F, f @ W_F, f @ W_v, log_factor=pair),
    "Sparse Transformer": attention(q, k, f @ W_v, mask=strided(N, 4)),
    "Katharopoulos": linear_attention(q, k, f @ W_v, mask=causal(N))}
# Additive: (f + t)(f' + t') = ff' + ft' + tf' + tt', three factors beside the content's.
three = absolute(q, t @ W_k) + absolute(t @ W_q, k) + absolute(t @ W_q, t @ W_k)
assert close(attention(q, k, a @ W_v, log_factor=three), published["Vaswani"])
# The table has a row for each offset from -2 to 2 and is clipped beyond: 9 - 1 counts as 2.
assert close(looked_up[9, [8, 1]], q[9] @ table[[2 + 1, 2 + 2]].T / 2)
# Tsai: one exponential kernel of [f W_F, t W_T]. The scale stays sqrt(4).
P = np.hstack([f @ W_F, t @ W_T])
assert close(attention(P, P, f @ W_v, scale=2), published["Tsai"])
# XL's product (S.14): one of [q, psi] and [k, t]; psi is q W_R^T turned by the query's position.
one = weights(np.hstack([q, turned(q @ W_R.T)]), np.hstack([k, t]), scale=2, mask=causal(N))
assert close(one @ f @ W_v, published["XL, product"])
# %% [markdown]
# ## 5. The filter, and where order comes from
# Causal (S.24), with a memory of earlier keys (S.25), a window (S.26), strided (S.27):
# %% Maps of four filters: a triangle, a triangle beside a block, a band, a band with stripes
B = {"causal": causal(N), "memory": memory(N, 4), "window": window(N, 4), "strided": strided(N, 4)}
assert [int(mask.sum()) for mask in B.values()] == [78, 78 + 4 * N, 42, 54]
fig, axes = plt.subplots(1, 4, figsize=(7, 2.2), width_ratios=(12, 16, 12, 12))
for ax, (title, mask) in zip(axes, B.items()):
    ax.imshow(mask)
    ax.set(title=title, xlabel="key j", **ticks)
axes[0].set_ylabel("query i")
plt.show()
# %% [markdown]
# Bright is visible: 78 pairs for causal, 54 for strided, 42 for the window.
#
# Without position and filter attention is **equivariant**: permute the rows, and the outputs
# permute. A causal filter breaks that, but *one* causal layer is blind to the order of the past:
# it averages a set. With equal weights the third of the rows $a, b, c$ becomes $(a + b + c)/3$,
# after a second layer $(11a + 5b + 2c)/18$, and order shows.
# %%
layer = lambda f, mask=None: attention(f @ W_q, f @ W_k, f, mask=mask)
once, twice = (lambda f: layer(f, causal(N))), (lambda f: layer(layer(f, causal(N)), causal(N)))
order = [*rng.permutation(N - 1), N - 1]                        # the last stays the last
assert close(layer(layer(f[order])), layer(layer(f))[order])    # no filter: equivariant
assert not close(once(f[order]), once(f)[order], 0.1)           # causal: not
blind, sees = (np.abs(deep(f[order])[-1] - deep(f)[-1]).max() for deep in (once, twice))
print(f"shuffling the past moves the last row by {blind:.0e} after one layer, {sees:.2g} after two")
assert blind < 1e-12 and sees > 0.01
A = weights(f, f, kernel=lambda Q, K: np.ones((N, N)), mask=causal(N))     # equal weights
assert close(A[2, :3], 1 / 3) and close((A @ A)[2, :3] * 18, [11, 5, 2])
# %% [markdown]
# ## 6. Finite features, and two relatives
# For $\kappa = \langle \phi(q), \phi(k)\rangle$ with positive features $\phi$, sums over keys come
# first, in $O(N)$; a causal filter is a running state $S_i = S_{i-1} + \phi(k_i)^\top v_i$ (S.31).
# The exponential kernel has random features only, right in the mean (S.32).
#
# Fed back as the query, the output of an rbf kernel with keys = values = data is **mean shift**,
# which climbs the density of the data (S.34); that of the exponential kernel is the update of a
# modern **Hopfield network** (S.35). For patterns of one length the two are the same.
# %%
phi = lambda X: np.where(X > 0, X + 1, np.exp(np.minimum(X, 0)))           # elu + 1
assert close(attention(phi(q), phi(k), f @ W_v, kernel="linear", mask=causal(N)),
             published["Katharopoulos"])
Phi, Psi = features.positive_random(q / 2, k / 2, m=20_000, seed=0)
assert np.abs(Phi @ Psi.T / np.exp(q @ k.T / 4) - 1).mean() < 0.1          # ~ 1 / sqrt(m)
Z, at = unit[1, 8], Q[1, 8]                                     # data of one length
density = lambda at: np.exp(-beta / 2 * ((at[:, None] - Z) ** 2).sum(axis=-1)).sum(axis=-1)
for _ in range(20):
    was, at = at, attention(at, Z, Z, **rbf)
    assert close(at, attention(was, Z, Z)) and np.all(density(at) >= density(was) - 1e-12)
# %% [markdown]
# ## Exercises
# `check = runpy.run_path(str(HERE / "solutions" / "07_attention_is_a_kernel_smoother.py"))` (after
# `import runpy`) loads the checks; `check["check_7_1"](rbf_as_exponential)` runs one.
#
# - **E7.1** (about 2 lines) The `scale` and `log_factor` that make exponential attention rbf.
# - **E7.2** (about 6 lines) $H$ heads that are *averaged* have the squared error bias² + (mean
#   variance)$/H$ + $(1 - 1/H)$ (mean covariance) (S.38): these three terms, from their outputs.
# - **E7.3** (about 7 lines) Causal attention with features, by a running state.
# - **E7.4** (about 6 lines) Predict, then run: all filters of $n$ tokens that keep equivariance.


# %%
def rbf_as_exponential(K, gamma):
    raise NotImplementedError("Exercise 7.1: (scale, log_factor), from the keys alone")


def ensemble(F, truth):
    raise NotImplementedError("Exercise 7.2: from F (H, draws, points) three terms (points,)")


def running(phi_Q, phi_K, V):
    raise NotImplementedError("Exercise 7.3: outputs (N, d_v), from states (p, d_v) and (p,)")


def equivariant_filters(n):
    raise NotImplementedError("Exercise 7.4: a list of (n, n) boolean masks")


# %% [markdown]
# **Questions.** (1) A mask multiplies $\kappa$. What goes wrong if it multiplies the logits? (2)
# Why is a logit of $-10^9$ not the same as hiding a key? (3) If $G$ is PSD, $G_{i,i-1}^2 \le
# G_{ii}G_{i-1,i-1}$. If every row prefers the previous place to its own, what does the diagonal do?
#
# *Where this is used.* Lessons 08 (KSVD of these maps), 09 (Primal-Attention), 11 (ablations).
#
# *Further reading.* Tsai et al., Transformer Dissection, EMNLP 2019 (arXiv 1908.11775). Dai et al.,
# Transformer-XL, ACL 2019. Choromanski et al., Rethinking Attention with Performers, ICLR 2021.
# Ramsauer et al., Hopfield Networks is All You Need, ICLR 2021.
