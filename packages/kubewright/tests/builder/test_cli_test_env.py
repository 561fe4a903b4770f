"""`kubewright test-env`: a local API server."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kubewright.builder.cli import main
from kubewright.testing import controlplane
from kubewright.testing.controlplane import ControlPlane

COMMAND = (sys.executable, "-m", "kubewright", "test-env")
TIMEOUT_SECONDS = 120
CONFIG_MAP = """
apiVersion: v1
kind: ConfigMap
metadata: {name: applied, namespace: default}
"""


@pytest.fixture
def environ(binaries: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """The binaries of the test environment; without them, the command would build its own."""
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(binaries["etcd"].parent))


def run_test_env(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, timeout=TIMEOUT_SECONDS
    )


@pytest.mark.usefixtures("environ")
def test_command_has_the_kubeconfig_and_the_manifests(
    tmp_path: Path, binaries: dict[str, Path]
) -> None:
    (tmp_path / "map.yaml").write_text(CONFIG_MAP)
    kubeconfig = tmp_path / "config"
    get = (str(binaries["kubectl"]), "get", "configmap", "applied", "-o", "json")
    process = run_test_env(
        f"--apply={tmp_path / 'map.yaml'}",
        f"--kubeconfig={kubeconfig}",
        "--",
        "sh",
        "-c",
        f"test $KUBECONFIG = {kubeconfig} && {' '.join(get)} && exit 3",
    )
    assert process.returncode == 3, process.stderr
    assert json.loads(process.stdout)["metadata"]["name"] == "applied"
    assert "configmap/applied created" in process.stderr
    assert not kubeconfig.exists()


@pytest.mark.usefixtures("environ")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_a_signal(binaries: dict[str, Path], number: signal.Signals) -> None:
    with subprocess.Popen(
        COMMAND, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        kubeconfig = process.stdout.readline().strip().removeprefix("export KUBECONFIG=")
        for line in process.stderr:
            if "The API server is ready at https://127.0.0.1:" in line:
                break
        version = subprocess.run(
            [str(binaries["kubectl"]), "--kubeconfig", kubeconfig, "version"],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
        )
        assert "Server Version: v1." in version.stdout
        process.send_signal(number)
        process.communicate(timeout=TIMEOUT_SECONDS)
    assert process.returncode == 0
    assert not Path(kubeconfig).exists()


@pytest.fixture
def shared_api_server(
    environ: None, control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands in this process use the API server of the session, and do not start their own."""
    monkeypatch.setattr(controlplane, "ControlPlane", lambda *_, **__: control_plane)
    for method in ("start_sync", "stop_sync"):
        monkeypatch.setattr(control_plane, method, lambda: None)


@pytest.mark.usefixtures("shared_api_server")
def test_manifest_that_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.yaml").write_text("apiVersion: v1\nkind: Nonsense\nmetadata: {name: a}\n")
    assert main(["test-env", f"--apply={tmp_path / 'bad.yaml'}", "true"]) == 1
    error = capfd.readouterr().err
    assert 'no matches for kind "Nonsense"' in error
    assert "Traceback" not in error


@pytest.mark.usefixtures("shared_api_server")
def test_command_that_does_not_exist(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["test-env", "no-such-command"]) == 127
    assert "no-such-command: command not found" in capfd.readouterr().err
