# %% [markdown]
# # Solutions to lesson 04, with the checks
# Each check takes your function, tries it on several problems and says what is wrong.
# %%
import numpy as np
from autograd import hessian

from ksvd_ref import primal
from ksvd_ref.course import exercises
from ksvd_ref.course.exercises import numbers


def problems(sizes=((9, 7, 4), (6, 8, 3), (12, 12, 5))):
    """Random Phi (N, p) and Psi (M, p), full column rank."""
    for seed, (N, M, p) in enumerate(sizes):
        rng = np.random.default_rng(seed)
        yield rng, rng.standard_normal((N, p)), rng.standard_normal((M, p))


# %% [markdown]
# **E4.1** The score terms are linear in $\Lambda$: $J(W, c\Lambda) = cS -
# \mathrm{tr}(W_e^\top W_r)$ with $S$ their value at $c = 1$. So
# $c = \mathrm{tr}(W_e^\top W_r)/S$, and no solution is anywhere near.
# %%
def zero_factor(W_e, W_r, Lambda, Phi, Psi):
    trace = np.sum(W_e * W_r)
    return trace / (primal.objective(W_e, W_r, Lambda, Phi, Psi) + trace)


def check_4_1(function):
    for rng, Phi, Psi in problems():
        W_e = rng.standard_normal((Phi.shape[1], 3))
        W_r, Lambda = W_e + 0.3 * rng.standard_normal(W_e.shape), 0.1 + rng.random(3)
        scores = np.sum(Lambda * np.r_[Phi @ W_e, Psi @ W_r] ** 2) / 2
        want = np.sum(W_e * W_r) / scores
        c = numbers(function(W_e, W_r, Lambda, Phi, Psi), (), "c")
        for other, text in ((want / 2, "c is half of what it should be: the scores carry 1/2"),
                            (2 * want, "c is twice what it should be: the trace carries no 1/2"),
                            (1 / want, "this is 1 / c: the trace belongs above, the scores below"),
                            (-want, "c has the wrong sign, and Lambda must stay positive"),
                            (want ** 0.5, "this is the root of c: J is linear in Lambda")):
            if np.isclose(c, other, rtol=1e-9, atol=0):
                raise AssertionError(text)
        J = c * scores - np.sum(W_e * W_r)
        # relative rounding of a few sums of 30 products
        if abs(c / want - 1) > 1e-12:
            raise AssertionError(f"J(W, c Lambda) = {J:.3g} with your c = {c:.3g}, 0 expected")


# %% [markdown]
# **E4.2** Eliminating the first block, a congruence, leaves $\lambda\Phi^\top\Phi$, which is
# positive definite, and $\lambda\Psi^\top\Psi - (\lambda\Phi^\top\Phi)^{-1}$, congruent to a
# matrix with the eigenvalues $\lambda^2\sigma_l^2 - 1$. A congruence keeps the signs (Sylvester).
# %%
def inertia_of(lam, sigma):
    excess = lam * np.asarray(sigma) - 1.0
    zero = np.abs(excess) < 1e-12                                   # 1/sigma * sigma rounds
    above = np.sum(excess[~zero] > 0)
    return len(excess) + int(above), int(np.sum(zero)), len(excess) - int(above) - int(np.sum(zero))


def inertias():
    """Where, lambda, sigma and the counts, from the Hessian itself; then known ones."""
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
            yield f"lambda = {place}, p = {p}", lam, sigma, truth
    for lam in np.nextafter(1 / 49, [0, 1 / 49, 1]):                # 49 * (1 / 49) < 1
        yield "lambda = 1/49, sigma = 49, 7", lam, np.array([49.0, 7.0]), [2, 1, 1]


def check_4_2(function):
    for where, lam, sigma, truth in inertias():
        p, got = len(sigma), numbers(function(lam, sigma), (3,), "the inertia").tolist()
        if got == truth:
            continue
        if got == truth[::-1]:
            raise AssertionError(f"{where}: {got} is {truth} backwards: positive comes first")
        if sum(got) == p:
            raise AssertionError(f"{where}: {got} counts p directions of 2 p: the first block has "
                                 "p positive ones of its own")
        if sum(got) != 2 * p:
            raise AssertionError(f"{where}: {got} does not add up to the 2 p directions")
        if got[1] != truth[1]:
            raise AssertionError(f"{where}: {truth[1]} zero directions expected, got {got[1]}: "
                                 "compare lam * sigma with 1, up to rounding")
        raise AssertionError(f"{where}: {truth} expected, got {got}")


# %% [markdown]
# The questions. 1. $W_e = av$, $W_r = v$: $J = \tfrac12\lambda\|\Psi v\|^2 - a\|v\|^2$ falls for
# ever as $a$ grows. 2. $J(W + tD) = J(W) + t\langle\nabla J(W), D\rangle + t^2J(D)$: the gradient
# removes the middle term and, by Euler, the first. 3. Each $1/\lambda_l$ would have to be a
# singular value of every $K$, with the same weights; in general only $W = 0$ does it.
# %%
ANSWERS = {                 # the solution, then wrong answers that the check must refuse
    "4.1": (zero_factor,
            lambda W_e, W_r, Lambda, Phi, Psi:
                np.sum(W_e * W_r) / np.sum(Lambda * np.r_[Phi @ W_e, Psi @ W_r] ** 2),
            lambda *at: 1 / zero_factor(*at),
            lambda *at: zero_factor(*at) ** 0.5),
    "4.2": (inertia_of,
            lambda lam, sigma: inertia_of(lam, sigma)[::-1],
            lambda lam, sigma: inertia_of(lam * lam, sigma),
            lambda lam, sigma: tuple(int(np.sum(np.sign(lam - 1 / sigma) == sign))
                                     for sign in (1, 0, -1)),
            lambda lam, sigma: (len(sigma) + int(np.sum(lam * sigma > 1)),
                                *(int(np.sum(np.sign(lam * sigma - 1) == s)) for s in (0, -1)))),
}
if __name__ == "__main__":
    exercises.demonstrate(globals())
