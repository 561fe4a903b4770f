"""The control plane on a machine that has only the loopback interface."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

ISOLATE = ("unshare", "--user", "--map-root-user", "--net", "sh", "-c")
# Without a default route, kube-apiserver has no default for the address that it advertises.
COMMAND = 'ip link set lo up && test -z "$(ip route)" && exec "$@"'
START = """
import asyncio, json, pathlib, sys
from kubewright.testing.controlplane import ControlPlane

async def start():
    binaries = {name: pathlib.Path(path) for name, path in json.loads(sys.argv[1]).items()}
    async with ControlPlane(binaries) as plane:
        print(await asyncio.to_thread(plane.kubectl, "get", "namespace", "default", "-o", "name"))

asyncio.run(start())
"""


def test_control_plane_starts_without_a_network(binaries: Mapping[str, Path]) -> None:
    isolate = [*ISOLATE, COMMAND, "sh"]
    if not shutil.which("unshare") or subprocess.run([*isolate, "true"]).returncode:
        pytest.skip("this machine does not permit a network namespace (unshare, ip)")
    paths = json.dumps({name: str(path) for name, path in binaries.items()})
    process = subprocess.run(
        [*isolate, sys.executable, "-c", START, paths], capture_output=True, text=True, timeout=120
    )
    assert process.returncode == 0, process.stderr
    assert process.stdout.strip() == "namespace/default"
