"""Recorded answers and requests through the guard: byte for byte where nothing loops, and gone where they do."""

import json
import random

from tests.captures.recordings import Recording, some_recordings
from tests.support.asgi import Request
from tests.support.config import LADDERS
from tests.support.meeting import MARK, Meeting, ask, bare, meet
from tests.support.model import Call, History, Round, User
from tests.support.plain import saying
from tests.support.scripted import Reply, whole
from tests.support.wire import bytewise, cut, quiet

FRESH = History((User("Hello."),))
SMALL = 20_000
"""Bodies up to this size are also sent byte by byte."""


def spinning(name: str, arguments: str) -> History:
    """A conversation in which this call came twice with one result."""
    rounds = [Round((Call(f"before_{at}", name, (arguments,)),), ("the same result",)) for at in range(2)]
    return History((User("Hello."), *rounds), tools=(name,))


def ways(recording: Recording) -> list[tuple[bytes, ...]]:
    """The body whole, at random cuts (the same in every run) and, where it is small, byte by byte."""
    body, dice = recording.body, random.Random(recording.name)
    random_cuts = [cut(body, (dice.randrange(len(body) + 1) for _ in range(count))) for count in (3, 40)]
    return [(body,), *random_cuts, *([bytewise(body)] if len(body) <= SMALL else [])]


def through(recording: Recording, history: History, chunks: tuple[bytes, ...], ladder: str = "block") -> Meeting:
    """The recording as the app's answer to a conversation."""
    script = Reply(chunks) if recording.stream else whole(recording.body).cut(chunks)
    return meet(ask(recording.kit, history, stream=recording.stream), [script], ladder)


@some_recordings(lambda one: one.form != "request.json")
def test_a_fresh_session_keeps_every_byte(recording: Recording) -> None:
    """However it is cut, a recorded answer in a new conversation reaches the client as it is."""
    for chunks in ways(recording):
        met = through(recording, FRESH, chunks, "chance_then_block")
        assert met.body == recording.body
        assert met.client.complete
        assert met.log == ()


@some_recordings(lambda one: bool(one.client_calls) and one.form != "request.json")
def test_a_suspected_but_innocent_answer_keeps_every_byte(recording: Recording) -> None:
    """Held because its tool has been spinning, and let go because its arguments are new: nothing is lost."""
    history = spinning(recording.client_calls[0]["name"], '{"never": "seen before"}')
    for chunks in ways(recording):
        met = through(recording, history, chunks)
        assert quiet(met.body) == quiet(recording.body)
        assert sorted(met.body) == sorted(recording.body)
        assert met.client.complete


def loops_alone(one: Recording) -> bool:
    """A recorded answer with one whole call that the client would run."""
    calls = one.client_calls
    return (
        one.form != "request.json"
        and len(one.calls) == len(calls) == 1
        and calls[0]["arguments_valid_json"]
        and len(calls[0]["id"] or "") > len("call_0")
        and (calls[0].get("caller") or {"type": "direct"})["type"] == "direct"
    )


@some_recordings(loops_alone)
def test_a_recorded_call_that_repeats_is_withheld(recording: Recording) -> None:
    """In every vendor's way of streaming a call: of the repeated one no id remains, and callfuse says why."""
    (call,) = recording.client_calls
    history = spinning(call["name"], call["arguments"] or "{}")
    bodies = set()
    for chunks in ways(recording):
        met = through(recording, history, chunks)
        assert call["id"].encode() not in met.body
        assert MARK.encode() in met.body
        assert met.client.complete
        bodies.add(met.body)
    assert len(bodies) == 1, "the cuts decide nothing"


@some_recordings(lambda one: one.form == "request.json")
def test_a_recorded_request_reaches_the_app_unchanged(recording: Recording) -> None:
    """Real histories are read without a finding, and not a byte of them changes under any ladder."""
    request = Request(recording.kit.path, recording.body)
    answer = whole(recording.kit.whole(saying("Ok.")))
    for ladder in LADDERS:
        met = meet(request, [answer], ladder)
        assert met.app.heard == bare(request, [answer]).app.heard
        assert met.body == answer.body
    assert json.loads(recording.body)[recording.kit.history_key]
