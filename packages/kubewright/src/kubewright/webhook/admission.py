"""An AdmissionReview in, an AdmissionReview out: user code between two typed objects, every outcome in one place."""

from __future__ import annotations

import asyncio
import base64
import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Literal, Protocol

import msgspec
from msgspec import Raw, Struct

from ..errors import KubewrightError, Rejected, Undecodable, redact
from ..kind import KindDefinition, Object
from ..overlay import Json, apply_merge_patch, build_json_patch, overlay
from ..status import build_merge_patch
from .types import Admission, Operation, Webhook

# Object and old object, each below the 3 MiB that the API server takes, and what surrounds them; controller-runtime has the same number.
MAX_REVIEW_BYTES = 7 * 1024 * 1024
# Of the time that the API server waits: the rest is for words to arrive instead of a cut connection.
_TIMEOUT_FRACTION = 0.9
# The API server takes 4,096 characters of warnings, all webhooks' together; beyond that it cuts each of them to 256.
_MAX_WARNING_CHARACTERS = 1024
_PATH_IN_ERROR = re.compile(r" - at `\$\.?([^`]*)`")


class BadReview(KubewrightError):
    """What was posted is no review that we can answer: a 400 with these words."""


class WebhookFailed(KubewrightError):
    """User code failed: a 500 with these words, and the API server goes by failurePolicy."""

    def __init__(self, message: str, *, unexpected: bool = False) -> None:
        super().__init__(message)
        self.unexpected = unexpected


class ReviewHandler(Protocol):
    """One path of the endpoint."""

    @property
    def path(self) -> str:
        """Where the API server posts to."""
        ...

    @property
    def max_body_bytes(self) -> int:
        """How much it may post."""
        ...

    async def handle(self, body: bytes) -> bytes:
        """The answer to a review; raises BadReview or Failed."""
        ...


class GroupVersionKind(Struct):
    """Which kind."""

    group: str = ""
    version: str = ""
    kind: str = ""


class UserInfo(Struct):
    """Who."""

    username: str = ""
    groups: list[str] = []


class AdmissionRequest(Struct):
    """What the API server asks."""

    uid: str
    kind: GroupVersionKind
    operation: Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]
    name: str = ""
    namespace: str = ""
    subResource: str = ""
    userInfo: UserInfo = msgspec.field(default_factory=UserInfo)
    object: Raw = msgspec.field(default_factory=Raw)
    oldObject: Raw = msgspec.field(default_factory=Raw)
    dryRun: bool = False


class AdmissionReview(Struct):
    """The envelope."""

    apiVersion: Literal["admission.k8s.io/v1"]
    kind: Literal["AdmissionReview"]
    request: AdmissionRequest


class DeletionMetadata(Struct):
    """Since when."""

    deletionTimestamp: Any = None


class DeletionInfo(Struct):
    """An object of which only matters whether it is on its way out."""

    metadata: DeletionMetadata


_REVIEW_DECODER = msgspec.json.Decoder(AdmissionReview)


def _webhook_path(verb: str, kind: KindDefinition) -> str:
    """The path that controller-runtime would give: /mutate-example-com-v1-greeting."""
    return f"/{verb}-{kind.group.replace('.', '-')}-{kind.version}-{kind.name.lower()}"


class AdmissionHandler(ABC):
    """What defaulting and validating have in common: the envelope, the time limit, and what becomes of a refusal or a failure."""

    verb = ""
    max_body_bytes = MAX_REVIEW_BYTES

    def __init__(self, webhook: Webhook[Any]) -> None:
        self.webhook = webhook
        self.kind: type[Object] = webhook.kind
        self.path = _webhook_path(self.verb, self.kind.definition)

    async def handle(self, body: bytes) -> bytes:
        """Decode, ask the webhook, encode."""
        request = self.decode_request(body)
        admission = _build_admission(request)
        response: Json = {"uid": request.uid, "allowed": True}
        try:
            if self._is_in_scope(request):
                response |= await self.respond(request, admission)
        except Rejected as refused:
            admission.rejections.append(refused)
        if admission.rejections and not self.webhook.warn_only:
            status = _build_rejection_status(self.kind.definition, admission)
            response = {"uid": request.uid, "allowed": False, "status": status}
            self.webhook.log.debug(
                "refused",
                object=f"{request.namespace}/{request.name}",
                user=admission.username,
                why=status["message"],
            )
        if admission.warnings:
            response["warnings"] = [_format_warning(text) for text in admission.warnings]
        return msgspec.json.encode(
            {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
        )

    def decode_request(self, body: bytes) -> AdmissionRequest:
        """The request in the body, if it is about our kind."""
        try:
            request = _REVIEW_DECODER.decode(body).request
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise BadReview(
                f"this is no AdmissionReview of admission.k8s.io/v1: {error}"
            ) from error
        ours, asked = self.kind.definition, request.kind
        if (asked.group, asked.version, asked.kind) != (ours.group, ours.version, ours.name):
            raise BadReview(
                f"{self.path} is for {ours.api_version} {ours.name}, not for {asked.group}/{asked.version} {asked.kind}: "
                "check the rules and matchPolicy (Equivalent) of the webhook configuration"
            )
        return request

    def _is_in_scope(self, request: AdmissionRequest) -> bool:
        """Whether the webhook wants to hear of this; what it did not ask for is allowed, however the configuration reads."""
        return request.subResource == "" or (
            request.subResource == "status" and self.webhook.include_status
        )

    @abstractmethod
    async def respond(self, request: AdmissionRequest, admission: Admission) -> Json:
        """What the answer says besides yes."""

    def _decode_object(self, request: AdmissionRequest) -> Object | None:
        """The object that is to be stored; None where it is on its way out and the webhook does not care, whatever it looks like.

        The stored object says whether it is; the sent one may lie.
        """
        if _is_terminating(request.oldObject) and not self.webhook.include_terminating:
            return None
        return _decode_or_reject(self.kind, request.object)

    async def _call_webhook(self, work: Callable[[], Awaitable[object]], name: str) -> None:
        """User code, within its time; whatever it raises other than Refused is a failure of its own."""
        who, seconds = (
            f"{type(self.webhook).__name__}.{name}",
            self.webhook.timeout_seconds * _TIMEOUT_FRACTION,
        )
        try:
            async with asyncio.timeout(seconds) as limit:
                returned = await work()
        except Rejected:
            raise
        except (Exception, SystemExit) as error:
            if isinstance(error, TimeoutError) and limit.expired():
                self.webhook.log.warning(f"{who} took too long and was stopped", seconds=seconds)
                raise WebhookFailed(
                    f"{who} took longer than {seconds:g} s and was stopped; try again"
                ) from error
            self.webhook.log.error(f"{who} failed", error=error)
            raise WebhookFailed(
                redact(f"{who} failed: {type(error).__name__}: {error}"), unexpected=True
            ) from error
        if returned is not None:
            raise WebhookFailed(
                f"{who} returned a {type(returned).__name__}; it has to return nothing",
                unexpected=True,
            )


class DefaultingHandler(AdmissionHandler):
    """`default`, as /mutate-..."""

    verb = "mutate"

    async def respond(self, request: AdmissionRequest, admission: Admission) -> Json:
        """The JSON patch of what `default` changed."""
        obj = self._decode_object(request)
        if obj is None or request.operation not in ("CREATE", "UPDATE"):
            return {}
        raw: Json = msgspec.json.decode(request.object)
        before = overlay(raw, obj)
        await self._call_webhook(lambda: self.webhook.default(obj, admission), "default")
        # Both sides passed our encoder, so what is merely spelled differently than in `raw` is in neither.
        changes = build_merge_patch(before, overlay(raw, obj))
        operations = list(build_json_patch(raw, apply_merge_patch(raw, changes)))
        if not operations:
            return {}
        return {
            "patchType": "JSONPatch",
            "patch": base64.b64encode(msgspec.json.encode(operations)).decode(),
        }


class ValidatingHandler(AdmissionHandler):
    """`validate` and `validate_deletion`, as /validate-..."""

    verb = "validate"

    async def respond(self, request: AdmissionRequest, admission: Admission) -> Json:
        """Nothing more than yes; a no is raised or collected."""
        if request.operation == "DELETE":
            going = _decode_old_object(self.kind, request)
            if self.webhook.has_validate_deletion and going is not None:
                await self._call_webhook(
                    lambda: self.webhook.validate_deletion(going, admission), "validate_deletion"
                )
        elif (
            request.operation in ("CREATE", "UPDATE")
            and (obj := self._decode_object(request)) is not None
        ):
            old = _decode_old_object(self.kind, request)
            await self._call_webhook(lambda: self.webhook.validate(obj, old, admission), "validate")
        return {}


def create_handlers(webhook: Webhook[Any]) -> list[AdmissionHandler]:
    """The paths that this webhook answers."""
    found: list[AdmissionHandler] = [DefaultingHandler(webhook)] if webhook.has_default else []
    return (
        [*found, ValidatingHandler(webhook)]
        if webhook.has_validate or webhook.has_validate_deletion
        else found
    )


def _build_admission(request: AdmissionRequest) -> Admission:
    """What user code is told of the request."""
    known: Operation = request.operation if request.operation != "CONNECT" else "UPDATE"
    return Admission(
        operation=known,
        namespace=request.namespace,
        name=request.name,
        username=request.userInfo.username,
        groups=tuple(request.userInfo.groups),
        dry_run=request.dryRun,
        subresource=request.subResource,
    )


def _decode_or_reject(kind: type[Object], raw: Raw) -> Object:
    """The typed object; one that does not fit the class is refused with the field."""
    if _is_absent(raw):
        raise BadReview("the review has no object")
    try:
        return kind.decode(raw)
    except Undecodable as error:
        where = _PATH_IN_ERROR.search(str(error))
        raise Rejected(
            _PATH_IN_ERROR.sub("", str(error)), field=where[1] if where else ""
        ) from error


def _decode_old_object(kind: type[Object], request: AdmissionRequest) -> Object | None:
    """The stored object, None where there is none or where it does not fit the class any more."""
    if not _is_absent(request.oldObject):
        with suppress(Undecodable):
            return kind.decode(request.oldObject)
    return None


def _is_terminating(raw: Raw) -> bool:
    """Whether the object is being deleted; read by itself, since one that does not fit its class must be able to go."""
    with suppress(msgspec.DecodeError):
        return msgspec.json.decode(raw, type=DeletionInfo).metadata.deletionTimestamp is not None
    return False


def _is_absent(raw: Raw) -> bool:
    """Whether nothing is there; the API server writes null."""
    return bytes(raw) in (b"", b"null")


def _build_rejection_status(kind: KindDefinition, admission: Admission) -> Json:
    """The Status of a no: with fields it reads as the API server's own validation does, without it is forbidden."""
    words = [f"{each.field}: {each}" if each.field else str(each) for each in admission.rejections]
    status: Json = {
        "status": "Failure",
        "message": "; ".join(words),
        "reason": "Forbidden",
        "code": 403,
    }
    if any(each.field for each in admission.rejections):
        status |= {
            "reason": "Invalid",
            "code": 422,
            "details": _build_status_details(kind, admission.name, admission.rejections),
        }
    return status


def _build_status_details(kind: KindDefinition, name: str, refusals: Sequence[Rejected]) -> Json:
    """The causes by field; kubectl prints each on a line, and would begin one without a field with a colon."""
    causes = [
        {"reason": "FieldValueInvalid", "message": str(each), "field": each.field or "the object"}
        for each in refusals
    ]
    return {"name": name, "group": kind.group, "kind": kind.name, "causes": causes}


def _format_warning(text: str) -> str:
    """A warning as an HTTP header can carry it: one line, of bounded length."""
    line = " ".join(redact(text).split())
    return (
        line
        if len(line) <= _MAX_WARNING_CHARACTERS
        else line[: _MAX_WARNING_CHARACTERS - 3] + "..."
    )
