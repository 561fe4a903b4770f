"""The runtime with one controller, the usual manager command and all defaults."""

from __future__ import annotations

import sys

from bench.sample import Sample, SampleStatus
from kubewright import Controller, Manager
from kubewright.command import ManagerFlags, run


class SampleController(Controller[Sample]):
    """Doubles the size."""

    async def reconcile(self, sample: Sample) -> None:
        sample.status = SampleStatus(doubled=2 * sample.spec.size)


def build(manager: Manager, flags: ManagerFlags) -> None:
    manager.add(SampleController())


def main(kubeconfig: str, namespace: str) -> int:
    flags = [
        f"-kubeconfig={kubeconfig}",
        f"-watch-namespaces={namespace}",
        "-metrics-addr=127.0.0.1:0",
    ]
    return run(ManagerFlags, build, name="bench", argv=flags, environ={})


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
