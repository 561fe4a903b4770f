"""examples/myapp.py on kopf, for `python -m bench.children`.

kopf has no call that applies a child, so this sends server-side applies over an aiohttp session of
its own. In favor of kopf: async functions, no Events, logs from WARNING on, no finalizer, one
namespace and no peering. A child that is deleted or changed makes it apply all children of the
owner.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import aiohttp
import kopf

MAX_CONNECTIONS = 64
APPS = ("examples.kubewright.dev", "v1", "myapps")
CHILDREN = {
    "ConfigMap": ("", "v1", "configmaps"),
    "ServiceAccount": ("", "v1", "serviceaccounts"),
    "Deployment": ("apps", "v1", "deployments"),
    "Service": ("", "v1", "services"),
    "Ingress": ("networking.k8s.io", "v1", "ingresses"),
    "HorizontalPodAutoscaler": ("autoscaling", "v2", "horizontalpodautoscalers"),
}
OPTIONAL = ("Ingress", "HorizontalPodAutoscaler")
MANAGED_BY = {"app.kubernetes.io/managed-by": "myapp-kopf"}


@kopf.on.startup()
async def connect(settings: kopf.OperatorSettings, memo: kopf.Memo, **given: Any) -> None:
    settings.posting.enabled = False
    login = kopf.login_with_kubeconfig(settings=settings, **given)
    assert login is not None, "KUBECONFIG is set"
    memo.session = aiohttp.ClientSession(
        login.server,
        connector=aiohttp.TCPConnector(limit=MAX_CONNECTIONS, ssl=login.as_ssl_context()),
        headers={"Authorization": f"Bearer {login.token}"},
        raise_for_status=True,
    )


@kopf.on.cleanup()
async def disconnect(memo: kopf.Memo, **_: Any) -> None:
    await memo.session.close()


@kopf.on.login()
def login(**given: Any) -> kopf.ConnectionInfo | None:
    return kopf.login_with_kubeconfig(**given)


@kopf.index(*APPS)
async def apps(namespace: str | None, name: str, body: kopf.Body, **_: Any) -> Any:
    return {(namespace, name): body}


@kopf.on.create(*APPS)
@kopf.on.resume(*APPS)
@kopf.on.update(*APPS)
async def reconcile(body: kopf.Body, patch: kopf.Patch, memo: kopf.Memo, **given: Any) -> None:
    patch.status.update(await keep_children(memo.session, body, given["optional"]))


def index_optional(kind: str) -> None:
    # One index for all optional kinds: the functions have the same id.
    @kopf.index(*CHILDREN[kind], id="optional", labels=MANAGED_BY)
    async def optional(namespace: str | None, name: str, **_: Any) -> Any:
        return {(kind, namespace, name): True}


def watch_children(kind: str) -> None:
    @kopf.on.event(*CHILDREN[kind], id=f"watch-{kind}", labels=MANAGED_BY)
    async def child_changed(
        event: kopf.RawEvent,
        namespace: str | None,
        name: str,
        memo: kopf.Memo,
        **given: Any,
    ) -> None:
        apps = given["apps"]
        if event["type"] not in ("MODIFIED", "DELETED") or (namespace, name) not in apps:
            return
        (body,) = apps[namespace, name]
        status = await keep_children(memo.session, body, given["optional"])
        before = {key: body.status.get(key) for key in ("readyReplicas", "address")}
        if before != {key: status[key] for key in before}:
            url = f"{path_of(APPS, namespace, name)}/status"
            headers = {"Content-Type": "application/merge-patch+json"}
            async with memo.session.patch(url, json={"status": status}, headers=headers):
                pass


async def keep_children(
    session: aiohttp.ClientSession, body: kopf.Body, existing: Any
) -> dict[str, Any]:
    """Apply the children that the object wants, delete the others, and return the status."""
    wanted = build_children(body.metadata.name, body.spec)
    kopf.adopt([*wanted.values()], owner=body)
    live: dict[str, Any] = {}
    for kind, child in wanted.items():
        live[kind] = await apply_child(session, child)
    namespace, name = body.metadata.namespace, body.metadata.name
    for kind in OPTIONAL:
        if kind not in wanted and (kind, namespace, name) in existing:
            async with session.delete(path_of(CHILDREN[kind], namespace, name)):
                pass
    return build_status(body, live)


async def apply_child(session: aiohttp.ClientSession, child: dict[str, Any]) -> Any:
    metadata = child["metadata"]
    path = path_of(CHILDREN[child["kind"]], metadata["namespace"], metadata["name"])
    async with session.patch(
        f"{path}?fieldManager=myapp&force=true",
        json=child,
        headers={"Content-Type": "application/apply-patch+yaml"},
    ) as response:
        return await response.json()


def path_of(resource: tuple[str, str, str], namespace: str | None, name: str) -> str:
    group, version, plural = resource
    prefix = f"/apis/{group}/{version}" if group else f"/api/{version}"
    return f"{prefix}/namespaces/{namespace}/{plural}/{name}"


def build_children(name: str, spec: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    labels = {"app": name}
    contents: dict[str, dict[str, Any]] = {
        "ConfigMap": {"data": spec.get("config", {})},
        "ServiceAccount": {"automountServiceAccountToken": False},
        "Deployment": {"spec": build_deployment(name, labels, spec)},
        "Service": {
            "spec": {
                "selector": labels,
                "ports": [{"port": 80, "targetPort": spec.get("port", 8080)}],
            }
        },
    }
    if spec.get("host"):
        backend = {"service": {"name": name, "port": {"number": 80}}}
        path = {"path": "/", "pathType": "Prefix", "backend": backend}
        rule = {"host": spec["host"], "http": {"paths": [path]}}
        contents["Ingress"] = {"spec": {"rules": [rule]}}
    if spec.get("maxReplicas"):
        target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
        contents["HorizontalPodAutoscaler"] = {
            "spec": {
                "scaleTargetRef": target,
                "minReplicas": spec.get("replicas", 1),
                "maxReplicas": spec["maxReplicas"],
            }
        }
    children = {}
    for kind, content in contents.items():
        group, version, _ = CHILDREN[kind]
        children[kind] = {
            "apiVersion": f"{group}/{version}" if group else version,
            "kind": kind,
            "metadata": {"name": name, "labels": labels | MANAGED_BY},
            **content,
        }
    return children


def build_deployment(name: str, labels: dict[str, str], spec: Mapping[str, Any]) -> dict[str, Any]:
    container = {
        "name": "app",
        "image": spec["image"],
        "ports": [{"containerPort": spec.get("port", 8080)}],
        "volumeMounts": [{"name": "config", "mountPath": "/etc/config"}],
    }
    pod = {
        "serviceAccountName": name,
        "containers": [container],
        "volumes": [{"name": "config", "configMap": {"name": name}}],
    }
    deployment = {
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    if not spec.get("maxReplicas"):
        deployment["replicas"] = spec.get("replicas", 1)
    return deployment


def build_status(body: kopf.Body, live: dict[str, Any]) -> dict[str, Any]:
    deployment = live["Deployment"]
    desired = deployment["spec"]["replicas"]
    available = deployment.get("status", {}).get("availableReplicas", 0)
    condition = {
        "type": "Ready",
        "status": "True" if available >= desired else "False",
        "reason": "ChildrenReady" if available >= desired else "ChildrenNotReady",
        "message": f"{available} of {desired} replicas are available",
        "lastTransitionTime": datetime.now(UTC).isoformat(timespec="seconds"),
        "observedGeneration": body.metadata["generation"],
    }
    return {
        "readyReplicas": deployment.get("status", {}).get("readyReplicas", 0),
        "address": live["Service"]["spec"]["clusterIP"],
        "observedGeneration": body.metadata["generation"],
        "conditions": [condition],
    }


def main(kubeconfig: str, namespace: str) -> None:
    os.environ["KUBECONFIG"] = kubeconfig
    logging.basicConfig(level=logging.WARNING)
    for kind in CHILDREN:
        watch_children(kind)
    for kind in OPTIONAL:
        index_optional(kind)
    kopf.run(namespaces=[namespace], standalone=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
