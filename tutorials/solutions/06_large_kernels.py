# %% [markdown]
# # Solutions to lesson 06, with the checks
# Each check takes your function, tries it on several matrices and says what is wrong.
# %%
import numpy as np


def shape_is(got, want, name):
    if np.shape(got) != want:
        raise ValueError(f"{name} must have shape {want}, got {np.shape(got)}")


# %% [markdown]
# **E6.1** The triangles below each other, and QR again. Adding the Gram matrices and taking a root
# gives the same on paper, and loses half the digits: the check has a direction of size $10^{-9}$.
# %%
def merge(R_1, R_2):
    return np.linalg.qr(np.vstack([R_1, R_2]))[1]


def check_6_1(function):
    rng = np.random.default_rng(1)
    for p, small in ((3, 1.0), (4, 1e-3), (5, 1e-9)):
        T = np.linalg.qr(rng.standard_normal((p, p)))[0]
        A, B = (rng.standard_normal((n, p)) * np.geomspace(1.0, small, p) @ T for n in (20, 7))
        R_1, R_2 = (np.linalg.qr(block)[1] for block in (A, B))
        R = function(R_1, R_2)
        shape_is(R, (p, p), "the triangle")
        both = np.vstack([A, B])
        if np.allclose(R.T @ R, A.T @ A, rtol=1e-9, atol=0) \
                or np.allclose(R.T @ R, B.T @ B, rtol=1e-9, atol=0):
            raise AssertionError("one of the two blocks is forgotten")
        if np.allclose(R, R_1 + R_2):
            raise AssertionError("the triangles are added; it is R^T R that adds up")
        gap = np.abs(R.T @ R - both.T @ both).max()
        if gap > 1e-12 * np.abs(both.T @ both).max():
            raise AssertionError(f"R^T R differs from the sum by {gap:.1e}")
        values = np.linalg.svd(both, compute_uv=False)
        off = np.max(np.abs(np.linalg.svd(R, compute_uv=False) / values - 1))
        if off > 1e-6:
            raise AssertionError(f"a singular value of {values[-1]:.0e} is off by {off:.1e}, "
                                 "relative: was the Gram matrix formed?")


# %% [markdown]
# **E6.2** The corner's singular vectors with $\tilde\sigma$ above the cut, multiplied from the
# outside in.
# %%
def from_landmarks(K_rows, K_landmarks, K_cols):
    U, sigma, Vt = np.linalg.svd(K_landmarks, full_matrices=False)
    kept = sigma > sigma[0] * max(K_landmarks.shape) * np.finfo(float).eps
    U, sigma, V = U[:, kept], sigma[kept], Vt.T[:, kept]
    return (K_rows @ V / sigma) @ (U.T @ K_cols)


def check_6_2(function):
    rng = np.random.default_rng(2)
    for rank, rows, columns in ((3, [0, 4, 8], [1, 5, 9]), (2, [0, 1, 1, 0], [3, 3, 7]),
                                (3, [0, 2, 4, 6, 8], [9, 1, 5, 5])):
        K = rng.standard_normal((9, rank)) @ rng.standard_normal((rank, 11))
        with np.errstate(all="ignore"):
            got = function(K[:, columns], K[np.ix_(rows, columns)], K[rows])
        shape_is(got, K.shape, "the approximation")
        if not np.all(np.isfinite(got)):
            raise AssertionError("NaN or infinity: a landmark was drawn twice, so the corner is "
                                 "singular and something was divided by zero")
        gap = np.abs(got - K).max()
        if gap > 1e-9:
            repeats = len(set(rows)) < len(rows) or len(set(columns)) < len(columns)
            raise AssertionError(f"off by {gap:.1e} at rank {rank}, where the landmarks have the "
                                 "rank of K" + (" and some are drawn twice" if repeats else ""))


# %% [markdown]
# The questions. 1. The sum squares $\kappa$, and when its $\sigma_s$ turns out to be lost the rows
# are gone. 2. Five vectors of the 20, some orthonormal five of that space, all with the same
# $\sigma$. Nothing: only that $\sigma_6\le\sigma_5$. 3. When the $m$ columns have the rank of $K$.
# %%
if __name__ == "__main__":
    def rejects(check, wrong):
        try:
            check(wrong)
        except (AssertionError, ValueError, np.linalg.LinAlgError) as error:
            return str(error)
        raise SystemExit(f"{check.__name__} accepts a wrong answer")

    def by_gram(R_1, R_2):
        w, V = np.linalg.eigh(R_1.T @ R_1 + R_2.T @ R_2)
        return np.sqrt(np.abs(w))[:, None] * V.T

    for check, right, wrongs in (
            (check_6_1, merge, (by_gram, lambda R_1, R_2: R_1 + R_2, lambda R_1, R_2: R_1)),
            (check_6_2, from_landmarks,
             (lambda rows, corner, cols: rows @ np.linalg.pinv(corner, rcond=0.0) @ cols,
              lambda rows, corner, cols: rows @ corner.T @ cols,
              lambda rows, corner, cols: rows[:, :3] @ np.linalg.inv(corner[:3, :3]) @ cols[:3]))):
        check(right)
        print(f"{check.__name__}: {right.__name__} is right, {len(wrongs)} wrong ones are told:")
        for wrong in wrongs:
            print("   ", rejects(check, wrong))
