"""The plots of reports, drawn by matplotlib as SVG."""

import io
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pyserini_ance.reports.run_history import Series

# Told apart by the colour-blind (Okabe and Ito 2008, Color Universal Design).
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
LINES: tuple[Any, ...] = ("-", "--", ":", "-.", (0, (5, 1, 1, 1, 1, 1)))
MAX_POINTS = 400  # of a line; of a longer one, every second point is drawn, or every third, ...
SMOOTH_SHARE = 25  # a running mean is over 1/25 of the points
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
    y_label: str,
    *,
    stages: Sequence[float] = (),
    marks: Sequence[float] = (),
    smooth: bool = False,
    points: bool = False,
) -> str:
    """Lines over the steps of all stages, as an SVG element for a page.

    `stages`: x of the starts of stages. `marks`: x of refreshes. `smooth`: a running mean, with the values
    pale behind it. `points`: with a dot for each value.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(STYLE):
        figure = Figure(figsize=(4.4, 2.8), layout="constrained")
        axes = figure.subplots()
        axes.set(xlabel="step", ylabel=y_label)
        for start in stages:
            axes.axvline(start, color="black", linewidth=0.8, alpha=0.5, linestyle=":")
        for refresh in marks:
            axes.axvline(refresh, ymax=0.05, color="black", linewidth=1.4)
        for number, (name, line) in enumerate(lines.items()):
            colour = COLOURS[number % len(COLOURS)]
            x, y = np.array(line.x, float), np.array(line.y, float)
            every = math.ceil(len(y) / MAX_POINTS) or 1
            drawn = np.isnan(y) | (np.arange(len(y)) % every == 0)  # the line stays interrupted at a NaN
            if smooth:
                axes.plot(x[drawn], y[drawn], color=colour, linewidth=0.7, alpha=0.3)
                y = running_mean(y, max(1, len(y) // SMOOTH_SHARE))
            style: dict[str, Any] = {"marker": "o", "markersize": 3.4} if points else {}
            style |= {"linestyle": LINES[number % len(LINES)], "linewidth": 1.3}
            axes.plot(x[drawn], y[drawn], color=colour, label=name, **style)
        if len(lines) > 1:
            figure.legend(loc="outside upper left", ncols=2)
        file = io.StringIO()
        figure.savefig(file, format="svg", metadata={"Date": None})
    text = file.getvalue()
    return text[text.index("<svg") :]


def running_mean(y: np.ndarray, width: int) -> np.ndarray:
    """The mean of each value (n,) and the `width` - 1 before it in its stage; NaN stays."""
    import pandas as pd

    values = pd.Series(y)
    of_stages = values.groupby(values.isna().cumsum())
    return of_stages.rolling(width, min_periods=1).mean().where(values.notna().to_numpy()).to_numpy()
