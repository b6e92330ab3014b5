"""What a harness says behind the results of tools, turn after turn: a loop is found as without it.

Whole conversations on the wire, in each dialect: a model that always calls the same. Then what is a person's.
"""

import asyncio
import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from callfuse.conversations.ledger import LaneState
from callfuse.conversations.timeline import read_conversation
from callfuse.dialects import dialect_of
from callfuse.dialects.base import Request
from callfuse.model import PastCall, ToolCall
from callfuse.policy.settings import LoopSettings
from callfuse.wire.jsontext import loads
from tests.conversations.talks import Ids, Lane, by_number, messages, without, words
from tests.support.kits import DialectKit
from tests.support.meeting import Session, ask, every_dialect, meet, reply
from tests.support.model import Call, History, Round, User
from tests.support.plain import RESULT, saying
from tests.support.work import lines_run

LOOP = LoopSettings()
GEMINI = "/v1beta/models/gemini-test:generateContent"
TASK = User("Find the zebra crossing.")
MOST = 12
"""Executions after which nobody waits for a verdict any more."""

NUDGES: dict[str, Callable[[int], str]] = {
    "continue": lambda _: "Continue.",
    "please continue": lambda _: "Please continue with the next step.",
    "a step": lambda turn: f"Current step: {turn}/50",
    "a state": lambda turn: json.dumps({"step": turn, "status": "idle" if turn % 2 else "running", "left": 50 - turn}),
}
UNKNOWN: dict[str, Callable[[int], str]] = {
    "a sentence": lambda _: "Have you reached your goal? If not, call the next tool.",
    "a sentence with a count": lambda turn: f"So far you have used {turn} of 50 tokens. Mind them.",
    "a sentence with a time": lambda turn: f"It is 10:4{turn % 10}:07 now. Go on until the goal is reached.",
    "a sentence with a state": lambda turn: f"Browser status: {('idle', 'busy')[turn % 2]}. What do you do next?",
}


@dataclass(frozen=True)
class Harness:
    """A harness that says something behind the results of each round; `call`: what the model calls, `brings`: what the
    n-th execution brings."""

    kit: DialectKit
    says: Callable[[int], str]
    call: Callable[[int], str] = lambda _: '{"q": "zebra"}'
    brings: Callable[[int], str] = lambda _: RESULT
    keeps: int = MOST
    """So many rounds are shown, the newest."""

    def executions(self) -> int:
        """How many calls run until one is stopped, or `MOST`."""
        return asyncio.run(self._run(Session("chance_then_block")))

    async def _run(self, session: Session) -> int:
        turns: list[User | Round] = []
        try:
            for done in range(MOST):
                call = Call(f"call_{done}", "search", (self.call(done),))
                shown = History((TASK, *turns[-2 * self.keeps :]))
                answer = reply(self.kit, saying(call, tag=f"t{done}"), stream=True)
                met = await session.exchange(ask(self.kit, shown, stream=True), answer)
                if not self.kit.read(met.body, stream=True)[0].calls:
                    return done
                turns += [Round((call,), (self.brings(done),)), User(self.says(done + 1))]
        finally:
            await session.close()
        return MOST


@every_dialect
@pytest.mark.parametrize("nudge", NUDGES)
def test_known_words_begin_nothing(kit: DialectKit, nudge: str) -> None:
    """The third call is stopped, as without them."""
    assert Harness(kit, NUDGES[nudge]).executions() == 2


@every_dialect
@pytest.mark.parametrize("nudge", UNKNOWN)
def test_the_same_again_begins_nothing(kit: DialectKit, nudge: str) -> None:
    """Of words that nobody knows the first may be a person's, so it is one call later."""
    assert Harness(kit, UNKNOWN[nudge]).executions() == 3


@every_dialect
def test_what_was_said_twice_is_said_again(kit: DialectKit) -> None:
    """The same words twice, in one message where the format joins them, and then once: nobody has said anything new."""
    turns: list[User | Round] = [TASK]
    for at, times in enumerate((1, 2, 1)):
        turns += [Round((Call(f"call_{at}", "search", ('{"q": "zebra"}',)),), (RESULT,)), *[User("And now?")] * times]
    answer = reply(kit, saying(Call("call_again", "search", ('{"q": "zebra"}',))), stream=True)
    met = meet(ask(kit, History(tuple(turns)), stream=True), [answer], "block")
    assert not kit.read(met.body, stream=True)[0].calls


@every_dialect
@pytest.mark.parametrize("nudge", [*NUDGES, *UNKNOWN])
def test_what_brings_news_goes_on(kit: DialectKit, nudge: str) -> None:
    """The mirror image: other calls, whatever is said between."""
    says = (NUDGES | UNKNOWN)[nudge]
    assert Harness(kit, says, call=lambda done: json.dumps({"q": "zebra " + "x" * done})).executions() == MOST


@every_dialect
def test_a_person_is_heard(kit: DialectKit) -> None:
    """Texts that are new each time are a person's, and begin anew."""
    said = ["Look again.", "Are you sure?", "Once more.", "Try it now.", "And now?", "Now?", "Is it there?", "Well?"]
    assert Harness(kit, lambda turn: said[turn % len(said)]).executions() == MOST


@every_dialect
@pytest.mark.parametrize("keeps", [1, 2, 3, 5])
def test_a_history_that_is_cut(kit: DialectKit, keeps: int) -> None:
    """Where the client shows its newest rounds only, and what was said behind them. What is said again must be there
    twice, unless its words are known."""
    assert Harness(kit, NUDGES["a step"], keeps=keeps).executions() == 2
    if keeps > 1:
        assert Harness(kit, UNKNOWN["a sentence with a count"], keeps=keeps).executions() == 3


def read_request(path: str, body: bytes) -> Request:
    """A body as the dialect of a path reads it."""
    dialect = dialect_of(path)
    assert dialect
    request = dialect.read_request(body, loads(body), path)
    assert request
    return request


def image(turn: int) -> str:
    """The bytes of a screenshot, as all formats write them."""
    return base64.b64encode(b"screen %d" % turn).decode()


def of_chat(shown: str, said: list[str]) -> list[dict[str, Any]]:
    """A round of OpenAI chat whose screenshot stands behind the result, with a caption or alone."""
    call = {"id": "c", "type": "function", "function": {"name": "click", "arguments": "{}"}}
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{shown}"}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "ok"},
        {"role": "user", "content": [*[{"type": "text", "text": one} for one in said], picture]},
    ]


def of_anthropic(shown: str, said: list[str]) -> list[dict[str, Any]]:
    """A round of Anthropic whose screenshot stands beside the result."""
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": shown}}
    texts = [{"type": "text", "text": one} for one in said]
    result = {"type": "tool_result", "tool_use_id": "c", "content": "ok"}
    return [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "click", "input": {}}]},
        {"role": "user", "content": [result, *texts, picture]},
    ]


def of_responses(shown: str, said: list[str]) -> list[dict[str, Any]]:
    """A round of the Responses API whose screenshot stands behind the result."""
    picture = {"type": "input_image", "image_url": f"data:image/png;base64,{shown}"}
    return [
        {"type": "function_call", "call_id": "c", "name": "click", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "ok"},
        {"role": "user", "content": [*[{"type": "input_text", "text": one} for one in said], picture]},
    ]


def of_gemini(shown: str, said: list[str]) -> list[dict[str, Any]]:
    """A round of Gemini whose screenshot stands beside the response."""
    picture = {"inlineData": {"mimeType": "image/png", "data": shown}}
    response = {"functionResponse": {"name": "click", "response": {"output": "ok"}}}
    return [
        {"role": "model", "parts": [{"functionCall": {"name": "click", "args": {}}}]},
        {"role": "user", "parts": [response, *[{"text": one} for one in said], picture]},
    ]


def of_gemini_behind(shown: str, said: list[str]) -> list[dict[str, Any]]:
    """The same behind the response."""
    model, user = of_gemini(shown, said)
    response, *more = user["parts"]
    return [model, user | {"parts": [response]}, user | {"parts": more}]


def of_ollama(shown: str, said: list[str]) -> list[dict[str, Any]]:
    """A round of Ollama whose screenshot stands behind the result."""
    return [
        {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "click", "arguments": {}}}]},
        {"role": "tool", "tool_name": "click", "content": "ok"},
        {"role": "user", "content": " ".join(said), "images": [shown]},
    ]


SHOWN = {
    "chat": ("/v1/chat/completions", "messages", of_chat, {"role": "user", "content": "Click."}),
    "anthropic": ("/v1/messages", "messages", of_anthropic, {"role": "user", "content": "Click."}),
    "responses": ("/v1/responses", "input", of_responses, {"role": "user", "content": "Click."}),
    "gemini": (GEMINI, "contents", of_gemini, {"role": "user", "parts": [{"text": "Click."}]}),
    "gemini behind": (GEMINI, "contents", of_gemini_behind, {"role": "user", "parts": [{"text": "Click."}]}),
    "ollama": ("/api/chat", "messages", of_ollama, {"role": "user", "content": "Click."}),
}


@pytest.mark.parametrize("said", [[], ["Screenshot after the action:"], ["Step 1/50", "The current screen:"]])
@pytest.mark.parametrize("format_", SHOWN)
def test_a_screenshot_is_part_of_the_result(format_: str, said: list[str]) -> None:
    """It begins nothing; where it shows something else, the click has done something."""
    path, key, of_format, task = SHOWN[format_]
    outcomes = []
    for shown in (image(1), image(1), image(2)):
        body = json.dumps(
            {"model": "m", "max_tokens": 100, "tools": [{}], key: [task, *of_format(shown, said)]}
        ).encode()
        request = read_request(path, body)
        [round_, task_before] = request.rounds()
        assert round_ is not None
        assert task_before is None
        outcomes.append(round_.calls[0].outcome)
    first, same, other = outcomes
    assert first == same
    assert first != other


def test_a_chain_is_nudged() -> None:
    """Where the vendor has the conversation and a request only what is new, the ledger knows what was said last."""
    state = LaneState()
    counts = []
    for turn in range(4):
        output = {"type": "function_call_output", "call_id": f"c{turn - 1}", "output": "ok"}
        said = {"role": "user", "content": UNKNOWN["a sentence with a count"](turn) if turn else "Go."}
        body = {"model": "m", "tools": [{}], "input": [output, said] if turn else [said]}
        if turn:
            body["previous_response_id"] = f"resp_{turn - 1}"
        conversation = read_conversation(read_request("/v1/responses", json.dumps(body).encode()), state, turn, LOOP)
        counts.append(len(conversation.timeline.rounds))
        made = PastCall(ToolCall(f"c{turn}", "search", "{}"))
        state = conversation.evidence.after([[made]], [], turn + 0.5, max_rounds=128)
    assert counts == [0, 0, 1, 2]


@pytest.mark.parametrize("ids", [by_number, without])
def test_a_try_counts_once(ids: Ids) -> None:
    """The same request again, behind the same words, shows the same timeline."""
    lane = Lane(ids)
    said = ["user: go", "a=x", "user: What next, agent?", "a=x", "user: What next, agent?"]
    lane.answer(*said[:1], brings=["a"])
    for end in (3, 5):
        seen = []
        for _ in range(3):
            seen.append(words(lane.look(*said[:end]).timeline))
            lane.answer(*said[:end], brings=["a"])
        assert seen == [seen[0]] * 3
    assert words(lane.look(*said).timeline) == ["a=x"]


def test_many_nudges_are_read_in_linear_time() -> None:
    """However many a client sends behind one result, and behind the next."""

    def work(size: int) -> int:
        said = ["user: What next, agent?"] * size
        body = json.dumps({"model": "m", "messages": messages(["user: go", "a=x", *said, "a=x", *said])}).encode()
        request = read_request("/v1/chat/completions", body)
        return lines_run(lambda: [*request.rounds()])

    assert work(400) < 5 * work(100)
