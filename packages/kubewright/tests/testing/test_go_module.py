"""Building a Go module of the repository, with a small script instead of go."""

from __future__ import annotations

import asyncio
import io
import os
import shutil
import signal
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from kubewright.errors import ConfigError
from kubewright.testing import eventually
from kubewright.testing.go_build import BuildFailed
from kubewright.testing.go_module import build_module, main
from kubewright.testing.progress import Progress

FAKE_GO = """
import os, sys
arguments = sys.argv[1:]
if arguments[0] == "env":
    print("go1.26.8\\nlocal")
elif arguments[0] == "list":
    print("true|main|0|/nowhere|main.go")
elif os.environ.get("FAKE_GO_WAITS"):
    open(os.environ["CALLS"], "w").close()
    import time
    time.sleep(600)
elif os.environ.get("FAKE_GO_FAILS"):
    sys.exit("main.go:7: undefined: nonsense")
else:
    with open(os.environ["CALLS"], "a") as calls:
        calls.write(" ".join(arguments) + "\\n")
    with open(arguments[arguments.index("-o") + 1], "w") as program:
        program.write("program")
"""


@pytest.fixture
def environ(no_installed_package: None, tmp_path: Path) -> dict[str, str]:
    go = tmp_path / "path" / "go"
    go.parent.mkdir()
    go.write_text(f"#!{sys.executable}\n{FAKE_GO}")
    go.chmod(0o755)
    return {
        "PATH": str(go.parent),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "CALLS": str(tmp_path / "calls"),
    }


@pytest.fixture
def go_module(tmp_path: Path) -> Path:
    folder = tmp_path / "tool"
    folder.mkdir()
    (folder / "go.mod").write_text("module tool\n\ngo 1.25.0\n")
    (folder / "go.sum").write_text("")
    (folder / "main.go").write_text("package main\n")
    return folder


def build_and_read_calls(module: Path, environ: dict[str, str]) -> list[str]:
    """Build, and return the calls of go so far."""
    (program,) = build_module(module, module.parent / "bin", environ, Progress(io.StringIO()))
    assert program.read_text() == "program"
    return Path(environ["CALLS"]).read_text().splitlines()


def test_program_is_built_only_if_a_source_changes(
    go_module: Path, environ: dict[str, str]
) -> None:
    assert len(build_and_read_calls(go_module, environ)) == 1
    assert len(build_and_read_calls(go_module, environ)) == 1
    (go_module / "main_test.go").write_text("package main\n")
    assert len(build_and_read_calls(go_module, environ)) == 1
    (go_module / "main.go").write_text("package main // changed\n")
    calls = build_and_read_calls(go_module, environ)
    assert len(calls) == 2
    assert "-trimpath" in calls[1]
    (go_module / "main.go").write_text("package main\n")
    assert len(build_and_read_calls(go_module, environ)) == 2


def test_another_clone_uses_the_cached_program(go_module: Path, environ: dict[str, str]) -> None:
    assert len(build_and_read_calls(go_module, environ)) == 1
    clone = go_module.parent / "clone" / go_module.name
    shutil.copytree(go_module, clone)
    assert len(build_and_read_calls(clone, environ)) == 1
    links = [folder / "bin" / "tool" for folder in (go_module.parent, clone.parent)]
    assert links[0].samefile(links[1])
    assert links[0].resolve().is_relative_to(environ["XDG_CACHE_HOME"])


def test_program_without_use_for_a_month_is_removed(
    go_module: Path, environ: dict[str, str]
) -> None:
    build_and_read_calls(go_module, environ)
    old = (go_module.parent / "bin" / "tool").resolve().parent
    month_ago = time.time() - 31 * 24 * 3600
    os.utime(old, (month_ago, month_ago))
    build_and_read_calls(go_module, environ)
    assert old.exists()
    os.utime(old, (month_ago, month_ago))
    (go_module / "main.go").write_text("package main // changed\n")
    build_and_read_calls(go_module, environ)
    assert not old.exists()


async def test_interrupted_build_prints_one_line(go_module: Path, environ: dict[str, str]) -> None:
    into = go_module.parent / "bin"
    command = [sys.executable, "-m", "kubewright.testing.go_module", go_module, "--into", into]
    child = await asyncio.create_subprocess_exec(
        *map(str, command),
        env={**os.environ, **environ, "FAKE_GO_WAITS": "yes"},
        stderr=asyncio.subprocess.PIPE,
        # Ctrl-C reaches the whole process group: this command and go.
        start_new_session=True,
        # A shell starts background jobs with SIGINT ignored, and children inherit that.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )
    try:
        await eventually(Path(environ["CALLS"]).exists, within=60)
        os.killpg(child.pid, signal.SIGINT)
        _, errors = await asyncio.wait_for(child.communicate(), 60)
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    assert child.returncode == 130
    assert errors.decode().splitlines()[-1] == "Interrupted. The next run continues the build."
    assert "Traceback" not in errors.decode()
    assert not (into / "tool").exists()


def test_failed_build_reports_the_output_and_leaves_no_program(
    go_module: Path, environ: dict[str, str]
) -> None:
    with pytest.raises(BuildFailed, match="undefined: nonsense") as caught:
        build_and_read_calls(go_module, {**environ, "FAKE_GO_FAILS": "yes"})
    assert "etcd" not in str(caught.value)
    assert not (go_module.parent / "bin" / "tool").exists()
    assert len(build_and_read_calls(go_module, environ)) == 1


def test_folder_without_go_mod_is_rejected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigError, match=r"no go\.mod"):
        build_module(tmp_path, tmp_path / "bin", {}, Progress(io.StringIO()))
    assert main([str(tmp_path), "--into", str(tmp_path / "bin")]) == 1
    assert "no go.mod" in capsys.readouterr().err


def test_tools_of_a_module_without_go_files_are_built(
    go_module: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    (go_module / "main.go").unlink()
    go_mod = go_module / "go.mod"
    go_mod.write_text(
        f"{go_mod.read_text()}\ntool (\n\ta.b/cmd/one\n\ta.b/two\n)\n\ntool a.b/three\n"
    )
    into = go_module.parent / "bin"
    assert main([str(go_module), "--into", str(into), "--tags", "small"]) == 0
    calls = Path(environ["CALLS"]).read_text().splitlines()
    assert [call.split()[-1] for call in calls] == ["a.b/cmd/one", "a.b/two", "a.b/three"]
    assert all("-tags small" in call for call in calls)
    assert [(into / name).read_text() for name in ("one", "two", "three")] == ["program"] * 3
    # Other tags are another program.
    assert main([str(go_module), "--into", str(into), "--tags", "small"]) == 0
    assert main([str(go_module), "--into", str(into)]) == 0
    assert len(Path(environ["CALLS"]).read_text().splitlines()) == 6


def test_module_without_programs_is_reported(
    go_module: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (go_module / "main.go").unlink()
    assert main([str(go_module), "--into", str(go_module.parent / "bin")]) == 1
    assert "has no Go files, and its go.mod names no tools" in capsys.readouterr().err
