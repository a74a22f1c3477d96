# %% [markdown]
# # Attention is a kernel smoother with four things to choose
# **You will do.** Write each published attention as one line that differs from its neighbour in
# one component, and check on small matrices what each component can and cannot do.
#
# **You will learn.** What softmax has to do with Nadaraya and Watson, which kernel is no smoother,
# why symmetric is not positive semi-definite, and where the order of words comes from.
#
# **You need.** Lesson 06 and a Transformer seen once; 90 minutes, and 35 more for the
# exercises.
# %%

import autograd.numpy as anp
import matplotlib.pyplot as plt
import numpy as np
from autograd import grad

from ksvd_ref import features, linalg
from ksvd_ref.attention import positions
from ksvd_ref.attention.filters import causal, memory, strided, window
from ksvd_ref.attention.positions import (absolute, bucketed, offset_table, relative, rotary,
                                          sinusoids, turned)
from ksvd_ref.attention.smoother import attention, linear_attention, weights
from ksvd_ref.course import datasets, exercises

plt.style.use("ksvd_ref.data.ksvd")
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
# of its row; a row that sees nothing gives zeros (S.3). On paper: kernel values $(2, 1)$ and values
# $(3, 0)$ give $\frac23 \cdot 3 = 2$; hide the first key, and the mean is 0. With a Gaussian kernel
# of width $h$ (S.9) this is the regression of Nadaraya and Watson (1964).
# %% Regression curves of three widths: narrow copies the points, wide flattens to their mean
K, V = [[np.log(2)], [0.0]], [[3.0], [0.0]]
assert close(attention([[1.0]], K, V), 2) and close(attention([[1.0]], K, V, mask=[False, True]), 0)
assert close(attention([[1.0]], K, [[3.0], [4.0]], mask=[False, False]), 0)        # S.3
x, grid = np.sort(rng.random(60))[:, None], np.linspace(0, 1, 201)[:, None]
y = np.sin(6 * x) + 0.3 * rng.standard_normal(x.shape)
fig, ax = plt.subplots(figsize=(7, 3))
ax.plot(x, y, ".", color="0.6", label="keys, values")
for h, style in ((0.01, ":"), (0.05, "-"), (0.3, "--")):
    fit = attention(grid, x, y, kernel="rbf", gamma=1 / (2 * h ** 2))
    assert close(fit, normalised(np.exp(-(grid - x.T) ** 2 / (2 * h ** 2))) @ y)
    assert y.min() <= fit.min() and fit.max() <= y.max()        # D2
    ax.plot(grid, fit, style, label=f"h = {h}")
ax.set(title="Nadaraya-Watson regression is rbf attention", xlabel="query, key", ylabel="value")
ax.legend(loc="upper right")
plt.show()
# %% [markdown]
# From copying (dotted) towards the global mean (dashed). Weights that are not negative and sum to 1
# keep every output in the range of the visible values (D2).
#
# ## 2. The kernel on the content
# Softmax attention is S.2 with the exponential kernel $e^{\beta\langle q, k\rangle}$, $\beta =
# 1/\sqrt d$, for keys of $d$ numbers (S.6, D1). In its logarithms, the *logits*, a hidden key has
# $-\infty$ (S.4). Is this kernel the Gaussian one? Nearly (D3):
# $$e^{\beta\langle q, k\rangle} = e^{\beta\|q\|^2/2}\, e^{-\beta\|q-k\|^2/2}\, e^{\beta\|k\|^2/2}$$
# The factor of the query cancels, that of the key stays (D7): exponential attention is rbf
# attention **whose keys have weights** (D4). The two agree for all queries if and only if all
# visible keys have one length; $q = 0$ shows the "only if" (D5). The heads of a small model,
# MiniLM, that reads Lincoln:
# %% Two maps of one head: without key weights, most attention falls on the first token
Q, K, tokens = datasets.minilm_heads()                          # (6 layers, 12 heads, 64, 32)
beta, rbf = 32 ** -0.5, {"kernel": "rbf", "gamma": 32 ** -0.5 / 2}
A, R = weights(Q, K), weights(Q, K, **rbf)
logits = beta * Q @ np.moveaxis(K, -1, -2)
assert close(A, normalised(np.exp(logits)))                     # softmax: D1
hidden = np.where(causal(64), logits, -np.inf)                  # keys after the query's own
assert close(weights(Q, K, mask=causal(64)), normalised(np.exp(hidden)))   # D1, S.4
assert 17.5 < np.abs(logits[1]).max() < 18.5
half = lambda X: beta / 2 * (X ** 2).sum(axis=-1)
of_keys = half(K)[..., None, :]                                 # logarithm of the key weight
gaussian = -half(Q[1, :, :, None] - K[1, :, None])              # layer 1: (12, 64, 64)
assert close(half(Q[1])[..., None] + gaussian + of_keys[1], logits[1], 1e-11)      # D3; up to 18
assert close(weights(Q, K, **rbf, log_factor=of_keys), A)                  # D4
assert close(weights(Q, K, log_factor=rng.standard_normal((64, 1))), A)    # D7: of queries, cancels
unit = K / np.sqrt((K ** 2).sum(axis=-1, keepdims=True))
assert close(weights(Q, unit), weights(Q, unit, **rbf))                    # D5: if, and only if
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
# **The linear kernel $\langle q, k \rangle$ (S.7) is no smoother** (D8). For $q = 1$ and keys
# $1, -1$ the normaliser is 0; for keys $1, -0.999$ the weights are 1000 and −999. Its square, the
# polynomial kernel (S.8), is never negative, but blind: $q$ and $-q$ are the same to it (D9).
# %%
np.testing.assert_raises_regex(ValueError, "no weighted mean", weights, [[1.0]], [[1.0], [-1.0]],
                               kernel="linear")
assert close(normalised(np.array([1, -0.999])), [1000, -999], 1e-9)        # a warning in weights
assert close(*(weights(sign * Q, K, kernel="polynomial", coef0=0.0) for sign in (1, -1)))
# %% [markdown]
# **Symmetric is not positive semi-definite** (PSD: symmetric, no negative eigenvalue). One map for
# queries and keys, $W_q = W_k$ (S.10), makes $G$ both, for all four kernels (D10), and products
# entry by entry stay PSD (D11). But for data $\pm 1$ with $W_q = 1$, $W_k = -1$ the exponential $G$
# is symmetric and has the eigenvalue $1/e - e = -2.35$. And once its rows are normalised, $A$ is
# not even symmetric.
# %%
X = rng.standard_normal((7, 4))
one_map = X @ X.T, (X @ X.T) ** 2, np.exp(-((X[:, None] - X) ** 2).sum(axis=-1)), np.exp(X @ X.T)
for G in (*one_map, *(G * H for G in one_map for H in one_map)):
    assert close(G / G.max(), G.T / G.max())                    # S.10
    assert np.linalg.eigvalsh(G)[0] > -1e-12 * G.max()          # D10, D11
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
assert close(one_query[1:, 1:], one_query[:-1, :-1])            # a function of i - j,
assert not close(one_query, one_query.T, 0.1)                   # of its sign too (D21)
some = t * np.repeat([2.0, 0.0, 1.0, 3.0], 2)                   # W_T a multiple of I for each w_p:
plain = absolute(some, some)                                    # a sum of c_p^2 cos w_p (i - j)
assert close(pair, pair.T) and close(plain[1:, 1:], plain[:-1, :-1])
assert not close(pair[1:, 1:], pair[:-1, :-1], 0.1)             # D17
mixed = t + 0.5 * np.roll(t, 2, axis=1)                         # blocks I, but not diagonal
assert not close(absolute(mixed, mixed)[1:, 1:], absolute(mixed, mixed)[:-1, :-1], 0.1)
fig, axes = plt.subplots(1, 2, figsize=(7, 3.2))
ticks = {"xticks": (0, 5, 10), "yticks": (0, 5, 10)}
for ax, image, title in zip(axes, (one_query, pair), ("offsets (XL)", "absolute (Tsai)")):
    fig.colorbar(ax.imshow(image), ax=ax, shrink=0.8, label="log of the kernel")
    ax.set(title=title, xlabel="position j of the key", ylabel="position i of the query", **ticks)
plt.show()
# %% [markdown]
# Left, one query at all places: only $i - j$ counts, and its sign, so this kernel is not symmetric
# (it need not be: D21). Right, no stripes, in spite of the sinusoids: unless $W_TW_T^\top$ is
# block-diagonal, a multiple of the identity for each frequency, S.18 is absolute (D17).
#
# ## 4. Each published attention is one line
# Vaswani et al. *add* the position, $f + t$ in place of $f$. The values have it too, or not, which
# Tsai et al. recommend. Transformer-XL in full has two learned biases, $u$ and $v$, and the logits
# $\langle q_i + u, k_j\rangle + \langle q_i + v, R_{i-j}\rangle$ over $\sqrt d$ (S.16). The filter
# is full unless `mask` says otherwise.
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
    "Sparse Transformer": attention(a @ W_q, a @ W_k, a @ W_v, mask=strided(N, 4)),
    "Katharopoulos": linear_attention(q, k, f @ W_v, mask=causal(N))}
# Additive (D16): (f + t)(f' + t') = ff' + ft' + tf' + tt', three factors beside the content's.
three = absolute(q, t @ W_k) + absolute(t @ W_q, k) + absolute(t @ W_q, t @ W_k)
assert close(attention(q, k, a @ W_v, log_factor=three), published["Vaswani"])
# The Sparse Transformer adds too; its filter, both parts in one here, is section 5.
hidden = np.where(strided(N, 4), np.exp((q @ k.T / 2) + three), 0)
assert close(normalised(hidden) @ a @ W_v, published["Sparse Transformer"])
# The table has a row for each offset from -2 to 2 and is clipped beyond: 9 - 1 counts as 2. (Shaw's
# second table, for the values, is left out.)
assert close(looked_up[9, [8, 1]], q[9] @ table[[2 + 1, 2 + 2]].T / 2)
shaw = normalised(np.exp(looked_up) * np.exp(q @ k.T / 2))      # a factor of the kernel (D24)
assert close(shaw @ f @ W_v, published["Shaw, Huang"])
# Tsai: one exponential kernel of [f W_F, t W_T] (D15). The scale stays sqrt(4).
P = np.hstack([f @ W_F, t @ W_T])
assert close(attention(P, P, f @ W_v, scale=2), published["Tsai"])
# XL's product (S.14): one of [q, psi] and [k, t]; psi is q W_R^T turned by the query's position.
one = weights(np.hstack([q, turned(q @ W_R.T)]), np.hstack([k, t]), scale=2, mask=causal(N))
assert close(one @ f @ W_v, published["XL, product"])                      # D20
# In full (S.16) four factors: the product's two (D20), one of u, one of v. That of u is one of the
# keys and does not cancel (D22).
of_u, of_v = u @ k.T / 2, relative(np.tile(v, (N, 1)), R)
full, no_u = (normalised(causal(N) * np.exp(q @ k.T / 2 + offset + of_v + c)) for c in (of_u, 0))
assert close(full @ f @ W_v, published["XL, full"]) and not close(full, no_u, 0.1)
# %% [markdown]
# The attentions of today are lines of the same kind. **RoPE** turns queries and keys by their
# positions, $\langle R_iq, R_jk\rangle = \langle q, R_{j-i}k\rangle$: a kernel of offsets with
# coefficients from the query *and* the key (S.42). **ALiBi** (S.43) and **T5** (S.44) have one of
# offsets alone, Laplacian and a table of buckets; T5 does not divide by $\sqrt d$.
# %%
turn = lambda x, i: rotary(x[None], first=i)[0]                 # by position i
assert close(turn(q[5], 5) @ turn(k[3], 3), q[5] @ turn(k[3], 3 - 5))      # S.42
assert close(positions.alibi(8, N)[:2, 5, 3], [-2 / 2, -2 / 4])  # S.43: two apart, slopes 1/2, 1/4
b = rng.standard_normal(32)
assert close(bucketed(b, N, N)[9, [7, 1]], b[[2, 8]])           # S.44: 8 apart is the first wide
today = {"RoPE": attention(rotary(q), rotary(k), f @ W_v),
         "ALiBi": attention(q, k, f @ W_v, log_factor=positions.alibi(8, N), mask=causal(N)),
         "T5": attention(q, k, f @ W_v, scale=1, log_factor=bucketed(b, N, N))}
G = np.exp(rotary(q) @ rotary(k).T / 2), np.exp(q @ k.T + bucketed(b, N, N))
assert close(today["RoPE"], normalised(G[0]) @ f @ W_v)
assert close(today["T5"], normalised(G[1]) @ f @ W_v)
# %% [markdown]
# **Grouped heads** share keys and values, which broadcast (S.45). A **sink**, or softmax plus one,
# is one more key 0, of kernel value 1 and value 0: the weights of the others sum to less than 1
# (S.46). **QK-norm** gives all keys one length, so exponential and rbf agree (S.47, D5).
# **Differential attention** $A_1 - \lambda A_2$ is a difference of two smoothers and no smoother:
# its rows sum to $1 - \lambda$, with negative weights (S.48).
# %%
shared = attention(np.stack([q, 2 * q]), k, f @ W_v)            # S.45: two heads of one group
assert close(shared[1], attention(2 * q, k, f @ W_v))
sunk = np.vstack([0 * k[:1], k])                                # S.46
G = np.exp(q @ k.T / 2)
assert close(weights(q, sunk)[:, 1:], G / (1 + G.sum(axis=1, keepdims=True)))
unit_q, unit_k = linalg.unit_rows(q), linalg.unit_rows(k)       # S.47, at a scale of 9
assert close(weights(unit_q, unit_k, scale=1 / 9), weights(unit_q, unit_k, kernel="rbf", gamma=4.5))
A = weights(q, k) - 0.8 * weights(k, q)                         # S.48
assert close(A.sum(axis=1), 0.2) and A.min() < -0.01
# %% [markdown]
# ## 5. The filter, and where order comes from
# Causal (S.24), with a memory of earlier keys (S.25), a window (S.26), strided (S.27):
# %% Maps of four filters: a triangle, a triangle beside a block, a band, a band with stripes
B = {"causal": causal(N), "memory": memory(N, 4), "window": window(N, 4), "strided": strided(N, 4)}
assert [int(mask.sum()) for mask in B.values()] == [78, 78 + 4 * N, 42, 54]
assert B["memory"][0].sum() == 5 and B["memory"][0, 4] and not B["memory"][0, 5]
assert not any(B[name][0, 1] for name in ("causal", "window", "strided"))  # no key after the query
assert B["window"][8, 5] and not B["window"][8, 4] and B["strided"][8, [0, 4, 5]].all()
fig, axes = plt.subplots(1, 4, figsize=(7, 2.2), width_ratios=(12, 16, 12, 12))
for ax, (title, mask) in zip(axes, B.items()):
    ax.imshow(mask)
    ax.set(title=title, xlabel="key j", **ticks)
axes[0].set_ylabel("query i")
plt.show()
# %% [markdown]
# Bright is visible: 78 pairs for causal, 54 for strided, 42 for the window.
#
# Without position and filter attention is **equivariant**, at any depth: permute the rows, and the
# outputs permute (D26); so they do if a filter is permuted with them (S.29). A causal filter that
# stays breaks it, as nearly all do (D27; E7.4 finds those that do not). But *one* causal layer is
# blind to the order of the past: it averages a set (D28). With equal weights the third of the rows
# $a, b, c$ becomes $(a + b + c)/3$, after a second layer $(11a + 5b + 2c)/18$, and order shows. The
# place alone shows at once: the weight of the first token is 1, 1/2, 1/3, ... (D29).
# %%
layer = lambda f, mask=None: attention(f @ W_q, f @ W_k, f, mask=mask)
once, twice = (lambda f: layer(f, causal(N))), (lambda f: layer(layer(f, causal(N)), causal(N)))
order = [*rng.permutation(N - 1), N - 1]                        # the last stays the last
assert close(layer(layer(f[order])), layer(layer(f))[order])    # no filter: equivariant (D26)
assert not close(once(f[order]), once(f)[order], 0.1)           # causal: not (D27)
assert close(layer(f[order], causal(N)[order][:, order]), once(f)[order])  # S.29
blind, sees = (np.abs(deep(f[order])[-1] - deep(f)[-1]).max() for deep in (once, twice))
print(f"shuffling the past moves the last row by {blind:.0e} after one layer, {sees:.2g} after two")
assert blind < 1e-12 and sees > 0.01                            # D28
A = weights(f, f, kernel=lambda Q, K: np.ones((N, N)), mask=causal(N))     # equal weights
assert close(A[2, :3], 1 / 3) and close((A @ A)[2, :3] * 18, [11, 5, 2])
assert close(A[:, 0], 1 / np.arange(1, N + 1))                  # D29
# %% [markdown]
# ## 6. Finite features, and two relatives
# For $\kappa = \langle \phi(q), \phi(k)\rangle$ with positive features $\phi$, sums over keys come
# first, in $O(N)$; with a causal filter they are a running state (S.31), the same output (D32):
# $$S_i = S_{i-1} + \phi(k_i)^\top v_i, \qquad z_i = z_{i-1} + \phi(k_i)^\top, \qquad
#   o_i = \frac{\phi(q_i)\, S_i}{\phi(q_i)\, z_i}.$$
# The square of the linear kernel has the products of two entries as features (D33). The exponential
# kernel has no finite ones that serve all points; random ones are right in the mean (S.32, lesson
# 03).
#
# Fed back as the query, the output of an rbf kernel with keys = values = data is **mean shift**
# (S.34; Fukunaga and Hostetler, 1975; Cheng, 1995), a step of $\nabla\log p$ times the squared
# width, which never lowers the density $p$ of the data (D36). That of the exponential kernel is the
# update of a modern **Hopfield network** (S.35). Its energy $\|q\|^2/2 - \frac1\beta\log\sum_j
# e^{\beta\langle q, k_j\rangle}$ never rises; for patterns of one length the two updates are the
# same, at squared width $1/\beta$ (D37).
# %%
phi = lambda X: np.where(X > 0, X + 1, np.exp(np.minimum(X, 0)))           # elu + 1
assert close(attention(phi(q), phi(k), f @ W_v, kernel="linear", mask=causal(N)),
             published["Katharopoulos"])                                   # D32
S_i, z_i = phi(k[:6]).T @ f[:6] @ W_v, phi(k[:6]).sum(axis=0)              # S.31, the sixth token
assert close(phi(q[5]) @ S_i / (phi(q[5]) @ z_i), published["Katharopoulos"][5])
square = lambda X: (X[:, :, None] * X[:, None, :]).reshape(len(X), -1)     # (N, d d)
assert close(square(q) @ square(k).T, (q @ k.T) ** 2)                      # D33
few, many = (np.abs(np.matmul(Phi, Psi.T) / np.exp(q @ k.T / 16) - 1).mean() for Phi, Psi in (
    features.positive_random(q / 4, k / 4, m=m, seed=0) for m in (200, 20_000)))
assert many < 0.02 and many < few / 4                                      # S.32: ~ 1 / sqrt(m)
assert [np.linalg.matrix_rank(G) for G in (q @ k.T, np.exp(q @ k.T))] == [d, N]    # as the tokens
Z, P, at, state = unit[1, 8], K[1, 8], Q[1, 8], Q[1, 8]         # Z has one length, P has not
log_p = lambda q: anp.log(anp.exp(-half(q[:, None] - Z)).sum(axis=-1))     # width: h^2 = 1 / beta
energy = lambda q: (q ** 2).sum(axis=-1) / 2 - np.log(np.exp(beta * q @ P.T).sum(axis=-1)) / beta
for _ in range(20):
    was, at, before, state = at, attention(at, Z, Z, **rbf), state, attention(state, P, P)
    assert close(at - was, grad(lambda q: log_p(q).sum())(was) / beta)     # D36
    assert np.all(log_p(at) >= log_p(was) - 1e-12) and close(at, attention(was, Z, Z))
    assert np.all(energy(state) <= energy(before) + 1e-12)                 # D37
# %% [markdown]
# ## 7. Small print
# Claims that need no story: each comment says what the lines below it hold.
# %%
# rbf without 1/2, exp(-beta |q - k|^2), doubles the logits: odds of 2 : 1 become 4 : 1. A query 0
# shows the factor of the key, exp(-gamma |k|^2) (D6).
for gamma, odds in ((0.5, 2), (1.0, 4)):
    A = weights([[np.log(2) / 2], [0]], [[1], [-1], [0]], kernel="rbf", gamma=gamma)
    assert close(A[0, 0] / A[0, 1], odds) and close(A[1, 0] / A[1, 2], np.exp(-gamma))
# A causal filter leaves the symmetric part of a PSD G PSD: half of G and half its diagonal. A band
# to both sides need not: all ones with |i - j| <= 1 has the eigenvalue 1 - sqrt(2). Nor need a
# causal window of three keys, while one of two keeps it (D13).
G, B, band = np.exp(X @ X.T), causal(7) * np.exp(X @ X.T), np.tri(3, k=1) * np.tri(3, k=1).T
assert close((B + B.T) / 2, G / 2 + np.diag(np.diag(G)) / 2)
assert close(np.linalg.eigvalsh(band)[0], 1 - 2 ** 0.5)
assert [np.linalg.eigvalsh(window(N, k) + window(N, k).T * 1.0)[0] > 0 for k in (2, 3)] == [1, 0]
# A table of offsets with a window commutes with shifts, except at the start; added positions do
# not (D30).
local = lambda q: attention(q, q, q, mask=window(N, 3),
                            log_factor=relative(q, offset_table(table, N, N)))
moved = lambda q: np.roll(q, 2, axis=0)
assert close(local(moved(q))[4:], moved(local(q))[4:])
assert not close(local(moved(q) + t @ W_q)[4:], moved(local(q + t @ W_q))[4:], 0.1)
# The published relative shift, a zero before each row and the rows cut anew, is right for the keys
# up to the query's own and arbitrary beyond, where a mask must hide it (D23).
cut = np.hstack([np.zeros((N, 1)), absolute(q, R[:N])]).reshape(N + 1, N)[1:]
assert close(cut[causal(N)], offset[causal(N)]) and not close(cut, offset, 0.1)
# At its left end a rising line is overestimated by a mean of points to the right; a weighted
# straight line is exact, but not for a parabola (D38; Fan, 1992). Weights that sum to 1 and give
# straight lines exactly, as those of this fit and (in the affine hull of its neighbours) of locally
# linear embedding, may be negative, 0 = 2 * 1 - 1 * 2: no smoother (D39).
line, root = 2 * grid + 1, np.exp(-25 * grid[:, 0] ** 2)        # polyfit squares its weights
assert attention([[0.0]], grid, line, kernel="rbf", gamma=50)[0, 0] > 1.1
assert close(np.polyfit(grid[:, 0], line[:, 0], 1, w=root)[1], 1)
assert np.polyfit(grid[:, 0], grid[:, 0] ** 2, 1, w=root)[1] < -0.005
assert close(np.linalg.solve([[1, 2], [1, 1]], [0, 1]), [2, -1])
# An average of H heads has the squared error bias^2 + variance / H + (1 - 1 / H) covariance
# (S.38; Ueda and Nakano, 1996): two equal heads gain nothing, two opposite ones keep nothing but
# the bias, here 0.3.
e, g = np.array([1, 1, -1, -1]), np.array([1, -1, 1, -1])       # variance 1, covariance 0
for other, covariance in ((e, 1), (g, 0), (-e, -1)):
    error = np.mean((0.3 + (e + other) / 2) ** 2)
    assert close(error, 0.3 ** 2 + 1 / 2 + (1 - 1 / 2) * covariance)
# %% [markdown]
# ## Exercises
# Each check says what is wrong. `ksvd-ref check FILE` marks a whole file.
# %% [markdown]
# **E7.1** (about 2 lines) The `scale` and `log_factor` that make exponential attention rbf.
# %%
def rbf_as_exponential(K, gamma):
    raise NotImplementedError("Exercise 7.1: (scale, log_factor), from the keys alone")


# %%
exercises.check("7.1", rbf_as_exponential)


# %% [markdown]
# **E7.2** (about 6 lines) The three terms of S.38 for $H$ heads that are averaged, from their
# outputs: the square of their mean bias, their mean variance and the mean covariance of their
# pairs, each with its factor. Means over the draws divide by the draws, not by draws - 1.
# %%
def ensemble(F, truth):
    raise NotImplementedError("Exercise 7.2: from F (H, draws, points) three terms (points,)")


# %%
exercises.check("7.2", ensemble)


# %% [markdown]
# **E7.3** (about 7 lines) Causal attention with features, by a running state.
# %%
def running(phi_Q, phi_K, V):
    raise NotImplementedError("Exercise 7.3: outputs (N, d_v), from states (p, d_v) and (p,)")


# %%
exercises.check("7.3", running)


# %% [markdown]
# **E7.4** (about 8 lines) Predict, then run: all filters of $n$ tokens that keep equivariance.
# %%
def equivariant_filters(n):
    raise NotImplementedError("Exercise 7.4: a list of (n, n) boolean masks")


# %%
exercises.check("7.4", equivariant_filters)
# %% [markdown]
# Three questions without code.
#
# 1. A mask multiplies $\kappa$. What goes wrong if it multiplies the logits?
# 2. Why is a logit of $-10^9$ not the same as hiding a key?
# 3. If $G$ is PSD, $G_{i,i-1}^2 \le G_{ii}G_{i-1,i-1}$. If every row prefers the previous place to
#    its own, what does the diagonal do?
#
# *Where this is used.* Lessons 10 (KSVD of these maps), 09 (Primal-Attention), 11 (ablations).
#
# *Further reading.* Tsai et al., Transformer Dissection, EMNLP 2019 (arXiv 1908.11775). Dai et al.,
# Transformer-XL, ACL 2019. Raffel et al., T5, JMLR 21, 2020 (arXiv 1910.10683). Su et al., RoFormer
# (RoPE), arXiv 2104.09864, 2021. Press et al., Train short, test long (ALiBi), ICLR 2022. Shazeer,
# Fast Transformer decoding, arXiv 1911.02150, 2019. Ainslie et al., GQA, EMNLP 2023. Miller,
# Attention is off by one, 2023. Henry et al., Query-Key normalization, Findings of EMNLP 2020. Ye
# et al., Differential Transformer, arXiv 2410.05258, 2024. Choromanski et al., Rethinking Attention
# with Performers, ICLR 2021. Ramsauer et al., Hopfield Networks is All You Need, ICLR 2021.
# Fukunaga and Hostetler, The estimation of the gradient of a density function, IEEE Trans. Inf.
# Theory 21(1), 1975. Cheng, Mean shift, mode seeking, and clustering, IEEE Trans. Pattern Anal.
# 17(8), 1995. Fan, Design-adaptive nonparametric regression, J. Amer. Stat. Assoc. 87, 1992. Ueda
# and Nakano, Generalization error of ensemble estimators, IEEE Int. Conf. on Neural Networks, 1996.
