# %% [markdown]
# # The same code on a GPU
# **You will do.** Run one function on three libraries by moving its input; look for the three
# places where a GPU answers differently; measure what it costs to move a number.
#
# **You will learn.** How one source serves NumPy, autograd and CuPy; how to compare two answers;
# what is worth moving, and what is not.
#
# **You need.** Lesson 02: signs, and the basis where $\sigma$ repeats, are free. Lesson 05: a space
# is as sure as its gap. 35 minutes, and 20 more for the exercises. Section 3 needs an NVIDIA GPU
# and `pip install "ksvd_ref[cuda13]"`; without them it says so, and all else runs.
# %%
import re
import time

import array_api_strict
import autograd.numpy as anp
import matplotlib.pyplot as plt
import numpy as np
from autograd import grad

from ksvd_ref import backend, dual, kernels, large, primal
from ksvd_ref.attention import smoother
from ksvd_ref.course import exercises

plt.style.use("ksvd_ref.data.ksvd")
rng = np.random.default_rng(12)
X, Z = rng.standard_normal((2, 300, 32))


# %% [markdown]
# ## 1. Who owns the array decides
# No function of this package has an option for the device. Where it matters, a body begins with `xp
# = namespace(K)`, the library that the *data* belong to, and then says `xp.exp`, `xp.linalg.svd`.
# NumPy arrays give NumPy, arrays that autograd follows `autograd.numpy`, CuPy's CuPy. So a GPU runs
# the code that you have read. This function is written the same way; it says how well
# $K H_r = H_e\Sigma$ holds (K.15).
# %%
def top(X, Z, s=5):
    xp, K = backend.namespace(X, Z), kernels.softmax(X, Z)
    H_e, sigma, H_r = dual.solve(K, s)
    return sigma, xp.max(xp.abs(K @ H_r - H_e * sigma))


sigma, gap = top(X, Z)
seen = []
slope = grad(lambda X: (seen.append(backend.namespace(X).__name__), anp.sum(top(X, Z)[0]))[1])(X)
print("NumPy:", sigma.round(4), f"gap {gap:.0e}; then", seen[0], slope.shape)
assert isinstance(sigma, np.ndarray) and gap < 1e-13 and seen == ["autograd.numpy"]
# %% [markdown]
# ## 2. A rehearsal without a GPU
# `array-api-strict` pretends to have devices, and refuses most trips to the host, more of them than
# a GPU does. What runs here moves no array by oversight. Single numbers it lets pass: at `float(x)`
# and `if x > 0:` Python waits, here and on a GPU.
# %%
place = array_api_strict.Device("device1")
there = [array_api_strict.asarray(A, device=place) for A in (X, Z)]
for name, hidden in (("np.exp(x)", np.exp), ("x + a NumPy array", lambda x: x + X),
                     ("np.asarray(x)", np.asarray), ("np.linalg.svd(x)", np.linalg.svd),
                     ("namespace(x, a NumPy array)", lambda x: backend.namespace(x, X))):
    try:
        hidden(there[0])
        raise SystemExit("a hidden transfer was accepted")
    except (TypeError, RuntimeError, ValueError) as error:
        print(f"{name:28} refused: {re.sub(r'[^ -~]+', ' ', str(error))[:50]} ...")
# %%
sigma_there, gap_there = top(*there)
assert sigma_there.device == gap_there.device == place and float(gap_there) < 1e-13
back = np.asarray(sigma_there.to_device(array_api_strict.Device("CPU_DEVICE")))
print(f"there and here: {np.abs(back - sigma).max():.0e}")
assert np.abs(back - sigma).max() < 1e-13
hidden = smoother.weights(*there, mask=smoother.causal(300))                # a mask of NumPy
assert hidden.device == place and float(hidden[0, 1]) == 0.0
# %% [markdown]
# Mixtures of your arrays are refused: one forgotten transfer inside a loop costs more than the
# loop. Your numbers move by `backend.to_device`. What is made on the host goes to where your data
# are: a mask of NumPy, and the sinusoids, tables of offsets and random directions that a function
# makes itself.
#
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
# ## 4. Three places where the answers differ
# **Singular vectors have another basis where $\sigma$ repeats**, and another sign in other
# libraries; this package fixes it by the largest entry of $h_e$. It takes no GPU to see it: here
# are two algorithms of this package on one matrix with $\sigma = (2, 2, 1)$.
# %% Differences of two right answers: vectors differ in the first digit, all else by rounding
U, V = (np.linalg.qr(rng.standard_normal((n, 3)))[0] for n in (40, 30))
K = U * [2.0, 2.0, 1.0] @ V.T
one, two = dual.solve(K, 3), large.golub_kahan(K, 3)
differ = {name: np.abs(a - b).max() for name, (a, b) in {
    r"$h_{e,1}, h_{e,2}$, of the repeated $\sigma$": (one.H_e[:, :2], two.H_e[:, :2]),
    r"$h_{e,3}$, the sign fixed by a rule": (one.H_e[:, 2], two.H_e[:, 2]),
    r"$\sigma$": (one.sigma, two.sigma),
    r"projector $H_e H_e^\top$": (one.H_e @ one.H_e.T, two.H_e @ two.H_e.T),
    r"product $H_e \Sigma H_r^\top$": (K, two.H_e * two.sigma @ two.H_r.T)}.items()}
first, *others = differ.values()
assert first > 1e-3 and max(others) < 1e-12
figure, ax = plt.subplots(figsize=(7, 2.2))
ax.semilogx(np.maximum(list(differ.values()), 1e-17), range(5), "o", markersize=6)
ax.set_yticks(range(5), list(differ))
ax.set(xlabel="largest difference of the two answers", xlim=(3e-18, 10), ylim=(4.5, -0.5))
plt.show()
# %% [markdown]
# *See:* the vectors of the repeated $\sigma$ differ in the first digit and both are right; all else
# agrees to rounding. **Compare $\sigma$, projectors and products, never vectors.** How sure a space
# is, its gap says (lesson 05).
#
# **Sums run in another order.** A GPU adds in thousands of threads, so the last digits may differ,
# also between two calls, and each answer is right to rounding.
# %%
numbers = rng.standard_normal(100_000).astype("float32")
pairs, in_turn = np.sum(numbers), np.cumsum(numbers)[-1]                # two orders of adding
truth, size = np.sum(numbers.astype(float)), np.sum(np.abs(numbers), dtype=float)
print(f"one sum: {pairs:.6f} in pairs, {in_turn:.6f} in turn, {truth:.6f} in float64")
assert pairs != in_turn and max(abs(pairs - truth), abs(in_turn - truth)) < 1e-6 * size


# %% [markdown]
# **float32 may not be float32.** TF32 is a faster kind of product on a GPU, which keeps of its
# factors ten bits after the first, in place of 23. CuPy does so only if `CUPY_TF32=1` is set. By
# hand:
# %%
def keep(M, bits):
    drop = np.uint32(23 - bits)
    half = np.uint32(1 << (22 - bits)) if bits < 23 else np.uint32(0)
    return ((M.view("uint32") + half) >> drop << drop).view("float32")      # rounded


A, B = rng.standard_normal((2, 256, 256)).astype("float32")
exact = A.astype(float) @ B.astype(float)
error = {b: np.linalg.norm(keep(A, b) @ keep(B, b) - exact) / np.linalg.norm(exact)
         for b in (9, 10, 23)}
print("error with 9, 10 and 23 bits:", *(f"{x:.0e}" for x in error.values()))
assert np.array_equal(keep(A, 23), A) and keep(np.float32([1 + 3 / 16]), 3) == np.float32(1.25)
assert 1.8 < error[9] / error[10] < 2.2 and error[10] > 500 * error[23]
# %% [markdown]
# At ten bits three digits of seven are gone, unwarned. `tests/gpu_check.py` has this test.
#
# ## 5. What is worth moving
# The KSVD of features $\Phi$, $\Psi$ takes of the order of $Np^2$ operations on $2Np$ numbers.
# Below is the time per number of copying an array in memory, which a transfer hardly beats, against
# that of solving.
# %% Time per number against p, copying and solving: solving takes longer at each p
sizes, took = (4, 16, 64), np.full((2, 3), np.inf)
for i, p in enumerate(sizes):
    both = rng.standard_normal((2, 20_000, p))                          # Phi and Psi
    other = np.empty_like(both)
    for way, work in 15 * [(0, lambda: np.copyto(other, both)), (1, lambda: primal.solve(*both))]:
        start = time.process_time()
        work()
        took[way, i] = min(took[way, i], 1e9 * (time.process_time() - start) / both.size)
print("solving, over copying:", (took[1] / took[0]).round(1))
assert (took[1] / took[0]).min() > 1.5
figure, ax = plt.subplots(figsize=(7, 2.4))
ax.loglog(sizes, took.T, "o-", label=["copying", "solving"])
ax.set(xlabel="p, features", ylabel="ns per number", xticks=sizes, xticklabels=sizes)
ax.minorticks_off()
ax.legend()
plt.show()


# %% [markdown]
# *See:* solving costs more than a copy at each of these $p$. If the way to the GPU is slower than
# memory by that factor, moving takes as long as solving here: make features *there*, or move them
# once and use them often.
#
# ## In short
# The data decide where the code runs. Two right answers differ in signs, in the basis of a tie and
# in the last digits, so compare what is unique. Moving can cost as much as solving.
#
# $$\sigma, \qquad H_eH_e^\top, \qquad H_e\Sigma H_r^\top.$$
#
# The picture to remember: vectors that differ in the first digit, and projectors that do not.
#
# ## Exercises
# Fill in the functions; each check says what is wrong. `ksvd-ref check FILE` marks a whole file.
# %% [markdown]
# **E15.1** (about 2 lines) The lengths of the columns of a matrix of *any* library. The check tries
# NumPy, autograd and a pretended device.
# %%
def column_norms(A):
    raise NotImplementedError("Exercise 15.1: begin with xp = namespace(A); no linalg.norm")


# %%
exercises.check("15.1", column_norms)


# %% [markdown]
# **E15.2** (about 3 lines) Do two duals hold the same answer? True if $\sigma$, the left projectors
# and the products agree to `tol`, whatever the signs and the basis of a repeated $\sigma$.
# %%
def same_answer(one, other, tol):
    raise NotImplementedError("Exercise 15.2: three comparisons, none of single vectors")


# %%
exercises.check("15.2", same_answer)


# %% [markdown]
# **E15.3** (about 2 lines) Predict which of `A + c`, `A + c * np.eye(n)`, `A + c * xp.eye(n)` and
# `A[i, i] += c` is $A + cI$ on every library. Then write the line that is, for a square $A$ of any
# library, dtype and device.
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
# data-apis.org. The CuPy documentation, "Differences between CuPy and NumPy". Okuta et al., CuPy: a
# NumPy-compatible library for NVIDIA GPU calculations, LearningSys at NIPS 2017.
