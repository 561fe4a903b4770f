"""Credentials that a command prints: when it runs, what it is told, how it fails, and that nothing of it stays behind."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kubewright import auth
from kubewright.auth import Credentials
from kubewright.errors import KubeconfigError
from kubewright.kubeconfig import Connection, ExecPlugin, Identity
from kubewright.testing import eventually

from .support.credentials import (
    EXEC_API_VERSION,
    SECRET,
    TEST_CA,
    USER_LOCATION,
    FakeClock,
    exec_credential_script,
    make_credentials,
    make_plugin_credentials,
    read_token,
    write_plugin,
)


def count_runs(folder: Path) -> int:
    return len((folder / "runs").read_text())


class TestExecPlugin:
    """A command that prints credentials."""

    async def test_cached_until_refresh(self, tmp_path: Path) -> None:
        clock = FakeClock()
        live = make_plugin_credentials(
            tmp_path, exec_credential_script("{'token': f'token-{run}'}"), clock
        )
        assert await read_token(live) == "token-1"
        clock.seconds += 1e6
        assert await read_token(live) == "token-1"
        assert await live.refresh()
        assert await read_token(live) == "token-2"

    async def test_unchanged_is_not_worth_a_retry(self, tmp_path: Path) -> None:
        live = make_plugin_credentials(tmp_path, exec_credential_script("{'token': 'same'}"))
        await live.headers()
        assert not await live.refresh()
        assert count_runs(tmp_path) == 2

    @pytest.mark.parametrize(("lives", "used"), [(600, 590), (5, 1), (-1000, 1)])
    async def test_expiry(self, tmp_path: Path, lives: float, used: float) -> None:
        expires = (datetime.now(UTC) + timedelta(seconds=lives)).isoformat()
        clock = FakeClock()
        live = make_plugin_credentials(
            tmp_path,
            exec_credential_script(
                f"{{'token': f'token-{{run}}', 'expirationTimestamp': {expires!r}}}"
            ),
            clock,
        )
        assert await read_token(live) == "token-1"
        assert live.reload_at - clock.seconds == pytest.approx(used, abs=30 if lives > 100 else 0)
        clock.seconds = live.reload_at
        assert await read_token(live) == "token-2"

    async def test_single_flight(self, tmp_path: Path) -> None:
        live = make_plugin_credentials(
            tmp_path, exec_credential_script("{'token': f'token-{run}'}")
        )
        assert await asyncio.gather(*(read_token(live) for _ in range(50))) == ["token-1"] * 50
        assert await asyncio.gather(*(live.refresh() for _ in range(50))) == [True] * 50
        assert count_runs(tmp_path) == 2

    async def test_cancelled_caller_does_not_take_the_others_along(self, tmp_path: Path) -> None:
        live = make_plugin_credentials(tmp_path, exec_credential_script("{'token': 'one'}"))
        first, second = asyncio.create_task(live.headers()), asyncio.create_task(live.headers())
        await asyncio.sleep(0)  # both have started, and wait for the plugin
        assert live.reload_task is not None
        first.cancel()
        assert await second == {"Authorization": "Bearer one"}
        assert first.cancelled()
        assert count_runs(tmp_path) == 1

    async def test_environment_and_input(self, tmp_path: Path) -> None:
        body = (
            "(folder / 'seen').write_text(json.dumps([dict(os.environ), sys.stdin.read(), sys.argv[1:]]))\n"
            + exec_credential_script("{'token': 'x'}")
        )
        config = {"audience": "me", "count": 3}
        plugin = ExecPlugin(
            command=write_plugin(tmp_path, body),
            args=("--one", "two words"),
            env={"EXTRA": "1"},
            provide_cluster_info=True,
            cluster_config=config,
        )
        connection = Connection(
            "https://host",
            Identity(exec_plugin=plugin),
            TEST_CA.certificate,
            "kubernetes",
            "http://proxy",
        )
        live = Credentials(
            connection, environ={"INHERITED": "yes", "EXTRA": "0", "PATH": os.environ["PATH"]}
        )
        assert await read_token(live) == "x"
        environ, stdin, arguments = json.loads((tmp_path / "seen").read_text())
        assert (environ["INHERITED"], environ["EXTRA"]) == ("yes", "1")
        assert (stdin, arguments) == ("", ["--one", "two words"])
        assert json.loads(environ["KUBERNETES_EXEC_INFO"]) == {
            "apiVersion": EXEC_API_VERSION,
            "kind": "ExecCredential",
            "spec": {
                "interactive": False,
                "cluster": {
                    "server": "https://host",
                    "tls-server-name": "kubernetes",
                    "certificate-authority-data": base64.b64encode(TEST_CA.certificate).decode(),
                    "proxy-url": "http://proxy",
                    "config": config,
                },
            },
        }

    async def test_no_cluster_info_unless_asked_for(self, tmp_path: Path) -> None:
        body = (
            "(folder / 'seen').write_text(os.environ['KUBERNETES_EXEC_INFO'])\n"
            + exec_credential_script("{'token': 'x'}", EXEC_API_VERSION + "beta1")
        )
        await make_plugin_credentials(
            tmp_path, body, api_version=EXEC_API_VERSION + "beta1"
        ).headers()
        assert json.loads((tmp_path / "seen").read_text()) == {
            "apiVersion": EXEC_API_VERSION + "beta1",
            "kind": "ExecCredential",
            "spec": {"interactive": False},
        }

    async def test_token_of_the_kubeconfig_comes_first(self, tmp_path: Path) -> None:
        plugin = ExecPlugin(command=write_plugin(tmp_path, "sys.exit(1)"))
        assert await read_token(make_credentials(token="mine", exec_plugin=plugin)) == "mine"

    @pytest.mark.parametrize(
        ("body", "words"),
        [
            (
                f"print('who are you', file=sys.stderr); print({SECRET!r}); sys.exit(3)",
                "ended with code 3 and said: who are you",
            ),
            (f"print('token: {SECRET}', file=sys.stderr); sys.exit(1)", "said: token: ***"),
            ("sys.exit(1)", "said: nothing"),
            ("os.kill(os.getpid(), 9)", "ended with code -9"),
            (f"print({SECRET!r})", "something else than an ExecCredential"),
            ("", "something else than an ExecCredential"),
            ("sys.stdout.buffer.write(b'\\xff{')", "something else than an ExecCredential"),
            (
                exec_credential_script(f"{{'token': ['{SECRET}']}}"),
                "something else than an ExecCredential",
            ),
            (
                exec_credential_script(f"{{'token': '{SECRET}', 'expirationTimestamp': 'soon'}}"),
                "something else than an ExecCredential",
            ),
            (
                exec_credential_script(f"{{'token': '{SECRET}'}}", kind="Secret"),
                f"did not print an ExecCredential of {EXEC_API_VERSION}",
            ),
            (
                exec_credential_script(
                    f"{{'token': '{SECRET}'}}", version=EXEC_API_VERSION + "beta1"
                ),
                f"did not print an ExecCredential of {EXEC_API_VERSION}",
            ),
            (exec_credential_script("None"), "neither a token nor a certificate"),
            (exec_credential_script("{'token': None}"), "neither a token nor a certificate"),
            (
                exec_credential_script(f"{{'clientKeyData': '{SECRET}'}}"),
                "a key without its certificate",
            ),
            (
                exec_credential_script(
                    f"{{'clientKeyData': '{SECRET}', 'clientCertificateData': '{SECRET}'}}"
                ),
                "PEM certificate",
            ),
            (exec_credential_script(f"{{'token': '{SECRET} {SECRET}'}}"), "is no token"),
        ],
    )
    async def test_failure_in_plain_words(self, tmp_path: Path, body: str, words: str) -> None:
        with pytest.raises(KubeconfigError) as caught:
            await make_plugin_credentials(tmp_path, body).headers()
        assert words in str(caught.value)
        assert (caught.value.file, caught.value.key) == (
            USER_LOCATION.file,
            USER_LOCATION.key + ".exec",
        )
        assert SECRET not in str(caught.value)

    async def test_failure_later_keeps_the_old_token(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        live = make_plugin_credentials(
            tmp_path,
            "sys.exit('logged out') if run > 1 else None\n"
            + exec_credential_script("{'token': 'one'}"),
        )
        assert await read_token(live) == "one"
        assert not await live.refresh()
        assert await read_token(live) == "one"
        assert "said: logged out" in caplog.text

    async def test_not_found_gives_the_hint(self) -> None:
        with pytest.raises(
            KubeconfigError, match=r'"no-such-plugin" was not found\. Run: brew install it'
        ):
            await make_credentials(
                exec_plugin=ExecPlugin("no-such-plugin", install_hint="Run: brew install it")
            ).headers()
        with pytest.raises(KubeconfigError, match=r"was not found\. Install it"):
            await make_credentials(exec_plugin=ExecPlugin("no-such-plugin")).headers()

    async def test_cannot_be_started(self, tmp_path: Path) -> None:
        (tmp_path / "plain").write_text("")
        with pytest.raises(KubeconfigError, match="could not be started: Permission denied"):
            await make_credentials(exec_plugin=ExecPlugin(str(tmp_path / "plain"))).headers()
        with pytest.raises(KubeconfigError, match="could not be started: an argument holds a NUL"):
            await make_credentials(exec_plugin=ExecPlugin("true", args=("\0",))).headers()

    async def test_hanging_plugin(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(auth, "PLUGIN_TIMEOUT_SECONDS", 0.1)
        with pytest.raises(KubeconfigError, match=r"did not answer in 0\.1 s"):
            await make_plugin_credentials(tmp_path, "time.sleep(600)").headers()

    async def test_close_stops_a_plugin_and_its_children(self, tmp_path: Path) -> None:
        live = make_plugin_credentials(
            tmp_path, "os.fork(); (folder / f'pid-{os.getpid()}').touch(); time.sleep(600)"
        )
        caller = asyncio.create_task(live.headers())
        await eventually(lambda: len(read_pids(tmp_path)) == 2)
        await live.close()
        with pytest.raises(asyncio.CancelledError):
            await caller
        await eventually(lambda: not any(map(is_process_running, read_pids(tmp_path))))
        await live.close()

    async def test_child_that_holds_the_output_open(self, tmp_path: Path) -> None:
        live = make_plugin_credentials(
            tmp_path,
            "if os.fork(): sys.exit(0)\n(folder / f'pid-{os.getpid()}').touch(); time.sleep(600)",
        )
        caller = asyncio.create_task(live.headers())
        await eventually(lambda: len(read_pids(tmp_path)) == 1)
        await live.close()
        with pytest.raises(asyncio.CancelledError):
            await caller
        await eventually(lambda: not any(map(is_process_running, read_pids(tmp_path))))


def read_pids(folder: Path) -> list[int]:
    return [int(file.name.removeprefix("pid-")) for file in folder.glob("pid-*")]


def is_process_running(pid: int) -> bool:
    """Whether there is such a process; one that is dead and not yet reaped by its parent is none."""
    try:
        return not re.search(r"^State:\s+Z", Path(f"/proc/{pid}/status").read_text(), re.M)
    except (FileNotFoundError, ProcessLookupError):
        return False
