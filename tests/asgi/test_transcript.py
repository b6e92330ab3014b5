"""At DEBUG the log is a transcript of what callfuse did, which users can send in; at INFO nothing of it is made."""

import logging
import re

from tests.support.asgi import run
from tests.support.config import guard
from tests.support.kits import KITS, DialectKit
from tests.support.meeting import ask, every_dialect, framewise, given_log
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


def test_nothing_of_it_is_made_for_nobody() -> None:
    """Not at INFO."""
    assert transcript(KITS[0], logging.INFO) == []
