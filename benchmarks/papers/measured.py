"""Measured figures of a recipe set: one record for each run, split and measure."""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.papers.published import MILLISECONDS, Section, section_of
from pyserini_ance.data.trec import read_qrels, read_run
from pyserini_ance.evaluation.metrics import LATENCY, holes, means, overlap
from pyserini_ance.evaluation.tables import BM25, BM25_RM3, UNTRAINED, last_stage, read_results
from pyserini_ance.recipe.load import SHOWN, differences
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.recipe.yaml_text import read_yaml
from pyserini_ance.reports.forgetting import refresh_intervals
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import read_json, sha256_file

EXACT_INDEX = "IndexFlatIP"  # exact search, as Faiss and the papers call it
DEPTHS = ("", "*/", "*/*/", "*/*/*/")  # the folder is a run, holds runs, or holds grids
# Rows without training by their method in published rows, where `bm25` is the recipe with BM25 negatives.
METHODS = {BM25: "bm25-search", BM25_RM3: "bm25-search+rm3", UNTRAINED: "untrained"}
COLUMNS = ("section", "method", "part", "config", "run", "variant", "split", "measure", "value", "text")
SplitMeasure = tuple[str, str]


def read_measured(
    runs: Path, recipes: Mapping[str, Recipe], set_name: str, wanted: Collection[SplitMeasure]
) -> tuple[pd.DataFrame, list[str]]:
    """The figures of the runs of a set in `runs`, in COLUMNS, and a line for each run or measure left out.

    config: the hash of a run's settings without the seed; of a row without training, its figures. part: the
    index, reranker, reader or interval. variant: how a run differs from the recipe of its name, "" if it does
    not. text: why a figure is missing. `wanted`: the (split, measure) to derive.
    """
    records: list[dict[str, Any]] = []
    notes: list[str] = []
    reranked = _downstream_folders(runs)
    for run in _runs(runs, recipes, set_name):
        if not run.measures.exists():
            notes.append(f"skipped: {run.folder} holds {run.describe()}")
            continue
        try:
            records += _RunFigures(run, str(run.folder.relative_to(runs)), recipes).records(wanted, reranked)
        except (ValueError, RuntimeError) as error:  # RuntimeError: of another version
            notes.append(f"skipped: {run.folder} cannot be read: {error}")
        except KeyError as error:
            notes.append(f"skipped: {run.measures} has no {error}; evaluate again, or remove the run")
    notes += dict.fromkeys(record["text"] for record in records if not record["split"])
    return pd.DataFrame([record for record in records if record["split"]], columns=list(COLUMNS)), notes


def _runs(folder: Path, recipes: Collection[str], set_name: str) -> Iterator[RunDir]:
    for path in (path for depth in DEPTHS for path in sorted(folder.glob(f"{depth}recipe.yaml"))):
        settings = read_yaml(path.read_bytes(), str(path))  # not validated: it may be of another version
        name = str(settings.get("name", "")) if isinstance(settings, dict) else ""
        run = RunDir(path.parent)
        if run.state.exists() and (name in recipes or name.rpartition("/")[0] == set_name):
            yield run


def _downstream_folders(runs: Path) -> dict[Path, list[Path]]:
    """The finished folders of `rerank` and `answer`, by the ranking that they were made from."""
    folders: dict[Path, list[Path]] = {}
    for about in (path for depth in DEPTHS[1:] for path in sorted(runs.glob(f"{depth}about.json"))):
        if (about.parent / "measures.json").exists() and (ranking := read_json(about).get("ranking")):
            folders.setdefault(Path(ranking), []).append(about.parent)
    return folders


class _RunFigures:
    """The figures of one finished run, called `name`."""

    def __init__(self, run: RunDir, name: str, recipes: Mapping[str, Recipe]):
        self.run, self.name, self.recipe = run, name, run.read_recipe()
        results = read_results(run.folder)
        self.rows, self.method = results["rows"], results["recipe"].rpartition("/")[2]
        self.last, self.config = last_stage(self.rows)["row"], results["config_hash"]
        self.variant = _variant(self.recipe, recipes.get(results["recipe"]))

    def records(
        self, wanted: Collection[SplitMeasure], folders: Mapping[Path, list[Path]]
    ) -> Iterator[dict[str, Any]]:
        columns = self.recipe.final_evaluation.columns.items()
        prefix = f"{self.last}+"
        by_index = [row for row in self.rows if row["row"].startswith(prefix)]
        for row in self.rows:
            figures = {key: row[column] for key, column in columns if column in row}
            if row["row"] in (*METHODS, self.last):
                yield from self._figures(row["row"], Section.RESULTS, "", figures)
            if by_index and (row["row"] == self.last or row in by_index):
                index = EXACT_INDEX if row["row"] == self.last else row["row"].removeprefix(prefix)
                yield from self._figures(self.last, Section.INDEXES, index, figures)
        for name in [row["row"] for row in self.rows if row["row"] in (*METHODS, self.last)]:
            yield from self._judged(name, wanted)
            yield from self._downstream(name, folders)
        if any(measure == "forgotten" for _, measure in wanted):
            yield from self._forgetting()

    def _figures(
        self, row: str, section: Section, part: str, figures: Mapping[SplitMeasure, float | str]
    ) -> Iterator[dict[str, Any]]:
        """A record for each of `figures`, of which a text says why it is missing."""
        trained = row not in METHODS
        known = [(*key, round(of, 6)) for key, of in figures.items() if not isinstance(of, str)]
        config = self.config if trained else f"={known}"
        variant = self.variant if trained else ""
        about = (section, METHODS.get(row, self.method), part, config, self.name, variant)
        for (split, measure), of in figures.items():
            value, text = (None, of) if isinstance(of, str) else (of, "")
            yield dict(zip(COLUMNS, (*about, split, measure, value, text), strict=True))

    def _note(self, text: str) -> dict[str, Any]:
        return {**dict.fromkeys(COLUMNS, ""), "text": text}

    def _judged(self, row: str, wanted: Collection[SplitMeasure]) -> Iterator[dict[str, Any]]:
        """Hole rates, and the overlap with BM25's ranking, of the row's rankings of the test splits."""
        figures: dict[SplitMeasure, float | str] = {}
        for split, measure in wanted:
            ranking, qrels = self.run.ranking(row, split), self.run.qrels(split)
            if section_of(measure) is not Section.JUDGED or not (ranking.exists() and qrels.exists()):
                continue
            kind, cutoff = measure.split("@")
            if kind == "Hole":
                values = holes(read_qrels(qrels), read_run(ranking), [int(cutoff)])
            elif (bm25 := self.run.ranking(BM25, split)).exists():
                values = overlap(read_run(ranking), read_run(bm25), read_qrels(qrels), int(cutoff))
            else:
                figures[split, measure] = "no BM25 ranking"
                continue
            figures[split, measure] = means(values)[measure]
        yield from self._figures(row, Section.JUDGED, "", figures)

    def _forgetting(self) -> Iterator[dict[str, Any]]:
        """The only interval of a stage has the stage's name, as an episode in papers."""
        try:
            intervals = refresh_intervals(self.run.folder)
        except (ValueError, FileNotFoundError) as error:
            yield self._note(f"no forgetting: {error}")
            return
        stages = [interval.since.rpartition("-")[0] for interval in intervals]
        for stage, interval in zip(stages, intervals, strict=True):
            part = stage if stages.count(stage) == 1 else f"{interval.since} to {interval.until}"
            forgotten = {("train", "forgotten"): interval.forgotten}
            yield from self._figures(self.last, Section.FORGETTING, part, forgotten)

    def _downstream(self, row: str, folders: Mapping[Path, list[Path]]) -> Iterator[dict[str, Any]]:
        """The figures of folders of `rerank` and `answer` that were made from the row's rankings."""
        for split in self.recipe.final_evaluation.split:
            files = [self.run.ranking(row, split), *[self.run.final_run(split)] * (row == self.last)]
            for file, folder in ((f, made) for f in files for made in folders.get(f.absolute(), ())):
                about, rows = read_json(folder / "about.json"), read_json(folder / "measures.json")["rows"]
                if about["ranking_sha256"] != sha256_file(file):
                    yield self._note(f"skipped: {folder} was made from an earlier {file}")
                elif reader := about.get("reader"):
                    for answered in rows:
                        part = f"{Path(reader['model']).name}, first {answered['passages']}"
                        yield from self._figures(row, Section.ANSWERS, part, {(split, "EM"): answered["EM"]})
                else:
                    yield from self._reranked(row, split, Path(about["model"]).name, rows)

    def _reranked(
        self, row: str, split: str, model: str, rows: list[dict[str, Any]]
    ) -> Iterator[dict[str, Any]]:
        """The ranking before reranking, and each number of reranked documents.

        Milliseconds are those of search and reranking together.
        """
        search = next(first for first in rows if first["ranking"] == "first stage").get(MILLISECONDS)
        for reranked in rows:
            is_first = reranked["ranking"] == "first stage"
            figures = {
                (split, name): value for name, value in reranked.items() if name not in ("ranking", *LATENCY)
            }
            total = search and search + (0 if is_first else reranked[MILLISECONDS])
            figures[split, MILLISECONDS] = total or "search not timed"
            part = "" if is_first else f"{model}, {reranked['ranking']}"
            yield from self._figures(row, Section.RERANKED, part, figures)


def _variant(recipe: Recipe, base: Recipe | None) -> str:
    """How a run's recipe differs from the recipe that expects figures; "" if it does not."""
    if base is None or not base.expect or recipe.expect == base.expect:
        return ""
    old, new = (
        each.model_dump(mode="json", include={"stages", "encoder", "bm25"}) for each in (base, recipe)
    )
    differing = [f"{key} {now} instead of {before}" for key, before, now in differences(old, new)]
    return f"{base.name}: {'; '.join(differing[:SHOWN]) or 'other settings'}"
