"""`kubectl vsphere` ends at Ctrl-C and SIGTERM without a traceback, and ends its kubectl."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from kubewright.testing import eventually

# Stands for kubectl: it prints the port only if FORWARDS is set, and then waits.
FAKE_KUBECTL = """#!/bin/sh
echo $$ >"$PID_FILE.new" && mv "$PID_FILE.new" "$PID_FILE"
if [ -n "$FORWARDS" ]; then echo "Forwarding from 127.0.0.1:4000 -> 9090"; fi
exec sleep 600
"""
PODS_PATH = "/api/v1/namespaces/vsphere-operators-system/pods"
MANAGER_POD = {
    "metadata": {"name": "manager-0", "namespace": "vsphere-operators-system"},
    "spec": {"containers": [{"args": ["-ui-bind-address=127.0.0.1:9090"]}]},
    "status": {"phase": "Running"},
}


async def answer(request: web.Request) -> web.Response:
    items = [MANAGER_POD] if request.path == PODS_PATH else []
    return web.json_response({"kind": "List", "metadata": {}, "items": items})


@pytest.fixture
async def environ(tmp_path: Path) -> AsyncIterator[dict[str, str]]:
    """An API server with one manager Pod, and a kubectl."""
    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    (tmp_path / "kubeconfig").write_text(
        f"clusters: [{{name: c, cluster: {{server: 'http://{host}:{port}'}}}}]\n"
        "contexts: [{name: c, context: {cluster: c}}]\ncurrent-context: c\n"
    )
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(FAKE_KUBECTL)
    kubectl.chmod(0o755)
    yield {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(sys.path),
        "KUBECONFIG": str(tmp_path / "kubeconfig"),
        "PID_FILE": str(tmp_path / "pid"),
    }
    await runner.cleanup()


async def start_plugin(environ: dict[str, str], *arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments,
        env=environ,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


def exists(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    ("arguments", "forwards", "codes"),
    [
        (("open", "--no-browser"), "", {signal.SIGINT: 0, signal.SIGTERM: 0}),
        (("open", "--no-browser"), "1", {signal.SIGINT: 0, signal.SIGTERM: 0}),
        (("datastores",), "", {signal.SIGINT: 130, signal.SIGTERM: 143}),
    ],
    ids=["open starts", "open", "datastores"],
)
async def test_signal_ends_the_plugin_and_its_kubectl(
    environ: dict[str, str],
    number: signal.Signals,
    arguments: tuple[str, ...],
    forwards: str,
    codes: dict[signal.Signals, int],
) -> None:
    child = await start_plugin(
        {**environ, "FORWARDS": forwards}, "-m", "vsphere_operators.kubectl", *arguments
    )
    assert child.stdout is not None
    process_file = Path(environ["PID_FILE"])
    await eventually(process_file.exists, within=30)
    kubectl_id = int(await asyncio.to_thread(process_file.read_text))
    if forwards:
        assert b"http://127.0.0.1:4000/" in await asyncio.wait_for(child.stdout.readline(), 60)
    child.send_signal(number)
    _, errors = await asyncio.wait_for(child.communicate(), 60)
    assert "Traceback" not in errors.decode()
    assert child.returncode == codes[number]
    assert not exists(kubectl_id)


async def test_ctrl_c_during_the_import_prints_nothing(environ: dict[str, str]) -> None:
    child = await start_plugin(
        environ, "-X", "importtime", "-m", "vsphere_operators.kubectl", "open"
    )
    assert child.stderr is not None
    # -X importtime prints a line for each module; the import of the command is far from its end.
    while b"kubewright.errors" not in await asyncio.wait_for(child.stderr.readline(), 60):
        pass
    child.send_signal(signal.SIGINT)
    _, errors = await asyncio.wait_for(child.communicate(), 60)
    assert "Traceback" not in errors.decode()
    assert child.returncode == -signal.SIGINT
