# %% [markdown]
# # Solutions to lesson 09, with the checks
# Each check takes your function, tries it on several inputs and says what is wrong.
# %%
import numpy as np

from ksvd_ref import attention


def shape_is(got, want, name):
    if np.shape(got) != want:
        raise ValueError(f"{name} must have shape {want}, got {np.shape(got)}")


# %% [markdown]
# **E9.1** Two products for each side, one for the output.
# %%
def layer_of_one_head(Q, K, W_e, W_r, W_o, b_o, F=None):
    Phi, Psi = (X / np.linalg.norm(X, axis=1, keepdims=True) for X in (Q, K))
    if F is not None:
        Phi, Psi = Phi @ F.T, Psi @ F.T
    return np.hstack([Phi @ W_e, Psi @ W_r]) @ W_o + b_o


def check_9_1(function):
    rng = np.random.default_rng(91)
    for N, p, n, s, d_v in ((5, 4, None, 2, 3), (7, 3, 6, 2, 4), (3, 5, 4, 3, 2)):
        Q, K = rng.standard_normal((2, N, p))
        W_e, W_r = rng.standard_normal((2, n or p, s))
        W_o, b_o = rng.standard_normal((2 * s, d_v)), rng.standard_normal(d_v)
        F = None if n is None else rng.standard_normal((n, p))

        def truth(crossed=False, unit=True, bias=1.0):
            rows = []
            for q, k in zip(Q, K):                  # token by token
                q, k = (q / np.sqrt(q @ q), k / np.sqrt(k @ k)) if unit else (q, k)
                q, k = (q, k) if F is None else (F @ q, F @ k)
                e, r = W_e.T @ q, W_r.T @ k
                rows.append(W_o.T @ np.concatenate([r, e] if crossed else [e, r]) + bias * b_o)
            return np.array(rows)
        got = function(Q, K, W_e, W_r, W_o, b_o, F)
        shape_is(got, (N, d_v), "the output")
        for wrong, what in ((truth(unit=False), "queries and keys are not divided by their length"),
                            (truth(crossed=True), "r stands before e in [e; r]"),
                            (truth(bias=0.0), "the bias b_o is missing")):
            if np.allclose(got, wrong, atol=1e-10):
                raise AssertionError(what)
        if not np.allclose(got, truth(), atol=1e-10):
            raise AssertionError(f"off by {np.abs(got - truth()).max():.1e}"
                                 f"{'' if F is None else ' with F of shape ' + str(F.shape)}")


# %% [markdown]
# **E9.2** $\Lambda^2/N$ is the paper's $\Lambda$, and $\Sigma = \Lambda^{-1}$ there.
# %%
def sigma_of_published(Lambda, N):
    return N / Lambda ** 2


def check_9_2(function):
    rng = np.random.default_rng(92)
    for N in (1, 10, 333):
        for Lambda in (rng.uniform(0.1, 3.0, 4), -rng.uniform(0.1, 3.0, (2, 3))):
            got, want = function(Lambda, N), N / Lambda ** 2
            shape_is(got, want.shape, "sigma")
            for wrong, what in ((1 / Lambda, "1 / Lambda is the paper's: the code squares Lambda"),
                                (1 / Lambda ** 2, "the mean over the N tokens is missing"),
                                (np.sqrt(N / np.abs(Lambda)), "this is Lambda from sigma")):
                if np.allclose(got, wrong) and not np.allclose(got, want):
                    raise AssertionError(what)
            if not np.allclose(got, want):
                raise AssertionError(f"N = {N}, Lambda = {Lambda}: {want} expected, got {got}")


# %% [markdown]
# **E9.3** A unit vector $u$ with $F^\top u = 0$. Make the parts along $u$ equal to $u a^\top$ and
# $u b^\top$: the trace is that of the rest plus $a^\top b$.
# %%
def move_the_trace(W_e, W_r, F, value):
    u = np.linalg.svd(F.T)[2][-1:].T                # (n, 1), F^T u = 0
    W_e, W_r = W_e - u @ (u.T @ W_e), W_r - u @ (u.T @ W_r)
    missing = value - np.sum(W_e * W_r)
    first = np.eye(1, W_e.shape[1])
    return W_e + u @ first, W_r + missing * u @ first


def check_9_3(function):
    rng = np.random.default_rng(93)
    for n, p, s, value in ((4, 2, 1, 0.0), (6, 3, 2, 50.0), (5, 4, 3, -7.0)):
        F, (W_e, W_r) = rng.standard_normal((n, p)), rng.standard_normal((2, n, s))
        new = function(W_e, W_r, F, value)
        for old, W, name in zip((W_e, W_r), new, ("W_e", "W_r")):
            shape_is(W, old.shape, name)
            gap = np.abs(F.T @ W - F.T @ old).max()
            if gap > 1e-9:
                raise AssertionError(f"F^T {name} moved by {gap:.1e}: the scores change")
        trace = np.sum(new[0] * new[1])
        if abs(trace - value) > 1e-9:
            raise AssertionError(f"the trace is {trace:.4f}, not {value}")
    queries, keys = rng.standard_normal((2, 1, 9, 4))   # the last F again, through the layer
    layer = [attention.primal_attention(queries, keys, attention.PrimalWeights(
        a[None], b[None], np.ones((1, 3)), np.ones((6, 2)), np.zeros(2)), F=F[None])[0]
        for a, b in ((W_e, W_r), new)]
    if not np.allclose(*layer, atol=1e-9):
        raise AssertionError("the outputs of the layer changed")


# %% [markdown]
# The questions. 1. F holds rows of the whole sequence, the future included. 2. Each sequence has
# its own kernel $\Phi F^\top F\Psi^\top$ and so its own solution; J of all of them together is
# stationary elsewhere. 3. The weights: values of a dual reading are $h_{rj}$, which
# $W_e = \Psi^\top H_r$ has added up already, and $W_o$ maps the result.
# %%
if __name__ == "__main__":
    def rejects(check, wrong):
        try:
            check(wrong)
        except (AssertionError, ValueError) as error:
            return str(error)
        raise SystemExit(f"{check.__name__} accepts a wrong answer")

    def unscaled(Q, K, W_e, W_r, W_o, b_o, F=None):
        F = np.eye(Q.shape[1]) if F is None else F
        return np.hstack([Q @ F.T @ W_e, K @ F.T @ W_r]) @ W_o + b_o

    for check, right, wrongs in (
            (check_9_1, layer_of_one_head, (
                unscaled, lambda Q, K, *rest: layer_of_one_head(K, Q, *rest),
                lambda Q, K, W_e, W_r, W_o, b_o, F: layer_of_one_head(Q, K, W_e, W_r, W_o, 0, F))),
            (check_9_2, sigma_of_published, (lambda L, N: 1 / L, lambda L, N: 1 / L ** 2,
                                             lambda L, N: L ** 2 / N)),
            (check_9_3, move_the_trace, (
                lambda W_e, W_r, F, value: (W_e, W_r),
                lambda W_e, W_r, F, value: (W_e * value / np.sum(W_e * W_r), W_r)))):
        check(right)
        print(f"{check.__name__}: {right.__name__} is right, {len(wrongs)} wrong ones are told:")
        for wrong in wrongs:
            print("   ", rejects(check, wrong))
