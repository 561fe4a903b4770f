"""Every query of every dashboard and alert on a real Prometheus that scrapes a real manager."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from hack.monitoring.__main__ import ALERTS, DASHBOARDS
from hack.monitoring.model import JOB
from kubewright.testing import eventually
from kubewright.testing.controlplane import ControlPlane
from simulator import SimulatedVCenter
from support.info_client import run_vcenter_manager, write_credentials
from support.manager_process import SYSTEM_NAMESPACE, ManagerProcess
from support.prometheus import Prometheus, run_prometheus
from support.vmgroup_client import TEMPLATE, VmGroupClient

from .gpu_cluster import GpuCluster

NODE_NAME, NODE_UUID = "worker-1", "42030000-0000-4000-8000-000000000001"
# A name that would end a label and begin a series of its own, if it were not escaped.
HOSTILE_NAME = 'esxi"} 1\nup{x="\\😀'
GROUP_REPLICAS = 2
SAMPLES = (
    "topology_v1_hostinfo",
    "topology_v1_vminfo",
    "topology_v1_fcdinfo",
    "poc_v1_mycustomresource",
)


@pytest.fixture
async def simulator(pytestconfig: pytest.Config, tmp_path: Path) -> AsyncIterator[SimulatedVCenter]:
    """A vCenter with a Node, a First Class Disk, a template and hosts with numbers."""
    vcenter = SimulatedVCenter(
        pytestconfig.rootpath / ".testenv/bin/vcsim",
        tmp_path / "vcsim",
        "--hosts=3",
        "--vms=1",
        "--churn=2s",
        "--folder=vm-operator",
        f"--template={TEMPLATE}",
        f"--node={NODE_NAME}={NODE_UUID}",
        "--fcd=pvc-1",
    )
    try:
        await vcenter.start()
        await vcenter.set_stats(
            NODE_NAME, overallCpuReadiness=12, balloonedMemory=64, swappedMemory=8
        )
        await vcenter.set_property("DC0_C0", "configurationEx.dasConfig.enabled", True)
        yield vcenter
    finally:
        await vcenter.stop()


@pytest.fixture
async def manager(
    simulator: SimulatedVCenter,
    installed: ControlPlane,
    namespace: str,
    config: Path,
    log_file: Path,
    manager_kubeconfig: Path,
    tmp_path: Path,
) -> AsyncIterator[ManagerProcess]:
    """A manager as it is deployed, with the objects of all kinds."""
    cluster = GpuCluster(installed, namespace)
    await cluster.add_node(NODE_NAME, f"vsphere://{NODE_UUID}")
    await cluster.create_gpuinfo("gpu", 1, False)
    for sample in SAMPLES:
        installed.kubectl("apply", "-n", namespace, "-f", str(config / f"samples/{sample}.yaml"))
    groups = VmGroupClient(installed, namespace)
    await groups.create("web", replicas=GROUP_REPLICAS)
    credentials = write_credentials(tmp_path / "vc-creds", simulator)
    flags = (
        "--inventory-metrics",
        "--metrics-secure",
        "--leader-elect",
        f"--leader-election-namespace={SYSTEM_NAMESPACE}",
    )
    try:
        async with run_vcenter_manager(
            log_file, manager_kubeconfig, credentials, simulator.certificate, *flags
        ) as manager:
            await manager.wait_for_log("became leader", within=40)
            yield manager
            await groups.call("DELETE", groups.path("web"))

            async def is_gone() -> bool:
                return await groups.find("web") is None

            await eventually(is_gone, within=30, every=0.2)
            # It releases the lease, so that the next test does not wait until it expires.
            await manager.stop(5)
    finally:
        await cluster.remove_nodes()


@pytest.fixture
async def prometheus(
    manager: ManagerProcess,
    installed: ControlPlane,
    namespace: str,
    pytestconfig: pytest.Config,
    tmp_path: Path,
) -> AsyncIterator[Prometheus]:
    """Scrapes /metrics with the token of a service account that has the generated role."""
    installed.kubectl("-n", namespace, "create", "serviceaccount", "prometheus")
    installed.kubectl(
        "create",
        "clusterrolebinding",
        f"prometheus-{namespace}",
        "--clusterrole=vsphere-operators-metrics-reader",
        f"--serviceaccount={namespace}:prometheus",
    )
    rules = yaml.safe_load(
        (pytestconfig.rootpath / "config/components/alerts/prometheus_rule.yaml").read_text()
    )
    rule_file = tmp_path / "rules.yaml"
    rule_file.write_text(yaml.safe_dump(rules["spec"]))
    async with run_prometheus(
        pytestconfig.rootpath / ".testenv/bin/prometheus",
        tmp_path / "prometheus",
        job=JOB,
        url=manager.url("/metrics"),
        token=installed.create_service_account_token(namespace, "prometheus"),
        rule_file=rule_file,
    ) as prometheus:
        yield prometheus
    installed.kubectl("delete", "clusterrolebinding", f"prometheus-{namespace}")


def list_queries() -> dict[str, str]:
    """The query of each panel by its title, with values in place of Grafana's variables."""
    return {
        f"{dashboard.name} / {panel.title} {number}": query.expr.replace(
            "$__rate_interval", "30s"
        ).replace("$vcenter", ".*")
        for dashboard in DASHBOARDS
        for panel in dashboard.panels
        for number, query in enumerate(panel.queries, 1)
    }


async def test_every_query_of_every_dashboard_returns_data(
    prometheus: Prometheus,
    simulator: SimulatedVCenter,
    installed: ControlPlane,
    namespace: str,
) -> None:
    queries = list_queries()
    assert len(queries) > 50
    replicas = 'count(vsphere_vm_info{vmgroup=~".*/web"})'

    async def all_replicas_scraped() -> bool:
        samples = await prometheus.query(replicas)
        return bool(samples) and samples[0]["value"][1] == str(GROUP_REPLICAS)

    await eventually(all_replicas_scraped, within=90)
    # The duration of clones is known only from a clone that ends between two scrapes.
    groups = VmGroupClient(installed, namespace)
    await groups.patch_spec("web", replicas=GROUP_REPLICAS + 1)
    empty = dict(queries)

    async def all_have_data() -> bool:
        for title, expr in list(empty.items()):
            if await prometheus.query(expr):
                del empty[title]
        return not empty

    try:
        await eventually(all_have_data, within=60, every=2)
    except AssertionError:
        raise AssertionError(f"queries without data: {empty}") from None

    rule_groups = (await prometheus.get("rules"))["groups"]
    health = {rule["name"]: rule["health"] for group in rule_groups for rule in group["rules"]}
    assert health == {alert.name: "ok" for alert in ALERTS}
    # What the simulator was set to.
    [sample] = await prometheus.query(f'vsphere_vm_cpu_readiness_ratio{{vm="{NODE_NAME}"}}')
    assert float(sample["value"][1]) == pytest.approx(0.12)
    [pressure] = [
        alert
        for alert in (await prometheus.get("alerts"))["alerts"]
        if alert["labels"].get("pressure") == "CPUReady"
    ]
    assert pressure["labels"]["node"] == NODE_NAME
    assert re.search(r"12%", pressure["annotations"]["description"])
    await check_hostile_name(prometheus, simulator)


async def check_hostile_name(prometheus: Prometheus, simulator: SimulatedVCenter) -> None:
    """A renamed host has one series with its new name as it is, and none with its old one."""
    [series, *_] = await prometheus.query("vsphere_host_connected")
    old_name, host_id = series["metric"]["host"], series["metric"]["host_id"]
    await simulator.rename(host_id, HOSTILE_NAME)

    async def only_new_name() -> bool:
        samples = await prometheus.query(f'vsphere_host_connected{{host_id="{host_id}"}}')
        return [sample["metric"]["host"] for sample in samples] == [HOSTILE_NAME]

    await eventually(only_new_name, within=30)
    assert old_name != HOSTILE_NAME
    [target] = (await prometheus.get("targets"))["activeTargets"]
    assert (target["health"], target["lastError"]) == ("up", "")
