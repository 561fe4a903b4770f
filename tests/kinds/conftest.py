"""What a test that `kubewright create api` writes stands on: the API server with our CRDs and roles, and the manager running on it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kubewright import Client
from kubewright.testing.controlplane import ControlPlane
from kubewright.testing.operator import install_manifests, run_operator
from vsphere_operators.build import build
from vsphere_operators.settings.flags import Settings

CONFIG = Path(__file__).parents[2] / "config"


@pytest.fixture(scope="session")
def installed(control_plane: ControlPlane) -> ControlPlane:
    """CRDs and roles exactly as they are generated."""
    install_manifests(control_plane, CONFIG / "crd", CONFIG / "rbac")
    return control_plane


@pytest.fixture
async def client(installed: ControlPlane, namespace: str) -> AsyncIterator[Client]:
    """An administrator's client, beside a manager without a vCenter that serves this test's namespace."""
    async with run_operator(
        installed, build, Settings(), namespace, name="vsphere-operators"
    ) as client:
        yield client
