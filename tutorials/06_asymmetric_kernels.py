# %% [markdown]
# # Asymmetric kernels: functions of two arguments that are not alike
# **You will do.** Build kernel matrices from two data sets, from any Python function and from the
# queries and keys of a real attention head; then normalise their rows and centre them.
#
# **You will learn.** What a kernel matrix must satisfy if it need not be symmetric (nothing), and
# what asymmetry, finite features, row normalisation and centring do to the singular values.
#
# **You need.** Lesson 01; 50 minutes, and 20 more for the exercises.
# %%

import matplotlib.pyplot as plt
import numpy as np

from ksvd_ref import dual, kernels
from ksvd_ref.course import datasets, exercises

plt.style.use("ksvd_ref.data.ksvd")
rng = np.random.default_rng(0)
# %% [markdown]
# ## 1. Two arguments, two spaces
# The usual kernel compares two points of one kind. Here the rows belong to points $x_i$ and the
# columns to points $z_j$, each with its own feature map into a common space (K.5):
# $$ K_{ij} = \kappa(x_i, z_j) = \langle \phi(x_i), \psi(z_j) \rangle. $$
# In matrices $K = \Phi\Psi^\top$: the rows of $\Phi$ are $\phi(x_i)$, those of $\Psi$ $\psi(z_j)$.
# The maps reconcile spaces of different dimension. With the points as rows of $X$ and $Z$,
# $\phi(x) = W_q^\top x$, the *query* of $x$, and $\psi(z) = W_k^\top z$, the *key* of $z$, give
# $K = X W_q W_k^\top Z^\top$, of rank at most the common dimension.
#
# In self-attention $x$ and $z$ are the same tokens, and $K$ is asymmetric all the same, because
# $W_q W_k^\top$ is. By hand, with the points $(1, 0)$ and $(0, 1)$: from $W_q = (1, 0)^\top$ and
# $W_k = (0, 1)^\top$ follow $\kappa(x_1, x_2) = 1$ and $\kappa(x_2, x_1) = 0$. Measure asymmetry by
# $\|K - K^\top\|_F / \|K + K^\top\|_F$, 0 for a symmetric $K$, on a real head: on its logits and
# on its attention matrix, the softmax of section 4.
# %%
X, Z = rng.standard_normal((6, 5)), rng.standard_normal((8, 3))     # two spaces, R^5 and R^3
W_q, W_k = rng.standard_normal((5, 2)), rng.standard_normal((3, 2))
K = kernels.linear(X @ W_q, Z @ W_k)
assert np.abs(K - X @ W_q @ W_k.T @ Z.T).max() < 1e-13              # rounding of sums of 5 terms
assert K.shape == (6, 8) and np.linalg.matrix_rank(K) == 2
by_hand = kernels.linear(np.eye(2) @ [[1.0], [0.0]], np.eye(2) @ [[0.0], [1.0]])
assert by_hand.tolist() == [[0.0, 1.0], [0.0, 0.0]]
heads = datasets.minilm_heads()
Q_head, K_head = heads.Q[2, 0], heads.K[2, 0]       # third layer, head 0: 64 tokens, d = 32
asymmetry = lambda K: np.linalg.norm(K - K.T) / np.linalg.norm(K + K.T)
scores, A = kernels.linear(Q_head, K_head), kernels.softmax(Q_head, K_head)
assert np.linalg.matrix_rank(scores) == 32 and np.linalg.matrix_rank(A) > 32
assert abs(asymmetry(scores) - 0.472) < 1e-3 and abs(asymmetry(A) - 0.929) < 1e-3
print(f"asymmetry of the logits: {asymmetry(scores):.3f}, of its softmax: {asymmetry(A):.3f}")
# %% [markdown]
# ## 2. Any function will do
# `kernels.gram` takes a Python function. Say $\kappa(x, z)$ is the effort to walk from $x$ to $z$,
# three times as much uphill. *Counter-example:* code for symmetric kernels evaluates one triangle
# and mirrors it. That halves the work and is wrong here.
# %%
effort = lambda x, z: 3.0 * (z[0] - x[0]) if z[0] > x[0] else x[0] - z[0]
heights = np.array([[0.0], [1.0], [3.0]])
K = kernels.gram(effort, heights, heights)
assert K.tolist() == [[0.0, 3.0, 9.0], [1.0, 0.0, 6.0], [3.0, 2.0, 0.0]]
mirrored = np.triu(K) + np.triu(K, 1).T
assert np.abs(mirrored - K).max() == 6.0            # 9 instead of 3 for the way down
# %% [markdown]
# The purest case is the kernel of the past, $\kappa(x, z) = 1$ for $z \le x$ on $[0, 1]$: the
# causal filter of attention. As an $N \times N$ matrix over $N$ it is a triangle, so all its
# eigenvalues are $1/N$ and say nothing. Its singular values are $2/((2l - 1)\pi)$ (K.47).
# %%
past = np.tril(np.ones((1000, 1000))) / 1000
sigma = dual.solve(past, 4).sigma
print("past:", sigma.round(4), "expected:", (2 / (np.array([1, 3, 5, 7]) * np.pi)).round(4))
assert np.all(np.diag(past) == 1e-3) and np.allclose(sigma * [1, 3, 5, 7], 2 / np.pi, rtol=5e-3)


# %% [markdown]
# Which matrices are kernel matrices? All: with $\phi(x_i)$ = row $i$ of $K$ and $\psi(z_j)$ = unit
# vector $j$, $K = K I$. Positive semi-definiteness (PSD) belongs to the case of one map, where
# $K = \Phi\Phi^\top$ gives $v^\top K v = \|\Phi^\top v\|^2 \ge 0$. *Counter-example:* symmetric is
# not PSD, $\begin{bmatrix} 1 & 2 \\ 2 & 1 \end{bmatrix}$ has the eigenvalues 3 and $-1$ (D12).
# For the singular pairs, $K h_r = \sigma h_e$ and $K^\top h_e = \sigma h_r$, this means (V18):
#
# - symmetric PSD, as one map gives it: $h_e = h_r$ and $\sigma$ = eigenvalue; the kernel SVD is
#   kernel PCA, uncentred (D35);
# - symmetric, indefinite: $\sigma = |\text{eigenvalue}|$, and $h_e = -h_r$ where it is negative
#   (unless an eigenvalue and its negative both occur: those mix);
# - asymmetric: two different vectors in at least one component, not in each: if rows *and*
#   columns of $K \ge 0$ sum to 1, both vectors of the first are constant (V20, section 4).
# %%
def cosines(K):
    H_e, sigma, H_r = dual.solve(K)
    return sigma, np.sum(H_e * H_r, axis=0)                         # h_e . h_r of each pair


sigma, inner = cosines(np.array([[1.0, 2.0], [2.0, 1.0]]))
np.testing.assert_allclose([sigma, inner], [[3, 1], [1, -1]], atol=1e-14)       # 3 and -1: D12
swap, (e, r) = np.eye(2)[::-1], np.eye(2)           # eigenvalues 1 and -1, sigma = 1 twice:
assert np.all(swap @ r == e) and np.all(swap.T @ e == r) and e @ r == 0             # they mix
psd = kernels.exponential(Q_head, Q_head)                           # queries against queries
sigma, inner = cosines(psd)
np.testing.assert_allclose(sigma, np.linalg.eigvalsh(psd)[::-1], atol=1e-12 * sigma[0])
assert np.abs(inner[:20] - 1).max() < 1e-6          # D35; later sigma are too close to separate
moves = datasets.canada_migration().A               # who moved from province i to province j
sigma, inner = cosines(moves + moves.T)             # diagonal 0, so the eigenvalues sum to 0
value = np.linalg.eigvalsh(moves + moves.T)
np.testing.assert_allclose(sigma, np.sort(np.abs(value))[::-1], rtol=1e-11)
assert np.abs(np.abs(inner) - 1).max() < 1e-10 and np.sum(inner < 0) == np.sum(value < 0) > 0
assert np.abs(cosines(moves)[1]).min() < 0.5
inner = cosines(np.array([[2, 1, 0], [0, 2, 1], [1, 0, 2]]) / 3.0)[1]       # asymmetric, V20
assert abs(inner[0] - 1) < 1e-14 and inner[1:].max() < 0.9
print("h_e . h_r, symmetrised migration:", np.round(inner).astype(int))
print("h_e . h_r, migration as it is:   ", np.round(cosines(moves)[1], 2))
# %% [markdown]
# ## 3. The rank is the dimension of the features
# $K = \Phi\Psi^\top$ has at most as many nonzero $\sigma$ as features, fewer if the points lie in a
# special way. In $d$ dimensions (D31):
#
# | kernel | formula $\kappa(x, z)$ | features |
# |---|---|---|
# | linear (S.7) | $\langle x, z\rangle$ | $d$ |
# | cosine (K.25) | $\langle x, z\rangle / (\lVert x\rVert \lVert z\rVert)$ | $d$ |
# | square: polynomial (S.8) | $\langle x, z\rangle^2$ | products of two coordinates, $d(d+1)/2$ |
# | with a constant | $(\langle x, z\rangle + 1)^2$ | also the linear ones and 1, $(d+1)(d+2)/2$ |
# | exponential (S.6) | $\exp(\langle x, z\rangle/\sqrt d)$ | infinitely many |
# | Gaussian, rbf (S.9) | $\exp(-\lVert x - z\rVert^2/\sqrt d)$ | infinitely many |
#
# The last two differ with one map already: rbf is largest where $x = z$, so each row has its
# maximum on the diagonal; for the exponential kernel a longer vector may count more (D19).
# %%
x, z, root = [[1.0, 1.0]], [[1.0, 2.0]], 2 ** 0.5               # <x, z> = 3, |x - z| = 1
for value, by_hand in ((kernels.linear(x, z), 3.0), (kernels.cosine(x, z), 3 / 10 ** 0.5),
                       (kernels.polynomial(x, z, coef0=0.0), 9.0), (kernels.polynomial(x, z), 16.0),
                       (kernels.exponential(x, z), np.exp(3 / root)),
                       (kernels.rbf(x, z, gamma=1 / root), np.exp(-1 / root))):
    np.testing.assert_allclose(value.item(), by_hand, rtol=1e-14)
X, Z = rng.standard_normal((60, 3)), rng.standard_normal((60, 3))
built = {"linear": kernels.linear(X, Z), "cosine": kernels.cosine(X, Z),
         "square": kernels.polynomial(X, Z, coef0=0.0), "square, +1": kernels.polynomial(X, Z),
         "exponential": kernels.exponential(X, Z), "rbf": kernels.rbf(X, Z, gamma=3 ** -0.5)}
spectra = {name: dual.solve(K).sigma for name, K in built.items()}
assert [len(sigma) for sigma in spectra.values()] == [3, 3, 6, 10, 60, 60]     # D31
assert np.all(kernels.rbf(X, X).argmax(axis=1) == np.arange(60))               # D19
assert kernels.exponential([[1.0], [2.0]], [[1.0], [2.0]]).argmax(axis=1).tolist() == [1, 1]
assert all(spectra[name][-1] < 1e-5 * spectra[name][0] for name in ("exponential", "rbf"))
# %% Spectra of six kernels in three dimensions: four end, after 3, 3, 6 and 10, two go on
figure, ax = plt.subplots(figsize=(6.4, 3.4))
for (name, sigma), mark in zip(spectra.items(), "os^vDP"):
    ax.loglog(np.arange(1, len(sigma) + 1), sigma / sigma[0], mark + "-", lw=0.8, label=name)
ax.set(xlabel="component l", ylabel=r"$\sigma_l / \sigma_1$", title="60 x 60 points, d = 3")
ax.legend()
plt.show()


# %% [markdown]
# *See:* four spectra end, at 3, 3, 6 and 10 components; with infinitely many features two go on to
# the last of 60, but steeply, below $10^{-5}\sigma_1$.
#
# ## 4. What row normalisation does
# Attention divides each row of $G_{ij} = \exp(\langle q_i, k_j\rangle/\sqrt d)$ by its sum
# $g_i = \sum_j G_{ij}$ (K.3). As a kernel, $G_{ij}/g_i = \langle \phi(x_i)/g_i, \psi(z_j)\rangle$:
# the row map is scaled, the column map is not, and singular values *and* vectors change (V19),
# unless all sums are equal: then the vectors stay.
# Sharing the sums, $G_{ij}/\sqrt{g_i g_j}$, is another kernel again. By hand: from
# $G = \begin{bmatrix} 3 & 1 \\ 1 & 1\end{bmatrix}$ and $g = (4, 2)$ come
# $\begin{bmatrix} 3/4 & 1/4 \\ 1/2 & 1/2\end{bmatrix}$, asymmetric though $G$ is not, and
# $\begin{bmatrix} 3/4 & 1/\sqrt 8 \\ 1/\sqrt 8 & 1/2\end{bmatrix}$. The two have the same
# eigenvalues, so for a symmetric $G > 0$ those of $G_{ij}/g_i$ stay real; read it as the
# probability of a step from $i$ to $j$, and $g$, scaled to sum 1, is a law that the step keeps
# (D14): $(\frac23, \frac13)$ here.
#
# A square matrix $K \ge 0$ whose rows sum to 1 maps the constant vector to itself, so
# $\sigma_1 \ge 1$; equality holds exactly if its columns sum to 1 as well (V20).
# %%
def by_rows(G):
    return G / np.sum(G, axis=1, keepdims=True)


def shared(G):
    root = np.sqrt(np.sum(G, axis=1))
    return G / root[:, None] / root[None, :]


G = np.array([[3.0, 1.0], [1.0, 1.0]])
np.testing.assert_allclose(by_rows(G), [[0.75, 0.25], [0.5, 0.5]], rtol=1e-14)
np.testing.assert_allclose(shared(G), [[0.75, 8 ** -0.5], [8 ** -0.5, 0.5]], rtol=1e-14)
np.testing.assert_allclose(np.array([2, 1]) / 3 @ by_rows(G), np.array([2, 1]) / 3)     # D14
np.testing.assert_allclose(np.sort(np.linalg.eigvals(by_rows(G))), np.linalg.eigvalsh(shared(G)))
even = np.array([[2.0, 1.0], [0.0, 3.0]])           # equal sums: V19 leaves the vectors
assert np.abs(np.abs(dual.solve(by_rows(even)).H_e) - np.abs(dual.solve(even).H_e)).max() < 1e-14
for K, level in (([[1, 0], [1, 0]], 2 ** 0.5), ([[0.9, 0.1], [0.1, 0.9]], 1.0)):   # by columns too
    assert abs(dual.solve(K).sigma[0] - level) < 1e-14
G = kernels.exponential(Q_head, K_head)
assert np.abs(by_rows(G) - A).max() < 1e-14         # kernels.softmax, without its guard
solved = {"exponential": dual.solve(G), "softmax": dual.solve(A), "shared": dual.solve(shared(G))}
top, second = np.array([pair.sigma[:2] for pair in solved.values()]).T
overlap = abs(solved["exponential"].H_e[:, 0] @ solved["softmax"].H_e[:, 0])
np.testing.assert_allclose([*top[1:], overlap], [3.582, 6.256, 0.342], atol=1e-3)
np.testing.assert_allclose(second / top, [0.79, 0.26, 0.29], atol=5e-3)
print(f"sigma_1 of softmax {top[1]:.3f}, overlap of h_e with that of exponential {overlap:.3f}")
# %% Singular values of a head over the first: with either normalisation the second is low
figure, ax = plt.subplots(figsize=(6.4, 3))
for (name, pair), mark in zip(solved.items(), "os^"):
    ax.plot(np.arange(1, 11), pair.sigma[:10] / pair.sigma[0], mark + "-", label=name)
ax.set(xlabel="component l", ylabel=r"$\sigma_l / \sigma_1$", ylim=(0, None), title="one head")
ax.legend()
plt.show()
# %% [markdown]
# *See:* row normalisation changes the decay, not only the scale: the second singular value falls
# from 79 % of the first to 26 %, or 29 % if the sums are shared.
#
# ## 5. What centring does
# The squares of the scores $K h_r$, one for each of $N$ rows, sum to a second moment; it is $N$
# times a variance only after centring. There are two means to take away, of $\phi$ over the rows
# and of $\psi$ over the $M$ columns, and $K$ is enough (V23):
# $$ P_N K P_M, \qquad P_n = I - \tfrac1n \mathbf 1\mathbf 1^\top, \qquad
#    \mathbf 1 = (1, \ldots, 1)^\top. $$
# Every entry loses its row mean and its column mean and regains the mean of all. A new row takes
# the column means of the *training* matrix, not those of the new rows.
#
# By hand: $\operatorname{diag}(2, 1)$ becomes
# $\tfrac34 \begin{bmatrix} 1 & -1 \\ -1 & 1\end{bmatrix}$ with the one singular value 1.5, neither
# 2 nor 1: centring is not the removal of the first component.
# %%
np.testing.assert_allclose(kernels.center([[2, 0], [0, 1]]), [[0.75, -0.75], [-0.75, 0.75]])
assert abs(dual.solve(kernels.center([[2, 0], [0, 1]])).sigma[0] - 1.5) < 1e-14
words = datasets.wikipedia_words().A                # how often 30 articles use each of 11 words
P = lambda n: np.eye(n) - np.ones((n, n)) / n
centred = kernels.center(words)
assert np.abs(centred - P(30) @ words @ P(11)).max() < 1e-13
Phi, Psi = words, np.eye(11)                        # one pair of maps with words = Phi Psi^T
new = rng.poisson(1.0, (4, 11)).astype(float)       # four new articles
truth = (new - Phi.mean(axis=0)) @ (Psi - Psi.mean(axis=0)).T
np.testing.assert_allclose(kernels.center_rows(new, words), truth, atol=1e-14)
assert np.abs(kernels.center(new) - truth).max() > 0.3              # by their own means: wrong
before, after = dual.solve(words), dual.solve(centred)
share = [30 * np.var(E, axis=0) / np.sum(E ** 2, axis=0)
         for E in (words @ before.H_r, centred @ after.H_r)]
print(f"variance in the first uncentred score: {share[0][0]:.0%} of its second moment")
assert abs(share[0][0] - 0.65) < 5e-3 and np.abs(share[1] - 1).max() < 1e-12
assert len(after.sigma) == 10 and np.all(after.sigma <= before.sigma[:10])
np.testing.assert_allclose([before.sigma[1], after.sigma[0]], [10.39, 15.94], atol=5e-3)
# %% Singular values of articles by words: centring lowers them but does not shift them by one
figure, ax = plt.subplots(figsize=(6.4, 3))
for sigma, mark, name in ((before.sigma, "o-", "as it is"), (after.sigma, "s-", "centred")):
    ax.plot(np.arange(1, len(sigma) + 1), sigma, mark, label=name)
ax.set(xlabel="component l", ylabel=r"$\sigma_l$", ylim=(0, None), title="articles by words")
ax.legend()
plt.show()


# %% [markdown]
# *See:* centring lowers the spectrum without shifting it by one: 15.94 is left of the first
# singular value, the second was 10.39.
#
# ## Exercises
# Each check says what is wrong. `ksvd-ref check FILE` marks a whole file.
# %% [markdown]
# **E6.1** (about 3 lines) Predict, then run: the rank of a kernel matrix of N and M random points
# in d dimensions, for `"linear"`, `"cosine"`, `"square"`, `"square, +1"` and `"rbf"` as above, in
# exact arithmetic.
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
# **E6.3** (about 4 lines, a proof by numbers) Scale rows and columns of a positive square matrix
# until both sum to 1, and see $\sigma_1$ become 1.
# %%
def doubly_stochastic(G, rounds):
    raise NotImplementedError("Exercise 6.3: divide by row sums and column sums in turn")


# %%
exercises.check("6.3", doubly_stochastic)
# %% [markdown]
# Three questions without code.
#
# 1. Is every PSD matrix the kernel matrix of a symmetric kernel, and is every symmetric kernel PSD?
# 2. Why does $\sigma_1 = 1$ fix the column sums if the rows of $K \ge 0$ sum to 1?
# 3. Which of $H_e$, $H_r$ has columns of mean 0 if only the row side is centred, $P_N K$?
#
# *Where this is used.* Lesson 03 moves to the feature side, 07 writes attention as a smoother.
#
# *Further reading.* Chen, Tao, Tonin, Suykens, Primal-Attention, NeurIPS 2023 (arXiv 2305.19798).
# Tao et al., arXiv 2306.07040, on nonlinear SVD with asymmetric kernels.
