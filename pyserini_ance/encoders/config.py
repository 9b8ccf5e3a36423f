"""EncoderConfig: the settings of an encoder: its weights, the modules on top of them, its tokenization."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, NonNegativeInt, PositiveInt, StrictBool, model_validator

from pyserini_ance.data.collection import SIDES, Side
from pyserini_ance.encoders.hub import SIDE_FILE as SIDE_FILE
from pyserini_ance.encoders.hub import resolve_model, saved_model
from pyserini_ance.encoders.sentence_transformers_files import text_settings
from pyserini_ance.encoders.tokenization import Tokenization
from pyserini_ance.recipe.components import Settings, expected
from pyserini_ance.recipe.load import merge
from pyserini_ance.storage.files import read_json, read_json_object

# Settings that name weights: those of a saved encoder are next to its side file, which has no path of a
# machine.
START_NAMES = {"model", "base", *SIDES}
# Settings that may differ between a checkpoint and the recipe that starts from it.
MAY_DIFFER = {*START_NAMES, "tied", "dropout"}
# Settings that say what is made of a saved encoder that a recipe starts from. A checkpoint that training
# continues from was made with them.
START_SETTINGS = ("layers", "bidirectional", "truncate_dim")
# Settings of the modules after the Transformer; None are those of the model.
MODULES = ("pooling", "projection", "layer_norm", "normalize")
MAY_BE_NULL = (*MODULES, "bidirectional", "truncate_dim")

# On or off, or on for one side: DANCE's released code treats queries and documents differently.
Switch = Annotated[StrictBool | Side, expected("true or false, or `query` or `document` for one side")]
PoolingMode = Literal["cls", "mean", "max", "lasttoken", "mean_sqrt_len_tokens", "weightedmean"]

TOWERS: dict[Side, str] = {"query": "queries", "document": "documents"}  # folders of untied towers
SIDE_FORMAT = 2
# Keys of the side file that are not settings of the encoder.
SIDE_KEYS = {"format", "dimension", "modules", "tower", "adapters"}


def at(side: Side, switch: Switch | None) -> bool:
    """Whether a switch is on for one side."""
    return switch == side or switch is True


def _check_order(layers: tuple[int, ...]) -> tuple[int, ...]:
    if list(layers) != sorted(set(layers)):
        raise ValueError(f"expected ascending numbers, each once: {sorted(set(layers))}")
    return layers


Layers = Annotated[tuple[NonNegativeInt, ...], AfterValidator(_check_order)] | None


class TowerStart(Settings):
    """What the initial weights of one tower have of their own; null: what the encoder's key says."""

    model: str | None = None
    """The weights and the tokenizer, as `encoder.model`."""
    layers: Layers = None
    """Layers that the tower consists of."""
    projection: PositiveInt | None = None
    """The size of the tower's vectors after a linear layer, so that both towers have one size."""

    names_or_paths = frozenset({"model"})


class EncoderConfig(Settings):
    """The weights of an encoder, and how a tower computes vectors with them: the modules of a
    sentence-transformers model.

    A folder of sentence-transformers, a saved encoder and a released checkpoint have modules of their own,
    which hold where a key is null. Any other model gets those that the keys name, in their order.
    """

    model: str
    """A hub name, a local folder, or `python:package/folder` for weights in a Python package; an adapter of
    peft is merged into its base."""
    tied: bool = True
    """Whether queries and documents share one tower."""
    query: TowerStart = TowerStart()
    """The start of the query tower where it differs from the document tower's; `tied` is then false."""
    document: TowerStart = TowerStart()
    """The start of the document tower where it differs."""
    base: str | None = None
    """A model with the tokenizer, and for a .cp file the configuration, of a release that lacks them."""
    layers: Layers = None
    """Layers of the initial weights that the encoder consists of, such as `[0, 2, 4]`, counted from 0; null:
    all; `[]`: none, a vector is the mean of the vectors of a text's tokens (StaticEmbedding). A saved encoder
    has these layers alone, and is loaded whole."""
    bidirectional: Annotated[Literal[True] | None, expected("true or null")] = None
    """`true`: a token of a decoder attends to those after it, too (LLM2Vec, BehnamGhader et al. 2024,
    arXiv:2404.05961), as the saved model's configuration then says; null: as the model does."""
    dropout: float | None = Field(default=None, ge=0, lt=1)
    """The probability of all dropouts in training; null: those of the model."""
    pooling: PoolingMode | None = None
    """How the vectors of tokens become one, as sentence-transformers names it; null: as the model does, or
    the first token's (`cls`)."""
    projection: PositiveInt | None = None
    """The size of vectors after a linear layer; a model without one gets a new one. null: as the model."""
    layer_norm: Switch | None = None
    """Whether a LayerNorm follows, as in ANCE; `query` and `document`: for this side alone. null: as the
    model."""
    normalize: Switch | None = None
    """Whether vectors are scaled to length 1; `query` and `document`: those of this side alone. null: as the
    model."""
    truncate_dim: PositiveInt | None = None
    """How many numbers of a vector are kept, the first ones, with length 1 again if it was normalized; null:
    as the model's files say, or all."""
    tokenization: Tokenization = Tokenization()
    """How records become texts, and texts become token ids."""

    names_or_paths = frozenset({"model", "base"})

    @model_validator(mode="before")
    @classmethod
    def read_files(cls, values: Any) -> Any:
        """Take what is left out from the files of a model that is here: from the side file of an encoder that
        this package has saved, or the prompts and lengths of a sentence-transformers model."""
        model = values.get("model") if isinstance(values, dict) else None
        if not isinstance(model, str):
            return values
        # TowerStart is a list of pairs, too; what is neither is refused later, by its key.
        set_ones = {side: values[side] for side in SIDES if isinstance(values.get(side), dict | TowerStart)}
        starts = {side: dict(set_ones.get(side, {})) for side in SIDES}
        if any(value is not None for start in starts.values() for value in start.values()):
            values = {"tied": False, **values}
        models = {side: str(start.get("model") or model) for side, start in starts.items()}
        try:
            sources = {side: saved_model(resolve_model(models[side])) for side in SIDES}
        except FileNotFoundError:  # said when the weights are loaded
            return values
        if not any(map(is_saved, sources.values())):
            return merge(text_settings(sources["query"], sources["document"], keys_of(values)), values)
        if values.keys() >= cls.model_fields.keys():
            return values
        if sources["query"] == sources["document"]:
            # What is made of an encoder in training is not taken from it.
            own = {*MAY_DIFFER, *START_SETTINGS} - {"tied", "truncate_dim"}
            side_file = read_json_object(Path(sources["query"]) / SIDE_FILE) or {}
            saved = {key: side_file[key] for key in (side_file.keys() & cls.model_fields.keys()) - own}
        else:
            saved = _of_two(sources, keys_of(values))
        tokenization = values.get("tokenization")
        given = tokenization.get("document") if isinstance(tokenization, dict) else None
        if isinstance(given, dict) and "passages" in given:
            for key in ("special_tokens", "pad_passages"):  # only with several passages
                saved["tokenization"].get("document", {}).pop(key, None)
        return merge(saved, values)

    @model_validator(mode="after")
    def check_tied(self) -> "EncoderConfig":
        for side in SIDES:
            if self.tied and getattr(self, side) != TowerStart():
                raise ValueError(f"{side} is set, but the towers share their weights; set `tied: false`")
        return self

    def start(self, side: Side) -> TowerStart:
        """The start of a side's tower, with `model` filled in, and `layers` and `projection` where the
        encoder has them."""
        own: TowerStart = getattr(self, side)
        return TowerStart(
            model=own.model or self.model,
            layers=self.layers if own.layers is None else own.layers,
            projection=own.projection or self.projection,
        )

    def modules(self, side: Side) -> dict[str, Any]:
        """The settings of a tower's modules that are not null."""
        settings = {key: getattr(self, key) for key in MODULES} | {"projection": self.start(side).projection}
        return {key: value for key, value in settings.items() if value is not None}

    @property
    def unread_by_sentence_transformers(self) -> str | None:
        """The first setting of `tokenization` that makes texts of records otherwise than a prompt before a
        title and a text."""
        known = self.tokenization.prompts()
        for side in SIDES:
            if side not in known:
                return f"{side}.template: {self.tokenization.side(side).template!r}"
        if (passages := self.tokenization.document.passages) > 1:
            return f"document.passages: {passages}"
        characters = self.tokenization.max_characters
        return f"max_characters: {characters}" if characters else None

    def model_of(self, side: Side) -> str:
        return self.start(side).model or self.model


def _of_two(sources: Mapping[Side, str], given: Collection[str]) -> dict[str, Any]:
    """How two models read texts, each those of its side, and cut vectors; one at least is a saved encoder.

    given: keys that the recipe sets. Raises ValueError for what both sides share and only one of them has.
    """
    found = {
        side: read_side_file(source) if is_saved(source) else text_settings(source, source, given)
        for side, source in sources.items()
    }
    named = {side: dict(settings.get("tokenization", {})) for side, settings in found.items()}
    own = {side: one.pop(side) for side, one in named.items() if side in one}
    shared = [{key: value for key, value in one.items() if key not in SIDES} for one in named.values()]
    cuts = [settings.get("truncate_dim") for settings in found.values()]
    of_both = {
        f"tokenization.{key}": [one.get(key) or None for one in shared]
        for key in ("lowercase", "max_characters")
    }
    for key, values in {**of_both, "truncate_dim": cuts}.items():
        if values[0] != values[1] and key not in given:
            raise ValueError(f"{' and '.join(sources.values())} differ in {key}; set encoder.{key} for both")
    # Only a byte-level tokenizer has a prefix space.
    prefix = next((one["prefix_space"] for one in shared if one.get("prefix_space") is not None), None)
    return {"tokenization": {**shared[0], "prefix_space": prefix, **own}, "truncate_dim": cuts[0]}


def keys_of(values: dict[str, Any], before: str = "") -> set[str]:
    """The keys of nested settings, joined by dots."""
    inner = (keys_of(value, f"{before}{key}.") for key, value in values.items() if isinstance(value, dict))
    return {f"{before}{key}" for key in values}.union(*inner)


def is_saved(source: str | Path) -> bool:
    """Whether `source` is the folder of an encoder that this package has saved."""
    return (Path(source) / SIDE_FILE).is_file()


def read_side_file(folder: str | Path) -> dict[str, Any]:
    """The settings of a saved encoder. Raises FileNotFoundError, or RuntimeError for another format."""
    path = Path(folder) / SIDE_FILE
    if not path.exists():
        raise FileNotFoundError(
            f"{path} is missing: {folder} is not an encoder saved by pyserini_ance. Pass RUN/model or a "
            "checkpoint's model folder."
        )
    side = read_json(path)
    if side.get("format") != SIDE_FORMAT:
        raise RuntimeError(f"{path} has format {side.get('format')!r}; this version reads {SIDE_FORMAT}")
    return side


def config_of(folder: str | Path) -> EncoderConfig:
    settings = {key: value for key, value in read_side_file(folder).items() if key not in SIDE_KEYS}
    return EncoderConfig.model_validate({**settings, "model": str(folder)})


def tower_folder(folder: str | Path, side: Side) -> Path:
    """The folder of a side's tower, a sentence-transformers model of its own; adapters have none."""
    about = read_side_file(folder)
    is_one = about.get("tied", True) or "adapters" in about
    return Path(folder) if is_one else Path(folder) / TOWERS[side]
