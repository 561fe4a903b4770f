from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.x509 import DNSName, SubjectAlternativeName

from examples.certificate_rotator import Certificate, CertificateController, CertificateSpec
from examples.tests.component_runner import RunControllers
from kubewright import Client, Key, ObjectMeta, Secret
from kubewright.testing import eventually
from kubewright.x509 import create_ca


@pytest.fixture
def key(namespace: str) -> Key:
    return Key(namespace, "web")


def ca_secret(namespace: str, name: str) -> Secret:
    ca = create_ca(name, datetime.now(UTC), timedelta(days=1))
    return Secret(
        metadata=ObjectMeta(namespace=namespace, name="ca"),
        type="kubernetes.io/tls",
        data={"tls.crt": ca.certificate, "tls.key": ca.key},
    )


async def create_certificate(client: Client, key: Key, lifetime_seconds: int = 3600) -> None:
    spec = CertificateSpec(
        hosts=["web.example.com"], caSecret="ca", lifetimeSeconds=lifetime_seconds
    )
    metadata = ObjectMeta(namespace=key.namespace, name=key.name)
    await client.create(Certificate(metadata=metadata, spec=spec))


async def read_certificate(client: Client, key: Key) -> x509.Certificate:
    secret = await client.get(Secret, key)
    return x509.load_pem_x509_certificate(secret.data["tls.crt"])


async def has_issuer(client: Client, key: Key, name: str) -> bool:
    return (await read_certificate(client, key)).issuer.rfc4514_string() == f"CN={name}"


async def has_hosts(client: Client, key: Key, *hosts: str) -> bool:
    extensions = (await read_certificate(client, key)).extensions
    names = extensions.get_extension_for_class(SubjectAlternativeName).value
    return tuple(names.get_values_for_type(DNSName)) == hosts


async def has_expiry(client: Client, key: Key) -> bool:
    return (await client.get(Certificate, key)).status.notAfter is not None


async def test_certificate_follows_its_hosts_and_its_ca(
    run_controllers: RunControllers, key: Key
) -> None:
    async with run_controllers(CertificateController()) as client:
        await create_certificate(client, key)

        async def waits_for_the_ca() -> bool:
            condition = (await client.get(Certificate, key)).status.condition("Ready")
            return condition is not None and condition.reason == "CAMissing"

        await eventually(waits_for_the_ca)
        await client.create(ca_secret(key.namespace, "first"))
        await eventually(lambda: has_issuer(client, key, "first"))
        await eventually(lambda: has_expiry(client, key))

        await client.patch(Certificate, key, {"spec": {"hosts": ["a.example.com"]}})
        await eventually(lambda: has_hosts(client, key, "a.example.com"))

        await client.apply(ca_secret(key.namespace, "second"), force=True)
        await eventually(lambda: has_issuer(client, key, "second"))

        await client.delete(Secret, key)
        await eventually(lambda: has_issuer(client, key, "second"))


async def test_certificate_is_renewed_in_time(run_controllers: RunControllers, key: Key) -> None:
    async with run_controllers(CertificateController()) as client:
        await client.create(ca_secret(key.namespace, "first"))
        await create_certificate(client, key, lifetime_seconds=3)
        first = await eventually(lambda: read_certificate(client, key))

        async def is_renewed() -> bool:
            return (await read_certificate(client, key)).serial_number != first.serial_number

        await eventually(is_renewed)
