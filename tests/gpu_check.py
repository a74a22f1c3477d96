"""Everything that only a GPU can tell, in one command of under five minutes.

    python tests/gpu_check.py               # on a machine with a GPU and CuPy
    python tests/gpu_check.py --dry-run     # on any machine: tests the checks, proves nothing

Every public function, the course apart, against NumPy float64 on the same numbers;
refusals; analytic gradients; whether float32 is float32 and not TF32; determinism; memory;
waits and arrays; times. One line for each check, a table at the end, exit code 0 if all passed.
Commit the table.
"""
import argparse
import json
import os
import platform
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
RESULTS = []
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

def cases(small):
    """Name and Call of every public function, and of the decompositions on hard matrices."""
    from calls import Call, of_dual, of_primal, spectrum, table

    from ksvd_ref import dual, large, linalg, primal
    rng, n = np.random.default_rng(0), 60 if small else 600
    yield from table(n).items()
    decay = 0.7 ** np.arange(n // 8)
    for kind, K in {
            "wide": spectrum(rng, n // 8, n, decay),
            "square": spectrum(rng, n // 2, n // 2, 0.8 ** np.arange(n // 2)),
            "deficient": spectrum(rng, n, n // 8, [3.0, 2.0, 1.0]),
            "repeated": spectrum(rng, n // 2, n // 2, [2.0] * 3 + [1.0] * 6),
            "condition 1e6": spectrum(rng, n, n // 8, np.geomspace(1, 1e-6, n // 8))}.items():
        leading = lambda found, K: of_dual((found[0][:, :3], found[1][:3], found[2][:, :3]))
        yield f"linalg.svd {kind}", Call(linalg.svd, {"K": K}, {}, leading)
        yield f"dual.solve {kind}", Call(dual.solve, {"K": K}, {"rank": 3}, of_dual)
        yield f"large.golub_kahan {kind}", Call(large.golub_kahan, {"K": K}, {"rank": 3}, of_dual)
    Psi = spectrum(rng, n // 2, n // 8, decay[::-1] + 1.0)
    yield "primal.solve by QR, condition 1e6", Call(
        primal.solve, {"Phi": K, "Psi": Psi}, {"rank": n // 10}, of_primal)
    chunks = lambda Phi, Psi: large.solve_chunks([(Phi[:7, :], None), (Phi[7:, :], Psi)], 3)
    yield "large.solve_chunks", Call(chunks, {"Phi": K, "Psi": Psi}, {}, of_primal)


def correctness(cupy, small):
    """Every public function on the GPU against NumPy float64."""
    from calls import OTHERS, public
    limits, worst, seen = {"float64": 1e-9, "float32": 1e-3}, {}, set()
    for name, call in cases(small):
        seen.add(name.split()[0])
        want = call.run()
        for dtype, limit in limits.items():
            if dtype == "float32" and "condition" in name:
                continue                    # 1e6 leaves float32 one digit
            label = f"{name} {dtype}"
            try:
                got = call.run(lambda A: cupy.asarray(A.astype(dtype))
                               if isinstance(A, np.ndarray) else A)
            except Exception as error:
                check(label, False, f"{type(error).__name__}: {error}")
                continue
            if not all(isinstance(A, cupy.ndarray) and A.dtype == dtype for A in got):
                check(label, False, f"came back as {[(type(A).__name__, A.dtype) for A in got]}")
                continue
            off = max(relative(A.get(), np.asarray(B)) for A, B in zip(got, want, strict=True))
            worst[dtype] = max(worst.get(dtype, (0.0, "")), (off, name))
            if not off <= limit:
                check(label, False, f"off by {off:.1e}, {limit:.0e} allowed")
    for dtype, (off, name) in worst.items():
        check(f"{len(seen)} public functions, {dtype}", off <= limits[dtype],
              f"largest relative difference from NumPy float64 {off:.1e} ({name})")
    left = sorted(set(public()) - seen - set(OTHERS))
    check("public functions without a check", not left, ", ".join(left) or "none")


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
    from ksvd_ref import large, primal
    pool = cupy.get_default_memory_pool()
    A = cupy.asarray(np.random.default_rng(0).standard_normal((n, 64)))
    for name, run in (("primal.solve", lambda: primal.solve(A, A, 8)),
                      ("large.golub_kahan", lambda: large.golub_kahan(A, 8))):
        run()
        before = pool.used_bytes()
        for _ in range(20):
            run()
        check(f"bytes left by 20 calls of {name}", pool.used_bytes() == before,
              f"{pool.used_bytes() - before}, pool {pool.total_bytes() / 2 ** 20:.0f} MB")


def counts(n):
    """{name: [waits, arrays]} of one call of each public function, on the stand-in.

    What Python asks for is the same on a GPU, whose driver does not count it.
    """
    import cupy_stand_in
    from calls import table
    cupy, found = cupy_stand_in.install(), {}
    for name, call in table(n).items():
        moved = call.moved(lambda A: cupy.asarray(A) if isinstance(A, np.ndarray) else A)
        cupy_stand_in.COUNTS.update(waits=0, arrays=0)
        call.function(**moved, **call.others)
        found[name] = [cupy_stand_in.COUNTS[kind] for kind in ("waits", "arrays")]
    return found


def launches():
    """How often Python waits for the GPU, and how many arrays it asks for."""
    code = f"import json, sys; sys.path.insert(0, {str(HERE)!r}); import gpu_check; " \
        "print(json.dumps(gpu_check.counts(64)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                          cwd=HERE.parent)
    found = json.loads(done.stdout) if done.returncode == 0 else {}
    check("waits and arrays of the public functions", bool(found), done.stderr[-300:] or (
        f"{len(found)} counted; most waits {max(found, key=lambda name: found[name][0])}, "
        f"most arrays {max(found, key=lambda name: found[name][1])}"))
    for name in ("primal.solve", "attention.layer.primal_attention",
                 "attention.gradients.primal_attention_vjp", "large.golub_kahan"):
        if name in found:
            check(f"{name}: waits, arrays", None, "{}, {}".format(*found[name]))


def times(cupy, sizes):
    """Median of CUDA events, the same with both transfers, and NumPy on the same machine."""
    from ksvd_ref import backend, dual, kernels, large, primal
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
                    ("large.golub_kahan, s = 8",
                     lambda K: large.golub_kahan(K, 8, tol=1e-5).H_e, (K,)),
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
                 (memory, cupy, n // 2), (launches,),
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
