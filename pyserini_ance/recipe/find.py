"""Where recipes lie: `recipes/` inside an installed package, or beside the package in a checkout."""

from pathlib import Path

from pyserini_ance.recipe.parts import did_you_mean

PACKAGE = Path(__file__).resolve().parents[1]
# A wheel carries the folder inside the package (setup.py: package_dir); a checkout, editable or not, has it beside it.
SHIPPED = next((folder for folder in (PACKAGE / "recipes", PACKAGE.parent / "recipes") if folder.is_dir()), PACKAGE / "recipes")
GRIDS = "_grids"


def find_recipe(name: str | Path) -> Path:
    """The file of a recipe: a path to a file, or a shipped recipe such as `demo/ance`. Raises FileNotFoundError."""
    if Path(name).is_file():
        return Path(name)
    wanted = str(name).removesuffix(".yaml")
    path = SHIPPED / f"{wanted}.yaml"
    if not path.is_file():
        known = shipped()
        raise FileNotFoundError(
            f"no recipe {str(name)!r}: neither a file nor one that ships{did_you_mean(wanted, known)}; "
            f"recipes: {', '.join(known) or f'none in {SHIPPED}'}"
        )
    return path


def shipped() -> list[str]:
    """The names of all recipes that ship, sorted. Where a name begins with `_` is no recipe, but what recipes extend."""
    found = (path.relative_to(SHIPPED).with_suffix("") for path in SHIPPED.rglob("*.yaml"))
    return sorted(name.as_posix() for name in found if not any(part.startswith("_") for part in name.parts))


def find_set(name: str) -> Path:
    """The folder of a set of recipes: a path, or the name of one that ships, `msmarco-passage`. Raises FileNotFoundError."""
    if Path(name).is_dir():
        return Path(name)
    wanted, known = name.removeprefix("recipes/").rstrip("/"), sorted({recipe.rpartition("/")[0] for recipe in shipped()})
    if wanted not in known:
        near = did_you_mean(wanted, known)
        raise FileNotFoundError(f"no set of recipes {name!r}: neither a folder nor one that ships{near}; sets: {', '.join(known)}")
    return SHIPPED / wanted


def recipes_of(folder: Path) -> list[Path]:
    """The recipes of a set, by name."""
    return [path for path in sorted(folder.glob("*.yaml")) if not path.name.startswith("_")]


def find_grid(name: str) -> Path:
    """The file of a grid: a path to a file, or a shipped one such as `ance-passages`. Raises FileNotFoundError."""
    if Path(name).is_file():
        return Path(name)
    known = sorted(path.stem for path in (SHIPPED / GRIDS).glob("*.yaml"))
    if name.removesuffix(".yaml") not in known:
        raise FileNotFoundError(
            f"no grid {name!r}: neither key=value,value nor a file nor one that ships{did_you_mean(name, known)}; grids: {', '.join(known)}"
        )
    return SHIPPED / GRIDS / f"{name.removesuffix('.yaml')}.yaml"
