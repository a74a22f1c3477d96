# %% [markdown]
# # Solutions to lesson 08, with the checks
# Each check compares your function with a slower truth on several inputs and says what is wrong.
# %%
import numpy as np

from ksvd_ref.attention.filters import causal
from ksvd_ref.attention.smoother import attention, linear_attention
from ksvd_ref.course import exercises
from ksvd_ref.course.exercises import compare, numbers


# %% [markdown]
# **E8.1** The numerator and the normaliser of query $i$ are $\phi(q_i) S_i$ and $\phi(q_i) z_i$.
# The key comes in before the query asks, for a query sees its own key.
# %%
def running(phi_Q, phi_K, V):
    S, z, rows = np.zeros((phi_K.shape[1], V.shape[1])), np.zeros(phi_K.shape[1]), []
    for q, k, v in zip(phi_Q, phi_K, V):
        S = S + np.outer(k, v)
        z = z + k
        rows.append(q @ S / (q @ z))
    return np.array(rows)


def late(phi_Q, phi_K, V):
    """The query asks before its own key is in; the first takes the first value."""
    seen = np.tril(np.ones((len(V), len(V))), -1)
    seen[0, 0] = 1.0
    G = seen * (phi_Q @ phi_K.T)
    return G @ V / G.sum(axis=1, keepdims=True)


def check_8_1(function):
    for seed, (N, p, d_v) in enumerate([(6, 3, 2), (1, 1, 1), (40, 5, 4)]):
        rng = np.random.default_rng(seed)
        Q, K, V = *rng.standard_normal((2, N, p)), rng.standard_normal((N, d_v))
        for phi in (np.exp, lambda X: np.where(X > 0, X + 1, np.exp(np.minimum(X, 0)))):
            G = phi(Q) @ phi(K).T
            want = attention(phi(Q), phi(K), V, kernel="linear", mask=causal(N))
            sums = np.tril(G) @ V
            compare(function(phi(Q), phi(K), V.copy()), want, f"N = {N}, the output", (
                (linear_attention(phi(Q), phi(K), V, mask=causal(N)), "phi_Q and phi_K are the "
                 "features already: they are mapped a second time"),
                (G @ V / G.sum(axis=1, keepdims=True), "every query sees all keys: it is not "
                 "causal"),
                (sums, "the normaliser phi(q) z is missing"),
                (sums / np.arange(1, N + 1)[:, None], "divided by the number of keys, not by "
                 "phi(q) z"),
                (sums / G.sum(axis=1, keepdims=True), "the numerator stops at key i, the "
                 "normaliser sums over all keys"),
                (late(phi(Q), phi(K), V), "query i does not see its own key: take the key in "
                 "before the query asks")))


# %% [markdown]
# **E8.2** The 1 is a key with the logit 0. Shift by the largest logit, 0 among them, before the
# exponential, or large logits overflow.
# %%
def softmax_plus_one(logits):
    top = np.maximum(np.max(logits, axis=-1, keepdims=True), 0.0)
    G = np.exp(logits - top)
    return G / (np.exp(-top) + np.sum(G, axis=-1, keepdims=True))


def check_8_2(function):
    rng = np.random.default_rng(8)
    for scale in (1.0, 900.0):
        logits = scale * rng.standard_normal((4, 5))
        top = np.maximum(logits.max(axis=1, keepdims=True), 0)
        G = np.exp(logits - top)
        want = G / (np.exp(-top) + G.sum(axis=1, keepdims=True))
        with np.errstate(all="ignore"):
            got = numbers(function(logits.copy()), want.shape, f"logits of size {scale:g}: weights")
        compare(got, want, f"logits of size {scale:g}", [
            (G / G.sum(axis=1, keepdims=True), "these sum to 1: where is the 1 below the line?"),
            (G / (1 + G.sum(axis=1, keepdims=True)), "after a shift of the logits the 1 is "
             "exp(-shift)")])


# %% [markdown]
# The questions. 1. Both: the exponential kernel, values of content; offsets with coefficients of
# the query, as a factor, from sinusoids with a memory filter in the one, from a learned table with
# a full filter in the other. 2. Only $D_i^\top D_j = D_{j-i}$ leaves the offset alone; $R_j$ with
# an unturned query is absolute. 3. The differential one: its rows sum to $1 - c$.
# %%
ANSWERS = {                 # the solution, then wrong answers that the check must refuse
    "8.1": (running,
            lambda phi_Q, phi_K, V: linear_attention(phi_Q, phi_K, V, mask=causal(len(V))),
            lambda phi_Q, phi_K, V: phi_Q @ (phi_K.T @ V) / (phi_Q @ phi_K.sum(axis=0))[:, None],
            lambda phi_Q, phi_K, V: np.tril(phi_Q @ phi_K.T) @ V,
            late),
    "8.2": (softmax_plus_one,
            lambda logits: np.exp(logits) / (1 + np.sum(np.exp(logits), axis=-1, keepdims=True)),
            lambda logits: np.exp(logits - logits.max()) / np.sum(np.exp(logits - logits.max()),
                                                                  axis=-1, keepdims=True)),
}
if __name__ == "__main__":
    exercises.demonstrate(globals())
