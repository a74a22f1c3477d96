# %% [markdown]
# # Primal-Attention: scores in place of a kernel matrix, and what the published code computes
# **You will do.** Build the attention layer of Chen et al. from the two equations of the KSVD,
# measure its cost, and compute where the published code differs from the paper.
#
# **You will learn.** In which sense the layer is the KSVD and in which it is not; what
# data-dependent weights can hide; why the loss starts near 1/9.
#
# **You need.** Lessons 03, 04 and 07; 75 minutes, and 20 more for the exercises.
# %%
import timeit
import tracemalloc
from time import process_time

import matplotlib.pyplot as plt
import numpy as np

from ksvd_ref import attention, dual, features, primal
from ksvd_ref.attention import smoother
from ksvd_ref.course import datasets, exercises, plots

plt.style.use("ksvd_ref.data.ksvd")
rng = np.random.default_rng(9)
# %% [markdown]
# ## 1. From the KSVD to a layer
# Let the rows of $\Phi$ and $\Psi$ be the features of queries $q_i$ and keys $k_j$, and
# $K = \Phi\Psi^\top$. The KSVD is $K H_r = H_e\Sigma$, $K^\top H_e = H_r\Sigma$ (K.15), with the
# weights $W_e = \Psi^\top H_r$, $W_r = \Phi^\top H_e$ (K.12) and $\Lambda = \Sigma^{-1}$. (In the
# code `K` are the keys and `kernel` is this matrix.) Read $K H_r$ as attention: row $i$ is a sum of
# **values** $h_{rj}$ weighted by the kernel. The KSVD says what comes out, the primal how to have
# it without $K$ (K.20, V27):
# $$e_i = \sum_j K_{ij}\,h_{rj} = (H_e\Sigma)_i = W_e^\top\varphi(q_i).$$
# With $r_i = W_r^\top\psi(k_i)$ and $s$ components, the layer hands on both scores of a token
# through one linear map, $o_i = W_o^\top[e_i; r_i] + b_o$ (K.24; the bias is the published code's).
# Its kernel is the cosine: each feature is a query or key divided by its length (K.25).
# %%
heads, s = datasets.minilm_heads(), 10
Q, K = heads.Q[4, 4:5], heads.K[4, 4:5]                                 # one head: (1, 64, 32)
Phi, Psi = features.cosine(Q[0], K[0])
kernel = Phi @ Psi.T                                                    # (64, 64), only to compare
H_e, sigma, H_r = dual.solve(kernel, s)
solution = attention.PrimalWeights((Psi.T @ H_r)[None], (Phi.T @ H_e)[None], 1 / sigma[None],
                                   np.eye(2 * s), np.zeros(2 * s))
output, fitted = attention.primal_attention(Q, K, solution)
gap = max(np.abs(output[0, :, :s] - kernel @ H_r).max(), np.abs(fitted.E[0] - H_e * sigma).max(),
          np.abs(fitted.R[0] - H_r * sigma).max())
print(f"the layer against attention with values H_r: {gap:.0e}")
assert gap < 1e-12 * sigma[0]                       # sums of 64 products
# %% [markdown]
# **This does not make trained weights singular vectors.** With $\Psi$ of full column rank *any*
# $W_e$ has values $H = (\Psi^\dagger)^\top W_e$ with $E = KH$. Random weights have them; they are
# not orthogonal, and no $\sigma$ comes out. Only the stationarity conditions make $H$ the KSVD: the
# loss (K.28)
# $$J = \tfrac12\sum_i e_i^\top\Lambda e_i + \tfrac12\sum_j r_j^\top\Lambda r_j -
#   \mathrm{tr}(W_e^\top W_r)$$
# is 0, with gradient 0, at the solution (K.22). And the solution of one sequence is in general not
# stationary for another (V31; question 2 asks why; the same tokens in another order do share it):
# where no $\sigma$ kept for the one is a $\sigma$ of the other, only $W = 0$ is so for both (V37).
# Let another head stand for the other sequence:
# %%
W_any = rng.standard_normal((1, 32, s)) / 6
values = np.linalg.pinv(Psi).T @ W_any[0]
E_any = attention.primal_attention(Q, K, solution._replace(W_e=W_any))[1].E[0]
assert np.abs(E_any - kernel @ values).max() < 1e-9                     # a pseudo-inverse
cosines = values.T @ values / np.outer(*2 * [np.linalg.norm(values, axis=0)]) - np.eye(s)
assert np.abs(cosines).max() > 0.2                  # random weights: not orthogonal
J = attention.paper_loss(fitted, solution)[0]
slope = primal.gradient(solution.W_e[0], solution.W_r[0], 1 / sigma, Phi, Psi)
print(f"J = {J:.0e}, its largest derivative {np.abs(slope).max():.0e}, trace {sigma.sum():.1f}")
assert abs(J) < 1e-12 * sigma.sum() and np.abs(slope).max() < 1e-12 * sigma[0]
two, I = features.cosine(heads.Q[4, 5], heads.K[4, 5]), np.eye(32)
slope = primal.gradient(solution.W_e[0], solution.W_r[0], 1 / sigma, *two)
assert np.abs(slope).max() > 0.1                    # V31; but for the same tokens, reordered:
slope = primal.gradient(solution.W_e[0], solution.W_r[0], 1 / sigma, Phi[::-1], Psi[::-1])
assert np.abs(slope).max() < 1e-12 * sigma[0]
free = [64 - np.linalg.matrix_rank(np.block([[A.T @ A / sigma[0], -I], [-I, B.T @ B / sigma[0]]]))
        for A, B in ((Phi, Psi), two)]              # stationary (w_e, w_r) for Lambda = 1 / sigma_1
assert free == [1, 0]                               # V37: none is left for the other
w = np.array([[0.0], [1.0]])                        # but sigma = 1 of both diag(2, 1), diag(3, 1):
assert not np.any([primal.gradient(w, w, np.ones(1), np.diag([a, 1.0]), np.eye(2)) for a in (2, 3)])
# %% [markdown]
# ## 2. Weights that depend on the data
# In most of the paper's experiments the layer has $F^\top W_e$ in place of $W_e$, with $F = f(X)$:
# $n$ evenly spaced rows of the layer's input $X$ (K.29). The kernel is $\Phi F^\top F\Psi^\top$.
# Here a layer at its initial weights: 4 sequences of $N = 60$ tokens, $H = 2$ heads of $p = 32$.
# %%
N, n, H, p = 60, 50, 2, 32
X = rng.standard_normal((4, N, H * p))
W_q, W_k = rng.uniform(-1, 1, (2, H * p, H * p)) / (H * p) ** 0.5
split = lambda Y: smoother.split_heads(Y, H)                            # (4, H, N, p)
queries, keys, F = split(X @ W_q), split(X @ W_k), split(attention.even_rows(X, n))
assert np.all(attention.even_rows(X, n)[:, [0, -1]] == X[:, [0, -1]])      # the first, the last,
assert np.all(attention.even_rows(X, 30) == X[:, np.arange(30) * 59 // 29])             # K.29
weights = attention.published_init(rng, H, n, s, p)
output, scores = attention.primal_attention(queries, keys, weights, F=F)       # (4, H, N, p)
# %% [markdown]
# $W_e$ has $n = 50$ rows and acts through $F^\top$ $(32, 50)$: **a null space** of dimension
# $n - p = 18$ (V30). Components there change $\mathrm{tr}(W_e^\top W_r)$, hence $J$, and nothing
# else. So move both weights by $t$ along one of its directions:
# %% Curve of J against a shift of the weights: it falls through zero while the output stays
null = np.linalg.svd(F[0, 0].T)[2][p:]                                  # (18, 50)
assert null.shape == (n - p, n) and np.abs(F[0, 0].T @ null.T).max() < 1e-13
one, shift = weights._replace(Lambda=weights.Lambda[:1]), null[:1].T @ np.full((1, s), s ** -0.5)
ts, J_t, outputs = np.linspace(0, 8, 41), [], []
for t in ts:                                        # one head of one sequence
    w = one._replace(W_e=weights.W_e[:1] + t * shift, W_r=weights.W_r[:1] + t * shift)
    o, at = attention.primal_attention(queries[0, :1], keys[0, :1], w, F=F[0, :1])
    J_t.append(attention.paper_loss(at, w)[0])
    outputs.append(o)
print(f"J from {J_t[0]:.1f} to {J_t[-1]:.1f}")
assert J_t[0] > 1 and J_t[-1] < -1 and np.ptp(outputs, axis=0).max() < 1e-12
figure, ax = plt.subplots(figsize=(7, 2.6))
ax.plot(ts, J_t)
ax.axhline(0, color="0.6", lw=1)
ax.set(xlabel="shift t in the null space", ylabel="J", title="One output, any J")
plt.show()
# %% [markdown]
# $J$ falls through 0 while not one output moves: $J = 0$ says little about the layer.
#
# ## 3. What it costs
# Softmax attention forms $N\times N$ numbers per head; the layer $N\times s$. Time and peak memory
# of one head, $p = 64$, $s = 30$, in float32.
# %% Time and memory against the number of tokens: the memory of softmax grows twice as steeply
sizes = np.array([64, 128, 256, 512, 1024, 2048])
seconds, peak = ({"softmax": np.full(6, np.inf), "primal": np.full(6, np.inf)} for _ in range(2))
layer = attention.published_init(rng, 1, 64, 30, 64, dtype="float32")
for i in 4 * [*range(6)]:                           # rounds: a busy moment does not hit them all
    q, k, v = rng.standard_normal((3, 1, sizes[i], 64)).astype("float32")
    for name, call in (("softmax", lambda: smoother.attention(q, k, v)),
                       ("primal", lambda: attention.primal_attention(q, k, layer))):
        seconds[name][i] = min(seconds[name][i], timeit.timeit(call, timer=process_time, number=1))
        tracemalloc.start()
        call()
        peak[name][i] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
assert seconds["softmax"][-1] > 2 * seconds["primal"][-1]
assert peak["softmax"][-1] > 3.6 * peak["softmax"][-2]
assert peak["primal"][-1] < 2.2 * peak["primal"][-2]
figure, axes = plt.subplots(1, 2, figsize=(7, 3))
for ax, cost, label in zip(axes, (seconds, peak), ("CPU seconds of one head", "bytes at the peak")):
    for name, colour in (("softmax", plots.COLUMNS), ("primal", plots.ROWS)):
        ax.loglog(sizes, cost[name], "o-", color=colour, label=name)
    ax.set(xlabel="tokens N", ylabel=label, xticks=sizes, xticklabels=sizes)
    ax.minorticks_off()
axes[0].legend()
plt.show()
# %% [markdown]
# When $N$ doubles, the memory of softmax grows fourfold and that of the layer twofold. Projections
# are in neither curve; softmax needs one more, to $v$.
#
# ## 4. The loss at the start
# The published loss (K.31) averages over heads $h$ and tokens, and weights by $\Lambda^2$:
# $$J_b = \tfrac12\,\mathrm{mean}\,\|\Lambda_h e\|^2 + \tfrac12\,\mathrm{mean}\,\|\Lambda_h r\|^2 -
#   \mathrm{mean}_h\,\mathrm{tr}(W_{e,h}^\top W_{r,h}).$$
# At the start, for input of variance 1, $F\varphi$ has $n$ entries of variance 1 ($\varphi$ has
# length 1). $W_e$ has norm 1, so its $ns$ entries have variance $1/(ns)$ and each score $1/s$.
# $\Lambda$ is uniform in $(0, 1)$: $\lambda^2$ is $1/3$ in the mean, $\|\Lambda e\|^2$ is
# $s\cdot\frac1s\cdot\frac13$, and the trace near 0. So **$J \approx 1/3$, $J^2\approx 1/9$**, and
# $c^4$ times that with $cF$ for $F$.
# %%
J_b = lambda w, c=1.0: attention.published_loss(
    attention.primal_attention(queries, keys, w, F=c * F)[1], w)
inits = [attention.published_init(np.random.default_rng(seed), H, n, s, p) for seed in range(30)]
starts = np.array([J_b(w).mean() for w in inits])
print(f"J at 30 starts: {starts.mean():.3f} +- {starts.std():.3f}; J^2: {np.mean(starts**2):.3f}")
assert abs(starts.mean() - 1 / 3) < 4 * starts.std() / 30 ** 0.5    # 4 standard errors
assert 0.8 / 9 < np.mean(starts ** 2) < 1.25 / 9
scaled = np.mean(J_b(inits[0], 512 ** 0.5) ** 2)    # the time-series model: input times sqrt(512)
assert 0.5 < scaled / (512 ** 2 * np.mean(J_b(inits[0]) ** 2)) < 2
# %% [markdown]
# ## 5. The ledger
# Where the published code (yingyichen-cyy/PrimalAttention, commit 084d122) differs from the paper:
# topic, paper, code, and what a computation shows. A difference is not yet a mistake; all of it
# matters to whoever reads singular values off trained weights or compares tables. TS, LRA, CV, NLP
# and RL are its folders: time series, Long-Range Arena, images, text, reinforcement learning.
# %%
row = lambda *cells: print("{:22}| {:19}| {:30}| {}".format(*cells))
E, R, L = *scores, weights.Lambda[:, None, :]
J_code = attention.published_loss(scores, weights)
row("1 weights", "e^T Lambda e", "|Lambda e|^2", f"{np.sum(L*E*E):.0f}, {np.sum((L*E)**2):.0f}")
root = solution._replace(Lambda=(64 / sigma[None]) ** 0.5)              # V35: sqrt(N / sigma)
J_at = [float(attention.published_loss(fitted, w)) for w in (solution, root)]
row("2 sum or mean", "sigma = 1 / Lambda", "sigma = N / Lambda^2",
    f"code's J at these: {J_at[0]:.1f}, {J_at[1]:.0e}")
assert abs(J_at[1]) < 1e-12 * sigma.sum() < abs(J_at[0])
as_paper = weights._replace(Lambda=attention.paper_lambda(weights.Lambda, N))
gap = np.abs(attention.paper_loss(scores, as_paper).mean(axis=-1) - J_code).max()      # V39
row("1 and 2 undone", "J at Lambda^2 / N", "J", f"equal to {gap:.0e}")
J_h = np.array([9.809, -9.809])
cancel, each = attention.square_of_mean(J_h), attention.mean_of_squares(J_h)
row("3 heads", "J: mean of heads", "so; LRA, CV: of the batch too",
    f"at +-9.809: J^2 = {cancel:.0f}, each {each:.1f} (V7)")
turned = attention.published_loss(scores, weights._replace(Lambda=-weights.Lambda))
row("4 Lambda > 0", "required", "free", f"sign flipped: {np.abs(turned - J_code).max():.0f} away")
W, W_X = weights[:2], [F[0, 0].T @ W[0] for W in weights[:2]]
row("LRA: --trace_no_x", "tr(W_e^T W_r)", "the same: all scripts set it",
    f"{np.sum(W[0][0] * W[1][0]):.2f}; unset {np.sum(W_X[0] * W_X[1]):.2f}, F drops out (V29)")
row("TS: input", "-", "times sqrt(d_model)", f"first J^2: {scaled:.0e}")
g = np.sum(attention.published_init(rng, 8, 64, 30, 64).W_e[0] ** 2, axis=0)
row("10 orthogonal", "columns of W", "heads to each other", f"|w|^2 {g.min():.3f} to {g.max():.3f}")
free = attention.published_init(rng, H, p, s, p)
causal = attention.primal_attention(queries, keys, free, causal=True)[0]
sums = (np.cumsum(A, axis=2) for A in (queries, keys))
still = np.abs(attention.primal_attention(*sums, free)[0] - causal).max()
row("NLP, RL: causal (K.30)", "-", "sums divided by i", f"without it: {still:.0e} away (V40)")
ignored, kept = (attention.primal_attention(queries, keys, free, mask=m, causal=True)[0][:, :, 20:]
                 for m in (None, np.arange(N) >= 20))           # 20 steps of padding in front
padded = np.abs(ignored - kept).max() / np.abs(kept).max()
row("RL: padding", "-", "enters running means", f"outputs move by {padded:.0%}")
mask = np.arange(N) < np.array([[60], [40], [20], [10]])
Y = np.where(mask[..., None], X, 0.0)
told, untold = (attention.primal_attention(split(Y @ W_q), split(Y @ W_k), weights, mask=m, F=split(
    attention.even_rows(Y, n, mask=m))) for m in (mask, None))
shifted = np.abs(untold[0] - told[0])[2, :, :20].max() / np.abs(told[0])[2].max()   # 20 are real
row("TS, LRA: padding", "-", "enters f(X), means, J", f"outputs move by {shifted:.0%}")
assert max(gap, still) < 1e-13 and cancel == 0 < 96 < each and np.all(turned == J_code)
assert min(shifted, padded) > 0.1 and np.ptp(g) > 0.01
# %% [markdown]
# What is not computed here: (5) $J^2$ is averaged over layers, not summed. (6) It is minimised, and
# its gradient vanishes wherever $J = 0$ (lesson 04). (7) $W_e$ has $n$ rows, not $N$. (8) $f(X)$ is
# one even grid, not random rows, and (9) a head's own columns of the input. (11) $W_o$ has a bias
# and serves all heads. (12) Attention dropout is never applied. (13) In RL $s = 96$ exceeds
# $N = 60$ and $p = 64$: 36 components without a $\sigma > 0$ (V16). (14) Nothing is centred: second
# moments, not variances. (15) Only the cosine map exists.
#
# TS: accuracy is that of the best epoch on the *test* set, as its README states; the line for
# SpokenArabicDigits has no pattern for the training file, which may be the test file (Flowformer's
# published script has the same line). TS, LRA: $\eta = 0$ in four command
# lines. LRA: Retrieval averages two documents before it squares; times include the evaluations.
# NLP: the task loss is a sum over tokens, so $\eta = 0.1$ is 5e-5 for 2048 of them. RL: the line
# for Hopper, medium, runs halfcheetah; one seed unless told, where the paper has three.
#
# Rows 1 and 2 change what a trained number means, row 10 where training starts; (6) and section 2
# are why $J^2$ near zero is not a solved KSVD; the padding rows change outputs.


# %% [markdown]
# ## Exercises
# Each check says what is wrong. `ksvd-ref check FILE` marks a whole file.
# %% [markdown]
# **E11.1** (about 6 lines) The layer for one head and one sequence; F may be None. NumPy alone.
# %%
def layer_of_one_head(Q, K, W_e, W_r, W_o, b_o, F=None):
    raise NotImplementedError("Exercise 11.1: the output (N, d_v)")


# %%
exercises.check("11.1", layer_of_one_head)


# %% [markdown]
# **E11.2** (about 1 line) Predict, then run: the singular values that trained weights of the
# published code stand for, if its loss is at a stationary point.
# %%
def sigma_of_published(Lambda, N):
    raise NotImplementedError("Exercise 11.2: from Lambda and the number of tokens")


# %%
exercises.check("11.2", sigma_of_published)


# %% [markdown]
# **E11.3** (about 5 lines, a proof by numbers) Change $W_e$ and $W_r$ so that
# $\mathrm{tr}(W_e^\top W_r)$ takes a given value, and $F^\top W_e$, $F^\top W_r$ stay ($n > p$).
# %%
def move_the_trace(W_e, W_r, F, value):
    raise NotImplementedError("Exercise 11.3: new W_e and W_r")


# %%
exercises.check("11.3", move_the_trace)
# %% [markdown]
# Three questions without code.
#
# 1. Why can the causal layer not use $F = f(X)$?
# 2. One set of weights serves all sequences. Why can it then not be the KSVD of each (V31)?
# 3. The layer has no values $W_v$. What in it plays their part?
#
# *Where this is used.* Lesson 12 trains it; row by row of this ledger decides what is comparable.
#
# *Further reading.* Chen, Tao, Tonin, Suykens, Primal-Attention, NeurIPS 2023 (arXiv 2305.19798).
# Suykens, SVD revisited, Applied and Computational Harmonic Analysis 40(3), 2016, 600-609.
