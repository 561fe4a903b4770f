"""kopf 11: react to some objects only."""

from __future__ import annotations

from examples.from_kopf.example_kind import Example
from kubewright import Controller, Done, field_changed, select


class LabelController(Controller[Example]):
    """Objects without the label are not in memory."""

    kind = select(Example, label_selector="somelabel=somevalue,!nonexistent")
    name, ready_condition = "label", ""

    async def reconcile(self, example: Example) -> None:
        self.log.info("the labels match")


class ChangeController(Controller[Example]):
    """Other changes do not reconcile the object."""

    name, ready_condition = "change", ""
    predicate = field_changed("spec.field")

    async def reconcile(self, example: Example) -> None:
        self.log.info("the field changed", field=example.spec.field)


class ConditionController(Controller[Example]):
    """What decides is checked in the reconcile."""

    name = "condition"

    async def reconcile(self, example: Example) -> Done:
        if example.metadata.annotations.get("someannotation") == "somevalue":
            self.log.info("the annotation matches")
        if example.spec.field is not None:
            self.log.info("the field is present")
        if example.spec.field != "value":
            return Done()
        self.log.info("the field matches")
        return Done(requeue_after_seconds=1)
