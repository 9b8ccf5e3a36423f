from types import SimpleNamespace

import huggingface_hub
import pytest

from pyserini_ance.runs.any_encoder import encoder_source, load_any_encoder


def test_a_run_is_its_model(tmp_path):
    (tmp_path / "recipe.yaml").touch()
    with pytest.raises(FileNotFoundError, match="model is missing: the run has not finished"):
        encoder_source(tmp_path)
    (tmp_path / "model").mkdir()
    assert encoder_source(str(tmp_path)) == str(tmp_path / "model")


def test_a_name_that_cannot_be_had_is_named(monkeypatch):
    def unreachable(*arguments, **settings):
        raise OSError("no route to host")

    monkeypatch.setattr(huggingface_hub, "get_session", lambda: SimpleNamespace(head=unreachable))
    with pytest.raises(ConnectionError, match="encoder 'nosuch' is no folder here, .* cannot be reached"):
        load_any_encoder("nosuch")
