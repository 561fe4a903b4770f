"""Finding and building binaries, with small scripts instead of kubectl, etcd and go."""

from __future__ import annotations

import io
import os
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kubewright.errors import ConfigError
from kubewright.testing import binaries as assets
from kubewright.testing.envtest import INDEX_VARIABLE
from kubewright.testing.go_build import BuildFailed, GoBuilder, _go_environment
from kubewright.testing.pins import KUBERNETES_VARIABLE, Pins, load_pins, parse_version
from kubewright.testing.progress import Progress, format_bar, format_duration
from kubewright.version import NEWEST_KUBERNETES, OLDEST_KUBERNETES

GO_MOD = b"""module test

go 1.26.0

require (
\tgo.etcd.io/etcd/server/v3 v3.6.16 // indirect
\tk8s.io/kubernetes v1.36.3 // indirect
)
"""
TEST_PINS = Pins(GO_MOD, b"sum")

# Records each call in $CALLS; "builds" by writing the linker flags into the programs.
FAKE_GO = """
import os, sys
arguments = sys.argv[1:]
with open(os.environ["CALLS"], "a") as calls:
    calls.write(" ".join(arguments) + "\\n")
if arguments[0] == "env":
    print(os.environ.get("FAKE_GO_VERSION", "go1.26.8"))
    print(os.environ.get("FAKE_GO_TOOLCHAIN", "local"))
elif arguments[0] == "list":
    for package in ("fmt", "os", "main"):
        print(f"true|{package}|0|/nowhere|main.go")
elif arguments[0] == "build":
    if os.environ.get("FAKE_GO_FAILS"):
        sys.exit("main.go:7: undefined: nonsense")
    assert os.path.exists("go.mod") and os.path.exists("go.sum")
    print("fmt\\nos", file=sys.stderr)
    out = arguments[arguments.index("-o") + 1]
    names = {"go.etcd.io/etcd/server/v3": "server"}
    for package in (a for a in arguments if a.startswith(("k8s.io/kubernetes", "go.etcd.io"))):
        with open(out + names.get(package, package.rsplit("/", 1)[1]), "w") as program:
            program.write(arguments[arguments.index("-ldflags") + 1])
"""


@pytest.fixture
def progress_output() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def environ(no_installed_package: None, tmp_path: Path) -> dict[str, str]:
    """An environment with a fake go on PATH and an empty cache."""
    write_script(tmp_path / "path" / "go", f"#!{sys.executable}\n{FAKE_GO}")
    return {
        "PATH": str(tmp_path / "path"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "CALLS": str(tmp_path / "calls"),
        INDEX_VARIABLE: "off",
    }


@pytest.fixture
def find_binaries(
    environ: dict[str, str], progress_output: io.StringIO
) -> Callable[..., dict[str, Path]]:
    def find(*names: str, folders: tuple[Path, ...] = ()) -> dict[str, Path]:
        return assets.find_binaries(
            names,
            environ,
            folders=folders,
            progress=Progress(progress_output),
            pins=TEST_PINS,
        )

    return find


def write_script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def write_kubectl(folder: Path, version: str) -> Path:
    return write_script(
        folder / "kubectl",
        f"#!/bin/sh\necho 'Client Version: {version}'\necho 'Kustomize Version: v5.8.1'\n",
    )


def read_go_calls(environ: dict[str, str]) -> list[str]:
    log = Path(environ["CALLS"])
    return log.read_text().splitlines() if log.exists() else []


@pytest.mark.parametrize("minor", [OLDEST_KUBERNETES, NEWEST_KUBERNETES])
def test_shipped_pins_have_all_versions(minor: str) -> None:
    pins = load_pins(minor)
    assert parse_version(pins.go_version) >= (1, 24)
    assert pins.binary_version("etcd").startswith("3.")
    assert pins.minor_version("kube-apiserver") == minor
    assert pins.binary_version("kubectl") == pins.binary_version("kube-apiserver")
    assert f"version.gitVersion=v{pins.binary_version('kubectl')} " in pins.linker_flags


def test_missing_binary_is_an_error_with_the_command_that_builds_it(
    environ: dict[str, str], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        assets.find_binaries(
            ["kube-controller-manager"],
            environ,
            folders=[tmp_path / "bin"],
            pins=TEST_PINS,
            build=False,
        )
    assert str(caught.value) == (
        "kube-controller-manager is missing. Download or build it, which takes minutes once, with: "
        "python -m kubewright.testing.binaries --only kube-controller-manager "
        f"--into {tmp_path / 'bin'}"
    )
    assert read_go_calls(environ) == []


def test_cache_folder_depends_on_the_pins() -> None:
    assert Pins(GO_MOD, b"other").digest != TEST_PINS.digest == Pins(GO_MOD, b"sum").digest


def test_binary_in_kubebuilder_assets_is_used(
    find_binaries: Callable[..., dict[str, Path]], environ: dict[str, str], tmp_path: Path
) -> None:
    environ["KUBEBUILDER_ASSETS"] = str(tmp_path / "own")
    own = write_kubectl(tmp_path / "own", "v1.36.0")
    write_kubectl(tmp_path / "path", "v1.36.3")
    assert find_binaries("kubectl") == {"kubectl": own}
    assert read_go_calls(environ) == []


def test_folders_are_searched_first(
    find_binaries: Callable[..., dict[str, Path]], tmp_path: Path
) -> None:
    first = write_kubectl(tmp_path / "first", "v1.36.3")
    write_kubectl(tmp_path / "path", "v1.36.3")
    assert find_binaries("kubectl", folders=(tmp_path / "first",)) == {"kubectl": first}


def test_binary_of_another_minor_version_is_ignored(
    find_binaries: Callable[..., dict[str, Path]],
    environ: dict[str, str],
    progress_output: io.StringIO,
    tmp_path: Path,
) -> None:
    environ["KUBEBUILDER_ASSETS"] = str(tmp_path / "own")
    old, older = (
        write_kubectl(tmp_path / "own", "v1.35.9"),
        write_kubectl(tmp_path / "path", "v1.32.4-dispatcher"),
    )
    path = find_binaries("kubectl")["kubectl"]
    assert read_go_calls(environ)[-1].startswith("build")
    assert path.is_relative_to(tmp_path / "cache")
    assert (
        f"ignoring {old} (from KUBEBUILDER_ASSETS): it is version 1.35.9, 1.36 is required\n"
        in progress_output.getvalue()
    )
    assert (
        f"ignoring {older} (from PATH): it is version 1.32.4-dispatcher, 1.36 is required\n"
        in progress_output.getvalue()
    )


def test_environment_selects_the_version_of_kubernetes(
    environ: dict[str, str], progress_output: io.StringIO, tmp_path: Path
) -> None:
    environ[KUBERNETES_VARIABLE] = OLDEST_KUBERNETES
    environ["KUBEBUILDER_ASSETS"] = str(tmp_path / "own")
    newest = write_kubectl(tmp_path / "own", f"v{NEWEST_KUBERNETES}.3")
    oldest = write_kubectl(tmp_path / "path", f"v{OLDEST_KUBERNETES}.1")
    progress = Progress(progress_output)
    assert assets.find_binaries(["kubectl"], environ, progress=progress) == {"kubectl": oldest}
    assert progress_output.getvalue() == (
        f"ignoring {newest} (from KUBEBUILDER_ASSETS): it is version {NEWEST_KUBERNETES}.3, "
        f"{OLDEST_KUBERNETES} is required; {KUBERNETES_VARIABLE}={NEWEST_KUBERNETES} selects it\n"
    )


def test_version_of_kubernetes_that_is_not_pinned_is_rejected(environ: dict[str, str]) -> None:
    environ[KUBERNETES_VARIABLE] = "1.31"
    with pytest.raises(ConfigError) as caught:
        assets.find_binaries(["kubectl"], environ)
    assert str(caught.value) == (
        f'KUBEWRIGHT_KUBERNETES: Invalid value: "1.31": must be {OLDEST_KUBERNETES} or '
        f"{NEWEST_KUBERNETES}"
    )


def test_binary_that_does_not_run_is_ignored(
    find_binaries: Callable[..., dict[str, Path]], progress_output: io.StringIO, tmp_path: Path
) -> None:
    broken = write_script(tmp_path / "path" / "etcd", "#!/nowhere/at-all\n")
    assert find_binaries("etcd")["etcd"] != broken
    assert "it prints no version, 3.5 or 3.6 is required" in progress_output.getvalue()


def test_missing_binaries_are_built_together_and_once(
    find_binaries: Callable[..., dict[str, Path]],
    environ: dict[str, str],
    progress_output: io.StringIO,
    tmp_path: Path,
) -> None:
    paths = find_binaries("etcd", "kubectl")
    assert paths == {
        name: tmp_path / "cache" / "kubewright" / TEST_PINS.digest / name
        for name in ("etcd", "kubectl")
    }
    assert "-X k8s.io/component-base/version.gitMinor=36" in paths["etcd"].read_text()
    assert re.search(r"^built etcd, kubectl in \d+s$", progress_output.getvalue(), re.MULTILINE)
    assert find_binaries("etcd", "kubectl") == paths
    assert [call.split()[0] for call in read_go_calls(environ)] == ["env", "list", "build"]
    assert {path.name for path in paths["etcd"].parent.iterdir()} == {"etcd", "kubectl", "lock"}


def test_concurrent_runs_build_once(
    find_binaries: Callable[..., dict[str, Path]], environ: dict[str, str]
) -> None:
    runs = [threading.Thread(target=find_binaries, args=("etcd",)) for _ in range(4)]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    assert sum(call.startswith("build") for call in read_go_calls(environ)) == 1


def test_failed_build_reports_the_output_and_removes_its_files(
    find_binaries: Callable[..., dict[str, Path]], environ: dict[str, str], tmp_path: Path
) -> None:
    environ["FAKE_GO_FAILS"] = "1"
    with pytest.raises(BuildFailed, match=r"building etcd: .* exit code 1") as failed:
        find_binaries("etcd")
    assert "undefined: nonsense" in str(failed.value)
    assert "KUBEBUILDER_ASSETS" in str(failed.value)
    cache = tmp_path / "cache" / "kubewright" / TEST_PINS.digest
    assert [path.name for path in cache.iterdir()] == ["lock"]


def test_next_build_removes_the_files_of_a_killed_build(
    find_binaries: Callable[..., dict[str, Path]], tmp_path: Path
) -> None:
    abandoned = tmp_path / "cache" / "kubewright" / TEST_PINS.digest / "build-killed"
    (abandoned / "out").mkdir(parents=True)
    find_binaries("etcd")
    assert not abandoned.exists()


def test_go_writes_to_the_home_folder_only_if_it_did_before(tmp_path: Path) -> None:
    cache, home = tmp_path / "cache", tmp_path / "home"
    assert _go_environment(cache, {"HOME": str(home)}) == {
        "GOPATH": str(cache / "go"),
        "XDG_CONFIG_HOME": str(cache / "config"),
    }
    assert _go_environment(cache, {"HOME": str(home), "GOMODCACHE": "/m", "GOENV": "off"}) == {}
    (home / "go").mkdir(parents=True)
    (home / ".config/go").mkdir(parents=True)
    assert _go_environment(cache, {"HOME": str(home)}) == {}


@pytest.mark.parametrize(
    ("share", "seconds", "bar"),
    [
        (0.0, 5, "[....................] "),
        (0.049, 30, "[....................] "),
        (0.25, 60, "[#####...............] about 3 min left; "),
        (0.5, 100, "[##########..........] about 2 min left; "),
        (0.9, 90, "[##################..] less than a minute left; "),
        (1.0, 90, "[####################] less than a minute left; "),
    ],
)
def test_progress_bar_estimates_the_remaining_time(share: float, seconds: float, bar: str) -> None:
    assert format_bar(share, seconds) == bar


@pytest.mark.parametrize(
    ("version", "toolchain", "usable"),
    [
        ("go1.26.0", "local", True),
        ("go1.25.9", "local", False),
        ("go1.25.9", "auto", True),
        ("go1.20.1", "auto", False),
        ("", "", False),
    ],
)
def test_old_go_is_used_only_if_it_downloads_a_newer_one(
    environ: dict[str, str],
    progress_output: io.StringIO,
    tmp_path: Path,
    version: str,
    toolchain: str,
    usable: bool,
) -> None:
    environ |= {"FAKE_GO_VERSION": version, "FAKE_GO_TOOLCHAIN": toolchain}
    builder = GoBuilder(tmp_path, TEST_PINS, environ, Progress(progress_output))
    assert builder._can_build(tmp_path / "path" / "go") is usable
    assert ("ignoring" in progress_output.getvalue()) is not usable


def test_unknown_binary_is_rejected(
    find_binaries: Callable[..., dict[str, Path]],
) -> None:
    with pytest.raises(
        ConfigError, match=r"unknown binary kubelet; must be one of etcd, kube-apiserver"
    ):
        find_binaries("kubelet")


def test_command_prints_the_versions_that_are_used(
    environ: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    kubectl = write_kubectl(tmp_path / "path", f"v{NEWEST_KUBERNETES}.1")
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.delenv(KUBERNETES_VARIABLE, raising=False)
    assert assets.main(["--only", "kubectl", "--into", str(tmp_path / "bin")]) == 0
    assert capsys.readouterr().out.split() == ["kubectl", f"{NEWEST_KUBERNETES}.1", str(kubectl)]
    assert (tmp_path / "bin" / "kubectl").samefile(kubectl)


def test_command_prints_the_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert assets.main(["--only", "kubelet"]) == 1
    assert capsys.readouterr().err.startswith("unknown binary kubelet")


def test_links_are_created_replaced_and_kept(tmp_path: Path) -> None:
    old, new = (
        write_kubectl(tmp_path / "old", "v1.36.0"),
        write_kubectl(tmp_path / "new", "v1.36.3"),
    )
    into = tmp_path / "bin"
    for source in (old, new):
        assets.link_binaries({"kubectl": source}, into)
        assert (into / "kubectl").samefile(source)
    assets.link_binaries({"kubectl": into / "kubectl"}, into)
    assert (into / "kubectl").samefile(new)
    assert os.listdir(into) == ["kubectl"]


def test_relative_cache_home_is_ignored(tmp_path: Path) -> None:
    assert (
        assets.cache_folder({"XDG_CACHE_HOME": "relative", "HOME": str(tmp_path)})
        == tmp_path / ".cache" / "kubewright"
    )


class FakeTerminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_rewrites_its_line_on_a_terminal() -> None:
    terminal = FakeTerminal()
    progress = Progress(terminal)
    progress.update_line("1 of 3")
    progress.update_line("2 of 3")
    progress.print_line("done")
    assert terminal.getvalue() == "\r\033[K1 of 3\r\033[K2 of 3\r\033[Kdone\n"


def test_progress_without_a_terminal_is_a_line_every_15_seconds(
    progress_output: io.StringIO,
) -> None:
    seconds = iter([0.0, 0.0, 0.0, 14.0, 15.0, 15.0])
    progress = Progress(progress_output, clock=lambda: next(seconds))
    for text in ("at 0", "at 14", "at 15"):
        progress.update_line(text)
    assert progress_output.getvalue() == "at 0\nat 15\n"


def test_durations() -> None:
    assert [format_duration(seconds) for seconds in (0.4, 59.9, 130)] == ["0s", "59s", "2m10s"]
