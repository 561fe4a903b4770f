"""What a manager checks in Kubernetes before it acts in vCenter."""

from __future__ import annotations

from collections.abc import Callable

from kubewright import Client, Key
from kubewright.builtin import Namespace, Secret
from kubewright.errors import Forbidden, NotFound, NotLeader

from ...vsphere.vm_calls import build_guestinfo
from .model import CloneBlocked
from .ownership import GroupId
from .reasons import Reason
from .types import CloudInitSpec, VmGroup

# Every cluster has this namespace, and its uid is unique: it identifies the cluster in marks.
CLUSTER_ID_NAMESPACE = "kube-system"


class Preconditions:
    """Reads the cluster's id, the lease, the object and its Secret from the API server.

    `can_write` returns whether this manager certainly holds the lease. An empty `cluster_id` is
    replaced by the uid of the namespace kube-system at the first use.
    """

    def __init__(self, client: Client, can_write: Callable[[], bool], cluster_id: str = "") -> None:
        self._client, self._can_write, self._cluster_id = client, can_write, cluster_id

    async def read_cluster_id(self) -> str:
        if not self._cluster_id:
            namespace = await self._client.get(Namespace, Key("", CLUSTER_ID_NAMESPACE))
            self._cluster_id = namespace.metadata.uid
        return self._cluster_id

    def require_leadership(self) -> None:
        """Raise NotLeader unless this manager certainly holds the lease now."""
        if not self._can_write():
            raise NotLeader(
                "no request is sent to vCenter: this manager does not certainly hold the lease"
            )

    async def confirm_deletion(self, group_id: GroupId, replica: str = "") -> bool:
        """Whether the stored object still asks to delete this replica; "" is the whole group.

        The object is read from the API server, because the cache may be behind: a user may have
        paused the group, or have set deletionPolicy to Orphan.
        """
        try:
            stored = await self._client.get(VmGroup, Key(group_id.namespace, group_id.name))
        except NotFound:
            return False
        is_orphaning = stored.deleting and stored.spec.deletionPolicy == "Orphan"
        if stored.metadata.uid != group_id.uid or stored.spec.paused or is_orphaning:
            return False
        if not replica:
            return stored.deleting
        return any(status.name == replica and status.leaving for status in stored.status.replicas)

    async def read_extra_config(
        self, namespace: str, cloud_init: CloudInitSpec | None
    ) -> dict[str, str]:
        """The cloud-init data of the Secret, as extraConfig; raises CloneBlocked."""
        if cloud_init is None:
            return {}
        key = Key(namespace, cloud_init.secretName)
        try:
            secret = await self._client.get(Secret, key)
        except NotFound as error:
            raise CloneBlocked(
                Reason.SECRET_NOT_FOUND,
                f'Secret "{key}" of spec.bootstrap.cloudInit does not exist. Create it.',
            ) from error
        except Forbidden as error:
            raise CloneBlocked(
                Reason.SECRET_FORBIDDEN,
                f'Secret "{key}" of spec.bootstrap.cloudInit is forbidden. To grant access, run: '
                f"kubectl apply -n {namespace} -f config/optional/cloud-init-secrets.yaml",
            ) from error
        if cloud_init.userDataKey not in secret.data:
            raise CloneBlocked(
                Reason.SECRET_INCOMPLETE,
                f'Secret "{key}" has no key "{cloud_init.userDataKey}". Add the key, or set '
                "spec.bootstrap.cloudInit.userDataKey.",
            )
        return build_guestinfo(
            secret.data[cloud_init.userDataKey], secret.data.get(cloud_init.metaDataKey, b"")
        )
