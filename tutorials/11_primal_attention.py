# %% [markdown]
# # Primal-Attention: scores in place of a kernel matrix
# **You will do.** Build the attention layer of Chen et al. from the equations of the KSVD, look for
# what its weights can hide, and measure on your machine from which length it pays.
#
# **You will learn.** In which sense the layer is the KSVD and in which it is not; what
# data-dependent weights do; why the causal layer cannot have them.
#
# **You need.** Lesson 03: $W_e = \Psi^\top H_r$, $W_r = \Phi^\top H_e$, $E = \Phi W_e$,
# $R = \Psi W_r$. Lesson 04: $J$ is zero at a solution and elsewhere. Lesson 07: attention is a
# weighted mean. 50 minutes, and 20 more for the exercises.
# %%
import timeit
import tracemalloc

import matplotlib.pyplot as plt
import numpy as np

from ksvd_ref import attention, dual, features, primal
from ksvd_ref.attention import smoother
from ksvd_ref.course import datasets, exercises, plots

plt.style.use("ksvd_ref.data.ksvd")
rng = np.random.default_rng(9)
# %% [markdown]
# ## 1. From the KSVD to a layer
# Let the rows of $\Phi$ and $\Psi$ be features of queries and keys. $K$ are the keys here, so the
# kernel matrix is $G = \Phi\Psi^\top$. Read $G H_r$ as attention: row $i$ is a sum of **values**
# $h_{rj}$ weighted by the kernel. The KSVD says what comes out, the primal how to have it without
# $G$:
#
# $$e_i = \sum_j G_{ij}\,h_{rj} = (H_e\Sigma)_i = W_e^\top\varphi(q_i). \tag{V27}$$
#
# With $r_i = W_r^\top\psi(k_i)$ the layer hands both scores of a token through one linear map. Its
# features are queries and keys divided by their length (K.25).
#
# $$o_i = [e_i, r_i]\,W_o + b_o. \tag{K.24}$$
# %%
heads, s = datasets.minilm_heads(), 10
Q, K = heads.Q[4, 4:5], heads.K[4, 4:5]                                 # one head: (1, 64, 32)
Phi, Psi = features.cosine(Q[0], K[0])
G = Phi @ Psi.T                                                         # only to compare
H_e, sigma, H_r = dual.solve(G, s)
solution = attention.PrimalWeights((Psi.T @ H_r)[None], (Phi.T @ H_e)[None], 1 / sigma[None],
                                   np.eye(2 * s), np.zeros(2 * s))
output, fitted = attention.primal_attention(Q, K, solution)
gap = max(np.abs(output[0, :, :s] - G @ H_r).max(), np.abs(fitted.R[0] - H_r * sigma).max())
print(f"the layer against attention with values H_r: {gap:.0e}")
assert gap < 1e-12 * sigma[0]                                           # sums of 64 products
# %% [markdown]
# ## 2. What makes it the KSVD
# **Counter-example.** Random weights have values too: with $\Psi$ of full column rank *any* $W_e$
# has an $H$ with $E = GH$, whose columns are not orthogonal. Where this $J$ is stationary, the
# columns of $H$ that are not 0 are singular vectors: some of them, up to scale (lesson 04).
#
# $$J = \tfrac12\sum_i e_i^\top\Lambda e_i + \tfrac12\sum_j r_j^\top\Lambda r_j -
# \mathrm{tr}(W_e^\top W_r), \qquad \Lambda = \Sigma^{-1}. \tag{K.28}$$
# %%
W_any = rng.standard_normal((1, 32, s)) / 6
values = np.linalg.pinv(Psi).T @ W_any[0]
E_any = attention.primal_attention(Q, K, solution._replace(W_e=W_any))[1].E[0]
assert np.abs(E_any - G @ values).max() < 1e-9                          # a pseudo-inverse
lengths = np.linalg.norm(values, axis=0)
assert np.abs(values.T @ values / np.outer(lengths, lengths) - np.eye(s)).max() > 0.2
J = attention.paper_loss(fitted, solution)[0]
slope = primal.gradient(solution.W_e[0], solution.W_r[0], 1 / sigma, Phi, Psi)
print(f"at the KSVD: J = {J:.0e}, its largest derivative {np.abs(slope).max():.0e}")
assert abs(J) < 1e-12 * sigma.sum() and np.abs(slope).max() < 1e-12 * sigma[0]


# %% [markdown]
# One $W$ serves all sequences of a data set. In general the solution of one is not stationary for
# another: with $\Lambda = \Sigma^{-1}$ of one that shares no $\sigma$ with the other, only $W = 0$
# is (V31, V37). For the gradient is linear in a pair $(w_e, w_r)$, and its matrix, that of the
# second derivatives, is singular only if $1/\lambda$ is a singular value.
# %%
def smallest(lam, Phi, Psi):
    I = np.eye(Phi.shape[1])
    matrix = np.block([[lam * Phi.T @ Phi, -I], [-I, lam * Psi.T @ Psi]])
    return np.abs(np.linalg.eigvalsh(matrix)).min()


two = features.cosine(heads.Q[4, 5], heads.K[4, 5])                     # another head, for another
of_one, of_two = ([smallest(1 / x, *pair) for x in sigma] for pair in ((Phi, Psi), two))
print(f"smallest |eigenvalue|: {max(of_one):.0e} for the one, {min(of_two):.0e} for the other")
assert max(of_one) < 1e-12 < 1e-5 < min(of_two)
# %% [markdown]
# What one $W$ can be is the KSVD of all features stacked, whose kernel compares queries of one
# sequence with keys of another too. There the *mean* of the $J$ is stationary (K.48).
# %%
W_e, both, W_r = primal.solve(np.vstack([Phi, two[0]]), np.vstack([Psi, two[1]]), s)
slopes = [primal.gradient(W_e, W_r, 2 / both, *pair) for pair in ((Phi, Psi), two)]
assert np.abs(np.mean(slopes, axis=0)).max() < 1e-12 * both[0] and np.abs(slopes[0]).max() > 0.01
# %% [markdown]
# ## 3. Weights that depend on the data
# Most published runs have $F^\top W_e$ in place of $W_e$, with $F = f(X)$: $n$ evenly spaced rows
# of the layer's input $X$ (K.29). The kernel is then $\Phi F^\top F\Psi^\top$. Here 4 sequences of
# $N = 60$ tokens, 2 heads of $p = 32$ features, $n = 50$.
# %%
N, n, p = 60, 50, 32
X, W_q, W_k = rng.standard_normal((4, N, 64)), *rng.uniform(-1, 1, (2, 64, 64)) / 8
queries, keys, F = (smoother.split_heads(Y, 2) for Y in (X @ W_q, X @ W_k,
                                                         attention.even_rows(X, n)))
assert np.all(attention.even_rows(X, 30) == X[:, np.arange(30) * 59 // 29])
weights = attention.published_init(rng, 2, n, s, p)
output, scores = attention.primal_attention(queries, keys, weights, F=F)       # (4, 2, N, p)
assert output.shape == (4, 2, N, p)
# %% [markdown]
# $W_e$ has 50 rows and acts through $F^\top$ $(32, 50)$: **a null space** of dimension 18 (V30).
# Components there change $\mathrm{tr}(W_e^\top W_r)$, hence $J$, and nothing else.
# %% Curve of J against a shift of the weights: it falls through zero while the output stays
null = np.linalg.svd(F[0, 0].T)[2][p:]                                  # (18, 50)
one, shift = weights._replace(Lambda=weights.Lambda[:1]), null[:1].T @ np.full((1, s), s ** -0.5)
ts, J_t, outputs = np.linspace(0, 8, 41), [], []
for t in ts:                                                            # one head of one sequence
    w = one._replace(W_e=weights.W_e[:1] + t * shift, W_r=weights.W_r[:1] + t * shift)
    o, at = attention.primal_attention(queries[0, :1], keys[0, :1], w, F=F[0, :1])
    J_t.append(attention.paper_loss(at, w)[0])
    outputs.append(o)
assert J_t[0] > 1 and J_t[-1] < -1 and np.ptp(outputs, axis=0).max() < 1e-12
figure, ax = plt.subplots(figsize=(7, 2.4))
ax.plot(ts, J_t)
ax.axhline(0, color="0.6", lw=1)
ax.set(xlabel="shift t in the null space", ylabel="J", title="One output, any J")
plt.show()
# %% [markdown]
# *See:* $J$ falls through 0 while no output moves. $J = 0$ says little about such a layer.
#
# ## 4. The causal layer
# Token $i$ may see the tokens up to $i$. The published form replaces queries and keys by their
# running means, $(x_1 + \dots + x_i)/i$, in $O(N)$ (K.30). For the cosine features sums would do: a
# length is divided out (V40). **$f(X)$ is not for it**: $F$ has rows of the whole sequence, the
# last one among them, so every score would see the future. The layer refuses it.
# %%
free = attention.published_init(rng, 2, p, s, p)                        # weights of p rows, no F
causal = attention.primal_attention(queries, keys, free, causal=True)[0]
changed = queries.copy()
changed[:, :, 40:] = 0.0                                                # another future
again = attention.primal_attention(changed, keys, free, causal=True)[0] - causal
assert not np.any(again[:, :, :40]) and np.any(again[:, :, 40:])
cut = np.where(np.arange(N)[:, None] < 40, X, 0.0)
F_moved = smoother.split_heads(attention.even_rows(cut, n), 2)
peek = attention.primal_attention(queries, keys, weights, F=F_moved)[0] - output
print(f"with f(X) another future moves the first token by {np.abs(peek[:, :, 0]).max():.2f}")
assert np.abs(peek[:, :, 0]).max() > 0.01


# %% [markdown]
# ## 5. What it costs, on your machine
# Softmax attention forms $N\times N$ numbers per head; the layer $N\times s$. From which $N$ does
# it pay, and how do the two grow? Time and peak memory of one head, $p = 64$, $s = 30$, float32.
# %%
def measured(call):
    seconds = timeit.timeit(call, number=1)
    tracemalloc.start()
    call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return seconds, peak


# %%
sizes = np.array([64, 128, 256, 512, 1024, 2048])
layer = attention.published_init(rng, 1, 64, 30, 64, dtype="float32")
cost = np.full((2, 6, 2), np.inf)                   # way, size, seconds and bytes
for i in 9 * [*range(6)]:                           # rounds: a busy moment does not hit them all
    q, k, v = rng.standard_normal((3, 1, sizes[i], 64)).astype("float32")
    for way, call in enumerate((lambda: smoother.attention(q, k, v),
                                lambda: attention.primal_attention(q, k, layer))):
        cost[way, i] = np.minimum(cost[way, i], measured(call))
seconds, peak = cost[..., 0], cost[..., 1]
print(f"{peak[0, -1] / 1e6:.1f} MB and {peak[1, -1] / 1e6:.1f} MB at N = 2048")
# %% Time and memory against the number of tokens: those of softmax grow more steeply
slopes = [np.polyfit(np.log(sizes[3:]), np.log(x[3:]), 1)[0] for x in (*seconds, *peak)]
behind = np.flatnonzero(seconds[1] >= seconds[0])
first = np.append(sizes, 4096)[behind.max() + 1 if len(behind) else 0]
print("slopes: time {:.1f} and {:.1f}, memory {:.1f} and {:.1f}".format(*slopes))
print(f"here the layer is faster from N = {first} on")
grown = seconds[:, -1] / seconds[:, 0]              # from 64 tokens to 2048
assert grown[0] > grown[1] and first <= 2048 and slopes[2] > 1.8 > 1.2 > slopes[3]
figure, axes = plt.subplots(1, 2, figsize=(7, 2.8))
for ax, cost, label in zip(axes, (seconds, peak), ("seconds of one head", "bytes at the peak")):
    for x, colour, name in zip(cost, (plots.COLUMNS, plots.ROWS), ("softmax", "primal")):
        ax.loglog(sizes, x, "o-", color=colour, label=name)
    ax.set(xlabel="tokens N", ylabel=label)
axes[0].legend()
plt.show()


# %% [markdown]
# *See:* doubling $N$ takes softmax nearly four times the memory and the layer less than twice.
# Where the curves of time cross, the layer begins to pay: on our machine from $N = 256$ on, in some
# runs from 128, as with eight heads. From 512 to 2048 the slopes are 2.0 and 0.7 of time, 1.9 and
# 0.8 of memory. Softmax does $O(N^2)$ work and the layer $O(N)$. Its slopes are below 1 because
# each call has a fixed cost, and tend to 1 for longer ones.
#
# ## In short
# The layer hands on the scores of a KSVD without its kernel matrix. That it *is* a KSVD needs a
# gradient of zero, which training does not bring by itself. It pays for long sequences, and its
# causal form must do without data-dependent weights.
#
# $$o_i = [e_i, r_i]\,W_o + b_o, \qquad e_i = W_e^\top F\varphi(q_i).$$
#
# The picture to remember: $J$ falls through zero, and no output moves.
#
# ## Exercises
# Fill in the functions; each check says what is wrong. `ksvd-ref check FILE` marks a whole file.
# %% [markdown]
# **E11.1** (about 6 lines) The layer for one head and one sequence; F may be None. NumPy alone.
# %%
def layer_of_one_head(Q, K, W_e, W_r, W_o, b_o, F=None):
    raise NotImplementedError("Exercise 11.1: the output (N, d_v)")


# %%
exercises.check("11.1", layer_of_one_head)


# %% [markdown]
# **E11.2** (about 5 lines, a proof by numbers) Change $W_e$ and $W_r$ so that
# $\mathrm{tr}(W_e^\top W_r)$ takes a given value, and $F^\top W_e$, $F^\top W_r$ stay ($n > p$).
# %%
def move_the_trace(W_e, W_r, F, value):
    raise NotImplementedError("Exercise 11.2: new W_e and W_r")


# %%
exercises.check("11.2", move_the_trace)
# %% [markdown]
# Three questions without code.
#
# 1. Why can the causal layer not use $F = f(X)$?
# 2. One set of weights serves all sequences. Why can it then not be the KSVD of each?
# 3. The layer has no values $W_v$. What in it plays their part?
#
# *Where this is used.* Lesson 12 trains it, lesson 13 compares it with the published code; finding
# F7 is about $f(X)$.
#
# *Further reading.* Chen, Tao, Tonin, Suykens, Primal-Attention, NeurIPS 2023 (arXiv 2305.19798).
