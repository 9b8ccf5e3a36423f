"""Benchmarks at tiny sizes: everybody installed takes part, and agrees. Times are not compared."""

import io
import json
from contextlib import redirect_stdout
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers.processes import forkserver
from torch.utils.flop_counter import FlopCounterMode
from transformers import BertConfig, BertModel
from typer.testing import CliRunner

from benchmarks.speed import gpu, rounds
from benchmarks.speed.__main__ import BENCHMARKS, main
from benchmarks.speed.encoding import bert_flops
from benchmarks.speed.gpu_inputs import passage_lengths
from benchmarks.speed.searching import plain_search, vectors

SMALL = "--package accelerate --passages 6 --queries 5 --length-tokens 24 --documents 300 --searches 5 "
SMALL += "--dimension 64 --top-k 7 --steps 1 --batch 2"
NAMES = list(BENCHMARKS)


@pytest.fixture(scope="module")
def measured(tiny_bert, tmp_path_factory):
    """What one call for all benchmarks, which measures the machine once, has written and printed.

    The contenders are forked from a process that has imported what they import.
    """
    folder, printed = tmp_path_factory.mktemp("bench"), io.StringIO()
    arguments = [*NAMES, *SMALL.split(), "--encoder", str(tiny_bert), "--rounds", "1", "--json"]
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(printed):
        patch.setattr(rounds, "multiprocessing", SimpleNamespace(get_context=lambda _: forkserver()))
        main([*arguments, str(folder / "bench.json")])
    assert [path.name for path in folder.iterdir()] == ["bench.json"]
    return json.loads((folder / "bench.json").read_text()), printed.getvalue()


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_the_installed_contenders_of_a_benchmark_take_part_and_agree(name, measured):
    written, printed = measured
    benchmark = written["benchmarks"][name]
    failed = [text for text in benchmark["measurements"].values() if "failed" in text]
    assert not failed and len(benchmark["rows"]) >= 2
    for row in benchmark["rows"]:
        assert float(row.get("recall", 1)) == 1
        assert float(row.get("lowest cosine", 1)) > 0.999
        assert f"| {row['contender']} " in printed


def test_useful_operations_are_those_that_torch_counts_without_padding():
    shape = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 80}
    config = BertConfig(**shape, attn_implementation="eager")
    model = BertModel(config, add_pooling_layer=False).eval()
    counted = 0
    for length in (7, 19):
        with FlopCounterMode(display=False) as counter, torch.inference_mode():
            model(torch.ones((1, length), dtype=torch.int64))
        counted += counter.get_total_flops()
    assert bert_flops(config.to_dict(), np.array([7, 19])) == counted > 0


OURS = ["ours", "ours, 65,536 tokens at once"]
EXPECTED = {"encode": [*OURS, "ours, 131,072 tokens at once", gpu.PEER] * 3, "ltre": ["ours"]}
EXPECTED["mine"] = ["torch.mm and topk, fp32", "ours", "ours, fp32", "torch.mm and topk, bf16"]
EXPECTED["train"] = [*OURS, gpu.PEER] * 3


@pytest.mark.long
def test_everything_is_measured_without_a_gpu(tmp_path):
    file = tmp_path / "gpu.json"
    done = CliRunner().invoke(gpu.app, ["--device", "cpu", "--small", "--minutes", "9", "--json", str(file)])
    assert done.exit_code == 0, done.output
    rows = json.loads(file.read_text())["rows"]
    assert {part: [row["contender"] for row in rows if row["part"] == part] for part in EXPECTED} == EXPECTED
    notes = [row["note"] for row in rows if row.get("note")]
    assert all("sentence_transformers is not installed" in note for note in notes), notes
    recall = {row["contender"]: row["recall"] for row in rows if "recall" in row}
    assert recall["ours"] == recall["ours, fp32"] == 1 and min(recall.values()) > 0.9
    assert all(0 < row["ms"] and 0 < row["peak"] for row in rows if "TFLOP/s" in row)
    assert all(name in done.output for name in ("ms of the search", "TFLOP/s"))


def test_the_plain_search_and_inputs_are_as_said():
    documents, queries = vectors(700, 16, "cpu", seed=3), vectors(9, 16, "cpu", seed=4)
    torch.testing.assert_close(documents.norm(dim=1), torch.ones(700))
    assert torch.equal(plain_search(documents, 5, queries), (queries @ documents.T).topk(5).indices)
    lengths = passage_lengths(20_000, 128)
    assert lengths.max() == 128 and 74 < lengths.mean() < 78
