"""The results of an experiment: the model exported for Pyserini, the command that searches with it, and the
results table."""

import shutil
import time
from pathlib import Path
from typing import Any

from pyserini_ance.data.collection import SIDES, Collection
from pyserini_ance.data.passages import passage_ids
from pyserini_ance.encoders.adapters import adapters_of
from pyserini_ance.encoders.ance import write_ance
from pyserini_ance.encoders.config import TOWERS, EncoderConfig, tower_folder
from pyserini_ance.encoders.dpr import is_dpr, to_dpr
from pyserini_ance.encoders.hub import resolve_model
from pyserini_ance.encoders.load_save import load_encoder, save_as_peft, save_encoder
from pyserini_ance.pipeline.export_check import Proof, some_records
from pyserini_ance.pipeline.final_evaluator import FinalEvaluator
from pyserini_ance.pyserini_bridge import vector_files
from pyserini_ance.pyserini_bridge.export import search_command, write_topics
from pyserini_ance.runs.checkpoint import Checkpoint, document_weights_of
from pyserini_ance.storage.files import copy_whole, write_whole
from pyserini_ance.storage.publish import whole_folder


def export(
    row: str, checkpoint: Checkpoint, evaluator: FinalEvaluator, seconds: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Write `model/`, `index/`, and the final run and the topics of each test split.

    Returns the record of `row`, with `seconds` added, and how to search with the model. The measured rankings
    were searched over exactly the vectors that the index holds. Called by all processes; the main process
    writes.
    """
    start = time.perf_counter()
    snapshot = evaluator.rank(row, checkpoint)
    record = evaluator.measure(row, time.perf_counter() - start, **evaluator.size(snapshot), **seconds)
    evaluator.rank_by_indexes(row, snapshot)
    vectors = snapshot.document_vectors
    run, data, test = evaluator.run, evaluator.data, evaluator.recipe.final_evaluation

    def write() -> dict[str, Any]:
        proof = Proof(checkpoint.encoder, some_records(data, test.split))
        encoder, settings = checkpoint.encoder, evaluator.recipe.encoder
        exported = _write_model(encoder, run.model, proof)
        _write_adapter(encoder, run.adapter, settings, proof, exported)
        # Of the exported model, in which adapters are merged.
        about = {"encoder": "../model", "document_weights": document_weights_of(run.model)}
        about |= {"weights": checkpoint.weights, "precision": snapshot.precision}
        shutil.rmtree(run.index, ignore_errors=True)
        ids = passage_ids(data.collection.documents.ids, data.passages)
        vector_files.write_index(vectors, ids, run.index, about)
        max_passages = data.passages.max_passages if data.passages else 1
        without_query = data.collection.ignore_identical_ids
        if without_query and max_passages > 1:
            exported["notes"].append(
                "Pyserini's --remove-query compares the ids of passages: it does not remove the query's own"
            )
        commands = []
        for split in test.split:
            queries = data.collection.split(split).queries
            copy_whole(run.ranking(row, split), run.final_run(split))
            pairs = list(zip(queries.ids, queries.columns["text"], strict=True))
            topics = write_topics(pairs, run.folder, split)
            output = run.folder / (
                "run.pyserini.txt" if len(test.split) == 1 else f"run.pyserini.{split}.txt"
            )
            files = topics, run.index, output
            commands.append(
                search_command(*files, exported["queries"], test.hits, max_passages, without_query)
            )
        return {**exported, "command": "\n".join(commands)}

    return record, evaluator.world.on_main(write)


def _write_model(encoder: Path, folder: Path, proof: Proof) -> dict[str, Any]:
    """Copy an encoder; return what `Proof.of_export` does.

    A pair of towers whose texts
    sentence-transformers does not make has DPR's form if stock `dpr` then gives the queries' vectors.
    """
    for has_dpr_form in (True, False):
        shutil.rmtree(folder, ignore_errors=True)
        with whole_folder(folder) as temporary:
            if adapters_of(encoder):  # merged
                save_encoder(load_encoder(encoder), temporary)
            else:
                shutil.copytree(encoder, temporary, dirs_exist_ok=True)
            # One tower for both sides has the file of queries, which come last.
            for tower, side in {tower_folder(temporary, side): side for side in reversed(SIDES)}.items():
                write_ance(tower, side)
            if has_dpr_form and proof.config.unread_by_sentence_transformers:
                to_dpr(temporary)
        exported = proof.of_export(folder)
        if "dpr" in exported["queries"] or not is_dpr(folder / TOWERS["query"]):
            break
    return exported


def _write_adapter(
    encoder: Path, folder: Path, config: EncoderConfig, proof: Proof, exported: dict[str, Any]
) -> None:
    """Write adapters of the recipe's model in peft's form, if sentence-transformers then computes the vectors
    as trained; `exported` says so."""
    shutil.rmtree(folder, ignore_errors=True)
    adapters = adapters_of(encoder)
    if adapters is None or not (config.tied and adapters.trainable == "both"):
        return
    with whole_folder(folder) as temporary:
        save_as_peft(encoder, temporary, resolve_model(config.model))
    difference = proof.by_sentence_transformers(folder)
    if difference is None or not difference.is_small:  # the base is another model than the recipe's
        shutil.rmtree(folder)
        return
    name = f"sentence-transformers, from {folder.name}/ and {config.model}"
    exported["differences"][name] = difference._asdict()
    exported["notes"].append(f"{name}: {difference}")


def write_qrels(collection: Collection, split: str, path: Path) -> None:
    judged_split, ids = collection.split(split), collection.documents.ids
    judgments = (
        (query, *judged_split.qrels.judged(row)) for row, query in enumerate(judged_split.queries.ids)
    )
    lines = (
        f"{query} 0 {ids[document]} {grade}\n"
        for query, documents, grades in judgments
        for document, grade in zip(documents, grades, strict=True)
    )
    write_whole(path, "".join(lines))
