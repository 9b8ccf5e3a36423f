"""The model card of a run, `RUN/model/README.md`: metadata for the Hugging Face hub, and the text."""

import logging
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from pyserini_ance.encoders.family import is_local, resolve_model
from pyserini_ance.encoders.hub import model_file
from pyserini_ance.encoders.saved_settings import SIDE_FILE
from pyserini_ance.evaluation.legends import table_with_legend
from pyserini_ance.evaluation.tables import last_stage, read_results, table
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.reports.run_comparison import significance_in_run
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import read_json_object, write_whole

CARD = "README.md"
MODEL = "MODEL"  # in the card of a model that is not on the hub yet
log = logging.getLogger(__name__)

TEXT = """# {title}

{description}A dense retriever: it encodes queries and documents as vectors of {dimension} numbers, and scores
by their inner product. It was trained with pyserini_ance {version} from {base}.

## Data

{data}

## Measures

{measures}

## Use

{model} is {where}.

### Pyserini

{search_command}

`pyserini-ance encode --corpus corpus.jsonl --encoder {model} --output INDEX` writes INDEX.

{sentence_transformers}### pyserini_ance

```python
import pyserini_ance as pa

vectors = pa.load_encoder({model!r}).encode(["a query"], side="query")
```

## Recipe

```yaml
{recipe}```
"""
SENTENCES = """### sentence-transformers

```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer({model!r})
scores = model.similarity(model.encode_query(["a query"]), model.encode_document(["{document}"]))
```
{remarks}
"""


def write_model_card(run: RunDir, name: str = MODEL) -> Path:
    """Write the card of a finished run into its model's folder; `name` is the model's on the hub.

    Raises FileNotFoundError if the run has not finished.
    """
    results, recipe = read_results(run.folder), run.read_recipe()
    path = run.model / CARD
    write_whole(path, f"---\n{_metadata(run, recipe, results)}\n---\n\n{_text(run, recipe, results, name)}")
    return path


def _metadata(run: RunDir, recipe: Recipe, results: Mapping[str, Any]) -> str:
    """YAML in huggingface_hub's form."""
    from huggingface_hub import EvalResult, ModelCardData

    source = recipe.encoder.model
    is_sentences = (run.model / "modules.json").is_file()
    result = last_stage(results["rows"])
    data = _data_name(recipe)
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
    tags = [*["sentence-transformers"] * is_sentences, "feature-extraction", "dense-retrieval", "pyserini"]
    card = ModelCardData(
        base_model=None if is_local(source) or ":" in source else source,
        datasets=data if recipe.data.kind == "datasets" else None,
        eval_results=measured,
        library_name="sentence-transformers" if is_sentences else "transformers",
        license=_license(source),
        model_name=recipe.name,
        pipeline_tag="sentence-similarity" if is_sentences else "feature-extraction",
        tags=tags,
    )
    return card.to_yaml()


def _text(run: RunDir, recipe: Recipe, results: Mapping[str, Any], name: str) -> str:
    environment, side = read_json_object(run.environment) or {}, read_json_object(run.model / SIDE_FILE) or {}
    is_sentences = (run.model / "modules.json").is_file()
    commits = "".join(f", commit {commit}" for commit in results["commits"][-1:])
    return TEXT.format(
        title=recipe.name,
        description=f"{recipe.description.rstrip('.')}. " if recipe.description else "",
        dimension=side.get("dimension", "?"),
        version=f"{environment.get('pyserini_ance', '')}{commits}".strip(),
        base=_public(recipe.encoder.model),
        data=_data(recipe, environment),
        measures=_measures(run, results),
        model=name,
        where="a copy of this folder" if name == MODEL else "this model, or a copy of it in a folder",
        search_command=_search_command(results["export"]["command"].splitlines()[0], name),
        sentence_transformers=_sentences(side, name) if is_sentences else "",
        recipe=yaml.safe_dump(
            _public(recipe.model_dump(mode="json", exclude={"cache"})), sort_keys=False, allow_unicode=True
        ),
    )


def _sentences(side: Mapping[str, Any], name: str) -> str:
    """How to use the model in sentence-transformers, with what its files there do not say."""
    tokenization = side.get("tokenization", {})
    query, document = (tokenization.get(key, {}) for key in ("query", "document"))
    titled = "{title}" in document.get("template", "")
    lengths = [settings.get("length_tokens") for settings in (query, document)]
    remarks = ["A document's title is the beginning of its text."] * titled
    if not side.get("tied", True):
        remarks.append("It has two towers: use `encode_query` and `encode_document`, not `encode`.")
    elif lengths[0] != lengths[1]:
        remarks.append(
            f"It was trained with queries of up to {lengths[0]} tokens and documents of up to {lengths[1]}; "
            f"sentence-transformers truncates both at {max(lengths)}."
        )
    text = f"\n{' '.join(remarks)}\n" if remarks else ""
    return SENTENCES.format(model=name, document="A title a text" if titled else "a document", remarks=text)


def _license(source: str) -> str | None:
    """The licence that the card of the initial weights names, if that card is here."""
    from huggingface_hub.repocard import metadata_load

    try:
        card = model_file(resolve_model(source), CARD)
        return (metadata_load(card) or {}).get("license") if card else None
    except (OSError, ValueError, yaml.YAMLError):
        return None


def _data_name(recipe: Recipe) -> str:
    """The data set's name on the hub or in ir_datasets, that of its folder, or the kind of data."""
    settings = recipe.data.model_dump(mode="json")
    documents = settings.get("documents")
    named = documents.get("path") if isinstance(documents, dict) else settings.get("dataset")
    if folder := settings.get("folder"):  # kind `beir` says how files are laid out, not which benchmark it is
        named = Path(folder).name
    return str(_public(named)) if named else recipe.data.kind


def _data(recipe: Recipe, environment: Mapping[str, Any]) -> str:
    data, name = environment.get("data"), _data_name(recipe)
    if not data:
        return f"{name}."
    queries = ", ".join(f"{count:,} {split}" for split, count in data.get("queries", {}).items())
    return (
        f"{name}: {data['documents']:,} documents; queries: {queries}. Trained on {recipe.train_split.name}."
    )


def _measures(run: RunDir, results: Mapping[str, Any]) -> str:
    """The table of results, and of tests of the result against the other rows if there are rankings."""
    rows, result = results["rows"], last_stage(results["rows"])["row"]
    parts = [f"The row of this model is {result}.", table_with_legend(rows, ["row", *results["measures"]])]
    try:
        tests = significance_in_run(run, result, [row["row"] for row in rows if row["row"] != result])
    except (FileNotFoundError, ValueError) as error:
        log.info("the model card has no significance tests: %s", error)
        tests = {}
    if tests:
        made = [
            {"row": row, **{m: f"{d} ({d.wins}/{d.ties}/{d.losses})" for m, d in of.items()}}
            for row, of in tests.items()
        ]
        parts += [
            f"Mean difference of {result} from each row over the test queries, p value of a paired t test "
            "with Holm's correction for the number of rows, and queries (won/tied/lost):",
            table(made, ["row", *dict.fromkeys(m for of in tests.values() for m in of)]),
        ]
    return "\n\n".join(parts)


def _search_command(command: str, name: str) -> str:
    """The run's own search command, without the folder that it was in and the path of Python."""
    program, *words = shlex.split(command)
    folder = str(Path(words[words.index("--index") + 1]).parent) if "--index" in words else ""
    words = [_renamed(word, folder, name) for word in words]
    return f"```bash\n{shlex.join([Path(program).name, *words])}\n```"


def _renamed(word: str, folder: str, name: str) -> str:
    if not folder or not word.startswith(f"{folder}/"):
        return word
    top, *below = word[len(folder) + 1 :].split("/")
    return "/".join([{"model": name, "index": "INDEX"}.get(top, top), *below])


def _public(value: Any) -> Any:
    """Settings without the folders of this machine: a path is its last component behind `.../`."""
    if isinstance(value, dict):
        return {key: _public(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_public(inner) for inner in value]
    is_path = isinstance(value, str) and value.startswith(("/", "~")) and len(value) > 1
    return f".../{Path(value).name}" if is_path else value
