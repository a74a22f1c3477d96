# %% [markdown]
# # Solutions to lesson 05, with the checks
# Each check takes your function, tries it on several matrices and says what is wrong.
# %%
import numpy as np

from ksvd_ref.course import exercises
from ksvd_ref.course.exercises import compare, numbers


def matrices():
    rng = np.random.default_rng(5)
    return {"2 x 2": np.array([[3.0, 0.0], [4.0, 5.0]]), "tall": rng.standard_normal((5, 3)),
            "wide": rng.standard_normal((3, 6)), "the identity": np.eye(3)}


# %% [markdown]
# **E5.1** Each $\sigma_l$ has the gradient $h_{e,l}h_{r,l}^\top$; their sum is $H_eH_r^\top$, the
# polar factor. It does not care which vectors span a tie.
# %%
def nuclear_gradient(K):
    H_e, _, H_r = np.linalg.svd(K, full_matrices=False)
    return H_e @ H_r


def check_5_1(function):
    for name, K in matrices().items():
        U, sigma, Vt = np.linalg.svd(K, full_matrices=False)
        wrong = [(K, "this is K, which belongs to half the sum of squares: leave sigma out"),
                 (np.outer(U[:, 0], Vt[0, :]), "this is the gradient of sigma_1 alone: add all"),
                 ((U @ Vt).T, "transposed: the gradient has the shape of K"),
                 (-U @ Vt, "the sign is turned: more of K makes sigma larger")]
        if K.shape[0] >= K.shape[1]:                # else the shapes do not fit
            wrong.append((U @ Vt.T, "np.linalg.svd returns the right vectors in rows, V^T: no "
                          "further transpose"))
        compare(function(K.copy()), U @ Vt, f"{name}: the gradient", wrong)


# %% [markdown]
# **E5.2** By Weyl $\sigma'_{s+1} \le \sigma_{s+1} + \|D\|$, so the sine is at most $\|D\|/(\sigma_s
# - \sigma_{s+1} - \|D\|)$. That is 1/2 or less if the gap is three times the change.
# %%
def sure_components(K, size):
    gaps = -np.diff(np.linalg.svd(K, compute_uv=False))
    sure = np.nonzero(gaps >= 3 * size)[0]
    return int(sure[-1]) + 1 if len(sure) else 0


def check_5_2(function):
    rng = np.random.default_rng(6)
    U, V = (np.linalg.qr(rng.standard_normal((6, 6)))[0] for _ in range(2))
    for sigma, size, want, what in (
            ([9.0, 8.5, 4.0, 3.0, 2.9, 0.1], 0.9, 5, "the last gap, 2.8, is over three times 0.9: "
             "the largest s counts, not the first"),
            ([9.0, 8.5, 4.0, 3.0, 2.9, 0.1], 1.2, 2, "only the gap 4.5 is three times 1.2; a gap "
             "of twice the change leaves a sine of 1, as sigma' may rise by the change too"),
            ([5.0, 4.9, 4.8, 4.7, 4.6, 4.5], 0.5, 0, "no gap is large enough: 0 expected")):
        got = numbers(function(U * sigma @ V.T, size), (), "s")
        if got != want:
            raise AssertionError(f"sigma = {sigma}, size {size}: {want} expected, got {got}: "
                                 f"{what}")


# %% [markdown]
# The questions. 1. Towards a unit vector $u$ at the rate $u^\top D h_{r,l}/\sigma_l$: section 2
# with $\sigma_j = 0$. 2. Those of $\sigma$ themselves, and of losses that take both columns as a
# whole; one vector alone turns at the rate $10^9$, and rounding of $10^{-16}$ moves it by
# $10^{-7}$. 3. Nothing, since no sine is above 1: the change is larger than the gap. The space may
# still be nearly right, as that of the two leading components of the brain is.
# %%
ANSWERS = {                 # the solution, then wrong answers that the check must refuse
    "5.1": (nuclear_gradient,
            lambda K: K,
            lambda K: np.outer(np.linalg.svd(K)[0][:, 0], np.linalg.svd(K)[2][0, :]),
            lambda K: np.linalg.svd(K)[0][:, :min(K.shape)] @ np.linalg.svd(K)[2].T,
            lambda K: -nuclear_gradient(K)),
    "5.2": (sure_components,
            lambda K, size: int(np.sum(np.linalg.svd(K, compute_uv=False) > 2 * size)),
            lambda K, size: int(np.argmax(-np.diff(np.linalg.svd(K, compute_uv=False)) >= 3 * size)
                                ) + 1,
            lambda K, size: int(max([0, *1 + np.nonzero(-np.diff(np.linalg.svd(
                K, compute_uv=False)) >= 2 * size)[0]]))),
}
if __name__ == "__main__":
    exercises.demonstrate(globals())
