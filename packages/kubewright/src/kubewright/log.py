"""Structured logging on the standard library, in the form of controller-runtime's zap: same flags, same keys, same two encodings.

    log = Log("controller", controller="hostinfo")
    log = log.bind(HostInfo=key, reconcileID=number)
    log.info("status written", revision=17)
    log.error("reconcile failed", error=error)

A `Log` is a value that is handed on: there is no ambient context. A line that is not wanted costs one level check.
Whatever is written passes `errors.cut`, so that a credential inside a message, an error or a field is never printed.
"""

from __future__ import annotations

import logging
import re
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

import msgspec

from .errors import MAX_MESSAGE_LENGTH, ConfigError, KubewrightError, redact
from .flags import flag
from .meta import Key

_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
    "panic": logging.CRITICAL,
}
_HANDLER_NAME = "kubewright"
MAX_DEPTH = 8
_MAX_TRACE_FRAMES = 40

_SECRET_NAME_PATTERN = re.compile(
    r"(?i).*(token|password|passwd|secret|authorization|client-key-data)"
)
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


@dataclass(frozen=True)
class LogOptions:
    """The flags of zap, as controller-runtime names them."""

    devel: bool = flag(
        "zap-devel",
        False,
        "Development defaults: console encoder, debug level, stack traces from warnings on.",
    )
    level: str = flag(
        "zap-log-level",
        "",
        "What to log: debug, info, error, panic, or a number above 0 for more than debug.",
    )
    encoder: Literal["json", "console"] | None = flag(
        "zap-encoder", None, "How to write: json, unless -zap-devel is given."
    )
    stacktrace_level: Literal["info", "error", "panic"] | None = flag(
        "zap-stacktrace-level", None, "From which level on stack traces."
    )
    time_encoding: Literal["rfc3339", "rfc3339nano", "iso8601", "epoch", "millis", "nanos"] = flag(
        "zap-time-encoding", "rfc3339", "How to write the time."
    )


def configure_logging(options: LogOptions, stream: TextIO | None = None) -> None:
    """Send every line of the process, ours and the libraries', to stderr (or `stream`) in one form. Called once, by main."""
    handler = logging.StreamHandler(stream)
    handler.set_name(_HANDLER_NAME)
    handler.setFormatter(build_formatter(options))
    root = logging.getLogger()
    for old in [each for each in root.handlers if each.get_name() == _HANDLER_NAME]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(log_level(options))
    # Which selector the loop uses is no news at any level of ours.
    logging.getLogger("asyncio").setLevel(logging.WARNING)


def log_level(options: LogOptions) -> int:
    """The lowest level that is written; verbosity 1 is debug, and each step above it lets one level more through."""
    text = options.level.lower() or ("debug" if options.devel else "info")
    if text in _LEVELS:
        return _LEVELS[text]
    if text.isdecimal() and int(text) > 0:
        return max(1, logging.DEBUG + 1 - int(text))
    raise ConfigError(
        f'-zap-log-level "{options.level}": it has to be debug, info, error, panic or a whole number above 0'
    )


def build_formatter(options: LogOptions) -> LineFormatter:
    """The formatter that the flags ask for."""
    traces_from = _LEVELS[options.stacktrace_level or ("warn" if options.devel else "error")]
    kind = (
        ConsoleFormatter
        if (options.encoder or ("console" if options.devel else "json")) == "console"
        else JsonFormatter
    )
    return kind(traces_from, _TIME_ENCODERS[options.time_encoding])


class Log:
    """A logger with fields bound to it; a value to hand on, cheap enough to make one for each reconcile."""

    __slots__ = ("fields", "logger")

    def __init__(self, name: str, /, **fields: object) -> None:
        self.logger = logging.getLogger(name)
        self.fields = fields

    def bind(self, /, **fields: object) -> Log:
        """The same logger with more fields; they are turned into text only when a line is written."""
        bound = object.__new__(Log)
        bound.logger = self.logger
        bound.fields = self.fields | fields
        return bound

    def debug(self, message: str, /, error: BaseException | None = None, **fields: object) -> None:
        """For whoever is looking into something."""
        if self.logger.isEnabledFor(logging.DEBUG):
            self.write(logging.DEBUG, message, error, fields)

    def info(self, message: str, /, error: BaseException | None = None, **fields: object) -> None:
        """What was done."""
        if self.logger.isEnabledFor(logging.INFO):
            self.write(logging.INFO, message, error, fields)

    def warning(
        self, message: str, /, error: BaseException | None = None, **fields: object
    ) -> None:
        """What will pass by itself, but should not become a habit."""
        if self.logger.isEnabledFor(logging.WARNING):
            self.write(logging.WARNING, message, error, fields)

    def error(self, message: str, /, error: BaseException | None = None, **fields: object) -> None:
        """What failed."""
        if self.logger.isEnabledFor(logging.ERROR):
            self.write(logging.ERROR, message, error, fields)

    def write(
        self, level: int, message: str, error: BaseException | None, fields: dict[str, object]
    ) -> None:
        """Hand the line to the standard library, without its walk up the stack for a file name that we do not print."""
        about = (type(error), error, error.__traceback__) if error is not None else None
        record = logging.LogRecord(self.logger.name, level, "", 0, message, (), about)
        record.fields = self.fields | fields
        self.logger.handle(record)


class LineFormatter(logging.Formatter):
    """What both encodings have in common: which fields a record has, and which errors deserve a stack trace."""

    def __init__(self, traces_from: int, time_text: Callable[[float], str | float | int]) -> None:
        super().__init__()
        self._stacktrace_level, self.format_time = traces_from, time_text

    def _format_fields(self, record: logging.LogRecord) -> dict[str, Any]:
        """The record's fields as plain values, `error` last."""
        given: Mapping[str, object] = getattr(record, "fields", {})
        fields = {name: _to_json_value(value, name) for name, value in given.items()}
        error = record.exc_info[1] if record.exc_info else None
        return fields | {"error": describe_error(error)} if error is not None else fields

    def _format_stacktrace(self, record: logging.LogRecord) -> str:
        """The stack trace, or "": our own errors, and others that call themselves `expected`, say all that there is to say."""
        error = record.exc_info[1] if record.exc_info else None
        expected = isinstance(error, KubewrightError) or getattr(error, "expected", False)
        if error is None or record.levelno < self._stacktrace_level or expected:
            return ""
        lines = "".join(traceback.format_exception(error, limit=-_MAX_TRACE_FRAMES)).splitlines()
        return "\n".join(_sanitize(line) for line in lines)


class JsonFormatter(LineFormatter):
    """One JSON object on a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Level, time, logger and message first; a field that has one of these names gets an underscore."""
        line: dict[str, Any] = {
            "level": _level_name(record.levelno),
            "ts": self.format_time(record.created),
            "logger": record.name,
            "msg": _sanitize(record.getMessage()),
        }
        for name, value in self._format_fields(record).items():
            line[f"{name}_" if name in line else name] = value
        if trace := self._format_stacktrace(record):
            line["stacktrace"] = trace
        return msgspec.json.encode(line).decode()


class ConsoleFormatter(LineFormatter):
    """Columns with tabs between them, and the fields as JSON at the end; a stack trace follows, each line of it indented."""

    def format(self, record: logging.LogRecord) -> str:
        """Time, level, logger, message, fields."""
        columns = [
            str(self.format_time(record.created)),
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
            f"\n\t{_CONTROL_CHARACTERS.sub(_escape_control_character, each)}"
            for each in self._format_stacktrace(record).splitlines()
        )
        return line + trace


def _level_name(level: int) -> str:
    """The word of zap for a level, and its odd one for what is below debug."""
    name = next((name for name, number in reversed(_LEVELS.items()) if level >= number), "")
    return name or f"Level({level - logging.DEBUG - 1})"


def _to_json_value(value: object, name: str = "", depth: int = 0) -> Any:
    """The value as JSON can hold it, without credentials: neither inside texts nor under a telling name."""
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
            return describe_error(value)
        case _ if depth >= MAX_DEPTH:
            return "..."
        case Mapping():
            return {
                _sanitize(str(key)): _to_json_value(each, str(key), depth + 1)
                for key, each in value.items()
            }
        case list() | tuple() | set() | frozenset():
            return [_to_json_value(each, name, depth + 1) for each in value]
        case msgspec.Struct():
            return _to_json_value(msgspec.to_builtins(value, enc_hook=str), name, depth + 1)
        case _:
            return _as_text(value)


def _as_text(value: object) -> str:
    """`str(value)`, or the type's name where that fails: a log line must not be what breaks."""
    try:
        return _sanitize(str(value))
    except Exception:
        return f"<{type(value).__name__}>"


def describe_error(error: BaseException) -> str:
    """An error in one line; the type's name goes before what was not written for people."""
    words = _as_text(error)
    return (
        words
        if isinstance(error, KubewrightError)
        else f"{type(error).__name__}: {words}"
        if words
        else type(error).__name__
    )


def _sanitize(text: str) -> str:
    """The text without credentials and of bounded length, and encodable whatever came from outside."""
    bounded = text[
        : 2 * MAX_MESSAGE_LENGTH
    ]  # a search for credentials in megabytes would hold up the loop
    return redact(
        bounded if bounded.isascii() else bounded.encode(errors="backslashreplace").decode()
    )


def _escape_control_character(found: re.Match[str]) -> str:
    """A control character in writing, so that no message can start a line of its own or steer a terminal."""
    return found[0].encode("unicode_escape").decode()


def _format_rfc3339(seconds: float) -> str:
    """As 2026-01-02T15:04:05Z."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _format_rfc3339_nano(seconds: float) -> str:
    """As 2026-01-02T15:04:05.123456Z, without the zeros at the end."""
    moment = datetime.fromtimestamp(seconds, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%f").rstrip("0").rstrip(".") + "Z"


def _format_iso8601(seconds: float) -> str:
    """As 2026-01-02T15:04:05.123Z."""
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
