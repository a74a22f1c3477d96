# %% [markdown]
# # Large kernels: what to do when the matrix does not fit
# **You will do.** Measure how dual and primal grow on your own machine, catch the moment at which
# the fast route goes wrong, solve features that lie on disk, find a few components of a large
# matrix by products alone, and rebuild a matrix from a few of its rows and columns.
#
# **You will learn.** Which of five routes to take, what each costs, and how each fails: loudly,
# or silently unless somebody looks.
#
# **You need.** Lessons 03 and 04, 45 minutes.
# %%
import os
import tempfile
import time
import tracemalloc
from functools import reduce
from importlib.util import find_spec
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from ksvd_ref import dual, kernels, nystrom, primal

HERE = Path(__file__).parent if "__file__" in globals() else Path.cwd()
plt.style.use(HERE / "ksvd.mplstyle")
rng = np.random.default_rng(6)


def seconds(function, *arguments, repeats=3):
    """Shortest CPU time of a few runs."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        function(*arguments)
        times.append(time.process_time() - start)
    return max(min(times), 1e-6)


# %% [markdown]
# ## 1. Two slopes
# The dual takes the singular value decomposition of $K$ $(N, M)$: $O(NM\min(N, M))$ operations,
# $N^3$ if $N = M$. The primal multiplies $\Phi$ and $\Psi$ with $p$ columns a few times:
# $O((N + M)p^2)$. On a log-log plot a power law is a line, and its slope the exponent.
# %%
p = 16
few, many = np.array([100, 200, 400, 600]), np.array([2_000, 8_000, 32_000, 128_000])
pairs = {N: rng.standard_normal((2, N, p)) for N in (*few, *many)}
by_dual = [seconds(dual.solve, pairs[N][0] @ pairs[N][1].T, p) for N in few]
by_primal = [seconds(primal.solve, *pairs[N]) for N in (*few, *many)]
slopes = [np.polyfit(np.log(sizes[-3:]), np.log(times[-3:]), 1)[0]
          for sizes, times in ((few, by_dual), (many, by_primal))]
print(f"slope of the dual {slopes[0]:.1f}, of the primal {slopes[1]:.1f}")
assert slopes[0] > 1.6 and slopes[1] < 1.5                              # 3 and 1, with room
figure, ax = plt.subplots(figsize=(5.2, 3.4))
ax.loglog(few, by_dual, "s-", label="dual.solve, from K")
ax.loglog([*few, *many], by_primal, "o-", label=f"primal.solve, p = {p}")
ax.set(xlabel="N = M", ylabel="CPU seconds", title="Measured on this machine")
ax.legend()
plt.show()
# %% [markdown]
# The primal at $N = 128\,000$ takes about as long as the dual at a few hundred; there $K$ alone
# would fill 131 GB. The primal's flat start is the fixed price of a call.
#
# ## 2. When the fast route fails, and who notices
# `primal.solve` needs $R$ with $R^\top R = \Phi^\top\Phi$ (K.39). The Gram matrix gives it in one
# product, but squares: lesson 04 saw the error grow as $\varepsilon\kappa^2$ with
# $\kappa = \|\Phi\|\|\Psi\|/\sigma_s$, where QR has $\varepsilon\kappa$. Nobody knows $\kappa$
# before the problem is solved. The gate asks the answer itself: compute $\sigma_s$ by the Gram
# route, and believe it only if the $\hat\kappa$ that follows from it is at most 100.
#
# Can a wrong $\sigma_s$ slip through? It would have to be far too *large*. Rounding in the Gram
# matrix adds noise of size $\sqrt\varepsilon\,\|\Phi\|$ to $R$, so a lost $\sigma_s$ comes out
# anywhere below $10^{-7}\|\Phi\|\|\Psi\|$, and $\hat\kappa$ above $10^7$. To pass a gate at 100
# it would have to be five orders of magnitude larger.
# %%
root = lambda A: (lambda w, V: np.sqrt(np.abs(w))[:, None] * V.T)(*np.linalg.eigh(A.T @ A))
triangle = lambda A: np.linalg.qr(A, mode="r")
U, V = (np.linalg.qr(rng.standard_normal((n, 5)))[0] for n in (300, 200))
T, truth = np.linalg.qr(rng.standard_normal((5, 5)))[0], np.array([3.0, 2.5, 2.0, 1.5, 1.0])
kappas = np.logspace(0.5, 10, 20)
seen, off = [], {"Gram": [], "QR": [], "primal.solve": []}
for kappa in kappas:
    D = np.geomspace(1.0, 3.0 / kappa, 5)
    Phi, Psi = U * truth * D @ T, V * (D[-1] / D) @ T                   # sigma = truth * D[-1]
    norms = np.linalg.norm(Phi, 2) * np.linalg.norm(Psi, 2)
    for name, R in (("Gram", root), ("QR", triangle)):
        sigma = np.linalg.svd(R(Phi) @ R(Psi).T, compute_uv=False)
        off[name].append(max(abs(sigma / D[-1] / truth - 1)))
        if name == "Gram":
            seen.append(norms / sigma[-1])                              # what the gate sees
    off["primal.solve"].append(max(abs(primal.solve(Phi, Psi, 5).sigma / D[-1] / truth - 1)))
off, seen = {name: np.array(error) for name, error in off.items()}, np.array(seen)
caught = seen > 100
print(f"Gram route wrong by more than 1e-9 in {sum(off['Gram'] > 1e-9)} of {len(kappas)} cases; "
      f"the gate let {sum(off['Gram'][~caught] > 1e-9)} of them through")
assert np.any(off["Gram"] > 0.1) and np.all(off["Gram"][~caught] < 1e-11)
assert np.all(off["primal.solve"] < 1e-14 * np.maximum(kappas, 1e3))    # kappa eps, with room
figure, ax = plt.subplots(figsize=(5.6, 3.4))
for name, mark in (("Gram", "^-"), ("QR", "s-"), ("primal.solve", "k:")):
    ax.loglog(kappas, off[name], mark, label=name)
ax.axvspan(kappas[0], 100, color="0.93", zorder=0)
ax.set(xlabel=r"$\kappa = \|\Phi\|\,\|\Psi\|/\sigma_s$", ylabel=r"relative error of $\sigma$",
       title=r"Grey: where the gate believes the Gram matrix")
ax.legend()
plt.show()
# %% [markdown]
# `primal.solve` follows the Gram route inside the grey band and QR outside, so it is never on the
# steep branch.
#
# ## 3. Features that do not fit in memory
# $R$ has $p^2$ numbers, whatever $N$ is. Cut $\Phi$ in two: with $\Phi_1 = Q_1R_1$ and
# $\Phi_2 = Q_2R_2$,
# $$\begin{bmatrix}\Phi_1\\ \Phi_2\end{bmatrix}
#   = \begin{bmatrix}Q_1 & \\ & Q_2\end{bmatrix}\begin{bmatrix}R_1\\ R_2\end{bmatrix}, \qquad
#   \begin{bmatrix}R_1\\ R_2\end{bmatrix} = QR_\varphi,$$
# and $R_\varphi$ is that of the whole. So a block can be forgotten once its triangle is known, and
# two triangles merge into one. Since $R^\top R = R_1^\top R_1 + R_2^\top R_2$, the merge is
# associative and commutative: any order, any tree.
# %%
one, two, three = (primal.factor(*rng.standard_normal((2, 50, p))) for _ in range(3))
gap = np.abs(primal.merge(primal.merge(one, two), three).R_phi
             - primal.merge(two, primal.merge(three, one)).R_phi).max()
print(f"(1 + 2) + 3 against 2 + (3 + 1): {gap:.0e}")
assert gap < 1e-12                                                      # sums of 150 products


# %% [markdown]
# `primal.solve_chunks` takes any iterable of such pairs. Here a generator reads a file through
# `numpy.memmap`, a new map for each block, so that what was read can leave memory with it. The
# two sides need not be cut alike: a block may be `None`.
# %%
def read(path, N, rows=10_000):
    for i in range(0, N, rows):
        yield tuple(np.memmap(path, float, "r", offset=8 * p * (side * N + i), shape=(rows, p))
                    for side in (0, 1))


peaks = []
with tempfile.TemporaryDirectory() as folder:
    for N in (20_000, 100_000):
        path = os.path.join(folder, f"features_{N}")
        rng.standard_normal((2 * N, p)).tofile(path)                    # Phi, then Psi
        tracemalloc.start()
        by_chunks = primal.solve_chunks(read(path, N))
        peaks.append(tracemalloc.get_traced_memory()[1] / 2 ** 20)
        tracemalloc.stop()
        disk = os.path.getsize(path) / 2 ** 20
        print(f"N = {N}: {disk:.0f} MB on disk, {peaks[-1]:.1f} MB of memory")
    whole = np.fromfile(path).reshape(2, N, p)
assert peaks[1] < 1.1 * peaks[0]
at_once = primal.solve(*whole)
np.testing.assert_allclose(by_chunks.sigma, at_once.sigma, rtol=1e-10)
flip = np.sign(np.sum(by_chunks.W_e * at_once.W_e, axis=0))
np.testing.assert_allclose(by_chunks.W_e * flip, at_once.W_e, atol=1e-8 * at_once.sigma[0])
print(f"signs that differ from those of primal.solve: {sum(flip < 0)} of {p}")
# %% [markdown]
# The sign rule asks for the largest entry of $E = \Phi W_e$: a second look at the rows, which a
# generator cannot give. It gets its signs from $W_e$ instead; a list gets the usual ones.
#
# ## 4. A large $K$ without features, and a few components
# If $K$ itself is at hand, a few of its singular vectors come from products with blocks of
# vectors alone. Block Golub-Kahan keeps orthonormal $V$ and $U$ with $KV = UB$,
# adds what is new in $K^\top U$ to $V$, and reads $\sigma$ off the small $B$.
# %%
X, Z = rng.standard_normal((2, 600, 32))
K = kernels.softmax(2.0 * X, Z)
slow, fast = seconds(dual.solve, K), seconds(dual.solve_golub_kahan, K, 5)
found, full = dual.solve_golub_kahan(K, 5), dual.solve(K, 5)
off = np.abs(found.sigma / full.sigma - 1).max()
print(f"600 x 600, s = 5: {slow:.3f} s by the SVD, {fast:.3f} s by Golub-Kahan, off {off:.0e}")
assert off < 1e-12                                                      # quadratic in tol = 1e-10
# %% [markdown]
# **The silent failure.** One vector at a time is what textbooks do first. A batch of six equal
# sequences has a block-diagonal $K$ and every $\sigma$ six times; one starting vector generates a
# space that holds *one* vector of each six.
# %%
one_block = kernels.softmax(X[:20, :8], Z[:20, :8])
batch = np.kron(np.eye(6), one_block)                                   # (120, 120)
sigma = np.linalg.svd(batch, compute_uv=False)


def krylov(K, b, steps):
    """Two singular values of K from the products of b vectors with K^T K, and their residuals."""
    V = np.linalg.qr(rng.standard_normal((K.shape[1], b)))[0]
    for _ in range(steps - 1):
        new = K.T @ (K @ V[:, -b:])
        new = new - V @ (V.T @ new)                                     # twice: once leaves what
        V = np.hstack([V, np.linalg.qr(new - V @ (V.T @ new))[0]])      # cancellation hides
    H_e, values, Wt = np.linalg.svd(K @ V, full_matrices=False)
    return values[:2], np.linalg.norm(K.T @ H_e[:, :2] - V @ Wt[:2].T * values[:2], axis=0)


for b, steps in ((1, 12), (4, 6)):
    values, residual = krylov(batch, b, steps)
    print(f"block of {b}: {values.round(4)} for {sigma[:2].round(4)}, residual {max(residual):.0e}")
    assert max(residual) < 1e-3                                         # both say: converged
    assert (abs(values[1] / sigma[1] - 1) > 0.1) == (b == 1)            # one of them is wrong
np.testing.assert_allclose(dual.solve_golub_kahan(batch, 2).sigma, sigma[:2], rtol=1e-12)
# %% [markdown]
# A residual says that what was found is right, never that nothing was missed. A block of $s + 2$
# vectors finds a $\sigma$ as often as it is asked for.
#
# ## 5. A few rows and columns: asymmetric Nyström
# Choose $n$ row and $m$ column landmarks and evaluate $K_{N,m}$, $K_{nm}$, $K_{n,M}$ only (K.37):
# $$\hat K = K_{N,m}\,K_{nm}^+\,K_{n,M}.$$
# It is exact if and only if the small corner has the rank of $K$. The pseudo-inverse matters: a
# landmark drawn twice makes the corner singular, and $K_{nm}^{-1}$ would divide by zero.
# %%
low = rng.standard_normal((50, 3)) @ rng.standard_normal((3, 40))       # rank 3
rows, columns = [4, 17, 17, 30], [8, 8, 20, 33]                         # both hold a copy
approximation = nystrom.approximate(low[:, columns], low[np.ix_(rows, columns)], low[rows])
print(f"rank 3 from 3 + 3 landmarks and 2 copies: off by {np.abs(approximation - low).max():.0e}")
assert np.abs(approximation - low).max() < 1e-11                        # condition of the corner
# %% [markdown]
# For a full-rank kernel the choice decides, twice. Six clusters of points: **bad** landmarks come
# from three clusters only. And the corner must not be nearly singular, or its inverse blows up what
# it has no knowledge of: rows drawn in one cluster and columns in another make it so. Hence
# $s = n/2$ components of it, and for comparison **all** of them. No approximation of rank $s$ beats
# the first $s$ components of the singular value decomposition (Eckart and Young).
# %%
label = np.repeat(np.arange(6), 60)
centres = 6.0 * np.random.default_rng(2).standard_normal((6, 2))
X, Z = centres[label] + rng.standard_normal((2, 360, 2))
K = kernels.rbf(X, Z, gamma=0.05)
spectrum, norm = dual.solve(K, 360).sigma, np.linalg.norm(K)
sizes, error = np.array([6, 12, 24, 48, 96]), {"all components": [], "bad": [], "good": []}
for n in sizes:
    for name, curve in error.items():
        pool, gaps = np.flatnonzero(label < 3) if name == "bad" else np.arange(360), []
        for seed in range(9):
            I, J = (pool[nystrom.landmarks(len(pool), n, seed=2 * seed + side)] for side in (0, 1))
            corner = K[np.ix_(I, J)]
            s = np.linalg.matrix_rank(corner) if name == "all components" else n // 2
            H_e, sigma, H_r = nystrom.solve(K[:, J], corner, K[I], s, N=360, M=360)
            gaps.append(np.linalg.norm(K - H_e * sigma @ H_r.T) / norm)
        curve.append(np.median(gaps))
best = np.array([np.sqrt(np.sum(spectrum[n // 2:] ** 2)) / norm for n in sizes])
for n, everything, bad, good, least in zip(sizes, *error.values(), best):
    print(f"{n:3} landmarks: all components {everything:.0e}, bad {bad:.0e}, good {good:.0e}, "
          f"best of rank {n // 2} {least:.0e}")
distance = np.array(error["good"]) / best
print(f"good landmarks are off by {min(distance):.1f} to {max(distance):.1f} times the best")
assert np.all(distance >= 1) and max(distance) < 50 and good < 0.01 and bad > 0.1
assert error["all components"][0] > 10                                  # worse than K = 0
figure, ax = plt.subplots(figsize=(5.2, 3.4))
for (name, curve), mark in zip(error.items(), ("v--", "^-", "o-")):
    ax.loglog(sizes, curve, mark, label=name)
ax.loglog(sizes, best, color="0.6", label="best of rank n/2")
ax.set(xlabel="landmarks on each side", ylabel=r"$\|K - \hat K\| / \|K\|$",
       title="Nyström on six clusters")
ax.legend()
plt.show()
# %% [markdown]
# More landmarks in the wrong place do not help; a fair sample stays within a factor of the best of
# its rank, if it asks for less than it has landmarks. With features, `nystrom.solve_features` does
# the same without forming $K$.
#
# ## 6. The same sum on several machines
# Map: `factor` turns a block into a triangle where the block lies. Reduce: `merge` adds two
# triangles up. Finish: `solve_factor`. Any engine with map and reduce will do; here two worker
# processes of `dask.distributed`, the first of which never sees what the second reads.
# %%


def draw(i):
    return np.random.default_rng(i).standard_normal((2, 1_000, p))


by_map_reduce = primal.solve_factor(reduce(primal.merge, map(lambda i: primal.factor(*draw(i)),
                                                             range(8))))
if find_spec("distributed"):
    from distributed import Client
    from distributed.deploy.subprocess import SubprocessCluster

    with SubprocessCluster(n_workers=2, worker_kwargs={"nthreads": 1},
                           scheduler_kwargs={"dashboard_address": ":0"}) as cluster, \
            Client(cluster) as client:
        triangles = client.map(lambda i: primal.factor(*draw(i)), range(8))
        while len(triangles) > 1:
            triangles = [client.submit(primal.merge, *pair)
                         for pair in zip(triangles[::2], triangles[1::2])]
        distributed = primal.solve_factor(triangles[0].result())
    gap = np.abs(distributed.W_e - by_map_reduce.W_e).max() / distributed.sigma[0]
    print(f"two worker processes, 8 blocks, against the sum in this process: {gap:.0e}")
    assert gap < 1e-10
else:
    print("skipped, dask.distributed is not installed: pip install -e '.[dask]'")


# %% [markdown]
# ## Exercises
# After `import runpy`, load the checks with
# `check = runpy.run_path(str(HERE / "solutions" / "06_large_kernels.py"))`
# and call, for example, `check["check_6_1"](merge)`.
#
# **E6.1** (1 line) The triangle of two triangles, without `primal.merge`.
# %%
def merge(R_1, R_2):
    raise NotImplementedError("Exercise 6.1: an R with R^T R = R_1^T R_1 + R_2^T R_2")


# check["check_6_1"](merge)
# %% [markdown]
# **E6.2** (about 4 lines) $\hat K$ from the three pieces, with your own pseudo-inverse: leave out
# $\tilde\sigma \le \tilde\sigma_1\max(n, m)\,\varepsilon$. The check draws landmarks twice.
# %%
def from_landmarks(K_rows, K_landmarks, K_cols):
    raise NotImplementedError("Exercise 6.2: svd of the corner, a cut, three products")


# check["check_6_2"](from_landmarks)
# %% [markdown]
# Three questions without code.
# 1. Adding Gram matrices is associative too, and cheaper than merging triangles. Why does
# `solve_chunks` not do it?
# 2. A $\sigma$ of $K$ occurs 20 times, and you ask Golub-Kahan for $s = 5$ components. What do you
# get, and what do you know about $\sigma_6$?
# 3. All rows of $K$ are landmarks, $n = N$, but only $m < M$ columns. When is $\hat K = K$?
#
# *Where this is used.* Lessons 08 to 10 on attention matrices; `tests/benchmarks.py` has the times
# against SciPy and scikit-learn.
#
# *Further reading.* Golub and Van Loan, *Matrix Computations*, for QR, Golub-Kahan and block
# Lanczos. Golub and Kahan, Calculating the singular values and pseudo-inverse of a matrix, SIAM
# J. Numer. Anal. B 2(2), 1965. Williams and Seeger, Using the Nyström method to speed up kernel
# machines, NIPS 2000. Halko, Martinsson and Tropp, Finding structure with randomness, SIAM Review
# 53(2), 2011.
