"""The entry point of `kubewright` and `python -m kubewright`."""

from __future__ import annotations

import sys

_BUILDER_PACKAGES = ("click", "tomlkit")


def main() -> int:
    try:
        from .builder import cli
    except ModuleNotFoundError as error:
        # kubewright alone runs operators: the packages of the builder are an extra.
        if error.name not in _BUILDER_PACKAGES:
            raise
        print(
            f"kubewright: the package {error.name} is not installed. "
            "Install the builder with: pip install 'kubewright[builder]'. "
            "In a clone or a generated project: make setup",
            file=sys.stderr,
        )
        return 1
    return cli.main()


if __name__ == "__main__":
    raise SystemExit(main())
