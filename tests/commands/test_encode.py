"""`pyserini-ance encode` as a user runs them; in a process of its own where they load faiss."""

import json
import subprocess
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
from helpers.processes import CommandServer
from helpers.waiting import until

from pyserini_ance.commands.encode import main
from pyserini_ance.encoders.config import EncoderConfig
from pyserini_ance.encoders.initial import initial_encoder
from pyserini_ance.encoders.load_save import load_encoder, save_encoder
from pyserini_ance.pyserini_bridge.vector_files import write_index
from pyserini_ance.recipe.load import dump, load

CORPUS = [("007", "Cats purr."), ("b", "A long text " * 40), ("c", "Dogs bark at cats")]
CORPUS_LINES = "".join(json.dumps({"id": id, "contents": text}) + "\n" for id, text in CORPUS)
READ_INDEX = "import faiss, numpy, sys; i = faiss.read_index(sys.argv[1])\n"
READ_INDEX += "numpy.save(sys.argv[2], i.reconstruct_n(0, i.ntotal))"


@pytest.fixture(scope="module")
def encoder(tiny_bert, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    lengths = {"query": {"length_tokens": 16}, "document": {"length_tokens": 24}}
    settings = EncoderConfig(model=str(tiny_bert), pooling="mean", normalize=True, tokenization=lengths)
    save_encoder(initial_encoder(settings, seed=1), folder)
    return folder


@pytest.fixture
def read_index(forked_python, tmp_path):
    """The vectors of a faiss file."""

    def read(file: Path) -> np.ndarray:
        subprocess.run([*forked_python, "-c", READ_INDEX, file, tmp_path / "vectors.npy"], check=True)
        return np.load(tmp_path / "vectors.npy")

    return read


def test_the_faiss_folder_names_its_encoder(read_index, encoder, tmp_path, capsys):
    corpus, output = tmp_path / "corpus.jsonl", tmp_path / "out" / "index"
    corpus.write_text(CORPUS_LINES)
    flags = ["--corpus", str(corpus), "--encoder", str(encoder), "--output", str(output)]
    main(flags)
    assert f" faiss --encoder {encoder} --encoder-class pyserini_ance --topics " in capsys.readouterr().out
    assert (output / "docid").read_text().split("\n") == ["007", "b", "c", ""]
    assert json.loads((output / "encoder.json").read_text())["encoder"] == str(encoder)
    assert [path.name for path in output.parent.iterdir()] == ["index"]
    expected = load_encoder(encoder).encode([{"text": text, "title": ""} for _, text in CORPUS], "document")
    np.testing.assert_allclose(read_index(output / "index"), expected, atol=1e-6)
    for there in (flags, [*flags, "--output", "."]):
        with pytest.raises(FileExistsError, match="exists; remove it"):
            main(there)


def test_the_fields_of_the_template_are_read(read_index, tiny_bert, tmp_path):
    document = {"template": "{url} {text}", "length_tokens": 24}
    settings = EncoderConfig(model=str(tiny_bert), tokenization={"document": document})
    save_encoder(initial_encoder(settings, seed=1), tmp_path / "model")
    corpus, output = tmp_path / "corpus.jsonl", tmp_path / "index"
    flags = ["--corpus", str(corpus), "--encoder", str(tmp_path / "model"), "--output", str(output)]
    corpus.write_text('{"id": 1, "url": "x.org", "text": "cats"}\n{"id": 2, "contents": "x.org\\ncats"}')
    main(flags)
    expected = load_encoder(tmp_path / "model").encode([{"url": "x.org", "text": "cats"}] * 2, "document")
    np.testing.assert_allclose(read_index(output / "index"), expected, atol=1e-5)
    corpus.write_text(CORPUS_LINES)
    with pytest.raises(ValueError, match="contents of 1 lines: .* a line each for url, text; add what is"):
        main([*flags[:-1], str(tmp_path / "other")])


def test_processes_write_one_folder(run_processes, read_index, encoder, tmp_path):
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text(CORPUS_LINES)
    flags = [str(flag) for flag in ("--corpus", corpus, "--encoder", encoder)]
    for size in (1, 2):
        run_processes(size, main, [*flags, "--output", str(tmp_path / f"of-{size}" / "index")], join=False)
        assert [path.name for path in (tmp_path / f"of-{size}").iterdir()] == ["index"]
    one, two = (read_index(tmp_path / f"of-{size}" / "index/index") for size in (1, 2))
    assert (one == two).all()
    assert (tmp_path / "of-2/index/docid").read_text() == (tmp_path / "of-1/index/docid").read_text()


@pytest.mark.long
@pytest.mark.parametrize("glob", [".*/vectors", ".1.*/.index*"])
def test_a_shard_that_is_killed_is_not_there_and_is_made_by_the_next_call(encoder, tmp_path, glob):
    """While it encodes, and while its files are written."""
    corpus, output = tmp_path / "corpus.jsonl", tmp_path / "shards"
    corpus.write_text(CORPUS_LINES)
    flags = ["--corpus", corpus, "--encoder", encoder, "--shard", "1/2"]
    flags = [str(flag) for flag in [*flags, "--output", output / "1"]]
    with CommandServer() as server:
        pid = server.start("encode", flags, fault="endless_vector_files")
        until(lambda: list(output.glob(glob)), seconds=200)
        assert server.kill(pid)["code"] == -9
    assert not (output / "1").exists()
    main(flags)
    assert [path.name for path in output.iterdir()] == ["1"]


@pytest.mark.parametrize(
    "line, message",
    [
        ('{"id": "1", "contents": ""}', r"document '1' is empty; .* \(encode: --empty-documents skip\)$"),
        ("", "corpus.jsonl: no document was read; expected at least one with a text; add documents"),
    ],
)
def test_a_bad_corpus_leaves_nothing(encoder, tmp_path, line, message):
    corpus, output = tmp_path / "corpus.jsonl", tmp_path / "index"
    corpus.write_text(line)
    (tmp_path / ".others.removed").touch()
    with pytest.raises(ValueError, match=message):
        main(["--corpus", str(corpus), "--encoder", str(encoder), "--output", str(output)])
    assert sorted(path.name for path in tmp_path.iterdir()) == [".others.removed", "corpus.jsonl"]


def test_parquet_holds_the_same_vectors(encoder, tmp_path, capsys):
    corpus = tmp_path / "corpus.jsonl"
    titled = {"id": "t", "title": "Cats", "text": "They purr."}
    records = [{"id": id, "contents": text} for id, text in CORPUS] + [titled]
    corpus.write_text("".join(json.dumps(record) + "\n" for record in records))
    flags = ["--corpus", str(corpus), "--encoder", str(encoder), "--output"]
    main([*flags, str(tmp_path / "parquet"), "--format", "parquet"])
    assert "4 documents\n" in capsys.readouterr().out
    table = pyarrow.parquet.read_table(tmp_path / "parquet/part-00000.parquet")
    assert table["docid"].to_pylist() == ["007", "b", "c", "t"]
    vectors = np.stack(table["vector"].to_numpy())
    texts = [{"text": text, "title": ""} for _, text in CORPUS] + [titled]
    np.testing.assert_allclose(vectors, load_encoder(encoder).encode(texts, "document"), atol=1e-6)
    about = json.loads(table.schema.metadata[b"encoder"])
    assert about["encoder"] == str(encoder) and about["precision"] == "fp32"


def test_an_index_of_a_run_in_another_format(tmp_path, capsys):
    run, vectors = tmp_path / "run", np.random.default_rng(0).normal(size=(64, 8)).astype(np.float32)
    ids = [f"d{row}" for row in range(64)]
    write_index(vectors, ids, run / "index", {"encoder": "../model", "weights": "w"})
    (run / "recipe.yaml").write_text(dump(load("demo/rand", "seed=7")))
    for source, name in ((run, "of-run"), (run / "index", "of-index")):
        flags = ["--from-index", str(source), "--output", str(tmp_path / name), "--format", "parquet"]
        main([*flags, "--number-type", "fp16"])
        table = pyarrow.parquet.read_table(tmp_path / name / "part-00000.parquet")
        assert table["docid"].to_pylist() == ids
        np.testing.assert_array_equal(np.stack(table["vector"].to_numpy()), vectors.astype(np.float16))
        about = json.loads(table.schema.metadata[b"encoder"])
        assert about == {"encoder": str(run / "model"), "weights": "w"}
    assert "64 vectors" in capsys.readouterr().out
    main(["--from-index", str(run), "--output", str(tmp_path / "small"), "--index-factory", "PQ4x4"])
    for seed in (7, 42):  # the run measures its indexes with its own
        write_index(vectors, ids, tmp_path / str(seed), {}, "PQ4x4", seed)
        written = [(tmp_path / name / "index").read_bytes() for name in ("small", str(seed))]
        assert (written[0] == written[1]) == (seed == 7)
    with pytest.raises(FileExistsError, match="of-run exists"):
        main(["--from-index", str(run), "--output", str(tmp_path / "of-run")])


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--corpus=c", "--encoder=e", "--shard=1/2", "--index-factory=HNSW32"], "are for a flat index"),
        (["--merge", "a", "b", "--format=parquet"], "are for a flat index"),
        (["--corpus=c", "--encoder=e", "--shard=1/2", "--format=parquet"], "with --from-index"),
        ([], "pass --corpus with --encoder, or --from-index alone, or --merge alone"),
        (["--merge", "a", "b", "--from-index", "i"], "or --merge alone"),
        (["--from-index", "i", "--format", "parquet", "--index-factory", "HNSW32"], "is for --format faiss"),
        (["--from-index", "i", "--precision", "bf16"], "takes vectors as they are; remove --precision"),
        (["--merge", "a", "--empty-documents", "skip"], "as they are; remove --empty-documents"),
        (["--from-index", "i", "--number-type", "fp16"], "is for --format parquet; remove"),
        (["--from-index", "i", "--encoder-settings", "a=1"], "a=1: expected pooling=, normalize= or length"),
        (["--from-index", "i", "--encoder-settings", "normalize=false"], "they are; remove --encoder-sett"),
    ],
)
def test_arguments_that_do_not_go_together(capsys, flags, message):
    with pytest.raises(SystemExit):
        main(["--output", "o", *flags])
    assert message in capsys.readouterr().err
