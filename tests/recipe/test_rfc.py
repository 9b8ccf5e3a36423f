"""recipes/rfc/fetch.py on RFCs of this file; apt and dpkg-deb are stand-ins on PATH."""

import importlib.util
import json
from pathlib import Path

import pytest

from pyserini_ance.data.formats.beir import Beir
from pyserini_ance.recipe.load import SHIPPED

SPEC = importlib.util.spec_from_file_location("fetch", SHIPPED / "rfc" / "fetch.py")
fetch = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(fetch)

RFC = """Network Working Group                                            A. Author
Request for Comments: {number}

Abstract

   This goes, with all that comes before the first heading.

Table of Contents

   1. Introduction ....................................................1
   2. Data . . . . . . . . . . . . . . . . . . . . . . . . . . . . . . 2

1.  Introduction

   Protocol {number} moves data\0grams between
   two hosts. {words}





Author                       Standards Track                    [Page 1]
\f
RFC {number}                      A Protocol                     June 1999


   After the page break.

2.1.  Data Formats

   +----+ a figure is no sentence, and a passage as any other is here

3 References

   [1] A. Other

Author's Address

   A street
"""


def words(number: int) -> str:
    return " ".join(f"word-{number}-{n}" for n in range(61))


@pytest.fixture
def packages(tmp_path) -> Path:
    folder = tmp_path / "packages"
    folder.mkdir()
    for number in range(1, 60):
        (folder / f"rfc{number}.txt").write_text(RFC.format(number=number, words=words(number)))
        (folder / f"rfc{number}.json").write_text(json.dumps({"title": f"Title {number}"}))
    return folder


def test_a_section_is_cut_after_its_first_sentence_and_pages_join(packages):
    introduction, formats, *_ = fetch.sections(packages)
    assert introduction.title == "Title 1 - Introduction"
    assert introduction.sentence == "Protocol 1 moves datagrams between two hosts."
    assert introduction.text == f"{words(1)} After the page break."
    assert (formats.title, formats.sentence) == ("Title 1 - Data Formats", "")
    assert [len(one.split()) for one in fetch.passages(introduction, True)] == [32, 33]
    assert fetch.passages(introduction, False)[0].startswith(introduction.sentence)
    assert len([*fetch.sections(packages)]) == 2 * 59


def made(packages: Path, folder: Path, size: int, **sizes: int) -> list[str]:
    fetch.make(packages, folder, size, sizes or {"dev": 1, "test": 2, "train": 5})
    return (folder / "corpus.jsonl").read_text().splitlines()


def test_smaller_collections_begin_larger_ones_and_have_the_same_queries(packages, tmp_path):
    small, large = made(packages, tmp_path / "20", 20), made(packages, tmp_path / "90", 90)
    assert (len(small), len(large), small) == (20, 90, large[:20])
    for name in ("queries.jsonl", "qrels/dev.tsv", "qrels/test.tsv", "qrels/train.tsv"):
        assert (tmp_path / "20" / name).read_bytes() == (tmp_path / "90" / name).read_bytes()


def test_queries_are_in_no_document_and_no_rfc_is_in_two_splits(packages, tmp_path):
    lines = made(packages, tmp_path / "beir", 100)
    assert len({json.loads(line)["text"] for line in lines}) == 100  # the figure is in every RFC
    splits = Beir(folder=tmp_path / "beir").raw_data().splits
    numbers = {name: {one.query.split("-")[1] for one in qrels} for name, (_, qrels) in splits.items()}
    assert [len(numbers[name]) for name in ("dev", "test", "train")] == [1, 2, 5]
    assert len(set.union(*numbers.values())) == 8
    queries = map(json.loads, (tmp_path / "beir" / "queries.jsonl").read_text().splitlines())
    assert not any(query["text"] in line for query in queries for line in lines)


def test_a_sentence_of_two_sections_is_no_query(packages):
    (packages / "rfc60.txt").write_text(RFC.format(number=1, words=words(1)).replace("between", "BETWEEN"))
    chosen = fetch.asking(list(fetch.sections(packages)), {"train": 100, "dev": 100, "test": 100}, {})
    asked = {one.id for part in chosen.values() for one in part}
    assert asked == {f"rfc{number}-0" for number in range(2, 60)}


def test_an_rfc_is_in_the_split_of_those_that_it_obsoletes(packages):
    for number, older in {30: ["RFC20", "RFC21"], 40: ["RFC30"], 41: ["RFC21"]}.items():
        (packages / f"rfc{number}.json").write_text(json.dumps({"title": "T", "obsoletes": older}))
    family_of = fetch.families(packages)
    assert family_of.keys() == {"rfc20", "rfc30", "rfc40", "rfc41"} and set(family_of.values()) == {"rfc21"}
    chosen = fetch.asking(list(fetch.sections(packages)), {"train": 99, "dev": 99, "test": 99}, family_of)
    ids = {split: {one.id for one in part} for split, part in chosen.items()}
    of_family = {f"rfc{number}-0" for number in (20, 21, 30, 40, 41)}
    assert [split for split in ids if ids[split] & of_family] == [fetch.split_of("rfc21")]


def test_a_relevant_passage_that_another_section_goes_on_with_stays(packages, tmp_path):
    second = words(1).split()[32:]  # rfc1 goes on with what answers the query of rfc60
    (packages / "rfc60.txt").write_text(RFC.format(number=60, words=" ".join(second)))
    lines = made(packages, tmp_path / "beir", 60, train=100, dev=100, test=100)
    assert {json.loads(line)["_id"] for line in lines[:60]} == {f"rfc{number}-0-0" for number in range(1, 61)}


def test_too_few_passages_are_refused(packages, tmp_path):
    with pytest.raises(SystemExit, match=r"--passages 1,000: the packages have 119 different passages"):
        made(packages, tmp_path / "beir", 1000)


def program(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


def test_packages_are_fetched_and_unpacked_once(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    program(tmp_path, "apt-get", 'echo "$2" >> ../asked; touch "$2_1_all.deb"')
    program(tmp_path, "dpkg-deb", 'mkdir "$3"; touch "$3/rfc1.txt"')
    fetch.unpack(tmp_path / "packages")
    fetch.unpack(tmp_path / "packages")
    assert (tmp_path / "asked").read_text().split() == list(fetch.PACKAGES)
    assert {path.name for path in (tmp_path / "packages").iterdir()} == set(fetch.PACKAGES)


def test_without_the_component_the_cure_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    program(tmp_path, "apt-get", "echo E: Unable to locate package >&2; exit 100")
    with pytest.raises(SystemExit, match=r"doc-rfc-std: E: Unable.*\n.*add `non-free` to the components"):
        fetch.unpack(tmp_path / "packages")
