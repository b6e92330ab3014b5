"""Sizes far beyond the usual: everything arrives, and the work grows with the bytes, not with their square."""

import json

import pytest

from tests.support.asgi import Request
from tests.support.kits import KITS, DialectKit, stream_of
from tests.support.longtext import text_of
from tests.support.meeting import MARK, ask, every_dialect, meet, reply
from tests.support.model import Answer, Call, History, Round, User
from tests.support.plain import again, new_call, saying, spin
from tests.support.scripted import Reply
from tests.support.wire import quiet

MEGABYTE = 1024 * 1024
LONG = json.dumps({"query": text_of(MEGABYTE)})
ROOM = 64 * MEGABYTE


def long_call(call_id: str) -> Call:
    """A call with 1 MB of arguments in ten thousand pieces."""
    return Call(call_id, "search", tuple(LONG[at : at + 100] for at in range(0, len(LONG), 100)))


def long_spin() -> History:
    """A conversation in which that call came twice."""
    rounds = [Round((Call(f"call_l{at}", "search", (LONG,)),), ("nothing",)) for at in range(2)]
    return History((User("Find it."), *rounds))


@every_dialect
@pytest.mark.parametrize(
    ("history", "room"), [(spin(1), ROOM), (spin(2), ROOM), (spin(2), 1000)], ids=["free", "held", "no room"]
)
def test_a_megabyte_of_arguments_arrives(kit: DialectKit, history: History, room: int) -> None:
    """Free, held to its end, or let go at the limit: a long innocent call arrives byte for byte."""
    answer = saying("Here.", long_call("call_long"))
    script = Reply(tuple(frame.raw for frame in kit.frames(answer)))
    met = meet(ask(kit, history, stream=True), [script], max_held_bytes=room)
    assert met.body == script.body
    assert met.client.complete


@every_dialect
def test_a_megabyte_of_arguments_can_be_a_loop(kit: DialectKit) -> None:
    """The long call is still the same call, and is withheld."""
    answer = saying("Here.", long_call("call_long"))
    script = Reply(tuple(frame.raw for frame in kit.frames(answer)))
    met = meet(ask(kit, long_spin(), stream=True), [script], max_held_bytes=ROOM)
    assert b"call_long" not in met.body
    assert len(met.body) < 20_000
    assert MARK.encode() in met.body


@pytest.mark.parametrize(
    ("kit", "megabytes"), [*((kit, 5) for kit in KITS), (KITS[0], 50)], ids=lambda value: getattr(value, "name", value)
)
def test_a_body_of_many_megabytes_passes(kit: DialectKit, megabytes: int) -> None:
    """A large request, up to near the limit, is read, judged and passed on as it came."""
    history = History((User("x" * megabytes * MEGABYTE), *spin().turns[1:]))
    request = ask(kit, history, stream=True)
    pieces = tuple(request.body[at : at + 65536] for at in range(0, len(request.body), 65536))
    met = meet(Request(request.path, request.body, chunks=pieces), [reply(kit, again(), stream=True)])
    assert met.app.heard[0].body == request.body
    assert b"call_first" not in met.body


@every_dialect
@pytest.mark.parametrize("loops", [False, True], ids=["healthy", "looping"])
def test_thousands_of_frames_in_one_chunk(kit: DialectKit, loops: bool) -> None:
    """A chunk with a whole long answer in it is split, judged and joined without loss."""
    said = saying(*(f"word {at} " for at in range(3_000)), again().calls()[0] if loops else new_call())
    answer = Answer((tuple(said.choices[0]),))
    met = meet(ask(kit, spin(), stream=True), [Reply((stream_of(kit, answer),))])
    if not loops:
        assert met.body == stream_of(kit, answer)
    else:
        (view,) = kit.read(met.body, stream=True)
        assert view.text.startswith(answer.text())
        assert view.calls == ()
    assert quiet(met.body)


ODD = {
    "deep": '{"a": ' + "[" * 2000 + "]" * 2000 + "}",
    "lone surrogate": '{"a": "\\ud800"}',
    "beyond all range": '{"a": 1e400}',
    "many digits": '{"a": ' + "9" * 400 + "}",
    "no JSON": "not json {",
    "half": '{"a"',
}


@every_dialect
@pytest.mark.parametrize("arguments", ODD.values(), ids=ODD)
def test_odd_arguments_are_arguments(kit: DialectKit, arguments: str) -> None:
    """Nesting that JSON readers refuse, lone surrogates and numbers beyond all range pass like any others."""
    if kit.name.startswith(("ollama", "gemini")):
        pytest.skip("arguments are values there, not text that could be anything")
    rounds = [Round((Call(f"call_d{at}", "search", ("{}",)),), ("nothing",)) for at in range(2)]
    body = stream_of(kit, saying("Here.", Call("call_odd", "search", (arguments,))))
    met = meet(ask(kit, History((User("Go."), *rounds)), stream=True), [Reply((body,))])
    assert met.body == body
    assert met.client.raised is None
