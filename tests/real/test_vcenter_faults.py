"""The manager when its vCenter misbehaves: the truth is in the simulator's counters, the API server and the manager's own log."""

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

from .managing import EVERYWHERE, ready_of, started
from .vsphere import Infos, credentials_in, managing

HOST = "esxi-dell-e.rainpole.com"
CANARY = "canary-4711-horse"


async def simulated(
    pytestconfig: pytest.Config, folder: Path, *flags: str, **how: Any
) -> SimulatedVCenter:
    """A small vCenter."""
    given = ("--clusters=1", "--hosts=1", "--vms=1", "--fcds=1", *flags)
    return await SimulatedVCenter(
        pytestconfig.rootpath / ".testenv/bin/vcsim", folder, *given, **{"password": CANARY, **how}
    ).start()


@pytest.fixture
async def vcenter(pytestconfig: pytest.Config, tmp_path: Path) -> AsyncIterator[SimulatedVCenter]:
    vcenter = await simulated(pytestconfig, tmp_path / "vcsim", f"--host-name={HOST}")
    yield vcenter
    await vcenter.stop()


@pytest.fixture
def infos(installed: ControlPlane, namespace: str) -> Infos:
    return Infos(installed, namespace)


@pytest.fixture
def credentials(vcenter: SimulatedVCenter, tmp_path: Path) -> Path:
    return credentials_in(tmp_path / "vc-creds", vcenter)


async def logins(vcenter: SimulatedVCenter) -> int:
    """How often anybody has tried to log in."""
    return (await vcenter.call_counts()).get("Login", 0)


async def test_a_killed_session_is_one_login_and_no_word(
    vcenter: SimulatedVCenter, infos: Infos, credentials: Path, log: Path, service_account: Path
) -> None:
    await infos.create("HostInfo", "host", HOST)
    async with managing(log, service_account, credentials, vcenter.certificate) as manager:
        before = ready_of({"status": await infos.status("HostInfo", "host")})
        assert await logins(vcenter) == 1
        assert await vcenter.expire_sessions() == 1
        await vcenter.set_attribute(HOST, "rack", "r12")
        status = await infos.status(
            "HostInfo", "host", where=lambda status: status.get("customAttributes")
        )
        assert ready_of({"status": status})["lastTransitionTime"] == before["lastTransitionTime"]
        assert await logins(vcenter) == 2
        assert len(await vcenter.sessions()) == 1
        assert [
            line
            for line in manager.lines
            if line["level"] == "error" and line["logger"] in ("vcenter", "controller")
        ] == []


async def test_a_wrong_password_is_said_once_and_recovers_with_the_file(
    vcenter: SimulatedVCenter, infos: Infos, credentials: Path, log: Path, service_account: Path
) -> None:
    (credentials / "GOVMOMI_PASSWORD").write_text("wrong")
    await infos.create("HostInfo", "host", HOST)
    given = (f"--vcenter-credentials={credentials}", f"--vcenter-ca-file={vcenter.certificate}")
    async with started(log, f"--kubeconfig={service_account}", *EVERYWHERE, *given):
        status = await infos.status("HostInfo", "host", "VCenterLoginFailed")
        message = ready_of({"status": status})["message"]
        assert str(credentials) in message
        assert "password" in message
        # Long enough for one who tries every few seconds.
        await asyncio.sleep(8)
        assert await logins(vcenter) == 1
        (credentials / "GOVMOMI_PASSWORD").write_text(vcenter.password)
        await infos.status("HostInfo", "host", within=10)
        assert await logins(vcenter) == 2
        assert not await vcenter.is_locked(vcenter.user)


async def test_a_secret_that_comes_after_the_manager_takes_effect_without_a_restart(
    vcenter: SimulatedVCenter, infos: Infos, tmp_path: Path, log: Path, service_account: Path
) -> None:
    later = tmp_path / "later"
    later.mkdir()
    await infos.create("HostInfo", "host", HOST)
    given = (f"--vcenter-credentials={later}", f"--vcenter-ca-file={vcenter.certificate}")
    async with started(log, f"--kubeconfig={service_account}", *EVERYWHERE, *given) as manager:
        await infos.status("HostInfo", "host", "NoVCenter", within=40)
        began = manager.pid
        credentials_in(later, vcenter)
        await infos.status("HostInfo", "host", within=40)
        assert manager.pid == began
        assert len(await vcenter.sessions()) == 1
        await manager.stop(10)
    assert await vcenter.sessions() == []


async def test_a_vcenter_that_is_gone_for_a_while_is_followed_again(
    vcenter: SimulatedVCenter, infos: Infos, credentials: Path, log: Path, service_account: Path
) -> None:
    await infos.create("HostInfo", "host", HOST)
    async with managing(log, service_account, credentials, vcenter.certificate) as manager:
        full = await infos.status("HostInfo", "host")
        await vcenter.set_outage("reset")
        gone = await infos.status("HostInfo", "host", "VCenterUnreachable", within=60)
        assert ready_of({"status": gone})["status"] == "False"
        assert gone["totalCPU"] == full["totalCPU"]
        await vcenter.set_attribute(HOST, "rack", "r12")
        await vcenter.set_outage("")
        await infos.status(
            "HostInfo",
            "host",
            within=30,
            where=lambda status: status.get("customAttributes") == {"rack": "r12"},
        )
        assert len(await vcenter.sessions()) == 1
        assert manager.is_running


async def test_a_wait_that_hangs_is_noticed(
    vcenter: SimulatedVCenter, infos: Infos, credentials: Path, log: Path, service_account: Path
) -> None:
    await infos.create("HostInfo", "host", HOST)
    async with managing(log, service_account, credentials, vcenter.certificate):
        await infos.status("HostInfo", "host")
        await vcenter.set_outage("hang")
        # The wait that is open is answered within 15 s; the next one hangs, and is given up after 35, and its end takes 3 more.
        await infos.status("HostInfo", "host", "VCenterUnreachable", within=60)
        await vcenter.set_outage("")
        await infos.status("HostInfo", "host", within=60)


async def test_nothing_is_left_on_the_server_after_sigterm(
    vcenter: SimulatedVCenter, infos: Infos, credentials: Path, log: Path, service_account: Path
) -> None:
    await infos.create("HostInfo", "host", HOST)
    async with managing(log, service_account, credentials, vcenter.certificate) as manager:
        await infos.status("HostInfo", "host")
        (session,) = await vcenter.sessions()
        assert session["filters"]
        manager.send_signal(signal.SIGTERM)
        assert await manager.ended() == 0
        assert await vcenter.sessions() == []
        assert await vcenter.rest_sessions() == []


async def test_a_certificate_that_nobody_trusts_is_refused_with_the_fix(
    vcenter: SimulatedVCenter, infos: Infos, credentials: Path, log: Path, service_account: Path
) -> None:
    await infos.create("HostInfo", "host", HOST)
    flags = (f"--kubeconfig={service_account}", *EVERYWHERE, f"--vcenter-credentials={credentials}")
    async with started(log, *flags) as manager:
        status = await infos.status("HostInfo", "host", "VCenterCertificateRefused")
        assert "-vcenter-ca-file" in ready_of({"status": status})["message"]
        assert "-vcenter-ca-file" in manager.text
        assert await logins(vcenter) == 0
    async with started(log, *flags, "-insecure"):
        await infos.status("HostInfo", "host")


async def test_without_a_vcenter_the_objects_say_what_to_set(
    infos: Infos, log: Path, service_account: Path
) -> None:
    await infos.create("HostInfo", "host", HOST)
    async with started(log, f"--kubeconfig={service_account}", *EVERYWHERE) as manager:
        status = await infos.status("HostInfo", "host", "NoVCenter")
        assert "GOVMOMI_URL" in ready_of({"status": status})["message"]
        await manager.says("no vCenter is configured")


async def test_a_vcenter_that_is_down_takes_only_its_own_objects_down(
    pytestconfig: pytest.Config,
    vcenter: SimulatedVCenter,
    infos: Infos,
    installed: ControlPlane,
    log: Path,
    service_account: Path,
    tmp_path: Path,
) -> None:
    other = await simulated(pytestconfig, tmp_path / "vcsim-east", f"--host-name={HOST}")
    east = Infos(installed, f"{infos.namespace}-east")
    await asyncio.to_thread(installed.create_namespace, east.namespace)
    await asyncio.to_thread(installed.kubectl, "label", "namespace", east.namespace, "vcenter=east")
    entries = [
        {
            "name": "west",
            "server": vcenter.url,
            "ca": str(vcenter.certificate),
            "namespaces": {"names": [infos.namespace]},
        },
        {
            "name": "east",
            "server": other.url,
            "ca": str(other.certificate),
            "namespaces": {"labels": {"vcenter": "east"}},
        },
    ]
    for entry, one in zip(entries, (vcenter, other), strict=True):
        entry["credentials"] = str(credentials_in(tmp_path / str(entry["name"]), one))
    (tmp_path / "vcenters.yaml").write_text(yaml.safe_dump({"vcenters": entries}))
    try:
        async with started(
            log,
            f"--kubeconfig={service_account}",
            *EVERYWHERE,
            f"--vcenters={tmp_path / 'vcenters.yaml'}",
        ):
            for each, name in ((infos, "west"), (east, "east")):
                await each.create("HostInfo", "host", HOST)
                assert (await each.status("HostInfo", "host"))["vcenter"] == name
            await other.stop()
            await east.status("HostInfo", "host", "VCenterUnreachable", within=60)
            await vcenter.set_attribute(HOST, "rack", "r12")
            await infos.status(
                "HostInfo", "host", where=lambda status: status.get("customAttributes")
            )
    finally:
        await other.stop()
        await asyncio.to_thread(installed.remove_namespace, east.namespace)


async def test_a_password_is_nowhere(
    vcenter: SimulatedVCenter,
    infos: Infos,
    installed: ControlPlane,
    credentials: Path,
    log: Path,
    service_account: Path,
) -> None:
    loud = ("--zap-log-level=9", "--zap-stacktrace-level=info")
    flags = (
        f"--kubeconfig={service_account}",
        *EVERYWHERE,
        f"--vcenter-credentials={credentials}",
        *loud,
    )
    trusting = f"--vcenter-ca-file={vcenter.certificate}"
    logs = [log.with_name(f"manager-{number}.log") for number in range(3)]
    await infos.create("HostInfo", "host", HOST)
    await infos.create("HostInfo", "none", "nowhere")
    # TLS refused; password refused; a fault in the login that echoes it, after which all is well.
    async with started(logs[0], *flags):
        await infos.status("HostInfo", "host", "VCenterCertificateRefused")
    await vcenter.set_password(vcenter.user, "another")
    async with started(logs[1], *flags, trusting):
        await infos.status("HostInfo", "host", "VCenterLoginFailed")
    await vcenter.set_password(vcenter.user, CANARY)
    await vcenter.fail_calls("Login", "SystemError", fields={"reason": f"echo of {CANARY}"})
    async with started(logs[2], *flags, trusting) as manager:
        await infos.status("HostInfo", "host")
        await infos.status("HostInfo", "none", "HostNotFound")
        places = [
            await asyncio.to_thread(Path(f"/proc/{manager.pid}/cmdline").read_text),
            (await manager.get("/metrics"))[1],
        ]
        manager.send_signal(signal.SIGTERM)
        await manager.ended()
    places += [await asyncio.to_thread(each.read_text) for each in logs]
    places.append(
        await asyncio.to_thread(
            installed.kubectl, "get", "events,hostinfoes", "-n", infos.namespace, "-o", "yaml"
        )
    )
    assert all(places)
    assert [
        place[max(0, place.find(CANARY) - 200) :][:400] for place in places if CANARY in place
    ] == []
