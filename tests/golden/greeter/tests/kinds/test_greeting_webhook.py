"""Unit tests of the webhook of Greeting."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from kubewright import Admission, ObjectMeta, Rejected
from msgspec import convert

from greeter.kinds.greeting import Greeting, GreetingSpec
from greeter.kinds.greeting_webhook import GreetingWebhook

SAMPLE = Path(__file__).parents[2] / "config/samples/demo_v1_greeting.yaml"
SPEC = convert(yaml.safe_load(SAMPLE.read_text())["spec"], GreetingSpec)


async def test_defaulting_keeps_fields_that_are_set() -> None:
    greeting = Greeting(spec=SPEC)
    await GreetingWebhook().default(greeting, Admission())
    assert greeting.spec == SPEC


async def test_valid_object_is_admitted_and_renamed_object_is_rejected() -> None:
    webhook, greeting = GreetingWebhook(), Greeting(metadata=ObjectMeta(name="a"), spec=SPEC)
    await webhook.validate(greeting, None, Admission())
    other = Greeting(metadata=ObjectMeta(name="b"), spec=SPEC)
    with pytest.raises(Rejected):
        await webhook.validate(greeting, other, Admission(operation="UPDATE"))
