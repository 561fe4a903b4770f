"""What `kubewright deploy` and `undeploy` read from the cluster, with kubectl."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

from ..errors import ConfigError
from .manifests.installer import Object
from .program import run_program

_READ_TIMEOUT_SECONDS = 60
# A line of the log of client-go, such as `E1118 12:00:00.000000 1 memcache.go:265] ...`. If the API
# server is down, kubectl logs the same error five times before its own message.
_LOG_LINE = re.compile(r"^[EWI]\d{4} \d\d:\d\d:\d\d\.\d+ ")
_FORBIDDEN = "(Forbidden)"


class KubectlForbidden(ConfigError):
    """The user of the kubeconfig lacks a permission."""


@dataclass(frozen=True)
class Cluster:
    """The cluster of the kubeconfig."""

    kubectl: str

    def list_objects(self, *arguments: str, subject: str) -> list[Object]:
        """What `kubectl get` finds. The subject is for the error message."""
        text = self._run("get", *arguments, "--ignore-not-found", "-o", "json", subject=subject)
        if not text.strip():
            return []
        answer = json.loads(text)
        return list(answer["items"]) if answer["kind"] == "List" else [answer]

    def list_namespaced_types(self) -> list[str]:
        """Every type that can be listed, such as `deployments.apps`.

        Fails if an aggregated API is down: kubectl may silently leave out its types.
        """
        for service in self.list_objects("apiservices", subject="the aggregated APIs"):
            conditions = service.get("status", {}).get("conditions") or ()
            if any(item["type"] == "Available" and item["status"] != "True" for item in conditions):
                raise ConfigError(f"{format_name(service)} is not available")
        command = ("api-resources", "--verbs=list", "--namespaced", "-o", "name")
        return self._run(*command, subject="the types of the cluster").split()

    def _run(self, *arguments: str, subject: str) -> str:
        process = run_program(
            [self.kubectl, *arguments],
            _READ_TIMEOUT_SECONDS,
            subject=f"reading {subject}",
            advice="Check that the API server of your kubeconfig responds",
        )
        if process.returncode:
            lines = [line for line in process.stderr.splitlines() if not _LOG_LINE.match(line)]
            reason = "\n".join(lines).strip() or process.stderr.strip()
            message = f"{subject} cannot be read: {reason}"
            if _FORBIDDEN in reason:
                raise KubectlForbidden(f"{message}. Ask an administrator for this permission")
            raise ConfigError(message)
        return process.stdout


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
    metadata = item["metadata"]
    namespace = metadata.get("namespace", "")
    return f"{item['kind']} {namespace + '/' if namespace else ''}{metadata['name']}"


def list_finalizers(item: Object) -> list[str]:
    return list(item["metadata"].get("finalizers") or ())
