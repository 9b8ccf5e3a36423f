import numpy as np
import pytest

from pyserini_ance.data.collection import Collection, Qrels, Split, Texts
from pyserini_ance.data.joint import join, rows_of_parts, with_joint
from pyserini_ance.data.stored import open_collection, store_collection

DOCUMENTS = Texts([f"d{i}" for i in range(9)], {"text": ["!"] * 9})
JUDGED = {
    "nq": {"0": [(3, 2), (1, 0)], "1": [(8, 1)], "2": [(0, 2), (4, 2), (5, 1)]},
    "trivia": {"0": [(8, 2)], "5": [(3, 1), (2, 2)]},
    "web": {"w": [(7, 2)]},
}


def split(name: str, threshold: int = 1, **columns) -> Split:
    judged = JUDGED[name]
    pairs = [(query, *pair) for query, of_query in enumerate(judged.values()) for pair in of_query]
    texts = {"text": [f"{name} {id}?" for id in judged], **{column: [value] * len(judged) for column, value in columns.items()}}
    return Split(name, Texts(list(judged), texts), Qrels.of(*zip(*pairs, strict=True), len(judged), threshold))


def collection(*names: str) -> Collection:
    return Collection(DOCUMENTS, {name: split(name) for name in names})


@pytest.mark.parametrize("names", [("nq", "trivia"), ("trivia", "nq", "web"), ("web", "nq")])
@pytest.mark.parametrize("threshold", [1, 2])
def test_the_parts_one_after_the_other_as_a_slow_loop_has_them(names, threshold):
    joined = join("all", [split(name, threshold) for name in names])
    expected = [(f"{name} {id}?", of_query) for name in names for id, of_query in JUDGED[name].items()]
    assert joined.queries.columns == {"text": [text for text, _ in expected]} and joined.name == "all"
    for row, (_, of_query) in enumerate(expected):
        documents, grades = joined.qrels.judged(row)
        assert list(zip(documents.tolist(), grades.tolist(), strict=True)) == of_query
        assert joined.qrels.relevant(row).tolist() == [document for document, grade in of_query if grade >= threshold]
    for document in range(9):
        asking = [row for row, (_, of_query) in enumerate(expected) if any(d == document and g >= threshold for d, g in of_query)]
        relation = joined.relation("document")
        assert (relation.of(document).tolist() if document < len(relation.offsets) - 1 else []) == asking


def test_ids_stay_where_no_two_parts_share_one_and_are_kept_apart_where_they_do():
    assert join("both", [split("nq"), split("web")]).queries.ids == ["0", "1", "2", "w"]
    assert join("all", [split("nq"), split("trivia"), split("web")]).queries.ids == ["nq:0", "nq:1", "nq:2", "trivia:0", "trivia:5", "web:w"]


def test_a_joint_split_has_the_fields_that_all_parts_have():
    answered = join("both", [split("nq", title="t", answers='["a"]'), split("trivia", answers='["b"]')])
    assert answered.queries.columns["answers"] == ['["a"]'] * 3 + ['["b"]'] * 2 and list(answered.queries.columns) == ["text", "answers"]
    assert list(join("both", [split("nq", answers="[]"), split("trivia")]).queries.columns) == ["text"]


def test_rows_of_each_part():
    assert rows_of_parts([split("nq"), split("trivia"), split("web")]) == (slice(0, 3), slice(3, 5), slice(5, 6))
    assert rows_of_parts([split("nq")]) == (slice(0, 3),)


def test_a_collection_has_it_as_one_more_split_in_its_digest_and_on_disk(tmp_path):
    parts = collection("nq", "trivia")
    joined = with_joint(parts, "nq+trivia", ("nq", "trivia"))
    assert list(joined.splits) == ["nq", "trivia", "nq+trivia"] and list(parts.splits) == ["nq", "trivia"]
    turned = with_joint(parts, "trivia+nq", ("trivia", "nq"))
    assert len({one.digest for one in (parts, joined, turned)}) == 3
    store_collection(joined, tmp_path)
    opened = open_collection(tmp_path, joined.digest).split("nq+trivia")
    assert opened.queries.digest == joined.split("nq+trivia").queries.digest and opened.queries.rows["trivia:0"] == 3
    assert np.array_equal(opened.qrels.relevant_rows, joined.split("nq+trivia").qrels.relevant_rows)


def test_one_split_alone_leaves_the_collection_as_it_is():
    parts = collection("nq", "trivia")
    assert with_joint(parts, "nq", ("nq",)) is parts


def test_what_cannot_be_joined_is_refused():
    with pytest.raises(ValueError, match="no split 'webb'; splits: nq, trivia; name one of them"):
        with_joint(collection("nq", "trivia"), "nq+webb", ("nq", "webb"))
    named = Collection(DOCUMENTS, {"nq+trivia": split("nq"), "nq": split("nq"), "trivia": split("trivia")})
    with pytest.raises(ValueError, match=r"split 'nq\+trivia' has the name that nq, trivia have when they are joined; rename it"):
        with_joint(named, "nq+trivia", ("nq", "trivia"))
