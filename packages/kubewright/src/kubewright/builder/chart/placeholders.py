"""Expressions of Helm inside documents.

A document is built with placeholders and dumped as YAML; then each placeholder is replaced with an
expression of Helm. A placeholder is one word that YAML leaves as it is, and carries its expression
in hexadecimal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from ...yaml_text import dump_yaml
from ..manifests import Document

# Not encoded: names and host names of generated objects contain the namespace.
NAMESPACE_PLACEHOLDER = "helm-release-namespace"
_NAMESPACE_VALUE_PATTERN = re.compile(rf"(: ){NAMESPACE_PLACEHOLDER}$", re.MULTILINE)
_INLINE_PATTERN = re.compile(r"HELM-INLINE-([0-9a-f]*)-HELM")
_BLOCK_PATTERN = re.compile(r"^( *).*HELM-BLOCK-([0-9a-f]*)-HELM$", re.MULTILINE)


def encode_inline(expression: str) -> str:
    """A value that is an expression of Helm."""
    return f"HELM-INLINE-{expression.encode().hex()}-HELM"


def encode_block(*lines: str) -> str:
    """Lines that replace the whole line of the placeholder, with its key, at its indentation."""
    return f"HELM-BLOCK-{chr(10).join(lines).encode().hex()}-HELM"


def encode_if_block(condition: str, *lines: str) -> str:
    return encode_block(f"{{{{- if {condition} }}}}", *lines, "{{- end }}")


def encode_optional_item(condition: str, item: object) -> str:
    """An item of a list that is rendered only under the condition."""
    return encode_if_block(condition, *dump_yaml([item]).splitlines())


def encode_value(key: str, value: str) -> str:
    """A field that a value sets, rendered only if the value is not empty."""
    # JSON is also YAML, and needs no indentation.
    return encode_block(f"{{{{- with {value} }}}}", f"{key}: {{{{ toJson . }}}}", "{{- end }}")


def encode_dict(items: Mapping[str, str]) -> str:
    """A call of `dict` with expressions of Helm as values."""
    return f"(dict{''.join(f' {json.dumps(key)} {value}' for key, value in items.items())})"


def quote_all(items: Mapping[str, str]) -> dict[str, str]:
    """Strings as expressions of Helm."""
    return {key: json.dumps(value) for key, value in items.items()}


def render_documents(*documents: Document) -> str:
    return "".join(f"---\n{fill_placeholders(dump_yaml(document))}" for document in documents)


def render_if(condition: str, *documents: Document) -> str:
    return wrap_if(condition, render_documents(*documents))


def wrap_if(condition: str, text: str) -> str:
    return f"{{{{- if {condition} }}}}\n{text}{{{{- end }}}}\n" if text else ""


def fill_placeholders(text: str) -> str:
    # First: braces in the description of a CRD are not an expression of Helm.
    text = text.replace("{{", "{{ `{{` }}")
    text = _BLOCK_PATTERN.sub(
        lambda match: "\n".join(
            f"{match[1]}{line}" for line in bytes.fromhex(match[2]).decode().splitlines()
        ),
        text,
    )
    text = _INLINE_PATTERN.sub(lambda match: f"{{{{ {bytes.fromhex(match[1]).decode()} }}}}", text)
    # Quoted where it is the whole value: a namespace may be called 123, true or null.
    text = _NAMESPACE_VALUE_PATTERN.sub(r"\1{{ .Release.Namespace | quote }}", text)
    return text.replace(NAMESPACE_PLACEHOLDER, "{{ .Release.Namespace }}")
