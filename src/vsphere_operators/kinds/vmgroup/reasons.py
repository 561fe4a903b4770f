"""The reasons of a VmGroup's conditions and Events, and what each of them means."""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """The values are on the wire: users compare them in scripts, so they never change.

    The reference documentation is made from the docstrings of the members.
    """

    # Ready, while the group makes progress or waits.
    PROGRESSING = "Progressing"
    """Replicas are being created, updated or deleted."""
    NEEDS_ATTENTION = "NeedsAttention"
    """An operation failed; the message has the details."""
    VM_MISSING = "VMMissing"
    """The VM of a replica is not in the inventory, and is not known to be deleted; the message
    states how long the group waits for it."""
    VM_UNAVAILABLE = "VMUnavailable"
    """vCenter cannot access the VM of a replica, because of its host or its files. The VM is not
    replaced, because it may come back."""
    VCENTER_CHANGED = "VCenterChanged"
    """The group's VMs are in another vCenter than the one that serves its namespace now; vCenters
    are compared by their instance UUID."""
    CRD_OUTDATED = "CRDOutdated"
    """The installed CRD of VmGroup is older than the manager."""

    # Ready, while no VM can be cloned.
    TOO_MANY_REPLICAS = "TooManyReplicas"
    """spec.replicas is above the limit of one object."""
    QUOTA_EXCEEDED = "QuotaExceeded"
    """The VmGroups of the namespace together exceed its quota, or vCenter's own quota is used up;
    the message has the numbers."""
    PLACEMENT_NOT_ALLOWED = "PlacementNotAllowed"
    """The namespace may not use what spec.placement names, or what it resolves to; the message
    lists what is allowed."""
    TEMPLATE_NOT_FOUND = "TemplateNotFound"
    """The namespace can use no template of that name; the message states where the manager
    searched, and suggests similar names."""
    TEMPLATE_AMBIGUOUS = "TemplateAmbiguous"
    """Several templates have that name; the message lists their paths."""
    FOLDER_NOT_FOUND = "FolderNotFound"
    """The folder for the groups' folders does not exist."""
    FOLDER_AMBIGUOUS = "FolderAmbiguous"
    """Several folders have that name."""
    FOLDER_TAKEN = "FolderTaken"
    """The folder of that name belongs to another VmGroup; the message names it."""
    VMS_NOT_ADOPTED = "VMsNotAdopted"
    """The group's folder has VMs that the group could adopt, or their adoption was undone. It
    creates no VM until a user decides; the message has the command."""
    FOLDER_NAME_TAKEN = "FolderNameTaken"
    """Another object has the name of the group's folder."""
    DATACENTER_NOT_FOUND = "DatacenterNotFound"
    """vCenter has no datacenter of that name, or shows none to this account."""
    DATACENTER_AMBIGUOUS = "DatacenterAmbiguous"
    """vCenter has several datacenters, and spec.placement.datacenter selects none of them."""
    CLUSTER_NOT_FOUND = "ClusterNotFound"
    """The datacenter has no cluster of that name."""
    CLUSTER_AMBIGUOUS = "ClusterAmbiguous"
    """Several clusters have that name."""
    RESOURCE_POOL_NOT_FOUND = "ResourcePoolNotFound"
    """The datacenter has no resource pool of that name."""
    RESOURCE_POOL_AMBIGUOUS = "ResourcePoolAmbiguous"
    """Several resource pools are possible, and spec.placement selects none of them."""
    DATASTORE_NOT_FOUND = "DatastoreNotFound"
    """The datacenter has no datastore of that name."""
    DATASTORE_AMBIGUOUS = "DatastoreAmbiguous"
    """Several datastores have that name."""
    DATASTORE_INACCESSIBLE = "DatastoreInaccessible"
    """No host can access the datastore."""
    SECRET_NOT_FOUND = "SecretNotFound"
    """The Secret of spec.bootstrap.cloudInit does not exist."""
    SECRET_FORBIDDEN = "SecretForbidden"
    """The manager is not allowed to read the Secret."""
    SECRET_INCOMPLETE = "SecretIncomplete"
    """The Secret has no key with the user data."""

    # Ready, after vCenter rejected or failed an operation. A fault that is not listed in
    # messages.FAULT_ADVICE is its own reason.
    NO_PERMISSION = "NoPermission"
    """The vCenter account lacks a privilege."""
    INSUFFICIENT_RESOURCES = "InsufficientResources"
    """The cluster or resource pool has too little CPU or memory."""
    INSUFFICIENT_STORAGE = "InsufficientStorage"
    """The datastore has too little free space."""
    LICENSE = "License"
    """vCenter or its hosts lack a valid license."""
    NO_SNAPSHOT = "NoSnapshot"
    """spec.linkedClone is true, and the template has no snapshot."""
    STORAGE_UNAVAILABLE = "StorageUnavailable"
    """vCenter cannot use the datastore."""
    INVALID_NAME = "InvalidName"
    """vCenter does not accept the name."""
    VCENTER_ERROR = "VCenterError"
    """vCenter reported an error without a fault type."""

    WORKING = "Working"
    """Progressing: Operations are in progress."""
    PAUSED = "Paused"
    """Progressing: spec.paused is true."""
    IDLE = "Idle"
    """Progressing: No operation is in progress."""

    TOO_FEW_READY = "TooFewReady"
    """Degraded: The group is in phase ERROR, and fewer replicas than desired are ready."""
    IN_ERROR = "InError"
    """Degraded: The group is in phase ERROR, and all replicas are ready."""
    NOT_IN_ERROR = "NotInError"
    """Degraded: The group is not in phase ERROR."""

    CLONE_STARTED = "CloneStarted"
    """Normal Event on VmGroup: The clone of a VM has started in vCenter."""
    VM_READY = "VMReady"
    """Normal Event on VmGroup: The clone of a VM has ended, and the VM has the desired power
    state."""
    VM_POWERED_ON = "VMPoweredOn"
    """Normal Event on VmGroup: A VM was powered off or suspended, and is powered on again."""
    VM_POWERED_OFF = "VMPoweredOff"
    """Normal Event on VmGroup: A VM is powered off, as spec.powerState requests."""
    VM_RESIZED = "VMResized"
    """Normal Event on VmGroup: A VM has another number of CPUs or amount of memory."""
    ROLLING_UPDATE = "RollingUpdate"
    """Normal Event on VmGroup: A VM is outdated, and a new one replaces it."""
    VM_DELETED = "VMDeleted"
    """Normal Event on VmGroup: A VM was deleted; the message states why."""
    VMS_ORPHANED = "VMsOrphaned"
    """Normal Event on VmGroup: The group was deleted; its VMs are left in vCenter, as
    spec.deletionPolicy requests."""
    VM_ADOPTED = "VMAdopted"
    """Normal Event on VmGroup: The group has adopted a VM that it did not create."""
    VM_ADOPTION_UNDONE = "VMAdoptionUndone"
    """Normal Event on VmGroup: The adoption of a VM was undone, as a user requested."""
    VM_GONE = "VMGone"
    """Event on VmGroup: A VM was deleted, but not by the manager."""
    VM_RELEASED = "VMReleased"
    """Event on VmGroup: The ownership keys of a VM were removed, so it no longer belongs to the
    group."""
    CLONE_FAILED = "CloneFailed"
    """Event on VmGroup: A clone failed and is retried. If only a user can fix it, Ready is False
    instead, and the reason of its Event is the fault."""
    OPERATION_FAILED = "OperationFailed"
    """Event on VmGroup: Another operation failed and is retried."""
    VMS_LEFT = "VMsLeft"
    """Event on VmGroup: The group was deleted without its vCenter; its VMs are left there."""
    FOLDER_KEPT = "FolderKept"
    """Event on VmGroup: The group's folder is kept, because it is not empty."""
