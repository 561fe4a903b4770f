"""The replayed vCenter as a child process."""

from __future__ import annotations

import json
import ssl
import sys
from pathlib import Path
from typing import Any

import aiohttp

from kubewright.testing import eventually
from kubewright.testing.process import Process

_STOP_SECONDS = 5.0


class ReplayedVCenter:
    """It accepts any user and password. The flags are those of bench.replayed_vcenter."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self.user, self.password, self.ready_info = "replay", "replay", dict[str, Any]()
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "bench.replayed_vcenter", f"--state={folder}", *flags]
        self.process = Process("replayed vcenter", command, folder / "vcenter.log")
        self._http: aiohttp.ClientSession | None = None

    async def start(self, within: float = 120.0) -> ReplayedVCenter:
        self.process.start()
        await eventually(
            lambda: self._read_ready_line() or not self.process.is_running, within=within
        )
        if not (line := self._read_ready_line()):
            raise AssertionError(f"the replayed vCenter ended:\n{self.process.read_log_tail()}")
        self.ready_info = json.loads(line)
        trust = ssl.create_default_context(cafile=str(self.certificate))
        self._http = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust))
        return self

    async def stop(self) -> None:
        if self._http is not None:
            await self._http.close()
        await self.process.stop(_STOP_SECONDS)

    def _read_ready_line(self) -> str:
        lines = self.process.log.read_text().splitlines() if self.process.log.exists() else []
        return next((line for line in lines if line.startswith('{"url"')), "")

    @property
    def url(self) -> str:
        return str(self.ready_info["url"])

    @property
    def certificate(self) -> Path:
        return Path(self.ready_info["certificate"])

    async def call(self, path: str, body: Any = None) -> Any:
        """Call the control endpoint."""
        assert self._http is not None
        url = f"{self.url.removesuffix('/sdk')}/control/{path}"
        async with self._http.post(url, json=body or {}) as response:
            response.raise_for_status()
            return await response.json()

    async def set_churn(self, *, stats: bool, moves_per_second: float = 0.0) -> None:
        await self.call("churn", {"stats": stats, "movesPerSecond": moves_per_second})

    async def change(self, ref: str, **properties: Any) -> float:
        """Change properties of an object; `__` in a name stands for a dot. Returns when, by the
        monotonic clock.
        """
        changed = {name.replace("__", "."): value for name, value in properties.items()}
        return float((await self.call("change", {"ref": ref, "properties": changed}))["time"])

    async def entities(self) -> list[dict[str, str]]:
        return list(await self.call("entities"))

    async def state(self, moves_after: int = 0) -> dict[str, Any]:
        return dict(await self.call("state", {"after": moves_after}))
