import json
import shutil
from types import SimpleNamespace

import huggingface_hub
import numpy as np
import pytest

from pyserini_ance.encoders.families.transformer import Transformer
from pyserini_ance.runs.any_encoder import encoder_source, load_any_encoder

TEXTS = ["the quick brown fox " * 30, "A lazy Dog"]


@pytest.fixture(scope="module")
def model_of(tiny_bert, tmp_path_factory):
    """Save a sentence-transformers model of `tiny_bert`; returns the library's model and the folder."""
    library = pytest.importorskip("sentence_transformers")
    from sentence_transformers.sentence_transformer import modules

    def make(pooling="mean", normalize=True, length=20, **settings):
        encoder = modules.Transformer(str(tiny_bert), max_seq_length=length)
        layers = [encoder, modules.Pooling(encoder.get_embedding_dimension(), pooling)]
        layers += [modules.Normalize()] if normalize else []
        model = library.SentenceTransformer(modules=layers, device="cpu", **settings)
        folder = tmp_path_factory.mktemp("sentences")
        model.save(str(folder), create_model_card=False)
        return model, folder

    return make


@pytest.mark.parametrize(
    "settings",
    [
        {"prompts": {"query": "query: ", "passage": "the text: "}},
        {"pooling": "cls", "normalize": False, "length": None, "prompts": {}},
        {"prompts": {"all": "all of "}, "default_prompt_name": "all"},
    ],
)
def test_the_vectors_of_sentence_transformers(model_of, settings):
    model, folder = model_of(**settings)
    encoder = load_any_encoder(folder)
    for side, encode in (("query", model.encode_query), ("document", model.encode_document)):
        np.testing.assert_allclose(encoder.encode(TEXTS, side), encode(TEXTS), atol=1e-5)


def test_older_files_say_the_same(model_of):
    model, folder = model_of("cls", normalize=False)
    [pooling] = folder.glob("*Pooling/config.json")
    old = {"word_embedding_dimension": 32, "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
    pooling.write_text(json.dumps(old))
    encoder = load_any_encoder(folder)
    np.testing.assert_allclose(encoder.encode(TEXTS), model.encode_query(TEXTS), atol=1e-5)
    assert load_any_encoder(folder, given={"pooling": "mean"}).family.pooling == "mean"


def test_what_this_package_lacks_is_refused(model_of):
    _, folder = model_of("lasttoken")
    with pytest.raises(ValueError, match="pools by 'lasttoken'; set pooling to cls or mean"):
        Transformer(model=str(folder))
    assert Transformer(model=str(folder), pooling="mean").pooling == "mean"


def test_a_run_is_its_model(model_of, tmp_path):
    _, folder = model_of()
    (tmp_path / "recipe.yaml").touch()
    with pytest.raises(FileNotFoundError, match="model is missing: the run has not finished"):
        encoder_source(tmp_path)
    shutil.copytree(folder, tmp_path / "model")
    assert encoder_source(str(tmp_path)) == str(tmp_path / "model")


def test_a_name_that_cannot_be_had_is_named(monkeypatch):
    def unreachable(*arguments, **settings):
        raise OSError("no route to host")

    monkeypatch.setattr(huggingface_hub, "get_session", lambda: SimpleNamespace(head=unreachable))
    with pytest.raises(ConnectionError, match="encoder 'nosuch' is no folder here, .* cannot be reached"):
        load_any_encoder("nosuch")
