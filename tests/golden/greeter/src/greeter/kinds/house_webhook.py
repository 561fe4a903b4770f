"""The admission webhook of House."""

from __future__ import annotations

from kubewright import Admission, Rejected, Webhook

from .house import House


# Prefer a CEL rule (`ValidationRule`) if it can express the check: it needs no webhook.
class HouseWebhook(Webhook[House]):
    """The API server calls it for every create and update, on any replica of the manager."""

    async def validate(self, house: House, old: House | None, request: Admission) -> None:
        """Raise Rejected("reason and what to do", field="spec.x") for an invalid object.

        On create there is no `old` object.
        """
        if old is not None and old.metadata.name != house.metadata.name:
            raise Rejected("an object cannot be renamed", field="metadata.name")
