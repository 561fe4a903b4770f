"""Live credentials: what goes on the wire, when it is looked at again, and what happens when that fails."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import re
import ssl
import stat
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization

from kubewright import auth
from kubewright.auth import Credentials
from kubewright.errors import ConfigError, KubeconfigError
from kubewright.kubeconfig import Connection, ExecPlugin, Identity
from kubewright.kubefile import Place
from kubewright.testing import eventually
from kubewright.testing.certificates import Authority, Pair

SECRET = "s3cr3t-never-shown"
AUTHORITY = Authority("test")
PLACE = Place("/etc/config", "users[name=me].user")
V1 = "client.authentication.k8s.io/v1"


class Clock:
    """Time that passes when told to."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


def credentials(
    clock: Clock | None = None, *, server: str = "https://host", ca_pem: bytes | None = AUTHORITY.certificate, **who: Any
) -> Credentials:
    identity = Identity(place=PLACE, **who)
    return Credentials(Connection(server=server, ca_pem=ca_pem, identity=identity), clock or Clock())


async def token_of(live: Credentials) -> str:
    return (await live.headers())["Authorization"].removeprefix("Bearer ")


class TestHeaders:
    """Token, password, nothing."""

    async def test_anonymous(self) -> None:
        live = credentials()
        assert await live.headers() == {}
        assert not await live.refresh()

    async def test_token(self) -> None:
        live = credentials(token=SECRET)
        assert await live.headers() == {"Authorization": f"Bearer {SECRET}"}
        assert not await live.refresh()

    async def test_password(self) -> None:
        live = credentials(username="jörg", password="a:b")
        expected = base64.b64encode("jörg:a:b".encode()).decode()
        assert await live.headers() == {"Authorization": f"Basic {expected}"}

    @pytest.mark.parametrize("token", ["two words", "two\nlines", "ümlaut", "nul\0", " "])
    async def test_token_that_no_header_can_carry(self, token: str) -> None:
        with pytest.raises(KubeconfigError, match="is no token") as caught:
            await credentials(token=token).headers()
        assert caught.value.key == "users[name=me].user.token"
        assert token.strip() not in str(caught.value) or not token.strip()

    async def test_repr_shows_no_secret(self) -> None:
        live = credentials(token=SECRET)
        await live.headers()
        assert SECRET not in repr(live.credential)
        assert SECRET not in repr(live.connection)

    async def test_callers_may_change_what_they_get(self) -> None:
        live = credentials(token=SECRET)
        (await live.headers()).clear()
        assert await live.headers()


class TestTokenFile:
    """Read again every minute, and after a 401."""

    async def test_read_again_when_due(self, tmp_path: Path) -> None:
        clock, file = Clock(), tmp_path / "token"
        live = credentials(clock, token_file=str(file), token="inline")
        file.write_text("one\n")
        assert await token_of(live) == "one"
        file.write_text("two\n")
        clock.seconds += 59
        assert await token_of(live) == "one"
        clock.seconds += 1
        assert await token_of(live) == "two"

    async def test_no_thread_between_looks(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        file = tmp_path / "token"
        file.write_text("one")
        live = credentials(token_file=str(file))
        await live.headers()

        def refused(*_: object) -> None:
            raise AssertionError("I/O on the hot path")

        monkeypatch.setattr(asyncio, "to_thread", refused)
        monkeypatch.setattr(asyncio, "create_task", refused)
        assert await token_of(live) == "one"
        assert await live.ssl_context() is not None

    async def test_refresh_reads_now(self, tmp_path: Path) -> None:
        file = tmp_path / "token"
        file.write_text("one")
        live = credentials(token_file=str(file))
        assert await token_of(live) == "one"
        assert not await live.refresh()
        file.write_text("two")
        assert await live.refresh()
        assert await token_of(live) == "two"

    async def test_latecomer_retries_without_another_look(self, tmp_path: Path) -> None:
        file = tmp_path / "token"
        file.write_text("one")
        live = credentials(token_file=str(file))
        refused = await live.headers()
        file.write_text("two")
        assert await live.refresh(refused)
        file.unlink()
        assert await live.refresh(refused)
        assert not await live.refresh(await live.headers())

    @pytest.mark.parametrize("damage", [Path.unlink, lambda file: file.write_text(""), lambda file: file.write_text(f"{SECRET} {SECRET}")])
    async def test_failed_read_keeps_the_old_token(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: Callable[[Path], object]
    ) -> None:
        clock, file = Clock(), tmp_path / "token"
        file.write_text("one")
        live = credentials(clock, token_file=str(file))
        await live.headers()
        damage(file)
        clock.seconds += 60
        with caplog.at_level(logging.DEBUG, "kubewright.auth"):
            assert await token_of(live) == "one"
            assert await token_of(live) == "one"
            assert not await live.refresh()
        assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
        assert "the old ones stay in use" in caplog.text
        assert SECRET not in caplog.text
        file.write_text("two")
        clock.seconds += 60
        assert await token_of(live) == "two"

    async def test_first_read_must_succeed(self, tmp_path: Path) -> None:
        file = tmp_path / "token"
        live = credentials(token_file=str(file))
        with pytest.raises(KubeconfigError, match=re.escape(f"{file} cannot be read: No such file")):
            await live.headers()
        file.write_text("one")
        assert await token_of(live) == "one"

    async def test_without_a_kubeconfig_the_error_names_the_file(self, tmp_path: Path) -> None:
        live = Credentials(Connection("https://host", Identity(token_file=str(tmp_path / "token"))))
        with pytest.raises(ConfigError, match=r"^\S+token cannot be read"):
            await live.headers()


def plugin_in(folder: Path, body: str) -> str:
    """A plugin that counts its runs in the file `runs`."""
    script = folder / "plugin"
    head = "import json, os, sys, time, pathlib\n" + f"folder = pathlib.Path({str(folder)!r})\n"
    count = "runs = folder / 'runs'\nwith runs.open('a') as file: file.write('x')\nrun = len(runs.read_text())\n"
    script.write_text(f"#!{sys.executable}\n{head}{count}{body}\n")
    script.chmod(0o700)
    return str(script)


def runs(folder: Path) -> int:
    return len((folder / "runs").read_text())


def printing(status: str, version: str = V1, kind: str = "ExecCredential") -> str:
    return f"print(json.dumps({{'apiVersion': {version!r}, 'kind': {kind!r}, 'status': {status}}}))"


def with_plugin(folder: Path, body: str, clock: Clock | None = None, **options: Any) -> Credentials:
    return credentials(clock, exec_plugin=ExecPlugin(command=plugin_in(folder, body), **options))


class TestExecPlugin:
    """A command that prints credentials."""

    async def test_cached_until_refresh(self, tmp_path: Path) -> None:
        clock = Clock()
        live = with_plugin(tmp_path, printing("{'token': f'token-{run}'}"), clock)
        assert await token_of(live) == "token-1"
        clock.seconds += 1e6
        assert await token_of(live) == "token-1"
        assert await live.refresh()
        assert await token_of(live) == "token-2"

    async def test_unchanged_is_not_worth_a_retry(self, tmp_path: Path) -> None:
        live = with_plugin(tmp_path, printing("{'token': 'same'}"))
        await live.headers()
        assert not await live.refresh()
        assert runs(tmp_path) == 2

    @pytest.mark.parametrize(("lives", "used"), [(600, 590), (5, 1), (-1000, 1)])
    async def test_expiry(self, tmp_path: Path, lives: float, used: float) -> None:
        expires = (datetime.now(UTC) + timedelta(seconds=lives)).isoformat()
        clock = Clock()
        live = with_plugin(tmp_path, printing(f"{{'token': f'token-{{run}}', 'expirationTimestamp': {expires!r}}}"), clock)
        assert await token_of(live) == "token-1"
        assert live.due - clock.seconds == pytest.approx(used, abs=30 if lives > 100 else 0)
        clock.seconds = live.due
        assert await token_of(live) == "token-2"

    async def test_single_flight(self, tmp_path: Path) -> None:
        live = with_plugin(tmp_path, printing("{'token': f'token-{run}'}"))
        assert await asyncio.gather(*(token_of(live) for _ in range(50))) == ["token-1"] * 50
        assert await asyncio.gather(*(live.refresh() for _ in range(50))) == [True] * 50
        assert runs(tmp_path) == 2

    async def test_cancelled_caller_does_not_take_the_others_along(self, tmp_path: Path) -> None:
        live = with_plugin(tmp_path, printing("{'token': 'one'}"))
        first, second = asyncio.create_task(live.headers()), asyncio.create_task(live.headers())
        await asyncio.sleep(0)  # both have started, and wait for the plugin
        assert live.flight is not None
        first.cancel()
        assert await second == {"Authorization": "Bearer one"}
        assert first.cancelled()
        assert runs(tmp_path) == 1

    async def test_environment_and_input(self, tmp_path: Path) -> None:
        body = "(folder / 'seen').write_text(json.dumps([dict(os.environ), sys.stdin.read(), sys.argv[1:]]))\n" + printing("{'token': 'x'}")
        config = {"audience": "me", "count": 3}
        plugin = ExecPlugin(
            command=plugin_in(tmp_path, body),
            args=("--one", "two words"),
            env={"EXTRA": "1"},
            provide_cluster_info=True,
            cluster_config=config,
        )
        connection = Connection("https://host", Identity(exec_plugin=plugin), AUTHORITY.certificate, "kubernetes", "http://proxy")
        live = Credentials(connection, environ={"INHERITED": "yes", "EXTRA": "0", "PATH": os.environ["PATH"]})
        assert await token_of(live) == "x"
        environ, stdin, arguments = json.loads((tmp_path / "seen").read_text())
        assert (environ["INHERITED"], environ["EXTRA"]) == ("yes", "1")
        assert (stdin, arguments) == ("", ["--one", "two words"])
        assert json.loads(environ["KUBERNETES_EXEC_INFO"]) == {
            "apiVersion": V1,
            "kind": "ExecCredential",
            "spec": {
                "interactive": False,
                "cluster": {
                    "server": "https://host",
                    "tls-server-name": "kubernetes",
                    "certificate-authority-data": base64.b64encode(AUTHORITY.certificate).decode(),
                    "proxy-url": "http://proxy",
                    "config": config,
                },
            },
        }

    async def test_no_cluster_info_unless_asked_for(self, tmp_path: Path) -> None:
        body = "(folder / 'seen').write_text(os.environ['KUBERNETES_EXEC_INFO'])\n" + printing("{'token': 'x'}", V1 + "beta1")
        await with_plugin(tmp_path, body, api_version=V1 + "beta1").headers()
        assert json.loads((tmp_path / "seen").read_text()) == {
            "apiVersion": V1 + "beta1",
            "kind": "ExecCredential",
            "spec": {"interactive": False},
        }

    async def test_token_of_the_kubeconfig_comes_first(self, tmp_path: Path) -> None:
        plugin = ExecPlugin(command=plugin_in(tmp_path, "sys.exit(1)"))
        assert await token_of(credentials(token="mine", exec_plugin=plugin)) == "mine"

    @pytest.mark.parametrize(
        ("body", "words"),
        [
            (f"print('who are you', file=sys.stderr); print({SECRET!r}); sys.exit(3)", "ended with code 3 and said: who are you"),
            (f"print('token: {SECRET}', file=sys.stderr); sys.exit(1)", "said: token: ***"),
            ("sys.exit(1)", "said: nothing"),
            ("os.kill(os.getpid(), 9)", "ended with code -9"),
            (f"print({SECRET!r})", "something else than an ExecCredential"),
            ("", "something else than an ExecCredential"),
            ("sys.stdout.buffer.write(b'\\xff{')", "something else than an ExecCredential"),
            (printing(f"{{'token': ['{SECRET}']}}"), "something else than an ExecCredential"),
            (printing(f"{{'token': '{SECRET}', 'expirationTimestamp': 'soon'}}"), "something else than an ExecCredential"),
            (printing(f"{{'token': '{SECRET}'}}", kind="Secret"), f"did not print an ExecCredential of {V1}"),
            (printing(f"{{'token': '{SECRET}'}}", version=V1 + "beta1"), f"did not print an ExecCredential of {V1}"),
            (printing("None"), "neither a token nor a certificate"),
            (printing("{'token': None}"), "neither a token nor a certificate"),
            (printing(f"{{'clientKeyData': '{SECRET}'}}"), "a key without its certificate"),
            (printing(f"{{'clientKeyData': '{SECRET}', 'clientCertificateData': '{SECRET}'}}"), "PEM certificate"),
            (printing(f"{{'token': '{SECRET} {SECRET}'}}"), "is no token"),
        ],
    )
    async def test_failure_in_plain_words(self, tmp_path: Path, body: str, words: str) -> None:
        with pytest.raises(KubeconfigError) as caught:
            await with_plugin(tmp_path, body).headers()
        assert words in str(caught.value)
        assert (caught.value.file, caught.value.key) == (PLACE.file, PLACE.key + ".exec")
        assert SECRET not in str(caught.value)

    async def test_failure_later_keeps_the_old_token(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        live = with_plugin(tmp_path, "sys.exit('logged out') if run > 1 else None\n" + printing("{'token': 'one'}"))
        assert await token_of(live) == "one"
        assert not await live.refresh()
        assert await token_of(live) == "one"
        assert "said: logged out" in caplog.text

    async def test_not_found_gives_the_hint(self) -> None:
        with pytest.raises(KubeconfigError, match=r'"no-such-plugin" was not found\. Run: brew install it'):
            await credentials(exec_plugin=ExecPlugin("no-such-plugin", install_hint="Run: brew install it")).headers()
        with pytest.raises(KubeconfigError, match=r"was not found\. Install it"):
            await credentials(exec_plugin=ExecPlugin("no-such-plugin")).headers()

    async def test_cannot_be_started(self, tmp_path: Path) -> None:
        (tmp_path / "plain").write_text("")
        with pytest.raises(KubeconfigError, match="could not be started: Permission denied"):
            await credentials(exec_plugin=ExecPlugin(str(tmp_path / "plain"))).headers()
        with pytest.raises(KubeconfigError, match="could not be started: an argument holds a NUL"):
            await credentials(exec_plugin=ExecPlugin("true", args=("\0",))).headers()

    async def test_hanging_plugin(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(auth, "PLUGIN_TIMEOUT_SECONDS", 0.1)
        with pytest.raises(KubeconfigError, match=r"did not answer in 0\.1 s"):
            await with_plugin(tmp_path, "time.sleep(600)").headers()

    async def test_close_stops_a_plugin_and_its_children(self, tmp_path: Path) -> None:
        live = with_plugin(tmp_path, "os.fork(); (folder / f'pid-{os.getpid()}').touch(); time.sleep(600)")
        caller = asyncio.create_task(live.headers())
        await eventually(lambda: len(pids_in(tmp_path)) == 2)
        await live.close()
        with pytest.raises(asyncio.CancelledError):
            await caller
        await eventually(lambda: not any(map(runs_now, pids_in(tmp_path))))
        await live.close()

    async def test_child_that_holds_the_output_open(self, tmp_path: Path) -> None:
        live = with_plugin(tmp_path, "if os.fork(): sys.exit(0)\n(folder / f'pid-{os.getpid()}').touch(); time.sleep(600)")
        caller = asyncio.create_task(live.headers())
        await eventually(lambda: len(pids_in(tmp_path)) == 1)
        await live.close()
        with pytest.raises(asyncio.CancelledError):
            await caller
        await eventually(lambda: not any(map(runs_now, pids_in(tmp_path))))


def pids_in(folder: Path) -> list[int]:
    return [int(file.name.removeprefix("pid-")) for file in folder.glob("pid-*")]


def runs_now(pid: int) -> bool:
    """Whether there is such a process; one that is dead and not yet reaped by its parent is none."""
    try:
        return not re.search(r"^State:\s+Z", Path(f"/proc/{pid}/status").read_text(), re.M)
    except (FileNotFoundError, ProcessLookupError):
        return False


async def presented(context: ssl.SSLContext | None, serving: Pair, folder: Path, name: str = "host") -> str:
    """The common name that a server sees when a client with this context connects."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.write(folder / "serving.crt", folder / "serving.key")
    server.load_cert_chain(folder / "serving.crt", folder / "serving.key")
    server.load_verify_locations(cadata=AUTHORITY.certificate.decode())
    server.verify_mode = ssl.CERT_OPTIONAL
    seen: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("peercert") or {}
        seen.set_result("".join(value for part in peer.get("subject", ()) for _, value in part))
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=server) as listening:
        reader, writer = await asyncio.open_connection(*listening.sockets[0].getsockname(), ssl=context, server_hostname=name)
        await reader.read()
        writer.close()
        return await seen


def inline(pair: Pair) -> dict[str, Any]:
    return {"client_cert_pem": pair.certificate, "client_key_pem": pair.key}


def filed(pair: Pair, folder: Path) -> dict[str, Any]:
    pair.write(folder / "my.crt", folder / "my.key")
    return {"client_cert_file": str(folder / "my.crt"), "client_key_file": str(folder / "my.key")}


class TestTls:
    """The context: always verifying, with our certificate, new when that is."""

    async def test_none_for_http(self) -> None:
        assert await credentials(server="http://host").ssl_context() is None

    async def test_always_verifies(self) -> None:
        for ca_pem in (AUTHORITY.certificate, None):
            context = await credentials(ca_pem=ca_pem).ssl_context()
            assert context is not None
            assert (context.check_hostname, context.verify_mode) == (True, ssl.CERT_REQUIRED)
            assert context.minimum_version == ssl.TLSVersion.TLSv1_2

    async def test_only_the_given_authority_counts(self, tmp_path: Path) -> None:
        context = await credentials(ca_pem=Authority("test").certificate).ssl_context()
        with pytest.raises(ssl.SSLCertVerificationError):
            await presented(context, AUTHORITY.serving("host"), tmp_path)

    async def test_another_name_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ssl.SSLCertVerificationError):
            await presented(await credentials().ssl_context(), AUTHORITY.serving("other"), tmp_path)

    async def test_a_server_certificate_may_be_the_authority(self, tmp_path: Path) -> None:
        serving = AUTHORITY.serving("host")
        assert await presented(await credentials(ca_pem=serving.certificate).ssl_context(), serving, tmp_path) == ""

    async def test_certificate_from_data_files_or_plugin(self, tmp_path: Path) -> None:
        pair = AUTHORITY.client("me")
        status = repr({"clientCertificateData": pair.certificate.decode(), "clientKeyData": pair.key.decode()})
        for live in (
            credentials(**inline(pair)),
            credentials(**filed(pair, tmp_path)),
            credentials(client_cert_pem=pair.certificate, client_key_file=str(tmp_path / "my.key")),
            with_plugin(tmp_path, printing(status)),
        ):
            assert await presented(await live.ssl_context(), AUTHORITY.serving("host"), tmp_path) == "me"
            assert await live.headers() == {}

    async def test_plugin_with_a_token_only_leaves_the_certificate(self, tmp_path: Path) -> None:
        plugin = ExecPlugin(plugin_in(tmp_path, printing("{'token': 'x'}")))
        live = credentials(exec_plugin=plugin, **inline(AUTHORITY.client("me")))
        assert await token_of(live) == "x"
        assert await presented(await live.ssl_context(), AUTHORITY.serving("host"), tmp_path) == "me"

    @pytest.mark.parametrize("memory", [auth.MEMORY_FOLDER, "/nonexistent"])
    async def test_key_is_private_on_disk_and_gone_at_once(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory: str) -> None:
        seen: list[Path] = []
        original = ssl.SSLContext.load_cert_chain

        def spy(context: ssl.SSLContext, certificate: Path, key: Path, password: bytes) -> None:
            assert stat.S_IMODE(key.stat().st_mode) == 0o600
            assert stat.S_IMODE(key.parent.stat().st_mode) == 0o700
            seen.append(key)
            original(context, certificate, key, password)

        monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", spy)
        monkeypatch.setattr(auth, "MEMORY_FOLDER", memory)
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        assert await credentials(**inline(AUTHORITY.client("me"))).ssl_context()
        with pytest.raises(KubeconfigError):
            await credentials(client_cert_pem=AUTHORITY.certificate, client_key_pem=b"").ssl_context()
        assert len(seen) == 2
        assert not any(path.parent.exists() for path in seen)

    async def test_same_context_until_files_rotate(self, tmp_path: Path) -> None:
        clock = Clock()
        live = credentials(clock, **filed(AUTHORITY.client("old"), tmp_path))
        first = await live.ssl_context()
        clock.seconds += 60
        assert await live.ssl_context() is first
        filed(AUTHORITY.client("new"), tmp_path)
        assert await live.ssl_context() is first
        clock.seconds += 60
        second = await live.ssl_context()
        assert second is not first
        assert await presented(second, AUTHORITY.serving("host"), tmp_path) == "new"

    async def test_refresh_sees_rotated_files_at_once(self, tmp_path: Path) -> None:
        live = credentials(**filed(AUTHORITY.client("old"), tmp_path))
        await live.ssl_context()
        assert not await live.refresh()
        filed(AUTHORITY.client("new"), tmp_path)
        assert await live.refresh()
        assert await presented(await live.ssl_context(), AUTHORITY.serving("host"), tmp_path) == "new"

    async def test_half_rotated_pair_keeps_the_old_one(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        clock = Clock()
        live = credentials(clock, **filed(AUTHORITY.client("old"), tmp_path))
        first = await live.ssl_context()
        new = AUTHORITY.client("new")
        (tmp_path / "my.crt").write_bytes(new.certificate)
        clock.seconds += 60
        assert await live.ssl_context() is first
        assert "does not belong to the certificate" in caplog.text
        (tmp_path / "my.key").write_bytes(new.key)
        clock.seconds += 60
        assert await live.ssl_context() is not first

    async def test_new_token_leaves_the_context(self, tmp_path: Path) -> None:
        live = with_plugin(tmp_path, printing("{'token': f'token-{run}'}"))
        context = await live.ssl_context()
        assert await live.refresh()
        assert await live.ssl_context() is context

    async def test_malformed_pem_names_file_and_key(self, tmp_path: Path) -> None:
        good = AUTHORITY.client("me")
        locked = serialization.load_pem_private_key(good.key, None).private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(SECRET.encode())
        )
        junk = SECRET.encode()
        for who, key in (
            (inline(Pair(junk, good.key)), "client-certificate-data"),
            (inline(Pair(good.certificate, junk)), "client-key-data"),
            (inline(Pair(good.certificate, AUTHORITY.client("other").key)), "client-key-data"),
            (inline(Pair(good.certificate, locked)), "client-key-data"),
            (filed(Pair(junk, good.key), tmp_path), "client-certificate"),
        ):
            with pytest.raises(KubeconfigError) as caught:
                await credentials(**who).ssl_context()
            assert (caught.value.file, caught.value.key) == (PLACE.file, f"{PLACE.key}.{key}")
            assert "PEM" in str(caught.value)
            assert SECRET not in str(caught.value)

    async def test_missing_certificate_file(self, tmp_path: Path) -> None:
        with pytest.raises(KubeconfigError, match=r"none cannot be read: .*client-certificate\)"):
            await credentials(client_cert_file=str(tmp_path / "none"), client_key_file=str(tmp_path / "none")).headers()

    async def test_malformed_authority(self) -> None:
        with pytest.raises(ConfigError, match="is not a PEM certificate"):
            await credentials(ca_pem=b"junk").ssl_context()
