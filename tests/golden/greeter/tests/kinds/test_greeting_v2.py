"""Greeting v2: nothing is lost on the way to v1 and back, as plain calls and on the real API server."""

from __future__ import annotations

import asyncio
from pathlib import Path

import yaml
from kubewright import Client, Key
from kubewright.testing.controlplane import ControlPlane
from msgspec import convert

from greeter.kinds.greeting import Greeting
from greeter.kinds.greeting_v2 import GreetingV2, GreetingV2Conversion, GreetingV2Spec

SAMPLE = Path(__file__).parents[2] / "config/samples/demo_v2_greeting.yaml"
NAME = yaml.safe_load(SAMPLE.read_text())["metadata"]["name"]
SPEC = convert(yaml.safe_load(SAMPLE.read_text())["spec"], GreetingV2Spec)


def test_there_and_back() -> None:
    conversion = GreetingV2Conversion()
    assert conversion.from_hub(conversion.to_hub(GreetingV2(spec=SPEC))).spec == SPEC


async def test_what_is_written_in_one_version_is_read_in_both(installed: ControlPlane, client: Client, namespace: str) -> None:
    await asyncio.to_thread(installed.kubectl, "-n", namespace, "apply", "-f", str(SAMPLE))
    assert (await client.get(GreetingV2, Key(namespace, NAME))).spec == SPEC
    assert (await client.get(Greeting, Key(namespace, NAME))).spec == GreetingV2Conversion().to_hub(GreetingV2(spec=SPEC)).spec
