"""The manager command: failures on a terminal and in a log, and restarts."""

from __future__ import annotations

import json
import platform
import sys
from importlib import metadata
from pathlib import Path

import pytest

from kubewright import Manager
from kubewright.command import ManagerFlags, run
from kubewright.errors import RestartRequired
from kubewright.version import read_version


def add_nothing(manager: Manager, flags: ManagerFlags) -> None:
    pass


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_failed_start_is_plain_text_on_a_terminal_and_a_log_line_elsewhere(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    is_terminal: bool,
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    missing = tmp_path / "kubeconfig"
    assert (
        run(ManagerFlags, add_nothing, name="greeter", argv=[f"-kubeconfig={missing}"], environ={})
        == 1
    )
    output = capsys.readouterr().err
    last_line = output.splitlines()[-1]
    message = last_line if is_terminal else json.loads(last_line)["msg"]
    assert message.startswith(f"manager failed: kubeconfig {missing}")
    assert "Traceback" not in output


def test_restart_builds_the_manager_again_in_the_same_process(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[str] = []

    async def serve(settings: ManagerFlags, build: object, name: str, environ: object) -> None:
        served.append(name)
        if len(served) < 3:
            raise RestartRequired("another Secret")

    monkeypatch.setattr("kubewright.command._serve", serve)
    assert run(ManagerFlags, add_nothing, name="greeter", argv=[], environ={}) == 0
    assert served == ["greeter"] * 3
    assert [json.loads(line)["msg"] for line in capsys.readouterr().err.splitlines()] == [
        "starting greeter",
        *["restarting: another Secret"] * 2,
    ]


@pytest.mark.parametrize("version", ["", "1.2.3"])
def test_the_first_log_line_has_the_versions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], version: str
) -> None:
    argv = [f"-kubeconfig={tmp_path / 'missing'}"]
    run(ManagerFlags, add_nothing, name="greeter", version=version, argv=argv, environ={})
    first = json.loads(capsys.readouterr().err.splitlines()[0])
    assert first["msg"] == "starting greeter"
    assert first["python"] == platform.python_version()
    assert first["kubewright"] == metadata.version("kubewright")
    assert first.get("version", "") == version


def test_a_package_that_is_not_installed_has_an_unknown_version() -> None:
    assert read_version("no-such-package") == "unknown"
