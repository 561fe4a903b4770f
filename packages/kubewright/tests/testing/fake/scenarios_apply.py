"""Server-side apply: managers, conflicts, removal of fields, and lists."""

from __future__ import annotations

from typing import Any

from .transcript import GROUP, Step, apply, create, delete, get, patch, replace

Json = dict[str, Any]


def gadget(spec: Json | None = None, name: str = "a", **metadata: Any) -> Json:
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "Gadget",
        "metadata": {"name": name, **metadata},
        **({"spec": spec} if spec is not None else {}),
    }


def unnamed(spec: Json | None = None, **metadata: Any) -> Json:
    body = gadget(spec, **metadata)
    del body["metadata"]["name"]
    if not metadata:
        del body["metadata"]
    return body


def config_map(data: Json | None = None, name: str = "a", **metadata: Any) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, **metadata},
        **({"data": data} if data is not None else {}),
    }


def with_status(status: Json) -> Json:
    return gadget() | {"status": status}


def deployment(containers: list[Json], **spec: Any) -> Json:
    labels = {"app": "a"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": containers}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "a"},
        "spec": {"selector": {"matchLabels": labels}, "template": template, **spec},
    }


CONTAINERS = "spec.template.spec.containers"
SHOWN = (
    "metadata.generation",
    "metadata.resourceVersion",
    "metadata.managedFields",
    "spec.replicas",
    f"{CONTAINERS}.0.name",
    f"{CONTAINERS}.0.image",
    f"{CONTAINERS}.0.env",
    f"{CONTAINERS}.0.ports",
    f"{CONTAINERS}.0.args",
    f"{CONTAINERS}.1.name",
)

SCENARIOS: dict[str, list[Step]] = {
    "apply creates, repeats without a write, changes and removes fields": [
        apply("gadgets/a", gadget({"size": 1, "title": "one"}), "one"),
        apply("gadgets/a", gadget({"size": 1, "title": "one"}), "one"),
        apply("gadgets/a", gadget({"size": 2, "title": "one"}), "one"),
        apply("gadgets/a", gadget({"size": 2}), "one"),
        apply("gadgets/a", gadget(labels={"x": "y"}), "one"),
        apply("gadgets/a", gadget(), "one"),
    ],
    "apply without a name in the body changes an object, but creates none": [
        apply("gadgets/a", unnamed({"size": 1}), "one"),
        apply("gadgets/a", unnamed({"size": 1}, labels={"x": "y"}), "one"),
        apply("configmaps/a", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": None}, "one"),
        apply("gadgets/a/status", unnamed() | {"status": {"text": "t"}}, "one"),
        apply("gadgets/a", gadget({"size": 1}), "one"),
        apply("gadgets/a", unnamed({"size": 2}), "one"),
        apply("gadgets/a", unnamed({"size": 2}, labels={"x": "y"}), "one"),
        apply("gadgets/a", unnamed({"size": 2}) | {"metadata": None}, "one"),
        apply("gadgets/a/status", unnamed() | {"status": {"text": "t"}}, "one"),
        create("configmaps", config_map({"a": "1"})),
        apply("configmaps/a", {"apiVersion": "v1", "kind": "ConfigMap", "data": {"b": "2"}}, "one"),
    ],
    "apply conflicts with another manager, and force takes the field": [
        apply("gadgets/a", gadget({"size": 1, "title": "one"}), "one"),
        apply("gadgets/a", gadget({"size": 1}), "two"),
        apply("gadgets/a", gadget({"size": 2}), "two"),
        apply("gadgets/a", gadget({"size": 2, "title": "two"}), "three"),
        apply("gadgets/a", gadget({"size": 2}), "two", "force=true"),
        apply("gadgets/a", gadget({"title": "one"}), "one"),
        get("gadgets/a"),
    ],
    "apply conflicts with an update, and with several managers": [
        create("configmaps", config_map({"a": "1", "b": "1"}), "fieldManager=creator"),
        apply("configmaps/a", config_map({"c": "1"}), "one"),
        patch("configmaps/a", {"data": {"c": "2"}}, "fieldManager=patcher"),
        apply("configmaps/a", config_map({"a": "2", "b": "1", "c": "3"}), "one"),
        apply("configmaps/a", config_map({"a": "2", "b": "2", "c": "3"}), "two"),
        apply("configmaps/a", config_map({"a": "2", "b": "2", "c": "3"}), "two", "force=true"),
    ],
    "field that two managers apply stays until both have stopped": [
        apply("configmaps/a", config_map({"a": "1", "b": "1"}), "one"),
        apply("configmaps/a", config_map({"a": "1"}), "two"),
        apply("configmaps/a", config_map({"b": "1"}), "one"),
        apply("configmaps/a", config_map({}), "two"),
        apply("configmaps/a", config_map(), "one"),
    ],
    "value that another manager changed by an update is not removed with its former owner": [
        apply("configmaps/a", config_map({"a": "1"}), "one"),
        patch("configmaps/a", {"data": {"a": "2"}}, "fieldManager=patcher"),
        apply("configmaps/a", config_map({}), "one"),
        patch("configmaps/a", {"data": {"a": None}}, "fieldManager=other"),
    ],
    "lists merge by their keys, sets by value, atomic lists as a whole": [
        apply(
            "gadgets/a",
            gadget(
                {
                    "ports": [{"name": "http", "number": 1}, {"name": "dns", "protocol": "UDP"}],
                    "tags": ["a", "b"],
                    "order": ["x", "y"],
                    "place": {"x": 1},
                    "free": {"list": [1], "map": {"a": 1}},
                    "env": {"A": "1"},
                }
            ),
            "one",
        ),
        apply(
            "gadgets/a",
            gadget(
                {
                    "ports": [{"name": "dns", "protocol": "UDP", "note": "n"}, {"name": "new"}],
                    "tags": ["c", "a"],
                    "env": {"B": "2"},
                    "free": {"map": {"b": 2}},
                }
            ),
            "two",
        ),
        apply("gadgets/a", gadget({"order": ["y"], "place": {"y": 2}}), "two"),
        apply("gadgets/a", gadget({"order": ["y"], "place": {"y": 2}}), "two", "force=true"),
        apply("gadgets/a", gadget({"ports": [{"name": "http"}], "tags": ["b"]}), "one"),
        apply("gadgets/a", gadget({"ports": []}), "one"),
    ],
    "order of merged list items": [
        apply("gadgets/a", gadget({"tags": ["a", "b", "c", "d"]}), "one"),
        apply("gadgets/a", gadget({"tags": ["d", "x", "b"]}), "two", show=("spec.tags",)),
        apply("gadgets/a", gadget({"tags": ["c", "a", "n"]}), "three", show=("spec.tags",)),
    ],
    "duplicate items in an applied list": [
        apply("gadgets/a", gadget({"tags": ["a", "a"]}), "one"),
        apply("gadgets/a", gadget({"ports": [{"name": "a"}, {"name": "a"}]}), "one"),
        apply("gadgets/a", gadget({"ports": [{"number": 1}]}), "one"),
    ],
    "apply of the status belongs to the subresource": [
        apply("gadgets/a", with_status({"text": "ignored"}) | {"spec": {"size": 1}}, "one"),
        apply("gadgets/a/status", with_status({"text": "t", "replicas": 1}), "one"),
        patch("gadgets/a/status", {"status": {"text": "u"}}, "fieldManager=patcher"),
        apply("gadgets/a/status", with_status({"text": "v"}), "one"),
        apply("gadgets/a", gadget({"size": 2}), "two", "force=true"),
        apply(
            "gadgets/a/status",
            with_status({"conditions": [{"type": "Ready", "status": "True"}]}),
            "one",
        ),
        apply("gadgets/b/status", with_status({"text": "t"}) | gadget(name="b"), "one"),
    ],
    "dry run of an apply stores nothing": [
        apply("gadgets/a", gadget({"size": 1}), "one", "dryRun=All"),
        get("gadgets/a"),
        apply("gadgets/a", gadget({"size": 1}), "one"),
        apply("gadgets/a", gadget({"size": 2}), "one", "dryRun=All"),
        apply("gadgets/a", gadget({"size": 2}), "two", "dryRun=All"),
        get("gadgets/a"),
    ],
    "preconditions of an apply": [
        apply("gadgets/a", gadget({"size": 1}, uid="0af5b2c4-0000-4000-8000-000000000000"), "one"),
        apply("gadgets/a", gadget({"size": 1}, resourceVersion="1"), "one"),
        apply("gadgets/a", gadget({"size": 1}, uid="0af5b2c4-0000-4000-8000-000000000000"), "one"),
        apply("gadgets/a", gadget({"size": 1}), "one", store="version"),
        apply("gadgets/a", gadget({"size": 2}, resourceVersion="{version}"), "one"),
        apply("gadgets/a", gadget({"size": 3}, resourceVersion="{version}"), "one"),
        apply("gadgets/a", gadget({"size": 3}, uid="0af5b2c4-0000-4000-8000-000000000000"), "one"),
    ],
    "invalid applies": [
        Step("PATCH", "gadgets/a", gadget({"size": 1}), patch_type="apply"),
        apply("gadgets/b", gadget({"size": 1}), "one"),
        apply("gadgets/a", gadget({"size": 1}) | {"kind": "Plain"}, "one"),
        apply("gadgets/a", gadget({"size": 1}) | {"apiVersion": f"{GROUP}/v2"}, "one"),
        apply("gadgets/a", {"metadata": {"name": "a"}}, "one"),
        apply("gadgets/a", gadget({"size": 1}, managedFields=[]), "one"),
        apply("gadgets/a", gadget({"size": "large"}), "one"),
        apply("gadgets/a", gadget({"size": 1000}), "one"),
        apply("gadgets/a", gadget({"unknown": 1}), "one"),
        apply("configmaps/a", config_map({"a": "1"}) | {"unknown": 1}, "one"),
        apply("configmaps/a", config_map({"a": 1}), "one"),
        apply("gadgets/a", gadget({"size": 1}, namespace="elsewhere"), "one"),
        patch("gadgets/a", {"spec": {"size": 1}}, "fieldManager=one&force=true"),
    ],
    "owners and finalizers merge by uid and by value": [
        apply("configmaps/a", config_map(finalizers=["test.kubewright/one"]), "one"),
        apply("configmaps/a", config_map(finalizers=["test.kubewright/two"]), "two"),
        apply(
            "configmaps/a",
            config_map(
                finalizers=["test.kubewright/one"],
                ownerReferences=[
                    {
                        "apiVersion": "v1",
                        "kind": "Secret",
                        "name": "s",
                        "uid": "0af5b2c4-0000-4000-8000-000000000000",
                    }
                ],
                labels={"a": "1"},
                annotations={"b": "2"},
            ),
            "one",
        ),
        apply("configmaps/a", config_map(), "one"),
        apply("configmaps/a", config_map(), "two"),
    ],
    "kind without a schema: lists are atomic, maps are not": [
        apply(
            "plains/a",
            gadget() | {"kind": "Plain", "any": {"list": [{"name": "x"}], "map": {"a": 1}}},
            "one",
        ),
        apply(
            "plains/a",
            gadget() | {"kind": "Plain", "any": {"list": [{"name": "y"}], "map": {"b": 1}}},
            "two",
        ),
        apply("plains/a", gadget() | {"kind": "Plain", "any": {"map": {"b": 1}}}, "two"),
        apply("plains/a", gadget() | {"kind": "Plain", "status": {"x": 1}}, "one"),
    ],
    "managers of other writes": [
        create("gadgets", gadget({"size": 1, "env": {"A": "1"}}, labels={"a": "b"})),
        replace("gadgets/a", gadget({"size": 2}, resourceVersion="0"), "fieldManager=replacer"),
        patch("gadgets/a", {"spec": {"size": 3}}, "fieldManager=patcher"),
        patch("gadgets/a", {"spec": {"size": 3}}, "fieldManager=patcher"),
        patch(
            "gadgets/a",
            [{"op": "add", "path": "/spec/tags", "value": ["x"]}],
            "fieldManager=patcher",
            "json",
        ),
        patch("gadgets/a/status", {"status": {"text": "t"}}, "fieldManager=patcher"),
        patch("gadgets/a", {"metadata": {"managedFields": []}}, "fieldManager=patcher"),
        patch("gadgets/a", {"spec": {"size": 4}}, "fieldManager=patcher"),
        apply("gadgets/a", gadget({"size": 5}), "one"),
        apply("gadgets/a", gadget({"title": "one"}), "one"),
    ],
    "managers can be removed": [
        create("configmaps", config_map({"a": "1"})),
        patch("configmaps/a", {"metadata": {"managedFields": []}}),
        patch("configmaps/a", {"data": {"b": "1"}}),
        apply("configmaps/a", config_map({"c": "1"}), "one"),
        patch("configmaps/a", {"metadata": {"managedFields": [{}]}}),
        create("gadgets", gadget({"size": 1})),
        patch("gadgets/a", {"metadata": {"managedFields": []}}),
        patch("gadgets/a", {"metadata": {"managedFields": [{}]}}),
        patch("gadgets/a", {"spec": {"size": 2}}),
        patch("gadgets/a/status", {"status": {"text": "t"}, "metadata": {"managedFields": [{}]}}),
        apply("gadgets/a", gadget({"size": 3}), "one"),
        apply("gadgets/a", gadget({"size": 3}), "one", "force=true"),
    ],
    "apply of a Deployment merges containers, environment and ports by their keys": [
        apply(
            "deployments/a",
            deployment(
                [
                    {
                        "name": "app",
                        "image": "app:1",
                        "args": ["a"],
                        "env": [{"name": "A", "value": "1"}],
                        "ports": [{"containerPort": 80}],
                    }
                ],
                replicas=2,
            ),
            "one",
            show=SHOWN,
        ),
        apply(
            "deployments/a",
            deployment(
                [
                    {"name": "sidecar", "image": "sidecar:1"},
                    {
                        "name": "app",
                        "env": [{"name": "B", "value": "2"}],
                        "ports": [{"containerPort": 80, "protocol": "UDP"}],
                    },
                ]
            ),
            "two",
            show=SHOWN,
        ),
        apply("deployments/a", deployment([{"name": "app", "image": "app:2"}]), "two"),
        apply("deployments/a", deployment([{"name": "app", "image": "app:2"}]), "one", show=SHOWN),
        patch("deployments/a", {"spec": {"replicas": 5}}, "fieldManager=scaler", show=SHOWN),
        apply(
            "deployments/a",
            deployment([{"name": "app", "image": "app:2"}], replicas=2),
            "one",
        ),
        delete("deployments/a", show=("status",)),
    ],
}
