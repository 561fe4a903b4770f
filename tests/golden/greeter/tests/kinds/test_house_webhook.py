"""Unit tests of the webhook of House."""

from __future__ import annotations

from pathlib import Path

import pytest
from kubewright import Admission, ObjectMeta, Rejected
from kubewright.testing import read_sample

from greeter.kinds.house import House
from greeter.kinds.house_webhook import HouseWebhook

SAMPLE_FILE = Path(__file__).parents[2] / "config/samples/demo_v1alpha1_house.yaml"
SAMPLE = read_sample(House, SAMPLE_FILE)


async def test_valid_object_is_admitted_and_renamed_object_is_rejected() -> None:
    webhook = HouseWebhook()
    house = House(metadata=ObjectMeta(name="a"), spec=SAMPLE.spec)
    await webhook.validate(house, None, Admission())
    other = House(metadata=ObjectMeta(name="b"), spec=SAMPLE.spec)
    with pytest.raises(Rejected):
        await webhook.validate(house, other, Admission(operation="UPDATE"))
