"""Run a command as a container runtime would: in a root of its own that is read-only, as a user with no capabilities at all.

`python confined.py JSON`, with the fields of Confinement. Whoever may mount gets there by changing to the container's user, anybody else by
a user namespace in which he is it. Where the kernel allows neither, it ends with code 77 and says which step was refused.
Run as a file: it needs nothing but the standard library.
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
    """What to run, and in what: `mounts` are files and folders of this machine by their place inside, all read-only."""

    root: str
    user: int
    command: Sequence[str]
    environ: Mapping[str, str]
    mounts: Mapping[str, str]
    tmp_size_bytes: int
    memory_limit_bytes: int

    def command_line(self) -> list[str]:
        """The command line that does it."""
        return [sys.executable, "-I", "-S", __file__, json.dumps(asdict(self))]


def enter_container(wanted: Container) -> NoReturn:
    """Become it; never returns."""
    capabilities = range(int(Path("/proc/sys/kernel/cap_last_cap").read_text()) + 1)
    ruling = unshare_mounts(wanted.user)
    mount_root(wanted)
    os.chroot(wanted.root)
    os.chdir("/")
    for number in capabilities:
        check_result("drop a capability", LIBC.prctl(PR_CAPBSET_DROP, number, 0, 0, 0))
    if ruling:
        os.setgroups([])
        os.setresgid(wanted.user, wanted.user, wanted.user)
        os.setresuid(wanted.user, wanted.user, wanted.user)
    check_result("give up new privileges", LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    # Becoming another user cleared it.
    check_result("end with the parent", LIBC.prctl(PR_SET_PDEATHSIG, 9, 0, 0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (wanted.memory_limit_bytes, wanted.memory_limit_bytes))
    os.execve(wanted.command[0], list(wanted.command), dict(wanted.environ))


def unshare_mounts(user: int) -> bool:
    """Have mounts of our own; True where that is a right of ours, and False where it took users of our own, among whom we are this one."""
    ruling = os.geteuid() == 0 and LIBC.unshare(CLONE_NEWNS) == 0
    if not ruling:
        outside = os.geteuid(), os.getegid()
        check_result("have mounts and users of its own", LIBC.unshare(CLONE_NEWNS | CLONE_NEWUSER))
        map_user(user, *outside)
    mount("none", "/", MS_PRIVATE | MS_REC)
    return ruling


def map_user(user: int, outside_user: int, outside_group: int) -> None:
    """Be that user among the users of our own."""
    texts = {
        "setgroups": "deny",
        "uid_map": f"{user} {outside_user} 1",
        "gid_map": f"{user} {outside_group} 1",
    }
    try:
        for name, text in texts.items():
            Path("/proc/self", name).write_text(text)
    except OSError as error:
        exit_unsupported(f"be user {user} among users of its own", error.errno or 0)


def mount_root(wanted: Container) -> None:
    """The root with /proc, /tmp and the mounts in it; only /tmp can be written to."""
    mount(wanted.root, wanted.root, MS_BIND | MS_REC)
    inside = Path(wanted.root)
    places = {**wanted.mounts, "/proc": "/proc"}
    for place, source in places.items():
        point = inside / place.lstrip("/")
        make_mount_point(point, Path(source).is_dir())
        mount(source, str(point), MS_BIND | MS_REC)
        if place != "/proc":
            mount("none", str(point), MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV)
    mount(
        "tmpfs",
        str(inside / "tmp"),
        MS_NOSUID | MS_NODEV,
        "tmpfs",
        f"size={wanted.tmp_size_bytes},mode=1777",
    )
    mount("none", wanted.root, MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV)


def make_mount_point(point: Path, folder: bool) -> None:
    """Something to mount on, as a container runtime makes it before the root becomes read-only."""
    (point if folder else point.parent).mkdir(parents=True, exist_ok=True)
    if not folder:
        point.touch()


def mount(source: str, target: str, flags: int, kind: str = "", options: str = "") -> None:
    """mount(2)."""
    words = [each.encode() or None for each in (source, target, kind, options)]
    check_result(f"mount {target}", LIBC.mount(*words[:3], ctypes.c_ulong(flags), words[3]))


def check_result(what: str, answer: int) -> None:
    """End where the kernel says no."""
    if answer:
        exit_unsupported(what, ctypes.get_errno())


def exit_unsupported(what: str, error: int) -> NoReturn:
    """End, and say what the kernel did not allow."""
    print(f"the kernel refuses to {what}: {os.strerror(error)}", file=sys.stderr)
    sys.exit(UNSUPPORTED_EXIT_CODE)


if __name__ == "__main__":
    enter_container(Container(**json.loads(sys.argv[1])))
