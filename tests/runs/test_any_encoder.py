from unittest.mock import Mock

import huggingface_hub
import pytest

from pyserini_ance.runs.any_encoder import encoder_source, load_any_encoder


def test_a_run_is_its_model(tmp_path):
    run = tmp_path / "an adaptation" / "run"
    (run.parent / "data").mkdir(parents=True)
    (run.parent / "data" / "recipe.yaml").touch()
    (run.parent / "recipe.yaml").touch()
    with pytest.raises(FileNotFoundError, match=f"{run} is not a run .* or by `adapt` to its end"):
        encoder_source(run.parent)
    run.mkdir()
    (run / "recipe.yaml").touch()
    message = f"has not finished; .* train '{run}/recipe.yaml' --output "
    for folder in (run, run.parent):
        with pytest.raises(FileNotFoundError, match=message):
            encoder_source(folder)
    (run / "model").mkdir()
    assert encoder_source(str(run)) == encoder_source(run.parent) == str(run / "model")


def test_a_name_that_cannot_be_had_is_named(monkeypatch):
    session = Mock(**{"head.side_effect": OSError("no route to host")})
    monkeypatch.setattr(huggingface_hub, "get_session", lambda: session)
    with pytest.raises(ConnectionError, match="encoder 'nosuch' is no folder here, .* cannot be reached"):
        load_any_encoder("nosuch")
