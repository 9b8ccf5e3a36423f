"""The results of an experiment: the model exported for Pyserini, the command that searches with it, and the
results table."""

import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyserini_ance.data.collection import SIDES, Collection
from pyserini_ance.data.passages import passage_ids
from pyserini_ance.encoders.adapters import adapters_of
from pyserini_ance.encoders.ance import write_ance
from pyserini_ance.encoders.config import TOWERS, EncoderConfig, config_of, read_side_file, tower_folder
from pyserini_ance.encoders.dpr import is_dpr, to_dpr
from pyserini_ance.encoders.load_save import load_encoder, name_origin, save_encoder
from pyserini_ance.pipeline.export_check import TEXTS, largest_difference, some_records
from pyserini_ance.pipeline.final_evaluator import FinalEvaluator
from pyserini_ance.runs.checkpoint import Checkpoint, document_weights_of
from pyserini_ance.storage.files import copy_whole, write_whole
from pyserini_ance.storage.publish import whole_folder
from pyserini_ance.vectors.encoding import ShardedVectors

if TYPE_CHECKING:
    from pyserini_ance.pyserini_bridge.export import StockChoice


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
    provenance = {"weights": checkpoint.weights, "precision": snapshot.precision}
    exported = evaluator.world.on_main(lambda: _write(row, checkpoint, evaluator, vectors, provenance))
    return record, exported


def _write(
    row: str,
    checkpoint: Checkpoint,
    evaluator: FinalEvaluator,
    vectors: ShardedVectors,
    provenance: dict[str, str],
) -> dict[str, Any]:
    from pyserini_ance.pyserini_bridge.export import search_command, write_topics
    from pyserini_ance.pyserini_bridge.vector_files import write_index

    run, data, test = evaluator.run, evaluator.data, evaluator.recipe.final_evaluation
    queries = {split: data.collection.split(split).queries for split in test.split}
    texts = [text for of_split in queries.values() for text in of_split.columns["text"]]
    choice, notes = _write_model(checkpoint.encoder, run.model, evaluator.recipe.encoder, texts)
    difference = None
    if not notes:
        records = some_records(data.collection, test.split[0])
        difference = largest_difference(checkpoint.encoder, run.model, records)
        notes.append(
            "sentence-transformers computes the same vectors: the largest difference over "
            f"{TEXTS} queries and {TEXTS} documents is {difference.share:.0e} of a vector's length"
        )
    shutil.rmtree(run.index, ignore_errors=True)
    ids = passage_ids(data.collection.documents.ids, data.passages)
    # Of the exported model, in which adapters are merged.
    about = {"encoder": "../model", **provenance, "document_weights": document_weights_of(run.model)}
    write_index(vectors, ids, run.index, about)
    max_passages = data.passages.max_passages if data.passages else 1
    without_query = data.collection.ignore_identical_ids
    if without_query and max_passages > 1:
        notes.append(
            "Pyserini's --remove-query compares the ids of passages: it does not remove the query's own"
        )
    commands = []
    for split, of_split in queries.items():
        copy_whole(run.ranking(row, split), run.final_run(split))
        pairs = list(zip(of_split.ids, of_split.columns["text"], strict=True))
        topics = write_topics(pairs, run.folder, split, without_query)
        output = run.folder / ("run.pyserini.txt" if len(queries) == 1 else f"run.pyserini.{split}.txt")
        files = topics, run.index, output
        commands.append(search_command(*files, choice, test.hits, max_passages, without_query))
    documents = {
        "encoder": str(choice.document_folder),
        "class": choice.document_class,
        "flags": choice.document_flags,
    }
    return {
        "class": choice.query_class,
        "documents": documents,
        "notes": [*choice.notes, *notes],
        "difference": difference and difference._asdict(),
        "command": "\n".join(commands),
    }


def _write_model(
    encoder: Path, folder: Path, config: EncoderConfig, queries: Sequence[str]
) -> tuple["StockChoice", list[str]]:
    """Copy an encoder; return the stock classes of Pyserini that encode as it does, and a note if
    sentence-transformers does not read records as it does.

    `config`: the recipe's encoder, whose public names replace paths of the run.
    A pair of towers whose texts sentence-transformers does not make is written in DPR's form if the stock
    class `dpr` then encodes the texts `queries` as the encoder does.
    """
    from pyserini_ance.pyserini_bridge.export import stock_class

    for has_dpr_form in (True, False):
        shutil.rmtree(folder, ignore_errors=True)
        with whole_folder(folder) as temporary:
            if adapters_of(encoder):  # merged
                save_encoder(load_encoder(encoder), temporary)
            else:
                shutil.copytree(encoder, temporary, dirs_exist_ok=True)
            name_origin(temporary, config)
            # One tower for both sides has the file of queries, which come last.
            for tower, side in {tower_folder(temporary, side): side for side in reversed(SIDES)}.items():
                write_ance(tower, side)
            unread = config_of(temporary).unread_by_sentence_transformers
            if unread and has_dpr_form:
                to_dpr(temporary)
        choice = stock_class(read_side_file(folder), folder, queries)
        if choice.query_class == "dpr" or not is_dpr(folder / TOWERS["query"]):
            break
    note = f"sentence-transformers takes whole texts, and does not know encoder.tokenization.{unread}"
    return choice, [note] if unread else []


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
