"""The course of an adaptation: data, recipe, run, verdict, report, each kept in the folder."""

import json
import logging
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from shlex import quote
from typing import Any

from pyserini_ance.adapt import verdict
from pyserini_ance.adapt.data import OnlyAnnounced, Request, prepare
from pyserini_ance.adapt.recipe_file import COMPARED
from pyserini_ance.data.trec import best_first
from pyserini_ance.encoders.config import tower_folder
from pyserini_ance.evaluation.tables import BM25, HYBRID, UNTRAINED, cell_text
from pyserini_ance.pipeline.corpus_encoding import VectorFormat, convert_index
from pyserini_ance.pipeline.final_evaluator import fusion_command
from pyserini_ance.pipeline.initial_weights import INITIAL
from pyserini_ance.pipeline.plan import measured_plan
from pyserini_ance.pipeline.results import heading
from pyserini_ance.pyserini_bridge.encoder_classes import ENCODER_CLASS
from pyserini_ance.pyserini_bridge.export import StockClass, python_program, search_command
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.recipe.yaml_text import to_yaml
from pyserini_ance.reports import finish
from pyserini_ance.reports.ranking_inputs import collection_of
from pyserini_ance.reports.report import REPORT, render
from pyserini_ance.runs.checkpoint import ENCODER
from pyserini_ance.runs.provenance import config_hash
from pyserini_ance.runs.rundir import RECIPE, RunDir, load_recipe
from pyserini_ance.storage.files import copy_whole, write_json, write_whole
from pyserini_ance.storage.locks import locked

DRY_STEPS = 3
MOST_QUERIES, HITS, PAIRS = 500, 5, 20  # on the page
SHOWN_CHARACTERS = 240  # of a document there
log = logging.getLogger(__name__)


def adapt(request: Request, overrides: Sequence[str] = (), plans: bool = False) -> str:
    """Adapt an encoder; continues what the folder holds.

    Returns the text to print: what was read, the table and the verdict, or the plan.

    Raises ValueError if the folder was made of other documents, queries or of another model, LockHeld while
    another process works there, RuntimeError without the extra `adapt`.
    """
    if find_spec("datasketch") is None or find_spec("markitdown") is None:
        raise RuntimeError("adapt needs the extra of that name: pip install 'pyserini_ance[adapt]'")
    output = request.output
    output.mkdir(parents=True, exist_ok=True)
    with locked(output / ".adapt.lock", patience_seconds=1, what=str(output)):
        try:
            text = prepare(request, overrides, plans)
        except OnlyAnnounced as announced:
            return str(announced)
        recipe, run = load_recipe(output / RECIPE, *overrides), RunDir(output / "run")
        compares = (output / "data" / "qrels" / f"{COMPARED}.tsv").exists()
        test, needed = recipe.final_evaluation, [COMPARED] if compares else ["dev", "test"]
        if not ({*needed} <= {*test.split} and {BM25, UNTRAINED, HYBRID} <= {*test.rows} and recipe.bm25):
            needs = f"splits {', '.join(needed)}, rows bm25, untrained, hybrid, and the section bm25"
            cure = f"leave final_evaluation and bm25 as they are in {output / 'data' / RECIPE}"
            raise ValueError(f"the verdict needs {needs}; {cure}")
        if plans:
            steps = min(DRY_STEPS, *(stage.steps for stage in recipe.stages.values()))
            scratch = None if run.state.exists() else run.scratch
            return f"{text}\n\n{measured_plan(recipe, steps, scratch)}"
        _train(recipe, run)
        to_judge = output / "to_judge.csv" if recipe.train_name == "unjudged" else None
        found = verdict.compare(run, COMPARED, to_judge) if compares else verdict.judge(run, run.model)
        write_json(output / "verdict.json", vars(found))
        if not (parquet := run.folder / "parquet").exists():
            convert_index(run.folder, parquet, VectorFormat("parquet"))
        commands = deliver(run, found.chosen if found.better else verdict.BASE)
        write_page(output / REPORT, found, text, commands, run, COMPARED if compares else "test")
    lines = [text, "", found.as_text(), "", f"report: {output / REPORT}", heading("use it", commands[0])]
    return "\n".join([*lines, *(f"  {command}" for command in commands)])


def deliver(run: RunDir, chosen: str) -> list[str]:
    """Write what Pyserini's REST server needs. Returns the commands that load the encoder of a row, search
    with it, fuse it with BM25 if the row is, and serve it; for the base model one first makes its index, and
    BM25 is only served."""
    exported, output = run.read_measures()["export"], run.folder.parent
    texts, lucene = output / "texts", output / "lucene"  # Anserini reads all files of a folder
    texts.mkdir(exist_ok=True)
    if not (corpus := texts / "corpus.jsonl").exists():
        copy_whole(output / "data" / "corpus.jsonl", corpus)
    name, model, index = "adapted", run.model, run.folder / "index"
    commands = [exported[name].splitlines()[-1] for name in ("command", "hybrid")]
    if chosen not in (verdict.ADAPTED, verdict.FUSED):
        name, model, index = "base", run.checkpoint(INITIAL.stage, 0) / ENCODER, output / "base"
        recipe = run.read_recipe()
        test, documents = recipe.final_evaluation, recipe.encoder.tokenization.document
        flags = StockClass(tower_folder(model, "query"), ENCODER_CLASS).flags("query")
        split = test.split[-1]
        searched = run.folder / f"topics.{split}.json", index, run.folder / f"run.{UNTRAINED}.{split}.txt"
        remove_query = run.ignores_identical_ids()
        commands = [search_command(*searched, flags, test.hits, documents.passages, remove_query)]
        commands.append(fusion_command(run, [split], test.hits, UNTRAINED))
        files = f"--corpus {quote(str(corpus))} --encoder {quote(str(model))} --output {quote(str(index))}"
        commands.insert(0, f"{python_program()} -m pyserini_ance encode {files} --precision {test.precision}")
    if chosen not in (verdict.FUSED, verdict.BASE_FUSED):
        commands.pop()
    path = json.dumps(str(model), ensure_ascii=False)
    load = f"from sentence_transformers import SentenceTransformer; SentenceTransformer({path})"
    commands.insert(0, f"{python_program()} -c {quote(load)}")
    served = {"path": str(index.relative_to(output)), "index_type": "faiss", "encoder": str(model.absolute())}
    indexes: dict[str, Any] = {"texts": "lucene", name: served | {"base_index": "texts"}}
    if chosen == verdict.ONLY_BM25:
        commands, indexes = [], {"texts": "lucene"}
    write_whole(output / "server.yaml", to_yaml({"indexes": indexes}))
    files = f"-collection BeirFlatCollection -input {quote(str(texts))} -index {quote(str(lucene))} -storeRaw"
    serve = f"--config {quote(str(output / 'server.yaml'))} --no-prebuilt-indexes --host 127.0.0.1"
    search = f"{python_program()} -m pyserini_ance search"
    return [*commands, f"{search} index {files} && {search} rest {serve}"]


def _train(recipe: Recipe, run: RunDir) -> None:
    """Train the recipe, or go on with its run, also to make again a model or an index that it lacks. Raises
    ValueError if that has another recipe."""
    before = run.read_recipe() if run.can_resume else recipe
    if (config_hash(before), before.seed) != (config_hash(recipe), recipe.seed):
        raise ValueError(
            f"{run.folder} was trained with another {RECIPE} or other overrides; remove it to train again, "
            "or pass another --output"
        )
    is_whole = all(path.exists() for path in (run.measures, run.model, run.index / "docid"))
    if not is_whole or run.read_state()["status"] != "finished":  # killed before it had cleaned up
        resume = run.can_resume
        try:
            finish.train(recipe, run.folder, overwrite=run.state.exists() and not resume, resume=resume)
        except BaseException as error:
            if not getattr(error, "needs_new_recipe", False):
                log.error("give the same adapt command again: it continues, and ends with the verdict")
            raise
    finish.write_card_and_report(run.folder, only_missing=True)


def write_page(
    path: Path, found: verdict.Verdict, said: str, commands: Sequence[str], run: RunDir, split: str
) -> None:
    """Write the page: the verdict, and a search box over what the held-out queries find.

    `said` is what was read, `split` the one that the verdict is about.
    """
    collection, by_name = collection_of(run), verdict.rankings(run, split)
    asked = collection.split(split).queries
    judged = {} if split == COMPARED else collection.judgments(split)
    first, other = verdict.BASE, found.chosen if found.chosen != verdict.BASE else verdict.ADAPTED
    shown: list[dict[str, Any]] = [
        {
            "query": text,
            "lists": {name: best_first(by_name[name].get(id, {}))[:HITS] for name in (first, other)},
            "relevant": [d for d, grade in judged.get(id, {}).items() if grade > 0],
        }
        for id, text in islice(zip(asked.ids, asked.columns["text"], strict=True), MOST_QUERIES)
    ]
    # Queries whose first document differs: what a person who compares both would look at first.
    shown.sort(key=lambda one: len({str(hits[:1]) for hits in one["lists"].values()}) == 1)
    found_ids = sorted({id for one in shown for hits in one["lists"].values() for id in hits})
    found_texts = collection.documents.take(collection.documents.rows_of(found_ids).tolist())
    pairs = zip(found_ids, found_texts, strict=True)
    documents = {id: " ".join(filter(None, one.values()))[:SHOWN_CHARACTERS] for id, one in pairs}
    write_whole(
        path,
        render(
            "adapt.html.j2",
            sentence=found.sentence,
            columns=list(found.rows[0]),
            rows=[[cell_text(value, name) for name, value in row.items()] for row in found.rows],
            said=said.splitlines(),
            commands=commands,
            names=[first, other],
            queries=shown,
            documents=documents,
            first=PAIRS,
        ),
    )
