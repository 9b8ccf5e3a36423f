"""Read report pages: their tables, and the points of their plots."""

import re
from html.parser import HTMLParser


class _Tables(HTMLParser):
    """Collects the cells of all tables."""

    def __init__(self):
        super().__init__()
        self.tables: list[list[list[str]]] = []
        self._cell: list[str] | None = None

    def handle_starttag(self, tag, attributes):
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self._cell = []

    def handle_endtag(self, tag):
        if tag in ("td", "th"):
            self.tables[-1][-1].append("".join(self._cell))
            self._cell = None

    def handle_data(self, data):
        if self._cell is not None:
            self._cell.append(data)


def tables(page: str) -> list[list[list[str]]]:
    """The texts of the cells of each table, header first."""
    parser = _Tables()
    parser.feed(page)
    return parser.tables


def plot(page: str, title: str) -> str:
    """The SVG of the plot of that title."""
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
    ticks = re.findall(
        rf'id="{axis}tick_\d+".*?<use xlink:href[^>]* {axis}="([^"]+)".*?>([^<]+)</text>', svg, re.DOTALL
    )
    (first, last) = [
        (float(at), float(label.replace("\N{MINUS SIGN}", "-"))) for at, label in (ticks[0], ticks[-1])
    ]
    scale = (last[1] - first[1]) / (last[0] - first[0])
    return scale, first[1] - first[0] * scale


def external_references(page: str) -> list[str]:
    """What a browser would fetch, or could be led to, other than parts of the page."""
    links = re.findall(r'(?:src|href|action|data|poster)="([^"]*)"', page)
    links += re.findall(r"url\(([^)]*)\)", page)
    return [link for link in links if not link.startswith(("#", "data:,"))] + re.findall("@import", page)
