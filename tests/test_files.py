"""Files are whole or not there."""

import os
import subprocess
import sys

import pytest

from pyptox._files import drafted, write_whole


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


@pytest.mark.parametrize("folder", [False, True])
def test_a_killed_write_leaves_a_draft_that_the_next_removes(tmp_path, folder) -> None:
    place = tmp_path / "kept"
    text = (
        "import os, signal, sys; from pathlib import Path; from pyptox._files import drafted\n"
        "with drafted(Path(sys.argv[1]), folder=sys.argv[2] == 'True') as draft: os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", text, str(place), str(folder)], check=False, timeout=60)
    other = tmp_path / ".kept.other.0123456789abcdef.tmp"
    other.write_text("a draft of `kept.other`")
    assert len(list(tmp_path.iterdir())) == 2
    with drafted(place, folder=folder) as held:  # a draft that is being written stays
        with drafted(place, folder=folder) as draft:
            assert held.exists()
            assert draft.exists()
        assert held.exists()
        assert not draft.exists()
        if folder:
            place.rmdir()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [other.name, "kept"]
