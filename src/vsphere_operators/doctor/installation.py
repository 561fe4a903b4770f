"""What installed the manager, because that tool has to change its objects.

Why not always kubectl?  Helm refuses to upgrade a release while an object of the chart exists that
    is not marked as its own, such as a role of config/rbac.
Why also the Lease?  The manager's role does not allow to read Deployments, and the doctor usually
    runs in the Pod. The chart contains the Lease, and the manager keeps its labels.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct

from kubewright import Client, Key, Object, kind
from kubewright.builtin import Lease
from kubewright.errors import Forbidden, KubewrightError, NotFound

from ..leader_lease import SYSTEM_NAMESPACE
from ..manager_pods import MANAGER_SELECTOR, list_manager_pods

CREDENTIALS_SECRET = "vc-creds"
_MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
_RELEASE_ANNOTATION = "meta.helm.sh/release-name"
# Flux adds it to the objects of a HelmRelease.
_FLUX_LABEL = "helm.toolkit.fluxcd.io/name"


@kind("apps/v1", name="Deployment", metadata_only=True, external=True)
class DeploymentMetadata(Object):
    """A Deployment without spec and status."""


class Installation(Struct, frozen=True, kw_only=True):
    namespace: str = SYSTEM_NAMESPACE
    tool: Literal["kubectl", "helm", "unknown"] = "kubectl"
    # Empty with "helm" if Argo CD or Flux renders the chart: `helm upgrade` would not last then.
    release: str = ""
    secrets_by_path: Mapping[str, str] = {}
    """The Secrets that the manager's Pod mounts, by the directory."""

    def change_command(self, kubectl_command: str, values: str) -> str:
        """The command that installs what is missing; `values` are those of the chart for it."""
        if self.tool == "kubectl":
            return kubectl_command
        if self.tool == "helm" and not self.release:
            return f"# set {values} in the values of the chart, in your git repository"
        helm_command = (
            f"helm upgrade {shlex.quote(self.release) if self.release else 'RELEASE'} CHART "
            f"-n {self.namespace} --reset-then-reuse-values --set {values}"
        )
        if self.tool == "helm":
            return helm_command
        return f"{helm_command}   # installed without Helm: {kubectl_command}"

    def credentials_command(self, directory: str, server: str) -> str:
        """Stores a login in the Secret that is mounted there; `server` may be empty."""
        name = directory.rstrip("/").rpartition("/")[2]
        # With several vCenters, the documented name of each Secret ends with that of its directory.
        default = name if name == CREDENTIALS_SECRET else f"{CREDENTIALS_SECRET}-{name}"
        secret = shlex.quote(self.secrets_by_path.get(directory.rstrip("/"), default))
        address = f"--from-literal=GOVMOMI_URL={shlex.quote(server)} " if server else ""
        return (
            f"kubectl -n {self.namespace} create secret generic {secret} "
            f"--dry-run=client -o yaml {address}--from-literal=GOVMOMI_USERNAME=USER "
            "--from-file=GOVMOMI_PASSWORD=/dev/stdin | kubectl apply -f -"
            "   # type the password, Enter and Ctrl-D"
        )


async def find_installation(client: Client, lease: Key) -> Installation:
    """The installation in the namespace of this Lease, else in the default or another one."""
    objects: Sequence[Object]
    try:
        objects = await client.list(DeploymentMetadata, label_selector=MANAGER_SELECTOR)
    except Forbidden:
        leases = await _get_leases(client, lease)
        if leases is None:
            secrets = await _read_secrets(client, lease.namespace)
            return Installation(namespace=lease.namespace, tool="unknown", secrets_by_path=secrets)
        objects = leases
    by_namespace = {item.metadata.namespace: item for item in reversed(objects)}
    for namespace in (lease.namespace, SYSTEM_NAMESPACE, *by_namespace):
        if namespace in by_namespace:
            metadata = by_namespace[namespace].metadata
            secrets = await _read_secrets(client, namespace)
            if metadata.labels.get(_MANAGED_BY_LABEL) != "Helm":
                return Installation(namespace=namespace, secrets_by_path=secrets)
            release = metadata.annotations.get(_RELEASE_ANNOTATION, "")
            return Installation(
                namespace=namespace,
                tool="helm",
                release="" if _FLUX_LABEL in metadata.labels else release,
                secrets_by_path=secrets,
            )
    return Installation()


async def _get_leases(client: Client, lease: Key) -> list[Lease] | None:
    """The Leases here and in the default namespace; None if none of them is readable."""
    leases: list[Lease] = []
    is_readable = False
    for key in dict.fromkeys((lease, Key(SYSTEM_NAMESPACE, lease.name))):
        try:
            leases.append(await client.get(Lease, key))
        except NotFound:
            is_readable = True
        except Forbidden:
            continue
    return leases if leases or is_readable else None


async def _read_secrets(client: Client, namespace: str) -> dict[str, str]:
    try:
        pods = await list_manager_pods(client, namespace)
    except KubewrightError:
        return {}
    return {path: secret for pod in pods for path, secret in pod.mounted_secrets.items()}
