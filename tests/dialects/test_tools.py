"""Calls without their results, and the tool of each round, told at a fraction of what rounds cost: the same as the
rounds say, in all dialects."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callfuse.dialects.base import Request
from tests.dialects.test_parsed import read
from tests.guard.driving import read as read_by
from tests.guard.written import ANTHROPIC, OPENAI
from tests.support.kits import DialectKit
from tests.support.meeting import ask, every_dialect
from tests.support.model import Call, History, Round, User

NAMES = st.sampled_from(["search", "lookup", "read_file"])
TURNS = st.lists(
    st.one_of(
        st.lists(NAMES, min_size=1, max_size=3),
        st.sampled_from([User("Go on."), User("[callfuse] Stop."), User("<system-reminder>x</system-reminder>")]),
    ),
    max_size=12,
)


def told_by_rounds(request: Request) -> list[str | None]:
    """What the rounds say of their tools."""
    return [round_.tool if round_ else None for round_ in request.rounds()]


def calls_by_rounds(request: Request) -> list[str]:
    """What the rounds say of their calls."""
    return sorted(repr(call) for round_ in request.rounds() if round_ for call in round_.calls)


def calls_of(request: Request) -> list[str]:
    """What the request says of its calls."""
    return sorted(map(repr, request.calls()))


@every_dialect
@given(turns=TURNS)
def test_what_the_rounds_say(kit: DialectKit, turns: list[list[str] | User]) -> None:
    """One tool or several, users, reminders and callfuse's own texts."""
    said: list[User | Round] = [User("Find it.")]
    for at, turn in enumerate(turns):
        if isinstance(turn, User):
            said.append(turn)
            continue
        calls = tuple(Call(f"call_{at}_{nth}", name, (f'{{"at": {at}}}',)) for nth, name in enumerate(turn))
        said.append(Round(calls, tuple("fine" for _ in calls)))
    request = read(kit, ask(kit, History(tuple(said)), stream=True).body)
    assert list(request.tools()) == told_by_rounds(request)
    assert calls_of(request) == calls_by_rounds(request)
    assert "" in told_by_rounds(request) or all(len(set(turn)) < 2 for turn in turns if isinstance(turn, list))


ODD: st.SearchStrategy[Any] = st.one_of(st.none(), st.integers(), st.text(max_size=3), st.just({}), st.just([]))
FUNCTION = st.one_of(ODD, st.fixed_dictionaries({}, optional={"name": st.one_of(NAMES, ODD), "arguments": ODD}))
PART = st.one_of(ODD, st.fixed_dictionaries({}, optional={"id": ODD, "function": FUNCTION}))
BLOCK = st.one_of(
    ODD,
    st.fixed_dictionaries(
        {"type": st.sampled_from(["tool_use", "tool_result", "text", "server_tool_use", None])},
        optional={"name": st.one_of(NAMES, ODD), "id": ODD, "text": st.just("<system-reminder>"), "caller": ODD},
    ),
)
CHAT_MESSAGE = st.one_of(
    ODD,
    st.fixed_dictionaries(
        {"role": st.sampled_from(["assistant", "assistant", "user", "tool", "system", "function", None])},
        optional={
            "content": st.one_of(ODD, st.lists(PART, max_size=2)),
            "tool_calls": st.one_of(st.none(), st.lists(PART, max_size=3)),
            "function_call": FUNCTION,
        },
    ),
)
ANTHROPIC_MESSAGE = st.one_of(
    ODD,
    st.fixed_dictionaries(
        {"role": st.sampled_from(["assistant", "assistant", "user", "system", None])},
        optional={"content": st.one_of(ODD, st.lists(BLOCK, max_size=3))},
    ),
)


@pytest.mark.parametrize(
    ("dialect", "message"), [(OPENAI, CHAT_MESSAGE), (ANTHROPIC, ANTHROPIC_MESSAGE)], ids=["openai-chat", "anthropic"]
)
@given(data=st.data())
def test_of_messages_of_any_shape(dialect: Any, message: st.SearchStrategy[Any], data: st.DataObject) -> None:
    """Whatever a client sends, where the tools are not told by the rounds themselves."""
    messages = data.draw(st.lists(message, max_size=6))
    request = read_by(dialect, json.dumps({"model": "m", "max_tokens": 9, "messages": messages}).encode())
    assert list(request.tools()) == told_by_rounds(request)
    assert calls_of(request) == calls_by_rounds(request)
