# %% [markdown]
# # Attention is a kernel smoother with four things to choose
# **You will do.** Write attention as a weighted mean, find it in statistics of 1964, and check on
# small matrices what each of its four components can and cannot do.
#
# **You will learn.** What softmax has to do with Nadaraya and Watson, which kernel is no smoother,
# what an average of values cannot do, and where the order of words comes from.
#
# **You need.** Lesson 06: a kernel $\kappa(x, z)$ of two arguments; symmetric is not positive
# semi-definite. A Transformer seen once; 50 minutes, and 25 more for the exercises.
# %%
import matplotlib.pyplot as plt
import numpy as np

from ksvd_ref.attention.filters import causal, memory, strided, window
from ksvd_ref.attention.smoother import attention, linear_attention, weights
from ksvd_ref.course import datasets, exercises

plt.style.use("ksvd_ref.data.ksvd")
rng = np.random.default_rng(0)


def close(a, b, tolerance=1e-12):
    return np.abs(np.subtract(a, b)).max() < tolerance              # sums of numbers of order 1


# %% [markdown]
# ## 1. The definition
# A query $q_i$ takes a weighted mean of the values $v_j$ that belong to the keys $k_j$:
#
# $$o_i = \sum_j \frac{B_{ij}\,\kappa(q_i, k_j)}{\sum_l B_{il}\,\kappa(q_i, k_l)}\, v_j. \tag{S.2}$$
#
# | component | the question it answers | here |
# |---|---|---|
# | kernel $\kappa$ | how alike are query and key? | section 2 |
# | position | does the place count, or the distance? | section 3, and lesson 08 |
# | value $v$ | what is averaged? | section 4 |
# | filter $B$ | which keys may the query see, 1 or 0? | section 5 |
#
# **By hand.** Kernel values $(2, 1)$ and values $(4, 1)$ give $\tfrac23\cdot4 + \tfrac13 = 3$. Hide
# the first key, and the mean is 1. A row that sees nothing gives zeros (S.3).
# %%
K, V = [[np.log(2)], [0.0]], [[4.0], [1.0]]                         # exp(1 log 2) = 2, exp(0) = 1
seen = [attention([[1.0]], K, V, mask=mask) for mask in (None, [False, True], [False, False])]
assert close(np.ravel(seen), [3, 1, 0])
# %% [markdown]
# ## 2. The kernel
# With a Gaussian kernel (rbf) of width $h$ this is the regression of Nadaraya and Watson (1964).
# %% Regression curves of three widths: narrow copies the points, wide flattens to their mean
x, grid = np.sort(rng.random(60))[:, None], np.linspace(0, 1, 201)[:, None]
y = np.sin(6 * x) + 0.3 * rng.standard_normal(x.shape)
figure, ax = plt.subplots(figsize=(7, 2.8))
ax.plot(x, y, ".", color="0.6", label="keys, values")
for h, style in ((0.01, ":"), (0.05, "-"), (0.3, "--")):
    fit = attention(grid, x, y, kernel="rbf", gamma=1 / (2 * h ** 2))
    G = np.exp(-(grid - x.T) ** 2 / (2 * h ** 2))
    assert close(fit, G @ y / G.sum(axis=1, keepdims=True))
    assert y.min() <= fit.min() and fit.max() <= y.max()
    ax.plot(grid, fit, style, label=f"h = {h}")
ax.set(title="Nadaraya-Watson regression is rbf attention", xlabel="query, key", ylabel="value")
ax.legend(loc="upper right")
plt.show()
# %% [markdown]
# *See:* from copying (dotted) towards the mean of all (dashed).
#
# Softmax attention has the exponential kernel $e^{\beta\langle q, k\rangle}$, $\beta = 1/\sqrt d$
# (S.6, D1). Is that the Gaussian one? Nearly:
#
# $$e^{\beta\langle q, k\rangle} = e^{\beta\|q\|^2/2}\,e^{-\beta\|q-k\|^2/2}\,e^{\beta\|k\|^2/2}.
# \tag{D3}$$
#
# The factor of the query cancels, that of the key stays: exponential attention is rbf attention
# **whose keys have weights** (D4, D7). They agree if all keys have one length (D5).
# %%
Q, K, tokens = datasets.minilm_heads()                              # (6 layers, 12 heads, 64, 32)
beta, rbf = 32 ** -0.5, {"kernel": "rbf", "gamma": 32 ** -0.5 / 2}
A, without = weights(Q, K), weights(Q, K, **rbf)
of_keys = beta / 2 * np.sum(K ** 2, axis=-1)[..., None, :]          # logarithm of the key weight
assert close(weights(Q, K, **rbf, log_factor=of_keys), A)
assert close(weights(Q, K, log_factor=rng.standard_normal((64, 1))), A)     # of queries: cancels
unit = K / np.linalg.norm(K, axis=-1, keepdims=True)
assert close(weights(Q, unit), weights(Q, unit, **rbf))
moved = np.abs(A - without).sum(axis=-1).mean(axis=-1) / 2          # (6, 12)
print(f"key weights move {moved.min():.0%} to {moved.max():.0%} of a head's attention")
assert moved.min() > 0.02 and moved.max() < 0.9
# %% [markdown]
# The `scale` of this package *divides* the logits, as $\sqrt d$ does. PyTorch's
# `scaled_dot_product_attention` has an argument of the same name that *multiplies*: its $1/\sqrt d$
# is our $\sqrt d$.
#
# **Counter-example.** The linear kernel $\langle q, k\rangle$ is no smoother (D8). For $q = 1$ and
# keys $1, -1$ the normaliser is 0; for keys $1, -0.999$ the weights are 1000 and $-999$. Its square
# is never negative, but blind: $q$ and $-q$ are the same to it (D9).
# %%
np.testing.assert_raises_regex(ValueError, "no weighted mean", weights, [[1.0]], [[1.0], [-1.0]],
                               kernel="linear")
assert close(np.array([1, -0.999]) / 0.001, [1000, -999], 1e-9)
assert close(*(weights(sign * Q, K, kernel="polynomial", coef0=0.0) for sign in (1, -1)))
assert close(weights(Q, K, scale=32 ** 0.5), A)


# %% [markdown]
# A kernel with finite positive features, $\kappa = \langle\varphi(q), \varphi(k)\rangle$, needs no
# table of all pairs: sums over keys come first, in $O(N)$, and with a causal filter they are a
# running state (S.31, D32).
# %%
def phi(X):
    return np.where(X > 0, X + 1, np.exp(np.minimum(X, 0)))         # elu + 1


N, d = 12, 4
q, k, f = rng.standard_normal((3, N, d))
linear = linear_attention(q, k, f, mask=causal(N))
assert close(attention(phi(q), phi(k), f, kernel="linear", mask=causal(N)), linear)
S, z = phi(k[:6]).T @ f[:6], phi(k[:6]).sum(axis=0)                 # the state at the sixth token
assert close(phi(q[5]) @ S / (phi(q[5]) @ z), linear[5])
# %% [markdown]
# ## 3. The position
# A position enters as a second kernel that multiplies the first,
# $\kappa(q_i, k_j)\,\kappa_T(i, j)$, or it is added to the content before. The first is the
# argument `log_factor`, its logarithm. Lesson 08 has both, and each published form.
#
# ## 4. The value
# Weights that are not negative and sum to 1 keep every output between the smallest and the largest
# visible value (D2). So an average can copy and blend. It cannot extrapolate, and near an end it is
# wrong even for a straight line, where all points lie to one side.
#
# Vaswani et al. add positions to the values too. Others leave them out: then position decides how
# much a value counts, and is not averaged itself (S.22).
# %%
line = 2 * grid + 1                                                 # its value at 0 is 1
end = attention([[0.0]], grid, line, kernel="rbf", gamma=50)[0, 0]
print(f"at the left end of y = 2x + 1 the smoother says {end:.2f} in place of 1")
assert 1.1 < end < 1.3
# %% [markdown]
# ## 5. The filter
# Four filters; True means that the query may attend (S.24 to S.27 in the index).
# %% Maps of four filters: a triangle, a triangle beside a block, a band, a band with stripes
B = {"causal": causal(N), "memory": memory(N, 4), "window": window(N, 4), "strided": strided(N, 4)}
assert [int(mask.sum()) for mask in B.values()] == [78, 78 + 4 * N, 42, 54]
assert not any(B[name][0, 1] for name in ("causal", "window", "strided"))  # no key after the query
figure, axes = plt.subplots(1, 4, figsize=(7, 2.2), width_ratios=(12, 16, 12, 12))
for ax, (title, mask) in zip(axes, B.items()):
    ax.imshow(mask)
    ax.set(title=title, xlabel="key j", xticks=(0, 5, 10), yticks=(0, 5, 10))
axes[0].set_ylabel("query i")
plt.show()


# %% [markdown]
# *See:* bright is visible, 78 pairs for causal, 54 for strided, 42 for the window. The memory is a
# block of earlier keys beside the triangle.
#
# ## 6. Where order comes from
# Without position and filter attention is **equivariant**, at any depth: permute the rows, and the
# outputs permute with them (D26). Such an encoder gives each token its output whatever its place,
# so it cannot reverse a string. A causal filter breaks this (D27). But *one* causal layer does not
# see the order of the past: it averages a set (D28). A second one does, since the means that it
# averages were taken over different pasts.
#
# **By hand.** With equal weights the third of the rows $a, b, c$ becomes $(a + b + c)/3$. After a
# second layer it is $(11a + 5b + 2c)/18$, and order shows.
# %%
def deep(f, mask, layers):
    for _ in range(layers):
        f = attention(f, f, f, mask=mask)
    return f


order = [*rng.permutation(N - 1), N - 1]                            # the last stays the last
assert close(deep(f[order], None, 2), deep(f, None, 2)[order])
assert not close(deep(f[order], causal(N), 1), deep(f, causal(N), 1)[order], 0.1)
moves = [np.abs(deep(f[order], causal(N), n)[-1] - deep(f, causal(N), n)[-1]).max() for n in (1, 2)]
print("a shuffled past moves the last row by {:.0e}, then by {:.2g}".format(*moves))
assert moves[0] < 1e-12 and moves[1] > 0.001
A = causal(3) / np.arange(1, 4)[:, None]                            # equal weights
assert close((A @ A)[2] * 18, [11, 5, 2])


# %% [markdown]
# ## In short
# Attention is a weighted mean of values: a kernel, a position, a value and a filter say which. The
# exponential kernel is the Gaussian one with weights for the keys. Order comes from a position, or
# from a filter that treats places differently.
#
# $$o_i = \sum_j \frac{B_{ij}\,\kappa(q_i, k_j)}{\sum_l B_{il}\,\kappa(q_i, k_l)}\, v_j, \qquad
# \kappa = e^{\langle q, k\rangle/\sqrt d}.$$
#
# The picture to remember: a regression curve through points, and softmax as its relative.
#
# ## Exercises
# Fill in the functions; each check says what is wrong. `ksvd-ref check FILE` marks a whole file.
# %% [markdown]
# **E7.1** (about 2 lines) The `scale` and `log_factor` that make exponential attention rbf.
# %%
def rbf_as_exponential(K, gamma):
    raise NotImplementedError("Exercise 7.1: (scale, log_factor), from the keys alone")


# %%
exercises.check("7.1", rbf_as_exponential)


# %% [markdown]
# **E7.2** (about 8 lines) Predict, then run: all filters of $n$ tokens that keep equivariance.
# %%
def equivariant_filters(n):
    raise NotImplementedError("Exercise 7.2: a list of (n, n) boolean masks")


# %%
exercises.check("7.2", equivariant_filters)
# %% [markdown]
# Three questions without code.
#
# 1. A mask multiplies $\kappa$. What goes wrong if it multiplies the logits?
# 2. Why is a logit of $-10^9$ not the same as hiding a key?
# 3. If $G$ is PSD, $G_{i,i-1}^2 \le G_{ii}G_{i-1,i-1}$. If every row prefers the previous place to
#    its own, what does the diagonal do?
#
# *Where this is used.* Lesson 08 (positions), 09 (which kernel), 11 (Primal-Attention).
#
# *Further reading.* Tsai et al., Transformer Dissection, EMNLP 2019 (arXiv 1908.11775). Fan,
# Design-adaptive nonparametric regression, J. Amer. Stat. Assoc. 87, 1992.
