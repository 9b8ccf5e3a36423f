import importlib.util
import json
from pathlib import Path

import ir_measures
import pytest
import yaml

from pyserini_ance.data.trec import read_run
from pyserini_ance.recipe.load import SHIPPED, dump, load
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
    """The run directory of a recipe of the set: two steps a stage, a random encoder, no Java."""

    def run(name: str, negatives: dict) -> Path:
        folder = tmp_path_factory.mktemp(name)
        made = yaml.safe_load(dump(load(f"samples/{name}", f"encoder.model={tiny_bert}")))
        made.update(bm25=None, precision="fp32", device="cpu", cache=str(folder / "cache"))
        for stage in made["stages"].values():
            stage.update(FEW)
            term = stage["terms"]["query"]
            sources = term["negatives"]
            term["negatives"] = [negatives if one["kind"] == "bm25" else one for one in sources]
        (folder / "recipe.yaml").write_text(json.dumps(made).replace("data/samples", str(derived)))
        server.run("train", [str(folder / "recipe.yaml"), "--output", str(folder / "run")])
        return folder / "run"

    return run


def graded(derived: Path, folder: Path, qrels: str) -> dict[str, dict[str, int]]:
    """The sample's own judgments of the topics, as far as the sample has their documents."""
    if qrels.endswith(".json"):
        questions = json.loads((derived / qrels).read_text())
        return {str(n): {one["positive_ctxs"][0]["passage_id"]: 1} for n, one in enumerate(questions)}
    (topics,), (judged,) = folder.glob("topics.*.json"), folder.glob("qrels.*.txt")
    asked = json.loads(topics.read_text())
    known, found = {line.split()[2] for line in judged.read_text().splitlines()}, {}
    for query, _, document, grade in map(str.split, (derived / qrels).read_text().splitlines()):
        if query in asked and document in known:
            found.setdefault(query, {})[document] = int(grade)
    return found


@pytest.mark.parametrize(
    ("name", "split", "qrels", "measures"),
    [
        ("trec-dl", "dl19", "msmarco-passage/2019qrels-pass.txt", "nDCG@10 RR(rel=2)@10 AP(rel=2)"),
        ("msmarco-doc", "test", "msmarco-doc/qrels.test.tsv", "RR@100 nDCG@10 R@100"),
        ("nq", "test", "dpr/biencoder-nq-test.json", "Success@1 Success@20 Success@100"),
    ],
)
def test_the_tables_measures_are_those_of_ir_measures(run, derived, name, split, qrels, measures):
    ranked = {"kind": "ranking", "file": str(derived / "msmarco-passage" / "bm25.dl19.top20.trec")}
    folder = run(name, {**ranked, "top_k": 20} if name == "trec-dl" else {"kind": "random"})
    rows = read_json(folder / "measures.json")["rows"]
    assert [row["row"] for row in rows] == ["untrained", *load(f"samples/{name}").stages]
    parsed = [ir_measures.parse_measure(measure) for measure in measures.split()]
    found = read_run(folder / f"run.{split}.trec")
    values = ir_measures.calc_aggregate(parsed, graded(derived, folder, qrels), found)
    expected = {str(measure): value for measure, value in values.items()}
    assert {measure: rows[-1][measure] for measure in expected} == pytest.approx(expected)
