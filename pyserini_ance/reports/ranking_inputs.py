"""Open rankings by name, with the collection and the queries that they are of.

`FOLDER` is the final ranking of a run directory, `FOLDER:ROW` that of a row of its results table. A recipe
with a file is a ranking over the recipe's data.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ir_measures import Measure

from pyserini_ance.data.collection import Collection, Texts
from pyserini_ance.data.collection_cache import open_collection
from pyserini_ance.data.formats.dpr import read_questions
from pyserini_ance.data.trec import Qrels, Run, read_qrels, read_run, without_own
from pyserini_ance.evaluation.answer_measures import measure_by_answers
from pyserini_ance.evaluation.metrics import evaluate
from pyserini_ance.pipeline.preparation import stored_collection
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.runs.rundir import RunDir, load_recipe
from pyserini_ance.storage.files import read_json_object, sha256_file
from pyserini_ance.trainer.resume import check_same_data, data_digest


def collection_of(run: RunDir) -> Collection:
    """The collection of a run, memory-mapped; read again only if the cache of its recipe does not hold it.

    Raises FileNotFoundError if `run` is not a run directory, ValueError if the data is not that of the run.
    """
    run.check(run.environment)
    recipe = run.read_recipe()
    if (collection := open_collection(recipe.cache, data_digest(run))) is None:
        collection = stored_collection(recipe)
        check_same_data(run, collection)
    return collection


def collection_with(recipe: Recipe, split: str) -> Collection:
    """The recipe's data with the queries of `split`, whether or not the recipe tests on that split.

    The collection is memory-mapped, and read only if the cache does not hold it. Raises ValueError if the
    data does not have the split.
    """
    if split != recipe.train_name:
        recipe.data.of_splits([split])  # its error is about the split, not about a key of the recipe
    # The recipe's own measures need not fit this split, which may have no judgments.
    alone = {"split": (split,), "measures": {}, "query_measures": {}, "rerank": {}}
    test = recipe.final_evaluation.model_copy(update=alone)
    return stored_collection(recipe.model_copy(update={"final_evaluation": test, "first_pass": None}))


def common_qrels(runs: Iterable[RunDir], split: str) -> Qrels | None:
    """The judgments of a test split that all runs share; None if it is judged by answers to questions that
    all share.

    Raises ValueError if the runs were evaluated on other queries or judgments.
    """
    paths = [run.qrels(split) for run in runs]
    topics = f"topics.{split}.json"
    asked = (read_qrels(one) if one.exists() else read_json_object(one.with_name(topics)) for one in paths)
    (first, qrels), *others = zip(paths, asked, strict=True)
    for path, other in others:
        if other != qrels:
            raise ValueError(
                f"{path.parent} was evaluated on other queries or judgments of split {split!r} than "
                f"{first.parent}: compare runs on the same data and split"
            )
    return qrels if first.exists() else None


@dataclass(frozen=True)
class RankingInput:
    """A ranking with the collection of its documents.

    name: as the user gave it. queries: those of `split`, or of a file of questions.
    """

    name: str
    file: Path
    recipe: Recipe
    collection: Collection
    split: str
    queries: Texts

    @property
    def ranked_queries(self) -> list[str]:
        """The ids of the queries that the ranking has hits for. Raises ValueError if there are none."""
        if not (ranked := [query for query in self.queries.ids if self.run.get(query)]):
            expected, other = self.queries.ids[0], next(iter(self.run))
            raise ValueError(
                f"{self.file} ranks nothing for the queries of {self.split!r}: it has {other}, ..., they are "
                f"{expected}, ...; pass the ranking of these queries, or its split: --split NAME"
            )
        return ranked

    def check_hits(self, expected: int) -> None:
        """Raise ValueError if no query has `expected` hits although there are that many documents."""
        longest = max(len(self.run[query]) for query in self.ranked_queries)
        if longest < min(expected, len(self.collection.documents)):
            raise ValueError(
                f"{self.file} has at most {longest} hits a query, fewer than --first {expected}; "
                "pass a longer ranking or a smaller number"
            )

    @property
    def identity(self) -> dict[str, str]:
        """The file and hashes that distinguish the ranking from any other."""
        return {
            "ranking": str(self.file.absolute()),
            "ranking_sha256": sha256_file(self.file),
            "documents": self.collection.documents.digest,
            "queries": self.queries.digest,
            **({"ignore_identical_ids": "true"} if self.collection.ignore_identical_ids else {}),
        }

    @cached_property
    def qrels(self) -> Qrels:
        """The judgments of every query of the split."""
        return self.collection.judgments(self.split)

    def measure(self, run: Run, measures: Sequence[Measure], qrels: Qrels | None = None) -> dict[str, float]:
        """Measure `run`, this ranking or another of its queries.

        The judgments are `qrels`, else those of the split; a split without judgments is measured by its
        answers.
        """
        if qrels is None and not self.collection.split(self.split).is_judged:
            return measure_by_answers(run, self.queries, self.collection.documents, measures)
        return evaluate(self.qrels if qrels is None else qrels, run, measures)

    @cached_property
    def run(self) -> Run:
        """The ranking; the data may leave the document with a query's id out of it."""
        run = read_run(self.file)
        return without_own(run) if self.collection.ignore_identical_ids else run


def open_ranking(
    source: str, file: Path | None = None, split: str | None = None, questions: Path | None = None
) -> RankingInput:
    """Open the ranking that `source` names, or `file`.

    split: the split of the queries; default: the first test split. questions: a file of DPR's questions,
    instead of a split's queries. Raises FileNotFoundError if `source` is not a run directory or the ranking
    is missing, ValueError if both a row and a file are given.
    """
    run, row = parse_ranking_name(source)
    in_run = run.folder.is_dir()
    if file is None and not in_run:
        cure = f"pass one, or a recipe and a ranking of its queries: {source} --run FILE"
        raise FileNotFoundError(f"{source} is not a run directory; {cure}")
    if file is not None and in_run and row:
        raise ValueError(f"{source} is one ranking and --run {file} another; remove one of them")
    of_run = collection_of(run) if in_run else None
    recipe = run.read_recipe() if in_run else load_recipe(source)
    split = split or recipe.final_evaluation.split[0]
    ranking = file or ranking_file(run, row, split)
    collection = of_run if of_run and split in of_run.splits else collection_with(recipe, split)
    if of_run and collection.documents.digest != of_run.documents.digest:
        cure = "restore the old data, or train again"
        raise ValueError(f"the documents are not those that {run.folder} was started with; {cure}")
    queries = read_questions(questions) if questions else collection.split(split).queries
    return RankingInput(str(file or source), ranking, recipe, collection, str(questions or split), queries)


def parse_ranking_name(name: str) -> tuple[RunDir, str | None]:
    """The run directory of `FOLDER` or `FOLDER:ROW`, and the row if there is one."""
    folder, colon, row = name.rpartition(":")
    if colon and not Path(name).is_dir():
        return RunDir.find(Path(folder)), row
    return RunDir.find(Path(name)), None


def ranking_file(run: RunDir, row: str | None, split: str) -> Path:
    """The ranking of a row, or the final one.

    Raises FileNotFoundError if `run` is not a run directory, ValueError, with the rows that have one, if it
    has no such ranking.
    """
    run.check()
    path = run.ranking(row, split) if row else run.final_run(split)
    if not path.exists():
        suffix = f".{split}.trec"
        rows = sorted(other.name.removesuffix(suffix) for other in run.run_files.glob(f"*{suffix}"))
        tested = run.read_final_evaluation().split
        cure = f"a run trained with final_evaluation.split=[{','.join([*tested, split])}] has them"
        if split in tested:
            cure = f"its final evaluation has not finished: {run.resume_command()}"
        raise ValueError(
            f"{run.folder} has no ranking of split {split!r} ({path} is missing); rows that have one: "
            f"{', '.join(rows) or f'none; {cure}'}"
        )
    return path
