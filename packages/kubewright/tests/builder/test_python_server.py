"""Commands in forked processes, which most tests of the builder use, are those of a new Python."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.python_server import PythonServer

from .builder_commands import read_project_bytes


@pytest.fixture
def server() -> Iterator[PythonServer]:
    server = PythonServer()
    yield server
    server.stop()


def test_result_is_that_of_a_new_python(server: PythonServer, greeter: Path) -> None:
    """Also after another version of the same module was imported."""
    command = [sys.executable, "-m", "kubewright", "manifests", "--project", str(greeter)]
    assert server.run(command).returncode == 0
    module = greeter / "src/greeter/kinds/house.py"
    module.write_text(module.read_text().replace("rooms", "chambers"))
    forked = server.run(command)
    written = read_project_bytes(greeter)
    started = subprocess.run(command, capture_output=True, text=True)
    assert (forked.returncode, forked.stderr) == (started.returncode, started.stderr)
    assert forked.stdout == "wrote config/crd/bases/demo.example.com_houses.yaml\n"
    # A new Python has nothing to change.
    assert started.stdout == ""
    assert read_project_bytes(greeter) == written
    assert b"chambers" in written["config/crd/bases/demo.example.com_houses.yaml"]


def test_command_that_hangs_is_stopped(server: PythonServer, tmp_path: Path) -> None:
    (tmp_path / "hang.py").write_text("import time\ntime.sleep(600)\n")
    (tmp_path / "fail.py").write_text("raise SystemExit('no')\n")
    with pytest.raises(subprocess.TimeoutExpired):
        server.run([sys.executable, "-m", "hang"], cwd=tmp_path, timeout_seconds=0.1)
    failed = server.run([sys.executable, "-m", "fail"], cwd=tmp_path)
    assert (failed.returncode, failed.stdout, failed.stderr) == (1, "", "no\n")
