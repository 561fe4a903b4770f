"""A real API server with this operator's CRDs and roles, and the manager running on it as its own service account."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from kubewright import Client
from kubewright.testing.controlplane import ControlPlane
from kubewright.testing.operator import install_manifests, run_operator

from hostinfo.main import Settings, build

CONFIG = Path(__file__).parents[1] / "config"


@pytest.fixture(scope="session")
def installed(control_plane: ControlPlane) -> ControlPlane:
    """CRDs and roles exactly as they are generated."""
    install_manifests(control_plane, CONFIG / "crd", CONFIG / "rbac")
    return control_plane


@pytest.fixture
async def client(installed: ControlPlane, namespace: str) -> AsyncIterator[Client]:
    """An administrator's client, beside a manager that serves this test's namespace with no more rights than its roles have."""
    async with run_operator(installed, build, Settings(), namespace, name="hostinfo") as client:
        yield client
