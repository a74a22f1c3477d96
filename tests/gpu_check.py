"""Everything that only a GPU can tell, in one command of under five minutes.

    python tests/gpu_check.py               # on a machine with a GPU and CuPy
    python tests/gpu_check.py --dry-run     # on any machine: tests the checks, proves nothing

Every public function, the course apart, against NumPy float64 on the same numbers;
refusals; analytic gradients; whether float32 is float32 and not TF32; determinism; memory; hidden
synchronisations; times. One line for each check, a table at the end, exit code 0 if all passed.
Commit the table.
"""
import argparse
import inspect
import os
import platform
import subprocess
import sys
import time
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
RESULTS = []
MODULES = ("kernels", "features", "linalg", "dual", "primal", "nystrom", "attention.filters",
           "attention.positions", "attention.smoother", "attention.layer")
HOST_ONLY = {"linalg.check_rank": "no array", "nystrom.landmarks": "drawn on the host",
             **dict.fromkeys(("attention.filters.causal", "attention.filters.memory",
                              "attention.filters.window", "attention.filters.strided"),
                             "made on the host, moved by a smoother"),
             "attention.filters.check_pairs": "no result",
             "attention.filters.check_leading": "no result",
             "attention.layer.published_init": "drawn on the host",
             "linalg.svd_core": "inside autograd, which works on the host"}
TF32_LIMIT = 1e-5       # a float32 product has about 1e-6, one of 10-bit factors about 3e-4


def check(name, good, found):
    """Record a line; `good` None only reports."""
    RESULTS.append((name, good, found))
    print(f"{'    ' if good is None else 'ok  ' if good else 'FAIL'}  {name}: {found}", flush=True)


def guarded(function, *arguments):
    """Run one check; what it raises is a failure, not the end."""
    try:
        function(*arguments)
    except Exception as error:
        check(function.__name__, False, f"{type(error).__name__}: {error}")


def relative(got, want):
    """Largest difference, relative to the largest entry."""
    top = np.max(np.abs(want)) or 1.0
    return float(np.max(np.abs(np.asarray(got, dtype=float) - want)) / top) if want.size else 0.0


# --- 1. every public function

def spectrum(rng, N, M, sigma):
    U, V = (np.linalg.qr(rng.standard_normal((n, len(sigma))))[0] for n in (N, M))
    return U * np.asarray(sigma) @ V.T


def invariant(found):
    """What a decomposition determines: sigma, both projectors, the product; never the vectors."""
    H_e, sigma, H_r = found
    return sigma, H_e @ H_e.T, H_r @ H_r.T, H_e * sigma @ H_r.T


def weights(found, Phi, Psi):
    """The same for a primal solution, through its scores."""
    E, R = Phi @ found[0], Psi @ found[2]
    return found[1], E @ E.T, R @ R.T, E @ R.T, found[0].T @ found[2]


def cases(small):
    """Public name, function of arrays, host arrays; results are compared one by one."""
    from ksvd_ref import backend, dual, equations, features, kernels, linalg, nystrom, primal
    rng = np.random.default_rng(0)
    n = 60 if small else 600
    X, Z = rng.standard_normal((n, 8)) / 3, rng.standard_normal((n // 2, 8)) / 3
    tall, wide = rng.standard_normal((n, n // 8)), rng.standard_normal((n // 8, n))
    decay = 0.7 ** np.arange(n // 8)
    matrices = {"tall": spectrum(rng, n, n // 8, decay), "wide": spectrum(rng, n // 8, n, decay),
                "square": spectrum(rng, n // 2, n // 2, 0.8 ** np.arange(n // 2)),
                "deficient": spectrum(rng, n, n // 8, [3.0, 2.0, 1.0]),
                "repeated": spectrum(rng, n // 2, n // 2, [2.0] * 6 + [1.0] * 6),
                "condition 1e6": spectrum(rng, n, n // 8, np.geomspace(1, 1e-6, n // 8))}
    for name in ("linear", "polynomial", "rbf", "exponential", "cosine", "softmax", "sne"):
        yield f"kernels.{name}", getattr(kernels, name), (X, Z)
    few = X[:5], Z[:4]
    yield "kernels.gram", lambda X, Z: kernels.gram(lambda x, z: x[0] * z[1] - z[0], X, Z), few
    K, K_2 = X @ Z.T, Z @ Z.T
    yield "kernels.center", kernels.center, (K,)
    yield "kernels.center_rows", kernels.center_rows, (K_2, K)
    yield "kernels.center_columns", kernels.center_columns, (K @ K_2, K)
    yield "kernels.row_normalised_exp", kernels.row_normalised_exp, (K,)
    yield "kernels.squared_distances", kernels.squared_distances, (X, Z)

    def product(pair):
        return pair[0] @ pair[1].T
    yield "features.compatible", lambda A: product(features.compatible(A)), (tall,)
    yield "features.cosine", features.cosine, (X, Z)
    yield "features.polynomial", lambda X, Z: product(features.polynomial(X, Z)), (X, Z)
    yield "features.positive_random", \
        lambda Q, K: features.positive_random(Q, K, m=32, seed=0), (X, Z)
    yield "features.data_dependent", features.data_dependent, (X, Z, Z[:5])
    for name, K in matrices.items():
        yield f"linalg.svd {name}", lambda K: invariant(_first(linalg.svd(K), 3)), (K,)
        yield f"dual.solve {name}", lambda K: invariant(dual.solve(K, 3)), (K,)
        yield f"dual.solve_golub_kahan {name}", \
            lambda K: invariant(dual.solve_golub_kahan(K, 3)), (K,)
        if name == "repeated":              # three of six equal sigma leave the vectors open
            yield "dual.solve repeated, as a whole", lambda K: invariant(dual.solve(K, 6)), (K,)
    square = matrices["square"][:n // 4, :n // 5]
    yield "dual.solve_shifted", lambda K: invariant(dual.solve_shifted(K, 3)), (square,)
    yield "dual.shifted_matrix", dual.shifted_matrix, (square,)
    yield "dual.e_scores", lambda A, B: dual.e_scores(A, (B, B[0, :], B)), (wide.T, wide[:, :3])
    yield "dual.r_scores", lambda A, B: dual.r_scores(A, (B, B[0, :], B)), (tall, tall[:, :3])
    S = square.T @ square
    yield "linalg.eigh", lambda S: linalg.eigh(S)[0], (S,)
    yield "linalg.spectral_norm", lambda A: A[:1, :1] * 0 + linalg.spectral_norm(A), (tall,)
    yield "linalg.numerical_rank", lambda s: s * 0 + linalg.numerical_rank(s, 9, 9), (decay,)
    yield "linalg.reciprocal", lambda x: linalg.reciprocal(x, 0.1), (decay,)
    yield "linalg.signs", linalg.signs, (tall,)
    yield "linalg.peaks", linalg.peaks, (tall,)
    Phi, Psi = matrices["tall"], spectrum(rng, n // 2, n // 8, decay[::-1] + 1.0)
    yield "primal.solve", lambda Phi, Psi: weights(primal.solve(Phi, Psi, 3), Phi, Psi), (Phi, Psi)
    yield "primal.solve, the QR route, condition 1e6", \
        lambda Phi, Psi: weights(primal.solve(Phi, Psi, n // 10), Phi, Psi), \
        (matrices["condition 1e6"], Psi)
    yield "primal.solve_chunks", lambda Phi, Psi: weights(primal.solve_chunks(
        [(Phi[:7, :], None), (Phi[7:, :], Psi)], 3), Phi, Psi), (Phi, Psi)
    one = primal.Factor(*(np.linalg.qr(A)[1] for A in (Phi, Psi)), n, n // 2)

    def gram(f):
        return f.R_phi.T @ f.R_phi, f.R_psi.T @ f.R_psi
    yield "primal.factor", lambda Phi, Psi: gram(primal.factor(Phi, Psi)), (Phi, Psi)
    yield "primal.merge", lambda A, B: gram(primal.merge(
        primal.Factor(A, B, 1, 1), primal.Factor(B, A, 1, 1))), one[:2]
    yield "primal.solve_factor", lambda A, B: (lambda f: (f[1], f[0].T @ f[2], f[0] @ f[2].T))(
        primal.solve_factor(primal.Factor(A, B, n, n // 2), 3)), one[:2]
    W = rng.standard_normal((2, n // 8, 3))
    point = (*W, decay[:3], Phi, Psi)
    yield "primal.objective", lambda *p: p[2][:1] * 0 + primal.objective(*p), point
    yield "primal.gradient", primal.gradient, point
    yield "primal.stationarity", lambda *p: p[2][:1] * 0 + primal.stationarity(*p), point
    solution = dual.solve(Phi @ Psi.T, 3)
    yield "primal.from_dual", lambda *a: primal.from_dual(a[:3], *a[3:]), (*solution, Phi, Psi)
    primal_solution = primal.from_dual(solution, Phi, Psi)
    yield "primal.to_dual", lambda *a: primal.to_dual(a[:3], *a[3:]), (*primal_solution, Phi, Psi)
    yield "primal.e_scores", lambda A, *w: primal.e_scores(A, w), (Phi, *primal_solution)
    yield "primal.r_scores", lambda A, *w: primal.r_scores(A, w), (Psi, *primal_solution)
    low = spectrum(rng, n, n // 2, [3.0, 2.0, 1.0])
    pieces = low[:, [0, 3, 3, 9]], low[[1, 5, 8, 8]][:, [0, 3, 3, 9]], low[[1, 5, 8, 8]]
    yield "nystrom.approximate", nystrom.approximate, pieces
    yield "nystrom.solve", lambda *a: (lambda f: (f[1], f[0] * f[1] @ f[2].T))(
        nystrom.solve(*a, N=n, M=n // 2)), pieces
    yield "nystrom.solve_features", lambda A, B: (lambda f: (f[1], f[0] * f[1] @ f[2].T))(
        nystrom.solve_features(A, B, [0, 2, 5], [1, 4, 7], 3)), (X, Z)
    yield "backend.unit_rows", backend.unit_rows, (X,)
    yield "equations.solution", lambda A, B: equations.solution(A, B, rank=3).sigma, (X, Z)
    yield from attention_cases(rng, n // 4)


def attention_cases(rng, n):
    """The same for attention; transformer and training are followed by autograd, on the host."""
    from ksvd_ref import attention
    from ksvd_ref.attention import filters, positions, smoother
    Q, K, V = rng.standard_normal((3, 2, n, 8))
    yield "attention.smoother.attention", \
        lambda *a: smoother.attention(*a, mask=filters.causal(n)), (Q, K, V)
    yield "attention.smoother.weights", \
        lambda *a: smoother.weights(*a, kernel="rbf", gamma=0.1), (Q, K)
    yield "attention.smoother.linear_attention", smoother.linear_attention, (Q, K, V)
    yield "attention.smoother.multi_head", lambda *a: smoother.multi_head(*a, heads=2), (Q, K, V)
    yield "attention.smoother.split_heads", lambda X: smoother.split_heads(X, 2), (Q,)
    yield "attention.smoother.merge_heads", smoother.merge_heads, (Q,)
    yield "attention.filters.as_mask", lambda X: X * filters.as_mask(filters.causal(n, 8), X), (Q,)
    yield "attention.filters.visible", lambda X: filters.visible(X > 0.0, X, -1.0), (Q,)
    yield "attention.filters.taking_part", \
        lambda X: filters.taking_part(X, "X", X @ X.T > 3.0, -1), (Q[0],)
    yield "attention.positions.sinusoids", lambda X: positions.sinusoids(n, 8, beside=X) + X, (Q,)
    yield "attention.positions.absolute", positions.absolute, (Q[0], K[0])
    yield "attention.positions.relative", positions.relative, \
        (Q, rng.standard_normal((2 * n - 1, 8)))
    yield "attention.positions.rel_shift", positions.rel_shift, \
        (Q @ rng.standard_normal((8, 2 * n - 1)),)
    yield "attention.positions.offset_table", \
        lambda X: positions.offset_table(X, n, n), (Q[0, :9],)
    yield "attention.positions.turned", positions.turned, (Q[0],)
    layer = tuple(rng.standard_normal(s) for s in ((2, 8, 3), (2, 8, 3), (2, 3), (6, 8), (8,)))
    data = (Q, K, *layer)
    one = attention.PrimalWeights

    def of_loss(loss):
        def run(Q, K, *layer):
            return loss(attention.primal_attention(Q, K, one(*layer))[1], one(*layer))
        return run

    def flat(found):
        return (*found[0], *(A for A in found[1] if A is not None))

    def forward(Q, K, *layer):
        output, scores = attention.primal_attention(Q, K, one(*layer))
        return (output, *scores)

    def backward(Q, K, *layer):
        output, scores = attention.primal_attention(Q, K, one(*layer))
        found = attention.primal_attention_vjp(output, scores, scores, Q, K, one(*layer))
        return found[0], found[1], *found[2]
    yield "attention.layer.primal_attention", forward, data
    yield "attention.layer.primal_attention_vjp", backward, data
    yield "attention.layer.running_mean", attention.running_mean, (Q,)
    yield "attention.layer.even_rows", lambda X: attention.even_rows(X, 4), (Q,)
    yield "attention.layer.even_rows_vjp", lambda X: attention.even_rows_vjp(X, 3 * n), (Q,)
    for name in ("paper", "published"):
        loss = getattr(attention, f"{name}_loss")
        yield f"attention.layer.{name}_loss", of_loss(loss), data
        yield f"attention.layer.{name}_loss_vjp", of_loss(lambda *a, loss=loss, name=name: flat(
            getattr(attention, f"{name}_loss_vjp")(loss(*a), *a))), data
    yield "attention.layer.paper_lambda", lambda X: attention.paper_lambda(X, n), (abs(layer[2]),)
    yield "attention.layer.mean_of_squares", attention.mean_of_squares, (Q[0, 0],)
    yield "attention.layer.square_of_mean", attention.square_of_mean, (Q[0, 0],)


def _first(found, s):
    return found[0][:, :s], found[1][:s], found[2][:, :s]


def correctness(cupy, small):
    """Every public function on the GPU against NumPy float64."""
    limits, worst, seen = {"float64": 1e-9, "float32": 1e-3}, {}, set()
    for name, function, arrays in cases(small):
        seen.add(name.split()[0].rstrip(","))
        want = _flat(function(*arrays))
        for dtype, limit in limits.items():
            if dtype == "float32" and "condition" in name:
                continue                    # 1e6 leaves float32 one digit
            label = f"{name} {dtype}"
            try:
                got = _flat(function(*(cupy.asarray(A.astype(dtype)) for A in arrays)))
            except Exception as error:
                check(label, False, f"{type(error).__name__}: {error}")
                continue
            if not all(isinstance(A, cupy.ndarray) and A.dtype == dtype for A in got):
                check(label, False, f"came back as {[(type(A).__name__, A.dtype) for A in got]}")
                continue
            skip = "repeated" in name and "whole" not in name       # only sigma is determined
            pairs = list(zip(got, want))[:1 if skip else None]
            off = max(relative(A.get(), B) for A, B in pairs)
            worst[dtype] = max(worst.get(dtype, (0.0, "")), (off, name))
            if not off <= limit:
                check(label, False, f"off by {off:.1e}, {limit:.0e} allowed")
    for dtype, (off, name) in worst.items():
        check(f"{len(seen)} public functions, {dtype}", off <= limits[dtype],
              f"largest relative difference from NumPy float64 {off:.1e} ({name})")
    public = set()
    for module in map(import_module, (f"ksvd_ref.{name}" for name in MODULES)):
        public |= {f"{module.__name__[9:]}.{name}" for name, f in vars(module).items()
                   if inspect.isfunction(f) and f.__module__ == module.__name__ and name[0] != "_"}
    left = sorted(public - seen - set(HOST_ONLY))
    check("public functions without a check", not left, ", ".join(left) or "none")


def _flat(found):
    return list(found) if isinstance(found, tuple) else [found]


# --- 2 to 8

def suite(dry):
    """The pytest suite on CuPy: tests/conftest.py adds it where a GPU answers."""
    if dry or not find_spec("pytest"):
        check("the suite on CuPy", None, "not run" + " in a dry run" * dry)
        return
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-k", "cupy", str(HERE)],
                          capture_output=True, text=True, cwd=HERE.parent)
    check("the suite on CuPy", done.returncode == 0, done.stdout.strip().splitlines()[-1])


def refusals(cupy):
    """Our errors, not the library's."""
    from ksvd_ref import backend, dual, primal
    host, gpu = np.ones((4, 3)), cupy.asarray(np.ones((4, 3)))
    bad = np.ones((4, 3))
    bad[2, 1] = np.inf
    for name, call, error, words in (
            ("NumPy beside CuPy", lambda: primal.solve(host, gpu), TypeError, "cupy and numpy"),
            ("NaN or infinity", lambda: dual.solve(cupy.asarray(bad)), ValueError, "entry (2, 1)"),
            ("infinity in the primal", lambda: primal.solve(cupy.asarray(bad), gpu), ValueError,
             "entry (2, 1)"),
            ("implicit conversion", lambda: np.asarray(gpu), TypeError, "mplicit conversion"),
            ("a list beside CuPy", lambda: primal.solve([[1.0]], gpu), TypeError, "cupy and numpy"),
            ("nowhere", lambda: backend.to_device(gpu, "tpu"), ValueError, "'cpu' or 'gpu'")):
        try:
            call()
        except Exception as caught:
            check(f"refused: {name}", isinstance(caught, error) and words in str(caught), caught)
        else:
            check(f"refused: {name}", False, "accepted")
    there = backend.to_device(backend.to_device(host, "gpu"), "cpu")
    check("to_device there and back", type(there) is np.ndarray and (there == host).all(), "equal")


def gradients(cupy):
    """primal.gradient on the GPU: equal to NumPy's, and to a difference of J on the GPU."""
    from ksvd_ref import primal
    rng = np.random.default_rng(0)
    point = [rng.standard_normal(s) for s in ((10, 3), (10, 3), (3,), (200, 10), (150, 10))]
    D = rng.standard_normal((10, 3))
    want = primal.gradient(*point)
    for dtype, eps, limit, slack in (("float64", 1e-5, 1e-9, 1e-6), ("float32", 3e-2, 1e-4, 1e-3)):
        gpu = [cupy.asarray(A.astype(dtype)) for A in point]
        step = cupy.asarray(D.astype(dtype))
        got = primal.gradient(*gpu)
        off = max(relative(A.get(), B) for A, B in zip(got, want))
        check(f"primal.gradient against NumPy, {dtype}", off <= limit, f"{off:.1e}")
        ahead, behind = (float(primal.objective(gpu[0] + h * step, *gpu[1:])) for h in (eps, -eps))
        slope = float(cupy.sum(got[0] * step))
        off = abs((ahead - behind) / (2 * eps) / slope - 1.0)
        check(f"directional derivative on the GPU, {dtype}", off <= slack, f"{off:.1e}")


def product_error(cupy, n, coarse=False):
    """Relative error of a float32 product; `coarse` cuts the factors to TF32's ten bits first."""
    A, B = np.random.default_rng(0).standard_normal((2, n, n)).astype("float32")
    want = A.astype(float) @ B.astype(float)
    if coarse:
        A, B = ((M.view("uint32") + 0x1000 & np.uint32(0xFFFFE000)).view("float32") for M in (A, B))
    got = (cupy.asarray(A) @ cupy.asarray(B)).get()
    return float(np.linalg.norm(got - want) / np.linalg.norm(want))


def tf32(cupy, n, dry):
    """float32 is not TF32; and the detector is shown to detect."""
    off = product_error(cupy, n)
    check("float32 products have float32 errors", off < TF32_LIMIT, f"{off:.1e} < {TF32_LIMIT:.0e}")
    off = product_error(cupy, n, coarse=True)
    check("the detector sees factors of ten bits", off > TF32_LIMIT, f"{off:.1e}")
    if dry or int(cupy.cuda.Device().compute_capability) < 80:
        check("the detector sees CUPY_TF32=1", None, "no TF32 on this device")
        return
    code = (f"import sys; sys.path.insert(0, {str(HERE)!r}); import cupy, gpu_check; "
            f"print(gpu_check.product_error(cupy, {n}))")
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "CUPY_TF32": "1"},
                          capture_output=True, text=True, check=True)
    off = float(done.stdout.split()[-1])
    check("the detector sees CUPY_TF32=1", off > TF32_LIMIT, f"{off:.1e}")


def determinism(cupy, n):
    """Number of different results in five runs. Only reported: no library promises one."""
    from ksvd_ref import dual, primal
    A = cupy.asarray(np.random.default_rng(0).standard_normal((n, n // 2)))
    for name, run in (("A^T A", lambda: A.T @ A), ("sum", lambda: cupy.sum(A)),
                      ("eigh", lambda: cupy.linalg.eigh(A.T @ A)[1]),
                      ("dual.solve", lambda: dual.solve(A, 3).H_e),
                      ("primal.solve", lambda: primal.solve(A, A, 3).W_e)):
        different = len({run().get().tobytes() for _ in range(5)})
        check(f"different results in 5 runs of {name}", None, different)


def memory(cupy, n):
    """Nothing stays allocated after a call."""
    from ksvd_ref import dual, primal
    pool = cupy.get_default_memory_pool()
    A = cupy.asarray(np.random.default_rng(0).standard_normal((n, 64)))
    for name, run in (("primal.solve", lambda: primal.solve(A, A, 8)),
                      ("dual.solve_golub_kahan", lambda: dual.solve_golub_kahan(A, 8))):
        run()
        before = pool.used_bytes()
        for _ in range(20):
            run()
        check(f"bytes left by 20 calls of {name}", pool.used_bytes() == before,
              f"{pool.used_bytes() - before}, pool {pool.total_bytes() / 2 ** 20:.0f} MB")


def synchronisations(cupy, n):
    """Where Python waits for the GPU. Only reported: public functions look for NaN on purpose."""
    import cupyx

    from ksvd_ref import kernels, primal
    A = cupy.asarray(np.random.default_rng(0).standard_normal((n, 16)))
    for name, run in (("kernels.row_normalised_exp", lambda: kernels.row_normalised_exp(A)),
                      ("primal.solve", lambda: primal.solve(A, A, 4))):
        run()
        try:
            with cupyx.allow_synchronize(False):
                run()
            check(f"waits in {name}", None, "none seen")
        except Exception as error:
            check(f"waits in {name}", None, f"{type(error).__name__}: {error}")


def times(cupy, sizes):
    """Median of CUDA events, the same with both transfers, and NumPy on the same machine."""
    from ksvd_ref import backend, dual, kernels, primal
    rows = []
    for n in sizes:
        rng = np.random.default_rng(0)
        for dtype in ("float64", "float32"):
            X, Z = rng.standard_normal((2, n, 64)).astype(dtype)
            K, tall = kernels.softmax(X, Z), rng.standard_normal((16 * n, 64)).astype(dtype)
            small = K[:, :n // 8] + np.eye(n, n // 8, dtype=dtype)
            for name, run, arrays in (
                    ("kernels.rbf", kernels.rbf, (X, Z)),
                    ("K @ K", lambda K: K @ K, (K,)),
                    (f"dual.solve {n} x {n // 8}", lambda K: dual.solve(K, 8).H_e, (small,)),
                    ("dual.solve_golub_kahan, s = 8",
                     lambda K: dual.solve_golub_kahan(K, 8, tol=1e-5).H_e, (K,)),
                    (f"primal.solve {16 * n} x 64",
                     lambda A: primal.solve(A, A, 8).W_e, (tall,))):
                gpu = [cupy.asarray(A) for A in arrays]
                on_gpu = _events(cupy, lambda: run(*gpu))
                both_ways = _events(cupy, lambda: backend.to_device(
                    run(*(backend.to_device(A, "gpu") for A in arrays)), "cpu"))
                start = time.perf_counter()
                run(*arrays)
                cpu = 1e3 * (time.perf_counter() - start)
                rows.append((f"{name}, n = {n}, {dtype}", on_gpu, both_ways, cpu))
    print("\n| job | GPU ms | with transfers ms | NumPy ms | ratio |\n|---|---|---|---|---|")
    for name, on_gpu, both_ways, cpu in rows:
        print(f"| {name} | {on_gpu:.3g} | {both_ways:.3g} | {cpu:.3g} | {cpu / on_gpu:.1f} |")
    check("times", all(row[1] > 0.0 for row in rows), f"{len(rows)} rows, above")


def _events(cupy, run, repeats=5):
    for _ in range(2):
        run()                               # compilation and the memory pool
    found = []
    for _ in range(repeats):
        start, end = cupy.cuda.Event(), cupy.cuda.Event()
        start.record()
        run()
        end.record()
        end.synchronize()
        found.append(cupy.cuda.get_elapsed_time(start, end))
    return sorted(found)[repeats // 2]


def main():
    """Run every check; 0 if all passed."""
    parser = argparse.ArgumentParser(description="Checks of ksvd_ref on a GPU.")
    parser.add_argument("--dry-run", action="store_true",
                        help="on a stand-in for CuPy: tests this script, proves nothing")
    dry = parser.parse_args().dry_run
    sys.path.insert(0, str(HERE))
    if dry:
        import cupy_stand_in
        cupy = cupy_stand_in.install()
    else:
        try:
            import cupy
        except ImportError:
            raise SystemExit("gpu_check: CuPy is not installed: pip install 'ksvd_ref[cuda13]'")
        if not cupy.is_available():
            raise SystemExit("gpu_check: CuPy finds no CUDA GPU: see nvidia-smi")
    began = time.time()
    cupy.show_config()
    name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    n = 128 if dry else 4096

    def environment():
        float(cupy.sum(cupy.asarray(np.ones(3))))
        check("device", None, f"{name}, CuPy {cupy.__version__}, NumPy {np.__version__}, "
              f"Python {platform.python_version()}; first kernel after {time.time() - began:.1f} s")

    for step in ((environment,), (correctness, cupy, dry), (suite, dry), (refusals, cupy),
                 (gradients, cupy), (tf32, cupy, n, dry), (determinism, cupy, n // 8),
                 (memory, cupy, n // 2), (synchronisations, cupy, n),
                 (times, cupy, [64] if dry else [512, 2048])):
        guarded(*step)
    print("\n| check | | found |\n|---|---|---|")
    for line, good, found in RESULTS:
        print(f"| {line} | {'' if good is None else 'ok' if good else '**FAIL**'} | {found} |")
    failed = sum(good is False for _, good, _ in RESULTS)
    print(f"\n{name}{', DRY RUN on a stand-in' * dry}: {len(RESULTS)} lines, {failed} failed, "
          f"{time.time() - began:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
