import json

import numpy as np
import pytest

from pyserini_ance.data.trec import best_first, read_run
from pyserini_ance.pyserini_bridge import searchers as first_stage
from pyserini_ance.recipe.evaluation_settings import parse_measures
from pyserini_ance.reports.ranking_inputs import open_ranking
from pyserini_ance.reports.reranking import FIRST_STAGE, QueryLog, merge_reranked, rerank, search_timer
from pyserini_ance.runs.rundir import RunDir

MEASURES = parse_measures(["RR@10", "R@2"])


class SharedWords:
    """Scores a pair by the words that its texts share, and keeps the calls."""

    def __init__(self, fail_after: int | None = None):
        self.calls, self.fail_after = [], fail_after

    def __call__(self, pairs):
        if len(self.calls) == self.fail_after:
            raise KeyboardInterrupt
        self.calls.append(list(pairs))
        words = [(set(query.split()), set(document.split())) for query, document in pairs]
        return np.array([len(asked & held) for asked, held in words], np.float32)


def test_each_pair_is_scored_once_and_each_depth_written(ranked, tmp_path):
    scorer = SharedWords()
    first, one, three = rerank(ranked, scorer, (1, 3), tmp_path / "out", MEASURES, {"model": "m"})
    assert [len(call) for call in scorer.calls] == [1, 1, 2, 1, 0]  # the first slice warms up
    assert [[(query, document.strip()) for query, document in call] for call in scorer.calls[1:3]] == [
        [("query of red horse", "the apple is red")],
        [
            ("query of red horse", "the river is pink very very very very very"),
            ("query of red horse", "the horse is red very very very very"),
        ],
    ]
    first_one, first_three = (read_run(tmp_path / "out" / f"first-{depth}.trec") for depth in (1, 3))
    assert list(first_one["test-0"]) == ["red-apple", "pink-river", "red-horse", "blue-cloud"]
    assert list(first_three["test-0"]) == ["red-horse", "red-apple", "pink-river", "blue-cloud"]
    assert set(first_three) == {"test-0", "test-1"}
    # five queries are judged in the collection, two have hits: 1/3 and 1, of 5
    assert [first["ranking"], first["RR@10"], first["R@2"]] == [FIRST_STAGE, pytest.approx(1 / 15), 0]
    assert [one["ranking"], one["RR@10"]] == ["first 1", pytest.approx(1 / 15)]
    assert [three["ranking"], three["RR@10"], three["R@2"]] == ["first 3", *[pytest.approx(1 / 5)] * 2]
    assert 0 < one["mean ms"] <= three["mean ms"] and "mean ms" not in first
    assert json.loads((tmp_path / "out" / "measures.json").read_text())["rows"] == [first, one, three]


def test_a_score_that_is_no_number_ends_it_before_it_is_kept(ranked, tmp_path):
    def scorer(pairs):
        return np.full(len(pairs), np.nan, np.float32)

    with pytest.raises(ValueError, match="^m gives query test-0 scores that are no finite numbers; pass"):
        rerank(ranked, scorer, (1,), tmp_path / "out", MEASURES, {"model": "m"})
    assert not QueryLog(tmp_path / "out").records


def test_a_killed_one_goes_on_and_ends_the_same(ranked, tmp_path):
    work = {"cutoffs": (2, 4), "measures": MEASURES, "settings": {"model": "m"}}
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    rerank(ranked, SharedWords(), folder=whole, **work)
    with pytest.raises(KeyboardInterrupt):
        rerank(ranked, SharedWords(fail_after=4), folder=killed, **work)
    assert not list(killed.glob("*.trec"))
    with open(killed / "queries.jsonl", "a") as file:
        file.write('{"query": "test-1", "scor')  # as a crash may leave it
    again = SharedWords()
    rerank(ranked, again, folder=killed, **work)
    assert {query for call in again.calls for query, _ in call} == {"query of green horse"}
    for name in ("first-2.trec", "first-4.trec"):
        assert (whole / name).read_text() == (killed / name).read_text()


@pytest.mark.parametrize(
    ("split", "cutoff", "qrels", "message"),
    [
        ("dev", 2, None, "ranks nothing for the queries of 'dev': it has test-0, ..., they are"),
        ("test", 2, {"other": {"red-horse": 1}}, "no query of the run is judged: the run has 'test-0'"),
        ("test", 5, None, "run.test.trec has at most 4 hits a query, fewer than --first 5; pass a longer"),
    ],
)
def test_what_cannot_be_reranked_is_refused_before_scoring(ranked, tmp_path, split, cutoff, qrels, message):
    other = open_ranking(str(ranked.file.parent), ranked.file, split)
    with pytest.raises(ValueError, match=message):
        rerank(other, SharedWords(), (cutoff,), tmp_path / "out", MEASURES, {"model": "m"}, qrels)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("hits", "scores", "merged"),
    [
        # What is not reranked follows in its order.
        (dict(a=6, b=5, c=4, d=3, e=2), [0.5, 2.0, -3.25], dict(b=2.0, a=0.5, c=-3.25, d=-5.0, e=-6.0)),
        # trec_eval reads c before b, and these scores are one in float32.
        (dict(a=3.0, b=2.0, c=2.0, d=1.0), [1.0, 1.00000004], dict(c=1.00000004, a=1.0, b=0.0, d=-1.0)),
    ],
)
def test_new_scores_are_merged_in_the_order_of_trec_eval(hits, scores, merged):
    found = merge_reranked(hits, scores)
    assert list(found.items()) == list(merged.items()) and best_first(found) == list(found)


def test_the_first_stage_is_timed_by_what_it_was_searched_with(ranked, monkeypatch):
    folder, calls = RunDir(ranked.file.parent), []

    def time_dense(model, index, queries, hits):
        calls.append((model, queries, hits))
        return [1.0]

    monkeypatch.setattr(first_stage, "time_dense", time_dense)
    with pytest.raises(ValueError, match="only a run directory's model .* and its row bm25 .* can be timed"):
        search_timer(str(folder.folder), ranked, 5)  # there is no index
    folder.index.mkdir()
    time = search_timer(str(folder.folder), ranked, 5)
    assert calls == [] and time() == [1.0]
    assert calls == [(folder.model, ["query of red horse", "query of green horse"], 100)]
    with pytest.raises(ValueError, match="can be timed"):
        search_timer(f"{folder.folder}:bm25", open_ranking(f"{folder.folder}:bm25"), 1)


def test_other_work_in_the_same_folder_is_refused(tmp_path):
    model, log = tmp_path / "model", QueryLog(tmp_path / "out")
    model.mkdir()
    (model / "model.safetensors").write_bytes(b"one")
    log.begin({"model": str(model), "depths": [1]}, str(model))  # of a command that then failed
    log.begin({"model": str(model), "depths": [2]}, str(model))
    log.append({"query": "a", "scores": []})
    with pytest.raises(FileExistsError, match=r"out was made with depths \[2\], not \[3\]"):
        log.begin({"model": str(model), "depths": [3]}, str(model))
    (model / "model.safetensors").write_bytes(b"two")  # trained on
    with pytest.raises(FileExistsError, match="out was made with weights [0-9a-f]{64}, not "):
        log.begin({"model": str(model), "depths": [2]}, str(model))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.txt").write_text("kept")
    with pytest.raises(FileExistsError, match="other holds other files; pass another --output"):
        QueryLog(tmp_path / "other").begin({}, "m")
