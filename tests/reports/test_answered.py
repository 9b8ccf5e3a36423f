import numpy as np
import pytest
from helpers.asked_set import make_asked_recipe
from helpers.small_set import ONE_STEP, make_finished_run

from pyserini_ance.commands import fuse
from pyserini_ance.pipeline.preparation import stored_collection
from pyserini_ance.recipe.evaluation_settings import parse_measures
from pyserini_ance.reports import fusion
from pyserini_ance.reports.ranking_inputs import open_ranking
from pyserini_ance.reports.reranking import rerank
from pyserini_ance.storage.files import write_json

# "which year" is answered by p4 and p5, "which thing" by p0, p3, ..., "what" by p11, "who" by none
DENSE, BM25 = (
    "".join(f"{q} Q0 p{d} {rank} {9 - rank} t\n" for q in range(4) for rank, d in enumerate(found, 1))
    for found in ((11, 1, 4), (0, 1, 2))
)


@pytest.fixture
def run(small_recipe, tmp_path):
    measured = {"measures": ["Success@1", "Success@3"]}
    recipe = make_asked_recipe(small_recipe, tmp_path, {"only": ONE_STEP}, measured)
    rankings = {"run.test.trec": DENSE, "runs/bm25.test.trec": BM25}
    return make_finished_run(tmp_path / "run", recipe, {}, rankings)


def test_a_reranked_one(run, tmp_path):
    ranked, measures = open_ranking(str(run.folder)), parse_measures(["Success@1", "Success@3"])
    backwards, model = (lambda pairs: np.arange(len(pairs), dtype=np.float32)), {"model": "m"}
    first, turned = rerank(ranked, backwards, (3,), tmp_path / "out", measures, model)
    assert [first["Success@1"], first["Success@3"]] == [1 / 4, 2 / 4]  # p11 holds 1991
    assert [turned["Success@1"], turned["Success@3"]] == [1 / 4, 2 / 4]  # p4 holds 1984
    message = "no judgments: .* for Success@5, Success@20, Success@100 only, not for RR@10; .*--qrels FILE"
    with pytest.raises(ValueError, match=message):
        rerank(ranked, backwards, (3,), tmp_path / "other", parse_measures(["RR@10"]), model)
    assert not (tmp_path / "other").exists()


def test_one_of_a_split_that_the_run_does_not_test(small_recipe, tmp_path):
    on_train = {"split": "train", "measures": ["RR@3"]}
    recipe = make_asked_recipe(small_recipe, tmp_path, {"only": ONE_STEP}, on_train)
    folder = make_finished_run(tmp_path / "run", recipe, {"train": "0 0 p0 1\n"}, {"own.trec": DENSE}).folder
    write_json(folder / "environment.json", {"data": {"digest": stored_collection(recipe).digest}})
    ranked = open_ranking(str(folder), folder / "own.trec", "test")
    assert ranked.measure(ranked.run, parse_measures(["Success@3"])) == {"Success@3": 2 / 4}


def test_a_fused_one(run, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(fusion, "fuse", lambda runs, method, weight=None: runs[0])  # Pyserini runs elsewhere
    fuse.main([str(run.folder), "--output", str(tmp_path / "fused.trec")])
    printed = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in printed]
    names = [f"{run.folder}:bm25", str(run.folder), "rrf"]
    assert rows[2:] == [[name, "0.2500", "0.2500" if name != names[1] else "0.5000"] for name in names]
