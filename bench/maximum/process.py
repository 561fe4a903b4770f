"""The manager of the benchmark as a child process, measured from outside."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from bench.process_stats import cpu_seconds, memory_bytes
from bench.replayed_vcenter.process import ReplayedVCenter
from kubewright.testing import eventually
from kubewright.testing.process import Process

_STOP_SECONDS = 30.0
_SAMPLE = re.compile(r"^(\w+)(?:\{([^}]*)\})? (\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class Stall:
    ms: float = 0.0
    cpu_ms: float = 0.0


class MeasuredManager:
    def __init__(
        self, kubeconfig: Path, vcenter: ReplayedVCenter, folder: Path, *flags: str
    ) -> None:
        folder.mkdir(parents=True)
        self._settings = (kubeconfig, vcenter, folder, flags)
        self._stalls = folder / "stalls"
        variables = {
            "GOVMOMI_URL": vcenter.url,
            "GOVMOMI_USERNAME": vcenter.user,
            "GOVMOMI_PASSWORD": vcenter.password,
            "STALLS": str(self._stalls),
        }
        command = [
            *(sys.executable, "-m", "bench.maximum.manager"),
            *("-metrics-addr=127.0.0.1:0", "-health-probe-bind-address=127.0.0.1:0"),
            f"-kubeconfig={kubeconfig}",
            f"-vcenter-ca-file={vcenter.certificate}",
            *flags,
        ]
        log = folder / "manager.log"
        self.process = Process("manager", command, log, {**os.environ, **variables})
        self.started_at = 0.0
        self._ports: dict[str, int] = {}

    def successor(self) -> MeasuredManager:
        """Another manager with the same settings, not started."""
        kubeconfig, vcenter, folder, flags = self._settings
        return MeasuredManager(kubeconfig, vcenter, folder.with_name(f"{folder.name}-next"), *flags)

    @property
    def pid(self) -> int:
        return self.process.pid

    def start(self) -> None:
        self.started_at = time.monotonic()
        self.process.start()

    async def stop(self) -> None:
        await self.process.stop(_STOP_SECONDS)

    def toggle_stall_log(self) -> None:
        self.process.send_signal(signal.SIGUSR1)

    def seconds_since_start(self) -> float:
        return time.monotonic() - self.started_at

    def cpu_seconds(self) -> float:
        return cpu_seconds(self.pid)

    def memory_mib(self) -> tuple[float, float]:
        """Resident memory now, and its highest value so far."""
        rss, peak = memory_bytes(self.pid)
        return rss / 2**20, peak / 2**20

    def longest_stall(self, after: float = 0.0, before: float = float("inf")) -> Stall:
        """The longest stall between two monotonic times."""
        stalls = [Stall()]
        for line in self._stalls.read_text().splitlines() if self._stalls.exists() else ():
            at, ms, cpu_ms = map(float, line.split())
            # The line is of the second before `at`.
            if after < at and at - 1 < before:
                stalls.append(Stall(ms, cpu_ms))
        return max(stalls, key=lambda stall: stall.ms)

    async def _get(self, purpose: str, path: str) -> tuple[int, str]:
        if not self.process.is_running:
            raise ChildProcessError(f"the manager ended:\n{self.process.read_log_tail()}")
        if purpose not in self._ports:
            self._ports[purpose] = self._find_port(purpose)
        url = f"http://127.0.0.1:{self._ports[purpose]}{path}"
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            return response.status, await response.text()

    def _find_port(self, purpose: str) -> int:
        for line in self.process.log.read_text().splitlines():
            if line.startswith("{"):
                record: dict[str, Any] = json.loads(line)
                if record.get("msg") == purpose:
                    return int(record["port"])
        raise LookupError(f"the log has no line with {purpose}")

    async def is_ready(self) -> bool:
        return (await self._get("serving health probes", "/readyz"))[0] == 200

    async def read_metric(self, name: str, **labels: str) -> float:
        """The sum of all samples with these labels."""
        _, text = await self._get("serving metrics", "/metrics")
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        return sum(
            float(value)
            for sample, sample_labels, value in _SAMPLE.findall(text)
            if sample == name and all(part in sample_labels for part in wanted)
        )

    async def wait_until_ready(self, within: float) -> float:
        """Seconds from the start until /readyz succeeds."""
        await eventually(self.is_ready, within=within, every=0.1)
        return self.seconds_since_start()

    async def wait_until_reconciled(self, count: int, within: float) -> float:
        """Seconds from the start until that many reconciles have ended and no key is left."""

        async def is_reconciled() -> bool:
            done = await self.read_metric("controller_runtime_reconcile_total", result="success")
            waiting = await self.read_metric("workqueue_depth")
            active = await self.read_metric("controller_runtime_active_workers")
            return done >= count and waiting + active == 0

        await eventually(is_reconciled, within=within, every=0.5)
        return self.seconds_since_start()
