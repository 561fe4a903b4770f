"""Writes the content of the image into an empty folder.

    python hack/image/install.py dependencies ROOT
    python hack/image/install.py application ROOT

The Dockerfile runs both steps and copies the folder into an empty image; a test runs them without
a container engine. So tests check what is shipped: an interpreter, the libraries it needs and our
packages, without a shell and without a package manager.
"""

from __future__ import annotations

import os
import re
import shutil
import ssl
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

_REPOSITORY = Path(__file__).resolve().parents[2]
_PACKAGES_FOLDER = "app"
# The manifests of the original operators have `command: [/manager]`.
_COMMAND = "manager"
# -I ignores the environment and the working folder, -B writes no bytecode, -u buffers no log line.
_LAUNCHER = """#!{interpreter} -IBu
import sys

sys.path.insert(0, "/{packages}")

from vsphere_operators.main import main

sys.exit(main())
"""
# Parts of the standard library that no manager needs: they load further libraries, or contain pip.
_EXCLUDED_STDLIB = (
    *("__pycache__", "site-packages", "dist-packages", "config-*", "ensurepip", "pydoc_data"),
    *("lib2to3", "test", "tests", "_test*", "xxlimited*", "idlelib", "tkinter", "_tkinter*"),
    *("turtle*", "curses", "_curses*", "readline.*", "sqlite3", "_sqlite3*", "dbm", "_dbm*"),
    *("_gdbm*", "nis.*", "ossaudiodev*"),
)
# glibc before 2.34 loads these by name to resolve a host name, so ldd does not list them.
_NSS_LIBRARIES = ("libnss_dns.so.2", "libnss_files.so.2", "libresolv.so.2")
_CA_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
)
_SYSTEM_FILES = {
    "etc/passwd": "root:x:0:0:root:/:/nowhere\nnonroot:x:65532:65532:nonroot:/tmp:/nowhere\n",
    "etc/group": "root:x:0:\nnonroot:x:65532:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}


def _install_dependencies(root: Path) -> None:
    """Copies the interpreter, the packages of requirements/runtime.txt and their libraries."""
    root.mkdir(parents=True, exist_ok=True)
    if any(root.iterdir()):
        raise SystemExit(
            f"{root} is not empty, and its content would be shipped. Use an empty or a new folder."
        )
    _copy_interpreter(root)
    _install_pinned("requirements/runtime.txt", root / _PACKAGES_FOLDER)
    libraries = _copy_libraries(root)
    _write_dpkg_status(root, libraries)
    _write_system_files(root)
    _compile_bytecode(root, root)


def _install_application(root: Path) -> None:
    """Builds and installs our two packages with the pinned build backend, and the command."""
    with tempfile.TemporaryDirectory() as folder:
        backend, wheels = Path(folder, "backend"), Path(folder, "wheels")
        _install_pinned("requirements/build.txt", backend)
        build = ("--no-deps", "--no-build-isolation", "--wheel-dir", wheels)
        _run_pip("wheel", *build, "./packages/kubewright", ".", PYTHONPATH=str(backend))
        offline = ("--no-deps", "--no-index", "--upgrade", "--target", root / _PACKAGES_FOLDER)
        _run_pip("install", *offline, *sorted(wheels.iterdir()))
    shutil.rmtree(root / _PACKAGES_FOLDER / "bin", ignore_errors=True)
    launcher = root / _COMMAND
    launcher.write_text(
        _LAUNCHER.format(interpreter=_interpreter_path(), packages=_PACKAGES_FOLDER)
    )
    launcher.chmod(0o755)
    for name in ("kubewright", "kubewright_http", "vsphere_operators"):
        _compile_bytecode(root, root / _PACKAGES_FOLDER / name)


def _interpreter_path() -> Path:
    """The real file, not a link to it and not that of a virtual environment."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return Path(sys.base_prefix, "bin", name).resolve(strict=True)


def _copy_interpreter(root: Path) -> None:
    # Both keep their paths: an interpreter finds its standard library relative to itself.
    _copy_into_root(_interpreter_path(), root)
    variables = {"base": sys.base_prefix, "platbase": sys.base_exec_prefix}
    folders = {sysconfig.get_path(name, vars=variables) for name in ("stdlib", "platstdlib")}
    for folder in folders:
        shutil.copytree(
            folder,
            _path_in_root(root, Path(folder)),
            ignore=shutil.ignore_patterns(*_EXCLUDED_STDLIB),
            dirs_exist_ok=True,
        )


def _copy_libraries(root: Path) -> list[Path]:
    """Copies every shared library that a program or library below the root loads."""
    # The original interpreter, not its copy: it may search for its library next to itself.
    programs = [_interpreter_path(), *root.rglob("*.so"), *root.rglob("*.so.*")]
    libraries = {
        path
        for program in programs
        for path in _linked_libraries(program)
        if root not in path.parents
    }
    libc = next(path for path in libraries if path.name == "libc.so.6")
    libraries |= {path for name in _NSS_LIBRARIES if (path := libc.with_name(name)).exists()}
    for path in libraries:
        _copy_into_root(path, root)
    return sorted(libraries)


def _linked_libraries(program: Path) -> list[Path]:
    output = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    if missing := re.findall(r"^\s*(\S+) => not found", output, re.MULTILINE):
        raise SystemExit(
            f"{program} needs {', '.join(missing)}, which is not installed. "
            "Install it, or build on another base image."
        )
    return [
        Path(os.path.normpath(path))
        for path in re.findall(r"^\s*(?:\S+ => )?(/\S+) \(0x", output, re.MULTILINE)
    ]


def _write_dpkg_status(root: Path, libraries: Iterable[Path]) -> None:
    """Lists the packages of the libraries, with their licenses, where image scanners read them."""
    if not shutil.which("dpkg-query"):
        return
    for owner in sorted(_debian_packages_of(libraries)):
        name = owner.partition(":")[0]
        status = subprocess.run(
            ["dpkg-query", "--status", owner], capture_output=True, text=True, check=True
        ).stdout
        _write_file(root / "var/lib/dpkg/status.d" / name, status)
        license = Path("/usr/share/doc", name, "copyright")
        if license.exists():
            _copy_into_root(license, root)


def _debian_packages_of(paths: Iterable[Path]) -> set[str]:
    # If /lib is a link to /usr/lib, dpkg may list a file under either path.
    names = {
        name
        for path in paths
        for name in (path, path.resolve(), Path("/usr", path.relative_to("/")))
    }
    output = subprocess.run(
        ["dpkg-query", "--search", *names], capture_output=True, text=True
    ).stdout
    return {
        line.rpartition(": ")[0]
        for line in output.splitlines()
        if not line.startswith("diversion ")
    }


def _write_system_files(root: Path) -> None:
    """Writes the files that the C library and TLS read, and /tmp."""
    for name, text in _SYSTEM_FILES.items():
        _write_file(root / name, text)
    paths = ssl.get_default_verify_paths()
    bundle = next(
        (path for path in (paths.cafile, *_CA_BUNDLES) if path and Path(path).exists()), None
    )
    if not bundle:
        raise SystemExit(
            "No bundle of CA certificates is installed, so the manager could trust no vCenter. "
            "Install ca-certificates."
        )
    _write_file(_path_in_root(root, Path(paths.openssl_cafile)), Path(bundle).read_text())
    (root / "tmp").mkdir(exist_ok=True)
    (root / "tmp").chmod(0o1777)


def _compile_bytecode(root: Path, folder: Path) -> None:
    # The image is read-only: without bytecode the manager would compile at every start.
    arguments = ("-q", "-j0", "--invalidation-mode=unchecked-hash", "-s", root, "-p", "/", folder)
    _run_command(sys.executable, "-m", "compileall", *arguments)


def _install_pinned(requirements: str, target: Path) -> None:
    options = ("--only-binary=:all:", "--require-hashes", "--target", target, "-r", requirements)
    _run_pip("install", *options)


def _run_pip(command: str, *arguments: str | Path, **environ: str) -> None:
    options = (
        ("--quiet", "--disable-pip-version-check", "--no-compile")
        if command == "install"
        else ("--quiet",)
    )
    _run_command(sys.executable, "-m", "pip", command, *options, *arguments, **environ)


def _run_command(*command: str | Path, **environ: str) -> None:
    """Exits if the command fails."""
    done = subprocess.run(
        [str(argument) for argument in command], cwd=_REPOSITORY, env={**os.environ, **environ}
    )
    if done.returncode:
        raise SystemExit(f"This command failed: {' '.join(map(str, command))}")


def _path_in_root(root: Path, path: Path) -> Path:
    return root / path.relative_to("/")


def _copy_into_root(path: Path, root: Path) -> None:
    # copy2 follows links: the copy is always a file.
    target = _path_in_root(root, path)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(path, target)


def _write_file(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


_STEPS: dict[str, Callable[[Path], None]] = {
    "dependencies": _install_dependencies,
    "application": _install_application,
}


def main() -> None:
    if len(sys.argv) != 3 or sys.argv[1] not in _STEPS:
        raise SystemExit(f"usage: {Path(__file__).name} {'|'.join(_STEPS)} ROOT")
    os.umask(0o022)
    _STEPS[sys.argv[1]](Path(sys.argv[2]).resolve())


if __name__ == "__main__":
    main()
