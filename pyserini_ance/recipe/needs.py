"""Checks that what sources and teachers need is there: BM25, and the cross-encoders that the run trains.

Each raises ValidationError at the keys that need it, or ValueError, with the cure.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, cast

from pydantic import ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from pyserini_ance.recipe.components import did_you_mean
from pyserini_ance.recipe.stage import Stage
from pyserini_ance.recipe.teacher_training import TRAINED, TeacherStart, TrainedTeacher

if TYPE_CHECKING:
    from pyserini_ance.negatives.bm25 import Bm25
    from pyserini_ance.recipe.models import Recipe

Place = tuple[str | int, ...]
NEEDS_BM25 = (
    "a source or a teacher of kind `bm25` needs BM25, but `bm25: null`; configure `bm25:`, pass a file to "
    "the kind `ranking`, or remove the source, or its stage (`STAGE: null`)"
)


def check_bm25(recipe: "Recipe") -> None:
    """BM25 retrieves as many documents as `bm25` negatives look at, and is there for a `bm25` teacher."""
    if recipe.bm25 is None and "bm25" in recipe.training_needs:
        places = [place for place, needs in _all_needs(recipe) if "bm25" in needs]
        raise _errors(recipe, [(place, NEEDS_BM25) for place in places])
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


def check_teachers(recipe: "Recipe") -> None:
    """Each cross-encoder of `teachers` follows a stage, and is trained before it is used."""
    stages = list(recipe.stages)
    problems: list[tuple[Place, str]] = []
    for name, teacher in recipe.teachers.items():
        if teacher.after not in stages:
            near = did_you_mean(teacher.after, stages)
            text = (
                f"no stage {teacher.after!r}{near}; stages: {', '.join(stages)}; set `after`, or remove the "
                f"teacher: teachers.{name}=null"
            )
            problems.append((("teachers", name, "after"), text))
        if name in stages:  # the files of both would have one name
            problems.append((("teachers", name), "a stage has this name; give the teacher another one"))
    if problems:
        raise _errors(recipe, problems)
    trained: list[str] = []
    for stage_name, stage in recipe.stages.items():
        problems += _untrained(_stage_needs(stage_name, stage), trained)
        for name, teacher in recipe.teachers_after(stage_name).items():
            needs = [*_teacher_needs(name, teacher)]
            if isinstance(teacher.init_from, TeacherStart) and teacher.init_from.teacher:
                place = ("teachers", name, "init_from", "teacher")
                needs.append((place, frozenset({TRAINED + teacher.init_from.teacher})))
            problems += _untrained(needs, trained)
            trained.append(name)
    if problems:
        raise _errors(recipe, problems)


def _untrained(
    needs: Iterable[tuple[Place, frozenset[str]]], trained: Sequence[str]
) -> list[tuple[Place, str]]:
    """What is needed of `teachers` and not in `trained`."""
    missing = (
        (place, need.removeprefix(TRAINED))
        for place, of_place in needs
        for need in sorted(of_place)
        if need.startswith(TRAINED) and need.removeprefix(TRAINED) not in trained
    )
    return [
        (
            place,
            f"`teachers` has no {name!r} that is trained before this{did_you_mean(name, trained)}; trained "
            f"before: {', '.join(trained) or 'none'}",
        )
        for place, name in missing
    ]


def _all_needs(recipe: "Recipe") -> Iterator[tuple[Place, frozenset[str]]]:
    """The keys of all sources and teachers with what they need; a mix has that of the sources within it."""
    for stage_name, stage in recipe.stages.items():
        yield from _stage_needs(stage_name, stage)
    for name, teacher in recipe.teachers.items():
        yield from _teacher_needs(name, teacher)


def _stage_needs(name: str, stage: Stage) -> Iterator[tuple[Place, frozenset[str]]]:
    for term_name, term in stage.terms.items():
        place: Place = ("stages", name, "terms", term_name)
        for position, source in enumerate(term.negatives):
            yield (*place, "negatives", position), source.needs
        if term.teacher is not None:
            yield (*place, "teacher"), term.teacher.needs


def _teacher_needs(name: str, teacher: TrainedTeacher) -> Iterator[tuple[Place, frozenset[str]]]:
    for position, source in enumerate(teacher.negatives):
        yield ("teachers", name, "negatives", position), source.needs


def _errors(recipe: "Recipe", problems: Sequence[tuple[Place, str]]) -> ValidationError:
    """One error for each key, with its message."""
    return ValidationError.from_exception_data(
        type(recipe).__name__,
        [
            InitErrorDetails(
                type=PydanticCustomError("missing_input", "{message}", {"message": message}),
                loc=place,
                input={},
            )
            for place, message in problems
        ],
    )
