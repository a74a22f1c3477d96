# %% [markdown]
# # Solutions to lesson 11, with the checks
# Each check takes your function, tries it on several cases and says what is wrong.
# %%
from functools import partial
from math import cos, sin

import numpy as np

from ksvd_ref import encoder, positions, smoother


# %% [markdown]
# **E11.1** If every token is right with the right ones before it, then greedy never has anything
# else before it; if greedy is wrong, its first wrong token is wrong with the teacher too. That
# needs a causal decoder: the tokens after must not matter.
# %%
def greedy(logits, start, length):
    target = start
    for _ in range(length):
        best = np.argmax(logits(target)[:, -1], axis=-1)
        target = np.concatenate([target, best[:, None]], axis=1)
    return target


def check_11_1(function):
    rng = np.random.default_rng(1)
    for length in (1, 4):
        params = encoder.init_translator(rng, 7, 8, d=8, hidden=8, layers=1)
        source, start = rng.integers(7, size=(5, 3)), np.ones((5, 1), int)
        sites = [partial(encoder.attend, heads=2)] * 3
        logits = lambda target: encoder.translator(source, target, params, sites)
        got = np.asarray(function(logits, start, length))
        if got.shape != (5, 1 + length):
            raise ValueError(f"the targets must have shape {(5, 1 + length)}, got {got.shape}")
        if not np.array_equal(got[:, :1], start):
            raise AssertionError("the target must begin with the start token")
        taught = np.argmax(logits(got[:, :-1]), axis=-1)
        if not np.array_equal(taught, got[:, 1:]):
            raise AssertionError("a token is not the best one after those before it")


# %% [markdown]
# **E11.2** The slopes belong to the heads, so the factor has an axis of heads; what lies above the
# diagonal is masked. Queries stand at the end of the keys, as the causal mask has it.
# %%
def alibi(x, z, params, heads):
    Q, K, _ = encoder.content(x, z, params, heads)
    N, M = x.shape[-2], z.shape[-2]
    offset = np.arange(M - N, M)[:, None] - np.arange(M)               # i - j
    slope = 2.0 ** (-8.0 * np.arange(1, heads + 1) / heads)
    return Q, K, (-slope[:, None, None] * offset).astype("float32")


def check_11_2(function):
    rng = np.random.default_rng(2)
    for N, M, heads in ((4, 4, 2), (3, 5, 4)):
        x, z = rng.standard_normal((N, 8)), rng.standard_normal((M, 8))
        params = encoder.init_attention(rng, 8)
        Q, K, log_factor = function(x, z, params, heads)
        if np.shape(log_factor) != (heads, N, M):
            raise ValueError(f"the log factor must have shape {(heads, N, M)}, "
                             f"got {np.shape(log_factor)}")
        A = smoother.weights(Q, K, log_factor=log_factor, mask=smoother.causal(N, M))
        for h in range(heads):
            for i in range(N):
                seen = range(i + M - N + 1)
                logits = [Q[h, i] @ K[h, j] / np.sqrt(8 / heads)
                          - (i + M - N - j) / 2 ** (8 * (h + 1) / heads) for j in seen]
                want = np.exp(logits) / np.sum(np.exp(logits))
                if not np.allclose(A[h, i, :len(want)], want, atol=1e-6):
                    raise AssertionError(f"weights of head {h + 1}, query {i}, N = {N}, M = {M} "
                                         f"are {np.round(A[h, i, :len(want)], 3)}, expected "
                                         f"{np.round(want, 3)}")


# %% [markdown]
# **E11.3** $\sin\omega(j+1) = \sin\omega j\cos\omega + \cos\omega j\sin\omega$ and
# $\cos\omega(j+1) = \cos\omega j\cos\omega - \sin\omega j\sin\omega$. The check also shows why the
# symmetric product cannot: $\kappa(i, i-1)^2 \le \kappa(i,i)\,\kappa(i-1,i-1)$, so a margin of $m$
# in every row makes $\log\kappa(n, n)$ fall by $2m$ a row (claim D18).
# %%
def one_step(d):
    W = np.zeros((d, d))
    for p in range(d // 2):
        omega = 10000.0 ** (-2 * p / d)
        turn = [[cos(omega), -sin(omega)], [sin(omega), cos(omega)]]
        W[2 * p:2 * p + 2, 2 * p:2 * p + 2] = turn
    return W


def margin(log_kernel):
    """How far the position before is ahead of the position itself, in the worst row."""
    return np.min(np.diag(log_kernel, -1) - np.diag(log_kernel)[1:])


def check_11_3(function):
    rng = np.random.default_rng(3)
    for N, d in ((24, 16), (5, 2)):
        t, after, W = positions.sinusoids(N, d), positions.sinusoids(N, d, first=1), function(d)
        if np.shape(W) != (d, d):
            raise ValueError(f"W_S must have shape {(d, d)}, got {np.shape(W)}")
        if np.allclose(t[1:] @ W, t[:-1]):
            raise AssertionError("this W_S goes one step back: t_j W_S = t_{j-1}")
        if not np.allclose(t @ W, after):
            raise AssertionError("t_j W_S differs from t_(j+1) by "
                                 f"{np.abs(t @ W - after).max():.1e}")
        assert margin(positions.absolute(t, t @ W)) > 0.0
        for _ in range(200):                        # no W_T, however it is chosen
            T = t @ rng.standard_normal((d, d))
            G = positions.absolute(T, T)
            assert margin(G) <= (G[0, 0] - G[-1, -1]) / (2 * (N - 1)) + 1e-12


# %% [markdown]
# The questions. 1. The causal mask tells the decoder how many words it has written, from its second
# block on; the encoder sees a bag of words and cannot tell *two thousand nine hundred* from *nine
# thousand two hundred*. 2. The same two arms with more seeds, paired seed by seed. 3. That it is
# sign-blind (claim D9): a head can ask for a direction, not for one end of it.
# %%
if __name__ == "__main__":
    def rejects(check, wrong):
        try:
            check(wrong)
        except (AssertionError, ValueError) as error:
            return str(error).split("\n")[0]
        raise SystemExit(f"{check.__name__} accepts a wrong answer")

    for check, right, wrongs in (
            (check_11_1, greedy, (lambda logits, start, n: greedy(logits, start, n)[:, 1:],
                                  lambda logits, start, n: greedy(logits, 0 * start, n),
                                  lambda logits, start, n: start + np.arange(1 + n) % 2)),
            (check_11_2, alibi, (encoder.content,
                                 lambda *a: (*alibi(*a)[:2], -alibi(*a)[2]),
                                 lambda *a: (*alibi(*a)[:2], alibi(*a)[2][::-1]))),
            (check_11_3, one_step, (np.eye, lambda d: one_step(d).T, lambda d: one_step(d)[:1]))):
        check(right)
        print(f"{check.__name__}: {right.__name__} is right, {len(wrongs)} wrong ones are told:")
        for wrong in wrongs:
            print("   ", rejects(check, wrong))
