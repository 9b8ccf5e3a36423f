"""A corpus that is encoded in shards, and the same corpus as a whole."""

import json
from pathlib import Path

import pytest
import torch

from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.load_save import initial_encoder, save_encoder
from pyserini_ance.encoders.transformer import Transformer
from pyserini_ance.pipeline.corpus_encoding import VectorFormat, encode_corpus
from pyserini_ance.pyserini_bridge.shards import merge_folders
from pyserini_ance.vectors.shard_tasks import Shard

DOCUMENTS = 70
TOKENS_PER_BATCH = 96  # windows of 5 documents, of several batches each
FILES = ("index", "docid", "encoder.json")


@pytest.fixture(scope="module")
def make_encoder(tiny_bert, tmp_path_factory):
    def make(shift: float = 0.0, **document) -> Path:
        folder = tmp_path_factory.mktemp("model")
        lengths = {"query": {"length_tokens": 16}, "document": {"length_tokens": 24, **document}}
        family = Transformer(model=str(tiny_bert), pooling="mean", normalize=True, tokenization=lengths)
        encoder = initial_encoder(family, seed=1)
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
    def run(
        encoder: Path, name: str, shard: Shard | None = None, tokens=TOKENS_PER_BATCH, corpus=corpus
    ) -> int:
        scratch = tmp_path / f"scratch-{name}-{len(list(tmp_path.iterdir()))}"
        return encode_corpus(
            corpus, encoder, tmp_path / name, VectorFormat(), "fp32", tokens, "cpu", scratch, World(), shard
        )

    return run


@pytest.mark.parametrize("document", [{}, {"length_tokens": 12, "passages": 3}])
def test_shards_merge_into_the_bytes_of_the_whole(make_encoder, encode, tmp_path, document):
    encoder = make_encoder(**document)
    assert encode(encoder, "whole") == DOCUMENTS
    for of in (2, 5):
        names = [f"{of}-{number}" for number in range(1, of + 1)]
        counts = [encode(encoder, name, Shard(n, of)) for n, name in enumerate(names, start=1)]
        assert sum(counts) == DOCUMENTS and max(counts) - min(counts) <= 5
        merge_folders([tmp_path / name for name in names], tmp_path / f"merged-{of}")
        for file in FILES:
            assert (tmp_path / f"merged-{of}" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()


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


def test_more_shards_than_a_corpus_has_are_refused(make_encoder, encode, tmp_path):
    with pytest.raises(ValueError, match="--shard 1/99: a corpus of 70 documents has 14 shards at most"):
        encode(make_encoder(), "shard", Shard(1, 99))
    assert not (tmp_path / "shard").exists()
