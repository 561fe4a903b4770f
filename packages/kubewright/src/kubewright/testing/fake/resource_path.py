"""The path of a request as its parts."""

from __future__ import annotations

from dataclasses import dataclass, replace

_NAMESPACE_SUBRESOURCES = ("status", "finalize")


@dataclass(frozen=True)
class ResourcePath:
    """A collection, an object or a subresource; the namespace of a cluster-scoped object is ""."""

    group: str
    version: str
    plural: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    storage_version: str = ""
    """The version in which objects of the kind are stored, if it is another one."""

    @property
    def collection(self) -> str:
        """The path of the collection, in the storage version."""
        version = self.storage_version or self.version
        prefix = f"/apis/{self.group}/{version}" if self.group else f"/api/{version}"
        scope = f"/namespaces/{self.namespace}" if self.namespace else ""
        return f"{prefix}{scope}/{self.plural}"

    @property
    def key(self) -> str:
        """The path of the object, which is its key in `FakeApi.objects`."""
        return f"{self.collection}/{self.name}"

    def of_object(self) -> ResourcePath:
        return replace(self, subresource="")

    def item(self, name: str) -> ResourcePath:
        return replace(self, name=name)


def parse_path(path: str) -> ResourcePath | None:
    """None for a path that is not a resource, such as /version or a discovery document."""
    parts = path.strip("/").split("/")
    if parts[0] == "api":
        group, rest = "", parts[1:]
    elif parts[0] == "apis" and len(parts) > 1:
        group, rest = parts[1], parts[2:]
    else:
        return None
    if len(rest) < 2:
        return None
    version, rest = rest[0], rest[1:]
    namespace = ""
    is_namespaced = len(rest) > 2 and rest[0] == "namespaces"
    if is_namespaced and not (len(rest) == 3 and rest[2] in _NAMESPACE_SUBRESOURCES):
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource = (*rest, "", "")[:3]
    if len(rest) > 3:
        subresource = "/".join(rest[2:])
    return ResourcePath(group, version, plural, namespace, name, subresource)


def is_in_collection(key: str, path: str) -> bool:
    """Whether the object is in the collection, which may span all namespaces."""
    folder, _, _ = key.rpartition("/")
    if folder == path:
        return True
    prefix, _, plural = path.rpartition("/")
    return (
        folder.startswith(f"{prefix}/namespaces/")
        and folder.endswith(f"/{plural}")
        and "/namespaces/" not in path
    )
