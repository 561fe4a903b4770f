"""Builds the manager from its settings: vCenters, controllers, services and webhooks.

This one page shows which change notifies which part; vsphere/vcenter.py connects the parts of one
vCenter with each other. Building opens no network connection; the vCenters log in when the manager
runs. The package kubewright is packages/kubewright in this repository.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial

from kubewright import Cache, Manager, Object, Stream
from kubewright.builtin import Node
from kubewright.listen import parse_address
from kubewright.log import Log

from .kinds.clusterinfo import ClusterInfoController
from .kinds.datastoreinfo import DatastoreInfoController
from .kinds.fcdinfo import FCDInfoController
from .kinds.gpuinfo import GPUInfo
from .kinds.gpuinfo.calendar_watcher import CalendarWatcher
from .kinds.gpuinfo.controller import GPUInfoController
from .kinds.gpuinfo.labels import LabelCleanup, NodeLabeler
from .kinds.gpuinfo.tracker import NodeTracker
from .kinds.hostinfo import HostInfoController
from .kinds.mycustomresource import MyCustomResourceController
from .kinds.vmgroup import VmGroup
from .kinds.vmgroup.absence import AbsenceTracker
from .kinds.vmgroup.api_reader import ApiReader
from .kinds.vmgroup.clone_state import CLONE_DESCRIPTION_ID, CloneTaskTracker
from .kinds.vmgroup.controller import VmGroupController
from .kinds.vmgroup.events import VmGroupEvents
from .kinds.vmgroup.executor import Executor
from .kinds.vmgroup.group_memory import GroupMemoryStore
from .kinds.vmgroup.limits import read_limits
from .kinds.vmgroup.metrics import OperationMetrics, VmGroupMetrics
from .kinds.vmgroup.observation import GroupObserver
from .kinds.vmgroup.operation_reporter import OperationReporter
from .kinds.vmgroup.ownership import OwnershipIndex
from .kinds.vmgroup.reconciler import GroupReconciler
from .kinds.vmgroup.replica_vms import groups_by_vm
from .kinds.vmgroup.triggers import VmGroupTriggers, notify_group
from .kinds.vminfo import VMInfoController
from .leader_lease import ActiveLeaderWarning
from .node_labels.cleanup import NodeLabelCleanup
from .node_labels.controller import NodeLabelController
from .node_labels.writer import NodeWriter
from .settings.flags import Settings
from .settings.reload import ConfigFileWatcher, read_config_files
from .vcenters.config import VCenterConfig
from .vcenters.inventory_metrics import InventoryMetrics, InventoryMetricsOptions, VmRoles
from .vcenters.metrics import VCenterMetrics
from .vcenters.registry import CONFIGURATION_HINT, VCenterRegistry
from .vcenters.triggers import NodeTrigger, RelatedObjectTriggers
from .vcenters.volumes import read_volume_handles
from .version import register_build_info
from .vsphere.model import ComputeResource, Datacenter, Datastore, Host, VirtualMachine
from .vsphere.pressure import ENTER_MAINTENANCE_DESCRIPTION_ID
from .vsphere.vcenter import VCenter

_LOOPBACK_HOSTS = ("127.0.0.1", "::1", "localhost")


def build(manager: Manager, settings: Settings) -> None:
    register_build_info(manager.metrics)
    if not manager.options.elects_leader:
        manager.add_runnable(ActiveLeaderWarning(manager.client))
    vcenters = _build_vcenters(manager, settings)
    manager.add(HostInfoController(vcenters))
    manager.add(VMInfoController(vcenters))
    manager.add(FCDInfoController(vcenters, manager.cache))
    manager.add(gpuinfos := _build_gpuinfo_controller(manager, vcenters, settings))
    manager.add(DatastoreInfoController(vcenters, manager.cache))
    manager.add(ClusterInfoController(vcenters, gpuinfos.tracker))
    gpuinfos.tracker.host_changed.connect(NodeTrigger(vcenters).on_node_host_change)
    manager.add(vmgroups := _build_vmgroup_controller(manager, vcenters, settings))
    manager.add(MyCustomResourceController(manager.cache))
    _add_node_labels(manager, vcenters, settings)
    if settings.inventory_metrics:
        _add_inventory_metrics(manager, settings, vcenters, gpuinfos.tracker)
    if settings.ui_bind_address not in ("", "0"):
        # Not at the top: it imports aiohttp.web, which takes 0.15 s.
        from .topology.service import add_topology

        add_topology(
            manager,
            vcenters,
            gpuinfos,
            settings.gpu.selection_rules,
            bind_address=settings.ui_bind_address,
            certificate_dir=settings.ui_certificate_dir,
        )
    if settings.webhooks:
        from .webhooks import build_webhooks

        for webhook in build_webhooks(
            vcenters, manager.cache, vmgroups.limits_for, manager.options.watch_namespaces
        ):
            manager.add(webhook)


def _build_vcenters(manager: Manager, settings: Settings) -> VCenterRegistry:
    log = Log("setup")
    files = read_config_files(settings, log.warning)
    metrics = VCenterMetrics(manager.metrics)
    vcenters_by_name = {
        config.name: _build_vcenter(config, settings, metrics) for config in files.vcenter_configs
    }
    vcenters = VCenterRegistry(
        vcenters_by_name,
        files.vcenter_configs,
        manager.cache,
        settings.stats_interval_seconds,
        settings.stats_change_percent / 100,
    )
    connect_registry(vcenters)
    for config in files.vcenter_configs:
        if config.address.insecure:
            log.warning(
                "the certificate of this vCenter is not verified (-insecure); an attacker on the "
                "network can read the password",
                vCenter=config.name,
            )
    for name, vcenter in vcenters_by_name.items():
        manager.add_runnable(vcenter)
        manager.add_runnable(vcenters.throttles[name])
    if not vcenters_by_name:
        manager.add_runnable(_NoVCenterWarning())
    if settings.credentials_directory or settings.vcenters_file or settings.limits_file:
        manager.add_runnable(ConfigFileWatcher(settings, files))
    return vcenters


def _add_inventory_metrics(
    manager: Manager,
    settings: Settings,
    vcenters: VCenterRegistry,
    tracker: NodeTracker,
) -> None:
    collector = InventoryMetrics(
        vcenters.vcenters_by_name.values(),
        InventoryMetricsOptions(
            settings.inventory_metrics_all_vms, settings.inventory_metrics_limit
        ),
        is_active=manager.shards.is_leader,
        read_vm_roles=lambda vcenter: VmRoles(
            tracker.nodes_by_vm(vcenter.name),
            groups_by_vm(manager.cache.all(VmGroup), vcenter.inventory),
        ),
        read_volume_handles=partial(read_volume_handles, manager.cache),
    )
    manager.metrics.add_text_collector(collector.render)
    address = parse_address(manager.options.metrics_bind_address)
    if address and not manager.options.metrics_secure and address.host not in _LOOPBACK_HOSTS:
        Log("setup").warning(
            "-inventory-metrics serves the names and the load of hosts and VMs to every client "
            "that can connect. Add -metrics-secure, or bind -metrics-addr to 127.0.0.1"
        )


def connect_registry(vcenters: VCenterRegistry) -> None:
    """A change in a vCenter enqueues the objects that show what changed."""
    for name, vcenter in vcenters.vcenters_by_name.items():
        throttle = vcenters.throttles[name]
        # No status that the streams of the registry enqueue shows quickStats of VMs.
        vcenter.inventory.connect(
            partial(vcenters.on_vm_change, vcenter), VirtualMachine, include_stats=False
        )
        vcenter.inventory.connect(throttle.on_inventory_change, Host)
        vcenter.inventory.connect(throttle.on_inventory_change, Datastore)
        vcenter.inventory.connect(throttle.clusters.on_host_change, Host, include_related=False)
        vcenter.inventory.connect(throttle.clusters.on_cluster_change, ComputeResource)
        triggers = RelatedObjectTriggers(vcenters, vcenter)
        vcenter.inventory.connect(
            triggers.on_host_change, Host, include_related=False, include_stats=False
        )
        vcenter.disks.changed.connect(triggers.on_disk_change)
        vcenter.disks.readability_changed.connect(triggers.on_readability_change)
        vcenter.tags.changed.connect(throttle.release_ref)
        vcenter.disks.changed.connect(vcenters.on_disk_change)
        vcenter.state_changed.connect(vcenters.notify_all)


def _build_vcenter(config: VCenterConfig, settings: Settings, metrics: VCenterMetrics) -> VCenter:
    vcenter = VCenter(
        config.name,
        config.address,
        config.build_credential_source(),
        Log("vcenter", vCenter=config.name),
        metrics.for_vcenter(config.name),
        disk_interval_seconds=settings.disk_refresh_seconds,
        tag_interval_seconds=settings.tag_refresh_seconds,
        max_running_tasks=settings.max_running_tasks,
        load_timeout_seconds=config.load_timeout_seconds,
    )
    metrics.register_gauges(vcenter)
    return vcenter


class _NoVCenterWarning:
    """Logs when the manager runs, not when it is built: `manager doctor` only builds it."""

    async def run(self) -> None:
        Log("setup").warning(
            "no vCenter is configured; kinds that need one report that in their conditions. "
            f"{CONFIGURATION_HINT}"
        )


def _build_vmgroup_controller(
    manager: Manager, vcenters: VCenterRegistry, settings: Settings
) -> VmGroupController:
    api_reader = ApiReader(manager.client)
    changes = Stream()
    metrics = VmGroupMetrics(manager.metrics)
    metrics.count_phases(partial(manager.cache.all, VmGroup))
    inventories = {name: vcenter.inventory for name, vcenter in vcenters.vcenters_by_name.items()}
    events = VmGroupEvents(manager.recorder, inventories, manager.holds_lease)
    manager.cache.store(VmGroup).changed.connect(
        manager.shards.in_shard_of(VmGroupController.shard_by, events.on_group_change)
    )
    return VmGroupController(
        vcenters,
        {
            name: _build_group_reconciler(
                vcenter,
                api_reader,
                changes,
                manager.holds_lease,
                settings.missing_vm_timeout_seconds,
                metrics.for_vcenter(name),
            )
            for name, vcenter in vcenters.vcenters_by_name.items()
        },
        changes,
        manager.cache,
        api_reader,
        read_limits(settings.limits_file, settings.allowed_templates),
        manager.recorder,
        settings.cluster_id,
    )


def _build_group_reconciler(
    vcenter: VCenter,
    api_reader: ApiReader,
    changes: Stream,
    holds_lease: Callable[[], bool],
    missing_vm_timeout_seconds: float,
    metrics: OperationMetrics,
) -> GroupReconciler:
    """A change in the vCenter enqueues the VmGroups that it affects."""
    notify = partial(notify_group, changes)
    ownership_index = OwnershipIndex(vcenter, notify)
    clone_tracker = CloneTaskTracker(vcenter.clock)
    memory_store = GroupMemoryStore(vcenter.clock)
    absences = AbsenceTracker(vcenter, missing_vm_timeout_seconds, partial(datetime.now, UTC))
    reporter = OperationReporter(memory_store, metrics)
    executor = Executor(
        vcenter, api_reader, memory_store, clone_tracker, holds_lease, notify, reporter
    )
    triggers = VmGroupTriggers(changes, vcenter, ownership_index, clone_tracker, executor)
    # The triggers read the index and the clones, so they are connected after these.
    vcenter.inventory.connect(
        absences.on_vm_change, VirtualMachine, include_related=False, include_stats=False
    )
    vcenter.inventory.connect(
        absences.on_host_change, Host, include_related=False, include_stats=False
    )
    vcenter.inventory.connect(ownership_index.on_vm_change, VirtualMachine, include_stats=False)
    vcenter.vm_configs.changed.connect(ownership_index.on_vm_config_change)
    vcenter.inventory.connect_tasks(clone_tracker.on_task_change, CLONE_DESCRIPTION_ID)
    triggers.connect(vcenter.inventory)
    vcenter.vm_configs.changed.connect(triggers.on_vm_config_change)
    vcenter.task_limiter.task_ended.connect(executor.on_task_end)
    vcenter.task_limiter.slot_freed.connect(notify)
    vcenter.state_changed.connect(changes.notify_all)
    # No action is sent after a new login until everything was read again.
    vcenter.inventory_loaded.connect(changes.notify_all)
    observer = GroupObserver(vcenter, ownership_index, clone_tracker, memory_store, absences)
    return GroupReconciler(
        vcenter, observer, executor, api_reader, memory_store, ownership_index, absences
    )


def _build_gpuinfo_controller(
    manager: Manager, vcenters: VCenterRegistry, settings: Settings
) -> GPUInfoController:
    def record_warning(obj: Object, reason: str, message: str) -> None:
        manager.recorder.event(obj, "Warning", reason, message)

    flags = settings.gpu
    tracker = NodeTracker(
        manager.cache,
        vcenters.vcenters_by_name,
        partial(datetime.now, UTC),
        record_warning,
        log=Log("nodes"),
        gpu_resource_globs=flags.gpu_resource_globs,
        simulation=flags.build_simulation(),
    )
    manager.started_leading.connect(tracker.repeat_warnings)
    calendar = None
    if flags.calendar_key is not None:
        calendar = CalendarWatcher(
            flags.calendar_key, manager.client, manager.metrics, record_warning, Log("calendar")
        )
        manager.add_runnable(calendar)
        manager.started_leading.connect(calendar.repeat_warnings)
    labeler = None
    if flags.label_nodes:
        labeler = NodeLabeler(manager.client, manager.cache, flags.label_limits)
    else:
        manager.add_runnable(
            LabelCleanup(
                manager.cache, manager.client, manager.recorder, manager.shards, Log("labels")
            )
        )
    controller = GPUInfoController(
        tracker,
        vcenters.vcenters_by_name,
        flags.selection_rules,
        manager.recorder,
        interval_seconds=settings.stats_interval_seconds,
        change_fraction=settings.stats_change_percent / 100,
        calendar=calendar,
        labeler=labeler,
    )
    manager.add_runnable(controller.selections)
    connect_gpuinfo(controller, manager.cache)
    return controller


def connect_gpuinfo(controller: GPUInfoController, cache: Cache) -> None:
    """A change updates the facts of its Nodes, and these enqueue the GPUInfos that they affect."""
    tracker, notify_all = controller.tracker, controller.stream.notify_all
    connect_node_tracker(tracker, cache, controller.vcenters)
    tracker.facts_changed.connect(controller.selections.on_facts_change)
    cache.store(GPUInfo).changed.connect(controller.on_gpuinfo_change)
    if controller.labeler is not None:
        cache.store(Node).changed.connect(controller.labeler.on_node_change)
    for vcenter in controller.vcenters.values():
        vcenter.scheduled_tasks.state_changed.connect(notify_all)
        vcenter.state_changed.connect(notify_all)
    if (calendar := controller.calendar) is not None:
        calendar.reflector.store.changed.connect(calendar.on_configmap_change)
        calendar.reflector.problem_changed.connect(calendar.state_changed.emit)
        calendar.entries_changed.connect(tracker.on_calendar_change)
        calendar.state_changed.connect(notify_all)


def connect_node_tracker(
    tracker: NodeTracker, cache: Cache, vcenters: Mapping[str, VCenter]
) -> None:
    cache.store(Node).changed.connect(tracker.on_node_change)
    for vcenter in vcenters.values():
        vcenter.inventory.connect(
            partial(tracker.on_inventory_change, vcenter), Host, VirtualMachine
        )
        vcenter.passthrough_devices.changed.connect(partial(tracker.on_devices_change, vcenter))
        vcenter.scheduled_tasks.changed.connect(partial(tracker.on_host_details_change, vcenter))
        vcenter.assignable_hardware.changed.connect(
            partial(tracker.on_host_details_change, vcenter)
        )
        vcenter.state_changed.connect(tracker.rebuild_all)


def _add_node_labels(manager: Manager, vcenters: VCenterRegistry, settings: Settings) -> None:
    flags, writer = settings.node_labels, NodeWriter(manager.client, manager.namespace)
    if flags.enabled:
        controller = NodeLabelController(
            vcenters.vcenters_by_name, writer, flags.pressure_interval_seconds
        )
        manager.add(controller)
        connect_node_labels(controller)
    else:
        cleanup = NodeLabelCleanup(manager.cache, writer, manager.recorder, Log("labels"))
        manager.add_runnable(cleanup, leader_only=True)


def connect_node_labels(controller: NodeLabelController) -> None:
    """A change enqueues the Nodes of the VM or host, or all if names may be shared now."""
    for vcenter in controller.vcenters.values():
        inventory = vcenter.inventory
        inventory.connect(partial(controller.on_vm_change, vcenter), VirtualMachine)
        inventory.connect(partial(controller.on_host_change, vcenter), Host, include_related=False)
        inventory.connect(
            partial(controller.on_cluster_or_datacenter_change, vcenter),
            ComputeResource,
            Datacenter,
            include_related=False,
        )
        inventory.connect_tasks(
            partial(controller.on_task_change, vcenter), ENTER_MAINTENANCE_DESCRIPTION_ID
        )
        vcenter.state_changed.connect(controller.notify_all)
        vcenter.inventory_loaded.connect(controller.notify_all)
