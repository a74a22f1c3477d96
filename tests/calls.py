"""One call of each public function: for purity, dtype, device, refusals, help and the GPU check.

A call is the function, its arrays by argument (a tuple stands for a solution), its other arguments,
and what its result determines: of a decomposition sigma, projectors and product, never the vectors.
"""
import importlib
import inspect
from typing import Any, NamedTuple

import numpy as np

from ksvd_ref import attention, dual, features, kernels, large, linalg, nystrom, primal
from ksvd_ref.attention import filters, positions, smoother
from ksvd_ref.course import index

BARE = {                        # public modules without @arrays, and why
    "backend": "decides which library it is", "inputs": "is the decorator",
    "linalg": "below the decorator: the public function that calls has looked",
    "triangles": "the same",
    "solution": "what it is given goes through dual and primal", "equations": "the same",
}
OTHERS = {                      # public functions without a call, and why
    "large.solve_chunks": "takes an iterable; each block goes through large.factor",
    "nystrom.landmarks": "takes no array",
    **dict.fromkeys(("attention.filters.causal", "attention.filters.memory",
                     "attention.filters.window", "attention.filters.strided",
                     "attention.positions.sinusoids", "attention.positions.alibi",
                     "attention.layer.published_init"),
                    "takes no array: made on the host"),
    **dict.fromkeys(("attention.filters.pairs", "attention.filters.taking_part",
                     "attention.filters.steps", "attention.filters.shown",
                     "attention.filters.visible"), "inside the smoother and the layer"),
}


def public():
    """Names of the public functions of the derivation and of attention."""
    for module in index.MODULES:
        if module.split(".")[0] not in ("course", "command", *BARE):
            home = importlib.import_module(f"ksvd_ref.{module}")
            for name, f in vars(home).items():
                if inspect.isfunction(f) and f.__module__ == home.__name__ and name[0] != "_":
                    yield f"{module}.{name}"


OPEN = {                        # public functions without @arrays, and why
    **dict.fromkeys(("attention.positions.absolute", "attention.positions.relative",
                     "attention.positions.rel_shift", "attention.smoother.split_heads",
                     "attention.smoother.merge_heads"),
                    "let the NaN of padding through: what is visible the smoother knows"),
}


class Call(NamedTuple):
    """A public function and how to call it."""

    function: Any
    arrays: dict
    others: dict = {}
    determined: Any = None          # of the result and the arrays; the result itself unless told

    def moved(self, move):
        """The arrays, each of them moved, parts of tuples too."""
        return {name: type(A)(map(move, A)) if type(A) is tuple else
                type(A)(*map(move, A)) if isinstance(A, tuple) else move(A)
                for name, A in self.arrays.items()}

    def run(self, move=lambda A: A):
        """Arrays of the result, the arguments moved first."""
        arrays = self.moved(move)
        found = self.function(**arrays, **self.others)
        return flat(self.determined(found, **arrays) if self.determined else found)


def flat(found):
    """The arrays in a result, in order; counts and None left out."""
    parts = [A for part in found for A in flat(part)] if isinstance(found, tuple) else [found]
    return [A for A in parts if hasattr(A, "shape")]


def spectrum(rng, N, M, sigma):
    U, V = (np.linalg.qr(rng.standard_normal((n, len(sigma))))[0] for n in (N, M))
    return U * np.asarray(sigma) @ V.T


def of_dual(found, **arrays):
    H_e, sigma, H_r = found
    return sigma, H_e @ H_e.T, H_r @ H_r.T, H_e * sigma @ H_r.T


def of_primal(found, Phi, Psi):
    E, R = Phi @ found[0], Psi @ found[2]
    return found[1], E @ E.T, R @ R.T, E @ R.T, found[0].T @ found[2]


def of_factor(found, **arrays):
    return found.T_phi.T @ found.T_phi, found.T_psi.T @ found.T_psi


def of_nystrom(found, **arrays):
    return found.sigma, found.H_e * found.sigma @ found.H_r.T


def table(n=16):
    """Name to Call, for every public function that takes arrays; n sets the size, 16 or more."""
    rng = np.random.default_rng(0)
    X, Z = rng.standard_normal((n, 4)) / 3, rng.standard_normal((n // 2, 4)) / 3
    decay = 0.7 ** np.arange(n // 4)
    K, square = spectrum(rng, n, n // 2, 0.7 ** np.arange(n // 2)), rng.standard_normal((4, 4))
    Phi, Psi = spectrum(rng, n, n // 4, decay), spectrum(rng, n // 2, n // 4, decay[::-1] + 1.0)
    one, two = dual.solve(Phi @ Psi.T, 3), primal.solve(Phi, Psi, 3)
    W = rng.standard_normal((2, n // 4, 3))
    point = {"W_e": W[0], "W_r": W[1], "Lambda": decay[:3], "Phi": Phi, "Psi": Psi}
    low = spectrum(rng, n, n // 2, [3.0, 2.0, 1.0])
    corner = {"K_rows": low[:, [0, 3, 5]], "K_landmarks": low[[1, 5, 8, 9], :][:, [0, 3, 5]],
              "K_cols": low[[1, 5, 8, 9], :]}
    pair, data, factor = {"Phi": Phi, "Psi": Psi}, {"X": X, "Z": Z}, large.factor(Phi, Psi)
    product = lambda found, **arrays: found[0] @ found[1].T
    Q, keys, V = rng.standard_normal((3, 2, n // 4, 8))                     # of two heads
    heads = {"Q": Q, "K": keys}
    weights = attention.PrimalWeights(*(rng.standard_normal(shape) for shape in (
        (2, 8, 3), (2, 8, 3), (2, 3), (6, 8), (8,))))
    output, scores = attention.primal_attention(Q, keys, weights)
    of_loss = {"scores": scores, "weights": weights}
    return {
        **{f"kernels.{name}": Call(getattr(kernels, name), data) for name in
           ("linear", "polynomial", "rbf", "exponential", "cosine", "softmax", "sne")},
        "kernels.gram": Call(kernels.gram, {"X": X[:5], "Z": Z[:4]},
                             {"kernel": lambda x, z: x[0] * z[1] - z[0]}),
        "kernels.center": Call(kernels.center, {"K": K}),
        "kernels.center_rows": Call(kernels.center_rows, {"K_new": K[:3], "K": K}),
        "kernels.center_columns": Call(kernels.center_columns, {"K_new": K[:, :3], "K": K}),
        "features.compatible": Call(features.compatible, {"A": K}, {}, product),
        "features.compatible with C": Call(features.compatible, {"A": K, "C": K.T}, {}, product),
        "features.cosine": Call(features.cosine, {"Q": X, "K": Z}),
        "features.polynomial": Call(features.polynomial, data, {}, product),
        "features.positive_random": Call(features.positive_random, {"Q": X, "K": Z},
                                         {"m": 8, "seed": 0}),
        "features.data_dependent": Call(features.data_dependent, {**pair, "F": Phi[:3]}),
        "dual.solve": Call(dual.solve, {"K": K}, {"rank": 3}, of_dual),
        "dual.solve_shifted": Call(dual.solve_shifted, {"K": K}, {"rank": 3}, of_dual),
        "dual.shifted_matrix": Call(dual.shifted_matrix, {"K": K}),
        "dual.e_scores": Call(dual.e_scores, {"K_new": low[:3], "dual": one}),
        "dual.r_scores": Call(dual.r_scores, {"K_new": low[:, :3], "dual": one}),
        "primal.solve": Call(primal.solve, pair, {"rank": 3}, of_primal),
        "primal.objective": Call(primal.objective, point),
        "primal.gradient": Call(primal.gradient, point),
        "primal.stationarity": Call(primal.stationarity, point),
        **{f"primal.{name}": Call(getattr(primal, name), {"A": W[0], "B": W[1], **pair})
           for name in ("approximation_loss", "approximation_gradient", "missed_share")},
        "primal.from_factors": Call(primal.from_factors, {"A": W[0], "B": W[1], **pair}, {},
                                    lambda found, A, B, Phi, Psi: of_primal(found, Phi, Psi)),
        "primal.from_dual": Call(primal.from_dual, {"dual": one, **pair}),
        "primal.to_dual": Call(primal.to_dual, {"primal": two, **pair}),
        "primal.e_scores": Call(primal.e_scores, {"Phi_new": Phi, "primal": two}),
        "primal.r_scores": Call(primal.r_scores, {"Psi_new": Psi, "primal": two}),
        "large.golub_kahan": Call(large.golub_kahan, {"K": K}, {"rank": 3}, of_dual),
        "large.factor": Call(large.factor, pair, {}, of_factor),
        "large.merge": Call(large.merge, {"one": factor, "other": factor}, {}, of_factor),
        "large.solve_factor": Call(large.solve_factor, {"factor": factor}, {"rank": 3},
                                   lambda found, factor: (found[1], found[0] @ found[2].T)),
        "nystrom.pivots": Call(nystrom.pivots, {"K_rows": K}, {"n": 3},
                               lambda found, K_rows: K_rows[found[0], :]),
        "nystrom.approximate": Call(nystrom.approximate, corner),
        "nystrom.solve": Call(nystrom.solve, corner, {"N": n, "M": n // 2}, of_nystrom),
        "nystrom.solve_features": Call(nystrom.solve_features, {"Phi": X, "Psi": Z}, {
            "rows": [0, 2, 5], "columns": [1, 4, 7], "rank": 3}, of_nystrom),
        "attention.smoother.attention": Call(smoother.attention, {**heads, "V": V},
                                             {"mask": filters.causal(n // 4)}),
        "attention.smoother.weights": Call(smoother.weights, heads, {"kernel": "rbf"}),
        "attention.smoother.linear_attention": Call(smoother.linear_attention, {**heads, "V": V}),
        "attention.smoother.multi_head": Call(smoother.multi_head, {**heads, "V": V}, {"heads": 2}),
        "attention.smoother.split_heads": Call(smoother.split_heads, {"X": Q}, {"heads": 2}),
        "attention.smoother.merge_heads": Call(smoother.merge_heads, {"X": Q}),
        "attention.positions.absolute": Call(positions.absolute, {"t_q": Q[0], "t_k": keys[0]}),
        "attention.positions.relative": Call(positions.relative, {
            "Q": Q, "R": rng.standard_normal((2 * (n // 4) - 1, 8))}),
        "attention.positions.rel_shift": Call(positions.rel_shift, {
            "raw": rng.standard_normal((2, n // 4, 2 * (n // 4) - 1))}),
        "attention.positions.offset_table": Call(positions.offset_table, {"table": V[0, :1]},
                                                 {"N": n // 4, "M": n // 4}),
        "attention.positions.turned": Call(positions.turned, {"C": Q[0]}),
        "attention.positions.rotary": Call(positions.rotary, {"X": Q}),
        "attention.positions.bucketed": Call(positions.bucketed, {"table": V[:, 0, :]},
                                             {"N": n // 4, "M": n // 4, "far": 4}),
        "attention.layer.primal_attention": Call(attention.primal_attention,
                                                 {**heads, "weights": weights}),
        "attention.gradients.primal_attention_vjp": Call(attention.primal_attention_vjp, {
            "g_output": output, "g_scores": scores, "scores": scores, **heads,
            "weights": weights}),
        "attention.layer.running_mean": Call(attention.running_mean, {"X": Q}),
        "attention.layer.even_rows": Call(attention.even_rows, {"X": Q}, {"n": 3}),
        "attention.gradients.even_rows_vjp": Call(attention.even_rows_vjp, {"g": Q}, {"N": n}),
        "attention.losses.paper_loss": Call(attention.paper_loss, of_loss),
        "attention.losses.published_loss": Call(attention.published_loss, of_loss),
        "attention.losses.approximation_loss": Call(attention.approximation_loss, {
            "scores": scores, **heads}),
        "attention.gradients.approximation_loss_vjp": Call(attention.approximation_loss_vjp, {
            "g": V[:, 0, 0], "scores": scores, **heads}),
        "attention.gradients.paper_loss_vjp": Call(attention.paper_loss_vjp, {
            "g": V[:, 0, 0], **of_loss}),
        "attention.gradients.published_loss_vjp": Call(attention.published_loss_vjp, {
            "g": np.asarray(V[0, 0, 0]), **of_loss}),
        "attention.losses.paper_lambda": Call(attention.paper_lambda,
                                              {"Lambda": weights.Lambda}, {"N": 8}),
        "attention.losses.mean_of_squares": Call(attention.mean_of_squares, {"J": Q[0, 0]}),
        "attention.losses.square_of_mean": Call(attention.square_of_mean, {"J": Q[0, 0]}),
        # Below the decorator: what the public functions are made of.
        "linalg.svd": Call(linalg.svd, {"K": K}, {}, of_dual),
        "linalg.eigh": Call(linalg.eigh, {"S": square @ square.T}, {}, lambda found, S: found[0]),
        "linalg.reciprocal": Call(linalg.reciprocal, {"x": decay}, {"noise": 0.1}),
        "linalg.signs": Call(linalg.signs, {"H": K}),
        "linalg.peaks": Call(linalg.peaks, {"H": K}),
        "linalg.softmax": Call(linalg.softmax, {"logits": K}),
        "linalg.squared_distances": Call(linalg.squared_distances, data),
        "linalg.unit_rows": Call(linalg.unit_rows, {"X": X}),
    }
