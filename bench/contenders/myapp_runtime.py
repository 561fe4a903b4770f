"""examples/myapp.py as it is, in the usual manager command with all defaults."""

from __future__ import annotations

import sys

from examples.myapp import MyAppController
from kubewright import Manager
from kubewright.command import ManagerFlags, run


def build(manager: Manager, flags: ManagerFlags) -> None:
    manager.add(MyAppController())


def main(kubeconfig: str, namespace: str) -> int:
    flags = [
        f"-kubeconfig={kubeconfig}",
        f"-watch-namespaces={namespace}",
        "-metrics-addr=127.0.0.1:0",
    ]
    return run(ManagerFlags, build, name="bench", argv=flags, environ={})


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
