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
from datetime import datetime
from pathlib import Path
from typing import Any, Literal
from urllib.error import HTTPError
from urllib.parse import urlsplit

from kubewright.testing import eventually
from kubewright.testing.process import Process

REQUEST_TIMEOUT_SECONDS = 60.0
STOP_TIMEOUT_SECONDS = 5.0


class ControlError(Exception):
    """The control endpoint rejected a request; the message has the reason."""


class SimulatedVCenter:
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

    async def entities(self) -> list[dict[str, str]]:
        """Type, ref, name and path of all entities."""
        return list(await self.request("GET", "/entities"))

    async def rename(self, entity: str, name: str) -> None:
        await self.request("POST", "/rename", {"of": entity, "name": name})

    async def set_host_connected(self, host: str, connected: bool = True) -> None:
        await self.request("POST", "/host", {"host": host, "connected": connected})

    async def set_maintenance(self, host: str, on: bool = True) -> None:
        await self.request("POST", "/host", {"host": host, "maintenance": on})

    async def set_host_gpus(
        self, host: str, count: int, kind: Literal["shared", "direct"] = "shared"
    ) -> None:
        await self.request("POST", "/host", {"host": host, "gpus": count, "gpuKind": kind})

    async def schedule_maintenance(self, host: str, at: datetime, **fields: Any) -> str:
        """Returns the reference of the scheduled task, which never starts.

        See testenv/vcsim/scheduled.go for the fields.
        """
        return str(
            (
                await self.request(
                    "POST", "/schedule", {"host": host, "at": at.isoformat(), **fields}
                )
            )["ref"]
        )

    async def remove_scheduled_task(self, task: str) -> None:
        await self.request("POST", "/unschedule", {"of": task})

    async def set_power(self, vm: str, on: bool) -> None:
        await self.request("POST", "/power", {"vm": vm, "on": on})

    async def move_vm(self, vm: str, host: str) -> None:
        await self.request("POST", "/move", {"vm": vm, "host": host})

    async def create_vm(self, name: str, **fields: Any) -> str:
        """Returns the reference; see testenv/vcsim/vms.go for the fields."""
        return str((await self.request("POST", "/create", {"name": name, **fields}))["ref"])

    async def delete(self, entity: str) -> None:
        """Deletes any entity; a VM is powered off first."""
        await self.request("POST", "/delete", {"of": entity})

    async def set_tools_running(self, vm: str, running: bool) -> None:
        await self.request("POST", "/guest", {"vm": vm, "tools": running})

    async def add_gpu(
        self, vm: str, kind: Literal["vgpu", "passthrough", "dynamic"] = "vgpu"
    ) -> None:
        await self.request("POST", "/gpu", {"vm": vm, "kind": kind})

    async def disks(self) -> list[dict[str, Any]]:
        """First Class Disks: name, id, sizeMB, datastore, path, consumers."""
        return list(await self.request("GET", "/fcds"))

    async def create_disk(self, name: str, **fields: Any) -> str:
        """Returns the id of the First Class Disk; see testenv/vcsim/disks.go for the fields."""
        return str((await self.request("POST", "/fcds", {"name": name, **fields}))["id"])

    async def delete_disk(self, disk: str) -> int:
        """Deletes all disks with this name or id; returns their number."""
        return int((await self.request("POST", "/fcds/delete", {"disk": disk}))["deleted"])

    async def attach_disk(self, disk: str, vm: str) -> None:
        """Attaches a disk to a VM; an empty `vm` detaches it."""
        await self.request("POST", "/fcds/attach", {"disk": disk, "vm": vm})

    async def set_attribute(self, entity: str, name: str, value: str) -> None:
        await self.request("POST", "/attribute", {"of": entity, "name": name, "value": value})

    async def set_tag(self, entity: str, category: str, tag: str, *, detach: bool = False) -> None:
        """Attaches or detaches a tag; a missing category or tag is created."""
        await self.request(
            "POST", "/tag", {"of": entity, "category": category, "tag": tag, "detach": detach}
        )

    async def set_stats(self, entity: str, **stats: int) -> None:
        """Sets quickStats; the keywords are their wire names."""
        await self.request("POST", "/stats", {"of": entity, "stats": stats})

    async def set_property(self, entity: str, path: str, value: Any) -> None:
        """Sets a property such as runtime.connectionState to a JSON value with wire names."""
        await self.request("POST", "/property", {"of": entity, "property": path, "value": value})

    async def churn_stats(self, drift: float = 0.0) -> int:
        """Changes the quickStats of all hosts and running VMs once; returns their number.

        `drift` limits the change to this share of the old value; 0 means new values.
        """
        return int((await self.request("POST", "/churn", {"drift": drift}))["changed"])
