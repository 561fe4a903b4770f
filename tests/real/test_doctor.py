"""`manager doctor` with a simulated vCenter: no problems, and then finding common vCenter error."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator, Iterator
from http import HTTPStatus
from pathlib import Path

import pytest

from kubewright.testing.cluster_access import HttpError
from kubewright.testing.controlplane import ControlPlane, run_in_new_loop
from simulator import SimulatedVCenter
from support.manager_process import LEASE_NAME, MANAGER_USER, SYSTEM_NAMESPACE, run_ready_manager
from vsphere_operators.vsphere.privileges import ROOT_ROLE

from .doctor_command import (
    METRICS_OFF,
    PASSWORD,
    DoctorReport,
    read_doctor_report,
    run_doctor,
    vcenter_environ,
)

TEMPLATE = "vm-operator-template"


@pytest.fixture(autouse=True)
def no_lease(installed: ControlPlane) -> None:
    """Removes the lease of a manager that an earlier test has killed: doctor would report it."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM_NAMESPACE}/leases/{LEASE_NAME}"
    with installed.apiserver.admin_client() as https:
        try:
            https.call("DELETE", path)
        except HttpError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise


@pytest.fixture(scope="module")
def simulator(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SimulatedVCenter]:
    flags = ("--vms=1", f"--template={TEMPLATE}", "--folder=vm-operator", "--account=other:pass")
    simulator = SimulatedVCenter(
        pytestconfig.rootpath / ".testenv/bin/vcsim",
        tmp_path_factory.mktemp("vcsim"),
        *flags,
        password=PASSWORD,
    )
    run_in_new_loop(start_vcenter(simulator))
    yield simulator
    run_in_new_loop(simulator.stop())


async def start_vcenter(vcenter: SimulatedVCenter) -> None:
    await vcenter.start()


@pytest.fixture
async def extra_vcenters(
    pytestconfig: pytest.Config, tmp_path: Path
) -> AsyncIterator[list[SimulatedVCenter]]:
    """Further vCenters, ended after the test."""
    vcenters: list[SimulatedVCenter] = []
    yield vcenters
    for started in vcenters:
        await started.stop()


def vcsim_path(pytestconfig: pytest.Config) -> Path:
    return pytestconfig.rootpath / ".testenv/bin/vcsim"


def apply_group(control_plane: ControlPlane, namespace: str, template: str) -> None:
    group = {
        "apiVersion": "vm.codeconnect.vmworld.com/v1alpha1",
        "kind": "VmGroup",
        "metadata": {"name": "vg-1", "namespace": namespace},
        "spec": {"cpu": 1, "memory": 1, "replicas": 1, "template": template},
    }
    control_plane.apply(json.dumps(group))


# No problems


async def test_complete_installation_has_no_problems(
    installed: ControlPlane, manager_kubeconfig: Path, simulator: SimulatedVCenter, log_file: Path
) -> None:
    flags = ("--leader-elect", f"--leader-election-namespace={SYSTEM_NAMESPACE}", METRICS_OFF)
    async with run_ready_manager(log_file, manager_kubeconfig, *flags[:2]) as manager:
        report = await read_doctor_report(
            f"-kubeconfig={manager_kubeconfig}", *flags, environ=vcenter_environ(simulator)
        )
        assert report.problems == []
        assert manager.is_running
    assert report.exit_code == 0
    assert [finding.subject for finding in report.findings if finding.level != "ok"] == []
    assert (
        "is VMware vCenter Server 8.0.3 build-24022515 with a trusted certificate"
        in report.finding_about("reach").message
    )
    assert report.finding_about("kubeconfig").message.startswith(
        f"{installed.url} (from kubeconfig {manager_kubeconfig}"
    )
    assert f' as user "{MANAGER_USER}"' in report.finding_about("API server").message
    assert report.finding_about("rights").message.startswith(f'User "{MANAGER_USER}" has all ')
    assert report.finding_about("leader").message.endswith(
        f"is the leader (lease {SYSTEM_NAMESPACE}/{LEASE_NAME})"
    )
    assert (
        "8 CRDs installed; schemas not compared because this user cannot read CRDs"
        in report.finding_about("CRDs").message
    )
    assert report.finding_about("login").message == 'Logged in as the user "user"'
    assert report.finding_about("datacenters").message == 'DC0; VmGroups are placed in "DC0"'
    assert report.finding_about("folder").message == "/DC0/vm/vm-operator"
    assert report.finding_about("templates").message == TEMPLATE
    assert [
        finding.message.partition(":")[0] for finding in report.findings_about("privileges")
    ] == [
        "HostInfo, VMInfo, FCDInfo, DatastoreInfo, ClusterInfo, GPUInfo",
        "VmGroup",
    ]
    assert len(report.findings_about("clock")) == 2


async def test_vcenter_before_7_0_is_a_warning(
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
        "VMware vCenter Server 6.5.0 build-5973321; versions before vSphere 7.0 are not tested"
        in report.finding_about("reach").message
    )


async def test_doctor_logs_out_and_changes_nothing(
    installed: ControlPlane, simulator: SimulatedVCenter
) -> None:
    await simulator.reset_mutating_calls()
    before = len(await simulator.sessions())
    await read_doctor_report(
        f"-kubeconfig={installed.admin_kubeconfig}", METRICS_OFF, environ=vcenter_environ(simulator)
    )
    assert len(await simulator.sessions()) == before
    assert [
        entry
        for entry in await simulator.mutating_calls()
        if entry["method"] not in ("Login", "Logout")
    ] == []


async def test_text_without_a_terminal_is_aligned_and_has_no_color(
    installed: ControlPlane, simulator: SimulatedVCenter
) -> None:
    code, text = await run_doctor(
        f"-kubeconfig={installed.admin_kubeconfig}",
        METRICS_OFF,
        environ=vcenter_environ(simulator),
        new_interpreter=True,
    )
    assert code == 0, text
    assert "\x1b" not in text
    assert (
        "\n  ok       CRDs         8 CRDs installed; schemas match this version of the manager\n"
        in text
    )
    assert text.splitlines()[0] == "Kubernetes"
    assert text.splitlines()[-1] == "No problems, 0 warnings."


async def test_wrong_flag_exits_with_2_and_help_with_0() -> None:
    code, text = await run_doctor("-insecur")
    assert code == 2
    assert "manager doctor -help" in text
    code, text = await run_doctor("-help")
    assert code == 0
    assert "-json" in text


# vCenter


async def test_missing_and_incomplete_vcenter_settings_are_problems() -> None:
    finding = (await read_doctor_report(METRICS_OFF)).finding_about("settings")
    assert finding.level == "problem"
    assert "No vCenter is configured" in finding.message
    assert "export GOVMOMI_URL=" in finding.fix
    half = (
        await read_doctor_report(
            METRICS_OFF, environ={"GOVMOMI_URL": "vc.invalid", "VC_USER": "me"}
        )
    ).finding_about("settings")
    assert half.level == "problem"
    assert "GOVMOMI_PASSWORD (or VC_PASS) not set" in half.message


async def test_untrusted_certificate_is_a_problem_and_insecure_a_warning(
    simulator: SimulatedVCenter,
) -> None:
    environ = vcenter_environ(simulator, VC_CA_FILE="")
    finding = (await read_doctor_report(METRICS_OFF, environ=environ)).finding_about("TLS")
    assert finding.level == "problem"
    assert "this machine does not trust the CA that signed it" in finding.message
    assert "/certs/download.zip" in finding.fix
    assert "-vcenter-ca-file=" in finding.fix
    insecure = await read_doctor_report(METRICS_OFF, "-insecure", environ=environ)
    assert insecure.finding_about("TLS").level == "warning"
    assert "-insecure" in insecure.finding_about("TLS").message
    assert insecure.finding_about("login").level == "ok"
    missing = vcenter_environ(simulator, VC_CA_FILE="/nonexistent/ca.pem")
    report = await read_doctor_report(METRICS_OFF, environ=missing)
    # The missing file is one finding.
    assert report.finding_about("settings").level == "ok"
    finding = report.finding_about("TLS")
    assert finding.level == "problem"
    assert "/nonexistent/ca.pem cannot be used: No such file or directory" in finding.message
    assert "then: copy it to /nonexistent/ca.pem" in finding.fix


async def test_expired_certificate_is_a_problem(
    pytestconfig: pytest.Config, tmp_path: Path, extra_vcenters: list[SimulatedVCenter]
) -> None:
    extra_vcenters.append(
        SimulatedVCenter(
            vcsim_path(pytestconfig), tmp_path / "old", "--tls-expired", "--vms=0", "--hosts=1"
        )
    )
    old = await extra_vcenters[0].start()
    finding = (await read_doctor_report(METRICS_OFF, environ=vcenter_environ(old))).finding_about(
        "TLS"
    )
    assert finding.level == "problem"
    assert "certificate has expired" in finding.message
    # No CA helps.
    assert finding.fix.startswith("openssl s_client -connect ")


async def test_wrong_password_is_tried_once(simulator: SimulatedVCenter) -> None:
    await simulator.reset_call_counts()
    report = await read_doctor_report(
        METRICS_OFF,
        environ=vcenter_environ(
            simulator, GOVMOMI_USERNAME="other", GOVMOMI_PASSWORD="wrong-and-secret"
        ),
    )
    finding = report.finding_about("login")
    assert finding.level == "problem"
    assert 'rejects the user "other"' in finding.message
    assert "wrong-and-secret" not in str(report)
    assert "Correct them in the environment, then run the doctor again" in finding.message
    assert "restart" not in finding.message
    assert "privileges and tags were not checked" in report.finding_about("vCenter").message
    assert "read -rsp" in finding.fix
    assert (await simulator.call_counts())["Login"] == 1
    assert report.findings_about("datacenters") == []


async def test_unused_address_is_a_problem(simulator: SimulatedVCenter) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        finding = (
            await read_doctor_report(
                METRICS_OFF, environ=vcenter_environ(simulator, GOVMOMI_URL=f"127.0.0.1:{port}")
            )
        ).finding_about("reach")
    assert finding.level == "problem"
    assert f"cannot be reached at port {port}: connection refused" in finding.message


async def test_several_datacenters_and_missing_folder_are_warnings(
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
    apply_group(installed, namespace, TEMPLATE)
    report = await read_doctor_report(
        METRICS_OFF, f"-kubeconfig={installed.admin_kubeconfig}", environ=vcenter_environ(two)
    )
    finding = report.finding_about("datacenters")
    assert finding.level == "warning"
    assert "has 2 datacenters (DC0, DC1)" in finding.message
    ambiguous = next(
        finding
        for finding in report.findings_about("VmGroup")
        if f"{namespace}/vg-1" in finding.message
    )
    assert "Select one in spec.placement.datacenter" in ambiguous.message
    assert ambiguous.fix == (
        f"kubectl -n {namespace} patch vg vg-1 --type merge -p '"
        + '{"spec":{"placement":{"datacenter":"DC0"}}}'
        + "'"
    )
    assert [finding.fix for finding in report.findings_about("folder")] == [
        f"govc folder.create /DC{n}/vm/vm-operator" for n in (0, 1)
    ]


async def test_fix_for_a_missing_template_works(
    installed: ControlPlane, namespace: str, simulator: SimulatedVCenter
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
        METRICS_OFF, f"-kubeconfig={installed.admin_kubeconfig}", environ=vcenter_environ(simulator)
    )
    (finding,) = [
        finding for finding in report.findings_about("VmGroup") if namespace in finding.message
    ]
    assert finding.level == "warning"
    assert "doesNotExist" in finding.message
    installed.kubectl(*finding.fix.removeprefix("kubectl ").replace("'", "").split())
    healed = await read_doctor_report(
        METRICS_OFF, f"-kubeconfig={installed.admin_kubeconfig}", environ=vcenter_environ(simulator)
    )
    assert [
        finding for finding in healed.findings_about("VmGroup") if namespace in finding.message
    ] == []


async def test_each_of_several_vcenters_is_checked(
    simulator: SimulatedVCenter, tmp_path: Path
) -> None:
    for name, password in (("west", PASSWORD), ("east", "wrong-and-secret")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "username").write_text("user" if name == "west" else "other")
        (tmp_path / name / "password").write_text(password)
    entry = "- {name: %s, server: '%s', credentials: %s, ca: '%s', namespaces: {names: [%s]}}"
    entries = [
        entry % (name, simulator.url, name, simulator.certificate, name)
        for name in ("east", "west")
    ]
    (tmp_path / "vcenters.yaml").write_text("\n".join(["vcenters:", *entries, ""]))
    report = await read_doctor_report(METRICS_OFF, f"-vcenters={tmp_path / 'vcenters.yaml'}")
    rejected, accepted = report.findings_about("login")
    assert (rejected.section, rejected.level) == ("vCenter east", "problem")
    assert "create secret generic vc-creds-east --dry-run" in rejected.fix
    assert (accepted.section, accepted.level) == ("vCenter west", "ok")
    (tmp_path / "vcenters.yaml").write_text("vcenters: [{name: west}]\n")
    broken = (
        await read_doctor_report(METRICS_OFF, f"-vcenters={tmp_path / 'vcenters.yaml'}")
    ).finding_about("settings")
    assert broken.level == "problem"
    assert "vcenters.yaml" in broken.message
    # Environment variables do not fix a file.
    assert broken.fix == ""


async def test_vcenters_that_claim_the_same_namespace_are_a_problem(
    installed: ControlPlane, namespace: str, simulator: SimulatedVCenter, tmp_path: Path
) -> None:
    apply_group(installed, namespace, TEMPLATE)
    (tmp_path / "login").mkdir()
    (tmp_path / "login/username").write_text(simulator.user)
    (tmp_path / "login/password").write_text(simulator.password)
    entry = "- {name: %s, server: '%s', credentials: login, ca: '%s', namespaces: {%s}}"

    async def report_with(*rules: str) -> DoctorReport:
        entries = [
            entry % (name, simulator.url, simulator.certificate, rule)
            for name, rule in zip(("east", "west"), rules, strict=True)
        ]
        (tmp_path / "vcenters.yaml").write_text("\n".join(["vcenters:", *entries, ""]))
        return await read_doctor_report(
            METRICS_OFF,
            f"-kubeconfig={installed.admin_kubeconfig}",
            f"-watch-namespaces={namespace}",
            f"-vcenters={tmp_path / 'vcenters.yaml'}",
        )

    finding = (await report_with(f"names: ['{namespace}*']", "names: ['*']")).finding_about(
        "VmGroup"
    )
    assert finding.level == "problem"
    assert "belongs to more than one vCenter" in finding.message
    finding = (await report_with("names: [other]", "labels: {a: b}")).finding_about("VmGroup")
    assert "The placement of 1 VmGroups was not checked" in finding.message


async def test_missing_privileges_of_vmgroup_are_warnings_without_a_vmgroup(
    installed: ControlPlane, namespace: str, simulator: SimulatedVCenter
) -> None:
    await simulator.set_permission("other", ROOT_ROLE.privilege_names, "", propagate=True)
    flags = (
        METRICS_OFF,
        f"-kubeconfig={installed.admin_kubeconfig}",
        f"-watch-namespaces={namespace}",
    )
    reader = vcenter_environ(simulator, GOVMOMI_USERNAME="other", GOVMOMI_PASSWORD="pass")
    try:
        readable, *others = (await read_doctor_report(*flags, environ=reader)).findings_about(
            "privileges"
        )
        assert readable.level == "ok"
        assert {finding.level for finding in others} == {"warning"}
        assert "No VmGroup exists here" in others[0].message
        apply_group(installed, namespace, TEMPLATE)
        report = await read_doctor_report(*flags, environ=reader)
        levels = [finding.level for finding in report.findings_about("privileges")]
        # cloud-init is an option.
        assert levels == ["ok", "problem", "warning", *["problem"] * 4]
    finally:
        await simulator.set_permission("other", ("System.Read",), "", propagate=True)


async def test_tags_show_whether_the_account_sees_them(simulator: SimulatedVCenter) -> None:
    environ = vcenter_environ(simulator)
    finding = (await read_doctor_report(METRICS_OFF, environ=environ)).finding_about("tags")
    assert finding.message.startswith("No host has a tag that this account sees")
    (host, *_) = [item for item in await simulator.entities() if item["type"] == "HostSystem"]
    await simulator.set_tag(host["name"], "site", "berlin")
    finding = (await read_doctor_report(METRICS_OFF, environ=environ)).finding_about("tags")
    assert (finding.level, finding.message) == ("ok", "hosts with tags: 1")


async def test_unreadable_privileges_are_a_warning(
    simulator: SimulatedVCenter,
) -> None:
    await simulator.fail_calls("HasPrivilegeOnEntities", "NoPermission", count=1)
    try:
        finding = (
            await read_doctor_report(METRICS_OFF, environ=vcenter_environ(simulator))
        ).finding_about("privileges")
    finally:
        await simulator.clear_rules()
    assert finding.level == "warning"
    assert "Privileges cannot be read" in finding.message


async def test_recording_is_written_without_the_account(
    simulator: SimulatedVCenter, tmp_path: Path
) -> None:
    folder = tmp_path / "recording"
    flags = (METRICS_OFF, f"-record={folder}")
    await simulator.reset_mutating_calls()
    report = await read_doctor_report(*flags, environ=vcenter_environ(simulator))
    findings = report.findings_about("record")
    assert {finding.level for finding in findings} == {"ok"}
    assert "Read them before you send them" in findings[-1].message
    text = "".join(file.read_text() for file in sorted((folder / "vcenter-1").iterdir()))
    assert "WaitForUpdatesEx" in text
    assert "/api/cis/tagging" in text
    assert [secret for secret in (PASSWORD, TEMPLATE, "DC0") if secret in text] == []
    calls = {entry["method"] for entry in await simulator.mutating_calls()}
    assert calls <= {"Login", "Logout"}
    again = await read_doctor_report(*flags, environ=vcenter_environ(simulator))
    occupied = again.finding_about("record")
    assert occupied.level == "problem"
    assert "is not an empty directory, so nothing is recorded" in occupied.message


async def test_without_a_login_nothing_is_recorded(
    simulator: SimulatedVCenter, tmp_path: Path
) -> None:
    folder = tmp_path / "recording"
    report = await read_doctor_report(
        METRICS_OFF,
        f"-record={folder}",
        environ=vcenter_environ(simulator, GOVMOMI_USERNAME="other", GOVMOMI_PASSWORD="wrong"),
    )
    finding = report.finding_about("record")
    assert finding.level == "problem"
    assert "Fix the problem above, then record again" in finding.message
    assert not folder.exists()


async def test_recording_of_an_unreadable_inventory_is_a_warning(
    simulator: SimulatedVCenter, tmp_path: Path
) -> None:
    folder = tmp_path / "recording"
    await simulator.fail_calls("CreateFilter", "NoPermission", count=9)
    try:
        report = await read_doctor_report(
            METRICS_OFF, f"-record={folder}", environ=vcenter_environ(simulator)
        )
    finally:
        await simulator.clear_rules()
    finding = report.finding_about("record")
    assert finding.level == "warning"
    assert "They end where the inventory could not be read" in finding.message
    assert (folder / "vcenter-1/index.json").exists()
