"""`pyserini-ance refresh`: the refresher of a run with `mode: async`, as a process of its own."""

from pathlib import Path
from typing import Annotated

from tqdm.contrib.logging import logging_redirect_tqdm
from typer import Argument, Option

from pyserini_ance.commands import console, parsing
from pyserini_ance.distributed.failures import interrupt_on_termination

EXAMPLE = "pyserini-ance refresh runs/demo-ance/recipe.yaml --output runs/demo-ance refresher.device=cuda"


<<<<<<< HEAD
@parsing.command(EXAMPLE)
def main(
    recipe: Annotated[
        str, Argument(help="the run's recipe: a shipped one, or a file such as RUN/recipe.yaml")
    ],
    overrides: Annotated[
        list[str] | None,
        Argument(
            metavar="KEY=VALUE",
            help="those given to train; `refresher`, `device`, `threads` and `cache` may differ",
        ),
    ] = None,
    output: Annotated[
        Path | None, Option(metavar="RUN", help="the run directory (default: runs/<recipe name>)")
    ] = None,
) -> None:
    """Mine new negatives with the checkpoints of a training run with `mode: async`, until the run ends.

    Training starts a refresher by itself. With `refresher.launch=external` you start it, on any machine that
    sees the run directory.
    """
=======
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
>>>>>>> main
    console.log_to_stderr()
    from pyserini_ance.runs.rundir import load_recipe, run_folder

    loaded = load_recipe(recipe, *overrides or ()).recipe
    interrupt_on_termination()
    from pyserini_ance.pipeline.refresher_process import refresh

    with logging_redirect_tqdm():
<<<<<<< HEAD
        reason = refresh(loaded, output or run_folder(loaded.name))
=======
        reason = refresher_process.refresh(loaded.recipe, args.output or run_folder(loaded.recipe.name))
>>>>>>> main
    if console.is_main():
        print(f"the refresher exits: {reason}")
