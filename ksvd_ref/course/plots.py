"""The figures of the lessons: a matrix, its spectrum, its two embeddings.

ax       Axes of Matplotlib         where to draw
K        (N, M)                     matrix
sigma    (k,)                       singular values, descending
E, R     (N, s), (M, s)             scores of the rows and of the columns, of the s kept

Every function draws into Matplotlib axes that it is given; `overview` makes its own figure. Arrays
are NumPy arrays (backend.to_device first). Matplotlib is imported only when one is drawn.

No equation: figures.
"""
import itertools
import logging
import math
import sys
import warnings

import numpy as np

ROWS, COLUMNS = "#0072B2", "#D55E00"        # Okabe and Ito: row side blue, column side vermilion


def matrix(ax, K, *, rows=None, columns=None, title="K"):
    """Matrix as an image with a colour bar, white at zero if it has both signs; returns the image.

    rows, columns: labels, drawn if there are at most 30. Very large or small entries are drawn in
    units of a power of ten.
    """
    K, unit = _scaled(K)
    top = float(np.abs(K).max())
    signed = K.min() < -1e-9 * top and K.max() > 1e-9 * top             # rounding is no sign
    colours = {"cmap": "RdBu_r", "vmin": -top, "vmax": top} if signed else {"cmap": "cividis"}
    image = ax.imshow(K, aspect="equal" if max(K.shape) < 4 * min(K.shape) else "auto",
                      interpolation="nearest", **colours)
    ax.set(title=title + unit, xlabel="column j", ylabel="row i")
    for axis, labels in ((ax.yaxis, rows), (ax.xaxis, columns)):
        axis.get_major_locator().set_params(integer=True)
        if labels is not None and len(labels) <= 30:
            axis.set_ticks(range(len(labels)), map(_label, labels), fontsize=6)
    ax.tick_params(axis="x", rotation=90 if columns is not None and len(columns) <= 30 else 0)
    ax.figure.colorbar(image, ax=ax, shrink=0.8)
    return image


def spectrum(ax, sigma, *, kept=None, title="Singular values"):
    """Singular values on a log scale, with the cumulative share of their squares at a few.

    kept: so many are filled points, the others are open; all unless told. What is rounding is left
    out, and so is a percentage without room.
    """
    from matplotlib.ticker import LogFormatter
    sigma, unit = _scaled(sigma)
    drawn = sigma[sigma > np.finfo(float).eps * sigma[0]]
    cumulative = np.cumsum(drawn ** 2) / np.sum(drawn ** 2)
    kept = len(drawn) if kept is None else min(kept, len(drawn))
    l = np.arange(1, len(drawn) + 1)
    ax.semilogy(l, drawn, "-", color="black", linewidth=1, zorder=1)
    ax.scatter(l[:kept], drawn[:kept], s=12, color="black", label=f"kept: {kept}")
    if kept < len(drawn):
        ax.scatter(l[kept:], drawn[kept:], s=12, edgecolor="black", color="white",
                   label=f"left out: {len(drawn) - kept}")
        ax.legend(fontsize=7, loc="lower left")
    ax.set(title=title, xlabel="component l", ylabel=r"$\sigma_l$" + unit)
    ax.margins(x=0.18, y=0.15)
    if len(drawn) < 4:
        ax.set_xlim(0.4, len(drawn) + 0.6)
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.yaxis.set_major_formatter(LogFormatter())    # 0.6 and not 6 x 10^-1
    ax.yaxis.set_minor_formatter(LogFormatter())
    some = sorted({1, 2, 3, 5, 10, 20} & set(l.tolist()))
    _annotate(ax, np.stack([l, drawn], axis=1),
              {n - 1: f"{100 * cumulative[n - 1]:.3g} %" for n in some})


def embedding(ax, scores, *, labels=None, color=ROWS, title="", most=12):
    """First two components of scores, E or R, as labelled points; a single one on a line.

    most: so many points, the farthest from the middle, get their label; one that would lie on
    another label or point, wherever it is put, is left out.
    """
    (scores, unit), alone = _scaled(scores), scores.shape[1] == 1
    first = scores[:, 0]
    second = np.zeros_like(first) if alone else scores[:, 1]
    ax.axhline(0, color="0.85", zorder=0)
    ax.axvline(0, color="0.85", zorder=0)
    ax.scatter(first, second, s=14, color=color, alpha=0.8, linewidths=0)
    ax.set(title=title, xlabel="component 1" + unit,
           ylabel="" if alone else "component 2" + unit)
    if alone:
        ax.set_yticks([])                           # there is no second component
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
    """Short, in one line, and not read as a formula."""
    text = "".join(c if c.isprintable() else " " for c in str(text)[:10 * most])
    text = " ".join(text.split())
    return (text if len(text) <= most else f"{text[:most - 9]}…{text[-8:]}").replace("$", r"\$")


def _scaled(A):
    """An array in units of a power of ten, where its size asks for it, and that unit as text.

    >>> _scaled(np.array([2e-300, 1e-300]))
    (array([2., 1.]), ' in 1e-300')
    >>> _scaled(np.array([20.0, -0.5]))
    (array([20. , -0.5]), '')
    """
    A = np.asarray(A, dtype=float)
    top = float(np.abs(A).max(initial=0.0))
    if top == 0.0 or 1e-4 <= top < 1e6:
        return A, ""
    exponent = math.floor(math.log10(top))
    half = exponent // 2                            # 10^-exponent itself may overflow
    return A * 10.0 ** -half * 10.0 ** (half - exponent), f" in 1e{exponent}"


def need():
    """Matplotlib's Figure, or an error that says how to install it."""
    try:
        from matplotlib.figure import Figure
        return Figure
    except ImportError as error:
        raise ImportError("figures need Matplotlib: pip install 'ksvd_ref[lessons]'") from error


def overview(K, sigma, E, R, *, rows=None, columns=None, title=""):
    """A matrix, its spectrum and both embeddings in one figure, not shown: call its `savefig`.

    E and R have the components that are kept; the others of sigma are marked as left out.
    """
    figure = need()(figsize=(10, 8), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.12)
    figure.suptitle("\n".join(_label(line, 100) for line in title.split("\n")), fontsize=11)
    ((top_left, top_right), (low_left, low_right)) = figure.subplots(2, 2)
    matrix(top_left, K, rows=rows, columns=columns)
    spectrum(top_right, sigma, kept=E.shape[1],
             title=r"Singular values, cumulative share of $\sigma^2$")
    for ax, scores, labels, color, name in (
            (low_left, E, rows, ROWS, r"Rows: $E = K H_r = H_e\Sigma$"),
            (low_right, R, columns, COLUMNS, r"Columns: $R = K^\top H_e = H_r\Sigma$")):
        embedding(ax, scores, labels=labels, color=color, title=name)
        if labels is not None and len(ax.texts) < len(labels):
            ax.set_title(f"{name}, {len(ax.texts)} of {len(labels)} labelled", fontsize=10)
    return figure


def save(path, *arrays, **options):
    """Write an `overview`, whatever the reader's Matplotlib is set to; what it warns of, once."""
    need()
    import matplotlib
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    with matplotlib.rc_context(), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        matplotlib.rcdefaults()                     # usetex, fonts and sizes of a matplotlibrc
        overview(*arrays, **options).savefig(path, dpi=150)
    if any("missing from font" in str(warning.message) for warning in warned):
        print("ksvd-ref: the font lacks letters of the labels, boxes stand for them",
              file=sys.stderr)
