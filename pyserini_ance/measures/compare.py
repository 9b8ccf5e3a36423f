"""Runs side by side: mean and range over seeds, for each recipe and for the rows that need no training."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from pyserini_ance.runs.log import RunLog
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.runs.variant import variant_of
from pyserini_ance.storage.files import read_json

Groups = dict[str, list[tuple[int, Mapping]]]  # by what the table calls them: (place of the run, its row)

BM25, BM25_RM3, UNTRAINED = UNTRAINED_ROWS = ("bm25", "bm25+rm3", "untrained")
SECONDS = ("train seconds", "refresh seconds", "test seconds")


def read_results(run: Path) -> dict:
    """A run's `measures.json`, and the `commits` that made it. Raises FileNotFoundError when the run has not finished, RuntimeError when
    the file is damaged.
    """
    path = RunDir(run).measures
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing: {run} is no finished run. Go on with it by --resume, or leave it out.")
    results = {**read_json(path), "commits": _commits(RunDir(run))}
    if recorded := results.get("variant"):
        results["variant"] = variant_of(RunDir(run), recorded)
    return results


def _commits(run: RunDir) -> list[str]:
    """Those known of its beginning and of each time it was resumed: `a1b2c3d`, or `a1b2c3d+` where the package's files had changed."""
    environments = [read_json(run.environment)] if run.environment.exists() else []
    environments += [record["environment"] for record in RunLog(run, writes=False).decisions("resume")]
    known = (made.get("commit") for made in environments)
    return list(dict.fromkeys(f"{commit['hash'][:7]}{'+' * commit['changed']}" for commit in known if commit))


def compare(results: Sequence[Mapping]) -> tuple[list[dict], list[str]]:
    """Rows and columns of a table: BM25, each untrained encoder and each BM25+RM3 once, then the last stage of each recipe.

    Runs of one recipe that differ by more than the seed stand apart. A measure reads `mean (lowest-highest)`; `seconds`
    is the mean of all stages' training, mining and evaluation; `commit` stands there where one is known. Raises ValueError when measures or
    data differ.
    """
    measures = results[0]["measures"]
    rows = [_row(name, [row for _, row in group], measures) for name, group in group_by_recipe(results).items()]
    return rows, ["recipe", "runs", *measures, "seconds", *["commit"] * any(row["commit"] for row in rows)]


def group_by_recipe(results: Sequence[Mapping]) -> Groups:
    """What stands in each row of the table, in its order. Raises ValueError as `compare` does."""
    groups: dict[tuple[str, str], list[tuple[int, Mapping]]] = defaultdict(list)
    measures = results[0]["measures"]
    for place, result in enumerate(results):
        if result["measures"] != measures:
            raise ValueError(f"{result['recipe']} was measured by {result['measures']}, {results[0]['recipe']} by {measures}: compare like with like")
        for row in result["rows"]:
            if row["row"] in UNTRAINED_ROWS:
                alike = (key for key, group in groups.items() if key[0] == row["row"] and _are_alike(group[0][1], row, measures))
                groups[next(alike, (row["row"], f"{result['recipe']} [{result['variant'][:6]}]"))].append((place, row))
        last = {**last_stage(result["rows"]), "seconds": seconds_of(result["rows"]), "commits": result["commits"]}
        groups[result["recipe"], result["variant"]].append((place, last))
    if len(differing := [group[0] for (name, _), group in groups.items() if name == BM25]) > 1:
        one, other = ({name: row[name] for name in measures} | {"recipe": results[place]["recipe"]} for place, row in differing[:2])
        cure = "compare runs on the same data and test split, with the same bm25.k1, bm25.b and bm25.index"
        raise ValueError(f"BM25 measures {one} in one run and {other} in another: {cure}")
    names = sorted(groups, key=lambda key: (key[0] not in UNTRAINED_ROWS, key))
    return {_label(key, names): groups[key] for key in names}


def labels(results: Sequence[Mapping]) -> list[str]:
    """What the table calls each run."""
    keys = [(result["recipe"], result["variant"]) for result in results]
    return [_label(key, list(dict.fromkeys(keys))) for key in keys]


def _label(key: tuple[str, str], keys: Sequence[tuple[str, str]]) -> str:
    name, variant = key
    if sum(other == name for other, _ in keys) == 1:
        return name
    return f"{name} of {variant}" if name in UNTRAINED_ROWS else f"{name} [{variant[:6]}]"


def _row(name: str, group: Sequence[Mapping], measures: Sequence[str]) -> dict:
    trained = "seconds" in group[0]
    values = {measure: spread([row[measure] for row in group]) for measure in measures}
    seconds = round(sum(row["seconds"] for row in group) / len(group)) if trained else None
    commits = dict.fromkeys(commit for row in group for commit in row.get("commits", ()))
    return {"recipe": name, "runs": len(group) if trained else None, **values, "seconds": seconds, "commit": ", ".join(commits) or None}


def spread(values: Sequence[float]) -> str:
    """`mean (lowest-highest)`."""
    mean = f"{sum(values) / len(values):.3f}"
    return mean if min(values) == max(values) else f"{mean} ({min(values):.3f}-{max(values):.3f})"


def last_stage(rows: Sequence[Mapping]) -> Mapping:
    """The row of what a run has trained; its rows by other indexes (`test.indexes`) come after it."""
    return [row for row in rows if "train seconds" in row][-1]


def seconds_of(rows: Sequence[Mapping]) -> float:
    """What all stages of a run took: training, mining, and the closing evaluation."""
    return sum(row.get(part) or 0.0 for row in rows if "train seconds" in row for part in SECONDS)


def _are_alike(row: Mapping, other: Mapping, measures: Sequence[str]) -> bool:
    return all(abs(row[measure] - other[measure]) <= 1e-6 for measure in measures)
