"""Deletes objects with kubectl, and checks before that the deletion can end.

Why are the CRDs deleted first?  Only the manager removes the finalizers of their objects. It still
    runs then, and has its permissions.
Why does it stop when no manager is ready?  Without one, the deletion of a CRD never ends if an
    object has a finalizer, and it cannot be cancelled.
Why are the objects read again at the end?  A kuberc can change what `kubectl delete` does, and its
    exit code does not show that.
"""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import click

from ..errors import ConfigError
from ..yaml_text import to_yaml
from .cluster import (
    Cluster,
    Reference,
    format_name,
    format_names,
    is_being_deleted,
    list_finalizers,
)
from .installations import Installation, Writers, list_other_operators, read_account
from .manifests.installer import Object, split_installer

_MAX_LISTED_OBJECTS = 10
# Added to the timeout of kubectl, for a server that does not respond.
_MARGIN_SECONDS = 30


@dataclass(frozen=True)
class Deletion:
    cluster: Cluster
    deadline: float
    retry: str
    """The command that continues."""
    log_command: str = ""
    """Shows the log of the manager; empty if it runs outside of the cluster."""

    def delete(self, items: list[Object]) -> bool:
        """Delete these objects, and wait until they are gone; False if something is left."""
        if not items:
            return True
        seconds = max(1, round(self.deadline - time.monotonic()))
        # A kuberc may have other defaults.
        options = (
            *("--ignore-not-found", "--interactive=false", "--wait", "--dry-run=none"),
            *("--cascade=background", "--force=false"),
        )
        command = [self.cluster.kubectl, "delete", *options, f"--timeout={seconds}s", "-f", "-"]
        documents = [
            {
                "apiVersion": item["apiVersion"],
                "kind": item["kind"],
                "metadata": {
                    key: item["metadata"][key]
                    for key in ("name", "namespace")
                    if key in item["metadata"]
                },
            }
            for item in items
        ]
        text = to_yaml(*documents)
        try:
            process = subprocess.run(
                command, input=text, text=True, timeout=seconds + _MARGIN_SECONDS
            )
            exit_code = process.returncode
        except subprocess.TimeoutExpired:
            exit_code = 1
            click.echo("kubewright: kubectl did not end in time and was stopped", err=True)
        try:
            left = self._list_left_objects(items)
        except ConfigError as error:
            click.echo(
                f"kubewright: it is unknown whether everything was removed: {error}\n"
                f"To check, and to continue, run: {self.retry}",
                err=True,
            )
            return False
        if not left:
            return True
        self._report(left, exit_code)
        return False

    def _list_left_objects(self, items: list[Object]) -> list[Object]:
        # The deadline of the reads before may have passed.
        cluster = Cluster(self.cluster.kubectl)
        uids = {item["metadata"]["uid"] for item in items}
        left = cluster.read_objects(map(Reference.of, items), "what is left")
        return [item for item in left if item["metadata"]["uid"] in uids]

    def _report(self, left: list[Object], exit_code: int) -> None:
        deleting = [item for item in left if is_being_deleted(item)]
        if not deleting:
            reason = (
                "for the reason above"
                if exit_code
                else f"although kubectl reports no error: {format_names(left)}"
            )
            click.echo(
                f"kubewright: not everything was removed, {reason}.\n"
                f"When it is fixed, run: {self.retry}",
                err=True,
            )
            return
        lines = ["kubewright: not everything was removed. Still being deleted:"]
        try:
            lines += _describe(Cluster(self.cluster.kubectl), deleting)
        except ConfigError as error:
            lines.append(f"  {error}")
        if any(map(list_finalizers, deleting)):
            lines.append("A controller removes each finalizer when it has finished its work.")
        if self.log_command:
            lines.append(
                f"If it is the manager, its log shows what it waits for: {self.log_command}"
            )
        lines.append(f"To continue, and to wait longer, run: {self.retry} ARGS=--timeout=1800")
        click.echo("\n".join(lines), err=True)


def _describe(cluster: Cluster, deleting: list[Object]) -> list[str]:
    """The finalizers, and the reasons of namespaces. Of a CRD, its objects: it waits for them."""
    crds, namespaces, _ = split_installer(deleting)
    items = [item for item in deleting if item not in crds]
    items += [item for item in list_custom_objects(cluster, crds) if is_being_deleted(item)]
    lines = [
        f"  {format_name(item)}: {', '.join(list_finalizers(item))}"
        for item in items
        if list_finalizers(item)
    ]
    for item in namespaces:
        lines += [
            f"  {format_name(item)}: {condition.get('message') or condition['type']}"
            for condition in item.get("status", {}).get("conditions") or ()
            if condition["status"] == "True"
        ]
    lines = lines or [f"  {format_names(deleting)}"]
    more = len(lines) - _MAX_LISTED_OBJECTS
    return lines[:_MAX_LISTED_OBJECTS] + ([f"  and {more} more"] if more > 0 else [])


def check_installations(
    cluster: Cluster,
    command: str,
    own: Installation | None,
    installations: list[Installation],
    crds: list[Object],
) -> None:
    """Fail if another tool has installed the operator, or another operator uses the CRDs."""
    if own and own.tool:
        raise ConfigError(
            f"{own} is managed by another tool. Nothing was deleted.\nTo remove it: {own.removal}"
        )
    others = [item for item in installations if item.deployment and item is not own]
    others += list_other_operators(cluster, installations, crds)
    if not others:
        return
    lines = [
        f"{command} would delete the CRDs with all their objects, and these also use them: "
        f"{' and '.join(map(str, others))}. Nothing was deleted."
    ]
    if own and own.deployment:
        lines.append(
            f"To remove only {own}, and to keep the CRDs: {own.removal}\n"
            f"After that, do not run {command}: it would remove the other installation."
        )
    lines += [
        f"To remove {item}, before you run {command} again: {item.removal}" for item in others
    ]
    raise ConfigError("\n".join(lines))


def check_finalizers(
    cluster: Cluster,
    own: Installation | None,
    crds: list[Object],
    custom_objects: list[Object],
) -> None:
    """Fail if the deletion of the CRDs would wait for a manager that cannot remove finalizers."""
    waiting = [item for item in custom_objects if list_finalizers(item)]
    if not waiting:
        return
    begun = [item for item in crds if is_being_deleted(item)]
    if own and own.is_ready:
        if Writers.read(cluster, crds, with_wildcards=True).includes(own):
            return
        reason = (
            f"no binding of a role names the ServiceAccount {read_account(own)} of {own}, so it "
            "lacks the permission to remove"
        )
        # While a CRD is being deleted, deploy stops.
        advice = (
            "To remove the finalizers with the permissions of your kubeconfig: make run"
            if begun
            else "To restore the permission: make deploy"
        )
    else:
        reason = "no manager is ready, and only a manager removes"
        if own and own.deployment and not own.replicas:
            advice = (
                f"To start it: kubectl -n {own.namespace} scale deployment {own.name} --replicas=1"
            )
        elif own and own.deployment:
            advice = f"To find out why: kubectl -n {own.namespace} get pods,events"
        else:
            advice = "To run one: make run" if begun else "To run one in the cluster: make deploy"
    state = (
        f"The deletion of {format_names(begun)} has already begun, and cannot be cancelled."
        if begun
        else "Nothing was deleted."
    )
    raise ConfigError(
        f"{reason} the finalizers of {format_names(waiting)}. The deletion of the CRDs would wait "
        f"for it forever. {state}\n"
        f"{advice}\n"
        "If the manager runs outside of the cluster, such as with `make run`: delete these objects "
        "first, while it runs. This destroys what they stand for."
    )


def report_begun_deletions(items: Iterable[Object]) -> None:
    if begun := [item for item in items if is_being_deleted(item)]:
        click.echo(f"the deletion of {format_names(begun)} has already begun", err=True)


def report_plan(
    cluster: Cluster, subject: str, items: list[Object], custom_objects: list[Object]
) -> None:
    """Where, and how many objects of each kind."""
    lines = [f"removing {subject} from {cluster.describe()}:"]
    lines += [f"  {count} {kind}" for kind, count in Counter(i["kind"] for i in items).items()]
    counts = Counter(item["kind"] for item in custom_objects)
    lines += [f"  {count} {kind}, with its CRD" for kind, count in counts.items()]
    waiting = [item for item in custom_objects if list_finalizers(item)]
    for kind in sorted({item["kind"] for item in waiting}):
        of_kind = [item for item in waiting if item["kind"] == kind]
        policies = Counter(
            item["spec"]["deletionPolicy"]
            for item in of_kind
            if "deletionPolicy" in (item.get("spec") or {})
        )
        policy = ", ".join(f"{name}: {count}" for name, count in sorted(policies.items()))
        lines.append(
            f"  {len(of_kind)} {kind} with finalizers: the manager deletes what they stand for"
            + (f", according to their deletionPolicy ({policy})" if policy else "")
        )
    click.echo("\n".join(lines), err=True)


def list_custom_objects(cluster: Cluster, crds: list[Object]) -> list[Object]:
    """The objects of CRDs that are installed."""
    if not crds:
        return []
    types = ",".join(_format_stored_type(crd) for crd in crds)
    return cluster.list_objects(types, "-A", subject="the objects of the CRDs")


def _format_stored_type(crd: Object) -> str:
    """With the stored version: for another, the API server may call a webhook of the manager."""
    names, versions = crd["spec"]["names"], crd["spec"]["versions"]
    served = [version for version in versions if version["served"]] or versions
    stored = next((version for version in served if version["storage"]), served[0])
    return f"{names['plural']}.{stored['name']}.{crd['spec']['group']}"
