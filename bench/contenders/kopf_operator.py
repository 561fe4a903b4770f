"""kopf, as its documentation has it: one handler for create, resume and update that sets a field of `patch.status`.

Chosen in its favour: an async handler (no threads), no Kubernetes events, logs from WARNING on, no deletion handler (so no
finalizer), one namespace, no peering; and it writes `doubled` alone, without condition and observedGeneration.
Everything else is its default, also that it does not limit how many objects it handles at once.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

import kopf

SAMPLES = ("bench.kubewright.example", "v1", "samples")


@kopf.on.login()
def login(**given: Any) -> kopf.ConnectionInfo | None:
    return kopf.login_with_kubeconfig(**given)


@kopf.on.startup()
async def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    settings.posting.enabled = False
    if os.environ.get("KL"):
        settings.queueing.worker_limit = int(os.environ["KL"])


@kopf.on.create(*SAMPLES)
@kopf.on.resume(*SAMPLES)
@kopf.on.update(*SAMPLES)
async def double(spec: kopf.Spec, patch: kopf.Patch, **_: Any) -> None:
    patch.status["doubled"] = 2 * spec["size"]


def main(kubeconfig: str, namespace: str) -> None:
    os.environ["KUBECONFIG"] = kubeconfig
    logging.basicConfig(level=logging.WARNING)
    kopf.run(namespaces=[namespace], standalone=True)


if __name__ == "__main__":
    main(*sys.argv[1:3])
