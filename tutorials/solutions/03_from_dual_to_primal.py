# %% [markdown]
# # Solutions to lesson 03, with the checks
# Each check takes your function, tries it on several matrices and says what is wrong.
# %%
import numpy as np

from ksvd_ref import dual, primal
from ksvd_ref.course import exercises
from ksvd_ref.course.exercises import numbers, parts


def pairs():
    """Features of tall, wide and square matrices."""
    rng = np.random.default_rng(41)
    for N, M, p in ((9, 7, 4), (6, 8, 3), (5, 5, 5)):
        yield rng.standard_normal((N, p)), rng.standard_normal((M, p))


same = lambda A, B: np.shape(A) == np.shape(B) and np.allclose(A, B, rtol=1e-9, atol=1e-9)


# %% [markdown]
# **E3.1** $e(x) = W_e^\top\varphi(x)$ with $W_e = \Psi^\top H_r$. Kept as a weight, $W_e$ serves
# every new row at $p$ multiplications per component.
# %%
def score_new_row(phi_new, H_r, Psi):
    W_e = Psi.T @ H_r
    return W_e.T @ phi_new


def check_3_1(function):
    rng = np.random.default_rng(1)
    for (Phi, Psi), s in zip(pairs(), (4, 2, 5)):
        H_r = dual.solve(Phi @ Psi.T, s).H_r
        for phi in (rng.standard_normal(Phi.shape[1]), Phi[0]):
            kernel = np.array([np.sum(phi * psi) for psi in Psi])       # one evaluation per column
            want = np.array([np.sum(kernel * H_r[:, l]) for l in range(s)])
            got = numbers(function(phi, H_r, Psi), None, "the score")
            for other, text in (
                    (kernel, "these are the kernel values of the new row; H_r is still missing"),
                    (kernel @ Psi, "the kernel values are combined with Psi, not with H_r"),
                    (H_r.T @ Psi, "this is W_e^T; the features of the new row are still missing"),
                    (Psi.T @ H_r, "this is W_e; the features of the new row are still missing"),
                    (-want, "the score has the opposite sign")):
                if same(got, other):
                    raise AssertionError(text)
            got = numbers(got, (s,), "the score")
            if not same(got, want):
                raise AssertionError("the score differs from sum_j h_rj kappa(x, z_j) by "
                                     f"{np.abs(got - want).max():.1e}")


# %% [markdown]
# **E3.2** $W_e' = (\Psi T^{-\top})^\top H_r = T^{-1}W_e$ and
# $W_r' = (\Phi T)^\top H_e = T^\top W_r$. $W_e'^\top W_r' = W_e^\top W_r = \Sigma$ stays.
# %%
def turned_weights(W_e, W_r, T):
    return np.linalg.solve(T, W_e), T.T @ W_r


def check_3_2(function):
    rng = np.random.default_rng(2)
    for Phi, Psi in pairs():
        p = Phi.shape[1]
        T = rng.standard_normal((p, p)) + 3 * np.eye(p)
        found = dual.solve(Phi @ Psi.T)
        before = primal.from_dual(found, Phi, Psi)
        after = primal.from_dual(found, Phi @ T, Psi @ np.linalg.inv(T).T)
        got = parts(function(before.W_e, before.W_r, T), ("W_e", "W_r"))
        turns = {"T": T, "T^T": T.T, "the identity": np.eye(p), "T^-1": np.linalg.inv(T),
                 "T^-T": np.linalg.inv(T).T}
        for name, W, want, right in (("W_e", got[0], after.W_e, "T^-1"),
                                     ("W_r", got[1], after.W_r, "T^T")):
            W = numbers(W, want.shape, name)
            if same(W, want):
                continue
            for side, old in zip(("W_e", "W_r"), (before.W_e, before.W_r)):
                for what, turn in turns.items():
                    if same(W, turn @ old):
                        raise AssertionError(f"the new {name} is {what} times {side}, but only "
                                             f"{right} times {name} keeps the scores")
            raise AssertionError(f"{name} is off by {np.abs(W - want).max():.1e}")


# %% [markdown]
# **E3.3** $A A^\dagger A = A$, so $A(Z - A^\dagger A Z A A^\dagger)A = AZA - AZA = 0$ for every
# $Z$.
# %%
def generalised_inverse(A, Z):
    pinv = np.linalg.pinv(A)
    return pinv + Z - pinv @ A @ Z @ A @ pinv


def check_3_3(function):
    rng = np.random.default_rng(3)
    for N, M, r in ((6, 5, 3), (4, 7, 2), (5, 5, 4)):
        A = rng.standard_normal((N, r)) @ rng.standard_normal((r, M))
        made = []
        for Z in rng.standard_normal((2, M, N)):
            C = numbers(function(A, Z), (M, N), "C")
            for other, text in ((A @ Z @ A, "A C A = A Z A: nothing in C inverts A"),
                                (A + A @ Z @ A, "A C A = A + A Z A: take from Z what A sees of it"),
                                (np.zeros_like(A), "A C A = 0: the pseudo-inverse is missing")):
                if same(A @ C @ A, other):
                    raise AssertionError(text)
            gap = np.abs(A @ C @ A - A).max() / np.abs(A).max()
            if gap > 1e-9:
                raise AssertionError(f"A C A differs from A by {gap:.1e}, relative, for A of shape "
                                     f"{A.shape} and rank {r}")
            if not same(C, function(A, Z)):
                raise AssertionError("the same A and Z give another C each time: let Z decide it, "
                                     "not random numbers")
            made.append(C)
        if same(*made):
            raise AssertionError("two different Z give the same C: A has more than one generalised "
                                 "inverse")


# %% [markdown]
# The questions. 1. $T = W_e\Sigma^{-1/2}$ if $s = p$: then $W_e' = W_r' = \Sigma^{1/2}$. 2. That
# $H$ is $R\Lambda$, the weighted scores of the *other* side, $R = \Psi W_r$, and that
# $W_r = \Phi^\top H_e$ with $H_e = E\Lambda$ closes the circle: only then are they singular
# vectors. 3. $h_eh_r^\top\Psi = h_ew_e^\top$: the weight is the slope.
# %%
ANSWERS = {                 # the solution, then wrong answers that the check must refuse
    "3.1": (score_new_row,
            lambda phi, H_r, Psi: H_r.T @ Psi,
            lambda phi, H_r, Psi: Psi.T @ Psi @ phi,
            lambda phi, H_r, Psi: -score_new_row(phi, H_r, Psi)),
    "3.2": (turned_weights,
            lambda W_e, W_r, T: (T @ W_e, T.T @ W_r),
            lambda W_e, W_r, T: (W_e, W_r),
            lambda W_e, W_r, T: turned_weights(W_r, W_e, T)),
    "3.3": (generalised_inverse,
            lambda A, Z: np.linalg.pinv(A),
            lambda A, Z: Z,
            lambda A, Z: np.linalg.pinv(A) + Z,
            lambda A, Z: generalised_inverse(A, np.random.standard_normal(Z.shape))),
}
if __name__ == "__main__":
    exercises.demonstrate(globals())
