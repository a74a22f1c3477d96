# %% [markdown]
# # Solutions to lesson 10, with the checks
# Each check takes your function, tries it on several matrices and says what is wrong.
# %%
import numpy as np

from ksvd_ref import dual
from ksvd_ref.course import exercises
from ksvd_ref.course.exercises import numbers, parts


def matrices():
    """Square, tall and wide ones, with a known spectrum each."""
    rng = np.random.default_rng(81)
    for N, M, sigma in ((6, 6, [3.0, 2.0, 1.0, 0.5]), (8, 5, [1.0, 1.0, 1.0]), (4, 7, [5.0, 0.1])):
        U, V = (np.linalg.qr(rng.standard_normal((n, len(sigma))))[0] for n in (N, M))
        yield U * sigma @ V.T, np.array(sigma)


# %% [markdown]
# **E10.1** The squares of the singular values add up to $\|A\|_F^2$.
# %%
def components_for(A, share):
    squares = np.cumsum(np.linalg.svd(A, compute_uv=False) ** 2)
    return int(np.argmax(squares >= share * squares[-1])) + 1


def of_sigma(A, share):
    """The sum of sigma in place of that of sigma^2."""
    sigma = np.cumsum(np.linalg.svd(A, compute_uv=False))
    return int(np.argmax(sigma >= share * sigma[-1])) + 1


def of_norm(A, share):
    """The share of the norm in place of that of its square."""
    norms = np.sqrt(np.cumsum(np.linalg.svd(A, compute_uv=False) ** 2))
    return int(np.argmax(norms >= share * norms[-1])) + 1


def more_than(A, share):
    """The components that hold more than the share."""
    squares = np.cumsum(np.linalg.svd(A, compute_uv=False) ** 2)
    return int(np.argmax(squares > share * squares[-1])) + 1


def check_10_1(function):
    cases = [(A, sigma, share) for A, sigma in matrices() for share in (0.3, 0.7, 0.9, 0.99)]
    cases += [(np.eye(4, M), np.ones(4), share) for M in (4, 6) for share in (0.25, 0.5, 0.75)]
    got, want, shares, ranks = [], [], [], []
    for A, sigma, share in cases:
        n, held = 0, 0.0
        while held < share * np.sum(sigma ** 2):                # component by component
            held += sigma[n] ** 2
            n += 1
        want.append(n)
        shares.append(held / np.sum(sigma ** 2))
        ranks.append(len(sigma))
        got.append(float(numbers(function(A.copy(), share), (), "the number of components")))
    if got == want:
        return
    n = int(np.argmax(np.not_equal(got, want)))
    told = f"sigma = {cases[n][1]}, share {cases[n][2]}: {want[n]} expected, got {got[n]:g}"
    of = lambda other: [other(A, share) for A, _, share in cases]
    for other, reason in (                          # a reason must explain every case
            (np.subtract(want, 1), "the index of the last component counts from 0"),
            (of(of_sigma), "that is for the sum of sigma, not of sigma^2"),
            (of(of_norm), "that is for the norm, not for its square, the sum of sigma^2"),
            (of(more_than), "a share that is held exactly is held"),
            (np.add(want, 1), "one fewer is enough"), (ranks, "that is the rank"),
            (shares, "that is the share that is held")):
        if np.allclose(got, other):
            told += f": {reason}"
            break
    raise AssertionError(told)


# %% [markdown]
# **E10.2** Symmetric and antisymmetric matrices are orthogonal in the inner product
# $\mathrm{tr}(A^\top B)$, so the projection is the symmetric part and the distance the norm of the
# other.
# %%
def nearest_symmetric(A):
    S = (A + A.T) / 2
    return S, np.linalg.norm(A - S)


def check_10_2(function):
    rng = np.random.default_rng(82)
    for N in (5, 1, 2, 9):
        A = rng.standard_normal((N, N))
        S, distance = parts(function(A.copy()), ("the matrix", "the distance"))
        S, distance = numbers(S, (N, N), "the matrix"), float(numbers(distance, (), "the distance"))
        if np.abs(S - S.T).max() > 1e-12:
            raise AssertionError("the matrix is not symmetric: it differs from its transpose by "
                                 f"{np.abs(S - S.T).max():.2g}")
        true = np.linalg.norm(A - S)
        if abs(distance - true) > 1e-12 * (1 + true):
            for other, reason in ((2 * true, "twice the distance: the norm of A - A^T, not of its "
                                   "half"), (true ** 2, "the square of the distance")):
                if np.isclose(distance, other):
                    raise AssertionError(f"{distance:.4f} is {reason}, which is {true:.4f}")
            raise AssertionError("the distance of A and your matrix in the Frobenius norm is "
                                 f"{true:.4f}, not {distance:.4f}")
        for _ in range(50):                         # at the minimum every step leads away
            step = rng.standard_normal((N, N))
            step = 1e-3 * (step + step.T)
            if np.linalg.norm(A - S - step) < distance:
                raise AssertionError("another symmetric matrix is closer: "
                                     f"{np.linalg.norm(A - S - step):.6f} < {distance:.6f}")


# %% [markdown]
# **E10.3** The pair $(h_e, h_r)$ has *one* sign. If each side takes the sign of its own largest
# entry, then in about half of all cases the rows that ask are shown beside the columns they avoid.
# %%
def ask_and_asked(A, l, n):
    U, _, Vt = np.linalg.svd(A)
    h_e, h_r = U[:, l], Vt[l]
    sign = np.sign(h_e[np.argmax(np.abs(h_e))])
    return np.argsort(-sign * h_e)[:n], np.argsort(-sign * h_r)[:n]


def each_its_own(A, l, n):
    """Each side flipped by its own largest entry."""
    U, _, Vt = np.linalg.svd(A)
    return tuple(np.argsort(-np.sign(h[np.argmax(np.abs(h))]) * h)[:n] for h in (U[:, l], Vt[l]))


def check_10_3(function):
    rng = np.random.default_rng(83)
    for N, M in ((9, 7), (6, 10), (8, 8)):
        A = rng.standard_normal((N, M))
        H_e, _, H_r = dual.solve(A)                             # the largest |h_e| is positive
        for l in (0, 1, 3):
            sides = ("the rows that ask", H_e), ("the columns that are asked", H_r)
            got = parts(function(A.copy(), l, 4), [name for name, _ in sides])
            got = [numbers(part, (4,), name) for part, (name, _) in zip(got, sides)]
            orders = [np.argsort(-H[:, l]) for _, H in sides]
            for part, (name, H), order, other in zip(got, sides, orders, orders[::-1]):
                h = H[:, l]
                if np.array_equal(part, order[:4]):
                    continue
                for wrong, reason in (
                        (order[::-1][:4], "come from the other end: " + (
                            "the sign is that of h_e for both sides"
                            if H is H_r else "the largest |h_e| must be positive")),
                        (order[:4][::-1], "come weakest first"),
                        (np.argsort(-np.abs(h))[:4], "are sorted by size without the sign: some "
                         "of them ask, or are asked, least"),
                        (other[:4], "are those of the other side"),
                        (order[:4] + 1, "are counted from 1"),
                        (np.argsort(-H[:, l + 1])[:4], f"are those of component {l + 1}"),
                        (h[order[:4]], "are entries of the vector, not indices")):
                    if np.allclose(part, wrong):
                        raise AssertionError(f"component {l}: {name} {reason}")
                raise AssertionError(f"component {l}: {name} are {order[:4]}, got {part}")


# %% [markdown]
# The questions. 1. Rank 1; $A = \mathbf 1 e_1^\top$, so $\sigma_1 = \sqrt N = 8$; asymmetry
# $\sqrt{(N - 1)/(N + 1)}$, for only the first entry is symmetric. 2. The singular values stay: a
# permutation is orthogonal; the asymmetry changes, as only one side was permuted. 3. The
# exponential acts on the entries, not on the matrix: it is a sum of all entrywise powers of $S$,
# each over $k!$, and their ranks grow with $k$.
# %%
sink = np.eye(64)[[0] * 64]                                     # the first question, in numbers
assert np.linalg.matrix_rank(sink) == 1 and np.isclose(np.linalg.norm(sink, 2), 8)
assert np.isclose(np.linalg.norm(sink - sink.T) / np.linalg.norm(sink + sink.T), (63 / 65) ** 0.5)
# %%
ANSWERS = {                 # the solution, then wrong answers that the check must refuse
    "10.1": (components_for,
             lambda A, share: components_for(A, share) - 1,
             of_sigma, of_norm, more_than,
             lambda A, share: max(1, int(share * min(A.shape))),
             lambda A, share: np.linalg.matrix_rank(A)),
    "10.2": (nearest_symmetric,
             lambda A: (np.tril(A) + np.tril(A, -1).T, np.linalg.norm(A - A.T) / 2),
             lambda A: ((A + A.T) / 2, np.linalg.norm(A - A.T)),
             lambda A: (A @ A.T, np.linalg.norm(A - A @ A.T)),
             lambda A: ((A - A.T) / 2, np.linalg.norm(A + A.T) / 2)),
    "10.3": (ask_and_asked,
             each_its_own,
             lambda A, l, n: ask_and_asked(A, l, n)[::-1],
             lambda A, l, n: tuple(np.argsort(-np.abs(H[:, l]))[:n] for H in dual.solve(A)[::2]),
             lambda A, l, n: tuple(np.argsort(H[:, l])[-n:] for H in dual.solve(A)[::2]),
             lambda A, l, n: tuple(side + 1 for side in ask_and_asked(A, l, n))),
}
if __name__ == "__main__":
    exercises.demonstrate(globals())
