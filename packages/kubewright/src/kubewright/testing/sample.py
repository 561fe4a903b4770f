"""Samples of a project as typed objects."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec

from ..errors import ConfigError, Undecodable
from ..kind import Object
from ..yaml_text import parse_documents

T = TypeVar("T", bound=Object)


def read_sample(kind: type[T], path: Path) -> T:
    """The object in a YAML file with one document; an error names the file."""
    documents = parse_documents(path.read_text(encoding="utf-8"), str(path))
    if len(documents) != 1 or not isinstance(documents[0], dict):
        raise ConfigError(f"{path} must have one object of kind {kind.definition.name}")
    try:
        return kind.decode(msgspec.json.encode(documents[0]))
    except Undecodable as error:
        raise ConfigError(
            f"{path} does not match {kind.__name__}: {error}; correct the sample or the type"
        ) from None
