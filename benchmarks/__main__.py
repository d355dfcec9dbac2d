"""``python -m benchmarks [NAME...]``: all of them, or some by name."""

from __future__ import annotations

import importlib
import pkgutil
import sys

import benchmarks

NAMES = sorted(m.name for m in pkgutil.iter_modules(benchmarks.__path__) if m.name not in ("__main__", "harness"))


def main(names: list[str]) -> None:
    for name in names or NAMES:
        if name not in NAMES:
            sys.exit(f"unknown benchmark {name!r}: allowed: {', '.join(NAMES)}")
        importlib.import_module(f"benchmarks.{name}").main()


if __name__ == "__main__":
    main(sys.argv[1:])
