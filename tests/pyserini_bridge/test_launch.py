"""The launcher: flags that it adds, what it says of Pyserini without a network, evaluation through it."""

import ir_measures
import pytest
from ir_measures import RR, R, nDCG

from pyserini_ance.pyserini_bridge.encoder_classes import with_encoder_class

NO_NETWORK = """
import sys
sys.path.insert(0, sys.argv[1])
from pyserini_ance.pyserini_bridge import java as jvm
jvm.start_java = lambda: None
jvm.import_pyserini("pyserini.encode")
"""


@pytest.fixture
def expected(tmp_path) -> str:
    (tmp_path / "pyserini_ance.json").write_text("{}")
    return str(tmp_path)


def test_our_folder_gets_our_class(expected, caplog):
    named = ["--encoder-class", "pyserini_ance"]
    assert with_encoder_class(["--encoder", expected, "--hits", "9"]) == [
        "--encoder",
        expected,
        *named,
        "--hits",
        "9",
    ]
    assert with_encoder_class(["encoder", f"--encoder={expected}", "--fp16"]) == [
        "encoder",
        f"--encoder={expected}",
        *named,
        "--fp16",
    ]
    assert "using pyserini_ance" in caplog.text


def test_a_class_of_the_users_choice_stays(expected, caplog):
    argv = ["--encoder-class=ance", "--encoder", expected]
    assert with_encoder_class(argv) == argv and not caplog.text


def test_guessing_by_the_path_is_warned_of(caplog):
    argv = ["--encoder", "finance/model"]
    assert with_encoder_class(argv) == argv
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
