"""The manager command: failures on a terminal and in a log, and restarts."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from kubewright import Manager
from kubewright.command import ManagerFlags, run
from kubewright.errors import RestartRequired


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
    message = output.strip() if is_terminal else json.loads(output)["msg"]
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
        "restarting: another Secret"
    ] * 2
