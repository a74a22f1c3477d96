# %% [markdown]
# # Solutions of lesson 05: the primal objective is a saddle
# Each `check_5_k(function)` compares a function with a slower truth on several inputs and says
# what is wrong. Run as a script it checks these solutions and shows two wrong answers that each
# check refuses.

# %%
import numpy as np
from autograd import hessian

from ksvd_ref import dual, primal


def problems(sizes=((9, 7, 4), (6, 8, 3), (12, 12, 5))):
    """Random Phi (N, p) and Psi (M, p), full column rank."""
    for seed, (N, M, p) in enumerate(sizes):
        rng = np.random.default_rng(seed)
        yield rng, rng.standard_normal((N, p)), rng.standard_normal((M, p))


# %% [markdown]
# ## 5.1 The factor of Λ that makes J zero
# The score terms are linear in $\Lambda$: $J(W, c\Lambda) = c\,Q - \mathrm{tr}(W_e^\top W_r)$ with
# $Q$ their value at $c = 1$. So $c = \mathrm{tr}(W_e^\top W_r) / Q$: positive, and no solution
# anywhere near.


# %%
def zero_factor(W_e, W_r, Lambda, Phi, Psi):
    trace = np.sum(W_e * W_r)
    return trace / (primal.objective(W_e, W_r, Lambda, Phi, Psi) + trace)


def check_5_1(zero_factor):
    for rng, Phi, Psi in problems():
        W_e = rng.standard_normal((Phi.shape[1], 3))
        W_r, Lambda = W_e + 0.3 * rng.standard_normal(W_e.shape), 0.1 + rng.random(3)
        c = zero_factor(W_e, W_r, Lambda, Phi, Psi)
        if np.ndim(c) != 0 or not c > 0:
            raise ValueError(f"one positive number expected, got {c!r}")
        J, trace = primal.objective(W_e, W_r, c * Lambda, Phi, Psi), np.sum(W_e * W_r)
        ratio = (J + trace) / trace                                 # 1 where J = 0
        for wrong, hint in ((2.0, "twice too large: the halves of J"),
                            (0.5, "half of what it should be: the halves of J")):
            assert abs(ratio - wrong) > 1e-9, f"the factor is {hint} are lost"
        # relative rounding of a few sums of 30 products
        assert abs(ratio - 1) < 1e-12, f"J(W, c Lambda) = {J:.3g} with your c = {c:.3g}, 0 expected"


# %% [markdown]
# ## 5.2 The inertia at any λ
# Eliminating the first block, a congruence, leaves $\lambda\Phi^\top\Phi$, which is positive
# definite, and $\lambda\Psi^\top\Psi - (\lambda\Phi^\top\Phi)^{-1}$, congruent to a matrix with
# the eigenvalues $\lambda^2\sigma_l^2 - 1$. A congruence keeps the signs (Sylvester).


# %%
def inertia_of(lam, sigma):
    excess = lam * np.asarray(sigma) - 1.0
    zero = np.abs(excess) < 1e-12                                   # 1/sigma * sigma rounds
    return len(excess) + int(np.sum(excess[~zero] > 0)), int(np.sum(zero)), \
        int(np.sum(excess[~zero] < 0))


def check_5_2(inertia_of):
    for _, Phi, Psi in problems():
        p, sigma = Phi.shape[1], primal.solve(Phi, Psi).sigma
        at = {f"1/sigma_{k + 1}": 1 / value for k, value in enumerate(sigma)}
        between = {f"between 1/sigma_{k + 1} and 1/sigma_{k + 2}": 2 / (a + b)
                   for k, (a, b) in enumerate(zip(sigma, sigma[1:]))}
        for place, lam in {"0.5/sigma_1": 0.5 / sigma[0], "2/sigma_p": 2 / sigma[-1], **at,
                           **between}.items():
            H = hessian(lambda w: primal.objective(w[:p, None], w[p:, None], [lam], Phi, Psi))
            w = np.linalg.eigvalsh(H(np.zeros(2 * p)))
            # rounding leaves 1e-15 |H| of a zero; the least of the others is above 1e-3 here
            truth = [int(np.sum(part)) for part in (w > 1e-9, abs(w) <= 1e-9, w < -1e-9)]
            got = list(inertia_of(lam, sigma))
            assert sum(got) == 2 * p, f"{got} do not add up to the 2 p = {2 * p} directions"
            assert got[1] == truth[1], (f"lambda = {place}: {truth[1]} zero directions expected, "
                                        f"got {got[1]}; compare lam * sigma with 1 up to rounding")
            assert got == truth, f"lambda = {place}: {truth} expected, got {got}"


# %% [markdown]
# ## 5.3 Subspace iteration with spare columns
# The first $s$ directions now shrink their error by $(\sigma_{s+\mathrm{extra}+1}/\sigma_s)^2$ per
# step. $A$ spans the leading left singular vectors, so the small SVD of
# $K^\top A = H_r\Sigma T^\top$ gives $H_r$, and $H_e = AT$.


# %%
def leading(Phi, Psi, s, extra, steps, seed=0):
    W = np.random.default_rng(seed).standard_normal((Phi.shape[1], s + extra))
    for _ in range(steps):
        W = np.linalg.qr(Psi.T @ (Psi @ (Phi.T @ (Phi @ W))))[0]
    A = np.linalg.qr(Phi @ W)[0]                                    # (N, s + extra)
    H_r, sigma, Tt = np.linalg.svd(Psi @ (Phi.T @ A), full_matrices=False)
    return (Psi.T @ H_r)[:, :s], sigma[:s], (Phi.T @ A @ Tt.T)[:, :s]


def check_5_3(leading):
    for seed in range(3):
        rng, s = np.random.default_rng(seed), 3
        # sigma_3 / sigma_4 is near 1, sigma_8 far below: 12 steps are enough with 4 spare columns
        values = np.array([4.0, 3.0, 2.0, 1.9, 1.8, 1.7, 1.6, 0.1, 0.05])
        U, V = (np.linalg.qr(rng.standard_normal((n, 9)))[0] for n in (30, 20))
        mix = rng.standard_normal((9, 9)) + 3 * np.eye(9)
        Phi, Psi = U * values @ mix, V @ np.linalg.inv(mix).T       # K = U diag(values) V^T
        W_e, sigma, W_r = leading(Phi, Psi, s, 4, 12)
        for name, W in (("W_e", W_e), ("W_r", W_r)):
            if W.shape != (9, s):
                raise ValueError(f"{name} of shape {(9, s)} expected, got {W.shape}")
        truth = primal.from_dual(dual.solve(Phi @ Psi.T, s), Phi, Psi)
        gap = np.max(np.abs(sigma - truth.sigma))
        # the error of sigma after 12 steps is (0.1 / 2)^(4 * 12); 1e-9 leaves room for cond(mix)
        assert gap < 1e-9, (f"sigma is off by {gap:.1e}: carry s + extra columns through every "
                            "step and cut to s after the finish")
        for l in range(s):
            ours = np.outer(W_e[:, l], W_r[:, l])                   # blind to the joint sign
            want = np.outer(truth.W_e[:, l], truth.W_r[:, l])
            size = np.linalg.norm(want)
            assert np.linalg.norm(ours + want) > 1e-9 * size, (
                f"component {l + 1}: W_e and W_r have opposite signs; flip them together only")
            assert np.linalg.norm(ours.T - want) > 1e-9 * size, "W_e and W_r are exchanged"
            off = np.linalg.norm(ours - want) / size
            assert off < 1e-7, (f"component {l + 1}: w_e w_r^T is off by {off:.1e}; "
                                "W_e = Psi^T H_r, W_r = Phi^T H_e with orthonormal H")


# %% [markdown]
# ## The three questions
# (a) $W_e = av$, $W_r = v$: $J = \tfrac12\lambda\|\Psi v\|^2 - a\|v\|^2$ falls for ever as $a$
# grows. (b) $J(W + tD) = J(W) + t\langle\nabla J(W), D\rangle + t^2J(D)$: the gradient removes the
# middle term and, by Euler, the first. (c) Each $1/\lambda_l$ would have to be a singular value of
# every $K$, with the same weights in both equations; for generic sequences only $W = 0$ does it.


# %%
def fall(a, v, Phi, Psi, lam=1000.0):
    """J at W_e = a v, W_r = v, for question (a)."""
    return primal.objective(a * v, v, [lam], Phi, Psi)


def refused(check, function):
    try:
        check(function)
    except (AssertionError, ValueError) as error:
        return str(error)
    raise RuntimeError(f"{check.__name__} accepted a wrong answer")


if __name__ == "__main__":
    v = np.array([[0.0], [1.0]])                                    # Phi v = 0
    values = [fall(a, v, np.diag([1.0, 0.0]), np.eye(2)) for a in (0.0, 1e3, 1e4)]
    np.testing.assert_allclose(values, [500.0, -500.0, -9500.0], rtol=1e-12)

    def no_halves(W_e, W_r, Lambda, Phi, Psi):
        return np.sum(W_e * W_r) / np.sum(Lambda * ((Phi @ W_e) ** 2).sum(0)
                                          + Lambda * ((Psi @ W_r) ** 2).sum(0))

    def no_spare(Phi, Psi, s, extra, steps, seed=0):
        return leading(Phi, Psi, s, 0, steps, seed)

    def exchanged(*args, **kwargs):
        return leading(*args, **kwargs)[::-1]

    def one_sided(*args, **kwargs):
        W_e, sigma, W_r = leading(*args, **kwargs)
        return -W_e, sigma, W_r

    wrong = {check_5_1: (no_halves, lambda *at: zero_factor(*at) ** 0.5),
             check_5_2: (lambda lam, sigma: inertia_of(lam, sigma)[::-1],
                         lambda lam, sigma: inertia_of(lam * lam, sigma)),
             check_5_3: (no_spare, exchanged, one_sided)}
    for check, right in ((check_5_1, zero_factor), (check_5_2, inertia_of), (check_5_3, leading)):
        check(right)
        print(f"{check.__name__}: passed")
        for function in wrong[check]:
            print("    refused:", refused(check, function))
