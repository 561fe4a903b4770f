"""kopf as in its documentation: one handler for create, resume and update sets a status field.

By default it is a plain function, as in its tutorial, which kopf runs in threads; kopf logs each
step. With the argument `tuned` it is an async function without Events, logs start at WARNING, and a
session with few connections saves TLS handshakes. In favor of kopf, both have no deletion handler
(so no finalizer), one namespace and no peering.
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
_SAMPLES_RESOURCE = ("bench.kubewright.example", "v1", "samples")


def _limit_connections(connections: int) -> None:
    """Limits the connections of kopf as in its documentation, "custom HTTP sessions"."""

    @kopf.on.login()
    async def login(**given: Any) -> kopf.AiohttpSession:
        login = kopf.login_with_kubeconfig(**given)
        assert login is not None, "KUBECONFIG is set"
        connector = aiohttp.TCPConnector(limit=connections, ssl=login.as_ssl_context())
        session = aiohttp.ClientSession(
            connector=connector, headers={"Authorization": f"Bearer {login.token}"}
        )
        return kopf.AiohttpSession(server=login.server, aiohttp_session=session)


def _use_default_login() -> None:
    kopf.on.login()(kopf.login_with_kubeconfig)


def _disable_events() -> None:
    @kopf.on.startup()
    async def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.posting.enabled = False


def _desired_status(spec: kopf.Spec, meta: kopf.Meta) -> dict[str, Any]:
    """The status that the runtime writes."""
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


def _register_handler(handler: Callable[..., Any]) -> None:
    for register in (kopf.on.create, kopf.on.resume, kopf.on.update):
        register(*_SAMPLES_RESOURCE, id="double")(handler)


def _reconcile_in_thread(spec: kopf.Spec, meta: kopf.Meta, patch: kopf.Patch, **_: Any) -> None:
    patch.status.update(_desired_status(spec, meta))


async def _reconcile_async(spec: kopf.Spec, meta: kopf.Meta, patch: kopf.Patch, **_: Any) -> None:
    patch.status.update(_desired_status(spec, meta))


def main(kubeconfig: str, namespace: str, how: str = "as it comes") -> None:
    os.environ["KUBECONFIG"] = kubeconfig
    if how == "tuned":
        _register_handler(_reconcile_async)
        _limit_connections(MAX_CONNECTIONS)
        _disable_events()
        logging.basicConfig(level=logging.WARNING)
    else:
        _register_handler(_reconcile_in_thread)
        _use_default_login()
        kopf.configure()
    kopf.run(namespaces=[namespace], standalone=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
