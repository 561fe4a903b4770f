"""What the image holds, put into an empty folder: `python hack/image/install.py dependencies ROOT`, then `application ROOT`.

The Dockerfile runs both steps, the second on top of the first, and copies the folder onto an empty image; a test runs them here. So
what is tested is what is shipped: an interpreter, the libraries that it needs, our packages, and neither a shell nor a package manager.
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

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGES_FOLDER = "app"
# The originals' manifests say `command: [/manager]`.
COMMAND = "manager"
# -I: nothing in the environment or the working folder changes what is run; -B, -u: no bytecode is written, no log line waits.
LAUNCHER = """#!{interpreter} -IBu
import sys

sys.path.insert(0, "/{packages}")

from vsphere_operators.main import main

sys.exit(main())
"""
# Parts of the standard library that no manager needs, and that would bring libraries of their own or a second pip.
EXCLUDED_STDLIB = (
    *(
        "__pycache__",
        "site-packages",
        "dist-packages",
        "config-*",
        "ensurepip",
        "pydoc_data",
        "lib2to3",
    ),
    *("test", "tests", "_test*", "xxlimited*", "idlelib", "tkinter", "_tkinter*", "turtle*"),
    *(
        "curses",
        "_curses*",
        "readline.*",
        "sqlite3",
        "_sqlite3*",
        "dbm",
        "_dbm*",
        "_gdbm*",
        "nis.*",
        "ossaudiodev*",
    ),
)
# glibc before 2.34 loads these by name when it looks up a host, so no linker tells of them.
NSS_LIBRARIES = ("libnss_dns.so.2", "libnss_files.so.2", "libresolv.so.2")
CA_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
)
SYSTEM_FILES = {
    "etc/passwd": "root:x:0:0:root:/:/nowhere\nnonroot:x:65532:65532:nonroot:/tmp:/nowhere\n",
    "etc/group": "root:x:0:\nnonroot:x:65532:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}


def install_dependencies(root: Path) -> None:
    """The interpreter and everything pinned in requirements/runtime.txt, with all the libraries that they load."""
    root.mkdir(parents=True, exist_ok=True)
    if any(root.iterdir()):
        raise SystemExit(
            f"{root} is not empty. What lies there would be shipped: name an empty or a new folder."
        )
    copy_interpreter(root)
    run_pip(
        "install",
        "--only-binary=:all:",
        "--require-hashes",
        "--target",
        root / PACKAGES_FOLDER,
        "-r",
        "requirements/runtime.txt",
    )
    libraries = copy_libraries(root)
    write_dpkg_status(root, libraries)
    write_system_files(root)
    compile_bytecode(root, root)


def install_application(root: Path) -> None:
    """Our two packages, built here without anything that is not pinned, and the command."""
    with tempfile.TemporaryDirectory() as folder:
        backend, wheels = Path(folder, "backend"), Path(folder, "wheels")
        run_pip(
            "install",
            "--only-binary=:all:",
            "--require-hashes",
            "--target",
            backend,
            "-r",
            "requirements/build.txt",
        )
        sources = ("./packages/kubewright", ".")
        run_pip(
            "wheel",
            "--no-deps",
            "--no-build-isolation",
            "--wheel-dir",
            wheels,
            *sources,
            PYTHONPATH=str(backend),
        )
        run_pip(
            "install",
            "--no-deps",
            "--no-index",
            "--upgrade",
            "--target",
            root / PACKAGES_FOLDER,
            *sorted(wheels.iterdir()),
        )
    shutil.rmtree(root / PACKAGES_FOLDER / "bin", ignore_errors=True)
    launcher = root / COMMAND
    launcher.write_text(LAUNCHER.format(interpreter=interpreter_path(), packages=PACKAGES_FOLDER))
    launcher.chmod(0o755)
    for name in ("kubewright", "vsphere_operators"):
        compile_bytecode(root, root / PACKAGES_FOLDER / name)


def interpreter_path() -> Path:
    """The interpreter itself: not a link to it, and not a virtual environment's."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return Path(sys.base_prefix, "bin", name).resolve(strict=True)


def copy_interpreter(root: Path) -> None:
    """Interpreter and standard library, where they are here: an interpreter finds the one by the place of the other."""
    copy_into_root(interpreter_path(), root)
    variables = {"base": sys.base_prefix, "platbase": sys.base_exec_prefix}
    for place in {sysconfig.get_path(name, vars=variables) for name in ("stdlib", "platstdlib")}:
        shutil.copytree(
            place,
            path_in_root(root, Path(place)),
            ignore=shutil.ignore_patterns(*EXCLUDED_STDLIB),
            dirs_exist_ok=True,
        )


def copy_libraries(root: Path) -> list[Path]:
    """Every shared library that something below the root asks for, by the linker's own word."""
    # The interpreter where it is, not its copy: it may look for its own library beside itself.
    programs = [interpreter_path(), *root.rglob("*.so"), *root.rglob("*.so.*")]
    wanted = {
        path
        for program in programs
        for path in linked_libraries(program)
        if root not in path.parents
    }
    libc = next(path for path in wanted if path.name == "libc.so.6")
    wanted |= {path for name in NSS_LIBRARIES if (path := libc.with_name(name)).exists()}
    for path in wanted:
        copy_into_root(path, root)
    return sorted(wanted)


def linked_libraries(program: Path) -> list[Path]:
    """The libraries of one program or library."""
    said = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    if missing := re.findall(r"^\s*(\S+) => not found", said, re.MULTILINE):
        raise SystemExit(
            f"{program} needs {', '.join(missing)}, which is not installed here. Install it, or build on another base."
        )
    return [
        Path(os.path.normpath(path))
        for path in re.findall(r"^\s*(?:\S+ => )?(/\S+) \(0x", said, re.MULTILINE)
    ]


def write_dpkg_status(root: Path, libraries: Iterable[Path]) -> None:
    """Leave word of the packages that the libraries came from, and their licences: scanners of images look there."""
    if not shutil.which("dpkg-query"):
        return
    for owner in sorted(debian_packages_of(libraries)):
        name = owner.partition(":")[0]
        told = subprocess.run(
            ["dpkg-query", "--status", owner], capture_output=True, text=True, check=True
        ).stdout
        write_file(root / "var/lib/dpkg/status.d" / name, told)
        licence = Path("/usr/share/doc", name, "copyright")
        if licence.exists():
            copy_into_root(licence, root)


def debian_packages_of(paths: Iterable[Path]) -> set[str]:
    """The Debian packages of files. A file may be known by either name, where /lib is a link to /usr/lib."""
    names = {
        name
        for path in paths
        for name in (path, path.resolve(), Path("/usr", path.relative_to("/")))
    }
    said = subprocess.run(["dpkg-query", "--search", *names], capture_output=True, text=True).stdout
    return {
        line.rpartition(": ")[0] for line in said.splitlines() if not line.startswith("diversion ")
    }


def write_system_files(root: Path) -> None:
    """The few files that the C library and TLS look for, and /tmp."""
    for name, text in SYSTEM_FILES.items():
        write_file(root / name, text)
    paths = ssl.get_default_verify_paths()
    bundle = next(
        (path for path in (paths.cafile, *CA_BUNDLES) if path and Path(path).exists()), None
    )
    if not bundle:
        raise SystemExit(
            "There is no bundle of CA certificates here, so no vCenter could be trusted. Install ca-certificates."
        )
    write_file(path_in_root(root, Path(paths.openssl_cafile)), Path(bundle).read_text())
    (root / "tmp").mkdir(exist_ok=True)
    (root / "tmp").chmod(0o1777)


def compile_bytecode(root: Path, folder: Path) -> None:
    """Bytecode for all of it: the image is read-only, so a manager could keep none, and would compile at every start."""
    words = ("-q", "-j0", "--invalidation-mode=unchecked-hash", "-s", root, "-p", "/", folder)
    run_command(sys.executable, "-m", "compileall", *words)


def run_pip(*words: str | Path, **environ: str) -> None:
    """Run pip, from the root of the repository."""
    command, *rest = words
    options = (
        ("--quiet", "--disable-pip-version-check", "--no-compile")
        if command == "install"
        else ("--quiet",)
    )
    run_command(sys.executable, "-m", "pip", command, *options, *rest, **environ)


def run_command(*words: str | Path, **environ: str) -> None:
    """Run a command that has to succeed."""
    done = subprocess.run(
        [str(word) for word in words], cwd=REPOSITORY, env={**os.environ, **environ}
    )
    if done.returncode:
        raise SystemExit(f"This failed, and says above why: {' '.join(map(str, words))}")


def path_in_root(root: Path, path: Path) -> Path:
    """Where an absolute path of this machine is in the root."""
    return root / path.relative_to("/")


def copy_into_root(path: Path, root: Path) -> None:
    """Copy a file, whatever links lead to it, to its own place in the root."""
    target = path_in_root(root, path)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(path, target)


def write_file(path: Path, text: str) -> None:
    """Write a file, in a folder that need not exist."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


STEPS: dict[str, Callable[[Path], None]] = {
    "dependencies": install_dependencies,
    "application": install_application,
}


def main() -> None:
    """One step, into one folder."""
    if len(sys.argv) != 3 or sys.argv[1] not in STEPS:
        raise SystemExit(f"usage: {Path(__file__).name} {'|'.join(STEPS)} ROOT")
    os.umask(0o022)
    STEPS[sys.argv[1]](Path(sys.argv[2]).resolve())


if __name__ == "__main__":
    main()
