import json
from pathlib import Path

import pytest
import torch

from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.config import EncoderConfig
from pyserini_ance.encoders.initial import initial_encoder
from pyserini_ance.encoders.load_save import save_encoder
from pyserini_ance.pipeline.corpus_encoding import VectorFormat, convert_index, encode_corpus
from pyserini_ance.pyserini_bridge import vector_files
from pyserini_ance.pyserini_bridge.vector_files import merge_folders
from pyserini_ance.storage.files import read_json, write_json
from pyserini_ance.vectors.encoding import Shard

DOCUMENTS = 70
TOKENS_PER_BATCH = 96  # windows of 5 documents, of several batches each


@pytest.fixture(scope="module")
def make_encoder(tiny_bert, tmp_path_factory):
    def make(shift: float = 0.0, **document) -> Path:
        folder = tmp_path_factory.mktemp("model")
        lengths = {"query": {"length_tokens": 16}, "document": {"length_tokens": 24, **document}}
        config = EncoderConfig(model=str(tiny_bert), pooling="mean", normalize=True, tokenization=lengths)
        encoder = initial_encoder(config, seed=1)
        with torch.no_grad():
            next(encoder.towers.parameters()).add_(shift)
        save_encoder(encoder, folder)
        return folder

    return make


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "corpus.jsonl"
    texts = (f"Text {i} of " + "cats and dogs " * (i * 7 % 9) for i in range(DOCUMENTS))
    path.write_text("".join(json.dumps({"id": f"d{i}", "contents": t}) + "\n" for i, t in enumerate(texts)))
    return path


@pytest.fixture
def encode(corpus, tmp_path):
    def run(encoder: Path, name: str, shard=None, tokens=TOKENS_PER_BATCH, corpus=corpus) -> tuple[int, int]:
        scratch, output = tmp_path / f"scratch-{name}-{len(list(tmp_path.iterdir()))}", tmp_path / name
        return encode_corpus(corpus, encoder, output, VectorFormat(), "fp32", tokens, scratch, World(), shard)

    return run


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("document", [{}, {"length_tokens": 12, "passages": 3}], ids=["whole", "passages"])
@pytest.mark.parametrize("shard", [None, Shard(2, 2)])
def test_a_vector_that_is_not_finite_names_its_document(make_encoder, encode, tmp_path, document, shard):
    encoder = make_encoder(shift=float("nan"), **document)
    with pytest.raises(ValueError, match=r"the vector of text 'd\d+' is nan in dimension 0; expected finite"):
        encode(encoder, "out", shard)
    assert not (tmp_path / "out").exists()


def test_an_index_that_faiss_cannot_make_leaves_the_vectors(make_encoder, tmp_path, corpus):
    flat, work = tmp_path / "flat", ("fp32", TOKENS_PER_BATCH, tmp_path / "scratch", World())
    with pytest.raises(ValueError, match=r"'IVF100,Flat' cannot be made .* encode --from-index .*flat$"):
        encode_corpus(corpus, make_encoder(), flat, VectorFormat(index="IVF100,Flat"), *work)
    about = read_json(flat / "encoder.json") | {"encoder": "org/name", "shard": {"number": 1}}
    write_json(flat / "encoder.json", about)
    assert convert_index(flat, tmp_path / "two", VectorFormat(index="IVF2,Flat")) == DOCUMENTS
    assert read_json(tmp_path / "two" / "encoder.json") == {k: v for k, v in about.items() if k != "shard"}


@pytest.mark.parametrize("document", [{}, {"length_tokens": 12, "passages": 3}], ids=["whole", "passages"])
def test_shards_merge_into_the_bytes_of_the_whole(make_encoder, encode, tmp_path, monkeypatch, document):
    """Blocks end within shards, and shards within blocks."""
    monkeypatch.setattr(vector_files, "ROWS_PER_BLOCK", 8)
    encoder = make_encoder(**document)
    assert encode(encoder, "whole") == (DOCUMENTS, document.get("passages", 1))
    folders = [tmp_path / f"{number}" for number in (1, 2, 3)]
    counts = [encode(encoder, folder.name, Shard(number, 3))[0] for number, folder in enumerate(folders, 1)]
    assert sum(counts) == DOCUMENTS and max(counts) - min(counts) <= 5
    rows = merge_folders(folders[::-1], tmp_path / "merged")
    whole = files_of(tmp_path / "whole")
    assert files_of(tmp_path / "merged") == whole and rows >= DOCUMENTS
    with pytest.raises(FileExistsError, match="merged exists and is not empty"):
        merge_folders(folders, tmp_path / "merged")
    assert len(whole) == 3


def test_a_shard_that_is_there_is_not_encoded_again(make_encoder, encode, tmp_path, monkeypatch, corpus):
    encoder = make_encoder()
    count = encode(encoder, "shard", Shard(2, 4))
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in (tmp_path / "shard").iterdir()}
    with monkeypatch.context() as patch:
        patch.setattr("pyserini_ance.pipeline.corpus_encoding.encode_shards", None)
        assert encode(encoder, "shard", Shard(2, 4)) == count
    assert {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in before} == before
    longer = tmp_path / "longer.jsonl"
    longer.write_text(corpus.read_text() + '{"id": "more", "contents": "More."}\n')
    for key, arguments in {
        "number is 2, not 3": (encoder, "shard", Shard(3, 4)),
        "of is 4, not 5": (encoder, "shard", Shard(2, 5)),
        "tokens_per_batch is 96, not 64": (encoder, "shard", Shard(2, 4), 64),
        "corpus is": (encoder, "shard", Shard(2, 4), TOKENS_PER_BATCH, longer),
        "weights is": (make_encoder(shift=0.1), "shard", Shard(2, 4)),
    }.items():
        with pytest.raises(FileExistsError, match=f"shard holds another shard: .*{key}"):
            encode(*arguments)
    with pytest.raises(FileExistsError, match="shard exists; remove it"):
        encode(encoder, "shard")
    for name in ("empty", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "other" / "mine.txt").touch()
    assert encode(encoder, "empty", Shard(2, 4)) == count
    with pytest.raises(FileExistsError, match="other exists and is not a shard"):
        encode(encoder, "other", Shard(2, 4))
