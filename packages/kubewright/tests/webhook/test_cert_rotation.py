"""The Secret of the CA and the caBundles, on a fake API server and with a fake clock."""

from __future__ import annotations

import asyncio
import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kubewright.builtin import Secret
from kubewright.client import Client
from kubewright.crd import build_crds
from kubewright.errors import Conflict, Forbidden, Unreachable
from kubewright.kind import Key
from kubewright.testing.fake import FakeApi
from kubewright.tls import ServingCertificate
from kubewright.transport import Request
from kubewright.webhook.ca_bundle import find_ca_bundle_targets
from kubewright.webhook.cert_rotation import CertRotator, ConcurrentWrite
from kubewright.webhook.configuration import (
    WebhookClientConfig,
    build_configurations,
    with_conversions,
)
from kubewright.webhook.options import CertificateTimings

from .box_kind import Box, BoxConversion, BoxWebhook, OldBox

CA_SECRET = Key("sys", "op-webhook-ca")
DAY = timedelta(days=1)


class FakeClock:
    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


class RotationHarness:
    """A fake API server with the webhook configurations, and rotators of several replicas."""

    def __init__(self) -> None:
        self.api, self.clock = FakeApi(), FakeClock()
        self.client = Client(self.api)

    def create_configurations(self) -> None:
        client_config = WebhookClientConfig(namespace="sys", service="op-webhook-service")
        for obj in build_configurations([BoxWebhook()], client_config, name="op"):
            self.api.create(f"/apis/admissionregistration.k8s.io/v1/{obj['kind'].lower()}s", obj)
        for crd in with_conversions(build_crds([Box, OldBox]), [BoxConversion()], client_config):
            self.api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)

    def make_rotator(self, propagation_seconds: float = 0) -> CertRotator:
        targets = find_ca_bundle_targets([BoxWebhook()], [BoxConversion()], "op")
        timings = CertificateTimings(propagation_seconds=propagation_seconds)
        return CertRotator(
            Client(self.api),
            ServingCertificate(),
            name="op",
            secret=CA_SECRET,
            hosts=["a.svc"],
            targets=targets,
            timings=timings,
            clock=self.clock,
        )

    def read_ca_bundles(self) -> list[bytes]:
        configs: list[dict[str, Any]] = []
        for obj in self.api.objects.values():
            configs += [hook["clientConfig"] for hook in obj.get("webhooks", ())]
            if "conversion" in obj.get("spec", {}):
                configs.append(obj["spec"]["conversion"]["webhook"]["clientConfig"])
        return [base64.b64decode(config.get("caBundle", "")) for config in configs]

    def remove_ca_bundles(self) -> None:
        for key, obj in list(self.api.objects.items()):
            if "webhooks" in obj:
                hooks = [
                    hook | {"clientConfig": {"service": hook["clientConfig"]["service"]}}
                    for hook in obj["webhooks"]
                ]
                self.api.store("MODIFIED", key, obj | {"webhooks": hooks})


@pytest.fixture
def harness() -> RotationHarness:
    harness = RotationHarness()
    harness.create_configurations()
    return harness


async def read_ca_secret(cluster: RotationHarness) -> dict[str, bytes]:
    return (await cluster.client.get(Secret, CA_SECRET)).data


async def test_first_reconcile_creates_everything_and_the_next_writes_nothing(
    harness: RotationHarness,
) -> None:
    replica = harness.make_rotator()
    assert replica.problem == "there is no certificate yet"
    await replica.check()
    data = await read_ca_secret(harness)
    assert harness.read_ca_bundles() == [data["current.crt"]] * 3
    assert replica.tls_certificate.loaded_pem.startswith(b"-----BEGIN CERTIFICATE-----")
    assert replica.problem == ""
    written = len(harness.api.writes())
    await replica.check()
    assert len(harness.api.writes()) == written
    assert all(
        hook["failurePolicy"] == "Fail"
        for obj in harness.api.objects.values()
        for hook in obj.get("webhooks", ())
    )


async def test_ca_rotates_once_in_a_year(harness: RotationHarness) -> None:
    one, two = harness.make_rotator(), harness.make_rotator()
    issuers = []
    for _ in range(75):
        for replica in (one, two):
            await replica.check()
            assert replica.issuer_certificate in harness.read_ca_bundles()[0]
            assert len(set(harness.read_ca_bundles())) == 1
        issuers.append(one.issuer_certificate)
        harness.clock.now += 5 * DAY
    assert len(dict.fromkeys(issuers)) == 2
    assert one.issuer_certificate == two.issuer_certificate


@pytest.mark.looptime
async def test_new_ca_signs_only_after_it_was_everywhere_for_long_enough(
    harness: RotationHarness,
) -> None:
    replica = harness.make_rotator(propagation_seconds=60)
    await replica.check()
    first = replica.issuer_certificate
    harness.clock.now += 250 * DAY
    await replica.check()
    following = (await read_ca_secret(harness))["next.crt"]
    assert harness.read_ca_bundles() == [following + first] * 3
    await asyncio.sleep(50)
    harness.remove_ca_bundles()
    await replica.check()
    await asyncio.sleep(50)
    await replica.check()
    assert replica.issuer_certificate == first
    await asyncio.sleep(11)
    await replica.check()
    assert replica.issuer_certificate == following


async def test_certificate_is_renewed_while_the_api_server_is_unreachable(
    harness: RotationHarness,
) -> None:
    replica = harness.make_rotator()
    await replica.check()
    before = replica.tls_certificate.loaded_pem
    harness.api.fail_next("GET", "", Unreachable("connection refused"), times=1)
    harness.clock.now += 21 * DAY
    with pytest.raises(Unreachable):
        await replica.check()
    assert replica.tls_certificate.loaded_pem != before
    assert replica.problem == ""


async def test_serving_certificate_is_renewed_without_a_write(harness: RotationHarness) -> None:
    replica = harness.make_rotator()
    await replica.check()
    before, written = replica.tls_certificate.loaded_pem, len(harness.api.writes())
    harness.clock.now += 21 * DAY
    await replica.check()
    assert replica.tls_certificate.loaded_pem != before
    assert len(harness.api.writes()) == written


async def test_deleted_secret_and_bundles_are_restored(harness: RotationHarness) -> None:
    replica = harness.make_rotator()
    await replica.check()
    [before, *_] = harness.read_ca_bundles()
    harness.remove_ca_bundles()
    assert harness.read_ca_bundles() != [before] * 3
    await replica.check()
    assert harness.read_ca_bundles() == [before] * 3
    await harness.client.delete(Secret, CA_SECRET)
    await replica.check()
    assert (await read_ca_secret(harness))["current.crt"] == before


async def test_damaged_secret_is_restored_from_memory(harness: RotationHarness) -> None:
    replica = harness.make_rotator()
    await replica.check()
    [before, *_] = harness.read_ca_bundles()
    await harness.client.patch(Secret, CA_SECRET, {"data": {"current.key": b"nonsense"}})
    await replica.check()
    assert (await read_ca_secret(harness))["current.crt"] == before
    await harness.client.patch(Secret, CA_SECRET, {"data": {"current.crt": None}})
    restarted = harness.make_rotator()
    await restarted.check()
    assert restarted.issuer_certificate != before
    assert harness.read_ca_bundles() == [restarted.issuer_certificate] * 3


async def test_second_replica_uses_the_ca_of_the_first(harness: RotationHarness) -> None:
    late = harness.make_rotator()
    create = late._client.create

    async def create_after_the_other(obj: Any) -> Any:
        await harness.make_rotator().check()
        return await create(obj)

    late._client.create = create_after_the_other  # type: ignore[method-assign,assignment]
    with pytest.raises(ConcurrentWrite):
        await late.check()
    await late.check()
    assert late.issuer_certificate == (await read_ca_secret(harness))["current.crt"]


async def test_suspended_replica_does_not_replace_a_new_bundle_by_an_old_one(
    harness: RotationHarness,
) -> None:
    # It has read the Secret. Then the other replica rotates the CA and writes the bundles.
    suspended, other = harness.make_rotator(), harness.make_rotator()
    await suspended.check()
    await other.check()
    harness.clock.now += 250 * DAY
    read = suspended._read_secret

    async def read_slowly() -> Any:
        stored = await read()
        await other.check()
        return stored

    suspended._read_secret = read_slowly  # type: ignore[method-assign]
    with pytest.raises((ConcurrentWrite, Conflict)):
        await suspended.check()
    data = await read_ca_secret(harness)
    assert set(harness.read_ca_bundles()) == {data["next.crt"] + data["current.crt"]}


async def test_configuration_that_is_created_later_gets_its_bundle() -> None:
    cluster = RotationHarness()
    replica = cluster.make_rotator()
    await replica.check()
    assert replica.problem == ""
    cluster.create_configurations()
    await replica.check()
    assert cluster.read_ca_bundles() == [(await read_ca_secret(cluster))["current.crt"]] * 3


async def test_failing_target_delays_the_new_ca_but_no_other_target(
    harness: RotationHarness,
) -> None:
    replica = harness.make_rotator()
    await replica.check()
    first = replica.issuer_certificate

    def forbid_mutating(request: Request) -> Exception | None:
        patching = request.method == "PATCH" and "mutatingwebhook" in request.path
        return Forbidden("patch mutatingwebhookconfigurations is forbidden") if patching else None

    harness.api.faults.append(forbid_mutating)
    harness.clock.now += 250 * DAY
    for _ in range(3):
        with pytest.raises(Forbidden):
            await replica.check()
    data = await read_ca_secret(harness)
    assert replica.issuer_certificate == first == data["current.crt"]
    assert sorted(harness.read_ca_bundles(), key=len) == [first, *[data["next.crt"] + first] * 2]
    replica._log_error(Forbidden("patch is forbidden"))
    command = "kubectl apply --server-side -k config/rbac"
    assert replica._last_error.endswith(f"Grant the generated roles: {command}")
    harness.api.faults.clear()
    await replica.check()
    await replica.check()
    assert replica.issuer_certificate == data["next.crt"]


async def test_crd_without_a_conversion_webhook_is_logged_and_not_written(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = RotationHarness()
    [crd] = build_crds([Box, OldBox])
    cluster.api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
    replica = cluster.make_rotator()
    await replica.check()
    await replica.check()
    assert [request for request in cluster.api.writes() if "customresource" in request.path] == []
    assert [record.levelname for record in caplog.records].count("WARNING") == 1


@pytest.mark.looptime
async def test_failure_is_logged_once_and_retried(
    harness: RotationHarness, caplog: pytest.LogCaptureFixture
) -> None:
    replica = harness.make_rotator()
    harness.api.fail_next("GET", "/secrets/", Forbidden("get secrets is forbidden"), times=3)
    task = asyncio.create_task(replica.run())
    await asyncio.sleep(1)
    assert replica.problem.startswith(
        "cannot maintain the certificates of the webhooks: get secrets is forbidden"
    )
    await asyncio.sleep(60)
    task.cancel()
    assert replica.problem == ""
    assert [record.levelname for record in caplog.records].count("ERROR") == 1


@pytest.mark.looptime
async def test_unexpected_errors_never_end_the_rotation(
    harness: RotationHarness,
) -> None:
    replica = harness.make_rotator()
    # 2.0 ** 1024 overflows: the backoff must have a limit.
    harness.api.fail_next("GET", "/secrets/", ZeroDivisionError("odd"), times=1200)
    task = asyncio.create_task(replica.run())
    await asyncio.sleep(4 * 3600)
    assert not task.done()
    task.cancel()
    assert replica.problem == ""
