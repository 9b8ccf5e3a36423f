"""Published figures beside the recipes: rows that tables set what runs measure against."""

import pytest

from benchmarks.papers.published import Published, Section, read_published, section_of
from pyserini_ance.recipe.load import SHIPPED, load

SETS = sorted(path.parent.name for path in SHIPPED.glob("*/_published.yaml"))
SPLITS = {"train", "dev", "test", "eval", "dl19", "dl19-rerank", "nq-test", "trivia-test"}
GOOD = """\
sources: {ance: a paper}
rows:
- {method: rand, as: Rand, source: ance, table: 1, dev: {RR@10: 0.261}}
"""


@pytest.mark.parametrize("name", SETS)
def test_shipped_scores_name_evaluated_splits_and_recipes(name):
    rows = read_published(SHIPPED / name).rows
    assert len(rows) > 2 and {split for row in rows for split in row.figures} <= SPLITS
    for method in {row.method for row in rows} - {None, "bm25-search", "untrained"}:
        assert load(f"{name}/{method}").name == f"{name}/{method}"


def test_rows_are_read_with_their_splits_and_the_measures_of_other_commands(tmp_path):
    assert read_published(tmp_path) == Published({}, [])
    (tmp_path / "_published.yaml").write_text(GOOD)
    (row,) = read_published(tmp_path).rows
    about = (row.method, row.model, row.where(), row.figures)
    assert about == ("rand", "Rand", "ance, table 1", {"dev": {"RR@10": 0.261}})
    figures = {"Hole@10": 0.258, "Overlap@100": 1.0, "EM": 0.46, "forgotten": 0.089}
    text = GOOD.replace("method: rand, ", "").replace("{RR@10: 0.261}", str(figures).replace("'", ""))
    (tmp_path / "_published.yaml").write_text(text)
    (row,) = read_published(tmp_path).rows
    assert row.method is None and row.figures == {"dev": figures}
    sections = [Section.JUDGED, Section.JUDGED, Section.ANSWERS, Section.FORGETTING, None]
    assert [section_of(measure) for measure in (*figures, "RR@10")] == sections


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("source: ance", "source: ancce", "rows.0.source: got 'ancce' (did you mean 'ance'?); expected"),
        ("RR@10: 0.261", "Hole: 0.261", "rows.0.dev.Hole: unknown measure 'Hole'"),
        ("0.261", "26.1", "rows.0.dev.RR@10: expected a number from 0 to 1, got 26.1"),
        ("table: 1", "tabel: 1", "rows.0: expected `as` and splits such as dev: {RR@10: 0.33}"),
    ],
)
def test_a_malformed_file_is_refused_with_its_path_and_key(tmp_path, old, new, message):
    (tmp_path / "_published.yaml").write_text(GOOD.replace(old, new))
    with pytest.raises(ValueError) as error:
        read_published(tmp_path)
    assert str(error.value).startswith(f"{tmp_path / '_published.yaml'}: {message}")


def test_models_of_several_sets_have_consistent_scores():
    multi = {(row.source, row.model): row.figures for row in read_published(SHIPPED / "openqa-multi").rows}
    for split, name in {"nq-test": "nq", "trivia-test": "triviaqa"}.items():
        of_set = {(row.source, row.model): row.figures["test"] for row in read_published(SHIPPED / name).rows}
        assert {key: figures[split] for key, figures in multi.items()} == {key: of_set[key] for key in multi}
