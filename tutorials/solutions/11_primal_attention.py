# %% [markdown]
# # Solutions to lesson 11, with the checks
# Each check takes your function, tries it on several inputs and says what is wrong.
# %%
import numpy as np

from ksvd_ref import attention
from ksvd_ref.course import exercises
from ksvd_ref.course.exercises import compare, numbers, parts


# %% [markdown]
# **E11.1** Two products for each side, one for the output.
# %%
def layer_of_one_head(Q, K, W_e, W_r, W_o, b_o, F=None):
    Phi, Psi = (X / np.linalg.norm(X, axis=1, keepdims=True) for X in (Q, K))
    if F is not None:
        Phi, Psi = Phi @ F.T, Psi @ F.T
    return np.hstack([Phi @ W_e, Psi @ W_r]) @ W_o + b_o


def check_11_1(function):
    rng = np.random.default_rng(91)
    for N, p, n, s, d_v in ((5, 4, None, 2, 3), (7, 3, 6, 2, 4), (3, 5, 5, 3, 2)):
        Q, K = rng.standard_normal((2, N, p))
        W_e, W_r = rng.standard_normal((2, n or p, s))
        W_o, b_o = rng.standard_normal((2 * s, d_v)), rng.standard_normal(d_v)
        F = None if n is None else rng.standard_normal((n, p))

        def truth(crossed=False, swapped=False, unit=True, bias=1.0, F=F):
            rows = []
            for q, k in zip(*((K, Q) if swapped else (Q, K))):  # token by token
                q, k = (q / np.sqrt(q @ q), k / np.sqrt(k @ k)) if unit else (q, k)
                q, k = (q, k) if F is None else (F @ q, F @ k)
                e, r = W_e.T @ q, W_r.T @ k
                rows.append(W_o.T @ np.concatenate([r, e] if crossed else [e, r]) + bias * b_o)
            return np.array(rows)
        others = [(truth(unit=False), "queries and keys are not divided by their length"),
                  (truth(crossed=True), "r stands before e in [e; r]"),
                  (truth(swapped=True), "W_e scores the queries and W_r the keys, not the other "
                   "way round"),
                  (truth(bias=0.0), "the bias b_o is missing")]
        if n == p:
            others += [(truth(F=None), "F is ignored"),
                       (truth(F=F.T), "F acts as its transpose: e = W_e^T F phi(q)")]
        compare(function(Q, K, W_e, W_r, W_o, b_o, F), truth(),
                f"N = {N}, p = {p}, {'no F' if F is None else f'n = {n}'}, the output", others)


# %% [markdown]
# **E11.2** A unit vector $u$ with $F^\top u = 0$. Make the parts along $u$ equal to $u a^\top$ and
# $u b^\top$: the trace is that of the rest plus $a^\top b$.
# %%
def move_the_trace(W_e, W_r, F, value):
    u = np.linalg.svd(F.T)[2][-1:].T                # (n, 1), F^T u = 0
    W_e, W_r = W_e - u @ (u.T @ W_e), W_r - u @ (u.T @ W_r)
    missing = value - np.sum(W_e * W_r)
    first = np.eye(1, W_e.shape[1])
    return W_e + u @ first, W_r + missing * u @ first


def along(W_e, W_r, F, value):
    """Adds along u what is missing, and forgets the parts along u that were there before."""
    u = np.linalg.svd(F.T)[2][-1:].T
    missing = value - np.sum(W_e * W_r)
    step = np.abs(missing) ** 0.5 * u @ np.eye(1, W_e.shape[1])
    return W_e + step, W_r + np.sign(missing) * step


def check_11_2(function):
    rng = np.random.default_rng(93)
    for n, p, s, value in ((6, 3, 2, 50.0), (4, 2, 1, 0.0), (5, 4, 3, -7.0)):
        F, (W_e, W_r) = rng.standard_normal((n, p)), rng.standard_normal((2, n, s))
        names = "W_e", "W_r"
        new = parts(function(W_e.copy(), W_r.copy(), F.copy(), value), names)
        new = [numbers(W, (n, s), name) for W, name in zip(new, names)]
        for old, W, name in zip((W_e, W_r), new, names):
            gap = np.abs(F.T @ W - F.T @ old).max()
            if gap > 1e-9:
                raise AssertionError(f"F^T {name} moved by {gap:.1e}, so the scores change: "
                                     "move only in the null space of F^T")
        trace, old = np.sum(new[0] * new[1]), np.sum(W_e * W_r)
        if abs(trace - value) > 1e-9 * (1 + abs(value)):
            if np.isclose(trace, old):
                raise AssertionError(f"the trace is still {old:.4f}, not {value}")
            if np.isclose(trace, old + value):
                raise AssertionError(f"the trace moved *by* {value}, it should be moved *to* it")
            if np.isclose(trace, -value):
                raise AssertionError(f"the trace is {trace:.4f}: the sign is flipped")
            raise AssertionError(f"the trace is {trace:.4f}, not {value}: do the parts count that "
                                 "W_e and W_r had along the null space before?")
        queries, keys = rng.standard_normal((2, 1, 9, p))       # and through the layer
        before, after = (attention.primal_attention(queries, keys, attention.PrimalWeights(
            a[None], b[None], np.ones((1, s)), np.ones((2 * s, 2)), np.zeros(2)), F=F[None])[0]
            for a, b in ((W_e, W_r), new))
        if not np.allclose(before, after, atol=1e-9):
            raise AssertionError("the outputs of the layer changed")


# %% [markdown]
# The questions. 1. F holds rows of the whole sequence, the future included. 2. Each sequence has
# its own kernel $\Phi F^\top F\Psi^\top$ and so, in general, its own solution; J of all of them
# together is stationary elsewhere. 3. The weights: values of a dual reading are $h_{rj}$, which
# $W_e = \Psi^\top H_r$ has added up already, and $W_o$ maps the result.
# %%
ANSWERS = {                 # the solution, then wrong answers that the check must refuse
    "11.1": (layer_of_one_head,
             lambda Q, K, W_e, W_r, W_o, b_o, F: np.hstack([Q @ W_e, K @ W_r]) @ W_o + b_o,
             lambda Q, K, *rest: layer_of_one_head(K, Q, *rest),
             lambda Q, K, W_e, W_r, W_o, b_o, F: layer_of_one_head(Q, K, W_e, W_r, W_o, 0, F),
             lambda Q, K, W_e, W_r, W_o, b_o, F: layer_of_one_head(
                 Q, K, W_e, W_r, np.roll(W_o, len(W_o) // 2, axis=0), b_o, F)),
    "11.2": (move_the_trace,
             lambda W_e, W_r, F, value: (W_e, W_r),
             lambda W_e, W_r, F, value: (W_e * value / np.sum(W_e * W_r), W_r),
             along,
             lambda W_e, W_r, F, value: move_the_trace(W_e, W_r, F, -value),
             lambda W_e, W_r, F, value: move_the_trace(W_e, W_r, F, value + np.sum(W_e * W_r))),
}
if __name__ == "__main__":
    exercises.demonstrate(globals())
