"""Command-line flags in Go's syntax, declared as a frozen dataclass: the declaration is the usage text and the result.

    @dataclass(frozen=True)
    class Settings:
        metrics_address: str = flag("metrics-addr", ":8080", "Where /metrics listens.", aliases=("metrics-bind-address",))
        resync_seconds: Duration = flag("resync", 300.0, "How often everything is looked at again.", env="RESYNC")
        password: str = variable("VC_PASS", "", "The password.", secret=True)
        log: LogOptions = field(default_factory=LogOptions)             # a group: its flags stand beside ours

    settings = parse(Settings, sys.argv[1:], os.environ)

As in Go, the first argument that is not a flag ends the flags, so `-insecure false` is a flag and an argument.
A class without an `arguments()` field refuses arguments, where Go's programs ignore what follows without a word.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
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
    """The command line, or a variable that stands for a flag, cannot be used; a program ends with `exit_code`."""

    exit_code: ClassVar[int] = 2


class HelpRequested(Exception):
    """-h or -help was given: print `usage` and end with `exit_code`."""

    exit_code: ClassVar[int] = 0

    def __init__(self, usage: str) -> None:
        super().__init__(usage)
        self.usage = usage


@dataclass(frozen=True)
class Flag:
    """How one field is set from outside; without a name only the environment can set it."""

    name: str
    help: str
    aliases: tuple[str, ...] = ()
    env: str = ""


@dataclass(frozen=True)
class Option:
    """A flag at its place in the declaration, with its type."""

    path: tuple[str, ...]
    flag: Flag
    type: Any
    default: Any

    @property
    def names(self) -> tuple[str, ...]:
        """Every name that the command line knows it by."""
        return (self.flag.name, *self.flag.aliases) if self.flag.name else ()

    @property
    def _is_repeated(self) -> bool:
        """Whether each occurrence adds a value, where otherwise the last one wins."""
        return bool(self.type == tuple[str, ...])


def flag(name: str, default: T, help: str, *, aliases: tuple[str, ...] = (), env: str = "") -> T:
    """Declare a field that the command line sets, or `env` when the command line is silent."""
    return field(default=default, metadata={"flag": Flag(name, help, aliases, env)})


def env_variable(env: str, default: T, help: str, *, secret: bool = False) -> T:
    """Declare a field that only the environment sets: argv is readable by every user of the machine."""
    return field(default=default, repr=not secret, metadata={"flag": Flag("", help, env=env)})


def arguments() -> tuple[str, ...]:
    """Declare the field that takes what follows the flags; a class without one refuses arguments."""
    return field(default=(), metadata={"arguments": True})


def parse_command_line(
    declaration: type[T],
    argv: Sequence[str],
    environ: Mapping[str, str],
    *,
    program: str = "manager",
) -> T:
    """Make the declared dataclass from the command line (without argv[0]), the environment and the defaults, in this order."""
    options = list(collect_options(declaration))
    given, rest = _scan_arguments(options, argv, program)
    values = _read_environment(options, environ) | given
    takes_arguments = next((f.name for f in fields(declaration) if "arguments" in f.metadata), None)  # type: ignore[arg-type]
    if takes_arguments is not None:
        values[(takes_arguments,)] = tuple(rest)
    elif rest:
        raise FlagError(
            f'unexpected argument "{rest[0]}": no arguments are taken, only flags; the value of a bool is written with =, as in -x=false'
        )
    made: T = _build_settings(declaration, values)
    return made


def collect_options(declaration: type[Any], path: tuple[str, ...] = ()) -> Iterator[Option]:
    """Every flag of the dataclass, and of the dataclasses inside it, in the order of declaration."""
    hints = get_type_hints(declaration, include_extras=True)
    for each in fields(declaration):
        here = (*path, each.name)
        if "flag" in each.metadata:
            yield Option(
                here, each.metadata["flag"], _strip_optional(hints[each.name]), _field_default(each)
            )
        elif is_dataclass(hints[each.name]):
            yield from collect_options(hints[each.name], here)


def _strip_optional(hint: Any) -> Any:
    """`X` for `X | None`: None says "not given", and cannot be written."""
    kept = [each for each in get_args(hint) if each is not NoneType]
    return kept[0] if NoneType in get_args(hint) and len(kept) == 1 else hint


def _field_default(declared: Field[Any]) -> Any:
    """The default of a field, None where it has none."""
    return None if declared.default is MISSING else declared.default


def _build_settings(
    declaration: type[Any], values: Mapping[tuple[str, ...], Any], path: tuple[str, ...] = ()
) -> Any:
    """Make the dataclass, and those inside it, from what was given; the rest keeps its defaults."""
    hints = get_type_hints(declaration)
    chosen: dict[str, Any] = {}
    for each in fields(declaration):
        here = (*path, each.name)
        if here in values:
            chosen[each.name] = values[here]
        elif "flag" not in each.metadata and is_dataclass(hints[each.name]):
            chosen[each.name] = _build_settings(hints[each.name], values, here)
    return declaration(**chosen)


def _scan_arguments(
    options: Sequence[Option], argv: Sequence[str], program: str
) -> tuple[dict[tuple[str, ...], Any], list[str]]:
    """What the flags say, and the arguments after them."""
    known = {name: option for option in options for name in option.names}
    given: dict[tuple[str, ...], Any] = {}
    rest = list(argv)
    while rest and len(rest[0]) > 1 and rest[0][0] == "-":
        word = rest.pop(0)
        if word == "--":
            break
        name, equals, text = _split_flag(word)
        if name not in known:
            raise (
                HelpRequested(_format_usage(options, program))
                if name in ("h", "help")
                else _undefined_flag_error(name, known)
            )
        option = known[name]
        if not equals:
            text = "true" if option.type is bool else _take_value(name, rest)
        value = _parse_value(option, text, f"flag -{name}")
        given[option.path] = (*given.get(option.path, ()), value) if option._is_repeated else value
    return given, rest


def _split_flag(word: str) -> tuple[str, str, str]:
    """The name, "=" or "", and the value of `-x`, `--x`, `-x=v` or `--x=v`."""
    name, equals, text = word[2 if word.startswith("--") else 1 :].partition("=")
    if not name or name.startswith("-"):
        raise FlagError(f"bad flag syntax: {word}")
    return name, equals, text


def _take_value(name: str, rest: list[str]) -> str:
    """The next word, which is this flag's value."""
    if not rest:
        raise FlagError(f"flag needs an argument: -{name}")
    return rest.pop(0)


def _undefined_flag_error(name: str, known: Mapping[str, Option]) -> FlagError:
    """The error for a flag that nobody declared, with the nearest that somebody did."""
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean -{near[0]}? " if near else ""
    return FlagError(f"flag provided but not defined: -{name}; {hint}-help lists all flags")


def _read_environment(
    options: Sequence[Option], environ: Mapping[str, str]
) -> dict[tuple[str, ...], Any]:
    """What the environment says; an empty variable counts as not set, as optional keys of a Secret leave it."""
    found: dict[tuple[str, ...], Any] = {}
    for option in options:
        text = environ.get(option.flag.env, "") if option.flag.env else ""
        if text and option._is_repeated:
            found[option.path] = tuple(part.strip() for part in text.split(",") if part.strip())
        elif text:
            found[option.path] = _parse_value(
                option, text, f"environment variable {option.flag.env}"
            )
    return found


def _parse_value(option: Option, text: str, where: str) -> Any:
    """The value that the text means for this option."""
    try:
        if get_origin(option.type) is Literal:
            return _parse_choice(text, get_args(option.type))
        return _PARSERS[option.type](text)
    except ValueError as error:
        raise FlagError(f'invalid value "{text}" for {where}: {error}') from None
    except KeyError:
        raise TypeError(f"-{option.flag.name}: no flag can have the type {option.type}") from None


def _parse_choice(text: str, allowed: tuple[Any, ...]) -> Any:
    """One of a few words, in whatever case."""
    if text.lower() not in allowed:
        raise ValueError("it has to be one of " + ", ".join(map(str, allowed)))
    return text.lower()


def _parse_bool(text: str) -> bool:
    """One of Go's twelve spellings."""
    if text not in TRUE | FALSE:
        raise ValueError("it has to be true or false")
    return text in TRUE


def parse_int(text: str) -> int:
    """A whole number; 0x, 0o and 0b work as in Go."""
    if not re.fullmatch(r"[+-]?\w+", text, re.ASCII):
        raise ValueError("it has to be a whole number")
    try:
        return int(text, 0)
    except ValueError:
        raise ValueError("it has to be a whole number") from None


def _parse_float(text: str) -> float:
    """A finite number."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError("it has to be a number")
    return value


def parse_duration(text: str) -> float:
    """Seconds from a Go duration: `10s`, `1m30s`, `500ms`, `-1.5h`; `0` needs no unit."""
    unsigned = text[1:] if text[:1] in ("+", "-") else text
    if unsigned != "0" and not re.fullmatch(f"({_DURATION_PART})+", unsigned, re.ASCII):
        raise ValueError("it has to be a duration such as 10s, 1m30s, 500ms or 1h")
    seconds = math.fsum(
        float(amount) * _UNIT_SECONDS[unit]
        for amount, unit in re.findall(_DURATION_PART, unsigned, re.ASCII)
    )
    return -seconds if text.startswith("-") else seconds


_PARSERS: dict[Any, Callable[[str], Any]] = {
    str: str,
    bool: _parse_bool,
    int: parse_int,
    float: _parse_float,
    Duration: parse_duration,
    tuple[str, ...]: str,
}


def format_duration(seconds: float) -> str:
    """Seconds as Go prints a duration: 5m0s, 1h0m0s, 1.5s, 500ms."""
    sign, left = ("-" if seconds < 0 else ""), abs(seconds)
    if 0 < left < 1:
        unit = next(
            unit for unit in ("ms", "us", "ns") if left >= _UNIT_SECONDS[unit] or unit == "ns"
        )
        return f"{sign}{left / _UNIT_SECONDS[unit]:.9g}{unit}"
    hours, left = divmod(left, 3600)
    minutes, left = divmod(left, 60)
    leading = (f"{hours:.0f}h" if hours else "") + (f"{minutes:.0f}m" if hours or minutes else "")
    return f"{sign}{leading}{left:.9g}s"


def _format_usage(options: Sequence[Option], program: str) -> str:
    """The help text: every flag with its other names, default and variable, as Go prints it, then the variables alone."""
    by_flag = [
        f"  -{option.flag.name}{format_type(option)}\n    \t{_format_help(option)}"
        for option in options
        if option.flag.name
    ]
    by_env = [
        f"  {option.flag.env}\n    \t{option.flag.help}"
        for option in options
        if not option.flag.name
    ]
    return (
        "\n".join(
            [f"Usage of {program}:", *by_flag, *(["Environment:", *by_env] if by_env else [])]
        )
        + "\n"
    )


def format_type(option: Option) -> str:
    """What stands after the name, with its space; nothing for a bool, which needs no value."""
    if get_origin(option.type) is Literal:
        return " " + "|".join(map(str, get_args(option.type)))
    names = {
        str: "string",
        bool: "",
        int: "int",
        float: "float",
        Duration: "duration",
        tuple[str, ...]: "string, repeatable",
    }
    return f" {names[option.type]}".rstrip()


def _format_help(option: Option) -> str:
    """The help of one flag with what else there is to know."""
    notes = [f"also -{alias}" for alias in option.flag.aliases]
    notes += [f"environment {option.flag.env}"] if option.flag.env else []
    notes += (
        [f"default {format_default(option)}"] if option.default not in (None, "", False, ()) else []
    )
    return f"{option.flag.help} ({', '.join(notes)})" if notes else option.flag.help


def format_default(option: Option) -> str:
    """The default as it would be given on the command line."""
    if option.type == Duration:
        return format_duration(option.default)
    if isinstance(option.default, tuple):
        return ",".join(option.default)
    return f'"{option.default}"' if option.type is str else str(option.default).lower()
