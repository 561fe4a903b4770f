"""Conversion: decodes a ConversionReview, converts its objects, and encodes the response.

Questions and answers:

What happens to metadata?  It stays as it is, except for labels and annotations that a conversion
    changes.
And to fields that the class does not know?  They stay.
And to a field that the other version does not have?  It is preserved. After each conversion the
    object is converted back and compared. Differences go into the annotation
    `<group>/kept-from-<version>`: the path, the value after the round trip, and the original value.
    If only v2 has `spec.color`, a v2 object with the color red has in v1 the annotation
    `example.com/kept-from-v2: [[["spec", "color"], null, "red"]]`, and is red again in v2.
What if the object is changed in the meantime, in the version without the field?  An original value
    is restored only if the value is still that of the round trip, and if the object then converts
    to the same object as before. Otherwise the change wins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final, Literal, NamedTuple

import msgspec
from msgspec import Raw, Struct

from ..definition import KindDefinition
from ..errors import ConfigError, KubewrightError, redact
from ..kind import Object, ObjectMeta
from ..log import Log
from ..patch import Json
from ..schema import struct_fields, unwrap_annotation
from .admission import BadReview
from .types import Conversion

CONVERSION_PATH = "/convert"
# One review holds a page of a list, and a response of the API server may be as large.
_MAX_REVIEW_BYTES = 64 * 1024 * 1024
# Converting blocks the event loop: other tasks run after this many objects.
_OBJECTS_PER_YIELD = 50
# The limit of the API server for keys and values together.
_MAX_ANNOTATIONS_BYTES = 256 * 1024
# Differences that are restored one by one if they do not fit together; each costs a conversion.
_MAX_SEPARATE_RESTORES = 32
_ENVELOPE_FIELDS = ("apiVersion", "kind", "metadata")
# Kubernetes drops null from objects, so null has no other meaning.
_ABSENT: Final = None

_ConvertFunction = Callable[[Any], Object]


class ConversionRequest(Struct):
    uid: str
    desiredAPIVersion: str
    objects: list[Raw]


class ConversionReview(Struct):
    apiVersion: Literal["apiextensions.k8s.io/v1"]
    kind: Literal["ConversionReview"]
    request: ConversionRequest


class _TypeMeta(Struct):
    apiVersion: str
    kind: str


class _NameMetadata(Struct):
    name: str = ""
    namespace: str = ""


class _NamedObject(Struct):
    """An object of which only the name is decoded."""

    metadata: _NameMetadata


class _Difference(NamedTuple):
    """A path at which two objects have different values. Lists are compared as a whole."""

    path: list[str]
    # Of a preserved field: the value after the round trip.
    first_value: Any
    # Of a preserved field: the original value.
    second_value: Any


class _KindVersions:
    """All versions of one kind: the hub, and a conversion for each other one."""

    def __init__(self, hub: type[Object]) -> None:
        self._hub = hub
        self._conversions: dict[str, Conversion[Any, Any]] = {}

    def add(self, conversion: Conversion[Any, Any]) -> None:
        spoke = conversion.spoke.definition
        if conversion.hub is not self._hub:
            raise ConfigError(
                f"{spoke.name} has two hubs, {self._hub.__name__} and {conversion.hub.__name__}; "
                "all versions must have the same hub"
            )
        if spoke.api_version in self._conversions:
            raise ConfigError(
                f"there are two conversions for {spoke.api_version} {spoke.name}; "
                "a version has one conversion"
            )
        self._conversions[spoke.api_version] = conversion

    def convert(self, obj: Json, desired_version: str) -> Json:
        """Convert an object to the hub, and from the hub to the desired version."""
        hub_version = self._hub.definition.api_version
        if obj["apiVersion"] != hub_version:
            obj = _convert_preserving(obj, self._find_conversion(obj["apiVersion"]), to_hub=True)
        if desired_version != hub_version:
            obj = _convert_preserving(obj, self._find_conversion(desired_version), to_hub=False)
        return obj

    def _find_conversion(self, api_version: str) -> Conversion[Any, Any]:
        if api_version not in self._conversions:
            raise BadReview(
                f"{self._hub.definition.name} has no conversion from or to {api_version}: "
                "add a Conversion"
            )
        return self._conversions[api_version]


class ConversionHandler:
    """All conversions of a manager, at /convert."""

    path = CONVERSION_PATH
    max_body_bytes = _MAX_REVIEW_BYTES
    # kube-apiserver has no setting for a client certificate of conversions. They compute their
    # response from the request alone, so that a stranger gets no new information.
    authenticates_clients = False

    def __init__(self, conversions: Iterable[Conversion[Any, Any]]) -> None:
        self._log = Log("conversion")
        self._kinds: dict[tuple[str, str], _KindVersions] = {}
        for conversion in conversions:
            hub = conversion.hub.definition
            versions = self._kinds.setdefault((hub.group, hub.name), _KindVersions(conversion.hub))
            versions.add(conversion)

    async def handle(self, body: bytes) -> bytes:
        """Convert all objects, or none: the API server accepts no partial list."""
        request = _decode_request(body)
        converted: list[Json] = []
        result: Json = {"status": "Success"}
        try:
            for number, raw in enumerate(request.objects):
                if number % _OBJECTS_PER_YIELD == _OBJECTS_PER_YIELD - 1:
                    await asyncio.sleep(0)
                converted.append(self._convert(raw, request.desiredAPIVersion))
        except (Exception, SystemExit) as error:
            message = str(error)
            if not isinstance(error, KubewrightError):
                message = f"{type(error).__name__}: {error}"
            name = _describe_object(request.objects[len(converted)])
            self._log.error(
                "a conversion failed", error=error, object=name, wanted=request.desiredAPIVersion
            )
            result = {"status": "Failure", "message": redact(f"{name}: {message}")}
            converted = []
        response = {"uid": request.uid, "result": result, "convertedObjects": converted}
        return msgspec.json.encode(
            {
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "ConversionReview",
                "response": response,
            }
        )

    def _convert(self, raw: Raw, desired_version: str) -> Json:
        obj: Json = msgspec.json.decode(raw, type=dict[str, Any])
        type_meta = msgspec.convert(obj, _TypeMeta)
        group, kind = type_meta.apiVersion.rpartition("/")[0], type_meta.kind
        if (group, kind) not in self._kinds:
            raise BadReview(f"{type_meta.apiVersion} {kind} has no conversion: add a Conversion")
        return self._kinds[group, kind].convert(obj, desired_version)


def _describe_object(raw: Raw) -> str:
    # One object fails the whole page, so the message must name it, even if it is malformed.
    try:
        key = msgspec.json.decode(raw, type=_NamedObject).metadata
    except (msgspec.DecodeError, RecursionError):
        return "an object without a name"
    return f"{key.namespace}/{key.name}" if key.namespace else key.name


def _decode_request(body: bytes) -> ConversionRequest:
    try:
        review = msgspec.json.decode(body, type=ConversionReview)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise BadReview(f"invalid ConversionReview of apiextensions.k8s.io/v1: {error}") from error
    return review.request


def _convert_preserving(obj: Json, conversion: Conversion[Any, Any], *, to_hub: bool) -> Json:
    """Convert, restore what was preserved for the target, and preserve what it lacks."""
    source, target = conversion.spoke, conversion.hub
    convert: _ConvertFunction = conversion.to_hub
    convert_back: _ConvertFunction = conversion.from_hub
    if not to_hub:
        source, target, convert, convert_back = target, source, convert_back, convert
    converted = _convert_once(obj, source, target, convert)
    if not conversion.preserve_lost_fields:
        return converted
    converted = _restore_preserved(converted, target, convert_back)
    round_trip = _convert_once(converted, target, source, convert_back)
    differences = _find_differences(_without_envelope(round_trip), _without_envelope(obj))
    if not differences:
        return converted
    preserved = msgspec.json.encode([list(difference) for difference in differences]).decode()
    annotations = dict(converted["metadata"].get("annotations") or {})
    annotations[_preserved_annotation_key(source.definition)] = preserved
    # Checked here, because the error of the API server would not name the object.
    size = sum(len(text.encode()) for item in annotations.items() for text in item)
    if size > _MAX_ANNOTATIONS_BYTES:
        old, new = source.definition.version, target.definition.version
        raise BadReview(
            f"the fields that {new} does not have are larger than an annotation may be "
            f"({_MAX_ANNOTATIONS_BYTES} bytes): make the object smaller in {old}, "
            f"or limit those fields in the schema of {old}"
        )
    return _with_annotations(converted, annotations)


def _convert_once(
    obj: Json, source: type[Object], target: type[Object], convert: _ConvertFunction
) -> Json:
    """Call the operator's conversion, and copy metadata and unknown fields."""
    typed = source.decode(msgspec.json.encode(obj))
    converted = convert(typed)
    if not isinstance(converted, target):
        raise TypeError(
            f"a conversion to {target.definition.api_version} returned a "
            f"{type(converted).__name__}, not a {target.__name__}"
        )
    unknown = _without_envelope(_select_unknown_fields(obj, source))
    # A spec or status that is empty, and was absent before, stays absent.
    empty: Json = {}
    with suppress(TypeError):  # a field of the spec or status is required
        empty = target().encode()
    body = {
        name: value
        for name, value in _without_envelope(converted.encode()).items()
        if name in obj or value != empty.get(name)
    }
    for path, _, value in _find_differences({}, unknown):
        if _get_at_path(body, path) is _ABSENT:
            body = _set_at_path(body, path, value)
    metadata = dict(obj["metadata"])
    # A conversion that returns no metadata keeps the labels and annotations.
    if converted.metadata.key == typed.metadata.key and converted.metadata != ObjectMeta():
        for name in ("labels", "annotations"):
            if getattr(converted.metadata, name) != getattr(typed.metadata, name):
                metadata[name] = getattr(converted.metadata, name)
    definition = target.definition
    envelope = {"apiVersion": definition.api_version, "kind": definition.name, "metadata": metadata}
    return envelope | body


def _restore_preserved(obj: Json, target: type[Object], convert_back: _ConvertFunction) -> Json:
    """Restore the values of the target's annotation that nothing has changed since, and remove it.

    Any client can write annotations, and one that makes an object invalid would break every list.
    So the restored object must convert back to the same object as before. All values are tried
    together, then one by one.
    """
    annotations = dict(obj["metadata"].get("annotations") or {})
    text = annotations.pop(_preserved_annotation_key(target.definition), None)
    if text is None:
        return obj
    differences = _parse_preserved(text)
    restored = _with_annotations(obj, annotations)
    expected = convert_back(target.decode(msgspec.json.encode(restored)))
    for attempt in (differences, *([item] for item in differences[:_MAX_SEPARATE_RESTORES])):
        # Any exception: the annotation may hold values that the conversion does not expect.
        with suppress(Exception):
            candidate = restored
            for path, round_trip_value, original in attempt:
                if _get_at_path(candidate, path) == round_trip_value:
                    candidate = _set_at_path(candidate, path, original)
            decoded = target.decode(msgspec.json.encode(candidate))
            if candidate != restored and convert_back(decoded) == expected:
                restored = candidate
    return restored


def _parse_preserved(text: str) -> list[_Difference]:
    """The differences in an annotation; none if another client wrote something else into it."""
    try:
        items = msgspec.json.decode(text, type=list[tuple[list[str], Any, Any]])
    except (msgspec.DecodeError, RecursionError):
        return []
    return [_Difference(*item) for item in items if item[0] and item[0][0] not in _ENVELOPE_FIELDS]


def _preserved_annotation_key(definition: KindDefinition) -> str:
    return f"{definition.group}/kept-from-{definition.version}"


def _with_annotations(obj: Json, annotations: dict[str, str]) -> Json:
    metadata = {name: value for name, value in obj["metadata"].items() if name != "annotations"}
    return obj | {"metadata": metadata | ({"annotations": annotations} if annotations else {})}


def _without_envelope(obj: Json) -> Json:
    return {name: value for name, value in obj.items() if name not in _ENVELOPE_FIELDS}


def _find_differences(first: Json, second: Json, path: tuple[str, ...] = ()) -> list[_Difference]:
    differences: list[_Difference] = []
    for name in {**first, **second}:
        first_value, second_value = first.get(name, _ABSENT), second.get(name, _ABSENT)
        # An absent value is compared as an empty object, so that its fields become paths.
        a, b = ({} if value is _ABSENT else value for value in (first_value, second_value))
        if isinstance(a, dict) and isinstance(b, dict) and (a or b):
            differences += _find_differences(a, b, (*path, name))
        elif first_value != second_value:
            differences.append(_Difference([*path, name], first_value, second_value))
    return differences


def _get_at_path(obj: Json, path: list[str]) -> Any:
    value: Any = obj
    for name in path:
        if not isinstance(value, dict):
            return _ABSENT
        value = value.get(name, _ABSENT)
    return value


def _set_at_path(obj: Json, path: list[str], value: Any) -> Json:
    """A copy with this value; _ABSENT removes it. Unchanged if a parent is not an object."""
    name, *rest = path
    if not rest:
        others = {key: item for key, item in obj.items() if key != name}
        return others if value is _ABSENT else others | {name: value}
    inner = obj.get(name, {})
    return obj | {name: _set_at_path(inner, rest, value)} if isinstance(inner, dict) else obj


def _select_unknown_fields(obj: Json, struct: type[Struct]) -> Json:
    """The fields that the class does not have. Lists are not searched: they change as a whole."""
    fields = struct_fields(struct)
    unknown: Json = {}
    for name, value in obj.items():
        if name not in fields:
            unknown[name] = value
        elif isinstance(value, dict):
            bare, _ = unwrap_annotation(fields[name][0], name)
            is_struct = isinstance(bare, type) and issubclass(bare, Struct)
            inner = _select_unknown_fields(value, bare) if is_struct else {}
            if inner:
                unknown[name] = inner
    return unknown
