"""The runs of lesson 09: three tasks, the arms of each, and one row of a table for one run.

``python tutorials/ablations.py numbers rbf 0`` trains one arm with one seed and prints its row:
score in % exact match or in bits per character, % of single tokens that are right, and so on.

Scores at a site are functions (x, z, params, heads) -> Q, K, log_factor, see transformer.content.
The position enters in each layer and never the values (S.22), except where "words" are named:
there it is added to the embeddings once, as in the original Transformer, and so reaches values and
site B.
"""
import argparse
import csv
import datetime
import os
import platform
import sys
import time
from functools import partial
from importlib.metadata import version
from math import log
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ksvd_ref.attention import positions, smoother
from ksvd_ref.course import datasets, training, transformer
from ksvd_ref.course.transformer import content, cross_entropy, project


def t(x):
    return positions.sinusoids(x.shape[-2], x.shape[-1], beside=x)


def additive(x, z, p, heads):                       # S.13, Vaswani
    return content(x + t(x), z + t(z), p, heads)


def sinusoid_offsets(N, d):                         # rows: offsets N-1, ..., 1-N
    return positions.sinusoids(2 * N - 1, d, first=1 - N)[::-1]


def one_hot_offsets(N, d):                          # d >= N; offsets below 0 are masked anyway
    return np.eye(d)[np.maximum(np.arange(N - 1, -N, -1), 0)]


def relative(x, z, p, heads, offsets=sinusoid_offsets):                # S.14, Transformer-XL
    Q, K, _ = content(x, z, p, heads)
    table = project(offsets(*x.shape[-2:]).astype(x.dtype), p["W_R"])
    return Q, K, positions.relative(Q, smoother.split_heads(table, heads))


look_up = partial(relative, offsets=one_hot_offsets)                   # S.17, W_R is the table


def product(x, z, p, heads):                        # S.18; with W_k and W_S of its own: S.19
    Q, K, _ = content(x, z, p, heads)
    t_q, t_k = project(t(x), p["W_T"]), project(t(z), p.get("W_S", p["W_T"]))
    return Q, K, positions.absolute(*(smoother.split_heads(y, heads) for y in (t_q, t_k)))


class Arm(NamedTuple):
    """What one arm differs in from the others of its part."""

    names: Any                      # weights: without W_k the content kernel is symmetric
    scores: Any = (content,) * 3    # at the sites A, B, C
    kernel: Any = {}                # for smoother.attention
    words: Any = (False, False)     # positions added to the words of the source, of the target
    start: float = 1.0              # factor on all matrices but the embeddings; 2 is 1/sqrt(fan in)
    hidden: int = 64                # width of the feed-forward part, of "characters" only


W, TIED = ("W_q", "W_k", "W_v", "W_o"), ("W_q", "W_v", "W_o")
GAMMA = 8 ** -0.5                   # 1 / sqrt(d_k): d_k = 8 in the two parts that need it
QUADRATIC = {"kernel": "polynomial", "coef0": 0.0, "guard": 1e-6}      # homogeneous: no + 1 (D9)
SIGNED = {"kernel": "linear", "guard": 1e-3}        # without a guard it is an error: lesson 07
RBF = {"kernel": "rbf", "gamma": GAMMA / 2}         # with 1/2: at the temperature of exponential
AB, BOTH = (product, product, content), (True, True)
NUMBERS = {
    "exponential": Arm(W, words=BOTH),
    "rbf": Arm(W, kernel=RBF, words=BOTH),
    "polynomial": Arm(W, kernel=QUADRATIC, words=BOTH),
    "linear": Arm(W, kernel=SIGNED, words=BOTH),
    "decoder without": Arm(W, words=(True, False)),
    "encoder without": Arm(W, words=(False, True)),
    "exponential, symmetric": Arm(TIED, words=BOTH),
    "exponential, start x 2": Arm(W, words=BOTH, start=2.0),
    "polynomial, start x 2": Arm(W, kernel=QUADRATIC, words=BOTH, start=2.0),
    "product at A, B": Arm((*TIED, "W_T"), AB),
    "product at A, C": Arm((*TIED, "W_T"), (product, content, product)),
}
REVERSAL = {
    "product at A, B": Arm((*TIED, "W_T"), AB, start=2.0),
    "product at C": Arm((*TIED, "W_T"), (content, content, product), start=2.0),
    "nowhere": Arm(TIED, start=2.0),
}
CHARACTERS = {
    "Transformer-XL": Arm((*W, "W_R"), relative),
    "product, untied": Arm((*W, "W_T", "W_S"), product),
    "look-up": Arm((*W, "W_R"), look_up),
    "product, symmetric": Arm((*TIED, "W_T"), product),
    "product, position tied": Arm((*W, "W_T"), product),
    "product, content tied": Arm((*TIED, "W_T", "W_S"), product),
    "product, symmetric, wide": Arm((*TIED, "W_T"), product, hidden=96),   # weights as untied
    "additive": Arm(W, additive),
    "none": Arm(W, content),
    "XL, symmetric": Arm((*TIED, "W_R"), relative),
    "XL, rbf": Arm((*W, "W_R"), relative, {"kernel": "rbf", "gamma": GAMMA}),
    "XL, polynomial": Arm((*W, "W_R"), relative, QUADRATIC),
    "XL, linear": Arm((*W, "W_R"), relative, SIGNED),
}
ARMS = {"numbers": NUMBERS, "reversal": REVERSAL, "characters": CHARACTERS}
MAIN = {"numbers": list(NUMBERS)[:6],               # a reversal takes as long as three others
        "characters": ["Transformer-XL", "additive", "product, symmetric", "none"]}


def numbered(sentences):
    """Words as integers, 0 behind the end of a sentence; and 1 + how many words there are."""
    words = sorted({word for sentence in sentences for word in sentence})
    rows = np.zeros((len(sentences), max(map(len, sentences))), int)
    for row, sentence in zip(rows, sentences):
        row[:len(sentence)] = [1 + words.index(word) for word in sentence]
    return rows, 1 + len(words)


def strings(rng, n):
    """Random strings of the letters 3 to 14 and an end 2; and 1, the same backwards, 2."""
    length, place = rng.integers(4, 9, size=(n, 1)), np.arange(9)
    letters = np.where(place < length, rng.integers(3, 15, size=(n, 9)), 0)
    back = np.take_along_axis(letters, (length - 1 - place) % 9, axis=1)
    back = np.where(place < length, back, 0)
    for rows in (letters, back):
        np.put_along_axis(rows, length, 2, axis=1)  # without the end, where to begin is a riddle
    return letters, np.hstack([np.ones_like(length), back])


def gospel():
    """Training and test text; the 8000 characters between are for choosing, unused here."""
    text = datasets.kjv_mark()
    return text[:-16000], text[-8000:]


def scaled(params, c):
    """Matrices times c; embeddings and vectors as they are."""
    if isinstance(params, dict):
        return {k: p if "embed" in k else scaled(p, c) for k, p in params.items()}
    if isinstance(params, list):
        return [scaled(p, c) for p in params]
    return c * params if params.ndim == 2 else params


def translate(arm, params, batches, test, *, steps, rate, **how):
    """Exact match and right words in %, teacher-forced, and the trained parameters."""
    sites = [partial(transformer.attend, heads=4, scores=s, **arm.kernel) for s in arm.scores]

    def logits(params, source, target):
        mask = (source > 0)[:, None, None, :]       # (batch, head, query, key)
        return transformer.translator(source, target[:, :-1], params, sites, source_mask=mask,
                                      **how)

    def loss(params, batch):
        want = batch[1][:, 1:]
        return cross_entropy(logits(params, *batch), want, (want > 0).astype("float32"))

    params = training.train(loss, scaled(params, arm.start), batches, steps=steps, rate=rate,
                            b2=0.99).params
    want = test[1][:, 1:]
    right = np.argmax(logits(params, *test), axis=-1) == want
    exact = np.all(right | (want == 0), axis=1)
    return 100 * np.mean(exact), 100 * np.mean(right[want > 0]), params


def numbers(arm, seed, epochs=20):
    english, german = zip(*datasets.numbers_en_de())
    X, v_x = numbered([line.split() for line in english])
    Y, v_y = numbered([["<", *line.split(), ">"] for line in german])
    params = transformer.init_translator(np.random.default_rng(seed), v_x, v_y, d=32, hidden=64,
                                         layers=2, names=arm.names, closing=False)
    steps = epochs * 10                             # 600 pairs in batches of 64
    batches = ((X[i], Y[i]) for i in training.minibatches(600, 64, seed))
    words = [positions.sinusoids(n, 32).astype("float32") if on else None
             for on, n in zip(arm.words, (X.shape[1], Y.shape[1] - 1))]
    return translate(arm, params, batches, (X[-500:], Y[-500:]), steps=steps, positions=words,
                     rate=training.trapezoid_rate(3e-3, steps, warmup=50),
                     residual=transformer.post_norm)


def reversal(arm, seed, steps=600):
    rng = np.random.default_rng(seed)
    params = transformer.init_translator(rng, 15, 15, d=48, hidden=96, layers=2, names=arm.names)
    batches = (strings(rng, 48) for _ in range(steps))
    test = strings(np.random.default_rng(1000), 400)
    return translate(arm, params, batches, test, steps=steps,
                     rate=training.cosine_rate(2e-3, steps, warmup=100))


def characters(arm, seed, steps=400, span=32):
    """Bits per character and right characters in %, in test windows, and the parameters."""
    train, test = gospel()
    alphabet, rng = sorted(set(train + test)), np.random.default_rng(seed)
    train, test = (np.searchsorted(alphabet, list(text)) for text in (train, test))
    params = transformer.init_language_model(rng, len(alphabet), d=32, hidden=arm.hidden, layers=2,
                                             names=arm.names)
    attend = partial(transformer.attend, heads=4, scores=arm.scores, **arm.kernel)
    logits = lambda params, rows: transformer.language_model(rows[:, :-1], params, attend)

    def loss(params, rows):
        return cross_entropy(logits(params, rows), rows[:, 1:],
                             np.ones(rows[:, 1:].shape, "float32"))

    batches = (train[rng.integers(len(train) - span, size=(16, 1)) + np.arange(span + 1)]
               for _ in range(steps))
    params = training.train(loss, params, batches, steps=steps, b2=0.99,
                            rate=training.cosine_rate(4e-3, steps, warmup=100)).params
    rows = test[np.arange(0, len(test) - span, span)[:, None] + np.arange(span + 1)]
    right = np.argmax(logits(params, rows), axis=-1) == rows[:, 1:]
    return loss(params, rows) / log(2), 100 * np.mean(right), params


HEADER = ["part", "arm", "seed", "score", "tokens", "parameters", "cpu_seconds"]
TABLES = Path(__file__).with_name("tables")


def row(part, arm, seed):
    start = time.process_time()
    score, tokens, params = globals()[part](ARMS[part][arm], int(seed))
    return [part, arm, seed, f"{score:.4g}", f"{tokens:.4g}", transformer.size(params),
            f"{time.process_time() - start:.1f}"]


def write_table(part, lines, seeds):
    """Rows of one part, as `row` printed them, under what must be known to repeat them."""
    versions = ", ".join(f"{name} {version(name)}" for name in ("numpy", "autograd"))
    head = [f"python tutorials/09_which_kernel_which_position.py --seeds {seeds} --full",
            f"seeds 0 to {seeds - 1}, {datetime.date.today()}, Python {platform.python_version()}, "
            f"{versions}, one BLAS thread",
            "score: bits per character" if part == "characters" else "score: % exact match"]
    text = "".join(f"# {line}\n" for line in head) + ",".join(HEADER) + "\n" + "".join(lines)
    (TABLES / f"09_{part}.csv").write_text(text)


def read_table(part, column="score"):
    """Scores, or another column, by arm, in the order of the seeds."""
    lines = (TABLES / f"09_{part}.csv").read_text().splitlines()
    scores = {}
    for line in csv.DictReader(line for line in lines if not line.startswith("#")):
        scores.setdefault(line["arm"], []).append(float(line[column]))
    return scores


def train_now():
    """Scores by (part, arm) of what lesson 09 trains, with the options of its command line.

    The main arms with seed 0 unless told, one arm with KSVD_REF_QUICK=1; --full writes the tables.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=1, help="0 to SEEDS - 1")
    parser.add_argument("--full", action="store_true", help="all models, and rewrite tables/")
    script = Path(sys.argv[0]).name == "09_which_kernel_which_position.py"
    options = parser.parse_args(sys.argv[1:] if script else [])        # in a notebook: the defaults
    arms, live = ARMS if options.full else MAIN, {}
    if os.environ.get("KSVD_REF_QUICK"):
        arms = {"numbers": ["exponential"]}
    for part in arms:
        jobs = [[__file__, part, arm, seed] for arm in arms[part] for seed in range(options.seeds)]
        lines = training.run_apart(jobs)            # two at a time, one BLAS thread each
        for job, line in zip(jobs, lines):
            live.setdefault((part, job[2]), []).append(float(line.split(",")[-4]))
        if options.full:
            write_table(part, lines, options.seeds)
    return live


if __name__ == "__main__":
    csv.writer(sys.stdout, lineterminator="\n").writerow(row(*sys.argv[1:]))
