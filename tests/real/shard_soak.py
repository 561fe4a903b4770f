"""Replicas that share the objects, under load, with kills, scale events and stopped processes.

    make shard-soak                                   # 100 kills, 100 scale events, 50 stops; hours
    make shard-soak ARGS="--kills 5 --scales 10 --stops 3"

How does it know whether two replicas have acted on one object?  From the audit log of the API
    server: see shard_audit.py.
What is a lost object?  One with a status that is not about its last spec at the end.
Why has each replica a host name of its own?  With one host name, a replica can prove that another
    one has ended and does not wait for its lease (process_presence.py). Here the replicas are like
    Pods on several nodes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

from kubewright.builtin import Lease
from kubewright.client import Client
from kubewright.errors import ApiError
from kubewright.kind import Key, ObjectMeta
from kubewright.kubeconfig import load_config
from kubewright.leader import LEASE_DURATION_SECONDS
from kubewright.shard_members import read_members
from kubewright.testing import eventually
from kubewright.testing.binaries import find_binaries
from kubewright.testing.controlplane import ControlPlane
from kubewright.testing.process import Process
from kubewright.transport import Transport
from support.manager_process import FREE_PORT_FLAGS, SERVICE_ACCOUNT, SYSTEM_NAMESPACE
from vsphere_operators.kinds.mycustomresource import MyCustomResource, MyCustomResourceSpec

from .shard_audit import check_events, write_audit_flags
from .shard_soak_result import HandOver, SoakResult

ROOT = Path(__file__).parents[2]
BINARIES = ROOT / ".testenv" / "bin"
LEASE_NAME = "vsphere-operators-leader"
NAMESPACE = "soak"
POD_COUNT = 20
# How long a hand-over may take.
PLANNED_SECONDS = 3.0
UNPLANNED_SECONDS = LEASE_DURATION_SECONDS + 2.0
# Longer than the lease: the replica has to exit when it continues.
LONG_STOP_SECONDS = LEASE_DURATION_SECONDS + 4.0
SHORT_STOP_SECONDS = 3.0
EventType = Literal["kill", "scale", "stop"]


class Replica:
    """A manager process with a host name of its own."""

    def __init__(self, folder: Path, number: int, kubeconfig: Path, shards: int) -> None:
        name = f"replica-{number}"
        manager = [
            "env",
            "-i",
            f"HOME={folder}",
            f"PYTHONPATH={os.environ.get('PYTHONPATH', '')}",
            sys.executable,
            "-m",
            "vsphere_operators.main",
            f"--kubeconfig={kubeconfig}",
            f"--shards={shards}",
            f"--leader-election-namespace={SYSTEM_NAMESPACE}",
            *FREE_PORT_FLAGS,
        ]
        self.has_own_host_name = os.geteuid() == 0 and shutil.which("unshare") is not None
        if self.has_own_host_name:
            script = f'hostname {name} && exec "$@"'
            manager = ["unshare", "--uts", "sh", "-c", script, "sh", *manager]
        self.process = Process(
            name, [shutil.which(manager[0]) or "", *manager[1:]], folder / f"{name}.log"
        )

    @property
    def is_running(self) -> bool:
        return self.process.is_running

    @property
    def user_agent(self) -> str:
        return f"vsphere-operators/{self.process.pid} (kubewright)"

    @property
    def log_text(self) -> str:
        return self.process.log.read_text() if self.process.log.exists() else ""


class ShardSoak:
    def __init__(
        self,
        plane: ControlPlane,
        folder: Path,
        *,
        replicas: int = 3,
        shards: int = 12,
        objects: int = 200,
        writes_per_second: float = 30.0,
        seed: int = 1,
    ) -> None:
        self.plane, self.folder = plane, folder
        self.replica_count, self.shards, self.object_count = replicas, shards, objects
        self.pause_seconds = 1 / writes_per_second
        self.random = random.Random(seed)
        self.replicas: list[Replica] = []
        self.started_count = 0
        self.names_by_agent: dict[str, str] = {}
        """The names of all replicas that were started, by their user agent."""
        self.desired_pods: dict[str, str] = {}
        """The Pod in the last spec of each object."""
        self.result = SoakResult()

    # Run

    async def run(self, kills: int, scales: int, stops: int) -> SoakResult:
        counts: dict[EventType, int] = {"kill": kills, "scale": scales, "stop": stops}
        events = [event for event, count in counts.items() for _ in range(count)]
        self.random.shuffle(events)
        self.kubeconfig = await asyncio.to_thread(
            self.plane.write_service_account_kubeconfig,
            SYSTEM_NAMESPACE,
            SERVICE_ACCOUNT,
            self.folder / "kubeconfig",
        )
        connection = await asyncio.to_thread(
            load_config, str(self.plane.admin_kubeconfig), environ={}, home=Path("/")
        )
        transport = Transport(connection)
        self.client = Client(transport)
        load = None
        try:
            await self.create_objects()
            for _ in range(self.replica_count):
                self.start_replica()
            await self.wait_until_balanced(within=60)
            load = asyncio.create_task(self.write_specs())
            run_event = {"kill": self.run_kill, "scale": self.run_scale, "stop": self.run_stop}
            for number, event in enumerate(events, 1):
                await run_event[event]()
                last = self.result.hand_overs[-1]
                print(
                    f"{number:4}/{len(events)} {last.reason:12} {last.seconds:6.2f} s"
                    f"{'  LATE' if last.is_late else ''}",
                    flush=True,
                )
            load.cancel()
            await asyncio.wait({load})
            await self.check_statuses()
        finally:
            if load is not None:
                load.cancel()
            for replica in self.replicas:
                await replica.process.kill()
            await transport.close()
            await asyncio.to_thread(self.check_audit_log)
        return self.result

    async def create_objects(self) -> None:
        await asyncio.to_thread(self.plane.create_namespace, NAMESPACE)
        for number in range(POD_COUNT // 2):
            pod = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": f"pod-{number}", "namespace": NAMESPACE},
                "spec": {"containers": [{"name": "main", "image": "none"}]},
            }
            await asyncio.to_thread(self.plane.apply, json.dumps(pod))
        for number in range(self.object_count):
            name = f"object-{number}"
            self.desired_pods[name] = "pod-0"
            await self.client.create(
                MyCustomResource(
                    metadata=ObjectMeta(name=name, namespace=NAMESPACE),
                    spec=MyCustomResourceSpec(name="pod-0"),
                )
            )

    async def write_specs(self) -> None:
        """Changes a random spec again and again."""
        while True:
            name = self.random.choice(list(self.desired_pods))
            pod = f"pod-{self.random.randrange(POD_COUNT)}"
            with suppress(ApiError):
                await self.client.patch(
                    MyCustomResource, Key(NAMESPACE, name), {"spec": {"name": pod}}
                )
                self.desired_pods[name] = pod
            await asyncio.sleep(self.pause_seconds)

    # Events

    def start_replica(self) -> Replica:
        replica = Replica(self.folder, self.started_count, self.kubeconfig, self.shards)
        self.started_count += 1
        replica.process.start()
        self.replicas.append(replica)
        self.names_by_agent[replica.user_agent] = replica.process.name
        return replica

    async def run_kill(self) -> None:
        victim = self.random.choice(self.replicas)
        self.replicas.remove(victim)
        killed_at = time.monotonic()
        await victim.process.kill()
        await self.wait_until_balanced(within=60)
        limit = UNPLANNED_SECONDS if victim.has_own_host_name else PLANNED_SECONDS
        self.add_hand_over("kill", time.monotonic() - killed_at, limit)
        self.start_replica()
        await self.wait_until_balanced(within=60)

    async def run_scale(self) -> None:
        """Remove a replica and add another one: each is a hand-over."""
        victim = self.random.choice(self.replicas)
        self.replicas.remove(victim)
        stopped_at = time.monotonic()
        victim.process.send_signal(signal.SIGTERM)
        await self.wait_until_balanced(within=60)
        self.add_hand_over("scale down", time.monotonic() - stopped_at, PLANNED_SECONDS)
        await self.wait_for_exit(victim, 0)
        replica = self.start_replica()
        joined_at = await self.wait_until_member(replica)
        await self.wait_until_balanced(within=60)
        self.add_hand_over("scale up", time.monotonic() - joined_at, PLANNED_SECONDS)

    async def run_stop(self) -> None:
        """Send SIGSTOP, and SIGCONT before or after the lease expires."""
        victim = self.random.choice(self.replicas)
        stopped_at = time.monotonic()
        victim.process.send_signal(signal.SIGSTOP)
        if self.random.random() < 0.25:
            await asyncio.sleep(SHORT_STOP_SECONDS)
            victim.process.send_signal(signal.SIGCONT)
            await self.wait_until_balanced(within=60)
            self.add_hand_over("short stop", time.monotonic() - stopped_at, UNPLANNED_SECONDS)
            return
        self.replicas.remove(victim)
        await self.wait_until_balanced(within=60)
        self.add_hand_over("long stop", time.monotonic() - stopped_at, UNPLANNED_SECONDS)
        remaining = stopped_at + LONG_STOP_SECONDS - time.monotonic()
        await asyncio.sleep(max(0.0, remaining))
        victim.process.send_signal(signal.SIGCONT)
        # It has lost its leases, and must not act again.
        await self.wait_for_exit(victim, 1)
        self.start_replica()
        await self.wait_until_balanced(within=60)

    async def wait_for_exit(self, replica: Replica, code: int) -> None:
        await eventually(lambda: not replica.is_running, within=60)
        assert replica.process.child
        if (returned := replica.process.child.returncode) != code:
            self.result.unexpected_exits.append(
                f"{replica.process.name} ended with {returned} instead of {code}: "
                f"{replica.log_text[-500:]}"
            )

    def add_hand_over(self, reason: str, seconds: float, limit: float) -> None:
        self.result.hand_overs.append(HandOver(reason, seconds, limit))

    # Observe

    async def list_leases(self) -> dict[str, Lease]:
        leases = await self.client.list(Lease, SYSTEM_NAMESPACE)
        return {lease.metadata.name: lease for lease in leases}

    async def wait_until_member(self, replica: Replica) -> float:
        async def is_member() -> bool:
            lease = (await self.list_leases())[LEASE_NAME]
            return any(
                self._is_identity_of(member.identity, replica) for member in read_members(lease)
            )

        await eventually(is_member, within=60, every=0.02)
        return time.monotonic()

    def _is_identity_of(self, identity: str, replica: Replica) -> bool:
        host = replica.process.name if replica.has_own_host_name else os.uname().nodename
        return identity.startswith(f"{host}_")

    def replace_ended_replicas(self) -> None:
        """As kubelet does. A replica exits if the API server does not respond for 10 s."""
        for replica in [replica for replica in self.replicas if not replica.is_running]:
            self.replicas.remove(replica)
            if "could not be renewed" in replica.log_text:
                self.result.exits_without_api += 1
            else:
                self.result.unexpected_exits.append(
                    f"{replica.process.name} ended: {replica.log_text[-500:]}"
                )
            self.start_replica()

    async def wait_until_balanced(self, *, within: float) -> None:
        """Wait until the running replicas hold all shards, in equal shares."""

        async def is_balanced() -> bool:
            self.replace_ended_replicas()
            leases = await self.list_leases()
            holders = [
                lease.spec.holderIdentity
                for name, lease in leases.items()
                if name.startswith(f"{LEASE_NAME}-shard-")
            ]
            counts = [
                sum(self._is_identity_of(holder, replica) for holder in holders)
                for replica in self.replicas
            ]
            assert sum(counts) == self.shards, f"{counts} of {self.shards} are held"
            assert max(counts) - min(counts) <= 1, f"shares {counts}"
            return True

        await eventually(is_balanced, within=within, every=0.05)

    # Check

    async def check_statuses(self) -> None:
        """Each object has the status of its last spec within 30 s after the last write."""

        async def list_wrong() -> list[str]:
            wrong = []
            for resource in await self.client.list(MyCustomResource, NAMESPACE):
                pod = self.desired_pods[resource.metadata.name]
                exists = int(pod.removeprefix("pod-")) < POD_COUNT // 2
                status = resource.status
                if (
                    status.observedGeneration != resource.metadata.generation
                    or status.Healthy is not exists
                ):
                    wrong.append(f"lost: {resource.key} spec {pod}, status {status}")
            return wrong

        async def has_no_wrong() -> bool:
            return not await list_wrong()

        with suppress(AssertionError):
            await eventually(has_no_wrong, within=30)
        self.result.lost = await list_wrong()

    def check_audit_log(self) -> None:
        lines = (self.folder / "audit.jsonl").read_text().splitlines()
        checked = check_events(map(json.loads, lines), self.shards, self.names_by_agent)
        self.result.violations, self.result.checked_writes, self.result.lease_changes = checked


def install(plane: ControlPlane) -> None:
    plane.create_namespace(SYSTEM_NAMESPACE)
    for part in ("crd", "rbac"):
        plane.kubectl("apply", "-k", str(ROOT / "config" / part))
    plane.wait_for_crds()


async def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make shard-soak", description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--scales", type=int, default=100)
    parser.add_argument("--stops", type=int, default=50)
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--shards", type=int, default=12)
    parser.add_argument("--objects", type=int, default=200)
    parser.add_argument("--writes-per-second", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix="shard-soak-"))
    async with ControlPlane(
        find_binaries(folders=[BINARIES]), extra_args=write_audit_flags(folder)
    ) as plane:
        await asyncio.to_thread(install, plane)
        soak = ShardSoak(
            plane,
            folder,
            replicas=options.replicas,
            shards=options.shards,
            objects=options.objects,
            writes_per_second=options.writes_per_second,
            seed=options.seed,
        )
        result = await soak.run(options.kills, options.scales, options.stops)
    print(f"logs of the managers: {folder}")
    return 0 if result.print_summary() else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
