from typing import ClassVar

import numpy as np
import pytest
from helpers.filter_fixture import apply_filters, candidates_of, table_of

from pyserini_ance.negatives.ann import Ann
from pyserini_ance.negatives.filters.base import KNOWN_POSITIVES, filter_masks
from pyserini_ance.negatives.filters.teacher import TeacherFilter
from pyserini_ance.negatives.table import PADDING
from pyserini_ance.negatives.teachers import cross_encoder
from pyserini_ance.negatives.teachers.rankings import RankingTeacher

QUERIES, DOCUMENTS = 6, 30


class Case:
    """A random ranking of documents for queries, or of queries for documents, and a file with most scores."""

    def __init__(self, folder, anchor: str, seed: int = 0):
        rng = np.random.default_rng(seed)
        self.positives = [rng.choice(DOCUMENTS, rng.integers(1, 4), replace=False).tolist() for _ in range(6)]
        pairs = [(query, document) for query in range(QUERIES) for document in range(DOCUMENTS)]
        self.scores = {pair: round(float(rng.normal()), 3) for pair in pairs if rng.random() < 0.9}
        self.file = folder / "scores.trec"
        lines = [f"q{query} Q0 d{row} 1 {score} t\n" for (query, row), score in self.scores.items()]
        self.file.write_text("".join(lines))
        anchors, others = QUERIES, DOCUMENTS
        if anchor == "document":
            anchors, others = len({row for known in self.positives for row in known}), QUERIES
        rows = np.stack([rng.permutation(others)[:20] for _ in range(anchors)])
        rows[0, 3:], rows[1] = PADDING, PADDING
        texts = list(map(str, range(DOCUMENTS)))
        self.candidates = candidates_of(self.positives, rows, anchor=anchor, documents=texts)
        self.candidates.snapshot.cache = folder

    def score(self, anchor: int, candidate: int) -> float | None:
        is_query = self.candidates.anchor_set.anchor == "query"
        return self.scores.get((anchor, candidate) if is_query else (candidate, anchor))

    def known(self, anchor: int) -> list[int]:
        return self.candidates.anchor_set.known_positives.of(anchor).tolist()

    def is_relevant(self, anchor: int, candidate: int, max_score: float | None, margin: float) -> bool:
        score = self.score(anchor, candidate)
        known = [s for row in self.known(anchor) if (s := self.score(anchor, row)) is not None]
        if score is None or (max_score is None and not known):
            return False
        return score > (max(known) - margin * abs(max(known)) if max_score is None else max_score)


@pytest.mark.parametrize("settings", [{"max_score": 0.5}, {"margin": 0.0}, {"margin": 0.3}])
@pytest.mark.parametrize("anchor", ["query", "document"])
@pytest.mark.parametrize("seed", range(3))
def test_it_agrees_with_a_slow_loop(tmp_path, anchor, settings, seed):
    case = Case(tmp_path, anchor, seed)
    found = TeacherFilter(teacher={"kind": "ranking", "file": case.file}, **settings).mask(case.candidates)
    anchors, rows = case.candidates.anchor_set.anchors.tolist(), case.candidates.rows.tolist()
    limit = settings.get("max_score"), settings.get("margin", 0.0)
    lines = zip(anchors, rows, strict=True)
    expected = [[row != PADDING and case.is_relevant(of, row, *limit) for row in line] for of, line in lines]
    assert found.tolist() == expected and found.any()


class Counting(RankingTeacher):
    asked: ClassVar[list[int]] = []

    def score(self, pairs, context):
        self.asked.append(len(pairs))
        return super().score(pairs, context)


class Comparing(Counting):
    compares_candidates: ClassVar[bool] = True


def filter_of(teacher, **settings) -> TeacherFilter:
    plain = TeacherFilter(teacher={"kind": "ranking", "file": teacher.file}, **settings)
    return plain.model_copy(update={"teacher": teacher})


@pytest.mark.parametrize("then", ["drop", "promote"])
@pytest.mark.parametrize("width", [2, 5, 20])
def test_a_table_has_what_is_not_relevant_and_counts_the_others(tmp_path, width, then):
    case = Case(tmp_path, "query")
    rule = filter_of(Counting(file=case.file), max_score=0.5, then=then)
    Counting.asked.clear()
    masks = filter_masks(case.candidates, [rule], width)
    rows, _, dropped = apply_filters(case.candidates, [rule], width)
    expected, relevant, seen = [], [], 0
    for anchor, line in zip(range(QUERIES), case.candidates.rows.tolist(), strict=True):
        kept = []
        for row in line:
            if row == PADDING or row in case.known(anchor) or len(kept) == width:
                continue
            seen += 1
            if case.is_relevant(anchor, row, 0.5, 0):
                relevant.append([anchor, row])
            else:
                kept.append(row)
        expected.append(kept + [PADDING] * (width - len(kept)))
    assert rows.tolist() == expected and relevant
    assert dropped[rule.removal] == len(relevant)
    assert rule.removal == ("promoted" if then == "promote" else "teacher")
    marked = masks[rule.removal] & ~masks[KNOWN_POSITIVES]
    assert [[row, case.candidates.rows[row, column]] for row, column in np.argwhere(marked)] == relevant
    assert sum(Counting.asked) == 2 * seen  # each call asked for the candidates that it needs, and no more


def test_a_teacher_that_compares_candidates_sees_all_of_an_anchor_at_once(tmp_path):
    """Scores of a hybrid are scaled within an anchor: asked in rounds, they would not be comparable."""
    case = Case(tmp_path, "query")
    rule = filter_of(Comparing(file=case.file), max_score=0.5)
    Counting.asked.clear()
    rows, _, _ = apply_filters(case.candidates, [rule], 2)
    pairs = {
        (anchor, row)
        for anchor, line in enumerate(case.candidates.rows.tolist())
        if any(row not in (PADDING, *case.known(anchor)) for row in line)
        for row in [*line, *case.known(anchor)]
        if row != PADDING
    }
    assert Counting.asked == [len(pairs)]
    plain, _, _ = apply_filters(case.candidates, [filter_of(Counting(file=case.file), max_score=0.5)], 2)
    assert rows.tolist() == plain.tolist()


def test_a_source_keeps_what_was_promoted_apart(split_of, snapshot_of, tmp_path):
    """Both filters see what the one before keeps; a removal counts for one of them."""
    scores = tmp_path / "scores.trec"
    scores.write_text("q0 Q0 d2 1 5 t\nq0 Q0 d0 1 9 t\nq1 Q0 d0 1 3 t\nq1 Q0 d4 1 7 t\nq1 Q0 d2 1 4 t\n")
    snapshot = snapshot_of(split_of([1], [4]), [[1, 0], [0, 1]], [[4, 0], [3, 1], [2, 2], [1, 3], [0, 4]])
    snapshot.cache = tmp_path
    asks = {"kind": "teacher", "teacher": {"kind": "ranking", "file": scores}}
    source = Ann(top_k=5, filters=[{**asks, "max_score": 8}, {**asks, "max_score": 3, "then": "promote"}])
    assert source.promotes and not Ann(filters=source.filters[:1]).promotes
    table = table_of(source, snapshot)
    assert table.candidates[:, :4].tolist() == [[3, 4, PADDING, PADDING], [3, 1, 0, PADDING]]
    assert table.promoted.tolist() == [[0, 2], [1, 2]]
    assert table.dropped == {"known positives": 2, "teacher": 1}


def test_a_cross_encoder_whose_files_changed_is_loaded_again(monkeypatch, tmp_path):
    """Its folder may be trained anew while a process that has loaded it goes on."""
    folder = tmp_path / "model"
    folder.mkdir()

    class Model:
        def __init__(self, name, *settings, **more):
            self.value = float((folder / "weights").read_text())

        def logits(self, pairs):
            return np.full(len(pairs), self.value, np.float32)

    cross_encoder.load_model.cache_clear()
    monkeypatch.setattr(cross_encoder.cross_encoder_model, "CrossEncoderModel", Model)
    found = candidates_of([[0], [2]], [[1, 2, 3], [0, 1, PADDING]])
    found.snapshot.cache = tmp_path
    rule = TeacherFilter(teacher={"kind": "cross_encoder", "model": str(folder)}, max_score=0.5)
    for value, is_relevant in ((1, True), (0, False), (1, True)):
        (folder / "weights").write_text(str(value))
        assert rule.mask(found).any() == is_relevant
    cross_encoder.load_model.cache_clear()
