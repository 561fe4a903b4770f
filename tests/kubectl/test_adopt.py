"""`kubectl vsphere adopt`: what it shows, what it requests, and when it fails."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from kubewright import Client, Key
from kubewright.testing.fake import FakeApi
from vsphere_operators.kinds.vmgroup.adoption import hash_request
from vsphere_operators.kinds.vmgroup.types import ADOPT_ANNOTATION, VmGroup
from vsphere_operators.kubectl.adopt import AdoptCommand, AdoptionRefused, AdoptionTimeout
from vsphere_operators.kubectl.command import _parse_arguments

KEY = Key("team-a", "web")
UUID = "00000001-0000-4000-8000-000000000000"
CANDIDATE = {
    "name": "web-replica-abcdefgh",
    "moRef": "vm-7",
    "instanceUUID": UUID,
    "verdict": "Adoptable",
    "message": "It has no owner.",
}
FOREIGN = {"name": "jump-host", "moRef": "vm-8", "verdict": "Foreign", "message": "Its name."}
ADOPTED = {
    "name": "web-replica-abcdefgh",
    "slot": 0,
    "instanceUUID": "u",
    "fingerprint": "f",
    "template": "",
    "state": "Present",
    "moRef": "vm-7",
    "adoptedFrom": UUID,
}


class Harness:
    """A VmGroup, and a manager that acts while the command sleeps."""

    def __init__(self, **status: Any) -> None:
        self.api = FakeApi()
        self.path = VmGroup.definition.path(*KEY)
        self.api.objects[self.path] = {
            "apiVersion": VmGroup.definition.api_version,
            "kind": "VmGroup",
            "metadata": {
                "name": KEY.name,
                "namespace": KEY.namespace,
                "uid": "uid-1",
                "resourceVersion": "1",
            },
            "spec": {"cpu": 1, "memory": 1, "replicas": 2, "template": "t"},
            "status": {"observedGeneration": 1, **status},
        }
        self.act: Callable[[str], dict[str, Any]] = lambda annotation: {}

    @property
    def annotation(self) -> str:
        metadata = self.api.objects[self.path]["metadata"]
        return str(metadata.get("annotations", {}).get(ADOPT_ANNOTATION, ""))

    async def sleep(self, seconds: float) -> None:
        obj = self.api.objects[self.path]
        status = {**obj["status"], **self.act(self.annotation)}
        self.api.objects[self.path] = json.loads(json.dumps({**obj, "status": status}))

    async def run(self, *arguments: str) -> str:
        # In a thread: argparse reads files.
        options = await asyncio.to_thread(_parse_arguments, ["adopt", "web", *arguments])
        command = AdoptCommand(Client(self.api), KEY, options, self.sleep)
        _, render = await command.run(width=0, color=False)
        return render()


async def test_without_yes_nothing_is_written() -> None:
    harness = Harness(adoption={"vms": [CANDIDATE, FOREIGN]})
    output = await harness.run()
    assert "web-replica-abcdefgh" in output
    assert "It has no owner." in output
    assert "jump-host" in output
    assert "Dry run: nothing was changed. With --yes, VmGroup team-a/web adopts 1 VM" in output
    assert "The group then creates 1 more: spec.replicas is 2." in output
    assert harness.annotation == ""


async def test_yes_requests_the_shown_vms_and_removes_the_request() -> None:
    harness = Harness(adoption={"vms": [CANDIDATE, FOREIGN]})
    requests = []

    def act(annotation: str) -> dict[str, Any]:
        requests.append(annotation)
        request = {"observedRequest": hash_request(annotation)}
        return {"replicas": [ADOPTED], "adoption": request}

    harness.act = act
    assert "VmGroup team-a/web has adopted 1 VM." in await harness.run("--yes")
    assert requests == [UUID]
    assert harness.annotation == ""


async def test_a_rejection_is_an_error_and_removes_the_request() -> None:
    harness = Harness(adoption={"vms": [CANDIDATE]})
    harness.act = lambda annotation: {
        "adoption": {"observedRequest": hash_request(annotation), "message": "Too many."}
    }
    with pytest.raises(AdoptionRefused, match=r"Nothing was adopted\. Too many"):
        await harness.run("--yes")
    assert harness.annotation == ""


async def test_what_would_be_refused_is_not_requested() -> None:
    harness = Harness(adoption={"vms": [CANDIDATE], "message": "Set spec.replicas to 3."})
    with pytest.raises(AdoptionRefused, match=r"Set spec\.replicas to 3"):
        await harness.run("--yes")
    assert harness.annotation == ""


@pytest.mark.parametrize("verdict", ["Refused", "Waiting"])
async def test_vms_that_may_be_the_groups_are_not_nothing(verdict: str) -> None:
    vm = {**CANDIDATE, "verdict": verdict, "message": "Another group has the same folder."}
    harness = Harness(adoption={"vms": [vm]})
    output = await harness.run()
    assert "Another group has the same folder." in output
    assert "No VM can be adopted by VmGroup team-a/web now." in output
    assert "contains no VM" not in output
    with pytest.raises(AdoptionRefused, match="Another group has the same folder"):
        await harness.run("--yes")
    assert harness.annotation == ""


@pytest.mark.parametrize(
    ("arguments", "replicas"), [(("--yes",), []), (("--undo", "--yes"), [ADOPTED])]
)
async def test_a_manager_that_does_not_run_is_named_after_the_timeout(
    arguments: tuple[str, ...], replicas: list[dict[str, Any]]
) -> None:
    last_message = "All 2 replicas are ready."
    harness = Harness(adoption={"vms": [CANDIDATE]}, replicas=replicas, lastMessage=last_message)
    with pytest.raises(AdoptionTimeout, match="has not seen the request") as caught:
        await harness.run(*arguments, "--timeout=0")
    # It is older than the request.
    assert last_message not in str(caught.value)


async def test_a_slow_manager_continues_after_the_timeout() -> None:
    observed = {"observedRequest": hash_request(UUID), "vms": [CANDIDATE]}
    harness = Harness(adoption=observed, lastMessage="vCenter does not respond.")
    with pytest.raises(AdoptionTimeout, match=r"vCenter does not respond\. The manager continues"):
        await harness.run("--yes", "--timeout=0")
    assert harness.annotation == UUID


async def test_nothing_to_adopt() -> None:
    assert "has nothing to adopt" in await Harness().run("--yes")
    output = await Harness(observedGeneration=None).run()
    assert "has not reconciled this VmGroup yet" in output


async def test_undo_shows_the_vms_then_gives_them_back() -> None:
    harness = Harness(replicas=[ADOPTED])
    output = await harness.run("--undo")
    assert UUID in output
    assert harness.annotation == ""
    harness.act = lambda annotation: {
        "replicas": [],
        "adoption": {"observedRequest": hash_request(annotation)},
    }
    output = await harness.run("--undo", "--yes")
    assert "The adoption of 1 VM of VmGroup team-a/web is undone." in output
    # It keeps the group from creating VMs in place of those.
    assert harness.annotation == "undo"
    assert f"kubectl annotate vmgroup web -n team-a {ADOPT_ANNOTATION}-" in output


async def test_undo_without_adopted_vms() -> None:
    assert "has no adopted VM" in await Harness().run("--undo", "--yes")
