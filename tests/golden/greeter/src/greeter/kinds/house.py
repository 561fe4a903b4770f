"""House: what is wanted, what was found, and how one follows from the other."""

from __future__ import annotations

from typing import Annotated

from kubewright import Column, Controller, Doc, Done, Resource, Spec, Status, kind


class HouseSpec(Spec):
    """What a House wants."""

    rooms: Annotated[int, Doc("What rooms means, and its unit.")]
    doors: Annotated[list[str], Doc("What doors means, and its unit.")] = []


class HouseStatus(Status):
    """What was found; conditions and observedGeneration come with Status. None is "not known", and absent on the wire."""

    full: Annotated[bool | None, Doc("What full means, and its unit.")] = None


@kind("demo.example.com/v1alpha1", namespaced=False, columns=[Column("Rooms", ".spec.rooms"), Column("Full", ".status.full")])
class House(Resource[HouseSpec, HouseStatus]):
    """What a House is, in a sentence: `kubectl explain house` shows it."""


def status_of(spec: HouseSpec) -> HouseStatus:
    """All of the answer and none of the I/O, so that plain calls test it."""
    return HouseStatus()


class HouseController(Controller[House]):
    """Keeps the status true; what else wakes it (`wake_on`) and may be done (`needs`), its __init__ declares."""

    async def reconcile(self, house: House) -> Done:
        """Look at one House; raise Retry for what will pass, Terminal for what only a change can mend."""
        house.status = status_of(house.spec)
        return Done()
