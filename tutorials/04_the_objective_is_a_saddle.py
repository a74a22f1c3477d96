# %% [markdown]
# # The primal objective is a saddle, and J = 0 is not yet the kernel SVD
# **You will do.** Find the zeros of the primal objective $J$, count the directions in which it
# rises and falls, drive $J^2$ to zero at a wrong point, then compute the kernel SVD (KSVD).
#
# **You will learn.** Why $J$ vanishes at every solution, why that proves little, what does tell.
#
# **You need.** Lesson 03, the Hessian of a quadratic form; 60 minutes, and 20 more for
# the exercises.
# %%
from itertools import combinations

import matplotlib.pyplot as plt
import numpy as np
from autograd import grad, hessian

from ksvd_ref import primal
from ksvd_ref.course import datasets, exercises

plt.style.use("ksvd_ref.data.ksvd")
close = lambda a, b, tolerance=1e-12: np.abs(np.subtract(a, b)).max() < tolerance   # eps: 1e-16
# %% [markdown]
# ## 1. Objective and gradient
# A kernel matrix $K = \Phi\Psi^\top$ has row features $\Phi$ $(N, p)$ and column features $\Psi$
# $(M, p)$; weights $W_e, W_r$ $(p, s)$ give the scores $E = \Phi W_e$, $R = \Psi W_r$. The primal
# objective rewards large scores and charges for weights that point the same way. With
# $\Lambda = \mathrm{diag}(\lambda_1, \dots, \lambda_s)$, all positive (K.10),
# $$J = \tfrac12\mathrm{tr}(E\Lambda E^\top) + \tfrac12\mathrm{tr}(R\Lambda R^\top) -
# \mathrm{tr}(W_e^\top W_r),$$
# and its gradient $\nabla J$ is (K.18, V1)
# $$\partial J/\partial W_e = \Phi^\top\Phi W_e\Lambda - W_r, \qquad
# \partial J/\partial W_r = \Psi^\top\Psi W_r\Lambda - W_e.$$
# Only products occur: no singular value decomposition is differentiated. At a solution
# $\nabla J = 0$: singular vectors of $K$, turned to weights, with $\Lambda = \Sigma^{-1}$. Two
# problems: by hand $\Phi = \mathrm{diag}(2, 1)$, $\Psi = I$, with the singular values 2, 1 and the
# axes as singular vectors; and a random one with $p = 4$.
#
# The *residual*, `primal.stationarity`, is the gradient without units: the difference in K.17,
# $\Phi^\top\Phi W_e\Lambda = W_r$, or its mirror, over the sizes of the sides, in the worst column;
# 0 to 1, 0 if solved.
# %%
s_h = np.array([2.0, 1.0])                          # _h: by hand
Phi_h, Psi_h, one = np.diag(s_h), np.eye(2), np.ones((2, 1))
rng, p = np.random.default_rng(0), 4
Phi, Psi = rng.standard_normal((9, p)), rng.standard_normal((7, p))
W_e, W_r = rng.standard_normal((2, p, 3))           # s = 3, no solution
Lambda, residual = np.array([0.3, 0.5, 0.7]), primal.stationarity
g_e, g_r = primal.gradient(W_e, W_r, Lambda, Phi, Psi)
by_autograd = grad(primal.objective, (0, 1))(W_e, W_r, Lambda, Phi, Psi)
assert close(g_e, by_autograd[0]) and close(g_r, by_autograd[1])
# %% [markdown]
# Written out, $J$ is a sum over components, which do not mix (V42), and the gradient has a column
# for each (V43; the other side is the mirror image):
# $$J = \sum_l\Big(\tfrac{\lambda_l}2\sum_i e_{il}^2 + \tfrac{\lambda_l}2\sum_j r_{jl}^2 -
# w_{el}^\top w_{rl}\Big), \qquad
# \frac{\partial J}{\partial w_{el}} = \lambda_l\sum_i e_{il}\,\varphi(x_i) - w_{rl}.$$
# It is compared where $J \ne 0$: at a solution 7 times $J$ would do as well.
# %%
total, columns = 0.0, np.zeros((p, 3))
for l, lam in enumerate(Lambda):
    for x in Phi:
        total += lam / 2 * (x @ W_e[:, l]) ** 2
        columns[:, l] += lam * (x @ W_e[:, l]) * x
    total += sum(lam / 2 * (z @ W_r[:, l]) ** 2 for z in Psi) - W_e[:, l] @ W_r[:, l]
assert abs(total) > 1 and close(primal.objective(W_e, W_r, Lambda, Phi, Psi), total)
assert close(g_e, columns - W_r)
# %% [markdown]
# ## 2. Why J is zero at a solution
# $J$ is a homogeneous quadratic in $W = (W_e, W_r)$: double the weights, and $J$ is four times as
# large. Euler's theorem for such functions holds for **every** $W$ and $\Lambda$ (V2), with
# $\langle\cdot, \cdot\rangle$ the sum of the products of all entries:
# $$J = \tfrac12\langle W, \nabla J\rangle.$$
# Where the gradient vanishes, $J = 0$: the statement of Chen et al. (K.22). The proof asks so
# little that it serves *every* set of singular triplets with $\Lambda = \Sigma^{-1}$, in any order,
# at any scale, even with one repeated (V3): nothing in $J$ prefers the leading ones. From there
# along any $D$, $J(W + tD) = t^2J(D)$: $J$ sees an error $t$ only as $t^2$, the residual as $t$.
#
# Another $\Lambda$ misses zero in general (V4). By hand,
# $J = \sum_l(\lambda_l\sigma_l^2 - \sigma_l)$ is 6 at $\Lambda = \Sigma$, 2 at $I$, $-1$ at
# $\Sigma^{-2}$, and by chance 0 at $\mathrm{diag}(\tfrac14, 2)$.
#
# **A special case.** Let both sides be one, $\Psi = \Phi$ and $W_e = W_r = w$: $J(w, w)$ is twice
# the objective of kernel PCA as a least-squares support vector machine, which has $\gamma$ for
# $\lambda$ and one $w$ per component (K.34, V18):
# $$\tfrac\gamma2\sum_i e_i^2 - \tfrac12w^\top w, \quad e = \Phi w \qquad\Rightarrow\qquad
# K\alpha = \alpha/\gamma, \quad \alpha = \gamma e.$$
# %%
J = primal.objective(W_e, W_r, Lambda, Phi, Psi)
assert close(J, np.sum([W_e * g_e, W_r * g_r]) / 2)                 # Euler
W_e, sigma, W_r = primal.solve(Phi, Psi)
subsets = [list(c) for size in range(1, 5) for c in combinations(range(4), size)]
worst = 0.0
for pick in subsets + [[2, 0], [1, 1, 3]]:          # another order; component 1 twice
    scale = 0.1 + 2.0 * rng.random(len(pick))
    at = W_e[:, pick] * scale, W_r[:, pick] * scale, 1 / sigma[pick], Phi, Psi
    worst = max(worst, abs(primal.objective(*at)), residual(*at))
print(f"largest |J| or residual over the {len(subsets)} subsets and two more: {worst:.1e}")
assert worst < 1e-12
D_e, D_r = rng.standard_normal((2, p, 4))
at = W_e + 1e-4 * D_e, W_r + 1e-4 * D_r, 1 / sigma, Phi, Psi
assert close(primal.objective(*at), 1e-8 * primal.objective(D_e, D_r, *at[2:]))
assert 1e-5 < residual(*at) < 1e-3
for lam, J in ((1 / s_h, 0), (s_h, 6), ([1, 1], 2), (s_h ** -2, -1), ([0.25, 2], 0)):
    assert close(primal.objective(np.eye(2), np.diag(s_h), lam, Phi_h, Psi_h), J)
v = rng.standard_normal((p, 3))                                     # any w, one per gamma
pca = np.sum(Lambda * (Phi @ v) ** 2) / 2 - np.sum(v ** 2) / 2      # gamma = Lambda
assert close(primal.objective(v, v, Lambda, Phi, Phi), 2 * pca)
w, eigenvalues, also_w = primal.solve(Phi, Phi)
alpha = Phi @ w / eigenvalues                                       # gamma = 1 / eigenvalue
assert close(w, also_w) and close(Phi @ (Phi.T @ alpha), alpha * eigenvalues)
# %% [markdown]
# ## 3. Uphill and downhill for ever
# By hand, $\lambda = \tfrac12$: $W_e = (t, 0)$, $W_r = 0$ gives $J = t^2$, and
# $W_e = W_r = (0, t)$ gives $-\tfrac12t^2$ (V8): no maximum, no minimum, a stationary point.
#
# The Hessian tells its kind, for each component
# $$\nabla^2J = \begin{bmatrix}\lambda\Phi^\top\Phi & -I\\ -I & \lambda\Psi^\top\Psi\end{bmatrix}.$$
# With $\Phi, \Psi$ of full column rank, eliminating the first block leaves $p$ positive directions
# and the signs of $\lambda^2\sigma_l^2 - 1$. At $\lambda = 1/\sigma_k$, all $\sigma$ distinct,
# $p+k-1$ directions are positive, 1 zero, $p-k$ negative, the *inertia* (V9): a saddle, for $k = p$
# a flat minimum, **never a maximum**. In general another sequence's
# $\lambda$ leaves only $W = 0$ (V37).
# %%
by_hand = lambda w_e, w_r: primal.objective(w_e, w_r, [0.5], Phi_h, Psi_h)
assert [by_hand([[t], [0]], [[0], [0]]) for t in (1, 100)] == [1, 10_000]
assert [by_hand([[0], [t]], [[0], [t]]) for t in (1, 100)] == [-0.5, -5_000]
J_of = lambda w, lam: primal.objective(w[:p, None], w[p:, None], [lam], Phi, Psi)
other = primal.solve(*rng.standard_normal((2, 9, p))).sigma         # another sequence's
for k, lam in enumerate([1 / other[0], *(1 / sigma)]):
    H, I = hessian(J_of)(np.zeros(2 * p), lam), np.eye(p)           # one Hessian for all W
    assert close(H, np.block([[lam * Phi.T @ Phi, -I], [-I, lam * Psi.T @ Psi]]))
    w = np.linalg.eigvalsh(H)
    inertia = [int(np.sum(part)) for part in (w > 1e-10, abs(w) <= 1e-10, w < -1e-10)]
    print(f"lambda = {lam:.3f}: {inertia} positive, zero, negative directions")
    assert inertia == [p + k - 1, 1, p - k] if k else inertia[1] == 0
# %% J as a map of two weights: a saddle, rising along one diagonal, falling along the other
x = np.linspace(-3, 3, 61)
plane = [[by_hand([[1], [e]], [[2], [r]]) for e in x] for r in x]
figure, ax = plt.subplots(figsize=(5.4, 4.0))
image = ax.contourf(x, x, plane, np.linspace(-5, 5, 21), cmap="RdBu_r", extend="both")
ax.contour(x, x, plane, [0.0], colors="k")
ax.plot(0, 0, "o", color="k", markerfacecolor="w", markersize=9)
ax.set(title="J around the leading solution: a saddle", aspect="equal",
       xlabel=r"second entry of $W_e$", ylabel=r"second entry of $W_r$")
figure.colorbar(image, label="J", ticks=[-4, -2, 0, 2, 4])
plt.show()
# %% [markdown]
# The circle is the leading solution by hand, $W_e = (1, 0)$, $W_r = (2, 0)$, $\lambda = \tfrac12$.
# Black is $J = 0$: two lines full of points that lie on a slope.
#
# ## 4. J = 0 is not enough
# One equation cannot do the work of $2ps$ (V5). By hand, $W_e = W_r = (1, 1)$,
# $\lambda = \tfrac47$: $J = \tfrac12\cdot\tfrac47(5 + 2) - 2 = 0$, but the gradients are
# $(\tfrac97, -\tfrac37)$ and $(-\tfrac37, -\tfrac37)$, and $1/\lambda = 1.75$ is no singular value.
#
# Stationarity in $\Lambda$ does not help (V6). With the columns $e_l, r_l$ of $E, R$,
# $$\partial J/\partial\lambda_l = \tfrac12(\|e_l\|^2 + \|r_l\|^2) \ge 0$$
# is zero only where both scores vanish; at the solution by hand it is 4 and 1. And where several
# heads have a $J$ each, say 1 and $-1$, averaging before squaring lets them cancel (V7).
# %%
assert close(primal.objective(one, one, [4 / 7], Phi_h, Psi_h), 0.0)
g_e, g_r = primal.gradient(one, one, [4 / 7], Phi_h, Psi_h)
assert close(g_e, [[9 / 7], [-3 / 7]]) and close(g_r, [[-3 / 7], [-3 / 7]])
assert residual(one, one, [4 / 7], Phi_h, Psi_h) > 0.3
assert residual(0 * one, 0 * one, [4 / 7], Phi_h, Psi_h) == 0.0
beside = np.diag([1.0, 0.0]), np.diag([2.0, 0.0])   # the leading solution and a column of zeros
assert not np.any(primal.gradient(*beside, [1 / 2, 5.0], Phi_h, Psi_h))             # any lambda
assert close(grad(primal.objective, 2)(np.eye(2), np.diag(s_h), 1 / s_h, Phi_h, Psi_h), [4, 1])
heads = [by_hand([[1], [0]], [[0], [0]]), by_hand([[0], [2 ** 0.5]], [[0], [2 ** 0.5]])]
assert close(heads, [1, -1]) and close(np.mean(heads) ** 2, 0) and np.mean(np.square(heads)) > 0.9


# %% [markdown]
# An optimiser finds such points. The gradient of $J^2$ is $2J\,\nabla J$, which dies wherever $J$
# does. Descend over $W$ and $\log\Lambda$ (so $\Lambda > 0$), $s = 3$, from three starts; and
# again with $\Lambda$ held at the right $1/\sigma_1, 1/\sigma_2, 1/\sigma_3$.
# %%
def descend(seed, log_Lambda, learn, step=6e-3):
    W_e, W_r = np.random.default_rng(seed).standard_normal((2, p, 3))
    trace = []
    for _ in range(500):
        at = W_e, W_r, np.exp(log_Lambda), Phi, Psi
        J, (g_e, g_r), E, R = primal.objective(*at), primal.gradient(*at), Phi @ W_e, Psi @ W_r
        trace.append([J ** 2, residual(*at)])
        g_log = np.exp(log_Lambda) * np.sum(np.r_[E, R] ** 2, axis=0) / 2       # V6
        W_e, W_r = W_e - step * 2 * J * g_e, W_r - step * 2 * J * g_r
        log_Lambda = log_Lambda - learn * step * 2 * J * g_log
    return np.array(trace)


learned = np.array([descend(seed, np.log([0.3] * 3), 1) for seed in range(3)])
given = np.array([descend(seed, -np.log(sigma[:3]), 0) for seed in range(3)])
for name, runs in (("learned", learned), ("given", given)):
    J2, gap = runs[:, -1].T
    print(f"Lambda {name}: J^2 at most {J2.max():.0e}, residual {gap.min():.2f} to {gap.max():.2f}")
    assert J2.max() < 1e-12 and 0.5 < gap.min() and gap.max() < 1
# %% Three descents on a log axis: J squared falls to zero, the residual ends at 0.5 to 1
figure, ax = plt.subplots(figsize=(6.0, 3.4))
ax.semilogy(learned[:, :, 0].T, "C0", label=["$J^2$", None, None])
ax.semilogy(learned[:, :, 1].T, "C1--", label=["residual", None, None])
ax.set(title="Three starts: $J^2$ falls to 0, the residual does not", xlabel="step", ylabel="value",
       ylim=(1e-20, 1e4))
ax.legend()
plt.show()
# %% [markdown]
# $J^2$ sinks to points that are no solutions, even when the right $\Lambda$ is given. The right
# test is $\nabla J = 0$ (K.18) itself, in $O((N + M)ps)$ without $K$. Columns of zeros pass it too,
# all of them ($W = 0$) or one beside solved ones: ask for $s$ columns that are not zero.
#
# ## 5. What does work, on an attention head
# A variational form that is bounded (V10): over $A^\top A = B^\top B = I$,
# $$\max\,\mathrm{tr}(A^\top KB) = \sigma_1 + \dots + \sigma_s.$$
# For fixed $B$ the best $A$ spans $KB$, for fixed $A$ the best $B$ spans $K^\top A$. Taking turns,
# with $W_e = \Psi^\top B$ for $B$, is **subspace iteration** (K.40, V32), with neither $K$ nor
# $\Lambda$; orth makes the columns orthonormal:
# $$W_e \leftarrow \mathrm{orth}(\Psi^\top\Psi\,\Phi^\top\Phi\,W_e).$$
# It tends to the *span* of the leading $s$ weights, not to each of them, from any start of which no
# direction is orthogonal to that span. The error shrinks by $(\sigma_{s+1}/\sigma_s)^2$ per step.
# Take a pretrained MiniLM head, whose queries $q$ and keys $k$ make $\varphi = q/d^{1/4}$,
# $\psi = k/d^{1/4}$, $p = d = 32$.
# %%
orth = lambda A: np.linalg.qr(A)[0]
trace = lambda A, B: np.sum((Phi.T @ A) * (Psi.T @ B))              # tr(A^T K B)
Q, K, _ = datasets.minilm_heads()
Phi, Psi = Q[5, 0] / 32 ** 0.25, K[5, 0] / 32 ** 0.25               # last layer, head 0: (64, 32)
W_e, sigma, W_r = exact = primal.solve(Phi, Psi, 5)
H_e, _, H_r = primal.to_dual(exact, Phi, Psi)
best = max(trace(*map(orth, rng.standard_normal((2, 64, 5)))) for _ in range(300))
print(f"tr(A^T K B): {trace(H_e, H_r):.1f} at the solution, {best:.1f} at the best of 300 others")
assert close(trace(H_e, H_r), np.sum(sigma), 1e-11) and best < np.sum(sigma)
for s, rate in enumerate((sigma[1:] / sigma[:-1]) ** 2, 1):
    W, target, sine = rng.standard_normal((32, s)), orth(W_e[:, :s]), []
    while len(sine) < 60 and min(sine, default=1.0) > 1e-11:
        W = orth(Psi.T @ (Psi @ (Phi.T @ (Phi @ W))))
        sine.append(np.linalg.norm(W - target @ (target.T @ W), 2))     # of the largest angle
    print(f"s = {s}: rate {rate:.3f} predicted, {sine[-1] / sine[-2]:.3f} measured")
    assert abs(sine[-1] / sine[-2] / rate - 1) < 0.05


# %% [markdown]
# The rate is the predicted one; $s = 4$ is slow since $\sigma_5$ is close to $\sigma_4$.
#
# ## 6. A loss that has the kernel SVD as its minimum
# Two factors $A, B$ $(p, s)$ make an approximation of $K$ of rank $s$, $\Phi A(\Psi B)^\top$. Its
# error is bounded below, and with $E = \Phi A$, $R = \Psi B$ it costs what $J$ costs (K.41):
# $$L = \tfrac12\|K - ER^\top\|^2 - \tfrac12\|K\|^2 =
# \tfrac12\langle E^\top E, R^\top R\rangle - \langle\Phi^\top E, \Psi^\top R\rangle.$$
# By Eckart and Young the minimum is $-\tfrac12(\sigma_1^2 + \dots + \sigma_s^2)$, at the $s$
# leading components and nowhere else. Any other $s$ components are stationary too, but a way down
# leads from there (K.42). The minimum fixes a pair of spans; QR decompositions of $E$ and $R$ and
# a small SVD turn them into the vectors (K.43).


# %%
def missed(E, R):
    """Share of |K|^2 outside the spans of E and R, beyond what five components must miss."""
    inside = (Phi.T @ orth(E)).T @ (Psi.T @ orth(R))            # Q_e^T K Q_r
    return 1 - np.sum(inside ** 2) / norm_2 - least


norm_2 = np.sum((Phi.T @ Phi) * (Psi.T @ Psi))                  # |K|^2
least = 1 - np.sum(sigma ** 2) / norm_2
A, B = rng.standard_normal((2, 32, 5))
for _ in range(300):                                            # the best A for B, the best B for A
    A = np.linalg.solve((Psi @ B).T @ (Psi @ B), (Psi @ B).T @ Psi).T
    B = np.linalg.solve((Phi @ A).T @ (Phi @ A), (Phi @ A).T @ Phi).T
print(f"missed by A and B: {primal.missed_share(A, B, Phi, Psi):.4f}, at best {least:.4f}")
assert close(primal.approximation_loss(A, B, Phi, Psi), -np.sum(sigma ** 2) / 2, 1e-9)
for found, want in zip(primal.from_factors(A, B, Phi, Psi), exact):
    assert close(found, want, 1e-9)
# %% [markdown]
# From the same three starts: descend $J^2$ with the right $\Lambda$ in hand, descend $L$, and raise
# the trace of section 5 by polar factors, $A \leftarrow \mathrm{polar}(KB)$,
# $B \leftarrow \mathrm{polar}(K^\top A)$ (K.44). What counts is the share of $K$ that the two spans
# miss, beyond the least that five components must miss. $J$ itself runs away.


# %%
def polar(S):
    U, _, Vt = np.linalg.svd(S, full_matrices=False)
    return U @ Vt


def three_ways(seed, steps=400):
    A, B = W, V = np.random.default_rng(seed).standard_normal((2, 32, 5)) / 10
    a, b = orth(Phi @ A), orth(Psi @ B)
    rows = []
    for _ in range(steps):
        J = primal.objective(W, V, 1 / sigma, Phi, Psi)
        g = primal.gradient(W, V, 1 / sigma, Phi, Psi)
        rows.append([missed(Phi @ W, Psi @ V), missed(Phi @ A, Psi @ B), missed(a, b)])
        W, V = W - 1e-2 * J * g[0], V - 1e-2 * J * g[1]
        g = primal.approximation_gradient(A, B, Phi, Psi)
        A, B = A - 3e-5 * g[0], B - 3e-5 * g[1]
        a = polar(Phi @ (Psi.T @ b))
        b = polar(Psi @ (Phi.T @ a))
    return rows, J


runs, J = zip(*(three_ways(seed) for seed in range(3)))
runs = np.array(runs)
assert max(map(abs, J)) < 1e-3 and np.all(runs[:, -1, 0] > 10 * runs[:, -1, 1])
assert np.all(runs[:, -1, 2] < 1e-6)
W = np.ones((2, 32, 5))                                         # up the slope of J: no end
for _ in range(50):
    W = W + 1e-2 * np.array(primal.gradient(*W, 1 / sigma, Phi, Psi))
assert primal.objective(*W, 1 / sigma, Phi, Psi) > 1e6
# %% Three ways on a log axis: J squared misses most of K, L sinks, polar steps reach rounding
figure, ax = plt.subplots(figsize=(6.0, 3.4))
for way, (colour, name) in enumerate((("C0", "$J^2$"), ("C1", "$L$"), ("C2", "trace"))):
    ax.semilogy(np.maximum(runs[:, :, way].T, 1e-16), colour, label=[name, None, None])
ax.set(title="What the spans miss: $J^2$ stays, $L$ and the trace go to the best", xlabel="step",
       ylabel="share of $K$ beyond the least")
ax.legend()
plt.show()
# %% [markdown]
# $J^2$ is zero and the spans are anywhere. $L$ goes down to the leading components, slowly along
# components of nearly equal $\sigma$; polar steps converge as subspace iteration does. For several
# sequences with one $W$, the mean of their $J$ is stationary at the solution of all features
# stacked, with $\Lambda = n\Sigma^{-1}$: $J$ sees only the pooled $\Phi^\top\Phi$ and
# $\Psi^\top\Psi$ (K.48).
# %%
n, stacked = 3, np.concatenate([c * Phi for c in (1, 2, 3)])
S = primal.solve(stacked, np.tile(Psi, (3, 1)))
pooled = S.W_e[:, :5], S.W_r[:, :5], n / S.sigma[:5]
slopes = [primal.gradient(*pooled, c * Phi, Psi) for c in (1, 2, 3)]
assert close(np.mean(slopes, axis=0), 0, 1e-9) and np.abs(slopes[0]).max() > 1


# %% [markdown]
# **The published statement, fairly put.** Chen et al. write a maximum, state that $J = 0$ at its
# stationary points, and add $\eta J^2$ to the training loss. True remains: every KSVD has $J = 0$,
# and $J^2$ is cheap and smooth. It is a **regulariser**: $J = 0$ does not make a KSVD.
#
# ## Exercises
# Each check says what is wrong. `ksvd-ref check FILE` marks a whole file.
# %% [markdown]
# **E4.1** (about 2 lines) Predict, then run: which $c > 0$ gives $J(W, c\Lambda) = 0$, for
# weights with $\mathrm{tr}(W_e^\top W_r) > 0$?
# %%
def zero_factor(W_e, W_r, Lambda, Phi, Psi):
    raise NotImplementedError("Exercise 4.1: the factor of Lambda that makes J zero")


# %%
exercises.check("4.1", zero_factor)


# %% [markdown]
# **E4.2** (about 4 lines, a proof by numbers) The inertia at full column rank, any $\lambda > 0$.
# %%
def inertia_of(lam, sigma):
    raise NotImplementedError("Exercise 4.2: (positive, zero, negative), from lam and sigma alone")


# %%
exercises.check("4.2", inertia_of)


# %% [markdown]
# **E4.3** (about 6 lines) Iterate with $s$ + `extra` columns. Then the SVD of
# $K^\top A = \Psi(\Phi^\top A)$, $A = \mathrm{orth}(\Phi W_e)$, turns $A$ into $H_e$.
# %%
def leading(Phi, Psi, s, extra, steps, seed=0):
    raise NotImplementedError("Exercise 4.3: W_e, sigma, W_r of the s leading components")


# %%
exercises.check("4.3", leading)
# %% [markdown]
# Three questions without code.
#
# 1. $\Phi v = 0$, $v \ne 0$: along which $W$ does $J$ fall for ever, whatever $\Lambda$?
# 2. Where does $J(W + tD) = t^2J(D)$ need $\nabla J(W) = 0$?
# 3. One $W, \Lambda$ for many sequences, each with its own $K$: when is $\nabla J = 0$ for all?
#
# *Where this is used.* Lessons 11 and 12: the penalty $J^2$, and what it does in training.
#
# *Further reading.* Chen, Tao, Tonin, Suykens, Primal-Attention, NeurIPS 2023 (arXiv 2305.19798).
# Suykens, SVD revisited, ACHA 40(3), 2016, 600-609. Golub, Van Loan, *Matrix Computations*.
