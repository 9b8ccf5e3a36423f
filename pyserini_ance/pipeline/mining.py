"""Mine negatives with one encoder over one collection, without training: no recipe, no run directory."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from pyserini_ance.data.collection import Collection
from pyserini_ance.data.collection_cache import cached_collection
from pyserini_ance.data.formats.format import Format
from pyserini_ance.data.formats.lines import shown
from pyserini_ance.data.given_collection import check_type
from pyserini_ance.data.prepared import AnchorSet
from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.encoder import Encoder
from pyserini_ance.negatives.mix import Mix
from pyserini_ance.negatives.rankings import Bm25 as Bm25Source
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.negatives.source import (
    MiningContext,
    Source,
    TableSource,
    mine_in_shares,
    warning_of_random_negatives,
)
from pyserini_ance.negatives.table import NegativeTable
from pyserini_ance.pipeline.bm25_rankings import Bm25Request, cached_rankings
from pyserini_ance.pipeline.mined_negatives import MinedNegatives
from pyserini_ance.pipeline.preparation import tokenize_together
from pyserini_ance.random_streams import random_stream
from pyserini_ance.recipe.components import component_class
from pyserini_ance.recipe.load import merge, read_component
from pyserini_ance.recipe.models import Bm25, Encoding, cache_folder
from pyserini_ance.recipe.trained_teacher import TRAINED
from pyserini_ance.recipe.yaml_text import read_yaml

log = logging.getLogger(__name__)
GENERATION = "mined"
NUM_NEGATIVES = 8


def collection_files(settings: str | Path, split: str) -> list[Path]:
    """The files that `load_collection` reads, and those that it leaves out; it raises the same."""
    return [*read_data(settings, split).input_files(), *(path for _, path in read_data(settings).files())]


def load_collection(
    settings: Mapping[str, Any] | str | Path, *, cache: str | Path | None = None, split: str | None = None
) -> Collection:
    """Read and check a collection: documents, and splits of queries with judgments.

    settings: the `data:` section of a recipe, such as `{"kind": "beir", "folder": "data/scifact"}`, or a YAML
    file that holds one (a whole recipe file has it under `data`); a split that is None is not read. cache:
    where the collection is stored, memory-mapped, and found again without reading unchanged files (default:
    the recipes'). split: the one that is needed; others are left out if a file of any is missing. Raises
    ValueError naming the key, or the file and line, FileNotFoundError for missing files, and
    IsADirectoryError for a folder in place of its settings.
    """
    data = read_data(settings, split)
    return cached_collection(cache_folder(cache), data, {}, data.read)


def read_data(settings: Mapping[str, Any] | str | Path, split: str | None = None) -> Format:
    """The format that `settings`, as of `load_collection`, describe; it raises the same but for what is in
    the data's files."""
    expected = "the `data` section of a recipe, or a YAML file of it; data in memory goes to make_collection"
    check_type("settings", settings, str | Path | Mapping, expected)
    origin = "collection" if isinstance(settings, Mapping) else str(settings)
    if not isinstance(settings, Mapping):
        path = Path(settings)
        folder = path if path.is_dir() else Path("data/scifact")
        expected = (
            f"the settings of a collection, such as {{kind: beir, folder: {folder}}}, or a YAML file of them"
        )
        if path.is_dir():
            raise IsADirectoryError(f"{path} is a folder; expected {expected}")
        if not path.is_file():
            raise FileNotFoundError(f"no file {path} (from {Path.cwd()}); expected {expected}")
        settings = read_yaml(path.read_bytes(), origin)
        if isinstance(settings, dict) and "kind" not in settings and isinstance(settings.get("data"), dict):
            settings = settings["data"]
    if isinstance(settings, Mapping) and isinstance(settings.get("splits"), Mapping):
        settings = merge({}, {"data": dict(settings)}, origin)["data"]  # without the splits that are null
    data = read_component("data", settings, origin)
    assert isinstance(data, Format)
    data = data.of_splits(data.split_names)
    if split is not None:
        try:
            data.input_files()
        except FileNotFoundError:
            return data.of_splits([split])
    return data


def read_source(
    source: str | Mapping[str, Any] | Source,
    filters: Sequence[Any] = (),
    num_negatives: int | Literal["default"] | None = "default",
) -> Source:
    """A source of negatives with `filters` and `num_negatives` added to its own settings.

    num_negatives: defaults to the source's own value, else 8. None keeps all candidates.

    Raises ValueError for two numbers, for filters that the source has no use for, and for a source that can
    be drawn from only while a model trains.
    """
    settings = _settings_of(source)
    kind = component_class("negatives", settings["kind"])
    assert issubclass(kind, Source)
    _check_needs_no_run(kind, settings["kind"])
    if filters:
        if "filters" not in kind.model_fields:
            cure = "remove them: it draws from all documents but the known positives"
            if issubclass(kind, Mix):
                cure = "filters belong to the sources of the mix: {'kind': 'ann', 'filters': [...]}"
            raise ValueError(f"filters are given, but source {settings['kind']!r} takes none; {cure}")
        settings["filters"] = [*settings.get("filters", ()), *filters]
    own = settings.setdefault("num_negatives", NUM_NEGATIVES if num_negatives == "default" else num_negatives)
    if num_negatives not in ("default", own):
        raise ValueError(
            f"num_negatives is {num_negatives}, but {own} in the settings of the source; set it in one place"
        )
    if own is None:
        del settings["num_negatives"]
    built = read_component("negatives", settings, "source")
    assert isinstance(built, Source)
    for part in built.components:  # the sources of a mix
        _check_needs_no_run(part, part.kind)
    return built


def _settings_of(source: Any) -> dict[str, Any]:
    """The settings that were given for a source, with its kind."""
    if isinstance(source, Source):
        return {"kind": source.kind, **source.model_dump(mode="json", exclude_unset=True)}
    settings = {"kind": source} if isinstance(source, str) else source
    if isinstance(settings, Mapping) and isinstance(settings.get("kind"), str):
        return dict(settings)
    several = isinstance(source, list | tuple)
    cure = "mix several: {'kind': 'mix', 'sources': [...]}" if several else "such as {'kind': 'ann'}"
    raise ValueError(f"source is {shown(source)}; expected the name of a kind, or a dict with `kind`; {cure}")


def _check_needs_no_run(source: Source | type[Source], name: str) -> None:
    if source.live or source.uses_previous_tables:
        cure = "use ann, lookahead, bm25, ranking or random, or a mix of them"
        raise ValueError(f"source {name!r} needs a training run; {cure}")
    needs = source.needs if isinstance(source, Source) else ()
    if trained := [need.removeprefix(TRAINED) for need in needs if need.startswith(TRAINED)]:
        cure = f"pass its folder instead of its name: model: RUN/teachers/{trained[0]}"
        raise ValueError(f"source {name!r} asks the cross-encoder {trained[0]!r} of a training run; {cure}")


def mine_negatives(
    encoder: Encoder,
    collection: Collection,
    source: Source,
    split: str,
    *,
    choose_all: bool = False,
    seed: int,
    bm25: Bm25,
    encoding: Encoding,
    cache: Path,
    world: World | None = None,
) -> MinedNegatives:
    """Mine as a refresh of a run's first checkpoint does; called by all processes of `world`, with the same
    result.

    With `choose_all`, all candidates of the table are chosen, otherwise `source.num_negatives` of them.
    Document vectors are kept in `cache` while mining, so that an interrupted call can be repeated without
    encoding again. Raises ValueError if the source does not fit the data or finds too few candidates, and for
    `choose_all` of a source without a table.
    """
    world = world or World(device=str(encoder.device))
    chosen = collection.split(split)
    if not chosen.is_judged:
        raise ValueError(
            f"split {split!r} has no judgments, so its positives cannot be removed from its negatives; add "
            "qrels to it"
        )
    anchor_set = AnchorSet.of(collection, chosen, "query")
    source.check_data(anchor_set)
    context = MiningContext(GENERATION, key=(seed, 0, 0, 0, 0))
    draw_rng = random_stream("negatives", seed, 0, 0, 0, 1)  # stages count their terms from 1
    if not isinstance(source, TableSource):
        if choose_all:
            raise ValueError(
                f"num_negatives is None, but source {source.kind!r} has no candidates to choose all of: it "
                "draws from all documents; pass a number, such as num_negatives=8"
            )
        rows = source.draw(anchor_set.anchors, None, anchor_set, draw_rng)
        scores = np.zeros(rows.shape, np.float32)
        table = NegativeTable("query", "document", anchor_set.anchors, rows, scores, source.kind)
        return MinedNegatives(collection, chosen, table, table.candidates, 0, {})
    data = tokenize_together(encoder.config, cache, (split,), collection, world)
    if "bm25" in source.needs:
        # Hits that leave `top_k` candidates after positives and filters; for a filter's teacher, all.
        mined = [part for part in source.components if isinstance(part, Bm25Source)]
        hits = [part.top_k + part.extra_candidates(anchor_set) for part in mined]
        asked = [one for part in source.components for one in getattr(part, "filters", ())]
        if not mined or any("bm25" in one.needs for one in asked):
            hits.append(bm25.hits)
        bm25 = bm25.model_copy(update={"hits": max(hits)})
        requests = [Bm25Request(split, bm25.hits)]
        ranking = world.on_main(lambda: str(cached_rankings(bm25, cache, collection, requests)[0]))
        data.training_rankings["bm25"] = Path(ranking)
    with Snapshot.without_run(encoder, data, encoding, cache, world) as snapshot:
        snapshot.bm25 = bm25
        table = mine_in_shares(source, snapshot, anchor_set, context)
    if table.promoted is not None:
        anchor_set = anchor_set.with_positives(table.promoted)
        chosen = anchor_set.split
        if isinstance(source, Mix):  # another of its sources may have found what one promotes
            table = table.excluding(table.anchors, anchor_set)
    num_short = 0 if choose_all else source.num_short(table)
    if world.is_main and (warning := warning_of_random_negatives(table, num_short)):
        log.warning(warning)
    rows = table.candidates if choose_all else source.draw(table.anchors, table, anchor_set, draw_rng)
    return MinedNegatives(collection, chosen, table, rows, num_short, dict(snapshot.seconds))
