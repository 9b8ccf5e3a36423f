"""The plots of training and of negatives in a report: of one run, or of several by run."""

from collections.abc import Callable, Mapping, Sequence

from pyserini_ance.reports import report_page as html
from pyserini_ance.reports.report_page import Section
from pyserini_ance.reports.report_plots import line_plot, stacked_shares
from pyserini_ance.reports.run_history import WEIGHTED_SUM, Record, RunHistory, Series

UNFOLDED_TABLES, SHOWN_TABLES = 8, 60
MARKS = "Ticks on the axis: refreshed negatives."
Histories = Mapping[str, RunHistory]
ValueOf = Callable[[Record], float | None]


def training(histories: Histories) -> Section:
    section = Section("Training")
    one = _only(histories)
    stages, marks, minutes = _stages(one), *(one.refreshes() if one else ([], []))
    ticks = MARKS if marks else ""
    starts = "Dotted lines: a stage begins." if stages else ""
    about = " ".join(filter(None, [starts, ticks]))
    losses = {label: history.losses() for label, history in histories.items()}
    if one is None:
        losses = {label: _total(of_run) for label, of_run in losses.items()}
    if lines := _named(losses):
        title = "Loss by term" if one else "Loss"
        note = "Running mean; each step behind it."
        plot = line_plot(lines, "step", "loss", stages=stages, smooth=True)
        section.plot(title, f"{note} {starts}".strip(), plot)
    if lines := _named({label: history.dev() for label, history in histories.items()}):
        measure = _measure(histories)
        section.plot(
            "Dev measure over steps",
            _best(histories) + about,
            line_plot(lines, "step", f"dev {measure}", marks=marks, stages=stages, points=True),
        )
        lines = _named({label: history.dev_over_minutes() for label, history in histories.items()})
        section.plot(
            "Dev measure over time",
            f"Refreshes and waiting count, evaluation does not. {ticks}".strip(),
            line_plot(lines, "minutes of training", f"dev {measure}", marks=minutes, points=True),
        )
    else:
        section.add(html.paragraph("The dev measure was not evaluated during training.", "note"))
    for key, title, unit in (("grad_norm", "Gradient norm before clipping", "L2 norm"),):
        if lines := _named({label: history.step_values(key) for label, history in histories.items()}):
            plot = line_plot(lines, "step", unit, stages=stages, smooth=True)
            section.plot(title, "Running mean; each step behind it.", plot)
    if lines := _named({label: history.live_searches() for label, history in histories.items()}):
        plot = line_plot(lines, "step", "mean over the step's queries", stages=stages, smooth=True)
        section.plot("Live searches", "What each step retrieved for its queries.", plot)
    return section


def _best(histories: Histories) -> str:
    """The best dev score of a single run, in words."""
    one = _only(histories)
    scores = one.of_event("dev") if one else []
    if not scores:
        return ""
    best = max(scores, key=lambda record: record["value"])
    return f"Best: {best['value']:.4f} at {best['stage']}, step {best['checkpoint_step']}. "


def _measure(histories: Histories) -> str:
    recorded = (record["measure"] for history in histories.values() for record in history.of_event("dev"))
    return ", ".join(dict.fromkeys(recorded))


def _total(losses: Mapping[str, Series]) -> dict[str, Series]:
    """The one line of all losses of a run."""
    if WEIGHTED_SUM in losses or len(losses) > 1:
        return {name: line for name, line in losses.items() if name == WEIGHTED_SUM}
    return dict(losses)


def negatives(histories: Histories) -> Section:
    section = Section("Negatives")
    if not any(history.tables for history in histories.values()):
        section.add(html.paragraph("No negatives were mined.", "note"))
        return section
    one = _only(histories)
    stages = _stages(one)
    if lines := _named({label: {"age": h.ages()} for label, h in histories.items()}):
        plot = line_plot(lines, "step", "age in steps", stages=stages, from_zero=True)
        section.plot("Staleness", "Steps since the checkpoint that mined the negatives in use.", plot)
    else:
        section.add(html.paragraph("All negatives are static: they do not age.", "note"))

    def plot_tables(title: str, note: str, unit: str, value_of: ValueOf) -> None:
        lines = _named({label: history.over_tables(value_of) for label, history in histories.items()})
        if lines:
            plot = line_plot(lines, "step", unit, stages=stages, points=True, from_zero=unit.startswith("%"))
            section.plot(title, note, plot)

    plot_tables(
        "Turnover",
        "Candidates that the tables before the refresh lacked.",
        "% of the candidates",
        lambda values: None if values["new_share"] is None else 100 * values["new_share"],
    )
    _margins(section, histories, stages)
    plot_tables(
        "Positives in the mined ranking",
        "Mean reciprocal rank of the training queries' positives; 0 beyond the ranking.",
        "mean reciprocal rank",
        lambda values: values.get("positives", {}).get("mean_reciprocal_rank"),
    )
    _composition(section, one)
    _dropped(section, histories, stages)
    if lines := _named({label: history.ignored_pairs() for label, history in histories.items()}):
        plot = line_plot(lines, "step", "pairs", stages=stages, smooth=True, from_zero=True)
        section.plot("Ignored pairs", "Pairs of a step that false_negative_margin leaves out.", plot)
    if one:
        _table_of_tables(section, one)
    return section


def _margins(section: Section, histories: Histories, stages: Sequence[float]) -> None:
    """A plot of the margins for each kind of source: scores of different kinds have different scales."""
    by_run = {label: history.over_tables(_margin("mean")) for label, history in histories.items()}
    kinds = list(dict.fromkeys(name.rpartition(": ")[2] for lines in by_run.values() for name in lines))
    one = _only(histories)
    for kind in kinds:
        of_kind = {
            label: {name: line for name, line in lines.items() if name.endswith(f": {kind}")}
            for label, lines in by_run.items()
        }
        lines, bands = _named(of_kind), None
        note = "Score of the best positive minus the mean score of the candidates"
        if one:
            low, high = one.over_tables(_margin("p10")), one.over_tables(_margin("p90"))
            bands = {name: (low[name], high[name]) for name in lines}
            note += "; mean, and 10th to 90th percentile"
        plot = line_plot(lines, "step", "score", stages=stages, points=True, bands=bands)
        section.plot("Margin" + f" of {kind}" * (len(kinds) > 1), f"{note}.", plot)


def _margin(key: str) -> ValueOf:
    return lambda values: values.get("margin", {}).get(key)


def _composition(section: Section, one: RunHistory | None) -> None:
    """Candidates by source of a single run, where there are several sources."""
    lines = one.composition() if one else {}
    if len(lines) > 1:
        plot = stacked_shares(lines, "step of the adoption", "share of the candidates")
        section.plot("Composition", "Candidates in use, by the source that retrieved them.", plot)
    elif lines:
        section.add(html.paragraph(f"All mined candidates are of one source: {next(iter(lines))}.", "note"))


def _dropped(section: Section, histories: Histories, stages: Sequence[float]) -> None:
    """Plot what filters dropped; filters that never dropped anything are named in a line."""
    by_run = {label: history.dropped() for label, history in histories.items()}
    lines = _named({label: {n: s for n, s in of.items() if any(s.y)} for label, of in by_run.items()})
    if lines:
        plot = line_plot(lines, "step", "candidates", stages=stages, points=True, from_zero=True)
        section.plot("Dropped by filters", "Candidates that each refresh mined and a filter removed.", plot)
    never = dict.fromkeys(name for of in by_run.values() for name, line in of.items() if not any(line.y))
    if never:
        section.add(html.paragraph(f"Filters that dropped nothing: {', '.join(never)}.", "note"))


def _table_of_tables(section: Section, history: RunHistory) -> None:
    rows = [
        {
            "stage": table.stage,
            "adopted at": table.record["step"],
            "of checkpoint": table.record["checkpoint_step"],
            "waited seconds": float(table.record["waited_seconds"]),
            "table": table.label,
            "candidates": table.values["candidates"],
            "new": None if table.values["new_share"] is None else f"{table.values['new_share']:.1%}",
            "margin": table.values.get("margin", {}).get("mean"),
            "dropped": sum(table.values["dropped"].values()),
            "promoted": table.values.get("promoted"),
            "anchors left out": table.values.get("left_out"),
        }
        for table in history.tables
    ]
    shown = html.table(rows[-SHOWN_TABLES:], list(rows[0]))
    if len(rows) > SHOWN_TABLES:
        text = f"The last {SHOWN_TABLES} of {len(rows)} tables; all are in metrics.jsonl."
        shown += html.paragraph(text, "note")
    if len(rows) > UNFOLDED_TABLES:
        section.add(html.folded(f"the {len(rows)} mined tables", shown))
    else:
        section.add(html.subheading("Mined tables"), shown)


def _only(histories: Histories) -> RunHistory | None:
    return next(iter(histories.values())) if len(histories) == 1 else None


def _stages(one: RunHistory | None) -> list[float]:
    """The positions at which the stages of a single run begin, but for the first."""
    return [float(first) for first, _ in one.stages.values()][1:] if one else []


def _named(by_run: Mapping[str, Mapping[str, Series]]) -> dict[str, Series]:
    """The lines of one run by name; of several by run, or by both for a run with several lines.

    A run without values has an empty line, so that each run has its colour in all plots. Nothing if no run
    has any.
    """
    by_run = {run: {n: s for n, s in lines.items() if s.x} for run, lines in by_run.items()}
    if not any(by_run.values()):
        return {}
    if len(by_run) == 1:
        return dict(next(iter(by_run.values())))
    by_run = {run: lines or {"": Series()} for run, lines in by_run.items()}
    return {
        run if len(lines) == 1 else f"{run} {name}": line
        for run, lines in by_run.items()
        for name, line in lines.items()
    }
