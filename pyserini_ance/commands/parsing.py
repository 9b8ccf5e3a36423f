"""From a typed signature to a command: annotations are the options, the docstring is the help."""

import functools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import typer
from typer import Argument, Option
from typer.core import TyperCommand
from typer.exceptions import TyperException

RANKING = "RUN for the final ranking of a run directory, RUN:ROW for that of a row of its results table"
Main = Callable[..., int | None]  # with the arguments, or without for those of the process; the exit code


class Command(TyperCommand):
    """A command whose list options take several values at once: `--measures A B` is `--measures A --measures
    B`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        lists = {name for one in self.params if getattr(one, "multiple", False) for name in one.opts}
        expanded: list[str] = []
        option, values = "", 0
        for text in args:
            if text.startswith("--"):
                option, values = text if text in lists else "", 0
            elif option:
                expanded += [option] * (values > 0)
                values += 1
            expanded.append(text)
        return super().parse_args(ctx, expanded)


def command(example: str, details: str = "", passes_flags: bool = False) -> Callable[[Main], Main]:
    """Make `main(arguments)` of a function with a typed signature; None takes the process's arguments.

    `details` and `example` end the help; their lines stay as they are. With `passes_flags`, everything after
    the first argument belongs to the last one. Wrong arguments end with exit code 2.
    """

    def wrap(function: Main) -> Main:
        name = function.__module__.rpartition(".")[2].replace("_", "-")
        settings: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
        if passes_flags:
            settings |= {"ignore_unknown_options": True, "allow_interspersed_args": False}
        epilog = "\n\n".join(f"\b\n{text}" for text in (details, f"Example:\n  {example}") if text)

        def main(arguments: Sequence[str] | None = None) -> int | None:
            app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)
            app.command(cls=Command, epilog=epilog, context_settings=settings)(function)
            parser = typer.main.get_command(app)
            given = list(sys.argv[1:] if arguments is None else arguments)
            try:
                with parser.make_context(f"pyserini-ance {name}", given) as context:
                    return parser.invoke(context)
            except typer.Exit as end:
                raise SystemExit(end.exit_code) from None
            except TyperException as error:
                error.show()  # type: ignore[attr-defined]  # all that parsing raises have it
                raise SystemExit(error.exit_code) from None

        functools.update_wrapper(main, function)
        return main

    return wrap


def refuse(message: str) -> NoReturn:
    """End with a message on the arguments, and exit code 2."""
    raise typer.BadParameter(message)


def refuse_options(reason: str, **options: object) -> None:
    """Refuse options that have a value although they have no effect here; `top_k` is `--top-k`."""
    given = [name.replace("_", "-") for name, value in options.items() if value not in (None, False, [])]
    if given:
        refuse(f"{reason}; remove --{', --'.join(given)}")


def check_output(path: Path | None) -> Path | None:
    """Raise FileExistsError for a name of a run directory's own files.

    If the file is standard output, such as /dev/stdout, what the command prints goes to standard error.
    """
    from pyserini_ance.runs.rundir import owner_of
    from pyserini_ance.storage.files import standard_stream

    path = Path("/dev/stdout") if path == Path("-") else path
    if path and (run := owner_of(path)):
        raise FileExistsError(
            f"{path} is a name for the own files of the run directory {run.folder}; pass another --output"
        )
    if path and standard_stream(path) is sys.__stdout__ and not path.is_char_device():
        sys.stdout = sys.stderr
    return path


def option(metavar: str, text: str, **more: Any) -> Any:
    """An option with the name of its parameter, and `text` as its help."""
    return Option(metavar=metavar, help=text, **more)


def flag(name: str, text: str) -> Any:
    """An option without a value, which has no `--no-NAME`."""
    return Option(f"--{name}", help=text)


def count(metavar: str, text: str) -> Any:
    """An option that is a whole number from 1 on."""
    return option(metavar, text, min=1)


def output_file(metavar: str, text: str) -> Any:
    """The option `--output` of a command that writes a file."""
    return Option("--output", dir_okay=False, callback=check_output, metavar=metavar, help=text)


def output_folder(metavar: str, text: str) -> Any:
    """The option `--output` of a command that writes a folder."""
    return Option("--output", file_okay=False, metavar=metavar, help=text)


# Arguments and options that several commands have.
Overrides = Annotated[
    list[str] | None, Argument(metavar="KEY=VALUE", help="set values of the recipe: stages.ance.steps=100")
]
Device = Annotated[str, option("DEVICE", "auto, cpu, cuda, cuda:1, ...")]
PrecisionOption = Annotated[
    Literal["fp32", "bf16", "fp16", "auto"],
    option("TYPE", "fp32, bf16, fp16, or auto: bf16 where the device is fast at it"),
]
TokensPerBatch = Annotated[
    int | None, count("N", "padded tokens of a batch (default: 1,024 on a CPU, 32,768 on a GPU)")
]
EncoderSettings = Annotated[
    list[str] | None,
    option("KEY=VALUE ...", "pooling, normalize or length_tokens for an encoder of another tool"),
]
Split = Annotated[str | None, option("NAME", "the split of the queries (default: the first)")]
QrelsFile = Annotated[Path | None, option("FILE", "judgments: TREC's or BEIR's, plain or .gz")]
Measures = Annotated[list[str] | None, option("MEASURE ...", "default: the recipe's final_evaluation")]


def encoder_settings(texts: Sequence[str] | None) -> dict[str, Any]:
    """The settings of --encoder-settings, such as `pooling=cls` and `length_tokens={document: 128}`."""
    from pyserini_ance.recipe.yaml_text import read_argument

    given: dict[str, Any] = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        if not equals or key not in ("pooling", "normalize", "length_tokens"):
            refuse(f"--encoder-settings {text}: expected pooling=, normalize= or length_tokens=VALUE")
        given[key] = read_argument(value, f"--encoder-settings {text}")
    return given
