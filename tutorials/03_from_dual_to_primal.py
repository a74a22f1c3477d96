# %% [markdown]
# # From dual to primal: weights in place of kernel evaluations
# **You will do.** Turn the singular vectors of a real attention head into weights, score new
# points both ways, solve for the weights without forming the kernel matrix, and give a primal to
# a matrix that came without features.
#
# **You will learn.** Why the columns build the weights that score the rows; what the primal costs
# and when its fast route fails; which parts of a primal solution are arbitrary.
#
# **You need.** Lesson 02; 70 minutes, and 20 more for the exercises.
# %%

import matplotlib.pyplot as plt
import numpy as np

from ksvd_ref import dual, features, kernels, primal
from ksvd_ref.course import datasets, exercises, plots

plt.style.use("ksvd_ref.data.ksvd")
rng = np.random.default_rng(4)
# %% [markdown]
# ## 1. The sides cross
# An attention head of a pretrained model, MiniLM, gives each of $N = M = 64$ tokens a query $q$
# and a key $k$ of $d = 32$ numbers, and compares them by
# $K_{ij} = \langle q_i, k_j\rangle/\sqrt d$. This is a kernel matrix $K = \Phi\Psi^\top$: the rows
# of $\Phi$ are the features $\varphi = q/d^{1/4}$, those of $\Psi$ are $\psi = k/d^{1/4}$, and
# $p = d$. Its singular vectors, the columns of $H_e$ and $H_r$, with the singular values on the
# diagonal of $\Sigma$, solve the dual problem $KH_r = H_e\Sigma$, $K^\top H_e = H_r\Sigma$ of
# lesson 02. Two of the conditions that led there (K.12) make weights of them:
# $$W_e = \Psi^\top H_r, \qquad W_r = \Phi^\top H_e.$$
# The weights that score a *row* are made by the *columns*. Only then are the scores
# $E = \Phi W_e$ and $R = \Psi W_r$ (K.14) those of the dual (K.21):
# $$E = \Phi W_e = K H_r = H_e\Sigma, \qquad R = \Psi W_r = K^\top H_e = H_r\Sigma.$$
# %%
heads = datasets.minilm_heads()
Phi, Psi = heads.Q[5, 0] / 32 ** 0.25, heads.K[5, 0] / 32 ** 0.25       # (64, 32), (64, 32)
K = Phi @ Psi.T                                                         # (64, 64)
H_e, sigma, H_r = dual.solve(K)                                         # 32 components
W_e, W_r = Psi.T @ H_r, Phi.T @ H_e                                     # (32, 32), (32, 32)
E, R = Phi @ W_e, Psi @ W_r                                             # (64, 32), (64, 32)
gap = max(np.abs(one - other).max() for one, other in (
    (E, K @ H_r), (E, H_e * sigma), (R, K.T @ H_e), (R, H_r * sigma)))
print(f"rank {len(sigma)}, sigma_1 {sigma[0]:.1f}; scores, primal against dual: {gap:.0e}")
assert len(sigma) == 32 and gap < 1e-12 * sigma[0]                      # sums of 64 products
wrong = np.abs(Phi @ (Phi.T @ H_e) - E).max() / sigma[0]                # not crossed: no shape
print(f"not crossed: scores off by {wrong:.1f} sigma_1")                # warns of the exchange
assert wrong > 0.1
# %% [markdown]
# ## 2. New points
# To score a point that was not there (K.20, V26), the dual evaluates the kernel against **all**
# training points of the other side and combines the values. The primal needs one product with the
# point's $p$ features:
# $$e(x) = \sum_j h_{rj}\,\kappa(x, z_j) = W_e^\top\varphi(x), \qquad
#   r(z) = \sum_i h_{ei}\,\kappa(x_i, z) = W_r^\top\psi(z).$$
# Take the counts of 11 words in 30 Wikipedia articles, three of them held out. The features of an
# article are its counts, those of a word a unit vector.
# %%
A, articles, words, _ = datasets.wikipedia_words()
held = np.isin(articles, ["Charles Darwin", "Gottfried Wilhelm Leibniz", "Pablo Picasso"])
by_kernel, weights = dual.solve(A[~held]), primal.solve(A[~held], np.eye(11))
E_old, E_new = primal.e_scores(A[~held], weights), primal.e_scores(A[held], weights)
np.testing.assert_allclose(E_new, dual.e_scores(A[held], by_kernel), atol=1e-9)
np.testing.assert_allclose(primal.r_scores(np.ones((1, 11)), weights),  # all words as one column
                           dual.r_scores(A[~held] @ np.ones((11, 1)), by_kernel), atol=1e-9)
# %% 27 articles as dots on two axes, and among them three new articles as stars
figure, ax = plt.subplots(figsize=(6.2, 4))
plots.embedding(ax, E_old, labels=articles[~held], color=plots.ROWS, most=3)
ax.scatter(*E_new[:, :2].T, marker="*", s=110, color=plots.COLUMNS)
for name, point in zip(articles[held], E_new):
    ax.annotate("   " + name, point[:2], color=plots.COLUMNS, fontsize=9, va="center")
ax.set_title("27 articles (dots) made the axes, 3 were scored later (stars)")
plt.show()
# %% [markdown]
# The stars are placed by one product each, among the articles that made the axes.
#
# ## 3. Eliminate $H$ instead of $W$
# Lesson 02 removed the weights. Its other conditions (K.13, K.14) say $H_e = \Phi W_e\Lambda$ and
# $H_r = \Psi W_r\Lambda$ with $\Lambda = \Sigma^{-1}$. Put into K.12 they remove $H$, and with it
# $N$ and $M$ (K.17):
# $$\Phi^\top\Phi\,W_e\Lambda = W_r, \qquad \Psi^\top\Psi\,W_r\Lambda = W_e.$$
# With the covariances $\Sigma_\varphi = \Phi^\top\Phi/N$, $\Sigma_\psi = \Psi^\top\Psi/M$ and the
# columns of the weights as $w_\varphi = w_r/\sqrt N$, $w_\psi = w_e/\sqrt M$ this is the coupled
# covariances eigenproblem of Tao et al. (K.35), whose $\lambda$ is not $1/\sigma$:
# $$\Sigma_\varphi w_\psi = \lambda w_\varphi, \quad \Sigma_\psi w_\varphi = \lambda w_\psi, \quad
#   \lambda = \sigma/\sqrt{NM}.$$
# %%
gap = max(np.abs(Phi.T @ Phi @ W_e / sigma - W_r).max() / np.abs(W_r).max(),
          np.abs(Psi.T @ Psi @ W_r / sigma - W_e).max() / np.abs(W_e).max())
print(f"K.17, largest relative difference: {gap:.0e}")
assert gap < 1e-11                                                      # eps |Phi|^2 / sigma_32
w_phi, w_psi = weights.W_r / 27 ** 0.5, weights.W_e / 11 ** 0.5         # N = 27 articles, M = 11
lam = weights.sigma / (27 * 11) ** 0.5
assert np.abs(A[~held].T @ A[~held] / 27 @ w_psi - lam * w_phi).max() < 1e-12
assert np.abs(w_phi / 11 - lam * w_psi).max() < 1e-12                   # Psi^T Psi = I
# %% [markdown]
# ## 4. The route that is safe
# With the QR decompositions $\Phi = Q_\varphi R_\varphi$, $\Psi = Q_\psi R_\psi$ (K.39)
# $$K = Q_\varphi (R_\varphi R_\psi^\top) Q_\psi^\top, \qquad
#   R_\varphi R_\psi^\top = U\Sigma V^\top,$$
# where the triangles $R$ are $(p, p)$ if $N, M \ge p$. So $H_r = Q_\psi V$, and
# $W_e = \Psi^\top H_r = R_\psi^\top Q_\psi^\top Q_\psi V = R_\psi^\top V$. Neither $K$ nor any $Q$
# is needed, and nothing is divided by $\sigma$. The mirror image is $W_r = R_\varphi^\top U$, and
# $K^\top = \Psi\Phi^\top$ only exchanges the sides (V17).
# %%
R_phi, R_psi = (np.linalg.qr(A, mode="r") for A in (Phi, Psi))          # (32, 32), (32, 32)
U, S, Vt = np.linalg.svd(R_phi @ R_psi.T)
by_qr = R_psi.T @ Vt.T, S, R_phi.T @ U
for got in (by_qr, primal.solve(Phi, Psi), primal.solve(Psi, Phi)[::-1]):           # the last: K^T
    flip = np.sign(np.sum(W_e * got[0], axis=0))                        # one joint sign per pair
    gap = max(np.abs(got[0] * flip - W_e).max(), np.abs(got[1] - sigma).max(),
              np.abs(got[2] * flip - W_r).max()) / sigma[0]
    print(f"weights and sigma without K against those from K: {gap:.0e}")
    assert gap < 1e-10
assert 1e12 / (2e4 * 32 ** 2 + 32 ** 3) > 40_000                        # N = M = 10 000, p = 32
assert 156 < 1e8 / (2e4 * 32) < 157
# %% [markdown]
# The dual holds $NM$ numbers and takes $O(NM\min(N, M))$ operations, the primal $(N + M)p$ numbers
# and $O((N + M)p^2 + p^3)$ operations: at $N = M = 10\,000$, $p = 32$ of the order of forty
# thousand times fewer operations (the constants are left out), on 156 times fewer numbers.
#
# ## 5. The route that is fast, and when it fails
# Products are cheaper than QR, and K.17 needs only the Gram matrices $\Phi^\top\Phi$ and
# $\Psi^\top\Psi$ $(p, p)$: $(\Psi^\top\Psi)(\Phi^\top\Phi)w = \sigma^2 w$. But it squares. Let
# $\kappa = \|\Phi\|\|\Psi\|/\sigma_s$, in spectral norms, with $\sigma_s$ the smallest singular
# value wanted, and $\varepsilon$ the machine precision: the error of $\sigma$ grows as
# $\varepsilon\kappa^2$, that of QR as $\varepsilon\kappa$.
#
# **Opposed features** make $\kappa$ large although $K$ is harmless: $\Phi$ is small where $\Psi$ is
# large, and the singular values $2t$ and $t$ of $K$ are as close at $t = 10^{-8}$ as at $t = 1$.
# %%
T = np.linalg.qr(rng.standard_normal((2, 2)))[0]
left, right = (np.linalg.qr(rng.standard_normal((n, 2)))[0] for n in (30, 20))
t, kappa, off = np.logspace(0, -8, 17), [], {"Gram": [], "QR": []}
for small in t:
    rows, columns = left * [2.0, small] @ T, right * [small, 1.0] @ T
    kappa.append(np.linalg.norm(rows, 2) * np.linalg.norm(columns, 2) / small)
    squares = np.sort(np.linalg.eigvals(columns.T @ columns @ rows.T @ rows).real)[::-1]
    R_phi, R_psi = (np.linalg.qr(A, mode="r") for A in (rows, columns))
    by_qr = np.linalg.svd(R_phi @ R_psi.T, compute_uv=False)
    for name, found in (("Gram", np.sqrt(np.abs(squares))), ("QR", by_qr)):
        off[name].append(max(1e-17, *abs(found / [2 * small, small] - 1)))
kappa = np.array(kappa)
assert np.abs(kappa * t / 2 - 1).max() < 1e-12
lines = {name: np.polyfit(np.log(kappa[6:]), np.log(off[name][6:]), 1)[0] for name in off}
print(f"slopes: Gram {lines['Gram']:.1f}, QR {lines['QR']:.1f}; Gram ends at {off['Gram'][-1]:.0e}")
assert off["Gram"][-1] > 0.01 and max(off["QR"]) < 1e-7
assert abs(lines["Gram"] - 2) < 0.5 and abs(lines["QR"] - 1) < 0.5
# %% Error against kappa on log axes: the Gram matrix climbs twice as steeply as QR
figure, ax = plt.subplots(figsize=(5.8, 3.4))
ax.loglog(kappa, off["Gram"], "^-", label=r"Gram; grey: $\varepsilon\kappa^2$")
ax.loglog(kappa, off["QR"], "s-", label=r"QR; grey: $\varepsilon\kappa$")
ax.loglog(kappa, 2e-16 * kappa[:, None] ** [1, 2], color="0.6", lw=1)
ax.set(xlabel=r"$\kappa = \|\Phi\|\,\|\Psi\|/\sigma_s$", ylabel=r"relative error of $\sigma$",
       title="Opposed features: the Gram matrix loses twice as many digits")
ax.legend()
plt.show()
# %% [markdown]
# A factor of ten in $\kappa$ costs QR one digit and the Gram matrix two. `primal.solve` takes the
# fast route only where it is safe (lesson 14).
#
# ## 6. Other features
# For every invertible $T$, $(\Phi T, \Psi T^{-\top})$ has the same $K$, $H$, $E$ and $R$ (V24). The
# weights are others: they live in the coordinates of the features. One matrix on both sides
# changes the metric: Primal-Attention scores with $F^\top W_e$, where $F = f(X)$ $(n, p)$ is made
# of the data. Its features are $\Phi F^\top$, $\Psi F^\top$, its kernel is
# $\Phi(F^\top F)\Psi^\top$ (K.9), its weights have $n$ rows, its rank is still at most $p$, and
# the objective $J$ of lesson 02 is 0 at its solution as at any other (V28).
# %%
T = rng.standard_normal((32, 32)) + 6 * np.eye(32)
turned = primal.solve(Phi @ T, Psi @ np.linalg.inv(T).T)
assert np.abs(Phi @ T @ turned.W_e - E).max() < 1e-9 * sigma[0]         # E stays
assert np.abs(turned.W_e - W_e).max() > 0.1 * np.abs(W_e).max()         # W_e does not
F = rng.standard_normal((48, 32))
Phi_F, Psi_F = features.data_dependent(Phi, Psi, F)                     # (64, 48), (64, 48)
assert np.abs(Phi_F @ Psi_F.T - Phi @ (F.T @ F) @ Psi.T).max() < 1e-10 * sigma[0]
with_F = primal.solve(Phi_F, Psi_F)
assert with_F.W_e.shape == (48, 32)                                     # n rows, p components: V28
J = primal.objective(with_F.W_e, with_F.W_r, 1 / with_F.sigma, Phi_F, Psi_F)
assert abs(J) < 1e-12 * with_F.sigma.sum()
# %% [markdown]
# ## 7. Which kernels have finite features
# The cosine kernel of Primal-Attention has the normalised vectors themselves (K.25). The
# exponential kernel (S.6) of attention has no finite pair that serves *all* points ($N$ given ones
# have $K = KI$, with $N$ features), but *positive random features* (S.32) estimate it without bias
# (V21). With $w \sim \mathcal N(0, I)$,
# $$e^{\langle q, k\rangle} = \mathbb E_w\big[e^{\langle w, q\rangle - \|q\|^2/2}\,
#   e^{\langle w, k\rangle - \|k\|^2/2}\big],$$
# and the mean over $m$ draws of $w$, with $1/\sqrt m$ on each side, has the relative variance
# $(e^{\|q + k\|^2} - 1)/m$ in one entry (D34): a hundred times the features buy one more digit.
# %%
Q_1, K_1 = features.cosine(Phi, Psi)                                    # of length 1
np.testing.assert_allclose(Q_1 @ K_1.T, kernels.cosine(Phi, Psi), atol=1e-14)
target, size = kernels.exponential(Q_1, K_1, scale=1.0), lambda A: np.sqrt(np.mean(A ** 2))
assert np.linalg.matrix_rank(Q_1 @ K_1.T) == 32 < np.linalg.matrix_rank(target) <= 64   # K = K I
variance = target ** 2 * (np.exp(2 + 2 * Q_1 @ K_1.T) - 1)              # |q + k|^2 above; m = 1
for m in (40, 4000):
    pairs = [features.positive_random(Q_1, K_1, m=m, seed=seed) for seed in range(20)]
    wrong = np.array([P @ S.T for P, S in pairs]) - target              # (20, 64, 64)
    one, mean, predicted = size(wrong), size(wrong.mean(axis=0)), size(np.sqrt(variance / m))
    print(f"m = {m}: error {one:.3f}, predicted {predicted:.3f}, of the mean of 20 {mean:.3f}")
    assert abs(one / predicted - 1) < (0.3 if m == 40 else 0.03)        # D34; without -1: 0.05
    assert mean < 0.5 * one                                             # 0.22 if unbiased: V21
# %% [markdown]
# ## 8. A primal for any matrix
# A matrix $A$ that comes without features has rows in $\mathbb R^M$ and columns in $\mathbb R^N$.
# A *compatibility matrix* $C$ $(M, N)$ carries one space to the other (K.33): with $\Phi = AC$
# and $\Psi = A^\top$ the kernel is $ACA$, and **$K = A$ if and only if $ACA = A$** (V25): $C$ is
# the pseudo-inverse, which is the default, or another generalised inverse. By hand: $A = 2$ needs
# $C = \tfrac12$; with $C = 1$ it is the decomposition of 4.
# %%
A_c = kernels.center(A)                                                 # 30 x 11, rank 10
pinv, Z = np.linalg.pinv(A_c), rng.standard_normal((11, 30))
another = pinv + Z - pinv @ A_c @ Z @ A_c @ pinv                        # A C A = A as well
for name, C, same in (("default", None, True), ("another", another, True), ("generic", Z, False)):
    rows, columns = features.compatible(A_c, C)                         # M < N: A and (C A)^T
    W, S, _ = primal.solve(rows, columns, 10)
    gap = np.abs(rows @ columns.T - A_c).max()
    print(f"{name}: |W_e| {np.linalg.norm(W):.2f}, sigma_1 {S[0]:.3f}, K off by {gap:.0e}")
    assert np.allclose(S, dual.solve(A_c).sigma, rtol=1e-9) == same and (gap < 1e-11) == same
assert [np.prod(features.compatible([[2.0]], [[C]])) for C in (0.5, 1.0)] == [2.0, 4.0]


# %% [markdown]
# Same kernel, other weights; only the last line is another kernel.
#
# ## Exercises
# Each check says what is wrong. `ksvd-ref check FILE` marks a whole file.
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
# **E3.3** (about 2 lines, a proof by numbers) From any matrix $Z$ of the shape of $A^\top$, make
# a $C$ with $ACA = A$ that depends on $Z$, for any $A$ that has no inverse.
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
# 3. $\partial\sigma_l/\partial K = h_eh_r^\top$ (lesson 02). What is
#    $\partial\sigma_l/\partial\Phi$, without $K$ and without $H_r$?
#
# *Where this is used.* Lesson 14 makes it large; lessons 10 and 11: attention heads.
#
# *Further reading.* Chen, Tao, Tonin, Suykens, Primal-Attention, NeurIPS 2023 (arXiv 2305.19798).
# Suykens, SVD revisited, ACHA 40(3), 2016, 600-609. Tao et al., Learning in Feature Spaces via
# Coupled Covariances, ICML 2024 (arXiv 2406.08748). Choromanski et al., Rethinking Attention with
# Performers, ICLR 2021. Golub, Van Loan, *Matrix Computations*.
