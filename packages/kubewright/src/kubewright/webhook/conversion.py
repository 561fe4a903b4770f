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

from ..errors import ConfigError, KubewrightError, cut
from ..kind import Kind, Object
from ..log import Log
from ..meta import ObjectMeta
from ..patch import Json
from .admission import BadReview
from .conversion_check import ABSENT, Difference, differences, looked_up, put, without_known
from .types import Conversion

PATH = "/convert"
# A page of a list is converted in one review; the API server's own answer may be as large.
LONGEST_REVIEW_BYTES = 64 * 1024 * 1024
# Converting blocks the loop; a list gives way to others this often.
OBJECTS_IN_A_ROW = 50
# The API server's own limit, names and values together.
MOST_ANNOTATIONS_BYTES = 256 * 1024
# Of an annotation whose pieces do not fit together any more; each costs a conversion.
MOST_PIECES = 32
OURS = ("apiVersion", "kind", "metadata")
Step = Callable[[Any], Object]


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


class Head(Struct):
    """Which object, in which version."""

    apiVersion: str
    kind: str


class NamedMetadata(Struct):
    """Which one."""

    name: str = ""
    namespace: str = ""


class Named(Struct):
    """An object of which only matters how it is called."""

    metadata: NamedMetadata


class Versions:
    """All versions of one kind: the hub, and a conversion for each other one."""

    def __init__(self, hub: type[Object]) -> None:
        self.hub = hub
        self.conversions: dict[str, Conversion[Any, Any]] = {}

    def add(self, conversion: Conversion[Any, Any]) -> None:
        """One more version."""
        old = conversion.old.definition
        if conversion.hub is not self.hub:
            raise ConfigError(f"{old.name} has two hubs, {self.hub.__name__} and {conversion.hub.__name__}; all versions meet at one")
        if old.api_version in self.conversions:
            raise ConfigError(f"there are two conversions for {old.api_version} {old.name}; one version has one")
        self.conversions[old.api_version] = conversion

    def converted(self, obj: Json, wanted: str) -> Json:
        """The object in the wanted version, through the hub."""
        if obj["apiVersion"] != self.hub.definition.api_version:
            one = self.of(obj["apiVersion"])
            obj = there_and_kept(obj, one.old, one.hub, one.to_hub, one.from_hub, keep=one.keep)
        if wanted != self.hub.definition.api_version:
            one = self.of(wanted)
            obj = there_and_kept(obj, one.hub, one.old, one.from_hub, one.to_hub, keep=one.keep)
        return obj

    def of(self, api_version: str) -> Conversion[Any, Any]:
        """The conversion of a version."""
        if api_version not in self.conversions:
            raise BadReview(f"nobody declared how {self.hub.definition.name} is converted from or to {api_version}: add a Conversion")
        return self.conversions[api_version]


class Converting:
    """All conversions of a manager, as /convert."""

    path = PATH
    longest_body_bytes = LONGEST_REVIEW_BYTES

    def __init__(self, conversions: Iterable[Conversion[Any, Any]]) -> None:
        self.log = Log("conversion")
        self.kinds: dict[tuple[str, str], Versions] = {}
        for each in conversions:
            hub = each.hub.definition
            self.kinds.setdefault((hub.group, hub.name), Versions(each.hub)).add(each)

    async def answer(self, body: bytes) -> bytes:
        """All objects, or why none: half a list would be a lie."""
        request = decoded(body)
        response: Json = {"uid": request.uid, "result": {"status": "Success"}, "convertedObjects": []}
        try:
            for number, raw in enumerate(request.objects):
                if number % OBJECTS_IN_A_ROW == OBJECTS_IN_A_ROW - 1:
                    await asyncio.sleep(0)
                response["convertedObjects"].append(self.converted(raw, request.desiredAPIVersion))
        except (Exception, SystemExit) as error:
            words = str(error) if isinstance(error, KubewrightError) else f"{type(error).__name__}: {error}"
            which = called(request.objects[len(response["convertedObjects"])])
            self.log.error("a conversion failed", error=error, object=which, wanted=request.desiredAPIVersion)
            response = {"uid": request.uid, "result": {"status": "Failure", "message": cut(f"{which}: {words}")}, "convertedObjects": []}
        return msgspec.json.encode({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response})

    def converted(self, raw: Raw, wanted: str) -> Json:
        """One object in the wanted version."""
        obj: Json = msgspec.json.decode(raw, type=dict[str, Any])
        head = msgspec.convert(obj, Head)
        group = head.apiVersion.rpartition("/")[0]
        if (group, head.kind) not in self.kinds:
            raise BadReview(f"nobody declared a conversion of {head.apiVersion} {head.kind}: add a Conversion")
        return self.kinds[group, head.kind].converted(obj, wanted)


def called(raw: Raw) -> str:
    """Namespace and name of an object, whatever else is wrong with it: one of a page stops all of them, and has to be found."""
    try:
        key = msgspec.json.decode(raw, type=Named).metadata
    except (msgspec.DecodeError, RecursionError):
        return "an object without a name"
    return f"{key.namespace}/{key.name}" if key.namespace else key.name


def decoded(body: bytes) -> ConversionRequest:
    """The request in the body."""
    try:
        review = msgspec.json.decode(body, type=ConversionReview)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise BadReview(f"this is no ConversionReview of apiextensions.k8s.io/v1: {error}") from error
    if (review.apiVersion, review.kind) != ("apiextensions.k8s.io/v1", "ConversionReview"):
        raise BadReview(f"this is a {review.apiVersion} {review.kind}, no ConversionReview of apiextensions.k8s.io/v1")
    return review.request


def there_and_kept(obj: Json, source: type[Object], target: type[Object], there: Step, back: Step, *, keep: bool) -> Json:
    """The object in the other version: what was kept for that version put back, what it cannot say kept for the way back."""
    made = stepped(obj, source, target, there)
    if not keep:
        return made
    made = with_kept(made, target, back)
    again = stepped(made, target, source, back)
    lost = differences(body_of(again), body_of(obj))
    if not lost:
        return made
    kept = msgspec.json.encode([list(each) for each in lost]).decode()
    annotations = {**annotations_of(made), kept_from(source.definition): kept}
    refuse_too_much(annotations, source, target)
    return with_annotations(made, annotations)


def refuse_too_much(annotations: dict[str, str], source: type[Object], target: type[Object]) -> None:
    """Raise for more than the API server takes; its own words would not say which object it is."""
    if sum(len(text.encode()) for pair in annotations.items() for text in pair) > MOST_ANNOTATIONS_BYTES:
        old, new = source.definition.version, target.definition.version
        raise BadReview(
            f"it has more that {new} cannot say than annotations hold ({MOST_ANNOTATIONS_BYTES} bytes): make it smaller in {old}, "
            f"or bound those fields in the schema of {old}"
        )


def stepped(obj: Json, source: type[Object], target: type[Object], step: Step) -> Json:
    """One conversion by user code, with metadata and unknown fields carried over."""
    typed = source.decode(msgspec.json.encode(obj))
    made = step(typed)
    if not isinstance(made, target):
        raise TypeError(f"a conversion to {target.definition.api_version} gave a {type(made).__name__}, not a {target.__name__}")
    unknown = {name: value for name, value in without_known(obj, source).items() if name not in OURS}
    body = {name: value for name, value in body_of(made.encode()).items() if name in obj or value != default_of(target).get(name)}
    for path, _, value in differences({}, unknown):
        if looked_up(body, path) is ABSENT:
            body = put(body, path, value)
    head = {"apiVersion": target.definition.api_version, "kind": target.definition.name, "metadata": obj["metadata"]}
    return with_metadata_of(made, typed, head | body)


def with_metadata_of(made: Object, typed: Object, obj: Json) -> Json:
    """Labels and annotations as the conversion wants them; one that says nothing of metadata keeps them."""
    metadata = dict(obj["metadata"])
    if made.metadata.key == typed.metadata.key and made.metadata != ObjectMeta():
        for name in ("labels", "annotations"):
            if getattr(made.metadata, name) != getattr(typed.metadata, name):
                metadata[name] = getattr(made.metadata, name)
    return obj | {"metadata": metadata}


def with_kept(obj: Json, target: type[Object], back: Step) -> Json:
    """What was kept for this version, put back where nobody changed it since; the annotation has done its work then.

    Anybody may write annotations, and one that leads to no object of this version would break every list. So what is put back must not
    change what the object says in the version that it came in; all of it at once, else piece by piece.
    """
    annotations = annotations_of(obj)
    if kept_from(target.definition) not in annotations:
        return obj
    kept = kept_in(annotations.pop(kept_from(target.definition)))
    filled = with_annotations(obj, annotations)
    meant = back(target.decode(msgspec.json.encode(filled)))
    for some in (kept, *([each] for each in kept[:MOST_PIECES])):
        with suppress(RecursionError):
            tried = with_pieces(filled, some)
            if tried != filled and said(tried, target, back) == meant:
                filled = tried
    return filled


def kept_in(text: str) -> list[Difference]:
    """The pieces in an annotation, none of them about what is ours; none at all where it is not one of our own."""
    try:
        found = msgspec.json.decode(text, type=list[tuple[list[str], Any, Any]])
    except (msgspec.DecodeError, RecursionError):
        return []
    return [Difference(*each) for each in found if each[0] and each[0][0] not in OURS]


def with_pieces(obj: Json, pieces: Iterable[Difference]) -> Json:
    """The object with these, wherever it has what the round trip gave."""
    for path, given, value in pieces:
        if looked_up(obj, path) == given:
            obj = put(obj, path, value)
    return obj


def said(obj: Json, target: type[Object], back: Step) -> Object | None:
    """The object in the version that it came in; None where there is no way back from what somebody wrote."""
    try:
        return back(target.decode(msgspec.json.encode(obj)))
    except Exception:
        return None


def kept_from(kind: Kind) -> str:
    """The annotation that keeps what only this version can say; its prefix is the group, which is the operator's own."""
    return f"{kind.group}/kept-from-{kind.version}"


def annotations_of(obj: Json) -> dict[str, str]:
    """A copy of the annotations."""
    return dict(obj["metadata"].get("annotations") or {})


def with_annotations(obj: Json, annotations: dict[str, str]) -> Json:
    """The object with these annotations."""
    metadata = {name: value for name, value in obj["metadata"].items() if name != "annotations"}
    return obj | {"metadata": metadata | ({"annotations": annotations} if annotations else {})}


def body_of(obj: Json) -> Json:
    """All that a conversion is about."""
    return {name: value for name, value in obj.items() if name not in OURS}


def default_of(kind: type[Object]) -> Json:
    """What an object reads like of which nothing is set; parts that are like this and were not there before stay away."""
    try:
        return kind().encode()
    except TypeError:
        return {}
