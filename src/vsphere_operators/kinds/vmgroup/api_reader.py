"""What a manager reads from the API server before it acts in vCenter."""

from __future__ import annotations

import base64

from kubewright import Client, Key
from kubewright.builtin import Namespace, Secret
from kubewright.errors import Forbidden, NotFound

from .model import CloneBlocked
from .ownership import GroupId
from .reasons import Reason
from .types import ADOPT_ANNOTATION, UNDO_ADOPTION, CloudInitSpec, VmGroup

CLUSTER_ID_NAMESPACE = "kube-system"


class ApiReader:
    """Reads from the API server, because the cache may be behind."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def read_cluster_id(self) -> str:
        """The uid of kube-system. Every cluster has this namespace, and its uid is unique."""
        namespace = await self._client.get(Namespace, Key("", CLUSTER_ID_NAMESPACE))
        return namespace.metadata.uid

    async def confirm_deletion(self, group_id: GroupId, replica: str = "") -> bool:
        """Whether the stored object still requests this deletion; replica "" is the whole group.

        A user may just have paused the group, or have set deletionPolicy to Orphan.
        """
        try:
            stored = await self._client.get(VmGroup, Key(group_id.namespace, group_id.name))
        except NotFound:
            return False
        is_deleting = stored.metadata.deletionTimestamp is not None
        is_orphaning = is_deleting and stored.spec.deletionPolicy == "Orphan"
        if stored.metadata.uid != group_id.uid or stored.spec.paused or is_orphaning:
            return False
        if not replica:
            return is_deleting
        return any(status.name == replica and status.leaving for status in stored.status.replicas)

    async def confirm_adoption(self, group_id: GroupId, replica: str, *, undo: bool) -> bool:
        """Whether the stored object still requests to adopt the VM of a replica, or to undo it."""
        try:
            stored = await self._client.get(VmGroup, Key(group_id.namespace, group_id.name))
        except NotFound:
            return False
        if (
            stored.metadata.uid != group_id.uid
            or stored.metadata.deletionTimestamp is not None
            or stored.spec.paused
        ):
            return False
        request = stored.metadata.annotations.get(ADOPT_ANNOTATION, "").strip().lower()
        if undo or request == UNDO_ADOPTION:
            return undo and request == UNDO_ADOPTION
        return any(
            status.name == replica and status.adoptedFrom and not status.leaving
            for status in stored.status.replicas
        )

    async def read_cloud_init(self, namespace: str, cloud_init: CloudInitSpec) -> dict[str, str]:
        """The cloud-init data of the Secret, as extraConfig; raises CloneBlocked."""
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
                f"kubectl apply --server-side -n {namespace} "
                "-f config/optional/cloud-init-secrets.yaml",
            ) from error
        if cloud_init.userDataKey not in secret.data:
            raise CloneBlocked(
                Reason.SECRET_INCOMPLETE,
                f'Secret "{key}" has no key "{cloud_init.userDataKey}". Add the key, or set '
                "spec.bootstrap.cloudInit.userDataKey.",
            )
        return _build_guestinfo(
            secret.data[cloud_init.userDataKey], secret.data.get(cloud_init.metaDataKey, b"")
        )


def _build_guestinfo(user_data: bytes, meta_data: bytes) -> dict[str, str]:
    """The extraConfig of cloud-init's datasource VMware."""
    documents = {"userdata": user_data, "metadata": meta_data}
    encoded = {
        f"guestinfo.{key}": base64.b64encode(document).decode()
        for key, document in documents.items()
        if document
    }
    return encoded | {f"{key}.encoding": "base64" for key in encoded}
