"""Rankings by their names, and what they rank.

`FOLDER` is the final ranking of a run directory, `FOLDER:ROW` that of a row of its closing table; a recipe names data, of which any
file may be a ranking.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ir_measures import Measure

from pyserini_ance.data.collection import Collection, Texts
from pyserini_ance.data.formats.dpr import read_questions
from pyserini_ance.data.trec import Qrels, Run, read_run
from pyserini_ance.experiment.collection import collection_of, collection_with
from pyserini_ance.measures.coverage import measure_by_answers
from pyserini_ance.measures.evaluate import evaluate
from pyserini_ance.recipe.load import load
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import sha256_file


@dataclass(frozen=True)
class Ranked:
    """A ranking, and the collection whose documents it is of; `queries` are those of a split unless a file of questions has them."""

    name: str
    file: Path
    recipe: Recipe
    collection: Collection
    split: str
    queries: Texts

    @property
    def asked(self) -> list[str]:
        """The queries that the ranking has hits for. Raises ValueError when there are none."""
        found = [query for query in self.queries.ids if self.run.get(query)]
        if not found:
            first, other = self.queries.ids[0], next(iter(self.run))
            raise ValueError(
                f"{self.file} ranks nothing for the queries of {self.split!r}: it has {other}, ..., they are {first}, ...; "
                "name the ranking of these queries, or its split: --split NAME"
            )
        return found

    def check_depth(self, depth: int) -> None:
        """Raises ValueError when no query has so many hits, though there are so many documents: what follows would be called deeper than it is."""
        deepest = max(len(self.run[query]) for query in self.asked)
        if deepest < min(depth, len(self.collection.documents)):
            raise ValueError(f"{self.file} has at most {deepest} hits a query, fewer than --first {depth}; name a deeper ranking or a smaller number")

    @property
    def about(self) -> dict[str, str]:
        """What tells it from any other."""
        data = {"documents": self.collection.documents.digest, "queries": self.queries.digest}
        return {"ranking": str(self.file.absolute()), "ranking_sha256": sha256_file(self.file), **data}

    @cached_property
    def qrels(self) -> Qrels:
        """Of every query of the split."""
        judged, ids = self.collection.split(self.split).qrels, self.collection.documents.ids
        pairs = ((query, *judged.judged(row)) for row, query in enumerate(self.queries.ids))
        return {query: {ids[d]: int(grade) for d, grade in zip(rows, grades, strict=True)} for query, rows, grades in pairs}

    def measure(self, run: Run, measures: Sequence[Measure], qrels: Qrels | None = None) -> dict[str, float]:
        """Of this ranking, or another of its queries: by `qrels`, else by those of the split; by answers where nobody has judged it."""
        if qrels is None and not self.collection.split(self.split).is_judged:
            return measure_by_answers(run, self.queries, self.collection.documents, measures)
        return evaluate(self.qrels if qrels is None else qrels, run, measures)

    @cached_property
    def run(self) -> Run:
        return read_run(self.file)


def open_ranked(source: str, file: Path | None = None, split: str | None = None, questions: Path | None = None) -> Ranked:
    """The ranking that `source` names, or `file`, of the queries of `split` (default: the first test split) or of DPR's file `questions`.

    Raises FileNotFoundError and ValueError for what is no run directory, for a ranking that is not there, and for a row beside a file.
    """
    folder, row = named(source)
    in_run = folder.folder.is_dir()
    if file is None and not in_run:
        raise FileNotFoundError(f"{source} is no run directory; name one, or a recipe and a ranking of its queries: {source} --run FILE")
    if file is not None and in_run and row:
        raise ValueError(f"{source} is one ranking and --run {file} another; leave one of them out: {folder.folder} --run {file}, or {source}")
    of_run = collection_of(folder) if in_run else None
    recipe = load(folder.recipe if in_run else source).recipe
    split = split or recipe.test.split[0]
    found = file or ranking_file(folder, row, split)
    collection = of_run if of_run and split in of_run.splits else collection_with(recipe, split)
    if of_run and collection.documents.digest != of_run.documents.digest:
        raise ValueError(f"the documents are not those that {folder.folder} was begun with; bring the old data back, or train again")
    queries = read_questions(questions) if questions else collection.split(split).queries
    return Ranked(str(file or source), found, recipe, collection, str(questions or split), queries)


def named(name: str) -> tuple[RunDir, str | None]:
    """The run directory, and the row that is meant if one is."""
    folder, colon, row = name.rpartition(":")
    return (RunDir(Path(folder)), row) if colon and not Path(name).is_dir() else (RunDir(Path(name)), None)


def ranking_file(folder: RunDir, row: str | None, split: str) -> Path:
    """Of a row, or the final one. Raises ValueError naming the rows that have one."""
    path = folder.ranking(row, split) if row else folder.final_run(split)
    if not path.exists():
        rows = sorted(other.name.removesuffix(f".{split}.trec") for other in folder.run_files.glob(f"*.{split}.trec"))
        name = f"{folder.folder}:{row}" if row else str(folder.folder)
        raise ValueError(f"{name} has no ranking of split {split!r} ({path} is missing); rows that have one: {', '.join(rows) or 'none'}")
    return path
