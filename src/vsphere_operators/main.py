"""The `manager` command: Settings -> Manager -> run."""

from __future__ import annotations

from kubewright import Manager, command

from .kinds.mycustomresource import MyCustomResourceController
from .settings import Settings


def build(manager: Manager, settings: Settings) -> None:
    """Every kind that this manager serves: one line each."""
    manager.add(MyCustomResourceController(manager.cache))


def main() -> int:
    """Run the manager until a signal."""
    return command.run(Settings, build, name="vsphere-operators")


if __name__ == "__main__":
    raise SystemExit(main())
