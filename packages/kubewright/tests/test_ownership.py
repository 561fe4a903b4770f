"""How a child names its owner."""

from __future__ import annotations

import pytest

from kubewright.builtin import ConfigMap, Namespace, Node, Secret, new_owner_reference
from kubewright.errors import ConfigError
from kubewright.kind import Key, Object, ObjectMeta, kind
from kubewright.ownership import (
    CONTROLLER_LABEL,
    DIGEST_ANNOTATION,
    OWNER_UID_LABEL,
    belongs_to,
    can_have_owner_reference,
    complete_child,
    read_owner_key,
    read_owner_uids,
)

from .support.widget_kind import Widget, WidgetSpec, WidgetStatus

_OWNER = Widget(metadata=ObjectMeta(name="a", namespace="ns", uid="owner-uid"))
_CLUSTER_OWNER = Node(metadata=ObjectMeta(name="n", uid="node-uid"))


def test_owner_reference_cannot_leave_the_namespace_of_the_owner() -> None:
    assert can_have_owner_reference(_OWNER, ConfigMap, "ns")
    assert not can_have_owner_reference(_OWNER, ConfigMap, "other")
    assert not can_have_owner_reference(_OWNER, Namespace, "")
    assert can_have_owner_reference(_CLUSTER_OWNER, ConfigMap, "ns")
    assert can_have_owner_reference(_CLUSTER_OWNER, Namespace, "")


def test_fields_of_the_server_and_the_status_are_not_sent() -> None:
    child = Widget(
        metadata=ObjectMeta(
            name="c", uid="u", resourceVersion="7", generation=3, labels={"app": "x"}
        ),
        spec=WidgetSpec(size=3),
        status=WidgetStatus(doubled=6),
    )
    desired = complete_child(_OWNER, child, "widget")
    assert desired.key == Key("ns", "c")
    assert str(desired) == "Widget ns/c"
    assert desired.manifest == {
        "apiVersion": "kubewright.test/v1",
        "kind": "Widget",
        "metadata": {
            "name": "c",
            "namespace": "ns",
            "labels": {"app": "x", CONTROLLER_LABEL: "widget"},
            "annotations": {DIGEST_ANNOTATION: desired.digest},
            "ownerReferences": [
                {
                    "apiVersion": "kubewright.test/v1",
                    "kind": "Widget",
                    "name": "a",
                    "uid": "owner-uid",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {"size": 3},
    }


def test_digest_follows_the_content() -> None:
    def digest_of(**data: str) -> str:
        child = ConfigMap(metadata=ObjectMeta(name="c"), data=data)
        return complete_child(_OWNER, child, "widget").digest

    assert digest_of(a="1", b="2") == digest_of(b="2", a="1")
    assert digest_of(a="1") != digest_of(a="2")


@kind("v1", name="Secret")
class _TextSecret(Object):
    data: dict[str, bytes] = {}
    stringData: dict[str, str] = {}


def test_string_data_of_a_secret_is_sent_as_data() -> None:
    child = _TextSecret(
        metadata=ObjectMeta(name="s"), data={"a": b"x", "b": b"x"}, stringData={"b": "text"}
    )
    manifest = complete_child(_OWNER, child, "widget").manifest
    assert manifest["data"] == {"a": "eA==", "b": "dGV4dA=="}
    assert "stringData" not in manifest


def test_namespace_of_a_child() -> None:
    with pytest.raises(ConfigError, match="has no namespace"):
        complete_child(_CLUSTER_OWNER, ConfigMap(metadata=ObjectMeta(name="c")), "node")
    in_cluster = Namespace(metadata=ObjectMeta(name="c", namespace="ignored"))
    assert complete_child(_OWNER, in_cluster, "widget").key == Key("", "c")


def test_owner_is_read_from_the_reference_or_in_another_scope_from_the_label() -> None:
    near = Secret(
        metadata=ObjectMeta(name="s", namespace="ns", ownerReferences=[new_owner_reference(_OWNER)])
    )
    assert read_owner_uids(near) == ["owner-uid"]
    assert belongs_to(near, _OWNER)
    far = complete_child(_OWNER, Namespace(metadata=ObjectMeta(name="far")), "widget").manifest
    metadata = ObjectMeta(
        name="far", labels=far["metadata"]["labels"], annotations=far["metadata"]["annotations"]
    )
    assert belongs_to(Namespace(metadata=metadata), _OWNER)
    assert read_owner_key(metadata, "widget") == Key("ns", "a")
    assert read_owner_key(metadata, "gadget") is None
    assert read_owner_key(ObjectMeta(labels={CONTROLLER_LABEL: "widget"}), "widget") is None


def test_label_does_not_replace_a_reference_that_is_possible() -> None:
    labels = {OWNER_UID_LABEL: "owner-uid", CONTROLLER_LABEL: "widget"}
    near = ConfigMap(metadata=ObjectMeta(name="c", namespace="ns", labels=labels))
    assert not belongs_to(near, _OWNER)
    assert belongs_to(
        ConfigMap(metadata=ObjectMeta(name="c", namespace="other", labels=labels)), _OWNER
    )
