"""A model of the hub without a network: one request, one line."""

from unittest.mock import Mock

import huggingface_hub
import pytest
from huggingface_hub.errors import RemoteEntryNotFoundError

from pyserini_ance.encoders.hub import SIDE_FILE, find_model, model_file


class LibraryError(Exception):
    """HTTP libraries have errors of their own."""


class Session:
    def __init__(self, answer):
        self.answer, self.asked = answer, []

    def head(self, url: str, timeout: float):
        self.asked.append(url)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def hub(monkeypatch, cache, answer=None) -> Session:
    """The hub with an empty cache: a session that gives the answer, or raises it."""
    session = Session(answer)
    monkeypatch.setattr(huggingface_hub, "get_session", lambda: session)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda model, file: None)
    no_file = RemoteEntryNotFoundError("404", response=Mock())
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", Mock(side_effect=no_file))
    return session


def test_without_a_network_it_is_said_after_one_request(monkeypatch, tmp_path):
    session = hub(monkeypatch, tmp_path, LibraryError("no route to host"))
    with pytest.raises(ConnectionError, match=r"'org/model' is no folder here.* cannot be reached .no route"):
        find_model("org/model")
    assert len(session.asked) == 1 and session.asked[0].endswith("/org/model/resolve/main/config.json")


def test_a_hub_that_answers_a_folder_or_the_cache_will_do(monkeypatch, tmp_path):
    session = hub(monkeypatch, tmp_path)
    assert find_model("org/model") == "org/model"
    assert [url.rpartition("/")[2] for url in session.asked] == ["config.json", SIDE_FILE]
    (tmp_path / "modules.json").touch()
    assert model_file(str(tmp_path), "modules.json", download=True) == tmp_path / "modules.json"
    assert model_file(str(tmp_path), "other.json", download=True) is None

    def in_cache(model, file):
        return object() if file == SIDE_FILE else f"/cache/{file}"

    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", in_cache)
    assert find_model("org/model") == "org/model"
    assert str(model_file("org/model", "modules.json")) == "/cache/modules.json"
    assert len(session.asked) == 2
