"""The guard of a whole answer, driven by hand."""

import json
from typing import Any

import pytest

from callfuse.dialects.openai_chat.reasoning import without_reasoning
from callfuse.dialects.openai_responses.stored import Trail
from callfuse.policy.settings import Rung
from tests.guard.driving import each_kit, play, scene
from tests.guard.written import ANTHROPIC, OPENAI, SEARCH, body
from tests.support.kits import KITS, DialectKit
from tests.support.meeting import MARK
from tests.support.plain import ARGUMENTS, again, elsewhere, known_call, new_call, same_call, saying, spin
from tests.support.wire import bytewise

FIRST = b"call_first"


@each_kit
def test_nothing_leaves_before_the_end(kit: DialectKit) -> None:
    """Then the body as it came, if nothing is found in it; or the verdict is due."""
    for answer, found in ((elsewhere(), False), (saying("Done."), False), (again(), True)):
        whole = kit.whole(answer)
        guard = scene(kit, stream=False).guard(stream=False)
        assert [guard.feed(one) for one in bytewise(whole)] == [b""] * len(whole)
        assert guard.state.held_bytes == len(whole)
        assert not guard.state.holding
        assert guard.finish() == (b"" if found else whole)
        assert guard.needs_verdict is found


@each_kit
def test_a_body_over_the_limit_passes(kit: DialectKit) -> None:
    """From the byte on that goes beyond it."""
    whole = kit.whole(again())
    guard = scene(kit, stream=False, max_response_bytes=50).guard(stream=False)
    assert play(guard, list(bytewise(whole))).out == whole
    assert guard.record.fail_open == ["max_response_bytes"]


@each_kit
@pytest.mark.parametrize("at", [1, 40, -1])
@pytest.mark.parametrize("closed", [True, False])
def test_a_broken_body_passes(kit: DialectKit, at: int, closed: bool) -> None:
    """What is no JSON leaves as it came: no client can run a call of it."""
    broken = kit.whole(again())[:at]
    guard = scene(kit, stream=False, fail_closed=closed).guard(stream=False)
    assert play(guard, [broken]).out == broken
    assert guard.record.rounds == []


@each_kit
def test_the_limit_under_fail_closed(kit: DialectKit) -> None:
    """A block message stands for the answer that was not judged."""
    guard = scene(kit, stream=False, fail_closed=True, max_response_bytes=50).guard(stream=False)
    out = play(guard, list(bytewise(kit.whole(again())))).out
    (view,) = kit.sdk(out, stream=False)
    assert view.text.startswith(MARK)
    assert view.calls == ()


@each_kit
def test_a_cut_body_leaves_as_it_came(kit: DialectKit) -> None:
    """The client sees as much as it would have."""
    guard = scene(kit, stream=False).guard(stream=False)
    part = kit.whole(again())[:60]
    assert guard.feed(part) + guard.cut() == part
    guard.settle()
    assert guard.record.rounds == []


@each_kit
def test_a_sibling_survives(kit: DialectKit) -> None:
    """In its own bytes; the note on the loop waits for its result."""
    answer = saying("Both.", same_call("call_first"), known_call("call_sibling"))
    guard = scene(kit, spin(beside=True), stream=False).guard(stream=False)
    out = play(guard, [kit.whole(answer)]).out
    (view,) = kit.sdk(out, stream=False)
    assert [call.id for call in view.calls] == ["call_sibling"]
    assert view.finish == kit.called
    assert b"9007199254740993" in out
    ((survivor, text),) = guard.record.notes
    assert survivor.id == "call_sibling"
    assert text.startswith(MARK)


@each_kit
def test_a_new_call_beside_it_is_progress(kit: DialectKit) -> None:
    """The answer leaves as it came, and both calls are kept."""
    whole = kit.whole(saying(same_call("call_first"), new_call()))
    guard = scene(kit, stream=False).guard(stream=False)
    assert play(guard, [whole]).out == whole
    assert [len(round_) for round_ in guard.record.rounds] == [2]
    assert guard.record.verdicts == []


@each_kit
def test_a_second_answer_that_is_broken(kit: DialectKit) -> None:
    """The next rung; so too if it never ends."""
    for second in ([b"{"], [b"[]"], [b'{"error": {"message": "no"}}']):
        guard = scene(kit, ladder="chance_then_block", stream=False).guard(stream=False)
        outcome = play(guard, [kit.whole(again())], second)
        (view,) = kit.sdk(outcome.out, stream=False)
        assert MARK in view.text
        assert view.calls == ()
        assert [verdict.rung for verdict in guard.record.verdicts] == [Rung.STEER, Rung.BLOCK]


@each_kit
@pytest.mark.parametrize("closed", [True, False])
def test_a_second_answer_over_the_limit(kit: DialectKit, closed: bool) -> None:
    """It is dropped, and the next rung taken: the first answer cannot be had without its call any more."""
    first = kit.whole(again())
    second = kit.whole(saying("x" * len(first)))
    made = scene(kit, ladder="chance_then_block", stream=False, max_response_bytes=len(first), fail_closed=closed)
    guard = made.guard(stream=False)
    (view,) = kit.sdk(play(guard, [first], list(bytewise(second))).out, stream=False)
    assert MARK in view.text
    assert view.calls == ()
    assert [verdict.rung for verdict in guard.record.verdicts] == [Rung.STEER, Rung.BLOCK]


def completion(message: dict[str, Any], finish: str, **usage: Any) -> bytes:
    """A chat completion with one choice."""
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    return json.dumps(
        {"id": "c1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]} | usage
    ).encode()


CALL = {"id": "call_first", "type": "function", "function": {"name": "search", "arguments": ARGUMENTS}}


def openai(*answers: bytes, ladder: str = "block", **more: Any) -> tuple[dict[str, Any], Any]:
    """The client's choice and the guard's record."""
    settings = {key: more.pop(key) for key in ("finish_reason", "usage") if key in more}
    guard = scene(OPENAI, body(OPENAI, stream=False, **more), ladder, stream=False, **settings).guard(stream=False)
    found = json.loads(play(guard, *[[one] for one in answers]).out)
    return found["choices"][0] | {"usage": found.get("usage")}, guard.record


def test_structured_output_gets_a_refusal() -> None:
    """In place of text that would not fit the schema."""
    choice, _ = openai(
        completion({"content": None, "tool_calls": [CALL]}, "tool_calls"), response_format={"type": "json_object"}
    )
    assert choice["message"]["refusal"].startswith(MARK)
    assert choice["message"]["content"] is None
    assert choice["finish_reason"] == "stop"


@pytest.mark.parametrize(
    ("before", "setting", "after"),
    [("tool_calls", "stop", "stop"), ("tool_calls", "error", "error"), ("stop", "stop", "stop")],
)
def test_the_finish_reason_of_a_block(before: str, setting: str, after: str) -> None:
    """`stop`, or `error` where a client asks for it."""
    choice, _ = openai(completion({"content": None, "tool_calls": [CALL]}, before), finish_reason=setting)
    assert choice["finish_reason"] == after
    assert "tool_calls" not in choice["message"]


@pytest.mark.parametrize("finish", ["length", "content_filter", "repetition"])
def test_a_cut_call_is_no_evidence(finish: str) -> None:
    """A last call that lacks its end goes through and is not counted; one that has it is judged."""
    looping = completion({"content": None, "tool_calls": [CALL]}, finish)
    guard = scene(OPENAI, body(OPENAI, stream=False), stream=False).guard(stream=False)
    assert MARK.encode() in play(guard, [looping]).out
    cut = CALL | {"function": {"name": "search", "arguments": ARGUMENTS[:-2]}}
    whole = completion({"content": None, "tool_calls": [cut]}, finish)
    guard = scene(OPENAI, body(OPENAI, stream=False), stream=False).guard(stream=False)
    assert play(guard, [whole]).out == whole
    assert [call for round_ in guard.record.rounds for call in round_] == []


def test_two_answers_as_one() -> None:
    """The text of the first, a blank line, the second; output tokens summed, input tokens the last's."""
    first = completion(
        {"content": "Well.", "tool_calls": [CALL]},
        "tool_calls",
        usage={"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13},
    )
    second = completion(
        {"content": "Done."}, "stop", usage={"prompt_tokens": 20, "completion_tokens": 4, "total_tokens": 24}
    )
    choice, _ = openai(first, second, ladder="chance_then_block")
    assert choice["message"]["content"] == "Well.\n\nDone."
    assert choice["usage"] == {"prompt_tokens": 20, "completion_tokens": 7, "total_tokens": 27}
    choice, _ = openai(first, second, ladder="chance_then_block", usage="sum")
    assert choice["usage"] == {"prompt_tokens": 30, "completion_tokens": 7, "total_tokens": 37}


def test_a_legacy_call_is_blocked() -> None:
    """`function_call` in a whole answer."""
    function = {"name": "search", "arguments": ARGUMENTS}
    turns = [
        {"role": "assistant", "content": None, "function_call": function},
        {"role": "function", "name": "search", "content": "x"},
    ]
    request: dict[str, Any] = {
        "messages": [{"role": "user", "content": "Find it."}, *turns, *turns],
        "tools": None,
        "functions": [{"name": "search"}],
    }
    choice, _ = openai(completion({"content": None, "function_call": function}, "function_call"), **request)
    assert "function_call" not in choice["message"]
    assert choice["message"]["content"].startswith(MARK)
    assert choice["finish_reason"] == "stop"


def test_several_choices_are_blocked_by_themselves() -> None:
    """The other choice keeps its bytes, and no round is kept."""
    free = {"index": 0, "message": {"role": "assistant", "content": "One."}, "finish_reason": "stop"}
    held = {
        "index": 1,
        "message": {"role": "assistant", "content": None, "tool_calls": [CALL]},
        "finish_reason": "tool_calls",
    }
    whole = json.dumps(
        {"id": "c1", "object": "chat.completion", "created": 1, "model": "m", "choices": [free, held]}
    ).encode()
    guard = scene(OPENAI, body(OPENAI, stream=False, n=2), "chance_then_block", stream=False).guard(stream=False)
    outcome = play(guard, [whole])
    one, two = json.loads(outcome.out)["choices"]
    assert one == free
    assert two["message"]["content"].startswith(MARK)
    assert outcome.asked == []
    assert guard.record.rounds == []


def anthropic(*blocks: dict[str, Any], stop: str = "tool_use") -> bytes:
    """A whole message."""
    return json.dumps(
        {"id": "m1", "type": "message", "role": "assistant", "model": "m", "content": blocks, "stop_reason": stop}
    ).encode()


USE = {"type": "tool_use", "id": "call_first", "name": "search", "input": SEARCH}
SERVER = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {}}


@pytest.mark.parametrize(
    ("answer", "kinds"),
    [
        (anthropic(USE), ["text"]),
        (anthropic(SERVER, USE), ["server_tool_use", "tool_use"]),
        (anthropic(USE, stop="pause_turn"), ["tool_use"]),
        (
            anthropic(SERVER, {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []}, USE),
            ["server_tool_use", "web_search_tool_result", "text"],
        ),
        (anthropic({**USE, "caller": {"type": "code_execution_20250825", "tool_id": "x"}}), ["tool_use"]),
        (anthropic({**USE, "caller": {"type": "direct"}}), ["text"]),
        (anthropic(USE, stop="max_tokens"), ["text"]),
        (anthropic({**USE, "input": {}}, stop="max_tokens"), ["tool_use"]),
    ],
)
def test_what_is_blocked_of_a_message(answer: bytes, kinds: list[str]) -> None:
    """Not a call beside an open server tool, nor one that a program made, nor one that was cut off."""
    guard = scene(ANTHROPIC, body(ANTHROPIC, stream=False), stream=False).guard(stream=False)
    found = json.loads(play(guard, [answer]).out)
    assert [block["type"] for block in found["content"]] == kinds
    before = json.loads(answer)["stop_reason"]
    assert found["stop_reason"] == ("end_turn" if "text" in kinds and before == "tool_use" else before)


def test_an_open_server_tool_may_be_steered() -> None:
    """Nothing of a whole answer has gone out yet; its server call goes back to the model with the rest."""
    guard = scene(ANTHROPIC, body(ANTHROPIC, stream=False), "chance_then_block", stream=False).guard(stream=False)
    outcome = play(guard, [anthropic(SERVER, USE)], [anthropic({"type": "text", "text": "Done."}, stop="end_turn")])
    assert len(outcome.asked) == 1
    found = json.loads(outcome.out)["content"]
    assert all(block["type"] != "tool_use" for block in found)


def chat_with(*choices: Any) -> bytes:
    """A whole chat completion with these choices."""
    head = {"id": "c1", "object": "chat.completion", "created": 1, "model": "m"}
    return json.dumps({**head, "choices": list(choices)}).encode()


def chat_choice(**more: Any) -> dict[str, Any]:
    """A choice that brings the call once more."""
    calls = [{"id": "call_first", "type": "function", "function": {"name": "search", "arguments": ARGUMENTS}}]
    message = {"role": "assistant", "content": None, "tool_calls": calls, **more}
    return {"index": 0, "message": message, "finish_reason": "tool_calls"}


@pytest.mark.parametrize("odd", [{"id": None}, {"message": None}, {"message": []}])
def test_a_choice_without_a_message(odd: dict[str, Any]) -> None:
    """It is no obstacle to a block of the other, nor to its own."""
    guard = scene(OPENAI, body(OPENAI, stream=False), stream=False).guard(stream=False)
    out = json.loads(play(guard, [chat_with({"index": 1, **odd}, chat_choice())]).out)
    assert guard.record.fail_open == []
    assert MARK in out["choices"][1]["message"]["content"]


def test_a_content_part_of_an_odd_type_is_no_reasoning() -> None:
    """Where the next answer is another model's."""
    parts = [{"type": {"type": "thinking"}, "text": "So"}, {"type": "thinking", "thinking": []}]
    message = {"content": parts, "tool_calls": [{"extra_content": 1}]}
    edits = list(without_reasoning(message, ("message",), "m"))
    assert [edit.path for edit in edits] == [("message", "content", 1)]


def test_an_output_item_that_is_no_object() -> None:
    """It is passed over where later requests are to leave out what the client does not get."""
    trail = Trail(stored=True)
    trail.note_withheld([["x"], 7, {"id": []}, {"id": "rs_1", "type": "reasoning"}, {"id": "fc_1"}], {4})
    assert list(trail.items) == ["rs_1"]


@pytest.mark.parametrize("odd", [7, None, "x", []])
@pytest.mark.parametrize("name", ["cohere-v2", "ollama", "openai-chat"])
def test_what_is_no_call_beside_a_call(odd: Any, name: str) -> None:
    """The call is withheld all the same, and not what stands in its place."""
    kit = next(kit for kit in KITS if kit.name == name)
    answer = json.loads(kit.whole(again()))
    message = answer["message"] if "message" in answer else answer["choices"][0]["message"]
    message["tool_calls"].insert(0, odd)
    guard = scene(kit, stream=False).guard(stream=False)
    out = play(guard, [json.dumps(answer).encode()]).out
    assert MARK.encode() in out
    assert b'"tool_calls":[' not in out.replace(b" ", b"")
