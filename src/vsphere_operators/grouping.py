"""Settings -> the controller of VmGroup with all that it stands on."""

from __future__ import annotations

from kubewright import Manager

from .groups import Groups
from .kinds.vmgroup import Guard, VmGroupController
from .limitsfile import limits_in
from .settings import Settings
from .vcenters import VCenters


def grouping(manager: Manager, vcenters: VCenters, settings: Settings) -> VmGroupController:
    """The controller; it acts only while this manager certainly leads."""
    guard = Guard(manager.client, manager.recorder, manager.may_write, settings.cluster_id)
    return VmGroupController(Groups(vcenters), manager.cache, guard, limits_in(settings.limits_file))
