"""A folder appears under its name complete, or not at all."""

import os

import pytest

from pyserini_ance.storage import publish
from pyserini_ance.storage.publish import AppearedConcurrently, whole_folder


def test_files_and_directories_are_synced_before_the_folder_gets_its_name(tmp_path, monkeypatch):
    synced, folder = [], tmp_path / "index"
    monkeypatch.setattr(
        publish, "sync", lambda path: synced.append((path.relative_to(tmp_path), folder.exists()))
    )
    with whole_folder(folder) as temporary:
        (temporary / "inner").mkdir()
        (temporary / "inner" / "part").write_text("whole")
    hidden = temporary.relative_to(tmp_path)
    assert {path for path, has_name in synced if not has_name} == {
        hidden,
        hidden / "inner",
        hidden / "inner" / "part",
    }
    assert os.listdir(tmp_path) == ["index"] and (folder / "inner" / "part").read_text() == "whole"


def test_an_error_leaves_nothing_and_an_existing_folder_stays(tmp_path):
    with pytest.raises(KeyError), whole_folder(tmp_path / "index"):
        raise KeyError
    assert os.listdir(tmp_path) == []
    with pytest.raises(AppearedConcurrently), whole_folder(tmp_path / "index"):
        (tmp_path / "index").mkdir()
        (tmp_path / "index" / "part").write_text("other")
    with pytest.raises(FileExistsError, match="exists and is not empty"), whole_folder(tmp_path / "index"):
        pass
    assert os.listdir(tmp_path) == ["index"] and os.listdir(tmp_path / "index") == ["part"]
