"""Calls put together from recorded answers are those of an independent reading, however the bytes are cut."""

import json
from typing import Any

from callfuse.dialects import DIALECTS, Dialect
from callfuse.framing import EVENTS, JSON_ARRAY, Format
from callfuse.framing.ndjson import NDJSON
from callfuse.jsontext import NotJSON
from tests.captures.recordings import Recording, some_recordings
from tests.captures.test_through_the_middleware import ways
from tests.support.model import canonical

Told = tuple[int, str, str, str]
"""(choice, id, name, arguments)."""


def expected(recording: Recording) -> list[Told]:
    """The calls that the client is to execute, and that callfuse may hold."""
    return [
        (call["choice"] or 0, call["id"] or "", call["name"], call["arguments"])
        for call in recording.client_calls
        if (call.get("caller") or {"type": "direct"})["type"] == "direct"
    ]


def dialect_of(recording: Recording) -> Dialect:
    """The dialect under its name."""
    return next(dialect for dialect in DIALECTS if dialect.name == recording.kit.name)


FORMATS: dict[str, Format] = {"sse": EVENTS, "ndjson": NDJSON, "array": JSON_ARRAY}


def assembled(dialect: Dialect, form: Format, chunks: tuple[bytes, ...]) -> list[Told]:
    """The calls that the dialect's reader puts together."""
    framer, reader = form.framer(), dialect.reader()
    frames = [frame for chunk in chunks for frame in framer.feed(chunk)]
    for frame in (*frames, framer.rest()):
        payload = payload_of(form, frame)
        if payload is not None:
            reader.read(payload)
    return [(call.choice, call.id, call.name, call.arguments) for call in reader.calls]


def payload_of(form: Format, frame: bytes) -> dict[str, Any] | None:
    """The frame's object; a frame that is broken has none."""
    try:
        return form.payload(frame)
    except NotJSON:
        return None


@some_recordings(lambda one: one.form in FORMATS)
def test_streamed_calls(recording: Recording) -> None:
    """Ids, names and every character of the arguments."""
    for chunks in ways(recording):
        assert assembled(dialect_of(recording), FORMATS[recording.form], chunks) == expected(recording)


@some_recordings(lambda one: one.form == "json")
def test_whole_calls(recording: Recording) -> None:
    """The same of whole answers, whose arguments may be objects."""
    choices = dialect_of(recording).read_whole(json.loads(recording.body))
    read = [(choice.index, call.id, call.name, text(call.arguments)) for choice in choices for call in choice.calls]
    assert read == [(choice, id_, name, canonical(arguments)) for choice, id_, name, arguments in expected(recording)]


def text(arguments: Any) -> str:
    """Arguments of either kind, to be compared."""
    return canonical(arguments if isinstance(arguments, str) else json.dumps(arguments))
