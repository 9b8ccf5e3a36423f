"""The `data:` sections of the pages are valid, and docs/guides/formats.md has one of every kind."""

import re
from pathlib import Path

import pytest
import yaml

from pyserini_ance.recipe.components import kinds
from pyserini_ance.recipe.load import read_component

ROOT = Path(__file__).parents[2]
FORMATS, OWN_DATA = (ROOT / "docs" / "guides" / name for name in ("formats.md", "own-data.md"))
YAML = re.compile(r"^```yaml\n(.*?)^```$|^cat > \S+ <<'YAML'\n(.*?)^YAML$", re.MULTILINE | re.DOTALL)


def sections(page: Path) -> list[dict]:
    """The `data:` sections of a page's YAML, in its blocks and in the files that its commands write."""
    blocks = [written or shown for shown, written in YAML.findall(page.read_text(encoding="utf-8"))]
    parts = [part for block in blocks for part in yaml.safe_load_all(block)]
    return [part["data"] for part in parts if isinstance(part, dict) and "data" in part]


@pytest.mark.parametrize("page", [ROOT / "README.md", FORMATS, OWN_DATA], ids=lambda page: page.stem)
def test_every_section_is_valid(page):
    assert sections(page)
    for section in sections(page):
        assert read_component("data", section, str(section)).kind == section["kind"]


def test_every_kind_has_an_example():
    assert sorted(section["kind"] for section in sections(FORMATS)) == kinds("data")
