"""House: what is filled in and what is refused before one is stored. What CEL (`Rule`) can say needs none."""

from __future__ import annotations

from kubewright import Admission, Rejected, Webhook

from .house import House


class HouseWebhook(Webhook[House]):
    """Asked on every create and update; answers on every replica."""

    async def validate(self, house: House, old: House | None, request: Admission) -> None:
        """Raise Rejected("why, and what to do", field="spec.x") for what may not be stored; `old` is None on create."""
        if old is not None and old.metadata.name != house.metadata.name:
            raise Rejected("an object cannot be renamed", field="metadata.name")
