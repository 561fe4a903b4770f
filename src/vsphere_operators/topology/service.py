"""Adds the topology to a manager: the model, its sources and its HTTP server."""

from __future__ import annotations

import secrets
from importlib.metadata import version

from kubewright import Manager
from kubewright.log import Log

from ..kinds.gpuinfo.controller import GPUInfoController
from ..kinds.gpuinfo.rules import SelectionRules
from ..vcenters.registry import VCenterRegistry
from . import model
from .builder import TopologyBuilder
from .changes import ChangeLog
from .cluster_objects import TOPOLOGY_PERMISSIONS, ClusterObjects
from .info_links import InfoLinks
from .item_builder import ItemBuilder
from .metrics import TopologyMetrics
from .object_details import ObjectReader
from .server import TopologyServer
from .store import TopologyStore
from .streams import EventStreams

# At import: `version` reads a file, which would block the event loop.
_VERSION = version("vsphere-operators")


def add_topology(
    manager: Manager,
    vcenters: VCenterRegistry,
    gpu_controller: GPUInfoController,
    rules: SelectionRules,
    *,
    bind_address: str,
    certificate_dir: str,
) -> TopologyServer:
    """Call it after the controllers were added: their kinds are those that can be read."""
    log, identity = Log("topology"), manager.options.identity
    # The page of each replica shows all objects.
    manager.caches_all_shards = True

    def describe_manager() -> model.Manager:
        return model.Manager(
            version=_VERSION, identity=identity, isLeader=manager.shards.is_leader()
        )

    for permission in TOPOLOGY_PERMISSIONS:
        # Only controllers declare permissions; this one is always part of the manager.
        gpu_controller.needs(permission.kind, *permission.verbs)
    store = TopologyStore(secrets.token_hex(4), describe_manager)
    cluster_objects = ClusterObjects(
        manager.client, manager.metrics, log, manager.options.watch_namespaces
    )
    by_name = vcenters.vcenters_by_name
    kinds = [controller.kind for controller in manager.controllers]
    info_links = InfoLinks(manager.cache, by_name, kinds)
    tracker = gpu_controller.tracker
    items = ItemBuilder(by_name, manager.cache, cluster_objects, tracker, rules, info_links)
    builder = TopologyBuilder(
        store, by_name, manager.cache, cluster_objects, tracker, items, info_links, log
    )
    builder.connect()
    changes = ChangeLog()
    changes.connect(by_name, manager.cache)
    server = TopologyServer(
        bind_address,
        store=store,
        builder=builder,
        streams=EventStreams(store, TopologyMetrics(manager.metrics), log),
        changes=changes,
        cluster_objects=cluster_objects,
        objects=ObjectReader(manager.cache, manager.client, cluster_objects, kinds),
        authorizer=manager.authorizer,
        certificate_dir=certificate_dir,
        log=log,
    )
    if server.endpoint.certificate is not None:
        manager.metrics.watch_certificate("page", server.endpoint.certificate)
    for reflector in cluster_objects.reflectors:
        manager.add_runnable(reflector)
    manager.add_runnable(server)
    return server
