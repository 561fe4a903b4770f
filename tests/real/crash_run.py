"""Runs a group's lifecycle: a simulated vCenter, proxies, and a manager that uses them."""

from __future__ import annotations

import asyncio
import signal
import uuid
from collections.abc import AsyncIterator, Sequence
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
# Longer than the start of the next manager and the 10 s after which it may take a clone for lost:
# it must see this clone running.
LONG_CLONE_SECONDS = 15.0
# With SIGTERM a replica hands over within 3 s; then it logs out of vCenter.
HAND_OVER_SECONDS = 20.0
# The clones of a lifecycle before its user clones a VM.
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
    """The result of one run."""

    crash_point: CrashPoint | None
    calls: tuple[MutatingCall, ...]
    reached: bool
    failure: str = ""
    seconds: float = 0.0


@asynccontextmanager
async def run_simulator(binary: Path, folder: Path, *flags: str) -> AsyncIterator[SimulatedVCenter]:
    """A simulated vCenter with templates and the parent folder."""
    vcenter = SimulatedVCenter(binary, folder, *VCENTER_FLAGS, *flags)
    try:
        yield await vcenter.start()
    finally:
        await vcenter.stop()


@asynccontextmanager
async def run_observed_manager(
    plane: ControlPlane, vcenter: SimulatedVCenter, namespaces: str, folder: Path, *flags: str
) -> AsyncIterator[tuple[ManagerProcess, CrashInjector]]:
    """A manager for these namespaces; the injector sees all of its calls."""

    async def kill(_: int) -> None:
        await manager.kill()

    async def start(_: int) -> None:
        manager.start()

    injector = CrashInjector(kill, start)
    async with AsyncExitStack() as stack:
        manager = await _enter_manager(
            stack, plane, vcenter, namespaces, folder, flags, injector, 0
        )
        yield manager, injector


async def _enter_manager(
    stack: AsyncExitStack,
    plane: ControlPlane,
    vcenter: SimulatedVCenter,
    namespaces: str,
    folder: Path,
    flags: Sequence[str],
    injector: CrashInjector,
    number: int,
) -> ManagerProcess:
    """Start a manager behind proxies of its own, until the end of the stack."""
    await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
    token = plane.create_service_account_token(SYSTEM_NAMESPACE, SERVICE_ACCOUNT)
    api = await stack.enter_async_context(api_proxy(plane, injector, number))
    sdk = await stack.enter_async_context(vcenter_proxy(vcenter, injector, number))
    (folder / "ca.crt").write_bytes(sdk.ca.certificate)
    credentials = write_credentials(folder / "vc-creds", vcenter, GOVMOMI_URL=f"{sdk.url}/sdk")
    manager_flags = (
        f"--kubeconfig={api.write_kubeconfig(folder / 'kubeconfig', token)}",
        f"--vcenter-credentials={credentials}",
        f"--vcenter-ca-file={folder / 'ca.crt'}",
        "--zap-log-level=debug",
        *([f"--watch-namespaces={namespaces}"] if namespaces else []),
    )
    manager = ManagerProcess(folder / "manager.log", *manager_flags, *FREE_PORT_FLAGS, *flags)
    manager.start()
    stack.push_async_callback(manager.kill)
    return manager


@asynccontextmanager
async def run_two_managers(
    plane: ControlPlane, vcenter: SimulatedVCenter, namespace: str, folder: Path, *flags: str
) -> AsyncIterator[CrashInjector]:
    """Two managers that share two shards; the one that the injector selects hands over its own."""

    async def hand_over(number: int) -> None:
        managers[number].send_signal(signal.SIGTERM)
        await managers[number].wait_for_exit(within=HAND_OVER_SECONDS)

    async def start(number: int) -> None:
        managers[number].start()

    injector, managers = CrashInjector(hand_over, start), list[ManagerProcess]()
    shard_flags = (
        "--shards=2",
        f"--leader-election-namespace={SYSTEM_NAMESPACE}",
        f"--leader-election-id={namespace}",
    )
    async with AsyncExitStack() as stack:
        for number in range(2):
            manager = await _enter_manager(
                stack,
                plane,
                vcenter,
                namespace,
                folder / str(number),
                (*flags, *shard_flags),
                injector,
                number,
            )
            managers.append(manager)
            await manager.wait_for_log("took a shard")
        yield injector


async def set_clone_durations(
    vcenter: SimulatedVCenter, point: CrashPoint | None, seconds: float
) -> None:
    """Set the duration of clones. The clone of the crash point takes much longer, so that it still
    runs when the next manager starts."""
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
    *,
    with_hand_over: bool = False,
) -> CrashResult:
    """One lifecycle in a namespace of its own; the manager is killed at the crash point, or hands
    over to another one.
    """
    await set_clone_durations(vcenter, point, clone_seconds)
    namespace = f"crash-{uuid.uuid4().hex[:8]}"
    plane.create_namespace(namespace)
    loop = asyncio.get_running_loop()
    started_at, failure = loop.time(), ""
    try:
        # A VM that a user deletes between two managers is missing, not deleted, for this time.
        flag = "--vmgroup-missing-vm-timeout=1s"
        async with AsyncExitStack() as stack:
            if with_hand_over:
                injector = await stack.enter_async_context(
                    run_two_managers(plane, vcenter, namespace, folder, flag)
                )
            else:
                _, injector = await stack.enter_async_context(
                    run_observed_manager(plane, vcenter, namespace, folder, flag)
                )
            injector.crash_point = point
            try:
                await GroupLifecycle(plane, vcenter, namespace, injector).run()
            except AssertionError as error:
                failure = str(error)
    finally:
        plane.remove_namespace(namespace)
    return CrashResult(
        point,
        tuple(injector.calls),
        injector.crashed_call is not None,
        failure,
        loop.time() - started_at,
    )
