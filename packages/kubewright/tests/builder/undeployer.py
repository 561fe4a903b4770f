"""Runs `kubewright deploy`, `undeploy` and `uninstall` of the golden project on an API server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kubewright.builder.cli import main
from kubewright.testing.controlplane import ControlPlane

OVERLAY = "config/overlays/production"
NAMESPACE, MANAGER = "greeter-system", "greeter-controller-manager"
# Cluster-scoped: the removal of the namespace leaves it.
ONLY_IN_OVERLAY = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: only-in-the-overlay}
rules: []
"""
# The greeter has no webhook for this kind, so that it can be created without a manager.
STREET = """
apiVersion: demo.example.com/v1
kind: Street
metadata: {name: main-street, namespace: default, finalizers: [example.com/cleanup]}
spec: {}
"""


@dataclass(frozen=True)
class Undeployer:
    root: Path
    plane: ControlPlane

    def run(self, command: str, *arguments: str) -> int:
        kubectl = str(self.plane.binaries["kubectl"])
        options = (
            ("--image", "example.com/greeter:v1") if command == "deploy" else ("--timeout", "60")
        )
        return main(
            [command, "--project", str(self.root), "--kubectl", kubectl, *options, *arguments]
        )

    def write_overlay(
        self,
        overlay: str = OVERLAY,
        kustomization: str = "resources: [../../default, role.yaml]\n",
    ) -> None:
        folder = self.root / overlay
        folder.mkdir(parents=True)
        (folder / "role.yaml").write_text(ONLY_IN_OVERLAY)
        (folder / "kustomization.yaml").write_text(kustomization)

    def make_ready(self) -> None:
        """In place of the kubelet."""
        status = ("--subresource=status", "-p", '{"status": {"replicas": 1, "readyReplicas": 1}}')
        self.plane.kubectl("-n", NAMESPACE, "patch", "deployment", MANAGER, *status)

    def create_street(self) -> None:
        """With a finalizer."""
        self.plane.wait_for_crds("roads.demo.example.com")
        self.plane.kubectl("apply", "-f", "-", stdin=STREET)

    def release_street(self) -> None:
        """Without its finalizer, it may be deleted at once."""
        patch = '{"metadata":{"finalizers":null}}'
        street = ("roads.demo.example.com", "main-street")
        self.plane.kubectl("patch", *street, "--type=merge", "-p", patch)
        self.plane.kubectl("delete", "--ignore-not-found", *street)

    def has(self, *objects: str) -> bool:
        return bool(self.plane.kubectl("get", "--ignore-not-found", "-o", "name", *objects))


@contextmanager
def finish_removals(plane: ControlPlane) -> Iterator[None]:
    """In place of the namespace controller, for which kubectl waits."""
    ended = threading.Event()

    def finish() -> None:
        with plane.apiserver.admin_client() as client:
            while not ended.wait(0.1):
                for item in client.call("GET", "/api/v1/namespaces")["items"]:
                    if (item["metadata"]["name"], item["status"]["phase"]) == (
                        NAMESPACE,
                        "Terminating",
                    ):
                        plane.remove_namespace(NAMESPACE)

    controller = threading.Thread(target=finish)
    controller.start()
    try:
        yield
    finally:
        ended.set()
        controller.join()
