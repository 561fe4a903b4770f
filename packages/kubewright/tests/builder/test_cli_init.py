"""The next steps that `init` prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubewright.builder.cli import main

from .builder_commands import run_git


def test_init_names_the_commands_that_commit_a_new_project(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "my greeter"
    folder.mkdir()
    monkeypatch.chdir(tmp_path)
    options = ["--project-name", "greeter", "--domain", "example.com"]
    assert main(["init", str(folder), *options]) == 0
    create_api = "  kubewright create api --group demo --version v1 --kind Greeting\n"
    assert capsys.readouterr().out.endswith(
        "\nCreated greeter. Commit it, then add a kind:\n"
        "  cd 'my greeter'\n"
        '  git init && git add -A && git commit -m "Create greeter"\n' + create_api
    )
    run_git(tmp_path, "init", "-q")
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    assert main(["init", *options]) == 0
    output = capsys.readouterr().out
    assert output.endswith(f"\nCreated greeter. Commit it, then add a kind:\n{create_api}")
