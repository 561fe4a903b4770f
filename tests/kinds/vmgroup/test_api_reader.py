"""What is made of a Secret with cloud-init data."""

from __future__ import annotations

from vsphere_operators.kinds.vmgroup.api_reader import _build_guestinfo


def test_user_data_is_encoded() -> None:
    assert _build_guestinfo(b"#cloud-config", b"") == {
        "guestinfo.userdata": "I2Nsb3VkLWNvbmZpZw==",
        "guestinfo.userdata.encoding": "base64",
    }
