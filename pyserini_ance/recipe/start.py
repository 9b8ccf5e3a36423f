"""Starts: the weights that a stage begins with, when they are neither the untrained encoder's nor those of the stage before."""

from pathlib import Path
from typing import Any, Literal

from pydantic import field_validator, model_serializer, model_validator

from pyserini_ance.recipe.parts import Settings

EXPECTED = (
    "expected `initial`, `previous`, `{stage: NAME}`, `{run: FOLDER}` or `{recipe: NAME}` (either with `stage: NAME` for the result of "
    "that stage instead of the last), or `{folder: ENCODER}`"
)

Change = Literal["l2", "layer_norm", "tokenization"]


class Start(Settings):
    """The result of an earlier stage of the recipe: `stage` alone. Or what was made before: of the run in folder `run`, or of the
    run of `recipe` where that lies by default, the result of its last stage, or of `stage`; or the encoder saved in `folder`.

    `changes` names what of the encoder's settings the recipe means to set otherwise than they were trained: DANCE starts to normalise
    what ANCE has trained without (Li et al. 2021), and ANCE reads documents, by a template of their own, with a model of passages.
    """

    run: Path | None = None
    recipe: str | None = None
    folder: Path | None = None
    stage: str | None = None
    changes: tuple[Change, ...] = ()

    @property
    def is_outside(self) -> bool:
        """Whether the weights were made before the run."""
        return bool(self.run or self.recipe or self.folder)

    def __str__(self) -> str:
        named = {key: value if isinstance(value, str) else " and ".join(value) for key, value in self.model_dump(mode="json").items()}
        return ", ".join(f"{key} {value}" for key, value in named.items())

    @field_validator("run", "folder")
    @classmethod
    def expand_home(cls, path: Path | None) -> Path | None:
        return path and path.expanduser()

    @model_validator(mode="after")
    def is_one_place(self):
        places = [key for key in ("run", "recipe", "folder") if getattr(self, key)]
        if len(places) > 1:
            raise ValueError(f"{' and '.join(places)} are two places; name one")
        if self.folder and self.stage:
            raise ValueError("a folder holds one encoder; leave out `stage`, or name a `run`")
        if not (places or self.stage):
            raise ValueError(EXPECTED)
        if self.changes and not places:
            raise ValueError("`changes` is for encoders that were made outside the recipe: within it, all stages have one encoder's settings")
        return self

    @model_serializer(mode="wrap")
    def without_blanks(self, write) -> dict[str, Any]:
        return {key: value for key, value in write(self).items() if value}


def read_start(value: Any) -> Any:
    """One message at the key itself, not one for each type that it might be of."""
    if isinstance(value, dict):
        return Start.model_validate(value)
    if value not in ("initial", "previous") and not isinstance(value, Start):
        raise ValueError(EXPECTED)
    return value
