"""The templates of this package: pages of HTML, whose values are escaped, and cards of Markdown."""

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape


def render(template: str, **values: Any) -> str:
    environment = Environment(
        loader=PackageLoader("pyserini_ance", "reports"),
        autoescape=select_autoescape(enabled_extensions=("html.j2",), default=False),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    return environment.get_template(template).render(values)
