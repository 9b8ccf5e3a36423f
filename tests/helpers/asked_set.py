"""A small collection in DPR's format, with questions that have answers alone."""

import json
from pathlib import Path

from pyserini_ance.recipe.models import Recipe


def make_asked_recipe(small_recipe, folder: Path, stages: dict, test: dict, **more) -> Recipe:
    """12 passages, 3 training questions, 4 test questions with answers alone, the last in no passage."""
    things = ["stone", "apple", "apple"] * 4
    passages = [(f"p{n}", f"the year {1980 + n} and the {thing}", "title") for n, thing in enumerate(things)]
    (folder / "psgs.tsv").write_text("".join("\t".join(row) + "\n" for row in passages))
    first = [("query 0", "1980", "p0"), ("query 1", "1981", "p1"), ("query 2", "1982", "p2")]
    judged = [{"question": q, "answers": [a], "positive_ctxs": [{"passage_id": p}]} for q, a, p in first]
    (folder / "train.json").write_text(json.dumps([{**one, "hard_negative_ctxs": []} for one in judged]))
    asked = "which year\t['1984', '1985']\nwhich thing\t['Stone']\nwhat\t['1991']\nwho\t['nobody']\n"
    (folder / "test.qa.csv").write_text(asked)
    names = {"train": "train.json", "test": "test.qa.csv"}
    splits = {split: {"questions": str(folder / name)} for split, name in names.items()}
    data = {"kind": "dpr", "passages": str(folder / "psgs.tsv"), "splits": splits}
    return small_recipe(stages, data=data, final_evaluation=test, cache=str(folder / "cache"), **more)
