# %% [markdown]
# # The primal objective is a saddle, and J = 0 is not yet the KSVD
# **You will do.** Find the zeros of the primal objective $J$, count the directions in which it
# rises and falls, drive $J^2$ to zero at a wrong point, and then compute the KSVD from the primal.
#
# **You will learn.** Why $J$ vanishes at every solution, why that proves little, and what does
# tell a solution.
#
# **You need.** Lessons 03 and 04, the Hessian of a quadratic form; 60 minutes, 30 for exercises.
# %%
from itertools import combinations
from pathlib import Path

import autograd.numpy as anp
import matplotlib.pyplot as plt
import numpy as np
from autograd import grad, hessian

from ksvd_ref import datasets, primal

HERE = Path(__file__).parent if "__file__" in globals() else Path.cwd()
plt.style.use(HERE / "ksvd.mplstyle")
# Numbers are below 100 and sums short, so rounding is about 1e-14:
close = lambda a, b, tolerance=1e-12: np.abs(np.subtract(a, b)).max() < tolerance

# %% [markdown]
# ## 1. Objective and gradient
# $K = \Phi\Psi^\top$ has row features $\Phi$ ($N \times p$) and column features $\Psi$
# ($M \times p$); weights $W_e, W_r$ ($p \times s$) give the scores $E = \Phi W_e$, $R = \Psi W_r$.
# The primal objective rewards large scores and charges for weights that point the same way. With
# $\Lambda = \mathrm{diag}(\lambda_1, \dots, \lambda_s)$, all positive (K.10),
# $$J = \tfrac12\mathrm{tr}(E\Lambda E^\top) + \tfrac12\mathrm{tr}(R\Lambda R^\top) -
# \mathrm{tr}(W_e^\top W_r),$$
# and its gradient is (K.18, V1)
# $$\partial J/\partial W_e = \Phi^\top\Phi W_e\Lambda - W_r, \qquad
# \partial J/\partial W_r = \Psi^\top\Psi W_r\Lambda - W_e.$$
# Only matrix products occur: the primal objective differentiates no SVD at all, and never divides
# by $\sigma_i^2 - \sigma_j^2$ as the derivative of singular vectors does. We use two problems: by
# hand $\Phi = \mathrm{diag}(2, 1)$, $\Psi = I$, with $\sigma = 2, 1$ and the axes as singular
# vectors; and a random one with $p = 4$.
#
# `primal.stationarity`, below the *residual*, is the gradient without units: the difference in
# $\Phi^\top\Phi W_e\Lambda = W_r$ (K.17) over the sizes of its two sides, or that of its mirror,
# whichever is larger. It lies between 0, at a solution, and 1.
# %%
s_h = np.array([2.0, 1.0])                          # _h: by hand
Phi_h, Psi_h = np.diag(s_h), np.eye(2)
rng, p = np.random.default_rng(0), 4
Phi, Psi = rng.standard_normal((9, p)), rng.standard_normal((7, p))
W_e, W_r = rng.standard_normal((2, p, 3))           # s = 3, no solution
Lambda = np.array([0.3, 0.5, 0.7])
g_e, g_r = primal.gradient(W_e, W_r, Lambda, Phi, Psi)
by_autograd = grad(primal.objective, (0, 1))(W_e, W_r, Lambda, Phi, Psi)
assert close(g_e, by_autograd[0]) and close(g_r, by_autograd[1])
residual = primal.stationarity

# %% [markdown]
# ## 2. Why J is zero at a solution
# $J$ is a homogeneous quadratic in $W = (W_e, W_r)$: double the weights, and $J$ is four times as
# large. Euler's theorem for such functions holds for **every** $W$ and $\Lambda$ (V2):
# $$J = \tfrac12\langle W, \nabla J\rangle = \tfrac12\langle W_e, \partial J/\partial W_e\rangle +
# \tfrac12\langle W_r, \partial J/\partial W_r\rangle.$$
# Where the gradient vanishes, $J = 0$: the statement of Chen et al. (K.22). The proof asks so
# little that it serves *every* set of singular triplets with $\Lambda = \Sigma^{-1}$, in any order,
# at any scale, even with one repeated (V3): nothing in $J$ prefers the leading ones.
#
# Another $\Lambda$ misses zero (V4). By hand, $J = \sum_l(\lambda_l\sigma_l^2 - \sigma_l)$ is 6 at
# $\Lambda = \Sigma$, 2 at $I$ and $-1$ at $\Sigma^{-2}$.
# %%
assert close(primal.objective(W_e, W_r, Lambda, Phi, Psi), np.sum([W_e * g_e, W_r * g_r]) / 2)
W_e, sigma, W_r = primal.solve(Phi, Psi)
subsets = [list(c) for size in range(1, 5) for c in combinations(range(4), size)]
worst = 0.0
for pick in subsets + [[2, 0], [1, 1, 3]]:          # another order; component 1 twice
    scale = 0.1 + 2.0 * rng.random(len(pick))
    at = W_e[:, pick] * scale, W_r[:, pick] * scale, 1 / sigma[pick], Phi, Psi
    worst = max(worst, abs(primal.objective(*at)), residual(*at))
assert len(subsets) == 15 and worst < 1e-12
print(f"largest |J| or residual over the {len(subsets)} subsets and two more: {worst:.1e}")
for power, J in ((-1, 0), (1, 6), (0, 2), (-2, -1)):                # Lambda = Sigma^power
    assert close(primal.objective(np.eye(2), np.diag(s_h), s_h ** power, Phi_h, Psi_h), J)

# %% [markdown]
# **A special case you may know.** Let both sides be one, $\Psi = \Phi$ and $W_e = W_r = w$: then
# $J(w, w)$ is exactly twice the objective of kernel PCA as a least-squares support vector machine
# (K.34, V18), which has $\gamma$ for $\lambda$ and one vector $w$ per component,
# $$\tfrac\gamma2\sum_i e_i^2 - \tfrac12w^\top w, \quad e = \Phi w \qquad\Rightarrow\qquad
# K\alpha = \alpha/\gamma, \quad \alpha = \gamma e.$$
# %%
v = np.random.default_rng(1).standard_normal((p, 3))                # any w, one per gamma
pca = np.sum(Lambda * (Phi @ v) ** 2) / 2 - np.sum(v ** 2) / 2      # gamma = Lambda
assert close(primal.objective(v, v, Lambda, Phi, Phi), 2 * pca)
w, eigenvalues, also_w = primal.solve(Phi, Phi)
alpha = Phi @ w / eigenvalues                                       # gamma = 1 / eigenvalue
assert close(w, also_w) and close(Phi @ (Phi.T @ alpha), alpha * eigenvalues)

# %% [markdown]
# ## 3. Uphill and downhill for ever
# By hand, $\lambda = \tfrac12$: $W_e = (t, 0)$, $W_r = 0$ gives $J = t^2$, and
# $W_e = W_r = (0, t)$ gives $-\tfrac12t^2$ (V8). Neither a maximum nor a minimum exists here; what
# the derivation writes as a maximum is a stationary point.
#
# The Hessian tells its kind, for each component
# $$\nabla^2J = \begin{bmatrix}\lambda\Phi^\top\Phi & -I\\ -I & \lambda\Psi^\top\Psi\end{bmatrix}.$$
# With $\Phi, \Psi$ of full column rank, eliminating the first block leaves $p$ positive directions
# and the signs of $\lambda^2\sigma_l^2 - 1$. For distinct $\sigma$, $\lambda = 1/\sigma_k$ has
# $(p+k-1, 1, p-k)$ positive, zero and negative directions (V9): a saddle, for $k = p$ a flat
# minimum, **never a maximum**. Where $1/\lambda$ is no singular value, only $W = 0$ is stationary.
# %%
by_hand = lambda w_e, w_r: primal.objective(w_e, w_r, [0.5], Phi_h, Psi_h)
for t in (1.0, 100.0):
    assert close(by_hand([[t], [0]], [[0], [0]]) / t ** 2, 1.0)
    assert close(by_hand([[0], [t]], [[0], [t]]) / t ** 2, -0.5)


def curvatures(lam):                                # J is quadratic: one Hessian for all W
    J = lambda w: primal.objective(w[:p, None], w[p:, None], [lam], Phi, Psi)
    H, I = hessian(J)(np.zeros(2 * p)), np.eye(p)
    assert close(H, np.block([[lam * Phi.T @ Phi, -I], [-I, lam * Psi.T @ Psi]]))
    return np.linalg.eigvalsh(H)


for k in range(1, p + 1):
    w = curvatures(1 / sigma[k - 1])
    inertia = [int(np.sum(part)) for part in (w > 1e-10, abs(w) <= 1e-10, w < -1e-10)]
    print(f"lambda = 1/sigma_{k}: {inertia} positive, zero, negative directions")
    assert inertia == [p + k - 1, 1, p - k]
assert abs(curvatures(0.37)).min() > 0.2            # 1/0.37 is no singular value
x = np.linspace(-3, 3, 61)
plane = [[by_hand([[1], [e]], [[2], [r]]) for e in x] for r in x]
fig, ax = plt.subplots(figsize=(5.4, 4.0))
image = ax.contourf(x, x, plane, np.linspace(-5, 5, 21), cmap="RdBu_r", extend="both")
ax.contour(x, x, plane, [0.0], colors="k")
ax.plot(0, 0, "o", color="k", markerfacecolor="w", markersize=9)
ax.set(title="J around the leading solution: a saddle", aspect="equal",
       xlabel=r"second entry of $W_e$", ylabel=r"second entry of $W_r$")
fig.colorbar(image, label="J", ticks=[-4, -2, 0, 2, 4])
plt.show()

# %% [markdown]
# By hand, around $W_e = (1, 0)$, $W_r = (2, 0)$, $\lambda = \tfrac12$ (the circle). Black is
# $J = 0$: two lines full of points that lie on a slope.
#
# ## 4. J = 0 is not enough
# One equation cannot do the work of $2ps$ (V5). By hand, $W_e = W_r = (1, 1)$,
# $\lambda = \tfrac47$: $J = \tfrac12\cdot\tfrac47(5 + 2) - 2 = 0$, but the gradients are
# $(\tfrac97, -\tfrac37)$ and $(-\tfrac37, -\tfrac37)$, and $1/\lambda = 1.75$ is no singular value.
#
# An optimiser finds such points: gradient descent on $J^2$ over $W$ and $\log\Lambda$ (so
# $\Lambda > 0$), $s = 3$, three starts; and again with $\Lambda$ held at the right
# $1/\sigma_1, 1/\sigma_2, 1/\sigma_3$.
# %%
one = np.ones((2, 1))
assert close(primal.objective(one, one, [4 / 7], Phi_h, Psi_h), 0.0)
g_e, g_r = primal.gradient(one, one, [4 / 7], Phi_h, Psi_h)
assert close(g_e, [[9 / 7], [-3 / 7]]) and close(g_r, [[-3 / 7], [-3 / 7]])
squared = lambda W_e, W_r, logs: primal.objective(W_e, W_r, anp.exp(logs), Phi, Psi) ** 2
slope = grad(squared, (0, 1, 2))


def descend(seed, log_Lambda, learn_Lambda, step=6e-3):
    W_e, W_r = np.random.default_rng(seed).standard_normal((2, p, 3))
    trace = []
    for _ in range(500):
        at = W_e, W_r, np.exp(log_Lambda), Phi, Psi
        trace.append([primal.objective(*at) ** 2, residual(*at)])
        d_e, d_r, d_Lambda = slope(W_e, W_r, log_Lambda)
        W_e, W_r = W_e - step * d_e, W_r - step * d_r
        log_Lambda = log_Lambda - learn_Lambda * step * d_Lambda
    return np.array(trace)


learned = [descend(seed, np.log([0.3] * 3), 1) for seed in range(3)]
given = [descend(seed, -np.log(sigma[:3]), 0) for seed in range(3)]
for name, runs in (("learned", learned), ("given", given)):
    J2, gap = np.array([run[-1] for run in runs]).T
    print(f"Lambda {name}: J^2 at most {J2.max():.0e}, residual at least {gap.min():.2f}")
    assert J2.max() < 1e-12 and gap.min() > 0.4
fig, ax = plt.subplots(figsize=(6.0, 3.4))
ax.semilogy(np.array(learned)[:, :, 0].T + 1e-32, "C0", label=["$J^2$", None, None])
ax.semilogy(np.array(learned)[:, :, 1].T, "C1", label=["residual", None, None])
ax.set(title="Three starts: $J^2$ falls, the residual stays", xlabel="step", ylabel="value")
ax.legend()
plt.show()

# %% [markdown]
# $J^2$ sinks below $10^{-12}$ at points that are no solutions, even when the right $\Lambda$ is
# given. The right test is $\nabla J = 0$ (K.18) itself, at $O((N + M)ps)$ and without $K$. (The
# useless $W = 0$ passes it, too.)
#
# Nor can stationarity find $\Lambda$ (V6): with the columns $e_l, r_l$ of $E, R$,
# $$\partial J/\partial\lambda_l = \tfrac12(\|e_l\|^2 + \|r_l\|^2) \ge 0$$
# is zero only where both scores vanish; by hand it is 4 and 1. And where a network has several
# heads, each with its $J$, averaging before squaring lets them cancel (V7):
# $\mathrm{mean}(J)^2 \le \mathrm{mean}(J^2)$, below $0 \le 1$.
# %%
assert close(grad(primal.objective, 2)(np.eye(2), np.diag(s_h), 1 / s_h, Phi_h, Psi_h), [4.0, 1.0])
uphill = by_hand([[1], [0]], [[0], [0]])                            # J = 1
downhill = by_hand([[0], [2 ** 0.5]], [[0], [2 ** 0.5]])            # J = -1
assert residual(0 * one, 0 * one, [4 / 7], Phi_h, Psi_h) == 0.0     # and 0.359 at W_e = W_r = 1
assert abs(residual(one, one, [4 / 7], Phi_h, Psi_h) - 0.359) < 1e-3
assert close((uphill + downhill) / 2, 0.0) and close((uphill ** 2 + downhill ** 2) / 2, 1.0)

# %% [markdown]
# ## 5. What does work, on an attention head
# Queries and keys of a pretrained MiniLM head, $\Phi = Q/d^{1/4}$, $\Psi = K/d^{1/4}$,
# $p = d = 32$: $\Phi\Psi^\top$ holds the logits. First $J$: from a solution $W$ along any $D$,
# $J(W + tD) = t^2J(D)$. An error of size $t$ shows in the residual as $t$, in $J$ only as $t^2$.
# %%
Q, K, _ = datasets.minilm_heads()
Phi, Psi = Q[5, 0] / 32 ** 0.25, K[5, 0] / 32 ** 0.25               # last layer, head 0: (64, 32)
W_e, sigma, W_r = exact = primal.solve(Phi, Psi, 5)
D_e, D_r = rng.standard_normal((2, 32, 5)) * np.std(W_e)
J_D, total = primal.objective(D_e, D_r, 1 / sigma, Phi, Psi), np.sum(sigma)
for t in (0.0, 1e-3, 1e-1):
    at = W_e + t * D_e, W_r + t * D_r, 1 / sigma, Phi, Psi
    J, gap = primal.objective(*at) / total, residual(*at)
    print(f"error {t:5.3f}: J / sum(sigma) = {J:7.1e}, residual = {gap:.1e}")
    assert close(J, t ** 2 * J_D / total) and (t < gap < 10 * t or t == 0.0 and gap < 1e-12)

# %% [markdown]
# A variational form that is bounded (V10): over $A^\top A = B^\top B = I$,
# $$\max\,\mathrm{tr}(A^\top KB) = \sigma_1 + \dots + \sigma_s.$$
# For fixed $B$ the best $A$ spans $KB$, for fixed $A$ the best $B$ spans $K^\top A$. Taking turns,
# with $W_e = \Psi^\top B$ for $B$, is **subspace iteration** (K.40, V32):
# $$W_e \leftarrow \mathrm{orth}(\Psi^\top\Psi\,\Phi^\top\Phi\,W_e),$$
# where orth makes the columns orthonormal. No $K$, no $\Lambda$; the error shrinks by
# $(\sigma_{s+1}/\sigma_s)^2$ per step.
# %%
orth = lambda A: np.linalg.qr(A)[0]
trace = lambda A, B: np.sum((Phi.T @ A) * (Psi.T @ B))                      # tr(A^T K B)
H_e, _, H_r = primal.to_dual(exact, Phi, Psi)
best = max(trace(*map(orth, rng.standard_normal((2, 64, 5)))) for _ in range(1000))
print(f"tr(A^T K B): {trace(H_e, H_r):.1f} at the solution, {best:.1f} at the best of 1000 others")
assert close(trace(H_e, H_r), total, 1e-11) and best < total
fig, ax = plt.subplots(figsize=(6.0, 3.6))
for s in (1, 2, 3, 4):
    W, target, sine = rng.standard_normal((32, s)), orth(exact.W_e[:, :s]), []
    while len(sine) < 30 and min(sine, default=1.0) > 1e-11:
        W = orth(Psi.T @ (Psi @ (Phi.T @ (Phi @ W))))
        sine.append(np.linalg.norm(W - target @ (target.T @ W), 2))         # of the largest angle
    rate, seen = (sigma[s] / sigma[s - 1]) ** 2, sine[-1] / sine[-2]
    steps = np.arange(len(sine))
    print(f"s = {s}: (sigma_{s + 1} / sigma_{s})^2 = {rate:.3f}, measured {seen:.3f}")
    assert abs(seen / rate - 1) < 0.01
    ax.semilogy(steps + 1, sine, "o", color=f"C{s - 1}", label=f"s = {s}")
    ax.semilogy(steps + 1, sine[-1] * rate ** (steps - steps[-1]), color=f"C{s - 1}", linewidth=0.8)
ax.set(title="Subspace iteration: measured (dots), predicted rate (lines)", xlabel="step",
       ylabel="sine of the largest angle", ylim=(1e-13, 1e3))
ax.legend(ncols=4, loc="upper right")
plt.show()

# %% [markdown]
# The dots settle on the predicted slopes; $s = 4$ is slow since $\sigma_5$ is close to $\sigma_4$.
#
# **The published statement, fairly put.** Chen et al. write the primal as a maximum, state that
# $J = 0$ at its stationary points, and add $\eta J^2$ to the training loss. True remains: every
# KSVD has $J = 0$; $J^2$ is cheap, smooth and weighs scores against $\mathrm{tr}(W_e^\top W_r)$. It
# is a **regulariser**: a layer with $J = 0$ need not hold a KSVD.
#
# ## Exercises
# `check = runpy.run_path(str(HERE / "solutions" / "05_the_objective_is_a_saddle.py"))` (after
# `import runpy`) loads the checks; `check["check_5_1"](zero_factor)` runs one.
#
# - **E5.1** (predict, then run; 2 lines) $\mathrm{tr}(W_e^\top W_r) > 0$: which $c$ gives
#   $J(W, c\Lambda) = 0$?
# - **E5.2** (3 lines) Full column rank, any $\lambda$: how many positive, zero and negative
#   directions has the Hessian?
# - **E5.3** (6 lines) Iterate with $s$ + `extra` columns. Then the SVD of
#   $K^\top A = \Psi(\Phi^\top A)$, $A = \mathrm{orth}(\Phi W_e)$, turns $A$ into $H_e$.


# %%
def zero_factor(W_e, W_r, Lambda, Phi, Psi):
    raise NotImplementedError("Exercise 5.1: the factor of Lambda that makes J zero")


def inertia_of(lam, sigma):
    raise NotImplementedError("Exercise 5.2: (positive, zero, negative), from lam and sigma alone")


def leading(Phi, Psi, s, extra, steps, seed=0):
    raise NotImplementedError("Exercise 5.3: W_e, sigma, W_r of the s leading components")


# %% [markdown]
# **Questions.** (a) $\Phi v = 0$, $v \ne 0$: along which $W$ does $J$ fall for ever, whatever
# $\Lambda$? (b) Where does $J(W + tD) = t^2J(D)$ need $\nabla J(W) = 0$? (c) One $W, \Lambda$ for
# many sequences, each with its own $K$: when can the gradient vanish for all?
#
# **Where this is used.** Lessons 09 and 10 (penalty $J^2$), lesson 06 (large kernels).
#
# **Further reading.** Chen, Tao, Tonin, Suykens, Primal-Attention, NeurIPS 2023, arXiv 2305.19798.
# Suykens, SVD revisited, ACHA 40(3), 2016, 600-609. Golub, Van Loan, Matrix Computations.
