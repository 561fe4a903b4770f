"""A ConversionReview in, a ConversionReview out. Nothing is lost on the way there and back.

Questions and answers:

What of metadata?  It is the API server's: all of it stays as it came, except labels and annotations that a conversion changes.
What of fields that the class does not know?  They stay where they are.
What of a field that the other version cannot say?  After each conversion we convert back, and compare. What is not the same goes into
    the annotation `<group>/kept-from-<version>`: its path, the value that the round trip gives, the value that it was.
And if somebody changes the object meanwhile, in the version that does not know the field?  What is kept is put back only where the
    value is still what the round trip gave, and where the object then still says the same in the version that it came in; where not, the
    edit wins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Raw, Struct

from ..errors import ConfigError, KubewrightError, redact
from ..kind import KindDefinition, Object, ObjectMeta
from ..log import Log
from ..overlay import Json
from .admission import BadReview
from .conversion_check import (
    ABSENT,
    Difference,
    find_differences,
    get_at_path,
    select_unknown_fields,
    set_at_path,
)
from .types import Conversion

CONVERSION_PATH = "/convert"
# A page of a list is converted in one review; the API server's own answer may be as large.
MAX_REVIEW_BYTES = 64 * 1024 * 1024
# Converting blocks the loop; a list gives way to others this often.
_OBJECTS_PER_YIELD = 50
# The API server's own limit, names and values together.
_MAX_ANNOTATIONS_BYTES = 256 * 1024
# Of an annotation whose pieces do not fit together any more; each costs a conversion.
_MAX_SEPARATE_RESTORES = 32
_ENVELOPE_FIELDS = ("apiVersion", "kind", "metadata")
ConvertFunction = Callable[[Any], Object]


class ConversionRequest(Struct):
    """What the API server asks."""

    uid: str
    desiredAPIVersion: str
    objects: list[Raw]


class ConversionReview(Struct):
    """The envelope."""

    apiVersion: str
    kind: str
    request: ConversionRequest


class TypeMeta(Struct):
    """Which object, in which version."""

    apiVersion: str
    kind: str


class NameMetadata(Struct):
    """Which one."""

    name: str = ""
    namespace: str = ""


class NamedObject(Struct):
    """An object of which only matters how it is called."""

    metadata: NameMetadata


class KindVersions:
    """All versions of one kind: the hub, and a conversion for each other one."""

    def __init__(self, hub: type[Object]) -> None:
        self.hub = hub
        self.conversions: dict[str, Conversion[Any, Any]] = {}

    def add(self, conversion: Conversion[Any, Any]) -> None:
        """One more version."""
        old = conversion.spoke.definition
        if conversion.hub is not self.hub:
            raise ConfigError(
                f"{old.name} has two hubs, {self.hub.__name__} and {conversion.hub.__name__}; all versions meet at one"
            )
        if old.api_version in self.conversions:
            raise ConfigError(
                f"there are two conversions for {old.api_version} {old.name}; one version has one"
            )
        self.conversions[old.api_version] = conversion

    def convert(self, obj: Json, wanted: str) -> Json:
        """The object in the wanted version, through the hub."""
        if obj["apiVersion"] != self.hub.definition.api_version:
            one = self._find_conversion(obj["apiVersion"])
            obj = _convert_preserving(
                obj, one.spoke, one.hub, one.to_hub, one.from_hub, preserve=one.preserve_lost_fields
            )
        if wanted != self.hub.definition.api_version:
            one = self._find_conversion(wanted)
            obj = _convert_preserving(
                obj, one.hub, one.spoke, one.from_hub, one.to_hub, preserve=one.preserve_lost_fields
            )
        return obj

    def _find_conversion(self, api_version: str) -> Conversion[Any, Any]:
        """The conversion of a version."""
        if api_version not in self.conversions:
            raise BadReview(
                f"nobody declared how {self.hub.definition.name} is converted from or to {api_version}: add a Conversion"
            )
        return self.conversions[api_version]


class ConversionHandler:
    """All conversions of a manager, as /convert."""

    path = CONVERSION_PATH
    max_body_bytes = MAX_REVIEW_BYTES

    def __init__(self, conversions: Iterable[Conversion[Any, Any]]) -> None:
        self.log = Log("conversion")
        self.kinds: dict[tuple[str, str], KindVersions] = {}
        for each in conversions:
            hub = each.hub.definition
            self.kinds.setdefault((hub.group, hub.name), KindVersions(each.hub)).add(each)

    async def handle(self, body: bytes) -> bytes:
        """All objects, or why none: half a list would be a lie."""
        request = decode_request(body)
        response: Json = {
            "uid": request.uid,
            "result": {"status": "Success"},
            "convertedObjects": [],
        }
        try:
            for number, raw in enumerate(request.objects):
                if number % _OBJECTS_PER_YIELD == _OBJECTS_PER_YIELD - 1:
                    await asyncio.sleep(0)
                response["convertedObjects"].append(self.convert(raw, request.desiredAPIVersion))
        except (Exception, SystemExit) as error:
            words = (
                str(error)
                if isinstance(error, KubewrightError)
                else f"{type(error).__name__}: {error}"
            )
            which = _describe_object(request.objects[len(response["convertedObjects"])])
            self.log.error(
                "a conversion failed", error=error, object=which, wanted=request.desiredAPIVersion
            )
            response = {
                "uid": request.uid,
                "result": {"status": "Failure", "message": redact(f"{which}: {words}")},
                "convertedObjects": [],
            }
        return msgspec.json.encode(
            {
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "ConversionReview",
                "response": response,
            }
        )

    def convert(self, raw: Raw, wanted: str) -> Json:
        """One object in the wanted version."""
        obj: Json = msgspec.json.decode(raw, type=dict[str, Any])
        head = msgspec.convert(obj, TypeMeta)
        group = head.apiVersion.rpartition("/")[0]
        if (group, head.kind) not in self.kinds:
            raise BadReview(
                f"nobody declared a conversion of {head.apiVersion} {head.kind}: add a Conversion"
            )
        return self.kinds[group, head.kind].convert(obj, wanted)


def _describe_object(raw: Raw) -> str:
    """Namespace and name of an object, whatever else is wrong with it: one of a page stops all of them, and has to be found."""
    try:
        key = msgspec.json.decode(raw, type=NamedObject).metadata
    except (msgspec.DecodeError, RecursionError):
        return "an object without a name"
    return f"{key.namespace}/{key.name}" if key.namespace else key.name


def decode_request(body: bytes) -> ConversionRequest:
    """The request in the body."""
    try:
        review = msgspec.json.decode(body, type=ConversionReview)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise BadReview(
            f"this is no ConversionReview of apiextensions.k8s.io/v1: {error}"
        ) from error
    if (review.apiVersion, review.kind) != ("apiextensions.k8s.io/v1", "ConversionReview"):
        raise BadReview(
            f"this is a {review.apiVersion} {review.kind}, no ConversionReview of apiextensions.k8s.io/v1"
        )
    return review.request


def _convert_preserving(
    obj: Json,
    source: type[Object],
    target: type[Object],
    there: ConvertFunction,
    back: ConvertFunction,
    *,
    preserve: bool,
) -> Json:
    """The object in the other version: what was kept for that version put back, what it cannot say kept for the way back."""
    made = _convert_once(obj, source, target, there)
    if not preserve:
        return made
    made = _restore_preserved(made, target, back)
    again = _convert_once(made, target, source, back)
    lost = find_differences(_without_envelope(again), _without_envelope(obj))
    if not lost:
        return made
    kept = msgspec.json.encode([list(each) for each in lost]).decode()
    annotations = {**_copy_annotations(made), _preserved_annotation_key(source.definition): kept}
    _check_annotations_size(annotations, source, target)
    return _with_annotations(made, annotations)


def _check_annotations_size(
    annotations: dict[str, str], source: type[Object], target: type[Object]
) -> None:
    """Raise for more than the API server takes; its own words would not say which object it is."""
    if (
        sum(len(text.encode()) for pair in annotations.items() for text in pair)
        > _MAX_ANNOTATIONS_BYTES
    ):
        old, new = source.definition.version, target.definition.version
        raise BadReview(
            f"it has more that {new} cannot say than annotations hold ({_MAX_ANNOTATIONS_BYTES} bytes): make it smaller in {old}, "
            f"or bound those fields in the schema of {old}"
        )


def _convert_once(
    obj: Json, source: type[Object], target: type[Object], step: ConvertFunction
) -> Json:
    """One conversion by user code, with metadata and unknown fields carried over."""
    typed = source.decode(msgspec.json.encode(obj))
    made = step(typed)
    if not isinstance(made, target):
        raise TypeError(
            f"a conversion to {target.definition.api_version} gave a {type(made).__name__}, not a {target.__name__}"
        )
    unknown = {
        name: value
        for name, value in select_unknown_fields(obj, source).items()
        if name not in _ENVELOPE_FIELDS
    }
    body = {
        name: value
        for name, value in _without_envelope(made.encode()).items()
        if name in obj or value != _encode_empty(target).get(name)
    }
    for path, _, value in find_differences({}, unknown):
        if get_at_path(body, path) is ABSENT:
            body = set_at_path(body, path, value)
    head = {
        "apiVersion": target.definition.api_version,
        "kind": target.definition.name,
        "metadata": obj["metadata"],
    }
    return _merge_metadata(made, typed, head | body)


def _merge_metadata(made: Object, typed: Object, obj: Json) -> Json:
    """Labels and annotations as the conversion wants them; one that says nothing of metadata keeps them."""
    metadata = dict(obj["metadata"])
    if made.metadata.key == typed.metadata.key and made.metadata != ObjectMeta():
        for name in ("labels", "annotations"):
            if getattr(made.metadata, name) != getattr(typed.metadata, name):
                metadata[name] = getattr(made.metadata, name)
    return obj | {"metadata": metadata}


def _restore_preserved(obj: Json, target: type[Object], back: ConvertFunction) -> Json:
    """What was kept for this version, put back where nobody changed it since; the annotation has done its work then.

    Anybody may write annotations, and one that leads to no object of this version would break every list. So what is put back must not
    change what the object says in the version that it came in; all of it at once, else piece by piece.
    """
    annotations = _copy_annotations(obj)
    if _preserved_annotation_key(target.definition) not in annotations:
        return obj
    kept = _parse_preserved(annotations.pop(_preserved_annotation_key(target.definition)))
    filled = _with_annotations(obj, annotations)
    meant = back(target.decode(msgspec.json.encode(filled)))
    for some in (kept, *([each] for each in kept[:_MAX_SEPARATE_RESTORES])):
        with suppress(RecursionError):
            tried = _apply_differences(filled, some)
            if tried != filled and _convert_back(tried, target, back) == meant:
                filled = tried
    return filled


def _parse_preserved(text: str) -> list[Difference]:
    """The pieces in an annotation, none of them about what is ours; none at all where it is not one of our own."""
    try:
        found = msgspec.json.decode(text, type=list[tuple[list[str], Any, Any]])
    except (msgspec.DecodeError, RecursionError):
        return []
    return [Difference(*each) for each in found if each[0] and each[0][0] not in _ENVELOPE_FIELDS]


def _apply_differences(obj: Json, pieces: Iterable[Difference]) -> Json:
    """The object with these, wherever it has what the round trip gave."""
    for path, given, value in pieces:
        if get_at_path(obj, path) == given:
            obj = set_at_path(obj, path, value)
    return obj


def _convert_back(obj: Json, target: type[Object], back: ConvertFunction) -> Object | None:
    """The object in the version that it came in; None where there is no way back from what somebody wrote."""
    try:
        return back(target.decode(msgspec.json.encode(obj)))
    except Exception:
        return None


def _preserved_annotation_key(kind: KindDefinition) -> str:
    """The annotation that keeps what only this version can say; its prefix is the group, which is the operator's own."""
    return f"{kind.group}/kept-from-{kind.version}"


def _copy_annotations(obj: Json) -> dict[str, str]:
    """A copy of the annotations."""
    return dict(obj["metadata"].get("annotations") or {})


def _with_annotations(obj: Json, annotations: dict[str, str]) -> Json:
    """The object with these annotations."""
    metadata = {name: value for name, value in obj["metadata"].items() if name != "annotations"}
    return obj | {"metadata": metadata | ({"annotations": annotations} if annotations else {})}


def _without_envelope(obj: Json) -> Json:
    """All that a conversion is about."""
    return {name: value for name, value in obj.items() if name not in _ENVELOPE_FIELDS}


def _encode_empty(kind: type[Object]) -> Json:
    """What an object reads like of which nothing is set; parts that are like this and were not there before stay away."""
    try:
        return kind().encode()
    except TypeError:
        return {}
