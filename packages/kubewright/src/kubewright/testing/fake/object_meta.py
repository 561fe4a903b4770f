"""Rules for metadata that all kinds share."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from ...patch import Json
from .failure import bad_request, conflict, field_cause, invalid
from .resource_path import ResourcePath
from .served_kind import ServedKind

# Without vowels, and without characters that resemble others, as in the API server.
_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH = 5
_MAX_LABEL_LENGTH = 63
_LABEL_VALUE = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?"
_QUALIFIED_NAME = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    f"for validation is '{_SUBDOMAIN}')"
)
_LABEL_VALUE_TEXT = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or "
    f"'12345', regex used for validation is '{_LABEL_VALUE}')"
)
_NAME_PART_TEXT = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end "
    "with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
    f"validation is '{_QUALIFIED_NAME}')"
)
_IMMUTABLE = "field is immutable"
_OWNER_FIELDS = {
    "apiVersion": "version must not be empty",
    "kind": "must not be empty",
    "name": "must not be empty",
    "uid": "must not be empty",
}


def name_new_object(kind: ServedKind, path: ResourcePath, metadata: Json) -> Json:
    """The metadata of a new object with its name and its namespace."""
    metadata = dict(metadata)
    if not metadata.get("name"):
        prefix = metadata.get("generateName")
        if not prefix:
            cause = field_cause(
                "FieldValueRequired",
                "metadata.name",
                "Required value: name or generateName is required",
            )
            raise invalid(kind.group_kind, "", [cause])
        suffix = "".join(random.choices(_SUFFIX_LETTERS, k=_SUFFIX_LENGTH))
        metadata["name"] = f"{prefix}{suffix}"
    check_namespace(path, metadata)
    if path.namespace:
        metadata["namespace"] = path.namespace
    return metadata


def check_namespace(path: ResourcePath, metadata: Json) -> None:
    if metadata.get("namespace", path.namespace) != path.namespace:
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )


def validate_metadata(kind: ServedKind, metadata: Json) -> Iterator[Json]:
    name = metadata["name"]
    # Names of RBAC objects and of kinds that nothing declares are not restricted.
    if kind.is_declared and kind.group != "rbac.authorization.k8s.io":
        if not re.fullmatch(_SUBDOMAIN, name):
            yield _invalid("metadata.name", name, _SUBDOMAIN_TEXT)
        if len(name) > 253:
            yield _invalid("metadata.name", name, "must be no more than 253 bytes")
    for field in ("labels", "annotations"):
        for key in metadata.get(field) or ():
            yield from _validate_qualified_name(f"metadata.{field}", key)
    for value in (metadata.get("labels") or {}).values():
        if len(value) > _MAX_LABEL_LENGTH:
            yield _invalid(
                "metadata.labels", value, f"must be no more than {_MAX_LABEL_LENGTH} bytes"
            )
        if not re.fullmatch(_LABEL_VALUE, value):
            yield _invalid("metadata.labels", value, _LABEL_VALUE_TEXT)
    yield from _validate_owner_references(metadata.get("ownerReferences") or ())


def _validate_qualified_name(field: str, key: str) -> Iterator[Json]:
    prefix, slash, name = key.rpartition("/")
    if slash and not re.fullmatch(_SUBDOMAIN, prefix):
        yield _invalid(field, key, f"prefix part {_SUBDOMAIN_TEXT}")
    if len(name) > _MAX_LABEL_LENGTH:
        text = f"name part must be no more than {_MAX_LABEL_LENGTH} bytes"
        yield _invalid(field, key, text)
    if not re.fullmatch(_QUALIFIED_NAME, name):
        yield _invalid(field, key, _NAME_PART_TEXT)


def _validate_owner_references(references: Any) -> Iterator[Json]:
    controller = ""
    for reference in references:
        for field, text in _OWNER_FIELDS.items():
            if not reference.get(field):
                yield _invalid(f"metadata.ownerReferences.{field}", "", text)
        if reference.get("controller"):
            name = f"{reference.get('kind')}/{reference.get('name')}"
            if controller:
                text = (
                    'Only one reference can have Controller set to true. Found "true" in '
                    f"references for {controller} and {name}"
                )
                yield _invalid("metadata.ownerReferences", references, text)
            controller = name


def validate_metadata_update(kind: ServedKind, new: Json, old: Json) -> Iterator[Json]:
    for name in ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"):
        if name in new and new[name] != old.get(name):
            yield _invalid(f"metadata.{name}", new[name], _IMMUTABLE)
    if old.get("deletionTimestamp"):
        added = [f for f in new.get("finalizers") or () if f not in (old.get("finalizers") or ())]
        if added:
            listed = ", ".join(f'"{finalizer}"' for finalizer in added)
            text = (
                "Forbidden: no new finalizers can be added if the object is being deleted, found "
                f"new finalizers []string{{{listed}}}"
            )
            yield field_cause("FieldValueForbidden", "metadata.finalizers", text)
    yield from validate_metadata(kind, new)


def check_same_name(path: ResourcePath, metadata: Json) -> None:
    name = metadata.get("name", path.name)
    if name != path.name:
        raise bad_request(
            f"the name of the object ({name}) does not match the name on the URL ({path.name})"
        )


def check_uid(kind: ServedKind, path: ResourcePath, new: Json, old: Json) -> None:
    """The precondition of a replace; other writes cannot change the uid."""
    if new.get("uid", old["uid"]) != old["uid"]:
        place = "/".join(part for part in (kind.group, kind.plural, path.namespace) if part)
        text = (
            f"StorageError: invalid object, Code: 4, Key: /registry/{place}/{path.name}, "
            "ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: "
            f"{new['uid']}, UID in object meta: {old['uid']}"
        )
        raise conflict(kind.group_resource, path.name, text)


def _invalid(field: str, value: Any, text: str) -> Json:
    shown = msgspec.json.encode(value).decode()
    return field_cause("FieldValueInvalid", field, f"Invalid value: {shown}: {text}")
