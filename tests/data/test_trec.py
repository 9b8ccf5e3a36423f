import gzip
import random
import re

import numpy as np
import pytest

from pyserini_ance.data import trec
from pyserini_ance.data.formats import text_files
from pyserini_ance.data.trec import (
    PADDING,
    RankingBuilder,
    RepeatedHit,
    read_hits,
    read_qrels,
    read_run,
    write_ranks,
    write_run,
)


def write(path, content: bytes):
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def test_run_is_read_by_query_and_document(tmp_path):
    path = tmp_path / "run.txt"
    path.write_text("q1 Q0 d1 1 2.5 tag\nq1\t0\td2\t2\t-1e-3\ttag\n\n007 Q0 d1 1 7 tag\n")
    assert read_run(path) == {"q1": {"d1": 2.5, "d2": -0.001}, "007": {"d1": 7.0}}


def test_qrels_are_read_plain_and_compressed(tmp_path):
    text = b"\xef\xbb\xbfq1 0 d1 2\r\nq1\tQ0\td2\t-1\r\nq2 0 d1 0\r\n"
    (tmp_path / "qrels.txt").write_bytes(text)
    (tmp_path / "qrels.txt.gz").write_bytes(gzip.compress(text))
    expected = {"q1": {"d1": 2, "d2": -1}, "q2": {"d1": 0}}
    assert read_qrels(tmp_path / "qrels.txt") == read_qrels(str(tmp_path / "qrels.txt.gz")) == expected


@pytest.mark.parametrize(
    "header", ["", "query-id\tcorpus-id\tscore\n", "\n\nq\td\tscore\n"], ids=["bare", "headed", "after empty"]
)
def test_qrels_of_beir_are_read(tmp_path, header):
    path = tmp_path / "test.tsv"
    path.write_text(f"{header}q1\td1\t2\nq1\t0\t0\n007\tscore\t1\n")
    assert read_qrels(path) == {"q1": {"d1": 2, "0": 0}, "007": {"score": 1}}


def test_tabs_and_blanks_may_be_mixed_in_trecs_qrels(tmp_path):
    (tmp_path / "qrels.txt").write_text("q1 0\td1\t1\n")
    assert read_qrels(tmp_path / "qrels.txt") == {"q1": {"d1": 1}}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("q1 0 d2 1", "1 columns in .*; expected 3 columns separated by one tab: query, document, grade"),
        ("q1\td2\tscore", "grade 'score'; expected a whole number"),
        ("q1\td1\t2", "grade 2 for query 'q1' and document 'd1', which line 2 gave 1; expected one grade"),
    ],
)
def test_a_malformed_line_of_beirs_qrels_is_an_error(tmp_path, line, message):
    path = tmp_path / "test.tsv"
    path.write_text(f"query-id\tcorpus-id\tscore\nq1\td1\t1\n{line}\n")
    with pytest.raises(ValueError, match=message) as error:
        read_qrels(path)
    assert str(error.value).startswith(f"{path}, line 3: ")


def test_a_repeated_judgment_is_read_once(tmp_path):
    (tmp_path / "qrels.txt").write_text("q1 0 d1 1\nq1 0 d2 0\nq1 0 d1 1\n")
    assert read_qrels(tmp_path / "qrels.txt") == {"q1": {"d1": 1, "d2": 0}}


def test_a_header_alone_is_an_error(tmp_path):
    (tmp_path / "test.tsv").write_text("query-id\tcorpus-id\tscore\n")
    with pytest.raises(ValueError, match="test.tsv has no lines; expected lines of 3 columns: query"):
        read_qrels(tmp_path / "test.tsv")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("q1 Q0 d2 2 1.5", "5 columns"),
        ("q1 Q0 d2 2 much tag", "'much'; expected a finite number"),
        ("q1 Q0 d2 2 nan tag", "'nan'; expected a finite number"),
        ("q1 Q0 d2 2 inf tag", "'inf'; expected a finite number"),
        ("q1 Q0 d2 2 1e999 tag", "'1e999'; expected a finite number"),
        ("q1 Q0 d2 2 1_0 tag", "'1_0'; expected a finite number"),
        ("q1 Q0 d2 2 \u0661 tag", "expected a finite number"),
        ("q1 Q0 d1 2 1.5 tag", "'d1' again for query 'q1'"),
    ],
)
def test_a_malformed_run_line_is_an_error(tmp_path, line, message):
    path = tmp_path / "run.txt"
    path.write_text(f"q1 Q0 d1 1 2.5 tag\n{line}\n")
    with pytest.raises(ValueError, match=message) as error:
        read_run(path)
    assert str(error.value).startswith(f"{path}, line 2: ")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("q1 d2 1", "3 columns"),
        ("q1 0 d2 1.0", "'1.0'; expected a whole number"),
        ("q1 0 d2 1_0", "'1_0'; expected a whole number of at most nine digits"),
        ("q1 0 d2 99999999999", "'99999999999'; expected a whole number of at most nine digits"),
        ("q1 0 d1 2", "grade 2 for query 'q1' and document 'd1', which line 1 gave 1; expected one grade"),
    ],
)
def test_a_malformed_qrels_line_is_an_error(tmp_path, line, message):
    path = tmp_path / "qrels.txt"
    path.write_text(f"q1 0 d1 1\n{line}\n")
    with pytest.raises(ValueError, match=message) as error:
        read_qrels(path)
    assert str(error.value).startswith(f"{path}, line 2: ")


RUN_PIECES = (
    *(f"q{number} Q0 d{number} {number} {number / 3:.6f} t" for number in range(6)),
    "q1\t0\td7\t2\t-1e-3\ttag  ",
    " q2 Q0 d8 1 7 tag\r",
    "q\u00e9\u2028Q0 d9 1 2.5 \u6a19",
    "",
    "\r",
)
MALFORMED = ("q1 Q0 d2 2 1.5", "q Q0 d 1 2 t extra", "q Q0 d 1 1_0 t", "q Q0 d 1 nan t", "q Q0 \0 1 1 t", " ")


@pytest.mark.parametrize("name", ["run.trec", "run.trec.gz"])
@pytest.mark.parametrize("block", [16, 40, 10_000])
def test_blocks_of_lines_agree_with_line_by_line(tmp_path, monkeypatch, name, block):
    """Any mixture of well-formed, empty and malformed lines: the same hits, and the same error after them."""

    def hits(skip=None):
        found = []
        try:
            found.extend(read_hits(path, skip))
        except ValueError as error:
            return found, str(error)
        return found, None

    rng = random.Random(block)
    monkeypatch.setattr(text_files, "BLOCK_BYTES", block)
    for number in range(60):
        pieces = rng.choices(RUN_PIECES, k=rng.randrange(1, 30)) + rng.choices(MALFORMED, k=number % 2)
        rng.shuffle(pieces)
        path = write(tmp_path / name, ("\n".join(pieces) + rng.choice(["", "\n"])).encode())
        expected = hits(skip=lambda raw: False)  # with `skip`, each line is read by itself
        if expected != ([], None):
            assert hits() == expected
        assert (expected[1] is not None) == (number % 2 == 1)


@pytest.mark.parametrize("content", [b"q1 Q0 d\xff 1 2.5 t", b"\xef\xbb\xbfq1 Q0 d1 1 2.5 t\n"])
def test_bytes_that_are_not_text_are_an_error_behind_a_good_line(tmp_path, content):
    path = write(tmp_path / "run.trec", b"q1 Q0 d0 1 3.5 t\n" + content)
    with pytest.raises(ValueError, match="run.trec, line 2: "):
        read_run(path)


def test_a_run_cut_short_by_compression_names_its_last_line(tmp_path):
    text = "".join(f"q{number} Q0 d{number * 7919 % 10007} 1 {number} t\n" for number in range(9000))
    path = write(tmp_path / "run.trec.gz", text.encode())
    path.write_bytes(path.read_bytes()[:-2000])
    read = []
    with pytest.raises(ValueError, match="damaged gzip file.*download it again") as error:
        read.extend(read_hits(path))
    number = int(re.search("line ([0-9]+)", str(error.value))[1])
    assert read and len(read) < number <= 9000


def test_an_empty_file_is_an_error(tmp_path):
    (tmp_path / "run.txt").write_text("")
    with pytest.raises(
        ValueError, match="has no lines; expected lines of 6 columns: query, Q0, document, rank, score, tag"
    ):
        read_run(tmp_path / "run.txt")


def test_run_is_written_as_pyserini_writes_it(tmp_path):
    path = tmp_path / "run.txt"
    write_run(path, [("q2", "d9", 12.3456789), ("q1", "d1", 1.0), ("q2", "d1", -0.5)], tag="ance")
    assert (
        path.read_text() == "q2 Q0 d9 1 12.345679 ance\nq1 Q0 d1 1 1.000000 ance\nq2 Q0 d1 2 -0.500000 ance\n"
    )
    assert read_run(path) == {"q2": {"d9": 12.345679, "d1": -0.5}, "q1": {"d1": 1.0}}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (("q 1", "d1", 1.0), "id 'q 1'"),
        (("q1", "", 1.0), "id ''"),
        (("q1", "d1", float("nan")), "score nan"),
        (("q1", "\ud83d", 1.0), "run.txt: id .* holds a NUL character or half a surrogate pair; rename it"),
    ],
)
def test_unwritable_rows_leave_no_file(tmp_path, row, message):
    with pytest.raises(ValueError, match=message):
        write_run(tmp_path / "run.txt", [("q0", "d0", 1.0), row], tag="ance")
    assert list(tmp_path.iterdir()) == []


def test_ranks_are_written_without_scores(tmp_path):
    write_ranks(tmp_path / "run.tsv", [("q2", "d9", 12.3), ("q1", "d1", 1.0), ("q2", "d1", -0.5)])
    assert (tmp_path / "run.tsv").read_text() == "q2\td9\t1\nq1\td1\t1\nq2\td1\t2\n"


TOP_K = 3


def build(hits: list[tuple[int, int, float]], **settings) -> RankingBuilder:
    builder = RankingBuilder(4, TOP_K, **settings)
    for number, hit in enumerate(hits, start=1):
        builder.add(*hit, number)
    builder.merge()
    return builder


@pytest.mark.parametrize("block", [1, 7, 64, 1000])
@pytest.mark.parametrize("levels", [3, 10_000])
def test_blocks_agree_with_sorting_all_hits_at_once(monkeypatch, block, levels):
    monkeypatch.setattr(trec, "HITS_PER_BLOCK", block)
    rng = random.Random(levels)
    pairs = [(query, document) for query in (0, 1, 3) for document in range(40)]
    hits = [(*pair, float(rng.randrange(levels))) for pair in rng.sample(pairs, len(pairs))]
    builder = build(hits)
    for query in range(4):
        expected = sorted((hit for hit in hits if hit[0] == query), key=lambda hit: -hit[2])[
            :TOP_K
        ]  # stable, as in a file
        assert builder.rows[query].tolist() == (
            [document for _, document, _ in expected] or [PADDING] * TOP_K
        )
        assert builder.scores[query].tolist() == ([score for *_, score in expected] or [-np.inf] * TOP_K)


@pytest.mark.parametrize("block", [1, 1000])
def test_the_earliest_repeat_is_reported(monkeypatch, block):
    monkeypatch.setattr(trec, "HITS_PER_BLOCK", block)
    hits = [(0, 5, 1.0), (1, 5, 1.0), (0, 6, 2.0), (1, 7, 3.0), (0, 5, 9.0), (1, 5, 4.0)]
    with pytest.raises(RepeatedHit) as error:
        build(hits)
    assert (error.value.number, error.value.query, error.value.document, error.value.score) == (5, 0, 5, 9.0)
    with pytest.raises(RepeatedHit, match="line 4: document 8 again for query 0"):
        build([(0, 5, -1.0), (0, 6, -2.0), (1, 6, -2.0), (0, 8, -2.0)], distinct_scores=True)
    assert build([(0, 5, -1.0), (0, 6, -2.0), (0, 8, -2.0)]).rows[0].tolist() == [5, 6, 8]


def test_fewer_hits_than_top_k_and_none():
    assert build([(2, 9, 0.5)]).rows.tolist() == [
        [PADDING] * 3,
        [PADDING] * 3,
        [9, PADDING, PADDING],
        [PADDING] * 3,
    ]
    assert (build([]).rows == PADDING).all()
