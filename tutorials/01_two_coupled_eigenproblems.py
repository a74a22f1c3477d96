# %% [markdown]
# # Two coupled eigenproblems: the two roles of every row and column
# **You will do.** Derive a singular value decomposition by hand, find it again in a table of who
# moved where, and tell the cell types of a real brain apart by who talks to whom.
# **You will learn.** Why an asymmetric matrix needs two vectors per component, which equations tie
# them together, what their signs may do, and what symmetrising throws away.
# **You need.** Matrices, eigenvalues, NumPy; no earlier lesson; 50 minutes, 20 for exercises.
# %%
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from ksvd_ref import backend, datasets, dual, kernels, plots

HERE = Path(__file__).parent if "__file__" in globals() else Path.cwd()
plt.style.use(HERE / "ksvd.mplstyle")
# %% [markdown]
# ## 1. By hand
# A matrix $K$ with $N$ rows and $M$ columns turns column weights $h_r$ into one number per row,
# $K h_r$; its transpose turns row weights $h_e$ into one number per column. Ask for weights that
# come back to each other, up to one scale $\sigma > 0$ for both directions:
# $$ K h_r = \sigma h_e, \qquad K^\top h_e = \sigma h_r. $$
# Two eigenproblems, coupled. Put the second into the first and they part,
# $K K^\top h_e = \sigma^2 h_e$, and likewise $K^\top K h_r = \sigma^2 h_r$.
#
# Take
# $$ K = \begin{bmatrix} 3 & 0 \\ 4 & 5 \end{bmatrix}, \qquad
#    K K^\top = \begin{bmatrix} 9 & 12 \\ 12 & 41 \end{bmatrix}. $$
# The trace is 50 and the determinant 225, so $\sigma^2$ is 45 or 5. With 45 and $h_e = (a, b)$ the
# first row says $9a + 12b = 45a$, hence $b = 3a$ and $h_e = (1, 3)/\sqrt{10}$. The partner is not
# free any more: $h_r = K^\top h_e/\sigma = (15, 15)/(\sqrt{10}\sqrt{45}) = (1, 1)/\sqrt{2}$.
# %%
K = np.array([[3.0, 0.0], [4.0, 5.0]])
by_hand_e = np.array([[1.0, 3.0], [3.0, -1.0]]) / np.sqrt(10)   # columns are components
by_hand_r = np.array([[1.0, 1.0], [1.0, -1.0]]) / np.sqrt(2)
H_e, sigma, H_r = dual.solve(K)
gap = max(np.abs(H_e - by_hand_e).max(), np.abs(H_r - by_hand_r).max())
assert gap < 1e-14 and np.abs(sigma ** 2 - [45, 5]).max() < 1e-12   # rounding: eps = 2.2e-16
print(f"by hand against dual.solve: {gap:.1e}")
# %% [markdown]
# ## 2. Who moves where
# $K_{ij}$ counts the people who moved from province $i$ to province $j$ of Canada between 1966 and
# 1971. Each province occurs twice: in a row, as a sender, and in a column, as a receiver. Collect
# $s$ components as columns of $H_e$ (N x s) and $H_r$ (M x s), and their $\sigma$, descending, on
# the diagonal of $\Sigma$ (K.7, K.15; Lanczos, 1958):
# $$ K H_r = H_e \Sigma, \qquad K^\top H_e = H_r \Sigma, \qquad H_e^\top H_e = I = H_r^\top H_r. $$
# With as many components as $K$ has rank, they rebuild it: $K = H_e \Sigma H_r^\top$ (K.6), the
# singular value decomposition.
# %%
K, provinces = datasets.canada_migration()
H_e, sigma, H_r = dual.solve(K)
residual = max(np.abs(K @ H_r - H_e * sigma).max(), np.abs(K.T @ H_e - H_r * sigma).max())
assert residual < 1e-13 * sigma[0]      # backward stable: rounding at the size of sigma_1
for H in (H_e, H_r):
    assert np.abs(H.T @ H - np.eye(10)).max() < 1e-13
assert np.abs(H_e * sigma @ H_r.T - K).max() < 1e-13 * sigma[0]
print(f"residual of K.15: {residual / sigma[0]:.1e} sigma_1")
for name, roles in (("QUE", [0.670, 0.181]), ("BC", [0.204, 0.521])):       # to three digits
    np.testing.assert_allclose([H[provinces == name, 0][0] for H in (H_e, H_r)], roles, atol=5e-4)
figure, (left, right) = plt.subplots(1, 2, figsize=(8.6, 3.6), width_ratios=(1.15, 1))
plots.matrix(left, K / 1000, rows=provinces, columns=provinces, title="thousands who moved, i to j")
order = np.argsort(H_e[:, 0] - H_r[:, 0])
right.plot(H_e[order, 0], "o", color=plots.ROWS, label=r"as sender, $h_e$")
right.plot(H_r[order, 0], "s", color=plots.COLUMNS, label=r"as receiver, $h_r$")
right.vlines(range(10), H_e[order, 0], H_r[order, 0], color="0.7", zorder=0)
right.set_xticks(range(10), provinces[order], rotation=90, fontsize=8)
right.set(title="first component, two roles", ylabel="weight")
right.legend()
left.tick_params(labelsize=8)
plt.show()
# %% [markdown]
# *See:* Quebec weighs 0.670 as a sender and 0.181 as a receiver, British Columbia 0.204 and 0.521.
# One weight per province could not say that.
#
# ## 3. One symmetric matrix for both sides
# Stacked, the coupled equations are one ordinary symmetric eigenproblem (K.16):
# $$ \begin{bmatrix} 0 & K \\ K^\top & 0 \end{bmatrix} \begin{bmatrix} h_e \\ h_r \end{bmatrix}
#    = \sigma \begin{bmatrix} h_e \\ h_r \end{bmatrix}. $$
# Flip the sign of $h_r$ alone and both lines change sign: each $\sigma$ comes with a $-\sigma$. If
# $K$ has rank $r$, the other $N + M - 2r$ eigenvalues are 0 (V11).
#
# Since $\sigma\, h_e^\top h_e = h_e^\top K h_r = \sigma\, h_r^\top h_r$, the halves of a unit
# eigenvector have squared norm 1/2 each: multiply by $\sqrt 2$. *Counter-example:* this divides by
# $\sigma$. At 0 the split is arbitrary: $K = \operatorname{diag}(2, 0)$ has every $(0, c, 0, d)$.
#
# Nothing asks for a square $K$ (V17): here are 30 Wikipedia articles by 11 words, where rows and
# columns are not even things of one kind. Transpose it, and the two sides change places.
# %%
A, articles, words, _ = datasets.wikipedia_words()
N, M = A.shape
pair = dual.solve(A)
r = len(pair.sigma)
back = dual.solve(A.T)                                          # words by articles
same = np.sign(np.sum(back.H_e * pair.H_r, axis=0))             # one joint sign per component
swap = max(np.abs(back.sigma - pair.sigma).max(), np.abs(back.H_e * same - pair.H_r).max(),
           np.abs(back.H_r * same - pair.H_e).max())
assert swap < 1e-11             # rounding turns vectors by eps sigma_1 over the gap of two sigma
print(f"K^T exchanges the sides: {swap:.1e}")
value, H = np.linalg.eigh(dual.shifted_matrix(A))               # ascending
expected = np.concatenate([-pair.sigma, np.zeros(N + M - 2 * r), pair.sigma[::-1]])
assert (N, M, r) == (30, 11, 11) and np.abs(value - expected).max() < 1e-13 * pair.sigma[0]
upper = np.sum(H[:N, :] ** 2, axis=0)                           # squared norms of the e halves
assert np.abs(upper[np.abs(value) > 1e-9] - 0.5).max() < 1e-13
assert np.abs(upper[np.abs(value) < 1e-9] - 1.0).max() < 1e-13
assert np.all(dual.shifted_matrix(np.diag([2.0, 0.0])) @ [0.0, 0.8, 0.0, 0.6] == 0.0)
print(f"{r} pairs of +sigma and -sigma with halves of 1/2, {N + M - 2 * r} zeros")
figure, (left, middle, right) = plt.subplots(1, 3, figsize=(9.8, 3.3))
left.plot(value, "o", color="black", markersize=3)
left.set(title="eigenvalues of the block matrix", xlabel="index", ylabel="eigenvalue")
middle.plot(upper, "o", color=plots.ROWS, markersize=3)
middle.set(title="squared norm of the row half", xlabel="index", ylim=(0, 1.1))
plots.embedding(right, A @ pair.H_r, labels=articles, most=4, title="articles: $E = K H_r$")
plt.show()
# %% [markdown]
# *See:* 11 eigenvalues below 0, 19 at 0, 11 above, mirrored. The halves hold 1/2 except at 0: there
# everything is in the row half, since these 11 columns are independent and leave no null $h_r$. On
# the right each article by its first two *scores*, the numbers $E = K H_r = H_e \Sigma$.
#
# ## 4. The sign belongs to the pair
# With $(h_e, h_r)$ also $(-h_e, -h_r)$ solves the equations; flipping one side alone solves them
# for $-\sigma$ (V12). *Counter-example:* compute the eigenvectors of $K K^\top$ and of $K^\top K$
# apart and give each the sign of its largest entry. Each side is right, together they are wrong.
# %%
own = lambda H: H * np.sign(H[np.abs(H).argmax(axis=0), np.arange(H.shape[1])])
alone_e, alone_r = (own(np.linalg.eigh(S)[1][:, ::-1]) for S in (K @ K.T, K.T @ K))
opposed = np.sum(alone_e * (K @ alone_r), axis=0) < 0           # h_e^T K h_r = -sigma
broken = np.abs(K @ alone_r - alone_e * sigma).max() / sigma[0]
assert np.sum(opposed) == 3 and broken > 0.8
assert np.abs(np.abs(alone_e[:, :4]) - np.abs(H_e[:, :4])).max() < 1e-11
print(f"signs fixed apart: {np.sum(opposed)} of 10 opposed, K.15 fails by {broken:.2f} sigma_1")
# %% [markdown]
# ## 5. What an eigendecomposition sees instead
# $K v = \lambda v$ uses one vector in both roles: it needs a square $K$, its eigenvalues may be
# complex, and an arrow without a way back is invisible to it:
# $\begin{bmatrix} 0 & 1 \\ 0 & 0 \end{bmatrix}$ has eigenvalues 0 and 0, but $\sigma_1 = 1$.
# Symmetrising keeps $(K + K^\top)/2$ and throws $(K - K^\top)/2$ away; the two are orthogonal, so
# what is lost is a definite share of $\sum K_{ij}^2$.
#
# Compare three tables: the migration; the synapses between neurons $i$ and $j$ in the mushroom body
# of a fruit-fly larva (Eichler et al., 2017), as $\log(1 + \text{count})$; and flights between US
# airports, most of which fly back.
# %%
arrow = np.array([[0.0, 1.0], [0.0, 0.0]])
assert np.all(np.linalg.eigvals(arrow) == 0.0) and dual.solve(arrow).sigma[0] == 1.0
brain, flights = np.log1p(datasets.mushroom_body("left").A), datasets.us_flights().A
share = [np.sum((X - X.T) ** 2) / (4 * np.sum(X ** 2)) for X in (K, brain, flights)]
np.testing.assert_allclose(share, [0.122, 0.305, 0.0003], atol=5e-4)
print("lost by symmetrising: migration {:.1%}, brain {:.1%}, flights {:.2%}".format(*share))
twisted = np.sum(np.abs(np.linalg.eigvals(brain).imag) > 1e-3)     # the noise of 0 stays below
assert twisted > 100
print(f"brain: {twisted} of {len(brain)} eigenvalues are complex")


# %% [markdown]
# ## 6. What the second role is worth
# The neurons have four types: Kenyon (K), projection (P), output (O), input (I). Guess the type of
# each from a vote of its 5 nearest neighbours (ties: first in the alphabet).
# - The recipe: singular vectors times $\sqrt\sigma$, so that both sides share $\Sigma$ evenly; 3
#   components of each side; then each neuron scaled to length 1.
# - Its rival: the 6 eigenvectors of the symmetrised matrix with the largest $|\lambda|$, times
#   $\sqrt{|\lambda|}$.
# - For comparison: 3 or 6 components of one side alone.
# %%
def silence(X):                                                 # why 1e-9: see below
    return np.where(np.linalg.norm(X, axis=1, keepdims=True) > 1e-9, X, 0.0)


def accuracy(X, label):
    distance = kernels.squared_distances(X, X) + np.diag(np.full(len(X), np.inf))
    nearest = np.argsort(distance, axis=1, kind="stable")[:, :5]
    kinds, y = np.unique(label, return_inverse=True)
    votes = np.sum(y[nearest][:, :, None] == np.arange(len(kinds)), axis=1)
    return np.mean(votes.argmax(axis=1) == y)


def embeddings(K):
    H_e, sigma, H_r = dual.solve(K, rank=6)
    E, R = H_e * sigma ** 0.5, H_r * sigma ** 0.5
    value, Q = np.linalg.eigh((K + K.T) / 2)
    top = np.argsort(-np.abs(value))[:6]
    return {"sending, 3": E[:, :3], "receiving, 3": R[:, :3], "sending, 6": E, "receiving, 6": R,
            "both, 3 + 3": np.hstack([E[:, :3], R[:, :3]]),
            "symmetrised, 6": Q[:, top] * np.abs(value[top]) ** 0.5}


known = {("left", True): [.746, .876, .761, .861, .971, .775],
         ("left", False): [.813, .909, .789, .895, .976, .833],     # not scaled to length 1
         ("right", True): [.901, .901, .892, .901, .962, .831],
         ("right", False): [.925, .930, .887, .915, .962, .869]}
print(" " * 16 + "  send 3  recv 3  send 6  recv 6    both  symm 6")
for (side, scaled), numbers in known.items():
    counts, cell = datasets.mushroom_body(side)
    points = {name: silence(X) for name, X in embeddings(np.log1p(counts)).items()}
    found = {k: accuracy(backend.unit_rows(X) if scaled else X, cell) for k, X in points.items()}
    print(f"{side + (', length 1' if scaled else ', unscaled'):16}"
          + "".join(f"{value:8.3f}" for value in found.values()))
    # two neurons of 209: near ties of distances may fall otherwise with another linear algebra
    np.testing.assert_allclose(list(found.values()), numbers, atol=0.0105, rtol=0)
# %% [markdown]
# Both roles tell 97.1 % and 96.2 % of the cells in the two hemispheres, the symmetrised matrix with
# as many numbers 77.5 % and 83.1 %. Without the scaling to length 1 most rivals do better, and both
# roles still win. Six numbers of one side do not help: the sides know different things.
#
# The surprising line is `silence`. *Counter-example:* projection neurons receive nothing here, so
# their $r$ is 0 on paper and may be $10^{-17}$ in a computer. Scaled to length 1, rounding errors
# point anywhere, and the receiving side loses 4 to 15 points in ten draws.
# %%
counts, cell = datasets.mushroom_body("left")
rng = np.random.default_rng(0)
parts = embeddings(brain)
R = parts["receiving, 3"]
noisy = [R + 1e-17 * rng.standard_normal(R.shape) for _ in range(10)]
careless = [accuracy(backend.unit_rows(X), cell) for X in noisy]
assert np.all(counts[:, cell == "P"] == 0)
np.testing.assert_allclose([min(careless), max(careless)], [0.727, 0.833], atol=0.0105, rtol=0)
print(f"receiving, 3, noise at length 1: {min(careless):.3f} to {max(careless):.3f}, not 0.876")
radius = lambda X: np.linalg.norm(X - X.mean(axis=0), axis=1).mean()
apart = []                      # middles of I and O: their distance over the sum of their radii
figure, axes = plt.subplots(1, 3, figsize=(9.8, 3.4))
for ax, name in zip(axes, ("sending, 3", "receiving, 3", "symmetrised, 6")):
    for kind, colour, mark in zip("KPOI", ("#0072B2", "#E69F00", "#000000", "#CC79A7"), "o^sD"):
        X = parts[name][cell == kind]
        ax.scatter(X[:, 1], X[:, 2], s=18, c=colour, marker=mark, alpha=0.7, lw=0, label=kind)
    ax.set(title=name.split(",")[0], xlabel="component 2", ylabel="component 3")
    I, O = (parts[name][cell == kind][:, 1:] for kind in "IO")
    apart.append(np.linalg.norm(I.mean(axis=0) - O.mean(axis=0)) / (radius(I) + radius(O)))
figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right", title="cell type")
plt.show()
assert apart[0] > 1.5 and max(apart[1:]) < 0.5
# %% [markdown]
# *See:* as receivers all projection neurons (P) are one point, as senders they spread out; input
# and output neurons part as senders only, and symmetrising mixes them again.
#
# **Negative control.** Flights come back, so the two roles of an airport should say the same: they
# do. Nothing is gained by a second embedding there; asymmetry is worth what the data put into it.
# %%
asymmetry = np.linalg.norm(flights - flights.T) / np.linalg.norm(flights + flights.T)
pairs = [dual.solve(X, rank=6) for X in (flights, brain)]
alike = [np.abs(np.sum(H_e * H_r, axis=0)).min() for H_e, _, H_r in pairs]
assert abs(asymmetry - 0.016) < 5e-4 and alike[0] > 0.998 and alike[1] < 0.2
print(f"flights: |K - K^T| / |K + K^T| = {asymmetry:.3f}")
print("least |h_e . h_r| of six: flights {:.4f}, brain {:.4f}".format(*alike))


# %% [markdown]
# ## Exercises
# `import runpy; check = runpy.run_path(str(HERE / "solutions/01_two_coupled_eigenproblems.py"))`
# loads the checks; `check["check_1_1"](left_partners)` runs one.
# - **E1.1** (1 line) From $K$, $\Sigma > 0$ and $H_r$, the left vectors with the right signs.
# - **E1.2** (about 2 lines) Predict, then run: how many eigenvalues of the block matrix are
#   positive, zero, negative? Do not form it.
# - **E1.3** (about 5 lines) Start from column weights $h$ and let rows and columns answer each
#   other, scaled to length 1 each time. Which pair comes out, and how fast?
# %%
def left_partners(K, sigma, H_r):
    raise NotImplementedError("Exercise 1.1: H_e (N, s) from one of the two equations")


def block_inertia(K):
    raise NotImplementedError("Exercise 1.2: the three counts (positive, zero, negative)")


def mutual_weights(K, h, steps):
    raise NotImplementedError("Exercise 1.3: unit vectors (h_e, h_r) after `steps` rounds")


# check["check_1_1"](left_partners), check["check_1_2"](block_inertia), ...
# %% [markdown]
# **Without code.** (a) What are $\sigma$, $h_e$ and $h_r$ at a negative eigenvalue of a symmetric
# $K$? (b) Where does the proof of $\|h_e\| = \|h_r\|$ need $\sigma > 0$? (c) Which $K$ has
# $h_e = h_r$ in every component?
#
# **Where this is used.** K.15 is the dual problem of lesson 03; E1.3 ranks web pages by hubs and
# authorities (J. M. Kleinberg, Journal of the ACM 46(5), 1999, 604-632).
#
# **Further reading.** C. Lanczos, Linear systems in self-adjoint form, Amer. Math. Monthly 65,
# 1958, 665-679. J. A. K. Suykens, SVD revisited, Appl. Comput. Harmon. Anal. 40(3), 2016, 600-609.
# K. Eichler et al., Nature 548, 2017, 175-182. G. H. Golub, C. F. Van Loan, Matrix Computations.
