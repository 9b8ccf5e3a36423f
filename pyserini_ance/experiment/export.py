"""Export: the last stage's encoder, index, ranking and topics, in the forms that Pyserini's own code reads."""

import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pyserini_ance.data.passages import passage_ids
from pyserini_ance.encoders.checkpoint import TOWERS, read_side_file
from pyserini_ance.encoders.dpr import is_dpr, to_dpr
from pyserini_ance.experiment.closing import Closing
from pyserini_ance.runs.checkpoint import Checkpoint
from pyserini_ance.storage.files import copy_whole
from pyserini_ance.storage.folders import whole_folder
from pyserini_ance.vectors.shards import ShardedVectors

if TYPE_CHECKING:
    from pyserini_ance.pyserini_bridge.stock import StockChoice


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
    from pyserini_ance.pyserini_bridge.export import search_command, write_index, write_topics

    run = closing.run
    queries = {split: closing.data.collection.split(split).queries for split in closing.recipe.test.split}
    asked = [text for of_split in queries.values() for text in of_split.columns["text"]]
    choice = _write_model(checkpoint.encoder, run.model, asked)
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


def _write_model(encoder: Path, folder: Path, asked: Sequence[str]) -> "StockChoice":
    """Copy an encoder, a pair in DPR's form where stock `dpr` then encodes the queries `asked` as we do; which stock classes do."""
    from pyserini_ance.pyserini_bridge.export import stock_class

    def fill(beside: Path) -> None:
        shutil.copytree(encoder, beside, dirs_exist_ok=True)
        if in_dprs_form:
            to_dpr(beside)

    for in_dprs_form in (True, False):
        _replace(folder, fill)
        choice = stock_class(read_side_file(folder), folder, asked)
        if choice.query_class == "dpr" or not is_dpr(folder / TOWERS["query"]):
            break
    return choice


def _replace(folder: Path, fill) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    with whole_folder(folder) as beside:
        fill(beside)
