"""Greeting: what is filled in and what is refused before one is stored. What CEL (`Rule`) can say needs none."""

from __future__ import annotations

from kubewright import Admission, Rejected, Webhook

from .greeting import Greeting


class GreetingWebhook(Webhook[Greeting]):
    """Asked on every create and update; answers on every replica."""

    async def default(self, greeting: Greeting, request: Admission) -> None:
        """Fill in what the sender left out.

        A spec is frozen: greeting.spec = msgspec.structs.replace(greeting.spec, ...)
        """

    async def validate(self, greeting: Greeting, old: Greeting | None, request: Admission) -> None:
        """Raise Rejected("why, and what to do", field="spec.x") for what may not be stored; `old` is None on create."""
        if old is not None and old.metadata.name != greeting.metadata.name:
            raise Rejected("an object cannot be renamed", field="metadata.name")
