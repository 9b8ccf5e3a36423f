"""Checks across the stages of a recipe and its other settings.

Each check yields the key of a setting that contradicts another one, and a message with the cure.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from pyserini_ance.recipe.components import Key, did_you_mean, raise_problems
from pyserini_ance.recipe.evaluation_settings import PER_SPLIT_KEYS
from pyserini_ance.recipe.init_from import InitFrom
from pyserini_ance.recipe.stage import Stage
from pyserini_ance.recipe.trained_teacher import TRAINED

if TYPE_CHECKING:
    from pyserini_ance.negatives.rankings import Bm25
    from pyserini_ance.recipe.models import Recipe

Problem = tuple[Key, str]
NEEDS_BM25 = (
    "a source or a teacher of kind `bm25`, or `llm` with a budget, needs BM25, but `bm25: null`; configure "
    "`bm25:`, pass a file to the kind `ranking`, or remove the source, or its stage (`STAGE: null`)"
)


def check_consistency(recipe: "Recipe") -> None:
    """Raise ValidationError with the problems that the first failing check finds, each at its key."""
    for check in (
        _check_order,
        _check_optimizer_moments,
        _check_same_side,
        _check_first_pass,
        _check_trained_queries,
        _check_made_queries,
        _check_bm25,
        _check_trained_teachers,
        _check_previous_tables,
        _check_evaluated_splits,
        _check_reranking,
    ):
        raise_problems(type(recipe), ((key, text, {}) for key, text in check(recipe)))


def _check_order(recipe: "Recipe") -> Iterator[Problem]:
    """A stage or teacher comes after the stage that it starts from or follows; names are different."""
    stages = list(recipe.stages)
    for position, (name, stage) in enumerate(recipe.stages.items()):
        start = stage.init_from
        earlier = stages[:position]
        if isinstance(start, InitFrom) and not start.is_external and start.stage not in earlier:
            near = did_you_mean(start.stage or "", earlier)
            text = f"no stage {start.stage!r} before {name!r}{near}; earlier: {', '.join(earlier) or 'none'}"
            yield ("stages", name, "init_from", "stage"), text
        if not earlier and stage.mines_with_previous:
            text = "previous_stage, but no stage comes before it; remove the key"
            yield ("stages", name, "refresh", "initial_model"), text
    for name, teacher in recipe.teachers.items():
        if teacher.after not in stages:
            near = did_you_mean(teacher.after, stages)
            text = f"no stage {teacher.after!r}{near}; stages: {', '.join(stages)}; or remove the teacher"
            yield ("teachers", name, "after"), f"{text}: teachers.{name}=null"
        if name in stages:  # the files of both would have one name
            yield ("teachers", name), "a stage has this name; give the teacher another one"


def _check_optimizer_moments(recipe: "Recipe") -> Iterator[Problem]:
    """A stage with `keep_optimizer` starts from a stage with its optimizer and trained weights; one that goes
    on with a schedule starts from the last step of that schedule, not from a better one before."""
    name, first = next(iter(recipe.stages.items()))
    if first.keep_optimizer:
        yield ("stages", name, "keep_optimizer"), "this is the first stage: there is no optimizer to keep"
    for name, stage in recipe.stages.items():
        if recipe.shard and stage.lora is None and stage.optimizer.kind == "adamw_8bit":
            text = "`shard` would cut the blocks that 8 bits are scaled by; set adamw, or shard=false"
            yield ("stages", name, "optimizer", "kind"), text
        if (start := recipe.start_of(name)) is None:
            continue
        both = recipe.stages[start], stage
        kinds = {(each.optimizer.kind, each.trainable, each.lora and each.lora.shape) for each in both}
        if stage.keep_optimizer and len(kinds) > 1:
            text = (
                f"stages.{start} has another optimizer.kind, `lora`, or other `trainable` towers; make them "
                "equal, or remove keep_optimizer"
            )
            yield ("stages", name, "keep_optimizer"), text
        evaluate = recipe.stages[start].evaluate
        if stage.lr_schedule.offset_steps and evaluate is not None and evaluate.keep_best:
            text = (
                f"with stages.{start}.evaluate.keep_best: true the stage may start from an earlier step than "
                f"{stage.lr_schedule.offset_steps}; set stages.{start}.evaluate.keep_best=false, or remove "
                "offset_steps"
            )
            yield ("stages", name, "lr_schedule", "offset_steps"), text


def _check_same_side(recipe: "Recipe") -> Iterator[Problem]:
    """Documents of several passages have a score with a query, but none with each other, and no vector."""
    terms = [(name, term) for name, stage in recipe.stages.items() for term in stage.terms.items()]
    for stage, (name, term) in terms if recipe.encoder.tokenization.document.passages > 1 else ():
        if term.same_side_negatives:
            text = "documents of several passages are not compared with each other; remove the key"
            yield ("stages", stage, "terms", name, "same_side_negatives"), text
        if term.distilled_side == "document":
            text = "documents of several passages have no vector to compare with a teacher's; choose queries"
            yield ("stages", stage, "terms", name, "loss"), text


def _check_first_pass(recipe: "Recipe") -> Iterator[Problem]:
    """Queries are read with documents of one frozen index, by a template that names them."""
    settings = recipe.encoder.tokenization
    if (recipe.first_pass is not None) != bool(settings.query.first_documents):
        text = "the documents of `first_pass` are fields {first_1}, {first_2}, ...; set both or neither"
        yield ("encoder", "tokenization", "query", "template"), text
    if recipe.first_pass is None:
        return
    if settings.document.passages > 1:
        text = "the first pass finds whole documents, and Pyserini's no texts of passages; set it to 1"
        yield ("encoder", "tokenization", "document", "passages"), text
    for name, stage in recipe.stages.items():
        if stage.trainable != "query_tower":
            text = "the first pass searches an index that never changes; set it to query_tower"
            yield ("stages", name, "trainable"), text
        is_new_start = stage.starts_from_checkpoint or (
            stage.init_from == "initial" and recipe.external_starts
        )
        if is_new_start and recipe.stage_before(name):
            text = "the first pass is by the encoder that the first stage starts from; start from `previous`"
            yield ("stages", name, "init_from"), text


def _check_trained_queries(recipe: "Recipe") -> Iterator[Problem]:
    """Chunks are of queries that all have positives, and all stages train on the same judgments."""
    for name, stage in recipe.stages.items():
        if stage.effective_refresh.query_chunks > 1 and recipe.finds_positives:
            text = "queries without positives train (refresh.positives_top_k); remove one of the keys"
            yield ("stages", name, "refresh", "query_chunks"), text
        for split in stage.train_split or ():
            if split not in recipe.train_split:
                names = ", ".join(recipe.train_split)
                text = f"{split!r} is none of the recipe's train_split ({names}); add it there"
                yield ("stages", name, "train_split"), text
        if recipe.knows_last_positive_alone and stage.positives != "last":
            text = f"{stage.positives}, but with `last` in another stage training knows no other positives"
            yield ("stages", name, "positives"), f"{text}; set stages.{name}.positives=last"


def _check_made_queries(recipe: "Recipe") -> Iterator[Problem]:
    """Queries that are made of documents train, and measure nothing."""
    if (made := recipe.data.train_queries) is None:
        return
    evaluated = [stage.evaluate.split for stage in recipe.stages.values() if stage.evaluate]
    if made.split not in recipe.train_split or made.split in {*recipe.final_evaluation.split}.union(
        *evaluated
    ):
        text = f"{made.split!r}: made queries train; name it in train_split, and measure on other splits"
        yield ("data", "train_queries", "split"), text


def _check_bm25(recipe: "Recipe") -> Iterator[Problem]:
    """BM25 retrieves as many documents as `bm25` negatives look at, and is there for a `bm25` teacher."""
    if recipe.bm25 is None:
        yield from ((key, NEEDS_BM25) for key, needs in _all_needs(recipe) if "bm25" in needs)
        return
    for leaf in (leaf for source in recipe.sources for leaf in source.components if leaf.kind == "bm25"):
        source = cast("Bm25", leaf)
        top_k = source.top_k + source.extra_for_filters
        if top_k > recipe.bm25.hits:
            text = f"{recipe.bm25.hits}, but a `bm25` source with its filters reads {top_k} documents"
            yield ("bm25", "hits"), f"{text}; set bm25.hits={top_k}"


def _check_trained_teachers(recipe: "Recipe") -> Iterator[Problem]:
    """Each cross-encoder of `teachers` is trained before it is used."""
    trained: list[str] = []
    for key, needs in _all_needs(recipe):
        for name in (need.removeprefix(TRAINED) for need in sorted(needs) if need.startswith(TRAINED)):
            if name not in trained:
                text = (
                    f"`teachers` has no {name!r} that is trained before this{did_you_mean(name, trained)}; "
                    f"trained before: {', '.join(trained) or 'none'}"
                )
                yield key, text
        if key[0] == "teachers" and key[2] == "init_from":
            trained.append(str(key[1]))


def _all_needs(recipe: "Recipe") -> Iterator[tuple[Key, frozenset[str]]]:
    """The keys of all sources and teachers with what these need, in the order in which they train.

    A mix has what the sources within it need. The last key of a trained teacher is its start.
    """
    for stage_name, stage in recipe.stages.items():
        for term_name, term in stage.terms.items():
            key: Key = ("stages", stage_name, "terms", term_name)
            for position, source in enumerate(term.negatives):
                yield (*key, "negatives", position), source.needs
            if term.teacher is not None:
                yield (*key, "teacher"), term.teacher.needs
        for name, teacher in recipe.teachers_after(stage_name).items():
            for position, source in enumerate(teacher.negatives):
                yield ("teachers", name, "negatives", position), source.needs
            start = teacher.init_from
            yield ("teachers", name, "init_from"), frozenset({start} if start.startswith(TRAINED) else ())


def _check_previous_tables(recipe: "Recipe") -> Iterator[Problem]:
    """A term that draws from the tables of the same term in the previous stage finds them, of all queries."""
    for stage_name, stage in recipe.stages.items():
        before = recipe.stage_before(stage_name)
        previous: Stage | None = None if before is None else recipe.stages[before]
        for name, term in stage.terms.items():
            if not any(leaf.uses_previous_tables for leaf in term.components):
                continue
            same = previous and previous.terms.get(name)
            if not (same and same.anchor == term.anchor and any(one.is_mined for one in same.negatives)):
                text = (
                    "momentum draws from the tables of the same term in the previous stage, which has no "
                    f"term {name!r} with `anchor: {term.anchor}` and a source that is mined (its terms: "
                    f"{', '.join(previous.terms if previous else ()) or 'none'}); give both terms one name, "
                    "or remove the source"
                )
                yield ("stages", stage_name, "terms", name, "negatives"), text
                continue
            assert previous is not None
            chunked = previous.refresh is not None and previous.refresh.query_chunks > 1
            if any(
                getattr(one, "min_candidates", 0) or (chunked and one.is_dynamic) for one in same.negatives
            ):
                text = (
                    "momentum draws from tables of all queries, but the previous stage ends with those of "
                    "some; remove min_candidates and refresh.query_chunks there"
                )
                yield ("stages", stage_name, "terms", name, "negatives"), text


def _check_evaluated_splits(recipe: "Recipe") -> Iterator[Problem]:
    """No split under a key of `final_evaluation` is misspelt: it would be ignored, as those are that a base
    wrote for its own data."""
    if getattr(recipe.data, "splits", None) is None:  # the files themselves say which splits there are
        return
    splits = list(dict.fromkeys([*recipe.data.split_names, recipe.train_name]))
    for key in PER_SPLIT_KEYS:
        by_split = getattr(recipe.final_evaluation, key)
        for split in by_split if isinstance(by_split, dict) else ():
            if split not in splits and (near := did_you_mean(split, splits)):
                text = f"no split {split!r}{near}; splits of `data`: {', '.join(splits)}"
                yield ("final_evaluation", key), f"{text}; add it there, or set final_evaluation.{key} anew"


def _check_reranking(recipe: "Recipe") -> Iterator[Problem]:
    """The row that is reranked is there."""
    if recipe.bm25 is not None and "bm25" in recipe.final_evaluation.rows:
        return
    for split, ranking in recipe.final_evaluation.reranked.items():
        if ranking == "bm25":
            text = "reranks the row bm25, which `bm25: null` or final_evaluation.rows leaves out"
            key = ("final_evaluation", "rerank", split)
            yield key, f"{text}; add it, name a file, or remove this with {'.'.join(key)}=null"
