"""The manager command where it cannot start: what a person reads, and what a log collector does."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from kubewright import Manager
from kubewright.command import ManagerFlags, run


def add_nothing(manager: Manager, flags: ManagerFlags) -> None:
    """No controllers."""


@pytest.mark.parametrize("at_a_terminal", [True, False])
def test_why_it_cannot_start_is_plain_at_a_terminal_and_a_line_of_the_log_elsewhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, at_a_terminal: bool
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: at_a_terminal)
    missing = tmp_path / "kubeconfig"
    assert run(ManagerFlags, add_nothing, name="greeter", argv=[f"-kubeconfig={missing}"], environ={}) == 1
    said = capsys.readouterr().err
    words = said.strip() if at_a_terminal else json.loads(said)["msg"]
    assert words.startswith(f"manager cannot go on: kubeconfig {missing}")
    assert "Traceback" not in said
