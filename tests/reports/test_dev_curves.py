import json

import pytest

from pyserini_ance.reports.dev_curves import DevPoint, dev_curve, mean_curves, plot_curves, time_to_target

RECORDS = [
    {"event": "refresh", "stage": "a", "step": 0, "seconds": 5.0},
    {"event": "step", "stage": "a", "step": 0, "seconds": 1.0},
    {"event": "step", "stage": "a", "step": 1, "seconds": 1.5},
    {"event": "refresh", "stage": "a", "step": 2, "seconds": 4.25, "dev_seconds": 4.0},
    {"event": "step", "stage": "a", "step": 2, "seconds": 1.0},
    {"event": "dev", "stage": "a", "step": 3, "checkpoint_step": 2, "measure": "RR@10", "value": 0.4},
    {"event": "step", "stage": "a", "step": 3, "seconds": 1.0},
    {"event": "refresh", "stage": "a", "step": 4, "seconds": 3.0},
    {"event": "dev", "stage": "a", "step": 4, "checkpoint_step": 4, "measure": "RR@10", "value": 0.5},
]


def write(path, records, factor=1.0):
    path.write_text(
        "".join(
            json.dumps({**r, **{key: r[key] * factor for key in r if "seconds" in key}}) + "\n"
            for r in records
        )
    )
    return path


def test_a_checkpoint_counts_from_when_training_had_reached_it(tmp_path):
    metrics = write(tmp_path / "metrics.jsonl", RECORDS)
    assert dev_curve(metrics) == [
        DevPoint("a", 2, "RR@10", 2, 7.5, 0.4),
        DevPoint("a", 4, "RR@10", 4, 9.75, 0.5),
    ]


def test_the_training_of_a_cross_encoder_counts(tmp_path):
    teacher = {"event": "teacher", "teacher": "b", "seconds": {"mine": 2.0, "train": 3.0}}
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in [teacher, *RECORDS]))
    assert [point.seconds for point in dev_curve(tmp_path / "metrics.jsonl")] == [12.5, 14.75]


def test_runs_of_one_label_are_averaged_and_drawn(tmp_path):
    runs = [
        ("one", write(tmp_path / "1", RECORDS)),
        ("one", write(tmp_path / "2", RECORDS, 3.0)),
        ("two", write(tmp_path / "3", RECORDS)),
    ]
    curves = mean_curves(runs)
    assert curves == {
        "one": [DevPoint("a", 2, "RR@10", 2, 15.0, 0.4), DevPoint("a", 4, "RR@10", 4, 19.5, 0.5)],
        "two": dev_curve(tmp_path / "3"),
    }
    pytest.importorskip("matplotlib")
    plot_curves(curves, tmp_path / "curve.svg")
    text = (tmp_path / "curve.svg").read_text()
    assert text.count("<path") > 4 and "svg" in text
    assert all(f"<!-- {label} -->" in text for label in ("one", "two", "steps of all stages"))


def test_runs_measured_at_other_steps_are_not_averaged(tmp_path):
    other = [
        {**record, "step": record["step"] + 1, "checkpoint_step": record.get("checkpoint_step", 0) + 1}
        for record in RECORDS
    ]
    with pytest.raises(
        ValueError,
        match=r"one: its 2 runs were evaluated at different steps, .*"
        r" \(2, 2 dev scores, none of which all have\)",
    ):
        mean_curves([("one", write(tmp_path / "1", RECORDS)), ("one", write(tmp_path / "2", other))])


def test_the_mean_of_runs_of_different_length_is_over_common_steps(tmp_path, caplog):
    """The first stage of one run ends before its second score, by `patience`; both have the next stage."""
    after = [{"event": "step", "stage": "b", "step": 0, "seconds": 2.0}]
    after += [
        {"event": "dev", "stage": "b", "step": 1, "checkpoint_step": 1, "measure": "RR@10", "value": 0.6}
    ]
    runs = [("one", write(tmp_path / name, [*RECORDS[:last], *after])) for name, last in (("1", 6), ("2", 9))]
    assert mean_curves(runs) == {
        "one": [
            DevPoint("a", 2, "RR@10", 2, 7.5, 0.4),
            DevPoint("b", 1, "RR@10", 4.5, (10.75 + 14.75) / 2, 0.6),
        ]
    }
    assert caplog.messages == ["one: its runs have 2, 3 dev scores; the mean is over the 2 that all have"]


def test_documents_that_are_encoded_once_count_too(tmp_path):
    records = [
        RECORDS[0],
        {"event": "documents", "stage": "a", "step": 0, "parts": {"encode_documents": 20.0, "build": 0.5}},
        *RECORDS[1:],
    ]
    assert [point.seconds for point in dev_curve(write(tmp_path / "metrics.jsonl", records))] == [28.0, 30.25]


def test_the_target_is_what_all_reach_or_the_given_one(tmp_path):
    curves = {
        "slow": dev_curve(write(tmp_path / "1", RECORDS, 2.0)),
        "fast": [DevPoint("b", 1, "RR@10", 1, 3.0, 0.6), DevPoint("b", 2, "RR@10", 2, 4.0, 0.7)],
    }
    rows, columns = time_to_target(curves)
    assert columns == ["recipe", "best dev RR@10", "its seconds", "to 0.5000 seconds", "after"]
    assert [list(row.values()) for row in rows] == [
        ["slow", 0.5, 19.5, 19.5, "a, step 4"],
        ["fast", 0.7, 4.0, 3.0, "b, step 1"],
    ]
    assert [list(row.values())[3:] for row in time_to_target(curves, 0.7)[0]] == [
        [None, None],
        [4.0, "b, step 2"],
    ]
    with pytest.raises(ValueError, match="slow: dev was not evaluated; set `evaluate:` in the recipe"):
        time_to_target({**curves, "slow": []})
