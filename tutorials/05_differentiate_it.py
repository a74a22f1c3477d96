# %% [markdown]
# # Differentiate it: a singular vector is as sure as its gap
# **You will do.** Differentiate an SVD by hand and by autograd, find the place where that must
# fail, and ask whether a neuron keeps its place when its synapses are counted again.
#
# **You will learn.** How $\sigma$ and the vectors move with $K$, which losses have a gradient where
# a $\sigma$ repeats and which have none, and why one number, $1/\text{gap}$, says all of it.
#
# **You need.** Lesson 02: $K H_r = H_e\Sigma$ and $K^\top H_e = H_r\Sigma$, with orthonormal
# columns in $H_e$ and $H_r$; where $\sigma$ repeats, its columns may be rotated together.
# Gradients; 45 minutes, and 20 more for the exercises.
# %%
import autograd.numpy as anp
import matplotlib.pyplot as plt
import numpy as np
from autograd import grad, hessian

from ksvd_ref import dual
from ksvd_ref.course import datasets, exercises

plt.style.use("ksvd_ref.data.ksvd")
K = np.array([[3.0, 0.0], [4.0, 5.0]])
H_e, sigma, H_r = dual.solve(K)


# %% [markdown]
# ## 1. How a singular value moves
# Since $h_e^\top K h_r = \sigma$, a small change $D$ of $K$ changes $\sigma$ by $h_e^\top D h_r$.
# The vectors change too. But to keep its length 1 a vector moves at right angles to itself, and
# then $\partial h_e^\top K h_r = \sigma\,\partial h_e^\top h_e = 0$. So
#
# $$\frac{\partial\sigma_l}{\partial K} = h_{e,l}\,h_{r,l}^\top.$$
#
# **By hand.** In lesson 01 the first pair of $K$ was $h_e = (1, 3)/\sqrt{10}$ and
# $h_r = (1, 1)/\sqrt2$. The gradient of $\sigma_1 = 3\sqrt5$ is therefore $\frac1{\sqrt{20}}$ times
# the rows $(1, 1)$ and $(3, 3)$: the second row of $K$ counts three times as much as the first.
# %%
def largest(K):
    return dual.solve(K).sigma[0]


np.testing.assert_allclose(grad(largest)(K), np.array([[1, 1], [3, 3]]) / 20 ** 0.5, rtol=1e-13)


# %% [markdown]
# ## 2. How a vector moves, and the gap
# Towards which other vector does it turn, and how fast? Let $D_{jl}$ be $h_{e,j}^\top D h_{r,l}$.
# To first order the two equations of $K + D$ say that $h_{e,l}$ turns towards $h_{e,j}$ at the rate
#
# $$\frac{\sigma_l D_{jl} + \sigma_j D_{lj}}{\sigma_l^2 - \sigma_j^2} =
# \frac12\,\frac{D_{jl} + D_{lj}}{\sigma_l - \sigma_j} +
# \frac12\,\frac{D_{jl} - D_{lj}}{\sigma_l + \sigma_j}.$$
#
# For $h_{r,l}$ the second term has the other sign. So the first turns both sides together, and
# divides by the *gap* $\sigma_l - \sigma_j$. The second turns one against the other, and bears a
# gap of 0.
#
# **By hand.** Take $D = h_{e,2}h_{r,1}^\top$. Then $D_{21} = 1$ and $D_{12} = 0$, and the rate is
# $\sigma_1/(\sigma_1^2 - \sigma_2^2) = 3\sqrt5/40 = 0.168$.
# %%
def towards_the_second(K):
    return H_e[:, 1] @ dual.solve(K).H_e[:, 0]


D = np.outer(H_e[:, 1], H_r[:, 0])
assert abs(np.sum(grad(towards_the_second)(K) * D) - 3 * 5 ** 0.5 / 40) < 1e-13


# %% [markdown]
# ## 3. A referee that knows no formula
# Whoever writes a derivative needs a judge. Central differences know nothing but the function.
# Their error is of size $t^2$ from the step $t$ and of size $\varepsilon/t$ from rounding
# ($\varepsilon$ is $2\cdot10^{-16}$), so $t$ near $\varepsilon^{1/3}$ is the best that can be had.
# %%
def along(f, K, D, t=6e-6):
    return (f(K + t * D) - f(K - t * D)) / (2 * t)


for f in (largest, towards_the_second):
    D = np.random.default_rng(0).standard_normal((2, 2))
    assert abs(along(f, K, D) - np.sum(grad(f)(K) * D)) < 1e-9
# %% [markdown]
# ## 4. Where a singular value repeats
# At $K = I$ both $\sigma$ are 1. Any two orthonormal vectors will do, so the first vector means
# nothing there. But the sum of all $\sigma$ is smooth. autograd's own rule divides by
# $\sigma_l^2 - \sigma_j^2 = 0$ and multiplies by zero afterwards. Ours (`linalg.svd`, in
# `dual.solve`) drops the first term of section 2 at a tie, and keeps the second.
# %%
with np.errstate(all="ignore"):
    theirs = grad(lambda K: anp.sum(anp.linalg.svd(K, full_matrices=False)[1]))(np.eye(2))
ours = grad(lambda K: anp.sum(dual.solve(K).sigma))(np.eye(2))
assert np.isnan(theirs).all() and abs(ours - np.eye(2)).max() < 1e-14
print(f"autograd: {theirs[0]}, ours: {ours[0]}")
# %% [markdown]
# ## 5. No rule can serve every loss
# Is our rule right for all losses? With $C$ of rows $(0, 1)$ and $(1, 0)$, compare at $K = I$
#
# $$\langle C, H_e\Sigma H_r^\top\rangle = \langle C, K\rangle, \qquad
# \langle C, H_eH_r^\top\rangle.$$
#
# A rule sees only the derivatives of the loss by $H_e$, $\sigma$ and $H_r$. At $K = I$ the SVD may
# return $H_e = \Sigma = H_r = I$; both hand back the same: $C$ for $H_e$, 0 for $\sigma$, $C$ for
# $H_r$. Yet their gradients are $C$ and 0: a rule that is right for one is wrong for the other.
# %%
C = np.array([[0.0, 1.0], [1.0, 0.0]])


def loss(K, power):
    H_e, sigma, H_r = dual.solve(K)
    return anp.sum(C * (H_e * sigma ** power @ H_r.T))


for power, slope in ((1, 2), (0, 0)):
    assert abs(along(lambda K: loss(K, power), np.eye(2), C) - slope) < 1e-9
    assert not grad(loss)(np.eye(2), power).any()
# %% [markdown]
# The referee says 2 and 0 along $C$; our rule says 0 both times. **Ours is right where the tied
# columns enter as a whole**: through $H_eH_e^\top$, $H_rH_r^\top$, $H_eH_r^\top$, and functions of
# the tied $\sigma$ that do not care for their order. Three kinds of loss follow.
#
# | loss | at a tie | use |
# |---|---|---|
# | $\sum_l\sigma_l$, $\langle C, H_eH_r^\top\rangle$ | has a gradient, ours is right | as it is |
# | $\langle C, H_e\Sigma H_r^\top\rangle$ | has one, ours misses it | write $K H_r H_r^\top$ |
# | $\sigma_1$, one entry of $h_{e,1}$ | has none | stay off the tie |
#
# **Counter-example.** $\sigma_1$ at $I$ along $\mathrm{diag}(1, -1)$ is $1 + |t|$: a kink.
# %%
of_K = grad(lambda K: (lambda V: anp.sum(C * (K @ V @ V.T)))(dual.solve(K).H_r))(np.eye(2))
np.testing.assert_allclose(of_K, C, atol=1e-14)
assert largest(np.diag([1.01, 0.99])) == largest(np.diag([0.99, 1.01])) == 1.01
# %% [markdown]
# **Twice?** Away from a tie the second derivative is right: $\sum_l\sigma_l^2 = \|K\|^2$ has the
# Hessian $2I$. At a tie our rule leaves terms out, so a second derivative is refused, in words.
# %%
second = hessian(lambda K: anp.sum(dual.solve(K).sigma ** 2))
np.testing.assert_allclose(second(K).reshape(4, 4), 2 * np.eye(4), atol=1e-13)
try:
    raise AssertionError(f"a refusal expected, got {second(np.eye(2))}")
except ValueError as error:
    print(error)
# %% [markdown]
# ## 6. The same gap without derivatives
# Changes need not be small. Let $D$ be any change of $K$, $\|D\|_2$ its largest singular value, and
# $\sigma'$ the singular values of $K + D$. Weyl (1912): no $\sigma_l$ moves further than $\|D\|_2$
# (K.45). Wedin (1972): if $\sigma_s > \sigma'_{s+1}$, the spaces of the $s$ leading vectors turn by
# an angle of at most
#
# $$\sin\theta \le \frac{\|D\|_2}{\sigma_s - \sigma'_{s+1}}. \tag{K.46}$$
#
# It is the $1/\text{gap}$ of section 2. Both bounds are met: Weyl's by $D = h_eh_r^\top$, and
# Wedin's nearly, on $\mathrm{diag}(1 + \text{gap}, 1)$ with $D = 0.001\,C$.
# %%
assert abs(largest(K + 0.1 * np.outer(H_e[:, 0], H_r[:, 0])) - sigma[0] - 0.1) < 1e-14
for gap in (1.0, 0.1, 0.01):
    turned, after, _ = dual.solve(np.diag([1.0 + gap, 1.0]) + 0.001 * C)
    bound = 0.001 / (1.0 + gap - after[1])
    print(f"gap {gap:4}: sine {abs(turned[1, 0]):.5f}, at most {bound:.5f}")
    assert 0.98 * bound < abs(turned[1, 0]) <= bound
# %% [markdown]
# So lesson 15 compares spaces, not vectors. The residual of a large solver (lesson 14), over the
# gap, bounds the angle of its space.
#
# ## 7. Count the synapses again
# The brain of lesson 01 is one count of synapses. Draw each entry anew from a Poisson law with the
# count as its mean (a 0 stays 0), twenty times: does a neuron keep its place as a sender? The sine
# is that of the largest angle between two spaces; by chance, of 4 among 209 directions, above 0.98.
# %%
counts, sines = datasets.mushroom_body("left").A, []
brain = dual.solve(np.log1p(counts), 7)
for seed in range(20):
    X = np.log1p(np.random.default_rng(seed).poisson(counts))
    again, size = dual.solve(X, 7), np.linalg.norm(X - np.log1p(counts), 2)
    cosines = [np.linalg.svd(again.H_e[:, :s].T @ brain.H_e[:, :s])[1][-1] for s in range(1, 7)]
    sines.append(np.sqrt(1 - np.square(cosines)))
    bound = size / (brain.sigma[:3] - again.sigma[1:4])
    assert np.all(sines[-1][:3] <= bound) and bound[0] < 0.16 and bound[1] > 1 and bound[2] < 0.77
sines = np.array(sines)
assert sines[:, :3].max() < 0.25 and 0.43 < sines[:, 3].min() and sines[:, 3].max() > 0.99
# %%
chance = [np.linalg.qr(np.random.default_rng(k).standard_normal((209, 4)))[0] for k in range(50)]
assert max(np.linalg.svd(A.T @ brain.H_e[:, :4])[1][-1] for A in chance) < 0.19  # sine above 0.98
# %% Two panels over s: singular values with a step after the third, and angles that jump there
figure, (left, right) = plt.subplots(1, 2, figsize=(7, 2.8))
left.plot(range(1, 8), brain.sigma, "o")
left.set(xlabel="component", ylabel=r"$\sigma$", yscale="log", title="singular values")
right.plot(range(1, 7), sines.T, "s", color="C1")
right.set(xlabel="components kept, s", ylabel="sine of the angle", ylim=(0, 1.05),
          title="space after another count")
plt.show()


# %% [markdown]
# *See:* a step after the third $\sigma$. Up to there the space hardly turns, with a sine below 0.25
# in all twenty draws; with a fourth it is from 0.44 to 1. The space of three numbers survives, that
# of four need not. Wedin covers the worst $D$: at most 0.16 for $s = 1$, 0.77 for 3, no use for 2.
#
# ## In short
# A singular vector moves by $1/\text{gap}$: it is as sure as its gap. Where $\sigma$ repeats, some
# losses have a gradient and some have none. No rule serves all; ours takes tied columns as a whole.
#
# $$\frac{\partial\sigma_l}{\partial K} = h_{e,l}\,h_{r,l}^\top, \qquad
# \sin\theta \le \frac{\|D\|_2}{\sigma_s - \sigma'_{s+1}}.$$
#
# The picture to remember: a step in $\sigma$, and the angle that jumps behind it.
#
# ## Exercises
# Fill in the functions; each check says what is wrong. `ksvd-ref check FILE` marks a whole file.
# %% [markdown]
# **E5.1** (1 line) The gradient of the sum of all $\sigma$ by $K$, from `np.linalg.svd(K)`.
# %%
def nuclear_gradient(K):
    raise NotImplementedError("Exercise 5.1: the sum of h_e h_r^T over all components")


# %%
exercises.check("5.1", nuclear_gradient)


# %% [markdown]
# **E5.2** (about 3 lines) $K$ is known up to a change of size $\|D\|_2\le$ `size`. Return the
# largest $s$ below the number of $\sigma$ for which Wedin and Weyl together promise a sine of at
# most 1/2 whatever $D$ is, 0 if there is none.
# %%
def sure_components(K, size):
    raise NotImplementedError("Exercise 5.2: how many leading components are sure")


# %%
exercises.check("5.2", sure_components)
# %% [markdown]
# Three questions without code.
#
# 1. If $N > M$, $h_{e,l}$ turns towards directions outside $H_e$ too. How fast?
# 2. Two $\sigma$ differ by $10^{-9}$. Which derivatives can still be trusted?
# 3. Wedin's bound comes out as 3. What does it say?
#
# *Where this is used.* Lesson 15, which compares two answers.
#
# *Further reading.* G. H. Golub, C. F. Van Loan, *Matrix Computations*, for both bounds.
