import subprocess
import sys
from pathlib import Path

import pytest
from helpers.stages import make_stage

from pyserini_ance.data.formats.pyserini_index import PyseriniIndex
from pyserini_ance.encoders.config import EncoderConfig
from pyserini_ance.recipe import components
from pyserini_ance.recipe.load import dump, load, read_component
from pyserini_ance.recipe.models import Recipe

from .conftest import refused

OWN_CLASSES = """
from pyserini_ance.negatives.filters.base import Filter
from pyserini_ance.trainer.losses.base import Loss

class Triplet(Loss):
    margin: float = 1.0

    def __call__(self, scores, labels, mask):
        return scores.sum(1)

class NoComponent:
    pass

class Short(Filter):
    words: int = 3

    def mask(self, candidates):
        return candidates.rows < 0

class NoCall(Loss):
    pass
"""

# Every kind of the first version: none goes without a word in the changelog; new ones need no entry here.
KINDS = {
    "data": "beir datasets docstrings dpr flagembedding ir_datasets msmarco_doc msmarco_passage "
    "pyserini_index pyserini_jsonl tevatron",
    "negatives": "ann bm25 live lookahead mix momentum random ranking",
    "filters": "absolute_margin answers duplicates max_score range_max range_min relative_margin teacher "
    "training_positives",
    "teacher": "bm25 cross_encoder encoder hybrid ranking student",
    "loss": "bce hinge kl lambdarank margin_mse nll ranknet",
    "regularizer": "alignment uniformity",
}


def test_every_kind_is_registered_as_a_component_with_its_name_and_base_class():
    assert set(KINDS) == set(components.COMPONENT_GROUPS)
    missing = {group: set(names.split()) - set(components.kinds(group)) for group, names in KINDS.items()}
    assert not any(missing.values()), f"kinds that recipes may name are gone: {missing}"
    for group in components.COMPONENT_GROUPS:
        for kind in components.kinds(group):
            found = components.component_class(group, kind)
            assert issubclass(found, components.Component) and found.model_fields["kind"].default == kind
            components.check_base(group, found, kind)


def test_a_recipe_is_loaded_without_torch():
    code = "import sys; from pyserini_ance.recipe.load import load; import pyserini_ance.recipe.models; "
    subprocess.run([sys.executable, "-c", code + "assert 'torch' not in sys.modules"], check=True)


@pytest.fixture
def own_classes(tmp_path, monkeypatch):
    (tmp_path / "own_classes.py").write_text(OWN_CLASSES)
    monkeypatch.syspath_prepend(tmp_path)


def test_an_external_class_is_a_kind(base, write, own_classes):
    kind = "own_classes:Triplet"
    recipe = load(base, f"stages.only.terms.query.loss={{kind: '{kind}', margin: 2}}")
    loss = recipe.stages["only"].terms["query"].loss
    assert isinstance(loss, components.Component) and (loss.kind, loss.margin) == (kind, 2.0)
    assert load(write("dumped", dump(recipe))) == recipe


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("own_classes:Triplett", "cannot be imported: module 'own_classes' has no attribute"),
        ("nowhere_at_all.inner:Loss", "cannot be imported: No module named 'nowhere_at_all'; type the"),
        ("own_classes.Triplet", "(a class of your own is module:Class: 'own_classes:Triplet'); kinds: "),
        ("own_classes:NoComponent", "cannot be a `loss`: it is not a subclass of pyserini_ance.trainer"),
        ("own_classes:NoCall", "lacks the method __call__, which its base class requires"),
    ],
)
def test_a_class_that_is_no_loss_is_rejected_as_one(base, own_classes, kind, message):
    said = refused(base, f"stages.only.terms.query.loss.kind={kind}")
    assert f"kind {kind!r}" in said and message in said


@pytest.mark.parametrize("room", components.COMPONENT_GROUPS)
def test_a_class_of_another_group_is_rejected_in_every_group(own_classes, room):
    kind = "own_classes:Triplet" if room == "filters" else "own_classes:Short"
    with pytest.raises(ValueError, match=f"kind '{kind}' cannot be a `{room}`: it is not a subclass"):
        components.component_class(room, kind)
    own = components.component_class("loss" if room == "filters" else "filters", kind)(kind=kind)
    with pytest.raises(ValueError, match=f"{kind.partition(':')[2]} cannot be a `{room}`"):
        read_component(room, own, "here")


RANKING = {"kind": "ranking", "file": "runs/bm25.trec"}
STAGES = {"a": make_stage(RANKING, {"kind": "random"}, init_from={"folder": "start"})}
PATHS = {"data": {"kind": "beir", "folder": "data/mine"}, "encoder": {"model": "bert"}, "cache": "cache"}
RECIPE = Recipe.model_validate({"name": "r", "stages": STAGES, **PATHS})


def test_paths_start_at_the_root_wherever_the_recipe_is_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = components.absolute(RECIPE)
    assert made.cache == tmp_path / "cache" and made.data.folder == tmp_path / "data" / "mine"
    assert made.stages["a"].init_from.folder == tmp_path / "start"
    assert made.sources[0].file == tmp_path / "runs" / "bm25.trec"
    assert made.data.splits["dev"] == Path("qrels/dev.tsv")  # relative to the folder
    assert Recipe.model_validate(made.model_dump(mode="json")) == made == components.absolute(made)
    assert made.name == "r" and made.stages["a"].steps == 4


def test_a_name_is_a_path_where_there_is_such_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "build").mkdir()  # by chance: `bm25.index: build` is no folder
    made = components.absolute(RECIPE)
    assert made.encoder.model == "bert" and made.bm25.index == "build"
    (tmp_path / "bert").mkdir()
    assert components.absolute(RECIPE).encoder.model == str(tmp_path / "bert")
    (tmp_path / "t.tsv").touch()
    data = PyseriniIndex(index="msmarco", splits={"test": {"topics": "t.tsv", "qrels": "dl19-passage"}})
    split = components.absolute(data).splits["test"]
    assert (split.topics, split.qrels) == (tmp_path / "t.tsv", Path("dl19-passage"))
    encoder = EncoderConfig(model="hub/name", base="bert")
    assert components.absolute(encoder).base == str(tmp_path / "bert")
