"""The papers' figures, tables and readers, from finished runs."""

import importlib
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from benchmarks.papers.studies import STUDIES
from pyserini_ance.commands import console
from pyserini_ance.commands.parsing import RANKING, Command

ALL, OUTPUT = "all", Path("analysis")
LISTED = "\n".join(f"  {name:18}  {text}" for name, text in STUDIES.items())
app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False, help=__doc__)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command; errors are exceptions."""
    app(list(arguments or ()), standalone_mode=False)


@app.command(epilog=f"\b\nStudies:\n{LISTED}")
def analyze(
    study: Annotated[
        str, Argument(help=f"one of the studies below, or {ALL} that the runs have the files for")
    ],
    runs: Annotated[list[Path], Argument(help="directories of finished runs")],
    output: Annotated[
        Path | None, Option(help=f"default: RUN/{OUTPUT}, or {OUTPUT} for several runs")
    ] = None,
    device: Annotated[str, Option(help="auto, cpu, cuda or cuda:N")] = "auto",
    queries: Annotated[int, Option(min=1, help="queries to sample, where a study uses the model")] = 200,
    top_k: Annotated[int, Option(min=1, help="the depth of rankings")] = 100,
    seed: Annotated[int, Option(help="the seed of the samples")] = 42,
    query: Annotated[
        str | None, Option(help="the test query of t-sne, the training query of negative-swing")
    ] = None,
) -> None:
    """Make a figure of the papers' analyses: STUDY.json, STUDY.png and STUDY.svg."""
    from benchmarks.papers.studies.studied_run import NotKept, StudiedRun, StudySettings
    from pyserini_ance.distributed.world import device_of

    names = list(STUDIES) if study == ALL else [study]
    if names[0] not in STUDIES:
        raise ValueError(f"no study {study!r}; studies: {', '.join(STUDIES)}, {ALL}")
    folder = output or (runs[0] / OUTPUT if len(runs) == 1 else OUTPUT)
    console.begin()
    short = [run.resolve().name for run in runs]
    settings = StudySettings(device_of(device), queries, top_k, seed, query)
    by_name = zip(short if len(set(short)) == len(runs) else map(str, runs), runs, strict=True)
    studied, made = [StudiedRun(name, run, settings) for name, run in by_name], 0
    for name in names:
        try:
            _make(name, studied, folder)
            made += 1
        except (NotKept, ImportError) as error:
            if study != ALL:
                raise
            logging.getLogger(__name__).warning("left out: %s: %s", name, error)
    if not made:
        raise ValueError("no study was made: the runs lack what each of them reads; see the lines above")


def _make(name: str, runs: list[Any], folder: Path) -> None:
    """Make one study, print its table and write its files."""
    from benchmarks.papers.studies.figures import save
    from pyserini_ance.evaluation.tables import table_with_legend
    from pyserini_ance.storage.files import write_json

    module = importlib.import_module(f"benchmarks.papers.studies.{name.replace('-', '_')}")
    findings = module.study(runs)
    rows = findings.rows if findings.summary is None else findings.summary
    print(f"## {STUDIES[name]}\n")
    print(table_with_legend(rows, list(dict.fromkeys(key for row in rows for key in row)), *findings.notes))
    folder.mkdir(parents=True, exist_ok=True)
    numbers = folder / f"{name}.json"
    about = {"study": name, "runs": {run.name: str(run.run.folder) for run in runs}}
    write_json(numbers, {**about, **vars(runs[0].settings), **findings.as_json()})
    written = [numbers, *save(STUDIES[name], findings.panels, folder, name)]
    print(f"\nwritten: {', '.join(map(str, written))}\n")


@app.command()
def tables(
    recipe_set: Annotated[
        str, Argument(metavar="SET", help="recipes/msmarco-passage, or a folder of your own")
    ],
    runs: Annotated[Path, Option(help="the folder of the run directories")] = Path("runs"),
    output: Annotated[Path | None, Option(help="also write .md, .json or .csv")] = None,
) -> None:
    """Print what the runs of a set measured beside what its recipes expect and sources have published."""
    from benchmarks.papers.tables import read_tables

    found = read_tables(recipe_set, runs)
    if output:
        found.write(output)
    print(found.as_markdown())


@app.command(cls=Command)
def answer(
    source: Annotated[str, Argument(metavar="RUN|RECIPE", help=f"{RANKING}, or a recipe with --run")],
    model: Annotated[str, Option(help="the reader's model: a hub name or a folder")],
    output: Annotated[Path, Option(help="the folder for first-K.jsonl and measures.json")],
    settings: Annotated[
        list[str] | None, Argument(metavar="key=value", help="settings of the reader")
    ] = None,
    reader: Annotated[str, Option(help="extractive, dpr or rag_token")] = "extractive",
    first: Annotated[list[int] | None, Option(min=1, help="numbers of passages; default: 1 5 20 100")] = None,
    run: Annotated[Path | None, Option(help="read the passages of this TREC run")] = None,
    split: Annotated[
        str | None, Option(help="the split of the questions; default: the first test split")
    ] = None,
    questions: Annotated[
        Path | None, Option(help="questions in a file of DPR instead of a split; needs --run")
    ] = None,
    regular_expressions: Annotated[bool, Option(help="answers are patterns: exact match only")] = False,
    device: Annotated[str, Option(help="auto, cpu, cuda or cuda:N")] = "auto",
) -> None:
    """Answer questions with a reader from retrieved passages; started again, it continues."""
    from benchmarks.papers.question_answering import Answering, make_reader
    from pyserini_ance.distributed.world import device_of
    from pyserini_ance.encoders.hub import find_model
    from pyserini_ance.evaluation.tables import table_with_legend
    from pyserini_ance.reports.ranking_inputs import open_ranking

    if questions and (split or not run):
        raise ValueError("--questions requires --run with a ranking of these questions, and excludes --split")
    made = make_reader(reader, model, settings or ())
    find_model(model, "--model")
    ranked = open_ranking(source, run, split, questions)
    answering = Answering(ranked, tuple(sorted(set(first or (1, 5, 20, 100)))), output)
    answering.begin(made)
    answering.read(made.open(device_of(device)))
    rows = answering.rows(regular_expressions)
    missing = len(ranked.queries) - len(ranked.ranked_queries)
    counts = f"{len(ranked.queries)} questions, {missing} of them without any passage (they count as wrong)"
    print(table_with_legend(rows, list(rows[0]), f"{counts}; predictions in {output}"))


if __name__ == "__main__":
    console.run(app)
