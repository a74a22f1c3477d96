# %% [markdown]
# # Attention is a kernel smoother with four things to choose
# **You will do.** Write each published attention as one line that differs from its neighbour in one
# component, and check on small matrices what each component can and cannot do.
# **You will learn.** What softmax has to do with Nadaraya and Watson, which kernel is no smoother,
# why symmetric is not positive semi-definite, and where the order of words comes from.
# **You need.** Lesson 02, conditional means, eigenvalues, 45 minutes.
# %%
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from ksvd_ref import datasets, features, kernels
from ksvd_ref.positions import absolute, offset_table, relative, sinusoids, turned
from ksvd_ref.smoother import (attention, causal, linear_attention, memory, multi_head, strided,
                               weights, window)

HERE = Path(__file__).parent if "__file__" in globals() else Path.cwd()
plt.style.use(HERE / "ksvd.mplstyle")
rng = np.random.default_rng(0)
# Short sums of numbers of order 1: rounding is about 1e-15.
close = lambda a, b, tolerance=1e-12: np.abs(np.subtract(a, b)).max() < tolerance
normalised = lambda G: G / G.sum(axis=-1, keepdims=True)
smallest = lambda G: np.linalg.eigvalsh((G + G.T) / 2)[0]       # eigenvalue of the symmetric part

# %% [markdown]
# ## 1. The definition
# A query $q$ takes a mean of the values $v_j$ of those keys $k_j$ that the filter $M$ lets it see:
# $$o(q) = \sum_{j \in M} \frac{\kappa(q, k_j)}{\sum_{l \in M} \kappa(q, k_l)}\, v_j, \qquad
# O = AV, \quad A = \hat D^{-1}(B \circ G), \quad \hat D = \mathrm{diag}\big((B \circ G)\,1\big)
# \qquad (\text{S.2, S.3})$$
# with $G_{ij} = \kappa(q_i, k_j)$ and the filter as zeros and ones, $B$. On paper: kernel values
# $(2, 1)$ and values $(3, 0)$ give $\frac23 \cdot 3 = 2$; hide the first key, and the mean is 0.
# With a Gaussian kernel (S.9) this is the regression of Nadaraya and Watson (1964).
# %%
K, V = [[np.log(2)], [0.0]], [[3.0], [0.0]]
assert close(attention([[1.0]], K, V), 2) and close(attention([[1.0]], K, V, mask=[False, True]), 0)
x, grid = np.sort(rng.random(60))[:, None], np.linspace(0, 1, 201)[:, None]
y = np.sin(6 * x) + 0.3 * rng.standard_normal(x.shape)
fig, ax = plt.subplots()
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
# One width $h$ goes from copying (dotted) towards the global mean (dashed); no output leaves the
# range of the values.
#
# ## 2. The kernel on the content
# Softmax attention is the exponential kernel, $\kappa = e^{\langle q, k \rangle / \sqrt d}$ (S.6).
# Is it the Gaussian one? Nearly:
# $$e^{\langle q, k \rangle} = e^{\|q\|^2/2}\; e^{-\|q - k\|^2/2}\; e^{\|k\|^2/2}.$$
# The factor of the query is in numerator and denominator and cancels. That of the key does not:
# exponential attention is rbf attention **whose keys have weights**. They agree for all queries if
# and only if all visible keys have one length. In a small MiniLM that reads Lincoln:
# %%
Q, K, tokens = datasets.minilm_heads()                          # (6 layers, 12 heads, 64, 32)
scale = 32 ** 0.5
rbf = {"kernel": "rbf", "gamma": 1 / (2 * scale)}
A, R = weights(Q, K), weights(Q, K, **rbf)
assert close(A, normalised(np.exp(Q @ np.moveaxis(K, -1, -2) / scale)))    # softmax
of_keys = (K ** 2).sum(axis=-1)[..., None, :] / (2 * scale)     # logarithm of the key weight
assert close(weights(Q, K, **rbf, log_factor=of_keys), A)
assert close(weights(Q, K, log_factor=rng.standard_normal((64, 1))), A)    # one of queries cancels
unit = K / np.sqrt((K ** 2).sum(axis=-1, keepdims=True))
assert close(weights(Q, unit), weights(Q, unit, **rbf))
moved = np.abs(A - R).sum(axis=-1).mean(axis=-1) / 2            # (6, 12)
print(f"the key weights move {moved.min():.0%} to {moved.max():.0%} of a head's attention")
assert 0.02 < moved.min() < 0.05 and 0.6 < moved.max() < 0.65
assert moved.argmax() == 12 + 8 and of_keys[1, 8].argmin() == 0            # tokens[0] is [CLS]
assert A[1, 8, :, 0].mean() < 0.25 and R[1, 8, :, 0].mean() > 0.8
assert np.diag(A[0, 2], -1).mean() > 0.99                       # weight on the previous token
fig, axes = plt.subplots(1, 3, figsize=(9.6, 3.8), sharey=True)
for ax, (image, title) in zip(axes, ((A[0, 2], "exponential, layer 1, head 3"), (
        A[1, 8], "exponential, layer 2, head 9"), (R[1, 8], "rbf, layer 2, head 9"))):
    drawn = ax.imshow(np.sqrt(image[:24, :24]), vmin=0, vmax=1)
    ax.set(title=title, xlabel="key")
    ax.set_xticks(range(24), tokens[:24], rotation=90, fontsize=6)
    ax.set_yticks(range(24), tokens[:24], fontsize=6)
axes[0].set_ylabel("query")
fig.colorbar(drawn, ax=axes, shrink=0.8, label="root of the weight")
plt.show()

# %% [markdown]
# Left, a head that copies the previous token. Middle and right, one head with and without its key
# weights: the key of [CLS] is the shortest, and without weights it draws most of the attention.
#
# **The linear kernel $\langle q, k \rangle$ (S.7) is no smoother.** For $q = 1$ and keys $1, -1$
# the normaliser is 0; for keys $1, -0.999$ the weights are 1000 and −999. Its square (S.8) is
# never negative, but blind: $q$ and $-q$ are the same to it.
# %%
np.testing.assert_raises_regex(ValueError, "no weighted mean", weights, [[1.0]], [[1.0], [-1.0]],
                               kernel="linear")
assert close(normalised(np.array([1, -0.999])), [1000, -999], 1e-9)        # a warning in weights
assert close(weights([[1.0]], [[1.0], [-1.0]], kernel="polynomial", coef0=0.0), 0.5)

# %% [markdown]
# ## 3. Symmetric, positive semi-definite, normalised
# $W_q = W_k$ makes $G$ symmetric and positive semi-definite (PSD) for these four kernels, and
# entrywise products of PSD matrices are PSD. **Symmetric is not enough**: the matrix with rows
# $(1, 2), (2, 1)$ has the eigenvalue −1, and data $\pm 1$ with $W_q = 1$, $W_k = -1$ give a
# symmetric exponential $G$ with −2.35. Filters: a causal one leaves the symmetric part PSD; a
# two-sided window need not. Normalised, $A$ is not symmetric any more.
# %%
X = rng.standard_normal((7, 4))
G, A, T = np.exp(X @ X.T / 2), weights(X, X), np.exp(sinusoids(7, 4) @ sinusoids(7, 4).T)
homogeneous = kernels.polynomial(X, X, coef0=0.0)
assert min(map(smallest, (kernels.linear(X, X), homogeneous, kernels.rbf(X, X), G))) > -1e-12
assert min(smallest(G), smallest(G * T), smallest(causal(7) * G)) > 0
assert close(smallest(np.array([[1.0, 2.0], [2.0, 1.0]])), -1)
assert close(smallest(np.exp(np.outer([1, -1], [-1, 1]))), 1 / np.e - np.e)      # -2.35
assert close(smallest(1.0 * (window(3, 2) | window(3, 2).T)), 1 - 2 ** 0.5)
assert not close(A, A.T, 0.1)

# %% [markdown]
# ## 4. Position and value: each published attention is one line
# A position is a second kernel, multiplied to the first; `log_factor` is its logarithm: of offsets,
# with coefficients from the query, through sinusoids (S.12, S.15: Transformer-XL) or a table (S.17:
# Shaw, Huang), or of two absolute positions (S.18: Tsai). The value has position ($f + t$) or not
# ($f$, which Tsai et al. recommend). With content $f$ and positions $t$:
# %%
N, d = 6, 4
f, t, u, v = (rng.standard_normal(shape) for shape in ((N, 5), (N, 5), d, d))
W_q, W_k, W_v, W_F, W_T, W_R = (0.5 * rng.standard_normal((n, d)) for n in (5, 5, 5, 5, 8, 8))
q, k, s, table = f @ W_q, f @ W_k, sinusoids(N, 8), rng.standard_normal((5, d))
R = sinusoids(2 * N - 1, 8, first=1 - N)[::-1] @ W_R            # offsets i - j from N - 1 down
published = {
    "Set Transformer": attention(q, k, f @ W_v),
    "Vaswani": attention((f + t) @ W_q, (f + t) @ W_k, (f + t) @ W_v),
    "Vaswani, decoder": attention((f + t) @ W_q, (f + t) @ W_k, (f + t) @ W_v, mask=causal(N)),
    "Shaw, Huang": attention(q, k, f @ W_v, log_factor=relative(q, offset_table(table, N, N))),
    "XL, product": attention(q, k, f @ W_v, log_factor=relative(q, R), mask=causal(N)),
    "XL, full": attention(q + u, k, f @ W_v, log_factor=relative(q + v, R), mask=causal(N)),
    "Tsai": attention(f @ W_F, f @ W_F, f @ W_v, log_factor=absolute(s @ W_T, s @ W_T)),
    "Sparse Transformer": attention(q, k, f @ W_v, mask=strided(N, 2)),
    "Katharopoulos": linear_attention(q, k, f @ W_v, mask=causal(N)),
    "two heads": multi_head(q, k, f @ W_v, heads=2, mask=causal(N))}
# Additive: a product of four kernels. (f + t)(f' + t') = ff' + ft' + tf' + tt'; 3 * 7 = 3+4+6+8.
three = absolute(q, t @ W_k) + absolute(t @ W_q, k) + absolute(t @ W_q, t @ W_k)
assert close(attention(q, k, (f + t) @ W_v, log_factor=three), published["Vaswani"])
# Product of symmetric kernels: one exponential kernel of [f W_F, t W_T]. The scale stays sqrt(4).
P = np.hstack([f @ W_F, s @ W_T])
assert close(attention(P, P, f @ W_v, scale=2), published["Tsai"])
# XL's product (S.14): one of [q, psi] and [k, t]; psi is q W_R^T turned by the query's position.
one = weights(np.hstack([q, turned(q @ W_R.T)]), np.hstack([k, s]), scale=2, mask=causal(N))
assert close(one @ f @ W_v, published["XL, product"])
# XL in full has four terms: content, offset, a bias u k of the key, a bias v R of the offset.
terms = absolute(q, k), relative(q, R), absolute(0 * q + u, k), relative(0 * q + v, R)
product = causal(N) * np.prod(np.exp(terms), axis=0)
assert close(normalised(product) @ f @ W_v, published["XL, full"])

# %% [markdown]
# XL's position kernel knows $i - j$, Tsai's $i$ and $j$: let $W_T$ keep $\sin i$ alone, and
# $\log\kappa(0, 1) = 0$, $\log\kappa(1, 2) = 0.765$. And a PSD kernel that prefers the previous
# position to its own pays: $\kappa(i, i-1)^2 \le \kappa(i, i)\,\kappa(i-1, i-1)$, so a factor $e^m$
# in each of $n$ rows takes $\kappa(0, 0) \ge e^{2mn} \kappa(n, n)$. Shift-invariant it cannot be.
#
# ## 5. The filter, and where order comes from
# Filters are causal (S.24), causal with memory (S.25), a window (S.26), strided (S.27). Without
# position and filter attention is equivariant: permute the rows, and the outputs permute. A
# causal filter breaks that, but **one** layer of it is blind to the order of the past: it
# averages a set. With equal weights: $(a + b + c)/3$, after a second layer $(11a + 5b + 2c)/18$.
# %%
assert close(absolute(np.sin([[0.0], [1]]), np.sin([[1.0], [2]])), [[0, 0], [0.708, 0.765]], 1e-3)
S = absolute([[4.0], [2], [1]], [[4.0], [2], [1]])              # log kappa of positions 4, 2, 1
m = (np.diag(S, -1) - np.diag(S)[1:]).min()                     # of the previous over the own
assert m == 1 and S[0, 0] - S[2, 2] >= 2 * m * 2
layer = lambda f, mask=None: attention(f @ W_q, f @ W_k, f, mask=mask)
once, twice = (lambda f: layer(f, causal(N))), (lambda f: layer(layer(f, causal(N)), causal(N)))
order = [3, 1, 4, 0, 2, 5]                                      # the last stays the last
assert close(layer(layer(f[order])), layer(layer(f))[order], 1e-11)        # encoder
assert not close(once(f[order]), once(f)[order], 0.1)                      # decoder
blind, sees = (np.abs(deep(f[order])[-1] - deep(f)[-1]).max() for deep in (once, twice))
print(f"shuffling the past moves the last row by {blind:.0e} after one layer, {sees:.2g} after two")
assert blind < 1e-12 and sees > 0.01
equal = lambda Q, K: np.ones((len(Q), len(K)))                  # a kernel is any function of Q, K
A = weights(f, f, kernel=equal, mask=causal(N))
assert close(A[:, 0], 1 / np.arange(1, N + 1)) and close((A @ A)[2, :3] * 18, [11, 5, 2])
assert strided(12, 4).sum() == 54 and causal(12).sum() == 78
s, offsets = sinusoids(12, 8), sinusoids(23, 8, first=-11)[::-1]
pictures = {"causal": causal(12), "window": window(12, 4), "strided": strided(12, 4),
            "memory": memory(12, 4), "XL position": relative(np.tile([0.0, 1.0], (12, 4)), offsets),
            "Tsai position": absolute(s @ W_T, s @ W_T)}
fig, axes = plt.subplots(1, 6, figsize=(10.5, 2.3))
for ax, (title, B) in zip(axes, pictures.items()):
    ax.imshow(B, aspect="auto")
    ax.set(title=title, xlabel="key j", xticks=(0, 5, 10), yticks=(0, 5, 10))
axes[0].set_ylabel("query i")
plt.show()

# %% [markdown]
# Four filters (bright: visible), two logarithms of position kernels: one has stripes, one has not.
#
# ## 6. Finite features
# For $\kappa = \langle \phi(q), \phi(k) \rangle$ with positive $\phi$, sums over keys come first,
# in $O(N)$; a causal filter is a running state $S_i = S_{i-1} + \phi(k_i)^\top v_i$ (S.31). The
# exponential kernel has random features (S.32), positive, $E_w[e^{w \cdot x - \|x\|^2/2}\,
# e^{w \cdot y - \|y\|^2/2}]$, or trigonometric, $E_w[\cos w \cdot (x - y)]\, e^{(\|x\|^2 +
# \|y\|^2)/2}$. Which varies less depends on the angle between $x$ and $y$.
# %%
phi = lambda X: np.where(X > 0, X + 1, np.exp(np.minimum(X, 0)))           # elu + 1
assert close(attention(phi(q), phi(k), f @ W_v, kernel="linear", mask=causal(N)),
             published["Katharopoulos"])
angles, m = np.radians([60, 90, 120, 150, 180]), 100_000
circle = lambda angle: np.stack([np.cos(angle), np.sin(angle)], axis=1)
c, x, y = np.cos(angles), circle(np.zeros(1)), circle(angles)
Phi, Psi = features.positive_random(x, y, m=m, seed=0)
draws = {"positive": m * Phi * Psi,
         "trigonometric": np.e * np.cos((x - y) @ rng.standard_normal((2, m)))}
theory = {"positive": lambda c: np.exp(2 + 2 * c) - 1,          # relative variances, |x| = |y| = 1
          "trigonometric": lambda c: np.exp(2 - 2 * c) * (1 - np.exp(2 * c - 2)) ** 2 / 2}
seen = {name: draw.var(axis=1) / np.exp(2 * c) for name, draw in draws.items()}
assert all(close(seen[name], theory[name](c), 0.1 * seen[name].max()) for name in theory)

# %% [markdown]
# ## 7. Relatives: mean shift, Hopfield networks, ensembles
# Feed the output back as the query. With an rbf kernel and keys = values = data that is mean shift,
# which climbs the density (S.34); with the exponential kernel a modern Hopfield network, which
# lowers an energy (S.35). For patterns of one length they are the same update, $\beta = 1/h^2$.
# %%
h = 0.4
turn = np.concatenate([mean + 0.25 * rng.standard_normal(20) for mean in (0.5, 2.5, 4.6)])
Z, path = circle(turn), [1.4 * circle(np.linspace(0, 2 * np.pi, 16))]
for _ in range(40):
    path.append(attention(path[-1], Z, Z, kernel="rbf", gamma=1 / (2 * h ** 2)))
    assert close(path[-1], attention(path[-2], Z, Z, scale=h ** 2))        # Hopfield
path = np.stack(path)                                           # (41, 16, 2)
density = np.exp(-((path[:, :, None] - Z) ** 2).sum(axis=-1) / (2 * h ** 2)).sum(axis=-1)
energy = (path ** 2).sum(axis=-1) / 2 - h ** 2 * np.log(np.exp(path @ Z.T / h ** 2).sum(axis=-1))
assert np.diff(density, axis=0).min() > -1e-12 and np.diff(energy, axis=0).max() < 1e-12
fig, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.4))
for name, color, mark in (("positive", "C0", "o"), ("trigonometric", "C1", "x")):
    left.plot(range(55, 181), theory[name](np.cos(np.radians(range(55, 181)))), color, label=name)
    left.plot(np.degrees(angles), seen[name], mark, color=color)
left.set(title="Variance of one random feature", xlabel="angle of x and y (degrees)",
         ylabel="relative variance")
left.legend()
right.plot(*Z.T, ".", color="0.6", label="patterns")
right.plot(*path.transpose(2, 0, 1), color="C0", linewidth=0.8)
right.plot(*path[-1].T, "o", color="C1", label="after 40 steps")
right.set(title="Mean shift = Hopfield", xlabel="first coordinate", ylabel="second", aspect="equal")
right.legend(loc="center", fontsize=8)
plt.show()

# %% [markdown]
# Lines are formulas, marks 100 000 draws: neither feature wins everywhere. Right, queries walk to
# modes. And heads that are **averaged** are an ensemble of Nadaraya-Watson estimators: E7.2.
#
# ## Exercises
# `check = runpy.run_path(str(HERE / "solutions" / "07_attention_is_a_kernel_smoother.py"))` (after
# `import runpy`) loads the checks; `check["check_7_1"](rbf_as_exponential)` runs one.
#
# **E7.1** (2 lines) The `scale` and `log_factor` that make exponential attention rbf attention.
# **E7.2** (6 lines) The three terms of the squared error of $H$ averaged heads, bias² + (mean
# variance)$/H$ + $(1 - 1/H)$ (mean covariance), from their outputs on many draws of data (S.38).
# **E7.3** (7 lines) Causal attention with features, query by query, without an $N \times M$ matrix.
# **E7.4** (6 lines) All filters of $n$ tokens for which attention is equivariant. Guess how many.


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
# **Questions.** (a) A mask multiplies $\kappa$. What goes wrong if it multiplies the logits? (b)
# Why is a logit of $-10^9$ not the same as hiding a key? (c) Which factor of $\kappa$ may you drop?
#
# **Where this is used.** Lessons 08 (KSVD of these maps), 09 (Primal-Attention), 11 (ablations).
# **Further reading.** Tsai et al., Transformer Dissection, EMNLP 2019, arXiv 1908.11775. Dai et
# al., Transformer-XL, ACL 2019. Choromanski et al., Performer, ICLR 2021. Ramsauer et al., Hopfield
# Networks is All You Need, ICLR 2021.
