"""Kubeconfigs for tests; the fixture `load_kubeconfig` loads one."""

from __future__ import annotations

from typing import Any

from kubewright.testing.ca import CertificateAuthority

CA_PEM = CertificateAuthority("test").certificate


def make_kubeconfig(
    cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None, **context: Any
) -> dict[str, Any]:
    """A kubeconfig with one of each, all named "kind"."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "kind",
        "clusters": [
            {"name": "kind", "cluster": {"server": "https://host:6443"} | (cluster or {})}
        ],
        "users": [{"name": "kind", "user": user or {}}],
        "contexts": [{"name": "kind", "context": {"cluster": "kind", "user": "kind"} | context}],
    }
