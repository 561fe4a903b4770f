"""Get, list and watch: pages, selectors, metadata only, and the events of a watch."""

from __future__ import annotations

from .scenarios_apply import config_map, gadget
from .scenarios_write import pod
from .transcript import GROUP, Step, create, delete, get, patch, watch

NAMES = ("kind", "apiVersion", "items.0.metadata.name", "items.1.metadata.name", "items.2")
PARTIAL = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
WATCH_LIST = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"


def label(selector: str, *names: str) -> Step:
    return get("configmaps", f"labelSelector={selector}", show=NAMES)


LABELLED = [
    create("configmaps", config_map(name="a", labels={"x": "1", "y": "1"}), show=("kind",)),
    create("configmaps", config_map(name="b", labels={"x": "2"}), show=("kind",)),
]
GADGETS = [
    create("gadgets", gadget({"size": 1, "title": "one"}, "a", labels={"x": "1"}), show=("kind",)),
    create("gadgets", gadget({"size": 2, "title": "two"}, "b"), show=("kind",)),
]

SCENARIOS: dict[str, list[Step]] = {
    "label selectors": [
        *LABELLED,
        label("x%3D1"),
        label("x%3D%3D1"),
        label("x!%3D1,x"),
        label("x"),
        label("!y,x"),
        label("x+in+(1,2)"),
        label("x+in+(2),x"),
        label("x,x+notin+(1)"),
        label("x%3D1,y%3D1"),
    ],
    "field selectors": [
        *GADGETS,
        get("gadgets", "fieldSelector=metadata.name%3Db", show=NAMES),
        get("gadgets", "fieldSelector=metadata.name!%3Db", show=NAMES),
        get("gadgets", "fieldSelector=spec.title%3Done", show=NAMES),
        get("gadgets", "fieldSelector=spec.size%3D2,metadata.namespace%3D{namespace}", show=NAMES),
        get("gadgets", "fieldSelector=spec.mode%3Dfast"),
        create("pods", pod(), show=("kind",)),
        create("pods", pod("b", nodeName="n"), show=("kind",)),
        get("pods", "fieldSelector=spec.nodeName%3Dn", show=NAMES),
        get("pods", "fieldSelector=status.phase%3DPending,spec.nodeName%3D", show=NAMES),
        get("pods", "fieldSelector=spec.unknown%3Dx"),
        get("configmaps", "fieldSelector=data.a%3Dx"),
        delete("pods/b", {"gracePeriodSeconds": 0}, show=("kind",)),
    ],
    "lists and pages": [
        *GADGETS,
        get("gadgets"),
        get("gadgets", "limit=1", show=(*NAMES, "metadata")),
        get("gadgets", "limit=1&labelSelector=x%3D1", show=(*NAMES, "metadata")),
        get(f"/apis/{GROUP}/v1/gadgets", "labelSelector=x%3Dnone", show=("kind", "items")),
        get("configmaps", "labelSelector=x%3Dnone", show=("kind", "items")),
    ],
    "metadata only": [
        *GADGETS,
        get("gadgets/a", accept=PARTIAL),
        get("gadgets", accept=PARTIAL_LIST, show=("kind", "apiVersion", "items.0", "items.1.spec")),
        watch("gadgets", WATCH_LIST, accept=PARTIAL),
    ],
    "watch from a version": [
        create("gadgets", gadget({"size": 1}), store="version"),
        patch("gadgets/a", {"spec": {"size": 2}}, show=("kind",)),
        patch("gadgets/a/status", {"status": {"text": "t"}}, show=("kind",)),
        create("gadgets", gadget({"size": 1}, "b"), show=("kind",)),
        delete("gadgets/b", show=("kind",)),
        watch("gadgets", "resourceVersion={version}"),
        watch("gadgets", "resourceVersion={version}&fieldSelector=metadata.name%3Db"),
    ],
    "watch without a version begins with the objects": [
        *GADGETS,
        watch("gadgets"),
        watch("gadgets", "resourceVersion=0&labelSelector=x%3D1"),
    ],
    "object that ceases to match a selector is deleted for its watch": [
        create("gadgets", gadget({"size": 1}, labels={"x": "1"}), store="version"),
        patch("gadgets/a", {"metadata": {"labels": {"x": "2"}}}, show=("kind",)),
        patch("gadgets/a", {"spec": {"size": 2}}, show=("kind",)),
        patch("gadgets/a", {"metadata": {"labels": {"x": "1"}}}, show=("kind",)),
        patch("gadgets/a", {"spec": {"size": 3}}, show=("kind",)),
        delete("gadgets/a", show=("kind",)),
        watch("gadgets", "resourceVersion={version}&labelSelector=x%3D1"),
    ],
    "watch with initial events ends them with a bookmark": [
        *GADGETS,
        watch("gadgets", WATCH_LIST),
        watch("gadgets", f"{WATCH_LIST}&labelSelector=x%3D1"),
        watch("configmaps", f"{WATCH_LIST}&labelSelector=x%3Dnone"),
        watch("gadgets", "sendInitialEvents=true&resourceVersionMatch=NotOlderThan"),
        watch("gadgets", "sendInitialEvents=true&allowWatchBookmarks=true"),
        watch("gadgets", "resourceVersionMatch=NotOlderThan"),
    ],
}
