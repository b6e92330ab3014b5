"""A long history is looked over once: who knows that there is no loop in it looks at what is new alone."""

import json
from collections import Counter
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callfuse.conversations.conversation import Conversation
from callfuse.conversations.ledger import LaneState, MemoryLedger
from callfuse.conversations.notes import notes_for
from callfuse.dialects.openai_chat.request import ChatRequest
from callfuse.policy.settings import LoopSettings
from tests.conversations.talks import messages
from tests.guard.driving import read
from tests.guard.written import OPENAI
from tests.support.asgi import JSON_REQUEST, Request, run
from tests.support.config import guard
from tests.support.kits import DialectKit
from tests.support.meeting import ask, every_dialect, framewise, reply, streamed_and_whole
from tests.support.model import Answer, Call, History, Round, Text, User
from tests.support.scripted import play, whole

ERROR = "Error: no such table"
PATH = "/v1/chat/completions"


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many rounds are read, and how often their tools are told, and bodies parsed."""
    done: Counter[str] = Counter()
    rounds, tools, take = ChatRequest.rounds, ChatRequest.tools, ChatRequest._take

    def counted_rounds(self: ChatRequest) -> Any:
        for round_ in rounds(self):
            done["rounds"] += round_ is not None
            yield round_

    def counted_tools(self: ChatRequest) -> Any:
        done["tools"] += 1
        return tools(self)

    def counted_take(self: ChatRequest, payload: Any) -> None:
        done["parsed"] += 1
        take(self, payload)

    monkeypatch.setattr(ChatRequest, "rounds", counted_rounds)
    monkeypatch.setattr(ChatRequest, "tools", counted_tools)
    monkeypatch.setattr(ChatRequest, "_take", counted_take)
    return done


def paging(count: int, *, tools: int = 1, first: int = 0) -> list[str]:
    """So many rounds that read on, of so many tools by turns."""
    return [f"{'abcde'[at % tools]}{at}=page{at}" for at in range(first, first + count)]


def said(*parts: str, text: bool = False) -> bytes:
    """The body of a request of these parts; `text`: before the last message the model speaks, and calls nothing."""
    turns = messages(parts)
    for turn in turns:
        if turn["role"] == "tool" and turn["content"] == "came back err":
            turn["content"] = ERROR
    if text:
        turns[-1:] = [{"role": "assistant", "content": "Done."}, turns[-1]]
    return json.dumps({"model": "m", "messages": turns, "tools": [{"type": "function"}]}).encode()


def talk(body: bytes, state: LaneState, **settings: Any) -> Conversation:
    """The conversation of a body."""
    return Conversation(read(OPENAI, body), state, 1.0, LoopSettings.model_validate(settings))


def noted(conversation: Conversation) -> list[tuple[int, str, str]]:
    """What a request is to carry."""
    return [(note.position, note.call.id, note.text) for note in notes_for(conversation)]


def places(conversation: Conversation) -> list[int]:
    """The positions of rounds that carry a note."""
    return [position for position, _, _ in noted(conversation)]


def test_rounds_of_changing_tools_are_not_read(work: Counter[str]) -> None:
    """No tool has enough of them in a row for a streak of one error."""
    conversation = talk(said("user: Go.", *[f"{'abcde'[at // 3 % 5]}{at}=err" for at in range(60)]), LaneState())
    assert places(conversation) == []
    assert work["rounds"] < 20


@pytest.mark.parametrize("user", [(), ("user: And now?",)], ids=["results", "user"])
def test_what_has_been_looked_over_is_not_again(work: Counter[str], user: tuple[str, ...]) -> None:
    """Whether the newest round is of this timeline or of the one before."""
    body = said("user: Go.", *paging(40), *user, text=bool(user))
    first = talk(body, LaneState())
    assert places(first) == []
    assert work["rounds"] >= 40
    assert first.learned
    work.clear()
    again = talk(body, first.learned)
    assert places(again) == []
    assert work["rounds"] <= 11  # read at once
    assert not work["tools"]
    assert again.learned is None


@pytest.mark.parametrize("user", [(), ("user: And now?",)], ids=["results", "user"])
def test_nor_where_the_answer_has_brought_a_call(work: Counter[str], user: tuple[str, ...]) -> None:
    """The round that was the newest is kept with the call."""
    body = said("user: Go.", *paging(40), *user, text=bool(user))
    first = talk(body, LaneState())
    places(first)
    call = next(round_ for round_ in first.request.rounds() if round_).calls
    state = first.after([call], [], 1.0, max_rounds=128)
    work.clear()
    places(talk(body, state))
    assert work["rounds"] < 5


def test_a_user_speaks_after_a_long_session(work: Counter[str]) -> None:
    """Its newest round came with the last answer that had a call; the ledger knows it from there."""
    state, turns = LaneState(), ["user: Go.", *paging(40)]
    for count in range(38, 41):
        body = said(*turns[: count + 1])
        newest = next(round_ for round_ in read(OPENAI, said(*turns[: count + 2])).rounds() if round_)
        conversation = talk(body, state)
        places(conversation)
        state = conversation.after([newest.calls] if count < 40 else [], [], 1.0, max_rounds=128)
    work.clear()
    assert places(talk(said(*turns, "user: And now?", text=True), state)) == []
    assert work["rounds"] < 5


@pytest.mark.parametrize("user", [(), ("user: And now?",)], ids=["results", "user"])
@pytest.mark.parametrize("after", [0, 1, 3, 9])
def test_what_comes_later_is_found(user: tuple[str, ...], after: int) -> None:
    """A streak of one error that begins before the look and ends after it, or comes after it as a whole."""
    calm = ["user: Go.", *paging(40), *user]
    first = talk(said(*calm, *[f"a9{at}=err" for at in range(3)]), LaneState())
    assert places(first) == []
    assert first.learned
    more = [f"a8{at}=err" for at in range(after)]
    body = said(*calm, *[f"a9{at}=err" for at in range(3)], *more)
    assert places(talk(body, first.learned)) == places(talk(body, LaneState()))
    assert len(places(talk(body, first.learned))) == max(0, after)


def test_another_history_is_looked_over(work: Counter[str]) -> None:
    """What was learned of one is not believed of another, whose newest round is not the same."""
    learned = talk(said("user: Go.", *paging(40)), LaneState()).learned
    assert learned is None  # nobody has asked yet
    first = talk(said("user: Go.", *paging(40)), LaneState())
    places(first)
    assert first.learned
    other = ["user: Go.", *[f"a{at}=err" for at in range(5)], *paging(35, first=50)]
    assert len(places(talk(said(*other), first.learned))) == 2
    assert len(places(talk(said(*other, "user: And now?", text=True), first.learned))) == 2


def test_nor_of_one_that_another_message_began(work: Counter[str]) -> None:
    """Though its newest round stands at the same place, under the same id."""
    first = talk(said("user: Go.", *paging(40), "user: And now?", text=True), LaneState())
    places(first)
    assert first.learned
    other = ["user: Try it.", *[f"a{at}=err" for at in range(5)], *paging(35, first=5), "user: And now?"]
    assert len(places(talk(said(*other, text=True), first.learned))) == 2


def test_what_was_learned_of_an_earlier_turn_is_not_this_turns() -> None:
    """Where the user has spoken, and rounds have come that the ledger does not know."""
    first = talk(said("user: Go.", *paging(40)), LaneState())
    places(first)
    assert first.learned
    body = said("user: Go.", *paging(40), "user: And now?", *paging(4, first=60))
    later = talk(body, first.learned)
    places(later)
    assert later.after([], [], 1.0, max_rounds=128).turn_at == 81 == read(OPENAI, body).turn()[0]


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("user", ["user: And now?", "user: Go."])
def test_what_a_history_is_recognised_by_is_no_evidence(named: bool, user: str) -> None:
    """Its timeline is over. A client that has then dropped all rounds has the live timeline's only."""
    first = talk(said("user: Go.", *paging(40), user, text=True), LaneState())
    places(first)
    assert first.learned
    called = next(round_ for round_ in read(OPENAI, said("user: Go.", "a1=x")).rounds() if round_).calls
    state = first.after([called], [], 1.0, max_rounds=128)
    for summary in ("assistant", "user"):
        turns = [{"role": "user", "content": "Go."}, {"role": summary, "content": "So far, so good."}]
        body = json.dumps({"model": "m", "messages": turns, "tools": [{"type": "function"}]}).encode()

        def counted(kept: LaneState, body: bytes = body) -> list[str]:
            compacted = Conversation(read(OPENAI, body), kept, 1.0, LoopSettings(), named=named)
            return [call.id for round_ in compacted.timeline for call in round_.calls]

        assert counted(first.learned) == []
        is_live = named or (user == "user: Go." and summary == "assistant")
        assert counted(state) == ([called[0].id] if is_live else [])


def test_a_loop_is_not_forgotten() -> None:
    """A history that shows one is looked over each time, so that its notes stay where they are."""
    turns = ["user: Go.", *[f"a{at}=err" for at in range(5)], *paging(40, first=50)]
    first = talk(said(*turns), LaneState())
    assert len(places(first)) == 2
    assert first.learned is None
    state = first.after([], [], 1.0, max_rounds=128)
    assert places(talk(said(*turns), state)) == places(first)


def test_a_short_history_is_not_worth_keeping() -> None:
    """To keep it would cost more than to look again."""
    first = talk(said("user: Go.", *paging(12)), LaneState())
    assert places(first) == []
    assert first.learned is None


@pytest.mark.parametrize("user", [(), ("user: And now?",)], ids=["results", "user"])
def test_calls_that_were_judged_are_not_again(work: Counter[str], user: tuple[str, ...]) -> None:
    """Where a ladder warns of calls, too."""
    body = said("user: Go.", *paging(40), *user, text=bool(user))
    first = talk(body, LaneState(), mode="warn")
    assert places(first) == []
    assert first.learned
    work.clear()
    assert places(talk(body, first.learned, mode="warn")) == []
    assert work["rounds"] < 20  # a window, whose signatures the ledger does not have


def test_another_mode_begins_anew() -> None:
    """What was not judged for warnings is judged once they are wanted."""
    turns = ["user: Go.", *["b=x"] * 4, *paging(40)]
    first = talk(said(*turns), LaneState(), mode="observe")
    assert places(first) == []
    assert first.learned
    assert sorted(places(talk(said(*turns), first.learned, mode="warn"))) == [5, 7]
    state = first.after([], [], 1.0, max_rounds=128)
    assert sorted(places(talk(said(*turns), state, mode="warn"))) == [5, 7]


STEPS = st.lists(
    st.sampled_from(["a=x", "a=x", "a1=err", "a2=err", "b=y", "a=x b=y", "c3=z", "user: Go on.", "user: No.", "text"]),
    max_size=24,
)


@given(steps=STEPS, mode=st.sampled_from(["warn", "graduated", "chance_then_block"]), many=st.sampled_from([1, 6, 64]))
def test_who_knows_says_what_a_stranger_says(steps: list[str], mode: str, many: int) -> None:
    """Of the same history, whatever has been learned of it in the requests before."""
    turns, state = ["user: Go."], LaneState()
    with mock.patch("callfuse.conversations.conversation.MANY", many):
        for step in steps:
            known = talk(said(*turns), state, mode=mode)
            assert noted(known) == noted(talk(said(*turns), LaneState(), mode=mode))
            if not step.startswith(("user:", "text")):
                newest = next(round_ for round_ in read(OPENAI, said(*turns, step)).rounds() if round_)
                state = known.after([newest.calls], [], 1.0, max_rounds=128)
            else:
                state = known.learned or state
            turns += [step] if step != "text" else []


@every_dialect
@streamed_and_whole
@pytest.mark.parametrize("chunks", [1, 0], ids=["at once", "by frames"])
def test_a_text_is_enough_in_all_dialects(kit: DialectKit, stream: bool, chunks: int) -> None:
    """A stream that never speaks of a call is looked at no further, but to its end."""
    rounds = tuple(Round((Call(f"call_{at}", "search", (f'{{"page": {at}}}',)),), ("fine",)) for at in range(40))
    answer = Answer(((Text(("It is ", "done.")),),))
    told = framewise(kit, answer) if stream and not chunks else reply(kit, answer, stream=stream)
    ledger = MemoryLedger(max_lanes=9, ttl_s=99.0)
    app = guard(play(told), store=ledger)
    assert run(app, ask(kit, History((User("Read."), *rounds, User("And now?"))), stream=stream)).body == told.body
    assert len(ledger) == 1
    run(app, ask(kit, History((User("Read."), *rounds[:6])), stream=stream))
    run(app, ask(kit, History((User("Look."), *rounds[:6])), stream=stream))
    assert len(ledger) == 1


@pytest.mark.parametrize("call", [False, True], ids=["text", "call"])
def test_one_look_and_one_parse(work: Counter[str], call: bool) -> None:
    """A middleware looks over a long history once, and parses no body twice, whatever the answers bring."""
    calls = [{"id": "new", "type": "function", "function": {"name": "a", "arguments": "1"}}] if call else None
    answer = {"index": 0, "message": {"role": "assistant", "content": "Fine.", "tool_calls": calls}}
    body = json.dumps({"id": "c", "object": "chat.completion", "choices": [answer]}).encode()
    app = guard(play(*[whole(body)] * 3))
    request = Request(PATH, said("user: Go.", *paging(40)), JSON_REQUEST)
    for looks in (1, 0, 0):
        work.clear()
        run(app, request)
        assert work["tools"] == looks
        assert (work["rounds"] >= 40) == bool(looks)
        assert work["parsed"] == 1
