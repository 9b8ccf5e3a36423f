"""Fill docs/recipes.md with recipes/README.md, so that the site has the tables of recipes and results."""

import re
from pathlib import Path

README = Path(__file__).parents[2] / "recipes" / "README.md"


def on_page_markdown(markdown: str, *, page, **_) -> str:
    if page.file.src_uri != "recipes.md":
        return markdown
    return localize_links(README.read_text(encoding="utf-8"))


def localize_links(text: str) -> str:
    """Links to docs/ become relative to docs/; links to other files keep their text only."""
    text = text.replace("](../docs/", "](")
    return re.sub(r"\[([^\]]*)\]\((?!https?:|#|guides/|lab-notes/|recipe-reference)[^)]*\)", r"\1", text)
