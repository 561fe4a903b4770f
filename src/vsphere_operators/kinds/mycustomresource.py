"""MyCustomResource: is there a Pod of this name, anywhere in the cluster?"""

from __future__ import annotations

from collections.abc import Sequence
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


class MyCustomResourceSpec(Spec):
    """Whom the resource is looking for."""

    name: Annotated[str, Doc("Name of the friend: the Pod to look for, in any namespace.")] = ""


class MyCustomResourceStatus(Status):
    """Whether it was found."""

    Healthy: Annotated[bool, Doc("True while a Pod of that name exists.")] = False


@kind(
    "poc.test.domain/v1",
    columns=[Column("Friend", ".spec.name"), Column("Healthy", ".status.Healthy")],
)
class MyCustomResource(Resource[MyCustomResourceSpec, MyCustomResourceStatus]):
    """A resource that is healthy while its friend, a Pod, exists."""


def check_friends(name: str, friends: Sequence[PodMetadata]) -> tuple[MyCustomResourceStatus, Done]:
    """The status, and the words for it, of a resource whose friend goes by this name."""
    if not friends:
        return MyCustomResourceStatus(Healthy=False), Done(
            "NoFriend", f'no Pod named "{name}" exists'
        )
    first, *others = sorted(pod.metadata.namespace for pod in friends)
    where = f"{first} and {len(others)} more" if others else first
    return MyCustomResourceStatus(Healthy=True), Done(
        "FriendFound", f'Pod "{name}" exists in namespace {where}'
    )


class MyCustomResourceController(Controller[MyCustomResource]):
    """Follows Pods by name; one that comes or goes wakes exactly the resources that name it."""

    def __init__(self, cache: Cache) -> None:
        self.cache = cache
        cache.store(PodMetadata).add_index(_POD_NAME_INDEX, lambda pod: pod.metadata.name)
        self.wake_on(PodMetadata, by=lambda resource: resource.spec.name, when=created_or_deleted)

    async def reconcile(self, resource: MyCustomResource) -> Done:
        """Look for the friend among the Pods in memory."""
        name = resource.spec.name
        if not name:
            raise Terminal(
                "NameMissing", "spec.name is empty; set it to the name of the Pod to look for"
            )
        resource.status, done = check_friends(
            name, self.cache.by_index(PodMetadata, _POD_NAME_INDEX, name)
        )
        return done
