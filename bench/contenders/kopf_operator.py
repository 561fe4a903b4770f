"""kopf, as its documentation has it: one handler for create, resume and update that sets a field of `patch.status`.

As it comes, it logs each step, and posts its log lines about an object as Kubernetes Events. With the argument `tuned` it does neither,
and has a session of few connections, which spares it TLS handshakes. In its favour in both: an async handler (no threads), no deletion
handler (so no finalizer), one namespace, no peering; and it writes `doubled` alone, without condition and observedGeneration.
"""

from __future__ import annotations

import logging
import os
import sys
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
        return kopf.AiohttpSession(server=found.server, aiohttp_session=aiohttp.ClientSession(connector=connector))


def login_as_usual() -> None:
    kopf.on.login()(kopf.login_with_kubeconfig)


def without_events() -> None:
    @kopf.on.startup()
    async def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.posting.enabled = False


@kopf.on.create(*SAMPLES)
@kopf.on.resume(*SAMPLES)
@kopf.on.update(*SAMPLES)
async def double(spec: kopf.Spec, patch: kopf.Patch, **_: Any) -> None:
    patch.status["doubled"] = 2 * spec["size"]


def main(kubeconfig: str, namespace: str, how: str = "as it comes") -> None:
    os.environ["KUBECONFIG"] = kubeconfig
    if how == "tuned":
        login_with_few(CONNECTIONS)
        without_events()
        logging.basicConfig(level=logging.WARNING)
    else:
        login_as_usual()
        kopf.configure()
    kopf.run(namespaces=[namespace], standalone=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
