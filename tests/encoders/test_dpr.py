"""Pairs in DPR's form, and the way back; Pyserini's classes read them in test_stock_search.py."""

import numpy as np
import pytest
import torch
from helpers.released_checkpoints import assert_equal_vectors, with_moved_documents

from pyserini_ance.encoders.config import SIDE_FILE, TOWERS
from pyserini_ance.encoders.dpr import is_dpr, to_dpr
from pyserini_ance.encoders.initial import initial_encoder
from pyserini_ance.encoders.load_save import continue_encoder, load_encoder, load_tower
from pyserini_ance.encoders.sentence_transformers_files import MODULES
from pyserini_ance.runs.checkpoint import weights_of

DOCUMENT = {"length_tokens": 48, "template": "{title} [SEP] {text}"}
AS_OPENQA = {"query": {"length_tokens": 24}, "document": DOCUMENT}
# which `auto` writes, and `dpr` does not
OTHER_DOCUMENTS = {**AS_OPENQA, "document": {"length_tokens": 48, "template": "{title} {text}"}}


@pytest.fixture
def openqa(config):
    """Of plain BERTs over title and text, two towers unless said."""
    return lambda model, **settings: config(model, **{"tied": False, "tokenization": AS_OPENQA, **settings})


@pytest.fixture
def pair(openqa, tiny_bert):
    return with_moved_documents(initial_encoder(openqa(tiny_bert), seed=1))


@pytest.fixture
def exported(pair, saved):
    folder = saved(pair)
    to_dpr(folder)
    return folder


def files(folder) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_what_it_was_comes_back_to_the_byte(pair, saved, exported, records):
    plain, loaded = saved(pair), load_encoder(exported)
    assert is_dpr(exported / "queries") and not is_dpr(plain / "queries")
    assert_equal_vectors(loaded, pair, records)
    again = files(saved(loaded))
    for name, content in files(plain).items():
        if not name.endswith(SIDE_FILE):  # which names the folder it came from
            assert again[name] == content, name
    of_towers = {f"{folder}/{MODULES}" for folder in TOWERS.values()}
    assert again.keys() - files(exported).keys() == {MODULES, *of_towers}


def test_both_forms_have_one_hash(pair, saved, exported, openqa, tiny_bert):
    assert weights_of(exported) == weights_of(saved(pair))
    one, two = (saved(initial_encoder(openqa(tiny_bert, tied=tied), seed=1)) for tied in (True, False))
    to_dpr(two)
    assert weights_of(two) == weights_of(one)


def test_a_run_starts_from_it(pair, exported, openqa, records, caplog):
    state = torch.get_rng_state()
    assert_equal_vectors(initial_encoder(openqa(exported), seed=2), pair, records)
    assert_equal_vectors(continue_encoder(openqa("elsewhere"), exported), pair, records)
    for side, name in TOWERS.items():
        found = load_tower(exported / name, side).encode(records, side)
        np.testing.assert_array_equal(found, pair.encode(records, side))
        one = initial_encoder(openqa(exported / name, tied=True), seed=2)
        np.testing.assert_array_equal(one.encode(records, side), pair.encode(records, side))
    assert caplog.messages == []  # of how DPR's own releases read texts
    assert torch.equal(torch.get_rng_state(), state)


OTHER_FORMS = [{"normalize": "query"}, {"projection": 8}, {"tokenization": OTHER_DOCUMENTS}]
OTHER_FORMS += [{"query": {"layers": []}}, {"document": {"projection": 32}}]
OTHER_FORMS += [{"model": "tiny_roberta", "projection": 16, "layer_norm": True}]


@pytest.mark.parametrize("settings", OTHER_FORMS)
def test_what_has_no_such_form_is_left_as_it_is(config, saved, settings, request):
    settings = {"tied": False, "tokenization": AS_OPENQA, **settings}
    model = request.getfixturevalue(settings.pop("model", "tiny_bert"))
    folder = saved(initial_encoder(config(model, **settings), seed=1))
    before = files(folder)
    to_dpr(folder)
    assert files(folder) == before
