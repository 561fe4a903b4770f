from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from kubewright.controller import Controller
from kubewright.errors import ConfigError, Terminal
from kubewright.flags import parse_command_line
from kubewright.log import (
    ConsoleFormatter,
    JsonFormatter,
    Log,
    LogOptions,
    build_formatter,
    configure_logging,
    log_level,
)
from kubewright.meta import Key

from .support.widget_kind import Widget

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


def read_only_line(stream: io.StringIO) -> dict[str, Any]:
    lines = stream.getvalue().splitlines()
    assert len(lines) == 1
    decoded: dict[str, Any] = json.loads(lines[0])
    return decoded


def make_record(message: str, **fields: object) -> logging.LogRecord:
    made = logging.LogRecord("controller", logging.INFO, "", 0, message, (), None)
    made.created = TIMESTAMP
    made.fields = fields
    return made


def test_json_line() -> None:
    text = build_formatter(LogOptions()).format(
        make_record("hello", controller="hostinfo", HostInfo=Key("ns", "a"), count=3)
    )
    assert text == (
        '{"level":"info","ts":"2026-01-02T15:04:05Z","logger":"controller","msg":"hello",'
        '"controller":"hostinfo","HostInfo":{"name":"a","namespace":"ns"},"count":3}'
    )


def test_console_line() -> None:
    text = build_formatter(LogOptions(devel=True)).format(make_record("hello", k="v", n=1))
    assert text == '2026-01-02T15:04:05Z\tINFO\tcontroller\thello\t{"k": "v", "n": 1}'


def test_console_line_without_fields() -> None:
    assert (
        build_formatter(LogOptions(encoder="console")).format(make_record("hello"))
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
        json.loads(build_formatter(LogOptions(time_encoding=encoding)).format(make_record("x")))[
            "ts"
        ]
        == ts
    )


def test_nanoseconds_are_whole() -> None:
    ts = json.loads(build_formatter(LogOptions(time_encoding="nanos")).format(make_record("x")))[
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
def test_levels(level: str, devel: bool, number: int) -> None:
    assert log_level(LogOptions(level=level, devel=devel)) == number


@pytest.mark.parametrize("level", ["0", "-1", "loud", "1.5"])
def test_a_level_that_is_none(level: str) -> None:
    with pytest.raises(ConfigError, match="-zap-log-level"):
        log_level(LogOptions(level=level))


def test_flags() -> None:
    argv = [
        "--zap-devel",
        "--zap-log-level=2",
        "--zap-encoder=json",
        "--zap-time-encoding=epoch",
        "--zap-stacktrace-level=panic",
    ]
    options = parse_command_line(LogOptions, argv, {})
    assert options == LogOptions(True, "2", "json", "panic", "epoch")
    assert isinstance(build_formatter(options), JsonFormatter)
    assert isinstance(build_formatter(LogOptions(devel=True)), ConsoleFormatter)


def test_bound_fields_travel_and_stay_apart() -> None:
    stream = configure_stream(LogOptions())
    base = Log("controller", controller="x")
    base.bind(name="a", reconcileID="1").info("one", name="b")
    assert (
        read_only_line(stream).items()
        >= {"controller": "x", "name": "b", "reconcileID": "1"}.items()
    )
    assert base.fields == {"controller": "x"}


def test_lines_about_one_object_name_it_as_controller_runtime_does() -> None:
    class Quiet(Controller[Widget]):
        """Does nothing."""

    stream = configure_stream(LogOptions())
    Quiet().log_for(Key("ns", "a")).info("hello")
    said = read_only_line(stream)
    assert (said["Widget"], said["namespace"], said["name"]) == (
        {"name": "a", "namespace": "ns"},
        "ns",
        "a",
    )


def test_levels_that_are_off_cost_nothing() -> None:
    class Loud:
        def __str__(self) -> str:
            raise AssertionError("must not be asked")

    stream = configure_stream(LogOptions(level="error"))
    log = Log("x", loud=Loud())
    log.debug("a")
    log.info("b")
    log.warning("c")
    assert stream.getvalue() == ""


def test_configure_twice_writes_once() -> None:
    first, second = configure_stream(LogOptions()), configure_stream(LogOptions())
    Log("x").info("once")
    assert first.getvalue() == ""
    assert read_only_line(second)["msg"] == "once"


def test_lines_of_libraries_have_the_same_form() -> None:
    stream = configure_stream(LogOptions())
    logging.getLogger("library").warning("%d of %s", 3, "them")
    assert (
        read_only_line(stream).items()
        >= {"level": "warn", "logger": "library", "msg": "3 of them"}.items()
    )


def test_an_unexpected_error_has_a_stack_trace() -> None:
    stream = configure_stream(LogOptions())
    try:
        raise ValueError("odd")
    except ValueError as error:
        Log("x").error("failed", error=error)
    found = read_only_line(stream)
    assert found["error"] == "ValueError: odd"
    assert "test_an_unexpected_error_has_a_stack_trace" in found["stacktrace"]
    assert list(found)[-2:] == ["error", "stacktrace"]


def test_our_own_errors_have_none() -> None:
    stream = configure_stream(LogOptions())
    Log("x").error("failed", error=Terminal("NotFound", "there is no such host"))
    assert read_only_line(stream)["error"] == "there is no such host"
    assert "stacktrace" not in read_only_line(stream)


def test_no_trace_below_the_level_for_traces() -> None:
    stream = configure_stream(LogOptions())
    Log("x").warning("passing", error=OSError("reset"))
    assert "stacktrace" not in read_only_line(stream)


def test_secrets_are_cut_wherever_they_are() -> None:
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
    assert read_only_line(stream)["Secret"] == {"name": "vc-creds", "namespace": "ns"}


@pytest.mark.parametrize("devel", [False, True])
def test_no_message_forges_a_line(devel: bool) -> None:
    stream = configure_stream(LogOptions(devel=devel))
    evil = "x\n2026-01-02T15:04:05Z\tINFO\tforged\r\x1b[31m\x9b\u2028"
    try:
        raise ValueError(evil)
    except ValueError as error:
        Log("a").error(evil, error=error, field=evil)
    lines = stream.getvalue().split("\n")
    stamped = [each for each in lines if re.match(r"(\d{4}-|\{)", each)]
    assert len(stamped) == 1
    assert not set("\r\x1b") & set(stream.getvalue())


def test_odd_values_do_not_break_the_line() -> None:
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
    found = read_only_line(stream)
    assert found["point"] == {"x": 1}
    assert found["broken"] == "<Broken>"
    assert found["lone"] == "\\ud800"
    assert found["pairs"] == {"(1, 2)": [3]}
    assert (found["level"], found["level_"]) == ("info", "mine")


def test_long_texts_are_bounded() -> None:
    stream = configure_stream(LogOptions())
    Log("x").info("y " * 1_000_000)
    assert len(stream.getvalue()) < 3000
