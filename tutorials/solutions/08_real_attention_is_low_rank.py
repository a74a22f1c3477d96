# %% [markdown]
# # Solutions to lesson 08, with the checks
# Each check takes your function, tries it on several matrices and says what is wrong.
# %%
import numpy as np


def matrices():
    """Square, tall and wide ones, with a known spectrum each."""
    rng = np.random.default_rng(81)
    for N, M, sigma in ((6, 6, [3.0, 2.0, 1.0, 0.5]), (8, 5, [1.0, 1.0, 1.0]), (4, 7, [5.0, 0.1])):
        U, V = (np.linalg.qr(rng.standard_normal((n, len(sigma))))[0] for n in (N, M))
        yield U * sigma @ V.T, np.array(sigma)


# %% [markdown]
# **E8.1** The squares of the singular values add up to $\|A\|_F^2$.
# %%
def components_for(A, share):
    squares = np.cumsum(np.linalg.svd(A, compute_uv=False) ** 2)
    return int(np.argmax(squares >= share * squares[-1])) + 1


def check_8_1(function):
    for A, sigma in matrices():
        for share in (0.3, 0.7, 0.9, 0.99):
            want, held = 0, 0.0
            while held < share * np.sum(sigma ** 2):
                held += sigma[want] ** 2
                want += 1
            got = function(A, share)
            if got == want - 1:
                raise AssertionError(f"{got} is the index of the last component, from 0: their "
                                     f"number is {want}")
            plain = int(np.argmax(np.cumsum(sigma) >= share * np.sum(sigma))) + 1
            if got != want and got == plain:
                raise AssertionError(f"{got} components hold {share} of the sum of sigma, not of "
                                     f"sigma^2: {want} would do")
            if got != want:
                raise AssertionError(f"sigma = {sigma}, share {share}: {want} expected, got {got}")


# %% [markdown]
# **E8.2** Symmetric and antisymmetric matrices are orthogonal in the inner product
# $\operatorname{tr}(A^\top B)$, so the projection is the symmetric part and the distance the norm
# of the other.
# %%
def nearest_symmetric(A):
    S = (A + A.T) / 2
    return S, np.linalg.norm(A - S)


def check_8_2(function):
    rng = np.random.default_rng(82)
    for N in (1, 2, 5, 9):
        A = rng.standard_normal((N, N))
        S, distance = function(A)
        if np.shape(S) != (N, N):
            raise ValueError(f"the matrix must have shape {(N, N)}, got {np.shape(S)}")
        if np.abs(S - S.T).max() > 1e-12:
            raise AssertionError("the matrix is not symmetric")
        if abs(distance - np.linalg.norm(A - S)) > 1e-12:
            raise AssertionError(f"the distance of your two matrices is "
                                 f"{np.linalg.norm(A - S):.4f}, not {distance:.4f}")
        for _ in range(50):                         # at the minimum every step leads away
            step = rng.standard_normal((N, N))
            step = 1e-3 * (step + step.T)
            if np.linalg.norm(A - S - step) < distance:
                raise AssertionError("another symmetric matrix is closer: "
                                     f"{np.linalg.norm(A - S - step):.6f} < {distance:.6f}")


# %% [markdown]
# The questions. 1. Rank 1; $A = \mathbf 1 e_1^\top$, so $\sigma_1 = \sqrt N = 8$; asymmetry
# $\sqrt{(N - 1)/(N + 1)}$, for only the first entry is symmetric. 2. The singular values stay: a
# permutation is orthogonal; the asymmetry changes, as only one side was permuted. 3. The
# exponential acts on the entries, not on the matrix: it is a sum of all entrywise powers of $S$.
# %%
if __name__ == "__main__":
    def rejects(check, wrong):
        try:
            check(wrong)
        except (AssertionError, ValueError) as error:
            return str(error)
        raise SystemExit(f"{check.__name__} accepts a wrong answer")

    def of_sigma(A, share):
        sigma = np.cumsum(np.linalg.svd(A, compute_uv=False))
        return int(np.argmax(sigma >= share * sigma[-1])) + 1

    sink = np.zeros((64, 64))
    sink[:, 0] = 1.0
    assert np.isclose(np.linalg.norm(sink - sink.T) / np.linalg.norm(sink + sink.T),
                      (63 / 65) ** 0.5) and np.isclose(np.linalg.norm(sink, 2), 8)
    for check, right, wrongs in (
            (check_8_1, components_for, (lambda A, share: components_for(A, share) - 1, of_sigma,
                                         lambda A, share: np.linalg.matrix_rank(A))),
            (check_8_2, nearest_symmetric, (lambda A: (np.tril(A) + np.tril(A, -1).T,
                                                       np.linalg.norm(A - A.T) / 2),
                                            lambda A: ((A + A.T) / 2, np.linalg.norm(A - A.T)),
                                            lambda A: (A @ A.T, np.linalg.norm(A - A @ A.T))))):
        check(right)
        print(f"{check.__name__}: {right.__name__} is right, {len(wrongs)} wrong ones are told:")
        for wrong in wrongs:
            print("   ", rejects(check, wrong))
