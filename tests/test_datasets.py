"""The bundled data are what their docstrings say."""
import re
from pathlib import Path

import numpy as np
import pytest

import ksvd_ref
from ksvd_ref import kernels
from ksvd_ref.course import datasets

DATA = Path(ksvd_ref.__file__).with_name("data")


def test_every_file_has_its_row_and_every_row_its_file():
    table = (DATA / "README.md").read_text()
    named = set(re.findall(r"[\w]+(?:\.\w+)*\.(?:npz|gz)", table))
    assert named == {file.name for file in DATA.iterdir()
                     if file.name not in ("README.md", "ksvd.mplstyle")}


@pytest.mark.parametrize("load, N", [
    (datasets.canada_migration, 10), (datasets.mushroom_body, 209), (datasets.us_flights, 60),
    (lambda: datasets.mushroom_body("right"), 213), (datasets.chess_championships, 25)])
def test_graphs(load, N):
    A, labels = load()
    assert A.shape == (N, N) and labels.shape == (N,) and A.dtype == np.float64
    assert A.min() >= 0 and not np.array_equal(A, A.T)


def test_asymmetry_of_the_controls():
    # the numbers that the lessons quote: flights hardly, synapses strongly
    asymmetry = [np.linalg.norm(A - A.T) / np.linalg.norm(A + A.T)
                 for A in (datasets.us_flights().A, datasets.mushroom_body().A)]
    assert asymmetry[0] < 0.02 and asymmetry[1] > 0.3


def test_heads_are_attention():
    heads = datasets.minilm_heads()
    assert heads.Q.shape == heads.K.shape == (6, 12, 64, 32) and heads.tokens[0] == "[CLS]"
    A = kernels.softmax(heads.Q[0, 0], heads.K[0, 0])
    np.testing.assert_allclose(A.sum(axis=1), 1.0, rtol=1e-14)          # rows are sums of 64 terms


def test_words():
    A, articles, words, topics = datasets.wikipedia_words()
    assert A.shape == (30, 11) and len(articles) == 30 and len(words) == 11
    topic = dict(zip(articles, topics))
    assert (topic["Isaac Newton"], topic["Bob Dylan"], topic["Plato"]) == (0, 1, 2)


def test_series():
    data = datasets.japanese_vowels()
    assert data.X_train.shape == (270, 29, 12) and data.X_test.shape == (370, 29, 12)
    assert data.length_train.min() == 7 and data.length_test.max() == 29
    assert len(set(data.y_train)) == 9
    for X, length in ((data.X_train, data.length_train), (data.X_test, data.length_test)):
        beyond = np.arange(29)[None, :] >= length[:, None]
        assert not X[beyond].any() and X[~beyond].any(axis=1).all()     # zero there, only there


def test_texts():
    pairs, text = datasets.numbers_en_de(), datasets.kjv_mark()
    assert len(pairs) == 2500 and all(len(pair) == 2 for pair in pairs)
    assert len(text) == 79226 and len(set(text)) == 38


def test_another_side_is_refused():
    with pytest.raises(ValueError, match="side must be 'left' or 'right', got 'up'"):
        datasets.mushroom_body("up")
