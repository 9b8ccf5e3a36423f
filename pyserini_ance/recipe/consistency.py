"""Checks across the stages of a recipe and its other settings.

Each raises ValueError naming the key and the cure, or ValidationError with an error at each key.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, cast

from pydantic import ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from pyserini_ance.recipe.components import did_you_mean
from pyserini_ance.recipe.evaluation_settings import PER_SPLIT_KEYS
from pyserini_ance.recipe.init_from import InitFrom
from pyserini_ance.recipe.stage import Stage
from pyserini_ance.recipe.teacher_training import TRAINED, TeacherStart
from pyserini_ance.recipe.term import Term

if TYPE_CHECKING:
    from pyserini_ance.negatives.rankings import Bm25
    from pyserini_ance.recipe.models import Recipe

Key = tuple[str | int, ...]
NEEDS_BM25 = (
    "a source or a teacher of kind `bm25` needs BM25, but `bm25: null`; configure `bm25:`, pass a file to "
    "the kind `ranking`, or remove the source, or its stage (`STAGE: null`)"
)


def check_consistency(recipe: "Recipe") -> None:
    """Raise ValueError at the first setting that contradicts another one."""
    _check_optimizer_moments(recipe.stages)
    _check_schedules(recipe)
    _check_batch_sizes(recipe)
    _check_bm25(recipe)
    _check_teachers(recipe)
    _check_previous_stages(recipe)
    _check_evaluated_splits(recipe)
    _check_unjudged(recipe)
    _check_reranking(recipe)


def _check_optimizer_moments(stages: dict[str, Stage]) -> None:
    """A stage with `keep_optimizer` has the optimizer and the trainable towers of the previous stage."""
    name, first = next(iter(stages.items()))
    if first.keep_optimizer:
        raise ValueError(f"stages.{name} is the first stage: there is no optimizer to keep")
    for (previous_name, previous), (name, stage) in pairwise(stages.items()):
        if not stage.keep_optimizer:
            continue
        kind, previous_kind = stage.optimizer.kind, previous.optimizer.kind
        if kind != previous_kind:
            raise ValueError(
                f"stages.{name}.keep_optimizer: its optimizer is {kind}, that of stages.{previous_name} is "
                f"{previous_kind}; use one kind for both"
            )
        if previous.average is not None:
            raise ValueError(
                f"stages.{name}.keep_optimizer: the result of stages.{previous_name} is an average, which "
                "has no moments; remove keep_optimizer, or that `average`"
            )
        if stage.trainable != previous.trainable:
            raise ValueError(
                f"stages.{name} trains other towers than the previous stage: there are no moments to keep; "
                "remove keep_optimizer"
            )


def _check_schedules(recipe: "Recipe") -> None:
    """A schedule that an earlier stage has begun goes on from its last step, not from a better one before."""
    for name, stage in recipe.stages.items():
        start = stage.init_from
        start_name = start.stage if isinstance(start, InitFrom) else recipe.stage_before(name)
        if not stage.lr_schedule.offset_steps or start == "initial" or start_name not in recipe.stages:
            continue
        evaluate = recipe.stages[start_name].evaluate
        if not stage.starts_from_checkpoint and evaluate is not None and evaluate.keep_best:
            raise ValueError(
                f"stages.{name}.lr_schedule.offset_steps is {stage.lr_schedule.offset_steps}, but with "
                f"stages.{start_name}.evaluate.keep_best: true the stage may start from an earlier step; "
                f"set stages.{start_name}.evaluate.keep_best=false, or remove offset_steps"
            )


def _check_batch_sizes(recipe: "Recipe") -> None:
    """With `sampling: equal`, each split has the same share of a batch."""
    splits = len(recipe.train_split.splits)
    for name, stage in recipe.stages.items():
        if recipe.train_split.sampling == "equal" and stage.batch_queries % splits:
            raise ValueError(
                f"stages.{name}.batch_queries is {stage.batch_queries}, but train_split.sampling: equal "
                f"draws equally many queries of each of {splits} splits; use a multiple of {splits}, or "
                "sampling: proportional"
            )


def _check_evaluated_splits(recipe: "Recipe") -> None:
    """Every split under a key of `final_evaluation` exists, evaluated or not: a misspelt one would be
    ignored."""
    if getattr(recipe.data, "splits", None) is None:  # the files themselves say which splits there are
        return
    final_evaluation = recipe.final_evaluation
    splits = list(dict.fromkeys([*recipe.data.split_names, recipe.train_split.name]))
    for key in PER_SPLIT_KEYS:
        by_split = getattr(final_evaluation, key)
        for split in by_split if isinstance(by_split, dict) else ():
            if split in splits:
                continue
            cure = ""
            if split in final_evaluation.split:
                others = ", ".join(name for name in final_evaluation.split if name in splits)
                cure = f"; add it there, or evaluate others: final_evaluation.split=[{others}]"
            raise ValueError(
                f"final_evaluation.{key} names split {split!r}{did_you_mean(split, splits)}; "
                f"splits of `data`: {', '.join(splits)}{cure}"
            )


def _check_unjudged(recipe: "Recipe") -> None:
    """Only training splits keep queries without positives, which only `refresh.positives_top_k` uses."""
    kept = recipe.data.keep_unjudged
    finding = [name for name, one in recipe.stages.items() if one.effective_refresh.positives_top_k]
    if finding and not kept:
        raise ValueError(
            f"stages.{finding[0]}.refresh.positives_top_k finds positives for questions without one, but "
            f"`data` leaves them out; set data.keep_unjudged=[{', '.join(recipe.train_split.splits)}]"
        )
    evaluated = {split for one in recipe.stages.values() if one.evaluate for split in one.evaluate.split}
    evaluated |= set(recipe.final_evaluation.split)
    if recipe.data.hold_out:
        evaluated.add(recipe.data.hold_out.source)
    for split in kept:
        if split not in recipe.train_split.splits or split in evaluated:
            raise ValueError(
                f"data.keep_unjudged names split {split!r}, which is evaluated, held out from, or not "
                f"trained on; expected splits of train_split alone: {', '.join(recipe.train_split.splits)}"
            )
    for name, stage in recipe.stages.items():
        if kept and stage.effective_refresh.query_chunks > 1:
            raise ValueError(
                f"stages.{name}.refresh.query_chunks divides queries that all have positives, but "
                "data.keep_unjudged keeps others; remove one of them"
            )


def _check_reranking(recipe: "Recipe") -> None:
    """The ranking that is reranked exists and is long enough."""
    final_evaluation = recipe.final_evaluation
    for split, rerank in final_evaluation.reranked.items():
        key = f"final_evaluation.rerank.{split}"
        if rerank.file is None and recipe.bm25 is None:
            raise ValueError(
                f"{key} reranks BM25's ranking, but `bm25: null`; pass a `file`, or configure `bm25:`"
            )
        if rerank.file is None and "bm25" not in final_evaluation.rows:
            raise ValueError(
                f"{key} reranks the ranking of the row bm25, which final_evaluation.rows lacks; "
                "add it, or pass a `file`"
            )
        if rerank.file is None and rerank.hits > final_evaluation.hits:
            raise ValueError(
                f"{key}.hits is {rerank.hits}, but BM25 ranks {final_evaluation.hits} documents "
                f"(final_evaluation.hits); set final_evaluation.hits={rerank.hits}"
            )


def _check_previous_stages(recipe: "Recipe") -> None:
    """A stage that mines with the previous model, or draws from the previous tables, has such a previous
    stage."""
    for name, stage in recipe.stages.items():
        previous_name = recipe.stage_before(name)
        previous = None if previous_name is None else recipe.stages[previous_name]
        if previous is None and stage.mines_with_previous:
            raise ValueError(
                f"stages.{name}.refresh.initial_model: previous_stage, but no stage comes before it; "
                "remove the key"
            )
        for term_name, term in stage.terms.items():
            if any(leaf.uses_previous_tables for leaf in term.components):
                _check_previous_tables(
                    f"stages.{name}.terms.{term_name}.negatives", term_name, term, previous
                )


def _check_previous_tables(key: str, name: str, term: Term, previous: Stage | None) -> None:
    if previous is None:
        raise ValueError(
            f"{key}: momentum draws from the negatives of the previous stage, but this is the first stage; "
            "remove the source here"
        )
    same = previous.terms.get(name)
    if same is None or same.anchor != term.anchor or not any(source.is_mined for source in same.negatives):
        raise ValueError(
            f"{key}: momentum draws from the tables of the same term in the previous stage, which has no "
            f"term {name!r} with `anchor: {term.anchor}` and a source that is mined (its terms: "
            f"{', '.join(previous.terms)}); give both terms one name, or remove the source"
        )
    if any(getattr(source, "min_candidates", 0) for source in same.negatives):
        raise ValueError(
            f"{key}: momentum draws from tables of all queries, but the previous stage leaves queries out of "
            "its tables; remove min_candidates there"
        )
    if (
        previous.refresh
        and previous.refresh.query_chunks > 1
        and any(source.is_dynamic for source in same.negatives)
    ):
        raise ValueError(
            f"{key}: momentum draws from tables of all queries, but the previous stage ends with the tables "
            f"of one of {previous.refresh.query_chunks} chunks; remove refresh.query_chunks there"
        )


def _check_bm25(recipe: "Recipe") -> None:
    """BM25 retrieves as many documents as `bm25` negatives look at, and is there for a `bm25` teacher."""
    if recipe.bm25 is None and "bm25" in recipe.training_needs:
        raise _errors(recipe, [(key, NEEDS_BM25) for key, needs in _all_needs(recipe) if "bm25" in needs])
    for leaf in (leaf for source in recipe.sources for leaf in source.components):
        if leaf.kind != "bm25":
            continue
        assert recipe.bm25 is not None
        source = cast("Bm25", leaf)
        top_k = source.top_k + source.filtered_candidates
        if top_k > recipe.bm25.hits:
            reads = f"with its filters reads {top_k} documents" if source.filters else f"has top_k {top_k}"
            raise ValueError(
                f"a `bm25` source {reads}, but bm25.hits is {recipe.bm25.hits}; set bm25.hits={top_k}"
            )


def _check_teachers(recipe: "Recipe") -> None:
    """Each cross-encoder of `teachers` follows a stage, and is trained before it is used."""
    stages = list(recipe.stages)
    problems: list[tuple[Key, str]] = []
    for name, teacher in recipe.teachers.items():
        if teacher.after not in stages:
            text = (
                f"no stage {teacher.after!r}{did_you_mean(teacher.after, stages)}; stages: "
                f"{', '.join(stages)}; set `after`, or remove the teacher: teachers.{name}=null"
            )
            problems.append((("teachers", name, "after"), text))
        if name in stages:  # the files of both would have one name
            problems.append((("teachers", name), "a stage has this name; give the teacher another one"))
    if problems:
        raise _errors(recipe, problems)
    trained: list[str] = []
    for key, needs in _all_needs(recipe):
        for name in (need.removeprefix(TRAINED) for need in sorted(needs) if need.startswith(TRAINED)):
            if name not in trained:
                text = (
                    f"`teachers` has no {name!r} that is trained before this{did_you_mean(name, trained)}; "
                    f"trained before: {', '.join(trained) or 'none'}"
                )
                problems.append((key, text))
        if key[0] == "teachers" and key[2] == "init_from":
            trained.append(str(key[1]))
    if problems:
        raise _errors(recipe, problems)


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
            start = teacher.init_from.teacher if isinstance(teacher.init_from, TeacherStart) else None
            needs = frozenset({TRAINED + start} if start else ())
            yield ("teachers", name, "init_from", "teacher"), needs


def _errors(recipe: "Recipe", problems: Sequence[tuple[Key, str]]) -> ValidationError:
    """One error for each key, with its message."""
    errors = [
        InitErrorDetails(
            type=PydanticCustomError("missing_input", "{message}", {"message": text}), loc=key, input={}
        )
        for key, text in problems
    ]
    return ValidationError.from_exception_data(type(recipe).__name__, errors)
