"""House: its types and its controller."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from kubewright import Column, Controller, Doc, Done, Int32, Resource, Spec, Status, kind


class Lock(Spec):
    model: Literal["Pin", "Cylinder"] = "Pin"
    keys: Annotated[Int32, Doc("Number of keys.")] = 2


class Door(Spec):
    name: str
    lock: Annotated[Lock | None, Doc("Lock of the door, if it has one.")] = None


class HouseSpec(Spec):
    """The desired state."""

    rooms: Annotated[int, Doc("Number of rooms.")]
    doors: Annotated[list[Door], Doc("Doors, the front door first.")] = []
    labels: dict[str, str] = {}


# Conditions and observedGeneration come with Status. A field that is None is not written.
class HouseStatus(Status):
    """The observed state."""

    full: Annotated[bool | None, Doc("Whether all rooms are taken.")] = None
    checked: datetime | None = None


@kind(
    "demo.example.com/v1alpha1",
    namespaced=False,
    columns=[
        Column("Rooms", ".spec.rooms"),
        Column("Full", ".status.full"),
        Column("Checked", ".status.checked"),
    ],
)
class House(Resource[HouseSpec, HouseStatus]):
    """A house, its rooms and its doors."""


def status_of(spec: HouseSpec) -> HouseStatus:
    """Compute the status without I/O, so that unit tests need no cluster."""
    return HouseStatus()


class HouseController(Controller[House]):
    """Keeps the status of every House up to date.

    To reconcile when other objects change, or to write them, declare it in __init__ with
    `watches` and `needs`.
    """

    async def reconcile(self, house: House) -> Done:
        # Return Waiting while work is in progress. Raise Retry for a temporary failure, Terminal
        # when a retry is useless until the object or its input changes.
        house.status = status_of(house.spec)
        return Done()
