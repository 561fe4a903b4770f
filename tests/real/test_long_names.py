"""Objects with names of 1 MB, stored before the schema had a limit: the manager stays responsive.

A name that is too long must not cost the leader its lease, the Pod its memory or the log its
readability, neither when the manager starts nor when the objects change.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubewright.testing import eventually
from kubewright.testing.cluster_access import HttpError
from kubewright.testing.controlplane import ControlPlane
from simulator import SimulatedVCenter
from support.info_client import write_credentials
from support.manager_process import (
    FREE_PORT_FLAGS,
    SYSTEM_NAMESPACE,
    ManagerProcess,
    get_lease,
    ready_condition,
)
from support.manager_with_stalls import LOG_MESSAGE

Json = dict[str, Any]

NAME_LENGTH = 1_000_000
# More than every limit, and not much for an API server that gets it until its schema has changed.
PROBE_LENGTH = 3000
MAX_STALL_MILLISECONDS = 100
# The limits of config/manager/manager.yaml, and of leader.py.
MAX_MEMORY_KIB = 256 * 1024
RENEW_DEADLINE_SECONDS = 10.0
# By kind: its API, the field with the name, the number of objects, and the other fields.
KINDS: dict[str, tuple[str, str, int, Json]] = {
    "HostInfo": ("topology.corinternal.com/v1", "hostname", 60, {}),
    "VMInfo": ("topology.corinternal.com/v1", "nodename", 10, {}),
    "FCDInfo": ("topology.corinternal.com/v1", "pvId", 10, {}),
    "DatastoreInfo": ("topology.corinternal.com/v1", "datastore", 10, {}),
    "ClusterInfo": ("topology.corinternal.com/v1", "cluster", 10, {}),
    "MyCustomResource": ("poc.test.domain/v1", "name", 10, {}),
    "VmGroup": (
        "vm.codeconnect.vmworld.com/v1alpha1",
        "template",
        10,
        {"cpu": 1, "memory": 1, "replicas": 1},
    ),
}
PLURALS = {
    "HostInfo": "hostinfoes",
    "VMInfo": "vminfoes",
    "FCDInfo": "fcdinfoes",
    "DatastoreInfo": "datastoreinfoes",
    "ClusterInfo": "clusterinfoes",
    "MyCustomResource": "mycustomresources",
    "VmGroup": "vmgroups",
}


class LongNames:
    """Creates, changes and reads objects with long names as a user would."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self._plane, self._namespace = plane, namespace

    def path(self, kind: str, name: str = "") -> str:
        collection = f"/apis/{KINDS[kind][0]}/namespaces/{self._namespace}/{PLURALS[kind]}"
        return f"{collection}/{name}" if name else collection

    async def call(self, verb: str, path: str, body: Any = None) -> Any:
        headers = {"Content-Type": "application/merge-patch+json"} if verb == "PATCH" else None

        def work() -> Any:
            with self._plane.apiserver.admin_client() as https:
                return https.call(verb, path, body, headers)

        return await asyncio.to_thread(work)

    async def create(self, kind: str, name: str, target: str) -> None:
        api_version, field, _, spec = KINDS[kind]
        await self.call(
            "POST",
            self.path(kind),
            {
                "apiVersion": api_version,
                "kind": kind,
                "metadata": {"name": name},
                "spec": spec | {field: target},
            },
        )

    async def rejects(self, kind: str, length: int = PROBE_LENGTH) -> str:
        """The message with which the API server rejects a long name; "" if it stores it."""
        try:
            await self.create(kind, "probe", "x" * length)
        except HttpError as error:
            return str(error)
        await self.call("DELETE", self.path(kind, "probe"))
        return ""

    async def accepts(self, kind: str) -> bool:
        return not await self.rejects(kind)

    async def read_ready(self, kind: str) -> list[Json]:
        objects = (await self.call("GET", self.path(kind)))["items"]
        return [ready_condition(obj) for obj in objects]


def remove_max_lengths(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {
            key: remove_max_lengths(value) for key, value in schema.items() if key != "maxLength"
        }
    return [remove_max_lengths(item) for item in schema] if isinstance(schema, list) else schema


@pytest.fixture
def crds(config: Path) -> list[Json]:
    return [yaml.safe_load(path.read_text()) for path in (config / "crd/bases").glob("*.yaml")]


@pytest.fixture
async def stored_before(installed: ControlPlane, namespace: str, crds: list[Json]) -> LongNames:
    """100 objects that were created with CRDs without a limit; these have been updated since."""
    names = LongNames(installed, namespace)
    apply_crds(installed, [remove_max_lengths(crd) for crd in crds])
    try:
        for kind, (_, _, count, _) in KINDS.items():
            await eventually(partial(names.accepts, kind), within=60, every=0.1)
            for number in range(count):
                await names.create(
                    kind, f"long-{number}", f"{number:03}" + "ab" * (NAME_LENGTH // 2)
                )
    finally:
        apply_crds(installed, crds)
    for kind in KINDS:
        await eventually(partial(names.rejects, kind), within=60, every=0.1)
    return names


def apply_crds(plane: ControlPlane, crds: list[Json]) -> None:
    plane.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(crds))


class LeaseWatch:
    """The longest time for which the leader did not renew its lease."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self.holders: set[str] = set()
        self.oldest_seconds = 0.0

    async def run(self) -> None:
        while True:
            # Before the read: this process may be late on a busy machine.
            now = datetime.now(UTC)
            lease = await asyncio.to_thread(get_lease, self._plane)
            if holder := lease.get("holderIdentity"):
                self.holders.add(holder)
                renewed = datetime.fromisoformat(lease["renewTime"])
                age = (now - renewed).total_seconds()
                self.oldest_seconds = max(self.oldest_seconds, age)
            await asyncio.sleep(0.5)


@asynccontextmanager
async def run_measured_manager(
    plane: ControlPlane, vcenter: SimulatedVCenter, kubeconfig: Path, folder: Path
) -> AsyncIterator[ManagerProcess]:
    """A leader that logs the stalls of its event loop; at the end it must still be healthy."""
    tests = Path(__file__).parents[1]
    manager = ManagerProcess(
        folder / "manager.log",
        f"--kubeconfig={kubeconfig}",
        *FREE_PORT_FLAGS,
        "--enable-leader-election",
        f"--leader-election-namespace={SYSTEM_NAMESPACE}",
        f"--vcenter-credentials={write_credentials(folder / 'vc-creds', vcenter)}",
        f"--vcenter-ca-file={vcenter.certificate}",
        "--zap-log-level=debug",
        environ={"PYTHONPATH": f"{os.environ.get('PYTHONPATH', '')}:{tests}"},
        module="support.manager_with_stalls",
    )
    manager.start()
    lease = LeaseWatch(plane)
    try:
        await manager.wait_for_log("Starting workers", within=40)
        watching = asyncio.create_task(lease.run())
        yield manager
        watching.cancel()
        assert manager.is_running
        assert len(lease.holders) == 1
        assert lease.oldest_seconds < RENEW_DEADLINE_SECONDS
        check_log_and_memory(manager)
    finally:
        await manager.kill()


def check_log_and_memory(manager: ManagerProcess) -> None:
    stalls = [line for line in manager.log_records if line["msg"] == LOG_MESSAGE]
    assert stalls[-1]["cpuMilliseconds"] <= MAX_STALL_MILLISECONDS, stalls
    assert max(map(len, manager.log_text.splitlines())) < 5000
    assert "abab" * 200 not in manager.log_text
    assert "a listener failed" not in manager.log_text
    (peak,) = (
        int(line.split()[1])
        for line in Path(f"/proc/{manager.pid}/status").read_text().splitlines()
        if line.startswith("VmHWM:")
    )
    assert peak < MAX_MEMORY_KIB, f"{peak} KiB"
    print(f"longest stall {stalls[-1]['cpuMilliseconds']:.0f} ms of CPU, {peak // 1024} MiB")


async def test_names_of_1_mb_stored_before_the_limit(
    installed: ControlPlane,
    stored_before: LongNames,
    simulator: SimulatedVCenter,
    manager_kubeconfig: Path,
    tmp_path: Path,
) -> None:
    # Twice: a manager that starts with the statuses of the one before it must be fine as well.
    for life in range(2):
        folder = tmp_path / f"life-{life}"
        folder.mkdir()
        async with run_measured_manager(
            installed, simulator, manager_kubeconfig, folder
        ) as manager:
            # Not by a list of the objects: each would read 100 MB.
            for kind, (_, _, count, _) in KINDS.items():
                await eventually(
                    partial(has_reconciled, manager, kind, count), within=120, every=0.5
                )
            for number in range(20):
                path = stored_before.path("HostInfo", f"long-{number}")
                await stored_before.call(
                    "PATCH", path, {"metadata": {"labels": {"turn": f"{life}"}}}
                )
            await manager.wait_until_ready()
    for kind, (_, field, count, _) in KINDS.items():
        for number in range(count):
            obj = await stored_before.call("GET", stored_before.path(kind, f"long-{number}"))
            condition = ready_condition(obj)
            assert condition["reason"] == "Undecodable"
            assert f"$.spec.{field}" in condition["message"]
            assert "Expected `str` of length <=" in condition["message"]
            assert len(condition["message"]) < 500


async def has_reconciled(manager: ManagerProcess, kind: str, count: int) -> bool:
    return await manager.count_reconciles(kind.lower()) >= count


async def test_longest_names_that_the_schema_admits(
    installed: ControlPlane,
    namespace: str,
    simulator: SimulatedVCenter,
    manager_kubeconfig: Path,
    tmp_path: Path,
) -> None:
    """Similar to many VMs, and the kind of text that difflib compares in cubic time."""
    names = LongNames(installed, namespace)
    for number in range(40):
        await simulator.create_vm("aab" * 26 + f"{number:02}")
    for number in range(100):
        # Half of them as long as the names of VMs, the others as long as the schema admits.
        await names.create(
            "VMInfo", f"long-{number}", "a" * (252 if number % 2 else 77) + f"{number:03}"
        )
    async with run_measured_manager(installed, simulator, manager_kubeconfig, tmp_path):

        async def has_reported() -> bool:
            ready = await names.read_ready("VMInfo")
            return all(condition.get("reason") == "VMNotFound" for condition in ready)

        await eventually(has_reported, within=60, every=0.2)
    for condition in await names.read_ready("VMInfo"):
        assert 'no VM named "aaaa' in condition["message"]
        assert "a" * 101 not in condition["message"]


async def test_api_server_rejects_names_of_1_mb(installed: ControlPlane, namespace: str) -> None:
    for kind, (_, field, _, _) in KINDS.items():
        message = await LongNames(installed, namespace).rejects(kind, NAME_LENGTH)
        assert f"spec.{field}: Too long" in message
