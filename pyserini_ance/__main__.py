"""`pyserini-ance COMMAND`, the same as `python -m pyserini_ance COMMAND`."""

import importlib
import os
import sys
from contextlib import suppress

COMMANDS = {
    "adapt": "adapt an encoder to your documents, and show whether it is better",
    "train": "train a recipe: run directory, model, index and results table",
    "prepare": "read, check and tokenize a recipe's data ahead of training",
    "mine": "mine hard negatives with any encoder, for any trainer",
    "encode": "encode a JSONL corpus, or take an index's vectors, to Faiss or Parquet; join shards",
    "publish": "upload a run's model, with its card, to the Hugging Face hub",
    "search": "run Pyserini's own commands with embedded Java and our encoders",
    "evaluate": "measure run files by judgments or answers",
    "compare": "put finished runs into one table, with significance tests",
    "report": "write the report of a run as HTML",
    "rerank": "rerank the first hits of a ranking with a cross-encoder",
    "fuse": "combine rankings, for example dense and BM25",
    "convert": "write a collection in the files of BEIR or Tevatron",
    "refresh": "mine new negatives for a training run with mode: async",
    "doctor": "report versions, Java, Faiss and devices, and what is missing",
}


def main() -> int | None:
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name in ("-h", "--help"):
        width = max(map(len, COMMANDS))
        print("usage: pyserini-ance COMMAND [arguments]\n")
        print("\n".join(f"  {command:{width}}  {text}" for command, text in COMMANDS.items()))
        print("\n`pyserini-ance COMMAND --help` explains a command.")
        return 0
    if name not in COMMANDS:
        from pyserini_ance.recipe.components import did_you_mean

        meant = did_you_mean(name, COMMANDS)
        print(f"error: unknown command {name!r}{meant}; commands: {', '.join(COMMANDS)}", file=sys.stderr)
        return 2  # as for other wrong arguments
    command = importlib.import_module(f"pyserini_ance.commands.{name.replace('-', '_')}")
    return command.main(sys.argv[2:])


def run() -> None:
    """The console script. The working directory comes last in the module search path: own classes are found
    there, but a user's `tokenizers.py` does not replace the library."""
    if not sys.flags.safe_path:
        with suppress(FileNotFoundError):  # a working directory that was removed
            if sys.path[0] == os.getcwd():  # `python -m` puts it first
                del sys.path[0]
        sys.path.append("")
    from pyserini_ance.commands import console

    console.run(main)


if __name__ == "__main__":
    run()
