"""The runs of lesson 12: speakers of Japanese vowels, by three models that differ in attention.

``python tutorials/vowels.py primal 0 40`` trains one arm with one seed for 40 epochs and prints the
row of the table. ``python tutorials/vowels.py table 40`` makes the table of the two losses, with
s = 4, from three seeds: some ten minutes.

A series is at most 26 steps long, the longest one trained on, as in the published loader. The model
is that of Chen et al., NeurIPS 2023, in small: d = 64, 4 heads, two blocks, the final steps laid
out flat before the classifier. Padded steps take no part anywhere, which differs from the published
code.
"""
import csv
import datetime
import itertools
import platform
import sys
import time
import warnings
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import autograd.numpy as anp
import numpy as np

from ksvd_ref import attention, dual
from ksvd_ref.attention import smoother
from ksvd_ref.course import datasets, training, transformer
from ksvd_ref.course.transformer import project
from ksvd_ref.primal import from_factors, missed_share

STEPS, D, HEADS, HIDDEN, S, BATCH = 26, 64, 4, 128, 20, 16
ROWS = min(STEPS, 5 * S)                            # n = min(N, s rank_multi): all 26 steps
SCORES = np.repeat(np.float32([1.0, 0.0]), S)[:, None]                  # keeps e, drops r


class Arm(NamedTuple):
    """What one arm differs in."""

    primal: Any                     # is this block's attention primal?
    eta: float = 0.0                # weight of the KSVD loss
    e_only: bool = False
    s: int = S
    loss: str = "J^2"               # or "K.41", the share of the kernels that the scores miss


ARMS = {
    "primal": Arm((True, True), 0.5),
    "primal+": Arm((False, True), 0.2),
    "transformer": Arm((False, False)),
    "primal, eta 0": Arm((True, True), 0.0),
    "primal, eta 10": Arm((True, True), 10.0),
    "primal, e only": Arm((True, True), 0.5, e_only=True),
}
MAIN = list(ARMS)[:3]


GRID = (0.1, 0.3, 1.0)              # of eta for K.41: the best on a third of the training series


def small(loss, eta):
    """An arm of the table of the two losses: at s = 20 > p = 16 every span holds everything."""
    return Arm((True, True), eta, s=4, loss=loss)


def series():
    """Training and test set: (X, mask, y), scaled by mean and deviation of the training steps."""
    data = datasets.japanese_vowels()
    mask_train, mask = (np.arange(STEPS) < np.minimum(length, STEPS)[:, None]
                        for length in (data.length_train, data.length_test))
    X_train, X = data.X_train[:, :STEPS], data.X_test[:, :STEPS]
    mean, deviation = X_train[mask_train].mean(axis=0), X_train[mask_train].std(axis=0)
    return [((np.where(m[:, :, None], (A - mean) / deviation, 0.0)).astype("float32"), m, y)
            for A, m, y in ((X_train, mask_train, data.y_train), (X, mask, data.y_test))]


def init(arm, seed):
    rng = np.random.default_rng(seed)
    normal = lambda *shape: (rng.standard_normal(shape) / shape[0] ** 0.5).astype("float32")
    blocks = []
    for primal in arm.primal:
        names = ("W_q", "W_k", "W_o") if primal else ("W_q", "W_k", "W_v", "W_o")
        block = transformer.init_block(rng, D, HIDDEN, names)
        if primal:
            weights = attention.published_init(rng, HEADS, ROWS, arm.s, D // HEADS, dtype="float32")
            block["attend"]["primal"] = weights._asdict()
        blocks.append(block)
    norm = {"scale": np.ones(D, "float32"), "shift": np.zeros(D, "float32")}
    return {"W_in": normal(12, D), "place": 0.1 * normal(STEPS, D) * STEPS ** 0.5, "blocks": blocks,
            "norm": norm, "W_out": normal(STEPS * D, 9), "b_out": np.zeros(9, "float32")}


def attend_primal(x, z, params, mask, *, e_only=False, seen=None):
    """Primal-Attention in the form that a block calls; `seen` collects what the loss needs."""
    steps = mask[:, 0, 0, :]                        # (batch, N): True where a step is real
    weights = attention.PrimalWeights(**params["primal"])
    if e_only:
        weights = weights._replace(W_o=weights.W_o * SCORES)
    Q, K, _ = transformer.content(x, x, params, HEADS)
    F = smoother.split_heads(attention.even_rows(x, ROWS, mask=steps), HEADS)
    with warnings.catch_warnings():                 # s = 20 > p = 16 (V16)
        warnings.filterwarnings("ignore", "s = 20 directions", UserWarning)
        output, scores = attention.primal_attention(Q, K, weights, F=F, mask=steps)
    if seen is not None:
        seen.append((attention.published_loss(scores, weights, mask=steps), scores, Q, K, F))
    return project(smoother.merge_heads(output), params["W_o"])


def logits(params, X, mask, arm, seen=None):
    """Class scores of each series; `seen` gets one entry for each primal block."""
    attends = [partial(attend_primal, e_only=arm.e_only, seen=seen) if primal
               else partial(transformer.attend, heads=HEADS) for primal in arm.primal]
    x = project(X, params["W_in"]) + params["place"]
    x = transformer.encoder(x, params["blocks"], attends, mask[:, None, None, :],
                            activation=transformer.gelu)
    x = transformer.layer_norm(x, params["norm"]["scale"], params["norm"]["shift"])
    x = transformer.gelu(x) * mask[:, :, None].astype("float32")
    return project(anp.reshape(x, (x.shape[0], -1)), params["W_out"]) + params["b_out"]


def loss_of(arm):
    """Cross-entropy plus eta times the sum over the layers of the mean of J^2 (K.27, K.31).

    Or of the mean share of the kernels that is missed (K.41): differentiated by the kernels too.
    """
    def loss(params, batch):
        X, mask, y = batch
        seen = []
        task = transformer.cross_entropy(logits(params, X, mask, arm, seen), y,
                                         np.ones(len(y), "float32"))
        penalty = sum(attention.mean_of_squares(J) if arm.loss == "J^2" else anp.sum(
            attention.approximation_loss(scores, Q, K, F=F, mask=mask)) / (len(y) * HEADS)
            for J, scores, Q, K, F in seen)
        return task + arm.eta * penalty if arm.eta else task
    return loss


def evaluate(params, data, arm):
    """Accuracy in % and the mean of J^2, added up over the primal layers."""
    X, mask, y = data
    seen = []
    right = np.argmax(logits(params, X, mask, arm, seen), axis=1) == y
    return 100 * np.mean(right), sum(float(np.mean(J ** 2)) for J, *_ in seen)


def implied(params, data, arm):
    """Of the last primal layer, mean over series and heads of the test set's first 40 series.

    Share of sigma_1^2 in the kernel matrix Phi F^T F Psi^T; and |cos| of Phi^T Phi w_e with w_r and
    of Psi^T Psi w_r with w_e, Phi and Psi with F in them, over all components: about
    sqrt(2 / (pi n)) = 0.16 by chance, 1 if the weights solve the KSVD (K.17). No W solves that of
    each series, so it is that of all, stacked: the mean of J is stationary there (K.48). A series
    of N steps counts 1 / N for each, as in the loss.
    """
    X, mask, _ = (A[:40] for A in data)
    seen = []
    logits(params, X, mask, arm, seen)
    W_e, W_r = (params["blocks"][-1]["attend"]["primal"][name] for name in ("W_e", "W_r"))
    share, aligned = [], []
    for h in range(HEADS):
        G_e, G_r = np.zeros((2, ROWS, ROWS))
        for b in range(len(X)):
            Phi, Psi = (np.asarray(A, float) for A in maps(seen[-1], b, h, mask[b].sum()))
            sigma = dual.solve(Phi @ Psi.T, 1).sigma
            share.append(sigma[0] ** 2 / np.sum((Phi @ Psi.T) ** 2))
            G_e, G_r = G_e + Phi.T @ Phi / len(Phi), G_r + Psi.T @ Psi / len(Psi)
        aligned += [cosines(G_e @ W_e[h], W_r[h]), cosines(G_r @ W_r[h], W_e[h])]
    return float(np.mean(share)), float(np.mean(aligned))


def maps(seen, b, h, n):
    """Phi F^T and Psi F^T, (n, ROWS) each, of one series and head, from what `logits` collects."""
    _, _, Q, K, F = seen
    return (A[b, h, :n] / np.linalg.norm(A[b, h, :n], axis=1, keepdims=True) @ F[b, h].T
            for A in (Q, K))


def cosines(A, B):
    """|cos| of the angles between the columns of A and those of B."""
    return np.abs(np.sum(A * B, axis=0)) / np.linalg.norm(A, axis=0) / np.linalg.norm(B, axis=0)


def spans(params, data, arm):
    """What the scores of a trained model hold of its kernels, means over all layers and heads.

    Of every ninth series. The share of K that E R^T misses, and that the spans of E and R miss,
    1 - |Q_e^T K Q_r|^2 / |K|^2; of K and of the rest, K without its first component; each beside
    what the s leading components miss. The share of K that is this rest. Last the mean |cos| of
    K.17, as `implied`, of the vectors in these spans (K.43), the first and the others: 1 for
    components of the KSVD.
    """
    X, mask, _ = (A[::9] for A in data)
    seen, found = [], []
    logits(params, X, mask, arm, seen)
    for layer, block in zip(seen, params["blocks"]):
        W = [np.asarray(block["attend"]["primal"][name], float) for name in ("W_e", "W_r")]
        for b, h in np.ndindex(len(X), HEADS):
            Phi, Psi = (np.asarray(A, float) for A in maps(layer, b, h, mask[b].sum()))
            A, B = W[0][h], W[1][h]
            K, (H_e, sigma, H_r) = Phi @ Psi.T, dual.solve(Phi @ Psi.T)
            rest = K - sigma[0] * np.outer(H_e[:, 0], H_r[:, 0])
            Q_e, Q_r = (np.linalg.qr(S)[0] for S in (Phi @ A, Psi @ B))
            share = [1 - np.sum((Q_e.T @ G @ Q_r) ** 2) / np.sum(G ** 2) for G in (K, rest)]
            best = [np.sum(sigma[arm.s:] ** 2) / np.sum(sigma[l:] ** 2) for l in (0, 1)]
            W_e, _, W_r = from_factors(A, B, Phi, Psi)
            aligned = (cosines(Phi.T @ Phi @ W_e, W_r) + cosines(Psi.T @ Psi @ W_r, W_e)) / 2
            found.append([missed_share(A, B, Phi, Psi), share[0], best[0], share[1], best[1],
                          1 - sigma[0] ** 2 / np.sum(sigma ** 2), aligned[0], np.mean(aligned[1:])])
    return np.mean(found, axis=0)


def fit(arm, train, seed, epochs, rate=1e-3, **options):
    """What training.train returns."""
    per_epoch = -(-len(train[0]) // BATCH)
    batches = (tuple(A[i] for A in train)
               for i in training.minibatches(len(train[0]), BATCH, seed))
    return training.train(loss_of(arm), init(arm, seed), batches, steps=epochs * per_epoch,
                          rate=rate, clip=4.0, every=per_epoch, **options)


def run(name, seed, epochs):
    """(epoch, accuracy, J^2) of every epoch on the test set, and what training.train returns."""
    arm, (train, test) = ARMS[name], series()
    done = fit(arm, train, seed, epochs, evaluate=lambda params: evaluate(params, test, arm))
    return [(epoch, *score) for epoch, (_, score) in enumerate(done.scores, 1)], done


HEADER = ["arm", "seed", "epochs", "final", "best", "share", "aligned", "aligned_start",
          "parameters", "cpu_seconds", "J2"]       # J2: after each epoch
TABLE = Path(__file__).with_name("tables") / "12_vowels.csv"


def row(name, seed, epochs):
    start, arm, test = time.process_time(), ARMS[name], series()[1]
    history, done = run(name, int(seed), int(epochs))
    seconds = time.process_time() - start
    accuracy, J2 = [h[1] for h in history], [h[2] for h in history]
    spectrum = [*implied(done.params, test, arm), implied(init(arm, int(seed)), test, arm)[1]] \
        if arm.primal[-1] else [float("nan")] * 3
    return [name, seed, epochs, f"{accuracy[-1]:.2f}", f"{max(accuracy):.2f}",
            *(f"{x:.3f}" for x in spectrum), transformer.size(done.params), f"{seconds:.1f}",
            " ".join(f"{x:.3g}" for x in J2)]


def write_table(lines, command, path=TABLE, header=HEADER, about=""):
    """Rows as `row` printed them, under what must be known to repeat them."""
    versions = ", ".join(f"{name} {version(name)}" for name in ("numpy", "autograd"))
    head = f"# {command}\n# {about}{datetime.date.today()}, Python {platform.python_version()}, " \
        f"{versions}, one BLAS thread\n"
    path.write_text(head + ",".join(header) + "\n" + "".join(lines))


def read_table():
    lines = [line for line in TABLE.read_text().splitlines() if not line.startswith("#")]
    return rows_of(lines[1:])


MEASURES = ["loss", "eta", "series", "seed", "epochs", "accuracy", "missed", "spans", "spans_best",
            "rest", "rest_best", "rest_share", "aligned_first", "aligned_others",   # see `spans`
            "cpu_seconds"]
TWO_LOSSES = TABLE.with_name("12_two_losses.csv")


def measured(loss, eta, held_out, seed, epochs):
    """One row of the table of the two losses, as a line."""
    start, arm, (train, test) = time.process_time(), small(loss, eta), series()
    if held_out:                                    # every third training series, in place of the
        third = np.arange(len(train[0])) % 3 == 0   # test set
        train, test = (tuple(A[part] for A in train) for part in (~third, third))
    params = fit(arm, train, seed, epochs).params
    seconds = time.process_time() - start
    values = evaluate(params, test, arm)[0], *spans(params, test, arm)
    line = [loss, eta, "held out" if held_out else "test", seed, epochs, f"{values[0]:.2f}",
            *(f"{x:.5f}" for x in values[1:]), f"{seconds:.1f}"]
    print(",".join(map(str, line)), flush=True)
    return ",".join(map(str, line)) + "\n"


def two_losses():
    """Rows of the table of the two losses, each a dict."""
    lines = [line for line in TWO_LOSSES.read_text().splitlines() if not line.startswith("#")]
    text = ("loss", "series")
    return [{name: x if name in text else float(x) for name, x in row.items()}
            for row in csv.DictReader(lines)]


def best_eta(rows):
    """Of the grid: the best mean accuracy on the series held out, of equals the larger eta."""
    found = {eta: np.mean([row["accuracy"] for row in rows
                           if row["series"] == "held out" and row["eta"] == eta]) for eta in GRID}
    return max(GRID, key=lambda eta: (found[eta], eta))


def compare(epochs):
    """Make the table of the two losses anew."""
    lines = []
    save = lambda: write_table(lines, f"python tutorials/vowels.py table {epochs}", TWO_LOSSES,
                               MEASURES, "seeds 0 to 2, ")
    for eta, seed in itertools.product(GRID, range(3)):
        lines.append(measured("K.41", eta, True, seed, epochs))
        save()
    arms = ("J^2", 0.5), ("K.41", best_eta(two_losses())), ("none", 0.0)
    for arm, seed in itertools.product(arms, range(3)):
        lines.append(measured(*arm, False, seed, epochs))
        save()


def rows_of(lines):
    """Rows by arm, each a dict of numbers, in the order of the seeds."""
    rows = {}
    for line in csv.DictReader(lines, HEADER):
        J2 = [float(x) for x in line.pop("J2").split()]
        arm = line.pop("arm")
        rows.setdefault(arm, []).append({"J2": J2, **{k: float(x) for k, x in line.items()}})
    return rows


if __name__ == "__main__" and sys.argv[1] == "table":
    compare(int(sys.argv[2]))
elif __name__ == "__main__":
    csv.writer(sys.stdout, lineterminator="\n").writerow(row(*sys.argv[1:]))
