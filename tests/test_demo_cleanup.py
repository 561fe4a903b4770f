"""What a killed demo leaves: only that is ended, and only by who is sure. And what must not end it."""

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
from kubewright.testing.http import HttpError


@pytest.fixture
def sleeping_process() -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True
    )
    yield child
    child.kill()
    child.wait()


def write_abandoned_folder(root: Path, *children: ProcessIdentity) -> Path:
    """The folder of a demo that is gone."""
    folder = root / "123"
    folder.mkdir(parents=True)
    owner = {"pid": os.getpid(), "started": "1"}
    (folder / PROCESSES_FILE).write_text(
        json.dumps([owner, *({"pid": each.pid, "started": each.started} for each in children)])
    )
    return folder


def test_a_process_is_known_by_its_start_too(sleeping_process: subprocess.Popen[bytes]) -> None:
    assert identify_process(sleeping_process.pid).is_alive
    assert not ProcessIdentity(sleeping_process.pid, "1").is_alive
    assert not ProcessIdentity(sleeping_process.pid, "").is_alive


def test_what_a_killed_demo_left_is_ended_and_removed(
    tmp_path: Path, sleeping_process: subprocess.Popen[bytes]
) -> None:
    folder = write_abandoned_folder(tmp_path, identify_process(sleeping_process.pid))
    (said,) = clean_up_abandoned(tmp_path)
    assert sleeping_process.wait(10) == -9
    assert not folder.exists()
    assert str(sleeping_process.pid) in said


def test_another_process_with_an_old_id_is_left_alone(
    tmp_path: Path, sleeping_process: subprocess.Popen[bytes]
) -> None:
    folder = write_abandoned_folder(tmp_path, ProcessIdentity(sleeping_process.pid, "1"))
    clean_up_abandoned(tmp_path)
    assert sleeping_process.poll() is None
    assert not folder.exists()


def test_a_demo_that_runs_is_left_alone(
    tmp_path: Path, sleeping_process: subprocess.Popen[bytes]
) -> None:
    mine = DemoFolder(tmp_path)
    mine.record_processes([sleeping_process.pid])
    assert clean_up_abandoned(tmp_path) == []
    assert mine.path.is_dir()
    assert sleeping_process.poll() is None
    mine.remove()
    assert not mine.path.exists()


def test_a_folder_without_a_ledger_is_nobodys(tmp_path: Path) -> None:
    (tmp_path / "9").mkdir()
    assert len(clean_up_abandoned(tmp_path)) == 1
    assert clean_up_abandoned(tmp_path / "nowhere") == []


def test_a_demo_that_is_being_started_is_not_taken_for_a_killed_one(tmp_path: Path) -> None:
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


DEMO_SCRIPT = "import os, signal; from demo.parent import exit_with_parent; exit_with_parent(); print(os.getpid(), flush=True); signal.pause()"
MAKE_SCRIPT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {DEMO_SCRIPT!r}])"


@pytest.fixture
def orphaned_demo(pytestconfig: pytest.Config) -> ProcessIdentity:
    """A demo whose make was killed just now."""
    with subprocess.Popen(
        [sys.executable, "-c", MAKE_SCRIPT], cwd=pytestconfig.rootpath, stdout=subprocess.PIPE
    ) as make:
        assert make.stdout
        demo = identify_process(int(make.stdout.readline()))
        assert demo.is_alive
        make.kill()
    return demo


async def test_a_make_that_is_killed_takes_the_demo_with_it(orphaned_demo: ProcessIdentity) -> None:
    await eventually(lambda: not orphaned_demo.is_alive)


async def test_what_somebody_else_has_done_already_does_not_end_the_play() -> None:
    async def refused() -> None:
        raise HttpError(409, "it is there already")

    async def broken() -> None:
        raise ZeroDivisionError

    await try_action(refused)
    with pytest.raises(ZeroDivisionError):
        await try_action(broken)
