# %% [markdown]
# # Solutions to lesson 01, with the checks
# Each check takes your function, tries it on several matrices and says what is wrong.
# %%
import numpy as np

from ksvd_ref.course import datasets, exercises
from ksvd_ref.course.exercises import numbers, parts


def matrices():
    rng = np.random.default_rng(1)
    deficient = rng.standard_normal((5, 2)) @ rng.standard_normal((2, 4))
    return {"2 x 2": np.array([[3.0, 0.0], [4.0, 5.0]]), "negative 1 x 1": np.array([[-2.0]]),
            "wide": rng.standard_normal((3, 7)), "tall, rank 2": deficient,
            "migration": datasets.canada_migration().A}


# %% [markdown]
# **E1.1** $H_e = K H_r \Sigma^{-1}$: computed from its partner, the sign cannot be wrong.
# %%
def left_partners(K, sigma, H_r):
    return K @ H_r / sigma


def check_1_1(function):
    for name, K in matrices().items():
        U, sigma, Vt = np.linalg.svd(K, full_matrices=False)
        s = int(np.sum(sigma > 1e-10 * sigma[0]))
        flip = (-1.0) ** np.arange(s)                           # the reader may choose the signs
        H_e, sigma, H_r = U[:, :s] * flip, sigma[:s], Vt[:s, :].T * flip
        got = numbers(function(K, sigma, H_r), H_e.shape, f"{name}: H_e")
        same = lambda want: np.abs(got - want).max() < 1e-8 * np.abs(want).max()
        if same(H_e * sigma):
            raise AssertionError(f"{name}: this is K H_r = H_e Sigma: divide column l "
                                 "by sigma_l, so that its length is 1")
        if len(K) == K.shape[1] and same(K.T @ H_r / sigma) and not same(H_e):
            raise AssertionError(f"{name}: K^T turns row weights into column weights; H_r are "
                                 "column weights and go with K")
        for l in range(s):
            length = np.linalg.norm(got[:, l])
            if abs(length - 1) > 1e-9:
                raise AssertionError(f"{name}: column {l + 1} has length {length:.3g}, not 1")
            if np.abs(got[:, l] + H_e[:, l]).max() < 1e-8:
                raise AssertionError(f"{name}: the sign of column {l + 1} is flipped against H_r")
            gap = np.abs(got[:, l] - H_e[:, l]).max()           # rounding over sigma_s / sigma_1
            if gap > 1e-8:
                raise AssertionError(f"{name}: column {l + 1} is no left singular vector, off by "
                                     f"{gap:.1e}")


# %% [markdown]
# **E1.2** After $t$ rounds $h_r \propto (K^\top K)^t h$. In each round the second component loses
# a factor $(\sigma_2/\sigma_1)^2$ against the first. So the first pair comes out if
# $\sigma_1 > \sigma_2$ and $h$ is not orthogonal to $h_{r1}$: power iteration on $K^\top K$. Rows
# answer columns, so it needs no square matrix and keeps the signs together.
# %%
def mutual_weights(K, h, steps):
    h_r = h / np.linalg.norm(h)
    for _ in range(steps):
        h_e = K @ h_r / np.linalg.norm(K @ h_r)
        h_r = K.T @ h_e / np.linalg.norm(K.T @ h_e)
    return h_e, h_r


def check_1_2(function):
    for name, K in matrices().items():
        N, M = K.shape
        U, sigma, Vt = np.linalg.svd(K)
        h = Vt.T @ np.ones(M)                                   # every component, equally strong
        names = "h_e", "h_r"
        got = [numbers(x, None, f"{name}: {side}")
               for side, x in zip(names, parts(function(K, h, 300), names))]
        if N != M and [x.shape for x in got] == [(M,), (N,)]:
            raise ValueError(f"{name}: the first part is h_e, one weight per row, and the second "
                             "h_r; they came exchanged")
        h_e, h_r = numbers(got[0], (N,), f"{name}: h_e"), numbers(got[1], (M,), f"{name}: h_r")
        for side, x in (("h_e", h_e), ("h_r", h_r)):
            if abs(np.linalg.norm(x) - 1) > 1e-9:
                raise AssertionError(f"{name}: {side} has length {np.linalg.norm(x):.3g}, not 1: "
                                     "divide by the length in each half of a round")
        if N == M > 1 and abs(h_e @ Vt[0, :]) > 1 - 1e-9 and abs(h_r @ U[:, 0]) > 1 - 1e-9:
            raise AssertionError(f"{name}: h_e and h_r are exchanged: rows answer with K h_r")
        for side, x, truth in (("h_e", h_e, U[:, 0]), ("h_r", h_r, Vt[0, :])):
            if abs(x @ truth) < 1 - 1e-9:
                raise AssertionError(f"{name}: {side} is not that of the first pair, |cosine| "
                                     f"{abs(x @ truth):.4f} after 300 rounds")
        if h_e @ K @ h_r < 0:
            raise AssertionError(f"{name}: the signs of h_e and h_r are opposed")
        for steps in (1, 3):
            asked = np.linalg.matrix_power(K.T @ K, steps - 1) @ h
            early = parts(function(K, h, steps), names)
            for side, x, want, formula in zip(names, early, (K @ asked, K.T @ (K @ asked)), (
                    f"K (K^T K)^{steps - 1} h", f"(K^T K)^{steps} h")):
                x = numbers(x, want.shape, f"{name}: {side}")
                gap = np.abs(x - want / np.linalg.norm(want)).max()
                if gap > 1e-9:
                    raise AssertionError(f"{name}: after {steps} rounds {side} is not {formula} up "
                                         f"to length, off by {gap:.1e}: one round is both answers, "
                                         "first h_e, then h_r from it")


# %% [markdown]
# The questions. 1. With $K v = \mu v$, $\mu < 0$: $\sigma = |\mu|$, $h_e = -v$,
# $h_r = v$. 2. In dividing $\sigma \|h_e\|^2 = \sigma \|h_r\|^2$ by $\sigma$. 3. A symmetric
# $K$ without negative eigenvalues: $K = H \Sigma H^\top$.
# %%
ANSWERS = {                 # the solution, then wrong answers that the check must refuse
    "1.1": (left_partners,
            lambda K, sigma, H_r: np.linalg.eigh(K @ K.T)[1][:, ::-1][:, :len(sigma)],
            lambda K, sigma, H_r: K @ H_r,
            lambda K, sigma, H_r: K @ H_r / sigma ** 2,
            lambda K, sigma, H_r: K.T @ H_r / sigma if len(K) == len(K.T) else K @ H_r / sigma),
    "1.2": (mutual_weights,
            lambda K, h, steps: (-mutual_weights(K, h, steps)[0], mutual_weights(K, h, steps)[1]),
            lambda K, h, steps: mutual_weights(K, h, steps)[::-1],
            lambda K, h, steps: mutual_weights(K, h, (steps + 1) // 2),
            lambda K, h, steps: (mutual_weights(K, h, steps + 1)[0],
                                 mutual_weights(K, h, steps)[1])),
}
if __name__ == "__main__":
    exercises.demonstrate(globals())
