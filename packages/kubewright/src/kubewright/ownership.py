"""How a child names its owner: a controller owner reference and the label of its controller.

An owner reference cannot point from a cluster-scoped object to a namespaced owner, nor into another
namespace: the garbage collector would delete such a child. It has the label `kubewright.dev/
owner-uid` and an annotation with the owner's key instead.
"""

from __future__ import annotations

import base64

import msgspec
from msgspec import Struct

from .builtin import new_owner_reference
from .comparison import digest
from .errors import ConfigError
from .kind import Key, Object, ObjectMeta, OwnerReference
from .nulls import drop_nulls
from .patch import Json
from .selection import declared_kind

CONTROLLER_LABEL = "kubewright.dev/controller"
OWNER_UID_LABEL = "kubewright.dev/owner-uid"
OWNER_ANNOTATION = "kubewright.dev/owner"
DIGEST_ANNOTATION = "kubewright.dev/applied-digest"
"""The digest of what was applied last. After a restart it shows that no field has to be removed."""


class DesiredChild(Struct, frozen=True):
    """A child as it is sent to the API server."""

    kind: type[Object]
    """The declared kind, not a selection of it."""
    key: Key
    manifest: Json
    digest: str

    @property
    def identity(self) -> tuple[type[Object], Key]:
        return self.kind, self.key

    def __str__(self) -> str:
        return f"{self.kind.definition.name} {self.key}"


def can_have_owner_reference(owner: Object, kind: type[Object], namespace: str) -> bool:
    """Whether a child of the kind in the namespace can have an owner reference to the owner."""
    if not owner.definition.namespaced:
        return True
    return kind.definition.namespaced and namespace == owner.metadata.namespace


def complete_child(owner: Object, child: Object, controller: str) -> DesiredChild:
    """The child with its namespace, its labels, its owner and without what the server sets."""
    definition, metadata = child.definition, child.metadata
    name = f"the {definition.name} {metadata.name}".rstrip()
    if not metadata.name or metadata.generateName:
        raise ConfigError(
            f"{name} has no fixed name: a child needs metadata.name, not generateName, so that the "
            "next reconcile finds it"
        )
    namespace = metadata.namespace or owner.metadata.namespace if definition.namespaced else ""
    if definition.namespaced and not namespace:
        raise ConfigError(f"{name} has no namespace, and neither has its cluster-scoped owner")
    labels, annotations = {CONTROLLER_LABEL: controller}, {}
    references = list(metadata.ownerReferences)
    if can_have_owner_reference(owner, type(child), namespace):
        references.append(new_owner_reference(owner))
    else:
        labels[OWNER_UID_LABEL] = owner.metadata.uid
        annotations[OWNER_ANNOTATION] = str(owner.key)
    manifest = child.encode()
    manifest.pop("status", None)
    sent_metadata = {
        "name": metadata.name,
        "namespace": namespace or None,
        "labels": metadata.labels | labels,
        "annotations": metadata.annotations | annotations,
        "finalizers": metadata.finalizers or None,
        "ownerReferences": msgspec.to_builtins(references) or None,
    }
    manifest["metadata"] = drop_nulls(sent_metadata)
    if manifest["kind"] == "Secret" and manifest["apiVersion"] == "v1":
        _move_string_data(manifest)
    content_digest = digest(manifest)
    manifest["metadata"]["annotations"][DIGEST_ANNOTATION] = content_digest
    return DesiredChild(
        declared_kind(type(child)), Key(namespace, metadata.name), manifest, content_digest
    )


def _move_string_data(secret: Json) -> None:
    # The server stores stringData in data, so the stored Secret would never have what was sent.
    texts: dict[str, str] = secret.pop("stringData", {})
    encoded = {name: base64.b64encode(text.encode()).decode() for name, text in texts.items()}
    if encoded:
        secret["data"] = secret.get("data", {}) | encoded


def controller_of(obj: Object) -> OwnerReference | None:
    """The owner reference with controller=true; the API server admits one."""
    return next((owner for owner in obj.metadata.ownerReferences if owner.controller), None)


def read_owner_uids(obj: Object) -> list[str]:
    """The uids of the owners of a child, by reference or by label: the values of an index."""
    reference = controller_of(obj)
    by_label = obj.metadata.labels.get(OWNER_UID_LABEL)
    return [uid for uid in (reference.uid if reference else None, by_label) if uid]


def read_owner_key(metadata: ObjectMeta, controller: str) -> Key | None:
    """The key of an owner in another scope, if the object is a child of the controller."""
    if metadata.labels.get(CONTROLLER_LABEL) != controller:
        return None
    namespace, _, name = metadata.annotations.get(OWNER_ANNOTATION, "").rpartition("/")
    return Key(namespace, name) if name else None


def belongs_to(obj: Object, owner: Object) -> bool:
    """Whether the owner controls the object: by reference, or by label where it cannot have one."""
    if can_have_owner_reference(owner, type(obj), obj.metadata.namespace):
        reference = controller_of(obj)
        return reference is not None and reference.uid == owner.metadata.uid
    return obj.metadata.labels.get(OWNER_UID_LABEL) == owner.metadata.uid
