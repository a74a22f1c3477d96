"""What every test shares: generator, array libraries, central differences, bad input, figures."""
import functools
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import matplotlib

matplotlib.use("Agg")               # before anything can open a window
os.environ["KSVD_REF_QUICK"] = "1"  # the lessons that train: one small arm, tables for the rest

import array_api_strict as strict   # noqa: E402
import autograd                     # noqa: E402
import hypothesis                   # noqa: E402
import numpy as np                  # noqa: E402
import pytest                       # noqa: E402

from ksvd_ref.course import index   # noqa: E402

ASIDE = pytest.StashKey()
BOOK = "-m", "ksvd_ref", "book", "--out", "site"
hypothesis.settings.register_profile("ksvd_ref", deadline=None, derandomize=True, max_examples=25)
hypothesis.settings.load_profile("ksvd_ref")


class Library:
    """One array library in one precision, on one device."""

    def __init__(self, xp, dtype, device=None):
        self.xp, self.name = xp, dtype
        self.dtype = getattr(xp, dtype)
        self.place = {} if device is None else {"device": strict.Device(device)}
        self.tol = 1e3 * float(np.finfo(dtype).eps)     # a thousand roundings: 2e-13 and 1e-4

    def array(self, host):
        return self.xp.asarray(np.asarray(host, dtype=self.name), dtype=self.dtype, **self.place)

    def host(self, x):
        """The same numbers as a NumPy float64 array; `x` must have kept library and dtype."""
        self.keeps(x)
        if self.place:
            x = x.to_device(strict.Device("CPU_DEVICE"))
        elif hasattr(x, "get"):
            x = x.get()
        return np.asarray(x, dtype=np.float64)

    def keeps(self, x):
        assert x.dtype == self.dtype, f"{self.name} became {x.dtype}"
        assert type(x) in (type(self.array([0.0])), np.dtype(self.name).type), type(x)
        if self.place:
            assert x.device == self.place["device"], f"moved to {x.device}"


# The devices of array-api-strict refuse every hidden trip through NumPy, as a GPU would; no_float64
# refuses every hidden float64, but makes float32 where no dtype is given: device1 sees that.
LIBRARIES = [
    pytest.param(lambda: Library(np, "float64"), id="numpy-float64"),
    pytest.param(lambda: Library(np, "float32"), id="numpy-float32"),
    pytest.param(lambda: Library(strict, "float64", "device1"), id="device1-float64"),
    pytest.param(lambda: Library(strict, "float32", "device1"), id="device1-float32"),
    pytest.param(lambda: Library(strict, "float32", "no_float64"), id="no_float64-float32"),
]
try:
    import cupy
    cupy.zeros(1)                   # installed is not usable: this needs a GPU
except Exception:                   # no CuPy, no driver, no GPU: nothing to collect
    pass
else:
    LIBRARIES += [pytest.param(lambda: Library(cupy, "float64"), id="cupy-float64"),
                  pytest.param(lambda: Library(cupy, "float32"), id="cupy-float32")]


@pytest.fixture(params=LIBRARIES)
def lib(request):
    return request.param()


class Aside:
    """Commands that run one after the other beside the tests, on the second core."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.queue, self.started, self.found = ThreadPoolExecutor(1), [], {}

    def submit(self, *words):
        """Put a Python command into the queue; it will run in an empty folder of its own."""
        folder = Path(self.folder.name) / str(len(self.found))
        if words not in self.found:
            self.found[words] = self.queue.submit(self._run, folder, words)

    def _run(self, folder, words):
        folder.mkdir()
        process = subprocess.Popen([sys.executable, *words], cwd=folder, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   env={**os.environ, "MPLBACKEND": "Agg"})
        self.started.append(process)
        return folder, process, *process.communicate()

    def result(self, *words):
        """Folder, exit status, output and errors of a command, once it has ended."""
        self.submit(*words)                         # unless it was, when its test was collected
        folder, process, out, err = self.found[words].result(timeout=280)       # watchdog: 300
        return folder, process.returncode, out, err

    def end(self):
        self.queue.shutdown(wait=False, cancel_futures=True)
        for process in self.started:
            process.kill()
        self.queue.shutdown()
        self.folder.cleanup()


def pytest_collection_modifyitems(items):
    """What waits for a command that runs aside comes last."""
    items.sort(key=lambda item: "aside" in getattr(item, "fixturenames", ()))


def pytest_collection_finish(session):
    """Start what the tests will wait for: first the site, which takes longest."""
    waiting = [item for item in session.items if "aside" in getattr(item, "fixturenames", ())]
    if waiting and not session.config.option.collectonly:
        aside = _aside(session.config)
        if any("site" in item.fixturenames for item in waiting):
            aside.submit(*BOOK)
        for item in waiting:
            if "ran" in item.fixturenames:
                aside.submit(*item.callspec.params["ran"])


def _aside(config):
    """The commands that run aside: started when they are first asked for."""
    if ASIDE not in config.stash:
        config.stash[ASIDE] = Aside()
        config.add_cleanup(config.stash[ASIDE].end)
    return config.stash[ASIDE]


@pytest.fixture(scope="session")
def aside(request):
    return _aside(request.config)


@pytest.fixture(scope="session")
def site(aside):
    """Folder of the site that `ksvd-ref book` wrote."""
    folder, status, out, err = aside.result(*BOOK)
    assert status == 0, out + err
    return folder / "site"


@pytest.fixture
def ran(aside, request):
    """What a Python command did aside: folder, exit status, output and errors."""
    return aside.result(*request.param)


def runs(*commands, ids=None):
    """Decorator of a test that asks for `ran`: it is run once for each of these commands."""
    return pytest.mark.parametrize("ran", commands, ids=ids, indirect=True)


@pytest.fixture(scope="session", autouse=True)
def parsed():
    """The tests are parsed once for the index, not anew for each page that asks for an entry."""
    docstrings = index.docstrings
    once = functools.cache(lambda root: docstrings())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index, "docstrings", functools.wraps(docstrings)(lambda: once(index.ROOT)))
        yield


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture(autouse=True)
def figures():
    """A lesson sets its style and leaves its figures open; neither reaches the next test."""
    before = [*dict.items(matplotlib.rcParams)]     # rc_context takes 0.2 ms, 7000 times
    yield
    dict.update(matplotlib.rcParams, before)
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


def central(f, X, along=None):
    """Slopes of the number f(X) by central differences: entry by entry, or in each row of `along`.
    """
    X = np.array(X, dtype=float)
    step = 6e-6 * np.max(np.abs(X))                     # cube root of eps, at the scale of X
    steps = step * (np.eye(X.size) if along is None else along).reshape(-1, *X.shape)
    slopes = np.array([f(X + change) - f(X - change) for change in steps]) / (2.0 * step)
    return slopes if along is not None else slopes.reshape(X.shape)


def assert_gradient(f, X, tol=1e-7, directions=None):
    """autograd's gradient of f at X has the shape of X and equals central differences.

    Both have their scale from the largest entry, or f / X where the gradient vanishes. Relative to
    that the differences err by step^2 = 4e-11 times the third derivative and by eps / step = 4e-11
    of rounding: 1e-7 leaves room for a curvature of a few thousand.

    Where f is slow or X large: slopes in so many random directions of length 1. What is wrong in
    one entry shows in each of them, by its share of the whole.
    """
    X, along = np.array(X, dtype=float), None
    got = autograd.grad(f)(X)
    assert got.shape == X.shape and got.dtype == np.float64
    if directions:
        along = np.random.default_rng(0).standard_normal((directions, X.size))
        along /= np.linalg.norm(along, axis=1, keepdims=True)
        got = along @ got.reshape(-1)
    want = central(f, X, along)
    scale = max(np.max(np.abs(want)), abs(f(X)) / np.max(np.abs(X)))
    np.testing.assert_allclose(got, want, rtol=0, atol=tol * scale)


def with_spectrum(rng, N, M, sigma):
    """Matrix (N, M) with singular values `sigma`, descending, and random singular vectors."""
    r = len(sigma)
    U, V = (np.linalg.qr(rng.standard_normal((n, r)))[0] for n in (N, M))
    return U * np.asarray(sigma, dtype=float) @ V.T


def _with_first(A, value):
    A = np.array(A, dtype=np.result_type(np.asarray(A), type(value)))
    A[(0,) * A.ndim] = value
    return A


# kind -> what becomes of a good array, the error, what its message must hold
BAD = {
    "nan": (lambda A: _with_first(A, np.nan), ValueError, "finite"),
    "inf": (lambda A: _with_first(A, np.inf), ValueError, "finite"),
    "fewer-axes": (lambda A: A[0], ValueError, "axes"),
    "more-axes": (lambda A: A[None], ValueError, "axes"),
    "no-rows": (lambda A: A[:0], ValueError, "(0,"),
    "complex": (lambda A: A + 0j, TypeError, "complex128"),
    "object": (lambda A: A.astype(object), TypeError, "object"),
    "text": (lambda A: A.astype(str), TypeError, "<U"),
    "masked": (lambda A: np.ma.masked_array(A), TypeError, "masked"),
}
