import importlib.util
import re
from pathlib import Path

import pytest

HOOK = Path(__file__).parents[2] / "docs" / "hooks" / "recipe_reference.py"


@pytest.fixture(scope="module")
def page() -> str:
    spec = importlib.util.spec_from_file_location("recipe_reference", HOOK)
    hook = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hook)
    return hook.reference()


def test_every_key_has_a_description_and_every_link_a_heading(page):
    rows = re.findall(r"^\| `(\w+)` \| (.+) \| (.+) \| (.*) \|$", page, re.MULTILINE)
    assert len(rows) == len(re.findall(r"^\| `", page, re.MULTILINE)) > 150
    assert [key for key, *_, meaning in rows if not meaning.strip()] == []
    headings = {
        re.sub(r"[^\w -]", "", text).replace(" ", "-").lower()
        for text in re.findall(r"^#+ (.+)$", page, re.M)
    }
    assert set(re.findall(r"\]\(#([\w-]+)\)", page)) <= headings
