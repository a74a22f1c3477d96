"""The runs of lesson 10: speakers of Japanese vowels, by three models that differ in attention.

``python tutorials/vowels.py primal 0 40`` trains one arm with one seed for 40 epochs and prints the
row of the table.

A series is at most 26 steps long, the longest one trained on, as in the published loader. The model
is that of Chen et al., NeurIPS 2023, in small: d = 64, 4 heads, two blocks, the final steps laid
out flat before the classifier. Padded steps take no part anywhere, which differs from the published
code.
"""
import csv
import datetime
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

STEPS, D, HEADS, HIDDEN, S, BATCH = 26, 64, 4, 128, 20, 16
ROWS = min(STEPS, 5 * S)                            # n = min(N, s rank_multi): all 26 steps
SCORES = np.repeat(np.float32([1.0, 0.0]), S)[:, None]                  # keeps e, drops r


class Arm(NamedTuple):
    """What one arm differs in."""

    primal: Any                     # is this block's attention primal?
    eta: float = 0.0                # weight of the KSVD loss
    e_only: bool = False


ARMS = {
    "primal": Arm((True, True), 0.5),
    "primal+": Arm((False, True), 0.2),
    "transformer": Arm((False, False)),
    "primal, eta 0": Arm((True, True), 0.0),
    "primal, eta 10": Arm((True, True), 10.0),
    "primal, e only": Arm((True, True), 0.5, e_only=True),
}
MAIN = list(ARMS)[:3]


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
            weights = attention.published_init(rng, HEADS, ROWS, S, D // HEADS, dtype="float32")
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
    """Cross-entropy plus eta times the sum over the layers of the mean of J^2 (K.27, K.31)."""
    def loss(params, batch):
        X, mask, y = batch
        seen = []
        task = transformer.cross_entropy(logits(params, X, mask, arm, seen), y,
                                         np.ones(len(y), "float32"))
        penalty = sum(attention.mean_of_squares(J) for J, *_ in seen)
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
    of Psi^T Psi w_r with w_e, Phi and Psi with F in them, over all components: 1 if the weights
    solve the KSVD of the series (K.17), about sqrt(2 / (pi n)) = 0.16 by chance.
    """
    X, mask, _ = (A[:40] for A in data)
    seen = []
    logits(params, X, mask, arm, seen)
    W_e, W_r = (params["blocks"][-1]["attend"]["primal"][name] for name in ("W_e", "W_r"))
    share, aligned = [], []
    for b in range(len(X)):
        for h in range(HEADS):
            Phi, Psi = maps(seen[-1], b, h, mask[b].sum())
            sigma = dual.solve(np.asarray(Phi @ Psi.T, float), 1).sigma
            share.append(sigma[0] ** 2 / np.sum((Phi @ Psi.T) ** 2))
            aligned += [cosines(Phi.T @ (Phi @ W_e[h]), W_r[h]),
                        cosines(Psi.T @ (Psi @ W_r[h]), W_e[h])]
    return float(np.mean(share)), float(np.mean(aligned))


def maps(seen, b, h, n):
    """Phi F^T and Psi F^T, (n, ROWS) each, of one series and head, from what `logits` collects."""
    _, _, Q, K, F = seen
    return (A[b, h, :n] / np.linalg.norm(A[b, h, :n], axis=1, keepdims=True) @ F[b, h].T
            for A in (Q, K))


def cosines(A, B):
    """|cos| of the angles between the columns of A and those of B."""
    return np.abs(np.sum(A * B, axis=0)) / np.linalg.norm(A, axis=0) / np.linalg.norm(B, axis=0)


def run(name, seed, epochs, rate=1e-3):
    """(epoch, accuracy, J^2) of every epoch on the test set, and what training.train returns."""
    arm, (train, test) = ARMS[name], series()
    per_epoch = -(-len(train[0]) // BATCH)
    batches = (tuple(A[i] for A in train) for i in training.minibatches(270, BATCH, seed))
    done = training.train(loss_of(arm), init(arm, seed), batches, steps=epochs * per_epoch,
                          rate=rate, clip=4.0, every=per_epoch,
                          evaluate=lambda params: evaluate(params, test, arm))
    return [(step // per_epoch, *score) for step, score in done.scores], done


HEADER = ["arm", "seed", "epochs", "final", "best", "share", "aligned", "aligned_start",
          "parameters", "cpu_seconds", "J2"]       # J2: after each epoch
TABLE = Path(__file__).with_name("tables") / "10_vowels.csv"


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


def write_table(lines, command):
    """Rows as `row` printed them, under what must be known to repeat them."""
    versions = ", ".join(f"{name} {version(name)}" for name in ("numpy", "autograd"))
    head = f"# {command}\n# {datetime.date.today()}, Python {platform.python_version()}, " \
        f"{versions}, one BLAS thread\n"
    TABLE.write_text(head + ",".join(HEADER) + "\n" + "".join(lines))


def read_table():
    lines = [line for line in TABLE.read_text().splitlines() if not line.startswith("#")]
    return rows_of(lines[1:])


def rows_of(lines):
    """Rows by arm, each a dict of numbers, in the order of the seeds."""
    rows = {}
    for line in csv.DictReader(lines, HEADER):
        J2 = [float(x) for x in line.pop("J2").split()]
        arm = line.pop("arm")
        rows.setdefault(arm, []).append({"J2": J2, **{k: float(x) for k, x in line.items()}})
    return rows


if __name__ == "__main__":
    csv.writer(sys.stdout, lineterminator="\n").writerow(row(*sys.argv[1:]))
