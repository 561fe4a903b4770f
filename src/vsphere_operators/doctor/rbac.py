"""What this identity may do in the cluster, beside what the generated roles give; asked for each verb of each rule."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator, Iterable, Sequence

from msgspec import Struct

from kubewright import Client
from kubewright.rbac import PolicyRule

from .finding import Finding, ok, problem

_APPLY_RBAC_COMMAND = "kubectl apply -k config/rbac"
_SERVICE_ACCOUNT_PREFIX = "system:serviceaccount:"
_MAX_CONCURRENT_REVIEWS = 8


class Grant(Struct, frozen=True, kw_only=True):
    """A generated role: its name, what it allows, and where; namespace "" is everywhere."""

    role: str
    rules: Sequence[PolicyRule]
    namespace: str = ""
    namespaced_role: bool = False
    """Whether it is a Role, which is bound in its namespace alone."""
    install_command: str = _APPLY_RBAC_COMMAND
    """The command that makes it."""
    binds_service_account: bool = True
    """Whether that also binds it to the manager's own account."""


class AccessReview(Struct, frozen=True):
    """May we do this?"""

    verb: str
    group: str
    resource: str
    namespace: str
    name: str = ""
    """"" is whatever it is called."""

    @property
    def resource_title(self) -> str:
        """The resource as kubectl writes it."""
        resource = f"{self.resource}.{self.group}" if self.group else self.resource
        return f'{resource} "{self.name}"' if self.name else resource


async def whoami(client: Client) -> str:
    """The name that the API server knows us by."""
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    answer = await client.create_review(
        path, {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    )
    return str(answer.get("status", {}).get("userInfo", {}).get("username", ""))


async def check(client: Client, user: str, grants: Sequence[Grant]) -> AsyncIterator[Finding]:
    """One line for all that is allowed, one for each resource that is not."""
    asked, refused = 0, False
    for grant in grants:
        questions = access_reviews_for(grant)
        answers = await _review_access(client, questions)
        asked += len(questions)
        denied = [
            question for question, allowed in zip(questions, answers, strict=True) if not allowed
        ]
        for finding in denied_findings(denied, user, grant):
            refused = True
            yield finding
    if not refused:
        yield ok("rights", f'"{user}" has all {asked} rights that the manager needs')


def access_reviews_for(grant: Grant) -> list[AccessReview]:
    """Every verb on every resource of the rules."""
    return [
        AccessReview(verb, group, resource, grant.namespace, name)
        for rule in grant.rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames", ("",))
        for verb in rule["verbs"]
    ]


async def _review_access(client: Client, questions: Sequence[AccessReview]) -> list[bool]:
    """The answers, some at once."""
    room = asyncio.Semaphore(_MAX_CONCURRENT_REVIEWS)

    async def one(question: AccessReview) -> bool:
        async with room:
            return await _is_allowed(client, question)

    return list(await asyncio.gather(*(one(each) for each in questions)))


async def _is_allowed(client: Client, question: AccessReview) -> bool:
    """SelfSubjectAccessReview."""
    resource, _, subresource = question.resource.partition("/")
    wish = {
        "verb": question.verb,
        "group": question.group,
        "resource": resource,
        "subresource": subresource,
    }
    wish |= {"namespace": question.namespace, "name": question.name}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {key: value for key, value in wish.items() if value}},
    }
    answer = await client.create_review(
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body
    )
    return bool(answer.get("status", {}).get("allowed"))


def denied_findings(denied: Iterable[AccessReview], user: str, grant: Grant) -> list[Finding]:
    """One line a resource, with what binds the generated role and no more."""
    verbs: dict[str, list[str]] = {}
    for question in denied:
        verbs.setdefault(question.resource_title, []).append(question.verb)
    where = f" in namespace {grant.namespace}" if grant.namespace else ""
    return [
        problem(
            "rights",
            f'{title} is forbidden: "{user}" may not {" or ".join(names)} them{where}',
            binding_command(user, grant),
        )
        for title, names in verbs.items()
    ]


def binding_command(user: str, grant: Grant) -> str:
    """The command that gives the generated role to this identity. Never a wider one."""
    if (
        user == f"{_SERVICE_ACCOUNT_PREFIX}vsphere-operators-system:controller-manager"
        and grant.binds_service_account
    ):
        return grant.install_command
    whom = (
        f"--serviceaccount={user.removeprefix(_SERVICE_ACCOUNT_PREFIX)}"
        if user.startswith(_SERVICE_ACCOUNT_PREFIX)
        else f"--user={shlex.quote(user)}"
    )
    name = shlex.quote(
        f"{grant.role}-{''.join(letter if letter.isalnum() else '-' for letter in user).strip('-').lower()}"
    )
    role = f"--{'role' if grant.namespaced_role else 'clusterrole'}={grant.role}"
    if grant.namespace:
        return f"{grant.install_command} && kubectl -n {grant.namespace} create rolebinding {name} {role} {whom}"
    return f"{grant.install_command} && kubectl create clusterrolebinding {name} {role} {whom}"
