"""YAML as text: manifests written the same way every time, and files of a person parsed."""

from __future__ import annotations

from typing import Any

import yaml

from .errors import ConfigError

_UNUSED_TAGS = ("tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:value")


class _ManifestDumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        # Anchors are legal YAML, but they confuse readers and some tools.
        return True

    def _represent_text(self, data: str) -> yaml.ScalarNode:
        # Text of several lines reads best as a block.
        style = "|" if "\n" in data else None
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=style)


class _ManifestLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Reads a manifest as kubectl does; with libyaml about ten times as fast as without.

    A date is a string, and so is "=", which YAML 1.1 reserves and PyYAML rejects.
    """

    yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag not in _UNUSED_TAGS]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


_ManifestDumper.add_representer(str, _ManifestDumper._represent_text)


def dump_yaml(value: dict[str, Any] | list[object]) -> str:
    """One document, or a part of one, without the `---` line; equal values give equal bytes."""
    # The width is part of every committed manifest: another one would change them all.
    return str(
        yaml.dump(value, Dumper=_ManifestDumper, sort_keys=False, allow_unicode=True, width=160)
    )


def to_yaml(*documents: dict[str, Any]) -> str:
    return "".join(f"---\n{dump_yaml(document)}" for document in documents)


def parse_documents(text: str, path: str) -> list[Any]:
    """The documents in the text; `path` names the file in the error message."""
    try:
        return list(yaml.load_all(text, Loader=_ManifestLoader))
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not valid YAML: {error}") from None
    except RecursionError:
        raise ConfigError(f"{path} is nested too deeply") from None
