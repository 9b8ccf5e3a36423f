"""The command with a random cross-encoder, against one pair at a time."""

import json

import torch
from small import make_finished_run
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from pyserini_ance import rerank
from pyserini_ance.data.trec import read_run
from pyserini_ance.experiment.ranked import open_ranked

STAGE = {"steps": 1, "batch_queries": 1, "optimizer": {"learning_rate": 1e-3}, "terms": {"query": {"negatives": [{"kind": "random"}]}}}
COLOURS, THINGS = "red green blue gray pink".split(), "apple stone river cloud horse tiger".split()


def test_the_order_is_that_of_one_pair_at_a_time(small_recipe, tiny_cross_encoder, tmp_path, capsys):
    recipe = small_recipe({"only": STAGE}, cache=str(tmp_path / "cache"))
    hits = {f"test-{i}": [f"{c}-{t}" for t in THINGS for c in COLOURS[i:] + COLOURS[:i]] for i in range(5)}
    ranking = "".join(f"{q} Q0 {d} {rank} {50 - rank} t\n" for q, found in hits.items() for rank, d in enumerate(found, start=1))
    run = make_finished_run(tmp_path / "run", recipe, {"test": ""}, {"run.test.trec": ranking})
    flags = ["--model", str(tiny_cross_encoder), "--first", "20", "5", "--output", str(tmp_path / "out"), "--device", "cpu", "--batch-pairs", "3"]
    rerank.main([str(run.folder), *flags])
    said = capsys.readouterr().out.splitlines()
    assert [cell.strip() for cell in said[0].split("|")[1:-1]] == ["ranking", "RR@10", "R@20", "mean ms", "50% ms", "95% ms", "99% ms"]
    assert [line.split("|")[1].strip() for line in said[2:5]] == ["first stage", "first 5", "first 20"]
    assert said[5].startswith(f"5 queries; {run.folder} reranked by {tiny_cross_encoder} on cpu")

    ranked = open_ranked(str(run.folder))
    tokenizer = AutoTokenizer.from_pretrained(tiny_cross_encoder)
    model = AutoModelForSequenceClassification.from_pretrained(tiny_cross_encoder).eval()

    @torch.no_grad()
    def score(query: str, document: str) -> float:
        texts = ranked.queries[ranked.queries.rows[query]]["text"], ranked.collection.documents[ranked.collection.documents.rows[document]]["text"]
        return round(model(**tokenizer(*texts, return_tensors="pt")).logits.item(), 4)

    for depth in (5, 20):
        written = read_run(tmp_path / "out" / f"first-{depth}.trec")
        for query, found in hits.items():
            slowly = sorted(found[:depth], key=lambda document: (score(query, document), document), reverse=True)  # noqa: B023
            ours = sorted(list(written[query])[:depth], key=lambda d: (round(written[query][d], 4), d), reverse=True)  # noqa: B023
            assert ours == slowly and list(written[query])[depth:] == found[depth:]
    assert json.loads((tmp_path / "out" / "about.json").read_text())["depths"] == [5, 20]
