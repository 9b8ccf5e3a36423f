"""`pyserini-ance refresh`: the refresher of a run with `mode: async`, as a process of its own."""

from pathlib import Path

from tqdm.contrib.logging import logging_redirect_tqdm

from pyserini_ance.commands import console
from pyserini_ance.distributed.failures import interrupt_on_termination

DETAILS = """Training starts a refresher by itself. With `refresher.launch=external` you start it, on any
machine that sees the run directory."""
EXAMPLE = "pyserini-ance refresh runs/demo-ance/recipe.yaml --output runs/demo-ance refresher.device=cuda"


def main(arguments: list[str] | None = None) -> None:
    parser = console.command_parser(
        "refresh",
        "Mine new negatives with the checkpoints of a training run with `mode: async`, until the run ends.",
        EXAMPLE,
        DETAILS,
    )
    parser.add_argument(
        "recipe", help="the run's recipe: a shipped one such as demo/ance, or a file such as RUN/recipe.yaml"
    )
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="dotted.key=value",
        help="those given to train; `refresher`, `device`, `threads` and `cache` may differ",
    )
    parser.add_argument(
        "--output", type=Path, metavar="RUN", help="the run directory (default: runs/<recipe name>)"
    )
    args = parser.parse_intermixed_args(arguments)
    console.log_to_stderr()
    from pyserini_ance.runs.rundir import load_recipe, run_folder

    loaded = load_recipe(args.recipe, *args.overrides)
    interrupt_on_termination()
    from pyserini_ance.pipeline import refresher_process

    with logging_redirect_tqdm():
        reason = refresher_process.refresh(loaded.recipe, args.output or run_folder(loaded.recipe.name))
    if console.is_main():
        print(f"the refresher exits: {reason}")
