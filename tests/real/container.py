"""Runs a command as a container runtime does: in a read-only root, as a user without capabilities.

`python container.py JSON`, with the fields of Container. As root it changes to the container's
user, otherwise it uses a user namespace with that user. If the kernel allows neither, it exits
with code 77 and prints the step that failed. It uses only the standard library.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NoReturn

UNSUPPORTED_EXIT_CODE = 77
# linux/sched.h, linux/mount.h, linux/prctl.h
CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = (
    1,
    2,
    4,
    32,
    4096,
    16384,
    1 << 18,
)
PR_SET_PDEATHSIG, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 24, 38
LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Container:
    """`mounts` are files and folders of this machine by their path inside, all read-only."""

    root: str
    user: int
    command: Sequence[str]
    environ: Mapping[str, str]
    mounts: Mapping[str, str]
    tmp_size_bytes: int
    memory_limit_bytes: int

    def command_line(self) -> list[str]:
        """The command line that starts it."""
        return [sys.executable, "-I", "-S", __file__, json.dumps(asdict(self))]


def enter_container(container: Container) -> NoReturn:
    """Replaces this process by the command of the container."""
    capabilities = range(int(Path("/proc/sys/kernel/cap_last_cap").read_text()) + 1)
    is_root = unshare_mounts(container.user)
    mount_root(container)
    os.chroot(container.root)
    os.chdir("/")
    for number in capabilities:
        check_result("drop a capability", LIBC.prctl(PR_CAPBSET_DROP, number, 0, 0, 0))
    if is_root:
        os.setgroups([])
        os.setresgid(container.user, container.user, container.user)
        os.setresuid(container.user, container.user, container.user)
    check_result("give up new privileges", LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    # Changing the user cleared this setting.
    check_result("end with the parent", LIBC.prctl(PR_SET_PDEATHSIG, 9, 0, 0, 0))
    resource.setrlimit(
        resource.RLIMIT_DATA, (container.memory_limit_bytes, container.memory_limit_bytes)
    )
    os.execve(container.command[0], list(container.command), dict(container.environ))


def unshare_mounts(user: int) -> bool:
    """Creates a mount namespace; False if it needed a user namespace, in which this is `user`."""
    is_root = os.geteuid() == 0 and LIBC.unshare(CLONE_NEWNS) == 0
    if not is_root:
        outside = os.geteuid(), os.getegid()
        check_result("create mount and user namespaces", LIBC.unshare(CLONE_NEWNS | CLONE_NEWUSER))
        map_user(user, *outside)
    mount("none", "/", MS_PRIVATE | MS_REC)
    return is_root


def map_user(user: int, outside_user: int, outside_group: int) -> None:
    texts = {
        "setgroups": "deny",
        "uid_map": f"{user} {outside_user} 1",
        "gid_map": f"{user} {outside_group} 1",
    }
    try:
        for name, text in texts.items():
            Path("/proc/self", name).write_text(text)
    except OSError as error:
        exit_unsupported(f"map user {user} into the user namespace", error.errno or 0)


def mount_root(container: Container) -> None:
    """Mounts the root with /proc, /tmp and the mounts; only /tmp is writable."""
    mount(container.root, container.root, MS_BIND | MS_REC)
    inside = Path(container.root)
    mounts = {**container.mounts, "/proc": "/proc"}
    for path, source in mounts.items():
        point = inside / path.lstrip("/")
        make_mount_point(point, Path(source).is_dir())
        mount(source, str(point), MS_BIND | MS_REC)
        if path != "/proc":
            mount("none", str(point), MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV)
    mount(
        "tmpfs",
        str(inside / "tmp"),
        MS_NOSUID | MS_NODEV,
        "tmpfs",
        f"size={container.tmp_size_bytes},mode=1777",
    )
    mount("none", container.root, MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV)


def make_mount_point(point: Path, folder: bool) -> None:
    # A container runtime creates mount points before the root becomes read-only.
    (point if folder else point.parent).mkdir(parents=True, exist_ok=True)
    if not folder:
        point.touch()


def mount(source: str, target: str, flags: int, kind: str = "", options: str = "") -> None:
    arguments = [text.encode() or None for text in (source, target, kind, options)]
    check_result(f"mount {target}", LIBC.mount(*arguments[:3], ctypes.c_ulong(flags), arguments[3]))


def check_result(step: str, result: int) -> None:
    if result:
        exit_unsupported(step, ctypes.get_errno())


def exit_unsupported(step: str, error: int) -> NoReturn:
    print(f"the kernel does not allow to {step}: {os.strerror(error)}", file=sys.stderr)
    sys.exit(UNSUPPORTED_EXIT_CODE)


if __name__ == "__main__":
    enter_container(Container(**json.loads(sys.argv[1])))
