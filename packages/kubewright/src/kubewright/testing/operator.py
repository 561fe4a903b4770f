"""An operator on the control plane: its manifests installed, its manager running for as long as a test needs it.

    install(plane, config / "crd", config / "rbac")
    async with running(plane, build, Settings(), namespace, name="greeter") as client:
        await client.create(...)

The manager runs as its own service account, so with no more rights than its roles have. Its webhooks are asked while it runs, at an
address of this machine; before and after, the API server asks nobody, so that whoever cleans up need not wait for an answer.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import yaml

from ..client import Client
from ..kubeconfig import Connection, load_config
from ..manager import Manager, Options
from ..transport import Transport
from ..webhook import WebhookClientConfig, build_configurations
from ..webhook.configuration import build_conversion
from ..webhook.options import CertificateTimings, WebhookOptions
from .controlplane import ControlPlane
from .wait import eventually

S = TypeVar("S")
STOP_SECONDS = 5.0
_LOCALHOST = "127.0.0.1"
SERVICE_ACCOUNT = "controller-manager"
_NO_CONVERSION: dict[str, Any] = {"strategy": "None", "webhook": None}


def install_manifests(plane: ControlPlane, *folders: Path) -> None:
    """Apply kustomizations, and wait until their CRDs are served; one that lists nothing is passed over, since kubectl refuses it."""
    for folder in folders:
        if yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]:
            plane.kubectl("apply", "-k", str(folder))
    listed = json.loads(plane.kubectl("get", "crd", "-o", "json"))["items"]
    for crd in listed:
        if crd["spec"].get("conversion", {}).get("strategy") == "Webhook":
            _set_conversion(plane, crd["metadata"]["name"], _NO_CONVERSION)
    if listed:
        plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")


def _set_conversion(plane: ControlPlane, crd: str, conversion: dict[str, Any]) -> None:
    """Say who converts between the versions of a kind."""
    plane.kubectl(
        "patch", "crd", crd, "--type=merge", "-p", json.dumps({"spec": {"conversion": conversion}})
    )


@asynccontextmanager
async def run_operator(
    plane: ControlPlane,
    build: Callable[[Manager, S], None],
    settings: S,
    *namespaces: str,
    name: str,
    system_namespace: str = "",
) -> AsyncIterator[Client]:
    """An administrator's client, beside the manager that `build` fills; it serves these namespaces, or all."""
    system_namespace = system_namespace or f"{name}-system"
    manager = Manager(
        await _load_service_account_connection(plane, system_namespace),
        _build_options(name, system_namespace, namespaces),
    )
    build(manager, settings)
    stop = asyncio.Event()
    work = asyncio.create_task(manager.run(stop))
    try:
        async with (
            _register_webhooks(plane, manager, work),
            _connect_client(plane.admin_kubeconfig) as client,
        ):
            yield client
    finally:
        stop.set()
        await work


async def _load_service_account_connection(plane: ControlPlane, system: str) -> Connection:
    """The connection of the manager's own service account."""
    with tempfile.TemporaryDirectory() as folder:
        file = plane.write_service_account_kubeconfig(
            system, SERVICE_ACCOUNT, Path(folder) / "kubeconfig"
        )
        return await asyncio.to_thread(load_config, str(file), environ={}, home=Path("/"))


def _build_options(name: str, system: str, namespaces: tuple[str, ...]) -> Options:
    """As deployed, but on free ports and in a hurry."""
    webhooks = WebhookOptions(
        host=_LOCALHOST,
        port=0,
        extra_hosts=(_LOCALHOST,),
        timings=CertificateTimings(check_interval_seconds=0.5),
        drain_seconds=0,
    )
    return Options(
        name=name,
        metrics_bind_address="0",
        leader_election_namespace=system,
        watch_namespaces=namespaces,
        graceful_shutdown_seconds=STOP_SECONDS,
        webhooks=webhooks,
    )


@asynccontextmanager
async def _register_webhooks(
    plane: ControlPlane, manager: Manager, work: asyncio.Task[None]
) -> AsyncIterator[None]:
    """The API server asks this manager, until the end; kubectl runs in threads, since the answers come from this loop."""
    await eventually(
        lambda: work.done() or manager.webhook_runner is None or manager.webhook_runner.server.port
    )
    if manager.webhook_runner is None or work.done():
        yield
        return
    reach = WebhookClientConfig(url=f"https://{_LOCALHOST}:{manager.webhook_runner.server.port}")
    documents = build_configurations(manager.webhooks, reach, name=manager.options.name)
    converted = {each.hub.definition.group_resource for each in manager.conversions}
    for document in documents:
        await asyncio.to_thread(plane.apply, json.dumps(document))
    for crd in converted:
        await asyncio.to_thread(_set_conversion, plane, crd, build_conversion(reach))
    rotation = manager.webhook_runner.cert_rotator
    await eventually(
        lambda: (
            rotation is None
            or (
                rotation.propagated_since is not None
                and len(rotation.verified_versions) == len(rotation.targets)
            )
        )
    )
    try:
        yield
    finally:
        for document in documents:
            await asyncio.to_thread(
                plane.kubectl, "delete", document["kind"], document["metadata"]["name"]
            )
        for crd in converted:
            await asyncio.to_thread(_set_conversion, plane, crd, _NO_CONVERSION)


@asynccontextmanager
async def _connect_client(kubeconfig: Path) -> AsyncIterator[Client]:
    """A client with this kubeconfig's rights."""
    transport = Transport(
        await asyncio.to_thread(load_config, str(kubeconfig), environ={}, home=Path("/"))
    )
    try:
        yield Client(transport)
    finally:
        await transport.close()
