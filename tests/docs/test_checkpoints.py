"""The table of docs/guides/checkpoints.md is what the code recognises; its examples set how each was made."""

import re

import pytest
import yaml
from helpers.pages import blocks, guide

from pyserini_ance.data.collection import SIDES
from pyserini_ance.encoders import released
from pyserini_ance.encoders.config import EncoderConfig
from pyserini_ance.encoders.released import form_of, warn_about_settings

PAGE = guide("checkpoints")
TABLES = re.findall(r"(?:^\|.*\n)+", PAGE, re.MULTILINE)
FORM_ROWS, _ = (table.splitlines()[2:] for table in TABLES)
EXAMPLES = {
    "castorini/ance-msmarco-passage": released.ANCE,
    "checkpoints/Document ANCE(FirstP) Checkpoint": released.ANCE,
    "castorini/ance-msmarco-doc-maxp": released.MAXP,
    "data/passage/trained_models/star": released.STAR,
    "data/doc/trained_models/adore-star": released.STAR,
    "checkpoints/DANCE": released.DANCE,
    "checkpoints/ANCE_w_Dual": released.ANCE,
    "checkpoints/multi.cp": released.DPR,
    "castorini/ance-dpr-question-multi": released.DPR,
    "OpenMatch/ance-tele_msmarco_qry-psg-encoder": released.TELE,
    "OpenMatch/ance-tele_nq_qry-encoder": released.TELE,
    "checkpoints/ance-tele_nq": released.TELE,
    "checkpoints/SEED-Encoder-3-decoder-layers": released.SEED,
    "checkpoints/SEED-Encoder-doc-800000": released.SEED,
}


def encoder_of(block: str) -> EncoderConfig:
    settings = yaml.safe_load(block)
    assert settings.keys() == {"encoder"}
    return EncoderConfig.model_validate(settings["encoder"])


ENCODERS = {encoder.model: encoder for encoder in map(encoder_of, blocks(PAGE, "yaml"))}


def test_the_table_has_every_form():
    assert len(FORM_ROWS) == 13 and all(row.count(" | ") == 3 for row in FORM_ROWS)
    table = "\n".join(FORM_ROWS)
    for form in released.FORMS:
        assert all(f"`{name}`" in table for name in (*form.architectures, *form.model_types, *form.arguments))
    assert all(f"`{name}`" in table for name in released.TEVATRON_FOLDER.values())


@pytest.mark.parametrize(("model", "form"), EXAMPLES.items(), ids=EXAMPLES)
def test_an_example_has_the_settings_of_its_form(model: str, form: released.Form, caplog):
    encoder = ENCODERS[model]
    for side in SIDES:
        warn_about_settings(form, encoder.model_of(side), encoder)
    assert caplog.messages == []
    if form in (released.DANCE, released.MAXP, released.TELE):
        config = {"model_type": "bert"} if form is released.TELE else {}
        assert form_of(model, config) is form


def test_each_example_is_looked_at_and_each_form_has_one():
    assert ENCODERS.keys() == EXAMPLES.keys()
    assert {form.description for form in EXAMPLES.values()} == {form.description for form in released.FORMS}


def test_the_warning_shown_is_what_is_said(caplog):
    plain = ENCODERS["checkpoints/ANCE_w_Dual"].model_copy(update={"normalize": False})
    warn_about_settings(released.DANCE, "checkpoints/DANCE", plain)
    assert f"```\n{caplog.messages[0]}\n```" in PAGE
