"""The launcher: flags that it adds, what it says of Pyserini without a network, evaluation through it."""

import json
import shutil
from pathlib import Path

import ir_measures
import numpy as np
import pytest
from ir_measures import RR, R, nDCG
from safetensors.numpy import save_file

from pyserini_ance.pyserini_bridge import launcher
from pyserini_ance.pyserini_bridge.launcher import run_module, with_class
from pyserini_ance.runs.checkpoint import document_weights_of

SIDE = {"format": 2, "pooling": "mean", "layer_norm": False, "normalize": True, "dimension": 32}
SIDE["tokenization"] = {"query": {"length_tokens": 64, "template": "query: {text}"}}
SIDE["tokenization"]["document"] = {"length_tokens": 128, "template": "{text}"}
FAISS = "pyserini.search.faiss"
OURS = ["--encoder-class", "pyserini_ance"]


@pytest.fixture
def encoder(bert_tokenizer, tmp_path) -> Path:
    """A folder with what the launcher reads of a saved encoder."""
    shutil.copytree(bert_tokenizer, tmp_path / "model")
    (tmp_path / "model/pyserini_ance.json").write_text(json.dumps(SIDE))
    return tmp_path / "model"


@pytest.mark.parametrize(
    ("module", "before", "after"),
    [
        (FAISS, [], ["--hits", "9"]),
        ("pyserini.encode", ["output", "--to-faiss", "encoder"], ["--fp16", "input", "--corpus", "c"]),
        ("pyserini.search.hybrid", ["sparse", "--encoder", "splade", "dense"], ["run", "--hits", "9"]),
    ],
)
def test_our_folder_gets_our_class_unless_one_is_given(encoder, caplog, module, before, after):
    given = ["--encoder", str(encoder)]
    assert with_class(module, [*before, *given, *after]) == [*before, *OURS, *given, *after]
    assert "using pyserini_ance" in caplog.text
    auto = [*before, *given, "--encoder-class", "auto", *after]
    assert with_class(module, auto) == auto


def test_folders_that_our_class_reads_or_misses_get_it_and_others_a_warning(tmp_path, caplog):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "recipe.yaml").write_text("")
    for name in ("run", "missing", ""):  # `adapt` has its run in `run`
        given = [f"--encoder={tmp_path / name}"]
        assert with_class(FAISS, given) == [*OURS, *given]
    argv = ["--encoder", "finance/model"]
    assert with_class(FAISS, argv) == argv
    assert "guess one from the path 'finance/model'" in caplog.text


def test_an_index_of_other_weights_is_warned_of(encoder, tmp_path, monkeypatch, caplog):
    """Of the document tower: LTRe's query towers search the index of the run that they start from."""
    monkeypatch.setattr(launcher.encoder_classes, "register", lambda: None)
    monkeypatch.setattr(launcher.runpy, "run_module", lambda *_, **__: None)
    pair = tmp_path / "pair"
    for name, tower in (("queries", "query"), ("documents", "document")):
        shutil.copytree(encoder, pair / name)
        (pair / name / "pyserini_ance.json").write_text(json.dumps({**SIDE, "tower": tower}))
        save_file({"a": np.array([len(name)], np.float32)}, pair / name / "model.safetensors")
    (pair / "pyserini_ance.json").write_text(json.dumps({**SIDE, "tied": False}))
    (tmp_path / "index").mkdir()

    def warnings(about: dict) -> str:
        caplog.clear()
        (tmp_path / "index" / "encoder.json").write_text(json.dumps({"encoder": "/one", **about}))
        run_module(FAISS, ["--encoder", str(pair), *OURS, "--index", str(tmp_path / "index")])
        return caplog.text

    weights = document_weights_of(pair)
    assert weights == document_weights_of(pair / "queries") == document_weights_of(pair / "documents")
    save_file({"a": np.zeros(1, np.float32)}, pair / "queries" / "model.safetensors")
    assert "weights" not in warnings({"document_weights": weights}) + warnings({})
    save_file({"a": np.zeros(1, np.float32)}, pair / "documents" / "model.safetensors")
    told = warnings({"document_weights": weights})
    assert f"has vectors of /one, whose weights are not those of --encoder {pair}" in told


INDEX = ["--collection", "JsonCollection", "--input", ".", "--index", "made", "--threds", "2"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["lucene", "--index", "indx", "--topics", "t.tsv", "--output", "o"], "ended without a result"),
        (["index", *INDEX], "wrote no index made"),
    ],
)
def test_what_pyserini_ends_with_exit_code_0_is_an_error(child, tmp_path, monkeypatch, flags, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.tsv").write_text("1\ta query\n")
    (tmp_path / "made").mkdir()
    code = f"from pyserini_ance.commands import console, search; console.run(lambda: search.main({flags!r}))"
    done = child(code, check=False)
    assert done.returncode == 1 and f"{message}; its message is" in done.stderr


TOPICS = {
    "t.tsv": ("007\tx\n7\ty\n00\tz\n²\tv\n+7\tw\n", ["+7", "00", "007", "7", "²"]),
    "beir/t.tsv": ("007\tx\n7\ty\n", ["007", "7"]),
    "cacm/t.txt": ("8\tx\n7\ty\n", ["7", "8"]),
    "numbers.tsv": ("10\tx\n9\ty\n", [9, 10]),  # read as always: in the order of numbers
}
READ = """
import json, sys
from pyserini_ance.pyserini_bridge.java import import_pyserini
from pyserini_ance.pyserini_bridge.launcher import keep_topic_ids
keep_topic_ids()
read = import_pyserini("pyserini.query_iterator").DefaultQueryIterator.from_topics
print(json.dumps([[id for id, _ in read(file)] for file in sys.argv[1:]]))
"""


def test_topic_ids_are_read_as_text_where_pyserini_changes_them(child, tmp_path):
    for name, (text, _) in TOPICS.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    read = json.loads(child(READ, *(tmp_path / name for name in TOPICS)).stdout.splitlines()[-1])
    assert dict(zip(TOPICS, read, strict=True)) == {name: ids for name, (_, ids) in TOPICS.items()}


def test_trec_eval_agrees_with_ir_measures(child, tmp_path):
    run, qrels = tmp_path / "run.txt", tmp_path / "qrels.txt"
    run.write_text("".join(f"q{q} Q0 d{d} {d} {20 - d}.5 x\n" for q in range(3) for d in range(1, 16)))
    qrels.write_text("q0 0 d1 1\nq0 0 d12 2\nq1 0 d4 3\nq1 0 d40 1\nq1 0 d2 0\nq2 0 d50 1\n")
    flags = ["trec_eval", "-m", "ndcg_cut.10", "-m", "recip_rank", "-m", "recall.10", str(qrels), str(run)]
    done = child(f"from pyserini_ance.commands import search; search.main({flags!r})")
    cells = [line.split() for line in done.stdout.splitlines() if "\tall\t" in line]
    measures = {"ndcg_cut_10": nDCG @ 10, "recip_rank": RR, "recall_10": R @ 10}
    files = list(ir_measures.read_trec_qrels(str(qrels))), list(ir_measures.read_trec_run(str(run)))
    values = ir_measures.calc_aggregate(measures.values(), *files)
    expected = {name: pytest.approx(values[measure], abs=5e-5) for name, measure in measures.items()}
    assert {name: float(value) for name, _, value in cells} == expected
