"""Where recipes lie: `recipes/` inside an installed package, or beside the package in a checkout."""

from pathlib import Path

from pyserini_ance.recipe.parts import did_you_mean

PACKAGE = Path(__file__).resolve().parents[1]
# A wheel carries the folder inside the package (setup.py: package_dir); a checkout, editable or not, has it beside it.
SHIPPED = next((folder for folder in (PACKAGE / "recipes", PACKAGE.parent / "recipes") if folder.is_dir()), PACKAGE / "recipes")


def find_recipe(name: str | Path) -> Path:
    """The file of a recipe: a path to a file, or a shipped recipe such as `demo/ance`. Raises FileNotFoundError."""
    if Path(name).is_file():
        return Path(name)
    wanted = str(name).removesuffix(".yaml")
    files = _files()
    if wanted not in files:
        known = shipped()
        raise FileNotFoundError(
            f"no recipe {str(name)!r}: neither a file nor one that ships{did_you_mean(wanted, known)}; "
            f"recipes: {', '.join(known) or f'none in {SHIPPED}'}"
        )
    return files[wanted]


def shipped() -> list[str]:
    """The names of all recipes that ship, sorted; a file `_name.yaml` is there to be extended and is no recipe by itself."""
    return [name for name, path in _files().items() if not path.name.startswith("_")]


def _files() -> dict[str, Path]:
    return {path.relative_to(SHIPPED).with_suffix("").as_posix(): path for path in sorted(SHIPPED.rglob("*.yaml"))}
