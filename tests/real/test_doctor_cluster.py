"""`manager doctor` on a real API server: finding common error of Kubernetes and of the manager."""

from __future__ import annotations

import json
import socket
from pathlib import Path

from kubewright.testing.ca import CertificateAuthority
from kubewright.testing.cluster_access import write_kubeconfig
from kubewright.testing.controlplane import ControlPlane
from support.manager_process import LEASE_NAME, run_ready_manager

from .doctor_command import METRICS_OFF, read_doctor_report

GRANT_COMMAND = "kubectl apply --server-side -k config/rbac"


# Kubernetes


async def test_missing_kubeconfig_is_a_problem() -> None:
    report = await read_doctor_report(METRICS_OFF)
    finding = report.finding_about("kubeconfig")
    assert finding.level == "problem"
    assert "No Kubernetes cluster is configured" in finding.message
    assert "KUBECONFIG" in finding.fix
    assert report.finding_about("cluster").level == "warning"


async def test_unreachable_cluster_is_a_problem(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        server = f"https://127.0.0.1:{unused.getsockname()[1]}"
        config = control_plane.write_kubeconfig(tmp_path / "config", server=server)
        report = await read_doctor_report(f"-kubeconfig={config}", METRICS_OFF)
    finding = report.finding_about("API server")
    assert finding.level == "problem"
    assert f"the API server at {server}" in finding.message
    assert "cannot be reached" in finding.message
    assert finding.fix == "kubectl cluster-info"


async def test_untrusted_certificate_of_the_cluster_is_a_problem(
    installed: ControlPlane, tmp_path: Path
) -> None:
    config = write_kubeconfig(
        tmp_path / "config",
        installed.url,
        CertificateAuthority("another-authority").certificate,
        "admin",
        "token",
    )
    finding = (await read_doctor_report(f"-kubeconfig={config}", METRICS_OFF)).finding_about(
        "API server"
    )
    assert finding.level == "problem"
    assert "certificate verify failed" in finding.message


async def test_invalid_token_is_a_problem(installed: ControlPlane, tmp_path: Path) -> None:
    config = write_kubeconfig(
        tmp_path / "config", installed.url, installed.ca.certificate, "admin", "garbage"
    )
    finding = (await read_doctor_report(f"-kubeconfig={config}", METRICS_OFF)).finding_about(
        "API server"
    )
    assert finding.level == "problem"
    assert "missing, wrong or expired" in finding.message
    assert "garbage" not in finding.message


async def test_missing_crd_is_a_problem(
    control_plane: ControlPlane, installed: ControlPlane, config: Path
) -> None:
    crd = config / "crd/bases/topology.corinternal.com_hostinfoes.yaml"
    installed.kubectl("delete", "-f", str(crd), "--timeout=60s")
    try:
        report = await read_doctor_report(f"-kubeconfig={installed.admin_kubeconfig}", METRICS_OFF)
    finally:
        installed.apply(crd)
        installed.wait_for_crds()
    missing, installed_crds = report.findings_about("CRDs")
    assert missing.level == "problem"
    assert "1 of 8 CRDs are not installed: hostinfoes.topology.corinternal.com" in missing.message
    assert missing.fix == "kubectl apply --server-side -k config/crd"
    assert installed_crds.level == "ok"
    assert installed_crds.message.startswith("7 CRDs installed;")


async def test_crd_of_another_version_is_a_problem(installed: ControlPlane, config: Path) -> None:
    crd = config / "crd/bases/topology.corinternal.com_hostinfoes.yaml"
    installed.apply(crd.read_text().replace("name: Free-CPU-MHz", "name: Free-Processor"))
    try:
        finding = (
            await read_doctor_report(f"-kubeconfig={installed.admin_kubeconfig}", METRICS_OFF)
        ).finding_about("CRDs")
    finally:
        installed.apply(crd)
    assert finding.level == "problem"
    assert (
        "hostinfoes.topology.corinternal.com does not match this version of the manager"
        in finding.message
    )
    assert "additionalPrinterColumns.Free-CPU-MHz" in finding.message


async def test_each_forbidden_resource_is_reported(
    installed: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    installed.kubectl("-n", namespace, "create", "serviceaccount", "guest")
    config = installed.write_service_account_kubeconfig(namespace, "guest", tmp_path / "config")
    user = f"system:serviceaccount:{namespace}:guest"
    report = await read_doctor_report(f"-kubeconfig={config}", METRICS_OFF)
    assert (
        "The leader is unknown because this user cannot read leases"
        in report.finding_about("leader").message
    )
    denied = report.findings_about("rights")
    nodes = next(finding for finding in denied if finding.message.startswith("nodes is forbidden"))
    assert nodes.level == "problem"
    assert nodes.message == (
        f'nodes is forbidden: user "{user}" cannot list or watch at the cluster scope'
    )
    assert "cluster-admin" not in nodes.fix
    assert (
        f"--clusterrole=vsphere-operators-manager-role --serviceaccount={namespace}:guest"
        in nodes.fix
    )
    try:
        installed.kubectl(*nodes.fix.partition("   #")[0].split()[1:])
        (allowed,) = (
            await read_doctor_report(f"-kubeconfig={config}", METRICS_OFF)
        ).findings_about("rights")
    finally:
        installed.kubectl(
            "delete", "clusterrolebinding", nodes.fix.split("clusterrolebinding ")[1].split()[0]
        )
    assert allowed.level == "ok"


async def test_missing_binding_of_the_managers_own_account_is_a_problem(
    installed: ControlPlane, config: Path, manager_kubeconfig: Path
) -> None:
    installed.kubectl("delete", "clusterrolebinding", "vsphere-operators-manager-rolebinding")
    try:
        denied = (
            await read_doctor_report(f"-kubeconfig={manager_kubeconfig}", METRICS_OFF)
        ).findings_about("rights")
    finally:
        installed.kubectl("apply", "-k", str(config / "rbac"))
    assert {finding.fix for finding in denied} == {GRANT_COMMAND}
    assert {finding.message.split()[0] for finding in denied} >= {
        "nodes",
        "pods",
        "events",
        "vmgroups/status.vm.codeconnect.vmworld.com",
    }


# The manager itself


async def test_metrics_endpoint(
    installed: ControlPlane, manager_kubeconfig: Path, log_file: Path
) -> None:
    async with run_ready_manager(log_file, manager_kubeconfig) as manager:
        port = manager.url("/metrics").split(":")[2].partition("/")[0]
        assert (
            "A manager serves metrics at"
            in (await read_doctor_report(f"-metrics-addr=:{port}")).finding_about("metrics").message
        )
    assert (
        "is free on this machine"
        in (await read_doctor_report(f"-metrics-addr=:{port}")).finding_about("metrics").message
    )
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        finding = (await read_doctor_report(f"-metrics-addr=127.0.0.1:{port}")).finding_about(
            "metrics"
        )
    assert finding.level == "problem"
    assert "did not respond in time; the port is in use by another process" in finding.message
    assert "-metrics-addr=:0 " in finding.fix


async def test_expired_lease_is_a_problem(installed: ControlPlane, namespace: str) -> None:
    spec = {
        "holderIdentity": "pod-1",
        "leaseDurationSeconds": 15,
        "renewTime": "2020-01-01T00:00:00.000000Z",
    }
    manifest = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": LEASE_NAME, "namespace": namespace},
        "spec": spec,
    }
    installed.apply(json.dumps(manifest))
    flags = ("-leader-elect", f"-leader-election-namespace={namespace}", METRICS_OFF)
    finding = (
        await read_doctor_report(f"-kubeconfig={installed.admin_kubeconfig}", *flags)
    ).finding_about("leader")
    assert finding.level == "problem"
    assert f"No active leader: lease {namespace}/{LEASE_NAME} expired" in finding.message
    assert 'by "pod-1")' in finding.message


async def test_group_with_the_folder_of_another_is_a_problem(
    installed: ControlPlane, namespace: str
) -> None:
    group = {
        "apiVersion": "vm.codeconnect.vmworld.com/v1alpha1",
        "kind": "VmGroup",
        "metadata": {"name": "web", "namespace": namespace},
        "spec": {"cpu": 1, "memory": 1, "replicas": 1, "template": "t"},
    }
    installed.apply(json.dumps(group))
    ready = {
        "type": "Ready",
        "status": "False",
        "reason": "FolderTaken",
        "message": "Folder /DC0/vm/vm-operator/a-b-c belongs to VmGroup a-b/c.",
        "lastTransitionTime": "2026-11-16T12:00:00Z",
    }
    patch = json.dumps({"status": {"conditions": [ready]}})
    flags = ("--subresource=status", "--type=merge", "-p", patch)
    installed.kubectl("-n", namespace, "patch", "vg", "web", *flags)
    report = await read_doctor_report(f"-kubeconfig={installed.admin_kubeconfig}", METRICS_OFF)
    (finding,) = [
        finding for finding in report.findings_about("VmGroup") if namespace in finding.message
    ]
    assert (report.exit_code, finding.level, finding.section) == (1, "problem", "Kubernetes")
    assert f"{namespace}/web: FolderTaken: Folder /DC0/vm/vm-operator/a-b-c" in finding.message
    assert finding.fix.startswith(f"kubectl -n {namespace} patch vg web --type merge")
