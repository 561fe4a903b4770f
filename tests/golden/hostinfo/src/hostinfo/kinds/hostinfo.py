"""HostInfo: its types and its controller."""

from __future__ import annotations

from kubewright import Column, Controller, Done, Resource, Spec, Status, kind


class HostInfoSpec(Spec):
    """The desired state."""

    hostname: str = ""


# Conditions and observedGeneration come with Status. A field that is None is not written.
class HostInfoStatus(Status):
    """The observed state."""

    totalCPU: int | None = None
    freeCPU: int | None = None


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
    # A docstring here is the description of the kind in `kubectl explain`.
    pass


def status_of(spec: HostInfoSpec) -> HostInfoStatus:
    """Compute the status without I/O, so that unit tests need no cluster."""
    return HostInfoStatus()


class HostInfoController(Controller[HostInfo]):
    """Keeps the status of every HostInfo up to date.

    To reconcile when other objects change, or to write them, declare it in __init__ with
    `watches` and `needs`.
    """

    async def reconcile(self, hostinfo: HostInfo) -> Done:
        # Return Waiting while work is in progress. Raise Retry for a temporary failure, Terminal
        # when a retry is useless until the object or its input changes.
        hostinfo.status = status_of(hostinfo.spec)
        return Done()
