"""Runs `python -m MODULE` without the start of Python and the imports of kubewright.

Those take most of the time of a short command. A server imports kubewright once, and forks for each
command: it is a process of its own, with its own modules of a project, environment and folder.
Tests of the start itself, such as those of the installed distributions, run Python.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import runpy
import socket
import struct
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

DEFAULT_TIMEOUT_SECONDS = 300
# pytest cannot run here: it rewrites assertions of kubewright, which is imported already.
_IMPORTED_MODULES = (
    *("kubewright.builder.cli", "kubewright.command", "kubewright.webhook.server"),
    *("kubewright.testing.controlplane", "kubewright.testing.binaries"),
    *("kubewright.api.apps_v1", "kubewright.api.core_v1"),
)
_EXIT_CODE = struct.Struct("!i")


class PythonServer:
    """Starts at the first command."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: socket.socket | None = None

    def run(
        self,
        command: Sequence[str],
        *,
        cwd: Path | None = None,
        environ: Mapping[str, str] | None = None,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
    ) -> subprocess.CompletedProcess[str]:
        """Run `[sys.executable, "-m", MODULE, *ARGUMENTS]`, as subprocess.run() would."""
        assert list(command[:2]) == [sys.executable, "-m"], command
        request = {
            "arguments": list(command[2:]),
            "folder": str(cwd or Path.cwd()),
            "environ": dict(os.environ if environ is None else environ),
        }
        with (
            tempfile.TemporaryFile() as message,
            Path(os.devnull).open("rb") as stdin,
            tempfile.TemporaryFile() as stdout,
            tempfile.TemporaryFile() as stderr,
        ):
            message.write(json.dumps(request).encode())
            message.seek(0)
            files: list[IO[bytes]] = [message, stdin, stdout, stderr]
            exit_code = self._request(files, timeout_seconds)
            if exit_code is None:
                raise subprocess.TimeoutExpired(command, timeout_seconds)
            output, errors = (self._read(file) for file in (stdout, stderr))
        return subprocess.CompletedProcess(list(command), exit_code, output, errors)

    def run_program(
        self,
        command: Sequence[str],
        timeout_seconds: float,
        *,
        environ: Mapping[str, str] | None = None,
        **_: Any,
    ) -> subprocess.CompletedProcess[str]:
        """In place of kubewright.builder.program.run_program()."""
        return self.run(command, environ=environ, timeout_seconds=timeout_seconds)

    def stop(self) -> None:
        if self._process is None or self._connection is None:
            return
        self._connection.close()
        self._process.wait(timeout=60)
        self._process = self._connection = None

    def _request(self, files: list[IO[bytes]], timeout_seconds: float) -> int | None:
        if self._connection is None:
            self._start()
        assert self._connection is not None
        assert self._process is not None
        self._connection.settimeout(timeout_seconds)
        # The request is a file: one byte cannot arrive in parts.
        socket.send_fds(self._connection, [b"r"], [file.fileno() for file in files])
        try:
            answer = self._connection.recv(_EXIT_CODE.size, socket.MSG_WAITALL)
        except TimeoutError:
            os.killpg(self._process.pid, 9)
            self.stop()
            return None
        (exit_code,) = _EXIT_CODE.unpack(answer)
        return int(exit_code)

    def _start(self) -> None:
        self._connection, theirs = socket.socketpair()
        with theirs:
            environ = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=environ,
                start_new_session=True,
            )

    @staticmethod
    def _read(file: IO[bytes]) -> str:
        file.seek(0)
        return file.read().decode()


def serve(connection: socket.socket, search_path: list[str]) -> None:
    """Fork for each request; return after the client has closed the connection."""
    while True:
        _, descriptors, _, _ = socket.recv_fds(connection, 1, 4)
        if not descriptors:
            return
        message, *streams = descriptors
        pid = os.fork()
        if pid == 0:
            connection.close()
            # Not sys.exit(): to free the imported modules takes longer than most commands.
            os._exit(_run_request(message, streams, search_path))
        for descriptor in descriptors:
            os.close(descriptor)
        _, status = os.waitpid(pid, 0)
        # The client is gone if it did not wait for the answer.
        with suppress(BrokenPipeError):
            connection.sendall(_EXIT_CODE.pack(os.waitstatus_to_exitcode(status)))


def _run_request(message: int, streams: list[int], search_path: list[str]) -> int:
    with os.fdopen(message, "rb") as file:
        request = json.load(file)
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    folder, (module, *arguments) = request["folder"], request["arguments"]
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(request["environ"])
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    sources = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:] = [folder, *sources, *search_path]
    sys.argv = [module, *arguments]
    exit_code = 0
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as error:
        exit_code = error.code if isinstance(error.code, int) else int(error.code is not None)
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
    except BaseException:
        exit_code = 1
        traceback.print_exc()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    return exit_code


if __name__ == "__main__":
    # Without the folder of this file, which Python adds.
    installed_path = sys.path[1:]
    for name in _IMPORTED_MODULES:
        importlib.import_module(name)
    # The collector would otherwise copy the pages of all modules into each forked process.
    gc.freeze()
    serve(socket.socket(fileno=int(sys.argv[1])), installed_path)
