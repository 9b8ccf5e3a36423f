"""Products of refreshes: the requests for them, in a file that a refresher polls, and what was published: dev
evaluations, and generations of negative tables."""

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Literal

import numpy as np

from pyserini_ance.data.scored_pairs import ScoredPairs
from pyserini_ance.distributed.world import World
from pyserini_ance.negatives.source import TableSource
from pyserini_ance.negatives.table import NegativeTable
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.recipe.refresh_settings import CorrectedEncoding
from pyserini_ance.recipe.stage import Stage
from pyserini_ance.runs.run_log import RunLog
from pyserini_ance.runs.rundir import RunDir, complete_steps, step_of
from pyserini_ance.storage.files import read_json, read_json_object, save_array, sha256_json, write_json
from pyserini_ance.storage.publish import is_complete, publishing, read_manifest

ProductKind = Literal["tables", "dev"]
# The kinds, with the names that messages use. Tables are made first: training draws from them.
PRODUCT_NAMES: dict[ProductKind, str] = {"tables": "generation of negatives", "dev": "dev score"}
TableKey = tuple[str, int]  # term, index of the source in the term
REPORT = "report.json"
RANKS_SUFFIX = ".positive_ranks.npy"  # of the ranks of a table's positives, next to the report
TEACHER_SUFFIX = ".teacher"  # of the folder of a term's teacher scores, next to those of its tables
# A key in a manifest: the digest of the previous stage's tables that were reused.
PREVIOUS_TABLES = "previous tables"
# A key in a manifest and a report: how many documents were encoded to mine, and which vectors were corrected.
ENCODED = "encoded"


@dataclass(frozen=True)
class RefreshRequest:
    """A product to make of the checkpoint before `step` of `stage`, whose weights have the hash `weights`.

    is_awaited: training waits for this very product; otherwise a newer one is as good.
    checkpoint: the name of another checkpoint to make the product of, from the previous stage.
    """

    kind: ProductKind
    stage: str
    step: int
    weights: str
    is_awaited: bool = True
    checkpoint: str = ""

    def folder(self, run: RunDir) -> Path:
        return run.checkpoints / self.checkpoint if self.checkpoint else run.checkpoint(self.stage, self.step)

    def is_done(self, run: RunDir) -> bool:
        if self.kind == "tables":
            return is_complete(run.generation(self.stage, self.step))
        return run.evaluation(self.stage, self.step).exists()

    def describe(self) -> str:
        return f"{PRODUCT_NAMES[self.kind]} of stage {self.stage}, step {self.step}"


def write_requests(run: RunDir, requests: Iterable[RefreshRequest]) -> None:
    write_json(run.requests, {"requests": [asdict(request) for request in requests]})


def read_requests(run: RunDir) -> list[RefreshRequest]:
    """Read the open requests of the run; none when the file is missing."""
    content = read_json_object(run.requests)
    return [RefreshRequest(**request) for request in content["requests"]] if content else []


def next_requests(requests: Collection[RefreshRequest], run: RunDir) -> list[RefreshRequest]:
    """Return the requests that a refresher serves next, all of one checkpoint; none when all are done.

    Tables come before dev evaluations, because training draws from them. Among awaited tables the oldest come
    first, among other tables the newest. Dev evaluations are made from the oldest on, because each is needed.
    """
    waiting = [request for request in requests if not request.is_done(run)]
    tables = [request for request in waiting if request.kind == "tables"]
    awaited = [request for request in tables if request.is_awaited]
    first = next(iter(awaited or tables[::-1] or waiting), None)
    if first is None:
        return []
    return sorted(
        (request for request in waiting if (request.stage, request.step) == (first.stage, first.step)),
        key=lambda request: list(PRODUCT_NAMES).index(request.kind),
    )


def publish_evaluation(
    path: Path, values: Mapping[str, float], weights: str, seconds: dict[str, float]
) -> None:
    """Write a checkpoint's dev measure: the mean of `values` by split, and the values if they are several."""
    path.parent.mkdir(parents=True, exist_ok=True)
    splits = {"splits": dict(values)} if len(values) > 1 else {}
    write_json(path, {"value": fmean(values.values()), **splits, "weights": weights, "seconds": seconds})


def open_evaluation(path: Path, weights: str) -> dict:
    """Read a dev evaluation: `value`, `splits` when there are several, and `seconds`.

    Raises RuntimeError when it was measured with other weights.
    """
    evaluation = read_json(path)
    if evaluation["weights"] != weights:
        raise RuntimeError(
            f"{path} was measured with weights {evaluation['weights'][:12]}, expected {weights[:12]}; "
            "remove it"
        )
    return evaluation


@dataclass(frozen=True)
class Generation:
    """The tables that were mined with the checkpoint before `step`.

    `tables` are by (term, index of the source in the term), `teacher_scores` by the term of the teacher.
    `report` holds `tables` (the report of each by `mine_table`) and `seconds` (by task).
    """

    folder: Path
    step: int
    weights: str
    tables: dict[TableKey, NegativeTable]
    report: dict
    teacher_scores: dict[str, ScoredPairs] = field(default_factory=dict)


def publish_generation(
    folder: Path,
    tables: Mapping[TableKey, NegativeTable],
    reports: dict[str, dict],
    seconds: dict[str, float],
    about: dict,
    teacher_scores: Mapping[str, ScoredPairs] | None = None,
    teacher_reports: dict[str, dict] | None = None,
    encoded: dict | None = None,
) -> None:
    """Write `tables`, their `reports`, and what they were made from (`about`: stage, step, weights, data).

    `teacher_scores` and `teacher_reports` are by term. `encoded` says how many documents were encoded, and
    which vectors were corrected.
    """
    start = time.perf_counter()
    with publishing(folder, about) as temporary:
        for key, table in tables.items():
            table.save(temporary / table_name(key))
            if table.positive_ranks is not None:
                save_array(temporary / f"{table_name(key)}{RANKS_SUFFIX}", table.positive_ranks)
        for term, scores in (teacher_scores or {}).items():
            scores.save(temporary / f"{term}{TEACHER_SUFFIX}")
        seconds = {**seconds, "write": time.perf_counter() - start}
        report = {"tables": reports, "seconds": {task: round(value, 3) for task, value in seconds.items()}}
        if teacher_reports:
            report["teachers"] = teacher_reports
        if encoded:
            report[ENCODED] = encoded
        write_json(temporary / REPORT, report)


def open_generation(folder: Path, made_from: Mapping[str, str]) -> Generation:
    """Read and verify a published generation.

    Raises RuntimeError when its manifest differs from `made_from` (weights, data).
    """
    manifest = read_manifest(folder)
    for key, expected in made_from.items():
        if manifest[key] != expected:
            raise RuntimeError(
                f"{folder} was mined with {key} {manifest[key][:12]}, expected {expected[:12]}; "
                f"remove it, or restore that {key}"
            )
    tables, teacher_scores = {}, {}
    for name in sorted({str(Path(file).parent) for file in manifest["parts"] if "/" in file}):
        term, _, index = name.rpartition(".")
        if name.endswith(TEACHER_SUFFIX):
            teacher_scores[term] = ScoredPairs.open(folder / name)
        else:
            tables[term, int(index)] = NegativeTable.load(folder / name)
    report = read_json(folder / REPORT)
    return Generation(folder, manifest["step"], manifest["weights"], tables, report, teacher_scores)


def read_positive_ranks(generation: Path, table: str) -> np.ndarray | None:
    """(A,) int32 ranks of the positives of a generation's table, 0 beyond its ranking; None if it has none.

    Raises FileNotFoundError for a generation that was removed.
    """
    read_manifest(generation, verify=False)
    path = generation / f"{table}{RANKS_SUFFIX}"
    return np.load(path, allow_pickle=False) if path.exists() else None


def in_use(stage: Stage, adoptions: Sequence[dict]) -> list[dict]:
    """The adoptions of a stage whose tables are in use after all of them.

    Static tables are those of the first adoption, others those of the last.
    """
    static = mined_sources(stage).keys() - mined_sources(stage, dynamic_only=True).keys()
    return [*(adoptions[:1] if static else []), *adoptions[-1:]]


def newest_generation_before(run: RunDir, stage: str, step: int) -> Path | None:
    """The folder of the last complete generation of `stage` that was mined before `step`."""
    name = run.generation(stage, step).name
    before = [folder for folder in complete_steps(run.negatives, stage) if folder.name < name]
    return before[-1] if before else None


def base_before(run: RunDir, stage: str, step: int, encode: CorrectedEncoding) -> int | None:
    """The step of the generation of `stage` whose vectors the refresh at `step` corrects: the last complete
    one before, for a sample the last for which all documents were encoded."""
    for folder in reversed(complete_steps(run.negatives, stage)):
        encoded = read_manifest(folder, verify=False).get(ENCODED, {})
        if step_of(folder.name) < step and (encode.part or not encoded.get("corrected")):
            return step_of(folder.name)
    return None


def mined_sources(stage: Stage, dynamic_only: bool = False) -> dict[TableKey, TableSource]:
    """The sources of a stage that have tables, by (term, index in the term)."""
    return {
        (name, index): source
        for name, term in stage.terms.items()
        for index, source in enumerate(term.negatives)
        if isinstance(source, TableSource) and (source.is_dynamic or not dynamic_only)
    }


def table_name(key: TableKey) -> str:
    return f"{key[0]}.{key[1]}"


@dataclass(frozen=True)
class PreviousStage:
    """The result of the previous stage, and the tables with which it ended.

    result, weights: name and weights hash of its resulting checkpoint.
    generations: weights hashes of the tables last in use, by folder relative to the run directory.
    """

    run: RunDir
    result: str
    weights: str
    generations: dict[str, str]

    @classmethod
    def of(cls, recipe: Recipe, run: RunDir, name: str, world: World) -> "PreviousStage":
        """Look up the stage before stage `name`. Called by all processes.

        Raises RuntimeError when that stage has not ended.
        """
        before = recipe.stage_before(name)
        assert before is not None, "the first stage has no previous stage"

        def look_up() -> dict:
            log = RunLog(run, writes=False)
            if not (ended := log.decisions("stage_end", before)):
                raise RuntimeError(
                    f"{run.decisions} records no end of stage {before}, which the next stage starts from"
                )
            adopted = in_use(recipe.stages[before], log.decisions("adopt", before))
            used = {record["folder"]: record["weights"] for record in adopted}
            return {"result": ended[-1]["result"], "weights": ended[-1]["weights"], "generations": used}

        return cls(run, **world.on_main(look_up))

    def tables(self, identity: Mapping[str, str]) -> dict[TableKey, NegativeTable]:
        """The tables, which record their generation as origin. Raises as `open_generation` does."""
        tables = {}
        for folder, weights in self.generations.items():
            opened = open_generation(self.run.folder / folder, {"weights": weights, **identity}).tables
            tables.update({key: table.of_generation(Path(folder).name) for key, table in opened.items()})
        return tables

    def digest(self) -> str:
        """A digest of the tables, without what only describes them, for the manifest of what uses them."""
        digests = {}
        for folder in self.generations:
            files = read_manifest(self.run.folder / folder, verify=False)["parts"]
            digests[folder] = sha256_json({name: one["sha256"] for name, one in files.items() if "/" in name})
        return sha256_json(digests)
