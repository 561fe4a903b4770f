"""Whether a manager is active, by its Lease: plain calls, and a fake API server."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from kubewright import Client, Key, ObjectMeta
from kubewright.builtin import Lease, LeaseSpec
from kubewright.errors import Forbidden
from kubewright.testing.fake import FakeApi
from vsphere_operators.doctor.finding import Finding
from vsphere_operators.doctor.installation import Installation
from vsphere_operators.doctor.leader import check_leader, check_lease
from vsphere_operators.leader_lease import LEASE_NAME, SYSTEM_NAMESPACE, read_lease

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
RENEWED = LeaseSpec(
    holderIdentity="pod-1", leaseDurationSeconds=15, renewTime="2026-11-16T11:59:50.000000Z"
)
RELEASED = LeaseSpec(leaseDurationSeconds=1, renewTime="2026-11-16T11:59:50.000000Z")


def make_lease(namespace: str, spec: LeaseSpec) -> Lease:
    return Lease(metadata=ObjectMeta(namespace=namespace, name=LEASE_NAME), spec=spec)


@pytest.mark.parametrize(
    ("spec", "age", "level", "message"),
    [
        (RENEWED, timedelta(), "ok", f'"pod-1" is the leader (lease a/{LEASE_NAME})'),
        (
            RENEWED,
            timedelta(minutes=3),
            "problem",
            f'No active leader: lease a/{LEASE_NAME} expired (last renewed 3m ago by "pod-1").',
        ),
        (
            RELEASED,
            timedelta(hours=5),
            "problem",
            f"No active leader: lease a/{LEASE_NAME} was released 5h ago.",
        ),
        (
            LeaseSpec(holderIdentity="pod-1", renewTime="soon"),
            timedelta(),
            "warning",
            f'The leader is unknown: lease a/{LEASE_NAME} of "pod-1" has no valid renewTime',
        ),
    ],
)
def test_lease_without_an_active_manager_is_a_problem(
    spec: LeaseSpec, age: timedelta, level: str, message: str
) -> None:
    finding = check_lease(read_lease(make_lease("a", spec)), NOW + age)
    assert finding.level == level
    assert finding.message.startswith(message)
    restart = "kubectl -n a rollout restart deployment -l control-plane=controller-manager "
    assert finding.fix.startswith(restart) if level == "problem" else not finding.fix


def test_lease_of_the_chart_was_never_held() -> None:
    finding = check_lease(read_lease(make_lease("a", LeaseSpec())), NOW)
    assert finding.level == "problem"
    assert finding.message.startswith(f"No manager has been leader yet (lease a/{LEASE_NAME}).")
    assert "Since then" not in finding.message
    assert finding.fix == "kubectl -n a get pods,events"


async def check(
    api: FakeApi, *, leader_election: bool = True, is_namespace_set: bool = False
) -> list[Finding]:
    checks = check_leader(
        Client(api),
        Key("mine", LEASE_NAME),
        NOW + timedelta(minutes=3),
        Installation(),
        leader_election=leader_election,
        is_namespace_set=is_namespace_set,
    )
    return [finding async for finding in checks]


async def test_lease_of_the_settings_comes_first() -> None:
    api = FakeApi()
    api.add(make_lease("mine", RENEWED), make_lease(SYSTEM_NAMESPACE, RELEASED))
    (finding,) = await check(api)
    assert f"lease mine/{LEASE_NAME} expired" in finding.message


async def test_manager_in_any_namespace_is_found_unless_the_flags_name_one() -> None:
    api = FakeApi()
    api.add(make_lease("elsewhere", RENEWED))
    (finding,) = await check(api)
    assert (finding.level, f"elsewhere/{LEASE_NAME}" in finding.message) == ("problem", True)
    (finding,) = await check(api, is_namespace_set=True)
    assert finding.message == "No leader so far: the lease does not exist"
    (finding,) = await check(FakeApi(), leader_election=False)
    assert finding.message == "No lease; leader election is off, so run only one manager"


@pytest.mark.parametrize(("leader_election", "level"), [(True, "warning"), (False, "ok")])
async def test_unreadable_lease(leader_election: bool, level: str) -> None:
    api = FakeApi()
    api.fail_next("GET", "leases", Forbidden("leases is forbidden"), times=9)
    (finding,) = await check(api, leader_election=leader_election)
    assert finding.level == level
    assert "The leader is unknown" in finding.message
