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


def descend(seed, log_Lambda, learn_Lambda, step=4e-3):
    (W_e, W_r), trace = np.random.default_rng(seed).standard_normal((2, p, 3)), []
    for _ in range(400):
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
    assert J2.max() < 1e-9 and gap.min() > 0.7

figure, (left, right) = plt.subplots(1, 2, figsize=(8.0, 3.4))
for run, style in zip(learned, "-:."):
    pass
