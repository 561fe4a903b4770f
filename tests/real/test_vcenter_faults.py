"""The manager with a failing vCenter: counters of the simulator, statuses and log."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubewright.testing.controlplane import ControlPlane
from simulator import SimulatedVCenter
from support.info_client import InfoClient, run_vcenter_manager, write_credentials
from support.manager_process import FREE_PORT_FLAGS, ready_condition, run_manager

HOST_NAME = "esxi-dell-e.rainpole.com"
CANARY = "canary-4711-horse"


async def start_simulator(
    pytestconfig: pytest.Config, folder: Path, *flags: str, **how: Any
) -> SimulatedVCenter:
    given = ("--clusters=1", "--hosts=1", "--vms=1", "--fcds=1", *flags)
    return await SimulatedVCenter(
        pytestconfig.rootpath / ".testenv/bin/vcsim", folder, *given, **{"password": CANARY, **how}
    ).start()


@pytest.fixture
async def simulator(pytestconfig: pytest.Config, tmp_path: Path) -> AsyncIterator[SimulatedVCenter]:
    simulator = await start_simulator(pytestconfig, tmp_path / "vcsim", f"--host-name={HOST_NAME}")
    yield simulator
    await simulator.stop()


@pytest.fixture
def info_client(installed: ControlPlane, namespace: str) -> InfoClient:
    return InfoClient(installed, namespace)


@pytest.fixture
def credentials_folder(simulator: SimulatedVCenter, tmp_path: Path) -> Path:
    return write_credentials(tmp_path / "vc-creds", simulator)


async def count_logins(vcenter: SimulatedVCenter) -> int:
    return (await vcenter.call_counts()).get("Login", 0)


async def test_ended_session_causes_one_login_and_no_message(
    simulator: SimulatedVCenter,
    info_client: InfoClient,
    credentials_folder: Path,
    log_file: Path,
    manager_kubeconfig: Path,
) -> None:
    await info_client.create("HostInfo", "host", HOST_NAME)
    async with run_vcenter_manager(
        log_file, manager_kubeconfig, credentials_folder, simulator.certificate
    ) as manager:
        before = ready_condition({"status": await info_client.wait_for_status("HostInfo", "host")})
        assert await count_logins(simulator) == 1
        assert await simulator.expire_sessions() == 1
        await simulator.set_attribute(HOST_NAME, "rack", "r12")
        status = await info_client.wait_for_status(
            "HostInfo", "host", predicate=lambda status: status.get("customAttributes")
        )
        assert (
            ready_condition({"status": status})["lastTransitionTime"]
            == before["lastTransitionTime"]
        )
        assert await count_logins(simulator) == 2
        assert len(await simulator.sessions()) == 1
        assert [
            line
            for line in manager.log_records
            if line["level"] == "error" and line["logger"] in ("vcenter", "controller")
        ] == []


async def test_wrong_password_is_reported_once_and_recovers_with_the_file(
    simulator: SimulatedVCenter,
    info_client: InfoClient,
    credentials_folder: Path,
    log_file: Path,
    manager_kubeconfig: Path,
) -> None:
    (credentials_folder / "GOVMOMI_PASSWORD").write_text("wrong")
    await info_client.create("HostInfo", "host", HOST_NAME)
    given = (
        f"--vcenter-credentials={credentials_folder}",
        f"--vcenter-ca-file={simulator.certificate}",
    )
    async with run_manager(
        log_file, f"--kubeconfig={manager_kubeconfig}", *FREE_PORT_FLAGS, *given
    ):
        status = await info_client.wait_for_status("HostInfo", "host", "VCenterLoginFailed")
        message = ready_condition({"status": status})["message"]
        assert str(credentials_folder) in message
        assert "password" in message
        # Long enough for a client that retries every few seconds.
        await asyncio.sleep(8)
        assert await count_logins(simulator) == 1
        (credentials_folder / "GOVMOMI_PASSWORD").write_text(simulator.password)
        await info_client.wait_for_status("HostInfo", "host", within=60)
        assert await count_logins(simulator) == 2
        assert not await simulator.is_locked(simulator.user)


async def test_secret_created_after_the_manager_takes_effect_without_a_restart(
    simulator: SimulatedVCenter,
    info_client: InfoClient,
    tmp_path: Path,
    log_file: Path,
    manager_kubeconfig: Path,
) -> None:
    later = tmp_path / "later"
    later.mkdir()
    await info_client.create("HostInfo", "host", HOST_NAME)
    given = (f"--vcenter-credentials={later}", f"--vcenter-ca-file={simulator.certificate}")
    async with run_manager(
        log_file, f"--kubeconfig={manager_kubeconfig}", *FREE_PORT_FLAGS, *given
    ) as manager:
        await info_client.wait_for_status("HostInfo", "host", "NoVCenter", within=40)
        began = manager.pid
        write_credentials(later, simulator)
        await info_client.wait_for_status("HostInfo", "host", within=40)
        assert manager.pid == began
        assert len(await simulator.sessions()) == 1
        await manager.stop(10)
    assert await simulator.sessions() == []


async def test_vcenter_is_followed_again_after_an_outage(
    simulator: SimulatedVCenter,
    info_client: InfoClient,
    credentials_folder: Path,
    log_file: Path,
    manager_kubeconfig: Path,
) -> None:
    await info_client.create("HostInfo", "host", HOST_NAME)
    async with run_vcenter_manager(
        log_file, manager_kubeconfig, credentials_folder, simulator.certificate
    ) as manager:
        full = await info_client.wait_for_status("HostInfo", "host")
        await simulator.set_outage("reset")
        gone = await info_client.wait_for_status(
            "HostInfo", "host", "VCenterUnreachable", within=60
        )
        assert ready_condition({"status": gone})["status"] == "False"
        assert gone["totalCPU"] == full["totalCPU"]
        await simulator.set_attribute(HOST_NAME, "rack", "r12")
        await simulator.set_outage("")
        await info_client.wait_for_status(
            "HostInfo",
            "host",
            within=30,
            predicate=lambda status: status.get("customAttributes") == {"rack": "r12"},
        )
        assert len(await simulator.sessions()) == 1
        assert manager.is_running


async def test_hanging_wait_for_updates_is_detected(
    simulator: SimulatedVCenter,
    info_client: InfoClient,
    credentials_folder: Path,
    log_file: Path,
    manager_kubeconfig: Path,
) -> None:
    await info_client.create("HostInfo", "host", HOST_NAME)
    async with run_vcenter_manager(
        log_file, manager_kubeconfig, credentials_folder, simulator.certificate
    ):
        await info_client.wait_for_status("HostInfo", "host")
        await simulator.set_outage("hang")
        # The open WaitForUpdatesEx ends within 15 s. The next one hangs and is dropped after 35 s;
        # its logout takes 3 s more.
        await info_client.wait_for_status("HostInfo", "host", "VCenterUnreachable", within=60)
        await simulator.set_outage("")
        await info_client.wait_for_status("HostInfo", "host", within=60)


async def test_sigterm_leaves_nothing_on_the_server(
    simulator: SimulatedVCenter,
    info_client: InfoClient,
    credentials_folder: Path,
    log_file: Path,
    manager_kubeconfig: Path,
) -> None:
    await info_client.create("HostInfo", "host", HOST_NAME)
    async with run_vcenter_manager(
        log_file, manager_kubeconfig, credentials_folder, simulator.certificate
    ) as manager:
        await info_client.wait_for_status("HostInfo", "host")
        (session,) = await simulator.sessions()
        assert session["filters"]
        manager.send_signal(signal.SIGTERM)
        assert await manager.wait_for_exit() == 0
        assert await simulator.sessions() == []
        assert await simulator.rest_sessions() == []


async def test_untrusted_certificate_is_rejected_with_the_fix(
    simulator: SimulatedVCenter,
    info_client: InfoClient,
    credentials_folder: Path,
    log_file: Path,
    manager_kubeconfig: Path,
) -> None:
    await info_client.create("HostInfo", "host", HOST_NAME)
    flags = (
        f"--kubeconfig={manager_kubeconfig}",
        *FREE_PORT_FLAGS,
        f"--vcenter-credentials={credentials_folder}",
    )
    async with run_manager(log_file, *flags) as manager:
        status = await info_client.wait_for_status("HostInfo", "host", "VCenterCertificateRefused")
        assert "-vcenter-ca-file" in ready_condition({"status": status})["message"]
        assert "-vcenter-ca-file" in manager.log_text
        assert await count_logins(simulator) == 0
    async with run_manager(log_file, *flags, "-insecure"):
        await info_client.wait_for_status("HostInfo", "host")


async def test_objects_without_a_vcenter_report_what_to_set(
    info_client: InfoClient, log_file: Path, manager_kubeconfig: Path
) -> None:
    await info_client.create("HostInfo", "host", HOST_NAME)
    async with run_manager(
        log_file, f"--kubeconfig={manager_kubeconfig}", *FREE_PORT_FLAGS
    ) as manager:
        status = await info_client.wait_for_status("HostInfo", "host", "NoVCenter")
        assert "GOVMOMI_URL" in ready_condition({"status": status})["message"]
        await manager.wait_for_log("no vCenter is configured")


async def test_unreachable_vcenter_affects_only_its_own_objects(
    pytestconfig: pytest.Config,
    simulator: SimulatedVCenter,
    info_client: InfoClient,
    installed: ControlPlane,
    log_file: Path,
    manager_kubeconfig: Path,
    tmp_path: Path,
) -> None:
    other = await start_simulator(pytestconfig, tmp_path / "vcsim-east", f"--host-name={HOST_NAME}")
    east = InfoClient(installed, f"{info_client.namespace}-east")
    await asyncio.to_thread(installed.create_namespace, east.namespace)
    await asyncio.to_thread(installed.kubectl, "label", "namespace", east.namespace, "vcenter=east")
    entries = [
        {
            "name": "west",
            "server": simulator.url,
            "ca": str(simulator.certificate),
            "namespaces": {"names": [info_client.namespace]},
        },
        {
            "name": "east",
            "server": other.url,
            "ca": str(other.certificate),
            "namespaces": {"labels": {"vcenter": "east"}},
        },
    ]
    for entry, one in zip(entries, (simulator, other), strict=True):
        entry["credentials"] = str(write_credentials(tmp_path / str(entry["name"]), one))
    (tmp_path / "vcenters.yaml").write_text(yaml.safe_dump({"vcenters": entries}))
    try:
        async with run_manager(
            log_file,
            f"--kubeconfig={manager_kubeconfig}",
            *FREE_PORT_FLAGS,
            f"--vcenters={tmp_path / 'vcenters.yaml'}",
        ):
            for client, name in ((info_client, "west"), (east, "east")):
                await client.create("HostInfo", "host", HOST_NAME)
                assert (await client.wait_for_status("HostInfo", "host"))["vcenter"] == name
            await other.stop()
            await east.wait_for_status("HostInfo", "host", "VCenterUnreachable", within=60)
            await simulator.set_attribute(HOST_NAME, "rack", "r12")
            await info_client.wait_for_status(
                "HostInfo", "host", predicate=lambda status: status.get("customAttributes")
            )
    finally:
        await other.stop()
        await asyncio.to_thread(installed.remove_namespace, east.namespace)


async def test_password_is_never_logged_or_stored(
    simulator: SimulatedVCenter,
    info_client: InfoClient,
    installed: ControlPlane,
    credentials_folder: Path,
    log_file: Path,
    manager_kubeconfig: Path,
) -> None:
    loud = ("--zap-log-level=9", "--zap-stacktrace-level=info")
    flags = (
        f"--kubeconfig={manager_kubeconfig}",
        *FREE_PORT_FLAGS,
        f"--vcenter-credentials={credentials_folder}",
        *loud,
    )
    trusting = f"--vcenter-ca-file={simulator.certificate}"
    logs = [log_file.with_name(f"manager-{number}.log") for number in range(3)]
    await info_client.create("HostInfo", "host", HOST_NAME)
    await info_client.create("HostInfo", "none", "nowhere")
    # TLS fails; the password is rejected; a fault of the login contains it; the login succeeds.
    async with run_manager(logs[0], *flags):
        await info_client.wait_for_status("HostInfo", "host", "VCenterCertificateRefused")
    await simulator.set_password(simulator.user, "another")
    async with run_manager(logs[1], *flags, trusting):
        await info_client.wait_for_status("HostInfo", "host", "VCenterLoginFailed")
    await simulator.set_password(simulator.user, CANARY)
    await simulator.fail_calls("Login", "SystemError", fields={"reason": f"echo of {CANARY}"})
    async with run_manager(logs[2], *flags, trusting, new_interpreter=True) as manager:
        await info_client.wait_for_status("HostInfo", "host")
        await info_client.wait_for_status("HostInfo", "none", "HostNotFound")
        places = [
            await asyncio.to_thread(Path(f"/proc/{manager.pid}/cmdline").read_text),
            (await manager.http_get("/metrics"))[1],
        ]
        manager.send_signal(signal.SIGTERM)
        await manager.wait_for_exit()
    places += [await asyncio.to_thread(log.read_text) for log in logs]
    places.append(
        await asyncio.to_thread(
            installed.kubectl, "get", "events,hostinfoes", "-n", info_client.namespace, "-o", "yaml"
        )
    )
    assert all(places)
    assert [
        place[max(0, place.find(CANARY) - 200) :][:400] for place in places if CANARY in place
    ] == []
