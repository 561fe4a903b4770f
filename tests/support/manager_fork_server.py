"""Forks managers from one process that has imported the manager already.

Why?  A manager spends 0.6 s of CPU time on its imports, and the tests start some hundred managers.
What differs from `python -m vsphere_operators.main`?  The command line in /proc, and what modules
    read from the environment while they are imported.
Why no threads?  A fork copies only the thread that calls it, with the locks of all the others.

`forked_process.py` is the other side. A request is a line of JSON, with a socket. Through this
socket the manager sends its process ID as soon as it has a session of its own, and the server sends
its exit code.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import select
import signal
import socket
import sys
from typing import Any

_PR_SET_PDEATHSIG = 1


def serve(requests: socket.socket) -> tuple[dict[str, Any], socket.socket]:
    """Fork for each request. Only the forked processes return, each with its request."""
    replies = dict[int, socket.socket]()
    ended, ended_writer = socket.socketpair()
    ended_writer.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(ended_writer.fileno())
    while True:
        ready, _, _ = select.select([requests, ended], [], [])
        if ended in ready:
            ended.recv(4096)
            _report_exits(replies)
        if requests in ready:
            request, reply = _receive(requests)
            pid = os.fork()
            if not pid:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for other in (requests, ended, ended_writer, *replies.values()):
                    other.close()
                return request, reply
            replies[pid] = reply


def _receive(requests: socket.socket) -> tuple[dict[str, Any], socket.socket]:
    data, fds, _, _ = socket.recv_fds(requests, 65536, 1)
    while data and not data.endswith(b"\n"):
        data += requests.recv(65536)
    if not data:
        # The test process has ended. The kernel ends the managers, see _prepare().
        sys.exit()
    return json.loads(data), socket.socket(fileno=fds[0])


def _report_exits(replies: dict[int, socket.socket]) -> None:
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            with replies.pop(pid) as reply, contextlib.suppress(OSError):
                reply.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())


def _prepare(request: dict[str, Any], reply: socket.socket) -> None:
    """Give the forked process what a new one would have."""
    os.setsid()
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    null = os.open(os.devnull, os.O_RDONLY)
    log = os.open(request["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    for source, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.close(null)
    os.close(log)
    os.environ.clear()
    os.environ.update(request["environ"])
    sys.argv[1:] = request["flags"]
    with reply:
        reply.sendall(f"{os.getpid()}\n".encode())


if __name__ == "__main__":
    # This folder: a manager does not have it.
    del sys.path[0]
    from vsphere_operators import main

    # The garbage collector would write to all objects, and so copy the memory of the server.
    gc.freeze()
    sys.argv[0] = main.__file__
    _prepare(*serve(socket.socket(fileno=int(sys.argv[1]))))
    raise SystemExit(main.main())
