"""The process that does algebra: one question a line in, one reply a line out (JSON), until its input ends.

Run by ``pool`` as ``python -m lagproof.grading.worker LIMIT_S MEMORY_MIB``; it imports no torch. A module in its
place may have further arguments.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import TextIO

from lagproof.grading.pool import FAILED, OUT_OF_MEMORY

_GRACE_S = 5.0
"""The pool ends a hung process at the limit; a process whose pool is gone ends itself this much later."""


VERDICT, KEY = "verdict", "key "
"""What can be asked about an answer. The reply to the second begins with it, as the pool has words of its own."""

NO_KEY = "none"
"""The reply where an answer says nothing."""

_LOOK_EVERY_S = 0.02
STATM = "/proc/self/statm"


def main() -> None:
    logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns that time limits are off: the pool has them
    serve(_prepare, _answer)


def serve(prepare: Callable[[], None], answer: Callable[..., str]) -> None:
    """Answer questions until the input ends.

    Args:
        prepare: imports and uses everything once, so that no answer pays for it.
        answer: the word of the reply for the texts of a question.
    """
    limit_s, memory_mib = float(sys.argv[1]), int(sys.argv[2])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the run, which ends this process itself
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever a library prints is no reply
    prepare()
    limit_bytes = _cap_memory(memory_mib)
    _send(replies, ["ready", ""])
    for line in sys.stdin:
        signal.setitimer(signal.ITIMER_REAL, limit_s + _GRACE_S)
        reply = _guarded(answer, json.loads(line))
        signal.setitimer(signal.ITIMER_REAL, 0)
        if limit_bytes is not None and _largest_bytes() > limit_bytes:  # faster than the thread looked
            os._exit(OUT_OF_MEMORY)
        _send(replies, reply)


def _prepare() -> None:
    from lagproof.grading.reader import forbid_code
    from lagproof.grading.verify import compare

    forbid_code()
    for gold, answer in (("2x", r"\frac{4x}{2}"), (r"2\sqrt{3}", r"\sqrt{12}"), ("(1,2)", r"\{1,2\}")):
        compare(gold, answer)


def _answer(asked: str, gold: str, answer: str) -> str:
    """A verdict, or what an answer says: see :class:`lagproof.grading.grader.Grader`."""
    from lagproof.grading.judge import Question, first_look
    from lagproof.grading.verify import compare
    from lagproof.grading.votes import answer_key

    if asked == KEY:
        key = answer_key(answer, gold)
        return NO_KEY if key is None else KEY + key
    look = first_look(gold, answer)
    return (compare(look.gold, look.answer) if isinstance(look, Question) else look).value


def _cap_memory(memory_mib: int) -> int | None:
    """Limit the memory to what is in use now and so much more.

    Where ``/proc`` says how much address space is in use, the system holds the limit. Elsewhere (macOS, which has no
    such limit either) a thread looks at the largest size so far, and ends the process when it is beyond; so does
    whoever has answered.

    Returns:
        The largest size allowed where the system does not hold the limit, else ``None``.
    """
    try:
        with open(STATM, encoding="ascii") as statm:
            used = int(statm.read().split()[0]) * resource.getpagesize()
    except FileNotFoundError:
        limit = _largest_bytes() + memory_mib * 2**20
        threading.Thread(target=_watch_memory, args=(limit,), daemon=True).start()
        return limit
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + memory_mib * 2**20, hard))
    return None


def _watch_memory(limit_bytes: int) -> None:
    while _largest_bytes() <= limit_bytes:
        time.sleep(_LOOK_EVERY_S)
    os._exit(OUT_OF_MEMORY)


def _largest_bytes() -> int:
    """The largest resident size so far; macOS counts bytes, everybody else KiB.

    Linux begins with the size of the process that started this one: without ``/proc`` the limit is as much looser.
    """
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _guarded(answer: Callable[..., str], question: list[str]) -> list[str]:
    try:
        return [answer(*question), ""]
    except MemoryError:
        os._exit(OUT_OF_MEMORY)  # nothing here can be trusted any more; the pool starts another process
    except Exception as error:
        return [FAILED, f"{type(error).__name__}: {str(error)[:300]}"]


def _send(replies: TextIO, reply: list[str]) -> None:
    replies.write(json.dumps(reply) + "\n")
    replies.flush()


if __name__ == "__main__":
    main()
