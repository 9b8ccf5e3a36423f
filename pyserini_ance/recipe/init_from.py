"""The checkpoint or encoder that a stage takes its initial weights from."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, SerializerFunctionWrapHandler, model_serializer, model_validator

from pyserini_ance.recipe.components import Settings

EXPECTED = (
    "`initial`, `previous`, `{stage: NAME}`, `{folder: RUN or ENCODER}` or `{recipe: NAME}` (a run also with "
    "`stage: NAME` for the result of that stage instead of the last)"
)

Change = Literal["normalize", "layer_norm", "tokenization"]


class InitFrom(Settings):
    """Initial weights from an earlier stage of the recipe (`stage` alone), from another run, or from a saved
    encoder."""

    folder: Annotated[Path, AfterValidator(Path.expanduser)] | None = None
    """A run directory, for the result of its last stage or of `stage`; or the folder of a saved encoder."""
    recipe: str | None = None
    """A recipe whose run is in its default directory; the result of its last stage, or of `stage`."""
    stage: str | None = None
    """A stage of the run in `folder`, or of `recipe`; without either, an earlier stage of this recipe."""
    allow_changes: tuple[Change, ...] = ()
    """Encoder settings that may differ from those the weights were trained with: DANCE starts to normalize
    vectors that ANCE trained without (Li et al. 2021), and ANCE reads documents by a template of their own
    with a passage model."""

    @property
    def is_external(self) -> bool:
        """Whether the weights were made before this run."""
        return bool(self.folder or self.recipe)

    def __str__(self) -> str:
        values = self.model_dump(mode="json")
        return ", ".join(
            f"{key} {one if isinstance(one, str) else ' and '.join(one)}" for key, one in values.items()
        )

    @model_validator(mode="after")
    def check_one_origin(self) -> "InitFrom":
        if (self.folder and self.recipe) or not (self.is_external or self.stage):
            raise ValueError(f"expected one origin: {EXPECTED}")
        if self.allow_changes and not self.is_external:
            raise ValueError("`allow_changes` is for encoders from outside the recipe; remove it")
        return self

    @model_serializer(mode="wrap")
    def without_empty_values(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {key: value for key, value in write(self).items() if value}
