"""Files are whole or not there."""

import os

import pytest

from pyptox._files import write_whole


def test_a_failed_write_leaves_the_old_file_and_no_draft(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    write_whole(path, "old")
    write_whole(path, b"older")
    assert path.read_bytes() == b"older"

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write_whole(path, "new")
    assert [file.name for file in tmp_path.iterdir()] == ["a.json"]
    assert path.read_bytes() == b"older"


def test_the_message_names_the_path(tmp_path):
    with pytest.raises(FileNotFoundError, match="`path` must lie in a folder that exists"):
        write_whole(tmp_path / "absent" / "a.json", "")
    with pytest.raises(IsADirectoryError, match="`path` must name a file"):
        write_whole(tmp_path, "")


def test_a_new_file_has_the_mode_of_the_umask(tmp_path) -> None:
    old = os.umask(0o027)
    try:
        write_whole(tmp_path / "a.json", "{}")
    finally:
        os.umask(old)
    assert (tmp_path / "a.json").stat().st_mode & 0o777 == 0o640
