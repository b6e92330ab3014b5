"""`callfuse demo`: show a loop being caught. Needs `callfuse[demo]`.

The exit code is 0 if the loop was caught as expected, 1 if not, 2 if a package is missing.
"""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

from callfuse.cli.listed import print_missing
from callfuse.cli.runs import fail

if TYPE_CHECKING:
    from callfuse.demo.page import Page
    from callfuse.demo.story import Summary

CHUNK_DELAY_S = 0.05
"""Delay before each piece of the scripted model's answer, slow enough to watch."""

_NEEDED_PACKAGES = ("openai", "uvicorn", "aiohttp", "rich")


def run_demo(
    *,
    stubborn: bool = False,
    plain: bool = False,
    page: bool = False,
    seconds: float | None = None,
    chunk_delay_s: float = CHUNK_DELAY_S,
) -> int:
    """Run the demo on standard output. Returns the exit code. A `stubborn` model ignores guidance, and is blocked.

    `page`: open the live page in a browser, and keep it running at the end for `seconds`; None: until Ctrl-C, if
    standard output is a terminal.
    """
    if seconds is not None and not (page and seconds >= 0):
        return fail("demo", "--seconds sets how long the live page stays up; use it with --page, and 0 or more")
    if missing := [name for name in _NEEDED_PACKAGES if find_spec(name) is None]:
        return print_missing("demo", *missing)
    from callfuse.demo.servers import DemoError

    try:
        with _end_on_sigterm():
            summary = _play(
                stubborn=stubborn, plain=plain, page=_page(seconds) if page else None, chunk_delay_s=chunk_delay_s
            )
    except BrokenPipeError:  # the reader has closed the pipe, so the interpreter must not flush into it at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except DemoError as error:
        print(f"callfuse demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("callfuse demo: interrupted", file=sys.stderr)
        return 130
    if problem := _problem(summary, stubborn=stubborn):
        print(f"callfuse demo: {problem}", file=sys.stderr)
        return 1
    return 0


@contextmanager
def _end_on_sigterm() -> Iterator[None]:
    """Raise SystemExit on SIGTERM, so that the demo stops the `callfuse serve` it has started."""
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


def _page(seconds: float | None) -> "Page":
    from callfuse.demo.page import Page

    if seconds is None and not sys.stdout.isatty():  # without a terminal, no one can press Ctrl-C
        seconds = 0
    return Page(lambda text: print(text, flush=True), stay_s=seconds)


def _play(*, stubborn: bool, plain: bool, page: "Page | None", chunk_delay_s: float) -> "Summary":
    from rich.console import Console

    from callfuse.demo.play import Play
    from callfuse.demo.stages import MIN_WIDTH_LIVE, LiveStage, PlainStage

    console = Console()
    is_plain = plain or not console.is_terminal or console.is_dumb_terminal or console.width < MIN_WIDTH_LIVE
    stage = PlainStage() if is_plain else LiveStage(console)
    stage.open()
    with Play(stubborn=stubborn, chunk_delay_s=chunk_delay_s, page=page) as play:
        with stage:
            summary = play.act(stage)
        stage.close(summary, _verdict(summary))
        play.stay()
    return summary


def _verdict(summary: "Summary") -> str:
    from callfuse.demo.story import EntryKind

    ends = {
        EntryKind.ANSWER: "With callfuse the model read the guidance, changed course, and the agent got its answer.",
        EntryKind.BLOCK: "The model did not listen, so callfuse blocked the call and the agent's run ended at once.",
    }
    return ends.get(summary.with_callfuse.end, "callfuse did not catch the loop.")


def _problem(summary: "Summary", *, stubborn: bool) -> str | None:
    """Describe which run did not end as expected; None if both did."""
    from callfuse.demo.story import EntryKind

    expected = EntryKind.BLOCK if stubborn else EntryKind.ANSWER
    bare, fused = summary.without, summary.with_callfuse
    if bare.end is not EntryKind.LIMIT:
        return f"the run without callfuse should have looped to its limit, but ended with: {bare.end.value}"
    if fused.end is not expected:
        return f"the run with callfuse should have ended with: {expected.value}, but ended with: {fused.end.value}"
    return None
