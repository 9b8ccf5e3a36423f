"""`pyserini-ance encode` as a user runs it; in a process of its own where it loads faiss."""

import json
import subprocess
import sys

import numpy as np
import pytest

from pyserini_ance.commands.encode import main
from pyserini_ance.encoders.load_save import initial_encoder, load_encoder, save_encoder
from pyserini_ance.encoders.transformer import Transformer

CORPUS = [("007", "Cats purr."), ("b", "A long text " * 40), ("c", "Dogs bark at cats")]
READ_INDEX = (
    "import faiss, numpy, sys; i = faiss.read_index(sys.argv[1]); numpy.save(sys.argv[2], "
    "i.reconstruct_n(0, i.ntotal))"
)


@pytest.fixture(scope="module")
def encoder(tiny_bert, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    lengths = {"query": {"length_tokens": 16}, "document": {"length_tokens": 24}}
    save_encoder(
        initial_encoder(
            Transformer(model=str(tiny_bert), pooling="mean", normalize=True, tokenization=lengths), seed=1
        ),
        folder,
    )
    return folder


def encode(*flags) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "pyserini_ance", "encode", *map(str, flags)], capture_output=True, text=True
    )


def test_the_faiss_folder_names_its_encoder(encoder, tmp_path):
    corpus, output = tmp_path / "corpus.jsonl", tmp_path / "out" / "index"
    corpus.write_text("".join(json.dumps({"id": id, "contents": text}) + "\n" for id, text in CORPUS))
    done = encode("--corpus", corpus, "--encoder", encoder, "--output", output)
    assert done.returncode == 0, done.stderr
    assert (output / "docid").read_text().split("\n") == ["007", "b", "c", ""]
    assert json.loads((output / "encoder.json").read_text())["encoder"] == str(encoder)
    assert [path.name for path in output.parent.iterdir()] == ["index"]
    subprocess.run([sys.executable, "-c", READ_INDEX, output / "index", tmp_path / "vectors.npy"], check=True)
    expected = load_encoder(encoder).encode([{"text": text, "title": ""} for _, text in CORPUS], "document")
    np.testing.assert_allclose(np.load(tmp_path / "vectors.npy"), expected, atol=1e-6)
    with pytest.raises(FileExistsError, match="exists; remove it"):
        main(["--corpus", str(corpus), "--encoder", str(encoder), "--output", str(output)])


def test_processes_write_one_folder(run_processes, encoder, tmp_path):
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps({"id": id, "contents": text}) + "\n" for id, text in CORPUS))
    flags = [str(flag) for flag in ("--corpus", corpus, "--encoder", encoder)]
    for size in (1, 2):
        run_processes(size, main, [*flags, "--output", str(tmp_path / f"of-{size}" / "index")], join=False)
        assert [path.name for path in (tmp_path / f"of-{size}").iterdir()] == ["index"]
        subprocess.run(
            [
                sys.executable,
                "-c",
                READ_INDEX,
                tmp_path / f"of-{size}" / "index/index",
                tmp_path / f"{size}.npy",
            ],
            check=True,
        )
    np.testing.assert_allclose(np.load(tmp_path / "2.npy"), np.load(tmp_path / "1.npy"), atol=1e-6)
    assert (tmp_path / "of-2/index/docid").read_text() == (tmp_path / "of-1/index/docid").read_text()


@pytest.mark.parametrize(
    "line, message",
    [
        ('{"id": "1", "contents": ""}', "document '1' is empty"),
        ('{"id": "1", "contents": "x"', "line 1: malformed JSON"),
        ("", "no document"),
    ],
)
def test_a_bad_corpus_leaves_nothing(encoder, tmp_path, line, message):
    corpus, output = tmp_path / "corpus.jsonl", tmp_path / "index"
    corpus.write_text(line)
    with pytest.raises(ValueError, match=message):
        main(["--corpus", str(corpus), "--encoder", str(encoder), "--output", str(output)])
    assert [path.name for path in tmp_path.iterdir()] == ["corpus.jsonl"]
