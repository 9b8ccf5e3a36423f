"""Benchmarks at tiny sizes: everybody installed takes part, and agrees. Times are not compared."""

import io
import json
import multiprocessing
from contextlib import redirect_stdout
from types import SimpleNamespace

import pytest

from benchmarks.speed import rounds
from benchmarks.speed.__main__ import BENCHMARKS, main

SMALL = [
    "--package",
    "accelerate",
    "--passages",
    "6",
    "--queries",
    "5",
    "--length-tokens",
    "24",
    "--documents",
    "300",
]
SMALL += ["--searches", "5", "--dimension", "64", "--top-k", "7", "--steps", "1", "--batch", "2"]
NAMES = list(BENCHMARKS)

# What nearly all contenders import; Pyserini would start Java.
PRELOADED = ["pyserini_ance.pipeline.experiment", "sentence_transformers", "torch._dynamo", "faiss"]


@pytest.fixture(scope="module")
def forked_contenders():
    """The contenders are forked from a process that has imported what they import."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rounds, "multiprocessing", SimpleNamespace(get_context=lambda _: context))
        yield


@pytest.fixture(scope="module")
def measured(forked_contenders, tiny_bert, tmp_path_factory):
    """What one call for all benchmarks, which measures the machine once, has written and printed."""
    folder, printed = tmp_path_factory.mktemp("bench"), io.StringIO()
    arguments = [*NAMES, *SMALL, "--encoder", str(tiny_bert), "--rounds", "1", "--json"]
    with redirect_stdout(printed):
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
        assert float(row.get("recall", 1)) == 1 and float(row.get("equal rows", 1)) == 1
        assert float(row.get("lowest cosine", 1)) > (0.8 if "int8" in row["contender"] else 0.999)
        assert f"| {row['contender']} " in printed
