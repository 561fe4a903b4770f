"""Asking Kubernetes itself who may read /metrics: TokenReview says who, SubjectAccessReview says whether."""

from __future__ import annotations

from typing import Literal

from .client import Client

Decision = Literal["unauthenticated", "forbidden", "allowed"]


class ApiAuthorizer:
    """Two questions to the API server; the server module remembers the answers for a short time."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def authorize(self, token: str, verb: str, path: str) -> Decision:
        """Whether the bearer of this token may do that to a non-resource path."""
        about = await self.client.create_review(
            "/apis/authentication.k8s.io/v1/tokenreviews",
            {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenReview",
                "spec": {"token": token},
            },
        )
        status = about.get("status") or {}
        if not status.get("authenticated"):
            return "unauthenticated"
        user = status.get("user") or {}
        asked = {name: user[name] for name in ("groups", "uid", "extra") if user.get(name)}
        asked |= {
            "user": user.get("username", ""),
            "nonResourceAttributes": {"verb": verb, "path": path},
        }
        answer = await self.client.create_review(
            "/apis/authorization.k8s.io/v1/subjectaccessreviews",
            {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": asked},
        )
        return "allowed" if (answer.get("status") or {}).get("allowed") else "forbidden"
