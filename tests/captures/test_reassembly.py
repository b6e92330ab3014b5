"""Calls put together from recorded bodies are those of an independent reading, however the bytes are cut."""

import json

from callfuse.dialects.base import Request
from tests.captures.recordings import Recording, some_recordings
from tests.dialects.reading import Told, calls_in, dialect_of, told, ways
from tests.support.model import canonical


def recorded(recording: Recording, *chunks: bytes) -> list[Told]:
    """The calls in chunks of the recording's form, as its dialect reads them."""
    return calls_in(dialect_of(recording.kit.name), recording.form, chunks)


def expected(recording: Recording) -> list[Told]:
    """The calls that the client is to execute, and that callfuse may hold."""
    calls = [call for call in recording.own_calls if call["kind"] != "function_call" or call["name"]]  # not Snowflake's
    return [(call["choice"] or 0, call["id"] or "", call["name"], call["arguments"]) for call in calls]


@some_recordings(lambda one: one.stream)
def test_streamed_calls(recording: Recording) -> None:
    """Ids, names and every character of the arguments; of calls that the vendor runs itself, none."""
    for chunks in ways(recording.body):
        assert recorded(recording, *chunks) == expected(recording)


@some_recordings(lambda one: one.form == "json")
def test_whole_calls(recording: Recording) -> None:
    """The same of whole answers, whose arguments may be objects."""
    wanted = [(choice, id_, name, canonical(arguments)) for choice, id_, name, arguments in expected(recording)]
    assert recorded(recording, recording.body) == wanted


@some_recordings(lambda one: one.form == "request.json")
def test_calls_of_a_history(recording: Recording) -> None:
    """Oldest first, those of the vendor left out; each has its own result."""
    rounds = [one for one in request_of(recording).rounds() if one is not None]
    calls = [call for one in reversed(rounds) for call in one.calls]
    wanted = [(id_, name, canonical(arguments)) for _, id_, name, arguments in expected(recording)]
    assert [told(call.call) for call in calls] == wanted
    others = {call["id"] for call in recording.other_calls}
    results = [result for result in recording.results if result["id"] is None or result["id"] not in others]
    for call, result in zip(calls, results, strict=True):
        assert call.id == (result["id"] or "")
        assert call.outcome is not None
        assert bare(call.outcome.text) in bare(result["content"])


def request_of(recording: Recording) -> Request:
    """The request as its dialect reads it."""
    body = recording.body
    request = dialect_of(recording.kit.name).read_request(body, json.loads(body), recording.kit.path)
    assert request is not None
    return request


def bare(text: str) -> str:
    """A text without the escapes of any JSON that it may stand in."""
    return text.replace("\\n", "\n").replace("\\", "")
