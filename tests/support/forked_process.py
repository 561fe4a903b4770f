"""The test's side of `manager_fork_server.py`."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

_SERVER = Path(__file__).with_name("manager_fork_server.py")
_START_SECONDS = 60.0
_POLL_SECONDS = 0.02
# Python and libraries read these at their start, before the fork.
_IMPORT_VARIABLES = ("PYTHON", "SSL_", "LC_", "LANG", "TZ")


class ForkedProcess:
    """A forked manager, with as much of `subprocess.Popen` as `Process` uses."""

    def __init__(self, reply: socket.socket) -> None:
        self._reply, self._received, self._lock = reply, b"", threading.Lock()
        self.returncode: int | None = None
        reply.settimeout(_START_SECONDS)
        while not (line := self._take_line()):
            if not self._receive():
                raise RuntimeError("the fork server or its manager ended")
        self.pid = int(line)
        reply.setblocking(False)

    def _receive(self) -> bool:
        data = self._reply.recv(64)
        self._received += data
        return bool(data)

    def _take_line(self) -> bytes:
        line, newline, rest = self._received.partition(b"\n")
        if not newline:
            return b""
        self._received = rest
        return line

    def poll(self) -> int | None:
        with self._lock:
            if self.returncode is None:
                with contextlib.suppress(BlockingIOError):
                    is_open = self._receive()
                    line = self._take_line()
                    if line or not is_open:
                        # Without its server the kernel kills it.
                        self.returncode = int(line or -9)
                        self._reply.close()
            return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if timeout is not None and deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(f"manager {self.pid}", timeout)
            time.sleep(_POLL_SECONDS)
        return code


class ForkServer:
    """A server for managers with this PYTHONPATH. It ends with this process."""

    def __init__(self, pythonpath: str) -> None:
        self._requests, far = socket.socketpair()
        self._process = subprocess.Popen(
            [sys.executable, str(_SERVER), str(far.fileno())],
            env={"PYTHONPATH": pythonpath},
            pass_fds=[far.fileno()],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        far.close()
        atexit.register(self._stop)

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def start(self, flags: Sequence[str], environ: Mapping[str, str], log: Path) -> ForkedProcess:
        request = {"flags": list(flags), "environ": dict(environ), "log": str(log.absolute())}
        near, far = socket.socketpair()
        with far:
            data = f"{json.dumps(request)}\n".encode()
            sent = socket.send_fds(self._requests, [data], [far.fileno()])
            self._requests.sendall(data[sent:])
        return ForkedProcess(near)

    def _stop(self) -> None:
        self._requests.close()
        self._process.wait()


_servers = dict[str, ForkServer]()


def can_fork(environ: Mapping[str, str]) -> bool:
    """False if a manager needs an interpreter of its own because of a variable."""
    return not any(name.startswith(_IMPORT_VARIABLES) for name in environ)


def fork_manager(flags: Sequence[str], environ: Mapping[str, str], log: Path) -> ForkedProcess:
    """A manager of the tested checkout with these flags and variables."""
    pythonpath = os.environ.get("PYTHONPATH", "")
    if pythonpath not in _servers or not _servers[pythonpath].is_running:
        _servers[pythonpath] = ForkServer(pythonpath)
    return _servers[pythonpath].start(flags, {**environ, "PYTHONPATH": pythonpath}, log)
