# %% [markdown]
# # Solutions to lesson 14, with the checks
# Each check takes your function, tries it on several matrices and says what is wrong.
# %%
import numpy as np

from ksvd_ref.course import exercises
from ksvd_ref.course.exercises import compare, numbers


# %% [markdown]
# **E14.1** $\|\Phi\|_2^2$ is the largest eigenvalue of $\Phi^\top\Phi$, and $\sigma_s^2$ the $s$-th
# of $(\Psi^\top\Psi)(\Phi^\top\Phi)$, where rounding may leave small ones negative or complex.
# %%
def cond_seen(G_phi, G_psi, s):
    squares = np.sort(np.abs(np.linalg.eigvals(G_psi @ G_phi)))[::-1]
    return np.sqrt(np.linalg.norm(G_phi, 2) * np.linalg.norm(G_psi, 2) / squares[s - 1])


def check_14_1(function):
    rng = np.random.default_rng(0)
    for N, M, p, s in ((9, 7, 4, 2), (6, 8, 3, 3), (12, 12, 5, 1)):
        Phi, Psi = rng.standard_normal((N, p)), rng.standard_normal((M, p))
        a, b = np.linalg.norm(Phi, 2), np.linalg.norm(Psi, 2)
        sigma = np.linalg.svd(Phi @ Psi.T, compute_uv=False)            # from K
        want = a * b / sigma[s - 1]                     # below 100 here: its rounding is eps 1e4
        compare(function(Phi.T @ Phi, Psi.T @ Psi, s), want, f"s = {s}, p = {p}, cond", (
                ((a * b) ** 2 / sigma[s - 1] ** 2, "this is the square of cond"),
                ((a * b) ** 2 / sigma[s - 1], "the norms are squared, |Phi^T Phi| is |Phi|^2"),
                (a * b / sigma[s - 1] ** 2, "the eigenvalues are sigma^2, their root is missing"),
                (a * b / sigma[min(s, p - 1)], "this divides by sigma_(s+1): arrays count from 0"),
                (a * b / sigma[p - s], "this divides by the s-th smallest sigma, not the s-th"),
                (a * b / sigma[0], "this divides by sigma_1, but s components are wanted"),
                (a * b / sigma[p - 1], "this divides by the last sigma of all, not by sigma_s"),
                (1 / want, "this is 1 / cond, which is never above 1"),
                (np.linalg.norm(Phi) * np.linalg.norm(Psi) / sigma[s - 1],
                 "the norms are those of Frobenius; the largest singular value is asked for")))


# %% [markdown]
# **E14.2** The triangles below each other, and QR again. Adding the Gram matrices and taking a root
# gives the same on paper, and loses half the digits: the check has a direction of size $10^{-9}$.
# %%
def merge(T_1, T_2):
    return np.linalg.qr(np.vstack([T_1, T_2]))[1]


def by_gram(T_1, T_2):
    w, V = np.linalg.eigh(T_1.T @ T_1 + T_2.T @ T_2)
    return np.sqrt(np.abs(w))[:, None] * V.T


def check_14_2(function):
    rng = np.random.default_rng(1)
    for p, small in ((5, 1e-9), (3, 1.0), (4, 1e-3)):
        T = np.linalg.qr(rng.standard_normal((p, p)))[0]
        A, B = (rng.standard_normal((n, p)) * np.geomspace(1.0, small, p) @ T for n in (20, 7))
        T_1, T_2 = (np.linalg.qr(block)[1] for block in (A, B))
        got, both = numbers(function(T_1, T_2), None, "the triangle"), np.vstack([A, B])
        if got.shape == (2 * p, p):
            raise ValueError(f"shape {(p, p)} expected, got {got.shape}: " + (
                "this is Q, the triangle is the other factor" if np.allclose(got.T @ got, np.eye(p))
                else "still to be made a triangle"))
        got = numbers(got, (p, p), "the triangle")
        size = np.abs(both.T @ both).max()
        for other, text in (
                (A.T @ A, "the second block is forgotten"), (B.T @ B, "the first is forgotten"),
                ((T_1 + T_2).T @ (T_1 + T_2), "the triangles are added; it is T^T T that adds up"),
                ((both.T @ both) @ (both.T @ both), "this is T^T T itself, its root is missing")):
            if np.abs(got.T @ got - other).max() < 1e-12 * size:
                raise AssertionError(text)
        if np.abs(got @ got.T - both.T @ both).max() < 1e-12 * size:
            raise AssertionError("T T^T is right in place of T^T T: this is the transpose")
        gap = np.abs(got.T @ got - both.T @ both).max()
        if gap > 1e-12 * size:
            raise AssertionError(f"T^T T differs from T_1^T T_1 + T_2^T T_2 by {gap:.1e}")
        values = np.linalg.svd(both, compute_uv=False)
        off = np.max(np.abs(np.linalg.svd(got, compute_uv=False) / values - 1))
        if off > 1e-6:
            raise AssertionError(f"a singular value of {values[-1]:.0e} is off by {off:.1e}, "
                                 "relative: was the Gram matrix formed?")
        below = np.abs(np.tril(got, -1)).max()
        if below > 1e-12 * size:
            raise AssertionError("T^T T is right, but T is no triangle: there is an entry "
                                 f"{below:.1e} below the diagonal")


# %% [markdown]
# The questions. 1. The sum squares the condition, and when its $\sigma_s$ turns out to be lost the
# rows are gone. 2. Five vectors of the 20, some orthonormal five of that space, all with the same
# $\sigma$. Nothing: only that $\sigma_6\le\sigma_5$. 3. When the $m$ columns have the rank of $K$.
# %%
ANSWERS = {                 # the solution, then wrong answers that the check must refuse
    "14.1": (cond_seen,
             lambda G_phi, G_psi, s: cond_seen(G_phi, G_psi, s) ** 2,
             lambda G_phi, G_psi, s: cond_seen(G_phi, G_psi, min(s + 1, len(G_phi))),
             lambda G_phi, G_psi, s: cond_seen(G_phi, G_psi, 1)),
    "14.2": (merge,
             by_gram,
             lambda T_1, T_2: np.linalg.qr(np.vstack([T_1, T_2]))[0],
             lambda T_1, T_2: merge(T_1, T_2).T,
             lambda T_1, T_2: np.diag(np.linalg.svd(np.vstack([T_1, T_2]))[1])
             @ np.linalg.svd(np.vstack([T_1, T_2]))[2],
             lambda T_1, T_2: T_1 + T_2,
             lambda T_1, T_2: T_1),
}
if __name__ == "__main__":
    exercises.demonstrate(globals())
