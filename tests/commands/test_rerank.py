import json

import pytest
import torch
from helpers.small_set import ONE_STEP, make_finished_run
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from pyserini_ance.commands import rerank
from pyserini_ance.data.trec import read_run
from pyserini_ance.reports.ranking_inputs import open_ranking

COLOURS = ["red", "green", "blue", "gray", "pink"]
THINGS = ["apple", "stone", "river", "cloud", "horse", "tiger"]


def test_the_order_is_that_of_one_pair_at_a_time(small_recipe, tiny_cross_encoder, tmp_path, capsys):
    recipe = small_recipe({"only": ONE_STEP}, cache=str(tmp_path / "cache"))
    hits = {f"test-{i}": [f"{c}-{t}" for t in THINGS for c in COLOURS[i:] + COLOURS[:i]] for i in range(5)}
    ranked = ((q, rank, d) for q, found in hits.items() for rank, d in enumerate(found, start=1))
    ranking = "".join(f"{q} Q0 {d} {rank} {50 - rank} t\n" for q, rank, d in ranked)
    run = make_finished_run(tmp_path / "run", recipe, {"test": ""}, {"run.test.trec": ranking})
    output = tmp_path / "out"
    flags = f"--model {tiny_cross_encoder} --first 20 5 --output {output} --device cpu".split()
    rerank.main([str(run.folder), *flags])
    said = capsys.readouterr().out.splitlines()
    columns = ["ranking", "RR@10", "R@20", "mean ms", "50% ms", "95% ms", "99% ms"]
    assert [cell.strip() for cell in said[0].split("|")[1:-1]] == columns
    assert [line.split("|")[1].strip() for line in said[2:5]] == ["first stage", "first 5", "first 20"]
    assert said[-1].startswith(f"- 5 queries of test; {run.folder} reranked by {tiny_cross_encoder} on cpu")

    ranked = open_ranking(str(run.folder))
    tokenizer = AutoTokenizer.from_pretrained(tiny_cross_encoder)
    model = AutoModelForSequenceClassification.from_pretrained(tiny_cross_encoder).eval()

    @torch.no_grad()
    def score(query: str, document: str) -> float:
        asked, documents = ranked.queries, ranked.collection.documents
        texts = asked[asked.rows[query]]["text"], documents[documents.rows[document]]["text"]
        return round(model(**tokenizer(*texts, return_tensors="pt")).logits.item(), 4)

    for depth in (5, 20):
        written = read_run(tmp_path / "out" / f"first-{depth}.trec")
        for query, found in hits.items():
            slowly = sorted(found[:depth], key=lambda d: (score(query, d), d), reverse=True)
            given = written[query]
            ours = sorted(list(given)[:depth], key=lambda d: (round(given[d], 4), d), reverse=True)
            assert ours == slowly and list(given)[depth:] == found[depth:]
    assert json.loads((tmp_path / "out" / "about.json").read_text())["depths"] == [5, 20]


@pytest.mark.parametrize(
    ("flags", "error", "message"),
    [
        (["--measures", "nDGC@10"], ValueError, "unknown measure 'nDGC@10'"),
        (["--qrels", "absent.qrels"], FileNotFoundError, r"absent\.qrels"),
        (["--split", "dev"], SystemExit, "2"),  # it has no measures
        (["--time-first-stage", "2"], ValueError, "can be timed; remove --time-first-stage"),
    ],
)
def test_what_is_asked_is_checked_before_a_model_is_loaded(small_recipe, tmp_path, flags, error, message):
    test = {"measures": {"test": ["RR@10"]}}
    recipe = small_recipe({"only": ONE_STEP}, final_evaluation=test, cache=str(tmp_path / "cache"))
    ranking = {f"run.{one}.trec": f"{one}-0 Q0 red-apple 1 1 t\n" for one in ("test", "dev")}
    run = make_finished_run(tmp_path / "run", recipe, {"test": ""}, ranking)
    asked = f"{run.folder} --model none/such --first 1 --output {tmp_path / 'out'}".split()
    with pytest.raises(error, match=message):
        rerank.main([*asked, *flags])
    assert not (tmp_path / "out").exists()
