"""`pyserini-ance encode`: encode a JSONL corpus, or take an index's vectors, into files of other programs."""

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Literal

from pyserini_ance.commands import console, parsing

DETAILS = """Formats:
  faiss    index, docid and encoder.json, for Pyserini
  parquet  part-*.parquet with docid and vector, for Anserini's HNSW and vector databases

Shards: `--shard I/N` writes a part of the corpus, `--merge SHARD ...` joins all N of one corpus, encoder,
precision and batch size into the Faiss folder that `encode` writes without --shard, byte for byte.

A line of a corpus has id, and contents or the fields of the encoder's template. --index-factory is for
--format faiss, --number-type for parquet. --from-index takes the vectors of an index as they are."""
EXAMPLE = """pyserini-ance encode --corpus corpus.jsonl --encoder runs/demo-ance/model --output encoded
  pyserini-ance encode --from-index runs/demo-ance/index --format parquet --output parquet
  pyserini-ance encode --merge shards/* --output encoded"""


@parsing.command(EXAMPLE, DETAILS)
def main(
    output: Annotated[Path, parsing.output_folder("FOLDER", "the folder to write")],
    corpus: Annotated[Path | None, parsing.option("FILE", ".jsonl(.gz), or a folder of them")] = None,
    encoder: Annotated[str | None, parsing.option("NAME", "RUN, or a Hugging Face folder or name")] = None,
    from_index: Annotated[Path | None, parsing.option("FOLDER", "RUN or a flat Faiss folder")] = None,
    merge: Annotated[list[Path] | None, parsing.option("SHARD ...", "join shards, in any order")] = None,
    empty_documents: Annotated[
        Literal["refuse", "skip"], parsing.option("WHAT", "refuse or skip documents without text")
    ] = "refuse",
    format: Annotated[Literal["faiss", "parquet"], parsing.option("FORMAT", "see below")] = "faiss",
    index_factory: Annotated[str | None, parsing.option("FACTORY", "such as HNSW32 (default: flat)")] = None,
    number_type: Annotated[
        Literal["fp32", "fp16", "int8", "ubinary"] | None,
        parsing.option("TYPE", "of parquet: fp32 (default), fp16, int8 or ubinary"),
    ] = None,
    shard: Annotated[str | None, parsing.option("I/N", "encode part I of N of the corpus alone")] = None,
    precision: parsing.PrecisionOption = "fp32",
    tokens_per_batch: parsing.TokensPerBatch = None,
    device: parsing.Device = "auto",
    encoder_settings: parsing.EncoderSettings = None,
) -> None:
    """Encode a JSONL corpus, or take the vectors of an index, into files of other programs."""
    given = parsing.encoder_settings(encoder_settings)
    if (corpus is None) != (encoder is None) or bool(corpus) + bool(from_index) + bool(merge) != 1:
        parsing.refuse("pass --corpus with --encoder, or --from-index alone, or --merge alone")
    if not corpus:
        parsing.refuse_options(
            f"{'--from-index' if from_index else '--merge'} takes vectors as they are",
            tokens_per_batch=tokens_per_batch,
            shard=shard,
            precision=precision if precision != "fp32" else None,
            empty_documents=empty_documents if empty_documents != "refuse" else None,
            encoder_settings=encoder_settings,
        )
    if format != "faiss":
        parsing.refuse_options("--index-factory is for --format faiss", index_factory=index_factory)
    if format != "parquet":
        parsing.refuse_options("--number-type is for --format parquet", number_type=number_type)
    if (shard or merge) and (index_factory or format != "faiss"):
        parsing.refuse("--shard and --merge are for a flat index; convert the merged one with --from-index")
    console.begin()
    from pyserini_ance.data.formats.lines import names_of_file
    from pyserini_ance.distributed.world import World
    from pyserini_ance.pipeline.corpus_encoding import VectorFormat, convert_index, encode_corpus
    from pyserini_ance.pyserini_bridge.encoder_classes import ENCODER_CLASS
    from pyserini_ance.pyserini_bridge.export import search_command
    from pyserini_ance.pyserini_bridge.vector_files import merge_folders
    from pyserini_ance.storage.files import unfinished
    from pyserini_ance.vectors.encoding import Shard
    from pyserini_ance.vectors.faiss_index import FLAT

    written = VectorFormat(format, index_factory or FLAT, number_type or "fp32")
    if merge:
        print(f"{output}: {merge_folders(merge, output):,} rows of {len(merge)} shards")
        return
    if from_index:
        print(f"{output}: {convert_index(from_index, output, written):,} vectors")
        return
    assert corpus and encoder
    if not any(path.exists() for path in names_of_file(corpus)):
        parsing.refuse(f"--corpus {corpus}: no such file or folder")
    part = Shard.parse(shard) if shard else None
    with World.join(device).session() as world, ExitStack() as stack:

        def make_scratch() -> str:
            """Next to the output, which is renamed into place."""
            output.parent.mkdir(parents=True, exist_ok=True)
            folder = stack.enter_context(unfinished(output.absolute().with_name(f"{output.name}.scratch")))
            folder.mkdir()
            return str(folder)

        scratch = Path(world.on_main(make_scratch))
        how = precision, tokens_per_batch, scratch, world, part, given, empty_documents
        count, passages = encode_corpus(corpus, encoder, output, written, *how)
        world.barrier()  # NFS cannot remove a folder while another process has one of its files open
    if console.is_main():
        print(f"{output}: {count:,} documents")
        if format == "faiss" and not (shard or given):  # no class takes other settings than the files'
            files, ours = (Path("TOPICS"), output, Path("RUN.trec")), ["--encoder-class", ENCODER_CLASS]
            command = search_command(*files, ["--encoder", encoder, *ours], hits=100, passages=passages)
            print(f"search it with: {command}")
