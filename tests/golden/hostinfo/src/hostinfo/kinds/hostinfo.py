"""HostInfo: what is wanted, what was found, and how one follows from the other."""

from __future__ import annotations

from typing import Annotated

from kubewright import Column, Controller, Doc, Done, Resource, Spec, Status, kind


class HostInfoSpec(Spec):
    """What a HostInfo wants."""

    hostname: Annotated[str, Doc("What hostname means, and its unit.")] = ""


class HostInfoStatus(Status):
    """What was found; conditions and observedGeneration come with Status. None is "not known", and absent on the wire."""

    totalCPU: Annotated[int | None, Doc("What totalCPU means, and its unit.")] = None
    freeCPU: Annotated[int | None, Doc("What freeCPU means, and its unit.")] = None


@kind(
    "topology.corinternal.com/v1",
    short=("hi",),
    columns=[Column("Hostname", ".spec.hostname"), Column("TotalCPU", ".status.totalCPU"), Column("FreeCPU", ".status.freeCPU")],
)
class HostInfo(Resource[HostInfoSpec, HostInfoStatus]):
    """What a HostInfo is, in a sentence: `kubectl explain hostinfo` shows it."""


def status_of(spec: HostInfoSpec) -> HostInfoStatus:
    """All of the answer and none of the I/O, so that plain calls test it."""
    return HostInfoStatus()


class HostInfoController(Controller[HostInfo]):
    """Keeps the status true; what else wakes it (`wake_on`) and may be done (`needs`), its __init__ declares."""

    async def reconcile(self, hostinfo: HostInfo) -> Done:
        """Look at one HostInfo; raise Retry for what will pass, Terminal for what only a change can mend."""
        hostinfo.status = status_of(hostinfo.spec)
        return Done()
