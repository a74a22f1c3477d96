"""The figures show the numbers that they are given."""
import matplotlib.pyplot as plt
import numpy as np
import pytest
from conftest import runs

from ksvd_ref import dual
from ksvd_ref.course import plots


@pytest.fixture
def ax():
    return plt.subplots()[1]


def test_matrix(ax):
    K = np.array([[1.0, -3.0, 2.0], [0.0, 1.0, 1.0]])
    image = plots.matrix(ax, K, rows=["a", "b"], columns=["u", "v", "w"], title="K")
    np.testing.assert_array_equal(image.get_array(), K)
    assert image.get_clim() == (-3.0, 3.0)                      # white is zero
    assert [t.get_text() for t in ax.get_yticklabels()] == ["a", "b"]
    assert [t.get_text() for t in ax.get_xticklabels()] == ["u", "v", "w"]
    assert ax.get_xlabel() and ax.get_ylabel() and ax.get_title() == "K"


def test_matrix_without_signs_or_labels(ax):
    image = plots.matrix(ax, np.ones((40, 2)), rows=[str(i) for i in range(40)])
    assert image.get_cmap().name == "cividis"
    assert "39" not in [t.get_text() for t in ax.get_yticklabels()]     # 40 labels are too many


def test_spectrum(ax):
    plots.spectrum(ax, np.array([2.0, 1.0, 1.0, 0.0]))
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), [2, 1, 1])   # a log scale has no 0
    assert len(ax.collections) == 1 and ax.get_legend() is None         # nothing is left out
    shares = [float(t.get_text().split()[0]) for t in ax.texts]
    np.testing.assert_allclose(shares, [66.7, 83.3, 100])               # 4, 5 and 6 of 6; 3 digits
    assert ax.get_yscale() == "log" and ax.get_xlabel() and ax.get_ylabel()


def test_embedding(ax):
    scores = np.array([[0.0, 1.0], [5.0, 1.0], [0.1, 1.1]])
    plots.embedding(ax, scores, labels=["near", "far", "close"], most=1)
    np.testing.assert_array_equal(ax.collections[0].get_offsets(), scores)
    assert [t.get_text() for t in ax.texts] == ["far"]


def test_labels_do_not_overlap():
    """Twelve points in a heap: those labels that have room stand apart, in the axes; most have."""
    figure, ax = plt.subplots(layout="constrained")
    rng = np.random.default_rng(0)
    names = [f"label {i}" for i in range(12)]
    plots.embedding(ax, rng.standard_normal((12, 2)) * [1, 0.3], labels=names)
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in ax.texts]
    assert 9 <= len(boxes) == len({text.get_text() for text in ax.texts} & set(names))
    for i, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:i])
        assert all(ax.bbox.padded(3).contains(*corner) for corner in box.corners())
    plots.embedding(ax, np.zeros((3, 2)), labels=["a" * 20] * 3)       # one on another: no crash


def test_embedding_of_one_component(ax):
    plots.embedding(ax, np.array([[1.0], [2.0]]), labels=["a", "b"])
    np.testing.assert_array_equal(ax.collections[0].get_offsets(), [[1, 0], [2, 0]])
    assert ax.get_ylabel() == "" and not len(ax.get_yticks())           # none is invented


def test_what_is_kept_is_marked(ax):
    plots.spectrum(ax, np.array([4.0, 2.0, 1.0, 1e-20]), kept=1)
    kept, left = (points.get_offsets()[:, 1].tolist() for points in ax.collections)
    assert (kept, left) == ([4], [2, 1])
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["kept: 1", "left out: 2"]


@pytest.mark.parametrize("sigma", [
    np.ones(30), 1.0 - 1e-3 * np.arange(25.0), np.exp(-np.arange(40.0) / 2), [1.0, 1.0], [1.0]])
def test_percentages_do_not_overlap(sigma):
    figure, ax = plt.subplots(figsize=(4, 3), layout="constrained")
    plots.spectrum(ax, np.asarray(sigma))
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in ax.texts]
    assert boxes
    for i, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:i])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("scale", [1e-307, 1e-300, 1e-150, 1e-5, 1.0, 1e8, 1e150, 1e300])
def test_every_scale(scale):
    """The picture is that of scale 1, with the unit beside it."""
    K = np.array([[1.5, -3.0, 2.0], [0.0, 1.0, 1.0]])
    H_e, sigma, H_r = dual.solve(K)
    figure = plots.overview(K * scale, sigma * scale, K @ H_r * scale, K.T @ H_e * scale)
    figure.draw_without_rendering()
    axes = figure.axes[:4]
    unit = "" if scale == 1.0 else f" in 1e{round(np.log10(scale))}"
    np.testing.assert_allclose(axes[0].images[0].get_array(), K, rtol=1e-14)
    np.testing.assert_allclose(axes[1].lines[0].get_ydata(), sigma, rtol=1e-12)
    np.testing.assert_allclose(axes[2].collections[0].get_offsets(), K @ H_r, rtol=0, atol=1e-12)
    assert axes[0].get_title() == "K" + unit and axes[2].get_xlabel() == "component 1" + unit
    shares = [float(text.get_text().split()[0]) for text in axes[1].texts]
    np.testing.assert_allclose(shares, 100 * np.cumsum(sigma ** 2) / np.sum(sigma ** 2), rtol=1e-2)


SETTING = """if True:
    import numpy as np, matplotlib.pyplot as plt
    from ksvd_ref.course import plots
    plt.rcParams[%r] = True
    K = np.array([[2.0, 1.0], [0.0, 1.0]])
    plots.save("x.png", K, np.ones(2), K, K, rows=["東京", "$x_1$ %%\\n\\x1b"],
               columns=["a_b", "c" * 100], title="a_b $ %%")
    assert plt.rcParams[%r] is True"""


@runs(*(("-c", SETTING % (name, name)) for name in ("text.usetex", "axes.unicode_minus")))
def test_the_readers_settings_do_no_harm(ran):
    folder, status, out, err = ran
    assert (status, out, err) == (
        0, "", "ksvd-ref: the font lacks letters of the labels, boxes stand for them\n")
    assert (folder / "x.png").stat().st_size > 10_000


def test_the_figure_says_which_labels_have_no_room():
    rng = np.random.default_rng(0)
    K = rng.standard_normal((40, 3))
    figure = plots.overview(K, np.ones(3), K, K[:3], rows=[f"row {n}" for n in range(40)],
                            columns="abc", title="one\ntwo")
    assert "labelled" in figure.axes[2].get_title() and "of 40" in figure.axes[2].get_title()
    assert "labelled" not in figure.axes[3].get_title()
    assert figure.get_suptitle() == "one\ntwo"


@pytest.mark.parametrize("shape", [(1, 1), (6, 4), (3, 50)])
def test_overview(shape, tmp_path):
    K = np.random.default_rng(0).standard_normal(shape)
    H_e, sigma, H_r = dual.solve(K)
    figure = plots.overview(K, sigma, K @ H_r, K.T @ H_e, title="a title")
    assert len([a for a in figure.axes if a.get_title()]) == 4
    figure.savefig(tmp_path / "x.png")
    assert (tmp_path / "x.png").stat().st_size > 10_000


def test_overview_needs_matplotlib(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"pip install 'ksvd_ref\[lessons\]'"):
        plots.overview(np.eye(2), np.ones(2), np.eye(2), np.eye(2))
