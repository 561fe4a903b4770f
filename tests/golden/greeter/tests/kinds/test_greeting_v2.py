"""Conversion of Greeting v2 to v1 and back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import yaml
from kubewright import Client, Key
from kubewright.testing.controlplane import ControlPlane
from msgspec import convert

from greeter.kinds.greeting import Greeting
from greeter.kinds.greeting_v2 import (
    GreetingV2,
    GreetingV2Conversion,
    GreetingV2Spec,
)

SAMPLE = Path(__file__).parents[2] / "config/samples/demo_v2_greeting.yaml"
NAME = yaml.safe_load(SAMPLE.read_text())["metadata"]["name"]
SPEC = convert(yaml.safe_load(SAMPLE.read_text())["spec"], GreetingV2Spec)


def test_round_trip_keeps_the_spec() -> None:
    conversion = GreetingV2Conversion()
    assert conversion.from_hub(conversion.to_hub(GreetingV2(spec=SPEC))).spec == SPEC


async def test_object_can_be_read_in_both_versions(
    installed: ControlPlane, client: Client, namespace: str
) -> None:
    # In a thread: kubectl waits for the conversion webhook, which this event loop serves.
    await asyncio.to_thread(installed.kubectl, "-n", namespace, "apply", "-f", str(SAMPLE))
    key = Key(namespace, NAME)
    assert (await client.get(GreetingV2, key)).spec == SPEC
    hub_spec = GreetingV2Conversion().to_hub(GreetingV2(spec=SPEC)).spec
    assert (await client.get(Greeting, key)).spec == hub_spec
