"""Admission: decodes an AdmissionReview, calls the webhook, and encodes the response."""

from __future__ import annotations

import asyncio
import base64
import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Literal, Protocol

import msgspec
from msgspec import Raw, Struct

from ..definition import KindDefinition
from ..errors import KubewrightError, Rejected, Undecodable, redact
from ..kind import Object
from ..overlay import overlay
from ..patch import Json, apply_merge_patch, build_json_patch
from ..status import build_merge_patch
from .types import Admission, Operation, Webhook

# The object and the old object, each below the 3 MiB limit of the API server, and the envelope. The
# same limit as in controller-runtime.
_MAX_REVIEW_BYTES = 7 * 1024 * 1024
# Of the timeout of the API server. The remaining time is for the error message, which the client
# gets instead of a timeout without a reason.
_TIMEOUT_FRACTION = 0.9
# The API server accepts 4,096 characters of warnings of all webhooks together. Beyond that it cuts
# each warning to 256.
_MAX_WARNING_CHARACTERS = 1024
_PATH_IN_ERROR = re.compile(r" - at `\$\.?([^`]*)`")


class BadReview(KubewrightError):
    """The body is not a review that this handler accepts: a 400."""


class WebhookFailed(KubewrightError):
    """The code of the webhook failed: a 500, and the API server applies its failurePolicy."""

    def __init__(self, message: str, *, unexpected: bool = False) -> None:
        super().__init__(message)
        self.unexpected = unexpected


class ReviewHandler(Protocol):
    """Handles the reviews of one path of the server."""

    @property
    def path(self) -> str: ...

    @property
    def max_body_bytes(self) -> int: ...

    @property
    def authenticates_clients(self) -> bool:
        """Whether the client certificate is checked, if the server verifies any."""
        ...

    async def handle(self, body: bytes) -> bytes:
        """Respond to a review. Raises BadReview or WebhookFailed."""
        ...


class GroupVersionKind(Struct):
    group: str = ""
    version: str = ""
    kind: str = ""


class UserInfo(Struct):
    username: str = ""
    groups: list[str] = []


class AdmissionRequest(Struct):
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
    apiVersion: Literal["admission.k8s.io/v1"]
    kind: Literal["AdmissionReview"]
    request: AdmissionRequest


class _DeletionMetadata(Struct):
    deletionTimestamp: Any = None


class _DeletionInfo(Struct):
    """An object of which only the deletion timestamp is decoded."""

    metadata: _DeletionMetadata


_REVIEW_DECODER = msgspec.json.Decoder(AdmissionReview)


class AdmissionHandler(ABC):
    """The common part of defaulting and validation: the envelope, the timeout, the errors."""

    verb = ""
    max_body_bytes = _MAX_REVIEW_BYTES
    authenticates_clients = True

    def __init__(self, webhook: Webhook[Any]) -> None:
        self.webhook = webhook
        self.kind: type[Object] = webhook.kind
        definition = self.kind.definition
        group = definition.group.replace(".", "-")
        # As in controller-runtime: /mutate-example-com-v1-greeting.
        self.path = f"/{self.verb}-{group}-{definition.version}-{definition.name.lower()}"

    async def handle(self, body: bytes) -> bytes:
        request = self._decode_request(body)
        admission = _build_admission(request)
        response: Json = {"uid": request.uid, "allowed": True}
        try:
            # A request that the webhook did not declare is allowed, even if the configuration
            # sends it.
            subresources = ("", "status") if self.webhook.include_status else ("",)
            if request.subResource in subresources:
                response |= await self._respond(request, admission)
        except Rejected as rejection:
            admission.rejections.append(rejection)
        if admission.rejections and not self.webhook.warn_only:
            status = _build_rejection_status(self.kind.definition, admission)
            response = {"uid": request.uid, "allowed": False, "status": status}
            self.webhook.log.debug(
                "rejected",
                object=f"{request.namespace}/{request.name}",
                user=admission.username,
                reason=status["message"],
            )
        if admission.warnings:
            response["warnings"] = [_format_warning(text) for text in admission.warnings]
        return msgspec.json.encode(
            {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
        )

    def _decode_request(self, body: bytes) -> AdmissionRequest:
        try:
            request = _REVIEW_DECODER.decode(body).request
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise BadReview(f"invalid AdmissionReview of admission.k8s.io/v1: {error}") from error
        own, kind = self.kind.definition, request.kind
        if (kind.group, kind.version, kind.kind) != (own.group, own.version, own.name):
            raise BadReview(
                f"{self.path} is for {own.api_version} {own.name}, "
                f"not for {kind.group}/{kind.version} {kind.kind}: "
                "check the rules and matchPolicy (Equivalent) of the webhook configuration"
            )
        return request

    @abstractmethod
    async def _respond(self, request: AdmissionRequest, admission: Admission) -> Json:
        """Return what the response contains in addition to `allowed`."""

    def _decode_object(self, request: AdmissionRequest) -> Object | None:
        """The object to be stored; None if it is being deleted and the webhook ignores those."""
        # The stored object decides: the client can set any deletionTimestamp in the new one.
        if _is_terminating(request.oldObject) and not self.webhook.include_terminating:
            return None
        return _decode_or_reject(self.kind, request.object)

    async def _call_webhook(self, call: Callable[[], Awaitable[object]], name: str) -> None:
        """Run a method of the webhook within its timeout. Any error but Rejected is a failure."""
        method = f"{type(self.webhook).__name__}.{name}"
        seconds = self.webhook.timeout_seconds * _TIMEOUT_FRACTION
        try:
            async with asyncio.timeout(seconds) as timeout:
                returned = await call()
        except Rejected:
            raise
        # SystemExit too: a webhook that calls sys.exit() must not end the manager.
        except (Exception, SystemExit) as error:
            if isinstance(error, TimeoutError) and timeout.expired():
                self.webhook.log.warning(f"{method} timed out", seconds=seconds)
                raise WebhookFailed(f"{method} timed out after {seconds:g} s; try again") from error
            self.webhook.log.error(f"{method} failed", error=error)
            raise WebhookFailed(
                redact(f"{method} failed: {type(error).__name__}: {error}"), unexpected=True
            ) from error
        # An object that `default` returns would be ignored: it has to be changed in place.
        if returned is not None:
            raise WebhookFailed(
                f"{method} returned a {type(returned).__name__}; it must return None",
                unexpected=True,
            )


class DefaultingHandler(AdmissionHandler):
    """Calls `default` of the webhook, at /mutate-..."""

    verb = "mutate"

    async def _respond(self, request: AdmissionRequest, admission: Admission) -> Json:
        obj = self._decode_object(request)
        if obj is None or request.operation not in ("CREATE", "UPDATE"):
            return {}
        raw: Json = msgspec.json.decode(request.object)
        before = overlay(raw, obj)
        await self._call_webhook(lambda: self.webhook.default(obj, admission), "default")
        # Both sides are encoded here, so a value that the client wrote in another form, such as a
        # timestamp, is no change.
        changes = build_merge_patch(before, overlay(raw, obj))
        operations = list(build_json_patch(raw, apply_merge_patch(raw, changes)))
        if not operations:
            return {}
        return {
            "patchType": "JSONPatch",
            "patch": base64.b64encode(msgspec.json.encode(operations)).decode(),
        }


class ValidatingHandler(AdmissionHandler):
    """Calls `validate` and `validate_deletion` of the webhook, at /validate-..."""

    verb = "validate"

    async def _respond(self, request: AdmissionRequest, admission: Admission) -> Json:
        if request.operation == "DELETE":
            deleted = _decode_old_object(self.kind, request)
            if self.webhook.has_validate_deletion and deleted is not None:
                await self._call_webhook(
                    lambda: self.webhook.validate_deletion(deleted, admission), "validate_deletion"
                )
        elif (
            request.operation in ("CREATE", "UPDATE")
            and (obj := self._decode_object(request)) is not None
        ):
            old = _decode_old_object(self.kind, request)
            await self._call_webhook(lambda: self.webhook.validate(obj, old, admission), "validate")
        return {}


def create_handlers(webhook: Webhook[Any]) -> list[AdmissionHandler]:
    """The handlers of the methods that the webhook defines."""
    handlers: list[AdmissionHandler] = []
    if webhook.has_default:
        handlers.append(DefaultingHandler(webhook))
    if webhook.has_validate or webhook.has_validate_deletion:
        handlers.append(ValidatingHandler(webhook))
    return handlers


def _build_admission(request: AdmissionRequest) -> Admission:
    # A CONNECT is allowed without a call of the webhook, so its operation is never read.
    operation: Operation = request.operation if request.operation != "CONNECT" else "UPDATE"
    return Admission(
        operation=operation,
        namespace=request.namespace,
        name=request.name,
        username=request.userInfo.username,
        groups=tuple(request.userInfo.groups),
        dry_run=request.dryRun,
        subresource=request.subResource,
    )


def _decode_or_reject(kind: type[Object], raw: Raw) -> Object:
    """Decode the object. One that does not match its class is rejected with the field."""
    if _is_absent(raw):
        raise BadReview("the review has no object")
    try:
        return kind.decode(raw)
    except Undecodable as error:
        path = _PATH_IN_ERROR.search(str(error))
        message = _PATH_IN_ERROR.sub("", str(error))
        raise Rejected(message, field=path[1] if path else "") from error


def _decode_old_object(kind: type[Object], request: AdmissionRequest) -> Object | None:
    """The stored object; None on CREATE, or if it no longer matches its class."""
    if not _is_absent(request.oldObject):
        with suppress(Undecodable):
            return kind.decode(request.oldObject)
    return None


def _is_terminating(raw: Raw) -> bool:
    # Decoded separately: it must be possible to delete an object that does not match its class.
    with suppress(msgspec.DecodeError):
        return msgspec.json.decode(raw, type=_DeletionInfo).metadata.deletionTimestamp is not None
    return False


def _is_absent(raw: Raw) -> bool:
    # The API server writes null.
    return bytes(raw) in (b"", b"null")


def _build_rejection_status(definition: KindDefinition, admission: Admission) -> Json:
    """The Status of a rejection: with a field in the format of the API server's validation."""
    rejections = admission.rejections
    messages = [f"{item.field}: {item}" if item.field else str(item) for item in rejections]
    status: Json = {
        "status": "Failure",
        "message": "; ".join(messages),
        "reason": "Forbidden",
        "code": 403,
    }
    if any(item.field for item in rejections):
        # kubectl prints "field: message" per cause, so a cause without a field needs a name.
        causes = [
            {
                "reason": "FieldValueInvalid",
                "message": str(item),
                "field": item.field or "the object",
            }
            for item in rejections
        ]
        details = {
            "name": admission.name,
            "group": definition.group,
            "kind": definition.name,
            "causes": causes,
        }
        status |= {"reason": "Invalid", "code": 422, "details": details}
    return status


def _format_warning(text: str) -> str:
    # A warning is an HTTP header: it has one line.
    line = " ".join(redact(text).split())
    if len(line) <= _MAX_WARNING_CHARACTERS:
        return line
    return line[: _MAX_WARNING_CHARACTERS - 3] + "..."
