# %% [markdown]
# # Solutions to lesson 02, with the checks
# Each check takes your function, tries it on several matrices and says what is wrong.
# %%
import numpy as np

from ksvd_ref import dual
from ksvd_ref.course import exercises
from ksvd_ref.course.exercises import numbers, parts


def matrices():
    """Tall, wide and square, of full column rank and not."""
    rng = np.random.default_rng(31)
    for N, M, r in ((9, 7, 4), (6, 8, 3), (5, 5, 5)):
        yield rng.standard_normal((N, r)), rng.standard_normal((M, r))


# %% [markdown]
# **E2.1** The pair fits when $h_e^\top K h_r = +\sigma$; a one-sided flip makes it $-\sigma$.
# %%
def mend_signs(K, H_e, H_r):
    return H_r * np.sign(np.sum(H_e * (K @ H_r), axis=0))


def check_2_1(function):
    rng = np.random.default_rng(1)
    for Phi, Psi in matrices():
        K = Phi @ Psi.T
        H_e, sigma, H_r = dual.solve(K)
        left, right = rng.choice([-1.0, 1.0], (2, len(sigma)))
        left[0], right[0] = -1.0, 1.0               # at least one pair opposed
        got = numbers(function(K, H_e * left, H_r * right), H_r.shape, "H_r")
        want = H_r * left
        if np.abs(got - want * sigma).max() < 1e-9 * sigma[0]:
            raise AssertionError("this is K^T H_e = H_r Sigma: the signs fit, but column l still "
                                 "has the length sigma_l")
        for l in range(len(sigma)):
            if np.abs(got[:, l] + want[:, l]).max() < 1e-9:
                raise AssertionError(f"H_r has the right span but the sign of column {l + 1} is "
                                     "flipped against H_e")
            if np.abs(got[:, l] - want[:, l]).max() > 1e-9:
                raise AssertionError(f"column {l + 1} of H_r is no longer the singular vector: "
                                     "only the sign of the whole column may change")


# %% [markdown]
# **E2.2** $\Delta = \Sigma^{-1/2}$, then the sides cross.
# %%
def balanced_weights(Phi, Psi):
    H_e, sigma, H_r = dual.solve(Phi @ Psi.T)
    Delta = sigma ** -0.5
    return Psi.T @ (H_r * Delta), Phi.T @ (H_e * Delta)


def check_2_2(function):
    for Phi, Psi in matrices():
        K = Phi @ Psi.T
        H_e, sigma, H_r = dual.solve(K)
        shape, tolerance = (Phi.shape[1], len(sigma)), 1e-9 * sigma[0]
        names = "W_e", "W_r"
        W_e, W_r = (numbers(W, shape, name)
                    for W, name in zip(parts(function(Phi, Psi), names), names))
        product = lambda E, R, power: np.abs(E @ R.T - H_e * sigma ** power @ H_r.T).max()
        solves = lambda E, R: max(np.abs(K @ R - E * sigma).max(),
                                  np.abs(K.T @ E - R * sigma).max()) < tolerance * sigma[0]
        E, R = Phi @ W_e, Psi @ W_r
        if product(E, R, 2) < tolerance * sigma[0]:
            raise AssertionError("E R^T = H_e Sigma^2 H_r^T: these are the weights at Delta = I, "
                                 "scale both sides by Sigma^-1/2")
        if product(E, R, 3) < tolerance * sigma[0] ** 2:
            raise AssertionError("E R^T = H_e Sigma^3 H_r^T: Sigma^1/2 in place of Sigma^-1/2")
        if product(Phi @ W_r, Psi @ W_e, 1) < tolerance and solves(Phi @ W_r, Psi @ W_e):
            raise AssertionError("W_e and W_r are exchanged: the sides cross, columns make W_e")
        if product(E, R, 1) > tolerance:
            raise AssertionError(f"E R^T differs from K by {product(E, R, 1):.1e}")
        if not solves(E, R):            # E R^T = K alone accepts W_e = W_r = I: K.15 decides
            raise AssertionError("E R^T = K, but the scores are no multiples of the singular "
                                 "vectors: K R = E Sigma fails")


# %% [markdown]
# The questions. 1. $h_{e1}^\top K h_{r2}$ is $\sigma_2 h_{e1}^\top h_{e2}$ and
# $\sigma_1 h_{r1}^\top h_{r2}$; exchanging 1 and 2 gives the same with $\sigma_1$ and $\sigma_2$
# exchanged. If they differ, both products are 0. 2. At most five: the rank of $K$ is at most 5, and
# each $\lambda$ is one over a singular value. 3. A vector of length 1 can only turn, so its change
# is orthogonal to it: $\mathrm{d}h_e^\top K h_r = \sigma\, \mathrm{d}h_e^\top h_e = 0$, and
# likewise for $h_r$. What remains is $h_e^\top \mathrm{d}K h_r$.
# %%
ANSWERS = {                 # the solution, then wrong answers that the check must refuse
    "2.1": (mend_signs,
            lambda K, H_e, H_r: H_r,
            lambda K, H_e, H_r: np.abs(H_r),
            lambda K, H_e, H_r: K.T @ H_e),
    "2.2": (balanced_weights,
            lambda Phi, Psi: balanced_weights(Phi, Psi)[::-1],
            lambda Phi, Psi: (Psi.T @ dual.solve(Phi @ Psi.T).H_r,
                              Phi.T @ dual.solve(Phi @ Psi.T).H_e),
            lambda Phi, Psi: [W * dual.solve(Phi @ Psi.T).sigma
                              for W in balanced_weights(Phi, Psi)],
            lambda Phi, Psi: (np.eye(Phi.shape[1]), np.eye(Phi.shape[1]))),
}
if __name__ == "__main__":
    exercises.demonstrate(globals())
