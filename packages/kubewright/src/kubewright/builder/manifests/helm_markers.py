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

NAMESPACE_PLACEHOLDER = "helm-release-namespace"
IMAGE_PLACEHOLDER = "helm-values-image"
_PLACEHOLDER_LINE = re.compile(
    r"^(?P<indent> *)(?P<before>.*?)HELM-(?P<mark>[a-z-]+)-(?P<hex>[0-9a-f]*)-HELM$", re.MULTILINE
)


class Placeholder(StrEnum):
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


def encode_placeholder(mark: Placeholder, told: str = "") -> str:
    """The mark as a word, with what it needs to know inside."""
    return f"HELM-{mark.value}-{told.encode().hex()}-HELM"


def encode_optional_item(condition: str, item: object) -> str:
    """An item of a list that is there only if the values say so."""
    return encode_placeholder(Placeholder.ITEM, f"{condition}\n{dump_yaml([item])}")


def render_documents(documents: Sequence[dict[str, Any]]) -> str:
    """The documents as a template."""
    return "".join(f"---\n{fill_placeholders(dump_yaml(document))}" for document in documents)


def dump_yaml(document: dict[str, Any] | list[object]) -> str:
    """A document, or a part of one, as YAML without a head."""
    return to_yaml(document).partition("---\n")[2]


def fill_placeholders(text: str) -> str:
    """A text with every mark in Helm's words; braces that are there already stay what they are."""
    text = text.replace("{{", "{{ `{{` }}")
    text = text.replace(NAMESPACE_PLACEHOLDER, "{{ .Release.Namespace }}").replace(
        f"image: {IMAGE_PLACEHOLDER}", "image: {{ .Values.image | quote }}"
    )
    return _PLACEHOLDER_LINE.sub(_fill_line, text)


def _fill_line(found: re.Match[str]) -> str:
    """The lines in place of a marked one."""
    indent, before, told = found["indent"], found["before"], bytes.fromhex(found["hex"]).decode()
    key = before.removeprefix("- ").rstrip(" ")
    return "\n".join(
        f"{indent}{line}" if line else ""
        for line in _PLACEHOLDER_RENDERERS[Placeholder(found["mark"])](key, told, len(indent))
    )


def render_if_block(condition: str, text: str) -> str:
    """A template that is there only if."""
    return f"{{{{- if {condition} }}}}\n{text}{{{{- end }}}}\n" if text else ""


PlaceholderRenderer = Callable[[str, str, int], list[str]]
"""From the key of the line, what the mark knows and the width of the indentation to the lines."""


def _render_if_lines(condition: str, *lines: str, otherwise: Sequence[str] = ()) -> list[str]:
    """Lines that are there only if."""
    other = ["{{- else }}", *otherwise] if otherwise else []
    return [f"{{{{- if {condition} }}}}", *lines, *other, "{{- end }}"]


def _render_affinity(key: str, told: str, width: int) -> list[str]:
    """On two nodes, where there are two replicas."""
    return _render_if_lines(
        "gt (int .Values.replicas) 1", key, *(f"  {line}" for line in told.rstrip("\n").split("\n"))
    )


def _render_metrics_flags(key: str, told: str, width: int) -> list[str]:
    """The flags of /metrics."""
    return _render_if_lines(
        ".Values.metrics.enabled",
        "- -metrics-bind-address=:8443",
        "- -metrics-secure",
        otherwise=['- "-metrics-bind-address=0"'],
    )


def _render_optional_item(key: str, told: str, width: int) -> list[str]:
    """An item of a list that is there only if; the mark knows the condition, and below it the item as YAML."""
    condition, *lines = told.rstrip("\n").split("\n")
    return _render_if_lines(condition, *lines)


def _render_watch_namespace(key: str, told: str, width: int) -> list[str]:
    """Where the manager looks."""
    field = ("  valueFrom:", "    fieldRef:", "      fieldPath: metadata.namespace")
    return _render_if_lines(".Values.namespaced", "- name: WATCH_NAMESPACE", *field)


_PLACEHOLDER_RENDERERS: dict[Placeholder, PlaceholderRenderer] = {
    Placeholder.AFFINITY: _render_affinity,
    Placeholder.FLAGS: lambda key, told, width: [
        "{{- range .Values.flags }}",
        "- {{ . | quote }}",
        "{{- end }}",
    ],
    Placeholder.INJECT: lambda key, told, width: _render_if_lines(
        ".Values.webhooks.certManager",
        f"  cert-manager.io/inject-ca-from: {told.replace(NAMESPACE_PLACEHOLDER, '{{ .Release.Namespace }}')}",
    ),
    Placeholder.ITEM: _render_optional_item,
    Placeholder.KEEP: lambda key, told, width: _render_if_lines(
        ".Values.crds.keep", "  helm.sh/resource-policy: keep"
    ),
    Placeholder.METRICS: _render_metrics_flags,
    Placeholder.REPLICAS: lambda key, told, width: [f"{key} {{{{ .Values.replicas }}}}"],
    Placeholder.RESOURCES: lambda key, told, width: [
        key,
        f"  {{{{- toYaml .Values.resources | nindent {width + 2} }}}}",
    ],
    Placeholder.WATCH: _render_watch_namespace,
    Placeholder.SECRET: lambda key, told, width: [
        f"{key} {{{{ index .Values.secrets {json.dumps(told)} | quote }}}}"
    ],
}
