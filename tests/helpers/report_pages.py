"""Read report pages: their tables, the points of their plots, and what a headless browser makes of them."""

import html
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
WIDTHS = {"phone": 390, "desktop": 1280}
# Runs before the page, and notes what goes wrong in it.
LISTENER = """<script>window.problems = [];
addEventListener("error", event => problems.push(event.message || event.target.outerHTML), true);
addEventListener("securitypolicyviolation", event => problems.push("loads " + event.blockedURI));</script>"""
MEASURE = """<pre id="found"></pre><script>
addEventListener("load", () => {
  const found = {};
  for (const frame of document.querySelectorAll("iframe")) {
    const root = frame.contentDocument.documentElement;
    found[frame.id] = {width: root.clientWidth, needed: root.scrollWidth, height: root.scrollHeight,
      plots: frame.contentDocument.querySelectorAll("svg").length, problems: frame.contentWindow.problems};
  }
  document.getElementById("found").textContent = JSON.stringify(found);
});</script>"""


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


def points(svg: str, colour: int = 0) -> list[tuple[float, float]]:
    """The points of the full line of a colour, in the units of the axes: read as one does, by the ticks."""
    svg = re.split(r'id="[^"]*legend_1"', svg)[0]
    path = re.findall(rf'<path d="([^"]*)"[^>]*style="fill: none;[^"]*stroke: var\(--c{colour}\)[^"]*"', svg)[
        -1
    ]
    corners = [tuple(map(float, pair)) for pair in re.findall(r"[ML] (\S+) (\S+)", path)]
    (x_scale, x_zero), (y_scale, y_zero) = _axis(svg, "x"), _axis(svg, "y")
    return [(x * x_scale + x_zero, y * y_scale + y_zero) for x, y in corners]


def _axis(svg: str, axis: str) -> tuple[float, float]:
    """Scale and zero of an axis, from its first and last tick."""
    ticks = re.findall(
        rf'id="[^"]*{axis}tick_\d+".*?<use [^>]*{axis}="([^"]+)".*?>([^<]+)</text>', svg, re.DOTALL
    )
    (first, last) = [
        (float(at), float(label.replace("\N{MINUS SIGN}", "-"))) for at, label in (ticks[0], ticks[-1])
    ]
    scale = (last[1] - first[1]) / (last[0] - first[0])
    return scale, first[1] - first[0] * scale


def external_references(page: str) -> list[str]:
    """What a browser would fetch, or could be led to, other than parts of the page."""
    links = re.findall(r'(?:src|href|action|data|poster)="([^"]*)"', page) + re.findall(
        r"url\(([^)]*)\)", page
    )
    return [link for link in links if not link.startswith(("#", "data:,"))] + re.findall(
        r"@import[^;]*", page
    )


def in_browser(page: str, folder: Path) -> dict[str, dict]:
    """What a headless browser measures of a page at each of WIDTHS; skips without a browser."""
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.skip(f"no browser: install one of {', '.join(BROWSERS)}")
    framed = html.escape(page.replace("<head>", f"<head>{LISTENER}", 1))
    frames = (
        f'<iframe id="{name}" width="{w}" height="800" srcdoc="{framed}"></iframe>'
        for name, w in WIDTHS.items()
    )
    file = folder / "framed.html"
    file.write_text(f"<!DOCTYPE html><body>{''.join(frames)}{MEASURE}</body>", encoding="utf-8")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'browser'}"]
    done = subprocess.run(
        [program, *flags, "--virtual-time-budget=10000", "--dump-dom", file.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
    )
    found = re.search(r'<pre id="found">(.+?)</pre>', done.stdout)
    assert found, f"the browser did not finish: {done.stderr[-1000:]}"
    return json.loads(html.unescape(found[1]))
