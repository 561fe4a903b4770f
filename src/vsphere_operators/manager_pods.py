"""The Pods of the manager: their flags, environment variables and readiness.

Why not the Deployment?  A Pod shows what runs, during a rollout too, and the port of the page is
    forwarded to a Pod.
"""

from __future__ import annotations

from msgspec import Struct

from kubewright import Client, Resource, kind
from kubewright.builtin import NodeCondition

MANAGER_SELECTOR = "app.kubernetes.io/name=vsphere-operators,control-plane=controller-manager"
_FALSE = ("0", "f", "F", "false", "FALSE", "False")


class _Variable(Struct, frozen=True, omit_defaults=True, kw_only=True):
    name: str = ""
    value: str = ""
    # Set if the value is in a ConfigMap, a Secret or a field of the Pod.
    valueFrom: dict[str, object] | None = None


class _VolumeMount(Struct, frozen=True, omit_defaults=True, kw_only=True):
    name: str = ""
    mountPath: str = ""


class _SecretSource(Struct, frozen=True, omit_defaults=True, kw_only=True):
    secretName: str = ""


class _Volume(Struct, frozen=True, omit_defaults=True, kw_only=True):
    name: str = ""
    secret: _SecretSource | None = None


class Container(Struct, frozen=True, omit_defaults=True, kw_only=True):
    command: list[str] = []
    args: list[str] = []
    env: list[_Variable] = []
    volumeMounts: list[_VolumeMount] = []


class _ManagerPodSpec(Struct, frozen=True, omit_defaults=True, kw_only=True):
    containers: list[Container] = []
    volumes: list[_Volume] = []


class _ManagerPodStatus(Struct, frozen=True, omit_defaults=True, kw_only=True):
    phase: str = ""
    conditions: list[NodeCondition] = []


@kind("v1", name="Pod", external=True)
class ManagerPod(Resource[_ManagerPodSpec, _ManagerPodStatus]):
    """A Pod with the flags of its containers."""

    @property
    def ready_condition(self) -> NodeCondition | None:
        conditions = self.status.conditions
        return next((condition for condition in conditions if condition.type == "Ready"), None)

    @property
    def is_ready(self) -> bool:
        condition = self.ready_condition
        return condition is not None and condition.status == "True"

    @property
    def elects_leader(self) -> bool:
        return self._is_enabled("leader-elect", "enable-leader-election", variable="LEADER_ELECT")

    @property
    def labels_nodes(self) -> bool:
        return self._is_enabled("label-nodes")

    @property
    def mounted_secrets(self) -> dict[str, str]:
        """The names of Secrets, by the directory where they are mounted."""
        secrets = {volume.name: volume.secret for volume in self.spec.volumes}
        return {
            mount.mountPath: secret.secretName
            for container in self.spec.containers
            for mount in container.volumeMounts
            if (secret := secrets.get(mount.name)) is not None
        }

    def _is_enabled(self, *flags: str, variable: str = "") -> bool:
        """As the manager reads it: the last flag, else the environment variable."""
        enabled = any(
            variable and entry.name == variable and entry.value not in ("", *_FALSE)
            for container in self.spec.containers
            for entry in container.env
        )
        for container in self.spec.containers:
            for argument in (*container.command, *container.args):
                name, _, value = argument.partition("=")
                if name.startswith("-") and name.removeprefix("-").removeprefix("-") in flags:
                    enabled = value not in _FALSE
        return enabled


async def list_manager_pods(client: Client, namespace: str) -> list[ManagerPod]:
    return await client.list(ManagerPod, namespace, label_selector=MANAGER_SELECTOR)
