"""Structured logging on the standard library, with the flags, keys and encodings of zap.

    log = Log("controller", controller="hostinfo")
    log = log.bind(HostInfo=key)
    log.info("status written", revision=17)
    log.error("reconcile failed", error=error)

A `Log` is passed as an argument; there is no ambient context. A disabled line costs one level
check. Every text passes `errors.redact`, so that no credential is printed.
"""

from __future__ import annotations

import logging
import re
import traceback
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

import msgspec

from .errors import MAX_MESSAGE_LENGTH, ConfigError, KubewrightError, redact
from .flags import flag
from .kind import Key

_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
    "panic": logging.CRITICAL,
}
_HANDLER_NAME = "kubewright"
# Of nested fields: deeper values are written as "...".
_MAX_DEPTH = 8
_MAX_TRACE_FRAMES = 40

_SECRET_NAME_PATTERN = re.compile(
    r"(?i).*(token|password|passwd|secret|authorization|client-key-data)"
)
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


@dataclass(frozen=True)
class LogOptions:
    """The flags of zap, with the names of controller-runtime."""

    devel: bool = flag(
        "zap-devel",
        False,
        "Development defaults: console encoder, debug level, stack traces for warnings.",
    )
    level: str = flag(
        "zap-log-level",
        "",
        "Log level: debug, info, error, panic, or an integer above 0 for more than debug.",
    )
    encoder: Literal["json", "console"] | None = flag(
        "zap-encoder", None, "Log encoding; json unless -zap-devel is set."
    )
    stacktrace_level: Literal["info", "error", "panic"] | None = flag(
        "zap-stacktrace-level", None, "Lowest level that logs stack traces."
    )
    time_encoding: Literal["rfc3339", "rfc3339nano", "iso8601", "epoch", "millis", "nanos"] = flag(
        "zap-time-encoding", "rfc3339", "Format of the time."
    )


def configure_logging(options: LogOptions, stream: TextIO | None = None) -> None:
    """Write all logs of the process, including those of libraries, to stderr (or `stream`)."""
    handler = logging.StreamHandler(stream)
    handler.set_name(_HANDLER_NAME)
    handler.setFormatter(_build_formatter(options))
    root = logging.getLogger()
    for previous in [item for item in root.handlers if item.get_name() == _HANDLER_NAME]:
        root.removeHandler(previous)
    root.addHandler(handler)
    root.setLevel(_log_level(options))
    # At debug level asyncio logs which selector it uses, which helps no user.
    logging.getLogger("asyncio").setLevel(logging.WARNING)


def _log_level(options: LogOptions) -> int:
    text = options.level.lower() or ("debug" if options.devel else "info")
    if text in _LEVELS:
        return _LEVELS[text]
    # Verbosity 1 is debug, as in zap; each step above it enables one more level.
    if text.isdecimal() and int(text) > 0:
        return max(1, logging.DEBUG + 1 - int(text))
    raise ConfigError(
        f'invalid value "{options.level}" for flag -zap-log-level: '
        "must be debug, info, error, panic or an integer above 0"
    )


def _build_formatter(options: LogOptions) -> LineFormatter:
    stacktrace_level = _LEVELS[options.stacktrace_level or ("warn" if options.devel else "error")]
    encoder = options.encoder or ("console" if options.devel else "json")
    formatter = ConsoleFormatter if encoder == "console" else JsonFormatter
    return formatter(stacktrace_level, _TIME_ENCODERS[options.time_encoding])


current_object: ContextVar[tuple[str, Key] | None] = ContextVar("current_object", default=None)
"""The kind and the key of the object that is reconciled. Every line that is logged meanwhile has
them, also in threads and tasks that the reconcile starts."""


class Log:
    """A logger with bound fields, cheap enough to create one per reconcile."""

    __slots__ = ("fields", "logger")

    def __init__(self, name: str, /, **fields: object) -> None:
        self.logger = logging.getLogger(name)
        self.fields = fields

    def bind(self, /, **fields: object) -> Log:
        """The same logger with more fields, which are formatted only when a line is written."""
        # Without __init__, which would search for the logger by its name again.
        bound = object.__new__(Log)
        bound.logger = self.logger
        bound.fields = self.fields | fields
        return bound

    def for_object(self, kind: str, key: Key) -> Log:
        """A log for lines about one object, with the fields that controller-runtime adds."""
        return self.bind(**_object_fields(kind, key))

    def debug(self, message: str, /, error: BaseException | None = None, **fields: object) -> None:
        if self.logger.isEnabledFor(logging.DEBUG):
            self._write(logging.DEBUG, message, error, fields)

    def info(self, message: str, /, error: BaseException | None = None, **fields: object) -> None:
        if self.logger.isEnabledFor(logging.INFO):
            self._write(logging.INFO, message, error, fields)

    def warning(
        self, message: str, /, error: BaseException | None = None, **fields: object
    ) -> None:
        if self.logger.isEnabledFor(logging.WARNING):
            self._write(logging.WARNING, message, error, fields)

    def error(self, message: str, /, error: BaseException | None = None, **fields: object) -> None:
        if self.logger.isEnabledFor(logging.ERROR):
            self._write(logging.ERROR, message, error, fields)

    def _write(
        self, level: int, message: str, error: BaseException | None, fields: dict[str, object]
    ) -> None:
        # Not through Logger.log(), which walks the stack for a file name that is not printed.
        exc_info = (type(error), error, error.__traceback__) if error is not None else None
        record = logging.LogRecord(self.logger.name, level, "", 0, message, (), exc_info)
        current = current_object.get()
        record.fields = (_object_fields(*current) if current else {}) | self.fields | fields
        self.logger.handle(record)


def _object_fields(kind: str, key: Key) -> dict[str, object]:
    return {kind: key, "namespace": key.namespace, "name": key.name}


class LineFormatter(logging.Formatter):
    """The parts of both encodings: the fields of a record, and which errors have a stack trace."""

    def __init__(
        self, stacktrace_level: int, format_time: Callable[[float], str | float | int]
    ) -> None:
        super().__init__()
        self._stacktrace_level, self._format_time = stacktrace_level, format_time

    def _format_fields(self, record: logging.LogRecord) -> dict[str, Any]:
        # Records of other libraries have no `fields`.
        values: Mapping[str, object] = getattr(record, "fields", {})
        fields = {name: _to_json_value(value, name) for name, value in values.items()}
        error = record.exc_info[1] if record.exc_info else None
        return fields | {"error": _describe_error(error)} if error is not None else fields

    def _format_stacktrace(self, record: logging.LogRecord) -> str:
        error = record.exc_info[1] if record.exc_info else None
        # The message of an expected error is complete. Errors of other packages that are expected
        # have an attribute `expected = True`.
        expected = isinstance(error, KubewrightError) or getattr(error, "expected", False)
        if error is None or record.levelno < self._stacktrace_level or expected:
            return ""
        lines = "".join(traceback.format_exception(error, limit=-_MAX_TRACE_FRAMES)).splitlines()
        return "\n".join(_sanitize(line) for line in lines)


class JsonFormatter(LineFormatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "level": _level_name(record.levelno),
            "ts": self._format_time(record.created),
            "logger": record.name,
            "msg": _sanitize(record.getMessage()),
        }
        for name, value in self._format_fields(record).items():
            # A field must not replace the level, the time, the logger or the message.
            line[f"{name}_" if name in line else name] = value
        if trace := self._format_stacktrace(record):
            line["stacktrace"] = trace
        return msgspec.json.encode(line).decode()


class ConsoleFormatter(LineFormatter):
    """Columns separated by tabs, the fields as JSON, and below it the indented stack trace."""

    def format(self, record: logging.LogRecord) -> str:
        columns = [
            str(self._format_time(record.created)),
            _level_name(record.levelno).upper(),
            record.name,
            _sanitize(record.getMessage()),
        ]
        if fields := self._format_fields(record):
            columns.append(msgspec.json.format(msgspec.json.encode(fields), indent=0).decode())
        line = "\t".join(
            _CONTROL_CHARACTERS.sub(_escape_control_character, column) for column in columns
        )
        trace = "".join(
            f"\n\t{_CONTROL_CHARACTERS.sub(_escape_control_character, frame)}"
            for frame in self._format_stacktrace(record).splitlines()
        )
        return line + trace


def _level_name(level: int) -> str:
    name = next((name for name, number in reversed(_LEVELS.items()) if level >= number), "")
    # zap's own name for a level below debug.
    return name or f"Level({level - logging.DEBUG - 1})"


def _to_json_value(value: object, name: str = "", depth: int = 0) -> Any:
    """Convert a value for JSON, without credentials in texts or in fields with a secret name."""
    match value:
        case None | bool() | int() | float():
            return value
        case str() | bytes() if name and _SECRET_NAME_PATTERN.fullmatch(name):
            return "***"
        case str():
            return _sanitize(value)
        case Key():
            return {"name": _sanitize(value.name), "namespace": _sanitize(value.namespace)}
        case BaseException():
            return _describe_error(value)
        case _ if depth >= _MAX_DEPTH:
            return "..."
        case Mapping():
            return {
                _sanitize(str(key)): _to_json_value(item, str(key), depth + 1)
                for key, item in value.items()
            }
        case list() | tuple() | set() | frozenset():
            return [_to_json_value(item, name, depth + 1) for item in value]
        case msgspec.Struct():
            return _to_json_value(msgspec.to_builtins(value, enc_hook=str), name, depth + 1)
        case _:
            return _as_text(value)


def _as_text(value: object) -> str:
    # A __str__ that raises must not break the log line.
    try:
        return _sanitize(str(value))
    except Exception:
        return f"<{type(value).__name__}>"


def _describe_error(error: BaseException) -> str:
    """The message of an error, after the name of its type unless it is a KubewrightError."""
    message = _as_text(error)
    if isinstance(error, KubewrightError):
        return message
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def _sanitize(text: str) -> str:
    # A search for credentials in megabytes of text would block the event loop.
    bounded = text[: 2 * MAX_MESSAGE_LENGTH]
    # Lone surrogates cannot be encoded, for example from a file name that is not UTF-8.
    return redact(
        bounded if bounded.isascii() else bounded.encode(errors="backslashreplace").decode()
    )


def _escape_control_character(match: re.Match[str]) -> str:
    # A message must not start a new line of the log, or send commands to a terminal.
    return match[0].encode("unicode_escape").decode()


def _format_rfc3339(seconds: float) -> str:
    # 2026-01-02T15:04:05Z
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _format_rfc3339_nano(seconds: float) -> str:
    # 2026-01-02T15:04:05.123456Z, without trailing zeros as in Go
    moment = datetime.fromtimestamp(seconds, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%f").rstrip("0").rstrip(".") + "Z"


def _format_iso8601(seconds: float) -> str:
    # 2026-01-02T15:04:05.123Z
    return (
        datetime.fromtimestamp(seconds, UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )


_TIME_ENCODERS: dict[str, Callable[[float], str | float | int]] = {
    "rfc3339": _format_rfc3339,
    "rfc3339nano": _format_rfc3339_nano,
    "iso8601": _format_iso8601,
    "epoch": lambda seconds: seconds,
    "millis": lambda seconds: seconds * 1e3,
    "nanos": lambda seconds: int(seconds * 1e9),
}
