# %% [markdown]
# # The derivation on one page
# From two projections to an attention layer in six steps: each an equation, the lines of code that
# are it, and an assertion. Lessons 01 to 04 and 11 take their time over them. The matrix is that of
# lesson 01,
#
# $$ K = \begin{bmatrix} 3 & 0 \\ 4 & 5 \end{bmatrix} = \Phi\Psi^\top, \qquad \Phi = K, \quad
# \Psi = I. $$
#
# The rows of $\Phi$ are the features of the rows of $K$, those of $\Psi$ the features of its
# columns. Any other pair with the product $K$ would do.
# %%
import autograd.numpy as np
from autograd import grad

from ksvd_ref import attention, dual, primal

K = np.array([[3.0, 0.0], [4.0, 5.0]])
Phi, Psi = K, np.eye(2)
rng = np.random.default_rng(0)


def close(A, B):
    return np.abs(A - B).max() < 1e-13              # sums of two products, numbers below 100


# %% [markdown]
# ## 1. The goal: two coupled equations
# The singular vectors of $K$ are two orthonormal sets, $H_e$ for its rows and $H_r$ for its
# columns, and each is made from the other. $\Sigma$ is diagonal and positive.
#
# $$ K H_r = H_e\Sigma, \qquad K^\top H_e = H_r\Sigma. \tag{K.7} $$
#
# **By hand.** $\sigma = 3\sqrt5, \sqrt5$, with $h_e = (1, 3)/\sqrt{10}$, $h_r = (1, 1)/\sqrt2$ and
# $h_e = (3, -1)/\sqrt{10}$, $h_r = (1, -1)/\sqrt2$.
# %%
H_e, sigma, H_r = dual.solve(K)
assert close(K @ H_r, H_e * sigma) and close(K.T @ H_e, H_r * sigma)
assert close(sigma, 5 ** 0.5 * np.array([3, 1])) and close(10 ** 0.5 * H_e, [[1, 3], [3, -1]])
assert close(2 ** 0.5 * H_r, [[1, 1], [1, -1]])
print("sigma:", np.round(sigma, 4))
# %% [markdown]
# ## 2. Where it comes from: one objective for two projections
# Project the rows on $W_e$ and the columns on $W_r$: $E = \Phi W_e$, $R = \Psi W_r$. Reward both,
# with weights $\Lambda = \mathrm{diag}(\lambda_1, \dots, \lambda_s)$ above 0, and charge for
# weights that point the same way.
#
# $$ J = \tfrac12\mathrm{tr}(E\Lambda E^\top) + \tfrac12\mathrm{tr}(R\Lambda R^\top) -
# \mathrm{tr}(W_e^\top W_r). \tag{K.10} $$
#
# **By hand.** With $W_e = W_r = \Lambda = I$ the scores are $E = K$ and $R = I$: $J = 25 + 1 - 2$.
# %%
assert primal.objective(np.eye(2), np.eye(2), np.ones(2), Phi, Psi) == 24


# %% [markdown]
# ## 3. The Lagrangian, and why the sides cross
# Let $E$ and $R$ be free, and keep $E = \Phi W_e$, $R = \Psi W_r$ by multipliers $H_e$ and $H_r$:
#
# $$ \mathcal L = J - \langle H_e, E - \Phi W_e\rangle - \langle H_r, R - \Psi W_r\rangle.
# \tag{K.11} $$
#
# $W_e$ stands in the charge, beside $W_r$, and in a constraint, beside $H_e$. So the derivative by
# $W_e$ is $\Phi^\top H_e - W_r$: set to 0 it gives the weights of the *other* side.
#
# $$ W_r = \Phi^\top H_e, \qquad W_e = \Psi^\top H_r. \tag{K.12} $$
# %%
def L(W_e, W_r, E, R, H_e, H_r, Lambda):
    J = np.sum(E * E * Lambda) / 2 + np.sum(R * R * Lambda) / 2 - np.sum(W_e * W_r)
    return J - np.sum(H_e * (E - Phi @ W_e)) - np.sum(H_r * (R - Psi @ W_r))


any_point = [*rng.standard_normal((6, 2, 2)), np.array([0.5, 2.0])]
assert close(grad(L, 0)(*any_point), Phi.T @ any_point[4] - any_point[1])       # by W_e
assert close(grad(L, 1)(*any_point), Psi.T @ any_point[5] - any_point[0])       # by W_r
W_e, _, W_r = primal.from_dual((H_e, sigma, H_r), Phi, Psi)
# %% [markdown]
# ## 4. Scores are multipliers
# The derivatives by $E$ and $R$ are $E\Lambda - H_e$ and $R\Lambda - H_r$. Set to 0:
#
# $$ H_e = E\Lambda, \qquad H_r = R\Lambda. \tag{K.13} $$
# %%
assert close(grad(L, 2)(*any_point), any_point[2] * any_point[6] - any_point[4])        # by E
assert close(grad(L, 3)(*any_point), any_point[3] * any_point[6] - any_point[5])        # by R
# %% [markdown]
# ## 5. Eliminate the weights
# Put $W_e = \Psi^\top H_r$ into $E = \Phi W_e$, and the mirror image into $R$. The features meet
# and are $K$ again; $E = H_e\Lambda^{-1}$ does the rest. It is step 1, with a meaning for $\Sigma$.
#
# $$ E = \Phi\Psi^\top H_r = K H_r = H_e\Sigma, \qquad R = K^\top H_e = H_r\Sigma, \qquad
# \Sigma = \Lambda^{-1}. \tag{K.15} $$
#
# So at the singular vectors all six derivatives are 0, and so is $J$. With twice $\Lambda$ they are
# not.
# %%
point = W_e, W_r, Phi @ W_e, Psi @ W_r, H_e, H_r
assert close(point[2], K @ H_r) and close(point[3], K.T @ H_e)
slopes = [[np.abs(grad(L, i)(*point, c / sigma)).max() for i in range(6)] for c in (1.0, 2.0)]
print(f"the largest derivative: {max(slopes[0]):.0e}; with twice Lambda: {max(slopes[1]):.1f}")
assert max(slopes[0]) < 1e-13 and max(slopes[1]) > 0.5
assert abs(primal.objective(W_e, W_r, 1 / sigma, Phi, Psi)) < 1e-13
# %% [markdown]
# ## 6. A layer of the scores
# Of a sequence let $\Phi$ hold the features of the queries and $\Psi$ those of the keys. Token $i$
# asks with row $i$ and is asked with column $i$. The layer hands on both scores and forms no $K$.
#
# $$ o_i = [e_i, r_i]\,W_o + b_o, \qquad e_i = W_e^\top\varphi_i, \quad r_i = W_r^\top\psi_i.
# \tag{K.24} $$
#
# **By hand.** The second token has the row $(4, 5)$ and the column $(0, 5)$. With the first
# component, $e_2 = 9/\sqrt2$ and $r_2 = 15/\sqrt{10}$.
# %%
weights = attention.PrimalWeights(W_e[None], W_r[None], 1 / sigma[None], np.eye(4), np.zeros(4))
o = attention.primal_attention(Phi[None], Psi[None], weights, features="identity")[0][0]
assert close(o, np.hstack([K @ H_r, K.T @ H_e])) and close(primal.solve(Phi, Psi).W_e, W_e)
assert close(o[1, [0, 2]], [9 / 2 ** 0.5, 15 / 10 ** 0.5])
print("the second token: e =", np.round(o[1, :2], 4), "r =", np.round(o[1, 2:], 4))
# %% [markdown]
# From here: $J$ is a saddle, and zero at more points than these (lesson 04); lesson 12 trains the
# layer; what its published code computes differs in places (lesson 13).
