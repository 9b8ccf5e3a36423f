"""Official places and counts beside the recipes: each file that a recipe of a paper's set names has its
place."""

import pytest

from pyserini_ance.recipe.find import SHIPPED, shipped
from pyserini_ance.recipe.load import load

SETS = sorted(path.parent.name for path in SHIPPED.glob("*/_published.yaml"))


@pytest.mark.parametrize("name", SETS)
def test_every_file_has_an_address_and_every_split_its_counts(name):
    data = load(next(one for one in shipped() if one.startswith(f"{name}/"))).recipe.data
    for _, path in data.files():
        official = data.official[path.name.removesuffix(".gz")]
        assert official.startswith(
            ("https://msmarco.z22.", "https://trec.nist.gov/", "https://dl.fbaipublicfiles.com/dpr/")
        )
    counted = {key.partition(" ")[0] for key, value in data.official.items() if isinstance(value, int)}
    assert {"documents", *data.splits} <= counted


def test_the_judgments_are_those_of_the_real_files(shared_data):
    from pyserini_ance.data.formats.lines import find_file
    from pyserini_ance.data.trec import trec_judgments

    names = {
        ("msmarco-passage", "dev"): "msmarco-passage.dev-subset",
        ("msmarco-passage", "dl19"): "dl19-passage",
        ("msmarco-passage", "dl20"): "dl20-passage",
        ("msmarco-doc", "dev"): "msmarco-doc.dev",
        ("msmarco-doc", "dl19"): "dl19-doc",
        ("msmarco-doc", "dl20"): "dl20-doc",
    }
    for (name, split), file in names.items():
        path = find_file(shared_data / "msmarco-topics-qrels" / f"qrels.{file}.txt", "qrels")
        judgments = list(trec_judgments(path))
        published = load(f"{name}/dpr").recipe.data.published
        used = len({one.query for one in judgments if one.grade > 0})
        assert (len(judgments), used) == (published("judgments", split), published("used", split)), file
