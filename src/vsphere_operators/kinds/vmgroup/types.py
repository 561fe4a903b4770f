"""The kind VmGroup: its spec and its status. A new manager continues from the status."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Struct

from kubewright import (
    Column,
    Doc,
    Int32,
    ListType,
    Resource,
    Scale,
    Spec,
    Status,
    ValidationRule,
    kind,
)

API_GROUP = "vm.codeconnect.vmworld.com"
# Which VMs the group adopts: their instanceUuids, separated by commas, or UNDO_ADOPTION.
ADOPT_ANNOTATION = f"{API_GROUP}/adopt"
UNDO_ADOPTION = "undo"


class PlacementSpec(Spec):
    """Where new replicas are placed, by names as in vCenter, within the limits of the namespace."""

    datacenter: Annotated[
        str, Doc("The datacenter. Required if the vCenter has several.", max_length=255)
    ] = ""
    cluster: Annotated[
        str,
        Doc(
            "The cluster. Defaults to the only one, or to the cluster of the template.",
            max_length=255,
        ),
    ] = ""
    resourcePool: Annotated[
        str,
        Doc(
            "The resource pool. Defaults to the root resource pool of the cluster.", max_length=255
        ),
    ] = ""
    folder: Annotated[
        str,
        Doc(
            "The folder, by name or path, in which the group's own folder is created. "
            "Defaults to vm-operator.",
            max_length=1024,
        ),
    ] = ""
    datastore: Annotated[
        str, Doc("The datastore. Defaults to the datastore of the template.", max_length=255)
    ] = ""


class RolloutSpec(Spec):
    """How a change of the template reaches the replicas."""

    rules = (
        ValidationRule(
            "self.maxSurge > 0 || self.maxUnavailable > 0",
            "maxSurge and maxUnavailable cannot both be 0: nothing could change",
        ),
    )

    maxSurge: Annotated[
        Int32,
        Doc("How many replicas more than `replicas` may exist during the rollout.", ge=0, le=100),
    ] = 0
    maxUnavailable: Annotated[
        Int32,
        Doc("How many of `replicas` may be unavailable during the rollout.", ge=0, le=100),
    ] = 1
    strategy: Annotated[
        Literal["RollingUpdate", "OnDelete"],
        Doc("RollingUpdate replaces replicas; OnDelete keeps them until a user deletes them."),
    ] = "RollingUpdate"


class CloudInitSpec(Spec):
    """cloud-init data for new replicas. Users with access to the VM's settings can read it."""

    secretName: Annotated[
        str, Doc("Name of the Secret in the same namespace.", min_length=1, max_length=253)
    ]
    userDataKey: Annotated[
        str, Doc("Key of the user data in the Secret.", min_length=1, max_length=253)
    ] = "user-data"
    metaDataKey: Annotated[
        str,
        Doc(
            "Key of the metadata in the Secret. The key is optional.", min_length=1, max_length=253
        ),
    ] = "meta-data"


class BootstrapSpec(Spec):
    """Data for the first boot of the guest."""

    cloudInit: Annotated[
        CloudInitSpec | None, Doc("User data from a Secret, passed through guestinfo.")
    ] = None


class VmGroupSpec(Spec):
    """The number, the size and the template of the VMs."""

    cpu: Annotated[Int32, Doc("Number of virtual CPUs of each VM.", ge=1, le=4)]
    memory: Annotated[Int32, Doc("Memory of each VM, in GB.", ge=1, le=8)]
    replicas: Annotated[Int32, Doc("Number of VMs.", ge=1)]
    template: Annotated[
        str, Doc("Name or full inventory path of the VM template.", min_length=1, max_length=2048)
    ]
    placement: Annotated[PlacementSpec | None, Doc("Where new replicas are placed.")] = None
    rollout: Annotated[
        RolloutSpec | None,
        Doc("How a change of the template reaches the replicas. Defaults to one at a time."),
    ] = None
    powerState: Annotated[
        Literal["poweredOn", "poweredOff"], Doc("The power state in which the VMs are kept.")
    ] = "poweredOn"
    paused: Annotated[bool, Doc("If true, the manager changes nothing in vCenter.")] = False
    bootstrap: Annotated[BootstrapSpec | None, Doc("Data for the first boot of the guests.")] = None
    linkedClone: Annotated[
        bool, Doc("If true, clones share the disks of the template's current snapshot.")
    ] = False
    storagePolicy: Annotated[
        str,
        Doc(
            "ID of the storage policy of new replicas. Defaults to that of the datastore.",
            max_length=255,
        ),
    ] = ""
    deletionPolicy: Annotated[
        Literal["Destroy", "Orphan"],
        Doc("Whether VMs are deleted with the VmGroup (Destroy) or left unmanaged (Orphan)."),
    ] = "Destroy"


class ReplicaStatus(Struct, kw_only=True, omit_defaults=True):
    """One replica: its record, stored before any request to vCenter, and its VM if it exists."""

    # Two fields keep the names that stored objects have. Everywhere else in the code, `slot` is
    # `sequence_number`, and `leaving` is `terminating`.

    name: Annotated[str, Doc("The name of the replica. A user may have renamed its VM.")]
    slot: Annotated[Int32, Doc("The number of the replica; the highest is the newest.")]
    instanceUUID: Annotated[str, Doc("instanceUuid of its VM.")]
    template: Annotated[str, Doc("MoRef of the template.")] = ""
    fingerprint: Annotated[
        str,
        Doc(
            "Hash of template, linkedClone and storagePolicy at the time of the clone. If the spec "
            "has another hash, the replica is outdated."
        ),
    ] = ""
    state: Annotated[
        Literal["Planned", "Cloning", "Present"],
        Doc("Planned: the record is stored. Cloning: the clone was requested. Present: it exists."),
    ] = "Planned"
    task: Annotated[str, Doc("MoRef of the clone task.")] = ""
    progress: Annotated[Int32 | None, Doc("Progress of the clone task, in percent.")] = None
    attempt: Annotated[Int32, Doc("Number of attempts to clone it.")] = 1
    cpu: Annotated[
        Int32,
        Doc("Virtual CPUs that it counts for in the quota: of its VM, or of a pending request."),
    ] = 0
    memoryMB: Annotated[
        Int32,
        Doc("Memory that it counts for in the quota: of its VM, or of a pending request."),
    ] = 0
    adoptedFrom: Annotated[
        str, Doc("Of an adopted VM: the instanceUuid that it had before the adoption.")
    ] = ""
    # `terminating` in the code; the field keeps the name that stored objects have.
    leaving: Annotated[bool, Doc("Whether the replica is selected for deletion.")] = False
    moRef: Annotated[str, Doc("MoRef of its VM.")] = ""
    power: Annotated[str, Doc("poweredOn, poweredOff or suspended.")] = ""
    ipAddress: Annotated[str, Doc("Primary IP address, as reported by VMware Tools.")] = ""
    host: Annotated[
        str, Doc("Name of the ESXi host of its VM; while the VM is missing, the last known one.")
    ] = ""


class FolderStatus(Struct, kw_only=True):
    """The folder that contains the group's VMs."""

    ref: Annotated[str, Doc("MoRef.")]
    path: Annotated[str, Doc("Inventory path.")] = ""


class AdoptionVmStatus(Struct, kw_only=True):
    """A VM in the group's folder that does not belong to the group."""

    name: Annotated[str, Doc("Name in vCenter.")]
    moRef: Annotated[str, Doc("MoRef in vCenter.")]
    instanceUUID: Annotated[str, Doc("instanceUuid in vCenter.")] = ""
    verdict: Annotated[
        Literal["Adoptable", "Waiting", "Refused", "Foreign"],
        Doc("Whether the group may adopt it. Waiting: not known yet."),
    ] = "Waiting"
    message: Annotated[str, Doc("Why, and what the group does with the VM afterwards.")] = ""


class AdoptionStatus(Struct, kw_only=True):
    """The VMs that the group could adopt, and the result of the last request."""

    vms: Annotated[
        list[AdoptionVmStatus],
        ListType("map", "moRef"),
        Doc("VMs in the group's folder that do not belong to it; at most 20 foreign ones."),
    ] = []
    observedRequest: Annotated[
        str, Doc(f"Hash of the annotation `{ADOPT_ANNOTATION}` that the manager last processed.")
    ] = ""
    message: Annotated[str, Doc("Why the manager does not carry out the request.")] = ""


class VmGroupStatus(Status):
    """The observed state. A new manager continues from `replicas`: do not edit it."""

    phase: Annotated[
        Literal["", "RUNNING", "PENDING", "ERROR"],
        Doc("RUNNING, PENDING (in progress) or ERROR (a user has to act)."),
    ] = ""
    currentReplicas: Annotated[Int32 | None, Doc("Number of VMs that exist.")] = None
    desiredReplicas: Annotated[Int32, Doc("Number of desired VMs.")] = 0
    readyReplicas: Annotated[
        Int32, Doc("Number of VMs in the desired power state that are not to be deleted.")
    ] = 0
    updatedReplicas: Annotated[
        Int32, Doc("Number of VMs with the current template and size that are not to be deleted.")
    ] = 0
    lastMessage: Annotated[str, Doc("The progress, or the problem and what to do about it.")] = ""
    summary: Annotated[
        str, Doc("The beginning of lastMessage, short enough for a column of `kubectl get`.")
    ] = ""
    selector: Annotated[
        str, Doc("Selector of the scale subresource; a HorizontalPodAutoscaler requires it.")
    ] = ""
    replicas: Annotated[list[ReplicaStatus], ListType("map", "name"), Doc("The replicas.")] = []
    folder: Annotated[FolderStatus | None, Doc("The group's folder in vCenter.")] = None
    adoption: Annotated[
        AdoptionStatus | None,
        Doc("VMs that the group could adopt; see `kubectl vsphere adopt`."),
    ] = None
    vcenter: Annotated[str, Doc("Name of the vCenter in the manager's configuration.")] = ""
    vcenterUUID: Annotated[
        str, Doc("instanceUuid of that vCenter. MoRefs in this status count only there.")
    ] = ""


@kind(
    f"{API_GROUP}/v1alpha1",
    short=("vg",),
    columns=[
        Column("Phase", ".status.phase"),
        Column("Current", ".status.currentReplicas"),
        Column("Desired", ".spec.replicas"),
        Column("CPU", ".spec.cpu"),
        Column("Memory", ".spec.memory"),
        Column("Template", ".spec.template"),
        Column("Last_Message", ".status.summary"),
        Column("Ready_Replicas", ".status.readyReplicas", priority=1),
        Column("Folder", ".status.folder.path", priority=1),
        Column("VCenter", ".status.vcenter", priority=1),
    ],
    scale=Scale(".spec.replicas", ".status.currentReplicas", ".status.selector"),
    # Manifests without a spec applied before it had a rule, and must still apply.
    require_spec=False,
)
class VmGroup(Resource[VmGroupSpec, VmGroupStatus]):
    """A number of equal virtual machines, cloned from a template."""

    # The finalizer needs the spec: it has the deletion policy.
    rules = (
        ValidationRule(
            "!has(oldSelf.spec) || has(self.spec)",
            "spec cannot be taken away; delete the object instead",
        ),
    )
