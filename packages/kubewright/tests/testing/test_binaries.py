"""Finding and building the real binaries, with small scripts in the place of kubectl, etcd and go."""

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
from kubewright.testing.go_build import (
    BuildFailed,
    GoBuilder,
    Pins,
    Progress,
    format_duration,
    format_progress,
    go_environment,
    load_pins,
    parse_version,
)

GO_MOD = b"""module test

go 1.26.0

require (
\tgo.etcd.io/etcd/server/v3 v3.6.16 // indirect
\tk8s.io/kubernetes v1.36.3 // indirect
)
"""
TEST_PINS = Pins(GO_MOD, b"sum")

# Notes each call in $CALLS; builds by writing the flags into the programs that Go would name so.
FAKE_GO = """
import os, sys
arguments = sys.argv[1:]
with open(os.environ["CALLS"], "a") as calls:
    calls.write(" ".join(arguments) + "\\n")
if arguments[0] == "env":
    print(os.environ.get("FAKE_GO_VERSION", "go1.26.8"))
    print(os.environ.get("FAKE_GO_TOOLCHAIN", "local"))
elif arguments[0] == "list":
    print("fmt\\nos\\nmain")
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
def environ(tmp_path: Path) -> dict[str, str]:
    """An environment with a fake go on PATH and an empty cache."""
    write_script(tmp_path / "path" / "go", f"#!{sys.executable}\n{FAKE_GO}")
    return {
        "PATH": str(tmp_path / "path"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "CALLS": str(tmp_path / "calls"),
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
            version_pins=TEST_PINS,
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
    noted = Path(environ["CALLS"])
    return noted.read_text().splitlines() if noted.exists() else []


def test_the_shipped_pins_name_everything_that_is_built() -> None:
    pinned = load_pins()
    assert parse_version(pinned.go_version) >= (1, 26)
    assert pinned.binary_version("etcd").startswith("3.")
    assert pinned.binary_version("kubectl") == pinned.binary_version("kube-apiserver")
    assert f"version.gitVersion=v{pinned.binary_version('kubectl')} " in pinned.linker_flags


def test_the_cache_changes_with_the_pins() -> None:
    assert Pins(GO_MOD, b"other").digest != TEST_PINS.digest == Pins(GO_MOD, b"sum").digest


def test_a_fitting_binary_of_kubebuilder_assets_is_used(
    find_binaries: Callable[..., dict[str, Path]], environ: dict[str, str], tmp_path: Path
) -> None:
    environ["KUBEBUILDER_ASSETS"] = str(tmp_path / "own")
    mine = write_kubectl(tmp_path / "own", "v1.36.0")
    write_kubectl(tmp_path / "path", "v1.36.3")
    assert find_binaries("kubectl") == {"kubectl": mine}
    assert read_go_calls(environ) == []


def test_folders_come_before_all_else(
    find_binaries: Callable[..., dict[str, Path]], tmp_path: Path
) -> None:
    first = write_kubectl(tmp_path / "first", "v1.36.3")
    write_kubectl(tmp_path / "path", "v1.36.3")
    assert find_binaries("kubectl", folders=(tmp_path / "first",)) == {"kubectl": first}


def test_another_minor_is_passed_over_with_the_reason(
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
    found = find_binaries("kubectl")["kubectl"]
    assert found.is_relative_to(tmp_path / "cache")
    assert (
        f"passed over {old} (KUBEBUILDER_ASSETS): it is 1.35.9, and 1.36 is pinned\n"
        in progress_output.getvalue()
    )
    assert (
        f"passed over {older} (PATH): it is 1.32.4-dispatcher, and 1.36 is pinned\n"
        in progress_output.getvalue()
    )


def test_a_binary_that_does_not_run_is_passed_over(
    find_binaries: Callable[..., dict[str, Path]], progress_output: io.StringIO, tmp_path: Path
) -> None:
    broken = write_script(tmp_path / "path" / "etcd", "#!/nowhere/at-all\n")
    assert find_binaries("etcd")["etcd"] != broken
    assert "it does not tell its version, and 3.6 is pinned" in progress_output.getvalue()


def test_missing_binaries_are_built_together_and_once(
    find_binaries: Callable[..., dict[str, Path]],
    environ: dict[str, str],
    progress_output: io.StringIO,
    tmp_path: Path,
) -> None:
    found = find_binaries("etcd", "kubectl")
    assert found == {
        name: tmp_path / "cache" / "kubewright" / TEST_PINS.digest / name
        for name in ("etcd", "kubectl")
    }
    assert "-X k8s.io/component-base/version.gitMinor=36" in found["etcd"].read_text()
    assert re.search(r"^built etcd, kubectl in \d+s$", progress_output.getvalue(), re.MULTILINE)
    assert find_binaries("etcd", "kubectl") == found
    assert [call.split()[0] for call in read_go_calls(environ)] == ["env", "list", "build"]
    assert {each.name for each in found["etcd"].parent.iterdir()} == {"etcd", "kubectl", "lock"}


def test_two_runs_at_once_build_once(
    find_binaries: Callable[..., dict[str, Path]], environ: dict[str, str]
) -> None:
    runs = [threading.Thread(target=find_binaries, args=("etcd",)) for _ in range(4)]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    assert sum(call.startswith("build") for call in read_go_calls(environ)) == 1


def test_a_failed_build_says_why_and_leaves_nothing(
    find_binaries: Callable[..., dict[str, Path]], environ: dict[str, str], tmp_path: Path
) -> None:
    environ["FAKE_GO_FAILS"] = "1"
    with pytest.raises(BuildFailed, match=r"building etcd: .* exit code 1") as failed:
        find_binaries("etcd")
    assert "undefined: nonsense" in str(failed.value)
    assert "KUBEBUILDER_ASSETS" in str(failed.value)
    assert [
        each.name for each in (tmp_path / "cache" / "kubewright" / TEST_PINS.digest).iterdir()
    ] == ["lock"]


def test_what_a_killed_build_left_is_removed_by_the_next(
    find_binaries: Callable[..., dict[str, Path]], tmp_path: Path
) -> None:
    left = tmp_path / "cache" / "kubewright" / TEST_PINS.digest / "build-killed"
    (left / "out").mkdir(parents=True)
    find_binaries("etcd")
    assert not left.exists()


def test_an_empty_home_stays_empty_and_one_that_go_uses_is_used(tmp_path: Path) -> None:
    cache, home = tmp_path / "cache", tmp_path / "home"
    assert go_environment(cache, {"HOME": str(home)}) == {
        "GOPATH": str(cache / "go"),
        "XDG_CONFIG_HOME": str(cache / "config"),
    }
    assert go_environment(cache, {"HOME": str(home), "GOMODCACHE": "/m", "GOENV": "off"}) == {}
    (home / "go").mkdir(parents=True)
    (home / ".config/go").mkdir(parents=True)
    assert go_environment(cache, {"HOME": str(home)}) == {}


@pytest.mark.parametrize(
    ("done", "seconds", "words"),
    [
        (0, 5, "[....................] "),
        (99, 30, "[#...................] "),
        (250, 60, "[#####...............] about 3 min left; "),
        (500, 100, "[##########..........] about 2 min left; "),
        (900, 90, "[##################..] a minute left or less; "),
        (1200, 90, "[####################] a minute left or less; "),
    ],
)
def test_the_outlook_follows_the_pace(done: int, seconds: float, words: str) -> None:
    assert format_progress(done, 1000, seconds) == words
    assert format_progress(done, 0, seconds) == ""


@pytest.mark.parametrize(
    ("version", "toolchain", "suits"),
    [
        ("go1.26.0", "local", True),
        ("go1.25.9", "local", False),
        ("go1.25.9", "auto", True),
        ("go1.20.1", "auto", False),
        ("", "", False),
    ],
)
def test_an_old_go_is_used_only_if_it_fetches_a_newer_one(
    environ: dict[str, str],
    progress_output: io.StringIO,
    tmp_path: Path,
    version: str,
    toolchain: str,
    suits: bool,
) -> None:
    environ |= {"FAKE_GO_VERSION": version, "FAKE_GO_TOOLCHAIN": toolchain}
    builder = GoBuilder(tmp_path, TEST_PINS, environ, Progress(progress_output))
    assert builder.can_build(tmp_path / "path" / "go") is suits
    assert ("passed over" in progress_output.getvalue()) is not suits


def test_an_unknown_name_is_told_with_the_known_ones(
    find_binaries: Callable[..., dict[str, Path]],
) -> None:
    with pytest.raises(
        ConfigError, match=r"no binary is called kubelet\. There are: etcd, kube-apiserver"
    ):
        find_binaries("kubelet")


def test_the_command_tells_an_error_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert assets.main(["--only", "kubelet"]) == 1
    assert capsys.readouterr().err.startswith("no binary is called kubelet")


def test_links_are_made_replaced_and_left_alone(tmp_path: Path) -> None:
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


def test_a_relative_cache_home_does_not_count(tmp_path: Path) -> None:
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


def test_progress_is_a_line_every_15_seconds_elsewhere(progress_output: io.StringIO) -> None:
    seconds = iter([0.0, 0.0, 0.0, 14.0, 15.0, 15.0])
    progress = Progress(progress_output, clock=lambda: next(seconds))
    for text in ("at 0", "at 14", "at 15"):
        progress.update_line(text)
    assert progress_output.getvalue() == "at 0\nat 15\n"


def test_durations_read_as_people_say_them() -> None:
    assert [format_duration(seconds) for seconds in (0.4, 59.9, 130)] == ["0s", "59s", "2m10s"]
