import gzip

import pytest

from pyserini_ance.data.formats.builder import beir_judgments, trec_judgments, tsv_entries


def test_ids_and_blanks_are_kept(tmp_path):
    path = tmp_path / "collection.tsv"
    path.write_text("007\t a text \n7\tanother\n")
    judgments = [(entry.id, entry.fields["text"]) for entry in tsv_entries(path)]
    assert judgments == [("007", " a text "), ("7", "another")]


@pytest.mark.parametrize("text", ["q1 Q0 d1 2\n", "q1\t0\td1\t2\n", "q1 0\td1  2\n"])
def test_trec_judgments_separated_by_tabs_or_blanks(tmp_path, text):
    (tmp_path / "qrels").write_text(text)
    assert [judgment[1:] for judgment in trec_judgments(tmp_path / "qrels")] == [("q1", "d1", 2)]


@pytest.mark.parametrize("header", ["query-id\tcorpus-id\tscore\n", "\n\r\nq\td\tscore\n", ""])
def test_beir_judgments_with_and_without_a_header(tmp_path, header):
    (tmp_path / "qrels").write_text(f"{header}q1\td1\t-1\n")
    assert [judgment[1:] for judgment in beir_judgments(tmp_path / "qrels")] == [("q1", "d1", -1)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "q1 0 d1 1\nq1 0 d2\n",
            "qrels, line 2: 3 columns in 'q1 0 d2'; expected 4 columns separated by blanks",
        ),
        ("q1 0 d1 1.0\n", "qrels, line 1: grade '1.0'; expected a whole number"),
        ("q1 0 d1 1_0\n", "qrels, line 1: grade '1_0'; expected a whole number of at most nine digits"),
        (
            "q1 0 d1 99999999999\n",
            "qrels, line 1: grade '99999999999'; expected a whole number of at most nine digits",
        ),
    ],
)
def test_a_malformed_judgment_is_an_error(tmp_path, text, message):
    (tmp_path / "qrels").write_text(text)
    with pytest.raises(ValueError, match=message):
        list(trec_judgments(tmp_path / "qrels"))


@pytest.mark.parametrize(
    ("name", "count", "first", "last"),
    [
        (
            "dl19-passage",
            43,
            ("156493", "do goldfish grow"),
            ("146187", "difference between a mcdouble and a double cheeseburger"),
        ),
        (
            "dl19-doc",
            43,
            ("156493", "do goldfish grow"),
            ("146187", "difference between a mcdouble and a double cheeseburger"),
        ),
        ("dl20", 200, ("1030303", "who is aziz hashim"), ("132622", "definition of attempted arson")),
        (
            "msmarco-passage.dev-subset",
            6980,
            ("1048585", "what is paula deen's brother"),
            ("1048565", "who plays sebastian michaelis"),
        ),
        (
            "msmarco-doc.dev",
            5193,
            ("174249", "does xpress bet charge to deposit money in your account"),
            ("195199", "glioma meaning"),
        ),
    ],
)
def test_real_topics(shared_data, name, count, first, last):
    judgments = [
        (entry.id, entry.fields["text"])
        for entry in tsv_entries(shared_data / "msmarco-topics-qrels" / f"topics.{name}.txt.gz")
    ]
    assert (len(judgments), judgments[0], judgments[-1]) == (count, first, last)


@pytest.mark.parametrize(
    ("name", "count", "first", "last", "raw"),
    [
        ("dl19-passage", 9260, ("19335", "1017759", 0), ("1133167", "977421", 0), b"19335 Q0 1017759 0\n"),
        ("dl19-doc", 16258, ("19335", "D1035833", 0), ("1133167", "D984590", 0), b"19335 Q0 D1035833 0\n"),
        ("dl20-passage", 11386, ("23849", "1020327", 2), ("1136962", "999215", 0), b"23849 0 1020327 2\n"),
        ("dl20-doc", 9098, ("42255", "D1006124", 0), ("1136962", "D96742", 0), b"42255 0 D1006124 0\n"),
        (
            "msmarco-passage.dev-subset",
            7437,
            ("300674", "7067032", 1),
            ("195199", "8009377", 1),
            b"300674 0 7067032 1\n",
        ),
        ("msmarco-doc.dev", 5193, ("2", "D1650436", 1), ("1102400", "D677570", 1), b"2\t0\tD1650436\t1\r\n"),
    ],
)
def test_real_judgments_in_all_spellings(shared_data, name, count, first, last, raw):
    """0 or Q0, separated by blanks or tabs, with Windows line ends; `raw` is the first line."""
    path = shared_data / "msmarco-topics-qrels" / f"qrels.{name}.txt.gz"
    judgments = [judgment[1:] for judgment in trec_judgments(path)]
    with gzip.open(path) as file:
        assert next(file) == raw
    assert (len(judgments), judgments[0], judgments[-1]) == (count, first, last)
