"""`manager doctor` on a real API server and a simulated vCenter: each error that people hit, provoked, and its line."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from kubewright.testing.access import write_kubeconfig
from kubewright.testing.certificates import Authority
from kubewright.testing.controlplane import ControlPlane, run_apart
from simulator import VCenter

from .managing import LEASE, SYSTEM, USER, working

OFF = "-metrics-addr=0"
PASSWORD = "canary-4711"
TEMPLATE = "vm-operator-template"
GRANT = "kubectl apply -k config/rbac"


@dataclass(frozen=True)
class Finding:
    """One line of the report."""

    chapter: str
    level: str
    subject: str
    words: str
    fix: str = ""


@dataclass(frozen=True)
class Report:
    """What a run said."""

    code: int
    findings: list[Finding]

    def about(self, subject: str) -> list[Finding]:
        return [each for each in self.findings if each.subject == subject]

    def one(self, subject: str) -> Finding:
        (found,) = self.about(subject)
        return found

    @property
    def problems(self) -> list[Finding]:
        return [each for each in self.findings if each.level == "problem"]


async def run(*arguments: str, environ: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Exit code and output of the command, which sees nothing of the environment of the tests."""
    variables = [f"{name}={value}" for name, value in {"HOME": "/nonexistent", **(environ or {})}.items()]
    program = [shutil.which("env") or "env", "-i", *variables, sys.executable, "-m", "vsphere_operators.main", "doctor"]
    child = await asyncio.create_subprocess_exec(*program, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT)
    try:
        output, _ = await asyncio.wait_for(child.communicate(), 60)
    finally:
        if child.returncode is None:
            child.kill()
    text = output.decode()
    assert PASSWORD not in text
    assert "Traceback" not in text
    return child.returncode or 0, text


async def doctor(*arguments: str, environ: Mapping[str, str] | None = None) -> Report:
    """The report of a run."""
    code, text = await run("-json", *arguments, environ=environ)
    answer = json.loads(text)
    report = Report(code, [Finding(**each) for each in answer["findings"]])
    assert answer["healthy"] == (not report.problems) == (code == 0)
    return report


@pytest.fixture(scope="module")
def vcenter(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VCenter]:
    flags = ("--vms=1", f"--template={TEMPLATE}", "--folder=vm-operator", "--account=other:pass")
    vcenter = VCenter(pytestconfig.rootpath / ".testenv/bin/vcsim", tmp_path_factory.mktemp("vcsim"), *flags, password=PASSWORD)
    run_apart(started(vcenter))
    yield vcenter
    run_apart(vcenter.stop())


async def started(vcenter: VCenter) -> None:
    await vcenter.start()


@pytest.fixture
async def simulators(pytestconfig: pytest.Config, tmp_path: Path) -> AsyncIterator[list[VCenter]]:
    """Further vCenters, ended after the test."""
    made: list[VCenter] = []
    yield made
    for each in made:
        await each.stop()


def binary(pytestconfig: pytest.Config) -> Path:
    return pytestconfig.rootpath / ".testenv/bin/vcsim"


def account(vcenter: VCenter, **other: str) -> dict[str, str]:
    """The variables that name it."""
    given = {"GOVMOMI_URL": vcenter.url, "GOVMOMI_USERNAME": vcenter.user, "GOVMOMI_PASSWORD": vcenter.password}
    return given | {"VC_CA_FILE": str(vcenter.certificate)} | other


# All is well


async def test_with_everything_in_place_there_are_no_problems(
    installed: ControlPlane, service_account: Path, vcenter: VCenter, log: Path
) -> None:
    flags = ("--leader-elect", f"--leader-election-namespace={SYSTEM}", OFF)
    async with working(log, service_account, *flags[:2]) as manager:
        report = await doctor(f"-kubeconfig={service_account}", *flags, environ=account(vcenter))
        assert report.problems == []
        assert manager.running
    assert report.code == 0
    assert [each.subject for each in report.findings if each.level != "ok"] == ["reach"]  # the simulator calls itself 6.5
    assert report.one("kubeconfig").words.startswith(f"{installed.url}, from kubeconfig {service_account}")
    assert f'knows us as "{USER}"' in report.one("API server").words
    assert report.one("rights").words.startswith(f'"{USER}" has all ')
    assert report.one("leader").words.endswith(f"leads, by the lease {SYSTEM}/{LEASE}")
    assert "6 are installed; this identity may not read their schemas" in report.one("CRDs").words
    assert report.one("login").words == 'the user "user" is accepted'
    assert report.one("datacenters").words == 'DC0; VmGroups go to "DC0"'
    assert report.one("folder").words == "/DC0/vm/vm-operator"
    assert report.one("templates").words == TEMPLATE
    assert [each.words.partition(":")[0] for each in report.about("privileges")] == ["HostInfo, VMInfo, FCDInfo, GPUInfo", "VmGroup"]
    assert len(report.about("clock")) == 2


async def test_it_leaves_no_session_and_changes_nothing(installed: ControlPlane, vcenter: VCenter) -> None:
    await vcenter.reset_ledger()
    before = len(await vcenter.sessions())
    await doctor(f"-kubeconfig={installed.admin_kubeconfig}", OFF, environ=account(vcenter))
    assert len(await vcenter.sessions()) == before
    assert [entry for entry in await vcenter.ledger() if entry["method"] not in ("Login", "Logout")] == []


async def test_text_is_aligned_and_without_colour_where_there_is_no_terminal(installed: ControlPlane, vcenter: VCenter) -> None:
    code, text = await run(f"-kubeconfig={installed.admin_kubeconfig}", OFF, environ=account(vcenter))
    assert code == 0
    assert "\x1b" not in text
    assert "\n  ok       CRDs         6 are installed, each as this version of the manager generates it\n" in text
    assert text.splitlines()[0] == "Kubernetes"
    assert text.splitlines()[-1] == "No problems, 1 warning."


async def test_a_wrong_flag_is_2_and_help_is_0() -> None:
    code, text = await run("-insecur")
    assert code == 2
    assert "manager doctor -help" in text
    code, text = await run("-help")
    assert code == 0
    assert "-json" in text


# Kubernetes


async def test_no_kubeconfig() -> None:
    report = await doctor(OFF)
    found = report.one("kubeconfig")
    assert found.level == "problem"
    assert "No Kubernetes cluster is configured" in found.words
    assert "KUBECONFIG" in found.fix
    assert report.one("cluster").level == "warning"


async def test_a_cluster_that_is_down(control_plane: ControlPlane, tmp_path: Path) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        server = f"https://127.0.0.1:{nobody.getsockname()[1]}"
        config = control_plane.kubeconfig(tmp_path / "config", server=server)
        report = await doctor(f"-kubeconfig={config}", OFF)
    found = report.one("API server")
    assert found.level == "problem"
    assert f"the API server at {server}" in found.words
    assert "cannot be reached" in found.words
    assert found.fix == "kubectl cluster-info"


async def test_a_cluster_whose_certificate_is_not_trusted(installed: ControlPlane, tmp_path: Path) -> None:
    config = write_kubeconfig(tmp_path / "config", installed.url, Authority("somebody-else").certificate, "admin", "token")
    found = (await doctor(f"-kubeconfig={config}", OFF)).one("API server")
    assert found.level == "problem"
    assert "certificate verify failed" in found.words


async def test_a_token_that_nobody_knows(installed: ControlPlane, tmp_path: Path) -> None:
    config = write_kubeconfig(tmp_path / "config", installed.url, installed.authority.certificate, "admin", "garbage")
    found = (await doctor(f"-kubeconfig={config}", OFF)).one("API server")
    assert found.level == "problem"
    assert "missing, wrong or expired" in found.words
    assert "garbage" not in found.words


async def test_crds_that_are_not_installed(control_plane: ControlPlane, installed: ControlPlane, config: Path) -> None:
    crd = config / "crd/bases/topology.corinternal.com_hostinfoes.yaml"
    installed.kubectl("delete", "-f", str(crd), "--timeout=20s")
    try:
        report = await doctor(f"-kubeconfig={installed.admin_kubeconfig}", OFF)
    finally:
        installed.apply(crd)
        installed.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
    missing, rest = report.about("CRDs")
    assert missing.level == "problem"
    assert "1 of 6 are not installed: hostinfoes.topology.corinternal.com" in missing.words
    assert missing.fix == "kubectl apply -k config/crd"
    assert (rest.level, rest.words[:15]) == ("ok", "5 are installed")


async def test_a_crd_of_another_version(installed: ControlPlane, config: Path) -> None:
    crd = config / "crd/bases/topology.corinternal.com_hostinfoes.yaml"
    installed.apply(crd.read_text().replace("name: FreeCPU", "name: FreeProcessor"))
    try:
        found = (await doctor(f"-kubeconfig={installed.admin_kubeconfig}", OFF)).one("CRDs")
    finally:
        installed.apply(crd)
    assert found.level == "problem"
    assert "hostinfoes.topology.corinternal.com is of another version" in found.words
    assert "additionalPrinterColumns.FreeCPU" in found.words


async def test_an_account_without_rights_hears_that_nodes_is_forbidden(installed: ControlPlane, namespace: str, tmp_path: Path) -> None:
    installed.kubectl("-n", namespace, "create", "serviceaccount", "guest")
    config = installed.service_account_kubeconfig(namespace, "guest", tmp_path / "config")
    user = f"system:serviceaccount:{namespace}:guest"
    report = await doctor(f"-kubeconfig={config}", OFF)
    assert "whether one leads cannot be told" in report.one("leader").words
    denied = report.about("rights")
    nodes = next(each for each in denied if each.words.startswith("nodes is forbidden"))
    assert nodes.level == "problem"
    assert nodes.words == f'nodes is forbidden: "{user}" may not list or watch them'
    assert "cluster-admin" not in nodes.fix
    assert f"--clusterrole=vsphere-operators-manager-role --serviceaccount={namespace}:guest" in nodes.fix
    try:
        installed.kubectl(*nodes.fix.partition("&& kubectl ")[2].split())
        (allowed,) = (await doctor(f"-kubeconfig={config}", OFF)).about("rights")
    finally:
        installed.kubectl("delete", "clusterrolebinding", nodes.fix.split("clusterrolebinding ")[1].split()[0])
    assert allowed.level == "ok"


async def test_the_managers_own_account_without_its_binding(installed: ControlPlane, config: Path, service_account: Path) -> None:
    installed.kubectl("delete", "clusterrolebinding", "vsphere-operators-manager-rolebinding")
    try:
        denied = (await doctor(f"-kubeconfig={service_account}", OFF)).about("rights")
    finally:
        installed.kubectl("apply", "-k", str(config / "rbac"))
    assert {each.fix for each in denied} == {GRANT}
    assert {each.words.split()[0] for each in denied} >= {"nodes", "pods", "events", "vmgroups/status.vm.codeconnect.vmworld.com"}


# vCenter


async def test_no_vcenter_and_half_a_vcenter() -> None:
    found = (await doctor(OFF)).one("settings")
    assert found.level == "problem"
    assert "no vCenter is configured" in found.words
    assert "export GOVMOMI_URL=" in found.fix
    half = (await doctor(OFF, environ={"GOVMOMI_URL": "vc.invalid", "VC_USER": "me"})).one("settings")
    assert half.level == "problem"
    assert "GOVMOMI_PASSWORD (or VC_PASS) not set" in half.words


async def test_a_certificate_that_is_not_trusted_and_one_that_is_not_looked_at(vcenter: VCenter) -> None:
    environ = account(vcenter, VC_CA_FILE="")
    found = (await doctor(OFF, environ=environ)).one("TLS")
    assert found.level == "problem"
    assert "this machine does not know the CA that signed it" in found.words
    assert "/certs/download.zip" in found.fix
    assert "-vcenter-ca-file=" in found.fix
    loose = await doctor(OFF, "-insecure", environ=environ)
    assert loose.one("TLS").level == "warning"
    assert "-insecure" in loose.one("TLS").words
    assert loose.one("login").level == "ok"


async def test_a_certificate_that_is_out_of_date(pytestconfig: pytest.Config, tmp_path: Path, simulators: list[VCenter]) -> None:
    simulators.append(VCenter(binary(pytestconfig), tmp_path / "old", "--tls-expired", "--vms=0", "--hosts=1"))
    old = await simulators[0].start()
    found = (await doctor(OFF, environ=account(old))).one("TLS")
    assert found.level == "problem"
    assert "certificate has expired" in found.words


async def test_a_wrong_password_is_tried_once(vcenter: VCenter) -> None:
    await vcenter.reset_calls()
    report = await doctor(OFF, environ=account(vcenter, GOVMOMI_USERNAME="other", GOVMOMI_PASSWORD="wrong-and-secret"))
    found = report.one("login")
    assert found.level == "problem"
    assert 'refuses the user "other"' in found.words
    assert "wrong-and-secret" not in str(report)
    assert "read -rsp" in found.fix
    assert (await vcenter.calls())["Login"] == 1
    assert report.about("datacenters") == []


async def test_an_address_where_nobody_is(vcenter: VCenter) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
        found = (await doctor(OFF, environ=account(vcenter, GOVMOMI_URL=f"127.0.0.1:{port}"))).one("reach")
    assert found.level == "problem"
    assert f"cannot be reached at port {port}: connection refused" in found.words


async def test_more_than_one_datacenter_and_no_folder(
    pytestconfig: pytest.Config, installed: ControlPlane, namespace: str, tmp_path: Path, simulators: list[VCenter]
) -> None:
    simulators.append(VCenter(binary(pytestconfig), tmp_path / "two", "--datacenters=2", "--vms=1", "--hosts=1", f"--template={TEMPLATE}"))
    two = await simulators[0].start()
    group = {"apiVersion": "vm.codeconnect.vmworld.com/v1alpha1", "kind": "VmGroup", "metadata": {"name": "vg-1", "namespace": namespace}}
    installed.apply(json.dumps({**group, "spec": {"cpu": 1, "memory": 1, "replicas": 1, "template": TEMPLATE}}))
    report = await doctor(OFF, f"-kubeconfig={installed.admin_kubeconfig}", environ=account(two))
    found = report.one("datacenters")
    assert found.level == "warning"
    assert "has 2 datacenters (DC0, DC1)" in found.words
    ambiguous = next(each for each in report.about("VmGroup") if f"{namespace}/vg-1" in each.words)
    assert "name one in spec.placement.datacenter" in ambiguous.words
    assert ambiguous.fix == (
        f"kubectl -n {namespace} patch vg vg-1 --type merge -p '" + '{"spec":{"placement":{"datacenter":"DC0"}}}' + "'"
    )
    assert [each.fix for each in report.about("folder")] == [f"govc folder.create /DC{n}/vm/vm-operator" for n in (0, 1)]


async def test_a_group_whose_template_is_not_there(installed: ControlPlane, namespace: str, vcenter: VCenter) -> None:
    group = {"apiVersion": "vm.codeconnect.vmworld.com/v1alpha1", "kind": "VmGroup", "metadata": {"name": "vg-2", "namespace": namespace}}
    installed.apply(json.dumps({**group, "spec": {"cpu": 2, "memory": 2, "replicas": 2, "template": "doesNotExist"}}))
    report = await doctor(OFF, f"-kubeconfig={installed.admin_kubeconfig}", environ=account(vcenter))
    (found,) = [each for each in report.about("VmGroup") if namespace in each.words]
    assert found.level == "warning"
    assert "doesNotExist" in found.words
    installed.kubectl(*found.fix.removeprefix("kubectl ").replace("'", "").split())
    healed = await doctor(OFF, f"-kubeconfig={installed.admin_kubeconfig}", environ=account(vcenter))
    assert [each for each in healed.about("VmGroup") if namespace in each.words] == []


async def test_each_of_several_vcenters_is_looked_at(vcenter: VCenter, tmp_path: Path) -> None:
    for name, password in (("west", PASSWORD), ("east", "wrong-and-secret")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "username").write_text("user" if name == "west" else "other")
        (tmp_path / name / "password").write_text(password)
    entry = "- {name: %s, server: '%s', credentials: %s, ca: '%s', namespaces: {names: [%s]}}"
    entries = [entry % (name, vcenter.url, name, vcenter.certificate, name) for name in ("east", "west")]
    (tmp_path / "vcenters.yaml").write_text("\n".join(["vcenters:", *entries, ""]))
    report = await doctor(OFF, f"-vcenters={tmp_path / 'vcenters.yaml'}")
    refused, accepted = report.about("login")
    assert (refused.chapter, refused.level) == ("vCenter east", "problem")
    assert "create secret generic vc-creds-east --dry-run" in refused.fix
    assert (accepted.chapter, accepted.level) == ("vCenter west", "ok")
    (tmp_path / "vcenters.yaml").write_text("vcenters: [{name: west}]\n")
    broken = (await doctor(OFF, f"-vcenters={tmp_path / 'vcenters.yaml'}")).one("settings")
    assert broken.level == "problem"
    assert "vcenters.yaml" in broken.words


async def test_privileges_that_cannot_be_asked_for_are_said_to_be_so(vcenter: VCenter) -> None:
    await vcenter.fail("HasPrivilegeOnEntities", "NoPermission", count=1)
    try:
        found = (await doctor(OFF, environ=account(vcenter))).one("privileges")
    finally:
        await vcenter.clear_rules()
    assert found.level == "warning"
    assert "they cannot be asked for" in found.words


# The manager itself


async def test_the_metrics_endpoint(installed: ControlPlane, service_account: Path, log: Path) -> None:
    async with working(log, service_account) as manager:
        port = manager.url("/metrics").split(":")[2].partition("/")[0]
        assert "a manager answers at" in (await doctor(f"-metrics-addr=:{port}")).one("metrics").words
    assert "nothing listens at" in (await doctor(f"-metrics-addr=:{port}")).one("metrics").words
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        found = (await doctor(f"-metrics-addr=127.0.0.1:{port}")).one("metrics")
    assert found.level == "problem"
    assert "something that is no manager" in found.words
    assert "-metrics-addr=:8081" in found.fix


async def test_a_leader_that_is_gone(installed: ControlPlane, namespace: str) -> None:
    spec = {"holderIdentity": "pod-1", "leaseDurationSeconds": 15, "renewTime": "2020-01-01T00:00:00.000000Z"}
    manifest = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": LEASE, "namespace": namespace}, "spec": spec}
    installed.apply(json.dumps(manifest))
    flags = ("-leader-elect", f"-leader-election-namespace={namespace}", OFF)
    found = (await doctor(f"-kubeconfig={installed.admin_kubeconfig}", *flags)).one("leader")
    assert found.level == "warning"
    assert '"pod-1" held the lease' in found.words
    assert "nobody leads now" in found.words
