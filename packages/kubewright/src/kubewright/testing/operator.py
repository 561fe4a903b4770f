"""The operator under test: installs its manifests, and runs its manager for a test.

    install_manifests(plane, config / "crd", config / "rbac")
    async with run_operator(plane, build, Settings(), namespace, name="greeter") as client:
        await client.create(...)

The manager runs as its own service account, so a missing permission fails the test. The API server
calls its webhooks at a local address while it runs. Before and after that no webhook is registered,
because a cleanup would wait for its timeout.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
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
_STOP_SECONDS = 5.0
_LOCALHOST = "127.0.0.1"
SERVICE_ACCOUNT = "controller-manager"
_NO_CONVERSION: dict[str, Any] = {"strategy": "None", "webhook": None}


def install_manifests(plane: ControlPlane, *folders: Path, other_crds: Path | None = None) -> None:
    """Apply kustomizations, and wait until their CRDs are served.

    `other_crds` is a folder with the CRDs of other operators; it need not exist.
    """
    if other_crds is not None and other_crds.exists():
        # On the server: some CRDs are larger than the annotation in which kubectl keeps a manifest.
        plane.kubectl("apply", "--server-side", "-f", str(other_crds))
    for folder in folders:
        # kubectl rejects a kustomization without resources, as of a project without kinds.
        if yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]:
            plane.kubectl("apply", "-k", str(folder))
    crds = json.loads(plane.kubectl("get", "crd", "-o", "json"))["items"]
    for crd in crds:
        if crd["spec"].get("conversion", {}).get("strategy") == "Webhook":
            _set_conversion(plane, crd["metadata"]["name"], _NO_CONVERSION)
    if crds:
        plane.wait_for_crds()
        plane.restart_controllers()


def _set_conversion(plane: ControlPlane, crd: str, conversion: dict[str, Any]) -> None:
    patch = json.dumps({"spec": {"conversion": conversion}})
    plane.kubectl("patch", "crd", crd, "--type=merge", "-p", patch)


@asynccontextmanager
async def run_operator(
    plane: ControlPlane,
    build: Callable[[Manager, S], None],
    settings: S,
    *namespaces: str,
    name: str,
    system_namespace: str = "",
) -> AsyncIterator[Client]:
    """Run the manager that `build` fills, for these namespaces or for all.

    Yields the client of an administrator.
    """
    system_namespace = system_namespace or f"{name}-system"
    manager = Manager(
        await _load_service_account_connection(plane, system_namespace),
        _build_options(name, system_namespace, namespaces),
    )
    build(manager, settings)
    stop = asyncio.Event()
    manager_task = asyncio.create_task(manager.run(stop))
    try:
        async with (
            _register_webhooks(plane, manager, manager_task),
            _connect_client(plane.admin_kubeconfig) as client,
        ):
            yield client
    finally:
        stop.set()
        await manager_task


async def _load_service_account_connection(
    plane: ControlPlane, system_namespace: str
) -> Connection:
    with tempfile.TemporaryDirectory() as folder:
        file = plane.write_service_account_kubeconfig(
            system_namespace, SERVICE_ACCOUNT, Path(folder) / "kubeconfig"
        )
        return await asyncio.to_thread(load_config, str(file), environ={}, home=Path("/"))


def _build_options(name: str, system_namespace: str, namespaces: tuple[str, ...]) -> Options:
    """The options of a deployed manager, but with free ports and short intervals."""
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
        leader_election_namespace=system_namespace,
        watch_namespaces=namespaces,
        graceful_shutdown_seconds=_STOP_SECONDS,
        webhooks=webhooks,
    )


@asynccontextmanager
async def _register_webhooks(
    plane: ControlPlane, manager: Manager, manager_task: asyncio.Task[None]
) -> AsyncIterator[None]:
    """Let the API server call the webhooks of this manager until the end of the context."""
    if not manager.webhooks and not manager.conversions:
        yield
        return
    # The manager creates its runner when its task begins to run, which is not yet.
    await eventually(
        lambda: (
            manager_task.done() or (manager.webhook_runner and manager.webhook_runner.server.port)
        )
    )
    runner = manager.webhook_runner
    if runner is None or manager_task.done():
        yield
        return
    client_config = WebhookClientConfig(url=f"https://{_LOCALHOST}:{runner.server.port}")
    documents = build_configurations(manager.webhooks, client_config, name=manager.options.name)
    converted = {conversion.hub.definition.group_resource for conversion in manager.conversions}
    # kubectl runs in threads: the API server calls the webhooks, which this event loop serves.
    for document in documents:
        await asyncio.to_thread(plane.apply, json.dumps(document))
    for crd in converted:
        await asyncio.to_thread(_set_conversion, plane, crd, build_conversion(client_config))
    if runner.cert_rotator is not None:
        registered = [
            *((document["kind"], document["metadata"]["name"]) for document in documents),
            *(("CustomResourceDefinition", crd) for crd in converted),
        ]
        # Read from the API server: the rotator may have checked the objects before they referred to
        # the webhooks, and then regards them as complete until its next check.
        await eventually(lambda: asyncio.to_thread(_have_ca_bundles, plane, registered))
    try:
        yield
    finally:
        for document in documents:
            await asyncio.to_thread(
                plane.kubectl, "delete", document["kind"], document["metadata"]["name"]
            )
        for crd in converted:
            await asyncio.to_thread(_set_conversion, plane, crd, _NO_CONVERSION)


def _have_ca_bundles(plane: ControlPlane, objects: Sequence[tuple[str, str]]) -> bool:
    """Whether the API server can verify the certificate of every webhook in these objects."""
    for kind, name in objects:
        obj = json.loads(plane.kubectl("get", kind, name, "-o", "json"))
        webhooks = obj.get("webhooks") or [obj["spec"]["conversion"]["webhook"]]
        if not all(webhook["clientConfig"].get("caBundle") for webhook in webhooks):
            return False
    return True


@asynccontextmanager
async def _connect_client(kubeconfig: Path) -> AsyncIterator[Client]:
    transport = Transport(
        await asyncio.to_thread(load_config, str(kubeconfig), environ={}, home=Path("/"))
    )
    try:
        yield Client(transport)
    finally:
        await transport.close()
