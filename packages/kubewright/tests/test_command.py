"""The manager command where it cannot start: what a person reads, and what a log collector does."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from kubewright import Manager
from kubewright.command import ManagerFlags, run
from kubewright.errors import RestartRequired


def add_nothing(manager: Manager, flags: ManagerFlags) -> None:
    """No controllers."""


@pytest.mark.parametrize("at_a_terminal", [True, False])
def test_why_it_cannot_start_is_plain_at_a_terminal_and_a_line_of_the_log_elsewhere(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    at_a_terminal: bool,
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: at_a_terminal)
    missing = tmp_path / "kubeconfig"
    assert (
        run(ManagerFlags, add_nothing, name="greeter", argv=[f"-kubeconfig={missing}"], environ={})
        == 1
    )
    said = capsys.readouterr().err
    words = said.strip() if at_a_terminal else json.loads(said)["msg"]
    assert words.startswith(f"manager cannot go on: kubeconfig {missing}")
    assert "Traceback" not in said


def test_a_manager_that_starts_anew_is_built_again_in_the_same_process(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[str] = []

    async def serve(settings: ManagerFlags, build: object, name: str, environ: object) -> None:
        served.append(name)
        if len(served) < 3:
            raise RestartRequired("another Secret")

    monkeypatch.setattr("kubewright.command.serve", serve)
    assert run(ManagerFlags, add_nothing, name="greeter", argv=[], environ={}) == 0
    assert served == ["greeter"] * 3
    assert [json.loads(line)["msg"] for line in capsys.readouterr().err.splitlines()] == [
        "starting anew: another Secret"
    ] * 2
