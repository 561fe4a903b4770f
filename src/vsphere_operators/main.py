"""The `manager` command: Settings -> Manager -> run; and `manager doctor`, which looks why that would not work."""

from __future__ import annotations

import os
import sys

from kubewright import Manager, command

from .build import build_vcenters
from .build_gpuinfo import build_gpuinfo_controller
from .build_vmgroup import build_vmgroup_controller
from .kinds.fcdinfo import FCDInfoController
from .kinds.hostinfo import HostInfoController
from .kinds.mycustomresource import MyCustomResourceController
from .kinds.vminfo import VMInfoController
from .settings.flags import Settings
from .webhooks import build_webhooks

_SEE_ALSO = """\
If something does not work, `manager doctor` looks why, by the same flags: cluster, CRDs, rights, vCenter, certificates, login, privileges.
Each problem comes with the command that mends it. `manager doctor -help` has more.
"""


def build(manager: Manager, settings: Settings) -> None:
    """Every kind that this manager serves: one line each."""
    vcenters = build_vcenters(manager, settings)
    manager.add(HostInfoController(vcenters))
    manager.add(VMInfoController(vcenters))
    manager.add(FCDInfoController(vcenters, manager.cache))
    manager.add(build_gpuinfo_controller(manager, vcenters, settings))
    manager.add(groups := build_vmgroup_controller(manager, vcenters, settings))
    manager.add(MyCustomResourceController(manager.cache))
    if settings.webhooks:
        for webhook in build_webhooks(
            vcenters, manager.cache, groups.limits_for, manager.options.watch_namespaces
        ):
            manager.add(webhook)


def main() -> int:
    """Run the manager until a signal, or the doctor."""
    if sys.argv[1:2] == ["doctor"]:
        # Here, since a manager that runs for months should not hold what only the doctor needs.
        from .doctor.command import run

        return run(sys.argv[2:], os.environ, build)
    if sys.argv[1:] and not sys.argv[1].startswith("-"):
        print(
            f'manager: there is no command "{sys.argv[1]}". It is `manager` with flags, or `manager doctor` with flags.',
            file=sys.stderr,
        )
        return 2
    return command.run(Settings, build, name="vsphere-operators", see_also=_SEE_ALSO)


if __name__ == "__main__":
    raise SystemExit(main())
