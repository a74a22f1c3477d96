# %% [markdown]
# # The dual problem: how two projections become one pair of eigenproblems
# **You will do.** Write the Lagrangian of the kernel SVD, check its stationarity in all six
# variables, eliminate the primal ones with a number after each step, and see what is left free.
#
# **You will learn.** Why singular vectors *are* the multipliers of a projection problem; which
# freedoms of sign, rotation and scale the conditions leave; what rank and repeated values change.
#
# **You need.** Lessons 01 and 02, Lagrange multipliers; 60 minutes, 20 for the exercises.
# %%
from itertools import combinations
from pathlib import Path

import autograd.numpy as anp
import matplotlib.pyplot as plt
import numpy as np
from autograd import grad

from ksvd_ref import datasets, dual, kernels, plots, primal

HERE = Path(__file__).parent if "__file__" in globals() else Path.cwd()
plt.style.use(HERE / "ksvd.mplstyle")
rng = np.random.default_rng(3)
# %% [markdown]
# ## 1. Two sides, one problem
# $N = 30$ Wikipedia articles (rows) and $M = 11$ words (columns): $K_{ij}$ counts word $j$ in
# article $i$. A kernel matrix is a product of features, $K = \Phi\Psi^\top$, with one row of $p$
# numbers per article in $\Phi$ and one per word in $\Psi$. Here $p = 11$: an article is its counts,
# a word its unit vector, and each word's total is shared between the two. Nothing below uses more
# than $K = \Phi\Psi^\top$.
# %%
K, articles, words, topics = datasets.wikipedia_words()
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
# Nothing is centred, so the first two terms are second moments, not variances. Chen et al. write
# "maximise"; $J$ has no maximum (lesson 05), and what is meant is a **stationary** point.
#
# With multipliers $H_e$ $(N, s)$, $H_r$ $(M, s)$ for the two constraints, the Lagrangian (K.11) is
# $$\mathcal L = J - \operatorname{tr}\big(H_e^\top (E - \Phi W_e)\big)
#   - \operatorname{tr}\big(H_r^\top (R - \Psi W_r)\big).$$
# %%
def lagrangian(W_e, W_r, E, R, H_e, H_r, Lambda):
    J = 0.5 * anp.sum(E * E * Lambda) + 0.5 * anp.sum(R * R * Lambda) - anp.sum(W_e * W_r)
    return J - anp.sum(H_e * (E - Phi @ W_e)) - anp.sum(H_r * (R - Psi @ W_r))


# %% [markdown]
# ## 2. Stationarity
# Six variables, six conditions:
# $$\begin{aligned}
# \partial W_e:&\; W_r = \Phi^\top H_e, & \partial W_r:&\; W_e = \Psi^\top H_r & \text{(K.12)}\\
# \partial E:&\; H_e = E\Lambda, & \partial R:&\; H_r = R\Lambda & \text{(K.13)}\\
# \partial H_e:&\; E = \Phi W_e, & \partial H_r:&\; R = \Psi W_r & \text{(K.14)}
# \end{aligned}$$
# **The sides cross** in K.12. $W_e$ meets $W_r$ only in $\operatorname{tr}(W_e^\top W_r)$, so
# differentiating by $W_e$ fixes $W_r$: the *words* build the directions on which *articles* are
# projected. The singular vectors of $K$ with $\Lambda = \Sigma^{-1}$ satisfy all six.
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
assert min(wrong[v] for v in ("W_e", "W_r", "E", "R")) > 0.1


# %% [markdown]
# The uncrossed weights obey K.14 by construction and break the other four; no shape warns of it.
#
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
# $\Sigma = \Lambda^{-1}$.
#
# Put K.12 and K.13 into $\mathcal L$ instead. The coupling term becomes (K.23)
# $\operatorname{tr}(W_e^\top W_r) = \operatorname{tr}(H_e^\top K H_r)$, and the dual objective
# (K.19) remains, for **every** $H$:
# $$D(H) = \operatorname{tr}(H_e^\top K H_r) - \tfrac12\operatorname{tr}(H_e^\top H_e\Sigma)
#        - \tfrac12\operatorname{tr}(H_r^\top H_r\Sigma).$$
# %%
def dual_objective(G_e, G_r):
    return (anp.sum(G_e * (K @ G_r)) - 0.5 * anp.sum(G_e * G_e * sigma)
            - 0.5 * anp.sum(G_r * G_r * sigma))


G_e, G_r = rng.standard_normal(H_e.shape), rng.standard_normal(H_r.shape)       # any H
V_e, V_r = Psi.T @ G_r, Phi.T @ G_e                 # K.12
np.testing.assert_allclose(np.sum(V_e * V_r), np.sum(G_e * (K @ G_r)), rtol=1e-12)      # K.23
value = lagrangian(V_e, V_r, G_e * sigma, G_r * sigma, G_e, G_r, Lambda)
np.testing.assert_allclose(dual_objective(G_e, G_r), value, rtol=1e-12)
np.testing.assert_allclose(np.sum(W_e * W_r), np.sum(sigma), rtol=1e-12)                # V38
print(f"tr(W_e^T W_r): {np.sum(W_e * W_r):.2f}, with a further Sigma: {np.sum(sigma ** 2):.2f}")
slope = [np.abs(grad(dual_objective, n)(H_e, H_r)).max() for n in (0, 1)]
print(f"dual objective at the solution: {dual_objective(H_e, H_r):.0e}, slope {max(slope):.0e}")
assert max(slope) < 1e-12 * sigma[0] and abs(dual_objective(H_e, H_r)) < 1e-12 * sigma.sum()


# %% [markdown]
# At the solution the coupling is $\sum_l\sigma_l$ for unit vectors. There is no further $\Sigma$
# in K.23, which would make it $\sum_l\sigma_l^2$ (V38). $D$ is a quadratic form, so it is 0
# wherever its gradient is 0. Lesson 05 lives on that remark.
#
# ## 4. What is free
# One number says how far $(H_e, \Sigma, H_r)$ is from K.15, relative to $\sigma_1$. **Sign** first
# (V12): flip both vectors of a pair, or neither. A one-sided flip belongs to $-\sigma$.
# %%
def residual(K, H_e, sigma, H_r):
    gaps = np.r_[K @ H_r - H_e * sigma, K.T @ H_e - H_r * sigma]        # (N + M, s)
    return np.abs(gaps).max() / sigma[0]


flip = np.where(np.arange(11) == 1, -1.0, 1.0)      # component 2
assert residual(K, H_e * flip, sigma, H_r * flip) < 1e-13
print(f"one side flipped: {residual(K, H_e * flip, sigma, H_r):.2f}")
assert residual(K, H_e * flip, sigma, H_r) > 0.5
# %% [markdown]
# **Rotation** (V13). Tie two singular values and any orthogonal $Q$ may mix the two components, the
# *same* $Q$ on both sides. Even a $T$ that is not orthogonal may: $H_e^\top H_e = I$ is a
# normalisation that **we add**, not a consequence. So compare projectors such as $H_eH_e^\top$ of
# a tied block, never its single vectors.
# %%
tied = np.r_[sigma[:1], sigma[1], sigma[1], sigma[3:]]              # sigma_2 = sigma_3
K_tied = H_e * tied @ H_r.T
mix = lambda H, T: np.column_stack([H[:, :1], H[:, 1:3] @ T, H[:, 3:]])
turn = lambda a: np.array([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]])
T = np.array([[1.0, 0.5], [0.0, 2.0]])
for name, Q_e, Q_r, free in (("same Q", turn(0.7), turn(0.7), True), ("same T", T, T, True),
                             ("two Q's", turn(0.7), turn(-0.7), False)):
    gap = residual(K_tied, mix(H_e, Q_e), tied, mix(H_r, Q_r))
    print(f"in a tie, {name}: {gap:.0e}")
    assert gap < 1e-13 if free else gap > 0.1
assert residual(K, mix(H_e, turn(0.7)), sigma, mix(H_r, turn(0.7))) > 0.05      # no tie: not free
assert np.abs(mix(H_e, T).T @ mix(H_e, T) - np.eye(11)).max() > 1
block = mix(H_e, turn(0.7))[:, 1:3]
assert np.abs(block @ block.T - H_e[:, 1:3] @ H_e[:, 1:3].T).max() < 1e-14
# %% [markdown]
# **Scale** (V14). With the unit vectors $U, V$ and any positive diagonal $\Delta$, $H_e = U\Delta$
# and $H_r = V\Delta$ solve K.15 too, and $W_e^\top W_r = \Delta\Sigma\Delta$. Two choices are worth
# a name: $\Delta = I$ has $K = E\Lambda R^\top$, and $\Delta = \Sigma^{-1/2}$ has $K = ER^\top$.
# %%
for name, Delta in (("I", np.ones(11)), ("Sigma^-1/2", sigma ** -0.5)):
    G_e, G_r = H_e * Delta, H_r * Delta
    E, R = K @ G_r, K.T @ G_e
    assert residual(K, G_e, sigma, G_r) < 1e-13
    np.testing.assert_allclose((Psi.T @ G_r).T @ (Phi.T @ G_e), np.diag(Delta * sigma * Delta),
                               atol=1e-12 * sigma[0])
    product = E / sigma @ R.T if name == "I" else E @ R.T
    print(f"Delta = {name:10} K off by {np.abs(product - K).max():.0e}")
    assert np.abs(product - K).max() < 1e-12 * sigma[0]
# %%
figure, ax = plt.subplots(figsize=(6.4, 4.6))       # the last E and R: those of K = E R^T
plots.embedding(ax, E[:, :2], labels=articles, color=plots.ROWS, most=5)
ax.scatter(R[:, 0], R[:, 1], s=14, color=plots.COLUMNS, marker="s")
for j in np.argsort(-np.hypot(R[:, 0], R[:, 1]))[:4]:
    ax.annotate(words[j], R[j, :2], color=plots.COLUMNS, fontsize=8, xytext=(4, -8),
                textcoords="offset points")
ax.set_title(r"Articles (blue) and words (vermilion) at $\Delta = \Sigma^{-1/2}$: $K = ER^\top$")
plt.show()
# %% [markdown]
# At this scale a count is the inner product of its article and its word, so one plane can show
# both: an article lies out in the direction of its words. (The word names came with the data, and
# some do not seem to fit their column: trust the geometry, not the word.)
#
# ## 5. Rank
# A component with $\sigma = 0$ has no $\Lambda = 1/\sigma$: no problem K.8 has it as its solution,
# and there are at most $r \le \min(N, M, p)$ components (V16): four with the first four features
# alone. Centring costs one dimension, and `dual.solve` keeps the numerical rank unless you ask for
# more.
# %%
K_c = kernels.center(K)
print(f"rank {len(dual.solve(K).sigma)}, centred {len(dual.solve(K_c).sigma)}")
assert len(dual.solve(K_c).sigma) == 10
assert len(dual.solve(Phi[:, :4] @ Psi[:, :4].T).sigma) == 4
full = dual.solve(K_c, 11)                          # on request: sigma = 0 to rounding
assert full.sigma[10] < 1e-13 * full.sigma[0] and residual(K_c, *full) < 1e-13
np.testing.assert_allclose(np.abs(full.H_r[:, 10]), 11 ** -0.5, rtol=1e-9)      # it is constant
try:
    primal.to_dual(primal.from_dual(full, K_c, np.eye(11)), K_c, np.eye(11))     # H_e = E Lambda
except ValueError as error:
    print("refused:", error)
else:
    raise AssertionError("1 / 0 was accepted")
# %% [markdown]
# Squaring K.15 gives $K^\top K h_r = \sigma^2 h_r$, one side alone. On paper; in floating point
# $\sigma^2$ drowns in the rounding of $\sigma_1^2$, of relative size
# $\varepsilon \approx 2\cdot10^{-16}$, once $\sigma < \sqrt\varepsilon\,\sigma_1$, about
# $10^{-8}\sigma_1$ (V36). The SVD does not square; nor does the block matrix of lesson 01.
# %%
true = np.logspace(0, -12, 13)
U, V = (np.linalg.qr(rng.standard_normal((n, 13)))[0] for n in (30, 20))
A = U * true @ V.T
squared = np.sqrt(np.abs(np.linalg.eigvalsh(A.T @ A)[::-1]))
print("    true     dual.solve   dual.solve_shifted   eig(K^T K)")
for l in (0, 3, 6, 9):
    found = dual.solve(A, 13).sigma[l], dual.solve_shifted(A, 13).sigma[l], squared[l]
    print(f"{true[l]:9.0e}{found[0]:14.4e}{found[1]:18.4e}{found[2]:16.4e}")
    np.testing.assert_allclose(found[:2], true[l], atol=1e-14)      # rounding of sigma_1 = 1
assert abs(squared[9] / true[9] - 1) > 0.1          # no digit left: sigma^2 = 1e-18 < eps
# %% [markdown]
# ## 6. All components, or the best few
# $K = H_e\Sigma H_r^\top$ (K.6, V15) needs all $r$ components. Any subset of $s$ is just as
# stationary, with $J = 0$ (V3, lesson 05), so stationarity cannot tell the best ones: ordering by
# $\sigma$ is a choice that we add. Eckart and Young (EY): the squared error is the sum of the
# discarded $\sigma^2$, least for the $s$ largest.
# %%
figure, ax = plt.subplots(figsize=(5.4, 3.2))
worst_J, worst = 0.0, 0.0
for s in range(1, 11):
    subsets = [list(S) for S in combinations(range(11), s)]         # 2046 of them in all
    errors = [np.linalg.norm(K - H_e[:, S] * sigma[S] @ H_r[:, S].T) for S in subsets]
    ax.plot(np.full(len(subsets), s), errors, ".", color="0.75")
    assert np.argmin(errors) == 0                                   # the first: the s largest
    for S, error in zip(subsets, errors):
        J = primal.objective(W_e[:, S], W_r[:, S], 1 / sigma[S], Phi, Psi)
        discarded = np.sqrt(np.sum(np.delete(sigma, S) ** 2))
        worst_J, worst = max(worst_J, abs(J)), max(worst, abs(error - discarded))
print(f"over 2046 subsets: largest |J| {worst_J:.0e}, Eckart-Young off by {worst:.0e}")
assert worst_J < 1e-12 * sigma.sum() and worst < 1e-12 * sigma[0]
ax.plot(range(1, 11), [np.sqrt(sum(sigma[s:] ** 2)) for s in range(1, 11)], "o-",
        label="the s largest")
ax.set(xlabel="components kept, s", ylabel=r"$\|K - H_e\Sigma H_r^\top\|_F$",
       title="Every subset of the components has J = 0")
ax.legend()
plt.show()
# %% [markdown]
# Each grey dot is a solution of K.15. Only those on the lower line are best approximations.
#
# ## 7. The derivative of the solution
# Which flow between two Canadian provinces would raise $\sigma_1$ of the migration matrix most?
# Since $\sigma_1 = h_e^\top K h_r$, the answer is the outer product
# $\partial\sigma_1/\partial K = h_eh_r^\top$.
# %%
A, provinces = datasets.canada_migration()
slope = grad(lambda A: dual.solve(A).sigma[0])(A)
H = dual.solve(A)
np.testing.assert_allclose(slope, np.outer(H.H_e[:, 0], H.H_r[:, 0]), atol=1e-12)
i, j = np.unravel_index(np.argmax(slope), slope.shape)
print(f"from {provinces[i]} to {provinces[j]}: {slope[i, j]:.2f} per person")
assert A[i, j] == A.max()                           # the largest flow of all, Quebec to Ontario
# %% [markdown]
# Where $\sigma$ repeats, vectors turn freely and their derivative does not exist; that of a loss
# which ignores the turn does. The nuclear norm $\sum_l\sigma_l$ and the polar factor
# $H_eH_r^\top$ are such losses. But **no rule can serve every loss**: at $K = I$ and with $C$
# below, $\langle C, H_e\Sigma H_r^\top\rangle$ and $\langle C, H_eH_r^\top\rangle$ have the same
# derivatives by $H_e$, $\Sigma$, $H_r$, namely $(C, 0, C)$, so any rule answers alike; the truth
# is $C$ and 0.
# %%
nuclear = grad(lambda K: anp.sum(dual.solve(K).sigma))(np.eye(3))
np.testing.assert_allclose(nuclear, np.eye(3), atol=1e-14)
C = np.array([[0.0, 1.0], [1.0, 0.0]])
slope_at_one = lambda loss: grad(lambda K: anp.sum(C * loss(K, *dual.solve(K))))(np.eye(2))
polar = slope_at_one(lambda K, H_e, sigma, H_r: H_e @ H_r.T)
whole = slope_at_one(lambda K, H_e, sigma, H_r: H_e * sigma @ H_r.T)            # this is K itself
mended = slope_at_one(lambda K, H_e, sigma, H_r: K @ H_r @ H_r.T)               # and so is this
assert np.abs(polar).max() < 1e-14                  # right: a symmetric change leaves the factor I
assert np.abs(whole).max() < 1e-14                  # wrong: the true gradient is C
np.testing.assert_allclose(mended, C, atol=1e-14)   # right again: weight with K, not with sigma


# %% [markdown]
# ## Exercises
# After `import runpy`, load the checks with
# `check = runpy.run_path(str(HERE / "solutions" / "03_the_dual_problem.py"))`
# and call, for example, `check["check_3_1"](mend_signs)`.
# - **E3.1** (about 2 lines) The columns of $H_r$ have lost their signs. Predict which number tells
#   for each component whether the pair fits, then mend $H_r$ from $K$ and $H_e$.
# - **E3.2** (about 3 lines) Return $W_e$ and $W_r$, all components, for which $K = ER^\top$.
# - **E3.3** (about 3 lines, a proof by numbers) Return $\Lambda$, 1-d, from scores alone: $E$ and
#   $H_e$ of a solution at an unknown scale $\Delta$, in any order of the components.
# %%
def mend_signs(K, H_e, H_r):
    raise NotImplementedError("Exercise 3.1: the H_r whose pairs fit H_e")


def balanced_weights(Phi, Psi):
    raise NotImplementedError("Exercise 3.2: W_e and W_r with (Phi W_e) (Psi W_r)^T = K")


def weights_of(E, H_e):
    raise NotImplementedError("Exercise 3.3: the diagonal of Lambda, from K.13")


# check["check_3_1"](mend_signs), check["check_3_2"](balanced_weights), ...
# %% [markdown]
# Three questions without code.
# 1. Write $h_{e1}^\top K h_{r2}$ in two ways. Why do distinct singular values force
# $h_{e1} \perp h_{e2}$?
# 2. $K$ is symmetric with an eigenvalue $-3$. What are $\sigma$, $h_e$ and $h_r$?
# 3. $\Phi$ has 5 columns and $K$ is $100\times80$. How many $\lambda$ have a nonzero solution at
# most?
#
# *Where this is used.* Lesson 04 turns the multipliers into weights; Primal-Attention trains them.
#
# *Further reading.* Chen, Tao, Tonin, Suykens, Primal-Attention, NeurIPS 2023 (arXiv 2305.19798).
# Suykens, SVD revisited, Applied and Computational Harmonic Analysis 40(3), 2016, 600-609. Golub
# and Van Loan, *Matrix Computations*: the SVD, its accuracy, the theorem of Eckart and Young.
