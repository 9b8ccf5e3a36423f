"""Find shipped recipes: in `recipes/` inside an installed package, or next to the package in a checkout."""

import difflib
from pathlib import Path

from pyserini_ance.recipe.components import did_you_mean

PACKAGE = Path(__file__).resolve().parents[1]
# A wheel has the folder inside the package (setup.py: package_dir), a checkout next to it.
SHIPPED = next(
    (folder for folder in (PACKAGE / "recipes", PACKAGE.parent / "recipes") if folder.is_dir()),
    PACKAGE / "recipes",
)
GRIDS = "_grids"
SUGGESTIONS = 5
EXAMPLE = "demo/ance"


def find_recipe(name: str | Path, named_in: Path | None = None) -> Path:
    """The file of a recipe, given its path or a shipped name such as `demo/ance`.

    named_in: the file that extends the recipe. Raises FileNotFoundError, with similar names; files next to
    `named_in` are among them.
    """
    if Path(name).is_file():
        return Path(name)
    recipe = str(name).removesuffix(".yaml")
    path = SHIPPED / f"{recipe}.yaml"
    if not path.is_file():
        near = _similar(Path(name), named_in)
        hint = f"did you mean {', '.join(near)}?" if near else f"expected a name such as {EXAMPLE}"
        raise FileNotFoundError(f"no recipe {str(name)!r}: neither a file nor a recipe in {SHIPPED}; {hint}")
    return path


def _similar(name: Path, named_in: Path | None) -> list[str]:
    """At most SUGGESTIONS names: of files next to `name` or next to `named_in`, then of shipped recipes.

    Files to extend are suggested to a file that extends, and for such a name.
    """
    stem = name.with_suffix("") if name.suffix in (".yml", ".yaml") else name
    files = {path.stem: str(path) for path in sorted(name.parent.glob("*.yaml"))}
    if named_in:
        siblings = sorted((named_in.parent / name.parent).glob("*.yaml"))
        files |= {path.stem: str(name.parent / path.stem) for path in siblings if path != named_in}
    recipes = _shipped_files() if named_in or _only_extended(stem) else shipped()
    words = {recipe: recipe.rpartition("/")[2] for recipe in recipes}
    near = [files[one] for one in difflib.get_close_matches(stem.name, files, n=1)]
    near += difflib.get_close_matches(str(stem), recipes, n=SUGGESTIONS)
    word = difflib.get_close_matches(stem.name, words.values(), n=1)
    near += [recipe for recipe in recipes if [words[recipe]] == word]
    return list(dict.fromkeys(near))[:SUGGESTIONS]


def shipped() -> list[str]:
    """The names of all shipped recipes, sorted.

    Files and folders that begin with `_` only serve recipes to extend.
    """
    return [name for name in _shipped_files() if not _only_extended(Path(name))]


def _shipped_files() -> list[str]:
    """The names of all files below SHIPPED but grids, sorted."""
    names = (path.relative_to(SHIPPED).with_suffix("") for path in SHIPPED.rglob("*.yaml"))
    return sorted(name.as_posix() for name in names if name.parts[0] != GRIDS)


def _only_extended(name: Path) -> bool:
    return any(word.startswith("_") for word in name.parts)


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
