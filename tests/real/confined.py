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

REFUSED = 77
# linux/sched.h, linux/mount.h, linux/prctl.h
NEW_MOUNTS, NEW_USERS = 0x00020000, 0x10000000
READ_ONLY, NO_SETUID, NO_DEVICES, REMOUNT, BIND, RECURSIVE, PRIVATE = (
    1,
    2,
    4,
    32,
    4096,
    16384,
    1 << 18,
)
DIE_WITH_PARENT, DROP_FROM_BOUNDS, NO_NEW_PRIVILEGES = 1, 24, 38
LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Confinement:
    """What to run, and in what: `mounts` are files and folders of this machine by their place inside, all read-only."""

    root: str
    user: int
    command: Sequence[str]
    environ: Mapping[str, str]
    mounts: Mapping[str, str]
    tmp_bytes: int
    data_bytes: int

    def arguments(self) -> list[str]:
        """The command line that does it."""
        return [sys.executable, "-I", "-S", __file__, json.dumps(asdict(self))]


def main(wanted: Confinement) -> NoReturn:
    """Become it; never returns."""
    capabilities = range(int(Path("/proc/sys/kernel/cap_last_cap").read_text()) + 1)
    ruling = leave(wanted.user)
    furnish(wanted)
    os.chroot(wanted.root)
    os.chdir("/")
    for number in capabilities:
        asked("drop a capability", LIBC.prctl(DROP_FROM_BOUNDS, number, 0, 0, 0))
    if ruling:
        os.setgroups([])
        os.setresgid(wanted.user, wanted.user, wanted.user)
        os.setresuid(wanted.user, wanted.user, wanted.user)
    asked("give up new privileges", LIBC.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0))
    # Becoming another user cleared it.
    asked("end with the parent", LIBC.prctl(DIE_WITH_PARENT, 9, 0, 0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (wanted.data_bytes, wanted.data_bytes))
    os.execve(wanted.command[0], list(wanted.command), dict(wanted.environ))


def leave(user: int) -> bool:
    """Have mounts of our own; True where that is a right of ours, and False where it took users of our own, among whom we are this one."""
    ruling = os.geteuid() == 0 and LIBC.unshare(NEW_MOUNTS) == 0
    if not ruling:
        outside = os.geteuid(), os.getegid()
        asked("have mounts and users of its own", LIBC.unshare(NEW_MOUNTS | NEW_USERS))
        become(user, *outside)
    mount("none", "/", PRIVATE | RECURSIVE)
    return ruling


def become(user: int, outside_user: int, outside_group: int) -> None:
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
        refused(f"be user {user} among users of its own", error.errno or 0)


def furnish(wanted: Confinement) -> None:
    """The root with /proc, /tmp and the mounts in it; only /tmp can be written to."""
    mount(wanted.root, wanted.root, BIND | RECURSIVE)
    inside = Path(wanted.root)
    places = {**wanted.mounts, "/proc": "/proc"}
    for place, source in places.items():
        point = inside / place.lstrip("/")
        make_point(point, Path(source).is_dir())
        mount(source, str(point), BIND | RECURSIVE)
        if place != "/proc":
            mount("none", str(point), BIND | REMOUNT | READ_ONLY | NO_SETUID | NO_DEVICES)
    mount(
        "tmpfs",
        str(inside / "tmp"),
        NO_SETUID | NO_DEVICES,
        "tmpfs",
        f"size={wanted.tmp_bytes},mode=1777",
    )
    mount("none", wanted.root, BIND | REMOUNT | READ_ONLY | NO_SETUID | NO_DEVICES)


def make_point(point: Path, folder: bool) -> None:
    """Something to mount on, as a container runtime makes it before the root becomes read-only."""
    (point if folder else point.parent).mkdir(parents=True, exist_ok=True)
    if not folder:
        point.touch()


def mount(source: str, target: str, flags: int, kind: str = "", options: str = "") -> None:
    """mount(2)."""
    words = [each.encode() or None for each in (source, target, kind, options)]
    asked(f"mount {target}", LIBC.mount(*words[:3], ctypes.c_ulong(flags), words[3]))


def asked(what: str, answer: int) -> None:
    """End where the kernel says no."""
    if answer:
        refused(what, ctypes.get_errno())


def refused(what: str, error: int) -> NoReturn:
    """End, and say what the kernel did not allow."""
    print(f"the kernel refuses to {what}: {os.strerror(error)}", file=sys.stderr)
    sys.exit(REFUSED)


if __name__ == "__main__":
    main(Confinement(**json.loads(sys.argv[1])))
