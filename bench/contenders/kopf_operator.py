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

CONNECTIONS = 16
SAMPLES = ("bench.kubewright.example", "v1", "samples")


def login_with_few(connections: int) -> None:
    """Give kopf a session with no more connections than this, as its documentation has it under "custom HTTP sessions"."""

    @kopf.on.login()
    async def login(**given: Any) -> kopf.AiohttpSession:
        found = kopf.login_with_kubeconfig(**given)
        assert found is not None, "KUBECONFIG is set"
        connector = aiohttp.TCPConnector(limit=connections, ssl=found.as_ssl_context())
        session = aiohttp.ClientSession(connector=connector, headers={"Authorization": f"Bearer {found.token}"})
        return kopf.AiohttpSession(server=found.server, aiohttp_session=session)


def login_as_usual() -> None:
    kopf.on.login()(kopf.login_with_kubeconfig)


def without_events() -> None:
    @kopf.on.startup()
    async def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.posting.enabled = False


def answer(spec: kopf.Spec, meta: kopf.Meta) -> dict[str, Any]:
    """The same status as the runtime writes."""
    condition = {
        "type": "Ready",
        "status": "True",
        "reason": "Reconciled",
        "message": "",
        "lastTransitionTime": datetime.now(UTC).isoformat(timespec="seconds"),
        "observedGeneration": meta["generation"],
    }
    return {"doubled": 2 * spec["size"], "observedGeneration": meta["generation"], "conditions": [condition]}


def handle(handler: Callable[..., Any]) -> None:
    """Register it for create, resume and update."""
    for register in (kopf.on.create, kopf.on.resume, kopf.on.update):
        register(*SAMPLES, id="double")(handler)


def ordinary(spec: kopf.Spec, meta: kopf.Meta, patch: kopf.Patch, **_: Any) -> None:
    patch.status.update(answer(spec, meta))


async def without_threads(spec: kopf.Spec, meta: kopf.Meta, patch: kopf.Patch, **_: Any) -> None:
    patch.status.update(answer(spec, meta))


def main(kubeconfig: str, namespace: str, how: str = "as it comes") -> None:
    os.environ["KUBECONFIG"] = kubeconfig
    if how == "tuned":
        handle(without_threads)
        login_with_few(CONNECTIONS)
        without_events()
        logging.basicConfig(level=logging.WARNING)
    else:
        handle(ordinary)
        login_as_usual()
        kopf.configure()
    kopf.run(namespaces=[namespace], standalone=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
