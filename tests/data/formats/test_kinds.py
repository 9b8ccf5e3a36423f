"""Every kind that reads files: what is read, .gz, missing files, odd characters, and errors."""

import gzip
import json
from pathlib import Path

import pytest

from pyserini_ance.data.answer_matching import ANSWERS, read_answers
from pyserini_ance.data.formats.training_files import text_id
from pyserini_ance.recipe.components import component_class, kinds


def lines(*records: dict) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def passage(id: str, text: str = "", title: str = "", key: str = "docid") -> dict:
    return {key: id, "title": title, "text": text or f"text of {id}"}


TOPICS = {
    "topics.tsv": "01\twhich  é\n1\twhich number\nq3\tjudged, not relevant\n",
    "qrels.txt": "1\t0\t7\t1\n01 Q0 007 2\nq3 0 7 0\n",
    "topics.jsonl": lines({"id": "0", "title": "who", "answers": ["Bond"]}, {"id": 1, "title": "when"}),
}
SPLITS = {"train": {"topics": "topics.tsv", "qrels": "qrels.txt"}, "asked": {"topics": "topics.jsonl"}}
READ = {  # text, answers, grades
    "train": {"01": ("which é", None, {"007": 2}), "1": ("which number", None, {"7": 1})},
    "asked": {"0": ("who", ["Bond"], {}), "1": ("when", [], {})},
}
SKIPPED = {"train queries without positives": 1, "train judgments of queries without positives": 1}
WITH_URLS = {"007": {"url": "u", "title": "", "text": "é"}, "7": {"url": "", "title": '"title"', "text": ""}}
BOND = {"007": {"title": "Bond", "text": "é"}, "7": {"title": "", "text": "two"}}
CORPUS = lines({"_id": "007", **BOND["007"], "metadata": {}}, {"_id": "7", "title": None, "text": "two"})
SEVEN_TOO = {"_id": 1, "text": "who", "answers": ["7", "seven  é"]}
WHICH = {"_id": "01", "text": "which  é\n", "answers": []}
QUERIES = lines(WHICH, SEVEN_TOO, {"_id": "q3", "text": "else"})
QRELS = "query-id\tcorpus-id\tscore\n01\t007\t2\n1\t7\t1\n1\t007\t0\n"
BEIR_READ = {
    "train": {"01": ("which é", [], {"007": 2}), "1": ("who", ["7", "seven  é"], {"7": 1, "007": 0})},
    "dev": {"q3": ("else", None, {"7": 1})},
}
SEVEN = {"title": "Seven", "text": "two"}
FLAGEMBEDDING = lines(
    {"query": "which\tyear", "prompt": "Find.", "pos": ["é", "two"], "neg": ["three", "é"]},
    {"query": "no negatives", "pos": ["three"]},
)
ONE, TWO, THREE = [text_id(text) for text in ("é", "two", "three")]
JUDGED = {"positive_passages": [passage("d2", "é"), passage("d1")]}
JUDGED["negative_passages"] = [passage("d3"), passage("d2", "é")]
UNJUDGED = {"query_id": "q8", "query": "x", "positive_passages": [], "negative_passages": [passage("d4")]}
TEVATRON = lines({"query_id": "q7", "query": "which  year", "answers": ["1984"], **JUDGED}, UNJUDGED)
RELEVANT = [passage("2", key="passage_id"), passage("1", key="passage_id")], [], [passage("1", key="psg_id")]
DPR = [{"question": "which  year", "answers": ["1984"], "positive_ctxs": each} for each in RELEVANT]
DPR = [{**each, "hard_negative_ctxs": []} for each in DPR]
TEST_CSV = {"questions": "test.csv", "qrels": "test.qrels"}
DPR_TEXTS = {"1": {"title": "Aaron", "text": "é"}, "2": {"title": '"1984"', "text": 'The "year"'}}
DPR_TEXTS["3"] = {"title": "", "text": "No title."}
YEAR = ("which year", ["1984"], {"2": 1, "1": 1})
DPR_READ = {"train": {"0": YEAR, "2": (*YEAR[:2], {"1": 1})}}
DPR_READ["test"] = {"0": (YEAR[0], ["1984", "it's"], {"2": 1}), "1": ('who "?', ["Aaron", "x'"], {"1": 1})}
# By kind: the settings, the files, and the documents, splits and counts of what is skipped.
KINDS = {
    "beir": (
        {"folder": ".", "splits": {"train": "train.tsv", "dev": "dev.tsv"}},
        {"corpus.jsonl": CORPUS, "queries.jsonl": QUERIES, "train.tsv": QRELS, "dev.tsv": "q3\t7\t1\n"},
        (BOND, BEIR_READ, {}),
    ),
    "datasets": (
        {
            "documents": {"path": "docs.csv", "columns": {"id": "pid", "title": None}},
            "queries": {"path": "queries.jsonl", "columns": {"answers": "answers"}},
            "splits": {"train": {"path": "train.tsv"}},
        },
        {"docs.csv": "pid,text\n007,é\n7,NA\n", "queries.jsonl": QUERIES, "train.tsv": QRELS},
        ({"007": {"text": "é"}, "7": {"text": "NA"}}, {"train": BEIR_READ["train"]}, {}),
    ),
    "dpr": (
        {"passages": "psgs.tsv", "splits": {"train": {"questions": "train.json"}, "test": TEST_CSV}},
        {
            "psgs.tsv": 'id\ttext\ttitle\n1\t"é"\tAaron\n2\tThe "year"\t"""1984"""\n3\tNo title.\t\n',
            "train.json": json.dumps(DPR, indent=4),
            "test.csv": 'which year\t[\'1984\', "it\'s"]\r\n"who ""?"\t"[\'Aaron\', ""x\'""]"\r\n'
            "x\t['x']\n",
            "test.qrels": "1 0 1 1\n0 0 2 1\n",
        },
        (DPR_TEXTS, DPR_READ, {"train queries without positives": 1, "test queries without judgments": 1}),
    ),
    "flagembedding": (
        {"splits": {"train": "train.jsonl"}},
        {"train.jsonl": FLAGEMBEDDING},
        (
            {ONE: {"text": "é"}, TWO: {"text": "two"}, THREE: {"text": "three"}},
            {"train": {"0": ("which year", None, {ONE: 1, TWO: 1}), "1": ("no negatives", None, {THREE: 1})}},
            {},
        ),
    ),
    "msmarco_doc": (
        {"corpus": "docs.tsv", "splits": SPLITS},
        {"docs.tsv": '007\tu\t\té\n7\t\t"title"\t\n', **TOPICS},
        (WITH_URLS, READ, SKIPPED),
    ),
    "msmarco_passage": (
        {"corpus": "docs.tsv", "splits": SPLITS},
        {"docs.tsv": '007\té\n7\t"two"\n', **TOPICS},
        ({"007": {"text": "é"}, "7": {"text": '"two"'}}, READ, SKIPPED),
    ),
    "pyserini_jsonl": (
        {"corpus": "corpus.jsonl", "splits": SPLITS},
        {"corpus.jsonl": lines({"id": "007", "contents": "é"}, {"docid": 7, **SEVEN}), **TOPICS},
        ({"007": {"title": "", "text": "é"}, "7": SEVEN}, READ, SKIPPED),
    ),
    "tevatron": (
        {"splits": {"train": "train.jsonl"}},
        {"train.jsonl": TEVATRON},
        (
            {"d2": {"title": "", "text": "é"}}
            | {id: {"title": "", "text": f"text of {id}"} for id in ("d1", "d3", "d4")},
            {"train": {"q7": ("which year", ["1984"], {"d2": 1, "d1": 1})}},
            {"train queries without positives": 1},
        ),
    ),
}

# Kinds of data that have no files of their own, and where they are tested.
ELSEWHERE = {
    "docstrings": "data/formats/test_docstrings.py",
    "ir_datasets": "data/formats/test_ir_datasets.py",
    "pyserini_index": "pyserini_bridge/test_text_worker.py",
}


def test_every_kind_of_data_is_tested():
    assert sorted([*KINDS, *ELSEWHERE]) == [*kinds("data")], "a new format needs an entry in KINDS"
    for kind, file in ELSEWHERE.items():
        assert kind in (Path(__file__).parents[2] / file).read_text(encoding="utf-8")


@pytest.fixture(params=KINDS)
def kind(request, tmp_path, monkeypatch):
    """The class, its settings and what it reads; the files are in the working directory."""
    monkeypatch.chdir(tmp_path)
    settings, files, expected = KINDS[request.param]
    for name, text in files.items():
        Path(name).write_text(text, newline="")
    return component_class("data", request.param), settings, list(files), expected


def as_read(collection) -> tuple:
    documents, splits = collection.documents, {}
    for name, split in collection.splits.items():
        queries, judged = split.queries, collection.judgments(name)
        has_answers, texts = ANSWERS in queries.columns, queries.columns["text"]
        answers = [read_answers(queries, row) if has_answers else None for row in range(len(queries))]
        splits[name] = {id: (texts[row], answers[row], judged[id]) for row, id in enumerate(queries.ids)}
    texts = dict(zip(documents.ids, documents.take(range(len(documents))), strict=True))
    return texts, splits, collection.skipped


def test_the_files_are_read_plain_packed_and_into_a_file(kind, tmp_path):
    cls, settings, files, expected = kind
    data = cls.model_validate(settings)
    assert cls.model_validate(data.model_dump(mode="json")) == data
    collection = data.read(trained_on={"train"})
    assert as_read(collection) == expected
    assert data.read(tmp_path / "documents.arrow", trained_on={"train"}).digest == collection.digest
    if cls.__name__ == "Datasets":  # where a path is that of a file
        return
    for name in files:
        Path(f"{name}.gz").write_bytes(gzip.compress(Path(name).read_bytes()))
        Path(name).unlink()
    assert data.read(trained_on={"train"}).digest == collection.digest
    for name in files:
        packed = Path(f"{name}.gz").rename("elsewhere")
        with pytest.raises(FileNotFoundError, match=rf"{name}, nor .*{name}\.gz; set `data\."):
            data.read()
        packed.rename(f"{name}.gz")


def test_texts_are_kept_whatever_characters_they_hold(kind):
    """A lone \\r and double quotes are part of a text; a NUL is an error that names file and line."""
    cls, settings, files, (documents, *_) = kind
    name = next(one for one in files if "é" in Path(one).read_text() or r"\u00e9" in Path(one).read_text())
    text, special = Path(name).read_text(), 'é\r"x" \r'
    has_quotes = name.endswith((".csv", "psgs.tsv"))
    changed = 'é\\r\\"x\\" \\r.' if "json" in name else '"é ""x"""' if has_quotes else f"{special}."
    old = next(one for one in ('"é"\t', "é", r"\u00e9") if one in text)
    Path(name).write_text(text.replace(old, changed + "\t" * old.endswith("\t")), newline="")
    read = cls.model_validate(settings).read().documents
    expected = 'é "x"' if has_quotes else f"{special}."
    assert any(expected in record.values() for record in read.take(range(len(documents))))
    Path(name).write_text(text.replace(old, "x\\u0000" if "json" in name else "x\0\t"))
    with pytest.raises(ValueError, match=rf"{name}, line \d"):
        cls.model_validate(settings).read()


def flag(**change) -> str:
    return json.dumps({"query": "x", "pos": ["y"]} | change)


def tevatron(**change) -> str:
    one = {"query_id": "x", "query": "q", "positive_passages": [], "negative_passages": []}
    return json.dumps(one | change)


LISTS = ["['a', 'b'", "['a', 1984]", "'a'", "['a' 'b']", "['a', {[]}]", "['\\x']", "Paris"]
LISTS += ["['a']\x1d"]  # differs from \\r in one bit: Pyserini, which evaluates the list, fails on it as well
NO_TEXT = "a record with the keys '{}'; expected its text under `text`; rename the key of its text"
CONTENTS = {"docid": "d9", "contents": "x"}
PASSAGE = {"docid": "d1", "text": "other"}
KEYS = "line 3: a record with the keys .* `text` or `contents`"
MALFORMED = {  # by kind and file: a line, and what is said of it
    ("beir", "corpus.jsonl"): [
        ('{"id": "d4", "text": "x"}', "line 3: id None; .*'id, text', .*`data.kind`"),
        ('{"_id": "d4", "title": "x", "body": "y"}', NO_TEXT.format("_id, title, body")),
        ('{"_id": "d4", "title": "x", "text": "", "text": "y"}', "'text' is repeated"),
        ('{"_id": "d4", "text": ["x"]}', r"line 3: text \['x'\]; expected a string"),
    ],
    ("beir", "queries.jsonl"): [('{"_id": "q4", "query": "x"}', NO_TEXT.format("_id, query"))],
    ("datasets", "queries.jsonl"): [('{"_id": "1", "contents": "x"}', NO_TEXT.format("_id, contents"))],
    ("dpr", "psgs.tsv"): [("4\tno title", "line 5: 2 columns in .*; expected 3 columns")],
    ("dpr", "test.csv"): [
        *((f"q\t{one}", "line 4: answers .*; expected a Python list of") for one in LISTS),
        ('{"question": "q", "answer": "a"}', "line 4: answer 'a'; expected a list of str"),
    ],
    ("flagembedding", "train.jsonl"): [
        (flag(pos="text"), "line 3: pos 'text'; expected a list"),
        (flag(neg=[{"text": "x"}]), "line 3: neg .*; expected a list"),
        ('{"question": "x", "pos": ["y"]}', "keys 'question, pos'; .* `query`"),
        (flag(pos=[" "]), "line 3: document with the text ' ' is empty"),
    ],
    ("msmarco_doc", "docs.tsv"): [
        ("D4\tu\tno body", "line 3: 3 columns in .*; .*: docid, url, title, body"),
        ("D4\t \t\t", "line 3: document 'D4' is empty; .* url or title or text"),
    ],
    ("msmarco_passage", "docs.tsv"): [("8\t ", "line 3: document '8' is .*empty_documents in data.skip")],
    ("pyserini_jsonl", "corpus.jsonl"): [
        ('{"contents": "x"}', "line 3: id None; .*id or _id or docid"),
        ('{"id": "1", "body": "x"}', KEYS),
        ('{"id": "1", "title": "x"}', KEYS),
        ('{"id": "1"}', KEYS),
    ],
    ("pyserini_jsonl", "topics.jsonl"): [('{"id": "1", "text": "x"}', "'id, text'; .* under `title`")],
    ("tevatron", "train.jsonl"): [
        (tevatron(positive_passages=[CONTENTS]), NO_TEXT.format("docid, contents")),
        (tevatron(answers="1984"), "line 3: answers '1984'; expected a list"),
        (tevatron(negative_passages=[PASSAGE]), "line 3: passage 'd1' is .*other.*it has another text"),
    ],
}
LINES = [(*of, *each) for of, lines in MALFORMED.items() for each in lines]


@pytest.mark.parametrize("name, file, line, message", LINES)
def test_a_line_that_is_malformed_is_named(tmp_path, monkeypatch, name, file, line, message):
    monkeypatch.chdir(tmp_path)
    settings, files, _ = KINDS[name]
    for one, text in files.items():
        Path(one).write_text(text + (f"{line}\n" if one == file else ""), newline="")
    with pytest.raises(ValueError, match=message) as error:
        component_class("data", name).model_validate(settings).read()
    assert file in str(error.value)


def test_listed_texts_that_the_candidate_pool_lacks_are_documents_too(tmp_path):
    (tmp_path / "train.jsonl").write_text(KINDS["flagembedding"][1]["train.jsonl"])
    texts = ("other", "three", "other", "é")
    (tmp_path / "pool.jsonl").write_text(lines(*({"text": text} for text in texts)))
    settings = {"corpus": tmp_path / "pool.jsonl", "splits": {"train": tmp_path / "train.jsonl"}}
    collection = component_class("data", "flagembedding").model_validate(settings).of_splits([]).read()
    assert collection.documents.columns["text"] == ["other", "three", "é", "two"]
    assert as_read(collection)[1] == KINDS["flagembedding"][2][1]


def test_a_folder_is_read_in_the_order_of_its_paths_and_fields_are_lines_or_keys(tmp_path, caplog):
    """As in `pyserini.encode --fields`, except that the last field takes all remaining lines."""
    (tmp_path / "b.jsonl").write_text('{"id": "2", "contents": "http://a.org/\\nA title\\nBody\\nof A"}\n')
    (tmp_path / "c.json").write_text('{"id": "3", "url": "u", "title": null, "text": "C", "contents": "x"}\n')
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b'{"id": "1", "contents": "http://b.org/\\n\\n"}\n'))
    (tmp_path / ".hidden.jsonl").write_text('{"id": "0", "contents": "a\\nb\\nc"}\n')  # as Anserini does
    (tmp_path / "README.txt").write_text("no corpus")
    (tmp_path / "inner" / "a").mkdir(parents=True)
    (tmp_path / "inner" / "a" / "E.JSONL").write_text('{"id": "5", "url": "u", "title": "", "text": "E"}\n')
    packed = gzip.compress(b'{"id": "4", "url": "u", "title": "", "text": "D"}\n')
    (tmp_path / "d.NDJSON.GZ").write_bytes(packed)
    (tmp_path / "linked").symlink_to(tmp_path.parent / f"{tmp_path.name}-linked", target_is_directory=True)
    (tmp_path / "linked").resolve().mkdir()
    (tmp_path / "linked" / "f.json").write_text('{"id": "6", "url": "u", "title": "", "text": "F"}\n')
    settings = {"corpus": tmp_path, "fields": ["url", "title", "text"]}
    documents = component_class("data", "pyserini_jsonl").model_validate(settings).read().documents
    assert documents.ids == ["0", "1", "2", "3", "4", "5", "6"]
    assert ["1 files are left out, such as README.txt" in text for text in caplog.messages] == [True]
    found = [list(documents[row].values()) for row in (1, 2, 3)]
    assert found == [["http://b.org/", "", ""], ["http://a.org/", "A title", "Body\nof A"], ["u", "", "C"]]
    settings["fields"] = ["url", "a", "b", "c", "text"]
    message = "contents of 3 lines: .*; expected a line each for url, a, b, c, text"
    with pytest.raises(ValueError, match=message):
        component_class("data", "pyserini_jsonl").model_validate(settings).read()


def test_queries_in_a_folder_of_beir_s_layout_are_no_documents(tmp_path, caplog):
    for name in ("corpus.jsonl", "queries.jsonl"):
        (tmp_path / name).write_text(json.dumps({"_id": name[0], "text": "a text"}))
    data = component_class("data", "pyserini_jsonl").model_validate({"corpus": tmp_path})
    assert data.read().documents.ids == ["c"] and "1 files are left out, such as queries" in caplog.text
    (tmp_path / "corpus.jsonl").rename(tmp_path / "more.jsonl")
    assert data.read().documents.ids == ["c", "q"]
