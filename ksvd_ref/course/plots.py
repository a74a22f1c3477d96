"""The figures of the lessons: a matrix, its spectrum, its two embeddings.

ax       Axes of Matplotlib         where to draw
K        (N, M)                     matrix
sigma    (k,)                       singular values, descending
E, R     (N, s), (M, s)             scores of the rows and of the columns

Every function draws into Matplotlib axes that it is given; `overview` makes its own figure. Arrays
are NumPy arrays (backend.to_device first). Matplotlib is imported only when one is drawn.

No equation: figures.
"""
import itertools

import numpy as np

ROWS, COLUMNS = "#0072B2", "#D55E00"        # Okabe and Ito: row side blue, column side vermilion


def matrix(ax, K, *, rows=None, columns=None, title="K"):
    """Matrix as an image with a colour bar, white at zero if it has both signs; returns the image.

    rows, columns: labels, drawn if there are at most 30.
    """
    top = float(np.abs(K).max())
    signed = K.min() < -1e-9 * top and K.max() > 1e-9 * top             # rounding is no sign
    colours = {"cmap": "RdBu_r", "vmin": -top, "vmax": top} if signed else {"cmap": "cividis"}
    image = ax.imshow(K, aspect="equal" if max(K.shape) < 4 * min(K.shape) else "auto",
                      interpolation="nearest", **colours)
    ax.set(title=title, xlabel="column j", ylabel="row i")
    for axis, labels in ((ax.yaxis, rows), (ax.xaxis, columns)):
        if labels is not None and len(labels) <= 30:
            axis.set_ticks(range(len(labels)), map(_label, labels), fontsize=6)
    ax.tick_params(axis="x", rotation=90 if columns is not None and len(columns) <= 30 else 0)
    ax.figure.colorbar(image, ax=ax, shrink=0.8)
    return image


def spectrum(ax, sigma, *, title="Singular values"):
    """Singular values on a log scale, with the cumulative share of their squares at a few."""
    sigma = np.asarray(sigma)
    kept = sigma[sigma > np.finfo(float).eps * sigma[0]]                  # the rest is rounding
    cumulative = np.cumsum(kept ** 2) / np.sum(kept ** 2)
    ax.semilogy(np.arange(1, len(kept) + 1), kept, "o-", color="black", markersize=3)
    ax.set(title=title, xlabel="component l", ylabel=r"$\sigma_l$")
    ax.margins(x=0.18, y=0.1)
    ax.xaxis.get_major_locator().set_params(integer=True)
    for l in sorted({1, 2, 3, 5, 10, 20} & set(range(1, len(kept) + 1))):
        ax.annotate(f" {100 * cumulative[l - 1]:.3g} %", (l, kept[l - 1]), fontsize=7,
                    xytext=(2, 4), textcoords="offset points")


def embedding(ax, scores, *, labels=None, color=ROWS, title="", most=12):
    """First two components of scores, E or R, as labelled points; a single one against 0.

    most: so many points, the farthest from the middle, get their label; one that would lie on
    another label or point, wherever it is put, is left out.
    """
    first = scores[:, 0]
    second = scores[:, 1] if scores.shape[1] > 1 else np.zeros_like(first)
    ax.axhline(0, color="0.85", zorder=0)
    ax.axvline(0, color="0.85", zorder=0)
    ax.scatter(first, second, s=14, color=color, alpha=0.8, linewidths=0)
    ax.set(title=title, xlabel="component 1", ylabel="component 2")
    ax.margins(0.15)
    if labels is not None:
        far = np.hypot((first - first.mean()) / (first.std() or 1.0),
                       (second - second.mean()) / (second.std() or 1.0))
        some = np.argsort(-far, kind="stable")[:most]
        _annotate(ax, np.stack([first, second], axis=1), {i: _label(labels[i]) for i in some})


def _annotate(ax, points, labels):
    """Each label takes the first free one of sixteen places around its point."""
    from matplotlib.transforms import Bbox
    ax.figure.draw_without_rendering()              # the layout decides where the points lie
    taken = [Bbox.from_bounds(x - 2, y - 2, 4, 4) for x, y in ax.transData.transform(points)]
    places = [(far, x, y) for far, x, y in itertools.product((3, 9), (1, 0, -1), (1, 0, -1))
              if x or y]
    for i, text in labels.items():
        for far, x, y in places:
            note = ax.annotate(text, points[i], fontsize=7, xytext=(far * x, far * y),
                               textcoords="offset points", ha=("center", "left", "right")[x],
                               va=("center", "bottom", "top")[y])
            box = note.get_window_extent()
            if not any(map(box.overlaps, taken)) and all(
                    ax.bbox.contains(*corner) for corner in box.corners()):
                taken.append(box)
                break
            note.remove()


def _label(text, most=20):
    """Short, and not read as a formula."""
    text = str(text)
    return (text if len(text) <= most else text[:most - 1] + "…").replace("$", r"\$")


def overview(K, sigma, E, R, *, rows=None, columns=None, title=""):
    """A matrix, its spectrum and both embeddings in one figure, not shown: call its `savefig`."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("figures need Matplotlib: pip install 'ksvd_ref[lessons]'") from error
    figure = Figure(figsize=(10, 8), layout="constrained")
    figure.suptitle(_label(title, 80))
    ((top_left, top_right), (low_left, low_right)) = figure.subplots(2, 2)
    matrix(top_left, K, rows=rows, columns=columns)
    spectrum(top_right, sigma, title=r"Singular values, cumulative share of $\sigma^2$")
    embedding(low_left, E, labels=rows, color=ROWS, title=r"Rows: $E = K H_r = H_e\Sigma$")
    embedding(low_right, R, labels=columns, color=COLUMNS,
              title=r"Columns: $R = K^\top H_e = H_r\Sigma$")
    return figure
