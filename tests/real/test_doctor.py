"""`manager doctor` in front of a simulated vCenter: all is well, then each error that people hit with vCenter, and its line."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from kubewright.testing.controlplane import ControlPlane, run_in_new_loop
from simulator import SimulatedVCenter
from support.manager_process import LEASE_NAME, MANAGER_USER, SYSTEM_NAMESPACE, run_ready_manager

from .doctor_command import METRICS_OFF, PASSWORD, read_doctor_report, run_doctor, vcenter_environ

TEMPLATE = "vm-operator-template"


@pytest.fixture(scope="module")
def vcenter(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SimulatedVCenter]:
    flags = ("--vms=1", f"--template={TEMPLATE}", "--folder=vm-operator", "--account=other:pass")
    vcenter = SimulatedVCenter(
        pytestconfig.rootpath / ".testenv/bin/vcsim",
        tmp_path_factory.mktemp("vcsim"),
        *flags,
        password=PASSWORD,
    )
    run_in_new_loop(start_vcenter(vcenter))
    yield vcenter
    run_in_new_loop(vcenter.stop())


async def start_vcenter(vcenter: SimulatedVCenter) -> None:
    await vcenter.start()


@pytest.fixture
async def extra_vcenters(
    pytestconfig: pytest.Config, tmp_path: Path
) -> AsyncIterator[list[SimulatedVCenter]]:
    """Further vCenters, ended after the test."""
    made: list[SimulatedVCenter] = []
    yield made
    for each in made:
        await each.stop()


def vcsim_path(pytestconfig: pytest.Config) -> Path:
    return pytestconfig.rootpath / ".testenv/bin/vcsim"


# All is well


async def test_with_everything_in_place_there_are_no_problems(
    installed: ControlPlane, manager_kubeconfig: Path, vcenter: SimulatedVCenter, log_file: Path
) -> None:
    flags = ("--leader-elect", f"--leader-election-namespace={SYSTEM_NAMESPACE}", METRICS_OFF)
    async with run_ready_manager(log_file, manager_kubeconfig, *flags[:2]) as manager:
        report = await read_doctor_report(
            f"-kubeconfig={manager_kubeconfig}", *flags, environ=vcenter_environ(vcenter)
        )
        assert report.problems == []
        assert manager.is_running
    assert report.exit_code == 0
    assert [each.subject for each in report.findings if each.level != "ok"] == []
    assert (
        "is VMware vCenter Server 8.0.3 build-24022515, with a certificate that is trusted"
        in report.finding_about("reach").words
    )
    assert report.finding_about("kubeconfig").words.startswith(
        f"{installed.url}, from kubeconfig {manager_kubeconfig}"
    )
    assert f'knows us as "{MANAGER_USER}"' in report.finding_about("API server").words
    assert report.finding_about("rights").words.startswith(f'"{MANAGER_USER}" has all ')
    assert report.finding_about("leader").words.endswith(
        f"leads, by the lease {SYSTEM_NAMESPACE}/{LEASE_NAME}"
    )
    assert (
        "6 are installed; this identity may not read their schemas"
        in report.finding_about("CRDs").words
    )
    assert report.finding_about("login").words == 'the user "user" is accepted'
    assert report.finding_about("datacenters").words == 'DC0; VmGroups go to "DC0"'
    assert report.finding_about("folder").words == "/DC0/vm/vm-operator"
    assert report.finding_about("templates").words == TEMPLATE
    assert [each.words.partition(":")[0] for each in report.findings_about("privileges")] == [
        "HostInfo, VMInfo, FCDInfo, GPUInfo",
        "VmGroup",
    ]
    assert len(report.findings_about("clock")) == 2


async def test_a_vcenter_that_is_older_than_what_was_tried(
    installed: ControlPlane,
    config: Path,
    pytestconfig: pytest.Config,
    tmp_path: Path,
    extra_vcenters: list[SimulatedVCenter],
) -> None:
    extra_vcenters.append(
        SimulatedVCenter(
            vcsim_path(pytestconfig), tmp_path / "old", "--release=6.5.0", password=PASSWORD
        )
    )
    report = await read_doctor_report(
        f"-kubeconfig={config}",
        METRICS_OFF,
        environ=vcenter_environ(await extra_vcenters[0].start()),
    )
    assert report.finding_about("reach").level == "warning"
    assert (
        "VMware vCenter Server 6.5.0 build-5973321; older than vSphere 7.0"
        in report.finding_about("reach").words
    )


async def test_it_leaves_no_session_and_changes_nothing(
    installed: ControlPlane, vcenter: SimulatedVCenter
) -> None:
    await vcenter.reset_mutating_calls()
    before = len(await vcenter.sessions())
    await read_doctor_report(
        f"-kubeconfig={installed.admin_kubeconfig}", METRICS_OFF, environ=vcenter_environ(vcenter)
    )
    assert len(await vcenter.sessions()) == before
    assert [
        entry
        for entry in await vcenter.mutating_calls()
        if entry["method"] not in ("Login", "Logout")
    ] == []


async def test_text_is_aligned_and_without_colour_where_there_is_no_terminal(
    installed: ControlPlane, vcenter: SimulatedVCenter
) -> None:
    code, text = await run_doctor(
        f"-kubeconfig={installed.admin_kubeconfig}", METRICS_OFF, environ=vcenter_environ(vcenter)
    )
    assert code == 0
    assert "\x1b" not in text
    assert (
        "\n  ok       CRDs         6 are installed, each as this version of the manager generates it\n"
        in text
    )
    assert text.splitlines()[0] == "Kubernetes"
    assert text.splitlines()[-1] == "No problems, 0 warnings."


async def test_a_wrong_flag_is_2_and_help_is_0() -> None:
    code, text = await run_doctor("-insecur")
    assert code == 2
    assert "manager doctor -help" in text
    code, text = await run_doctor("-help")
    assert code == 0
    assert "-json" in text


# vCenter


async def test_no_vcenter_and_half_a_vcenter() -> None:
    found = (await read_doctor_report(METRICS_OFF)).finding_about("settings")
    assert found.level == "problem"
    assert "no vCenter is configured" in found.words
    assert "export GOVMOMI_URL=" in found.fix
    half = (
        await read_doctor_report(
            METRICS_OFF, environ={"GOVMOMI_URL": "vc.invalid", "VC_USER": "me"}
        )
    ).finding_about("settings")
    assert half.level == "problem"
    assert "GOVMOMI_PASSWORD (or VC_PASS) not set" in half.words


async def test_a_certificate_that_is_not_trusted_and_one_that_is_not_looked_at(
    vcenter: SimulatedVCenter,
) -> None:
    environ = vcenter_environ(vcenter, VC_CA_FILE="")
    found = (await read_doctor_report(METRICS_OFF, environ=environ)).finding_about("TLS")
    assert found.level == "problem"
    assert "this machine does not know the CA that signed it" in found.words
    assert "/certs/download.zip" in found.fix
    assert "-vcenter-ca-file=" in found.fix
    loose = await read_doctor_report(METRICS_OFF, "-insecure", environ=environ)
    assert loose.finding_about("TLS").level == "warning"
    assert "-insecure" in loose.finding_about("TLS").words
    assert loose.finding_about("login").level == "ok"


async def test_a_certificate_that_is_out_of_date(
    pytestconfig: pytest.Config, tmp_path: Path, extra_vcenters: list[SimulatedVCenter]
) -> None:
    extra_vcenters.append(
        SimulatedVCenter(
            vcsim_path(pytestconfig), tmp_path / "old", "--tls-expired", "--vms=0", "--hosts=1"
        )
    )
    old = await extra_vcenters[0].start()
    found = (await read_doctor_report(METRICS_OFF, environ=vcenter_environ(old))).finding_about(
        "TLS"
    )
    assert found.level == "problem"
    assert "certificate has expired" in found.words


async def test_a_wrong_password_is_tried_once(vcenter: SimulatedVCenter) -> None:
    await vcenter.reset_call_counts()
    report = await read_doctor_report(
        METRICS_OFF,
        environ=vcenter_environ(
            vcenter, GOVMOMI_USERNAME="other", GOVMOMI_PASSWORD="wrong-and-secret"
        ),
    )
    found = report.finding_about("login")
    assert found.level == "problem"
    assert 'refuses the user "other"' in found.words
    assert "wrong-and-secret" not in str(report)
    assert "read -rsp" in found.fix
    assert (await vcenter.call_counts())["Login"] == 1
    assert report.findings_about("datacenters") == []


async def test_an_address_where_nobody_is(vcenter: SimulatedVCenter) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
        found = (
            await read_doctor_report(
                METRICS_OFF, environ=vcenter_environ(vcenter, GOVMOMI_URL=f"127.0.0.1:{port}")
            )
        ).finding_about("reach")
    assert found.level == "problem"
    assert f"cannot be reached at port {port}: connection refused" in found.words


async def test_more_than_one_datacenter_and_no_folder(
    pytestconfig: pytest.Config,
    installed: ControlPlane,
    namespace: str,
    tmp_path: Path,
    extra_vcenters: list[SimulatedVCenter],
) -> None:
    extra_vcenters.append(
        SimulatedVCenter(
            vcsim_path(pytestconfig),
            tmp_path / "two",
            "--datacenters=2",
            "--vms=1",
            "--hosts=1",
            f"--template={TEMPLATE}",
        )
    )
    two = await extra_vcenters[0].start()
    group = {
        "apiVersion": "vm.codeconnect.vmworld.com/v1alpha1",
        "kind": "VmGroup",
        "metadata": {"name": "vg-1", "namespace": namespace},
    }
    installed.apply(
        json.dumps({**group, "spec": {"cpu": 1, "memory": 1, "replicas": 1, "template": TEMPLATE}})
    )
    report = await read_doctor_report(
        METRICS_OFF, f"-kubeconfig={installed.admin_kubeconfig}", environ=vcenter_environ(two)
    )
    found = report.finding_about("datacenters")
    assert found.level == "warning"
    assert "has 2 datacenters (DC0, DC1)" in found.words
    ambiguous = next(
        each for each in report.findings_about("VmGroup") if f"{namespace}/vg-1" in each.words
    )
    assert "name one in spec.placement.datacenter" in ambiguous.words
    assert ambiguous.fix == (
        f"kubectl -n {namespace} patch vg vg-1 --type merge -p '"
        + '{"spec":{"placement":{"datacenter":"DC0"}}}'
        + "'"
    )
    assert [each.fix for each in report.findings_about("folder")] == [
        f"govc folder.create /DC{n}/vm/vm-operator" for n in (0, 1)
    ]


async def test_a_group_whose_template_is_not_there(
    installed: ControlPlane, namespace: str, vcenter: SimulatedVCenter
) -> None:
    group = {
        "apiVersion": "vm.codeconnect.vmworld.com/v1alpha1",
        "kind": "VmGroup",
        "metadata": {"name": "vg-2", "namespace": namespace},
    }
    installed.apply(
        json.dumps(
            {**group, "spec": {"cpu": 2, "memory": 2, "replicas": 2, "template": "doesNotExist"}}
        )
    )
    report = await read_doctor_report(
        METRICS_OFF, f"-kubeconfig={installed.admin_kubeconfig}", environ=vcenter_environ(vcenter)
    )
    (found,) = [each for each in report.findings_about("VmGroup") if namespace in each.words]
    assert found.level == "warning"
    assert "doesNotExist" in found.words
    installed.kubectl(*found.fix.removeprefix("kubectl ").replace("'", "").split())
    healed = await read_doctor_report(
        METRICS_OFF, f"-kubeconfig={installed.admin_kubeconfig}", environ=vcenter_environ(vcenter)
    )
    assert [each for each in healed.findings_about("VmGroup") if namespace in each.words] == []


async def test_each_of_several_vcenters_is_looked_at(
    vcenter: SimulatedVCenter, tmp_path: Path
) -> None:
    for name, password in (("west", PASSWORD), ("east", "wrong-and-secret")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "username").write_text("user" if name == "west" else "other")
        (tmp_path / name / "password").write_text(password)
    entry = "- {name: %s, server: '%s', credentials: %s, ca: '%s', namespaces: {names: [%s]}}"
    entries = [
        entry % (name, vcenter.url, name, vcenter.certificate, name) for name in ("east", "west")
    ]
    (tmp_path / "vcenters.yaml").write_text("\n".join(["vcenters:", *entries, ""]))
    report = await read_doctor_report(METRICS_OFF, f"-vcenters={tmp_path / 'vcenters.yaml'}")
    refused, accepted = report.findings_about("login")
    assert (refused.chapter, refused.level) == ("vCenter east", "problem")
    assert "create secret generic vc-creds-east --dry-run" in refused.fix
    assert (accepted.chapter, accepted.level) == ("vCenter west", "ok")
    (tmp_path / "vcenters.yaml").write_text("vcenters: [{name: west}]\n")
    broken = (
        await read_doctor_report(METRICS_OFF, f"-vcenters={tmp_path / 'vcenters.yaml'}")
    ).finding_about("settings")
    assert broken.level == "problem"
    assert "vcenters.yaml" in broken.words


async def test_privileges_that_cannot_be_asked_for_are_said_to_be_so(
    vcenter: SimulatedVCenter,
) -> None:
    await vcenter.fail_calls("HasPrivilegeOnEntities", "NoPermission", count=1)
    try:
        found = (
            await read_doctor_report(METRICS_OFF, environ=vcenter_environ(vcenter))
        ).finding_about("privileges")
    finally:
        await vcenter.clear_rules()
    assert found.level == "warning"
    assert "they cannot be asked for" in found.words
