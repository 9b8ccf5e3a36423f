import gzip
import os
from pathlib import Path

import numpy as np
import pytest

from pyserini_ance.data.trec import best_first, read_hits, read_qrels, read_run, write_run

WHOLE = "expected a whole number of at most nine digits"
NO_SCORES, NO_GRADES = ("nan", "inf", "1e999", "1_0", "\u0661"), ("1.5", "1_0", "99999999999")
RUN, QRELS, BEIR = b"q1 Q0 d1 1 2.5 t\n", b"q1 0 d1 1\n", b"q1\td1\t1\n"


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


@pytest.mark.parametrize("name", ["run.txt", "run.txt.gz"])
def test_run_is_read_by_query_and_document(tmp_path, name):
    """Columns are separated by any blanks, also by two; lines end as on Windows, or are empty."""
    text = "q1 Q0 d1 1 2.5 tag\r\nq1\t0\td2\t2\t-1e-3\ttag\n\n007  Q0  d1  1  7  tag \n"
    path = write(tmp_path / name, text.encode())
    assert read_run(path) == {"q1": {"d1": 2.5, "d2": -0.001}, "007": {"d1": 7.0}}
    assert list(read_hits(path))[-1] == (4, "007", "d1", 7.0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"\xef\xbb\xbfq1 0 d1 2\r\nq1\tQ0 d2\t-1\r\nq1 0 d1 2\n", {"q1": {"d1": 2, "d2": -1}}),
        (b"q1\td1\t2.0\nq1\t0\t0.\n007\tscore\t1\n", {"q1": {"d1": 2, "0": 0}, "007": {"score": 1}}),
        *(
            (f"\n\n{header}\nq1\td1\t2\n".encode(), {"q1": {"d1": 2}})
            for header in ("q\td\tscore", "Query ID\tdoc_id\tRelevance", '"query-id"\t"corpus-id"\t"label"')
        ),
        (b"corpus-id\tquery-id\trel\n1\t3\t2\n", {"3": {"1": 2}}),
        (b"grade\tcorpus-id\tquery-id\n2\t1\t3\n", {"3": {"1": 2}}),
        (b"query\t0\t1\nscore\t0\t1\n", {"query": {"0": 1}, "score": {"0": 1}}),
    ],
)
def test_qrels_are_read(tmp_path, text, expected):
    assert read_qrels(write(tmp_path / "qrels.txt", text)) == expected
    assert read_qrels(str(write(tmp_path / "qrels.txt.gz", text))) == expected


def test_real_qrels_agree_with_splitting_each_line(shared_data):
    paths = [path for path in shared_data.rglob("*qrel*") if path.is_file()]
    paths += shared_data.rglob("qrels/*")
    assert len(paths) > 10
    for path in paths:
        raw = path.read_bytes()
        lines = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode().splitlines()
        rows = {(row[0], row[-2], int(row[-1])) for row in map(str.split, lines) if row[-1] != "score"}
        read = read_qrels(path)
        assert {(query, *judged) for query, grades in read.items() for judged in grades.items()} == rows


@pytest.mark.parametrize(
    ("read", "text", "fragments"),
    [
        (read_run, RUN + b"q1 Q0 d2 2 1.5", ["line 2: 5 columns", "6 columns separated by blanks or tabs"]),
        *((read_run, RUN + f"q1 Q0 d2 2 {one} t".encode(), [f"line 2: score {one!r}"]) for one in NO_SCORES),
        (read_run, RUN + b"q1 Q0 d1 2 1.5 t", ["line 2: document 'd1' again for query 'q1'"]),
        (read_run, b"q1 d1 1\nq2 d1 1\nq1 d2 1\n", ["line 3: rank 1 again for query 'q1'"]),
        (read_run, b"", ["has no lines; expected lines of 6 columns: query, Q0, document, rank, score, tag"]),
        *((read_qrels, QRELS + f"q1 0 d2 {one}".encode(), [f"2: grade {one!r}", WHOLE]) for one in NO_GRADES),
        (read_qrels, QRELS + b"q1 0 d1 2", ["line 2: grade 2 for query 'q1' and document 'd1'", "1 gave 1"]),
        *(
            (read_qrels, header + b"\n" + BEIR, ["is a header; expected the names query-id, corpus-id and"])
            for header in (b"mine\tcorpus-id\tscore", b"score\tquery-id\tbody_of")
        ),
        (read_qrels, b"query\tdocument\trank\n" + BEIR, ["line 1", "is a header; expected", "delete the"]),
        (read_qrels, b"qid iter docno rel\n" + QRELS, ["line 1: 'qid iter docno rel' is a header", "delete"]),
        (read_qrels, QRELS + b"query 0 document grade\n", ["line 2: grade 'grade'", WHOLE]),
        (read_qrels, b"q1 0 d1 1\rq2 0 d1 1\r", ["line 1: 8 columns", "as on old Macs"]),
        (read_run, b"qid Q0 docid rank score tag\n" + RUN, ["1: 'qid Q0 docid rank score tag' is a head"]),
        (read_run, b"query\tdocument\trank\nq1\td1\t1\n", ["line 1", "is a header"]),
        (read_qrels, b"query-id corpus-id score\nq1 d1 1\n", ["a header", "or pass a file of this layout"]),
        (read_qrels, BEIR + b"q1 0 d2 1", ["line 2: 1 columns", "3 columns separated by one tab"]),
    ],
)
def test_a_malformed_file_is_an_error(tmp_path, read, text, fragments):
    path = write(tmp_path / "file.txt", text)
    with pytest.raises(ValueError, match="file.txt") as error:
        read(path)
    assert all(fragment in str(error.value) for fragment in fragments), error.value


@pytest.mark.parametrize("read", [read_run, read_qrels])
def test_a_pipe_is_an_error_since_its_first_line_is_read_twice(read):
    reading, writing = os.pipe()
    os.write(writing, RUN if read is read_run else QRELS)
    os.close(writing)
    with os.fdopen(reading), pytest.raises(OSError, match=f"/dev/fd/{reading} is a pipe; expected a file"):
        read(Path(f"/dev/fd/{reading}"))


def test_runs_are_written_as_pyserini_writes_them(tmp_path):
    rows = [("q2", "d9", 12.3456789), ("q1", "d1", 1.0), ("q2", "d1", -0.5)]
    path = tmp_path / "run.txt"
    write_run(path, rows, tag="ance")
    assert path.read_text() == "q2 Q0 d9 1 12.345679 ance\nq1 Q0 d1 1 1.0 ance\nq2 Q0 d1 2 -0.5 ance\n"
    assert read_run(path) == {"q2": {"d9": 12.345679, "d1": -0.5}, "q1": {"d1": 1.0}}


@pytest.mark.parametrize("scale", [1e-30, 1e-7, 1, 700, 1e30])
def test_neighbouring_scores_stay_apart_in_a_run(tmp_path, scale):
    scores = [np.float32(scale)]
    for _ in range(20):
        scores.append(np.nextafter(scores[-1], np.float32(0)))
    write_run(tmp_path / "run", [("q", f"d{rank}", float(score)) for rank, score in enumerate(scores)], "t")
    read = read_run(tmp_path / "run")["q"]
    assert best_first(read) == list(read) and [np.float32(score) for score in read.values()] == scores


@pytest.mark.parametrize("score", [float("nan"), 1e39])
def test_a_score_that_is_not_a_number_leaves_no_file(tmp_path, score):
    message = rf"run.txt: score {score} of document 'd1' for query 'q1'".replace("+", r"\+")
    with pytest.raises(ValueError, match=message):
        write_run(tmp_path / "run.txt", [("q0", "d0", 1.0), ("q1", "d1", score)], tag="ance")
    assert list(tmp_path.iterdir()) == []
