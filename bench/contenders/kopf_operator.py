"""kopf, as its documentation has it: one handler for create, resume and update that sets a field of `patch.status`.

As it comes: a plain function, as in its tutorial, which it runs in threads; it logs each step, and posts its log lines about an object
as Kubernetes Events. With the argument `tuned`: an async function, no Events, logs from WARNING on, and a session of few connections, which
spares it TLS handshakes. In its favour in both: no deletion handler (so no finalizer), one namespace, no peering.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import aiohttp
import kopf

MAX_CONNECTIONS = 16
SAMPLES_RESOURCE = ("bench.kubewright.example", "v1", "samples")


def limit_connections(connections: int) -> None:
    """Give kopf a session with no more connections than this, as its documentation has it under "custom HTTP sessions"."""

    @kopf.on.login()
    async def login(**given: Any) -> kopf.AiohttpSession:
        found = kopf.login_with_kubeconfig(**given)
        assert found is not None, "KUBECONFIG is set"
        connector = aiohttp.TCPConnector(limit=connections, ssl=found.as_ssl_context())
        session = aiohttp.ClientSession(
            connector=connector, headers={"Authorization": f"Bearer {found.token}"}
        )
        return kopf.AiohttpSession(server=found.server, aiohttp_session=session)


def use_default_login() -> None:
    kopf.on.login()(kopf.login_with_kubeconfig)


def disable_events() -> None:
    @kopf.on.startup()
    async def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.posting.enabled = False


def desired_status(spec: kopf.Spec, meta: kopf.Meta) -> dict[str, Any]:
    """The same status as the runtime writes."""
    condition = {
        "type": "Ready",
        "status": "True",
        "reason": "Reconciled",
        "message": "",
        "lastTransitionTime": datetime.now(UTC).isoformat(timespec="seconds"),
        "observedGeneration": meta["generation"],
    }
    return {
        "doubled": 2 * spec["size"],
        "observedGeneration": meta["generation"],
        "conditions": [condition],
    }


def register_handler(handler: Callable[..., Any]) -> None:
    """Register it for create, resume and update."""
    for register in (kopf.on.create, kopf.on.resume, kopf.on.update):
        register(*SAMPLES_RESOURCE, id="double")(handler)


def reconcile_in_thread(spec: kopf.Spec, meta: kopf.Meta, patch: kopf.Patch, **_: Any) -> None:
    patch.status.update(desired_status(spec, meta))


async def reconcile_async(spec: kopf.Spec, meta: kopf.Meta, patch: kopf.Patch, **_: Any) -> None:
    patch.status.update(desired_status(spec, meta))


def main(kubeconfig: str, namespace: str, how: str = "as it comes") -> None:
    os.environ["KUBECONFIG"] = kubeconfig
    if how == "tuned":
        register_handler(reconcile_async)
        limit_connections(MAX_CONNECTIONS)
        disable_events()
        logging.basicConfig(level=logging.WARNING)
    else:
        register_handler(reconcile_in_thread)
        use_default_login()
        kopf.configure()
    kopf.run(namespaces=[namespace], standalone=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
