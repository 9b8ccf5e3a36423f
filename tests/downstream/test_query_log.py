"""A folder of work done query by query: what it holds, and what it refuses."""

import pytest

from pyserini_ance.downstream.reranking import QueryLog


def test_a_last_line_that_was_cut_short_is_forgotten(tmp_path):
    log = QueryLog(tmp_path / "out")
    log.begin({"depths": [1]}, "some/name")
    assert log.records == {}
    log.append({"query": "b", "scores": [1.0]})
    with open(tmp_path / "out" / "queries.jsonl", "a") as file:
        file.write('{"query": "a", "sc')
    assert log.records == {"b": {"query": "b", "scores": [1.0]}}
    log.begin({"depths": [1]}, "some/name")
    log.append({"query": "a", "scores": []})
    assert list(log.records) == ["b", "a"]


def test_other_work_in_the_same_folder_is_refused(tmp_path):
    model, log = tmp_path / "model", QueryLog(tmp_path / "out")
    model.mkdir()
    (model / "model.safetensors").write_bytes(b"one")
    log.begin({"model": str(model), "depths": [2]}, str(model))
    with pytest.raises(
        FileExistsError,
        match=r"out was made with depths \[2\], not \[3\]; pass another --output, or remove the folder",
    ):
        log.begin({"model": str(model), "depths": [3]}, str(model))
    (model / "model.safetensors").write_bytes(b"two")  # trained on
    with pytest.raises(FileExistsError, match="out was made with weights [0-9a-f]{64}, not "):
        log.begin({"model": str(model), "depths": [2]}, str(model))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.txt").write_text("kept")
    with pytest.raises(FileExistsError, match="other holds other files; pass another --output"):
        QueryLog(tmp_path / "other").begin({}, "m")
