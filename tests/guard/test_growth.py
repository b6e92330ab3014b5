"""The work of a guard grows with what comes, whatever an answer is made of: shown by counting lines, not by a clock.

In: answers of many choices or many calls, of one size and of twice that. Out: the lines of Python that the guard runs.
"""

from itertools import product

import pytest

from callfuse.detect.siblings import Room
from callfuse.dialects.base import OpenCall
from callfuse.guard.assembly import Assembly
from callfuse.guard.frames import MOST_CHOICES
from callfuse.guard.guard import Guard
from callfuse.guard.hold import Input
from callfuse.guard.queue import HoldQueue
from callfuse.wire import EVENTS, JSON_ARRAY, Format
from callfuse.wire.ndjson import NDJSON
from tests.guard.driving import Outcome, play, record_of, scene
from tests.guard.written import DONE, OPENAI, chunk, part
from tests.support.kits import KITS, DialectKit
from tests.support.kits.gemini import GeminiArrayKit
from tests.support.meeting import framewise
from tests.support.plain import again, spin
from tests.support.work import calls_made, lines_run

GROWTH = 2.5
"""What twice the size may cost: 2, and what does not grow is the less the larger."""


def releases(count: int, *, in_turn: bool = False) -> None:
    """As many choices as held calls, their frames by turns; each is released by itself, the last one first."""
    queue = HoldQueue(ordered=False, in_turn=in_turn)
    calls = [OpenCall(choice, 0, name="search") for choice in range(count)]
    for call in calls:
        queue.open_call(call, suspect=True)
    for _ in range(20):
        for choice in range(count):
            queue.put(b"%d." % choice, (choice,))
    for choice in reversed(range(count)):
        queue.step(choice, Input.INNOCENT)
    assert len(queue.drain()) > 20 * count
    assert not queue.size


@pytest.mark.slow
def test_a_release_looks_at_what_it_sends() -> None:
    """Not at all that waits, nor at all calls that are held."""
    assert lines_run(lambda: releases(400)) < GROWTH * lines_run(lambda: releases(200))


def answer(*deltas: bytes) -> list[bytes]:
    """The chunks of an answer that has an end."""
    return [*deltas, DONE]


def looping_choices(count: int) -> list[bytes]:
    """As many choices, each with the call that loops."""
    begun = [chunk({"role": "assistant", "tool_calls": [part(f"call_{at}")]}, choice=at) for at in range(count)]
    return answer(*begun, *(chunk({}, "tool_calls", choice=at) for at in range(count)))


def calls_by_turns(count: int) -> list[bytes]:
    """One choice with as many looping calls, then as many new ones, each of which would free them."""
    parts = [part(f"call_{at}", index=at) for at in range(count)]
    parts += [part(f"new_{at}", f'{{"query": "{at}"}}', index=count + at) for at in range(count)]
    return answer(*(chunk({"tool_calls": [one]}) for one in parts), chunk({}, "tool_calls"))


def guarded(chunks: list[bytes], ladder: str = "block") -> Outcome:
    """What comes of an answer."""
    return play(scene(OPENAI, spin(), ladder=ladder, n=2).guard(), chunks)


def growing_by_turns(count: int) -> list[bytes]:
    """As many choices, in each a held call whose arguments come in twenty pieces, a choice a frame."""
    begun = [chunk({"role": "assistant", "tool_calls": [part(f"call_{at}", " ")]}, choice=at) for at in range(count)]
    more = {"tool_calls": [{"index": 0, "function": {"arguments": " "}}]}
    return answer(*begun, *(chunk(more, choice=at) for _ in range(20) for at in range(count)))


def flooding(count: int) -> list[bytes]:
    """One event with so many different calls."""
    parts = [part(f"call_{at}", f'{{"query": "{at}"}}', index=at) for at in range(count)]
    return answer(chunk({"role": "assistant", "tool_calls": parts}), chunk({}, "tool_calls"))


@pytest.mark.slow
@pytest.mark.parametrize("make", [looping_choices, calls_by_turns, growing_by_turns, flooding])
@pytest.mark.parametrize("joined", [False, True], ids=["framewise", "in one chunk"])
def test_an_answer_costs_what_it_brings(make: object, joined: bool) -> None:
    """Choices and calls, however many: each is judged, withheld or released once."""
    assert callable(make)
    small, large = (make(size * (6 if make is flooding else 1)) for size in (60, 120))
    if joined:
        small, large = [b"".join(small)], [b"".join(large)]
    guarded(small)
    assert lines_run(lambda: guarded(large)) < GROWTH * lines_run(lambda: guarded(small))


def test_a_flood_is_one_finding() -> None:
    """What stands behind one too many is not judged, nor kept as evidence, and goes with it."""
    guard = scene(OPENAI, spin()).guard()
    done = play(guard, flooding(1000))
    (verdict,) = guard.record.verdicts
    assert (verdict.finding.kind, verdict.finding.count, len(guard.record.calls)) == ("flood", 129, 129)
    assert b"call_127" in done.out
    assert not any(b"call_%d" % at in done.out for at in range(128, 1000))


def test_too_many_choices_are_let_go() -> None:
    """As they came: more than a vendor gives are not worth a hold each."""
    for count, causes in ((MOST_CHOICES, []), (MOST_CHOICES + 1, ["choices"])):
        guard = scene(OPENAI, spin(), n=2).guard()
        chunks = looping_choices(count)
        assert (play(guard, chunks).out == b"".join(chunks)) == bool(causes)
        assert guard.record.fail_open == causes


def observed(chunks: list[bytes]) -> None:
    """The record of an answer that only passes."""
    made = scene(OPENAI, ladder="warn")
    assembly = Assembly(made.dialect, 1, made.judge.settings, None, EVENTS)
    for one in chunks:
        assembly.feed(one)
    assert len(record_of(assembly).rounds) == len(chunks) // 2


def test_the_calls_of_many_choices_are_recorded_in_one_pass() -> None:
    """Not once for each choice."""
    small, large = looping_choices(100), looping_choices(200)
    observed(small)
    assert lines_run(lambda: observed(large)) < GROWTH * lines_run(lambda: observed(small))


BLANKS = (b"\r", b"\n", b"\r\n", b" ")
FULL_OF = (*BLANKS, b":\n\n", b"d\r\r", b"data:\n\n", b"data: 1\n\n", b"data: {}\n\n", b"\n{", b"{}\n", b",{}",
           b"]", b"[", b"{", b"}", b'"', b"\\", b"x", b"\0")  # fmt: skip


def reading(kit: DialectKit, form: Format, *, held: bool, begun: int) -> Guard | Assembly:
    """What reads an answer that has begun with so many frames: a guard, or what only follows it."""
    made = scene(kit, spin() if held else None)
    reads: Guard | Assembly = made.guard(form)
    if not held:
        reads = Assembly(made.dialect, 1, made.judge.settings, None, form, room=Room(100, 5), may_hold=True)
    for one in framewise(kit, again()).chunks[:begun]:
        reads.feed(one)
    return reads


@pytest.mark.slow
@pytest.mark.parametrize("kit", [kit for kit in KITS if kit.name in ("openai-chat", "gemini", "ollama")],
                         ids=lambda kit: type(kit).__name__)  # fmt: skip
@pytest.mark.parametrize("held", [True, False], ids=["guarded", "watched"])
def test_whatever_a_stream_is_full_of(kit: DialectKit, *, held: bool) -> None:
    """Before a call and within one, a pattern over and over costs a few calls a byte, and blank lines nearly none."""
    form: Format = JSON_ARRAY if isinstance(kit, GeminiArrayKit) else NDJSON if kit.name == "ollama" else EVENTS
    for begun, pattern, size in product((1, len(framewise(kit, again()).chunks) - 2), FULL_OF, (1200, 100)):
        body = pattern * (1200 // len(pattern))
        reads = reading(kit, form, held=held, begun=begun)

        def work(reads: Guard | Assembly = reads, body: bytes = body, size: int = size) -> None:
            for at in range(0, len(body), size):
                reads.feed(body[at : at + size])

        assert calls_made(work) < len(body) * (12 if pattern in BLANKS else 75), (begun, pattern, size)
