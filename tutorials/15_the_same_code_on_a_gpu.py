# %% [markdown]
# # The same code on a GPU
# **You will do.** Run one function, from kernel to singular values, on three libraries by moving
# its input; look for the three places where a GPU answers differently; measure what it costs to
# move a number against what it costs to use it.
#
# **You will learn.** How one source serves NumPy, autograd and CuPy; what a library must not do to
# make that possible; how to compare two answers; what is worth moving, and what is not.
#
# **You need.** Lessons 02, 03 and 14; 30 minutes, and 20 more for the exercises. Section 3 needs an
# NVIDIA GPU and `pip install "ksvd_ref[cuda13]"`; without them it says so, and all else runs.
# %%
import re
import time

import array_api_strict
import autograd.numpy as anp
import matplotlib.pyplot as plt
import numpy as np
from autograd import grad

from ksvd_ref import backend, dual, kernels, large, primal
from ksvd_ref.course import exercises
from ksvd_ref.attention import smoother

plt.style.use("ksvd_ref.data.ksvd")
rng = np.random.default_rng(12)
X, Z = rng.standard_normal((2, 300, 32))
# %% [markdown]
# ## 1. Who owns the array decides
# No function of this package has an option for the device. Each begins with `xp = namespace(K)`,
# the library that the *data* belong to, and then says `xp.exp`, `xp.linalg.svd`, ... NumPy arrays
# give NumPy, arrays that autograd follows give `autograd.numpy`, CuPy's give CuPy. So the code that
# a GPU runs is the code that you have read. This function is written the same way:


# %%
def top(X, Z, s=5):
    """s singular values of a softmax kernel, and how well K H_r = H_e Sigma holds (K.15)."""
    xp, K = backend.namespace(X, Z), kernels.softmax(X, Z)
    H_e, sigma, H_r = dual.solve(K, s)
    return sigma, xp.max(xp.abs(K @ H_r - H_e * sigma))


sigma, gap = top(X, Z)
print("NumPy:", backend.namespace(X).__name__, sigma.round(4), f"gap {gap:.0e}")
assert isinstance(sigma, np.ndarray) and gap < 1e-13
seen = []
slope = grad(lambda X: (seen.append(backend.namespace(X).__name__), anp.sum(top(X, Z)[0]))[1])(X)
step = 1e-5 * rng.standard_normal(X.shape)          # a central difference along one direction
difference = np.sum(top(X + step, Z)[0]) - np.sum(top(X - step, Z)[0])
print(f"{seen[0]}: the derivative of the sum of sigma, off by "
      f"{abs(np.sum(2 * slope * step) / difference - 1):.0e}, relative")
assert seen == ["autograd.numpy"] and np.isclose(np.sum(2 * slope * step), difference, rtol=1e-5)
# %% [markdown]
# ## 2. A device that is none
# `array-api-strict` pretends to have devices and refuses most trips to the host, more of them than
# a GPU does: `np.asarray(x)` and `x + X` stop on both, `np.exp(x)` only here, for CuPy takes it and
# answers on the GPU. `float(x)` and `if x > 0:`, for one number, pass on both, and Python waits.
# What runs here moves no array by oversight.
# %%
place = array_api_strict.Device("device1")
there = [array_api_strict.asarray(A, device=place) for A in (X, Z)]
for name, hidden in (("np.exp(x)", lambda x: np.exp(x)), ("x + a NumPy array", lambda x: x + X),
                     ("np.asarray(x)", lambda x: np.asarray(x)),
                     ("np.linalg.svd(x)", lambda x: np.linalg.svd(x)),
                     ("namespace(x, a NumPy array)", lambda x: backend.namespace(x, X))):
    try:
        hidden(there[0])
        raise SystemExit("a hidden transfer was accepted")
    except (TypeError, RuntimeError, ValueError) as error:
        print(f"{name:28} refused: {re.sub(r'[^ -~]+', ' ', str(error))[:60]} ...")
sigma_there, gap_there = top(*there)
assert sigma_there.device == gap_there.device == place
assert 0.0 < float(gap_there) < 1e-13 and not gap_there > 1e-13             # these two pass
back = np.asarray(sigma_there.to_device(array_api_strict.Device("CPU_DEVICE")))
print(f"top(X, Z) there and here: {np.abs(back - sigma).max():.0e}")
assert np.abs(back - sigma).max() < 1e-13
hidden = smoother.weights(*there, mask=smoother.causal(300))                # a mask of NumPy: moved
assert hidden.device == place and float(hidden[0, 1]) == 0.0
# %% [markdown]
# Mixtures are refused, and nothing is moved behind your back: one forgotten transfer inside a loop
# costs more than the loop. Numbers of yours move by `backend.to_device` alone. What is made on the
# host goes to where your data are: a NumPy mask, and the sinusoids, tables of offsets and random
# directions that a function makes itself.
# ## 3. On the GPU
# Move, compute, move back. The line in the middle is that of section 1.
# %%
try:
    moved = [backend.to_device(A, "gpu") for A in (X, Z)]
except (ImportError, RuntimeError) as error:
    print("not here:", error)
else:
    sigma_gpu, gap_gpu = top(*moved)
    off = np.abs(backend.to_device(sigma_gpu, "cpu") / sigma - 1).max()     # Python waits here
    print(f"sigma on GPU and CPU: {off:.0e}, relative; gap on the GPU {float(gap_gpu):.0e}")
    assert off < 1e-12 and gap_gpu < 1e-12
    np.testing.assert_raises(TypeError, lambda: np.asarray(moved[0]))
    np.testing.assert_raises(TypeError, lambda: moved[0] + X)
# %% [markdown]
# ## 4. Where the answers differ
# **Singular vectors have another sign or basis.** Any joint sign is right, and any basis where
# $\sigma$ repeats (lesson 02). It takes no GPU to see it: here are two algorithms of this package
# on one matrix with $\sigma = (2, 2, 1)$.
# %% Differences of two right answers: vectors differ in the first digit, all else by rounding
U, V = (np.linalg.qr(rng.standard_normal((n, 3)))[0] for n in (40, 30))
K = U * [2.0, 2.0, 1.0] @ V.T
one, two = dual.solve(K, 3), large.golub_kahan(K, 3)
product = lambda a, b: (a.H_e * a.sigma @ a.H_r.T, b.H_e * b.sigma @ b.H_r.T)
differ = {name: np.abs(a - b).max() for name, (a, b) in {
    r"$h_{e,1}, h_{e,2}$, of the repeated $\sigma$": (one.H_e[:, :2], two.H_e[:, :2]),
    r"$h_{e,3}$, the sign fixed by a rule": (one.H_e[:, 2], two.H_e[:, 2]),
    r"$\sigma$": (one.sigma, two.sigma),
    r"projector $H_e H_e^\top$": (one.H_e @ one.H_e.T, two.H_e @ two.H_e.T),
    r"product $H_e \Sigma H_r^\top$": product(one, two)}.items()}
first, *others = differ.values()
assert first > 1e-3 and max(others) < 1e-12 and np.abs(product(one, two)[0] - K).max() < 1e-12
figure, ax = plt.subplots(figsize=(7, 2.4))
ax.semilogx(np.maximum(list(differ.values()), 1e-17), range(5), "o", markersize=6)
ax.set_yticks(range(5), list(differ))
ax.set(xlabel="largest difference of the two answers", xlim=(3e-18, 10), ylim=(4.5, -0.5))
ax.grid(axis="y", color="0.92")
plt.show()
# %% [markdown]
# *See*: the vectors of the repeated $\sigma$ differ in the first digit and both are right; all else
# agrees to rounding. **Compare $\sigma$, projectors and products, never vectors.** (This package
# fixes signs by a rule; NumPy's and CuPy's own SVD do not.)
#
# How sure is each? Let $K$ change by $D$. No $\sigma$ moves further than $\|D\|$ (Weyl, K.45).
# The span of the $s$ leading vectors turns by a sine of at most
# $\|D\| / (\sigma_s - \sigma'_{s+1})$, the gap to the next $\sigma'$ of $K + D$ (Wedin, K.46).
# Within a repeated $\sigma$ there is no gap.
# %%
K_3 = U * [3.0, 2.0, 1.0] @ V.T
D = 1e-3 * rng.standard_normal((40, 30))
one, two, size = dual.solve(K_3, 3), dual.solve(K_3 + D, 3), np.linalg.norm(D, 2)
print(f"change {size:.1e}, sigma moved by {np.abs(one.sigma - two.sigma).max():.1e}")
assert np.abs(one.sigma - two.sigma).max() <= size
for s in (1, 2):
    outside = two.H_e[:, :s] - one.H_e[:, :s] @ (one.H_e[:, :s].T @ two.H_e[:, :s])
    assert np.linalg.norm(outside, 2) <= size / (one.sigma[s - 1] - two.sigma[s])
# %% [markdown]
# **Sums run in another order.** A GPU adds in thousands of threads, so the last digits may differ,
# also between two calls, and each answer is right to rounding.
# %%
numbers = rng.standard_normal(100_000).astype("float32")
pairs, in_turn = np.sum(numbers), np.cumsum(numbers)[-1]                # two orders of adding
truth, size = np.sum(numbers.astype(float)), np.sum(np.abs(numbers), dtype=float)
print(f"one sum: {pairs:.6f} in pairs, {in_turn:.6f} in turn, {truth:.6f} in float64")
assert pairs != in_turn and max(abs(pairs - truth), abs(in_turn - truth)) < 1e-6 * size
# %% [markdown]
# **float32 may not be float32.** With TF32 switched on, a product keeps ten bits of its factors
# after the first, in place of 23. CuPy does so only if `CUPY_TF32=1` is set. By hand:


# %% Error of a float32 product against the bits kept of its factors: it halves with each bit
def keep(M, bits):
    """Round float32 numbers to so many bits after the first."""
    drop = np.uint32(23 - bits)
    half = np.uint32(1 << (22 - bits)) if bits < 23 else np.uint32(0)
    return ((M.view("uint32") + half) >> drop << drop).view("float32")


A, B = rng.standard_normal((2, 256, 256)).astype("float32")
exact = A.astype(float) @ B.astype(float)
bits = np.arange(4, 24)
error = np.array([np.linalg.norm(keep(A, b) @ keep(B, b) - exact) for b in bits])
error = dict(zip(bits, error / np.linalg.norm(exact)))
assert np.array_equal(keep(A, 23), A) and keep(np.float32([1 + 3 / 16]), 3) == np.float32(1.25)
assert all(1.8 < error[b] / error[b + 1] < 2.2 for b in range(4, 16))
assert error[23] < 1e-6 and 1e-4 < error[10] < 1e-3 and error[10] > 500 * error[23]
figure, ax = plt.subplots(figsize=(7, 3))
ax.semilogy(bits, list(error.values()), "o-")
for b, name in ((10, "TF32"), (23, "float32")):
    ax.annotate(f"{name}: {error[b]:.0e}", (b, error[b]), xytext=(0, 12), ha="right" if b > 20 else
                "left", textcoords="offset points")
ax.set_xticks([4, 7, 10, 13, 16, 19, 23])
ax.set(xlabel="bits kept of each factor", ylabel="relative error of the product")
plt.show()
# %% [markdown]
# *See*: the error halves with each bit, until the sums of the product themselves round. At ten bits
# three digits of float32 are gone, and nothing warned. `tests/gpu_check.py` has this test, and a
# test that the test can fail.
#
# ## 5. What is worth moving
# A transfer takes its time per number. The KSVD of features takes $O(Np^2)$ operations on $2Np$
# numbers, some multiple of $p$ for each. Below, the time per number of copying an array in memory,
# which a transfer of ordinary memory hardly beats, against that of solving.
# %% Time per number against p, copying and solving: solving takes several times as long
sizes, took = (4, 16, 64), {"copying": [], "solving": []}
for p in sizes:
    Phi, Psi = both = rng.standard_normal((2, 20_000, p))
    other, best = np.empty_like(both), dict.fromkeys(took, np.inf)
    for name, work in 15 * [("copying", lambda: np.copyto(other, both)),
                            ("solving", lambda: primal.solve(Phi, Psi))]:
        start = time.process_time()
        work()
        best[name] = min(best[name], time.process_time() - start)
    for name in took:
        took[name].append(1e9 * best[name] / both.size)
    print(f"p = {p:2}: solving costs {took['solving'][-1] / took['copying'][-1]:.0f} copies")
times = np.array(took["solving"]) / took["copying"]
assert times.min() > 1.5 and times[-1] < 8 * times[0]                   # the operations: 16 times
figure, ax = plt.subplots(figsize=(7, 2.8))
for marker, (name, values) in zip("os", took.items()):
    ax.loglog(sizes, values, marker + "-")
    ax.annotate(name, (sizes[0], values[0]), xytext=(0, -16), textcoords="offset points")
ax.set_xticks(sizes, sizes)
ax.minorticks_off()
low, high = np.log10(np.min(took["copying"])), np.log10(np.max(took["solving"]))
ax.set(xlabel="p, features", ylabel="ns per number",
       ylim=(10 ** np.floor(low - 0.3), 10 ** np.ceil(high)))           # whole decades
plt.show()
# %% [markdown]
# *See*: solving costs several copies at any $p$. The operations for each number grow 16-fold, but
# the machine multiplies wide matrices faster. If the way to the GPU is as many times slower than
# memory, moving eats all that the GPU gains: features should be *made* there, or be moved once and
# used often. `python tests/gpu_check.py` prints the times with and without the transfers.


# %% [markdown]
# ## Exercises
# Each check says what is wrong. `ksvd-ref check FILE` marks a whole file.
# %% [markdown]
# **E15.1** (about 2 lines) The lengths of the columns of a matrix of *any* library. The check
# tries NumPy, autograd and a pretended device.
# %%
def column_norms(A):
    raise NotImplementedError("Exercise 15.1: begin with xp = namespace(A); no linalg.norm")


# %%
exercises.check("15.1", column_norms)


# %% [markdown]
# **E15.2** (about 3 lines) Do two duals hold the same answer? True if $\sigma$, the left
# projectors and the products agree to `tol`, whatever the signs and the basis of a repeated
# $\sigma$.
# %%
def same_answer(one, other, tol):
    raise NotImplementedError("Exercise 15.2: three comparisons, none of single vectors")


# %%
exercises.check("15.2", same_answer)


# %% [markdown]
# **E15.3** (about 2 lines) Predict which of `A + c`, `A + c * np.eye(n)`, `A + c * xp.eye(n)` and
# `A[i, i] += c` is $A + cI$ on every library. Then write the line that is, for a square $A$ of
# any library, dtype and device.
# %%
def ridge(A, c):
    raise NotImplementedError("Exercise 15.3: the identity must be like A, see backend.like")


# %%
exercises.check("15.3", ridge)
# %% [markdown]
# Three questions without code.
#
# 1. `if xp.max(K) > 0:` runs on a GPU. What does it cost there that it does not cost on a CPU?
# 2. autograd cannot follow CuPy arrays. Which function of `primal` makes that bearable?
# 3. Random features are drawn with NumPy and then moved. Why not on the GPU?
#
# *Where this is used.* Nowhere in the other lessons: their matrices are small enough for a CPU.
#
# *Further reading.* The array API standard of the Consortium for Python Data API Standards,
# data-apis.org. The CuPy documentation, "Differences between CuPy and NumPy". Okuta et al., CuPy:
# a NumPy-compatible library for NVIDIA GPU calculations, LearningSys at NIPS 2017.
