# %% [markdown]
# # Asymmetric kernels: functions of two arguments that are not alike
# **You will do.** Build kernel matrices from data, functions and a real attention head; normalise
# their rows and centre them.
#
# **You will learn.** What a kernel matrix must satisfy if it need not be symmetric (nothing), and
# what features, row normalisation and centring do to the singular values.
#
# **You need.** Lesson 01: each component of a matrix has two vectors, $K h_r = \sigma h_e$ and
# $K^\top h_e = \sigma h_r$. 45 minutes, and 20 more for the exercises.
# %%
import matplotlib.pyplot as plt
import numpy as np

from ksvd_ref import dual, features, kernels
from ksvd_ref.course import datasets, exercises

plt.style.use("ksvd_ref.data.ksvd")
rng = np.random.default_rng(0)
# %% [markdown]
# ## 1. Two arguments, two spaces
# The usual kernel compares two points of one kind. Here the rows belong to points $x_i$ and the
# columns to points $z_j$, each with its own feature map into a common space:
#
# $$ K_{ij} = \kappa(x_i, z_j) = \langle\varphi(x_i), \psi(z_j)\rangle, \quad K = \Phi\Psi^\top.
# \tag{K.5} $$
#
# The two spaces may differ. With $\varphi(x) = W_q^\top x$, the *query* of $x$, and
# $\psi(z) = W_k^\top z$, the *key* of $z$, the rank is at most the common dimension.
#
# **By hand.** Even for points of one kind, $(1, 0)$ and $(0, 1)$: from $W_q = (1, 0)^\top$ and
# $W_k = (0, 1)^\top$ follow $\kappa(x_1, x_2) = 1$ and $\kappa(x_2, x_1) = 0$.
# %%
X, Z = rng.standard_normal((6, 5)), rng.standard_normal((8, 3))     # two spaces, R^5 and R^3
W_q, W_k = rng.standard_normal((5, 2)), rng.standard_normal((3, 2))
K = kernels.linear(X @ W_q, Z @ W_k)
assert K.shape == (6, 8) and np.linalg.matrix_rank(K) == 2
by_hand = kernels.linear([[1.0], [0.0]], [[0.0], [1.0]])            # X W_q and X W_k, X = I
assert by_hand.tolist() == [[0.0, 1.0], [0.0, 0.0]]
# %% [markdown]
# How asymmetric is real attention? $\|K - K^\top\| / \|K + K^\top\|$ is 0 for a symmetric $K$.
# %%
heads = datasets.minilm_heads()
Q_head, K_head = heads.Q[2, 0], heads.K[2, 0]       # third layer, head 0: 64 tokens, d = 32
logits, A = kernels.linear(Q_head, K_head), kernels.softmax(Q_head, K_head)
asymmetry = [np.linalg.norm(G - G.T) / np.linalg.norm(G + G.T) for G in (logits, A)]
print("asymmetry of the logits: {:.3f}, of their softmax: {:.3f}".format(*asymmetry))
np.testing.assert_allclose(asymmetry, [0.472, 0.929], atol=1e-3)
# %% [markdown]
# ## 2. Any function will do
# `kernels.gram` takes any: say the effort to walk from $x$ to $z$, three times as much uphill.
#
# **Counter-example.** Code for symmetric kernels evaluates one triangle and mirrors it. Here that
# takes the way up for the way down, 9 for 3.
# %%
heights = np.array([[0.0], [1.0], [3.0]])
K = kernels.gram(lambda x, z: max(3.0 * (z[0] - x[0]), x[0] - z[0]), heights, heights)
assert K.tolist() == [[0.0, 3.0, 9.0], [1.0, 0.0, 6.0], [3.0, 2.0, 0.0]]
assert np.abs(np.triu(K) + np.triu(K, 1).T - K).max() == 6.0
# %% [markdown]
# The kernel of the past, $\kappa(x, z) = 1$ for $z \le x$ on $[0, 1]$, is the causal filter of
# attention. Its matrix over $N$ is a triangle: all eigenvalues are $1/N$ and go to 0. Its singular
# values tend to $2/((2l - 1)\pi)$ (K.47).
# %%
past = np.tril(np.ones((1000, 1000))) / 1000
sigma, odd = dual.solve(past, 4).sigma, np.array([1, 3, 5, 7])
print("past:", sigma.round(4), "expected:", (2 / (odd * np.pi)).round(4))
np.testing.assert_allclose(sigma * odd, 2 / np.pi, rtol=5e-3)


# %% [markdown]
# ## 3. Which matrices are kernel matrices?
# All of them: with $\varphi(x_i)$ row $i$ of $K$ and $\psi(z_j)$ a unit vector, $K = K I$. Positive
# semi-definiteness (PSD) belongs to the case of one map, where $v^\top\Phi\Phi^\top v \ge 0$.
#
# | matrix, eigenvalues $\mu$ | its pairs |
# |---|---|
# | symmetric, PSD | $h_e = h_r$, $\sigma = \mu$: kernel PCA, uncentred (D35) |
# | symmetric, indefinite | $\sigma = \lvert\mu\rvert$, and $h_e = -h_r$ where $\mu < 0$ |
# | asymmetric | two different vectors, in at least one component |
#
# Where both $\mu$ and $-\mu$ occur, $\sigma$ repeats and vectors may mix.
#
# **By hand.** The rows $(1, 2)$ and $(2, 1)$ are symmetric and not PSD: eigenvalues 3 and $-1$
# (D12). Nor is every formula PSD: $(xz - 1)^2$ at the points 0 and 1 gives the rows $(1, 1)$ and
# $(1, 0)$, with an eigenvalue below 0. The polynomial kernel $(xz + c)^2$ needs $c \ge 0$.
# %%
def cosines(K):
    H_e, sigma, H_r = dual.solve(K)
    return sigma, np.sum(H_e * H_r, axis=0)                         # h_e . h_r of each pair


np.testing.assert_allclose(cosines([[1.0, 2.0], [2.0, 1.0]]), [[3, 1], [1, -1]], atol=1e-14)
assert np.linalg.eigvalsh(kernels.polynomial([[0], [1]], [[0], [1]], coef0=-1.0))[0] < -0.6
psd = kernels.exponential(Q_head, Q_head)           # queries against queries: one map
np.testing.assert_allclose(cosines(psd)[1][:20], 1, atol=1e-6)      # smaller gaps: not separated
moves = datasets.canada_migration().A               # who moved from province i to province j
both = cosines(moves + moves.T)[1]
assert np.abs(np.abs(both) - 1).max() < 1e-10
assert np.sum(both < 0) == np.sum(np.linalg.eigvalsh(moves + moves.T) < 0) > 0
assert np.abs(cosines(moves)[1]).min() < 0.5
# %% [markdown]
# ## 4. The rank is the dimension of the features
# $K = \Phi\Psi^\top$ has at most as many nonzero $\sigma$ as features. In $d$ dimensions (D31):
#
# | kernel | $\kappa(x, z)$ | features |
# |---|---|---|
# | linear (S.7) | $\langle x, z\rangle$ | $d$ |
# | cosine | $\langle x, z\rangle / (\lVert x\rVert \lVert z\rVert)$ | $d$ |
# | square (S.8) | $\langle x, z\rangle^2$ | $d(d+1)/2$ |
# | square, +1 | $(\langle x, z\rangle + 1)^2$ | $(d+1)(d+2)/2$ |
# | exponential | $\exp(\langle x, z\rangle/\sqrt d)$ | infinitely many |
# | rbf (S.9), $\gamma = d^{-1/2}$ | $\exp(-\gamma\lVert x - z\rVert^2)$ | infinitely many |
# %% Spectra of six kernels in three dimensions: four end, after 3, 3, 6 and 10, two go on
X, Z = rng.standard_normal((60, 3)), rng.standard_normal((60, 3))
built = {"linear": kernels.linear(X, Z), "cosine": kernels.cosine(X, Z),
         "square": kernels.polynomial(X, Z, coef0=0.0), "square, +1": kernels.polynomial(X, Z),
         "exponential": kernels.exponential(X, Z), "rbf": kernels.rbf(X, Z, gamma=3 ** -0.5)}
spectra = {name: dual.solve(K).sigma for name, K in built.items()}
assert [len(sigma) for sigma in spectra.values()] == [3, 3, 6, 10, 60, 60]
assert all(spectra[name][-1] < 1e-5 * spectra[name][0] for name in ("exponential", "rbf"))
figure, ax = plt.subplots(figsize=(6.4, 3))
for (name, sigma), mark in zip(spectra.items(), "os^vDP"):
    ax.loglog(np.arange(1, len(sigma) + 1), sigma / sigma[0], mark + "-", lw=0.8, label=name)
ax.set(xlabel="component l", ylabel=r"$\sigma_l / \sigma_1$", title="60 x 60 points, d = 3")
ax.legend()
plt.show()
# %% [markdown]
# *See:* four spectra end, at 3, 3, 6 and 10 components; two go on, but below $10^{-5}\sigma_1$. In
# every lesson $\gamma$ sets the width of an rbf: a Gaussian of width $h$ has $\gamma = 1/(2h^2)$.
#
# No finite pair of maps gives the exponential kernel for *all* points. *Positive random features*
# estimate it without bias: a hundred times the features buy one more digit (S.32, V21).
# %%
target = kernels.exponential(X, Z, scale=1.0)
pairs = [[features.positive_random(0.5 * X, 0.5 * Z, m=m, seed=seed) for seed in range(9)]
         for m in (100, 10_000)]
off = [np.median([np.abs(P @ S.T / target ** 0.25 - 1) for P, S in some]) for some in pairs]
print("relative errors: {:.3f} and {:.3f}".format(*off))
assert 7 < off[0] / off[1] < 14                     # 10 expected
# %% [markdown]
# ## 5. What row normalisation does
# Attention divides each row of $G_{ij} = \exp(\langle q_i, k_j\rangle/\sqrt d)$ by its sum $g_i$
# (K.3). That scales the row map and not the column map, so singular values *and* vectors change. If
# all sums are equal, only the values do (V19).
#
# **By hand.** From the rows $(3, 1)$ and $(1, 1)$, with sums 4 and 2, come $(\tfrac34, \tfrac14)$
# and $(\tfrac12, \tfrac12)$: asymmetric, though $G$ is not. Its eigenvalues stay real, and as a
# chain of steps from $i$ to $j$ it has the stationary distribution $(\tfrac23, \tfrac13)$, the sums
# scaled to 1 (D14). To divide by $\sqrt{g_i g_j}$ gives another kernel again: symmetric, with rows
# that no longer sum to 1.
#
# If the rows of a square $K \ge 0$ sum to 1, then $\sigma_1 \ge 1$, and it is 1 only if the columns
# sum to 1 too (V20).
# %%
G = np.array([[3.0, 1.0], [1.0, 1.0]])
steps = G / G.sum(axis=1, keepdims=True)
np.testing.assert_allclose(np.array([2, 1]) @ steps, [2, 1], rtol=1e-14)
np.testing.assert_allclose(np.sort(np.linalg.eigvals(steps)), [0.25, 1], rtol=1e-14)
root = G / np.sqrt(G.sum(axis=1, keepdims=True) * G.sum(axis=1))
assert np.all(root == root.T) and np.abs(root.sum(axis=1) - 1).min() > 0.1
# %%
G = kernels.exponential(Q_head, K_head)
one, other = dual.solve(G), dual.solve(A)           # A is G / g: the softmax of section 1
assert abs(abs(one.H_e[:, 0] @ other.H_e[:, 0]) - 0.342) < 1e-3 and other.sigma[0] > 3.5
falls = [found.sigma[1] / found.sigma[0] for found in (one, other)]
print("second over first: exponential {:.2f}, softmax {:.2f}".format(*falls))
np.testing.assert_allclose(falls, [0.79, 0.26], atol=5e-3)
# %% [markdown]
# ## 6. What centring does
# The squares of the scores $K h_r$ sum to $N$ times a variance only if their mean is 0. Two means
# may be taken away, of $\varphi$ over the rows and of $\psi$ over the columns. $K$ is enough:
#
# $$ P_N K P_M, \qquad P_n = I - \tfrac1n \mathbf 1\mathbf 1^\top. \tag{V23} $$
#
# Every entry loses the mean of its row and that of its column, and regains the mean of all. **A new
# row** loses its own mean, over the old columns, and at $j$ that of column $j$ of the *training*
# $K$, to which the axes were fitted. **A new column** loses its own mean, over the old rows, and at
# $i$ that of row $i$ of the training $K$. Both regain the mean of all of $K$.
#
# **By hand.** $\mathrm{diag}(2, 1)$ becomes $\tfrac34$ times the rows $(1, -1)$ and $(-1, 1)$, with
# one singular value, 1.5. Of the squares of 30 first scores 65 % are variance; centred, all.
# %%
np.testing.assert_allclose(kernels.center([[2, 0], [0, 1]]), [[0.75, -0.75], [-0.75, 0.75]])
words = datasets.wikipedia_words().A                # 30 articles, 11 words: Phi = words, Psi = I
new, u, v = rng.poisson(1.0, (4, 11)).astype(float), words.mean(axis=0), np.full(11, 1 / 11)
rows = kernels.center_rows(new, words)
np.testing.assert_allclose(rows, (new - u) @ (np.eye(11) - v).T, atol=1e-14)
assert np.abs(kernels.center(new) - rows).max() > 0.3               # by their own means: wrong
z = rng.standard_normal((3, 11))                    # three new columns, psi(z)
columns = kernels.center_columns(words @ z.T, words)
np.testing.assert_allclose(columns, (words - u) @ (z - v).T, atol=1e-12)
scores = [G @ dual.solve(G).H_r[:, 0] for G in (words, kernels.center(words))]
share = [np.var(e) / np.mean(e ** 2) for e in scores]
np.testing.assert_allclose(share, [0.65, 1], atol=5e-3)


# %% [markdown]
# ## In short
# A kernel of two arguments needs no symmetry and no positivity. Its rank is at most the number of
# features. Row normalisation changes values and vectors; centring uses training means.
#
# $$K_{ij} = \langle\varphi(x_i), \psi(z_j)\rangle, \qquad P_N K P_M.$$
#
# The picture to remember: spectra that end where the features end.
#
# ## Exercises
# Fill in the functions; each check says what is wrong. `ksvd-ref check FILE` marks a whole file.
# %% [markdown]
# **E6.1** (about 3 lines) Predict the exact rank for N and M random points in d dimensions: for
# `"linear"`, `"cosine"`, `"square"`, `"square, +1"` and `"rbf"` as above.
# %%
def predicted_rank(name, N, M, d):
    raise NotImplementedError("Exercise 6.1: the number of features, and what else limits a rank")


# %%
exercises.check("6.1", predicted_rank)


# %% [markdown]
# **E6.2** (1 line) New rows, centred from kernel values alone. Do not call `center_rows`.
# %%
def centred_rows(K_new, K):
    raise NotImplementedError("Exercise 6.2: K_new (n, M) without three means; which of them?")


# %%
exercises.check("6.2", centred_rows)
# %% [markdown]
# Three questions without code.
#
# 1. Is every PSD matrix the kernel matrix of a symmetric kernel, and is every symmetric kernel PSD?
# 2. Why does $\sigma_1 = 1$ fix the column sums if the rows of $K \ge 0$ sum to 1?
# 3. Which of $H_e$, $H_r$ has columns of mean 0 if only the row side is centred, $P_N K$?
#
# *Where this is used.* Lessons 03 (features) and 07 (attention); findings F5 and F6.
#
# *Further reading.* Chen, Tao, Tonin, Suykens, Primal-Attention, NeurIPS 2023 (arXiv 2305.19798).
# Tao et al., arXiv 2306.07040, on nonlinear SVD with asymmetric kernels.
