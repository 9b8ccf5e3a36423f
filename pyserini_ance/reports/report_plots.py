"""The plots of a report: matplotlib draws them, as SVG whose colours the page chooses, for light and dark."""

import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pyserini_ance.reports.run_history import Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INSTALL = "pip install 'pyserini_ance[report]'"
WIDTH_INCHES, HEIGHT_INCHES = 4.4, 2.6
# Left, bottom, right, top: the top has LEGEND_INCHES more for each two lines, bars have names on the left.
MARGINS_INCHES, BAR_MARGINS_INCHES = (0.6, 0.46, 0.08, 0.1), (2.05, 0.46, 0.12, 0.06)
LEGEND_COLUMNS, LEGEND_INCHES = 2, 0.18
MAX_POINTS = 400  # of a line; a longer one is drawn as the means of as many equal shares of its points
SMOOTH_SHARE = 25  # a running mean is over 1/25 of the points
NAME_CHARACTERS = 30
# What matplotlib draws in these colours has the page's custom property: `--c0` to `--c6` for lines, and
# `currentColor` for axes and texts. The values themselves are never seen.
INK = "#010101"
COLOURS = tuple(f"#0{number}0a0b" for number in range(7))
DASHES: tuple[str | tuple[int, tuple[float, ...]], ...] = ("-", "--", ":", "-.", (0, (5, 1, 1, 1, 1, 1)))
LEGEND: dict[str, Any] = {
    "loc": "lower left",
    "bbox_to_anchor": (0, 1),
    "ncols": LEGEND_COLUMNS,
    "frameon": False,
    "fontsize": 8.5,
    "borderaxespad": 0.2,
    "handlelength": 1.8,
    "columnspacing": 1.2,
    "labelspacing": 0.3,
}
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # texts stay texts, in the page's font
    "svg.hashsalt": "report",
    "path.snap": False,  # values are drawn where they are, not at the nearest point
    "font.family": "sans-serif",
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.formatter.limits": (-3, 5),
}


def check_installed() -> None:
    """Raise RuntimeError with the command that installs matplotlib if it is missing."""
    try:
        import matplotlib  # noqa: F401 - what follows needs it
    except ImportError as error:
        raise RuntimeError(f"a report needs matplotlib: {INSTALL}") from error


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

    def draw(axes: "Axes") -> None:
        for x in stages:
            axes.axvline(x, color=INK, linewidth=0.8, alpha=0.5, linestyle=(0, (1, 2)))
        for x in marks:
            axes.axvline(x, ymax=0.05, color=INK, linewidth=1.4)
        for index, (name, line) in enumerate(lines.items()):
            if line.x:
                _draw_line(axes, index, name, line, smooth, points)
            if bands and name in bands:
                lower, upper = bands[name]
                colour = COLOURS[index % len(COLOURS)]
                axes.fill_between(lower.x, lower.y, upper.y, color=colour, alpha=0.18, linewidth=0)
        if from_zero:
            low, high = axes.get_ylim()
            axes.set_ylim(min(0.0, low), high * 1.05)

    return _drawn(draw, x_label, y_label, len(lines))


def stacked_shares(lines: Mapping[str, Series], x_label: str, y_label: str) -> str:
    """One bar for each x, of the shares of the lines' values in their sum, as SVG."""

    def draw(axes: "Axes") -> None:
        xs = sorted({x for line in lines.values() for x in line.x})
        heights = np.array(
            [
                [sum(y for at, y in zip(line.x, line.y, strict=True) if at == x and y == y) for x in xs]
                for line in lines.values()
            ]
        )
        shares = heights / np.maximum(heights.sum(0), 1)
        bottoms = np.zeros(len(xs))
        for index, (name, share) in enumerate(zip(lines, shares, strict=True)):
            colour = COLOURS[index % len(COLOURS)]
            axes.bar(range(len(xs)), share, 0.72, bottoms, color=colour, label=_short(name), linewidth=0)
            bottoms += share
        shown = range(0, len(xs), math.ceil(len(xs) / 8))
        axes.set_xticks(list(shown), [f"{xs[position]:.0f}" for position in shown])
        axes.set_ylim(0, 1)

    return _drawn(draw, x_label, y_label, len(lines))


def bar_plot(values: Mapping[str, float], x_label: str) -> str:
    """Horizontal bars, the longest on top, as SVG."""

    def draw(axes: "Axes") -> None:
        names = sorted(values, key=lambda name: values[name])
        axes.barh([_short(name) for name in names], [values[n] for n in names], 0.66, color=COLOURS[0])
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)

    return _drawn(draw, x_label, "", height=max(1.6, 0.6 + 0.21 * len(values)))


def _draw_line(axes: "Axes", index: int, name: str, line: Series, smooth: bool, points: bool) -> None:
    colour, dash = COLOURS[index % len(COLOURS)], DASHES[index % len(DASHES)]
    style: dict[str, Any] = {"color": colour, "label": _short(name)}
    x, y = thinned(line)
    if points:
        axes.plot(x, y, linestyle=dash, linewidth=1.3, marker="o", markersize=3.4, **style)
    elif smooth and len(y) >= 2 * SMOOTH_SHARE:
        axes.plot(x, y, linewidth=0.7, alpha=0.3, color=colour)
        axes.plot(x, running_mean(y, len(y) // SMOOTH_SHARE), linestyle=dash, linewidth=1.5, **style)
    else:
        axes.plot(x, y, linestyle=dash, linewidth=1.3, **style)


def thinned(line: Series) -> tuple[np.ndarray, np.ndarray]:
    """At most about MAX_POINTS points of a line: (n,) x and y, means of equal shares of a longer line's
    points."""
    x, y = np.array(line.x, float), np.array(line.y, float)
    if len(x) <= MAX_POINTS:
        return x, y
    edges = np.linspace(0, len(x), MAX_POINTS + 1).astype(int)
    shares = [slice(*edges[i : i + 2]) for i in range(MAX_POINTS)]
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


def _drawn(
    draw: Callable[["Axes"], None], x_label: str, y_label: str, lines: int = 0, height: float = HEIGHT_INCHES
) -> str:
    """What `draw` draws, with a legend for more than one of `lines`; bars have no label of y."""
    check_installed()
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    left, bottom, right, top = MARGINS_INCHES if y_label else BAR_MARGINS_INCHES
    if lines > 1:
        top += LEGEND_INCHES * math.ceil(lines / LEGEND_COLUMNS)
        height += LEGEND_INCHES * max(0, math.ceil(lines / LEGEND_COLUMNS) - 1)
    with rc_context(STYLE):
        figure = Figure(figsize=(WIDTH_INCHES, height))
        # A constrained layout would find these margins, and draw each plot twice.
        place = (left / WIDTH_INCHES, bottom / height)
        size = (1 - (left + right) / WIDTH_INCHES, 1 - (bottom + top) / height)
        axes = figure.add_axes((*place, *size))
        axes.grid(axis="y" if y_label else "x", color=INK, alpha=0.12, linewidth=0.6)
        axes.set_axisbelow(True)
        draw(axes)
        axes.set(xlabel=x_label, ylabel=y_label)
        if lines > 1:
            axes.legend(**LEGEND)
        return svg(figure)


def _short(name: str) -> str:
    return name if len(name) <= NAME_CHARACTERS else f"{name[: NAME_CHARACTERS - 1]}…"


def svg(figure: "Figure") -> str:
    """The figure as an SVG element for a page: transparent, as wide as its place, in the page's colours.

    Its ids are local: `unique_ids` makes them those of one page.
    """
    file = io.StringIO()
    figure.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = file.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"\s*<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\sxmlns(:xlink)?="[^"]*"', "", text)  # an SVG element in HTML needs none
    text = re.sub(r'(<svg[^>]*?)\s(?:width|height)="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?)\s(?:width|height)="[^"]*"', r"\1", text, count=1)
    text = re.sub(
        r"\s*<defs>\s*<style.*?</style>\s*</defs>", "", text, flags=re.DOTALL
    )  # holds for all pages
    text = re.sub(r"font-family: [^;\"]*; ", "", text)
    text = re.sub(r'="[^"]*"', _two_decimals, text)  # in attributes: labels of ticks keep theirs
    for number, colour in enumerate(COLOURS):
        text = text.replace(colour, f"var(--c{number})")
    return text.replace(INK, "currentColor").strip()


def _two_decimals(attribute: re.Match[str]) -> str:
    return re.sub(r"\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}", attribute[0])


def unique_ids(text: str, prefix: str) -> str:
    """The SVG with `prefix` before each id and each reference to one."""
    text = re.sub(r'\bid="', f'id="{prefix}', text)
    return re.sub(r'(url\(#|href="#)', rf"\g<1>{prefix}", text)
