"""The CA's Secret and the caBundles, on an API server in memory and with a clock of our own."""

from __future__ import annotations

import asyncio
import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kubewright.builtin import Secret
from kubewright.client import Client
from kubewright.crd import crds
from kubewright.errors import Conflict, Forbidden, Unreachable
from kubewright.meta import Key
from kubewright.testing.fake import FakeApi
from kubewright.tls import Certificate
from kubewright.transport import Request
from kubewright.webhook.ca_bundle import find_ca_bundle_targets
from kubewright.webhook.cert_rotation import CertRotator, ConcurrentWrite
from kubewright.webhook.configuration import (
    WebhookClientConfig,
    build_configurations,
    with_conversions,
)
from kubewright.webhook.options import CertificateTimings

from .rig import Box, BoxConversion, BoxWebhook, OldBox

SECRET = Key("sys", "op-webhook-ca")
DAY = timedelta(days=1)


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


class Cluster:
    """An API server with the configurations, and replicas that look after them."""

    def __init__(self) -> None:
        self.api, self.clock = FakeApi(), Clock()
        self.client = Client(self.api)

    def install(self) -> None:
        reach = WebhookClientConfig(namespace="sys", service="op-webhook-service")
        for each in build_configurations([BoxWebhook()], reach, name="op"):
            self.api.create(f"/apis/admissionregistration.k8s.io/v1/{each['kind'].lower()}s", each)
        for each in with_conversions(crds([Box, OldBox]), [BoxConversion()], reach):
            self.api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", each)

    def replica(self, settle_seconds: float = 0) -> CertRotator:
        targets = find_ca_bundle_targets([BoxWebhook()], [BoxConversion()], "op")
        times = CertificateTimings(propagation_seconds=settle_seconds)
        return CertRotator(
            Client(self.api),
            Certificate(),
            name="op",
            secret=SECRET,
            hosts=["a.svc"],
            targets=targets,
            timings=times,
            clock=self.clock,
        )

    def bundles(self) -> list[bytes]:
        found: list[dict[str, Any]] = []
        for obj in self.api.objects.values():
            found += [hook["clientConfig"] for hook in obj.get("webhooks", ())]
            if "conversion" in obj.get("spec", {}):
                found.append(obj["spec"]["conversion"]["webhook"]["clientConfig"])
        return [base64.b64decode(each.get("caBundle", "")) for each in found]

    def remove_bundles(self) -> None:
        for key, obj in list(self.api.objects.items()):
            if "webhooks" in obj:
                hooks = [
                    hook | {"clientConfig": {"service": hook["clientConfig"]["service"]}}
                    for hook in obj["webhooks"]
                ]
                self.api.store("MODIFIED", key, obj | {"webhooks": hooks})


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.install()
    return made


async def authorities(cluster: Cluster) -> dict[str, bytes]:
    return (await cluster.client.get(Secret, SECRET)).data


async def test_the_first_look_makes_all_and_the_next_writes_nothing(cluster: Cluster) -> None:
    replica = cluster.replica()
    assert replica.problem == "there is no certificate yet"
    await replica.reconcile()
    data = await authorities(cluster)
    assert cluster.bundles() == [data["current.crt"]] * 3
    assert replica.certificate.loaded.startswith(b"-----BEGIN CERTIFICATE-----")
    assert replica.problem == ""
    written = len(cluster.api.writes())
    await replica.reconcile()
    assert len(cluster.api.writes()) == written
    assert all(
        hook["failurePolicy"] == "Fail"
        for obj in cluster.api.objects.values()
        for hook in obj.get("webhooks", ())
    )


async def test_a_year_goes_by(cluster: Cluster) -> None:
    one, two = cluster.replica(), cluster.replica()
    seen = []
    for _ in range(75):
        for replica in (one, two):
            await replica.reconcile()
            assert replica.issuer_certificate in cluster.bundles()[0]
            assert len(set(cluster.bundles())) == 1
        seen.append(one.issuer_certificate)
        cluster.clock.now += 5 * DAY
    assert len(dict.fromkeys(seen)) == 2
    assert one.issuer_certificate == two.issuer_certificate


@pytest.mark.looptime
async def test_a_new_authority_signs_only_when_it_was_everywhere_for_long_enough(
    cluster: Cluster,
) -> None:
    replica = cluster.replica(settle_seconds=60)
    await replica.reconcile()
    first = replica.issuer_certificate
    cluster.clock.now += 250 * DAY
    await replica.reconcile()
    following = (await authorities(cluster))["next.crt"]
    assert cluster.bundles() == [following + first] * 3
    await asyncio.sleep(50)
    cluster.remove_bundles()
    await replica.reconcile()
    await asyncio.sleep(50)
    await replica.reconcile()
    assert replica.issuer_certificate == first
    await asyncio.sleep(11)
    await replica.reconcile()
    assert replica.issuer_certificate == following


async def test_while_the_api_server_is_out_of_reach_certificates_are_renewed(
    cluster: Cluster,
) -> None:
    replica = cluster.replica()
    await replica.reconcile()
    before = replica.certificate.loaded
    cluster.api.fail_next("GET", "", Unreachable("nobody there"), times=1)
    cluster.clock.now += 21 * DAY
    with pytest.raises(Unreachable):
        await replica.reconcile()
    assert replica.certificate.loaded != before
    assert replica.problem == ""


async def test_a_serving_certificate_is_made_anew_without_a_write(cluster: Cluster) -> None:
    replica = cluster.replica()
    await replica.reconcile()
    before, written = replica.certificate.loaded, len(cluster.api.writes())
    cluster.clock.now += 21 * DAY
    await replica.reconcile()
    assert replica.certificate.loaded != before
    assert len(cluster.api.writes()) == written


async def test_what_somebody_removes_is_put_back(cluster: Cluster) -> None:
    replica = cluster.replica()
    await replica.reconcile()
    [before, *_] = cluster.bundles()
    cluster.remove_bundles()
    assert cluster.bundles() != [before] * 3
    await replica.reconcile()
    assert cluster.bundles() == [before] * 3
    await cluster.client.delete(Secret, SECRET)
    await replica.reconcile()
    assert (await authorities(cluster))["current.crt"] == before


async def test_a_damaged_secret_is_filled_with_what_we_know(cluster: Cluster) -> None:
    replica = cluster.replica()
    await replica.reconcile()
    [before, *_] = cluster.bundles()
    await cluster.client.patch(Secret, SECRET, {"data": {"current.key": b"nonsense"}})
    await replica.reconcile()
    assert (await authorities(cluster))["current.crt"] == before
    await cluster.client.patch(Secret, SECRET, {"data": {"current.crt": None}})
    newcomer = cluster.replica()
    await newcomer.reconcile()
    assert newcomer.issuer_certificate != before
    assert cluster.bundles() == [newcomer.issuer_certificate] * 3


async def test_who_comes_second_reads_what_the_first_made(cluster: Cluster) -> None:
    late = cluster.replica()
    created = late.client.create

    async def beaten(obj: Any) -> Any:
        await cluster.replica().reconcile()
        return await created(obj)

    late.client.create = beaten  # type: ignore[method-assign]
    with pytest.raises(ConcurrentWrite):
        await late.reconcile()
    await late.reconcile()
    assert late.issuer_certificate == (await authorities(cluster))["current.crt"]


async def test_a_replica_that_was_stopped_does_not_put_an_old_bundle_over_a_new_one(
    cluster: Cluster,
) -> None:
    """It has read the Secret; then the other one moves the CA on and spreads the bundle; then it goes on."""
    stopped, other = cluster.replica(), cluster.replica()
    await stopped.reconcile()
    await other.reconcile()
    cluster.clock.now += 250 * DAY
    read = stopped.read_secret

    async def slow() -> Any:
        known = await read()
        await other.reconcile()
        return known

    stopped.read_secret = slow  # type: ignore[method-assign]
    with pytest.raises((ConcurrentWrite, Conflict)):
        await stopped.reconcile()
    data = await authorities(cluster)
    assert set(cluster.bundles()) == {data["next.crt"] + data["current.crt"]}


async def test_a_configuration_that_comes_later_gets_its_bundle() -> None:
    cluster = Cluster()
    replica = cluster.replica()
    await replica.reconcile()
    assert replica.problem == ""
    cluster.install()
    await replica.reconcile()
    assert cluster.bundles() == [(await authorities(cluster))["current.crt"]] * 3


async def test_a_target_that_cannot_be_written_holds_up_no_other_and_no_new_authority_signs(
    cluster: Cluster,
) -> None:
    replica = cluster.replica()
    await replica.reconcile()
    first = replica.issuer_certificate

    def no_mutating(request: Request) -> Exception | None:
        patching = request.method == "PATCH" and "mutatingwebhook" in request.path
        return Forbidden("patch mutatingwebhookconfigurations is forbidden") if patching else None

    cluster.api.faults.append(no_mutating)
    cluster.clock.now += 250 * DAY
    for _ in range(3):
        with pytest.raises(Forbidden):
            await replica.reconcile()
    data = await authorities(cluster)
    assert replica.issuer_certificate == first == data["current.crt"]
    assert sorted(cluster.bundles(), key=len) == [first, *[data["next.crt"] + first] * 2]
    replica.log_error(Forbidden("patch is forbidden"))
    assert replica.last_error.endswith("Grant the generated roles: kubectl apply -k config/rbac")
    cluster.api.faults.clear()
    await replica.reconcile()
    await replica.reconcile()
    assert replica.issuer_certificate == data["next.crt"]


async def test_a_crd_without_a_conversion_webhook_is_left_alone_and_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = Cluster()
    [crd] = crds([Box, OldBox])
    cluster.api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
    replica = cluster.replica()
    await replica.reconcile()
    await replica.reconcile()
    assert [request for request in cluster.api.writes() if "customresource" in request.path] == []
    assert [record.levelname for record in caplog.records].count("WARNING") == 1


@pytest.mark.looptime
async def test_trouble_is_told_once_and_tried_again(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    replica = cluster.replica()
    cluster.api.fail_next("GET", "/secrets/", Forbidden("get secrets is forbidden"), times=3)
    task = asyncio.create_task(replica.run())
    await asyncio.sleep(1)
    assert replica.problem.startswith(
        "the certificates of the webhooks cannot be looked after: get secrets is forbidden"
    )
    await asyncio.sleep(60)
    task.cancel()
    assert replica.problem == ""
    assert [record.levelname for record in caplog.records].count("ERROR") == 1


@pytest.mark.looptime
async def test_what_nobody_foresaw_ends_nothing_however_long_it_lasts(cluster: Cluster) -> None:
    replica = cluster.replica()
    cluster.api.fail_next(
        "GET", "/secrets/", ZeroDivisionError("odd"), times=1200
    )  # 2.0 ** 1024 overflows
    task = asyncio.create_task(replica.run())
    await asyncio.sleep(4 * 3600)
    assert not task.done()
    task.cancel()
    assert replica.problem == ""
