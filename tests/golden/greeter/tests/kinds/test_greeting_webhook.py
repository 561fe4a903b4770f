"""Greeting: defaults and refusals as plain calls."""

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


async def test_defaults_do_not_touch_what_is_set() -> None:
    greeting = Greeting(spec=SPEC)
    await GreetingWebhook().default(greeting, Admission())
    assert greeting.spec == SPEC


async def test_what_is_right_is_let_through_and_what_is_wrong_is_refused() -> None:
    webhook, greeting = GreetingWebhook(), Greeting(metadata=ObjectMeta(name="a"), spec=SPEC)
    await webhook.validate(greeting, None, Admission())
    other = Greeting(metadata=ObjectMeta(name="b"), spec=SPEC)
    with pytest.raises(Rejected):
        await webhook.validate(greeting, other, Admission(operation="UPDATE"))
