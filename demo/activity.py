"""The demo's script: loads that follow a model, and changes as users and vCenter make them.

The changes repeat in the same order. Which VM moves where depends only on the loads.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import cycle
from typing import Any

from vsphere_operators.kubectl.table import short_host

from . import fixtures
from .environment import DemoEnvironment, try_action
from .loads import Loads, RunningVm, compute_loads

_LOAD_SECONDS = 3.0
_ACTION_SECONDS = 12.0
_VMOTION_SECONDS = 2.0
# How long a host needs to enter maintenance, with the VMs that leave it.
_MAINTENANCE_SECONDS = 12.0
# A batch job reaches its intensity in this time, and ends in it.
_JOB_RAMP_SECONDS = 9.0
_POD_PATH = f"/api/v1/namespaces/default/pods/{fixtures.FRIEND_POD}"
_JOB_VM = fixtures.WORKER.name
_MAINTENANCE_HOST = fixtures.HOSTS[2]
_FIXED_VMS = {worker.name for worker in fixtures.ALL_WORKERS if worker.gpu}


class Activity:
    """Runs until cancelled; `status` is a line about what it does."""

    def __init__(self, environment: DemoEnvironment, seed: int = 0) -> None:
        self.status = "A script moves VMs, loads hosts and acts as users; its first change follows."
        self._environment, self._vcenter, self._seed = environment, environment.vcenter, seed
        self._loads = Loads({}, {})
        self._job_target, self._job_intensity = 0.0, 0.0
        self._unavailable_hosts = set[str]()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow_loads())
            group.create_task(self._run_actions())

    async def _follow_loads(self) -> None:
        began = time.monotonic()
        while True:
            await try_action(lambda: self._set_loads(time.monotonic() - began))
            await asyncio.sleep(_LOAD_SECONDS)

    async def _set_loads(self, seconds: float) -> None:
        step = _LOAD_SECONDS / _JOB_RAMP_SECONDS
        difference = self._job_target - self._job_intensity
        self._job_intensity += min(max(difference, -step), step)
        vms = await self._running_vms()
        self._loads = compute_loads(
            fixtures.HOSTS, vms, seconds, jobs={_JOB_VM: self._job_intensity}, seed=self._seed
        )
        stats = {name: load.quick_stats() for name, load in self._loads.hosts.items()}
        stats |= {name: load.quick_stats() for name, load in self._loads.vms.items()}
        for name, figures in stats.items():
            # A replica may have been deleted since it was listed.
            await try_action(partial(self._vcenter.set_stats, name, **figures))

    async def _running_vms(self) -> list[RunningVm]:
        return [
            RunningVm(vm["name"], vm["host"], vm["cpus"], vm["memoryMB"])
            for vm in await self._vcenter.vms()
            if vm["power"] == "poweredOn" and not vm["template"]
        ]

    async def _run_actions(self) -> None:
        actions: tuple[Callable[[], Awaitable[None]], ...] = (
            self._delete_pod,
            self._begin_job,
            self._power_off_replica,
            self._balance,
            self._create_pod,
            self._end_job,
            self._delete_replica,
            self._enter_maintenance,
            self._balance,
            self._leave_maintenance,
            self._balance,
        )
        for action in cycle(actions):
            await asyncio.sleep(_ACTION_SECONDS)
            await try_action(action)

    def _report(self, text: str) -> None:
        self.status = f"Staged by a script at {time.strftime('%H:%M:%S')}: {text}"

    async def _delete_pod(self) -> None:
        self._report(f"a user deletes the Pod {fixtures.FRIEND_POD}")
        await self._call_api_server("DELETE", f"{_POD_PATH}?gracePeriodSeconds=0")

    async def _create_pod(self) -> None:
        self._report(f"a user creates the Pod {fixtures.FRIEND_POD}")
        await self._call_api_server(
            "POST", _POD_PATH.rpartition("/")[0], fixtures.pod_manifest(fixtures.FRIEND_POD)
        )

    async def _begin_job(self) -> None:
        self._report(f"a batch job starts on {_short_name(_JOB_VM)}")
        self._job_target = 1.0

    async def _end_job(self) -> None:
        self._report(f"the batch job on {_short_name(_JOB_VM)} ends")
        self._job_target = 0.0

    async def _power_off_replica(self) -> None:
        """Powers off a VM of vg-1; the manager powers it on again."""
        if replica := await self._first_replica("vg-1"):
            self._report(f"a user powers off {replica}")
            await self._vcenter.set_power(replica, False)

    async def _delete_replica(self) -> None:
        """Deletes a VM of vg-3; the manager clones another one."""
        if replica := await self._first_replica("vg-3"):
            self._report(f"a user deletes {replica}")
            await self._vcenter.delete(replica)

    async def _first_replica(self, group: str) -> str:
        names = (vm.name for vm in await self._running_vms())
        return min((name for name in names if name.startswith(f"{group}-replica-")), default="")

    async def _balance(self) -> None:
        """Moves one VM from the host with the highest demand to the one with the lowest, as DRS."""
        vms = await self._running_vms()
        move = choose_move(vms, self._loads, self._unavailable_hosts)
        if move:
            await self._move(*move)

    async def _move(self, vm: str, host: str) -> None:
        self._report(f"vMotion of {_short_name(vm)} to {short_host(host)}")
        await self._vcenter.move_vm(vm, host, seconds=_VMOTION_SECONDS)

    async def _enter_maintenance(self) -> None:
        """Moves all VMs away while the host enters maintenance.

        A VM with a passthrough device cannot move, so an administrator powers it off.
        """
        host = _MAINTENANCE_HOST
        self._report(f"{short_host(host)} enters maintenance")
        self._unavailable_hosts.add(host)
        async with asyncio.TaskGroup() as group:
            enter = partial(self._vcenter.set_maintenance, host, seconds=_MAINTENANCE_SECONDS)
            group.create_task(try_action(enter))
            for vm in await self._running_vms():
                if vm.host != host:
                    continue
                if vm.name in _FIXED_VMS:
                    await try_action(partial(self._vcenter.set_power, vm.name, False))
                else:
                    await try_action(partial(self._move, vm.name, self._idlest_host()))
        self._report(f"{short_host(host)} is in maintenance")

    async def _leave_maintenance(self) -> None:
        host = _MAINTENANCE_HOST
        self._report(f"{short_host(host)} leaves maintenance")
        await self._vcenter.set_maintenance(host, False)
        self._unavailable_hosts.discard(host)
        for vm in await self._vcenter.vms():
            if vm["host"] == host and vm["name"] in _FIXED_VMS and vm["power"] != "poweredOn":
                await self._vcenter.set_power(vm["name"], True)

    def _idlest_host(self) -> str:
        hosts = [host for host in fixtures.HOSTS if host not in self._unavailable_hosts]
        return min(hosts, key=lambda host: _host_usage(self._loads, host))

    async def _call_api_server(self, verb: str, path: str, body: Any = None) -> None:
        def call() -> None:
            with self._environment.control_plane.apiserver.admin_client() as https:
                https.call(verb, path, body)

        await asyncio.to_thread(call)


def choose_move(
    vms: list[RunningVm], loads: Loads, unavailable_hosts: set[str]
) -> tuple[str, str] | None:
    """A VM of the busiest host, and the idlest host; None if no VM can move."""
    hosts = sorted(
        (host for host in fixtures.HOSTS if host not in unavailable_hosts),
        key=lambda host: (_host_usage(loads, host), host),
    )
    for busiest in reversed(hosts[1:]):
        candidates = [vm for vm in vms if vm.host == busiest and vm.name not in _FIXED_VMS]
        if candidates:
            vm = max(candidates, key=lambda vm: (_vm_usage(loads, vm.name), vm.name))
            return vm.name, hosts[0]
    return None


def _host_usage(loads: Loads, host: str) -> int:
    return loads.hosts[host].usage_mhz if host in loads.hosts else 0


def _vm_usage(loads: Loads, vm: str) -> int:
    return loads.vms[vm].usage_mhz if vm in loads.vms else 0


def _short_name(vm: str) -> str:
    """The end of a long name, by which names differ."""
    return vm if len(vm) <= 24 else f"…{vm[-16:]}"
