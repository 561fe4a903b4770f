"""The `manager` command's own words, before anything runs."""

from __future__ import annotations

import pytest

from vsphere_operators.main import main


def test_help_says_that_there_is_a_doctor(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["manager", "-help"])
    assert main() == 0
    assert "`manager doctor`" in capsys.readouterr().out.splitlines()[-3]


def test_another_word_is_told_where_the_doctor_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["manager", "docter"])
    assert main() == 2
    assert 'there is no command "docter"' in capsys.readouterr().err
