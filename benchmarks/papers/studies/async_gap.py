"""The async gap: how the negatives in use age while the model trains on.

Source: Xiong et al. 2021 (ANCE), arXiv:2007.00808, appendix A.3; Zhan et al. 2020 (LTRe), arXiv:2010.10469,
Figure 3(d).
"""

import math
from collections.abc import Sequence

from benchmarks.papers.studies.figures import Line, Panel, lines
from benchmarks.papers.studies.studied_run import Findings, NotKept, Row, StudiedRun
from pyserini_ance.reports.run_history import Record, RunHistory, Series, table_label


def study(runs: Sequence[StudiedRun]) -> Findings:
    """For each refreshed table: its age in steps when the next one is mined, the share of the next one's
    negatives that it has already (`overlap`), and the steps that the next one was late (`lag`).

    At its own checkpoint a table has all negatives of the model, by its making. All is read from
    `metrics.jsonl`, so no table need be kept.
    """
    rows = [row for run in runs for row in gaps(run.history, run.name)]
    if not rows:
        raise NotKept(
            "none of these runs has mined twice for the same queries with its own model in one stage; train "
            "with refresh.every_steps below the stage's steps"
        )
    overlaps: dict[str, Series] = {}
    for row in rows:
        line = overlaps.setdefault(f"{row['run']}: {row['table']}", Series())
        line.x += [row["mined_at"], row["next_mined_at"], row["next_mined_at"]]
        line.y += [100.0, 100 * row["overlap"], math.nan]  # the line is interrupted
    ages = {run.name: Line(age.x, age.y) for run in runs if (age := run.history.lines["age"].get("age"))}
    shares = lines({name: Line(line.x, line.y) for name, line in overlaps.items()})
    x_label = "step of all stages"
    panels = [
        Panel("Negatives that the model itself would mine", x_label, "share (%)", shares),
        Panel("Age of the negatives in use", x_label, "steps", lines(ages, points=False)),
    ]
    return Findings(rows, panels)


def gaps(history: RunHistory, run: str) -> list[Row]:
    """A row for each table and the one that replaces it, of tables for the same queries."""
    before: dict[tuple[str, str], Record] = {}
    rows = []
    tables = (
        (record, *each) for record in history.of_event("generation") for each in record["tables"].items()
    )
    for record, name, table in tables:
        key = record["stage"], name
        overlap = table.get("new_share")
        if key in before and overlap is not None:
            mined_at, next_mined_at = (
                history.position(of, "checkpoint_step") for of in (before[key], record)
            )
            rows.append(
                {
                    "run": run,
                    "table": f"{record['stage']} {table_label(name, table)}",
                    "mined_at": mined_at,
                    "next_mined_at": next_mined_at,
                    "age": next_mined_at - mined_at,
                    "lag": int(record["step"]) - int(record["checkpoint_step"]),
                    "overlap": 1 - float(overlap),
                }
            )
        before[key] = record
    return rows
