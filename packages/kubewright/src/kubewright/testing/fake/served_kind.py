"""What the fake knows about each kind: from the built-in kinds of Kubernetes, and from CRDs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from ...patch import Json
from .cel_rules import find_rule_errors, has_rules
from .field_set import Path
from .resource_path import ResourcePath
from .schema_node import ANY, SchemaNode, complete_resource_schema

_ALL_VERBS = frozenset(
    ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
)
# The built-in kinds that count their specs; of the others, metadata.generation is absent.
_KINDS_WITH_GENERATION = frozenset(
    (
        "CronJob",
        "CustomResourceDefinition",
        "DaemonSet",
        "Deployment",
        "DeviceClass",
        "DeviceTaintRule",
        "EndpointSlice",
        "FlowSchema",
        "Ingress",
        "IngressClass",
        "Job",
        "MutatingAdmissionPolicy",
        "MutatingAdmissionPolicyBinding",
        "MutatingWebhookConfiguration",
        "NetworkPolicy",
        "Pod",
        "PodDisruptionBudget",
        "PodTemplate",
        "PriorityClass",
        "PriorityLevelConfiguration",
        "ReplicaSet",
        "ReplicationController",
        "ResourceSlice",
        "StatefulSet",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "ValidatingWebhookConfiguration",
    )
)


@dataclass(frozen=True)
class ServedKind:
    """One version of a kind, as the API server serves it."""

    group: str
    version: str
    plural: str
    name: str
    """"" for a kind that was never declared, until an object of it is created."""
    node: SchemaNode = ANY
    namespaced: bool = True
    has_generation: bool = True
    subresources: frozenset[str] = frozenset(("status",))
    verbs: frozenset[str] = _ALL_VERBS
    is_custom: bool = False
    """Whether it has a CRD: then objects are pruned, get defaults and are validated."""
    is_declared: bool = True
    storage_version: str = ""
    has_rules: bool = False
    """Whether its CRD has validation rules in CEL."""
    scale: Json = field(default_factory=dict)
    selectable_fields: tuple[str, ...] = ()

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def group_resource(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def group_kind(self) -> str:
        return f"{self.name}.{self.group}" if self.group else self.name

    @property
    def has_status(self) -> bool:
        """Whether the status is written through its subresource only."""
        return "status" in self.subresources

    def reset_fields(self, subresource: str) -> tuple[Path, ...]:
        """What a write to this endpoint ignores."""
        if subresource == "status":
            return (("f:metadata",), ("f:spec",))
        return (("f:status",),) if self.has_status else ()


class KindRegistry:
    """The kinds of one FakeApi."""

    def __init__(self) -> None:
        # Now, because reading a file later would block the event loop.
        _load_builtin_kinds()
        self._custom: dict[tuple[str, str, str], ServedKind] = {}
        self._undeclared: dict[tuple[str, str, str], ServedKind] = {}

    def find(self, path: ResourcePath) -> ServedKind:
        """The kind of the path; one that nothing declares accepts every object."""
        key = (path.group, path.version, path.plural)
        kind = self._custom.get(key) or _builtin_kind(*key) or self._undeclared.get(key)
        if kind is None:
            kind = self._undeclared[key] = ServedKind(*key, name="", is_declared=False)
        return kind

    def remember_name(self, kind: ServedKind, name: str) -> None:
        """Remember the name of a kind that nothing declares, from its first object."""
        if not kind.is_declared and name and not kind.name:
            key = (kind.group, kind.version, kind.plural)
            self._undeclared[key] = ServedKind(*key, name=name, is_declared=False)

    def add_crd(self, crd: Json) -> None:
        self.remove_crd(crd)
        for kind in _read_crd(crd):
            self._custom[kind.group, kind.version, kind.plural] = kind

    def remove_crd(self, crd: Json) -> None:
        group, plural = crd["spec"]["group"], crd["spec"]["names"]["plural"]
        for key in [key for key in self._custom if key[0] == group and key[2] == plural]:
            del self._custom[key]

    def list_served(self, group: str, version: str) -> list[ServedKind]:
        """The declared kinds of a group and version, for discovery."""
        builtin = (
            _builtin_kind(*name.split("/"))
            for name in _load_builtin_kinds().resources
            if name.startswith(f"{group}/{version}/")
        )
        custom = (kind for key, kind in self._custom.items() if key[:2] == (group, version))
        return [*(kind for kind in builtin if kind is not None), *custom]


def check_crd(crd: Json) -> Iterator[Json]:
    """The causes for which the API server would reject the CRD: rules that cannot be compiled."""
    for index, version in enumerate(crd["spec"]["versions"]):
        schema = version.get("schema", {}).get("openAPIV3Schema")
        if schema:
            # With one version the API server reports the place that v1beta1 had.
            versions = crd["spec"]["versions"]
            path = "validation" if len(versions) == 1 else f"versions[{index}].schema"
            path = f"spec.{path}.openAPIV3Schema"
            node = SchemaNode(schema, _load_builtin_kinds().definitions)
            yield from find_rule_errors(node, path)


def _read_crd(crd: Json) -> Iterator[ServedKind]:
    spec = crd["spec"]
    storage = next(version["name"] for version in spec["versions"] if version["storage"])
    for version in spec["versions"]:
        if not version["served"]:
            continue
        subresources = version.get("subresources", {})
        schema = version.get("schema", {}).get("openAPIV3Schema")
        node = complete_resource_schema(schema, _load_builtin_kinds().definitions)
        yield ServedKind(
            group=spec["group"],
            version=version["name"],
            plural=spec["names"]["plural"],
            name=spec["names"]["kind"],
            node=node,
            namespaced=spec.get("scope", "Namespaced") == "Namespaced",
            subresources=frozenset(subresources),
            is_custom=True,
            storage_version=storage,
            has_rules=has_rules(node),
            scale=subresources.get("scale", {}),
            selectable_fields=tuple(f["jsonPath"] for f in version.get("selectableFields", ())),
        )


class _BuiltinKinds(msgspec.Struct):
    version: str
    resources: dict[str, dict[str, Any]]
    definitions: dict[str, Json]


@cache
def _load_builtin_kinds() -> _BuiltinKinds:
    """The kinds of the pinned Kubernetes; `make generate` writes the file."""
    content = (files(__package__) / "builtin_kinds.json").read_bytes()
    return msgspec.json.decode(content, type=_BuiltinKinds)


@cache
def _builtin_kind(group: str, version: str, plural: str) -> ServedKind | None:
    builtin = _load_builtin_kinds()
    entry = builtin.resources.get(f"{group}/{version}/{plural}")
    if entry is None:
        return None
    return ServedKind(
        group,
        version,
        plural,
        name=entry["kind"],
        node=SchemaNode({"$ref": entry["schema"]}, builtin.definitions) if entry["schema"] else ANY,
        namespaced=entry["namespaced"],
        has_generation=entry["kind"] in _KINDS_WITH_GENERATION,
        subresources=frozenset(entry["subresources"]),
        verbs=frozenset(entry["verbs"]),
    )
