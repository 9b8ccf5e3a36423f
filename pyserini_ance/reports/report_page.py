"""The page of a report: HTML that opens without network or scripts, for light and dark, phone and desktop.

Every function escapes the texts that it is given; what it returns is HTML.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from pyserini_ance.evaluation.tables import cell_text
from pyserini_ance.reports.report_plots import unique_ids

NO_NETWORK = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
# Lines and bars: Okabe and Ito's colours, which colour-blind readers tell apart, and lighter ones for dark.
CSS = """
:root { color-scheme: light dark; --ground: #fff; --ink: #1c1f24; --muted: #5b626d; --rule: #e2e5e9;
  --soft: #f5f6f8; --c0: #0072b2; --c1: #d55e00; --c2: #009e73; --c3: #cc79a7; --c4: #b57f00;
  --c5: #56b4e9; --c6: #6b7280; }
@media (prefers-color-scheme: dark) { :root { --ground: #14161a; --ink: #e3e6ea; --muted: #9aa2ad;
  --rule: #2b3037; --soft: #1c1f25; --c0: #5db4ea; --c1: #f0854a; --c2: #2fc49c; --c3: #e3a3c6;
  --c4: #e8b84a; --c5: #8fa8f0; --c6: #a5adb8; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink); -webkit-text-size-adjust: 100%;
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 36px 20px 64px; }
h1 { font-size: 25px; font-weight: 600; line-height: 1.25; margin: 0 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 17px; font-weight: 600; margin: 44px 0 14px; padding-top: 14px;
  border-top: 1px solid var(--rule); }
h3 { font-size: 15px; font-weight: 600; margin: 26px 0 8px; }
p { margin: 8px 0; max-width: 75ch; overflow-wrap: anywhere; }
.lead, .note, figcaption span, .legend, dt { color: var(--muted); }
.note, .legend { font-size: 13.5px; }
.warning { border-left: 3px solid var(--c1); padding-left: 12px; }
dl { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: 5px 20px; margin: 10px 0; }
dd { margin: 0; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; margin: 12px 0; }
table { border-collapse: collapse; font-size: 14px; font-variant-numeric: tabular-nums; }
th, td { padding: 5px 18px 5px 0; text-align: left; vertical-align: top; white-space: nowrap; }
th { font-weight: 500; color: var(--muted); border-bottom: 1px solid var(--rule); }
td { border-bottom: 1px solid var(--rule); }
th:last-child, td:last-child { padding-right: 2px; }
td.long { white-space: normal; min-width: 16em; }
tr.result td { font-weight: 600; }
.number { text-align: right; }
.legend { margin: 10px 0; padding-left: 18px; }
.plots { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 340px), 1fr));
  gap: 0 30px; margin: 18px 0; }
figure { margin: 0 0 30px; min-width: 0; max-width: 520px; display: grid; grid-row: span 2;
  grid-template: subgrid / minmax(0, 1fr); align-items: start; row-gap: 6px; }
figcaption { font-size: 13.5px; line-height: 1.4; }
figcaption b { display: block; font-size: 15px; font-weight: 600; }
svg { display: block; width: 100%; height: auto; overflow: visible; stroke-linejoin: round;
  font-family: inherit; }
code, pre { font: 13px/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
pre { background: var(--soft); padding: 12px 14px; overflow-x: auto; border-radius: 4px; }
details { margin: 12px 0; }
summary { cursor: pointer; color: var(--muted); }
@media (max-width: 560px) { main { padding: 24px 16px 48px; }
  dl { grid-template-columns: minmax(0, 1fr); gap: 0; } dd { margin-bottom: 8px; } }
"""


@dataclass
class Section:
    """A part of the page: its heading, and what it has so far."""

    heading: str
    parts: list[str] = field(default_factory=list)
    plots: list[tuple[str, str, str]] = field(default_factory=list)

    def plot(self, title: str, note: str, content: str) -> None:
        """Add a plot, or a small table; those of a section come after its other parts, next to one
        another."""
        self.plots.append((title, note, content))

    def add(self, *parts: str) -> None:
        self.parts += parts


def page(title: str, lead: str, sections: Iterable[Section]) -> str:
    """The whole document; empty sections are left out."""
    body = [f"<h1>{escape(title)}</h1>", f'<p class="lead">{escape(lead)}</p>']
    number = 0
    for section in sections:
        figures = []
        for name, note, content in section.plots:
            number += 1
            figures.append(_figure(name, note, unique_ids(content, f"f{number}-")))
        plots = [f'<div class="plots">{"".join(figures)}</div>'] if figures else []
        if section.parts or plots:
            body += [f"<section><h2>{escape(section.heading)}</h2>", *section.parts, *plots, "</section>"]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{NO_NETWORK}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<title>{escape(title)}</title>\n<link rel="icon" href="data:,">\n<style>{CSS}</style>\n</head>\n'
        "<body><main>\n" + "\n".join(body) + "\n</main></body>\n</html>\n"
    )


def _figure(title: str, note: str, content: str) -> str:
    caption = f"<b>{escape(title)}</b>" + (f"<span>{escape(note)}</span>" if note else "")
    shown = content.replace("<svg", f'<svg role="img" aria-label="{escape(title)}"', 1)
    return f"<figure><figcaption>{caption}</figcaption>{shown}</figure>"


def subheading(text: str) -> str:
    return f"<h3>{escape(text)}</h3>"


def paragraph(text: str, kind: str = "") -> str:
    """`kind`: `note` or `warning`."""
    return f'<p class="{kind}">{escape(text)}</p>' if kind else f"<p>{escape(text)}</p>"


def legend_list(lines: Iterable[str]) -> str:
    """The lines below a table."""
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f'<ul class="legend">{items}</ul>' if items else ""


def definitions(values: Mapping[str, str]) -> str:
    """Names and their values; empty values are left out."""
    shown = ((name, value) for name, value in values.items() if value)
    return f"<dl>{''.join(f'<dt>{escape(n)}</dt><dd>{escape(v)}</dd>' for n, v in shown)}</dl>"


def preformatted(text: str) -> str:
    """A text as it is, such as a command."""
    return f"<pre>{escape(text)}</pre>"


def folded(summary: str, content: str) -> str:
    """HTML content that is folded below its summary."""
    return f"<details><summary>{escape(summary)}</summary>{content}</details>"


def table(
    rows: Sequence[Mapping[str, Any]], columns: Sequence[str], result: str = "", long: Sequence[str] = ()
) -> str:
    """An HTML table with the values as in our Markdown tables, whole numbers with commas.

    Columns without any value are left out. The row whose first value is `result` is emphasized; the columns
    `long` break their lines.
    """
    columns = [column for column in columns if any(row.get(column) is not None for row in rows)]
    numeric = {column for column in columns if all(_is_number(row.get(column)) for row in rows)}

    def cell(tag: str, column: str, text: str) -> str:
        kind = "number" if column in numeric else "long" if column in long else ""
        return f"<{tag}{f' class="{kind}"' if kind else ''}>{escape(text)}</{tag}>"

    head = "".join(cell("th", column, column) for column in columns)
    lines = []
    for row in rows:
        values = (cell("td", column, _text(row.get(column), column)) for column in columns)
        is_result = bool(result) and row.get(columns[0]) == result
        lines.append(f"<tr{' class="result"' if is_result else ''}>{''.join(values)}</tr>")
    return f'<div class="scroll"><table><tr>{head}</tr>{"".join(lines)}</table></div>'


def _is_number(value: Any) -> bool:
    """Whether a value is a number, one in words (`12.5%`, `+0.25`), or missing."""
    return not isinstance(value, str) or bool(re.fullmatch(r"[-+]?[\d.,]*%?", value))


def _text(value: Any, column: str) -> str:
    return f"{value:,}" if isinstance(value, int) else cell_text(value, column)
