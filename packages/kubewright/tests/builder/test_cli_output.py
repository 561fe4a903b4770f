"""Where a page or an installer goes: into what is there and is no file, beside a project, and what was half written there."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from kubewright.builder.cli import main

from .builder_commands import read_project_bytes
from .test_changeset_recovery import kill_at_move

TIMEOUT_SECONDS = 60


def docs_command(project: Path, output: Path | str) -> list[str]:
    return [
        sys.executable,
        "-m",
        "kubewright",
        "docs",
        "--project",
        str(project),
        "--output",
        str(output),
    ]


def test_standard_output_by_its_name(tmp_path: Path, greeter: Path) -> None:
    page = run_docs(greeter)
    piped = subprocess.run(
        docs_command(greeter, "/dev/stdout"),
        capture_output=True,
        timeout=TIMEOUT_SECONDS,
        check=True,
    )
    assert piped.stdout == page
    assert piped.stderr == b"wrote /dev/stdout\n"
    link = tmp_path / "stdout"
    link.symlink_to("/proc/self/fd/1")
    with (tmp_path / "page.md").open("wb") as file:
        subprocess.run(
            docs_command(greeter, link), stdout=file, timeout=TIMEOUT_SECONDS, check=True
        )
    assert (tmp_path / "page.md").read_bytes() == page
    assert link.is_symlink()


def run_docs(project: Path) -> bytes:
    return subprocess.run(
        docs_command(project, "-"), stdout=subprocess.PIPE, timeout=TIMEOUT_SECONDS, check=True
    ).stdout


def test_a_pipe_is_written_into(tmp_path: Path, greeter: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
    reader.start()
    subprocess.run(docs_command(greeter, pipe), timeout=TIMEOUT_SECONDS, check=True)
    reader.join(TIMEOUT_SECONDS)
    assert read == [run_docs(greeter)]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_link_stays_and_its_file_is_written(tmp_path: Path, greeter: Path) -> None:
    (tmp_path / "page.md").write_text("stale")
    (greeter / "page.md").symlink_to("../page.md")
    assert main(["docs", "--project", str(greeter), "--output", "page.md"]) == 0
    assert (greeter / "page.md").is_symlink()
    assert (tmp_path / "page.md").read_bytes() == run_docs(greeter)


def test_the_project_by_another_name_is_the_project(tmp_path: Path, greeter: Path) -> None:
    (tmp_path / "other").symlink_to(greeter)
    assert (
        main(["docs", "--project", str(greeter), "--output", str(tmp_path / "other/page.md")]) == 0
    )
    assert (greeter / "page.md").read_bytes() == run_docs(greeter)


@pytest.mark.parametrize(("command", "output"), [("helm", "chart"), ("docs", "page.md")])
def test_what_was_killed_outside_of_the_project_is_undone(
    tmp_path: Path, greeter: Path, command: str, output: str, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name in ("a.txt", "c.txt", "gone.txt"):
        (elsewhere / name).write_text(f"old {name}")
    before = read_project_bytes(elsewhere)
    kill_at_move(elsewhere, at=3)
    assert main([command, "--project", str(greeter), "--output", str(elsewhere / output)]) == 0
    assert "what it had changed is as it was before" in capsys.readouterr().err
    assert {
        path: text
        for path, text in read_project_bytes(elsewhere).items()
        if not path.startswith(output)
    } == before
    assert not list(elsewhere.glob(".kubewright-*"))
