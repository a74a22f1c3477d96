"""Wrong solvers and helpers, and which equations notice: before all that follows is computed.

Each is a list of (module, function, wrong): `wrong(right, *arguments)` stands in for the function
while `solution` and the residuals run. The problem has N = 9, M = 7, p = 10 and rank 4; three
components are asked for. Then come the tags of all residuals that notice, | before consequences.
"""
import numpy as np

from ksvd_ref import dual, features, primal, solution

rng = np.random.default_rng(4)
PSI = rng.standard_normal((7, 4)) @ rng.standard_normal((4, 10))
PHI = rng.standard_normal((9, 10))
HERE, PCA, TURNED = (9, 7), (9, 9), (7, 9)          # shapes of K where the primal is solved
Q = np.eye(4) - 2.0 * np.outer([1, 2, 3, 0], [1, 2, 3, 0]) / 14
NEW = np.random.default_rng(0).standard_normal((3, 10))     # the new rows that `solution` draws


def of_dual(change):
    """All components found and then changed."""
    def wrong(right, K, rank):
        return dual.Dual(*change(*right(K, rank)))
    return dual, "solve", wrong


def of_primal(change, *calls):
    """All components found, changed in these calls, and then cut."""
    def wrong(right, Phi, Psi, rank=None):
        found, (N, p), M = right(Phi, Psi, rank), Phi.shape, Psi.shape[0]
        if (N, M) not in (calls or (HERE, TURNED)):
            return found
        W_e, sigma, W_r = change(*right(Phi, Psi, min(N, M, p)))
        k = found.sigma.shape[0]
        return primal.Primal(W_e[:, :k], sigma[:k], W_r[:, :k])
    return primal, "solve", wrong


def of_objective(change):
    return primal, "objective", lambda right, *at: change(right(*at), *at)


def of_gradient(change):
    return primal, "gradient", lambda right, *at: change(*right(*at), *at)


def result(module, name, change):
    return module, name, lambda right, *args, **options: change(right(*args, **options))


def column(n, factor):
    """Factors of seven columns, 1 but for one."""
    return np.where(np.arange(7) == n, factor, 1.0)


def turned(H):
    """The three components that are kept in another basis."""
    return np.hstack([H[:, :4] @ Q, H[:, 4:]])


def reverse(left, sigma, right):
    """The four nonzero components, smallest first."""
    order = [3, 2, 1, 0, 4, 5, 6]
    return left[:, order], sigma[order], right[:, order]


def without_second(left, sigma, right):
    return (np.delete(A, 1, axis=-1) for A in (left, sigma, right))


def unseen(A):
    """(p, 1): a sum of vectors that the rows of A send to zero."""
    rank = np.linalg.matrix_rank(A)
    return 0.1 * np.sum(np.linalg.svd(A)[2][rank:], axis=0)[:, None]


def swapped_entries(W):
    """The third column upside down: as large as before, beside others that are right."""
    return np.hstack([W[:, :2], W[::-1, 2:3], W[:, 3:]])


def orthogonal(W):
    """Something of the shape of W, orthogonal to W."""
    X = np.cos(np.arange(1.0, W.size + 1)).reshape(W.shape)
    return X - W * np.sum(X * W) / np.sum(W * W)


def K_as(change):
    return solution, "_of_norm_1", lambda right, *pair: (
        lambda Phi, Psi, K, norms: (Phi, Psi, change(K), norms))(*right(*pair))


SMALLEST_FIRST = [of_dual(reverse), of_primal(reverse)]
DROPPED = [of_dual(without_second), of_primal(without_second)]
MUTANTS = {
    "both smallest first": (
        SMALLEST_FIRST,
        "V41 | V10"),
    "both without the second": (
        DROPPED,
        "EY V11 V15 V41 | V10"),
    "dual: without the second": (
        DROPPED[:1],
        "K.12 K.14 K.17 K.20 K.23 K.39 EY V4 V8 V11 V14 V15 V16 V17 V41 | K.10 K.11 K.18 K.22 "
        "V3 V6 V10"),
    "dual: H doubled": (
        [of_dual(lambda U, s, V: (2 * U, s, 2 * V))],
        "K.7 K.12 K.14 K.20 K.23 EY | K.10 K.11 V6 V10 V12"),
    "dual: H_e doubled, H_r halved": (
        [of_dual(lambda U, s, V: (2 * U, s, V / 2))],
        "K.7 K.12 K.14 K.15 K.20 V11 | K.10 K.11 K.13 K.16 K.19 K.21 K.35 V6 V12 V13"),
    "dual: one side's sign": (
        [of_dual(lambda U, s, V: (-U, s, V))],
        "K.7 K.12 K.14 K.15 K.20 K.23 EY V11 | K.11 K.13 K.16 K.19 K.21 K.35 V10 V12 V13"),
    "dual: sign of one column": (
        [of_dual(lambda U, s, V: (U, s, V * column(1, -1)))],
        "K.7 K.12 K.14 K.15 K.20 K.23 EY V11 | K.11 K.13 K.16 K.19 K.21 K.35 V10 V12 V13"),
    "dual: H turned": (
        [of_dual(lambda U, s, V: (turned(U), s, turned(V)))],
        "K.7 K.12 K.14 K.15 K.20 EY V11 V15 | K.10 K.11 K.13 K.16 K.21 K.35 V6 V12 V13"),
    "dual: sigma": (
        [of_dual(lambda U, s, V: (U, 1.1 * s, V))],
        "K.7 K.15 K.17 K.39 EY V4 V8 V11 V14 V15 V17 V41 | K.11 K.13 K.16 K.18 K.19 K.21 K.22 "
        "K.35 V3 V10 V12 V13"),
    "dual: a negative sigma": (
        [of_dual(lambda U, s, V: (U * column(2, -1), s * column(2, -1), V))],
        "K.7 K.12 K.14 K.17 K.20 K.23 K.39 V4 V11 V14 V15 V16 V17 V41 | K.18 K.22 V3 V10"),
    "dual: sigma beyond the rank asked": (
        [of_dual(lambda U, s, V: (U, s * column(3, 1.1), V))],
        "K.39 EY V11"),
    "K: 1.1 times": (
        [K_as(lambda K: 1.1 * K)],
        "K.14 K.17 K.23 K.39 V4 V8 V14 V17 | K.10 K.11 K.18 K.22 K.35 V3 V6"),
    "K: more than p features": (
        [K_as(lambda K: K + 1e-3 * np.eye(9, 7))],
        "K.12 K.14 K.17 K.20 K.23 K.39 V4 V8 V14 V16 V17 | K.10 K.11 K.18 K.22 K.35 V3 V6"),
    "primal: one side's sign": (
        [of_primal(lambda U, s, V: (-U, s, V))],
        "K.12 K.14 K.17 K.20 K.23 V4 V14 V17 | K.18 K.22 V3"),
    "primal: W_e and W_r exchanged": (
        [of_primal(lambda U, s, V: (V, s, U))],
        "K.12 K.14 K.17 K.20 V4 V8 V17 | K.10 K.11 K.18 K.22 V3 V6"),
    "primal: W doubled": (
        [of_primal(lambda U, s, V: (2 * U, s, 2 * V))],
        "K.12 K.14 K.20 K.23 V4 V8 V14 | K.10 K.11 V6"),
    "primal: W_e doubled, W_r halved": (
        [of_primal(lambda U, s, V: (2 * U, s, V / 2))],
        "K.12 K.14 K.17 K.20 V4 V8 V17 | K.10 K.11 K.18 K.22 V3 V6"),
    "primal: W_r doubled": (
        [of_primal(lambda U, s, V: (U, s, 2 * V), HERE)],
        "K.12 K.14 K.17 K.20 K.23 V4 V14 | K.10 K.18 K.22 V3 V6"),
    "primal: W turned": (
        [of_primal(lambda U, s, V: (turned(U), s, turned(V)))],
        "K.12 K.14 K.17 K.20 V8 V14 V17 | K.10 K.11 K.18 K.22 V3 V6"),
    "primal: a null vector of Phi": (
        [of_primal(lambda U, s, V: (U + unseen(PHI), s, V), HERE)],
        "K.12 K.17 K.20 | K.18 V3"),
    "primal: null vectors on both sides": (
        [of_primal(lambda U, s, V: (U + unseen(PHI), s, V + unseen(PSI)), HERE)],
        "K.12 K.17 K.20 K.23 V4 V14 | K.11 K.18 K.22 V3"),
    "primal: what the new rows do not see": (
        [of_primal(lambda U, s, V: (U + unseen(NEW), s, V), HERE)],
        "K.12 K.14 K.17 K.23 V4 V8 V14 | K.10 K.18 K.22 V3 V6"),
    "primal: one wrong column": (
        [of_primal(lambda U, s, V: (swapped_entries(U), s, V), HERE)],
        "K.12 K.14 K.17 K.20 K.23 V4 V8 V14 | K.10 K.18 K.22 V3 V6"),
    "primal: sigma": (
        [of_primal(lambda U, s, V: (U, 1.1 * s, V), HERE)],
        "K.39"),
    "primal: sigma beyond the rank": (
        [of_primal(lambda U, s, V: (U, s + 0.1 * (column(4, 2) - 1), V), HERE)],
        "V16"),
    "kernel PCA: sigma": (
        [of_primal(lambda U, s, V: (U, 1.1 * s, V), PCA)],
        "K.34"),
    "kernel PCA: w_r": (
        [of_primal(lambda U, s, V: (U, s, 1.1 * V), PCA)],
        "V18"),
    "transposed: W_e and W_r exchanged": (
        [of_primal(lambda U, s, V: (V, s, U), TURNED)],
        "V17"),
    "J times 7": (
        [of_objective(lambda J, *_: 7 * J)],
        "V1 V2 V4 V8 V18 V42 | V6"),
    "J plus 1": (
        [of_objective(lambda J, *_: J + 1)],
        "V2 V4 V8 V18 V42 | K.10 K.22 V3"),
    "J and its gradient times 7": (
        [of_objective(lambda J, *_: 7 * J), of_gradient(lambda a, b, *_: (7 * a, 7 * b))],
        "V4 V8 V18 V42 V43 | V6"),
    "J of a square K": (
        [of_objective(lambda J, W_e, W_r, Lambda, Phi, Psi:
                      J + (len(Phi) == len(Psi)) * np.sum(W_e * W_r))],
        "V18"),
    "J of another K": (
        [of_objective(lambda J, W_e, W_r, Lambda, Phi, Psi:
                      J + (len(Phi) != len(Psi)) * np.sum((Psi @ W_r) ** 2))],
        "V1 V2 V4 V42 | K.10 K.22 V3"),
    "J that mixes components": (
        [of_objective(lambda J, W_e, W_r, *_: J + np.sum(W_e * W_r) - np.sum(W_e.T @ W_r))],
        "V1 V2 V18 V42"),
    "gradient: sign": (
        [of_gradient(lambda a, b, *_: (-a, -b))],
        "V1 V2 V43"),
    "gradient: a part orthogonal to W": (
        [of_gradient(lambda a, b, W_e, W_r, *_: (a + orthogonal(W_e), b + orthogonal(W_r)))],
        "V1 V43 | K.18 V3"),
    "gradient: one column": (
        [of_gradient(lambda a, b, *_: (a * ([1] * (a.shape[1] - 1) + [1.1]), b))],
        "V1 V2 V43"),
    "e_scores of the primal": (
        [result(primal, "e_scores", lambda e: 1.1 * e)],
        "K.20"),
    "compatible maps": (
        [result(features, "compatible", lambda pair: (1.1 * pair[0], pair[1]))],
        "K.33"),
    "shifted matrix": (
        [result(dual, "shifted_matrix", lambda S: 1.1 * S)],
        "V11 | K.16"),
    "Lambda = Sigma": (
        [result(solution, "solution", lambda s: s._replace(Lambda=s.sigma))],
        "K.17 V8 V15 V17 | K.11 K.13 K.18 K.22 V3"),
    "rank: one less": (
        [result(solution, "numerical_rank", lambda r: r - 1)],
        "V11 V15 V16"),
    "rank: one more": (
        [result(solution, "numerical_rank", lambda r: r + 1)],
        "V16"),
}


def plant(monkeypatch, changes):
    """Put the wrong functions in place of the right ones."""
    for module, name, wrong in changes:
        right = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *args, right=right, wrong=wrong, **options:
                            wrong(right, *args, **options))
