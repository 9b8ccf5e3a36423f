import json

import pytest

from pyserini_ance.data.formats.flagembedding import FlagEmbedding, text_id

TRAIN = [
    {
        "query": "which\tyear",
        "pos": ["It was 1984.", "1984"],
        "neg": ["1985", "1984"],
        "prompt": "Find it.",
        "neg_scores": [1, 2],
    },
    {"query": "no negatives", "pos": ["1985"]},
]


def write(path, records: list[dict]):
    path.write_text("".join(json.dumps(one) + "\n" for one in records))
    return path


@pytest.fixture
def recipe(tmp_path):
    return {"splits": {"train": write(tmp_path / "train.jsonl", TRAIN)}}


def relevant(collection) -> list[list[str]]:
    train = collection.split("train")
    return [
        [collection.documents.columns["text"][row] for row in train.known_positives("query").of(query)]
        for query in range(len(train.queries))
    ]


def test_equal_texts_are_one_document(recipe):
    collection = FlagEmbedding(**recipe).read()
    assert collection.documents.columns == {"text": ["It was 1984.", "1984", "1985"]}
    assert collection.documents.ids == [text_id(text) for text in collection.documents.columns["text"]]
    train = collection.split("train")
    assert (train.queries.ids, train.queries.columns["text"]) == (["0", "1"], ["which year", "no negatives"])
    assert relevant(collection) == [["It was 1984.", "1984"], ["1985"]]


def test_a_candidate_pool_replaces_listed_texts(recipe, tmp_path):
    pool = write(
        tmp_path / "pool.jsonl",
        [{"text": text} for text in ("other", "1985", "1984", "other", "It was 1984.")],
    )
    collection = FlagEmbedding(corpus=pool, **recipe).read()
    assert collection.documents.columns["text"] == ["other", "1985", "1984", "It was 1984."]
    assert relevant(collection) == [["It was 1984.", "1984"], ["1985"]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"query": 3}, "query 3; expected a string"),
        ({"query": " "}, "query '2' is empty"),
        ({"pos": None}, "pos None; expected a list of strings, one per passage"),
        ({"pos": "text"}, "pos 'text'; expected a list of strings"),
        ({"neg": [{"text": "x"}]}, "neg .*; expected a list of strings"),
        ({"neg": [""]}, "document '.*' is empty; expected a text in text"),
        ({"neg": ["\ud800"]}, "a text that holds a NUL character or half a surrogate pair: .*; remove"),
    ],
)
def test_malformed_input_is_an_error(recipe, tmp_path, change, message):
    write(tmp_path / "train.jsonl", [*TRAIN, {"query": "x", "pos": ["y"]} | change])
    with pytest.raises(ValueError, match=rf"train\.jsonl, line 3: {message}"):
        FlagEmbedding(**recipe).read()


def test_real_questions(shared_data):
    """Ten questions of NQ, 10 + 979 texts: two occur twice among the first's negatives, one is listed by two
    questions.
    """
    collection = FlagEmbedding(splits={"train": shared_data / "dpr" / "flagembedding-nq.jsonl"}).read()
    train = collection.split("train")
    assert (len(train.queries), len(train.qrels.rows)) == (10, 10)
    assert train.queries.columns["text"][0] == "big little lies season 2 how many episodes"
    assert (
        train.queries.columns["text"][-1]
        == "why was there so much interest in cuba both before and after the civil war"
    )
    assert relevant(collection)[0][0].startswith(
        "Big Little Lies (TV series) series garnered several accolades."
    )
    assert len(collection.documents) == 986
