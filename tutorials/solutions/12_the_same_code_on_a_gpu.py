# %% [markdown]
# # Solutions to lesson 12, with the checks
# Each check takes your function, tries it with several libraries and says what is wrong.
# %%
import array_api_strict
import autograd
import autograd.numpy as anp
import numpy as np

from ksvd_ref import dual
from ksvd_ref.backend import namespace


# %% [markdown]
# **E12.1** `xp.linalg.norm` does not exist everywhere, and autograd's is wrong with `keepdims`;
# root, sum and product do and are right.
# %%
def column_norms(A):
    xp = namespace(A)
    return xp.sqrt(xp.sum(A * A, axis=0))


def check_12_1(function):
    A = np.random.default_rng(1).standard_normal((5, 3))
    want = np.array([sum(x ** 2 for x in column) ** 0.5 for column in A.T])
    got = function(A)
    if np.shape(got) != (3,) or not np.allclose(got, want):
        raise AssertionError("NumPy: not the lengths of the columns")
    place = array_api_strict.Device("device1")
    there = array_api_strict.asarray(A, device=place)
    try:
        got = function(there)
    except Exception as error:
        raise AssertionError(f"on another device it raises {type(error).__name__}: {error}")
    if getattr(got, "device", None) != place:
        raise AssertionError(f"from another device it comes back as {type(got).__module__}")
    try:
        slope = autograd.grad(lambda A: anp.sum(function(A)))(A)
    except Exception as error:
        raise AssertionError(f"autograd cannot follow it, {type(error).__name__}: {error}")
    if not np.allclose(slope, A / want):
        raise AssertionError("autograd's derivative is not A / lengths")


# %% [markdown]
# **E12.2** All three are needed: without the projectors any vectors would do where $\sigma$ is
# right, without the product the sides could be flipped apart.
# %%
def same_answer(one, other, tol):
    return all(np.abs(A - B).max() <= tol for A, B in (
        (one[1], other[1]), (one[0] @ one[0].T, other[0] @ other[0].T),
        (one[0] * one[1] @ one[2].T, other[0] * other[1] @ other[2].T)))


def check_12_2(function):
    rng = np.random.default_rng(2)
    U, V, Q = (np.linalg.qr(rng.standard_normal((n, m)))[0] for n, m in ((6, 3), (5, 3), (2, 2)))
    sigma = np.array([2.0, 2.0, 1.0])
    one = dual.Dual(U, sigma, V)
    turn = np.eye(3)
    turn[:2, :2] = Q
    flip = np.array([1.0, -1.0, -1.0])
    other = np.linalg.qr(rng.standard_normal((6, 3)))[0]
    for found, want, what in (
            (one, True, "equal duals"),
            (dual.Dual(U * flip, sigma, V * flip), True, "both sides flipped together"),
            (dual.Dual(U @ turn, sigma, V @ turn), True, "another basis of the repeated sigma"),
            (dual.Dual(U * flip, sigma, V), False, "one side flipped alone"),
            (dual.Dual(U, sigma * 1.01, V), False, "other sigma"),
            (dual.Dual(other, sigma, V), False, "other left vectors")):
        if bool(function(one, found, 1e-9)) != want:
            raise AssertionError(f"{what}: {want} expected")


# %% [markdown]
# The questions. 1. Python waits until the GPU has finished everything before it, and the number
# travels to the host. 2. `primal.gradient`, written out. 3. Its generator gives other numbers for
# the same seed: no result could be compared.
# %%
if __name__ == "__main__":
    def rejects(check, wrong):
        try:
            check(wrong)
        except (AssertionError, ValueError) as error:
            return str(error)[:110]
        raise SystemExit(f"{check.__name__} accepts a wrong answer")

    for check, right, wrongs in (
            (check_12_1, column_norms, (lambda A: np.sqrt(np.sum(np.asarray(A) ** 2, axis=0)),
                                        lambda A: np.linalg.norm(A, axis=0),
                                        lambda A: namespace(A).sum(A * A, axis=0))),
            (check_12_2, same_answer, (
                lambda one, other, tol: np.abs(one[0] - other[0]).max() < tol,
                lambda one, other, tol: np.abs(one[1] - other[1]).max() < tol,
                lambda one, other, tol: np.abs(one[0] @ one[0].T - other[0] @ other[0].T).max()
                < tol and np.abs(one[1] - other[1]).max() < tol))):
        check(right)
        print(f"{check.__name__}: {right.__name__} is right, {len(wrongs)} wrong ones are told:")
        for wrong in wrongs:
            print("   ", rejects(check, wrong))
