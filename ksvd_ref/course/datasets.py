"""The bundled data, each with its source and its terms (also in README.md beside the files).

Every function reads one small file of the package, downloads nothing, and returns a named tuple.
Counts come as float64, ready for a decomposition.

No equation: data.
"""
import gzip
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

_DATA = Path(__file__).parents[1] / "data"


class Heads(NamedTuple):
    """Queries and keys of a pretrained model."""

    Q: Any            # (layer, head, token, d)
    K: Any            # (layer, head, token, d)
    tokens: Any       # (token,) text


class Graph(NamedTuple):
    """A directed graph: A_ij flows from i to j."""

    A: Any            # (N, N)
    labels: Any       # (N,) text


class Words(NamedTuple):
    """Articles by words."""

    A: Any            # (N, M) counts
    articles: Any     # (N,) text
    words: Any        # (M,) text
    topics: Any       # (N,) 0 science, 1 arts, 2 philosophy


class Series(NamedTuple):
    """Time series with classes, zero-padded to one length."""

    X_train: Any      # (n, time, channel) float32
    length_train: Any
    y_train: Any
    X_test: Any
    length_test: Any
    y_test: Any


def _load(name):
    with np.load(_DATA / f"{name}.npz", allow_pickle=False) as file:
        return {key: file[key] for key in file.files}


def _graph(name, labels):
    file = _load(name)
    return Graph(file["A"].astype(float), file[labels])


def _text(name):
    return gzip.decompress((_DATA / name).read_bytes()).decode()


def minilm_heads():
    """Queries and keys of all-MiniLM-L6-v2 on the opening of the Gettysburg Address.

    6 layers, 12 heads, 64 tokens with [CLS] and [SEP], d = 32; a head's attention is
    `kernels.softmax(Q, K)`. Computed from the weights of sentence-transformers/all-MiniLM-L6-v2
    (Apache 2.0); the passage is in the public domain. Stored in float16.
    """
    file = _load("minilm_qk")
    return Heads(file["Q"].astype(float), file["K"].astype(float), file["tokens"])


def canada_migration():
    """People who moved from province i to province j of Canada, 1966 to 1971: Graph of 10.

    1971 Census of Canada, as in R's carData (Migration). Counts; cite the census.

    >>> A, labels = canada_migration()
    >>> A[labels == "ONT", labels == "QUE"]                     # from Ontario to Quebec
    array([48370.])
    """
    return _graph("canada_migration", "names")


def mushroom_body(side="left"):
    """Synapses from neuron i to neuron j in the mushroom body of a larval fruit fly.

    Graph of 209 neurons on the left, 213 on the right; labels: K Kenyon, P projection, O output, I
    input neurons. Eichler et al., Nature 548 (2017) 175-182, as shipped by graspologic (MIT); cite
    Eichler et al.
    """
    if side not in ("left", "right"):
        raise ValueError(f"side must be 'left' or 'right', got {side!r}")
    return _graph(f"drosophila_mb_{side}", "labels")


def us_flights():
    """Domestic flights from airport i to airport j, 60 busiest airports of the USA, 2008: Graph.

    Nearly symmetric, so a negative control. US DOT Bureau of Transportation Statistics, as in
    vega-datasets; US government data.
    """
    return _graph("us_flights_60", "names")


def chess_championships():
    """Points that player i scored against player j in world-championship games, 1886 to 1985.

    Graph of 25 players. Game records shipped with NetworkX; facts.
    """
    return _graph("chess_wcc", "names")


def wikipedia_words():
    """How often 11 words occur in the summaries of 30 Wikipedia articles: Words.

    A rectangular matrix. As shipped by scikit-network (BSD); some of its word names do not seem to
    fit their columns ("invention" 15 times for Einstein), so lean on none.
    """
    file = _load("art_philo_science")
    return Words(file["words"].astype(float), file["names"], file["word_names"], file["labels"])


def japanese_vowels():
    """Nine speakers saying two vowels: 640 Series of 12 cepstrum coefficients, 7 to 29 steps.

    X_train (270, 29, 12), X_test (370, 29, 12) and, for each series, its length and speaker. UEA
    archive, from UCI Japanese Vowels; Kudo, Toyama & Shimbo, Pattern Recognition Letters 20 (1999)
    1103-1111. Cite Kudo et al.; the archive states no licence.
    """
    file = _load("JapaneseVowels")
    return Series(file["X_train"], file["len_train"], file["y_train"],
                  file["X_test"], file["len_test"], file["y_test"])


def numbers_en_de():
    """2500 numbers below 100000 in English words and in German morphemes, units before tens.

    Pairs of str, generated with num2words.

    >>> numbers_en_de()[0][0]
    'two thousand four hundred and eighty two'
    """
    return [tuple(line.split("\t")) for line in _text("numbers_en_de.tsv.gz").splitlines()]


def kjv_mark():
    """Gospel of Mark, King James Version, lower case: about 79,000 characters, 38 symbols.

    In the public domain.

    >>> kjv_mark()[:23]
    'the beginning of the go'
    """
    return _text("kjv_mark.txt.gz").lower()
