"""The guard of an Anthropic stream: server tools, calls of programs, thinking, usage, and what breaks a message."""

from typing import Any

import pytest

from callfuse.policy.settings import Rung
from tests.guard.driving import play, scene
from tests.guard.written import (
    ANTHROPIC,
    block,
    body,
    event,
    message,
    payloads,
    text,
    tool_use,
)
from tests.support.plain import ARGUMENTS


def anthropic(*answers: list[bytes], ladder: str = "block", **settings: Any) -> tuple[list[Any], Any, Any]:
    """The client's events, what was asked and the guard's record of an Anthropic exchange."""
    guard = scene(ANTHROPIC, body(ANTHROPIC), ladder, **settings).guard()
    outcome = play(guard, *answers)
    found = payloads(outcome.out)
    starts = [one["index"] for one in found if one["type"] == "content_block_start"]
    assert starts == list(range(len(starts)))
    return found, outcome.asked, guard.record


def kinds(found: list[Any]) -> list[str]:
    """The types of the content blocks."""
    return [one["content_block"]["type"] for one in found if one["type"] == "content_block_start"]


SERVER = tool_use(0, "srv_1", "server_tool_use")
RESULT = block(1, {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []})


def test_an_open_server_tool_is_never_blocked() -> None:
    """Its result comes in the next answer, so the call is let go; after its result it is blocked."""
    found, _, record = anthropic(message(SERVER, tool_use(1)))
    assert kinds(found) == ["server_tool_use", "tool_use"]
    assert [verdict.rung for verdict in record.verdicts] == [None]
    found, _, _ = anthropic(message(SERVER, RESULT, tool_use(2)))
    assert kinds(found) == ["server_tool_use", "web_search_tool_result", "text"]
    found, _, record = anthropic(message(tool_use(0), stop="pause_turn"))
    assert kinds(found) == ["tool_use"]


def test_an_open_server_tool_is_steered_only_unseen() -> None:
    """Held behind the call it can be dropped with the answer; once the client has it, the call is let go."""
    second = message(text(0, "Done."), stop="end_turn")
    server = tool_use(1, "srv_1", "server_tool_use")
    found, asked, _ = anthropic(message(tool_use(0), server), second, ladder="chance_then_block")
    assert len(asked) == 1
    found, asked, _ = anthropic(message(SERVER, tool_use(1)), second, ladder="chance_then_block")
    assert asked == []
    assert kinds(found) == ["server_tool_use", "tool_use"]


def test_a_call_of_a_program_is_never_held() -> None:
    """A `caller` that is not direct waits inside the vendor's container; a direct one is the model's own call."""
    answer = message(tool_use(0, caller={"type": "code_execution_20250825", "tool_id": "srv_1"}))
    found, _, record = anthropic(answer)
    assert kinds(found) == ["tool_use"]
    assert record.verdicts == []
    found, _, _ = anthropic(message(tool_use(0, caller={"type": "direct"})))
    assert kinds(found) == ["text"]


def test_usage_after_a_steer() -> None:
    """The last event carries input and cached tokens too, for `message_start` gave the first answer's."""
    second = message(text(0, "Done."), stop="end_turn", input_tokens=20, cache_read_input_tokens=7)
    found, _, _ = anthropic(message(tool_use(0)), second, ladder="chance_then_block")
    (delta,) = [one for one in found if one["type"] == "message_delta"]
    assert delta["usage"] == {"input_tokens": 20, "cache_read_input_tokens": 7, "output_tokens": 10}
    found, _, _ = anthropic(message(tool_use(0)), second, ladder="chance_then_block", usage="sum")
    (delta,) = [one for one in found if one["type"] == "message_delta"]
    assert delta["usage"] == {"input_tokens": 30, "cache_read_input_tokens": 10, "output_tokens": 10}


def test_thinking_of_two_answers_never_meets() -> None:
    """What the first has shown keeps the second's thinking away; where it has shown nothing, it goes through."""
    thought = block(
        0, {"type": "thinking", "thinking": "", "signature": ""}, {"type": "thinking_delta", "thinking": "Hm."}
    )
    second = message(thought, text(1, "Done."), stop="end_turn")
    found, _, _ = anthropic(message(text(0, "Well."), tool_use(1)), second, ladder="chance_then_block")
    assert kinds(found) == ["text", "text"]
    found, _, _ = anthropic(message(tool_use(0)), second, ladder="chance_then_block")
    assert kinds(found) == ["thinking", "text"]


@pytest.mark.parametrize("stop", ["max_tokens", "refusal", "model_context_window_exceeded"])
def test_a_call_that_was_cut_off_is_no_evidence(stop: str) -> None:
    """It leaves as it came, and the reason stays; one whose arguments are whole is judged as any other."""
    whole = message(tool_use(0, piece=ARGUMENTS[:-2]), stop=stop)
    guard = scene(ANTHROPIC, body(ANTHROPIC)).guard()
    assert play(guard, whole).out == b"".join(whole)
    assert guard.record.rounds in ([], [()])
    guard = scene(ANTHROPIC, body(ANTHROPIC)).guard()
    assert b"[callfuse]" in play(guard, message(tool_use(0), stop=stop)).out


@pytest.mark.parametrize("whole", [True, False], ids=["one chunk", "frame by frame"])
def test_a_second_start_is_a_break(whole: bool) -> None:
    """Two messages in one body: nothing more can be trusted, and all of it leaves, however it is cut."""
    chunks = message(tool_use(0))[:-2] + message(tool_use(0))
    guard = scene(ANTHROPIC, body(ANTHROPIC)).guard()
    assert play(guard, [b"".join(chunks)] if whole else chunks).out == b"".join(chunks)
    assert guard.record.fail_open


DELTA_WITHOUT_REASON = {"type": "message_delta", "delta": {"stop_reason": None}, "usage": {"output_tokens": 5}}


def without_reason(*blocks: list[bytes], delta: bool) -> list[bytes]:
    """An answer without a stop reason, with or without a `message_delta`."""
    *frames, _, end = message(*blocks)
    return [*frames, *([event(DELTA_WITHOUT_REASON)] if delta else []), end]


@pytest.mark.parametrize("delta", [True, False], ids=["null", "no message_delta"])
def test_an_answer_without_a_stop_reason_is_judged(delta: bool) -> None:
    """Its end tells that its calls are complete; the block's text has a stop reason, and the usage so far."""
    found, _, record = anthropic(without_reason(tool_use(0), delta=delta))
    assert kinds(found) == ["text"]
    assert [verdict.rung for verdict in record.verdicts] == [Rung.BLOCK]
    end, stop = found[-2:]
    assert (end["type"], end["delta"]["stop_reason"], stop["type"]) == ("message_delta", "end_turn", "message_stop")
    assert end["usage"]["output_tokens"] == (5 if delta else 1)
    found, asked, _ = anthropic(
        without_reason(tool_use(0), delta=delta), message(text(0, "Done."), stop="end_turn"), ladder="chance_then_block"
    )
    assert (len(asked), kinds(found)) == (1, ["text"])


def test_a_call_without_its_end_is_no_evidence() -> None:
    """Neither a stop reason nor the end of the block: the answer is taken for cut off."""
    frames = without_reason(tool_use(0), delta=False)
    found, _, record = anthropic([frame for frame in frames if b"content_block_stop" not in frame])
    assert kinds(found) == ["tool_use"]
    assert record.verdicts == []


def test_a_block_is_said_once() -> None:
    """However many `message_delta` an answer has."""
    *frames, delta, end = message(tool_use(0))
    found, _, _ = anthropic([*frames, event(DELTA_WITHOUT_REASON), delta, end])
    assert kinds(found) == ["text"]
