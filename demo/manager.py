"""The manager's process: started as in a Pod, started again when it ends, and probed.

A process that was suspended keeps its connections open and answers nothing, so only a probe with a
time limit notices it.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from http.client import HTTPException
from pathlib import Path

from kubewright.testing import eventually
from kubewright.testing.process import Process

from .log import LogLine, parse_log_line

_START_TIMEOUT_SECONDS = 60.0
_STOP_TIMEOUT_SECONDS = 10.0
_PROBE_INTERVAL_SECONDS = 1.0
_PROBE_TIMEOUT_SECONDS = 2.0
# Longer than one slow probe on a busy machine.
_UNRESPONSIVE_SECONDS = 5.0
_MAX_BACK_OFF_SECONDS = 30.0
# A manager that ran this long has recovered: the next back-off begins at its first step.
_RECOVERED_SECONDS = 60.0
# Time to read that the manager was restarted.
_RESTART_NOTICE_SECONDS = 30.0
_LOG_END_LINES = 15
_PAGE_FLAG = "ui-bind-address"


@dataclass(frozen=True)
class ManagerState:
    """What the view shows about the process; `notice` is empty while it runs and responds."""

    notice: str = ""
    # False: the tables show the last answers of a manager that does not run or respond.
    is_serving: bool = True
    restarts: int = 0
    # The end of the log of a manager that ended; empty while it runs.
    log_end: Sequence[LogLine] = ()
    # The address of the page, empty until the manager serves it.
    page_url: str = ""
    # The ID of the process, 0 while none runs.
    pid: int = 0


class DemoManager:
    """`on_start` is called after each start of the process."""

    def __init__(
        self,
        home: Path,
        flags: Callable[[], Sequence[str]],
        on_start: Callable[[], None],
        *,
        serves_page: bool = True,
    ) -> None:
        self.log = home / "manager.log"
        self.state = ManagerState()
        self.process: Process | None = None
        self._home, self._flags, self._on_start = home, flags, on_start
        self._health_port, self._metrics_port, self._page_port = 0, 0, 0
        self._serves_page = serves_page
        # On the monotonic clock.
        self._started_at, self._responded_at, self._restart_notice_until = 0.0, 0.0, 0.0
        self._back_off_seconds = 1.0

    async def start(self) -> None:
        """Starts it for the first time; a manager that cannot start ends the demo."""
        self._start_process()
        await eventually(
            lambda: self._has_started_workers() or not self._is_running,
            within=_START_TIMEOUT_SECONDS,
            every=0.1,
        )
        if not self._is_running:
            raise SystemExit(
                f"The manager {self._describe_exit()} while it started. The end of its log:\n"
                f"{self.process.read_log_tail() if self.process else ''}"
            )

    async def supervise(self) -> None:
        """Restarts it when it ends, and keeps `state` current, until cancelled."""
        while True:
            if self._is_running:
                await self._probe()
            else:
                await self._restart()
            await asyncio.sleep(_PROBE_INTERVAL_SECONDS)

    async def stop(self) -> None:
        if self.process is not None:
            # A suspended process receives no other signal before this one.
            self.process.send_signal(signal.SIGCONT)
            await self.process.stop(_STOP_TIMEOUT_SECONDS)

    @property
    def _is_running(self) -> bool:
        return self.process is not None and self.process.is_running

    def _start_process(self) -> None:
        self._health_port = _find_free_port(self._health_port)
        self._metrics_port = _find_free_port(self._metrics_port)
        flags = [
            *self._flags(),
            f"-health-probe-bind-address=127.0.0.1:{self._health_port}",
            f"-metrics-addr=127.0.0.1:{self._metrics_port}",
        ]
        if self._serves_page:
            # The same port after a restart, so that an open page connects again.
            self._page_port = _find_free_port(self._page_port)
            flags.append(f"-{_PAGE_FLAG}=127.0.0.1:{self._page_port}")
        self.process = Process("manager", [*self._command(), *flags], self.log)
        self.process.start()
        self._started_at = self._responded_at = time.monotonic()
        self._on_start()

    def _command(self) -> list[str]:
        """The command with a clean environment: of the demo's, it gets only PYTHONPATH."""
        variables = [f"HOME={self._home}", f"PYTHONPATH={os.environ.get('PYTHONPATH', '')}"]
        program = [sys.executable, "-m", "vsphere_operators.main"]
        return [shutil.which("env") or "env", "-i", *variables, *program]

    def _has_started_workers(self) -> bool:
        return self.log.exists() and "Starting workers" in self.log.read_text(errors="replace")

    async def _probe(self) -> None:
        # A response that reports a failed check is a response, too.
        if await asyncio.to_thread(_get_status, f"http://127.0.0.1:{self._health_port}/healthz"):
            self._responded_at = time.monotonic()
            if self._responded_at - self._started_at > _RECOVERED_SECONDS:
                self._back_off_seconds = 1.0
            self.state = ManagerState(
                notice=self.state.notice if self._responded_at < self._restart_notice_until else "",
                restarts=self.state.restarts,
                page_url=self.state.page_url or await self._find_page(),
                pid=self.process.pid if self.process else 0,
            )
            return
        is_starting = self._responded_at == self._started_at
        silence = time.monotonic() - self._responded_at
        if silence > (_START_TIMEOUT_SECONDS if is_starting else _UNRESPONSIVE_SECONDS):
            self._restart_notice_until = 0.0
            self.state = replace(
                self.state,
                notice=f"The manager has not responded since {_format_time(self._responded_at)}. "
                "The tables show its last answers.",
                is_serving=False,
            )

    @property
    def metrics_url(self) -> str:
        return f"http://127.0.0.1:{self._metrics_port}/metrics" if self._metrics_port else ""

    @property
    def page_url(self) -> str:
        """The address that the page has, or will have; empty if the manager serves none."""
        return f"http://127.0.0.1:{self._page_port}/" if self._page_port else ""

    async def _find_page(self) -> str:
        url = self.page_url
        return url if url and await asyncio.to_thread(_get_status, url) == 200 else ""

    async def _restart(self) -> None:
        """Waits for the back-off and starts the process again."""
        now, number = time.monotonic(), self.state.restarts + 1
        reason = f"The manager {self._describe_exit()} at {_format_time(now)}."
        self.state = replace(
            self.state,
            notice=f"{reason} Restart {number} follows at "
            f"{_format_time(now + self._back_off_seconds)}.",
            is_serving=False,
            log_end=self._read_log_end(),
            pid=0,
        )
        await asyncio.sleep(self._back_off_seconds)
        self._back_off_seconds = min(2 * self._back_off_seconds, _MAX_BACK_OFF_SECONDS)
        self._start_process()
        self._restart_notice_until = time.monotonic() + _RESTART_NOTICE_SECONDS
        self.state = replace(
            self.state,
            notice=f"{reason} Restart {number} was at {_format_time(self._started_at)}."
            " It acts when the lease of its predecessor expires.",
            restarts=number,
        )

    def _describe_exit(self) -> str:
        code = self.process.child.returncode if self.process and self.process.child else 0
        if code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        return f"exited with code {code}"

    def _read_log_end(self) -> list[LogLine]:
        # Not only log records: a traceback explains an exit better.
        text = self.process.read_log_tail(_LOG_END_LINES) if self.process else ""
        return [parse_log_line(line) for line in text.splitlines() if line.strip()]


def _get_status(url: str) -> int:
    """The status of a response, 0 without a response in time."""
    try:
        with urllib.request.urlopen(url, timeout=_PROBE_TIMEOUT_SECONDS) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except (OSError, HTTPException):
        return 0


def _find_free_port(preferred: int) -> int:
    """The preferred port of 127.0.0.1 if it is free, else another one."""
    for port in (preferred, 0):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            # As the manager does: connections of its predecessor may still be in TIME_WAIT.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise SystemExit("No port of 127.0.0.1 is free. Close programs that listen, and try again.")


def _format_time(monotonic: float) -> str:
    """A time of the monotonic clock as local time."""
    return time.strftime("%H:%M:%S", time.localtime(time.time() - time.monotonic() + monotonic))
