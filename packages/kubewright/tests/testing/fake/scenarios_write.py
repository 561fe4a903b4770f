"""Create, replace, patch and delete: names, versions, generations, finalizers and preconditions."""

from __future__ import annotations

from typing import Any

from .scenarios_apply import config_map, deployment, gadget, with_status
from .transcript import GROUP, Step, apply, create, delete, get, patch, replace

UID = "0af5b2c4-0000-4000-8000-000000000000"
NAMESPACES = "/api/v1/namespaces/{namespace}"
NAMESPACE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {"name": "{namespace}-b"},
}
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def plain(**fields: Any) -> dict[str, Any]:
    return gadget() | {"kind": "Plain", **fields}


def pod(name: str = "a", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "a", "image": "a:1"}], **spec},
    }


def owner(**fields: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Secret", "name": "s", "uid": UID} | fields


MARKED = (
    "kind",
    "metadata.generation",
    "metadata.finalizers",
    "metadata.deletionTimestamp",
    "metadata.deletionGracePeriodSeconds",
    "metadata.resourceVersion",
)

SCENARIOS: dict[str, list[Step]] = {
    "create": [
        create("gadgets", gadget({"size": 1})),
        create("gadgets", gadget({"size": 1})),
        get("gadgets/b"),
        create("gadgets", gadget({"size": 1}, name="", generateName="generated-")),
        create("gadgets", gadget({"size": 1}, name="")),
        create("gadgets", gadget({"size": 1}, name="Upper_case")),
        create("gadgets", gadget({"size": 1}, name="b", namespace="elsewhere")),
        create("gadgets", gadget({"size": 1}, name="b", resourceVersion="1")),
        create("gadgets", gadget({"size": 1}, name="b", uid=UID, generation=7)),
        create("gadgets", with_status({"text": "dropped"}) | {"metadata": {"name": "c"}}),
        create("gadgets", gadget({"size": 1}, name="d"), "fieldManager=test&dryRun=All"),
        get("gadgets/d"),
        create("plains", plain(any=1, status={"kept": True})),
        create("configmaps", config_map({"a": "1"}, "", generateName="generated-")),
        create("configmaps", config_map({"a": "1"}, "")),
        create("configmaps", config_map({"a": "1"}, "a") | {"unknown": 1}),
        create("configmaps", config_map({"a": "1"}, "a")),
    ],
    "metadata is validated": [
        create("gadgets", gadget({}, labels={"a": "not allowed"})),
        create("gadgets", gadget({}, labels={"a": "x" * 64})),
        create("gadgets", gadget({}, labels={"not allowed": "a"})),
        create("gadgets", gadget({}, labels={"Upper/a": "a"})),
        create("gadgets", gadget({}, annotations={"not allowed": "a"})),
        create("gadgets", gadget({}, labels={"a/" + "x" * 64: "a"})),
        create("gadgets", gadget({}, ownerReferences=[owner(uid="")])),
        create("gadgets", gadget({}, ownerReferences=[owner(name="")])),
        create("gadgets", gadget({}, ownerReferences=[owner(apiVersion="")])),
        create("gadgets", gadget({}, ownerReferences=[owner(kind="")])),
        create(
            "gadgets",
            gadget(
                {},
                ownerReferences=[
                    owner(controller=True),
                    owner(controller=True, uid=UID.replace("4", "5")),
                ],
            ),
        ),
        create("configmaps", config_map(labels={"a": "not allowed"})),
    ],
    "replace": [
        create("gadgets", gadget({"size": 1}, labels={"a": "b"}), store="version"),
        replace("gadgets/a", gadget({"size": 2}, resourceVersion="{version}"), store="version"),
        replace("gadgets/a", gadget({"size": 2}, resourceVersion="{version}")),
        replace("gadgets/a", gadget({"size": 3}, resourceVersion="1")),
        replace("gadgets/a", gadget({"size": 3})),
        replace("gadgets/a", gadget({"size": 3}, resourceVersion="{version}", uid=UID)),
        replace("gadgets/a", gadget({"size": 3}, resourceVersion="{version}", name="b")),
        replace("gadgets/b", gadget({"size": 3}, resourceVersion="{version}", name="b")),
        replace(
            "gadgets/a",
            gadget({"size": 3}, resourceVersion="{version}"),
            "fieldManager=test&dryRun=All",
        ),
        get("gadgets/a"),
        replace(
            "gadgets/a/status",
            with_status({"text": "t"}) | gadget({"size": 9}, resourceVersion="{version}"),
        ),
        replace(
            "gadgets/a/status",
            gadget({"size": 9}, resourceVersion="{version}") | {"status": {"text": "t"}},
            store="version",
        ),
        create("configmaps", config_map({"a": "1"})),
        replace("configmaps/a", config_map({"b": "1"})),
        replace("configmaps/b", config_map({"b": "1"}, "b")),
    ],
    "patch": [
        create("gadgets", gadget({"size": 1, "env": {"A": "1", "B": "2"}}), store="version"),
        patch("gadgets/a", {"spec": {"env": {"A": None, "C": "3"}}}),
        patch("gadgets/a", {"metadata": {"labels": {"a": "b"}}}),
        patch("gadgets/a", {"metadata": {"labels": {"a": None}}}),
        patch("gadgets/a", {"metadata": {"labels": None}}),
        patch("gadgets/a", {"metadata": {"resourceVersion": "{version}"}, "spec": {"size": 4}}),
        patch("gadgets/a", {"metadata": {"uid": UID}}),
        patch("gadgets/a", {"metadata": {"name": "b"}}),
        patch("gadgets/a", {"metadata": {"generation": 50, "creationTimestamp": None}}),
        patch("gadgets/a", {"status": {"text": "ignored"}}),
        patch("gadgets/a/status", {"status": {"text": "t"}, "spec": {"size": 50}}),
        patch("gadgets/a/status", {"metadata": {"labels": {"ignored": "yes"}}}),
        patch("gadgets/b", {"spec": {"size": 1}}),
        patch("gadgets/a", {"spec": {"size": 8}}, "fieldManager=test&dryRun=All"),
        patch("gadgets/a", {"spec": {"size": 8}}, type="strategic"),
        create("plains", plain(any=1)),
        patch("plains/a", {"any": 2}),
        patch("plains/a", {"status": {"x": 1}}),
        patch("plains/a/status", {"status": {"x": 1}}),
        patch("plains/a", {"metadata": {"labels": {"a": "b"}}}),
    ],
    "json patch": [
        create("gadgets", gadget({"size": 1, "tags": ["a", "b"], "env": {"a/b": "1"}})),
        patch("gadgets/a", [{"op": "test", "path": "/spec/size", "value": 2}], type="json"),
        patch(
            "gadgets/a",
            [
                {"op": "test", "path": "/spec/size", "value": 1},
                {"op": "replace", "path": "/spec/size", "value": 2},
                {"op": "remove", "path": "/spec/tags/0"},
                {"op": "add", "path": "/spec/tags/-", "value": "c"},
                {"op": "add", "path": "/spec/env/a~1b", "value": "2"},
                {"op": "copy", "from": "/spec/env/a~1b", "path": "/spec/env/copy"},
                {"op": "move", "from": "/spec/env/copy", "path": "/spec/env/moved"},
            ],
            type="json",
            show=("spec", "metadata.generation"),
        ),
        patch("gadgets/a", [{"op": "remove", "path": "/spec/nothing"}], type="json"),
        patch("gadgets/a", [{"op": "replace", "path": "/spec/none/x", "value": 1}], type="json"),
    ],
    "delete": [
        create("gadgets", gadget({"size": 1}), store="version"),
        delete("gadgets/a", {"preconditions": {"uid": UID}}),
        delete("gadgets/a", {"preconditions": {"resourceVersion": "1"}}),
        delete("gadgets/a", query="dryRun=All"),
        delete("gadgets/a", {"dryRun": ["All"]}),
        delete("gadgets/a", {"preconditions": {"resourceVersion": "{version}"}}),
        delete("gadgets/a"),
        create("configmaps", config_map({"a": "1"})),
        delete("configmaps/a"),
    ],
    "delete with finalizers": [
        create("gadgets", gadget({"size": 1}, finalizers=["test.kubewright/a"])),
        delete("gadgets/a", show=MARKED),
        delete("gadgets/a", show=MARKED),
        patch("gadgets/a", {"spec": {"size": 2}}, show=MARKED),
        patch("gadgets/a", {"metadata": {"finalizers": ["test.kubewright/b"]}}),
        patch("gadgets/a", {"metadata": {"deletionTimestamp": None}}, show=MARKED),
        patch("gadgets/a", {"metadata": {"finalizers": None}}, show=MARKED),
        get("gadgets/a"),
        create("configmaps", config_map({"a": "1"}, finalizers=["test.kubewright/a"])),
        delete("configmaps/a", show=MARKED),
        patch("configmaps/a", {"metadata": {"finalizers": []}}, show=MARKED),
        get("configmaps/a"),
    ],
    "propagation of a delete is a finalizer for the garbage collector": [
        create("configmaps", config_map({"a": "1"})),
        delete("configmaps/a", {"propagationPolicy": "Foreground"}, show=MARKED),
        delete("configmaps/a", {"propagationPolicy": "Orphan"}, show=MARKED),
        delete("configmaps/a", {"propagationPolicy": "Background"}, show=("kind", "status")),
        create("configmaps", config_map({"a": "1"}, "b")),
        delete("configmaps/b", {"propagationPolicy": "Background"}, show=("kind", "status")),
        create("configmaps", config_map({"a": "1"}, "c")),
        delete("configmaps/c", query="propagationPolicy=Foreground", show=MARKED),
    ],
    "namespace is deleted when its controller has removed the finalizer": [
        create("/api/v1/namespaces", NAMESPACE),
        patch(f"{NAMESPACES}-b", {"spec": {"finalizers": []}}, show=("spec",)),
        delete(f"{NAMESPACES}-b", show=("status", "metadata.deletionTimestamp", "spec")),
        delete(f"{NAMESPACES}-b"),
        replace(f"{NAMESPACES}-b/finalize", NAMESPACE | {"spec": {}}, show=("kind", "spec")),
        get(f"{NAMESPACES}-b"),
    ],
    "delete collection": [
        create("configmaps", config_map(name="a", labels={"x": "1"})),
        create("configmaps", config_map(name="b", labels={"x": "2"})),
        create("configmaps", config_map(name="c", labels={"x": "1"}, finalizers=["t.t/a"])),
        delete("configmaps", query="labelSelector=x%3D1", show=("kind",)),
        get(
            "configmaps", "labelSelector=x", show=("items.0.metadata.name", "items.1.metadata.name")
        ),
        delete("configmaps", query="fieldSelector=metadata.name%3Db", show=("kind",)),
        get(
            "configmaps", "labelSelector=x", show=("items.0.metadata.name", "items.1.metadata.name")
        ),
        delete("/api/v1/configmaps"),
        patch("configmaps/c", {"metadata": {"finalizers": None}}, show=("kind",)),
    ],
    "Pod on a node ends gracefully": [
        create("pods", pod(), show=("status.phase", "status.qosClass", "metadata.generation")),
        delete("pods/a", show=("kind",)),
        get("pods/a"),
        create("pods", pod("b", nodeName="n"), show=("metadata.generation",)),
        delete("pods/b", show=MARKED),
        delete("pods/b", {"gracePeriodSeconds": 5}, show=MARKED),
        delete("pods/b", {"gracePeriodSeconds": 0}, show=("kind",)),
        get("pods/b"),
    ],
    "generations of built-in kinds": [
        create("configmaps", config_map({"a": "1"}), show=("metadata.generation",)),
        create(
            "deployments",
            deployment([{"name": "a", "image": "a:1"}]),
            show=("metadata.generation",),
        ),
        patch("deployments/a", {"spec": {"replicas": 3}}, show=("metadata.generation",)),
        patch("deployments/a", {"metadata": {"labels": {"a": "b"}}}, show=("metadata.generation",)),
        patch(
            "deployments/a/status",
            {"status": {"replicas": 1}},
            show=("metadata.generation", "status", "spec.replicas"),
        ),
        patch("deployments/a", {"status": {"replicas": 2}}, show=("status.replicas",)),
        delete("deployments/a", {"propagationPolicy": "Foreground"}, show=MARKED),
        patch("deployments/a", {"metadata": {"finalizers": None}}, show=MARKED),
    ],
    "defaults of built-in kinds": [
        create(
            "deployments",
            deployment([{"name": "a", "image": "a:1"}]),
            show=(
                "spec.replicas",
                "spec.strategy",
                "spec.template.spec.restartPolicy",
                "spec.template.spec.containers.0.terminationMessagePath",
            ),
        ),
        create("secrets", {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}}),
        apply(
            "services/a",
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": "a"},
                "spec": {"ports": [{"port": 80}], "selector": {"a": "b"}},
            },
            "one",
            show=("spec.type", "spec.ports.0.protocol", "metadata.managedFields"),
        ),
        delete("deployments/a", show=("status",)),
    ],
    "scale": [
        create("gadgets", gadget({"replicas": 3}), show=("kind",)),
        get("gadgets/a/scale", show=("kind", "apiVersion", "spec", "status", "metadata.name")),
        patch(
            "gadgets/a/scale",
            {"spec": {"replicas": 5}},
            show=("kind", "spec", "status", "metadata.name"),
        ),
        get("gadgets/a", show=("spec.replicas", "metadata.generation")),
        create("deployments", deployment([{"name": "a", "image": "a:1"}]), show=("kind",)),
        get("deployments/a/scale", show=("kind", "apiVersion", "spec", "status.replicas")),
        delete("deployments/a", show=("status",)),
        get("plains/a/scale"),
    ],
    "subresources that accept a POST": [
        create("pods", pod(), show=("kind",)),
        create(
            "pods/a/eviction",
            {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}},
            show=("kind", "status"),
        ),
        get("pods/a"),
        create(
            "pods/a/eviction",
            {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}},
        ),
        create(
            "serviceaccounts",
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a"}},
            show=("kind",),
        ),
        create(
            "serviceaccounts/a/token",
            {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {"expirationSeconds": 700},
            },
            show=("kind", "spec.expirationSeconds"),
        ),
        create("serviceaccounts/b/token", {"kind": "TokenRequest", "spec": {}}),
        get("serviceaccounts/a/token"),
        get("gadgets/a/eviction"),
    ],
    "paths and kinds that are not served": [
        get("/apis/nothing.test/v1/things"),
        get(f"/apis/{GROUP}/v2/namespaces/{{namespace}}/gadgets"),
        get(f"/apis/{GROUP}/v1/gadgets/a"),
        get(f"{CRDS}/none.{GROUP}"),
        get("/apis/nothing.test/v1"),
        create("gadgets", gadget({}) | {"kind": "Plain"}),
        create("gadgets", gadget({}) | {"apiVersion": "v1"}),
    ],
}
