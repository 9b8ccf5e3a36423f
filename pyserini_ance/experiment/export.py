"""Export: the last stage's encoder, index, ranking and topics, in the forms that Pyserini's own code reads."""

import shutil
import time
from pathlib import Path

from pyserini_ance.data.passages import passage_ids
from pyserini_ance.encoders.checkpoint import read_side_file
from pyserini_ance.encoders.dpr import to_dpr
from pyserini_ance.experiment.closing import Closing
from pyserini_ance.runs.checkpoint import Checkpoint
from pyserini_ance.storage.files import copy_whole
from pyserini_ance.storage.folders import whole_folder
from pyserini_ance.vectors.shards import ShardedVectors


def export(row: str, checkpoint: Checkpoint, closing: Closing, seconds: dict) -> tuple[dict, dict]:
    """Write `model/`, `index/`, and for each test split the final run and the topics; the row's record, and how to search with the model.

    The rankings that are measured were searched over exactly the vectors that the index holds. Called by all processes of
    the closing's world; the first one writes.
    """
    start = time.perf_counter()
    snapshot = closing.rank(row, checkpoint)
    record = closing.measure(row, time.perf_counter() - start, **seconds)
    closing.rank_by_indexes(row, snapshot)
    vectors, about = snapshot.document_vectors, {"weights": checkpoint.weights, "precision": snapshot.precision}
    return record, closing.world.once(lambda: _write(row, checkpoint, closing, vectors, about))


def _write(row: str, checkpoint: Checkpoint, closing: Closing, vectors: ShardedVectors, about: dict) -> dict:
    from pyserini_ance.pyserini_bridge.export import search_command, stock_class, write_index, write_topics

    run = closing.run
    _replace(run.model, lambda beside: _copy_encoder(checkpoint.encoder, beside))
    queries = {split: closing.data.collection.split(split).queries for split in closing.recipe.test.split}
    asked = [text for of_split in queries.values() for text in of_split.columns["text"]]
    choice = stock_class(read_side_file(run.model), run.model, asked)
    shutil.rmtree(run.index, ignore_errors=True)
    ids, passages = closing.data.collection.documents.ids, closing.data.passages
    write_index(vectors, passage_ids(ids, passages), run.index, {"encoder": "../model", **about})
    hits, most, commands = closing.recipe.test.hits, passages.most if passages else 1, []
    for split, of_split in queries.items():
        copy_whole(run.ranking(row, split), run.final_run(split))
        topics = write_topics(list(zip(of_split.ids, of_split.columns["text"], strict=True)), run.folder, split)
        output = run.folder / ("run.pyserini.txt" if len(queries) == 1 else f"run.pyserini.{split}.txt")
        commands.append(search_command(topics, run.index, output, choice, hits, most))
    documents = {"encoder": str(choice.document_folder), "class": choice.document_class, "flags": choice.document_flags}
    return {"class": choice.query_class, "documents": documents, "notes": choice.describe(), "command": "\n".join(commands)}


def _copy_encoder(encoder: Path, folder: Path) -> None:
    """A pair in the form that Pyserini loads it in."""
    shutil.copytree(encoder, folder, dirs_exist_ok=True)
    to_dpr(folder)


def _replace(folder: Path, fill) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    with whole_folder(folder) as beside:
        fill(beside)
