"""Tests on real servers: etcd and kube-apiserver, faults on the connection, and one way to wait.

controlplane    `ControlPlane`: starts, kills and restarts etcd and kube-apiserver
controller_manager
                a real kube-controller-manager as part of it
kubelet         `fake_kubelet`: marks Pods as running
scheduler       `run_scheduler`: a real kube-scheduler
operator        `run_operator`: the manager under test, with the permissions of its roles
proxy           `HttpProxy`: errors, delays, lost responses, and a record of all requests
tcpproxy        `TcpProxy`: connections that stall or break
single_reconcile
                `reconcile`: one reconcile without a server, as a function of its input
ready_status    `mark_ready`: writes the status of a Deployment, Pod or Job that is ready
sample          `read_sample`: a sample of the project as a typed object
fake            `FakeApi`: an API server in memory, for fast tests of controllers
cluster_access  kubeconfig files and HTTPS calls, without the code under test
wait            `eventually`: the only way a test waits
plugin          the pytest fixtures `control_plane`, `kubeconfig`, `namespace`, `kubectl`
binaries        finds the pinned binaries, downloads them with `envtest` or builds them with
                `go_build`, once
testenv_wheel   packs the binaries into a wheel, for an organisation's package index
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .wait import eventually

if TYPE_CHECKING:
    from .ready_status import mark_ready
    from .sample import read_sample
    from .single_reconcile import ReconcileResult, RecordedEvent, Write, reconcile

__all__ = [
    "ReconcileResult",
    "RecordedEvent",
    "Write",
    "eventually",
    "mark_ready",
    "read_sample",
    "reconcile",
]
_MODULES = {"mark_ready": "ready_status", "read_sample": "sample"}


def __getattr__(name: str) -> Any:
    # On demand: `eventually` alone must not import the runtime and the fake API server.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f".{_MODULES.get(name, 'single_reconcile')}", __name__)
    return getattr(module, name)
