"""Checks that the CRDs are installed and equal those that this manager generates."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any

from kubewright import Client, Key, Object, kind
from kubewright.crd import build_crds
from kubewright.errors import Forbidden, KubewrightError, NotFound

from ..kinds.vmgroup import VmGroup
from .finding import Finding, ok, problem, warning
from .installation import Installation

_INSTALL_COMMAND = "kubectl apply --server-side -k config/crd"
_VMGROUP_DELETION = (
    " The manager destroys the VMs of each VmGroup first, unless it has deletionPolicy: Orphan."
)
_MAX_PATHS_SHOWN = 3
# Lists in a CRD are compared by item: versions by name, printer columns by name or jsonPath.
_LIST_ITEM_KEYS = ("name", "jsonPath")
_SERVER_DEFAULTED_FIELDS = ("conversion", "preserveUnknownFields")


@kind("apiextensions.k8s.io/v1", namespaced=False, external=True)
class CustomResourceDefinition(Object, omit_defaults=True):
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}


async def check(
    client: Client, kinds: Sequence[type[Object]], installation: Installation
) -> AsyncIterator[Finding]:
    """One finding for all CRDs that match, one for each that does not."""
    # A controller of Nodes has a kind without a CRD.
    kinds = [kind for kind in kinds if not kind.definition.external]
    install_command = installation.change_command(_INSTALL_COMMAND, "crds.install=true")
    missing = [kind for kind in kinds if not await client.is_served(kind)]
    present = [kind for kind in kinds if kind not in missing]
    if missing:
        names = ", ".join(kind.definition.group_resource for kind in missing)
        yield problem(
            "CRDs",
            f"{len(missing)} of {len(kinds)} CRDs are not installed: {names}. "
            "Objects of these kinds cannot be created.",
            install_command,
        )
    if not present:
        return
    count = f"{len(present)} CRD{'s' if len(present) > 1 else ''}"
    try:
        findings: list[Finding] = []
        for kind in present:
            try:
                key = Key("", kind.definition.group_resource)
                crd = await client.get(CustomResourceDefinition, key)
            except NotFound:
                crd = None
            if crd is not None and crd.metadata.deletionTimestamp is not None:
                findings.append(await _check_deletion(client, kind, crd, install_command))
            else:
                findings += _compare_crd(kind, crd, install_command)
    except Forbidden:
        # The manager's own role does not include CRDs, so this is normal inside its Pod.
        yield ok(
            "CRDs",
            f"{count} installed; schemas not compared because this user cannot read CRDs "
            "(the manager does not need to). Run the doctor as an administrator to compare them.",
        )
        return
    for finding in findings:
        yield finding
    if not findings:
        yield ok("CRDs", f"{count} installed; schemas match this version of the manager")


async def _check_deletion(
    client: Client, kind: type[Object], crd: CustomResourceDefinition, install_command: str
) -> Finding:
    name = crd.metadata.name
    remaining = await _count_remaining(client, kind)
    return problem(
        "CRDs",
        f"{name} has been in deletion since {crd.metadata.deletionTimestamp:%Y-%m-%dT%H:%M:%SZ}, "
        f"with all its objects: {remaining}. No object of this kind can be created. Objects with "
        "a finalizer remain until the manager removes it, so a manager must run. When the CRD is "
        f"deleted, install it again.{_VMGROUP_DELETION if kind is VmGroup else ''}",
        f"kubectl wait --for=delete crd/{name} --timeout=5m && {install_command}"
        f"   # what remains: kubectl get {name} -A",
    )


async def _count_remaining(client: Client, kind: type[Object]) -> str:
    try:
        count = sum([len(page.items) async for page in client.list_pages(kind)])
    except KubewrightError:
        return "their number is unknown because they cannot be listed"
    return f"{count} remain{'s' if count == 1 else ''}"


def _compare_crd(
    kind: type[Object], crd: CustomResourceDefinition | None, install_command: str
) -> Iterator[Finding]:
    name = kind.definition.group_resource
    if crd is None:
        yield warning(
            "CRDs", f"{name} is served, but not by a CRD: an aggregated API server provides it"
        )
        return
    (generated,) = build_crds([kind])
    if paths := _diff_specs(generated["spec"], crd.spec):
        differing_fields = ", ".join(paths[:_MAX_PATHS_SHOWN])
        if len(paths) > _MAX_PATHS_SHOWN:
            differing_fields += f" and {len(paths) - _MAX_PATHS_SHOWN} more"
        yield problem(
            "CRDs",
            f"{name} does not match this version of the manager; it differs at {differing_fields}",
            install_command,
        )


def _diff_specs(generated: Mapping[str, Any], installed: Mapping[str, Any]) -> list[str]:
    """The paths below spec at which two CRDs differ; fields that the server adds are ignored."""
    stored = {key: value for key, value in installed.items() if key not in _SERVER_DEFAULTED_FIELDS}
    return list(_diff_values(generated, stored, ""))


def _diff_values(generated: Any, installed: Any, path: str) -> Iterator[str]:
    """The deepest paths at which two JSON values differ."""
    if isinstance(generated, Mapping) and isinstance(installed, Mapping):
        for key in [*generated, *(key for key in installed if key not in generated)]:
            key_path = f"{path}.{key}" if path else str(key)
            if key not in installed:
                yield f"{key_path} (missing in the cluster)"
            elif key not in generated:
                yield f"{key_path} (only in the cluster)"
            else:
                yield from _diff_values(generated[key], installed[key], key_path)
    elif _index_items(generated) and _index_items(installed):
        yield from _diff_values(_index_items(generated), _index_items(installed), path)
    elif generated != installed:
        yield path


def _index_items(value: Any) -> dict[str, Any]:
    """A list of named items as a mapping, {} for any other value."""
    if (
        not isinstance(value, Sequence)
        or isinstance(value, str)
        or not all(isinstance(item, Mapping) for item in value)
    ):
        return {}
    key = next((key for key in _LIST_ITEM_KEYS if all(key in item for item in value)), "")
    return {str(item[key]): item for item in value} if key else {}
