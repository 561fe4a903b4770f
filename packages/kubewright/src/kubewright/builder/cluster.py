"""What `kubewright deploy` and `undeploy` read from the cluster, with kubectl."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass

from ..errors import ConfigError
from ..yaml_text import to_yaml
from .manifests.installer import Object
from .program import run_program

_READ_TIMEOUT_SECONDS = 60
_MIN_READ_TIMEOUT_SECONDS = 10
# A line of the log of client-go, such as `E1118 12:00:00.000000 1 memcache.go:265] ...`. If the API
# server is down, kubectl logs the same error five times before its own message.
_LOG_LINE = re.compile(r"^[EWI]\d{4} \d\d:\d\d:\d\d\.\d+ ")
_FORBIDDEN = "(Forbidden)"
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_CLIENT_SIDE_APPLY = "kubectl-client-side-apply"
# kubectl keeps its annotation as a manager of its own.
_APPLY_MANAGERS = frozenset({"kubectl", "kubectl-last-applied"})


class KubectlForbidden(ConfigError):
    """The user of the kubeconfig lacks a permission."""


@dataclass(frozen=True, order=True)
class Reference:
    """Names an object, without the version of its type."""

    group: str
    kind: str
    namespace: str
    name: str

    @classmethod
    def of(cls, item: Object) -> Reference:
        metadata, group = item["metadata"], item["apiVersion"].rpartition("/")[0]
        return cls(group, item["kind"], metadata.get("namespace", ""), metadata["name"])

    @property
    def type(self) -> str:
        """As kubectl accepts it: a kind alone may be in several groups."""
        return f"{self.kind}.{self.group}" if self.group else self.kind

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace + '/' if self.namespace else ''}{self.name}"


@dataclass(frozen=True)
class _Type:
    api_version: str
    is_namespaced: bool


@dataclass(frozen=True)
class Cluster:
    """The cluster of the kubeconfig."""

    kubectl: str
    deadline: float = math.inf
    """Of the monotonic clock. A call of kubectl ends at most 10 s later."""

    def list_objects(self, *arguments: str, subject: str) -> list[Object]:
        """What `kubectl get` finds. The subject is for the error message."""
        return self._get(*arguments, subject=subject)

    def read_objects(self, references: Iterable[Reference], subject: str) -> list[Object]:
        """Those that exist, with managedFields. Without its kind, an object cannot exist."""
        types, references = self._list_types(), sorted(references)
        missing = {item.group for item in references if (item.group, item.kind) not in types}
        if missing:
            self._check_apis(missing)
        documents = [
            {
                "apiVersion": types[item.group, item.kind].api_version,
                "kind": item.kind,
                "metadata": {
                    "name": item.name,
                    **({"namespace": item.namespace} if item.namespace else {}),
                },
            }
            for item in references
            if (item.group, item.kind) in types
        ]
        if not documents:
            return []
        return self._get(
            *("-f", "-", "--show-managed-fields"), subject=subject, stdin=to_yaml(*documents)
        )

    def fill_namespaces(self, documents: list[Object]) -> None:
        """Set the namespace of the kubeconfig where kubectl would use it."""
        types = {name: type_.is_namespaced for name, type_ in self._list_types().items()}
        for item in documents:
            if item["kind"] == "CustomResourceDefinition":
                spec = item["spec"]
                types[spec["group"], spec["names"]["kind"]] = spec["scope"] == "Namespaced"
        for item in documents:
            reference = Reference.of(item)
            if not reference.namespace and types.get((reference.group, reference.kind)):
                item["metadata"]["namespace"] = self._read_context()[2]

    def describe(self) -> str:
        server, context, _ = self._read_context()
        return f"{server} (context {context})" if server else "the cluster of this Pod"

    def apply(self, *documents: Object, force: bool = False) -> tuple[int, str]:
        """The exit code, and what kubectl has written to stderr, which is also shown."""
        # A kuberc may have other defaults. A server that does not respond must not hang this.
        options = ("--server-side", "--dry-run=none", "--request-timeout=60s")
        command = [self.kubectl, "apply", *options, "-f", "-"]
        if force:
            command.append("--force-conflicts")
        process = subprocess.run(
            command, input=to_yaml(*documents), text=True, stderr=subprocess.PIPE
        )
        sys.stderr.write(process.stderr)
        return process.returncode, process.stderr

    def apply_quietly(self, document: Object, subject: str) -> None:
        """Apply an object that no other program should change."""
        arguments = ("apply", "--server-side", "--force-conflicts", "--dry-run=none", "-f", "-")
        self._run(*arguments, subject=subject, verb="written", stdin=to_yaml(document))

    def list_namespaced_types(self) -> list[str]:
        """Every type that can be listed, such as `deployments.apps`.

        Fails if an aggregated API is down: kubectl may silently leave out its types.
        """
        self._check_apis()
        command = ("api-resources", "--verbs=list", "--namespaced", "-o", "name")
        return self._run(*command, subject="the types of the cluster").split()

    def _list_types(self) -> dict[tuple[str, str], _Type]:
        """By group and kind. The types of an aggregated API that is down are missing."""
        text = self._run(
            *("api-resources", "--no-headers"), subject="the types of the cluster", partial=True
        )
        types: dict[tuple[str, str], _Type] = {}
        for line in text.splitlines():
            # The column of the short names may be empty.
            api_version, is_namespaced, kind = line.split()[-3:]
            group = api_version.rpartition("/")[0]
            types.setdefault((group, kind), _Type(api_version, is_namespaced == "true"))
        return types

    def _check_apis(self, groups: Iterable[str] | None = None) -> None:
        """Fail if an aggregated API is down, of these groups or of any."""
        for service in self.list_objects("apiservices", subject="the aggregated APIs"):
            if groups is not None and service["spec"].get("group", "") not in groups:
                continue
            conditions = service.get("status", {}).get("conditions") or ()
            if any(item["type"] == "Available" and item["status"] != "True" for item in conditions):
                raise ConfigError(f"{format_name(service)} is not available")

    def _read_context(self) -> tuple[str, str, str]:
        """The server, the context and its namespace."""
        command = ("config", "view", "--minify", "-o", "json")
        try:
            config = json.loads(self._run(*command, subject="the kubeconfig"))
        except ConfigError:
            # In a Pod there is no kubeconfig.
            return "", "", "default"
        clusters, contexts = config.get("clusters") or (), config.get("contexts") or ()
        server = str(clusters[0]["cluster"].get("server", "")) if clusters else ""
        context = contexts[0]["context"] if contexts else {}
        return server, str(config.get("current-context", "")), context.get("namespace", "default")

    def _get(self, *arguments: str, subject: str, stdin: str = "") -> list[Object]:
        command = ("get", *arguments, "--ignore-not-found", "-o", "json")
        text = self._run(*command, subject=subject, stdin=stdin)
        if not text.strip():
            return []
        answer = json.loads(text)
        return list(answer["items"]) if answer["kind"] == "List" else [answer]

    def _run(
        self,
        *arguments: str,
        subject: str,
        verb: str = "read",
        stdin: str = "",
        partial: bool = False,
    ) -> str:
        process = run_program(
            [self.kubectl, *arguments],
            max(
                _MIN_READ_TIMEOUT_SECONDS,
                min(_READ_TIMEOUT_SECONDS, self.deadline - time.monotonic()),
            ),
            subject=f"kubectl for {subject}",
            advice="Check that the API server of your kubeconfig responds",
            stdin=stdin,
        )
        if process.returncode and not (partial and process.stdout):
            lines = [line for line in process.stderr.splitlines() if not _LOG_LINE.match(line)]
            reason = "\n".join(lines).strip() or process.stderr.strip()
            message = f"{subject} cannot be {verb}: {reason}"
            if _FORBIDDEN in reason:
                raise KubectlForbidden(f"{message}. Ask an administrator for this permission")
            raise ConfigError(message)
        return process.stdout


def was_applied(item: Object) -> bool:
    """Whether `kubectl apply` has set fields of it.

    An object with only a name, such as a ServiceAccount, has no managedFields.
    """
    entries = list_managed_fields(item)
    return (
        not entries
        or _LAST_APPLIED in (item["metadata"].get("annotations") or {})
        or any(map(is_apply, entries))
    )


def is_apply(entry: Object) -> bool:
    """Whether this entry of managedFields is one of `kubectl apply`."""
    manager = entry.get("manager", "")
    return bool(
        manager == _CLIENT_SIDE_APPLY
        or (manager in _APPLY_MANAGERS and entry["operation"] == "Apply")
    )


def list_managed_fields(item: Object) -> list[Object]:
    return list(item["metadata"].get("managedFields") or ())


def is_being_deleted(item: Object) -> bool:
    return "deletionTimestamp" in item["metadata"]


def read_annotation(item: Object, name: str) -> str:
    return str((item["metadata"].get("annotations") or {}).get(name, ""))


def read_label(item: Object, name: str) -> str:
    return str((item["metadata"].get("labels") or {}).get(name, ""))


def format_names(items: Iterable[Object], limit: int = 5) -> str:
    """The kinds and names of the first of these objects, and how many more there are."""
    names = [format_name(item) for item in items]
    listed = ", ".join(names[:limit])
    return f"{listed} and {len(names) - limit} more" if len(names) > limit else listed


def format_name(item: Object) -> str:
    return str(Reference.of(item))


def list_finalizers(item: Object) -> list[str]:
    return list(item["metadata"].get("finalizers") or ())
