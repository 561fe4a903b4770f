"""Runs a list of requests, and writes down the responses without what differs between two runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import msgspec

from kubewright.transport import ApiTransport, Request

GROUP = "fake.kubewright.test"
_PREFIXES = {
    "configmaps": "/api/v1",
    "secrets": "/api/v1",
    "services": "/api/v1",
    "pods": "/api/v1",
    "serviceaccounts": "/api/v1",
    "persistentvolumeclaims": "/api/v1",
    **dict.fromkeys(("deployments", "statefulsets", "daemonsets", "replicasets"), "/apis/apps/v1"),
    **dict.fromkeys(("jobs", "cronjobs"), "/apis/batch/v1"),
    "horizontalpodautoscalers": "/apis/autoscaling/v2",
    **dict.fromkeys(("ingresses", "networkpolicies"), "/apis/networking.k8s.io/v1"),
    "poddisruptionbudgets": "/apis/policy/v1",
    "rolebindings": "/apis/rbac.authorization.k8s.io/v1",
    "leases": "/apis/coordination.k8s.io/v1",
}
_CONTENT_TYPES = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "apply": "application/apply-patch+yaml",
    "strategic": "application/strategic-merge-patch+json",
}
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_LATEST = "<latest>"
_RECORDED_VERSION = re.compile(r"in record \(\d+\)")
_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True)
class Step:
    """One request. `show` limits what is compared to these dotted paths of the response."""

    method: str
    target: str
    body: Any = None
    query: str = ""
    patch_type: str = ""
    accept: str = "application/json"
    show: tuple[str, ...] = ()
    watch_seconds: float = 0
    store: str = ""
    """`name` of a variable for the resourceVersion of the response; used as `{name}`."""

    def title(self) -> str:
        query = f"?{self.query}" if self.query else ""
        kind = f" ({self.patch_type})" if self.patch_type else ""
        return f"{self.method} {self.target}{query}{kind}"


def create(target: str, body: Any, query: str = "fieldManager=test", **options: Any) -> Step:
    return Step("POST", target, body, query, **options)


def get(target: str, query: str = "", **options: Any) -> Step:
    return Step("GET", target, query=query, **options)


def replace(target: str, body: Any, query: str = "fieldManager=test", **options: Any) -> Step:
    return Step("PUT", target, body, query, **options)


def patch(
    target: str, body: Any, query: str = "fieldManager=test", type: str = "merge", **options: Any
) -> Step:
    return Step("PATCH", target, body, query, patch_type=type, **options)


def apply(target: str, body: Any, manager: str, query: str = "", **options: Any) -> Step:
    query = f"fieldManager={manager}" + (f"&{query}" if query else "")
    return Step("PATCH", target, body, query, patch_type="apply", **options)


def delete(target: str, body: Any = None, query: str = "", **options: Any) -> Step:
    return Step("DELETE", target, body, query, **options)


def watch(target: str, query: str = "", seconds: float = 1, **options: Any) -> Step:
    query = f"watch=1&timeoutSeconds={seconds:g}" + (f"&{query}" if query else "")
    return Step("GET", target, query=query, watch_seconds=seconds, **options)


class StatusReceived(Exception):
    """An error response as the server sent it, in place of an error of kubewright.

    It replaces `error_from_status`, so that its messages can change without the transcripts.
    """

    def __init__(self, code: int, body: dict[str, Any], **_: Any) -> None:
        super().__init__(str(body))
        self.code, self.body = code, body

    def describe(self) -> dict[str, Any]:
        causes = (self.body.get("details") or {}).get("causes")
        message = self.body.get("message") or ""
        if " is invalid: [" in message:
            # The order of several causes is random.
            message = message.partition(" is invalid: [")[0] + " is invalid: [...]"
        return {
            "code": self.code,
            "reason": self.body.get("reason") or "",
            "message": message,
            **({"causes": causes} if causes else {}),
        }


@dataclass
class Player:
    """Sends steps to one API server."""

    transport: ApiTransport
    namespace: str
    _placeholders: dict[str, str] = field(default_factory=dict)
    _variables: dict[str, str] = field(default_factory=dict)

    async def play(self, steps: Sequence[Step]) -> list[dict[str, Any]]:
        return [{"request": step.title(), **await self._play_step(step)} for step in steps]

    async def _play_step(self, step: Step) -> dict[str, Any]:
        request = Request(
            step.method,
            self._path(step.target),
            query=self._fill(step.query),
            body=None if step.body is None else self._encode(step.body),
            content_type=_CONTENT_TYPES.get(step.patch_type, "application/json"),
            accept=step.accept,
            operation="",
        )
        try:
            if step.watch_seconds:
                return {"events": [self._normalize(e) for e in await self._watch(request)]}
            answer = msgspec.json.decode(await self.transport.send(request))
        except StatusReceived as received:
            return {"error": self._normalize(received.describe())}
        if step.store:
            self._variables[step.store] = answer["metadata"]["resourceVersion"]
        if step.show:
            answer = {path: _find(answer, path) for path in step.show}
        return {"response": self._normalize(answer)}

    async def _watch(self, request: Request) -> list[Any]:
        lines = self.transport.stream_lines(request, idle_timeout_seconds=10)
        events = [msgspec.json.decode(line) async for line in lines]
        revision = 0
        for event in events:
            metadata = event["object"]["metadata"]
            if event["type"] == "BOOKMARK":
                # Other clients of the server write too, so it may be greater than that of the last
                # event.
                assert int(metadata["resourceVersion"]) >= revision
                metadata["resourceVersion"] = _LATEST
            else:
                revision = max(revision, int(metadata.get("resourceVersion", 0)))
        return [event for event in events if not _is_plain_bookmark(event)]

    def _encode(self, body: Any) -> bytes:
        return self._fill(msgspec.json.encode(body).decode()).encode()

    def _fill(self, text: str) -> str:
        for name, value in {"namespace": self.namespace, **self._variables}.items():
            text = text.replace("{" + name + "}", value)
        return text

    def _path(self, target: str) -> str:
        if target.startswith("/"):
            return self._fill(target)
        plural = target.partition("/")[0]
        prefix = _PREFIXES.get(plural, f"/apis/{GROUP}/v1")
        return f"{prefix}/namespaces/{self.namespace}/{target}"

    def _normalize(self, value: Any, name: str = "") -> Any:
        match value:
            case dict():
                return {key: self._normalize(value[key], key) for key in sorted(value)}
            case list():
                items = [self._normalize(item) for item in value]
                if _last_part(name) not in ("managedFields", "causes"):
                    return items
                # Their order is random, and some checks report a cause twice.
                return [item for item, _ in groupby(sorted(items, key=str))]
            case str():
                return self._normalize_text(value, name)
        return value

    def _normalize_text(self, text: str, name: str) -> str:
        name = _last_part(name)
        if name == "resourceVersion" and text not in ("", "0"):
            return text if text == _LATEST else self._placeholder("version", text)
        if name == "name" and re.fullmatch(r"generated-[a-z0-9]{5}", text):
            return "generated-*****"
        if name == "continue" and text:
            return "<continue>"
        text = _RECORDED_VERSION.sub("in record (<version>)", text)
        text = _TIME.sub("<time>", text).replace(self.namespace, "<namespace>")
        return _UID.sub(lambda match: self._placeholder("uid", match[0]), text)

    def _placeholder(self, kind: str, value: str) -> str:
        """The same text for the same value, so that a change remains visible."""
        number = sum(text.startswith(f"<{kind} ") for text in self._placeholders.values()) + 1
        return self._placeholders.setdefault(value, f"<{kind} {number}>")


def _is_plain_bookmark(event: Any) -> bool:
    # Whether the server sends one within a second depends on its clock.
    return event["type"] == "BOOKMARK" and not event["object"]["metadata"].get("annotations")


def _last_part(path: str) -> str:
    return path.rpartition(".")[2]


def _find(value: Any, path: str) -> Any:
    for part in path.split("."):
        if isinstance(value, list):
            value = value[int(part)] if int(part) < len(value) else None
        else:
            value = value.get(part) if isinstance(value, dict) else None
    return value
