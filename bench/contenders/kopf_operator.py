"""kopf, as its documentation has it: one handler for create, resume and update that sets a field of `patch.status`.

Chosen in its favour: an async handler (no threads), no Kubernetes events, logs from WARNING on, no deletion handler (so no
finalizer), one namespace, no peering; and it writes `doubled` alone, without condition and observedGeneration.
Everything else is its default, also that it limits neither the objects handled at once nor the connections. A session of our own with
few connections (a third argument, `--kopf-connections` of the bench) spares it the TLS handshakes; few operators have one.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

import aiohttp
import kopf

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


@kopf.on.startup()
async def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    settings.posting.enabled = False


@kopf.on.create(*SAMPLES)
@kopf.on.resume(*SAMPLES)
@kopf.on.update(*SAMPLES)
async def double(spec: kopf.Spec, patch: kopf.Patch, **_: Any) -> None:
    patch.status["doubled"] = 2 * spec["size"]


def main(kubeconfig: str, namespace: str, connections: str = "") -> None:
    os.environ["KUBECONFIG"] = kubeconfig
    if connections:
        login_with_few(int(connections))
    else:
        login_as_usual()
    logging.basicConfig(level=logging.WARNING)
    kopf.run(namespaces=[namespace], standalone=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
