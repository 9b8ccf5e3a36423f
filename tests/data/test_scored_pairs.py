import json

import numpy as np
import pytest

from pyserini_ance.data.collection import Collection
from pyserini_ance.data.formats.training_files import text_id
from pyserini_ance.data.given_collection import make_collection
from pyserini_ance.data.scored_pairs import read_scored_pairs

TEXTS = ["red apple", "green pear", "blue plum"]


def collection(*queries: str, ids=("d0", "d1", "d2")) -> Collection:
    texts = dict(zip(ids, TEXTS, strict=True)) | {"void": ""}
    judged = {query: {ids[0]: 1} for query in queries}
    settings = {"skip": ["empty_documents"]}
    return make_collection(texts, {"train": {id: id for id in queries}}, {"train": judged}, **settings)


def scores_of(path, made: Collection) -> dict[tuple[int, int], float]:
    split = made.split("train")
    pairs = np.array([(q, d) for q in range(len(split.queries)) for d in range(3)])
    found = read_scored_pairs(path, split, made).of(*pairs.T)
    scores = zip(map(tuple, pairs.tolist()), found.tolist(), strict=True)
    return {pair: score for pair, score in scores if score == score}


def test_a_run_in_any_order(tmp_path):
    path = tmp_path / "run.trec"
    lines = ("q1 Q0 d2 1 5", "q0 Q0 d0 1 -2.5", "q1 Q0 d0 2 4", "q9 Q0 n 1 4", "q1 Q0 d2 3 5")
    path.write_text("".join(f"{line} t\n" for line in (*lines, "q0 Q0 void 1 5")))
    assert scores_of(path, collection("q0", "q1")) == {(0, 0): -2.5, (1, 0): 4.0, (1, 2): 5.0}


def test_tevatron_lists_a_score_with_each_passage(tmp_path):
    def passage(id: str, score: float) -> dict:
        return {"docid": id, "title": "", "text": "?", "score": score}

    record = {"query_id": "q0", "query": "?", "positive_passages": [passage("d1", 9)]}
    record["negative_passages"] = [passage("d0", -1.5), passage("d2", 0)]
    (tmp_path / "train.jsonl").write_text(json.dumps(record) + "\n")
    assert scores_of(tmp_path / "train.jsonl", collection("q0")) == {(0, 0): -1.5, (0, 1): 9.0, (0, 2): 0.0}


def test_flagembedding_lists_scores_beside_the_texts(tmp_path):
    record = {"query": "who", "pos": TEXTS[:1], "neg": TEXTS[1:], "pos_scores": [2], "neg_scores": [1, 0.5]}
    (tmp_path / "train.jsonl").write_text(json.dumps(record) + "\n")
    made = collection("0", "who", ids=[text_id(text) for text in TEXTS])
    assert scores_of(tmp_path / "train.jsonl", made) == {(1, 0): 2.0, (1, 1): 1.0, (1, 2): 0.5}


def test_the_lowest_score_is_zero_for_a_query_with_few_documents(tmp_path):
    path = tmp_path / "run.trec"
    path.write_text("q0 Q0 d0 1 5 t\nq0 Q0 d1 2 3 t\nq2 Q0 d0 1 8 t\n")
    made = collection("q0", "q1", "q2")
    scored = read_scored_pairs(path, made.split("train"), made)
    assert scored.lowest(np.array([0, 1, 2, 0]), 2).tolist() == [3, 0, 0, 3]
    assert scored.lowest(np.array([0, 1, 2, 0]), 1).tolist() == [3, 0, 8, 3]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.trec", "q0 Q0 d0 1 5 t\nq0 Q0 dx 2 3 t\n", r"a.trec, line 2.*document 'dx'.*collection"),
        ("a.trec", "q0 Q0 d0 1 5 t\nq0 Q0 d0 2 3 t\n", r"a.trec, line 2.*'d0' again for query 'q0'.*another"),
        ("a.trec", "q7 Q0 d0 1 5 t\n", "has documents for none of the 1 queries of split 'train'"),
        ("a.tsv", "q0\td0\t1\n", "a.tsv, line 1: 3 columns .* expected 6 columns"),  # ranks are no scores
        ("a.jsonl", json.dumps({"query": "?", "pos": ["x"], "neg": []}), r"pos_scores None.*each of its 1"),
    ],
)
def test_bad_files_name_the_line(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_text(content)
    made = collection("0" if name.endswith("jsonl") else "q0")
    with pytest.raises(ValueError, match=message):
        read_scored_pairs(path, made.split("train"), made)
