# %% [markdown]
# # Solutions of lesson 01
# Each `check_1_k(function)` compares a function with an independent truth on several matrices and
# says what is wrong. Run as a script it checks the solutions, and that wrong answers are refused.
# %%
import numpy as np

from ksvd_ref import datasets


def matrices():
    rng = np.random.default_rng(1)
    deficient = rng.standard_normal((5, 2)) @ rng.standard_normal((2, 4))
    return {"2 x 2": np.array([[3.0, 0.0], [4.0, 5.0]]), "negative 1 x 1": np.array([[-2.0]]),
            "wide": rng.standard_normal((3, 7)), "tall, rank 2": deficient,
            "migration": datasets.canada_migration().A}


def refused(check, wrong):
    try:
        check(wrong)
    except (AssertionError, ValueError) as error:
        return str(error)
    raise AssertionError(f"{check.__name__} accepts a wrong answer, {wrong.__name__}")


# %% [markdown]
# **E1.1.** $H_e = K H_r \Sigma^{-1}$: computed from its partner, the sign cannot be wrong.
# %%
def left_partners(K, sigma, H_r):
    return K @ H_r / sigma


def check_1_1(function):
    for name, K in matrices().items():
        U, sigma, Vt = np.linalg.svd(K, full_matrices=False)
        s = int(np.sum(sigma > 1e-10 * sigma[0]))
        flip = (-1.0) ** np.arange(s)                           # the reader may choose the signs
        H_e, H_r = U[:, :s] * flip, Vt[:s, :].T * flip
        answer = np.asarray(function(K, sigma[:s], H_r))
        assert answer.shape == H_e.shape, f"{name}: H_e must be {H_e.shape}, got {answer.shape}"
        for l in range(s):
            length = np.linalg.norm(answer[:, l])
            assert abs(length - 1) < 1e-9, f"{name}: column {l} has length {length:.3g}, not 1"
            wrong_sign = np.abs(answer[:, l] + H_e[:, l]).max() < 1e-8
            assert not wrong_sign, f"{name}: the sign of column {l} is flipped against H_r"
            gap = np.abs(answer[:, l] - H_e[:, l]).max()        # rounding over sigma_s / sigma_1
            assert gap < 1e-8, f"{name}: column {l} is no left singular vector, off by {gap:.1e}"


# %% [markdown]
# **E1.2.** The rank counts the pairs, and the shape gives the zeros that are left.
# %%
def block_inertia(K):
    r = int(np.linalg.matrix_rank(K))
    return r, sum(K.shape) - 2 * r, r


def check_1_2(function):
    for name, K in matrices().items():
        N, M = K.shape
        value = np.linalg.eigvalsh(np.block([[np.zeros((N, N)), K], [K.T, np.zeros((M, M))]]))
        noise = 1e-10 * np.abs(value).max()
        truth = [int(np.sum(value > noise)), int(np.sum(np.abs(value) <= noise)),
                 int(np.sum(value < -noise))]
        answer = [int(n) for n in function(K)]
        assert len(answer) == 3, f"three counts are wanted, got {len(answer)}"
        assert sum(answer) == N + M, \
            f"{name}: {answer} is not {N + M} eigenvalues in all; each sigma > 0 uses two of them"
        assert answer == truth, f"{name}, {N} x {M}: {answer} instead of {truth}; is the rank full?"


# %% [markdown]
# **E1.3.** The first pair comes out, by a factor $(\sigma_2/\sigma_1)^2$ per round: power iteration
# on $K^\top K$. Rows answer columns, so it needs no square matrix and keeps the signs together.
# %%
def mutual_weights(K, h, steps):
    h_r = h / np.linalg.norm(h)
    for _ in range(steps):
        h_e = K @ h_r / np.linalg.norm(K @ h_r)
        h_r = K.T @ h_e / np.linalg.norm(K.T @ h_e)
    return h_e, h_r


def check_1_3(function):
    for name, K in matrices().items():
        U, sigma, Vt = np.linalg.svd(K)
        h = Vt.T @ np.ones(K.shape[1])                          # every component, equally strong
        h_e, h_r = (np.asarray(x) for x in function(K, h, 300))
        assert h_e.shape == (K.shape[0],) and h_r.shape == (K.shape[1],), \
            f"{name}: h_e has one weight per row, h_r per column; got {h_e.shape}, {h_r.shape}"
        for side, x in (("h_e", h_e), ("h_r", h_r)):
            assert abs(np.linalg.norm(x) - 1) < 1e-9, f"{name}: {side} is not of length 1"
        for side, x, truth in (("h_e", h_e, U[:, 0]), ("h_r", h_r, Vt[0, :])):
            overlap = abs(x @ truth)
            assert overlap > 1 - 1e-9, f"{name}: {side} is not the first one, overlap {overlap:.4f}"
        assert h_e @ K @ h_r > 0, f"{name}: the signs of h_e and h_r are opposed"
        early_r = np.asarray(function(K, h, 1)[1])
        one_round = K.T @ (K @ h)
        gap = np.abs(early_r - one_round / np.linalg.norm(one_round)).max()
        assert gap < 1e-9, f"{name}: one round is h_r -> K^T K h_r up to length, off by {gap:.1e}"


# %% [markdown]
# The questions. (a) With $K v = \lambda v$, $\lambda < 0$: $\sigma = |\lambda|$, $h_e = -v$,
# $h_r = v$. (b) In dividing $\sigma \|h_e\|^2 = \sigma \|h_r\|^2$ by $\sigma$. (c) A symmetric $K$
# without negative eigenvalues: $K = H \Sigma H^\top$.
# %%
if __name__ == "__main__":
    check_1_1(left_partners)
    check_1_2(block_inertia)
    check_1_3(mutual_weights)
    print("solutions 1.1, 1.2 and 1.3 pass")

    def from_k_kt(K, sigma, H_r):
        return np.linalg.eigh(K @ K.T)[1][:, ::-1][:, :len(sigma)]

    def not_divided(K, sigma, H_r):
        return K @ H_r

    def opposite(K, sigma, H_r):
        return -K @ H_r / sigma

    def full_rank(K):
        r = min(K.shape)
        return r, sum(K.shape) - 2 * r, r

    def one_per_sigma(K):
        r = int(np.linalg.matrix_rank(K))
        return r, sum(K.shape) - r, r

    def one_sided(K, h, steps):
        h_e, h_r = mutual_weights(K, h, steps)
        return -h_e, h_r

    def rows_by_columns(K, h, steps):
        return mutual_weights(K, h, steps)[::-1]

    for check, wrong in ((check_1_1, from_k_kt), (check_1_1, not_divided), (check_1_1, opposite),
                         (check_1_2, full_rank), (check_1_2, one_per_sigma),
                         (check_1_3, one_sided), (check_1_3, rows_by_columns)):
        print(f"{check.__name__} refuses {wrong.__name__}: {refused(check, wrong)}")
