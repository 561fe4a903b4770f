"""A real kube-controller-manager for tests: garbage collection, Deployments, Jobs, namespaces.

`fake_kubelet` of `kubewright.testing.kubelet` marks Pods as running. The node controllers are left
out: the Node of `fake_kubelet` has no Lease, so they would mark it NotReady and evict its Pods.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from .apiserver import StartFailed
from .cluster_access import HttpClient, HttpError
from .process import Process

DEFAULT_CONTROLLERS = (
    "clusterrole-aggregation-controller",
    "cronjob-controller",
    "daemonset-controller",
    "deployment-controller",
    "disruption-controller",
    "endpointslice-controller",
    "garbage-collector-controller",
    "horizontal-pod-autoscaler-controller",
    "job-controller",
    "namespace-controller",
    "replicaset-controller",
    "resourcequota-controller",
    "serviceaccount-controller",
    "statefulset-controller",
    "ttl-after-finished-controller",
)
_DEFAULT_SERVICE_ACCOUNT = "/api/v1/namespaces/default/serviceaccounts/default"
_READY_TIMEOUT_SECONDS = 60.0
_READY_INTERVAL_SECONDS = 0.1
_GRACE_SECONDS = 5.0


class ControllerManager:
    """One kube-controller-manager with only the given controllers."""

    def __init__(
        self, binary: Path, folder: Path, kubeconfig: Path, controllers: Sequence[str]
    ) -> None:
        self._controllers = controllers
        flags = [
            f"--kubeconfig={kubeconfig}",
            f"--controllers={','.join(controllers)}",
            f"--service-account-private-key-file={folder / 'service-accounts.key'}",
            f"--root-ca-file={folder / 'ca.crt'}",
            "--leader-elect=false",
            "--secure-port=0",
            "--bind-address=127.0.0.1",
            # An autoscaler reads its objects every 15 s by default.
            "--horizontal-pod-autoscaler-sync-period=1s",
        ]
        log = folder / "kube-controller-manager.log"
        self.process = Process("kube-controller-manager", [str(binary), *flags], log)

    def start(self) -> None:
        self.process.start()

    def wait_until_ready(self, client: HttpClient) -> None:
        """Block until its controllers work: one of them creates the default service account."""
        if "serviceaccount-controller" not in self._controllers:
            return
        deadline = time.monotonic() + _READY_TIMEOUT_SECONDS
        while self.process.is_running and time.monotonic() < deadline:
            with suppress(HttpError):
                client.call("GET", _DEFAULT_SERVICE_ACCOUNT)
                return
            time.sleep(_READY_INTERVAL_SECONDS)
        raise StartFailed(
            "kube-controller-manager did not start. "
            f"The end of its log:\n{self.process.read_log_tail()}"
        )

    async def stop(self) -> None:
        await self.process.stop(_GRACE_SECONDS)

    def restart(self, client: HttpClient) -> None:
        """Kill and start it, and block until its controllers work again."""
        self.process.send_signal(signal.SIGKILL)
        if self.process.child:
            self.process.child.wait()
        with suppress(HttpError):
            client.call("DELETE", _DEFAULT_SERVICE_ACCOUNT)
        self.start()
        self.wait_until_ready(client)
