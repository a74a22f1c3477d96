# %% [markdown]
# # The primal objective is a saddle, and J = 0 is not yet the KSVD
# **You will do.** Find the zeros of the primal objective $J$, count the directions in which it rises
# and falls, drive $J^2$ to zero at a wrong point, and compute the KSVD from the primal side properly.
#
# **You will learn.** Why $J$ vanishes at every solution, why that proves little, and what does tell a
# solution. **You need.** Lessons 03 and 04, the Hessian of a quadratic form, 40 minutes.

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


def close(a, b, tolerance=1e-12):       # rounding of short sums of numbers below 100: about 1e-14
    return np.abs(np.subtract(a, b)).max() < tolerance


# %% [markdown]
# ## 1. Objective and gradient
# $K = \Phi\Psi^\top$ has row features $\Phi$ ($N \times p$) and column features $\Psi$ ($M \times p$);
# weights $W_e, W_r$ ($p \times s$) make scores $E = \Phi W_e$, $R = \Psi W_r$. The primal objective
# rewards large scores, component $l$ with weight $\lambda_l > 0$, and charges for $W_e$ and $W_r$
# pointing the same way. With $\Lambda = \mathrm{diag}(\lambda_1, \dots, \lambda_s)$ (K.10, K.18):
# $$J = \tfrac12\mathrm{tr}(E\Lambda E^\top) + \tfrac12\mathrm{tr}(R\Lambda R^\top)
# - \mathrm{tr}(W_e^\top W_r), \qquad \partial J/\partial W_e = \Phi^\top\Phi W_e\Lambda - W_r, \quad
# \partial J/\partial W_r = \Psi^\top\Psi W_r\Lambda - W_e.$$
# A small remark: only matrix products occur. Training with $J$ differentiates no SVD at all, so it
# never divides by $\sigma_i^2 - \sigma_j^2$ as the derivative of singular vectors does.
#
# Two problems accompany us: one by hand, $\Phi = \mathrm{diag}(2, 1)$, $\Psi = I$, with $\sigma = 2, 1$
# and the axes as singular vectors; and a random one with $p = 4$.

# %%
Phi_h, Psi_h = np.diag([2.0, 1.0]), np.eye(2)
rng, p = np.random.default_rng(0), 4
Phi, Psi = rng.standard_normal((9, p)), rng.standard_normal((7, p))
W_e, W_r, Lambda = *rng.standard_normal((2, p, 3)), np.array([0.3, 0.5, 0.7])
g_e, g_r = primal.gradient(W_e, W_r, Lambda, Phi, Psi)
assert close((g_e, g_r), grad(primal.objective, (0, 1))(W_e, W_r, Lambda, Phi, Psi))

# %% [markdown]
# ## 2. Why J is zero at a solution
# $J$ is a homogeneous quadratic in $W = (W_e, W_r)$: double the weights and $J$ is four times as large.
# Euler's theorem for such functions holds for **every** $W$ and $\Lambda$:
# $$J = \tfrac12\langle W, \nabla J\rangle = \tfrac12\langle W_e, \partial J/\partial W_e\rangle
# + \tfrac12\langle W_r, \partial J/\partial W_r\rangle.$$
# Where the gradient vanishes, $J = 0$ (K.22; Lemma 4.2 of Chen et al., by a shorter road). The proof asks
# so little that it holds at *every* set of singular triplets with $\Lambda = \Sigma^{-1}$, in any order,
# at any scale, even with a component repeated: nothing in $J$ prefers the leading ones.


# %%
def residual(W_e, W_r, Lambda, Phi, Psi):           # |grad J| / |W|: blind to the scale of W
    return np.linalg.norm(primal.gradient(W_e, W_r, Lambda, Phi, Psi)) / np.linalg.norm([W_e, W_r])


J = primal.objective(W_e, W_r, Lambda, Phi, Psi)
assert close(J, 0.5 * np.sum(W_e * g_e) + 0.5 * np.sum(W_r * g_r)) and J > 1.0
W_e, sigma, W_r = primal.solve(Phi, Psi)
subsets = [list(c) for size in range(1, 5) for c in combinations(range(4), size)]
worst = 0.0
for pick in subsets + [[2, 0], [1, 1, 3]]:          # another order; component 1 twice
    scale = 0.1 + 2.0 * rng.random(len(pick))
    at = W_e[:, pick] * scale, W_r[:, pick] * scale, 1 / sigma[pick], Phi, Psi
    worst = max(worst, abs(primal.objective(*at)), residual(*at))
assert len(subsets) == 15 and worst < 1e-12
print(f"largest |J| or residual over the {len(subsets)} subsets and two more: {worst:.1e}")

# Lambda = 1/Sigma is needed. By hand, W_e = I, W_r = diag(2, 1) with Lambda = 1/Sigma, Sigma, I, ...:
s_h = np.array([2.0, 1.0])
for Lambda, J in ((1 / s_h, 0), (s_h, 6), (s_h ** 0, 2), (s_h ** -2, -1), (s_h ** -0.5, 8 ** 0.5 - 2)):
    assert close(primal.objective(np.eye(2), np.diag(s_h), Lambda, Phi_h, Psi_h), J)

# %% [markdown]
# ## 3. Uphill and downhill for ever
# By hand, $\lambda = \tfrac12$: $W_e = (t, 0)$, $W_r = 0$ gives $J = t^2$, and $W_e = W_r = (0, t)$ gives
# $-\tfrac12t^2$. So neither max nor min of $J$ exists; what the derivation writes as a maximum is a
# stationary point. Its kind is read off the Hessian, for each direction
# $$\nabla^2J = \begin{bmatrix}\lambda\Phi^\top\Phi & -I\\ -I & \lambda\Psi^\top\Psi\end{bmatrix}.$$
# With $\Phi, \Psi$ of full column rank, eliminating the first block leaves $p$ positive directions and the
# signs of $\lambda^2\sigma_l^2 - 1$. At $\lambda = 1/\sigma_k$, $\sigma$ distinct, that is $(p+k-1, 1, p-k)$
# positive, zero and negative directions: a saddle, or for $k = p$ a flat minimum, **never a maximum**. And
# where $1/\lambda$ is no singular value the Hessian is regular: $W = 0$ is the only stationary point.

# %%
for t in (1.0, 100.0):
    J_up = primal.objective([[t], [0.0]], [[0.0], [0.0]], [0.5], Phi_h, Psi_h)
    J_down = primal.objective([[0.0], [t]], [[0.0], [t]], [0.5], Phi_h, Psi_h)
    assert close(J_up / t ** 2, 1.0) and close(J_down / t ** 2, -0.5)


def curvatures(lam):                                # J is quadratic: its Hessian is the same everywhere
    H = hessian(lambda w: primal.objective(w[:p, None], w[p:, None], [lam], Phi, Psi))(np.ones(2 * p))
    assert close(H, np.block([[lam * Phi.T @ Phi, -np.eye(p)], [-np.eye(p), lam * Psi.T @ Psi]]))
    return np.linalg.eigvalsh(H)


for k in range(1, p + 1):
    w = curvatures(1 / sigma[k - 1])
    inertia = [int(np.sum(part)) for part in (w > 1e-10, abs(w) <= 1e-10, w < -1e-10)]
    print(f"lambda = 1/sigma_{k}: {inertia} positive, zero, negative directions")
    assert inertia == [p + k - 1, 1, p - k]
assert abs(curvatures(0.37)).min() > 0.2            # no singular value is 1/0.37 = 2.7

# By hand, at the top pair W_e = (1, 0), W_r = (2, 0), the two coordinates do not interact: a picture.
x = np.linspace(-3, 3, 61)
by_hand = lambda w_e, w_r: primal.objective(w_e, w_r, [0.5], Phi_h, Psi_h)
planes = [[[by_hand([[e], [0]], [[r], [0]]) for e in x] for r in x],
          [[by_hand([[1], [e]], [[2], [r]]) for e in x] for r in x]]
assert close(planes, [(x - x[:, None] / 2) ** 2, (x ** 2 + x[:, None] ** 2) / 4 - x * x[:, None]])
figure, axes = plt.subplots(1, 2, figsize=(8.0, 3.8))
for n, (ax, plane, title) in enumerate(zip(axes, planes, ("first coordinate: a valley",
                                                          "second coordinate: a saddle")), 1):
    image = ax.contourf(x, x, plane, np.linspace(-10, 10, 21), cmap="RdBu_r", extend="both")
    ax.set(title=title, xlabel=f"$W_{{e{n}}}$", ylabel=f"$W_{{r{n}}}$", aspect="equal")
axes[0].plot([-1.5, 1.5], [-3, 3], "k")             # J touches 0 here, a contour would not find it
axes[1].contour(x, x, planes[1], [0.0], colors="k")
for ax, (e, r) in zip(axes, ((1, 2), (0, 0))):
    ax.plot(e, r, "o", color="k", markerfacecolor="w", markersize=8)
figure.colorbar(image, ax=axes, label="J")
plt.show()

# %% [markdown]
# Black is $J = 0$, the circle the solution. Left, the whole line is solutions (any scale). Right, the two
# black lines are full of points with $J = 0$ on a slope.
#
# ## 4. J = 0 is not enough
# One equation cannot do the work of $2ps$. By hand, $W_e = W_r = (1, 1)$, $\lambda = \tfrac47$:
# $J = \tfrac12\cdot\tfrac47(5 + 2) - 2 = 0$, but the gradients are $(\tfrac97, -\tfrac37)$ and
# $(-\tfrac37, -\tfrac37)$, and $1/\lambda = 1.75$ is no singular value. An optimiser finds such points. Here
# is gradient descent on $J^2$ over $W$ and $\log\Lambda$ (which keeps $\Lambda$ positive), three components,
# from three starts; and once more with $\Lambda$ held at the right $1/\sigma_1, 1/\sigma_2, 1/\sigma_3$.


# %%
def loss(W_e, W_r, log_Lambda):
    return primal.objective(W_e, W_r, anp.exp(log_Lambda), Phi, Psi) ** 2


def descend(seed, log_Lambda, learn_Lambda, step=6e-3):
    (W_e, W_r), trace = np.random.default_rng(seed).standard_normal((2, p, 3)), []
    for _ in range(500):
        at = W_e, W_r, np.exp(log_Lambda), Phi, Psi
        trace.append([primal.objective(*at) ** 2, residual(*at), *np.exp(-log_Lambda)])
        d_e, d_r, d_Lambda = grad(loss, (0, 1, 2))(W_e, W_r, log_Lambda)
        W_e, W_r = W_e - step * d_e, W_r - step * d_r
        log_Lambda = log_Lambda - learn_Lambda * step * d_Lambda
    return np.array(trace)


one = np.ones((2, 1))
assert close(primal.objective(one, one, [4 / 7], Phi_h, Psi_h), 0.0)
assert close(primal.gradient(one, one, [4 / 7], Phi_h, Psi_h), [[[9 / 7], [-3 / 7]], [[-3 / 7]] * 2])
learned = [descend(seed, np.log([0.3] * 3), 1) for seed in range(3)]
given = [descend(seed, -np.log(sigma[:3]), 0) for seed in range(3)]
for name, runs in (("learned", learned), ("given", given)):
    J2, gap = np.array([run[-1, :2] for run in runs]).T
    print(f"Lambda {name}: J^2 at most {J2.max():.0e}, KKT residual at least {gap.min():.2f}")
    assert J2.max() < 1e-12 and gap.min() > 0.7

figure, (left, right) = plt.subplots(1, 2, figsize=(8.0, 3.4))
for n, run in enumerate(learned):
    left.semilogy(run[:, 0] + 1e-32, "C0", label=None if n else "$J^2$")        # 0 has no logarithm
    left.semilogy(run[:, 1], "C1", label=None if n else r"$|\nabla J|\,/\,|W|$")
left.set(title="$J^2$ falls, the KKT residual stays", xlabel="step", ylim=(1e-33, 1e5))
left.legend()
right.plot(learned[0][:, 2:], "C0", label=[r"learned $1/\lambda_l$", None, None])
right.hlines(sigma[:3], 0, 500, "k", "--", label=r"$\sigma_1, \sigma_2, \sigma_3$")
right.set(title=r"first start: $1/\lambda$ does not find $\sigma$", xlabel="step", yscale="log")
right.legend()
plt.show()

# %% [markdown]
# $J^2$ sinks to rounding level while the residual never comes near zero. The right test is the
# residual of K.18 itself, $\nabla J = 0$, at $O((N + M)ps)$ and still without $K$.
#
# $\Lambda$ cannot be left to the optimiser: $\partial J/\partial\lambda_l = \tfrac12(\|e_l\|^2 + \|r_l\|^2)
# \ge 0$, so stationarity in $\lambda_l$ would ask that both scores vanish. And if the heads of a layer are
# averaged before squaring, they can cancel: $\mathrm{mean}(J)^2 \le \mathrm{mean}(J^2)$.

# %%
top = np.array([[1.0], [0.0]]), np.array([[2.0], [0.0]])
assert close(grad(primal.objective, 2)(*top, np.array([0.5]), Phi_h, Psi_h), 4.0)
heads = np.array([by_hand([[1], [0]], [[0], [0]]), by_hand([[0], [2 ** 0.5]], [[0], [2 ** 0.5]])])
assert close(heads, [1.0, -1.0]) and close(heads.mean() ** 2, 0.0) and close(np.mean(heads ** 2), 1.0)

# %% [markdown]
# ## 5. What does work, on an attention head
# Queries and keys of a pretrained MiniLM head, $\Phi = Q/d^{1/4}$, $\Psi = K/d^{1/4}$, $p = d = 32$, so
# that $\Phi\Psi^\top$ holds the logits. First $J$ itself. Around a solution $W$ it is exactly
# $J(W + tD) = t^2J(D)$: the solution cannot be told from the origin by $J$, and an error $t$ shows in the
# residual as $t$, in $J$ only as $t^2$.

# %%
data = datasets.minilm_heads()
Phi, Psi = data.Q[5, 0] / 32 ** 0.25, data.K[5, 0] / 32 ** 0.25
exact = primal.solve(Phi, Psi, 5)
W_e, sigma, W_r = exact
D_e, D_r = rng.standard_normal((2, 32, 5)) * np.std(W_e)
J_D, scale = primal.objective(D_e, D_r, 1 / sigma, Phi, Psi), np.sum(sigma)         # tr(W_e^T W_r)
for t in (0.0, 1e-3, 1e-1):
    at = W_e + t * D_e, W_r + t * D_r, 1 / sigma, Phi, Psi
    print(f"t = {t:5.3f}: J / sum(sigma) = {primal.objective(*at) / scale:8.1e}, "
          f"residual = {residual(*at):.1e}")
    assert close(primal.objective(*at) / scale, t ** 2 * J_D / scale, 1e-11)
assert residual(*at) > 0.01 > 1e-12 > residual(W_e, W_r, 1 / sigma, Phi, Psi)

# %% [markdown]
# A variational form that is bounded: with $A^\top A = B^\top B = I$ ($s$ columns),
# $\max \mathrm{tr}(A^\top KB) = \sigma_1 + \dots + \sigma_s$. For fixed $B$ the best $A$ spans $KB = E$, for
# fixed $A$ the best $B$ spans $K^\top A = R$. Taking turns, with $W_e = \Psi^\top B$ in place of $B$, is
# **subspace iteration** (K.40), $W_e \leftarrow \mathrm{orth}(\Psi^\top\Psi\,\Phi^\top\Phi\,W_e)$: no $K$, no
# $\Lambda$, and the error shrinks by $(\sigma_{s+1}/\sigma_s)^2$ per step.

# %%
orth = lambda A: np.linalg.qr(A)[0]
H_e, _, H_r = primal.to_dual(exact, Phi, Psi)
value = lambda A, B: np.sum((Phi.T @ A) * (Psi.T @ B))                              # tr(A^T K B)
pairs = [[orth(rng.standard_normal((64, 5))) for _ in "AB"] for _ in range(1000)]
best = max(value(A, B) for A, B in pairs)
assert close(value(H_e, H_r), scale, 1e-11) and best < 0.5 * scale
print(f"tr(A^T K B): {scale:.1f} at the solution, best of 1000 random pairs {best:.1f}")

figure, ax = plt.subplots(figsize=(6.0, 3.6))
for s in (1, 2, 3, 4):
    W, target, sine = rng.standard_normal((32, s)), orth(exact.W_e[:, :s]), []
    while len(sine) < 30 and (not sine or sine[-1] > 1e-11):
        W = orth(Psi.T @ (Psi @ (Phi.T @ (Phi @ W))))
        sine.append(np.linalg.norm(W - target @ (target.T @ W), 2))                 # largest angle
    rate, seen = (sigma[s] / sigma[s - 1]) ** 2, sine[-1] / sine[-2]
    print(f"s = {s}: (sigma_{s + 1}/sigma_{s})^2 = {rate:.3f}, measured {seen:.3f}")
    assert abs(seen / rate - 1) < 0.01
    steps = np.arange(1, len(sine) + 1)
    ax.semilogy(steps, sine, "o", color=f"C{s - 1}", label=f"s = {s}")
    ax.semilogy(steps, sine[-1] * rate ** (steps - steps[-1]), color=f"C{s - 1}", linewidth=0.8)
ax.set(title="Subspace iteration: dots measured, lines the predicted rate", xlabel="step",
       ylabel="sine of the largest angle", ylim=(1e-12, 10))
ax.legend(loc="lower right")
plt.show()

# %% [markdown]
# The dots settle on the predicted slopes; $s = 4$ is slow because $\sigma_5$ nearly equals $\sigma_4$.
# Carrying a few more columns than wanted cures that (exercise 5.3).
#
# **The published statement, fairly put.** Chen et al. write the primal as a maximum, prove $J = 0$ at its
# stationary points, and add $\eta J^2$ to the training loss. What remains true: every KSVD has $J = 0$;
# $J^2$ is cheap and smooth; it balances the two score terms against $\mathrm{tr}(W_e^\top W_r)$. It is a
# **regulariser**, one equation out of $2ps$. A trained layer with $J = 0$ need not be a KSVD: look at the
# residual.

# %% [markdown]
# ## Exercises
# Load the checks with `check = runpy.run_path(str(HERE / "solutions" / "05_the_objective_is_a_saddle.py"))`
# (after `import runpy`), then call `check["check_5_1"](zero_factor)`, and so on.
#
# **E5.1** (predict, then run; 1 or 2 lines) $\mathrm{tr}(W_e^\top W_r) > 0$. Which $c$ makes
# $J(W, c\Lambda) = 0$?  **E5.2** (about 3 lines) Full column rank, any $\lambda > 0$: the numbers of
# positive, zero and negative directions of the Hessian, from $\lambda$ and $\sigma$ alone.
# **E5.3** (about 6 lines) Subspace iteration with $s$ + `extra` columns, then an exact finish: with
# $A = \mathrm{orth}(\Phi W_e)$, the SVD of $K^\top A$ (as $\Psi(\Phi^\top A)$) turns $A$ into $H_e$.


# %%
def zero_factor(W_e, W_r, Lambda, Phi, Psi):
    raise NotImplementedError("Exercise 5.1: the factor of Lambda that makes J zero")


def inertia_of(lam, sigma):
    raise NotImplementedError("Exercise 5.2: (positive, zero, negative), from lam * sigma against 1")


def leading(Phi, Psi, s, extra, steps, seed=0):
    raise NotImplementedError("Exercise 5.3: W_e, sigma, W_r of the s leading components")


# %% [markdown]
# **Questions.** (a) $\Phi v = 0$ for some $v \ne 0$: along which $W$ does $J$ fall without bound, whatever
# $\Lambda$? (b) Where does $J(W + tD) = t^2J(D)$ need $\nabla J(W) = 0$? (c) One $W$ and one $\Lambda$ serve
# many sequences, each with its own $K$. When can the gradient vanish for all of them?
#
# **Where this is used.** $J^2$ is the penalty of Primal-Attention (lessons 09 and 10); subspace iteration
# with spare columns is how large kernels are handled (lesson 06).
#
# **Further reading.** Chen, Tao, Tonin, Suykens, Primal-Attention, NeurIPS 2023 (arXiv 2305.19798).
# Suykens, SVD revisited, ACHA 40(3), 2016, 600-609. Golub, Van Loan, Matrix Computations (subspace
# iteration). Halko, Martinsson, Tropp, SIAM Review 53(2), 2011, 217-288 (spare columns).
