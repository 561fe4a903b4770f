"""A child process that ends with its parent, and a port that stays reserved while it restarts.

Why is it not enough to stop the child at the end? A test run that is killed never gets there, and a
forgotten kube-apiserver needs half a gigabyte of memory. The kernel can send a signal when the
parent dies (prctl PR_SET_PDEATHSIG), and the setting survives exec.
Why an interpreter in between, and no preexec_fn? Python 3.12 deprecates forking with a Python
function in a process that has threads, because it can deadlock.
The signal is sent when the thread that started the child ends: start children in the main thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

LAUNCHER = """
import ctypes, os, sys
parent, program = int(sys.argv[1]), sys.argv[2]
prctl = getattr(ctypes.CDLL(None), "prctl", None)
if prctl:
    PR_SET_PDEATHSIG, SIGKILL = 1, 9
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)
if os.getppid() != parent:
    sys.exit("the parent ended before the start")
os.execv(program, sys.argv[2:])
"""


class Process:
    """One program that can be started and stopped repeatedly, in its own process group."""

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        log: Path,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.name, self.arguments, self.log, self.environ = name, list(arguments), log, environ
        self.child: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        return self.child is not None and self.child.poll() is None

    @property
    def pid(self) -> int:
        """The id of the process that was started last; 0 before the first start."""
        return self.child.pid if self.child else 0

    def start(self) -> None:
        command = [sys.executable, "-I", "-S", "-c", LAUNCHER, str(os.getpid()), *self.arguments]
        with self.log.open("ab") as log:
            self.child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=self.environ,
            )

    async def stop(self, grace_seconds: float) -> None:
        """Terminate it, and kill its whole group after the grace period."""
        self.send_signal(signal.SIGTERM)
        if self.child:
            with contextlib.suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(self.child.wait, grace_seconds)
        await self.kill()

    async def kill(self) -> None:
        self.send_signal(signal.SIGKILL)
        if self.child:
            await asyncio.to_thread(self.child.wait)

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the whole group if it is running."""
        if self.child and self.is_running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.child.pid, number)

    def read_log_tail(self, lines: int = 15) -> str:
        if not self.log.exists():
            return ""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


class ReservedPort:
    """A free port of 127.0.0.1, reserved by a bound socket that never listens.

    A server that sets SO_REUSEPORT can listen on it. While no server does, connections are refused,
    and the kernel gives the number to no other process.
    """

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._socket.bind(("127.0.0.1", 0))
        self.number: int = self._socket.getsockname()[1]

    def release(self) -> None:
        self._socket.close()
