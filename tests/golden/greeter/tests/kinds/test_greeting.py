"""Greeting: unit tests, and its sample on the real API server."""

from __future__ import annotations

import asyncio
from pathlib import Path

import yaml
from kubewright import Client, Key
from kubewright.testing import eventually
from kubewright.testing.controlplane import ControlPlane
from msgspec import convert

from greeter.kinds.greeting import Greeting, GreetingSpec, status_of

SAMPLE = Path(__file__).parents[2] / "config/samples/demo_v1_greeting.yaml"
NAME = yaml.safe_load(SAMPLE.read_text())["metadata"]["name"]
SPEC = convert(yaml.safe_load(SAMPLE.read_text())["spec"], GreetingSpec)


def test_equal_specs_have_equal_status() -> None:
    assert status_of(SPEC) == status_of(SPEC)


async def test_sample_becomes_ready(
    installed: ControlPlane, client: Client, namespace: str
) -> None:
    # In a thread: kubectl waits for webhooks, which this event loop serves.
    await asyncio.to_thread(installed.kubectl, "-n", namespace, "apply", "-f", str(SAMPLE))

    async def is_ready() -> bool:
        greeting = await client.get(Greeting, Key(namespace, NAME))
        status, condition = greeting.status, greeting.status.condition("Ready")
        is_current = status.observedGeneration == greeting.metadata.generation
        return condition is not None and condition.status == "True" and is_current

    await eventually(is_ready)
