"""`manager doctor` on a real API server: each error that people hit with Kubernetes and with the manager itself, and its line."""

from __future__ import annotations

import json
import socket
from pathlib import Path

from kubewright.testing.ca import CertificateAuthority
from kubewright.testing.controlplane import ControlPlane
from kubewright.testing.http import write_kubeconfig
from support.manager_process import LEASE_NAME, run_ready_manager

from .doctor_command import METRICS_OFF, read_doctor_report

GRANT_COMMAND = "kubectl apply -k config/rbac"


# Kubernetes


async def test_no_kubeconfig() -> None:
    report = await read_doctor_report(METRICS_OFF)
    found = report.finding_about("kubeconfig")
    assert found.level == "problem"
    assert "No Kubernetes cluster is configured" in found.words
    assert "KUBECONFIG" in found.fix
    assert report.finding_about("cluster").level == "warning"


async def test_a_cluster_that_is_down(control_plane: ControlPlane, tmp_path: Path) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        server = f"https://127.0.0.1:{nobody.getsockname()[1]}"
        config = control_plane.write_kubeconfig(tmp_path / "config", server=server)
        report = await read_doctor_report(f"-kubeconfig={config}", METRICS_OFF)
    found = report.finding_about("API server")
    assert found.level == "problem"
    assert f"the API server at {server}" in found.words
    assert "cannot be reached" in found.words
    assert found.fix == "kubectl cluster-info"


async def test_a_cluster_whose_certificate_is_not_trusted(
    installed: ControlPlane, tmp_path: Path
) -> None:
    config = write_kubeconfig(
        tmp_path / "config",
        installed.url,
        CertificateAuthority("somebody-else").certificate,
        "admin",
        "token",
    )
    found = (await read_doctor_report(f"-kubeconfig={config}", METRICS_OFF)).finding_about(
        "API server"
    )
    assert found.level == "problem"
    assert "certificate verify failed" in found.words


async def test_a_token_that_nobody_knows(installed: ControlPlane, tmp_path: Path) -> None:
    config = write_kubeconfig(
        tmp_path / "config", installed.url, installed.ca.certificate, "admin", "garbage"
    )
    found = (await read_doctor_report(f"-kubeconfig={config}", METRICS_OFF)).finding_about(
        "API server"
    )
    assert found.level == "problem"
    assert "missing, wrong or expired" in found.words
    assert "garbage" not in found.words


async def test_crds_that_are_not_installed(
    control_plane: ControlPlane, installed: ControlPlane, config: Path
) -> None:
    crd = config / "crd/bases/topology.corinternal.com_hostinfoes.yaml"
    installed.kubectl("delete", "-f", str(crd), "--timeout=20s")
    try:
        report = await read_doctor_report(f"-kubeconfig={installed.admin_kubeconfig}", METRICS_OFF)
    finally:
        installed.apply(crd)
        installed.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
    missing, rest = report.findings_about("CRDs")
    assert missing.level == "problem"
    assert "1 of 6 are not installed: hostinfoes.topology.corinternal.com" in missing.words
    assert missing.fix == "kubectl apply -k config/crd"
    assert (rest.level, rest.words[:15]) == ("ok", "5 are installed")


async def test_a_crd_of_another_version(installed: ControlPlane, config: Path) -> None:
    crd = config / "crd/bases/topology.corinternal.com_hostinfoes.yaml"
    installed.apply(crd.read_text().replace("name: FreeCPU", "name: FreeProcessor"))
    try:
        found = (
            await read_doctor_report(f"-kubeconfig={installed.admin_kubeconfig}", METRICS_OFF)
        ).finding_about("CRDs")
    finally:
        installed.apply(crd)
    assert found.level == "problem"
    assert "hostinfoes.topology.corinternal.com is of another version" in found.words
    assert "additionalPrinterColumns.FreeCPU" in found.words


async def test_an_account_without_rights_hears_that_nodes_is_forbidden(
    installed: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    installed.kubectl("-n", namespace, "create", "serviceaccount", "guest")
    config = installed.write_service_account_kubeconfig(namespace, "guest", tmp_path / "config")
    user = f"system:serviceaccount:{namespace}:guest"
    report = await read_doctor_report(f"-kubeconfig={config}", METRICS_OFF)
    assert "whether one leads cannot be told" in report.finding_about("leader").words
    denied = report.findings_about("rights")
    nodes = next(each for each in denied if each.words.startswith("nodes is forbidden"))
    assert nodes.level == "problem"
    assert nodes.words == f'nodes is forbidden: "{user}" may not list or watch them'
    assert "cluster-admin" not in nodes.fix
    assert (
        f"--clusterrole=vsphere-operators-manager-role --serviceaccount={namespace}:guest"
        in nodes.fix
    )
    try:
        installed.kubectl(*nodes.fix.partition("&& kubectl ")[2].split())
        (allowed,) = (
            await read_doctor_report(f"-kubeconfig={config}", METRICS_OFF)
        ).findings_about("rights")
    finally:
        installed.kubectl(
            "delete", "clusterrolebinding", nodes.fix.split("clusterrolebinding ")[1].split()[0]
        )
    assert allowed.level == "ok"


async def test_the_managers_own_account_without_its_binding(
    installed: ControlPlane, config: Path, manager_kubeconfig: Path
) -> None:
    installed.kubectl("delete", "clusterrolebinding", "vsphere-operators-manager-rolebinding")
    try:
        denied = (
            await read_doctor_report(f"-kubeconfig={manager_kubeconfig}", METRICS_OFF)
        ).findings_about("rights")
    finally:
        installed.kubectl("apply", "-k", str(config / "rbac"))
    assert {each.fix for each in denied} == {GRANT_COMMAND}
    assert {each.words.split()[0] for each in denied} >= {
        "nodes",
        "pods",
        "events",
        "vmgroups/status.vm.codeconnect.vmworld.com",
    }


# The manager itself


async def test_the_metrics_endpoint(
    installed: ControlPlane, manager_kubeconfig: Path, log_file: Path
) -> None:
    async with run_ready_manager(log_file, manager_kubeconfig) as manager:
        port = manager.url("/metrics").split(":")[2].partition("/")[0]
        assert (
            "a manager answers at"
            in (await read_doctor_report(f"-metrics-addr=:{port}")).finding_about("metrics").words
        )
    assert (
        "nothing listens at"
        in (await read_doctor_report(f"-metrics-addr=:{port}")).finding_about("metrics").words
    )
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        found = (await read_doctor_report(f"-metrics-addr=127.0.0.1:{port}")).finding_about(
            "metrics"
        )
    assert found.level == "problem"
    assert "something that is no manager" in found.words
    assert "-metrics-addr=:0 " in found.fix


async def test_a_leader_that_is_gone(installed: ControlPlane, namespace: str) -> None:
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
    found = (
        await read_doctor_report(f"-kubeconfig={installed.admin_kubeconfig}", *flags)
    ).finding_about("leader")
    assert found.level == "warning"
    assert '"pod-1" held the lease' in found.words
    assert "nobody leads now" in found.words
