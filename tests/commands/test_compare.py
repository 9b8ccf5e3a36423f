import json

import pytest

from pyserini_ance.commands import compare
from pyserini_ance.reports import plots


def run(folder, recipe: str, value: float, seconds: float = 1.0):
    """A finished run with one dev measure after its first step."""
    folder.mkdir()
    rows = [
        {"row": "ance", "RR@10": value, "train seconds": 60.0, "refresh seconds": 3.0, "test seconds": 1.0}
    ]
    (folder / "measures.json").write_text(
        json.dumps({"recipe": recipe, "config_hash": "abc", "measures": ["RR@10"], "rows": rows})
    )
    step = {"event": "step", "stage": "a", "step": 0, "seconds": seconds}
    dev = {"event": "dev", "stage": "a", "step": 1, "checkpoint_step": 1, "measure": "RR@10", "value": value}
    (folder / "metrics.jsonl").write_text(json.dumps(step) + "\n" + json.dumps(dev) + "\n")
    return str(folder)


@pytest.fixture
def runs(tmp_path) -> list[str]:
    made = [("1", "demo/ance", 0.5), ("2", "demo/ance", 0.6), ("3", "demo/rand", 0.4)]
    return [run(tmp_path / name, recipe, value) for name, recipe, value in made]


def test_one_table_of_runs(runs, capsys):
    compare.main(runs)
    assert capsys.readouterr().out == (
        "| recipe    | runs | RR@10               | seconds |\n"
        "| --------- | ---: | ------------------- | ------: |\n"
        "| demo/ance |    2 | 0.550 (0.500-0.600) |      64 |\n"
        "| demo/rand |    1 | 0.400               |      64 |\n"
        "\n"
        "- seconds: steps, refreshes, dev and final evaluation of all stages\n"
        "- runs: more than one are the seeds of a row, as mean (lowest-highest)\n"
    )


def test_a_curve_for_each_row(runs, capsys, tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(plots, "plot_curves", lambda curves, path: drawn.append((curves, path)))
    compare.main([*runs, "--curve", str(tmp_path / "curve.svg")])
    ((curves, path),) = drawn
    assert {label: (points.step.tolist(), points.value.tolist()) for label, points in curves.items()} == {
        "demo/ance": ([1], [pytest.approx(0.55)]), "demo/rand": ([1], [0.4])
    }  # fmt: skip
    assert path == tmp_path / "curve.svg" and capsys.readouterr().out.endswith(f"drawn: {path}\n")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--time-to-target", "0.4", "--rows", "demo/ance"], "remove --rows"),
        (["--test", "permutation"], "--test is that of --significance; remove --test"),
        (["--time-to-target", "best", "--forgetting"], "pass one of --significance, --time-to-target"),
    ],
)
def test_options_of_another_table_are_refused(runs, capsys, flags, message):
    with pytest.raises(SystemExit, match="2"):
        compare.main([*runs, *flags])
    assert message in capsys.readouterr().err
