"""The guard of a stream, driven by hand: what waits, limits, what is let go, and what is asked."""

import pytest

from callfuse.policy.settings import Rung
from callfuse.wire.jsontext import dumps
from tests.guard.driving import EVENT_KITS, each_kit, play, scene
from tests.support.kits import KITS, DialectKit, stream_of
from tests.support.kits.openai_chat import payloads
from tests.support.meeting import MARK
from tests.support.model import Answer, Quirks
from tests.support.plain import ARGUMENTS, again, elsewhere, new_call, same_call, saying
from tests.support.wire import bytewise, frames

FIRST = b"call_first"
DONE = b"data: [DONE]\n\n"


def cut(answer: Answer, kit: DialectKit) -> list[bytes]:
    """An answer, one frame a chunk."""
    return frames(stream_of(kit, answer))


@each_kit
def test_a_hold_begins_and_ends(kit: DialectKit) -> None:
    """Nothing waits before the suspect opens; from then on all does; at the end a verdict is due."""
    guard = scene(kit).guard()
    chunks = cut(again(), kit)
    opens = next(at for at, one in enumerate(chunks) if FIRST in one)
    for at, one in enumerate(chunks):
        out = guard.feed(one)
        assert out == (one if at < opens else b"")
        assert guard.state.holding is (at >= opens)
    assert guard.state.held_bytes == len(b"".join(chunks[opens:]))
    assert guard.needs_verdict
    assert guard.complete
    guard.apply(guard.verdicts())
    assert not guard.state.holding
    assert guard.state.held_bytes == 0


@each_kit
@pytest.mark.parametrize("ladder", ["block", "chance_then_block"])
def test_a_keep_alive_behind_the_end_waits_for_the_verdict(kit: DialectKit, ladder: str) -> None:
    """It may come in the chunk that ends the answer: it leaves where it would have in a chunk of its own."""
    whole, second = stream_of(kit, again()), cut(elsewhere(), kit)
    alone, together = [
        play(scene(kit, ladder=ladder).guard(), cutting, second).out
        for cutting in ([whole, b": keep-alive\n\n"], [whole + b": keep-alive\n\n"])
    ]
    assert alone == together


@each_kit
@pytest.mark.parametrize("limit", [1, 100, 200])
def test_the_limit_of_held_bytes(kit: DialectKit, limit: int) -> None:
    """Beyond it everything leaves, in order, and passes from then on; noted once, and however the answer is cut."""
    chunks = cut(again(), kit)
    for cutting in ([b"".join(chunks)], chunks, list(bytewise(b"".join(chunks)))):
        guard = scene(kit, max_held_bytes=limit).guard()
        assert play(guard, cutting).out == b"".join(chunks)
        assert guard.record.fail_open == ["max_held_bytes"]
        assert guard.state.held_bytes == 0


def with_image(kit: DialectKit, answer: Answer, size: int) -> list[bytes]:
    """An answer whose second frame is an event of this size that no call is in."""
    chunks = cut(answer, kit)
    frame = kit.frames(saying("x" * size))
    (image,) = [one.raw for one in frame if len(one.raw) > size]
    return [chunks[0], image, *chunks[1:]]


@each_kit
def test_a_long_event_before_any_call_is_not_held(kit: DialectKit) -> None:
    """An image is longer than what may be held: the call behind it is caught, however the answer is cut."""
    chunks = with_image(kit, again(), 9000)
    whole = b"".join(chunks)
    for cutting in ([whole], chunks, list(bytewise(whole))):
        guard = scene(kit, max_held_bytes=4000).guard()
        outcome = play(guard, cutting)
        assert guard.record.fail_open == []
        assert MARK.encode() in outcome.out
        assert FIRST not in outcome.out


@each_kit
def test_a_part_of_an_event_is_held_only_behind_others(kit: DialectKit) -> None:
    """The time of a hold begins with its first frame, not with a part of text that came before."""
    chunks = cut(again(text="Let me look."), kit)
    opens = next(at for at, one in enumerate(chunks) if FIRST in one)
    guard = scene(kit).guard()
    for one in chunks[:opens]:
        guard.feed(one[:-3])
        assert guard.state.held_bytes == 0
        guard.feed(one[-3:])
    guard.feed(chunks[opens][:-3])
    assert guard.state.held_bytes == 0
    guard.feed(chunks[opens][-3:] + b"x")
    assert guard.state.held_bytes == len(chunks[opens]) + 1


def test_a_call_in_one_event_over_the_limit() -> None:
    """It leaves with the frame that is too long, whether or not the answer's end is in the same chunk."""
    kit = EVENT_KITS[0]
    function = {"name": "search", "arguments": ARGUMENTS + " " * 2000}
    call = {"index": 0, "id": "call_first", "type": "function", "function": function}
    deltas: list[dict[str, object]] = [
        {"delta": {"role": "assistant", "tool_calls": [call]}},
        {"delta": {}, "finish_reason": "tool_calls"},
    ]
    chunks = [b"data: %s\n\n" % dumps({"choices": [{"index": 0, **delta}]}) for delta in deltas] + [DONE]
    assert MARK.encode() in play(scene(kit).guard(), chunks).out
    outs = []
    for cutting in ([b"".join(chunks)], chunks, list(bytewise(b"".join(chunks)))):
        guard = scene(kit, max_held_bytes=500).guard()
        outs.append((play(guard, cutting).out, guard.record.fail_open))
    assert outs == [(b"".join(chunks), ["max_held_bytes"])] * 3


@each_kit
def test_the_limit_under_fail_closed(kit: DialectKit) -> None:
    """The call is replaced by a block message, and what still comes is dropped."""
    guard = scene(kit, max_held_bytes=100, fail_closed=True).guard()
    outcome = play(guard, cut(again(), kit))
    assert guard.record.fail_open == ["max_held_bytes"]
    assert FIRST not in outcome.out
    assert MARK.encode() in outcome.out
    assert kit.faults(outcome.out) == []
    (view,) = kit.sdk(outcome.out, stream=True)
    assert view.calls == ()


@each_kit
@pytest.mark.parametrize("ladder", ["block", "chance_then_block"])
def test_an_answer_over_the_limit_passes(kit: DialectKit, ladder: str) -> None:
    """Beyond `max_response_bytes` it could neither be sent back nor be gone on with; it leaves, however it is cut."""
    chunks = cut(again(text="Let me look. " * 50), kit)
    for cutting in ([b"".join(chunks)], chunks, list(bytewise(b"".join(chunks)))):
        guard = scene(kit, ladder=ladder, max_response_bytes=300).guard()
        outcome = play(guard, cutting, cut(elsewhere(), kit))
        assert outcome.out == b"".join(chunks)
        assert guard.record.fail_open == ["max_response_bytes"]


@each_kit
@pytest.mark.parametrize(
    ("ladder", "asked", "rungs"),
    [
        (["steer"], 1, "steer steer"),
        (["steer", "block"], 1, "steer block"),
        (["steer", "steer", "block"], 2, "steer steer block"),
        (["steer", "warn"], 1, "steer block"),
        (["steer", "observe", "block"], 1, "steer block"),
        (["steer", "warn", "steer"], 2, "steer steer block"),
    ],
)
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_a_request_that_fails_takes_the_next_rung(
    kit: DialectKit, ladder: list[str], asked: int, rungs: str, stream: bool
) -> None:
    """Until there is only the block, whatever the ladder has; the client gets its text."""
    guard = scene(kit, ladder=ladder, stream=stream).guard(stream=stream)
    first = cut(again(), kit) if stream else [kit.whole(again())]
    outcome = play(guard, first, *[None] * 5)
    assert len(outcome.asked) == asked
    assert len(set(outcome.asked)) == 1
    (view,) = kit.sdk(outcome.out, stream=stream)
    assert MARK in view.text
    assert view.calls == ()
    found = [str(verdict.rung) for verdict in guard.record.verdicts]
    assert found[: len(rungs.split()) - 1] == rungs.split()[:-1]
    assert guard.record.verdicts[-1].withholds
    assert len(guard.record.rounds) == 1
    assert guard.record.rounds[0][0].withheld


@each_kit
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_each_answer_of_an_exchange_is_a_round(kit: DialectKit, stream: bool) -> None:
    """The withheld call and the delivered one, each marked with what became of it."""
    guard = scene(kit, ladder="chance_then_block", stream=stream).guard(stream=stream)
    answers = [cut(one, kit) if stream else [kit.whole(one)] for one in (again(), elsewhere())]
    outcome = play(guard, *answers)
    assert outcome.complete
    first, second = guard.record.rounds
    assert [(call.id, call.withheld, call.blocked, call.step) for call in first] == [("call_first", True, False, 1)]
    assert [(call.id, call.withheld, call.step) for call in second] == [("call_second", False, 0)]


@each_kit
def test_both_answers_loop(kit: DialectKit) -> None:
    """The second time it is blocked; a new call beside it is delivered and the looping one is not."""
    guard = scene(kit, ladder="chance_then_block").guard()
    second = saying("Both.", same_call("call_loop"), new_call("call_new"), tag="second")
    outcome = play(guard, cut(again(), kit), cut(second, kit))
    (view,) = kit.sdk(outcome.out, stream=True)
    assert [call.id for call in view.calls] == ["call_new"]
    assert [verdict.rung for verdict in guard.record.verdicts] == [Rung.STEER, Rung.BLOCK]
    (note,) = guard.record.notes
    assert note[0].id == "call_new"
    assert note[1].startswith(MARK)


@each_kit
def test_a_cut_answer_leaves_as_it_came(kit: DialectKit) -> None:
    """At any byte; it is no evidence, and no verdict is due."""
    whole = b"".join(cut(again(), kit))
    end = whole.rindex(kit.called.encode())
    for at in range(0, end, 7):
        guard = scene(kit).guard()
        assert guard.feed(whole[:at]) + guard.cut() == whole[:at]
        guard.settle()
        assert not guard.needs_verdict
        assert guard.record.rounds == []


@each_kit
def test_a_continuation_that_breaks_before_it_spoke(kit: DialectKit) -> None:
    """Nothing of it has gone out, so what was held of it is dropped and the next rung taken."""
    guard = scene(kit, ladder="chance_then_block").guard()
    out = b"".join(guard.feed(one) for one in cut(again(text=""), kit))
    step = guard.apply(guard.verdicts())
    assert step.ask is not None
    guard.begin_next_answer()
    second = cut(again(text="", tag="second"), kit)
    finish = max(at for at, one in enumerate(second) if kit.called.encode() in one)
    out += step.out + b"".join(guard.feed(one) for one in second[:finish]) + guard.cut()
    assert guard.pending
    step = guard.escalate()
    assert step.ask is None
    out += step.out
    assert b"call_second" not in out
    assert MARK.encode() in out
    assert kit.faults(out) == []


@each_kit
@pytest.mark.parametrize("begins", [b"", b": ready\n\n"], ids=["at once", "with a comment"])
def test_the_byte_order_mark_of_a_second_answer(kit: DialectKit, begins: bytes) -> None:
    """A mark may stand at the front of a stream only: in the middle of one, clients would not know the line behind."""
    first, second = cut(again(text=""), kit), cut(elsewhere(), kit)
    plain = play(scene(kit, ladder="chance_then_block").guard(), first, [begins, *second])
    marked = play(scene(kit, ladder="chance_then_block").guard(), first, [b"\xef\xbb\xbf" + begins, *second])
    assert marked.out == plain.out


@each_kit
@pytest.mark.parametrize("ladder", ["block", "chance_then_block"])
def test_the_transcript_of_a_hold(kit: DialectKit, ladder: str) -> None:
    """A line for each transition, of the hold and of the guard, with the bytes that wait; it changes nothing."""
    made, lines = scene(kit, ladder=ladder), list[str]()
    chunks = cut(again(), kit)
    traced = made.guard(trace=lines.append)
    assert play(traced, chunks).out == play(scene(kit, ladder=ladder).guard(), chunks).out
    held = [line.rpartition(", ")[2] for line in lines]
    assert [line.rpartition(", ")[0] for line in lines] == [
        "choice 0: PASSING SUSPECT -> HOLDING, -",
        "choice 0: HOLDING LOOPING -> CONDEMNED, -",
        "choice 0: CONDEMNED END -> ENDED, judge",
        f"answer: FOLLOWING -> {'CLOSED' if ladder == 'block' else 'SILENT'}",
    ]
    assert held[0] == "0 bytes waiting"
    assert 0 < int(held[1].split()[0]) < int(held[2].split()[0])


@each_kit
def test_the_transcript_of_a_limit(kit: DialectKit) -> None:
    """The line says what was waiting before it left."""
    made, lines = scene(kit, max_held_bytes=100), list[str]()
    guard = made.guard(trace=lines.append)
    play(guard, cut(again(), kit))
    assert any(line.startswith("choice 0: HOLDING LIMIT -> OPEN, release, ") for line in lines)


@each_kit
@pytest.mark.parametrize("ladder", ["block", "chance_then_block"])
def test_a_malformed_frame_behind_the_end(kit: DialectKit, ladder: str) -> None:
    """It does not undo the verdict that is due, whichever chunk it comes in."""
    whole, broken = stream_of(kit, again()), b"data: {broken\n\n"
    answers = [play(scene(kit, ladder=ladder).guard(), one, cut(elsewhere(), kit)).out
               for one in ([whole + broken], [whole, broken])]  # fmt: skip
    assert answers[0] == answers[1]
    assert FIRST not in answers[0]


@each_kit
def test_text_over_the_limit_under_fail_closed(kit: DialectKit) -> None:
    """The block ends the stream: the text that went over the limit does not stand behind its end."""
    guard = scene(kit, max_response_bytes=2000, fail_closed=True).guard()
    out = play(guard, cut(saying(*["Let me look. "] * 50), kit)).out
    assert guard.record.fail_open == ["max_response_bytes"]
    assert kit.faults(out) == []
    assert MARK.encode() in out


@each_kit
@pytest.mark.parametrize("later", [False, True], ids=["with it", "in a chunk of its own"])
def test_what_stands_behind_a_blocked_answer(kit: DialectKit, later: bool) -> None:
    """It leaves as it came, in whatever chunk it comes: it is no part of the answer that was acted on."""
    body = stream_of(kit, again())
    opening = cut(again(), kit)[0]
    guard = scene(kit).guard()
    out = guard.feed(body if later else body + opening)
    out += guard.apply(guard.verdicts()).out
    out += guard.feed(opening) if later else b""
    out += guard.finish()
    assert out.endswith(opening)
    assert guard.record.fail_open == []


ENDING_KITS = [kit for kit in KITS if kit.name in ("openai-chat", "openai-responses", "anthropic", "cohere-v2")]
"""Those whose streams say where they end."""


@pytest.mark.parametrize("kit", ENDING_KITS, ids=lambda kit: kit.name)
@pytest.mark.parametrize("ladder", ["block", "chance_then_block"])
def test_a_withheld_call_is_not_told_behind_the_end(kit: DialectKit, ladder: str) -> None:
    """Neither with it, nor in chunks of its own, nor cut off: of the first answer and of the one asked for."""
    body = stream_of(kit, again())
    half = body[: body.rindex(b"crossing")]
    outs = {play(scene(kit, ladder=ladder).guard(), *[chunks] * 2).out
            for chunks in ([body + body + half], [body, body, half], bytewise(body + body + half))}  # fmt: skip
    assert len(outs) == 1
    assert FIRST not in outs.pop()


@each_kit
def test_a_second_answer_that_is_an_error_is_no_failure_of_ours(kit: DialectKit) -> None:
    """The next rung is taken, and nothing passes unjudged."""
    guard = scene(kit, ladder="chance").guard()
    done = play(guard, [stream_of(kit, again())], [kit.error()])
    assert len(done.asked) == 1
    assert MARK.encode() in done.out
    assert guard.record.fail_open == []


def test_calls_that_are_not_let_go_are_told_in_the_order_of_the_answer() -> None:
    """Of several choices under `fail_closed`: the same bytes in every run."""
    kit = next(kit for kit in KITS if kit.most_choices > 1)
    said = [again(tag=tag).choices[0] for tag in ("first", "second", "third", "fourth")]
    body = stream_of(kit, Answer(tuple(said), Quirks(interleave=True)))
    chunks = [body[: body.rindex(b"crossing")], b"data: {broken\n\n"]
    outs = {play(scene(kit, n=4, fail_closed=True).guard(), chunks).out for _ in range(20)}
    assert len(outs) == 1
    assert [part["choices"][0]["index"] for part in payloads(outs.pop()) if MARK in str(part)] == [0, 1, 2, 3]


def test_what_lacks_its_end_stays_the_last() -> None:
    """Neither a frame of another choice nor a comment overtakes what is held, if it lacks the blank line behind it."""
    kit = next(kit for kit in KITS if kit.most_choices > 1)
    first, second = frames(stream_of(kit, again()))[:3], frames(stream_of(kit, saying("So")))[1]
    other = second.replace(b'"index":0', b'"index":1')
    for last in (other.rstrip(b"\n"), b": beat"):
        body = b"".join(first) + last
        for chunks in ([body], bytewise(body)):
            assert play(scene(kit, n=2).guard(), chunks).out == body
