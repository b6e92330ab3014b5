"""Law 1, transparent: where callfuse does not act, nobody can tell that it is there."""

import logging
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.support.asgi import Exchange
from tests.support.config import LADDERS, QUIET
from tests.support.kits import DialectKit
from tests.support.meeting import Meeting, ask, bare, every_dialect, meet, reply, streamed_and_whole
from tests.support.model import Answer
from tests.support.streams import KNOWN, answers, chunkings, fresh, healthy, looping, styles
from tests.support.wire import frames, quiet

UNSURE = (b"content-length", b"etag", b"digest", b"content-digest", b"repr-digest")
"""Headers that may leave the start of an answer while it is not known whether its bytes will change."""


def same(met: Meeting, plain: Meeting) -> None:
    """Both sides cannot tell the difference."""
    assert met.client.raised is None
    assert met.client.start == plain.client.start
    assert met.client.body == plain.client.body
    assert met.client.complete
    assert met.app.heard == plain.app.heard


def settled(body: bytes, answer: Answer) -> object:
    """A body with that left open which a hold may move: keep-alives, and frames of another choice."""
    woven = (answer.quirks.interleave or answer.quirks.no_finish) and len(answer.choices) > 1
    return sorted(frames(body)), None if woven else quiet(body)


def steady(exchange: Exchange) -> list[tuple[bytes, bytes]]:
    """The headers but those that may go under suspicion."""
    return [(name, value) for name, value in exchange.headers if name.lower() not in UNSURE]


@every_dialect
@streamed_and_whole
@given(data=st.data())
def test_a_healthy_conversation_keeps_every_byte(kit: DialectKit, stream: bool, data: st.DataObject) -> None:
    """Whatever is answered, in whatever chunks, under any ladder: same start, same bytes, same request, no log.

    A call that comes for the second time is no loop yet.
    """
    history = data.draw(st.one_of(healthy(), looping(before=1)))
    which = data.draw(
        st.sampled_from([[], [fresh(0)], [fresh(0), fresh(1)], [KNOWN[0]], [KNOWN[0], KNOWN[0]], [KNOWN[3]]])
    )
    answer = data.draw(answers(kit, which))
    script = reply(kit, answer, stream=stream)
    script = script.cut(data.draw(chunkings(script.body)))
    request = ask(kit, history, stream=stream, n=len(answer.choices), style=data.draw(styles()))
    request = replace(request, chunks=data.draw(chunkings(request.body)))
    met = meet(request, [script], data.draw(st.sampled_from(list(LADDERS))))
    same(met, bare(request, [script]))
    assert met.log_at(logging.WARNING) == []


@every_dialect
@streamed_and_whole
@given(data=st.data())
def test_rungs_that_leave_the_response_alone_leave_it_alone(kit: DialectKit, stream: bool, data: st.DataObject) -> None:
    """Observing and warning, the looping call itself goes through byte for byte, and the finding is logged."""
    answer = data.draw(answers(kit, [KNOWN[0]]))
    script = reply(kit, answer, stream=stream)
    script = script.cut(data.draw(chunkings(script.body)))
    request = ask(kit, data.draw(looping()), stream=stream, n=len(answer.choices))
    met, plain = meet(request, [script], data.draw(st.sampled_from(QUIET))), bare(request, [script])
    assert met.body == plain.body
    assert (met.client.status, steady(met.client)) == (plain.client.status, steady(plain.client))
    assert met.app.heard[0].body == plain.app.heard[0].body
    assert len(met.app.heard) == 1
    assert any("search" in text for text in met.log_at(logging.INFO))


@every_dialect
@streamed_and_whole
@given(data=st.data())
def test_suspicion_alone_changes_no_byte(kit: DialectKit, stream: bool, data: st.DataObject) -> None:
    """Under suspicion, an answer without the looping call still has all its bytes."""
    which = data.draw(st.sampled_from([[], [fresh(0)], [KNOWN[2]], [fresh(0), KNOWN[0]], [KNOWN[0], fresh(0)]]))
    answer = data.draw(answers(kit, which))
    script = reply(kit, answer, stream=stream)
    script = script.cut(data.draw(chunkings(script.body)))
    request = ask(kit, data.draw(looping()), stream=stream, n=len(answer.choices))
    met, plain = meet(request, [script], data.draw(st.sampled_from(list(LADDERS)))), bare(request, [script])
    assert settled(met.body, answer) == settled(plain.body, answer)
    assert kit.read(met.body, stream=stream) == kit.read(plain.body, stream=stream)
    assert (met.client.status, steady(met.client)) == (plain.client.status, steady(plain.client))
    assert met.client.complete
    assert met.log_at(logging.WARNING) == []
