"""How fast, how exact, how large: every job against a peer or against its own matrix products.

    python tests/benchmarks.py              # the table of benchmarks.md, about five minutes
    python tests/benchmarks.py --quick      # smaller sizes, under two minutes, nothing is judged
    python tests/benchmarks.py --json FILE  # the rows as JSON too

One BLAS thread, CPU time, functions of one group interleaved in random order, medians of 7. A ratio
compares times of the same run: a busy machine slows both. Peers: pip install -e ".[bench]"; the
PyTorch rows appear where it is installed. Memory is the peak resident size of a new process.
"""
import argparse
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from typing import NamedTuple

REPEATS = 7


class Row(NamedTuple):
    """One line of the table."""

    job: str
    measured: float
    unit: str               # what `measured` is a multiple of
    target: str             # "<= 1.2", ">= 6", "~ 2" within 15 %; "" for a row that is only shown
    accuracy: str

    @property
    def verdict(self):
        """Reached, or missed by how much."""
        if not self.target:
            return ""
        sign, limit = self.target.split()
        off = self.measured / float(limit) - 1.0
        good = {"<=": off <= 0.0, ">=": off >= 0.0, "~": abs(off) <= 0.15}[sign]
        return "reached" if good else f"missed by {100.0 * abs(off):.0f} %"


def timed(functions, repeats=REPEATS):
    """Median CPU seconds of each function, all of them interleaved in random order."""
    seconds = {name: [] for name in functions}
    for function in functions.values():
        function()                                  # page faults and caches of a first call
    for _ in range(repeats):
        for name in random.sample(list(functions), len(functions)):
            start = time.process_time()
            functions[name]()
            seconds[name].append(time.process_time() - start)
    return {name: sorted(values)[len(values) // 2] for name, values in seconds.items()}


def fresh(code, *arguments):
    """What `code` prints in a new process: a list of numbers."""
    done = subprocess.run([sys.executable, "-c", PEAK + code, *map(str, arguments)], check=True,
                          capture_output=True, text=True)
    return [float(x) for x in done.stdout.split()]


# VmHWM is the peak of this process alone; ru_maxrss also counts the parent that started it.
PEAK = '''
import sys, time
def megabytes(what):
    try:
        with open("/proc/self/status") as file:
            return next(int(l.split()[1]) for l in file if l.startswith(what)) / 1024
    except OSError:                                 # not Linux
        import resource
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2 ** 20
'''


def features(N, p, seed=0):
    """Two random feature matrices with some correlation between their columns."""
    import numpy as np
    rng = np.random.default_rng(seed)
    T = np.eye(p) + 0.3 * rng.standard_normal((p, p)) / p ** 0.5
    return rng.standard_normal((N, p)) @ T, rng.standard_normal((N, p)) @ T


def spectrum(N, sigma, seed=0):
    """Square matrix with these singular values."""
    import numpy as np
    rng = np.random.default_rng(seed)
    U, V = (np.linalg.qr(rng.standard_normal((N, len(sigma))))[0] for _ in range(2))
    return U * sigma @ V.T


def softmax(N, seed=0, d=32):
    """Attention matrix of random queries and keys, correlated as after some training."""
    import numpy as np

    from ksvd_ref import kernels
    rng = np.random.default_rng(seed)
    return kernels.softmax(2.0 * rng.standard_normal((N, d)), rng.standard_normal((N, d)))


def errors(found, want):
    """Largest relative error of sigma, and the sine of the largest angle of the left subspaces."""
    import numpy as np
    sigma = np.max(np.abs(found[1] / want[1] - 1.0))
    A, B = found[0], want[0]
    return f"sigma {sigma:.0e}, subspace {np.linalg.norm(A - B @ (B.T @ A), 2):.0e}"


# --- the jobs

def primal_solve(quick):
    """Cost over two Gram products and one output product, and over svds."""
    import numpy as np
    from scipy.sparse.linalg import LinearOperator, svds

    from ksvd_ref import primal
    sizes = [(20_000, 64, 20)] if quick else [(100_000, 16, 8), (100_000, 64, 20),
                                              (1_000_000, 16, 8), (1_000_000, 64, 20)]
    for N, p, s in sizes:
        Phi, Psi = features(N, p)
        W_e, sigma, W_r = primal.solve(Phi, Psi, s)
        K = LinearOperator((N, N), matvec=lambda x: Phi @ (Psi.T @ x),
                           rmatvec=lambda x: Psi @ (Phi.T @ x),
                           matmat=lambda X: Phi @ (Psi.T @ X), rmatmat=lambda X: Psi @ (Phi.T @ X))

        def outputs():
            found = primal.solve(Phi, Psi, s)
            return Phi @ found.W_e, found.sigma, Psi @ found.W_r
        jobs = {"floor": lambda: (Phi.T @ Phi, Psi.T @ Psi, Phi @ W_e),
                "solve": lambda: primal.solve(Phi, Psi, s), "outputs": outputs}
        with_peer = p == 64 and N <= 100_000
        if with_peer:
            jobs["svds"] = lambda: svds(K, s, random_state=0)
        seconds = timed(jobs)
        R = [np.linalg.qr(A)[1] for A in (Phi, Psi)]
        true = np.linalg.svd(R[0] @ R[1].T)[1][:s]
        off = np.max(np.abs(sigma / true - 1.0))
        name = f"primal.solve, N = M = {N:.0e}, p = {p}, s = {s}"
        unit = "two Gram products, one output product"
        yield Row(name, seconds["solve"] / seconds["floor"], unit, "<= 1.05", f"sigma {off:.0e}")
        yield Row(f"{name}, then E and R", seconds["outputs"] / seconds["floor"], unit, "",
                  "the sign needs E: its product is made twice")
        if with_peer:
            U, values, Vt = svds(K, s, random_state=0)
            order = np.argsort(-values)
            mine = np.max(np.linalg.norm(Phi @ (Psi.T @ (Psi @ W_r)) / sigma ** 2
                                         - Phi @ W_e / sigma, axis=0))
            peer = np.max(np.linalg.norm(Phi @ (Psi.T @ Vt.T[:, order]) / values[order]
                                         - U[:, order], axis=0))
            theirs = np.max(np.abs(values[order] / true - 1.0))
            yield Row(f"{name}, then E and R, against svds of a LinearOperator",
                      seconds["svds"] / seconds["outputs"], "times faster than scipy svds",
                      ">= 20", f"sigma {off:.0e}, svds {theirs:.0e}; K h_r / sigma - h_e "
                      f"{mine:.0e}, svds {peer:.0e}")


def primal_memory(quick):
    """Peak memory beyond the inputs, over the two outputs."""
    code = '''
import numpy as np
from ksvd_ref import primal
N, p, s = map(int, sys.argv[1:])
rng = np.random.default_rng(0)
Phi, Psi = np.empty((N, p)), np.empty((N, p))
for A in (Phi, Psi):
    rng.standard_normal(out=A)
primal.solve(Phi[:1000], Psi[:1000], s)
before = megabytes("VmRSS")
W_e, sigma, W_r = primal.solve(Phi, Psi, s)
E, R = Phi @ W_e, Psi @ W_r
print(megabytes("VmHWM") - before, (E.nbytes + R.nbytes) / 2 ** 20)
'''
    N, p, s = (50_000 if quick else 500_000), 64, 20
    extra, outputs = fresh(code, N, p, s)
    yield Row(f"memory of primal.solve and E, R, N = M = {N:.0e}, p = {p}, s = {s}",
              extra / outputs, "the two outputs", "<= 1.2", f"{extra:.0f} MB beyond the inputs")


def opposed(quick):
    """Accuracy where the Gram matrices lose everything: no time, the error is what is measured."""
    import numpy as np

    from ksvd_ref import primal
    N, p = (1_000 if quick else 20_000), 10
    for kappa in (1e4, 1e6, 1e8, 3e9):
        rng, D = np.random.default_rng(0), np.geomspace(1.0, 2.0 / kappa, p)
        T = np.linalg.qr(rng.standard_normal((p, p)))[0]
        U, V = (np.linalg.qr(rng.standard_normal((N, p)))[0] for _ in range(2))
        want = np.linspace(2.0, 1.0, p)
        Phi, Psi = U * want * D @ T, V * (D[-1] / D) @ T
        found = primal.solve(Phi, Psi, p)
        sigma = np.max(np.abs(found.sigma / D[-1] / want - 1.0))
        H_e = Phi @ found.W_e / found.sigma
        angle = np.linalg.norm(H_e - U @ (U.T @ H_e), 2)
        name = f"opposed features, N = {N:.0e}, kappa = {kappa:.0e}"
        yield Row(f"{name}: sigma", sigma, "relative error", "<= 1e-8", "")
        yield Row(f"{name}: subspace", angle, "sine", "<= 1e-6", "")


def qr_route(quick):
    """What features that are too close to dependent for the Gram matrix cost."""
    from ksvd_ref import primal
    N, p = (20_000 if quick else 100_000), 64
    Phi, Psi = features(N, p)
    Phi[:, -1] = Phi[:, 0] + 1e-6 * Phi[:, -1]
    seconds = timed({"grams": lambda: (Phi.T @ Phi, Psi.T @ Psi),
                     "solve": lambda: primal.solve(Phi, Psi, p)}, 3 if quick else REPEATS)
    yield Row(f"primal.solve by QR, N = M = {N:.0e}, p = {p}, all components",
              seconds["solve"] / seconds["grams"], "two Gram products", "<= 8", "")


def golub_kahan(quick):
    """The leading components of a dense K, over the SVD and over ARPACK."""
    import numpy as np
    from scipy.sparse.linalg import svds
    from sklearn.utils.extmath import randomized_svd

    from ksvd_ref import dual, kernels, large
    torch = __import__("torch") if find_spec("torch") else None
    N = 400 if quick else 1000
    slow = spectrum(N, np.arange(1, N + 1) ** -0.5)
    rbf = kernels.rbf(*np.random.default_rng(0).standard_normal((2, N, 3)), gamma=0.5)
    for name, K in (("softmax", softmax(N)), ("rbf", rbf), ("slow decay", slow)):
        want = dual.solve(K)
        for s, target in ((5, ">= 6"), (20, ">= 2.5")):
            jobs = {"svd": lambda: np.linalg.svd(K, full_matrices=False),
                    "gk": lambda: large.golub_kahan(K, s),
                    "randomized": lambda: randomized_svd(K, s, random_state=0)}
            if torch:
                A = torch.from_numpy(K)
                jobs["torch"] = lambda: torch.svd_lowrank(A, q=s + 2, niter=10)
            seconds = timed(jobs, 3 if quick else REPEATS)
            true = want.H_e[:, :s], want.sigma[:s]
            job = f"Golub-Kahan, {name} {N} x {N}, s = {s}"
            yield Row(job, seconds["svd"] / seconds["gk"], "times faster than numpy.linalg.svd",
                      target, errors(large.golub_kahan(K, s), true))
            yield Row(f"{job}, against scikit-learn", seconds["gk"] / seconds["randomized"],
                      "randomized_svd, default", "",
                      "peer: " + errors(randomized_svd(K, s, random_state=0), true))
            if torch:
                U, values, _ = torch.svd_lowrank(A, q=s + 2, niter=10)
                yield Row(f"{job}, against PyTorch", seconds["gk"] / seconds["torch"],
                          "svd_lowrank, niter = 10", "",
                          "peer: " + errors((U[:, :s].numpy(), values[:s].numpy()), true))
    N = 500 if quick else 2000
    K = softmax(N)
    want = svds(K, 21, tol=1e-14, random_state=0)
    order = np.argsort(-want[1])
    for s in (5, 20):
        true = want[0][:, order[:s]], want[1][order[:s]]
        seconds = timed({"arpack": lambda: svds(K, s, random_state=0),
                         "gk": lambda: large.golub_kahan(K, s)}, 3 if quick else REPEATS)
        yield Row(f"Golub-Kahan, softmax {N} x {N}, s = {s}, against ARPACK",
                  seconds["gk"] / seconds["arpack"], "scipy svds",
                  "<= 1.35" if s == 5 else "<= 1.5",
                  errors(large.golub_kahan(K, s), true))


def dual_solve(quick):
    """What the checks and the sign rule add to the SVD."""
    import numpy as np

    from ksvd_ref import dual
    N = 200 if quick else 500
    K = softmax(N)
    seconds = timed({"svd": lambda: np.linalg.svd(K, full_matrices=False),
                     "dual": lambda: dual.solve(K)})
    gap = np.max(np.abs(dual.solve(K).sigma / np.linalg.svd(K)[1] - 1.0))
    yield Row(f"dual.solve, {N} x {N}", seconds["dual"] / seconds["svd"], "numpy.linalg.svd",
              "<= 1.1", f"sigma {gap:.0e}")


def chunks(quick):
    """Features on disk, read through numpy.memmap: time against N, and peak memory."""
    import numpy as np
    code = '''
import numpy as np
from ksvd_ref import large
path, N, p, rows = sys.argv[1], *map(int, sys.argv[2:])
def read():
    n = N // rows
    for i in range(n):          # a new map for each block: what was read leaves memory with it
        yield tuple(np.memmap(path, float, "r", 8 * rows * p * j, (rows, p))
                    for j in (i, n - 1 - i))
start = time.process_time()
sigma = large.solve_chunks(read()).sigma
print(time.process_time() - start, megabytes("VmHWM"), sigma[0], sigma[-1])
'''
    p, rows = 32, (10_000 if quick else 100_000)
    sizes = [20 * rows, 100 * rows]
    with tempfile.TemporaryDirectory() as folder:
        path, rng = os.path.join(folder, "features"), np.random.default_rng(0)
        with open(path, "wb") as file:              # blocks drawn anew, read from both ends
            for _ in range(sizes[-1] // rows):
                rng.standard_normal((rows, p)).tofile(file)
        found = [fresh(code, path, N, p, rows) for N in sizes]
        A = np.fromfile(path, count=sizes[0] * p).reshape(-1, rows, p)
        R = [np.linalg.qr(B.reshape(-1, p))[1] for B in (A, A[::-1])]
    true = np.linalg.svd(R[0] @ R[1].T)[1][[0, -1]]
    off = np.max(np.abs(np.array(found[0][2:]) / true - 1.0))
    ratio = sizes[1] / sizes[0]
    name = f"solve_chunks, N = M = {sizes[1]:.0e}, p = {p}, blocks of {rows:.0e} rows"
    seconds, memory = ([row[i] for row in found] for i in (0, 1))
    yield Row(f"{name}: time", abs(seconds[1] / seconds[0] / ratio - 1.0),
              f"deviation from {ratio:g} times the time at {sizes[0]:.0e}", "<= 0.15",
              f"sigma {off:.0e}; {seconds[1]:.1f} s of CPU time")
    yield Row(f"{name}: memory", memory[1] / memory[0], f"the peak at {sizes[0]:.0e}", "<= 1.05",
              "")
    yield Row(f"{name}: memory of the process", memory[1], "MB", "<= 200", "")


def nystroem(quick):
    """From landmarks, over the SVD of the whole kernel and over scikit-learn's."""
    import numpy as np
    from sklearn.kernel_approximation import Nystroem

    from ksvd_ref import kernels, large, nystrom
    N, n = (500, 50) if quick else (2000, 200)
    X, Z = np.random.default_rng(0).standard_normal((2, N, 3))
    rows, columns = nystrom.landmarks(N, n, seed=0), nystrom.landmarks(N, n, seed=1)

    def from_landmarks(X, Z, rows, columns):
        K_rows = kernels.rbf(X, Z[columns], gamma=0.5)
        return nystrom.solve(K_rows, K_rows[rows], kernels.rbf(X[rows], Z, gamma=0.5), 20, N=N, M=N)
    K, one = kernels.rbf(X, Z, gamma=0.5), from_landmarks(X, Z, rows, columns)
    seconds = timed({
        "svd": lambda: large.golub_kahan(kernels.rbf(X, Z, gamma=0.5), 20),
        "nystrom": lambda: from_landmarks(X, Z, rows, columns),
        "symmetric": lambda: from_landmarks(X, X, rows, rows),
        "sklearn": lambda: Nystroem(gamma=0.5, n_components=n, random_state=0).fit_transform(X)}, 3)
    best = np.linalg.norm(large.golub_kahan(K, 21).sigma[20:])
    off = np.linalg.norm(K - one.H_e * one.sigma @ one.H_r.T) / np.linalg.norm(K)
    job = f"nystrom.solve, rbf {N} x {N}, {n} landmarks, s = 20"
    yield Row(job, seconds["svd"] / seconds["nystrom"], "times faster than K and Golub-Kahan", "",
              f"K to {off:.0e}; best possible {best / np.linalg.norm(K):.0e}")
    yield Row(f"{job}, symmetric", seconds["symmetric"] / seconds["sklearn"],
              "scikit-learn Nystroem", "", "")


def landmarks(quick):
    """Error of nystrom.approximate over nine draws: at pivots, and of square corners as drawn."""
    import warnings

    import numpy as np

    from ksvd_ref import kernels, nystrom
    N = 400
    X, Z = np.random.default_rng(1).standard_normal((2, N, 3))
    for name in ("rbf", "exponential", "softmax"):
        K = getattr(kernels, name)(X, Z, **({"gamma": 0.5} if name == "rbf" else {}))
        sigma, norm = np.linalg.svd(K, compute_uv=False), np.linalg.norm(K)

        def error(rows, columns):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")     # that it may be far off: how far is asked here
                found = nystrom.approximate(K[:, columns], K[np.ix_(rows, columns)], K[rows, :])
            return np.linalg.norm(K - found) / norm
        for m, target in ((20, "<= 1"), (60, ""), (150, "<= 0.1")):
            chosen, drawn = [], []
            for seed in range(9):
                rng = np.random.default_rng(seed)
                columns, rows = (rng.choice(N, m, replace=False) for _ in range(2))
                drawn.append(error(rows, columns))
                rows = nystrom.pivots(K[:, columns], 2 * m)
                chosen.append(error(rows, nystrom.pivots(K[rows, :].T, m)))
            yield Row(f"nystrom.approximate, {name} {N} x {N}, {2 * m} rows, {m} columns at pivots",
                      max(chosen), "of K, the worst of nine draws", target,
                      f"median {np.median(chosen):.0e}; best of rank {m} "
                      f"{np.linalg.norm(sigma[m:]) / norm:.0e}; {m} x {m} as drawn: median "
                      f"{np.median(drawn):.0e}, worst {max(drawn):.0e}")


def attention(quick):
    """How softmax attention and Primal-Attention grow with N."""
    import numpy as np

    from ksvd_ref.attention import smoother
    from ksvd_ref.attention import PrimalWeights, even_rows, primal_attention
    d, s, sizes = 64, 30, [128, 256, 512, 1024] + ([] if quick else [2048, 4096, 8192])
    rng, softmax_, primal_ = np.random.default_rng(0), [], []
    draw = lambda *shape: rng.standard_normal(shape).astype("float32")
    weights = PrimalWeights(draw(1, d, s), draw(1, d, s), abs(draw(1, s)), draw(2 * s, d), draw(d))
    for N in sizes:
        Q, K, V = draw(3, 1, N, d)
        F = even_rows(Q, d)
        seconds = timed({"softmax": lambda: smoother.attention(Q, K, V),
                         "primal": lambda: primal_attention(Q, K, weights, F=F)},
                        3 if quick else REPEATS)
        softmax_.append(seconds["softmax"])
        primal_.append(seconds["primal"])
    slopes = [np.polyfit(np.log(sizes[-4:]), np.log(times[-4:]), 1)[0]
              for times in (softmax_, primal_)]
    ahead = [N for N, a, b in zip(sizes, softmax_, primal_) if b < a]
    where = f"Primal-Attention is faster from N = {ahead[0]}" if ahead else "softmax is faster"
    name = f"forward, one head, d = {d}, float32, slope against N up to {sizes[-1]}"
    yield Row(f"smoother.attention {name}", slopes[0], "power of N", "~ 2", where)
    yield Row(f"primal_attention {name}", slopes[1], "power of N", "~ 1",
              f"{softmax_[-1] / primal_[-1]:.0f} times faster at N = {sizes[-1]}")


def smoother(quick):
    """smoother.attention over softmax attention as one would write it, and over PyTorch's."""
    import numpy as np

    from ksvd_ref.attention.smoother import attention
    torch = __import__("torch") if find_spec("torch") else None
    d = 64

    def plain(Q, K, V):
        logits = Q @ np.moveaxis(K, -1, -2) / d ** 0.5
        A = np.exp(logits - np.max(logits, axis=-1, keepdims=True))
        return A / np.sum(A, axis=-1, keepdims=True) @ V

    for batch in (1, 8):
        for N in (256, 512) if quick else (256, 512, 1024, 2048):
            Q, K, V = np.random.default_rng(0).standard_normal((3, batch, N, d)).astype("float32")
            jobs = {"ours": lambda: attention(Q, K, V), "plain": lambda: plain(Q, K, V)}
            if torch:
                tensors = [torch.from_numpy(A) for A in (Q, K, V)]
                jobs["torch"] = lambda: torch.nn.functional.scaled_dot_product_attention(*tensors)
            seconds = timed(jobs)
            job = f"smoother.attention, batch {batch}, N = {N}, d = {d}, float32"
            true = plain(*(A.astype("float64") for A in (Q, K, V)))
            off = [np.max(np.abs(f(Q, K, V) - true)) for f in (attention, plain)]
            yield Row(job, seconds["ours"] / seconds["plain"], "the same passes in plain NumPy",
                      "<= 0.9", "output {:.0e}, peer {:.0e}".format(*off))
            if torch:
                yield Row(f"{job}, against PyTorch", seconds["ours"] / seconds["torch"],
                          "scaled_dot_product_attention", "<= 2", "")


def layer(quick):
    """Primal-Attention over its matrix products, over autograd, and its peak memory."""
    import tracemalloc

    import autograd.numpy as anp
    import numpy as np
    from autograd import grad

    from ksvd_ref import attention as ours

    def arrays(N):
        rng = np.random.default_rng(0)
        Q, K, C = rng.standard_normal((3, 1, 8, N, 64)).astype("float32")
        return Q, K, C, ours.published_init(rng, 8, 64, 30, 64, dtype="float32")

    def through_matmul(Q, K, W_e, W_r, Lambda, W_o, b_o):   # as one would write it
        Phi, Psi = (X / anp.sqrt(anp.sum(X * X, axis=-1, keepdims=True)) for X in (Q, K))
        E, R = anp.matmul(Phi, W_e), anp.matmul(Psi, W_r)
        terms = [0.5 * anp.mean(anp.sum((S * Lambda[:, None, :]) ** 2, axis=-1), axis=(-2, -1))
                 for S in (E, R)]
        output = anp.matmul(anp.concatenate([E, R], axis=-1), W_o) + b_o
        return output, terms[0] + terms[1] - anp.sum(W_e * W_r) / W_e.shape[0]

    def through_ours(Q, K, *weights):
        weights = ours.PrimalWeights(*weights)
        output, scores = ours.primal_attention(Q, K, weights)
        return output, ours.published_loss(scores, weights)

    def gradients(Q, K, C, weights):
        """Of <C, output> + J^2 by all arguments."""
        def by_hand():
            output, scores = ours.primal_attention(Q, K, weights)
            J = ours.published_loss(scores, weights)
            g_scores, more = ours.published_loss_vjp(2.0 * J, scores, weights)
            g_Q, g_K, g, _ = ours.primal_attention_vjp(C, g_scores, scores, Q, K, weights)
            return g_Q, g_K, *(a + b for a, b in zip(g, more))

        def traced(model):
            def loss(arguments):
                output, J = model(*arguments)
                return anp.sum(output * C) + anp.sum(J * J)
            return lambda: grad(loss)((Q, K, *weights))
        return {"hand": by_hand, "ours": traced(through_ours), "matmul": traced(through_matmul)}

    def in_torch(*arguments):
        """Forward, and forward and gradient, as the published module computes them."""
        import torch
        Q, K, C, *weights = (torch.from_numpy(A) for A in (*arguments[:3], *arguments[3]))
        learned = [A.requires_grad_() for A in (Q, K, *weights)]
        W_e, W_r, Lambda, W_o, b_o = weights

        def forward():
            E, R = (torch.nn.functional.normalize(X, dim=-1) @ W for X, W in ((Q, W_e), (K, W_r)))
            return torch.cat([E, R], dim=-1) @ W_o + b_o, E, R

        def without():
            with torch.no_grad():
                return forward()

        def both():
            output, E, R = forward()
            J = sum(0.5 * ((S * Lambda[:, None, :]) ** 2).sum(-1).mean((-2, -1)) for S in (E, R))
            J = J - (W_e * W_r).sum() / len(W_e)
            return torch.autograd.grad((output * C).sum() + (J * J).sum(), learned)
        return without, both

    def peak(function, Q):
        tracemalloc.start()
        function()
        found = tracemalloc.get_traced_memory()[1] / Q.nbytes
        tracemalloc.stop()
        return found

    N = 512 if quick else 2048
    Q, K, C, weights = arrays(N)
    S = np.concatenate(ours.primal_attention(Q, K, weights)[1], axis=-1)
    ways = gradients(Q, K, C, weights)
    seconds = timed({"floor": lambda: (Q @ weights.W_e, K @ weights.W_r, S @ weights.W_o),
                     "forward": lambda: ours.primal_attention(Q, K, weights), **ways})
    Q_, K_, C_, *weights_ = (A.astype("float64") for A in (Q, K, C, *weights))
    true = gradients(Q_, K_, C_, ours.PrimalWeights(*weights_))["matmul"]()
    off = {way: max(np.max(np.abs(a - b)) / np.max(np.abs(b)) for a, b in zip(f(), true))
           for way, f in ways.items()}
    name = f"primal_attention, N = {N}, 8 heads, d = 64, s = 30, float32"
    yield Row(f"{name}: forward", seconds["forward"] / seconds["floor"],
              "its three matrix products", "<= 1.5", "")
    for way, how, target in (("hand", "by hand", ">= 3"), ("ours", "our VJP under autograd", "")):
        yield Row(f"{name}: forward and gradient, {how}", seconds["matmul"] / seconds[way],
                  "times faster than autograd through matmul", target,
                  f"gradient {off[way]:.0e}, peer {off['matmul']:.0e}")
    if find_spec("torch"):
        forward, both = in_torch(Q, K, C, weights)
        seconds = timed({"torch": forward, "torch, both": both, "hand": ways["hand"],
                         "forward": lambda: ours.primal_attention(Q, K, weights)})
        yield Row(f"{name}: forward, against PyTorch", seconds["forward"] / seconds["torch"],
                  "the layer in PyTorch", "<= 1", "")
        yield Row(f"{name}: forward and gradient, against PyTorch",
                  seconds["hand"] / seconds["torch, both"], "the layer in PyTorch", "<= 1", "")
    N = 1024 if quick else 8192
    Q, K, C, weights = arrays(N)
    ways = gradients(Q, K, C, weights)
    name = f"memory of primal_attention, N = {N}, 8 heads, d = 64, s = 30, float32"
    yield Row(f"{name}: forward", peak(lambda: ours.primal_attention(Q, K, weights), Q),
              "the queries", "<= 12", "")
    peer = peak(ways["matmul"], Q)
    for way, how in (("hand", "by hand"), ("ours", "our VJP under autograd")):
        yield Row(f"{name}: forward and gradient, {how}", peak(ways[way], Q), "the queries",
                  "<= 12", f"autograd through matmul: {peer:.0f}")


def imports(quick):
    """CPU time of a new process that imports, without that of the bare interpreter."""
    import resource
    codes = {"nothing": "pass", "numpy": "import numpy", "ksvd_ref": "import ksvd_ref",
             "all": "import ksvd_ref.dual, ksvd_ref.primal, ksvd_ref.nystrom, ksvd_ref.kernels"}
    seconds = {name: [] for name in codes}
    for _ in range(3 if quick else REPEATS):
        for name in random.sample(list(codes), len(codes)):
            start = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([sys.executable, "-c", codes[name]], check=True)
            end = resource.getrusage(resource.RUSAGE_CHILDREN)
            seconds[name].append(end.ru_utime + end.ru_stime - start.ru_utime - start.ru_stime)
    median = {name: sorted(values)[len(values) // 2] for name, values in seconds.items()}
    numpy = median["numpy"] - median["nothing"]
    for name, job in (("ksvd_ref", "import ksvd_ref"), ("all", "import of its modules")):
        yield Row(job, (median[name] - median["nothing"]) / numpy, "import numpy", "<= 2", "")


JOBS = (primal_solve, primal_memory, opposed, qr_route, golub_kahan, chunks, nystroem, landmarks,
        dual_solve, attention, smoother, layer, imports)


def main():
    """Run the jobs and print the table."""
    parser = argparse.ArgumentParser(description="Benchmarks of ksvd_ref against its peers.")
    parser.add_argument("--quick", action="store_true", help="small sizes, times are not judged")
    parser.add_argument("--json", metavar="FILE", help="write the rows as JSON too")
    parser.add_argument("--only", metavar="JOB", choices=[job.__name__ for job in JOBS],
                        help=f"one of {', '.join(job.__name__ for job in JOBS)}")
    options = parser.parse_args()
    missing = [name for name in ("scipy", "sklearn") if not find_spec(name)]
    if missing:
        raise SystemExit(f"benchmarks: {' and '.join(missing)} not installed: "
                         'pip install -e ".[bench]"')
    for library in ("OPENBLAS", "OMP", "MKL", "BLIS", "VECLIB_MAXIMUM", "NUMEXPR"):
        os.environ[f"{library}_NUM_THREADS"] = "1"  # read when NumPy loads: no import of it above
    random.seed(0)
    rows, start, load = [], time.time(), getattr(os, "getloadavg", lambda: [float("nan")])()[0]
    print("| job | measured | in units of | target | | accuracy |\n|---|---|---|---|---|---|")
    for job in JOBS:
        if options.only in (None, job.__name__):
            for row in job(options.quick):
                rows.append(row)
                verdict = "" if options.quick else row.verdict
                print(f"| {row.job} | {row.measured:.3g} | {row.unit} | {row.target} | {verdict} "
                      f"| {row.accuracy} |", flush=True)
    import numpy as np
    import scipy
    import sklearn
    about = {"date": time.strftime("%Y-%m-%d"), "python": platform.python_version(),
             "numpy": np.__version__, "scipy": scipy.__version__,
             "scikit-learn": sklearn.__version__, "machine": platform.machine(),
             "cores": os.cpu_count(), "load at the start": f"{load:.1f}"}
    command = " ".join(["python tests/benchmarks.py", *sys.argv[1:]])
    print(f"\n`{command}`: {', '.join(f'{name} {value}' for name, value in about.items())}, one "
          f"BLAS thread; {time.time() - start:.0f} s")
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"command": command, "about": about,
                       "rows": [{**row._asdict(), "verdict": row.verdict} for row in rows]},
                      file, indent=1)


if __name__ == "__main__":
    main()
