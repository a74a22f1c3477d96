# %% [markdown]
# # Solutions of lesson 07: attention is a kernel smoother
# Each `check_7_k(function)` compares a function with a slower truth on several inputs and says
# what is wrong. Run as a script it checks these solutions and shows a wrong answer that each check
# refuses.
# %%
import itertools

import numpy as np

from ksvd_ref.smoother import attention, causal, linear_attention, weights

# %% [markdown]
# ## 7.1 Exponential attention that is rbf attention
# $-\gamma\|q - k\|^2 = 2\gamma\langle q, k\rangle - \gamma\|k\|^2 - \gamma\|q\|^2$. The last is
# a factor of the query and cancels; the first is the exponential kernel with scale $1/(2\gamma)$.


# %%
def rbf_as_exponential(K, gamma):
    return 1 / (2 * gamma), -gamma * (K ** 2).sum(axis=1)[None, :]


def check_7_1(rbf_as_exponential):
    for seed, (N, M, d, gamma) in enumerate([(4, 6, 3, 0.5), (1, 5, 1, 2.0), (7, 2, 4, 0.1)]):
        rng = np.random.default_rng(seed)
        Q, K = rng.standard_normal((N, d)), rng.standard_normal((M, d))
        scale, log_factor = rbf_as_exponential(K, gamma)
        got, want = (weights(Q, K, scale=scale, log_factor=log_factor),
                     weights(Q, K, kernel="rbf", gamma=gamma))
        doubled = weights(Q, K, kernel="rbf", gamma=2 * gamma)
        assert np.abs(got - doubled).max() > 1e-9, "your kernel has 2 gamma instead of gamma"
        # two softmax of scores of order 10
        assert np.abs(got - want).max() < 1e-12, (
            f"weights differ by {np.abs(got - want).max():.2g} for gamma = {gamma}: the key's "
            "factor exp(-gamma |k|^2) does not cancel")


# %% [markdown]
# ## 7.2 The error of averaged heads
# For one point, the error of the mean is (bias of the mean)² + variance of the mean, and the
# variance of a mean of $H$ is the sum of all $H^2$ covariances over $H^2$: $H$ variances and
# $H(H - 1)$ covariances. More heads remove the variance, never the common covariance nor the bias.


# %%
def ensemble(F, truth):
    H = F.shape[0]
    E = F - F.mean(axis=1, keepdims=True)                       # (H, draws, points)
    cov = np.mean(E[:, None] * E, axis=2)                       # (H, H, points)
    own = np.trace(cov)                                         # sum of the variances
    shared = (cov.sum(axis=(0, 1)) - own) / (H * (H - 1))
    return (F.mean(axis=(0, 1)) - truth) ** 2, own / H / H, (1 - 1 / H) * shared


def check_7_2(ensemble):
    rng = np.random.default_rng(0)
    at, X = rng.standard_normal((30, 8)), rng.standard_normal((50, 40, 8))
    truth = np.sin(at).sum(axis=1)
    Y = np.sin(X).sum(axis=2, keepdims=True) + rng.standard_normal((50, 40, 1))
    for width in (1, 2, 4):                                     # 8, 4, 2 heads, each in a subspace
        F = np.stack([attention(at[:, c:c + width], X[..., c:c + width], Y, kernel="rbf")[..., 0]
                      for c in range(0, 8, width)])
        got = ensemble(F, truth)
        error = np.mean((F.mean(axis=0) - truth) ** 2, axis=0)
        variance = np.mean(np.var(F, axis=1), axis=0) / F.shape[0]
        for name, part, want in (("sum of the three terms", sum(got), error),
                                 ("bias term", got[0], (F.mean(axis=(0, 1)) - truth) ** 2),
                                 ("variance term", got[1], variance)):
            # sums of 50 squares below 100
            assert np.abs(part - want).max() < 1e-10, (
                f"{len(F)} heads: {name} is off by {np.abs(part - want).max():.2g}; every average "
                "is over the draws, with 1 / draws")


# %% [markdown]
# ## 7.3 A running state
# The numerator and the normaliser of query $i$ are $\phi(q_i) S_i$ and $\phi(q_i) z_i$. The key
# comes in before the query asks, for a query sees its own key.


# %%
def running(phi_Q, phi_K, V):
    S, z, rows = np.zeros((phi_K.shape[1], V.shape[1])), np.zeros(phi_K.shape[1]), []
    for q, k, v in zip(phi_Q, phi_K, V):
        S = S + np.outer(k, v)
        z = z + k
        rows.append(q @ S / (q @ z))
    return np.array(rows)


def check_7_3(running):
    for seed, (N, p, d_v) in enumerate([(1, 1, 1), (6, 3, 2), (40, 5, 4)]):
        rng = np.random.default_rng(seed)
        Q, K, V = *rng.standard_normal((2, N, p)), rng.standard_normal((N, d_v))
        phi_Q, phi_K = np.exp(Q), np.exp(K)
        got = np.asarray(running(phi_Q, phi_K, V))
        want = attention(phi_Q, phi_K, V, kernel="linear", mask=causal(N))
        assert got.shape == want.shape, f"shape {want.shape} expected, got {got.shape}"
        # a sum of 40 positive terms
        assert np.abs(got - want).max() < 1e-12, (
            f"off by {np.abs(got - want).max():.2g} at N = {N}: query i sees the keys up to i, its "
            "own included, and numerator and normaliser sum over the same keys")
        elu = lambda X: np.where(X > 0, X + 1, np.exp(np.minimum(X, 0)))
        assert np.abs(running(elu(Q), elu(K), V)
                      - linear_attention(Q, K, V, mask=causal(N))).max() < 1e-12, (
            "right for exp, wrong for elu + 1")


# %% [markdown]
# ## 7.4 Filters that respect all permutations
# Equivariance for all inputs means that the filter commutes with every permutation: all diagonal
# entries are equal, and all others. Two free bits make four filters, for every $n \ge 2$: all,
# only itself, all but itself, none. Hiding something is not enough to see order.


# %%
def equivariant_filters(n):
    X = np.random.default_rng(0).standard_normal((n, 2))
    kept = []
    for bits in itertools.product([False, True], repeat=n * n):
        B = np.reshape(bits, (n, n))
        if all(np.abs(attention(X[p], X[p], X[p], mask=B) - attention(X, X, X, mask=B)[p]).max()
               < 1e-9 for p in map(list, itertools.permutations(range(n)))):
            kept.append(B)
    return kept


def check_7_4(equivariant_filters):
    for n, count in ((1, 2), (2, 4), (3, 4)):
        got = [np.asarray(B) for B in equivariant_filters(n)]
        eye = np.eye(n, dtype=bool)
        want = {B.tobytes() for B in (eye, ~eye, eye | ~eye, eye & ~eye)}
        assert all(B.shape == (n, n) and B.dtype == bool for B in got), f"({n}, {n}) boolean masks"
        assert len(got) == len({B.tobytes() for B in got}), f"n = {n}: a filter occurs twice"
        assert {B.tobytes() for B in got} == want and len(want) == count, (
            f"n = {n}: {count} filters expected, got {len(got)}: try all permutations, and all "
            f"{2 ** (n * n)} filters")


# %%
def refused(check, wrong):
    try:
        check(wrong)
    except AssertionError as error:
        return str(error)
    raise RuntimeError(f"{check.__name__} accepted a wrong answer")


if __name__ == "__main__":
    for check, right, wrong in (
            (check_7_1, rbf_as_exponential, lambda K, gamma: (0.5 / gamma, np.zeros((1, len(K))))),
            (check_7_1, rbf_as_exponential, lambda K, gamma: rbf_as_exponential(K, 2 * gamma)),
            (check_7_2, ensemble, lambda F, truth: (ensemble(F, truth)[0], F.var(axis=(0, 1)), 0)),
            (check_7_3, running, lambda Q, K, V: linear_attention(np.log(Q), np.log(K), V)),
            (check_7_4, equivariant_filters, lambda n: [causal(n), causal(n) | True])):
        check(right)
        print(f"{check.__name__} passes; a wrong answer: {refused(check, wrong)}")
