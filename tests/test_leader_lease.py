"""Finding the Lease of the manager, and until when the objects were current."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta

import pytest

from kubewright import Client, Manager, ObjectMeta, Options
from kubewright.builtin import Lease, LeaseSpec
from kubewright.errors import Forbidden
from kubewright.testing.fake import FakeApi
from support.fake_environment import FAKE_CONNECTION
from vsphere_operators.build import build
from vsphere_operators.leader_lease import (
    LEASE_NAME,
    SYSTEM_NAMESPACE,
    ActiveLeaderWarning,
    LeaseState,
    describe_staleness,
    find_leases,
    read_lease,
)
from vsphere_operators.settings.flags import Settings

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)


def make_lease(
    namespace: str, age_seconds: float = 0, *, holder: str = "pod-1", name: str = LEASE_NAME
) -> Lease:
    renewed_at = NOW - timedelta(seconds=age_seconds)
    return Lease(
        metadata=ObjectMeta(namespace=namespace, name=name),
        spec=LeaseSpec(
            holderIdentity=holder,
            leaseDurationSeconds=15,
            renewTime=f"{renewed_at:%Y-%m-%dT%H:%M:%S.%fZ}",
        ),
    )


def describe(*leases: Lease) -> str:
    return describe_staleness([read_lease(lease) for lease in leases], NOW)


def test_no_message_while_every_manager_renews() -> None:
    assert describe(make_lease("a", 15), make_lease("b", 2)) == ""


def test_objects_are_as_of_the_last_renewal() -> None:
    message = describe(make_lease("a", 600))
    assert message.startswith(
        f'No manager is active: lease a/{LEASE_NAME} expired (last renewed 10m ago by "pod-1"). '
        "The objects are as of 2026-11-16T11:50:00Z"
    )


def test_released_lease_is_as_old_as_its_release() -> None:
    message = describe(make_lease("a", 7200, holder=""))
    assert f"lease a/{LEASE_NAME} was released 2h ago" in message
    assert "The objects are as of 2026-11-16T10:00:00Z" in message


def test_one_of_several_managers_is_named() -> None:
    message = describe(make_lease("a"), make_lease("b", 60))
    assert message.startswith(
        f"One of several managers is not active: lease b/{LEASE_NAME} expired"
    )


def test_without_a_lease_it_is_unknown() -> None:
    assert "it is unknown whether a manager keeps the objects current" in describe()


@pytest.mark.parametrize("renew_time", ["", "soon", "2026-11-16T12:00:00"])
def test_invalid_renew_time_is_an_unknown_time(renew_time: str) -> None:
    lease = Lease(
        metadata=ObjectMeta(namespace="a", name=LEASE_NAME),
        spec=LeaseSpec(holderIdentity="pod-1", renewTime=renew_time),
    )
    assert "The objects are of an unknown time" in describe(lease)


def test_lease_that_was_never_held() -> None:
    lease = Lease(metadata=ObjectMeta(namespace="a", name=LEASE_NAME))
    message = describe(lease)
    assert message.startswith(
        f"No manager is active: no manager has held lease a/{LEASE_NAME} yet. The objects are of "
        "an unknown time"
    )


async def find(api: FakeApi) -> list[str]:
    leases: list[LeaseState] = await find_leases(Client(api), ["mine"])
    return sorted(lease.key.namespace for lease in leases)


async def test_leases_are_found_in_all_namespaces_by_name() -> None:
    api = FakeApi()
    api.add(make_lease("a"), make_lease("b"), make_lease("a", name="other"))
    assert await find(api) == ["a", "b"]


async def test_without_permission_to_list_the_given_namespaces_are_read() -> None:
    api = FakeApi()
    api.add(make_lease("a"), make_lease("mine"))
    api.fail_next("GET", "/leases", Forbidden("leases is forbidden"))
    assert await find(api) == ["mine"]
    api.fail_next("GET", "/leases", Forbidden("leases is forbidden"), times=2)
    with pytest.raises(Forbidden):
        await find(api)


async def warn(api: FakeApi, caplog: pytest.LogCaptureFixture) -> list[str]:
    caplog.clear()
    with caplog.at_level(logging.INFO):
        await ActiveLeaderWarning(Client(api), lambda: NOW).run()
    return [record.getMessage() for record in caplog.records]


async def test_second_manager_warns_of_the_active_one(caplog: pytest.LogCaptureFixture) -> None:
    api = FakeApi()
    api.add(make_lease(SYSTEM_NAMESPACE))
    (message,) = await warn(api, caplog)
    assert message.startswith(
        f'another manager is active: "pod-1" holds the lease {SYSTEM_NAMESPACE}/{LEASE_NAME}.'
    )
    assert f"kubectl -n {SYSTEM_NAMESPACE} scale deployment" in message
    assert f"-leader-elect -leader-election-namespace={SYSTEM_NAMESPACE}" in message
    assert api.writes() == []


@pytest.mark.parametrize("leases", [[], [make_lease(SYSTEM_NAMESPACE, 60)]])
async def test_without_an_active_manager_there_is_no_warning(
    caplog: pytest.LogCaptureFixture, leases: list[Lease]
) -> None:
    api = FakeApi()
    api.add(*leases, make_lease("other"))
    assert await warn(api, caplog) == []


async def test_there_is_no_warning_without_permission(caplog: pytest.LogCaptureFixture) -> None:
    api = FakeApi()
    api.add(make_lease(SYSTEM_NAMESPACE))
    api.fail_next("GET", "/leases", Forbidden("leases is forbidden"))
    assert await warn(api, caplog) == []


@pytest.mark.parametrize(
    ("options", "warns"),
    [(Options(), True), (Options(leader_election=True), False), (Options(shards=2), False)],
)
def test_only_a_manager_without_leader_election_warns(options: Options, warns: bool) -> None:
    manager = Manager(FAKE_CONNECTION, options)
    build(manager, Settings())
    warnings = [item for item in manager._runnables if isinstance(item, ActiveLeaderWarning)]
    assert bool(warnings) is warns
