# %% [markdown]
# # From dual to primal: weights in place of kernel evaluations
# **You will do.** Turn singular vectors into weights, score new rows and new columns both ways,
# solve for the weights without forming the kernel matrix, and give a primal to a matrix that came
# without features.
#
# **You will learn.** Why the columns build the weights that score the rows; what the primal costs
# and when its fast route fails; which features any matrix has, and at which price.
#
# **You need.** Lesson 02: $KH_r = H_e\Sigma$ and $K^\top H_e = H_r\Sigma$ came from six conditions;
# two of them are $W_e = \Psi^\top H_r$ and $W_r = \Phi^\top H_e$. 55 minutes, and 20 more for the
# exercises.
# %%
import matplotlib.pyplot as plt
import numpy as np

from ksvd_ref import dual, features, kernels, primal
from ksvd_ref.course import datasets, exercises, plots

plt.style.use("ksvd_ref.data.ksvd")
rng = np.random.default_rng(4)
# %% [markdown]
# ## 1. The sides cross
# Which weights $W_e$, $W_r$ $(p, s)$ give the features the scores of the dual? With
# $K = \Phi\Psi^\top$, row features $\Phi$ $(N, p)$ and column features $\Psi$ $(M, p)$:
#
# $$W_e = \Psi^\top H_r, \qquad E = \Phi W_e = \Phi\Psi^\top H_r = K H_r = H_e\Sigma,
# \tag{K.12, K.14}$$
#
# and $R = \Psi W_r = K^\top H_e = H_r\Sigma$ on the other side. The weights that score a *row* are
# made by the *columns*.
#
# **By hand.** $K$ with the rows $(3, 0)$ and $(4, 5)$, $\Phi = K$, $\Psi = I$: the first weights
# are $w_e = h_r = (1, 1)/\sqrt2$ and $w_r = K^\top h_e = (15, 15)/\sqrt{10}$. A new row $(1, 2)$
# has the score $(1, 2)\,w_e = 3/\sqrt2$. The dual finds the same from kernel values: with
# $\Psi = I$ they are 1 and 2, combined by $h_r$.
# %%
A = np.array([[3.0, 0.0], [4.0, 5.0]])
by_hand, new = primal.solve(A, np.eye(2)), np.array([[1.0, 2.0]])
np.testing.assert_allclose(by_hand.W_e[:, 0], np.array([1, 1]) / 2 ** 0.5, rtol=1e-14)
np.testing.assert_allclose(by_hand.W_r[:, 0], np.array([15, 15]) / 10 ** 0.5, rtol=1e-14)
np.testing.assert_allclose(primal.e_scores(new, by_hand)[0, 0], 3 / 2 ** 0.5, rtol=1e-14)
np.testing.assert_allclose(dual.e_scores(new, dual.solve(A))[0, 0], 3 / 2 ** 0.5, rtol=1e-14)
# %% [markdown]
# An attention head of a pretrained model, MiniLM, gives each of $N = M = 64$ tokens a query $q$ and
# a key $k$ of $d = 32$ numbers, and compares them by $K_{ij} = \langle q_i, k_j\rangle/\sqrt d$. So
# $\varphi = q/d^{1/4}$, $\psi = k/d^{1/4}$, and $p = d$.
#
# **Counter-example.** No shape warns of the exchange: uncrossed weights fit as well, and are wrong.
# %%
heads = datasets.minilm_heads()
Phi, Psi = heads.Q[5, 0] / 32 ** 0.25, heads.K[5, 0] / 32 ** 0.25       # (64, 32), (64, 32)
K = Phi @ Psi.T                                                         # (64, 64)
H_e, sigma, H_r = dual.solve(K)                                         # 32 components
W_e, W_r = Psi.T @ H_r, Phi.T @ H_e                                     # (32, 32), (32, 32)
E, R = Phi @ W_e, Psi @ W_r                                             # (64, 32), (64, 32)
for one, other in ((E, K @ H_r), (E, H_e * sigma), (R, K.T @ H_e), (R, H_r * sigma)):
    assert np.abs(one - other).max() < 1e-12 * sigma[0]                 # sums of 64 products
wrong = np.abs(Phi @ (Phi.T @ H_e) - E).max() / sigma[0]
print(f"not crossed: scores off by {wrong:.1f} sigma_1")
assert wrong > 0.1
# %% [markdown]
# ## 2. New rows and new columns
# What does a point cost that was not there? The dual evaluates the kernel $\kappa$ against **all**
# training points of the other side. The primal needs one product with the point's $p$ features:
#
# $$e(x) = \sum_j h_{rj}\,\kappa(x, z_j) = W_e^\top\varphi(x), \qquad
#   r(z) = \sum_i h_{ei}\,\kappa(x_i, z) = W_r^\top\psi(z). \tag{K.20, V26}$$
#
# Take the counts of 11 words in 30 Wikipedia articles, three of them held out. An article's
# features are its counts, a word's a unit vector.
# %%
A, articles, _, _ = datasets.wikipedia_words()
held = np.isin(articles, ["Charles Darwin", "Gottfried Wilhelm Leibniz", "Pablo Picasso"])
by_kernel, weights = dual.solve(A[~held]), primal.solve(A[~held], np.eye(11))
E_old, E_new = primal.e_scores(A[~held], weights), primal.e_scores(A[held], weights)
np.testing.assert_allclose(E_new, dual.e_scores(A[held], by_kernel), atol=1e-9)
column = A[~held] @ np.ones((11, 1))                                    # all words as one column
np.testing.assert_allclose(primal.r_scores(np.ones((1, 11)), weights),
                           dual.r_scores(column, by_kernel), atol=1e-9)
# %% 27 articles as dots on two axes, and among them three new articles as stars
figure, ax = plt.subplots(figsize=(6.2, 3.6))
plots.embedding(ax, E_old, labels=articles[~held], color=plots.ROWS, most=3)
ax.scatter(*E_new[:, :2].T, marker="*", s=110, color=plots.COLUMNS)
for name, point in zip(articles[held], E_new):
    ax.annotate("   " + name, point[:2], color=plots.COLUMNS, fontsize=9, va="center")
ax.set_title("27 articles (dots) made the axes, 3 were scored later (stars)")
plt.show()
# %% [markdown]
# *See:* the stars lie among the articles that made the axes.
#
# ## 3. Eliminate $H$ instead of $W$
# Lesson 02 removed the weights. The same conditions, $H_e = \Phi W_e\Lambda$ and
# $H_r = \Psi W_r\Lambda$ with $\Lambda = \Sigma^{-1}$, put into $W_r = \Phi^\top H_e$ and its
# mirror, remove $H$, and with it $N$ and $M$: the coupled covariances.
#
# $$\Phi^\top\Phi\,W_e\Lambda = W_r, \qquad \Psi^\top\Psi\,W_r\Lambda = W_e. \tag{K.17, K.35}$$
# %%
one = np.abs(Phi.T @ Phi @ W_e / sigma - W_r).max() / np.abs(W_r).max()
other = np.abs(Psi.T @ Psi @ W_r / sigma - W_e).max() / np.abs(W_e).max()
print(f"coupled covariances, largest relative difference: {max(one, other):.0e}")
assert max(one, other) < 1e-11                                          # eps |Phi|^2 / sigma_32
# %% [markdown]
# ## 4. The route that is safe
# How are the weights found without $K$? With QR decompositions $\Phi = Q_\varphi T_\varphi$,
# $\Psi = Q_\psi T_\psi$, and one SVD of $p \times p$ numbers:
#
# $$T_\varphi T_\psi^\top = U\Sigma V^\top, \quad W_e = T_\psi^\top V, \quad
# W_r = T_\varphi^\top U. \tag{K.39}$$
#
# Indeed $K = Q_\varphi(U\Sigma V^\top)Q_\psi^\top$, so $H_r = Q_\psi V$, and
# $\Psi^\top H_r = T_\psi^\top V$. Neither $K$ nor any $Q$ is needed, and nothing is divided by
# $\sigma$. $K^\top = \Psi\Phi^\top$ only exchanges the sides (V17).
# %%
T_phi, T_psi = (np.linalg.qr(X, mode="r") for X in (Phi, Psi))          # (32, 32), (32, 32)
U, S, Vt = np.linalg.svd(T_phi @ T_psi.T)
by_qr = T_psi.T @ Vt.T, S, T_phi.T @ U
for got in (by_qr, primal.solve(Phi, Psi), primal.solve(Psi, Phi)[::-1]):           # the last: K^T
    flip = np.sign(np.sum(W_e * got[0], axis=0))                        # one joint sign per pair
    off = [got[0] * flip - W_e, got[1] - sigma, got[2] * flip - W_r]
    assert max(np.abs(x).max() for x in off) < 1e-10 * sigma[0]
assert 4e4 < 1e12 / (2e4 * 32 ** 2 + 32 ** 3) < 5e4                     # the operations below
# %% [markdown]
# The dual holds $NM$ numbers and takes of the order of $NM\min(N, M)$ operations; the primal holds
# $(N + M)p$ numbers and takes of the order of $(N + M)p^2 + p^3$. At $N = M = 10\,000$ and $p = 32$
# that is a few ten thousand times fewer operations.
#
# ## 5. The route that is fast, and when it fails
# Products are cheaper than QR, and the coupled covariances need only $\Phi^\top\Phi$ and
# $\Psi^\top\Psi$: $(\Psi^\top\Psi)(\Phi^\top\Phi)w = \sigma^2 w$. But this squares. Let `cond` be
# $\|\Phi\|_2\|\Psi\|_2/\sigma_s$, with $\|\cdot\|_2$ the largest singular value and $\sigma_s$ the
# smallest one wanted: the error of $\sigma$ grows with its square, that of QR with itself. It can
# be large although $K$ is harmless: $\Phi$ small in a direction where $\Psi$ is large.
# %%
T = np.linalg.qr(rng.standard_normal((2, 2)))[0]
left, right = (np.linalg.qr(rng.standard_normal((n, 2)))[0] for n in (30, 20))
cond, off = 2 * np.logspace(0, 8, 17), []
for t in 2 / cond:                                                      # sigma = 2t and t
    rows, columns = left * [2.0, t] @ T, right * [t, 1.0] @ T
    squares = np.sort(np.linalg.eigvals(columns.T @ columns @ rows.T @ rows).real)[::-1]
    T_rows, T_columns = (np.linalg.qr(X, mode="r") for X in (rows, columns))
    by_qr = np.linalg.svd(T_rows @ T_columns.T, compute_uv=False)
    off.append([max(1e-17, *abs(S / [2 * t, t] - 1)) for S in (np.abs(squares) ** 0.5, by_qr)])
slopes = np.polyfit(np.log(cond[6:]), np.log(off[6:]), 1)[0]
assert np.abs(slopes - [2, 1]).max() < 0.5 and off[-1][0] > 0.01 > 1e-7 > np.max(off, axis=0)[1]
# %% Error against the condition on log axes: the Gram matrix climbs twice as steeply as QR
figure, ax = plt.subplots(figsize=(5.8, 3))
ax.loglog(cond, off, "s-", label=["Gram matrices", "QR"])
ax.loglog(cond, 2e-16 * cond[:, None] ** [1, 2], color="0.6", lw=1)
ax.set(xlabel="cond", ylabel=r"relative error of $\sigma$", title="The Gram matrix squares")
ax.legend()
plt.show()
# %% [markdown]
# *See:* ten times the condition costs QR one digit and the Gram matrices two; grey are the slopes 1
# and 2. `primal.solve` takes the fast route only where it is safe (lesson 14).
#
# ## 6. A primal for any matrix
# What if a matrix $A$ comes without features? Then its rows lie in $\mathbb R^M$ and its columns in
# $\mathbb R^N$. A *compatibility matrix* $C$ $(M, N)$ carries one space to the other: with
# $\Phi = AC$ and $\Psi = A^\top$ the kernel is $ACA$. **It is $A$ only for some $C$**, the
# generalised inverses of $A$ (K.33, V25). The pseudo-inverse is one, and costs an SVD: as much as
# the answer itself. ($\Psi = I$ costs nothing.) A tall $A$, as below, takes $\Phi = A$,
# $\Psi = (CA)^\top$, so that $p = \min(N, M)$.
#
# **By hand.** $A = 2$ needs $C = \tfrac12$; with $C = 1$ one decomposes 4.
# %%
A_c = kernels.center(A)                                                 # 30 x 11, rank 10
pinv, Z = np.linalg.pinv(A_c), rng.standard_normal((11, 30))
another = pinv + Z - pinv @ A_c @ Z @ A_c @ pinv                        # A C A = A as well
for C, same in ((None, True), (another, True), (Z, False)):
    rows, columns = features.compatible(A_c, C)
    gap = np.abs(rows @ columns.T - A_c).max()
    print(f"|W_e| {np.linalg.norm(primal.solve(rows, columns, 10).W_e):.2f}, K off by {gap:.0e}")
    assert (gap < 1e-11) == same and rows.shape == A_c.shape
assert [np.prod(features.compatible([[2.0]], [[C]])) for C in (0.5, 1.0)] == [2.0, 4.0]


# %% [markdown]
# The same kernel, other weights; only the last is another kernel. Weights live in the coordinates
# of the features: for every invertible $T$, $(\Phi T, \Psi T^{-\top})$ has the same $K$, $E$ and
# $R$ (E3.2). The exponential kernel has no finite features for *all* points (lesson 06).
#
# ## In short
# The weights of one side are made from the other side. They score new points by one product, and
# are found from two triangles without the kernel matrix. Any matrix has features; their number
# decides what they save.
#
# $$W_e = \Psi^\top H_r, \quad W_r = \Phi^\top H_e, \qquad e(x) = W_e^\top\varphi(x).$$
#
# The picture to remember: new articles among the old ones, each by one product.
#
# ## Exercises
# Fill in the functions; each check says what is wrong. `ksvd-ref check FILE` marks a whole file.
# %% [markdown]
# **E3.1** (about 2 lines) Score one new row from its feature vector, the dual $H_r$ and $\Psi$.
# %%
def score_new_row(phi_new, H_r, Psi):
    raise NotImplementedError("Exercise 3.1: two products, no kernel matrix of all rows")


# %%
exercises.check("3.1", score_new_row)


# %% [markdown]
# **E3.2** (1 line) Predict, then run: the weights of $(\Phi T, \Psi T^{-\top})$.
# %%
def turned_weights(W_e, W_r, T):
    raise NotImplementedError("Exercise 3.2: W_e and W_r in the new coordinates")


# %%
exercises.check("3.2", turned_weights)


# %% [markdown]
# **E3.3** (about 2 lines, a proof by numbers) From any matrix $Z$ of the shape of $A^\top$, make a
# $C$ with $ACA = A$ that depends on $Z$, for any $A$ that has no inverse.
# %%
def generalised_inverse(A, Z):
    raise NotImplementedError("Exercise 3.3: the pseudo-inverse and something that A C A ignores")


# %%
exercises.check("3.3", generalised_inverse)
# %% [markdown]
# Three questions without code.
#
# 1. $W_e^\top W_r = \Sigma$, but $W_e^\top W_e$ is not diagonal. Which $T$ makes it so?
# 2. If $\Psi$ has full column rank, any $W_e$ gives scores $\Phi W_e = K H$ for some $H$. What then
#    do the conditions K.12 to K.14 add?
# 3. $\partial\sigma_l/\partial K = h_eh_r^\top$ (lesson 05). What is
#    $\partial\sigma_l/\partial\Phi$, without $K$ and without $H_r$?
#
# *Where this is used.* Lesson 14 makes it large; lessons 10 and 11: attention heads.
#
# *Further reading.* Chen, Tao, Tonin, Suykens, Primal-Attention, NeurIPS 2023 (arXiv 2305.19798).
# Suykens, SVD revisited, ACHA 40(3), 2016, 600–609. Tao et al., Learning in Feature Spaces via
# Coupled Covariances, ICML 2024 (arXiv 2406.08748). Choromanski et al., Rethinking Attention with
# Performers, ICLR 2021. Golub, Van Loan, *Matrix Computations*.
