"""The launcher: flags that it adds, what it says of Pyserini without a network, evaluation through it."""

import json
import os
import shutil
from pathlib import Path

import ir_measures
import numpy as np
import pytest
from ir_measures import RR, R, nDCG
from safetensors.numpy import save_file

from pyserini_ance.pyserini_bridge import launcher
from pyserini_ance.pyserini_bridge.launcher import run_module, with_settings
from pyserini_ance.runs.checkpoint import document_weights_of

NO_NETWORK = """
import sys
sys.path.insert(0, sys.argv[1])
from pyserini_ance.pyserini_bridge import java as jvm
jvm.start_java = lambda: None
jvm.import_pyserini("pyserini.encode")
"""


SIDE = {
    "format": 1,
    "kind": "transformer",
    "pooling": "mean",
    "normalize": True,
    "dimension": 32,
    "tokenization": {
        "query": {"length_tokens": 64, "template": "query: {text}"},
        "document": {"length_tokens": 128, "template": "{text}"},
    },
}
FAISS, ENCODE = "pyserini.search.faiss", "pyserini.encode"
AUTO = ["--encoder-class", "auto"]
QUERY_FLAGS = ["--pooling", "mean", "--l2-norm", "--query-prefix", "query:"]
OURS = ["--encoder-class", "pyserini_ance"]


@pytest.fixture
def encoder(bert_tokenizer, tmp_path) -> Path:
    """A folder with what the launcher reads of a saved encoder."""
    shutil.copytree(bert_tokenizer, tmp_path / "model")
    (tmp_path / "model/pyserini_ance.json").write_text(json.dumps(SIDE))
    return tmp_path / "model"


def test_a_run_is_its_model(encoder):
    run = encoder.parent
    (run / "recipe.yaml").touch()
    assert with_settings(FAISS, ["--encoder", str(run)]) == ["--encoder", str(encoder), *OURS]
    assert with_settings(FAISS, [f"--encoder={run}", *OURS]) == [f"--encoder={encoder}", *OURS]


def test_a_sentence_transformers_folder_gets_our_class(tmp_path):
    kinds = ("Transformer", "Pooling")
    modules = [{"type": f"sentence_transformers.models.{kind}", "path": kind} for kind in kinds]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    given = ["--encoder", str(tmp_path)]
    assert with_settings(FAISS, given) == [*given, *OURS]
    assert with_settings(FAISS, [*given, "--pooling", "mean"]) == [*given, "--pooling", "mean"]
    with pytest.raises(ValueError, match="does not read --pooling mean; pass --encoder-class auto"):
        with_settings(FAISS, [*given, *OURS, "--pooling", "mean"])


def test_our_folder_gets_our_class(encoder, caplog):
    given = ["--encoder", str(encoder), "--hits", "9"]
    assert with_settings(FAISS, given) == [*given, *OURS]
    assert "using pyserini_ance" in caplog.text
    given = ["output", "--to-faiss", "encoder", f"--encoder={encoder}", "--fp16", "input", "--corpus", "c"]
    assert with_settings(ENCODE, given) == [*given[:5], *OURS, "--dimension", "32", *given[5:]]
    sections = ["dense", "--encoder", str(encoder), "sparse", "--encoder", "splade", "run", "--hits", "9"]
    expected = [*sections[:3], *OURS, *sections[3:]]
    assert with_settings("pyserini.search.hybrid", sections) == expected


def test_auto_gets_the_flags_of_the_side_file(encoder, caplog):
    """Without them, it searches with other vectors and says nothing."""
    given = ["--encoder", str(encoder), *AUTO]
    assert with_settings(FAISS, given) == [*given, *QUERY_FLAGS]
    assert f"added {' '.join(QUERY_FLAGS)}, as pyserini_ance.json of {encoder} says" in caplog.text
    caplog.clear()
    whole = [*given, *QUERY_FLAGS, "--max-length", "9"]
    assert with_settings(FAISS, whole) == whole and not caplog.text
    given = ["encoder", *given, "--l2-norm"]
    added = ["--pooling", "mean", "--max-length", "128", "--dimension", "32"]
    assert with_settings(ENCODE, given) == [*given, *added]


@pytest.mark.parametrize(
    ("module", "flags", "words"),
    [
        (FAISS, [*AUTO, "--pooling", "cls"], ["--pooling cls contradicts", "--pooling mean --l2-norm"]),
        (FAISS, [*OURS, "--pooling=cls"], ["--pooling cls contradicts"]),
        (FAISS, [*AUTO, "--query-prefix", "question:"], ["--query-prefix question: contradicts"]),
        (ENCODE, ["encoder", *AUTO, "--dimension", "768"], ["--dimension 768 contradicts", "--dimension 32"]),
        (
            FAISS,
            ["--encoder-class", "ance"],
            ["class ance does not", "says kind transformer", "auto or pyserini"],
        ),
    ],
)
def test_what_contradicts_the_side_file_is_refused(encoder, module, flags, words):
    with pytest.raises(ValueError) as error:
        with_settings(module, [*flags, "--encoder", str(encoder)])
    assert all(part in str(error.value) for part in (*words, str(encoder), "pyserini_ance")), error.value


def test_a_flag_for_what_the_encoder_does_not_do_is_refused(encoder):
    (encoder / "pyserini_ance.json").write_text(json.dumps({**SIDE, "normalize": False}))
    with pytest.raises(ValueError, match="--l2-norm contradicts .*by which the flags are --pooling mean"):
        with_settings(FAISS, [*AUTO, "--l2-norm", "--encoder", str(encoder)])


def test_a_stock_class_that_cannot_compute_the_vectors_is_refused_with_the_reason(encoder):
    (encoder / "pyserini_ance.json").write_text(json.dumps({**SIDE, "projection": 8}))
    reason = r"does not compute .*projects to 8 numbers.*\. Pass --encoder-class pyserini_ance$"
    with pytest.raises(ValueError, match=reason):
        with_settings(FAISS, [*AUTO, "--encoder", str(encoder)])


def test_of_two_towers_the_right_one_is_named(encoder, tmp_path):
    pair = tmp_path / "pair"
    for name, tower in (("queries", "query"), ("documents", "document")):
        shutil.copytree(encoder, pair / name)
        (pair / name / "pyserini_ance.json").write_text(json.dumps({**SIDE, "tower": tower}))
    (pair / "pyserini_ance.json").write_text(json.dumps({**SIDE, "tied": False}))
    assert with_settings(FAISS, [*AUTO, "--encoder", f"{pair}/queries"])[-5:] == QUERY_FLAGS
    for wrong in (pair, pair / "documents"):
        with pytest.raises(ValueError, match=f"pass --encoder {pair}/queries$"):
            with_settings(FAISS, [*AUTO, "--encoder", str(wrong)])


def test_an_index_of_other_weights_is_warned_of(encoder, tmp_path, monkeypatch, caplog):
    """Of the document tower: LTRe's query towers search the index of the run that they start from."""
    monkeypatch.setattr(launcher, "register", lambda: None)
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


def test_truncated_weights_are_named(encoder):
    save_file({"a": np.zeros(100)}, encoder / "model.safetensors")
    os.truncate(encoder / "model.safetensors", 200)
    for flags in ([], AUTO, OURS):
        with pytest.raises(RuntimeError, match=rf"{encoder}/model.safetensors is damaged .*; copy it again"):
            with_settings(FAISS, [*flags, "--encoder", str(encoder)])


def test_a_folder_that_does_not_exist_is_named_with_a_similar_one(encoder):
    with pytest.raises(
        FileNotFoundError, match=f"--encoder {encoder}l: no such folder .did you mean 'model'.*"
    ):
        with_settings(FAISS, ["--encoder", f"{encoder}l", *OURS])


def test_an_index_that_does_not_exist_is_named_before_java_starts(tmp_path):
    (tmp_path / "index").mkdir()
    with pytest.raises(
        FileNotFoundError, match=r"indx: no such folder .did you mean 'index'.*train --resume"
    ):
        run_module(FAISS, ["--encoder", "x", f"--index={tmp_path}/indx"])


def test_an_unknown_name_of_an_index_is_an_error(child, tmp_path):
    """Pyserini ends with exit code 0."""
    flags = ["lucene", "--index", "no-such-index", "--topics", f"{tmp_path}/t.tsv", "--output", "o"]
    (tmp_path / "t.tsv").write_text("1\ta query\n")
    code = f"from pyserini_ance.commands import console, search; console.run(lambda: search.main({flags!r}))"
    done = child(code, check=False)
    assert done.returncode == 1 and "error: --index no-such-index: no such folder" in done.stderr


def test_guessing_by_the_path_is_warned_of(caplog):
    argv = ["--encoder", "finance/model"]
    assert with_settings(FAISS, argv) == argv
    assert "guess one from the path 'finance/model'" in caplog.text


def test_pyserini_without_network(child, tmp_path):
    (tmp_path / "pyserini").mkdir()
    (tmp_path / "pyserini/__init__.py").write_text("")
    (tmp_path / "pyserini/encode.py").write_text(
        "import urllib.error\nraise urllib.error.URLError('no such host')\n"
    )
    done = child(NO_NETWORK, tmp_path, check=False)
    last = done.stderr.strip().splitlines()[-1]
    assert (
        last.startswith("RuntimeError") and "no such host" in last and "pip install 'pyserini==2.3.0'" in last
    )


def test_help_lists_the_commands_without_java(child):
    done = child(
        "from pyserini_ance.commands import console, search; console.run(lambda: search.main(['--help']))"
    )
    assert "trec_eval" in done.stdout and "pyserini.search.faiss" in done.stdout


def test_trec_eval_agrees_with_ir_measures(child, tmp_path):
    run, qrels = tmp_path / "run.txt", tmp_path / "qrels.txt"
    run.write_text("".join(f"q{q} Q0 d{d} {d} {20 - d}.5 x\n" for q in range(3) for d in range(1, 16)))
    qrels.write_text("q0 0 d1 1\nq0 0 d12 2\nq1 0 d4 3\nq1 0 d40 1\nq1 0 d2 0\nq2 0 d50 1\n")
    flags = ["trec_eval", "-m", "ndcg_cut.10", "-m", "recip_rank", "-m", "recall.10", str(qrels), str(run)]
    done = child(f"from pyserini_ance.commands import search; search.main({flags!r})")
    by_trec_eval = {
        line.split()[0]: float(line.split()[2]) for line in done.stdout.splitlines() if "\tall\t" in line
    }
    measures = {"ndcg_cut_10": nDCG @ 10, "recip_rank": RR, "recall_10": R @ 10}
    expected = ir_measures.calc_aggregate(
        measures.values(),
        list(ir_measures.read_trec_qrels(str(qrels))),
        list(ir_measures.read_trec_run(str(run))),
    )
    assert by_trec_eval == {
        name: pytest.approx(expected[measure], abs=5e-5) for name, measure in measures.items()
    }
