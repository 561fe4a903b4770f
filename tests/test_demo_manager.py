"""The demo's manager is restarted when it ends, and probed, with a small program in its place."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from demo import manager as manager_module
from demo.manager import DemoManager
from kubewright.testing import eventually

# Serves health probes, and the page if it has the flag; it fails while `broken` exists.
PROGRAM = """
import pathlib, sys, threading
from http.server import BaseHTTPRequestHandler, HTTPServer
folder = pathlib.Path(__file__).parents[1]
flags = dict(text[1:].partition("=")[::2] for text in sys.argv[1:])
if (folder / "broken").exists():
    raise RuntimeError("it is broken")

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def log_message(self, *_):
        pass

for flag in ("health-probe-bind-address", "ui-bind-address"):
    if flag in flags:
        host, port = flags[flag].split(":")
        server = HTTPServer((host, int(port)), Handler)
        threading.Thread(target=server.serve_forever).start()
print('{"msg": "Starting workers"}', flush=True)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    package = tmp_path / "vsphere_operators"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "main.py").write_text(PROGRAM)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(manager_module, "_PROBE_INTERVAL_SECONDS", 0.02)
    monkeypatch.setattr(manager_module, "_PROBE_TIMEOUT_SECONDS", 0.2)
    monkeypatch.setattr(manager_module, "_UNRESPONSIVE_SECONDS", 0.5)
    return tmp_path


@contextlib.asynccontextmanager
async def run_manager(folder: Path, *, serves_page: bool = True) -> AsyncIterator[DemoManager]:
    manager = DemoManager(folder, lambda: ["-leader-elect"], lambda: None, serves_page=serves_page)
    try:
        await manager.start()
        supervision = asyncio.create_task(manager.supervise())
        yield manager
        supervision.cancel()
        await asyncio.gather(supervision, return_exceptions=True)
    finally:
        await manager.stop()


def pid_of(manager: DemoManager) -> int:
    assert manager.process is not None
    return manager.process.pid


async def test_killed_manager_is_restarted_at_the_same_address(folder: Path) -> None:
    async with run_manager(folder) as manager:
        await eventually(lambda: manager.state.page_url)
        page_url, killed = manager.state.page_url, pid_of(manager)
        assert manager.state.notice == ""
        os.kill(killed, signal.SIGKILL)
        await eventually(lambda: not manager.state.is_serving)
        assert "The manager was killed by SIGKILL at " in manager.state.notice
        assert "Restart 1 follows at " in manager.state.notice
        assert [line.message for line in manager.state.log_end] == ['{"msg": "Starting workers"}']
        await eventually(lambda: manager.state.is_serving, within=30)
        assert manager.state.restarts == 1
        assert "Restart 1 was at " in manager.state.notice
        assert manager.state.log_end == ()
        assert pid_of(manager) != killed
        assert manager.state.page_url == page_url


async def test_manager_that_keeps_failing_is_restarted_more_and_more_slowly(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    delays, sleep = list[float](), asyncio.sleep

    async def record_back_off(seconds: float) -> None:
        if seconds >= 1:
            delays.append(seconds)
        await sleep(min(seconds, 0.01))

    async with run_manager(folder) as manager:
        (folder / "broken").touch()
        monkeypatch.setattr("demo.manager.asyncio.sleep", record_back_off)
        os.kill(pid_of(manager), signal.SIGTERM)
        await eventually(lambda: len(delays) >= 7, within=60, every=0.1)
        assert delays[:7] == [1, 2, 4, 8, 16, 30, 30]
        await eventually(lambda: "exited with code 1" in manager.state.notice)
        assert manager.state.log_end[-1].message == "RuntimeError: it is broken"
        assert manager.state.restarts >= 6
        (folder / "broken").unlink()
        await eventually(lambda: manager.state.is_serving, within=30)


async def test_suspended_manager_does_not_respond_until_it_continues(folder: Path) -> None:
    async with run_manager(folder) as manager:
        await eventually(lambda: manager.state.page_url)
        os.kill(pid_of(manager), signal.SIGSTOP)
        await eventually(lambda: not manager.state.is_serving, within=30)
        assert manager.state.notice.startswith("The manager has not responded since ")
        os.kill(pid_of(manager), signal.SIGCONT)
        await eventually(lambda: manager.state.is_serving, within=30)
        assert manager.state.notice == ""
        assert manager.state.restarts == 0


async def test_suspended_manager_is_stopped_at_the_end(folder: Path) -> None:
    async with run_manager(folder) as manager:
        os.kill(pid_of(manager), signal.SIGSTOP)
    assert manager.process is not None
    assert manager.process.child is not None
    assert manager.process.child.returncode == -signal.SIGTERM


async def test_manager_without_a_page_has_no_address(folder: Path) -> None:
    async with run_manager(folder, serves_page=False) as manager:
        assert manager.process is not None
        command = " ".join(manager.process.arguments)
        assert "-health-probe-bind-address=127.0.0.1:" in command
        assert "ui-bind-address" not in command
        assert manager.state.page_url == ""


async def test_manager_that_cannot_start_ends_the_demo(folder: Path) -> None:
    (folder / "broken").touch()
    with pytest.raises(SystemExit, match=r"(?s)exited with code 1 .*RuntimeError: it is broken"):
        async with run_manager(folder):
            pass
