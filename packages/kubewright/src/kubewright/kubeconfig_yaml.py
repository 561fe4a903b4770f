"""Parses a kubeconfig as kubectl does."""

from __future__ import annotations

from typing import Any

import yaml


class KubeconfigSyntaxError(ValueError):
    """Why the file cannot be parsed. The message of the parser quotes the line, which may hold a
    secret, so it is left out.
    """


class _TextLoader(yaml.SafeLoader):
    """Reads scalars as strings and omits nulls, as kubectl: a password may consist of digits."""

    yaml_constructors = yaml.SafeLoader.yaml_constructors | {
        f"tag:yaml.org,2002:{scalar}": yaml.SafeLoader.construct_scalar
        for scalar in ("bool", "int", "float", "timestamp")
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        node.value = [
            (key, value) for key, value in node.value if value.tag != "tag:yaml.org,2002:null"
        ]
        built: dict[Any, Any] = super().construct_mapping(node, deep)
        for key, value in node.value:
            # The data of a plugin: it keeps the types that the plugin expects.
            if key.value == "extension":
                built["extension"] = yaml.safe_load(yaml.serialize(value, Dumper=yaml.SafeDumper))
        return built


def parse_kubeconfig(content: bytes) -> Any:
    try:
        return yaml.load(content, _TextLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        position = f"line {mark.line + 1}, column {mark.column + 1}" if mark else "unknown line"
        raise KubeconfigSyntaxError(
            f"the file is not valid YAML ({position}). Check the indentation there, and quote "
            "values that start with one of * & ! % @ or contain a colon."
        ) from None
    except (yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError, RecursionError):
        raise KubeconfigSyntaxError(
            "the file is not YAML: it may be a binary file, or not encoded in UTF-8"
        ) from None
