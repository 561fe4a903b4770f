"""The CRDs: there, served in our version, and the same as those that are generated."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

from kubewright import Client, Key, Object, kind
from kubewright.crd import build_crds
from kubewright.errors import Forbidden, NotFound

from .crd_drift import diff_specs
from .finding import Finding, ok, problem, warning

_INSTALL_COMMAND = "kubectl apply -k config/crd"
_MAX_PATHS_SHOWN = 3


@kind("apiextensions.k8s.io/v1", namespaced=False)
class CustomResourceDefinition(Object, omit_defaults=True):
    """A CRD as the API server has it."""

    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}


async def check(client: Client, kinds: Sequence[type[Object]]) -> AsyncIterator[Finding]:
    """One line for all that are well, one for each that is not."""
    missing = [each for each in kinds if not await client.is_served(each)]
    present = [each for each in kinds if each not in missing]
    if missing:
        yield _missing_crds_finding(missing, len(kinds))
    try:
        found = [(each, await _get_crd(client, each)) for each in present]
    except Forbidden:
        if present:
            yield ok(
                "CRDs",
                f"{_count_with_verb(present)} installed; this identity may not read their schemas, as the manager need not. "
                "Run the doctor as an administrator to compare them.",
            )
        return
    bad = [finding for each, crd in found for finding in _check_crd(each, crd)]
    for finding in bad:
        yield finding
    if present and not bad:
        yield ok(
            "CRDs",
            f"{_count_with_verb(present)} installed, each as this version of the manager generates it",
        )


def _missing_crds_finding(missing: Sequence[type[Object]], wanted: int) -> Finding:
    """Kinds that the API server does not know."""
    names = ", ".join(each.definition.group_resource for each in missing)
    return problem(
        "CRDs",
        f"{len(missing)} of {wanted} are not installed: {names}. Objects of these kinds cannot be made.",
        _INSTALL_COMMAND,
    )


async def _get_crd(client: Client, each: type[Object]) -> CustomResourceDefinition | None:
    """The CRD of a kind; None where another API server than the CRDs' serves it."""
    try:
        return await client.get(CustomResourceDefinition, Key("", each.definition.group_resource))
    except NotFound:
        return None


def _check_crd(each: type[Object], crd: CustomResourceDefinition | None) -> Iterable[Finding]:
    """What is wrong with an installed CRD."""
    name = each.definition.group_resource
    if crd is None:
        yield warning(
            "CRDs",
            f"{name} is served, but there is no CRD of that name: something else provides it",
        )
        return
    (generated,) = build_crds([each])
    if paths := diff_specs(generated["spec"], crd.spec):
        shown = ", ".join(paths[:_MAX_PATHS_SHOWN]) + (
            f" and {len(paths) - _MAX_PATHS_SHOWN} more" if len(paths) > _MAX_PATHS_SHOWN else ""
        )
        yield problem(
            "CRDs",
            f"{name} is of another version than this manager: it differs at {shown}",
            _INSTALL_COMMAND,
        )


def _count_with_verb(kinds: Sequence[object]) -> str:
    """How many, with the verb."""
    return f"{len(kinds)} are" if len(kinds) > 1 else "1 is"
