"""A declared kind: its names in the API, and what its CRD has in addition to the schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from .decoding import build_decoder
from .errors import SchemaError
from .markers import Column, Scale
from .selectors import Selection

if TYPE_CHECKING:
    from .kind import Object


@dataclass(frozen=True)
class KindDefinition:
    """The arguments of `@kind` and the decoder of the class; stored as `<class>.definition`.

    An external kind is declared elsewhere, by Kubernetes or by another operator: its CRD and its
    status are not ours to write.
    """

    type: type[Object]
    group: str
    version: str
    name: str
    plural: str
    singular: str
    list_kind: str
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    namespaced: bool = True
    columns: tuple[Column, ...] = ()
    selectable_fields: tuple[str, ...] = ()
    scale: Scale | None = None
    status_subresource: bool | None = None
    conversion: Mapping[str, Any] | None = None
    served: bool = True
    storage: bool = True
    deprecated: bool = False
    deprecation_warning: str = ""
    metadata_only: bool = False
    external: bool = False
    require_spec: bool | None = None
    selection: Selection | None = None

    @cached_property
    def decoder(self) -> msgspec.json.Decoder[Any]:
        return build_decoder(self.type)

    @property
    def can_replace_status(self) -> bool:
        """Whether an object of the class has all that a first status replaces.

        The class of an external kind may declare less than its CRD, and a transform may drop more.
        Next to spec and status, a default that is not encoded would lose its owner in
        managedFields: for those two and the metadata, this subresource keeps the owners.
        """
        is_partial = self.external or self.metadata_only
        if self.selection is not None and self.selection.transform is not None:
            is_partial = True
        fields = set(self.type.__struct_fields__)
        return not is_partial and fields == {"metadata", "spec", "status"}

    def check_columns(self) -> None:
        """Raise if two columns have one name: the API server accepts it, and kubectl shows both."""
        # The columns of another project's kind are as they are.
        names = [] if self.external else [column.name.upper() for column in self.columns]
        # kubectl prints names in capitals, so their case makes no difference.
        repeated = next((name for name in names if names.count(name) > 1), None)
        if repeated is not None:
            raise SchemaError(
                f"{self.type.__name__} column {repeated.capitalize()}",
                "two columns have this name; rename or remove one. Ready, Reason and Age are "
                "added for every kind with a Status",
            )

    @property
    def api_version(self) -> str:
        """`group/version`, or just the version in the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def group_resource(self) -> str:
        """`plural.group`, the name of the resource in RBAC, in kubectl and of the CRD."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The path in the API of a collection, an object or a subresource."""
        prefix = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        scope = f"namespaces/{namespace}" if namespace and self.namespaced else ""
        return "/".join(part for part in (prefix, scope, self.plural, name, subresource) if part)
