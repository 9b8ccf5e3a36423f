"""Any encoder by one name: a run's, an adaptation's, an encoder's or a Hugging Face folder, or a hub name."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyserini_ance.data.collection import Side
from pyserini_ance.encoders.config import EncoderConfig, is_saved
from pyserini_ance.encoders.encoder import Encoder
from pyserini_ance.encoders.hub import find_model, resolve_model
from pyserini_ance.encoders.initial import initial_encoder
from pyserini_ance.encoders.load_save import load_encoder, load_tower
from pyserini_ance.encoders.released import foreign_settings
from pyserini_ance.recipe.load import read_settings
from pyserini_ance.runs.rundir import RECIPE, RunDir


def load_any_encoder(
    model: str | Path, device: str = "cpu", side: Side | None = None, given: Mapping[str, Any] | None = None
) -> Encoder:
    """Load an encoder; with `side`, the tower of that side is enough.

    given: `pooling`, `normalize` and `length_tokens` of an encoder that this package has not saved; others
    are those of sentence-transformers' files, of its release, or defaults. Raises FileNotFoundError for a
    missing folder, ConnectionError for a hub name that is not in the cache if the hub cannot be reached,
    ValueError for settings that a saved encoder already has, RuntimeError for missing weights.
    """
    source = encoder_source(model)
    if not is_saved(source):
        settings = foreign_settings(source, given or {})
        return initial_encoder(read_settings(EncoderConfig, settings, f"encoder {source}"), 0, device, side)
    if given:
        raise ValueError(
            f"{', '.join(given)} cannot be set: {model} has the settings of its encoder; remove the arguments"
        )
    return load_tower(source, side, device) if side else load_encoder(source, device)


def encoder_settings(model: str | Path) -> dict[str, Any]:
    """The `encoder:` section of a recipe that starts from what `load_any_encoder` loads; raises the same."""
    source = encoder_source(model)
    return {"model": source} if is_saved(source) else foreign_settings(source, {})


def is_run(name: str | Path) -> bool:
    """Whether `encoder_source` takes the name for a run directory, or an adaptation's."""
    return any(Path(name, of, RECIPE).is_file() for of in ("", "run"))


def encoder_source(model: str | Path) -> str:
    """The folder or hub name of an encoder, or of the model of a run directory or of an adaptation's.

    Raises FileNotFoundError for a folder that does not exist, and for a run that has not finished;
    ConnectionError as `find_model`.
    """
    if is_run(model):
        run = RunDir.find(Path(model))
        run.check()
        if not run.model.is_dir():
            raise FileNotFoundError(
                f"{run.model} is missing: the run has not finished; continue it with "
                f"`{run.resume_command()}`, or resume({str(run.folder)!r}) in Python"
            )
        return str(run.model)
    source = resolve_model(str(model))
    if not Path(source).is_dir() and (isinstance(model, Path) or len(Path(source).parts) > 2):
        raise FileNotFoundError(
            f"no folder {source} (from {Path.cwd()}), and not a hub name (`name` or `owner/name`); pass a "
            "run directory, an encoder's folder or a hub name"
        )
    return find_model(source, "encoder")
