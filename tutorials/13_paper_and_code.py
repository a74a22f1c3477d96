# %% [markdown]
# # Paper and code: what the published layer computes
# **You will do.** Compute, row by row, where the published code of Primal-Attention differs from
# the paper.
#
# **You will learn.** What a trained $\Lambda$ of the code means, why its loss starts near 1/9, and
# which differences change an output.
#
# **You need.** Lesson 11: $J$ rewards scores by $\Lambda$ and charges $\mathrm{tr}(W_e^\top W_r)$;
# $\Lambda = \Sigma^{-1}$ at a solution, whose vectors are $H_e$, $H_r$, for features $\Phi$,
# $\Psi$. 35 minutes, and 15 more for the exercises.
# %%
import numpy as np

from ksvd_ref import attention, dual, features, kernels
from ksvd_ref.attention import smoother
from ksvd_ref.course import datasets, exercises

rng = np.random.default_rng(9)
# %% [markdown]
# ## 1. The ledger
# The code is yingyichen-cyy/PrimalAttention, commit 084d122; TS, LRA, CV, NLP and RL are its
# folders: time series, Long-Range Arena, images, text, reinforcement learning. A difference is not
# yet a mistake. All of it matters to whoever reads singular values off trained weights or compares
# tables. Where the left side is empty, the paper leaves it open.
#
# | row | topic | paper | code | section |
# |---|---|---|---|---|
# | 1 | weights | $e^\top\Lambda e$ | $\Vert\Lambda e\Vert^2$ | 2 |
# | 2 | over the steps | a sum | a mean; the trace is not divided | 2 |
# | 3 | heads | mean of $J$, then the square | the same; LRA, CV: mean over the batch first | 3 |
# | 4 | sign of $\Lambda$ | positive | free | 3 |
# | 5 | layers | sum of $J^2$ | mean | 3 |
# | 6 | goal | derived: a maximum of $J$; trained: $J^2$ to 0 | $J^2$ to 0 | lesson 04 |
# | 7 | rows of $W_e$ | $N$ | $n$, chosen before training | 5 |
# | 8 | $f(X)$ | sampled rows, as in a random projection | one even grid | 5 |
# | 9 | its columns | those of $X$ | a head's slice of them | 5 |
# | 10 | start | orthogonal, only implied | heads orthogonal to each other | 4 |
# | 11 | $W_o$ | a linear map | with a bias; one for all heads | 5 |
# | 12 | dropout | | an option that is never applied to the scores | |
# | 13 | $s$ | below $p$ as a rule | RL: up to 96, above $N = 60$ and $p = 64$ | 5 |
# | 14 | centring | variances | none: second moments | lesson 06 |
# | 15 | kernel | | the cosine map only | 5 |
#
# What the paper says in rows 7 to 11 and 13 we know at second hand. Beside these rows: the input of
# TS is scaled (section 4), and padding counts (section 6).
# %%
heads, s = datasets.minilm_heads(), 10
Phi, Psi = features.cosine(heads.Q[4, 4], heads.K[4, 4])                # one head, (64, 32)
H_e, sigma, H_r = dual.solve(Phi @ Psi.T, s)
solution = attention.PrimalWeights((Psi.T @ H_r)[None], (Phi.T @ H_e)[None], 1 / sigma[None],
                                   np.eye(2 * s), np.zeros(2 * s))
fitted = attention.primal_attention(heads.Q[4, 4:5], heads.K[4, 4:5], solution)[1]
assert abs(attention.paper_loss(fitted, solution)[0]) < 1e-12 * sigma.sum()
# %% [markdown]
# ## 2. Two Lambdas (rows 1 and 2)
# The code weighs by $\Lambda^2$ and averages over the $N$ steps (K.31). Written out, that is the
# paper's loss with $\Lambda^2/N$ for its $\Lambda$ (V39). So where the paper has
# $\Lambda = 1/\sigma$, the code has $\Lambda = \sqrt{N/\sigma}$ (V35).
#
# **By hand.** $N = 64$ and $\sigma = 4$: the paper's $\lambda$ is 1/4, the code's is
# $\sqrt{64/4} = 4$, and $4^2/64 = 1/4$ again.
# %%
root = solution._replace(Lambda=(64 / sigma[None]) ** 0.5)
J_at = [float(attention.published_loss(fitted, w)) for w in (solution, root)]
print("the code's J at Lambda = 1/sigma: {:.1f}, at sqrt(N/sigma): {:.0e}".format(*J_at))
assert abs(J_at[1]) < 1e-12 * sigma.sum() < abs(J_at[0])
np.testing.assert_allclose(attention.paper_lambda(root.Lambda, 64), 1 / sigma[None], rtol=1e-14)
assert attention.paper_lambda([[4.0]], 64)[0, 0] == 1 / 4
# %% [markdown]
# The same on a layer at its start: 4 sequences of 60 steps, 2 heads, data-dependent weights.
# %%
N, n, p = 60, 50, 32
X, W_q, W_k = rng.standard_normal((4, N, 64)), *rng.uniform(-1, 1, (2, 64, 64)) / 8
queries, keys, F = (smoother.split_heads(Y, 2) for Y in (X @ W_q, X @ W_k,
                                                         attention.even_rows(X, n)))
weights = attention.published_init(rng, 2, n, s, p)
output, scores = attention.primal_attention(queries, keys, weights, F=F)
as_paper = weights._replace(Lambda=attention.paper_lambda(weights.Lambda, N))
J = attention.published_loss(scores, weights)                           # (4,)
gap = np.abs(attention.paper_loss(scores, as_paper).mean(axis=-1) - J).max()
print(f"the paper's loss with Lambda^2 / N against the code's: {gap:.0e}")
assert gap < 1e-13
# %% [markdown]
# ## 3. What cancels, a free sign, a smaller weight (rows 3 to 5)
# A mean before a square lets signs cancel: heads with $J = 1$ and $-1$ give 0 (V7). The code
# squares $\Lambda$, so its sign does not count. The mean over two layers is half the sum: the same
# penalty with half the weight $\eta$.
# %%
J_h = np.array([1.0, -1.0])                                             # of two heads
assert attention.square_of_mean(J_h) == 0 < attention.mean_of_squares(J_h) == 1
turned = attention.published_loss(scores, weights._replace(Lambda=-weights.Lambda))
assert np.all(turned == J)
J_l = np.array([3.0, 1.0])                                              # of two layers
assert attention.mean_of_squares(J_l) == np.sum(J_l ** 2) / 2 == 5


# %% [markdown]
# ## 4. Where training starts (row 10)
# **By hand.** For input of variance 1, $F\varphi$ has $n$ entries of variance 1, since $\varphi$
# has length 1. A head's $W_e$ has norm 1, so each of its $ns$ entries has the variance $1/(ns)$,
# and each score $1/s$. $\Lambda$ is uniform in $(0, 1)$, so $\lambda^2$ is $1/3$ in the mean. Then
# $\|\Lambda e\|^2$ is $s\cdot\tfrac1s\cdot\tfrac13$; half of it from $e$, half from $r$, and a
# trace near 0 make **$J\approx1/3$, $J^2\approx1/9$**. TS multiplies the input by $\sqrt{d}$ with
# $d = 512$, so $F$ too, and the score terms of $J$ by 512.
# %%
def start(weights, scale=1.0):
    scores = attention.primal_attention(queries, keys, weights, F=scale * F)[1]
    return attention.published_loss(scores, weights)


inits = [attention.published_init(np.random.default_rng(seed), 2, n, s, p) for seed in range(30)]
starts = np.array([start(w).mean() for w in inits])
print(f"J at 30 starts: {starts.mean():.3f} +- {starts.std():.3f}; J^2: {np.mean(starts**2):.3f}")
assert abs(starts.mean() - 1 / 3) < 4 * starts.std() / 30 ** 0.5        # 4 standard errors
assert 0.8 / 9 < np.mean(starts ** 2) < 1.25 / 9
assert 256 < start(inits[0], 512 ** 0.5).mean() / start(inits[0]).mean() < 1024
# %% [markdown]
# *Orthogonal* means the heads to each other: the columns *within* a head are not.
# %%
W = attention.published_init(rng, 8, 64, 30, 64).W_e                    # (8, 64, 30)
flat = W.reshape(8, -1)
assert np.abs(flat @ flat.T - np.eye(8)).max() < 1e-13
lengths = np.sum(W[0] ** 2, axis=0)
print(f"squared lengths of the columns of one head: {lengths.min():.3f} to {lengths.max():.3f}")
assert np.ptp(lengths) > 0.01
# %% [markdown]
# ## 5. The layer itself (rows 7, 8, 9, 11, 13, 15)
# A step between two places of the grid never reaches $f(X)$, in no sequence: an argument for rows
# drawn at random does not cover that.
# %%
grid = attention.even_rows(np.arange(64.0)[:, None], 16)[:, 0].astype(int)
unseen = np.isin(np.arange(64), grid, invert=True)[:, None] * 1.0       # 1 between the places
print(f"{unseen.sum():.0f} of 64 steps never reach f(X)")
assert unseen.sum() == 48 and not np.any(attention.even_rows(unseen, 16))
# %% [markdown]
# A head sees its own columns of $X$. $W_e$ has $n$ rows whatever the length $N$, and the last map
# has a bias.
# %%
halves = smoother.split_heads(attention.even_rows(np.tile(np.arange(8.0), (6, 1)), 3), 2)
assert np.all(halves[0] == [0, 1, 2, 3]) and np.all(halves[1] == [4, 5, 6, 7])
assert weights.W_e.shape == (2, n, s) and n < N
assert weights.W_o.shape == (2 * s, p) and weights.b_o.shape == (p,)
# %% [markdown]
# Of $s$ directions at most $\min(n, p, N)$ can have a $\sigma > 0$ (V16). With the sizes of RL and
# the cosine map these are 60 of 96; the layer warns of the others.
# %%
rank = len(dual.solve(kernels.cosine(*rng.standard_normal((2, 60, 64)))).sigma)
assert rank == 60 < 96
# %% [markdown]
# ## 6. Padding and the causal form
# Short series are padded. In RL the padded steps enter the running means; in TS and LRA they enter
# $f(X)$ and the means of $J$. With a mask they do not. The division of the running sums by $i$, on
# the other hand, changes nothing: the cosine map divides a length out (K.30, V40).
# %%
free = attention.published_init(rng, 2, p, s, p)
causal = attention.primal_attention(queries, keys, free, causal=True)[0]
sums = (np.cumsum(A, axis=2) for A in (queries, keys))
assert np.abs(attention.primal_attention(*sums, free)[0] - causal).max() < 1e-13
padding = np.arange(N) >= 20                        # 20 steps of padding in front
ignored, kept = (attention.primal_attention(queries, keys, free, mask=m, causal=True)[0][:, :, 20:]
                 for m in (None, padding))
moved = np.abs(ignored - kept).max() / np.abs(kept).max()
print(f"padding in front moves causal outputs by {moved:.0%}")
assert moved > 0.1
# %%
short = np.arange(N) < 20                                               # 20 steps are real
Y = np.where(short[:, None], X, 0.0)
q, k = (smoother.split_heads(Y @ W, 2) for W in (W_q, W_k))
told, untold = (attention.primal_attention(q, k, weights, mask=m, F=smoother.split_heads(
    attention.even_rows(Y, n, mask=m), 2))[0][:, :, :20] for m in (short, None))
moved = np.abs(untold - told).max() / np.abs(told).max()
print(f"padding behind moves outputs through f(X) by {moved:.0%}")
assert moved > 0.1
# %% [markdown]
# ## 7. Settings
# TS reports the best epoch on the *test* set, as its README says. In TS and LRA $\eta = 0$ in four
# command lines. RL runs one seed unless told, where the paper has three. In NLP the loss of the
# task is a sum over tokens and $J^2$ a mean: with 2048 tokens $\eta = 0.1$ is 5e-5 for each.
# %%
print(f"eta of NLP for one token: {0.1 / 2048:.0e}")
assert round(0.1 / 2048, 5) == 5e-5


# %% [markdown]
# ## In short
# Rows 1 and 2 change what a trained number means; row 10 says where training starts; padding
# changes outputs. At a stationary point the code's $\sigma$ is $N/\Lambda^2$, not $1/\Lambda$. None
# of it speaks against the method, and only code that is public can be compared.
#
# $$\Lambda_{\mathrm{paper}} = \Lambda_{\mathrm{code}}^2/N, \qquad
# \Lambda_{\mathrm{code}} = \sqrt{N/\sigma}.$$
#
# The picture to remember: two heads, 1 and $-1$, and a mean of zero.
#
# ## Exercises
# Fill in the functions; each check says what is wrong. `ksvd-ref check FILE` marks a whole file.
# %% [markdown]
# **E13.1** (about 1 line) Predict, then run: the singular values that trained weights of the
# published code stand for, if its loss is at a stationary point.
# %%
def sigma_of_published(Lambda, N):
    raise NotImplementedError("Exercise 13.1: from Lambda and the number of tokens")


# %%
exercises.check("13.1", sigma_of_published)


# %% [markdown]
# **E13.2** (about 2 lines) From $J$ of each sequence and head, $(B, H)$: the penalty of the paper,
# which takes the mean over the heads, squares it and averages over the sequences, and that of the
# LRA code, which averages over the sequences before it squares.
# %%
def two_penalties(J):
    raise NotImplementedError("Exercise 13.2: two numbers")


# %%
exercises.check("13.2", two_penalties)
# %% [markdown]
# Three questions without code.
#
# 1. Name three differences between the loss of the paper and that of the published code.
# 2. A trained $\Lambda$ has a negative entry. What does the code make of it, what would the paper?
# 3. Which differences change a layer's output, and which only its loss?
#
# *Where this is used.* Findings F9 to F12 show these rows one by one, with the code.
#
# *Further reading.* Chen, Tao, Tonin, Suykens, Primal-Attention, NeurIPS 2023 (arXiv 2305.19798).
