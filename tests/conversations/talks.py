"""Conversations as words, and a lane of the ledger over them.

In: parts, oldest first: `user: text` is a user message, `model: text` an answer without calls, anything else a round in
the words of `tests.detect.timelines`. Out: requests as the dialect reads them, and the timelines that a lane makes of
them, written back as words.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any

from callfuse.conversations.ledger import LaneState
from callfuse.conversations.timeline import Conversation, read_conversation
from callfuse.dialects.base import Request
from callfuse.model import PastCall, Timeline
from callfuse.policy.settings import LoopSettings
from tests.detect.timelines import call, past
from tests.guard.driving import read
from tests.guard.written import OPENAI

Ids = Callable[[int, str], str]
"""The id of the n-th call of a conversation, which has this name."""


def by_number(number: int, _name: str) -> str:
    """Every call has an id of its own."""
    return f"id{number}"


def by_name(_number: int, name: str) -> str:
    """Ids that start anew in each round, as Kimi's do."""
    return f"functions.{name}:0"


def without(_number: int, _name: str) -> str:
    """No ids, as in Gemini's compatible form."""
    return ""


def messages(parts: Sequence[str], ids: Ids = by_number) -> list[dict[str, Any]]:
    """The parts as messages; a call without an outcome has no result yet."""
    found: list[dict[str, Any]] = []
    number = 0
    for said in parts:
        if said.startswith("user:"):
            found.append({"role": "user", "content": said.removeprefix("user:").strip()})
            continue
        if said.startswith("model:"):
            found.append({"role": "assistant", "content": said.removeprefix("model:").strip()})
            continue
        calls, results = [], []
        for word in said.split():
            made = past(word)
            id_ = ids(number, made.name)
            function = {"name": made.name, "arguments": made.call.arguments}
            calls.append({"id": id_, "type": "function", "function": function})
            if made.result is not None:
                results.append({"role": "tool", "tool_call_id": id_, "content": made.result[0]})
            number += 1
        found += [{"role": "assistant", "content": None, "tool_calls": calls}, *results]
    return found


def request(*parts: str, ids: Ids = by_number, drop: slice | None = None) -> Request:
    """A request of these parts; `drop` are messages that the client has left out."""
    turns = messages(parts, ids)
    if drop is not None:
        del turns[drop]
    return read(OPENAI, json.dumps({"model": "m", "messages": turns, "tools": [{"type": "function"}]}).encode())


def talk(asked: Request, state: LaneState | None = None, settings: LoopSettings | None = None) -> Conversation:
    """The conversation of a request; without a state the ledger knows nothing of it."""
    return read_conversation(asked, state or LaneState(), 99.0, settings or LoopSettings())


class Lane:
    """The ledger of one lane, over several exchanges."""

    def __init__(self, ids: Ids = by_number, settings: LoopSettings | None = None) -> None:
        self.state = LaneState()
        self.ids = ids
        self.now = 0.0
        self.settings = settings or LoopSettings()

    def look(self, *parts: str, drop: slice | None = None) -> Conversation:
        """The conversation of a request with these parts."""
        return read_conversation(request(*parts, ids=self.ids, drop=drop), self.state, self.now, self.settings)

    def answer(self, *parts: str, brings: Sequence[str], drop: slice | None = None, place: int = 0) -> Conversation:
        """An exchange over these parts that brings rounds (several where the model was asked again)."""
        conversation = self.look(*parts, drop=drop)
        number = sum(len(one.split()) for one in parts if not one.startswith("user:"))
        rounds: list[list[PastCall]] = []
        for text in brings:
            made = []
            for word in text.split():
                one = past(word)
                id_ = "withheld" if one.withheld else self.ids(number, one.name)
                number += not one.withheld
                one = past(word, id_)
                one.step = place or one.step
                made.append(one)
            rounds.append(made)
        self.now += 10
        self.state = conversation.evidence.after(rounds, [], self.now, max_rounds=128, conversation=conversation)
        return conversation


def words(timeline: Timeline) -> list[str]:
    """A timeline as rounds of words, oldest first."""
    return [" ".join(_word(one) for one in round_.calls) for round_ in reversed(list(timeline))]


def _word(one: PastCall) -> str:
    mark = "!!" if one.blocked else "!" if one.withheld else ""
    came = "" if one.outcome is None else f"={one.outcome.text.removeprefix('came back ')}"
    number = next((str(n) for n in range(10) if one.signature == call(f"{one.name}{n or ''}").signature), "?")
    return f"{mark}{one.name}{number.removeprefix('0')}{came}"
