"""Where a life is played: a simulated vCenter, proxies before it and before the API server, and a manager that goes through both."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from kubewright.testing.controlplane import ControlPlane
from simulator import SimulatedVCenter
from support.info_client import write_credentials
from support.manager_process import (
    FREE_PORT_FLAGS,
    SERVICE_ACCOUNT,
    SYSTEM_NAMESPACE,
    ManagerProcess,
)
from support.vmgroup_client import TEMPLATE

from .crash_injection import CrashInjector, CrashPoint, MutatingCall, api_proxy, vcenter_proxy
from .group_lifecycle import OTHER_TEMPLATE, GroupLifecycle

CLONE_SECONDS = 0.1
# Longer than the next manager needs to start, and than the 10 s after which it may take a clone for lost: it must see this one run.
LONG_CLONE_SECONDS = 15.0
# The clones of a life before a person makes one, too.
CLONES_BEFORE_COPY = 3
VCENTER_FLAGS = (
    "--clusters=1",
    "--hosts=1",
    "--vms=1",
    f"--template={TEMPLATE},{OTHER_TEMPLATE}",
    "--folder=vm-operator",
)


@dataclass(frozen=True)
class CrashResult:
    """How one life went."""

    crash_point: CrashPoint | None
    calls: tuple[MutatingCall, ...]
    reached: bool
    failure: str = ""
    seconds: float = 0.0


@asynccontextmanager
async def run_simulator(binary: Path, folder: Path, *flags: str) -> AsyncIterator[SimulatedVCenter]:
    """A vCenter with what VmGroups need."""
    vcenter = SimulatedVCenter(binary, folder, *VCENTER_FLAGS, *flags)
    try:
        yield await vcenter.start()
    finally:
        await vcenter.stop()


@asynccontextmanager
async def run_observed_manager(
    plane: ControlPlane, vcenter: SimulatedVCenter, namespaces: str, folder: Path, *flags: str
) -> AsyncIterator[tuple[ManagerProcess, CrashInjector]]:
    """A manager of these namespaces, all of whose calls the reaper sees."""
    await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
    token = plane.create_service_account_token(SYSTEM_NAMESPACE, SERVICE_ACCOUNT)

    async def kill() -> None:
        await manager.kill()

    async def start() -> None:
        manager.start()

    reaper = CrashInjector(kill, start)
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(api_proxy(plane, reaper))
        sdk = await stack.enter_async_context(vcenter_proxy(vcenter, reaper))
        (folder / "ca.crt").write_bytes(sdk.ca.certificate)
        given = (
            f"--kubeconfig={api.write_kubeconfig(folder / 'kubeconfig', token)}",
            f"--vcenter-credentials={write_credentials(folder / 'vc-creds', vcenter, GOVMOMI_URL=f'{sdk.url}/sdk')}",
            f"--vcenter-ca-file={folder / 'ca.crt'}",
            "--zap-log-level=debug",
            *([f"--watch-namespaces={namespaces}"] if namespaces else []),
        )
        manager = ManagerProcess(folder / "manager.log", *given, *FREE_PORT_FLAGS, *flags)
        manager.start()
        stack.push_async_callback(manager.kill)
        yield manager, reaper


async def set_clone_durations(
    vcenter: SimulatedVCenter, point: CrashPoint | None, seconds: float
) -> None:
    """Let clones take this long, but the one at which the manager dies much longer, so that it is under way when the next one comes."""
    await vcenter.clear_rules()
    if point and point.operation == "CloneVM_Task" and point.mode != "before":
        if before := point.number - 1 + (point.number > CLONES_BEFORE_COPY):
            await vcenter.fail_calls(
                "CloneVM_Task", count=before, where="task", delay_seconds=seconds
            )
        await vcenter.fail_calls(
            "CloneVM_Task", count=1, where="task", delay_seconds=LONG_CLONE_SECONDS
        )
    await vcenter.delay_calls("CloneVM_Task", seconds)


async def run_lifecycle(
    plane: ControlPlane,
    vcenter: SimulatedVCenter,
    folder: Path,
    point: CrashPoint | None,
    clone_seconds: float = CLONE_SECONDS,
) -> CrashResult:
    """One life in a namespace of its own, with the manager killed at the point."""
    await set_clone_durations(vcenter, point, clone_seconds)
    namespace = f"crash-{uuid.uuid4().hex[:8]}"
    plane.create_namespace(namespace)
    loop = asyncio.get_running_loop()
    began, failure = loop.time(), ""
    try:
        async with run_observed_manager(plane, vcenter, namespace, folder) as (_, reaper):
            reaper.crash_point = point
            try:
                await GroupLifecycle(plane, vcenter, namespace, reaper).run()
            except AssertionError as broken:
                failure = str(broken)
    finally:
        plane.remove_namespace(namespace)
    return CrashResult(
        point, tuple(reaper.calls), reaper.crashed_call is not None, failure, loop.time() - began
    )
