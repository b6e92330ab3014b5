"""Law 9, never worse than not being there: breaks look as they would, and after the verdict the call stays gone."""

import asyncio
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.asgi import Watch, drive
from tests.support.config import ACTING, guard
from tests.support.kits import DialectKit
from tests.support.meeting import MARK, ask, bare, every_dialect, meet, reply, streamed_and_whole
from tests.support.model import Call
from tests.support.plain import again, elsewhere, spin
from tests.support.scripted import Reply, play, whole
from tests.support.streams import KNOWN, answers, chunkings, looping


class UpstreamBroke(Exception):
    """What the app raises when its own upstream breaks."""


@every_dialect
@given(data=st.data())
def test_a_stream_that_breaks_anywhere_breaks_the_same_way(kit: DialectKit, data: st.DataObject) -> None:
    """Wherever the upstream dies before the verdict, the client has every byte that came, and then the same break."""
    answer = data.draw(answers(kit, [KNOWN[0]], many=False, plain=True))
    listed = kit.frames(answer)
    finish = next(at for at, frame in enumerate(listed) if frame.kind == "finish")
    body = b"".join(frame.raw for frame in listed[:finish])
    alive = body[: data.draw(st.integers(0, len(body)))]
    script = Reply(data.draw(chunkings(alive)), raises=UpstreamBroke("gone"))
    request = ask(kit, data.draw(looping()), stream=True)
    met, plain = meet(request, [script], data.draw(st.sampled_from(ACTING))), bare(request, [script])
    assert isinstance(plain.client.raised, UpstreamBroke)
    assert isinstance(met.client.raised, UpstreamBroke)
    assert met.body == alive
    assert len(met.app.heard) == 1


@every_dialect
@given(data=st.data())
def test_a_stream_that_just_ends_ends_the_same_way(kit: DialectKit, data: st.DataObject) -> None:
    """A body that ends in a held call without its finish is given out as it came: a cut call is no evidence."""
    answer = data.draw(answers(kit, [KNOWN[0]], many=False, plain=True))
    listed = kit.frames(answer)
    called = next(at for at, item in enumerate(answer.choices[0]) if isinstance(item, Call))
    opens = next(at for at, frame in enumerate(listed) if frame.kind == "open" and frame.item == called)
    body = b"".join(frame.raw for frame in listed[: opens + 1])
    script = Reply(data.draw(chunkings(body)))
    met = meet(ask(kit, data.draw(looping()), stream=True), [script], data.draw(st.sampled_from(ACTING)))
    assert met.body == body
    assert met.client.complete
    assert len(met.app.heard) == 1


@every_dialect
def test_an_app_that_raises_before_it_answers_raises(kit: DialectKit) -> None:
    """An error before the first byte is the host's to handle, as without callfuse."""

    async def app(scope: object, receive: object, send: object) -> None:
        raise UpstreamBroke("at once")

    exchange = asyncio.run(drive(guard(app), ask(kit, spin(), stream=True)))
    assert isinstance(exchange.raised, UpstreamBroke)
    assert exchange.sent == []


GARBAGE = b"<html><body>502 Bad Gateway</body></html>"
BROKEN_SECONDS = {
    "an error status": whole(b'{"error":{"message":"overloaded"}}', 529),
    "a page": Reply((GARBAGE,), headers=((b"content-type", b"text/html"),)),
    "nothing": Reply(()),
    "half a JSON": whole(b'{"id": "x", "choi'),
    "an exception at once": Reply((), raises=UpstreamBroke("second")),
}


@every_dialect
@streamed_and_whole
@pytest.mark.parametrize("broken", BROKEN_SECONDS)
def test_a_second_answer_that_fails_becomes_a_block(kit: DialectKit, stream: bool, broken: str) -> None:
    """Where asking again fails, the client gets the block text in a valid answer, and never the call."""
    replies = [reply(kit, again(), stream=stream), BROKEN_SECONDS[broken]]
    met = meet(ask(kit, spin(), stream=stream), replies, "chance_then_block")
    assert met.client.raised is None
    assert met.client.status == 200
    assert met.client.complete
    assert len(met.app.heard) == 2
    (view,) = kit.sdk(met.body, stream=stream)
    assert view.calls == ()
    assert view.finish == kit.stopped
    assert MARK in view.text
    assert GARBAGE not in met.body
    if stream:
        assert kit.faults(met.body) == []


@every_dialect
@streamed_and_whole
async def test_a_second_answer_that_never_comes_becomes_a_block(kit: DialectKit, stream: bool) -> None:
    """`steer_timeout_s` bounds the wait for the second answer's first byte."""
    never = asyncio.Event()

    async def gate(_at: int) -> None:
        await never.wait()

    second = reply(kit, elsewhere(), stream=stream)
    app = play(reply(kit, again(), stream=stream), Reply(second.chunks, headers=second.headers, gate=gate))
    guarded = guard(app, "chance_then_block", steer_timeout_s=0.05)
    exchange = await drive(guarded, ask(kit, spin(), stream=stream))
    assert exchange.raised is None
    assert exchange.complete
    (view,) = kit.sdk(exchange.body, stream=stream)
    assert (view.calls, view.finish) == ((), kit.stopped)
    assert MARK in view.text
    assert app.cancelled == 1, "the call that nobody waits for is ended"


@every_dialect
def test_a_second_answer_that_breaks_after_its_first_words_shows_the_break(kit: DialectKit) -> None:
    """What went out cannot be taken back: the client sees that break as of any upstream."""
    second = kit.frames(elsewhere())
    cut_at = next(at for at, frame in enumerate(second) if frame.kind == "piece") + 1
    broken = Reply(tuple(frame.raw for frame in second[:cut_at]), raises=UpstreamBroke("in text"))
    met = meet(ask(kit, spin(), stream=True), [reply(kit, again(), stream=True), broken], "chance_then_block")
    assert isinstance(met.client.raised, UpstreamBroke)
    assert b"Another way." in met.body
    assert b"call_first" not in met.body


@every_dialect
async def test_a_leaving_client_reaches_the_app(kit: DialectKit) -> None:
    """A disconnect during the hold is heard by the app that is running, and nothing is left running."""
    leave, watch = asyncio.Event(), Watch()
    listed = kit.frames(again())
    last = max(at for at, frame in enumerate(listed) if frame.item == 1)
    app = play()

    async def gate(at: int) -> None:
        if at == last:
            leave.set()
            assert app.left
            await app.left.wait()

    app.replies, app.left = (Reply(tuple(frame.raw for frame in listed), gate=gate),), asyncio.Event()
    exchange = await drive(guard(app), ask(kit, spin(), stream=True), leave=leave, on_bytes=watch.feed)
    assert app.heard[0].disconnected
    assert exchange.raised is None


@every_dialect
async def test_a_leaving_client_reaches_the_second_call(kit: DialectKit) -> None:
    """While the model is being asked again, it is the second call of the app that hears of the disconnect."""
    leave = asyncio.Event()
    app = play()

    async def gate(at: int) -> None:
        if len(app.heard) == 2 and at == 0:
            leave.set()
            assert app.left
            await app.left.wait()

    scripts = [Reply(tuple(f.raw for f in kit.frames(a)), gate=gate) for a in (again(), elsewhere())]
    app.replies, app.left = tuple(scripts), asyncio.Event()
    await drive(guard(app, "chance_then_block"), ask(kit, spin(), stream=True), leave=leave)
    assert len(app.heard) == 2
    assert app.heard[1].disconnected


@every_dialect
@pytest.mark.parametrize("place", ["before", "within"])
def test_malformed_json_in_a_stream_passes(kit: DialectKit, place: str) -> None:
    """A line that is not JSON reaches the client; a hold that it falls into ends whole or is gone whole. In an array
    and in a binary stream no client, and no guard, can tell what stands behind it."""
    listed = [frame.raw for frame in kit.frames(again())]
    opens = next(at for at, frame in enumerate(kit.frames(again())) if frame.kind == "open" and frame.item == 1)
    listed.insert(opens + (place == "within"), b'data: {"half": \n\n')
    script = Reply(tuple(listed))
    met = meet(ask(kit, spin(), stream=True), [script])
    assert met.body == b"".join(listed) or b"call_first" not in met.body
    assert place == "within" or listed[0].startswith((b"[", b"\0")) or b"call_first" not in met.body
    assert len(met.log_at(logging.ERROR)) <= 1
    assert b'data: {"half": \n\n' in met.body
    assert met.client.complete


@every_dialect
def test_an_error_event_passes_where_it_stands(kit: DialectKit) -> None:
    """An error in a stream that has begun comes after all that was held, and nothing is asked again."""
    listed = kit.frames(again())
    last = max(at for at, frame in enumerate(listed) if frame.item == 1)
    body = b"".join(frame.raw for frame in listed[:last]) + kit.error()
    met = meet(ask(kit, spin(), stream=True), [Reply((body,))], "chance_then_block")
    assert met.body == body
    assert len(met.app.heard) == 1


@every_dialect
@given(data=st.data())
def test_any_bytes_at_all_pass(kit: DialectKit, data: st.DataObject) -> None:
    """Whatever an upstream sends as a stream, callfuse neither raises nor loses a byte of it."""
    almost = st.text(alphabet='data: {}[]"\n\r:,', max_size=200).map(str.encode)
    body = data.draw(st.one_of(st.binary(max_size=300), almost))
    script = Reply(data.draw(chunkings(body)))
    met = meet(ask(kit, spin(), stream=True), [script])
    assert met.client.raised is None
    assert met.body == body
