"""The control plane, the proxies and the plugin, on a real etcd and kube-apiserver."""

from __future__ import annotations

import asyncio
import http.client
import json
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kubewright.testing import eventually
from kubewright.testing.apiserver import StartFailed
from kubewright.testing.cluster_access import HttpClient, HttpError, create_tls_context
from kubewright.testing.controlplane import ControlPlane, KubectlFailed
from kubewright.testing.proxy import HttpProxy, TcpProxy

Kubectl = Callable[..., str]


def configmap_manifest(namespace: str, name: str = "thing", **data: str) -> str:
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": namespace},
            "data": data,
        }
    )


def run_kubectl(
    plane: ControlPlane, kubeconfig: Path, *arguments: str
) -> subprocess.CompletedProcess[str]:
    command = [
        str(plane.binaries["kubectl"]),
        f"--kubeconfig={kubeconfig}",
        f"--cache-dir={plane.folder / 'other'}",
        *arguments,
    ]
    return subprocess.run(command, capture_output=True, text=True)


class KubectlWatch:
    """A watch by kubectl in a separate process; it prints one line per change."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    @classmethod
    async def start(cls, plane: ControlPlane, path: str, kubeconfig: Path) -> KubectlWatch:
        command = [
            str(plane.binaries["kubectl"]),
            f"--kubeconfig={kubeconfig}",
            "get",
            "--raw",
            f"{path}?watch=true",
        ]
        return cls(await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE))

    async def next_event(self) -> dict[str, Any]:
        assert self.process.stdout
        return dict(json.loads(await asyncio.wait_for(self.process.stdout.readline(), 60.0)))

    async def stop(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()


def test_control_plane_is_a_cluster(kubectl: Kubectl, namespace: str) -> None:
    assert kubectl("get", "namespace", namespace, "-o", "name") == f"namespace/{namespace}\n"
    client, server = (
        line.rpartition(" ")[2]
        for line in kubectl("version").splitlines()
        if line.startswith(("Client", "Server"))
    )
    assert client == server != "v0.0.0"


def test_kubectl_that_does_not_end_is_killed(
    control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kubewright.testing.controlplane._KUBECTL_TIMEOUT_SECONDS", 1.0)
    with pytest.raises(
        KubectlFailed,
        match=r"^kubectl get --raw /api/v1/namespaces\?watch=true: did not end within 1 s$",
    ):
        control_plane.kubectl("get", "--raw", "/api/v1/namespaces?watch=true")


def test_a_pod_can_be_created_without_a_service_account(kubectl: Kubectl, namespace: str) -> None:
    kubectl("-n", namespace, "run", "funny-joe", "--image=none", "--restart=Never")
    assert kubectl("-n", namespace, "get", "pods", "-o", "name") == "pod/funny-joe\n"


def test_apply_takes_files_and_text(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    (tmp_path / "one.json").write_text(configmap_manifest(namespace, "one"))
    printed = control_plane.apply(tmp_path / "one.json", configmap_manifest(namespace, "two"))
    assert printed == "configmap/one created\nconfigmap/two created\n"


def test_kubectl_failure_has_its_error_message(kubectl: Kubectl) -> None:
    with pytest.raises(KubectlFailed, match=r'kubectl get pod missing: .*pods "missing" not found'):
        kubectl("get", "pod", "missing")


def test_rbac_applies_to_all_users_but_admin(control_plane: ControlPlane, tmp_path: Path) -> None:
    alice = control_plane.write_kubeconfig(tmp_path / "alice", user="alice", groups=("dev",))
    assert (
        'User "alice" cannot list resource "pods"'
        in run_kubectl(control_plane, alice, "get", "pods").stderr
    )
    assert (
        run_kubectl(
            control_plane, control_plane.write_kubeconfig(tmp_path / "admin"), "get", "pods"
        ).returncode
        == 0
    )


def test_api_server_accepts_the_token_of_a_service_account(
    control_plane: ControlPlane, kubectl: Kubectl, namespace: str, tmp_path: Path
) -> None:
    kubectl("-n", namespace, "create", "serviceaccount", "manager")
    config = control_plane.write_service_account_kubeconfig(
        namespace, "manager", tmp_path / "manager"
    )
    assert (
        f"system:serviceaccount:{namespace}:manager"
        in run_kubectl(control_plane, config, "auth", "whoami").stdout
    )
    assert run_kubectl(control_plane, config, "get", "pods").returncode != 0


def test_removed_namespace_leaves_no_objects(control_plane: ControlPlane, kubectl: Kubectl) -> None:
    control_plane.create_namespace("doomed")
    control_plane.apply(configmap_manifest("doomed"))
    kubectl(
        "-n",
        "doomed",
        "patch",
        "configmap",
        "thing",
        "--type=merge",
        "-p",
        '{"metadata":{"finalizers":["example.com/never"]}}',
    )
    control_plane.remove_namespace("doomed")
    control_plane.create_namespace("doomed")
    assert kubectl("-n", "doomed", "get", "configmaps", "-o", "name") == ""
    control_plane.remove_namespace("doomed")


OBJECTS_OF_MANY_KINDS = """
apiVersion: v1
kind: Service
metadata: {name: thing}
spec: {ports: [{port: 80}]}
---
apiVersion: v1
kind: ReplicationController
metadata: {name: thing}
spec:
  replicas: 0
  selector: {app: thing}
  template:
    metadata: {labels: {app: thing}}
    spec: {containers: [{name: main, image: none}]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: thing}
spec: {defaultBackend: {service: {name: thing, port: {number: 80}}}}
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: thing}
---
apiVersion: kubewright.test/v1
kind: Widget
metadata: {name: thing}
spec: {size: 1}
"""


@pytest.mark.usefixtures("widgets_installed")
def test_namespace_with_many_kinds_is_removed_with_them(control_plane: ControlPlane) -> None:
    control_plane.create_namespace("crowded")
    control_plane.kubectl("-n", "crowded", "apply", "-f", "-", stdin=OBJECTS_OF_MANY_KINDS)
    control_plane.remove_namespace("crowded")
    assert [key for key in control_plane.etcd.list_keys("/registry/") if "/crowded" in key] == []


def test_namespace_with_a_kind_under_an_unknown_key_is_removed_with_it(
    control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kubewright.testing.namespaces._STORED_NAMES", {})
    control_plane.create_namespace("crowded")
    (controller,) = (
        text for text in OBJECTS_OF_MANY_KINDS.split("---") if "kind: ReplicationController" in text
    )
    control_plane.kubectl("-n", "crowded", "apply", "-f", "-", stdin=controller)
    control_plane.remove_namespace("crowded")
    assert [key for key in control_plane.etcd.list_keys("/registry/") if "/crowded" in key] == []


def test_kubeconfig_is_that_of_the_administrator(
    kubeconfig: Path, control_plane: ControlPlane
) -> None:
    assert (
        json.loads(kubeconfig.read_text())["clusters"][0]["cluster"]["server"] == control_plane.url
    )


async def test_killed_api_server_comes_back_with_its_data(
    control_plane: ControlPlane, kubectl: Kubectl, namespace: str
) -> None:
    control_plane.apply(configmap_manifest(namespace, kept="yes"))
    await control_plane.apiserver.kill()
    with pytest.raises(KubectlFailed, match="refused"):
        kubectl("get", "namespaces")
    await control_plane.apiserver.start()
    assert (
        kubectl("-n", namespace, "get", "configmap", "thing", "-o", "jsonpath={.data.kept}")
        == "yes"
    )


async def test_compaction_and_a_restart_always_give_410(
    control_plane: ControlPlane, namespace: str
) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    control_plane.apply(configmap_manifest(namespace, n="0"))
    with control_plane.apiserver.admin_client() as https:
        old = https.call("GET", path)["metadata"]["resourceVersion"]
    for number in range(5):
        control_plane.apply(configmap_manifest(namespace, n=str(number)))
    assert await control_plane.etcd.compact() >= int(old)
    await control_plane.restart_apiserver()
    with control_plane.apiserver.admin_client() as https:
        event = https.call("GET", f"{path}?watch=true&resourceVersion={old}&timeoutSeconds=5")
    line = event if isinstance(event, dict) else json.loads(event.splitlines()[0])
    assert (line["type"], line["object"]["code"]) == ("ERROR", 410)


async def test_another_apiserver_can_be_made_stale(
    control_plane: ControlPlane, namespace: str
) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"

    def names(https: HttpClient) -> list[str]:
        return [
            item["metadata"]["name"]
            for item in https.call("GET", f"{path}?resourceVersion=0")["items"]
        ]

    async with (
        TcpProxy("127.0.0.1", control_plane.etcd.port.number) as proxy,
        control_plane.create_apiserver(f"http://127.0.0.1:{proxy.port}") as other,
    ):
        proxy.stall()
        await asyncio.to_thread(control_plane.apply, configmap_manifest(namespace))
        with other.admin_client() as stale, control_plane.apiserver.admin_client() as fresh:
            await eventually(lambda: asyncio.to_thread(names, fresh))
            assert await asyncio.to_thread(names, stale) == []
            proxy.resume()
            await eventually(lambda: asyncio.to_thread(names, stale))


@pytest.fixture
async def proxy(control_plane: ControlPlane) -> AsyncIterator[HttpProxy]:
    async with HttpProxy.in_front_of(control_plane) as proxy:
        yield proxy


@pytest.fixture
def proxy_client(proxy: HttpProxy) -> Iterator[HttpClient]:
    """A client of the proxy; use it in a thread, since the proxy needs the loop."""
    with HttpClient(proxy.url, create_tls_context(proxy.ca.certificate)) as https:
        yield https


async def test_create_with_a_dropped_response_is_stored(
    proxy: HttpProxy, proxy_client: HttpClient, kubectl: Kubectl, namespace: str
) -> None:
    rule = proxy.drop_next_response("POST", "*/configmaps")
    with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)):
        await asyncio.to_thread(
            proxy_client.call,
            "POST",
            f"/api/v1/namespaces/{namespace}/configmaps",
            json.loads(configmap_manifest(namespace)),
        )
    assert rule.upstream_statuses == [201]
    assert (
        kubectl("-n", namespace, "get", "configmap", "thing", "-o", "name") == "configmap/thing\n"
    )
    assert [request.status for request in proxy.find_requests("POST")] == [0]


async def test_injected_error_has_the_format_of_the_api_server(
    proxy: HttpProxy, proxy_client: HttpClient
) -> None:
    proxy.fail_next("GET", "/api/v1/pods", 409)
    with pytest.raises(HttpError, match='"reason": "Conflict"'):
        await asyncio.to_thread(proxy_client.call, "GET", "/api/v1/pods")
    assert (await asyncio.to_thread(proxy_client.call, "GET", "/api/v1/pods"))["kind"] == "PodList"


async def test_proxy_passes_the_token_on(
    control_plane: ControlPlane, proxy: HttpProxy, kubectl: Kubectl, namespace: str, tmp_path: Path
) -> None:
    kubectl("-n", namespace, "create", "serviceaccount", "manager")
    config = proxy.write_kubeconfig(
        tmp_path / "config", token=control_plane.create_service_account_token(namespace, "manager")
    )
    done = await asyncio.to_thread(run_kubectl, control_plane, config, "auth", "whoami")
    assert f"system:serviceaccount:{namespace}:manager" in done.stdout


async def test_proxy_streams_a_watch_and_injects_lines(
    control_plane: ControlPlane, proxy: HttpProxy, namespace: str, tmp_path: Path
) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    watch = await KubectlWatch.start(
        control_plane, path, proxy.write_kubeconfig(tmp_path / "config")
    )
    await eventually(lambda: proxy.watches)
    control_plane.apply(configmap_manifest(namespace))
    assert (await watch.next_event())["object"]["metadata"]["name"] == "thing"
    assert await proxy.inject_line({"type": "ERROR", "object": {"code": 410}}, path) == 1
    assert (await watch.next_event())["type"] == "ERROR"
    assert proxy.abort_watches(path) == 1
    await asyncio.wait_for(watch.process.wait(), 60.0)
    await eventually(lambda: not proxy.watches)


async def test_stalled_watch_receives_nothing_until_it_is_resumed(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    async with TcpProxy("127.0.0.1", control_plane.apiserver.port.number) as tcp:
        config = control_plane.write_kubeconfig(
            tmp_path / "config", server=f"https://127.0.0.1:{tcp.port}"
        )
        control_plane.apply(configmap_manifest(namespace, n="1"))
        watch = await KubectlWatch.start(
            control_plane, f"/api/v1/namespaces/{namespace}/configmaps", config
        )
        assert (await watch.next_event())["object"]["data"] == {"n": "1"}
        tcp.stall()
        control_plane.apply(configmap_manifest(namespace, n="2"))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(watch.next_event(), 0.3)
        assert watch.process.returncode is None
        tcp.resume()
        assert (await watch.next_event())["object"]["data"] == {"n": "2"}
        await watch.stop()


async def test_audit_log_has_user_and_verb(binaries: dict[str, Path]) -> None:
    async with ControlPlane(binaries, audit=True) as plane:
        plane.kubectl("create", "configmap", "thing")

        def creators() -> list[str]:
            return [
                e["user"]["username"]
                for e in plane.read_audit_events()
                if e["verb"] == "create" and e["objectRef"].get("name") == "thing"
            ]

        assert await eventually(creators) == ["admin"]


async def test_control_plane_leaves_neither_process_nor_file(binaries: dict[str, Path]) -> None:
    async with ControlPlane(binaries) as plane:
        processes = [plane.etcd.process.pid, plane.apiserver.process.pid]
        assert all(is_process_running(pid) for pid in processes)
    assert not any(is_process_running(pid) for pid in processes)
    assert not plane.folder.exists()


async def test_failed_start_shows_the_log_and_cleans_up(binaries: dict[str, Path]) -> None:
    plane = ControlPlane(binaries, extra_args=["--no-such-flag"])
    with pytest.raises(StartFailed, match=r"the process exited(.|\n)*unknown flag: --no-such-flag"):
        await plane.start()
    assert not plane.folder.exists()
    assert not plane.etcd.process.is_running


async def test_killed_test_run_ends_the_control_plane(binaries: dict[str, Path]) -> None:
    program = """
import sys, time
from pathlib import Path
from kubewright.testing.controlplane import ControlPlane
binaries = dict(pair.split("=") for pair in sys.argv[1:])
plane = ControlPlane({name: Path(path) for name, path in binaries.items()})
plane.start_sync()
print(plane.folder, plane.etcd.process.pid, plane.apiserver.process.pid, flush=True)
time.sleep(600)
"""
    paths = [f"{name}={path}" for name, path in binaries.items()]
    run = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, *paths, stdout=asyncio.subprocess.PIPE
    )
    assert run.stdout
    folder, *pids = (await asyncio.wait_for(run.stdout.readline(), 60.0)).decode().split()
    run.kill()
    await run.wait()
    await eventually(lambda: not any(is_process_running(int(pid)) for pid in pids))
    shutil.rmtree(folder)


def is_process_running(pid: int) -> bool:
    # A zombie (Z) has ended, although its parent has not waited for it yet.
    listed = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True
    ).stdout.strip()
    return bool(listed) and not listed.startswith("Z")
