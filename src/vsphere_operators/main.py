"""The `manager` command: Settings -> Manager -> run."""

from __future__ import annotations

from kubewright import Manager, command

from .connecting import connect
from .grouping import grouping
from .kinds.fcdinfo import FCDInfoController
from .kinds.hostinfo import HostInfoController
from .kinds.mycustomresource import MyCustomResourceController
from .kinds.vminfo import VMInfoController
from .placing import placing
from .settings import Settings


def build(manager: Manager, settings: Settings) -> None:
    """Every kind that this manager serves: one line each."""
    vcenters = connect(manager, settings)
    manager.add(HostInfoController(vcenters))
    manager.add(VMInfoController(vcenters))
    manager.add(FCDInfoController(vcenters, manager.cache))
    manager.add(placing(manager, vcenters, settings))
    manager.add(grouping(manager, vcenters, settings))
    manager.add(MyCustomResourceController(manager.cache))


def main() -> int:
    """Run the manager until a signal."""
    return command.run(Settings, build, name="vsphere-operators")


if __name__ == "__main__":
    raise SystemExit(main())
