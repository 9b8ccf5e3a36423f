"""The pictures of studies: panels with titles and units, as PNG and SVG, in colours for the colour-blind."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pyserini_ance.reports.run_history import COLOURS, LINES, SMOOTH_SHARE, STYLE, Series, running_mean

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PANEL_INCHES, COLUMNS, DOTS_PER_INCH = (5.2, 3.9), 3, 150
MARKERS = "os^Dv*PX"
MOST_INSIDE = 6  # names of a legend among the lines


class Line(NamedTuple):
    """The x and y of a line and, for a band around it, its lower and upper y."""

    x: Sequence[float]
    y: Sequence[float]
    lower: Sequence[float] = ()
    upper: Sequence[float] = ()


def lines_of(rows: Sequence[Mapping[str, Any]], name: str, *keys: str) -> dict[str, Line]:
    """The lines of rows by the name that a row has; `keys` are those of Line's fields. A row with None has no
    point."""
    found: dict[str, Line] = {}
    for row in rows:
        if all(row.get(key) is not None for key in keys):
            line = found.setdefault(row[name], Line([], [], [], []))
            for values, key in zip(line, keys, strict=False):
                values.append(row[key])  # type: ignore[attr-defined]
    return found


def smooth(series: Series) -> Line:
    """The running mean of a series of steps."""
    y = running_mean(np.array(series.y, float), max(1, len(series.y) // SMOOTH_SHARE))
    return Line(series.x, y.tolist())


@dataclass(frozen=True)
class Panel:
    """One plot of a picture: `draw` is called with its axes."""

    title: str
    x_label: str
    y_label: str
    draw: Callable[["Axes"], None]


def save(title: str, panels: Sequence[Panel], folder: Path, name: str) -> list[Path]:
    """Draw the panels side by side into `name`.png and `name`.svg; return the files.

    Raises RuntimeError without matplotlib.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    columns = 2 if len(panels) == 4 else min(COLUMNS, len(panels))
    rows = math.ceil(len(panels) / columns)
    width, height = PANEL_INCHES
    with rc_context({**STYLE, "axes.titlesize": 10, "axes.axisbelow": True}):
        figure = Figure(figsize=(columns * width, rows * height + 0.4), layout="constrained")
        figure.suptitle(title)
        grid = figure.subplots(rows, columns, squeeze=False)
        for axes, panel in zip(grid.flat, panels, strict=False):
            panel.draw(axes)
            axes.set(title=panel.title, xlabel=panel.x_label, ylabel=panel.y_label)
            if (names := len(axes.get_legend_handles_labels()[1])) > 1:
                # Bars, and many lines, leave no room for a legend among them.
                is_full = axes.patches or names > MOST_INSIDE
                axes.legend(**({"loc": "upper left", "bbox_to_anchor": (1, 1)} if is_full else {}))
        for axes in grid.flat[len(panels) :]:
            axes.remove()
        files = [folder / f"{name}.{ending}" for ending in ("png", "svg")]
        for file in files:
            about = {"Date": None, "Creator": None} if file.suffix == ".svg" else None
            figure.savefig(file, dpi=DOTS_PER_INCH, metadata=about)
    return files


def style(index: int) -> dict[str, Any]:
    """Colour, dash and marker of the line or the points number `index`."""
    return {
        "color": COLOURS[index % len(COLOURS)],
        "linestyle": LINES[index // len(COLOURS) % len(LINES)],
        "marker": MARKERS[index % len(MARKERS)],
    }


def lines(of: Mapping[str, Line], *, points: bool = True, log_x: bool = False) -> Callable[["Axes"], None]:
    """Lines by name; with `points`, a mark at each value."""

    def draw(axes: "Axes") -> None:
        for index, (name, line) in enumerate(of.items()):
            look = style(index) | ({} if points else {"marker": ""})
            axes.plot(line.x, line.y, label=name, linewidth=1.4, markersize=4, **look)
            if len(line.lower):
                axes.fill_between(
                    line.x, line.lower, line.upper, color=look["color"], alpha=0.18, linewidth=0
                )
        if log_x:
            axes.set_xscale("log")

    return draw


def heights(
    rows: Sequence[Mapping[str, Any]], group: str, name: str, value: str, scale: float = 1
) -> dict[str, dict[str, float]]:
    """The bars, or cells, of rows: by the group and the name that a row has; None has no bar."""
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        height = math.nan if row[value] is None else scale * row[value]
        found.setdefault(row[group], {})[row[name]] = height
    return found


def bars(
    groups: Mapping[str, Mapping[str, float]], *, stacked: bool = False, log_y: bool = False
) -> Callable[["Axes"], None]:
    """Bars of the named values of each group, side by side or stacked; a missing value has no bar."""

    def draw(axes: "Axes") -> None:
        import pandas as pd

        names = list(dict.fromkeys(name for values in groups.values() for name in values))
        frame = pd.DataFrame([[of.get(name, np.nan) for name in names] for of in groups.values()])
        look = {"width": 0.8, "edgecolor": "white", "linewidth": 0.5, "color": COLOURS, "legend": False}
        if names:
            frame.set_axis(names, axis=1).plot.bar(ax=axes, stacked=stacked, logy=log_y, **look)
        for index, drawn in enumerate(axes.containers):  # a hatch beyond the seventh colour
            for bar in drawn:
                bar.set_hatch(("", "//", "..", "xx")[index // len(COLOURS) % 4])
        turned = {"rotation": 20, "ha": "right"} if max(map(len, groups), default=0) > 10 else {"rotation": 0}
        axes.set_xticks(range(len(groups)), list(groups), **turned)
        axes.grid(axis="x", visible=False)

    return draw


def points(
    of: Mapping[str, Line], *, log: bool = False, emphasized: Collection[str] = ()
) -> Callable[["Axes"], None]:
    """The points (x, y) of each name; the marks of some names are larger and on top."""

    def draw(axes: "Axes") -> None:
        for index, (name, line) in enumerate(of.items()):
            is_large = name in emphasized
            look = style(index) | {"linestyle": "", "markersize": 9 if is_large else 4, "alpha": 0.8}
            axes.plot(line.x, line.y, label=name, zorder=2 + is_large, **look)
        if log:
            axes.set(xscale="log", yscale="log")

    return draw
