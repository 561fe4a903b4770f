"""An upgrade that changes the stored version of a kind, and the way back, with its conversion."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kubewright.testing import eventually

from .conftest import BoxHarness

CRD = "boxes.hooks.kubewright.test"


async def read_crd(boxes: BoxHarness) -> dict[str, Any]:
    return dict(json.loads(await boxes.kubectl("get", "crd", CRD, "-o", "json")))


async def store_as(boxes: BoxHarness, version: str) -> None:
    """Store new writes in this version; it is then in status.storedVersions."""
    versions = (await read_crd(boxes))["spec"]["versions"]
    patch = [
        {"op": "replace", "path": f"/spec/versions/{number}/storage", "value": name == version}
        for number, name in enumerate(entry["name"] for entry in versions)
    ]
    await boxes.kubectl("patch", "crd", CRD, "--type=json", "-p", json.dumps(patch))

    async def is_stored() -> bool:
        return version in (await read_crd(boxes))["status"]["storedVersions"]

    await eventually(is_stored)


async def set_stored_versions(boxes: BoxHarness, *versions: str) -> None:
    patch = json.dumps({"status": {"storedVersions": versions}})
    await boxes.kubectl("patch", "crd", CRD, "--subresource=status", "--type=merge", "-p", patch)


async def read_both(boxes: BoxHarness, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The spec in both versions, of the same object."""
    old, new = [
        json.loads(await boxes.kubectl("get", f"boxes.{version}.{CRD[6:]}", name, "-o", "json"))
        for version in ("v1", "v2")
    ]
    assert old["metadata"]["uid"] == new["metadata"]["uid"]
    assert old["metadata"]["generation"] == new["metadata"]["generation"]
    return old["spec"], new["spec"]


@pytest.fixture
async def old_boxes(box_harness: BoxHarness) -> AsyncIterator[BoxHarness]:
    """As with a release that stores v1 only."""
    await box_harness.kubectl("delete", f"boxes.v2.{CRD[6:]}", "--all")
    await store_as(box_harness, "v1")
    await set_stored_versions(box_harness, "v1")
    yield box_harness
    await store_as(box_harness, "v2")
    await set_stored_versions(box_harness, "v2")


async def test_objects_of_both_stored_versions_are_read_written_and_migrated(
    old_boxes: BoxHarness,
) -> None:
    boxes = old_boxes
    await boxes.apply_box("before", "size: 3, note: hello", version="v1")
    before = {"size": 3, "note": "hello"}, {"width": 3, "height": 3}
    assert await read_both(boxes, "before") == before

    # Upgrade: what is stored is converted when it is read.
    await store_as(boxes, "v2")
    assert (await read_crd(boxes))["status"]["storedVersions"] == ["v1", "v2"]
    assert await read_both(boxes, "before") == before
    await boxes.apply_box("after", "width: 2, height: 5, color: red")
    after_v2 = {"width": 2, "height": 5, "color": "red"}
    assert await read_both(boxes, "after") == ({"size": 2}, after_v2)

    # Back: objects that are stored in v2 lose nothing, also if they are written in v1.
    await store_as(boxes, "v1")
    patch = json.dumps({"spec": {"note": "old"}})
    name = f"boxes.v1.{CRD[6:]}"
    await boxes.kubectl("patch", name, "after", "--type=merge", "-p", patch)
    after = {"size": 2, "note": "old"}, after_v2
    assert (await read_both(boxes, "before"), await read_both(boxes, "after")) == (before, after)

    # Forward again: when each object was written once, v1 is not stored any more.
    await store_as(boxes, "v2")
    for box in ("before", "after"):
        await boxes.kubectl("annotate", f"boxes.v2.{CRD[6:]}", box, "example.com/migrated=true")
    await set_stored_versions(boxes, "v2")
    assert (await read_crd(boxes))["status"]["storedVersions"] == ["v2"]
    assert (await read_both(boxes, "before"), await read_both(boxes, "after")) == (before, after)
