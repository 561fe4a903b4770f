"""Webhooks that require the client certificate of the real API server."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from kubewright.errors import ConfigError
from kubewright.kubeconfig import Connection, load_config
from kubewright.manager import Manager
from kubewright.testing import eventually
from kubewright.testing.ca import CertificateAuthority, write_key_pair
from kubewright.testing.controlplane import ControlPlane, KubectlFailed
from kubewright.webhook.options import WebhookOptions
from kubewright.x509 import KeyPair

from .box_kind import (
    LOCALHOST,
    BoxConversion,
    BoxWebhook,
    box_manifests,
    make_options,
    run_kubectl,
    run_webhook_manager,
    wait_until_trusted,
    webhook_port,
)
from .conftest import remove_webhooks
from .test_admission import make_box, make_review

CLIENT_CA = CertificateAuthority("webhook-clients")
VALIDATE_PATH = "/validate-hooks-kubewright-test-v2-box"
BOX = "apiVersion: hooks.kubewright.test/v2\nkind: Box\nmetadata: {name: %s}\nspec: {width: 3}\n"
OLD_BOX = (
    "apiVersion: hooks.kubewright.test/v1\nkind: Box\nmetadata: {name: old}\nspec: {size: 3}\n"
)


def write_admission_configuration(folder: Path) -> Path:
    """The files that make an API server send a client certificate to all webhooks."""
    pair = CLIENT_CA.issue_client_certificate("kube-apiserver")
    write_key_pair(pair, folder / "client.crt", folder / "client.key")
    user = {
        "client-certificate": str(folder / "client.crt"),
        "client-key": str(folder / "client.key"),
    }
    kubeconfig = {"apiVersion": "v1", "kind": "Config", "users": [{"name": "*", "user": user}]}
    (folder / "kubeconfig").write_text(json.dumps(kubeconfig))
    plugin_configuration = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "WebhookAdmissionConfiguration",
        "kubeConfigFile": str(folder / "kubeconfig"),
    }
    configuration = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AdmissionConfiguration",
        "plugins": [
            {"name": name, "configuration": plugin_configuration}
            for name in ("MutatingAdmissionWebhook", "ValidatingAdmissionWebhook")
        ],
    }
    (folder / "admission.json").write_text(json.dumps(configuration))
    return folder / "admission.json"


@pytest.fixture(scope="module")
def identified_plane(
    binaries: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """A control plane that authenticates to webhooks, with the namespace of the manager."""
    configuration = write_admission_configuration(tmp_path_factory.mktemp("admission"))
    plane = ControlPlane(binaries, extra_args=[f"--admission-control-config-file={configuration}"])
    plane.start_sync()
    plane.create_namespace("boxes")
    yield plane
    plane.stop_sync()


@pytest.fixture
def client_ca_file(tmp_path: Path) -> Path:
    (tmp_path / "clients.crt").write_bytes(CLIENT_CA.certificate)
    return tmp_path / "clients.crt"


async def load_connection(plane: ControlPlane) -> Connection:
    return await asyncio.to_thread(
        load_config, str(plane.admin_kubeconfig), environ={}, home=Path("/")
    )


async def install_boxes(plane: ControlPlane, manager: Manager, name: str) -> None:
    manifests = box_manifests(webhook_port(manager), [BoxWebhook()], name)
    await asyncio.to_thread(plane.apply, manifests)
    await asyncio.to_thread(plane.wait_for_crds)
    await wait_until_trusted(manager)


async def post_review(
    manager: Manager, tmp_path: Path, pair: KeyPair | None = None
) -> tuple[int, str]:
    """A review sent by a client that is not the API server."""
    assert manager.webhook_runner is not None
    rotator = manager.webhook_runner.cert_rotator
    assert rotator is not None
    tls = ssl.create_default_context(cadata=rotator.issuer_certificate.decode())
    if pair is not None:
        write_key_pair(pair, tmp_path / "my.crt", tmp_path / "my.key")
        tls.load_cert_chain(tmp_path / "my.crt", tmp_path / "my.key")
    url = f"https://{LOCALHOST}:{webhook_port(manager)}{VALIDATE_PATH}"
    headers = {"Content-Type": "application/json"}
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, data=make_review(make_box()), ssl=tls, headers=headers) as response,
    ):
        return response.status, await response.text()


async def test_reviews_of_the_api_server_are_accepted_and_those_of_others_are_not(
    identified_plane: ControlPlane,
    client_ca_file: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    plane, webhook = identified_plane, BoxWebhook()
    options = make_options(
        "boxes", "boxes", client_ca_file=str(client_ca_file), client_names=("kube-apiserver",)
    )
    async with run_webhook_manager(
        await load_connection(plane), options, webhook, BoxConversion()
    ) as manager:
        await install_boxes(plane, manager, "boxes")

        async def apply(manifest: str) -> str:
            return await run_kubectl(plane, "-n", "boxes", "apply", "-f", "-", stdin=manifest)

        await eventually(lambda: apply(BOX % "first"), within=60, every=0.2)
        assert {name for name, _ in webhook.requests} == {"default", "validate"}
        # The API server has no client certificate for conversions.
        await apply(OLD_BOX)
        webhook.requests.clear()

        status, text = await post_review(manager, tmp_path)
        assert status == 403
        assert "requires the client certificate of the API server" in text
        assert "AdmissionConfiguration" in text
        other_name = CLIENT_CA.issue_client_certificate("system:node:a")
        status, text = await post_review(manager, tmp_path, other_name)
        assert (status, '"system:node:a", which -webhook-client-names' in text) == (403, True)
        stranger = CertificateAuthority("stranger").issue_client_certificate("kube-apiserver")
        with pytest.raises((aiohttp.ClientError, ssl.SSLError)):
            await post_review(manager, tmp_path, stranger)
        assert webhook.requests == []
        assert caplog.text.count("rejected a webhook client") == 1

        api_server = CLIENT_CA.issue_client_certificate("kube-apiserver")
        assert (await post_review(manager, tmp_path, api_server))[0] == 200
        # Another CA: the certificate of the API server is no longer accepted, and then it is again.
        await asyncio.to_thread(
            client_ca_file.write_bytes, CertificateAuthority("other").certificate
        )
        await eventually(lambda: is_handshake_rejected(manager, tmp_path, api_server), every=0.2)
        await asyncio.to_thread(client_ca_file.write_bytes, b"half a certif")
        await eventually(lambda: "keeping the old CA of webhook clients" in caplog.text)
        assert await is_handshake_rejected(manager, tmp_path, api_server)
        await asyncio.to_thread(client_ca_file.write_bytes, CLIENT_CA.certificate)
        await eventually(lambda: apply(BOX % "second"), within=60, every=0.5)


async def is_handshake_rejected(manager: Manager, tmp_path: Path, pair: KeyPair) -> bool:
    try:
        await post_review(manager, tmp_path, pair)
    except (aiohttp.ClientError, ssl.SSLError):
        return True
    return False


async def test_api_server_without_a_certificate_gets_a_clear_message(
    control_plane: ControlPlane, namespace: str, client_ca_file: Path
) -> None:
    options = make_options("anonymous", namespace, client_ca_file=str(client_ca_file))
    async with run_webhook_manager(
        await load_connection(control_plane), options, BoxWebhook(), BoxConversion()
    ) as manager:
        await install_boxes(control_plane, manager, "anonymous")
        try:

            async def is_rejected() -> bool:
                with pytest.raises(KubectlFailed) as caught:
                    await run_kubectl(
                        control_plane, "-n", namespace, "apply", "-f", "-", stdin=BOX % "first"
                    )
                return "requires the client certificate of the API server" in str(caught.value)

            await eventually(is_rejected, within=60, every=0.2)
        finally:
            await asyncio.to_thread(remove_webhooks, control_plane, "anonymous")


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "cannot read the CA of webhook clients"), (b"junk", "is not a PEM certificate")],
)
async def test_unusable_ca_file_is_an_error_at_the_start(
    control_plane: ControlPlane,
    namespace: str,
    tmp_path: Path,
    content: bytes | None,
    message: str,
) -> None:
    file = tmp_path / "clients.crt"
    if content is not None:
        file.write_bytes(content)
    manager = Manager(
        await load_connection(control_plane),
        make_options("unusable", namespace, client_ca_file=str(file)),
    )
    manager.add(BoxWebhook())
    with pytest.raises(ConfigError, match=f"{message}.*-webhook-client-ca-file"):
        await manager.run(asyncio.Event())


def test_names_without_a_ca_are_an_error() -> None:
    with pytest.raises(ConfigError, match="-webhook-client-names needs -webhook-client-ca-file"):
        WebhookOptions(client_names=("kube-apiserver",))
