"""Laws 1 to 5, 7 and 12 for arguments that run away: found at a fixed place of their own text, in any dialect.

A call of which nothing has left is withheld, as any other. Where the client has seen it begin, what it has stays, and
the answer ends as at the vendor's length limit, so that nobody takes the half call for a whole one.
"""

import json
import logging
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callfuse.detect.runaway import LOOK
from tests.support.examples import fewer_examples
from tests.support.kits import DialectKit, stream_of
from tests.support.meeting import (
    MARK,
    Meeting,
    Session,
    ask,
    every_dialect,
    framewise,
    in_session,
    meet,
    reply,
    streamed_and_whole,
)
from tests.support.model import Call, History, Quirks, Round, User, seen
from tests.support.plain import RESULT, again, new_call, saying, spin
from tests.support.rules import violations
from tests.support.scripted import Reply, whole
from tests.support.streams import chunkings

FRESH = History((User("Find the giraffe."),))
CONVERSATIONS = pytest.mark.parametrize("history", [FRESH, spin(beside=True)], ids=["healthy", "suspect"])
LAP = "The sauce must be stirred until it is thick. "
PIECE = 30
FOUND_AT = 3 * LOOK
"""Characters: the first window begins with other words, so that the second one is the first that goes in laps."""
LENGTH_LIMIT = {
    "openai-chat": b'"finish_reason":"length"',
    "openai-responses": b'"reason":"max_output_tokens"',
    "anthropic": b'"stop_reason":"max_tokens"',
    "gemini": b'"MAX_TOKENS"',
    "cohere-v2": b'"finish_reason":"MAX_TOKENS"',
    "bedrock-converse": b'"stopReason":"max_tokens"',
    "gemini-interactions": b'"status":"incomplete"',
}
"""How each dialect's stream ends at the length limit, of those that send arguments in pieces."""
SAYS_WHY = {"openai-chat", "openai-responses", "gemini"}
"""Those in which a text may stand behind a call."""


RETRY = "Tool call error: No tool calls found in the response. Every response MUST include at least one tool call."


def long_call(text: str, id_: str = "call_x1") -> Call:
    """A call that writes this text, in pieces."""
    arguments = json.dumps({"path": "a.txt", "text": text})
    return Call(id_, "search", tuple(arguments[at : at + PIECE] for at in range(0, len(arguments), PIECE)))


ENDLESS = long_call(LAP * 300)
HEALTHY = long_call("".join(f"Line {at * at} of {at % 7} cups, {at * 31 % 17}. " for at in range(500)))


def told(met: Meeting) -> list[str]:
    """What the log says of it."""
    return [text for text in met.log_at(logging.INFO) if "kind=runaway" in text]


@every_dialect
@CONVERSATIONS
@pytest.mark.parametrize("beside", [(), (new_call(),)], ids=["alone", "beside"])
def test_a_stream_ends(kit: DialectKit, history: History, beside: tuple[Call, ...]) -> None:
    """The app is left, nothing that came before is lost, a complete sibling stays, and it is told once."""
    answer = saying("Let me look.", *beside, ENDLESS)
    script = framewise(kit, answer)
    met = meet(ask(kit, history, stream=True), [script])
    assert met.client.complete
    assert met.client.raised is None
    assert len(told(met)) == 1
    assert all(call.id.encode() in met.body for call in beside)
    if kit.name == "ollama" or ENDLESS.id.encode() not in met.body:  # calls come whole: it is withheld as any other
        assert ENDLESS.id.encode() not in met.body
        assert kit.faults(met.body) == []
        (view,) = kit.read(met.body, stream=True)
        assert view.calls == tuple(map(seen, beside))
        assert (MARK in view.text) is not bool(beside)
        return
    whole_stream = stream_of(kit, answer)
    same = next(at for at, (one, other) in enumerate(zip(met.body, whole_stream, strict=False)) if one != other)
    assert LENGTH_LIMIT[kit.name] in met.body[same - 200 :].replace(b": ", b":")
    if kit.name != "gemini":  # its pieces are values, which are looked at when they have doubled
        assert met.app.cancelled or met.app.turn < len(script.chunks) / 1.5
        gone = [frame for frame in kit.frames(answer) if (same := same - len(frame.raw)) >= 0]
        pieces = sum(frame.kind == "piece" and frame.item == len(beside) + 1 for frame in gone)
        assert FOUND_AT <= pieces * PIECE < FOUND_AT + 2 * PIECE
    assert (MARK.encode() in met.body) is (kit.name in SAYS_WHY and not beside)


@every_dialect
@CONVERSATIONS
@fewer_examples(4)
@given(data=st.data())
def test_the_cut_does_not_matter(kit: DialectKit, history: History, data: st.DataObject) -> None:
    """Cut anywhere: the same bytes, the same log."""
    answer = saying("Let me look.", ENDLESS)
    script = reply(kit, answer, stream=True)
    some = data.draw(st.integers(1, 3000))
    even = tuple(script.body[at : at + some] for at in range(0, len(script.body), some))
    scripts = [script, framewise(kit, answer), Reply(even), script.cut(data.draw(chunkings(script.body)))]
    first, *others = [meet(ask(kit, history, stream=True), [one]) for one in scripts]
    for other in others:
        assert (other.body, other.log) == (first.body, first.log)
        assert other.client.complete


@every_dialect
@streamed_and_whole
@CONVERSATIONS
@pytest.mark.parametrize("ladder", ["observe", "warn"])
def test_what_only_watches_leaves_it_alone(kit: DialectKit, stream: bool, history: History, ladder: str) -> None:
    """Every byte leaves, and it is told once."""
    script = reply(kit, saying("Let me look.", ENDLESS), stream=stream)
    for caps in ({}, {"detectors": {"runaway_most": ladder}}):
        met = meet(ask(kit, history, stream=stream), [script], "block" if caps else ladder, **caps)
        assert met.body == script.body
        assert len(told(met)) == 1


@every_dialect
@streamed_and_whole
@CONVERSATIONS
def test_what_is_long_and_healthy_passes(kit: DialectKit, stream: bool, history: History) -> None:
    """Byte for byte; so does what runs away, where that is turned off."""
    script = reply(kit, saying("Let me look.", HEALTHY), stream=stream)
    met = meet(ask(kit, history, stream=stream), [script])
    assert met.body == script.body
    assert told(met) == []
    script = reply(kit, saying("Let me look.", ENDLESS), stream=stream)
    met = meet(ask(kit, history, stream=stream), [script], detectors={"runaway": False})
    assert met.body == script.body


@every_dialect
def test_a_whole_answer_is_judged_when_it_is_read(kit: DialectKit) -> None:
    """The call is withheld as any other: blocked, or the model is asked again, where that can be done."""
    answer = saying("Let me look.", ENDLESS)
    request = ask(kit, FRESH, stream=False)
    for ladder in ("block", "steer"):
        met = meet(request, [reply(kit, answer, stream=False)], ladder)
        (view,) = kit.read(met.body, stream=False)
        assert view.calls == ()
        assert MARK in view.text
    better = saying("Another way.", new_call("call_b"), tag="second")
    request = ask(kit, spin(), stream=False)
    met = meet(request, [reply(kit, one, stream=False) for one in (answer, better)], "steer")
    (view,) = kit.read(met.body, stream=False)
    assert view.calls == (seen(new_call("call_b")),)
    assert [violations(kit.name, json.loads(heard.body)) for heard in met.app.heard] == [[], []]


def test_a_whole_answer_that_the_limit_has_cut_off() -> None:
    """Its call is not whole, and runs away: it is withheld, and the reason for its end stays."""
    [kit] = [kit for kit in every_dialect.args[1] if kit.name == "openai-chat"]
    body = json.loads(kit.whole(saying("Let me look.", ENDLESS)))
    [choice] = body["choices"]
    choice["finish_reason"] = "length"
    function = choice["message"]["tool_calls"][0]["function"]
    function["arguments"] = function["arguments"][:-40]
    met = meet(ask(kit, FRESH, stream=False), [whole(json.dumps(body).encode())])
    [got] = json.loads(met.body)["choices"]
    assert got["finish_reason"] == "length"
    assert not got["message"].get("tool_calls")
    assert MARK in got["message"]["content"]


@pytest.mark.parametrize("ladder", ["observe", "block"])
def test_a_stored_conversation_is_observed(ladder: str) -> None:
    """The vendor has the whole answer, and a request may continue it by its id: every byte leaves, and it is told."""
    [kit] = [kit for kit in every_dialect.args[1] if kit.name == "openai-responses"]
    script = reply(kit, saying("Let me look.", ENDLESS), stream=True)
    request = ask(kit, FRESH, stream=True)
    stored = replace(request, body=json.dumps({**json.loads(request.body), "store": True}).encode())
    met = meet(stored, [script], ladder)
    assert met.body == script.body
    assert [("action=observe" in text) for text in told(met)] == [True]


@pytest.mark.parametrize("history", [FRESH, spin(beside=True)], ids=["healthy", "suspect"])
@pytest.mark.parametrize(("ladder", "choices"), [("observe", 1), ("warn", 1), ("block", 2)])
def test_what_the_limit_has_cut_off_is_told_too(history: History, ladder: str, choices: int) -> None:
    """Its call is not whole, so that it is no part of a round; every byte leaves."""
    [kit] = [kit for kit in every_dialect.args[1] if kit.name == "openai-chat"]
    frames = [frame.raw for frame in kit.frames(saying("Let me look.", ENDLESS))]
    ends = next(at for at, raw in enumerate(frames) if b'"finish_reason":"tool_calls"' in raw.replace(b": ", b":"))
    cut = [raw.replace(b"tool_calls", b"length") for raw in frames[ends:]]
    script = Reply((*frames[: ends - 3], *cut))
    met = meet(ask(kit, history, stream=True, n=choices), [script], ladder)
    assert met.body == script.body
    assert len(told(met)) == 1


@every_dialect
@CONVERSATIONS
def test_a_call_in_one_frame_is_withheld(kit: DialectKit, history: History) -> None:
    """Nothing of it has left, so its block's text stands in its place."""
    answer = saying("Let me look.", ENDLESS, quirks=Quirks(whole_calls=True))
    first = next(frame.raw for frame in kit.frames(answer) if ENDLESS.id.encode() in frame.raw)
    if LAP.encode() not in first:
        pytest.skip("its calls open with a frame of their own")
    met = meet(ask(kit, history, stream=True), [framewise(kit, answer)])
    assert ENDLESS.id.encode() not in met.body
    assert kit.faults(met.body) == []
    (view,) = kit.read(met.body, stream=True)
    assert view.calls == ()
    assert MARK in view.text


@every_dialect
def test_the_next_turn(kit: DialectKit) -> None:
    """A client that drops the half call goes on, by itself; after some blocks in a row the fuse blows."""
    answer = saying("Let me look.", ENDLESS)

    async def talk(session: Session) -> None:
        history = FRESH
        for _ in range(6):
            await session.exchange(ask(kit, history, stream=True), framewise(kit, answer))
            history = history.and_then(Round((), (), "Let me look."), User(RETRY))

    *met, last = in_session(talk, blow_after=5).meetings
    assert [sum("Tool call loop detected" in text for _, _, text in one.log) for one in met] == [1] * 5
    assert last.app.heard == []


@every_dialect
def test_the_half_call_comes_back(kit: DialectKit) -> None:
    """Some clients send it with the arguments that they have, and a result: the vendor gets a history that it takes."""
    half = Call(ENDLESS.id, ENDLESS.name, ('{"path": "a.txt"}',))
    history = History((*FRESH.turns, Round((new_call(), half), (RESULT, "Error: invalid JSON in the arguments"))))

    async def talk(session: Session) -> None:
        await session.exchange(ask(kit, FRESH, stream=True), framewise(kit, saying(new_call(), ENDLESS)))
        await session.exchange(ask(kit, history, stream=True), reply(kit, saying("Ok."), stream=True))

    first, second = in_session(talk).meetings
    assert len(told(first)) == 1
    [heard] = second.app.heard
    assert violations(kit.name, json.loads(heard.body)) == []
    assert second.body == stream_of(kit, saying("Ok."))


@every_dialect
@pytest.mark.parametrize("beside", [(), (new_call(),)], ids=["alone", "beside"])
def test_a_held_call_is_withheld(kit: DialectKit, beside: tuple[Call, ...]) -> None:
    """Nothing of it has left: the answer is cut short in the middle of it, and ends as any without it."""
    held = replace(ENDLESS, name="web")
    answer = saying("Let me look.", *beside, held)
    script = framewise(kit, answer)
    met = meet(ask(kit, spin(tool="web"), stream=True), [script])
    assert held.id.encode() not in met.body
    assert kit.faults(met.body) == []
    (view,) = kit.read(met.body, stream=True)
    assert kit.sdk(met.body, stream=True) == (view,)
    assert view.calls == tuple(map(seen, beside))
    assert view.finish == (kit.called if beside else kit.stopped)
    assert (MARK in view.text) is not bool(beside)
    assert kit.name in ("ollama", "gemini") or met.app.cancelled or met.app.turn < len(script.chunks) / 1.5


@every_dialect
@CONVERSATIONS
def test_a_callback_lets_it_go(kit: DialectKit, history: History) -> None:
    """Then every byte leaves, also what waited for its word."""
    script = framewise(kit, saying("Let me look.", ENDLESS))
    asked: list[str] = []

    def allow(event: Any) -> str:
        asked.append(event.finding.kind)
        return "allow"

    met = meet(ask(kit, history, stream=True), [script], on_loop=allow)
    assert met.body == script.body
    assert asked == ["runaway"]


@every_dialect
def test_a_second_answer_runs_away(kit: DialectKit) -> None:
    """The model was asked again: what it has said in both answers stays, and the stream ends as that of a first one."""
    answer = saying("Another way.", ENDLESS, tag="second")
    met = meet(ask(kit, spin(), stream=True), [framewise(kit, again()), framewise(kit, answer)], "chance_then_block")
    assert len(met.app.heard) == 2
    assert met.client.complete
    assert len(told(met)) == 1
    assert again().calls()[0].id.encode() not in met.body
    assert b"Let me look." in met.body
    if ENDLESS.id.encode() not in met.body:
        assert kit.faults(met.body) == []
    else:
        assert LENGTH_LIMIT[kit.name] in met.body.replace(b": ", b":")
    if kit.name in ("openai-responses", "anthropic"):  # its faults know the length limit, but for the reason itself
        assert [fault for fault in kit.faults(met.body) if "max_tokens" not in fault] == []


@every_dialect
def test_a_warning_stands_in_its_result(kit: DialectKit) -> None:
    """By the history alone, as that of any other kind; where a cap makes it one, too."""
    history = FRESH.and_then(Round((ENDLESS,), (RESULT,)))
    for ladder, caps in (("warn", {}), ("block", {"detectors": {"runaway_most": "warn"}})):
        met = meet(ask(kit, history, stream=True), [framewise(kit, saying("Ok."))], ladder, **caps)
        [heard] = met.app.heard
        [(_, result)] = kit.results(heard.body)
        assert result.startswith(RESULT)
        assert MARK in result
        assert violations(kit.name, json.loads(heard.body)) == []
