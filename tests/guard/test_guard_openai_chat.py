"""The guard of an OpenAI stream: structured output, usage, several choices, copies of calls, legacy calls."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from callfuse.policy.settings import Rung
from tests.guard.driving import play, scene
from tests.guard.written import (
    DONE,
    OPENAI,
    SEARCH,
    body,
    chunk,
    part,
    payloads,
    usage_chunk,
)
from tests.support.meeting import MARK
from tests.support.model import Call, History, Round
from tests.support.plain import ARGUMENTS as ARGUMENTS_OF_LOOP
from tests.support.plain import spin

FIRST = b"call_first"
ARGUMENT = "zebra crossing"
LOOP = [chunk({"role": "assistant", "content": None}), chunk({"tool_calls": [part()]}), chunk({}, "tool_calls"), DONE]
ANSWER = [chunk({"role": "assistant", "content": "Done."}), chunk({}, "stop"), DONE]


def openai(
    *chunks: bytes, ladder: str = "block", second: list[bytes] | None = None, **more: Any
) -> tuple[list[Any], Any]:
    """The client's chunks and the guard's record of an OpenAI exchange."""
    settings = {key: more.pop(key) for key in ("finish_reason", "usage") if key in more}
    guard = scene(OPENAI, body(OPENAI, **more), ladder, **settings).guard()
    return payloads(play(guard, list(chunks), second).out), guard.record


def said(found: list[Any], key: str = "content") -> str:
    """One string of all deltas."""
    return "".join(choice["delta"].get(key) or "" for one in found for choice in one["choices"])


def reasons(found: list[Any]) -> list[str]:
    """The finish reasons."""
    return [choice["finish_reason"] for one in found for choice in one["choices"] if choice["finish_reason"]]


SCHEMA = {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}


@pytest.mark.parametrize("form", [SCHEMA, {"type": "json_object"}])
def test_structured_output_gets_a_refusal(form: dict[str, Any]) -> None:
    """A plain text would raise in the SDK's helpers."""
    found, _ = openai(*LOOP, response_format=form)
    assert said(found, "refusal").startswith(MARK)
    assert said(found) == ""
    assert reasons(found) == ["stop"]


def test_structured_output_is_not_asked_again_after_text() -> None:
    """The client has the beginning of an object already; without any, the second answer is the object."""
    begun = [chunk({"role": "assistant", "content": '{"a'}), *LOOP[1:]]
    found, record = openai(*begun, ladder="chance_then_block", second=ANSWER, response_format=SCHEMA)
    assert record.unasked == ["structured text"]
    assert said(found, "refusal").startswith(MARK)
    found, record = openai(*LOOP, ladder="chance_then_block", second=ANSWER, response_format=SCHEMA)
    assert record.unasked == []
    assert said(found) == "Done."


def test_plain_text_is_asked_again() -> None:
    """`response_format: text` is no schema."""
    begun = [chunk({"role": "assistant", "content": "Well."}), *LOOP[1:]]
    found, _ = openai(*begun, ladder="chance_then_block", second=ANSWER, response_format={"type": "text"})
    assert said(found) == "Well.\n\nDone."


@pytest.mark.parametrize(
    ("usage", "prompt", "total"), [("last", 20, 27), ("sum", 30, 37)], ids=["the last answer's", "the sum"]
)
def test_usage_of_two_answers(usage: str, prompt: int, total: int) -> None:
    """Output is the sum; input and cached tokens are the last answer's, unless all are summed."""
    first = [*LOOP[:3], usage_chunk(10, 3, prompt_tokens_details={"cached_tokens": 8}), DONE]
    second = [*ANSWER[:2], usage_chunk(20, 4, prompt_tokens_details={"cached_tokens": 16}), DONE]
    options = {"stream_options": {"include_usage": True}}
    found, _ = openai(*first, ladder="chance_then_block", second=second, usage=usage, **options)
    (counted,) = [one["usage"] for one in found if one.get("usage")]
    assert (counted["prompt_tokens"], counted["completion_tokens"], counted["total_tokens"]) == (prompt, 7, total)
    assert counted["prompt_tokens_details"]["cached_tokens"] == (16 if usage == "last" else 24)


def test_a_block_can_end_with_error() -> None:
    """Where a client asks for it; a reason that says more than a call stays."""
    assert reasons(openai(*LOOP, finish_reason="error")[0]) == ["error"]
    assert reasons(openai(*LOOP[:2], chunk({}, "stop"), DONE)[0]) == ["stop"]


def test_each_choice_is_blocked_by_itself() -> None:
    """With n > 1 the model is not asked again, and no round is kept, for nobody knows which choice is taken."""
    answer = [
        chunk({"role": "assistant", "content": "One."}),
        chunk({"tool_calls": [part()]}, choice=1),
        chunk({"content": " Two."}),
        chunk({}, "tool_calls", choice=1),
        chunk({}, "stop"),
        DONE,
    ]
    guard = scene(OPENAI, body(OPENAI, n=2), "chance_then_block").guard()
    outcome = play(guard, answer)
    found = payloads(outcome.out)
    texts = {
        at: "".join(c["delta"].get("content") or "" for p in found for c in p["choices"] if c["index"] == at)
        for at in (0, 1)
    }
    assert texts[0] == "One. Two."
    assert texts[1].startswith(MARK)
    assert outcome.asked == []
    assert guard.record.rounds == []
    assert FIRST not in outcome.out


OF_CHOICE: dict[str, list[dict[str, Any]]] = {
    "text": [{"role": "assistant", "content": "One."}],
    "loop": [{"role": "assistant", "content": None}, {"tool_calls": [part()]}],
    "new": [{"tool_calls": [part("call_new", '{"query": "new"}')]}],
}
"""What a choice of an answer says."""


@pytest.mark.parametrize("choices", [("text", "loop"), ("loop", "text"), ("loop", "loop"), ("loop", "new")])
def test_an_answer_of_several_choices_that_nobody_asked_for(choices: tuple[str, ...]) -> None:
    """Each choice that loops is blocked, and each ends once: another answer could go on with choice 0 only."""
    answer = [chunk(delta, choice=at) for at, says in enumerate(choices) for delta in OF_CHOICE[says]]
    answer += [chunk({}, "stop" if says == "text" else "tool_calls", choice=at) for at, says in enumerate(choices)]
    for chunks in ([*answer, DONE], [b"".join((*answer, DONE))]):
        guard = scene(OPENAI, body(OPENAI), "chance_then_block").guard()
        outcome = play(guard, chunks, None)
        found = [choice for one in payloads(outcome.out) for choice in one["choices"]]
        ends = {at: [c["finish_reason"] for c in found if c["index"] == at and c["finish_reason"]] for at in (0, 1)}
        assert outcome.asked == []
        for at, says in enumerate(choices):
            text = "".join(c["delta"].get("content") or "" for c in found if c["index"] == at)
            assert text.startswith(MARK) is (says == "loop")
            assert ends[at] == ["tool_calls" if says == "new" else "stop"]
        assert FIRST not in outcome.out
        assert [verdict.rung for verdict in guard.record.verdicts] == [Rung.BLOCK] * choices.count("loop")


def test_a_choice_that_is_free_is_not_held_up() -> None:
    """The text of choice 0 leaves while choice 1 is held."""
    guard = scene(OPENAI, body(OPENAI, n=2)).guard()
    guard.feed(chunk({"tool_calls": [part()]}, choice=1))
    words = chunk({"content": "One."})
    assert guard.feed(words) == words


def role(choice: int, **more: Any) -> bytes:
    """The first chunk of a choice."""
    return chunk({"role": "assistant", "content": "", **more}, choice=choice)


TOGETHER = {"role": "assistant", "content": None, "tool_calls": [part()]}
TEXT = [role(1), chunk({"content": "One."}, choice=1), chunk({}, "stop", choice=1)]


@pytest.mark.parametrize("delta", [TOGETHER, {"tool_calls": [part()]}], ids=["with its role", "without one"])
@pytest.mark.parametrize("ladder", ["block", "observe"])
@pytest.mark.parametrize("innocent", [True, False], ids=["innocent", "looping"])
def test_no_choice_begins_before_a_lower_one(delta: dict[str, Any], ladder: str, *, innocent: bool) -> None:
    """The official SDK keeps choices in a list as they begin: one that came too early would take another's place."""
    frames = [chunk(delta), *TEXT, chunk({}, "tool_calls"), DONE]
    if innocent:
        frames = [one.replace(b"zebra", b"okapi") for one in frames]
    out = play(scene(OPENAI, body(OPENAI, n=2), ladder).guard(), frames).out
    if innocent or ladder == "observe":
        assert out == b"".join(frames)
    first, second = OPENAI.sdk(out, stream=True)
    assert (second.text, second.calls, second.finish) == ("One.", (), "stop")
    assert bool(first.calls) is (innocent or ladder == "observe")
    assert (MARK in first.text) is not bool(first.calls)


def test_a_choice_that_has_begun_is_not_held_up() -> None:
    """By a lower one that is held after its beginning, whether that was read or not."""
    guard = scene(OPENAI, body(OPENAI, n=2)).guard()
    for free in (role(0), role(1)):
        assert guard.feed(free) == free
    assert guard.feed(chunk({"tool_calls": [part()]})) == b""
    text = chunk({"content": "One."}, choice=1)
    assert guard.feed(text) == text


def test_a_choice_waits_no_longer_than_the_lower_one_that_has_not_begun() -> None:
    """Once that one's hold ends, both go on, in order."""
    guard = scene(OPENAI, body(OPENAI, n=2)).guard()
    held = chunk({"tool_calls": [part(arguments='{"query": "')]})
    assert guard.feed(held) == b""
    assert guard.feed(TEXT[0]) == b""
    other = chunk({"tool_calls": [{"index": 0, "function": {"arguments": 'okapi"}'}}]})
    assert guard.feed(other) == held + TEXT[0] + other
    assert guard.feed(TEXT[1]) == TEXT[1]


class Looked(dict[int, Any]):
    """The holds of an answer's choices, which count how often they are gone through."""

    looks = 0

    def __iter__(self) -> Iterator[int]:
        Looked.looks += len(self)
        return super().__iter__()


def test_a_release_does_not_look_at_every_choice() -> None:
    """A call that is found innocent costs the same, however many choices an answer has."""
    guard = scene(OPENAI, body(OPENAI, n=2)).guard()
    queue = guard._answer.queue
    queue._holds = Looked()
    Looked.looks = 0
    innocent = part(arguments='{"query": "')
    for choice in range(50):
        held = chunk({"tool_calls": [innocent]}, choice=choice)
        assert guard.feed(held) == b""
        end = chunk({"tool_calls": [{"index": 0, "function": {"arguments": '"}'}}]}, choice=choice)
        assert guard.feed(end) == held + end
        assert not queue.held
    assert Looked.looks == 0


NAMELESS = {"index": 1, "id": "call_none", "type": "function", "function": {"name": "", "arguments": "{}"}}


@pytest.mark.parametrize("arguments", ["", " "])
def test_a_call_without_arguments_is_over_where_no_reason_comes(arguments: str) -> None:
    """It is a call with `{}`, so that the other choice, which loops, is judged."""
    empty = chunk({"tool_calls": [part("call_empty", arguments, name="lookup")]}, choice=1)
    seen, record = openai(role(0), chunk({"tool_calls": [part()]}), role(1), empty, DONE, n=2)
    assert len(record.verdicts) == 1
    assert "call_empty" in str(seen)
    assert "call_first" not in str(seen)


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("first", [True, False], ids=["before", "behind"])
@pytest.mark.parametrize("name", ["", " ", None, 5])
def test_a_nameless_call_is_no_survivor(*, stream: bool, first: bool, name: Any) -> None:
    """Beside a call that is blocked it is gone, too, and the client reads why. A blank name is none, nor a number."""
    nameless = NAMELESS | {"function": {"name": name, "arguments": "{}"}}
    parts = [nameless | {"index": 0}, part(index=1)] if first else [part(), nameless]
    if stream:
        frames = [role(0), chunk({"tool_calls": parts}), chunk({}, "tool_calls"), DONE]
    else:
        message = {"role": "assistant", "content": None, "tool_calls": parts}
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
        frames = [json.dumps({"id": "c1", "object": "chat.completion", "created": 1, "model": "m",
                              "choices": [choice]}).encode()]  # fmt: skip
    for ladder in ("block", "chance_then_block"):
        outcome = play(scene(OPENAI, body(OPENAI, stream=stream), ladder, stream=stream).guard(stream=stream), frames)
        assert b"call_none" not in outcome.out
        (view,) = OPENAI.sdk(outcome.out, stream=stream)
        assert (view.calls, view.finish) == ((), "stop")
        assert MARK in view.text
        for asked in outcome.asked:
            (call,) = json.loads(asked)["messages"][-2]["tool_calls"]
            assert call["id"] == "call_first"


def test_a_blank_legacy_call_is_no_survivor() -> None:
    """Of a whole answer too."""
    blank = {"name": " ", "arguments": ""}
    message = {"role": "assistant", "content": None, "tool_calls": [part()], "function_call": blank}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    frame = json.dumps({"id": "c1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]})
    outcome = play(
        scene(OPENAI, body(OPENAI, stream=False), "block", stream=False).guard(stream=False), [frame.encode()]
    )
    (view,) = OPENAI.sdk(outcome.out, stream=False)
    assert view.calls == ()
    assert MARK in view.text


@pytest.mark.parametrize("name", [5, " ", None, {}, True])
def test_a_name_that_comes_after_something_else(name: Any) -> None:
    """What is no text, or blank, is no beginning of it."""
    frames = [
        role(0),
        named(name, id="call_first", type="function"),
        named("search"),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": ARGUMENTS_OF_LOOP}}]}),
        chunk({}, "tool_calls"),
        DONE,
    ]
    outcome = play(scene(OPENAI, body(OPENAI, stream=True), "block", stream=True).guard(stream=True), frames)
    assert MARK.encode() in outcome.out
    assert b"call_first" not in outcome.out


def named(name: Any, **more: Any) -> bytes:
    """A chunk with a piece of the call's name."""
    return chunk({"tool_calls": [{"index": 0, **more, "function": {"name": name}}]})


@pytest.mark.parametrize("at", range(1, len("search")))
def test_a_name_in_two_pieces_hides_no_call(at: int) -> None:
    """SDKs join it: a beginning of a suspect's name is held."""
    frames = [
        role(0),
        named("search"[:at], id="call_first", type="function"),
        named("search"[at:]),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": ARGUMENTS_OF_LOOP}}]}),
        chunk({}, "tool_calls"),
        DONE,
    ]
    out = play(scene(OPENAI).guard(), frames).out
    assert FIRST not in out
    assert MARK in said(payloads(out))
    innocent = [one.replace(b"zebra", b"okapi") for one in frames]
    assert play(scene(OPENAI).guard(), innocent).out == b"".join(innocent)


def test_a_name_that_comes_with_arguments_is_whole() -> None:
    """It is not held for another's sake that begins like it; nor is one that no suspect begins with."""
    for name, arguments, held in (("sea", "{}", False), ("sea", "", True), ("eas", "", False), ("searches", "", False)):
        one = chunk({"tool_calls": [part(name=name, arguments=arguments)]})
        assert scene(OPENAI).guard().feed(one) == (b"" if held else one)


def test_a_copy_of_the_calls_is_withheld_too() -> None:
    """Writer sends each chunk's delta a second time as `message`."""
    answer = [
        LOOP[0],
        chunk({"tool_calls": [part()]}, message={"role": "assistant", "tool_calls": [part()]}),
        chunk({"tool_calls": None}, "tool_calls", message={"role": "assistant", "content": None, "tool_calls": None}),
        DONE,
    ]
    found, record = openai(*answer)
    assert "call_first" not in json.dumps(found)
    assert ARGUMENT not in json.dumps(found)
    assert record.verdicts[0].rung is Rung.BLOCK


def test_calls_whose_pieces_come_by_turns() -> None:
    """An innocent call that ends first frees no other one that still grows."""
    okapi = Round((Call("call_k0", "search", ('{"query": "okapi"}',)),), ("a zebra's cousin",))
    first, *others = spin().turns
    known, head = part("call_known", ""), part("call_first", ARGUMENTS_OF_LOOP[:5], index=1)
    answer = [
        LOOP[0],
        chunk({"tool_calls": [known, head]}),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": '{"query": "okapi"}'}}]}),
        chunk({"tool_calls": [{"index": 1, "function": {"arguments": ARGUMENTS_OF_LOOP[5:]}}]}),
        chunk({}, "tool_calls"),
        DONE,
    ]
    guard = scene(OPENAI, body(OPENAI, history=History((first, okapi, *others)))).guard()
    out = play(guard, answer).out
    assert FIRST not in out
    assert b"call_known" in out
    assert OPENAI.faults(out) == []


def unfinished(*deltas: dict[str, Any], usage: bool = False) -> list[bytes]:
    """An answer that ends in `[DONE]` without a finish reason."""
    chunks = [chunk({"role": "assistant", "content": None}), *map(chunk, deltas)]
    return [*chunks, *([usage_chunk(10, 3)] if usage else []), DONE]


ONLY, NEW = {"tool_calls": [part()]}, {"tool_calls": [part("call_new", '{"query": "giraffe"}')]}


def valid(out: bytes) -> list[dict[str, Any]]:
    """The chunks of a stream that breaks no rule."""
    assert OPENAI.faults(out) == []
    return payloads(out)


@pytest.mark.parametrize("usage", [False, True], ids=["", "usage"])
@pytest.mark.parametrize("before", [[], [{"content": "Let me look."}]], ids=["", "text"])
def test_a_block_without_a_finish_reason_gets_one(before: list[dict[str, Any]], *, usage: bool) -> None:
    """The text and the finish stand before the usage and `[DONE]`."""
    guard = scene(OPENAI, body(OPENAI)).guard()
    outcome = play(guard, unfinished(*before, ONLY, usage=usage))
    found = valid(outcome.out)
    assert MARK in said(found)
    assert reasons(found) == ["stop"]
    assert outcome.out.endswith(DONE)
    assert bool(found[-1].get("usage")) is usage
    assert FIRST not in outcome.out
    assert outcome.complete
    assert [[call.withheld for call in kept] for kept in guard.record.rounds] == [[True]]


@pytest.mark.parametrize("second", [NEW, {"content": "Done."}], ids=["call", "text"])
def test_a_steer_without_finish_reasons(second: dict[str, Any]) -> None:
    """The second answer goes on from the first and ends as it does; its calls are kept."""
    guard = scene(OPENAI, body(OPENAI), "chance_then_block").guard()
    outcome = play(guard, unfinished({"content": "One."}, ONLY), unfinished(second))
    (asked,) = outcome.asked
    assert [call["id"] for call in json.loads(asked)["messages"][-2]["tool_calls"]] == ["call_first"]
    found = payloads(outcome.out)
    assert said(found) == ("One." if second is NEW else "One.\n\nDone.")
    assert (b"call_new" in outcome.out) is (second is NEW)
    assert FIRST not in outcome.out
    assert sum("role" in choice["delta"] for one in found for choice in one["choices"]) == 1
    assert outcome.out.count(DONE) == 1
    assert outcome.out.endswith(DONE)
    kept = [[call.id for call in kept] for kept in guard.record.rounds]
    assert kept == ([["call_first"], ["call_new"]] if second is NEW else [["call_first"]])


def test_a_second_answer_that_loops_on_without_a_finish_reason() -> None:
    """It is blocked in its turn."""
    guard = scene(OPENAI, body(OPENAI), "chance_then_block").guard()
    outcome = play(guard, unfinished({"content": "One."}, ONLY), unfinished({"content": "Two."}, ONLY, usage=True))
    found = valid(outcome.out)
    assert said(found).startswith(f"One.\n\nTwo.\n\n{MARK}")
    assert reasons(found) == ["stop"]
    assert FIRST not in outcome.out


def test_an_innocent_sibling_without_a_finish_reason() -> None:
    """It survives, renumbered, and no finish reason is put in its mouth."""
    known = {"tool_calls": [part("call_known", '{"id": 9007199254740993}', index=1, name="lookup")]}
    guard = scene(OPENAI, body(OPENAI, history=spin(beside=True))).guard()
    outcome = play(guard, unfinished(ONLY, known, usage=True))
    found = valid(outcome.out)
    parts = [part for one in found for choice in one["choices"] for part in choice["delta"].get("tool_calls") or ()]
    assert [(part["index"], part["id"]) for part in parts] == [(0, "call_known")]
    assert reasons(found) == []
    assert said(found) == ""


def test_each_choice_without_a_finish_reason_is_blocked_by_itself() -> None:
    """One that broke off in a call lets all go: nobody knows whether it had news."""
    first, second = chunk(ONLY), chunk(ONLY, choice=1)
    guard = scene(OPENAI, body(OPENAI, n=2)).guard()
    found = payloads(play(guard, [first, second, chunk({"content": "Two."}, choice=1), DONE]).out)
    assert sorted(choice["index"] for one in found for choice in one["choices"] if choice["finish_reason"]) == [0, 1]
    assert "call_first" not in json.dumps(found)
    answer = [first, chunk({"tool_calls": [part("call_cut", '{"query')]}, choice=1), DONE]
    outcome = play(scene(OPENAI, body(OPENAI, n=2)).guard(), answer)
    assert outcome.out == b"".join(answer)
    assert not outcome.complete


def test_an_error_leaves_an_answer_incomplete() -> None:
    """Whatever follows it, a finish reason or `[DONE]`: the client has raised."""
    error = b'data: {"error":{"message":"The server had an error"}}\n\n'
    for end in ([DONE], [chunk({}, "tool_calls"), DONE]):
        guard = scene(OPENAI, body(OPENAI)).guard()
        answer = [chunk({"tool_calls": [part(name="other")]}), error, *end]
        outcome = play(guard, answer)
        assert outcome.out == b"".join(answer)
        assert not outcome.complete
        assert guard.record.rounds == []


def test_a_legacy_function_call() -> None:
    """`function_call` loops, is blocked, and is asked again in its own words."""
    function = {"name": "search", "arguments": json.dumps(SEARCH)}
    turns = [
        {"role": "assistant", "content": None, "function_call": function},
        {"role": "function", "name": "search", "content": "x"},
    ]
    request: dict[str, Any] = {
        "messages": [{"role": "user", "content": "Find it."}, *turns, *turns],
        "tools": None,
        "functions": [{"name": "search"}],
        "function_call": {"name": "search"},
    }
    answer = [LOOP[0], chunk({"function_call": function}), chunk({}, "function_call"), DONE]
    found, _ = openai(*answer, **request)
    assert said(found).startswith(MARK)
    assert reasons(found) == ["stop"]
    assert "function_call" not in json.dumps(found)
    guard = scene(OPENAI, body(OPENAI, **request), "chance_then_block").guard()
    (asked,) = play(guard, answer, ANSWER).asked
    *_, turn, reply = json.loads(asked)["messages"]
    assert turn == {"role": "assistant", "content": None, "function_call": function}
    assert (reply["role"], reply["name"]) == ("function", "search")
    assert json.loads(asked)["function_call"] == "auto"


def test_an_end_before_the_first_call_says_nothing_however_the_stream_is_cut() -> None:
    """It may have passed unread, by its chunk; a call behind it still ends with the next one."""
    chunks = [chunk({"role": "assistant"}), DONE, chunk({"tool_calls": [part()]}), DONE]
    framewise, joined, mixed = (
        play(scene(OPENAI).guard(), one).out
        for one in (chunks, [b"".join(chunks)], [chunks[0], chunks[1][:5], b"".join([chunks[1][5:], *chunks[2:]])])
    )
    assert framewise == joined == mixed
    assert MARK.encode() in framewise
