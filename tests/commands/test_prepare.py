from helpers.small_set import ONE_STEP

from pyserini_ance.commands import prepare
from pyserini_ance.recipe.load import dump


def test_a_recipe_is_prepared_with_overrides(small_recipe, tmp_path, capsys):
    (tmp_path / "small.yaml").write_text(dump(small_recipe({"a": ONE_STEP})))
    prepare.main([str(tmp_path / "small.yaml"), f"cache={tmp_path / 'cache'}", "data.official.documents=30"])
    out = capsys.readouterr().out
    assert "| documents " in out and "| 30 documents" in out and "| tokens " in out
    assert {"collections-5", "tokens"} <= {path.name for path in (tmp_path / "cache").iterdir()}
