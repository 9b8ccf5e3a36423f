"""`pyserini-ance convert`: a collection in the files of BEIR or Tevatron, which `data/formats/` reads."""

import logging
import math
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Argument

from pyserini_ance.commands import console, parsing

DETAILS = """Formats:
  beir      a folder with corpus.jsonl, queries.jsonl and qrels
  tevatron  training files with texts; `mine` writes them with negatives"""


@parsing.command("pyserini-ance convert demo/ance --to tevatron --output demo-tevatron", DETAILS)
def main(
    source: Annotated[str, Argument(metavar="RECIPE|RUN", help="the recipe, or run, of the collection")],
    to: Annotated[Literal["beir", "tevatron"], parsing.option("FORMAT", "see below")],
    output: Annotated[Path, parsing.option("FOLDER", "the folder to write")],
    overrides: parsing.Overrides = None,
) -> None:
    """Write a collection in the files of BEIR or Tevatron, and print the recipe key that reads them again.

    Splits without judgments are left out.
    """
    console.begin()
    from pyserini_ance.data.collection_cache import documents_file
    from pyserini_ance.data.collection_files import write_beir, write_tevatron
    from pyserini_ance.pipeline.preparation import recipe_data
    from pyserini_ance.recipe.yaml_text import to_yaml
    from pyserini_ance.runs.rundir import RunDir, load_recipe
    from pyserini_ance.storage.files import check_not_input
    from pyserini_ance.storage.publish import whole_folder

    log, run = logging.getLogger(__name__), RunDir.find(Path(source))
    if is_run := run.folder.is_dir():
        run.check()
    recipe = load_recipe(run.recipe if is_run else source, *overrides or ())
    data = recipe_data(recipe) if is_run else recipe.data.of_splits(recipe.data.split_names)
    check_not_input(output, data.input_files())
    with documents_file(recipe.cache) as path:
        collection = data.read(path)
        judged = {name: split for name, split in collection.splits.items() if split.is_judged}
        for name in collection.splits.keys() - judged.keys():
            count = len(collection.splits[name].queries)
            log.warning("split %s is left out with its %d queries: %s needs judgments", name, count, to)
        with whole_folder(output) as folder:
            (write_beir if to == "beir" else write_tevatron)(replace(collection, splits=judged), folder)
    settings: dict[str, Any] = {"kind": to}
    if to == "beir":
        settings |= {"folder": str(output), "splits": {name: f"qrels/{name}.tsv" for name in judged}}
    else:
        splits = {name: str(output / f"{name}.jsonl") for name in judged}
        settings |= {"corpus": str(output / "corpus.jsonl"), "splits": splits}
    kept = {"ignore_identical_ids", "instruction", *(["relevance_threshold"] if to == "beir" else [])}
    settings |= data.model_dump(include=kept, exclude_defaults=True)
    section = to_yaml(settings, default_flow_style=True, width=math.inf).strip()
    print(f"{output}: written; in a recipe it is\ndata: {section}")
