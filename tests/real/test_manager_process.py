"""The `manager` command: flags, signals, and every failure to start, with its message and fix."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from kubewright.testing import eventually
from kubewright.testing.ca import CertificateAuthority
from kubewright.testing.cluster_access import write_kubeconfig
from kubewright.testing.controlplane import ControlPlane
from kubewright.testing.proxy import HttpProxy
from support.manager_process import (
    FREE_PORT_FLAGS,
    SERVICE_ACCOUNT,
    SYSTEM_NAMESPACE,
    ManagerProcess,
    create_resource,
    get_lease,
    get_resource,
    run_manager,
    run_ready_manager,
    wait_for_status,
)

STATUS_PATH = "*/mycustomresources/*/status"
CRD_NAME = "mycustomresources.poc.test.domain"


# Signals


async def test_sigterm_exits_with_0_and_releases_the_lease(
    installed: ControlPlane, manager_kubeconfig: Path, log_file: Path
) -> None:
    async with run_ready_manager(
        log_file,
        manager_kubeconfig,
        "--leader-elect",
        f"--leader-election-namespace={SYSTEM_NAMESPACE}",
    ) as manager:
        assert get_lease(installed)["holderIdentity"] != ""
        manager.send_signal(signal.SIGTERM)
        assert await manager.wait_for_exit() == 0
        assert not get_lease(installed).get("holderIdentity")


@pytest.fixture
async def proxy(installed: ControlPlane) -> AsyncIterator[HttpProxy]:
    async with HttpProxy.in_front_of(installed) as proxy:
        yield proxy


@pytest.fixture
def token(installed: ControlPlane) -> str:
    return installed.create_service_account_token(SYSTEM_NAMESPACE, SERVICE_ACCOUNT)


@pytest.fixture
def proxied_kubeconfig(proxy: HttpProxy, token: str, tmp_path: Path) -> Path:
    """A kubeconfig of the service account that connects through the proxy."""
    return proxy.write_kubeconfig(tmp_path / "proxied", token=token)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_running_reconciles_finish_before_the_process_exits(
    installed: ControlPlane,
    namespace: str,
    proxy: HttpProxy,
    proxied_kubeconfig: Path,
    log_file: Path,
    number: signal.Signals,
) -> None:
    async with run_ready_manager(log_file, proxied_kubeconfig) as manager:
        slow = proxy.delay_next("PUT", STATUS_PATH, 1.0)
        create_resource(installed, namespace, "joe", spec={"name": "funny-joe"})
        await eventually(lambda: slow.matched_requests)
        manager.send_signal(number)
        assert await manager.wait_for_exit() == 0
    assert slow.upstream_statuses == [200]
    assert get_resource(installed, namespace, "joe")["status"]["observedGeneration"] == 1


async def test_second_signal_exits_at_once(
    installed: ControlPlane,
    namespace: str,
    proxy: HttpProxy,
    proxied_kubeconfig: Path,
    log_file: Path,
) -> None:
    async with run_ready_manager(log_file, proxied_kubeconfig) as manager:
        stuck = proxy.delay_next("PUT", STATUS_PATH, 60.0)
        create_resource(installed, namespace, "joe", spec={"name": "funny-joe"})
        await eventually(lambda: stuck.matched_requests)
        manager.send_signal(signal.SIGTERM)
        await manager.wait_for_log("send it again to exit at once")
        manager.send_signal(signal.SIGTERM)
        assert await manager.wait_for_exit(within=60) == 128 + signal.SIGTERM


# Flags

FLAG_SPELLINGS = [
    ("-metrics-addr=:0", "-health-probe-bind-address", "127.0.0.1:0", "-insecure"),
    (
        "--metrics-bind-address=127.0.0.1:0",
        "--health-probe-bind-address=127.0.0.1:0",
        "--insecure=true",
        "-zap-log-level=debug",
    ),
    (
        "-metrics-addr",
        "0",
        "-health-probe-bind-address=127.0.0.1:0",
        "--leader-elect=false",
        "--enable-leader-election=f",
    ),
]


@pytest.mark.parametrize(
    "flags", FLAG_SPELLINGS, ids=["single dash", "double dash", "values apart"]
)
async def test_flags_have_go_syntax(
    manager_kubeconfig: Path, log_file: Path, flags: tuple[str, ...]
) -> None:
    async with run_manager(log_file, "-kubeconfig", str(manager_kubeconfig), *flags) as manager:
        await manager.wait_for_log("Starting workers")
        await manager.wait_until_ready()


async def test_development_logs_are_text(manager_kubeconfig: Path, log_file: Path) -> None:
    async with run_manager(
        log_file, f"-kubeconfig={manager_kubeconfig}", "--metrics-addr=0", "--zap-devel"
    ) as manager:
        await manager.wait_for_log("Starting workers")
        assert manager.log_records == []
        assert "\tDEBUG\t" in manager.log_text


async def test_environment_variables_set_flags(manager_kubeconfig: Path, log_file: Path) -> None:
    environ = {
        "KUBECONFIG": str(manager_kubeconfig),
        "METRICS_ADDR": "127.0.0.1:0",
        "LEADER_ELECT": "true",
        "POD_NAMESPACE": SYSTEM_NAMESPACE,
    }
    async with run_manager(log_file, environ=environ, new_interpreter=True) as manager:
        await manager.wait_for_log("became leader", within=60)
        assert (await manager.http_get("/metrics"))[0] == 200
        manager.send_signal(signal.SIGTERM)
        assert await manager.wait_for_exit() == 0


# Failures to start


async def run_failing_manager(
    log: Path,
    *flags: str,
    environ: Mapping[str, str] | None = None,
    new_interpreter: bool = False,
) -> tuple[int, str]:
    """Exit code and log of a manager that cannot start."""
    async with run_manager(
        log, *flags, environ=environ, new_interpreter=new_interpreter
    ) as manager:
        code, log_text = await manager.wait_for_exit(), manager.log_text
    assert "Traceback" not in log_text
    return code, log_text


def write_changed_kubeconfig(
    path: Path, base: Path, change: dict[str, Any], *, section: str
) -> Path:
    """A kubeconfig with changed fields of the cluster or the user; None removes a field."""
    config = json.loads(base.read_text())
    entry = config[f"{section}s"][0][section]
    entry.update(change)
    config[f"{section}s"][0][section] = {
        key: value for key, value in entry.items() if value is not None
    }
    path.write_text(json.dumps(config))
    return path


@pytest.mark.parametrize("new_interpreter", [False, True], ids=["forked", "new interpreter"])
async def test_unknown_flag_is_named(log_file: Path, new_interpreter: bool) -> None:
    code, log_text = await run_failing_manager(
        log_file, "--metrics-adress=:0", new_interpreter=new_interpreter
    )
    assert code == 2
    assert "metrics-adress" in log_text
    assert "-help" in log_text


async def test_missing_kubeconfig_names_the_searched_places(log_file: Path) -> None:
    code, log_text = await run_failing_manager(log_file)
    assert code == 1
    for place in ("--kubeconfig", "KUBECONFIG", "service account", ".kube/config"):
        assert place in log_text


async def test_incomplete_vcenter_settings_name_the_missing_variable(
    tmp_path: Path, log_file: Path
) -> None:
    config = write_kubeconfig(
        tmp_path / "config",
        "https://127.0.0.1:1",
        CertificateAuthority("unknown-user").certificate,
        "manager",
        "token",
    )
    code, log_text = await run_failing_manager(
        log_file, f"--kubeconfig={config}", environ={"GOVMOMI_URL": "vc.invalid", "VC_USER": "me"}
    )
    assert code == 1
    assert "GOVMOMI_PASSWORD (or VC_PASS) not set" in log_text
    assert "as keys of Secret vc-creds" in log_text


async def test_unreachable_cluster(
    control_plane: ControlPlane, tmp_path: Path, log_file: Path
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        server = f"https://127.0.0.1:{unused.getsockname()[1]}"
        config = control_plane.write_kubeconfig(tmp_path / "config", server=server)
        code, log_text = await run_failing_manager(log_file, f"--kubeconfig={config}")
    assert code == 1
    assert f"the API server at {server} (from kubeconfig {config}" in log_text
    assert "cannot be reached" in log_text
    assert "Check that the cluster is running and that the address is correct." in log_text


async def test_certificate_of_another_authority(
    installed: ControlPlane, token: str, tmp_path: Path, log_file: Path
) -> None:
    config = write_kubeconfig(
        tmp_path / "config",
        installed.url,
        CertificateAuthority("another-ca").certificate,
        "manager",
        token,
    )
    code, log_text = await run_failing_manager(
        log_file, f"--kubeconfig={config}", "--zap-log-level=debug"
    )
    assert code == 1
    assert "certificate verify failed" in log_text
    assert "certificate-authority" in log_text
    assert token not in log_text


async def test_invalid_token(manager_kubeconfig: Path, tmp_path: Path, log_file: Path) -> None:
    config = write_changed_kubeconfig(
        tmp_path / "config", manager_kubeconfig, {"token": "garbage-in-the-token"}, section="user"
    )
    code, log_text = await run_failing_manager(
        log_file, f"--kubeconfig={config}", "--zap-log-level=debug"
    )
    assert code == 1
    assert "The credentials of this kubeconfig are missing, wrong or expired" in log_text
    assert "garbage-in-the-token" not in log_text


MALFORMED_KUBECONFIGS = {
    "no server": ({"server": None}, "cluster", "clusters[name=test].cluster.server"),
    "no URL": ({"server": "not a url"}, "cluster", "clusters[name=test].cluster.server"),
    "no base64": (
        {"certificate-authority-data": "???"},
        "cluster",
        "clusters[name=test].cluster.certificate-authority-data",
    ),
    "no file": (
        {"token": None, "tokenFile": "nowhere"},
        "user",
        f"users[name={SERVICE_ACCOUNT}].user.tokenFile",
    ),
    "half a pair": (
        {"client-certificate": "nowhere"},
        "user",
        f"users[name={SERVICE_ACCOUNT}].user.client-key",
    ),
    "a list": ({"server": ["https://localhost"]}, "cluster", "clusters[name=test].cluster.server"),
}


@pytest.mark.parametrize(
    ("change", "of", "key"), MALFORMED_KUBECONFIGS.values(), ids=MALFORMED_KUBECONFIGS.keys()
)
async def test_malformed_kubeconfig_is_named_with_its_key(
    manager_kubeconfig: Path,
    tmp_path: Path,
    log_file: Path,
    change: dict[str, Any],
    of: str,
    key: str,
) -> None:
    config = write_changed_kubeconfig(tmp_path / "config", manager_kubeconfig, change, section=of)
    code, log_text = await run_failing_manager(log_file, f"--kubeconfig={config}")
    assert code == 1
    assert str(config) in log_text
    assert key in log_text


async def test_kubeconfig_that_is_not_yaml_is_named_with_the_line(
    tmp_path: Path, log_file: Path
) -> None:
    (tmp_path / "config").write_text("clusters:\n- name: [\n")
    code, log_text = await run_failing_manager(log_file, f"--kubeconfig={tmp_path / 'config'}")
    assert code == 1
    assert str(tmp_path / "config") in log_text
    assert "line 3" in log_text


async def test_address_in_use_is_reported(manager_kubeconfig: Path, log_file: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        code, log_text = await run_failing_manager(
            log_file, f"--kubeconfig={manager_kubeconfig}", f"--metrics-addr={address}"
        )
    assert code == 1
    assert address in log_text
    assert "already listens there" in log_text


# The manager waits for what is missing in the cluster


async def test_manager_without_permissions_waits_and_continues_when_they_are_granted(
    installed: ControlPlane, config: Path, namespace: str, manager_kubeconfig: Path, log_file: Path
) -> None:
    create_resource(installed, namespace, "joe", spec={"name": "funny-joe"})
    installed.kubectl("delete", "clusterrolebinding", "vsphere-operators-manager-rolebinding")
    try:
        async with run_manager(
            log_file, f"--kubeconfig={manager_kubeconfig}", *FREE_PORT_FLAGS
        ) as manager:
            log_text = await manager.wait_for_log("kubectl apply --server-side -k config/rbac")
            assert "forbidden" in log_text
            assert (await manager.http_get("/readyz"))[0] == 500
            assert "Starting workers" not in manager.log_text
            await apply_roles(installed, config)
            await wait_for_status(installed, namespace, "joe", "NoFriend", within=60)
            await manager.wait_until_ready()
    finally:
        await apply_roles(installed, config)


async def apply_roles(plane: ControlPlane, config: Path) -> None:
    await asyncio.to_thread(plane.kubectl, "apply", "-k", str(config / "rbac"))


async def test_candidate_without_the_lease_role_waits_and_leads_when_it_is_granted(
    installed: ControlPlane, config: Path, manager_kubeconfig: Path, log_file: Path
) -> None:
    installed.kubectl(
        "-n",
        SYSTEM_NAMESPACE,
        "delete",
        "rolebinding",
        "vsphere-operators-leader-election-rolebinding",
    )
    try:
        flags = (
            "--leader-elect",
            f"--leader-election-namespace={SYSTEM_NAMESPACE}",
            *FREE_PORT_FLAGS,
        )
        async with run_manager(log_file, f"--kubeconfig={manager_kubeconfig}", *flags) as manager:
            await manager.wait_for_log(
                "Grant the leader-election role: kubectl apply --server-side -k config/rbac"
            )
            await apply_roles(installed, config)
            await manager.wait_for_log("became leader", within=60)
            await manager.stop(5)
    finally:
        await apply_roles(installed, config)


async def test_manager_without_the_crd_waits_and_continues_when_it_is_installed(
    installed: ControlPlane, config: Path, namespace: str, manager_kubeconfig: Path, log_file: Path
) -> None:
    installed.kubectl("delete", "-k", str(config / "crd"), "--timeout=60s")
    try:
        async with run_manager(
            log_file, f"--kubeconfig={manager_kubeconfig}", *FREE_PORT_FLAGS
        ) as manager:
            log_text = await manager.wait_for_log(f"the kind {CRD_NAME} is not installed")
            assert "make install" in log_text
            assert f"the kind {CRD_NAME} is not installed" in (await manager.http_get("/readyz"))[1]
            await apply_crds(installed, config)
            create_resource(installed, namespace, "joe", spec={"name": "funny-joe"})
            await wait_for_status(installed, namespace, "joe", "NoFriend", within=60)
            await manager.wait_until_ready()
    finally:
        await apply_crds(installed, config)


async def apply_crds(plane: ControlPlane, config: Path) -> None:
    await asyncio.to_thread(plane.kubectl, "apply", "-k", str(config / "crd"))
    await asyncio.to_thread(plane.wait_for_crds)


# Secrets


async def test_no_token_is_ever_logged(
    installed: ControlPlane,
    namespace: str,
    proxy: HttpProxy,
    proxied_kubeconfig: Path,
    token: str,
    log_file: Path,
) -> None:
    for echo in (
        f"Authorization: Bearer {token}",
        f'invalid bearer token "{token}"',
        f"token {token} has expired",
    ):
        body = json.dumps(
            {"kind": "Status", "message": echo, "code": 401, "reason": "Unauthorized"}
        ).encode()
        proxy.fail_next("PUT", STATUS_PATH, 401, body=body)
        proxy.fail_next("GET", "*/mycustomresources", 500, body=echo.encode())
    async with run_ready_manager(log_file, proxied_kubeconfig, "--zap-log-level=9") as manager:
        create_resource(installed, namespace, "joe", spec={"name": "funny-joe"})
        await wait_for_status(installed, namespace, "joe", "NoFriend", within=60)
        assert all(rule.matched_requests for rule in proxy.rules)
        assert_no_token(manager, token)
    output = installed.kubectl("-n", namespace, "get", "events", "-o", "yaml") + json.dumps(
        get_resource(installed, namespace, "joe")
    )
    assert token not in output


def assert_no_token(manager: ManagerProcess, token: str) -> None:
    """Checks for the token and for its usable parts."""
    for part in (token, *token.split(".")):
        assert part not in manager.log_text
