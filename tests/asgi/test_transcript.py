"""At DEBUG the log is a transcript of what callfuse did, which users can send in; at INFO nothing of it is made."""

import logging
import re

from callfuse.conversations.memory import MemoryLedger
from tests.support.asgi import run
from tests.support.config import guard
from tests.support.kits import KITS, DialectKit
from tests.support.meeting import ask, every_dialect, framewise, given_log
from tests.support.model import History, User
from tests.support.plain import again, elsewhere, spin
from tests.support.scripted import play

TRANSITION = re.compile(
    r"Guard in session \S+: (choice 0: \w+ \w+ -> \w+, [\w-]+|answer: \w+ -> \w+), \d+ bytes waiting"
)
VERDICT = re.compile(
    r"Verdict in session \S+: kind=repeat, tool=search, count=3/3, hard=False, calls=\[call_s0, call_s1\], "
    r"rung=steer, confidence=1, signature=[0-9a-f]+ of search:\{.*\}"
)


def transcript(kit: DialectKit, level: int) -> list[str]:
    """What is logged below INFO of an exchange that is steered."""
    app = play(framewise(kit, again()), framewise(kit, elsewhere()))
    with given_log(level) as log:
        run(guard(app, "chance_then_block"), ask(kit, spin(), stream=True))
    return [text for _, at, text in log if at == logging.DEBUG]


@every_dialect
def test_a_hold_is_told_step_by_step(kit: DialectKit) -> None:
    """The transitions of hold and guard, with what is done and how many bytes wait; then the verdict, with its
    evidence."""
    told = [text for text in transcript(kit, logging.DEBUG) if text.startswith(("Guard ", "Verdict "))]
    assert sum(bool(VERDICT.fullmatch(text)) for text in told) == 1
    holds = [text for text in told if text.startswith("Guard ")]
    assert all(TRANSITION.fullmatch(text) for text in holds)
    moves = [text.split(": ")[2].split(", ")[0] for text in holds]
    assert moves[:3] == ["PASSING SUSPECT -> HOLDING", "HOLDING LOOPING -> CONDEMNED", "CONDEMNED END -> ENDED"]


CALL = re.compile(r"Call in session \S+: tool=(\w+), verdict=(\w+), signature=[0-9a-f]+ of search:\{.*\}")


@every_dialect
def test_each_call_is_told(kit: DialectKit) -> None:
    """Also one without a finding, each with its signature and what was done about it."""
    calls = [found.groups() for text in transcript(kit, logging.DEBUG) if (found := CALL.fullmatch(text))]
    assert calls == [("search", "steer"), ("search", "none")]


def test_what_is_pruned_is_told() -> None:
    """The rounds from before a person's message no longer count."""
    kit, ledger = KITS[0], MemoryLedger(max_lanes=10, ttl_s=60)
    spoken = History((*spin(1).turns, User("Something else.")))
    with given_log(logging.DEBUG) as log:
        for history in (spin(1), spoken):
            run(guard(play(framewise(kit, elsewhere())), store=ledger), ask(kit, history, stream=True))
    assert [text.partition(": ")[2] for _, _, text in log if text.startswith("Pruned ")] == ["2 rounds, 1 kept"]


def test_nothing_of_it_is_made_for_nobody() -> None:
    """Not at INFO."""
    assert transcript(KITS[0], logging.INFO) == []
