"""Fusion of rankings that are files or belong to run directories, measured by the runs' judgments."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pyserini_ance.data.trec import Qrels, Run, read_qrels, read_run, write_run
from pyserini_ance.evaluation.answer_measures import measure_by_answers
from pyserini_ance.evaluation.metrics import evaluate
from pyserini_ance.evaluation.tables import BM25
from pyserini_ance.pyserini_bridge.searchers import DECIMALS, METHODS, fuse
from pyserini_ance.recipe.components import similar_name
from pyserini_ance.recipe.evaluation_settings import parse_measures
from pyserini_ance.reports.ranking_inputs import collection_of, parse_ranking_name, ranking_file
from pyserini_ance.runs.rundir import RunDir

Judge = Callable[[Run], dict[str, float]]  # a run's measures


@dataclass(frozen=True)
class Hybrid:
    """A fusion of `rankings` by `method`.

    A ranking is a TREC file, or a name (FOLDER, FOLDER:ROW) that stands for a ranking of each test split.
    """

    rankings: tuple[str, ...]
    method: str

    @classmethod
    def of(cls, rankings: Sequence[str], method: str) -> "Hybrid":
        """A run directory alone is fused with its BM25 row.

        Raises FileNotFoundError for a ranking that does not exist, ValueError for a wrong number of them.
        """
        _ = cls(tuple(rankings), method)._runs
        run, row = parse_ranking_name(rankings[0])
        if len(rankings) == 1 and run.folder.is_dir() and row != BM25:
            rankings = [f"{run.folder}:{BM25}", *rankings]
        if len(rankings) < 2 or (METHODS[method].weights and len(rankings) > 2):
            expected = "two rankings" if METHODS[method].weights else "two rankings or more"
            raise ValueError(
                f"{method} fuses {expected}, given: {', '.join(rankings)}; pass a run directory alone to "
                "fuse it with its BM25"
            )
        return cls(tuple(rankings), method)

    def split(self) -> str:
        """The first test split of the run directories; "" for files alone, each of which is of one split."""
        return next((run.read_final_evaluation().split[0] for run in self._runs), "")

    def measures(self, split: str) -> list[str]:
        """The measures of the split in the recipe of the first run directory."""
        of_recipes = (run.read_final_evaluation().measures_of(split) for run in self._runs)
        return [str(measure) for measure in next(of_recipes, parse_measures(["nDCG@10", "RR@10", "R@100"]))]

    def judge(self, split: str, measures: Sequence[str], qrels: Qrels | None = None) -> Judge:
        """A function that measures a run by `qrels`, or by the judgments of the run directories.

        A split without judgments is measured by the answers that passages contain. Raises ValueError if there
        are neither judgments nor answers, or if two run directories judge the split differently.
        """
        parsed = parse_measures(measures)
        if qrels is not None:
            return lambda run: evaluate(qrels, run, parsed)
        if not self._runs:
            raise ValueError("rankings alone do not say which documents are relevant; pass --qrels FILE")
        different = (
            f"{', '.join(self.rankings)} judge split {split!r} differently; pass rankings of the same "
            "queries and data"
        )
        first, *others = [
            read_qrels(path) if path.exists() else None for path in (run.qrels(split) for run in self._runs)
        ]
        if any(other != first for other in others):
            raise ValueError(different)
        if first is not None:
            return lambda run: evaluate(first, run, parsed)
        self.runs(split)  # a missing ranking is reported before the collection is read
        collections = [collection_of(run) for run in self._runs]
        questions, documents = collections[0].split(split).queries, collections[0].documents
        digests = {(one.split(split).queries.digest, one.documents.digest) for one in collections}
        if len(digests) > 1:
            raise ValueError(different)
        return lambda run: measure_by_answers(run, questions, documents, parsed)

    def runs(self, split: str) -> list[Run]:
        """The rankings of a split."""
        named = ((Path(name), *parse_ranking_name(name)) for name in self.rankings)
        return [
            read_run(file if file.is_file() else ranking_file(run, row, split)) for file, run, row in named
        ]

    def measure_weights(self, split: str, measure: str) -> dict[float, float]:
        """The measure of each weight on that split, best first; the first of equal ones."""
        if files := [name for name in self.rankings if Path(name).is_file()]:
            raise ValueError(
                f"{', '.join(files)} is of one split; to choose a weight on {split!r} pass rankings of run "
                "directories: FOLDER or FOLDER:ROW"
            )
        runs, judge = self.runs(split), self.judge(split, [measure])
        weights = METHODS[self.method].weights
        values = {weight: next(iter(judge(fuse(runs, self.method, weight)).values())) for weight in weights}
        return dict(sorted(values.items(), key=lambda pair: -pair[1]))

    def rows(self, split: str, judge: Judge, output: Path, weight: float | None) -> list[dict[str, Any]]:
        """Write the fused run; returns the rows of a table: each ranking, then their fusion."""
        runs = self.runs(split)
        rows = [{"ranking": name, **judge(run)} for name, run in zip(self.rankings, runs, strict=True)]
        fused = fuse(runs, self.method, weight)
        hits = (
            (query, document, score) for query, scores in fused.items() for document, score in scores.items()
        )
        output.parent.mkdir(parents=True, exist_ok=True)
        write_run(output, hits, self.method, DECIMALS)
        label = self.method if weight is None else f"{self.method}, weight {weight:g}"
        return [*rows, {"ranking": label, **judge(read_run(output))}]

    @cached_property
    def _runs(self) -> list[RunDir]:
        """The run directories of the rankings, each once. Raises FileNotFoundError if one does not exist."""
        named = [parse_ranking_name(name)[0] for name in self.rankings if not Path(name).is_file()]
        runs = {run.folder: run for run in named}
        if absent := [folder for folder in runs if not folder.is_dir()]:
            raise FileNotFoundError(
                f"{absent[0]} is neither a run directory nor a file{similar_name(absent[0])}; pass a TREC "
                "run, FOLDER or FOLDER:ROW"
            )
        return list(runs.values())
