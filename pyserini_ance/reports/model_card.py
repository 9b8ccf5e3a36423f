"""The model card of a run, `RUN/model/README.md`: metadata for the Hugging Face hub, and a text."""

import logging
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from pyserini_ance.encoders.config import SIDE_FILE
from pyserini_ance.encoders.hub import is_local, model_file, resolve_model
from pyserini_ance.evaluation.tables import last_stage, read_results, table, table_with_legend
from pyserini_ance.pipeline.model_export import BOUND, SENTENCE_TRANSFORMERS
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.recipe.yaml_text import to_yaml
from pyserini_ance.reports.report import render
from pyserini_ance.reports.row_tests import significance_in_run
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import read_json_object, write_whole

CARD = "README.md"
MODEL = "MODEL"  # in the card of a model that is not on the hub yet
log = logging.getLogger(__name__)


def write_model_card(run: RunDir, name: str = MODEL) -> Path:
    """Write the card of a finished run into its model's folder; `name` is the model's on the hub.

    Raises FileNotFoundError if the run has not finished.
    """
    results, recipe = read_results(run.folder), run.read_recipe()
    made, side = read_json_object(run.environment) or {}, read_json_object(run.model / SIDE_FILE) or {}
    tokenization = side.get("tokenization", {})
    rows, result = results["rows"], last_stage(results["rows"])["row"]
    try:
        tests, note = significance_in_run(run, rows)
    except (FileNotFoundError, ValueError) as error:
        log.info("the model card has no significance tests: %s", error)
        tests, note = ([], []), ""
    text = render(
        "card.md.j2",
        metadata=_metadata(recipe, results),
        title=recipe.name,
        dimension=side.get("dimension", "?"),
        version=", commit ".join([made.get("pyserini_ance", ""), *results["commits"][-1:]]),
        base=_public(recipe.encoder.model),
        data=_data_name(recipe),
        counts=made.get("data"),
        trained_on=recipe.train_name,
        result=result,
        measured=bool(results["measures"]),
        measures=table_with_legend(rows, ["row", *results["measures"]]),
        tests=table(*tests) if tests[0] else "",
        tests_note=note,
        model=name,
        search_command=_search_command(results["export"]["command"].splitlines()[0], name),
        differences=results["export"].get("differences", {}),
        bound=BOUND,
        side=side,
        titled="{title}" in tokenization.get("document", {}).get("template", ""),
        recipe=to_yaml(_public(recipe.model_dump(mode="json", exclude={"cache"}))),
    )
    write_whole(run.model / CARD, text)
    return run.model / CARD


def _metadata(recipe: Recipe, results: Mapping[str, Any]) -> str:
    """YAML in huggingface_hub's form."""
    from huggingface_hub import EvalResult, ModelCardData
    from huggingface_hub.repocard import metadata_load

    source = recipe.encoder.model
    try:  # the licence that the card of the initial weights names, if that card is here
        card = model_file(resolve_model(source), CARD)
        licence = (metadata_load(card) or {}).get("license") if card else None
    except (OSError, ValueError, yaml.YAMLError):
        licence = None
    is_sentences = bool(results["export"].get("differences", {}).get(SENTENCE_TRANSFORMERS))
    result, data = last_stage(results["rows"]), _data_name(recipe)
    splits = {column: key for key, column in recipe.final_evaluation.columns.items()}
    measured = [
        EvalResult(
            task_type="information-retrieval",
            task_name="Information Retrieval",
            dataset_type=data,
            dataset_name=data,
            dataset_split=splits[column][0],
            metric_type=splits[column][1].lower(),
            metric_name=splits[column][1],
            metric_value=round(result[column], 4),
        )
        for column in results["measures"]
        if column in splits and result.get(column) is not None
    ]
    return ModelCardData(
        base_model=None if is_local(source) or ":" in source else source,
        datasets=data if recipe.data.kind == "datasets" and not recipe.data.files() else None,
        eval_results=measured or None,
        library_name="sentence-transformers" if is_sentences else "transformers",
        license=licence,
        model_name=recipe.name if measured else None,
        pipeline_tag="sentence-similarity" if is_sentences else "feature-extraction",
        tags=[*["sentence-transformers"] * is_sentences, "feature-extraction", "dense-retrieval", "pyserini"],
    ).to_yaml()


def _data_name(recipe: Recipe) -> str:
    """The data set's name on the hub or in ir_datasets, that of its folder, or the kind of data."""
    settings = recipe.data.model_dump(mode="json")
    documents = settings.get("documents")
    named = documents.get("path") if isinstance(documents, dict) else settings.get("dataset")
    if folder := settings.get("folder"):  # kind `beir` says how files are laid out, not which benchmark it is
        named = Path(folder).name
    elif named and is_local(named):
        named = Path(named).stem
    return str(_public(named)) if named else recipe.data.kind


def _search_command(command: str, name: str) -> str:
    """The run's own search command, without the folders of this machine and the path of Python."""
    program, *words = shlex.split(command)
    folder = Path(words[words.index("--index") + 1]).parent
    for own, shown in (("model", name), ("index", "INDEX"), ("", "")):
        words = [word.replace(f"{folder}/{own}", shown) for word in words]
    return shlex.join([Path(program).name, *_public(words)])


def _public(value: Any) -> Any:
    """Settings without the folders of this machine: a path is its last component behind `.../`."""
    if isinstance(value, dict):
        return {key: _public(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_public(inner) for inner in value]
    is_path = isinstance(value, str) and value.startswith(("/", "~")) and len(value) > 1
    return f".../{Path(value).name}" if is_path else value
