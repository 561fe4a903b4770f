"""Tests on real servers: etcd and kube-apiserver, faults on the connection, and one way to wait.

controlplane    `ControlPlane`: starts, kills and restarts etcd and kube-apiserver
controller_manager
                a real kube-controller-manager as part of it
kubelet         `fake_kubelet`: marks Pods as running
operator        `run_operator`: the manager under test, with the permissions of its roles
proxy           `HttpProxy`: errors, delays, lost responses, and a record of all requests
tcpproxy        `TcpProxy`: connections that stall or break
fake            `FakeApi`: an API server in memory, for fast tests of controllers
cluster_access  kubeconfig files and HTTPS calls, without the code under test
wait            `eventually`: the only way a test waits
plugin          the pytest fixtures `control_plane`, `kubeconfig`, `namespace`, `kubectl`
binaries        finds the pinned binaries, or builds them once with `go_build`
"""

from __future__ import annotations

from .wait import eventually

__all__ = ["eventually"]
