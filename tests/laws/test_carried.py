"""Bedrock's `/invoke-with-response-stream` carries Anthropic's events: what holds for these there holds here.

In: any conversation, answers, ladder and chunks. Out: both exchanges, one at each path with the same requests and the
same events. What the client has of the carried stream is, taken out, what it has of the other, byte for byte. So each
law that holds for Anthropic's streams holds for this one.
"""

import json
from base64 import b64decode, b64encode
from dataclasses import replace

import pytest
from botocore.eventstream import EventStreamBuffer  # type: ignore[import-untyped]  # it has no types
from hypothesis import given
from hypothesis import strategies as st

from tests.laws.test_split_blind import SHAPES
from tests.support.asgi import JSON_REQUEST, Request
from tests.support.config import LADDERS
from tests.support.kits.anthropic import AnthropicKit
from tests.support.kits.bedrock import ALIVE, EVENT_STREAM, event, message
from tests.support.meeting import MARK, Meeting, meet
from tests.support.model import Answer, History, Quirks, User
from tests.support.plain import again, elsewhere, new_call, same_call, saying, spin
from tests.support.scripted import Reply
from tests.support.streams import answers, chunkings, looping, tangled
from tests.support.wire import bytewise, events, frames

KIT = AnthropicKit()
PATH = "/model/eu.anthropic.claude-test/invoke-with-response-stream"
BINARY = ((b"content-type", EVENT_STREAM),)
CHUNK = {":event-type": "chunk", ":content-type": "application/json", ":message-type": "event"}
AWS = (*JSON_REQUEST[:2], (b"authorization", b"AWS4-HMAC-SHA256 Credential=AKID/x/aws4_request, Signature=ab"))


def carried(body: bytes) -> bytes:
    """Anthropic's events in the chunks of an event stream."""
    return b"".join(
        message(CHUNK, b'{"bytes":"%b","p":"abcd"}' % b64encode(one.data.encode()))
        for frame in frames(body)
        for one in events(frame)
    )


def taken_out(body: bytes) -> bytes:
    """The events in an event stream, as Anthropic would send them; botocore checks each message."""
    buffer = EventStreamBuffer()
    buffer.add_data(body)
    found = []
    for one in buffer:
        if one.headers[":event-type"] == ALIVE:
            continue
        assert one.headers[":event-type"] == "chunk"
        text = b64decode(json.loads(one.payload)["bytes"])
        found.append(b"event: %b\ndata: %b\n\n" % (json.loads(text)["type"].encode(), text))
    return b"".join(found)


def plainly(answer: Answer) -> bytes:
    """An answer's stream as Anthropic sends it; it may lack its stop reason, and have pings."""
    quirks = answer.quirks
    plain = Quirks(noise=quirks.noise, spaced=quirks.spaced, whole_calls=quirks.whole_calls, no_finish=quirks.no_finish)
    return b"".join(frame.raw for frame in KIT.frames(replace(answer, quirks=plain)))


def asked(history: History, path: str) -> Request:
    """A request; only the path tells the two apart."""
    return Request(path, KIT.request(history, stream=True))


def both(
    history: History, bodies: list[bytes], ladder: str, chunks: list[tuple[bytes, ...]]
) -> tuple[Meeting, Meeting]:
    """The exchange at Anthropic's own path, and at Bedrock's, there in these chunks."""
    plain = meet(asked(history, KIT.path), [Reply((body,)) for body in bodies], ladder)
    return plain, meet(asked(history, PATH), [Reply(one, headers=BINARY) for one in chunks], ladder)


@given(data=st.data())
def test_what_is_carried_is_guarded_as_what_comes_plain(data: st.DataObject) -> None:
    """Blocked, steered, thinned out, warned of or left alone: the same events, the same requests."""
    history = data.draw(looping(beside=True) | tangled())
    made = [data.draw(answers(KIT, data.draw(st.sampled_from(SHAPES)), tag=tag)) for tag in ("one", "two")]
    bodies = [plainly(answer) for answer in made]
    chunks = [data.draw(chunkings(carried(body))) for body in bodies]
    plain, met = both(history, bodies, data.draw(st.sampled_from(list(LADDERS))), chunks)
    assert taken_out(met.body) == plain.body
    assert met.client.complete
    assert [heard.body for heard in met.app.heard] == [heard.body for heard in plain.app.heard]
    assert [level for _, level, _ in met.log] == [level for _, level, _ in plain.log]
    untouched = plain.body == bodies[0]
    assert not untouched or met.body == carried(bodies[0]), "what is not changed keeps its bytes"


@pytest.mark.parametrize("step", [1, 50, 10_000])
def test_an_innocent_answer_keeps_every_byte(step: int) -> None:
    """Though its tool is suspected."""
    body = carried(plainly(elsewhere()))
    chunks = tuple(body[at : at + step] for at in range(0, len(body), step))
    assert meet(asked(spin(), PATH), [Reply(chunks, headers=BINARY)]).body == body


def test_text_is_not_delayed() -> None:
    """Each message leaves in the turn in which it came, guarded or watched."""
    sent = tuple(frames(carried(plainly(saying("Let me look.", new_call())))))
    for history in (spin(), History((User("Hello."),))):
        met = meet(asked(history, PATH), [Reply(sent, headers=BINARY)], "block")
        first = next(at for at, one in enumerate(sent) if b"content_block_stop" in taken_out(one))
        assert met.client.lengths(first) == [sum(map(len, sent[: at + 1])) for at in range(first)]


@pytest.mark.parametrize("ladder", ["block", "chance_then_block"])
def test_a_signed_request(ladder: str) -> None:
    """It is neither changed nor sent again; the loop is blocked."""
    request = replace(asked(spin(), PATH), headers=AWS)
    met = meet(request, [Reply((carried(plainly(again())),), headers=BINARY)], ladder)
    assert [heard.body for heard in met.app.heard] == [request.body]
    assert b"call_first" not in taken_out(met.body)
    assert MARK.encode() in taken_out(met.body)


def test_a_command_is_answered_in_the_form_of_the_stream() -> None:
    """Without the vendor."""
    met = meet(asked(History((User("!/status"),)), PATH), [])
    assert met.client.header(b"content-type") == EVENT_STREAM
    assert KIT.faults(taken_out(met.body)) == []


def test_a_model_of_another_format() -> None:
    """A body that is none of Anthropic's passes unread, and nothing is kept of it."""
    body = json.dumps({"messages": [{"role": "user", "content": [{"text": "Hi."}]}], "schemaVersion": "messages-v1"})
    reply = Reply((event({"chunk": {"bytes": "e30="}}),), headers=BINARY)
    met = meet(Request(PATH, body.encode()), [reply])
    assert met.body == reply.body


@pytest.mark.parametrize("at", range(6))
def test_an_exception_ends_the_guarding(at: int) -> None:
    """It passes where it stands, and what is held before it, as it came."""
    sent = frames(carried(plainly(saying(same_call("call_first")))))
    failed = message({":exception-type": "throttlingException", ":message-type": "exception"}, b'{"message":"slow"}')
    body = b"".join(sent[:at]) + failed
    for chunks in ((body,), bytewise(body)):
        met = meet(asked(spin(), PATH), [Reply(chunks, headers=BINARY)])
        assert met.body == body
