"""A child process that never outlives us, with its log in a file.

Why not simply stop it at the end? A test run that is killed reaches no end, and a forgotten kube-apiserver costs the machine
half a gigabyte. The kernel has a signal for "my parent died" (prctl PR_SET_PDEATHSIG); it survives exec.
Why an interpreter in between, and no preexec_fn? Forking with a Python function in a process that has threads is deprecated
since 3.12, for good reason.
The signal comes when the THREAD that started the child ends: start children in the main thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

LAUNCHER = """
import ctypes, os, sys
parent, program = int(sys.argv[1]), sys.argv[2]
prctl = getattr(ctypes.CDLL(None), "prctl", None)
if prctl:
    prctl(1, 9, 0, 0, 0)
if os.getppid() != parent:
    sys.exit("the parent ended before the start")
os.execv(program, sys.argv[2:])
"""


class Process:
    """One program, started and stopped as often as wanted, in a process group of its own."""

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
        """Whether it has been started and has not ended."""
        return self.child is not None and self.child.poll() is None

    @property
    def pid(self) -> int:
        """The process id of the last start, 0 before the first."""
        return self.child.pid if self.child else 0

    def start(self) -> None:
        """Start it; the log is appended to."""
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
        """Ask it to end, and kill what is left of its group after the grace."""
        self.send_signal(signal.SIGTERM)
        if self.child:
            with contextlib.suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(self.child.wait, grace_seconds)
        await self.kill()

    async def kill(self) -> None:
        """End it now (SIGKILL), and wait until it is gone."""
        self.send_signal(signal.SIGKILL)
        if self.child:
            await asyncio.to_thread(self.child.wait)

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the whole group, if it runs."""
        if self.child and self.is_running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.child.pid, number)

    def read_log_tail(self, lines: int = 15) -> str:
        """The last lines of its log."""
        return (
            "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
            if self.log.exists()
            else ""
        )
