"""Recorded answers and requests through the guard: byte for byte where nothing loops, and gone where they do."""

import pytest

from tests.captures.recordings import Recording, made, some_recordings
from tests.dialects.reading import calls_in, dialect_of, spinning, ways
from tests.support.asgi import Request
from tests.support.config import LADDERS
from tests.support.meeting import MARK, Meeting, bare, meet
from tests.support.model import History, User
from tests.support.scripted import Reply, whole
from tests.support.wire import quiet

pytestmark = pytest.mark.slow

FRESH = History((User("Hello."),))
THREE_AT_ONCE = frozenset({"gemini/pydantic-ai__test_google_instructions_only_with_tool_calls-4.request.json"})
"""The recorded request with an answer of three equal calls."""
SILENT = [name for name, rungs in LADDERS.items() if "warn" not in rungs and name != "graduated"]
"""The ladders under which no call that was delivered is told of in later requests."""


def through(recording: Recording, history: History, chunks: tuple[bytes, ...], ladder: str = "block") -> Meeting:
    """The recording as the app's answer to a conversation."""
    script = Reply(chunks) if recording.stream else whole(recording.body).cut(chunks)
    return meet(recording.ask(history), [script], ladder)


@some_recordings(lambda one: one.form != "request.json")
def test_a_fresh_session_keeps_every_byte(recording: Recording) -> None:
    """However it is cut, a recorded answer in a new conversation reaches the client as it is."""
    for chunks in ways(recording.body):
        met = through(recording, FRESH, chunks, "chance_then_block")
        assert met.body == recording.body
        assert met.client.complete
        assert met.log == ()


@some_recordings(lambda one: bool(one.own_calls) and one.form != "request.json")
def test_a_suspected_but_innocent_answer_keeps_every_byte(recording: Recording) -> None:
    """Held because its tool has been spinning, and let go because its arguments are new: nothing is lost."""
    history = spinning((recording.own_calls[0]["name"], '{"never": "seen before"}'))
    for chunks in ways(recording.body):
        met = through(recording, history, chunks)
        assert quiet(met.body) == quiet(recording.body)
        assert sorted(met.body) == sorted(recording.body)
        assert met.client.complete


def may_loop(one: Recording) -> bool:
    """A recorded answer of which a repetition is a finding: whole calls of the client's, no other tool that waits."""
    return (
        one.form != "request.json"
        and bool(one.own_calls)
        and not one.other_calls
        and all(call["arguments_valid_json"] for call in one.own_calls)
    )


@some_recordings(may_loop)
def test_recorded_calls_that_repeat_are_withheld(recording: Recording) -> None:
    """In every vendor's way of streaming calls: of the repeated ones nothing remains, and callfuse says why."""
    history = spinning(*map(made, recording.own_calls))
    ids = [call["id"].encode() for call in recording.own_calls if len(call["id"] or "") > len("call_0")]
    bodies = set()
    for chunks in ways(recording.body):
        met = through(recording, history, chunks)
        assert not any(id_ in met.body for id_ in ids)
        assert MARK.encode() in met.body
        assert met.client.complete
        bodies.add(met.body)
    (body,) = bodies
    assert calls_in(dialect_of(recording.kit.name), recording.form, [body]) == []


@some_recordings(lambda one: bool(one.other_calls) and one.form != "request.json")
def test_what_the_client_does_not_execute_passes(recording: Recording) -> None:
    """However often a tool of the client's was called like this: the vendor's own calls are told apart by more than
    their names."""
    for call in recording.other_calls:
        history = spinning(made(call))
        for chunks in ways(recording.body):
            met = through(recording, history, chunks)
            assert quiet(met.body) == quiet(recording.body)
            assert met.client.complete
            assert met.log == ()


@some_recordings(lambda one: one.form == "request.json")
def test_a_recorded_request_reaches_the_app_unchanged(recording: Recording) -> None:
    """Real histories are read without a finding; not a byte of them changes under any ladder. Of three equal calls of
    one answer a ladder that warns tells."""
    answer = whole(b"{}")
    for chunks in ways(recording.body):
        request = Request(recording.kit.path, recording.body, chunks=chunks)
        heard = bare(request, [answer]).app.heard
        for ladder in SILENT if recording.key in THREE_AT_ONCE else LADDERS:
            met = meet(request, [answer], ladder)
            assert met.app.heard == heard
            assert met.body == answer.body
            assert met.log == ()
