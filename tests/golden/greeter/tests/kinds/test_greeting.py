"""Greeting: the answer as plain calls, and its sample on the real API server."""

from __future__ import annotations

import asyncio
from pathlib import Path

import yaml
from kubewright import Client, Key
from kubewright.testing import eventually
from kubewright.testing.controlplane import ControlPlane

from greeter.kinds.greeting import Greeting, GreetingSpec, status_of

SAMPLE = Path(__file__).parents[2] / "config/samples/demo_v1_greeting.yaml"
NAME = yaml.safe_load(SAMPLE.read_text())["metadata"]["name"]


def test_the_answer_follows_from_the_spec_alone() -> None:
    spec = GreetingSpec(foo="example")
    assert status_of(spec) == status_of(spec)


async def test_the_sample_becomes_ready(installed: ControlPlane, client: Client, namespace: str) -> None:
    await asyncio.to_thread(installed.kubectl, "-n", namespace, "apply", "-f", str(SAMPLE))

    async def ready() -> bool:
        found = await client.get(Greeting, Key(namespace, NAME))
        condition = found.status.condition("Ready")
        return condition is not None and condition.status == "True" and found.status.observedGeneration == found.metadata.generation

    await eventually(ready)
