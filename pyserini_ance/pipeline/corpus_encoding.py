"""Vectors of a corpus, encoded or from a Faiss folder, in the format of another program."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Any, Literal

from pyserini_ance.data.formats.topics import PyseriniJsonl
from pyserini_ance.data.passages import check_delimiter, passage_ids
from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.batching import tokens_at_once
from pyserini_ance.encoders.config import SIDE_FILE, is_saved
from pyserini_ance.encoders.hardware import resolve_precision
from pyserini_ance.encoders.tokenization import (
    count_cut_characters,
    describe_blank,
    split_into_passages,
    token_store,
)
from pyserini_ance.pyserini_bridge import vector_files
from pyserini_ance.runs.any_encoder import encoder_source, is_run, load_any_encoder
from pyserini_ance.runs.checkpoint import document_weights_of
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import read_json_object, sha256_file, sha256_json
from pyserini_ance.vectors.encoding import Shard, encode_shards, text_windows
from pyserini_ance.vectors.faiss_index import FLAT, check_index
from pyserini_ance.vectors.faiss_library import require_faiss

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class VectorFormat:
    """The format of a folder of vectors.

    kind: `faiss` or `parquet`. index: of faiss, `flat` or a factory string as in a recipe's
    `final_evaluation.indexes`. number_type: of parquet.
    """

    kind: str = "faiss"
    index: str = FLAT
    number_type: vector_files.NumberType = "fp32"
    seed: int = vector_files.INDEX_SEED

    def check(self, dimension: int) -> None:
        """Raise RuntimeError without faiss where it is needed, ValueError for an index that does not fit."""
        if self.kind == "faiss":
            require_faiss()
            if self.index != FLAT:
                check_index(dimension, self.index)

    def write(
        self, vectors: vector_files.Rows, ids: Sequence[str], folder: Path, about: dict[str, Any]
    ) -> None:
        """Write `vectors` (N, D) with the ids of their rows; `about` says what made them."""
        if self.kind == "parquet":
            vector_files.write_parquet(vectors, ids, folder, about, self.number_type)
        else:
            vector_files.write_index(vectors, ids, folder, about, self.index, self.seed)


def encode_corpus(
    corpus: Path,
    encoder: str | Path,
    output: Path,
    format: VectorFormat,
    precision: str,
    tokens_per_batch: int | None,
    scratch: Path,
    world: World,
    shard: Shard | None = None,
    settings: Mapping[str, Any] | None = None,
    empty_documents: Literal["refuse", "skip"] = "refuse",
) -> tuple[int, int]:
    """Encode a JSONL corpus and write its vectors to the folder `output`; returns the number of documents,
    and of the passages that each has at most.

    The corpus is checked like a recipe's: unique ids, no empty documents unless they are skipped. An encoder
    that reads documents in passages writes a row for each passage, to be searched with `--max-passage`.
    Called by all processes with the same `scratch` folder; the main process writes. encoder: what
    `load_any_encoder` takes, with `settings` as its `given`.

    shard: encode this part of the corpus alone, unless `output` is that folder already; FileExistsError if it
    is another. `merge_folders` makes the bytes of the whole of all parts, which are flat Faiss folders.
    """
    if shard is None:
        _check_absent(output)
    model = load_any_encoder(encoder, world.device, "document", settings)
    format.check(model.dimension)
    resolved = world.on_main(lambda: resolve_precision(precision, world.device))
    budget = tokens_at_once(tokens_per_batch, world.device)
    source = encoder_source(encoder)
    name = str(Path(source).absolute()) if Path(source).exists() else source
    if is_saved(source):
        weights = document_weights_of(Path(source))
        about = {"side_file_sha256": sha256_file(Path(source) / SIDE_FILE), "document_weights": weights}
    else:  # with its settings
        about = model.config.model_dump(mode="json", exclude={"model"})
    provenance: dict[str, Any] = {"encoder": name, **about, "precision": resolved}
    tokenization = model.config.tokenization
    fields = () if {*tokenization.document.fields} <= {"title", "text"} else tokenization.document.fields
    reader = PyseriniJsonl(
        corpus=corpus, fields=tuple(fields), skip=("empty_documents",) if empty_documents == "skip" else ()
    )
    if shard:
        # Which part of which corpus it is, by which weights, and all settings in which shards agree.
        provenance[vector_files.SHARD] = {
            "number": shard.number,
            "of": shard.of,
            "weights": model.digest(),
            "corpus": sha256_json([sha256_file(file) for file in reader.input_files()]),
            "empty_documents": empty_documents,
            "tokens_per_batch": budget,
        }
        if present := world.on_main(lambda: vector_files.documents_in_shard(output, provenance)):
            log.info("%s holds shard %s already", output, shard)
            return int(present), tokenization.document.passages
    documents = reader.read(scratch / f"documents-{world.rank}").documents
    windows = text_windows(len(documents), budget)
    if shard:
        total, windows = len(documents), shard.cut(windows)
        documents, windows = documents.between(*windows[[0, -1]].tolist()), windows - windows[0]
        provenance[vector_files.SHARD].update(documents=len(documents), documents_of_all=total)
    whole = token_store(model.tokenizer, "document", documents, scratch / "tokens", "documents")
    blank_rows = whole.rows_of(model.tokenizer.blank("document"))
    if world.is_main:
        if blank := describe_blank(documents, blank_rows, tokenization.document.template):
            log.warning("%s", blank)
        if cut := count_cut_characters(documents, "document", tokenization):
            log.warning(
                "%s of %s documents are cut at %s characters: the encoder's tokenization.max_characters",
                *(f"{count:,}" for count in (cut, len(documents), tokenization.max_characters or 0)),
            )
    tokens, passages = split_into_passages(whole, tokenization)
    if passages:
        check_delimiter(documents.ids)
        windows = passages.offsets[windows]
    if shard:
        provenance[vector_files.SHARD]["rows"] = len(tokens)
    folder = scratch / "vectors"
    vectors = encode_shards(
        folder, provenance, model, tokens, "document", resolved, budget, "documents", world, windows
    )
    ids = passage_ids(documents.ids, passages)

    def write() -> None:
        try:
            format.write(vectors, ids, output, provenance)
        except ValueError as error:  # of Faiss, once it sees the vectors
            if format.index == FLAT:
                raise
            VectorFormat().write(vectors, ids, output, provenance)
            again = f"build another: encode --from-index {quote(str(output))}"
            raise ValueError(f"{error}; {output} holds the vectors in a flat index; {again}") from error

    world.on_main(write)
    return len(documents), tokenization.document.passages


def convert_index(index: Path, output: Path, format: VectorFormat) -> int:
    """Write the vectors of a flat Faiss folder, or of a run's, to the folder `output`; returns their number.

    Raises as `read_index` does.
    """
    _check_absent(output)
    folder = RunDir.find(index).index if is_run(index) else index
    vectors, ids = vector_files.read_index(folder)
    format.check(vectors.shape[1])
    if is_run(index) and format.index != FLAT:  # the very index that the run has measured
        format = replace(format, seed=RunDir.find(index).read_recipe().seed)
    about = read_json_object(folder / "encoder.json") or {}
    about.pop(vector_files.SHARD, None)
    if (name := str(about.get("encoder"))).startswith("../"):  # of a run
        about["encoder"] = str((folder / name).resolve())
    format.write(vectors, ids, output, about)
    return len(ids)


def _check_absent(output: Path) -> None:
    if output.exists():
        raise FileExistsError(f"{output} exists; remove it or pass another folder")
