# %% [markdown]
# # Solutions of lesson 02
# Each `check_2_k(function)` compares a function with an independent truth on several inputs and
# says what is wrong. Run as a script it checks the solutions, and that wrong answers are refused.
# %%
import numpy as np

from ksvd_ref import datasets, kernels


def refused(check, wrong):
    try:
        check(wrong)
    except (AssertionError, ValueError) as error:
        return str(error)
    raise AssertionError(f"{check.__name__} accepts a wrong answer, {wrong.__name__}")


# %% [markdown]
# **E2.1.** The number of features, or the shorter side if there are not enough points.
# %%
def predicted_rank(name, N, M, d):
    features = {"linear": d, "cosine": d, "square": d * (d + 1) // 2,
                "square, +1": (d + 1) * (d + 2) // 2, "rbf": N + M}
    return min(features[name], N, M)


def check_2_1(function):
    rng = np.random.default_rng(2)
    for N, M, d in ((20, 20, 3), (30, 12, 4), (4, 25, 3), (9, 8, 1), (2, 2, 5)):
        X, Z = rng.standard_normal((N, d)), rng.standard_normal((M, d))
        both = X if N >= M else Z       # a Gaussian narrow enough for rank to show in float64
        built = {"linear": kernels.linear(X, Z), "cosine": kernels.cosine(X, Z),
                 "square": kernels.polynomial(X, Z, coef0=0.0),
                 "square, +1": kernels.polynomial(X, Z),
                 "rbf": kernels.rbf(both[:N, :], both[:M, :], gamma=100.0)}
        for name, K in built.items():
            truth, answer = int(np.linalg.matrix_rank(K)), function(name, N, M, d)
            assert answer <= min(N, M), \
                f"{name}: no {N} x {M} matrix has rank {answer}, the shorter side limits it"
            assert answer == truth, \
                f"{name}, {N} x {M} points in {d} dimensions: rank {truth}, not {answer}"


# %% [markdown]
# **E2.2.** The column means and the mean of all belong to the training matrix, the row means to the
# new rows.
# %%
def centred_rows(K_new, K):
    return K_new - K.mean(axis=0) - K_new.mean(axis=1, keepdims=True) + K.mean()


def check_2_2(function):
    rng = np.random.default_rng(3)
    cases = {"articles by words": (datasets.wikipedia_words().A, np.eye(11))}
    for N, M, p in ((6, 4, 3), (3, 9, 2), (5, 5, 5)):
        cases[f"{N} x {M}"] = rng.standard_normal((N, p)) + 1, rng.standard_normal((M, p)) - 2
    for name, (Phi, Psi) in cases.items():
        for n in (1, 4):
            Phi_new = rng.standard_normal((n, Phi.shape[1])) + 3
            truth = (Phi_new - Phi.mean(axis=0)) @ (Psi - Psi.mean(axis=0)).T       # by features
            answer = np.asarray(function(Phi_new @ Psi.T, Phi @ Psi.T))
            assert answer.shape == truth.shape, \
                f"{name}: one row per new point, {truth.shape}, got {answer.shape}"
            level = np.abs(answer.mean(axis=1)).max()
            assert level < 1e-10, f"{name}: a row has mean {level:.2g}, not 0, but psi is centred"
            gap = np.abs(answer - truth).max()
            assert gap < 1e-10, \
                f"{name}, {n} new rows: off by {gap:.2g}; are the column means those of training?"


# %% [markdown]
# **E2.3.** Sinkhorn's iteration: the result is $D_1 G D_2$ with positive diagonal matrices, and its
# first pair of singular vectors is constant, with $\sigma_1 = 1$.
# %%
def doubly_stochastic(G, rounds):
    for _ in range(rounds):
        G = G / G.sum(axis=0, keepdims=True)
        G = G / G.sum(axis=1, keepdims=True)
    return G


def check_2_3(function):
    rng = np.random.default_rng(4)
    heads = datasets.minilm_heads()
    for name, G in {"2 x 2": np.array([[3.0, 1.0], [1.0, 1.0]]),
                    "random": rng.uniform(0.5, 2.0, (7, 7)),
                    "head": kernels.exponential(heads.Q[0, 0], heads.K[0, 0])}.items():
        before = G.copy()
        S = np.asarray(function(G, 200))
        assert np.all(G == before), f"{name}: the argument was overwritten"
        assert np.all(S > 0), f"{name}: scaling a positive matrix keeps it positive"
        for axis, what in ((1, "rows"), (0, "columns")):
            off = np.abs(S.sum(axis=axis) - 1).max()
            assert off < 1e-6, f"{name}: the {what} do not sum to 1, off by {off:.2g}"
        ratio = np.log(S / G)           # must be a_i + b_j: centred, nothing is left
        left = np.abs(ratio - ratio.mean(axis=0) - ratio.mean(axis=1, keepdims=True)
                      + ratio.mean()).max()
        assert left < 1e-9, f"{name}: the sums are right, but the result is no D_1 G D_2"
        top = np.linalg.svd(S)[1][0]
        assert abs(top - 1) < 1e-6, f"{name}: sigma_1 = {top:.6f}, not 1"


# %% [markdown]
# The questions. (a) Yes: $K = \Phi\Phi^\top$ with $\Phi$ = eigenvectors times
# $\sqrt{\text{eigenvalue}}$. No: $\begin{bmatrix} 1 & 2 \\ 2 & 1 \end{bmatrix}$. (b) A constant
# vector $c$ of length 1 has $\|K c\| = 1 = \sigma_1$, so it is a leading right vector, and
# $K^\top K c = c$ with $K c = c$ says $K^\top c = c$. (c) $H_e$, as $P_N K h_r/\sigma$.
# %%
if __name__ == "__main__":
    check_2_1(predicted_rank)
    check_2_2(centred_rows)
    check_2_3(doubly_stochastic)
    print("solutions 2.1, 2.2 and 2.3 pass")

    def no_limit(name, N, M, d):
        return {"rbf": min(N, M), "square": d * (d + 1) // 2}.get(name, d)

    def ordered_pairs(name, N, M, d):
        return min(d ** 2, N, M) if name == "square" else predicted_rank(name, N, M, d)

    def own_means(K_new, K):
        return kernels.center(K_new)

    def no_grand_mean(K_new, K):
        return K_new - K.mean(axis=0) - K_new.mean(axis=1, keepdims=True)

    def rows_only(G, rounds):
        return G / G.sum(axis=1, keepdims=True)

    def constant(G, rounds):
        return np.full(G.shape, 1 / len(G))

    for check, wrong in ((check_2_1, no_limit), (check_2_1, ordered_pairs),
                         (check_2_2, own_means), (check_2_2, no_grand_mean),
                         (check_2_3, rows_only), (check_2_3, constant)):
        print(f"{check.__name__} refuses {wrong.__name__}: {refused(check, wrong)}")
