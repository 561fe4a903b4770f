"""The admission webhook of Greeting."""

from __future__ import annotations

from kubewright import Admission, Rejected, Webhook

from .greeting import Greeting


# Prefer a CEL rule (`ValidationRule`) if it can express the check: it needs no webhook.
class GreetingWebhook(Webhook[Greeting]):
    """The API server calls it for every create and update, on any replica of the manager."""

    async def default(self, greeting: Greeting, request: Admission) -> None:
        """Set fields that the request leaves out.

        A spec is frozen: assign a copy made with `msgspec.structs.replace`.
        """

    async def validate(self, greeting: Greeting, old: Greeting | None, request: Admission) -> None:
        """Raise Rejected("reason and what to do", field="spec.x") for an invalid object.

        On create there is no `old` object.
        """
        if old is not None and old.metadata.name != greeting.metadata.name:
            raise Rejected("an object cannot be renamed", field="metadata.name")
