"""MyCustomResource: whether a Pod of a given name exists in the cluster."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

from kubewright import (
    Cache,
    Column,
    Controller,
    Doc,
    Done,
    Resource,
    Spec,
    Status,
    Terminal,
    created_or_deleted,
    kind,
)
from kubewright.builtin import PodMetadata

_POD_NAME_INDEX = "name"
# The API server's own limit: the name of a Pod is a DNS subdomain.
_MAX_POD_NAME_LENGTH = 253


class Reason(StrEnum):
    """Reasons of the Ready condition that only MyCustomResource has."""

    NAME_MISSING = "NameMissing"
    """spec.name is empty."""
    FRIEND_FOUND = "FriendFound"
    """A Pod of that name exists."""
    NO_FRIEND = "NoFriend"
    """No Pod of that name exists."""


class MyCustomResourceSpec(Spec):
    """The friend of the resource: a Pod."""

    name: Annotated[
        str, Doc("Name of the friend: a Pod in any namespace.", max_length=_MAX_POD_NAME_LENGTH)
    ] = ""


class MyCustomResourceStatus(Status):
    """Whether the friend exists."""

    Healthy: Annotated[bool, Doc("True while a Pod of that name exists.")] = False


@kind(
    "poc.test.domain/v1",
    columns=[Column("Friend", ".spec.name"), Column("Healthy", ".status.Healthy")],
)
class MyCustomResource(Resource[MyCustomResourceSpec, MyCustomResourceStatus]):
    """A resource that is healthy while its friend, a Pod, exists."""


def status_of(name: str, pods: Sequence[PodMetadata]) -> tuple[MyCustomResourceStatus, Done]:
    """The status and the outcome for the Pods of this name."""
    if not pods:
        return MyCustomResourceStatus(Healthy=False), Done(
            Reason.NO_FRIEND, f'No Pod named "{name}" exists.'
        )
    first, *others = sorted(pod.metadata.namespace for pod in pods)
    where = f"{first} and {len(others)} more" if others else first
    return MyCustomResourceStatus(Healthy=True), Done(
        Reason.FRIEND_FOUND, f'Pod "{name}" exists in namespace {where}.'
    )


class MyCustomResourceController(Controller[MyCustomResource]):
    """A Pod that is created or deleted enqueues exactly the resources that name it."""

    def __init__(self, cache: Cache) -> None:
        self.cache = cache
        cache.store(PodMetadata).add_index(_POD_NAME_INDEX, lambda pod: pod.metadata.name)
        self.watches(
            PodMetadata,
            index_by=lambda resource: resource.spec.name,
            predicate=created_or_deleted,
            any_namespace=True,
        )

    async def reconcile(self, resource: MyCustomResource) -> Done:
        name = resource.spec.name
        if not name:
            raise Terminal(
                Reason.NAME_MISSING, "spec.name is empty. Set it to the name of the Pod to find."
            )
        resource.status, done = status_of(
            name, self.cache.by_index(PodMetadata, _POD_NAME_INDEX, name)
        )
        return done
