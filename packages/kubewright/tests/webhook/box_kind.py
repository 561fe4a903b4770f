"""A kind in two versions, its webhook and conversion, and a manager that serves them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any

from msgspec.structs import replace

from kubewright import (
    Admission,
    Conversion,
    Doc,
    Manager,
    Options,
    Rejected,
    Resource,
    Spec,
    Status,
    Webhook,
    kind,
)
from kubewright.crd import build_crds
from kubewright.kind import Key
from kubewright.kubeconfig import Connection
from kubewright.testing import eventually
from kubewright.testing.controlplane import ControlPlane
from kubewright.webhook.configuration import (
    WebhookClientConfig,
    build_configurations,
    with_conversions,
)
from kubewright.webhook.options import CertificateTimings, WebhookOptions
from kubewright.yaml_text import to_yaml

LOCALHOST = "127.0.0.1"


class BoxSpec(Spec):
    """The desired state."""

    width: Annotated[int, Doc("How wide.")] = 0
    height: Annotated[int, Doc("How high; as wide by default.")] = 0
    color: Annotated[str, Doc("Its color.")] = ""


class BoxStatus(Status):
    """The observed state."""

    area: Annotated[int | None, Doc("Width by height.")] = None


@kind("hooks.kubewright.test/v2")
class Box(Resource[BoxSpec, BoxStatus]):
    """A box with two sides."""


class OldBoxSpec(Spec):
    """The desired state in the old version."""

    size: Annotated[int, Doc("Its one side.")] = 0
    note: Annotated[str, Doc("A field that v2 does not have.")] = ""


@kind("hooks.kubewright.test/v1", name="Box", storage=False)
class OldBox(Resource[OldBoxSpec, BoxStatus]):
    """A box with one side."""


class BoxConversion(Conversion[OldBox, Box]):
    def to_hub(self, spoke: OldBox) -> Box:
        size = spoke.spec.size
        return Box(spec=BoxSpec(width=size, height=size), status=spoke.status)

    def from_hub(self, hub: Box) -> OldBox:
        return OldBox(spec=OldBoxSpec(size=hub.spec.width), status=hub.status)


class BoxWebhook(Webhook[Box]):
    """Defaults to squares, rejects large boxes, and fails for some colors."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, Admission]] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def default(self, box: Box, request: Admission) -> None:
        self.requests.append(("default", request))
        if not box.spec.height:
            box.spec = replace(box.spec, height=box.spec.width)

    async def validate(self, box: Box, old: Box | None, request: Admission) -> None:
        self.requests.append(("validate", request))
        if box.spec.color == "broken":
            raise KeyError("no such color, password=hunter22")
        if box.spec.color == "slow":
            await self.gate.wait()
        if box.spec.color == "plaid":
            raise Rejected("plaid is out of fashion; choose a plain color")
        if box.spec.width > 100:
            request.reject("must not be above 100", field="spec.width")
        if box.spec.height > 100:
            request.reject("must not be above 100", field="spec.height")
        if old is not None and box.spec.width < old.spec.width:
            raise Rejected("a box does not shrink", field="spec.width")
        if box.spec.color == "gray":
            request.warn("gray boxes are hard to find")


def box_manifests(
    port: int, webhooks: Sequence[Webhook[Any]], name: str, ca_bundle: bytes = b""
) -> str:
    """The CRD and the webhook configurations for this port."""
    client_config = WebhookClientConfig(url=f"https://{LOCALHOST}:{port}", ca_bundle=ca_bundle)
    schemas = with_conversions(build_crds([Box, OldBox]), [BoxConversion()], client_config)
    for version in (version for crd in schemas for version in crd["spec"]["versions"]):
        # As in a newer release of the CRD: a field that these classes do not know.
        properties = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
        properties["future"] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return to_yaml(*schemas, *build_configurations(webhooks, client_config, name=name))


def make_options(
    name: str, namespace: str, timings: CertificateTimings | None = None, **more: Any
) -> Options:
    """Options of a manager that serves on a free port, with its own CA in this namespace."""
    webhooks = WebhookOptions(
        host=LOCALHOST,
        port=0,
        extra_hosts=(LOCALHOST,),
        timings=timings or CertificateTimings(check_interval_seconds=0.5),
        drain_seconds=0,
        **more,
    )
    return Options(
        name=name,
        metrics_bind_address="0",
        leader_election_namespace=namespace,
        graceful_shutdown_seconds=5,
        webhooks=webhooks,
    )


@asynccontextmanager
async def run_webhook_manager(
    connection: Connection, options: Options, *parts: Webhook[Any] | Conversion[Any, Any]
) -> AsyncIterator[Manager]:
    """Run a manager with these webhooks and conversions, after it listens."""
    manager = Manager(connection, options)
    for part in parts:
        manager.add(part)
    stop = asyncio.Event()
    task = asyncio.create_task(manager.run(stop))
    try:
        await eventually(lambda: webhook_port(manager) or task.done())
        yield manager
    finally:
        stop.set()
        await task


def webhook_port(manager: Manager) -> int:
    return manager.webhook_runner.server.port if manager.webhook_runner is not None else 0


async def wait_until_trusted(manager: Manager) -> None:
    """Wait until every caBundle holds the CA of the manager."""
    assert manager.webhook_runner is not None
    rotator = manager.webhook_runner.cert_rotator
    assert rotator is not None
    await eventually(
        lambda: (
            rotator.in_all_bundles_since is not None
            and len(rotator.verified_versions) == len(rotator.targets)
        )
    )


async def run_kubectl(plane: ControlPlane, *arguments: str, stdin: str | None = None) -> str:
    # In a thread: the API server calls the webhooks, which run in this event loop.
    return await asyncio.to_thread(plane.kubectl, *arguments, stdin=stdin)


def key(namespace: str, name: str) -> Key:
    return Key(namespace, name)
