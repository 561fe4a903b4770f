"""Command-line flags in Go's syntax, declared as a frozen dataclass.

    @dataclass(frozen=True)
    class Settings:
        metrics_address: str = flag("metrics-addr", ":8080", "Address of /metrics.")
        resync_seconds: Duration = flag("resync", 300.0, "Resync interval.", env="RESYNC")
        password: str = env_variable("VC_PASS", "", "The password.", secret=True)
        log: LogOptions = field(default_factory=LogOptions)  # a group of further flags

    settings = parse_command_line(Settings, sys.argv[1:], os.environ)

As in Go, the first argument that is not a flag ends the flags, so `-insecure false` is a flag and
an argument. A class without an `arguments()` field rejects arguments; Go's programs ignore them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from types import NoneType
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_args, get_origin, get_type_hints

from .errors import ConfigError

T = TypeVar("T")

Duration = Annotated[float, "seconds, written as a Go duration"]

TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})
FALSE = frozenset({"0", "f", "F", "false", "FALSE", "False"})
_UNIT_SECONDS = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "μs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
}
_DURATION_PART = r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)"


class FlagError(ConfigError):
    """The command line or a variable is invalid; the program exits with `exit_code`."""

    exit_code: ClassVar[int] = 2


def invalid_value(name: str, value: str, rule: str) -> FlagError:
    """For checks of a parsed flag: `rule` is such as "must be from 1 to 100"."""
    return FlagError(f'invalid value "{value}" for flag -{name}: {rule}')


class HelpRequested(Exception):
    """-h or -help was given: the program prints `usage` and exits with 0."""

    def __init__(self, usage: str) -> None:
        super().__init__(usage)
        self.usage = usage


@dataclass(frozen=True)
class Flag:
    """How one field is set. Without a name, only the environment can set it."""

    name: str
    help: str
    aliases: tuple[str, ...] = ()
    env: str = ""


@dataclass(frozen=True)
class FlagField:
    """A flag with its path in the declaration and its type."""

    path: tuple[str, ...]
    flag: Flag
    type: Any
    default: Any

    @property
    def names(self) -> tuple[str, ...]:
        return (self.flag.name, *self.flag.aliases) if self.flag.name else ()

    @property
    def _is_repeated(self) -> bool:
        # Each occurrence adds a value. For other types the last occurrence wins, as in Go.
        return bool(self.type == tuple[str, ...])


def flag(name: str, default: T, help: str, *, aliases: tuple[str, ...] = (), env: str = "") -> T:
    """Declare a field that the command line sets, or else the environment variable `env`."""
    return field(default=default, metadata={"flag": Flag(name, help, aliases, env)})


def env_variable(env: str, default: T, help: str, *, secret: bool = False) -> T:
    """Declare a field that only the environment sets: every user of the machine can read argv."""
    return field(default=default, repr=not secret, metadata={"flag": Flag("", help, env=env)})


def arguments() -> tuple[str, ...]:
    """Declare the field for the arguments after the flags; a class without one rejects them."""
    return field(default=(), metadata={"arguments": True})


def parse_command_line(
    declaration: type[T],
    argv: Sequence[str],
    environ: Mapping[str, str],
    *,
    program: str = "manager",
) -> T:
    """Build the declared dataclass from argv (without argv[0]), the environment and the defaults.

    The command line takes precedence over the environment.
    """
    flag_fields = list(collect_flag_fields(declaration))
    # argv first, so that an invalid variable does not hide -help.
    flag_values, positional = _scan_arguments(flag_fields, argv, program)
    values = _read_environment(flag_fields, environ) | flag_values
    declared = fields(declaration)  # type: ignore[arg-type]
    arguments_field = next((f.name for f in declared if "arguments" in f.metadata), None)
    if arguments_field is not None:
        values[(arguments_field,)] = tuple(positional)
    elif positional:
        raise FlagError(
            f'unexpected argument "{positional[0]}": only flags are accepted; '
            "write the value of a bool with =, as in -x=false"
        )
    settings: T = _build_settings(declaration, values)
    return settings


def collect_flag_fields(declaration: type[Any], path: tuple[str, ...] = ()) -> Iterator[FlagField]:
    """Every flag of the dataclass and of its nested dataclasses, in order of declaration."""
    hints = get_type_hints(declaration, include_extras=True)
    for declared in fields(declaration):
        hint, field_path = hints[declared.name], (*path, declared.name)
        if "flag" in declared.metadata:
            # `X | None` is parsed as X. None means "not given" and cannot be written.
            types = [arg for arg in get_args(hint) if arg is not NoneType]
            if NoneType in get_args(hint) and len(types) == 1:
                hint = types[0]
            default = None if declared.default is MISSING else declared.default
            yield FlagField(field_path, declared.metadata["flag"], hint, default)
        elif is_dataclass(hint):
            yield from collect_flag_fields(hints[declared.name], field_path)


def _build_settings(
    declaration: type[Any], values: Mapping[tuple[str, ...], Any], path: tuple[str, ...] = ()
) -> Any:
    hints = get_type_hints(declaration)
    field_values: dict[str, Any] = {}
    for declared in fields(declaration):
        field_path = (*path, declared.name)
        if field_path in values:
            field_values[declared.name] = values[field_path]
        elif "flag" not in declared.metadata and is_dataclass(hints[declared.name]):
            field_values[declared.name] = _build_settings(hints[declared.name], values, field_path)
    return declaration(**field_values)


def _scan_arguments(
    flag_fields: Sequence[FlagField], argv: Sequence[str], program: str
) -> tuple[dict[tuple[str, ...], Any], list[str]]:
    """The values of the flags, and the arguments after them, as Go's flag package reads them."""
    by_name = {name: flag_field for flag_field in flag_fields for name in flag_field.names}
    values: dict[tuple[str, ...], Any] = {}
    rest = list(argv)
    while rest and len(rest[0]) > 1 and rest[0][0] == "-":
        argument = rest.pop(0)
        if argument == "--":
            break
        name, equals, text = argument[2 if argument.startswith("--") else 1 :].partition("=")
        if not name or name.startswith("-"):
            raise FlagError(f"bad flag syntax: {argument}")
        if name in ("h", "help") and name not in by_name:
            raise HelpRequested(_format_usage(flag_fields, program))
        if name not in by_name:
            import difflib

            similar = difflib.get_close_matches(name, by_name, n=1)
            hint = f"; did you mean -{similar[0]}?" if similar else ""
            raise FlagError(f"flag provided but not defined: -{name}{hint}")
        flag_field = by_name[name]
        if not equals and flag_field.type is bool:
            text = "true"
        elif not equals:
            if not rest:
                raise FlagError(f"flag needs an argument: -{name}")
            text = rest.pop(0)
        value = _parse_value(flag_field, text, f"flag -{name}")
        if flag_field._is_repeated:
            values[flag_field.path] = (*values.get(flag_field.path, ()), value)
        else:
            values[flag_field.path] = value
    return values, rest


def _read_environment(
    flag_fields: Sequence[FlagField], environ: Mapping[str, str]
) -> dict[tuple[str, ...], Any]:
    values: dict[tuple[str, ...], Any] = {}
    for flag_field in flag_fields:
        # An empty variable counts as not set: an optional key of a Secret gives an empty one.
        text = environ.get(flag_field.flag.env, "") if flag_field.flag.env else ""
        if text and flag_field._is_repeated:
            values[flag_field.path] = tuple(
                part.strip() for part in text.split(",") if part.strip()
            )
        elif text:
            variable = f"environment variable {flag_field.flag.env}"
            values[flag_field.path] = _parse_value(flag_field, text, variable)
    return values


def _parse_value(flag_field: FlagField, text: str, source: str) -> Any:
    try:
        if get_origin(flag_field.type) is Literal:
            choices = get_args(flag_field.type)
            if text.lower() not in choices:
                raise ValueError("must be one of " + ", ".join(map(str, choices)))
            return text.lower()
        return _TYPES[flag_field.type][0](text)
    except ValueError as error:
        raise FlagError(f'invalid value "{text}" for {source}: {error}') from None
    except KeyError:
        raise TypeError(
            f"-{flag_field.flag.name}: flags cannot have the type {flag_field.type}"
        ) from None


def _parse_bool(text: str) -> bool:
    if text not in TRUE | FALSE:
        raise ValueError("must be true or false")
    return text in TRUE


def _parse_int(text: str) -> int:
    """Parse an integer; 0x, 0o and 0b are accepted as in Go."""
    if not re.fullmatch(r"[+-]?\w+", text, re.ASCII):
        raise ValueError("must be an integer")
    try:
        return int(text, 0)
    except ValueError:
        raise ValueError("must be an integer") from None


def _parse_float(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError("must be a finite number")
    return value


def parse_duration(text: str) -> float:
    """Parse a Go duration to seconds: `10s`, `1m30s`, `500ms`, `-1.5h`; `0` needs no unit."""
    unsigned = text[1:] if text[:1] in ("+", "-") else text
    if unsigned != "0" and not re.fullmatch(f"({_DURATION_PART})+", unsigned, re.ASCII):
        raise ValueError("must be a duration such as 10s, 1m30s, 500ms or 1h")
    seconds = math.fsum(
        float(amount) * _UNIT_SECONDS[unit]
        for amount, unit in re.findall(_DURATION_PART, unsigned, re.ASCII)
    )
    return -seconds if text.startswith("-") else seconds


# The parser of each type, and its name in the help text: a bool needs no value.
_TYPES: dict[Any, tuple[Callable[[str], Any], str]] = {
    str: (str, "string"),
    bool: (_parse_bool, ""),
    int: (_parse_int, "int"),
    float: (_parse_float, "float"),
    Duration: (parse_duration, "duration"),
    tuple[str, ...]: (str, "string, repeatable"),
}


def format_duration(seconds: float) -> str:
    """Format seconds as Go prints a duration: 5m0s, 1h0m0s, 1.5s, 500ms."""
    sign, amount = ("-" if seconds < 0 else ""), abs(seconds)
    if 0 < amount < 1:
        unit = next(
            unit for unit in ("ms", "us", "ns") if amount >= _UNIT_SECONDS[unit] or unit == "ns"
        )
        return f"{sign}{amount / _UNIT_SECONDS[unit]:.9g}{unit}"
    hours, amount = divmod(amount, 3600)
    minutes, amount = divmod(amount, 60)
    leading = (f"{hours:.0f}h" if hours else "") + (f"{minutes:.0f}m" if hours or minutes else "")
    return f"{sign}{leading}{amount:.9g}s"


def _format_usage(flag_fields: Sequence[FlagField], program: str) -> str:
    """The help text in the layout of Go: the flags, then the environment variables without one."""
    flag_lines = [
        f"  -{flag_field.flag.name}{format_type(flag_field)}\n    \t{_format_help(flag_field)}"
        for flag_field in flag_fields
        if flag_field.flag.name
    ]
    env_lines = [
        f"  {flag_field.flag.env}\n    \t{flag_field.flag.help}"
        for flag_field in flag_fields
        if not flag_field.flag.name
    ]
    lines = [f"Usage of {program}:", *flag_lines]
    if env_lines:
        lines += ["Environment:", *env_lines]
    return "\n".join([*lines, ""])


def format_type(flag_field: FlagField) -> str:
    """The type after the flag's name, with a leading space; "" for a bool, which needs no value."""
    if get_origin(flag_field.type) is Literal:
        return " " + "|".join(map(str, get_args(flag_field.type)))
    return f" {_TYPES[flag_field.type][1]}".rstrip()


def _format_help(flag_field: FlagField) -> str:
    notes = [f"also -{alias}" for alias in flag_field.flag.aliases]
    notes += [f"environment {flag_field.flag.env}"] if flag_field.flag.env else []
    notes += (
        [f"default {format_default(flag_field)}"]
        if flag_field.default not in (None, "", False, ())
        else []
    )
    return f"{flag_field.flag.help} ({', '.join(notes)})" if notes else flag_field.flag.help


def format_default(flag_field: FlagField) -> str:
    """The default as it would be written on the command line."""
    if flag_field.type == Duration:
        return format_duration(flag_field.default)
    if isinstance(flag_field.default, tuple):
        return ",".join(flag_field.default)
    return f'"{flag_field.default}"' if flag_field.type is str else str(flag_field.default).lower()
