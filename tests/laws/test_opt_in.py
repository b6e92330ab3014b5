"""Kinds that are off by default: on the wire, where the result that shows a loop tells of it, and in process."""

from typing import Any

import pytest

from callfuse.inprocess.detector import LoopDetector
from callfuse.model import ToolCall
from tests.support.kits import KITS, DialectKit
from tests.support.meeting import MARK, ask, meet, reply
from tests.support.model import Call, History, Round, User
from tests.support.plain import saying

WORDS = ("ant", "bee", "cow", "dog", "eel", "fox", "gnu", "hen", "ibis", "jay")
CUT = '{"path": "report.md", "text": "The quick brown fox jumps over'
"""Arguments that the length limit has cut off."""

FAILING = [(f"tool_{word}", f'{{"of": "{word}"}}', f"Error: the {word} is not at home") for word in WORDS]
CUT_OFF = [("search", f"{CUT} the {word}", f"the arguments end early, behind {word}") for word in WORDS[:4]]

KINDS = [
    pytest.param("error_rate", FAILING, 8, ("openai-chat", "anthropic"), id="error_rate"),
    # Anthropic's arguments are values, in which no end can be missing.
    pytest.param("truncated", CUT_OFF, 3, ("openai-chat", "openai-responses"), id="truncated"),
]
each_kind = pytest.mark.parametrize(("kind", "calls", "limit", "dialects"), KINDS)
Made = list[tuple[str, str, str]]


def told(kit: DialectKit, calls: Made, **settings: Any) -> list[bool]:
    """Which results of these calls carry a warning when they reach the model."""
    rounds = [Round((Call(f"call_{at}", tool, (text,)),), (said,)) for at, (tool, text, said) in enumerate(calls)]
    history = History((User("Find the zebra crossing."), *rounds))
    met = meet(ask(kit, history, stream=True), [reply(kit, saying("Done."), stream=True)], "block", **settings)
    return [MARK in text for _, text in kit.results(met.app.heard[0].body)]


@each_kind
def test_it_is_told_where_it_is_on(kind: str, calls: Made, limit: int, dialects: tuple[str, ...]) -> None:
    """From the limit on, whatever the ladder; by default nothing is."""
    expected = [at + 1 >= limit for at in range(len(calls))]
    kits = [kit for kit in KITS if kit.name in dialects]
    assert len(kits) == len(dialects)
    for kit in kits:
        assert told(kit, calls, detectors={kind: True}) == expected
        assert not any(told(kit, calls))


@each_kind
def test_it_is_found_in_process(kind: str, calls: Made, limit: int, dialects: tuple[str, ...]) -> None:
    """With the result that completes it; what is told by the call itself, with that."""
    detector = LoopDetector({"tool_call_loop": {"detectors": {kind: True}}})
    found = []
    for at, (tool, text, said) in enumerate(calls):
        call = ToolCall(f"call_{at}", tool, text)
        told = [detector.check(call), detector.record(said, call)]
        assert told[1 if kind == "truncated" else 0] is None
        found.append([one.kind for one in told if one is not None])
    assert found == [[kind] if at + 1 >= limit else [] for at in range(len(calls))]
