"""Checks the permissions of this user against the generated roles, verb by verb."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator, Iterable, Sequence

from msgspec import Struct

from kubewright import Client
from kubewright.rbac import PolicyRule

from .finding import Finding, ok, problem
from .installation import Installation

APPLY_RBAC_COMMAND = "kubectl apply --server-side -k config/rbac"
_SERVICE_ACCOUNT_PREFIX = "system:serviceaccount:"
_MAX_CONCURRENT_REVIEWS = 8


class Grant(Struct, frozen=True, kw_only=True):
    """A generated role that the manager needs; namespace "" is the whole cluster."""

    role: str
    rules: Sequence[PolicyRule]
    namespace: str = ""
    namespaced_role: bool = False
    """Whether it is a Role, not a ClusterRole."""
    install_command: str = APPLY_RBAC_COMMAND
    chart_values: str = "rbac.create=true"
    """The values with which the chart has the role, and binds it."""
    binds_service_account: bool = True
    """Whether install_command also binds the role to the manager's service account."""


class AccessReview(Struct, frozen=True):
    """One question for SelfSubjectAccessReview; name "" is any object."""

    verb: str
    group: str
    resource: str
    namespace: str
    name: str = ""

    @property
    def _resource_title(self) -> str:
        # As kubectl prints it.
        resource = f"{self.resource}.{self.group}" if self.group else self.resource
        return f'{resource} "{self.name}"' if self.name else resource


async def whoami(client: Client) -> str:
    """The user name that the API server has authenticated."""
    review = await client.create_review(
        "/apis/authentication.k8s.io/v1/selfsubjectreviews",
        {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"},
    )
    return str(review.get("status", {}).get("userInfo", {}).get("username", ""))


async def check(
    client: Client, user: str, grants: Sequence[Grant], installation: Installation
) -> AsyncIterator[Finding]:
    """One finding if everything is allowed, else one for each forbidden resource."""
    count, forbidden = 0, False
    for grant in grants:
        reviews = _access_reviews_for(grant)
        count += len(reviews)
        allowed = await _review_access(client, reviews)
        denied = [review for review, allow in zip(reviews, allowed, strict=True) if not allow]
        for finding in _denied_findings(denied, user, grant, installation):
            forbidden = True
            yield finding
    if not forbidden:
        yield ok("rights", f'User "{user}" has all {count} permissions that the manager needs')


def _access_reviews_for(grant: Grant) -> list[AccessReview]:
    return [
        AccessReview(verb, group, resource, grant.namespace, name)
        for rule in grant.rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames", ("",))
        for verb in rule["verbs"]
    ]


async def _review_access(client: Client, reviews: Sequence[AccessReview]) -> list[bool]:
    limit = asyncio.Semaphore(_MAX_CONCURRENT_REVIEWS)

    async def is_allowed(review: AccessReview) -> bool:
        resource, _, subresource = review.resource.partition("/")
        attributes = {
            "verb": review.verb,
            "group": review.group,
            "resource": resource,
            "subresource": subresource,
            "namespace": review.namespace,
            "name": review.name,
        }
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {key: text for key, text in attributes.items() if text}},
        }
        async with limit:
            response = await client.create_review(
                "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body
            )
        return bool(response.get("status", {}).get("allowed"))

    return list(await asyncio.gather(*map(is_allowed, reviews)))


def _denied_findings(
    denied: Iterable[AccessReview], user: str, grant: Grant, installation: Installation
) -> list[Finding]:
    """One finding for each resource, with the command that binds the generated role."""
    verbs_by_resource: dict[str, list[str]] = {}
    for review in denied:
        verbs_by_resource.setdefault(review._resource_title, []).append(review.verb)
    scope = f"in namespace {grant.namespace}" if grant.namespace else "at the cluster scope"
    return [
        problem(
            "rights",
            f'{resource} is forbidden: user "{user}" cannot {" or ".join(verbs)} {scope}',
            _binding_command(user, grant, installation),
        )
        for resource, verbs in verbs_by_resource.items()
    ]


def _binding_command(user: str, grant: Grant, installation: Installation) -> str:
    """The command that binds the generated role to this user. Never a wider role."""
    install_command = installation.change_command(grant.install_command, grant.chart_values)
    by_kubectl = installation.tool == "kubectl"
    if _is_manager(user, installation) and (grant.binds_service_account or not by_kubectl):
        return install_command
    subject = (
        f"--serviceaccount={user.removeprefix(_SERVICE_ACCOUNT_PREFIX)}"
        if user.startswith(_SERVICE_ACCOUNT_PREFIX)
        else f"--user={shlex.quote(user)}"
    )
    suffix = "".join(letter if letter.isalnum() else "-" for letter in user).strip("-").lower()
    name = shlex.quote(f"{grant.role}-{suffix}")
    role = f"--{'role' if grant.namespaced_role else 'clusterrole'}={grant.role}"
    create = (
        f"kubectl -n {grant.namespace} create rolebinding"
        if grant.namespace
        else "kubectl create clusterrolebinding"
    )
    bind_command = f"{create} {name} {role} {subject}"
    if by_kubectl:
        return f"{install_command} && {bind_command}"
    return f"{bind_command}   # if the role does not exist, first: {install_command}"


def _is_manager(user: str, installation: Installation) -> bool:
    accounts = f"{_SERVICE_ACCOUNT_PREFIX}{installation.namespace}:"
    # A value of the chart names the account.
    return user == f"{accounts}controller-manager" or (
        installation.tool == "helm" and user.startswith(accounts)
    )
