"""Frames with a wrong value anywhere: the guard raises at none, and with `fail_closed` no call that was held leaves.

In: an answer with a held call in which one frame has, at one place of its JSON, a value of another type; in the frame's
own place, or once more behind it. Out: bytes, and no exception.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from callfuse.wire import EVENTS, WHOLE, Format
from tests.guard.driving import Scene, play, scene
from tests.support.examples import THOROUGH
from tests.support.kits import KITS, DialectKit, stream_of
from tests.support.meeting import MARK, ask, every_dialect, meet, reply, streamed_and_whole
from tests.support.model import History, Round, User
from tests.support.plain import (
    OTHER_RESULT,
    RESULT,
    again,
    elsewhere,
    known_call,
    new_call,
    same_call,
    saying,
    spin,
    thinking,
)
from tests.support.scripted import Reply
from tests.support.wire import frames

WRONG: tuple[Any, ...] = (-1, None, [-1], {}, "x")
MEDIA_TYPES = (b"text/event-stream", b"application/x-ndjson", b"application/json")


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths to every value in a JSON value."""
    yield at
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield from places(child, (*at, key))


def with_value(text: bytes, at: tuple[Any, ...], new: Any) -> bytes:
    """A JSON text with another value at a place."""
    root = [json.loads(text)]
    owner: Any = root
    for key in (0, *at)[:-1]:
        owner = owner[key]
    owner[(0, *at)[-1]] = new
    return json.dumps(root[0]).encode()


def wrong_frames(frame: bytes) -> Iterator[bytes]:
    """A frame with one wrong value, for every place and every kind of wrong value."""
    start, end = frame.find(b"{"), frame.rfind(b"}") + 1
    if start < 0:
        return
    text = frame[start:end]
    for number, at in enumerate(places(json.loads(text))):
        for turn in (0, 1):  # two of the wrong values for each place, all of them over neighbouring places
            wrong = WRONG[(number + turn * 2) % len(WRONG)]
            yield frame[:start] + with_value(text, at, wrong) + frame[end:]


def form_of(whole: Scene, *, stream: bool) -> Format:
    """How the scene's answer comes."""
    found = [whole.dialect.stream_format(kind, asked=stream) for kind in MEDIA_TYPES] if stream else [WHOLE]
    return next(filter(None, found), EVENTS)


@every_dialect
@streamed_and_whole
@pytest.mark.search
@pytest.mark.slow
@pytest.mark.parametrize("closed", [True, False], ids=["closed", "open"])
def test_no_wrong_value_raises(kit: DialectKit, stream: bool, closed: bool) -> None:
    """In the first answer, and in the one that the model is asked for again."""
    made = scene(kit, ladder="chance_then_block", stream=stream, fail_closed=closed)
    form = form_of(made, stream=stream)

    def pieces(answer: Any) -> list[bytes]:
        return frames(stream_of(kit, answer)) if stream else [kit.whole(answer)]

    first = pieces(saying(thinking(), "Let me look.", same_call("call_first")))
    other = pieces(elsewhere())
    for base, later in ((first, False), (other, True)):
        for at, frame in enumerate(base):
            for number, wrong in enumerate(wrong_frames(frame)):
                instead, behind = [*base[:at], wrong, *base[at + 1 :]], [*base[: at + 1], wrong, *base[at + 1 :]]
                for broken in (instead, behind) if THOROUGH else ((instead, behind)[number // 2 % 2],):
                    guard = made.guard(form)
                    play(guard, *([first, broken] if later else [broken, other]))


ATTACKS = {
    "anthropic": b'event: content_block_start\ndata: {"type":"content_block_start","index":1,"content_block":-1}\n\n',
    "gemini": b'data: {"candidates":[{"index":0,"content":{"role":"model","parts":[-1]}}]}\n\n',
    "openai-chat": b'data: {"choices":[{"index":0,"delta":{"tool_calls":[-1]}}]}\n\n',
}


@pytest.mark.parametrize("name", ATTACKS)
def test_a_malformed_frame_behind_a_held_call_under_fail_closed(name: str) -> None:
    """The client's answer ends in a block, and nothing is raised."""
    kit = next(kit for kit in KITS if kit.name == name)
    made = scene(kit, fail_closed=True)
    held = frames(stream_of(kit, saying("Let me look.", same_call("call_first"))))
    place = next(at for at, frame in enumerate(held) if b"call_first" in frame or b"functionCall" in frame)
    guard = made.guard(EVENTS)
    outcome = play(guard, [*held[: place + 1], ATTACKS[name], *held[place + 1 :]])
    assert b"call_first" not in outcome.out


@pytest.mark.parametrize("index", ["", '"index":null,', '"index":true,', '"index":1.5,'])
def test_a_piece_without_a_readable_index_is_renumbered_as_its_call(index: str) -> None:
    """Chat completions: the call before it is withheld, and callfuse does not fail."""
    kit = next(kit for kit in KITS if kit.name == "openai-chat")
    body = reply(kit, saying(same_call("call_first"), known_call("call_other")), stream=True).body
    begun = body.index(b"call_other")
    rest, pieces = re.subn(rb'"index": ?1, ?(?="function": ?\{"arguments")', index.encode(), body[begun:])
    assert pieces
    met = meet(ask(kit, spin(beside=True), stream=True), [Reply((body[:begun] + rest,))], "block")
    assert not any("failed open" in message for _, _, message in met.log), met.log
    assert b"call_first" not in met.body
    assert b"call_other" in met.body


def test_a_callback_cannot_withhold_a_call_that_has_left() -> None:
    """Responses: pieces that differ from the loop let the call go, and the event that ends it has the loop's text."""
    kit = next(kit for kit in KITS if kit.name == "openai-responses")
    rounds = [Round((same_call(f"call_s{at}"), known_call(f"call_k{at}")), (RESULT, OTHER_RESULT)) for at in (1, 2)]
    history = History((User("Find the zebra crossing."), *rounds))
    body = reply(kit, saying(same_call("call_first"), known_call("call_second")), stream=True).body
    body, gone = re.subn(rb"event: response\.function_call_arguments\.delta\n[^\n]*\n\n", b"", body, count=1)
    assert gone == 1
    met = meet(ask(kit, history, stream=True), [Reply((body,))], "observe", on_loop=lambda _: "block")
    assert b"call_second" not in met.body
    calls = [call.id for call in kit.read(met.body, stream=True)[0].calls]
    assert calls == ["call_first"]
    assert (
        met.body.count(b'"call_first"') == body.count(b'"call_first"') == 3
    )  # begun, ended, and in the list at the end


UNREADABLE = ("null", "true", "false", '"1"', "1.5", "-1")
"""Output indexes that are none. In Python, `true` is equal to 1 and `false` to 0."""
unreadable = pytest.mark.parametrize("index", UNREADABLE)


def without_index(body: bytes, index: str) -> bytes:
    """A stream of Responses whose first call begins with such an output index."""
    begun = rb'(output_item\.added"[^\n]*?"output_index": ?)\d+(, ?"item": ?\{"id": ?"fc_)'
    body, added = re.subn(begun, rb"\g<1>" + index.encode() + rb"\2", body, count=1)
    assert added == 1
    return body


@unreadable
def test_a_withheld_item_without_a_readable_index_is_gone(index: str) -> None:
    """Responses: only the item's id says which events are about it."""
    kit = next(kit for kit in KITS if kit.name == "openai-responses")
    body = without_index(reply(kit, again(), stream=True).body, index)
    body, done = re.subn(rb'(output_item\.done"[^\n]*?"output_index": ?\d+), ?"item": ?\{"id": ?"fc_.*', rb"\1}", body)
    assert done == 1
    met = meet(ask(kit, spin(), stream=True), [Reply((body,))], "block", max_calls=1)
    assert b"call_first" not in met.body
    assert MARK.encode() in met.body


@unreadable
def test_a_withheld_item_without_a_readable_index_is_gone_from_a_spliced_answer(index: str) -> None:
    """Responses: a call that begins without an index does not share the index of the call behind it."""
    kit = next(kit for kit in KITS if kit.name == "openai-responses")
    other = saying(same_call("call_second"), new_call("call_new"))
    body = without_index(reply(kit, other, stream=True).body, index)
    met = meet(ask(kit, spin(), stream=True), [reply(kit, again(), stream=True), Reply((body,))], "chance_then_block")
    assert b"call_second" not in met.body
    assert b"call_new" in met.body
