# %% [markdown]
# # Primal-Attention: scores in place of a kernel matrix, and what the published code computes
# **You will do.** Build the attention layer of Chen et al. from the two equations of the KSVD,
# measure its cost against softmax attention, and compute the places where the published code
# differs from the paper.
#
# **You will learn.** In which sense the layer is the KSVD and in which it is not; what
# data-dependent weights can hide; why the loss starts near 1/9.
#
# **You need.** Lessons 04, 05 and 08, 60 minutes.
# %%
import time
import tracemalloc
import warnings
from pathlib import Path

import autograd.numpy as anp
import matplotlib.pyplot as plt
import numpy as np
from autograd import grad

from ksvd_ref import attention, datasets, dual, features, plots, primal, smoother

HERE = Path(__file__).parent if "__file__" in globals() else Path.cwd()
plt.style.use(HERE / "ksvd.mplstyle")
rng = np.random.default_rng(9)
# %% [markdown]
# ## 1. From the KSVD to a layer
# $K H_r = H_e\Sigma$ (K.15), and $K = \Phi\Psi^\top$ with $W_e = \Psi^\top H_r$,
# $W_r = \Phi^\top H_e$ (K.12). Read the left side as attention: row $i$ is $\sum_j K_{ij} h_{rj}$,
# a sum of **values** $h_{rj}$ weighted by the kernel. The right side says what comes out, and the
# primal how to have it without $K$ (K.20, V27):
# $$e_i = \sum_j K_{ij}\,h_{rj} = (H_e\Sigma)_i = W_e^\top\varphi(q_i).$$
# The layer hands on both scores of a token through one linear map (K.24), $s$ the number of
# components: $o_i = W_o^\top[e_i; r_i] + b_o$. Its kernel is the cosine (K.25).
# %%
heads, s = datasets.minilm_heads(), 10
Q, K = heads.Q[4, 4:5], heads.K[4, 4:5]                                 # one head: (1, 64, 32)
Phi, Psi = features.cosine(Q[0], K[0])
kernel = Phi @ Psi.T                                                    # (64, 64), only to compare
H_e, sigma, H_r = dual.solve(kernel, s)
W_o, b_o = np.eye(2 * s), np.zeros(2 * s)
solution = attention.PrimalWeights((Psi.T @ H_r)[None], (Phi.T @ H_e)[None], 1 / sigma[None],
                                   W_o, b_o)
output, (E, R) = attention.primal_attention(Q, K, solution)
gap = max(np.abs(output[0, :, :s] - kernel @ H_r).max(), np.abs(E[0] - H_e * sigma).max(),
          np.abs(R[0] - H_r * sigma).max())
print(f"the layer against canonical attention with values H_r: {gap:.0e}")
assert gap < 1e-12 * sigma[0]                       # sums of 64 products
# %% [markdown]
# **This does not make trained weights singular vectors.** With $\Psi$ of full column rank *any*
# $W_e$ has values $H = (\Psi^\dagger)^\top W_e$ with $E = KH$. Random weights have them; they are
# not orthogonal, and no $\sigma$ comes out. Only the stationarity conditions make $H$ the KSVD.
# %%
W_any = rng.standard_normal((32, s)) / 6
values = np.linalg.pinv(Psi).T @ W_any
E_any = attention.primal_attention(Q, K, solution._replace(W_e=W_any[None]))[1].E[0]
assert np.abs(E_any - kernel @ values).max() < 1e-9                     # a pseudo-inverse
cosines = values.T @ values / np.outer(*2 * [np.linalg.norm(values, axis=0)])
print(f"values of random weights: cosines up to {np.abs(cosines - np.eye(s)).max():.2f}")
assert np.abs(cosines - np.eye(s)).max() > 0.2
# %% [markdown]
# The KSVD loss (K.28) is to push them there: $J$ is 0, with gradient 0, at the solution (K.22).
# %%
J = lambda W_e, W_r: anp.sum(attention.paper_loss(attention.primal_attention(
    Q, K, solution._replace(W_e=W_e, W_r=W_r))[1], solution._replace(W_e=W_e, W_r=W_r)))
slope = [np.abs(grad(J, n)(*solution[:2])).max() for n in (0, 1)]
print(f"J = {J(*solution[:2]):.0e}, largest derivative {max(slope):.0e}, trace {sigma.sum():.1f}")
assert abs(J(*solution[:2])) < 1e-11 and max(slope) < 1e-12 * sigma[0]
# %% [markdown]
# ## 2. Weights that depend on the data
# In most of the paper's experiments $W_{e|X} = f(X)^\top W_e$ with $F = f(X)$: $n$ evenly spaced
# rows of the layer's input (K.29). The kernel is $\Phi F^\top F\Psi^\top$. Here a whole layer at
# its initial weights: 4 sequences of 60 tokens, 2 heads of 32.
# %%
N, n, H, p = 60, 50, 2, 32
X = rng.standard_normal((4, N, H * p))
W_q, W_k = rng.uniform(-1, 1, (2, H * p, H * p)) / (H * p) ** 0.5
split = lambda Y: smoother.split_heads(Y, H)                            # (4, H, N, p)
queries, keys, F = split(X @ W_q), split(X @ W_k), split(attention.even_rows(X, n))
weights = attention.published_init(rng, H, n, s, p)
output, scores = attention.primal_attention(queries, keys, weights, F=F)
print("layer output", output.shape, "W_e", weights.W_e.shape, "F", F.shape)
# %% [markdown]
# $W_e$ has $n = 50$ rows and acts through $F^\top$ $(32, 50)$: **a null space** of dimension
# $n - p = 18$ (V30). Components there change $\operatorname{tr}(W_e^\top W_r)$, hence $J$, and
# nothing else. $J$ can be brought to 0 without touching a single output.
# %%
F_1, one = F[0, :1], attention.PrimalWeights(*(A[:1] for A in weights[:3]), *weights[3:])
before, S_1 = attention.primal_attention(queries[0, :1], keys[0, :1], one, F=F_1)
J_1 = attention.paper_loss(S_1, one)[0]
null = np.linalg.svd(F_1[0].T)[2][p:]                                   # (18, 50)
assert null.shape == (n - p, n) and np.abs(F_1[0].T @ null.T).max() < 1e-13


def with_shift(t):                                  # the same in W_e and W_r, in the null space
    shift = t * null[:1].T @ np.full((1, s), s ** -0.5)
    return one._replace(W_e=one.W_e + shift, W_r=one.W_r + shift)


linear = np.sum(null[:1].T * (one.W_e + one.W_r)[0]) * s ** -0.5        # J(t) = J - linear t - t^2
t_0 = -linear / 2 + np.sqrt(linear ** 2 / 4 + J_1)
after, S_0 = attention.primal_attention(queries[0, :1], keys[0, :1], with_shift(t_0), F=F_1)
J_0 = attention.paper_loss(S_0, with_shift(t_0))[0]
print(f"J from {J_1:.1f} to {J_0:.0e}; the output moved by {np.abs(after - before).max():.0e}")
assert J_1 > 1 and abs(J_0) < 1e-10 * J_1 and np.abs(after - before).max() < 1e-12
# %% [markdown]
# ## 3. What it costs
# Softmax attention forms $N\times N$ numbers per head; the layer $N\times s$. Time and peak memory
# of one head, $p = 64$, $s = 30$, in float32.
# %%
sizes = np.array([64, 128, 256, 512, 1024, 2048])
seconds, peak = {"softmax": [], "primal": []}, {"softmax": [], "primal": []}
layer = attention.published_init(rng, 1, 64, 30, 64, dtype="float32")
for N_t in sizes:
    q, k, v = rng.standard_normal((3, 1, N_t, 64)).astype("float32")
    for name, call in (("softmax", lambda: smoother.attention(q, k, v)),
                       ("primal", lambda: attention.primal_attention(q, k, layer))):
        tries = []
        for _ in range(5):
            start = time.process_time()
            call()
            tries.append(time.process_time() - start)
        seconds[name].append(min(tries))
        tracemalloc.start()
        call()
        peak[name].append(tracemalloc.get_traced_memory()[1] / q.nbytes)
        tracemalloc.stop()
ahead = np.array(seconds["primal"]) < seconds["softmax"]
print("N                        ", *(f"{x:8}" for x in sizes))
for name in seconds:
    print(f"{name:8} CPU milliseconds", *(f"{1e3 * x:8.2f}" for x in seconds[name]))
    print(f"{name:8} memory / Q      ", *(f"{x:8.1f}" for x in peak[name]))
print("primal is faster from N =", sizes[ahead][0] if ahead.any() else "none")
assert ahead[-1] and seconds["softmax"][-1] > 2 * seconds["primal"][-1]
assert peak["softmax"][-1] > 1.8 * peak["softmax"][-2] and peak["primal"][-1] < 4
figure, axes = plt.subplots(1, 2, figsize=(7.6, 3.2))
for name, colour in (("softmax", plots.COLUMNS), ("primal", plots.ROWS)):
    axes[0].loglog(sizes, seconds[name], "o-", color=colour, label=name)
    axes[1].loglog(sizes, np.array(peak[name]) * sizes * 64 * 4, "o-", color=colour, label=name)
axes[0].set(xlabel="tokens N", ylabel="CPU seconds", title="Time of one head")
axes[1].set(xlabel="tokens N", ylabel="bytes", title="Peak memory")
axes[0].legend()
plt.show()
# %% [markdown]
# When $N$ doubles, the memory of softmax grows fourfold and that of the layer twofold. For short
# sequences the cost of calling NumPy decides. The projections to $q$ and $k$ and of the output are
# in neither curve and cost the same in both; softmax needs one more, to $v$.
#
# ## 4. The loss at the start
# The published loss (K.31) averages over heads and tokens where the paper sums, and weights by
# $\Lambda^2$:
# $$J_b = \tfrac12\operatorname{mean}\|\Lambda_h e\|^2 + \tfrac12\operatorname{mean}\|\Lambda_h
#   r\|^2 - \operatorname{mean}_h\operatorname{tr}(W_{e,h}^\top W_{r,h}).$$
# At the start, for input of variance 1: $F\varphi$ has $n$ entries of variance 1 ($\varphi$ has
# length 1), $W_e$ has Frobenius norm 1, so its $ns$ entries have variance $1/(ns)$ and each score
# variance $1/s$. $\Lambda$ is uniform in $(0, 1)$, $\mathbb E\lambda^2 = 1/3$. Hence
# $\mathbb E\|\Lambda e\|^2 = s\cdot\frac1s\cdot\frac13$, **$J \approx 1/3$ and $J^2\approx 1/9$**,
# while the trace of two random matrices of norm 1 is near 0. Input scaled by $c$ gives $c^2J$ of
# the score terms and $c^4J^2$.


# %%
def first_J(scale=1.0, seed=0):
    start = attention.published_init(np.random.default_rng(seed), H, n, s, p)
    S = attention.primal_attention(queries, keys, start, F=scale * F)[1]
    return attention.published_loss(S, start)


starts = np.array([first_J(seed=seed).mean() for seed in range(30)])
print(f"J at 30 starts: {starts.mean():.3f} +- {starts.std():.3f}; J^2: {np.mean(starts**2):.3f}")
assert abs(starts.mean() - 1 / 3) < 4 * starts.std() / 30 ** 0.5    # 4 standard errors
assert 0.8 / 9 < np.mean(starts ** 2) < 1.25 / 9
scaled = np.mean(first_J(512 ** 0.5) ** 2)          # the time-series model: input times sqrt(512)
print(f"J^2 with the input scaled by sqrt(512): {scaled:.1e}")
assert 0.5 < scaled / (512 ** 2 * np.mean(first_J() ** 2)) < 2
# %% [markdown]
# ## 5. The ledger
# Where the published code (yingyichen-cyy/PrimalAttention, commit 084d122) differs from the paper.
# Every row that can be computed is computed. TS, LRA, CV, NLP and RL are its folders: time series,
# Long-Range Arena, images, text, reinforcement learning. A difference is not yet a mistake; all of
# it matters to whoever reads singular values off trained weights, or compares losses and tables.
# %%
ledger = []
row = lambda topic, paper, code, shown: ledger.append((topic, paper, code, shown))
E, R, L = *scores, weights.Lambda[:, None, :]
J_paper, J_code = (f(scores, weights) for f in (attention.paper_loss, attention.published_loss))
row("1 weights", "e^T Lambda e", "|Lambda e|^2",
    f"sums {np.sum(L * E * E):.1f} and {np.sum((L * E) ** 2):.1f}")
S = attention.primal_attention(Q, K, solution)[1]
root = solution._replace(Lambda=(64 / sigma[None]) ** 0.5)              # V35: sqrt(N / sigma)
J_at = [float(attention.published_loss(S, w)) for w in (solution, root)]
row("2 sum or mean", "sigma = 1 / Lambda", "sigma = N / Lambda^2",
    f"code's J there {J_at[0]:.1f} and {J_at[1]:.0e}")
assert abs(J_at[1]) < 1e-12 * sigma.sum() < abs(J_at[0])
as_paper = weights._replace(Lambda=attention.paper_lambda(weights.Lambda, N))
gap = np.abs(attention.paper_loss(scores, as_paper).mean(axis=-1) - J_code).max()
row("1 and 2 undone", "J at Lambda^2 / N", "J", f"equal to {gap:.0e}")
assert gap < 1e-14
cancel, each = (f(np.array([9.809, -9.809])) for f in (attention.square_of_mean,
                                                       attention.mean_of_squares))
row("3 heads", "J: mean of heads", "the same", f"at +-9.809: J^2 = {cancel:.0f}, each {each:.1f}")
assert cancel == 0 and each > 96
turned = weights._replace(Lambda=-weights.Lambda)
by = [np.abs(f(scores, turned) - J).max() for f, J in ((attention.paper_loss, J_paper),
                                                       (attention.published_loss, J_code))]
row("4 Lambda > 0", "required", "free",
    f"its sign flipped: J moves by {by[0]:.0f}, code's by {by[1]:.0f}")
row("5 layers", "sum of J_l^2", "mean over layers", "eta of two layers is halved")
ones, A = np.ones((2, 1)), np.diag([2.0, 1.0])      # lesson 05: J = 0, and no solution
J_5 = primal.objective(ones, ones, [4 / 7], A, np.eye(2))
dJ_5 = np.abs(primal.gradient(ones, ones, [4 / 7], A, np.eye(2))).max()
row("6 max J", "gradient of J is 0", "J^2 minimal",
    f"at lambda = 4/7: dJ = {dJ_5:.2f}, d(J^2) = {abs(2 * J_5 * dJ_5):.0f}")
row("7 rows of W_e", "N", "n = min(N, s mult)", f"{n}, N = {N}, in this lesson")
distinct = len(np.unique(attention.even_rows(np.arange(20.0)[:, None], 30)))
row("8 sampling", "uniform", "one even grid", f"20 tokens, n = 30: {distinct} distinct rows")
size = [np.linalg.norm(attention.even_rows(Y, n)[0]) for Y in (X, X @ W_q)]
row("9 f(X)", "rows of X", "columns of one head", f"norm {size[0]:.0f}; of queries {size[1]:.0f}")
big = attention.published_init(np.random.default_rng(0), 8, 64, 30, 64).W_e[0]
gram = (big.T @ big).diagonal()
row("10 orthogonal", "columns of W", "heads to each other",
    f"W^T W: diagonal {gram.min():.3f} to {gram.max():.3f}, sum {gram.sum():.0f}")
row("11 W_o", "after [e; r]", "with bias, for all heads", f"{2 * s * p + p} numbers")
row("12 dropout", "of attention", "never applied", "not computed")
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    wide = attention.published_init(rng, 1, 64, 96, 8)
    attention.primal_attention(*rng.standard_normal((2, 1, 60, 64)), wide)
assert "rank min(n, p, N) = 60 at most" in str(said[0].message)
row("13 s < p", "as a rule", "s = 96, N = 60, p = 64", "V16: 36 of them without a sigma > 0")
row("14 variance", "of the scores", "mean of e^2", f"{np.var(E, axis=2).mean():.4f} and "
    f"{np.mean(E * E):.4f}")
row("15 features", "cosine and others", "cosine", "not computed")
row("LRA, CV: batch", "J^2 per sequence", "mean, then squared", "as row 3, over sequences")
W_X = [F_1[0].T @ W[0] for W in one[:2]]
row("LRA: --trace_no_x", "tr(W_e^T W_r)", "the same: all scripts set it",
    f"{np.sum(one.W_e * one.W_r):.2f}; unset {np.sum(W_X[0] * W_X[1]):.2f}, F drops out (V29)")
row("NLP: eta", "0.1", "task loss summed", f"{0.1 / 2048:.0e} for 2048 tokens")
free = attention.published_init(rng, H, p, s, p)
causal = attention.primal_attention(queries, keys, free, causal=True)[0]
sums = (np.cumsum(A, axis=2) for A in (queries, keys))
gap = np.abs(attention.primal_attention(*sums, free)[0] - causal).max()
row("NLP, RL: causal (K.30)", "-", "sums divided by i", f"without it: {gap:.0e} away (V40)")
assert gap < 1e-13
left = np.arange(N) >= 20                           # 20 steps of padding in front
ignored, kept = (attention.primal_attention(queries, keys, free, mask=m, causal=True)[0][:, :, 20:]
                 for m in (None, left))
row("RL: padding", "-", "enters running means",
    f"outputs move by {np.abs(ignored - kept).max() / np.abs(kept).max():.0%}")
mask = np.arange(N) < np.array([[60], [40], [20], [10]])
Y = np.where(mask[..., None], X, 0.0)
told, untold = (attention.primal_attention(split(Y @ W_q), split(Y @ W_k), weights, mask=m, F=split(
    attention.even_rows(Y, n, mask=m))) for m in (mask, None))
moved = np.abs(untold[0] - told[0])[2, :, :20].max() / np.abs(told[0])[2].max()
row("TS, LRA: padding", "-", "enters f(X), means, J",
    f"20 of 60 steps real: outputs move by {moved:.0%}")
assert moved > 0.1
row("TS: input", "-", "times sqrt(d_model)", f"first J^2: {scaled:.0e}")
row("TS: accuracy", "on the test set", "best epoch of it", "lesson 10")
row("TS: SpokenArabic", "-", "no pattern for the training file", "may be the test file")
row("TS, LRA: eta", "-", "0 in four command lines", "no KSVD loss there")
row("LRA: Retrieval", "J of a sequence", "mean of two, then squared", "as row 3")
row("LRA: time", "per 1000 steps", "with the evaluations", "not computed")
row("RL: Hopper, medium", "Hopper", "the line runs halfcheetah", "not computed")
row("RL: seeds", "3", "1 unless told", "not computed")
for topic, paper, code, shown in ledger:
    print(f"{topic:22}| {paper:19}| {code:33}| {shown}")
# %% [markdown]
# Rows 1, 2 and 10 change what a trained number means; row 6 and section 2 are why $J^2$ near zero
# is not a solved KSVD; the padding rows change outputs.


# %% [markdown]
# ## Exercises
# After `import runpy`, load the checks with
# `check = runpy.run_path(str(HERE / "solutions" / "09_primal_attention.py"))`
# and call, for example, `check["check_9_1"](layer_of_one_head)`.
#
# **E9.1** (about 6 lines) The layer for one head and one sequence, with the cosine map, from NumPy
# alone; F may be None.
# %%
def layer_of_one_head(Q, K, W_e, W_r, W_o, b_o, F=None):
    raise NotImplementedError("Exercise 9.1: the output (N, d_v)")


# check["check_9_1"](layer_of_one_head)
# %% [markdown]
# **E9.2** (about 1 line) The singular values that trained weights of the published code stand for,
# if its loss is at a stationary point.
# %%
def sigma_of_published(Lambda, N):
    raise NotImplementedError("Exercise 9.2: from Lambda and the number of tokens")


# check["check_9_2"](sigma_of_published)
# %% [markdown]
# **E9.3** (about 5 lines, a proof by numbers) Change $W_e$ and $W_r$ so that
# $\operatorname{tr}(W_e^\top W_r)$ takes a value given in advance, and $F^\top W_e$, $F^\top W_r$
# stay. F has more rows than columns.
# %%
def move_the_trace(W_e, W_r, F, value):
    raise NotImplementedError("Exercise 9.3: new W_e and W_r")


# check["check_9_3"](move_the_trace)
# %% [markdown]
# Three questions without code.
# 1. Why can the causal layer not use $F = f(X)$?
# 2. One set of weights serves all sequences. Why can it then not be the KSVD of each (V31)?
# 3. The layer has no values $W_v$. What in it plays their part?
#
# *Where this is used.* Lesson 10 trains it; row by row of this ledger decides what is comparable.
#
# *Further reading.* Chen, Tao, Tonin, Suykens, Primal-Attention, NeurIPS 2023 (arXiv 2305.19798).
# Suykens, SVD revisited, Applied and Computational Harmonic Analysis 40(3), 2016, 600-609.
