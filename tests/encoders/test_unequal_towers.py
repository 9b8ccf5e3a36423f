"""Towers that start from different layers, models and tokenizers, and have vectors of one size."""

import numpy as np
import pytest
from helpers.families import LENGTHS, TEXTS, assert_the_same
from helpers.released_checkpoints import assert_equal_vectors
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import (
    Normalize,
    Pooling,
    StaticEmbedding,
    Transformer,
)
from transformers import AutoTokenizer

from pyserini_ance.data.collection import SIDES
from pyserini_ance.encoders.config import tower_folder
from pyserini_ance.encoders.initial import initial_encoder, initial_tokenizer
from pyserini_ance.encoders.load_save import continue_encoder, load_encoder, load_tower
from pyserini_ance.pipeline.model_export import Proof


@pytest.fixture
def static(tmp_path, tiny_roberta):
    """A model of tokens' vectors of 24 numbers, with RoBERTa's tokenizer."""
    tokenizer = AutoTokenizer.from_pretrained(tiny_roberta).backend_tokenizer
    model = SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=24), Normalize()])
    model.save(str(tmp_path / "static"))
    return tmp_path / "static"


def test_layers_of_one_side_leave_the_other_whole(start, saved, tiny_bert):
    whole = start(tiny_bert, pooling="mean")
    encoder = start(tiny_bert, pooling="mean", query={"layers": [1]})
    assert not encoder.config.tied
    assert [len(encoder.towers.tower(side).transformer.encoder.layer) for side in SIDES] == [1, 2]
    np.testing.assert_array_equal(encoder.encode(TEXTS, "document"), whole.encode(TEXTS, "document"))
    assert_equal_vectors(load_encoder(saved(encoder)), encoder, TEXTS)


def test_the_query_side_of_a_saved_encoder_shrinks(start, saved, tiny_bert):
    """Its documents stay those of the saved one, whose settings hold."""
    trained = start(tiny_bert, pooling="mean", normalize=True, tokenization=LENGTHS)
    small = start(saved(trained), query={"layers": [0]})
    assert small.config.tokenization == trained.config.tokenization
    np.testing.assert_array_equal(small.encode(TEXTS, "document"), trained.encode(TEXTS, "document"))
    assert np.abs(small.encode(TEXTS) - trained.encode(TEXTS)).max() > 0.01


def test_two_models_with_two_tokenizers_are_joined_by_a_projection(start, saved, static, tiny_bert):
    template = {"document": {"length_tokens": 48, "template": "{text}"}}
    settings = {"query": {"model": str(static), "projection": 32}, "pooling": None, "tokenization": template}
    encoder = start(tiny_bert, **settings, seed=3)
    folder = saved(encoder)
    assert_the_same(folder, encoder)
    texts = [{"text": text} for text in TEXTS]
    ids = {side: encoder.tokenizer.ids(side, texts) for side in SIDES}
    assert ids["query"] != ids["document"] and not encoder.tokenizer.specials["query"].before
    for side in SIDES:
        for other in (load_encoder(folder), load_tower(tower_folder(folder, side), side)):
            np.testing.assert_array_equal(other.encode(TEXTS, side), encoder.encode(TEXTS, side))
            assert other.tokenizer.key(side) == encoder.tokenizer.key(side)
    assert initial_tokenizer(encoder.config).ids("query", texts) == ids["query"]
    proof = Proof(folder, {side: [{"text": "a text"}] for side in SIDES})
    assert proof.by_sentence_transformers(folder).is_small
    with pytest.raises(ValueError, match=r"of 24 and 32 numbers, .*; set encoder\.query\.projection: 32, or"):
        start(tiny_bert, query={"model": str(static)}, tokenization=template)


def test_each_side_reads_texts_as_its_own_model_does(config, start, saved, static, tiny_bert, tmp_path):
    layers = [Transformer(str(tiny_bert), max_seq_length=40), Pooling(32, "mean")]
    model = SentenceTransformer(modules=layers, device="cpu", prompts={"query": "q: ", "document": "d: "})
    model.save(str(tmp_path / "prompted"))
    ours = saved(start(tiny_bert, tokenization={**LENGTHS, "query": {"template": "ours: {text}"}}))
    for documents, template in ((tmp_path / "prompted", "d: {title} {text}"), (ours, "{title} {text}")):
        made = config(documents, tokenization={}, query={"model": str(static), "projection": 32})
        assert made.tokenization.query.template == "{text}"
        assert made.tokenization.document.template == template
        if documents == ours:
            assert initial_encoder(made, 0).config.tokenization == made.tokenization
    two = config(ours, tokenization={}, document={"model": str(tmp_path / "prompted")})
    assert two.tokenization.query.template == "ours: {text}"
    assert two.tokenization.document.length_tokens == 40


def test_sides_that_read_texts_in_ways_they_must_share_are_refused(config, start, saved, tiny_bert):
    lowered = saved(start(tiny_bert, tokenization={**LENGTHS, "lowercase": True}))
    other = saved(start(tiny_bert))
    message = r"differ in tokenization\.lowercase; set encoder\.tokenization\.lowercase for both"
    with pytest.raises(ValueError, match=message):
        config(lowered, tokenization={}, document={"model": str(other)})


def test_without_layers_a_vector_is_the_mean_of_its_tokens_vectors(config, start, saved, tiny_bert):
    template = {"query": {"length_tokens": 24}, "document": {"length_tokens": 48, "template": "{text}"}}
    encoder = start(tiny_bert, pooling="mean", query={"layers": []}, tokenization=template)
    table = start(tiny_bert).towers.queries.transformer.get_input_embeddings().weight.detach().numpy()
    ids = AutoTokenizer.from_pretrained(tiny_bert)("A Fox", add_special_tokens=False)["input_ids"]
    np.testing.assert_allclose(encoder.encode(["A Fox"])[0], table[ids].mean(0), atol=1e-6)
    folder = saved(encoder)
    assert_the_same(folder, encoder)
    same = config(tiny_bert, pooling="mean", query={"layers": []}, tokenization=template)
    for again in (load_encoder(folder), continue_encoder(same, folder)):
        np.testing.assert_array_equal(again.encode(TEXTS), encoder.encode(TEXTS))


def test_a_checkpoint_keeps_its_layers(config, start, saved, tiny_bert):
    folder = saved(start(tiny_bert))
    with pytest.raises(ValueError, match=r"encoder\.query\.layers is \[0\], but .* has other layers; start"):
        continue_encoder(config(tiny_bert, query={"layers": [0]}), folder)


def test_only_a_byte_level_tokenizer_has_a_prefix_space(start, saved, tiny_roberta, tiny_bert):
    documents = saved(start(tiny_roberta, tokenization={**LENGTHS, "prefix_space": False}))
    encoder = start(documents, tokenization={}, query={"model": str(tiny_bert)})
    assert encoder.config.tokenization.prefix_space is False


def test_layers_that_a_side_lacks_are_refused_by_their_key(start, static, tiny_bert):
    with pytest.raises(ValueError, match=r"encoder\.query\.layers is \[5\], but .* has 2 layers, 0 to 1"):
        start(tiny_bert, query={"layers": [5]})
    with pytest.raises(ValueError, match=r"encoder\.query\.layers is \[0\], but .*static has no layers"):
        start(tiny_bert, query={"model": str(static), "layers": [0], "projection": 32})
