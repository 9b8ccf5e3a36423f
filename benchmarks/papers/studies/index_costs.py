"""What the index that training searches costs and gives: its size and quality, the hours, and the result.

Source: Zhan et al. 2020 (LTRe), arXiv:2010.10469, Table 3.
"""

from collections.abc import Sequence
from pathlib import Path

from benchmarks.papers.studies.figures import Panel, bars, heights
from benchmarks.papers.studies.stage_hours import SECONDS_PER_HOUR, training_seconds
from benchmarks.papers.studies.studied_run import Findings, Row, StudiedRun
from pyserini_ance.evaluation.tables import BM25, last_stage
from pyserini_ance.pyserini_bridge.vector_files import read_index
from pyserini_ance.reports.compare import EXACT
from pyserini_ance.vectors.faiss_index import FLAT, write_index_file

GB = 1e9
# GB of the index, hours and speed-up of "LTRe (BM25 Neg)"; one 2080 Ti, exact four. ANCE: 26, 645 and 1.
PUBLISHED = {
    "OPQ6,IVF1,PQ6": (0.1, None, None),
    "OPQ12,IVF1,PQ12": (0.2, None, None),
    "OPQ24,IVF1,PQ24": (0.2, 3.0, 215),
    "OPQ48,IVF1,PQ48": (0.5, 3.2, 202),
    "OPQ96,IVF1,PQ96": (0.9, 3.7, 174),
    EXACT: (26.0, 3.6, 179),
}


def study(runs: Sequence[StudiedRun]) -> Findings:
    """A row for each run: the index of training, made again for its size; the peak of GPU memory; the first
    measure of the start by that index, if `final_evaluation.indexes` has it; hours, and their ratio to the
    first run's; the result's measures."""
    rows = [_row(run) for run in runs]
    for row in rows:
        row["speedup"] = rows[0]["hours"] / row["hours"] if row["hours"] else None
    measure = str(runs[0].results["measures"][0])
    shown = ("index GB", "hours", measure)
    panels = [Panel(key, "run", key, bars(heights(rows, "run", "index", key))) for key in shown]
    return Findings(rows, panels)


def _row(run: StudiedRun) -> Row:
    index = training_index(run)
    by_name = {str(row["row"]): row for row in run.results["rows"]}
    result, measures = last_stage(run.results["rows"]), run.results["measures"]
    models = ["", *(name for name in by_name if name != BM25 and "+" not in name)]
    start = models[models.index(result["row"]) - 1]  # its row, which comes before
    quality = by_name.get(f"{start}+{index}".removesuffix(f"+{EXACT}"), {})
    size, hours, speedup = PUBLISHED.get(index, (None, None, None))
    return {
        "run": run.name,
        "index": index,
        "index GB": _index_bytes(run, index) / GB,
        "GPU GB": run.results.get("memory_bytes", {}).get("GPU", 0) / GB or None,
        f"{measures[0]} before": quality.get(measures[0]),
        "hours": training_seconds(run) / SECONDS_PER_HOUR,
        "speedup": None,
        **{measure: result[measure] for measure in measures},
        "LTRe GB": size,
        "LTRe hours": hours,
        "LTRe speedup": speedup,
    }


def training_index(run: StudiedRun) -> str:
    """The index that the last stage searches; EXACT without live negatives."""
    sources = run.recipe.stages[run.last_stage].components
    index = next((str(getattr(source, "index", FLAT)) for source in sources if source.live), FLAT)
    return EXACT if index == FLAT else index


def _index_bytes(run: StudiedRun, index: str) -> int:
    vectors = read_index(run.run.index)[0]
    if index == EXACT:
        return vectors.nbytes
    file = Path(run.scratch.name) / "index"
    factory, _, search = index.partition(";")
    write_index_file(file, vectors, factory, run.recipe.seed, search, run.world.device)
    return file.stat().st_size
