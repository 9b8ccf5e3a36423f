"""Hybrids: rankings of the same queries made one, with a weight that may be chosen on another split."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ir_measures import Measure

from pyserini_ance.data.trec import Qrels, Run, read_qrels, read_run, write_run
from pyserini_ance.experiment.collection import collection_of
from pyserini_ance.experiment.ranked import named, ranking_file
from pyserini_ance.measures.compare import BM25
from pyserini_ance.measures.coverage import measure_by_answers
from pyserini_ance.measures.evaluate import evaluate
from pyserini_ance.pyserini_bridge.fusion import METHODS, fuse
from pyserini_ance.recipe.load import load
from pyserini_ance.recipe.measure import parse
from pyserini_ance.runs.rundir import RunDir

Judge = Callable[[Run], dict[str, float]]  # its measures
DECIMALS = 9  # reciprocal ranks of neighbours differ by 1e-6 at depth 1,000


@dataclass(frozen=True)
class Hybrid:
    """`rankings` are files, or names of run directories' rankings, which are then there for each of their test splits."""

    rankings: tuple[str, ...]
    method: str

    @classmethod
    def of(cls, rankings: Sequence[str], method: str) -> "Hybrid":
        """One run directory alone stands behind its row of BM25. Raises ValueError for a number of rankings that the method cannot fuse."""
        folder, row = named(rankings[0])
        if len(rankings) == 1 and folder.folder.is_dir() and row != BM25:
            rankings = [f"{folder.folder}:{BM25}", *rankings]
        if len(rankings) < 2 or (METHODS[method].weights and len(rankings) > 2):
            expected = "two rankings" if METHODS[method].weights else "two rankings or more"
            raise ValueError(f"{method} fuses {expected}, given: {', '.join(rankings)}; name a run directory alone to fuse it with its BM25")
        return cls(tuple(rankings), method)

    @property
    def weights(self) -> tuple[float, ...]:
        return METHODS[self.method].weights

    def split(self) -> str:
        """The first test split of the run directories; of files alone, which are of one split, nothing."""
        return next((load(folder.recipe).recipe.test.split[0] for folder in self._folders), "")

    def measures(self, split: str) -> list[str]:
        """Those of the split in the recipe of the first run directory."""
        of_recipes = (load(folder.recipe).recipe.test.measures_of(split) for folder in self._folders)
        return [str(measure) for measure in next(of_recipes, parse(["nDCG@10", "RR@10", "R@100"]))]

    def judge(self, split: str, measures: Sequence[str], qrels: Qrels | None = None) -> Judge:
        """By `qrels`, or by those of the run directories; by the answers that passages hold where nobody has judged the split.

        Raises ValueError when there is neither, and when two run directories judge the split differently.
        """
        wanted = parse(measures)
        if qrels is not None:
            return lambda run: evaluate(qrels, run, wanted)
        if not self._folders:
            raise ValueError("rankings alone do not say which documents are relevant; give --qrels FILE")
        first, *others = [read_qrels(path) if path.exists() else None for path in (folder.qrels(split) for folder in self._folders)]
        if any(other != first for other in others):
            raise self._of_others(split)
        return self._by_answers(split, wanted) if first is None else lambda run: evaluate(first, run, wanted)

    def runs(self, split: str) -> list[Run]:
        return [read_run(self._file(name, split)) for name in self.rankings]

    def chosen(self, split: str, measure: str) -> dict[float, float]:
        """The measure of each weight on that split, best first; the first of equal ones."""
        if files := [name for name in self.rankings if Path(name).is_file()]:
            cure = f"to choose a weight on {split!r} name rankings of run directories: FOLDER or FOLDER:ROW"
            raise ValueError(f"{', '.join(files)} is of one split; {cure}")
        runs, judge = self.runs(split), self.judge(split, [measure])
        found = {weight: next(iter(judge(fuse(runs, self.method, weight)).values())) for weight in self.weights}
        return dict(sorted(found.items(), key=lambda pair: -pair[1]))

    def rows(self, split: str, judge: Judge, output: Path, weight: float | None) -> list[dict]:
        """Write the fused run; a table's rows, of each ranking and of what they make together."""
        runs = self.runs(split)
        rows = [{"ranking": name, **judge(run)} for name, run in zip(self.rankings, runs, strict=True)]
        hits = fuse(runs, self.method, weight).items()
        output.parent.mkdir(parents=True, exist_ok=True)
        write_run(output, ((query, document, score) for query, found in hits for document, score in found.items()), self.method, DECIMALS)
        label = self.method if weight is None else f"{self.method}, weight {weight:g}"
        return [*rows, {"ranking": label, **judge(read_run(output))}]

    def _by_answers(self, split: str, measures: Sequence[Measure]) -> Judge:
        self.runs(split)  # of a split that is not tested there is no ranking: that is said first
        first, *others = [collection_of(folder) for folder in self._folders]
        questions, documents = first.split(split).queries, first.documents
        if any((other.split(split).queries.digest, other.documents.digest) != (questions.digest, documents.digest) for other in others):
            raise self._of_others(split)
        return lambda run: measure_by_answers(run, questions, documents, measures)

    def _of_others(self, split: str) -> ValueError:
        return ValueError(f"{', '.join(self.rankings)} judge split {split!r} differently; name rankings of the same queries and data")

    @property
    def _folders(self) -> list[RunDir]:
        """Each run directory once."""
        found = {named(name)[0].folder: named(name)[0] for name in self.rankings if not Path(name).is_file()}
        if absent := [str(folder) for folder in found if not folder.is_dir()]:
            raise FileNotFoundError(f"{absent[0]} is neither a run directory nor a file; name a TREC run, FOLDER or FOLDER:ROW")
        return list(found.values())

    def _file(self, name: str, split: str) -> Path:
        return Path(name) if Path(name).is_file() else ranking_file(*named(name), split)
