"""Topics for Pyserini: refused when they could not be read back."""

import json

import pytest

from pyserini_ance.pyserini_bridge.export import write_topics


def test_topics_that_survive_are_tsv(tmp_path):
    assert write_topics([("q1", " What is it?  "), ("10", "two  blanks")], tmp_path).name == "topics.test.tsv"
    assert (tmp_path / "topics.test.tsv").read_text() == "q1\tWhat is it?\n10\ttwo  blanks\n"
    assert not (tmp_path / "topics.test.json").exists()


CHANGED = [("007", "x"), ("²", "x"), ("٣", "x"), ("q", "tab\tinside"), ("q", "two\nlines"), ("q", "\x01x")]


@pytest.mark.parametrize("query", CHANGED)
def test_topics_that_do_not_survive_are_json_too(tmp_path, query):
    assert write_topics([query, ("1", "y")], tmp_path).name == "topics.test.json"
    topics = json.loads((tmp_path / "topics.test.json").read_text())
    assert topics == {query[0]: {"title": query[1]}, "1": {"title": "y"}}
    assert len((tmp_path / "topics.test.tsv").read_text().splitlines()) == 2


def test_query_ids_that_a_run_cannot_carry(tmp_path):
    with pytest.raises(ValueError, match=r"1 query ids .*'a b'"):
        write_topics([("a b", "x")], tmp_path)
    assert not list(tmp_path.iterdir())
