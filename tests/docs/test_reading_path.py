import ast
import re
from pathlib import Path

from helpers.pages import ROOT

CODE = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Code\n")[2].partition("```")[0]
NAMED = dict(re.findall(r"`([\w.]+)`\s+\(`(\w+/\w+\.py)`", CODE))


def definitions(path: Path) -> set[str]:
    """The functions of a module, and its methods as `Class.method`."""
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{one.name}" for one in node.body if isinstance(one, ast.FunctionDef)}
    return names


def test_the_path_names_the_functions_of_a_step_and_of_a_refresh_in_order():
    in_order = ["Experiment.train_stage", "StageTrainer._train_step", "plan_batch", "BatchEncoder.encode"]
    in_order += ["term_losses", "StageTrainer._refresh", "RefreshQueue.advance", "SyncExecutor.submit"]
    assert list(NAMED) == [*in_order, "Refresher.make", "Ann.mine", "MinedSource.table_of"]
    for name, path in NAMED.items():
        assert name in definitions(ROOT / "pyserini_ance" / path), f"{path} does not define {name}"


def test_the_readme_has_at_most_150_lines():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150
