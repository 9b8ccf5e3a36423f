import json
from pathlib import Path
from statistics import fmean

import ir_measures
import pytest
from helpers.stages import ANN, LOSS, make_stage, recipe_file
from ir_measures import R, nDCG

from pyserini_ance.negatives.table import NegativeTable
from pyserini_ance.pipeline.preparation import read_collection
from pyserini_ance.recipe.load import load
from pyserini_ance.storage.files import read_json, read_json_lines

# A question for each of these documents.
ASKED = {"few": range(4), "many": range(6, 17), "few-test": range(18, 23), "many-test": range(22, 30)}
MEASURES = {"nDCG@10": nDCG @ 10, "R@20": R @ 20}


def stages(run_file: Path) -> dict:
    ranked = {"kind": "ranking", "file": str(run_file), "top_k": 2}
    ance = make_stage(ANN, ranked, steps=8, refresh={"every_steps": 2, "query_chunks": 2}, save_every_steps=3)
    dual = {"anchor": "document", "negatives": [{"kind": "ann", "top_k": 4}], "loss": LOSS, "weight": 0.5}
    dev = {"every_steps": 3, "split": ["few-test", "many-test"]}
    return {"ance": {**ance, "terms": {**ance["terms"], "dual": dual}, "evaluate": dev}}


@pytest.fixture(scope="module")
def recipe(small_recipe, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("recipe")
    corpus = small_recipe(stages(folder)).data.corpus
    ids = [json.loads(line)["id"] for line in corpus.read_text().splitlines()]
    files = {}
    for split, places in ASKED.items():
        topics, qrels = folder / f"{split}.tsv", folder / f"{split}.qrels"
        asked = [(n, ids[place]) for n, place in enumerate(places)]
        topics.write_text("".join(f"{n}\twhich {id.replace('-', ' ')}\n" for n, id in asked))
        qrels.write_text("".join(f"{n} 0 {id} 1\n" for n, id in asked))
        files[split] = {"topics": str(topics), "qrels": str(qrels)}
    asked = ((f"{split}:{n}", at) for split in ("few", "many") for n, at in enumerate(ASKED[split]))
    lines = [f"{query} Q0 {ids[place - d]} 1 1 t\n" for query, place in asked for d in (1, 2)]
    (folder / "ranked.trec").write_text("".join(lines))
    data = {"kind": "pyserini_jsonl", "corpus": str(corpus), "splits": files}
    test = {"split": ["few-test", "many-test"], "measures": list(MEASURES)}
    test |= {"query_measures": ["R@5"], "indexes": ["Flat"]}
    settings = {"data": data, "final_evaluation": test, "train_split": ["few", "many"]}
    return recipe_file(small_recipe(stages(folder / "ranked.trec"), **settings), folder)


def test_each_test_split_has_its_files_and_columns(undisturbed):
    found = read_json(undisturbed / "measures.json")
    assert found["measures"] == [f"{split} {one}" for split in ("few-test", "many-test") for one in MEASURES]
    rows = {row["row"]: row for row in found["rows"]}
    assert list(rows) == ["untrained", "untrained+Flat", "ance", "ance+Flat"]
    for split in ("few-test", "many-test"):
        qrels = list(ir_measures.read_trec_qrels(str(undisturbed / f"qrels.{split}.txt")))
        assert len(qrels) == len(ASKED[split]) == len(read_json(undisturbed / f"topics.{split}.json"))
        final, row = (undisturbed / f"{name}.{split}.trec" for name in ("run", "runs/ance"))
        assert final.read_bytes() == row.read_bytes()
        for row, values in rows.items():
            run = list(ir_measures.read_trec_run(str(undisturbed / "runs" / f"{row}.{split}.trec")))
            expected = ir_measures.calc_aggregate(MEASURES.values(), qrels, run)
            expected = {f"{split} {measure}": value for measure, value in expected.items()}
            assert {name: values[name] for name in expected} == pytest.approx(expected)
            assert (f"{split} queries R@5" in values) == ("+" not in row)
        lines = found["export"]["command"].splitlines()
        command = next(line for line in lines if f"topics.{split}.json" in line)
        assert f"--output {undisturbed}/run.pyserini.{split}.txt" in command
    assert len(found["export"]["command"].splitlines()) == 2


def test_the_best_checkpoint_has_the_best_mean(undisturbed):
    decisions = read_json_lines(undisturbed / "decisions.jsonl")
    evaluated = [record for record in decisions if record["event"] == "evaluate"]
    assert [record["checkpoint_step"] for record in evaluated] == [0, 3, 6, 8]
    for record in evaluated:
        assert set(record["splits"]) == {"few-test", "many-test"}
        assert record["value"] == fmean(record["splits"].values())
    best = max(evaluated, key=lambda record: record["value"])
    ends = [record["result"] for record in decisions if record["event"] == "stage_end"]
    assert ends == [f"ance-{best['checkpoint_step']:08d}"]


def test_negatives_are_mined_for_a_share_of_each_split(undisturbed):
    folders = [undisturbed / "negatives" / f"ance-{step:08d}" / "query.0" for step in (0, 2)]
    tables = [NegativeTable.load(folder) for folder in folders]
    assert [table.anchors.tolist() for table in tables] == [[0, 1, *range(4, 9)], [2, 3, *range(9, 15)]]
    static = NegativeTable.load(undisturbed / "negatives" / "ance-00000000" / "query.1")
    ids = read_collection(load(undisturbed / "recipe.yaml")).documents.ids
    asked = [*ASKED["few"], *ASKED["many"]]
    of_lines = [{ids[row] for row in line if row >= 0} for line in static.candidates]
    assert of_lines == [{ids[place - d] for d in (1, 2)} for place in asked]
