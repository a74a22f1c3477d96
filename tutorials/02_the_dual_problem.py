# %% [markdown]
# # The dual problem: how two projections become one pair of eigenproblems
# **You will do.** Write an objective for two projections, set six derivatives to zero with numbers,
# eliminate the primal variables, and see what is left free.
#
# **You will learn.** Why singular vectors *are* the multipliers of a projection problem; which
# freedoms of sign, rotation and scale the conditions leave; what rank changes.
#
# **You need.** Lesson 01: $K h_r = \sigma h_e$ and $K^\top h_e = \sigma h_r$, two vectors with one
# $\sigma$. Lagrange multipliers; 50 minutes, and 20 more for the exercises.
# %%
from itertools import combinations

import autograd.numpy as anp
import matplotlib.pyplot as plt
import numpy as np
from autograd import grad

from ksvd_ref import dual, primal
from ksvd_ref.course import datasets, exercises

plt.style.use("ksvd_ref.data.ksvd")


# %% [markdown]
# ## 1. Two sides, one problem
# A kernel matrix is a product of features, $K = \Phi\Psi^\top$: one row of $p$ numbers for each row
# of $K$ in $\Phi$, and one for each column of $K$ in $\Psi$. Project the two sides on $s$
# directions each: $E = \Phi W_e$ and $R = \Psi W_r$, the *scores*. What should make the two
# projections one problem?
#
# Reward large scores on both sides, $\lambda_l > 0$ times their squares for component $l$: that is
# a trace, since the sum of the squares of $A$ is $\mathrm{tr}(AA^\top)$. Then charge for weights
# that point the same way. $\mathrm{tr}(W_e^\top W_r)$ is the simplest charge that couples the
# sides: its derivative by $W_e$ is $W_r$, so each side will be determined by the other. The minus
# sets the reward against the charge, and $\lambda$ is the exchange rate of the two:
#
# $$J = \tfrac12\mathrm{tr}(E\Lambda E^\top) + \tfrac12\mathrm{tr}(R\Lambda R^\top) -
# \mathrm{tr}(W_e^\top W_r), \quad \Lambda = \mathrm{diag}(\lambda_1, \dots, \lambda_s).\tag{K.10}$$
#
# We look for a **stationary** point: $J$ has no maximum (lesson 04), though often written so. The
# scores are variables of their own, with multipliers $H_e$ $(N, s)$ and $H_r$ $(M, s)$:
#
# $$\mathcal L = J - \mathrm{tr}\big(H_e^\top (E - \Phi W_e)\big) -
# \mathrm{tr}\big(H_r^\top (R - \Psi W_r)\big). \tag{K.11}$$
# %%
def lagrangian(W_e, W_r, E, R, H_e, H_r, Lambda, Phi, Psi):
    J = 0.5 * anp.sum(E * E * Lambda) + 0.5 * anp.sum(R * R * Lambda) - anp.sum(W_e * W_r)
    return J - anp.sum(H_e * (E - Phi @ W_e)) - anp.sum(H_r * (R - Psi @ W_r))


# %% [markdown]
# ## 2. Six conditions
# Six variables, six derivatives that vanish (K.12 to K.14, a row each):
#
# $$\begin{aligned}
# \partial W_e:&\; W_r = \Phi^\top H_e, & \partial W_r:&\; W_e = \Psi^\top H_r
# \\ \partial E:&\; H_e = E\Lambda, & \partial R:&\; H_r = R\Lambda
# \\ \partial H_e:&\; E = \Phi W_e, & \partial H_r:&\; R = \Psi W_r
# \end{aligned}$$
#
# **The sides cross** in the first row: $W_e$ meets $W_r$ only in the charge, so the derivative by
# $W_e$ fixes $W_r$. The columns build the directions on which the rows are projected.
#
# **By hand.** Let $K$ have the rows $(3, 0)$ and $(4, 5)$, with $\Phi = K$ and $\Psi = I$. From
# lesson 01 take $\sigma = 3\sqrt5$, $h_e = (1, 3)/\sqrt{10}$, $h_r = (1, 1)/\sqrt2$. Then
# $w_e = h_r$ and $w_r = K^\top h_e = (15, 15)/\sqrt{10}$. The scores are
# $e = K w_e = (3, 9)/\sqrt2$ and $r = w_r$. Times $\lambda = 1/\sigma$ they are $h_e$ and $h_r$
# again: all six hold.
# %%
K = np.array([[3.0, 0.0], [4.0, 5.0]])
h_e, h_r, sigma_1 = np.array([[1], [3]]) / 10 ** 0.5, np.ones((2, 1)) / 2 ** 0.5, 45 ** 0.5
by_hand = [h_r, np.array([[15], [15]]) / 10 ** 0.5, np.array([[3], [9]]) / 2 ** 0.5,
           np.array([[15], [15]]) / 10 ** 0.5, h_e, h_r]
six = grad(lagrangian, tuple(range(6)))(*by_hand, 1 / sigma_1, K, np.eye(2))
assert max(np.abs(g).max() for g in six) < 1e-14
assert abs(lagrangian(*by_hand, 1 / sigma_1, K, np.eye(2))) < 1e-13     # K.11: J, which is 0
# %% [markdown]
# A real table: $K_{ij}$ counts word $j$, of 11, in Wikipedia article $i$, of 30. An article is its
# counts, a word its unit vector, each word's total shared between the two.
#
# **Counter-example.** The uncrossed weights $\Phi^\top H_e$ and $\Psi^\top H_r$ have the right
# shapes too, and obey the last row. They break the other four conditions.
# %%
K = datasets.wikipedia_words().A
root = np.sqrt(K.sum(axis=0))                       # (11,)
Phi, Psi = K / root, np.diag(root)                  # (30, 11), (11, 11)
H_e, sigma, H_r = dual.solve(K)                     # all 11 components
Lambda, slopes = 1 / sigma, []
for W_e, W_r in ((Psi.T @ H_r, Phi.T @ H_e), (Phi.T @ H_e, Psi.T @ H_r)):      # crossed, or not
    at = W_e, W_r, Phi @ W_e, Psi @ W_r, H_e, H_r
    slopes.append([np.abs(g).max() for g in grad(lagrangian, tuple(range(6)))(
        *at, Lambda, Phi, Psi)])
    print(", ".join(f"{slope:.0e}" for slope in slopes[-1]))
assert max(slopes[0]) < 1e-12 * sigma[0] and min(slopes[1][:4]) > 0.1 > max(slopes[1][4:])
# %% [markdown]
# ## 3. Elimination
# Put the first row into the last: $E = \Phi(\Psi^\top H_r) = K H_r$. The middle row says
# $E = H_e\Lambda^{-1}$, that is $H_e\Sigma$ with $\Sigma = \Lambda^{-1}$ (K.21). Together, and with
# the mirror image, they are the **dual problem**:
#
# $$K H_r = H_e\Sigma, \qquad K^\top H_e = H_r\Sigma. \tag{K.15}$$
#
# Only $K$ is left, and $1/\lambda$ is one of its $\sigma$: for any other only $H = 0$ solves it.
# %%
E, R = Phi @ (Psi.T @ H_r), Psi @ (Phi.T @ H_e)
for left, right in ((E, K @ H_r), (R, K.T @ H_e), (E, H_e * sigma), (R, H_r * sigma)):
    assert np.abs(left - right).max() < 1e-13 * sigma[0]        # sums of 30 products
other = np.mean(sigma[:2])                          # between two of them
least = np.abs(np.linalg.eigvalsh(dual.shifted_matrix(K)) - other).min()
print(f"1/lambda = {other:.1f}: the block matrix of lesson 01 has no eigenvalue within {least:.1f}")
assert least > 1


# %% [markdown]
# ## 4. What is free: which changes leave a solution
#
# - **Sign.** Flip both vectors of a pair, or neither (V12).
# - **Rotation.** Where two $\sigma$ are equal, any orthogonal $Q$ may mix their components, the
#   *same* $Q$ on both sides (V13). Compare $H_eH_e^\top$ of a tied block, never its single vectors.
# - **Scale.** $H_e\Delta$ and $H_r\Delta$ with a positive diagonal $\Delta$ solve it too. Length 1
#   is a normalisation that **we add**; with it $W_e^\top W_r = \Sigma$, else $\Delta\Sigma\Delta$
#   (V14). With all components $K = E\Lambda R^\top$ (V15), and $\Delta = \Sigma^{-1/2}$ makes it
#   $ER^\top$.
# %%
def residual(K, H_e, sigma, H_r):
    gaps = np.r_[K @ H_r - H_e * sigma, K.T @ H_e - H_r * sigma]        # (N + M, s)
    return np.abs(gaps).max() / sigma[0]


def mix(H, Q):
    return np.column_stack([H[:, :1], H[:, 1:3] @ Q, H[:, 3:]])         # components 2 and 3


# %% Residuals of six changes of a solution: three stay at rounding, three are far above it
flip, half = np.where(np.arange(11) == 1, -1.0, 1.0), sigma ** -0.5
tied, Q = np.r_[sigma[:2], sigma[1], sigma[3:]], np.array([[0.8, -0.6], [0.6, 0.8]])
K_tied = H_e * tied @ H_r.T                                             # sigma_2 = sigma_3
moves = {"flip both": residual(K, H_e * flip, sigma, H_r * flip),
         "tie, same $Q$": residual(K_tied, mix(H_e, Q), tied, mix(H_r, Q)),
         "scale both": residual(K, H_e * half, sigma, H_r * half),
         "flip one": residual(K, H_e * flip, sigma, H_r),
         "no tie, same $Q$": residual(K, mix(H_e, Q), sigma, mix(H_r, Q)),
         "scale one": residual(K, H_e * half, sigma, H_r)}
gaps = list(moves.values())
assert max(gaps[:3]) < 1e-13 and min(gaps[3:]) > 0.05               # V13, V14
assert np.abs((E * half) @ (R * half).T - K).max() < 1e-12 * sigma[0]       # V15
figure, ax = plt.subplots(figsize=(6, 2.4))
ax.scatter(gaps, list(moves), s=30, c=["C0"] * 3 + ["C1"] * 3, zorder=3)
ax.set(xscale="log", xlim=(1e-17, 10), xlabel=r"residual, over $\sigma_1$", title="Free or not")
ax.invert_yaxis()
plt.show()
# %% [markdown]
# *See:* the upper three moves keep a solution, the lower three do not. No shape tells them apart.
#
# ## 5. Rank, and the best few
# A component with $\sigma = 0$ has no $\lambda = 1/\sigma$: the dual has it, no primal problem
# does. So there are at most $\min(N, M, p)$ components (V16). Any subset is stationary too, with
# $J = 0$ (V3). We keep the $s$ largest $\sigma$: they leave the least error (Eckart and Young; EY).
# %%
few = Phi[:, :4] @ Psi[:, :4].T                     # four features
assert len(dual.solve(K).sigma) == 11 and len(dual.solve(few).sigma) == 4
subsets = [list(S) for s in range(1, 11) for S in combinations(range(11), s)]
error = np.array([np.linalg.norm(K - H_e[:, S] * sigma[S] @ H_r[:, S].T) for S in subsets])
chosen = [(Psi.T @ H_r[:, S], Phi.T @ H_e[:, S], 1 / sigma[S], Phi, Psi) for S in subsets]
worst = max(abs(primal.objective(*at)) for at in chosen)
slope = max(np.abs(side).max() for at in chosen for side in primal.gradient(*at))
best = [min(error[n] for n, S in enumerate(subsets) if len(S) == s) for s in range(1, 11)]
np.testing.assert_allclose(best, [np.sum(sigma[s:] ** 2) ** 0.5 for s in range(1, 11)])
print(f"{len(subsets)} subsets, largest |J| {worst:.0e}, largest derivative {slope:.0e}")
assert worst < 1e-12 * sigma.sum() and slope < 1e-12 * sigma[0]
# %% [markdown]
# ## 6. Weights of rows and columns
# The *weighted* KSVD is that of $C_e^{-1/2}KC_r^{-1/2}$, $C_e$ and $C_r$ positive definite. Three
# old methods are cases. Row and column sums on the diagonals: *correspondence analysis*, whose
# first pair says nothing: $\sigma_1 = 1$, $C_e^{-1/2}h_e$ is constant. $K = X^\top Z$ of two
# centred sets of variables, $C_e = C_r = I$: *partial least squares*, by one SVD. The same $K$ with
# $C_e = X^\top X$, $C_r = Z^\top Z$: *canonical correlation analysis*. There $\sigma_1$ is the
# largest correlation of a combination of $X$ with one of $Z$ (a QR whitens $X$: $Q^\top Q = I$).
# %%
rows = K.sum(axis=1)
first = dual.solve(K / np.sqrt(np.outer(rows, K.sum(axis=0))), 1)
assert abs(first.sigma[0] - 1) < 1e-13 and np.ptp(first.H_e[:, 0] / np.sqrt(rows)) < 1e-13
X, Z = (A - A.mean(axis=0) for A in (K[:, :5], K[:, 5:]))       # two sets of words
X_white, Z_white = np.linalg.qr(X)[0], np.linalg.qr(Z)[0]
a, size, b = dual.solve(X_white.T @ Z_white, 1)
found = np.corrcoef((X_white @ a).T, (Z_white @ b).T)[0, 1]
words = np.abs(np.corrcoef(X.T, Z.T)[:5, 5:]).max()
assert abs(found - size[0]) < 1e-12 and words < 0.65 < 0.79 < found     # of two words: 0.64


# %% [markdown]
# ## In short
# Two projections with a charge for equal directions have six stationarity conditions. Elimination
# leaves the singular value decomposition, whose vectors are the multipliers. Sign, rotation in a
# tie and scale stay free, always for both sides together.
#
# $$J = \tfrac12\mathrm{tr}(E\Lambda E^\top) + \tfrac12\mathrm{tr}(R\Lambda R^\top) -
# \mathrm{tr}(W_e^\top W_r), \qquad \Sigma = \Lambda^{-1}.$$
#
# The picture to remember: the sides cross, $W_e$ is made of columns and $W_r$ of rows.
#
# ## Exercises
# Fill in the functions; each check says what is wrong. `ksvd-ref check FILE` marks a whole file.
# %% [markdown]
# **E2.1** (1 line) The columns of $H_r$ have lost their signs. Predict which number tells for each
# component whether the pair fits, then mend $H_r$ from $K$ and $H_e$.
# %%
def mend_signs(K, H_e, H_r):
    raise NotImplementedError("Exercise 2.1: the H_r whose pairs fit H_e")


# %%
exercises.check("2.1", mend_signs)


# %% [markdown]
# **E2.2** (about 3 lines) The weights of the kernel SVD, all components, at the scale $\Delta$ for
# which $K = ER^\top$.
# %%
def balanced_weights(Phi, Psi):
    raise NotImplementedError("Exercise 2.2: W_e and W_r with (Phi W_e) (Psi W_r)^T = K")


# %%
exercises.check("2.2", balanced_weights)
# %% [markdown]
# Three questions without code.
#
# 1. Write $h_{e1}^\top K h_{r2}$ in two ways. Why do distinct singular values force
#    $h_{e1} \perp h_{e2}$?
# 2. $\Phi$ has 5 columns and $K$ is $100\times80$. How many $\lambda$ have a nonzero solution?
# 3. $\sigma_l = h_e^\top K h_r$ with vectors of length 1 that move with $K$. Why is
#    $\partial\sigma_l/\partial K$ nevertheless $h_eh_r^\top$, if $\sigma_l$ is not repeated?
#
# *Where this is used.* Lesson 03 turns the multipliers into weights; findings F4 and F8.
#
# *Further reading.* Chen, Tao, Tonin, Suykens, Primal-Attention, NeurIPS 2023 (arXiv 2305.19798).
# Suykens, SVD revisited, Applied and Computational Harmonic Analysis 40(3), 2016, 600–609. Golub,
# Van Loan, *Matrix Computations*.
