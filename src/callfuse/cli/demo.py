"""`callfuse demo`: a loop being caught, before your eyes. Needs `callfuse[demo]`.

Whether the model is stubborn and how to show it goes in; an exit code comes out: 0 where the loop was caught as it
should be, 1 where it was not, 2 where something is not installed.
"""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from callfuse.demo.story import Summary

CHUNK_DELAY_S = 0.05
"""How long the scripted model takes for a piece of its answer: slow enough to be watched."""

_NEEDED = {"openai": "the OpenAI SDK", "uvicorn": "uvicorn", "aiohttp": "aiohttp", "rich": "rich"}


def run_demo(*, stubborn: bool = False, plain: bool = False, chunk_delay_s: float = CHUNK_DELAY_S) -> int:
    """Run the demo on standard output. A `stubborn` model never changes course, so that it is blocked."""
    if missing := [name for module, name in _NEEDED.items() if find_spec(module) is None]:
        print(f"callfuse demo needs {' and '.join(missing)}: pip install 'callfuse[demo]'", file=sys.stderr)
        return 2
    from callfuse.demo.servers import DemoError

    try:
        with _end_on_sigterm():
            summary = _play(stubborn=stubborn, plain=plain, chunk_delay_s=chunk_delay_s)
    except BrokenPipeError:  # whoever read the output has seen enough, and the interpreter must not flush into it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except DemoError as error:
        print(f"callfuse demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("callfuse demo: interrupted", file=sys.stderr)
        return 130
    if complaint := _complaint(summary, stubborn=stubborn):
        print(f"callfuse demo: {complaint}", file=sys.stderr)
        return 1
    return 0


@contextmanager
def _end_on_sigterm() -> Iterator[None]:
    """Let SIGTERM unwind the stack, so that `callfuse serve` does not outlive the demo."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _play(*, stubborn: bool, plain: bool, chunk_delay_s: float) -> "Summary":
    from rich.console import Console

    from callfuse.demo.play import play
    from callfuse.demo.stages import MIN_WIDTH_LIVE, LiveStage, PlainStage

    console = Console()
    if plain or not console.is_terminal or console.is_dumb_terminal or console.width < MIN_WIDTH_LIVE:
        plain_stage = PlainStage()
        plain_stage.open()
        summary = play(plain_stage, stubborn=stubborn, chunk_delay_s=chunk_delay_s)
        plain_stage.close(summary, _verdict(summary))
        return summary
    live_stage = LiveStage(console)
    live_stage.open()
    with live_stage:
        summary = play(live_stage, stubborn=stubborn, chunk_delay_s=chunk_delay_s)
    live_stage.close(summary, _verdict(summary))
    return summary


def _verdict(summary: "Summary") -> str:
    from callfuse.demo.story import Kind

    ends = {
        Kind.ANSWER: "With callfuse the model read the guidance, changed course, and the agent got its answer.",
        Kind.BLOCK: "The model did not listen, so callfuse blocked the call and the agent's run ended at once.",
    }
    return ends.get(summary.with_callfuse.end, "callfuse did not catch the loop.")


def _complaint(summary: "Summary", *, stubborn: bool) -> str | None:
    """What did not end as it should; None if all did."""
    from callfuse.demo.story import Kind

    expected = Kind.BLOCK if stubborn else Kind.ANSWER
    bare, fused = summary.without, summary.with_callfuse
    if bare.end is not Kind.LIMIT:
        return f"the run without callfuse should have looped to its limit, but ended with: {bare.end.value}"
    if fused.end is not expected:
        return f"the run with callfuse should have ended with: {expected.value}, but ended with: {fused.end.value}"
    return None
