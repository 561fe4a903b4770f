from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.errors import ConfigError
from kubewright.flags import (
    Duration,
    FlagError,
    HelpRequested,
    arguments,
    env_variable,
    flag,
    format_duration,
    parse_command_line,
    parse_duration,
)


@dataclass(frozen=True)
class Group:
    encoder: Literal["json", "console"] | None = flag("zap-encoder", None, "How to write.")


@dataclass(frozen=True)
class Settings:
    address: str = flag(
        "metrics-addr", ":8080", "Where.", aliases=("metrics-bind-address",), env="METRICS_ADDR"
    )
    elect: bool = flag(
        "enable-leader-election", False, "Elect.", aliases=("leader-elect",), env="LEADER_ELECT"
    )
    insecure: bool = flag("insecure", False, "No checks.")
    resync_seconds: Duration = flag("resync", 300.0, "How often.", env="RESYNC")
    workers: int = flag("workers", 3, "How many.")
    share: float = flag("share", 0.5, "How much.")
    regions: tuple[str, ...] = flag("region", (), "Which.", env="REGIONS")
    password: str = env_variable("VC_PASS", "", "The password.", secret=True)
    group: Group = field(default_factory=Group)


@dataclass(frozen=True)
class WithArguments:
    verbose: bool = flag("v", False, "More.")
    files: tuple[str, ...] = arguments()


@pytest.mark.parametrize(
    ("argv", "name", "value"),
    [
        ([], "address", ":8080"),
        (["-metrics-addr", ":1"], "address", ":1"),
        (["--metrics-addr=:1"], "address", ":1"),
        (["--metrics-bind-address=:2"], "address", ":2"),
        (["-metrics-addr=:1", "-metrics-bind-address=:2"], "address", ":2"),
        (["-metrics-addr="], "address", ""),
        (["-metrics-addr=a=b"], "address", "a=b"),
        (["-metrics-addr", "-x"], "address", "-x"),
        (["-insecure"], "insecure", True),
        (["--insecure"], "insecure", True),
        (["-insecure=false"], "insecure", False),
        (["--leader-elect"], "elect", True),
        (["--enable-leader-election=T"], "elect", True),
        (["-insecure", "-insecure=0"], "insecure", False),
        (["-workers", "-1"], "workers", -1),
        (["-workers=0x10"], "workers", 16),
        (["-share", "1e-3"], "share", 0.001),
        (["-resync", "1m30s"], "resync_seconds", 90.0),
        (["-region=a", "--region", "b,c"], "regions", ("a", "b,c")),
        (["-zap-encoder=JSON"], "group", Group("json")),
        (["-insecure", "--"], "insecure", True),
    ],
)
def test_flag_syntax_of_go(argv: list[str], name: str, value: object) -> None:
    assert getattr(parse_command_line(Settings, argv, {}), name) == value


@pytest.mark.parametrize("text", ["1", "t", "T", "TRUE", "true", "True"])
def test_true_as_in_go(text: str) -> None:
    assert parse_command_line(Settings, [f"-insecure={text}"], {}).insecure is True


@pytest.mark.parametrize("text", ["0", "f", "F", "FALSE", "false", "False"])
def test_false_as_in_go(text: str) -> None:
    assert parse_command_line(Settings, [f"-insecure={text}"], {}).insecure is False


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        (["-insecur"], "flag provided but not defined: -insecur; did you mean -insecure?"),
        (["--zzz=1"], "flag provided but not defined: -zzz"),
        (["---x"], "bad flag syntax: ---x"),
        (["-=x"], "bad flag syntax: -=x"),
        (["-workers"], "flag needs an argument: -workers"),
        (
            ["-workers", "many"],
            'invalid value "many" for flag -workers: must be an integer',
        ),
        (["-workers", " 1"], "must be an integer"),
        (["-workers", "1.5"], "must be an integer"),
        (["-workers", "010"], "must be an integer"),
        (["-share", "nan"], "must be a finite number"),
        (["-insecure=maybe"], 'invalid value "maybe" for flag -insecure'),
        (["-insecure=yes"], "true or false"),
        (["-resync", "5"], "a duration such as 10s"),
        (["-resync", ""], "a duration such as 10s"),
        (["-zap-encoder", "xml"], "one of json, console"),
        (["-insecure", "false"], 'unexpected argument "false"'),
        (["-"], 'unexpected argument "-"'),
        (["--", "-insecure"], 'unexpected argument "-insecure"'),
    ],
)
def test_invalid_flag_is_an_error(argv: list[str], problem: str) -> None:
    with pytest.raises(FlagError) as caught:
        parse_command_line(Settings, argv, {})
    assert problem in str(caught.value)
    assert isinstance(caught.value, ConfigError)
    assert caught.value.exit_code == 2


def test_arguments_end_the_flags_as_in_go() -> None:
    assert parse_command_line(WithArguments, ["-v", "false", "-v=false"], {}) == WithArguments(
        True, ("false", "-v=false")
    )
    assert parse_command_line(WithArguments, ["--", "-v"], {}) == WithArguments(False, ("-v",))


def test_environment_is_used_where_the_command_line_sets_nothing() -> None:
    environ = {
        "METRICS_ADDR": ":9",
        "RESYNC": "10s",
        "LEADER_ELECT": "true",
        "REGIONS": "a, b,",
        "VC_PASS": "hunter2",
    }
    settings = parse_command_line(Settings, ["-metrics-addr=:1"], environ)
    assert (settings.address, settings.resync_seconds, settings.elect) == (":1", 10.0, True)
    assert (settings.regions, settings.password) == (("a", "b"), "hunter2")
    assert "hunter2" not in repr(settings)


def test_empty_variable_counts_as_not_set() -> None:
    assert parse_command_line(Settings, [], {"RESYNC": "", "METRICS_ADDR": ""}) == Settings()


def test_error_names_the_variable() -> None:
    with pytest.raises(FlagError, match='invalid value "soon" for environment variable RESYNC'):
        parse_command_line(Settings, [], {"RESYNC": "soon"})


def test_help_is_shown_despite_an_invalid_variable() -> None:
    with pytest.raises(HelpRequested):
        parse_command_line(Settings, ["-help"], {"RESYNC": "soon"})


@pytest.mark.parametrize("argument", ["-h", "--h", "-help", "--help"])
def test_help_lists_flags_and_variables(argument: str) -> None:
    with pytest.raises(HelpRequested) as caught:
        parse_command_line(Settings, ["-insecure", argument], {}, program="operator")
    usage = caught.value.usage
    assert usage.startswith("Usage of operator:\n")
    assert (
        "  -metrics-addr string\n    \tWhere. "
        '(also -metrics-bind-address, environment METRICS_ADDR, default ":8080")\n' in usage
    )
    assert "  -resync duration\n    \tHow often. (environment RESYNC, default 5m0s)\n" in usage
    assert "  -insecure\n    \tNo checks.\n" in usage
    assert "  -zap-encoder json|console\n" in usage
    assert "Environment:\n  VC_PASS\n    \tThe password.\n" in usage


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10s", 10),
        ("1m30s", 90),
        ("1h", 3600),
        ("500ms", 0.5),
        ("1.5h", 5400),
        ("0", 0),
        ("-2s", -2),
        ("+2s", 2),
        (".5s", 0.5),
        ("1us", 1e-6),
    ],
)
def test_duration_is_parsed(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "s", "1", "1 s", "1d", "1s ", "--1s", "1e3s", "٣s"])
def test_invalid_duration_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="duration such as"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(300, "5m0s"), (3600, "1h0m0s"), (0.5, "500ms"), (0, "0s"), (1.5, "1.5s"), (-90, "-1m30s")],
)
def test_duration_is_formatted_as_in_go(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@given(st.floats(min_value=1e-6, max_value=1e6))
def test_formatted_duration_can_be_parsed(seconds: float) -> None:
    assert parse_duration(format_duration(seconds)) == pytest.approx(seconds, rel=1e-6, abs=1e-9)
