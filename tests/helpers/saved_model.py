"""The model that a recipe starts from, saved in a folder, and the recipe's data as that model sees it."""

from pathlib import Path

from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.initial import initial_encoder
from pyserini_ance.encoders.load_save import save_encoder
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.pipeline.preparation import read_collection, tokenize
from pyserini_ance.recipe.models import Recipe


def save_model(recipe: Recipe, folder: Path) -> Recipe:
    """Save the model as `folder/model`; return the recipe."""
    (folder / "model").mkdir()
    save_encoder(initial_encoder(recipe.encoder, 0), folder / "model")
    return recipe


def view(world: World, recipe: Recipe, folder: Path, **encoding) -> Snapshot:
    """The data through `folder/model`; `encoding` are settings that differ from the recipe's."""
    data = tokenize(recipe, read_collection(recipe))
    settings = recipe.encoding.model_copy(update=encoding)
    return Snapshot(folder / "model", "hash", data, settings, folder / "scratch", "cpu", world)
