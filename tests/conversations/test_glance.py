"""What a glance says of a short conversation is what reading it says; of such a conversation nothing is read."""

import copy
import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callfuse.conversations.conversation import Conversation
from callfuse.conversations.glance import SHORT, is_all_new
from callfuse.conversations.identity import Lane
from callfuse.conversations.ledger import LaneState, MemoryLedger
from callfuse.conversations.notes import notes_for
from callfuse.detect import Engine
from callfuse.dialects.base import Request
from callfuse.dialects.openai_chat.request import ChatRequest
from callfuse.dialects.openai_responses import OpenAIResponses
from callfuse.model import ToolCall
from callfuse.policy.settings import FEW, LoopSettings
from tests.conversations.talks import messages, request
from tests.detect.drawn import settings
from tests.dialects.test_parsed import read as read_by_kit
from tests.guard.driving import read
from tests.guard.written import OPENAI
from tests.support.asgi import run
from tests.support.config import guard
from tests.support.kits import KITS, DialectKit
from tests.support.meeting import ask, every_dialect, framewise
from tests.support.model import Answer, Call, History, Round, Text, User
from tests.support.scripted import play

UNKNOWN = LaneState()
TURNS = st.lists(
    st.one_of(
        st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 3)), min_size=1, max_size=2),
        st.sampled_from([User("Go on."), User("<system-reminder>x</system-reminder>")]),
    ),
    max_size=6,
)
CHOSEN = st.one_of(
    st.just(LoopSettings()),
    st.sampled_from(["warn", "block"]).map(lambda one: LoopSettings.model_validate({"mode": one})),
)


CHAT = next(kit for kit in KITS if kit.name == "openai-chat")


def page(number: int) -> Call:
    """A call that is made once."""
    return Call(f"call_{number}", "lookup", (f'{{"page": {number}}}',))


HISTORY = History((User("Read."), Round((page(1),), ("A page.",)), Round((page(2),), ("A page.",))))


def asked(kit: DialectKit, turns: list[Any], error: str) -> Request:
    """A request of these turns; each call brings the same."""
    said: list[User | Round] = [User("Find it.")]
    for at, turn in enumerate(turns):
        if isinstance(turn, User):
            said.append(turn)
            continue
        calls = tuple(Call(f"call_{at}_{nth}", name, (f'{{"at": {n}}}',)) for nth, (name, n) in enumerate(turn))
        said.append(Round(calls, (error,) * len(calls)))
    return read_by_kit(kit, ask(kit, History(tuple(said)), stream=True).body)


@every_dialect
@given(turns=TURNS, chosen=st.one_of(CHOSEN, settings()), error=st.sampled_from(["fine", "Error: no such table"]))
def test_what_is_all_new_shows_nothing(kit: DialectKit, turns: list[Any], chosen: LoopSettings, error: str) -> None:
    """No call could be found, no result carries a text, nothing is learned; what is kept is what reading it keeps."""
    request = asked(kit, turns, error)
    if is_all_new(request, UNKNOWN, chosen):
        shows_nothing(request, chosen)


@pytest.mark.parametrize("chained", [False, True])
def test_of_a_chain_it_is_what_has_come(chained: bool) -> None:
    """A vendor that has the conversation has calls that neither the request nor the ledger knows."""
    calls = [{"type": "function_call", "call_id": f"call_{at}", "name": "a", "arguments": f"[{at}]"} for at in range(2)]
    results = [{"type": "function_call_output", "call_id": f"call_{at}", "output": "fine"} for at in range(2)]
    body = {"model": "m", "tools": [{"type": "function", "name": "a"}], "input": [*calls, *results]}
    if chained:
        body |= {"previous_response_id": "resp_1", "input": results}
    request = OpenAIResponses().read_request(json.dumps(body).encode(), body)
    assert request is not None
    assert request.continuing.chained is chained
    assert is_all_new(request, UNKNOWN, LoopSettings())
    shows_nothing(request, LoopSettings())


def shows_nothing(request: Request, chosen: LoopSettings) -> None:
    """The request, read."""
    conversation = Conversation(request, UNKNOWN, 1.0, chosen)
    assert [*Engine(conversation.timeline, chosen).suspects()] == []
    assert not conversation.may_fail_again()
    assert notes_for(conversation) == []
    assert conversation.learned is None
    unread = Conversation(request, UNKNOWN, 1.0, chosen)
    unread.looked_over(None, is_calm=True, judged=chosen.warns)
    brought = [[ToolCall("call_new", "a", '{"at": 9}')]]
    assert unread.after(brought, [], 2.0, max_rounds=9) == conversation.after(brought, [], 2.0, max_rounds=9)


@pytest.mark.parametrize(
    "parts",
    [
        ("user: Go.",),
        ("user: Go.", "a1=x"),
        ("user: Go.", "a1=x", "a2=x"),
        ("user: Go.", "a1=x b1=x", "a2"),
        ("user: Go.", "a1=x", "user: And?", "a2=x"),
        ("user: Go.", *["user: And?"] * (SHORT - 1)),
    ],
    ids=["no call", "one", "two", "in one round", "after a user", "a talk"],
)
def test_what_is_new(parts: tuple[str, ...]) -> None:
    """Short histories in which no call comes twice."""
    assert is_all_new(request(*parts), UNKNOWN, LoopSettings())


@pytest.mark.parametrize(
    "parts",
    [
        ("user: Go.", "a1=x", "a1=x"),
        ("user: Go.", "a1=x", "b1=x", "a1=x"),
        ("user: Go.", "a1=x a1=x"),
        ("user: Go.", "a1=x", "user: And?", "a1=x"),
        ("user: Go.", "=x"),
        ("user: Go.", *[f"a{at}=x" for at in range(FEW + 1)]),
        ("user: Go.", *["user: And?"] * SHORT),
    ],
    ids=["again", "later", "beside", "after a user", "nameless", "too many", "too long"],
)
def test_what_has_to_be_read(parts: tuple[str, ...]) -> None:
    """A call that comes again, one that may be any, and histories for which reading is no dearer."""
    assert not is_all_new(request(*parts), UNKNOWN, LoopSettings())


@pytest.mark.parametrize(
    "changed",
    [
        {"max_repeats": 2},
        {"no_repeats_after": 1},
        {"per_tool": {"a": {"ignore": ["page"]}}},
        {"max_calls": 2},
        {"detectors": {"same_error": 2}},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_settings_under_which_more_can_be_found(changed: dict[str, Any]) -> None:
    """Two calls that differ are enough, or may be the same."""
    asked = request("user: Go.", "a1=x", "a2=x")
    assert is_all_new(asked, UNKNOWN, LoopSettings())
    assert not is_all_new(asked, UNKNOWN, LoopSettings.model_validate(changed))


def test_a_call_is_the_same_however_it_is_written() -> None:
    """White space, keys in another order, another number with the same value."""
    said = messages(["user: Go.", "a1=x", "a2=x"])
    said[1]["tool_calls"][0]["function"]["arguments"] = '{"p": 1, "q": 2}'
    for arguments, is_new in (('{"q":2.0,"p":1}', False), ('{"q":2,"p":3}', True), ("{", False)):
        said[3]["tool_calls"][0]["function"]["arguments"] = arguments
        body = {"model": "m", "messages": said, "tools": [{"type": "function"}]}
        assert is_all_new(read(OPENAI, json.dumps(body).encode()), UNKNOWN, LoopSettings()) is is_new


def test_a_tool_that_is_not_declared_has_to_be_read() -> None:
    """It may be found by its name alone."""
    body = {"model": "m", "messages": messages(["user: Go.", "a1=x"])}
    for declared, is_new in (("a", True), ("b", False)):
        tools = [{"type": "function", "function": {"name": declared}}]
        asked = read(OPENAI, json.dumps(body | {"tools": tools}).encode())
        assert is_all_new(asked, UNKNOWN, LoopSettings()) is is_new


def test_what_the_ledger_knows_has_to_be_read() -> None:
    """Rounds and notes that are kept of a lane."""
    asked = request("user: Go.", "a1=x")
    known = Conversation(asked, UNKNOWN, 1.0, LoopSettings())
    brought = ToolCall("call_2", "a", '{"n":2}')
    assert not is_all_new(asked, known.after([[brought]], [], 2.0, max_rounds=9), LoopSettings())
    noted = copy.copy(UNKNOWN)
    noted.notes = {("id0", brought.signature, 0): "[callfuse] Stop."}
    assert not is_all_new(asked, noted, LoopSettings())


def test_nothing_is_read_for_a_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither rounds nor the body once more; where a call comes both are, and it is kept."""
    done: list[str] = []
    rounds, take = ChatRequest.rounds, ChatRequest._take

    def told_rounds(self: ChatRequest) -> Any:
        done.append("rounds")
        return rounds(self)

    def told_take(self: ChatRequest, payload: Any) -> None:
        done.append("body")
        take(self, payload)

    monkeypatch.setattr(ChatRequest, "rounds", told_rounds)
    monkeypatch.setattr(ChatRequest, "_take", told_take)
    ledger = MemoryLedger(max_lanes=9, ttl_s=999)
    asked = ask(CHAT, HISTORY, stream=True)
    run(guard(play(framewise(CHAT, Answer(((Text(("Done.",)),),)))), "block", store=ledger), asked)
    assert done == ["body"]
    assert not len(ledger)
    run(guard(play(framewise(CHAT, Answer(((page(3),),)))), "block", store=ledger), asked)
    assert done[:2] == ["body", "body"]
    assert "rounds" in done
    assert len(ledger) == 1


@pytest.mark.parametrize(("ladder", "judged"), [("block", False), ("warn", True)])
def test_what_need_not_be_read_need_not_be_looked_over_again(ladder: str, judged: bool) -> None:
    """The state that a call leaves says so."""
    kept: list[LaneState] = []

    class Told(MemoryLedger):
        async def write(self, lanes: Mapping[Lane, LaneState], now: float) -> None:
            kept.extend(lanes.values())
            await super().write(lanes, now)

    asked = ask(CHAT, HISTORY, stream=True)
    run(guard(play(framewise(CHAT, Answer(((page(3),),)))), ladder, store=Told(max_lanes=9, ttl_s=999)), asked)
    assert [(state.examined, state.judged) for state in kept] == [(read_by_kit(CHAT, asked.body).length, judged)]
