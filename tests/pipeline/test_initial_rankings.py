"""Rankings by initial weights, shared by runs through the cache."""

import pytest
from helpers.small_set import ONE_STEP

from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.load_save import initial_encoder
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.pipeline.final_evaluator import FinalEvaluator
from pyserini_ance.pipeline.initial_rankings import FOLDER
from pyserini_ance.pipeline.model_export import write_qrels
from pyserini_ance.pipeline.preparation import read_collection, tokenize
from pyserini_ance.runs.checkpoint import TrainingProgress, publish_checkpoint
from pyserini_ance.runs.rundir import RunDir

TEST = {"hits": 20, "measures": ["RR@10", "R@20"]}
ENCODING = {"precision": "fp32", "tokens_per_batch": 64}


@pytest.fixture
def evaluated(small_recipe, tmp_path, monkeypatch):
    """Evaluate the untrained encoder in a new run; returns the row, the ranking's bytes, and whether the run
    ranked itself."""
    ranked = []
    rank = Snapshot.rank
    monkeypatch.setattr(Snapshot, "rank", lambda self, *given: ranked.append(self) or rank(self, *given))

    def evaluate(seed: int = 0, **settings):
        recipe = small_recipe({"a": ONE_STEP}, **{"final_evaluation": TEST, "encoding": ENCODING, **settings})
        recipe = recipe.model_copy(update={"cache": tmp_path / "cache"})
        run = RunDir(tmp_path / f"run-{len(list(tmp_path.glob('run-*')))}")
        run.folder.mkdir()
        collection = read_collection(recipe)
        write_qrels(collection, "test", run.qrels("test"))
        encoder = initial_encoder(recipe.encoder, 0)
        for weight in encoder.towers.parameters():
            weight.data *= 1 + seed / 10
        checkpoint = publish_checkpoint(run, encoder, None, TrainingProgress("initial", 0))
        evaluator = FinalEvaluator(recipe, tokenize(recipe, collection), run, World())
        before = len(ranked)
        row = evaluator.evaluate_initial_row("untrained", checkpoint, note=7)
        return row, run.ranking("untrained", "test").read_bytes(), len(ranked) > before

    return evaluate


def test_a_second_run_takes_the_ranking_of_the_first(evaluated, caplog):
    first, ranking, has_ranked = evaluated()
    assert has_ranked and first["test seconds"] is not None and 0 < first["RR@10"] < 1
    with caplog.at_level("DEBUG"):
        again, copied, has_ranked = evaluated()
    assert not has_ranked and copied == ranking and "row untrained: ranked by an earlier run" in caplog.text
    assert again == {**first, "test seconds": None}
    other, _, has_ranked = evaluated(final_evaluation={**TEST, "measures": ["P@3"]})
    assert not has_ranked and set(other) == {"row", "P@3", "test seconds", "note"}


@pytest.mark.parametrize(
    "difference",
    [
        {"seed": 1},
        {"final_evaluation": {**TEST, "hits": 25}},
        {"final_evaluation": {**TEST, "precision": "bf16"}},
        {"encoding": {**ENCODING, "tokens_per_batch": 32}},
    ],
)
def test_what_may_rank_otherwise_ranks_itself(evaluated, difference):
    evaluated()
    assert evaluated(**difference)[2]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("torch.get_num_threads", lambda: 77),
        ("pyserini_ance.pipeline.initial_rankings.__version__", "another"),
    ],
    ids=["threads", "version"],
)
def test_another_machine_or_release_ranks_itself(evaluated, monkeypatch, name, value):
    evaluated()
    monkeypatch.setattr(name, value)
    assert evaluated()[2]


@pytest.mark.parametrize("more", [{"indexes": ["IVF1,Flat"]}, {"query_measures": ["RR@10"]}])
def test_rows_with_more_than_rankings_are_not_shared(evaluated, tmp_path, more):
    for _ in range(2):
        assert evaluated(final_evaluation={**TEST, **more})[2]
    assert not (tmp_path / "cache" / FOLDER).exists()


def test_a_changed_file_in_the_cache_is_refused(evaluated, tmp_path):
    evaluated()
    [ranking] = (tmp_path / "cache" / FOLDER).rglob("*.trec")
    ranking.write_bytes(ranking.read_bytes().replace(b" 1 ", b" 2 ", 1))
    with pytest.raises(RuntimeError, match=r"test\.trec is not what .* says was written; remove"):
        evaluated()
