"""HostInfo: its types and its controller."""

from __future__ import annotations

from typing import Annotated

from kubewright import Column, Controller, Doc, Done, Resource, Spec, Status, kind


class HostInfoSpec(Spec):
    """The desired state of a HostInfo."""

    hostname: Annotated[str, Doc("What hostname means, and its unit.")] = ""


# Conditions and observedGeneration come with Status. A field that is None is not written.
class HostInfoStatus(Status):
    """The observed state of a HostInfo."""

    totalCPU: Annotated[int | None, Doc("What totalCPU means, and its unit.")] = None
    freeCPU: Annotated[int | None, Doc("What freeCPU means, and its unit.")] = None


@kind(
    "topology.corinternal.com/v1",
    short=("hi",),
    columns=[
        Column("Hostname", ".spec.hostname"),
        Column("TotalCPU", ".status.totalCPU"),
        Column("FreeCPU", ".status.freeCPU"),
    ],
)
class HostInfo(Resource[HostInfoSpec, HostInfoStatus]):
    """Describe HostInfo in one sentence: `kubectl explain` shows it."""


def status_of(spec: HostInfoSpec) -> HostInfoStatus:
    """Compute the status without I/O, so that unit tests need no cluster."""
    return HostInfoStatus()


class HostInfoController(Controller[HostInfo]):
    """Keeps the status of every HostInfo up to date.

    To reconcile when other objects change, or to write them, declare it in __init__ with
    `wake_on` and `needs`.
    """

    async def reconcile(self, hostinfo: HostInfo) -> Done:
        # Return Waiting while work is in progress. Raise Retry for a temporary failure, Terminal
        # when a retry is useless until the object or its input changes.
        hostinfo.status = status_of(hostinfo.spec)
        return Done()
