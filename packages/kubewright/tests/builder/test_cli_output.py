"""Where `--output` writes: to devices, pipes, links, and outside of the project."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

from kubewright.builder.cli import main

from .builder_commands import PYTHON_SERVER

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


def test_output_to_dev_stdout(tmp_path: Path, greeter: Path) -> None:
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
    process = PYTHON_SERVER.run(docs_command(project, "-"), timeout_seconds=TIMEOUT_SECONDS)
    assert process.returncode == 0, process.stderr
    return process.stdout.encode()


def test_output_to_a_named_pipe(tmp_path: Path, greeter: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
    reader.start()
    subprocess.run(docs_command(greeter, pipe), timeout=TIMEOUT_SECONDS, check=True)
    reader.join(TIMEOUT_SECONDS)
    assert read == [run_docs(greeter)]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_output_through_a_symbolic_link_keeps_the_link(tmp_path: Path, greeter: Path) -> None:
    (tmp_path / "page.md").write_text("stale")
    (greeter / "page.md").symlink_to("../page.md")
    assert main(["docs", "--project", str(greeter), "--output", "page.md"]) == 0
    assert (greeter / "page.md").is_symlink()
    assert (tmp_path / "page.md").read_bytes() == run_docs(greeter)


def test_output_through_a_link_to_the_project(tmp_path: Path, greeter: Path) -> None:
    (tmp_path / "other").symlink_to(greeter)
    assert (
        main(["docs", "--project", str(greeter), "--output", str(tmp_path / "other/page.md")]) == 0
    )
    assert (greeter / "page.md").read_bytes() == run_docs(greeter)
