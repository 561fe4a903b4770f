"""Tests on the real thing: a real etcd and kube-apiserver, faults put in at the wire, and one way to wait.

    assets          finds the pinned binaries, or builds them once
    controlplane    `ControlPlane`: starts them, kills them, restarts them, compacts etcd
    proxy           `TcpProxy` and `HttpProxy`: stalls, cuts, refusals, a ledger of what was asked
    fake            `FakeApi`: an API server in memory, for fast tests of controllers
    waiting         `eventually`: the only way a test waits
    plugin          the pytest fixtures `control_plane`, `kubeconfig`, `namespace`, `kubectl`, `no_blocking_calls`

Under them: `build` (Go), `process` (a child that never outlives us), `certificates`, `access` (kubeconfig files and
plain HTTPS calls) and `emptying` (what is left in a namespace).
"""

from __future__ import annotations

from .wait import eventually

__all__ = ["eventually"]
