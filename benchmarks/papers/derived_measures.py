"""Measures of the papers' tables that results tables lack, from what a run directory keeps, and from the
folders of `rerank` and `answer` about its rankings.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.papers.measured import DEPTHS, MeasuredRow, SplitMeasure
from pyserini_ance.data.trec import read_qrels, read_run
from pyserini_ance.evaluation.metrics import LATENCY, holes, means, overlap
from pyserini_ance.evaluation.tables import BM25, last_stage, read_results
from pyserini_ance.recipe.published_figures import MILLISECONDS, Section, section_of
from pyserini_ance.reports.forgetting import refresh_intervals
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import read_json, sha256_file

NOT_TIMED = "search not timed"  # `rerank --time-first-stage N` times it
FIRST_STAGE = "first stage"  # the row of a folder of `rerank` before reranking
DOWNSTREAM = ("about.json", "measures.json")  # files of a finished folder of `rerank` or `answer`


@dataclass(frozen=True)
class Derivation:
    """Derives measures of a run from its files; `rows` are its measured rows of results tables.

    `wanted` are the measures that are computed; those that files already hold are always read. `notes`
    collects a line for each measure that a run cannot have.
    """

    run: RunDir
    rows: Collection[MeasuredRow]
    wanted: Collection[SplitMeasure]
    notes: list[str]

    def all(self, folders: Mapping[Path, list[Path]]) -> Iterator[MeasuredRow]:
        """The derived rows; `folders` are those of `rerank` and `answer` by ranking."""
        last = last_stage(read_results(self.run.folder)["rows"])["row"]
        for row in self.rows:
            name = last if row.config_hash else row.recipe
            yield from self._judged(row, name)
            yield from self._downstream(row, name, folders)
            if row.config_hash and any(section_of(name) is Section.FORGETTING for _, name in self.wanted):
                yield from self._forgetting(row)

    def _judged(self, row: MeasuredRow, name: str) -> Iterator[MeasuredRow]:
        """Hole rates, and the overlap with BM25's ranking, of the row's rankings of the test splits."""
        figures: dict[SplitMeasure, float] = {}
        absent: dict[SplitMeasure, str] = {}
        for split, measure in self.wanted:
            ranking, qrels = self.run.ranking(name, split), self.run.qrels(split)
            if section_of(measure) is not Section.JUDGED or not (ranking.exists() and qrels.exists()):
                continue
            kind, cutoff = measure.split("@")
            if kind == "Hole":
                values = holes(read_qrels(qrels), read_run(ranking), [int(cutoff)])
            elif (bm25 := self.run.ranking(BM25, split)).exists():
                values = overlap(read_run(ranking), read_run(bm25), read_qrels(qrels), int(cutoff))
            else:
                absent[split, measure] = "no BM25 ranking"
                continue
            figures[split, measure] = means(values)[measure]
        if figures or absent:
            yield replace(row, figures=figures, absent=absent, section=Section.JUDGED)

    def _forgetting(self, row: MeasuredRow) -> Iterator[MeasuredRow]:
        """A row for each interval; the only one of a stage has the stage's name, as an episode in papers."""
        try:
            intervals = refresh_intervals(self.run.folder)
        except ValueError as error:
            self.notes.append(f"no forgetting: {error}")
            return
        stages = [interval.since.rpartition("-")[0] for interval in intervals]
        for stage, interval in zip(stages, intervals, strict=True):
            part = stage if stages.count(stage) == 1 else f"{interval.since} to {interval.until}"
            figures = {("train", "forgotten"): interval.forgotten}
            yield replace(row, figures=figures, section=Section.FORGETTING, part=part)

    def _downstream(
        self, row: MeasuredRow, name: str, folders: Mapping[Path, list[Path]]
    ) -> Iterator[MeasuredRow]:
        """The rows of folders of `rerank` and `answer` that were made from the row's rankings."""
        for split in self.run.read_final_evaluation().split:
            files = [self.run.ranking(name, split), *([self.run.final_run(split)] if row.config_hash else [])]
            for file in files:
                for folder in folders.get(file.absolute(), ()):
                    about, measured = (read_json(folder / each) for each in DOWNSTREAM)
                    if about["ranking_sha256"] != sha256_file(file):
                        self.notes.append(f"skipped: {folder} was made from an earlier {file}")
                    elif "reader" in about:
                        yield from _answered(row, split, about["reader"], measured["rows"])
                    else:
                        yield from _reranked(row, split, about["model"], measured["rows"])


def downstream_folders(runs: Path) -> dict[Path, list[Path]]:
    """The finished folders of `rerank` and `answer` in `runs` and in the run directories there, by the
    ranking that they were made from."""
    folders: dict[Path, list[Path]] = {}
    for about in (path for depth in DEPTHS[1:] for path in sorted(runs.glob(f"{depth}{DOWNSTREAM[0]}"))):
        if (about.parent / DOWNSTREAM[1]).exists() and (ranking := read_json(about).get("ranking")):
            folders.setdefault(Path(ranking), []).append(about.parent)
    return folders


def _answered(
    row: MeasuredRow, split: str, reader: Mapping[str, Any], rows: list[dict[str, Any]]
) -> Iterator[MeasuredRow]:
    for answered in rows:
        part = f"{_short(reader['model'])}, first {answered['passages']}"
        yield replace(row, figures={(split, "EM"): answered["EM"]}, section=Section.ANSWERS, part=part)


def _reranked(row: MeasuredRow, split: str, model: str, rows: list[dict[str, Any]]) -> Iterator[MeasuredRow]:
    """A row for the ranking before reranking, and one for each number of reranked documents.

    Milliseconds are those of search and reranking together.
    """
    [first] = [one for one in rows if one["ranking"] == FIRST_STAGE]
    search = first.get(MILLISECONDS)
    for reranked in rows:
        figures = {
            (split, name): value for name, value in reranked.items() if name not in ("ranking", *LATENCY)
        }
        part = None if reranked is first else f"{_short(model)}, {reranked['ranking']}"
        absent = {} if search else {(split, MILLISECONDS): NOT_TIMED}
        if search:
            figures[split, MILLISECONDS] = search + (0 if reranked is first else reranked[MILLISECONDS])
        yield replace(row, figures=figures, section=Section.RERANKED, part=part, absent=absent)


def _short(model: str) -> str:
    """`MiniLM` of `cross-encoder/MiniLM` and of `/models/MiniLM`."""
    return model.rstrip("/").rpartition("/")[2]
