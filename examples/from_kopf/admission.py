"""kopf 17: validate and change objects before they are stored."""

from __future__ import annotations

from msgspec.structs import replace

from examples.from_kopf.example_kind import Example
from kubewright import Admission, Rejected, Webhook


class ExampleWebhook(Webhook[Example]):
    include_status = True

    async def validate(self, example: Example, old: Example | None, request: Admission) -> None:
        spec, status = example.spec, example.status
        request.warn(f"Accessing as {request.username}.")
        if spec.field == "wrong" and not request.dry_run:
            raise Rejected("must not be wrong", field="spec.field")
        if request.subresource == "status" and status.field != spec.field:
            raise Rejected("must be equal to spec.field", field="status.field")
        if status.field != spec.field:
            request.warn(f"Also update status.field to {spec.field!r}.")

    async def default(self, example: Example, request: Admission) -> None:
        if example.metadata.labels.get("somelabel") == "somevalue":
            example.spec = replace(example.spec, injected=123)
