"""`adopt NAME`: adopt VMs in the folder of a VmGroup, or undo their adoption.

The manager decides which VMs can be adopted, and changes them: it has the credentials of vCenter
and sees all groups. This command shows its decision, and requests with an annotation exactly the
VMs that it has shown.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from kubewright import Client, Key
from kubewright.errors import KubewrightError

from ..console import Style
from ..kinds.vmgroup.adoption import hash_request
from ..kinds.vmgroup.types import (
    ADOPT_ANNOTATION,
    UNDO_ADOPTION,
    AdoptionVmStatus,
    ReplicaStatus,
    VmGroup,
)
from .table import Cell, Columns, build_table, render_table

_T = TypeVar("_T")
_POLL_SECONDS = 0.5
# Of VMs that may be the group's.
_NOT_ADOPTED_YET = ("Waiting", "Refused")
_VERDICT_STYLES: dict[str, Style] = {"Adoptable": "good", "Waiting": "busy", "Refused": "bad"}


class AdoptionRefused(KubewrightError):
    """The manager does not adopt the VMs."""


class AdoptionTimeout(KubewrightError):
    """The manager has not finished in time, and continues."""


def add_adopt_parser(commands: Any, shared: argparse.ArgumentParser) -> None:
    """Add the command to the subparsers of argparse."""
    command = commands.add_parser(
        "adopt",
        parents=[shared],
        help="Let a VmGroup adopt VMs of the original operator, or of a deleted VmGroup of the "
        "same name. Without --yes, only show what would be adopted.",
    )
    command.add_argument("name", metavar="NAME", help="Name of the VmGroup.")
    command.add_argument("--yes", action="store_true", help="Adopt the VMs.")
    command.add_argument(
        "--undo",
        action="store_true",
        help="Undo the adoption: VMs get back their instanceUuid and owner.",
    )
    command.add_argument(
        "--timeout",
        type=float,
        default=120.0,
        metavar="SECONDS",
        help="How long to wait for the manager. Default: 120.",
    )


class AdoptCommand:
    def __init__(
        self,
        client: Client,
        key: Key,
        options: argparse.Namespace,
        sleep: Callable[[float], Any] = asyncio.sleep,
    ) -> None:
        self._client, self._key, self._options, self._sleep = client, key, options, sleep

    async def run(self, *, width: int, color: bool) -> tuple[Any, Callable[[], str]]:
        """The value for JSON and YAML, and what renders it as text."""
        group = await self._client.get(VmGroup, self._key)
        if self._options.undo:
            return await self._undo(group, width=width, color=color)
        status = group.status.adoption
        vms = status.vms if status is not None else []
        table = _render_vms(vms, width=width, color=color)
        adoptable = [vm for vm in vms if vm.verdict == "Adoptable"]
        if not adoptable:
            reason = _explain_nothing_to_adopt(group, vms)
            if self._options.yes and any(vm.verdict in _NOT_ADOPTED_YET for vm in vms):
                raise AdoptionRefused(f"{reason}\n\n{table}")
            return vms, lambda: "\n\n".join(filter(None, [table, reason]))
        if status is not None and not status.observedRequest and status.message:
            raise AdoptionRefused("\n\n".join([f"Nothing can be adopted. {status.message}", table]))
        if not self._options.yes:
            summary = " ".join(_describe_plan(group, adoptable, self._key))
            return vms, lambda: f"{table}\n\n{summary}"
        adopted = await self._adopt(adoptable)
        noun = "VM" if len(adopted) == 1 else "VMs"
        return adopted, lambda: "\n".join(
            [
                *(f"Adopted {replica.name} ({replica.moRef})" for replica in adopted),
                f"VmGroup {self._key} has adopted {len(adopted)} {noun}.",
            ]
        )

    async def _adopt(self, vms: Sequence[AdoptionVmStatus]) -> list[ReplicaStatus]:
        uuids = {vm.instanceUUID for vm in vms}
        text = ",".join(sorted(uuids))
        await self._annotate(text)

        def find_adopted(group: VmGroup) -> list[ReplicaStatus] | None:
            status = group.status.adoption
            is_answer = status is not None and status.observedRequest == hash_request(text)
            if status is not None and is_answer and status.message:
                raise AdoptionRefused(f"Nothing was adopted. {status.message}")
            adopted = [
                replica
                for replica in group.status.replicas
                if replica.adoptedFrom in uuids and replica.state == "Present"
            ]
            return adopted if len(adopted) == len(uuids) else None

        try:
            adopted = await self._wait_for(find_adopted, "adopted", hash_request(text))
        except AdoptionRefused:
            await self._annotate(None)
            raise
        await self._annotate(None)
        return adopted

    async def _undo(
        self, group: VmGroup, *, width: int, color: bool
    ) -> tuple[Any, Callable[[], str]]:
        adopted = [replica for replica in group.status.replicas if replica.adoptedFrom]
        columns: Columns[ReplicaStatus] = {
            "VM": lambda replica: replica.name,
            "MOREF": lambda replica: replica.moRef,
            "INSTANCE UUID BEFORE": lambda replica: replica.adoptedFrom,
        }
        table = render_table(build_table(adopted, columns), width=width, color=color)
        if not adopted:
            return [], lambda: f"VmGroup {self._key} has no adopted VM."
        if not self._options.yes:
            return (
                adopted,
                lambda: (
                    f"{table}\n\nDry run: nothing was changed. With --yes, {len(adopted)} of the "
                    "group's VMs get back the instanceUuid and the owner that they had. They keep "
                    "running, and the group creates no VMs in their place."
                ),
            )
        await self._annotate(UNDO_ADOPTION)

        def is_undone(current: VmGroup) -> bool | None:
            if any(replica.adoptedFrom for replica in current.status.replicas):
                return None
            status = current.status.adoption
            is_observed = status is not None and status.observedRequest == hash_request(
                UNDO_ADOPTION
            )
            return True if is_observed else None

        await self._wait_for(is_undone, "undone", hash_request(UNDO_ADOPTION))
        noun = "VM" if len(adopted) == 1 else "VMs"
        message = (
            f"The adoption of {len(adopted)} {noun} of VmGroup {self._key} is undone. The group "
            f"creates no VMs until you run adopt again, or remove the annotation:\n"
            f"  kubectl annotate vmgroup {self._key.name} -n {self._key.namespace} "
            f"{ADOPT_ANNOTATION}-"
        )
        return adopted, lambda: message

    async def _annotate(self, text: str | None) -> None:
        patch = {"metadata": {"annotations": {ADOPT_ANNOTATION: text}}}
        await self._client.patch(VmGroup, self._key, patch)

    async def _wait_for(
        self, find: Callable[[VmGroup], _T | None], what: str, request_hash: str
    ) -> _T:
        deadline = asyncio.get_running_loop().time() + self._options.timeout
        while True:
            group = await self._client.get(VmGroup, self._key)
            result = find(group)
            if result is not None:
                return result
            if asyncio.get_running_loop().time() >= deadline:
                status = group.status.adoption
                is_observed = status is not None and status.observedRequest == request_hash
                # The last message is older than a request that the manager has not seen.
                reason = (
                    f"{group.status.lastMessage} The manager continues"
                    if is_observed
                    else "The manager has not seen the request. Check that it runs"
                )
                raise AdoptionTimeout(
                    f"VmGroup {self._key} is not {what} after {self._options.timeout:g} s. "
                    f"{reason.lstrip()}. To see its progress, run: kubectl vsphere describe group "
                    f"{self._key.name} -n {self._key.namespace}"
                )
            await self._sleep(_POLL_SECONDS)


def _render_vms(vms: Sequence[AdoptionVmStatus], *, width: int, color: bool) -> str:
    columns: Columns[AdoptionVmStatus] = {
        "VM": lambda vm: vm.name,
        "MOREF": lambda vm: vm.moRef,
        "VERDICT": lambda vm: Cell(vm.verdict, _VERDICT_STYLES.get(vm.verdict, "")),
        "MESSAGE": lambda vm: vm.message,
    }
    if not vms:
        return ""
    return render_table(build_table(vms, columns, wrap_last_column=True), width=width, color=color)


def _explain_nothing_to_adopt(group: VmGroup, vms: Sequence[AdoptionVmStatus]) -> str:
    if any(vm.verdict in _NOT_ADOPTED_YET for vm in vms):
        return f"No VM can be adopted by VmGroup {group.key} now. The table has the reasons."
    if group.status.observedGeneration is None:
        return "The manager has not reconciled this VmGroup yet. Try again when it has a phase."
    return (
        f"VmGroup {group.key} has nothing to adopt: its folder contains no VM with the name of "
        "one of its replicas, or of a deleted VmGroup of this name."
    )


def _describe_plan(
    group: VmGroup, adoptable: Sequence[AdoptionVmStatus], key: Key
) -> Iterator[str]:
    noun = "VM" if len(adoptable) == 1 else "VMs"
    yield (
        f"Dry run: nothing was changed. With --yes, VmGroup {key} adopts {len(adoptable)} {noun}: "
        "each gets the group's mark (extraConfig) and a new instanceUuid. They keep running."
    )
    active = sum(not replica.leaving for replica in group.status.replicas)
    missing = group.spec.replicas - active - len(adoptable)
    if missing > 0:
        yield f"The group then creates {missing} more: spec.replicas is {group.spec.replicas}."
