from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from kubewright.errors import ConfigError, Terminal
from kubewright.flags import parse_command_line
from kubewright.kind import Key
from kubewright.log import (
    ConsoleFormatter,
    JsonFormatter,
    Log,
    LogOptions,
    _build_formatter,
    _log_level,
    configure_logging,
)

TIMESTAMP = 1767366245.123456  # 2026-01-02T15:04:05.123456Z


@pytest.fixture(autouse=True)
def restore_root_logger() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def configure_stream(options: LogOptions) -> io.StringIO:
    stream = io.StringIO()
    configure_logging(options, stream)
    return stream


def read_single_line(stream: io.StringIO) -> dict[str, Any]:
    lines = stream.getvalue().splitlines()
    assert len(lines) == 1
    decoded: dict[str, Any] = json.loads(lines[0])
    return decoded


def make_record(message: str, **fields: object) -> logging.LogRecord:
    record = logging.LogRecord("controller", logging.INFO, "", 0, message, (), None)
    record.created = TIMESTAMP
    record.fields = fields
    return record


def test_json_encoding() -> None:
    text = _build_formatter(LogOptions()).format(
        make_record("hello", controller="hostinfo", HostInfo=Key("ns", "a"), count=3)
    )
    assert text == (
        '{"level":"info","ts":"2026-01-02T15:04:05Z","logger":"controller","msg":"hello",'
        '"controller":"hostinfo","HostInfo":{"name":"a","namespace":"ns"},"count":3}'
    )


def test_console_encoding() -> None:
    text = _build_formatter(LogOptions(devel=True)).format(make_record("hello", k="v", n=1))
    assert text == '2026-01-02T15:04:05Z\tINFO\tcontroller\thello\t{"k": "v", "n": 1}'


def test_console_encoding_without_fields() -> None:
    assert (
        _build_formatter(LogOptions(encoder="console")).format(make_record("hello"))
        == "2026-01-02T15:04:05Z\tINFO\tcontroller\thello"
    )


@pytest.mark.parametrize(
    ("encoding", "ts"),
    [
        ("rfc3339", "2026-01-02T15:04:05Z"),
        ("rfc3339nano", "2026-01-02T15:04:05.123456Z"),
        ("iso8601", "2026-01-02T15:04:05.123Z"),
        ("epoch", TIMESTAMP),
        ("millis", TIMESTAMP * 1e3),
    ],
)
def test_time_encodings(encoding: Any, ts: object) -> None:
    assert (
        json.loads(_build_formatter(LogOptions(time_encoding=encoding)).format(make_record("x")))[
            "ts"
        ]
        == ts
    )


def test_nanoseconds_are_whole() -> None:
    ts = json.loads(_build_formatter(LogOptions(time_encoding="nanos")).format(make_record("x")))[
        "ts"
    ]
    assert isinstance(ts, int)
    assert ts == pytest.approx(TIMESTAMP * 1e9)


@pytest.mark.parametrize(
    ("level", "devel", "number"),
    [
        ("", False, 20),
        ("", True, 10),
        ("debug", False, 10),
        ("INFO", True, 20),
        ("error", False, 40),
        ("panic", False, 50),
        ("1", False, 10),
        ("3", False, 8),
        ("99", False, 1),
    ],
)
def test_level_of_the_flags(level: str, devel: bool, number: int) -> None:
    assert _log_level(LogOptions(level=level, devel=devel)) == number


@pytest.mark.parametrize("level", ["0", "-1", "loud", "1.5"])
def test_invalid_level_is_an_error(level: str) -> None:
    with pytest.raises(ConfigError, match="-zap-log-level"):
        _log_level(LogOptions(level=level))


def test_flags_set_level_encoder_and_stack_traces() -> None:
    argv = [
        "--zap-devel",
        "--zap-log-level=2",
        "--zap-encoder=json",
        "--zap-time-encoding=epoch",
        "--zap-stacktrace-level=panic",
    ]
    options = parse_command_line(LogOptions, argv, {})
    assert options == LogOptions(True, "2", "json", "panic", "epoch")
    assert isinstance(_build_formatter(options), JsonFormatter)
    assert isinstance(_build_formatter(LogOptions(devel=True)), ConsoleFormatter)


def test_bind_adds_fields_and_keeps_the_original() -> None:
    stream = configure_stream(LogOptions())
    base = Log("controller", controller="x")
    base.bind(name="a", reconcileID="1").info("one", name="b")
    assert (
        read_single_line(stream).items()
        >= {"controller": "x", "name": "b", "reconcileID": "1"}.items()
    )
    assert base.fields == {"controller": "x"}


def test_log_of_an_object_has_the_fields_of_controller_runtime() -> None:
    stream = configure_stream(LogOptions())
    Log("controller").for_object("Widget", Key("ns", "a")).info("hello")
    line = read_single_line(stream)
    assert (line["Widget"], line["namespace"], line["name"]) == (
        {"name": "a", "namespace": "ns"},
        "ns",
        "a",
    )


def test_disabled_level_does_not_format_its_fields() -> None:
    class Loud:
        def __str__(self) -> str:
            raise AssertionError("must not be formatted")

    stream = configure_stream(LogOptions(level="error"))
    log = Log("x", loud=Loud())
    log.debug("a")
    log.info("b")
    log.warning("c")
    assert stream.getvalue() == ""


def test_configuring_twice_writes_each_line_once() -> None:
    first, second = configure_stream(LogOptions()), configure_stream(LogOptions())
    Log("x").info("once")
    assert first.getvalue() == ""
    assert read_single_line(second)["msg"] == "once"


def test_logs_of_libraries_have_the_same_format() -> None:
    stream = configure_stream(LogOptions())
    logging.getLogger("library").warning("%d of %s", 3, "them")
    assert (
        read_single_line(stream).items()
        >= {"level": "warn", "logger": "library", "msg": "3 of them"}.items()
    )


def test_unexpected_error_has_a_stack_trace() -> None:
    stream = configure_stream(LogOptions())
    try:
        raise ValueError("odd")
    except ValueError as error:
        Log("x").error("failed", error=error)
    line = read_single_line(stream)
    assert line["error"] == "ValueError: odd"
    assert "test_unexpected_error_has_a_stack_trace" in line["stacktrace"]
    assert list(line)[-2:] == ["error", "stacktrace"]


def test_kubewright_error_has_no_stack_trace() -> None:
    stream = configure_stream(LogOptions())
    Log("x").error("failed", error=Terminal("NotFound", "there is no such host"))
    assert read_single_line(stream)["error"] == "there is no such host"
    assert "stacktrace" not in read_single_line(stream)


def test_no_stack_trace_below_its_level() -> None:
    stream = configure_stream(LogOptions())
    Log("x").warning("passing", error=OSError("reset"))
    assert "stacktrace" not in read_single_line(stream)


def test_secrets_are_redacted_everywhere() -> None:
    stream = configure_stream(LogOptions(level="debug"))
    try:
        raise RuntimeError("login with password=hunter2 failed")
    except RuntimeError as error:
        Log("x", url="https://me:hunter2@vc/sdk").error(
            "Authorization: Bearer hunter2hunter2",
            error=error,
            password="hunter2",
            headers={"X-Token": "hunter2", "list": ["token=hunter2"]},
            Secret=Key("ns", "vc-creds"),
            token=b"hunter2",
        )
    assert "hunter2" not in stream.getvalue()
    assert read_single_line(stream)["Secret"] == {"name": "vc-creds", "namespace": "ns"}


@pytest.mark.parametrize("devel", [False, True])
def test_message_cannot_forge_a_line(devel: bool) -> None:
    stream = configure_stream(LogOptions(devel=devel))
    evil = "x\n2026-01-02T15:04:05Z\tINFO\tforged\r\x1b[31m\x9b\u2028"
    try:
        raise ValueError(evil)
    except ValueError as error:
        Log("a").error(evil, error=error, field=evil)
    lines = stream.getvalue().split("\n")
    stamped = [line for line in lines if re.match(r"(\d{4}-|\{)", line)]
    assert len(stamped) == 1
    assert not set("\r\x1b") & set(stream.getvalue())


def test_unusual_values_do_not_break_the_line() -> None:
    class Point(msgspec.Struct):
        x: int

    class Broken:
        def __str__(self) -> str:
            raise RuntimeError

    cycle: list[object] = []
    cycle.append(cycle)
    stream = configure_stream(LogOptions())
    Log("x").info(
        "odd",
        point=Point(1),
        broken=Broken(),
        cycle=cycle,
        lone="\ud800",
        big=2**80,
        nan=float("nan"),
        pairs={(1, 2): {3}},
        level="mine",
    )
    line = read_single_line(stream)
    assert line["point"] == {"x": 1}
    assert line["broken"] == "<Broken>"
    assert line["lone"] == "\\ud800"
    assert line["pairs"] == {"(1, 2)": [3]}
    assert (line["level"], line["level_"]) == ("info", "mine")


def test_long_text_is_cut() -> None:
    stream = configure_stream(LogOptions())
    Log("x").info("y " * 1_000_000)
    assert len(stream.getvalue()) < 3000
