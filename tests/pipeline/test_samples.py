import importlib.util
import json
from pathlib import Path

import ir_measures
import pytest
import yaml

from pyserini_ance.data.trec import read_run
from pyserini_ance.recipe.find import SHIPPED
from pyserini_ance.recipe.load import dump, load
from pyserini_ance.storage.files import read_json

FEW = {"steps": 2, "batch_queries": 4, "evaluate": None}


@pytest.fixture(scope="module")
def derived(shared_data, tmp_path_factory) -> Path:
    spec = importlib.util.spec_from_file_location("derive", SHIPPED / "samples" / "derive.py")
    derive = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(derive)
    folder = tmp_path_factory.mktemp("samples")
    derive.passages(shared_data, folder / "msmarco-passage")
    derive.documents(shared_data, folder / "msmarco-doc")
    derive.questions(shared_data, folder / "dpr")
    return folder


@pytest.fixture(scope="module")
def run(derived, tiny_bert, server, tmp_path_factory):
    """The run directory of a recipe of the set, of two steps a stage with a random encoder, and negatives
    without Java.
    """

    def run(name: str, negatives: dict) -> Path:
        folder = tmp_path_factory.mktemp(name)
        made = yaml.safe_load(dump(load(f"samples/{name}", f"encoder.model={tiny_bert}").recipe))
        made.update(bm25=None, precision="fp32", device="cpu", cache=str(folder / "cache"))
        for stage in made["stages"].values():
            stage.update(FEW)
            term = stage["terms"]["query"]
            term["negatives"] = [
                negatives if source["kind"] == "bm25" else source for source in term["negatives"]
            ]
        text = json.dumps(made).replace("data/samples", str(derived))
        (folder / "recipe.yaml").write_text(text)
        done = server.run("train", [str(folder / "recipe.yaml"), "--output", str(folder / "run")])
        assert done["code"] == 0, done["stderr"]
        return folder / "run"

    return run


def first_of_bm25(derived: Path) -> dict:
    return {
        "kind": "ranking",
        "file": str(derived / "msmarco-passage" / "bm25.dl19.top20.trec"),
        "top_k": 20,
        "on_shortage": "fill_random",
    }


def rows(folder: Path) -> dict[str, dict]:
    return {row["row"]: row for row in read_json(folder / "measures.json")["rows"]}


@pytest.mark.parametrize(
    ("name", "row", "split", "qrels", "measures"),
    [
        # Graded judgments, as far as the sample has their passages.
        ("trec-dl", "ance", "dl19", "msmarco-passage/2019qrels-pass.txt", "nDCG@10 RR(rel=2)@10 AP(rel=2)"),
        ("msmarco-doc", "ance", "test", "msmarco-doc/qrels.test.tsv", "RR@100 nDCG@10 R@100"),
    ],
)
def test_judged_sets(run, derived, name, row, split, qrels, measures):
    """The table's measures by ir-measures, of the run's file and the sample's own judgments."""
    folder = run(name, first_of_bm25(derived) if name == "trec-dl" else {"kind": "random"})
    assert list(rows(folder)) == ["untrained", "bm25-neg", "ance"]
    ranked = read_run(folder / f"run.{split}.trec")
    asked = {line.split("\t")[0] for line in (folder / f"topics.{split}.tsv").read_text().splitlines()}
    known, graded = {line.split()[2] for line in (folder / f"qrels.{split}.txt").read_text().splitlines()}, {}
    for query, _, document, grade in map(str.split, (derived / qrels).read_text().splitlines()):
        if query in asked and document in known:
            graded.setdefault(query, {})[document] = int(grade)
    parsed = [ir_measures.parse_measure(measure) for measure in measures.split()]
    expected = {str(m): value for m, value in ir_measures.calc_aggregate(parsed, graded, ranked).items()}
    assert {measure: rows(folder)[row][measure] for measure in expected} == pytest.approx(expected)
    assert name == "trec-dl" or (len(ranked) == 20 and all(len(found) == 100 for found in ranked.values()))


def test_natural_questions(run, derived):
    folder = run("nq", {"kind": "random"})
    found = rows(folder)["dpr"]
    questions = json.loads((derived / "dpr" / "biencoder-nq-test.json").read_text())
    ranked = read_run(folder / "run.test.trec")
    gold = [one["positive_ctxs"][0]["passage_id"] for one in questions]
    best = [sorted(ranked[str(n)], key=ranked[str(n)].get, reverse=True) for n in range(len(gold))]
    for cutoff in (1, 20, 100):
        expected = sum(id in hits[:cutoff] for id, hits in zip(gold, best, strict=True)) / len(gold)
        assert found[f"Success@{cutoff}"] == pytest.approx(expected)
