"""A SIGKILL in the middle of writing: the next command moves back what was half done, and nothing of anybody else's."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kubewright.builder.change import Change
from kubewright.builder.exchange import alone_in
from kubewright.builder.main import main
from kubewright.errors import ConfigError

from .typed import state

# A command whose process gets a signal, sent by itself, before its n-th move.
SIGNALLED = """
import os, sys
from kubewright.builder.change import Change
from pathlib import Path
root, number, at = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
moves, real = 0, os.replace
def counted(source, target):
    global moves
    moves += 1
    if moves == at:
        os.kill(os.getpid(), number)
    real(source, target)
os.replace = counted
Change(root, {"a.txt": "new a", "deep/er/b.txt": "new b", "c.txt": "new c"}, removed=("gone.txt",)).write()
"""
MOVES = 6  # a.txt aside, a.txt, c.txt aside, c.txt, deep/er/b.txt, gone.txt aside


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a.txt", "c.txt", "gone.txt", "other.txt"):
        (tmp_path / name).write_text(f"old {name}")
    return tmp_path


def started(folder: Path, number: signal.Signals, at: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", SIGNALLED, str(folder), str(int(number)), str(at)])


def killed(folder: Path, at: int) -> None:
    assert started(folder, signal.SIGKILL, at).wait(60) == -signal.SIGKILL
    assert len(list(folder.glob(".kubewright-*"))) == 1


def any_command(folder: Path) -> None:
    """This is no project, so it ends with a word about that; what was left is looked at before."""
    assert main(["manifests", "--project", str(folder)]) == 1


@pytest.mark.parametrize("at", range(1, MOVES + 1))
def test_a_killed_command_is_undone_by_the_next(folder: Path, at: int, capsys: pytest.CaptureFixture[str]) -> None:
    before = state(folder)
    killed(folder, at)
    any_command(folder)
    assert "what it had changed is as it was before" in capsys.readouterr().err
    assert state(folder) == before
    assert not (folder / "deep").exists()
    assert not list(folder.glob(".kubewright-*"))
    any_command(folder)
    assert "half way" not in capsys.readouterr().err


def test_an_init_that_was_killed_can_be_run_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    killed(tmp_path, at=2)
    assert [path.name for path in tmp_path.iterdir()] != []
    assert main(["init", str(tmp_path), "--domain", "example.com", "--project-name", "again", "--dry-run"]) == 0
    assert "as it was before" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["a.txt", "deep/er/b.txt"])
def test_what_somebody_has_changed_since_is_theirs(folder: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    killed(folder, MOVES)
    (folder / name).write_text("mine")
    before = state(folder)
    any_command(folder)
    said = capsys.readouterr().err
    assert f"somebody has changed {name} since" in said
    (left,) = folder.glob(".kubewright-*")
    assert f"remove {left}" in said
    assert state(folder) == before


def test_what_a_killed_command_had_finished_stays(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    left = folder / ".kubewright-done"
    (left / "old").mkdir(parents=True)
    (left / "old/a.txt").write_text("older")
    any_command(folder)
    assert not left.exists()
    assert (folder / "a.txt").read_text() == "old a.txt"
    assert "half way" not in capsys.readouterr().err


def test_a_plan_that_was_cut_off_means_that_nothing_was_moved(folder: Path) -> None:
    left = folder / ".kubewright-cut"
    left.mkdir()
    (left / "plan.json").write_text('{"chan')
    before = state(folder)
    any_command(folder)
    assert {".kubewright-cut/plan.json", *state(folder)} == set(before)


def test_a_command_that_is_still_at_work_is_left_alone(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer = started(folder, signal.SIGSTOP, at=3)
    try:
        assert os.WIFSTOPPED(os.waitpid(writer.pid, os.WUNTRACED)[1])
        before = state(folder)
        any_command(folder)
        assert "half way" not in capsys.readouterr().err
        assert state(folder) == before
        with pytest.raises(ConfigError, match="another kubewright command is writing"), alone_in(folder, wait_seconds=0):
            pass
    finally:
        os.kill(writer.pid, signal.SIGCONT)
    assert writer.wait(60) == 0
    assert state(folder) == {"a.txt": b"new a", "c.txt": b"new c", "deep/er/b.txt": b"new b", "other.txt": b"old other.txt"}


def test_a_folder_that_cannot_be_locked_is_written_to_but_not_cleaned(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed(folder, at=3)
    before = state(folder)

    def refused(folder: int, operation: int) -> None:
        raise OSError("no locks available")

    monkeypatch.setattr(fcntl, "flock", refused)
    any_command(folder)
    assert state(folder) == before
    assert Change(folder, {"d.txt": "d"}).write() == ["d.txt"]


def test_a_link_of_a_persons_is_not_followed(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    theirs = tmp_path_factory.mktemp("theirs")
    (theirs / "thesis.txt").write_text("years of work")
    (folder / ".kubewright-link").symlink_to(theirs)
    any_command(folder)
    assert (theirs / "thesis.txt").read_text() == "years of work"
