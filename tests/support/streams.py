"""Hypothesis strategies: answers, histories and chunkings, in the neutral model.

Out: values for a kit to render. Arguments and ids carry marks that occur nowhere else, so that a leak can be seen
in the bytes. A call that repeats an earlier one is written in another hand (key order, white space, escapes): it
is still the same call.
"""

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

from tests.support.kits import DialectKit
from tests.support.model import Answer, Call, Choice, History, Item, Quirks, Round, Style, Text, Thinking, User
from tests.support.wire import bytewise, cut

KNOWN: tuple[tuple[str, dict[str, Any]], ...] = (
    ("search", {"query": "zebra crossing", "limit": 5}),
    ("search", {"query": "okapi"}),
    ("read_file", {"path": "/srv/ünï \u2028/\U0001f993.txt", "id": 9007199254740993}),
    ("lookup", {}),
)
"""The calls that histories repeat."""
MARKS = ("zebra", "okapi", "/srv/", "9007199254740993")

RESULTS = ("nothing was found", "a list of twelve entries é", 'exit code 1: "no such file"\n')

_SPECIAL = ("[DONE]", "data: x", "\n\n", "\r\n", "tool_calls", '"tool_use"', "\u2028", "\U0001f993", "{}", "\\")
_WORDS = st.text(alphabet=st.sampled_from("abc xyz.,é漢"), max_size=12)
PIECES = st.lists(st.one_of(_WORDS, st.sampled_from(_SPECIAL)), max_size=3).map(lambda more: ("So", *more))
"""What a model says in pieces; never nothing at all, which no vendor would take back."""


def hands(value: dict[str, Any]) -> st.SearchStrategy[str]:
    """The same arguments as different models write them."""
    turned = dict(reversed(value.items()))
    ways = [
        json.dumps(value, separators=(",", ":"), ensure_ascii=False),
        json.dumps(value),
        json.dumps(turned, ensure_ascii=False),
        json.dumps(turned, separators=(" , ", " : ")),
    ]
    return st.sampled_from(ways if value else ["{}", "", "{ }"])


@st.composite
def split(draw: st.DrawFn, text: str) -> tuple[str, ...]:
    """Text in pieces, some perhaps empty."""
    edges = [0, *sorted(draw(st.lists(st.integers(0, len(text)), max_size=4))), len(text)]
    return tuple(text[start:end] for start, end in pairwise(edges))


@st.composite
def calls_of(draw: st.DrawFn, which: Sequence[tuple[str, dict[str, Any]]], prefix: str) -> tuple[Call, ...]:
    """These calls, with ids that occur nowhere else, in any hand and any pieces."""
    written = [(name, draw(split(draw(hands(arguments))))) for name, arguments in which]
    return tuple(Call(f"{prefix}{at}Q", name, pieces) for at, (name, pieces) in enumerate(written))


def fresh(at: int) -> tuple[str, dict[str, Any]]:
    """A call that no history has."""
    return "search", {"query": f"fresh {chr(97 + at)}", "deep": {"n": [1.5, None, "é"]}}


@st.composite
def quirks(draw: st.DrawFn, kit: DialectKit, *, plain: bool = False) -> Quirks:
    """A vendor's habits; `plain` keeps to those under which each frame is for one item and the SDK reads all."""
    flag = st.booleans()
    odd = st.just(value=False) if plain or kit.most_choices == 1 else flag
    return Quirks(
        newline=draw(st.sampled_from(kit.newlines)),
        space=draw(flag),
        spread=draw(flag),
        spaced=draw(flag),
        inline_comment=draw(flag),
        unterminated=draw(odd),
        noise=() if plain else tuple(draw(st.lists(st.integers(0, 30), max_size=3))),
        nulls=draw(flag),
        whole_calls=draw(flag),
        no_index=draw(odd),
        repeat_id=draw(odd),
        empty_id=draw(flag),
        finish_with_last=draw(odd),
        no_finish=draw(flag) if kit.may_lack_finish and not plain else False,
        interleave=draw(flag),
        custom=draw(odd),
        details=draw(odd),
        extras=draw(flag),
    )


@st.composite
def choices(draw: st.DrawFn, calls: tuple[Call, ...], *, late_text: bool) -> Choice:
    """Thinking, text and these calls, in the order of the dialects; `late_text` may follow or part the calls."""
    said: list[Item] = [Thinking(draw(PIECES))] if draw(st.booleans()) else []
    said += [Text(pieces) for pieces in draw(st.lists(PIECES, max_size=2, min_size=0 if calls else 1))]
    made: list[Item] = list(calls)
    if late_text and draw(st.integers(0, 3)) == 0:
        made.insert(draw(st.integers(0, len(made))), Text(draw(PIECES)))
    return (*said, *made)


@st.composite
def answers(
    draw: st.DrawFn,
    kit: DialectKit,
    which: Sequence[tuple[str, dict[str, Any]]] = (),
    *,
    plain: bool = False,
    tag: str = "first",
    many: bool = True,
) -> Answer:
    """An answer with these calls in each of its choices."""
    count = draw(st.integers(1, kit.most_choices)) if many else 1
    calls = [draw(calls_of(which, f"call_{tag}{at}N")) for at in range(count)]
    said = tuple(draw(choices(made, late_text=kit.late_text)) for made in calls)
    return Answer(said, draw(quirks(kit, plain=plain)), draw(st.booleans()), tag)


def rounds_of(
    plan: Sequence[Sequence[tuple[tuple[str, dict[str, Any]], str]]], prefix: str = "call_h"
) -> st.SearchStrategy[tuple[Round, ...]]:
    """Rounds by a plan of (call, result), each round's calls in any hand."""

    @st.composite
    def build(draw: st.DrawFn) -> tuple[Round, ...]:
        return tuple(
            Round(
                draw(calls_of([call for call, _ in planned], f"{prefix}{at}n")),
                tuple(result for _, result in planned),
                draw(st.sampled_from(["", "Let me see."])),
            )
            for at, planned in enumerate(plan)
        )

    return build()


@st.composite
def looping(draw: st.DrawFn, *, before: int = 2, beside: bool = False) -> History:
    """`KNOWN[0]` came `before` times in a row with one outcome; `beside` also knows `KNOWN[1]` and `KNOWN[3]`."""
    plan = [[(KNOWN[1], RESULTS[1])], [(KNOWN[3], RESULTS[0])]] if beside else []
    plan += [[(KNOWN[0], RESULTS[0])]] * before
    return History((User("Find the zebra crossing."), *draw(rounds_of(plan))))


@st.composite
def healthy(draw: st.DrawFn) -> History:
    """A history without two equal rounds, perhaps with a user message in between."""
    plan = [[(fresh(10 + at), RESULTS[at % 3])] for at in range(draw(st.integers(0, 3)))]
    turns: list[User | Round] = [User("Find something."), *draw(rounds_of(plan))]
    return History((*turns, User("And now?")) if draw(st.booleans()) else tuple(turns))


@st.composite
def tangled(draw: st.DrawFn) -> History:
    """Any history over few calls and two outcomes: loops, near-loops, progress, user messages."""
    pool = [*KNOWN[:2], KNOWN[3], fresh(20)]
    turns: list[User | Round] = [User("Find something.")]
    for at in range(draw(st.integers(0, 6))):
        if draw(st.integers(0, 9)) == 0:
            turns.append(User("And now?"))
            continue
        steady = draw(st.booleans())
        picks = [0] if steady else draw(st.lists(st.integers(0, 3), min_size=1, max_size=3, unique=True))
        plan = [(pool[pick], RESULTS[0] if steady else draw(st.sampled_from(RESULTS[:2]))) for pick in picks]
        turns += draw(rounds_of([plan], f"call_h{at}r"))
    ending = draw(st.sampled_from([0, 0, 1, 2, 2, 3]))
    return History((*turns, *draw(rounds_of([[(pool[0], RESULTS[0])]] * ending, "call_e"))))


def styles() -> st.SearchStrategy[Style]:
    """Any client's hand."""
    flag = st.booleans()
    return st.builds(Style, spaced=flag, ascii=flag, parts=flag)


@st.composite
def chunkings(draw: st.DrawFn, body: bytes) -> tuple[bytes, ...]:
    """A body whole, byte by byte, or cut anywhere, with empty chunks at times."""
    way = draw(st.sampled_from(["whole", "bytes", "cuts", "cuts"]))
    if way == "whole":
        return (body,)
    if way == "bytes":
        return bytewise(body)
    return cut(body, draw(st.lists(st.integers(0, len(body)), max_size=12)))
