# %% [markdown]
# # From dual to primal: weights in place of kernel evaluations
# **You will do.** Turn the singular vectors of a real attention head into weights, score new
# points both ways, solve for the weights without forming the kernel matrix, and give a primal to
# a matrix that came without features.
#
# **You will learn.** Why the columns build the weights that score the rows; what the primal costs
# and when its fast route fails; which parts of a primal solution are arbitrary.
#
# **You need.** Lessons 01 to 03; 70 minutes, 20 for the exercises.
# %%
import time
from pathlib import Path

import autograd.numpy as anp
import matplotlib.pyplot as plt
import numpy as np
from autograd import grad

from ksvd_ref import datasets, dual, features, kernels, plots, primal

HERE = Path(__file__).parent if "__file__" in globals() else Path.cwd()
plt.style.use(HERE / "ksvd.mplstyle")
rng = np.random.default_rng(4)
# %% [markdown]
# ## 1. The sides cross
# An attention head of a pretrained MiniLM gives each of $N = M = 64$ tokens a query $q$ and a key
# $k$ of $d = 32$ numbers. Before the softmax, $K_{ij} = \langle q_i, k_j\rangle/\sqrt d$: a
# kernel matrix of rank 32 with the feature maps $\varphi = q/d^{1/4}$ and $\psi = k/d^{1/4}$.
# Lesson 03 found, from $\partial W_e$ and $\partial W_r$ (K.12),
# $$W_e = \Psi^\top H_r, \qquad W_r = \Phi^\top H_e.$$
# The weights that score a *row* are made by the *columns*. The scores are then the same on both
# sides of the theory (K.21): $E = \Phi W_e = K H_r = H_e\Sigma$,
# $R = \Psi W_r = K^\top H_e = H_r\Sigma$.
# %%
heads = datasets.minilm_heads()
Phi, Psi = heads.Q[5, 0] / 32 ** 0.25, heads.K[5, 0] / 32 ** 0.25       # (64, 32), (64, 32)
K = Phi @ Psi.T                                                         # (64, 64)
H_e, sigma, H_r = dual.solve(K)                                         # 32 components
W_e, W_r = Psi.T @ H_r, Phi.T @ H_e                                     # (32, 32), (32, 32)
gap = max(np.abs(Phi @ W_e - K @ H_r).max(), np.abs(Phi @ W_e - H_e * sigma).max(),
          np.abs(Psi @ W_r - K.T @ H_e).max(), np.abs(Psi @ W_r - H_r * sigma).max())
print(f"rank {len(sigma)}, sigma_1 {sigma[0]:.1f}; scores, primal against dual: {gap:.0e}")
assert len(sigma) == 32 and gap < 1e-12 * sigma[0]                      # sums of 64 products
uncrossed = Phi @ (Phi.T @ H_e)                                         # the shape fits
print(f"not crossed: scores off by {np.abs(uncrossed - K @ H_r).max() / sigma[0]:.1f} sigma_1")
assert np.abs(uncrossed - K @ H_r).max() > 0.1 * sigma[0]
# %% [markdown]
# Both sides have weights of shape $(p, s)$, so nothing warns of the exchange.
#
# ## 2. New points
# Scores of a point that was not there (K.20, V26; Remark 3.3 of Chen et al.). Dual: evaluate the
# kernel against **all** training points of the other side, then combine. Primal: one product with
# $p = 32$ numbers.
# $$e(x) = \sum_j h_{rj}\,\kappa(x, z_j) = W_e^\top\varphi(x), \qquad
#   r(z) = \sum_i h_{ei}\,\kappa(x_i, z) = W_r^\top\psi(z).$$
# Hold out one token, as a query and as a key.
# %%
new = list(heads.tokens).index("liberty")
rest = np.arange(64) != new
seen = primal.solve(Phi[rest], Psi[rest])                               # 63 queries, 63 keys
seen_dual = dual.solve(Phi[rest] @ Psi[rest].T)
by_dual = dual.e_scores(Phi[[new]] @ Psi[rest].T, seen_dual)            # 63 kernel evaluations
by_primal = primal.e_scores(Phi[[new]], seen)                           # 32 numbers
assert np.abs(by_dual - by_primal).max() < 1e-10 * sigma[0]             # two routes to one sigma
by_dual = dual.r_scores(Phi[rest] @ Psi[[new]].T, seen_dual)
assert np.abs(by_dual - primal.r_scores(Psi[[new]], seen)).max() < 1e-10 * sigma[0]
# %% [markdown]
# The same for three articles that the article-by-word matrix of lesson 03 has never seen. An
# article's features are its counts, a word's a unit vector. $h_e(x) = \Sigma^{-1}e(x)$ continues
# the singular vectors to new points.
# %%
A, articles, words, topics = datasets.wikipedia_words()
held = np.isin(articles, ["Charles Darwin", "Gottfried Wilhelm Leibniz", "Pablo Picasso"])
weights = primal.solve(A[~held], np.eye(11))
E_old, E_new = primal.e_scores(A[~held], weights), primal.e_scores(A[held], weights)
found = dual.solve(A[~held])
assert np.abs(E_new - dual.e_scores(A[held], found)).max() < 1e-10 * found.sigma[0]
np.testing.assert_allclose(E_old / weights.sigma, found.H_e, atol=1e-9)
figure, ax = plt.subplots(figsize=(6.2, 4))
plots.embedding(ax, E_old, labels=articles[~held], color=plots.ROWS, most=3)
ax.scatter(*E_new[:, :2].T, marker="*", s=110, color=plots.COLUMNS)
for name, point in zip(articles[held], E_new):
    ax.annotate(name, point[:2], color=plots.COLUMNS, fontsize=8, xytext=(7, -3),
                textcoords="offset points")
ax.set_title("27 articles, and 3 scored without the kernel")
plt.show()
# %% [markdown]
# The stars are placed by one product each, among the articles that made the axes.
#
# ## 3. Eliminate $H$ instead of $W$
# Lesson 03 removed the weights. Put $H_e = \Phi W_e\Lambda$, $H_r = \Psi W_r\Lambda$ (K.13, K.14)
# into K.12 and the multipliers go (K.17), with them $N$ and $M$:
# $$\Phi^\top\Phi\,W_e\Lambda = W_r, \qquad \Psi^\top\Psi\,W_r\Lambda = W_e.$$
# Two covariances, coupled. Per point, with $\Sigma_\varphi = \Phi^\top\Phi/N$ and
# $\Sigma_\psi = \Psi^\top\Psi/M$, a column $w_r$ of $W_r$ and its partner $w_e$ give
# $w_\varphi = w_r/\sqrt N$ and $w_\psi = w_e/\sqrt M$, and this is the coupled covariances
# eigenproblem (K.35) of Tao et al.,
# $\Sigma_\varphi w_\psi = \lambda w_\varphi$, $\Sigma_\psi w_\varphi = \lambda w_\psi$ with
# $\lambda = \sigma/\sqrt{NM}$ (V32; this $\lambda$ is theirs, not $1/\sigma$).
# %%
for one, other, V, W in (("Phi", "W_r", Phi, (W_e, W_r)), ("Psi", "W_e", Psi, (W_r, W_e))):
    gap = np.abs(V.T @ V @ W[0] / sigma - W[1]).max() / np.abs(W[1]).max()
    print(f"K.17  {one}^T {one} gives {other} to {gap:.0e}")
    assert gap < 1e-11                                                  # eps * |Phi|^2 / sigma_32
N, M = K.shape
S_phi, S_psi = Phi.T @ Phi / N, Psi.T @ Psi / M                         # (32, 32)
w_phi, w_psi, lam = W_r / N ** 0.5, W_e / M ** 0.5, sigma / (N * M) ** 0.5
assert np.abs(S_phi @ w_psi - lam * w_phi).max() < 1e-12 * sigma[0]
assert np.abs(S_psi @ w_phi - lam * w_psi).max() < 1e-12 * sigma[0]
gap = primal.stationarity(W_e, W_r, 1 / sigma, Phi, Psi)                # K.17 as one number,
print(f"primal.stationarity: {gap:.0e}")                                # from 0 to 1
assert gap < 1e-12
# %% [markdown]
# ## 4. The route that is safe
# K.17 as one eigenproblem, $(\Psi^\top\Psi)(\Phi^\top\Phi)w = \sigma^2 w$, squares $\sigma$.
# Better (K.39): $\Phi = Q_\varphi R_\varphi$, $\Psi = Q_\psi R_\psi$ make
# $K = Q_\varphi (R_\varphi R_\psi^\top) Q_\psi^\top$. With the decomposition $U\Sigma V^\top$ of
# the $p\times p$ middle, $H_r = Q_\psi V$ and
# $W_e = \Psi^\top H_r = R_\psi^\top Q_\psi^\top Q_\psi V = R_\psi^\top V$. Neither $K$ nor any $Q$
# is needed, and nothing is divided by $\sigma$. $K^\top = \Psi\Phi^\top$ only exchanges the sides
# (V17).
# %%
R_phi = np.linalg.qr(Phi, mode="r")
R_psi = np.linalg.qr(Psi, mode="r")
U, S, Vt = np.linalg.svd(R_phi @ R_psi.T)                               # (32, 32)
W_e_qr = R_psi.T @ Vt.T
W_r_qr = R_phi.T @ U
flip = np.sign(np.sum(W_e * W_e_qr, axis=0))                            # one joint sign per pair
solved = primal.solve(Phi, Psi)                                         # signs as dual.solve
for got in ((W_e_qr * flip, S, W_r_qr * flip), solved):
    gap = max(np.abs(a - b).max() for a, b in zip(got, (W_e, sigma, W_r))) / sigma[0]
    print(f"weights without K against those from K: {gap:.0e}")
    assert gap < 1e-10
back = primal.solve(Psi, Phi)
assert np.abs(np.abs(back.W_e) - np.abs(W_r)).max() < 1e-10 * sigma[0]  # up to the joint sign
assert np.abs(np.abs(back.W_r) - np.abs(W_e)).max() < 1e-10 * sigma[0]
# %% [markdown]
# The dual holds $NM$ numbers and takes $O(NM\min(N, M))$ operations; the primal holds $(N + M)p$
# numbers and takes $O((N + M)p^2 + p^3)$ operations. A stopwatch agrees:
# %%
tall, other = rng.standard_normal((800, 16)), rng.standard_normal((600, 16))
start = time.process_time()
by_dual = dual.solve(tall @ other.T, 16).sigma
middle = time.process_time()
by_primal = primal.solve(tall, other, 16).sigma
end = time.process_time()
np.testing.assert_allclose(by_primal, by_dual, rtol=1e-10)
print(f"800 x 600, p = 16: {middle - start:.4f} s from K, {end - middle:.4f} s from Phi and Psi")
assert end - middle < middle - start


# %% [markdown]
# ## 5. The route that is fast, and when it fails
# A QR decomposition costs more than a product. $R$ also comes from the $p\times p$ Gram matrix,
# $R^\top R = \Phi^\top\Phi$ by its eigenvectors, but the Gram matrix squares. Whether that hurts
# is told by the number $\kappa = \|\Phi\|\|\Psi\|/\sigma_s$, in spectral norms, with $\sigma_s$ the
# smallest singular value wanted: with the machine precision $\varepsilon$ the error grows as
# $\varepsilon\kappa^2$ instead of $\varepsilon\kappa$.
#
# **Opposed features** make $\kappa$ large although $K$ is harmless: here $\Phi$ is small where
# $\Psi$ is large, and the singular values of $K$ are $2t$ and $t$, as close to each other at
# $t = 10^{-8}$ as at $t = 1$.
# %%
def gram_root(A):
    w, V = np.linalg.eigh(A.T @ A)
    return np.sqrt(np.abs(w))[:, None] * V.T        # R^T R = V diag(w) V^T


qr_root = lambda A: np.linalg.qr(A, mode="r")
by_root = lambda root, A, B: np.linalg.svd(root(A) @ root(B).T, compute_uv=False)
T = np.linalg.qr(rng.standard_normal((2, 2)))[0]
left, right = (np.linalg.qr(rng.standard_normal((n, 2)))[0] for n in (30, 20))
ratio, off = np.logspace(0, -8, 17), {"Gram": [], "QR": [], "primal.solve": []}
for t in ratio:
    A_phi, A_psi = left * [2.0, t] @ T, right * [t, 1.0] @ T            # sigma = (2t, t)
    for name, values in (("Gram", by_root(gram_root, A_phi, A_psi)),
                         ("QR", by_root(qr_root, A_phi, A_psi)),
                         ("primal.solve", primal.solve(A_phi, A_psi, 2).sigma)):
        off[name].append(max(abs(values / [2 * t, t] - 1)))
kappa = 2 / ratio
figure, ax = plt.subplots(figsize=(5.6, 3.4))
for name, mark in (("Gram", "^-"), ("QR", "s-"), ("primal.solve", "k:")):
    ax.loglog(kappa, np.maximum(off[name], 1e-17), mark, label=name)
ax.loglog(kappa, 2e-16 * kappa ** 2, color="0.7", lw=1)
ax.loglog(kappa, 2e-16 * kappa, color="0.7", lw=1)
ax.set(xlabel=r"$\kappa = \|\Phi\|\,\|\Psi\|/\sigma_s$", ylabel=r"relative error of $\sigma$",
       title=r"Opposed features; grey: $\varepsilon\kappa^2$ and $\varepsilon\kappa$")
ax.legend()
plt.show()
print(f"at kappa = {kappa[-1]:.0e}: Gram off by {off['Gram'][-1]:.1e}, QR by {off['QR'][-1]:.1e}")
assert off["Gram"][-1] > 0.01 and off["QR"][-1] < 1e-7
by_solve = np.array(off["primal.solve"])
assert max(by_solve) < 1e-7 and max(by_solve[kappa < 100]) < 1e-11
# %% [markdown]
# `primal.solve` takes the Gram route up to $\kappa = 100$, where it still has eleven digits, and
# QR above.
#
# ## 6. Feature maps are not unique
# $(\Phi T, \Psi T^{-\top})$ has the same product for every regular $T$, so the same $K$, $H$,
# $E$, $R$ (V24). The weights are others: they live in the coordinates of the features.
# %%
T = rng.standard_normal((32, 32)) + 6 * np.eye(32)
Phi_T, Psi_T = Phi @ T, Psi @ np.linalg.inv(T).T
turned = primal.solve(Phi_T, Psi_T)
assert np.abs(Phi_T @ turned.W_e - Phi @ solved.W_e).max() < 1e-9 * sigma[0]    # E stays
assert np.abs(Psi_T @ turned.W_r - Psi @ solved.W_r).max() < 1e-9 * sigma[0]    # R stays
assert np.abs(turned.W_e - solved.W_e).max() > 0.1 * np.abs(solved.W_e).max()   # W_e does not
# %% [markdown]
# ## 7. Which kernels have finite features
# The cosine kernel of Primal-Attention has the normalised vectors themselves (K.25); the polynomial
# kernel has its monomials. The exponential kernel (S.6) of attention has no finite pair, but
# $m$ *positive random features* (S.32) estimate it without bias. With $w \sim \mathcal N(0, I)$,
# $$e^{\langle q, k\rangle} = \mathbb E_w\big[e^{\langle w, q\rangle - \|q\|^2/2}\,
#   e^{\langle w, k\rangle - \|k\|^2/2}\big],$$
# and the mean over $m$ draws of $w$ has the relative variance $(e^{\|q + k\|^2} - 1)/m$ in one
# entry. Queries and keys are shortened to length 1 here, for the exponent's sake.
# %%
Q_1, K_1 = features.cosine(Phi, Psi)
np.testing.assert_allclose(Q_1 @ K_1.T, kernels.cosine(Phi, Psi), atol=1e-14)
few = Phi[:, :4], Psi[:, :4]
P, S = features.polynomial(*few, degree=3)
print(f"cosine: p = {Q_1.shape[1]}; polynomial of degree 3 in 4 variables: p = {P.shape[1]}")
np.testing.assert_allclose(P @ S.T, kernels.polynomial(*few, degree=3), rtol=1e-9, atol=1e-9)
target = kernels.exponential(Q_1, K_1, scale=1.0)
sums = 2 + 2 * Q_1 @ K_1.T                                              # |q_i + k_j|^2
predicted = np.sqrt(np.sum(target ** 2 * (np.exp(sums) - 1))) / np.linalg.norm(target)
sizes, errors = np.array([16, 64, 256, 1024, 4096]), []
for m in sizes:
    pairs = [features.positive_random(Q_1, K_1, m=m, seed=seed) for seed in range(20)]
    draws = np.array([P @ S.T for P, S in pairs])                       # (20, 64, 64)
    errors.append(np.sqrt(np.mean((draws - target) ** 2) / np.mean(target ** 2)))
away = abs(np.mean(draws, axis=0) - target) / (np.std(draws, axis=0, ddof=1) / 20 ** 0.5)
print(f"mean of 20 estimates: {np.mean(away < 2):.0%} of the entries within 2 standard errors")
assert np.mean(away < 2) > 0.8                                          # 94 % if unbiased
slope = np.polyfit(np.log(sizes), np.log(errors), 1)[0]
print(f"relative error {errors[0]:.2f} at m = 16, {errors[-1]:.3f} at 4096, slope {slope:.2f}")
assert abs(slope + 0.5) < 0.1 and max(abs(errors * np.sqrt(sizes) / predicted - 1)) < 0.3
figure, ax = plt.subplots(figsize=(4.8, 3.2))
ax.loglog(sizes, errors, "o", label="20 seeds")
ax.loglog(sizes, predicted / np.sqrt(sizes), color="0.6", label="predicted")
ax.set(xlabel="random features m", ylabel="relative error of K", title="Positive random features")
ax.set_yticks([0.05, 0.1, 0.2, 0.5, 1.0], ["0.05", "0.1", "0.2", "0.5", "1"])
ax.set_yticks([], minor=True)
ax.legend()
plt.show()
# %% [markdown]
# A hundred times the features buy one more digit.
#
# ## 8. A primal for any matrix
# A matrix $A$ that comes without features has rows in $\mathbb R^M$ and columns in $\mathbb R^N$.
# A *compatibility matrix* $C$ $(M, N)$ carries one space to the other (K.33): with $\Phi = AC$
# and $\Psi = A^\top$ the kernel is $ACA$, and **$K = A$ if and only if $ACA = A$** (V25): $C$ is a
# generalised inverse of $A$, the pseudo-inverse or any other. By hand: $A = 2$ needs
# $C = \tfrac12$; with $C = 1$ it is the decomposition of 4.
# %%
A_c = kernels.center(A)                                                 # 30 x 11, rank 10
pinv = np.linalg.pinv(A_c)
Z = rng.standard_normal(pinv.shape)
another = pinv + Z - pinv @ A_c @ Z @ A_c @ pinv                        # A C A = A as well
truth = np.linalg.svd(A_c, compute_uv=False)[:10]
for name, C, same in (("default", None, True), ("pinv", pinv, True), ("another", another, True),
                      ("generic", Z, False)):
    F_rows, F_columns = features.compatible(A_c, C)
    W, S, _ = primal.solve(F_rows, F_columns, 10)
    print(f"{name:8} |W_e| {np.linalg.norm(W):7.2f}   sigma_1 {S[0]:8.3f}   "
          f"K off by {np.abs(F_rows @ F_columns.T - A_c).max():.0e}")
    assert np.allclose(S, truth, rtol=1e-9) == same
Phi_2, Psi_2 = features.compatible([[2.0]], [[1.0]])
assert Phi_2 @ Psi_2.T == 4 and np.prod(features.compatible([[2.0]], [[0.5]])) == 2
weights = kernels.softmax(heads.Q[5, 0], heads.K[5, 0])                 # no finite features ...
maps = features.compatible(weights)                                     # ... but its own rows
np.testing.assert_allclose(primal.solve(*maps).sigma, dual.solve(weights, 64).sigma, atol=1e-10)
# %% [markdown]
# Same kernel, other weights, as in section 6; only the last row is another kernel. A softmax
# matrix has a primal too, but its features are its own rows: a new token needs a new row.
#
# **Features that depend on the data.** Primal-Attention scores with $f(X)^\top W_e$ in place of
# $W_e$: with $F = f(X)$ $(n, p)$ the features are $\Phi F^\top$, $\Psi F^\top$ and
# $K = \Phi(F^\top F)\Psi^\top$ (K.9), a change of metric. The weights have $n$ rows, and the rank
# is still at most $p$, however large $n$ is.
# %%
F = rng.standard_normal((48, 32))
Phi_F, Psi_F = features.data_dependent(Phi, Psi, F)                     # (64, 48), (64, 48)
assert np.abs(Phi_F @ Psi_F.T - Phi @ (F.T @ F) @ Psi.T).max() < 1e-10 * sigma[0]
assert len(primal.solve(Phi_F, Psi_F).sigma) == 32 and primal.solve(Phi_F, Psi_F).W_e.shape[0] == 48
# %% [markdown]
# ## 9. The derivative, again without $K$
# $\partial\sigma_l/\partial K = h_eh_r^\top$ (lesson 03) and $K = \Phi\Psi^\top$ give
# $\partial\sigma_l/\partial\Phi = h_eh_r^\top\Psi = h_e w_e^\top$: the weight *is* the slope.
# %%
slope = grad(lambda Phi: anp.sum(primal.solve(Phi, Psi).sigma[:3]))(Phi)
gap = np.abs(slope - H_e[:, :3] @ W_e[:, :3].T).max()
print(f"d(sigma_1 + sigma_2 + sigma_3)/dPhi against H_e W_e^T: {gap:.0e}")
assert slope.shape == Phi.shape and gap < 1e-10 * np.abs(slope).max()


# %% [markdown]
# ## Exercises
# After `import runpy`, load the checks with
# `check = runpy.run_path(str(HERE / "solutions" / "04_from_dual_to_primal.py"))`
# and call, for example, `check["check_4_1"](score_new_row)`.
# - **E4.1** (about 2 lines) Score one new row from its feature vector, the dual $H_r$ and $\Psi$.
# - **E4.2** (about 2 lines) Predict, then run: the weights that belong to
#   $(\Phi T, \Psi T^{-\top})$, from those of $(\Phi, \Psi)$ and $T$.
# - **E4.3** (about 2 lines, a proof by numbers) From any matrix $Z$ of the shape of $A^\top$, make
#   a $C$ with $ACA = A$ that depends on $Z$; the check tries matrices of deficient rank.
# %%
def score_new_row(phi_new, H_r, Psi):
    raise NotImplementedError("Exercise 4.1: two products, no kernel matrix of all rows")


def turned_weights(W_e, W_r, T):
    raise NotImplementedError("Exercise 4.2: W_e and W_r in the new coordinates")


def generalised_inverse(A, Z):
    raise NotImplementedError("Exercise 4.3: the pseudo-inverse and something that A C A ignores")


# check["check_4_1"](score_new_row), check["check_4_2"](turned_weights), ...
# %% [markdown]
# Three questions without code.
# 1. $W_e^\top W_r = \Sigma$, yet $W_e^\top W_e$ is not diagonal. Which choice of $T$ in section 6
# makes it so?
# 2. $N = 10^6$, $M = 10^6$, $p = 64$: how many numbers does each side hold?
# 3. Any $W_e$ at all gives scores $\Phi W_e = K H$ for some $H$ if $\Psi$ has full column rank.
# What then do the conditions K.12 to K.14 add?
#
# *Where this is used.* Lesson 06 makes it large, lessons 08 and 09 use it on attention heads. For
# a matrix of your own, `ksvd-ref verify FILE` checks the equations of lessons 01 to 05.
#
# *Further reading.* Chen, Tao, Tonin, Suykens, Primal-Attention, NeurIPS 2023 (arXiv 2305.19798).
# Suykens, SVD revisited, Applied and Computational Harmonic Analysis 40(3), 2016, 600-609. Tao et
# al., arXiv 2306.07040, for the coupled covariances eigenproblem. Choromanski et al., Rethinking
# Attention with Performers, ICLR 2021. Golub and Van Loan, *Matrix Computations*.
