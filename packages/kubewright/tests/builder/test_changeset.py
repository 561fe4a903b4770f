"""Nothing is ever half written: whatever stops a command, all is as it was."""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path

import click
import pytest

from kubewright.builder import cli_commands as commands
from kubewright.builder.changeset import ChangeSet
from kubewright.builder.cli import main

from .builder_commands import create_api, read_project_bytes


@pytest.mark.parametrize("at", range(0, 14, 3))
def test_interrupted_half_way_leaves_all_as_it_was(
    project: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    before = read_project_bytes(project)
    moves = 0
    real = os.replace

    def interrupted(source: Path, target: Path) -> None:
        nonlocal moves
        moves += 1
        if moves == at + 1:
            raise KeyboardInterrupt
        real(source, target)

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises((KeyboardInterrupt, click.Abort)):
        commands.kubewright.main(
            [
                "create",
                "api",
                "--project",
                str(project),
                "--group",
                "demo",
                "--version",
                "v1",
                "--kind",
                "Greeting",
            ],
            standalone_mode=False,
        )
    assert moves > at
    assert read_project_bytes(project) == before
    assert not list(project.glob(".kubewright-*"))


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGHUP], ids=["terminated", "hung up"])
def test_ended_half_way_leaves_all_as_it_was(
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    sent: signal.Signals,
) -> None:
    before = read_project_bytes(project)
    real = os.replace
    moves = 0

    def impatient(source: Path, target: Path) -> None:
        nonlocal moves
        moves += 1
        real(source, target)
        if moves >= 5:
            os.kill(os.getpid(), sent)  # once half way, and again for each file on the way back

    monkeypatch.setattr(os, "replace", impatient)
    assert create_api(project) == 130
    assert moves > 5
    assert "nothing was written" in capsys.readouterr().err
    assert read_project_bytes(project) == before


def test_a_file_that_cannot_be_written_is_named_and_all_is_as_it_was(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = read_project_bytes(project)
    real = os.replace

    def refusing(source: Path, target: Path) -> None:
        if target.name == "main.py" and "new" in source.parts:
            raise PermissionError(errno.EACCES, "Permission denied", str(target))
        real(source, target)

    monkeypatch.setattr(os, "replace", refusing)
    assert create_api(project) == 1
    assert "main.py: Permission denied" in capsys.readouterr().err
    assert read_project_bytes(project) == before


def test_what_a_person_keeps_below_config_is_left_alone(project: Path) -> None:
    kept = project / "config/overlays/picture.png"
    kept.parent.mkdir()
    kept.write_bytes(b"\xff\xfe")
    assert (
        main(
            [
                "create",
                "api",
                "--project",
                str(project),
                "--group",
                "demo",
                "--version",
                "v1",
                "--kind",
                "Greeting",
            ]
        )
        == 0
    )
    assert kept.read_bytes() == b"\xff\xfe"


def test_an_interrupted_init_leaves_an_empty_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(source: Path, target: Path) -> None:
        if target.name == "Makefile":
            raise KeyboardInterrupt
        Path(source).rename(target)

    monkeypatch.setattr(os, "replace", interrupted)
    assert main(["init", str(tmp_path / "new"), "--domain", "example.com"]) == 130
    assert "nothing was written" in capsys.readouterr().err
    assert list((tmp_path / "new").rglob("*")) == []


def test_a_file_keeps_its_rights(tmp_path: Path) -> None:
    script = tmp_path / "run"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o700)
    ChangeSet(tmp_path, {"run": "#!/bin/sh\nexit\n"}).write()
    assert script.stat().st_mode & 0o777 == 0o700
