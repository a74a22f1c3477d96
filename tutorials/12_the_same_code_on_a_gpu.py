# %% [markdown]
# # The same code on a GPU
# **You will do.** Run the KSVD of a batch of attention matrices on a GPU by moving its input, count
# what the transfer costs, and look for the three places where a GPU answers differently.
#
# **You will learn.** How one source serves NumPy, autograd and CuPy; what a library must not do to
# make that possible; what is worth moving, and what is not.
#
# **You need.** Lessons 03, 04 and 06, 25 minutes; for sections 3 to 5 an NVIDIA GPU and
# `pip install "ksvd_ref[cuda13]"`. Without one this lesson shows what would run, and runs the rest.
# %%
import re
import time
from pathlib import Path

import array_api_strict
import numpy as np

from ksvd_ref import backend, dual, kernels, primal

HERE = Path(__file__).parent if "__file__" in globals() else Path.cwd()
rng = np.random.default_rng(12)
X, Z = rng.standard_normal((2, 300, 32))
# %% [markdown]
# ## 1. Who owns the array decides
# No function of this package has an option for the device. Each begins with
# `xp = namespace(K)`, the library that the *data* belong to, and then says `xp.exp`,
# `xp.linalg.svd`, ... NumPy arrays give NumPy, arrays that autograd follows give `autograd.numpy`,
# CuPy's give CuPy. So the code that a GPU runs is the code that you have read.
# %%
print("NumPy array:", backend.namespace(X).__name__)
strict = array_api_strict.asarray(X, device=array_api_strict.Device("device1"))
print("an array of another library, on a pretended device:", backend.namespace(strict).__name__)
try:
    backend.namespace(X, strict)
    raise SystemExit("a mixture was accepted")
except TypeError as error:
    print("both at once:", error)
# %% [markdown]
# Mixtures are refused, and nothing is moved behind your back: one forgotten transfer inside a loop
# costs more than the loop. `backend.to_device` is the only function that moves data.
#
# ## 2. A device that is none
# `array-api-strict` pretends to have devices, and refuses every hidden trip to the host, as a GPU
# does: `np.exp(x)`, `np.asarray(x)`, a constant made in another place. If the KSVD runs there, it
# has no such line.
# %%
for refused in (lambda: np.exp(strict), lambda: strict + X, lambda: np.linalg.svd(strict)):
    try:
        refused()
        raise SystemExit("a hidden transfer was accepted")
    except (TypeError, RuntimeError, ValueError) as error:
        print("refused:", re.sub(r"\s+", " ", str(error))[:90])
K = kernels.softmax(strict, array_api_strict.asarray(Z, device=strict.device))
there = dual.solve_golub_kahan(K, 5)
here = dual.solve_golub_kahan(kernels.softmax(X, Z), 5)
back = np.asarray(there.sigma.to_device(array_api_strict.Device("CPU_DEVICE")))
print(f"softmax kernel and 5 components there and here: {np.abs(back - here.sigma).max():.0e}")
assert there.H_e.device == strict.device and np.abs(back - here.sigma).max() < 1e-13


# %% [markdown]
# ## 3. On the GPU
# What follows runs where CuPy finds a GPU, and is shown where it does not.
# %%
def on_the_gpu(X, Z):
    """Move, compute, move back: the middle lines are those of a CPU."""
    X, Z = backend.to_device(X, "gpu"), backend.to_device(Z, "gpu")
    xp, K = backend.namespace(X, Z), kernels.softmax(X, Z)
    H_e, sigma, H_r = dual.solve(K, 5)
    gap = xp.max(xp.abs(K @ H_r - H_e * sigma))                         # still on the GPU
    return backend.to_device(sigma, "cpu"), float(gap)                  # here Python waits for it


def gpu():
    """Why there is none, or None."""
    try:
        backend.to_device(np.zeros(1), "gpu")
    except (ImportError, RuntimeError) as error:
        return str(error)


missing = gpu()
if missing:
    print("skipped:", missing)
else:
    sigma, gap = on_the_gpu(X, Z)
    want = dual.solve(kernels.softmax(X, Z), 5).sigma
    off = np.abs(sigma / want - 1).max()
    print(f"sigma on GPU and CPU: {off:.0e}, K H_r - H_e Sigma: {gap:.0e}")
    assert off < 1e-12 and gap < 1e-12
# %% [markdown]
# ## 4. Where the answers differ
# 1. **Singular vectors have another sign or basis.** Any joint sign is right, and any basis where
#    $\sigma$ repeats (lesson 03). Compare $\sigma$, projectors $H_eH_e^\top$ and products, never
#    vectors.
# 2. **Sums run in another order.** Twice the same call may differ in the last digits, and both
#    answers are right to rounding.
# 3. **float32 may not be float32.** With TF32 switched on, a product cuts its factors to ten bits.
#    CuPy does so only if `CUPY_TF32=1` is set. The next lines do it by hand, to show what it costs.
# %%
A, B = rng.standard_normal((2, 512, 512)).astype("float32")
exact = A.astype(float) @ B.astype(float)
ten_bits = lambda M: (M.view("uint32") + 0x1000 & np.uint32(0xFFFFE000)).view("float32")
errors = {name: np.linalg.norm(product - exact) / np.linalg.norm(exact) for name, product in (
    ("float32", A @ B), ("factors of ten bits", ten_bits(A) @ ten_bits(B)))}
for name, error in errors.items():
    print(f"{name:20} relative error {error:.0e}")
assert errors["float32"] < 1e-5 < 1e-4 < errors["factors of ten bits"]
# %% [markdown]
# Three digits are gone, and nothing warned. `tests/gpu_check.py` has this test, and a test that
# the test can fail.
#
# ## 5. What is worth moving
# A transfer takes its time per number. The KSVD of features takes $O(Np^2)$ operations on $Np$
# numbers, a multiple of $p$ for each. Below, the time per number of copying an array in memory,
# which a transfer hardly beats, against that of solving.
# %%
copying, solving = [], []
for p in (4, 16, 64):
    Phi, Psi = rng.standard_normal((2, 20_000, p))
    best = [np.inf, np.inf]
    for _ in range(5):
        for n, run in enumerate((lambda: (Phi.copy(), Psi.copy()), lambda: primal.solve(Phi, Psi))):
            start = time.process_time()
            run()
            best[n] = min(best[n], time.process_time() - start)
    copying.append(best[0] / (Phi.size + Psi.size))
    solving.append(best[1] / (Phi.size + Psi.size))
    print(f"p = {p:2}: copying {1e9 * copying[-1]:5.2f} ns per number, solving "
          f"{1e9 * solving[-1]:5.2f} ns, {solving[-1] / copying[-1]:.0f} times as much")
assert all(solve > 1.5 * copy for solve, copy in zip(solving, copying))
# %% [markdown]
# Solving costs a few copies; that the multiple does not grow with $p$ is the machine's doing, which
# multiplies wide matrices faster. If the way to the GPU is as many times slower than memory, moving
# eats all that the GPU gains: features should be *made* there, or be moved once and used often. The
# table that `python tests/gpu_check.py` prints has both columns, with and without transfers.
# %%
table = HERE.parent / "tests" / "gpu_check.md"
print(table.read_text() if table.exists() else
      "No table yet: this code has not run on a GPU. Where you have one, python tests/gpu_check.py "
      "makes it.")


# %% [markdown]
# ## Exercises
# After `import runpy`, load the checks with
# `check = runpy.run_path(str(HERE / "solutions" / "12_the_same_code_on_a_gpu.py"))`
# and call, for example, `check["check_12_1"](column_norms)`.
#
# **E12.1** (about 2 lines) The lengths of the columns of a matrix of *any* library. The check tries
# NumPy, autograd and a pretended device.
# %%
def column_norms(A):
    raise NotImplementedError("Exercise 12.1: begin with xp = namespace(A); no linalg.norm")


# check["check_12_1"](column_norms)
# %% [markdown]
# **E12.2** (about 3 lines) Do two duals hold the same answer? True if $\sigma$, the left projectors
# and the products agree to `tol`, whatever the signs and the basis of a repeated $\sigma$.
# %%
def same_answer(one, other, tol):
    raise NotImplementedError("Exercise 12.2: three comparisons, none of single vectors")


# check["check_12_2"](same_answer)
# %% [markdown]
# Three questions without code.
# 1. `if xp.max(K) > 0:` runs on a GPU. What does it cost there that it does not cost on a CPU?
# 2. autograd cannot follow CuPy arrays. Which function of `primal` makes that bearable?
# 3. Random features are drawn with NumPy and then moved. Why not on the GPU?
#
# *Where this is used.* Nowhere in the other lessons: their matrices are small enough for a CPU.
#
# *Further reading.* The array API standard of the Consortium for Python Data API Standards,
# data-apis.org. The CuPy documentation, "Differences between CuPy and NumPy". Okuta et al., CuPy:
# a NumPy-compatible library for NVIDIA GPU calculations, LearningSys at NIPS 2017.
