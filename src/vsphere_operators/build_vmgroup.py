"""Settings -> the controller of VmGroup with all that it stands on."""

from __future__ import annotations

from kubewright import Manager

from .kinds.vmgroup.controller import VmGroupController
from .kinds.vmgroup.limits import read_limits
from .kinds.vmgroup.preconditions import Preconditions
from .kinds.vmgroup.triggers import VmGroupTriggers
from .settings.flags import Settings
from .vcenters.registry import VCenterRegistry


def build_vmgroup_controller(
    manager: Manager, vcenters: VCenterRegistry, settings: Settings
) -> VmGroupController:
    """The controller; it acts only while this manager certainly leads."""
    guard = Preconditions(manager.client, manager.recorder, manager.can_write, settings.cluster_id)
    return VmGroupController(
        VmGroupTriggers(vcenters), manager.cache, guard, read_limits(settings.limits_file)
    )
