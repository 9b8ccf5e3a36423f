"""Documents as people have them: kinds of files, what is skipped and why, where long ones are cut."""

import errno
import json
import os
import zipfile

import pyarrow as pa
import pyarrow.parquet
import pytest
from datasets import Dataset

from pyserini_ance.adapt import documents
from pyserini_ance.adapt.data import Request
from pyserini_ance.adapt.documents import Passage, Reading, cut, read_passages
from pyserini_ance.data.formats import datasets as hub

GUIDE = """# Install guide

Intro of the guide.

## Linux

Use the package manager.

```
# no heading, but a comment
apt install it
```

## Windows

{long}
"""


def read(source, cuts=True):
    reading = Reading()
    return list(read_passages(str(source), reading, cuts)), reading


def test_a_folder_of_files_is_read_in_the_order_of_names_with_titles_and_sections(tmp_path):
    long = " ".join(f"word{i}" for i in range(150))
    (tmp_path / "b guide.md").write_text(GUIDE.format(long=long))
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "note.txt").write_bytes("Käse und Brötchen schmecken am Morgen.".encode("latin-1"))
    (tmp_path / "page.html").write_text("<html><title>A page</title><body><p>Text of it.</p></body></html>")
    (tmp_path / ".hidden.txt").write_text("secret")
    found, reading = read(tmp_path)
    assert [one.id for one in found] == ["b_guide.md", "page.html", "a/note.txt"]
    assert found[0].title == "Install guide"
    assert found[0].text.startswith("Intro of the guide.\n\nLinux\n\nUse the package manager.")
    assert "apt install it" in found[0].text and long in found[0].text
    assert found[1] == Passage("page.html", "A page", "Text of it.")
    assert "Brötchen" in found[2].text
    assert reading.counts == {"documents": 3, "passages": 3} and not reading.skipped


def test_an_adaptation_among_the_documents_is_none_of_them(tmp_path):
    for name in ("docs/a.md", "docs/adapted/report.txt", "docs/adapted/data/adapt.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}")
    assert [one.id for one in read(tmp_path / "docs")[0]] == ["a.md"]


def test_columns_of_documents_that_are_not_read_are_named(tmp_path):
    (tmp_path / "faq.csv").write_text("id,question,answer,votes\n1,How do I sort?,By sorted().,3\n")
    (tmp_path / "more.jsonl").write_text('{"title": "A", "abstract": "lost", "body": "text"}\n')
    found, reading = read(tmp_path)
    assert found[0] == Passage("1", "How do I sort?", "By sorted().")
    assert reading.as_text() == "2 documents, 2 passages, 2 columns not read (abstract, votes)"


def test_files_that_are_no_documents_are_counted_and_named(tmp_path, monkeypatch):
    monkeypatch.setattr(documents, "LARGEST_BYTES", 1 << 20)
    (tmp_path / "good.txt").write_text("A good text.")
    (tmp_path / "broken.pdf").write_bytes(b"%PDF-1.4 and then nothing")
    (tmp_path / "notepad.txt").write_bytes("Straße, on Windows".encode("utf-16"))
    (tmp_path / "utf8.txt").write_bytes("A mark before it".encode("utf-8-sig"))
    (tmp_path / "half.txt").write_bytes("Cut short".encode("utf-16")[:-1])
    (tmp_path / "page.htm").write_bytes("<title>A</title><body>Größe".encode("utf-16"))
    (tmp_path / "binary.txt").write_bytes(b"\0\1\2" * 100)
    (tmp_path / "image.png").write_bytes(b"\x89PNG")
    (tmp_path / "dump.txt").write_bytes(b"x" * (2 << 20))
    (tmp_path / "empty.md").write_text(" \n")
    (tmp_path / "circle").symlink_to(tmp_path)
    (tmp_path / "gone.md").symlink_to(tmp_path / "gone.md")
    (tmp_path / "closed").mkdir()
    list_folder = os.scandir

    def scandir(top):
        if str(top).endswith("closed"):
            raise PermissionError(errno.EACCES, "Permission denied", top)
        return list_folder(top)

    monkeypatch.setattr(os, "scandir", scandir)
    with open(os.fsencode(tmp_path) + b"/caf\xe9.txt", "w") as file:
        file.write("A file whose name is Latin-1.")
    found, reading = read(tmp_path)
    texts = ["A file whose name is Latin-1.", "A good text.", "Straße, on Windows", "Größe"]
    assert [one.text for one in found] == [*texts, "A mark before it"]
    assert found[0].id == "caf\\xe9.txt"
    assert reading.counts["files skipped"] == 8 and reading.counts["empty"] == 1
    skipped = {"broken.pdf", "binary.txt", "half.txt", "image.png", "dump.txt", "circle", "gone.md", "closed"}
    assert reading.skipped.keys() == skipped and reading.skipped["circle"].startswith("a link to a folder")
    assert reading.skipped["dump.txt"] == "2 MiB; split it, or write its records as .jsonl"
    assert "image.png: no document: .png" in reading.as_text()


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("latin-1", "Größe für Anfänger. This module defines a server, and what it needs. " * 9),
        ("cp1252", "La demande doit être déposée auprès du chef \u2013 même en été."),
        ("latin-1", "Instalación rápida de la aplicación en español"),
        ("cp1250", "Wniosek o urlop należy złożyć najpóźniej tydzień przed nim. Zażółć gęślą jaźń. " * 5),
        ("cp1251", "Заявление на отпуск подается начальнику отдела за неделю. " * 5),
        ("cp932", "休暇の申請は一週間前までに上司に提出してください。" * 5),
    ],
)
def test_texts_in_old_encodings(tmp_path, encoding, text):
    (tmp_path / "a.txt").write_bytes(text.encode(encoding))
    (tmp_path / "b.html").write_bytes(f"<html><body><p>{text}</p></body></html>".encode(encoding))
    assert [one.text.strip() for one in read(tmp_path, cuts=False)[0]] == [text.strip()] * 2


def test_the_encoding_that_a_page_declares_counts(tmp_path):
    page = '<html><head><meta charset="cp1252"></head><body><p>Größe „und“ Preis</p></body></html>'
    (tmp_path / "a.html").write_bytes(page.encode("cp1252"))
    (tmp_path / "b.html").write_bytes(page.replace("cp1252", "utf-16").encode("utf-16"))
    assert [one.text for one in read(tmp_path, cuts=False)[0]] == ["Größe „und“ Preis"] * 2


def test_a_count_agrees_with_its_noun():
    shown = [documents.counted(count, "queries with texts") for count in (0, 1, 2_000)]
    assert shown == ["0 queries with texts", "1 query with texts", "2,000 queries with texts"]


def test_records_among_files_and_files_that_are_none_of_the_documents(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n{"text": "two"}\n')
    (tmp_path / "package.json").write_text('{\n "name": "x"}')
    (tmp_path / "log.csv").write_text("query\nhow to sort\n")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a.txt").write_text("ours")
    (tmp_path / "broken").symlink_to(tmp_path / "nowhere")
    reading = Reading()
    skipped = {tmp_path / "out", tmp_path / "log.csv"}
    found = list(read_passages(str(tmp_path), reading, cuts=True, skipped=skipped))
    assert [one.id for one in found] == ["a.jsonl:1", "a.jsonl:2"]
    assert list(reading.skipped) == ["broken", "package.json"]


def test_pdf_and_docx_are_read(tmp_path):
    import matplotlib.pyplot as plt

    with plt.rc_context({"pdf.fonttype": 42}):
        figure = plt.figure()
        figure.text(0.1, 0.5, "Matrices have inverses")
        figure.savefig(tmp_path / "a.pdf")
        plt.close(figure)
    body = '<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"><w:body><w:p><w:r>'
    body += "<w:t>Sorted arrays are searched fast</w:t></w:r></w:p></w:body></w:document>"
    kind = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
    types = '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"><Override '
    types += f'PartName="/word/document.xml" ContentType="{kind}"/></Types>'
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument"
    links = '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
    links += f'<Relationship Id="rId1" Type="{office}" Target="word/document.xml"/></Relationships>'
    with zipfile.ZipFile(tmp_path / "b.docx", "w") as file:
        parts = {"[Content_Types].xml": types, "_rels/.rels": links, "word/document.xml": body}
        for name, text in parts.items():
            file.writestr(name, text)
    found, reading = read(tmp_path)
    assert not reading.skipped
    assert "Matrices have inverses" in found[0].text and "Sorted arrays are searched fast" in found[1].text


def records(count=1000):
    return [{"_id": f"d{i}", "title": f"Title {i}", "text": f"The text number {i}."} for i in range(count)]


def table(path, name, separator):
    rows = [separator.join(one.values()) for one in records()]
    (path / name).write_text("\n".join([separator.join(["doc-id", "Title", "Body"]), *rows]))
    return path / name


def section_of_a_recipe(path):
    (path / "data.yaml").write_text(f"data: {{kind: beir, folder: {beir(path)}, splits: {{}}}}")
    return path / "data.yaml"


def parquet(path):
    table = pa.Table.from_pylist([{**one, "n": 1.5} for one in records()])
    pyarrow.parquet.write_table(table, path / "a.parquet")
    return path / "a.parquet"


def jsonl(path):
    (path / "a.jsonl").write_text("\n".join(map(json.dumps, records())))
    return path / "a.jsonl"


def beir(path):
    (path / "beir").mkdir()
    return jsonl(path).rename(path / "beir" / "corpus.jsonl").parent


SOURCES = {"beir": beir, "jsonl": jsonl, "parquet": parquet, "yaml": section_of_a_recipe}
SOURCES["csv"] = lambda path: table(path, "a.csv", ",")
SOURCES["tsv"] = lambda path: table(path, "a.tsv", "\t")


@pytest.mark.parametrize("kind", SOURCES)
def test_a_thousand_documents_of_each_format(tmp_path, kind):
    found, reading = read(SOURCES[kind](tmp_path), cuts=False)
    assert found == [Passage(*one.values()) for one in records()]
    unread = {"columns not read (n)": 1} if kind == "parquet" else {}
    assert reading.counts == {"documents": 1000, "kept whole": 1000} | unread


def test_a_damaged_parquet_file_is_named(tmp_path):
    path = parquet(tmp_path)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ValueError, match=r"a\.parquet, line 1: a row that cannot be read \(Parquet magic"):
        read(path)


def test_files_that_a_section_of_a_recipe_names_decide_what_it_is_made_of(tmp_path, monkeypatch):
    wanted = Request(str(section_of_a_recipe(tmp_path)), tmp_path / "out", "model")
    before = wanted.identity()
    (tmp_path / "beir" / "corpus.jsonl").write_text('{"_id": "another", "text": "A text that came later."}')
    assert {name for name, of in wanted.identity().items() if of != before[name]} == {"files of documents"}
    monkeypatch.setattr("pyserini_ance.data.formats.docstrings.Docstrings.files", None)
    (tmp_path / "data.yaml").write_text("{kind: docstrings}")
    assert wanted.identity()["files of documents"] != before["files of documents"]


def test_records_without_an_id_have_their_number_and_need_a_text(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"contents": "one text"}\n{"contents": "another"}\n')
    assert [one.id for one in read(path)[0]] == ["1", "2"]
    path.write_text('{"id": 1, "words": "one text"}\n')
    with pytest.raises(ValueError, match=r"a.jsonl, line 1: columns 'id, words'; expected a column of text"):
        read(path)


def test_a_data_set_on_the_hub(monkeypatch):
    tables = {"corpus": [{"_id": "d1", "title": "T", "text": "x"}], "queries": [{"_id": "q", "text": "y"}]}
    monkeypatch.setattr(hub, "_load", lambda table, path: Dataset.from_list(tables[table.name]))
    assert read("BeIR/scifact")[0] == [Passage("d1", "T", "x")]


def test_texts_and_ids_become_what_other_files_can_hold(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('id,title,text\ndoc 1,Only a title,\ndoc\t2,,"a ""text"" of\ntwo lines"\n')
    found = read(path)[0]
    assert found == [Passage("doc_1", "Only a title", ""), Passage("doc_2", "", 'a "text" of\ntwo lines')]
    (tmp_path / "a.jsonl").write_text('{"id": 7, "text": "a NUL\\u0000 byte", "title": null}')
    assert read(tmp_path / "a.jsonl")[0] == [Passage("7", "", "a NUL  byte")]


def test_a_source_that_is_not_there_is_named(monkeypatch, tmp_path):
    with pytest.raises(FileNotFoundError, match="no file or folder nowhere"):
        read("nowhere")
    monkeypatch.setattr(hub, "_load", lambda *_: int("none"))
    with pytest.raises(ValueError, match="no file or folder no/where .*, nor such a data set .*: .*none"):
        read("no/where")
    monkeypatch.chdir(tmp_path.parent)
    with pytest.raises(FileNotFoundError, match="no file or folder .*/nowhere"):
        read(f"{tmp_path.name}/nowhere")


def test_repeats_are_set_aside_unless_judgments_may_name_them(tmp_path):
    base = [f"word{i}" for i in range(120)]
    texts = [" ".join(base), " ".join(base).upper(), " ".join([*base[:-1], "other"]), "another text"]
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(json.dumps({"id": str(i), "text": text}) for i, text in enumerate(texts)))
    found, reading = read(path)
    assert [one.id for one in found] == ["0", "3"]
    counted = "1 repeated passage left out, 1 nearly repeated passage left out"
    assert f"{counted}\n  1: repeated, as in 0\n  2: nearly repeated, as in 0" in reading.as_text()
    assert len(read(path, cuts=False)[0]) == 4


def test_of_files_with_one_text_the_copies_are_left_out(tmp_path):
    (tmp_path / "a").mkdir()
    for name in ("a/x.md", "copy of x.md", "x (1).md"):
        (tmp_path / name).write_text("# The title #\nA text.\n```\n# a comment\n```\n")
    (tmp_path / "comment.md").write_text("A text.\n```\n# a comment\n```\n# Late\n")
    found, reading = read(tmp_path)
    assert [one.id for one in found] == ["comment.md", "a/x.md"]
    assert found[1].title == "The title" and found[0].title == "Late"
    assert reading.repeats.keys() == {"copy_of_x.md", "x_(1).md"}


@pytest.mark.parametrize(
    ("text", "title", "rest"),
    [
        ("---\r\ntitle: 'Off: all'\r\ntags: [a, b]\r\n---\r\n# No\nA text.", "Off: all", "# No\nA text."),
        ('+++\ndate = 1\ntitle = "Days off"\n+++\nA text.', "Days off", "A text."),
        ("---\ntags: a\n---\n# C#\nA text.", "C#", "# C#\nA text."),
        ("\ufeff---\ntitle: ''\n---\n# C#\nA text.", "C#", "# C#\nA text."),
        ("---\ntitle: >-\n  Days\n  off\n---\nA text.", "Days off", "A text."),
        ("+++\n[author]\ntitle = 'Dr'\n+++\nA text.", "a", "A text."),
        ("---\nNote: read.\n\n# Setup\n\nAll of it.\n---\nA text.", "Setup", None),
        ("---\nA text.\n\n---\nMore.", "a", None),
        ("~~~bash\n# install it\n~~~\nReal\n====\nA text.", "Real", None),
        ("A text. It is # 1\n## --verbose", "a", None),
    ],
)
def test_the_title_of_markdown_is_in_its_front_matter_or_its_first_heading(tmp_path, text, title, rest):
    (tmp_path / "a.md").write_bytes(text.encode())
    [found] = read(tmp_path, cuts=False)[0]
    assert found == Passage("a.md", title, text if rest is None else rest)


def test_headings_keep_their_characters():
    names = ["C#", "--verbose", "a = b ="]
    text = "\n".join(f"## {name}\n{'word ' * 50}" for name in names)
    assert [passage.title for passage in cut(Passage("d", "", text))] == names


def test_a_cut_loses_no_word_and_keeps_passages_short():
    sentences = [" ".join(f"S{i}w{j}" for j in range(30)) + "." for i in range(20)]
    endless = " ".join(f"w{i}" for i in range(450))
    text = "\n\n".join(["Short one.", " ".join(sentences), endless, "Last."])
    passages = cut(Passage("d", "Title", text))
    assert " ".join(one.text for one in passages).split() == text.split()
    assert all(len(one.text.split()) <= documents.WORDS for one in passages)
    assert [one.id for one in passages] == [f"d#{i}" for i in range(1, len(passages) + 1)]
    ends = [one.text.split()[-1] for one in passages[:3]]
    assert all(end.endswith(".") for end in ends)  # between sentences, where there are some


def test_no_heading_is_lost():
    text = "# Questions\n## How?\nSo.\n## Why?\n\nBecause.\n\n```\n# a comment\n```\n### Last"
    [passage] = cut(Passage("d", "FAQ", text))
    found = f"{passage.title}\n{passage.text}"
    for line in ("Questions", "How?", "So.", "Why?", "Because.", "# a comment", "Last"):
        assert found.count(line) == (1 if line != "Questions" else 2), line


def test_sections_begin_passages_with_their_heading():
    parts = [" ".join(f"{name}{i}" for i in range(60)) for name in ("a", "b")]
    passages = cut(Passage("d", "Title", f"# One\n\n{parts[0]}\n\n# Two\n\n{parts[1]}"))
    assert passages == [Passage("d#1", "Title: One", parts[0]), Passage("d#2", "Title: Two", parts[1])]
