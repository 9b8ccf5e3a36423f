import pytest

from pyserini_ance.data.formats.tables import beir_judgments, trec_judgments, tsv_entries


def test_texts_keep_their_ids_and_blanks(tmp_path):
    path = tmp_path / "collection.tsv"
    path.write_text("007\t a text \n7\tanother\n")
    found = [(entry.id, entry.fields["text"]) for entry in tsv_entries(path)]
    assert found == [("007", " a text "), ("7", "another")]


@pytest.mark.parametrize("text", ["q1 Q0 d1 2\n", "q1\t0\td1\t2\n", "q1 0\td1  2\n"])
def test_trec_judgments_at_tabs_or_blanks(tmp_path, text):
    (tmp_path / "qrels").write_text(text)
    assert [judgment[1:] for judgment in trec_judgments(tmp_path / "qrels")] == [("q1", "d1", 2)]


@pytest.mark.parametrize("header", ["query-id\tcorpus-id\tscore\n", "q\td\tscore\n", ""])
def test_beir_judgments_with_and_without_a_header(tmp_path, header):
    (tmp_path / "qrels").write_text(f"{header}q1\td1\t-1\n")
    assert [judgment[1:] for judgment in beir_judgments(tmp_path / "qrels")] == [("q1", "d1", -1)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("q1 0 d1 1\nq1 0 d2\n", "qrels, line 2: 3 columns in 'q1 0 d2'; expected 4 columns separated by blanks"),
        ("q1 0 d1 1.0\n", "qrels, line 1: grade '1.0'; expected a whole number"),
        ("q1 0 d1 1_0\n", "qrels, line 1: grade '1_0'; expected a whole number of at most nine digits"),
        ("q1 0 d1 99999999999\n", "qrels, line 1: grade '99999999999'; expected a whole number of at most nine digits"),
    ],
)
def test_a_bad_judgment_is_named(tmp_path, text, message):
    (tmp_path / "qrels").write_text(text)
    with pytest.raises(ValueError, match=message):
        list(trec_judgments(tmp_path / "qrels"))
