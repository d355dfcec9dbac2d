"""A first Ctrl-C is a question, a second one is an order."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any


@contextmanager
def interruptible(unit: str = "step") -> Iterator[Callable[[], bool]]:
    """Turn the first SIGINT or SIGTERM into an answer to a question, and say so; the second acts as it always does.

    Args:
        unit: what is finished and saved before the process stops, in a word.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    asked = threading.Event()
    before = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}
    said = f"stopping: this {unit} is finished and saved first; a second Ctrl-C stops at once\n"

    def ask(number: int, frame: Any) -> None:
        asked.set()
        for s, handler in before.items():
            signal.signal(s, handler)
        with suppress(OSError):  # past the buffers of sys.stderr, which the signal may have come in the middle of
            drawn = os.isatty(2)  # there a bar of up to two lines may stand, and draws itself over what is below it
            os.write(2, f"\n{said}\n".encode() if drawn else said.encode())

    for s in before:
        signal.signal(s, ask)
    try:
        yield asked.is_set
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)
