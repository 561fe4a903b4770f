"""TODO."""

from __future__ import annotations

from collections.abc import Callable

from kubewright import (
    Client,
    Key,
)
from kubewright.builtin import Namespace, Secret
from kubewright.errors import Forbidden, NotFound, NotLeader
from kubewright.recorder import EventRecorder

from ...vsphere.vm_calls import build_guestinfo
from .model import CloneBlocked
from .ownership import GroupId
from .reconciler import ClusterActions
from .types import (
    VmGroup,
)

CLUSTER_ID_NAMESPACE = "kube-system"


class Preconditions:
    """What a group needs of Kubernetes before it acts: who we are, whether we may, what the object says now, and its Secret."""

    def __init__(
        self,
        client: Client,
        recorder: EventRecorder,
        may_write: Callable[[], bool],
        cluster: str = "",
    ) -> None:
        self.client, self.recorder, self.may_write, self.cluster_id = (
            client,
            recorder,
            may_write,
            cluster,
        )

    async def _group_id_of(self, group: VmGroup) -> GroupId:
        """Whose VMs they are. The cluster is known by the uid of one of its namespaces, which no other has."""
        if not self.cluster_id:
            self.cluster_id = (
                await self.client.get(Namespace, Key("", CLUSTER_ID_NAMESPACE))
            ).metadata.uid
        meta = group.metadata
        return GroupId(
            cluster_id=self.cluster_id, namespace=meta.namespace, name=meta.name, uid=meta.uid
        )

    def _actions_for(self, group: VmGroup, say: Callable[[str], None]) -> ClusterActions:
        """For one step of one group."""
        return ClusterActions(
            log=say,
            require_leadership=self.require_leadership,
            confirm_deletion=lambda name: self.confirm_deletion(group, name),
            warn=lambda reason, words: self.recorder.event(
                group, VmGroup.definition, "Warning", reason, words
            ),
            read_extra_config=lambda: self.read_extra_config(group),
        )

    def require_leadership(self) -> None:
        """Raise unless the lease is certainly ours at this moment."""
        if not self.may_write():
            raise NotLeader(
                "nothing is sent to vCenter: this manager does not certainly hold the lease"
            )

    async def confirm_deletion(self, group: VmGroup, name: str) -> bool:
        """Whether the object, fresh from the API server, still wants this replica gone, or with "" itself."""
        try:
            fresh = await self.client.get(VmGroup, group.key)
        except NotFound:
            return False
        if fresh.metadata.uid != group.metadata.uid:
            return False
        if fresh.spec.paused or (fresh.deleting and fresh.spec.deletionPolicy == "Orphan"):
            return False
        return (
            any(each.name == name and each.leaving for each in fresh.status.replicas)
            if name
            else fresh.deleting
        )

    async def read_extra_config(self, group: VmGroup) -> dict[str, str]:
        """cloud-init's data from the Secret, as extraConfig."""
        asked = group.spec.bootstrap.cloudInit if group.spec.bootstrap else None
        if asked is None:
            return {}
        key = Key(group.metadata.namespace, asked.secretName)
        try:
            found = await self.client.get(Secret, key)
        except NotFound as error:
            raise CloneBlocked(
                "SecretNotFound",
                f'the Secret "{key}" of spec.bootstrap.cloudInit does not exist; create it',
            ) from error
        except Forbidden as error:
            cure = f"kubectl apply -n {key.namespace} -f config/optional/cloud-init-secrets.yaml lets it"
            raise CloneBlocked(
                "SecretForbidden",
                f'the manager may not read the Secret "{key}" of spec.bootstrap.cloudInit; {cure}',
            ) from error
        if asked.userDataKey not in found.data:
            raise CloneBlocked(
                "SecretIncomplete",
                f'the Secret "{key}" has no key "{asked.userDataKey}"; add it, or set userDataKey',
            )
        return build_guestinfo(
            found.data[asked.userDataKey], found.data.get(asked.metaDataKey, b"")
        )
