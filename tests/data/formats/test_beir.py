import pytest

from pyserini_ance.data.answer_matching import read_answers
from pyserini_ance.data.formats.beir import Beir
from pyserini_ance.data.formats.files import input_files

CORPUS = """\
{"_id": "007", "title": "Bond", "text": "A spy.", "metadata": {}}
{"_id": "7", "title": null, "text": "A number."}
{"_id": "d3", "title": "Only a title"}
"""
QUERIES = """\
{"_id": "q1", "text": "which  number?\\n", "answers": ["7", "seven  \\u00e9"]}
{"_id": "q2", "text": "which spy?"}
{"_id": "q3", "text": "judged, not relevant"}
{"_id": "q4", "text": "in another split"}
"""
TRAIN = "query-id\tcorpus-id\tscore\nq2\t007\t2\nq1\t7\t1\nq1\td3\t1\nq3\t7\t0\n"
DEV = "q4\td3\t1\n"
FILES = {"corpus.jsonl": CORPUS, "queries.jsonl": QUERIES, "qrels/train.tsv": TRAIN, "qrels/dev.tsv": DEV}
SPLITS = {"train": "qrels/train.tsv", "dev": "qrels/dev.tsv"}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "qrels").mkdir()
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_the_layout_is_read(folder):
    collection = Beir(folder=folder, splits=SPLITS).read()
    assert collection.documents.ids == ["007", "7", "d3"]
    assert collection.documents.take([0, 1, 2]) == [
        {"title": "Bond", "text": "A spy."},
        {"title": "", "text": "A number."},
        {"title": "Only a title", "text": ""},
    ]
    train, dev = collection.split("train"), collection.split("dev")
    assert (train.queries.ids, dev.queries.ids) == (["q1", "q2"], ["q4"])
    assert train.queries[0]["text"] == "which number?"
    assert [read_answers(train.queries, row) for row in range(2)] == [["7", "seven  é"], []]
    assert list(dev.queries.columns) == ["text"]
    assert [train.known_positives("query").of(row).tolist() for row in range(2)] == [[1, 2], [0]]
    assert collection.skipped == {
        "train queries without positives": 1,
        "train judgments of queries without positives": 1,
    }


def test_answers_must_be_a_list_of_strings(folder):
    (folder / "queries.jsonl").write_text(QUERIES.replace('["7", ', "[7, "))
    with pytest.raises(
        ValueError, match=r"queries\.jsonl, line 1: answers \[7, .*; expected a list of strings"
    ):
        Beir(folder=folder, splits=SPLITS).read()


def test_default_splits_are_train_dev_and_test(folder):
    with pytest.raises(FileNotFoundError, match=r"qrels/test\.tsv.*set `data.splits.test`"):
        Beir(folder=folder).read()


def test_a_missing_folder_is_an_error_before_anything_is_read(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere/corpus\.jsonl.*set `data.folder`"):
        Beir(folder=tmp_path / "nowhere").read()


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("corpus.jsonl", CORPUS + '{"_id": "d4",', "line 4: malformed JSON at column 14"),
        (
            "corpus.jsonl",
            CORPUS + '{"_id": "7", "text": "again"}',
            "line 4: document id '7' was already .* line 2",
        ),
        (
            "corpus.jsonl",
            CORPUS + '{"id": "d4", "text": "x"}',
            r"line 4: id None; expected a string under _id; .* \(its keys: 'id, text'\), or set `data.kind`",
        ),
        ("corpus.jsonl", CORPUS + '{"_id": "d4", "text": ["x"]}', r"line 4: text \['x'\]; expected a string"),
        (
            "corpus.jsonl",
            CORPUS + '{"_id": "d4", "title": " ", "text": ""}',
            "line 4: document 'd4' is empty",
        ),
        ("queries.jsonl", '{"_id": "q1", "text": ""}', "line 1: query 'q1' is empty"),
        ("qrels/train.tsv", TRAIN + "q1 7 1\n", "line 6: 1 columns in 'q1 7 1'; expected 3 columns"),
        ("qrels/train.tsv", TRAIN + "q1\t7\tyes\n", "line 6: grade 'yes'; expected a whole number"),
        ("qrels/train.tsv", TRAIN + "q1\t8\t1\n", r"1 judgments of split 'train' .*train\.tsv:6 q1 8;"),
        ("qrels/train.tsv", TRAIN + "q9\t7\t1\n", r"1 judgments of split 'train' .*train\.tsv:6 q9 7;"),
        ("qrels/dev.tsv", "query-id\tcorpus-id\tscore\n", "split 'dev' has no query"),
        ("corpus.jsonl", "", "no document was read"),
    ],
)
def test_malformed_input_is_an_error(folder, name, text, message):
    (folder / name).write_text(text)
    with pytest.raises(ValueError, match=message):
        Beir(folder=folder, splits=SPLITS).read()


def sizes(collection) -> dict[str, tuple[int, int]]:
    """Queries and judgments of every split."""
    return {name: (len(split.queries), len(split.qrels.rows)) for name, split in collection.splits.items()}


def test_nfcorpus(shared_data):
    collection = Beir(folder=shared_data / "nfcorpus").read()
    assert len(collection.documents) == 3633
    assert sizes(collection) == {"train": (2590, 110575), "dev": (324, 11385), "test": (323, 12334)}
    assert (collection.documents.ids[:2], collection.documents.ids[-1]) == (["MED-10", "MED-14"], "MED-961")
    assert collection.documents[3632]["title"] == "Vitamin D(3) is more potent than vitamin D(2) in humans."
    assert collection.documents[0]["title"].startswith(
        "Statin Use and Breast Cancer Survival: A Nationwide Cohort"
    )
    assert collection.skipped == {}


def test_squad(shared_data):
    collection = Beir(folder=shared_data / "squad-beir", splits=SPLITS).read()
    assert (len(collection.documents), collection.documents.ids[0], collection.documents.ids[-1]) == (
        240,
        "xq00-0",
        "xq47-4",
    )
    assert sizes(collection) == {"train": (894, 894), "dev": (296, 296)}


def test_all_missing_files_and_the_folder_that_is_missing_are_named(tmp_path):
    (tmp_path / "squad-beir").mkdir()
    folder = tmp_path / "squad-bier"
    with pytest.raises(FileNotFoundError) as error:
        input_files(Beir(folder=folder))
    assert str(error.value).splitlines()[:-1] == [
        "5 of 5 files of the recipe do not exist, neither plain nor as .gz; no such folder: "
        f"{folder} (did you mean 'squad-beir'?):",
        f"  data.folder: {folder}/corpus.jsonl",
        f"  data.folder: {folder}/queries.jsonl",
        *(f"  data.splits.{name}: {folder}/qrels/{name}.tsv" for name in ("train", "dev", "test")),
    ]


def test_a_split_is_left_out_only_if_nothing_else_is_missing(tmp_path):
    for name in ("corpus.jsonl", "queries.jsonl", "qrels/train.tsv", "qrels/test.tsv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    with pytest.raises(FileNotFoundError, match=r"1 of 5 .*\.gz:\n(.*\n)*.*data.splits.NAME=null"):
        input_files(Beir(folder=tmp_path))
    (tmp_path / "corpus.jsonl").unlink()
    with pytest.raises(FileNotFoundError, match="2 of 5 ") as error:
        input_files(Beir(folder=tmp_path))
    assert "NAME=null" not in str(error.value)
