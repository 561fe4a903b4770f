"""Unit tests of the webhook of House."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from kubewright import Admission, ObjectMeta, Rejected
from msgspec import convert

from greeter.kinds.house import House, HouseSpec
from greeter.kinds.house_webhook import HouseWebhook

SAMPLE = Path(__file__).parents[2] / "config/samples/demo_v1alpha1_house.yaml"
SPEC = convert(yaml.safe_load(SAMPLE.read_text())["spec"], HouseSpec)


async def test_valid_object_is_admitted_and_renamed_object_is_rejected() -> None:
    webhook, house = HouseWebhook(), House(metadata=ObjectMeta(name="a"), spec=SPEC)
    await webhook.validate(house, None, Admission())
    other = House(metadata=ObjectMeta(name="b"), spec=SPEC)
    with pytest.raises(Rejected):
        await webhook.validate(house, other, Admission(operation="UPDATE"))
