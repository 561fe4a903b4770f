"""Admission warnings for names that vCenter does not have, and silence while nothing is known."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from kubewright import Admission, Cache, ObjectMeta, Resource
from kubewright.builtin import CSIPersistentVolumeSource, PersistentVolume, PersistentVolumeSpec
from kubewright.log import Log
from kubewright.webhook.admission import ValidatingHandler
from support.fake_environment import ADDRESS, FakeEnvironment
from support.inventory_builder import InventoryRow, fill_inventory
from vsphere_operators.kinds.clusterinfo import ClusterInfo
from vsphere_operators.kinds.datastoreinfo import DatastoreInfo
from vsphere_operators.kinds.fcdinfo import FCDInfo
from vsphere_operators.kinds.hostinfo import HostInfo
from vsphere_operators.kinds.vmgroup.limits import NamespaceLimits
from vsphere_operators.kinds.vmgroup.types import VmGroup
from vsphere_operators.kinds.vminfo import VMInfo
from vsphere_operators.vcenters.config import NamespaceSelector, VCenterConfig
from vsphere_operators.vcenters.registry import VCenterRegistry
from vsphere_operators.vcenters.volumes import CSI_DRIVER
from vsphere_operators.vsphere.faults import WrongLogin
from vsphere_operators.vsphere.model import Disk
from vsphere_operators.webhooks import NameWarningWebhook, build_webhooks

EXTRA_ROWS: tuple[InventoryRow, ...] = (
    ("HostSystem", "host-2", "esxi-dell-e.rainpole.com", "domain-c1"),
    ("HostSystem", "host-3", "twin", "domain-c1"),
    ("HostSystem", "host-4", "twin", "domain-c1"),
    ("VirtualMachine", "vm-2", "worker-1", "group-v1"),
    ("Folder", "group-v3", "x", "group-v2"),
    ("Folder", "group-v4", "y", "group-v1"),
    ("Folder", "group-v5", "x", "group-v4"),
)
DISK = Disk(id="d-1", name="pvc-1", datastore="datastore-1")
GROUP_SPEC = {"cpu": 1, "memory": 1, "replicas": 1, "template": "t"}


class WebhookHarness:
    """The webhooks with a fake vCenter and a cache of the API server."""

    def __init__(
        self,
        *configs: VCenterConfig,
        limits: NamespaceLimits | None = None,
        watched_namespaces: tuple[str, ...] = (),
    ) -> None:
        self.environment, self.cache = FakeEnvironment(), Cache(Log("cache"))
        fill_inventory(self.environment.vcenter.inventory, *EXTRA_ROWS)
        vcenters = VCenterRegistry(
            {"vc-1": self.environment.vcenter},
            configs or [VCenterConfig("vc-1", ADDRESS)],
            self.cache,
            60.0,
            0.05,
        )
        self.volumes = self.cache.store(PersistentVolume)
        self.webhooks = {
            webhook.kind: webhook
            for webhook in build_webhooks(
                vcenters,
                self.cache,
                lambda namespace: limits or NamespaceLimits(),
                watched_namespaces,
            )
        }

    def mark_loaded(self, *disks: Disk) -> WebhookHarness:
        self.mark_volumes_listed()
        self.environment.mark_loaded()
        self.environment.set_disks(*disks)
        return self

    def mark_volumes_listed(self) -> WebhookHarness:
        self.volumes.finish_list(set(), 7, "", force=False)
        return self

    def webhook(self, kind: type[Resource[Any, Any]]) -> NameWarningWebhook[Any]:
        return self.webhooks[kind]

    async def collect_warnings(
        self,
        kind: type[Resource[Any, Any]],
        spec: dict[str, Any],
        old: dict[str, Any] | None = None,
    ) -> list[str]:
        """The warnings for applying this spec over the old one."""
        request = Admission(operation="UPDATE" if old else "CREATE")
        await self.webhook(kind).validate(
            make_object(kind, spec), None if old is None else make_object(kind, old), request
        )
        assert request.rejections == []
        return request.warnings


def make_object(kind: type[Resource[Any, Any]], spec: dict[str, Any]) -> Any:
    metadata = {"name": "a", "namespace": "default"}
    return kind.decode(
        json.dumps(
            {
                "apiVersion": kind.definition.api_version,
                "kind": kind.__name__,
                "metadata": metadata,
                "spec": spec,
            }
        ).encode()
    )


def make_volume(name: str, handle: str) -> PersistentVolume:
    spec = PersistentVolumeSpec(
        csi=CSIPersistentVolumeSource(driver=CSI_DRIVER, volumeHandle=handle)
    )
    return PersistentVolume(metadata=ObjectMeta(name=name, resourceVersion="9"), spec=spec)


async def test_missing_name_is_reported() -> None:
    harness = WebhookHarness().mark_loaded(DISK)
    assert await harness.collect_warnings(HostInfo, {"hostname": "esxi-del-e.rainpole.com"}) == [
        'spec.hostname "esxi-del-e.rainpole.com": vCenter has no host of that name (HostNotFound). '
        "The condition Ready of the object has the details."
    ]
    (warning,) = await harness.collect_warnings(VMInfo, {"nodename": "Worker-1"})
    assert warning.startswith('spec.nodename "Worker-1": vCenter has no VM of that name')
    (warning,) = await harness.collect_warnings(FCDInfo, {"pvId": "pvc-2"})
    assert warning.startswith('spec.pvId "pvc-2": vCenter has no First Class Disk')
    (warning,) = await harness.collect_warnings(DatastoreInfo, {"datastore": "/DC0/datastore/x"})
    assert warning.startswith(
        'spec.datastore "/DC0/datastore/x": vCenter has no datastore of that name or path'
    )
    (warning,) = await harness.collect_warnings(ClusterInfo, {"cluster": "c0"})
    assert warning.startswith('spec.cluster "c0": vCenter has no cluster of that name or path')
    (warning,) = await harness.collect_warnings(VmGroup, GROUP_SPEC | {"template": "doesNotExist"})
    assert warning.startswith(
        'spec.template "doesNotExist": this namespace has no template of that name '
        "(TemplateNotFound)"
    )


async def test_ambiguous_name_is_reported() -> None:
    harness = WebhookHarness().mark_loaded()
    (warning,) = await harness.collect_warnings(HostInfo, {"hostname": "twin"})
    assert warning.startswith('spec.hostname "twin": several hosts have that name (HostAmbiguous)')
    (warning,) = await harness.collect_warnings(
        VmGroup, GROUP_SPEC | {"placement": {"folder": "x"}}
    )
    assert warning.startswith('spec.placement.folder "x": several folders have that name')


@pytest.mark.parametrize(
    ("field", "name", "problem"),
    [
        ("datacenter", "DC9", "the datacenter does not exist"),
        ("cluster", "C9", "the cluster does not exist"),
        ("resourcePool", "smal", "the resource pool does not exist"),
        ("datastore", "fats", "the datastore does not exist"),
        ("folder", "nope", "the folder does not exist"),
    ],
)
async def test_every_placement_field_is_checked(field: str, name: str, problem: str) -> None:
    harness = WebhookHarness().mark_loaded()
    (warning,) = await harness.collect_warnings(VmGroup, GROUP_SPEC | {"placement": {field: name}})
    assert warning.startswith(f'spec.placement.{field} "{name}": {problem} (')


async def test_placement_that_the_namespace_may_not_use_is_reported() -> None:
    harness = WebhookHarness(
        limits=NamespaceLimits(allowed_placement={"cluster": ("C1",)})
    ).mark_loaded()
    for spec in (GROUP_SPEC | {"placement": {"cluster": "C0"}}, GROUP_SPEC):
        (warning,) = await harness.collect_warnings(VmGroup, spec)
        assert warning.startswith("spec: this namespace may not use the selected placement (Pl")


# One request per way in which a message of the status names objects of the inventory.
PROBES: list[tuple[type[Resource[Any, Any]], dict[str, Any]]] = [
    *((HostInfo, {"hostname": name}) for name in ("esxi", "esxi-dell-e.rainpole.co", "twin")),
    *((VMInfo, {"nodename": name}) for name in ("worker", "WORKER-1", "t2")),
    *((FCDInfo, {"pvId": name}) for name in ("pvc", "pvc-2")),
    *((DatastoreInfo, {"datastore": name}) for name in ("fats", "/DC0/datastore/fats")),
    *((ClusterInfo, {"cluster": name}) for name in ("c0", "/DC0/host/c0")),
    *((VmGroup, GROUP_SPEC | {"template": name}) for name in ("T", "/DC0/vm/nope", "worker-1")),
    *(
        (VmGroup, GROUP_SPEC | {"placement": placement})
        for placement in (
            {"datacenter": "dc"},
            {"cluster": "c"},
            {"resourcePool": "smal"},
            {"datastore": "fats"},
            {"folder": "x"},
            {"folder": "vm-operato"},
        )
    ),
]


@pytest.mark.parametrize(("kind", "spec"), PROBES)
async def test_answer_names_nothing_that_the_request_does_not_name(
    kind: type[Resource[Any, Any]], spec: dict[str, Any]
) -> None:
    """Every Pod that reaches the port can send a review, so no answer may list the inventory."""
    limits = NamespaceLimits(allowed_placement={"datastore": ("fast", "slow")})
    harness = WebhookHarness(limits=limits).mark_loaded(DISK, replace(DISK, id="d-2"))
    (warning,) = await harness.collect_warnings(kind, spec)
    without_quotes = re.sub('"[^"]*"', "", warning)
    quoted = set(re.findall('"([^"]*)"', warning))
    assert quoted <= {str(value) for value in [*spec.values(), *spec.get("placement", {}).values()]}
    inventory = harness.environment.vcenter.inventory
    # These folders are in every vCenter, and their names are common nouns.
    names = {inventory.name_of(ref) for ref in inventory.objects} - {"vm", "host", "datastore"}
    names |= {"vc-1", "vcenter.invalid", "pvc-1", "d-1", "slow"}
    assert set(re.findall(r"[\w.-]+", without_quotes)).isdisjoint(names)


EXISTING_NAMES: list[tuple[type[Resource[Any, Any]], dict[str, Any]]] = [
    (HostInfo, {"hostname": "esxi-dell-e.rainpole.com"}),
    (VMInfo, {"nodename": "worker-1"}),
    (FCDInfo, {"pvId": "pvc-1"}),
    (DatastoreInfo, {"datastore": "fast"}),
    (DatastoreInfo, {"datastore": "/DC0/datastore/fast"}),
    (ClusterInfo, {"cluster": "C0"}),
    (ClusterInfo, {"cluster": "/DC0/host/C0"}),
    (VmGroup, GROUP_SPEC),
]
MISSING_NAMES: list[tuple[type[Resource[Any, Any]], dict[str, Any]]] = [
    (HostInfo, {"hostname": "missing"}),
    (VMInfo, {"nodename": "missing"}),
    (FCDInfo, {"pvId": "missing"}),
    (DatastoreInfo, {"datastore": "missing"}),
    (ClusterInfo, {"cluster": "missing"}),
    (VmGroup, GROUP_SPEC | {"template": "missing"}),
]


@pytest.mark.parametrize(("kind", "spec"), EXISTING_NAMES)
async def test_existing_and_empty_names_cause_no_warning(
    kind: type[Resource[Any, Any]], spec: dict[str, Any]
) -> None:
    harness = WebhookHarness().mark_loaded(DISK)
    assert await harness.collect_warnings(kind, spec) == []
    if kind is not VmGroup:
        assert await harness.collect_warnings(kind, {}) == []


@pytest.mark.parametrize(("kind", "spec"), MISSING_NAMES)
async def test_only_a_changed_spec_is_checked(
    kind: type[Resource[Any, Any]], spec: dict[str, Any]
) -> None:
    harness = WebhookHarness().mark_loaded()
    assert len(await harness.collect_warnings(kind, spec)) == 1
    assert await harness.collect_warnings(kind, spec, old=spec) == []
    assert len(await harness.collect_warnings(kind, spec, old=dict(EXISTING_NAMES)[kind])) == 1


def harness_with_label_rule() -> WebhookHarness:
    return WebhookHarness(
        VCenterConfig("vc-1", ADDRESS, namespaces=NamespaceSelector(labels={"tier": "gold"}))
    ).mark_loaded()


def harness_with_failed_login() -> WebhookHarness:
    harness = WebhookHarness().mark_loaded()
    harness.environment.vcenter.problem = WrongLogin("the password is wrong")
    return harness


SILENT_HARNESSES: dict[str, Callable[[], WebhookHarness]] = {
    "not loaded": lambda: WebhookHarness().mark_volumes_listed(),
    "does not answer": harness_with_failed_login,
    "serves another namespace": lambda: WebhookHarness(
        VCenterConfig("vc-1", ADDRESS, namespaces=NamespaceSelector(names=("other",)))
    ).mark_loaded(),
    "two claim it": lambda: WebhookHarness(
        VCenterConfig("vc-1", ADDRESS), VCenterConfig("vc-2", ADDRESS)
    ).mark_loaded(),
    "labels not known": harness_with_label_rule,
    "confined to others": lambda: WebhookHarness(watched_namespaces=("other",)).mark_loaded(),
}


@pytest.mark.parametrize("harness", SILENT_HARNESSES.values(), ids=SILENT_HARNESSES)
@pytest.mark.parametrize(("kind", "spec"), MISSING_NAMES)
async def test_no_warning_while_nothing_is_known(
    harness: Callable[[], WebhookHarness], kind: type[Resource[Any, Any]], spec: dict[str, Any]
) -> None:
    assert await harness().collect_warnings(kind, spec) == []


async def test_disk_is_found_by_its_volume_once_all_volumes_are_listed() -> None:
    harness = WebhookHarness()
    harness.environment.mark_loaded()
    harness.environment.set_disks(replace(DISK, name="other"))
    assert await harness.collect_warnings(FCDInfo, {"pvId": "pvc-1"}) == []
    harness.volumes.put(make_volume("pvc-1", "d-1"))
    harness.volumes.finish_list({make_volume("pvc-1", "d-1").metadata.key}, 9, "", force=False)
    assert await harness.collect_warnings(FCDInfo, {"pvId": "pvc-1"}) == []
    harness.environment.set_disks()
    assert len(await harness.collect_warnings(FCDInfo, {"pvId": "pvc-1"})) == 1


async def test_admission_never_refreshes_the_disks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    harness = WebhookHarness().mark_loaded()
    refreshes: list[str] = []
    monkeypatch.setattr(
        harness.environment.vcenter.disks, "request_refresh", lambda: refreshes.append("disks")
    )
    assert len(await harness.collect_warnings(FCDInfo, {"pvId": "missing"})) == 1
    assert refreshes == []


@pytest.mark.parametrize("kind", [HostInfo, VMInfo, FCDInfo, DatastoreInfo, ClusterInfo, VmGroup])
async def test_webhook_never_rejects_an_object(kind: type[Resource[Any, Any]]) -> None:
    webhook = WebhookHarness().mark_loaded().webhook(kind)
    assert (
        webhook.failure_policy,
        webhook.include_status,
        webhook.include_terminating,
        webhook.has_validate_deletion,
    ) == (
        "Ignore",
        False,
        False,
        False,
    )
    assert webhook.permissions == []
    gvk = {
        "group": kind.definition.group,
        "version": kind.definition.version,
        "kind": kind.__name__,
    }
    invalid = {
        "metadata": {"name": "a", "namespace": "default"},
        "spec": {
            "hostname": 7,
            "nodename": 7,
            "pvId": 7,
            "datastore": 7,
            "cluster": 7,
            "template": 7,
        },
    }
    request = {"uid": "u", "kind": gvk, "operation": "CREATE", "object": invalid}
    body = json.dumps(
        {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    ).encode()
    assert json.loads(await ValidatingHandler(webhook).handle(body))["response"] == {
        "uid": "u",
        "allowed": True,
    }
