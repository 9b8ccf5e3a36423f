import re

import pytest

from pyserini_ance.recipe.grid_spec import Grid
from pyserini_ance.recipe.load import SHIPPED, load, shipped

SETS = sorted(path.parent.name for path in SHIPPED.glob("*/_published.yaml"))


def test_the_recipes_of_the_demo_expect_what_the_quick_start_shows():
    page = SHIPPED.parent / "docs" / "guides" / "quick-start.md"
    if not page.exists():
        pytest.skip("an installed package has no docs beside it")
    [row] = re.findall(r"^\| alone \|(.*)\|$", page.read_text(), re.MULTILINE)
    recipes = [load(f"demo-small/{name}") for name in ("rand-batch", "ance", "distilled")]
    assert [one.expect["test"]["nDCG@10"] for one in recipes] == list(map(float, row.split("|")))[2:]


CHANCE_MACHINE_PATHS_AND_NUMERICS = ["seed=7", "threads=1", "device=cpu", "encoding={precision: bf16}"]
CHANCE_MACHINE_PATHS_AND_NUMERICS += ["cache=/elsewhere", "name=mine", "data.folder=/elsewhere"]
CHANCE_MACHINE_PATHS_AND_NUMERICS += ["final_evaluation.split=dl19", "save_total_limit=2", "shard=true"]
CHANCE_MACHINE_PATHS_AND_NUMERICS += ["final_evaluation={rows: [bm25, stages], indexes: [Flat]}"]
AS_IN_THE_FILE = "stages.only.steps=10"


def test_overrides_of_the_method_drop_the_figures_and_others_keep_them(base, write):
    one = write("one", "extends: base\nexpect: {dev: {RR@10: 0.3}}")
    for override in ("stages.only.steps=11", "data.relevance_threshold=2", "bm25.b=0.8"):
        assert load(one, "seed=3", override).expect == {}
    for override in (*CHANCE_MACHINE_PATHS_AND_NUMERICS, AS_IN_THE_FILE):
        assert load(one, override).expect == {"dev": {"RR@10": 0.3}}, override
    files = ("data.corpus=/elsewhere/collection.tsv", "data.splits.dev.qrels=/elsewhere/qrels")
    assert load("msmarco-passage/ance", *files).expect == load("msmarco-passage/ance").expect != {}


README = (SHIPPED / "README.md").read_text()
FIGURE = r"(0\.\d{3})\D[^|]*"
ROW = re.compile(rf"(?m)^\| (\w+/[\w-]+) +\| +\d \| {FIGURE}\| {FIGURE}\| {FIGURE}")
SHOWN = ("nDCG@10", "RR@10", "R@100")
MEASURED = {name: dict(zip(SHOWN, map(float, of), strict=True)) for name, *of in ROW.findall(README)}
OF_SMALL_SETS = [name for name in shipped() if name.split("/")[0] in ("demo", "nfcorpus", "medquad")]


@pytest.mark.parametrize("name", OF_SMALL_SETS)
def test_a_recipe_expects_the_mean_of_its_row_and_nothing_of_the_recipe_that_it_extends(name):
    apart = {"demo/nce": {"nDCG@10": 0.503, "RR@10": 0.451, "R@100": 0.877}}  # measured outside the table
    found = {**MEASURED, **apart}.get(name)
    assert load(name).expect == ({"test": found} if found else {})


@pytest.mark.parametrize("family", ["demo", "nfcorpus", "medquad"])
def test_the_table_has_all_recipes_of_a_family(family):
    points = Grid.parse([f"family-{family}"]).points.values()
    assert {point["recipe"] for point in points} == {n for n in MEASURED if n.startswith(f"{family}/")}


@pytest.mark.parametrize("name", SETS)
def test_every_file_has_an_address_and_every_split_its_counts(name):
    data = load(next(one for one in shipped() if one.startswith(f"{name}/"))).data
    for _, path in data.files():
        official = data.official[path.name.removesuffix(".gz")]
        hosts = ("msmarco.z22.", "trec.nist.gov/", "dl.fbaipublicfiles.com/dpr/")
        assert official.startswith(tuple(f"https://{host}" for host in hosts))
    counted = {key.partition(" ")[0] for key, value in data.official.items() if isinstance(value, int)}
    assert {"documents", *data.splits} <= counted


def test_the_judgments_are_those_of_the_real_files(shared_data):
    from pyserini_ance.data.formats.lines import find_file
    from pyserini_ance.data.trec import trec_judgments

    files = [("msmarco-passage", "dev", "msmarco-passage.dev-subset")]
    files += [("msmarco-doc", "dev", "msmarco-doc.dev")]
    files += [(f"msmarco-{of}", f"dl{n}", f"dl{n}-{of}") for of in ("passage", "doc") for n in (19, 20)]
    for name, split, file in files:
        path = find_file(shared_data / "msmarco-topics-qrels" / f"qrels.{file}.txt", "qrels")
        judgments = list(trec_judgments(path))
        published = load(f"{name}/dpr").data.published
        used = len({one.query for one in judgments if one.grade > 0})
        assert (len(judgments), used) == (published("judgments", split), published("used", split)), file
