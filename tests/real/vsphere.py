"""The manager between a real API server and a simulated vCenter: what its tests share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubewright.testing import eventually
from kubewright.testing.controlplane import ControlPlane
from simulator import SimulatedVCenter

from .managing import EVERYWHERE, ManagerProcess, ready_of, started

GROUP = "topology.corinternal.com/v1"
PLURALS = {"HostInfo": "hostinfoes", "VMInfo": "vminfoes", "FCDInfo": "fcdinfoes"}
FIELDS = {"HostInfo": "hostname", "VMInfo": "nodename", "FCDInfo": "pvId"}


@dataclass(frozen=True)
class Infos:
    """The info objects of one namespace, written and read through the API server as a user would."""

    plane: ControlPlane
    namespace: str

    def path(self, kind: str, name: str = "") -> str:
        """The URL path of one object, or of all."""
        return f"/apis/{GROUP}/namespaces/{self.namespace}/{PLURALS[kind]}" + (
            f"/{name}" if name else ""
        )

    async def call(
        self, verb: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Any:
        """One call as administrator."""

        def work() -> Any:
            with self.plane.apiserver.admin_client() as https:
                return https.call(verb, path, body, headers)

        return await asyncio.to_thread(work)

    async def create(self, kind: str, name: str, asked: str | None) -> None:
        """An object that asks for this host, VM or disk; None leaves the spec out altogether."""
        spec = {} if asked is None else {"spec": {FIELDS[kind]: asked}}
        await self.call(
            "POST",
            self.path(kind),
            {"apiVersion": GROUP, "kind": kind, "metadata": {"name": name}, **spec},
        )

    async def get(self, kind: str, name: str) -> dict[str, Any]:
        """The object."""
        return dict(await self.call("GET", self.path(kind, name)))

    async def merge(self, kind: str, name: str, patch: Mapping[str, Any]) -> None:
        """Merge into the object."""
        await self.call(
            "PATCH", self.path(kind, name), patch, {"Content-Type": "application/merge-patch+json"}
        )

    async def status(
        self,
        kind: str,
        name: str,
        reason: str = "Reconciled",
        *,
        within: float = 20,
        where: Callable[[Any], Any] = bool,
    ) -> Any:
        """The status, once Ready has this reason for the present generation and `where` is content with it."""

        async def answered() -> dict[str, Any] | None:
            obj = await self.get(kind, name)
            ready, status = ready_of(obj), obj.get("status", {})
            current = ready.get("observedGeneration") == obj["metadata"]["generation"]
            return status if ready.get("reason") == reason and current and where(status) else None

        try:
            return await eventually(answered, within=within)
        except AssertionError:
            raise AssertionError(
                f"{kind} {name} did not become {reason}: {await self.get(kind, name)}"
            ) from None


def without_conditions(status: Mapping[str, Any]) -> dict[str, Any]:
    """What the kind itself says."""
    return {
        field: value
        for field, value in status.items()
        if field not in ("conditions", "observedGeneration")
    }


def credentials_in(folder: Path, vcenter: SimulatedVCenter, **other: str) -> Path:
    """A directory like a mounted Secret vc-creds."""
    folder.mkdir(exist_ok=True)
    url = vcenter.url
    for key, text in {
        "GOVMOMI_URL": url,
        "GOVMOMI_USERNAME": vcenter.user,
        "GOVMOMI_PASSWORD": vcenter.password,
        **other,
    }.items():
        (folder / key).write_text(text)
    return folder


@asynccontextmanager
async def managing(
    log: Path, kubeconfig: Path, credentials: Path, certificate: Path, *flags: str
) -> AsyncIterator[ManagerProcess]:
    """A manager that has loaded its vCenter."""
    given = (
        f"--vcenter-credentials={credentials}",
        f"--vcenter-ca-file={certificate}",
        "--zap-log-level=debug",
    )
    async with started(log, f"--kubeconfig={kubeconfig}", *EVERYWHERE, *given, *flags) as manager:
        await manager.says("logged in", within=30)
        yield manager
