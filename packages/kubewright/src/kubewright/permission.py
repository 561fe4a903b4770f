"""What a part of the manager may do: the input of the generated roles (`rbac.py`)."""

from __future__ import annotations

from msgspec import Struct

from .kind import Object


class Permission(Struct, frozen=True):
    """A permission for the generated role, beyond those that follow from the watches."""

    kind: type[Object]
    verbs: tuple[str, ...]
    subresource: str = ""
    resource_names: tuple[str, ...] = ()
    """Only objects with these names; empty for all objects of the kind."""


class HasPermissions:
    """A part of the manager that declares what it does through the client."""

    permissions: list[Permission]

    def needs(
        self,
        kind: type[Object],
        *verbs: str,
        subresource: str = "",
        resource_names: tuple[str, ...] = (),
    ) -> None:
        """Declare a permission for the generated role. RBAC cannot limit `create` to names."""
        self.permissions.append(Permission(kind, verbs, subresource, resource_names))
