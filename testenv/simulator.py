"""A simulated vCenter for tests: the program of testenv/vcsim as a child process, and its control endpoint as methods.

What a method changes is changed behind the client's back, as a person in the vSphere Client would do it: it appears in no counter
and in no ledger. `of`, `vm`, `host` and `disk` are names, references (vm-12) or inventory paths.
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
    """The control endpoint said no, and why."""


class SimulatedVCenter:
    """One vCenter; the flags are those of `vcsim --help`."""

    def __init__(
        self, binary: Path, folder: Path, *flags: str, user: str = "user", password: str = "pass"
    ) -> None:
        self.user, self.password, self.ready_info = user, password, dict[str, Any]()
        folder.mkdir(parents=True, exist_ok=True)
        # The password goes by the environment: what is on the command line, every process on the machine can read.
        program = [
            shutil.which("env") or "env",
            f"VCSIM_PASSWORD={password}",
            str(binary),
            f"--state={folder}",
            f"--user={user}",
        ]
        self.process = Process("vcsim", [*program, *flags], folder / "vcsim.log")

    async def start(self, within: float = 180.0) -> SimulatedVCenter:
        """Start it and wait until it answers; 1,000 hosts and 2,000 VMs take about 40 s."""
        self.process.start()
        await eventually(
            lambda: self.read_ready_line() or not self.process.is_running, within=within
        )
        if not (said := self.read_ready_line()):
            raise AssertionError(
                f"vcsim ended before it was ready:\n{self.process.read_log_tail()}"
            )
        self.ready_info = json.loads(said)
        return self

    async def stop(self) -> None:
        """End it; its state goes with it."""
        await self.process.stop(STOP_TIMEOUT_SECONDS)

    def read_ready_line(self) -> str:
        """The line that says it is ready, "" before."""
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
        """Host and port."""
        parts = urlsplit(self.url)
        return parts.hostname or "", parts.port or 0

    @property
    def certificate(self) -> Path:
        """The certificate to trust."""
        return Path(self.ready_info["certificate"])

    async def request(self, verb: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """One call of the control endpoint."""
        return await asyncio.to_thread(self.request_blocking, verb, path, body)

    def request_blocking(self, verb: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """The same, blocking."""
        data = json.dumps(body or {}).encode() if verb == "POST" else None
        request = urllib.request.Request(f"{self.ready_info['control']}{path}", data, method=verb)
        try:
            with urllib.request.urlopen(request, timeout=REQUEST_TIMEOUT_SECONDS) as answer:
                return json.load(answer)
        except HTTPError as error:
            with error:
                raise ControlError(f"{verb} {path}: {error.read().decode().strip()}") from None

    async def server_time(self) -> str:
        """The server's time."""
        return str((await self.request("GET", "/clock"))["time"])

    async def call_counts(self) -> dict[str, int]:
        """How often each method was called; REST calls as "GET /rest/..."."""
        return dict(await self.request("GET", "/calls"))

    async def reset_call_counts(self) -> None:
        """Count from nothing again."""
        await self.request("DELETE", "/calls")

    async def mutating_calls(self) -> list[dict[str, Any]]:
        """The calls that change something: sequence, time, method, object, name, newName, session, user, refused."""
        return list(await self.request("GET", "/ledger"))

    async def reset_mutating_calls(self) -> None:
        """Empty the ledger."""
        await self.request("DELETE", "/ledger")

    async def sessions(self) -> list[dict[str, Any]]:
        """The SOAP sessions with their filters, collectors, views and waiting calls."""
        return list((await self.request("GET", "/sessions"))["soap"])

    async def rest_sessions(self) -> list[dict[str, Any]]:
        """The REST sessions."""
        return list((await self.request("GET", "/sessions"))["rest"])

    async def expire_sessions(self, *, user: str = "", key: str = "") -> int:
        """End sessions of a user, or one by its key, or all; returns how many."""
        wish = {"user": user, "key": key, "all": not (user or key)}
        return int((await self.request("POST", "/sessions/expire", wish))["ended"])

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
        """Let the next calls of a method fail, or their tasks; without a fault they are only slow. A count of 0 is all calls."""
        wish = {
            "method": method,
            "fault": fault,
            "count": count,
            "where": where,
            "delay": delay_seconds,
            "object": entity,
        }
        await self.request("POST", "/rules", {**wish, **({"fields": fields} if fields else {})})

    async def delay_calls(self, method: str, seconds: float) -> None:
        """Make a method slow from now on: the task of a method that ends in _Task, the answer of another."""
        await self.fail_calls(
            method,
            count=0,
            where="task" if method.endswith("_Task") else "call",
            delay_seconds=seconds,
        )

    async def clear_rules(self) -> None:
        """End all failures and delays, also those under way."""
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
        """Keep the next calls until `release`: before their work, when it is done, or in their task; `drop` loses the answer then."""
        wish = {
            "method": method,
            "where": where,
            "count": count,
            "object": entity,
            "hold": True,
            "drop": drop,
        }
        await self.request("POST", "/rules", wish)

    async def drop_responses(self, method: str, *, count: int = 1, entity: str = "") -> None:
        """Do the work of the next calls, and close their connections without an answer."""
        await self.request(
            "POST",
            "/rules",
            {"method": method, "where": "answer", "count": count, "object": entity, "drop": True},
        )

    async def held_calls(self) -> list[dict[str, Any]]:
        """What is kept now: id, method, object, where, since."""
        return list(await self.request("GET", "/held"))

    async def release_calls(self, method: str = "", *, id: int = 0) -> int:
        """Let go what is held, of a method, or one by its id, or all; returns how many. It runs even if its sender is gone."""
        return int(
            (await self.request("POST", "/release", {"method": method, "id": id}))["released"]
        )

    async def vm_census(self) -> dict[str, Any]:
        """At one instant: `vms`, `clones` under way, and how many there are and ever were, by path in `folders`, by mark in `owners`."""
        return dict(await self.request("GET", "/truth"))

    async def reset_census_peaks(self) -> None:
        """Let the peaks begin at what there is now."""
        await self.request("DELETE", "/truth")

    async def set_outage(
        self, how: Literal["503", "reset", "hang", ""], seconds: float = 0.0
    ) -> None:
        """Be down for a while, with the state kept; 0 is until further notice, an empty `how` ends it."""
        await self.request("POST", "/outage", {"how": how, "length": seconds})

    async def set_password(self, user: str, password: str) -> None:
        """Make an account or change its password."""
        await self.request("POST", "/accounts", {"user": user, "password": password})

    async def is_locked(self, user: str) -> bool:
        """Whether an account is locked."""
        return bool((await self.request("POST", "/accounts", {"user": user}))["locked"])

    async def unlock(self, user: str) -> None:
        """Unlock an account."""
        await self.request("POST", "/accounts", {"user": user, "unlock": True})

    async def entities(self) -> list[dict[str, str]]:
        """All entities: type, ref, name and path."""
        return list(await self.request("GET", "/entities"))

    async def rename(self, of: str, name: str) -> None:
        """Rename any entity, hosts too."""
        await self.request("POST", "/rename", {"of": of, "name": name})

    async def set_host_connected(self, host: str, connected: bool = True) -> None:
        """Connect or disconnect a host."""
        await self.request("POST", "/host", {"host": host, "connected": connected})

    async def set_maintenance(self, host: str, on: bool = True) -> None:
        """Enter or leave maintenance mode."""
        await self.request("POST", "/host", {"host": host, "maintenance": on})

    async def set_host_gpus(
        self, host: str, count: int, kind: Literal["shared", "direct"] = "shared"
    ) -> None:
        """Give a host GPUs, or none."""
        await self.request("POST", "/host", {"host": host, "gpus": count, "gpuKind": kind})

    async def schedule_maintenance(self, host: str, at: datetime, **wish: Any) -> str:
        """Plan a maintenance of a host and return its reference; see Schedule in testenv/vcsim/scheduled.go. It never begins by itself."""
        return str(
            (await self.request("POST", "/schedule", {"host": host, "at": at.isoformat(), **wish}))[
                "ref"
            ]
        )

    async def remove_scheduled_task(self, task: str) -> None:
        """Take a plan away."""
        await self.request("POST", "/unschedule", {"of": task})

    async def set_power(self, vm: str, on: bool) -> None:
        """Switch a VM on or off."""
        await self.request("POST", "/power", {"vm": vm, "on": on})

    async def move_vm(self, vm: str, host: str) -> None:
        """Put a VM on another host."""
        await self.request("POST", "/move", {"vm": vm, "host": host})

    async def create_vm(self, name: str, **wish: Any) -> str:
        """Make a VM and return its reference; see MachineWish in testenv/vcsim/machines.go."""
        return str((await self.request("POST", "/create", {"name": name, **wish}))["ref"])

    async def delete(self, of: str) -> None:
        """Destroy any entity; a VM is switched off first."""
        await self.request("POST", "/delete", {"of": of})

    async def set_tools_running(self, vm: str, running: bool) -> None:
        """Let VMware Tools report in a VM, or fall silent."""
        await self.request("POST", "/guest", {"vm": vm, "tools": running})

    async def add_gpu(
        self, vm: str, kind: Literal["vgpu", "passthrough", "dynamic"] = "vgpu"
    ) -> None:
        """Add a GPU to a VM."""
        await self.request("POST", "/gpu", {"vm": vm, "kind": kind})

    async def disks(self) -> list[dict[str, Any]]:
        """The First Class Disks: name, id, sizeMB, datastore, path, consumers."""
        return list(await self.request("GET", "/fcds"))

    async def create_disk(self, name: str, **wish: Any) -> str:
        """Make a First Class Disk and return its id; see DiskWish in testenv/vcsim/disks.go."""
        return str((await self.request("POST", "/fcds", {"name": name, **wish}))["id"])

    async def delete_disk(self, disk: str) -> int:
        """Delete the disks of a name or id; returns how many."""
        return int((await self.request("POST", "/fcds/delete", {"disk": disk}))["deleted"])

    async def attach_disk(self, disk: str, vm: str) -> None:
        """Attach a disk to a VM, as a person would; an empty VM detaches it."""
        await self.request("POST", "/fcds/attach", {"disk": disk, "vm": vm})

    async def set_attribute(self, of: str, name: str, value: str) -> None:
        """Set a custom attribute."""
        await self.request("POST", "/attribute", {"of": of, "name": name, "value": value})

    async def set_tag(self, of: str, category: str, tag: str, *, detach: bool = False) -> None:
        """Attach a tag, or take it off; category and tag are made when missing."""
        await self.request(
            "POST", "/tag", {"of": of, "category": category, "tag": tag, "detach": detach}
        )

    async def set_stats(self, of: str, **stats: int) -> None:
        """Set quickStats by their wire names."""
        await self.request("POST", "/stats", {"of": of, "stats": stats})

    async def set_property(self, of: str, path: str, value: Any) -> None:
        """Set any property, such as runtime.connectionState, to a JSON value with wire names."""
        await self.request("POST", "/property", {"of": of, "property": path, "value": value})

    async def churn_stats(self, drift: float = 0.0) -> int:
        """Give all hosts and running VMs new quickStats once, or let them move by at most this share; returns how many changed."""
        return int((await self.request("POST", "/churn", {"drift": drift}))["changed"])
