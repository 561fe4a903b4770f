"""Conversion of Greeting v2 to v1 and back."""

from __future__ import annotations

import asyncio
from pathlib import Path

from kubewright import Client, Key
from kubewright.testing import read_sample
from kubewright.testing.controlplane import ControlPlane

from greeter.kinds.greeting import Greeting
from greeter.kinds.greeting_v2 import GreetingV2, GreetingV2Conversion

SAMPLE_FILE = Path(__file__).parents[2] / "config/samples/demo_v2_greeting.yaml"
SAMPLE = read_sample(GreetingV2, SAMPLE_FILE)


def test_round_trip_keeps_the_spec() -> None:
    conversion = GreetingV2Conversion()
    assert conversion.from_hub(conversion.to_hub(SAMPLE)).spec == SAMPLE.spec


async def test_object_can_be_read_in_both_versions(
    installed: ControlPlane, client: Client, namespace: str
) -> None:
    # In a thread: kubectl waits for the conversion webhook, which this event loop serves.
    await asyncio.to_thread(installed.kubectl, "-n", namespace, "apply", "-f", str(SAMPLE_FILE))
    key = Key(namespace, SAMPLE.metadata.name)
    assert (await client.get(GreetingV2, key)).spec == SAMPLE.spec
    hub_spec = GreetingV2Conversion().to_hub(SAMPLE).spec
    assert (await client.get(Greeting, key)).spec == hub_spec
