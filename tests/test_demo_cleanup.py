"""Cleanup after killed demos: their processes are ended, and no other process is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.cleanup import (
    PROCESSES_FILE,
    DemoFolder,
    ProcessIdentity,
    clean_up_abandoned,
    hold_lock,
    identify_process,
)
from demo.environment import try_action
from kubewright.testing import eventually
from kubewright.testing.cluster_access import HttpError


@pytest.fixture
def sleeping_process() -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True
    )
    yield child
    child.kill()
    child.wait()


def write_abandoned_folder(root: Path, *children: ProcessIdentity) -> Path:
    folder = root / "123"
    folder.mkdir(parents=True)
    owner = {"pid": os.getpid(), "started": "1"}
    (folder / PROCESSES_FILE).write_text(
        json.dumps([owner, *({"pid": child.pid, "started": child.started} for child in children)])
    )
    return folder


def test_process_is_identified_by_its_start_time_too(
    sleeping_process: subprocess.Popen[bytes],
) -> None:
    assert identify_process(sleeping_process.pid).is_alive
    assert not ProcessIdentity(sleeping_process.pid, "1").is_alive
    assert not ProcessIdentity(sleeping_process.pid, "").is_alive


def test_processes_and_folder_of_a_killed_demo_are_removed(
    tmp_path: Path, sleeping_process: subprocess.Popen[bytes]
) -> None:
    folder = write_abandoned_folder(tmp_path, identify_process(sleeping_process.pid))
    (message,) = clean_up_abandoned(tmp_path)
    assert sleeping_process.wait(10) == -9
    assert not folder.exists()
    assert str(sleeping_process.pid) in message


def test_other_process_with_a_reused_id_is_not_killed(
    tmp_path: Path, sleeping_process: subprocess.Popen[bytes]
) -> None:
    folder = write_abandoned_folder(tmp_path, ProcessIdentity(sleeping_process.pid, "1"))
    clean_up_abandoned(tmp_path)
    assert sleeping_process.poll() is None
    assert not folder.exists()


def test_running_demo_is_not_removed(
    tmp_path: Path, sleeping_process: subprocess.Popen[bytes]
) -> None:
    folder = DemoFolder(tmp_path)
    folder.record_processes([sleeping_process.pid])
    assert clean_up_abandoned(tmp_path) == []
    assert folder.path.is_dir()
    assert sleeping_process.poll() is None
    folder.remove()
    assert not folder.path.exists()


def test_folder_without_a_processes_file_is_removed(tmp_path: Path) -> None:
    (tmp_path / "9").mkdir()
    assert len(clean_up_abandoned(tmp_path)) == 1
    assert clean_up_abandoned(tmp_path / "nowhere") == []


def test_starting_demo_is_not_removed(tmp_path: Path) -> None:
    with hold_lock(tmp_path):
        starting = tmp_path / "9"
        starting.mkdir()
        cleaner = threading.Thread(target=clean_up_abandoned, args=(tmp_path,))
        cleaner.start()
        cleaner.join(0.2)
        assert starting.is_dir()
        (starting / PROCESSES_FILE).write_text(
            json.dumps([{"pid": os.getpid(), "started": identify_process(os.getpid()).started}])
        )
    cleaner.join(10)
    assert not cleaner.is_alive()
    assert starting.is_dir()


DEMO_SCRIPT = (
    "import os, signal; from demo.cleanup import exit_with_parent; exit_with_parent(); "
    "print(os.getpid(), flush=True); signal.pause()"
)
MAKE_SCRIPT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {DEMO_SCRIPT!r}])"


@pytest.fixture
def orphaned_demo(pytestconfig: pytest.Config) -> ProcessIdentity:
    """A demo; its make was killed."""
    with subprocess.Popen(
        [sys.executable, "-c", MAKE_SCRIPT], cwd=pytestconfig.rootpath, stdout=subprocess.PIPE
    ) as make:
        assert make.stdout
        demo = identify_process(int(make.stdout.readline()))
        assert demo.is_alive
        make.kill()
    return demo


async def test_demo_ends_with_a_killed_make(orphaned_demo: ProcessIdentity) -> None:
    await eventually(lambda: not orphaned_demo.is_alive)


async def test_failed_action_does_not_end_the_activity() -> None:
    async def conflicting() -> None:
        raise HttpError(409, "already exists")

    async def broken() -> None:
        raise ZeroDivisionError

    async def unreachable() -> None:
        raise ConnectionRefusedError

    await try_action(conflicting)
    await try_action(unreachable)
    with pytest.raises(ZeroDivisionError):
        await try_action(broken)
