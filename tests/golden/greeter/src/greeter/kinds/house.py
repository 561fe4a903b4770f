"""House: its types and its controller."""

from __future__ import annotations

from typing import Annotated

from kubewright import Column, Controller, Doc, Done, Resource, Spec, Status, kind


class HouseSpec(Spec):
    """The desired state of a House."""

    rooms: Annotated[int, Doc("What rooms means, and its unit.")]
    doors: Annotated[list[str], Doc("What doors means, and its unit.")] = []


# Conditions and observedGeneration come with Status. A field that is None is not written.
class HouseStatus(Status):
    """The observed state of a House."""

    full: Annotated[bool | None, Doc("What full means, and its unit.")] = None


@kind(
    "demo.example.com/v1alpha1",
    namespaced=False,
    columns=[Column("Rooms", ".spec.rooms"), Column("Full", ".status.full")],
)
class House(Resource[HouseSpec, HouseStatus]):
    """Describe House in one sentence: `kubectl explain` shows it."""


def status_of(spec: HouseSpec) -> HouseStatus:
    """Compute the status without I/O, so that unit tests need no cluster."""
    return HouseStatus()


class HouseController(Controller[House]):
    """Keeps the status of every House up to date.

    To reconcile when other objects change, or to write them, declare it in __init__ with
    `wake_on` and `needs`.
    """

    async def reconcile(self, house: House) -> Done:
        # Return Waiting while work is in progress. Raise Retry for a temporary failure, Terminal
        # when a retry is useless until the object or its input changes.
        house.status = status_of(house.spec)
        return Done()
