"""Marks in documents, and what Helm puts in their place.

A mark is a plain word that YAML writes as it is; it takes a whole line of the text. What takes its place may be several lines, at the
line's own indentation.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any

from ...crd import to_yaml

NAMESPACE = "helm-release-namespace"
IMAGE = "helm-values-image"
LINE = re.compile(r"^(?P<indent> *)(?P<before>.*?)HELM-(?P<mark>[a-z-]+)-(?P<hex>[0-9a-f]*)-HELM$", re.MULTILINE)


class Mark(StrEnum):
    """What a mark stands for."""

    AFFINITY = "affinity"
    FLAGS = "flags"
    INJECT = "inject"
    ITEM = "item"
    KEEP = "keep"
    METRICS = "metrics"
    REPLICAS = "replicas"
    RESOURCES = "resources"
    SECRET = "secret"
    WATCH = "watch"


def marked(mark: Mark, told: str = "") -> str:
    """The mark as a word, with what it needs to know inside."""
    return f"HELM-{mark.value}-{told.encode().hex()}-HELM"


def marked_item(condition: str, item: object) -> str:
    """An item of a list that is there only if the values say so."""
    return marked(Mark.ITEM, f"{condition}\n{plain([item])}")


def filled(documents: Sequence[dict[str, Any]]) -> str:
    """The documents as a template."""
    return "".join(f"---\n{filled_text(plain(document))}" for document in documents)


def plain(document: dict[str, Any] | list[object]) -> str:
    """A document, or a part of one, as YAML without a head."""
    return to_yaml(document).partition("---\n")[2]


def filled_text(text: str) -> str:
    """A text with every mark in Helm's words; braces that are there already stay what they are."""
    text = text.replace("{{", "{{ `{{` }}")
    text = text.replace(NAMESPACE, "{{ .Release.Namespace }}").replace(f"image: {IMAGE}", "image: {{ .Values.image | quote }}")
    return LINE.sub(line_for, text)


def line_for(found: re.Match[str]) -> str:
    """The lines in place of a marked one."""
    indent, before, told = found["indent"], found["before"], bytes.fromhex(found["hex"]).decode()
    key = before.removeprefix("- ").rstrip(" ")
    return "\n".join(f"{indent}{line}" if line else "" for line in PLACES[Mark(found["mark"])](key, told, len(indent)))


def guarded(condition: str, text: str) -> str:
    """A template that is there only if."""
    return f"{{{{- if {condition} }}}}\n{text}{{{{- end }}}}\n" if text else ""


Place = Callable[[str, str, int], list[str]]
"""From the key of the line, what the mark knows and the width of the indentation to the lines."""


def when(condition: str, *lines: str, otherwise: Sequence[str] = ()) -> list[str]:
    """Lines that are there only if."""
    other = ["{{- else }}", *otherwise] if otherwise else []
    return [f"{{{{- if {condition} }}}}", *lines, *other, "{{- end }}"]


def affinity(key: str, told: str, width: int) -> list[str]:
    """On two nodes, where there are two replicas."""
    return when("gt (int .Values.replicas) 1", key, *(f"  {line}" for line in told.rstrip("\n").split("\n")))


def metrics(key: str, told: str, width: int) -> list[str]:
    """The flags of /metrics."""
    return when(".Values.metrics.enabled", "- -metrics-bind-address=:8443", "- -metrics-secure", otherwise=['- "-metrics-bind-address=0"'])


def item(key: str, told: str, width: int) -> list[str]:
    """An item of a list that is there only if; the mark knows the condition, and below it the item as YAML."""
    condition, *lines = told.rstrip("\n").split("\n")
    return when(condition, *lines)


def watch(key: str, told: str, width: int) -> list[str]:
    """Where the manager looks."""
    field = ("  valueFrom:", "    fieldRef:", "      fieldPath: metadata.namespace")
    return when(".Values.namespaced", "- name: WATCH_NAMESPACE", *field)


PLACES: dict[Mark, Place] = {
    Mark.AFFINITY: affinity,
    Mark.FLAGS: lambda key, told, width: ["{{- range .Values.flags }}", "- {{ . | quote }}", "{{- end }}"],
    Mark.INJECT: lambda key, told, width: when(
        ".Values.webhooks.certManager", f"  cert-manager.io/inject-ca-from: {told.replace(NAMESPACE, '{{ .Release.Namespace }}')}"
    ),
    Mark.ITEM: item,
    Mark.KEEP: lambda key, told, width: when(".Values.crds.keep", "  helm.sh/resource-policy: keep"),
    Mark.METRICS: metrics,
    Mark.REPLICAS: lambda key, told, width: [f"{key} {{{{ .Values.replicas }}}}"],
    Mark.RESOURCES: lambda key, told, width: [key, f"  {{{{- toYaml .Values.resources | nindent {width + 2} }}}}"],
    Mark.WATCH: watch,
    Mark.SECRET: lambda key, told, width: [f"{key} {{{{ index .Values.secrets {json.dumps(told)} | quote }}}}"],
}
