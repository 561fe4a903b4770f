"""Which objects a controller may apply as children: those of the kinds that `owns` declares."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .errors import ConfigError
from .kind import Object
from .ownership import DesiredChild, can_have_owner_reference, complete_child
from .selection import declared_kind


class ChildKinds:
    """The kinds of the children of one controller."""

    def __init__(
        self,
        controller: str,
        kinds: Iterable[type[Object]],
        cross_namespace_kinds: Iterable[type[Object]],
        namespaces: Sequence[str] = (),
    ) -> None:
        """`namespaces` are those that the manager watches; empty for all."""
        self._controller, self.namespaces = controller, namespaces
        self.watched = {declared_kind(kind): kind for kind in kinds}
        """By the kind of a child, the kind that is watched for it, which may be a selection."""
        self.cross_namespace = set(map(declared_kind, cross_namespace_kinds))

    def complete(self, owner: Object, child: Object) -> DesiredChild:
        """The child as it is sent; raises ConfigError if it cannot be a child of the owner."""
        desired = complete_child(owner, child, self._controller)
        kind, name = desired.kind, desired.kind.__name__
        if kind not in self.watched:
            raise ConfigError(self._describe_undeclared(kind))
        watched = self.watched[kind].definition
        if watched.metadata_only or (watched.selection and watched.selection.transform):
            raise ConfigError(
                f"{name} cannot be applied with metadata_only or transform, because the cache does "
                "not hold the fields to compare"
            )
        labels = desired.manifest["metadata"]["labels"]
        if watched.selection is not None and (
            watched.selection.matches(
                labels, name=desired.key.name, namespace=desired.key.namespace
            )
            is False
        ):
            raise ConfigError(
                f"{desired} is outside of the selection that owns() declares "
                f"({watched.selection}), so it would not be found again: change its labels, name "
                "or namespace, or the selection"
            )
        can_refer = can_have_owner_reference(owner, kind, desired.key.namespace)
        if not can_refer and kind not in self.cross_namespace:
            raise ConfigError(
                f"{desired} cannot have an owner reference to the {owner.definition.name} "
                f"{owner.key}: declare self.owns({name}, cross_namespace=True), and the "
                "controller's finalizer deletes it"
            )
        if self.namespaces and desired.key.namespace not in ("", *self.namespaces):
            raise ConfigError(
                f"{desired} is in a namespace that the manager does not watch, so it would not "
                "notice changes: add the namespace to -watch-namespaces"
            )
        return desired

    def _describe_undeclared(self, kind: type[Object]) -> str:
        name, resource = kind.__name__, kind.definition.group_resource
        for other in self.watched:
            if other.definition.group_resource == resource:
                # kubewright.Secret and kubewright.api.core_v1.Secret, for example.
                return (
                    f"{kind.__module__}.{name} is not declared, but owns() has "
                    f"{other.__module__}.{other.__name__}: use one class for both"
                )
        return f"{name} is not declared: add self.owns({name}) to __init__"


def check_unique(desired: Sequence[DesiredChild]) -> None:
    for index, child in enumerate(desired):
        if any(child.identity == other.identity for other in desired[:index]):
            raise ConfigError(f"{child} is passed twice, so one would overwrite the other")
