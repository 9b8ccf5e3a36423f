"""Check that a recipe's data has what the recipe needs: splits, measures, judgments, files of negatives."""

import re
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path

from ir_measures import Measure

from pyserini_ance.data.answer_matching import ANSWERS, FIELD
from pyserini_ance.data.collection import SIDES, Collection, Side, Split
from pyserini_ance.data.formats.lines import find_file
from pyserini_ance.data.passages import check_delimiter
from pyserini_ance.data.prepared import AnchorSet
from pyserini_ance.encoders.config import EncoderConfig
from pyserini_ance.encoders.hub import find_model
from pyserini_ance.evaluation.answer_measures import CUTOFFS, is_of_answers, success_at
from pyserini_ance.evaluation.metrics import check_grade
from pyserini_ance.pipeline.bm25_rankings import read_candidates
from pyserini_ance.recipe.components import did_you_mean
from pyserini_ance.recipe.evaluation_settings import parse_measures
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.recipe.teacher_training import TRAINED


def check_before_reading(recipe: Recipe) -> None:
    """Check everything that does not need the data, which may take long to read.

    Raises ValueError for measures that would be wrong, FileNotFoundError if a file is missing that negatives
    are drawn from, that a teacher reads or starts from, or whose documents are reranked.
    """
    _check_measures(recipe)
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


def _check_measures(recipe: Recipe) -> None:
    """Raise ValueError for measures that would be wrong.

    A measure must not have a cutoff beyond the ranking, nor count other grades as relevant than training
    does.
    """
    hits = recipe.final_evaluation.hits
    threshold = recipe.data.relevance_threshold
    for _, measure, is_final in _measures(recipe):
        # Dev rankings are at least as long as the measure's cutoff.
        if is_final and (cutoff := measure.params.get("cutoff") or 0) > hits:
            raise ValueError(
                f"measure {measure} looks at {cutoff} documents, but final_evaluation.hits is {hits}; set "
                f"final_evaluation.hits={cutoff}"
            )
        if threshold > 1 and "rel" in measure.SUPPORTED_PARAMS and measure.params.get("rel", 1) != threshold:
            name, _, at = str(measure).partition("@")
            raise ValueError(
                f"data.relevance_threshold is {threshold}, but measure {measure} counts grade 1 as relevant; "
                f"write {name}(rel={threshold}){'@' + at if at else ''}"
            )


def _measures(recipe: Recipe) -> Iterator[tuple[str, Measure, bool]]:
    """Each split with a measure of it, and whether it is of the final evaluation or of one on dev."""
    test = recipe.final_evaluation
    for split in test.split:
        for measure in test.measures_of(split) + test.query_measures_of(split):
            yield split, measure, True
    for evaluate in (stage.evaluate for stage in recipe.stages.values() if stage.evaluate):
        (measure,) = parse_measures([evaluate.measure])
        yield from ((split, measure, False) for split in evaluate.split)


def check_splits(recipe: Recipe, names: Iterable[str]) -> None:
    """Raise ValueError if the recipe trains, evaluates or tests on a split that is not one of `names`."""
    names = list(names)
    wanted = [(split, "train_split") for split in recipe.train_split.splits]
    wanted += [(split, "final_evaluation.split") for split in recipe.final_evaluation.split]
    of_dev = "stages.<stage>.evaluate.split"
    wanted += [(split, of_dev) for split in sorted(dev_splits(recipe))]
    for split, key in wanted:
        if split not in names:
            cure = f"set {key} to one of them, or add {split!r} under `data`"
            if key == of_dev:
                cure = _dev_cures(recipe, split)
            raise ValueError(
                f"{key} names {split!r}, but `data` has no such split{did_you_mean(split, names)}; splits: "
                f"{', '.join(names) or 'none'}; {cure}"
            )


def _dev_cures(recipe: Recipe, split: str) -> str:
    """How to do without a dev split that stages name."""
    stages = [name for name, one in recipe.stages.items() if one.evaluate and split in one.evaluate.split]
    cut = "cut 'dev' from the training queries: data.hold_out=200; or " if split == "dev" else ""
    return (
        f"{cut}measure no checkpoints, so that a stage's result is its last one: "
        f"{' '.join(f'stages.{stage}.evaluate=null' for stage in stages)}"
    )


def _check_test_differs_from_dev(recipe: Recipe, collection: Collection) -> None:
    """Raise ValueError if a dev split and a test split of another name have the same judged queries.

    A split that is both under one name is the recipe's own choice, as MS MARCO's dev.
    """

    def judged_pairs(split: Split) -> set[tuple[str, str, int]]:
        """The id and the text of each query (DPR's ids are numbers), with the row of each relevant
        document."""
        return {
            (id, split.queries.columns["text"][query], row)
            for query, id in enumerate(split.queries.ids)
            for row in split.qrels.relevant(query).tolist()
        }

    tested = recipe.final_evaluation.split
    for names in product(sorted(dev_splits(recipe).difference(tested)), tested):
        dev, test = map(collection.split, names)
        if len(dev.queries) == len(test.queries) and judged_pairs(dev) == judged_pairs(test):
            raise ValueError(
                f"splits {dev.name!r} and {test.name!r} have the same queries and judgments: the best "
                f"checkpoint would be chosen on the test set; {_dev_cures(recipe, dev.name)}; or say that "
                f"{dev.name!r} is tested on: final_evaluation.split={dev.name}"
            )


def _check_unjudged(recipe: Recipe, collection: Collection) -> None:
    """Raise ValueError if a split without judgments is not only tested on by the answers in passages."""
    test = recipe.final_evaluation
    for name in (split.name for split in collection.splits.values() if not split.is_judged):
        if name in {*recipe.train_split.splits, *dev_splits(recipe)}:
            raise ValueError(
                f"split {name!r}, on which the recipe trains or evaluates, has no judgments; give it "
                "`qrels`, or DPR's .json file with positive_ctxs. Questions with answers alone can only be "
                "tested on"
            )
        if test.query_measures_of(name):
            raise ValueError(
                f"final_evaluation.query_measures need judgments, but split {name!r} has none; list other "
                "splits: {SPLIT: [...]}"
            )
        others = [measure for measure in test.measures_of(name) if not is_of_answers(measure)]
        if others:
            raise ValueError(
                f"split {name!r} has no judgments: its passages are judged by the answers they contain, and "
                f"only {', '.join(map(str, success_at(CUTOFFS)))} can measure that, not {others[0]}; set its "
                f"own measures with final_evaluation.measures={{{name}: [...]}}"
            )


def check_collection(recipe: Recipe, collection: Collection) -> None:
    """Raise ValueError or FileNotFoundError if the recipe needs something that the data does not have."""
    training, test = recipe.train_split, recipe.final_evaluation
    check_splits(recipe, collection.splits)
    if recipe.encoder.tokenization.document.passages > 1:
        check_delimiter(collection.documents.ids)
    _check_unjudged(recipe, collection)
    _check_test_differs_from_dev(recipe, collection)
    for split, measure, _ in _measures(recipe):
        check_grade(measure, int(collection.split(split).qrels.grades.max(initial=0)), f"split {split!r}")
    queries, smallest = min((len(collection.split(name).queries), name) for name in training.splits)
    for name, stage in recipe.stages.items():
        if stage.refresh and stage.refresh.query_chunks > queries:
            raise ValueError(
                f"stages.{name}.refresh.query_chunks is {stage.refresh.query_chunks}, but {smallest!r} has "
                f"only {queries} training queries; lower it"
            )
    if recipe.finds_positives:
        for what, texts, field in (
            (f"the queries of split {training.name!r}", collection.split(training.name).queries, ANSWERS),
            ("the documents", collection.documents, FIELD),
        ):
            if field not in texts.columns:
                raise ValueError(
                    f"refresh.positives_top_k looks for documents that contain an answer, but {what} have "
                    f"no field {field!r} (they have {', '.join(texts.columns)}); remove positives_top_k"
                )
    for split, ranking in test.reranked.items():
        if isinstance(ranking, Path):
            read_candidates(ranking, collection.split(split), collection)
    anchor_sets = {side: AnchorSet.of(collection, collection.split(training.name), side) for side in SIDES}
    for anchor, source in recipe.anchored_sources:
        source.check_data(anchor_sets[anchor])
    for term in (term for stage in recipe.stages.values() for term in stage.terms.values()):
        if term.teacher is not None:
            term.teacher.check_data(anchor_sets[term.anchor])


def dev_splits(recipe: Recipe) -> set[str]:
    return {split for stage in recipe.stages.values() if stage.evaluate for split in stage.evaluate.split}


def only_trained_on(recipe: Recipe) -> set[str]:
    """The training splits on which nothing is measured."""
    return {*recipe.train_split.splits}.difference(recipe.final_evaluation.split, dev_splits(recipe))


def check_template(encoder: EncoderConfig, side: Side, fields: Iterable[str]) -> None:
    """Raise ValueError if the encoder's template of a side does not fit the collection."""
    template = encoder.tokenization.side(side).template
    check_template_fields(f"encoder.tokenization.{side}.template", template, side, fields)


def check_template_fields(key: str, template: str, side: Side, fields: Iterable[str]) -> None:
    """Raise ValueError, naming `key`, if a template names a field that no record has: the model would read
    blank texts.

    The title may be missing beside another field.
    """
    fields, named = list(fields), re.findall(r"\{(\w+)\}", template)
    optional = {"title"} if set(named) & set(fields) else set()
    unknown = [field for field in named if field not in {*fields, *optional}]
    if unknown:
        raise ValueError(
            f"{key} is {template!r}, but a {side} of this collection has no field {', '.join(unknown)}"
            f"{did_you_mean(unknown[0], fields)}; fields: {', '.join(fields)}"
        )
    if not named:
        raise ValueError(
            f"{key} is {template!r}, which names no field; write fields in braces, such as '{{text}}'; "
            f"fields: {', '.join(fields)}"
        )
