"""``lagproof`` and ``python -m lagproof``: the command line, or what to install for it."""

from __future__ import annotations

import sys

from lagproof.errors import MissingPackageError


def main() -> None:
    """Run the command line; exit code 2 where a package that it needs is not installed."""
    try:
        from lagproof.cli import main as run

        run()
    except ModuleNotFoundError as error:
        missing = MissingPackageError.of(error)
        if missing is None:
            raise
        print(f"error: {missing}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
