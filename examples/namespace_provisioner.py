"""Namespaces for a team, each with a quota and access for its members.

A Team is an object in a namespace, its children are not: a Namespace has no namespace, and the
quota and the RoleBinding are in another one. Owner references cannot cross namespaces, so such
children have labels, and the controller deletes them before the Team is removed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from kubewright import (
    Controller,
    Doc,
    Done,
    Namespace,
    Object,
    ObjectMeta,
    Resource,
    Spec,
    Status,
    Waiting,
    kind,
)
from kubewright.api.core_v1 import ResourceQuota, ResourceQuotaSpec
from kubewright.api.rbac_v1 import ClusterRole, RoleBinding, RoleRef, Subject

RBAC_GROUP = "rbac.authorization.k8s.io"
MEMBER_ROLE = "edit"


class TeamSpec(Spec):
    members: Annotated[list[str], Doc("Users that may edit objects in the namespaces.")]
    environments: Annotated[list[str], Doc("One namespace is created for each.")]
    pods: Annotated[int, Doc("Number of Pods in each namespace.", ge=0)] = 20


class TeamStatus(Status):
    namespaces: Annotated[list[str], Doc("The namespaces of the team.")] = []


@kind("examples.kubewright.dev/v1")
class Team(Resource[TeamSpec, TeamStatus]):
    """A team with namespaces of its own."""


class TeamController(Controller[Team]):
    def __init__(self) -> None:
        self.owns(Namespace, ResourceQuota, RoleBinding, cross_namespace=True)
        # RBAC lets an account grant a role only if it has the role, or may bind it.
        self.needs(ClusterRole, "bind", resource_names=(MEMBER_ROLE,))

    async def reconcile(self, team: Team) -> Done | Waiting:
        children = await self.apply(team, *build_children(team))
        team.status = TeamStatus(namespaces=list(namespace_names(team)))
        return children.outcome()


def namespace_names(team: Team) -> Iterator[str]:
    return (f"{team.metadata.name}-{environment}" for environment in team.spec.environments)


def build_children(team: Team) -> Iterator[Object]:
    role = RoleRef(apiGroup=RBAC_GROUP, kind="ClusterRole", name=MEMBER_ROLE)
    members = [Subject(apiGroup=RBAC_GROUP, kind="User", name=name) for name in team.spec.members]
    quota = ResourceQuotaSpec(hard={"pods": str(team.spec.pods)})
    for namespace in namespace_names(team):
        yield Namespace(metadata=ObjectMeta(name=namespace))
        metadata = ObjectMeta(name="team", namespace=namespace)
        yield ResourceQuota(metadata=metadata, spec=quota)
        yield RoleBinding(metadata=metadata, roleRef=role, subjects=members)
