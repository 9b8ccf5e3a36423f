"""Read report pages: their tables, and the points of their plots."""

import html
import re


def _inside(tag: str, page: str) -> list[str]:
    return re.findall(rf"<{tag}\b[^>]*>(.*?)</{tag}>", page, re.DOTALL)


def tables(page: str) -> list[list[list[str]]]:
    """The texts of the cells of each table, header first."""

    def cells(row: str) -> list[str]:
        return [html.unescape(re.sub("<[^>]+>", "", cell)) for cell in _inside("t[dh]", row)]

    return [[cells(row) for row in _inside("tr", table)] for table in _inside("table", page)]


def plot(page: str, title: str) -> str:
    found = re.search(rf"<figcaption><b>{re.escape(title)}</b>.*?(<svg.*?</svg>)", page, re.DOTALL)
    assert found, f"no plot {title!r}"
    return found[1]


def points(svg: str, colour: str) -> list[tuple[float, float]]:
    """The points of the last line of a colour, in the units of the axes: read as one does, by the ticks."""
    svg = re.split(r'id="legend_1"', svg)[0]
    lines = re.findall(r'<path d="([^"]*)"[^>]*style="fill: none;[^"]*stroke: (#\w+)', svg)
    path = [path for path, stroke in lines if stroke == colour.lower()][-1]
    corners = [tuple(map(float, pair)) for pair in re.findall(r"[ML] (\S+) (\S+)", path)]
    (x_scale, x_zero), (y_scale, y_zero) = _axis(svg, "x"), _axis(svg, "y")
    return [(x * x_scale + x_zero, y * y_scale + y_zero) for x, y in corners]


def _axis(svg: str, axis: str) -> tuple[float, float]:
    """Scale and zero of an axis, from its first and last tick."""
    tick = rf'(?s)id="{axis}tick_\d+".*?<use xlink:href[^>]* {axis}="([^"]+)".*?>([^<]+)</text>'
    ticks = re.findall(tick, svg)
    ends = [(at, label.replace("\N{MINUS SIGN}", "-")) for at, label in (ticks[0], ticks[-1])]
    first, last = ((float(at), float(label)) for at, label in ends)
    scale = (last[1] - first[1]) / (last[0] - first[0])
    return scale, first[1] - first[0] * scale
