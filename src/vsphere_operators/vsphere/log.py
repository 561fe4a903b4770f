"""The interface of the log that the vSphere client writes to."""

from __future__ import annotations

from typing import Protocol


class Log(Protocol):
    """The interface of `kubewright.log.Log`."""

    def debug(
        self, message: str, /, error: BaseException | None = None, **fields: object
    ) -> None: ...
    def info(
        self, message: str, /, error: BaseException | None = None, **fields: object
    ) -> None: ...
    def warning(
        self, message: str, /, error: BaseException | None = None, **fields: object
    ) -> None: ...
    def error(
        self, message: str, /, error: BaseException | None = None, **fields: object
    ) -> None: ...
