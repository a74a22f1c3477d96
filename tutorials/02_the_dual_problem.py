# %% [markdown]
# # The dual problem: how two projections become one pair of eigenproblems
# **You will do.** Write the Lagrangian of the kernel SVD, check its stationarity in all six
# variables, eliminate the primal ones with a number after each step, and see what is left free.
#
# **You will learn.** Why singular vectors *are* the multipliers of a projection problem; which
# freedoms of sign, rotation and scale the conditions leave; what rank and repeated values change.
#
# **You need.** Lesson 01, Lagrange multipliers; 60 minutes, and 20 more for the
# exercises.
# %%
from itertools import combinations

import autograd.numpy as anp
import matplotlib.pyplot as plt
import numpy as np
from autograd import grad

from ksvd_ref import dual, primal
from ksvd_ref.course import datasets, exercises, plots

plt.style.use("ksvd_ref.data.ksvd")
rng = np.random.default_rng(3)
# %% [markdown]
# ## 1. Two sides, one problem
# $N = 30$ Wikipedia articles (rows) and $M = 11$ words (columns): $K_{ij}$ counts word $j$ in
# article $i$. A kernel matrix is a product of features, $K = \Phi\Psi^\top$, with one row of $p$
# numbers per article in $\Phi$ and one per word in $\Psi$. Here $p = 11$: an article is its counts,
# a word its unit vector, and each word's total is shared between the two.
# %%
K = datasets.wikipedia_words().A
root = np.sqrt(K.sum(axis=0))                       # (11,)
Phi, Psi = K / root, np.diag(root)                  # (30, 11), (11, 11)
assert np.abs(Phi @ Psi.T - K).max() < 1e-13


# %% [markdown]
# Project the articles on $s$ directions and the words on $s$ others: $E = \Phi W_e$ and
# $R = \Psi W_r$, the *scores*, with $W_e, W_r$ of shape $(p, s)$. Large scores are wanted on both
# sides, component $l$ weighted by $\lambda_l > 0$, and the two sets of directions are tied to
# each other (K.8 as sums, K.10 as matrices; $\Lambda = \operatorname{diag}(\lambda)$):
# $$J = \tfrac12\operatorname{tr}(E\Lambda E^\top) + \tfrac12\operatorname{tr}(R\Lambda R^\top)
#     - \operatorname{tr}(W_e^\top W_r), \qquad E = \Phi W_e, \quad R = \Psi W_r.$$
# Chen et al. write "maximise"; $J$ has no maximum (lesson 04), and what is meant is a
# **stationary** point. With multipliers $H_e$ $(N, s)$, $H_r$ $(M, s)$ for the two constraints,
# the Lagrangian (K.11) is
# $$\mathcal L = J - \operatorname{tr}\big(H_e^\top (E - \Phi W_e)\big) -
#   \operatorname{tr}\big(H_r^\top (R - \Psi W_r)\big).$$
# Where both constraints hold it is $J$, whatever the multipliers are.
# %%
def lagrangian(W_e, W_r, E, R, H_e, H_r, Lambda):
    J = 0.5 * anp.sum(E * E * Lambda) + 0.5 * anp.sum(R * R * Lambda) - anp.sum(W_e * W_r)
    return J - anp.sum(H_e * (E - Phi @ W_e)) - anp.sum(H_r * (R - Psi @ W_r))


W_e, W_r, H_e, H_r, lam = (rng.standard_normal((n, 2)) for n in (11, 11, 30, 11, 1))    # any, s = 2
np.testing.assert_allclose(lagrangian(W_e, W_r, Phi @ W_e, Psi @ W_r, H_e, H_r, lam[0] ** 2),
                           primal.objective(W_e, W_r, lam[0] ** 2, Phi, Psi), rtol=1e-12)   # K.11
# %% [markdown]
# ## 2. Stationarity
# Six variables, six conditions:
# $$\begin{aligned}
# \partial W_e:&\; W_r = \Phi^\top H_e, & \partial W_r:&\; W_e = \Psi^\top H_r & \text{(K.12)}
# \\ \partial E:&\; H_e = E\Lambda, & \partial R:&\; H_r = R\Lambda & \text{(K.13)}
# \\ \partial H_e:&\; E = \Phi W_e, & \partial H_r:&\; R = \Psi W_r & \text{(K.14)}
# \end{aligned}$$
# **The sides cross** in K.12. $W_e$ meets $W_r$ only in $\operatorname{tr}(W_e^\top W_r)$, so
# differentiating by $W_e$ fixes $W_r$: the *words* build the directions on which *articles* are
# projected. The singular vectors of $K$ with $\Lambda = \Sigma^{-1}$ satisfy all six.
# *Counter-example:* the uncrossed weights obey K.14 and break the other four.
# %%
H_e, sigma, H_r = dual.solve(K)                     # all 11 components
Lambda = 1 / sigma
W_e, W_r = Psi.T @ H_r, Phi.T @ H_e                 # K.12, crossed
E, R = Phi @ W_e, Psi @ W_r                         # K.14
names = "W_e W_r E R H_e H_r".split()


def six_slopes(*variables):
    return {v: np.abs(grad(lagrangian, n)(*variables, Lambda)).max() for n, v in enumerate(names)}


slopes = six_slopes(W_e, W_r, E, R, H_e, H_r)
print("dL at the solution: ", ", ".join(f"{v} {g:.0e}" for v, g in slopes.items()))
assert max(slopes.values()) < 1e-12 * sigma[0]      # rounding: a few hundred eps, relative
V_e, V_r = Phi.T @ H_e, Psi.T @ H_r                 # not crossed: the shapes fit all the same
wrong = six_slopes(V_e, V_r, Phi @ V_e, Psi @ V_r, H_e, H_r)
print("dL if not crossed:  ", ", ".join(f"{v} {g:.0e}" for v, g in wrong.items()))
assert min(wrong[v] for v in names[:4]) > 0.1 > 1e-12 > max(wrong["H_e"], wrong["H_r"])
# %% [markdown]
# ## 3. Elimination
# From six conditions to two, without the features: K.12 into K.14, then K.13. The second step is
# the rule for training scores, $E = H_e\Sigma$ and $R = H_r\Sigma$ (K.21).
# %%
for text, left, right in (
        ("1  K.14 with K.12:  E = Phi (Psi^T H_r) = K H_r", E, K @ H_r),
        ("   the mirror:      R = Psi (Phi^T H_e) = K^T H_e", R, K.T @ H_e),
        ("2  K.13:            E = H_e Lambda^-1 = H_e Sigma", E, H_e * sigma),
        ("   the mirror:      R = H_r Lambda^-1 = H_r Sigma", R, H_r * sigma),
        ("3  both, K.15:      K H_r = H_e Sigma", K @ H_r, H_e * sigma),
        ("                    K^T H_e = H_r Sigma", K.T @ H_e, H_r * sigma)):
    gap = np.abs(left - right).max() / sigma[0]
    print(f"{text:52} {gap:.0e}")
    assert gap < 1e-13, text                        # sums of 30 products: 30 eps and a margin


# %% [markdown]
# K.15 is the **dual problem**: two eigenproblems, each with the other's vectors on the right.
# Only $K$ is left. Its nonzero solutions need $1/\lambda_l$ to be a singular value of $K$:
# $\Sigma = \Lambda^{-1}$. Between two of them the block matrix of lesson 01 has no eigenvalue.
#
# Put K.12 and K.13 into $\mathcal L$ instead. The coupling term becomes (K.23)
# $\operatorname{tr}(W_e^\top W_r) = \operatorname{tr}(H_e^\top K H_r)$, and the dual objective
# (K.19) remains, for **every** $H$:
# $$D(H) = \operatorname{tr}(H_e^\top K H_r) - \tfrac12\operatorname{tr}(H_e^\top H_e\Sigma)
#        - \tfrac12\operatorname{tr}(H_r^\top H_r\Sigma).$$
# It is a quadratic form, hence 0 wherever its gradient is 0. The coupling is then
# $\sum_l\sigma_l$ for unit vectors; a further $\Sigma$ in K.23 would square the $\sigma_l$ (V38).
# %%
def dual_objective(G_e, G_r):
    return (anp.sum(G_e * (K @ G_r)) - 0.5 * anp.sum(G_e * G_e * sigma)
            - 0.5 * anp.sum(G_r * G_r * sigma))


G_e, G_r = rng.standard_normal(H_e.shape), rng.standard_normal(H_r.shape)       # any H
V_e, V_r = Psi.T @ G_r, Phi.T @ G_e                 # K.12
np.testing.assert_allclose(np.sum(V_e * V_r), np.sum(G_e * (K @ G_r)), rtol=1e-12)      # K.23
value = lagrangian(V_e, V_r, G_e * sigma, G_r * sigma, G_e, G_r, Lambda)
np.testing.assert_allclose(dual_objective(G_e, G_r), value, rtol=1e-12)                 # K.19
slope = max(np.abs(grad(dual_objective, n)(H_e, H_r)).max() for n in (0, 1))
print(f"dual objective at the solution: {dual_objective(H_e, H_r):.0e}, slope {slope:.0e}")
assert slope < 1e-12 * sigma[0] and abs(dual_objective(H_e, H_r)) < 1e-12 * sigma.sum()
np.testing.assert_allclose(np.sum(W_e * W_r), np.sum(sigma), rtol=1e-12)                # V38
assert np.abs(np.linalg.eigvalsh(dual.shifted_matrix(K)) - np.mean(sigma[:2])).min() > 1


# %% [markdown]
# ## 4. What is free
# One number, relative to $\sigma_1$, says how far a triple is from K.15. Which changes leave it 0?
#
# - **Sign** (V12): flip both vectors of a pair, or neither. One flipped side belongs to $-\sigma$.
# - **Rotation** (V13): where two $\sigma$ are equal, any orthogonal $Q$ may mix their components,
#   the *same* $Q$ on both sides; so may a $T$ that is not orthogonal. Compare projectors such as
#   $H_eH_e^\top$ of a tied block, never its single vectors.
# - **Scale** (V14): with unit vectors $U, V$ and any positive diagonal $\Delta$, $H_e = U\Delta$
#   and $H_r = V\Delta$ solve K.15 too, and $W_e^\top W_r = \Delta\Sigma\Delta$. So length 1 is
#   a normalisation that **we add**. Two scales are worth a name (V15): with all $r$ components
#   $\Delta = I$ has $K = E\Lambda R^\top$, and $\Delta = \Sigma^{-1/2}$ has $K = ER^\top$.
# %%
def residual(K, H_e, sigma, H_r):
    gaps = np.r_[K @ H_r - H_e * sigma, K.T @ H_e - H_r * sigma]        # (N + M, s)
    return np.abs(gaps).max() / sigma[0]


flip = np.where(np.arange(11) == 1, -1.0, 1.0)                          # component 2
tied = np.r_[sigma[:2], sigma[1], sigma[3:]]                            # sigma_2 = sigma_3
K_tied, half = H_e * tied @ H_r.T, sigma ** -0.5
mix = lambda H, T: np.column_stack([H[:, :1], H[:, 1:3] @ T, H[:, 3:]])
Q, T = np.array([[0.8, -0.6], [0.6, 0.8]]), np.array([[1.0, 0.5], [0.0, 2.0]])
moves = {"flip both": residual(K, H_e * flip, sigma, H_r * flip),
         "tie, same $Q$": residual(K_tied, mix(H_e, Q), tied, mix(H_r, Q)),
         "tie, same $T$": residual(K_tied, mix(H_e, T), tied, mix(H_r, T)),
         "scale both": residual(K, H_e * half, sigma, H_r * half),
         "flip one": residual(K, H_e * flip, sigma, H_r),
         r"tie, $Q$ and $Q^\top$": residual(K_tied, mix(H_e, Q), tied, mix(H_r, Q.T)),
         "no tie, same $Q$": residual(K, mix(H_e, Q), sigma, mix(H_r, Q)),
         "scale one": residual(K, H_e * half, sigma, H_r)}
gaps = list(moves.values())
print("residuals:", ", ".join(f"{gap:.0e}" for gap in gaps))
assert max(gaps[:4]) < 1e-13 and min(gaps[4:]) > 0.05
block, turned = H_e[:, 1:3], mix(H_e, Q)[:, 1:3]
assert np.abs(turned @ turned.T - block @ block.T).max() < 1e-14
assert np.abs(turned - block).max() > 0.1
for Delta, weight in ((np.ones(11), Lambda), (half, 1.0)):
    V_e, V_r = Psi.T @ (H_r * Delta), Phi.T @ (H_e * Delta)             # K.12
    assert np.abs(V_e.T @ V_r - np.diag(Delta * sigma * Delta)).max() < 1e-12 * sigma[0]
    assert np.abs(Phi @ V_e * weight @ (Psi @ V_r).T - K).max() < 1e-12 * sigma[0]      # K.14
# %% Residuals of eight changes of a solution: four stay at rounding, four are far above it
figure, ax = plt.subplots(figsize=(6, 3))
ax.scatter(gaps, list(moves), s=30, c=[plots.ROWS] * 4 + [plots.COLUMNS] * 4, zorder=3)
ax.set(xscale="log", xlim=(1e-17, 10), xlabel=r"residual of K.15, over $\sigma_1$",
       title="What may be done to a solution")
ax.invert_yaxis()
ax.grid(axis="y", color="0.9")
plt.show()
# %% [markdown]
# *See:* the upper four moves keep a solution, the lower four do not; no shape tells them apart.
#
# ## 5. Rank
# A component with $\sigma = 0$ has no $\Lambda = 1/\sigma$: it solves K.15, but no problem K.8 has
# it as its solution. So there are at most $r \le \min(N, M, p)$ components (V16): four with the
# first four features alone. `dual.solve` keeps the numerical rank unless you ask for more.
# %%
Phi_4, Psi_4 = Phi[:, :4], Psi[:, :4]
K_4 = Phi_4 @ Psi_4.T
more = dual.solve(K_4, 5)                           # on request: sigma_5 = 0 to rounding
assert len(dual.solve(K).sigma) == 11 and len(dual.solve(K_4).sigma) == 4
assert more.sigma[4] < 1e-13 * more.sigma[0] and residual(K_4, *more) < 1e-13
try:
    primal.to_dual(primal.from_dual(more, Phi_4, Psi_4), Phi_4, Psi_4)  # H_e = E Lambda
except ValueError as error:
    print("refused:", error)
else:
    raise AssertionError("1 / 0 was accepted")
# %% [markdown]
# ## 6. All components, or the best few
# $K = H_e\Sigma H_r^\top$ (K.6) needs all $r$ components. Any subset of $s$ is just as stationary,
# with $J = 0$ (V3), so stationarity cannot tell the best ones: ordering by $\sigma$ is a choice
# that we add. Eckart and Young (EY): the squared error of a subset is the sum of the discarded
# $\sigma^2$, least for the $s$ largest.
# %%
subsets = [list(S) for s in range(1, 11) for S in combinations(range(11), s)]
assert len(subsets) == 2046
error = np.array([np.linalg.norm(K - H_e[:, S] * sigma[S] @ H_r[:, S].T) for S in subsets])
discarded = [np.sum(np.delete(sigma, S) ** 2) ** 0.5 for S in subsets]
assert np.abs(error - discarded).max() < 1e-12 * sigma[0]
chosen = [(W_e[:, S], W_r[:, S], 1 / sigma[S], Phi, Psi) for S in subsets]
J = max(abs(primal.objective(*weights)) for weights in chosen)
slope = max(np.abs(side).max() for weights in chosen for side in primal.gradient(*weights))
print(f"over 2046 subsets: largest |J| {J:.0e}, slope {slope:.0e}")
assert J < 1e-12 * sigma.sum() and slope < 1e-12 * sigma[0]
size = np.array([len(S) for S in subsets])
best = [error[size == s].min() for s in range(1, 11)]
np.testing.assert_allclose(best, [np.sqrt(np.sum(sigma[s:] ** 2)) for s in range(1, 11)])
# %% Errors of 2046 subsets of components: those with the largest form the lower edge of a band
figure, ax = plt.subplots(figsize=(6, 3.2))
ax.plot(size, error, ".", color="0.7", label="any subset")
ax.plot(range(1, 11), best, "o-", label="the s largest")
ax.set(xlabel="components kept, s", ylabel=r"$\|K - H_e\Sigma H_r^\top\|_F$", ylim=(0, None),
       title="Every subset of the components has J = 0")
ax.legend(loc="lower left")
plt.show()
# %% [markdown]
# *See:* each grey dot is a solution of K.15; only the lower edge are best approximations.
#
# So that a set is the right one needs a test of its own: $\sigma_1 = \|K\|$, and orthonormal $A$,
# $B$ with $s$ columns never have $\sigma_l(A^\top KB) > \sigma_l(K)$ (Cauchy's interlacing; V41). A
# few rounds of $A \leftarrow KB$, $B \leftarrow K^\top A$, made orthonormal, come close to
# equality, and so exceed every other set of components.
# %%
B = np.random.default_rng(1).standard_normal((K.shape[1], 2))
for _ in range(6):
    A = np.linalg.qr(K @ B)[0]
    B = np.linalg.qr(K.T @ A)[0]
found = np.linalg.svd(A.T @ K @ B)[1]
print("found", found.round(3), "of", sigma[:3].round(3))
assert np.all(found < sigma[:2] * (1 + 1e-13)) and np.all(found > sigma[1:3])
assert abs(np.linalg.norm(K, 2) - sigma[0]) < 1e-13 * sigma[0]


# %% [markdown]
# ## Exercises
# Each check says what is wrong. `ksvd-ref check FILE` marks a whole file.
# %% [markdown]
# **E2.1** (1 line) The columns of $H_r$ have lost their signs. Predict which number tells
# for each component whether the pair fits, then mend $H_r$ from $K$ and $H_e$.
# %%
def mend_signs(K, H_e, H_r):
    raise NotImplementedError("Exercise 2.1: the H_r whose pairs fit H_e")


# %%
exercises.check("2.1", mend_signs)


# %% [markdown]
# **E2.2** (about 3 lines) The weights of the kernel SVD, all components, at the scale $\Delta$
# for which $K = ER^\top$.
# %%
def balanced_weights(Phi, Psi):
    raise NotImplementedError("Exercise 2.2: W_e and W_r with (Phi W_e) (Psi W_r)^T = K")


# %%
exercises.check("2.2", balanced_weights)


# %% [markdown]
# **E2.3** (1 line, a proof by numbers) Return $\Lambda$, 1-d, from $E$ and $H_e$ alone, of a
# solution at an unknown scale $\Delta$, in any order of the components.
# %%
def weights_of(E, H_e):
    raise NotImplementedError("Exercise 2.3: the diagonal of Lambda, from K.13")


# %%
exercises.check("2.3", weights_of)
# %% [markdown]
# Three questions without code.
#
# 1. Write $h_{e1}^\top K h_{r2}$ in two ways. Why do distinct singular values force
#    $h_{e1} \perp h_{e2}$?
# 2. $\Phi$ has 5 columns and $K$ is $100\times80$. How many $\lambda$ have a nonzero solution?
# 3. $\sigma_l = h_e^\top K h_r$ with vectors of length 1 that move with $K$. Why is
#    $\partial\sigma_l/\partial K$ nevertheless $h_eh_r^\top$, if $\sigma_l$ is not repeated?
#
# *Where this is used.* Lesson 03 turns the multipliers into weights; Primal-Attention trains them.
#
# *Further reading.* Chen, Tao, Tonin, Suykens, Primal-Attention, NeurIPS 2023 (arXiv 2305.19798).
# Suykens, SVD revisited, Applied and Computational Harmonic Analysis 40(3), 2016, 600-609. Golub
# and Van Loan, *Matrix Computations*: the SVD and the theorem of Eckart and Young.
