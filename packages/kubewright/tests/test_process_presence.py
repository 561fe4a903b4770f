"""The end of a process is proven by a socket name, in one network namespace only."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import uuid

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


def make_identity() -> str:
    """Unique on the machine, on which other runs of this test share the socket names."""
    return f"host_{uuid.uuid4()}"


def start_holder(identity: str, *prefix: str) -> tuple[subprocess.Popen[str], str]:
    process = subprocess.Popen(
        [*prefix, sys.executable, "-c", HOLD, identity],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def test_a_process_has_ended_only_after_it_was_killed() -> None:
    identity = make_identity()
    process, address = start_holder(identity)
    observer = ProcessPresence(make_identity())
    try:
        assert address
        assert not observer.has_ended(identity, address)
        process.send_signal(signal.SIGSTOP)
        assert not observer.has_ended(identity, address), "a stopped process may go on"
        process.kill()
        process.wait(60)
        assert observer.has_ended(identity, address)
    finally:
        process.kill()
        process.communicate()


def test_nothing_is_proven_in_another_network_namespace() -> None:
    """Two Pods on one node with the same host name: each can bind the name of the other."""
    unshare = shutil.which("unshare")
    own_namespace = (unshare or "", "--map-root-user", "--net")
    if unshare is None or subprocess.run([*own_namespace, "true"], capture_output=True).returncode:
        pytest.skip("this user cannot create a network namespace")
    identity = make_identity()
    process, address = start_holder(identity, *own_namespace)
    observer = ProcessPresence(make_identity())
    try:
        scope = read_socket_scope()
        assert address.startswith(scope.split("/")[0]), "the same boot of the same machine"
        assert scope.endswith(f"/{socket.gethostname()}")
        assert ProcessPresence(identity).address, "the name is free here, while the process lives"
        assert not observer.has_ended(identity, address)
    finally:
        process.kill()
        process.communicate()
    assert not observer.has_ended(identity, address), "unknown from here: the lease has to expire"


def test_nothing_is_proven_in_another_scope() -> None:
    identity, scope = make_identity(), read_socket_scope()
    elsewhere = ProcessPresence(identity, scope=f"{scope}-of-another-pod")
    observer = ProcessPresence(make_identity())
    assert elsewhere._descriptor is not None
    os.close(elsewhere._descriptor)
    assert not observer.has_ended(identity, elsewhere.address)
    assert not observer.has_ended(identity, "")
    assert not observer.has_ended("host_another-identity", f"{scope}/0123")


def test_without_a_scope_nothing_is_published() -> None:
    presence = ProcessPresence(make_identity(), scope="")
    assert presence.address == ""
    assert not presence.has_ended("host_other", "")


def test_the_second_process_of_an_identity_publishes_nothing() -> None:
    identity = make_identity()
    first, second = ProcessPresence(identity), ProcessPresence(identity)
    assert first.address
    assert second.address == ""
