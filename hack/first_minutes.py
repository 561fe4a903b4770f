"""Measures the first minutes: from `git clone` to the first HostInfo that the manager has answered.

`make first-minutes` runs it for two sources of the binaries, each with a new clone, an empty home
and so empty caches:

- wheel: `make demo-setup`, pip install of the wheel of `make testenv-wheel`, `make demo`
- archive: `make demo` with the index of `make testenv-archive`, served by a local HTTP server

pip installs from a folder with the wheels of requirements/demo.txt, which is filled before. The
measurement itself has no network: it runs in a namespace that has only the loopback interface.
"""

from __future__ import annotations

import argparse
import functools
import http.server
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from kubewright.errors import ConfigError
from kubewright.testing.envtest import INDEX_VARIABLE
from kubewright.testing.testenv_archive import INDEX_NAME

_ROOT = Path(__file__).parents[1]
_DIST = _ROOT / "dist"
_WHEELHOUSE, _MIRROR = _DIST / "wheelhouse", _DIST / "envtest"
_NAMESPACE = ("unshare", "--user", "--map-root-user", "--net")
_ANSWER_TIMEOUT_SECONDS = 600
_POLL_SECONDS = 0.5
# The demo prints it after its last step.
_STARTED = "the samples"


def measure_wheel(run: _Run) -> None:
    wheels = sorted(_DIST.glob("kubewright_testenv-*.whl"))
    if not wheels:
        raise ConfigError("dist has no wheel kubewright-testenv. Run `make testenv-wheel`.")
    run.step("make demo-setup", ["make", "demo-setup"])
    run.step(
        "pip install kubewright-testenv", [".venv/bin/pip", "install", "--quiet", str(wheels[-1])]
    )
    run.demo()


def measure_archive(run: _Run) -> None:
    if not (_MIRROR / INDEX_NAME).exists():
        raise ConfigError(f"dist/envtest has no {INDEX_NAME}. Run `make testenv-archive`.")
    with _serve(_MIRROR) as address:
        run.environ[INDEX_VARIABLE] = f"{address}/{INDEX_NAME}"
        run.step("make demo-setup", ["make", "demo-setup"])
        run.step("make simulator: download", ["make", "simulator"])
        run.demo()


SOURCES: Mapping[str, Callable[[_Run], None]] = {"wheel": measure_wheel, "archive": measure_archive}


class _Run:
    """One measurement in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        home = folder / "home"
        home.mkdir()
        self._clone = folder / "clone"
        self.environ = {
            "HOME": str(home),
            # Without the folders that a developer added, which may have Go.
            "PATH": f"{Path(sys.base_prefix) / 'bin'}:/usr/bin:/bin",
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(_WHEELHOUSE),
            "GOPROXY": "off",
            "LC_ALL": "C.UTF-8",
        }
        self._began = time.monotonic()
        # Until the answer, without the end of the demo.
        self.seconds = 0.0

    def clone(self) -> None:
        self.step("git clone", ["git", "clone", "--quiet", str(_ROOT), str(self._clone)], _ROOT)

    def step(self, name: str, command: Sequence[str], folder: Path | None = None) -> None:
        began = time.monotonic()
        process = subprocess.run(
            command,
            cwd=folder or self._clone,
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if process.returncode:
            raise ConfigError(f"{name} failed:\n{process.stdout[-2000:]}")
        _print_time(time.monotonic() - began, name)

    def demo(self) -> None:
        """Run `make demo` until a HostInfo is answered, and stop it."""
        began = time.monotonic()
        process = subprocess.Popen(
            ["make", "demo"],
            cwd=self._clone,
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # A process group: Ctrl-C in a terminal also reaches make and the demo.
            start_new_session=True,
        )
        assert process.stdout is not None
        lines: list[str] = []
        reader = threading.Thread(target=lines.extend, args=(process.stdout,), daemon=True)
        reader.start()
        try:
            name = self._wait_for_answer(process, lines)
            self.seconds = time.monotonic() - self._began
            _print_time(time.monotonic() - began, f"make demo: HostInfo {name} is answered")
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGINT)
            process.wait(60)
            reader.join(5)

    def _wait_for_answer(self, process: subprocess.Popen[str], lines: Sequence[str]) -> str:
        deadline = time.monotonic() + _ANSWER_TIMEOUT_SECONDS
        while process.poll() is None and time.monotonic() < deadline:
            if any(_STARTED in line for line in lines) and (name := self._read_answered()):
                return name
            time.sleep(_POLL_SECONDS)
        raise ConfigError(f"make demo answered no HostInfo:\n{''.join(lines)[-2000:]}")

    def _read_answered(self) -> str:
        """The name of a HostInfo that is Ready, read with kubectl as a user of the demo does."""
        env_file = next(self._clone.glob(".testenv/demo/*/env"), None)
        if env_file is None:
            return ""
        process = subprocess.run(
            ["sh", "-c", f". {env_file}; kubectl get hostinfoes -A -o json"],
            env=self.environ,
            capture_output=True,
            text=True,
        )
        if process.returncode:
            return ""
        for obj in json.loads(process.stdout)["items"]:
            conditions = obj.get("status", {}).get("conditions", [])
            if any(c["type"] == "Ready" and c["status"] == "True" for c in conditions):
                return str(obj["metadata"]["name"])
        return ""


@contextmanager
def _serve(folder: Path) -> Iterator[str]:
    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *arguments: object) -> None:
            pass

    handler = functools.partial(Handler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()


def _print_time(seconds: float, text: str) -> None:
    print(f"{seconds:6.1f} s  {text}", flush=True)


def _measure(source: str) -> float:
    with tempfile.TemporaryDirectory(prefix="first-minutes-") as folder:
        print(f"{source}: load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} processors")
        run = _Run(Path(folder))
        run.clone()
        SOURCES[source](run)
        seconds = run.seconds
        print(f"{seconds:6.1f} s  in total, load average {os.getloadavg()[0]:.1f}\n", flush=True)
        return seconds


def _enter_namespace(arguments: Sequence[str]) -> None:
    """Start this program again in a namespace without a network, if the machine permits it."""
    command = [*_NAMESPACE, "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
    if (
        not shutil.which(_NAMESPACE[0])
        or subprocess.run([*command, "true"], capture_output=True).returncode
    ):
        print(
            "This machine does not permit a network namespace (unshare, ip): the network stays "
            "reachable, and only the settings of pip and Go prevent downloads.",
            flush=True,
        )
        return
    os.execvp(
        command[0], [*command, sys.executable, "-m", "hack.first_minutes", "--inside", *arguments]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = argparse.ArgumentParser(
        prog="python -m hack.first_minutes",
        description="Measure the time from a clone to the first answered HostInfo.",
    )
    parser.add_argument("--source", choices=[*SOURCES], action="append", help="default: all")
    parser.add_argument("--limit", type=float, default=90.0, help="seconds; default: %(default)s")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    try:
        if not options.inside:
            lock = ["--require-hashes", "-r", "requirements/demo.txt"]
            pip = [
                sys.executable,
                "-m",
                "pip",
                "download",
                "--quiet",
                "--disable-pip-version-check",
            ]
            subprocess.run([*pip, "-d", str(_WHEELHOUSE), *lock], cwd=_ROOT, check=True)
            _enter_namespace(arguments)
        slowest = max(_measure(source) for source in options.source or SOURCES)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 1
    if slowest > options.limit:
        print(f"More than {options.limit:g} s.", file=sys.stderr)
    return int(slowest > options.limit)


if __name__ == "__main__":
    sys.exit(main())
