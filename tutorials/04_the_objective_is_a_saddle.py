# %% [markdown]
# # The primal objective is a saddle, and J = 0 is not yet the kernel SVD
# **You will do.** Find the zeros of the primal objective $J$, count its rising and falling
# directions, drive $J^2$ to zero at a wrong point, and then find the kernel SVD by descent.
#
# **You will learn.** Why $J = 0$ at a solution proves little, and which loss does have the leading
# components as its minimum.
#
# **You need.** Lesson 03: scores $E = \Phi W_e$, $R = \Psi W_r$, weights $W_e = \Psi^\top H_r$ and
# $W_r = \Phi^\top H_e$. The Hessian of a quadratic form; 55 minutes, and 20 more for the exercises.
# %%
import matplotlib.pyplot as plt
import numpy as np
from autograd import grad, hessian

from ksvd_ref import primal
from ksvd_ref.course import datasets, exercises

plt.style.use("ksvd_ref.data.ksvd")


def close(a, b, tolerance=1e-12):
    return np.abs(np.subtract(a, b)).max() < tolerance          # eps is 2e-16


# %% [markdown]
# ## 1. Objective and gradient
# The objective of lesson 02 rewards large scores and charges for equal directions. With
# $\Lambda = \mathrm{diag}(\lambda_1, \dots, \lambda_s)$, all positive,
#
# $$J = \tfrac12\mathrm{tr}(E\Lambda E^\top) + \tfrac12\mathrm{tr}(R\Lambda R^\top) -
# \mathrm{tr}(W_e^\top W_r). \tag{K.10}$$
#
# Its gradient (by differences: V1) is 0 at a solution with $\Lambda = \Sigma^{-1}$:
#
# $$\partial J/\partial W_e = \Phi^\top\Phi W_e\Lambda - W_r, \qquad
# \partial J/\partial W_r = \Psi^\top\Psi W_r\Lambda - W_e. \tag{K.18}$$
#
# **By hand.** $K$ with the rows $(3, 0)$ and $(4, 5)$, $\Phi = K$, $\Psi = I$. At
# $w_e = w_r = (1, 0)$, $\lambda = 1$, the scores are $e = (3, 4)$ and $r = (1, 0)$:
# $J = \tfrac12\cdot25 + \tfrac12 - 1 = 12$. The gradient is
# $K^\top e - w_r = (25, 20) - (1, 0) = (24, 20)$ by $w_e$, and 0 by $w_r$.
# %%
K, x = np.array([[3.0, 0.0], [4.0, 5.0]]), np.array([[1.0], [0.0]])
at = x, x, np.ones(1), K, np.eye(2)
assert primal.objective(*at) == 12 and close(primal.gradient(*at), [[[24], [20]], [[0], [0]]])
assert close(primal.gradient(*at), grad(primal.objective, (0, 1))(*at))
# %% [markdown]
# ## 2. Why J is zero at a solution
# Double the weights, and $J$ is four times as large. So Euler's theorem holds, at **every**
# $W = (W_e, W_r)$ and $\Lambda$; $\langle\cdot, \cdot\rangle$ adds the products of all entries:
#
# $$J = \tfrac12\langle W, \nabla J\rangle. \tag{V2}$$
#
# So where the gradient vanishes, $J = 0$ (K.22): at *every* set of components with its
# $\Lambda = \Sigma^{-1}$, at any scale (V3). Nothing in $J$ prefers the leading ones. The
# *residual*, `primal.stationarity`, is the gradient without units.
# %%
rng, p = np.random.default_rng(0), 4
Phi, Psi = rng.standard_normal((9, p)), rng.standard_normal((7, p))
W_e, sigma, W_r = primal.solve(Phi, Psi)
any_W = *rng.standard_normal((2, p, 3)), np.array([0.3, 0.5, 0.7]), Phi, Psi
assert close(primal.objective(*any_W), np.sum(np.multiply(any_W[:2], primal.gradient(*any_W))) / 2)
subsets = [np.flatnonzero([c & 1, c & 2, c & 4, c & 8]) for c in range(1, 16)]
scaled = [(W_e[:, c] * 3, W_r[:, c] * 3, 1 / sigma[c], Phi, Psi) for c in subsets]
worst = max(max(abs(primal.objective(*at)), primal.stationarity(*at)) for at in scaled)
assert worst < 1e-12


# %% [markdown]
# ## 3. Uphill and downhill for ever
# What kind of point is it? **By hand**, on $\Phi = \mathrm{diag}(2, 1)$, $\Psi = I$, with
# $\lambda = \tfrac12$: along $w_e = (t, 0)$, $w_r = 0$ comes $J = t^2$ (V8); along
# $w_e = w_r = (0, t)$ comes $-\tfrac12t^2$. There is no maximum and no minimum.
#
# The Hessian counts the directions. For one component it is
#
# $$\nabla^2J = \begin{bmatrix}\lambda\Phi^\top\Phi & -I\\ -I & \lambda\Psi^\top\Psi\end{bmatrix}.$$
#
# By hand $w^\top\nabla^2J\,w$ has a part for each axis: $2a^2 - 2ab + \tfrac12b^2$ is
# $2(a - \tfrac12b)^2$, one positive and one zero direction; $\tfrac12a^2 - 2ab + \tfrac12b^2$ is
# $\tfrac12(a - 2b)^2 - \tfrac32b^2$, one positive and one negative. In general each pair has one:
# with $w_e = a\Psi^\top h_r$ and $w_r = b\Phi^\top h_e$ it is
# $\sigma_l(\lambda\sigma_la^2 - 2ab + \lambda\sigma_lb^2)$, a square and a rest with the sign of
# $\lambda^2\sigma_l^2 - 1$. With full column rank these are all directions: at
# $\lambda = 1/\sigma_k$, $p + k - 1$ rise, 1 is flat, $p - k$ fall (V9). Over $s$ components they
# add up.
# %%
def by_hand(w_e, w_r):
    return primal.objective(np.c_[w_e], np.c_[w_r], [0.5], np.diag([2.0, 1.0]), np.eye(2))


assert by_hand([100, 0], [0, 0]) == 10_000 and by_hand([0, 100], [0, 100]) == -5_000
for k, lam in enumerate(1 / sigma, 1):
    H = hessian(lambda w: primal.objective(w[:p, None], w[p:, None], [lam], Phi, Psi))(np.zeros(8))
    w = np.linalg.eigvalsh(H)
    counts = [int(np.sum(part)) for part in (w > 1e-10, abs(w) <= 1e-10, w < -1e-10)]
    assert counts == [p + k - 1, 1, p - k]
# %% J as a map of two weights: a saddle, rising along one diagonal, falling along the other
x = np.linspace(-3, 3, 61)
plane = [[by_hand([1, e], [2, r]) for e in x] for r in x]
figure, ax = plt.subplots(figsize=(5.4, 3.6))
ax.contourf(x, x, plane, np.linspace(-5, 5, 21), cmap="RdBu_r", extend="both")
ax.contour(x, x, plane, [0.0], colors="k")
ax.plot(0, 0, "o", color="k", markerfacecolor="w", markersize=9)
ax.set(title="J around the leading solution, red above 0", aspect="equal",
       xlabel=r"second entry of $W_e$", ylabel=r"second entry of $W_r$")
plt.show()
# %% [markdown]
# *See:* $J = 0$ on both black lines; the gradient is 0 only at the circle, the leading solution.
#
# ## 4. J = 0 is not enough
# **Counter-example.** $J = 0$ is one equation, $\nabla J = 0$ are $2ps$ (V5). On the same features
# take $w_e = w_r = (1, 1)$ and $\lambda = \tfrac47$: $J = \tfrac12\cdot\tfrac47(5 + 2) - 2 = 0$.
# But the gradients are $(\tfrac97, -\tfrac37)$ and $(-\tfrac37, -\tfrac37)$, and $1/\lambda = 1.75$
# is no $\sigma$.
# %%
at = np.ones((2, 1)), np.ones((2, 1)), np.array([4 / 7]), np.diag([2.0, 1.0]), np.eye(2)
assert close(primal.objective(*at), 0.0)
assert close(primal.gradient(*at), [[[9 / 7], [-3 / 7]], [[-3 / 7], [-3 / 7]]])
assert primal.stationarity(*at) > 0.3
# %% [markdown]
# An optimiser finds such points: the gradient of $J^2$ is $2J\,\nabla J$, 0 wherever $J$ is. The
# test is $\nabla J = 0$ itself, with $s$ columns that are not zero.
#
# ## 5. A loss that has the leading components as its minimum
# Two factors $A, B$ $(p, s)$ make an approximation of $K$ of rank $s$. Its error is bounded below,
# and with $E = \Phi A$, $R = \Psi B$ it costs what $J$ costs:
#
# $$L = \tfrac12\|K - ER^\top\|^2 - \tfrac12\|K\|^2 =
# \tfrac12\langle E^\top E, R^\top R\rangle - \langle\Phi^\top E, \Psi^\top R\rangle. \tag{K.41}$$
#
# By Eckart and Young its minimum is $-\tfrac12(\sigma_1^2 + \dots + \sigma_s^2)$, at the leading
# components and, if $\sigma_s > \sigma_{s+1}$, nowhere else; from any other point a way leads down
# (K.42). It fixes two spans, not the columns: $ER^\top = (ET)(RT^{-\top})^\top$. QR of $E$ and $R$
# and an SVD, $s \times s$, turn the spans into the vectors (K.43). The head is that of lesson 03.
# %%
Q, keys, _ = datasets.minilm_heads()
Phi, Psi = Q[5, 0] / 32 ** 0.25, keys[5, 0] / 32 ** 0.25            # (64, 32)
exact = primal.solve(Phi, Psi, 5)
A, B = rng.standard_normal((2, 32, 5))
for _ in range(300):                                            # the best A for B, the best B for A
    A = np.linalg.solve((Psi @ B).T @ (Psi @ B), (Psi @ B).T @ Psi).T
    B = np.linalg.solve((Phi @ A).T @ (Phi @ A), (Phi @ A).T @ Phi).T
assert close(primal.approximation_loss(A, B, Phi, Psi), -np.sum(exact.sigma ** 2) / 2, 1e-9)
assert all(map(lambda x, y: close(x, y, 1e-9), primal.from_factors(A, B, Phi, Psi), exact))


# %% [markdown]
# ## 6. Three ways from one start
# Descend $J^2$ with the right $\Lambda$; descend $L$; or raise $\mathrm{tr}(A^\top KB)$ over
# orthonormal $A$, $B$ to its maximum $\sigma_1 + \dots + \sigma_s$ (V10), in turns
# $A \leftarrow \mathrm{polar}(KB)$, $B \leftarrow \mathrm{polar}(K^\top A)$, where
# $\mathrm{polar}(USV^\top) = UV^\top$ (K.44); after a step the trace is the sum of the singular
# values of $K^\top A$. What counts is the share of $\|K\|^2$ outside the two spans, beyond what
# five must miss. And $J$ itself?
# %%
def missed(E, R):
    inside = (Phi.T @ np.linalg.qr(E)[0]).T @ (Psi.T @ np.linalg.qr(R)[0])      # Q_e^T K Q_r
    return (np.sum(exact.sigma ** 2) - np.sum(inside ** 2)) / np.sum((Phi @ Psi.T) ** 2)


# %%
def four_ways(seed, Lambda=1 / exact.sigma):
    W = A = Z = np.random.default_rng(seed).standard_normal((2, 32, 5)) / 10
    b = Psi @ A[1]
    for _ in range(400):
        J = primal.objective(*W, Lambda, Phi, Psi)
        W = W - 1e-2 * J * np.array(primal.gradient(*W, Lambda, Phi, Psi))
        A = A - 3e-5 * np.array(primal.approximation_gradient(*A, Phi, Psi))
        Z = Z - 1e-2 * np.array(primal.gradient(*Z, Lambda, Phi, Psi))
        a = np.linalg.qr(Phi @ (Psi.T @ b))[0]                      # the span of polar(K b)
        b = np.linalg.qr(Psi @ (Phi.T @ a))[0]
        yield (*(missed(Phi @ X, Psi @ Y) for X, Y in (W, A)), missed(a, b), abs(J),
               -primal.objective(*Z, Lambda, Phi, Psi), np.linalg.norm(Psi @ (Phi.T @ a), "nuc"))


# %% What the spans miss: J squared stays high, L and trace sink; beside it, J alone runs off
runs = np.array([list(four_ways(seed)) for seed in range(3)])       # (3, 400, 6)
assert runs[:, -1, 3].max() < 1e-3 and np.all(runs[:, -1, 0] > 0.5)         # J = 0, and yet
assert np.all(np.diff(runs[:, :, 1]) < 0) and np.all(runs[:, -1, 1] < 0.05)
assert np.all(runs[:, -1, 2] < 1e-6) and np.diff(runs[:, :, 5]).min() > -1e-9       # K.44
assert close(runs[:, -1, 5], exact.sigma.sum(), 1e-9) and np.all(runs[:, -1, 4] > 100)  # V10, V8
figure, (left, right) = plt.subplots(1, 2, figsize=(7, 3.2), width_ratios=(2, 1))
for way, name in enumerate(("$J^2$ descended", "$L$ descended", "trace raised")):
    left.semilogy(np.maximum(runs[:, :, way].T, 1e-16), f"C{way}", label=[name, None, None])
left.set(title="share of $K$ missed, beyond the least", xlabel="step")
left.legend()
right.semilogy(runs[:, :, 4].T, "C3")
right.set(title="$-J$, with $J$ descended", xlabel="step")
plt.show()


# %% [markdown]
# *See:* $J^2$ reaches zero and its spans miss most; the trace reaches the leading components, $L$
# is on its way, slow where $\sigma$ lie close; $J$ runs to $-\infty$.
#
# ## In short
# $J$ is zero at every solution and at many points that are none. It is a saddle without bound. The
# squared error of $ER^\top$ costs as much and has the leading components as its minimum.
#
# $$J = \tfrac12\langle W, \nabla J\rangle, \qquad
# L = \tfrac12\|K - ER^\top\|^2 - \tfrac12\|K\|^2.$$
#
# The picture to remember: two black lines of $J = 0$, and the one circle where they cross.
#
# ## Exercises
# Fill in the functions; each check says what is wrong. `ksvd-ref check FILE` marks a whole file.
# %% [markdown]
# **E4.1** (about 2 lines) Predict, then run: which $c > 0$ gives $J(W, c\Lambda) = 0$, for weights
# with $\mathrm{tr}(W_e^\top W_r) > 0$?
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
# Three questions without code.
#
# 1. $\Phi v = 0$, $v \ne 0$: along which $W$ does $J$ fall for ever, whatever $\Lambda$?
# 2. Where does $J(W + tD) = t^2J(D)$ need $\nabla J(W) = 0$?
# 3. One $W, \Lambda$ for many sequences, each with its own $K$: when is $\nabla J = 0$ for all?
#
# *Where this is used.* Lessons 11 and 12, for the penalty $J^2$ in training; findings F1 to F3.
#
# *Further reading.* Chen, Tao, Tonin, Suykens, Primal-Attention, NeurIPS 2023 (arXiv 2305.19798).
# Suykens, SVD revisited, ACHA 40(3), 2016, 600–609. Golub, Van Loan, *Matrix Computations*.
