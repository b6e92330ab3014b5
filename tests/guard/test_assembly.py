"""The assembly of answers that pass: what it keeps, whatever it sees, and that it never stands in the way."""

import pytest

from callfuse.detect.siblings import Room
from callfuse.guard.assembly import Assembly
from callfuse.guard.record import ExchangeRecord
from callfuse.policy.settings import Rung
from callfuse.wire import WHOLE
from tests.guard.driving import each_kit, record_of, scene
from tests.guard.written import ANTHROPIC, DONE, OPENAI, body, chunk, message, part, text, tool_use
from tests.support.kits import DialectKit, stream_of
from tests.support.plain import again, elsewhere, known_call, same_call, saying, spin
from tests.support.wire import bytewise, frames


def tapped(kit: DialectKit, *chunks: bytes, ladder: str = "warn", request: bytes | None = None) -> ExchangeRecord:
    """What an assembly has found in a streamed answer."""
    made = scene(kit, request, ladder)
    assembly = Assembly(made.dialect, made.request.choices, made.judge.settings, made.judge)
    for one in chunks:
        assembly.feed(one)
    return record_of(assembly, made.request.choices)


@each_kit
def test_the_calls_of_a_stream_are_kept(kit: DialectKit) -> None:
    """However the answer is cut, with the verdict over them; none withholds."""
    whole = stream_of(kit, saying("Both.", same_call("call_a"), known_call("call_b")))
    request = kit.request(spin(beside=True), stream=True)
    for cutting in ([whole], frames(whole), list(bytewise(whole))):
        record = tapped(kit, *cutting, request=request)
        (kept,) = record.rounds
        assert [(call.id, call.withheld, call.step) for call in kept] == [("call_a", False, 1), ("call_b", False, 0)]
        assert [(verdict.call.id, verdict.rung) for verdict in record.verdicts] == [("call_a", Rung.WARN)]


@each_kit
def test_text_is_not_even_read(kit: DialectKit) -> None:
    """A whole frame without a call leaves the assembly idle; a frame cut in two does not, until it is complete."""
    made = scene(kit, ladder="warn")
    assembly = Assembly(made.dialect, made.request.choices, made.judge.settings, made.judge)
    chunks = frames(stream_of(kit, saying("Much", " text.")))
    for one in chunks:
        assembly.feed(one)
        assert assembly.idle
    assembly.feed(chunks[0][:10])
    assert not assembly.idle
    assembly.feed(chunks[0][10:])
    assert assembly.idle


@each_kit
def test_a_stream_that_broke_off_keeps_nothing(kit: DialectKit) -> None:
    """A call without the end of its answer is no evidence."""
    chunks = frames(stream_of(kit, again()))
    finish = max(at for at, one in enumerate(chunks) if kit.called.encode() in one)
    assert tapped(kit, *chunks[:finish]).rounds == []
    assert tapped(kit, *chunks[:finish], chunks[finish][:-1]).rounds != []


@each_kit
def test_malformed_frames_are_passed_over(kit: DialectKit) -> None:
    """What follows is still read."""
    chunks = frames(stream_of(kit, again()))
    for broken in (b"data: {\n\n", b"data: 1\n\n", b"data: []\n\n", b"\xff\n\n", b"event: x\n\n"):
        assert [len(kept) for kept in tapped(kit, chunks[0], broken, *chunks[1:]).rounds] == [1]


def test_several_choices_are_judged_and_not_kept() -> None:
    """Each is found by itself; nobody knows which one goes on."""
    loop = [chunk({"tool_calls": [part(f"call_{at}")]}, "tool_calls", choice=at) for at in (0, 1)]
    record = tapped(OPENAI, *loop, DONE, request=body(OPENAI, n=2))
    assert record.rounds == []
    assert [verdict.call.id for verdict in record.verdicts] == ["call_0", "call_1"]


def test_the_end_marker_stands_for_a_finish_reason() -> None:
    """Without any, `[DONE]` makes whole calls evidence: not half a call, not after an error, not the body's end."""
    whole, half = chunk({"tool_calls": [part()]}), chunk({"tool_calls": [part("call_half", '{"a":', index=1)]})
    empty = chunk({"tool_calls": [part(arguments="")]})
    error = b'data: {"error":{"message":"x"}}\n\n'
    for chunks, kept, found in (
        ([whole, DONE], 1, 1),
        ([whole, DONE[:-1]], 1, 1),
        (list(bytewise(whole + DONE)), 1, 1),
        ([empty, DONE], 1, 0),
        ([whole], 0, 0),
        ([whole, half, DONE], 0, 0),
        ([whole, error, DONE], 0, 0),
    ):
        record = tapped(OPENAI, *chunks)
        assert (len(record.rounds), len(record.verdicts)) == (kept, found)


def test_a_cut_call_is_no_evidence() -> None:
    """`length` ends the last call before its end; those before it are whole, and so is a last one with its end."""
    calls = [part("call_a", '{"a":1}'), part("call_b", '{"a":', index=1)]
    record = tapped(OPENAI, chunk({"tool_calls": calls}), chunk({}, "length"), DONE)
    assert [[call.id for call in kept] for kept in record.rounds] == [["call_a"]]
    for piece, kept_ids in (('{"a":', ["call_a"]), ("", ["call_a"]), ('{"a":1}', ["call_a", "call_b"])):
        answer = message(tool_use(0, "call_a"), tool_use(1, "call_b", piece=piece), stop="max_tokens")
        record = tapped(ANTHROPIC, *answer)
        assert [[call.id for call in kept] for kept in record.rounds] == [kept_ids]


def test_calls_without_a_name_are_no_evidence() -> None:
    """Nor is an answer with an error in it."""
    assert tapped(OPENAI, chunk({"tool_calls": [part(name="")]}), chunk({}, "tool_calls"), DONE).rounds == []
    error = b'event: error\ndata: {"type": "error", "error": {"type": "overloaded_error", "message": "x"}}\n\n'
    assert tapped(ANTHROPIC, *message(text(0, "a"), tool_use(1))[:-1], error).rounds == []


@each_kit
def test_text_before_a_call_takes_nothing_of_the_limit(kit: DialectKit) -> None:
    """Its chunks may pass unread: else they would decide whether the call is too far behind."""
    body = stream_of(kit, saying(*["x" * 500] * 6, same_call()))
    made = scene(kit, ladder="warn", stream=True, max_response_bytes=len(body) - 2500)
    for chunks in (frames(body), [body], list(bytewise(body))):
        assembly = Assembly(made.dialect, made.request.choices, made.judge.settings, made.judge)
        for one in chunks:
            assembly.feed(one)
        assert [len(kept) for kept in record_of(assembly).rounds] == [1]


@each_kit
def test_the_limit_decides_of_a_handover_whatever_the_chunks(kit: DialectKit) -> None:
    """A frame that goes beyond it hands nothing over, complete or in pieces."""
    body = stream_of(kit, saying("Both.", same_call("call_a"), same_call("call_b")))
    handed: list[bool] = []
    for limit in range(100, len(body), 60):
        made = scene(kit, ladder="warn", stream=True, max_response_bytes=limit)
        found = set()
        for chunks in ([body], frames(body), list(bytewise(body))):
            settings, room = made.judge.settings, Room(equal=1)
            assembly = Assembly(made.dialect, made.request.choices, settings, made.judge, room=room, may_hold=True)
            for one in chunks:
                if not assembly.is_suspect:
                    assembly.feed(one)
            found.add(assembly.is_suspect)
        assert len(found) == 1, limit
        handed += found
    assert handed == sorted(handed)
    assert set(handed) == {False, True}


@each_kit
def test_whole_answers(kit: DialectKit) -> None:
    """Kept from a body within the limit that is JSON; anything else is passed over."""
    good = kit.whole(again())
    made = scene(kit, ladder="warn", stream=False, max_response_bytes=len(good))
    for chunks, kept in (
        ([good], 1),
        (list(bytewise(good)), 1),
        ([good, b" "], 0),
        ([good[:-1]], 0),
        ([b""], 0),
        ([kit.whole(saying("Done."))], 0),
        ([kit.whole(elsewhere())], 1),
    ):
        assembly = Assembly(made.dialect, made.request.choices, made.judge.settings, made.judge, WHOLE)
        for one in chunks:
            assembly.feed(one)
        record = record_of(assembly)
        assert len(record.rounds) == kept


@each_kit
@pytest.mark.parametrize("ladder", ["observe", "warn"])
def test_rungs_that_let_go_are_told(kit: DialectKit, ladder: str) -> None:
    """The verdict of an answer that passed is on record."""
    (verdict,) = tapped(kit, *frames(stream_of(kit, again())), ladder=ladder).verdicts
    assert verdict.rung == ladder
    assert not verdict.withholds
