"""Exec plugins: when one runs, its environment, its failures, and that no process is left."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kubewright import exec_plugin
from kubewright.api_credentials import ApiCredentials
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

    async def test_credential_is_cached_until_a_refresh(self, tmp_path: Path) -> None:
        clock = FakeClock()
        credentials = make_plugin_credentials(
            tmp_path, exec_credential_script("{'token': f'token-{run}'}"), clock
        )
        assert await read_token(credentials) == "token-1"
        clock.seconds += 1e6
        assert await read_token(credentials) == "token-1"
        assert await credentials.refresh()
        assert await read_token(credentials) == "token-2"

    async def test_unchanged_credential_is_no_reason_for_a_retry(self, tmp_path: Path) -> None:
        credentials = make_plugin_credentials(tmp_path, exec_credential_script("{'token': 'same'}"))
        await credentials.headers()
        assert not await credentials.refresh()
        assert count_runs(tmp_path) == 2

    @pytest.mark.parametrize(("lives", "used"), [(600, 590), (5, 1), (-1000, 1)])
    async def test_plugin_runs_again_before_the_expiry(
        self, tmp_path: Path, lives: float, used: float
    ) -> None:
        expires = (datetime.now(UTC) + timedelta(seconds=lives)).isoformat()
        clock = FakeClock()
        credentials = make_plugin_credentials(
            tmp_path,
            exec_credential_script(
                f"{{'token': f'token-{{run}}', 'expirationTimestamp': {expires!r}}}"
            ),
            clock,
        )
        assert await read_token(credentials) == "token-1"
        assert credentials.valid_until - clock.seconds == pytest.approx(
            used, abs=30 if lives > 100 else 0
        )
        clock.seconds = credentials.valid_until
        assert await read_token(credentials) == "token-2"

    async def test_concurrent_requests_share_one_run(self, tmp_path: Path) -> None:
        credentials = make_plugin_credentials(
            tmp_path, exec_credential_script("{'token': f'token-{run}'}")
        )
        assert (
            await asyncio.gather(*(read_token(credentials) for _ in range(50))) == ["token-1"] * 50
        )
        assert await asyncio.gather(*(credentials.refresh() for _ in range(50))) == [True] * 50
        assert count_runs(tmp_path) == 2

    async def test_cancelled_caller_does_not_cancel_the_run(self, tmp_path: Path) -> None:
        credentials = make_plugin_credentials(tmp_path, exec_credential_script("{'token': 'one'}"))
        first, second = (
            asyncio.create_task(credentials.headers()),
            asyncio.create_task(credentials.headers()),
        )
        await asyncio.sleep(0)  # both have started and wait for the plugin
        assert credentials._reload_task is not None
        first.cancel()
        assert await second == {"Authorization": "Bearer one"}
        assert first.cancelled()
        assert count_runs(tmp_path) == 1

    async def test_plugin_gets_environment_arguments_and_cluster_info(self, tmp_path: Path) -> None:
        body = (
            "seen = [dict(os.environ), sys.stdin.read(), sys.argv[1:]]\n"
            "(folder / 'seen').write_text(json.dumps(seen))\n"
            + exec_credential_script("{'token': 'x'}")
        )
        config = {"audience": "me", "count": 3}
        plugin = ExecPlugin(
            command=write_plugin(tmp_path, body),
            args=("--one", "two parts"),
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
        credentials = ApiCredentials(
            connection, environ={"INHERITED": "yes", "EXTRA": "0", "PATH": os.environ["PATH"]}
        )
        assert await read_token(credentials) == "x"
        environ, stdin, arguments = json.loads((tmp_path / "seen").read_text())
        assert (environ["INHERITED"], environ["EXTRA"]) == ("yes", "1")
        assert (stdin, arguments) == ("", ["--one", "two parts"])
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

    async def test_cluster_info_is_left_out_by_default(self, tmp_path: Path) -> None:
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

    async def test_token_of_the_kubeconfig_takes_precedence(self, tmp_path: Path) -> None:
        plugin = ExecPlugin(command=write_plugin(tmp_path, "sys.exit(1)"))
        assert await read_token(make_credentials(token="mine", exec_plugin=plugin)) == "mine"

    @pytest.mark.parametrize(
        ("body", "problem"),
        [
            (
                f"print('please log in', file=sys.stderr); print({SECRET!r}); sys.exit(3)",
                "exited with code 3. Its stderr: please log in",
            ),
            (f"print('token: {SECRET}', file=sys.stderr); sys.exit(1)", "Its stderr: token: ***"),
            ("sys.exit(1)", "Its stderr: (empty)"),
            ("os.kill(os.getpid(), 9)", "exited with code -9"),
            (f"print({SECRET!r})", "did not print a valid ExecCredential"),
            ("", "did not print a valid ExecCredential"),
            ("sys.stdout.buffer.write(b'\\xff{')", "did not print a valid ExecCredential"),
            (
                exec_credential_script(f"{{'token': ['{SECRET}']}}"),
                "did not print a valid ExecCredential",
            ),
            (
                exec_credential_script(f"{{'token': '{SECRET}', 'expirationTimestamp': 'soon'}}"),
                "did not print a valid ExecCredential",
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
            (exec_credential_script(f"{{'token': '{SECRET} {SECRET}'}}"), "is not a token"),
        ],
    )
    async def test_failure_names_the_plugin_and_the_problem(
        self, tmp_path: Path, body: str, problem: str
    ) -> None:
        with pytest.raises(KubeconfigError) as caught:
            await make_plugin_credentials(tmp_path, body).headers()
        assert problem in str(caught.value)
        assert (caught.value.file, caught.value.key) == (
            USER_LOCATION.file,
            USER_LOCATION.key + ".exec",
        )
        assert SECRET not in str(caught.value)

    async def test_later_failure_keeps_the_old_token(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        credentials = make_plugin_credentials(
            tmp_path,
            "sys.exit('logged out') if run > 1 else None\n"
            + exec_credential_script("{'token': 'one'}"),
        )
        assert await read_token(credentials) == "one"
        assert not await credentials.refresh()
        assert await read_token(credentials) == "one"
        assert "Its stderr: logged out" in caplog.text

    async def test_missing_plugin_gives_the_install_hint(self) -> None:
        with pytest.raises(
            KubeconfigError, match=r'"no-such-plugin" was not found\. Run: brew install it'
        ):
            await make_credentials(
                exec_plugin=ExecPlugin("no-such-plugin", install_hint="Run: brew install it")
            ).headers()
        with pytest.raises(KubeconfigError, match=r"was not found\. Install it"):
            await make_credentials(exec_plugin=ExecPlugin("no-such-plugin")).headers()

    async def test_plugin_that_cannot_be_started_is_an_error(self, tmp_path: Path) -> None:
        (tmp_path / "plain").write_text("")
        with pytest.raises(KubeconfigError, match="could not be started: Permission denied"):
            await make_credentials(exec_plugin=ExecPlugin(str(tmp_path / "plain"))).headers()
        with pytest.raises(
            KubeconfigError, match="could not be started: an argument contains a NUL"
        ):
            await make_credentials(exec_plugin=ExecPlugin("true", args=("\0",))).headers()

    async def test_plugin_that_hangs_is_killed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(exec_plugin, "PLUGIN_TIMEOUT_SECONDS", 0.1)
        with pytest.raises(KubeconfigError, match=r"did not finish within 0\.1 s"):
            await make_plugin_credentials(tmp_path, "time.sleep(600)").headers()

    async def test_close_stops_a_plugin_and_its_children(self, tmp_path: Path) -> None:
        credentials = make_plugin_credentials(
            tmp_path, "os.fork(); (folder / f'pid-{os.getpid()}').touch(); time.sleep(600)"
        )
        caller = asyncio.create_task(credentials.headers())
        await eventually(lambda: len(read_pids(tmp_path)) == 2)
        await credentials.close()
        with pytest.raises(asyncio.CancelledError):
            await caller
        await eventually(lambda: not any(map(is_process_running, read_pids(tmp_path))))
        await credentials.close()

    async def test_close_kills_a_child_that_keeps_the_output_open(self, tmp_path: Path) -> None:
        credentials = make_plugin_credentials(
            tmp_path,
            "if os.fork(): sys.exit(0)\n(folder / f'pid-{os.getpid()}').touch(); time.sleep(600)",
        )
        caller = asyncio.create_task(credentials.headers())
        await eventually(lambda: len(read_pids(tmp_path)) == 1)
        await credentials.close()
        with pytest.raises(asyncio.CancelledError):
            await caller
        await eventually(lambda: not any(map(is_process_running, read_pids(tmp_path))))


def read_pids(folder: Path) -> list[int]:
    return [int(file.name.removeprefix("pid-")) for file in folder.glob("pid-*")]


def is_process_running(pid: int) -> bool:
    """A zombie, which its parent has not reaped yet, does not count."""
    try:
        return not re.search(r"^State:\s+Z", Path(f"/proc/{pid}/status").read_text(), re.M)
    except (FileNotFoundError, ProcessLookupError):
        return False
