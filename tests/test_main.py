"""The output of the `manager` command before anything runs."""

from __future__ import annotations

import pytest

from vsphere_operators.main import main


def test_help_names_the_doctor(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["manager", "-help"])
    assert main() == 0
    assert "run `manager doctor`" in capsys.readouterr().out


def test_unknown_command_is_rejected(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["manager", "docter"])
    assert main() == 2
    assert 'unknown command "docter"' in capsys.readouterr().err
