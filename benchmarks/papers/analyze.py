"""`python -m benchmarks.papers analyze`: the figures of the papers' analyses, from run directories."""

import argparse
import importlib
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import options
from benchmarks.papers.studies import STUDIES
from pyserini_ance.commands import console

if TYPE_CHECKING:
    from benchmarks.papers.studies.studied_run import Findings, StudiedRun

ALL, OUTPUT = "all", Path("analysis")
EXAMPLE = """python -m benchmarks.papers analyze negative-overlap runs/demo-ance
  python -m benchmarks.papers analyze score-tail runs/demo-ance runs/demo-rand-batch --output compared"""


def main(arguments: list[str] | None = None) -> None:
    args = _parse(arguments)
    console.log_to_stderr()
    from benchmarks.papers.studies.studied_run import NotInstalled, NotKept, StudiedRun, StudySettings
    from pyserini_ance.distributed.process_group import device_of

    output = args.output or options.output_folder(args.runs[0] / OUTPUT if len(args.runs) == 1 else OUTPUT)
    names = STUDIES if args.study == ALL else [args.study]
    for name in names:
        _check_replaceable(output / f"{name}.json", args.runs)
    made = 0
    settings = StudySettings(device_of(args.device), args.queries, args.top_k, args.seed, args.query)
    with StudiedRun.open(_names(args.runs), settings) as runs:
        for name in names:
            try:
                _make(name, runs, output)
                made += 1
            except (NotKept, NotInstalled) as error:
                if args.study != ALL:
                    raise
                logging.getLogger(__name__).warning("left out: %s: %s", name, error)
    if not made:
        raise ValueError("no study was made: the runs lack what each of them reads; see the lines above")


def _check_replaceable(numbers: Path, runs: list[Path]) -> None:
    """Raise FileExistsError if the file has the numbers of other runs."""
    from pyserini_ance.storage.files import read_json_object

    known = (read_json_object(numbers) or {}).get("runs", {}).values()
    if known and {Path(run).resolve() for run in known} != {run.resolve() for run in runs}:
        raise FileExistsError(
            f"{numbers} is of other runs ({', '.join(known)}); pass another --output, or remove it"
        )


def _make(name: str, runs: "list[StudiedRun]", output: Path) -> None:
    """Make one study, print its table and write its files."""
    from benchmarks.papers.studies.figures import save
    from pyserini_ance.evaluation.legends import table_with_legend
    from pyserini_ance.storage.files import write_json

    module = importlib.import_module(f"benchmarks.papers.studies.{name.replace('-', '_')}")
    findings: Findings = module.study(runs)
    rows = findings.rows if findings.summary is None else findings.summary
    print(f"## {module.TITLE}\n")
    print(table_with_legend(rows, list(dict.fromkeys(key for row in rows for key in row)), *findings.notes))
    output.mkdir(parents=True, exist_ok=True)
    numbers = output / f"{name}.json"
    about = {"study": name, "runs": {run.name: str(run.run.folder) for run in runs}}
    write_json(numbers, {**about, **vars(runs[0].settings), **findings.as_json()})
    written = [numbers, *save(module.TITLE, findings.panels, output, name)]
    print(f"\nwritten: {', '.join(map(str, written))}\n")


def _names(folders: list[Path]) -> dict[str, Path]:
    """The runs by the names of their folders, or by their paths if two have the same name."""
    names = [folder.resolve().name for folder in folders]
    return dict(zip(names if len(set(names)) == len(names) else map(str, folders), folders, strict=True))


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    width = max(map(len, STUDIES))
    listed = "\n".join(f"  {name:{width}}  {text}" for name, text in STUDIES.items())
    details = f"studies:\n{listed}\n  {ALL:{width}}  each of them that the runs have the files for"
    what = "Make a figure of the papers' analyses from runs, without training again."
    parser = options.command_parser("analyze", what, EXAMPLE, details)
    parser.add_argument("study", choices=[*STUDIES, ALL], metavar="STUDY", help="one of the studies below")
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="directories of finished runs")
    parser.add_argument(
        "--output",
        type=options.output_folder,
        metavar="FOLDER",
        help=f"the folder of STUDY.json, STUDY.png and STUDY.svg (default: RUN/{OUTPUT}, or {OUTPUT} here "
        "for several runs)",
    )
    sample = parser.add_argument_group("studies that use the model")
    sample.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N (default: %(default)s)")
    sample.add_argument(
        "--queries",
        type=options.positive_int,
        default=200,
        metavar="N",
        help="sample N queries (default: %(default)s)",
    )
    sample.add_argument(
        "--top-k",
        type=options.positive_int,
        default=100,
        metavar="K",
        help="the depth of rankings (default: %(default)s)",
    )
    sample.add_argument("--seed", type=int, default=42, help="the seed of the samples (default: %(default)s)")
    sample.add_argument(
        "--query",
        metavar="ID",
        help="the test query of t-sne (default: the first judged), or the training query of negative-swing "
        "(default: the clearest case)",
    )
    return parser.parse_args(arguments)
