# %% [markdown]
# # Solutions to lesson 03, with the checks
# Each check takes your function, tries it on several matrices and says what is wrong.
# %%
import numpy as np

from ksvd_ref import dual


def matrices():
    """Tall, wide and square, of full column rank and not."""
    rng = np.random.default_rng(31)
    for N, M, r in ((9, 7, 4), (6, 8, 3), (5, 5, 5)):
        yield rng.standard_normal((N, r)), rng.standard_normal((M, r))


def shape_is(got, want, name):
    if np.shape(got) != want:
        raise ValueError(f"{name} must have shape {want}, got {np.shape(got)}")


# %% [markdown]
# **E3.1** The pair fits when $h_e^\top K h_r = +\sigma$; a one-sided flip makes it $-\sigma$.
# %%
def mend_signs(K, H_e, H_r):
    return H_r * np.sign(np.sum(H_e * (K @ H_r), axis=0))


def check_3_1(function):
    rng = np.random.default_rng(1)
    for Phi, Psi in matrices():
        K = Phi @ Psi.T
        H_e, sigma, H_r = dual.solve(K)
        left, right = rng.choice([-1.0, 1.0], (2, len(sigma)))
        left[0], right[0] = -1.0, 1.0               # at least one pair opposed
        got = function(K, H_e * left, H_r * right)
        shape_is(got, H_r.shape, "H_r")
        for l in range(len(sigma)):
            want = H_r[:, l] * left[l]
            if np.allclose(got[:, l], -want, atol=1e-9):
                raise AssertionError(f"H_r has the right span but the sign of column {l + 1} is "
                                     "flipped against H_e")
            if not np.allclose(got[:, l], want, atol=1e-9):
                raise AssertionError(f"column {l + 1} of H_r is no longer the singular vector: "
                                     "only its sign may change")


# %% [markdown]
# **E3.2** $\Delta = \Sigma^{-1/2}$, then the sides cross.
# %%
def balanced_weights(Phi, Psi):
    H_e, sigma, H_r = dual.solve(Phi @ Psi.T)
    Delta = sigma ** -0.5
    return Psi.T @ (H_r * Delta), Phi.T @ (H_e * Delta)


def check_3_2(function):
    for Phi, Psi in matrices():
        K = Phi @ Psi.T
        H_e, sigma, H_r = dual.solve(K)
        W_e, W_r = function(Phi, Psi)
        for W, name in ((W_e, "W_e"), (W_r, "W_r")):
            shape_is(W, (Phi.shape[1], len(sigma)), name)
        product, tol = (Phi @ W_e) @ (Psi @ W_r).T, 1e-9 * sigma[0]
        if np.allclose(product, H_e * sigma ** 2 @ H_r.T, atol=tol * sigma[0]):
            raise AssertionError("E R^T = H_e Sigma^2 H_r^T: these are the weights at Delta = I, "
                                 "scale both sides by Sigma^-1/2")
        if not np.allclose(product, K, atol=tol):
            raise AssertionError(f"E R^T differs from K by {np.abs(product - K).max():.1e}")

        # E R^T = K alone accepts W_e = W_r = I, and uncrossed weights: K.15 decides.
        def solves(E, R):
            return np.allclose(K @ R, E * sigma, atol=tol * sigma[0]) \
                and np.allclose(K.T @ E, R * sigma, atol=tol * sigma[0])
        if not solves(Phi @ W_e, Psi @ W_r):
            hint = ", and those of (W_r, W_e) are: the sides cross" * solves(Phi @ W_r, Psi @ W_e)
            raise AssertionError("E R^T = K, but the scores are no multiples of the singular "
                                 f"vectors{hint}")


# %% [markdown]
# **E3.3** K.13 says $h_e = \lambda e$ column by column; a least-squares fit of one number. The
# scale $\Delta$ cancels, which is the proof by numbers that $\Lambda$ does not depend on it.
# %%
def weights_of(E, H_e):
    return np.sum(E * H_e, axis=0) / np.sum(E * E, axis=0)


def check_3_3(function):
    rng = np.random.default_rng(3)
    for Phi, Psi in matrices():
        K = Phi @ Psi.T
        H_e, sigma, H_r = dual.solve(K)
        order, Delta = rng.permutation(len(sigma)), rng.uniform(0.2, 5.0, len(sigma))
        H_e, sigma, H_r = H_e[:, order], sigma[order], H_r[:, order]
        got = function(K @ (H_r * Delta), H_e * Delta)
        shape_is(got, sigma.shape, "Lambda")
        if np.allclose(got, sigma, rtol=1e-9):
            raise AssertionError("this is Sigma; Lambda is its inverse")
        if np.allclose(np.sort(got), np.sort(1 / sigma), rtol=1e-9) \
                and not np.allclose(got, 1 / sigma, rtol=1e-9):
            raise AssertionError("the right numbers in another order than the columns of E")
        if not np.allclose(got, 1 / sigma, rtol=1e-9):
            raise AssertionError("Lambda depends on the scale Delta: it must cancel between E and "
                                 f"H_e, got {got}, want {1 / sigma}")


# %% [markdown]
# The questions. 1. $h_{e1}^\top K h_{r2}$ is $\sigma_2 h_{e1}^\top h_{e2}$ and
# $\sigma_1 h_{r1}^\top h_{r2}$; exchanging 1 and 2 gives the same with $\sigma_1$ and $\sigma_2$
# exchanged. If they differ, both products are 0. 2. $\sigma = 3$ and $h_e = -h_r$, an
# eigenvector.
# 3. Five: the rank of $K$ is at most 5, and each $\lambda$ is one over a singular value.
# %%
if __name__ == "__main__":
    def rejects(check, wrong):
        try:
            check(wrong)
        except (AssertionError, ValueError) as error:
            return str(error)
        raise SystemExit(f"{check.__name__} accepts a wrong answer")

    def uncrossed(Phi, Psi):
        return balanced_weights(Phi, Psi)[::-1]

    def unscaled(Phi, Psi):
        H_e, _, H_r = dual.solve(Phi @ Psi.T)
        return Psi.T @ H_r, Phi.T @ H_e

    def features_alone(Phi, Psi):
        return np.eye(Phi.shape[1]), np.eye(Phi.shape[1])

    for check, right, wrongs in (
            (check_3_1, mend_signs, (lambda K, H_e, H_r: H_r, lambda K, H_e, H_r: np.abs(H_r))),
            (check_3_2, balanced_weights, (uncrossed, unscaled, features_alone)),
            (check_3_3, weights_of, (lambda E, H_e: 1 / weights_of(E, H_e),
                                     lambda E, H_e: np.sort(weights_of(E, H_e)),
                                     lambda E, H_e: 1 / np.sqrt(np.sum(E * E, axis=0))))):
        check(right)
        print(f"{check.__name__}: {right.__name__} is right, {len(wrongs)} wrong ones are told:")
        for wrong in wrongs:
            print("   ", rejects(check, wrong))
