"""Two callfuses in a row: the first guards, and marks what it sends on; the second only observes."""

from dataclasses import replace

import pytest

from callfuse import CallFuseMiddleware
from tests.support.asgi import drive
from tests.support.config import settings
from tests.support.kits import DialectKit
from tests.support.meeting import ask, every_dialect, given_log, reply, streamed_and_whole
from tests.support.model import History
from tests.support.plain import again, elsewhere, saying, spin
from tests.support.scripted import play

VIA = (b"x-callfuse-via", b"callfuse")
FIRST = b"call_first"


@every_dialect
@streamed_and_whole
@pytest.mark.parametrize("ladder", ["warn", "block", "chance_then_block"])
async def test_a_marked_request_is_only_observed(kit: DialectKit, stream: bool, ladder: str) -> None:
    """It reaches the app as it came, its answer passes, and what is found is logged."""
    request = ask(kit, spin(), stream=stream)
    request = replace(request, headers=(*request.headers, VIA))
    app = play(reply(kit, again(), stream=stream))
    asked: list[object] = []
    guarded = CallFuseMiddleware(app, settings(ladder), on_loop=asked.append)
    with given_log() as log:
        exchange = await drive(guarded, request)
    assert exchange.body == app.replies[0].body
    assert [heard.body for heard in app.heard] == [request.body]
    assert guarded.counts.of("findings") == guarded.counts.of("findings", "observe") == 1
    assert "action=observe" in log[-1][2]
    assert asked == []


@every_dialect
@pytest.mark.parametrize("history", [spin(1), spin()], ids=["healthy", "looping"])
async def test_a_guarded_request_is_marked(kit: DialectKit, history: History) -> None:
    """Each call of the app, where the host sends them on."""
    request = ask(kit, history, stream=True)
    for via in (True, False):
        app = play(reply(kit, again(), stream=True), reply(kit, elsewhere(), stream=True))
        with given_log():
            await drive(CallFuseMiddleware(app, settings("chance_then_block"), via=via), request)
        assert len(app.heard) == (1 if history == spin(1) else 2)
        assert [heard.header(VIA[0]) for heard in app.heard] == [b"callfuse" if via else None] * len(app.heard)


@every_dialect
async def test_what_is_not_guarded_is_not_marked(kit: DialectKit) -> None:
    """The next callfuse may guard it."""
    app = play(reply(kit, again(), stream=True))
    guarded = CallFuseMiddleware(app, settings("block", max_request_bytes=10), via=True)
    with given_log():
        await drive(guarded, ask(kit, spin(), stream=True))
    assert app.heard[0].header(VIA[0]) is None


@every_dialect
@streamed_and_whole
async def test_two_in_a_row_meet_a_loop_once(kit: DialectKit, stream: bool) -> None:
    """The model is asked again once, by the outer one."""
    app = play(*(reply(kit, one, stream=stream) for one in (again(), elsewhere(), saying("Well."))))
    inner = CallFuseMiddleware(app, settings("chance_then_block"), via=True)
    outer = CallFuseMiddleware(inner, settings("chance_then_block"), via=True)
    with given_log():
        exchange = await drive(outer, ask(kit, spin(), stream=stream))
    assert len(app.heard) == 2
    assert FIRST not in exchange.body
    assert outer.counts.of("findings", "steer") == inner.counts.of("findings", "observe") == 1
