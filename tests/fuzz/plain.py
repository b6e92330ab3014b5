"""Answers and conversations drawn from plain dice: as `tests.support.streams`, and hundreds of times as fast."""

import json
import random
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from tests.support.kits import DialectKit
from tests.support.model import Answer, Call, Choice, History, Item, Quirks, Round, Text, Thinking, User
from tests.support.streams import KNOWN as REPEATED
from tests.support.streams import RESULTS, fresh

KNOWN: tuple[tuple[str, dict[str, Any]], ...] = (*REPEATED, fresh(0))
WORDS = ("So", " we go", "[DONE]", "data: x", "\n\n", "\r\n", "tool_calls", '"tool_use"', "\u2028", "\U0001f993", "{}")
OWN_RESULTS = (*RESULTS, "", "Error: 429 Too Many Requests", "\x1b[31mred\x1b[0m \x1b]0;t", '{"status": "pending"}')
SAID = ("And now?", "!/set(tool-loop-mode=warn)", "!/status", "!/help !/unset(tool-loop-ttl)", "[callfuse] Go on.")


def draw_answer(kit: DialectKit, dice: random.Random, which: Sequence[tuple[str, dict[str, Any]]], tag: str) -> Answer:
    """An answer with these calls in each of its choices."""
    count = dice.randint(1, kit.most_choices)
    choices = tuple(_choice(kit, dice, which, f"call_{tag}x{at}N") for at in range(count))
    return Answer(choices, _quirks(kit, dice), dice.random() < 0.7, tag)


def draw_history(dice: random.Random, calls: Sequence[tuple[str, str]]) -> History:
    """A conversation that has seen these calls, names and arguments, up to four times, and perhaps something else."""
    turns: list[User | Round] = [User("Find the zebra crossing.")]
    times = dice.choice((0, 1, 2, 2, 2, 2, 3, 5, 7)) if calls else 0
    result, steady = dice.choice(OWN_RESULTS), dice.random() < 0.8
    for at in range(times):
        if dice.random() < 0.1:
            turns.append(_other(dice, at))
        results = tuple(result if steady else dice.choice(OWN_RESULTS) for _ in calls)
        made = tuple(Call(f"call_h{at}n{place}Q", name, (text,)) for place, (name, text) in enumerate(calls))
        turns.append(Round(made, results, dice.choice(("", "", "Let me see."))))
    if dice.random() < 0.06:
        turns.append(User(dice.choice(SAID)))
    names = {name: None for name, _ in calls}
    return History(tuple(turns), tools=tuple(names) if names and dice.random() < 0.95 else ("search", "lookup"))


def _other(dice: random.Random, at: int) -> User | Round:
    if dice.random() < 0.3:
        return User(dice.choice(SAID))
    name, arguments = dice.choice(KNOWN)
    return Round((Call(f"call_o{at}Q", name, (json.dumps(arguments),)),), (dice.choice(OWN_RESULTS),))


def _choice(kit: DialectKit, dice: random.Random, which: Sequence[tuple[str, dict[str, Any]]], prefix: str) -> Choice:
    said: list[Item] = [Thinking(_said(dice))] if dice.random() < 0.4 else []
    said += [Text(_said(dice)) for _ in range(dice.choice((0, 1, 1, 2) if which else (1, 1, 2)))]
    calls: list[Item] = [
        Call(f"{prefix}{at}Q", name, _pieces(dice, _hand(dice, arguments)))
        for at, (name, arguments) in enumerate(which)
    ]
    if kit.late_text and dice.random() < 0.2:
        calls.insert(dice.randint(0, len(calls)), Text(_said(dice)))
    return (*said, *calls)


def _said(dice: random.Random) -> tuple[str, ...]:
    return ("So", *dice.choices(WORDS, k=dice.randrange(4)))


def _hand(dice: random.Random, value: dict[str, Any]) -> str:
    ways = [
        json.dumps(value, separators=(",", ":"), ensure_ascii=False),
        json.dumps(value),
        json.dumps(value, indent=1),
    ]
    return dice.choice(ways if value else ["{}", "", "{ }"])


def _pieces(dice: random.Random, text: str) -> tuple[str, ...]:
    edges = [0, *sorted(dice.choices(range(len(text) + 1), k=dice.randrange(5))), len(text)]
    return tuple(text[start:end] for start, end in pairwise(edges))


def _quirks(kit: DialectKit, dice: random.Random) -> Quirks:
    def flag(share: float = 0.3) -> bool:
        return dice.random() < share

    odd = 0.2 if kit.most_choices > 1 else 0.0
    return Quirks(
        newline=dice.choice(kit.newlines),
        space=flag(0.7),
        spread=flag(0.2),
        spaced=flag(),
        inline_comment=flag(0.2),
        unterminated=flag(odd),
        noise=tuple(dice.randrange(30) for _ in range(dice.choice((0, 0, 1, 3)))),
        nulls=flag(),
        whole_calls=flag(),
        no_index=flag(odd),
        repeat_id=flag(odd),
        empty_id=flag(),
        finish_with_last=flag(odd),
        no_finish=kit.may_lack_finish and flag(0.15),
        interleave=flag(),
        custom=flag(odd),
        details=flag(odd),
        extras=flag(),
    )
