"""What a user has of a set: judgments, queries without, no training query; finished runs are one table."""

import json
from pathlib import Path

import pytest
from helpers.small_set import make_small_beir

from pyserini_ance import llm
from pyserini_ance.adapt.questions import PROMPTS
from pyserini_ance.commands import adapt

adapting = pytest.importorskip("benchmarks.peers.adapting")


def test_each_mode_gives_what_it_says(tmp_path, monkeypatch, capsys):
    given, written = {}, {}

    def adapted(arguments):
        folder, output = Path(arguments[0]), Path(arguments[arguments.index("--output") + 1])
        queries = [json.loads(line)["_id"] for line in (folder / "queries.jsonl").read_text().splitlines()]
        judged = {path.stem: path.read_text().split()[3::3] for path in (folder / "qrels").iterdir()}
        train = folder / "qrels/train.tsv"
        train = train.read_text().splitlines()[1:] if train.exists() else []
        given[folder.name] = queries, judged, (folder / "corpus.jsonl").read_text(), arguments[-1], train
        if "--llm" in arguments:
            server = llm.Server(arguments[arguments.index("--llm") + 1], "any")
            template = llm.read_prompt(PROMPTS / "any-question.txt", "text")
            documents = [json.loads(line) for line in given[folder.name][2].splitlines()]
            prompts = [llm.filled(template, {"number": 2, **document}) for document in documents]
            answers = llm.ask(server, prompts, tmp_path / "answers.jsonl", label="").texts
            written.update(zip([document["_id"] for document in documents], answers, strict=True))
        output.mkdir()
        rows = [{"": "base", "nDCG@10": 0.25}]
        (output / "verdict.json").write_text(json.dumps({"rows": rows, "sentence": f"Keep {folder.name}."}))

    monkeypatch.setattr(adapt, "main", adapted)
    make_small_beir(tmp_path / "set")
    data = [f"data.folder={tmp_path}/set", "data.splits={train: qrels/train.tsv, test: qrels/test.tsv}"]
    data.append("data.hold_out=5")  # which are dev
    adapting.main(["nfcorpus", "abcd", *data, "seed=7", "--output", str(tmp_path / "out")])
    with pytest.raises(SystemExit):
        adapting.main(["nfcorpus", "ae", "--output", str(tmp_path / "out")])
    judged, unjudged, none = (given[mode] for mode in "abc")
    text_of = {one["_id"]: one["text"] for one in map(json.loads, (tmp_path / "set/queries.jsonl").open())}
    asked_for: dict[str, list[str]] = {id: [] for id in written}
    for query, document, grade in (line.split() for line in given["a"][4]):
        asked_for[document] += [text_of[query]] * (grade != "0")
    assert given["d"][:3] == none[:3] and any(asked_for.values()) and not all(asked_for.values())
    for id, answer in written.items():
        assert sorted(answer.splitlines()) == sorted(asked_for[id] or ["I cannot think of any."])
    assert judged[1].keys() == {"train", "dev", "test"} and all(judged[1].values())
    assert set(judged[0]) == {query for ids in judged[1].values() for query in ids}
    assert unjudged[0] == judged[0] and unjudged[1].keys() == none[1].keys() == {"dev", "test"}
    assert set(none[0]) == {*none[1]["dev"], *none[1]["test"]} and none[1] == unjudged[1]
    assert judged[2:4] == unjudged[2:4] == none[2:4] and judged[3] == "seed=7"
    said = capsys.readouterr().out
    assert [f"nfcorpus/{mode}-seed=7" in said and f"Keep {mode}." in said for mode in "abcd"] == [True] * 4
