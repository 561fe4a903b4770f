"""Reads typed YAML files strictly; every error has the line, what is wrong, and what to do.

FORMAT = FileFormat("-vcenters", "list of vCenters", File, {"$": File, ...}, find_errors)
FORMAT.read(path)       # a File, or ConfigError
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from msgspec import Struct

from kubewright.errors import ConfigError

T = TypeVar("T", bound=Struct)
# 2,000 short entries fit, and parsing those already takes PyYAML two seconds.
MAX_FILE_BYTES = 256 * 1024


@dataclass(frozen=True)
class FileFormat(Generic[T]):
    """The types of a file, and what else must hold."""

    flag: str
    description: str
    root_type: type[T]
    # The type of each mapping by its path, such as $.vcenters[].
    mapping_types: Mapping[str, type[Struct]]
    # Yields the path and the explanation of each error that the types do not catch.
    find_errors: Callable[[T], Iterable[tuple[str, str]]]

    def read(self, file: str) -> T:
        try:
            with Path(file).open("rb") as stream:
                data = stream.read(MAX_FILE_BYTES + 1)
        except (OSError, ValueError) as error:
            cause = getattr(error, "strerror", None) or "this is not a file name"
            raise ConfigError(
                f"{file}: cannot be read: {cause}. Check the path after {self.flag}."
            ) from None
        if len(data) > MAX_FILE_BYTES:
            raise ConfigError(
                f"{file}: is larger than {MAX_FILE_BYTES // 1024} KiB, which no "
                f"{self.description} needs. Check the path after {self.flag}."
            )
        return self.decode(file, data)

    def decode(self, file: str, data: bytes) -> T:
        # Imported here: most managers read no such file, and would hold the parser for nothing.
        from .yaml_reader import YamlReader

        reader = YamlReader(file, self.root_type, self.mapping_types)
        content = reader.decode(data)
        for path, message in self.find_errors(content):
            raise reader.build_error(path, message)
        return content
