"""The TLS context of live credentials: it always verifies, and follows the certificate."""

from __future__ import annotations

import asyncio
import os
import ssl
import stat
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization

from kubewright.errors import ConfigError, KubeconfigError
from kubewright.kubeconfig import ExecPlugin
from kubewright.testing.ca import CertificateAuthority, write_key_pair
from kubewright.x509 import KeyPair

from .support.credentials import (
    SECRET,
    TEST_CA,
    USER_LOCATION,
    FakeClock,
    exec_credential_script,
    make_credentials,
    make_plugin_credentials,
    read_token,
    tls_context,
    write_plugin,
)


async def read_presented_name(
    context: ssl.SSLContext | None, serving: KeyPair, folder: Path, name: str = "host"
) -> str:
    """The common name that a server sees when a client with this context connects."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    write_key_pair(serving, folder / "serving.crt", folder / "serving.key")
    server.load_cert_chain(folder / "serving.crt", folder / "serving.key")
    server.load_verify_locations(cadata=TEST_CA.certificate.decode())
    server.verify_mode = ssl.CERT_OPTIONAL
    subject: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("peercert") or {}
        subject.set_result("".join(value for part in peer.get("subject", ()) for _, value in part))
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=server) as listening:
        reader, writer = await asyncio.open_connection(
            *listening.sockets[0].getsockname(), ssl=context, server_hostname=name
        )
        await reader.read()
        writer.close()
        return await subject


def inline_client_certificate(pair: KeyPair) -> dict[str, Any]:
    return {"client_cert_pem": pair.certificate, "client_key_pem": pair.key}


def client_certificate_files(pair: KeyPair, folder: Path) -> dict[str, Any]:
    write_key_pair(pair, folder / "my.crt", folder / "my.key")
    return {"client_cert_file": str(folder / "my.crt"), "client_key_file": str(folder / "my.key")}


class TestTls:
    async def test_http_has_no_context(self) -> None:
        assert await tls_context(make_credentials(server="http://host")) is None

    async def test_server_is_always_verified(self) -> None:
        for ca_pem in (TEST_CA.certificate, None):
            context = await tls_context(make_credentials(ca_pem=ca_pem))
            assert context is not None
            assert (context.check_hostname, context.verify_mode) == (True, ssl.CERT_REQUIRED)
            assert context.minimum_version == ssl.TLSVersion.TLSv1_2

    async def test_only_the_given_ca_is_trusted(self, tmp_path: Path) -> None:
        context = await tls_context(
            make_credentials(ca_pem=CertificateAuthority("test").certificate)
        )
        with pytest.raises(ssl.SSLCertVerificationError):
            await read_presented_name(context, TEST_CA.issue_serving_certificate("host"), tmp_path)

    async def test_server_with_another_name_is_rejected(self, tmp_path: Path) -> None:
        with pytest.raises(ssl.SSLCertVerificationError):
            await read_presented_name(
                await tls_context(make_credentials()),
                TEST_CA.issue_serving_certificate("other"),
                tmp_path,
            )

    async def test_server_certificate_may_be_its_own_ca(self, tmp_path: Path) -> None:
        serving = TEST_CA.issue_serving_certificate("host")
        assert (
            await read_presented_name(
                await tls_context(make_credentials(ca_pem=serving.certificate)), serving, tmp_path
            )
            == ""
        )

    async def test_certificate_from_data_files_or_plugin(self, tmp_path: Path) -> None:
        pair = TEST_CA.issue_client_certificate("me")
        status = repr(
            {"clientCertificateData": pair.certificate.decode(), "clientKeyData": pair.key.decode()}
        )
        for credentials in (
            make_credentials(**inline_client_certificate(pair)),
            make_credentials(**client_certificate_files(pair, tmp_path)),
            make_credentials(
                client_cert_pem=pair.certificate, client_key_file=str(tmp_path / "my.key")
            ),
            make_plugin_credentials(tmp_path, exec_credential_script(status)),
        ):
            assert (
                await read_presented_name(
                    await tls_context(credentials),
                    TEST_CA.issue_serving_certificate("host"),
                    tmp_path,
                )
                == "me"
            )
            assert await credentials.headers() == {}

    async def test_plugin_that_prints_only_a_token_keeps_the_certificate(
        self, tmp_path: Path
    ) -> None:
        plugin = ExecPlugin(write_plugin(tmp_path, exec_credential_script("{'token': 'x'}")))
        credentials = make_credentials(
            exec_plugin=plugin, **inline_client_certificate(TEST_CA.issue_client_certificate("me"))
        )
        assert await read_token(credentials) == "x"
        assert (
            await read_presented_name(
                await tls_context(credentials), TEST_CA.issue_serving_certificate("host"), tmp_path
            )
            == "me"
        )

    @pytest.mark.parametrize("in_memory", [True, False])
    async def test_key_is_in_memory_or_in_a_private_file_that_is_deleted_at_once(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_memory: bool
    ) -> None:
        key_files: list[Path] = []
        original = ssl.SSLContext.load_cert_chain

        def spy(context: ssl.SSLContext, certificate: str, key: str, password: bytes) -> None:
            assert key.startswith("/proc/self/fd/" if in_memory else str(tmp_path))
            if not in_memory:
                assert stat.S_IMODE(Path(key).stat().st_mode) == 0o600
                assert stat.S_IMODE(Path(key).parent.stat().st_mode) == 0o700
            key_files.append(Path(key))
            original(context, certificate, key, password)

        monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", spy)
        if not in_memory:
            monkeypatch.delattr(os, "memfd_create")
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        assert await tls_context(
            make_credentials(**inline_client_certificate(TEST_CA.issue_client_certificate("me")))
        )
        with pytest.raises(KubeconfigError):
            await tls_context(
                make_credentials(client_cert_pem=TEST_CA.certificate, client_key_pem=b"")
            )
        assert len(key_files) == 2
        assert in_memory or not any(path.parent.exists() for path in key_files)

    async def test_same_context_until_files_rotate(self, tmp_path: Path) -> None:
        clock = FakeClock()
        credentials = make_credentials(
            clock, **client_certificate_files(TEST_CA.issue_client_certificate("old"), tmp_path)
        )
        first = await tls_context(credentials)
        clock.seconds += 60
        assert await tls_context(credentials) is first
        client_certificate_files(TEST_CA.issue_client_certificate("new"), tmp_path)
        assert await tls_context(credentials) is first
        clock.seconds += 60
        second = await tls_context(credentials)
        assert second is not first
        assert (
            await read_presented_name(second, TEST_CA.issue_serving_certificate("host"), tmp_path)
            == "new"
        )

    async def test_refresh_sees_rotated_files_at_once(self, tmp_path: Path) -> None:
        credentials = make_credentials(
            **client_certificate_files(TEST_CA.issue_client_certificate("old"), tmp_path)
        )
        await tls_context(credentials)
        assert not await credentials.refresh()
        client_certificate_files(TEST_CA.issue_client_certificate("new"), tmp_path)
        assert await credentials.refresh()
        assert (
            await read_presented_name(
                await tls_context(credentials), TEST_CA.issue_serving_certificate("host"), tmp_path
            )
            == "new"
        )

    async def test_half_rotated_pair_keeps_the_old_one(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        clock = FakeClock()
        credentials = make_credentials(
            clock, **client_certificate_files(TEST_CA.issue_client_certificate("old"), tmp_path)
        )
        first = await tls_context(credentials)
        new = TEST_CA.issue_client_certificate("new")
        (tmp_path / "my.crt").write_bytes(new.certificate)
        clock.seconds += 60
        assert await tls_context(credentials) is first
        assert "does not belong to the certificate" in caplog.text
        (tmp_path / "my.key").write_bytes(new.key)
        clock.seconds += 60
        assert await tls_context(credentials) is not first

    async def test_new_token_keeps_the_context(self, tmp_path: Path) -> None:
        credentials = make_plugin_credentials(
            tmp_path, exec_credential_script("{'token': f'token-{run}'}")
        )
        context = await tls_context(credentials)
        assert await credentials.refresh()
        assert await tls_context(credentials) is context

    async def test_malformed_pem_names_file_and_key(self, tmp_path: Path) -> None:
        good = TEST_CA.issue_client_certificate("me")
        locked = serialization.load_pem_private_key(good.key, None).private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(SECRET.encode()),
        )
        junk = SECRET.encode()
        for identity, key in (
            (inline_client_certificate(replace(good, certificate=junk)), "client-certificate-data"),
            (inline_client_certificate(replace(good, key=junk)), "client-key-data"),
            (
                inline_client_certificate(
                    replace(good, key=TEST_CA.issue_client_certificate("other").key)
                ),
                "client-key-data",
            ),
            (inline_client_certificate(replace(good, key=locked)), "client-key-data"),
            (
                client_certificate_files(replace(good, certificate=junk), tmp_path),
                "client-certificate",
            ),
        ):
            with pytest.raises(KubeconfigError) as caught:
                await tls_context(make_credentials(**identity))
            assert (caught.value.file, caught.value.key) == (
                USER_LOCATION.file,
                f"{USER_LOCATION.key}.{key}",
            )
            assert "PEM" in str(caught.value)
            assert SECRET not in str(caught.value)

    async def test_missing_certificate_file_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(KubeconfigError, match=r"none cannot be read: .*client-certificate\)"):
            await make_credentials(
                client_cert_file=str(tmp_path / "none"), client_key_file=str(tmp_path / "none")
            ).headers()

    async def test_malformed_ca_is_an_error(self) -> None:
        with pytest.raises(ConfigError, match="is not a PEM certificate"):
            await tls_context(make_credentials(ca_pem=b"junk"))
