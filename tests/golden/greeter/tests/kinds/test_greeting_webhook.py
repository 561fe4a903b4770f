"""Unit tests of the webhook of Greeting."""

from __future__ import annotations

from pathlib import Path

import pytest
from kubewright import Admission, ObjectMeta, Rejected
from kubewright.testing import read_sample

from greeter.kinds.greeting import Greeting
from greeter.kinds.greeting_webhook import GreetingWebhook

SAMPLE_FILE = Path(__file__).parents[2] / "config/samples/demo_v1_greeting.yaml"
SAMPLE = read_sample(Greeting, SAMPLE_FILE)


async def test_defaulting_keeps_fields_that_are_set() -> None:
    greeting = Greeting(spec=SAMPLE.spec)
    await GreetingWebhook().default(greeting, Admission())
    assert greeting.spec == SAMPLE.spec


async def test_valid_object_is_admitted_and_renamed_object_is_rejected() -> None:
    webhook = GreetingWebhook()
    greeting = Greeting(metadata=ObjectMeta(name="a"), spec=SAMPLE.spec)
    await webhook.validate(greeting, None, Admission())
    other = Greeting(metadata=ObjectMeta(name="b"), spec=SAMPLE.spec)
    with pytest.raises(Rejected):
        await webhook.validate(greeting, other, Admission(operation="UPDATE"))
