"""From the last release to this version, back, and forward again, on the real API server.

    last release  --kill-->  this version  --SIGTERM-->  last release  --SIGTERM-->  this version

The manager of the last release runs from its commit, with its own CRDs and roles. At each change
one group clones a VM, one deletes one and one is deleted: the simulator holds their tasks until the
next manager has reconciled every object. Nothing else may change, neither in vCenter nor in a
status, except what a new field needs.
"""

from __future__ import annotations

import asyncio
import json
import signal
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from hack.release import read_last_release
from kubewright.testing import eventually
from kubewright.testing.controlplane import ControlPlane
from support.manager_process import (
    SYSTEM_NAMESPACE,
    ManagerProcess,
    ready_condition,
)
from support.vmgroup_client import (
    TEMPLATE,
    group_folder_path,
    is_running,
)

from .crash_run import run_simulator
from .gpu_cluster import NODE_UUIDS, GpuCluster
from .release_upgrade import (
    KINDS,
    NAMESPACE,
    STATS_INTERVAL_SECONDS,
    ObjectId,
    Release,
    Snapshot,
    UpgradeSite,
    list_changed_fields,
)
from .upgrade_work import AdoptedGroup, PendingWork

TOPOLOGY = "topology.corinternal.com/v1"
NODE = next(iter(NODE_UUIDS))
HOST = "DC0_C0_H0"
DISK = "pvc-e3f6dd59-cbc0-49a7-97c8-d92a26732c43"
GROUP_SPEC: dict[str, Any] = {"cpu": 1, "memory": 1, "replicas": 1, "template": TEMPLATE}
GROUPS: dict[str, dict[str, Any]] = {
    "one": {},
    "off": {"powerState": "poweredOff"},
    "orphan": {"deletionPolicy": "Orphan"},
    "rollout": {"replicas": 2, "rollout": {"maxUnavailable": 1}},
    **{f"deleting-{number}": {} for number in (1, 2, 3)},
    **{f"scaling-{number}": {"replicas": 2} for number in (1, 2, 3)},
}
# In addition to config/samples, most of which name things that this vCenter does not have.
OBJECTS: list[tuple[str, str, str, dict[str, Any]]] = [
    (TOPOLOGY, "HostInfo", "host", {"hostname": HOST}),
    (TOPOLOGY, "HostInfo", "empty", {}),
    (TOPOLOGY, "VMInfo", "vm", {"nodename": "DC0_C0_RP0_VM0"}),
    (TOPOLOGY, "FCDInfo", "no-disk", {"pvId": "pvc-absent"}),
    (TOPOLOGY, "DatastoreInfo", "no-datastore", {"datastore": "absent"}),
    (TOPOLOGY, "ClusterInfo", "no-cluster", {"cluster": "absent"}),
    (TOPOLOGY, "GPUInfo", "gpu-now", {"desAccTime": 1, "gpuRequired": True}),
    (TOPOLOGY, "GPUInfo", "gpu-negative", {"desAccTime": -1}),
    ("poc.test.domain/v1", "MyCustomResource", "healthy", {"name": "joe"}),
    *(
        ("vm.codeconnect.vmworld.com/v1alpha1", "VmGroup", name, GROUP_SPEC | spec)
        for name, spec in GROUPS.items()
    ),
]
# The groups with VMs that no change of the manager may touch, and their replicas.
SETTLED_GROUPS = {"vg-1": 3, "vg-3": 2, "vmgroup-sample": 3, "one": 1, "orphan": 1, "rollout": 2}
BLOCKED_GROUP = ("vmgroup", "vg-2")
BLOCKED_HOST = ("hostinfo", "hostinfo-host-e")
# Both versions log errors for these, which only a user can correct.
FAULTY_OBJECTS = {
    BLOCKED_HOST,
    ("hostinfo", "empty"),
    ("vminfo", "tkg-worker-1"),
    ("fcdinfo", "no-disk"),
    ("datastoreinfo", "no-datastore"),
    ("clusterinfo", "no-cluster"),
    ("gpuinfo", "gpu-negative"),
}


@pytest.fixture(scope="module")
def upgrade_plane(binaries: dict[str, Path]) -> Iterator[ControlPlane]:
    """Without any of our objects."""
    plane = ControlPlane(binaries, audit=True)
    plane.start_sync()
    yield plane
    plane.stop_sync()


@pytest.fixture(scope="module")
def last_release(pytestconfig: pytest.Config) -> Release:
    """Its files stay in a folder for the next run, with the bytecode of its modules."""
    release = read_last_release()
    if release.is_cut_off():
        pytest.skip(f"a shallow clone without the commit {release.commit}")
    folder = pytestconfig.rootpath / f".testenv/release-{release.commit}"
    if not folder.exists():
        extracted = Path(tempfile.mkdtemp(prefix="release-", dir=folder.parent))
        release.extract(extracted).rename(folder)
    return Release(folder)


@pytest.fixture
def this_version(pytestconfig: pytest.Config) -> Release:
    return Release(pytestconfig.rootpath)


@pytest.fixture
async def site(
    pytestconfig: pytest.Config, upgrade_plane: ControlPlane, tmp_path: Path
) -> AsyncIterator[UpgradeSite]:
    binary = pytestconfig.rootpath / ".testenv/bin/vcsim"
    flags = (f"--node={NODE}={NODE_UUIDS[NODE]}", f"--gpu-vm={NODE}=vgpu")
    async with run_simulator(binary, tmp_path / "vcsim", *flags) as vcenter:
        yield UpgradeSite(upgrade_plane, vcenter, tmp_path)


async def create_objects(site: UpgradeSite, release: Release) -> None:
    plane = site.plane
    plane.create_namespace(NAMESPACE)
    await site.vcenter.create_disk(DISK)
    await GpuCluster(plane, NAMESPACE).add_node(NODE, f"vsphere://{NODE_UUIDS[NODE]}")
    pod = {"metadata": {"name": "joe"}, "spec": {"containers": [{"name": "a", "image": "none"}]}}
    with plane.apiserver.admin_client() as https:
        https.call("POST", f"/api/v1/namespaces/{NAMESPACE}/pods", pod)
    items = [
        {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}
        for version, kind, name, spec in OBJECTS
    ]
    manifest = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    plane.kubectl("apply", "-n", NAMESPACE, "-f", str(release.root / "config/samples"))
    plane.kubectl("apply", "-n", NAMESPACE, "-f", "-", stdin=manifest)


async def wait_until_settled(site: UpgradeSite, manager: ManagerProcess) -> None:
    """Wait until every object has the status of its generation, and every group its VMs."""

    def is_settled() -> bool:
        for (kind, _), obj in site.read_objects().items():
            if ready_condition(obj).get("observedGeneration") != obj["metadata"]["generation"]:
                return False
            is_group = kind == "vmgroup" and obj["spec"]["template"] == TEMPLATE
            if is_group and not is_running(obj):
                return False
        return True

    await eventually(lambda: asyncio.to_thread(is_settled), within=90, every=0.5)
    await site.wait_until_reconciled(manager)


async def check_handover(
    site: UpgradeSite, manager: ManagerProcess, work: PendingWork, before: Snapshot
) -> dict[ObjectId, set[str]]:
    """Check what a new manager did while tasks of its predecessor run: it changed no VM, repeated
    no Event, and wrote each status at most once. Returns the fields that it changed, by object.
    """
    await site.wait_for_rest(manager)
    assert await site.observe_rest(manager) == Counter()
    assert await site.vcenter.mutating_calls() == []
    after = await site.take_snapshot()
    assert after.vcenter.vms == before.vcenter.vms
    assert after.vcenter.clones == before.vcenter.clones
    assert after.change_versions == before.change_versions
    assert without(after.events, work.names) == without(before.events, work.names)
    assert after.objects.keys() == before.objects.keys()
    writes = site.count_writes(manager)
    changed = dict[ObjectId, set[str]]()
    for key, obj in after.objects.items():
        if key[1] in work.names:
            continue
        old = before.objects[key]
        assert old["metadata"]["uid"] == obj["metadata"]["uid"]
        assert old["metadata"]["generation"] == obj["metadata"]["generation"]
        assert old["spec"] == obj["spec"]
        if fields := list_changed_fields(old["status"], obj["status"]):
            changed[key] = fields
        assert writes[key] == bool(fields), (key, fields, writes[key])
    return changed


async def check_rest(site: UpgradeSite, manager: ManagerProcess) -> None:
    """The manager has all that it needs in the statuses, and writes nothing."""
    await site.wait_for_rest(manager)
    assert await site.observe_rest(manager, 6 * STATS_INTERVAL_SECONDS) == Counter()


def check_log(manager: ManagerProcess, allowed: str = "") -> None:
    """The manager logged no errors, except for objects that a user has to correct.

    Messages that contain `allowed` are ignored.
    """
    errors = [
        record
        for record in manager.log_records
        if record["level"] not in ("debug", "info")
        and (record.get("controller"), record.get("name")) not in FAULTY_OBJECTS
        and not (allowed and allowed in record["msg"])
    ]
    assert errors == []
    assert "Traceback" not in manager.log_text


async def check_metrics(manager: ManagerProcess) -> None:
    """The manager did not fail, except with errors that a retry does not solve."""
    failed, terminal, panics, timeouts = [
        await manager.read_metric(f"controller_runtime_{name}_total")
        for name in (
            "reconcile_errors",
            "terminal_reconcile_errors",
            "reconcile_panics",
            "reconcile_timeouts",
        )
    ]
    assert failed
    assert failed == terminal
    assert not any((panics | timeouts).values())


async def stop(manager: ManagerProcess, allowed: str = "") -> None:
    """Stop the manager with a signal; it reported no errors until its end."""
    await check_metrics(manager)
    manager.send_signal(signal.SIGTERM)
    assert await manager.wait_for_exit(within=60) == 0
    check_log(manager, allowed)


def without(events: Any, names: set[str]) -> dict[str, Any]:
    return {name: reasons for name, reasons in events.items() if name not in names}


def check_vms_of_settled_groups(site: UpgradeSite, before: Snapshot, after: Snapshot) -> None:
    """The VMs of groups that were not changed are those of the beginning."""
    folders = {group_folder_path(NAMESPACE, name) for name in (*SETTLED_GROUPS, "off")}
    old, new = (
        {vm for vm in (map_vm(vm) for vm in state.vcenter.vms) if vm[0] in folders}
        for state in (before, after)
    )
    assert len(old) == sum(SETTLED_GROUPS.values()) + 1
    assert new == old


def map_vm(vm: Any) -> tuple[Any, ...]:
    return (vm.folder, vm.ref, vm.name, vm.power, vm.instance_uuid, *sorted(vm.marks.items()))


def stalled_objects(objects: dict[ObjectId, dict[str, Any]]) -> set[ObjectId]:
    return {
        key
        for key, obj in objects.items()
        if any(condition["type"] == "Stalled" for condition in obj["status"]["conditions"])
    }


async def test_from_the_last_release_and_back(
    site: UpgradeSite, last_release: Release, this_version: Release
) -> None:
    plane, vcenter = site.plane, site.vcenter
    stored_versions = {
        name: ["v1alpha1" if name.startswith("vmgroups") else "v1"] for name in KINDS
    }
    upgrade = this_version.read_commands("upgrade.md", "From an older version", "make deploy")
    way_back = "From the last release and back"
    stop_deployment = this_version.read_commands("upgrade.md", way_back, "--replicas=0")
    downgrade = this_version.read_commands("upgrade.md", way_back, "build-installer")
    install = last_release.read_commands("install.md", "3. Deploy the manager", "make deploy")
    plane.create_namespace(SYSTEM_NAMESPACE)

    # The last release, killed while it works.
    await last_release.run_commands(plane, install)
    await create_objects(site, last_release)
    first, second, third = (PendingWork(site, number) for number in (1, 2, 3))
    async with site.run(last_release, "old-1") as manager:
        await wait_until_settled(site, manager)
        await first.begin()
        await site.wait_for_rest(manager)
        await check_metrics(manager)
        await manager.kill()
        check_log(manager)
    beginning = await site.take_snapshot()
    assert site.read_stored_versions() == stored_versions

    # Forward.
    await this_version.run_commands(plane, upgrade)
    assert site.read_deployment() == (1, "example.com/vsphere-operators:v2")
    assert site.read_stored_versions() == stored_versions
    assert list_changed_objects(site, beginning, first) == {}, "the new CRDs change no object"
    await vcenter.reset_mutating_calls()
    idle, scaled = AdoptedGroup(site, "adopted-idle"), AdoptedGroup(site, "adopted-scaled")
    async with site.run(this_version, "new-1") as manager:
        changed = await check_handover(site, manager, first, beginning)
        # The only new field of an object that exists: the condition Stalled.
        stalled = stalled_objects(site.read_objects())
        assert changed == {key: {"conditions.Stalled"} for key in stalled}
        assert BLOCKED_GROUP in stalled
        assert BLOCKED_HOST in stalled
        await first.finish()
        check_vms_of_settled_groups(site, beginning, await site.take_snapshot())
        await asyncio.gather(idle.create(), scaled.create())
        await wait_until_settled(site, manager)
        await check_rest(site, manager)
        await second.begin()
        await site.wait_for_rest(manager)
        await stop(manager)

    # Back.
    before = await site.take_snapshot()
    await this_version.run_commands(plane, stop_deployment)
    await last_release.run_commands(plane, downgrade)
    assert site.read_stored_versions() == stored_versions
    assert site.read_deployment() == (1, "example.com/vsphere-operators:v1")
    # The API server does not return what the CRD does not have.
    assert list_changed_objects(site, before, second) == {
        group.key: group.origin_fields for group in (idle, scaled)
    }
    before = await site.take_snapshot()
    await vcenter.reset_mutating_calls()
    async with site.run(last_release, "old-2") as manager:
        assert await check_handover(site, manager, second, before) == {}
        await second.finish()
        check_vms_of_settled_groups(site, beginning, await site.take_snapshot())
        # The last release does not know Stalled, so it stays when the reason is gone.
        await site.groups.patch_spec(BLOCKED_GROUP[1], template=TEMPLATE)
        patch = json.dumps({"spec": {"hostname": HOST}})
        plane.kubectl("patch", "hi", BLOCKED_HOST[1], "-n", NAMESPACE, "--type=merge", "-p", patch)
        await site.groups.patch_spec(scaled.name, replicas=3)
        await wait_until_settled(site, manager)
        assert (await scaled.read_instance_uuids()).keys() > scaled.original_uuids.keys()
        # An old manager works with new CRDs, also for objects that are created with them.
        (apply_crds,) = [line for line in upgrade.splitlines() if "config/crd" in line]
        await this_version.run_commands(plane, apply_crds)
        # etcd keeps `adoptedFrom` until the old manager writes the status.
        await idle.wait_for_origins()
        assert await scaled.read_origins() == {}
        await check_rest(site, manager)
        await third.begin()
        await site.wait_for_rest(manager)
        # What the API server answers to a watch while a CRD changes.
        await stop(manager, allowed="storage is (re)initializing")

    # Forward again.
    before = await site.take_snapshot()
    await this_version.run_commands(plane, upgrade)
    assert site.read_deployment() == (1, "example.com/vsphere-operators:v2")
    assert site.read_stored_versions() == stored_versions
    await vcenter.reset_mutating_calls()
    async with site.run(this_version, "new-2") as manager:
        changed = await check_handover(site, manager, third, before)
        solved = {BLOCKED_GROUP, BLOCKED_HOST}
        assert changed == {
            scaled.key: scaled.origin_fields,
            **{key: {"conditions.Stalled"} for key in solved},
        }
        assert await scaled.read_origins() == scaled.original_uuids
        assert not stalled_objects(site.read_objects()) & solved
        await third.finish()
        await wait_until_settled(site, manager)
        await check_rest(site, manager)
        await vcenter.reset_mutating_calls()
        await asyncio.gather(idle.undo(), scaled.undo())
        calls = {call["method"] for call in await vcenter.mutating_calls()}
        assert calls == {"ReconfigVM_Task"}
        await stop(manager)
    check_vms_of_settled_groups(site, beginning, await site.take_snapshot())


def list_changed_objects(
    site: UpgradeSite, before: Snapshot, work: PendingWork
) -> dict[ObjectId, set[str]]:
    return {
        key: fields
        for key, obj in site.read_objects().items()
        if key[1] not in work.names
        and (fields := list_changed_fields(before.objects[key]["status"], obj["status"]))
    }
