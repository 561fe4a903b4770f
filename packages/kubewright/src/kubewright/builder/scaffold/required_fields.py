"""Fields that a user has to set in a child for which there is no template of its own."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import NODEFAULT

from ...schema import struct_fields
from .external_kinds import ExternalKind

# The kinds of Kubernetes that the API server accepts with metadata alone. Its own checks require
# fields of the others that are optional in their types.
_VALID_WITH_METADATA_ALONE = frozenset(
    [
        *("Endpoints", "LimitRange", "Namespace", "ResourceQuota", "Lease", "NetworkPolicy"),
        *("PodDisruptionBudget", "ClusterRole", "Role", "PriorityClass"),
    ]
)


@dataclass(frozen=True)
class MissingFields:
    """What has to be set before the API server accepts the child."""

    child: str
    fields: tuple[str, ...]
    """Empty if only the API server knows them."""
    can_be_built: bool
    """Whether Python accepts an object without them."""

    def __str__(self) -> str:
        return " and ".join(self.fields) or "the fields that the API server requires"

    @property
    def function(self) -> str:
        return f"build_{self.child.lower()}"


def find_missing_fields(kind: ExternalKind) -> MissingFields | None:
    """What a child with metadata alone lacks; None if it lacks nothing."""
    type_ = kind.definition.type
    top_level = tuple(
        name for name, (_, default) in struct_fields(type_).items() if default is NODEFAULT
    )
    spec_type = getattr(type_, "spec_type", None)
    spec_fields = () if spec_type is None else struct_fields(spec_type).items()
    fields = tuple(f"spec.{name}" for name, (_, default) in spec_fields if default is NODEFAULT)
    # A required spec is named by its fields.
    fields = (*(name for name in top_level if name != "spec" or not fields), *fields)
    is_complete = not kind.is_builtin or kind.name in _VALID_WITH_METADATA_ALONE
    if is_complete and not fields:
        return None
    return MissingFields(kind.name, fields, can_be_built=not top_level)
