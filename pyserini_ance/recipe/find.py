"""Find shipped recipes: in `recipes/` inside an installed package, or next to the package in a checkout."""

from pathlib import Path

from pyserini_ance.recipe.components import did_you_mean, similar_name

PACKAGE = Path(__file__).resolve().parents[1]
# A wheel has the folder inside the package (setup.py: package_dir), a checkout next to it.
SHIPPED = next(
    (folder for folder in (PACKAGE / "recipes", PACKAGE.parent / "recipes") if folder.is_dir()),
    PACKAGE / "recipes",
)
GRIDS = "_grids"
EXAMPLE = "demo/ance"


def find_recipe(name: str | Path) -> Path:
    """The file of a recipe, given its path or a shipped name such as `demo/ance`.

    Raises FileNotFoundError, with a similar name if there is one.
    """
    if Path(name).is_file():
        return Path(name)
    recipe = str(name).removesuffix(".yaml")
    path = SHIPPED / f"{recipe}.yaml"
    if not path.is_file():
        near = did_you_mean(recipe, _files()) or similar_name(Path(name))
        raise FileNotFoundError(
            f"no recipe {str(name)!r}: neither a file nor a recipe in {SHIPPED}{near}; expected a file, or a "
            f"name such as {EXAMPLE}"
        )
    return path


def shipped() -> list[str]:
    """The names of all shipped recipes, sorted.

    Files and folders that begin with `_` only serve recipes to extend.
    """
    return [name for name in _files() if not any(word.startswith("_") for word in name.split("/"))]


def _files() -> list[str]:
    """The names of all files below SHIPPED but grids, sorted."""
    names = (path.relative_to(SHIPPED).with_suffix("") for path in SHIPPED.rglob("*.yaml"))
    return sorted(name.as_posix() for name in names if name.parts[0] != GRIDS)


def find_grid(name: str) -> Path:
    """The file of a grid, given its path or a shipped name such as `ance-passages`.

    Raises FileNotFoundError.
    """
    if Path(name).is_file():
        return Path(name)
    grids = sorted(path.stem for path in (SHIPPED / GRIDS).glob("*.yaml"))
    if name.removesuffix(".yaml") not in grids:
        raise FileNotFoundError(
            f"no grid {name!r}: neither key=value,value nor a file nor a shipped "
            f"grid{did_you_mean(name, grids)}; grids: {', '.join(grids)}"
        )
    return SHIPPED / GRIDS / f"{name.removesuffix('.yaml')}.yaml"
