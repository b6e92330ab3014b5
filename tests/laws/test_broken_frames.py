"""Law 2 where an answer is broken: the order of its bytes decides what becomes of it, never the chunks they came in.

In: answers with frames put in that no vendor should send (no JSON, no object, errors, a second end, parts of another
answer), before, within and behind the call and behind the end, in the first answer and in the one asked for. Out: all
that the client, the log, the counts and the ledger have of it, for any two ways to cut it.
"""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callfuse import CallFuseMiddleware
from callfuse.conversations.memory import MemoryLedger
from callfuse.observe.events import HoldEnded
from tests.laws.test_split_blind import SHAPES, outcome
from tests.support.asgi import Request, run
from tests.support.config import LADDERS, settings
from tests.support.examples import more_examples, some
from tests.support.kits import DialectKit, stream_of
from tests.support.kits.bedrock import event, message
from tests.support.meeting import Meeting, ask, every_dialect, given_log
from tests.support.model import Answer
from tests.support.plain import again, elsewhere, spin
from tests.support.scripted import Reply, play
from tests.support.streams import answers, chunkings, looping

SOUND = event({"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": "So."}}})
EVENT = {":message-type": "event", ":event-type": "contentBlockDelta"}
BROKEN = {
    "sse": [
        *(b"data: {broken\n\n", b"data: [1]\n\n", b'data: "x"\n\n', b"data: \xff\n\n", b"data: {}\n\n"),
        *(b"data: [DONE]\n\n", b"event: what\ndata: no\r\n\r\n", b"data\n\n", b":\n\n", b"\n\n", b"\r", b"data: {"),
    ],
    "lines": [b"{broken\n", b"[1]\n", b"5\n", b"\xff\n", b"{}\n", b"\n", b"\r", b"{"],
    "binary": [
        *(b"\0\0\0\x20\0\0\0\0broken", b"x", b"\0\0\0", b"\xff" * 20, SOUND[:-1] + b"x", SOUND[:-5], SOUND[3:]),
        *(message({}, b""), message({":message-type": "event", ":event-type": "news"}, b""), message(EVENT, b"[1]")),
        *(message(EVENT, b"{broken"), message(EVENT, b"\xff"), event({"contentBlockDelta": {}})),
    ],
    "array": [b",{broken}", b",[1]", b",5", b"\xff", b",{}", b"]", b"[", b"{", b"\n"],
}
"""Frames, and pieces of them, that no answer should have, by the format of the stream."""

LIMITS: list[dict[str, Any]] = [{}, {"fail_closed": True}, {"max_held_bytes": 1024}, {"max_response_bytes": 1500}]


def form_of(body: bytes) -> str:
    """The format of a streamed body, by its first bytes."""
    first = body.lstrip()[:1]
    return {b"[": "array", b"{": "lines", b"\0": "binary"}.get(first, "sse")


@st.composite
def broken(draw: st.DrawFn, kit: DialectKit, answer: Answer) -> bytes:
    """The answer's stream with up to three frames put in, anywhere."""
    frames = [frame.raw for frame in kit.frames(answer)]
    other = [frame.raw for frame in kit.frames(elsewhere(tag="other"))]
    pool = [*BROKEN[form_of(b"".join(frames))], kit.error(), *frames, *other]
    for _ in range(draw(st.integers(1, 3))):
        frames.insert(draw(st.integers(0, len(frames))), draw(st.sampled_from(pool)))
    if draw(st.integers(0, 5)) == 0:
        frames = frames[: draw(st.integers(0, len(frames)))]
    return b"".join(frames)


def all_that_came(request: Request, replies: list[Reply], ladder: str, **more: Any) -> tuple[object, ...]:
    """What client, app and log have of an exchange, the counts, and what the ledger keeps, without times."""
    app, ledger = play(*replies), MemoryLedger(max_lanes=10, ttl_s=60)
    guarded = CallFuseMiddleware(app, settings(ladder, **more), store=ledger)
    with given_log() as log:
        client = run(guarded, request, turn=lambda: app.turn)
    kept = [
        (lane, state.notes, state.continuation, [replace(one, time=None) for one in state.rounds])
        for lane, (_, state, _) in ledger._lanes.entries.items()
    ]
    counts = {
        kind: of_kind for kind, of_kind in guarded.counts._counts.items() if kind is not HoldEnded
    }  # waits by chunk
    return (*outcome(Meeting(client, app, tuple(log))), counts, kept)


@pytest.mark.slow
@every_dialect
@more_examples(2)
@given(data=st.data())
def test_the_order_of_bytes_decides_and_never_the_chunk(kit: DialectKit, data: st.DataObject) -> None:
    """Same bytes, same requests, same log, counts and ledger, however the broken answer is cut."""
    history = data.draw(looping(beside=True))
    made = [data.draw(answers(kit, data.draw(st.sampled_from(SHAPES)), tag=tag, many=False)) for tag in ("one", "two")]
    bodies = [data.draw(broken(kit, answer)) for answer in made]
    ladder = data.draw(st.sampled_from(list(LADDERS)))
    more = data.draw(st.sampled_from(LIMITS))
    request = ask(kit, history, stream=True)
    ways = [[Reply(data.draw(chunkings(body))) for body in bodies] for _ in range(2)]
    one, other = (all_that_came(request, way, ladder, **more) for way in ways)
    assert one == other


@pytest.mark.search
@every_dialect
@pytest.mark.parametrize(
    ("ladder", "asked"), [("block", False), ("chance_then_block", False), ("chance_then_block", True)]
)
def test_one_broken_frame_anywhere(kit: DialectKit, ladder: str, asked: bool) -> None:
    """In every place of the first answer or the second: frame by frame and in one chunk are the same."""
    plain = again(text="", tag="other") if asked else elsewhere()
    frames = [frame.raw for frame in kit.frames(elsewhere() if asked else again())]
    last = stream_of(kit, elsewhere(tag="third"))
    request = ask(kit, spin(), stream=True)
    for number, bad in enumerate((*BROKEN[form_of(frames[0])], kit.error())):
        for at in some(range(len(frames) + 1), 6, number):
            spoiled = (*frames[:at], bad, *frames[at:])
            joined = b"".join(spoiled)
            ways = [spoiled, (joined,)]
            scripts = [[Reply(one), Reply((stream_of(kit, plain),)), Reply((last,))] for one in ways]
            if asked:
                scripts = [[script[1], script[0], script[2]] for script in scripts]
            framewise, whole = (all_that_came(request, script, ladder) for script in scripts)
            assert framewise == whole, (bad, at)
