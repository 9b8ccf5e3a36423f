"""Check that a recipe's data has what the recipe needs: splits, measures, judgments, files of negatives; and
warn of what a run accepts, though it is hardly meant."""

from collections.abc import Iterable, Iterator, Set
from pathlib import Path

import numpy as np
from ir_measures import Measure

from pyserini_ance.data.answer_matching import ANSWERS, searched_texts
from pyserini_ance.data.collection import SIDES, Collection, Side, Texts
from pyserini_ance.data.formats.format import Format
from pyserini_ance.data.formats.lines import find_file
from pyserini_ance.data.passages import check_delimiter
from pyserini_ance.data.prepared import AnchorSet
from pyserini_ance.data.texts import text_key
from pyserini_ance.encoders.hub import find_model
from pyserini_ance.encoders.tokenization import SideTokenization
from pyserini_ance.evaluation.answer_measures import CUTOFFS, is_of_answers, success_at
from pyserini_ance.evaluation.metrics import check_grade
from pyserini_ance.pipeline.bm25_rankings import read_candidates
from pyserini_ance.recipe.components import did_you_mean
from pyserini_ance.recipe.evaluation_settings import parse_measures
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.recipe.trained_teacher import TRAINED

COMPARED = 10_000  # queries with the id of a document whose texts are always compared


def check_before_reading(recipe: Recipe) -> None:
    """Check everything that does not need the data, which may take long to read.

    Raises ValueError for measures that would be wrong, FileNotFoundError if a file is missing that negatives
    are drawn from, that a teacher reads or starts from, or whose documents are reranked.
    """
    threshold = recipe.data.relevance_threshold
    for _, measure in _measures(recipe):  # must not count other grades as relevant than training does
        if threshold > 1 and "rel" in measure.SUPPORTED_PARAMS and measure.params.get("rel", 1) != threshold:
            raise ValueError(
                f"data.relevance_threshold is {threshold}, but measure {measure} counts grade 1 as relevant; "
                f"write it with (rel={threshold}), as in RR(rel={threshold})@10"
            )
    for component in [part for source in recipe.sources for part in source.components]:
        _ = component.files  # looks for them
    for teacher in [one for stage in recipe.stages.values() for one in stage.teachers.values()]:
        _ = teacher.files
    if recipe.teachers:
        from pyserini_ance.pipeline.teacher_training import check_start

        for name, trained in recipe.teachers.items():
            if trained.init_from != "initial" and not trained.init_from.startswith(TRAINED):
                check_start(find_model(trained.init_from, f"teachers.{name}.init_from"))
    for split, ranking in recipe.final_evaluation.reranked.items():
        if isinstance(ranking, Path):
            find_file(ranking, f"final_evaluation.rerank.{split}")


def _measures(recipe: Recipe) -> Iterator[tuple[str, Measure]]:
    """Each split with a measure of it, of the final evaluation or of one on dev."""
    test = recipe.final_evaluation
    for split in test.split:
        for measure in test.measures_of(split) + test.query_measures_of(split):
            yield split, measure
    for evaluate in (stage.evaluate for stage in recipe.stages.values() if stage.evaluate):
        (measure,) = parse_measures([evaluate.measure])
        yield from ((split, measure) for split in evaluate.split)


def check_splits(recipe: Recipe, names: Iterable[str]) -> None:
    """Raise ValueError if the recipe trains, evaluates or tests on a split that is not one of `names`."""
    names = list(names)
    dev = "stages.<stage>.evaluate.split"
    wanted = {"train_split": recipe.train_split, "final_evaluation.split": recipe.final_evaluation.split}
    for key, splits in {**wanted, dev: sorted(dev_splits(recipe))}.items():
        for split in (split for split in splits if split not in names):
            cure = f"set {key} to one of them, or add {split!r} under `data`"
            if key == dev:
                evaluated = (name for name, stage in recipe.stages.items() if stage.evaluate)
                without = " ".join(f"stages.{name}.evaluate=null" for name in evaluated)
                cure = (
                    "cut 'dev' from the training queries: data.hold_out=200; or measure no checkpoints, so "
                    f"that a stage's result is its last one: {without}"
                )
            raise ValueError(
                f"{key} names {split!r}, but `data` has no such split{did_you_mean(split, names)}; splits: "
                f"{', '.join(names) or 'none'}; {cure}"
            )


def _check_unjudged(recipe: Recipe, collection: Collection) -> None:
    """Raise ValueError if a split without judgments is not only tested on by the answers in passages."""
    test, used = recipe.final_evaluation, {*recipe.train_split, *dev_splits(recipe)}
    for name in (split.name for split in collection.splits.values() if not split.is_judged):
        uses = ["is trained or evaluated on"] if name in used else []
        measures = [measure for measure in test.measures_of(name) if not is_of_answers(measure)]
        uses += [f"has the measure {measure}" for measure in measures + test.query_measures_of(name)]
        if uses:
            raise ValueError(
                f"split {name!r} has no judgments, but {uses[0]}; questions with answers alone can only be "
                f"tested on, by {', '.join(map(str, success_at(CUTOFFS)))}: "
                f"final_evaluation.measures={{{name}: [...]}}. For more give it `qrels`, or DPR's .json file "
                "with positive_ctxs"
            )


def check_collection(recipe: Recipe, collection: Collection) -> None:
    """Raise ValueError or FileNotFoundError if the recipe needs something that the data does not have."""
    training, test = recipe.train_name, recipe.final_evaluation
    check_splits(recipe, collection.splits)
    if recipe.encoder.tokenization.document.passages > 1:
        check_delimiter(collection.documents.ids)
    _check_unjudged(recipe, collection)
    for split, measure in _measures(recipe):
        check_grade(measure, int(collection.split(split).qrels.grades.max(initial=0)), f"split {split!r}")
    queries, smallest = min((len(collection.split(name).queries), name) for name in recipe.train_split)
    for name, stage in recipe.stages.items():
        if stage.refresh and stage.refresh.query_chunks > queries:
            raise ValueError(
                f"stages.{name}.refresh.query_chunks is {stage.refresh.query_chunks}, but {smallest!r} has "
                f"only {queries} training queries; lower it"
            )
    fields = collection.split(training).queries.columns
    if recipe.finds_positives and ANSWERS not in fields:
        raise ValueError(
            f"refresh.positives_top_k looks for documents that contain an answer, but the queries of split "
            f"{training!r} have no field {ANSWERS!r} (they have {', '.join(fields)}); remove it"
        )
    if recipe.finds_positives:
        searched_texts(collection.documents)
    for split, ranking in test.reranked.items():
        if isinstance(ranking, Path):
            read_candidates(ranking, collection.split(split), collection)
    anchor_sets = {side: AnchorSet.of(collection, collection.split(training), side) for side in SIDES}
    for anchor, source in recipe.anchored_sources:
        source.check_data(anchor_sets[anchor])
    for term in (term for stage in recipe.stages.values() for term in stage.terms.values()):
        if term.teacher is not None:
            term.teacher.check_data(anchor_sets[term.anchor])


def dev_splits(recipe: Recipe) -> set[str]:
    return {split for stage in recipe.stages.values() if stage.evaluate for split in stage.evaluate.split}


def only_trained_on(recipe: Recipe) -> set[str]:
    """The training splits on which nothing is measured."""
    return {*recipe.train_split}.difference(recipe.final_evaluation.split, dev_splits(recipe))


def check_template(key: str, settings: SideTokenization, side: Side, fields: Iterable[str]) -> None:
    """Raise ValueError, naming `key`, if the template of a side names a field that no record has: the model
    would read blank texts.

    The title may be missing beside another field.
    """
    fields, named = list(fields), settings.fields
    optional = {"title"} if set(named) & set(fields) else set()
    unknown = [field for field in named if field not in {*fields, *optional}]
    if unknown:
        raise ValueError(
            f"{key} is {settings.template!r}, but a {side} of this collection "
            f"has no field {', '.join(unknown)}{did_you_mean(unknown[0], fields)}; fields: "
            f"{', '.join(fields)}"
        )


def data_warnings(recipe: Recipe, collection: Collection) -> list[str]:
    """A line for each trait of the data or value of the recipe that is allowed, but hardly meant: figures are
    other than they seem, or a value has no effect."""
    lines = []
    training, tested = {*recipe.train_split}, {*recipe.final_evaluation.split}
    dev = dev_splits(recipe).intersection(collection.splits)
    compared = [(one, training, "training") for one in collection.splits if one in tested | dev]
    # A dev split that is tested on under one name is the recipe's own choice, as MS MARCO's.
    compared += [(name, dev, "dev") for name in collection.splits if name in tested - dev - training]
    for name, others, what in compared:
        if count := also_in(collection, name, others):
            total = len(collection.split(name).queries)
            cure = "measure another split" if name in others else "remove them from one of the splits"
            lines.append(
                f"{count:,} of {total:,} queries of split {name!r} are {what} queries too (the same id or "
                f"text), so its figures are too high; {cure}"
            )
    if count := queries_that_are_documents(collection):
        lines.append(
            f"{count:,} queries are documents, with the same id and text: each stays in its own ranking, and "
            "may be its negative; leave them out, as BEIR does: data.ignore_identical_ids=true"
        )
    if recipe.data.hold_out and _has_own_dev(recipe.data):
        lines.append(
            "data.hold_out makes split 'dev' of training queries; the data's own 'dev' is not read; to use "
            "that, set data.hold_out=null"
        )
    queries = len(collection.split(recipe.train_name).queries)
    for name, stage in recipe.stages.items():
        if stage.refresh and stage.refresh.every_steps > stage.steps:
            lines.append(
                f"stages.{name}.refresh.every_steps is {stage.refresh.every_steps:,}, but the stage has "
                f"{stage.steps:,} steps: its negatives are mined at its start and never refreshed"
            )
        if stage.lr_schedule.warmup_steps > stage.horizon_steps:
            lines.append(
                f"stages.{name}.lr_schedule.warmup_steps is {stage.lr_schedule.warmup_steps:,}, but the "
                f"schedule has {stage.horizon_steps:,} steps: the rate never rises to "
                "optimizer.learning_rate"
            )
        if stage.batch_queries > queries:
            lines.append(
                f"stages.{name}.batch_queries is {stage.batch_queries:,}, but there are {queries:,} "
                "training queries: a batch has the same query more than once"
            )
    return lines


def also_in(collection: Collection, split: str, others: Set[str]) -> int:
    """How many queries of a split are queries of the `others` too: the same id or the same text.

    Texts may differ in case and blanks. Ids that are numbers say nothing: many files count their queries.
    """
    known: set[str] = set()
    for queries in (collection.split(name).queries for name in others):
        known.update(f"id {id}" for id in queries.ids if not id.isdecimal())
        known.update(map(text_key, queries.columns["text"]))
    queries = collection.split(split).queries
    pairs = zip(queries.ids, queries.columns["text"], strict=True)
    return sum(f"id {id}" in known or text_key(text) in known for id, text in pairs)


def queries_that_are_documents(collection: Collection) -> int:
    """How many queries have the id and the text, or title, of a document, if rankings do not leave it out.

    Texts may differ in case and blanks. Of very many queries with the id of a document, as where both are
    numbers, all are compared only if one of a sample has its text.
    """
    if collection.ignore_identical_ids:
        return 0
    documents, found = collection.documents, set[str]()
    for queries in (split.queries for split in collection.splits.values()):
        rows = documents.rows_of(queries.ids)

        def is_document(query: int, queries: Texts = queries, rows: np.ndarray = rows) -> bool:
            fields = [text for text in documents[int(rows[query])].values() if text]
            texts = {text_key(text) for text in [*fields, " ".join(fields)]}
            return text_key(queries.columns["text"][query]) in texts

        same_ids = np.flatnonzero(rows >= 0)
        sample = same_ids[:: max(1, len(same_ids) // COMPARED)].tolist()
        if any(map(is_document, sample)):
            found.update(queries.ids[query] for query in same_ids.tolist() if is_document(query))
    return len(found)


def _has_own_dev(data: Format) -> bool:
    """Whether the data has a split `dev`: its files are there, or the settings name it and list no files."""
    if "dev" not in getattr(data, "splits", {}):
        return False
    paths = [path for key, path in data.files() if f"{key}.".startswith("data.splits.dev.")]
    return all(path.expanduser().exists() or Path(f"{path}.gz").expanduser().exists() for path in paths)
