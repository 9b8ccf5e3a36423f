"""The plots of reports and comparisons, drawn by matplotlib: SVG for a page, or a file of curves."""

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pyserini_ance.reports.run_history import Series

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Told apart by the colour-blind (Okabe and Ito 2008, Color Universal Design).
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
LINES: tuple[Any, ...] = ("-", "--", ":", "-.", (0, (5, 1, 1, 1, 1, 1)))
MAX_POINTS = 400  # of a line; a longer one is drawn as the means of as many equal shares of its points
SMOOTH_SHARE = 25  # a running mean is over 1/25 of the points
SIZE_INCHES = (4.4, 2.8)
NAME_CHARACTERS = 32
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # texts stay texts
    "svg.hashsalt": "report",  # equal plots have equal ids
    "path.snap": False,  # values are drawn where they are, not at the nearest pixel
    "font.size": 9,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def line_plot(
    lines: Mapping[str, Series],
    x_label: str,
    y_label: str,
    *,
    marks: Sequence[float] = (),
    stages: Sequence[float] = (),
    bands: Mapping[str, tuple[Series, Series]] | None = None,
    smooth: bool = False,
    points: bool = False,
    from_zero: bool = False,
) -> str:
    """Lines over one axis, as SVG.

    `marks`: x of refreshes. `stages`: x of the starts of stages. `bands`: (lower, upper) lines by name of a
    line. `smooth`: also a running mean, with the values pale behind it. `points`: with a dot for each value.
    `from_zero`: the y axis includes 0.
    """
    with _style():
        figure, axes = _figure(x_label, y_label)
        for start in stages:
            axes.axvline(start, color="black", linewidth=0.8, alpha=0.5, linestyle=":")
        for refresh in marks:
            axes.axvline(refresh, ymax=0.05, color="black", linewidth=1.4)
        for number, (name, line) in enumerate(lines.items()):
            style: dict[str, Any] = {"color": COLOURS[number % len(COLOURS)], "linewidth": 1.3}
            x, y = thinned(line)
            if bands and name in bands:
                low, high = bands[name]
                axes.fill_between(low.x, low.y, high.y, color=style["color"], alpha=0.18, linewidth=0)
            if smooth and len(y) >= 2 * SMOOTH_SHARE:
                axes.plot(x, y, color=style["color"], linewidth=0.7, alpha=0.3)
                y = running_mean(y, len(y) // SMOOTH_SHARE)
            if points:
                style |= {"marker": "o", "markersize": 3.4}
            label = name[:NAME_CHARACTERS] if line.x else None
            axes.plot(x, y, label=label, linestyle=LINES[number % len(LINES)], **style)
        if from_zero:
            low_y, high_y = axes.get_ylim()
            axes.set_ylim(min(0.0, low_y), high_y * 1.05)
        return _svg(figure, len(lines) > 1)


def stacked_shares(lines: Mapping[str, Series], x_label: str, y_label: str) -> str:
    """One bar for each x, of the shares of the lines' values in their sum, as SVG."""
    import pandas as pd

    columns = {name: pd.Series(line.y, line.x).groupby(level=0).sum() for name, line in lines.items()}
    heights = pd.DataFrame(columns).fillna(0.0).sort_index()
    shares = heights.div(heights.sum(axis=1).clip(lower=1), axis=0)
    shares.index = shares.index.map("{:.0f}".format)
    with _style():
        figure, axes = _figure(x_label, y_label)
        shares.plot.bar(ax=axes, stacked=True, legend=False, width=0.72, color=COLOURS, rot=0)
        every = math.ceil(len(shares) / 8)
        axes.set_xticks(range(0, len(shares), every), shares.index[::every])
        axes.set(xlabel=x_label, ylim=(0, 1))
        return _svg(figure, True)


def bar_plot(values: Mapping[str, float], x_label: str) -> str:
    """Horizontal bars, the longest on top, as SVG."""
    with _style():
        figure, axes = _figure(x_label, "")
        names = sorted(values, key=lambda name: values[name])
        axes.barh(
            [name[:NAME_CHARACTERS] for name in names], [values[name] for name in names], color=COLOURS[0]
        )
        return _svg(figure, False)


def plot_curves(curves: "Mapping[str, pd.DataFrame]", path: Path) -> None:
    """Plot dev curves over steps and, next to it, over minutes to a file, in the format of its ending.

    `curves`: frames as `compare.mean_curves` returns them. Runs without dev measures have none.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.5), layout="constrained")
    by_steps, by_minutes = figure.subplots(1, 2, sharey=True)
    drawn = {label: curve for label, curve in curves.items() if len(curve)}
    for number, (label, curve) in enumerate(drawn.items()):
        style = {"color": COLOURS[number % len(COLOURS)], "marker": "o", "markersize": 3, "label": label}
        style["linestyle"] = LINES[number // len(COLOURS) % len(LINES)]
        by_steps.plot(curve.steps, curve.value, **style)
        by_minutes.plot(curve.seconds / 60, curve.value, **style)
    measures = dict.fromkeys(measure for curve in drawn.values() for measure in curve.measure)
    by_steps.set(xlabel="steps of all stages", ylabel="dev " + ", ".join(measures))
    by_minutes.set(xlabel="minutes: steps, checkpoints, refreshes, waiting; not evaluation")
    for axes in (by_steps, by_minutes):
        axes.grid(alpha=0.3)
    figure.legend(*by_steps.get_legend_handles_labels(), loc="outside upper center", ncols=4, frameon=False)
    figure.savefig(path)


def thinned(line: Series) -> tuple[np.ndarray, np.ndarray]:
    """At most about MAX_POINTS points of a line: (n,) x and y, means of equal shares of a longer line's
    points."""
    x, y = np.array(line.x, float), np.array(line.y, float)
    if len(x) <= MAX_POINTS:
        return x, y
    shares = np.array_split(np.arange(len(x)), MAX_POINTS)
    # A share that holds the end of a stage has no value, so that the line is interrupted there.
    return np.array([x[share].mean() for share in shares]), np.array([y[share].mean() for share in shares])


def running_mean(y: np.ndarray, width: int) -> np.ndarray:
    """The mean of each value (n,) and the `width` - 1 before it in its stage; NaN stays."""
    means = np.full(len(y), np.nan)
    begin = 0
    for i, value in enumerate(y):
        if math.isnan(value):
            begin = i + 1
        else:
            means[i] = y[max(begin, i - width + 1) : i + 1].mean()
    return means


def _style() -> Any:
    from matplotlib import rc_context

    return rc_context(STYLE)


def _figure(x_label: str, y_label: str) -> "tuple[Figure, Axes]":
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE_INCHES, layout="constrained")
    axes = figure.subplots()
    axes.set(xlabel=x_label, ylabel=y_label)
    return figure, axes


def _svg(figure: "Figure", has_legend: bool) -> str:
    """The figure as an SVG element for a page."""
    if has_legend:
        figure.legend(loc="outside upper left", ncols=2)
    file = io.StringIO()
    figure.savefig(file, format="svg", metadata={"Date": None})
    text = file.getvalue()
    return text[text.index("<svg") :]
