"""What a guard keeps: bytes, little beside them, and none of it any longer than it lives itself.

In: streams that end in the middle of a held call. Out: bytes allocated for each of many guards, and what is alive.
"""

import gc
import json
import sys
import tracemalloc
import weakref
from collections.abc import Iterator

import pytest

from callfuse.guard.guard import Guard
from callfuse.wire import AWS_EVENTS, EVENTS, WHOLE, Format
from callfuse.wire.ndjson import NDJSON
from tests.guard.driving import EVENT_KITS, Scene, scene
from tests.support.kits import KITS, DialectKit
from tests.support.meeting import ask
from tests.support.model import Call, History, Round, User
from tests.support.plain import saying

pytestmark = pytest.mark.usefixtures("frozen_heap")
LONG = json.dumps({"query": "zebra " * 1000})
GUARDS = 3
PER_BYTE, FIXED = 2.5, 16384
"""What a held stream may cost; fixed is, besides, the beginning of the arguments that it is compared with."""
PER_BYTE_SPLICED = 3.0
"""What a held stream that continues another may cost: the bytes that came make the model's turn, and those that wait
are others."""


def call(call_id: str, piece: int) -> Call:
    """A call with 6 kB of arguments, in pieces of so many characters."""
    return Call(call_id, "search", tuple(LONG[at : at + piece] for at in range(0, len(LONG), piece)))


def exchange(kit: DialectKit, ladder: str | list[str] = "block", *, stream: bool = True) -> Scene:
    """An exchange in which that call would be the third."""
    rounds = [Round((call(f"call_{at}", len(LONG)),), ("nothing",)) for at in range(2)]
    return scene(kit, ask(kit, History((User("Find it."), *rounds)), stream=stream).body, ladder, stream=stream)


def form_of(kit: DialectKit) -> Format:
    """How the dialect streams."""
    if kit.name == "bedrock-converse":
        return AWS_EVENTS
    return NDJSON if kit.name == "ollama" else EVENTS


def feed(guard: Guard, chunks: list[bytes]) -> None:
    """Chunks as they come from a socket: objects of nobody else's."""
    for chunk in chunks:
        guard.feed(bytes(bytearray(chunk)))


def cost_of(guards: Iterator[Guard]) -> tuple[float, int]:
    """Bytes allocated for each guard, and bytes that it holds."""
    first = next(guards)  # what is made once
    gc.collect()
    tracemalloc.start()
    held = [next(guards) for _ in range(GUARDS)]
    gc.collect()
    allocated, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [guard.state.held_bytes for guard in held] == [first.state.held_bytes] * GUARDS
    return allocated / GUARDS, first.state.held_bytes


STREAMED = [kit for kit in KITS if type(kit).__name__ != "GeminiArrayKit"]


@pytest.mark.parametrize("kit", STREAMED, ids=lambda kit: kit.name)
@pytest.mark.parametrize(("piece", "chunk"), [(12, 0), (60, 1500)], ids=["framewise", "packets"])
def test_a_held_stream_costs_little_more_than_its_bytes(kit: DialectKit, piece: int, chunk: int) -> None:
    """No frame is kept parsed, however small the pieces are and however they are cut."""
    made, form = exchange(kit), form_of(kit)
    whole = [frame.raw for frame in kit.frames(saying("Here.", call("call_long", piece)))]
    last = max(at for at, frame in enumerate(whole) if b"zebra" in frame)
    chunks = whole[: last + 1]
    if chunk:
        joined = b"".join(chunks)
        chunks = [joined[at : at + chunk] for at in range(0, len(joined), chunk)]

    def guards() -> Iterator[Guard]:
        while True:
            guard = made.guard(form)
            feed(guard, chunks)
            yield guard

    cost, held = cost_of(guards())
    assert held > len(LONG)
    assert cost <= PER_BYTE * held + FIXED


@pytest.mark.parametrize("kit", KITS, ids=lambda kit: kit.name)
def test_a_whole_answer_costs_little_more_than_its_bytes(kit: DialectKit) -> None:
    """It is not parsed before its end."""
    made = exchange(kit, stream=False)
    body = kit.whole(saying("Here.", call("call_long", 12)))[:-1]

    def guards() -> Iterator[Guard]:
        while True:
            guard = made.guard(WHOLE)
            feed(guard, [body[at : at + 4096] for at in range(0, len(body), 4096)])
            yield guard

    cost, held = cost_of(guards())
    assert held == len(body)
    assert cost <= PER_BYTE * held + FIXED


@pytest.mark.parametrize("kit", EVENT_KITS, ids=lambda kit: kit.name)
def test_a_held_second_answer(kit: DialectKit) -> None:
    """It costs its bytes twice, once as the client is to see them. What was asked for it is not counted here."""
    first, second = (
        [frame.raw for frame in kit.frames(saying("Here.", call(f"call_{tag}", 60), tag=tag))] for tag in ("a", "b")
    )
    last = max(at for at, frame in enumerate(second) if b"zebra" in frame)

    def asked() -> Guard:
        made = exchange(kit, ["steer", "steer", "block"])
        guard = made.guard()
        feed(guard, first)
        assert guard.apply(guard.verdicts()).ask is not None
        guard.begin_next_answer()
        return guard

    waiting = [asked() for _ in range(GUARDS + 1)]

    def guards() -> Iterator[Guard]:
        for guard in waiting:
            feed(guard, second[: last + 1])
            yield guard

    cost, held = cost_of(guards())
    assert held > len(LONG)
    assert cost <= PER_BYTE_SPLICED * held + FIXED


@pytest.fixture
def _no_collector(frozen_heap: None) -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("_no_collector")
@pytest.mark.parametrize("kit", EVENT_KITS, ids=lambda kit: kit.name)
@pytest.mark.parametrize("way", ["held", "cut", "failed", "broken", "blocked", "asked", "whole", "no JSON"])
def test_a_guard_is_gone_with_its_last_reference(kit: DialectKit, way: str) -> None:
    """However its answer ended, nothing in a circle keeps it, or a body, for the collector to find."""
    whole = way in ("whole", "no JSON")
    made = exchange(kit, "chance_then_block" if way == "asked" else "block", stream=not whole)
    answer = saying("Here.", call("call_long", 60))
    chunks = [kit.whole(answer)] if whole else [frame.raw for frame in kit.frames(answer)]
    if way in ("held", "cut", "failed", "broken"):
        chunks = chunks[:-4]
    if way == "broken":
        chunks.append(b"data: {\n\n")
    if way == "no JSON":
        chunks = [chunks[0][:-1]]
    guard = made.guard(stream=not whole)
    before = [sys.getrefcount(chunk) for chunk in chunks]
    for at in range(len(chunks)):
        guard.feed(chunks[at])
    if way == "cut":
        guard.cut()
    elif way == "failed":
        guard.fail("max_hold_s")
    elif way in ("blocked", "asked", "whole", "no JSON"):
        guard.finish()
        if guard.needs_verdict:
            guard.apply(guard.verdicts())
        guard.settle()
    alive = [weakref.ref(one) for one in (guard, guard._answer.queue, guard._answer.calls)]
    del guard
    assert [ref() for ref in alive] == [None] * len(alive)
    assert [sys.getrefcount(chunk) for chunk in chunks] == before
