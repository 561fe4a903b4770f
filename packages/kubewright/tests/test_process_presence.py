"""The end of a process is proven by a socket name, in one network namespace only."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from kubewright.process_presence import ProcessPresence, read_socket_scope

pytestmark = pytest.mark.skipif(not read_socket_scope(), reason="needs abstract sockets and /proc")

HOLD = """
import sys
from kubewright.process_presence import ProcessPresence
presence = ProcessPresence(sys.argv[1])
print(presence.address, flush=True)
sys.stdin.read()
"""


def start_holder(identity: str) -> tuple[subprocess.Popen[str], str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, identity],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def test_a_process_has_ended_only_after_it_was_killed() -> None:
    identity = "host_presence-of-a-process"
    process, address = start_holder(identity)
    observer = ProcessPresence("host_observer-of-a-process")
    try:
        assert address
        assert not observer.has_ended(identity, address)
        process.send_signal(signal.SIGSTOP)
        assert not observer.has_ended(identity, address), "a stopped process may go on"
        process.kill()
        process.wait(10)
        assert observer.has_ended(identity, address)
    finally:
        process.kill()
        process.communicate()


def test_nothing_is_proven_in_another_scope() -> None:
    identity, scope = "host_presence-elsewhere", read_socket_scope()
    elsewhere = ProcessPresence(identity, scope=f"{scope}-of-another-pod")
    observer = ProcessPresence("host_observer-elsewhere")
    assert elsewhere._descriptor is not None
    os.close(elsewhere._descriptor)
    assert not observer.has_ended(identity, elsewhere.address)
    assert not observer.has_ended(identity, "")
    assert not observer.has_ended("host_another-identity", f"{scope}/0123")


def test_without_a_place_nothing_is_published() -> None:
    presence = ProcessPresence("host_presence-without-a-scope", scope="")
    assert presence.address == ""
    assert not presence.has_ended("host_other", "")


def test_the_second_process_of_an_identity_publishes_nothing() -> None:
    first = ProcessPresence("host_presence-twice")
    second = ProcessPresence("host_presence-twice")
    assert first.address
    assert second.address == ""
