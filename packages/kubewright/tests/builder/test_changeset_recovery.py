"""A SIGKILL in the middle of writing: the next command moves back what was half done, and nothing of anybody else's."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kubewright.builder import exchange
from kubewright.builder.changeset import ChangeSet
from kubewright.builder.cli import main
from kubewright.builder.exchange import lock_project
from kubewright.errors import ConfigError

from .builder_commands import read_project_bytes

# A command whose process gets a signal, sent by itself, before its n-th move.
SIGNALLED_SCRIPT = """
import os, sys
from kubewright.builder.change import Change
from kubewright.builder.exchange import alone_in
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
with alone_in(root):
    Change(root, {"a.txt": "new a", "deep/er/b.txt": "new b", "c.txt": "new c"}, removed=("gone.txt",)).write()
"""
MOVE_COUNT = 6  # a.txt aside, a.txt, c.txt aside, c.txt, deep/er/b.txt, gone.txt aside


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a.txt", "c.txt", "gone.txt", "other.txt"):
        (tmp_path / name).write_text(f"old {name}")
    return tmp_path


def start_script(folder: Path, number: signal.Signals, at: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", SIGNALLED_SCRIPT, str(folder), str(int(number)), str(at)]
    )


def kill_at_move(folder: Path, at: int) -> None:
    assert start_script(folder, signal.SIGKILL, at).wait(60) == -signal.SIGKILL
    assert len(list(folder.glob(".kubewright-*"))) == 1


def run_any_command(folder: Path, *options: str) -> None:
    """This is no project, so it ends with a word about that; what was left is looked at before."""
    assert main(["manifests", "--project", str(folder), *options]) == 1


@pytest.mark.parametrize("at", range(1, MOVE_COUNT + 1))
def test_a_killed_command_is_undone_by_the_next(
    folder: Path, at: int, capsys: pytest.CaptureFixture[str]
) -> None:
    before = read_project_bytes(folder)
    kill_at_move(folder, at)
    run_any_command(folder)
    assert "what it had changed is as it was before" in capsys.readouterr().err
    assert read_project_bytes(folder) == before
    assert not (folder / "deep").exists()
    assert not list(folder.glob(".kubewright-*"))
    run_any_command(folder)
    assert "half way" not in capsys.readouterr().err


def test_an_init_that_was_killed_can_be_run_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kill_at_move(tmp_path, at=2)
    assert (tmp_path / "a.txt").exists()
    assert main(["init", str(tmp_path), "--domain", "example.com", "--project-name", "again"]) == 0
    assert "as it was before" in capsys.readouterr().err
    assert not (tmp_path / "a.txt").exists()


@pytest.mark.parametrize("name", ["a.txt", "deep/er/b.txt"])
def test_what_somebody_has_changed_since_is_theirs(
    folder: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    kill_at_move(folder, MOVE_COUNT)
    (folder / name).write_text("mine")
    before = read_project_bytes(folder)
    run_any_command(folder)
    said = capsys.readouterr().err
    assert f"somebody has changed {name} since" in said
    (left,) = folder.glob(".kubewright-*")
    assert f"remove {left}" in said
    assert read_project_bytes(folder) == before


def test_what_a_killed_command_had_finished_stays(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    left = folder / ".kubewright-d_ne1234"
    (left / "old").mkdir(parents=True)
    (left / "old/a.txt").write_text("older")
    run_any_command(folder)
    assert not left.exists()
    assert (folder / "a.txt").read_text() == "old a.txt"
    assert "half way" not in capsys.readouterr().err


def test_a_plan_that_was_cut_off_means_that_nothing_was_moved(folder: Path) -> None:
    left = folder / ".kubewright-cut_off1"
    left.mkdir()
    (left / "plan.json").write_text('{"chan')
    before = read_project_bytes(folder)
    run_any_command(folder)
    assert {".kubewright-cut_off1/plan.json", *read_project_bytes(folder)} == set(before)


def test_a_command_that_is_still_at_work_is_left_alone(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    writer = start_script(folder, signal.SIGSTOP, at=3)
    try:
        assert os.WIFSTOPPED(os.waitpid(writer.pid, os.WUNTRACED)[1])
        before = read_project_bytes(folder)
        run_any_command(folder, "--check")
        assert "half way" not in capsys.readouterr().err
        assert read_project_bytes(folder) == before
        with (
            pytest.raises(ConfigError, match="another kubewright command is at work"),
            lock_project(folder, timeout_seconds=0),
        ):
            pass
    finally:
        os.kill(writer.pid, signal.SIGCONT)
    assert writer.wait(60) == 0
    assert read_project_bytes(folder) == {
        "a.txt": b"new a",
        "c.txt": b"new c",
        "deep/er/b.txt": b"new b",
        "other.txt": b"old other.txt",
    }


def test_a_folder_that_cannot_be_locked_is_written_to_but_not_cleaned(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill_at_move(folder, at=3)
    before = read_project_bytes(folder)

    def refused(folder: int, operation: int) -> None:
        raise OSError("no locks available")

    monkeypatch.setattr(fcntl, "flock", refused)
    run_any_command(folder)
    assert read_project_bytes(folder) == before
    assert ChangeSet(folder, {"d.txt": "d"}).write() == ["d.txt"]


def test_a_link_of_a_persons_is_not_followed(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    theirs = tmp_path_factory.mktemp("theirs")
    (theirs / "thesis.txt").write_text("years of work")
    (folder / ".kubewright-link_abc").symlink_to(theirs)
    run_any_command(folder)
    assert (theirs / "thesis.txt").read_text() == "years of work"


@pytest.mark.parametrize(
    "file",
    [".kubewright-notes/new/f", ".kubewright-notebook/f", ".kubewright-notebook/older/f"],
    ids=["another name", "a file of theirs in it", "a folder of theirs in it"],
)
def test_a_folder_of_a_persons_stays_whatever_its_name_begins_with(folder: Path, file: str) -> None:
    (folder / file).parent.mkdir(parents=True)
    (folder / file).write_text("years of work")
    before = read_project_bytes(folder)
    run_any_command(folder)
    run_any_command(folder, "--check")
    assert read_project_bytes(folder) == before


def test_a_strangers_plan_is_not_followed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kill_at_move(folder, at=3)
    before = read_project_bytes(folder)
    (left,) = folder.glob(".kubewright-*")
    assert exchange.find_work_folders(folder) == [left]
    real = Path.stat

    def of_a_stranger(path: Path, **options: bool) -> os.stat_result:
        found = real(path, **options)
        return os.stat_result((*found[:4], found.st_uid + 1, *found[5:])) if path == left else found

    monkeypatch.setattr(Path, "stat", of_a_stranger)
    run_any_command(folder)
    assert read_project_bytes(folder) == before


@pytest.mark.parametrize(
    "words",
    [
        ["manifests", "--check"],
        ["docs", "--check"],
        ["create", "api", "--dry-run"],
        ["create", "webhook", "--dry-run"],
    ],
    ids=" ".join,
)
def test_what_writes_nothing_only_says_what_is_half_done(
    folder: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    kill_at_move(folder, at=3)
    before = read_project_bytes(folder)
    assert main([*words, "--project", str(folder)]) == 1
    said = capsys.readouterr().err
    (left,) = folder.glob(".kubewright-*")
    assert f"killed half way here, and left {left}. This command writes nothing" in said
    assert "the next command that writes here moves them back" in said
    assert read_project_bytes(folder) == before


def test_an_init_that_is_only_shown_touches_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kill_at_move(folder, at=3)
    before = read_project_bytes(folder)
    assert (
        main(
            ["init", str(folder), "--domain", "example.com", "--project-name", "again", "--dry-run"]
        )
        == 1
    )
    assert "the next command that writes here" in capsys.readouterr().err
    assert read_project_bytes(folder) == before
    assert main(["init", str(folder / "not/there"), "--domain", "example.com", "--dry-run"]) == 0
    assert not (folder / "not").exists()


@pytest.mark.parametrize("at", range(1, MOVE_COUNT + 1))
def test_links_are_brought_back_as_they_were(folder: Path, at: int) -> None:
    for name in ("a.txt", "gone.txt"):
        (folder / name).rename(folder / f"real-{name}")
        (folder / name).symlink_to(f"real-{name}")
    before = read_project_bytes(folder)
    kill_at_move(folder, at)
    run_any_command(folder)
    assert os.readlink(folder / "a.txt") == "real-a.txt"
    assert os.readlink(folder / "gone.txt") == "real-gone.txt"
    assert read_project_bytes(folder) == before


def test_a_link_that_leads_nowhere_is_somebodys_file(folder: Path) -> None:
    (folder / "b.txt").symlink_to("nowhere")
    assert ChangeSet(folder, {"b.txt": "b"}).conflicts == ["b.txt"]
