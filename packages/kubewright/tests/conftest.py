"""The fixture `api` runs a test twice: on the fake and on the real API server."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubewright.client import Client
from kubewright.crd import build_crds
from kubewright.errors import NotFound
from kubewright.kind import Key
from kubewright.kubeconfig import Connection, load_config
from kubewright.testing.controlplane import ControlPlane
from kubewright.testing.fake import FakeApi
from kubewright.transport import Transport
from kubewright.yaml_text import to_yaml

from .support.api_harness import ApiHarness
from .support.widget_kind import Friend, Widget


@pytest.fixture(scope="session")
def widgets_installed(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The administrator's kubeconfig of a real control plane with the CRDs of the test kinds."""
    file = tmp_path_factory.mktemp("crds") / "crds.yaml"
    file.write_text(to_yaml(*build_crds([Widget, Friend])))
    control_plane.apply(file)
    control_plane.wait_for_crds()
    return control_plane.admin_kubeconfig


@pytest.fixture
async def real_api(widgets_installed: Path, namespace: str) -> AsyncIterator[ApiHarness]:
    connection = await asyncio.to_thread(
        load_config, str(widgets_installed), environ={}, home=Path("/")
    )
    transport = Transport(connection)
    api = ApiHarness(transport, Client(transport), namespace, connection)
    yield api
    for kind in (Widget, Friend):
        for obj in await api.client.list(kind, namespace):
            if obj.metadata.finalizers:
                with suppress(NotFound):
                    await api.client.patch(kind, obj.key, {"metadata": {"finalizers": None}})
    await transport.close()


@pytest.fixture(params=["fake", "real"])
def api(request: pytest.FixtureRequest) -> ApiHarness:
    if request.param == "fake":
        fake = FakeApi()
        return ApiHarness(fake, Client(fake), f"ns-{uuid.uuid4().hex[:8]}")
    real: ApiHarness = request.getfixturevalue("real_api")
    return real


@pytest.fixture
def key(api: ApiHarness) -> Key:
    return Key(api.namespace, "a")


@pytest.fixture
def load_kubeconfig(tmp_path: Path) -> Callable[..., Connection]:
    """Loads a kubeconfig from a text or from a document."""

    def load(document: Any, **options: Any) -> Connection:
        file = tmp_path / "config"
        file.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
        return load_config(str(file), environ={}, home=tmp_path / "home", **options)

    return load
