# %% [markdown]
# # Positions, and each published attention as one line
# **You will do.** Build kernels of positions, and write each published attention as one call, so
# that one sees in which component two of them differ.
#
# **You will learn.** What offsets and absolute positions are as kernels, where each published
# attention stands, and which one is no smoother.
#
# **You need.** Lesson 07: attention is a weighted mean with four components, kernel, position,
# value and filter; `log_factor` is the logarithm of a kernel of positions. 50 minutes, and 20 more
# for the exercises.
# %%
import matplotlib.pyplot as plt
import numpy as np

from ksvd_ref import linalg
from ksvd_ref.attention import positions
from ksvd_ref.attention.filters import causal, memory, strided
from ksvd_ref.attention.positions import (absolute, bucketed, offset_table, relative, rotary,
                                          sinusoids, turned)
from ksvd_ref.attention.smoother import attention, linear_attention, weights
from ksvd_ref.course import exercises

plt.style.use("ksvd_ref.data.ksvd")
rng = np.random.default_rng(0)


# %%
def close(a, b, tolerance=1e-12):
    return np.abs(np.subtract(a, b)).max() < tolerance              # sums of numbers of order 1


def mean(G, V):
    return G / G.sum(axis=-1, keepdims=True) @ V                    # the definition, G the kernel


# %% [markdown]
# ## 1. Two kinds of position
# Let token $i$ have content $f_i$, position $t_i$, query $q_i = f_iW_q$ and key $k_i = f_iW_k$. A
# kernel of **offsets** knows only $i - j$, and may take its coefficients from the query:
#
# $$\kappa_T(i, j) = \exp(\langle q_i, R_{i-j}\rangle/\sqrt d). \tag{S.15}$$
#
# Transformer-XL makes $R$ of sinusoids, Shaw et al. and Huang et al. of a learned table (S.12,
# S.17). An **absolute** kernel compares two places, $\exp(\langle t_iW_T, t_jW_T\rangle/\sqrt d)$
# (S.18).
# %% Maps of two position kernels: stripes for offsets, no stripes for absolute positions
N, d = 12, 4
f, t, u, v = rng.standard_normal((N, 8)), sinusoids(N, 8), *rng.standard_normal((2, d))
W_q, W_k, W_v, W_F, W_T, W_R = 0.5 * rng.standard_normal((6, 8, d))
q, k, values, R = f @ W_q, f @ W_k, f @ W_v, sinusoids(2 * N - 1, 8, first=1 - N)[::-1] @ W_R
one_query, pair = relative(np.tile(q[0], (N, 1)), R), absolute(t @ W_T, t @ W_T)
assert close(one_query[1:, 1:], one_query[:-1, :-1])                # a function of i - j,
assert not close(one_query, one_query.T, 0.1)                       # and of its sign
assert close(pair, pair.T) and not close(pair[1:, 1:], pair[:-1, :-1], 0.1)
figure, axes = plt.subplots(1, 2, figsize=(7, 3))
for ax, image, title in zip(axes, (one_query, pair), ("offsets, one query", "absolute")):
    figure.colorbar(ax.imshow(image), ax=ax, shrink=0.8, label="log of the kernel")
    ax.set(title=title, xlabel="position j of the key", ylabel="position i of the query")
plt.show()
# %% [markdown]
# *See:* left, stripes: only $i - j$ counts, and its sign, so the kernel is not symmetric (it need
# not be). Right, no stripes, in spite of the sinusoids: for a general $W_T$ the place itself counts
# (D17).
#
# ## 2. The published ones
# Each row is one choice of the four components. *Smoother* says whether the weights are not
# negative and sum to 1.
#
# | published | kernel | position | value | filter | smoother |
# |---|---|---|---|---|---|
# | Set Transformer 2018 | exponential | none | content | full | yes |
# | Vaswani 2017 | exponential | added, absolute | content and position | full or causal | yes |
# | Shaw, Huang 2018 | exponential | offsets, a table, times the query | content | full | yes |
# | Transformer-XL 2019 | exponential | offsets, sinusoids, and the query | content | memory | yes |
# | Tsai 2019 | exponential, one map | a factor, absolute | content | any | yes |
# | Sparse Transformer 2019 | exponential | added, absolute | content and position | strided | yes |
# | Katharopoulos 2020 | finite features | any | content | causal | yes |
# | T5 2020 | exponential, not scaled | ranges of offsets, a table | content | any | yes |
# | RoPE 2021 | exponential | offsets, by turning | content | any | yes |
# | ALiBi 2022 | exponential | offsets, Laplacian | content | causal | yes |
# | QK-norm 2020 | exponential = rbf | any | content | any | yes |
# | grouped heads 2023 | shared keys | any | shared values | any | yes |
# | a sink 2023 | exponential | any | content and a 0 | any, and one key | with it |
# | differential 2024 | a difference of two | any | content | causal | **no** |
#
# Now row by row, each against a definition written out.
# %%
a = f + t
assert close(attention(q, k, values), mean(np.exp(q @ k.T / 2), values))  # Set Transformer
vaswani = attention(a @ W_q, a @ W_k, a @ W_v)
three = absolute(q, t @ W_k) + absolute(t @ W_q, k) + absolute(t @ W_q, t @ W_k)
assert close(attention(q, k, a @ W_v, log_factor=three), vaswani)
sparse = attention(a @ W_q, a @ W_k, a @ W_v, mask=strided(N, 4))
assert close(sparse, mean(strided(N, 4) * np.exp(q @ k.T / 2 + three), a @ W_v))
# %% [markdown]
# An added position is a product too: $\langle f + t, f' + t'\rangle$ has four terms, so the kernel
# of Vaswani et al. has three factors beside that of the content (S.13, D16).
#
# **By hand.** The table of Shaw et al. has a row for each offset from $-2$ to 2, and beyond it is
# clipped: the offset $9 - 1$ counts as 2. It multiplies the kernel (D24).
# %%
table = rng.standard_normal((5, d))
looked_up = relative(q, offset_table(table, N, N))
assert close(looked_up[9, [8, 1]], q[9] @ table[[2 + 1, 2 + 2]].T / 2)
shaw = attention(q, k, values, log_factor=looked_up)
assert close(shaw, mean(np.exp(looked_up) * np.exp(q @ k.T / 2), values))
P = np.hstack([f @ W_F, t @ W_T])                   # Tsai: one kernel of content and place
tsai = attention(f @ W_F, f @ W_F, values, log_factor=pair)
assert close(attention(P, P, values, scale=2), tsai)
# %% [markdown]
# The product of two exponential kernels is one of the joined vectors: Tsai et al. (D15). So is that
# of Transformer-XL, whose second part is the query, turned by its place (S.14, D20). In full it has
# two learned biases, $\langle q_i + u, k_j\rangle + \langle q_i + v, R_{i-j}\rangle$: the bias $u$
# gives weights to the keys and does not cancel (S.16, D22).
# %%
offset = relative(q, R)
joined = np.hstack([q, turned(q @ W_R.T)]), np.hstack([k, t])
xl = attention(q, k, values, log_factor=offset, mask=causal(N))
assert close(attention(*joined, values, scale=2, mask=causal(N)), xl)
full = attention(q + u, k, values, log_factor=relative(q + v, R), mask=causal(N))
of_u, of_v = u @ k.T / 2, relative(np.tile(v, (N, 1)), R)
G = [causal(N) * np.exp(q @ k.T / 2 + offset + of_v + of_key) for of_key in (of_u, 0)]
assert close(full, mean(G[0], values)) and not close(full, mean(G[1], values), 0.1)
# %% [markdown]
# **A memory** shows keys of an earlier part too, and linear attention needs no table of pairs.
# %%
earlier, late = rng.standard_normal((2, 4, d))      # four keys and values from before
more_k, more_v = np.vstack([earlier, k]), np.vstack([late, values])
assert close(attention(q, more_k, more_v, mask=memory(N, 4)),
             mean(memory(N, 4) * np.exp(q @ more_k.T / 2), more_v))
phi_q, phi_k = (np.where(X > 0, X + 1, np.exp(np.minimum(X, 0))) for X in (q, k))
assert close(linear_attention(q, k, values, mask=causal(N)),
             mean(causal(N) * (phi_q @ phi_k.T), values))


# %% [markdown]
# ## 3. The attentions of today
# **RoPE** turns queries and keys by their places,
# $\langle D_iq, D_jk\rangle = \langle q, D_{j-i}k\rangle$: offsets, with coefficients of query
# *and* key (S.42).
# %%
def turn(x, i):
    return rotary(x[None], first=i)[0]                              # by position i


assert close(turn(q[5], 5) @ turn(k[3], 3), q[5] @ turn(k[3], 3 - 5))
rope = attention(rotary(q), rotary(k), values)
assert close(rope, mean(np.exp(rotary(q) @ rotary(k).T / 2), values))
# %% [markdown]
# **ALiBi** takes a slope times the distance away. **T5** adds a learned number for each *bucket*, a
# range of offsets that widens with the distance (S.43, S.44).
# %%
slopes = positions.alibi(8, N)
assert close(slopes[:2, 5, 3], [-2 / 2, -2 / 4])                    # two apart, slopes 1/2, 1/4
steep = attention(q, k, values, log_factor=slopes[0], mask=causal(N))
assert close(steep, mean(causal(N) * np.exp(q @ k.T / 2 + slopes[0]), values))
b = rng.standard_normal(32)
assert close(bucketed(b, N, N)[9, [7, 1]], b[[2, 8]])               # 8 apart is the first wide one
t5 = attention(q, k, values, scale=1, log_factor=bucketed(b, N, N))
assert close(t5, mean(np.exp(q @ k.T + bucketed(b, N, N)), values))
# %% [markdown]
# **Grouped heads** share keys and values: NumPy repeats them without a copy (S.45). A **sink** is
# one more key 0 with value 0: the weights of the others sum to less than 1 (S.46). **QK-norm**
# gives all keys one length, so exponential and rbf agree (S.47).
# %%
shared = attention(np.stack([q, 2 * q]), k, values)                 # two heads of one group
assert close(shared[1], attention(2 * q, k, values))
G, sunk = np.exp(q @ k.T / 2), np.vstack([0 * k[:1], k])
assert close(weights(q, sunk)[:, 1:], G / (1 + G.sum(axis=1, keepdims=True)))
unit_q, unit_k = linalg.unit_rows(q), linalg.unit_rows(k)           # at a learned scale of 9
assert close(weights(unit_q, unit_k, scale=1 / 9), weights(unit_q, unit_k, kernel="rbf", gamma=4.5))
# %% [markdown]
# **Counter-example.** Differential attention $A_1 - cA_2$ is a difference of two smoothers and no
# smoother: its rows sum to $1 - c$, and some weights are negative (S.48).
# %%
A = weights(q, k) - 0.8 * weights(k, q)
print(f"rows sum to {A.sum(axis=1)[0]:.1f}, the least weight is {A.min():.2f}")
assert close(A.sum(axis=1), 0.2) and A.min() < -0.01


# %% [markdown]
# ## In short
# A position is a kernel of its own, of offsets or of places, and multiplies that of the content.
# Each published attention is one choice of kernel, position, value and filter. One of them takes a
# difference, and is no weighted mean.
#
# $$\kappa(q_i, k_j)\,\exp(\langle q_i, R_{i-j}\rangle/\sqrt d), \qquad
# \langle D_iq, D_jk\rangle = \langle q, D_{j-i}k\rangle.$$
#
# The picture to remember: stripes for offsets, none for places.
#
# ## Exercises
# Fill in the functions; each check says what is wrong. `ksvd-ref check FILE` marks a whole file.
# %% [markdown]
# **E8.1** (about 7 lines) Causal attention with features, by a running state.
# %%
def running(phi_Q, phi_K, V):
    raise NotImplementedError("Exercise 8.1: outputs (N, d_v), from states (p, d_v) and (p,)")


# %%
exercises.check("8.1", running)


# %% [markdown]
# **E8.2** (about 4 lines) Softmax plus one: $e^{l_j}/(1 + \sum_m e^{l_m})$ in each row of logits,
# for logits of any size.
# %%
def softmax_plus_one(logits):
    raise NotImplementedError("Exercise 8.2: weights of the shape of the logits")


# %%
exercises.check("8.2", softmax_plus_one)
# %% [markdown]
# Three questions without code.
#
# 1. Name the four components of Transformer-XL and of Shaw et al.
# 2. RoPE turns queries and keys. Why would turning the keys alone not do?
# 3. Which row of the table is no smoother, and what do its weights sum to?
#
# *Where this is used.* Lesson 09 compares kernels and positions in training.
#
# *Further reading.* Tsai et al., EMNLP 2019 (arXiv 1908.11775). Dai et al., Transformer-XL, ACL
# 2019. Raffel et al., T5, JMLR 21, 2020 (arXiv 1910.10683). Su et al., RoFormer, arXiv 2104.09864,
# 2021. Press et al., ALiBi, ICLR 2022. Shazeer, Fast Transformer decoding, arXiv 1911.02150, 2019.
#       Ainslie et al., GQA, EMNLP 2023. Miller, Attention is off by one, 2023. Henry et al.,
#       Query-Key normalization, Findings of EMNLP 2020. Ye et al., Differential Transformer, arXiv
#       2410.05258, 2024.
