"""What a VmGroup looks like: its spec, and its status with the replicas that a new manager goes on from."""

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

from .model import ReplicaRecord


class PlacementSpec(Spec):
    """Where new replicas go, by names as vCenter shows them; limited by what the administrator allows this namespace."""

    datacenter: Annotated[
        str, Doc("The datacenter; needed where the vCenter has several.", max_length=255)
    ] = ""
    cluster: Annotated[
        str, Doc("The cluster; by default the only one, or the template's.", max_length=255)
    ] = ""
    resourcePool: Annotated[
        str, Doc("The resource pool; by default the cluster's own.", max_length=255)
    ] = ""
    folder: Annotated[
        str,
        Doc(
            "The folder, by name or path, in which the group's own folder is made; by default vm-operator.",
            max_length=1024,
        ),
    ] = ""
    datastore: Annotated[str, Doc("The datastore; by default the template's.", max_length=255)] = ""


class RolloutSpec(Spec):
    """How a change of the template reaches the replicas."""

    rules = (
        ValidationRule(
            "self.maxSurge > 0 || self.maxUnavailable > 0",
            "maxSurge and maxUnavailable cannot both be 0: nothing could change",
        ),
    )

    maxSurge: Annotated[
        Int32, Doc("How many more than `replicas` there may be meanwhile.", ge=0, le=100)
    ] = 0
    maxUnavailable: Annotated[
        Int32, Doc("How many of `replicas` may be missing or off meanwhile.", ge=0, le=100)
    ] = 1
    strategy: Annotated[
        Literal["RollingUpdate", "OnDelete"],
        Doc("RollingUpdate replaces replicas; OnDelete leaves them until somebody deletes them."),
    ] = "RollingUpdate"


class CloudInitSpec(Spec):
    """cloud-init's data for new replicas. Whoever can see the VM's settings in vCenter can read it."""

    secretName: Annotated[str, Doc("The Secret in this namespace.", min_length=1, max_length=253)]
    userDataKey: Annotated[str, Doc("Its key with the user data.", min_length=1)] = "user-data"
    metaDataKey: Annotated[
        str, Doc("Its key with the meta data; it may be missing.", min_length=1)
    ] = "meta-data"


class BootstrapSpec(Spec):
    """What the guest finds when it starts for the first time."""

    cloudInit: Annotated[
        CloudInitSpec | None, Doc("User data from a Secret, through guestinfo.")
    ] = None


class VmGroupSpec(Spec):
    """How many VMs, how large, from what."""

    cpu: Annotated[Int32, Doc("Number of virtual CPUs of each VM.", ge=1, le=4)]
    memory: Annotated[Int32, Doc("Memory of each VM, in GB.", ge=1, le=8)]
    replicas: Annotated[Int32, Doc("Number of VMs.", ge=1)]
    template: Annotated[
        str, Doc("Name or full inventory path of the VM template.", min_length=1, max_length=2048)
    ]
    placement: Annotated[PlacementSpec | None, Doc("Where new replicas go.")] = None
    rollout: Annotated[
        RolloutSpec | None,
        Doc("How a change of the template reaches the replicas; by default one after the other."),
    ] = None
    powerState: Annotated[
        Literal["poweredOn", "poweredOff"], Doc("The power state that the VMs are kept in.")
    ] = "poweredOn"
    paused: Annotated[bool, Doc("Nothing is changed in vCenter while this is true.")] = False
    bootstrap: Annotated[
        BootstrapSpec | None, Doc("What the guests find when they start for the first time.")
    ] = None
    linkedClone: Annotated[
        bool, Doc("Clones share the disks of the template's present snapshot.")
    ] = False
    storagePolicy: Annotated[
        str,
        Doc(
            "The id of the storage policy of new replicas; by default the datastore's.",
            max_length=255,
        ),
    ] = ""
    deletionPolicy: Annotated[
        Literal["Destroy", "Orphan"],
        Doc("Whether the VMs go with the object, or stay and are nobody's from then on."),
    ] = "Destroy"

    @property
    def requested_placement(self) -> dict[str, str]:
        """The placement by field."""
        where = self.placement or PlacementSpec()
        return {field: getattr(where, field) for field in PlacementSpec.__struct_fields__}


class ReplicaStatus(Struct, kw_only=True, omit_defaults=True):
    """One replica: its place, which is kept before anything is done for it, and its VM, if it is there."""

    name: Annotated[str, Doc("The name that it was given; somebody may have renamed the VM.")]
    slot: Annotated[Int32, Doc("Its number; the highest is the newest.")]
    instanceUUID: Annotated[str, Doc("The identity of its VM in vCenter.")]
    template: Annotated[str, Doc("MoRef of what it is cloned from.")] = ""
    fingerprint: Annotated[
        str, Doc("What it is made from; another one means that it is outdated.")
    ] = ""
    state: Annotated[
        Literal["Planned", "Cloning", "Present"],
        Doc("Planned is stored, Cloning is sent, Present is there."),
    ] = "Planned"
    task: Annotated[str, Doc("MoRef of the task that clones it.")] = ""
    progress: Annotated[Int32 | None, Doc("Of that task, in percent.")] = None
    attempt: Annotated[Int32, Doc("How often its clone was planned.")] = 1
    leaving: Annotated[bool, Doc("It was chosen to go.")] = False
    moRef: Annotated[str, Doc("MoRef of its VM.")] = ""
    power: Annotated[str, Doc("poweredOn, poweredOff or suspended.")] = ""
    ipAddress: Annotated[str, Doc("Primary address, as VMware Tools report it.")] = ""
    host: Annotated[str, Doc("The ESXi host that its VM is on.")] = ""

    def to_record(self) -> ReplicaRecord:
        """What a plan knows of it."""
        return ReplicaRecord(
            slot=self.slot,
            name=self.name,
            instance_uuid=self.instanceUUID,
            template=self.template,
            fingerprint=self.fingerprint,
            state=self.state,
            task=self.task,
            attempt=self.attempt,
            terminating=self.leaving,
        )


class FolderStatus(Struct, kw_only=True):
    """The folder that the group's VMs are in."""

    ref: Annotated[str, Doc("MoRef.")]
    path: Annotated[str, Doc("Inventory path.")] = ""


class VmGroupStatus(Status):
    """How far it is. `replicas` is also what a new manager goes on from: do not edit it."""

    phase: Annotated[
        Literal["", "RUNNING", "PENDING", "ERROR"],
        Doc("RUNNING, PENDING (on the way) or ERROR (somebody has to act)."),
    ] = ""
    currentReplicas: Annotated[Int32 | None, Doc("Number of VMs that exist.")] = None
    desiredReplicas: Annotated[Int32, Doc("Number of VMs that are wanted.")] = 0
    readyReplicas: Annotated[
        Int32, Doc("Of those that exist: in the wished power state, and staying.")
    ] = 0
    updatedReplicas: Annotated[
        Int32, Doc("Of those that exist: of the present template and size, and staying.")
    ] = 0
    lastMessage: Annotated[str, Doc("How far it is, or what is wrong and what to do.")] = ""
    selector: Annotated[
        str, Doc("For the scale subresource; a HorizontalPodAutoscaler wants one.")
    ] = ""
    replicas: Annotated[list[ReplicaStatus], ListType("map", "name"), Doc("Each replica.")] = []
    folder: Annotated[FolderStatus | None, Doc("The group's folder in vCenter.")] = None
    vcenter: Annotated[str, Doc("The vCenter, by its name in the manager's configuration.")] = ""


API_GROUP = "vm.codeconnect.vmworld.com"


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
        Column("Last_Message", ".status.lastMessage"),
        Column("Ready_Replicas", ".status.readyReplicas", priority=1),
        Column("Folder", ".status.folder.path", priority=1),
        Column("VCenter", ".status.vcenter", priority=1),
    ],
    scale=Scale(".spec.replicas", ".status.currentReplicas", ".status.selector"),
)
class VmGroup(Resource[VmGroupSpec, VmGroupStatus]):
    """A number of equal virtual machines, cloned from a template."""

    # Without its spec nobody could tell what to clean up.
    rules = (
        ValidationRule(
            "!has(oldSelf.spec) || has(self.spec)",
            "spec cannot be taken away; delete the object instead",
        ),
    )

    @property
    def deleting(self) -> bool:
        """Whether it is to go."""
        return self.metadata.deletionTimestamp is not None

    @property
    def records(self) -> tuple[ReplicaRecord, ...]:
        """Its replicas as they are stored."""
        return tuple(each.to_record() for each in self.status.replicas)
