"""Which replica has which shard, in the doctor and in kubectl, from Leases in a fake API server."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from kubewright import Client, Key, ObjectMeta
from kubewright.builtin import Lease, LeaseSpec
from kubewright.errors import Forbidden
from kubewright.shard_coordinator import shard_labels, shard_lease_key
from kubewright.shard_members import holder_of_all
from kubewright.testing.fake import FakeApi
from vsphere_operators.doctor.finding import Finding
from vsphere_operators.doctor.installation import Installation
from vsphere_operators.doctor.leader import check_leader
from vsphere_operators.kubectl.shards import shard_table
from vsphere_operators.leader_lease import LEASE_NAME, SYSTEM_NAMESPACE, read_lease
from vsphere_operators.shard_leases import format_shards, read_shard_owners

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
LEADER = Key(SYSTEM_NAMESPACE, LEASE_NAME)


def make_lease(key: Key, holder: str, age_seconds: float = 1.0) -> Lease:
    renewed_at = NOW - timedelta(seconds=age_seconds)
    return Lease(
        metadata=ObjectMeta(name=key.name, namespace=key.namespace, labels=shard_labels(LEADER)),
        spec=LeaseSpec(
            holderIdentity=holder,
            leaseDurationSeconds=15,
            renewTime=f"{renewed_at:%Y-%m-%dT%H:%M:%S.%fZ}",
        ),
    )


def make_api(*holders: str) -> FakeApi:
    api = FakeApi()
    api.add(
        make_lease(LEADER, holder_of_all(len(holders))),
        *(
            make_lease(shard_lease_key(LEADER, shard), holder)
            for shard, holder in enumerate(holders)
        ),
    )
    return api


async def check(api: FakeApi) -> list[Finding]:
    checks = check_leader(
        Client(api), LEADER, NOW, Installation(), leader_election=True, is_namespace_set=True
    )
    return [finding async for finding in checks]


@pytest.mark.parametrize(
    ("shards", "text"),
    [([], ""), ([3], "3"), ([0, 1], "0, 1"), ([0, 1, 2, 5, 7, 8, 9, 11], "0-2, 5, 7-9, 11")],
)
def test_shards_in_a_row_are_a_range(shards: list[int], text: str) -> None:
    assert format_shards(shards) == text


async def test_doctor_shows_the_shards_of_each_replica() -> None:
    leader, shards = await check(make_api("pod-a_1", "pod-a_1", "pod-b_2", "pod-a_1"))
    assert (leader.level, shards.level) == ("ok", "ok")
    assert leader.message == f"Replicas share 4 shards (lease {LEADER})"
    assert shards.message == "Shards of each replica: pod-a: 0, 1, 3; pod-b: 2"


async def test_doctor_reports_shards_that_no_replica_has() -> None:
    api = make_api("pod-a_1", "", "pod-b_2", "pod-b_2")
    api.add(make_lease(shard_lease_key(LEADER, 3), "pod-b_2", age_seconds=60))
    _, shards = await check(api)
    assert shards.level == "problem"
    assert shards.message.startswith("No replica has shard 1, 3.")


async def test_doctor_without_permission_to_list_leases() -> None:
    api = make_api("pod-a_1", "pod-b_2")
    api.fail_next("GET", "/leases", Forbidden("forbidden"), times=0)

    def forbid_lists(request: object) -> Exception | None:
        is_list = getattr(request, "path", "").endswith("/leases")
        return Forbidden("forbidden") if is_list else None

    api.faults.append(forbid_lists)
    _, shards = await check(api)
    assert (shards.level, shards.subject) == ("warning", "shards")


async def test_kubectl_lists_all_shards() -> None:
    api = make_api("pod-a_1", "", "pod-b_2")
    leader = read_lease(await Client(api).get(Lease, LEADER))
    table = shard_table(await read_shard_owners(Client(api), leader, NOW))
    assert table.columns == ("SHARD", "REPLICA", "RENEWED", "LEASE")
    assert [(row[0].text, row[1].text) for row in table.rows] == [
        ("0", "pod-a"),
        ("1", "<none>"),
        ("2", "pod-b"),
    ]
