"""The rungs between a steer and a block: the model may only speak, or another model answers, in the same exchange."""

import json
from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callfuse.dialects.addresses import model_in
from tests.support.asgi import Request
from tests.support.config import ENDLESS, LADDERS, OTHER_MODEL
from tests.support.kits import KITS, STREAMS, DialectKit
from tests.support.meeting import (
    MARK,
    Meeting,
    Session,
    ask,
    every_dialect,
    in_session,
    meet,
    reply,
    streamed_and_whole,
)
from tests.support.model import Answer, History, Round, Thinking, seen
from tests.support.plain import RESULT, again, elsewhere, new_call, same_call, saying, spin
from tests.support.rules import violations
from tests.support.scripted import Heard, whole
from tests.support.streams import KNOWN, answers, chunkings, fresh, looping
from tests.support.wire import is_insertion

SHUT: dict[str, tuple[str, Any]] = {
    "openai-chat": ("tool_choice", "none"),
    "openai-responses": ("tool_choice", "none"),
    "anthropic": ("tool_choice", {"type": "none"}),
    "gemini": ("toolConfig", {"functionCallingConfig": {"mode": "NONE"}}),
    "cohere-v2": ("tool_choice", "NONE"),
    "gemini-interactions": ("generation_config", "none"),
}
"""How a vendor is told that no tool may be called. Ollama cannot be told: there the tools go."""
STAND_IN = b',"thoughtSignature":"skip_thought_signature_validator"'
THOUGHT = Thinking(("pondering ", "deeply"), "cG9uZGVyaW5n")
OTHERS_THOUGHT = Thinking(("musing ", "aloud"), "bXVzaW5n")


def is_told(kit: DialectKit) -> bool:
    """Whether a vendor can be told. Converse cannot, and a history with calls needs its tools: so the next rung."""
    return kit.name in SHUT or kit.name == "ollama"


can_be_told = pytest.mark.parametrize("kit", [*filter(is_told, KITS)], ids=lambda kit: kit.name)


def is_shut(kit: DialectKit, body: bytes) -> bool:
    """Whether a request lets the model call no tool."""
    asked = json.loads(body)
    if kit.name == "ollama":
        return "tools" not in asked
    key, value = SHUT[kit.name]
    if key == "generation_config":
        return bool(asked["tools"]) and asked[key].get("tool_choice") == value
    return bool(asked["tools"]) and asked.get(key) == value


def asks_other(heard: Heard) -> bool:
    """Whether a request goes to the other model."""
    return OTHER_MODEL in heard.path or json.loads(heard.body).get("model") == OTHER_MODEL


def thinks(body: bytes, thought: Thinking) -> bool:
    """Whether a body has anything of a thought; Gemini's signatures are bytes, in base64."""
    encoded = b64encode(thought.signature.encode()).decode().rstrip("=")
    return any(part.encode() in body for part in (*thought.pieces, thought.signature, encoded))


def pondered(kit: DialectKit) -> Request:
    """The request of an agent whose model has thought before its last call, and called the same thing twice."""
    answer = saying(THOUGHT, "Again.", same_call("call_thought"))
    return Request(kit.path, kit.replay(spin(1), kit.whole(answer), stream=False, result=RESULT))


def exchange(kit: DialectKit, ladder: str, *said: Answer, stream: bool, **settings: Any) -> Meeting:
    """One exchange in which the model says these things, one after the other."""
    return meet(ask(kit, spin(), stream=stream), [reply(kit, one, stream=stream) for one in said], ladder, **settings)


def looping_on(count: int, *, thought: Thinking | None = None) -> list[Answer]:
    """Answers that make the same call."""
    tags = ("first", "second", "third", "fourth", "fifth")
    lead = [thought] if thought else []
    return [saying(*lead, f"Try {tag}.", same_call(f"call_{tag}"), tag=tag) for tag in tags[:count]]


@can_be_told
@streamed_and_whole
def test_the_model_may_only_speak(kit: DialectKit, stream: bool) -> None:
    """`force_text`: the request is the steer's, but no tool may be called in it, and the guidance says so."""
    met = exchange(kit, "force_text", again(), saying("It is gone.", tag="second"), stream=stream)
    first, second = (heard.body for heard in met.app.heard)
    assert not is_shut(kit, first)
    assert is_shut(kit, second)
    assert violations(kit.name, json.loads(second)) == []
    called, told = kit.results(second)[-1]
    assert called.startswith("call_first")
    assert told.startswith(MARK)
    assert "No tool can be called now" in told
    (view,) = kit.sdk(met.body, stream=stream)
    assert (view.calls, view.finish) == ((), kit.stopped)
    assert view.text.startswith("Let me look.")
    assert view.text.endswith("It is gone.")
    assert b"call_first" not in met.body
    assert not asks_other(met.app.heard[1])


@can_be_told
@streamed_and_whole
def test_a_model_that_calls_all_the_same(kit: DialectKit, stream: bool) -> None:
    """It takes the next rung where it makes the same call; a new one is delivered."""
    met = exchange(kit, "force_text", *looping_on(2), stream=stream)
    (view,) = kit.sdk(met.body, stream=stream)
    assert (len(met.app.heard), view.calls, view.finish) == (2, (), kit.stopped)
    assert MARK in view.text
    other = exchange(kit, "force_text", again(), elsewhere(), stream=stream)
    assert kit.sdk(other.body, stream=stream)[0].calls == (seen(new_call("call_second")),)


@every_dialect
@streamed_and_whole
def test_another_model_answers(kit: DialectKit, stream: bool) -> None:
    """`escalate`: the same request but for the model's name, and where that wants signatures on calls their stand-in;
    the client's stream keeps its own."""
    met = exchange(kit, "escalate", again(), elsewhere(), stream=stream)
    first, second = met.app.heard
    assert not asks_other(first)
    assert asks_other(second)
    assert violations(kit.name, json.loads(second.body)) == []
    renamed = second.body.replace(OTHER_MODEL.encode(), json.loads(first.body).get("model", OTHER_MODEL).encode())
    assert is_insertion(first.body, renamed.replace(STAND_IN, b""))
    (view,) = kit.sdk(met.body, stream=stream)
    assert view.calls == (seen(new_call("call_second")),)
    assert kit.lineage(met.body, stream=stream) == kit.lineage(met.app.replies[0].body, stream=stream)
    assert OTHER_MODEL.encode() not in met.body


@every_dialect
@streamed_and_whole
def test_reasoning_stays_with_its_model(kit: DialectKit, stream: bool) -> None:
    """The other model is sent none, of the history or of the answer before it; the client gets none of the other's."""
    first = saying(THOUGHT, "Let me look.", same_call("call_first"))
    second = saying(OTHERS_THOUGHT, "Another way.", new_call("call_second"), tag="second")
    asked = pondered(kit)
    assert thinks(asked.body, THOUGHT)
    if stream:
        path, query = ask(kit, spin(), stream=True).path, ask(kit, spin(), stream=True).query
        asked = Request(path, _streaming(asked.body, kit), query=query)
    met = meet(asked, [reply(kit, one, stream=stream) for one in (first, second)], "escalate")
    sent = met.app.heard[1].body
    assert not thinks(sent, THOUGHT)
    assert kit.said(sent).calls, "the call went along"
    assert violations(kit.name, json.loads(sent)) == []
    if stream:
        assert kit.faults(met.body) == []
    (view,) = kit.sdk(met.body, stream=stream)
    assert view.thinking == THOUGHT.text
    assert view.text.endswith("Another way.")
    assert view.calls == (seen(new_call("call_second")),)
    assert not thinks(met.body, OTHERS_THOUGHT)


def _streaming(body: bytes, kit: DialectKit) -> bytes:
    asked = json.loads(body)
    return body if kit.path in STREAMS else json.dumps(asked | {"stream": True}).encode()


@pytest.mark.slow
@every_dialect
@streamed_and_whole
@given(data=st.data())
def test_whatever_the_other_model_says(kit: DialectKit, stream: bool, data: st.DataObject) -> None:
    """In any shape and any chunks: its words and calls go on from the first answer's, without its reasoning."""
    history = data.draw(looping())
    first = data.draw(answers(kit, [KNOWN[0]], many=False, plain=True))
    which = data.draw(st.sampled_from([[], [fresh(0)], [fresh(0), fresh(1)]]))
    second = data.draw(answers(kit, which, many=False, plain=True, tag="second"))
    scripts = [reply(kit, answer, stream=stream) for answer in (first, second)]
    scripts = [script.cut(data.draw(chunkings(script.body))) for script in scripts]
    met = meet(ask(kit, history, stream=stream), scripts, "escalate")
    if stream:
        assert kit.faults(met.body) == []
    (view,) = kit.sdk(met.body, stream=stream)
    thought = "".join(item.text for item in first.choices[0] if isinstance(item, Thinking))
    assert view.thinking == thought
    assert view.text.replace("\n\n", "") == (first.text() + second.text()).replace("\n\n", "")
    assert view.calls == tuple(seen(call) for call in second.calls())
    following = kit.replay(history, met.body, stream=stream, result=RESULT)
    assert violations(kit.name, json.loads(following)) == []


@can_be_told
@streamed_and_whole
def test_every_rung_in_one_exchange(kit: DialectKit, stream: bool) -> None:
    """A model that never listens is asked once on each rung, each time as that rung has it, and then blocked."""
    met = exchange(kit, "every rung", *looping_on(4, thought=THOUGHT), stream=stream)
    asked = met.app.heard
    assert [is_shut(kit, heard.body) for heard in asked] == [False, False, True, False]
    assert [asks_other(heard) for heard in asked] == [False, False, False, True]
    assert [thinks(heard.body, THOUGHT) for heard in asked] == [False, True, True, False]
    assert [len(kit.results(heard.body)) for heard in asked] == [2, 3, 4, 5]
    for heard in asked:
        assert violations(kit.name, json.loads(heard.body)) == []
    (view,) = kit.sdk(met.body, stream=stream)
    assert (view.calls, view.finish) == ((), kit.stopped)
    assert [tag in view.text for tag in ("first.", "second.", "third.", "fourth.", MARK)] == [True] * 5
    found = [text for _, _, text in met.log if text.startswith("Tool call loop detected")]
    assert [text.split("action=")[1].split(",")[0] for text in found] == list(LADDERS["every rung"])
    if not stream:
        assert met.client.header(b"x-callfuse-action") == b"block; kind=repeat; count=6"


@every_dialect
@streamed_and_whole
def test_there_and_back(kit: DialectKit, stream: bool) -> None:
    """After the other model the first one is asked again, with its own reasoning and none of the other's."""
    first, second, third = (
        looping_on(2, thought=THOUGHT)[0],
        looping_on(2, thought=OTHERS_THOUGHT)[1],
        elsewhere(tag="third"),
    )
    met = exchange(kit, "there and back", first, second, third, stream=stream)
    assert [asks_other(heard) for heard in met.app.heard] == [False, True, False]
    back = met.app.heard[2].body
    assert (thinks(back, THOUGHT), thinks(back, OTHERS_THOUGHT)) == (True, False)
    assert violations(kit.name, json.loads(back)) == []
    assert kit.sdk(met.body, stream=stream)[0].calls == (seen(new_call("call_third")),)


@every_dialect
@streamed_and_whole
@pytest.mark.parametrize("ladder", ["force_text", "escalate", "every rung"])
def test_the_header_names_the_last_rung(kit: DialectKit, stream: bool, ladder: str) -> None:
    """Of a whole answer; one that succeeded is named too."""
    met = exchange(kit, ladder, again(), elsewhere(), stream=stream)
    taken = "block" if ladder == "force_text" and not is_told(kit) else LADDERS[ladder][0]
    wanted = None if stream else f"{taken}; kind=repeat; count=3".encode()
    assert met.client.header(b"x-callfuse-action") == wanted


@can_be_told
@streamed_and_whole
def test_a_vendor_that_refuses_takes_the_next_rung(kit: DialectKit, stream: bool) -> None:
    """No such model, no such tool choice: the client learns nothing of it but the answer of the rung after."""
    refused = whole(b'{"error":{"message":"no such model"}}', 404)
    scripts = [reply(kit, again(), stream=stream), refused, refused, reply(kit, elsewhere(), stream=stream)]
    met = meet(ask(kit, spin(), stream=stream), scripts, "every rung")
    assert [is_shut(kit, heard.body) for heard in met.app.heard] == [False, False, True, False]
    assert asks_other(met.app.heard[3])
    assert [len(kit.results(heard.body)) for heard in met.app.heard] == [2, 3, 3, 3]
    assert kit.sdk(met.body, stream=stream)[0].calls == (seen(new_call("call_second")),)


@every_dialect
@streamed_and_whole
@pytest.mark.parametrize("ladder", ENDLESS)
def test_a_ladder_without_a_block_ends_in_one(kit: DialectKit, stream: bool, ladder: str) -> None:
    """Its last rung repeats from round to round, but no model is asked for ever within an exchange."""

    async def talk(session: Session) -> None:
        for history in (spin(2), spin(2).and_then(Round((same_call("call_fourth"),), (RESULT,)))):
            scripts = [reply(kit, one, stream=stream) for one in looping_on(4)]
            await session.exchange(ask(kit, history, stream=stream), *scripts)

    met = in_session(talk, ladder).meetings[-1]
    assert 2 - (ladder == "text at last" and not is_told(kit)) <= len(met.app.heard) <= 1 + len(LADDERS[ladder])
    (view,) = kit.sdk(met.body, stream=stream)
    assert (view.calls, view.finish) == ((), kit.stopped)
    assert MARK in view.text


@every_dialect
def test_no_other_model_where_it_is_the_same(kit: DialectKit) -> None:
    """A client that asks the other model already has none to escalate to."""
    request = ask(kit, History(spin().turns), stream=True)
    own = model_in(request.path) or json.loads(request.body)["model"]
    met = meet(request, [reply(kit, again(), stream=True)], "escalate", escalate_model=own)
    assert len(met.app.heard) == 1
    assert b"call_first" not in met.body
