"""The benchmarks of a GPU in tiny sizes on the CPU. Times are not compared."""

import json

import pytest
import torch
from typer.testing import CliRunner

from benchmarks.speed import gpu
from benchmarks.speed.gpu_inputs import passage_lengths, vectors
from benchmarks.speed.searching import plain_search

OURS = ["ours", "ours, 65,536 tokens at once"]
EXPECTED = {
    "encode": [*OURS, "ours, 131,072 tokens at once", gpu.PEER] * 3,
    "mine": ["torch.mm and topk, fp32", "ours", "ours, fp32", "torch.mm and topk, bf16"],
    "train": [*OURS, gpu.PEER] * 3,
    "ltre": ["ours"],
}


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
