"""The process that runs the scorers of reasoning_gym; see ``answers/worker.py``.

Some scorers evaluate the answer as Python. While one runs, ``eval`` takes arithmetic, literals and sympy's own classes
and functions only, and ``exec`` runs the modules that Python imports and the one statement that fetches sympy's names.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from lagproof.grading.worker import serve
from lagproof.tasks.gym import dataset, item, score

_HARMLESS = (
    ast.Expression | ast.Constant | ast.List | ast.Tuple | ast.Set | ast.Dict | ast.BinOp | ast.UnaryOp | ast.BoolOp
    | ast.Compare | ast.operator | ast.unaryop | ast.boolop | ast.cmpop | ast.Load | ast.Name | ast.Call | ast.keyword
)  # fmt: skip
_EVAL, _EXEC = builtins.eval, builtins.exec
_SYMPY_NAMES = "from sympy import *"


class RefusedError(Exception):
    """Text that a scorer wanted to run as code."""


def main() -> None:
    generator, params = sys.argv[3:5]

    def prepare() -> None:
        """Importing the package alone takes longer than an answer may."""
        import sympy.physics.units  # noqa: F401 - reads its constants with eval when it is imported

        item(generator, params, 0)

    serve(prepare, lambda index, text: answer(generator, params, int(index), text))


def answer(generator: str, params: str, index: int, text: str) -> str:
    """The scorer's word on an answer; the problem is made first, since its generator may run code of its own."""
    data, entry = dataset(generator, params), item(generator, params, index)
    with no_code():
        return score(data, entry, text)


@contextmanager
def no_code() -> Iterator[None]:
    """Take from ``eval`` and ``exec`` what could do more than calculate."""
    before = builtins.eval, builtins.exec
    builtins.eval, builtins.exec = _calculate, _run  # type: ignore[assignment]
    try:
        yield
    finally:
        builtins.eval, builtins.exec = before


def _calculate(source: Any, names: Mapping[str, Any] | None = None, own: Mapping[str, Any] | None = None) -> Any:
    if not isinstance(source, str):
        raise RefusedError("compiled code")
    known = {**(names or {}), **(own or {})}
    tree = ast.parse(source.strip(), mode="eval")
    for node in ast.walk(tree):
        if not isinstance(node, _HARMLESS):
            raise RefusedError(f"{type(node).__name__} in {source:.100}")
        if isinstance(node, ast.Call) and not isinstance(node.func, ast.Name):
            raise RefusedError(f"a call of something without a name in {source:.100}")
        if isinstance(node, ast.Name) and not _is_mathematics(known.get(node.id)):
            raise RefusedError(f"{node.id} in {source:.100}")
    return _EVAL(source.strip(), {"__builtins__": {}, **known})


def _is_mathematics(value: Any) -> bool:
    import sympy

    if isinstance(value, type):
        return issubclass(value, sympy.Basic)
    module = getattr(value, "__module__", None)
    return isinstance(value, sympy.Basic) or (isinstance(module, str) and module.startswith("sympy.functions."))


def _run(source: Any, names: dict[str, Any] | None = None, *_: Any) -> None:
    importing = sys._getframe(1).f_code.co_filename.startswith("<frozen importlib")
    if not importing and source != _SYMPY_NAMES:
        raise RefusedError("exec")
    _EXEC(source, names)


if __name__ == "__main__":
    main()
