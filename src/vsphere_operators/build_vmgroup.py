"""Settings -> the controller of VmGroup with all that it stands on."""

from __future__ import annotations

from kubewright import Manager

from .kinds.vmgroup.controller import Guard, VmGroupController
from .kinds.vmgroup.limits_file import limits_in
from .kinds.vmgroup.triggers import Groups
from .settings.flags import Settings
from .vcenters.registry import VCenters


def grouping(manager: Manager, vcenters: VCenters, settings: Settings) -> VmGroupController:
    """The controller; it acts only while this manager certainly leads."""
    guard = Guard(manager.client, manager.recorder, manager.may_write, settings.cluster_id)
    return VmGroupController(Groups(vcenters), manager.cache, guard, limits_in(settings.limits_file))
