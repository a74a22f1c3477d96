# %% [markdown]
# # Solutions to lesson 15, with the checks
# Each check takes your function, tries it with several libraries and says what is wrong.
# %%
import warnings

import array_api_strict
import autograd
import autograd.numpy as anp
import numpy as np

from ksvd_ref import dual
from ksvd_ref.course import exercises
from ksvd_ref.backend import like, namespace
from ksvd_ref.course.exercises import numbers

ELSEWHERE, HOST = (array_api_strict.Device(name) for name in ("device1", "CPU_DEVICE"))


def on_another_device(function, A, shape):
    """The function of A on a pretended device, brought back."""
    try:
        got = function(array_api_strict.asarray(A, device=ELSEWHERE))
    except Exception as error:
        raise AssertionError(f"on another device it raises {type(error).__name__}: {error}")
    if getattr(got, "device", None) != ELSEWHERE:
        raise AssertionError("what came from another device must stay there, it comes back as "
                             f"{type(got).__module__}.{type(got).__name__}")
    return numbers(got.to_device(HOST), shape, "on another device")


def slope(function, A):
    """Derivative of the sum of the function, by autograd."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")          # "output seems independent of input"
            return autograd.grad(lambda A: anp.sum(function(A)))(A)
    except Exception as error:
        raise AssertionError(f"autograd cannot follow it, {type(error).__name__}: {error}")


# %% [markdown]
# **E15.1** `xp.linalg.norm` does not exist everywhere, and autograd's is wrong with `keepdims`;
# root, sum and product do and are right.
# %%
def column_norms(A):
    xp = namespace(A)
    return xp.sqrt(xp.sum(A * A, axis=0))


def check_15_1(function):
    rng = np.random.default_rng(1)
    for N, M in ((4, 4), (5, 3)):
        A = rng.standard_normal((N, M))
        want = np.array([sum(x ** 2 for x in column) ** 0.5 for column in A.T])
        got = numbers(function(A), (M,), "the lengths")
        for other, what in ((want ** 2, "these are the squares of the lengths: a root is missing"),
                            (np.abs(A).sum(axis=0), "these are sums of absolute values"),
                            (want / N ** 0.5, "the squares are averaged, not added up")):
            if np.allclose(got, other):
                raise AssertionError(what)
        if N == M and np.allclose(got, [sum(x ** 2 for x in row) ** 0.5 for row in A]):
            raise AssertionError("these are the lengths of the rows")
        if not np.allclose(got, want):
            raise AssertionError(f"NumPy: {np.round(want, 3)} expected, got {np.round(got, 3)}")
        if not np.allclose(on_another_device(function, A, (M,)), want):
            raise AssertionError("on another device the lengths are others")
        if not np.allclose(slope(function, A), A / want):
            raise AssertionError("autograd's derivative of the lengths is not A / lengths")


# %% [markdown]
# **E15.2** For orthonormal sides the product alone decides, up to `tol`; $\sigma$ and the
# projectors alone do not, one side may be flipped. The projector adds what the product cannot see:
# the vector of a $\sigma$ below `tol`.
# %%
def three(one):
    return one[1], one[0] @ one[0].T, one[0] * one[1] @ one[2].T


def same_answer(one, other, tol):
    return all(np.abs(A - B).max() <= tol for A, B in zip(three(one), three(other)))


def only(*chosen, size=np.max):
    """Some of the three comparisons, or another measure of the difference."""
    return lambda one, other, tol: all(size(np.abs(three(one)[n] - three(other)[n])) <= tol
                                       for n in chosen)


def check_15_2(function):
    rng = np.random.default_rng(2)
    U, V, Q = (np.linalg.qr(rng.standard_normal((n, m)))[0] for n, m in ((6, 3), (5, 3), (2, 2)))
    sigma, tol = np.array([2.0, 2.0, 1.0]), 1e-9
    one = dual.Dual(U, sigma, V)
    faint = one._replace(sigma=np.array([2.0, 1.0, 1e-10]))
    turn = np.eye(3)
    turn[:2, :2] = Q
    flip = np.array([1.0, -1.0, -1.0])
    left, right = (np.linalg.qr(rng.standard_normal((n, 3)))[0] for n in (6, 5))
    u, v = (np.linalg.svd(A)[0][:, 3] for A in (U, V))          # u is not in the span of U
    tilted = lambda A, rest, angle: A + angle * np.outer(rest, [0, 0, 1])
    cases = [
        (one, one, tol, True, "a dual is not found the same as itself"),
        (one, dual.Dual(U * flip, sigma, V * flip), tol, True,
         "both sides flipped together is the same answer: are vectors compared one by one?"),
        (one, dual.Dual(U @ turn, sigma, V @ turn), tol, True,
         "another basis of the repeated sigma is the same answer: are vectors compared?"),
        (one, dual.Dual(left, sigma, V), tol, False,
         "other left vectors pass: sigma alone does not decide"),
        (one, dual.Dual(U * flip, sigma, V), tol, False,
         "one side flipped alone passes: the product H_e Sigma H_r^T is another matrix"),
        (one, dual.Dual(U, sigma, right), tol, False, "other right vectors pass"),
        (faint, faint._replace(H_e=np.column_stack([U[:, :2], u])), tol, False,
         "another left vector of a sigma below tol passes: the product cannot see it, the "
         "projector can"),
        (one, dual.Dual(U, sigma * 1.01, V), tol, False, "other sigma pass"),
        (one, dual.Dual(U, sigma * 1.01, V), 0.1, True, "tol is not used: 0.02 off, 0.1 allowed")]
    for size, want, what in ((0.1, True, "tol / 10 counts"), (1.5, False, "1.5 tol passes: is "
                             "another tolerance added, or an average taken?")):
        e, r = (size * tol / np.abs(A).max() for A in (     # the angle that moves an entry so far
            np.outer(u, U[:, 2]) + np.outer(U[:, 2], u), np.outer(U[:, 2], v)))
        cases += [(base, found, tol, want, f"a difference in {name} of {what}")
                  for base, found, name in (
                      (one, one._replace(sigma=sigma + [0, 0, size * tol]), "one sigma"),
                      (faint, faint._replace(H_e=tilted(U, u, e)), "the left projectors"),
                      (one, one._replace(H_r=tilted(V, v, r)), "the products"))]
    for base, found, tol, want, what in cases:
        got = function(base, found, tol)
        if not isinstance(got, (bool, np.bool_)):
            raise ValueError(f"True or False expected, got {type(got).__name__}")
        if got != want:
            raise AssertionError(what)


# %% [markdown]
# **E15.3** `A + c` adds to every entry; `np.eye` lives on the host; `xp.eye(n)` without `like` has
# float64 and the default device; writing into `A` changes what was handed in, and autograd refuses.
# %%
def ridge(A, c):
    return A + c * namespace(A).eye(A.shape[0], **like(A))


def check_15_3(function):
    rng = np.random.default_rng(3)
    for n, c in ((3, 2.0), (5, 0.25)):
        for dtype in ("float64", "float32"):
            A = rng.standard_normal((n, n)).astype(dtype)
            want = np.array([[A[i, j] + c * (i == j) for j in range(n)] for i in range(n)])
            mine = A.copy()
            got = numbers(function(mine, c), (n, n), "A + c I")
            if not np.array_equal(mine, A):
                raise AssertionError("A is written over: make a new array")
            for other, what in ((A, "A came back as it was"),
                                (A + c, "c is added to every entry, not to the diagonal"),
                                (A + np.eye(n), "the identity is not multiplied by c"),
                                (A - c * np.eye(n), "c I is subtracted, not added"),
                                (A * (1 + (c - 1) * np.eye(n)), "the diagonal is multiplied by c")):
                if np.allclose(got, other, rtol=1e-5):
                    raise AssertionError(what)
            if not np.allclose(got, want, rtol=1e-5):
                raise AssertionError(f"off A + c I by {np.abs(got - want).max():.1e}")
            if got.dtype != dtype:
                raise AssertionError(f"{dtype} became {got.dtype}: the identity has a dtype too")
            if not np.allclose(on_another_device(lambda A: function(A, c), A, (n, n)), want,
                               rtol=1e-5):
                raise AssertionError("on another device the result is another")
        if not np.allclose(slope(lambda A: function(A, c) ** 2, A.astype(float)), 2 * want):
            raise AssertionError("autograd's derivative is not that of A + c I")


# %% [markdown]
# The questions.
#
# 1. Python waits until the GPU has finished everything before it, and the number travels to the
#    host.
# 2. `primal.gradient`, written out.
# 3. Its generator gives other numbers for the same seed: no result could be compared.
# %%
ANSWERS = {                 # the solution, then wrong answers that the check must refuse
    "15.1": (column_norms,
             lambda A: np.sqrt(np.sum(np.asarray(A) ** 2, axis=0)),
             lambda A: namespace(A).sum(A * A, axis=0),
             lambda A: namespace(A).sqrt(namespace(A).sum(A * A, axis=1)),
             lambda A: np.array([float(sum(x * x for x in A[:, j])) ** 0.5
                                 for j in range(A.shape[1])])),
    "15.2": (same_answer,
             lambda one, other, tol: np.abs(one[0] - other[0]).max() <= tol,
             only(0), only(1), only(2), only(0, 1), only(0, 2), only(1, 2),
             only(0, 1, 2, size=np.mean),
             lambda one, other, tol: same_answer(one, other, 1e-9),
             lambda one, other, tol: same_answer(one, other, 2 * tol)),
    "15.3": (ridge,
             lambda A, c: A + c,
             lambda A, c: A + c * np.eye(A.shape[0]),
             lambda A, c: A + c * namespace(A).eye(A.shape[0]),
             lambda A, c: A + namespace(A).eye(A.shape[0], **like(A))),
}
if __name__ == "__main__":
    exercises.demonstrate(globals())
