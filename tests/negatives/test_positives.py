import json
from pathlib import Path

import numpy as np
import pytest
from helpers.filter_fixture import table_of
from helpers.saved_model import save_model, view
from helpers.stages import make_stage

import pyserini_ance as pa
from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.load_save import load_encoder
from pyserini_ance.negatives.lookahead import Lookahead
from pyserini_ance.negatives.mined import find_positives
from pyserini_ance.negatives.table import PADDING, NegativeTable
from pyserini_ance.pipeline.preparation import read_collection, tokenize
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.trainer.batch import anchor_sets_of, plan_batch

COLOURS, THINGS = ["red", "green", "blue", "gray", "pink"], ["apple", "stone", "river"]
ASKED = [(colour, thing) for colour in COLOURS for thing in THINGS]
JUDGED = list(range(0, 15, 4))
TOP_K = 6
BOTH = [{"kind": kind, "top_k": 5, "filters": ["answers"]} for kind in ("ann", "lookahead")]
NEW = {"kind": "mix", "weights": [1, 1], "top_k": 6, "sources": BOTH}
POOLS = {"epi-1": NEW, "epi-2": {"kind": "mix", "sources": [NEW, {"kind": "momentum"}]}}


def stages(**refresh) -> dict:
    made = {}
    for name, pool in POOLS.items():
        start = {"init_from": "initial", "refresh": {"every_steps": 6, **refresh}}
        made[name] = make_stage({**pool, "num_negatives": 3}, steps=6, **start)
    made["epi-2"]["refresh"]["initial_model"] = "previous_stage"
    return made


@pytest.fixture
def answered(small_recipe, tmp_path):
    """A recipe of two episodes. Of 15 questions for a thing of a colour, the answer is the colour; every
    fourth is judged, and no document has the answer to the last."""
    settings = small_recipe(stages()).data.model_dump(mode="json")
    answers = [colour for colour, _ in ASKED[:-1]] + ["nowhere"]
    asked = [{"title": f"query of {colour} {thing}"} for colour, thing in ASKED]
    given = enumerate(zip(asked, answers, strict=True))
    lines = [{"id": f"train-{row}", **query, "answers": [answer]} for row, (query, answer) in given]
    (tmp_path / "train.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    qrels = [f"train-{row} 0 {ASKED[row][0]}-{ASKED[row][1]} 1\n" for row in JUDGED]
    (tmp_path / "train.qrels").write_text("".join(qrels))
    train = {"topics": str(tmp_path / "train.jsonl"), "qrels": str(tmp_path / "train.qrels")}
    data = {**settings, "splits": {**settings["splits"], "train": train}}
    every = {"positives_top_k": TOP_K}
    return lambda refresh=every, **more: small_recipe(stages(**refresh), **{"data": data, **more})


def slow_positives(folder: Path, collection, top_k: int) -> dict[int, int]:
    """By a loop: the first of the top k documents that has the question's answer among its words."""
    encoder, queries = load_encoder(folder), collection.split("train").queries
    documents = encoder.encode(collection.documents.take(range(30)), "document")
    scores = encoder.encode(queries.take(range(15)), "query") @ documents.T
    found = {}
    for row in set(range(15)) - set(JUDGED):
        [answer] = json.loads(queries.columns["answers"][row])
        for document in np.argsort(-scores[row], kind="stable")[:top_k].tolist():
            if answer in collection.documents.columns["text"][document].split():
                found[row] = document
                break
    return found


def found_together(world: World, recipe: Recipe, folder: Path) -> list:
    return find_positives(view(world, recipe, folder), TOP_K).tolist()


@pytest.fixture
def model(answered, tmp_path) -> Path:
    save_model(answered(), tmp_path)
    return tmp_path


@pytest.mark.parametrize("top_k", [1, TOP_K, 30])
def test_the_first_retrieved_document_with_an_answer_is_the_positive(answered, model, top_k):
    snapshot = view(World(), answered(), model)
    pairs = find_positives(snapshot, top_k)
    slow = slow_positives(model / "model", snapshot.collection, top_k)
    assert pairs.tolist() == sorted(map(list, slow.items())) and pairs.dtype == np.int32
    assert len(slow) == {1: len(slow), TOP_K: len(slow), 30: 10}[top_k] and 14 not in slow


def test_processes_find_what_one_finds(answered, model, run_processes):
    expected = found_together(World(), answered(), model)
    assert run_processes(2, found_together, answered(), model) == [expected] * 2


def test_lookahead_searches_with_a_new_positive(answered, model):
    snapshot = view(World(), answered(), model)
    pairs = find_positives(snapshot, 30)
    table = table_of(Lookahead(top_k=3), snapshot, snapshot.anchor_set("query").with_positives(pairs))
    vectors = snapshot.document_vectors[np.arange(30)]
    assert table.anchors.tolist() == sorted([*JUDGED, *pairs[:, 0].tolist()])
    for row, document in pairs.tolist():
        near = [other for other in np.argsort(-(vectors[document] @ vectors.T)).tolist() if other != document]
        assert table.candidates[table.positions(np.array([row]))[0]].tolist() == near[:3]


@pytest.mark.long
def test_two_episodes_train_with_the_positives_that_each_finds(answered, tmp_path):
    recipe = answered(save_total_limit=9)
    pa.train(recipe, run := tmp_path / "run")
    data = tokenize(recipe, read_collection(recipe))
    models = {"epi-1": "initial-00000000", "epi-2": "epi-1-00000006"}
    former: dict[int, list[int]] = {}
    for index, (name, mined_with) in enumerate(models.items()):
        folder = run / "checkpoints" / mined_with / "encoder"
        positives = slow_positives(folder, data.collection, TOP_K)
        table = NegativeTable.load(run / "negatives" / f"{name}-00000000" / "query.0")
        assert table.promoted.tolist() == sorted(map(list, positives.items()))
        assert table.anchors.tolist() == sorted([*JUDGED, *positives])
        lines = dict(zip(table.anchors.tolist(), table.candidates.tolist(), strict=True))
        for row, candidates in lines.items():
            own = [candidate for candidate in candidates if candidate != PADDING]
            assert own[len(own) - len(former.get(row, [])) :] == former.get(row, [])  # momentum is last
            [answer] = json.loads(data.split.queries.columns["answers"][row])
            texts = [data.collection.documents.columns["text"][candidate] for candidate in own]
            assert not any(answer in text.split() for text in texts)
        former = {row: [one for one in line if one != PADDING] for row, line in lines.items()}

        anchor_sets = anchor_sets_of(data.anchor_sets, [table], data.rows_of_splits(None))
        drawn = {}
        for step in range(6):
            stage = recipe.stages[name]
            rows = plan_batch(stage, index, step, 0, anchor_sets, {("query", 0): table}).terms["query"]
            drawn.update(zip(rows.anchors.tolist(), rows.positives[:, 0].tolist(), strict=True))
        assert drawn.keys() == set(table.anchors.tolist())
        assert {row: drawn[row] for row in positives} == positives


def test_questions_need_answers(answered, small_recipe, tmp_path):
    data = small_recipe(stages()).data.model_dump(mode="json")
    with pytest.raises(ValueError, match="the queries of split 'train' have no field 'answers'"):
        pa.train(answered(data=data), tmp_path / "run")
