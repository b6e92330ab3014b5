"""Law 8, bounded: every limit has a behaviour, and at each of them nothing is lost."""

import json
import logging
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from callfuse import CallFuseMiddleware
from callfuse.conversations.memory import MemoryLedger
from callfuse.model.ids import LONGEST_ID
from callfuse.observe.events import FindingSeen
from tests.support.asgi import Watch, drive
from tests.support.config import guard
from tests.support.kits import KITS, DialectKit, stream_of
from tests.support.meeting import ask, bare, every_dialect, given_log, meet, reply, streamed_and_whole
from tests.support.model import Call, History, Round, User
from tests.support.observing import Observed
from tests.support.plain import PIECES, RESULT, again, same_call, saying, spin
from tests.support.scripted import Reply, play
from tests.support.streams import chunkings

CHAT = next(kit for kit in KITS if kit.name == "openai-chat")


@every_dialect
@streamed_and_whole
@given(data=st.data())
def test_a_request_over_the_limit_is_not_guarded(kit: DialectKit, stream: bool, data: st.DataObject) -> None:
    """A request body over `max_request_bytes` reaches the app whole, in order, and its answer passes."""
    request, script = ask(kit, spin(), stream=stream), reply(kit, again(), stream=stream)
    chunks = data.draw(chunkings(request.body))
    limit = data.draw(st.integers(1, len(request.body) - 1))
    cut = replace(request, chunks=chunks)
    met = meet(cut, [script], max_request_bytes=limit)
    plain = bare(request, [script])
    assert met.app.heard == plain.app.heard
    assert (met.client.start, met.body) == (plain.client.start, plain.body)
    assert met.log, "that the exchange was not guarded is worth a line"


@every_dialect
def test_a_request_at_the_limit_is_guarded(kit: DialectKit) -> None:
    """The limit itself is still within."""
    request = ask(kit, spin(), stream=True)
    met = meet(request, [reply(kit, again(), stream=True)], max_request_bytes=len(request.body))
    assert b"call_first" not in met.body


@every_dialect
@given(data=st.data())
def test_a_whole_answer_over_the_limit_passes(kit: DialectKit, data: st.DataObject) -> None:
    """A JSON answer over `max_response_bytes` is passed on unjudged, every byte of it."""
    script = reply(kit, again(), stream=False)
    script = script.cut(data.draw(chunkings(script.body)))
    limit = data.draw(st.integers(1, len(script.body) - 1))
    met = meet(ask(kit, spin(), stream=False), [script], max_response_bytes=limit)
    assert met.body == script.body
    assert met.client.complete
    assert met.log


@every_dialect
@given(limit=st.integers(1, 400))
def test_a_call_too_long_to_hold_is_let_through(kit: DialectKit, limit: int) -> None:
    """A held call that outgrows `max_held_bytes` goes on to the client as it came, and so does all behind it."""
    pieces = ('{"query": "', *("zebra " for _ in range(200)), '"}')
    before = [Round((Call(f"call_l{at}", "search", pieces),), (RESULT,)) for at in range(2)]
    history = History((User("Find the zebra crossing."), *before))
    answer = saying("Here.", Call("call_long", "search", pieces))
    met = meet(ask(kit, history, stream=True), [Reply(tuple(f.raw for f in kit.frames(answer)))], max_held_bytes=limit)
    assert met.body == stream_of(kit, answer)
    assert met.client.complete
    assert met.log_at(logging.WARNING), "failing open is worth a line"


@every_dialect
async def test_a_hold_ends_in_time(kit: DialectKit) -> None:
    """A hold that outlasts `max_hold_s` lets go of what it has while the model is still writing."""
    watch = Watch()
    listed = kit.frames(saying(same_call()))
    inside = [at for at, frame in enumerate(listed) if frame.item == 0]
    late = inside[-1] if len(inside) > 1 else inside[0] + 1  # a call that comes whole waits for the answer's end

    async def gate(at: int) -> None:
        if at == late:
            await watch.until(b"call_again")

    app = play(Reply(tuple(frame.raw for frame in listed), gate=gate))
    with given_log() as log:
        guarded = guard(app, max_hold_s=0.05)
        exchange = await drive(guarded, ask(kit, spin(), stream=True), on_bytes=watch.feed)
    assert exchange.raised is None
    assert exchange.body == b"".join(frame.raw for frame in listed)
    assert log


@every_dialect
async def test_the_ledger_has_a_size(kit: DialectKit) -> None:
    """With room for one session, many conversations do not blind the guard: each loop is seen."""
    app = play(reply(kit, again(), stream=True))
    guarded = guard(app, max_sessions=1)
    for at in range(20):
        headers = (*ask(kit, spin(), stream=True).headers, (b"x-callfuse-session-id", b"session-%08d" % at))
        exchange = await drive(guarded, ask(kit, spin(), stream=True, headers=headers))
        assert b"call_first" not in exchange.body


@every_dialect
async def test_the_ledger_keeps_no_long_ids(kit: DialectKit) -> None:
    """Conversations whose calls have ids and results of any length cost no more than others."""
    long = Call("i" * 100_000, "search", PIECES)
    turns = History((User("Find the zebras."), Round((long,), ("r" * 100_000,))))
    guarded = guard(play(reply(kit, again(), stream=True)))
    assert isinstance(guarded, CallFuseMiddleware)
    assert isinstance(guarded.ledger, MemoryLedger)
    for at in range(5):
        headers = (*ask(kit, turns, stream=True).headers, (b"x-callfuse-session-id", b"session-%08d" % at))
        exchange = await drive(guarded, ask(kit, turns, stream=True, headers=headers))
        assert exchange.raised is None
    assert len(guarded.ledger) == 5
    assert guarded.ledger.size < 5 * 5000


async def test_events_keep_no_long_models() -> None:
    """What is kept of exchanges, for the page and for texts that come again, is small whatever model a client names."""
    seen = Observed()
    guarded = guard(play(reply(CHAT, again(), stream=True)))
    assert isinstance(guarded, CallFuseMiddleware)
    guarded.bus.add(seen)
    for letter in "ab":
        request = ask(CHAT, spin(), stream=True)
        body = json.dumps({**json.loads(request.body), "model": letter * 100_000}).encode()
        await drive(guarded, replace(request, body=body))
    models = {event.where.model for event in seen.of(FindingSeen)}
    assert len(models) == 2
    assert max(map(len, models)) <= LONGEST_ID
