"""Greeting: defaults and refusals as plain calls."""

from __future__ import annotations

import pytest
from kubewright import Admission, ObjectMeta, Refused

from greeter.kinds.greeting import Greeting, GreetingSpec
from greeter.kinds.greeting_webhook import GreetingWebhook


async def test_defaults_do_not_touch_what_is_set() -> None:
    greeting = Greeting(spec=GreetingSpec())
    await GreetingWebhook().default(greeting, Admission())
    assert greeting.spec == GreetingSpec()


async def test_what_is_right_is_let_through_and_what_is_wrong_is_refused() -> None:
    webhook, greeting = GreetingWebhook(), Greeting(metadata=ObjectMeta(name="a"), spec=GreetingSpec())
    await webhook.validate(greeting, None, Admission())
    other = Greeting(metadata=ObjectMeta(name="b"), spec=greeting.spec)
    with pytest.raises(Refused):
        await webhook.validate(greeting, other, Admission(operation="UPDATE"))
