"""The Python API: train, encode, mine, search and evaluate in a few lines. `import pyserini_ance as pa`.

Errors are ValueError, RuntimeError and OSError (such as FileNotFoundError); they name the place, the value,
what was expected and the cure. Progress is logged under the logger `pyserini_ance`.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from ir_measures import Measure

from pyserini_ance.data.collection import Collection as Collection
from pyserini_ance.data.formats.lines import shown
from pyserini_ance.data.given_collection import check_type, qrels_of, run_of
from pyserini_ance.data.given_collection import make_collection as make_collection
from pyserini_ance.distributed.world import device_of
from pyserini_ance.encoders.config import EncoderConfig, PoolingMode
from pyserini_ance.encoders.encoder import Encoder as Encoder
from pyserini_ance.encoders.initial import initial_encoder
from pyserini_ance.evaluation import metrics
from pyserini_ance.negatives.filters.base import Filter
from pyserini_ance.negatives.source import Source
from pyserini_ance.pipeline.experiment import only_training
from pyserini_ance.pipeline.mined_negatives import MinedNegatives as MinedNegatives
from pyserini_ance.pipeline.mining import load_collection as load_collection
from pyserini_ance.pipeline.mining import mine_negatives, read_source
from pyserini_ance.pipeline.results import Run as Run
from pyserini_ance.recipe.components import Component
from pyserini_ance.recipe.evaluation_settings import parse_measures
from pyserini_ance.recipe.load import read_settings
from pyserini_ance.recipe.models import Bm25, Encoding, cache_folder
from pyserini_ance.recipe.models import Recipe as Recipe
from pyserini_ance.reports import finish
from pyserini_ance.runs import rundir
from pyserini_ance.runs.any_encoder import load_any_encoder
from pyserini_ance.trainer.callbacks import TrainerCallback as TrainerCallback
from pyserini_ance.vectors.search import search as search

DEFAULT_SOURCE = {"kind": "ann", "top_k": 200}
Callbacks = TrainerCallback | Sequence[TrainerCallback]


def load_recipe(name_or_path: str | Path, *overrides: str) -> Recipe:
    """Load a shipped recipe (`demo/ance`) or a YAML file, with overrides such as `stages.ance.steps=500`.

    Raises FileNotFoundError for an unknown name, and ValueError naming the key, its value and its file.
    """
    check_type("the recipe", name_or_path, str | Path, "the name of a shipped recipe, or a YAML file")
    return rundir.load_recipe(name_or_path, *overrides)


def train(
    recipe: Recipe | str | Path,
    output: str | Path | None = None,
    *,
    overwrite: bool = False,
    resume: bool = False,
    replay: str | Path | None = None,
    callbacks: Callbacks = (),
) -> Run:
    """Train a recipe and evaluate it; everything is left in the run directory `output` (default:
    `runs/NAME`).

    overwrite: replace an existing run. resume: continue an existing run of the same recipe; the weights are
    those of an uninterrupted run. replay: the `decisions.jsonl` of another run, whose adoptions of negatives
    are repeated. callbacks: called on the main process during training. Under torchrun, all processes make
    the call.

    Raises FileExistsError if `output` holds a run and neither `overwrite` nor `resume` is set,
    FileNotFoundError for missing data, ValueError for data or settings that are not valid and for `resume`
    with `overwrite` or `replay`, RuntimeError for missing tools, for a recipe to train first
    (`init_from: {recipe: NAME}`), for a loss of a stage that is not finite, and if this process trains a run
    already, in another thread or around a callback.
    """
    callbacks = _several("callbacks", callbacks)
    rundir.check_start(overwrite, resume, replay)
    recipe = recipe if isinstance(recipe, Recipe) else load_recipe(recipe)
    directory = rundir.run_folder(recipe.name) if output is None else Path(output)
    decisions = None if replay is None else Path(replay)
    with only_training(directory):
        finish.train(
            recipe, directory, overwrite=overwrite, resume=resume, replay=decisions, callbacks=callbacks
        )
    return Run(directory)


def resume(run_directory: str | Path | Run, callbacks: Callbacks = ()) -> Run:
    """Open a run directory, and continue the run if it has not finished.

    Raises FileNotFoundError if it is not a run directory, and as `train` does.
    """
    run = run_directory if isinstance(run_directory, Run) else Run(run_directory)
    if rundir.RunDir(run.directory).read_state()["status"] == "finished":
        finish.write_card_and_report(run.directory, only_missing=True)
        return run
    return train(run.recipe, run.directory, resume=True, callbacks=callbacks)


def load_encoder(
    model: str | Path | Run | Mapping[str, Any],
    *,
    device: str = "auto",
    pooling: PoolingMode | None = None,
    normalize: bool | None = None,
    length_tokens: int | Mapping[str, int] | None = None,
) -> Encoder:
    """Load an encoder; `.encode(texts, side="query")` then returns vectors (N, D) float32.

    model: a folder that this package saved (`RUN/model`), a run or its directory, any Hugging Face folder or
    hub name, or the `encoder:` section of a recipe as a mapping. A saved encoder and a mapping say everything
    about themselves. For others, the defaults are those in a sentence-transformers model's files (pooling,
    normalisation, prompts, length); for released checkpoints that docs/guides/checkpoints.md lists (ANCE,
    DPR, STAR, ...) those of their training on passages; else `pooling` is mean, `normalize` False, and the
    lengths are 64 tokens for queries and 256 for documents, or what the model reads. `length_tokens` is one
    cap, or one per side (`{"query": 32, "document": 128}`).

    Raises FileNotFoundError for a missing folder, ConnectionError for a hub name that is not in the cache if
    the hub cannot be reached, ValueError for settings that are not valid or that a saved encoder already has,
    and RuntimeError for missing weights.
    """
    known = "a folder, a hub name, a run or a dict; save a model in memory and pass the folder"
    check_type("model", model, str | Path | Run | Mapping, known)
    device = device_of(device)
    given = {"pooling": pooling, "normalize": normalize, "length_tokens": length_tokens}
    given = {key: value for key, value in given.items() if value is not None}
    if isinstance(model, Run):
        model = model.directory
    if not isinstance(model, Mapping):
        return load_any_encoder(model, device, given=given)
    if given:
        raise ValueError(
            f"{', '.join(given)} cannot be set: the mapping has the settings of its encoder; remove the "
            "arguments"
        )
    return initial_encoder(read_settings(EncoderConfig, model, "encoder"), 0, device)


def mine(
    encoder: Encoder,
    collection: Collection,
    source: str | Mapping[str, Any] | Source = DEFAULT_SOURCE,
    filters: str | Mapping[str, Any] | Filter | Iterable[str | Mapping[str, Any] | Filter] | None = (),
    split: str = "train",
    num_negatives: int | Literal["default"] | None = "default",
    *,
    seed: int = 42,
    bm25: Mapping[str, Any] | None = None,
    encoding: Mapping[str, Any] | None = None,
    cache: str | Path | None = None,
) -> MinedNegatives:
    """Mine negatives for all queries of a split, as a refresh during training does.

    source, filters: as in a recipe (docs/guides/negatives.md), or instances of their classes; one filter or
    several. Known positives are always removed. num_negatives: chosen per query among the `top_k` candidates
    by the `sampling_strategy` of the source, by default at random, and 8 unless the source has a number; None
    chooses all, which the source `random` cannot do. bm25, encoding: these sections of a recipe; `bm25`
    matters for the source bm25, and for a filter whose teacher is BM25. The same arguments give the same
    negatives.

    Raises ValueError for settings that are not valid, or a split without judgments.
    """
    check_type("encoder", encoder, Encoder, "an Encoder; save the model and pass load_encoder(FOLDER)")
    check_type("collection", collection, Collection, "what load_collection or make_collection returns")
    return mine_negatives(
        encoder,
        collection,
        read_source(source, _several("filters", () if filters is None else filters), num_negatives),
        split,
        choose_all=num_negatives is None,
        seed=seed,
        bm25=read_settings(Bm25, bm25 or {}, "bm25"),
        encoding=read_settings(Encoding, encoding or {}, "encoding"),
        cache=cache_folder(cache),
    )


def evaluate(
    run: str | Path | Mapping[str, Mapping[str, float]],
    qrels: str | Path | Mapping[str, Mapping[str, int]],
    measures: str | Measure | Iterable[str | Measure] = ("nDCG@10", "RR@10", "R@100"),
) -> dict[str, float]:
    """Measure a ranking with ir-measures: the mean of each measure over all judged queries.

    run: a TREC run file, or scores by query and document id. qrels: a TREC qrels file, or grades by query and
    document id. measures: of ir-measures, or their names; one, or several. A judged query without hits counts
    as 0. Equal scores are ranked as in trec_eval, by descending document id, for all measures; ir-measures
    itself ranks them for RR@10 by ascending id, so that its value may differ. Raises FileNotFoundError for a
    missing file, and ValueError for an unknown measure, a malformed line, a score that is not finite, a grade
    that is not a whole number, or a run without any judged query.
    """
    return metrics.evaluate(qrels_of(qrels), run_of(run), parse_measures(_several("measures", measures)))


def _several(name: str, values: object) -> tuple[Any, ...]:
    """The values of an argument that takes one or several."""
    if isinstance(values, str | Mapping | Component | Measure | TrainerCallback):
        return (values,)
    if not isinstance(values, Iterable):
        raise ValueError(f"{name} is {shown(values)}; expected one, or a list")
    return tuple(values)
