"""The Pods of the manager: their flags, environment variables and readiness.

Why not the Deployment?  A Pod shows what runs, during a rollout too, and the port is forwarded to a
    Pod.
"""

from __future__ import annotations

import re
from ipaddress import ip_address

from msgspec import Struct

from kubewright import Client, Key, Resource, kind
from kubewright.builtin import NodeCondition
from kubewright.errors import ConfigError, Forbidden
from kubewright.listen import parse_address

from ..leader_lease import SYSTEM_NAMESPACE

DEFAULT_NAMESPACE = SYSTEM_NAMESPACE
_SELECTOR = "app.kubernetes.io/name=vsphere-operators,control-plane=controller-manager"
_BIND_FLAG, _BIND_VARIABLE = "ui-bind-address", "UI_BIND_ADDRESS"
_LEADER_FLAG = re.compile(r"--?(?:leader-elect|enable-leader-election)(?:=(.*))?")
_FALSE = ("0", "f", "F", "false", "FALSE", "False")
HELP = (
    "Start the manager with -ui-bind-address=127.0.0.1:9090 (kustomize component `page`), pass the "
    "namespace of the manager with --manager-namespace, its address with --page, or read vCenter "
    "with --vcenter."
)


class _Variable(Struct, frozen=True, omit_defaults=True, kw_only=True):
    name: str = ""
    value: str = ""
    # Set if the value is in a ConfigMap, a Secret or a field of the Pod.
    valueFrom: dict[str, object] | None = None


class _Container(Struct, frozen=True, omit_defaults=True, kw_only=True):
    command: list[str] = []
    args: list[str] = []
    env: list[_Variable] = []


class _ManagerPodSpec(Struct, frozen=True, omit_defaults=True, kw_only=True):
    containers: list[_Container] = []


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
        elects = any(
            variable.name == "LEADER_ELECT" and variable.value not in ("", *_FALSE)
            for container in self.spec.containers
            for variable in container.env
        )
        for container in self.spec.containers:
            for argument in (*container.command, *container.args):
                if match := _LEADER_FLAG.fullmatch(argument):
                    elects = match[1] not in _FALSE
        return elects


class Page(Struct, frozen=True):
    """The page of one manager."""

    pod: Key
    port: int
    scheme: str


async def list_manager_pods(client: Client, namespace: str) -> list[ManagerPod]:
    return await client.list(ManagerPod, namespace, label_selector=_SELECTOR)


async def find_page(client: Client, namespace: str) -> Page | None:
    """The page of a running manager, of a ready one if possible; None if no manager has one.

    Raises ConfigError if a manager has one that cannot be reached.
    """
    try:
        pods = await list_manager_pods(client, namespace)
    except Forbidden as error:
        raise ConfigError(
            f"the manager's Pods cannot be listed: {error}. Ask for the permission to list pods in "
            f'namespace "{namespace}". {HELP}'
        ) from None
    running = [pod for pod in pods if pod.status.phase == "Running"]
    unreachable: ConfigError | None = None
    for pod in sorted(running, key=lambda pod: (not pod.is_ready, pod.key)):
        try:
            if (page := _read_page(pod)) is not None:
                return page
        except ConfigError as error:
            unreachable = unreachable or error
    if unreachable is not None:
        raise unreachable
    return None


def _read_page(pod: ManagerPod) -> Page | None:
    for container in pod.spec.containers:
        address = parse_address(_read_bind_address(pod, container))
        if address is None:
            continue
        if address.port == 0:
            raise ConfigError(
                f"the port of the page in Pod {pod.key} is chosen when the manager starts "
                f"(-{_BIND_FLAG}={address}). Set a port."
            )
        scheme = _choose_scheme(address.host)
        if not scheme:
            raise ConfigError(
                f"the page in Pod {pod.key} is not reached by `kubectl port-forward`, which "
                f"connects to 127.0.0.1 or ::1 of the Pod: -{_BIND_FLAG}={address}. Set "
                f"-{_BIND_FLAG}=127.0.0.1:{address.port}, or pass an address with --page."
            )
        return Page(pod.key, address.port, scheme)
    return None


def _read_bind_address(pod: ManagerPod, container: _Container) -> str:
    """As the manager reads it: the last flag, else the environment variable."""
    address, arguments = None, iter((*container.command, *container.args))
    for argument in arguments:
        name, has_value, value = argument.partition("=")
        if name in (f"-{_BIND_FLAG}", f"--{_BIND_FLAG}"):
            address = value if has_value else next(arguments, "")
    variables = [entry for entry in container.env if entry.name == _BIND_VARIABLE]
    is_unknown = False
    if address is None and variables:
        # As for the container runtime, the last variable of a name counts.
        address, is_unknown = variables[-1].value, variables[-1].valueFrom is not None
    # The kubelet replaces $(NAME) when it starts the container.
    if is_unknown or "$(" in (address or ""):
        raise ConfigError(
            f"the address of the page in Pod {pod.key} is unknown: {_BIND_VARIABLE} or "
            f"-{_BIND_FLAG} refers to another object. Set -{_BIND_FLAG}=127.0.0.1:9090, or forward "
            "the port yourself and pass the address with --page."
        )
    return address or ""


def _choose_scheme(host: str) -> str:
    """What the manager serves there; "" if a forwarded port does not reach it."""
    if host.lower() == "localhost":
        return "http"
    try:
        address = ip_address(host or "::")
    except ValueError:
        return ""
    if address.is_unspecified:
        return "https"
    return "http" if str(address) in ("127.0.0.1", "::1") else ""
