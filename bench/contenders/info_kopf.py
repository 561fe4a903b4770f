"""HostInfo and VMInfo with kopf, tuned: async functions, no Events, few connections, few logs.

KUBECONFIG and FACTS are environment variables. FACTS names a JSON file with the facts of all hosts
and VMs by name, so this operator needs no session with a vCenter, and does not follow it. In its
favor it has no deletion handler (so no finalizer) and no peering.
"""

from __future__ import annotations

import logging
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import kopf
import msgspec

_MAX_CONNECTIONS = 16
_GROUP = ("topology.corinternal.com", "v1")
_FACTS: dict[str, dict[str, Any]] = msgspec.json.decode(Path(os.environ["FACTS"]).read_bytes())


@kopf.on.login()
async def login(**given: Any) -> kopf.AiohttpSession:
    """Limits the connections as in the documentation of kopf, "custom HTTP sessions"."""
    login = kopf.login_with_kubeconfig(**given)
    assert login is not None, "KUBECONFIG is set"
    connector = aiohttp.TCPConnector(limit=_MAX_CONNECTIONS, ssl=login.as_ssl_context())
    session = aiohttp.ClientSession(
        connector=connector, headers={"Authorization": f"Bearer {login.token}"}
    )
    return kopf.AiohttpSession(server=login.server, aiohttp_session=session)


@kopf.on.startup()
async def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    settings.posting.enabled = False


def _build_status(facts: dict[str, Any], status: kopf.Status, generation: int) -> dict[str, Any]:
    stored: list[dict[str, Any]] = status.get("conditions") or []
    ready = next((condition for condition in stored if condition["type"] == "Ready"), None)
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    condition = {
        "type": "Ready",
        "status": "True",
        "reason": "Reconciled",
        "message": "",
        "lastTransitionTime": ready["lastTransitionTime"] if ready else now,
        "observedGeneration": generation,
    }
    return {**facts, "conditions": [condition], "observedGeneration": generation}


@kopf.on.create(*_GROUP, "hostinfoes")
@kopf.on.resume(*_GROUP, "hostinfoes")
@kopf.on.update(*_GROUP, "hostinfoes")
async def reconcile_host(
    spec: kopf.Spec, meta: kopf.Meta, status: kopf.Status, patch: kopf.Patch, **_: Any
) -> None:
    facts = _FACTS["HostInfo"][spec["hostname"]]
    patch.status.update(_build_status(facts, status, meta["generation"]))


@kopf.on.create(*_GROUP, "vminfoes")
@kopf.on.resume(*_GROUP, "vminfoes")
@kopf.on.update(*_GROUP, "vminfoes")
async def reconcile_vm(
    spec: kopf.Spec, meta: kopf.Meta, status: kopf.Status, patch: kopf.Patch, **_: Any
) -> None:
    facts = _FACTS["VMInfo"][spec["nodename"]]
    patch.status.update(_build_status(facts, status, meta["generation"]))


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    kopf.run(clusterwide=True, standalone=True)
