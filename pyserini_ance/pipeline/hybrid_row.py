"""The row `hybrid` of the results table: BM25's ranking fused with that of the run's result, as Pyserini
fuses them, and Pyserini's command for it."""

import shlex
import time
from collections.abc import Sequence
from itertools import batched
from typing import Any

from pyserini_ance.data.trec import Rows, read_run, write_run
from pyserini_ance.evaluation.tables import BM25, HYBRID
from pyserini_ance.pipeline.final_evaluator import FinalEvaluator
from pyserini_ance.runs.rundir import RunDir

METHOD = "normalize"  # each query's scores scaled to 0-1 in each ranking, then summed
QUERIES_PER_BLOCK = 256  # with 1,000 hits of two rankings, a block takes 200 MB


def hybrid_row(row: str, evaluator: FinalEvaluator) -> dict[str, Any]:
    """The measures of the hybrid of BM25 and `row`, with equal weights, made unless they exist.

    The rankings of both rows must exist. Called by all processes; the main process fuses.
    """
    if (recorded := evaluator.read_row(HYBRID)) is not None:
        return recorded
    start = time.perf_counter()
    evaluator.world.on_main(lambda: _write(row, evaluator))
    return evaluator.measure(HYBRID, time.perf_counter() - start)


def _write(row: str, evaluator: FinalEvaluator) -> None:
    from pyserini_ance.pyserini_bridge.searchers import DECIMALS

    run, test = evaluator.run, evaluator.recipe.final_evaluation
    for split in test.split:
        hits = _fused(run, (BM25, row), split, test.hits)
        write_run(run.ranking(HYBRID, split), hits, HYBRID, DECIMALS)


def _fused(run: RunDir, rows: Sequence[str], split: str, hits: int) -> Rows:
    """The first `hits` documents of the fusion of several rows' rankings, block of queries by block."""
    from pyserini_ance.pyserini_bridge.searchers import fuse

    rankings = [read_run(run.ranking(row, split)) for row in rows]
    queries = dict.fromkeys(query for ranking in rankings for query in ranking)
    for block in batched(queries, QUERIES_PER_BLOCK):
        parts = [{query: ranking[query] for query in block if query in ranking} for ranking in rankings]
        for query, documents in fuse(parts, METHOD, pool=hits, hits=hits).items():
            yield from ((query, document, score) for document, score in documents.items())


def fusion_command(run: RunDir, splits: Sequence[str], hits: int) -> str:
    """Pyserini's shell command, one for each test split, that makes the ranking of the row."""
    from pyserini_ance.pyserini_bridge.export import python_program

    commands = []
    for split in splits:
        output = run.folder / ("run.hybrid.txt" if len(splits) == 1 else f"run.hybrid.{split}.txt")
        files = ["--runs", run.ranking(BM25, split), run.final_run(split), "--output", output]
        options = ["--method", METHOD, *files, "--depth", hits, "--k", hits]
        commands.append(shlex.join(map(str, [python_program(), "-m", "pyserini.fusion", *options])))
    return "\n".join(commands)
