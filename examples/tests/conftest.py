from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from examples.tests.component_runner import RunControllers, run_components
from kubewright import Client, Controller, Webhook
from kubewright.testing.controlplane import ControlPlane


@pytest.fixture
def run_controllers(control_plane: ControlPlane, namespace: str) -> RunControllers:
    """Runs a manager with these controllers and webhooks, for the namespace of the test or for all.

    Its value is the client of an administrator.
    """

    def run(
        *components: Controller[Any] | Webhook[Any], all_namespaces: bool = False
    ) -> AbstractAsyncContextManager[Client]:
        return run_components(control_plane, components, *(() if all_namespaces else (namespace,)))

    return run
