"""What supervises: files of queries and judgments, splits without common texts, queries made of documents."""

import json
from contextlib import nullcontext

import pyarrow as pa
import pyarrow.parquet
import pytest

from pyserini_ance.adapt import queries
from pyserini_ance.adapt.documents import Passage
from pyserini_ance.adapt.queries import Queries, extract_queries, keep_known, read_queries, sizes, split


def read(tmp_path, asked=None, judged=None, source=None):
    return read_queries(asked, judged, source or tmp_path / "none", tmp_path / "cache")


def written(path, text, encoding="utf-8"):
    path.write_text(text, encoding=encoding)
    return path


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("q.txt", "how to sort\n\n  invert a   matrix \n"),
        ("q.tsv", "q1\thow to sort\nq3\tinvert a matrix\n"),
        ("q.csv", "Query ID,query\nq1,how to sort\nq3,invert a matrix\n"),
        ("q.tsv", "query-id\ttext\nq1\thow to sort\nq3\tinvert a matrix\n"),
        ("q.jsonl", '{"_id": "q1", "text": "how to sort"}\n{"_id": "q3", "text": "invert a matrix"}\n'),
    ],
)
def test_files_of_queries(tmp_path, name, text):
    found = read(tmp_path, written(tmp_path / name, text))
    assert list(found.texts.values()) == ["how to sort", "invert a matrix"]
    assert list(found.texts) == (["q1", "q2"] if name == "q.txt" else ["q1", "q3"])


def test_tables_as_spreadsheets_write_them(tmp_path):
    asked = written(tmp_path / "q.txt", 'Query\tCount\n"how to ""sort"", fast"\t3\ndraw\t1\n', "utf-16")
    judged = written(tmp_path / "j.csv", "query;document;grade\ndraw;Straße.md;2\n", "utf-16")
    found = read(tmp_path, asked, judged)
    assert [*found.texts.values()] == ['how to "sort", fast', "draw"]
    assert found.judgments == {"q2": {"Straße.md": 2}}
    assert found.counts["columns of q.txt not read (Count)"] == 1
    written(tmp_path / "j.csv", "query,document,grade,grade\ndraw,a.md,0,1\n")
    with pytest.raises(ValueError, match="j.csv, line 1: several columns 'grade'; expected one of a name"):
        read(tmp_path, asked, tmp_path / "j.csv")
    table = pa.table({"query": ["draw", "draw"], "document": ["a", "b"], "grade": [1.0, None], "by": [1, 2]})
    pyarrow.parquet.write_table(table, tmp_path / "j.parquet")
    assert read(tmp_path, asked, tmp_path / "j.parquet").judgments == {"q2": {"a": 1}}
    pyarrow.parquet.write_table(table.drop(["document"]), tmp_path / "j.parquet")
    with pytest.raises(ValueError, match="columns 'query, grade, by'; expected a column of document"):
        read(tmp_path, asked, tmp_path / "j.parquet")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("j.txt", "q1 0 d1 1\nq1 0 d2 0\nq2 0 d2 2\n"),
        ("j.tsv", "query-id\tcorpus-id\tscore\nq1\td1\t1\nq1\td2\t0\nq2\td2\t2\n"),
        ("j.csv", "query,document,grade\nhow to sort,d1,1\nHow to  sort,d2,0\nq2,d2,2\n"),
        ("r.csv", "query,document,relevant\nq1,d1,1\nq1,d2,0\nq2,d2,2\n"),
        (
            "j.jsonl",
            '{"qid": "q1", "docid": "d1"}\n{"qid": "q1", "docid": "d2", "label": 0}\n'
            '{"qid": "q2", "docid": "d2", "label": 2}\n',
        ),
    ],
)
def test_judgments_name_queries_by_id_or_text(tmp_path, name, text):
    asked = written(tmp_path / "q.tsv", "q1\thow to sort\nq2\tinvert a matrix\nq3\tdraw\n")
    found = read(tmp_path, asked, written(tmp_path / name, text))
    assert found.judgments == {"q1": {"d1": 1, "d2": 0}, "q2": {"d2": 2}}
    assert found.unjudged == ["q3"]


def test_judgments_with_texts_need_no_file_of_queries(tmp_path):
    found = read(tmp_path, judged=written(tmp_path / "j.csv", "query,document\nhow to sort,a file.md\n"))
    assert found.texts == {"q1": "how to sort"} and found.judgments == {"q1": {"a file.md": 1}}
    with pytest.raises(ValueError, match="query 'q1' is neither .* of 0 queries; pass the file .* --queries"):
        read(tmp_path, judged=written(tmp_path / "j.tsv", "query-id\tcorpus-id\tscore\nq1\td1\t1\n"))
    found = read(tmp_path, judged=written(tmp_path / "j.csv", "query,docid,useful\nhow to sort,d1,no\n"))
    assert found.counts["columns of j.csv not read (useful)"] == 1
    with pytest.raises(ValueError, match="line 3: an empty query; expected an id or a text; write"):
        read(tmp_path, judged=written(tmp_path / "j.csv", "query,url\nhow to sort,a.md\n,b.md\n"))


def test_names_that_look_alike_are_alike_and_a_number_may_be_of_the_title(tmp_path):
    names = ["Invoice #12", "u\u0308ber.md", "Spaced   title", "Invoice#3", "index.md#2", "index.md", "#12"]
    rows = ["query,document", *(f"query of {name},{name}" for name in names)]
    found = read(tmp_path, judged=written(tmp_path / "j.csv", "\n".join(rows)))
    titles = {"a.md": "Invoice", "b.md": "Invoice #12", "\u00fcber.md": "Spaced title", "c.md": ""}
    found.judgments["other"] = dict.fromkeys(titles, 1)
    keep_known(found, {**titles, "index.md": "x", "d/index.md": "y"})
    known = [[*of] for of in found.judgments.values()]
    assert known == [["b.md"], *[["\u00fcber.md"]] * 2, ["a.md"], *[["index.md"]] * 2, [*titles]]


@pytest.mark.parametrize(
    "name", ["gard/a_b.md", "gard/a b.md", "A b.md", "fever in children", "gard/a_b.md#2"]
)
def test_judgments_name_documents_by_path_file_name_or_title(tmp_path, name):
    titles = {"x/y.md": "Other", "gard/a_b.md": "Fever in children", "x.md": "Other", "gard/x.md": "X"}
    several = [f"query {i},X" for i in range(8)]
    rows = ["query,document", f"how to sort,{name}", *several, "new,x.md", "old,Other"]
    found = read(tmp_path, judged=written(tmp_path / "j.csv", "\n".join(rows)))
    message = r"10 of 11 .*line 2: .*line 3: 'X'; .*line 11: 'x.md'; expected .* d/e.md, or"
    with pytest.raises(ValueError, match=message):
        keep_known(found, {"c": "Other", "d/e.md": "X", "f": "X", "x": ""})
    keep_known(found, titles)
    assert [*found.judgments.values()] == [{"gard/a_b.md": 1}, *([{"gard/x.md": 1}] * 8), {"x.md": 1}]
    assert [what for what, count in found.counts.items() if count == 1 and "j.csv, line 12: 'Other'" in what]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("q.csv", "query;count\nsort;1\n", None),
        ("q.csv", "Search term,Hits\nsort,1\n", None),
        ("q.csv", "suche;n\nsort;1\n", ", line 1: columns 'suche, n'; expected a column of text: query"),
        ("q.csv", "query,count\n", ": no query; expected one a row"),
        ("q.tsv", "how to sort\t12\ndraw\t3\n", ": the second column is numbers, '123'; expected texts"),
        ("q.tsv", "q1\ta\nq1\tb\n", ": query id 'q1' has two texts, 'a' and 'b'"),
        ("q.txt", "\n", ": no query"),
        ("j.csv", "query,file,rating\nq1,a.md,1\n", None),
        ("j.csv", "query,document,grade\nq1,d1,0\n", ": no relevant document; expected a grade above 0"),
        ("j.csv", "query,document,grade\nq1,d1,good\n", ", line 2: grade 'good'; expected a whole number"),
        ("j.txt", "q7 0 d1 1\n", ": query 'q7' is neither the id nor the text of one"),
        ("j.csv", "query,document\nq1,d1\nq7,d1\n", ", line 3: query 'q7' is neither the id nor the text of"),
    ],
)
def test_what_files_of_people_have_is_read_or_named(tmp_path, name, text, message):
    path = written(tmp_path / name, text)
    files = [path] if name[0] == "q" else [written(tmp_path / "asked.tsv", "q1\thow to sort\n"), path]
    with pytest.raises(ValueError, match=name + message) if message else nullcontext():
        assert read(tmp_path, *files).texts in ({"q1": "sort"}, {"q1": "how to sort"})


def test_a_parquet_file_of_queries(tmp_path):
    table = pa.Table.from_pylist([{"query-id": 3, "question": "how to sort"}])
    pyarrow.parquet.write_table(table, tmp_path / "q.parquet")
    assert read(tmp_path, tmp_path / "q.parquet").texts == {"3": "how to sort"}


def test_a_half_filled_sheet_of_judgments(tmp_path):
    asked = written(tmp_path / "q.txt", "how to sort\ninvert a matrix\ndraw\n")
    rows = "query,document,grade\nhow to sort,d1,1\nhow to sort,d2,\ninvert a matrix,d1,\ndraw,d3,0\n"
    found = read(tmp_path, asked, written(tmp_path / "j.csv", rows))
    assert found.judgments == {"q1": {"d1": 1}}
    assert found.counts["judgments without a grade"] == 2
    assert found.counts["judged queries without a relevant document"] == 1
    with pytest.raises(ValueError, match=r"j.csv, line 6: query 'draw' and document 'd3' have the grade"):
        read(tmp_path, asked, written(tmp_path / "j.csv", rows + "draw,d3,2\n"))


def test_one_text_under_several_ids_is_one_observation(tmp_path):
    asked = written(tmp_path / "q.tsv", "".join(f"q{i}\tquestion {i % 10}\n" for i in range(100)))
    judged = written(tmp_path / "j.txt", "".join(f"q{i} 0 d{i} 1\n" for i in range(100)))
    found = read(tmp_path, asked, judged)
    split(found)
    assert (len(found.splits["test"]), len(found.splits["dev"]), found.splits["train"]) == (6, 4, [])
    assert all(len(found.judgments[id]) == 10 for id in found.splits["test"])


def test_a_passage_stands_for_its_document_and_an_empty_split_is_cut_anew(tmp_path):
    asked = written(tmp_path / "q.txt", "how to sort\n")
    found = read(tmp_path, asked, written(tmp_path / "j.csv", "query,document\nhow to sort,a.md#3\n"))
    found.splits = {"test": ["unknown"]}
    keep_known(found, {"a.md": ""})
    assert found.judgments == {"q1": {"a.md": 1}} and not found.splits


def test_a_file_of_queries_adds_to_those_that_come_with_the_documents(tmp_path):
    (tmp_path / "qrels").mkdir()
    for name, text in (("corpus.jsonl", ""), ("queries.jsonl", '{"_id": "q2", "text": "how to sort"}\n')):
        written(tmp_path / name, text)
    written(tmp_path / "qrels" / "test.tsv", "query-id\tcorpus-id\tscore\nq2\td1\t1\n")
    found = read(tmp_path, written(tmp_path / "own.txt", "invert a matrix\n"), source=tmp_path)
    assert found.texts == {"q2": "how to sort", "q3": "invert a matrix"} and found.unjudged == ["q3"]
    assert found.judgments == {"q2": {"d1": 1}} and found.splits == {"test": ["q2"]}
    assert read(tmp_path, tmp_path / "queries.jsonl", source=tmp_path).texts == {"q2": "how to sort"}
    with pytest.raises(ValueError, match="query id 'q2' has two texts, 'how to sort' and 'draw'"):
        read(tmp_path, written(tmp_path / "own.tsv", "q2\tdraw\n"), source=tmp_path)


@pytest.mark.parametrize(
    ("judged", "given", "expected"),
    [
        (1000, (), {"test": 300, "dev": 200}),
        (5000, (), {"test": 500, "dev": 200}),
        (100, (), {"test": 30, "dev": 20}),
        (80, (), {"test": 53, "dev": 27}),  # 30 would be left to train
        (20, (), {"test": 13, "dev": 7}),
        (1000, ("dev", "test"), {}),
        (1000, ("test",), {"dev": 200}),
        (40, ("test",), {"dev": 40}),
        (40, ("dev",), {"test": 40}),
    ],
)
def test_how_many_are_held_out(judged, given, expected):
    assert sizes(judged, given) == expected


def beir(folder, splits):
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text("")
    pairs = [(name, i) for name in splits for i in range(90)]
    texts = {f"{name}{i}": f"query {i % 7} of {name if i % 7 else 'all'}" for name, i in pairs}
    lines = [json.dumps({"_id": id, "text": text}) for id, text in {**texts, "u": "nobody judged me"}.items()]
    (folder / "queries.jsonl").write_text("\n".join(lines))
    for name in splits:
        rows = [f"{id}\td1\t1\n" for id in texts if id.startswith(name)]
        (folder / "qrels" / f"{name}.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(rows))
    return folder


@pytest.mark.parametrize("splits", [["train"], ["train", "test"], ["train", "dev", "test"]])
def test_no_text_is_on_two_sides(tmp_path, splits, monkeypatch):
    monkeypatch.setattr(queries, "LEAST_TRAIN", 1)
    monkeypatch.setattr(queries, "LEAST_TEST", 2)
    monkeypatch.setattr(queries, "LEAST_DEV", 2)
    found = read(tmp_path, source=beir(tmp_path / "b", splits))
    found.splits["validation"] = found.splits["train"][:2]
    split(found)
    assert found.counts["judged queries of splits but train, dev and test, not used"] == 2
    texts = {name: {found.texts[id] for id in ids} for name, ids in found.splits.items()}
    assert set(texts) == {"train", "dev", "test"} and all(texts.values())
    assert not texts["train"] & (texts["dev"] | texts["test"])
    if len(splits) < 3:
        assert not texts["dev"] & texts["test"]
    assert found.supervision() == "judged" and found.unjudged == ["u"]
    assert found.has_test == ("test" in splits)


@pytest.mark.parametrize("name", ["dev", "test", "dl19"])
def test_judgments_of_one_held_out_split_alone_become_both(tmp_path, name):
    found = read(tmp_path, source=beir(tmp_path / "b", ["test"]))
    found.splits = {name: found.splits["test"]}
    split(found)
    texts = {one: {found.texts[id] for id in ids} for one, ids in found.splits.items()}
    assert {one: len(of) for one, of in texts.items()} == {"train": 0, "dev": 3, "test": 4}
    assert not texts["dev"] & texts["test"]


def test_what_is_held_out_is_read_once(monkeypatch):
    monkeypatch.setattr(Queries, "held_out", property(lambda found: reads.append(found) or set()))
    reads: list[Queries] = []
    assert len(Queries({f"q{i}": f"query {i}" for i in range(9)}).unjudged) == 9 and len(reads) == 1


def test_what_teaches_is_what_there_is_enough_of(tmp_path):
    found = read(tmp_path, written(tmp_path / "q.txt", "".join(f"query number {i}\n" for i in range(60))))
    split(found)
    assert found.supervision() == "unjudged"
    found.texts = dict(list(found.texts.items())[:40])
    assert found.supervision() == "extracted"


def test_a_text_that_is_held_out_teaches_under_no_id(tmp_path):
    asked = written(tmp_path / "q.tsv", "a\thow to sort\nb\tHow to  SORT\nc\tanother\nd\tanother\n")
    found = read(tmp_path, asked, written(tmp_path / "j.txt", "a 0 d1 1\n"))
    split(found)
    assert found.splits["dev"] == ["a"] and found.unjudged == ["d"]


def test_documents_give_titles_and_crops_each_text_once():
    text = "one two three four five six seven"
    titled = ("a", "A good title", text), ("b", "Short", text), ("c", "a good TITLE", "x")
    made, documents = extract_queries([Passage(*each) for each in titled])
    assert made["title-a"] == "A good title" and "title-b" not in made and "title-c" not in made
    assert documents.keys() == made.keys() and documents["crop-a"] == documents["title-a"] == "a"
    assert made["crop-a"] in text and len(made["crop-a"].split()) >= 4


@pytest.fixture
def numbered(tmp_path):
    """A `data:` section whose files number the queries of each split from 0, and have no test judgments."""
    passage = {"title": "t", "text": "x", "passage_id": "d1"}
    for name, count in (("train", 3), ("dev", 2)):
        asked = [
            {"question": f"{name} {n}", "answers": ["x"], "positive_ctxs": [passage]} for n in range(count)
        ]
        written(tmp_path / f"{name}.json", json.dumps(asked))
    written(tmp_path / "test.csv", "test 0\t['x']\ntest 1\t['x']\n")
    written(tmp_path / "wiki.tsv", "id\ttext\ttitle\nd1\tx\tt\n")
    names = ("train.json", "dev.json", "test.csv")
    splits = {name.partition(".")[0]: {"questions": str(tmp_path / name)} for name in names}
    data = {"kind": "dpr", "passages": str(tmp_path / "wiki.tsv"), "splits": splits}
    return written(tmp_path / "data.yaml", json.dumps({"data": data}))


def test_splits_that_number_their_queries_alike_stay_apart(numbered, tmp_path):
    found = read(tmp_path, source=numbered)
    assert found.splits == {"train": ["train:0", "train:1", "train:2"], "dev": ["dev:0", "dev:1"]}
    assert (
        found.texts["dev:1"] == "dev 1" and found.counts["queries with answers, but no judged document"] == 2
    )
    section = json.loads(numbered.read_text())
    train = section["data"]["splits"]["train"]
    section["data"]["splits"] = {"train": train, "dev": train}
    assert read(tmp_path, source=written(numbered, json.dumps(section))).splits["dev"] == ["0", "1", "2"]
