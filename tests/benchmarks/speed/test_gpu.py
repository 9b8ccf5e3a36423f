"""The benchmarks of a GPU in tiny sizes on the CPU. Times are not compared."""

import json

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from benchmarks.speed import gpu
from benchmarks.speed.gpu_inputs import SMALL, passage_lengths, texts_of, vectors
from benchmarks.speed.searching import plain_search
from pyserini_ance.encoders.load_save import load_encoder

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


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_the_error_names_what_can_be_tried():
    done = CliRunner().invoke(gpu.app, ["--small"])
    assert done.exit_code == 2 and "torch finds no GPU; `--device cpu --small`" in done.output


@pytest.mark.long
def test_rows_say_why_they_are_empty_and_texts_are_those_of_the_tokens(tmp_path):
    made = gpu.Bench("cpu", SMALL, tmp_path, 60)
    made.row("steps", "fails", lambda: {"ms": [][0]})
    made.row("steps", "absent", dict, "no_such_package")
    made.part_end = 0
    made.row("steps", "late", lambda: {"ms": 1.0})
    assert [row["note"] for row in made.rows] == [
        "failed: IndexError: list index out of range",
        "not measured: no_such_package is not installed",
        "not measured: the time is over",
    ]
    lengths = np.array([5, 3, 40])
    tokens, tokenizer = made.model.tokens(lengths), load_encoder(made.model.folder).tokenizer
    ids = tokenizer.ids("query", [{"text": text} for text in texts_of(tokens, np.arange(3))])
    assert tokens.lengths(512).tolist() == [5, 3, 40]
    assert [list(each) for each in ids] == [
        tokens.ids[start:stop].tolist() for start, stop in zip(tokens.offsets, tokens.offsets[1:])
    ]


def test_the_plain_search_and_inputs_are_as_said():
    documents, queries = vectors(700, 16, "cpu", seed=3), vectors(9, 16, "cpu", seed=4)
    torch.testing.assert_close(documents.norm(dim=1), torch.ones(700))
    assert torch.equal(plain_search(documents, 5, queries), (queries @ documents.T).topk(5).indices)
    lengths = passage_lengths(20_000, 128)
    assert lengths.max() == 128 and 74 < lengths.mean() < 78
