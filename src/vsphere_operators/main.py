"""The `manager` command, `manager version`, and `manager doctor`, which finds out why the manager
would not work.
"""

from __future__ import annotations

import gc
import os
import sys

_SEE_ALSO = """\
If something does not work, run `manager doctor` with the same flags. It checks the cluster, CRDs,
permissions, vCenters, certificates, logins and privileges, and prints a fix for each problem.
See `manager doctor -help`. `manager version` prints the versions.
"""
_VERSION_ARGUMENTS = ("version", "-version", "--version")


def main() -> int:
    # What an import creates stays. Without this, the collector would visit it all again and again
    # in the meantime, which is a tenth of the time. command.run enables it.
    gc.disable()
    from kubewright import command

    from .build import build
    from .leader_lease import MANAGER_NAME
    from .settings.flags import Settings
    from .version import VERSIONS

    if len(sys.argv) == 2 and sys.argv[1] in _VERSION_ARGUMENTS:
        print(VERSIONS)
        return 0
    if sys.argv[1:2] == ["doctor"]:
        # Imported here: a manager that runs for months must not hold what only the doctor needs.
        from .doctor.command import run

        return run(sys.argv[2:], os.environ, build)
    if sys.argv[1:] and not sys.argv[1].startswith("-"):
        print(
            f'manager: unknown command "{sys.argv[1]}". '
            "Run `manager` or `manager doctor`, with flags, or `manager version`.",
            file=sys.stderr,
        )
        return 2
    return command.run(
        Settings, build, name=MANAGER_NAME, version=VERSIONS.version, see_also=_SEE_ALSO
    )


if __name__ == "__main__":
    raise SystemExit(main())
