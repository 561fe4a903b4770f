"""A simulated vCenter for tests: testenv/vcsim as a child process, with its control endpoint.

A change by a method here is like one by another user in the vSphere Client: it is neither counted
nor listed as a mutating call. `entity`, `vm`, `host` and `disk` are names, references (vm-12) or
inventory paths.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal
from urllib.error import HTTPError
from urllib.parse import urlsplit

from kubewright.testing import eventually
from kubewright.testing.process import Process
from simulator_inventory import InventoryControl

REQUEST_TIMEOUT_SECONDS = 60.0
STOP_TIMEOUT_SECONDS = 5.0


class ControlError(Exception):
    """The control endpoint rejected a request; the message has the reason."""


class SimulatedVCenter(InventoryControl):
    """One vCenter; the flags are those of `vcsim --help`."""

    def __init__(
        self, binary: Path, folder: Path, *flags: str, user: str = "user", password: str = "pass"
    ) -> None:
        self.user, self.password, self.ready_info = user, password, dict[str, Any]()
        folder.mkdir(parents=True, exist_ok=True)
        # Every process of the machine can read the command line, so the password is a variable.
        program = [
            shutil.which("env") or "env",
            f"VCSIM_PASSWORD={password}",
            str(binary),
            f"--state={folder}",
            f"--user={user}",
        ]
        self.process = Process("vcsim", [*program, *flags], folder / "vcsim.log")

    async def start(self, within: float = 180.0) -> SimulatedVCenter:
        """Waits until it is ready; 1,000 hosts and 2,000 VMs take about 40 s."""
        self.process.start()
        await eventually(
            lambda: self.read_ready_line() or not self.process.is_running, within=within
        )
        if not (ready_line := self.read_ready_line()):
            raise AssertionError(
                f"vcsim ended before it was ready:\n{self.process.read_log_tail()}"
            )
        self.ready_info = json.loads(ready_line)
        return self

    async def stop(self) -> None:
        await self.process.stop(STOP_TIMEOUT_SECONDS)

    def read_ready_line(self) -> str:
        """The line with its addresses, "" before it is ready."""
        lines = (
            self.process.log.read_text().splitlines(keepends=True)
            if self.process.log.exists()
            else []
        )
        return next(
            (
                line
                for line in reversed(lines)
                if line.startswith('{"certificate"') and line.endswith("\n")
            ),
            "",
        )

    @property
    def url(self) -> str:
        """The address of the API, with /sdk."""
        return str(self.ready_info["url"])

    @property
    def address(self) -> tuple[str, int]:
        parts = urlsplit(self.url)
        return parts.hostname or "", parts.port or 0

    @property
    def tunnel_address(self) -> tuple[str, int]:
        """The HTTP proxy that leads to sdkTunnel:8089; a real vCenter has it on port 80."""
        parts = urlsplit(str(self.ready_info["tunnel"]))
        return parts.hostname or "", parts.port or 0

    @property
    def instance_uuid(self) -> str:
        return str(self.ready_info["instanceUuid"])

    @property
    def certificate(self) -> Path:
        return Path(self.ready_info["certificate"])

    async def request(self, verb: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Calls the control endpoint."""
        return await asyncio.to_thread(self.request_blocking, verb, path, body)

    def request_blocking(self, verb: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        data = json.dumps(body or {}).encode() if verb == "POST" else None
        request = urllib.request.Request(f"{self.ready_info['control']}{path}", data, method=verb)
        try:
            with urllib.request.urlopen(request, timeout=REQUEST_TIMEOUT_SECONDS) as response:
                return json.load(response)
        except HTTPError as error:
            with error:
                raise ControlError(f"{verb} {path}: {error.read().decode().strip()}") from None

    async def server_time(self) -> str:
        return str((await self.request("GET", "/clock"))["time"])

    async def call_counts(self) -> dict[str, int]:
        """How often each method was called; REST calls as "GET /rest/..."."""
        return dict(await self.request("GET", "/calls"))

    async def reset_call_counts(self) -> None:
        await self.request("DELETE", "/calls")

    async def mutating_calls(self) -> list[dict[str, Any]]:
        """Calls that change something: sequence, time, method, object, name, newName, session,
        user, refused.
        """
        return list(await self.request("GET", "/ledger"))

    async def reset_mutating_calls(self) -> None:
        await self.request("DELETE", "/ledger")

    async def sessions(self) -> list[dict[str, Any]]:
        """The SOAP sessions with their filters, collectors, views and waiting calls."""
        return list((await self.request("GET", "/sessions"))["soap"])

    async def rest_sessions(self) -> list[dict[str, Any]]:
        return list((await self.request("GET", "/sessions"))["rest"])

    async def expire_sessions(self, *, user: str = "", key: str = "") -> int:
        """Ends the sessions of a user, one by its key, or all; returns their number."""
        body = {"user": user, "key": key, "all": not (user or key)}
        return int((await self.request("POST", "/sessions/expire", body))["ended"])

    async def fail_calls(
        self,
        method: str,
        fault: str = "",
        *,
        count: int = 1,
        where: Literal["call", "task"] = "call",
        delay_seconds: float = 0.0,
        entity: str = "",
        fields: Mapping[str, Any] | None = None,
    ) -> None:
        """Fails the next calls of a method, or their tasks; 0 means all calls.

        Without a fault they are only delayed.
        """
        rule = {
            "method": method,
            "fault": fault,
            "count": count,
            "where": where,
            "delay": delay_seconds,
            "object": entity,
        }
        await self.request("POST", "/rules", {**rule, **({"fields": fields} if fields else {})})

    async def delay_calls(self, method: str, seconds: float) -> None:
        """Delays all calls of a method; for a method that ends in _Task, its task."""
        await self.fail_calls(
            method,
            count=0,
            where="task" if method.endswith("_Task") else "call",
            delay_seconds=seconds,
        )

    async def clear_rules(self) -> None:
        """Ends all failures and delays, pending ones too."""
        await self.request("DELETE", "/rules")

    async def hold_calls(
        self,
        method: str,
        where: Literal["call", "answer", "task"] = "call",
        *,
        count: int = 1,
        entity: str = "",
        drop: bool = False,
    ) -> None:
        """Holds the next calls until `release_calls`: before or after their work, or in their task.

        With `drop` the response is lost then.
        """
        rule = {
            "method": method,
            "where": where,
            "count": count,
            "object": entity,
            "hold": True,
            "drop": drop,
        }
        await self.request("POST", "/rules", rule)

    async def hold_clones(self, percent: int, *, count: int = 1, entity: str = "") -> None:
        """Holds the next clones at a percentage until `release_calls`.

        From 30 % on their VM is in the inventory, powered off, and refuses other tasks with
        TaskInProgress (unless vcsim runs with --clones-visible=late).
        """
        rule = {
            "method": "CloneVM_Task",
            "where": "task",
            "count": count,
            "object": entity,
            "hold": True,
            "at": percent,
        }
        await self.request("POST", "/rules", rule)

    async def delay_pages(self, seconds: float, method: str = "*") -> None:
        """Delays each page of a large result: of RetrievePropertiesEx, of
        ContinueRetrievePropertiesEx, and of the first answers of WaitForUpdatesEx.
        """
        rule = {"method": method, "where": "page", "delay": seconds}
        await self.request("POST", "/rules", rule)

    async def drop_responses(self, method: str, *, count: int = 1, entity: str = "") -> None:
        """Executes the next calls, but closes their connections without a response."""
        await self.request(
            "POST",
            "/rules",
            {"method": method, "where": "answer", "count": count, "object": entity, "drop": True},
        )

    async def held_calls(self) -> list[dict[str, Any]]:
        """Held calls: id, method, object, where, since."""
        return list(await self.request("GET", "/held"))

    async def release_calls(self, method: str = "", *, id: int = 0) -> int:
        """Releases the held calls of a method, one by its id, or all; returns their number.

        A call runs even if its client has disconnected.
        """
        return int(
            (await self.request("POST", "/release", {"method": method, "id": id}))["released"]
        )

    async def vm_census(self) -> dict[str, Any]:
        """At one instant: `vms`, pending `clones`, and their current and highest number, by path in
        `folders` and by VmGroup in `owners`.
        """
        return dict(await self.request("GET", "/truth"))

    async def reset_census_peaks(self) -> None:
        """Resets the highest numbers to the current ones."""
        await self.request("DELETE", "/truth")

    async def set_outage(
        self, how: Literal["503", "reset", "hang", ""], seconds: float = 0.0
    ) -> None:
        """Starts an outage that keeps the state; 0 s has no end, an empty `how` ends it."""
        await self.request("POST", "/outage", {"how": how, "length": seconds})

    async def set_password(self, user: str, password: str) -> None:
        """Creates an account or changes its password."""
        await self.request("POST", "/accounts", {"user": user, "password": password})

    async def is_locked(self, user: str) -> bool:
        return bool((await self.request("POST", "/accounts", {"user": user}))["locked"])

    async def unlock(self, user: str) -> None:
        await self.request("POST", "/accounts", {"user": user, "unlock": True})
