import os

import pytest

from pyserini_ance.storage import folders
from pyserini_ance.storage.folders import WrittenMeanwhile, whole_folder


def test_files_and_lists_of_names_are_on_disk_before_the_folder_has_its_name(tmp_path, monkeypatch):
    synced, folder = [], tmp_path / "index"
    monkeypatch.setattr(folders, "sync", lambda path: synced.append((path.relative_to(tmp_path), folder.exists())))
    with whole_folder(folder) as beside:
        (beside / "inner").mkdir()
        (beside / "inner" / "part").write_text("whole")
    hidden = beside.relative_to(tmp_path)
    assert {path for path, named in synced if not named} == {hidden, hidden / "inner", hidden / "inner" / "part"}
    assert os.listdir(tmp_path) == ["index"] and (folder / "inner" / "part").read_text() == "whole"


def test_an_error_leaves_nothing_and_what_is_there_stays(tmp_path):
    with pytest.raises(KeyError), whole_folder(tmp_path / "index"):
        raise KeyError
    assert os.listdir(tmp_path) == []
    with pytest.raises(WrittenMeanwhile), whole_folder(tmp_path / "index"):
        (tmp_path / "index").mkdir()
        (tmp_path / "index" / "part").write_text("theirs")
    with pytest.raises(FileExistsError, match="exists and is not empty"), whole_folder(tmp_path / "index"):
        pass
    assert os.listdir(tmp_path) == ["index"] and os.listdir(tmp_path / "index") == ["part"]
