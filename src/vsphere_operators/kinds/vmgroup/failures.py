"""What a refused or failed operation means for a group: is it worth waiting, and what can a person do."""

from __future__ import annotations

from msgspec import Struct

FAULT_ADVICE = {
    "NoPermission": (
        "NoPermission",
        "give that privilege to the role of the manager's user in vCenter",
    ),
    "InsufficientResourcesFault": (
        "InsufficientResources",
        "free CPU or memory in the cluster or resource pool, or lower spec",
    ),
    "InsufficientCpuResourcesFault": (
        "InsufficientResources",
        "free CPU in the cluster or resource pool, or lower spec.cpu or replicas",
    ),
    "InsufficientMemoryResourcesFault": (
        "InsufficientResources",
        "free memory in the cluster or resource pool, or lower spec.memory",
    ),
    "InsufficientHostCapacityFault": (
        "InsufficientResources",
        "free capacity on the hosts, or lower cpu, memory or replicas",
    ),
    "InsufficientFailoverResourcesFault": (
        "InsufficientResources",
        "vSphere HA keeps capacity back; free some, or lower replicas",
    ),
    "NoDiskSpace": (
        "InsufficientStorage",
        "free space on the datastore, or name another in spec.placement.datastore",
    ),
    "InsufficientStorageSpace": (
        "InsufficientStorage",
        "free space on the datastore, or name another in spec.placement.datastore",
    ),
    "QuotaExceeded": ("QuotaExceeded", "raise the quota in vCenter, or lower replicas"),
    "LicenseExpired": ("License", "renew the licence of the vCenter or its hosts"),
    "NotEnoughLicenses": ("License", "add a licence to the vCenter or its hosts"),
    "NoSnapshot": ("NoSnapshot", ""),
    "CannotAccessVmDisk": ("StorageUnavailable", "mend the datastore of the template"),
    "InvalidDatastore": (
        "StorageUnavailable",
        "mend the datastore, or name another in spec.placement.datastore",
    ),
    "InvalidName": ("InvalidName", "give the group another name"),
}
"""By vCenter's fault: a reason for programs and what to do."""
_TRANSIENT_FAULTS = (
    "InvalidPowerState",
    "DuplicateName",
    "ManagedObjectNotFound",
    "InvalidState",
    "GenericVmConfigFault",
)
"""What an operation gets that came too late or too early: the next look knows better."""


class FailureDescription(Struct, frozen=True):
    """What a failure means."""

    reason: str
    message: str
    permanent: bool


def describe_failure(doing: str, fault: str, said: str, *, transient: bool) -> FailureDescription:
    """The failure in words. `passing` is what the tree of faults thinks of it."""
    reason, cure = FAULT_ADVICE.get(fault, (fault or "VCenterError", ""))
    lasting = fault in FAULT_ADVICE or (not transient and fault not in _TRANSIENT_FAULTS)
    if not cure:
        cure = (
            "it is tried again by itself"
            if not lasting
            else "vCenter's own event log may say more; it is tried again by itself"
        )
    said = said.strip().rstrip(".")
    return FailureDescription(reason, f"{doing} failed: {said}; {cure}", lasting)
