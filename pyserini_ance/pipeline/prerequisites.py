"""Prerequisites: the runs that a recipe starts from (`init_from: {recipe: NAME}`), trained before it."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pyserini_ance.distributed.world import World
from pyserini_ance.pipeline.initial_weights import NoRun, StageUnfinished, find_weights, key_of
from pyserini_ance.pipeline.preparation import check_tools, recipe_data
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.runs.provenance import RUNTIME_KEYS, source_run
from pyserini_ance.runs.rundir import RunDir, load_recipe
from pyserini_ance.storage.publish import is_complete
from pyserini_ance.trainer.resume import check_resumable, differing_settings

Status = Literal["finished", "unfinished", "missing"]
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Prerequisite:
    """A run that another one starts from.

    status: `finished` if its weights can be taken, `unfinished` if it will be resumed, `missing` if it will
    be trained. recipe: that of the run; of a missing one, as it will be trained. differing: the settings in
    which the existing run differs from its recipe file, in words.
    """

    name: str
    recipe: Recipe
    folder: Path
    status: Status
    differing: str = ""

    def describe(self) -> str:
        """One line: what is used, or trained first, and with how many steps."""
        steps = sum(stage.steps for stage in self.recipe.stages.values())
        done = {
            "finished": f"{self.folder} is used",
            "unfinished": f"resumed first in {self.folder}, {steps:,} steps in all",
            "missing": f"trained first in {self.folder}, {steps:,} steps",
        }[self.status]
        other = f"; its settings are not those of {self.name}: {self.differing}" if self.differing else ""
        return f"{self.name}: {done}{other}"


def prerequisites(
    recipe: Recipe, as_in_file: Recipe | None = None, run: RunDir | None = None
) -> list[Prerequisite]:
    """All runs that `recipe` starts from, directly or through others, in the order in which they are trained.

    as_in_file: the recipe without overrides, for `inherit`; None: nothing is inherited. run: the directory in
    which `recipe` is resumed; initial weights that it holds already are not required. Raises ValueError if
    recipes start from one another in a circle, and what `find_weights` raises for a finished run that is
    damaged.
    """
    found: dict[Path, Prerequisite] = {}
    for one in _walk(recipe, as_in_file, run, (recipe.name,)):
        found.setdefault(one.folder, one)
    return list(found.values())


def _walk(
    recipe: Recipe, as_in_file: Recipe | None, run: RunDir | None, above: tuple[str, ...]
) -> Iterator[Prerequisite]:
    for row, init_from in recipe.external_starts.items():
        if init_from.recipe is None or (run and is_complete(run.checkpoint(row, 0))):
            continue
        key, file = key_of(recipe, init_from), load_recipe(init_from.recipe).recipe
        if file.name in above:
            circle = " -> ".join((*above, file.name))
            raise ValueError(f"{key}: recipes start from one another in a circle: {circle}")
        expected, its_run = inherit(file, recipe, as_in_file), source_run(init_from)
        status: Status = "finished"
        try:
            find_weights(init_from)
        except NoRun:
            status = "missing"
        except StageUnfinished:
            status = "unfinished"
        except (ValueError, OSError, RuntimeError) as error:
            raise RuntimeError(f"{key}: {error}") from error
        made, differing = expected, ""
        if status != "missing":
            differing = differing_settings(its_run, expected)
            made = its_run.read_recipe()
            made = made.model_copy(update={key: getattr(expected, key) for key in RUNTIME_KEYS})
        if status != "finished":
            own_run = its_run if status == "unfinished" else None
            yield from _walk(made, file, own_run, (*above, file.name))
        yield Prerequisite(expected.name, made, its_run.folder, status, differing)


def inherit(required: Recipe, recipe: Recipe, as_in_file: Recipe | None) -> Recipe:
    """`required` with the settings of `recipe` that hold for both: where runs compute, and overrides of the
    data.

    An override of `data` is inherited if the files of both have the same value there, key by key:
    `data.folder=...` moves one set for all recipes that read it, and leaves a prerequisite on other data
    alone. Other overrides, the seed too, say how one run trains.
    """
    changed: dict[str, Any] = {key: getattr(recipe, key) for key in RUNTIME_KEYS}
    if as_in_file is not None and type(required.data) is type(as_in_file.data) is type(recipe.data):
        given, in_file = recipe.data, as_in_file.data
        overridden = {
            key: getattr(given, key)
            for key in type(given).model_fields
            if getattr(given, key) != getattr(in_file, key) == getattr(required.data, key)
        }
        changed["data"] = required.data.model_copy(update=overridden)
        if overridden.keys() - {"folder"}:  # the expected figures are of other data
            changed["expect"] = {}
    elif as_in_file is not None and recipe.data != as_in_file.data == required.data:
        changed["data"] = recipe.data
    return Recipe.model_validate(required.model_copy(update=changed).model_dump(mode="json"))


def train_prerequisites(
    recipe: Recipe, folder: Path, overwrite: bool = False, resume: bool = False
) -> Iterator[Path]:
    """Train the runs that the recipe starts from, each in its default directory, and yield these.

    A finished one is used, an unfinished one resumed, a missing one trained. The files of all recipes, and
    the `folder` of `recipe` itself, which `overwrite` and `resume` are for, are checked before the first run.
    Called by all processes of torchrun; the main process yields.
    """
    from pyserini_ance.pipeline.experiment import train  # imports accelerate, which a plan does not need

    if not any(init_from.recipe for init_from in recipe.external_starts.values()):
        return
    with World.join(recipe.device).session() as world:
        before = world.on_main(lambda: _plan(recipe, folder, overwrite, resume))
    for number, one in enumerate(before, start=1):
        log.info("prerequisite %d of %d: %s", number, len(before), one["line"])
        required, its_folder = Recipe.model_validate(one["recipe"]), Path(one["folder"])
        if train(required, its_folder, one["overwrite"], one["resume"]):
            yield its_folder


def _plan(recipe: Recipe, folder: Path, overwrite: bool, resume: bool) -> list[dict[str, Any]]:
    """What to train before `recipe`, with everything checked that would otherwise be noticed only then."""
    run = RunDir(folder)
    chain = prerequisites(recipe, recipe_in_file(recipe), run if resume else None)
    for one in chain:
        if one.status == "finished":
            log.info("prerequisite: %s", one.describe())
    to_train = [one for one in chain if one.status != "finished"]
    if to_train:
        if resume:
            check_resumable(run, recipe)
        else:
            run.check_creatable(overwrite)
        for each in (recipe, *(one.recipe for one in to_train)):
            check_tools(each)
            recipe_data(each).input_files()
    planned = []
    for one in to_train:
        its_run = RunDir(one.folder)
        can_resume = one.status == "unfinished" and its_run.can_resume
        planned.append(
            {
                "recipe": one.recipe.model_dump(mode="json"),
                "folder": str(one.folder),
                "overwrite": its_run.state.exists() and not can_resume,  # it died too early to be resumed
                "resume": can_resume,
                "line": one.describe(),
            }
        )
    return planned


def recipe_in_file(recipe: Recipe) -> Recipe | None:
    """The recipe without overrides, by its file or the name of a shipped one.

    None if there is no such file, or if it is not complete without overrides.
    """
    try:
        return load_recipe(recipe.file or recipe.name).recipe
    except (FileNotFoundError, ValueError):
        return None
