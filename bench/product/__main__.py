"""`python -m bench.product`: the manager and its peers by turns, on one API server and vCenter."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import msgspec

from bench.cluster import BenchError
from bench.product.cold_start import ColdStart
from bench.product.contenders import BY_SLUG, CONTENDERS, KOPF, MANAGER, Contender
from bench.product.edits import Edits
from bench.product.environment import Environment, open_environment
from bench.product.equal_work import Reference, check_equal_work
from bench.product.fan_out import FanOut
from bench.product.gpuinfos import GPUInfos
from bench.product.restart import Restart
from bench.product.turns import Turn
from bench.product.vmgroups import VmGroups
from bench.report import installed_versions, machine_info
from kubewright import KubewrightError
from vsphere_operators.kinds.hostinfo import HostInfo
from vsphere_operators.kinds.vminfo import VMInfo

_RESULTS = Path(__file__).parents[1] / "results"


class Scenario(Protocol):
    async def measure(
        self, environment: Environment, reference: Reference, contender: Contender, name: str
    ) -> dict[str, float]:
        """The figures of one turn. `name` is a namespace that does not exist yet."""


SCENARIOS: Mapping[str, Scenario] = {
    "cold-1": ColdStart(HostInfo, 1),
    "cold-1000": ColdStart(HostInfo, 1_000),
    "cold-vms-1000": ColdStart(VMInfo, 1_000),
    "cold-10000": ColdStart(HostInfo, 10_000),
    "cold-100000": ColdStart(HostInfo, 100_000),
    "restart-1000": Restart(1_000),
    "fan-out-1000": FanOut(1_000),
    "edits-at-rest": Edits(),
    "edits-cold-10000": Edits(10_000),
    "vmgroups-200": VmGroups(200),
    "gpuinfos-1000": GPUInfos(1_000),
}
_DEFAULT_SCENARIOS = tuple(name for name in SCENARIOS if name != "cold-100000")
_MANAGER_ALONE = ("vmgroups-200", "gpuinfos-1000")
_WITH_NODES = ("gpuinfos-1000",)
# kopf would need minutes for each turn of these.
_LARGE_SCENARIOS = ("cold-10000", "cold-100000", "edits-cold-10000")


def contenders_of(scenario: str, contenders: Sequence[Contender]) -> list[Contender]:
    """The contenders that can take part."""
    if scenario in _MANAGER_ALONE:
        return [MANAGER]
    return [
        contender
        for contender in contenders
        if (contender.follows_vcenter or not scenario.startswith("fan-out"))
        and (contender.reconciles or scenario.startswith("cold"))
        and not (contender is KOPF and scenario in _LARGE_SCENARIOS)
    ]


@dataclass(frozen=True)
class Race:
    scenarios: Mapping[str, int]
    """The number of turns of each scenario."""
    contenders: Sequence[Contender]
    turns: list[Turn] = field(default_factory=list)

    async def run(self, environment: Environment, scenarios: Mapping[str, int]) -> None:
        reference = await check_equal_work(environment, self.contenders)
        _log(f"all {len(self.contenders)} contenders store equal statuses")
        for scenario, turn_count in scenarios.items():
            contenders = contenders_of(scenario, self.contenders)
            for number in range(turn_count):
                # A different contender begins each turn.
                first = number % len(contenders)
                for contender in (*contenders[first:], *contenders[:first]):
                    name = f"{scenario}-{number + 1}-{contender.slug}"
                    figures = await SCENARIOS[scenario].measure(
                        environment, reference, contender, name
                    )
                    self.turns.append(Turn(scenario, number + 1, contender.slug, figures))
                    values = "  ".join(f"{key} {value:.4g}" for key, value in figures.items())
                    _log(f"{scenario:<16} {number + 1:>2}  {contender.slug:<8} {values}")


async def run_race(race: Race, hosts: int, vms: int) -> None:
    """SIGTERM ends a race as cleanly as Ctrl-C does."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    # The VMs of Nodes would make the start of the other scenarios slower.
    for with_nodes in (False, True):
        scenarios = {
            name: turns
            for name, turns in race.scenarios.items()
            if (name in _WITH_NODES) == with_nodes
        }
        if scenarios:
            with tempfile.TemporaryDirectory() as folder:
                async with open_environment(
                    Path(folder), hosts, vms, with_nodes=with_nodes
                ) as environment:
                    await race.run(environment, scenarios)


def _log(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.product", description="Race the manager against its peers."
    )
    parser.add_argument(
        "--scenario",
        action="append",
        type=_parse_scenario,
        metavar="NAME[:TURNS]",
        help=f"repeatable; by default all but cold-100000: {', '.join(SCENARIOS)}",
    )
    parser.add_argument(
        "--contender",
        action="append",
        choices=BY_SLUG,
        help="one contender; repeatable; by default all that are built",
    )
    parser.add_argument(
        "--turns",
        type=int,
        default=3,
        help="turns of a scenario that is named without a number (3)",
    )
    parser.add_argument("--hosts", type=int, default=100, help="hosts of the vCenter (100)")
    parser.add_argument("--vms", type=int, default=200, help="VMs of the vCenter (200)")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="where the JSON goes (bench/results/<time>.json)"
    )
    return parser.parse_args()


def _parse_scenario(text: str) -> tuple[str, int | None]:
    name, _, turns = text.partition(":")
    if name not in SCENARIOS:
        raise argparse.ArgumentTypeError(f"unknown scenario {name}; use {', '.join(SCENARIOS)}")
    return name, int(turns) if turns else None


def write_results(race: Race, started: datetime, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "started": started.isoformat(timespec="seconds"),
        "machine": machine_info(),
        "versions": installed_versions("vsphere-operators", "kopf", "aiohttp", "msgspec"),
        "turns": race.turns,
    }
    file.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n")
    _log(f"every turn is in {file}")


def main() -> int:
    if sys.platform != "linux":
        print("bench.product reads CPU and memory from /proc; run it on Linux.", file=sys.stderr)
        return 2
    options = _parse_arguments()
    contenders = (
        [BY_SLUG[slug] for slug in options.contender]
        if options.contender
        else [contender for contender in CONTENDERS if contender.is_built]
    )
    chosen = options.scenario or [(name, None) for name in _DEFAULT_SCENARIOS]
    race = Race({name: turns or options.turns for name, turns in chosen}, contenders)
    started, is_complete = datetime.now(UTC), False
    try:
        asyncio.run(run_race(race, options.hosts, options.vms))
        is_complete = True
    except Exception as error:
        is_expected = isinstance(error, BenchError | KubewrightError)
        _log(str(error) if is_expected else "".join(traceback.format_exception(error)))
    except (KeyboardInterrupt, asyncio.CancelledError):
        _log("stopped; everything that was started has been ended")
    if race.turns:
        write_results(
            race, started, options.json or _RESULTS / f"product-{started:%Y-%m-%dT%H-%M-%SZ}.json"
        )
    return 0 if is_complete else 2


if __name__ == "__main__":
    sys.exit(main())
